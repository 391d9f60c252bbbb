//! The window of a picture in which targets are looked for, as features; and room for the work, shared by
//! targets.

use std::ops::Add;

use super::colour::Colours;
use super::fft::{CHANNELS, GRID};
use super::filter::{Filter, Memory, Solver, displacement};
use super::hog::{CELL, HOG, Hog, SIGNED};
use super::look::Looker;
use super::names::{NAMES, Names};
use super::sample::{Patch, Sampler, Window, turn};
use crate::backend::peaks::vertex;
use crate::frame::Frame;

/// Samples on a side of the window's luma, and of its chroma and colour probabilities.
const LUMA_SIDE: usize = GRID * CELL;
const COLOUR_SIDE: usize = LUMA_SIDE / 2;

/// Pixels of a cell.
const PIXELS: u32 = (CELL * CELL) as u32;

/// Weights of the channels that are no gradients, so that each has about the power of one of those: luma and
/// chroma over their range, and what colours say.
const LUMA_WEIGHT: f32 = 1.0 / 255.0;
const CHROMA_WEIGHT: f32 = 2.0 / 255.0;
const COLOUR_WEIGHT: f32 = 0.5;
/// As above, for the shares of colour names. 0.6 and 2 score alike (mean AUC of 31 sequences, 400 frames,
/// three starts each: 0.629 and 0.630; 1.3: 0.635).
const NAME_WEIGHT: f32 = 1.3;

/// Channels that are no gradients. The unsigned directions are left out for the names: these are sums of two
/// signed ones.
const OTHERS: usize = NAMES + 4;
const _: () = assert!(SIGNED + 1 + OTHERS == CHANNELS);

/// Weight of the colours in the target's place; the filter has the rest.
const COLOUR_SHARE: f32 = 0.5;

/// The part of the box, on each axis, over which probabilities are averaged: its edge is often ground.
const COLOUR_BOX: f64 = 0.9;

/// The place of a target in a window.
#[derive(Debug, Clone, Copy)]
pub(super) struct Sighting {
    /// Displacement from the window's middle, in pixels.
    pub(super) x: f64,
    pub(super) y: f64,
    /// About 1 where the target is as it was learnt.
    pub(super) peak: f64,
}

/// All buffers for looking; one set for each thread.
pub(super) struct Eyes {
    /// Sees where the target can be.
    pub(super) wide: Eye,
    /// Sees the target and little more, and that sharper.
    pub(super) narrow: Eye,
    pub(super) looker: Looker,
}

impl Eyes {
    pub(super) fn new() -> Self {
        Self { wide: Eye::new(), narrow: Eye::new(), looker: Looker::new() }
    }
}

/// Looks at windows.
pub(super) struct Eye {
    sampler: Sampler,
    hog: Hog,
    patch: Patch,
    bins: Vec<u16>,
    probabilities: Vec<f32>,
    /// Sums of the probabilities left of and above each corner.
    integral: Vec<f64>,
    /// A cosine window, and its root, which lets targets be seen nearer to the edge.
    taper: Vec<f32>,
    wide_taper: Vec<f32>,
    features: Vec<[f32; CHANNELS]>,
    responses: Vec<f32>,
    /// The window that was looked at last, and pixels of the picture to a cell of it.
    window: Window,
    cell: f64,
    solver: Solver,
    names: Names,
}

impl Eye {
    fn new() -> Self {
        let hann = |index: usize| {
            0.5 - 0.5 * libm::cos(2.0 * std::f64::consts::PI * (index as f64 + 0.5) / GRID as f64)
        };
        let taper = (0..GRID * GRID).map(|i| hann(i / GRID) * hann(i % GRID));
        Self {
            sampler: Sampler::new(),
            hog: Hog::new(),
            patch: Patch::new(LUMA_SIDE),
            bins: Vec::new(),
            probabilities: Vec::new(),
            integral: Vec::new(),
            wide_taper: taper.clone().map(|v| v.sqrt() as f32).collect(),
            taper: taper.map(|v| v as f32).collect(),
            features: vec![[0.0; CHANNELS]; GRID * GRID],
            responses: Vec::new(),
            window: Window { x: 0.0, y: 0.0, w: 1.0, h: 1.0, angle: 0.0 },
            cell: 1.0,
            solver: Solver::new(),
            names: Names::new(),
        }
    }

