//! Exact sums of a template's products with all windows of a tile, by products of bytes.
//!
//! A transform takes a time of its own, however small tile and template are. Where the processor multiplies
//! 64 bytes by one instruction, small templates take less without: [`Level`] says whether it does, and
//! [`cost_ns`] counts its instructions.
//!
//! T is counted from 128, so that it is a signed byte, and I is not. Sums of `I * (T - 128)`, of I and of
//! `I * (I - 128)` are whole numbers of 32 bits; the three sums of NCC follow from them.

use super::plan::{Plan, Tile, Workload};
use super::simd::Level;
use super::sums::MIDDLE;
use crate::backend::peaks::ScoreTile;
use crate::backend::score;
use crate::error::Result;
use crate::frame::{PlaneRef, Size};
use crate::memory;
use crate::template::{Bank, Template, TemplateSums};

#[cfg(target_arch = "x86_64")]
mod avx512;

/// Positions whose sums are made together.
const LANES: usize = 16;

/// Columns of a template that are multiplied and added up by one instruction.
const QUAD: usize = 4;

/// Columns of it that are multiplied with a part of a row while that is in registers.
const STRIP: usize = 4 * QUAD;

/// Largest template: so that n * n * 128 * 128 and all sums have room, and far beyond what is fast.
pub(super) const MOST: usize = 1 << 14;

/// Sums of a row of positions.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
struct Sums {
    /// Of `I * (T - 128)`.
    st: [i32; LANES],
    /// Of I.
    s: [i32; LANES],
    /// Of `I * (I - 128)`.
    squares: [i32; LANES],
}

impl Sums {
    const NONE: Self = Self { st: [0; LANES], s: [0; LANES], squares: [0; LANES] };

    /// The score at one position.
    #[inline(always)]
    fn score(&self, lane: usize, template: TemplateSums) -> f64 {
        let [s, squares, st] = [self.s, self.squares, self.st].map(|sums| i64::from(sums[lane]));
        let from_0 = i64::from(MIDDLE) * s;
        score::score(template, s, squares + from_0, st + from_0)
    }
}

/// A vector of bytes.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
struct Bytes(
    #[cfg_attr(not(target_arch = "x86_64"), expect(dead_code, reason = "no other processor makes sums"))]
    [u8; 64],
);

/// A template whose products are made.
pub(super) struct Pattern {
    size: Size,
    sums: TemplateSums,
    /// T - 128 of four columns each, row by row in strips: first all rows of the first strip. Columns beyond
    /// the template are 0.
    taps: Vec<[i32; STRIP / QUAD]>,
    /// 255 where a column of the last strip is the template's.
    #[cfg_attr(not(target_arch = "x86_64"), expect(dead_code, reason = "no other processor makes sums"))]
    counts: [[u8; QUAD]; STRIP / QUAD],
}

impl Pattern {
    /// `None` if there is no such instruction, or the template is not for it: masked, or too large.
    pub(super) fn new(level: Level, template: &Template) -> Option<Self> {
        let (size, sums) = (template.size(), template.sums());
        if !is_there(level) || template.mask().is_some() || size.area() > MOST {
            return None;
        }
        let Size { width, height } = size;
        let tap = |x: usize, y: usize| {
            let counted = |x: usize| (i32::from(template.luma().data()[y * width + x]) - MIDDLE) as i8;
            let bytes = std::array::from_fn(|i| if x + i < width { counted(x + i) as u8 } else { 0 });
            i32::from_le_bytes(bytes)
        };
        let strips = (0..width).step_by(STRIP);
        let taps = strips.flat_map(|x| (0..height).map(move |y| (x, y)));
        let taps = taps.map(|(x, y)| std::array::from_fn(|quad| tap(x + QUAD * quad, y))).collect();
        let last = (width - 1) / STRIP * STRIP;
        let counts = std::array::from_fn(|quad| {
            std::array::from_fn(|i| if last + QUAD * quad + i < width { 255 } else { 0 })
        });
        Some(Self { size, sums, taps, counts })
    }

