//! The search of one tile: what all threads read, and what each of them works with.

use std::ops::Range;
use std::sync::Arc;

use rustfft::FftPlanner;

use super::correlate::{Correlator, Pattern, Scratch, Spectrum};
use super::plan::{Part, Plan};
use super::sums::{MIDDLE, WindowSums};
use crate::backend::peaks::{Candidate, ScoreTile};
use crate::backend::score;
use crate::frame::{Plane, PlaneRef, Rect, Size};
use crate::template::{Bank, Template};

/// What squares of centred pixels, 0 to 2^14, are counted from.
const MIDDLE_SQUARE: i32 = 1 << 13;

/// What all threads read: how the work is cut, and the templates' spectra.
pub(super) struct Search {
    pub(super) bank: Arc<Bank>,
    pub(super) region: Size,
    pub(super) plan: Plan,
    correlator: Correlator,
    members: Vec<Member>,
}

/// A template, ready to be searched for. Its grey levels are counted from about their mean.
struct Member {
    size: Size,
    n: i64,
    t1: i64,
    variance: i64,
    pattern: Pattern,
    mask: Option<Pattern>,
}

impl Search {
    /// Gets everything ready that does not depend on the frame.
    pub(super) fn new(planner: &mut FftPlanner<f64>, bank: Arc<Bank>, region: Size, plan: Plan) -> Self {
        let correlator = Correlator::new(planner, plan.tile);
        let mut scratch = correlator.scratch();
        let members = bank.members().iter().map(|t| Member::new(&correlator, t, &mut scratch)).collect();
        Self { bank, region, plan, correlator, members }
    }

    /// The size of a member's score map.
    pub(super) fn map_size(&self, member: usize) -> Size {
        let Size { width, height } = self.members[member].size;
        Size::new(self.region.width - width + 1, self.region.height - height + 1)
    }

    fn has_masks(&self) -> bool {
        self.members.iter().any(|member| member.mask.is_some())
    }

    /// The pixels of a tile: as many as there are, to the right and down from its first.
    fn pixels<'a>(&self, region: PlaneRef<'a>, (x, y): (usize, usize)) -> PlaneRef<'a> {
        let Size { width, height } = self.plan.tile;
        let rect = Rect::new(x, y, width.min(self.region.width - x), height.min(self.region.height - y));
        region.crop(rect)
    }

    /// The members of a group.
    fn group(&self, group: usize) -> Range<usize> {
        let start = |group: usize| group * self.members.len() / self.plan.groups;
        start(group)..start(group + 1)
    }
}

impl Member {
    fn new(correlator: &Correlator, template: &Template, scratch: &mut Scratch) -> Self {
        let (size, sums) = (template.size(), template.sums());
        let (n, mean) = (sums.n, (sums.t1 + sums.n / 2) / sums.n);
        let squares = sums.t2 - 2 * mean * sums.t1 + mean * mean * n;
        let load = |y: usize, row: &mut [f64]| {
            for (out, &pixel) in row.iter_mut().zip(template.luma().as_ref().row(y)) {
                *out = (i64::from(pixel) - mean) as f64;
            }
            if let Some(mask) = template.mask() {
                for (out, &counts) in row.iter_mut().zip(mask.as_ref().row(y)) {
                    *out *= f64::from(counts);
                }
            }
        };
        let pattern = correlator.pattern(size, load, squares, f64::from(MIDDLE), scratch);
        let mask_pattern = |mask: &Plane| {
            let load = |y: usize, row: &mut [f64]| {
                for (out, &counts) in row.iter_mut().zip(mask.as_ref().row(y)) {
                    *out = f64::from(counts);
                }
            };
            // The squares are the larger of the two planes that the mask is correlated with.
            correlator.pattern(size, load, n, f64::from(MIDDLE_SQUARE), scratch)
        };
        let mask = template.mask().map(mask_pattern);
        Self { size, n, t1: sums.t1 - mean * n, variance: sums.variance(), pattern, mask }
    }
}

/// What one thread works with, and what it found.
pub(super) struct Worker {
    pixels: Spectrum,
    squares: Option<Spectrum>,
    scratch: Scratch,
    /// Sums of one tile's windows, row by row; S and SS only where there are masks.
    st: Vec<i64>,
    s: Vec<i64>,
    ss: Vec<i64>,
    sliding: WindowSums,
    scores: Vec<f64>,
    pub(super) found: Vec<Candidate>,
}

