//! Helpers that the tests of the CUDA backend share.

use super::driver::{Gpu, Priority, Stream};
use super::ncc::DeviceFrame;
use crate::test_log;
use lockon_core::frame::{Plane, PlaneMut, PlaneRef, Rect, Size};
use lockon_core::template::Template;

/// Device 0; `None` where there is none, as [`test_log::gpu_or_skip`].
pub(super) fn gpu() -> Option<Gpu> {
    test_log::gpu_or_skip(Gpu::open(0))
}

/// A frame on the device, in rows whose padding is poisoned.
pub(super) fn upload(gpu: &Gpu, stream: &Stream, picture: PlaneRef<'_>) -> DeviceFrame {
    let mut frame = DeviceFrame::new(gpu, picture.size()).unwrap();
    let mut bytes = vec![0xA5; frame.pixels.len()];
    PlaneMut::new(&mut bytes, frame.size, frame.pitch).copy_from(picture);
    stream.upload_now(&bytes, &mut frame.pixels).unwrap();
    frame
}

/// Numbers that look random and are the same every time.
pub(super) struct Random(pub(super) u64);

impl Random {
    pub(super) fn next(&mut self) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize
    }

    pub(super) fn below(&mut self, end: usize) -> usize {
        self.next() % end
    }

    /// From `least` to `most`, each doubling as likely as any other.
    pub(super) fn log_uniform(&mut self, least: usize, most: usize) -> usize {
        let share = self.below(1 << 20) as f64 / f64::from(1 << 20);
        let (low, high) = ((least as f64).ln(), (most as f64 + 1.0).ln());
        ((low + share * (high - low)).exp() as usize).clamp(least, most)
    }

    pub(super) fn place(&mut self, inner: Size, outer: Size) -> Rect {
        let (x, y) = (self.below(outer.width - inner.width + 1), self.below(outer.height - inner.height + 1));
        Rect::new(x, y, inner.width, inner.height)
    }

    /// A picture of one of the kinds that break things.
    pub(super) fn picture(&mut self, size: Size) -> Plane {
        let kind = self.below(7);
        let data = (0..size.area()).map(|i| {
            let (x, y, noise) = (i % size.width, i / size.width, self.next());
            (match kind {
                // Noise; black and white; nearly saturated; flat with specks; flat halves; a ramp with noise;
                // few greys.
                0 => noise % 256,
                1 => noise % 2 * 255,
                2 => 255 - usize::from(noise.is_multiple_of(50)),
                3 => {
                    if noise.is_multiple_of(200) {
                        noise / 200 % 256
                    } else {
                        7
                    }
                }
                4 => {
                    if x < size.width / 2 {
                        255
                    } else {
                        noise % 3
                    }
                }
                5 => (x / 3 + y / 2 + noise % 9) % 256,
                _ => noise % 4 * 85,
            }) as u8
        });
        Plane::from_vec(data.collect(), size)
    }

    /// A template that is not flat: mostly cut out of `region`, sometimes changed, sometimes masked.
    pub(super) fn template(&mut self, region: PlaneRef<'_>, size: Size, name: &str) -> Template {
        let mut luma = match self.below(4) {
            0 => self.picture(size),
            _ => region.crop(self.place(size, region.size())).to_plane(),
        };
        if self.below(3) == 0 {
            for pixel in luma.data_mut() {
                *pixel = pixel.saturating_add((self.next() % 5) as u8);
            }
        }
        let density = self.below(4) + 1;
        let mask = (self.below(3) == 0).then(|| {
            let data = (0..size.area()).map(|_| if self.below(4) < density { 255 } else { 0 });
            Plane::from_vec(data.collect(), size)
        });
        if let Ok(template) = Template::new(name, luma.clone(), mask.as_ref()) {
            return template;
        }
        // It was flat, or its mask too sparse.
        let last = luma.data().len() - 1;
        luma.data_mut()[last] = luma.data()[0] ^ 0x55;
        Template::new(name, luma, None).unwrap()
    }
}

/// A kernel that ends its context.
pub(super) const TRAP: &str =
    ".version 8.1\n.target sm_75\n.address_size 64\n.visible .entry trap_now() { trap; }\n";

/// Ends the context of this process on the device, as an illegal address in a kernel does.
pub(super) fn lose(gpu: &Gpu) {
    let trap = gpu.load(TRAP).unwrap().kernel("trap_now").unwrap();
    let stream = gpu.stream(Priority::Normal).unwrap();
    stream.launch_without_arguments(&trap, 1).unwrap();
    let _ = stream.wait();
}

/// Runs an ignored test of this program in another process: one that loses the device, or measures its
/// memory. Does nothing without a GPU.
pub(super) fn in_a_process_of_its_own(test: &str) {
    if gpu().is_none() {
        return;
    }
    let child = std::process::Command::new(std::env::current_exe().unwrap())
        .args([test, "--exact", "--ignored", "--nocapture"])
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&child.stdout);
    let is_passed = child.status.success() && said.contains("1 passed");
    assert!(is_passed, "{said}{}", String::from_utf8_lossy(&child.stderr));
}
