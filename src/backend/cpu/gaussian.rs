//! The Gaussian adaptive threshold: means in f32 where these decide, exact ones where they do not.
//!
//! A pixel v is foreground if the rounded mean around it is less than v + C: if the mean itself is less than v + C - 1/2.
//! Two passes of f32 give the mean with an error of less than 1/200 of a grey level, and so tell
//! nearly all pixels. The others get the mean of the numeric contract, in whole numbers: one by one, or where there are
//! many, row by row.
//!
//! All passes are of `block` taps, folded at the centre because the weights are symmetric. They work on strips of columns,
//! so that the rows which the vertical pass needs stay in the processor's first cache.

use super::simd::{Level, prefetch};
use super::threshold::{Window, byte};
use crate::backend::threshold::{MEAN_BITS, ROW_BITS, WEIGHT_BITS};
use crate::frame::{PlaneRef, Size};

/// Columns of a strip.
const STRIP: usize = 128;

/// Rows by which the picture is fetched before it is blurred.
const AHEAD: usize = 4;

/// Pixels whose sums stay in registers from tap to tap: enough of them that additions need not wait for each other.
const ROW_LANES: usize = 64;

/// The same of the vertical pass, which keeps more than sums in registers.
const LANES: usize = 32;

/// Pixels of a strip's row whose mean is made one by one, at most.
const FEW: usize = 6;

/// Fraction bits that the horizontal pass drops.
const DROPPED_BITS: u32 = WEIGHT_BITS - ROW_BITS;

type Row<T> = [T; STRIP];

/// Distances from a row, for the largest block: 0 to its radius, and one more.
const MAX_PLACES: usize = 129;

/// Places in the ring of the rows at each distance.
type Places = [u16; MAX_PLACES];

/// Working memory of one band of rows, kept from frame to frame.
#[derive(Default)]
pub(super) struct Gaussian {
    estimates: Blur<f32>,
    exact: Blur<u32>,
}

/// Rows of a strip after the horizontal pass, as many as the vertical pass needs.
#[derive(Default)]
struct Blur<T> {
    /// Columns `left - radius..left + STRIP + radius` of a row of the picture, its ends repeated.
    padded: Vec<T>,
    /// Row y of the picture lies in place y % length.
    ring: Vec<Row<T>>,
    /// The first row of the picture that has not been blurred yet.
    next: usize,
}

/// What a pixel is compared with, besides its mean.
#[derive(Clone, Copy)]
struct Rule<'a> {
    /// From the edge to the centre.
    weights: &'a [u32],
    /// The same, adding up to 1 with those of the other side.
    shares: &'a [f32],
    offset: i32,
    inverse: bool,
}

impl Gaussian {
    /// Writes 255 or 0 for every pixel of a band.
    pub(super) fn threshold(
        &mut self,
        level: Level,
        window: &Window<'_>,
        mask: &mut [u8],
        weights: &[u32],
        offset: i32,
        inverse: bool,
    ) {
        // Exact: they have 24 bits.
        let mut shares = [0.0; 128];
        for (share, &weight) in shares.iter_mut().zip(weights) {
            *share = weight as f32 / (1 << WEIGHT_BITS) as f32;
        }
        let rule = Rule { weights, shares: &shares[..weights.len()], offset, inverse };
        let width = window.src.size().width;
        for left in (0..width).step_by(STRIP) {
            self.strip(level, window, left, mask, rule);
        }
    }

