//! Checks whether a template can be distinguished from its surroundings: measures of its pixels, and their
//! meaning for a search.
//!
//! NCC finds what looks alike, however little that is. A crop that is one bare edge scores high along every
//! edge of that direction, stripes match themselves a stripe further on, and colour is not looked at. All of
//! this can be seen in the template alone, before a frame is searched.
//!
//! Where the limits lie was chosen on 954 random crops of 8 to 160 pixels a side of frames of the clips
//! `bottle-detection`, `car-detection`, `cockatoo`, `opencv_box` and `vtest`: each was searched in the frame
//! that it came from, and the score of the best wrong place was laid beside the measures. From 0.8 on, half
//! of the wrong places score what [`Measures::bare_edge`] says, or more: of crops with 0.85 to 0.9 of it 77 %
//! have one of 0.8 and more, of those with 0.5 to 0.8 some 20 %. Of crops with contrast but less than 150
//! pixels 90 % have one. The templates of the scenes `aloe_stereo`, `skimage_coins`, `fipm3_led` and
//! `fipm8_eclip`, and `examples/media/car.png`, lie between 0.12 and 0.53, look like themselves with 0.2 at
//! most, and pass without a word.

use std::fmt;

use rustfft::FftPlanner;
use rustfft::num_complex::Complex;

use crate::frame::{Plane, Size};
use crate::template::Template;

/// Fewer counted pixels than this are few.
const FEW_PIXELS: u64 = 150;
/// Noise of a standard deviation of 2, as cameras and encoders have it, leaves a score of 0.8 to grey values
/// that have this one.
const FAINT: f64 = 4.0;
/// A bare edge that scores as much is taken for the template.
const BARE_EDGE: f64 = 0.85;
/// So much like itself elsewhere, places beside the right one compete with it.
const LIKE_ITSELF: f64 = 0.7;
/// A template that repeats is less like itself half way. One that is merely smooth, or an edge moved along
/// itself, is not.
const LESS_BETWEEN: f64 = 0.15;
/// Minimum share of the pixels that two copies must have in common to be compared.
const IN_COMMON: f64 = 0.4;
/// Two copies are compared where each has this share of the template's variance a pixel, since flat areas
/// resemble everything.
const NOT_FLAT: f64 = 0.1;
/// Variance of colour over that of luma.
const COLOUR_SHARE: f64 = 1.0;
/// A template is made smaller until it has no more pixels before it is compared with itself: patterns that
/// are finer than two of those pixels go unseen.
const MOST_PIXELS: usize = 1 << 17;

/// Measures of a template, in its own size and direction.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Measures {
    /// Pixels that count.
    pub pixels: u64,
    /// Standard deviation of their grey values, in [0, 127.5].
    pub deviation: f64,
    /// NCC of the template with a bare edge: what is left of it when every pixel becomes the mean of its line
    /// along the direction in which the template changes least. In [0, 1]; 1 is the aperture problem in its
    /// pure form.
    pub bare_edge: f64,
    /// Where it looks most like itself, if it repeats at all.
    pub repeat: Option<Repeat>,
    /// Variance of its colours (Cb and Cr) over that of its luma; none for a grey picture.
    pub colour: Option<f64>,
}

/// A shift at which a template looks like itself.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Repeat {
    /// To the right, in pixels.
    pub dx: i64,
    /// Down, in pixels.
    pub dy: i64,
    /// NCC of the pixels that the two copies have in common.
    pub score: f64,
}

/// Something about a template that will make matches wrong. As text, it says what will happen and what to do.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Doubt {
    /// It has few pixels.
    Few(u64),
    /// It has little contrast: the standard deviation of its grey values.
    Faint(f64),
    /// It is one edge: NCC with a bare one.
    OneEdge(f64),
    /// It looks like itself elsewhere.
    Repeats(Repeat),
    /// Its parts differ in colour rather than in brightness: variance of the one over that of the other.
    Colour(f64),
}

