//! Fourier transforms of square grids, many channels at once, in an order of operations that is written here.
//!
//! A library picks its instructions by the machine it runs on, and with them its rounding. These loops add
//! and multiply f32 one after the other, never fused, so every machine gives the same bits. Channels lie next
//! to each other: the innermost loop runs over them and is what the compiler vectorises.

use crate::frame::correlator::{CHANNELS, GRID, HALF, Spectrum};
use crate::simd::Level;

/// Two real channels travel through the rows as one complex one.
const PAIRS: usize = CHANNELS / 2;

/// A grid of real cells, row by row.
pub(super) type Grid = [[f32; CHANNELS]];

/// Puts a column into a spectrum.
#[inline(always)]
pub(super) fn set_column(spectrum: &mut Spectrum, x: usize, [re, im]: &Column) {
    for n in 0..GRID {
        (spectrum.re[n * HALF + x], spectrum.im[n * HALF + x]) = (re[n], im[n]);
    }
}

/// Whether a column is that of a spectrum before its grid is weighed, or after.
#[derive(Clone, Copy)]
pub(super) enum Pass {
    Before,
    After,
}

/// Transforms grids; keeps its room.
pub(super) struct Fft {
    level: Level,
    turns: Turns,
    work: Box<Work>,
}

/// Cosine and minus sine of the angles by which 32 divides the circle.
type Turns = [[f32; 2]; GRID];

pub(super) fn turns() -> Turns {
    std::array::from_fn(|index| {
        let angle = 2.0 * std::f64::consts::PI * index as f64 / GRID as f64;
        [libm::cos(angle) as f32, -libm::sin(angle) as f32]
    })
}

/// A line of `GRID` elements of `WIDTH` numbers each.
type Line<const WIDTH: usize> = [[f32; WIDTH]; GRID];

/// Real and imaginary parts of a column of a spectrum.
pub(super) type Column = [Line<CHANNELS>; 2];

/// Real and imaginary parts of lines: a row as it is transformed, what is between the two steps of a
/// transform, a column, and a plane.
struct Work {
    row: [Line<PAIRS>; 2],
    row_between: [Line<PAIRS>; 2],
    column: Column,
    column_between: Column,
    plane: [Line<GRID>; 2],
    turned: [Line<GRID>; 2],
    /// The spectrum after the rows and before the columns are transformed.
    spectrum: Spectrum,
}

impl Fft {
    pub(super) fn new() -> Self {
        let work = Work {
            row: [[[0.0; PAIRS]; GRID]; 2],
            row_between: [[[0.0; PAIRS]; GRID]; 2],
            column: [[[0.0; CHANNELS]; GRID]; 2],
            column_between: [[[0.0; CHANNELS]; GRID]; 2],
            plane: [[[0.0; GRID]; GRID]; 2],
            turned: [[[0.0; GRID]; GRID]; 2],
            spectrum: Spectrum::zero(),
        };
        Self { level: Level::best(), turns: turns(), work: Box::new(work) }
    }

    /// Gives the spectrum of a grid to `take`, which is to be `#[inline(always)]`, column by column.
    #[inline]
    pub(super) fn forward(&mut self, grid: &Grid, mut take: impl FnMut(usize, &Column)) {
        let Self { level, turns, work } = self;
        level.run(
            #[inline(always)]
            || {
                let Work { row, row_between, column, column_between, spectrum, .. } = &mut **work;
                for (y, cells) in grid.chunks_exact(GRID).enumerate() {
                    let halves = |n: usize| {
                        let (pairs, _) = cells[n].as_chunks::<PAIRS>();
                        (&pairs[0], &pairs[1])
                    };
                    transform(halves, row_between, turns, |n, re, im| (row[0][n], row[1][n]) = (*re, *im));
                    unpack(row, spectrum, y);
                }
                for x in 0..HALF {
                    forward_column(spectrum, x, column, column_between, turns);
                    take(x, column);
                }
            },
        );
    }

