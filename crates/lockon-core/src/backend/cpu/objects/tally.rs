//! The counts of a component while its runs are read.

use std::ops::Range;

use super::labelling::{Rows, Run, first_pixel};
use crate::backend::objects::Sums;
use crate::frame::{PlaneRef, Size};
use crate::results::Object;

/// The sums of a component, or other facts about it.
pub(super) trait Tally: Copy + Send + Sync {
    /// True if pixels are counted, and components of one pixel need no tally.
    const COUNTS: bool;
    /// The picture in which runs are measured.
    type Picture<'a>: Copy + Send + Sync;
    /// A strip of that.
    type Strip<'a>: Copy;
    /// Bytes of what is made of a component at the end in so many lists.
    fn bytes_at_end(lists: usize) -> usize;
    /// The strip that begins with row `y` of the picture.
    fn strip<'a>(picture: &Self::Picture<'a>, y: usize) -> Self::Strip<'a>;
    /// A component without pixels, whose first one is in row `y`.
    fn before(y: usize) -> Self;
    /// Adds a run of a strip, which is not above those before. What it shares with the strips beside it is
    /// counted with it too. `EIGHT` is true where corners join.
    fn add<const EIGHT: bool>(&mut self, run: &Run, rows: &Rows<'_>, strip: &Self::Strip<'_>);
    /// Adds two pixels that share a corner.
    fn add_corner(&mut self);
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

/// A strip of a scene.
#[derive(Clone, Copy)]
pub(super) struct SceneStrip<'a> {
    /// Two rows; the last one of the picture twice where there is no other.
    luma: [&'a [u8]; 2],
    squares: &'a [u64],
}

/// The sums of a component while they grow. The least and greatest luma are kept for each of eight places,
/// which takes one instruction instead of a comparison for each pixel.
#[derive(Clone, Copy)]
pub(super) struct Growing {
    sums: Sums,
    min: [u8; 8],
    max: [u8; 8],
}

impl Growing {
    /// The sums.
    #[inline]
    pub(super) fn sums(&self) -> Sums {
        let min_luma = self.min.into_iter().fold(u8::MAX, u8::min);
        let max_luma = self.max.into_iter().fold(u8::MIN, u8::max);
        Sums { min_luma, max_luma, ..self.sums }
    }

    /// The sums but for the luma.
    #[inline]
    pub(super) fn shape(&self) -> &Sums {
        &self.sums
    }

    /// Adds the luma of eight pixels: of those whose bytes in `has` are 255, not 0.
    #[inline(always)]
    fn add_eight(&mut self, pixels: u64, has: u64) {
        self.sums.luma += sum_of_bytes(pixels & has);
        let (all, none) = ((pixels | !has).to_le_bytes(), (pixels & has).to_le_bytes());
        for (min, pixel) in self.min.iter_mut().zip(all) {
            *min = pixel.min(*min);
        }
        for (max, pixel) in self.max.iter_mut().zip(none) {
            *max = pixel.max(*max);
        }
    }

    /// Adds the luma of pixels.
    #[inline(always)]
    fn add_pixels(&mut self, pixels: &[u8]) {
        let (mut min, mut max) = (u8::MAX, u8::MIN);
        // A 32-bit sum of so many bytes fits.
        for part in pixels.chunks(1 << 16) {
            let mut sum = 0_u32;
            for &value in part {
                sum += u32::from(value);
                min = min.min(value);
                max = max.max(value);
            }
            self.sums.luma += u64::from(sum);
        }
        self.min[0] = self.min[0].min(min);
        self.max[0] = self.max[0].max(max);
    }
}

impl Tally for Growing {
    const COUNTS: bool = true;
    type Picture<'a> = Scene<'a>;
    type Strip<'a> = SceneStrip<'a>;

    fn bytes_at_end(lists: usize) -> usize {
        lists * size_of::<Object>()
    }

