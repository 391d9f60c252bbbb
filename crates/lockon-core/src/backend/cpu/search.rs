//! The search of one tile: data that all threads read, and the buffers of each.

use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use super::correlate::{Correlator, Pattern, Plans, Scratch, Spectrum};
use super::estimate::Estimates;
use super::exact::{self, Exact, ExactMember, ExactWork};
use super::plan::{Plan, Tile};
use super::products::{self, Products};
use super::simd::Level;
use super::sums::{MAX_WINDOW, RowSums, WindowVariances};
use super::wanted::Wanted;
use crate::backend::peaks::{Candidate, ScoreTile};
use crate::control::Control;
use crate::error::{Bytes, Error, Result};
use crate::frame::{PlaneRef, Rect, Size};
use crate::memory;
use crate::message::{Message, Setting};
use crate::template::{Bank, Template};

/// With a lower limit nearly every peak of the map is a match, and all scores are made exactly at once.
const MIN_ESTIMATED: f64 = 0.05;

/// Below this limit, a best score is looked for among the estimates before anything is scored exactly.
const LOW_THRESHOLD: f64 = 0.5;

/// About how long an exact score takes of which the sums are there, in nanoseconds.
const SUMMED_SCORE_NS: f64 = 10.0;

/// About how long an exact score takes beside one position of an exact map, in nanoseconds: of its own, a
/// pixel, and a pixel under a mask with gaps. The last is from a profile of a template of 60x60, where it was
/// 0.8 on a machine that others used too.
const ONE_SCORE_NS: f64 = 50.0;
const SCORED_PIXEL_NS: f64 = 0.05;
const MASKED_PIXEL_NS: f64 = 0.5;
/// About how long the variance of a window takes, for each of its rows, under a mask without gaps.
const SPAN_NS: f64 = 1.5;
/// About how long a position of an exact map takes, for each correlation: with a mask there are three.
const MAP_POSITION_NS: f64 = 10.0;

/// The data that all threads read: how the work is cut, and the templates' spectra.
pub(super) struct PreparedSearch {
    pub(super) bank: Arc<Bank>,
    pub(super) region: Size,
    pub(super) plan: Plan,
    pub(super) control: Control,
    level: Level,
    /// None if products of bytes are made.
    correlator: Option<Correlator<f32>>,
    members: Vec<Member>,
    /// The members that are searched now: only theirs are the transforms that are held.
    batch: Range<usize>,
    /// Made when it is needed first.
    exact: OnceLock<Exact>,
    /// Bytes that exact transforms may still take to be kept. Where there are too few, they are made for each
    /// tile.
    exact_room: AtomicUsize,
}

/// A template, ready to be searched for.
struct Member {
    size: Size,
    n: usize,
    /// Root of the template's variance, over n.
    scale: f64,
    /// The place of its name among the names.
    name: usize,
    is_masked: bool,
    /// The template less its mean, once it is in the batch; never, if it is too large for estimates.
    estimate: OnceLock<Estimate>,
    /// For products of bytes, if these take less time than transforms.
    products: Option<products::Pattern>,
    /// Made when it is needed first.
    exact: OnceLock<ExactMember>,
}

/// The spectra that estimates are made with.
struct Estimate {
    pattern: Pattern<f32>,
    mask: Option<Pattern<f32>>,
}

/// Bytes that one thread takes at most for tiles of that size and score maps of so many positions.
pub(super) fn worker_bytes(tile: Size, positions: usize, has_masks: bool) -> usize {
    let planes = if has_masks { 2 } else { 1 };
    let maps = positions * (8 + if has_masks { 8 } else { 0 }) + 16 * tile.width;
    let estimates =
        planes * Correlator::<f32>::spectrum_bytes(tile) + Correlator::<f32>::scratch_bytes(tile) + maps;
    let estimates = estimates + if has_masks { RowSums::bytes(tile) } else { 0 };
    estimates + ExactWork::bytes(tile, positions, has_masks)
}

