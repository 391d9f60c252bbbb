//! The window of a picture in which targets are looked for, as features; and room for the work, shared by
//! targets.
//!
//! An [`Eye`] looks at windows with a filter on the host. Where the filter lies on a device
//! ([`correlator`](crate::frame::correlator)), the device does, and the eye gets its responses. What an eye
//! saw is a [`Sight`], which is judged on the host in any case.

use std::ops::Add;
use std::sync::LazyLock;

use super::colour::Colours;
use super::fft::turns;
use super::filter::{Filter, Memory, Solver, displacement, lesson};
use super::hog::{CELL, HOG, Hog, SIGNED};
use super::look::Looker;
use super::names::{NAMES, Names};
use super::sample::{Patch, Sampler, Window, grids, turn};
use crate::backend::peaks::vertex;
use crate::frame::Frame;
use crate::frame::correlator::{
    CHANNELS, COLOUR_SIDE, FilterState, GRID, LUMA_SIDE, Lesson, PlacedFilter, Query, Spectrum, Tables,
};
use crate::surface::{Grid, Surface};

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

/// A window to look at.
#[derive(Clone, Copy)]
pub(super) struct Aim {
    /// A square window.
    pub(super) window: Window,
    /// Width and height of the target, in pixels.
    pub(super) size: (f64, f64),
    /// Lets targets be seen nearer to the edge.
    pub(super) is_wide: bool,
    pub(super) purpose: Purpose,
}

/// The results that are needed of a look.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Purpose {
    /// The best response alone.
    Peak,
    /// The target's place.
    Place,
    /// The target's place, and the colours of its box.
    PlaceAndColours,
}

/// The results of a look at a window.
pub(super) struct Sight {
    aim: Aim,
    /// Pixels of the picture to a cell of the window.
    cell: f64,
    /// The filter's response to each displacement; once a target was looked for, together with the colours.
    responses: Vec<f32>,
    /// The mean probability of the target's colours in its box at each displacement.
    colours: Vec<f32>,
    /// The bin of each sample of colours.
    bins: Vec<u16>,
    /// The probability of each bin to be the target's.
    probabilities: Vec<f32>,
    /// The window's grids, for a device.
    grids: Vec<Grid>,
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
    pub(super) sight: Sight,
    /// The results of several windows that a device looks at together.
    others: Vec<Sight>,
    sampler: Sampler,
    hog: Hog,
    patch: Patch,
    probabilities: Vec<f32>,
    /// Sums of the probabilities left of and above each corner.
    integral: Vec<f64>,
    tapers: [Vec<f32>; 2],
    features: Vec<[f32; CHANNELS]>,
    solver: Solver,
    names: &'static Names,
}

/// The factor of each cell: a cosine window, and its root for wide windows.
fn tapers() -> [Vec<f32>; 2] {
    let hann =
        |index: usize| 0.5 - 0.5 * libm::cos(2.0 * std::f64::consts::PI * (index as f64 + 0.5) / GRID as f64);
    let taper = (0..GRID * GRID).map(|i| hann(i / GRID) * hann(i % GRID));
    [taper.clone().map(|v| v as f32).collect(), taper.map(|v| v.sqrt() as f32).collect()]
}

/// The tables that a device needs to look at windows as an eye does.
pub fn tables() -> &'static Tables {
    static MADE: LazyLock<Tables> =
        LazyLock::new(|| Tables { turns: turns(), tapers: tapers(), names: Names::get().tables() });
    &MADE
}

impl Eye {
    pub(super) fn new() -> Self {
        Self {
            sight: Sight::new(),
            others: Vec::new(),
            sampler: Sampler::new(),
            hog: Hog::new(),
            patch: Patch::new(LUMA_SIDE),
            probabilities: Vec::new(),
            integral: Vec::new(),
            tapers: tapers(),
            features: vec![[0.0; CHANNELS]; GRID * GRID],
            solver: Solver::new(),
            names: Names::get(),
        }
    }

    /// Looks at a window with a filter, wherever that lies.
    pub(super) fn see(&mut self, frame: &Frame, aim: Aim, colours: &Colours, filter: &Filter) {
        match filter {
            Filter::Host(state) => {
                self.describe(frame, aim, colours);
                state.respond(&mut self.solver, &self.features, &mut self.sight.responses);
                if aim.purpose != Purpose::Peak {
                    self.find_colours(self.sight.half());
                }
            }
            Filter::Placed(filter) => {
                let (filter, sight) = (&**filter, &mut self.sight);
                see_on_device(frame, &mut [LookThere { aim, colours, filter, is_learnt: false, sight }]);
            }
        }
    }

