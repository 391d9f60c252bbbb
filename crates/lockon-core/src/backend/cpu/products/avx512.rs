//! Sums by AVX-512's products of bytes, four of them added to 32 bits, which no plain loop is compiled to.

#![expect(unsafe_code, reason = "vectors are read from addresses and written to them")]

use std::arch::x86_64::{
    __m512i, _mm512_add_epi8, _mm512_add_epi32, _mm512_and_si512, _mm512_dpbusd_epi32, _mm512_load_si512,
    _mm512_loadu_si512, _mm512_permutexvar_epi8, _mm512_set1_epi8, _mm512_set1_epi32, _mm512_setzero_si512,
    _mm512_store_si512, _mm512_storeu_si512, _mm512_sub_epi32, _mm512_xor_si512,
};

use super::{Bytes, LANES, Pattern, Products, QUAD, STRIP, Sums};
use crate::backend::cpu::simd::Level;
use crate::frame::Size;

const QUADS: usize = STRIP / QUAD;

/// Rows of positions whose sums are in registers together: as many as additions are under way.
const MOST_ROWS: usize = 16;

/// Makes the sums of a template at `size` positions. Without AVX-512 it does nothing.
pub(super) fn make(level: Level, products: &mut Products, pattern: &Pattern, size: Size) {
    if level.has_wide_vectors() {
        // SAFETY: a level with wide vectors exists only where all of these instructions do.
        unsafe { make_wide(products, pattern, size) }
    }
}

#[target_feature(enable = "avx512f,avx512bw,avx512vbmi,avx512vnni")]
fn make_wide(products: &mut Products, pattern: &Pattern, size: Size) {
    let Products { pixels, stride, spread, rows, sums, groups, .. } = products;
    let (groups, stride, height) = (*groups, *stride, pattern.size.height);
    let all_rows = size.height + height - 1;
    // As even as can be: a short last block would wait for its additions.
    let blocks = size.height.div_ceil(MOST_ROWS);
    let block_start = |block: usize| block * size.height / blocks;
    for group in 0..groups {
        for strip in 0..pattern.strips() {
            let (is_first, is_last) = (strip == 0, strip + 1 == pattern.strips());
            let quads = pattern.quads(strip);
            let counts = if is_last { pattern.counts } else { [[255; QUAD]; QUADS] };
            let counts = counts.map(|counts| _mm512_set1_epi32(i32::from_le_bytes(counts)));
            let mut ready = 0;
            for block in 0..blocks {
                let (top, bottom) = (block_start(block), block_start(block + 1));
                let needed = if block + 1 == blocks { all_rows } else { bottom + height - 1 };
                for y in ready..needed {
                    let at = y * stride + LANES * group + STRIP * strip;
                    let bytes = pixels[at..].first_chunk().expect("rows have room behind them");
                    spread_row(bytes, quads, &counts, &mut spread[y], &mut rows[y], is_first);
                }
                ready = needed;
                let block = Block {
                    spread: &spread[top..needed],
                    taps: pattern.strip(strip),
                    quads,
                    sums: &mut sums[top * groups + group..],
                    groups,
                    is_first,
                };
                block.make_of(bottom - top);
            }
        }
        slide(&rows[..all_rows], height, groups, &mut sums[group..]);
    }
}

/// Spreads the columns of a row, and adds up its windows.
#[target_feature(enable = "avx512f,avx512bw,avx512vbmi,avx512vnni")]
fn spread_row(
    bytes: &[u8; 64],
    quads: usize,
    counts: &[__m512i; QUADS],
    spread: &mut [Bytes; QUADS],
    [s, squares]: &mut [[i32; LANES]; 2],
    is_first: bool,
) {
    // The four bytes from each of 16 positions on.
    const PLACES: Bytes = {
        let mut places = [0; 64];
        let mut at = 0;
        while at < places.len() {
            places[at] = (at / QUAD + at % QUAD) as u8;
            at += 1;
        }
        Bytes(places)
    };
    let bytes = load_unaligned(bytes);
    let (middle, one) = (_mm512_set1_epi8(-128), _mm512_set1_epi8(1));
    let (mut sum, mut sum_of_squares) = if is_first {
        (_mm512_setzero_si512(), _mm512_setzero_si512())
    } else {
        (load_lanes(s), load_lanes(squares))
    };
    let mut places = load(&PLACES);
    for quad in 0..quads.min(QUADS) {
        let four = _mm512_permutexvar_epi8(places, bytes);
        places = _mm512_add_epi8(places, _mm512_set1_epi8(QUAD as i8));
        store(&mut spread[quad], four);
        let counted = _mm512_and_si512(four, counts[quad]);
        sum = _mm512_dpbusd_epi32(sum, counted, one);
        // I - 128 as a signed byte.
        sum_of_squares = _mm512_dpbusd_epi32(sum_of_squares, counted, _mm512_xor_si512(four, middle));
    }
    store_lanes(s, sum);
    store_lanes(squares, sum_of_squares);
}

