//! Scales planes by area averaging, as OpenCV's `INTER_AREA` does; when enlarging, by the nearest pixel.
//!
//! Rows are averaged first, then columns. Both results are rounded to bytes, and weights to 256ths: sums fit
//! 16 bits, so that a vector holds twice as many. The error is less than 2.5 for factors up to three, and
//! less than 7 for twelve.

use lockon_core::frame::{Plane, PlaneRef, Size};
use lockon_core::simd::Level;

/// Fraction bits of weights. The weights of a mean sum up to 1.
const BITS: u32 = 8;
const ONE: usize = 1 << BITS;
const HALF: u16 = 1 << (BITS - 1);

/// The source pixels of one output pixel of a line: the first of them, and the weights from there on.
type Span = (usize, Vec<u16>);

/// Scales planes. Spans are computed once for all planes of the same sizes.
#[derive(Default)]
pub(super) struct Resize {
    sizes: Option<[Size; 2]>,
    rows: Vec<Span>,
    columns: Vec<Span>,
    /// A row in the width of the source.
    row: Vec<u8>,
    /// The row before it is rounded.
    sums: Vec<u16>,
}

impl Resize {
    pub(super) fn run(&mut self, plane: PlaneRef<'_>, size: Size, to: &mut Plane) {
        to.resize(size);
        if plane.size() == size {
            return to.as_mut().copy_from(plane);
        }
        let Size { width, height } = plane.size();
        if self.sizes.replace([plane.size(), size]) != Some([plane.size(), size]) {
            self.rows = spans(height, size.height);
            self.columns = spans(width, size.width);
            self.sums = vec![0; width];
        }
        match period(width, size.width) {
            (2, 1) => self.repeated::<2, 1>(plane, to),
            (3, 1) => self.repeated::<3, 1>(plane, to),
            (3, 2) => self.repeated::<3, 2>(plane, to),
            (4, 1) => self.repeated::<4, 1>(plane, to),
            (4, 3) => self.repeated::<4, 3>(plane, to),
            (6, 1) => self.repeated::<6, 1>(plane, to),
            _ => match self.columns.iter().map(|(_, weights)| weights.len()).max().unwrap_or(0) {
                ..=2 => self.padded::<2>(plane, to),
                3..=4 => self.padded::<4>(plane, to),
                _ => {
                    let columns = std::mem::take(&mut self.columns);
                    self.one_by_one(plane, to, &columns);
                    self.columns = columns;
                }
            },
        }
    }

    /// For factors where each `FROM` columns become `TO` with the same weights: with constants the compiler
    /// can process many columns at once.
    fn repeated<const FROM: usize, const TO: usize>(&mut self, plane: PlaneRef<'_>, to: &mut Plane) {
        let mut weights = [[0; FROM]; TO];
        for (of, (first, own)) in weights.iter_mut().zip(&self.columns) {
            of[*first..][..own.len()].copy_from_slice(own);
        }
        self.each_row(
            plane,
            to,
            #[inline(always)]
            |row, to| {
                let (from, _) = row.as_chunks::<FROM>();
                let (made, _) = to.as_chunks_mut::<TO>();
                for (to, from) in made.iter_mut().zip(from) {
                    for (to, weights) in to.iter_mut().zip(&weights) {
                        *to = mean(from, weights);
                    }
                }
            },
        );
    }

    /// For columns of at most `MOST` source columns: all are computed with that many, so that their number
    /// needs no check.
    fn padded<const MOST: usize>(&mut self, plane: PlaneRef<'_>, to: &mut Plane) {
        let pad = |(first, weights): &Span| {
            (*first, std::array::from_fn::<_, MOST, _>(|at| weights.get(at).copied().unwrap_or(0)))
        };
        let columns: Vec<_> = self.columns.iter().map(pad).collect();
        self.one_by_one(plane, to, &columns);
    }

    /// For any factor: each column with its own weights.
    fn one_by_one(&mut self, plane: PlaneRef<'_>, to: &mut Plane, columns: &[(usize, impl AsRef<[u16]>)]) {
        self.each_row(
            plane,
            to,
            #[inline(always)]
            |row, to| {
                for (to, (first, weights)) in to.iter_mut().zip(columns) {
                    let weights = weights.as_ref();
                    *to = mean(&row[*first..][..weights.len()], weights);
                }
            },
        );
    }

