//! Adaptive threshold of a frame: bands of rows in parallel, window sums that slide, integer inner loops.
//!
//! Mean, Sauvola and Niblack cost the same for every block: a column's sum over the window's rows takes one row in and
//! drops one, and a window's sum is a difference of two running sums along the row. The Gaussian is two passes of `block`
//! taps, folded at the centre because the weights are symmetric; a ring keeps the rows that the vertical pass still needs.
//! All of it is exact, so neither the number of bands nor the width of a vector register changes a byte of the mask.

use rayon::prelude::*;

use crate::backend::threshold::{self, MEAN_BITS, ROW_BITS, WEIGHT_BITS};
use crate::config::{ThresholdMethod, ThresholdSpec};
use crate::frame::{Plane, PlaneRef, Size};

/// Pixels that the Gaussian's inner loops work on together: their sums stay in registers from tap to tap.
const LANES: usize = 16;

/// An adaptive threshold planned for frames of one size.
pub struct Thresholder {
    size: Size,
    radius: usize,
    inverse: bool,
    rule: Rule,
    bands: Vec<Band>,
}

/// How a pixel is compared, with what can be computed before a frame is there.
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
    blur: Blur,
}

impl Thresholder {
    /// Plans `spec` for frames of `size`. Working memory is taken at the first run.
    pub fn new(spec: &ThresholdSpec, size: Size) -> Self {
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
        Self { size, radius: spec.block / 2, inverse: spec.inverse, rule, bands: Vec::new() }
    }

    /// Writes 255 or 0 for every pixel of `src` into `mask` and returns the share of 255, in [0, 1].
    ///
    /// Uses the threads of the rayon pool that it is called in; their number does not change the result. `mask` gets the
    /// frame's size. From the second frame on nothing is allocated. An empty picture has the share 0.
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
        let Self { size, radius, inverse, rule, bands } = self;
        let (radius, inverse) = (*radius, *inverse);
        let foreground: u64 = mask
            .data_mut()
            .par_chunks_mut(rows * size.width)
            .zip(bands)
            .enumerate()
            .map(|(index, (mask, band))| {
                let window = Window { src, radius, first: index * rows };
                match *rule {
                    Rule::Mean { scale, offset } => band.mean(&window, mask, scale, offset, inverse),
                    Rule::Gaussian { ref weights, offset } => {
                        band.gaussian(&window, mask, weights, offset, inverse)
                    }
                    Rule::Sauvola { k } => {
                        band.deviation(&window, mask, inverse, |m, s| m * (1.0 + k * (s / 128.0 - 1.0)))
                    }
                    Rule::Niblack { k } => band.deviation(&window, mask, inverse, |m, s| m + k * s),
                }
            })
            .sum();
        foreground as f64 / size.area() as f64
    }
}

/// Where a band looks: at rows around each of its own, from row `first` of the picture on.
struct Window<'a> {
    src: PlaneRef<'a>,
    radius: usize,
    first: usize,
}

impl<'a> Window<'a> {
    fn block(&self) -> usize {
        2 * self.radius + 1
    }

    /// The row `above` rows over row `y + radius`, or the border's.
    fn row(&self, y: usize, above: usize) -> &'a [u8] {
        self.src.row((y + self.radius).saturating_sub(above).min(self.src.size().height - 1))
    }

    /// The band's rows: their places in the picture, their pixels and their part of the mask.
    fn rows<'m>(&self, mask: &'m mut [u8]) -> impl Iterator<Item = (usize, &'a [u8], &'m mut [u8])> {
        let (src, first) = (self.src, self.first);
        mask.chunks_exact_mut(src.size().width)
            .enumerate()
            .map(move |(i, mask)| (first + i, src.row(first + i), mask))
    }
}

impl Band {
    fn mean(&mut self, window: &Window<'_>, mask: &mut [u8], scale: f32, offset: i32, inverse: bool) -> u64 {
        let mut foreground = 0;
        for (y, pixels, mask) in window.rows(mask) {
            self.sums.slide_to(y, window, |v| v);
            for ((mask, &pixel), s) in mask.iter_mut().zip(pixels).zip(self.sums.of_row(window)) {
                // The sum fits in 24 bits, so it is exact in f32 and converts as a signed number, which is cheaper.
                let mean = round_half_even(s as i32 as f32 * scale);
                *mask = byte((i32::from(pixel) > mean - offset) != inverse);
            }
            foreground += count(mask);
        }
        foreground
    }

