//! Helpers of tests.

use lockon_cuda::driver::Gpu;

use crate::test_log;

/// Device 0; `None` where there is none, as [`test_log::gpu_or_skip`].
pub(super) fn gpu() -> Option<Gpu> {
    test_log::gpu_or_skip(Gpu::open(0))
}
