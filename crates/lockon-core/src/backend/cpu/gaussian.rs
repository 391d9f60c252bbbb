//! The Gaussian adaptive threshold: means in f32 where these decide, exact ones where they do not.
//!
//! A pixel v is foreground if the rounded mean around it is less than v + C: if the mean itself is less than
//! v + C - 1/2. Two passes of f32 compute the mean with an error of less than 1/900 of a grey level. That
//! decides nearly all pixels. Pixels within the error, ties among them, get the mean of the numeric contract,
//! in whole numbers: one by one, or where there are many, row by row. For blocks up to 9 the estimates are
//! exact, and are rounded half to even themselves.
//!
//! All passes are of `block` taps, folded at the centre because the weights are symmetric. They work on
//! strips of columns, so that the rows which the vertical pass needs stay in the processor's first cache.
//!
//! The passes of f32 have the columns of a strip interleaved: it is cut into `RUNS` runs of `RUN` columns,
//! and a vector holds column j of each run. The vector of the pixels beside these is that of columns j + 1,
//! so the sums of neighbours share what they read, as those of rows below each other do: both passes are one
//! convolution, which makes `RUN` columns or `ROWS` rows beside each other. In order, each tap of each sum
//! would be a vector of its own, which mostly lies across two lines of the cache.

use super::simd::{Level, prefetch};
use super::threshold::{Window, byte, round_half_even};
use crate::backend::threshold::{MEAN_BITS, ROW_BITS, WEIGHT_BITS};
use crate::frame::{PlaneRef, Size};

/// Runs of a strip: as many as the widest vector has lanes.
const RUNS: usize = 16;

/// Columns of a run: as many as two words have bytes, so that shifts of words interleave runs.
const RUN: usize = 8;

/// Columns of a strip.
const STRIP: usize = RUNS * RUN;

/// Columns that are interleaved at a time.
const CHUNK: usize = 64;

/// Taps of the largest block.
const MAX_BLOCK: usize = 255;

/// Columns of a strip with its surroundings, for the largest block, in whole chunks.
const PADDED: usize = (STRIP + MAX_BLOCK - 1).next_multiple_of(CHUNK);

/// Room for column j of each run of a padded strip: a power of two, by which a shift multiplies.
const LINE: usize = (PADDED / RUN).next_power_of_two();

/// Rows whose means are made together: as many as columns of a run.
const ROWS: usize = 8;

/// Rows by which the picture is fetched before it is blurred.
const AHEAD: usize = 4;

/// Lanes of the passes of f32 where registers are too few or too narrow for `RUNS`: two or one of theirs.
const FEW_LANES: usize = 8;

/// Pixels of a strip's row whose mean is made one by one, at most.
const FEW: usize = 6;

/// Fraction bits that the horizontal pass drops.
const DROPPED_BITS: u32 = WEIGHT_BITS - ROW_BITS;

/// A row of a strip, in whole lines of the cache. That of f32 is interleaved.
#[derive(Clone, Copy)]
#[repr(align(64))]
struct Row<T>([T; STRIP]);

/// Interleaved columns of a strip with its surroundings, which continue the runs: column x is at x % RUN *
/// LINE + x / RUN.
#[repr(align(64))]
struct Interleaved([f32; RUN * LINE]);

/// Places in the ring of the rows around some.
type Places = [u16; MAX_BLOCK + ROWS - 1];

/// Working memory of one band of rows, kept from frame to frame.
#[derive(Default)]
pub(super) struct Gaussian {
    interleaved: Interleaved,
    estimates: Blur<f32>,
    means: [Row<f32>; ROWS],
    exact: Blur<u32>,
}

/// Rows of a strip after the horizontal pass, as many as the vertical pass needs.
#[derive(Default)]
struct Blur<T> {
    /// A row of the picture from column `left - radius` on, its ends repeated, where a strip needs more than
    /// there is.
    padded: Vec<u8>,
    /// Row y of the picture lies in place y % length.
    ring: Vec<Row<T>>,
    /// The first row of the picture that has not been blurred yet.
    next: usize,
}