    /// The spectrum of a grid each of whose cells is multiplied with a weight. `each` makes each column of
    /// the spectrum before that, and takes each after; it is to be `#[inline(always)]`.
    #[inline]
    pub(super) fn weigh(&mut self, weights: &[f32], mut each: impl FnMut(Pass, usize, &mut Column)) {
        let Self { level, turns, work } = self;
        level.run(
            #[inline(always)]
            || {
                let Work { row, row_between, column, column_between, spectrum, .. } = &mut **work;
                // Back is the transform with real and imaginary parts swapped, on the way in and on the way
                // out; but for the scale.
                for x in 0..HALF {
                    each(Pass::Before, x, column);
                    let (re, im) = (&mut spectrum.re[..GRID * HALF], &mut spectrum.im[..GRID * HALF]);
                    transform(
                        |n| (&column[1][n], &column[0][n]),
                        column_between,
                        turns,
                        |n, out_im, out_re| (re[n * HALF + x], im[n * HALF + x]) = (*out_re, *out_im),
                    );
                }
                for (y, weights) in weights.chunks_exact(GRID).enumerate() {
                    pack(spectrum, y, row);
                    let [re, im] = &mut *row;
                    first_step(|n| (&im[n], &re[n]), row_between, turns);
                    second_step(row_between, |n, out_im, out_re| {
                        let weight = weights[n] * (1.0 / (GRID * GRID) as f32);
                        (re[n], im[n]) = (scaled(out_re, weight), scaled(out_im, weight));
                    });
                    first_step(|n| (&re[n], &im[n]), row_between, turns);
                    second_step(row_between, |n, out_re, out_im| (re[n], im[n]) = (*out_re, *out_im));
                    unpack(row, spectrum, y);
                }
                for x in 0..HALF {
                    forward_column(spectrum, x, column, column_between, turns);
                    each(Pass::After, x, column);
                }
            },
        );
    }

    /// The grid of one channel whose half spectrum this is, row by row.
    pub(super) fn inverse(&mut self, re: &[f32], im: &[f32], grid: &mut Vec<f32>) {
        let Self { level, turns, work } = self;
        level.run(
            #[inline(always)]
            || {
                let Work { plane, turned, column_between, .. } = &mut **work;
                for y in 0..GRID {
                    for x in 0..HALF {
                        (plane[0][y][x], plane[1][y][x]) = (re[y * HALF + x], im[y * HALF + x]);
                    }
                    for x in 1..HALF - 1 {
                        let mirrored = (GRID - y) % GRID * HALF + x;
                        (plane[0][y][GRID - x], plane[1][y][GRID - x]) = (re[mirrored], -im[mirrored]);
                    }
                }
                invert(plane, column_between, turns);
                for y in 0..GRID {
                    for x in 0..GRID {
                        (turned[0][x][y], turned[1][x][y]) = (plane[0][y][x], plane[1][y][x]);
                    }
                }
                invert(turned, column_between, turns);
                grid.clear();
                let real = &turned[0];
                grid.extend(
                    (0..GRID * GRID).map(|i| real[i % GRID][i / GRID] * (1.0 / (GRID * GRID) as f32)),
                );
            },
        );
    }
}

/// Takes the two real channels of each complex one apart, out of a transformed row.
#[inline(always)]
fn unpack([row_re, row_im]: &[Line<PAIRS>; 2], spectrum: &mut Spectrum, y: usize) {
    let (re, im) = (&mut spectrum.re[y * HALF..][..HALF], &mut spectrum.im[y * HALF..][..HALF]);
    for x in 0..HALF {
        let mirrored = (GRID - x) % GRID;
        let ((pr, pi), (qr, qi)) = ((&row_re[x], &row_im[x]), (&row_re[mirrored], &row_im[mirrored]));
        let (re, im) = (&mut re[x], &mut im[x]);
        for c in 0..PAIRS {
            (re[c], im[c]) = (0.5 * (pr[c] + qr[c]), 0.5 * (pi[c] - qi[c]));
            (re[c + PAIRS], im[c + PAIRS]) = (0.5 * (pi[c] + qi[c]), 0.5 * (qr[c] - pr[c]));
        }
    }
}

