//! A picture scaled and turned by the texture unit.

#![expect(
    unsafe_code,
    reason = "the driver's interface is C: descriptions without types, handles without owners"
)]

use lockon_core::error::Result;
use lockon_core::frame::Size;
use lockon_core::template::{resampled_size, sin_cos_degrees};
use lockon_cuda::driver::{DeviceBuffer, Gpu, Kernel, Stream, arg};

use super::sampling::{Coordinates, Element, Filter, Memory};
use super::view::View;
use super::{PTX, refused};

/// The kernel `resample`: a picture scaled and turned about its centre by linear fetches.
///
/// Nothing that is reported depends on it. Members of a bank are resampled by [`lockon_core::template`], in
/// whole numbers, so that every backend searches for the same pixels; how the texture unit rounds what it
/// blends is not documented.
pub(crate) struct Resample {
    kernel: Kernel,
}

impl Resample {
    pub(crate) fn load(gpu: &Gpu) -> Result<Self> {
        Ok(Self { kernel: gpu.load(PTX)?.kernel("resample")? })
    }

    /// Writes the texture's picture scaled by `scale` and turned counter-clockwise by `angle` degrees to the
    /// start of `out`, row after row, without waiting: `out` and the texture must be kept until it is done.
    /// Returns the picture's size, which is that of the smallest box around it.
    ///
    /// Points outside the texture get the value that its addressing defines. One fetch a pixel: at less than
    /// half the size pixels are passed over, unlike on the host.
    ///
    /// # Errors
    /// `Other` if the texture is not of u8 in one channel and two dimensions, with a linear filter and
    /// normalised-float reads.
    ///
    /// # Panics
    /// If `out` is too small, or the scale is not positive.
    pub(crate) fn run(
        &self,
        stream: &Stream,
        texture: &View,
        scale: f64,
        angle: f64,
        out: &mut DeviceBuffer<u8>,
    ) -> Result<Size> {
        let View { memory, element, channels, sampling, .. } = *texture;
        if !matches!(memory, Memory::Rows | Memory::Array2) || (element, channels) != (Element::U8, 1) {
            return Err(refused("resampling reads pictures of one channel of u8"));
        }
        if sampling.filter != Filter::Linear {
            return Err(refused("resampling needs a linear filter"));
        }
        assert!(scale > 0.0, "a scale of {scale}");
        let [w, h, _] = texture.size;
        let turned = resampled_size(Size::new(w, h), scale, angle);
        assert!(turned.area() <= out.len(), "{turned} pixels into {}", out.len());
        let (sin, cos) = sin_cos_degrees(angle);
        let (sin, cos) = ((sin / scale) as f32, (cos / scale) as f32);
        let (unit_x, unit_y) = match sampling.coordinates {
            Coordinates::Pixels => (1.0, 1.0),
            Coordinates::Normalised => (w as f32, h as f32),
        };
        let (handle, to) = (texture.handle(), out.address());
        let [w, h, out_w, out_h] = [w, h, turned.width, turned.height].map(|n| n as i32);
        let block = [32, 8, 1];
        let grid = [turned.width.div_ceil(block[0]), turned.height.div_ceil(block[1]), 1];
        let args = &mut [
            arg(&handle),
            arg(&w),
            arg(&h),
            arg::<f32>(&unit_x),
            arg::<f32>(&unit_y),
            arg(&cos),
            arg(&sin),
            arg(&to),
            arg(&out_w),
            arg(&out_h),
        ];
        // SAFETY: the arguments are those of `resample` in kernels/texture.cu, of their types and in their
        // order. It writes the `turned.area()` bytes that `out` was asserted to have; the texture's memory
        // lives, as the caller that made the texture promised (`View::over_rows`) or the texture itself
        // ensures.
        unsafe { stream.launch(&self.kernel, grid, block, 0, args) }?;
        Ok(turned)
    }
}

#[cfg(test)]
mod tests {
    use super::super::Array;
    use super::super::fetch::OnDevice;
    use super::super::model::{Model, noise};
    use super::super::sampling::{Address, Read, Sampling};
    use super::*;
    use crate::testing;
    use lockon_core::frame::Plane;
    use lockon_core::template::Template;
    use lockon_cuda::driver::Priority;
    use lockon_cuda::parts::Frame;
    use std::sync::Arc;

    /// A picture of 37x23 in which neighbours differ by much.
    fn picture() -> Plane {
        let mut next = noise(3);
        let size = Size::new(37, 23);
        Plane::from_vec((0..size.area()).map(|_| next() as u8).collect(), size)
    }

