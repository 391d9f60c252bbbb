//! Windows of a picture, resampled to a grid of fixed size in integers: the pixels that the tracker sees.
//!
//! A sample is the mean of the picture over a box about the sample's place: as wide as a step of the grid,
//! and at least one pixel, so that shrinking averages and enlarging interpolates linearly. Places are whole
//! 1/256 pixel, weights whole 1/256, and pixels outside the picture repeat its border. Every machine and
//! every device can give the same bytes.

use std::ops::Range;

use super::hog::CELL;
use crate::frame::{Frame, Picture, PixelFormat, Size};
use crate::simd::Level;
use crate::surface::{Grid, Surface, Turn};

mod blocks;

pub(super) use blocks::turn;
use blocks::{Block, RUN, Sums};

/// A colour component of a picture.
#[derive(Clone, Copy)]
struct Component<'a> {
    picture: &'a dyn Picture,
    /// The index of its plane, and the size of that: bytes of a row, and rows.
    plane: usize,
    bytes: Size,
    /// Samples of this component are every `step`-th byte of a row, from `first` on.
    step: usize,
    first: usize,
}

impl<'a> Component<'a> {
    fn new(frame: &'a Frame, (plane, first, step): (usize, usize, usize)) -> Self {
        let bytes = frame.format.pixels.plane_size(plane, frame.format.size);
        Self { picture: &*frame.picture, plane, bytes, step, first }
    }

    fn size(self) -> Size {
        Size::new(self.bytes.width / self.step, self.bytes.height)
    }
}

/// A window of a picture: its middle and its size, in pixels, anywhere, and its direction: by what angle, in
/// radians, it is turned from x towards y, so clockwise as it is seen.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Window {
    pub(super) x: f64,
    pub(super) y: f64,
    pub(super) w: f64,
    pub(super) h: f64,
    pub(super) angle: f64,
}

impl Window {
    /// Bounds of the ellipse in the window, as `[x, y, w, h]` from its left and top. The corners of a box are
    /// seldom its target's.
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
/// In a row of luma stand first the samples whose place is a multiple of [`CELL`], then their right
/// neighbours, and so on, so that the cells of a row can be worked on together.
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

/// The samples of a line of pixels.
#[derive(Clone, Copy, PartialEq)]
struct Axis {
    /// The start, in 1/256 pixel.
    start: i64,
    /// From one to the next, in 1/65536 pixel.
    step: i64,
    /// The number of samples.
    count: usize,
    /// First come those whose index is a multiple of this, then those after them, and so on.
    groups: usize,
    /// Pixels of the line.
    length: usize,
}

/// The pixels that a row or column of samples is made of.
struct Taps {
    axis: Axis,
    /// The first pixel of each sample.
    first: Vec<usize>,
    /// Weights of a sample's pixels, one sample after the other, in 1/256; those of a sample sum to 256.
    weights: Vec<u16>,
    /// Weights of a sample; those that it does not need are 0.
    count: usize,
}

impl Taps {
    fn new(axis: Axis) -> Self {
        let mut taps = Self { axis, first: Vec::new(), weights: Vec::new(), count: 0 };
        taps.plan(axis);
        taps
    }

