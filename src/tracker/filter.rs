//! A correlation filter over many features, confined to the box, that remembers.
//!
//! F. Li et al., "Learning Spatial-Temporal Regularized Correlation Filters for Visual Tracking", 2018 (STRCF): the filter g
//! minimises `|y - sum over channels of g * x|^2 + |w h|^2 + m |g - g_before|^2` subject to g = h, where y is 1 at the target and
//! falls off around it and w is large outside the box; solved by a few rounds of ADMM, each exact for every frequency by the
//! Sherman-Morrison formula. Here g is drawn not only to the last filter but also to the first one, the anchor, which never
//! changes: what was learnt by mistake is forgotten, what was shown in the first frame is not.

use super::fft::{Fft, GRID, HALF, Spectrum};

/// Channels of a cell.
pub(super) const CHANNELS: usize = 32;

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
    label: Spectrum,
    /// Mean power of the first sample's spectrum: the unit of all weights.
    power: f32,
    /// Response to the last sample that was learnt, at its own place.
    top: f32,
}

/// Room to learn in, and the transforms; shared by all targets.
pub(super) struct Solver {
    fft: Fft,
    fft_of_one: Fft,
    sample: Spectrum,
    confined: Spectrum,
    multiplier: Spectrum,
    product: Spectrum,
    /// A spectrum of two channels, of which one is used.
    response: Spectrum,
    responses: Vec<f32>,
    cells: Vec<f32>,
}

impl Solver {
    pub(super) fn new() -> Self {
        let spectrum = || Spectrum::zero(CHANNELS);
        Self {
            fft: Fft::new(CHANNELS),
            fft_of_one: Fft::new(2),
            sample: spectrum(),
            confined: spectrum(),
            multiplier: spectrum(),
            product: spectrum(),
            response: Spectrum::zero(2),
            responses: vec![0.0; GRID * GRID * 2],
            cells: vec![0.0; GRID * GRID * CHANNELS],
        }
    }
}

impl Filter {
    /// Learns a sample with a box of `width` x `height` cells in its middle.
    pub(super) fn new(solver: &mut Solver, features: &[f32], width: f64, height: f64) -> Self {
        let sigma = LABEL_SIGMA * (width * height).sqrt();
        let mut label = vec![0.0; GRID * GRID * 2];
        let mut outside = vec![0.0; GRID * GRID];
        for y in 0..GRID {
            for x in 0..GRID {
                let (dx, dy) = (displacement(x), displacement(y));
                let bell = libm::exp(-0.5 * (dx * dx + dy * dy) / (sigma * sigma));
                label[(y * GRID + x) * 2] = bell as f32;
                let from_middle = |index: usize| (index as f64 + 0.5 - GRID as f64 / 2.0).abs() * 2.0;
                let is_inside = from_middle(x) <= width && from_middle(y) <= height;
                outside[y * GRID + x] = if is_inside { 0.0 } else { OUTSIDE };
            }
        }
        let mut spectrum = Spectrum::zero(2);
        solver.fft_of_one.forward(&label, &mut spectrum);
        let first = |v: &[f32]| v.chunks_exact(2).map(|pair| pair[0]).collect();
        let label = Spectrum { re: first(&spectrum.re), im: first(&spectrum.im) };
        let zero = || Spectrum::zero(CHANNELS);
        let mut filter = Self { latest: zero(), anchor: zero(), outside, label, power: 1.0, top: 1.0 };
        solver.fft.forward(features, &mut solver.sample);
        let squares = solver.sample.re.iter().zip(&solver.sample.im).map(|(re, im)| re * re + im * im);
        filter.power = squares.sum::<f32>() / (GRID * HALF) as f32;
        filter.solve(solver, (0.0, 0.0), FIRST_ROUNDS);
        filter.anchor.clone_from(&filter.latest);
        filter
    }