impl Worker {
    /// Room for any piece of work.
    pub(super) fn new(search: &Search) -> Self {
        let parts = (0..search.members.len()).flat_map(|member| {
            let map = search.map_size(member);
            (0..search.plan.tiles()).map(move |tile| search.plan.part(tile, map).size.area())
        });
        let positions = parts.max().unwrap_or(0);
        let has_masks = search.has_masks();
        let masked_positions = if has_masks { positions } else { 0 };
        Self {
            pixels: search.correlator.spectrum(),
            squares: has_masks.then(|| search.correlator.spectrum()),
            scratch: search.correlator.scratch(),
            st: vec![0; positions],
            s: vec![0; masked_positions],
            ss: vec![0; masked_positions],
            sliding: WindowSums::new(search.plan.tile.width),
            scores: vec![0.0; positions],
            found: Vec::new(),
        }
    }

    /// Does one piece of work: adds the peaks of one group of members in one tile to those found.
    pub(super) fn find(&mut self, search: &Search, region: PlaneRef<'_>, piece: usize, min_score: f64) {
        let (tile, group) = search.plan.piece(piece);
        self.transform(search, region, tile);
        // Lent out, because the scores borrow the worker.
        let mut found = std::mem::take(&mut self.found);
        for member in search.group(group) {
            self.score(search, region, tile, member).find(member as u32, min_score, &mut found);
        }
        self.found = found;
    }

    /// Makes the spectra of a tile's pixels, and of their squares if there are masks.
    pub(super) fn transform(&mut self, search: &Search, region: PlaneRef<'_>, tile: usize) {
        // All members' parts begin at the same pixel.
        let pixels = search.pixels(region, search.plan.part(tile, search.map_size(0)).origin);
        let Size { width, height } = pixels.size();
        let load = |y: usize, row: &mut [f64], value: fn(i32) -> i32| {
            for (out, &pixel) in row.iter_mut().zip(pixels.row(y)) {
                *out = f64::from(value(i32::from(pixel) - MIDDLE));
            }
            row[width..].fill(0.0);
        };
        let (correlator, scratch) = (&search.correlator, &mut self.scratch);
        correlator.transform(height, |y, row| load(y, row, |v| v), scratch, &mut self.pixels);
        if let Some(squares) = &mut self.squares {
            let centred_square = |v: i32| v * v - MIDDLE_SQUARE;
            correlator.transform(height, |y, row| load(y, row, centred_square), scratch, squares);
        }
    }

    /// Scores one member at the positions of a tile that [`Self::transform`] was called for.
    pub(super) fn score(
        &mut self,
        search: &Search,
        region: PlaneRef<'_>,
        tile: usize,
        member: usize,
    ) -> ScoreTile<'_> {
        let Part { origin, size, own } = search.plan.part(tile, search.map_size(member));
        let member = &search.members[member];
        let Self { st, s, ss, scores, scratch, .. } = self;
        let (st, scores) = (&mut st[..size.area()], &mut scores[..size.area()]);
        search.correlator.correlate(&self.pixels, &member.pattern, size, scratch, st);
        let rows = scores.chunks_exact_mut(size.width).zip(st.chunks_exact(size.width));
        if let (Some(mask), Some(squares)) = (&member.mask, &self.squares) {
            let (s, ss) = (&mut s[..size.area()], &mut ss[..size.area()]);
            search.correlator.correlate(&self.pixels, mask, size, scratch, s);
            search.correlator.correlate(squares, mask, size, scratch, ss);
            let left_out = i64::from(MIDDLE_SQUARE) * member.n;
            for ss in ss.iter_mut() {
                *ss += left_out;
            }
            let sums = s.chunks_exact(size.width).zip(ss.chunks_exact(size.width));
            for ((scores, st), (s, ss)) in rows.zip(sums) {
                score_row(member, st, s, ss, scores);
            }
        } else {
            let pixels = search.pixels(region, origin);
            for (y, (scores, st)) in rows.enumerate() {
                self.sliding.go_to(y, pixels, member.size, size.width);
                score_row(member, st, &self.sliding.sums, &self.sliding.squares, scores);
            }
        }
        ScoreTile { scores, size, origin, wanted: own }
    }
}

/// Scores windows by their sums. Kept apart so that the compiler sees one loop over plain slices.
fn score_row(member: &Member, st: &[i64], s: &[i64], ss: &[i64], scores: &mut [f64]) {
    let &Member { n, t1, variance, .. } = member;
    for (((score, &st), &s), &ss) in scores.iter_mut().zip(st).zip(s).zip(ss) {
        *score = score::ratio(n * st - s * t1, n * ss - s * s, variance);
    }
}
