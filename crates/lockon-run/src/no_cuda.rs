//! Replaces the CUDA backend in a build without the feature `cuda`: nothing can be opened, and every call
//! returns an error with the reason.

use std::sync::Arc;

use crate::backend::{Backend, Options, Standing};
use lockon_core::device_memory::{DeviceMemory, MemoryAt, PinnedMemory, SurfaceDevice};
use lockon_core::error::{CudaVersion, DeviceFault, Error, Result};
use lockon_core::frame::{Picture, VideoFormat};
use lockon_core::overlay::Drawing;
use lockon_core::surface::Traffic;

const NOT_BUILT: Error = Error::Backend { backend: "cuda", fault: DeviceFault::NotBuilt };

/// The kernels in this build, for people.
pub const KERNELS: &str = "none, built without the feature cuda";

/// The properties of a device, as in a build that can use one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeviceInfo {
    /// Its number, counted from 0.
    pub number: usize,
    /// Its name.
    pub name: String,
    /// Its compute capability.
    pub capability: CudaVersion,
    /// Its memory, in bytes.
    pub memory: usize,
    /// The newest CUDA version that its driver knows.
    pub driver: CudaVersion,
    /// Its address on the PCI bus.
    pub pci: String,
}

/// No list of devices.
///
/// # Errors
/// `Backend`, always.
pub fn devices() -> Result<Vec<DeviceInfo>> {
    Err(NOT_BUILT)
}

/// No device.
///
/// # Errors
/// `Backend`, always.
pub fn device(_: usize) -> Result<DeviceInfo> {
    Err(NOT_BUILT)
}

/// No device's memory.
///
/// # Errors
/// `Backend`, always.
pub fn memory_at(_: u64) -> Result<MemoryAt> {
    Err(NOT_BUILT)
}

/// A device that stays open.
#[derive(Debug)]
pub struct Opened;

impl Opened {
    /// Opens nothing.
    ///
    /// # Errors
    /// `Backend`, always.
    pub fn open(_: usize) -> Result<Self> {
        Err(NOT_BUILT)
    }

    /// Opens nothing.
    ///
    /// # Errors
    /// `Backend`, always.
    pub fn counting(_: usize, _: &Traffic) -> Result<Self> {
        Err(NOT_BUILT)
    }
}

impl SurfaceDevice for Opened {
    fn context(&self) -> (usize, i32) {
        (0, 0)
    }

    fn adopt(&self, _: DeviceMemory, _: &VideoFormat) -> Result<Arc<dyn Picture>> {
        Err(NOT_BUILT)
    }

    fn paint(&self, _: &DeviceMemory, _: &VideoFormat, _: &Drawing) -> Result<bool> {
        Err(NOT_BUILT)
    }

    fn is_lost(&self) -> bool {
        false
    }

    fn pinned(&self, _: usize) -> Result<Box<dyn PinnedMemory>> {
        Err(NOT_BUILT)
    }
}

/// Opens nothing.
///
/// # Errors
/// `Backend`, always.
pub fn open(_: Standing, _: &Options, _: usize) -> Result<Box<dyn Backend>> {
    Err(NOT_BUILT)
}