/// Undoes `unpack`.
#[inline(always)]
fn pack(spectrum: &Spectrum, y: usize, [row_re, row_im]: &mut [Line<PAIRS>; 2]) {
    let (re, im) = (&spectrum.re[y * HALF..][..HALF], &spectrum.im[y * HALF..][..HALF]);
    for x in 0..HALF {
        let (re, im) = (&re[x], &im[x]);
        for c in 0..PAIRS {
            (row_re[x][c], row_im[x][c]) = (re[c] - im[c + PAIRS], im[c] + re[c + PAIRS]);
        }
        if (1..HALF - 1).contains(&x) {
            let (row_re, row_im) = (&mut row_re[GRID - x], &mut row_im[GRID - x]);
            for c in 0..PAIRS {
                (row_re[c], row_im[c]) = (re[c] + im[c + PAIRS], re[c + PAIRS] - im[c]);
            }
        }
    }
}

/// Transforms the `x`-th column of a spectrum whose rows are already transformed.
#[inline(always)]
fn forward_column(
    spectrum: &Spectrum,
    x: usize,
    [out_re, out_im]: &mut Column,
    between: &mut Column,
    turns: &Turns,
) {
    let (re, im) = (&spectrum.re[..GRID * HALF], &spectrum.im[..GRID * HALF]);
    transform(
        |n| (&re[n * HALF + x], &im[n * HALF + x]),
        between,
        turns,
        |n, re, im| (out_re[n], out_im[n]) = (*re, *im),
    );
}

/// Transforms a line back in place, but for the scale.
#[inline(always)]
fn invert([re, im]: &mut [Line<GRID>; 2], between: &mut [Line<GRID>; 2], turns: &Turns) {
    first_step(|n| (&im[n], &re[n]), between, turns);
    second_step(between, |n, out_im, out_re| (re[n], im[n]) = (*out_re, *out_im));
}

/// Transforms a line. Takes each element by its index, and gives each away with its.
#[inline(always)]
fn transform<'a, const WIDTH: usize>(
    element: impl Fn(usize) -> (&'a [f32; WIDTH], &'a [f32; WIDTH]),
    between: &mut [Line<WIDTH>; 2],
    turns: &Turns,
    give: impl FnMut(usize, &[f32; WIDTH], &[f32; WIDTH]),
) {
    first_step(element, between, turns);
    second_step(between, give);
}

#[inline(always)]
fn scaled(values: &[f32; PAIRS], factor: f32) -> [f32; PAIRS] {
    let mut out = [0.0; PAIRS];
    for i in 0..PAIRS {
        out[i] = values[i] * factor;
    }
    out
}

/// Transforms of eight, of each fourth element from the `k`-th on, turned for the second step.
#[inline(always)]
fn first_step<'a, const WIDTH: usize>(
    element: impl Fn(usize) -> (&'a [f32; WIDTH], &'a [f32; WIDTH]),
    [out_re, out_im]: &mut [Line<WIDTH>; 2],
    turns: &Turns,
) {
    let (all_re, all_im) = (out_re.as_chunks_mut::<8>().0, out_im.as_chunks_mut::<8>().0);
    for (k, (all_re, all_im)) in all_re.iter_mut().zip(all_im).enumerate() {
        // Kept apart until they are whole, so that the loop needs not find out whether they overlap the
        // elements.
        let (mut out_re, mut out_im) = ([[0.0; WIDTH]; 8], [[0.0; WIDTH]; 8]);
        let turn = |n: usize| (turns[n * k][0], turns[n * k][1]);
        let (a, b, c, d) = (element(k), element(k + 4), element(k + 8), element(k + 12));
        let (e, f, g, h) = (element(k + 16), element(k + 20), element(k + 24), element(k + 28));
        let (t1, t2, t3, t4) = (turn(1), turn(2), turn(3), turn(4));
        let (t5, t6, t7) = (turn(5), turn(6), turn(7));
        for i in 0..WIDTH {
            let at = |(re, im): (&[f32; WIDTH], &[f32; WIDTH])| (re[i], im[i]);
            let [o0, o1, o2, o3, o4, o5, o6, o7] =
                eight([at(a), at(b), at(c), at(d), at(e), at(f), at(g), at(h)]);
            let (o1, o2, o3, o4) = (times(o1, t1), times(o2, t2), times(o3, t3), times(o4, t4));
            let (o5, o6, o7) = (times(o5, t5), times(o6, t6), times(o7, t7));
            (out_re[0][i], out_im[0][i]) = o0;
            (out_re[1][i], out_im[1][i]) = o1;
            (out_re[2][i], out_im[2][i]) = o2;
            (out_re[3][i], out_im[3][i]) = o3;
            (out_re[4][i], out_im[4][i]) = o4;
            (out_re[5][i], out_im[5][i]) = o5;
            (out_re[6][i], out_im[6][i]) = o6;
            (out_re[7][i], out_im[7][i]) = o7;
        }
        (*all_re, *all_im) = (out_re, out_im);
    }
}