impl PreparedSearch {
    /// Gets everything ready that does not depend on the frame. `patterns` are those of all members, where
    /// products of bytes take less time than transforms.
    pub(super) fn new(
        plans: &mut Plans<f32>,
        bank: Arc<Bank>,
        region: Size,
        (plan, patterns): (Plan, Option<Vec<products::Pattern>>),
        level: Level,
        control: &Control,
    ) -> Self {
        let mut patterns = patterns.map(Vec::into_iter);
        let correlator = patterns.is_none().then(|| Correlator::new(plans, plan.tile, level).under(control));
        let mut names = Vec::new();
        let members = bank.members().iter().map(|template| {
            let known = names.iter().position(|&name| name == template.name());
            let name = known.unwrap_or_else(|| {
                names.push(template.name());
                names.len() - 1
            });
            Member::new(template, name, patterns.as_mut().and_then(Iterator::next))
        });
        let members = members.collect();
        Self {
            bank,
            region,
            plan,
            control: control.clone(),
            level,
            correlator,
            members,
            batch: 0..0,
            exact: OnceLock::new(),
            exact_room: AtomicUsize::new(0),
        }
    }

    /// True if a batch is the one that is held.
    pub(super) fn holds(&self, batch: &Range<usize>) -> bool {
        self.batch == *batch
    }

    /// Switches to a batch of members. Data of other members are freed, and `exact_room` bytes may be kept
    /// for these.
    pub(super) fn go_to(&mut self, batch: &Range<usize>, exact_room: usize) {
        for member in &mut self.members[self.batch.clone()] {
            (member.estimate, member.exact) = (OnceLock::new(), OnceLock::new());
        }
        self.batch = batch.clone();
        *self.exact_room.get_mut() = exact_room;
    }

    /// Bytes that the transforms of each member use.
    pub(super) fn member_bytes(&self) -> impl Iterator<Item = usize> {
        let spectrum = Correlator::<f32>::spectrum_bytes(self.plan.tile);
        self.members.iter().map(move |member| match &member.products {
            Some(pattern) => pattern.bytes(),
            None if member.is_estimated() => member.planes() * spectrum,
            None => 0,
        })
    }

    /// Maximum bytes of one thread, without its results: the transforms of a tile and its score maps, in f32
    /// for estimates, and in f64 where all of a tile's scores are made exactly.
    pub(super) fn worker_bytes(&self) -> usize {
        let (tile, positions) = (self.plan.tile, self.positions());
        match self.correlator {
            Some(_) => worker_bytes(tile, positions, self.has_masks()),
            None => Products::bytes(tile, positions) + positions * 2 * size_of::<f32>(),
        }
    }

    /// True if it makes products of bytes.
    #[cfg(test)]
    pub(super) fn multiplies(&self) -> bool {
        self.correlator.is_none()
    }

    fn has_masks(&self) -> bool {
        self.members.iter().any(|member| member.is_masked)
    }

    /// The size of a member's score map.
    pub(super) fn map_size(&self, member: usize) -> Size {
        self.members[member].size.positions_in(self.region)
    }

    /// Nothing is known of the frame yet.
    pub(super) fn wanted(&self) -> Wanted {
        let names = self.members.iter().map(|member| member.name + 1).max().unwrap_or(0);
        Wanted::new(names)
    }

    /// The pixels of a tile: as many as there are, to the right and down from its first.
    fn pixels<'a>(&self, region: PlaneRef<'a>, (x, y): (usize, usize)) -> PlaneRef<'a> {
        let Size { width, height } = self.plan.tile;
        let rect = Rect::new(x, y, width.min(self.region.width - x), height.min(self.region.height - y));
        region.crop(rect)
    }

    /// The members of a group.
    fn group(&self, group: usize) -> Range<usize> {
        let start = |group: usize| self.batch.start + group * self.batch.len() / self.plan.groups;
        start(group)..start(group + 1)
    }

    /// Positions of the largest part of a score map.
    fn positions(&self) -> usize {
        let parts = (0..self.members.len()).flat_map(|member| {
            let map = self.map_size(member);
            (0..self.plan.tiles()).map(move |tile| self.plan.tile(tile, map).size.area())
        });
        parts.max().unwrap_or(0)
    }
}

