//! The box's size and aspect: a ridge regression that tells the box as it should be from boxes a little off.
//!
//! M. Danelljan et al., "Discriminative Scale Space Tracking", 2017, learns scale from the target seen in
//! other sizes. Here the samples are other sizes and other aspects, and the regression is solved as it
//! stands, among the samples themselves.

use super::filter::sum;
use super::hog::{CELL, HOG, Hog, LANES};
use super::sample::{Sampler, Window};
use crate::frame::Frame;
use crate::simd::Level;

/// Cells on a side of a sample: the box, whatever its shape, as 32x32 pixels.
const CELLS: usize = 8;
const LENGTH: usize = CELLS * CELLS * HOG;

/// Boxes whose pixels stand beside each other.
const TOGETHER: usize = LANES / CELLS;

/// Steps of size to each side, and of aspect. 2 % is what changes from frame to frame at video rate; 4 steps
/// catch up.
const SIZES: i32 = 4;
const ASPECTS: i32 = 3;
const STEP: f64 = 1.02;
const SAMPLES: usize = 1 + 2 * (SIZES + ASPECTS) as usize;

/// Width of the label's bell, in steps: the nearest neighbours are nearly right.
const LABEL_SIGMA: f64 = 1.5;

/// Ridge, relative to the mean power of the samples. A tenth and a thirtieth score alike; a hundredth is
/// worse.
const RIDGE: f64 = 0.05;

/// How much of a new regression is taken in, and what share the first one keeps for ever.
const RATE: f32 = 0.05;
const ANCHOR: f32 = 0.15;

/// How much of what is found is believed.
const SIZE_GAIN: f64 = 0.8;
const ASPECT_GAIN: f64 = 0.6;

/// Share by which size and aspect go back to those of the first box, every frame. The regression confirms
/// what it was taught, errors included, so without evidence the box would walk at random. A target twice as
/// large is held back by 0.4 %. Things that turn change their aspect for a while; with 3 % and 6 % some boxes
/// grew three times as high as wide and never came back.
const SIZE_DECAY: f64 = 0.02;
const ASPECT_DECAY: f64 = 0.2;

/// A box in another size or aspect: factors of width and height.
#[derive(Clone, Copy)]
struct Variant {
    size: i32,
    aspect: i32,
}

impl Variant {
    fn all() -> impl Iterator<Item = Self> {
        let sizes = (-SIZES..=SIZES).filter(|&size| size != 0).map(|size| Self { size, aspect: 0 });
        let aspects = (-ASPECTS..=ASPECTS).filter(|&a| a != 0).map(|aspect| Self { size: 0, aspect });
        std::iter::once(Self { size: 0, aspect: 0 }).chain(sizes).chain(aspects)
    }
}

/// What a box looks like: the features of its pixels, resampled to a square.
pub(super) type Look = Vec<f32>;

/// Room to look at boxes in; one for each thread.
pub(super) struct Looker {
    sampler: Sampler,
    hog: Hog,
    /// The pixels of boxes, each [`TOGETHER`] of them beside each other.
    pixels: Vec<u8>,
    looks: Vec<Look>,
    /// The samples without their mean, and the mean.
    centred: Vec<Look>,
    mean: Look,
    /// The regression that was made last.
    weights: Look,
}

impl Looker {
    pub(super) fn new() -> Self {
        let look = || vec![0.0; LENGTH];
        Self {
            sampler: Sampler::new(),
            hog: Hog::new(),
            pixels: vec![0; SAMPLES.div_ceil(TOGETHER) * CELLS * CELL * LANES * CELL],
            looks: vec![look(); SAMPLES],
            centred: vec![look(); SAMPLES],
            mean: look(),
            weights: look(),
        }
    }

    /// What the box looks like.
    pub(super) fn look(&mut self, frame: &Frame, window: Window) -> &Look {
        self.see(frame, &[window]);
        &self.looks[0]
    }

