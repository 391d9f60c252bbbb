#!/usr/bin/env python3
"""A real RTSP server for the tests: still colour bars (a corner of them is snow) in H.264, 50 frames a second, at rtsp://127.0.0.1:PORT/test.

Usage: rtsp-server.py PORT [WIDTHxHEIGHT] [frames=N] [login=USER:PASSWORD]; prints "ready" when clients may come. Ends when it is
killed. With frames=N the stream ends after so many, and says so; with login= clients must name themselves (basic authentication).
It also takes H.264 that is recorded to rtsp://127.0.0.1:PORT/in, and prints "WIDTHxHEIGHT" of the pictures, once 25 were decoded.
"""
import sys

import gi

gi.require_version("Gst", "1.0")
gi.require_version("GstRtsp", "1.0")
gi.require_version("GstRtspServer", "1.0")
from gi.repository import GLib, Gst, GstRtsp, GstRtspServer  # noqa: E402

port = sys.argv[1]
options = dict(word.split("=", 1) for word in sys.argv[2:] if "=" in word)
sizes = [word for word in sys.argv[2:] if "=" not in word]
width, height = (sizes[0] if sizes else "320x240").split("x")
Gst.init(None)
server = GstRtspServer.RTSPServer(address="127.0.0.1", service=port)
factory = GstRtspServer.RTSPMediaFactory(shared=True)
factory.set_launch(
    f"( videotestsrc is-live=true pattern=smpte num-buffers={options.get('frames', '-1')} "
    f"! video/x-raw,format=I420,width={width},height={height},framerate=50/1 "
    "! x264enc tune=zerolatency speed-preset=ultrafast bitrate=4000 key-int-max=25 ! rtph264pay name=pay0 pt=96 )"
)
if "login" in options:
    user, password = options["login"].split(":", 1)
    auth = GstRtspServer.RTSPAuth()
    token = GstRtspServer.RTSPToken()
    token.set_string(GstRtspServer.RTSP_TOKEN_MEDIA_FACTORY_ROLE, "viewer")
    auth.add_basic(GstRtspServer.RTSPAuth.make_basic(user, password), token)
    server.set_auth(auth)
    factory.add_role_from_structure(
        Gst.Structure.new_from_string("viewer, media.factory.access=(boolean)true, media.factory.construct=(boolean)true")[0]
        if isinstance(Gst.Structure.new_from_string("viewer"), tuple)
        else Gst.Structure.new_from_string("viewer, media.factory.access=(boolean)true, media.factory.construct=(boolean)true")
    )
server.get_mount_points().add_factory("/test", factory)


def take(_, media):
    seen = []

    def decoded(_, buffer, pad):
        seen.append(buffer.pts)
        if len(seen) == 25:
            caps = pad.get_current_caps().get_structure(0)
            print(f"{caps.get_value('width')}x{caps.get_value('height')}", flush=True)

    end = media.get_element().get_by_name("end")
    end.set_property("signal-handoffs", True)
    end.connect("handoff", decoded)


inlet = GstRtspServer.RTSPMediaFactory()
inlet.set_transport_mode(GstRtspServer.RTSPTransportMode.RECORD)
inlet.set_launch("( rtph264depay name=depay0 ! h264parse ! avdec_h264 ! fakesink name=end sync=false )")
inlet.connect("media-configure", take)
server.get_mount_points().add_factory("/in", inlet)
if server.attach(None) == 0:
    sys.exit(f"port {port} cannot be served")
print("ready", flush=True)
GLib.MainLoop().run()
