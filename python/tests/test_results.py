"""Results files of the program."""

import numpy as np
import pytest

import lockon
from conftest import noise, write_png


def test_a_results_file_of_the_program_is_read_whole(program, tmp_path):
    scene = noise((120, 160, 3), 3)
    for index in range(6):
        write_png(tmp_path / f"{index}.png", np.roll(scene, 2 * index, 1))
    write_png(tmp_path / "part.png", scene[30:60, 40:80])
    results = tmp_path / "results.jsonl"
    options = ["--track", "cup=40,30,40,30", "--template", tmp_path / "part.png", "--threshold", "mean:9:2"]
    options += ["--objects", "--object-max", "5"]
    program("run", tmp_path / "%d.png", *options, "--results", results, "--backend", "cpu", records=False)

    read = lockon.read_results(results)
    assert [record.frame for record in read] == list(range(6))
    assert read.run["type"] == "run" and read.summary["frames"] == 6
    for index, record in enumerate(read):
        picture = np.roll(scene, 2 * index, 1)
        assert record.picture == f"{index}.png"
        assert record.seconds == record.pts_ns / 1e9
        (found,) = lockon.match(picture, lockon.Template(scene[30:60, 40:80], "part"))
        assert record.matches[0][2:] == tuple(found)
        assert record.foreground == (lockon.threshold(picture, "mean:9:2") == 255).mean()
        objects = record.objects
        assert len(objects) == 5 and record.more_objects > 0
        assert [row.area for row in objects] == sorted((row.area for row in objects), reverse=True)
        mask = lockon.threshold(picture, "mean:9:2")
        for row in objects:
            part = mask[row.y : row.y + row.h, row.x : row.x + row.w]
            assert row.area <= (part == 255).sum() and row.x <= row.cx <= row.x + row.w
            assert row.touches_border == (row.x == 0 or row.y == 0 or row.x + row.w == 160 or row.y + row.h == 120)
        assert (record.tracks[0].id, record.tracks[0].name, record.tracks[0].template) == (1, "cup", None)
    tracks = read.tracks()
    assert [row.frame for row in tracks] == list(range(6)) and len(read.matches()) == 6
    assert abs(tracks[-1].x - 50) < 3
    assert len(read.objects()) == 30 and read.summary["objects"]["total"] == 30

    assert read[0].lines == [] and read.crossings() == []

    cut = tmp_path / "cut.jsonl"
    text = results.read_text()
    cut.write_text(text[: text.rindex('"type":"summary"')])
    begun = lockon.read_results(cut)
    assert begun == read and begun.summary is None


@pytest.mark.parametrize(
    "text, words",
    [
        ("", "the file is empty: pass one that `lockon run --results` has written"),
        ("frame,x,y\n", "x.jsonl:1: no line of a results file"),
        ('{"type":"frame"}\n', "the first record is not a run's"),
        ('{"type":"run"}\n{"type":"frame","frame":0}\n', "x.jsonl:2: .*'matches'"),
        ('{"type":"run"}\n[]\n', "x.jsonl:2"),
    ],
)
def test_what_is_no_results_file_is_refused_with_the_line(tmp_path, text, words):
    path = tmp_path / "x.jsonl"
    path.write_text(text)
    with pytest.raises(ValueError, match=words):
        lockon.read_results(path)


def test_a_file_that_is_not_there_is_an_error_of_the_system(tmp_path):
    with pytest.raises(FileNotFoundError):
        lockon.read_results(tmp_path / "none.jsonl")


def test_counts_of_lines_and_zones_are_read(program, tmp_path):
    for index in range(20):
        scene = np.full((90, 120, 3), 20, np.uint8)
        scene[4 * index : 4 * index + 13, 50:65] = 220
        write_png(tmp_path / f"{index:02}.png", scene)
    results = tmp_path / "results.jsonl"
    options = ["--threshold", "mean:61:-30", "--objects", "--track-objects", "--line", "gate=0,45,120,45"]
    options += ["--zone", "low=0,60,120,60,120,90,0,90", "--backend", "cpu"]
    program("run", tmp_path / "%02d.png", *options, "--results", results, records=False)
    read = lockon.read_results(results)
    ((frame, _, line, track, direction),) = read.crossings()
    assert (line, track, direction) == ("gate", 1, "in") and read[frame].lines[0][2:] == ("gate", 1, 0)
    assert read[-1].zones[0].entered == 1 and read[-1].zones[0].objects in (0, 1)
    assert read[frame].tracks[0].object == 1 and read[frame].tracks[0].template == "object"
    assert read.summary["lines"] == [{"line": "gate", "in": 1, "out": 0}]
