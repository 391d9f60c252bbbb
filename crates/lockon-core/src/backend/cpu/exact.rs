//! Exact scores: of one window by adding up its products, of all positions of a tile by FFT in f64.
//!
//! The correlation of whole numbers is a whole number. Where the bound on an output's error is less than 1/2,
//! rounding gives the number itself. Pixels are counted from 128 and templates from their mean, which keeps
//! the numbers, and so the error, small; numerator and variances do not change when grey levels are counted
//! from elsewhere, as long as all sums agree.

use super::correlate::{Correlator, Pattern, Plans, Scratch, Spectrum};
use super::plan::Tile;
use super::simd::Level;
use super::sums::{MIDDLE, WindowSums};
use crate::backend::peaks::{Candidate, ScoreTile};
use crate::backend::score;
use crate::control::Control;
use crate::error::Result;
use crate::frame::{Plane, PlaneRef, Rect, Size};
use crate::memory;
use crate::template::Template;

/// The offset that is subtracted from squares of centred pixels, 0 to 2^14.
const MIDDLE_SQUARE: i32 = 1 << 13;

/// 1.5 * 2^52. In a f64 of that size the last bit counts 1, so adding it rounds to a whole number, which is
/// then in the low bits. Unlike `f64::round` and `as i64` this is two instructions that SSE2 does for two
/// numbers at once.
const ROUNDER: f64 = 6_755_399_441_055_744.0;

/// Products of a row that are added up in 32 bits.
const CHUNK: usize = 1 << 15;

/// Below this width the sums of a window are kept by column until its last row: to add up each short row
/// takes longer than its products.
const WIDE: usize = 64;

/// Columns of such sums. Each has products of at most `WIDE / COLUMNS` pixels of a row, and rows are flushed
/// before 32 bits overflow.
const COLUMNS: usize = 16;
const FLUSHED: usize = (i32::MAX as usize) / (255 * 255) / (WIDE / COLUMNS);

/// The sums of a window narrower than [`WIDE`]: of its pixels, their squares, and their products with a
/// template.
#[inline(always)]
fn narrow_sums(window: PlaneRef<'_>, template: PlaneRef<'_>) -> (i64, i64, i64) {
    let Size { width, height } = window.size();
    let (mut s, mut ss, mut st) = (0, 0, 0);
    for top in (0..height).step_by(FLUSHED) {
        let mut sums = [[0_i32; COLUMNS]; 3];
        for y in top..height.min(top + FLUSHED) {
            let add =
                |pixels: &[u8; COLUMNS], wanted: &[u8; COLUMNS], [s, ss, st]: &mut [[i32; COLUMNS]; 3]| {
                    for i in 0..COLUMNS {
                        let (pixel, wanted) = (i32::from(pixels[i]), i32::from(wanted[i]));
                        s[i] += pixel;
                        ss[i] += pixel * pixel;
                        st[i] += pixel * wanted;
                    }
                };
            let (pixels, rest) = window.row(y).as_chunks();
            let (wanted, wanted_rest) = template.row(y).as_chunks();
            for (pixels, wanted) in pixels.iter().zip(wanted) {
                add(pixels, wanted, &mut sums);
            }
            if !rest.is_empty() {
                let (mut pixels, mut wanted) = ([0; COLUMNS], [0; COLUMNS]);
                pixels[..width % COLUMNS].copy_from_slice(rest);
                wanted[..width % COLUMNS].copy_from_slice(wanted_rest);
                add(&pixels, &wanted, &mut sums);
            }
        }
        let [of_s, of_ss, of_st] = sums.map(|sums| sums.iter().map(|&sum| i64::from(sum)).sum::<i64>());
        (s, ss, st) = (s + of_s, ss + of_ss, st + of_st);
    }
    (s, ss, st)
}

