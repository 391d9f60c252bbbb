"""Exact template matching, adaptive thresholds and tracking, on the CPU and on NVIDIA GPUs.

Pictures are numpy arrays of uint8: grey, of shape (height, width), or in colour, of shape (height, width, 3) in the
order blue, green, red, as OpenCV reads them, with any strides. Grey pictures whose rows run from left to right are read
where they lie, without a copy: do not write to an array, or resize it, while a call reads it. Boxes are (x, y, w, h) in
pixels, from the left and the top.

The same pixels give the same numbers on every processor and GPU, with any number of threads, and from the program
``lockon``. All work is done without Python's global lock, and every object may be used from many threads: calls to one
object take turns. After a fork the child may use what the parent made, unless another thread was using it then.

Arrays of other libraries are taken by DLPack, PyTorch's for example: those on the host in place of any array of numpy, by the
same rules. The picture that :func:`match`, :class:`Matcher` or :func:`threshold` looks at may also be a grey array of uint8 on a
GPU, by DLPack or with a ``__cuda_array_interface__``, as CuPy has it: it is searched where it lies, or copied to the host for
``device="cpu"``. Work on it that is not done yet is waited for. Where an array has no DLPack and its interface names no stream,
that is the work in CUDA's default stream alone.

Errors: ``TypeError`` if an argument is not an array of uint8, ``ValueError`` if a value is out of range or does
not fit, ``DeviceError`` if a device is missing or has failed, ``MemoryError`` if there is too little memory.
"""

from __future__ import annotations

import threading
from typing import Any, Dict, List, NamedTuple, Optional, Protocol, Sequence, Tuple, Union

import numpy as np
import numpy.typing as npt

from . import _lockon
from ._lockon import DeviceError, __version__
from ._results import (
    CrossingRow,
    FrameRecord,
    LineRow,
    MatchRow,
    ObjectRow,
    Results,
    TrackRow,
    ZoneRow,
    read_results,
)
from ._run import Run, run



class SupportsDLPack(Protocol):
    """An array with DLPack: PyTorch's, JAX's, TensorFlow's."""

    def __dlpack__(self, *args: Any, **kwargs: Any) -> Any: ...

    def __dlpack_device__(self) -> Tuple[Any, int]: ...


class SupportsCudaArray(Protocol):
    """An array on a GPU: CuPy's, Numba's."""

    @property
    def __cuda_array_interface__(self) -> Dict[str, Any]: ...


Picture = Union[npt.NDArray[Any], SupportsDLPack, SupportsCudaArray]
"""An array of uint8; see the module's documentation."""
Box = Tuple[int, int, int, int]
Steps = Union[str, float, Tuple[float, float], Tuple[float, float, float]]

__all__ = [
    "Box",
    "CrossingRow",
    "Device",
    "DeviceError",
    "Devices",
    "FrameRecord",
    "LineRow",
    "Match",
    "MatchRow",
    "ObjectRow",
    "Matcher",
    "Matches",
    "Picture",
    "Results",
    "Run",
    "Steps",
    "SupportsCudaArray",
    "SupportsDLPack",
    "Template",
    "Thresholder",
    "Track",
    "TrackRow",
    "Tracker",
    "TrackerCV",
    "ZoneRow",
    "__version__",
    "devices",
    "match",
    "read_results",
    "run",
    "score_map",
    "threshold",
]


class Match(NamedTuple):
    """A place at which a template was found."""

    template: str
    """The template's name."""
    x: int
    """Left column of the box of the template, scaled and turned, in pixels of the scene."""
    y: int
    """Top row of the box."""
    w: int
    """Width of the box, in pixels."""
    h: int
    """Height of the box, in pixels."""
    score: float
    """Exact zero-mean normalised cross-correlation, in [-1, 1]."""
    scale: float
    """Size of the template relative to its picture."""
    angle: float
    """Direction of the template in degrees, counter-clockwise positive."""
    cx: float
    """Centre between pixels, in steps of 1/1000 pixel: x + w / 2 where the peak is symmetric."""
    cy: float
    """As cx, from the top."""

    @property
    def box(self) -> Box:
        """(x, y, w, h)."""
        return self.x, self.y, self.w, self.h


