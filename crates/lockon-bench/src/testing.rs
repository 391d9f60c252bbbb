//! What tests share.

use lockon_cuda::driver::Gpu;

use crate::test_log;

/// Device 0, or `None` where there is none: a test then has nothing to do, and reports that.
///
/// With `LOCKON_REQUIRE_GPU=1` in the environment its absence is a failure.
pub(super) fn gpu() -> Option<Gpu> {
    match Gpu::open(0) {
        Ok(gpu) => Some(gpu),
        Err(error) if std::env::var("LOCKON_REQUIRE_GPU").is_ok_and(|value| value == "1") => {
            panic!("no GPU: {error}")
        }
        Err(error) => {
            test_log::skipped(&format!("no GPU: {error}"));
            None
        }
    }
}
