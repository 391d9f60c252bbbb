"""Matching: what is found, in which arrays, and which are refused."""

import numpy as np
import pytest

import lockon
from conftest import noise, write_png

SCENE = noise((143, 211))
TEMPLATE = SCENE[40:62, 90:121].copy()
# A hole in the middle.
MASK = np.full(TEMPLATE.shape, 255, np.uint8)
MASK[8:14, 10:20] = 0


def by_the_definition(scene, template, mask=None):
    """NCC at every position, from whole numbers."""
    height, width = template.shape
    counts = np.ones(template.shape, bool) if mask is None else mask >= 128
    wanted = template.astype(np.int64)[counts]
    n, t1, t2 = len(wanted), int(wanted.sum()), int((wanted * wanted).sum())
    windows = np.lib.stride_tricks.sliding_window_view(scene.astype(np.int64), (height, width))[..., counts]
    s, ss, st = windows.sum(-1), (windows * windows).sum(-1), windows @ wanted
    variance = n * ss - s * s
    with np.errstate(invalid="ignore"):
        scores = (n * st - s * t1) / np.sqrt(variance.astype(float) * float(n * t2 - t1 * t1))
    return np.where(variance == 0, 0.0, np.clip(scores, -1, 1))


def test_a_part_of_a_picture_is_found_where_it_was_cut_out():
    (found,) = lockon.match(SCENE, TEMPLATE)
    assert found.box == (90, 40, 31, 22)
    assert (found.score, found.scale, found.angle, found.template) == (1.0, 1.0, 0.0, "template")


@pytest.mark.parametrize("mask", [None, MASK])
@pytest.mark.parametrize("threads", [1, 3])
def test_all_scores_are_those_of_the_definition(mask, threads):
    scene = SCENE.copy()
    scene[100:130, 20:60] = 77
    found = lockon.score_map(scene, TEMPLATE, mask=mask, threads=threads)
    assert found.dtype == np.float64 and found.shape == (122, 181)
    # The program rounds once, as IEEE says; numpy may differ in the last bit.
    assert np.abs(found - by_the_definition(scene, TEMPLATE, mask)).max() < 1e-15


def test_the_best_match_is_the_highest_score():
    scores = lockon.score_map(SCENE, TEMPLATE)
    found = lockon.match(SCENE, TEMPLATE, min_score=-1, max_matches=1)[0]
    y, x = np.unravel_index(scores.argmax(), scores.shape)
    assert (found.x, found.y, found.score) == (x, y, scores[y, x])


def test_matches_are_those_of_the_program(program, tmp_path):
    colours = noise((97, 131, 3), 5)
    write_png(tmp_path / "scene.png", colours)
    write_png(tmp_path / "template.png", colours[20:41, 50:75])
    options = ["--min-score", "0.2", "--max-matches", "9", "--scales", "0.8..1.25/1.25", "--angles", "0..90/90"]
    (record,) = program("match", tmp_path / "scene.png", tmp_path / "template.png", *options)
    found = lockon.match(
        colours,
        lockon.Template(colours[20:41, 50:75], "template"),
        min_score=0.2,
        max_matches=9,
        scales=(0.8, 1.25, 1.25),
        angles=(0, 90, 90),
        search="auto",
    )
    assert len(found) > 1
    assert [match._asdict() for match in found] == record["matches"]


def other_arrays():
    """The same pixels in memory of all kinds."""
    yield "padded rows", np.pad(SCENE, ((0, 0), (3, 8)))[:, 3:-8]
    yield "every second pixel", np.repeat(SCENE, 2, 1)[:, ::2]
    yield "columns first", np.asfortranarray(SCENE)
    yield "from the right", SCENE[:, ::-1].copy()[:, ::-1]
    yield "from below", SCENE[::-1].copy()[::-1]
    yield "one channel", SCENE[..., None]
    yield "three equal channels", np.repeat(SCENE[..., None], 3, 2)
    yield "three equal planes", np.broadcast_to(SCENE[..., None], (*SCENE.shape, 3))
    read_only = SCENE.copy()
    read_only.setflags(write=False)
    yield "read-only", read_only
    yield "a subclass", SCENE.view(np.memmap)


@pytest.mark.parametrize("kind, scene", list(other_arrays()))
def test_pixels_are_found_however_they_lie(kind, scene):
    expected = lockon.match(SCENE, TEMPLATE, min_score=0.3, max_matches=9)
    assert lockon.match(scene, TEMPLATE, min_score=0.3, max_matches=9) == expected, kind
    assert (lockon.threshold(scene, "mean:9:2") == lockon.threshold(SCENE, "mean:9:2")).all(), kind