impl fmt::Display for Doubt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Few(pixels) => write!(
                f,
                "has {pixels} pixels that count: in most pictures something looks like that by chance; choose a larger one"
            ),
            Self::Faint(deviation) => write!(
                f,
                "has little contrast (standard deviation {deviation:.1} of 255): noise will decide what matches; choose one with \
                 more"
            ),
            Self::OneEdge(score) => write!(
                f,
                "is little more than one edge: bare edges of its direction score up to {score:.2}, wherever they are; take in a \
                 corner or something else that only this object has"
            ),
            Self::Repeats(Repeat { dx, dy, score }) => write!(
                f,
                "looks like itself {dx},{dy} pixels further (score {score:.2}): that place will be found too, or instead; take in \
                 something that does not repeat"
            ),
            Self::Colour(share) => write!(
                f,
                "differs {share:.1} times as much in colour as in brightness, but templates ignore colour: the same shape in other \
                 colours will match, and what is told apart by colour alone will not be seen"
            ),
        }
    }
}

impl Measures {
    /// Measures a template. `rgb` is the picture that it was made from, three bytes a pixel, where that has
    /// colours.
    ///
    /// # Panics
    /// If `rgb` is not of the template's size.
    pub fn of(template: &Template, rgb: Option<&[u8]>) -> Self {
        let (luma, sums) = (template.luma(), template.sums());
        let variance = sums.variance() as f64 / (sums.n as f64 * sums.n as f64);
        let counted = Counted::of(luma, template.mask(), sums.t1 as f64 / sums.n as f64);
        Self {
            pixels: sums.n as u64,
            deviation: variance.sqrt(),
            bare_edge: counted.bare_edge(),
            repeat: counted.shrunk().repeat(),
            colour: rgb.map(|rgb| colour_variance(rgb, template) / variance),
        }
    }

    /// Returns the warnings about the template, the worst first; none if it is fit to be searched for.
    pub fn doubts(&self) -> Vec<Doubt> {
        let repeat = self.repeat.filter(|repeat| repeat.score >= LIKE_ITSELF);
        [
            (self.deviation < FAINT).then_some(Doubt::Faint(self.deviation)),
            (self.pixels < FEW_PIXELS).then_some(Doubt::Few(self.pixels)),
            (self.bare_edge >= BARE_EDGE).then_some(Doubt::OneEdge(self.bare_edge)),
            repeat.map(Doubt::Repeats),
            self.colour.filter(|share| *share >= COLOUR_SHARE).map(Doubt::Colour),
        ]
        .into_iter()
        .flatten()
        .collect()
    }
}

/// Variances of Cb and Cr (BT.601, full range) over the counted pixels, added.
fn colour_variance(rgb: &[u8], template: &Template) -> f64 {
    assert_eq!(rgb.len(), 3 * template.size().area(), "a picture of another size");
    let (mut n, mut sums, mut squares) = (0.0, [0.0; 2], [0.0; 2]);
    for (index, pixel) in rgb.chunks_exact(3).enumerate() {
        if template.mask().is_some_and(|mask| mask.data()[index] == 0) {
            continue;
        }
        let [r, g, b] = [pixel[0], pixel[1], pixel[2]].map(f64::from);
        let y = 0.299 * r + 0.587 * g + 0.114 * b;
        n += 1.0;
        for (i, chroma) in [(b - y) / 1.772, (r - y) / 1.402].into_iter().enumerate() {
            sums[i] += chroma;
            squares[i] += chroma * chroma;
        }
    }
    (0..2).map(|i| squares[i] / n - (sums[i] / n) * (sums[i] / n)).sum()
}

/// A picture in which some pixels count: those have 1 and their value over the mean, the others have 0 twice.
struct Counted {
    size: Size,
    counts: Vec<f64>,
    values: Vec<f64>,
    /// Pixels of the template along one of these.
    step: usize,
}

impl Counted {
    fn of(luma: &Plane, mask: Option<&Plane>, mean: f64) -> Self {
        let counts: Vec<_> = match mask {
            Some(mask) => mask.data().iter().map(|&counts| f64::from(counts)).collect(),
            None => vec![1.0; luma.data().len()],
        };
        let values =
            luma.data().iter().zip(&counts).map(|(&v, counts)| counts * (f64::from(v) - mean)).collect();
        Self { size: luma.size(), counts, values, step: 1 }
    }