/// The values that a pixel is compared with, besides its mean.
#[derive(Clone, Copy)]
struct Rule<'a> {
    /// From the edge to the centre.
    weights: &'a [u32],
    /// The weights as fractions, adding up to 1 with those of the other side.
    shares: &'a [f32],
    /// How far an estimate is from the mean of the numeric contract, at most. It is that mean where this is
    /// 0.
    error: f32,
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
        let shares = &shares[..weights.len()];
        let error = if are_exact(weights) { 0.0 } else { largest_error(shares) };
        let rule = Rule { weights, shares, error, offset, inverse };
        let width = window.src.size().width;
        for left in (0..width).step_by(STRIP) {
            self.strip(level, window, left, mask, rule);
        }
    }

    fn strip(&mut self, level: Level, window: &Window<'_>, left: usize, mask: &mut [u8], rule: Rule<'_>) {
        let Size { width, height } = window.src.size();
        let rows = mask.len() / width;
        let end = (left + STRIP).min(width);
        self.estimates.start(window, window.block() + ROWS - 1, window.first);
        self.exact.start(window, window.block(), window.first);
        for y in (window.first..window.first + rows).step_by(ROWS) {
            self.estimate(level, window, (left, y), rule);
            let Self { means, exact, .. } = self;
            for (y, means) in (y..(y + ROWS).min(window.first + rows)).zip(means) {
                let pixels = &window.src.row(y)[left..end];
                let mask = &mut mask[(y - window.first) * width..][left..end];
                let decide = |pixels: &[u8; STRIP], mask: &mut [u8; STRIP]| {
                    level.run(
                        #[inline(always)]
                        || decide(pixels, means, rule, mask),
                    )
                };
                let whole = (pixels.first_chunk(), mask.first_chunk_mut());
                let least = if let (Some(pixels), Some(mask)) = whole {
                    decide(pixels, mask)
                } else {
                    let (mut whole, mut decided) = ([0; STRIP], [0; STRIP]);
                    whole[..pixels.len()].copy_from_slice(pixels);
                    let least = decide(&whole, &mut decided);
                    mask.copy_from_slice(&decided[..mask.len()]);
                    least
                };
                if least > rule.error {
                    continue;
                }
                let is_unclear = |(x, &pixel): (usize, &u8)| {
                    margin(pixel.into(), means.0[x % RUN * RUNS + x / RUN], rule).abs() <= rule.error
                };
                let unclear = pixels.iter().enumerate().filter(|&pixel| is_unclear(pixel));
                if unclear.clone().nth(FEW).is_none() {
                    for (x, &pixel) in unclear {
                        let mean = level.run(
                            #[inline(always)]
                            || mean_at(window.src, (left + x, y), rule.weights),
                        );
                        mask[x] = rule.compare(pixel, mean);
                    }
                } else {
                    exact.go_to(y, window);
                    while exact.next <= (y + window.radius).min(height - 1) {
                        exact.blur_next(window, left, |padded, blurred| {
                            level.run(
                                #[inline(always)]
                                || blur_row(padded, rule.weights, blurred),
                            );
                        });
                    }
                    level.run(
                        #[inline(always)]
                        || {
                            let means = exact.means(y, window, rule.weights);
                            for ((mask, &pixel), mean) in mask.iter_mut().zip(pixels).zip(means) {
                                *mask = rule.compare(pixel, mean);
                            }
                        },
                    );
                }
            }
        }
    }

    /// Estimates the means of `ROWS` rows of the strip at `left`, from row `y` on.
    fn estimate(&mut self, level: Level, window: &Window<'_>, (left, y): (usize, usize), rule: Rule<'_>) {
        let Self { interleaved, estimates, means, .. } = self;
        let last = (y + ROWS - 1 + window.radius).min(window.src.size().height - 1);
        while estimates.next <= last {
            estimates.blur_next(window, left, |padded, blurred| {
                if level.has_wide_vectors() {
                    level.run(
                        #[inline(always)]
                        || estimate_row::<true, RUNS>(interleaved, padded, rule.shares, blurred),
                    );
                } else if level.has_mul_add() {
                    level.run(
                        #[inline(always)]
                        || estimate_row::<true, FEW_LANES>(interleaved, padded, rule.shares, blurred),
                    );
                } else {
                    estimate_row::<false, FEW_LANES>(interleaved, padded, rule.shares, blurred);
                }
            });
        }
        if level.has_wide_vectors() {
            level.run(
                #[inline(always)]
                || estimates.means::<true, RUNS>(y, window, rule, means),
            );
        } else if level.has_mul_add() {
            level.run(
                #[inline(always)]
                || estimates.means::<true, FEW_LANES>(y, window, rule, means),
            );
        } else {
            estimates.means::<false, FEW_LANES>(y, window, rule, means);
        }
    }
}

