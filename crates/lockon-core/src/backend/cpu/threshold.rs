//! Threshold of a frame: bands of rows in parallel, window sums that slide, inner loops over slices.
//!
//! The methods of window sums cost the same for every block: a column's sum over the window's rows takes one
//! row in and drops one, and a window's sum takes one column in and drops one. The Gaussian has a file of its
//! own (`gaussian.rs`). Otsu, the triangle and Wolf look at the whole frame first. A hysteresis makes two
//! masks, and chooses components (`objects/hysteresis.rs`). All of it is exact, so neither the number of
//! bands nor the width of a vector register changes a byte of the mask.

use std::ops::Range;

use rayon::prelude::*;

use super::gaussian::Gaussian;
use super::objects::hysteresis::Hysteresis;
use super::simd::Level;
use crate::backend::threshold::{self, BACKGROUND_BITS, BACKGROUND_WEIGHT_BITS, Background};
use crate::config::{ThresholdMethod, ThresholdSpec};
use crate::control::Control;
use crate::frame::{Plane, PlaneRef, Size};

/// Bytes of a mask that are counted together.
const LANES: usize = 64;

/// Counters that take turns: neighbours are often alike, and a counter is stored before it is read again.
const HISTOGRAMS: usize = 4;

/// A threshold planned for frames of one size.
pub struct Thresholder {
    control: Control,
    level: Level,
    size: Size,
    /// Pixels of the block on one side of its centre, across and down.
    radii: (usize, usize),
    inverse: bool,
    rule: Rule,
    strict: Option<Strict>,
    survey: Survey,
    background: Option<Memory>,
    bands: Vec<Band>,
}

/// The stricter rule of a hysteresis.
struct Strict {
    rule: Rule,
    mask: Plane,
    hysteresis: Hysteresis,
}

/// The comparison of a pixel, with the numbers that can be computed before a frame.
enum Rule {
    Mean {
        scale: f32,
        offset: i32,
    },
    Gaussian {
        /// From the edge to the centre.
        weights: Vec<u32>,
        offset: i32,
    },
    Sauvola {
        k: f64,
    },
    Niblack {
        k: f64,
    },
    Wolf {
        k: f64,
    },
    Phansalkar {
        k: f64,
        factors: Box<[[f64; 2]; threshold::PHANSALKAR_MEANS]>,
    },
    Bradley {
        share: f64,
    },
    Fixed {
        level: i32,
    },
    /// The level that the frame's survey gives.
    Surveyed,
    Background {
        limit: i32,
    },
}

/// What is found out about a whole frame before its pixels are compared.
#[derive(Clone, Copy)]
enum Survey {
    None,
    Otsu,
    Triangle,
    Wolf,
}

/// Numbers of a whole frame.
#[derive(Clone, Copy, Default)]
struct Whole {
    level: i32,
    least: f64,
    /// The greatest deviation; 1 if all are 0.
    greatest: f64,
}

/// The running mean of the frames before.
struct Memory {
    /// Frames that count, at most.
    most: u32,
    of: Background,
}

/// Working memory of one band of rows, kept from frame to frame.
#[derive(Default)]
struct Band {
    sums: WindowSums,
    squares: WindowSums,
    gaussian: Gaussian,
    histograms: Vec<[u32; 256]>,
    least: u8,
    greatest: f64,
}

impl Rule {
    fn of(spec: &ThresholdSpec) -> Self {
        match spec.method {
            ThresholdMethod::Mean { c } => Self::Mean {
                scale: threshold::mean_scale(spec.block),
                offset: threshold::offset(c, spec.inverse),
            },
            ThresholdMethod::Gaussian { c } => {
                let side = spec.block.width;
                let mut weights = threshold::gaussian_weights(side);
                weights.truncate(side / 2 + 1);
                Self::Gaussian { weights, offset: threshold::offset(c, spec.inverse) }
            }
            ThresholdMethod::Sauvola { k } => Self::Sauvola { k },
            ThresholdMethod::Niblack { k } => Self::Niblack { k },
            ThresholdMethod::Wolf { k } => Self::Wolf { k },
            ThresholdMethod::Phansalkar { k } => {
                Self::Phansalkar { k, factors: Box::new(threshold::phansalkar_factors()) }
            }
            ThresholdMethod::Bradley { t } => Self::Bradley { share: threshold::bradley_share(t) },
            ThresholdMethod::Fixed { t } => Self::Fixed { level: threshold::fixed_level(t) },
            ThresholdMethod::Otsu | ThresholdMethod::Triangle => Self::Surveyed,
            ThresholdMethod::Background { t, .. } => {
                Self::Background { limit: threshold::background_limit(t) }
            }
        }
    }
}

impl Thresholder {
    /// Plans `spec` for frames of `size`, for [`Level::best`]. Working memory is taken at the first run.
    pub fn new(spec: &ThresholdSpec, size: Size) -> Self {
        Self::at(Level::best(), spec, size)
    }