/// The exact score of `template` at one position of a region.
///
/// # Panics
/// If the window does not lie inside the region.
pub(super) fn score_at(
    level: Level,
    region: PlaneRef<'_>,
    template: &Template,
    (x, y): (usize, usize),
) -> f64 {
    let Size { width, height } = template.size();
    let (mut s, mut ss, mut st) = (0, 0, 0);
    level.run(
        #[inline(always)]
        || {
            for (j, &(from, to)) in template.spans().into_iter().flatten().enumerate() {
                let (from, to) = (from as usize, to as usize);
                let pixels = region.row(y + j)[x + from..x + to].chunks(CHUNK);
                let wanted = template.luma().data()[j * width + from..j * width + to].chunks(CHUNK);
                for (pixels, wanted) in pixels.zip(wanted) {
                    let sums = row_sums(pixels);
                    (s, ss) = (s + sums.0, ss + sums.1);
                    st += i64::from(dot(pixels, wanted));
                }
            }
            if template.mask().is_none() && width < WIDE {
                let window = region.crop(Rect::new(x, y, width, height));
                (s, ss, st) = narrow_sums(window, template.luma().as_ref());
                return;
            }
            let height = if template.spans().is_some() { 0 } else { height };
            for j in 0..height {
                let (pixels, row) = (&region.row(y + j)[x..x + width], j * width..(j + 1) * width);
                let wanted = template.luma().data()[row.clone()].chunks(CHUNK);
                if let Some(mask) = template.mask() {
                    let mask = mask.data()[row].chunks(CHUNK);
                    for ((pixels, wanted), mask) in pixels.chunks(CHUNK).zip(wanted).zip(mask) {
                        s += i64::from(dot(pixels, mask));
                        ss += i64::from(masked_squares(pixels, mask));
                        // Pixels that do not count are 0 in the template.
                        st += i64::from(dot(pixels, wanted));
                    }
                } else {
                    for (pixels, wanted) in pixels.chunks(CHUNK).zip(wanted) {
                        let sums = row_sums(pixels);
                        (s, ss) = (s + sums.0, ss + sums.1);
                        st += i64::from(dot(pixels, wanted));
                    }
                }
            }
        },
    );
    score::score(template.sums(), s, ss, st)
}

/// Appends a position of a score map whose exact score is known to `found`, if it is a peak by the exact
/// scores around it, which `score_at` makes.
pub(super) fn find_peak(
    map: Size,
    score_at: impl Fn((usize, usize)) -> f64,
    member: u32,
    (x, y): (usize, usize),
    score: f64,
    found: &mut Vec<Candidate>,
) {
    let (left, top) = (x.saturating_sub(1), y.saturating_sub(1));
    let around = Size::new((x + 2).min(map.width) - left, (y + 2).min(map.height) - top);
    let mut scores = [score; 9];
    for (i, score) in scores[..around.area()].iter_mut().enumerate() {
        let at = (left + i % around.width, top + i / around.width);
        if at != (x, y) {
            *score = score_at(at);
        }
    }
    let wanted = Rect::new(x - left, y - top, 1, 1);
    ScoreTile { scores: &scores, size: around, origin: (left, top), wanted }.find(member, score, found);
}

/// The sums of a row of pixels and of their squares.
#[inline(always)]
pub(super) fn row_sums(pixels: &[u8]) -> (i64, i64) {
    pixels.chunks(CHUNK).fold((0, 0), |(s, ss), pixels| {
        let sum: i32 = pixels.iter().map(|&v| i32::from(v)).sum();
        (s + i64::from(sum), ss + i64::from(dot(pixels, pixels)))
    })
}

/// The sum of products of up to [`CHUNK`] pixels: as signed numbers, which is what vector units multiply and
/// add in pairs.
#[inline(always)]
fn dot(a: &[u8], b: &[u8]) -> i32 {
    a.iter().zip(b).map(|(&a, &b)| i32::from(a) * i32::from(b)).sum()
}

