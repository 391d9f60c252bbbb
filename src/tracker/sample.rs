//! Windows of a picture, resampled to a grid of fixed size in integers: the pixels that the tracker sees.
//!
//! A sample is the mean of the picture over a box about the sample's place: as wide as a step of the grid, and at least one
//! pixel, so that shrinking averages and enlarging interpolates linearly. Places are whole 1/256 pixel, weights whole 1/256,
//! and what lies outside the picture is what lies at its border. Every machine and every device can give the same bytes.

use crate::frame::{Chroma, Frame, PlaneRef};

/// One colour component of a picture.
#[derive(Clone, Copy)]
struct Component<'a> {
    plane: PlaneRef<'a>,
    /// Samples of this component are every `step`-th byte of a row, from `first` on.
    step: usize,
    first: usize,
}

/// A window of a picture: its middle and its size, in pixels, anywhere.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Window {
    pub(super) x: f64,
    pub(super) y: f64,
    pub(super) w: f64,
    pub(super) h: f64,
}

/// A resampled window: `side` x `side` luma samples, and chroma at half of that.
#[derive(Debug, Clone)]
pub(super) struct Patch {
    pub(super) side: usize,
    pub(super) luma: Vec<u8>,
    pub(super) u: Vec<u8>,
    pub(super) v: Vec<u8>,
}

impl Patch {
    pub(super) fn new(side: usize) -> Self {
        let chroma = || vec![128; side * side / 4];
        Self { side, luma: vec![0; side * side], u: chroma(), v: chroma() }
    }
}

/// The pixels that a row or column of samples is made of.
#[derive(Default)]
struct Taps {
    /// Of each sample: the first pixel, and where its weights begin and end in `weights`.
    samples: Vec<(usize, usize, usize)>,
    /// In 1/256; those of a sample sum to 256.
    weights: Vec<u16>,
}

impl Taps {
    /// `count` samples from `start` (1/256 pixel) on, `step` (1/65536 pixel) apart, on a line of `length` pixels.
    fn plan(&mut self, start: i64, step: i64, count: usize, length: usize) {
        self.samples.clear();
        self.weights.clear();
        let width = step.max(1 << 16) >> 8;
        let last = length as i64 - 1;
        for index in 0..count as i64 {
            let middle = start + ((step * (2 * index + 1)) >> 9);
            let (from, to) = (middle - width / 2, middle - width / 2 + width);
            let (first, end) = (from.div_euclid(256), (to - 1).div_euclid(256));
            let begin = self.weights.len();
            let mut given = 0;
            for pixel in first..=end {
                let so_far = (((pixel + 1) * 256).min(to) - from) * 256 / width;
                let weight = (so_far - given) as u16;
                given = so_far;
                // Pixels beyond the border are the border's.
                if self.weights.len() == begin || (pixel > 0 && pixel <= last) {
                    self.weights.push(weight);
                } else {
                    *self.weights.last_mut().expect("pushed before") += weight;
                }
            }
            self.samples.push((first.clamp(0, last) as usize, begin, self.weights.len()));
        }
    }
}

/// Resamples windows; keeps its room.
#[derive(Default)]
pub(super) struct Sampler {
    columns: Taps,
    rows: Taps,
    sums: Vec<u16>,
}

impl Sampler {
    /// The luma of a window.
    pub(super) fn luma(&mut self, frame: &Frame, window: Window, patch: &mut Patch) {
        let luma = Component { plane: frame.luma(), step: 1, first: 0 };
        self.component(luma, window, (0, 0), patch.side, &mut patch.luma);
    }

    /// The chroma of a window. A picture without chroma leaves the patch as it is.
    pub(super) fn chroma(&mut self, frame: &Frame, window: Window, patch: &mut Patch) {
        let pixels = frame.format.pixels;
        let plane = |index, step, first| Component { plane: frame.picture.plane(index), step, first };
        let (u, v) = match pixels.chroma {
            Chroma::None => return,
            Chroma::Planar { u, v } => (plane(u, 1, 0), plane(v, 1, 0)),
            Chroma::Interleaved { u } => (plane(1, 2, u), plane(1, 2, 1 - u)),
        };
        let shift = (pixels.x_shift as u32, pixels.y_shift as u32);
        self.component(u, window, shift, patch.side / 2, &mut patch.u);
        self.component(v, window, shift, patch.side / 2, &mut patch.v);
    }