    /// Looks at a square window.
    pub(super) fn look(&mut self, frame: &Frame, window: Window, colours: &Colours) {
        self.sampler.window(frame, window, colours.has_chroma, &mut self.patch);
        (self.window, self.cell) = (window, window.w / GRID as f64);
        colours.bins(&self.patch, &mut self.bins);
    }

    /// True if there is any colour in a window: a grey picture can come with chroma planes.
    pub(super) fn is_coloured(&mut self, frame: &Frame, window: Window) -> bool {
        self.sampler.window(frame, window, true, &mut self.patch);
        // Coding a grey picture moves chroma by 1 or 2.
        self.patch.u.iter().chain(&self.patch.v).any(|&chroma| chroma.abs_diff(128) > 2)
    }

    /// Makes features of the last window that was looked at.
    pub(super) fn describe(&mut self, colours: &Colours, is_wide: bool) {
        colours.probabilities(&self.bins, &mut self.probabilities);
        let Self { hog, patch, probabilities, features, names, .. } = self;
        let taper = if is_wide { &self.wide_taper } else { &self.taper };
        hog.run::<GRID>(
            &patch.luma,
            #[inline(always)]
            |y, gradients| {
                let taper = &taper.as_chunks::<GRID>().0[y];
                let mut luma = [0; GRID];
                for pixels in patch.luma[y * CELL * LUMA_SIDE..][..CELL * LUMA_SIDE].chunks_exact(GRID) {
                    for (sum, &pixel) in luma.iter_mut().zip(pixels) {
                        *sum += u32::from(pixel);
                    }
                }
                let pairs = 2 * y * COLOUR_SIDE..2 * (y + 1) * COLOUR_SIDE;
                let (u, v) = (&patch.u[pairs.clone()], &patch.v[pairs.clone()]);
                let probabilities = &probabilities[pairs];
                let mut others = [[0.0; GRID]; OTHERS];
                for x in 0..GRID {
                    let (u, v) = (sum_of_four(|i| u32::from(u[i]), x), sum_of_four(|i| u32::from(v[i]), x));
                    let shares =
                        names.shares(((luma[x] + PIXELS / 2) / PIXELS) as u8, (u / 4) as u8, (v / 4) as u8);
                    for (others, share) in others.iter_mut().zip(shares) {
                        others[x] = NAME_WEIGHT * share;
                    }
                    let mean = |sum: u32, count: f32| sum as f32 / count - 128.0;
                    others[NAMES][x] = LUMA_WEIGHT * mean(luma[x], PIXELS as f32);
                    others[NAMES + 1][x] = CHROMA_WEIGHT * mean(u, 4.0);
                    others[NAMES + 2][x] = CHROMA_WEIGHT * mean(v, 4.0);
                    let probability = 0.25 * sum_of_four(|i| probabilities[i], x);
                    others[NAMES + 3][x] = COLOUR_WEIGHT * (probability - 0.5);
                }
                let gradients = gradients[..SIGNED].iter().chain(&gradients[HOG - 1..]);
                let mut channels = [[0.0; GRID]; CHANNELS];
                for (channel, lanes) in channels.iter_mut().zip(gradients.chain(&others)) {
                    let mut tapered = *lanes;
                    for x in 0..GRID {
                        tapered[x] *= taper[x];
                    }
                    *channel = tapered;
                }
                turn(&mut channels, &mut features.as_chunks_mut().0[y]);
            },
        );
    }