    /// Returns the NCC with the template's copy in which every pixel is the mean of its line along the
    /// direction in which it changes least: the square root of the share of variance between lines.
    ///
    /// The direction is the structure tensor's second eigenvector (J. Bigün and G. Granlund, "Optimal
    /// orientation detection of linear symmetry", 1987). Its eigenvalues alone are no score: they weigh fine
    /// details more than NCC does.
    fn bare_edge(&self) -> f64 {
        let Size { width, height } = self.size;
        let (mut xx, mut xy, mut yy) = (0.0, 0.0, 0.0);
        for y in 1..height.saturating_sub(1) {
            for x in 1..width.saturating_sub(1) {
                let at = |dx: usize, dy: usize| (y + dy - 1) * width + x + dx - 1;
                if (0..9).any(|i| self.counts[at(i % 3, i / 3)] == 0.0) {
                    continue;
                }
                let v = |dx, dy| self.values[at(dx, dy)];
                // Sobel's.
                let gx = v(2, 0) + 2.0 * v(2, 1) + v(2, 2) - v(0, 0) - 2.0 * v(0, 1) - v(0, 2);
                let gy = v(0, 2) + 2.0 * v(1, 2) + v(2, 2) - v(0, 0) - 2.0 * v(1, 0) - v(2, 0);
                xx += gx * gx;
                xy += gx * gy;
                yy += gy * gy;
            }
        }
        // Across the edge, where the gradients point.
        let angle = 0.5 * libm::atan2(2.0 * xy, xx - yy);
        let (along_x, along_y) = (libm::cos(angle), libm::sin(angle));
        // Lines of one pixel's width.
        let line = |x: usize, y: usize| libm::floor(x as f64 * along_x + y as f64 * along_y) as i64;
        let far = (width + height) as i64;
        let mut lines = vec![(0.0, 0.0); 2 * far as usize + 1];
        for (index, (&value, &counts)) in self.values.iter().zip(&self.counts).enumerate() {
            let (sum, n) = &mut lines[(line(index % width, index / width) + far) as usize];
            (*sum, *n) = (*sum + value, *n + counts);
        }
        let between: f64 = lines.iter().filter(|(_, n)| *n > 0.0).map(|(sum, n)| sum * sum / n).sum();
        let all: f64 = self.values.iter().map(|v| v * v).sum();
        // Lines of few pixels follow them by chance: n - 1 degrees of freedom share out over lines - 1.
        let count = lines.iter().filter(|(_, n)| *n > 0.0).count() as f64;
        let n: f64 = self.counts.iter().sum();
        if all <= 0.0 || n <= count {
            return 0.0;
        }
        let within = (all - between) / (n - count) * (n - 1.0);
        (1.0 - within / all).max(0.0).sqrt()
    }

    /// The picture, reduced by a whole number until it has no more than [`MOST_PIXELS`].
    fn shrunk(self) -> Self {
        let step =
            (1..=self.size.area()).find(|step| self.size.area() / (step * step) <= MOST_PIXELS).unwrap_or(1);
        if step == 1 {
            return self;
        }
        let size = Size::new((self.size.width / step).max(1), (self.size.height / step).max(1));
        let (mut counts, mut values) = (Vec::new(), Vec::new());
        for (x, y) in (0..size.area()).map(|i| (i % size.width * step, i / size.width * step)) {
            let block = (0..step * step).map(|i| (x + i % step, y + i / step));
            let (mut sum, mut n) = (0.0, 0.0);
            for (x, y) in block.filter(|(x, y)| *x < self.size.width && *y < self.size.height) {
                sum += self.values[y * self.size.width + x];
                n += self.counts[y * self.size.width + x];
            }
            let is_counted = 2.0 * n >= (step * step) as f64;
            counts.push(f64::from(u8::from(is_counted)));
            values.push(if is_counted { sum / n } else { 0.0 });
        }
        Self { size, counts, values, step }
    }

