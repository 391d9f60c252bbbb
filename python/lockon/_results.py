"""Reads the results files of the program."""

from __future__ import annotations

import json
import os
from typing import Any, Dict, List, NamedTuple, Optional, Sequence, Union


class MatchRow(NamedTuple):
    """A match in a frame of a video; the fields after ``pts_ns`` are those of :class:`lockon.Match`."""

    frame: int
    pts_ns: Optional[int]
    template: str
    x: int
    y: int
    w: int
    h: int
    score: float
    scale: float
    angle: float
    cx: float
    cy: float


class TrackRow(NamedTuple):
    """A track in a frame of a video; the fields from ``state`` on are those of :class:`lockon.Track`."""

    frame: int
    pts_ns: Optional[int]
    id: int
    """The track's number, from 1."""
    name: Optional[str]
    """The name that its box was given."""
    template: Optional[str]
    """The template that found it, or the class of its detection; ``object`` of a track of an object."""
    state: str
    x: float
    y: float
    w: float
    h: float
    score: float
    second_peak_ratio: float
    object: Optional[int] = None
    """Of a track of an object: the place of its object in ``objects``, from 1; None while it is lost."""


class ObjectRow(NamedTuple):
    """An object of the thresholded picture (a connected component) in a frame of a video, in pixels."""

    frame: int
    pts_ns: Optional[int]
    x: int
    y: int
    w: int
    h: int
    area: int
    """Number of pixels."""
    cx: float
    """Centre of mass; the middle of the top left pixel is 0.5."""
    cy: float
    length: float
    """Long axis of the ellipse with the same second moments."""
    width: float
    """Its short axis."""
    angle: float
    """Direction of the long axis in degrees, counter-clockwise, above -90 to 90."""
    perimeter: float
    holes: int
    min_luma: int
    mean_luma: float
    max_luma: int
    touches_border: bool
    """True if it reaches the border of the picture, so that a part of it may be missing."""


class ZoneRow(NamedTuple):
    """A zone in a frame of a video."""

    frame: int
    pts_ns: Optional[int]
    zone: str
    inside: int
    """Tracks that are in it."""
    entered: int
    """Times that a track came into it, since the run began."""
    left: int
    """Times that a track went out of it, or ended in it."""
    objects: Optional[int]
    """Objects of the thresholded picture that are in it; None where they were not requested."""


class LineRow(NamedTuple):
    """A line in a frame of a video: how often tracks have crossed it since the run began."""

    frame: int
    pts_ns: Optional[int]
    line: str
    inwards: int
    """From its left to its right side, looking from its first end to its second (``in`` in results files)."""
    outwards: int
    """From its right to its left side (``out``)."""


class CrossingRow(NamedTuple):
    """A track crossed a line."""

    frame: int
    pts_ns: Optional[int]
    line: str
    id: int
    """The track's number."""
    direction: str
    """``in`` or ``out``."""


class FrameRecord(NamedTuple):
    """The results of a frame."""

    frame: int
    """Its number in the video, from 0; a missing number is a dropped frame."""
    pts_ns: Optional[int]
    """Its presentation time in nanoseconds, where the video has one."""
    picture: Optional[str]
    """The picture file that it came from, where the input was pictures."""
    matches: List[MatchRow]
    tracks: List[TrackRow]
    foreground: Optional[float]
    """The share of white pixels, from 0 to 1, of a threshold."""
    objects: Optional[List[ObjectRow]] = None
    """The objects of the thresholded picture; None where they were not requested."""
    more_objects: int = 0
    """Objects that ``object_max`` left out."""
    zones: Sequence[ZoneRow] = ()
    lines: Sequence[LineRow] = ()
    crossings: Sequence[CrossingRow] = ()
    """The tracks that crossed a line in this frame."""

    @property
    def seconds(self) -> Optional[float]:
        """Its presentation time in seconds."""
        return None if self.pts_ns is None else self.pts_ns / 1e9


class Results(List[FrameRecord]):
    """The frames of a results file, in order. ``pandas.DataFrame(results.tracks())`` is a table."""

    run: Dict[str, Any]
    """The record at the beginning of the file: input, device, options."""
    summary: Optional[Dict[str, Any]]
    """The record at its end; None if the run has not ended, or was ended by force."""

    def matches(self) -> List[MatchRow]:
        """The matches of all frames."""
        return [match for frame in self for match in frame.matches]

    def tracks(self) -> List[TrackRow]:
        """The tracks of all frames."""
        return [track for frame in self for track in frame.tracks]

    def objects(self) -> List[ObjectRow]:
        """The objects of all frames."""
        return [found for frame in self for found in frame.objects or []]

    def crossings(self) -> List[CrossingRow]:
        """The crossings of lines of all frames."""
        return [crossing for frame in self for crossing in frame.crossings]


def read_results(path: Union[str, "os.PathLike[str]"]) -> Results:
    """Reads a file that ``lockon run --results FILE.jsonl`` has written, also one that is still written to: a last line
    that is not complete is left out.

    :raises OSError: if it cannot be read
    :raises ValueError: if it is no such file, with the number of the line
    """
    results, is_first = Results(), True
    results.run, results.summary = {}, None
    with open(path, encoding="utf-8") as file:
        for number, line in enumerate(file, 1):
            try:
                record = json.loads(line)
                kind = record["type"]
                if is_first and kind != "run":
                    raise ValueError("the first record is not a run's")
                if kind == "frame":
                    results.append(_frame(record))
                elif kind == "run":
                    results.run = record
                elif kind == "summary":
                    results.summary = record
            except (ValueError, KeyError, TypeError, AttributeError) as error:
                if not line.endswith("\n") and not is_first:
                    break
                raise ValueError(
                    f"{os.fspath(path)}:{number}: no line of a results file of lockon (.jsonl): {error}"
                ) from error
            is_first = False
    if is_first:
        raise ValueError(f"{os.fspath(path)}: the file is empty: pass one that `lockon run --results` has written")
    return results


def _frame(record: Dict[str, Any]) -> FrameRecord:
    at = record["frame"], record.get("pts_ns")
    matches = [MatchRow(*at, *(match[field] for field in MatchRow._fields[2:])) for match in record["matches"]]
    tracks = []
    for track in record["tracks"]:
        # Fields that are left out where they say nothing.
        optional = {field: track.get(field) for field in ("name", "template", "object")}
        tracks.append(TrackRow(*at, *({**track, **optional}[field] for field in TrackRow._fields[2:])))
    foreground = record["threshold"]["foreground"] if "threshold" in record else None
    objects = None
    if "objects" in record:
        fields = ObjectRow._fields[2:-1]
        rows = ((*(found[field] for field in fields), found.get("touches_border", False)) for found in record["objects"])
        objects = [ObjectRow(*at, *row) for row in rows]
    more = record.get("more_objects", 0)
    zones = [
        ZoneRow(*at, zone["zone"], zone["inside"], zone["entered"], zone["left"], zone.get("objects"))
        for zone in record.get("zones", ())
    ]
    lines = [LineRow(*at, line["line"], line["in"], line["out"]) for line in record.get("lines", ())]
    crossings = [CrossingRow(*at, one["line"], one["id"], one["direction"]) for one in record.get("crossings", ())]
    picture = record.get("picture")
    return FrameRecord(*at, picture, matches, tracks, foreground, objects, more, zones, lines, crossings)