    #[inline(always)]
    fn strip<'a>(picture: &Self::Picture<'a>, y: usize) -> Self::Strip<'a> {
        let next = (y + 1).min(picture.luma.size().height - 1);
        SceneStrip { luma: [picture.luma.row(y), picture.luma.row(next)], squares: picture.squares }
    }

    #[inline(always)]
    fn before(y: usize) -> Self {
        let sums = Sums {
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
        };
        Self { sums, min: [u8::MAX; 8], max: [u8::MIN; 8] }
    }

    #[inline(always)]
    fn add<const EIGHT: bool>(&mut self, run: &Run, rows: &Rows<'_>, strip: &SceneStrip<'_>) {
        self.sums.left = self.sums.left.min(run.start);
        self.sums.right = self.sums.right.max(run.end - 1);
        if !EIGHT {
            self.add_row(run, rows, strip);
        } else if run.end - run.start <= 8 {
            self.add_short(run, rows, strip);
        } else {
            self.add_long(run, rows, strip);
        }
    }

    #[inline(always)]
    fn add_corner(&mut self) {
        self.sums.corners += 1;
    }

    #[inline(always)]
    fn join(&mut self, other: &Self) {
        self.sums.add(&other.sums);
        for (min, other) in self.min.iter_mut().zip(other.min) {
            *min = other.min(*min);
        }
        for (max, other) in self.max.iter_mut().zip(other.max) {
            *max = other.max(*max);
        }
    }

    fn reaches(&self, rows: &Range<usize>) -> bool {
        self.sums.top as usize == rows.start || self.sums.bottom as usize + 1 == rows.end
    }
}

/// Columns of a window: one more on both sides fits into a word, and whole bytes are left.
const WINDOW: u32 = 56;

/// The pixels of a row from column `start` - 1 on: bit 1 is `start`, and 63 bits are right. Pixels outside of
/// the row are 0.
#[inline(always)]
fn window(row: &[u64], start: u32) -> u64 {
    let (word, bit) = (start as usize / 64, start % 64);
    let before = if word > 0 { row[word - 1] >> 63 } else { 0 };
    let next = row.get(word + 1).copied().unwrap_or(0);
    // Shifts in two steps, where one of 64 columns is none.
    if bit == 0 { row[word] << 1 | before } else { row[word] >> (bit - 1) | next << 1 << (64 - bit) }
}

/// Windows of the rows of a strip with two rows.
struct Windows {
    above: u64,
    top: u64,
    low: u64,
    below: u64,
}

impl Windows {
    #[inline(always)]
    fn new(rows: &Rows<'_>, start: u32) -> Self {
        Self {
            above: window(rows.above, start),
            top: window(rows.top, start),
            low: window(rows.low, start),
            below: window(rows.below, start),
        }
    }
}

/// The first columns of a window, up to 63.
#[inline(always)]
fn first_columns(count: u32) -> u64 {
    (u64::MAX >> (64 - count)) << 1
}

/// Sums over pixels of a strip with two rows.
#[derive(Default)]
struct Block {
    n: u64,
    x: u64,
    xx: u64,
    /// Of those in the second row alone.
    n_low: u64,
    x_low: u64,
}

impl Block {
    /// Adds pixels whose places from column `at` on are bits of two bytes.
    #[inline(always)]
    fn add(&mut self, top: u8, low: u8, at: usize) {
        let (low, both) = (PLACES[usize::from(low)], PLACES[usize::from(top)] + PLACES[usize::from(low)]);
        let (at, part) = (at as u64, |of: u32, shift: u32| u64::from(of >> shift & 0x3ff));
        let (n, places) = (part(both, 0), part(both, 10));
        let x = n * at + places;
        self.n += n;
        self.x += x;
        self.xx += at * (x + places) + part(both, 20);
        self.n_low += part(low, 0);
        self.x_low += part(low, 0) * at + part(low, 10);
    }

    /// Adds all pixels of some columns in one row.
    #[inline(always)]
    fn add_all(&mut self, columns: Range<usize>, is_low: bool, strip: &SceneStrip<'_>) {
        let n = columns.len() as u64;
        let x = n * (columns.start + columns.end - 1) as u64 / 2;
        self.n += n;
        self.x += x;
        self.xx += strip.squares[columns.end] - strip.squares[columns.start];
        if is_low {
            self.n_low += n;
            self.x_low += x;
        }
    }
}

impl Growing {
    /// Adds pixels of up to eight columns of two rows, all of whose columns are beside each other.
    #[inline(always)]
    fn add_short(&mut self, run: &Run, rows: &Rows<'_>, strip: &SceneStrip<'_>) {
        let (windows, at) = (Windows::new(rows, run.start), run.start as usize);
        let keep = first_columns(run.end - run.start);
        let (top, low) = ((windows.top & keep) >> 1, (windows.low & keep) >> 1);
        self.add_pairs(&windows, keep);
        self.add_eight(eight_pixels(strip.luma[0], at), BYTES[top as usize]);
        self.add_eight(eight_pixels(strip.luma[1], at), BYTES[low as usize]);
        let mut block = Block::default();
        block.add(top as u8, low as u8, at);
        self.add_block(&block, rows.y);
    }

