"""Tracking."""

import json

import numpy as np
import pytest

import lockon
from conftest import noise, write_png

GROUND = noise((180, 240, 3), 7) // 2 + 60
TARGET = noise((32, 40, 3), 8)


def place(index):
    return 30 + 3 * index, 40 + index


def frame(index, has_target=True):
    picture = GROUND.copy()
    if has_target:
        x, y = place(index)
        picture[y : y + 32, x : x + 40] = TARGET
    return picture


def test_a_target_is_followed_lost_and_found_again():
    tracker = lockon.Tracker(frame(0), (30, 40, 40, 32))
    assert tracker.track.state == "tracked"
    for index in range(1, 20):
        track = tracker.update(frame(index))
        x, y = place(index)
        assert abs(track.x - x) < 3 and abs(track.y - y) < 3 and track.is_found, (index, track)
        assert 0 <= track.score <= 1
    states = [tracker.update(frame(20, has_target=False)).state for _ in range(8)]
    assert states[-1] == "lost" and tracker.track.score == 0 and not tracker.track.is_found
    states = [tracker.update(frame(25)).state for _ in range(20)]
    assert "reacquired" in states and states[-1] in ("tracked", "uncertain")
    assert abs(tracker.track.x - place(25)[0]) < 4


def small_target():
    """A target in a large frame moves, jumps, is hidden and comes back. Chroma is made for a small part of the frame."""
    ground = noise((360, 640, 3), 9) // 2 + 60
    target = noise((20, 26, 3), 8)
    for index in range(30):
        picture = ground.copy()
        x, y = (100 + 5 * index, 60 + 3 * index) if index < 14 else (420 + 2 * index, 200 - index)
        if index not in (9, 10, 20, 21, 22, 23, 24):
            picture[y : y + 20, x : x + 26] = target
        yield picture


@pytest.mark.parametrize(
    "frames, box",
    [
        ([frame(index, has_target=index not in (12, 13, 14)) for index in range(24)], (30, 40, 40, 32)),
        (list(small_target()), (100, 60, 26, 20)),
    ],
    ids=["large", "small"],
)
def test_tracks_are_those_of_the_program(program, tmp_path, frames, box):
    for index, picture in enumerate(frames):
        write_png(tmp_path / f"{index:03}.png", picture)
    results = tmp_path / "tracks.jsonl"
    options = ["--track", ",".join(map(str, box)), "--fps", "30", "--results", results, "--backend", "cpu"]
    program("run", tmp_path / "%03d.png", *options, records=False)
    records = [json.loads(line) for line in results.read_text().splitlines()]
    records = [record for record in records if record["type"] == "frame"]
    expected, times = [record["tracks"][0] for record in records], [record["pts_ns"] for record in records]
    tracker = lockon.Tracker(frames[0], box, pts_ns=times[0])
    tracks = [tracker.track] + [tracker.update(f, pts_ns=t) for f, t in zip(frames[1:], times[1:])]
    assert len(expected) == len(tracks)
    for index, (found, wanted) in enumerate(zip(tracks, expected)):
        assert found._asdict() == {field: wanted[field] for field in lockon.Track._fields}, index
    assert {track.state for track in tracks} != {"tracked"}, "it was hidden"


def test_a_grey_video_is_followed():
    grey = [frame(index)[..., 1] for index in range(10)]
    tracker = lockon.Tracker(grey[0], (30, 40, 40, 32))
    for index, picture in enumerate(grey[1:], 1):
        assert abs(tracker.update(picture).x - place(index)[0]) < 3


def test_a_corrected_target_is_followed_from_there():
    tracker = lockon.Tracker(frame(0), (150, 100, 40, 32))
    tracker.update(frame(1))
    tracker.correct((*place(2), 40, 32))
    assert tracker.update(frame(2)).box == (*map(float, place(2)), 40.0, 32.0)
    assert abs(tracker.update(frame(3)).x - place(3)[0]) < 3
    with pytest.raises(ValueError, match="box"):
        tracker.correct((-1, 0, 4, 4))
    tracker.correct((230, 0, 40, 32))
    with pytest.raises(ValueError, match="box"):
        tracker.update(frame(4))


def test_a_box_outside_of_the_frame_is_refused():
    for box in [(220, 40, 40, 32), (-1, 0, 9, 9), (0, 0, 0, 9)]:
        with pytest.raises(ValueError, match="box"):
            lockon.Tracker(frame(0), box)


def test_a_flat_box_is_lost_until_there_is_something_in_it():
    black = np.zeros((180, 240, 3), np.uint8)
    tracker = lockon.Tracker(black, (30, 40, 40, 32))
    assert tracker.track == ("lost", 30.0, 40.0, 40.0, 32.0, 0.0, 0.0)
    assert tracker.update(frame(0)).state == "tracked"


def test_times_rise():
    tracker = lockon.Tracker(frame(0), (30, 40, 40, 32), pts_ns=0)
    tracker.update(frame(1), pts_ns=40_000_000)
    with pytest.raises(ValueError, match="pts_ns must increase: it is 40000000 after 40000000; pass a later time"):
        tracker.update(frame(2), pts_ns=40_000_000)
    assert tracker.update(frame(2), pts_ns=80_000_000).is_found
    with pytest.raises(ValueError, match="pts_ns must be at least 0"):
        tracker.update(frame(3), pts_ns=-1)


def test_a_frame_that_is_longer_than_any_video_is_refused():
    long = np.zeros((9, 40_000), np.uint8)
    with pytest.raises(ValueError, match="side of 40000 pixels; at most 32768 .*cv2.resize"):
        lockon.Tracker(long, (0, 0, 9, 9))


def test_a_frame_of_another_size_goes_on_from_the_scaled_box():
    tracker = lockon.Tracker(frame(0), (30, 40, 40, 32))
    twice = frame(1).repeat(2, 0).repeat(2, 1)
    track = tracker.update(twice)
    assert abs(track.x - 2 * place(1)[0]) < 8 and abs(track.w - 80) < 8


def test_it_can_stand_in_for_one_of_opencv():
    tracker = lockon.TrackerCV()
    with pytest.raises(ValueError, match="init"):
        tracker.update(frame(0))
    assert tracker.init(frame(0), (30, 40, 40, 32)) is None
    is_found, box = tracker.update(frame(1))
    assert is_found is True and all(isinstance(value, int) for value in box)
    assert abs(box[0] - place(1)[0]) < 3