    /// `side` x `side` samples of a component that is `1 << shift` times smaller than luma.
    fn component(
        &mut self,
        component: Component<'_>,
        window: Window,
        shift: (u32, u32),
        side: usize,
        samples: &mut [u8],
    ) {
        let Self { columns, rows, sums } = self;
        let Component { plane, step, first } = component;
        // Start and step of an axis, in the component's own pixels.
        let axis = |middle: f64, length: f64, shift: u32| {
            let step = libm::round(length * 65536.0 / side as f64) as i64;
            let start = libm::round(middle * 256.0) as i64 - ((step * side as i64) >> 9);
            (start >> shift, step >> shift)
        };
        let ((x, x_step), (y, y_step)) =
            (axis(window.x, window.w, shift.0), axis(window.y, window.h, shift.1));
        columns.plan(x, x_step, side, plane.size().width / step);
        rows.plan(y, y_step, side, plane.size().height);
        let left = columns.samples.iter().map(|sample| sample.0).min().unwrap_or(0);
        let right = columns.samples.iter().map(|s| s.0 + s.2 - s.1).max().unwrap_or(0);
        let bytes = left * step..(right - 1) * step + first + 1;
        sums.resize(bytes.len(), 0);
        for (out, &(top, begin, end)) in samples.chunks_exact_mut(side).zip(&rows.samples) {
            // At most 256 * 255, which fits.
            sums.fill(0);
            for (row, &weight) in (top..).zip(&rows.weights[begin..end]) {
                let pixels = &plane.row(row.min(plane.size().height - 1))[bytes.clone()];
                for (sum, &pixel) in sums.iter_mut().zip(pixels) {
                    *sum += weight * u16::from(pixel);
                }
            }
            for (out, &(at, begin, end)) in out.iter_mut().zip(&columns.samples) {
                let from = (at - left) * step + first;
                let weighted = columns.weights[begin..end].iter().zip(sums[from..].iter().step_by(step));
                let sum: u32 = weighted.map(|(&weight, &sum)| u32::from(weight) * u32::from(sum)).sum();
                *out = ((sum + (1 << 15)) >> 16) as u8;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Instant;

    use super::*;
    use crate::frame::{Circumstances, FrameMeta, Picture, PixelFormat, Plane, Size, VideoFormat};

    struct Planes(Vec<Plane>);

    impl Picture for Planes {
        fn plane(&self, index: usize) -> PlaneRef<'_> {
            self.0[index].as_ref()
        }
    }

    fn frame(format: &str, size: Size, planes: Vec<Plane>) -> Frame {
        let pixels = PixelFormat::from_name(format).unwrap();
        let format =
            VideoFormat { size, pixels, frame_rate: (25, 1), pixel_aspect: (1, 1), colorimetry: None };
        let meta = FrameMeta { index: 0, pts_ns: None, duration_ns: None, arrived: Instant::now() };
        let circumstances = Circumstances::default();
        Frame { meta, format: Arc::new(format), picture: Arc::new(Planes(planes)), circumstances }
    }

    fn plane(size: Size, value: impl Fn(usize, usize) -> u8) -> Plane {
        Plane::from_vec((0..size.area()).map(|i| value(i % size.width, i / size.width)).collect(), size)
    }

    #[test]
    fn a_window_of_the_grids_size_is_a_copy() {
        let size = Size::new(13, 11);
        let frame = frame("GRAY8", size, vec![plane(size, |x, y| (x * 16 + y) as u8)]);
        let mut patch = Patch::new(4);
        Sampler::default().luma(&frame, Window { x: 6.0, y: 7.0, w: 4.0, h: 4.0 }, &mut patch);
        let expected: Vec<u8> = (5..9).flat_map(|y| (4..8).map(move |x| (x * 16 + y) as u8)).collect();
        assert_eq!(patch.luma, expected);
    }

    #[test]
    fn shrinking_is_the_mean_and_enlarging_is_linear() {
        let size = Size::new(16, 16);
        let frame = frame("GRAY8", size, vec![plane(size, |x, _| (x * 10) as u8)]);
        let mut patch = Patch::new(4);
        Sampler::default().luma(&frame, Window { x: 8.0, y: 8.0, w: 16.0, h: 16.0 }, &mut patch);
        assert_eq!(patch.luma[..4], [15, 55, 95, 135]);
        // Half a pixel apart, from the middle of pixel 7 on, whose value is 70.
        Sampler::default().luma(&frame, Window { x: 8.25, y: 8.0, w: 2.0, h: 2.0 }, &mut patch);
        assert_eq!(patch.luma[..4], [70, 75, 80, 85]);
    }

    #[test]
    fn outside_is_what_lies_at_the_border() {
        let size = Size::new(9, 7);
        let frame = frame("GRAY8", size, vec![plane(size, |x, y| (20 * x + y) as u8)]);
        let mut patch = Patch::new(4);
        Sampler::default().luma(&frame, Window { x: -500.0, y: 300.0, w: 40.0, h: 40.0 }, &mut patch);
        assert_eq!(patch.luma, [6; 16]);
        Sampler::default().luma(&frame, Window { x: 0.0, y: 3.5, w: 4.0, h: 1.0 }, &mut patch);
        assert_eq!(patch.luma[..4], [3, 3, 3, 23]);
        Sampler::default().luma(&frame, Window { x: 9.0, y: 3.5, w: 4.0, h: 1.0 }, &mut patch);
        assert_eq!(patch.luma[..4], [143, 163, 163, 163]);
    }

    #[test]
    fn chroma_is_the_same_however_it_lies() {
        let (size, small) = (Size::new(14, 10), Size::new(7, 5));
        let luma = plane(size, |_, _| 0);
        let (u, v) = (plane(small, |x, y| (30 * x + y) as u8), plane(small, |x, y| (200 - 20 * x - y) as u8));
        let pairs = u.data().iter().zip(v.data()).flat_map(|(&u, &v)| [u, v]).collect();
        let pairs = Plane::from_vec(pairs, Size::new(14, 5));
        let planar = frame("I420", size, vec![luma.clone(), u, v]);
        let paired = frame("NV12", size, vec![luma, pairs]);
        for window in [Window { x: 7.0, y: 5.0, w: 8.0, h: 8.0 }, Window { x: 1.3, y: 9.2, w: 21.0, h: 5.5 }]
        {
            let (mut a, mut b) = (Patch::new(8), Patch::new(8));
            Sampler::default().chroma(&planar, window, &mut a);
            Sampler::default().chroma(&paired, window, &mut b);
            assert_eq!((a.u, a.v), (b.u, b.v), "{window:?}");
        }
    }
}
