//! What the tests of the CUDA backend share.

use super::driver::{Gpu, Stream};
use super::ncc::DeviceFrame;
use crate::frame::{PlaneMut, PlaneRef};

/// Device 0, or nothing where there is none: a test then has nothing to do, and says so.
///
/// With `LOCKON_REQUIRE_GPU=1` in the environment its absence is a failure.
pub(super) fn gpu() -> Option<Gpu> {
    match Gpu::open(0) {
        Ok(gpu) => Some(gpu),
        Err(error) if std::env::var("LOCKON_REQUIRE_GPU").is_ok_and(|value| value == "1") => {
            panic!("no GPU: {error}")
        }
        Err(error) => {
            eprintln!("skipped: no GPU: {error}");
            None
        }
    }
}

/// A frame on the device, in rows whose padding is poisoned.
pub(super) fn upload(gpu: &Gpu, stream: &Stream, picture: PlaneRef<'_>) -> DeviceFrame {
    let mut frame = DeviceFrame::new(gpu, picture.size()).unwrap();
    let mut bytes = vec![0xA5; frame.pixels.len()];
    PlaneMut::new(&mut bytes, frame.size, frame.pitch).copy_from(picture);
    stream.upload_now(&bytes, &mut frame.pixels).unwrap();
    frame
}
