#!/usr/bin/python3
"""Follows what a detector finds in each Nth frame: examples/behind_a_detector.py VIDEO BOXES.csv [N] (scripts/install-plugin first).

The detector is yours: `detect` here, which takes its boxes from a file, `frame,x,y,w,h` a line. Prints a line for each frame in
which there is a track: frame, number, class, state, box.
"""
import csv
import sys
import warnings

import gi

gi.require_version("Gst", "1.0")
gi.require_version("GstVideo", "1.0")
from gi.repository import Gst, GstVideo

warnings.simplefilter("ignore", DeprecationWarning)  # A list of GStreamer's is a deprecated GValueArray here.
Gst.init(None)
video, boxes, every = sys.argv[1], sys.argv[2], int(sys.argv[3]) if len(sys.argv) > 3 else 10
with open(boxes) as file:
    known = {int(row["frame"]): [float(row[side]) for side in "xywh"] for row in csv.DictReader(file) if row["x"] != "nan"}


def detect(frame, buffer):
    """What is in a frame: class and box. A real one looks at the buffer's pixels."""
    return [("object", known[frame])] if frame in known else []


pipeline = Gst.parse_launch(
    "filesrc name=file ! decodebin ! videoconvert ! video/x-raw,format=I420 ! appsink name=frames sync=false max-buffers=4 "
    "appsrc name=detected format=time max-bytes=0 max-buffers=4 block=true ! lockon track-detections=true ! fakesink async=false"
)
pipeline.get_by_name("file").set_property("location", video)
frames, detected, bus = pipeline.get_by_name("frames"), pipeline.get_by_name("detected"), pipeline.get_bus()


def tell(message):
    """Prints the tracks of a message of the element."""
    said = message.get_structure()
    if message.type == Gst.MessageType.ELEMENT and said.get_name() == "lockon":
        tracks = said.get_list("tracks").array
        for track in (tracks.get_nth(n) for n in range(tracks.n_values)):
            sides = [f"{track.get_double(side).value:.1f}" for side in "xywh"]
            number, label, state = track.get_uint("id").value, track.get_string("template"), track.get_string("state")
            print(said.get_uint64("frame").value, number, label, state, *sides)


pipeline.set_state(Gst.State.PLAYING)
everything = Gst.BufferCopyFlags.FLAGS | Gst.BufferCopyFlags.TIMESTAMPS | Gst.BufferCopyFlags.META | Gst.BufferCopyFlags.MEMORY
number = 0
while sample := frames.emit("pull-sample"):
    detected.set_property("caps", sample.get_caps())
    # Shares the pixels; only a buffer of one's own can be marked.
    buffer = sample.get_buffer().copy_region(everything, 0, sample.get_buffer().get_size())
    if number % every == 0:
        for label, (x, y, w, h) in detect(number, buffer):
            # A box that begins left of the frame or above it is cut off there.
            left, top, right, bottom = max(0, round(x)), max(0, round(y)), round(x + w), round(y + h)
            if right > left and bottom > top:
                GstVideo.buffer_add_video_region_of_interest_meta(buffer, label, left, top, right - left, bottom - top)
    detected.emit("push-buffer", buffer)
    number += 1
    while message := bus.pop():
        tell(message)
detected.emit("end-of-stream")
while (message := bus.timed_pop(Gst.CLOCK_TIME_NONE)).type not in (Gst.MessageType.EOS, Gst.MessageType.ERROR):
    tell(message)
pipeline.set_state(Gst.State.NULL)
sys.exit(message.parse_error().gerror.message if message.type == Gst.MessageType.ERROR else 0)
