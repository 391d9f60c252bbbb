//! Adaptive threshold, each pixel straight from its neighbourhood.

use crate::config::{ThresholdMethod, ThresholdSpec};
use crate::frame::{Plane, PlaneRef, Size};

/// `src` in black (0) and white (255). The border is replicated.
///
/// Mean and Gaussian follow `cv::adaptiveThreshold`: white where src > mean - ceil(C); inverse: where src <= mean - floor(C).
/// Sauvola and Niblack: white where src > T; inverse: where it is not.
pub fn threshold(src: PlaneRef<'_>, spec: &ThresholdSpec) -> Plane {
    let Size { width, height } = src.size();
    let radius = (spec.block / 2) as isize;
    let weights = gaussian_weights(spec.block);
    let at = |x: isize, y: isize| {
        let x = x.clamp(0, width as isize - 1) as usize;
        i64::from(src.row(y.clamp(0, height as isize - 1) as usize)[x])
    };
    let mut out = Plane::new(src.size());
    for y in 0..height as isize {
        for x in 0..width as isize {
            let row = |dy: isize| (-radius..=radius).map(move |dx| at(x + dx, y + dy));
            let all = || (-radius..=radius).flat_map(row);
            let n = (spec.block * spec.block) as f64;
            let (sum, squares) = (all().sum::<i64>(), all().map(|v| v * v).sum::<i64>());
            let m = sum as f64 / n;
            let s = || {
                let v = (n * squares as f64 - sum as f64 * sum as f64) / (n * n);
                v.sqrt()
            };
            let value = at(x, y) as f64;
            let is_white = match spec.method {
                ThresholdMethod::Mean { c } => {
                    // OpenCV multiplies the sum by a rounded 1/n in single precision.
                    let mean = f64::from((sum as f32 * (1.0 / n) as f32).round_ties_even());
                    compare(value, mean, c, spec.inverse)
                }
                ThresholdMethod::Gaussian { c } => {
                    let blurred_row = |dy: isize| {
                        let sum: i64 = row(dy).zip(&weights).map(|(v, w)| v * w).sum();
                        (sum + (1 << 7)) >> 8
                    };
                    let total: i64 =
                        (-radius..=radius).zip(&weights).map(|(dy, w)| blurred_row(dy) * w).sum();
                    let (mean, rest, half) = (total >> 40, total & ((1 << 40) - 1), 1 << 39);
                    let is_up = rest > half || (rest == half && mean % 2 == 1);
                    compare(value, (mean + i64::from(is_up)) as f64, c, spec.inverse)
                }
                ThresholdMethod::Sauvola { k } => {
                    (value > m * (1.0 + k * (s() / 128.0 - 1.0))) != spec.inverse
                }
                ThresholdMethod::Niblack { k } => (value > m + k * s()) != spec.inverse,
            };
            out.data_mut()[y as usize * width + x as usize] = if is_white { 255 } else { 0 };
        }
    }
    out
}

fn compare(value: f64, mean: f64, c: f64, inverse: bool) -> bool {
    if inverse { value <= mean - c.floor() } else { value > mean - c.ceil() }
}

/// `cv::getGaussianKernel(block, 0)` in integers that add up to 2^24.
fn gaussian_weights(block: usize) -> Vec<i64> {
    let exact: Vec<f64> = match block {
        3 => vec![0.25, 0.5, 0.25],
        5 => vec![0.0625, 0.25, 0.375, 0.25, 0.0625],
        7 => vec![0.03125, 0.109_375, 0.21875, 0.28125, 0.21875, 0.109_375, 0.03125],
        9 => [4.0, 13.0, 30.0, 51.0, 60.0, 51.0, 30.0, 13.0, 4.0].map(|w| w / 256.0).to_vec(),
        _ => {
            let middle = (block as f64 - 1.0) * 0.5;
            let sigma = 0.3 * (middle - 1.0) + 0.8;
            let bell = |i: usize| {
                let x = i as f64 - middle;
                libm::exp(-0.5 / (sigma * sigma) * x * x)
            };
            let sum: f64 = (0..block).map(bell).sum();
            (0..block).map(|i| bell(i) / sum).collect()
        }
    };
    let scale = f64::from(1 << 24);
    let mut weights: Vec<i64> = exact.iter().map(|w| libm::round(w * scale) as i64).collect();
    weights[block / 2] += (1 << 24) - weights.iter().sum::<i64>();
    weights
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bright_pixel_stands_out_from_its_neighbours() {
        let mut src = Plane::from_vec(vec![100; 25], Size::new(5, 5));
        src.data_mut()[12] = 200;
        let white = |spec: &str| {
            let out = threshold(src.as_ref(), &spec.parse().unwrap());
            out.data().iter().filter(|&&v| v == 255).count()
        };
        // The mean around the middle is 111, elsewhere at least 100.
        assert_eq!(white("mean:3:0"), 1);
        assert_eq!(white("mean:3:0:inv"), 24);
        assert_eq!(white("mean:3:12"), 25);
        assert_eq!(white("gaussian:3:0"), 1);
    }

    #[test]
    fn gaussian_weights_add_up_and_are_symmetric() {
        for block in (3..=255).step_by(2) {
            let weights = gaussian_weights(block);
            assert_eq!(weights.iter().sum::<i64>(), 1 << 24);
            assert!(weights.iter().eq(weights.iter().rev()));
        }
    }
}
