//! A correlation filter over many features, confined to the box, that remembers.
//!
//! F. Li et al., "Learning Spatial-Temporal Regularized Correlation Filters for Visual Tracking", 2018
//! (STRCF): the filter g minimises `|y - sum over channels of g * x|^2 + |w h|^2 + m |g - g_before|^2`
//! subject to g = h, where y is 1 at the target and falls off around it and w is large outside the box;
//! solved by a few rounds of ADMM, each exact for every frequency by the Sherman-Morrison formula. Here g is
//! drawn not only to the last filter but also to the first one, the anchor, which never changes: mistakes are
//! forgotten, the first frame is not.

use super::fft::{Fft, Grid, Pass, set_column};
use crate::frame::correlator::{
    CHANNELS, Correlator, FilterState, GRID, HALF, KEPT, Learnt, Lesson, PENALTY, PlacedFilter, Spectrum,
};
use crate::simd::Level;

pub(super) use crate::frame::correlator::Memory;

/// Width of the label's bell, in units of the root of the box's area. 1/16 and 0.09 score alike within noise.
const LABEL_SIGMA: f64 = 0.09;

/// Weight of the filter's values outside the box.
const OUTSIDE: f32 = 100.0;

/// ADMM: rounds for the first filter and for each that follows, and by how much the weight of g = h grows
/// each round. STRCF's.
const FIRST_ROUNDS: usize = 6;
const ROUNDS: usize = 2;
// The first two rounds are made in one pass.
const _: () = assert!(ROUNDS >= 2 && FIRST_ROUNDS >= 2);
const GROWTH: f32 = 10.0;

/// A target's filter.
pub(super) enum Filter {
    /// On the host.
    Host(Box<FilterState>),
    /// On the device that the pictures lie on.
    Placed(Box<dyn PlacedFilter>),
}

/// Room to learn in, and the transforms; shared by all targets.
pub(super) struct Solver {
    level: Level,
    fft: Fft,
    /// The sample of the last response, and the sum of its power over the channels.
    sample: Spectrum,
    powers: Vec<f32>,
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
            powers: vec![0.0; GRID * HALF],
            multiplier: Spectrum::zero(),
            goal: Spectrum::zero(),
            response: (vec![0.0; GRID * HALF], vec![0.0; GRID * HALF]),
            weights: vec![0.0; GRID * GRID],
        }
    }

    /// The sample of the last response.
    pub(super) fn sample(&self) -> &Spectrum {
        &self.sample
    }

    /// Takes a sample in.
    fn see(&mut self, features: &Grid) {
        let Self { fft, sample, .. } = self;
        fft.forward(
            features,
            #[inline(always)]
            |x, column| set_column(sample, x, column),
        );
    }
}

/// Moves a sample in its spectrum, around the edges: a turn for each row and column of frequencies.
struct Shift {
    rows: [(f32, f32); GRID],
    columns: [(f32, f32); HALF],
}

impl Shift {
    /// Shifts the sample by (`x`, `y`) cells, so that this place comes to its middle.
    fn new(x: f64, y: f64) -> Self {
        let turn = |index: usize, distance: f64| {
            let angle = 2.0 * std::f64::consts::PI * displacement(index) * distance / GRID as f64;
            // The highest frequency is its own negative: only real numbers can be turned by both.
            let sin = if index == GRID / 2 { 0.0 } else { libm::sin(angle) };
            (libm::cos(angle) as f32, sin as f32)
        };
        Self {
            rows: std::array::from_fn(|index| turn(index, y)),
            columns: std::array::from_fn(|index| turn(index, x)),
        }
    }

    #[inline(always)]
    fn apply(&self, (y, x): (usize, usize), (re, im): Channels<'_>) -> ([f32; CHANNELS], [f32; CHANNELS]) {
        let ((ar, ai), (br, bi)) = (self.rows[y], self.columns[x]);
        let (tr, ti) = (ar * br - ai * bi, ar * bi + ai * br);
        let (mut moved_re, mut moved_im) = ([0.0; CHANNELS], [0.0; CHANNELS]);
        for c in 0..CHANNELS {
            (moved_re[c], moved_im[c]) = (re[c] * tr - im[c] * ti, re[c] * ti + im[c] * tr);
        }
        (moved_re, moved_im)
    }
}

impl Filter {
    /// Keeps what it has learnt, to go back to: of more than [`KEPT`] states the oldest makes room.
    pub(super) fn keep(&mut self) {
        match self {
            Self::Host(state) => state.keep(),
            Self::Placed(placed) => placed.keep(),
        }
    }

