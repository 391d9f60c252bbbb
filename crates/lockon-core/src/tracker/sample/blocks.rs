//! Blocks of samples: rows of pixels are added up, the sums turned into columns, and these added up.

use std::ops::Range;

use super::{Component, Taps};
use crate::frame::{Rect, Size};
use crate::tracker::hog::CELL;

/// Rows and columns of samples that are made together: as many as a look and a quarter of a window have.
/// `turn` needs an odd power of two.
pub(super) const BLOCK: usize = 32;
const _: () = assert!(BLOCK.is_power_of_two() && BLOCK.ilog2() % 2 == 1);

/// Samples of a turned window that are made together.
pub(super) const RUN: usize = BLOCK / CELL;

/// Bytes of a row whose sums are turned together: both buffers of a strip fit the L1 cache. For a window of
/// 1,100 pixels that takes two thirds of the time that whole rows take; 128 and 256 are alike, 64 takes a
/// fifth longer.
const STRIP: usize = 256;

/// Room for the sums of [`BLOCK`] rows of samples.
pub(super) struct Sums {
    /// By column.
    columns: Vec<u16>,
    /// By row, of one strip, and half turned.
    strips: [Vec<u16>; 2],
}

impl Sums {
    pub(super) fn new() -> Self {
        Self { columns: Vec::new(), strips: [(); 2].map(|()| vec![0; BLOCK * STRIP]) }
    }
}

/// The bytes of a row that are read for these pixels: a few more, if there are, so that they are whole
/// vectors.
fn bytes_of(pixels: &Range<usize>, step: usize, width: usize) -> Range<usize> {
    let end = (pixels.end * step).min(width);
    let length = (end - pixels.start * step).next_multiple_of(BLOCK);
    end.saturating_sub(length) / step * step..end
}

/// The columns of up to [`BLOCK`] rows of samples before these are summed.
pub(super) struct Block<'a> {
    /// The row of the first.
    top: usize,
    height: usize,
    /// By byte of the plane's row, from the first requested pixel.
    columns: &'a [[u16; BLOCK]],
    left: usize,
    /// Bytes to a pixel.
    step: usize,
}

impl Block<'_> {
    /// Passes all rows of samples of a plane to `take`; only the requested pixels of each row are computed.
    #[inline(always)]
    pub(super) fn each(
        Component { picture, plane, bytes: Size { width: row_bytes, height }, step, .. }: Component<'_>,
        rows: &Taps,
        pixels: Range<usize>,
        Sums { columns, strips }: &mut Sums,
        mut take: impl FnMut(&Block<'_>),
    ) {
        let bytes = bytes_of(&pixels, step, row_bytes);
        let width = pixels.end * step - bytes.start;
        let last = height - 1;
        let (top, bottom) = (rows.pixels().start, rows.pixels().end.min(height));
        let plane = picture.part(plane, Rect::new(bytes.start, top, bytes.len(), bottom - top));
        let [sums, turned] = strips;
        // What the last window left beyond the border has no weight.
        columns.resize((BLOCK * width).max(columns.len()), 0);
        let heights = rows.weights.chunks(rows.count * BLOCK);
        for (index, (first, weights)) in rows.first.chunks(BLOCK).zip(heights).enumerate() {
            for (strip, columns) in columns[..BLOCK * bytes.len()].chunks_mut(BLOCK * STRIP).enumerate() {
                let length = columns.len() / BLOCK;
                let start = bytes.start + strip * STRIP;
                let (sums, turned) = (&mut sums[..columns.len()], &mut turned[..columns.len()]);
                let weights = weights.chunks_exact(rows.count);
                for ((sums, &top), weights) in sums.chunks_exact_mut(length).zip(first).zip(weights) {
                    add_rows(sums, weights, |k: usize| {
                        &plane.row((top + k).min(last))[start..start + length]
                    });
                }
                shuffle_but_once(sums, turned);
                shuffle(sums, columns);
            }
            take(&Block {
                top: index * BLOCK,
                height: first.len(),
                columns: columns.as_chunks().0,
                left: bytes.start / step,
                step,
            });
        }
    }

    /// The samples of the component that begins at byte `first`, as the `index`-th of `across` squares that
    /// stand beside each other.
    #[inline(always)]
    pub(super) fn samples(
        &self,
        taps: &Taps,
        first: usize,
        (index, across): (usize, usize),
        samples: &mut [u8],
    ) {
        let side = taps.axis.count;
        let length = side / taps.axis.groups;
        for left in (0..side).step_by(BLOCK) {
            let count = BLOCK.min(side - left);
            let mut tile = [[0; BLOCK]; BLOCK];
            for (index, samples) in (left..left + count).zip(&mut tile) {
                let columns = &self.columns[(taps.first[index] - self.left) * self.step + first..];
                let weights = &taps.weights[index * taps.count..][..taps.count];
                *samples = add_columns(columns, self.step, weights);
            }
            let mut rows_of_tile = [[0; BLOCK]; BLOCK];
            turn(&mut tile, &mut rows_of_tile);
            // Into groups, each with `length` samples of each square.
            let rows = samples[self.top * side * across..].chunks_exact_mut(side * across);
            let to = |at: usize| at / length * length * across + index * length + at % length;
            for (samples, row) in rows_of_tile.iter().zip(rows).take(self.height) {
                if length == RUN {
                    let runs = samples.as_chunks::<RUN>().0.iter().enumerate();
                    for (run, samples) in runs.take(count / length) {
                        row[to(left + run * length)..][..RUN].copy_from_slice(samples);
                    }
                } else if length.is_multiple_of(BLOCK) {
                    row[to(left)..][..BLOCK].copy_from_slice(samples);
                } else {
                    for (at, sample) in (left..left + count).zip(samples) {
                        row[to(at)] = *sample;
                    }
                }
            }
        }
    }
}