    /// Learns the colours of the box of `w` x `h` pixels, which is displaced from the middle of the last
    /// window that was looked at.
    pub(super) fn learn_colours(
        &self,
        colours: &mut Colours,
        displacement: (f64, f64),
        (w, h): (f64, f64),
        rate: f32,
    ) {
        let (x, y) = self.window.own(displacement);
        let sample = self.cell / 2.0;
        colours.learn(&self.bins, COLOUR_SIDE, (x / sample, y / sample), (w / sample, h / sample), rate);
    }

    /// The first filter of the box of `w` x `h` pixels in the middle of the window described last.
    pub(super) fn new_filter(&mut self, w: f64, h: f64, memory: Memory) -> Filter {
        Filter::new(&mut self.solver, &self.features, (w / self.cell, h / self.cell), memory)
    }

    /// Learns the described window, whose target was found displaced from its middle.
    ///
    /// As ECO does (M. Danelljan et al., 2017): it spares a second look.
    pub(super) fn learn_filter(&mut self, filter: &mut Filter, displacement: (f64, f64)) {
        let (x, y) = self.window.own(displacement);
        filter.learn(&mut self.solver, x / self.cell, y / self.cell);
    }

    /// The filter's responses to the described window.
    pub(super) fn respond(&mut self, filter: &Filter) {
        filter.respond(&mut self.solver, &self.features, &mut self.responses);
    }

    /// Returns the place of the target of `w` x `h` pixels by the last responses and by colours. `weight`
    /// weights a response by its displacement in pixels.
    pub(super) fn find(&mut self, w: f64, h: f64, weight: impl Fn(f64, f64) -> f32) -> Sighting {
        self.sum_probabilities();
        let sample = self.cell / 2.0;
        let half = |length: f64| libm::round(length / sample / 2.0 * COLOUR_BOX).max(1.0) as i64;
        let (half_w, half_h) = (half(w), half(h));
        let turning = self.window.turning();
        for index in 0..GRID * GRID {
            let (x, y) = (displacement(index % GRID), displacement(index / GRID));
            let colour = self.mean_probability(x as i64, y as i64, half_w, half_h);
            let response = &mut self.responses[index];
            *response = (1.0 - COLOUR_SHARE) * *response + COLOUR_SHARE * colour;
            let (x, y) = turning(x * self.cell, y * self.cell);
            *response *= weight(x, y);
        }
        let Top { x, y, dx, dy, response, .. } = self.top();
        let in_cells = (displacement(x) + dx, displacement(y) + dy);
        let (x, y) = turning(in_cells.0 * self.cell, in_cells.1 * self.cell);
        Sighting { x, y, peak: response }
    }

    /// The best of the filter's responses, between cells, without the colours.
    pub(super) fn peak(&self) -> f64 {
        self.top().peak
    }

    fn sum_probabilities(&mut self) {
        let width = COLOUR_SIDE + 1;
        self.integral.clear();
        self.integral.resize(width * width, 0.0);
        for (y, row) in self.probabilities.chunks_exact(COLOUR_SIDE).enumerate() {
            let mut sum = 0.0;
            for (x, &probability) in row.iter().enumerate() {
                sum += f64::from(probability);
                self.integral[(y + 1) * width + x + 1] = self.integral[y * width + x + 1] + sum;
            }
        }
    }

    /// Mean over a box that lies (`x`, `y`) cells from the middle; cells outside count as ground.
    fn mean_probability(&self, x: i64, y: i64, half_w: i64, half_h: i64) -> f32 {
        let (x, y) = (2 * x + COLOUR_SIDE as i64 / 2, 2 * y + COLOUR_SIDE as i64 / 2);
        let inside = |v: i64| v.clamp(0, COLOUR_SIDE as i64) as usize;
        let (left, right) = (inside(x - half_w), inside(x + half_w));
        let (top, bottom) = (inside(y - half_h), inside(y + half_h));
        let at = |x: usize, y: usize| self.integral[y * (COLOUR_SIDE + 1) + x];
        let sum = at(right, bottom) - at(right, top) - at(left, bottom) + at(left, top);
        (sum / (4 * half_w * half_h) as f64) as f32
    }