    fn plan(&mut self, axis: Axis) {
        let Axis { start, step, count, groups, length } = axis;
        // Below 2^23: a frame is at most 32768 pixels wide, and so is the area of a sample.
        let width = (step.max(1 << 16) >> 8) as u32;
        let whole = ((1 << 16) / width, (1 << 16) % width);
        // Exact for numbers up to 2^16.
        let reciprocal = (1_u64 << 48) / u64::from(width) + 1;
        let last = length as i64 - 1;
        self.axis = axis;
        // As many as a box of this width can touch, and even.
        self.count = (((width + 510) / 256) as usize).next_multiple_of(2);
        self.first.clear();
        self.weights.clear();
        self.weights.resize(count * self.count, 0);
        let indices = (0..groups).flat_map(|group| (group..count).step_by(groups));
        for (index, weights) in indices.zip(self.weights.chunks_exact_mut(self.count)) {
            let middle = start + ((step * (2 * index as i64 + 1)) >> 9);
            let from = middle - i64::from(width / 2);
            let first = from >> 8;
            // The part of the sample before a pixel's end, in 1/256, and the remainder; a whole pixel adds
            // `whole`. Each sample takes equally many steps: the number that it needs changes too often to be
            // predicted.
            let before = ((first + 1) * 256 - from) as u64 * 256;
            let mut so_far = ((before * reciprocal) >> 48) as u32;
            let mut rest = before as u32 - so_far * width;
            let (mut given, mut at) = (0, 0);
            for pixel in first..first + self.count as i64 {
                so_far = so_far.min(256);
                // Pixels beyond the border are the border's.
                at += usize::from(pixel > first && pixel > 0 && pixel <= last);
                weights[at] += (so_far - given) as u16;
                given = so_far;
                (so_far, rest) = (so_far + whole.0, rest + whole.1);
                if rest >= width {
                    (so_far, rest) = (so_far + 1, rest - width);
                }
            }
            self.first.push(first.clamp(0, last) as usize);
        }
    }

    /// From the first pixel that a sample is made of to the end of the last one's. Pixels beyond the border
    /// have no weight, but are requested.
    fn pixels(&self) -> Range<usize> {
        let first = self.first.iter().copied();
        first.clone().min().unwrap_or(0)..first.max().unwrap_or(0) + self.count
    }
}

/// The taps of axes. Windows about one place have many in common.
#[derive(Default)]
struct Plans {
    taps: Vec<Taps>,
    used: usize,
}

impl Plans {
    fn clear(&mut self) {
        self.used = 0;
    }

    /// The index of an axis' taps.
    fn plan(&mut self, axis: Axis) -> usize {
        if let Some(index) = self.taps[..self.used].iter().position(|taps| taps.axis == axis) {
            return index;
        }
        match self.taps.get_mut(self.used) {
            Some(taps) => taps.plan(axis),
            None => self.taps.push(Taps::new(axis)),
        }
        self.used += 1;
        self.used - 1
    }

