//! The CUDA backend.

#![allow(dead_code, reason = "being written")]

use crate::backend::{Backend, Device, Findings, Query, Response, SlotId, Standing};
use crate::config::Kernels;
use crate::error::Result;
use crate::frame::{FrameMeta, PlaneMut};

mod driver;

pub use driver::{DeviceInfo, device, devices};

/// A CUDA device.
pub struct Cuda {}

impl Cuda {
    /// A ring of `depth` slots (1 or more) on the device of that number.
    pub fn open(_standing: Standing, _depth: usize, _kernels: Kernels, number: usize) -> Result<Self> {
        driver::Gpu::open(number)?;
        Ok(Self {})
    }
}

impl Backend for Cuda {
    fn describe(&self) -> Device {
        todo!()
    }
    fn depth(&self) -> usize {
        todo!()
    }
    fn submit(&mut self, _meta: FrameMeta, _fill: &mut dyn FnMut(PlaneMut<'_>)) -> Result<()> {
        todo!()
    }
    fn wait_next(&mut self, _findings: &mut Findings) -> Result<Option<(SlotId, FrameMeta)>> {
        todo!()
    }
    fn search(&mut self, _slot: &SlotId, _queries: &[Query], _responses: &mut Vec<Response>) -> Result<()> {
        todo!()
    }
    fn release(&mut self, _slot: SlotId) {}
}
