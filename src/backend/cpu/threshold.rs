//! Adaptive threshold on the processor's cores: bands of rows across threads, window sums by sliding.
//!
//! Each band keeps the sums of its columns, to which a row is added and from which a row is taken as the window moves down;
//! they are added up along the row in the same way. The Gaussian is separable: a horizontal pass over the band and its halo,
//! then a vertical one. All of it is integers up to the comparison, so bands and threads change nothing.

use rayon::prelude::*;

use crate::backend::threshold::{MeanRule, ROW_BITS, WEIGHT_BITS, gaussian_weights};
use crate::config::{ThresholdMethod, ThresholdSpec};
use crate::frame::{Plane, PlaneRef, Size};

/// Thresholds frames of one size by one method.
pub struct Thresholder {
    size: Size,
    radius: usize,
    rule: Rule,
    inverse: bool,
    bands: Vec<Band>,
}

/// The comparison, and what it needs of a neighbourhood.
enum Rule {
    Mean {
        rule: MeanRule,
        /// 1/n as OpenCV rounds it.
        share: f32,
    },
    Gaussian {
        rule: MeanRule,
        /// The centre's weight and those to one side of it, outwards.
        weights: Vec<u32>,
    },
    /// T = m * (1 + k * (s / 128 - 1))
    Sauvola { k: f64 },
    /// T = m + k * s
    Niblack { k: f64 },
}

/// What one thread works with.
#[derive(Default)]
struct Band {
    /// Sums of the window's rows of each column: pixels, and their squares where they are needed. A sum of squares of
    /// 255 x 255 pixels just fits 32 bits.
    columns: Vec<u32>,
    square_columns: Vec<u32>,
    /// The same over whole windows, for one row of pixels.
    sums: Vec<u32>,
    squares: Vec<u32>,
    /// Gaussian: a row of pixels with its replicated border, the band's blurred rows with their halo, one row of totals.
    padded: Vec<u32>,
    blurred: Vec<u32>,
    totals: Vec<u64>,
}

impl Thresholder {
    /// Plans the threshold of frames of this size on `threads` threads.
    pub fn new(spec: ThresholdSpec, size: Size, threads: usize) -> Self {
        let rule = match spec.method {
            ThresholdMethod::Mean { c } => Rule::Mean {
                rule: MeanRule::new(c, spec.inverse),
                share: (1.0 / (spec.block * spec.block) as f64) as f32,
            },
            ThresholdMethod::Gaussian { c } => Rule::Gaussian {
                rule: MeanRule::new(c, spec.inverse),
                weights: gaussian_weights(spec.block).split_off(spec.block / 2),
            },
            ThresholdMethod::Sauvola { k } => Rule::Sauvola { k },
            ThresholdMethod::Niblack { k } => Rule::Niblack { k },
        };
        let bands = (0..threads.clamp(1, size.height.max(1))).map(|_| Band::default()).collect();
        Self { size, radius: spec.block / 2, rule, inverse: spec.inverse, bands }
    }

    /// Writes 255 and 0 into `mask`, which takes the size of `src`, and gives the share of 255, in [0, 1].
    ///
    /// Works on the rayon pool that it is called in. Allocates nothing after the first frame.
    ///
    /// # Panics
    /// If `src` is not of the planned size.
    pub fn run(&mut self, src: PlaneRef<'_>, mask: &mut Plane) -> f64 {
        assert_eq!(src.size(), self.size, "planned for another size");
        mask.resize(self.size);
        if self.size.area() == 0 {
            return 0.0;
        }
        let rows_per_band = self.size.height.div_ceil(self.bands.len());
        let (radius, rule, inverse) = (self.radius, &self.rule, self.inverse);
        let white: usize = mask
            .data_mut()
            .par_chunks_mut(rows_per_band * self.size.width)
            .zip(&mut self.bands)
            .enumerate()
            .map(|(index, (out, band))| {
                let window = Window { src, radius, first_row: index * rows_per_band };
                match rule {
                    Rule::Gaussian { rule, weights } => band.gaussian(window, weights, *rule, out),
                    Rule::Mean { rule, share } => band.box_sums(window, false, out, |src, sum, _| {
                        // Adding and taking off 1.5 * 2^23 rounds half to even, as the nearest f32 is even there: no call
                        // where the processor lacks an instruction for it.
                        const ROUND: f32 = 12_582_912.0;
                        rule.apply(src, (sum as f32 * share + ROUND - ROUND) as i32)
                    }),
                    Rule::Sauvola { k } => band.box_sums(window, true, out, |src, sum, squares| {
                        let (m, s) = moments(radius, sum, squares);
                        white(f64::from(src) > m * (1.0 + k * (s / 128.0 - 1.0)), inverse)
                    }),
                    Rule::Niblack { k } => band.box_sums(window, true, out, |src, sum, squares| {
                        let (m, s) = moments(radius, sum, squares);
                        white(f64::from(src) > m + k * s, inverse)
                    }),
                }
                out.iter().filter(|&&v| v == 255).count()
            })
            .sum();
        white as f64 / self.size.area() as f64
    }
}

