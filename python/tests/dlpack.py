"""Arrays that give their memory by DLPack, as other libraries do, and count what becomes of it."""

import ctypes

import numpy as np

CPU, CUDA, PAGE_LOCKED, UINT8 = 1, 2, 3, (1, 8, 1)


class Device(ctypes.Structure):
    _fields_ = [("kind", ctypes.c_int32), ("number", ctypes.c_int32)]


class Kind(ctypes.Structure):
    _fields_ = [("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16)]


class Described(ctypes.Structure):
    _fields_ = [
        ("data", ctypes.c_void_p),
        ("device", Device),
        ("dimensions", ctypes.c_int32),
        ("kind", Kind),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    ]


DELETER = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


class Unversioned(ctypes.Structure):
    _fields_ = [("tensor", Described), ("context", ctypes.c_void_p), ("deleter", DELETER)]


class Versioned(ctypes.Structure):
    _fields_ = [
        ("version", ctypes.c_uint32 * 2),
        ("context", ctypes.c_void_p),
        ("deleter", DELETER),
        ("flags", ctypes.c_uint64),
        ("tensor", Described),
    ]


python = ctypes.pythonapi
python.PyCapsule_New.restype = ctypes.py_object
python.PyCapsule_New.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
python.PyCapsule_GetName.restype = ctypes.c_char_p
python.PyCapsule_GetName.argtypes = [ctypes.py_object]


class Array:
    """Describes memory of numpy, or another address, by DLPack."""

    def __init__(
        self,
        array=None,
        *,
        device=(CPU, 0),
        tensor_device=None,
        address=None,
        kind=UINT8,
        shape=None,
        strides=None,
        byte_offset=0,
        version=(1, 0),
    ):
        self.array, self.device, self.version = array, device, version
        self.deleted, self.asked, self.capsules = 0, [], []
        shape = array.shape if shape is None else shape
        if strides is None and array is not None:
            strides = array.strides
        self.numbers = [None if n is None else (ctypes.c_int64 * len(n))(*n) for n in (shape, strides)]
        pointers = [None if n is None else ctypes.cast(n, ctypes.POINTER(ctypes.c_int64)) for n in self.numbers]
        if address is None:
            address = array.__array_interface__["data"][0]
        lies = Device(*(tensor_device or device))
        described = Described(address, lies, len(shape), Kind(*kind), *pointers, byte_offset)
        self.deleter = DELETER(self.delete)
        if version is None:
            self.managed, self.name = Unversioned(described, None, self.deleter), b"dltensor"
        else:
            version = (ctypes.c_uint32 * 2)(*version)
            self.managed, self.name = Versioned(version, None, self.deleter, 0, described), b"dltensor_versioned"

    def delete(self, address):
        assert address == ctypes.addressof(self.managed)
        self.deleted += 1

    def __dlpack_device__(self):
        return self.device

    def __dlpack__(self, **options):
        self.asked.append(options)
        if self.version is None and "max_version" in options:
            raise TypeError("an old one, which knows no max_version")
        # Its name must live as long as the capsule.
        self.capsules.append(python.PyCapsule_New(ctypes.addressof(self.managed), self.name, None))
        return self.capsules[-1]

    def names(self):
        """The names that its capsules have by now."""
        return [python.PyCapsule_GetName(capsule).decode() for capsule in self.capsules]


class OfNumpy:
    """An array of numpy that shows nothing but its own DLPack."""

    def __init__(self, array):
        self.array = np.asarray(array)

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()

    def __dlpack__(self, **options):
        return self.array.__dlpack__(**options)
