//! Replaces the GPU benchmarks in a build without the feature `cuda`.

use anyhow::Result;

use lockon_core::Error;
use lockon_core::error::DeviceFault;

use super::plan::Work;

/// Libraries to be timed beside our kernels: none in this build.
pub(super) struct Peers;

impl Peers {
    pub(super) fn load() -> Self {
        Self
    }
}

fn not_built() -> Error {
    Error::Backend { backend: "cuda", fault: DeviceFault::NotBuilt }
}

/// No GPU.
///
/// # Errors
/// `Backend`, always.
pub(super) fn first() -> lockon_core::Result<usize> {
    Err(not_built())
}

/// Measures nothing.
///
/// # Errors
/// `Backend`, always.
pub(super) fn measure(_: &mut Work, _: usize) -> Result<(String, Option<String>, &'static str)> {
    Err(not_built().into())
}
