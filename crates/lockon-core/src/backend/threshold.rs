//! The data that a threshold needs before it sees a frame: weights, scales, offsets and tables, made once on
//! the host; and the level that a histogram gives.
//!
//! Backends take these numbers as they are and do integer arithmetic with them (the mean: one f32
//! multiplication; deviations: f64 in a written order), so that every mask is the same to the bit wherever it
//! was made.

use crate::config::Block;

/// Fraction bits of the Gaussian weights, which add up to `1 << WEIGHT_BITS` exactly.
pub const WEIGHT_BITS: u32 = 24;

/// Fraction bits of a row after the horizontal pass of the Gaussian, rounded half up. Its values fit in 24
/// bits.
pub const ROW_BITS: u32 = 16;

/// Fraction bits of the Gaussian mean after the vertical pass, before it is rounded half to even. It fits in
/// 48 bits.
pub const MEAN_BITS: u32 = WEIGHT_BITS + ROW_BITS;

/// Fraction bits of a background.
pub const BACKGROUND_BITS: u32 = 16;

/// Fraction bits of the weight of a frame in a background.
pub const BACKGROUND_WEIGHT_BITS: u32 = 31;

/// Number of whole means in [`phansalkar_factors`].
pub const PHANSALKAR_MEANS: usize = 257;

/// 1 / area, by which the mean multiplies its sum; both in f32, as `cv::boxFilter` does.
pub fn mean_scale(block: Block) -> f32 {
    (1.0 / block.area() as f64) as f32
}

/// The share of the mean that is Bradley's threshold.
pub fn bradley_share(t: f64) -> f64 {
    (100.0 - t) / 100.0
}

/// The level L of a fixed threshold: a pixel is above `t` if it is above L, from -1 to 255.
pub fn fixed_level(t: f64) -> i32 {
    libm::floor(t).clamp(-1.0, 255.0) as i32
}

/// For each whole mean m from 0 to 256 Phansalkar's term 2 exp(-10 m / 255), and by how much the next one is
/// greater. At a mean between two it is interpolated: `term + (m - floor(m)) * difference`.
///
/// The curve between two lies below the line, by less than 4e-4; the threshold is m times that further, less
/// than 0.01 levels of grey.
pub fn phansalkar_factors() -> [[f64; 2]; PHANSALKAR_MEANS] {
    let at = |m: usize| 2.0 * libm::exp(-10.0 * m as f64 / 255.0);
    std::array::from_fn(|m| [at(m), at(m + 1) - at(m)])
}

/// Differences from a background, with its fraction bits, that are greater than this one stand out: from -1
/// to 2^24.
pub fn background_limit(t: f64) -> i32 {
    libm::floor(t * f64::from(1 << BACKGROUND_BITS)).clamp(-1.0, f64::from(1 << 24)) as i32
}

/// The running mean of a run's frames so far: what one device hands to the next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Background {
    /// Their number, up to the greatest that makes a difference: see [`background_frames`].
    pub frames: u32,
    /// The mean of each pixel, along rows without padding.
    pub mean: Vec<u32>,
}

/// Number of frames after the next one, of a mean of up to `most`: it stands still where it makes no
/// difference any more.
pub fn background_frames(frames: u32, most: u32) -> u32 {
    frames.saturating_add(1).min(most.max(2))
}

/// The weight of the n-th frame, counted from 1, in the mean of up to `frames` frames: 1 / min(n, frames) of
/// `1 << BACKGROUND_WEIGHT_BITS`, rounded half up.
///
/// The next mean is `(mean * (one - weight) + value * weight + one / 2) / one`, each with the fraction bits
/// of a background: below 2^56.
pub fn background_weight(n: u32, frames: u32) -> u32 {
    let count = n.clamp(1, frames);
    ((1 << BACKGROUND_WEIGHT_BITS) + count / 2) / count
}

