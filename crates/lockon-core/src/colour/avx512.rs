//! Pixels of three bytes to planes, by AVX-512's sums of products.
//!
//! The plain loop of [`super::convert`] first takes the bytes of pixels apart, and multiplies 16 bits. Here
//! the bytes of 16 pixels are spread to pairs of 16 bits, and one instruction adds both products of each pair
//! to a sum of 32 bits. Compilers make neither of plain loops.

#![expect(unsafe_code, reason = "vectors are read from addresses and written to them")]

use std::arch::x86_64::{
    __m512i, _mm512_dpwssd_epi32, _mm512_loadu_si512, _mm512_maskz_loadu_epi8, _mm512_maskz_permutexvar_epi8,
    _mm512_packus_epi16, _mm512_packus_epi32, _mm512_permutexvar_epi32, _mm512_set1_epi32, _mm512_setr_epi32,
    _mm512_srai_epi32, _mm512_storeu_si512,
};

use super::{TOGETHER, Weights};
use crate::simd::{self, Level};

/// Bits of [`Weights`] behind the point.
const FRACTION: u32 = 14;

/// Pixels of a vector, and its bytes.
const LANES: usize = 16;
const BYTES: usize = 4 * LANES;
const _: () = assert!(TOGETHER == BYTES, "a vector holds the results of all pixels of a turn");

/// Converts each whole [`TOGETHER`] pixels from the first on. Returns how many pixels these are; without
/// AVX-512 it is none.
pub(super) fn convert<const PLANES: usize>(
    level: Level,
    pixels: &[u8],
    planes: &mut [&mut [u8]; PLANES],
    weights: &[Weights; PLANES],
) -> usize {
    if !level.has_wide_vectors() {
        return 0;
    }
    let (pixels, _) = pixels.as_chunks();
    let planes = planes.each_mut().map(|plane| plane.as_chunks_mut().0);
    // SAFETY: a level with wide vectors exists only where all of these instructions do.
    unsafe { convert_wide(pixels, planes, weights) }
    TOGETHER * pixels.len()
}

#[target_feature(enable = "avx512f,avx512bw,avx512vbmi,avx512vnni")]
fn convert_wide<const PLANES: usize>(
    pixels: &[[u8; 3 * TOGETHER]],
    mut planes: [&mut [[u8; TOGETHER]]; PLANES],
    weights: &[Weights; PLANES],
) {
    let pair = |low: i16, high: i16| _mm512_set1_epi32(i32::from(low) & 0xFFFF | i32::from(high) << 16);
    let weights = weights.map(|Weights { of: [first, second, third], constant }| {
        (_mm512_set1_epi32(constant), pair(first, second), pair(third, 0))
    });
    // The low bytes of 16 bits are those of pixels; the high ones become 0.
    let (pairs, thirds) = (load(&spread([Some(0), Some(1)])), load(&spread([Some(2), None])));
    let in_order = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
    for (at, pixels) in pixels.iter().enumerate() {
        simd::prefetch_next_page(pixels);
        let (quarters, _) = pixels.as_chunks::<{ 3 * LANES }>();
        let spreads: [_; 4] = std::array::from_fn(|quarter| {
            let bytes = load_pixels(&quarters[quarter]);
            let pairs = _mm512_maskz_permutexvar_epi8(0x5555_5555_5555_5555, pairs, bytes);
            (pairs, _mm512_maskz_permutexvar_epi8(0x1111_1111_1111_1111, thirds, bytes))
        });
        for (plane, (constant, of_pairs, of_thirds)) in planes.iter_mut().zip(weights) {
            let [a, b, c, d] = spreads.map(|(pairs, thirds)| {
                let sum = _mm512_dpwssd_epi32(constant, pairs, of_pairs);
                _mm512_srai_epi32::<FRACTION>(_mm512_dpwssd_epi32(sum, thirds, of_thirds))
            });
            // Each four lanes of the four vectors stand together then.
            let packed = _mm512_packus_epi16(_mm512_packus_epi32(a, b), _mm512_packus_epi32(c, d));
            store(&mut plane[at], _mm512_permutexvar_epi32(in_order, packed));
        }
    }
}

/// For each of 16 pixels the places of two of its bytes, as the low bytes of 16 bits.
const fn spread(of_pixel: [Option<usize>; 2]) -> [u8; BYTES] {
    let mut places = [0; BYTES];
    let mut at = 0;
    while at < 2 * LANES {
        if let Some(byte) = of_pixel[at % 2] {
            places[2 * at] = (3 * (at / 2) + byte) as u8;
        }
        at += 1;
    }
    places
}

#[target_feature(enable = "avx512f")]
fn load(bytes: &[u8; BYTES]) -> __m512i {
    // SAFETY: it reads as many bytes as there are.
    unsafe { _mm512_loadu_si512(bytes.as_ptr().cast()) }
}

/// The bytes of 16 pixels, and then zeros.
#[target_feature(enable = "avx512f,avx512bw")]
fn load_pixels(bytes: &[u8; 3 * LANES]) -> __m512i {
    // SAFETY: the mask is that of as many bytes as there are, and no others are read.
    unsafe { _mm512_maskz_loadu_epi8((1 << (3 * LANES)) - 1, bytes.as_ptr().cast()) }
}

#[target_feature(enable = "avx512f")]
fn store(bytes: &mut [u8; BYTES], vector: __m512i) {
    // SAFETY: it writes as many bytes as there are.
    unsafe { _mm512_storeu_si512(bytes.as_mut_ptr().cast(), vector) }
}