/// True if estimates with these weights are the mean of the numeric contract but for its last rounding.
///
/// Weights of 8 fraction bits make whole numbers of 1/2^8 of the rows and of 1/2^16 of the columns, up to
/// 255. f32 holds all of these, so that nothing is rounded, nor is it in the exact passes before the mean
/// itself. Blocks up to 9 are such.
fn are_exact(weights: &[u32]) -> bool {
    weights.iter().all(|weight| weight.trailing_zeros() >= WEIGHT_BITS - 8)
}

/// How far an estimate is from the mean of the numeric contract, at most.
///
/// A pass rounds the sum of each pair, each product, and the running sum after each tap. Terms are positive
/// and 255 at most when all are added up, so all pairs make an error of one unit roundoff of 255, all
/// products too, and the sums one of the running sum each time: little at first, because the weights at the
/// edge are. The second pass inherits the error of the first. The exact passes round to 16 fraction bits in
/// between.
fn largest_error(shares: &[f32]) -> f32 {
    let (centre, pairs) = shares.split_last().expect("the centre has a weight");
    let (mut added, mut roundings) = (*centre, 2.0);
    for share in pairs {
        added += 2.0 * share;
        roundings += added;
    }
    // A hundredth more for the products of errors, and for this sum.
    1.01 * 255.0 * 2.0 * roundings * (f32::EPSILON / 2.0) + 1.0 / 65_536.0
}

impl Rule<'_> {
    #[inline(always)]
    fn compare(&self, pixel: u8, mean: u8) -> u8 {
        byte((i32::from(pixel) > i32::from(mean) - self.offset) != self.inverse)
    }
}

/// The distance of the mean below the one at which the pixel becomes background.
#[inline(always)]
fn margin(pixel: i32, mean: f32, rule: Rule<'_>) -> f32 {
    (pixel + rule.offset) as f32 - 0.5 - mean
}

/// The two words of each run. Shifts of them give the pixels of a column for all runs.
#[inline(always)]
fn words(bytes: &[u8; STRIP]) -> [[u32; RUNS]; 2] {
    let mut words = [[0; RUNS]; 2];
    for (run, &[a, b, c, d, e, f, g, h]) in bytes.as_chunks::<RUN>().0.iter().enumerate() {
        words[0][run] = u32::from_le_bytes([a, b, c, d]);
        words[1][run] = u32::from_le_bytes([e, f, g, h]);
    }
    words
}

