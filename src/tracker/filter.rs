//! A correlation filter over many features, confined to the box, that remembers.
//!
//! F. Li et al., "Learning Spatial-Temporal Regularized Correlation Filters for Visual Tracking", 2018 (STRCF): the filter g
//! minimises `|y - sum over channels of g * x|^2 + |w h|^2 + m |g - g_before|^2` subject to g = h, where y is 1 at the target and
//! falls off around it and w is large outside the box; solved by a few rounds of ADMM, each exact for every frequency by the
//! Sherman-Morrison formula. Here g is drawn not only to the last filter but also to the first one, the anchor, which never
//! changes: what was learnt by mistake is forgotten, what was shown in the first frame is not.

use super::fft::{CHANNELS, Fft, GRID, Grid, HALF, Spectrum};
use crate::simd::Level;

/// Width of the label's bell, in units of the root of the box's area. 1/16 and 0.09 score alike within noise.
const LABEL_SIGMA: f64 = 0.09;

/// How strongly the filter is drawn to the last one, and to the first, relative to the power of a sample.
const MEMORY: f32 = 40.0;
const ANCHOR: f32 = 20.0;

/// Weight of what the filter holds outside the box.
const OUTSIDE: f32 = 100.0;

/// ADMM: rounds for the first filter and for each that follows, and by how much the weight of g = h grows each round. STRCF's.
const FIRST_ROUNDS: usize = 6;
const ROUNDS: usize = 2;
const GROWTH: f32 = 10.0;

/// A target's filter.
#[derive(Clone)]
pub(super) struct Filter {
    latest: Spectrum,
    anchor: Spectrum,
    /// Weight of each cell: 0 in the box.
    outside: Vec<f32>,
    /// Half spectrum of the label.
    label: (Vec<f32>, Vec<f32>),
    /// Mean power of the first sample's spectrum: the unit of all weights.
    power: f32,
    /// Response to the last sample that was learnt, at its own place.
    top: f32,
}

/// Room to learn in, and the transforms; shared by all targets.
pub(super) struct Solver {
    level: Level,
    fft: Fft,
    /// What was responded to last.
    sample: Spectrum,
    confined: Spectrum,
    multiplier: Spectrum,
    goal: Spectrum,
    /// The half spectrum of responses.
    response: (Vec<f32>, Vec<f32>),
    weights: Vec<f32>,
}

impl Solver {
    pub(super) fn new() -> Self {
        Self {
            level: Level::best(),
            fft: Fft::new(),
            sample: Spectrum::zero(),
            confined: Spectrum::zero(),
            multiplier: Spectrum::zero(),
            goal: Spectrum::zero(),
            response: (vec![0.0; GRID * HALF], vec![0.0; GRID * HALF]),
            weights: vec![0.0; GRID * GRID],
        }
    }

    /// Moves what lies (`x`, `y`) cells from the middle of the sample to its middle, around the edges.
    fn shift(&mut self, x: f64, y: f64) {
        let turn = |index: usize, distance: f64| {
            let angle = 2.0 * std::f64::consts::PI * displacement(index) * distance / GRID as f64;
            // The highest frequency is its own negative: only what is real can be turned by both.
            let sin = if index == GRID / 2 { 0.0 } else { libm::sin(angle) };
            (libm::cos(angle) as f32, sin as f32)
        };
        let columns: [_; HALF] = std::array::from_fn(|index| turn(index, x));
        let rows: [_; GRID] = std::array::from_fn(|index| turn(index, y));
        let Self { level, sample, .. } = self;
        level.run(
            #[inline(always)]
            || {
                for (k, (re, im)) in sample.re.iter_mut().zip(&mut sample.im).enumerate() {
                    let ((ar, ai), (br, bi)) = (rows[k / HALF], columns[k % HALF]);
                    let (tr, ti) = (ar * br - ai * bi, ar * bi + ai * br);
                    for c in 0..CHANNELS {
                        (re[c], im[c]) = (re[c] * tr - im[c] * ti, re[c] * ti + im[c] * tr);
                    }
                }
            },
        );
    }
}

