//! Correlation of whole numbers by FFT, with a bound on the error of every output.
//!
//! A tile of whole numbers x and a smaller pattern y have the correlation z(u, v) = sum over (i, j) of x(u +
//! i, v + j) * y(i, j). Computed as the inverse transform of X * conj(Y), the outputs come out with an error.
//! [`Correlator::error`] returns a bound on it. In f64 the bound is less than 1/2 for whole numbers of the
//! size of pixels, so rounding gives z itself (`exact.rs`); in f32 it is small enough to rule out most
//! positions (`estimate.rs`). Either way the reported results do not depend on the FFT's algorithm, the
//! tile's size or the processor.
//!
//! **The bound.** Let N be the tile's pixels and u the unit roundoff, 2^-53 or 2^-24. Every output of a
//! Cooley-Tukey transform is a sum over all inputs. Each input reaches it by one path of at most log2 N
//! stages. A stage multiplies by a root of unity (wrong by 16 u at most: an angle of up to 2 pi made in three
//! roundings, and its sine), which costs 3 u more, and adds, which costs u: less than 24 u for each factor of
//! 2 in N, whether radices are 2, 3 or 5. Hence
//! - the computed X is wrong by a vector of norm at most 24 u log2 N * sqrt(N) ||x||, and Y likewise; by
//!   Cauchy-Schwarz all products together are wrong by 48 u log2 N * N ||x|| ||y||, and each output of the
//!   inverse, a mean of N terms, therefore by 48 u log2 N * ||x|| ||y||;
//! - along the paths of the inverse each output is wrong by another 24 u log2 N * (1/N) sum |X Y|, and that
//!   sum is N ||x|| ||y|| at most, by Cauchy-Schwarz again.
//!
//! Together 72 u log2 N * ||x|| ||y||. Two rows share a complex transform and may spill into each other,
//! which at most doubles the last part; rounding the pattern itself, products and scaling add a few u. [`K`]
//! = 128 covers all of it with room to spare. In f64, with pixels counted from 128 and templates from their
//! mean, the largest template (2^22 pixels of 0 and 255) in a tile of 2^24 pixels has ||x|| = 2^19, ||y|| =
//! 2^18 and a bound of 1/20; one of 64 x 64 pixels in a tile of 256 x 320 has 1/14,000.
//!
//! N. J. Higham, "Accuracy and Stability of Numerical Algorithms", 2002, section 24.1, has the norm-wise
//! argument.
//!
//! **The layout.** Transforms go along rows, then along columns. A spectrum lies column by column, so that
//! both directions read memory in order: blocks of eight rows are turned over on the way. Real rows are
//! transformed in pairs, one as the real and one as the imaginary part, and taken apart while they are turned
//! over; only the columns 0 to half the width are kept, the others mirror them.

use std::sync::Arc;

use rustfft::num_complex::Complex;
use rustfft::{Fft, FftNum, FftPlanner, FftPlannerScalar};

use super::simd::Level;
use crate::control::Control;
use crate::error::Result;
use crate::frame::Size;
use crate::memory;

/// Error of an output over u * log2 N * ||x|| * ||y||, at most. See the module's documentation.
const K: f64 = 128.0;

/// Rows that are transformed and turned over at once: eight complex numbers are one or two cache lines.
pub(super) const BLOCK: usize = 8;

/// The floating-point type of the computation.
pub(super) trait Real: FftNum + Default + Into<f64> {
    /// u, the unit roundoff.
    const ROUNDOFF: f64;

    /// The nearest number to `value`.
    fn nearest(value: f64) -> Self;
}

impl Real for f32 {
    const ROUNDOFF: f64 = f32::EPSILON as f64 / 2.0;

    fn nearest(value: f64) -> Self {
        value as f32
    }
}

impl Real for f64 {
    const ROUNDOFF: f64 = f64::EPSILON / 2.0;

    fn nearest(value: f64) -> Self {
        value
    }
}

/// Plans transforms and remembers them.
pub(super) enum Plans<T: FftNum> {
    /// With the processor's vector instructions.
    Wide(FftPlanner<T>),
    /// Without.
    Plain(FftPlannerScalar<T>),
}

impl<T: FftNum> Plans<T> {
    /// Plans for a level of vector instructions.
    pub(super) fn new(level: Level) -> Self {
        if level.has_wide_transforms() {
            Self::Wide(FftPlanner::new())
        } else {
            Self::Plain(FftPlannerScalar::new())
        }
    }

