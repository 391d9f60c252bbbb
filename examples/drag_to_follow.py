#!/usr/bin/python3
"""Shows a video in a window: drag a box to follow what is in it, click a track to forget it.

  python3 examples/drag_to_follow.py [INPUT]

INPUT is a file or a URI; without one it is the first camera. Needs the element (scripts/install-plugin) and, on Debian,
python3-gi and gir1.2-gstreamer-1.0. Prints where each track begins, and when its state changes.
"""
import pathlib
import sys
import warnings

import gi

gi.require_version("Gst", "1.0")
from gi.repository import GLib, Gst


warnings.simplefilter("ignore", DeprecationWarning)  # A list of GStreamer's is a deprecated GValueArray here.


def source():
    if len(sys.argv) < 2:
        return "v4l2src"
    uri = sys.argv[1] if Gst.uri_is_valid(sys.argv[1]) else pathlib.Path(sys.argv[1]).absolute().as_uri()
    return f'uridecodebin uri="{uri}"'


def main():
    Gst.init(None)
    # The window tells the element what the mouse does: `navigation`. Other ways to choose are the element's signals, such as
    # `lockon.emit("follow", x, y, w, h)`.
    pipeline = Gst.parse_launch(
        f"{source()} ! videoconvert ! queue ! lockon name=lockon navigation=true ! videoconvert ! autovideosink"
    )
    loop, states = GLib.MainLoop(), {}

    def heard(_, message):
        if message.type == Gst.MessageType.ERROR:
            print(message.parse_error().gerror.message, file=sys.stderr)
            loop.quit()
        elif message.type == Gst.MessageType.EOS:
            loop.quit()
        elif message.type == Gst.MessageType.WARNING:
            print(message.parse_warning().gerror.message, file=sys.stderr)
        elif message.type == Gst.MessageType.ELEMENT and message.get_structure().get_name() == "lockon":
            said = message.get_structure()
            tracks, frame = said.get_list("tracks").array, said.get_uint64("frame").value
            for index in range(tracks.n_values):
                track = tracks.get_nth(index).copy()
                number, state = track.get_uint("id").value, track.get_string("state")
                if states.get(number) != state:
                    states[number] = state
                    x, y = track.get_double("x").value, track.get_double("y").value
                    print(f"frame {frame}: track {number} {state} at {x:.0f},{y:.0f}", flush=True)

    bus = pipeline.get_bus()
    bus.add_signal_watch()
    bus.connect("message", heard)
    pipeline.set_state(Gst.State.PLAYING)
    try:
        loop.run()
    except KeyboardInterrupt:
        pass
    pipeline.set_state(Gst.State.NULL)


main()