    /// What up to [`SAMPLES`] boxes look like.
    pub(super) fn look_at(&mut self, frame: &Frame, windows: &[Window]) -> &[Look] {
        self.see(frame, windows);
        &self.looks[..windows.len()]
    }

    /// What was looked at last, or first of several.
    pub(super) fn looked(&self) -> &Look {
        &self.looks[0]
    }

    fn see(&mut self, frame: &Frame, windows: &[Window]) {
        let Self { sampler, hog, pixels, looks, .. } = self;
        sampler.squares(frame, windows, (CELLS * CELL, TOGETHER), pixels);
        let looks = looks[..windows.len()].chunks_mut(TOGETHER);
        for (looks, pixels) in looks.zip(pixels.chunks_exact(CELLS * CELL * LANES * CELL)) {
            hog.run::<CELLS>(
                pixels,
                #[inline(always)]
                |y, row| {
                    for (square, look) in looks.iter_mut().enumerate() {
                        let cells = look[y * HOG * CELLS..][..HOG * CELLS].as_chunks_mut::<CELLS>().0;
                        for (cells, lanes) in cells.iter_mut().zip(row) {
                            *cells = lanes.as_chunks().0[square];
                        }
                    }
                },
            );
        }
    }

    /// Looks at the box in every variant, itself first.
    fn see_all(&mut self, frame: &Frame, window: Window) {
        let mut windows = [window; SAMPLES];
        for (window, Variant { size, aspect }) in windows.iter_mut().zip(Variant::all()) {
            let (size, aspect) = (power(f64::from(size)), power(f64::from(aspect)));
            (window.w, window.h) = (window.w * size * aspect, window.h * size / aspect);
        }
        self.see(frame, &windows);
    }
}

/// A target's regression.
#[derive(Clone)]
pub(super) struct Shape {
    first: Look,
    recent: Look,
}

impl Shape {
    /// Learns the box.
    pub(super) fn new(looker: &mut Looker, frame: &Frame, window: Window) -> Self {
        regress(looker, frame, window);
        Self { first: looker.weights.clone(), recent: looker.weights.clone() }
    }

    /// The box in the size and aspect that look best, drawn a little towards `first`, the width and height it
    /// began with.
    pub(super) fn fit(
        &self,
        looker: &mut Looker,
        frame: &Frame,
        window: Window,
        first: (f64, f64),
    ) -> Window {
        looker.see_all(frame, window);
        let mut scores = [0.0; SAMPLES];
        Level::best().run(
            #[inline(always)]
            || {
                for (score, look) in scores.iter_mut().zip(&looker.looks) {
                    let [recent, first] = dots([&self.recent, &self.first], look);
                    *score = f64::from((1.0 - ANCHOR) * recent + ANCHOR * first);
                }
            },
        );
        let (sizes, aspects) = scores[1..].split_at(2 * SIZES as usize);
        let size = SIZE_GAIN * best(sizes, scores[0]);
        let aspect = ASPECT_GAIN * best(aspects, scores[0]);
        let (w, h) = (window.w * power(size + aspect), window.h * power(size - aspect));
        // Logarithms of size and aspect relative to the first box.
        let (wide, high) = (libm::log(w / first.0), libm::log(h / first.1));
        let size = 0.5 * (wide + high) * (1.0 - SIZE_DECAY);
        let aspect = 0.5 * (wide - high) * (1.0 - ASPECT_DECAY);
        Window { w: first.0 * libm::exp(size + aspect), h: first.1 * libm::exp(size - aspect), ..window }
    }

    /// Learns the box as it is now.
    pub(super) fn learn(&mut self, looker: &mut Looker, frame: &Frame, window: Window) {
        regress(looker, frame, window);
        for (recent, new) in self.recent.iter_mut().zip(&looker.weights) {
            *recent += RATE * (new - *recent);
        }
    }
}