    /// Plans the columns and rows of a window, from [`axes`].
    fn window(&mut self, window: Window, shift: (u32, u32), sides: (usize, usize), size: Size) -> Planned {
        let [columns, rows] = axes(window, shift, sides, size);
        Planned { columns: self.plan(columns), rows: self.plan(rows) }
    }
}

/// Columns and rows of a window of a component of `size` that is `1 << shift` times smaller than luma: `side`
/// samples each way, the columns in so many groups.
fn axes(window: Window, shift: (u32, u32), (side, groups): (usize, usize), size: Size) -> [Axis; 2] {
    // In the component's own pixels.
    let axis = |middle: f64, window: f64, shift: u32, groups: usize, length: usize| {
        let step = libm::round(window * 65536.0 / side as f64) as i64;
        let start = libm::round(middle * 256.0) as i64 - ((step * side as i64) >> 9);
        Axis { start: start >> shift, step: step >> shift, count: side, groups, length }
    };
    [axis(window.x, window.w, shift.0, groups, size.width), axis(window.y, window.h, shift.1, 1, size.height)]
}

/// The upright window about a turned one of `side` samples, whose samples are as far apart as those of the
/// turned one are along the picture's axes, and how the turned one lies in it.
fn upright_about(window: Window, side: usize) -> (Window, Turn) {
    let n = side as f64;
    let (width, height) = window.extent();
    let (x_step, y_step) = (width / n, height / n);
    let (sin, cos) = (libm::sin(window.angle), libm::cos(window.angle));
    let wide = (window.w * cos.abs() + window.h * sin.abs()) / x_step;
    let high = (window.w * sin.abs() + window.h * cos.abs()) / y_step;
    // Between the corners, with one to spare on each side: at most 1.5 times as many as its own.
    let count = libm::ceil(wide.max(high) + 2.0) as usize;
    let about = Window { w: x_step * count as f64, h: y_step * count as f64, angle: 0.0, ..window };
    // From one sample to the next, and from one row to the next, in 1/65536 of an upright sample.
    let fixed = |v: f64| libm::round(v * 65536.0) as i32;
    let right = (fixed(cos * window.w / n / x_step), fixed(sin * window.w / n / y_step));
    let below = (fixed(-sin * window.h / n / x_step), fixed(cos * window.h / n / y_step));
    (about, Turn { count, right, below })
}

/// The grid of a window, for a device to sample: of the component that lies in a plane as
/// [`PixelFormat::chroma_samples`] says.
fn grid(
    window: Window,
    shift: (u32, u32),
    (side, groups): (usize, usize),
    (plane, first, step): (usize, usize, usize),
    (index, across): (usize, usize),
    at: usize,
) -> Grid {
    let (upright, turn) = if window.angle == 0.0 {
        (window, None)
    } else {
        let (about, turn) = upright_about(window, side);
        (about, Some(turn))
    };
    let count = turn.map_or(side, |turn| turn.count);
    // The picture's size matters to the device alone.
    let [columns, rows] = axes(upright, shift, (count, 1), Size::new(0, 0));
    let (columns, rows) = ((columns.start, columns.step), (rows.start, rows.step));
    Grid { plane, first, step, columns, rows, side, turn, groups, across, index, at }
}

/// Adds the grids of a window to others, for a device to sample one after the other: `side` x `side` samples
/// of luma, grouped as in a [`Patch`], and where `pixels` says where chroma lies, half as many each way of
/// that.
pub(super) fn grids(window: Window, side: usize, pixels: Option<PixelFormat>, grids: &mut Vec<Grid>) {
    grids.push(grid(window, (0, 0), (side, CELL), (0, 0, 1), (0, 1), 0));
    let Some(pixels) = pixels else { return };
    let shift = (pixels.x_shift as u32, pixels.y_shift as u32);
    let planes = [0, 1].map(|component| pixels.chroma_samples(component));
    let chroma = planes.into_iter().flatten().zip([side * side, side * side * 5 / 4]);
    grids.extend(chroma.map(|(plane, at)| grid(window, shift, (side / 2, 1), plane, (0, 1), at)));
}

/// Columns and rows of a window, by the indices of their taps.
#[derive(Clone, Copy)]
struct Planned {
    columns: usize,
    rows: usize,
}

/// Resamples windows; keeps its room.
pub(super) struct Sampler {
    level: Level,
    plans: Plans,
    /// For each window, unless it is turned.
    planned: Vec<Option<Planned>>,
    sums: Sums,
    /// The source of a turned window's samples: the upright window about it.
    upright: Vec<u8>,
    /// For each sample of that, itself, its right neighbour, and the two below.
    quads: Vec<u32>,
    /// The grids that a device samples, and its samples of a window.
    grids: Vec<Grid>,
    sampled: Vec<u8>,
}

impl Sampler {
    pub(super) fn new() -> Self {
        Self {
            level: Level::best(),
            plans: Plans::default(),
            planned: Vec::new(),
            sums: Sums::new(),
            upright: Vec::new(),
            quads: Vec::new(),
            grids: Vec::new(),
            sampled: Vec::new(),
        }
    }

    /// A window: its luma, and its chroma if that is wanted. There is none in a picture without.
    pub(super) fn window(&mut self, frame: &Frame, window: Window, has_chroma: bool, patch: &mut Patch) {
        if let Some(surface) = frame.picture.surface() {
            let pixels = has_chroma.then_some(frame.format.pixels);
            return self.window_on_device(surface, pixels, window, patch);
        }
        self.squares(frame, &[window], (patch.side, 1), &mut patch.luma);
        if has_chroma {
            self.chroma(frame, window, patch);
        } else {
            patch.clear_chroma();
        }
    }

