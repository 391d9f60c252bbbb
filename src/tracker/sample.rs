//! Windows of a picture, resampled to a grid of fixed size in integers: the pixels that the tracker sees.
//!
//! A sample is the mean of the picture over a box about the sample's place: as wide as a step of the grid, and at least one
//! pixel, so that shrinking averages and enlarging interpolates linearly. Places are whole 1/256 pixel, weights whole 1/256,
//! and what lies outside the picture is what lies at its border. Every machine and every device can give the same bytes.

use super::hog::CELL;
use crate::frame::{Frame, PlaneRef, Size};
use crate::simd::Level;

/// One colour component of a picture.
#[derive(Clone, Copy)]
struct Component<'a> {
    plane: PlaneRef<'a>,
    /// Samples of this component are every `step`-th byte of a row, from `first` on.
    step: usize,
    first: usize,
}

impl Component<'_> {
    fn size(self) -> Size {
        let size = self.plane.size();
        Size::new(size.width / self.step, size.height)
    }
}

/// A window of a picture: its middle and its size, in pixels, anywhere, and its direction: by what angle, in radians, it is
/// turned from x towards y, so clockwise as it is seen.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Window {
    pub(super) x: f64,
    pub(super) y: f64,
    pub(super) w: f64,
    pub(super) h: f64,
    pub(super) angle: f64,
}

impl Window {
    /// What bounds the ellipse in it, as `[x, y, w, h]` from its left and top. The corners of a box are seldom its target's.
    pub(super) fn bounds(self) -> [f64; 4] {
        let (w, h) = self.extent();
        [self.x - w / 2.0, self.y - h / 2.0, w, h]
    }

    /// Width and height of the ellipse in it.
    fn extent(self) -> (f64, f64) {
        let (sin, cos) = (libm::sin(self.angle), libm::cos(self.angle));
        let length = |a: f64, b: f64| (a * a + b * b).sqrt();
        (length(cos * self.w, sin * self.h), length(sin * self.w, cos * self.h))
    }

    /// Makes of displacements along its own axes such along the picture's.
    pub(super) fn turning(self) -> impl Fn(f64, f64) -> (f64, f64) {
        let (sin, cos) = (libm::sin(self.angle), libm::cos(self.angle));
        move |x, y| (cos * x - sin * y, sin * x + cos * y)
    }

    /// A displacement along the picture's axes, along its own.
    pub(super) fn own(self, (x, y): (f64, f64)) -> (f64, f64) {
        Self { angle: -self.angle, ..self }.turning()(x, y)
    }
}

/// A resampled window: `side` x `side` luma samples, and chroma at half of that.
///
/// In a row of luma stand first the samples whose place is a multiple of [`CELL`], then their right neighbours, and so on, so
/// that the cells of a row can be worked on together.
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

    /// Makes it grey.
    pub(super) fn clear_chroma(&mut self) {
        self.u.fill(128);
        self.v.fill(128);
    }
}

/// The pixels that a row or column of samples is made of.
#[derive(Default)]
struct Taps {
    /// The first pixel of each sample.
    first: Vec<usize>,
    /// Weights of a sample's pixels, one sample after the other, in 1/256; those of a sample sum to 256.
    weights: Vec<u16>,
    /// Weights of a sample; those that it does not need are 0.
    count: usize,
}

impl Taps {
    /// `count` samples from `start` (1/256 pixel) on, `step` (1/65536 pixel) apart, on a line of `length` pixels: first those
    /// whose index is a multiple of `groups`, then those after them, and so on.
    fn plan(&mut self, start: i64, step: i64, (count, groups): (usize, usize), length: usize) {
        let width = step.max(1 << 16) >> 8;
        let last = length as i64 - 1;
        // As many as a box of this width can touch, and even.
        self.count = (((width + 510) / 256) as usize).next_multiple_of(2);
        self.first.clear();
        self.weights.clear();
        self.weights.resize(count * self.count, 0);
        let indices = (0..groups).flat_map(|group| (group..count).step_by(groups));
        for (index, weights) in indices.zip(self.weights.chunks_exact_mut(self.count)) {
            let middle = start + ((step * (2 * index as i64 + 1)) >> 9);
            let (from, to) = (middle - width / 2, middle - width / 2 + width);
            let (first, end) = (from.div_euclid(256), (to - 1).div_euclid(256));
            let (mut given, mut at) = (0, 0);
            for pixel in first..=end {
                // Fits: a frame is at most 32768 pixels wide, and so is what a sample covers.
                let so_far = ((((pixel + 1) * 256).min(to) - from) as u64 * 256 / width as u64) as u32;
                // Pixels beyond the border are the border's.
                at += usize::from(pixel > first && pixel > 0 && pixel <= last);
                weights[at] += (so_far - given) as u16;
                given = so_far;
            }
            self.first.push(first.clamp(0, last) as usize);
        }
    }
}

