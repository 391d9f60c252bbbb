//! The data that an adaptive threshold needs before it sees a frame: weights, scales and offsets, made once
//! on the host.
//!
//! Backends take these numbers as they are and do integer arithmetic with them (the mean: one f32
//! multiplication), so that every mask is the same to the bit wherever it was made.

/// Fraction bits of the Gaussian weights, which add up to `1 << WEIGHT_BITS` exactly.
pub const WEIGHT_BITS: u32 = 24;

/// Fraction bits of a row after the horizontal pass of the Gaussian, rounded half up. Its values fit in 24
/// bits.
pub const ROW_BITS: u32 = 16;

/// Fraction bits of the Gaussian mean after the vertical pass, before it is rounded half to even. It fits in
/// 48 bits.
pub const MEAN_BITS: u32 = WEIGHT_BITS + ROW_BITS;

/// 1 / block², by which the mean multiplies its sum; both in f32, as `cv::boxFilter` does.
pub fn mean_scale(block: usize) -> f32 {
    (1.0 / (block * block) as f64) as f32
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
}