impl Member {
    fn new(template: &Template, name: usize, products: Option<products::Pattern>) -> Self {
        let (size, sums) = (template.size(), template.sums());
        let (n, scale) = (sums.n as usize, (sums.variance() as f64).sqrt() / sums.n as f64);
        let is_masked = template.mask().is_some();
        let (estimate, exact) = (OnceLock::new(), OnceLock::new());
        Self { size, n, scale, name, is_masked, estimate, products, exact }
    }

    fn is_estimated(&self) -> bool {
        self.size.area() <= MAX_WINDOW
    }

    /// Planes that are transformed for it: its pixels, and its mask.
    fn planes(&self) -> usize {
        if self.is_masked { 2 } else { 1 }
    }
}

impl Estimate {
    fn new(correlator: &Correlator<f32>, template: &Template, scratch: &mut Scratch<f32>) -> Result<Self> {
        let (size, sums) = (template.size(), template.sums());
        let mean = sums.t1 as f64 / sums.n as f64;
        let mask_row = |y: usize| template.mask().map(|mask| &mask.data()[y * size.width..][..size.width]);
        let load = |y: usize, row: &mut [f32]| {
            for (out, &pixel) in row.iter_mut().zip(template.luma().as_ref().row(y)) {
                *out = (f64::from(pixel) - mean) as f32;
            }
            for (out, &counts) in row.iter_mut().zip(mask_row(y).into_iter().flatten()) {
                *out *= f32::from(counts);
            }
        };
        let pattern = correlator.pattern(size, load, scratch)?;
        let load_mask = |y: usize, row: &mut [f32]| {
            for (out, &counts) in row.iter_mut().zip(mask_row(y).into_iter().flatten()) {
                *out = f32::from(counts);
            }
        };
        let mask = template.mask().map(|_| correlator.pattern(size, load_mask, scratch)).transpose()?;
        Ok(Self { pattern, mask })
    }
}

/// The buffers of one thread, and its peaks.
pub(super) struct SearchWorker {
    transforms: Option<Transforms>,
    products: Option<Products>,
    /// Sums of one tile's windows, row by row; S and SS only where there are masks.
    correlations: Vec<f32>,
    s: Vec<f32>,
    ss: Vec<f32>,
    variances: Vec<f32>,
    /// The size of unmasked members whose variances these are.
    variances_of: Option<Size>,
    sliding: WindowVariances,
    /// Sums of the tile's rows, if there are masks, and whether they are this tile's.
    rows: Option<RowSums>,
    has_rows: bool,
    /// Made when it is needed first.
    exact: Option<ExactWork>,
    pub(super) found: Vec<Candidate>,
}

/// What transforms of tiles need.
struct Transforms {
    tile: TileSpectra,
    scratch: Scratch<f32>,
}

/// The spectra of a tile's pixels, and of their squares if there are masks.
struct TileSpectra {
    is_made: bool,
    pixels: Spectrum<f32>,
    pixels_norm: f64,
    squares: Option<Spectrum<f32>>,
    squares_norm: f64,
    /// The offset that is subtracted from squares: about their mean, as for pixels, so that the numbers and
    /// with them the errors are small.
    middle_square: i32,
}

impl SearchWorker {
    /// Room for any piece of work.
    ///
    /// # Errors
    /// `NoMemory`.
    pub(super) fn new(search: &PreparedSearch) -> Result<Self> {
        let positions = search.positions();
        let has_masks = search.has_masks();
        let map = |positions| memory::filled("estimates of scores", positions, 0.0_f32);
        let masked_positions = if has_masks { positions } else { 0 };
        let transforms = |correlator: &Correlator<f32>| {
            let tile = TileSpectra {
                is_made: false,
                pixels: correlator.spectrum()?,
                pixels_norm: 0.0,
                squares: has_masks.then(|| correlator.spectrum()).transpose()?,
                squares_norm: 0.0,
                middle_square: 0,
            };
            Ok(Transforms { tile, scratch: correlator.scratch()? })
        };
        let products = match search.correlator {
            Some(_) => None,
            None => Some(Products::new(search.plan.tile, positions)?),
        };
        Ok(Self {
            transforms: search.correlator.as_ref().map(transforms).transpose()?,
            products,
            correlations: map(positions)?,
            s: map(masked_positions)?,
            ss: map(masked_positions)?,
            variances: map(positions)?,
            variances_of: None,
            sliding: WindowVariances::new(search.plan.tile.width, search.level),
            rows: has_masks.then(|| RowSums::new(search.plan.tile, search.level)).transpose()?,
            has_rows: false,
            exact: None,
            found: Vec::new(),
        })
    }