    /// As [`Self::new`], with the instructions of a level.
    pub fn at(level: Level, spec: &ThresholdSpec, size: Size) -> Self {
        let (all, few) = spec.stages();
        let background = match spec.method {
            ThresholdMethod::Background { frames: most, .. } => {
                Some(Memory { most, of: Background { frames: 0, mean: Vec::new() } })
            }
            _ => None,
        };
        Self {
            control: Control::new(),
            level,
            size,
            radii: (spec.block.width / 2, spec.block.height / 2),
            inverse: spec.inverse,
            rule: Rule::of(&all),
            strict: few.map(|few| Strict {
                rule: Rule::of(&few),
                mask: Plane::default(),
                hysteresis: Hysteresis::new(level, size),
            }),
            survey: match spec.method {
                ThresholdMethod::Otsu => Survey::Otsu,
                ThresholdMethod::Triangle => Survey::Triangle,
                ThresholdMethod::Wolf { .. } => Survey::Wolf,
                _ => Survey::None,
            },
            background,
            bands: Vec::new(),
        }
    }

    /// As `self`, for a run: once the run is stopped, rows stay unchanged.
    #[must_use]
    pub fn under(self, control: &Control) -> Self {
        Self { control: control.clone(), ..self }
    }

    /// The background of the frames so far, if the method has one and there were any.
    pub fn background(self) -> Option<Background> {
        self.background.map(|memory| memory.of).filter(|background| background.frames > 0)
    }

    /// Continues with the background of earlier frames, if the method has one.
    ///
    /// # Panics
    /// If it is of frames of another size.
    pub fn continue_from(&mut self, background: Background) {
        assert_eq!(background.mean.len(), self.size.area(), "a background of another size");
        if let Some(memory) = &mut self.background {
            memory.of = background;
        }
    }

    /// Bytes of what a threshold keeps from frame to frame beside the mask, for frames of `size`.
    pub(super) fn bytes(spec: &ThresholdSpec, size: Size) -> usize {
        let background = if spec.method.remembers() { size_of::<u32>() } else { 0 };
        let strict = usize::from(spec.second.is_some());
        (background + strict) * size.area()
    }

    /// Writes 255 or 0 for every pixel of `src` into `mask` and returns the share of 255, in [0, 1].
    ///
    /// Uses the threads of the rayon pool that it is called in; their number does not change the result.
    /// `mask` gets the frame's size. From the second frame on nothing is allocated, but by a hysteresis where
    /// there are more components than before. An empty picture has the share 0.
    ///
    /// # Panics
    /// If `src` is not of the size that this was planned for.
    pub fn run(&mut self, src: PlaneRef<'_>, mask: &mut Plane) -> f64 {
        assert_eq!(src.size(), self.size, "threshold planned for another size");
        mask.resize(self.size);
        if self.size.area() == 0 {
            return 0.0;
        }
        // One band a thread: each band reads as many rows as the block has before it can write its first.
        let rows = self.size.height.div_ceil(rayon::current_num_threads());
        let count = self.size.height.div_ceil(rows);
        self.bands.resize_with(count.max(self.bands.len()), Band::default);
        let Self { control, level, size, radii, inverse, rule, strict, survey, background, bands } = self;
        let frame = Frame {
            control,
            level: *level,
            src,
            radii: *radii,
            rows,
            inverse: *inverse,
            whole: Whole::default(),
        };
        let bands = &mut bands[..count];
        let frame = Frame { whole: frame.survey(*survey, bands), ..frame };
        let weight = background.as_mut().and_then(|memory| memory.next(&frame));
        let mut compare = |rule: &Rule, mask: &mut Plane, weight| match (rule, &mut *background) {
            (Rule::Background { limit }, Some(memory)) => {
                frame.compare_with(*limit, weight, &mut memory.of.mean, mask)
            }
            _ => frame.compare(rule, bands, mask),
        };
        let foreground = match strict {
            None => compare(rule, mask, weight),
            Some(Strict { rule: strict, mask: few, hysteresis }) => {
                few.resize(*size);
                compare(rule, mask, None);
                compare(strict, few, weight);
                hysteresis.choose(mask, few.as_ref())
            }
        };
        foreground as f64 / size.area() as f64
    }
}

impl Memory {
    /// Takes the next frame into account: the weight that it has in the mean, or nothing if it is the first,
    /// of which the mean is made now.
    fn next(&mut self, frame: &Frame<'_>) -> Option<u32> {
        let Background { frames, mean } = &mut self.of;
        *frames = threshold::background_frames(*frames, self.most);
        if *frames > 1 {
            return Some(threshold::background_weight(*frames, self.most));
        }
        mean.clear();
        for row in frame.src.rows() {
            mean.extend(row.iter().map(|&pixel| u32::from(pixel) << BACKGROUND_BITS));
        }
        None
    }
}

