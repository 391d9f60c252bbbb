//! Adaptive threshold of a frame: bands of rows in parallel, window sums that slide, inner loops over slices.
//!
//! Mean, Sauvola and Niblack cost the same for every block: a column's sum over the window's rows takes one
//! row in and drops one, and a window's sum takes one column in and drops one. The Gaussian has a file of its
//! own (`gaussian.rs`). All of it is exact, so neither the number of bands nor the width of a vector register
//! changes a byte of the mask.

use rayon::prelude::*;

use super::gaussian::Gaussian;
use super::simd::Level;
use crate::backend::threshold;
use crate::config::{ThresholdMethod, ThresholdSpec};
use crate::control::Control;
use crate::frame::{Plane, PlaneRef, Size};

/// Bytes of a mask that are counted together.
const LANES: usize = 64;

/// An adaptive threshold planned for frames of one size.
pub struct Thresholder {
    control: Control,
    level: Level,
    size: Size,
    radius: usize,
    inverse: bool,
    rule: Rule,
    bands: Vec<Band>,
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
}

/// Working memory of one band of rows, kept from frame to frame.
#[derive(Default)]
struct Band {
    sums: WindowSums,
    squares: WindowSums,
    gaussian: Gaussian,
}

impl Thresholder {
    /// Plans `spec` for frames of `size`, for [`Level::best`]. Working memory is taken at the first run.
    pub fn new(spec: &ThresholdSpec, size: Size) -> Self {
        Self::at(Level::best(), spec, size)
    }

    /// As [`Self::new`], with the instructions of a level.
    pub fn at(level: Level, spec: &ThresholdSpec, size: Size) -> Self {
        let rule = match spec.method {
            ThresholdMethod::Mean { c } => Rule::Mean {
                scale: threshold::mean_scale(spec.block),
                offset: threshold::offset(c, spec.inverse),
            },
            ThresholdMethod::Gaussian { c } => {
                let mut weights = threshold::gaussian_weights(spec.block);
                weights.truncate(spec.block / 2 + 1);
                Rule::Gaussian { weights, offset: threshold::offset(c, spec.inverse) }
            }
            ThresholdMethod::Sauvola { k } => Rule::Sauvola { k },
            ThresholdMethod::Niblack { k } => Rule::Niblack { k },
        };
        let control = Control::new();
        Self { control, level, size, radius: spec.block / 2, inverse: spec.inverse, rule, bands: Vec::new() }
    }

    /// As `self`, for a run: once the run is stopped, rows stay unchanged.
    #[must_use]
    pub fn under(self, control: &Control) -> Self {
        Self { control: control.clone(), ..self }
    }

    /// Writes 255 or 0 for every pixel of `src` into `mask` and returns the share of 255, in [0, 1].
    ///
    /// Uses the threads of the rayon pool that it is called in; their number does not change the result.
    /// `mask` gets the frame's size. From the second frame on nothing is allocated. An empty picture has the
    /// share 0.
    ///
    /// # Panics
    /// If `src` is not of the size that this was planned for.
    pub fn run(&mut self, src: PlaneRef<'_>, mask: &mut Plane) -> f64 {
        assert_eq!(src.size(), self.size, "threshold planned for another size");
        mask.resize(self.size);
        if self.size.area() == 0 {
            return 0.0;
        }
        // One band a thread: each band reads `block` rows before it can write its first.
        let rows = self.size.height.div_ceil(rayon::current_num_threads());
        self.bands.resize_with(self.size.height.div_ceil(rows).max(self.bands.len()), Band::default);
        let Self { control, level, size, radius, inverse, rule, bands } = self;
        let control = &*control;
        let (level, radius, inverse) = (*level, *radius, *inverse);
        let foreground: u64 = mask
            .data_mut()
            .par_chunks_mut(rows * size.width)
            .zip(bands)
            .enumerate()
            .map(|(index, (mask, band))| {
                let window = Window { control, src, radius, first: index * rows };
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
                }
                count(level, mask)
            })
            .sum();
        foreground as f64 / size.area() as f64
    }
}

/// The input of a band: rows around each of its own, from row `first` of the picture on.
pub(super) struct Window<'a> {
    pub(super) control: &'a Control,
    pub(super) src: PlaneRef<'a>,
    pub(super) radius: usize,
    pub(super) first: usize,
}

impl<'a> Window<'a> {
    pub(super) fn block(&self) -> usize {
        2 * self.radius + 1
    }