/// Transforms of four, across those of eight. Gives each element away with its index.
#[inline(always)]
fn second_step<const WIDTH: usize>(
    [re, im]: &[Line<WIDTH>; 2],
    mut give: impl FnMut(usize, &[f32; WIDTH], &[f32; WIDTH]),
) {
    for n in 0..8 {
        let (mut out_re, mut out_im) = ([[0.0; WIDTH]; 4], [[0.0; WIDTH]; 4]);
        for i in 0..WIDTH {
            let at = |k: usize| (re[8 * k + n][i], im[8 * k + n][i]);
            let [o0, o1, o2, o3] = four([at(0), at(1), at(2), at(3)]);
            (out_re[0][i], out_im[0][i]) = o0;
            (out_re[1][i], out_im[1][i]) = o1;
            (out_re[2][i], out_im[2][i]) = o2;
            (out_re[3][i], out_im[3][i]) = o3;
        }
        for k in 0..4 {
            give(8 * k + n, &out_re[k], &out_im[k]);
        }
    }
}

type Complex = (f32, f32);

#[inline(always)]
fn add((ar, ai): Complex, (br, bi): Complex) -> Complex {
    (ar + br, ai + bi)
}

#[inline(always)]
fn subtract((ar, ai): Complex, (br, bi): Complex) -> Complex {
    (ar - br, ai - bi)
}

#[inline(always)]
fn times((ar, ai): Complex, (br, bi): Complex) -> Complex {
    (ar * br - ai * bi, ar * bi + ai * br)
}

/// A quarter of a turn back: times -i.
#[inline(always)]
fn quarter((re, im): Complex) -> Complex {
    (im, -re)
}

#[inline(always)]
fn four([a, b, c, d]: [Complex; 4]) -> [Complex; 4] {
    let (e, f, g, h) = (add(a, c), subtract(a, c), add(b, d), quarter(subtract(b, d)));
    [add(e, g), add(f, h), subtract(e, g), subtract(f, h)]
}