    fn deviation(
        &mut self,
        window: &Window<'_>,
        mask: &mut [u8],
        inverse: bool,
        threshold: impl Fn(f64, f64) -> f64,
    ) -> u64 {
        let n = (window.block() * window.block()) as f64;
        let mut foreground = 0;
        for (y, pixels, mask) in window.rows(mask) {
            self.sums.slide_to(y, window, |v| v);
            self.squares.slide_to(y, window, |v| v * v);
            let sums = self.sums.of_row(window).zip(self.squares.of_row(window));
            for ((mask, &pixel), (s, ss)) in mask.iter_mut().zip(pixels).zip(sums) {
                // n * SS and S * S are below 2^49, so f64 holds them and their difference exactly.
                let (s, ss) = (f64::from(s), f64::from(ss));
                let deviation = ((n * ss - s * s) / (n * n)).sqrt();
                *mask = byte((f64::from(pixel) > threshold(s / n, deviation)) != inverse);
            }
            foreground += count(mask);
        }
        foreground
    }

    fn gaussian(
        &mut self,
        window: &Window<'_>,
        mask: &mut [u8],
        weights: &[u32],
        offset: i32,
        inverse: bool,
    ) -> u64 {
        let mut foreground = 0;
        self.blur.start(window);
        for (y, pixels, mask) in window.rows(mask) {
            self.blur.advance_to(y, window, weights);
            for (i, (mask, pixels)) in mask.chunks_mut(LANES).zip(pixels.chunks(LANES)).enumerate() {
                let means = self.blur.means(y, i * LANES, window, weights);
                for ((mask, &pixel), mean) in mask.iter_mut().zip(pixels).zip(means) {
                    *mask = byte((i32::from(pixel) > i32::from(mean) - offset) != inverse);
                }
            }
            foreground += count(mask);
        }
        foreground
    }
}

/// Sums over the window around each pixel of a row.
#[derive(Default)]
struct WindowSums {
    /// The row that `columns` stands for.
    at: usize,
    /// For each column of the picture, the sum over the window's rows.
    columns: Vec<u32>,
    /// Running sums of `columns` with its ends repeated `radius` times. It may wrap: differences do not.
    running: Vec<u32>,
}

impl WindowSums {
    /// Moves to row `y`, the band's first or the one after the last, and sums `term` of the pixels.
    ///
    /// A window of squares is at most 255^4 < 2^32.
    fn slide_to(&mut self, y: usize, window: &Window<'_>, term: impl Fn(u32) -> u32) {
        if y == window.first {
            self.columns.clear();
            self.columns.resize(window.src.size().width, 0);
            for above in 0..window.block() {
                for (sum, &pixel) in self.columns.iter_mut().zip(window.row(y, above)) {
                    *sum += term(u32::from(pixel));
                }
            }
        } else {
            debug_assert_eq!(y, self.at + 1, "rows come in order");
            let rows = window.row(y, 0).iter().zip(window.row(y, window.block()));
            for (sum, (&enters, &leaves)) in self.columns.iter_mut().zip(rows) {
                *sum = *sum + term(u32::from(enters)) - term(u32::from(leaves));
            }
        }
        self.at = y;
        let (left, right) = (self.columns[0], self.columns[self.columns.len() - 1]);
        let ends = |value| std::iter::repeat_n(value, window.radius);
        let padded = ends(left).chain(self.columns.iter().copied()).chain(ends(right));
        self.running.clear();
        self.running.push(0);
        self.running.extend(padded.scan(0_u32, |sum, column| {
            *sum = sum.wrapping_add(column);
            Some(*sum)
        }));
    }

    /// The sum of the window around each pixel of the row, from left to right.
    fn of_row<'s>(&'s self, window: &Window<'_>) -> impl Iterator<Item = u32> + use<'s> {
        self.running[window.block()..].iter().zip(&self.running).map(|(end, start)| end.wrapping_sub(*start))
    }
}

/// Rows after the Gaussian's horizontal pass, as many as its vertical pass needs.
#[derive(Default)]
struct Blur {
    /// One row of the picture with its ends repeated, so that all taps of all lanes are there.
    padded: Vec<u8>,
    /// Row y of the picture lies in place y % block.
    ring: Vec<u32>,
    /// Length of a row in `ring`: the width rounded up to whole lanes.
    stride: usize,
    /// The first row of the picture that has not been blurred yet.
    next: usize,
}

impl Blur {
    /// Prepares for the band's first row.
    fn start(&mut self, window: &Window<'_>) {
        self.stride = window.src.size().width.next_multiple_of(LANES);
        self.padded.resize(self.stride + 2 * window.radius, 0);
        self.ring.resize(window.block() * self.stride, 0);
        self.next = window.first.saturating_sub(window.radius);
    }

