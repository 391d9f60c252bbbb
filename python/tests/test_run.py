"""Runs over videos, compared with the program's."""

import gc
import os
import signal
import threading
import time
from pathlib import Path

import numpy as np
import pytest

import lockon
from conftest import noise, write_png

pytestmark = pytest.mark.skipif(
    not hasattr(lockon._lockon, "Run"), reason="skipped: this lockon is built without GStreamer"
)


@pytest.fixture
def pictures(tmp_path):
    """Twelve pictures that move two pixels to the right each, and a part of the first."""
    scene = noise((120, 160, 3), 3)
    frames = [np.roll(scene, 2 * index, 1) for index in range(12)]
    for index, frame in enumerate(frames):
        write_png(tmp_path / f"{index:02}.png", frame)
    write_png(tmp_path / "part.png", scene[30:60, 40:80])
    return frames


def test_a_run_gives_the_records_that_the_program_writes(program, pictures, tmp_path):
    options = {"template": tmp_path / "part.png", "threshold": "mean:9:2", "backend": "cpu"}
    options |= {"objects": True, "open": 3, "connect": 4, "object_area": "20..", "object_max": 7}
    results = tmp_path / "results.jsonl"
    words = ["--template", tmp_path / "part.png", "--threshold", "mean:9:2", "--backend", "cpu"]
    words += ["--objects", "--open", "3", "--connect", "4", "--object-area", "20..", "--object-max", "7"]
    program("run", tmp_path / "%02d.png", *words, "--track", "cup=40,30,40,30", "--results", results, records=False)
    of_program = lockon.read_results(results)
    run = lockon.run(tmp_path / "%02d.png", track="cup=40,30,40,30", **options)
    assert (run.width, run.height) == (160, 120)
    assert list(run) == list(of_program) and len(of_program.objects()) > 12
    assert list(run) == [], "it has ended"
    assert run.run["backend"] == "cpu" and run.summary["frames"] == 12


def test_frames_come_with_their_pixels(pictures, tmp_path):
    with lockon.run(tmp_path / "%02d.png", track=(40, 30, 40, 30), max_frames=7) as run:
        seen = list(run.frames())
    assert [record.frame for record, _ in seen] == list(range(7))
    for (_, pixels), picture in zip(seen, pictures):
        assert pixels.shape == picture.shape and pixels.dtype == np.uint8
        # Decoded as JPEG colours are: luma and chroma, rounded.
        assert np.abs(pixels.astype(int) - picture).max() <= 3
    with lockon.run(tmp_path / "%02d.png", max_frames=3, threshold="mean:9:2") as run:
        assert [pixels for _, pixels in run.frames(with_pixels=False)] == [None] * 3


def test_outputs_are_complete_when_the_block_is_left(pictures, tmp_path):
    results = tmp_path / "half.jsonl"
    with lockon.run(tmp_path / "%02d.png", track=[(40, 30, 40, 30), (80, 60, 30, 30)], results=results) as run:
        for record in run:
            if record.frame == 4:
                break
    read = lockon.read_results(results)
    assert read.summary["interrupted"] and 5 <= len(read) <= 12
    assert run.summary == read.summary, "the summary of what ran"
    assert {row.id for row in read.tracks()} == {1, 2}
    with pytest.raises(ZeroDivisionError):
        with lockon.run(tmp_path / "%02d.png", threshold="mean:9:2"):
            1 / 0


def test_a_run_that_is_closed_has_the_summary_of_what_ran(pictures, tmp_path):
    run = lockon.run(tmp_path / "%02d.png", threshold="mean:9:2")
    next(run)
    assert run.summary is None
    run.close()
    summary = run.summary
    assert summary["interrupted"] and 1 <= summary["frames"] < 12
    run.close()
    assert run.summary is summary and list(run) == []
    unbegun = lockon.run(tmp_path / "%02d.png", threshold="mean:9:2")
    unbegun.close()
    assert unbegun.summary is None


def test_a_run_that_is_forgotten_ends(pictures, tmp_path):
    run = lockon.run(tmp_path / "%02d.png", threshold="mean:9:2")
    next(run)
    del run
    gc.collect()
    until = time.monotonic() + 20

    def is_there():
        for task in os.listdir("/proc/self/task"):
            try:
                if Path(f"/proc/self/task/{task}/comm").read_text().startswith("lockon-run"):
                    return True
            except OSError:
                pass
        return False

    while is_there() and time.monotonic() < until:
        time.sleep(0.05)
    assert not is_there()


def test_a_run_that_is_forgotten_while_a_thread_reads_its_output_ends(pictures, tmp_path):
    pipe = tmp_path / "results.jsonl"
    os.mkfifo(pipe)
    read = []
    reader = threading.Thread(target=lambda: read.append(pipe.read_text()))
    reader.start()
    run = lockon.run(tmp_path / "%02d.png", threshold="mean:9:2", results=pipe)
    next(run)
    del run
    gc.collect()
    reader.join(20)
    assert not reader.is_alive() and '"type":"summary"' in read[0]


def test_a_run_of_another_process_says_so(pictures, tmp_path):
    run = lockon.run(tmp_path / "%02d.png", threshold="mean:9:2")
    next(run)
    child = os.fork()
    if child == 0:
        try:
            next(run)
        except RuntimeError:
            os._exit(7)
        os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    assert len(list(run)) == 11


def test_mistakes_are_exceptions_in_the_words_of_the_program(pictures, tmp_path):
    with pytest.raises(TypeError, match="no option tracks"):
        lockon.run(tmp_path / "%02d.png", tracks="1,2,3,4")
    with pytest.raises(ValueError, match="max.frames"):
        lockon.run(tmp_path / "%02d.png", max_frames=0)
    with pytest.raises(FileNotFoundError, match="none.mp4"):
        lockon.run(tmp_path / "none.mp4", threshold="mean:9:2")
    with pytest.raises(ValueError, match="program alone"):
        lockon.run(tmp_path / "%02d.png", serve="8080")
    with pytest.raises(ValueError, match="track"):
        list(lockon.run(tmp_path / "%02d.png", track=(150, 100, 40, 40)))


@pytest.mark.parametrize("is_open", [False, True])
def test_ctrl_c_ends_a_wait(is_open, pictures, tmp_path):
    def press():
        time.sleep(0.4)
        os.kill(os.getpid(), signal.SIGINT)

    # Without a writer it is never open; otherwise only half a video comes.
    pipe = tmp_path / "pipe.y4m"
    os.mkfifo(pipe)
    writer = None
    if is_open:
        writer = os.open(pipe, os.O_RDWR)
        os.write(writer, b"YUV4MPEG2 W64 H48 F25:1 Ip A1:1 C420jpeg\n" + (b"FRAME\n" + bytes(64 * 48 * 3 // 2)) * 3)
    began = time.monotonic()
    pressed = threading.Thread(target=press)
    with pytest.raises(KeyboardInterrupt):
        pressed.start()
        try:
            with lockon.run(pipe, threshold="mean:9:2") as run:
                for _ in run:
                    pass
        finally:
            pressed.join()
    assert time.monotonic() - began < 10
    if writer is not None:
        os.close(writer)