/// Compares pixels with estimates, and returns how near a pixel is to being neither, at the least.
#[inline(always)]
fn decide(pixels: &[u8; STRIP], means: &Row<f32>, rule: Rule<'_>, mask: &mut [u8; STRIP]) -> f32 {
    let mut least = [f32::INFINITY; RUNS];
    let mut background = [[0; RUNS]; 2];
    let halves = words(pixels).into_iter().zip(means.0.as_chunks::<{ STRIP / 2 }>().0);
    for ((mut word, means), background) in halves.zip(&mut background) {
        for means in means.as_chunks::<RUNS>().0 {
            for run in 0..RUNS {
                let margin = margin((word[run] & 0xFF) as i32, means[run], rule);
                word[run] >>= 8;
                // Comes in above what the columns before have left: a byte full of the sign.
                let sign = (margin.to_bits() as i32 >> 31) as u32;
                background[run] = background[run] >> 8 | (sign & 0xFF00_0000);
                let distance = margin.abs();
                least[run] = if distance < least[run] { distance } else { least[run] };
            }
        }
    }
    let flip = if rule.inverse { 0 } else { u64::MAX };
    for (run, mask) in mask.as_chunks_mut::<RUN>().0.iter_mut().enumerate() {
        *mask = (flip ^ (u64::from(background[0][run]) | u64::from(background[1][run]) << 32)).to_le_bytes();
    }
    least.into_iter().fold(f32::INFINITY, |a, b| if a < b { a } else { b })
}

impl<T: Copy + Default> Default for Row<T> {
    fn default() -> Self {
        Self([T::default(); STRIP])
    }
}

impl Default for Interleaved {
    fn default() -> Self {
        Self([0.0; RUN * LINE])
    }
}

impl Interleaved {
    /// Interleaves the pixels of a row.
    #[inline(always)]
    fn fill(&mut self, padded: &[u8]) {
        const N: usize = CHUNK / RUN;
        for (i, bytes) in padded.as_chunks::<CHUNK>().0.iter().enumerate() {
            let mut words = [[0; N]; 2];
            for (run, bytes) in bytes.as_chunks::<RUN>().0.iter().enumerate() {
                let word = u64::from_le_bytes(*bytes);
                words[0][run] = word as u32;
                words[1][run] = (word >> 32) as u32;
            }
            for (column, out) in self.0.as_chunks_mut::<LINE>().0.iter_mut().enumerate() {
                let out = &mut out.as_chunks_mut::<N>().0[i];
                for run in 0..N {
                    out[run] = ((words[column / 4][run] >> (column % 4 * 8)) & 0xFF) as i32 as f32;
                }
            }
        }
    }

    /// Column `x` of the strip, with those of the runs behind it.
    #[inline(always)]
    fn column<const LANES: usize>(&self, x: usize) -> [f32; LANES] {
        let at = x % RUN * LINE + x / RUN;
        *self.0[at..].first_chunk().expect("the padded row has all taps of all runs")
    }
}

impl<T: Copy + Default> Blur<T> {
    /// Prepares for a strip, whose rows are asked for from row `y` on, with `length` rows kept.
    fn start(&mut self, window: &Window<'_>, length: usize, y: usize) {
        self.padded.resize((STRIP + 2 * window.radius).next_multiple_of(CHUNK), 0);
        self.ring.resize(length, Row([T::default(); STRIP]));
        self.next = y.saturating_sub(window.radius);
    }

    /// Leaves out rows that row `y` does not need.
    fn go_to(&mut self, y: usize, window: &Window<'_>) {
        self.next = self.next.max(y.saturating_sub(window.radius));
    }

    /// Blurs one row more.
    fn blur_next(&mut self, window: &Window<'_>, left: usize, blur: impl FnOnce(&[u8], &mut Row<T>)) {
        let row = window.src.row(self.next);
        let (padded, radius) = (&mut self.padded[..], window.radius);
        // Where the strip with its surroundings begins and ends in the picture.
        let before = radius.saturating_sub(left);
        let from = left - (radius - before);
        let count = (padded.len() - before).min(row.len() - from);
        // Rows of a strip lie too far apart for the processor's prefetcher.
        let ahead = (self.next + AHEAD).min(window.src.size().height - 1);
        prefetch(&window.src.row(ahead)[from..from + count]);
        let padded = if count == padded.len() {
            &row[from..][..count]
        } else {
            padded[..before].fill(row[0]);
            padded[before..][..count].copy_from_slice(&row[from..][..count]);
            padded[before + count..].fill(row[row.len() - 1]);
            padded
        };
        let place = self.next % self.ring.len();
        blur(padded, &mut self.ring[place]);
        self.next += 1;
    }