    /// Goes back to the oldest state that is kept, if there is one, and forgets all of these.
    pub(super) fn go_back(&mut self) {
        match self {
            Self::Host(state) => state.go_back(),
            Self::Placed(placed) => placed.go_back(),
        }
    }

    /// The filter on a device, if it lies there.
    pub(super) fn placed(&self) -> Option<&dyn PlacedFilter> {
        match self {
            Self::Host(_) => None,
            Self::Placed(placed) => Some(&**placed),
        }
    }

    /// Moves it to a device that has room for it, or to the host.
    pub(super) fn move_to(&mut self, device: Option<&dyn Correlator>) {
        match (&*self, device) {
            (Self::Host(state), Some(device)) => {
                if let Some(placed) = device.place(state) {
                    *self = Self::Placed(placed);
                }
            }
            (Self::Placed(placed), None) => *self = Self::Host(Box::new(placed.fetch())),
            _ => {}
        }
    }
}

/// Keeps a state beside earlier ones, oldest first: of more than [`KEPT`] the oldest makes room.
pub(super) fn keep_in<T: Clone>(kept: &mut Vec<T>, state: &T) {
    if kept.len() < KEPT {
        return kept.push(state.clone());
    }
    kept.rotate_left(1);
    kept[KEPT - 1].clone_from(state);
}

/// The lesson by which a device learns a sample in which the target lies (`x`, `y`) cells from the middle.
pub(super) fn lesson(filter: &dyn PlacedFilter, (x, y): (f64, f64)) -> Lesson<'_> {
    let Shift { rows, columns } = Shift::new(x, y);
    Lesson { filter, rows, columns }
}

impl FilterState {
    /// See [`Filter::keep`].
    pub(super) fn keep(&mut self) {
        keep_in(&mut self.kept, &self.learnt);
    }

    /// See [`Filter::go_back`].
    pub(super) fn go_back(&mut self) {
        let Self { learnt, kept, .. } = self;
        if let Some(oldest) = kept.first() {
            learnt.clone_from(oldest);
        }
        kept.clear();
    }

    /// Learns a sample with a box of `width` x `height` cells in its middle.
    pub(super) fn new(
        solver: &mut Solver,
        features: &Grid,
        (width, height): (f64, f64),
        memory: Memory,
    ) -> Self {
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
        solver.see(&label);
        let first = |channels: &[[f32; CHANNELS]]| channels.iter().map(|channels| channels[0]).collect();
        let label = (first(&solver.sample.re), first(&solver.sample.im));
        let zero = Spectrum::zero;
        let learnt = Learnt { filter: zero(), top: 1.0 };
        let mut filter =
            Self { learnt, anchor: zero(), outside, label, memory, power: 1.0, kept: Vec::new() };
        solver.see(features);
        let values = solver.sample.re.iter().flatten().zip(solver.sample.im.iter().flatten());
        filter.power = values.map(|(re, im)| re * re + im * im).sum::<f32>() / (GRID * HALF) as f32;
        filter.solve(solver, None, Memory { last: 0.0, first: 0.0 }, FIRST_ROUNDS);
        filter.anchor.clone_from(&filter.learnt.filter);
        filter
    }

    /// Learns the sample that was responded to last, in which the target lies (`x`, `y`) cells from the
    /// middle.
    pub(super) fn learn(&mut self, solver: &mut Solver, x: f64, y: f64) {
        self.solve(solver, Some(&Shift::new(x, y)), self.memory, ROUNDS);
    }

    /// Learns a sample as a lesson says.
    pub(super) fn learn_lesson(&mut self, solver: &mut Solver, lesson: &Lesson<'_>, sample: &Spectrum) {
        solver.sample.clone_from(sample);
        let shift = Shift { rows: lesson.rows, columns: lesson.columns };
        self.solve(solver, Some(&shift), self.memory, ROUNDS);
    }

    /// Response to a sample at every displacement of the target from its middle, negative ones at the grid's
    /// end; about 1 where the target is as it was learnt.
    pub(super) fn respond(&self, solver: &mut Solver, features: &Grid, responses: &mut Vec<f32>) {
        let Solver { fft, sample, response: (re, im), .. } = solver;
        let latest = &self.learnt.filter;
        let share = 1.0 / self.learnt.top;
        fft.forward(
            features,
            #[inline(always)]
            |x, column| {
                set_column(sample, x, column);
                for (n, seen) in column[0].iter().zip(&column[1]).enumerate() {
                    let k = n * HALF + x;
                    let (r, i) = product((&latest.re[k], &latest.im[k]), seen);
                    (re[k], im[k]) = (r * share, i * share);
                }
            },
        );
        fft.inverse(re, im, responses);
    }

