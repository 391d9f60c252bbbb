//! The counts of a component while its runs are read.

use std::ops::Range;

use super::labelling::{Pairs, Run};
use crate::backend::objects::Sums;
use crate::frame::{PlaneRef, Size};
use crate::results::Object;

/// The sums of a component, or other facts about it.
pub(super) trait Tally: Copy + Send + Sync {
    /// True if pairs of pixels are counted.
    const COUNTS_PAIRS: bool;
    /// The picture in which runs are measured.
    type Picture<'a>: Copy + Send + Sync;
    /// A row of that.
    type Row<'a>: Copy;
    /// Runs of a row that belong to it, from left to right: they are added to it together.
    type Part: Copy;
    /// Bytes that a component takes, with what is made of it at the end in so many lists.
    fn bytes(lists: usize) -> usize;
    /// Row `y` of the picture.
    fn row<'a>(picture: &Self::Picture<'a>, y: usize) -> Self::Row<'a>;
    /// A run, and its pairs with runs above it.
    fn part(run: &Run, pairs: Pairs, row: &Self::Row<'_>) -> Self::Part;
    /// Adds a run further right.
    fn extend(part: &mut Self::Part, run: &Run, pairs: Pairs, row: &Self::Row<'_>);
    /// A component without pixels, before its first run in row `y`.
    fn before(y: usize) -> Self;
    /// Adds runs in row `y`, which is not above those before.
    fn add_part(&mut self, part: &Self::Part, y: usize);
    /// Adds pairs of pixels.
    fn add_pairs(&mut self, pairs: Pairs);
    /// Adds another part.
    fn join(&mut self, other: &Self);
    /// True if it reaches the first or last row of `rows`.
    fn reaches(&self, rows: &Range<usize>) -> bool;
}

/// Where objects are measured.
#[derive(Clone, Copy)]
pub(super) struct Scene<'a> {
    pub(super) luma: PlaneRef<'a>,
    /// See [`squares_before`].
    pub(super) squares: &'a [u64],
}

/// For each column, and the one behind the last, the sum of the squares of those before it.
pub(super) fn squares_before(width: usize) -> Vec<u64> {
    let columns = (0..=width as u64).scan(0, |sum, column| {
        let before = *sum;
        // Unused behind the last.
        *sum += if column < width as u64 { column * column } else { 0 };
        Some(before)
    });
    columns.collect()
}

/// A row of a scene.
#[derive(Clone, Copy)]
pub(super) struct SceneRow<'a> {
    luma: &'a [u8],
    squares: &'a [u64],
}

/// Sums over runs of one row.
#[derive(Clone, Copy)]
pub(super) struct RowSums {
    x: u64,
    xx: u64,
    luma: u64,
    area: u32,
    runs: u32,
    pairs: Pairs,
    left: u32,
    right: u32,
    min_luma: u8,
    max_luma: u8,
}

impl Tally for Sums {
    const COUNTS_PAIRS: bool = true;
    type Picture<'a> = Scene<'a>;
    type Row<'a> = SceneRow<'a>;
    type Part = RowSums;

    fn bytes(lists: usize) -> usize {
        size_of::<Self>() + lists * size_of::<Object>()
    }

