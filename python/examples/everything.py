"""Uses every function, so that mypy checks their types and a test that they do what they say."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

import numpy as np
import numpy.typing as npt

import lockon


def picture() -> npt.NDArray[np.uint8]:
    """Random pixels in blocks of 4 x 4, with a seed, so that it is the same each time."""
    blocks = np.random.default_rng(5).integers(0, 256, (60, 80), dtype=np.uint8)
    return np.kron(blocks, np.ones((4, 4), np.uint8)).astype(np.uint8)


def main() -> None:
    scene = picture()
    part = scene[40:80, 100:160].copy()

    matches: lockon.Matches = lockon.match(scene, part, min_score=0.9, max_matches=3, roi=(50, 0, 200, 240))
    best: lockon.Match = matches[0]
    box: tuple[int, int, int, int] = best.box
    assert box == (100, 40, 60, 40) and best.score == 1.0
    table: npt.NDArray[np.void] = matches.to_numpy()
    assert table["x"][0] == 100

    mask = np.full(part.shape, 255, np.uint8)
    parts = lockon.Template(part, "part", mask), lockon.Template(scene[:20, :20], "corner")
    matcher = lockon.Matcher(parts, scales=(0.9, 1.1, 1.1), angles=(0, 90, 90), search="auto", device="cpu", threads=1)
    assert [one.template for one in matcher(scene)] == ["part", "corner"]
    searched_on: str | None = matcher.device
    print(searched_on)

    scores: npt.NDArray[np.float64] = lockon.score_map(scene, part)
    assert scores[40, 100] == 1.0

    class Tensor:
        """An array of another library, as far as lockon needs it."""

        def __dlpack__(self, **options: object) -> object:
            return scene.__dlpack__(**options)  # type: ignore[arg-type]

        def __dlpack_device__(self) -> tuple[int, int]:
            return scene.__dlpack_device__()

    assert matcher(Tensor()) == matcher(scene)

    black_and_white: npt.NDArray[np.uint8] = lockon.threshold(scene, "mean:31:5")
    assert set(np.unique(black_and_white)) == {0, 255}
    moving = lockon.Thresholder("background:20:9")
    still: npt.NDArray[np.uint8] = moving.run(scene)
    assert not still.any() and moving.run(np.roll(scene, 3, axis=1)).any()

    tracker = lockon.Tracker(scene, (100, 40, 60, 40), pts_ns=0)
    track: lockon.Track = tracker.update(np.roll(scene, 3, axis=1), pts_ns=33_000_000)
    place: tuple[float, float, float, float] = track.box
    assert track.is_found and abs(place[0] - 103) < 2
    tracker.correct((103, 40, 60, 40))
    assert tracker.update(np.roll(scene, 3, axis=1)).state == "tracked"

    other = lockon.TrackerCV()
    other.init(scene, (100, 40, 60, 40))
    is_found: bool
    is_found, whole = other.update(scene)
    assert is_found and whole[2] > 0

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "results.jsonl"
        at = {"x": 1, "y": 2, "w": 3, "h": 4, "cx": 2.5, "cy": 4.0}
        found = {"template": "part", **at, "score": 0.9, "scale": 1.0, "angle": 0.0}
        frame = {"type": "frame", "frame": 0, "pts_ns": 40_000_000, "matches": [found], "tracks": []}
        path.write_text(json.dumps({"type": "run"}) + "\n" + json.dumps(frame) + "\n")
        results: lockon.Results = lockon.read_results(path)
        first: lockon.FrameRecord = results[0]
        seconds: float | None = first.seconds
        rows: list[lockon.MatchRow] = results.matches()
        tracks: list[lockon.TrackRow] = results.tracks()
        objects: list[lockon.ObjectRow] = results.objects()
        crossings: list[lockon.CrossingRow] = results.crossings()
        zones: list[lockon.ZoneRow] = [zone for frame in results for zone in frame.zones]
        lines: list[lockon.LineRow] = [line for frame in results for line in frame.lines]
        assert seconds == 0.04 and rows[0].score == 0.9 and results.summary is None
        assert [tracks, objects, crossings, zones, lines] == [[]] * 5

    for gpu in lockon.devices():
        print(gpu.device, gpu.name, gpu.memory, gpu.why_not)
    why_not: str | None = lockon.devices().why_not
    print(lockon.__version__, why_not)


def follow_a_video() -> None:
    """Only where lockon reads videos."""
    with tempfile.TemporaryDirectory() as folder:
        video = Path(folder) / "video.y4m"
        with open(video, "wb") as file:
            file.write(b"YUV4MPEG2 W320 H240 F25:1 Ip A1:1 C420jpeg\n")
            grey = np.full(320 * 240 // 2, 128, np.uint8)
            for index in range(5):
                file.write(b"FRAME\n" + np.roll(picture(), 2 * index, axis=1).tobytes() + grey.tobytes())
        run: lockon.Run
        with lockon.run(video, track=(100, 40, 60, 40), max_frames=3) as run:
            print(run.width, run.height, run.frame_rate)
            record: lockon.FrameRecord = next(run)
            assert record.tracks[0].x == 100
            pixels: npt.NDArray[np.uint8] | None
            for record, pixels in run.frames(with_pixels=True):
                assert pixels is None or pixels.shape == (240, 320, 3)
            assert record.frame == 2 and run.summary is not None and run.run["width"] == 320


if __name__ == "__main__":
    main()
    try:
        follow_a_video()
    except RuntimeError as error:
        print(error)