#[inline(always)]
fn masked_squares(pixels: &[u8], mask: &[u8]) -> i32 {
    pixels.iter().zip(mask).map(|(&v, &counts)| i32::from(v) * i32::from(v * counts)).sum()
}

/// The exact search of tiles of one size: data that all threads read.
pub(super) struct Exact {
    correlator: Correlator<f64>,
}

/// A template, ready to be searched for exactly. Its grey levels are counted from about their mean.
pub(super) struct ExactMember {
    size: Size,
    n: i64,
    t1: i64,
    variance: i64,
    pattern: Pattern<f64>,
    mask: Option<Pattern<f64>>,
}

/// Working memory of one thread.
pub(super) struct ExactWork {
    pixels: Spectrum<f64>,
    /// Made when the first masked member is searched.
    squares: Option<Spectrum<f64>>,
    /// The source of the spectra.
    holds: Holds,
    scratch: Scratch<f64>,
    /// Sums of one tile's windows, row by row; S and SS only where there are masks.
    st: Vec<i64>,
    s: Vec<i64>,
    ss: Vec<i64>,
    sliding: WindowSums,
    scores: Vec<f64>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Holds {
    Nothing,
    Pixels,
    PixelsAndSquares,
}

impl Exact {
    /// An exact search of tiles of size `tile`.
    pub(super) fn new(tile: Size, level: Level, control: &Control) -> Self {
        Self { correlator: Correlator::new(&mut Plans::new(level), tile, level).under(control) }
    }

    /// Gets a template ready.
    ///
    /// # Errors
    /// `NoMemory`.
    ///
    /// # Panics
    /// If the bound on a sum's error is 1/4 or more: no template that can exist has one like that in any tile
    /// of up to 2^27 pixels.
    pub(super) fn member(&self, template: &Template, work: &mut ExactWork) -> Result<ExactMember> {
        let (size, sums) = (template.size(), template.sums());
        let (n, mean) = (sums.n, (sums.t1 + sums.n / 2) / sums.n);
        let load = |y: usize, row: &mut [f64]| {
            for (out, &pixel) in row.iter_mut().zip(template.luma().as_ref().row(y)) {
                *out = (i64::from(pixel) - mean) as f64;
            }
            if let Some(mask) = template.mask() {
                for (out, &counts) in row.iter_mut().zip(mask.as_ref().row(y)) {
                    *out *= f64::from(counts);
                }
            }
        };
        let pattern = self.pattern(size, load, MIDDLE, work)?;
        let mask_pattern = |mask: &Plane| {
            let load = |y: usize, row: &mut [f64]| {
                for (out, &counts) in row.iter_mut().zip(mask.as_ref().row(y)) {
                    *out = f64::from(counts);
                }
            };
            // The squares are the larger of the two planes that the mask is correlated with.
            self.pattern(size, load, MIDDLE_SQUARE, work)
        };
        let mask = template.mask().map(mask_pattern).transpose()?;
        Ok(ExactMember { size, n, t1: sums.t1 - mean * n, variance: sums.variance(), pattern, mask })
    }

    /// A pattern for correlation with tiles whose numbers are at most `largest` in absolute value.
    fn pattern(
        &self,
        size: Size,
        load: impl FnMut(usize, &mut [f64]),
        largest: i32,
        work: &mut ExactWork,
    ) -> Result<Pattern<f64>> {
        let pattern = self.correlator.pattern(size, load, &mut work.scratch)?;
        let tile = self.correlator.tile();
        let bound = self.correlator.error(f64::from(largest) * (tile.area() as f64).sqrt(), &pattern);
        assert!(bound < 0.25, "correlation of {size} in {tile} may be wrong by {bound}");
        Ok(pattern)
    }
}

impl ExactWork {
    /// Room for tiles with up to `positions` positions of a member.
    ///
    /// # Errors
    /// `NoMemory`.
    pub(super) fn new(exact: &Exact, positions: usize) -> Result<Self> {
        Ok(Self {
            pixels: exact.correlator.spectrum()?,
            squares: None,
            holds: Holds::Nothing,
            scratch: exact.correlator.scratch()?,
            st: memory::filled("exact sums", positions, 0)?,
            s: Vec::new(),
            ss: Vec::new(),
            sliding: WindowSums::new(exact.correlator.tile().width),
            scores: memory::filled("exact scores", positions, 0.0)?,
        })
    }