    /// Adds pixels of any number of such columns.
    #[inline(always)]
    fn add_long(&mut self, run: &Run, rows: &Rows<'_>, strip: &SceneStrip<'_>) {
        let mut block = Block::default();
        // Where a row has all or none of the columns since one, which are added together.
        let (mut whole, mut since) = ([false; 2], run.start as usize);
        let mut start = run.start;
        while start < run.end {
            let count = (run.end - start).min(WINDOW);
            let (windows, keep) = (Windows::new(rows, start), first_columns(count));
            self.add_pairs(&windows, keep);
            let (top, low) = (windows.top & keep, windows.low & keep);
            let is_plain = (top == keep || top == 0) && (low == keep || low == 0);
            let now = [is_plain && top != 0, is_plain && low != 0];
            let at = start as usize;
            if now != whole {
                self.add_whole(&mut block, whole, since..at, strip);
                (whole, since) = (now, at);
            }
            if !is_plain {
                let (mut top, mut low, mut at) = (top >> 1, low >> 1, at);
                while top | low != 0 {
                    self.add_eight(eight_pixels(strip.luma[0], at), BYTES[usize::from(top as u8)]);
                    self.add_eight(eight_pixels(strip.luma[1], at), BYTES[usize::from(low as u8)]);
                    block.add(top as u8, low as u8, at);
                    (top, low) = (top >> 8, low >> 8);
                    at += 8;
                }
            }
            start += count;
        }
        self.add_whole(&mut block, whole, since..run.end as usize, strip);
        self.add_block(&block, rows.y);
    }

    /// Adds all pixels of these columns, of each row that `whole` is true for.
    #[inline(always)]
    fn add_whole(
        &mut self,
        block: &mut Block,
        whole: [bool; 2],
        columns: Range<usize>,
        strip: &SceneStrip<'_>,
    ) {
        for (of, is_whole) in whole.into_iter().enumerate() {
            if is_whole {
                block.add_all(columns.clone(), of == 1, strip);
                self.add_pixels(&strip.luma[of][columns.clone()]);
            }
        }
    }

    /// Counts pairs of pixels, and what there is of the Euler number, in the columns that are kept.
    #[inline(always)]
    fn add_pairs(&mut self, windows: &Windows, keep: u64) {
        let Windows { above, top, low, below } = *windows;
        let (own_top, own_low) = (top & keep, low & keep);
        // Each pair belongs to the right or lower pixel.
        let beside = (own_top & top << 1).count_ones() + (own_low & low << 1).count_ones();
        self.sums.edges += beside + (own_top & low).count_ones() + (own_top & above).count_ones();
        self.sums.corners += (own_top & low << 1).count_ones()
            + (own_low & top << 1).count_ones()
            + (own_top & above << 1).count_ones()
            + (own_top & above >> 1).count_ones();
        // Where two strips meet, as many runs of their rows touch as there are runs, less the runs of columns
        // with pixels of either: each of these begins with a pixel of the lower row, or else of the upper.
        let begins = (own_top & !((top | above) << 1)).count_ones()
            + (own_low & !below & !((low | below) << 1)).count_ones();
        let runs = own_top.count_ones() + own_low.count_ones() - beside;
        self.sums.euler += begins as i32 - runs as i32;
    }

    #[inline(always)]
    fn add_block(&mut self, block: &Block, y: usize) {
        let (sums, wide) = (&mut self.sums, y as u64);
        let &Block { n, x, xx, n_low, x_low } = block;
        sums.x += x;
        sums.y += wide * n + n_low;
        sums.xx += xx;
        sums.xy += wide * x + x_low;
        sums.yy += wide * (wide * n + 2 * n_low) + n_low;
        sums.area += n as u32;
        // A part of a strip has no holes.
        sums.euler += 1;
        // Parts of it can have been added that end in either row.
        sums.bottom = sums.bottom.max(y as u32 + u32::from(n_low > 0));
    }

