//! Adaptive threshold, each pixel straight from its neighbourhood.

use crate::config::{ThresholdMethod, ThresholdSpec};
use crate::frame::{Plane, PlaneRef};

/// 255 where a pixel stands out from its neighbourhood and 0 elsewhere; `spec.inverse` swaps the two.
///
/// The neighbourhood is the `block` x `block` square centred on the pixel. Outside the picture it sees the
/// nearest pixel of the border. Mean and Gaussian are rounded as in `cv::adaptiveThreshold`. Sauvola and
/// Niblack take f64 in the order that is written here: the mean m = S / n, the deviation
/// s = sqrt((n SS - S S) / (n n)), then the formulas of [`ThresholdMethod`]. Takes of the order of `block`²
/// steps a pixel.
pub fn threshold(src: PlaneRef<'_>, spec: &ThresholdSpec) -> Plane {
    let size = src.size();
    let mut mask = Plane::new(size);
    for y in 0..size.height {
        for x in 0..size.width {
            mask.data_mut()[y * size.width + x] = if is_foreground(src, spec, x, y) { 255 } else { 0 };
        }
    }
    mask
}

/// True if the pixel at (`x`, `y`) is 255 after the threshold.
///
/// # Panics
/// If there is no such pixel.
pub fn is_foreground(src: PlaneRef<'_>, spec: &ThresholdSpec, x: usize, y: usize) -> bool {
    match spec.method {
        ThresholdMethod::Mean { c } => above(src, x, y, mean(src, x, y, spec.block), c, spec.inverse),
        ThresholdMethod::Gaussian { c } => {
            above(src, x, y, gaussian_mean(src, x, y, spec.block), c, spec.inverse)
        }
        ThresholdMethod::Sauvola { k } => {
            let (m, s) = mean_and_deviation(src, x, y, spec.block);
            (f64::from(src.row(y)[x]) > m * (1.0 + k * (s / 128.0 - 1.0))) != spec.inverse
        }
        ThresholdMethod::Niblack { k } => {
            let (m, s) = mean_and_deviation(src, x, y, spec.block);
            (f64::from(src.row(y)[x]) > m + k * s) != spec.inverse
        }
    }
}

/// OpenCV's comparison with a rounded mean.
fn above(src: PlaneRef<'_>, x: usize, y: usize, mean: i64, c: f64, inverse: bool) -> bool {
    let value = f64::from(src.row(y)[x]);
    if inverse { value <= mean as f64 - c.floor() } else { value > mean as f64 - c.ceil() }
}

/// The pixel `dx`, `dy` away from (`x`, `y`), or the border's nearest.
fn at(src: PlaneRef<'_>, x: usize, y: usize, dx: i64, dy: i64) -> i64 {
    let clamped = |v: usize, d: i64, end: usize| (v as i64 + d).clamp(0, end as i64 - 1) as usize;
    i64::from(src.row(clamped(y, dy, src.size().height))[clamped(x, dx, src.size().width)])
}

/// `cv::boxFilter`'s mean: S times 1 / n, in f32, half to even.
fn mean(src: PlaneRef<'_>, x: usize, y: usize, block: usize) -> i64 {
    let (s, _) = sums(src, x, y, block);
    let scale = (1.0 / (block * block) as f64) as f32;
    (s as f32 * scale).round_ties_even() as i64
}

/// S and SS of the neighbourhood.
fn sums(src: PlaneRef<'_>, x: usize, y: usize, block: usize) -> (i64, i64) {
    let r = block as i64 / 2;
    let (mut s, mut ss) = (0, 0);
    for dy in -r..=r {
        for dx in -r..=r {
            let value = at(src, x, y, dx, dy);
            s += value;
            ss += value * value;
        }
    }
    (s, ss)
}

fn mean_and_deviation(src: PlaneRef<'_>, x: usize, y: usize, block: usize) -> (f64, f64) {
    let (s, ss) = sums(src, x, y, block);
    let n = (block * block) as i64;
    let variance = (n * ss - s * s) as f64 / (n * n) as f64;
    (s as f64 / n as f64, variance.sqrt())
}

