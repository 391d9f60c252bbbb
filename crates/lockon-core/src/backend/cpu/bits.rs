//! A mask as packed bits: opening and closing work on 64 pixels at a time.
//!
//! A square is as many pixels high as wide, so a dilation is one along the rows and one along the columns.
//! Each is made by doubling: the OR of 2^k neighbours is that of 2^(k - 1), and of the same a step further.
//! An erosion is the dilation of the other pixels, so pixels outside of the picture count for neither.

use rayon::prelude::*;

use super::simd::Level;
use crate::config::{Cleaning, ObjectColour};
use crate::frame::{Plane, PlaneRef, Size};

/// Words behind the end of a row into which it is shifted: a square has up to 255 pixels a side.
const MARGIN: usize = 4;

/// Pixels of a mask that belong to objects, one bit each: bit `x % 64` of word `x / 64` of a row. Bits behind
/// the end of a row are 0.
pub(super) struct Bits {
    level: Level,
    size: Size,
    words: Vec<u64>,
    /// Where the next picture is made.
    next: Vec<u64>,
    bands: Vec<Band>,
}

/// Room for the work on some rows.
#[derive(Default)]
struct Band {
    rows: Vec<u64>,
    /// A row with its margin.
    row: Vec<u64>,
}

impl Bits {
    /// No pixels of a picture of this size.
    pub(super) fn new(level: Level, size: Size) -> Self {
        let words = vec![0; size.width.div_ceil(64) * size.height];
        Self { level, size, words, next: Vec::new(), bands: Vec::new() }
    }

    fn words_per_row(&self) -> usize {
        self.size.width.div_ceil(64)
    }

    /// The words of row `y`.
    pub(super) fn row(&self, y: usize) -> &[u64] {
        &self.words[y * self.words_per_row()..][..self.words_per_row()]
    }

    /// Takes the pixels that have this colour in a mask of the same size.
    pub(super) fn take(&mut self, mask: PlaneRef<'_>, colour: ObjectColour) {
        let (level, width, per_row) = (self.level, self.size.width, self.words_per_row());
        let flip = if colour == ObjectColour::White { 0 } else { u64::MAX };
        let rows = self.words.par_chunks_mut(per_row).with_min_len(64).enumerate();
        rows.for_each(|(y, words)| {
            level.run(
                #[inline(always)]
                || {
                    let (whole, rest) = mask.row(y).as_chunks::<64>();
                    for (word, pixels) in words.iter_mut().zip(whole) {
                        *word = packed(pixels) ^ flip;
                    }
                    if !rest.is_empty() {
                        let mut pixels = [0; 64];
                        pixels[..rest.len()].copy_from_slice(rest);
                        words[per_row - 1] = (packed(&pixels) ^ flip) & last_word(width);
                    }
                },
            );
        });
    }

    /// Writes 255 and 0 into `mask`, which gets its size: these pixels in this colour, the others in the
    /// other one.
    pub(super) fn give(&self, mask: &mut Plane, colour: ObjectColour) {
        mask.resize(self.size);
        if self.size.area() == 0 {
            return;
        }
        let flip = if colour == ObjectColour::White { 0 } else { 255 };
        let rows = mask.data_mut().par_chunks_mut(self.size.width).with_min_len(64).enumerate();
        rows.for_each(|(y, row)| {
            for (pixels, &word) in row.chunks_mut(64).zip(self.row(y)) {
                for (x, pixel) in pixels.iter_mut().enumerate() {
                    *pixel = ((word >> x) as u8 & 1).wrapping_neg() ^ flip;
                }
            }
        });
    }

    /// Takes the pixels that `other`, of the same size, leaves out.
    pub(super) fn invert(&mut self, other: &Self) {
        self.words.copy_from_slice(&other.words);
        self.flip();
    }

    /// The words of bands of so many rows.
    pub(super) fn bands_mut(&mut self, rows: usize) -> impl IndexedParallelIterator<Item = &mut [u64]> {
        let per_row = self.words_per_row();
        self.words.par_chunks_mut(rows * per_row)
    }