def test_colours_are_searched_as_luma():
    colours = noise((80, 90, 3), 2)
    blue, green, red = (colours[..., channel].astype(np.int64) for channel in range(3))
    luma = ((4899 * red + 9617 * green + 1868 * blue + 8192) >> 14).astype(np.uint8)
    template = colours[30:50, 20:60]
    found = lockon.match(colours, template, min_score=-1, max_matches=5)
    assert found == lockon.match(luma, luma[30:50, 20:60], min_score=-1, max_matches=5)
    turned_about = colours[..., ::-1].copy()[..., ::-1]
    assert found == lockon.match(turned_about, template, min_score=-1, max_matches=5)


def test_a_matcher_keeps_its_templates_and_takes_pictures_of_any_size():
    other = lockon.Template(noise((20, 20), 9), "other")
    matcher = lockon.Matcher([TEMPLATE, other, SCENE[:9, :9]], min_score=0.95, max_matches=2)
    assert [found.template for found in matcher(SCENE)] == ["template", "template 3"]
    larger = np.pad(SCENE, 40)
    assert matcher.match(larger)[0].box == (130, 80, 31, 22)
    assert matcher.match(SCENE)[0].box == (90, 40, 31, 22)
    assert "CPU" in (matcher.device or "") or lockon.devices()
    unnamed = lockon.Matcher([lockon.Template(TEMPLATE), lockon.Template(SCENE[:9, :9])], min_score=0.99)
    assert [found.template for found in unnamed(SCENE)] == ["template", "template 2"]
    with pytest.raises(ValueError, match="no templates: pass at least one picture"):
        lockon.Matcher([])
    with pytest.raises(TypeError, match='template "template 2" must be uint8'):
        lockon.Matcher([TEMPLATE, TEMPLATE / 2])


def test_usual_steps_are_those_of_the_documentation():
    scales = lockon.match(SCENE, TEMPLATE, scales=(0.9, 1.2))
    assert scales == lockon.match(SCENE, TEMPLATE, scales=(0.9, 1.2, 1.05))
    turned = np.rot90(SCENE).copy()
    assert lockon.match(turned, TEMPLATE, angles=(80, 100)) == lockon.match(turned, TEMPLATE, angles=(80, 100, 5))
    assert lockon.match(SCENE, TEMPLATE, scales=(2.0, 4.0, 2.0))[0].scale == 1.0


@pytest.mark.parametrize("shape", [(1, 211), (143, 1)])
def test_one_row_and_one_column_are_pictures(shape):
    height, width = shape
    line = SCENE[:height, :width] if height == 1 else SCENE[:, 9:10]
    part = line[:, 30:60] if height == 1 else line[30:60]
    (found,) = lockon.match(line, part)
    assert (found.x, found.y, found.score) == ((30, 0, 1.0) if height == 1 else (0, 30, 1.0))
    assert lockon.match(line.copy(), part.copy()) == [found]


def test_rows_that_lie_over_each_other_are_pictures():
    row = SCENE[5].copy()
    overlapping = np.lib.stride_tricks.as_strided(row, (100, 100), (1, 1))
    same_rows = np.broadcast_to(row, (60, 211))
    for scene in (overlapping, same_rows):
        (found,) = lockon.match(scene, scene[20:30, 40:60].copy(), min_score=0.9)
        assert found == lockon.match(scene.copy(), scene[20:30, 40:60].copy(), min_score=0.9)[0]


def test_a_gpu_gives_the_same():
    if not any(gpu.why_not is None for gpu in lockon.devices()):
        pytest.skip("skipped: no GPU")
    for limits in ({}, {"min_score": 0.2, "max_matches": 9}):
        on_cpu, on_gpu = (lockon.match(SCENE, TEMPLATE, device=device, **limits) for device in ("cpu", "cuda"))
        assert on_cpu == on_gpu
    masks = [lockon.threshold(SCENE, "mean:9:2", device=device) for device in ("cpu", "cuda")]
    assert (masks[0] == masks[1]).all()


def test_matches_lie_inside_the_region():
    twice = np.hstack([SCENE, SCENE])
    assert lockon.match(twice, TEMPLATE, roi=(200, 0, 222, 143))[0].box == (301, 40, 31, 22)
    assert lockon.match(twice, TEMPLATE, roi=(0, 60, 422, 83)) == []
    with pytest.raises(ValueError, match="region of interest"):
        lockon.match(twice, TEMPLATE, roi=(300, 0, 222, 143))


