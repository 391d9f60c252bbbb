//! Arrays of other libraries, PyTorch's for example, by DLPack:
//! <https://dmlc.github.io/dlpack/latest/python_spec.html>.
//!
//! An array gives its tensor in a capsule. To take the tensor is to rename the capsule. The code that took it
//! calls its deleter, once: [`Taken`] does so when it is dropped, whatever went wrong in between.

#![expect(unsafe_code, reason = "a tensor is described by an address, a shape and strides")]

use std::ffi::{CStr, c_void};
use std::fmt;
use std::ptr::NonNull;

use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyDict;

/// The newest version that lockon asks for. Tensors of another major version have another layout.
const VERSION: (u32, u32) = (1, 0);

/// CUDA's legacy default stream. Arrays on a GPU are to be finished in it. Those that name no stream are
/// taken to be: `cupy` and `torch` use it by default.
pub(crate) const LEGACY_STREAM: usize = 1;

/// The names of capsules of tensors with a version and without, each before and after the tensor is taken.
const VERSIONED: [&CStr; 2] = [c"dltensor_versioned", c"used_dltensor_versioned"];
const UNVERSIONED: [&CStr; 2] = [c"dltensor", c"used_dltensor"];

/// The remedy for a tensor that its library describes wrongly.
const COPY_INSTEAD: &str = "pass a copy that numpy made, for example numpy.array(array)";

/// Where the memory of an array lies: DLPack's number for the kind of device, and that of the device.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(C)]
pub(crate) struct Device {
    kind: i32,
    number: i32,
}

impl Device {
    /// The device of an array; `None` if that has no DLPack.
    pub(crate) fn of(array: &Bound<'_, PyAny>) -> PyResult<Option<Self>> {
        let Some(asked) = array.getattr_opt("__dlpack_device__")? else { return Ok(None) };
        let (kind, number) = asked.call0()?.extract()?;
        Ok(Some(Self { kind, number }))
    }

    /// True if the processor reads it: its own memory, or page-locked memory.
    pub(crate) fn is_host(self) -> bool {
        matches!(self.kind, 1 | 3)
    }

    /// True if it is memory of a GPU of NVIDIA.
    pub(crate) fn is_cuda(self) -> bool {
        matches!(self.kind, 2 | 13)
    }
}

impl fmt::Display for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.kind {
            _ if self.is_host() => f.write_str("the CPU"),
            _ if self.is_cuda() => write!(f, "cuda:{}", self.number),
            kind => write!(f, "device {} of DLPack's kind {kind}", self.number),
        }
    }
}

/// The kind of a tensor's numbers: DLPack's code, bits, and how many make an element.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(C)]
pub(crate) struct Kind {
    code: u8,
    bits: u8,
    lanes: u16,
}

impl Kind {
    const UINT8: Self = Self { code: 1, bits: 8, lanes: 1 };

    /// How PyTorch makes grey values from 0 to 255 of such numbers.
    fn conversion(self) -> &'static str {
        match self {
            Self { lanes: 2.., .. } => "elements of one number each are needed",
            Self { code: 2 | 4, .. } => "(255 * tensor).round().to(torch.uint8) converts values from 0 to 1",
            Self { code: 6, .. } => "tensor.to(torch.uint8) * 255 converts it",
            Self { bits: 16, .. } => "(tensor >> 8).to(torch.uint8) converts values of 16 bits",
            _ => "tensor.to(torch.uint8) converts values from 0 to 255",
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { code, bits, lanes } = *self;
        match code {
            0 => write!(f, "int{bits}")?,
            1 => write!(f, "uint{bits}")?,
            2 => write!(f, "float{bits}")?,
            4 => write!(f, "bfloat{bits}")?,
            5 => write!(f, "complex{bits}")?,
            6 => f.write_str("bool")?,
            code => write!(f, "DLPack's type {code} of {bits} bits")?,
        }
        if lanes == 1 { Ok(()) } else { write!(f, " x {lanes}") }
    }
}

/// `DLTensor`.
#[repr(C)]
pub(crate) struct Described {
    data: *mut c_void,
    device: Device,
    dimensions: i32,
    kind: Kind,
    shape: *const i64,
    strides: *const i64,
    byte_offset: u64,
}