    fn both_directions(&mut self, length: usize) -> Directions<T> {
        match self {
            Self::Wide(planner) => Directions {
                forward: planner.plan_fft_forward(length),
                inverse: planner.plan_fft_inverse(length),
            },
            Self::Plain(planner) => Directions {
                forward: planner.plan_fft_forward(length),
                inverse: planner.plan_fft_inverse(length),
            },
        }
    }
}

/// Correlates tiles of one size.
pub(super) struct Correlator<T> {
    control: Control,
    level: Level,
    tile: Size,
    /// Complex numbers from one column of a spectrum to the next.
    stride: usize,
    along_rows: Directions<T>,
    along_cols: Directions<T>,
}

/// Both directions of a transform.
struct Directions<T> {
    forward: Arc<dyn Fft<T>>,
    inverse: Arc<dyn Fft<T>>,
}

/// Half of the spectrum of a tile, column by column. Zero at first.
pub(super) struct Spectrum<T>(Vec<Complex<T>>);

/// A pattern, ready to be correlated with tiles.
pub(super) struct Pattern<T> {
    spectrum: Spectrum<T>,
    /// ||y||, the root of the sum of the squares of its numbers.
    norm: f64,
}

/// Buffers that a transform needs besides its input and output.
pub(super) struct Scratch<T> {
    /// Two rows as read, for one complex row.
    real: Vec<T>,
    /// A block of complex rows.
    packed: Vec<Complex<T>>,
    fft: Vec<Complex<T>>,
    /// The spectrum of a correlation.
    product: Spectrum<T>,
}

impl<T: Real> Correlator<T> {
    /// A correlator of tiles of size `tile`. Fast if both sides have no prime factors but 2, 3 and 5, which
    /// the bound takes for granted.
    pub(super) fn new(plans: &mut Plans<T>, tile: Size, level: Level) -> Self {
        let (along_rows, along_cols) =
            (plans.both_directions(tile.width), plans.both_directions(tile.height));
        let stride = stride(tile);
        Self { control: Control::new(), level, tile, stride, along_rows, along_cols }
    }

    /// As `self`, for a run: once the run is stopped, transforms and correlations are left unfinished and
    /// their results are useless.
    pub(super) fn under(self, control: &Control) -> Self {
        Self { control: control.clone(), ..self }
    }

    /// The size of the tiles.
    pub(super) fn tile(&self) -> Size {
        self.tile
    }

    /// A spectrum of zeros.
    ///
    /// # Errors
    /// `NoMemory`.
    pub(super) fn spectrum(&self) -> Result<Spectrum<T>> {
        let count = self.kept_cols() * self.stride;
        Ok(Spectrum(memory::filled("the transform of a tile", count, Complex::default())?))
    }

    /// Bytes of a spectrum of tiles of that size.
    pub(super) fn spectrum_bytes(tile: Size) -> usize {
        kept_cols(tile) * stride(tile) * size_of::<Complex<T>>()
    }

    /// Bytes of [`Self::scratch`] of tiles of that size, or a little more: it depends on how a transform is
    /// planned.
    pub(super) fn scratch_bytes(tile: Size) -> usize {
        let rows = (1 + BLOCK / 2) * tile.width + 4 * tile.width.max(tile.height);
        Self::spectrum_bytes(tile) + rows * size_of::<Complex<T>>()
    }

    /// Returns the buffers that [`Self::transform`] and [`Self::correlate`] need.
    ///
    /// # Errors
    /// `NoMemory`.
    pub(super) fn scratch(&self) -> Result<Scratch<T>> {
        let needed =
            |d: &Directions<T>| d.forward.get_inplace_scratch_len().max(d.inverse.get_inplace_scratch_len());
        Ok(Scratch {
            real: vec![T::zero(); 2 * self.tile.width],
            packed: vec![Complex::default(); BLOCK / 2 * self.tile.width],
            fft: vec![Complex::default(); needed(&self.along_rows).max(needed(&self.along_cols))],
            product: self.spectrum()?,
        })
    }