    /// Makes the transforms that the estimates of one member of the batch need, unless they are there.
    ///
    /// # Errors
    /// `NoMemory`, or `Stopped`.
    pub(super) fn prepare(&mut self, search: &PreparedSearch, member: usize) -> Result<()> {
        search.control.check()?;
        let Member { estimate, .. } = &search.members[member];
        if let (Some(correlator), Some(transforms)) = (&search.correlator, &mut self.transforms)
            && search.members[member].is_estimated()
            && estimate.get().is_none()
        {
            let template = &search.bank.members()[member];
            let made = Estimate::new(correlator, template, &mut transforms.scratch)?;
            // Each member is prepared by one thread.
            let _ = estimate.set(made);
        }
        Ok(())
    }

    /// Does one piece of work: adds the peaks of one group of members in one tile to those found, which may
    /// use up to `room` bytes.
    ///
    /// # Errors
    /// `NoMemory`; `MemoryLimit` if there are too many peaks; `Stopped`.
    pub(super) fn find(
        &mut self,
        search: &PreparedSearch,
        region: PlaneRef<'_>,
        piece: usize,
        wanted: &Wanted,
        room: usize,
    ) -> Result<()> {
        let (tile, group) = search.plan.piece(piece);
        self.go_to_tile();
        for member in search.group(group) {
            search.control.check()?;
            let before = self.found.len();
            if !self.find_by_estimates(search, region, tile, member, wanted) {
                self.found.truncate(before);
                // Lent out, because the scores borrow the worker.
                let mut found = std::mem::take(&mut self.found);
                let threshold = wanted.threshold(search.members[member].name);
                let scores = self.score(search, region, tile, member)?;
                // Left unfinished, these are no scores.
                search.control.check()?;
                scores.find(member as u32, threshold, &mut found);
                self.found = found;
            }
            let taken = self.found.capacity() * size_of::<Candidate>();
            if taken > room {
                return Err(Error::MemoryLimit {
                    what: format!("a list of {} peaks", self.found.len()),
                    wanted: Bytes(taken as u64),
                    limit: Bytes(room as u64),
                    remedy: Message::new(
                        "ask for a higher {}, or give more {}",
                        [Setting::named("min-score"), Setting::named("memory")],
                    ),
                });
            }
        }
        Ok(())
    }

    /// True if estimates did not do for some tile.
    #[cfg(test)]
    pub(super) fn has_made_a_map(&self) -> bool {
        self.exact.is_some()
    }

    /// Forgets the tile before.
    fn go_to_tile(&mut self) {
        if let Some(transforms) = &mut self.transforms {
            transforms.tile.is_made = false;
        }
        if let Some(products) = &mut self.products {
            products.forget();
        }
        self.has_rows = false;
        self.variances_of = None;
        if let Some(exact) = &mut self.exact {
            exact.forget();
        }
    }