    const LINEAR: Sampling = Sampling {
        filter: Filter::Linear,
        address: Address::Clamp,
        coordinates: Coordinates::Pixels,
        read: Read::NormalisedFloat,
    };

    fn resampled(gpu: &Gpu, memory: Memory, sampling: Sampling, scale: f64, angle: f64) -> Plane {
        let picture = picture();
        let stream = gpu.stream(Priority::Normal).unwrap();
        let size = [picture.size().width, picture.size().height, 1];
        let device = OnDevice::new(&stream, memory, size, picture.data(), sampling).unwrap();
        let turned = resampled_size(picture.size(), scale, angle);
        let mut buffer = gpu.alloc::<u8>("resampled", turned.area()).unwrap();
        let resample = Resample::load(gpu).unwrap();
        assert_eq!(resample.run(&stream, &device.texture, scale, angle, &mut buffer).unwrap(), turned);
        let mut out = vec![0; turned.area()];
        stream.download_now(&buffer, &mut out).unwrap();
        Plane::from_vec(out, turned)
    }

    /// Returns the result of the kernel's formula with the model for a texture. The kernel is compiled
    /// without fused multiply-adds, so that the coordinates are the same.
    fn resampled_by_model(sampling: Sampling, scale: f64, angle: f64) -> Plane {
        let picture = picture();
        let Size { width: w, height: h } = picture.size();
        let model = Model::new(Memory::Array2, [w, h, 1], picture.data(), sampling);
        let turned = resampled_size(picture.size(), scale, angle);
        let (sin, cos) = sin_cos_degrees(angle);
        let (sin, cos) = ((sin / scale) as f32, (cos / scale) as f32);
        let (w, h) = (w as f32, h as f32);
        let units = if sampling.coordinates == Coordinates::Pixels { [1.0, 1.0] } else { [w, h] };
        let pixels = (0..turned.area()).map(|index| {
            let (i, j) = ((index % turned.width) as f32, (index / turned.width) as f32);
            let u = 0.5 * (2.0 * i + 1.0 - turned.width as f32);
            let v = 0.5 * (2.0 * j + 1.0 - turned.height as f32);
            let x = cos * u - sin * v + 0.5 * w;
            let y = sin * u + cos * v + 0.5 * h;
            (model.fetch([x / units[0], y / units[1], 0.0])[0] * 255.0 + 0.5).floor() as u8
        });
        Plane::from_vec(pixels.collect(), turned)
    }

    fn largest_difference(a: &Plane, b: &Plane) -> u8 {
        assert_eq!(a.size(), b.size());
        a.data().iter().zip(b.data()).map(|(a, b)| a.abs_diff(*b)).max().unwrap_or(0)
    }

    #[test]
    fn resampling_moves_pixels_by_quarter_turns_without_mixing_them() {
        let source = picture();
        let Size { width: w, height: h } = source.size();
        // Where pixel (i, j) of the turned picture comes from: cos * u - sin * v and sin * u + cos * v, in
        // pixels.
        let from = |angle: f64, i, j| match angle {
            0.0 => (i, j),
            90.0 => (w - 1 - j, i),
            180.0 => (w - 1 - i, h - 1 - j),
            _ => (j, h - 1 - i),
        };
        let gpu = testing::gpu();
        for angle in [0.0, 90.0, 180.0, 270.0] {
            let check = |turned: &Plane| {
                for (index, pixel) in turned.data().iter().enumerate() {
                    let (x, y) = from(angle, index % turned.size().width, index / turned.size().width);
                    assert_eq!(*pixel, source.data()[y * w + x], "pixel {index} at {angle} degrees");
                }
            };
            check(&resampled_by_model(LINEAR, 1.0, angle));
            if let Some(gpu) = &gpu {
                check(&resampled(gpu, Memory::Array2, LINEAR, 1.0, angle));
                check(&resampled(gpu, Memory::Rows, LINEAR, 1.0, angle));
            }
        }
    }