/// Resamples windows; keeps its room.
pub(super) struct Sampler {
    level: Level,
    columns: Taps,
    rows: Taps,
    groups: usize,
    sums: Vec<u16>,
    /// What a turned window is sampled from: the upright one about it.
    upright: Vec<u8>,
}

impl Sampler {
    pub(super) fn new() -> Self {
        let (columns, rows) = (Taps::default(), Taps::default());
        Self { level: Level::best(), columns, rows, groups: 1, sums: Vec::new(), upright: Vec::new() }
    }

    /// The luma of a window.
    pub(super) fn luma(&mut self, frame: &Frame, window: Window, patch: &mut Patch) {
        self.square(frame, window, patch.side, 0, &mut patch.luma);
    }

    /// The luma of a window as the `index`-th of some squares of `side` samples that stand beside each other in `luma`.
    pub(super) fn square(
        &mut self,
        frame: &Frame,
        window: Window,
        side: usize,
        index: usize,
        luma: &mut [u8],
    ) {
        let component = Component { plane: frame.luma(), step: 1, first: 0 };
        if window.angle == 0.0 {
            self.plan(window, (0, 0), (side, CELL), frame.luma().size());
            self.component(&[component], index, [luma]);
        } else {
            self.turned(component, window, (0, 0), (side, CELL), index, luma);
        }
    }

    /// The samples of a component in a turned window, as the `index`-th square of `samples`: first of the upright window about
    /// it, as far apart as its own are along the picture's axes, then linearly between those.
    fn turned(
        &mut self,
        component: Component<'_>,
        window: Window,
        shift: (u32, u32),
        (side, groups): (usize, usize),
        index: usize,
        samples: &mut [u8],
    ) {
        let n = side as f64;
        let (width, height) = window.extent();
        let (x_step, y_step) = (width / n, height / n);
        let (sin, cos) = (libm::sin(window.angle), libm::cos(window.angle));
        let across = (window.w * cos.abs() + window.h * sin.abs()) / x_step;
        let down = (window.w * sin.abs() + window.h * cos.abs()) / y_step;
        // Between the corners, with one to spare on each side: at most 1.5 times as many as its own.
        let count = libm::ceil(across.max(down) + 2.0) as usize;
        let about = Window { w: x_step * count as f64, h: y_step * count as f64, angle: 0.0, ..window };
        self.plan(about, shift, (count, 1), component.size());
        let mut upright = std::mem::take(&mut self.upright);
        upright.resize(count * count, 0);
        self.component(&[component], 0, [&mut upright]);
        // From one sample to the next, and from one row to the next, in 1/65536 of an upright sample.
        let fixed = |v: f64| libm::round(v * 65536.0) as i32;
        let right = (fixed(cos * window.w / n / x_step), fixed(sin * window.w / n / y_step));
        let below = (fixed(-sin * window.h / n / x_step), fixed(cos * window.h / n / y_step));
        let middle = (count as i32 - 1) << 15;
        let (width, length) = (samples.len() / side, side / groups);
        let from_middle = |index: usize| 2 * index as i32 + 1 - side as i32;
        for (y, row) in samples.chunks_exact_mut(width).enumerate() {
            for (group, row) in row.chunks_exact_mut(width / groups).enumerate() {
                let (x, y) = (from_middle(group), from_middle(y));
                let mut u = middle + ((x * right.0 + y * below.0) >> 1);
                let mut v = middle + ((x * right.1 + y * below.1) >> 1);
                for sample in &mut row[index * length..][..length] {
                    let at = (v >> 16) as usize * count + (u >> 16) as usize;
                    let mix = |a: u32, b: u32, share: u32| (256 - share) * a + share * b;
                    let across = |row: &[u8]| mix(row[0].into(), row[1].into(), (u >> 8 & 255) as u32);
                    let (above, under) = (across(&upright[at..at + 2]), across(&upright[at + count..][..2]));
                    *sample = ((mix(above, under, (v >> 8 & 255) as u32) + (1 << 15)) >> 16) as u8;
                    (u, v) = (u + right.0 * groups as i32, v + right.1 * groups as i32);
                }
            }
        }
        self.upright = upright;
    }