    /// Averages the source rows of each output row, and lets `across` average the columns.
    fn each_row(&mut self, plane: PlaneRef<'_>, to: &mut Plane, across: impl Fn(&[u8], &mut [u8])) {
        let Self { rows, row, sums, .. } = self;
        let width = plane.size().width;
        // Padded weights read beyond the last column.
        row.resize(width + 4, 0);
        let to_width = to.size().width;
        Level::best().run(
            #[inline(always)]
            || {
                for (to, (first, weights)) in to.data_mut().chunks_exact_mut(to_width).zip(rows.iter()) {
                    let of = |at: usize| plane.row(first + at);
                    match weights[..] {
                        [_] => row[..width].copy_from_slice(of(0)),
                        [a, b] => {
                            for ((to, &x), &y) in row.iter_mut().zip(of(0)).zip(of(1)) {
                                *to = mean(&[x, y], &[a, b]);
                            }
                        }
                        [a, b, c] => {
                            for (((to, &x), &y), &z) in row.iter_mut().zip(of(0)).zip(of(1)).zip(of(2)) {
                                *to = mean(&[x, y, z], &[a, b, c]);
                            }
                        }
                        _ => {
                            sums.fill(HALF);
                            for (at, &weight) in weights.iter().enumerate() {
                                sums.iter_mut()
                                    .zip(of(at))
                                    .for_each(|(sum, &v)| *sum += u16::from(v) * weight);
                            }
                            row.iter_mut().zip(&*sums).for_each(|(to, sum)| *to = (sum >> BITS) as u8);
                        }
                    }
                    across(row, to);
                }
            },
        );
    }
}

/// The weighted mean of bytes.
#[inline(always)]
fn mean(values: &[u8], weights: &[u16]) -> u8 {
    // The sum is at most 255 * 256.
    let sum: u16 = values.iter().zip(weights).map(|(&value, &weight)| u16::from(value) * weight).sum();
    ((sum + HALF) >> BITS) as u8
}

/// The smallest numbers of source and output pixels after which weights repeat.
fn period(from: usize, to: usize) -> (usize, usize) {
    let (mut a, mut b) = (from, to);
    while b > 0 {
        (a, b) = (b, a % b);
    }
    (from / a.max(1), to / a.max(1))
}