class Matches(List[Match]):
    """The matches in a picture: names in the order of the templates, best first within a name."""

    def to_numpy(self) -> npt.NDArray[np.void]:
        """A structured array, a row for each match, whose fields are those of :class:`Match`."""
        names = [("template", object), *((field, np.int64) for field in ("x", "y", "w", "h"))]
        numbers = [(field, np.float64) for field in ("score", "scale", "angle", "cx", "cy")]
        return np.array([tuple(match) for match in self], dtype=names + numbers)


class Template(NamedTuple):
    """A pattern to search for."""

    pixels: Picture
    """Its picture, at most 4096 pixels on a side; not flat."""
    name: Optional[str] = None
    """The name of its matches; without one it gets ``template``, ``template 2`` and so on. Templates of one name count
    as one: ``max_matches`` is for all of them."""
    mask: Optional[Picture] = None
    """A picture of the same size: only pixels of 128 or more count."""


class Matcher:
    """Templates that are prepared once and searched in one picture after the other.

    Pictures of another size are searched too; it is prepared again for them. Calls from many threads take turns.
    """

    def __init__(
        self,
        templates: Union[Picture, Template, Sequence[Union[Picture, Template]]],
        *,
        min_score: float = 0.8,
        max_matches: int = 1,
        max_overlap: float = 0.3,
        scales: Optional[Steps] = None,
        angles: Optional[Steps] = None,
        roi: Optional[Box] = None,
        search: str = "exhaustive",
        device: str = "auto",
        threads: Optional[int] = None,
    ) -> None:
        """
        :param templates: a picture, a :class:`Template`, or several
        :param min_score: the least score of a match, in [-1, 1]
        :param max_matches: how many matches of each name are given at most; from 1
        :param max_overlap: two matches of a name overlap by no more than this, as intersection over union
        :param scales: sizes relative to the template's: one number, or a tuple (from, to) or (from, to, factor), every
            power of the factor in between; it is 1.05 by default, and 1 is always among them
        :param angles: degrees, counter-clockwise positive: one number, or a tuple (from, to) or (from, to, step); the
            step is 5 by default
        :param roi: matches lie inside this box
        :param search: ``"exhaustive"``; ``"pyramid"`` is faster with many scales and angles and can miss a match;
            ``"auto"`` takes it where the other takes long
        :param device: ``"cpu"``, ``"cuda"``, ``"cuda:N"``, or ``"auto"``: the first GPU if there is one
        :param threads: threads of the CPU; all cores by default
        :raises ValueError: a template that is flat, too large, or of another size than its mask; limits or steps
            that cannot be
        :raises DeviceError: when a picture is searched, if the device that was asked for is not there
        """
        # What is no array is refused below, in words.
        given: Any = templates
        if isinstance(templates, Template) or not isinstance(templates, (list, tuple)):
            given = [templates]
        if not given:
            raise ValueError("there are no templates: pass at least one picture")
        named = []
        for number, one in enumerate(given, 1):
            name = "template" if number == 1 else f"template {number}"
            if isinstance(one, Template):
                named.append((name if one.name is None else one.name, one.pixels, one.mask))
            else:
                named.append((name, one, None))
        limits = min_score, _from_1(max_matches, "max_matches"), max_overlap
        inside = None if roi is None else _whole(roi, "roi")
        steps = _steps(scales, "scales"), _steps(angles, "angles")
        self._matcher = _lockon.Matcher(named, limits, *steps, inside, search, device, _threads(threads))

    def match(self, scene: Picture) -> Matches:
        """The matches in a picture.

        :raises ValueError: if no template fits in the picture, or ``roi`` does not lie in it
        """
        return Matches(map(Match._make, self._matcher.find(scene)))

    __call__ = match

    @property
    def device(self) -> Optional[str]:
        """The device of the last search; None before it."""
        return self._matcher.device()


def _steps(steps: Optional[Steps], name: str) -> Optional[str]:
    """Steps as the program has them: FROM..TO/STEP."""
    if steps is None or isinstance(steps, str):
        return steps
    if isinstance(steps, tuple) and len(steps) in (2, 3):
        first, last, *by = (repr(float(step)) for step in steps)
        return "/".join([f"{first}..{last}", *by])
    if np.ndim(steps) == 0:
        return repr(float(steps))  # type: ignore[arg-type]
    raise ValueError(f"{name} must be one number or a tuple (from, to) or (from, to, step), not {steps!r}")