    /// Replaces `spectrum` by that of a tile whose row `y` is written by `load(y, row)`, over its whole
    /// width.
    ///
    /// Only the first `rows` rows are asked for; those after them are 0.
    ///
    /// # Panics
    /// If there are more than the tile's rows.
    pub(super) fn transform(
        &self,
        rows: usize,
        mut load: impl FnMut(usize, &mut [T]),
        scratch: &mut Scratch<T>,
        spectrum: &mut Spectrum<T>,
    ) {
        let width = self.tile.width;
        for top in (0..rows).step_by(BLOCK) {
            if self.control.is_stopped() {
                return;
            }
            for (pair, packed) in scratch.packed.chunks_exact_mut(width).enumerate() {
                let (even, odd) = scratch.real.split_at_mut(width);
                for (row, y) in [&mut *even, &mut *odd].into_iter().zip(top + 2 * pair..) {
                    if y < rows {
                        load(y, row);
                    } else {
                        row.fill(T::zero());
                    }
                }
                self.level.run(
                    #[inline(always)]
                    || {
                        for ((packed, &re), &im) in packed.iter_mut().zip(even.iter()).zip(odd.iter()) {
                            *packed = Complex::new(re, im);
                        }
                    },
                );
            }
            self.along_rows.forward.process_with_scratch(&mut scratch.packed, &mut scratch.fft);
            self.level.run(
                #[inline(always)]
                || self.unpack(&scratch.packed, top, spectrum),
            );
        }
        for col in spectrum.0.chunks_exact_mut(self.stride) {
            if self.control.is_stopped() {
                return;
            }
            let col = &mut col[..self.tile.height];
            col[rows..].fill(Complex::default());
            self.along_cols.forward.process_with_scratch(col, &mut scratch.fft);
        }
    }

    /// Takes the pairs of a transformed block of rows apart, into rows `top..top + BLOCK` of the spectrum's
    /// columns.
    ///
    /// With Z the transform of a + ib, A is (Z(k) + conj Z(-k)) / 2 and B is (Z(k) - conj Z(-k)) / 2i. This
    /// leaves both twice as large; [`Self::pattern`] makes up for it.
    #[inline(always)]
    fn unpack(&self, packed: &[Complex<T>], top: usize, spectrum: &mut Spectrum<T>) {
        let width = self.tile.width;
        for (k, col) in spectrum.0.chunks_exact_mut(self.stride).enumerate() {
            let mirrored = if k == 0 { 0 } else { width - k };
            let rows = col[top..top + BLOCK].chunks_exact_mut(2);
            for (ab, z) in rows.zip(packed.chunks_exact(width)) {
                let (z, m) = (z[k], z[mirrored]);
                ab[0] = Complex::new(z.re + m.re, z.im - m.im);
                ab[1] = Complex::new(z.im + m.im, m.re - z.re);
            }
        }
    }

    /// A pattern of size `size` whose row `y` is written by `load(y, row)`.
    ///
    /// # Errors
    /// `NoMemory`.
    ///
    /// # Panics
    /// If the pattern is larger than the tile.
    pub(super) fn pattern(
        &self,
        size: Size,
        mut load: impl FnMut(usize, &mut [T]),
        scratch: &mut Scratch<T>,
    ) -> Result<Pattern<T>> {
        assert!(size.fits_in(self.tile), "pattern {size} in a tile of {}", self.tile);
        let mut spectrum = self.spectrum()?;
        let mut squares = 0.0_f64;
        let load_padded = |y: usize, row: &mut [T]| {
            row[size.width..].fill(T::zero());
            load(y, &mut row[..size.width]);
            squares += row[..size.width].iter().map(|&v| v.into().powi(2)).sum::<f64>();
        };
        self.transform(size.height, load_padded, scratch, &mut spectrum);
        // Both spectra are twice too large, and the transforms are not normalised.
        let scale = T::nearest(1.0 / (4.0 * self.tile.area() as f64));
        for value in &mut spectrum.0 {
            *value = value.conj() * scale;
        }
        // A little more than computed: squares and their sum were rounded.
        Ok(Pattern { spectrum, norm: squares.sqrt() * (1.0 + 1e-9) })
    }

    /// The bound on the error of each output of a correlation of `pattern` with a tile. `tile_norm` is the
    /// tile's ||x||, the root of the sum of the squares of its numbers, or more.
    pub(super) fn error(&self, tile_norm: f64, pattern: &Pattern<T>) -> f64 {
        error_of::<T>(self.tile, tile_norm, pattern.norm)
    }