    /// Adds pixels beside each other in one row; corners do not join. Those of its pixels that share a corner
    /// with one above but no neighbour are not counted: they may belong to another component.
    #[inline(always)]
    fn add_row(&mut self, run: &Run, rows: &Rows<'_>, strip: &SceneStrip<'_>) {
        let (start, end) = (run.start as usize, run.end as usize);
        let (n, both) = (run.end - run.start, u64::from(run.start) + u64::from(run.end) - 1);
        let (wide, y) = (u64::from(n), rows.y as u64);
        let x = both * wide / 2;
        let sums = &mut self.sums;
        sums.x += x;
        sums.y += y * wide;
        sums.xx += strip.squares[end] - strip.squares[start];
        sums.xy += y * x;
        sums.yy += y * y * wide;
        sums.area += n;
        sums.bottom = rows.y as u32;
        // In a run each pixel but the first shares an edge with the one before it.
        sums.edges += n - 1;
        sums.euler += 1;
        let mut first = run.start;
        while first < run.end {
            let keep = first_columns((run.end - first).min(WINDOW));
            let (above, row) = (window(rows.above, first), window(rows.top, first));
            let (own, touching) = (row & keep, row & above);
            sums.edges += (own & above).count_ones();
            sums.corners += (own & above << 1 & (above | row << 1)).count_ones()
                + (own & above >> 1 & (above | row >> 1)).count_ones();
            sums.euler -= (own & above & !(touching << 1)).count_ones() as i32;
            first += WINDOW;
        }
        if n <= 8 {
            self.add_eight(eight_pixels(strip.luma[0], start), u64::MAX >> (8 * (8 - n)));
        } else {
            self.add_pixels(&strip.luma[0][start..end]);
        }
    }
}

/// For each byte, in ten bits each: how many bits are set, the sum of their places, and of the squares of
/// these. So two of them can be added.
static PLACES: [u32; 256] = {
    let mut all = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        let mut bit = 0;
        while bit < 8 {
            if byte >> bit & 1 == 1 {
                all[byte] += 1 | bit << 10 | (bit * bit) << 20;
            }
            bit += 1;
        }
        byte += 1;
    }
    all
};

/// For each byte: eight bytes, 255 where its bit is set and else 0, the lowest first.
static BYTES: [u64; 256] = {
    let mut all = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        let mut bit = 0;
        while bit < 8 {
            if byte >> bit & 1 == 1 {
                all[byte] |= 0xff << (8 * bit);
            }
            bit += 1;
        }
        byte += 1;
    }
    all
};

/// Eight pixels of a row, the first in the lowest byte; 0 behind its end.
#[inline(always)]
fn eight_pixels(row: &[u8], at: usize) -> u64 {
    if let Some(eight) = row.get(at..at + 8) {
        return u64::from_le_bytes(eight.try_into().expect("eight"));
    }
    let mut eight = [0; 8];
    let rest = &row[at..];
    eight[..rest.len()].copy_from_slice(rest);
    u64::from_le_bytes(eight)
}

#[inline(always)]
fn sum_of_bytes(eight: u64) -> u64 {
    const EVEN: u64 = 0x00ff_00ff_00ff_00ff;
    let pairs = (eight & EVEN) + (eight >> 8 & EVEN);
    // The upper 16 bits get the sum of all four.
    pairs.wrapping_mul(0x0001_0001_0001_0001) >> 48
}

/// True for a part of the background that reaches the border of the picture.
#[derive(Debug, Clone, Copy)]
pub(super) struct Outside(pub(super) bool);

impl Tally for Outside {
    const COUNTS: bool = false;
    type Picture<'a> = Size;
    /// The size, and true for each of two rows that is the first or last.
    type Strip<'a> = (Size, [bool; 2]);

    fn bytes_at_end(_: usize) -> usize {
        0
    }

    #[inline(always)]
    fn strip<'a>(picture: &Self::Picture<'a>, y: usize) -> Self::Strip<'a> {
        (*picture, [y == 0 || y + 1 == picture.height, y + 2 == picture.height])
    }

    #[inline(always)]
    fn before(_: usize) -> Self {
        Self(false)
    }

    #[inline(always)]
    fn add<const EIGHT: bool>(&mut self, run: &Run, rows: &Rows<'_>, strip: &Self::Strip<'_>) {
        let (size, is_end) = *strip;
        self.0 |= run.start == 0 || run.end as usize == size.width;
        self.0 |= is_end[0] && has_pixels(rows.top, run);
        self.0 |= EIGHT && is_end[1] && has_pixels(rows.low, run);
    }

    #[inline(always)]
    fn add_corner(&mut self) {}

    #[inline(always)]
    fn join(&mut self, other: &Self) {
        self.0 |= other.0;
    }

    fn reaches(&self, _: &Range<usize>) -> bool {
        false
    }
}

/// True if a row has a pixel in the columns of a run.
fn has_pixels(row: &[u64], run: &Run) -> bool {
    first_pixel(row, run).is_some()
}