    /// The chroma of a window; none of a picture without.
    pub(super) fn chroma(&mut self, frame: &Frame, window: Window, patch: &mut Patch) {
        let pixels = frame.format.pixels;
        let component = |component| {
            let (index, first, step) = pixels.chroma_samples(component)?;
            Some(Component { plane: frame.picture.plane(index), step, first })
        };
        let (Some(u), Some(v)) = (component(0), component(1)) else {
            patch.clear_chroma();
            return;
        };
        let shift = (pixels.x_shift as u32, pixels.y_shift as u32);
        let side = patch.side / 2;
        if window.angle != 0.0 {
            self.turned(u, window, shift, (side, 1), 0, &mut patch.u);
            self.turned(v, window, shift, (side, 1), 0, &mut patch.v);
            return;
        }
        self.plan(window, shift, (side, 1), u.size());
        if u.step == 1 {
            self.component(&[u], 0, [&mut patch.u]);
            self.component(&[v], 0, [&mut patch.v]);
        } else {
            self.component(&[u, v], 0, [&mut patch.u, &mut patch.v]);
        }
    }

    /// Plans `side` samples in as many rows, in so many groups, of a component of `size` that is `1 << shift` times smaller than
    /// luma.
    fn plan(&mut self, window: Window, shift: (u32, u32), (side, groups): (usize, usize), size: Size) {
        // Start and step of an axis, in the component's own pixels.
        let axis = |middle: f64, length: f64, shift: u32| {
            let step = libm::round(length * 65536.0 / side as f64) as i64;
            let start = libm::round(middle * 256.0) as i64 - ((step * side as i64) >> 9);
            (start >> shift, step >> shift)
        };
        let ((x, x_step), (y, y_step)) =
            (axis(window.x, window.w, shift.0), axis(window.y, window.h, shift.1));
        self.columns.plan(x, x_step, (side, groups), size.width);
        self.rows.plan(y, y_step, (side, 1), size.height);
        self.groups = groups;
    }