    /// The rows around `rows` rows, from `radius` above row `y` on: their places, or those of the border's.
    #[inline(always)]
    fn around(&self, y: usize, rows: usize, window: &Window<'_>) -> Places {
        // Looked up once for all lanes, and by one remainder: it takes as long as several additions of
        // vectors.
        let first = y.saturating_sub(window.radius);
        let (start, length) = ((first % self.ring.len()) as i16, self.ring.len() as i16);
        let count = window.block() + rows - 1;
        let repeated = (first + window.radius - y) as i16;
        let last = (window.src.size().height - 1 - first).min(count) as i16;
        let mut places = [0; MAX_BLOCK + ROWS - 1];
        for (i, place) in places[..count].iter_mut().enumerate() {
            let at = start + (i as i16 - repeated).clamp(0, last);
            *place = (if at < length { at } else { at - length }) as u16;
        }
        places
    }

    #[inline(always)]
    fn row(&self, places: &Places, i: usize) -> &Row<T> {
        &self.ring[usize::from(places[i])]
    }
}

#[inline(always)]
fn multiply_add<const FUSED: bool>(a: f32, b: f32, c: f32) -> f32 {
    if FUSED { a.mul_add(b, c) } else { a * b + c }
}

/// Adds to `sum` the share of two vectors.
#[inline(always)]
fn fold<const FUSED: bool, const LANES: usize>(
    a: [f32; LANES],
    b: [f32; LANES],
    share: f32,
    mut sum: [f32; LANES],
) -> [f32; LANES] {
    for lane in 0..LANES {
        sum[lane] = multiply_add::<FUSED>(a[lane] + b[lane], share, sum[lane]);
    }
    sum
}

/// Defines a function that returns `$sums` neighbouring sums of the vectors that `at` gives: `shares`, from
/// the edge to the centre, times vectors 0 to 2 * radius, times 1 to 2 * radius + 1 and so on. Each tap reads
/// two vectors, whatever `$sums`.
///
/// Not an array's length, because in a loop over sums the compiler would make vectors of these, not of lanes.
macro_rules! convolution {
    ($name:ident, $sums:literal: 0 $($next:literal)*) => {
        #[inline(always)]
        fn $name<const FUSED: bool, const LANES: usize>(
            shares: &[f32],
            at: impl Fn(usize) -> [f32; LANES],
        ) -> [[f32; LANES]; $sums] {
            let radius = shares.len() - 1;
            let (centre, end) = (shares[radius], 2 * radius);
            let mut left = [at(0), $(at($next)),*];
            let mut right = [at(end), $(at(end + $next)),*];
            // To add -0 is to add nothing, even for the compiler.
            let none = [-0.0; LANES];
            let mut sums = [
                fold::<FUSED, LANES>(at(radius), none, centre, none),
                $(fold::<FUSED, LANES>(at(radius + $next), none, centre, none)),*
            ];
            for (tap, &share) in shares[..radius].iter().enumerate() {
                sums = [
                    fold::<FUSED, LANES>(left[0], right[0], share, sums[0]),
                    $(fold::<FUSED, LANES>(left[$next], right[$next], share, sums[$next])),*
                ];
                left = [$(left[$next],)* at(tap + $sums)];
                right = [at(end - tap - 1), $(right[$next - 1]),*];
            }
            sums
        }
    };
}

