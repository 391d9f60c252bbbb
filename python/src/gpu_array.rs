//! Arrays on a GPU, of `cupy` and `torch` for example, by DLPack (`dlpack.rs`) or by the interface that Numba
//! defined: <https://numba.readthedocs.io/en/stable/cuda/cuda_array_interface.html>.

#![expect(unsafe_code, reason = "an array is described by an address, a shape and strides")]

use std::sync::Arc;

use lockon_core::device_memory::{DeviceMemory, DevicePlane, MemoryAt, SurfaceDevice};
use lockon_core::error::{Error, Result};
use lockon_core::frame::{Picture, PixelFormat, Size, VideoFormat};
use lockon_core::locks::Ranked;
use lockon_core::still::MAX_PIXELS;
use lockon_run::backend::cuda::{self, Opened};
use pyo3::exceptions::{PyBufferError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::array::Keeper;
use crate::dlpack::{self, Device, LEGACY_STREAM, Tensor};

/// The GPUs on which arrays lay, by their numbers.
static OPENED: Ranked<Vec<(usize, Arc<Opened>)>, 6> = Ranked::new(Vec::new());

/// A grey picture in the memory of a GPU.
pub(crate) struct GpuPixels {
    address: u64,
    size: Size,
    stride: usize,
    stream: usize,
    keeper: Keeper,
}

impl GpuPixels {
    /// Takes the pixels of an array that is called `name` in messages; `None` if it does not lie on a GPU.
    ///
    /// Prefers `__cuda_array_interface__` if that names the stream of the array's work. By DLPack the array
    /// itself waits for its work: PyTorch's arrays need that.
    pub(crate) fn of(array: &Bound<'_, PyAny>, name: &str) -> PyResult<Option<Self>> {
        let interface = array.getattr_opt("__cuda_array_interface__")?;
        let interface = interface.map(Bound::cast_into::<PyDict>).transpose()?;
        if let Some(interface) = &interface
            && interface.contains("stream")?
        {
            return Self::of_interface(interface, array, name).map(Some);
        }
        match (Device::of(array)?.filter(|device| device.is_cuda()), interface) {
            (Some(device), interface) => {
                let tensor = match (Tensor::of(array, device, name), interface) {
                    // PyTorch exports no tensor of a GPU that is not the current one. The default stream of
                    // that is waited for.
                    (Err(error), Some(interface)) if error.is_instance_of::<PyBufferError>(array.py()) => {
                        return Self::of_interface(&interface, array, name).map(Some);
                    }
                    (tensor, _) => tensor?,
                };
                let Tensor { address, shape, strides, keeper } = tensor;
                let keeper = Keeper::Tensor { _own: keeper };
                Self::new(address as u64, (&shape, &strides), LEGACY_STREAM, keeper, name).map(Some)
            }
            (None, Some(interface)) => Self::of_interface(&interface, array, name).map(Some),
            (None, None) => Ok(None),
        }
    }

    fn of_interface(interface: &Bound<'_, PyDict>, array: &Bound<'_, PyAny>, name: &str) -> PyResult<Self> {
        let field = |key: &str| interface.get_item(key).map(|value| value.filter(|value| !value.is_none()));
        let missing = |key: &str| {
            PyTypeError::new_err(format!(
                "{name} has a __cuda_array_interface__ without {key}: pass a copy of it, for example of CuPy"
            ))
        };
        let needed = |key: &str| field(key)?.ok_or_else(|| missing(key));
        if field("mask")?.is_some() {
            return Err(PyTypeError::new_err(format!(
                "{name} is a masked array, and masks of pictures are not read: pass the array without its mask"
            )));
        }
        let dtype: String = needed("typestr")?.extract()?;
        if dtype != "|u1" {
            return Err(PyTypeError::new_err(format!(
                "{name} must be uint8, not {dtype}: array.astype('uint8') converts values from 0 to 255"
            )));
        }
        let shape: Vec<usize> = needed("shape")?.extract()?;
        let strides: Option<Vec<isize>> = field("strides")?.map(|strides| strides.extract()).transpose()?;
        let strides = strides.unwrap_or_else(|| vec![shape.last().map_or(1, |&width| width as isize), 1]);
        let (address, _): (u64, bool) = needed("data")?.extract()?;
        let stream = field("stream")?.map_or(Ok(LEGACY_STREAM), |stream| stream.extract())?;
        let keeper = Keeper::Array { _own: array.clone().unbind() };
        Self::new(address, (&shape, &strides), stream, keeper, name)
    }

    fn new(
        address: u64,
        (shape, strides): (&[usize], &[isize]),
        stream: usize,
        keeper: Keeper,
        name: &str,
    ) -> PyResult<Self> {
        let told = dlpack::shown(shape);
        let (&[height, width], &[row, pixel]) = (shape, strides) else {
            return Err(PyValueError::new_err(format!(
                "{name} lies on a GPU and has the shape {told}: there (height, width) is needed, grey; array.get() or \
                 tensor.cpu() copies a picture in colour to the host"
            )));
        };
        if height == 0 || width == 0 || height.saturating_mul(width) as u64 > MAX_PIXELS {
            return Err(PyValueError::new_err(format!(
                "{name} has the shape {told}: from 1 to {MAX_PIXELS} pixels can be searched; pass a part of it"
            )));
        }
        let row_to_row = if height == 1 { Some(width) } else { usize::try_from(row).ok() };
        let stride = row_to_row.filter(|&row| (pixel == 1 || width == 1) && row >= width);
        let Some(stride) = stride else {
            return Err(PyValueError::new_err(format!(
                "{name} lies on a GPU and has the strides ({row}, {pixel}): there rows must go on from left to right; \
                 cupy.ascontiguousarray(array) or tensor.contiguous() makes it so"
            )));
        };
        Ok(Self { address, size: Size::new(width, height), stride, stream, keeper })
    }

    pub(crate) fn size(&self) -> Size {
        self.size
    }

    /// As a picture that stays where it is.
    pub(crate) fn into_picture(self) -> Result<Arc<dyn Picture>> {
        let Self { address, size, stride, stream, keeper } = self;
        let MemoryAt { device: number, context, bytes } = cuda::memory_at(address)?;
        let needed = (size.height - 1).saturating_mul(stride).saturating_add(size.width);
        if needed > bytes {
            return Err(Error::Usage(format!(
                "an array on a GPU says that it has {needed} bytes, and {bytes} are left of its memory there: \
                 pass a copy of it"
            )));
        }
        let opened = {
            let mut all = OPENED.lock();
            if let Some((_, opened)) = all.iter().find(|(other, _)| *other == number) {
                opened.clone()
            } else {
                let opened = Arc::new(Opened::open(number)?);
                all.push((number, opened.clone()));
                opened
            }
        };
        let format = VideoFormat {
            size,
            pixels: PixelFormat::from_name("GRAY8").expect("a known format"),
            frame_rate: (0, 1),
            pixel_aspect: (1, 1),
            colorimetry: None,
        };
        let plane = DevicePlane { address, stride };
        // Memory of the driver's own pools belongs to no context: it is used in the one that all share.
        let context = if context == 0 { opened.context().0 } else { context };
        // SAFETY: the driver says that as many bytes lie there, in that context. The keeper keeps them and
        // the stream. The module's documentation forbids writing to it during a call.
        let memory = unsafe { DeviceMemory::new(context, vec![plane], Some(stream), Box::new(keeper)) };
        opened.adopt(memory, &format)
    }
}
