//! A picture to look at, wherever its array lies.

use std::sync::Arc;

use lockon_core::error::Result;
use lockon_core::frame::{Picture, PlaneRef, Size};
use lockon_core::surface::Surface;
use numpy::PyUntypedArray;
use pyo3::prelude::*;

use crate::array::Pixels;
use crate::gpu_array::GpuPixels;

/// The pixels of an array.
pub(crate) enum Input {
    Host(Pixels),
    Gpu(GpuPixels),
}

impl Input {
    /// Takes the pixels of an array that is called `name` in messages.
    pub(crate) fn of(array: &Bound<'_, PyAny>, name: &str) -> PyResult<Self> {
        // Most arrays are numpy's, which are not asked whether they lie on a GPU.
        let is_numpys = array.cast::<PyUntypedArray>().is_ok();
        let on_gpu = if is_numpys { None } else { GpuPixels::of(array, name)? };
        on_gpu.map_or_else(|| Pixels::of(array, name).map(Self::Host), |pixels| Ok(Self::Gpu(pixels)))
    }

    pub(crate) fn size(&self) -> Size {
        match self {
            Self::Host(pixels) => pixels.size(),
            Self::Gpu(pixels) => pixels.size(),
        }
    }

    /// As a picture whose only plane is luma; it stays where it is, if it can be read there.
    pub(crate) fn into_picture(self) -> Result<Arc<dyn Picture>> {
        match self {
            Self::Host(pixels) => Ok(Arc::new(pixels.into_picture()?)),
            Self::Gpu(pixels) => pixels.into_picture(),
        }
    }
}

/// Luma on the host.
pub(crate) fn luma(picture: &dyn Picture) -> Result<PlaneRef<'_>> {
    let luma = picture.plane(0);
    picture.surface().map_or(Ok(()), Surface::check)?;
    Ok(luma)
}