    /// Returns the bytes of one thread's working memory, at the largest size that it can grow to, including a
    /// template that the thread prepares for itself.
    pub(super) fn bytes(tile: Size, positions: usize, has_masks: bool) -> usize {
        let planes = if has_masks { 2 } else { 1 };
        let sums = positions * (16 + if has_masks { 16 } else { 0 });
        2 * planes * Correlator::<f64>::spectrum_bytes(tile)
            + Correlator::<f64>::scratch_bytes(tile)
            + sums
            + 32 * tile.width
    }

    /// The tile that was searched before is another one now.
    pub(super) fn forget(&mut self) {
        self.holds = Holds::Nothing;
    }

    /// Scores one member at the positions of a tile. `pixels` are the tile's, the same for all members until
    /// [`Self::forget`].
    pub(super) fn score(
        &mut self,
        exact: &Exact,
        member: &ExactMember,
        pixels: PlaneRef<'_>,
        Tile { origin, size, own }: Tile,
    ) -> Result<ScoreTile<'_>> {
        self.transform(exact, pixels, member.mask.is_some())?;
        let Self { st, s, ss, scores, scratch, .. } = self;
        let (st, scores) = (&mut st[..size.area()], &mut scores[..size.area()]);
        let mut correlate = |spectrum: &Spectrum<f64>, pattern: &Pattern<f64>, out: &mut [i64]| {
            exact.correlator.correlate(spectrum, pattern, size, scratch, to_whole, out);
        };
        correlate(&self.pixels, &member.pattern, st);
        let rows = scores.chunks_exact_mut(size.width).zip(st.chunks_exact(size.width));
        if let (Some(mask), Some(squares)) = (&member.mask, &self.squares) {
            s.resize(size.area().max(s.len()), 0);
            ss.resize(size.area().max(ss.len()), 0);
            let (s, ss) = (&mut s[..size.area()], &mut ss[..size.area()]);
            correlate(&self.pixels, mask, s);
            correlate(squares, mask, ss);
            let left_out = i64::from(MIDDLE_SQUARE) * member.n;
            for ss in ss.iter_mut() {
                *ss += left_out;
            }
            let sums = s.chunks_exact(size.width).zip(ss.chunks_exact(size.width));
            for ((scores, st), (s, ss)) in rows.zip(sums) {
                score_row(member, st, s, ss, scores);
            }
        } else {
            for (y, (scores, st)) in rows.enumerate() {
                self.sliding.go_to(y, pixels, member.size, size.width);
                score_row(member, st, &self.sliding.sums, &self.sliding.squares, scores);
            }
        }
        Ok(ScoreTile { scores, size, origin, wanted: own })
    }

    /// Makes the spectra of a tile's pixels, and of their squares if there is a mask, unless they are there.
    fn transform(&mut self, exact: &Exact, pixels: PlaneRef<'_>, is_masked: bool) -> Result<()> {
        let Size { width, height } = pixels.size();
        let load = |y: usize, row: &mut [f64], value: fn(i32) -> i32| {
            for (out, &pixel) in row.iter_mut().zip(pixels.row(y)) {
                *out = f64::from(value(i32::from(pixel) - MIDDLE));
            }
            row[width..].fill(0.0);
        };
        let (correlator, scratch) = (&exact.correlator, &mut self.scratch);
        if self.holds == Holds::Nothing {
            correlator.transform(height, |y, row| load(y, row, |v| v), scratch, &mut self.pixels);
            self.holds = Holds::Pixels;
        }
        if is_masked && self.holds == Holds::Pixels {
            if self.squares.is_none() {
                self.squares = Some(correlator.spectrum()?);
            }
            let squares = self.squares.as_mut().expect("just made");
            let centred_square = |v: i32| v * v - MIDDLE_SQUARE;
            correlator.transform(height, |y, row| load(y, row, centred_square), scratch, squares);
            self.holds = Holds::PixelsAndSquares;
        }
        Ok(())
    }
}

