//! Thresholds, each pixel straight from its neighbourhood, its frame, or the frames before.

use crate::config::{Block, ThresholdMethod, ThresholdSpec};
use crate::frame::{Plane, PlaneRef};

/// 255 where a pixel stands out and 0 elsewhere; `spec.inverse` swaps the two.
///
/// The neighbourhood is the block centred on the pixel. Outside the picture it sees the nearest pixel of the
/// border. Mean and Gaussian are rounded as in `cv::adaptiveThreshold`. The other methods with a
/// neighbourhood take f64 in the order that is written here: the mean m = S / n, the deviation
/// s = sqrt((n SS - S S) / (n n)), then the formulas of [`ThresholdMethod`]. A background is that of a first
/// frame: see [`Background`]. Takes of the order of the block's area in steps a pixel.
pub fn threshold(src: PlaneRef<'_>, spec: &ThresholdSpec) -> Plane {
    let first = Background::default();
    let (all, few) = spec.stages();
    let mask = mask(src, &all, &first);
    match few {
        Some(few) => chosen(&mask, &self::mask(src, &few, &first)),
        None => mask,
    }
}

/// True if the pixel at (`x`, `y`) is 255 after the threshold.
///
/// # Panics
/// If there is no such pixel.
pub fn is_foreground(src: PlaneRef<'_>, spec: &ThresholdSpec, x: usize, y: usize) -> bool {
    if spec.second.is_some() {
        return threshold(src, spec).as_ref().row(y)[x] == 255;
    }
    stands_out(src, spec, &Whole::of(src, spec), &Background::default(), x, y)
}

/// The mask of one value.
fn mask(src: PlaneRef<'_>, spec: &ThresholdSpec, background: &Background) -> Plane {
    let (size, whole) = (src.size(), Whole::of(src, spec));
    let mut mask = Plane::new(size);
    for y in 0..size.height {
        for x in 0..size.width {
            let is_white = stands_out(src, spec, &whole, background, x, y);
            mask.data_mut()[y * size.width + x] = if is_white { 255 } else { 0 };
        }
    }
    mask
}

/// The white components of `all`, by 8 neighbours, that hold a white pixel of `few`.
fn chosen(all: &Plane, few: &Plane) -> Plane {
    let size = all.size();
    let mut chosen = Plane::new(size);
    let is_both = |at: usize| all.data()[at] == 255 && few.data()[at] == 255;
    let mut reached: Vec<usize> = (0..size.area()).filter(|&at| is_both(at)).collect();
    while let Some(at) = reached.pop() {
        if std::mem::replace(&mut chosen.data_mut()[at], 255) == 255 {
            continue;
        }
        let (x, y) = (at % size.width, at / size.width);
        for y in y.saturating_sub(1)..(y + 2).min(size.height) {
            for x in x.saturating_sub(1)..(x + 2).min(size.width) {
                let at = y * size.width + x;
                if all.data()[at] == 255 && chosen.data()[at] == 0 {
                    reached.push(at);
                }
            }
        }
    }
    chosen
}

fn stands_out(
    src: PlaneRef<'_>,
    spec: &ThresholdSpec,
    whole: &Whole,
    background: &Background,
    x: usize,
    y: usize,
) -> bool {
    let (pixel, block) = (src.row(y)[x], spec.block);
    let value = f64::from(pixel);
    let is_above = match spec.method {
        ThresholdMethod::Mean { c } => return above(src, x, y, mean(src, x, y, block), c, spec.inverse),
        ThresholdMethod::Gaussian { c } => {
            return above(src, x, y, gaussian_mean(src, x, y, block.width), c, spec.inverse);
        }
        ThresholdMethod::Sauvola { k } => {
            let (m, s) = mean_and_deviation(src, x, y, block);
            value > m * (1.0 + k * (s / 128.0 - 1.0))
        }
        ThresholdMethod::Niblack { k } => {
            let (m, s) = mean_and_deviation(src, x, y, block);
            value > m + k * s
        }
        ThresholdMethod::Wolf { k } => {
            let (m, s) = mean_and_deviation(src, x, y, block);
            // Where no pixel has neighbours unlike itself, m is M.
            let share = if whole.greatest > 0.0 { s / whole.greatest } else { 0.0 };
            value > m + k * ((share - 1.0) * (m - whole.least))
        }
        ThresholdMethod::Phansalkar { k } => {
            let (m, s) = mean_and_deviation(src, x, y, block);
            value > m * (1.0 + phansalkar(m) + k * (s / 127.5 - 1.0))
        }
        ThresholdMethod::Bradley { t } => {
            let (s, _) = sums(src, x, y, block);
            (i64::from(pixel) * block.area() as i64) as f64 > s as f64 * ((100.0 - t) / 100.0)
        }
        ThresholdMethod::Fixed { t } => value > t,
        ThresholdMethod::Otsu | ThresholdMethod::Triangle => i64::from(pixel) > whole.level,
        ThresholdMethod::Background { t, .. } => {
            let mean = background.mean.get(y * src.size().width + x).copied();
            let value = u64::from(pixel) << 16;
            value.abs_diff(mean.unwrap_or(value)) as f64 > t * 65_536.0
        }
    };
    is_above != spec.inverse
}