/// A frame, and how its pixels are compared.
struct Frame<'a> {
    control: &'a Control,
    level: Level,
    src: PlaneRef<'a>,
    radii: (usize, usize),
    /// Rows of a band.
    rows: usize,
    inverse: bool,
    whole: Whole,
}

impl Frame<'_> {
    fn window(&self, band: usize) -> Window<'_> {
        let (across, radius) = self.radii;
        Window { control: self.control, src: self.src, across, radius, first: band * self.rows }
    }

    /// Looks at the whole frame.
    fn survey(&self, survey: Survey, bands: &mut [Band]) -> Whole {
        let (level, height) = (self.level, self.src.size().height);
        let rows = |band: usize| band * self.rows..((band + 1) * self.rows).min(height);
        match survey {
            Survey::None => Whole::default(),
            Survey::Otsu | Survey::Triangle => {
                bands.par_iter_mut().enumerate().for_each(|(index, band)| {
                    let rows = rows(index).map(|y| self.src.row(y));
                    band.take_histogram(rows.take_while(|_| !self.control.is_stopped()));
                });
                let mut histogram = [0; 256];
                for part in bands.iter().flat_map(|band| &band.histograms) {
                    for (sum, &count) in histogram.iter_mut().zip(part) {
                        *sum += u64::from(count);
                    }
                }
                let is_otsu = matches!(survey, Survey::Otsu);
                let level =
                    if is_otsu { threshold::otsu(&histogram) } else { threshold::triangle(&histogram) };
                Whole { level, ..Whole::default() }
            }
            Survey::Wolf => {
                bands.par_iter_mut().enumerate().for_each(|(index, band)| {
                    band.take_extremes(level, &self.window(index), rows(index));
                });
                let least = bands.iter().map(|band| band.least).min().unwrap_or(0);
                let greatest = bands.iter().map(|band| band.greatest).fold(0.0, f64::max);
                let greatest = if greatest > 0.0 { greatest } else { 1.0 };
                Whole { least: f64::from(least), greatest, ..Whole::default() }
            }
        }
    }

    /// Writes 255 or 0 for every pixel by a rule, and returns the number of 255.
    fn compare(&self, rule: &Rule, bands: &mut [Band], mask: &mut Plane) -> u64 {
        let (level, inverse, width) = (self.level, self.inverse, self.src.size().width);
        let Whole { level: surveyed, least, greatest } = self.whole;
        let bands = mask.data_mut().par_chunks_mut(self.rows * width).zip(bands).enumerate();
        let of_band = |(index, (mask, band)): (usize, (&mut [u8], &mut Band))| {
            let window = self.window(index);
            match *rule {
                Rule::Mean { scale, offset } => band.mean(level, &window, mask, scale, offset, inverse),
                Rule::Gaussian { ref weights, offset } => {
                    band.gaussian.threshold(level, &window, mask, weights, offset, inverse);
                }
                Rule::Sauvola { k } => {
                    band.deviation(
                        level,
                        &window,
                        mask,
                        inverse,
                        #[inline(always)]
                        |m, s| m * (1.0 + k * (s / 128.0 - 1.0)),
                    );
                }
                Rule::Niblack { k } => {
                    band.deviation(
                        level,
                        &window,
                        mask,
                        inverse,
                        #[inline(always)]
                        |m, s| m + k * s,
                    );
                }
                Rule::Wolf { k } => {
                    band.deviation(
                        level,
                        &window,
                        mask,
                        inverse,
                        #[inline(always)]
                        |m, s| m + k * ((s / greatest - 1.0) * (m - least)),
                    );
                }
                Rule::Phansalkar { k, ref factors } => {
                    let factors = &**factors;
                    band.deviation(
                        level,
                        &window,
                        mask,
                        inverse,
                        #[inline(always)]
                        |m, s| {
                            let whole = m as i32;
                            let [term, more] = factors[(whole as usize).min(factors.len() - 1)];
                            let term = term + (m - f64::from(whole)) * more;
                            m * (1.0 + term + k * (s / 127.5 - 1.0))
                        },
                    );
                }
                Rule::Bradley { share } => band.bradley(level, &window, mask, share, inverse),
                Rule::Fixed { level: above } => compare_all(level, &window, mask, above, inverse),
                Rule::Surveyed => compare_all(level, &window, mask, surveyed, inverse),
                Rule::Background { .. } => unreachable!("it has a background"),
            }
            count(level, mask)
        };
        bands.map(of_band).sum()
    }

    /// Writes 255 for every pixel that differs from the mean by more than `limit`, or up to that if inverted,
    /// and returns the number of 255. With a weight the frame then counts in the mean.
    fn compare_with(&self, limit: i32, weight: Option<u32>, mean: &mut [u32], mask: &mut Plane) -> u64 {
        const ONE: u64 = 1 << BACKGROUND_WEIGHT_BITS;
        let (level, inverse, band) = (self.level, self.inverse, self.rows * self.src.size().width);
        let bands = mask.data_mut().par_chunks_mut(band).zip(mean.par_chunks_mut(band)).enumerate();
        let of_band = |(index, (mask, mean)): (usize, (&mut [u8], &mut [u32]))| {
            let means = mean.chunks_exact_mut(self.src.size().width);
            for ((_, pixels, mask), mean) in self.window(index).rows(mask).zip(means) {
                level.run(
                    #[inline(always)]
                    || {
                        for ((mask, &pixel), mean) in mask.iter_mut().zip(pixels).zip(&*mean) {
                            let value = i32::from(pixel) << BACKGROUND_BITS;
                            let difference = (value - *mean as i32).abs();
                            *mask = byte((difference > limit) != inverse);
                        }
                        let Some(weight) = weight.map(u64::from) else { return };
                        for (mean, &pixel) in mean.iter_mut().zip(pixels) {
                            // Both weights have up to 32 bits, value and mean 24.
                            let value = u64::from(pixel) << BACKGROUND_BITS;
                            let sum = u64::from(*mean) * (ONE - weight) + value * weight + ONE / 2;
                            *mean = (sum >> BACKGROUND_WEIGHT_BITS) as u32;
                        }
                    },
                );
            }
            count(level, mask)
        };
        bands.map(of_band).sum()
    }
}