/// The span of each of `to` output pixels, made from `from` source pixels.
fn spans(from: usize, to: usize) -> Vec<Span> {
    // In units of 1/ONE pixel.
    let edge = |index: usize| index * from * ONE / to;
    let span = |index: usize| {
        let (start, end) = (edge(index), edge(index + 1).max(edge(index) + 1));
        let (first, last) = (start / ONE, (end - 1) / ONE);
        // Weights are differences of rounded sums, so that rounding errors do not add up.
        let before = |pixel: usize| ((pixel * ONE).clamp(start, end) - start) * ONE / (end - start);
        (first, (first..=last).map(|pixel| (before(pixel + 1) - before(pixel)) as u16).collect())
    };
    (0..to).map(span).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn noise(size: Size) -> Plane {
        let mut value = 1_u32;
        let mut next = || {
            value = value.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (value >> 24) as u8
        };
        Plane::from_vec((0..size.area()).map(|_| next()).collect(), size)
    }

    fn resized(plane: &Plane, size: Size) -> Vec<u8> {
        let mut to = Plane::default();
        Resize::default().run(plane.as_ref(), size, &mut to);
        to.data().to_vec()
    }

    /// The share of one source pixel in output pixel `at`.
    fn share(pixel: usize, at: usize, from: usize, to: usize) -> f64 {
        let ratio = from as f64 / to as f64;
        let (start, end) = (at as f64 * ratio, (at + 1) as f64 * ratio);
        (end.min(pixel as f64 + 1.0) - start.max(pixel as f64)).max(0.0) / ratio
    }

    /// Area averaging by plain loops.
    fn mean_of(plane: &Plane, size: Size, x: usize, y: usize) -> f64 {
        let Size { width, height } = plane.size();
        let of_row = |row: usize| {
            let values = plane.as_ref().row(row).iter().enumerate();
            values.map(|(column, &value)| share(column, x, width, size.width) * f64::from(value)).sum::<f64>()
        };
        (0..height).map(|row| share(row, y, height, size.height) * of_row(row)).sum()
    }

    #[test]
    fn each_pixel_is_the_mean_of_its_area_at_every_ratio() {
        for (from, to) in [
            (Size::new(12, 12), Size::new(8, 8)),
            (Size::new(24, 9), Size::new(12, 6)),
            (Size::new(99, 66), Size::new(33, 22)),
            (Size::new(128, 64), Size::new(32, 16)),
            (Size::new(64, 48), Size::new(48, 36)),
            (Size::new(96, 54), Size::new(16, 9)),
            (Size::new(97, 55), Size::new(13, 9)),
            (Size::new(97, 55), Size::new(60, 31)),
            (Size::new(97, 55), Size::new(96, 54)),
        ] {
            let plane = noise(from);
            for (index, made) in resized(&plane, to).into_iter().enumerate() {
                let meant = mean_of(&plane, to, index % to.width, index / to.width);
                let is_near = (f64::from(made) - meant).abs() <= 2.5;
                assert!(is_near, "{from} to {to}, pixel {index}: {made}, not {meant}");
            }
        }
    }

    #[test]
    fn weights_are_off_by_little_whatever_the_picture() {
        for (from, to, most) in [(1920, 1280, 0.7), (1920, 640, 0.7), (1920, 320, 1.4), (3840, 320, 2.8)] {
            for (index, (first, weights)) in spans(from, to).into_iter().enumerate() {
                // White where weights sum up to too much, black elsewhere.
                let too_large = (first..).zip(weights).map(|(pixel, weight)| {
                    (f64::from(weight) / 256.0 - share(pixel, index, from, to)).max(0.0)
                });
                let off = 255.0 * too_large.sum::<f64>();
                assert!(off <= most, "{from} to {to}, pixel {index}: {off}");
            }
        }
    }

    #[test]
    fn rows_may_be_longer_than_what_is_shown_of_them() {
        let padded = noise(Size::new(70, 33));
        let shown = PlaneRef::new(padded.data(), Size::new(61, 33), 70);
        let mut tight = Plane::default();
        tight.resize(shown.size());
        tight.as_mut().copy_from(shown);
        for size in [Size::new(61, 33), Size::new(40, 20), Size::new(7, 3)] {
            let mut to = Plane::default();
            Resize::default().run(shown, size, &mut to);
            assert_eq!(to.data(), resized(&tight, size), "{size}");
        }
    }

    #[test]
    fn what_is_made_larger_has_the_pixels_that_there_are() {
        let plane = Plane::from_vec(vec![0, 90, 240, 60, 60, 60], Size::new(3, 2));
        assert_eq!(resized(&plane, Size::new(6, 2)), [[0, 0, 90, 90, 240, 240], [60; 6]].concat());
    }

    #[test]
    fn one_size_after_the_other_is_as_each_alone() {
        let (mut resize, mut to) = (Resize::default(), Plane::default());
        for (from, size) in
            [((64, 48), (32, 24)), ((64, 48), (32, 25)), ((9, 90), (32, 25)), ((64, 48), (32, 24))]
        {
            let (from, size) = (Size::new(from.0, from.1), Size::new(size.0, size.1));
            let plane = noise(from);
            resize.run(plane.as_ref(), size, &mut to);
            assert_eq!(to.data(), resized(&plane, size), "{from} to {size}");
        }
    }

    #[test]
    fn white_stays_white_and_weights_stay_within_the_line() {
        for (from, to) in [(1920, 1280), (7, 7), (5, 3), (65_500, 320), (3, 11), (1, 1)] {
            let white = Plane::from_vec(vec![255; from], Size::new(from, 1));
            assert!(resized(&white, Size::new(to, 1)).iter().all(|&v| v == 255), "{from} to {to}");
            for (first, weights) in spans(from, to) {
                assert_eq!(weights.iter().map(|&w| u32::from(w)).sum::<u32>(), 256);
                assert!(first + weights.len() <= from, "{from} to {to}: {first} {}", weights.len());
            }
        }
    }
}
