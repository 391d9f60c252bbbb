//! What adaptive thresholds are made of on every backend: Gaussian weights and the rule of comparison, in integers.

/// Fraction bits of [`gaussian_weights`].
pub const WEIGHT_BITS: u32 = 24;

/// Fraction bits that the horizontal pass of the Gaussian keeps; it rounds half up.
pub const ROW_BITS: u32 = 16;

/// The weights of `cv::getGaussianKernel(block, 0)`, each rounded to 24 fraction bits, the remainder added to the centre's:
/// `block` weights, symmetric, that add up to 2^24 exactly.
pub fn gaussian_weights(block: usize) -> Vec<u32> {
    /// OpenCV's tables for small blocks, in 256ths.
    const TABLES: [&[u16]; 4] = [
        &[64, 128, 64],
        &[16, 64, 96, 64, 16],
        &[8, 28, 56, 72, 56, 28, 8],
        &[4, 13, 30, 51, 60, 51, 30, 13, 4],
    ];
    if let Some(table) = TABLES.iter().find(|table| table.len() == block) {
        return table.iter().map(|&w| u32::from(w) << (WEIGHT_BITS - 8)).collect();
    }
    let middle = (block as f64 - 1.0) * 0.5;
    let sigma = 0.3 * (middle - 1.0) + 0.8;
    let bell: Vec<f64> = (0..block)
        .map(|i| {
            let x = i as f64 - middle;
            libm::exp(-0.5 / (sigma * sigma) * x * x)
        })
        .collect();
    let sum: f64 = bell.iter().sum();
    let mut weights: Vec<u32> =
        bell.iter().map(|w| libm::round(w / sum * f64::from(1 << WEIGHT_BITS)) as u32).collect();
    let total: u32 = weights.iter().sum();
    weights[block / 2] = weights[block / 2] + (1 << WEIGHT_BITS) - total;
    weights
}

/// Which pixels `cv::adaptiveThreshold` makes white, given the local mean and the constant C.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MeanRule {
    /// White where src + `delta` > mean, or where it is not, if inverse.
    pub delta: i32,
    /// Swaps white and black.
    pub inverse: bool,
}

impl MeanRule {
    /// Binary compares with mean - ceil(C), inverse with mean - floor(C), as OpenCV does.
    pub fn new(c: f64, inverse: bool) -> Self {
        let delta = if inverse { c.floor() } else { c.ceil() };
        // Beyond the range of pixels all constants mean the same.
        Self { delta: delta.clamp(-1000.0, 1000.0) as i32, inverse }
    }

    /// 255 or 0.
    pub fn apply(self, src: u8, mean: i32) -> u8 {
        if (i32::from(src) + self.delta > mean) == self.inverse { 0 } else { 255 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gaussian_weights_add_up_and_are_symmetric() {
        for block in (3..=255).step_by(2) {
            let weights = gaussian_weights(block);
            assert_eq!((weights.len(), weights.iter().sum::<u32>()), (block, 1 << WEIGHT_BITS));
            assert!(weights.iter().eq(weights.iter().rev()));
        }
    }

    #[test]
    fn a_fractional_constant_is_rounded_away_from_white() {
        assert_eq!(MeanRule::new(0.5, false).apply(100, 100), 255);
        assert_eq!(MeanRule::new(0.5, true).apply(100, 100), 255);
        assert_eq!(MeanRule::new(0.0, false).apply(100, 100), 0);
        assert_eq!(MeanRule::new(f64::MAX, false).apply(0, 255), 255);
    }
}
