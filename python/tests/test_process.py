"""Threads, processes and memory."""

import multiprocessing
import os
import subprocess
import sys
import threading
import time

import numpy as np

import lockon
from conftest import noise

SCENE = noise((240, 320))
TEMPLATE = SCENE[40:62, 90:121].copy()


def test_threads_share_a_matcher():
    matcher, found = lockon.Matcher(TEMPLATE), []

    def work():
        found.extend(matcher.match(SCENE)[0].box for _ in range(20))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [(90, 40, 31, 22)] * 80


def test_other_threads_run_meanwhile():
    large = noise((1080, 1920))
    matcher = lockon.Matcher(large[300:364, 500:564].copy(), angles=(0, 30, 10), device="cpu", threads=1)
    matcher.match(large)
    counted, is_done = [0], threading.Event()

    def count():
        while not is_done.is_set():
            counted[0] += 1
            time.sleep(0.001)

    counter = threading.Thread(target=count)
    counter.start()
    most = 0
    for _ in range(5):
        before = counted[0]
        matcher.match(large)
        most = max(most, counted[0] - before)
    is_done.set()
    counter.join()
    # In one call: between two calls another thread may run anyway.
    assert most >= 5, "Python's lock is held while it searches"


def _in_a_child(matcher):
    tracker = lockon.Tracker(SCENE, (90, 40, 31, 22))
    return matcher.match(SCENE)[0].box, lockon.threshold(SCENE, "mean:9:2").sum(), tracker.update(SCENE).state


MATCHER = lockon.Matcher(TEMPLATE)
# One with a thread of its own.
PYRAMID = [lockon.Matcher(TEMPLATE, search="pyramid", device="cpu")]


def _child():
    if PYRAMID:
        # Its thread is not here; to end it would last for ever.
        assert PYRAMID[0].match(SCENE)
        PYRAMID.clear()
    return _in_a_child(MATCHER)


def test_a_forked_process_goes_on():
    here = _in_a_child(MATCHER)
    assert PYRAMID[0].match(SCENE)
    with multiprocessing.get_context("fork").Pool(2) as pool:
        there = [pool.apply_async(_child).get(timeout=60) for _ in range(4)]
    assert there == [here] * 4
    assert _in_a_child(MATCHER) == here and PYRAMID[0].match(SCENE)


def test_a_forked_process_may_forget_what_its_parent_made():
    matcher = lockon.Matcher(TEMPLATE, search="pyramid", device="cpu")
    assert matcher.match(SCENE)
    child = os.fork()
    if child == 0:
        del matcher
        os._exit(0)
    started = time.monotonic()
    while os.waitpid(child, os.WNOHANG) == (0, 0):
        assert time.monotonic() - started < 30, "the child does not end"
        time.sleep(0.01)


def _resident_kib():
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmRSS"))


def test_ten_thousand_calls_keep_no_memory():
    scene, template = SCENE[:64, :64].copy(), SCENE[20:30, 20:30].copy()
    colours = np.repeat(scene[..., None], 3, 2)
    matcher, tracker = lockon.Matcher(template), lockon.Tracker(colours, (20, 20, 20, 20))

    def work(count):
        for _ in range(count):
            matcher.match(scene)
            lockon.threshold(scene, "mean:9:2")
        for _ in range(count // 10):
            tracker.update(colours)
            lockon.score_map(scene, template)
            try:
                lockon.match(scene / 2, template)
            except TypeError:
                pass

    work(1000)
    before, references = _resident_kib(), [sys.getrefcount(array) for array in (scene, template, colours)]
    work(10_000)
    assert _resident_kib() - before < 2048
    assert [sys.getrefcount(array) for array in (scene, template, colours)] == references


def test_it_is_loaded_soon():
    # numpy takes longest, and is there in every program that has pictures. The limit of 50 ms is multiplied for
    # machines that do other work too.
    code = "import numpy, time; started = time.perf_counter(); import lockon; print(time.perf_counter() - started)"
    taken = min(float(subprocess.check_output([sys.executable, "-c", code])) for _ in range(5))
    assert taken < 0.25