/// Otsu's level: the first for which the variance between the pixels up to it and those above is greatest; 0
/// where all pixels are the same.
///
/// With n of N pixels up to the level, and their sum s of S, that is (S n - N s)^2 / (n (N - n)): the
/// difference as an integer, the rest in f64 in this order.
pub fn otsu(histogram: &[u64; 256]) -> i32 {
    let all: u64 = histogram.iter().sum();
    let sum: u64 = histogram.iter().zip(0..).map(|(count, level)| count * level).sum();
    let (mut below, mut sum_below) = (0, 0);
    let (mut best, mut level) = (0.0, 0);
    for (last, &count) in histogram.iter().enumerate() {
        below += count;
        sum_below += count * last as u64;
        let above = all - below;
        if below > 0 && above > 0 {
            let product = |a: u64, b: u64| i128::from(a) * i128::from(b);
            let difference = (product(sum, below) - product(all, sum_below)) as f64;
            let variance = difference * difference / (below as f64 * above as f64);
            if variance > best {
                (best, level) = (variance, last as i32);
            }
        }
    }
    level
}

/// The triangle's level, as OpenCV finds it, in whole numbers: -1 to 256.
///
/// A line goes from the histogram's highest count, the first of these, down to the foot of its longer side,
/// the level behind the last that occurs. The level is one beyond the count that lies furthest below the
/// line, away from the peak; the nearest to the foot of several.
pub fn triangle(histogram: &[u64; 256]) -> i32 {
    let is_used = |count: &u64| *count > 0;
    let Some(left) = histogram.iter().position(is_used) else { return 0 };
    let right = 255 - histogram.iter().rev().position(is_used).expect("a count that is not 0");
    let (left, right) = (left.saturating_sub(1), (right + 1).min(255));
    let (mut peak, mut highest) = (0, 0);
    for (level, &count) in histogram.iter().enumerate() {
        if count > highest {
            (peak, highest) = (level, count);
        }
    }
    let is_flipped = peak - left < right - peak;
    let (foot, peak) = if is_flipped { (255 - right, 255 - peak) } else { (left, peak) };
    let (mut furthest, mut level) = (0, foot);
    for at in foot + 1..=peak {
        let count = histogram[if is_flipped { 255 - at } else { at }];
        let distance = highest as i64 * at as i64 - (peak - foot) as i64 * count as i64;
        if distance > furthest {
            (furthest, level) = (distance, at);
        }
    }
    let level = level as i32 - 1;
    if is_flipped { 255 - level } else { level }
}

/// The whole number D that `c` stands for: a pixel is foreground if `src > mean - D`, or with `inverse` if
/// not.
///
/// `cv::adaptiveThreshold` takes C up to a whole number for the binary threshold and down for the inverse
/// one, so the two masks of a fractional C are not complements. Beyond +-256 every C gives the same mask; D
/// is clamped there.
pub fn offset(c: f64, inverse: bool) -> i32 {
    let whole = if inverse { libm::floor(c) } else { libm::ceil(c) };
    whole.clamp(-256.0, 256.0) as i32
}

/// The `block` weights of `cv::getGaussianKernel(block, 0)` as integers that add up to `1 << WEIGHT_BITS`.
///
/// The weights are rounded one by one, and the centre gets the rest of the sum. They are symmetric.
///
/// # Panics
/// If `block` is not odd or less than 3.
pub fn gaussian_weights(block: usize) -> Vec<u32> {
    assert!(block % 2 == 1 && block >= 3, "Gaussian block {block}");
    let one = f64::from(1 << WEIGHT_BITS);
    let real = gaussian_kernel(block);
    let mut weights: Vec<u32> = real.iter().map(|w| libm::round(w * one) as u32).collect();
    let total: u32 = weights.iter().sum();
    weights[block / 2] = weights[block / 2] + (1 << WEIGHT_BITS) - total;
    weights
}