def _from_1(value: int, name: str) -> int:
    if value < 1:
        raise ValueError(f"{name} must be at least 1, not {value}")
    return value


def _threads(threads: Optional[int]) -> Optional[int]:
    return None if threads is None else _from_1(threads, "threads")


def match(
    scene: Picture,
    template: Union[Picture, Template],
    *,
    mask: Optional[Picture] = None,
    min_score: float = 0.8,
    max_matches: int = 1,
    max_overlap: float = 0.3,
    scales: Optional[Steps] = None,
    angles: Optional[Steps] = None,
    roi: Optional[Box] = None,
    search: str = "exhaustive",
    device: str = "auto",
    threads: Optional[int] = None,
) -> Matches:
    """Finds a template in a picture. For more than one picture a :class:`Matcher`, which takes the same arguments,
    is prepared once.

    :param mask: of the template's size: only pixels of 128 or more count
    """
    one = template if isinstance(template, Template) else Template(template)
    matcher = Matcher(
        one if mask is None else one._replace(mask=mask),
        min_score=min_score,
        max_matches=max_matches,
        max_overlap=max_overlap,
        scales=scales,
        angles=angles,
        roi=roi,
        search=search,
        device=device,
        threads=threads,
    )
    return matcher.match(scene)


def score_map(
    scene: Picture, template: Picture, *, mask: Optional[Picture] = None, threads: Optional[int] = None
) -> npt.NDArray[np.float64]:
    """The score of a template at every position, of shape (H - h + 1, W - w + 1), on the CPU.

    This is what ``cv2.matchTemplate(scene, template, cv2.TM_CCOEFF_NORMED)`` estimates, exact: zero-mean normalised
    cross-correlation from whole numbers, rounded once; 0 where the picture is flat. Colours are searched as luma.

    :raises ValueError: a template that is flat or larger than the scene
    """
    return _lockon.score_map(scene, template, mask, _threads(threads))


def threshold(
    image: Picture, spec: str, *, device: str = "auto", threads: Optional[int] = None
) -> npt.NDArray[np.uint8]:
    """Thresholds a picture by the surroundings of each pixel, or by one level.

    :param spec: as ``--threshold`` has it: ``"mean:31:5"`` compares each pixel with the mean of 31 x 31 about it, less
        5, as ``cv2.adaptiveThreshold`` does; ``"otsu"`` has a level for the picture. docs/guide/thresholds.md lists the
        methods. ``background``, which compares pictures with those before, is for a :class:`Thresholder`
    :returns: an array of shape (height, width): 255 where a pixel is brighter than its threshold, else 0; with ``:inv``
        at the end of ``spec`` the other way round
    :raises ValueError: a spec that cannot be read
    """
    # Each thread keeps its own, so that none waits for another one.
    kept: Dict[Any, _lockon.Thresholder] = _of_thread.__dict__
    key = spec, device, threads, tuple(getattr(image, "shape", ()))[:2]
    thresholder = kept.get(key)
    if thresholder is None:
        thresholder = _lockon.Thresholder(spec, device, _threads(threads), True)
        if len(kept) >= _MOST_KEPT:
            kept.clear()
        kept[key] = thresholder
    return thresholder.run(image)


_of_thread = threading.local()
_MOST_KEPT = 8


class Thresholder:
    """Thresholds one picture after the other, such as the frames of a fixed camera.

    With ``background:FRAMES:T`` each picture is compared with the running mean of those before it, and then counts in that. One
    of another size begins anew. Calls from many threads take turns.
    """

    def __init__(self, spec: str, *, device: str = "auto", threads: Optional[int] = None) -> None:
        """
        :param spec: as :func:`threshold` has it, or ``"background:200:25"``
        :raises ValueError: a spec that cannot be read
        """
        self._thresholder = _lockon.Thresholder(spec, device, _threads(threads), False)

    def run(self, image: Picture) -> npt.NDArray[np.uint8]:
        """An array of shape (height, width): 255 where a pixel of the picture stands out, else 0."""
        return self._thresholder.run(image)


