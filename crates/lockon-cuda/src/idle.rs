//! A device that does nothing to frames: the tracker reads the decoded pictures.

use std::sync::Arc;

use lockon_core::backend::ring::Ring;
use lockon_core::backend::{Backend, Device, Findings, Standing};
use lockon_core::error::Result;
use lockon_core::frame::{FrameMeta, Picture};

use super::check_size;
use super::driver::Gpu;

pub(super) struct Idle {
    gpu: Gpu,
    depth: usize,
    ring: Ring<Option<FrameMeta>>,
}

impl Idle {
    pub(super) fn open(standing: &Standing, depth: usize, number: usize) -> Result<Self> {
        standing.check()?;
        let gpu = Gpu::open(number)?;
        check_size(&gpu, standing.frame)?;
        Ok(Self { gpu, depth, ring: Ring::new("cuda", vec![None; depth]) })
    }
}

impl Backend for Idle {
    fn describe(&self) -> Device {
        self.gpu.info().describe()
    }

    fn depth(&self) -> usize {
        self.depth
    }

    fn submit(&mut self, meta: FrameMeta, _: &Arc<dyn Picture>) -> Result<()> {
        self.ring.submit(|slot, _| {
            *slot = Some(meta);
            Ok(())
        })
    }

    fn wait_next(&mut self, findings: &mut Findings) -> Result<Option<FrameMeta>> {
        *findings = Findings::default();
        Ok(self.ring.wait_next(|slot| Ok(slot.take()))?.flatten())
    }
}