    /// The planned samples of components that share a plane, as the `index`-th square of `samples`.
    fn component<const N: usize>(
        &mut self,
        components: &[Component<'_>; N],
        index: usize,
        mut samples: [&mut [u8]; N],
    ) {
        let Self { level, columns, rows, groups, sums, .. } = self;
        let Component { plane, step, .. } = components[0];
        let left = columns.first.iter().copied().min().unwrap_or(0);
        let end = columns.first.iter().copied().max().unwrap_or(0) + columns.count;
        // What lies beyond the border has no weight, but is asked for.
        let bytes = left * step..(end * step).min(plane.size().width);
        sums.clear();
        sums.resize((end - left) * step, 0);
        let (side, last) = (rows.first.len(), plane.size().height - 1);
        // Of a row of all squares, and of a group of this one.
        let (width, length) = (samples[0].len() / side, side / *groups);
        level.run(
            #[inline(always)]
            || {
                let heights = rows.weights.chunks_exact(rows.count);
                for (y, (&top, weights)) in rows.first.iter().zip(heights).enumerate() {
                    let row = |k: usize| &plane.row((top + k).min(last))[bytes.clone()];
                    add_rows(&mut sums[..bytes.len()], weights, row);
                    for (component, samples) in components.iter().zip(&mut samples) {
                        let out = &mut samples[y * width..][..width];
                        for group in 0..*groups {
                            let out = &mut out[group * width / *groups + index * length..][..length];
                            let first = &columns.first[group * length..][..length];
                            let weights = &columns.weights[group * length * columns.count..];
                            let sums = &sums[component.first..];
                            match (columns.count, step) {
                                (2, 1) => add_columns::<2>(sums, 1, left, first, weights, out),
                                (4, 1) => add_columns::<4>(sums, 1, left, first, weights, out),
                                (6, 1) => add_columns::<6>(sums, 1, left, first, weights, out),
                                (8, 1) => add_columns::<8>(sums, 1, left, first, weights, out),
                                (2, 2) => add_columns::<2>(sums, 2, left, first, weights, out),
                                (4, 2) => add_columns::<4>(sums, 2, left, first, weights, out),
                                (count, step) => {
                                    add_many_columns(sums, step, left, first, weights, count, out);
                                }
                            }
                        }
                    }
                }
            },
        );
    }
}

/// The sum of rows of pixels, each times its weight: at most 256 * 255, which fits.
#[inline(always)]
fn add_rows<'a>(sums: &mut [u16], weights: &[u16], row: impl Fn(usize) -> &'a [u8]) {
    for (k, &weight) in weights.iter().enumerate() {
        if k == 0 {
            for (sum, &pixel) in sums.iter_mut().zip(row(k)) {
                *sum = weight * u16::from(pixel);
            }
        } else if weight > 0 {
            for (sum, &pixel) in sums.iter_mut().zip(row(k)) {
                *sum += weight * u16::from(pixel);
            }
        }
    }
}

/// The samples of a row out of the sums of its columns, of which every `step`-th counts.
#[inline(always)]
fn add_columns<const COUNT: usize>(
    sums: &[u16],
    step: usize,
    left: usize,
    first: &[usize],
    weights: &[u16],
    out: &mut [u8],
) {
    let (weights, _) = weights.as_chunks::<COUNT>();
    for ((out, &first), weights) in out.iter_mut().zip(first).zip(weights) {
        let sums = &sums[(first - left) * step..][..=(COUNT - 1) * step];
        let mut sum = 1 << 15;
        for k in 0..COUNT {
            sum += u32::from(weights[k]) * u32::from(sums[k * step]);
        }
        *out = (sum >> 16) as u8;
    }
}