impl Filter {
    /// Learns a sample with a box of `width` x `height` cells in its middle.
    pub(super) fn new(solver: &mut Solver, features: &Grid, width: f64, height: f64) -> Self {
        let sigma = LABEL_SIGMA * (width * height).sqrt();
        let mut label = vec![[0.0; CHANNELS]; GRID * GRID];
        let mut outside = vec![0.0; GRID * GRID];
        for y in 0..GRID {
            for x in 0..GRID {
                let (dx, dy) = (displacement(x), displacement(y));
                let bell = libm::exp(-0.5 * (dx * dx + dy * dy) / (sigma * sigma));
                label[y * GRID + x][0] = bell as f32;
                let from_middle = |index: usize| (index as f64 + 0.5 - GRID as f64 / 2.0).abs() * 2.0;
                let is_inside = from_middle(x) <= width && from_middle(y) <= height;
                outside[y * GRID + x] = if is_inside { 0.0 } else { OUTSIDE };
            }
        }
        solver.fft.forward(&label, &mut solver.sample);
        let first = |channels: &[[f32; CHANNELS]]| channels.iter().map(|channels| channels[0]).collect();
        let label = (first(&solver.sample.re), first(&solver.sample.im));
        let zero = Spectrum::zero;
        let mut filter = Self { latest: zero(), anchor: zero(), outside, label, power: 1.0, top: 1.0 };
        solver.fft.forward(features, &mut solver.sample);
        let values = solver.sample.re.iter().flatten().zip(solver.sample.im.iter().flatten());
        filter.power = values.map(|(re, im)| re * re + im * im).sum::<f32>() / (GRID * HALF) as f32;
        filter.solve(solver, (0.0, 0.0), FIRST_ROUNDS);
        filter.anchor.clone_from(&filter.latest);
        filter
    }

    /// Learns the sample that was responded to last, in which the target lies (`x`, `y`) cells from the middle.
    pub(super) fn learn(&mut self, solver: &mut Solver, x: f64, y: f64) {
        solver.shift(x, y);
        self.solve(solver, (MEMORY, ANCHOR), ROUNDS);
    }

    /// Response to a sample at every displacement of the target from its middle, negative ones at the grid's end; about 1
    /// where the target is as it was learnt.
    pub(super) fn respond(&self, solver: &mut Solver, features: &Grid, responses: &mut Vec<f32>) {
        solver.fft.forward(features, &mut solver.sample);
        let Solver { level, fft, sample, response: (re, im), .. } = solver;
        level.run(
            #[inline(always)]
            || {
                let share = 1.0 / self.top;
                for (k, (re, im)) in re.iter_mut().zip(im.iter_mut()).enumerate() {
                    let (r, i) =
                        product((&self.latest.re[k], &self.latest.im[k]), (&sample.re[k], &sample.im[k]));
                    (*re, *im) = (r * share, i * share);
                }
            },
        );
        fft.inverse(re, im, responses);
    }

    fn solve(&mut self, solver: &mut Solver, (memory, anchor): (f32, f32), rounds: usize) {
        let level = solver.level;
        let zero = |spectrum: &mut Spectrum| {
            spectrum.re.fill([0.0; CHANNELS]);
            spectrum.im.fill([0.0; CHANNELS]);
        };
        zero(&mut solver.confined);
        zero(&mut solver.multiplier);
        // What the filter is drawn to, made once: the last filter is overwritten below.
        let drawn = |last: &Grid, first: &Grid, out: &mut Grid| {
            for ((out, last), first) in out.iter_mut().zip(last).zip(first) {
                for c in 0..CHANNELS {
                    out[c] = memory * last[c] + anchor * first[c];
                }
            }
        };
        drawn(&self.latest.re, &self.anchor.re, &mut solver.goal.re);
        drawn(&self.latest.im, &self.anchor.im, &mut solver.goal.im);
        let mut penalty = 1.0;
        for round in 0..rounds {
            if round > 0 {
                self.confine(solver, penalty);
                penalty *= GROWTH;
            }
            level.run(
                #[inline(always)]
                || self.fit(solver, penalty, penalty + memory + anchor),
            );
        }
        level.run(
            #[inline(always)]
            || self.top = self.response_at_middle(&solver.sample),
        );
    }