def test_scales_and_angles_are_numbers_ranges_or_text():
    turned = np.rot90(SCENE).copy()
    for angles in ((0, 180, 90), "0..180/90", (0.0, 180.0, 90.0), 90, np.float32(90)):
        (found,) = lockon.match(turned, TEMPLATE, angles=angles)
        assert (found.angle, found.w, found.h) == (90.0, 22, 31)
    assert lockon.match(SCENE, TEMPLATE, scales=1) == lockon.match(SCENE, TEMPLATE)


def test_pixels_that_the_mask_leaves_out_do_not_count():
    scene = SCENE.copy()
    scene[40:62, 90:121][MASK == 0] = 0
    (found,) = lockon.match(scene, TEMPLATE, mask=MASK, min_score=0.999)
    assert (found.box, found.score) == ((90, 40, 31, 22), 1.0)


def test_matches_become_a_structured_array():
    matches = lockon.match(SCENE, TEMPLATE, min_score=0.2, max_matches=9)
    table = matches.to_numpy()
    assert len(table) == len(matches) > 1
    assert table["score"].tolist() == [found.score for found in matches]
    assert table.dtype.names == lockon.Match._fields
    assert len(lockon.Matches().to_numpy()) == 0


@pytest.mark.parametrize(
    "scene, error, words",
    [
        (SCENE / 255, TypeError, r"scene must be uint8, not float64: \(255 \* array\)"),
        (np.full((9, 9), np.nan), TypeError, "scene must be uint8, not float64"),
        (SCENE.astype(np.uint16), TypeError, r"scene must be uint8, not uint16: \(array >> 8\)"),
        (SCENE > 9, TypeError, "scene must be uint8, not bool"),
        (SCENE.tolist(), TypeError, "scene must be a numpy array, or another with DLPack, not list"),
        (None, TypeError, "scene is None: cv2.imread"),
        (SCENE[0], ValueError, r"scene has the shape \(211,\): \(height, width\) is needed"),
        (np.zeros((9, 9, 4), np.uint8), ValueError, r"array\[..., :3\] leaves alpha out"),
        (np.broadcast_to(np.uint8(5), (1 << 20, 1 << 20)), ValueError, "at most 134217728 pixels"),
        (np.zeros((0, 9), np.uint8), ValueError, "it has no pixels"),
        (np.zeros((9, 9, 2), np.uint8), ValueError, "in the order blue, green, red"),
        (SCENE[:20], ValueError, "31x22"),
    ],
)
def test_what_is_no_scene_is_refused_in_words(scene, error, words):
    with pytest.raises(error, match=words):
        lockon.match(scene, TEMPLATE)


@pytest.mark.parametrize(
    "arguments, words",
    [
        ({"template": np.full((9, 9), 5, np.uint8)}, "flat"),
        ({"mask": MASK[1:]}, "mask"),
        ({"min_score": 1.5}, "^min_score .*1.5"),
        ({"max_overlap": -1}, "^max_overlap "),
        ({"max_matches": 0}, "max_matches must be at least 1"),
        ({"scales": "0.5..x"}, "FROM"),
        ({"scales": [0.5, 1, 2]}, "scales must be one number or a tuple"),
        ({"angles": (0, 1, 2, 3)}, "angles must be one number or a tuple"),
        ({"roi": (-1, 0, 9, 9)}, "roi must be"),
        ({"search": "fast"}, "fast"),
        ({"device": "tpu"}, '^device "tpu"'),
        ({"threads": 0}, "threads"),
    ],
)
def test_what_cannot_be_searched_for_is_refused_in_words(arguments, words):
    with pytest.raises(ValueError, match=words):
        lockon.match(SCENE, **{"template": TEMPLATE, **arguments})


def test_a_gpu_that_is_not_there_is_an_error_with_the_reason():
    gpus = lockon.devices()
    assert (gpus.why_not is None) == bool(gpus)
    if not gpus:
        assert "driver" in gpus.why_not and 'device="cpu"' in gpus.why_not
        with pytest.raises(lockon.DeviceError, match="driver|device"):
            lockon.match(SCENE, TEMPLATE, device="cuda")
        assert issubclass(lockon.DeviceError, RuntimeError)


def test_a_template_as_large_as_the_scene_has_one_place():
    assert lockon.score_map(SCENE, SCENE).tolist() == [[1.0]]
    (found,) = lockon.match(SCENE, SCENE)
    assert found.box == (0, 0, 211, 143)