    /// Bytes that it takes.
    pub(super) fn bytes(&self) -> usize {
        size_of_val(&*self.taps)
    }

    /// Its rows of taps in a strip.
    #[cfg(target_arch = "x86_64")]
    fn strip(&self, strip: usize) -> &[[i32; STRIP / QUAD]] {
        &self.taps[strip * self.size.height..][..self.size.height]
    }

    #[cfg(target_arch = "x86_64")]
    fn strips(&self) -> usize {
        self.size.width.div_ceil(STRIP)
    }

    /// Quads of a strip that have columns of the template.
    #[cfg(target_arch = "x86_64")]
    fn quads(&self, strip: usize) -> usize {
        (self.size.width - strip * STRIP).min(STRIP).div_ceil(QUAD)
    }
}

/// True if sums can be made at a level.
pub(super) fn is_there(level: Level) -> bool {
    cfg!(target_arch = "x86_64") && level.has_wide_vectors()
}

// Times on one core of a Xeon with AVX-512 (Sapphire Rapids), of a part of a row of 16 positions.

/// Products of four columns with one row.
const PRODUCTS_NS: f64 = 0.25;
/// Getting four columns of a row ready, and their sums.
const SPREAD_NS: f64 = 2.0;
/// Estimates of 16 scores, and a look at them.
const FINISH_NS: f64 = 12.0;

/// The templates of a bank, if products at the positions of a plan's tiles take less time than transforms.
pub(super) fn patterns(bank: &Bank, plan: &Plan, work: &Workload, level: Level) -> Option<Vec<Pattern>> {
    let cost_ns = |template: &Template| {
        let size = template.size();
        cost_ns(size, size.positions_in(plan.tile))
    };
    let products_ns: f64 = bank.members().iter().map(cost_ns).sum();
    if products_ns / plan.groups as f64 > plan.piece_ns(work) {
        return None;
    }
    bank.members().iter().map(|template| Pattern::new(level, template)).collect()
}

/// About how long a template takes at so many positions, in nanoseconds.
fn cost_ns(template: Size, positions: Size) -> f64 {
    let quads = template.width.div_ceil(QUAD) as f64;
    let groups = positions.width.div_ceil(LANES) as f64;
    let (rows, height) = (positions.height as f64, template.height as f64);
    groups * (quads * (rows * height * PRODUCTS_NS + (rows + height) * SPREAD_NS) + rows * FINISH_NS)
}

/// Memory of one thread, and the sums of the last template in the last tile.
pub(super) struct Products {
    /// The tile's pixels, in rows with room behind them.
    pixels: Vec<u8>,
    stride: usize,
    /// For each row of pixels its columns from 16 positions on, spread so that each position has its four.
    #[cfg_attr(not(target_arch = "x86_64"), expect(dead_code, reason = "no other processor makes sums"))]
    spread: Vec<[Bytes; STRIP / QUAD]>,
    /// Sums of I and of `I * (I - 128)` in each row of pixels.
    #[cfg_attr(not(target_arch = "x86_64"), expect(dead_code, reason = "no other processor makes sums"))]
    rows: Vec<[[i32; LANES]; 2]>,
    /// Row by row, `groups` in each.
    sums: Vec<Sums>,
    groups: usize,
    /// The same for the whole tile.
    has_pixels: bool,
    scores: Vec<f64>,
}

impl Products {
    /// Room for tiles of a size.
    ///
    /// # Errors
    /// `NoMemory`.
    pub(super) fn new(tile: Size, positions: usize) -> Result<Self> {
        let stride = stride(tile);
        let what = "products of pixels";
        Ok(Self {
            pixels: memory::filled(what, stride * tile.height, 0)?,
            stride,
            spread: memory::filled(what, tile.height, [Bytes([0; 64]); STRIP / QUAD])?,
            rows: memory::filled(what, tile.height, [[0; LANES]; 2])?,
            sums: memory::filled(what, tile.width.div_ceil(LANES) * tile.height, Sums::NONE)?,
            groups: 0,
            has_pixels: false,
            scores: memory::filled("exact scores", positions, 0.0)?,
        })
    }

