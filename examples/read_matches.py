#!/usr/bin/python3
"""Prints what the element `lockon` finds in a video: examples/read_matches.py VIDEO TEMPLATE (scripts/install-plugin first)."""
import sys
import warnings

import gi
gi.require_version("Gst", "1.0")
from gi.repository import Gst

warnings.simplefilter("ignore", DeprecationWarning)  # A list of GStreamer's is a deprecated GValueArray here.
Gst.init(None)
video, template = sys.argv[1:]
pipeline = Gst.parse_launch("filesrc name=file ! decodebin ! lockon name=lockon ! fakesink")
pipeline.get_by_name("file").set_property("location", video)
pipeline.get_by_name("lockon").set_property("template", template)
pipeline.set_state(Gst.State.PLAYING)
while (message := pipeline.get_bus().timed_pop(Gst.CLOCK_TIME_NONE)).type not in (Gst.MessageType.EOS, Gst.MessageType.ERROR):
    found = message.get_structure()
    if found and found.get_name() == "lockon":
        matches = found.get_list("matches").array
        for match in (matches.get_nth(n) for n in range(matches.n_values)):
            print(found.get_uint64("running-time").value / 1e9, match.to_string())
pipeline.set_state(Gst.State.NULL)
sys.exit(message.parse_error().gerror.message if message.type == Gst.MessageType.ERROR else 0)