    /// Learns one more sample.
    pub(super) fn learn(&mut self, solver: &mut Solver, features: &[f32]) {
        solver.fft.forward(features, &mut solver.sample);
        self.solve(solver, (MEMORY, ANCHOR), ROUNDS);
    }

    /// Response to a sample at every displacement of the target from its middle, negative ones at the grid's end; about 1
    /// where the target is as it was learnt.
    pub(super) fn respond(&self, solver: &mut Solver, features: &[f32], responses: &mut Vec<f32>) {
        solver.fft.forward(features, &mut solver.sample);
        self.response(solver);
        responses.clear();
        responses.extend(solver.responses.chunks_exact(2).map(|pair| pair[0] / self.top));
    }

    fn response(&self, solver: &mut Solver) {
        for k in 0..GRID * HALF {
            let (re, im) = product(channels(&self.latest, k), channels(&solver.sample, k));
            (solver.response.re[2 * k], solver.response.im[2 * k]) = (re, im);
        }
        solver.fft_of_one.inverse(&solver.response, &mut solver.responses);
    }

    fn solve(&mut self, solver: &mut Solver, (memory, anchor): (f32, f32), rounds: usize) {
        for spectrum in [&mut solver.confined, &mut solver.multiplier] {
            spectrum.re.fill(0.0);
            spectrum.im.fill(0.0);
        }
        // What the filter is drawn to, made once: the last filter is overwritten below.
        let drawn = |last: &[f32], first: &[f32], out: &mut [f32]| {
            for ((out, last), first) in out.iter_mut().zip(last).zip(first) {
                *out = memory * last + anchor * first;
            }
        };
        let mut goal = std::mem::take(&mut solver.product);
        drawn(&self.latest.re, &self.anchor.re, &mut goal.re);
        drawn(&self.latest.im, &self.anchor.im, &mut goal.im);
        let mut penalty = 1.0;
        for _ in 0..rounds {
            self.fit(solver, &goal, penalty, penalty + memory + anchor);
            self.confine(solver, penalty);
            penalty *= GROWTH;
        }
        solver.product = goal;
        self.response(solver);
        self.top = solver.responses[0];
    }

    /// g for the h and the multiplier at hand.
    fn fit(&mut self, solver: &Solver, goal: &Spectrum, penalty: f32, total: f32) {
        let weight = self.power * total;
        for k in 0..GRID * HALF {
            let (xr, xi) = channels(&solver.sample, k);
            let ((hr, hi), (lr, li)) = (channels(&solver.confined, k), channels(&solver.multiplier, k));
            let (pr, pi) = channels(goal, k);
            // What g would be without the sample.
            let (mut vr, mut vi) = ([0.0; CHANNELS], [0.0; CHANNELS]);
            for c in 0..CHANNELS {
                vr[c] = (penalty * hr[c] - lr[c] + pr[c]) / total;
                vi[c] = (penalty * hi[c] - li[c] + pi[c]) / total;
            }
            let (power, _) = product((xr, xi), (xr, xi));
            let (sr, si) = product((xr, xi), (&vr, &vi));
            // A response is the sum of conj(g) x, so the label comes in conjugated.
            let (yr, yi) = (self.label.re[k], -self.label.im[k]);
            let (cr, ci) = ((yr - sr) / (power + weight), (yi - si) / (power + weight));
            let at = k * CHANNELS;
            let (gr, gi) = (&mut self.latest.re[at..][..CHANNELS], &mut self.latest.im[at..][..CHANNELS]);
            for c in 0..CHANNELS {
                gr[c] = vr[c] + cr * xr[c] - ci * xi[c];
                gi[c] = vi[c] + cr * xi[c] + ci * xr[c];
            }
        }
    }