/// `DLManagedTensor`.
#[repr(C)]
pub(crate) struct Unversioned {
    tensor: Described,
    context: *mut c_void,
    deleter: Option<unsafe extern "C" fn(*mut Self)>,
}

/// `DLManagedTensorVersioned`. Of another major version only what stands before `flags` may be read.
#[repr(C)]
pub(crate) struct Versioned {
    version: [u32; 2],
    context: *mut c_void,
    deleter: Option<unsafe extern "C" fn(*mut Self)>,
    flags: u64,
    tensor: Described,
}

/// A tensor that was taken from its capsule.
pub(crate) enum Taken {
    Versioned(NonNull<Versioned>),
    Unversioned(NonNull<Unversioned>),
}

// SAFETY: only `Tensor::of` and `Drop` read what is behind the pointers, and no other code has them. The
// deleter may be called on any thread: that has Python's lock then, as the thread that took the tensor had.
unsafe impl Send for Taken {}
// SAFETY: as above; a shared reference gives access to nothing.
unsafe impl Sync for Taken {}

impl Drop for Taken {
    fn drop(&mut self) {
        // Where Python has ended, the deleter could use nothing of it any more: the system gets the memory.
        let _ = Python::try_attach(|_| match *self {
            // SAFETY: the capsule was renamed, so nothing else calls the deleter, and this does so once.
            Self::Versioned(there) => unsafe {
                if let Some(delete) = (*there.as_ptr()).deleter {
                    delete(there.as_ptr());
                }
            },
            // SAFETY: as above.
            Self::Unversioned(there) => unsafe {
                if let Some(delete) = (*there.as_ptr()).deleter {
                    delete(there.as_ptr());
                }
            },
        });
    }
}

/// An array of `uint8`.
pub(crate) struct Tensor {
    pub(crate) address: usize,
    pub(crate) shape: Vec<usize>,
    /// Bytes from one element to the next, for each dimension.
    pub(crate) strides: Vec<isize>,
    /// Keeps the memory.
    pub(crate) keeper: Taken,
}

impl Tensor {
    /// Takes the tensor of an array that is called `name` in messages and lies on this device.
    pub(crate) fn of(array: &Bound<'_, PyAny>, device: Device, name: &str) -> PyResult<Self> {
        let taken = take(array, device, name)?;
        let there = match &taken {
            // SAFETY: the capsule had a tensor of this kind, which lives until its deleter is called.
            Taken::Versioned(there) => unsafe {
                let version = (*there.as_ptr()).version;
                if version[0] != VERSION.0 {
                    return Err(PyTypeError::new_err(format!(
                        "{name} has a tensor of DLPack {}.{}, and {}.{} is known: pass numpy.asarray(array)",
                        version[0], version[1], VERSION.0, VERSION.1
                    )));
                }
                &(*there.as_ptr()).tensor
            },
            // SAFETY: as above.
            Taken::Unversioned(there) => unsafe { &(*there.as_ptr()).tensor },
        };
        let (shape, strides) = layout(there, name)?;
        let Described { data, byte_offset, kind, device: on, .. } = *there;
        let shown = || format!("shape {}, on {on}", shown(&shape));
        // Page-locked memory of PyTorch calls itself that, and its tensor is of the CPU.
        let is_same = on == device || on.is_host() && device.is_host();
        if !is_same {
            return Err(PyValueError::new_err(format!(
                "{name} says that it lies on {device}, and its tensor says {}: {COPY_INSTEAD}",
                shown()
            )));
        }
        if kind != Kind::UINT8 {
            let remedy = kind.conversion();
            return Err(PyTypeError::new_err(format!(
                "{name} must be uint8, not {kind} ({}): {remedy}",
                shown()
            )));
        }
        let refused = |why: &str| {
            PyValueError::new_err(format!("{name} has a tensor ({}) {why}: {COPY_INSTEAD}", shown()))
        };
        let has_elements = !shape.contains(&0);
        if data.is_null() && has_elements {
            return Err(refused("without memory"));
        }
        let first = usize::try_from(byte_offset).ok().and_then(|offset| (data as usize).checked_add(offset));
        let address = first.filter(|&first| !has_elements || lies_in_memory(first, &shape, &strides));
        let Some(address) = address else {
            return Err(refused(&format!(
                "whose byte_offset {byte_offset} and strides {strides:?} lead out of all memory"
            )));
        };
        Ok(Self { address, shape, strides, keeper: taken })
    }
}