    /// Answers a query as a device does, and returns the sample.
    pub(super) fn answer(
        &mut self,
        surface: &dyn Surface,
        query: &mut Query<'_>,
        filter: &FilterState,
    ) -> &Spectrum {
        let colours = Colours::new(query.grids.len() > 1);
        self.sampler.grids_of_window(surface, query.grids, &mut self.patch);
        colours.bins(&self.patch, &mut self.sight.bins);
        self.describe_patch(query.probabilities, query.is_wide);
        filter.respond(&mut self.solver, &self.features, &mut self.sight.responses);
        query.responses.copy_from_slice(&self.sight.responses);
        if let Some(means) = &mut query.colours {
            self.find_colours(query.half);
            means.copy_from_slice(&self.sight.colours);
        }
        if let Some(bins) = &mut query.bins {
            bins.copy_from_slice(&self.sight.bins);
        }
        self.solver.sample()
    }

    /// Takes a lesson as a device does.
    pub(super) fn learn_lesson(&mut self, lesson: &Lesson<'_>, filter: &mut FilterState, sample: &Spectrum) {
        filter.learn_lesson(&mut self.solver, lesson, sample);
    }

    /// Looks at several windows with a filter, and gives what is seen in each to `take`. On a device all are
    /// looked at together.
    pub(super) fn see_each<const COUNT: usize>(
        &mut self,
        frame: &Frame,
        aims: [Option<Aim>; COUNT],
        (colours, filter): (&Colours, &Filter),
        mut take: impl FnMut(&mut Sight),
    ) {
        let aims = aims.into_iter().flatten();
        let Some(placed) = filter.placed() else {
            for aim in aims {
                self.see(frame, aim, colours, filter);
                take(&mut self.sight);
            }
            return;
        };
        self.others.resize_with(COUNT, Sight::new);
        let looks = aims.zip(&mut self.others).map(|(aim, sight)| LookThere {
            aim,
            colours,
            filter: placed,
            is_learnt: false,
            sight,
        });
        let mut looks = looks.collect::<Vec<_>>();
        see_on_device(frame, &mut looks);
        for LookThere { sight, .. } in looks {
            take(sight);
        }
    }

    /// Takes in a window and makes features of it.
    pub(super) fn describe(&mut self, frame: &Frame, aim: Aim, colours: &Colours) {
        self.sampler.window(frame, aim.window, colours.has_chroma, &mut self.patch);
        self.sight.point_at(aim);
        colours.bins(&self.patch, &mut self.sight.bins);
        let mut of_bins = std::mem::take(&mut self.sight.probabilities);
        colours.probabilities(&mut of_bins);
        self.describe_patch(&of_bins, aim.is_wide);
        self.sight.probabilities = of_bins;
    }

    /// True if there is any colour in a window: a grey picture can come with chroma planes.
    pub(super) fn is_coloured(&mut self, frame: &Frame, window: Window) -> bool {
        self.sampler.window(frame, window, true, &mut self.patch);
        // Coding a grey picture moves chroma by 1 or 2.
        self.patch.u.iter().chain(&self.patch.v).any(|&chroma| chroma.abs_diff(128) > 2)
    }