    /// The exact scores of one member at the positions of a tile.
    ///
    /// For several members of a tile, it is called for one after the other.
    fn score(
        &mut self,
        search: &PreparedSearch,
        region: PlaneRef<'_>,
        tile: usize,
        member: usize,
    ) -> Result<ScoreTile<'_>> {
        if let (Some(products), Some(pattern)) = (&mut self.products, &search.members[member].products) {
            let part = search.plan.tile(tile, search.map_size(member));
            products.make(search.level, search.pixels(region, part.origin), pattern, part.size);
            return Ok(products.scores(search.level, pattern, part));
        }
        let make = || Exact::new(search.plan.tile, search.level, &search.control);
        let exact = search.exact.get_or_init(make);
        if self.exact.is_none() {
            self.exact = Some(ExactWork::new(exact, search.positions())?);
        }
        let work = self.exact.as_mut().expect("just made");
        let Member { exact: kept, .. } = &search.members[member];
        let part = search.plan.tile(tile, search.map_size(member));
        let pixels = search.pixels(region, part.origin);
        if let Some(ready) = kept.get() {
            return work.score(exact, ready, pixels, part);
        }
        let ready = exact.member(&search.bank.members()[member], work)?;
        let bytes = search.members[member].planes() * Correlator::<f64>::spectrum_bytes(search.plan.tile);
        let take = |room: usize| room.checked_sub(bytes);
        if search.exact_room.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take).is_err() {
            return work.score(exact, &ready, pixels, part);
        }
        // If another thread was first, its result is kept, and so many bytes fewer than there is room for.
        work.score(exact, kept.get_or_init(|| ready), pixels, part)
    }

    /// As [`Self::score`], for a tile that may be another than before.
    pub(super) fn score_tile(
        &mut self,
        search: &PreparedSearch,
        region: PlaneRef<'_>,
        tile: usize,
        member: usize,
    ) -> Result<ScoreTile<'_>> {
        self.go_to_tile();
        self.score(search, region, tile, member)
    }

    /// Adds the peaks of one member in one tile to those found. False if so many positions had to be scored
    /// one by one that an exact map takes less time; the added peaks must be dropped then.
    fn find_by_estimates(
        &mut self,
        search: &PreparedSearch,
        region: PlaneRef<'_>,
        tile: usize,
        member: usize,
        wanted: &Wanted,
    ) -> bool {
        let Member { size: window, n, name, is_masked, .. } = search.members[member];
        let level = search.level;
        let is_low = |threshold: f64| threshold < MIN_ESTIMATED;
        if is_low(wanted.threshold(name)) && !wanted.is_best_only() {
            return false;
        }
        let part = search.plan.tile(tile, search.map_size(member));
        let Some(Errors { error, spread, unknown }) = self.estimate(search, region, member, part) else {
            return false;
        };
        // Stopped in between, these are no estimates. The caller checks too.
        if search.control.is_stopped() {
            return true;
        }
        let Tile { origin, size, own } = part;
        let estimates = Estimates {
            correlations: &self.correlations[..size.area()],
            variances: &self.variances[..size.area()],
            size,
            error,
            spread,
            scale: search.members[member].scale,
        };
        if wanted.is_best_only()
            && wanted.threshold(name) < LOW_THRESHOLD
            && let Some(reached) = estimates.reached(level)
        {
            wanted.raise(name, reached);
        }
        if is_low(wanted.threshold(name)) {
            return false;
        }
        let template = &search.bank.members()[member];
        let correlations = if is_masked { 3.0 } else { 1.0 };
        let map_ns = MAP_POSITION_NS * correlations * size.area() as f64;
        let pixels_ns = if is_masked && template.spans().is_none() {
            MASKED_PIXEL_NS * window.area() as f64
        } else {
            SCORED_PIXEL_NS * n as f64
        };
        let summed = self.products.as_ref().zip(search.members[member].products.as_ref());
        let score_ns = if summed.is_some() { SUMMED_SCORE_NS } else { ONE_SCORE_NS + pixels_ns };
        // Where bounds on a variance say little, the variance itself often shows that there is no match.
        let spans = template.spans().filter(|_| is_masked);
        let look_ns = spans.map_or(0.0, |spans| SPAN_NS * spans.len() as f64);
        // Nothing that is found excludes these: all of them would be scored.
        if unknown as f64 * score_ns > map_ns {
            return false;
        }
        if let (Some(_), Some(rows), false) = (spans, &mut self.rows, self.has_rows) {
            rows.fill(search.pixels(region, origin));
            self.has_rows = true;
        }
        let rows = self.rows.as_ref().zip(spans);
        let mut left_ns = map_ns;
        let map = search.map_size(member);
        let score_at = |at: (usize, usize)| match summed {
            Some((products, pattern)) => products.score_at(pattern, (at.0 - origin.0, at.1 - origin.1)),
            None => exact::score_at(level, region, template, at),
        };
        for y in own.y..own.y + own.h {
            if search.control.is_stopped() {
                return true;
            }
            let found = &mut self.found;
            let visit = |x: usize| {
                let threshold = wanted.threshold(name);
                if left_ns <= 0.0 {
                    return;
                }
                if let Some((rows, spans)) = rows {
                    left_ns -= look_ns;
                    let variance = rows.variance((x, y), spans, n);
                    if estimates.most_of(y * size.width + x, variance) < threshold {
                        return;
                    }
                }
                if !estimates.may_be_peak((x, y), threshold) {
                    return;
                }
                let at = (origin.0 + x, origin.1 + y);
                let score = score_at(at);
                left_ns -= score_ns;
                if score < threshold {
                    return;
                }
                left_ns -= 8.0 * score_ns;
                let before = found.len();
                exact::find_peak(map, score_at, member as u32, at, score, found);
                if found.len() > before {
                    wanted.raise(name, score);
                }
            };
            estimates.may_reach(level, wanted.threshold(name), y, (own.x, own.x + own.w), visit);
            if left_ns <= 0.0 {
                return false;
            }
        }
        true
    }

    /// Estimates the scores of one member at the positions of a part of its map: makes `correlations` and
    /// `variances`, and returns their errors. `None` if the member is too large for that.
    fn estimate(
        &mut self,
        search: &PreparedSearch,
        region: PlaneRef<'_>,
        member: usize,
        Tile { origin, size, .. }: Tile,
    ) -> Option<Errors> {
        let (template, member) = (&search.bank.members()[member], &search.members[member]);
        let pixels = search.pixels(region, origin);
        let correlations = &mut self.correlations[..size.area()];
        if let (Some(products), Some(pattern)) = (&mut self.products, &member.products) {
            products.make(search.level, pixels, pattern, size);
            let variances = &mut self.variances[..size.area()];
            let error = products.estimate(search.level, pattern, size, correlations, variances);
            return Some(Errors { error, spread: 0.0, unknown: 0 });
        }
        let Estimate { pattern, mask } = member.estimate.get()?;
        let (correlator, transforms) = (search.correlator.as_ref()?, self.transforms.as_mut()?);
        let Transforms { tile, scratch } = transforms;
        tile.make(correlator, search.level, pixels, scratch);
        correlator.correlate(&tile.pixels, pattern, size, scratch, |v| v, correlations);
        let error = correlator.error(tile.pixels_norm, pattern);
        let (Some(mask), Some(squares)) = (mask, &tile.squares) else {
            if self.variances_of != Some(member.size) {
                let rows = self.variances[..size.area()].chunks_exact_mut(size.width);
                for (y, row) in rows.enumerate() {
                    self.sliding.go_to(y, pixels, member.size, row);
                }
                self.variances_of = Some(member.size);
            }
            return Some(Errors { error, spread: 0.0, unknown: 0 });
        };
        let (s, ss) = (&mut self.s[..size.area()], &mut self.ss[..size.area()]);
        correlator.correlate(&tile.pixels, mask, size, scratch, |v| v, s);
        correlator.correlate(squares, mask, size, scratch, |v| v, ss);
        let n = member.n as f64;
        let (s_error, ss_error) =
            (correlator.error(tile.pixels_norm, mask), correlator.error(tile.squares_norm, mask));
        self.variances_of = None;
        let variances = &mut self.variances[..size.area()];
        let left_out = f64::from(tile.middle_square) * n;
        let mut unknown = 0;
        search.level.run(
            #[inline(always)]
            || {
                for ((out, &s), &ss) in variances.iter_mut().zip(&*s).zip(&*ss) {
                    let s = f64::from(s).abs() + s_error;
                    let least = n * (f64::from(ss) - ss_error + left_out) - s * s;
                    // Whether it is flat is not known, so it is not said.
                    *out = (least as f32).max(f32::MIN_POSITIVE);
                    unknown += usize::from(*out == f32::MIN_POSITIVE);
                }
            },
        );
        if let (1.., Some(spans), Some(rows)) = (unknown, template.spans(), &mut self.rows) {
            // Without this, each position on a flat or nearly flat ground would have to be scored exactly.
            if !self.has_rows {
                rows.fill(pixels);
                self.has_rows = true;
            }
            for (y, row) in variances.chunks_exact_mut(size.width).enumerate() {
                if row.contains(&f32::MIN_POSITIVE) {
                    rows.variances(y, spans, member.n, row);
                }
            }
            unknown = 0;
        } else if unknown > 0 {
            // A window that is flat as a whole is flat under the mask.
            let whole = &mut s[..size.width];
            for (y, row) in variances.chunks_exact_mut(size.width).enumerate() {
                self.sliding.go_to(y, pixels, member.size, whole);
                for (out, &whole) in row.iter_mut().zip(&*whole) {
                    *out = if whole == 0.0 { 0.0 } else { *out };
                }
            }
            unknown = variances.iter().filter(|variance| **variance == f32::MIN_POSITIVE).count();
        }
        // The upper bound less the lower: 2 n times the error of SS, and (|S| + e)^2 - (|S| - e)^2, |S| being
        // at most the norms' product by Cauchy-Schwarz.
        let spread = 2.0 * n * ss_error + 4.0 * s_error * (tile.pixels_norm * n.sqrt() + s_error);
        Some(Errors { error, spread, unknown })
    }
}

