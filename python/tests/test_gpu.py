"""Arrays on a GPU. Arrays that cannot be used are refused without a GPU too."""

import numpy as np
import pytest

import lockon
from conftest import noise


class OnGpu:
    """An array as CuPy and PyTorch describe theirs."""

    def __init__(self, **fields):
        whole = {"shape": (60, 80), "typestr": "|u1", "data": (4096, False), "strides": None, "version": 3}
        self.__cuda_array_interface__ = {**whole, **fields}


@pytest.mark.parametrize(
    "fields, kind, words",
    [
        ({"typestr": "<f4"}, TypeError, "uint8, not <f4"),
        ({"shape": (60, 80, 3)}, ValueError, r"\[60, 80, 3\].*grey"),
        ({"shape": (0, 80)}, ValueError, r"\[0, 80\]"),
        ({"strides": (160, 2)}, ValueError, r"\(160, 2\).*contiguous"),
        ({"strides": (-80, 1)}, ValueError, r"\(-80, 1\)"),
        ({"data": None}, TypeError, "without data"),
        ({"mask": object()}, TypeError, "masked"),
    ],
)
def test_an_array_on_a_gpu_that_cannot_be_searched_is_refused_with_the_remedy(fields, kind, words):
    with pytest.raises(kind, match=words):
        lockon.match(OnGpu(**fields), noise((20, 20)))


def test_an_array_at_no_devices_address_is_an_error():
    with pytest.raises(lockon.DeviceError):
        lockon.match(OnGpu(), noise((20, 20)))
    with pytest.raises(lockon.DeviceError):
        lockon.threshold(OnGpu(), "mean:9:2")


@pytest.mark.skipif(not lockon.devices(), reason="skipped: there is no GPU")
@pytest.mark.parametrize("device", ["cuda", "cpu"])
def test_arrays_of_cupy_are_searched_as_numpys(device):
    cupy = pytest.importorskip("cupy", reason="skipped: CuPy is not here")
    scene = noise((181, 333), 7)
    template = scene[50:82, 100:140]
    there = cupy.asarray(scene)
    matcher = lockon.Matcher(template, min_score=0.2, max_matches=9, device=device)
    assert matcher(there) == matcher(scene)
    part = there[3:, 5:200]
    assert matcher(part) == matcher(np.ascontiguousarray(scene[3:, 5:200])), "with gaps between rows"
    assert (lockon.threshold(there, "mean:31:5", device=device) == lockon.threshold(scene, "mean:31:5")).all()
    # Work on the GPU that is not done yet is waited for.
    for index in range(50):
        moved = cupy.roll(there, index, axis=1)
        assert matcher(moved)[0].x == 100 + index
