"""Runs over videos."""

from __future__ import annotations

import json
import os
from types import TracebackType
from typing import Any, Dict, Iterator, List, Optional, Tuple, Type, Union

import numpy as np
import numpy.typing as npt

from . import _lockon
from ._results import FrameRecord, _frame

Path = Union[str, "os.PathLike[str]"]


class Run:
    """A run over a video: an iterator of :class:`FrameRecord`. It works ahead by three frames and waits then.

    ``with`` ends it and completes its outputs when the block is left, also by an exception; so does :meth:`close`. Before
    its first frame is taken it writes nothing. It belongs to the process that made it, not to one that is forked.
    """

    def __init__(self, input: Optional[Path], **options: Any) -> None:
        given = {"input": input, **options}
        if not hasattr(_lockon, "Run"):
            raise RuntimeError(
                "this lockon reads no videos: the wheel lockon_gst does, with the GStreamer of the system, and takes the "
                "place of this one; `scripts/wheel --gst` makes it (python/README.md)"
            )
        self._run = _lockon.Run([(name, _texts(value, name)) for name, value in given.items() if value is not None])
        self.width, self.height, self.frame_rate = self._run.format()
        """Size of the frames in pixels, and frames a second; 0 if that is not known."""
        self.run: Dict[str, Any] = {}
        """The record at the beginning of results files: input, device, options. Empty before the first frame."""
        self.summary: Optional[Dict[str, Any]] = None
        """The record at their end, also of a run that was closed before its video ended; None before."""

    def __iter__(self) -> Iterator[FrameRecord]:
        return self

    def __next__(self) -> FrameRecord:
        return self._next(False)[0]

    def frames(self, *, with_pixels: bool = True) -> Iterator[Tuple[FrameRecord, Optional[npt.NDArray[np.uint8]]]]:
        """The records and the frames that they are of.

        :param with_pixels: the frame comes as an array of shape (height, width, 3) in the order blue, green, red;
            otherwise None does. The first three frames after a change of it may come as was wanted before.
        """
        while True:
            try:
                yield self._next(with_pixels)
            except StopIteration:
                return

    def _next(self, has_pixels: bool) -> Tuple[FrameRecord, Optional[npt.NDArray[np.uint8]]]:
        self._run.give_pixels(has_pixels)
        while True:
            item = self._run.next()
            if item is None:
                raise StopIteration
            line, pixels = item
            record = json.loads(line)
            kind = record["type"]
            if kind == "frame":
                return _frame(record), pixels
            if kind == "run":
                self.run = record
            elif kind == "summary":
                self.summary = record

    def close(self) -> None:
        """Ends the run, completes its outputs, and waits for that. Ended once, it has no more frames."""
        line = self._run.close()
        last = {} if line is None else json.loads(line)
        if last.get("type") == "summary":
            self.summary = last

    def __enter__(self) -> Run:
        return self

    def __exit__(
        self,
        kind: Optional[Type[BaseException]],
        error: Optional[BaseException],
        trace: Optional[TracebackType],
    ) -> None:
        self.close()


def run(input: Optional[Path] = None, **options: Any) -> Run:
    """Runs over a video as ``lockon run`` does: finds templates, follows boxes, thresholds, finds objects, writes results and
    videos.

    :param input: a file, a URI, ``"camera"``, pictures (``"seq/%04d.jpg"``)
    :param options: those of ``lockon run``, with ``_`` for ``-``: ``template="logo.png"``, ``track=(310, 120, 64, 128)``,
        ``output="out.mp4"``, ``max_frames=100``. Pass a list for an option that may be given several times; a tuple of
        numbers is written with commas; True stands for an option without a value. Options that need the program itself
        (``serve``, ``display``, ``pick``, ``events``, ``metrics``) are not for it.
    :returns: an iterator of :class:`FrameRecord`; Ctrl-C works while it waits
    :raises TypeError: an option that does not exist
    :raises ValueError: a value or an input that cannot be, also when a frame is taken
    :raises OSError: a file or a server that cannot be read or written, also when a frame is taken
    :raises RuntimeError: a pipeline that failed; a lockon without GStreamer
    """
    return Run(input, **options)


_OF_PROGRAM = (
    "serve",
    "speed",
    "display",
    "pick",
    "events",
    "zone_limit",
    "event_thumbnails",
    "home_assistant",
    "metrics",
)


def _texts(value: Any, name: str) -> List[str]:
    """Values as the command line has them."""
    if name in _OF_PROGRAM:
        raise ValueError(f"{name} is an option of the program alone: leave it out, or start `lockon run` with it")
    if isinstance(value, list):
        return [_text(one) for one in value]
    return [_text(value)]


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, tuple):
        return ",".join(map(_text, value))
    return os.fspath(value) if isinstance(value, (str, os.PathLike)) else str(value)