    fn strip(&mut self, level: Level, window: &Window<'_>, left: usize, mask: &mut [u8], rule: Rule<'_>) {
        let Self { estimates, exact } = self;
        let Size { width, height } = window.src.size();
        let rows = mask.len() / width;
        let end = (left + STRIP).min(width);
        // A pass adds up radius + 1 positive terms, each rounded when its pair is added and when it is multiplied, and the
        // sum with every term: relative to the mean, less than radius + 3 times the unit roundoff. The exact passes round
        // to 16 fraction bits in between.
        let roundings = 2.0 * (window.radius + 3) as f32;
        let error = 1.01 * 255.0 * roundings * (f32::EPSILON / 2.0) + 1.0 / 65_536.0;
        // One more than the block: two rows of means are made together.
        estimates.start(window, window.block() + 1, window.first);
        exact.start(window, window.block(), window.first);
        for y in (window.first..window.first + rows).step_by(2) {
            let last = (y + 1 + window.radius).min(height - 1);
            while estimates.next <= last {
                estimates.blur_next(level, window, left, |padded, blurred| {
                    if level.has_mul_add() {
                        level.run(
                            #[inline(always)]
                            || estimate_row::<true>(padded, rule.shares, blurred),
                        );
                    } else {
                        estimate_row::<false>(padded, rule.shares, blurred);
                    }
                });
            }
            let mut means = [[0.0; STRIP]; 2];
            if level.has_mul_add() {
                level.run(
                    #[inline(always)]
                    || estimates.means::<true>(y, window, rule.shares, &mut means),
                );
            } else {
                estimates.means::<false>(y, window, rule.shares, &mut means);
            }
            for (y, means) in (y..(y + 2).min(window.first + rows)).zip(&means) {
                let pixels = &window.src.row(y)[left..end];
                let mask = &mut mask[(y - window.first) * width..][left..end];
                let unclear = level.run(
                    #[inline(always)]
                    || decide(pixels, means, error, rule, mask),
                );
                if unclear == 0 {
                    continue;
                }
                let is_unclear = |(pixel, mean): (u8, f32)| margin(pixel, mean, rule).abs() <= error;
                if unclear <= FEW {
                    for (x, (&pixel, &mean)) in pixels.iter().zip(means).enumerate() {
                        if is_unclear((pixel, mean)) {
                            let mean = level.run(
                                #[inline(always)]
                                || mean_at(window.src, (left + x, y), rule.weights),
                            );
                            mask[x] = rule.compare(pixel, mean);
                        }
                    }
                } else {
                    exact.go_to(y, window);
                    while exact.next <= (y + window.radius).min(height - 1) {
                        exact.blur_next(level, window, left, |padded, blurred| {
                            level.run(
                                #[inline(always)]
                                || blur_row(padded, rule.weights, blurred),
                            );
                        });
                    }
                    level.run(
                        #[inline(always)]
                        || {
                            let mut means = [0; STRIP];
                            exact.means(y, window, rule.weights, &mut means);
                            for ((mask, &pixel), &mean) in mask.iter_mut().zip(pixels).zip(&means) {
                                *mask = rule.compare(pixel, mean);
                            }
                        },
                    );
                }
            }
        }
    }
}

impl Rule<'_> {
    #[inline(always)]
    fn compare(&self, pixel: u8, mean: u8) -> u8 {
        byte((i32::from(pixel) > i32::from(mean) - self.offset) != self.inverse)
    }
}

/// How far the mean is below the one at which the pixel becomes background.
#[inline(always)]
fn margin(pixel: u8, mean: f32, rule: Rule<'_>) -> f32 {
    (i32::from(pixel) + rule.offset) as f32 - 0.5 - mean
}

/// Compares pixels with means that may be wrong by `error`, and returns how many are too close to be told.
#[inline(always)]
fn decide(pixels: &[u8], means: &Row<f32>, error: f32, rule: Rule<'_>, mask: &mut [u8]) -> usize {
    let mut unclear = 0_u32;
    for ((mask, &pixel), &mean) in mask.iter_mut().zip(pixels).zip(means) {
        let margin = margin(pixel, mean, rule);
        *mask = byte((margin > 0.0) != rule.inverse);
        unclear += u32::from(margin.abs() <= error);
    }
    unclear as usize
}

impl<T: Copy + Default + From<u8>> Blur<T> {
    /// Prepares for a strip, whose rows are asked for from row `y` on, with `length` rows kept.
    fn start(&mut self, window: &Window<'_>, length: usize, y: usize) {
        self.padded.resize(STRIP + 2 * window.radius, T::default());
        self.ring.resize(length, [T::default(); STRIP]);
        self.next = y.saturating_sub(window.radius);
    }

    /// Leaves out rows that row `y` does not need.
    fn go_to(&mut self, y: usize, window: &Window<'_>) {
        self.next = self.next.max(y.saturating_sub(window.radius));
    }