    /// Response where the sample has its middle: the mean of the whole spectrum, of which half is kept.
    #[inline(always)]
    fn response_at_middle(&self, sample: &Spectrum) -> f32 {
        let mut lanes = [0.0; CHANNELS];
        for k in 0..GRID * HALF {
            let twice = if (1..HALF - 1).contains(&(k % HALF)) { 2.0 } else { 1.0 };
            let (ar, ai, br, bi) = (&self.latest.re[k], &self.latest.im[k], &sample.re[k], &sample.im[k]);
            for c in 0..CHANNELS {
                lanes[c] += twice * (ar[c] * br[c] + ai[c] * bi[c]);
            }
        }
        sum(&lanes) / (GRID * GRID) as f32
    }

    /// g for the h and the multiplier at hand.
    #[inline(always)]
    fn fit(&mut self, solver: &Solver, penalty: f32, total: f32) {
        let weight = self.power * total;
        let share = 1.0 / total;
        let Solver { sample, confined, multiplier, goal, .. } = solver;
        for k in 0..GRID * HALF {
            let (xr, xi) = (&sample.re[k], &sample.im[k]);
            // What g would be without the sample.
            let without = |h: &[f32; CHANNELS], l: &[f32; CHANNELS], goal: &[f32; CHANNELS]| {
                let mut v = [0.0; CHANNELS];
                for c in 0..CHANNELS {
                    v[c] = (penalty * h[c] - l[c] + goal[c]) * share;
                }
                v
            };
            let vr = without(&confined.re[k], &multiplier.re[k], &goal.re[k]);
            let vi = without(&confined.im[k], &multiplier.im[k], &goal.im[k]);
            let (power, _) = product((xr, xi), (xr, xi));
            let (sr, si) = product((xr, xi), (&vr, &vi));
            // A response is the sum of conj(g) x, so the label comes in conjugated.
            let (yr, yi) = (self.label.0[k], -self.label.1[k]);
            let (cr, ci) = ((yr - sr) / (power + weight), (yi - si) / (power + weight));
            let (gr, gi) = (&mut self.latest.re[k], &mut self.latest.im[k]);
            for c in 0..CHANNELS {
                gr[c] = vr[c] + cr * xr[c] - ci * xi[c];
                gi[c] = vi[c] + cr * xi[c] + ci * xr[c];
            }
        }
    }

    /// h for the g at hand, confined to the box, and the multiplier that draws the two together.
    fn confine(&self, solver: &mut Solver, penalty: f32) {
        let Solver { level, fft, confined, multiplier, weights, .. } = solver;
        let sum = |h: &mut Grid, g: &Grid, l: &Grid| {
            for ((h, g), l) in h.iter_mut().zip(g).zip(l) {
                for c in 0..CHANNELS {
                    h[c] = penalty * g[c] + l[c];
                }
            }
        };
        let draw = |l: &mut Grid, g: &Grid, h: &Grid| {
            for ((l, g), h) in l.iter_mut().zip(g).zip(h) {
                for c in 0..CHANNELS {
                    l[c] += penalty * (g[c] - h[c]);
                }
            }
        };
        level.run(
            #[inline(always)]
            || {
                sum(&mut confined.re, &self.latest.re, &multiplier.re);
                sum(&mut confined.im, &self.latest.im, &multiplier.im);
            },
        );
        for (weight, outside) in weights.iter_mut().zip(&self.outside) {
            *weight = 1.0 / (outside + penalty);
        }
        fft.weigh(confined, weights);
        level.run(
            #[inline(always)]
            || {
                draw(&mut multiplier.re, &self.latest.re, &confined.re);
                draw(&mut multiplier.im, &self.latest.im, &confined.im);
            },
        );
    }
}