convolution!(convolve_4, 4: 0 1 2 3);
convolution!(convolve_8, 8: 0 1 2 3 4 5 6 7);

/// Gives `put` eight neighbouring sums and their numbers: all at once with vectors of AVX-512, which has 32
/// of them, otherwise four at a time.
#[inline(always)]
fn convolve<const FUSED: bool, const LANES: usize>(
    shares: &[f32],
    at: impl Fn(usize) -> [f32; LANES],
    mut put: impl FnMut(usize, [f32; LANES]),
) {
    if LANES == RUNS {
        for (i, sum) in convolve_8::<FUSED, LANES>(shares, at).into_iter().enumerate() {
            put(i, sum);
        }
    } else {
        for half in [0, 4] {
            let sums = convolve_4::<FUSED, LANES>(
                shares,
                #[inline(always)]
                |i| at(half + i),
            );
            for (i, sum) in sums.into_iter().enumerate() {
                put(half + i, sum);
            }
        }
    }
}

/// The horizontal pass over one row of a strip.
#[inline(always)]
fn estimate_row<const FUSED: bool, const LANES: usize>(
    interleaved: &mut Interleaved,
    padded: &[u8],
    shares: &[f32],
    blurred: &mut Row<f32>,
) {
    interleaved.fill(padded);
    for run in (0..RUNS).step_by(LANES) {
        convolve::<FUSED, LANES>(
            shares,
            #[inline(always)]
            |x| interleaved.column(run * RUN + x),
            #[inline(always)]
            |column, sum| blurred.0[column * RUNS + run..][..LANES].copy_from_slice(&sum),
        );
    }
}

impl Blur<f32> {
    /// The vertical pass for `ROWS` rows from row `y` on.
    #[inline(always)]
    fn means<const FUSED: bool, const LANES: usize>(
        &self,
        y: usize,
        window: &Window<'_>,
        rule: Rule<'_>,
        means: &mut [Row<f32>; ROWS],
    ) {
        let places = self.around(y, ROWS, window);
        for x in (0..STRIP).step_by(LANES) {
            convolve::<FUSED, LANES>(
                rule.shares,
                #[inline(always)]
                |i| *self.row(&places, i).0[x..].first_chunk().expect("a strip is whole vectors"),
                #[inline(always)]
                |row, mut sum| {
                    if rule.error == 0.0 {
                        for mean in &mut sum {
                            *mean = round_half_even(*mean) as f32;
                        }
                    }
                    means[row].0[x..][..LANES].copy_from_slice(&sum);
                },
            );
        }
    }
}

/// The exact horizontal pass over one row of a strip, rounded half up to `ROW_BITS` fraction bits.
#[inline(always)]
fn blur_row(padded: &[u8], weights: &[u32], blurred: &mut Row<u32>) {
    let radius = weights.len() - 1;
    let mut taps = [0; PADDED];
    for (tap, &pixel) in taps.iter_mut().zip(padded) {
        *tap = u32::from(pixel);
    }
    for (x, blurred) in blurred.0.iter_mut().enumerate() {
        *blurred = row_mean(&taps[x..][..=2 * radius], weights);
    }
}

/// The exact horizontal pass at one pixel. `taps` are that pixel and its neighbours.
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
    fn means(&self, y: usize, window: &Window<'_>, weights: &[u32]) -> [u8; STRIP] {
        let radius = window.radius;
        let places = self.around(y, 1, window);
        let mut sums = [0; STRIP];
        for (sum, &v) in sums.iter_mut().zip(&self.row(&places, radius).0) {
            *sum = u64::from(v) * u64::from(weights[radius]);
        }
        for distance in 1..=radius {
            let weight = u64::from(weights[radius - distance]);
            let (above, below) = (self.row(&places, radius - distance), self.row(&places, radius + distance));
            let pairs = above.0.iter().zip(&below.0);
            for (sum, (&a, &b)) in sums.iter_mut().zip(pairs) {
                *sum += u64::from(a + b) * weight;
            }
        }
        let mut means = [0; STRIP];
        for (mean, sum) in means.iter_mut().zip(sums) {
            *mean = whole_mean(sum);
        }
        means
    }
}