#[inline(always)]
fn eight([a, b, c, d, e, f, g, h]: [Complex; 8]) -> [Complex; 8] {
    use std::f32::consts::FRAC_1_SQRT_2;
    // Transforms of the even elements and of the odd ones, the odd ones turned by 0, 1, 2 and 3 eighths.
    let [k, l, m, n] = four([a, c, e, g]);
    let [p, q, r, s] = four([b, d, f, h]);
    let q = (FRAC_1_SQRT_2 * (q.0 + q.1), FRAC_1_SQRT_2 * (q.1 - q.0));
    let r = quarter(r);
    let s = (FRAC_1_SQRT_2 * (s.1 - s.0), -FRAC_1_SQRT_2 * (s.0 + s.1));
    let low = (add(k, p), add(l, q), add(m, r), add(n, s));
    let high = (subtract(k, p), subtract(l, q), subtract(m, r), subtract(n, s));
    [low.0, low.1, low.2, low.3, high.0, high.1, high.2, high.3]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn grid() -> Vec<[f32; CHANNELS]> {
        let value = |i: usize| (i * 7919 % 1013) as f32 / 1013.0;
        (0..GRID * GRID).map(|i| std::array::from_fn(|c| value(i * CHANNELS + c))).collect()
    }

    fn spectrum(fft: &mut Fft, grid: &Grid) -> Spectrum {
        let mut spectrum = Spectrum::zero();
        fft.forward(grid, |x, column| set_column(&mut spectrum, x, column));
        spectrum
    }

    /// The spectrum of a grid whose cells are weighed.
    fn weighed(fft: &mut Fft, grid: &Grid, weights: &[f32]) -> Spectrum {
        let (before, mut after) = (spectrum(fft, grid), Spectrum::zero());
        fft.weigh(weights, |pass, x, column| match pass {
            Pass::Before => {
                let [re, im] = column;
                for (n, (re, im)) in re.iter_mut().zip(im).enumerate() {
                    (*re, *im) = (before.re[n * HALF + x], before.im[n * HALF + x]);
                }
            }
            Pass::After => set_column(&mut after, x, column),
        });
        after
    }

    #[test]
    fn a_spectrum_is_that_of_the_definition() {
        let grid = grid();
        let spectrum = spectrum(&mut Fft::new(), &grid);
        for (ky, kx, channel) in [(0, 0, 0), (3, 2, 3), (31, 16, 17), (16, 0, 31), (17, 15, 9), (9, 7, 16)] {
            let (mut re, mut im) = (0.0, 0.0);
            for y in 0..GRID {
                for x in 0..GRID {
                    let angle = -2.0 * std::f64::consts::PI * (ky * y + kx * x) as f64 / GRID as f64;
                    let value = f64::from(grid[y * GRID + x][channel]);
                    re += value * libm::cos(angle);
                    im += value * libm::sin(angle);
                }
            }
            let at = ky * HALF + kx;
            let found = (f64::from(spectrum.re[at][channel]), f64::from(spectrum.im[at][channel]));
            // 1024 terms below 1, each rounded some ten times to 24 bits.
            assert!(
                (found.0 - re).abs() < 2e-3 && (found.1 - im).abs() < 2e-3,
                "{ky} {kx}: {found:?} {re} {im}"
            );
        }
    }

    #[test]
    fn the_inverse_gives_a_channel_back() {
        let (mut fft, grid) = (Fft::new(), grid());
        let spectrum = spectrum(&mut fft, &grid);
        let one = |v: &[[f32; CHANNELS]]| v.iter().map(|cell| cell[5]).collect::<Vec<_>>();
        let mut back = Vec::new();
        fft.inverse(&one(&spectrum.re), &one(&spectrum.im), &mut back);
        for (a, b) in one(&grid).iter().zip(&back) {
            assert!((a - b).abs() < 1e-5, "{a} {b}");
        }
    }

    #[test]
    fn weights_are_those_of_cells() {
        let (mut fft, mut grid) = (Fft::new(), grid());
        let weights: Vec<f32> = (0..GRID * GRID).map(|i| (i % 7) as f32).collect();
        let weighed = weighed(&mut fft, &grid, &weights);
        for (cell, weight) in grid.iter_mut().zip(&weights) {
            *cell = cell.map(|value| value * weight);
        }
        let expected = spectrum(&mut fft, &grid);
        let all = |s: &Spectrum| s.re.iter().chain(&s.im).flatten().copied().collect::<Vec<_>>();
        for (a, b) in all(&weighed).iter().zip(all(&expected)) {
            // The sums are up to 3000.
            assert!((a - b).abs() < 1e-2, "{a} {b}");
        }
    }

    #[test]
    fn every_level_gives_the_same_bits() {
        let grid = grid();
        let all = Level::available().into_iter().map(|level| {
            let spectrum = weighed(&mut Fft { level, ..Fft::new() }, &grid, &[0.3; GRID * GRID]);
            (spectrum.re, spectrum.im)
        });
        let all: Vec<_> = all.collect();
        assert!(all.iter().all(|spectrum| *spectrum == all[0]));
    }
}