    /// Bytes that it takes at most.
    pub(super) fn bytes(tile: Size, positions: usize) -> usize {
        let row = stride(tile) + size_of::<[Bytes; STRIP / QUAD]>() + size_of::<[[i32; LANES]; 2]>();
        let sums = tile.width.div_ceil(LANES) * size_of::<Sums>();
        (row + sums) * tile.height + positions * size_of::<f64>()
    }

    /// The tile is another one now.
    pub(super) fn forget(&mut self) {
        self.has_pixels = false;
    }

    /// Makes the sums of a template at the first `size` positions of a tile, whose pixels stay the same until
    /// [`Self::forget`].
    ///
    /// # Panics
    /// If a window does not lie in the tile.
    pub(super) fn make(&mut self, level: Level, pixels: PlaneRef<'_>, pattern: &Pattern, size: Size) {
        assert!(size.fits_in(pattern.size.positions_in(pixels.size())), "{size} positions in a tile");
        if !self.has_pixels {
            for (row, padded) in pixels.rows().zip(self.pixels.chunks_exact_mut(self.stride)) {
                padded[..row.len()].copy_from_slice(row);
            }
            self.has_pixels = true;
        }
        self.groups = size.width.div_ceil(LANES);
        #[cfg(target_arch = "x86_64")]
        avx512::make(level, self, pattern, size);
        #[cfg(not(target_arch = "x86_64"))]
        let _ = level;
    }

    /// Writes estimates of the scores, as `estimate.rs` has them: c and V. Returns the largest error of c.
    pub(super) fn estimate(
        &self,
        level: Level,
        pattern: &Pattern,
        size: Size,
        correlations: &mut [f32],
        variances: &mut [f32],
    ) -> f64 {
        let n = pattern.sums.n;
        let t_sum = pattern.sums.t1 - i64::from(MIDDLE) * n;
        // Of T, and of T - 128: both are counted from 128 here.
        let (mean, middles) = ((t_sum as f64 / n as f64) as f32, MIDDLE * t_sum as i32);
        let (n, middle_sum) = (n as u64, MIDDLE * n as i32);
        level.run(
            #[inline(always)]
            || {
                let rows = self.sums.chunks_exact(self.groups);
                let planes = correlations.chunks_exact_mut(size.width);
                for ((sums, c), v) in rows.zip(planes).zip(variances.chunks_exact_mut(size.width)) {
                    for ((sums, c), v) in sums.iter().zip(c.chunks_mut(LANES)).zip(v.chunks_mut(LANES)) {
                        let (mut of_c, mut of_v) = ([0.0; LANES], [0.0; LANES]);
                        for lane in 0..LANES {
                            let (s, squares) = (sums.s[lane], sums.squares[lane] + MIDDLE * sums.s[lane]);
                            let variance =
                                n * u64::from(squares as u32) - u64::from(s as u32) * u64::from(s as u32);
                            of_v[lane] = variance as i64 as f32;
                            let (s, st) = ((s - middle_sum) as f32, (sums.st[lane] - middles) as f32);
                            of_c[lane] = st - s * mean;
                        }
                        if let (Some(c), Some(v)) = (c.first_chunk_mut(), v.first_chunk_mut()) {
                            (*c, *v) = (of_c, of_v);
                        } else {
                            c.copy_from_slice(&of_c[..c.len()]);
                            v.copy_from_slice(&of_v[..v.len()]);
                        }
                    }
                }
            },
        );
        // Both sums are at most 2^14 n, the mean is at most 2^7. Each is rounded once, as are the mean, its
        // product and the difference of both: 5 * 2^14 * n * 2^-24 together, and the difference is at most
        // twice as large.
        n as f64 * 6.0 * f64::from(1 << 14) * f64::from(f32::EPSILON) / 2.0
    }

    /// The exact score at a position.
    pub(super) fn score_at(&self, pattern: &Pattern, (x, y): (usize, usize)) -> f64 {
        self.sums[y * self.groups + x / LANES].score(x % LANES, pattern.sums)
    }