    /// Learns the sample that was responded to last, moved.
    ///
    /// Everything is done column by column, while that is in the first cache: it is the memory that this
    /// takes its time for.
    fn solve(
        &mut self,
        solver: &mut Solver,
        shift: Option<&Shift>,
        Memory { last: memory, first: anchor }: Memory,
        rounds: usize,
    ) {
        let Solver { level, fft, sample, powers, multiplier, goal, weights, .. } = solver;
        let Self { learnt: Learnt { filter: latest, top }, anchor: first, outside, label, power, .. } = self;
        let zero = [0.0; CHANNELS];
        let mut penalty = PENALTY;
        for round in 1..rounds {
            for (weight, outside) in weights.iter_mut().zip(&*outside) {
                *weight = 1.0 / (outside + penalty);
            }
            let is_first = round == 1;
            let totals = [penalty, penalty * GROWTH].map(|penalty| penalty + memory + anchor);
            // h, confined to the box, is made of g and the multiplier that draws the two together.
            fft.weigh(
                weights,
                #[inline(always)]
                |pass, x, [re, im]| {
                    for n in 0..GRID {
                        let k = n * HALF + x;
                        let (gr, gi) = (latest.re[k], latest.im[k]);
                        match pass {
                            Pass::Before if is_first => {
                                if let Some(shift) = shift {
                                    let moved = shift.apply((n, x), (&sample.re[k], &sample.im[k]));
                                    (sample.re[k], sample.im[k]) = moved;
                                }
                                let (xr, xi) = (sample.re[k], sample.im[k]);
                                powers[k] = power_of((&xr, &xi));
                                let drawn = |last: &[f32; CHANNELS], first: &[f32; CHANNELS]| {
                                    let mut goal = zero;
                                    for c in 0..CHANNELS {
                                        goal[c] = memory * last[c] + anchor * first[c];
                                    }
                                    goal
                                };
                                let (goal_re, goal_im) = (drawn(&gr, &first.re[k]), drawn(&gi, &first.im[k]));
                                let share = 1.0 / totals[0];
                                let vr = without(penalty, share, &zero, &zero, &goal_re);
                                let vi = without(penalty, share, &zero, &zero, &goal_im);
                                let weight = powers[k] + *power * totals[0];
                                let (gr, gi) = fit((&xr, &xi), (&vr, &vi), (label.0[k], label.1[k]), weight);
                                (goal.re[k], goal.im[k]) = (goal_re, goal_im);
                                (latest.re[k], latest.im[k]) = (gr, gi);
                                (re[n], im[n]) = (plus(&zero, penalty, &gr), plus(&zero, penalty, &gi));
                            }
                            Pass::Before => {
                                let (lr, li) = (&multiplier.re[k], &multiplier.im[k]);
                                (re[n], im[n]) = (plus(lr, penalty, &gr), plus(li, penalty, &gi));
                            }
                            Pass::After => {
                                let (lr, li) = if is_first {
                                    (zero, zero)
                                } else {
                                    (multiplier.re[k], multiplier.im[k])
                                };
                                let (hr, hi) = (re[n], im[n]);
                                let (lr, li) =
                                    (drawn_on(&lr, penalty, &gr, &hr), drawn_on(&li, penalty, &gi, &hi));
                                if round + 1 < rounds {
                                    (multiplier.re[k], multiplier.im[k]) = (lr, li);
                                }
                                let share = 1.0 / totals[1];
                                let vr = without(penalty * GROWTH, share, &hr, &lr, &goal.re[k]);
                                let vi = without(penalty * GROWTH, share, &hi, &li, &goal.im[k]);
                                let x = (&sample.re[k], &sample.im[k]);
                                let weight = powers[k] + *power * totals[1];
                                (latest.re[k], latest.im[k]) =
                                    fit(x, (&vr, &vi), (label.0[k], label.1[k]), weight);
                            }
                        }
                    }
                },
            );
            penalty *= GROWTH;
        }
        level.run(
            #[inline(always)]
            || *top = response_at_middle(latest, sample),
        );
    }
}