/// The exact mean around one pixel.
#[inline(always)]
fn mean_at(src: PlaneRef<'_>, (x, y): (usize, usize), weights: &[u32]) -> u8 {
    let Size { width, height } = src.size();
    let radius = weights.len() - 1;
    let mut taps = [0; MAX_BLOCK];
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::threshold::gaussian_weights;
    use crate::control::Control;

    /// The mean around a pixel before it is rounded to a whole number, straight from the numeric contract.
    fn mean_of(src: PlaneRef<'_>, (x, y): (usize, usize), weights: &[u32]) -> f64 {
        let radius = weights.len() as i64 / 2;
        let weight = |d: i64| i64::from(weights[(d + radius) as usize]);
        let clamped = |v: usize, d: i64, end: usize| (v as i64 + d).clamp(0, end as i64 - 1) as usize;
        let rows = (-radius..=radius).map(|dy| {
            let row = src.row(clamped(y, dy, src.size().height));
            let pixel = |dx: i64| i64::from(row[clamped(x, dx, src.size().width)]);
            let sum: i64 = (-radius..=radius).map(|dx| weight(dx) * pixel(dx)).sum();
            weight(dy) * ((sum + (1 << (DROPPED_BITS - 1))) >> DROPPED_BITS)
        });
        rows.sum::<i64>() as f64 / (1_u64 << MEAN_BITS) as f64
    }

    #[test]
    fn estimates_are_no_further_from_the_mean_than_is_said() {
        let size = Size::new(150, 23);
        let mut state = 7_u64;
        let mut noise = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 56) as u8
        };
        let pictures: [Vec<u8>; 4] = [
            (0..size.area()).map(|_| noise()).collect(),
            (0..size.area()).map(|_| noise() / 128 * 255).collect(),
            (0..size.area()).map(|_| 255 - noise() / 64).collect(),
            vec![255; size.area()],
        ];
        for (index, picture) in pictures.iter().enumerate() {
            let src = PlaneRef::new(picture, size, size.width);
            for block in [3, 5, 7, 9, 11, 31, 101, MAX_BLOCK] {
                let weights = gaussian_weights(block);
                let half = &weights[..=block / 2];
                let shares: Vec<f32> = half.iter().map(|&w| w as f32 / (1 << WEIGHT_BITS) as f32).collect();
                let error = if are_exact(half) { 0.0 } else { largest_error(&shares) };
                assert_eq!(error == 0.0, block <= 9, "block {block}");
                assert!(error < 1.0 / 900.0, "block {block}: {error}");
                let rule = Rule { weights: half, shares: &shares, error, offset: 0, inverse: false };
                let control = Control::new();
                let window =
                    Window { control: &control, src, across: block / 2, radius: block / 2, first: 4 };
                for level in Level::available() {
                    let mut gaussian = Gaussian::default();
                    for left in [0, STRIP] {
                        gaussian.estimates.start(&window, block + ROWS - 1, window.first);
                        gaussian.estimate(level, &window, (left, window.first), rule);
                        for (y, means) in (window.first..).zip(&gaussian.means) {
                            for x in left..(left + STRIP).min(size.width) {
                                let estimate = means.0[(x - left) % RUN * RUNS + (x - left) / RUN];
                                let mean = mean_of(src, (x, y), &weights);
                                let mean = if error == 0.0 { mean.round_ties_even() } else { mean };
                                assert!(
                                    (f64::from(estimate) - mean).abs() <= f64::from(error),
                                    "picture {index}, block {block}, {level}, {x},{y}: {estimate}, not {mean}"
                                );
                            }
                        }
                    }
                }
            }
        }
    }
}