/// The input of a band: rows around each of its own, from row `first` of the picture on.
pub(super) struct Window<'a> {
    pub(super) control: &'a Control,
    pub(super) src: PlaneRef<'a>,
    /// Columns on one side of the centre.
    pub(super) across: usize,
    /// Rows above and below the centre.
    pub(super) radius: usize,
    pub(super) first: usize,
}

impl<'a> Window<'a> {
    /// Its rows.
    pub(super) fn block(&self) -> usize {
        2 * self.radius + 1
    }

    /// Its columns.
    fn columns(&self) -> usize {
        2 * self.across + 1
    }

    fn area(&self) -> usize {
        self.columns() * self.block()
    }

    /// The row `above` rows over row `y + radius`, or the border's.
    fn row(&self, y: usize, above: usize) -> &'a [u8] {
        self.src.row((y + self.radius).saturating_sub(above).min(self.src.size().height - 1))
    }

    /// The band's rows: their places in the picture, their pixels and their part of the mask.
    fn rows<'m>(
        &self,
        mask: &'m mut [u8],
    ) -> impl Iterator<Item = (usize, &'a [u8], &'m mut [u8])> + use<'a, 'm> {
        let (control, src, first) = (self.control, self.src, self.first);
        mask.chunks_exact_mut(src.size().width)
            .take_while(|_| !control.is_stopped())
            .enumerate()
            .map(move |(i, mask)| (first + i, src.row(first + i), mask))
    }
}

/// Writes 255 for every pixel above a level, or up to it if inverted.
fn compare_all(level: Level, window: &Window<'_>, mask: &mut [u8], above: i32, inverse: bool) {
    for (_, pixels, mask) in window.rows(mask) {
        level.run(
            #[inline(always)]
            || {
                for (mask, &pixel) in mask.iter_mut().zip(pixels) {
                    *mask = byte((i32::from(pixel) > above) != inverse);
                }
            },
        );
    }
}

impl Band {
    fn mean(
        &mut self,
        level: Level,
        window: &Window<'_>,
        mask: &mut [u8],
        scale: f32,
        offset: i32,
        inverse: bool,
    ) {
        for (y, pixels, mask) in window.rows(mask) {
            level.run(
                #[inline(always)]
                || {
                    let sums = self.sums.slide_to(y, window, |v| v);
                    for ((mask, &pixel), &s) in mask.iter_mut().zip(pixels).zip(sums) {
                        // The sum fits in 24 bits, so it is exact in f32 and converts as a signed number,
                        // which is cheaper.
                        let mean = round_half_even(s as i32 as f32 * scale);
                        *mask = byte((i32::from(pixel) > mean - offset) != inverse);
                    }
                },
            );
        }
    }

    fn deviation(
        &mut self,
        level: Level,
        window: &Window<'_>,
        mask: &mut [u8],
        inverse: bool,
        threshold: impl Fn(f64, f64) -> f64,
    ) {
        let n = window.area() as f64;
        for (y, pixels, mask) in window.rows(mask) {
            level.run(
                #[inline(always)]
                || {
                    let sums = self.sums.slide_to(y, window, |v| v);
                    let squares = self.squares.slide_to(y, window, |v| v * v);
                    let sums = sums.iter().zip(squares);
                    for ((mask, &pixel), (&s, &ss)) in mask.iter_mut().zip(pixels).zip(sums) {
                        // n * SS and S * S are below 2^49, so f64 holds them and their difference exactly.
                        let (s, ss) = (f64::from(s), f64::from(ss));
                        let deviation = ((n * ss - s * s) / (n * n)).sqrt();
                        *mask = byte((f64::from(pixel) > threshold(s / n, deviation)) != inverse);
                    }
                },
            );
        }
    }

