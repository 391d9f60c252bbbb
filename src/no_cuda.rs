//! What stands in the CUDA backend's place in a build without the feature `cuda`: nothing can be opened, and
//! everything says why.

use crate::backend::{Backend, Device, Findings, Standing};
use crate::config::Kernels;
use crate::error::{CudaVersion, DeviceFault, Error, Result};
use crate::frame::{FrameMeta, PlaneMut};

fn not_built() -> Error {
    Error::Backend { backend: "cuda", fault: DeviceFault::NotBuilt }
}

/// What is known of a device, as in a build that can use one.
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
}

/// No list of devices.
///
/// # Errors
/// `Backend`, always.
pub fn devices() -> Result<Vec<DeviceInfo>> {
    Err(not_built())
}

/// No device.
///
/// # Errors
/// `Backend`, always.
pub fn device(_: usize) -> Result<DeviceInfo> {
    Err(not_built())
}

/// A device that stays open, of which there is none.
#[derive(Debug)]
pub enum Opened {}

impl Opened {
    /// Opens nothing.
    ///
    /// # Errors
    /// `Backend`, always.
    pub fn open(_: usize) -> Result<Self> {
        Err(not_built())
    }
}

/// A CUDA device, of which there is none.
#[derive(Debug)]
pub enum Cuda {}

impl Cuda {
    /// Opens nothing.
    ///
    /// # Errors
    /// `Backend`, always.
    pub fn open(_: Standing, _: usize, _: Kernels, _: usize) -> Result<Self> {
        Err(not_built())
    }
}

impl Backend for Cuda {
    fn describe(&self) -> Device {
        match *self {}
    }

    fn depth(&self) -> usize {
        match *self {}
    }

    fn submit(&mut self, _: FrameMeta, _: &mut dyn FnMut(PlaneMut<'_>)) -> Result<()> {
        match *self {}
    }

    fn wait_next(&mut self, _: &mut Findings) -> Result<Option<FrameMeta>> {
        match *self {}
    }
}