/// Scores windows by their sums. Kept apart so that the compiler sees one loop over plain slices.
fn score_row(member: &ExactMember, st: &[i64], s: &[i64], ss: &[i64], scores: &mut [f64]) {
    let &ExactMember { n, t1, variance, .. } = member;
    for (((score, &st), &s), &ss) in scores.iter_mut().zip(st).zip(s).zip(ss) {
        *score = score::ratio(n * st - s * t1, n * ss - s * s, variance);
    }
}

/// The whole number nearest to `v`.
pub(super) fn to_whole(v: f64) -> i64 {
    debug_assert!((v - v.round()).abs() < 0.25, "{v} is not near a whole number");
    (v + ROUNDER).to_bits() as i64 - ROUNDER.to_bits() as i64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reference;

    #[test]
    fn rounding_reaches_large_and_negative_numbers() {
        for whole in [0, 1, -1, (1 << 37) - 1, -(1 << 37) + 1] {
            assert_eq!(to_whole(whole as f64 + 0.2), whole);
            assert_eq!(to_whole(whole as f64 - 0.2), whole);
        }
    }

    #[test]
    fn one_window_scores_as_the_reference_at_every_level() {
        let frame = reference::picture(Size::new(101, 67));
        for (w, h) in [(2, 1), (15, 9), (16, 16), (33, 31), (100, 60)] {
            let place = crate::frame::Rect::new(1, 5, w, h);
            let luma = frame.as_ref().crop(place).to_plane();
            let holes = (0..w * h).map(|i| if i % 7 == 3 { 0 } else { 255 }).collect();
            // One span in each row, and none in the first if there are others.
            let slanted =
                |i: usize| (i % w + 2 * (i / w)) % (w + 3) < w.div_ceil(2).max(2) && (h < 2 || i >= w);
            let mut spans: Vec<_> = (0..w * h).map(|i| if slanted(i) { 255 } else { 0 }).collect();
            for row in spans.chunks_mut(w) {
                if let Some(gap) = row.windows(2).position(|pair| pair == [255, 0]) {
                    row[gap + 1..].fill(0);
                }
            }
            let masks = [holes, spans].map(|mask| Plane::from_vec(mask, Size::new(w, h)));
            for mask in [None, Some(&masks[0]), Some(&masks[1])] {
                let template = Template::new("t", luma.clone(), mask).unwrap();
                for (x, y) in [(0, 0), (1, 5), (101 - w, 67 - h)] {
                    let expected = reference::ncc::score_at(frame.as_ref(), &template, x, y);
                    for level in Level::available() {
                        let found = score_at(level, frame.as_ref(), &template, (x, y));
                        assert_eq!(found, expected, "{w}x{h} at {x}, {y}, {level}");
                    }
                }
            }
        }
    }

    #[test]
    fn the_longest_rows_and_columns_do_not_overflow() {
        for size in [Size::new(3 * CHUNK + 7, 2), Size::new(WIDE - 1, 3 * FLUSHED + 7)] {
            let mut luma = Plane::from_vec(vec![255; size.area()], size);
            luma.data_mut()[CHUNK] = 254;
            let template = Template::new("t", luma.clone(), None).unwrap();
            assert_eq!(score_at(Level::best(), luma.as_ref(), &template, (0, 0)), 1.0);
        }
    }
}