fn white(is_above: bool, inverse: bool) -> u8 {
    if is_above == inverse { 0 } else { 255 }
}

/// Mean and standard deviation, in the order of operations that the numeric contract fixes.
fn moments(radius: usize, sum: u32, squares: u32) -> (f64, f64) {
    let n = ((2 * radius + 1) * (2 * radius + 1)) as f64;
    let (sum, squares) = (f64::from(sum), f64::from(squares));
    (sum / n, ((n * squares - sum * sum) / (n * n)).sqrt())
}

/// The source of a band, with its border replicated.
#[derive(Clone, Copy)]
struct Window<'a> {
    src: PlaneRef<'a>,
    radius: usize,
    /// The band's first row.
    first_row: usize,
}

impl<'a> Window<'a> {
    fn width(self) -> usize {
        self.src.size().width
    }

    /// Row `y - radius` of the source, or the row at the border that stands for it.
    fn row(self, y: usize) -> &'a [u8] {
        self.src.row(y.saturating_sub(self.radius).min(self.src.size().height - 1))
    }
}

impl Band {
    /// Calls `decide` with each pixel, the sum of its window, and that of the squares (0 unless they are wanted).
    fn box_sums(
        &mut self,
        window: Window<'_>,
        wants_squares: bool,
        out: &mut [u8],
        decide: impl Fn(u8, u32, u32) -> u8,
    ) {
        let (width, block, first) = (window.width(), 2 * window.radius + 1, window.first_row);
        for buffer in [&mut self.columns, &mut self.square_columns, &mut self.sums, &mut self.squares] {
            buffer.clear();
            buffer.resize(width, 0);
        }
        let square = |v: u8| u32::from(v) * u32::from(v);
        for y in first..first + block {
            let row = window.row(y);
            self.columns.iter_mut().zip(row).for_each(|(sum, &v)| *sum += u32::from(v));
            if wants_squares {
                self.square_columns.iter_mut().zip(row).for_each(|(sum, &v)| *sum += square(v));
            }
        }
        for (y, out) in (first..).zip(out.chunks_exact_mut(width)) {
            if y > first {
                let (gone, new) = (window.row(y - 1), window.row(y - 1 + block));
                for ((sum, &new), &gone) in self.columns.iter_mut().zip(new).zip(gone) {
                    *sum = *sum + u32::from(new) - u32::from(gone);
                }
                if wants_squares {
                    for ((sum, &new), &gone) in self.square_columns.iter_mut().zip(new).zip(gone) {
                        *sum = *sum + square(new) - square(gone);
                    }
                }
            }
            slide(&self.columns, window.radius, &mut self.sums);
            if wants_squares {
                slide(&self.square_columns, window.radius, &mut self.squares);
            }
            let sums = self.sums.iter().zip(&self.squares);
            for ((out, &src), (&sum, &squares)) in out.iter_mut().zip(window.src.row(y)).zip(sums) {
                *out = decide(src, sum, squares);
            }
        }
    }

    /// The Gaussian-weighted mean of each pixel's window, compared by `rule`.
    fn gaussian(&mut self, window: Window<'_>, weights: &[u32], rule: MeanRule, out: &mut [u8]) {
        const ROUND: u32 = 1 << (WEIGHT_BITS - ROW_BITS - 1);
        let (width, radius, first) = (window.width(), window.radius, window.first_row);
        let rows = out.len() / width;
        self.blurred.resize((rows + 2 * radius) * width, 0);
        self.padded.resize(width + 2 * radius, 0);
        self.totals.resize(width, 0);
        for (y, blurred) in (first..).zip(self.blurred.chunks_exact_mut(width)) {
            let row = window.row(y);
            self.padded[..radius].fill(u32::from(row[0]));
            self.padded[radius + width..].fill(u32::from(row[width - 1]));
            self.padded[radius..radius + width].iter_mut().zip(row).for_each(|(p, &v)| *p = u32::from(v));
            let centre = &self.padded[radius..radius + width];
            blurred.iter_mut().zip(centre).for_each(|(b, p)| *b = weights[0] * p + ROUND);
            for (distance, weight) in weights.iter().enumerate().skip(1) {
                let (left, right) = (&self.padded[radius - distance..], &self.padded[radius + distance..]);
                // At most 255 * 2^24 in all: 32 bits suffice.
                blurred.iter_mut().zip(left).zip(right).for_each(|((b, l), r)| *b += weight * (l + r));
            }
            for b in blurred.iter_mut() {
                *b >>= WEIGHT_BITS - ROW_BITS;
            }
        }
        for (y, out) in out.chunks_exact_mut(width).enumerate() {
            let row = |y: usize| &self.blurred[y * width..][..width];
            let wide = |weight: u32, value: u32| u64::from(weight) * u64::from(value);
            self.totals.iter_mut().zip(row(y + radius)).for_each(|(t, &b)| *t = wide(weights[0], b));
            for (distance, &weight) in weights.iter().enumerate().skip(1) {
                let rows = row(y + radius - distance).iter().zip(row(y + radius + distance));
                self.totals.iter_mut().zip(rows).for_each(|(t, (&a, &b))| *t += wide(weight, a + b));
            }
            for ((out, &src), &total) in out.iter_mut().zip(window.src.row(first + y)).zip(&self.totals) {
                *out = rule.apply(src, round_half_even(total) as i32);
            }
        }
    }
}