/// What a place in the grid of responses means, in cells.
pub(super) fn displacement(index: usize) -> f64 {
    if index >= GRID / 2 { index as f64 - GRID as f64 } else { index as f64 }
}

type Channels<'a> = (&'a [f32; CHANNELS], &'a [f32; CHANNELS]);

/// Sum of conj(a) b over the channels.
#[inline(always)]
fn product((ar, ai): Channels<'_>, (br, bi): Channels<'_>) -> (f32, f32) {
    let (mut re, mut im) = ([0.0; CHANNELS], [0.0; CHANNELS]);
    for c in 0..CHANNELS {
        re[c] = ar[c] * br[c] + ai[c] * bi[c];
        im[c] = ar[c] * bi[c] - ai[c] * br[c];
    }
    (sum(&re), sum(&im))
}

/// The sum of some lanes, a power of two, in halves: always in this order.
#[inline(always)]
pub(super) fn sum<const LANES: usize>(lanes: &[f32; LANES]) -> f32 {
    let mut lanes = *lanes;
    let mut half = LANES / 2;
    while half > 0 {
        for i in 0..half {
            lanes[i] += lanes[i + half];
        }
        half /= 2;
    }
    lanes[0]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A blob of different channels about a cell.
    fn features(cx: i32, cy: i32) -> Vec<[f32; CHANNELS]> {
        let value = |cell: usize, channel: usize| {
            let (dx, dy) = ((cell % GRID) as i32 - cx, (cell / GRID) as i32 - cy);
            let value = ((dx * 31 + dy * 17 + channel as i32 * 7).rem_euclid(13)) as f32 / 13.0;
            if dx.abs() < 4 && dy.abs() < 4 { value } else { 0.0 }
        };
        (0..GRID * GRID).map(|cell| std::array::from_fn(|channel| value(cell, channel))).collect()
    }

    /// The displacement of the best response, and the response there.
    fn best(responses: &[f32]) -> (f64, f64, f32) {
        let best = (0..responses.len()).max_by(|&a, &b| responses[a].total_cmp(&responses[b])).unwrap();
        (displacement(best % GRID), displacement(best / GRID), responses[best])
    }

    #[test]
    fn a_filter_finds_what_it_learnt_where_it_moved_to() {
        let mut solver = Solver::new();
        let filter = Filter::new(&mut solver, &features(16, 16), 8.0, 8.0);
        let mut responses = Vec::new();
        filter.respond(&mut solver, &features(16, 16), &mut responses);
        assert!((responses[0] - 1.0).abs() < 1e-4, "{}", responses[0]);
        filter.respond(&mut solver, &features(19, 14), &mut responses);
        let (x, y, _) = best(&responses);
        assert_eq!((x, y), (3.0, -2.0));
    }

    #[test]
    fn a_sample_is_learnt_from_where_its_target_lies() {
        let mut solver = Solver::new();
        let mut filter = Filter::new(&mut solver, &features(16, 16), 8.0, 8.0);
        let mut responses = Vec::new();
        filter.respond(&mut solver, &features(13, 20), &mut responses);
        filter.learn(&mut solver, -3.0, 4.0);
        filter.respond(&mut solver, &features(16, 16), &mut responses);
        let (x, y, peak) = best(&responses);
        assert_eq!((x, y), (0.0, 0.0));
        assert!((peak - 1.0).abs() < 1e-3, "{peak}");
    }

    #[test]
    fn lanes_are_summed() {
        assert_eq!(sum(&[1.0, 2.0, 4.0, 8.0]), 15.0);
    }
}