    /// The exact scores at all positions.
    pub(super) fn scores(
        &mut self,
        level: Level,
        pattern: &Pattern,
        Tile { origin, size, own }: Tile,
    ) -> ScoreTile<'_> {
        let (sums, groups) = (&self.sums, self.groups);
        let scores = &mut self.scores[..size.area()];
        level.run(
            #[inline(always)]
            || {
                for (scores, sums) in scores.chunks_exact_mut(size.width).zip(sums.chunks_exact(groups)) {
                    for (scores, sums) in scores.chunks_mut(LANES).zip(sums) {
                        for (lane, out) in scores.iter_mut().enumerate() {
                            *out = sums.score(lane, pattern.sums);
                        }
                    }
                }
            },
        );
        ScoreTile { scores, size, origin, wanted: own }
    }
}

/// Bytes of a padded row: the last position's columns are read as whole vectors.
fn stride(tile: Size) -> usize {
    tile.width.next_multiple_of(LANES) + STRIP + size_of::<Bytes>()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::{Plane, Rect};
    use crate::reference;

    /// Bytes that look random, of few or many values.
    fn noise(size: Size, seed: usize) -> Plane {
        let mut state = seed as u64;
        let mut next = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 56) as u8
        };
        let extreme = |v: u8| if v < 128 { 0 } else { 255 };
        let data =
            (0..size.area()).map(|_| if seed.is_multiple_of(2) { next() } else { extreme(next()) }).collect();
        Plane::from_vec(data, size)
    }

    #[test]
    fn scores_of_all_sizes_are_the_references_and_estimates_within_their_error() {
        let tile = Size::new(151, 83);
        let mut products = Products::new(tile, tile.area()).unwrap();
        let [mut c, mut v] = [(); 2].map(|()| vec![f32::NAN; tile.area()]);
        for (seed, (w, h)) in [
            (1, 2),
            (2, 1),
            (3, 3),
            (4, 16),
            (15, 5),
            (16, 16),
            (17, 31),
            (33, 7),
            (64, 64),
            (150, 80),
            (2, 83),
        ]
        .into_iter()
        .enumerate()
        {
            // Of another size than the tile before, whose pixels are still there.
            let size = Size::new(tile.width - seed % 3, tile.height - seed % 2 * usize::from(h < 83));
            let picture = noise(tile, seed);
            let pixels =
                picture.as_ref().crop(Rect::new(tile.width - size.width, 0, size.width, size.height));
            let template = pixels.crop(Rect::new(size.width - w, size.height - h, w, h)).to_plane();
            let Ok(template) = Template::new("t", template, None) else { panic!("{w}x{h} is flat") };
            for level in Level::available().into_iter().filter(|&level| is_there(level)) {
                let pattern = Pattern::new(level, &template).unwrap();
                let map = template.size().positions_in(size);
                products.forget();
                products.make(level, pixels, &pattern, map);
                let expected = reference::ncc::score_map(pixels, &template);
                let part = Tile { origin: (0, 0), size: map, own: Rect::whole(map) };
                let found = products.scores(level, &pattern, part);
                assert!(
                    found.scores.iter().zip(&expected).all(|(a, b)| a.to_bits() == b.to_bits()),
                    "{w}x{h}"
                );
                let (c, v) = (&mut c[..map.area()], &mut v[..map.area()]);
                let error = products.estimate(level, &pattern, map, c, v);
                let root = (template.sums().variance() as f64).sqrt() / (w * h) as f64;
                for (at, &score) in expected.iter().enumerate() {
                    let place = (at % map.width, at / map.width);
                    assert_eq!(products.score_at(&pattern, place).to_bits(), score.to_bits());
                    let wanted = score * root * f64::from(v[at]).sqrt();
                    let wrong = (f64::from(c[at]) - wanted).abs();
                    assert!(wrong <= error + 1e-6 * wanted.abs(), "{w}x{h} at {place:?}: {wrong}, {error}");
                }
            }
        }
    }
}