/// A shape as Python shows it.
pub(crate) fn shown(shape: &[usize]) -> String {
    let lengths: Vec<_> = shape.iter().map(ToString::to_string).collect();
    format!("({}{})", lengths.join(", "), if shape.len() == 1 { "," } else { "" })
}

/// Takes the tensor out of the capsule that an array gives.
fn take(array: &Bound<'_, PyAny>, device: Device, name: &str) -> PyResult<Taken> {
    let py = array.py();
    let ask = |max_version: Option<(u32, u32)>| {
        let options = PyDict::new(py);
        if device.is_cuda() {
            options.set_item("stream", LEGACY_STREAM)?;
        }
        if let Some(version) = max_version {
            options.set_item("max_version", version)?;
        }
        array.call_method("__dlpack__", (), Some(&options))
    };
    let capsule = match ask(Some(VERSION)) {
        // Producers from before version 1.0 do not know the argument.
        Err(error) if error.is_instance_of::<PyTypeError>(py) => ask(None)?,
        capsule => capsule?,
    };
    let pointer = |[name, used]: [&'static CStr; 2]| {
        // SAFETY: Python's lock is held. A capsule that is valid under this name has a pointer that is not
        // null; both names live as long as the program.
        unsafe {
            if ffi::PyCapsule_IsValid(capsule.as_ptr(), name.as_ptr()) == 0 {
                return Ok(None);
            }
            let there = ffi::PyCapsule_GetPointer(capsule.as_ptr(), name.as_ptr());
            if ffi::PyCapsule_SetName(capsule.as_ptr(), used.as_ptr()) != 0 {
                return Err(PyErr::fetch(py));
            }
            Ok(NonNull::new(there))
        }
    };
    if let Some(there) = pointer(VERSIONED)? {
        return Ok(Taken::Versioned(there.cast()));
    }
    if let Some(there) = pointer(UNVERSIONED)? {
        return Ok(Taken::Unversioned(there.cast()));
    }
    let kind = capsule.get_type().name()?;
    Err(PyTypeError::new_err(format!(
        "{name}.__dlpack__() returned no capsule with a new tensor, but {kind}: {COPY_INSTEAD}"
    )))
}

/// The shape of a tensor, and its strides in elements.
fn layout(there: &Described, name: &str) -> PyResult<(Vec<usize>, Vec<isize>)> {
    let wrong =
        |what: &str| PyValueError::new_err(format!("{name} has a tensor with {what}: {COPY_INSTEAD}"));
    let count = usize::try_from(there.dimensions).map_err(|_| wrong("fewer than no dimensions"))?;
    let numbers = |first: *const i64| {
        // SAFETY: DLPack promises as many numbers as there are dimensions wherever this is not null.
        (0..count).map(move |index| unsafe { *first.add(index) })
    };
    if count > 0 && there.shape.is_null() {
        return Err(wrong("dimensions but no shape"));
    }
    let shape = numbers(there.shape).map(|length| usize::try_from(length).ok()).collect::<Option<Vec<_>>>();
    let shape = shape.ok_or_else(|| wrong("a side below 0"))?;
    if !there.strides.is_null() {
        return Ok((shape, numbers(there.strides).map(|stride| stride as isize).collect()));
    }
    // Without strides it is compact, row by row.
    let mut strides = vec![1; count];
    for index in (1..count).rev() {
        strides[index - 1] = isize::saturating_mul(strides[index], shape[index] as isize);
    }
    Ok((shape, strides))
}

/// True if the address of every byte of an array of bytes is one that memory can have.
fn lies_in_memory(first: usize, shape: &[usize], strides: &[isize]) -> bool {
    let (mut least, mut most) = (first as i128, first as i128);
    for (&length, &stride) in shape.iter().zip(strides) {
        let reach = (length as i128 - 1) * stride as i128;
        (least, most) = (least.saturating_add(reach.min(0)), most.saturating_add(reach.max(0)));
    }
    least >= 0 && most <= isize::MAX as i128
}