/// The maximum error of estimates.
struct Errors {
    /// The largest error of a correlation.
    error: f64,
    /// The largest amount by which a variance is above its lower bound.
    spread: f64,
    /// Positions whose variance has no lower bound, so that they may have any score.
    unknown: usize,
}

impl TileSpectra {
    /// Makes the spectra of a tile, unless they are made.
    fn make(
        &mut self,
        correlator: &Correlator<f32>,
        level: Level,
        pixels: PlaneRef<'_>,
        scratch: &mut Scratch<f32>,
    ) {
        if self.is_made {
            return;
        }
        self.is_made = true;
        let count = pixels.size().area() as i64;
        let (sum, squares) = moments(level, pixels);
        let middle = ((sum + count / 2) / count) as i32;
        let wide = i64::from(middle);
        self.pixels_norm = ((squares - 2 * wide * sum + wide * wide * count) as f64).sqrt();
        let width = pixels.size().width;
        let load = |y: usize, row: &mut [f32], left_out: i32, power: fn(i32) -> i32| {
            let (row, rest) = row.split_at_mut(width);
            for (out, &pixel) in row.iter_mut().zip(pixels.row(y)) {
                *out = (power(i32::from(pixel) - middle) - left_out) as f32;
            }
            rest.fill(0.0);
        };
        let height = pixels.size().height;
        let load_pixels = |y: usize, row: &mut [f32]| {
            level.run(
                #[inline(always)]
                || load(y, row, 0, |v| v),
            );
        };
        correlator.transform(height, load_pixels, scratch, &mut self.pixels);
        let Some(spectrum) = &mut self.squares else { return };
        (self.middle_square, self.squares_norm) = squares_about(middle, pixels);
        let left_out = self.middle_square;
        correlator.transform(height, |y, row| load(y, row, left_out, |v| v * v), scratch, spectrum);
    }
}