fn power(steps: f64) -> f64 {
    libm::exp(steps * libm::log(STEP))
}

/// Which step scores best, between steps, out of the scores of an axis without its middle.
fn best(sides: &[f64], middle: f64) -> f64 {
    let half = sides.len() / 2;
    let at = |step: usize| match step.cmp(&half) {
        std::cmp::Ordering::Less => sides[step],
        std::cmp::Ordering::Equal => middle,
        std::cmp::Ordering::Greater => sides[step - 1],
    };
    let mut top = half;
    for step in 0..=sides.len() {
        if at(step) > at(top) {
            top = step;
        }
    }
    let vertex = if top > 0 && top < sides.len() {
        crate::backend::peaks::vertex(Some(at(top - 1)), at(top), Some(at(top + 1)))
    } else {
        0.0
    };
    top as f64 - half as f64 + vertex
}

/// Finds the weights that give 1 for the box and less for its variants.
fn regress(looker: &mut Looker, frame: &Frame, window: Window) {
    looker.see_all(frame, window);
    let Looker { looks, centred, mean, weights, .. } = looker;
    let products = Level::best().run(
        #[inline(always)]
        || {
            // Without their mean: what all samples share tells nothing.
            mean.fill(0.0);
            for look in looks.iter() {
                for (mean, value) in mean.iter_mut().zip(look) {
                    *mean += value * (1.0 / SAMPLES as f32);
                }
            }
            for (centred, look) in centred.iter_mut().zip(looks.iter()) {
                for ((centred, value), mean) in centred.iter_mut().zip(look).zip(mean.iter()) {
                    *centred = value - mean;
                }
            }
            let mut products = [[0.0; SAMPLES]; SAMPLES];
            for first in (0..SAMPLES).step_by(2) {
                // If their number is odd, the last one is its own neighbour.
                let second = (first + 1).min(SAMPLES - 1);
                for i in first..SAMPLES {
                    let pair = dots([&centred[first], &centred[second]], &centred[i]);
                    (products[i][first], products[i][second]) = pair.into();
                }
            }
            products
        },
    );
    let mut system = [[0.0; SAMPLES + 1]; SAMPLES];
    let mut trace = 0.0;
    for (i, Variant { size, aspect }) in Variant::all().enumerate() {
        for j in 0..=i {
            let product = f64::from(products[i][j]);
            (system[i][j], system[j][i]) = (product, product);
        }
        trace += system[i][i];
        let distance = f64::from(size * size + aspect * aspect);
        system[i][SAMPLES] = libm::exp(-0.5 * distance / (LABEL_SIGMA * LABEL_SIGMA));
    }
    for (i, row) in system.iter_mut().enumerate() {
        // The smallest of numbers keeps the system of a flat box solvable.
        row[i] += RIDGE * trace / SAMPLES as f64 + f64::MIN_POSITIVE;
    }
    let shares = solve(&mut system);
    weights.fill(0.0);
    Level::best().run(
        #[inline(always)]
        || {
            for (share, centred) in shares.iter().zip(centred.iter()) {
                let share = *share as f32;
                for (weight, value) in weights.iter_mut().zip(centred) {
                    *weight += share * value;
                }
            }
        },
    );
}

/// Gauss' elimination without pivoting: the matrix is symmetric and positive definite.
fn solve(system: &mut [[f64; SAMPLES + 1]; SAMPLES]) -> [f64; SAMPLES] {
    for i in 0..SAMPLES {
        let (done, rest) = system.split_at_mut(i + 1);
        let pivot = &done[i];
        for row in rest {
            let factor = row[i] / pivot[i];
            for (value, above) in row[i..].iter_mut().zip(&pivot[i..]) {
                *value -= factor * above;
            }
        }
    }
    let mut solution = [0.0; SAMPLES];
    for i in (0..SAMPLES).rev() {
        let mut value = system[i][SAMPLES];
        for j in i + 1..SAMPLES {
            value -= system[i][j] * solution[j];
        }
        solution[i] = value / system[i][i];
    }
    solution
}

