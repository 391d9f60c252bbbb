"""Arrays of other libraries, by DLPack."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import lockon
from conftest import noise
from dlpack import CPU, CUDA, PAGE_LOCKED, Array, OfNumpy

SCENE = noise((143, 211))
TEMPLATE = SCENE[40:62, 90:121].copy()
COLOURS = noise((80, 90, 3), 2)


@pytest.mark.parametrize(
    "scene",
    [SCENE, np.pad(SCENE, ((0, 0), (3, 8)))[:, 3:-8], np.asfortranarray(SCENE), SCENE[::-1].copy()[::-1], SCENE[..., None]],
    ids=["rows", "padded rows", "columns first", "from below", "one channel"],
)
@pytest.mark.parametrize("kind", [OfNumpy, Array, lambda array: Array(array, version=None)], ids=["numpy", "1.0", "old"])
def test_pixels_are_those_of_the_array_however_they_lie(kind, scene):
    limits = {"min_score": 0.3, "max_matches": 9}
    expected = lockon.match(SCENE, TEMPLATE, **limits)
    assert lockon.match(kind(scene), kind(TEMPLATE), mask=kind(np.full_like(TEMPLATE, 255)), **limits) == lockon.match(
        SCENE, TEMPLATE, mask=np.full_like(TEMPLATE, 255), **limits
    )
    assert lockon.Matcher(TEMPLATE, **limits)(kind(scene)) == expected
    assert (lockon.threshold(kind(scene), "mean:9:2") == lockon.threshold(SCENE, "mean:9:2")).all()
    assert (lockon.score_map(kind(scene), kind(TEMPLATE)) == lockon.score_map(SCENE, TEMPLATE)).all()


def test_pictures_in_colour_are_searched_and_followed():
    template = COLOURS[30:50, 20:60]
    assert lockon.match(Array(COLOURS), Array(template)) == lockon.match(COLOURS, template)
    planes = np.ascontiguousarray(COLOURS.transpose(2, 0, 1))
    assert lockon.match(Array(planes.transpose(1, 2, 0)), template) == lockon.match(COLOURS, template)
    box = (20, 30, 40, 20)
    trackers = lockon.Tracker(COLOURS, box), lockon.Tracker(Array(COLOURS), box)
    moved = np.roll(COLOURS, 2, axis=1)
    assert trackers[0].update(moved) == trackers[1].update(OfNumpy(moved))


def test_pixels_begin_at_the_offset():
    whole = noise((150, 211), 4)
    part = Array(whole, shape=(143, 211), byte_offset=7 * 211)
    assert lockon.score_map(part, TEMPLATE).tolist() == lockon.score_map(whole[7:], TEMPLATE).tolist()
    compact = Array(SCENE, strides=None)
    compact.managed.tensor.strides = None
    assert lockon.match(compact, TEMPLATE) == lockon.match(SCENE, TEMPLATE)


@pytest.mark.parametrize("version, used", [((1, 0), "used_dltensor_versioned"), (None, "used_dltensor")])
def test_a_tensor_is_taken_once_and_deleted_once(version, used):
    scene = Array(SCENE, version=version)
    matcher = lockon.Matcher(TEMPLATE)
    for count in range(1, 4):
        matcher(scene)
        assert (scene.names(), scene.deleted) == ([used] * count, count)
    # Also where the call fails after it was taken: in Python's own part, in a search, and for a template.
    with pytest.raises(ValueError, match="31x22"):
        matcher(Array(SCENE, shape=(9, 9)))
    failed = [Array(np.zeros((9, 9, 4), np.uint8), version=version), Array(np.full((9, 9), 5, np.uint8), version=version)]
    with pytest.raises(ValueError, match="alpha"):
        matcher(failed[0])
    with pytest.raises(ValueError, match="flat"):
        lockon.Matcher(failed[1])
    assert [array.deleted for array in failed] == [1, 1] and failed[0].names() == [used]


def test_a_capsule_that_was_taken_is_refused():
    class Again(OfNumpy):
        def __init__(self, array):
            super().__init__(array)
            self.capsule = super().__dlpack__()

        def __dlpack__(self, **_):
            return self.capsule

    scene = Again(SCENE)
    assert lockon.match(scene, TEMPLATE)
    with pytest.raises(TypeError, match="no capsule with a new tensor, but PyCapsule: pass a copy"):
        lockon.match(scene, TEMPLATE)


def test_many_threads_take_and_delete():
    scenes = [Array(SCENE) for _ in range(64)]
    matcher = lockon.Matcher(TEMPLATE, threads=1)
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(matcher.match, scenes))
    assert all(one == found[0] for one in found) and [scene.deleted for scene in scenes] == [1] * 64


@pytest.mark.parametrize(
    "fields, error, words",
    [
        ({"kind": (2, 32, 1)}, TypeError, r"uint8, not float32 \(shape \(143, 211\), on the CPU\): \(255 \* tensor\)"),
        ({"kind": (4, 16, 1)}, TypeError, "not bfloat16"),
        ({"kind": (6, 8, 1)}, TypeError, r"not bool .*tensor.to\(torch.uint8\) \* 255"),
        ({"kind": (1, 16, 1)}, TypeError, r"not uint16 .*tensor >> 8"),
        ({"kind": (0, 64, 1)}, TypeError, r"not int64 .*tensor.to\(torch.uint8\) converts"),
        ({"kind": (1, 8, 4)}, TypeError, "not uint8 x 4 .*one number each"),
        ({"shape": (3, 50, 60), "strides": (3000, 60, 1)}, ValueError, r"\(3, 50, 60\).*flip\(0\).permute\(1, 2, 0\)"),
        ({"shape": (0, 60), "strides": (60, 1)}, ValueError, "no pixels; height and width must be at least 1"),
        ({"shape": (-4, 60), "strides": (60, 1)}, ValueError, r"a side below 0: pass a copy .*numpy.array\(array\)"),
        ({"address": 0}, ValueError, r"\(shape \(143, 211\), on the CPU\) without memory: pass a copy"),
        ({"byte_offset": 2**64 - 5}, ValueError, "byte_offset 18446744073709551611"),
        ({"strides": (2**62, 1)}, ValueError, "strides"),
        ({"version": (2, 0)}, TypeError, r"DLPack 2.0, and 1.0 is known: pass numpy.asarray"),
        ({"tensor_device": (CUDA, 1)}, ValueError, "lies on the CPU, and its tensor says .*cuda:1: pass a copy"),
    ],
)
def test_a_tensor_that_cannot_be_read_is_refused_and_deleted(fields, error, words):
    scene = Array(SCENE, **fields)
    with pytest.raises(error, match="^scene .*" + words):
        lockon.match(scene, TEMPLATE)
    assert scene.deleted == 1


def test_the_producers_own_error_is_the_callers():
    class Broken(OfNumpy):
        def __dlpack__(self, **_):
            raise BufferError("it needs a gradient")

    with pytest.raises(BufferError, match="gradient"):
        lockon.match(Broken(SCENE), TEMPLATE)
    other = Array(SCENE, device=(10, 2))
    with pytest.raises(TypeError, match="scene lies on device 2 of DLPack's kind 10"):
        lockon.match(other, TEMPLATE)
    assert other.asked == []


def test_an_array_on_a_gpu_is_asked_for_its_tensor_in_cudas_default_stream():
    scene = Array(SCENE, device=(CUDA, 0), address=4096)
    with pytest.raises(lockon.DeviceError):
        lockon.match(scene, TEMPLATE)
    assert scene.asked == [{"stream": 1, "max_version": (1, 0)}] and scene.deleted == 1
    with pytest.raises(TypeError, match="lies on cuda:0; copy it"):
        lockon.match(SCENE, scene)
    host = Array(SCENE)
    lockon.match(host, TEMPLATE)
    assert host.asked == [{"max_version": (1, 0)}]
    colours = Array(COLOURS, device=(CUDA, 0))
    with pytest.raises(ValueError, match=r"\(80, 90, 3\).*grey"):
        lockon.match(colours, TEMPLATE)
    assert colours.deleted == 1


def test_of_two_interfaces_the_one_that_names_its_stream_is_taken():
    class Both(Array):
        def __init__(self, **more):
            super().__init__(SCENE, device=(CUDA, 0), address=4096)
            self.__cuda_array_interface__ = {"shape": (60, 80), "typestr": "|u1", "data": (4096, False), **more}

    for more, asked in (({"stream": 1}, 0), ({"stream": None}, 0), ({}, 1)):
        both = Both(**more)
        with pytest.raises(lockon.DeviceError):
            lockon.match(both, TEMPLATE)
        assert (len(both.asked), both.deleted) == (asked, asked), more


def test_a_tensor_that_its_library_does_not_export_is_taken_by_its_other_interface():
    class OfAnotherGpu(Array):
        """As PyTorch's, of a GPU that is not the current one."""

        def __init__(self):
            super().__init__(SCENE, device=(CUDA, 0), address=4096)
            self.__cuda_array_interface__ = {"shape": (0, 80), "typestr": "|u1", "data": (4096, False)}

        def __dlpack__(self, **options):
            raise BufferError("cannot export tensors on a different CUDA device")

    # The interface was read: the shape is its own.
    with pytest.raises(ValueError, match=r"\(0, 80\)"):
        lockon.match(OfAnotherGpu(), TEMPLATE)


def test_page_locked_memory_whose_tensor_is_of_the_cpu_is_read_where_it_lies():
    page_locked = Array(SCENE, device=(PAGE_LOCKED, 0), tensor_device=(CPU, 0))
    assert lockon.match(page_locked, TEMPLATE) == lockon.match(SCENE, TEMPLATE)
    assert page_locked.deleted == 1