    /// Blurs one row more.
    fn blur_next(
        &mut self,
        level: Level,
        window: &Window<'_>,
        left: usize,
        blur: impl FnOnce(&[T], &mut Row<T>),
    ) {
        let row = window.src.row(self.next);
        let (padded, radius) = (&mut self.padded[..], window.radius);
        // Where the strip with its surroundings begins and ends in the picture.
        let before = radius.saturating_sub(left);
        let from = left - (radius - before);
        let count = (padded.len() - before).min(row.len() - from);
        // Rows of a strip lie too far apart for the processor to see what comes.
        let ahead = (self.next + AHEAD).min(window.src.size().height - 1);
        prefetch(&window.src.row(ahead)[from..from + count]);
        level.run(
            #[inline(always)]
            || {
                padded[..before].fill(T::from(row[0]));
                for (out, &pixel) in padded[before..][..count].iter_mut().zip(&row[from..]) {
                    *out = T::from(pixel);
                }
                padded[before + count..].fill(T::from(row[row.len() - 1]));
            },
        );
        let place = self.next % self.ring.len();
        blur(padded, &mut self.ring[place]);
        self.next += 1;
    }

    /// The rows around row `y`: first those `0..=radius` above it, then those `0..=radius + 1` below, or the border's.
    #[inline(always)]
    fn around(&self, y: usize, window: &Window<'_>) -> (Places, Places) {
        // Looked up once for all lanes: a remainder takes as long as several additions of vectors.
        let (length, last) = (self.ring.len(), window.src.size().height - 1);
        let (mut above, mut below) = ([0; MAX_PLACES], [0; MAX_PLACES]);
        let distances = 0..window.radius + 2;
        for (distance, (above, below)) in distances.zip(above.iter_mut().zip(&mut below)) {
            *above = (y.saturating_sub(distance) % length) as u16;
            *below = ((y + distance).min(last) % length) as u16;
        }
        (above, below)
    }

    #[inline(always)]
    fn row(&self, places: &Places, distance: usize) -> &Row<T> {
        &self.ring[usize::from(places[distance])]
    }
}

#[inline(always)]
fn multiply_add<const FUSED: bool>(a: f32, b: f32, c: f32) -> f32 {
    if FUSED { a.mul_add(b, c) } else { a * b + c }
}

/// The horizontal pass over one row of a strip.
#[inline(always)]
fn estimate_row<const FUSED: bool>(padded: &[f32], shares: &[f32], blurred: &mut Row<f32>) {
    let radius = shares.len() - 1;
    for (i, blurred) in blurred.as_chunks_mut::<ROW_LANES>().0.iter_mut().enumerate() {
        let lanes = |x: usize| -> &[f32; ROW_LANES] {
            padded[i * ROW_LANES + x..].first_chunk().expect("the padded row has all taps of all lanes")
        };
        let centre = lanes(radius);
        let mut sums = [0.0; ROW_LANES];
        for lane in 0..ROW_LANES {
            sums[lane] = centre[lane] * shares[radius];
        }
        for (tap, &share) in shares[..radius].iter().enumerate() {
            let (a, b) = (lanes(tap), lanes(2 * radius - tap));
            for lane in 0..ROW_LANES {
                sums[lane] = multiply_add::<FUSED>(a[lane] + b[lane], share, sums[lane]);
            }
        }
        *blurred = sums;
    }
}