/// Rows of 16 positions, and what their sums are made of.
struct Block<'a> {
    /// From the first row of positions on.
    spread: &'a [[Bytes; QUADS]],
    taps: &'a [[i32; QUADS]],
    quads: usize,
    sums: &'a mut [Sums],
    /// Sums from one row to the next.
    groups: usize,
    is_first: bool,
}

impl Block<'_> {
    #[target_feature(enable = "avx512f,avx512bw,avx512vbmi,avx512vnni")]
    fn make_of(self, rows: usize) {
        match rows {
            1 => self.make::<1>(),
            2 => self.make::<2>(),
            3 => self.make::<3>(),
            4 => self.make::<4>(),
            5 => self.make::<5>(),
            6 => self.make::<6>(),
            7 => self.make::<7>(),
            8 => self.make::<8>(),
            9 => self.make::<9>(),
            10 => self.make::<10>(),
            11 => self.make::<11>(),
            12 => self.make::<12>(),
            13 => self.make::<13>(),
            14 => self.make::<14>(),
            15 => self.make::<15>(),
            MOST_ROWS => self.make::<MOST_ROWS>(),
            _ => unreachable!("a block of {rows} rows"),
        }
    }

    #[target_feature(enable = "avx512f,avx512bw,avx512vbmi,avx512vnni")]
    fn make<const ROWS: usize>(self) {
        let Self { spread, taps, quads, sums, groups, is_first } = self;
        let mut of_rows = [_mm512_setzero_si512(); ROWS];
        if !is_first {
            for (row, sum) in of_rows.iter_mut().enumerate() {
                *sum = load_lanes(&sums[row * groups].st);
            }
        }
        for (y, taps) in taps.iter().enumerate() {
            let rows: &[_; ROWS] = spread[y..].first_chunk().expect("all rows are spread");
            for quad in 0..quads.min(QUADS) {
                let taps = _mm512_set1_epi32(taps[quad]);
                for (sum, row) in of_rows.iter_mut().zip(rows) {
                    *sum = _mm512_dpbusd_epi32(*sum, load(&row[quad]), taps);
                }
            }
        }
        for (row, sum) in of_rows.into_iter().enumerate() {
            store_lanes(&mut sums[row * groups].st, sum);
        }
    }
}

/// Sums of windows from those of their rows.
#[target_feature(enable = "avx512f")]
fn slide(rows: &[[[i32; LANES]; 2]], height: usize, groups: usize, sums: &mut [Sums]) {
    let mut window = [_mm512_setzero_si512(); 2];
    let (first, entering) = rows.split_at(height - 1);
    for row in first {
        for (sum, row) in window.iter_mut().zip(row) {
            *sum = _mm512_add_epi32(*sum, load_lanes(row));
        }
    }
    for ((entering, leaving), sums) in entering.iter().zip(rows).zip(sums.iter_mut().step_by(groups)) {
        for (sum, row) in window.iter_mut().zip(entering) {
            *sum = _mm512_add_epi32(*sum, load_lanes(row));
        }
        store_lanes(&mut sums.s, window[0]);
        store_lanes(&mut sums.squares, window[1]);
        for (sum, row) in window.iter_mut().zip(leaving) {
            *sum = _mm512_sub_epi32(*sum, load_lanes(row));
        }
    }
}

#[target_feature(enable = "avx512f")]
fn load(Bytes(bytes): &Bytes) -> __m512i {
    // SAFETY: it reads as many bytes as there are, and they are aligned.
    unsafe { _mm512_load_si512(bytes.as_ptr().cast()) }
}

#[target_feature(enable = "avx512f")]
fn store(Bytes(bytes): &mut Bytes, vector: __m512i) {
    // SAFETY: it writes as many bytes as there are, and they are aligned.
    unsafe { _mm512_store_si512(bytes.as_mut_ptr().cast(), vector) }
}

#[target_feature(enable = "avx512f")]
fn load_unaligned(bytes: &[u8; 64]) -> __m512i {
    // SAFETY: it reads as many bytes as there are.
    unsafe { _mm512_loadu_si512(bytes.as_ptr().cast()) }
}

#[target_feature(enable = "avx512f")]
fn load_lanes(lanes: &[i32; LANES]) -> __m512i {
    // SAFETY: it reads as many numbers as there are.
    unsafe { _mm512_loadu_si512(lanes.as_ptr().cast()) }
}

#[target_feature(enable = "avx512f")]
fn store_lanes(lanes: &mut [i32; LANES], vector: __m512i) {
    // SAFETY: it writes as many numbers as there are.
    unsafe { _mm512_storeu_si512(lanes.as_mut_ptr().cast(), vector) }
}
