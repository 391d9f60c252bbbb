"""Thresholds."""

import numpy as np
import pytest

import lockon
from conftest import noise, write_png

IMAGE = noise((97, 131), 3)


def test_a_mean_threshold_is_that_of_the_definition():
    padded = np.pad(IMAGE.astype(np.int64), 4, mode="edge")
    sums = np.lib.stride_tricks.sliding_window_view(padded, (9, 9)).sum((-1, -2))
    mean = np.floor(sums / 81 + 0.5).astype(np.int64)
    expected = np.where(IMAGE > mean - 2, 255, 0)
    found = lockon.threshold(IMAGE, "mean:9:2")
    assert found.dtype == np.uint8 and (found == expected).all()


@pytest.mark.parametrize("method", [
        "mean:31:5",
        "gaussian:15:3",
        "sauvola:31x7:0.2",
        "niblack:25:-0.2:inv",
        "wolf:15:0.5",
        "phansalkar:15:0.25",
        "bradley:15:10",
        "fixed:90..170",
        "otsu",
        "triangle:inv",
    ])
def test_masks_are_those_of_the_program(program, tmp_path, method):
    write_png(tmp_path / "image.png", IMAGE)
    program("threshold", tmp_path / "image.png", "-o", tmp_path / "mask.bmp", "--method", method, records=False)
    bmp = (tmp_path / "mask.bmp").read_bytes()
    offset, bits = int.from_bytes(bmp[10:14], "little"), int.from_bytes(bmp[28:30], "little")
    stride = (131 * bits // 8 + 3) // 4 * 4
    rows = np.frombuffer(bmp, np.uint8, 97 * stride, offset).reshape(97, stride)[::-1]
    written = rows[:, : 131 * bits // 8 : bits // 8]
    assert (lockon.threshold(IMAGE, method) == written).all()


def test_the_result_is_an_array_of_its_own():
    first = lockon.threshold(IMAGE, "mean:9:2")
    kept = first.copy()
    second = lockon.threshold(255 - IMAGE, "mean:9:2")
    assert (first == kept).all() and (first != second).any()
    first[:] = 7
    assert (lockon.threshold(IMAGE, "mean:9:2") == kept).all()


@pytest.mark.parametrize("spec, words", [("mean:8:2", "odd"), ("median:9:2", "median"), ("", "not one of mean"), ("background:9:9", "those before")])
def test_what_is_no_threshold_is_refused_in_words(spec, words):
    with pytest.raises(ValueError, match=words):
        lockon.threshold(IMAGE, spec)


def test_a_background_is_the_mean_of_the_pictures_before():
    thresholder = lockon.Thresholder("background:2:20")
    masks = [thresholder.run(np.full((3, 5), value, np.uint8)) for value in (100, 120, 131, 20, 90, 119)]
    # Means before them: its own, 100, 110, 120.5, 70.25, 80.125.
    assert [int(mask[2, 4]) for mask in masks] == [0, 0, 255, 255, 0, 255]
    assert (thresholder.run(IMAGE) == 0).all(), "a picture of another size is the first"
    assert (lockon.Thresholder("mean:9:2").run(IMAGE) == lockon.threshold(IMAGE, "mean:9:2")).all()


def test_what_is_no_image_is_refused_by_its_name():
    with pytest.raises(TypeError, match="image must be uint8, not float64"):
        lockon.threshold(IMAGE / 2, "mean:9:2")