    #[test]
    fn a_whole_turn_changes_nothing() {
        let Some(gpu) = testing::gpu() else { return };
        let stream = gpu.stream(Priority::Normal).unwrap();
        let mut next = noise(6);
        for size in [Size::new(1, 1), Size::new(33, 9), Size::new(70, 41)] {
            let picture = Plane::from_vec((0..size.area()).map(|_| next() as u8).collect(), size);
            let frame = Frame::upload(&stream, picture.as_ref()).unwrap();
            // SAFETY: the frame lives to the end of the round.
            let view = unsafe { View::over_rows::<u8, _>(&gpu, frame.pixels(), frame.pitch(), size, LINEAR) };
            let mut out = gpu.alloc::<u8>("a picture", size.area()).unwrap();
            let resample = Resample::load(&gpu).unwrap();
            assert_eq!(resample.run(&stream, &view.unwrap(), 1.0, 360.0, &mut out).unwrap(), size);
            let mut found = Plane::new(size);
            stream.download_now(&out, found.data_mut()).unwrap();
            assert_eq!(found, picture);
        }
    }

    #[test]
    fn resampling_is_what_the_model_gives() {
        let Some(gpu) = testing::gpu() else { return };
        let addresses = [
            (Address::Clamp, Coordinates::Pixels),
            (Address::Border, Coordinates::Pixels),
            (Address::Clamp, Coordinates::Normalised),
            (Address::Border, Coordinates::Normalised),
            (Address::Wrap, Coordinates::Normalised),
            (Address::Mirror, Coordinates::Normalised),
        ];
        for (address, coordinates) in addresses {
            let sampling = Sampling { address, coordinates, ..LINEAR };
            for (scale, angle) in [(0.5, 0.0), (2.0, 0.0), (1.0, 30.0), (0.75, -30.0), (1.5, 135.0)] {
                let model = resampled_by_model(sampling, scale, angle);
                // At halves and doubles the weights are exact in pixel coordinates: what is left is how
                // halves are rounded. Else each of two axes may take the next weight, a 256th of at most 255
                // off, and the sum is rounded.
                let is_exact = angle == 0.0 && coordinates == Coordinates::Pixels;
                let allowed = if is_exact { 1 } else { 3 };
                for memory in [Memory::Array2, Memory::Rows] {
                    let found = resampled(&gpu, memory, sampling, scale, angle);
                    let off = largest_difference(&found, &model);
                    assert!(
                        off <= allowed,
                        "{memory:?}, {sampling:?}, scale {scale}, angle {angle}: {off} off"
                    );
                }
            }
        }
    }

    /// The formula is that of the host, which resamples in whole numbers, with weights cut to 8 bits instead
    /// of rounded.
    #[test]
    fn resampling_is_near_to_that_of_the_host_where_pixels_count() {
        let gpu = testing::gpu();
        for (scale, angle) in [(1.0, 0.0), (2.0, 0.0), (1.0, 90.0), (1.0, 30.0), (1.5, -135.0)] {
            let host = Template::new("picture", picture(), None).unwrap().resampled(scale, angle).unwrap();
            let near = |found: &Plane| {
                assert_eq!(found.size(), host.size());
                for (index, (found, wanted)) in found.data().iter().zip(host.luma().data()).enumerate() {
                    let counts = host.mask().is_none_or(|mask| mask.data()[index] == 1);
                    // As in `resampling_is_what_the_model_gives`.
                    let is_near = found.abs_diff(*wanted) <= 3;
                    assert!(
                        !counts || is_near,
                        "pixel {index}: {found}, and {wanted} on the host ({scale}, {angle})"
                    );
                }
            };
            near(&resampled_by_model(LINEAR, scale, angle));
            if let Some(gpu) = &gpu {
                near(&resampled(gpu, Memory::Array2, LINEAR, scale, angle));
            }
        }
    }

    #[test]
    fn resampling_refuses_what_it_cannot_read() {
        let Some(gpu) = testing::gpu() else { return };
        let stream = gpu.stream(Priority::Normal).unwrap();
        let resample = Resample::load(&gpu).unwrap();
        let mut out = gpu.alloc::<u8>("resampled", 64).unwrap();
        let mut said = |texture: &View| {
            let refusal = resample.run(&stream, texture, 1.0, 0.0, &mut out);
            refusal.expect_err("a refusal").to_string()
        };
        let array = Arc::new(Array::<u8>::new_2d(&gpu, Size::new(3, 3)).unwrap());
        let point = View::over_array(&array, Sampling { filter: Filter::Point, ..LINEAR }).unwrap();
        assert_eq!(said(&point), "cuda: texture: resampling needs a linear filter");
        let array = Arc::new(Array::<u16>::new_2d(&gpu, Size::new(3, 3)).unwrap());
        let wide = View::over_array(&array, LINEAR).unwrap();
        assert_eq!(said(&wide), "cuda: texture: resampling reads pictures of one channel of u8");
    }
}