    /// As [`Self::window`], of a picture on a device, in one request; without `pixels` only luma.
    fn window_on_device(
        &mut self,
        surface: &dyn Surface,
        pixels: Option<PixelFormat>,
        window: Window,
        patch: &mut Patch,
    ) {
        let mut of_window = std::mem::take(&mut self.grids);
        of_window.clear();
        grids(window, patch.side, pixels, &mut of_window);
        self.grids_of_window(surface, &of_window, patch);
        self.grids = of_window;
    }

    /// The samples of a window whose grids these are, from [`grids`].
    pub(super) fn grids_of_window(&mut self, surface: &dyn Surface, grids: &[Grid], patch: &mut Patch) {
        let sampled = &mut self.sampled;
        sampled.resize(grids.last().map_or(0, Grid::end), 0);
        surface.sample(grids, sampled);
        let (luma, chroma) = sampled.split_at(patch.luma.len());
        patch.luma.copy_from_slice(luma);
        if chroma.is_empty() {
            patch.clear_chroma();
        } else {
            let (u, v) = chroma.split_at(patch.u.len());
            patch.u.copy_from_slice(u);
            patch.v.copy_from_slice(v);
        }
    }

    /// Samples the luma of windows as squares of `side` samples. Rows of `across` squares stand beside each
    /// other in `luma`.
    pub(super) fn squares(
        &mut self,
        frame: &Frame,
        windows: &[Window],
        (side, across): (usize, usize),
        luma: &mut [u8],
    ) {
        if let Some(surface) = frame.picture.surface() {
            let at = |index: usize| index / across * side * side * across;
            let grid = |(index, window): (usize, &Window)| {
                grid(*window, (0, 0), (side, CELL), (0, 0, 1), (index % across, across), at(index))
            };
            self.grids.clear();
            self.grids.extend(windows.iter().enumerate().map(grid));
            return surface.sample(&self.grids, luma);
        }
        let component = Component::new(frame, (0, 0, 1));
        let size = side * side * across;
        let place =
            |index: usize| (index / across * size..(index / across + 1) * size, (index % across, across));
        self.plans.clear();
        self.planned.clear();
        for (index, &window) in windows.iter().enumerate() {
            let is_upright = window.angle == 0.0;
            let planned =
                is_upright.then(|| self.plans.window(window, (0, 0), (side, CELL), component.size()));
            self.planned.push(planned);
            if !is_upright {
                let (square, place) = place(index);
                self.turned(component, window, (0, 0), (side, CELL), place, &mut luma[square]);
            }
        }
        let Self { level, plans: Plans { taps, .. }, planned, sums, .. } = self;
        for index in 0..planned.len() {
            // All with the same rows, which are summed once.
            let Some(Planned { rows, .. }) = planned[index] else { continue };
            let is_alike = |planned: &Option<Planned>| planned.is_some_and(|planned| planned.rows == rows);
            if planned[..index].iter().any(is_alike) {
                continue;
            }
            let alike = || (index..).zip(&planned[index..]).filter(|(_, planned)| is_alike(planned));
            let columns = || alike().filter_map(|(index, planned)| Some((index, &taps[(*planned)?.columns])));
            let pixels = columns().map(|(_, taps)| taps.pixels());
            let pixels = pixels.reduce(|a, b| a.start.min(b.start)..a.end.max(b.end)).unwrap_or(0..0);
            level.run(
                #[inline(always)]
                || {
                    Block::each(
                        component,
                        &taps[rows],
                        pixels,
                        sums,
                        #[inline(always)]
                        |block| {
                            for (index, columns) in columns() {
                                let (square, place) = place(index);
                                block.samples(columns, component.first, place, &mut luma[square]);
                            }
                        },
                    );
                },
            );
        }
    }