/// `cv::getGaussianKernel(block, 0)` in f64.
fn gaussian_kernel(block: usize) -> Vec<f64> {
    // OpenCV has these four as constants; the formula gives other values.
    match block {
        3 => return vec![0.25, 0.5, 0.25],
        5 => return vec![0.0625, 0.25, 0.375, 0.25, 0.0625],
        7 => return vec![0.03125, 0.109_375, 0.218_75, 0.28125, 0.218_75, 0.109_375, 0.03125],
        9 => return [4, 13, 30, 51, 60, 51, 30, 13, 4].map(|w| f64::from(w) / 256.0).to_vec(),
        _ => {}
    }
    let radius = ((block - 1) / 2) as f64;
    let sigma = 0.3 * (radius - 1.0) + 0.8;
    let unscaled: Vec<f64> = (0..block)
        .map(|i| {
            let d = i as f64 - radius;
            libm::exp(-0.5 * d * d / (sigma * sigma))
        })
        .collect();
    let total: f64 = unscaled.iter().sum();
    unscaled.iter().map(|w| w / total).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gaussian_weights_are_symmetric_and_add_up_for_every_block() {
        for block in (3..=255).step_by(2) {
            let weights = gaussian_weights(block);
            assert_eq!(weights.len(), block);
            assert_eq!(weights.iter().sum::<u32>(), 1 << WEIGHT_BITS, "block {block}");
            assert!(weights.iter().eq(weights.iter().rev()), "block {block}");
            assert!(weights[..=block / 2].is_sorted(), "block {block}: the remainder made a dent");
        }
    }

    #[test]
    fn gaussian_weights_follow_opencv() {
        // cv2.getGaussianKernel(11, 0) * 2**24, rounded.
        assert_eq!(gaussian_weights(11)[..5], [147_845, 455_394, 1_092_433, 2_040_933, 2_969_540]);
        assert_eq!(gaussian_weights(3), [1 << 22, 1 << 23, 1 << 22]);
    }

    #[test]
    fn fractions_of_c_go_up_for_binary_and_down_for_inverse() {
        assert_eq!([offset(-7.5, false), offset(-7.5, true)], [-7, -8]);
        assert_eq!([offset(5.0, false), offset(5.0, true)], [5, 5]);
        assert_eq!([offset(1e300, false), offset(-1e300, true)], [256, -256]);
    }

    #[test]
    fn the_interpolated_exponential_is_near_the_exponential() {
        let factors = phansalkar_factors();
        for step in 0..=25_500 {
            let m = f64::from(step) / 100.0;
            let [term, more] = factors[m as usize];
            let got = term + (m - m.floor()) * more;
            let off = (got - 2.0 * libm::exp(-10.0 * m / 255.0)) * m;
            assert!((0.0..0.01).contains(&(off + 1e-12)), "{m}: {off}");
        }
    }

    #[test]
    fn weights_of_a_background_are_shares_of_one() {
        let one = 1_u32 << BACKGROUND_WEIGHT_BITS;
        assert_eq!([1, 2, 3, 9].map(|n| background_weight(n, 4)), [one, one / 2, 715_827_883, one / 4]);
        assert_eq!(background_weight(u32::MAX, 1), one);
        assert_eq!([0, 1, 2, 3, 9].map(|n| background_frames(n, 4)), [1, 2, 3, 4, 4]);
        assert_eq!([0, 1, 2].map(|n| background_frames(n, 1)), [1, 2, 2], "the first frame is another one");
    }

    #[test]
    fn levels_of_empty_and_flat_histograms_are_opencvs() {
        let mut histogram = [0; 256];
        assert_eq!((otsu(&histogram), triangle(&histogram)), (0, 0));
        for (level, triangles) in [(0, 1), (9, 8), (254, 253), (255, 254)] {
            histogram = [0; 256];
            histogram[level] = 7;
            assert_eq!((otsu(&histogram), triangle(&histogram)), (0, triangles), "{level}");
        }
    }
}
