"""Threads, processes and memory."""

import multiprocessing
import os
import resource
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
    matcher = lockon.Matcher(large[300:364, 500:564].copy(), angles=(0, 30, 10), threads=1)
    matcher.match(large)
    counted, is_done = [0], threading.Event()

    def count():
        while not is_done.is_set():
            counted[0] += 1
            time.sleep(0.001)

    counter = threading.Thread(target=count)
    counter.start()
    before = counted[0]
    started = time.monotonic()
    while time.monotonic() - started < 0.3:
        matcher.match(large)
    during = counted[0] - before
    is_done.set()
    counter.join()
    assert during > 20, "Python's lock is held while it searches"


def _in_a_child(matcher):
    tracker = lockon.Tracker(SCENE, (90, 40, 31, 22))
    return matcher.match(SCENE)[0].box, lockon.threshold(SCENE, "mean:9:2").sum(), tracker.update(SCENE).state


MATCHER = lockon.Matcher(TEMPLATE)


def _child():
    return _in_a_child(MATCHER)


def test_a_forked_process_goes_on():
    here = _in_a_child(MATCHER)
    with multiprocessing.get_context("fork").Pool(2) as pool:
        there = [pool.apply_async(_child).get(timeout=60) for _ in range(4)]
    assert there == [here] * 4
    assert _in_a_child(MATCHER) == here


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
    before = _resident_kib()
    work(10_000)
    assert _resident_kib() - before < 2048


def test_nothing_that_is_imported_is_slow_to_load():
    # numpy is there in every program that has pictures, and takes longest.
    import subprocess
    import sys

    code = "import numpy, time; started = time.perf_counter(); import lockon; print(time.perf_counter() - started)"
    taken = min(float(subprocess.check_output([sys.executable, "-c", code])) for _ in range(3))
    assert taken < 1.0
    assert os.path.exists(lockon.__file__) and resource.getrusage(resource.RUSAGE_SELF).ru_maxrss > 0