/// The rounded mean of the squares of pixels that are counted from `middle`, and the norm of their
/// differences from it.
pub(super) fn squares_about(middle: i32, pixels: PlaneRef<'_>) -> (i32, f64) {
    let count = pixels.size().area() as i64;
    let mut histogram = [0_i64; 256];
    for &pixel in pixels.rows().flatten() {
        histogram[usize::from(pixel)] += 1;
    }
    let square = |v: usize| (v as i64 - i64::from(middle)).pow(2);
    let sum: i64 = histogram.iter().enumerate().map(|(v, times)| times * square(v)).sum();
    let middle_square = (sum + count / 2) / count;
    let squares = histogram.iter().enumerate().map(|(v, times)| times * (square(v) - middle_square).pow(2));
    (middle_square as i32, (squares.sum::<i64>() as f64).sqrt())
}

/// The mean of the pixels, rounded.
pub(super) fn middle_of(pixels: PlaneRef<'_>) -> i32 {
    let count = pixels.size().area() as i64;
    let sum: i64 = pixels.rows().map(|row| exact::row_sums(row).0).sum();
    ((sum + count / 2) / count) as i32
}

/// The sums of the pixels and of their squares.
fn moments(level: Level, pixels: PlaneRef<'_>) -> (i64, i64) {
    level.run(
        #[inline(always)]
        || {
            pixels.rows().fold((0, 0), |(sum, squares), row| {
                let (s, ss) = exact::row_sums(row);
                (sum + s, squares + ss)
            })
        },
    )
}