    /// The samples of a component in a turned window, as the `index`-th of `across` squares that stand beside
    /// each other in `samples`: first of the upright window about it, as far apart as its own are along the
    /// picture's axes, then linearly between those.
    fn turned(
        &mut self,
        component: Component<'_>,
        window: Window,
        shift: (u32, u32),
        (side, groups): (usize, usize),
        (index, across): (usize, usize),
        samples: &mut [u8],
    ) {
        let (about, Turn { count, right, below }) = upright_about(window, side);
        let planned = self.plans.window(about, shift, (count, 1), component.size());
        let mut upright = std::mem::take(&mut self.upright);
        upright.resize(count * count, 0);
        self.component([component], planned, [&mut upright]);
        self.upright = upright;
        let Self { level, upright, quads, .. } = self;
        let middle = (count as i32 - 1) << 15;
        let (width, length) = (side * across, side / groups);
        let from_middle = |index: usize| 2 * index as i32 + 1 - side as i32;
        quads.resize(count * count - count - 1, 0);
        let places = (0..side).flat_map(|y| (0..groups).map(move |group| (y, group)));
        level.run(
            #[inline(always)]
            || {
                let (above, below_it) = (upright.windows(2), upright[count..].windows(2));
                for ((quad, above), under) in quads.iter_mut().zip(above).zip(below_it) {
                    *quad = u32::from_le_bytes([above[0], above[1], under[0], under[1]]);
                }
                for (y, group) in places {
                    let (x, dy) = (from_middle(group), from_middle(y));
                    let mut u = middle + ((x * right.0 + dy * below.0) >> 1);
                    let mut v = middle + ((x * right.1 + dy * below.1) >> 1);
                    let row = &mut samples[y * width + group * width / groups + index * length..][..length];
                    for row in row.chunks_mut(RUN) {
                        let (mut quad, mut shares) = ([0; RUN], [[0; RUN]; 2]);
                        for i in 0..row.len() {
                            quad[i] = quads[(v >> 16) as usize * count + (u >> 16) as usize];
                            (shares[0][i], shares[1][i]) = ((u >> 8 & 255) as u32, (v >> 8 & 255) as u32);
                            (u, v) = (u + right.0 * groups as i32, v + right.1 * groups as i32);
                        }
                        let mut mixed = [0; RUN];
                        for i in 0..RUN {
                            let pixel = |index: u32| quad[i] >> (8 * index) & 255;
                            let mix = |a: u32, b: u32, share: u32| (256 - share) * a + share * b;
                            let across = |index: u32| mix(pixel(index), pixel(index + 1), shares[0][i]);
                            mixed[i] = ((mix(across(0), across(2), shares[1][i]) + (1 << 15)) >> 16) as u8;
                        }
                        row.copy_from_slice(&mixed[..row.len()]);
                    }
                }
            },
        );
    }

    /// The chroma of a window; none of a picture without.
    fn chroma(&mut self, frame: &Frame, window: Window, patch: &mut Patch) {
        let pixels = frame.format.pixels;
        let component = |component| Some(Component::new(frame, pixels.chroma_samples(component)?));
        let (Some(u), Some(v)) = (component(0), component(1)) else {
            patch.clear_chroma();
            return;
        };
        let shift = (pixels.x_shift as u32, pixels.y_shift as u32);
        let side = patch.side / 2;
        self.plans.clear();
        if window.angle != 0.0 {
            self.turned(u, window, shift, (side, 1), (0, 1), &mut patch.u);
            self.turned(v, window, shift, (side, 1), (0, 1), &mut patch.v);
            return;
        }
        let planned = self.plans.window(window, shift, (side, 1), u.size());
        if u.step == 1 {
            self.component([u], planned, [&mut patch.u]);
            self.component([v], planned, [&mut patch.v]);
        } else {
            self.component([u, v], planned, [&mut patch.u, &mut patch.v]);
        }
    }