    /// Where it looks most like itself: the highest peak of NCC between two copies, over what they have in
    /// common, that is parted from the place where they lie on each other by a valley.
    fn repeat(&self) -> Option<Repeat> {
        let likeness = Likeness::of(self);
        let (w, h) = (self.size.width as i64, self.size.height as i64);
        let mut best: Option<(f64, i64, i64)> = None;
        // Each pair of copies once.
        for (dx, dy) in (0..h).flat_map(|dy| (1 - w..w).map(move |dx| (dx, dy))) {
            let is_near = dx * dx + dy * dy < 9;
            if is_near || dy == 0 && dx < 0 {
                continue;
            }
            let Some(score) = likeness.at(dx, dy).filter(|score| best.is_none_or(|best| *score > best.0))
            else {
                continue;
            };
            let around = (-1..=1).flat_map(|y| (-1..=1).map(move |x| (x, y)));
            let is_peak =
                around.clone().all(|(x, y)| likeness.at(dx + x, dy + y).is_none_or(|other| other <= score));
            // A slope that is cut off is no peak.
            let is_whole = around.clone().all(|(x, y)| likeness.at(dx + x, dy + y).is_some());
            if !(is_peak && is_whole) {
                continue;
            }
            let steps = dx.abs().max(dy.abs());
            let way = (1..steps).map(|i| {
                let share = i as f64 / steps as f64;
                (libm::round(dx as f64 * share) as i64, libm::round(dy as f64 * share) as i64)
            });
            let least = way.filter_map(|(x, y)| likeness.at(x, y)).fold(score, f64::min);
            if least <= score - LESS_BETWEEN {
                best = Some((score, dx, dy));
            }
        }
        let step = self.step as i64;
        best.map(|(score, dx, dy)| Repeat { dx: dx * step, dy: dy * step, score })
    }
}

/// NCC of a picture with itself at every shift.
struct Likeness {
    width: usize,
    height: usize,
    scores: Vec<f64>,
}

impl Likeness {
    /// All sums over the common pixels of two copies are correlations, of values, their squares and the mask;
    /// those are products of transforms (D. Padfield, "Masked object registration in the Fourier domain",
    /// 2012).
    fn of(picture: &Counted) -> Self {
        let Size { width: w, height: h } = picture.size;
        // Twice the size: shifts do not come round.
        let (width, height) = ((2 * w).next_power_of_two(), (2 * h).next_power_of_two());
        let mut planner = FftPlanner::new();
        let rows = [planner.plan_fft_forward(width), planner.plan_fft_inverse(width)];
        let columns = [planner.plan_fft_forward(height), planner.plan_fft_inverse(height)];
        let transposed = |from: &[Complex<f64>], width: usize| -> Vec<Complex<f64>> {
            let height = from.len() / width;
            (0..from.len()).map(|i| from[i % height * width + i / height]).collect()
        };
        let forward = |values: &dyn Fn(usize) -> f64| {
            let mut plane = vec![Complex::default(); width * height];
            for (y, x) in (0..h).flat_map(|y| (0..w).map(move |x| (y, x))) {
                plane[y * width + x].re = values(y * w + x);
            }
            rows[0].process(&mut plane);
            let mut plane = transposed(&plane, width);
            columns[0].process(&mut plane);
            plane
        };
        // At (dx, dy), the sum of a(x, y) * b(x + dx, y + dy).
        let correlate = |a: &[Complex<f64>], b: &[Complex<f64>]| {
            let mut plane: Vec<_> = a.iter().zip(b).map(|(a, b)| a.conj() * b).collect();
            columns[1].process(&mut plane);
            let mut plane = transposed(&plane, height);
            rows[1].process(&mut plane);
            let all = (width * height) as f64;
            plane.into_iter().map(|v| v.re / all).collect::<Vec<f64>>()
        };
        let counts = forward(&|i| picture.counts[i]);
        let values = forward(&|i| picture.values[i]);
        let squares = forward(&|i| picture.values[i] * picture.values[i]);
        let common = correlate(&counts, &counts);
        let sums = correlate(&values, &counts);
        let squares = correlate(&squares, &counts);
        let products = correlate(&values, &values);
        let (n, variance) = (common[0], squares[0] / common[0]);
        let scores = (0..width * height).map(|i| {
            // The other copy's sums are those of the opposite shift.
            let (x, y) = (i % width, i / width);
            let back = (height - y) % height * width + (width - x) % width;
            let n_here = common[i];
            if n_here < IN_COMMON * n {
                return f64::NAN;
            }
            let a = squares[i] / n_here - (sums[i] / n_here) * (sums[i] / n_here);
            let b = squares[back] / n_here - (sums[back] / n_here) * (sums[back] / n_here);
            if a.min(b) < NOT_FLAT * variance {
                return f64::NAN;
            }
            (products[i] / n_here - sums[i] * sums[back] / (n_here * n_here)) / (a * b).sqrt()
        });
        Self { width, height, scores: scores.collect() }
    }