/// Sums of `2 * radius + 1` neighbouring columns around each, the outermost standing for those beyond.
fn slide(columns: &[u32], radius: usize, sums: &mut [u32]) {
    let last = columns.len() - 1;
    let mut sum = columns[0] * radius as u32 + (0..=radius).map(|x| columns[x.min(last)]).sum::<u32>();
    for (x, out) in sums.iter_mut().enumerate() {
        *out = sum;
        sum = sum + columns[(x + radius + 1).min(last)] - columns[x.saturating_sub(radius)];
    }
}

/// A total of the vertical pass without its fraction.
fn round_half_even(total: u64) -> u64 {
    const BITS: u32 = WEIGHT_BITS + ROW_BITS;
    let is_odd = (total >> BITS) & 1;
    (total + (1 << (BITS - 1)) - 1 + is_odd) >> BITS
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reference;

    /// A picture with flat parts, edges and noise, whose rows are padded with poison.
    fn picture(size: Size, stride: usize) -> Vec<u8> {
        let mut state = 7_u32;
        let mut bytes = vec![0xFA; stride * size.height];
        for (i, byte) in bytes.iter_mut().enumerate() {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let (x, y) = (i % stride, i / stride);
            if x < size.width {
                *byte = match (x / 9 + y / 7) % 3 {
                    0 => 255 * ((x / 3) % 2) as u8,
                    1 => 128,
                    _ => (state >> 24) as u8,
                };
            }
        }
        bytes
    }

    fn check(size: Size, spec: &str) {
        let spec: ThresholdSpec = spec.parse().unwrap();
        let bytes = picture(size, size.width + 5);
        let src = PlaneRef::new(&bytes, size, size.width + 5);
        let expected = reference::threshold::threshold(src, &spec);
        for threads in [1, 2, 7] {
            let mut thresholder = Thresholder::new(spec, size, threads);
            // Used twice: nothing of the frame before may be left.
            for poison in [0xFA, 0x00] {
                let mut mask = Plane::from_vec(vec![poison; 3], Size::new(3, 1));
                let share = thresholder.run(src, &mut mask);
                assert_eq!(mask, expected, "{spec} of {size} on {threads} threads");
                let white = expected.data().iter().filter(|&&v| v == 255).count();
                assert_eq!(share, white as f64 / size.area() as f64);
            }
        }
    }

    #[test]
    fn all_methods_match_reference_at_odd_sizes() {
        for method in
            ["mean:3:0", "mean:11:5", "mean:31:-7.5", "gaussian:9:2.5", "gaussian:11:0", "gaussian:31:5"]
        {
            check(Size::new(123, 33), method);
            check(Size::new(61, 47), &format!("{method}:inv"));
        }
        for method in ["sauvola:15:0.2", "sauvola:3:0.5", "niblack:31:-0.2", "niblack:5:0.9"] {
            check(Size::new(123, 33), method);
            check(Size::new(61, 47), &format!("{method}:inv"));
        }
    }

    #[test]
    fn blocks_larger_than_the_picture_match_reference() {
        for size in [Size::new(1, 1), Size::new(1, 9), Size::new(13, 1), Size::new(17, 11)] {
            for method in ["mean:255:1", "gaussian:101:1", "sauvola:255:0.2", "niblack:127:0.2"] {
                check(size, method);
            }
        }
    }

    #[test]
    fn white_and_black_pictures_do_not_overflow() {
        let size = Size::new(300, 270);
        let src = Plane::from_vec(vec![255; size.area()], size);
        for spec in ["mean:255:1", "gaussian:255:1", "sauvola:255:0.2", "niblack:255:-0.2"] {
            let spec: ThresholdSpec = spec.parse().unwrap();
            let mut mask = Plane::default();
            let share = Thresholder::new(spec, size, 2).run(src.as_ref(), &mut mask);
            let expects_white = !matches!(spec.method, ThresholdMethod::Niblack { .. });
            assert_eq!(share, if expects_white { 1.0 } else { 0.0 }, "{spec}");
        }
    }
}