/// Numbers of the whole frame.
#[derive(Default)]
struct Whole {
    /// For Otsu and the triangle: what is above is white.
    level: i64,
    /// For Wolf: the least luma, and the greatest deviation.
    least: f64,
    greatest: f64,
}

impl Whole {
    fn of(src: PlaneRef<'_>, spec: &ThresholdSpec) -> Self {
        let mut histogram = [0; 256];
        src.rows().flatten().for_each(|&pixel| histogram[usize::from(pixel)] += 1);
        match spec.method {
            ThresholdMethod::Otsu => Self { level: otsu(&histogram), ..Self::default() },
            ThresholdMethod::Triangle => Self { level: triangle(histogram), ..Self::default() },
            ThresholdMethod::Wolf { .. } => {
                let places = (0..src.size().height).flat_map(|y| (0..src.size().width).map(move |x| (x, y)));
                let deviations = places.map(|(x, y)| mean_and_deviation(src, x, y, spec.block).1);
                let least = histogram.iter().position(|&count| count > 0).unwrap_or(0);
                Self { least: least as f64, greatest: deviations.fold(0.0, f64::max), ..Self::default() }
            }
            _ => Self::default(),
        }
    }
}

/// The first level for which the variance between the pixels up to it and those above is greatest:
/// n0 n1 (s0 / n0 - s1 / n1)^2, which is (S n0 - N s0)^2 / (n0 n1), in f64 but for the exact difference.
/// 0 where all pixels are the same.
///
/// # Panics
/// If there are more than 2^64 pixels.
fn otsu(histogram: &[i64; 256]) -> i64 {
    let all: i128 = histogram.iter().map(|&count| i128::from(count)).sum();
    let sum: i128 = histogram.iter().zip(0..).map(|(&count, level)| i128::from(count) * level).sum();
    let (mut best, mut level) = (0.0, 0);
    for last in 0..256 {
        let counts = histogram[..=last].iter().zip(0_i128..);
        let below: i128 = counts.clone().map(|(&count, _)| i128::from(count)).sum();
        let sum_below: i128 = counts.map(|(&count, level)| i128::from(count) * level).sum();
        if below == 0 || below == all {
            continue;
        }
        let difference = (sum * below - all * sum_below) as f64;
        let variance = difference * difference / (below as f64 * (all - below) as f64);
        if variance > best {
            (best, level) = (variance, last as i64);
        }
    }
    level
}

/// OpenCV's level: on the longer side of the histogram's first peak, a line from the peak to the foot; the
/// level before the one whose count is furthest below it, the first of those nearest to the foot. In whole
/// numbers.
fn triangle(mut histogram: [i64; 256]) -> i64 {
    let is_used = |count: &i64| *count > 0;
    let (Some(left), Some(right)) = (histogram.iter().position(is_used), histogram.iter().rposition(is_used))
    else {
        return 0;
    };
    // One further, where the count is 0, if there is one.
    let (mut foot, right) = (left.saturating_sub(1), (right + 1).min(255));
    let highest = *histogram.iter().max().expect("it has 256 counts");
    let mut peak = histogram.iter().position(|&count| count == highest).expect("it is one of them");
    let is_flipped = peak - foot < right - peak;
    if is_flipped {
        histogram.reverse();
        (foot, peak) = (255 - right, 255 - peak);
    }
    let (mut furthest, mut level) = (0, foot as i64);
    for (at, count) in histogram.iter().enumerate().take(peak + 1).skip(foot + 1) {
        let distance = highest * at as i64 + (foot as i64 - peak as i64) * count;
        if distance > furthest {
            (furthest, level) = (distance, at as i64);
        }
    }
    level -= 1;
    if is_flipped { 255 - level } else { level }
}

/// 2 exp(-10 m / 255), on a line between two whole m.
fn phansalkar(m: f64) -> f64 {
    let at = |m: f64| 2.0 * libm::exp(-10.0 * m / 255.0);
    let below = m.floor();
    at(below) + (m - below) * (at(below + 1.0) - at(below))
}

/// The running mean of the frames before, and the masks of frames that are compared with it.
///
/// Of each pixel, with 16 fraction bits: that of the first frame; then, at the n-th frame, of value v, with
/// k = min(n, `frames`) and w = 2^31 / k, rounded half up: (mean * (2^31 - w) + v * w) / 2^31, rounded half
/// up. So the first frames count all the same, and later ones less from frame to frame. A frame is compared
/// with the mean of those before it, the first one with itself.
#[derive(Debug, Clone, Default)]
pub struct Background {
    mean: Vec<u64>,
    frames: u64,
}