    /// `None` where there is too little in common, or it is flat.
    fn at(&self, dx: i64, dy: i64) -> Option<f64> {
        let x = dx.rem_euclid(self.width as i64) as usize;
        let y = dy.rem_euclid(self.height as i64) as usize;
        Some(self.scores[y * self.width + x]).filter(|score| !score.is_nan())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIZE: Size = Size::new(61, 47);

    /// Returns the measures of a template with these grey values, and the doubts about it.
    fn judged(size: Size, pixel: impl Fn(f64, f64) -> f64) -> (Measures, Vec<Doubt>) {
        let pixels = (0..size.area()).map(|i| pixel((i % size.width) as f64, (i / size.width) as f64) as u8);
        let template = Template::new("t", Plane::from_vec(pixels.collect(), size), None).unwrap();
        let measures = Measures::of(&template, None);
        (measures, measures.doubts())
    }

    /// Grey values without order, from -1 to 1.
    fn noise(x: f64, y: f64) -> f64 {
        let bits = ((x as u64 * 0x9E37_79B9) ^ (y as u64 * 0x85EB_CA6B)).wrapping_mul(0x2545_F491_4F6C_DD1D);
        f64::from((bits >> 40) as u32 & 0xFFFF) / 32_767.5 - 1.0
    }

    #[test]
    fn an_edge_in_any_direction_is_an_edge() {
        for degrees in [0.0, 17.0, 45.0, 90.0, 120.0, 163.0] {
            let radians = f64::to_radians(degrees);
            let (sin, cos) = (libm::sin(radians), libm::cos(radians));
            let (measures, doubts) = judged(SIZE, |x, y| {
                let side = (x - 30.0) * cos + (y - 23.0) * sin;
                120.0 + 50.0 * libm::tanh(side) + 4.0 * noise(x, y)
            });
            assert!(measures.bare_edge > 0.97, "{degrees} degrees: {measures:?}");
            assert!(matches!(doubts[..], [Doubt::OneEdge(_)]), "{degrees} degrees: {doubts:?}");
        }
    }

    #[test]
    fn a_corner_a_disc_and_noise_are_fit_to_be_searched_for() {
        let corner = judged(SIZE, |x, y| if x > 30.0 && y > 20.0 { 200.0 } else { 90.0 + 5.0 * noise(x, y) });
        let disc = judged(SIZE, |x, y| {
            let inside = libm::hypot(x - 30.0, y - 23.0) < 15.0;
            if inside { 230.0 } else { 16.0 }
        });
        let texture = judged(SIZE, |x, y| 128.0 + 80.0 * noise(x, y));
        for (name, (measures, doubts)) in [("corner", corner), ("disc", disc), ("texture", texture)] {
            assert!(doubts.is_empty(), "{name}: {doubts:?} of {measures:?}");
        }
    }

    #[test]
    fn what_repeats_says_how_far_it_is_to_the_next() {
        let wave = |v: f64, period: f64| libm::sin(v * 2.0 * std::f64::consts::PI / period);
        let (measures, doubts) = judged(SIZE, |x, y| 128.0 + 50.0 * wave(x, 13.0) + 5.0 * noise(x, y));
        let repeat = measures.repeat.unwrap();
        assert!(repeat.score > 0.95 && repeat.dx.abs() == 13, "{repeat:?}");
        assert!(doubts.iter().any(|doubt| matches!(doubt, Doubt::Repeats(_))), "{doubts:?}");
        // Tiles, in a template that is made smaller before it is looked at.
        let (measures, _) = judged(Size::new(720, 510), |x, y| {
            let tile = noise(libm::floor(x / 10.0) % 15.0, libm::floor(y / 10.0) % 17.0);
            128.0 + 90.0 * tile
        });
        let repeat = measures.repeat.unwrap();
        assert!(repeat.score > 0.95 && repeat.dx % 150 == 0 && repeat.dy % 170 == 0, "{repeat:?}");
    }

    #[test]
    fn likeness_is_ncc_of_what_two_copies_have_in_common() {
        let size = Size::new(13, 11);
        let pixels: Vec<u8> = (0..size.area())
            .map(|i| (128.0 + 90.0 * noise((i % 13) as f64, (i / 13) as f64)) as u8)
            .collect();
        let mask: Vec<u8> = (0..size.area()).map(|i| u8::from(i % 7 != 0)).collect();
        let (luma, mask) = (Plane::from_vec(pixels, size), Plane::from_vec(mask, size));
        let likeness = Likeness::of(&Counted::of(&luma, Some(&mask), 120.0));
        for (dx, dy) in [(0, 0), (1, 0), (-3, 2), (2, 3), (4, -1)] {
            let mut pairs = Vec::new();
            for (x, y) in (0..11_i64).flat_map(|y| (0..13_i64).map(move |x| (x, y))) {
                let (to_x, to_y) = (x + dx, y + dy);
                if !(0..13).contains(&to_x) || !(0..11).contains(&to_y) {
                    continue;
                }
                let (a, b) = ((y * 13 + x) as usize, (to_y * 13 + to_x) as usize);
                if mask.data()[a] == 1 && mask.data()[b] == 1 {
                    pairs.push((f64::from(luma.data()[a]), f64::from(luma.data()[b])));
                }
            }
            let n = pairs.len() as f64;
            let mean = |f: fn(&(f64, f64)) -> f64| pairs.iter().map(f).sum::<f64>() / n;
            let (a, b) = (mean(|p| p.0), mean(|p| p.1));
            let product = mean(|p| p.0 * p.1) - a * b;
            let expected = product / ((mean(|p| p.0 * p.0) - a * a) * (mean(|p| p.1 * p.1) - b * b)).sqrt();
            let found = likeness.at(dx, dy).unwrap();
            // Sums of 143 products of numbers below 256 in f64.
            assert!((found - expected).abs() < 1e-9, "{dx},{dy}: {found} for {expected}");
        }
        assert_eq!(likeness.at(12, 10), None, "they have too little in common");
    }

    #[test]
    fn few_pixels_and_little_contrast_are_told() {
        let (_, doubts) = judged(Size::new(7, 5), |x, y| 128.0 + 90.0 * noise(x, y));
        assert!(doubts.contains(&Doubt::Few(35)), "{doubts:?}");
        let (_, doubts) = judged(SIZE, |x, y| 128.0 + 4.0 * noise(x, y));
        assert!(matches!(doubts[..], [Doubt::Faint(_)]), "{doubts:?}");
    }

    #[test]
    fn colours_that_grey_does_not_see_are_told_and_others_are_not() {
        // Red and green of one luma, over a texture of luma.
        let colour = |share: f64, x: f64, y: f64| {
            let v = 110.0 + 30.0 * noise(x, y);
            let side = if x < 30.0 { share } else { -share };
            [v + 100.0 * side, v - 51.0 * side, v].map(|v| v as u8)
        };
        for (share, is_told) in [(1.0, true), (0.1, false)] {
            let places = || (0..SIZE.area()).map(|i| ((i % SIZE.width) as f64, (i / SIZE.width) as f64));
            let rgb: Vec<u8> = places().flat_map(|(x, y)| colour(share, x, y)).collect();
            let luma = places().map(|(x, y)| (110.0 + 30.0 * noise(x, y)) as u8).collect();
            let template = Template::new("t", Plane::from_vec(luma, SIZE), None).unwrap();
            let doubts = Measures::of(&template, Some(&rgb)).doubts();
            assert_eq!(doubts.iter().any(|doubt| matches!(doubt, Doubt::Colour(_))), is_told, "{doubts:?}");
        }
    }

    #[test]
    fn templates_of_any_shape_are_measured() {
        for size in [Size::new(2, 1), Size::new(1, 2), Size::new(2, 2), Size::new(1, 300), Size::new(300, 1)]
        {
            let (measures, doubts) = judged(size, |x, y| 128.0 + 90.0 * noise(x, y + 3.0));
            assert!(measures.bare_edge.is_finite() && measures.deviation.is_finite());
            assert!(!doubts.is_empty() || size.area() > 150, "{size}: {measures:?}");
        }
    }
}