    fn bradley(&mut self, level: Level, window: &Window<'_>, mask: &mut [u8], share: f64, inverse: bool) {
        let n = window.area() as i32;
        for (y, pixels, mask) in window.rows(mask) {
            level.run(
                #[inline(always)]
                || {
                    let sums = self.sums.slide_to(y, window, |v| v);
                    for ((mask, &pixel), &s) in mask.iter_mut().zip(pixels).zip(sums) {
                        // Both fit in 24 bits.
                        let is_above = f64::from(i32::from(pixel) * n) > f64::from(s as i32) * share;
                        *mask = byte(is_above != inverse);
                    }
                },
            );
        }
    }

    /// Counts the pixels of each luma in rows.
    fn take_histogram<'a>(&mut self, rows: impl Iterator<Item = &'a [u8]>) {
        self.histograms.resize(HISTOGRAMS, [0; 256]);
        self.histograms.fill([0; 256]);
        let [a, b, c, d] = self.histograms.first_chunk_mut::<HISTOGRAMS>().expect("just resized");
        for row in rows {
            let (fours, rest) = row.as_chunks::<HISTOGRAMS>();
            for four in fours {
                a[usize::from(four[0])] += 1;
                b[usize::from(four[1])] += 1;
                c[usize::from(four[2])] += 1;
                d[usize::from(four[3])] += 1;
            }
            for &pixel in rest {
                a[usize::from(pixel)] += 1;
            }
        }
    }

    /// Finds the least luma and the greatest deviation of some rows.
    fn take_extremes(&mut self, level: Level, window: &Window<'_>, rows: Range<usize>) {
        let n = window.area() as f64;
        let (mut least, mut greatest) = (u8::MAX, 0.0);
        for y in rows.take_while(|_| !window.control.is_stopped()) {
            level.run(
                #[inline(always)]
                || {
                    least = window.src.row(y).iter().fold(least, |least, &pixel| least.min(pixel));
                    let sums = self.sums.slide_to(y, window, |v| v);
                    let squares = self.squares.slide_to(y, window, |v| v * v);
                    let mut most = [greatest; 8];
                    let (whole, rest) = sums.as_chunks::<8>();
                    let (whole_squares, rest_squares) = squares.as_chunks::<8>();
                    // Exact, as in `deviation`; the greatest is that of the greatest variance.
                    let difference = |s: u32, ss: u32| n * f64::from(ss) - f64::from(s) * f64::from(s);
                    for (sums, squares) in whole.iter().zip(whole_squares) {
                        for (most, (&s, &ss)) in most.iter_mut().zip(sums.iter().zip(squares)) {
                            *most = difference(s, ss).max(*most);
                        }
                    }
                    for (&s, &ss) in rest.iter().zip(rest_squares) {
                        most[0] = difference(s, ss).max(most[0]);
                    }
                    greatest = most.into_iter().fold(greatest, f64::max);
                },
            );
        }
        (self.least, self.greatest) = (least, (greatest / (n * n)).sqrt());
    }
}

/// Sums over the window around each pixel of a row.
#[derive(Default)]
struct WindowSums {
    /// The row that `columns` stands for.
    at: usize,
    /// For each column of the picture, its ends repeated `across` times, the sum over the window's rows.
    columns: Vec<u32>,
    /// For each pixel of the row, the sum over its window.
    sums: Vec<u32>,
}

impl WindowSums {
    /// Moves to row `y`, the band's first or the one after the last, and sums `term` of the pixels around
    /// each of its pixels, from left to right.
    ///
    /// A window of squares is at most 255^4 < 2^32.
    #[inline(always)]
    fn slide_to(&mut self, y: usize, window: &Window<'_>, term: impl Fn(u32) -> u32) -> &[u32] {
        let (width, across, columns) = (window.src.size().width, window.across, window.columns());
        let is_first = y == window.first;
        if is_first {
            self.columns.clear();
            self.columns.resize(width + 2 * across, 0);
            self.sums.resize(width, 0);
        }
        let inner = &mut self.columns[across..][..width];
        if is_first {
            for above in 0..window.block() {
                for (sum, &pixel) in inner.iter_mut().zip(window.row(y, above)) {
                    *sum += term(u32::from(pixel));
                }
            }
        } else {
            debug_assert_eq!(y, self.at + 1, "rows come in order");
            let rows = window.row(y, 0).iter().zip(window.row(y, window.block()));
            for (sum, (&enters, &leaves)) in inner.iter_mut().zip(rows) {
                *sum = *sum + term(u32::from(enters)) - term(u32::from(leaves));
            }
        }
        self.at = y;
        let (left, right) = (inner[0], inner[width - 1]);
        self.columns[..across].fill(left);
        self.columns[across + width..].fill(right);
        let mut sum = self.columns[..columns].iter().sum::<u32>();
        self.sums[0] = sum;
        let ends = self.columns.iter().zip(&self.columns[columns..]);
        for (out, (&leaving, &entering)) in self.sums[1..].iter_mut().zip(ends) {
            // It may wrap in between: sums do not.
            sum = sum.wrapping_add(entering.wrapping_sub(leaving));
            *out = sum;
        }
        &self.sums
    }
}