impl Background {
    /// The mask of the next frame, which then counts. Frames that another method thresholds leave no trace.
    ///
    /// # Panics
    /// If the frame has another size than those before.
    pub fn threshold(&mut self, src: PlaneRef<'_>, spec: &ThresholdSpec) -> Plane {
        assert!(self.frames == 0 || self.mean.len() == src.size().area(), "a frame of another size");
        let (all, few) = spec.stages();
        let mut mask = mask(src, &all, self);
        if let Some(few) = few {
            mask = chosen(&mask, &self::mask(src, &few, self));
        }
        if let ThresholdMethod::Background { frames, .. } = spec.method {
            let values = src.rows().flatten().map(|&pixel| u64::from(pixel) << 16);
            // No further than it makes a difference: where FRAMES grows, it counts on from there.
            self.frames = (self.frames + 1).min(u64::from(frames).max(2));
            if self.frames == 1 {
                self.mean = values.collect();
            } else {
                let k = self.frames.min(u64::from(frames));
                let w = ((1 << 31) + k / 2) / k;
                for (mean, value) in self.mean.iter_mut().zip(values) {
                    *mean = (*mean * ((1 << 31) - w) + value * w + (1 << 30)) >> 31;
                }
            }
        }
        mask
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
fn mean(src: PlaneRef<'_>, x: usize, y: usize, block: Block) -> i64 {
    let (s, _) = sums(src, x, y, block);
    let scale = (1.0 / block.area() as f64) as f32;
    (s as f32 * scale).round_ties_even() as i64
}

/// S and SS of the neighbourhood.
fn sums(src: PlaneRef<'_>, x: usize, y: usize, block: Block) -> (i64, i64) {
    let (across, down) = (block.width as i64 / 2, block.height as i64 / 2);
    let (mut s, mut ss) = (0, 0);
    for dy in -down..=down {
        for dx in -across..=across {
            let value = at(src, x, y, dx, dy);
            s += value;
            ss += value * value;
        }
    }
    (s, ss)
}

fn mean_and_deviation(src: PlaneRef<'_>, x: usize, y: usize, block: Block) -> (f64, f64) {
    let (s, ss) = sums(src, x, y, block);
    let n = block.area() as i64;
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

    #[test]
    fn a_block_may_be_wider_than_high() {
        // Rows of 3 alone: the mean of 0 0 90 is 30, that of the columns is the pixel.
        let pixels = [0, 0, 90, 0, 0, 90];
        assert_eq!(run(&pixels, 3, "mean:3x3:0"), run(&pixels, 3, "mean:3:0"));
        let column = [0, 10, 90];
        assert_eq!(run(&column, 1, "mean:5x3:0"), [0, 0, 255], "means 3, 33, 63");
        assert_eq!(run(&column, 3, "mean:3x255:0"), [0, 0, 255]);
    }

    #[test]
    fn levels_of_whole_frames_by_hand() {
        assert_eq!(run(&[9; 6], 3, "otsu"), [255; 6], "as OpenCV: level 0");
        assert_eq!(run(&[10, 10, 12, 200, 201], 5, "otsu"), [0, 0, 0, 255, 255]);
        assert_eq!(run(&[10, 10, 12, 200, 201], 5, "otsu:inv"), [255, 255, 255, 0, 0]);
        assert_eq!(run(&[9, 10, 11], 3, "fixed:10"), [0, 0, 255]);
        assert_eq!(run(&[9, 10, 11], 3, "fixed:9.5"), [0, 255, 255]);
        // From the peak at 10, where the count is 10, to the foot at 201: the count of 13 is furthest below.
        let mut pixels = vec![10; 10];
        pixels.extend([11, 11, 11, 12, 14, 15, 200]);
        assert_eq!(run(&pixels, 17, "triangle")[10..], [0, 0, 0, 0, 0, 255, 255], "one level further");
    }

    #[test]
    fn hysteresis_takes_components_that_hold_a_bright_pixel() {
        // Corners join: 120 and 150 hang on 200, and the others on none.
        let pixels = [120, 0, 0, 0, 200, 0, 120, 0, 120, 0, 0, 120, 0, 0, 150];
        let expected = [0, 0, 0, 0, 255, 0, 0, 0, 255, 0, 0, 0, 0, 0, 255];
        assert_eq!(run(&pixels, 5, "fixed:100..160"), expected);
        assert_eq!(run(&pixels, 5, "fixed:160..100"), expected);
        // Swapped, up to 100 is white where it hangs together with what is up to 160: all but 200 of it.
        let dark = run(&pixels, 5, "fixed:100..160:inv");
        assert_eq!(dark, pixels.map(|value| if value <= 160 { 255 } else { 0 }));
    }

    #[test]
    fn a_background_by_hand() {
        let spec: ThresholdSpec = "background:2:20".parse().unwrap();
        let mut background = Background::default();
        let mut next = |value: u8| {
            let frame = Plane::from_vec(vec![value], Size::new(1, 1));
            background.threshold(frame.as_ref(), &spec).data()[0]
        };
        // Means before them: its own, 100, 110, 120.5, 70.25, 80.125.
        assert_eq!([100, 120, 131, 20, 90, 119].map(&mut next), [0, 0, 255, 255, 0, 255]);
    }
}