    /// Writes the correlation of a tile with a pattern to `out`, each number as `convert` makes it: row by
    /// row, `valid.height` rows of `valid.width` numbers, which must be positions where the pattern lies
    /// inside the tile.
    ///
    /// # Panics
    /// If `valid` is larger than the tile, or `out` does not hold `valid.area()` numbers.
    pub(super) fn correlate<O>(
        &self,
        tile: &Spectrum<T>,
        pattern: &Pattern<T>,
        valid: Size,
        scratch: &mut Scratch<T>,
        convert: impl Fn(T) -> O,
        out: &mut [O],
    ) {
        assert_eq!(out.len(), valid.area(), "numbers for {valid} outputs");
        let product = &mut scratch.product;
        let columns = |s| <[Complex<T>]>::chunks_exact(s, self.stride);
        let factors = columns(&tile.0).zip(columns(&pattern.spectrum.0));
        for (col, (x, y)) in product.0.chunks_exact_mut(self.stride).zip(factors) {
            if self.control.is_stopped() {
                return;
            }
            let col = &mut col[..self.tile.height];
            self.level.run(
                #[inline(always)]
                || {
                    for ((z, x), y) in col.iter_mut().zip(x).zip(y) {
                        *z = x * y;
                    }
                },
            );
            self.along_cols.inverse.process_with_scratch(col, &mut scratch.fft);
        }
        let width = self.tile.width;
        for (block, out) in out.chunks_mut(BLOCK * valid.width).enumerate() {
            if self.control.is_stopped() {
                return;
            }
            self.level.run(
                #[inline(always)]
                || self.pack(product, block * BLOCK, &mut scratch.packed),
            );
            let pairs = out.len().div_ceil(2 * valid.width);
            let packed = &mut scratch.packed[..pairs * width];
            self.along_rows.inverse.process_with_scratch(packed, &mut scratch.fft);
            let rows = out.chunks_mut(2 * valid.width).zip(packed.chunks_exact(width));
            self.level.run(
                #[inline(always)]
                || {
                    for (rows, packed) in rows {
                        let (even, odd) = rows.split_at_mut(valid.width);
                        for (out, z) in even.iter_mut().zip(packed) {
                            *out = convert(z.re);
                        }
                        for (out, z) in odd.iter_mut().zip(packed) {
                            *out = convert(z.im);
                        }
                    }
                },
            );
        }
    }

    /// Puts rows `top..top + BLOCK` of a spectrum's columns together in pairs A + iB; undoes
    /// [`Self::unpack`].
    #[inline(always)]
    fn pack(&self, spectrum: &Spectrum<T>, top: usize, packed: &mut [Complex<T>]) {
        let width = self.tile.width;
        for (k, col) in spectrum.0.chunks_exact(self.stride).enumerate() {
            let mirrored = if k == 0 { 0 } else { width - k };
            let rows = col[top..top + BLOCK].chunks_exact(2);
            for (ab, z) in rows.zip(packed.chunks_exact_mut(width)) {
                let (a, b) = (ab[0], ab[1]);
                // In this order: columns that mirror themselves are real, and their first form is the whole
                // one.
                z[mirrored] = Complex::new(a.re + b.im, b.re - a.im);
                z[k] = Complex::new(a.re - b.im, a.im + b.re);
            }
        }
    }

    /// Columns of a spectrum that are kept.
    fn kept_cols(&self) -> usize {
        kept_cols(self.tile)
    }
}

/// Columns of a spectrum that are kept: the others mirror them.
fn kept_cols(tile: Size) -> usize {
    tile.width / 2 + 1
}

/// Complex numbers from one column of a spectrum to the next.
fn stride(tile: Size) -> usize {
    // One block more than needed: with columns a power of two apart, all would compete for the same cache
    // lines.
    tile.height.next_multiple_of(BLOCK) + BLOCK
}

/// The bound of [`Correlator::error`] for tiles of a size and a pattern with the norm `pattern_norm`.
pub(super) fn error_of<T: Real>(tile: Size, tile_norm: f64, pattern_norm: f64) -> f64 {
    // A tile of one pixel has no stages, but products.
    let stages = (tile.area() as f64).log2().max(1.0);
    K * T::ROUNDOFF * stages * tile_norm * pattern_norm
}

#[cfg(test)]
mod tests {
    use super::*;