    /// h for the g at hand, confined to the box, and the multiplier that draws the two together.
    fn confine(&self, solver: &mut Solver, penalty: f32) {
        let Solver { fft, confined, multiplier, cells, .. } = solver;
        let sum = |h: &mut [f32], g: &[f32], l: &[f32]| {
            for ((h, g), l) in h.iter_mut().zip(g).zip(l) {
                *h = penalty * g + l;
            }
        };
        sum(&mut confined.re, &self.latest.re, &multiplier.re);
        sum(&mut confined.im, &self.latest.im, &multiplier.im);
        fft.inverse(confined, cells);
        for (cell, outside) in cells.chunks_exact_mut(CHANNELS).zip(&self.outside) {
            let share = 1.0 / (outside + penalty);
            for value in cell {
                *value *= share;
            }
        }
        fft.forward(cells, confined);
        let draw = |l: &mut [f32], g: &[f32], h: &[f32]| {
            for ((l, g), h) in l.iter_mut().zip(g).zip(h) {
                *l += penalty * (g - h);
            }
        };
        draw(&mut multiplier.re, &self.latest.re, &confined.re);
        draw(&mut multiplier.im, &self.latest.im, &confined.im);
    }
}

/// What a place in the grid of responses means, in cells.
pub(super) fn displacement(index: usize) -> f64 {
    if index >= GRID / 2 { index as f64 - GRID as f64 } else { index as f64 }
}

type Channels<'a> = (&'a [f32], &'a [f32]);

fn channels(spectrum: &Spectrum, k: usize) -> Channels<'_> {
    (&spectrum.re[k * CHANNELS..][..CHANNELS], &spectrum.im[k * CHANNELS..][..CHANNELS])
}

/// Sum of conj(a) b over the channels, in eight lanes.
fn product((ar, ai): Channels<'_>, (br, bi): Channels<'_>) -> (f32, f32) {
    let (mut re, mut im) = ([0.0; 8], [0.0; 8]);
    let a = ar.chunks_exact(8).zip(ai.chunks_exact(8));
    let b = br.chunks_exact(8).zip(bi.chunks_exact(8));
    for ((ar, ai), (br, bi)) in a.zip(b) {
        for lane in 0..8 {
            re[lane] += ar[lane] * br[lane] + ai[lane] * bi[lane];
            im[lane] += ar[lane] * bi[lane] - ai[lane] * br[lane];
        }
    }
    (sum(re), sum(im))
}

/// The sum of eight lanes, always in this order.
pub(super) fn sum(v: [f32; 8]) -> f32 {
    ((v[0] + v[4]) + (v[1] + v[5])) + ((v[2] + v[6]) + (v[3] + v[7]))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A blob of different channels about a cell.
    fn features(cx: i32, cy: i32) -> Vec<f32> {
        let mut grid = vec![0.0; GRID * GRID * CHANNELS];
        for (index, value) in grid.iter_mut().enumerate() {
            let (cell, channel) = (index / CHANNELS, index % CHANNELS);
            let (dx, dy) = ((cell % GRID) as i32 - cx, (cell / GRID) as i32 - cy);
            if dx.abs() < 4 && dy.abs() < 4 {
                *value = ((dx * 31 + dy * 17 + channel as i32 * 7).rem_euclid(13)) as f32 / 13.0;
            }
        }
        grid
    }

    #[test]
    fn a_filter_finds_what_it_learnt_where_it_moved_to() {
        let mut solver = Solver::new();
        let mut filter = Filter::new(&mut solver, &features(16, 16), 8.0, 8.0);
        filter.learn(&mut solver, &features(16, 16));
        let mut responses = Vec::new();
        filter.respond(&mut solver, &features(16, 16), &mut responses);
        assert!((responses[0] - 1.0).abs() < 1e-4, "{}", responses[0]);
        filter.respond(&mut solver, &features(19, 14), &mut responses);
        let best = (0..responses.len()).max_by(|&a, &b| responses[a].total_cmp(&responses[b])).unwrap();
        assert_eq!((displacement(best % GRID), displacement(best / GRID)), (3.0, -2.0));
    }
}