/// The sum of an even number of rows of pixels, each times its weight: at most 256 * 255, which fits.
#[inline(always)]
fn add_rows<'a>(sums: &mut [u16], weights: &[u16], row: impl Fn(usize) -> &'a [u8]) {
    let add =
        |sum: u16, [a, b]: [u16; 2], one: u8, other: u8| sum + a * u16::from(one) + b * u16::from(other);
    for (k, &weights) in weights.as_chunks().0.iter().enumerate() {
        if k > 0 && weights == [0; 2] {
            continue;
        }
        let (one, other) = (row(2 * k).as_chunks::<BLOCK>(), row(2 * k + 1).as_chunks::<BLOCK>());
        let sums = sums.as_chunks_mut();
        for ((out, one), other) in sums.0.iter_mut().zip(one.0).zip(other.0) {
            let mut sums: [_; BLOCK] = *out;
            for i in 0..BLOCK {
                sums[i] = add(if k == 0 { 0 } else { sums[i] }, weights, one[i], other[i]);
            }
            *out = sums;
        }
        for ((sum, &one), &other) in sums.1.iter_mut().zip(one.1).zip(other.1) {
            *sum = add(if k == 0 { 0 } else { *sum }, weights, one, other);
        }
    }
}

/// The sum of each `step`-th column, each times its weight, rounded.
#[inline(always)]
fn add_columns(columns: &[[u16; BLOCK]], step: usize, weights: &[u16]) -> [u8; BLOCK] {
    let mut sums = [1_u32 << 15; BLOCK];
    // In pairs: there is an even number of them.
    for (k, weights) in weights.as_chunks::<2>().0.iter().enumerate() {
        let (one, other) = (&columns[2 * k * step], &columns[(2 * k + 1) * step]);
        let [a, b] = weights.map(u32::from);
        for i in 0..BLOCK {
            sums[i] += a * u32::from(one[i]) + b * u32::from(other[i]);
        }
    }
    let mut samples = [0; BLOCK];
    for i in 0..BLOCK {
        samples[i] = (sums[i] >> 16) as u8;
    }
    samples
}

/// Puts one half between the other. As often as [`BLOCK`] is halved, that makes columns of as many rows (H.
/// Stone, "Parallel Processing with the Perfect Shuffle", 1971).
#[inline(always)]
fn shuffle<T: Copy>(from: &[T], to: &mut [T]) {
    let (one, other) = from.split_at(from.len() / 2);
    for ((pair, one), other) in to.as_chunks_mut().0.iter_mut().zip(one).zip(other) {
        *pair = [*one, *other];
    }
}

/// Shuffles as often as [`BLOCK`] is halved, but once: an even number of times, so that the result is in
/// `numbers`.
#[inline(always)]
fn shuffle_but_once<T: Copy>(numbers: &mut [T], between: &mut [T]) {
    for _ in 0..BLOCK.ilog2() / 2 {
        shuffle(numbers, between);
        shuffle(between, numbers);
    }
}

/// Makes rows of columns, in `turned`.
#[inline(always)]
pub(in crate::tracker) fn turn<T: Copy>(tile: &mut [[T; BLOCK]; BLOCK], turned: &mut [[T; BLOCK]; BLOCK]) {
    let (tile, turned) = (tile.as_flattened_mut(), turned.as_flattened_mut());
    shuffle_but_once(tile, turned);
    shuffle(tile, turned);
}
