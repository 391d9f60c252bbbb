#!/usr/bin/env python3
"""A real RTSP server for the tests: a still test picture in H.264, 50 frames a second, at rtsp://127.0.0.1:PORT/test.

Usage: rtsp-server.py PORT [WIDTHxHEIGHT]; prints "ready" when clients may come. Ends when it is killed.
"""
import sys

import gi

gi.require_version("Gst", "1.0")
gi.require_version("GstRtspServer", "1.0")
from gi.repository import GLib, Gst, GstRtspServer  # noqa: E402

port = sys.argv[1]
width, height = (sys.argv[2] if len(sys.argv) > 2 else "320x240").split("x")
Gst.init(None)
server = GstRtspServer.RTSPServer(address="127.0.0.1", service=port)
factory = GstRtspServer.RTSPMediaFactory(shared=True)
factory.set_launch(
    "( videotestsrc is-live=true pattern=zone-plate kx2=20 ky2=20 "
    f"! video/x-raw,format=I420,width={width},height={height},framerate=50/1 "
    "! x264enc tune=zerolatency speed-preset=ultrafast bitrate=4000 key-int-max=25 ! rtph264pay name=pay0 pt=96 )"
)
server.get_mount_points().add_factory("/test", factory)
if server.attach(None) == 0:
    sys.exit(f"port {port} cannot be served")
print("ready", flush=True)
GLib.MainLoop().run()