    /// The row `above` rows over row `y + radius`, or the border's.
    fn row(&self, y: usize, above: usize) -> &'a [u8] {
        self.src.row((y + self.radius).saturating_sub(above).min(self.src.size().height - 1))
    }

    /// The band's rows: their places in the picture, their pixels and their part of the mask.
    fn rows<'m>(&self, mask: &'m mut [u8]) -> impl Iterator<Item = (usize, &'a [u8], &'m mut [u8])> {
        let (control, src, first) = (self.control, self.src, self.first);
        mask.chunks_exact_mut(src.size().width)
            .take_while(|_| !control.is_stopped())
            .enumerate()
            .map(move |(i, mask)| (first + i, src.row(first + i), mask))
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
        let n = (window.block() * window.block()) as f64;
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
}

/// Sums over the window around each pixel of a row.
#[derive(Default)]
struct WindowSums {
    /// The row that `columns` stands for.
    at: usize,
    /// For each column of the picture, its ends repeated `radius` times, the sum over the window's rows.
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
        let (width, radius, block) = (window.src.size().width, window.radius, window.block());
        let is_first = y == window.first;
        if is_first {
            self.columns.clear();
            self.columns.resize(width + 2 * radius, 0);
            self.sums.resize(width, 0);
        }
        let inner = &mut self.columns[radius..][..width];
        if is_first {
            for above in 0..block {
                for (sum, &pixel) in inner.iter_mut().zip(window.row(y, above)) {
                    *sum += term(u32::from(pixel));
                }
            }
        } else {
            debug_assert_eq!(y, self.at + 1, "rows come in order");
            let rows = window.row(y, 0).iter().zip(window.row(y, block));
            for (sum, (&enters, &leaves)) in inner.iter_mut().zip(rows) {
                *sum = *sum + term(u32::from(enters)) - term(u32::from(leaves));
            }
        }
        self.at = y;
        let (left, right) = (inner[0], inner[width - 1]);
        self.columns[..radius].fill(left);
        self.columns[radius + width..].fill(right);
        let mut sum = self.columns[..block].iter().sum::<u32>();
        self.sums[0] = sum;
        let ends = self.columns.iter().zip(&self.columns[block..]);
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
            ] {
                assert_same(&picture, method);
                assert_same(&picture, &format!("{method}:inv"));
            }
        }
    }

    #[test]
    fn a_block_larger_than_the_picture_sees_the_replicated_border() {
        let picture = Padded::noise(Size::new(23, 11), 3);
        for method in
            ["mean:255:5", "gaussian:101:3", "gaussian:255:0", "sauvola:101:0.1:inv", "niblack:255:0.3"]
        {
            assert_same(&picture, method);
        }
    }

    #[test]
    fn a_picture_of_one_pixel_has_a_threshold() {
        let picture = Padded { data: vec![200], size: Size::new(1, 1), stride: 1 };
        for method in ["mean:3:5", "gaussian:9:5", "sauvola:3:0.2", "niblack:255:-0.2"] {
            assert_same(&picture, method);
            assert_same(&picture, &format!("{method}:inv"));
        }
    }

    #[test]
    fn the_largest_sums_fit() {
        let picture = Padded { data: vec![255; 300 * 7], size: Size::new(300, 7), stride: 300 };
        for method in ["mean:255:1", "gaussian:63:1", "sauvola:255:0.5", "niblack:255:0"] {
            assert_same(&picture, method);
        }
    }

    #[test]
    fn parameters_beyond_all_pixels_are_all_or_nothing() {
        let picture = Padded::noise(Size::new(9, 7), 5);
        for method in
            ["mean:3:1e300", "mean:3:-1e300:inv", "gaussian:3:-300", "sauvola:3:1e308", "niblack:3:-1e308"]
        {
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
        let methods = proptest::sample::select(vec!["mean", "gaussian", "gaussian", "sauvola", "niblack"]);
        let spec = (methods, 1..26_usize, -20..21_i32, any::<bool>());
        let picture = (1..300_usize, 1..40_usize, any::<u64>(), 1..257_usize);
        TestRunner::new_with_rng(config, rng)
            .run(&(spec, picture), |((method, radius, steps, inverse), (w, h, seed, greys))| {
                let mut picture = Padded::noise(Size::new(w, h), seed);
                // With few grey levels, ties and flat windows are common.
                for pixel in &mut picture.data {
                    *pixel = (usize::from(*pixel) % greys * (255 / greys.min(255))) as u8;
                }
                let parameter = f64::from(steps) / if method == "mean" { 1.0 } else { 10.0 };
                let inverse = if inverse { ":inv" } else { "" };
                assert_same(&picture, &format!("{method}:{}:{parameter}{inverse}", 2 * radius + 1));
                Ok(())
            })
            .unwrap();
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