    /// The planned samples of components that share a plane.
    fn component<const N: usize>(
        &mut self,
        components: [Component<'_>; N],
        planned: Planned,
        mut samples: [&mut [u8]; N],
    ) {
        let Self { level, plans: Plans { taps, .. }, sums, .. } = self;
        let (columns, rows) = (&taps[planned.columns], &taps[planned.rows]);
        level.run(
            #[inline(always)]
            || {
                Block::each(
                    components[0],
                    rows,
                    columns.pixels(),
                    sums,
                    #[inline(always)]
                    |block| {
                        for (component, samples) in components.iter().zip(&mut samples) {
                            block.samples(columns, component.first, (0, 1), samples);
                        }
                    },
                );
            },
        );
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Instant;

    use super::*;
    use crate::frame::{Circumstances, FrameMeta, Plane, PlaneRef, Rect, VideoFormat};
    use crate::reference::surface::OnDevice;

    struct Planes(Vec<Plane>);

    impl Picture for Planes {
        fn plane(&self, index: usize) -> PlaneRef<'_> {
            self.0[index].as_ref()
        }
    }

    impl Sampler {
        fn luma(&mut self, frame: &Frame, window: Window, patch: &mut Patch) {
            self.squares(frame, &[window], (patch.side, 1), &mut patch.luma);
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

    fn plane(size: Size, mut value: impl FnMut(usize, usize) -> u8) -> Plane {
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
            // Pictures of one block, and of several rows and columns of blocks.
            let side = if degrees > 0.0 { 32 } else { 128 };
            // The second of two squares beside each other.
            let mut luma = vec![0; 2 * side * side];
            let upright = Window { angle: 0.0, ..window };
            sampler.squares(&frame, &[upright, window], (side, 2), &mut luma);
            for y in 0..side {
                for x in 0..side {
                    let along = |i: usize, length: f64| ((i as f64 + 0.5) / side as f64 - 0.5) * length;
                    let group = &luma[y * 2 * side..][x % CELL * 2 * side / CELL..][..2 * side / CELL];
                    for (index, window) in [upright, window].into_iter().enumerate() {
                        let (dx, dy) = window.turning()(along(x, window.w), along(y, window.h));
                        let expected = value(window.x + dx, window.y + dy);
                        let sample = f64::from(group[index * side / CELL + x / CELL]);
                        assert!(
                            (sample - expected).abs() <= 1.5,
                            "{degrees}: {x}, {y}: {sample}, {expected}"
                        );
                    }
                }
            }
        }
    }

    #[test]
    fn every_level_samples_the_same() {
        let size = Size::new(91, 77);
        let noise = |x: usize, y: usize| (x * 97 + y * 61 + x * y % 251) as u8;
        let chroma = Size::new(46, 39);
        let planes = vec![plane(size, noise), plane(chroma, noise), plane(chroma, |x, y| noise(y, x))];
        let frame = frame("I420", size, planes);
        let upright = Window { x: 40.2, y: 33.7, w: 50.0, h: 31.0, angle: 0.0 };
        // Some share rows, one sees what is beyond the border, one is turned.
        let windows = [
            upright,
            Window { x: 47.0, ..upright },
            Window { y: 3.0, ..upright },
            Window { x: 88.0, y: 75.0, ..upright },
            Window { angle: 0.7, ..upright },
        ];
        let all = Level::available().into_iter().map(|level| {
            let mut sampler = Sampler { level, ..Sampler::new() };
            let mut squares = vec![0; 2 * 4 * 32 * 32];
            sampler.squares(&frame, &windows, (32, 4), &mut squares);
            let mut patch = Patch::new(128);
            sampler.luma(&frame, windows[3], &mut patch);
            sampler.chroma(&frame, windows[3], &mut patch);
            (squares, patch.luma, patch.u, patch.v)
        });
        let all: Vec<_> = all.collect();
        assert!(all.iter().all(|samples| *samples == all[0]));
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

    /// A picture whose planes are wrong wherever they were not asked for.
    struct Parts(Vec<Plane>);

    impl Picture for Parts {
        fn plane(&self, index: usize) -> PlaneRef<'_> {
            panic!("the whole of plane {index} was asked for")
        }

        fn part(&self, index: usize, part: Rect) -> PlaneRef<'_> {
            let right = self.0[index].as_ref();
            assert!(part.is_inside(right.size()), "{part} of plane {index}");
            let made = plane(right.size(), |x, y| {
                let is_inside =
                    (part.x..part.x + part.w).contains(&x) && (part.y..part.y + part.h).contains(&y);
                if is_inside { right.row(y)[x] } else { !right.row(y)[x] }
            });
            // Leaked, as the picture lends it: a few MB in all.
            Box::leak(Box::new(made)).as_ref()
        }
    }

    #[test]
    fn no_byte_is_read_beyond_the_part_that_was_asked_for() {
        let size = Size::new(211, 157);
        let noise = |x: usize, y: usize| (x * 97 + y * 61 + x * y % 251) as u8;
        for pixels in PixelFormat::ALL {
            let planes = (0..pixels.planes()).map(|index| plane(pixels.plane_size(index, size), noise));
            let planes: Vec<_> = planes.collect();
            let whole = frame(pixels.name, size, planes.clone());
            let parts = Frame { picture: Arc::new(Parts(planes)), ..whole.clone() };
            for (x, y, w, angle) in [
                (100.0, 70.0, 40.0, 0.0),
                (3.0, 150.0, 90.0, 0.0),
                (205.5, 20.0, 300.0, 0.0),
                (90.0, 80.0, 50.0, 0.7),
            ] {
                let window = Window { x, y, w, h: 0.8 * w, angle };
                let (mut expected, mut found) = (Patch::new(128), Patch::new(128));
                Sampler::new().window(&whole, window, true, &mut expected);
                Sampler::new().window(&parts, window, true, &mut found);
                let is_equal =
                    (&expected.luma, &expected.u, &expected.v) == (&found.luma, &found.u, &found.v);
                assert!(is_equal, "{}: {window:?}", pixels.name);
            }
        }
    }

    #[test]
    fn what_a_device_samples_is_what_the_host_samples() {
        let size = Size::new(211, 157);
        let mut state = 7_u32;
        let mut random = || {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            f64::from(state >> 8) / f64::from(1 << 24)
        };
        for pixels in PixelFormat::ALL {
            let sizes = (0..pixels.planes()).map(|index| pixels.plane_size(index, size));
            let planes = sizes.map(|size| plane(size, |_, _| (random() * 256.0) as u8)).collect();
            let host = frame(pixels.name, size, planes);
            let there = Arc::new(OnDevice::new(host.picture.clone(), &host.format));
            let device = Frame { picture: there.clone(), ..host.clone() };
            for turned in [false, true, false, true, true] {
                // Far smaller than a grid to larger than the picture, and over its edges.
                let side = 4.0 + 400.0 * random() * random();
                let (x, y) = (260.0 * random() - 30.0, 200.0 * random() - 30.0);
                let angle = if turned { 6.0 * random() - 3.0 } else { 0.0 };
                let window = Window { x, y, w: side, h: side * (0.5 + random()), angle };
                let (mut here, mut other) = (Patch::new(128), Patch::new(128));
                for has_chroma in [true, false] {
                    other.luma.fill(0xA5);
                    Sampler::new().window(&host, window, has_chroma, &mut here);
                    Sampler::new().window(&device, window, has_chroma, &mut other);
                    let message = format!("{}: {window:?}, {has_chroma}", pixels.name);
                    assert!(here.luma == other.luma && here.u == other.u && here.v == other.v, "{message}");
                }
                let windows = [window, Window { angle: 0.0, ..window }, Window { x: x + 3.0, ..window }];
                let (mut here, mut other) = ([0; 32 * 32 * 4], [0; 32 * 32 * 4]);
                Sampler::new().squares(&host, &windows, (32, 4), &mut here);
                Sampler::new().squares(&device, &windows, (32, 4), &mut other);
                assert!(here == other, "{}: squares about {window:?}", pixels.name);
            }
            assert_eq!(there.whole_planes(), 0, "no whole plane was asked for");
        }
    }
}