    /// The best response and where it lies between cells.
    fn top(&self) -> Top {
        let mut best = 0;
        for (index, response) in self.responses.iter().enumerate() {
            if *response > self.responses[best] {
                best = index;
            }
        }
        let (x, y) = (best % GRID, best / GRID);
        let at = |x: usize, y: usize| f64::from(self.responses[y % GRID * GRID + x % GRID]);
        let middle = at(x, y);
        let (left, right) = (at(x + GRID - 1, y), at(x + 1, y));
        let (above, below) = (at(x, y + GRID - 1), at(x, y + 1));
        let dx = vertex(Some(left), middle, Some(right));
        let dy = vertex(Some(above), middle, Some(below));
        let peak = middle + 0.25 * ((right - left) * dx + (below - above) * dy);
        Top { x, y, dx, dy, response: middle, peak }
    }

    /// The best response elsewhere than where the target of `w` x `h` pixels was found, over the response
    /// there. Elsewhere is where the box would share less than half of its width or height.
    pub(super) fn second_peak_ratio(&self, w: f64, h: f64) -> f64 {
        let top = self.top();
        let (_, second) = self.best_elsewhere(&top, (w / 2.0, h / 2.0));
        second / top.response.max(f64::MIN_POSITIVE)
    }

    /// Where the filter responds best beside the target of `w` x `h` pixels, displaced from the window's
    /// middle; nothing if it responds nowhere else.
    pub(super) fn second_place(&self, w: f64, h: f64) -> Option<(f64, f64)> {
        let (index, response) = self.best_elsewhere(&self.top(), (w, h));
        let [x, y] = [index % GRID, index / GRID].map(|cell| displacement(cell) * self.cell);
        (response > 0.0).then(|| self.window.turning()(x, y))
    }

    /// The best response farther from the top than this in either direction, in pixels, and its cell.
    fn best_elsewhere(&self, &Top { x, y, .. }: &Top, near: (f64, f64)) -> (usize, f64) {
        let (near_x, near_y) = ((near.0 / self.cell).max(2.0), (near.1 / self.cell).max(2.0));
        let mut best = (0, 0.0);
        for (index, &response) in self.responses.iter().enumerate() {
            let off_x = displacement((index % GRID + GRID - x) % GRID).abs();
            let off_y = displacement((index / GRID + GRID - y) % GRID).abs();
            if (off_x > near_x || off_y > near_y) && f64::from(response) > best.1 {
                best = (index, f64::from(response));
            }
        }
        best
    }

    /// How much the colours of a box of `w` x `h` pixels, which is displaced from the middle of the last
    /// window that was looked at, are like those of the target, in [0, 1].
    pub(super) fn colour_likeness(
        &self,
        colours: &Colours,
        displacement: (f64, f64),
        (w, h): (f64, f64),
    ) -> f64 {
        let (x, y) = self.window.own(displacement);
        let sample = self.cell / 2.0;
        colours.likeness(&self.bins, COLOUR_SIDE, (x / sample, y / sample), (w / sample, h / sample))
    }
}

/// The best response of a grid.
struct Top {
    /// Its cell.
    x: usize,
    y: usize,
    /// The vertex of the parabolas through it and its neighbours, in cells from it.
    dx: f64,
    dy: f64,
    /// In the cell, and at the vertex.
    response: f64,
    peak: f64,
}

/// Sum of the four samples of the `x`-th cell, out of two rows of `COLOUR_SIDE`.
#[inline(always)]
fn sum_of_four<T: Add<Output = T>>(sample: impl Fn(usize) -> T, x: usize) -> T {
    let (left, right) = (2 * x, 2 * x + 1);
    (sample(left) + sample(right)) + (sample(COLOUR_SIDE + left) + sample(COLOUR_SIDE + right))
}