    #[inline(always)]
    fn row<'a>(picture: &Self::Picture<'a>, y: usize) -> Self::Row<'a> {
        SceneRow { luma: picture.luma.row(y), squares: picture.squares }
    }

    #[inline(always)]
    fn part(run: &Run, pairs: Pairs, row: &SceneRow<'_>) -> RowSums {
        let (start, end) = (run.start as usize, run.end as usize);
        let (n, both) = (run.end - run.start, u64::from(run.start) + u64::from(run.end) - 1);
        let luma = luma_of(&row.luma[start..end]);
        RowSums {
            x: both * u64::from(n) / 2,
            xx: row.squares[end] - row.squares[start],
            luma: luma.sum,
            area: n,
            runs: 1,
            pairs,
            left: run.start,
            right: run.end - 1,
            min_luma: luma.min,
            max_luma: luma.max,
        }
    }

    #[inline(always)]
    fn extend(part: &mut RowSums, run: &Run, pairs: Pairs, row: &SceneRow<'_>) {
        let other = Self::part(run, pairs, row);
        part.x += other.x;
        part.xx += other.xx;
        part.luma += other.luma;
        part.area += other.area;
        part.runs += 1;
        part.pairs.add(pairs);
        part.right = other.right;
        part.min_luma = part.min_luma.min(other.min_luma);
        part.max_luma = part.max_luma.max(other.max_luma);
    }

    #[inline(always)]
    fn before(y: usize) -> Self {
        Self {
            x: 0,
            y: 0,
            xx: 0,
            xy: 0,
            yy: 0,
            luma: 0,
            area: 0,
            edges: 0,
            corners: 0,
            euler: 0,
            left: u32::MAX,
            right: 0,
            top: y as u32,
            bottom: y as u32,
            min_luma: u8::MAX,
            max_luma: u8::MIN,
        }
    }

    #[inline(always)]
    fn add_part(&mut self, part: &RowSums, y: usize) {
        let (n, row) = (u64::from(part.area), y as u64);
        self.x += part.x;
        self.y += row * n;
        self.xx += part.xx;
        self.xy += row * part.x;
        self.yy += row * row * n;
        self.luma += part.luma;
        self.area += part.area;
        // In a run each pixel but the first shares an edge with the one before it.
        self.edges += part.area - part.runs + part.pairs.edges;
        self.corners += part.pairs.corners;
        self.euler += part.runs as i32 - part.pairs.runs;
        self.left = self.left.min(part.left);
        self.right = self.right.max(part.right);
        self.bottom = y as u32;
        self.min_luma = self.min_luma.min(part.min_luma);
        self.max_luma = self.max_luma.max(part.max_luma);
    }

    #[inline(always)]
    fn add_pairs(&mut self, pairs: Pairs) {
        self.edges += pairs.edges;
        self.corners += pairs.corners;
        self.euler -= pairs.runs;
    }

    #[inline(always)]
    fn join(&mut self, other: &Self) {
        self.add(other);
    }

    fn reaches(&self, rows: &Range<usize>) -> bool {
        self.top as usize == rows.start || self.bottom as usize + 1 == rows.end
    }
}

/// Luma of some pixels.
struct Luma {
    sum: u64,
    min: u8,
    max: u8,
}

#[inline(always)]
fn luma_of(pixels: &[u8]) -> Luma {
    let mut luma = Luma { sum: 0, min: u8::MAX, max: u8::MIN };
    if let [one] = *pixels {
        return Luma { sum: u64::from(one), min: one, max: one };
    }
    // A 32-bit sum of so many bytes fits.
    for part in pixels.chunks(1 << 16) {
        let mut sum = 0_u32;
        for &value in part {
            sum += u32::from(value);
            luma.min = luma.min.min(value);
            luma.max = luma.max.max(value);
        }
        luma.sum += u64::from(sum);
    }
    luma
}

/// True for a part of the background that reaches the border of the picture.
#[derive(Debug, Clone, Copy)]
pub(super) struct Outside(pub(super) bool);

impl Tally for Outside {
    const COUNTS_PAIRS: bool = false;
    type Picture<'a> = Size;
    /// The width, and true for the first and last row.
    type Row<'a> = (usize, bool);
    type Part = bool;

    fn bytes(_: usize) -> usize {
        size_of::<Self>()
    }

    #[inline(always)]
    fn row<'a>(picture: &Self::Picture<'a>, y: usize) -> Self::Row<'a> {
        (picture.width, y == 0 || y + 1 == picture.height)
    }

    #[inline(always)]
    fn part(run: &Run, _: Pairs, &(width, is_end): &(usize, bool)) -> bool {
        is_end || run.start == 0 || run.end as usize == width
    }

    #[inline(always)]
    fn extend(part: &mut bool, run: &Run, pairs: Pairs, row: &(usize, bool)) {
        *part |= Self::part(run, pairs, row);
    }

    #[inline(always)]
    fn before(_: usize) -> Self {
        Self(false)
    }

    #[inline(always)]
    fn add_part(&mut self, part: &bool, _: usize) {
        self.0 |= part;
    }

    #[inline(always)]
    fn add_pairs(&mut self, _: Pairs) {}

    #[inline(always)]
    fn join(&mut self, other: &Self) {
        self.0 |= other.0;
    }

    fn reaches(&self, _: &Range<usize>) -> bool {
        false
    }
}