class Track(NamedTuple):
    """A target in one frame."""

    state: str
    """``"tracked"``, ``"uncertain"``, ``"lost"``, or, in the frame in which it is found again, ``"reacquired"``."""
    x: float
    """Left edge of the box, in pixels. Of a target that has turned it bounds the ellipse in the turned box."""
    y: float
    """Top edge."""
    w: float
    """Width."""
    h: float
    """Height."""
    score: float
    """The probability that the box overlaps its target by more than a half, in [0, 1]; 0 while it is lost."""
    second_peak_ratio: float
    """Near 1 where another place looks alike; 0 if there is none."""

    @property
    def box(self) -> Tuple[float, float, float, float]:
        """(x, y, w, h)."""
        return self.x, self.y, self.w, self.h

    @property
    def is_found(self) -> bool:
        """True unless it is lost."""
        return self.state != "lost"


class Tracker:
    """Follows what a box of a frame shows through the frames after it, and searches for it where it is lost.

    It works on the thread that calls it.
    """

    def __init__(self, frame: Picture, box: Sequence[float], *, pts_ns: Optional[int] = None) -> None:
        """
        :param frame: the first frame
        :param box: the target's (x, y, w, h), inside the frame; rounded to whole pixels
        :param pts_ns: its time in nanoseconds, if known: see :meth:`update`
        :raises ValueError: if the box is not inside the frame
        """
        self._tracker = _lockon.Tracker(_whole(box, "box"))
        self.track = self._take(self._tracker.update(frame, _time(pts_ns)), box)
        """The track in the last frame."""

    def update(self, frame: Picture, *, pts_ns: Optional[int] = None) -> Track:
        """Follows the target into the next frame.

        :param pts_ns: its time in nanoseconds, which increases from frame to frame; without it frames are 1/30 s apart
        """
        self.track = self._take(self._tracker.update(frame, _time(pts_ns)), self.track.box)
        return self.track

    def correct(self, box: Sequence[float]) -> None:
        """Sets the target's box in the next frame, rounded to whole pixels: its content is followed from there."""
        self._tracker.correct(_whole(box, "box"))

    @staticmethod
    def _take(row: Optional[Tuple[str, float, float, float, float, float, float]], box: Sequence[float]) -> Track:
        if row is None:
            # The box is flat, so there is nothing to follow yet.
            x, y, w, h = map(float, box)
            return Track("lost", x, y, w, h, 0.0, 0.0)
        return Track._make(row)


def _whole(box: Sequence[float], name: str) -> Box:
    x, y, w, h = (round(float(value)) for value in box)
    if min(x, y) < 0 or min(w, h) < 1:
        raise ValueError(f"{name} must be (x, y, w, h) with x, y >= 0 and w, h >= 1, not {tuple(box)}")
    return x, y, w, h


def _time(pts_ns: Optional[int]) -> Optional[int]:
    if pts_ns is not None and pts_ns < 0:
        raise ValueError(f"pts_ns must be at least 0, not {pts_ns}")
    return pts_ns


class TrackerCV:
    """A :class:`Tracker` with the methods of OpenCV's, as in ``cv2.TrackerCSRT``."""

    def __init__(self) -> None:
        self._tracker: Optional[Tracker] = None

    def init(self, image: Picture, boundingBox: Sequence[float]) -> None:
        """Begins to follow a box of a frame."""
        self._tracker = Tracker(image, boundingBox)

    def update(self, image: Picture) -> Tuple[bool, Tuple[int, int, int, int]]:
        """True and the box, rounded, or False and the last box while the target is lost."""
        if self._tracker is None:
            raise ValueError("update() came before init(): call init(image, boundingBox) with the first frame")
        track = self._tracker.update(image)
        x, y, w, h = (round(value) for value in track.box)
        return track.is_found, (x, y, w, h)


class Device(NamedTuple):
    """A GPU."""

    device: str
    """Its name for ``device=``, as ``"cuda:0"``."""
    name: str
    """What its maker calls it."""
    memory: int
    """Bytes."""
    why_not: Optional[str]
    """Why lockon cannot use it; None if it can."""


class Devices(List[Device]):
    """GPUs, and why there are none."""

    why_not: Optional[str] = None
    """Why there are none; None if there are."""


def devices() -> Devices:
    """The GPUs that are there. ``devices().why_not`` says why there are none: no driver, an old one."""
    rows, why_not = _lockon.devices()
    found = Devices(map(Device._make, rows))
    found.why_not = why_not
    return found