/// g for a sample and for what it would be without; `weight` is the power of the sample and of all that draws
/// g.
#[inline(always)]
fn fit(
    (xr, xi): Channels<'_>,
    (vr, vi): Channels<'_>,
    label: (f32, f32),
    weight: f32,
) -> ([f32; CHANNELS], [f32; CHANNELS]) {
    let (sr, si) = product((xr, xi), (vr, vi));
    // A response is the sum of conj(g) x, so the label comes in conjugated.
    let (yr, yi) = (label.0, -label.1);
    let (cr, ci) = ((yr - sr) / weight, (yi - si) / weight);
    let (mut gr, mut gi) = ([0.0; CHANNELS], [0.0; CHANNELS]);
    for c in 0..CHANNELS {
        gr[c] = vr[c] + cr * xr[c] - ci * xi[c];
        gi[c] = vi[c] + cr * xi[c] + ci * xr[c];
    }
    (gr, gi)
}

/// The value of g without the sample.
#[inline(always)]
fn without(
    penalty: f32,
    share: f32,
    h: &[f32; CHANNELS],
    l: &[f32; CHANNELS],
    goal: &[f32; CHANNELS],
) -> [f32; CHANNELS] {
    let mut v = [0.0; CHANNELS];
    for c in 0..CHANNELS {
        v[c] = (penalty * h[c] - l[c] + goal[c]) * share;
    }
    v
}

/// l + p g
#[inline(always)]
fn plus(l: &[f32; CHANNELS], penalty: f32, g: &[f32; CHANNELS]) -> [f32; CHANNELS] {
    let mut sum = [0.0; CHANNELS];
    for c in 0..CHANNELS {
        sum[c] = penalty * g[c] + l[c];
    }
    sum
}

/// The multiplier l for the next round: l + p (g - h).
#[inline(always)]
fn drawn_on(l: &[f32; CHANNELS], penalty: f32, g: &[f32; CHANNELS], h: &[f32; CHANNELS]) -> [f32; CHANNELS] {
    let mut next = *l;
    for c in 0..CHANNELS {
        next[c] += penalty * (g[c] - h[c]);
    }
    next
}

/// Response where the sample has its middle: the mean of the whole spectrum. Only half of it is stored.
#[inline(always)]
fn response_at_middle(filter: &Spectrum, sample: &Spectrum) -> f32 {
    let mut lanes = [0.0; CHANNELS];
    for k in 0..GRID * HALF {
        let twice = if (1..HALF - 1).contains(&(k % HALF)) { 2.0 } else { 1.0 };
        let (ar, ai, br, bi) = (&filter.re[k], &filter.im[k], &sample.re[k], &sample.im[k]);
        for c in 0..CHANNELS {
            lanes[c] += twice * (ar[c] * br[c] + ai[c] * bi[c]);
        }
    }
    sum(&lanes) / (GRID * GRID) as f32
}

/// The displacement of a place in the grid of responses, in cells.
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

/// Sum of conj(a) a over the channels.
#[inline(always)]
fn power_of((re, im): Channels<'_>) -> f32 {
    let mut power = [0.0; CHANNELS];
    for c in 0..CHANNELS {
        power[c] = re[c] * re[c] + im[c] * im[c];
    }
    sum(&power)
}

/// The sum of lanes in halves: always in this order.
#[inline(always)]
pub(super) fn sum(lanes: &[f32; 32]) -> f32 {
    let (mut of_two, mut of_four, mut of_eight, mut rest) = ([0.0; 16], [0.0; 8], [0.0; 4], [0.0; 2]);
    for i in 0..16 {
        of_two[i] = lanes[i] + lanes[i + 16];
    }
    for i in 0..8 {
        of_four[i] = of_two[i] + of_two[i + 8];
    }
    for i in 0..4 {
        of_eight[i] = of_four[i] + of_four[i + 4];
    }
    for i in 0..2 {
        rest[i] = of_eight[i] + of_eight[i + 2];
    }
    rest[0] + rest[1]
}

#[cfg(test)]
mod tests {
    use super::*;

    const MEMORY: Memory = Memory { last: 40.0, first: 20.0 };

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
        let filter = FilterState::new(&mut solver, &features(16, 16), (8.0, 8.0), MEMORY);
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
        let mut filter = FilterState::new(&mut solver, &features(16, 16), (8.0, 8.0), MEMORY);
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
        assert_eq!(sum(&std::array::from_fn(|i| (i * i) as f32)), 10416.0);
    }
}