    /// Blurs the rows down to `radius` below row `y`.
    fn advance_to(&mut self, y: usize, window: &Window<'_>, weights: &[u32]) {
        let Size { width, height } = window.src.size();
        while self.next <= (y + window.radius).min(height - 1) {
            let row = window.src.row(self.next);
            let (left, rest) = self.padded.split_at_mut(window.radius);
            let (middle, right) = rest.split_at_mut(width);
            left.fill(row[0]);
            middle.copy_from_slice(row);
            right.fill(row[width - 1]);
            let place = self.next % window.block() * self.stride;
            blur_row(&self.padded, weights, &mut self.ring[place..][..self.stride]);
            self.next += 1;
        }
    }

    /// The rounded means of `LANES` pixels of row `y` from column `x` on; those past the picture mean nothing.
    fn means(&self, y: usize, x: usize, window: &Window<'_>, weights: &[u32]) -> [u8; LANES] {
        let last = window.src.size().height - 1;
        let lanes = |row: usize| -> &[u32; LANES] {
            let place = row % window.block() * self.stride + x;
            self.ring[place..].first_chunk().expect("rows of the ring are whole lanes")
        };
        let radius = window.radius;
        let mut sums = lanes(y).map(|v| u64::from(v) * u64::from(weights[radius]));
        for (i, &weight) in weights[..radius].iter().enumerate() {
            let distance = radius - i;
            let above = lanes(y.saturating_sub(distance));
            let below = lanes((y + distance).min(last));
            for ((sum, &a), &b) in sums.iter_mut().zip(above).zip(below) {
                *sum += u64::from(a + b) * u64::from(weight);
            }
        }
        // Half to even: an odd mean is pushed over by a rest of exactly one half, an even one is not.
        let below_half = (1 << (MEAN_BITS - 1)) - 1;
        sums.map(|sum| ((sum + below_half + ((sum >> MEAN_BITS) & 1)) >> MEAN_BITS) as u8)
    }
}

/// The horizontal pass over one row with its ends repeated, rounded half up to `ROW_BITS` fraction bits.
fn blur_row(padded: &[u8], weights: &[u32], blurred: &mut [u32]) {
    const DROPPED_BITS: u32 = WEIGHT_BITS - ROW_BITS;
    let radius = weights.len() - 1;
    let lanes = |x: usize| -> &[u8; LANES] {
        padded[x..].first_chunk().expect("the padded row has all taps of all lanes")
    };
    for (i, blurred) in blurred.chunks_exact_mut(LANES).enumerate() {
        let x = i * LANES;
        let half = 1 << (DROPPED_BITS - 1);
        let mut sums = lanes(x + radius).map(|v| half + u32::from(v) * weights[radius]);
        for (tap, &weight) in weights[..radius].iter().enumerate() {
            let pairs = lanes(x + tap).iter().zip(lanes(x + 2 * radius - tap));
            for (sum, (&a, &b)) in sums.iter_mut().zip(pairs) {
                *sum += (u32::from(a) + u32::from(b)) * weight;
            }
        }
        for (blurred, sum) in blurred.iter_mut().zip(sums) {
            *blurred = sum >> DROPPED_BITS;
        }
    }
}

/// `value` to the nearest whole number, half to even, for values from 0 to 2^22.
fn round_half_even(value: f32) -> i32 {
    // An f32 of this size has no fraction bits, so the addition itself rounds, and the low bits are the number:
    // `round_ties_even` would be a call per pixel on processors without SSE4.1.
    const ROUNDER: f32 = 12_582_912.0;
    ((value + ROUNDER).to_bits() - ROUNDER.to_bits()) as i32
}

fn byte(is_foreground: bool) -> u8 {
    u8::from(is_foreground).wrapping_neg()
}

/// Number of bytes that are 255, the others being 0.
fn count(mask: &[u8]) -> u64 {
    // A byte counts 255 of them before it is full; wide counters would need one addition for every four pixels.
    mask.chunks(255 * LANES)
        .map(|chunk| {
            let mut counts = [0_u8; LANES];
            for lanes in chunk.chunks(LANES) {
                for (count, &byte) in counts.iter_mut().zip(lanes) {
                    *count += byte & 1;
                }
            }
            counts.iter().map(|&c| u64::from(c)).sum::<u64>()
        })
        .sum()
}

#[cfg(test)]
mod tests {
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
        for threads in [1, 2, 3] {
            let mut thresholder = Thresholder::new(&spec, picture.size);
            // The second run starts from what the first left behind.
            for run in 0..2 {
                let mut mask = Plane::from_vec(vec![0xFA; 35], Size::new(7, 5));
                let got = with_threads(threads, || thresholder.run(picture.view(), &mut mask));
                assert!(
                    mask == expected && got == share,
                    "{spec} of {}, {threads} threads, run {run}",
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
        for method in ["mean:255:5", "gaussian:101:3", "sauvola:101:0.1:inv", "niblack:255:0.3"] {
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