/// `value` to the nearest whole number, half to even, for values from 0 to 2^22.
#[inline(always)]
pub(super) fn round_half_even(value: f32) -> i32 {
    // An f32 of this size has no fraction bits, so the addition itself rounds, and the low bits are the
    // number: `round_ties_even` would be a call per pixel on processors without SSE4.1.
    const ROUNDER: f32 = 12_582_912.0;
    ((value + ROUNDER).to_bits() - ROUNDER.to_bits()) as i32
}

/// 255 for foreground, 0 for background.
#[inline(always)]
pub(super) fn byte(is_foreground: bool) -> u8 {
    u8::from(is_foreground).wrapping_neg()
}

/// Number of bytes that are 255, the others being 0.
fn count(level: Level, mask: &[u8]) -> u64 {
    level.run(
        #[inline(always)]
        || {
            let mut total = 0;
            // A byte counts 255 of them before it is full; wide counters would need one addition for every
            // four pixels.
            for chunk in mask.chunks(255 * LANES) {
                let mut counts = [0_u8; LANES];
                let (whole, rest) = chunk.as_chunks::<LANES>();
                for lanes in whole {
                    for (count, &byte) in counts.iter_mut().zip(lanes) {
                        *count += byte & 1;
                    }
                }
                for &count in &counts {
                    total += u64::from(count);
                }
                for &byte in rest {
                    total += u64::from(byte & 1);
                }
            }
            total
        },
    )
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};

    use super::*;
    use crate::reference;

    /// A picture in rows longer than it is wide, the padding poisoned.
    struct Padded {
        data: Vec<u8>,
        size: Size,
        stride: usize,
    }

    impl Padded {
        /// Noise over slow waves: neighbourhoods differ, and so do their deviations.
        fn noise(size: Size, seed: u64) -> Self {
            let stride = size.width + 13;
            let mut state = seed | 1;
            let mut data = vec![0xFA; stride * size.height];
            for (y, row) in data.chunks_mut(stride).enumerate() {
                for (x, pixel) in row[..size.width].iter_mut().enumerate() {
                    state ^= state << 13;
                    state ^= state >> 7;
                    state ^= state << 17;
                    let noise = (state >> 40) % (1 + (x as u64 * 5) % 120);
                    *pixel = ((x * 3 + y * 2) % 170) as u8 + (noise % 86) as u8;
                }
            }
            Self { data, size, stride }
        }

        fn view(&self) -> PlaneRef<'_> {
            PlaneRef::new(&self.data, self.size, self.stride)
        }
    }

    fn with_threads<T: Send>(threads: usize, f: impl FnOnce() -> T + Send) -> T {
        rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap().install(f)
    }

    fn assert_same(picture: &Padded, spec: &str) {
        let spec: ThresholdSpec = spec.parse().unwrap();
        let expected = reference::threshold::threshold(picture.view(), &spec);
        let share =
            expected.data().iter().map(|&v| f64::from(v / 255)).sum::<f64>() / picture.size.area() as f64;
        let levels = Level::available().into_iter().map(|level| (level, 2));
        for (level, threads) in levels.chain([(Level::best(), 1), (Level::best(), 3)]) {
            let mut thresholder = Thresholder::at(level, &spec, picture.size);
            // The second run starts from what the first left behind.
            for run in 0..2 {
                let mut mask = Plane::from_vec(vec![0xFA; 35], Size::new(7, 5));
                let got = with_threads(threads, || thresholder.run(picture.view(), &mut mask));
                assert!(
                    mask == expected && got == share,
                    "{spec} of {}, {level}, {threads} threads, run {run}",
                    picture.size
                );
            }
        }
    }

    #[test]
    fn every_method_and_polarity_is_the_reference_on_odd_sizes() {
        for (seed, (w, h)) in [(123, 33), (37, 61), (1, 17), (19, 1), (16, 5)].into_iter().enumerate() {
            let picture = Padded::noise(Size::new(w, h), seed as u64 + 7);
            for method in [
                "mean:3:2",
                "mean:31:-7.5",
                "gaussian:5:0",
                "gaussian:11:2.5",
                "sauvola:15:0.2",
                "niblack:7:-0.2",
                "wolf:15:0.5",
                "phansalkar:9:0.25",
                "bradley:11:15",
                "bradley:11:-3.5",
                "fixed:99.5",
                "otsu",
                "triangle",
                "background:20:3",
                "mean:3x31:2",
                "mean:15x5:-4",
                "sauvola:5x21:0.3",
                "wolf:3x7:0.2",
                "bradley:41x3:5",
                "mean:9:-30..2",
                "gaussian:9:4..-12",
                "niblack:7x15:-0.2..1",
                "wolf:7:0.1..0.9",
                "fixed:60..140",
                "background:20:3..9",
            ] {
                assert_same(&picture, method);
                assert_same(&picture, &format!("{method}:inv"));
            }
        }
    }

    #[test]
    fn a_block_larger_than_the_picture_sees_the_replicated_border() {
        let picture = Padded::noise(Size::new(23, 11), 3);
        for method in [
            "mean:255:5",
            "gaussian:101:3",
            "gaussian:255:0",
            "sauvola:101:0.1:inv",
            "niblack:255:0.3",
            "wolf:255x3:0.5",
            "phansalkar:3x255:0.3",
            "bradley:255:9",
        ] {
            assert_same(&picture, method);
        }
    }

    #[test]
    fn a_picture_of_one_pixel_has_a_threshold() {
        let picture = Padded { data: vec![200], size: Size::new(1, 1), stride: 1 };
        for method in [
            "mean:3:5",
            "gaussian:9:5",
            "sauvola:3:0.2",
            "niblack:255:-0.2",
            "wolf:3:0.5",
            "phansalkar:3:0.25",
            "bradley:5x3:1",
            "fixed:199..300",
            "otsu",
            "triangle",
            "background:3:0",
        ] {
            assert_same(&picture, method);
            assert_same(&picture, &format!("{method}:inv"));
        }
    }

    #[test]
    fn the_largest_sums_fit() {
        let picture = Padded { data: vec![255; 300 * 7], size: Size::new(300, 7), stride: 300 };
        for method in [
            "mean:255:1",
            "gaussian:63:1",
            "sauvola:255:0.5",
            "niblack:255:0",
            "wolf:255:0.5",
            "phansalkar:255:0.5",
            "bradley:255:0.001",
            "otsu",
            "triangle",
        ] {
            assert_same(&picture, method);
        }
    }

    #[test]
    fn parameters_beyond_all_pixels_are_all_or_nothing() {
        let picture = Padded::noise(Size::new(9, 7), 5);
        for method in [
            "mean:3:1e300",
            "mean:3:-1e300:inv",
            "gaussian:3:-300",
            "sauvola:3:1e308",
            "niblack:3:-1e308",
            "wolf:3:1e308",
            "wolf:3:-1e308",
            "phansalkar:3:1e308",
            "bradley:3:-1e308",
            "fixed:1e308",
            "fixed:-1e308",
            "background:3:1e308",
            "background:3:-1e308",
            "mean:3:-1e300..1e300",
        ] {
            assert_same(&picture, method);
            assert_same(&picture, &format!("{method}:inv").replace(":inv:inv", ""));
        }
    }

    #[test]
    fn means_in_the_middle_of_two_numbers_are_rounded_to_the_even_one() {
        // Three grey levels beside each other: small blocks have few means, and many of them end in one half.
        let mut picture = Padded::noise(Size::new(150, 40), 11);
        picture.data.iter_mut().for_each(|pixel| *pixel = 100 + *pixel % 3);
        for block in [3, 5, 7, 9] {
            for c in [-1, 0, 1] {
                assert_same(&picture, &format!("gaussian:{block}:{c}"));
                assert_same(&picture, &format!("gaussian:{block}:{c}:inv"));
            }
        }
    }

    #[test]
    fn what_estimates_cannot_tell_gets_the_mean_in_whole_numbers() {
        // Means of stripes of two greys come close to the middle between them: with block 51 of many pixels
        // of a row, with block 255 of one or two.
        let picture = Padded {
            data: (0..150 * 20).map(|i| 100 + (i % 150 % 2) as u8).collect(),
            size: Size::new(150, 20),
            stride: 150,
        };
        for method in ["gaussian:51:0", "gaussian:51:1", "gaussian:255:0", "gaussian:255:1"] {
            assert_same(&picture, method);
            assert_same(&picture, &format!("{method}:inv"));
        }
    }

    #[test]
    fn masks_are_the_references_on_random_pictures() {
        // At least as many as it says.
        let cases = std::env::var("LOCKON_TEST_CASES").map_or(100, |cases| cases.parse().unwrap());
        let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &[11; 32]);
        let config = Config { cases, failure_persistence: None, ..Config::default() };
        let methods = proptest::sample::select(vec![
            "mean",
            "gaussian",
            "gaussian",
            "sauvola",
            "niblack",
            "wolf",
            "phansalkar",
            "bradley",
        ]);
        let spec = (methods, 1..26_usize, 1..26_usize, -20..21_i32, 0..3_i32, any::<bool>());
        let picture = (1..300_usize, 1..40_usize, any::<u64>(), 1..257_usize);
        TestRunner::new_with_rng(config, rng)
            .run(&(spec, picture), |((method, radius, across, steps, band, inverse), (w, h, seed, greys))| {
                let mut picture = Padded::noise(Size::new(w, h), seed);
                // With few grey levels, ties and flat windows are common.
                for pixel in &mut picture.data {
                    *pixel = (usize::from(*pixel) % greys * (255 / greys.min(255))) as u8;
                }
                let step = if ["mean", "bradley"].contains(&method) { 1.0 } else { 10.0 };
                let parameter = f64::from(steps) / step;
                let inverse = if inverse { ":inv" } else { "" };
                let across = if method == "gaussian" { radius } else { across };
                let other = if band > 0 {
                    format!("..{}", f64::from(steps + 4 * band) / step)
                } else {
                    String::new()
                };
                let block = format!("{}x{}", 2 * across + 1, 2 * radius + 1);
                assert_same(&picture, &format!("{method}:{block}:{parameter}{other}{inverse}"));
                Ok(())
            })
            .unwrap();
    }

    #[test]
    fn levels_of_whole_frames_are_the_references_on_random_histograms() {
        let mut state = 77_u64;
        let mut below = |end: u64| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state >> 20) % end
        };
        for case in 0..200 {
            let size = Size::new(1 + below(90) as usize, 1 + below(30) as usize);
            // Two hills or one, few greys or many, and often the ends.
            let (low, high, wide) = (below(256), below(256), 1 + below(60));
            let pixels = (0..size.area()).map(|_| {
                let hill = if below(3) == 0 { low } else { high };
                (hill + below(wide)).saturating_sub(below(wide)).min(255) as u8
            });
            let picture = Padded { data: pixels.collect(), size, stride: size.width };
            let spec = ["otsu", "triangle", "otsu:inv", "triangle:inv"][case % 4];
            assert_same(&picture, spec);
        }
    }

    #[test]
    fn frames_after_each_other_have_the_references_background_for_any_number_of_threads() {
        let size = Size::new(123, 33);
        for spec in ["background:1:4", "background:3:7.25", "background:7:3..11:inv", "background:10000:0"] {
            let spec: ThresholdSpec = spec.parse().unwrap();
            let mut expected = reference::threshold::Background::default();
            let levels = Level::available().into_iter().map(|level| (level, 2));
            let mut all: Vec<_> = levels
                .chain([(Level::best(), 1), (Level::best(), 3)])
                .map(|(level, threads)| (Thresholder::at(level, &spec, size), threads))
                .collect();
            let mut shares = Vec::new();
            for frame in 0..12 {
                let mut picture = Padded::noise(size, 5);
                let moved = picture.stride * 2 * frame + frame % 3;
                picture.data.rotate_left(moved);
                let expected = expected.threshold(picture.view(), &spec);
                for (thresholder, threads) in &mut all {
                    let mut mask = Plane::from_vec(vec![0xFA; 35], Size::new(7, 5));
                    let share = with_threads(*threads, || thresholder.run(picture.view(), &mut mask));
                    assert!(mask == expected, "{spec}, {threads} threads, frame {frame}");
                    shares.push(share);
                }
            }
            assert!(shares.iter().any(|share| (0.01..0.99).contains(share)), "{spec}: {shares:?}");
        }
    }

    #[test]
    fn a_background_continues_in_another_thresholder() {
        let size = Size::new(31, 9);
        let frame = |at: usize| {
            let mut picture = Padded::noise(size, 9);
            picture.data.rotate_left(at * 5);
            picture
        };
        let spec: ThresholdSpec = "background:4:5".parse().unwrap();
        let mut all = Thresholder::new(&spec, size);
        let mut part = Thresholder::new(&spec, size);
        assert_eq!(Thresholder::new(&spec, size).background(), None);
        let (mut expected, mut got) = (Plane::default(), Plane::default());
        for at in 0..9 {
            all.run(frame(at).view(), &mut expected);
            part.run(frame(at).view(), &mut got);
            assert!(got == expected, "frame {at}");
            let background = part.background().expect("there was a frame");
            part = Thresholder::new(&spec, size);
            part.continue_from(background);
        }
    }

    #[test]
    fn an_empty_picture_has_no_foreground() {
        let mut mask = Plane::new(Size::new(2, 2));
        let spec = "mean:3:0".parse().unwrap();
        let empty = PlaneRef::new(&[], Size::new(0, 4), 0);
        assert_eq!(Thresholder::new(&spec, Size::new(0, 4)).run(empty, &mut mask), 0.0);
        assert_eq!(mask.size(), Size::new(0, 4));
    }

    #[test]
    fn rounding_is_half_to_even_over_the_whole_range() {
        for tenth in 0..2560 {
            let value = tenth as f32 / 10.0;
            assert_eq!(round_half_even(value), value.round_ties_even() as i32, "{value}");
        }
        assert_eq!([0.5, 1.5, 2.5, 254.5].map(round_half_even), [0, 2, 2, 254]);
    }
}