/// Lanes of sums over looks, and how many numbers are taken at a time, so that the sums stay in registers
/// meanwhile.
const WIDE: usize = 32;
const AT_ONCE: usize = 8 * WIDE;
const _: () = assert!(LENGTH.is_multiple_of(AT_ONCE));

/// The products of two looks with a third, which is read once.
#[inline(always)]
fn dots([a, b]: [&[f32]; 2], c: &[f32]) -> [f32; 2] {
    let (mut of_a, mut of_b) = ([0.0; WIDE], [0.0; WIDE]);
    let pairs = a.as_chunks::<AT_ONCE>().0.iter().zip(b.as_chunks::<AT_ONCE>().0);
    for ((a, b), c) in pairs.zip(c.as_chunks::<AT_ONCE>().0) {
        for lane in 0..WIDE {
            let (mut sum_a, mut sum_b) = (of_a[lane], of_b[lane]);
            for at in (lane..AT_ONCE).step_by(WIDE) {
                sum_a += a[at] * c[at];
                sum_b += b[at] * c[at];
            }
            (of_a[lane], of_b[lane]) = (sum_a, sum_b);
        }
    }
    [sum(&of_a), sum(&of_b)]
}

/// NCC of two looks, in [-1, 1]; 0 if one is flat.
pub(super) fn similarity(a: &Look, b: &Look) -> f64 {
    let sums = Level::best().run(
        #[inline(always)]
        || {
            let zero = [0.0; WIDE];
            let (mut aa, mut bb, mut ab, mut sa, mut sb) = (zero, zero, zero, zero, zero);
            for (a, b) in a.as_chunks::<AT_ONCE>().0.iter().zip(b.as_chunks::<AT_ONCE>().0) {
                for lane in 0..WIDE {
                    let mut sums = [aa[lane], bb[lane], ab[lane], sa[lane], sb[lane]];
                    for at in (lane..AT_ONCE).step_by(WIDE) {
                        let (a, b) = (a[at], b[at]);
                        for (sum, value) in sums.iter_mut().zip([a * a, b * b, a * b, a, b]) {
                            *sum += value;
                        }
                    }
                    [aa[lane], bb[lane], ab[lane], sa[lane], sb[lane]] = sums;
                }
            }
            [sum(&aa), sum(&bb), sum(&ab), sum(&sa), sum(&sb)]
        },
    );
    let [aa, bb, ab, sa, sb] = sums.map(f64::from);
    let n = a.len() as f64;
    let spread = (aa - sa * sa / n) * (bb - sb * sb / n);
    if spread > 0.0 { ((ab - sa * sb / n) / spread.sqrt()).clamp(-1.0, 1.0) } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_system_is_solved() {
        let mut system = [[0.0; SAMPLES + 1]; SAMPLES];
        for (i, row) in system.iter_mut().enumerate() {
            for (j, value) in row[..SAMPLES].iter_mut().enumerate() {
                *value = 1.0 / (1.0 + i.abs_diff(j) as f64);
            }
            row[i] += 1.0;
            row[SAMPLES] = i as f64;
        }
        let original = system;
        let solution = solve(&mut system);
        for row in &original {
            let product: f64 = row.iter().zip(&solution).map(|(a, x)| a * x).sum();
            assert!((product - row[SAMPLES]).abs() < 1e-9, "{product} {}", row[SAMPLES]);
        }
    }

    #[test]
    fn the_best_step_lies_between_steps() {
        let score = |step: f64| -(step - 1.25) * (step - 1.25);
        let sides = [-3.0, -2.0, -1.0, 1.0, 2.0, 3.0].map(score);
        assert!((best(&sides, score(0.0)) - 1.25).abs() < 1e-9);
        assert_eq!(best(&[0.0; 6], 0.0), 0.0);
    }
}