/// The same for any number of pixels to a sample.
#[inline(always)]
fn add_many_columns(
    sums: &[u16],
    step: usize,
    left: usize,
    first: &[usize],
    weights: &[u16],
    count: usize,
    out: &mut [u8],
) {
    for ((out, &first), weights) in out.iter_mut().zip(first).zip(weights.chunks_exact(count)) {
        let sums = sums[(first - left) * step..].iter().step_by(step);
        let sum: u32 =
            weights.iter().zip(sums).map(|(&weight, &sum)| u32::from(weight) * u32::from(sum)).sum();
        *out = ((sum + (1 << 15)) >> 16) as u8;
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
    fn a_turned_window_sees_what_is_turned() {
        // A plane of grey: a sample is its value in the sample's middle, wherever the window points.
        let size = Size::new(90, 80);
        let value = |x: f64, y: f64| 20.0 + 1.5 * x + 0.7 * y;
        let pixels = (0..size.area())
            .map(|i| value((i % size.width) as f64 + 0.5, (i / size.width) as f64 + 0.5).round() as u8);
        let frame = frame("GRAY8", size, vec![Plane::from_vec(pixels.collect(), size)]);
        let mut sampler = Sampler::new();
        for degrees in [1.0, 33.0, 90.0, -135.0, 180.0] {
            let window = Window { x: 45.3, y: 40.8, w: 36.0, h: 20.0, angle: f64::to_radians(degrees) };
            let (side, index) = (16, 1);
            // Two squares beside each other, of which the second is sampled.
            let mut luma = vec![7; 2 * side * side];
            sampler.square(&frame, window, side, index, &mut luma);
            for y in 0..side {
                for x in 0..side {
                    let along = |i: usize, length: f64| ((i as f64 + 0.5) / side as f64 - 0.5) * length;
                    let (dx, dy) = window.turning()(along(x, window.w), along(y, window.h));
                    let expected = value(window.x + dx, window.y + dy);
                    let group = &luma[y * 2 * side..][x % CELL * 2 * side / CELL..][..2 * side / CELL];
                    assert!(group[..side / CELL].iter().all(|&other| other == 7));
                    let sample = f64::from(group[side / CELL + x / CELL]);
                    assert!((sample - expected).abs() <= 1.5, "{degrees}: {x}, {y}: {sample}, {expected}");
                }
            }
        }
    }

    #[test]
    fn a_picture_without_chroma_leaves_none_of_the_one_before() {
        let size = Size::new(20, 20);
        let frame = frame("GRAY8", size, vec![plane(size, |x, y| (x + y) as u8)]);
        let mut patch = Patch::new(16);
        patch.u.fill(7);
        patch.v.fill(200);
        let window = Window { x: 10.0, y: 10.0, w: 16.0, h: 16.0, angle: 0.0 };
        Sampler::new().chroma(&frame, window, &mut patch);
        assert!(patch.u.iter().chain(&patch.v).all(|&sample| sample == 128));
    }

    #[test]
    fn a_window_of_the_grids_size_is_a_copy() {
        let size = Size::new(13, 11);
        let frame = frame("GRAY8", size, vec![plane(size, |x, y| (x * 16 + y) as u8)]);
        let mut patch = Patch::new(4);
        Sampler::new().luma(&frame, Window { x: 6.0, y: 7.0, w: 4.0, h: 4.0, angle: 0.0 }, &mut patch);
        let expected: Vec<u8> = (5..9).flat_map(|y| (4..8).map(move |x| (x * 16 + y) as u8)).collect();
        assert_eq!(patch.luma, expected);
    }

    #[test]
    fn shrinking_is_the_mean_and_enlarging_is_linear() {
        let size = Size::new(16, 16);
        let frame = frame("GRAY8", size, vec![plane(size, |x, _| (x * 10) as u8)]);
        let mut patch = Patch::new(4);
        Sampler::new().luma(&frame, Window { x: 8.0, y: 8.0, w: 16.0, h: 16.0, angle: 0.0 }, &mut patch);
        assert_eq!(patch.luma[..4], [15, 55, 95, 135]);
        // Half a pixel apart, from the middle of pixel 7 on, whose value is 70.
        Sampler::new().luma(&frame, Window { x: 8.25, y: 8.0, w: 2.0, h: 2.0, angle: 0.0 }, &mut patch);
        assert_eq!(patch.luma[..4], [70, 75, 80, 85]);
    }

    #[test]
    fn outside_is_what_lies_at_the_border() {
        let size = Size::new(9, 7);
        let frame = frame("GRAY8", size, vec![plane(size, |x, y| (20 * x + y) as u8)]);
        let mut patch = Patch::new(4);
        Sampler::new().luma(&frame, Window { x: -500.0, y: 300.0, w: 40.0, h: 40.0, angle: 0.0 }, &mut patch);
        assert_eq!(patch.luma, [6; 16]);
        Sampler::new().luma(&frame, Window { x: 0.0, y: 3.5, w: 4.0, h: 1.0, angle: 0.0 }, &mut patch);
        assert_eq!(patch.luma[..4], [3, 3, 3, 23]);
        Sampler::new().luma(&frame, Window { x: 9.0, y: 3.5, w: 4.0, h: 1.0, angle: 0.0 }, &mut patch);
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
        for window in [
            Window { x: 7.0, y: 5.0, w: 8.0, h: 8.0, angle: 0.0 },
            Window { x: 1.3, y: 9.2, w: 21.0, h: 5.5, angle: 0.0 },
            Window { x: 1.3, y: 9.2, w: 21.0, h: 5.5, angle: 0.7 },
        ] {
            let (mut a, mut b) = (Patch::new(8), Patch::new(8));
            Sampler::new().chroma(&planar, window, &mut a);
            Sampler::new().chroma(&paired, window, &mut b);
            assert_eq!((a.u, a.v), (b.u, b.v), "{window:?}");
        }
    }
}