    fn noise(seed: u64) -> impl FnMut() -> i64 {
        let mut state = seed;
        move || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) as i64
        }
    }

    /// Correlates `x` (as large as the tile) with `y` and returns the outputs where `y` lies inside, and the
    /// bound.
    fn correlate<T: Real>(level: Level, tile: Size, x: &[i64], size: Size, y: &[i64]) -> (Vec<f64>, f64) {
        let correlator = Correlator::<T>::new(&mut Plans::new(level), tile, level);
        let mut scratch = correlator.scratch().unwrap();
        let load = |numbers: &[i64], width: usize, y: usize, row: &mut [T]| {
            for (row, &v) in row.iter_mut().zip(&numbers[y * width..]) {
                *row = T::nearest(v as f64);
            }
        };
        let pattern = correlator.pattern(size, |j, row| load(y, size.width, j, row), &mut scratch).unwrap();
        let mut spectrum = correlator.spectrum().unwrap();
        correlator.transform(tile.height, |j, row| load(x, tile.width, j, row), &mut scratch, &mut spectrum);
        let valid = size.positions_in(tile);
        let mut out = vec![f64::NAN; valid.area()];
        let convert = |v: T| v.into();
        correlator.correlate(&spectrum, &pattern, valid, &mut scratch, convert, &mut out);
        let norm = (x.iter().map(|v| v * v).sum::<i64>() as f64).sqrt();
        (out, correlator.error(norm, &pattern))
    }

    fn by_loops(tile: Size, x: &[i64], size: Size, y: &[i64], (u, v): (usize, usize)) -> i64 {
        (0..size.area()).map(|i| x[(v + i / size.width) * tile.width + u + i % size.width] * y[i]).sum()
    }

    fn check<T: Real>(level: Level, tile: Size, x: &[i64], size: Size, y: &[i64], places: &[(usize, usize)]) {
        let (out, bound) = correlate::<T>(level, tile, x, size, y);
        let width = size.positions_in(tile).width;
        for &place in places {
            let (found, expected) =
                (out[place.1 * width + place.0], by_loops(tile, x, size, y, place) as f64);
            assert!((found - expected).abs() <= bound, "{size} in {tile} at {place:?}: {found}, {expected}");
        }
    }

    #[test]
    fn correlation_is_within_its_bound_of_the_sum_for_every_kind_of_side() {
        let mut next = noise(1);
        for (w, h) in
            [(1, 1), (1, 8), (2, 3), (3, 2), (5, 9), (15, 16), (16, 15), (24, 10), (27, 32), (45, 50)]
        {
            let (tile, size) = (Size::new(w, h), Size::new(w.div_ceil(3), h.div_ceil(2)));
            let x: Vec<_> = (0..tile.area()).map(|_| next() % 257 - 128).collect();
            let y: Vec<_> = (0..size.area()).map(|_| next() % 257 - 128).collect();
            let valid = size.positions_in(Size::new(w, h));
            let places: Vec<_> = (0..valid.area()).map(|i| (i % valid.width, i / valid.width)).collect();
            for level in Level::available() {
                check::<f64>(level, tile, &x, size, &y, &places);
                check::<f32>(level, tile, &x, size, &y, &places);
            }
        }
    }

    #[test]
    fn the_worst_contents_of_a_large_tile_stay_within_the_bound() {
        // 2^21 pixels of -128 and 127 in checkerboards, stripes and steps, correlated with themselves and
        // each other.
        type Picture = fn(usize, usize) -> bool;
        let (tile, size) = (Size::new(2160, 1080), Size::new(2048, 1024));
        let pictures: [Picture; 3] = [|x, y| (x + y) % 2 == 0, |x, _| x % 1080 < 540, |_, y| y % 3 == 0];
        let draw = |size: Size, picture: Picture| -> Vec<i64> {
            (0..size.area())
                .map(|i| if picture(i % size.width, i / size.width) { 127 } else { -128 })
                .collect()
        };
        for (a, b) in [(0, 0), (1, 1), (2, 0)] {
            let (x, y) = (draw(tile, pictures[a]), draw(size, pictures[b]));
            let places = [(0, 0), (112, 56), (1, 0), (57, 31)];
            check::<f64>(Level::best(), tile, &x, size, &y, &places);
            check::<f32>(Level::best(), tile, &x, size, &y, &places);
            let (_, bound) = correlate::<f64>(Level::best(), tile, &x, size, &y);
            assert!(bound < 0.25, "sums can be wrong by {bound}");
        }
    }
}