/// The Gaussian mean in fixed point: rows to 16 fraction bits, half up; then columns, half to even.
fn gaussian_mean(src: PlaneRef<'_>, x: usize, y: usize, block: usize) -> i64 {
    let r = block as i64 / 2;
    let weights = gaussian_weights(block);
    let weight = |d: i64| weights[(d + r) as usize];
    let mut total = 0;
    for dy in -r..=r {
        let row: i64 = (-r..=r).map(|dx| weight(dx) * at(src, x, y, dx, dy)).sum();
        total += weight(dy) * ((row + (1 << 7)) >> 8);
    }
    let (whole, rest, half) = (total >> 40, total & ((1 << 40) - 1), 1 << 39);
    let is_up = rest > half || (rest == half && whole % 2 == 1);
    whole + i64::from(is_up)
}

/// OpenCV's kernel with 24 fraction bits, the rounding's remainder on the centre.
fn gaussian_weights(block: usize) -> Vec<i64> {
    let r = block as i64 / 2;
    let sigma = 0.3 * (r as f64 - 1.0) + 0.8;
    let real: Vec<f64> = match block {
        3 => vec![0.25, 0.5, 0.25],
        5 => vec![0.0625, 0.25, 0.375, 0.25, 0.0625],
        7 => vec![0.03125, 0.109_375, 0.218_75, 0.28125, 0.218_75, 0.109_375, 0.03125],
        9 => [4.0, 13.0, 30.0, 51.0, 60.0, 51.0, 30.0, 13.0, 4.0].map(|w| w / 256.0).to_vec(),
        _ => (-r..=r).map(|d| libm::exp(-0.5 * (d * d) as f64 / (sigma * sigma))).collect(),
    };
    let total: f64 = real.iter().sum();
    let mut weights: Vec<i64> =
        real.iter().map(|w| libm::round(w / total * f64::from(1 << 24)) as i64).collect();
    weights[r as usize] += (1 << 24) - weights.iter().sum::<i64>();
    weights
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::Size;

    fn run(pixels: &[u8], width: usize, spec: &str) -> Vec<u8> {
        let src = Plane::from_vec(pixels.to_vec(), Size::new(width, pixels.len() / width));
        threshold(src.as_ref(), &spec.parse().unwrap()).data().to_vec()
    }

    #[test]
    fn a_flat_picture_is_foreground_only_if_c_is_positive() {
        for method in ["mean", "gaussian"] {
            assert_eq!(run(&[9; 6], 3, &format!("{method}:3:0")), [0; 6]);
            assert_eq!(run(&[9; 6], 3, &format!("{method}:3:0.1")), [255; 6]);
            assert_eq!(run(&[9; 6], 3, &format!("{method}:3:0.1:inv")), [255; 6], "floor(0.1) is 0");
        }
        assert_eq!(run(&[9; 6], 3, "niblack:3:0.2"), [0; 6]);
        assert_eq!(run(&[9; 6], 3, "sauvola:3:0.2"), [255; 6]);
    }

    #[test]
    fn the_border_is_replicated() {
        // The neighbourhoods of a row 0 90 90 are 3 * (0 0 90), 3 * (0 90 90), 3 * (90 90 90): means 30, 60,
        // 90.
        assert_eq!(run(&[0, 90, 90], 3, "mean:3:0"), [0, 255, 0]);
        assert_eq!(run(&[0, 90, 90], 3, "mean:3:31"), [255, 255, 255]);
        assert_eq!(run(&[0, 90, 90], 3, "mean:3:30"), [0, 255, 255]);
    }

    #[test]
    fn a_threshold_by_hand() {
        // Along a column 0 0 200: Gaussian means 0, 50, 150; box sums 0, 3 * 200, 6 * 200 of 9.
        assert_eq!(run(&[0, 0, 200], 1, "gaussian:3:0"), [0, 0, 255]);
        assert_eq!(run(&[0, 0, 200], 1, "gaussian:3:51"), [255, 255, 255]);
        assert_eq!(run(&[0, 0, 200], 1, "gaussian:3:50:inv"), [0, 255, 0]);
        // m = 66.7 and s = 94.3 in the middle, m = 133.3 and s = 94.3 at the end.
        assert_eq!(run(&[0, 0, 200], 1, "niblack:3:0.7"), [0, 0, 255]);
        assert_eq!(run(&[0, 0, 200], 1, "niblack:3:0.71"), [0, 0, 0], "133.3 + 0.71 * 94.3 = 200.3");
    }
}