    /// Opens and closes.
    pub(super) fn clean(&mut self, cleaning: Cleaning) {
        if let Some(square) = cleaning.open {
            self.flip();
            self.dilate(square.radius());
            self.flip();
            self.dilate(square.radius());
        }
        if let Some(square) = cleaning.close {
            self.dilate(square.radius());
            self.flip();
            self.dilate(square.radius());
            self.flip();
        }
    }

    fn flip(&mut self) {
        let (per_row, last) = (self.words_per_row(), last_word(self.size.width));
        for row in self.words.chunks_mut(per_row) {
            for word in row.iter_mut() {
                *word = !*word;
            }
            row[per_row - 1] &= last;
        }
    }

    /// Adds the pixels up to `radius` columns and rows away.
    fn dilate(&mut self, radius: usize) {
        let (level, size, per_row) = (self.level, self.size, self.words_per_row());
        let rows = size.height.div_ceil(rayon::current_num_threads());
        self.next.resize(self.words.len(), 0);
        self.bands.resize_with(size.height.div_ceil(rows).max(self.bands.len()), Band::default);
        let words = &self.words;
        let bands = self.next.par_chunks_mut(rows * per_row).zip(&mut self.bands).enumerate();
        bands.for_each(|(index, (out, band))| {
            level.run(
                #[inline(always)]
                || {
                    let first = index * rows;
                    let count = out.len() / per_row;
                    let Band { rows: band, row } = band;
                    // The band's rows and `radius` more at both of its ends.
                    band.clear();
                    band.resize((count + 2 * radius) * per_row, 0);
                    row.resize(per_row + MARGIN, 0);
                    for (at, to) in band.chunks_mut(per_row).enumerate() {
                        let Some(y) = (first + at).checked_sub(radius).filter(|y| *y < size.height) else {
                            continue;
                        };
                        row[..per_row].copy_from_slice(&words[y * per_row..][..per_row]);
                        row[per_row..].fill(0);
                        spread(2 * radius + 1, |by| {
                            shift_up(row, by);
                        });
                        shift_down(row, radius, to);
                        to[per_row - 1] &= last_word(size.width);
                    }
                    spread(2 * radius + 1, |by| {
                        let (by, end) = (by * per_row, band.len());
                        for at in 0..end - by {
                            band[at] |= band[at + by];
                        }
                    });
                    out.copy_from_slice(&band[..out.len()]);
                },
            );
        });
        std::mem::swap(&mut self.words, &mut self.next);
    }
}

/// Calls `or_shifted` with the steps that make a run of `count` pixels of each.
#[inline(always)]
fn spread(count: usize, mut or_shifted: impl FnMut(usize)) {
    let mut have = 1;
    while have < count {
        let by = have.min(count - have);
        or_shifted(by);
        have += by;
    }
}

/// Adds to the pixels of a row those that are `by` columns further right.
#[inline(always)]
fn shift_up(row: &mut [u64], by: usize) {
    let (words, bits) = (by / 64, by % 64);
    for at in (words..row.len()).rev() {
        let whole = row[at - words] << bits;
        let rest = if bits > 0 && at > words { row[at - words - 1] >> (64 - bits) } else { 0 };
        row[at] |= whole | rest;
    }
}

/// Moves the pixels of a row left by `by` columns.
#[inline(always)]
fn shift_down(row: &[u64], by: usize, to: &mut [u64]) {
    let (words, bits) = (by / 64, by % 64);
    for (at, to) in to.iter_mut().enumerate() {
        let word = |at: usize| row.get(at).copied().unwrap_or(0);
        let rest = if bits > 0 { word(at + words + 1) << (64 - bits) } else { 0 };
        *to = word(at + words) >> bits | rest;
    }
}

/// The bits of the last word of a row that are pixels.
fn last_word(width: usize) -> u64 {
    u64::MAX >> (width.wrapping_neg() % 64)
}

/// The upper bits of 64 bytes.
#[inline(always)]
fn packed(pixels: &[u8; 64]) -> u64 {
    let mut word = 0;
    for (at, eight) in pixels.as_chunks::<8>().0.iter().enumerate() {
        let upper = (u64::from_le_bytes(*eight) >> 7) & 0x0101_0101_0101_0101;
        // Gathers bit 8 i at bit 56 + i.
        word |= (upper.wrapping_mul(0x0102_0408_1020_4080) >> 56) << (8 * at);
    }
    word
}