    /// Makes features of the patch, whose bins are known, with the probability of each bin.
    fn describe_patch(&mut self, of_bins: &[f32], is_wide: bool) {
        let Self { sight, hog, patch, probabilities, features, names, tapers, .. } = self;
        probabilities.clear();
        probabilities.extend(sight.bins.iter().map(|&bin| of_bins[usize::from(bin)]));
        let taper = &tapers[usize::from(is_wide)];
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

    /// The first filter of the target in the middle of the window described last.
    pub(super) fn new_filter(&mut self, memory: Memory) -> Filter {
        let Sight { aim: Aim { size: (w, h), .. }, cell, .. } = self.sight;
        let size = (w / cell, h / cell);
        Filter::Host(Box::new(FilterState::new(&mut self.solver, &self.features, size, memory)))
    }

    /// Learns the window that was seen last, in which the target was found at a place of the picture.
    ///
    /// As ECO does (M. Danelljan et al., 2017): it spares a second look.
    pub(super) fn learn(&mut self, filter: &mut Filter, place: (f64, f64)) {
        let Filter::Host(state) = filter else { unreachable!("filters on a device have lessons") };
        let (x, y) = self.sight.in_cells(place);
        state.learn(&mut self.solver, x, y);
    }

    /// The mean probability of the target's box at each displacement.
    fn find_colours(&mut self, (half_w, half_h): (i64, i64)) {
        self.sum_probabilities();
        self.sight.colours.resize(GRID * GRID, 0.0);
        for index in 0..GRID * GRID {
            let (x, y) = (displacement(index % GRID), displacement(index / GRID));
            self.sight.colours[index] = self.mean_probability(x as i64, y as i64, half_w, half_h);
        }
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
}

/// A look of a filter that lies on a device.
pub(super) struct LookThere<'a> {
    pub(super) aim: Aim,
    pub(super) colours: &'a Colours,
    pub(super) filter: &'a dyn PlacedFilter,
    /// The filter may learn it.
    pub(super) is_learnt: bool,
    /// Gets what is seen.
    pub(super) sight: &'a mut Sight,
}

/// Looks at windows of a picture on the device that all the filters lie on.
pub(super) fn see_on_device(frame: &Frame, looks: &mut [LookThere<'_>]) {
    let (Some(surface), Some(first)) = (frame.picture.surface(), looks.first()) else { return };
    let correlator = first.filter.correlator();
    let pixels = frame.format.pixels;
    let looks = looks.iter_mut().map(|LookThere { aim, colours, filter, is_learnt, sight }| {
        sight.point_at(*aim);
        let half = sight.half();
        let Sight { responses, colours: means, bins, probabilities, grids: of_window, .. } = &mut **sight;
        colours.probabilities(probabilities);
        of_window.clear();
        grids(aim.window, LUMA_SIDE, colours.has_chroma.then_some(pixels), of_window);
        responses.resize(GRID * GRID, 0.0);
        means.resize(GRID * GRID, 0.0);
        bins.resize(COLOUR_SIDE * COLOUR_SIDE, 0);
        let (has_place, has_colours) =
            (aim.purpose != Purpose::Peak, aim.purpose == Purpose::PlaceAndColours);
        Query {
            filter: *filter,
            grids: of_window,
            is_wide: aim.is_wide,
            probabilities,
            half,
            is_learnt: *is_learnt,
            responses,
            colours: has_place.then_some(means),
            bins: has_colours.then_some(bins),
        }
    });
    correlator.respond(surface, &mut looks.collect::<Vec<_>>());
}

impl Sight {
    pub(super) fn new() -> Self {
        let window = Window { x: 0.0, y: 0.0, w: 1.0, h: 1.0, angle: 0.0 };
        Self {
            aim: Aim { window, size: (1.0, 1.0), is_wide: false, purpose: Purpose::Peak },
            cell: 1.0,
            responses: Vec::new(),
            colours: Vec::new(),
            bins: Vec::new(),
            probabilities: Vec::new(),
            grids: Vec::new(),
        }
    }

    /// The window.
    pub(super) fn window(&self) -> Window {
        self.aim.window
    }

    fn point_at(&mut self, aim: Aim) {
        (self.aim, self.cell) = (aim, aim.window.w / GRID as f64);
    }

    /// Half of the target's width and height, in samples of colours, of the part that counts.
    fn half(&self) -> (i64, i64) {
        let sample = self.cell / 2.0;
        let half = |length: f64| libm::round(length / sample / 2.0 * COLOUR_BOX).max(1.0) as i64;
        let (w, h) = self.aim.size;
        (half(w), half(h))
    }

    /// How far a place of the picture is from the window's middle, in pixels along the window's own axes.
    fn offset(&self, (x, y): (f64, f64)) -> (f64, f64) {
        let window = self.aim.window;
        window.own((x - window.x, y - window.y))
    }

    /// As [`Self::offset`], in cells.
    fn in_cells(&self, place: (f64, f64)) -> (f64, f64) {
        let (x, y) = self.offset(place);
        (x / self.cell, y / self.cell)
    }

    /// The lesson by which a device learns the window, with the target at a place of the picture.
    pub(super) fn lesson<'a>(&self, filter: &'a dyn PlacedFilter, place: (f64, f64)) -> Lesson<'a> {
        lesson(filter, self.in_cells(place))
    }

    /// Learns the colours of the box of `w` x `h` pixels at a place of the picture.
    pub(super) fn learn_colours(
        &self,
        colours: &mut Colours,
        place: (f64, f64),
        (w, h): (f64, f64),
        rate: f32,
    ) {
        let (x, y) = self.offset(place);
        let sample = self.cell / 2.0;
        colours.learn(&self.bins, COLOUR_SIDE, (x / sample, y / sample), (w / sample, h / sample), rate);
    }

    /// Returns the place of the target by the responses and by colours. `weight` weights a response by its
    /// displacement in pixels.
    pub(super) fn find(&mut self, weight: impl Fn(f64, f64) -> f32) -> Sighting {
        let turning = self.aim.window.turning();
        for (index, (response, colour)) in self.responses.iter_mut().zip(&self.colours).enumerate() {
            let (x, y) = (displacement(index % GRID), displacement(index / GRID));
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

    /// The best response elsewhere than where the target was found, over the response there. Elsewhere is
    /// where the box would share less than half of its width or height.
    pub(super) fn second_peak_ratio(&self) -> f64 {
        let (top, (w, h)) = (self.top(), self.aim.size);
        let (_, second) = self.best_elsewhere(&top, (w / 2.0, h / 2.0));
        second / top.response.max(f64::MIN_POSITIVE)
    }

    /// Where the filter responds best beside the target of `w` x `h` pixels, displaced from the window's
    /// middle; nothing if it responds nowhere else.
    pub(super) fn second_place(&self, w: f64, h: f64) -> Option<(f64, f64)> {
        let (index, response) = self.best_elsewhere(&self.top(), (w, h));
        let [x, y] = [index % GRID, index / GRID].map(|cell| displacement(cell) * self.cell);
        (response > 0.0).then(|| self.aim.window.turning()(x, y))
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
        let (x, y) = self.aim.window.own(displacement);
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
