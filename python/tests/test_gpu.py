"""Arrays on a GPU. Arrays that cannot be used are refused without a GPU too."""

import ctypes

import numpy as np
import pytest

import lockon
from conftest import noise
from dlpack import CUDA, Array


class OnGpu:
    """An array as CuPy and PyTorch describe theirs."""

    def __init__(self, **fields):
        whole = {"shape": (60, 80), "typestr": "|u1", "data": (4096, False), "strides": None, "version": 3}
        self.__cuda_array_interface__ = {**whole, **fields}


@pytest.mark.parametrize(
    "fields, kind, words",
    [
        ({"typestr": "<f4"}, TypeError, "uint8, not <f4"),
        ({"shape": (60, 80, 3)}, ValueError, r"\(60, 80, 3\).*grey; array.get\(\)"),
        ({"shape": (0, 80)}, ValueError, r"\(0, 80\)"),
        ({"strides": (160, 2)}, ValueError, r"\(160, 2\).*contiguous"),
        ({"strides": (-80, 1)}, ValueError, r"\(-80, 1\)"),
        ({"data": None}, TypeError, "without data: pass a copy"),
        ({"mask": object()}, TypeError, "masked .*without its mask"),
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


class Driver:
    """Memory of the first GPU, by nothing but NVIDIA's driver."""

    def __init__(self):
        self.cuda = ctypes.CDLL("libcuda.so.1")
        self.call("cuInit", 0)
        device, context = ctypes.c_int(), ctypes.c_void_p()
        self.call("cuDeviceGet", ctypes.byref(device), 0)
        self.call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
        self.call("cuCtxSetCurrent", context)

    def call(self, name, *arguments):
        status = getattr(self.cuda, name)(*arguments)
        assert status == 0, f"{name}: {status}"

    def copy(self, array):
        """The address of a copy of an array there, which is never freed."""
        address = ctypes.c_uint64()
        self.call("cuMemAlloc_v2", ctypes.byref(address), ctypes.c_size_t(array.nbytes))
        self.call("cuMemcpyHtoD_v2", address, array.ctypes.data_as(ctypes.c_void_p), ctypes.c_size_t(array.nbytes))
        return address.value


def by_interface(driver, array):
    whole = driver.copy(np.ascontiguousarray(array))
    return OnGpu(shape=array.shape, data=(whole, False), stream=1)


def by_dlpack(driver, array):
    return Array(array, device=(CUDA, 0), address=driver.copy(array), strides=array.strides)


@pytest.mark.skipif(not lockon.devices(), reason="skipped: there is no GPU")
@pytest.mark.parametrize("device", ["cuda", "cpu"])
@pytest.mark.parametrize("there", [by_interface, by_dlpack])
def test_arrays_on_a_gpu_are_searched_as_numpys(there, device):
    scene = noise((181, 333), 7)
    driver = Driver()
    on_gpu = there(driver, scene)
    matcher = lockon.Matcher(scene[50:82, 100:140], min_score=0.2, max_matches=9, device=device)
    assert matcher(on_gpu) == matcher(scene)
    assert (lockon.threshold(on_gpu, "mean:31:5", device=device) == lockon.threshold(scene, "mean:31:5")).all()
    part = Array(
        shape=(178, 195), strides=(333, 1), device=(CUDA, 0), address=driver.copy(scene), byte_offset=3 * 333 + 5
    )
    assert matcher(part) == matcher(np.ascontiguousarray(scene[3:, 5:200])), "with gaps between rows"
    assert part.deleted == 1
    beyond = Array(shape=(1 << 12, 1 << 14), strides=(1 << 14, 1), device=(CUDA, 0), address=driver.copy(scene))
    with pytest.raises(ValueError, match="bytes"):
        matcher(beyond)
    assert beyond.deleted == 1


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


@pytest.mark.skipif(not lockon.devices(), reason="skipped: there is no GPU")
@pytest.mark.parametrize("shape", [(1080, 1920), (1079, 1921), (41, 30_000), (30_000, 41)])
def test_large_pictures_come_to_a_gpu_whole(shape):
    # Several threads copy parts of them; a part that is missing or old shows in the mask.
    scenes = [noise(shape, seed) for seed in range(3)]
    expected = [lockon.threshold(scene, "mean:31:5", device="cpu") for scene in scenes]
    for index in range(60):
        scene = scenes[index % 3]
        assert (lockon.threshold(scene, "mean:31:5", device="cuda") == expected[index % 3]).all(), index