impl Blur<f32> {
    /// The vertical pass for rows `y` and `y + 1`, together because they share most of what is read.
    #[inline(always)]
    fn means<const FUSED: bool>(
        &self,
        y: usize,
        window: &Window<'_>,
        shares: &[f32],
        means: &mut [Row<f32>; 2],
    ) {
        let radius = window.radius;
        let [first, second] = means;
        let (above_at, below_at) = self.around(y, window);
        for x in (0..STRIP).step_by(LANES) {
            let lanes =
                |row: &Row<f32>| -> [f32; LANES] { *row[x..].first_chunk().expect("a strip is whole lanes") };
            // The rows `distance` above the first and the second, and `distance` below.
            let (mut above, mut below) = (lanes(self.row(&above_at, 0)), lanes(self.row(&below_at, 1)));
            let mut sums = [[0.0; LANES]; 2];
            for lane in 0..LANES {
                sums[0][lane] = above[lane] * shares[radius];
                sums[1][lane] = below[lane] * shares[radius];
            }
            for distance in 1..=radius {
                let share = shares[radius - distance];
                let higher = lanes(self.row(&above_at, distance));
                let lower = lanes(self.row(&below_at, distance + 1));
                for lane in 0..LANES {
                    sums[0][lane] = multiply_add::<FUSED>(higher[lane] + below[lane], share, sums[0][lane]);
                    sums[1][lane] = multiply_add::<FUSED>(above[lane] + lower[lane], share, sums[1][lane]);
                }
                (above, below) = (higher, lower);
            }
            first[x..x + LANES].copy_from_slice(&sums[0]);
            second[x..x + LANES].copy_from_slice(&sums[1]);
        }
    }
}

/// The exact horizontal pass over one row of a strip, rounded half up to `ROW_BITS` fraction bits.
#[inline(always)]
fn blur_row(padded: &[u32], weights: &[u32], blurred: &mut Row<u32>) {
    let radius = weights.len() - 1;
    for (x, blurred) in blurred.iter_mut().enumerate() {
        *blurred = row_mean(&padded[x..][..=2 * radius], weights);
    }
}

/// The exact horizontal pass at one pixel, of which and of whose neighbours `taps` are.
#[inline(always)]
fn row_mean(taps: &[u32], weights: &[u32]) -> u32 {
    let radius = weights.len() - 1;
    let pairs = taps[..radius].iter().zip(taps[radius + 1..].iter().rev()).zip(weights);
    let sum: u32 = pairs.map(|((&a, &b), &weight)| (a + b) * weight).sum();
    (sum + taps[radius] * weights[radius] + (1 << (DROPPED_BITS - 1))) >> DROPPED_BITS
}

/// The exact vertical pass of one pixel: `sum` with all its fraction bits to a whole number, half to even.
#[inline(always)]
fn whole_mean(sum: u64) -> u8 {
    // An odd mean is pushed over by a rest of exactly one half, an even one is not.
    let below_half = (1 << (MEAN_BITS - 1)) - 1;
    ((sum + below_half + ((sum >> MEAN_BITS) & 1)) >> MEAN_BITS) as u8
}

impl Blur<u32> {
    /// The exact vertical pass for row `y`.
    #[inline(always)]
    fn means(&self, y: usize, window: &Window<'_>, weights: &[u32], means: &mut Row<u8>) {
        let radius = window.radius;
        let (above, below) = self.around(y, window);
        let mut sums = self.row(&above, 0).map(|v| u64::from(v) * u64::from(weights[radius]));
        for distance in 1..=radius {
            let weight = u64::from(weights[radius - distance]);
            let pairs = self.row(&above, distance).iter().zip(self.row(&below, distance));
            for (sum, (&a, &b)) in sums.iter_mut().zip(pairs) {
                *sum += u64::from(a + b) * weight;
            }
        }
        for (mean, sum) in means.iter_mut().zip(sums) {
            *mean = whole_mean(sum);
        }
    }
}

/// The exact mean around one pixel.
#[inline(always)]
fn mean_at(src: PlaneRef<'_>, (x, y): (usize, usize), weights: &[u32]) -> u8 {
    let Size { width, height } = src.size();
    let radius = weights.len() - 1;
    let mut taps = [0; 255];
    let taps = &mut taps[..=2 * radius];
    let mut row_at = |y: usize| {
        let row = src.row(y);
        for (i, tap) in taps.iter_mut().enumerate() {
            *tap = u32::from(row[(x + i).saturating_sub(radius).min(width - 1)]);
        }
        u64::from(row_mean(taps, weights))
    };
    let mut sum = row_at(y) * u64::from(weights[radius]);
    for distance in 1..=radius {
        let pair = row_at(y.saturating_sub(distance)) + row_at((y + distance).min(height - 1));
        sum += pair * u64::from(weights[radius - distance]);
    }
    whole_mean(sum)
}
