//! Expands luma of limited range on the device, after a frame was uploaded or copied there: kernels/range.cu.

#![expect(unsafe_code, reason = "launching a kernel: what it reads and writes are addresses without lengths")]

use super::driver::{Gpu, Kernel, Stream, arg, ptx};
use super::ncc::DeviceFrame;
use super::shared::constant;
use lockon_core::error::Result;

const PTX: &str = include_str!("../ptx/range.ptx");
const BLOCK: usize = constant(PTX, "BLOCK");
/// Bytes of a word, which one thread expands.
const WORD: usize = 4;

/// The kernel of `range.cu`.
pub(super) struct Expand {
    kernel: Kernel,
}

impl Expand {
    /// Loads it.
    pub(super) fn load(gpu: &Gpu) -> Result<Self> {
        Ok(Self { kernel: gpu.share(ptx!("range"))?.kernel("expand")? })
    }

    /// Expands a frame in place, in the order of the stream, without waiting.
    pub(super) fn run(&self, stream: &Stream, frame: &mut DeviceFrame) -> Result<()> {
        // Rows begin where textures want them, so they are whole words.
        assert!(frame.pitch.is_multiple_of(WORD), "rows of {} bytes", frame.pitch);
        let words = frame.pixels.len() / WORD;
        let (pixels, count) = (frame.pixels.address(), words as u32);
        let arguments = &mut [arg(&pixels), arg(&count)];
        // SAFETY: these are the kernel's arguments. It reads and writes the frame's first `count` words; all
        // of them lie in its buffer.
        unsafe { stream.launch(&self.kernel, [words.div_ceil(BLOCK), 1, 1], [BLOCK, 1, 1], 0, arguments) }
    }
}

#[cfg(test)]
mod tests {
    use lockon_core::colour;
    use lockon_core::frame::{Plane, Size};

    use super::*;
    use crate::driver::Priority;
    use crate::testing;

    #[test]
    fn every_value_of_luma_is_expanded_as_on_the_host() {
        let Some(gpu) = testing::gpu() else { return };
        let stream = gpu.stream(Priority::Normal).unwrap();
        let expand = Expand::load(&gpu).unwrap();
        for size in [Size::new(256, 3), Size::new(1, 1), Size::new(317, 203), Size::new(1023, 77)] {
            let plane = Plane::from_vec((0..size.area()).map(|i| (i * 7 % 256) as u8).collect(), size);
            let mut frame = testing::upload(&gpu, &stream, plane.as_ref());
            expand.run(&stream, &mut frame).unwrap();
            let mut bytes = vec![0; frame.pixels.len()];
            stream.download_now(&frame.pixels, &mut bytes).unwrap();
            for (row, wanted) in bytes.chunks_exact(frame.pitch).zip(plane.as_ref().rows()) {
                let wanted: Vec<_> = wanted.iter().map(|&luma| colour::expanded(luma)).collect();
                assert!(row[..size.width] == wanted, "{size}");
            }
        }
    }
}
