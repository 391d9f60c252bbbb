//! The matches of a bank in a frame, on the processor's cores.
//!
//! NCC needs three sums of every window. Most positions are no match, and that is seen from estimates of the
//! score with bounds on their errors (`estimate.rs`): the sum of products by FFT in f32 (`correlate.rs`), the
//! window's variance by sliding (`sums.rs`) or, under a mask, by FFT as well: from the correlations of I and
//! I * I with the mask. The exact scores of the remaining positions are computed one by one, or, where too
//! many remain, for all positions of a tile by FFT in f64 (`exact.rs`). The reported results do not depend on
//! which method it was.
//!
//! Work is cut into tiles (`plan.rs`). A thread takes the next one, transforms its pixels once, and for each
//! member of the bank correlates, bounds the scores and keeps the peaks (`search.rs`): all of it stays in
//! that core's cache, and nothing waits for other threads.

use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use rayon::prelude::*;

use super::correlate::Plans;
use super::plan::{Plan, Tile, Workload};
use super::products;
use super::search::{PreparedSearch, SearchWorker};
use super::simd::Level;
use super::wanted::Wanted;
use super::workload;
use crate::backend::peaks::{Candidate, Selector};
use crate::config::Limits;
use crate::control::Control;
use crate::error::{Bytes, Error, Result};
use crate::frame::{PlaneRef, Rect, Size};
use crate::locks::lock;
use crate::memory;
use crate::message::{Message, Setting};
use crate::results::Match;
use crate::template::Bank;

/// Plans FFTs and remembers them, so that another [`Matcher`] of similar sizes is made quickly.
pub struct Planner {
    level: Level,
    plans: Plans<f32>,
    /// Small templates are multiplied without transforms where that is faster.
    multiplies: bool,
}

impl Planner {
    /// A planner that remembers nothing yet, for [`Level::best`].
    pub fn new() -> Self {
        Self::at(Level::best())
    }

    /// A planner that remembers nothing yet, whose matchers use the instructions of a level.
    pub fn at(level: Level) -> Self {
        Self { level, plans: Plans::new(level), multiplies: true }
    }

    /// As [`Self::at`]; its matchers make transforms whatever is faster.
    #[cfg(test)]
    fn transforming(level: Level) -> Self {
        Self { multiplies: false, ..Self::at(level) }
    }
}

impl Default for Planner {
    fn default() -> Self {
        Self::new()
    }
}

/// Finds the matches of one bank in regions of one size. See the module's documentation for how.
pub struct Matcher {
    search: PreparedSearch,
    workers: Vec<SearchWorker>,
    /// The members whose transforms fit into memory together, one batch after the other.
    batches: Vec<Range<usize>>,
    /// Bytes that are left for exact transforms.
    exact_room: usize,
    /// About how long a frame takes, in seconds, and how many bytes the transforms and the threads.
    estimated_s: f64,
    taken: usize,
    /// Bytes that the peaks of one thread may take.
    peaks_room: usize,
    wanted: Wanted,
    selector: Selector,
    candidates: Vec<Candidate>,
}

/// Members of a batch, where not all fit at once. With so many, the transforms of the tiles, which are made
/// for each batch, no longer count; more would use memory and save no time, since the members' own transforms
/// are made again for each frame either way.
const BATCH: usize = 64;

/// Bytes that the peaks of a frame may use in any case. All of them are kept until the last is found, since
/// the best peaks decide which others count.
pub(super) const LEAST_PEAKS: usize = 1 << 20;

impl Matcher {
    /// A matcher of `bank` in regions of size `region`, which works on up to `threads` threads.
    ///
    /// # Panics
    /// If a member of the bank does not fit in the region, or there are no threads.
    pub fn new(planner: &mut Planner, bank: Arc<Bank>, region: Size, threads: usize) -> Self {
        Self::within(planner, bank, region, threads, &Control::new(), usize::MAX)
            .expect("there is memory for its workers")
    }

    /// As [`Self::new`], for a run that can be stopped. It may use up to `memory` bytes besides bank and
    /// frame.
    ///
    /// The memory holds the transforms of the members (two of a tile's size for a masked one), the working
    /// memory of each thread, and lists of peaks. Where all transforms do not fit, members are searched in
    /// batches, and their transforms are made again for each frame; where a thread does not fit, there is one
    /// less. The results do not change.
    ///
    /// # Errors
    /// `MemoryLimit` if one member on one thread takes more; `NoMemory` if the system has less.
    ///
    /// # Panics
    /// As [`Self::new`].
    pub fn within(
        planner: &mut Planner,
        bank: Arc<Bank>,
        region: Size,
        threads: usize,
        control: &Control,
        memory: usize,
    ) -> Result<Self> {
        assert!(threads > 0, "a matcher without threads");
        for member in bank.members() {
            assert!(member.size().fits_in(region), "template {} in a region of {region}", member.size());
        }
        let work = workload::of_bank(&bank, region, threads);
        let plan = Plan::new(&work);
        let selector = Selector::new(&bank);
        let Planner { level, plans, multiplies } = planner;
        let patterns = multiplies.then(|| products::patterns(&bank, &plan, &work, *level)).flatten();
        let search = PreparedSearch::new(plans, bank, region, (plan, patterns), *level, control);
        let worker = search.worker_bytes();
        let largest = search.member_bytes().max().unwrap_or(0);
        let least = worker + largest + LEAST_PEAKS;
        if memory < least {
            return Err(Error::MemoryLimit {
                what: format!("a search in {region} for one template at a time"),
                wanted: Bytes(least as u64),
                limit: Bytes(memory as u64),
                remedy: Message::new(
                    "give more {}, or search inside a smaller {}",
                    [Setting::named("memory"), Setting::named("roi")],
                ),
            });
        }
        let most = 1 + (memory - least) / worker;
        let threads = threads.min(plan.pieces()).min(most);
        let rest = memory - threads * worker;
        let peaks = (rest / 4).max(LEAST_PEAKS);
        let members: usize = search.member_bytes().sum();
        let all = (rest - peaks).max(largest);
        let room = if members > all { all.min(BATCH * largest) } else { all };
        let (batches, exact_room) = batches(search.member_bytes(), room);
        let workers = (0..threads).map(|_| SearchWorker::new(&search)).collect::<Result<_>>()?;
        let wanted = search.wanted();
        let taken = threads * worker + members.min(room);
        let work = Workload { threads, ..work };
        let again = if batches.len() > 1 { plan.preparation_ns(&work) } else { 0.0 };
        let estimated_s = (plan.cost_ns(&work) + again) / 1e9;
        // The peaks of all threads come together in one more list.
        let peaks_room = peaks / 2 / threads;
        let candidates = Vec::new();
        Ok(Self {
            search,
            workers,
            batches,
            exact_room,
            estimated_s,
            taken,
            peaks_room,
            wanted,
            selector,
            candidates,
        })
    }

    /// About how long a frame takes, in seconds of the machine that the plan's constants were measured on.
    pub fn estimated_seconds(&self) -> f64 {
        self.estimated_s
    }

    /// Its approximate memory, besides bank and frame, without lists of peaks.
    pub fn bytes(&self) -> Bytes {
        Bytes(self.taken as u64)
    }

    /// The number of searched members.
    pub fn members(&self) -> usize {
        self.search.bank.members().len()
    }

    /// In how many batches the members are searched.
    pub fn batches(&self) -> usize {
        self.batches.len()
    }

    /// Replaces the contents of `matches` by those inside `roi`, exact: names in bank order, best first
    /// within a name.
    ///
    /// Runs on the rayon pool that it is called in, or on the calling thread if it was made for one thread.
    /// Allocates nothing once its lists have grown to their largest.
    ///
    /// # Errors
    /// `Stopped`, of no matches, if the run is; `NoMemory`, or `MemoryLimit` if there are too many peaks.
    ///
    /// # Panics
    /// If `roi` does not lie inside `frame` or is not of the size that it was made for.
    pub fn run(
        &mut self,
        frame: PlaneRef<'_>,
        roi: Rect,
        limits: &Limits,
        matches: &mut Vec<Match>,
    ) -> Result<()> {
        matches.clear();
        let region = self.crop(frame, roi);
        self.wanted.reset(limits);
        for worker in &mut self.workers {
            worker.found.clear();
        }
        for batch in &self.batches {
            if !self.search.holds(batch) {
                self.search.go_to(batch, self.exact_room);
                let search = &self.search;
                let made =
                    share(&mut self.workers, batch.clone(), |worker, member| worker.prepare(search, member));
                if made.is_err() {
                    // Some of them do not exist.
                    self.search.go_to(&(0..0), 0);
                }
                made?;
            }
            let (search, wanted, room) = (&self.search, &self.wanted, self.peaks_room);
            share(&mut self.workers, 0..search.plan.pieces(), |worker, piece| {
                worker.find(search, region, piece, wanted, room)
            })?;
        }
        // A stop in the last member of a piece leaves peaks out. There is no way back from it, so one look is
        // enough.
        self.search.control.check()?;
        self.candidates.clear();
        for worker in &self.workers {
            self.candidates.extend_from_slice(&worker.found);
        }
        self.selector.select(&mut self.candidates, &self.search.bank, (roi.x, roi.y), limits, matches);
        Ok(())
    }

    /// The number of threads that work on a frame. One is the calling thread.
    pub fn threads(&self) -> usize {
        self.workers.len()
    }

    /// The score map of one member inside `roi`: (W-w+1) x (H-h+1) exact scores, row by row, on the threads
    /// of [`Self::run`], which never makes a whole map.
    ///
    /// # Errors
    /// `NoMemory`.
    ///
    /// # Panics
    /// As [`Self::run`], and if there is no such member.
    pub fn score_map(&mut self, frame: PlaneRef<'_>, roi: Rect, member: usize) -> Result<Vec<f64>> {
        let region = self.crop(frame, roi);
        let Self { search, workers, .. } = self;
        let map = search.map_size(member);
        let mut scores = memory::filled("a map of scores", map.area(), 0.0)?;
        let whole = Mutex::new(&mut scores);
        share(workers, 0..search.plan.tiles(), |worker, tile| {
            let Tile { origin: (x, y), own, .. } = search.plan.tile(tile, map);
            let computed = worker.score_tile(search, region, tile, member)?;
            let mut whole = lock(&whole);
            for row in own.y..own.y + own.h {
                let from = &computed.scores[row * computed.size.width + own.x..][..own.w];
                whole[(y + row) * map.width + x + own.x..][..own.w].copy_from_slice(from);
            }
            Ok(())
        })?;
        Ok(scores)
    }

    fn crop<'a>(&self, frame: PlaneRef<'a>, roi: Rect) -> PlaneRef<'a> {
        assert_eq!(roi.size(), self.search.region, "size of a region of interest");
        frame.crop(roi)
    }
}

/// Does all pieces of work, each by the next worker that is free. The first failure ends it.
fn share(
    workers: &mut [SearchWorker],
    pieces: Range<usize>,
    work: impl Fn(&mut SearchWorker, usize) -> Result<()> + Sync,
) -> Result<()> {
    let next = AtomicUsize::new(pieces.start);
    let work = |worker: &mut SearchWorker| {
        loop {
            let piece = next.fetch_add(1, Ordering::Relaxed);
            if piece >= pieces.end {
                return Ok(());
            }
            // Others find nothing left to do then.
            work(worker, piece).inspect_err(|_| next.store(pieces.end, Ordering::Relaxed))?;
        }
    };
    match workers {
        [alone] => work(alone),
        workers => workers.par_iter_mut().with_max_len(1).try_for_each(work),
    }
}

/// Returns the members in batches that use no more than `room`, and the memory that a single batch leaves of
/// it. `members` gives the bytes of each member. No member uses more than `room` alone.
fn batches(members: impl Iterator<Item = usize>, room: usize) -> (Vec<Range<usize>>, usize) {
    let mut batches: Vec<Range<usize>> = Vec::new();
    let mut taken = 0;
    for (index, bytes) in members.enumerate() {
        match batches.last_mut() {
            Some(batch) if bytes <= room - taken => {
                batch.end = index + 1;
                taken += bytes;
            }
            _ => {
                batches.push(index..index + 1);
                taken = bytes;
            }
        }
    }
    let left = if batches.len() == 1 { room - taken } else { 0 };
    (batches, left)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};

    use super::*;
    use crate::frame::Plane;
    use crate::reference;
    use crate::template::Template;

    /// Numbers that look random and are the same every time.
    fn noise(seed: u64) -> impl FnMut() -> usize {
        let mut state = seed;
        move || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) as usize
        }
    }

    /// A picture with structure at several sizes, in rows of `stride` bytes whose padding differs from the
    /// pixels.
    fn picture(size: Size, stride: usize, seed: u64) -> Vec<u8> {
        let mut next = noise(seed);
        let mut data: Vec<u8> = (0..stride * size.height).map(|_| next() as u8).collect();
        for y in 0..size.height {
            for x in 0..size.width {
                let pixel = &mut data[y * stride + x];
                *pixel = (*pixel >> 3) + ((x / 5 * 37 + y / 3 * 59) % 11 * 19) as u8;
            }
        }
        data
    }

    fn cut(frame: PlaneRef<'_>, rect: Rect, mask: Option<&Plane>) -> Template {
        Template::new("t", frame.crop(rect).to_plane(), mask).unwrap()
    }

    fn disc(size: Size) -> Plane {
        let inside = |x: usize, y: usize| {
            let (dx, dy) = (2 * x as i64 + 1 - size.width as i64, 2 * y as i64 + 1 - size.height as i64);
            let (w, h) = (size.width as i64, size.height as i64);
            dx * dx * h * h + dy * dy * w * w <= w * w * h * h
        };
        let data = (0..size.area()).map(|i| u8::from(inside(i % size.width, i / size.width)) * 255).collect();
        Plane::from_vec(data, size)
    }

    fn matcher(bank: Bank, region: Size, threads: usize) -> Matcher {
        Matcher::new(&mut Planner::new(), Arc::new(bank), region, threads)
    }

    /// Planners that make transforms, and products where these are faster.
    fn planners(level: Level) -> [Planner; 2] {
        [Planner::transforming(level), Planner::at(level)]
    }

    fn run(matcher: &mut Matcher, frame: PlaneRef<'_>, roi: Rect, limits: &Limits) -> Vec<Match> {
        // Left over from another frame, and to be gone afterwards.
        let mut matches = vec![Match {
            template: "stale".into(),
            x: 1,
            y: 2,
            w: 3,
            h: 4,
            score: f64::NAN,
            scale: 1.0,
            angle: 0.0,
            cx: 2.5,
            cy: 4.0,
        }];
        matcher.run(frame, roi, limits, &mut matches).unwrap();
        matches
    }

    /// Checks maps and matches against the reference, for several numbers of threads and all levels of
    /// instructions.
    fn check(frame: PlaneRef<'_>, bank: &Bank, roi: Rect, limits: &Limits) {
        let expected = reference::ncc::matches(frame, bank, roi, limits);
        let levels = Level::available().into_iter().map(|level| (level, 2));
        for (level, threads) in levels.chain([(Level::best(), 1), (Level::best(), 5)]) {
            for mut planner in planners(level) {
                let mut matcher = Matcher::new(&mut planner, Arc::new(bank.clone()), roi.size(), threads);
                assert_eq!(run(&mut matcher, frame, roi, limits), expected, "{threads} threads, {level}");
                for (member, template) in bank.members().iter().enumerate() {
                    let expected = reference::ncc::score_map(frame.crop(roi), template);
                    let found = matcher.score_map(frame, roi, member).unwrap();
                    let differs = found.iter().zip(&expected).position(|(a, b)| a.to_bits() != b.to_bits());
                    assert_eq!((found.len(), differs), (expected.len(), None), "member {member}");
                }
            }
        }
    }

    const EVERYTHING: Limits = Limits { min_score: -1.0, max_matches: usize::MAX, max_overlap: 1.0 };

    #[test]
    fn ncc_matches_reference_when_stride_exceeds_width() {
        let size = Size::new(123, 33);
        let data = picture(size, 131, 1);
        let frame = PlaneRef::new(&data, size, 131);
        let bank = Bank::new(vec![cut(frame, Rect::new(61, 19, 7, 5), None)]).unwrap();
        check(frame, &bank, Rect::whole(size), &EVERYTHING);
        check(frame, &bank, Rect::new(13, 3, 101, 29), &Limits::default());
    }

    #[test]
    fn ncc_matches_reference_under_masks() {
        let size = Size::new(67, 61);
        let data = picture(size, 67, 2);
        let frame = PlaneRef::new(&data, size, 67);
        let rect = Rect::new(20, 30, 13, 11);
        let bank =
            Bank::new(vec![cut(frame, rect, Some(&disc(rect.size()))), cut(frame, rect, None)]).unwrap();
        check(frame, &bank, Rect::whole(size), &EVERYTHING);
    }

    #[test]
    fn ncc_matches_reference_when_tiles_meet_inside_a_plateau() {
        // Stripes repeat every 8 columns and never change downwards: every score has many equals.
        let size = Size::new(240, 90);
        let data = (0..size.area()).map(|i| ((i % size.width) % 8 * 30) as u8).collect();
        let frame = Plane::from_vec(data, size);
        let bank = Bank::new(vec![cut(frame.as_ref(), Rect::new(0, 0, 9, 6), None)]).unwrap();
        check(frame.as_ref(), &bank, Rect::whole(size), &EVERYTHING);
        let tiles = matcher(bank, size, 5).search.plan.tiles();
        assert!(tiles > 1, "{tiles} tile has no seams");
    }

    #[test]
    fn flat_windows_score_exactly_zero() {
        for grey in [0, 127, 128, 255] {
            let mut frame = Plane::from_vec(vec![grey; 64 * 48], Size::new(64, 48));
            frame.data_mut()[20 * 64 + 50] = 77;
            let frame = frame.as_ref();
            let rect = Rect::new(47, 18, 7, 5);
            let members = vec![cut(frame, rect, None), cut(frame, rect, Some(&disc(rect.size())))];
            let counted = [members[0].sums().n as usize, members[1].sums().n as usize];
            let bank = Bank::new(members).unwrap();
            let mut matcher = matcher(bank, frame.size(), 1);
            for (member, counted) in counted.into_iter().enumerate() {
                let map = matcher.score_map(frame, Rect::whole(frame.size()), member).unwrap();
                assert_eq!(map[0].to_bits(), 0.0_f64.to_bits());
                assert_eq!(map[18 * 58 + 47], 1.0);
                // The one other pixel is in as many windows as the template has counted pixels.
                assert_eq!(map.iter().filter(|&&s| s != 0.0).count(), counted);
            }
        }
    }

    #[test]
    fn black_and_white_checkerboards_match_reference() {
        let size = Size::new(150, 140);
        for pattern in [|x: usize, y: usize| (x + y) % 2, |x: usize, y: usize| (x / 64 + y / 64) % 2] {
            let pixel = |i: usize| (pattern(i % size.width, i / size.width) * 255) as u8;
            let frame = Plane::from_vec((0..size.area()).map(pixel).collect(), size);
            let bank = Bank::new(vec![cut(frame.as_ref(), Rect::new(3, 5, 131, 127), None)]).unwrap();
            check(frame.as_ref(), &bank, Rect::whole(size), &EVERYTHING);
        }
    }

    #[test]
    fn a_template_as_large_as_the_region_has_one_position() {
        let size = Size::new(50, 40);
        let data = picture(size, 50, 4);
        let frame = PlaneRef::new(&data, size, 50);
        let roi = Rect::new(11, 7, 31, 29);
        let bank = Bank::new(vec![cut(frame, roi, None)]).unwrap();
        let found = run(&mut matcher(bank, roi.size(), 2), frame, roi, &Limits::default());
        assert_eq!((found.len(), found[0].rect(), found[0].score), (1, roi, 1.0));
        assert_eq!((found[0].cx, found[0].cy), (26.5, 21.5));
    }

    #[test]
    fn a_large_frame_gives_the_same_matches_however_it_is_cut() {
        let size = Size::new(771, 577);
        let data = picture(size, 800, 5);
        let frame = PlaneRef::new(&data, size, 800);
        let template = cut(frame, Rect::new(311, 207, 65, 127), None);
        let roi = Rect::whole(size);
        let limits = Limits { min_score: 0.1, max_matches: 1000, max_overlap: 0.9 };
        let results = [1, 2, 3, 16].map(|threads| {
            let bank = Bank::new(vec![template.clone()]).unwrap();
            let (mut matcher, mut matches) = (matcher(bank, size, threads), Vec::new());
            matcher.run(frame, roi, &limits, &mut matches).unwrap();
            (matcher.search.plan.tile, matches)
        });
        assert_ne!(results[0].0, results[3].0, "all were cut alike");
        assert!(results[0].1.len() > 20, "{} matches", results[0].1.len());
        for (tile, matches) in &results {
            assert_eq!(*matches, results[0].1, "tiles of {tile}");
        }
        for found in results[0].1.iter().step_by(7) {
            assert_eq!(found.score, reference::ncc::score_at(frame, &template, found.x, found.y));
        }
    }

    #[test]
    fn a_matcher_keeps_nothing_of_the_frame_before() {
        let size = Size::new(90, 70);
        let (a, b) = (picture(size, 90, 6), picture(size, 90, 7));
        let (a, b) = (PlaneRef::new(&a, size, 90), PlaneRef::new(&b, size, 90));
        let roi = Rect::whole(size);
        let bank = Bank::new(vec![cut(a, Rect::new(5, 6, 17, 13), Some(&disc(Size::new(17, 13))))]).unwrap();
        let mut matcher = matcher(bank, size, 2);
        let first = run(&mut matcher, a, roi, &EVERYTHING);
        let between = run(&mut matcher, b, roi, &EVERYTHING);
        assert_ne!(first, between);
        assert_eq!(first, run(&mut matcher, a, roi, &EVERYTHING));
    }

    #[test]
    #[should_panic(expected = "size of a region of interest")]
    fn a_region_of_another_size_is_refused() {
        let size = Size::new(40, 40);
        let data = picture(size, 40, 8);
        let frame = PlaneRef::new(&data, size, 40);
        let bank = Bank::new(vec![cut(frame, Rect::new(0, 0, 9, 9), None)]).unwrap();
        let roi = Rect::new(0, 0, 39, 40);
        matcher(bank, size, 1).run(frame, roi, &EVERYTHING, &mut Vec::new()).unwrap();
    }

    /// A frame, a region of it, and templates cut from it, some masked, some scaled and turned.
    fn scene(largest: Size) -> impl Strategy<Value = (Plane, Bank, Rect, Limits)> {
        let frame = (20..largest.width, 20..largest.height, any::<u64>(), 1..256_usize);
        let member = (2..19_usize, 2..19_usize, any::<u64>(), any::<bool>(), 0..4_usize, 0..3_usize);
        let limits = (-10..10_i32, 1..40_usize, 0..11_i32);
        (frame, proptest::collection::vec(member, 1..5), limits, any::<u64>()).prop_map(
            |((w, h, seed, greys), members, (least, max_matches, overlap), place)| {
                let size = Size::new(w, h);
                let mut next = noise(seed);
                // With few grey levels, ties and flat windows are common.
                let mut data: Vec<u8> =
                    (0..size.area()).map(|_| (next() % greys * (255 / greys)) as u8).collect();
                // A faint part beside it has scores that estimates know little of.
                if seed % 3 == 0 {
                    data[size.area() / 3..].iter_mut().for_each(|pixel| *pixel = 90 + *pixel / 64);
                }
                let frame = Plane::from_vec(data, size);
                let mut next = noise(place);
                let mut place = |inner: Size, outer: Size| {
                    let (x, y) = (
                        next() % (outer.width - inner.width + 1),
                        next() % (outer.height - inner.height + 1),
                    );
                    Rect::new(x, y, inner.width, inner.height)
                };
                let roi = place(Size::new(w - w / 5, h - h / 6), size);
                let mut templates = Vec::new();
                for (w, h, seed, is_masked, turn, name) in members {
                    let cut_size = Size::new(w.min(roi.w), h.min(roi.h));
                    let luma = frame.as_ref().crop(place(cut_size, size)).to_plane();
                    let mut next = noise(seed);
                    let mask = (0..cut_size.area()).map(|_| (next() % 3 * 127) as u8).collect();
                    let mask = is_masked.then(|| Plane::from_vec(mask, cut_size));
                    let (scale, angle) = [(1.0, 0.0), (0.8, 0.0), (1.1, 30.0), (1.0, 90.0)][turn];
                    let turned = Template::new(["a", "b", "c"][name], luma, mask.as_ref())
                        .and_then(|template| template.resampled(scale, angle));
                    templates.extend(turned.ok().filter(|t| t.size().fits_in(roi.size())));
                }
                if templates.is_empty() {
                    let luma = Plane::from_vec(vec![1, 2, 3, 5, 8, 13], Size::new(3, 2));
                    templates.push(Template::new("d", luma, None).expect("it is not flat"));
                }
                let limits = Limits {
                    min_score: f64::from(least) / 10.0,
                    max_matches,
                    max_overlap: f64::from(overlap) / 10.0,
                };
                (frame, Bank::new(templates).expect("it is not empty"), roi, limits)
            },
        )
    }

    /// `cases` random scenes, the same every time; fewer if `LOCKON_TEST_CASES` says so, as under a slow
    /// checker.
    fn for_scenes(cases: u32, largest: Size, check: impl Fn(&Plane, &Bank, Rect, &Limits)) {
        let asked = std::env::var("LOCKON_TEST_CASES").ok().map(|cases| cases.parse::<u32>().unwrap());
        let cases = asked.map_or(cases, |asked| asked.min(cases));
        let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &[7; 32]);
        let config = Config { cases, failure_persistence: None, ..Config::default() };
        TestRunner::new_with_rng(config, rng)
            .run(&scene(largest), |(frame, bank, roi, limits)| {
                check(&frame, &bank, roi, &limits);
                Ok(())
            })
            .unwrap();
    }

    /// A matcher that has memory for one worker and `members` of the largest members, and so many bytes more.
    fn tight(bank: &Bank, region: Size, members: usize, spare: usize) -> Matcher {
        let bank = Arc::new(bank.clone());
        let within = |memory: usize| {
            Matcher::within(&mut Planner::new(), bank.clone(), region, 2, &Control::new(), memory)
        };
        let Err(Error::MemoryLimit { wanted: Bytes(least), .. }) = within(1) else {
            panic!("a search in one byte was not refused");
        };
        assert!(within(least as usize - 1).is_err(), "less than the least was enough");
        let largest = within(usize::MAX).unwrap().search.member_bytes().max().unwrap();
        within(least as usize + (members - 1) * largest + spare).unwrap()
    }

    #[test]
    fn matches_are_the_references_in_as_little_memory_as_can_be() {
        let batched = std::cell::Cell::new(0);
        for_scenes(200, Size::new(60, 45), |frame, bank, roi, limits| {
            let best_only = Limits { max_matches: 1, min_score: 0.3, ..*limits };
            for limits in [*limits, best_only] {
                let expected = reference::ncc::matches(frame.as_ref(), bank, roi, &limits);
                for (members, spare) in [(1, 0), (2, 0), (1, 100_000)] {
                    let mut matcher = tight(bank, roi.size(), members, spare);
                    batched.set(batched.get() + usize::from(matcher.batches() > 1));
                    for frame_number in 0..2 {
                        let found = run(&mut matcher, frame.as_ref(), roi, &limits);
                        assert_eq!(found, expected, "{members} at once, frame {frame_number}, {limits:?}");
                    }
                }
            }
        });
        assert!(batched.get() > 100, "{} searches had more than one batch", batched.get());
    }

    #[test]
    fn a_batch_is_as_large_as_memory_allows() {
        let cut = |room| {
            let (batches, left) = batches([3, 3, 2, 5, 1].into_iter(), room);
            (batches.into_iter().map(|batch| batch.len()).collect::<Vec<_>>(), left)
        };
        assert_eq!((cut(14), cut(20)), ((vec![5], 0), (vec![5], 6)));
        assert_eq!((cut(8), cut(5)), ((vec![3, 2], 0), (vec![1, 2, 1, 1], 0)));
    }

    #[test]
    fn more_peaks_than_there_is_memory_for_are_refused() {
        let size = Size::new(1600, 1000);
        let data = picture(size, size.width, 9);
        let frame = PlaneRef::new(&data, size, size.width);
        let members: Vec<_> = (0..12).map(|i| cut(frame, Rect::new(60 + 9 * i, 31, 7, 5), None)).collect();
        let mut matcher = tight(&Bank::new(members).unwrap(), size, 1, 0);
        let refused = matcher.run(frame, Rect::whole(size), &EVERYTHING, &mut Vec::new()).unwrap_err();
        assert!(refused.to_string().contains("--min-score"), "{refused}");
    }

    #[test]
    fn a_search_ends_soon_after_it_was_stopped() {
        let size = Size::new(1280, 960);
        let data = picture(size, size.width, 10);
        let frame = PlaneRef::new(&data, size, size.width);
        let large = cut(frame, Rect::new(100, 100, 300, 300), None);
        // Minutes of work, in large pieces; a low limit needs all scores exactly.
        let bank = Arc::new(Bank::new(vec![large; 400]).unwrap());
        for limits in [Limits::default(), EVERYTHING] {
            let control = Control::new();
            let mut matcher =
                Matcher::within(&mut Planner::new(), bank.clone(), size, 2, &control, usize::MAX).unwrap();
            let mut matches = Vec::new();
            let late = std::thread::scope(|scope| {
                let stopped_at = scope.spawn(|| {
                    std::thread::sleep(std::time::Duration::from_millis(700));
                    control.stop();
                    std::time::Instant::now()
                });
                let outcome = matcher.run(frame, Rect::whole(size), &limits, &mut matches);
                assert!(matches!(outcome, Err(Error::Stopped)), "{outcome:?}");
                stopped_at.join().unwrap().elapsed()
            });
            assert!(matches.is_empty() && late.as_secs_f64() < 2.0, "{late:?} after the stop");
        }
    }

    /// Grey of one value around a textured patch, which is turned for one member of the bank.
    #[test]
    fn a_flat_background_takes_no_exact_map_under_a_mask() {
        let size = Size::new(240, 180);
        let mut frame = Plane::from_vec(vec![126; size.area()], size);
        let texture = picture(Size::new(31, 27), 31, 7);
        for (y, row) in texture.chunks_exact(31).enumerate() {
            frame.data_mut()[(60 + y) * size.width + 91..][..31].copy_from_slice(row);
        }
        let part = cut(frame.as_ref(), Rect::new(91, 60, 31, 27), None);
        let turned = part.resampled(1.0, 30.0).unwrap();
        assert!(turned.mask().is_some());
        let bank = Bank::new(vec![part, turned]).unwrap();
        for limits in [Limits::default(), Limits { max_matches: 5, ..Limits::default() }] {
            let mut matcher = matcher(bank.clone(), size, 1);
            let found = run(&mut matcher, frame.as_ref(), Rect::whole(size), &limits);
            assert_eq!(found, reference::ncc::matches(frame.as_ref(), &bank, Rect::whole(size), &limits));
            assert_eq!(found.len(), 1);
            assert!(!matcher.workers.iter().any(SearchWorker::has_made_a_map), "{limits:?}");
        }
    }

    #[test]
    fn ncc_matches_reference_on_random_scenes() {
        for_scenes(200, Size::new(90, 70), |frame, bank, roi, limits| {
            check(frame.as_ref(), bank, roi, limits);
        });
    }

    #[test]
    fn matches_are_the_references_on_2000_random_scenes_at_every_level() {
        let [by_estimates, by_products] = [(); 2].map(|()| std::cell::Cell::new(0));
        for_scenes(2000, Size::new(60, 45), |frame, bank, roi, limits| {
            let frame = frame.as_ref();
            // High limits and a single match are where least is scored exactly.
            let best_only = Limits { max_matches: 1, ..*limits };
            let high = Limits { min_score: limits.min_score.abs().max(0.3), ..*limits };
            for limits in [*limits, best_only, high] {
                let expected = reference::ncc::matches(frame, bank, roi, &limits);
                for mut planner in Level::available().into_iter().flat_map(planners) {
                    let mut matcher = Matcher::new(&mut planner, Arc::new(bank.clone()), roi.size(), 1);
                    let found = run(&mut matcher, frame, roi, &limits);
                    let Planner { level, multiplies, .. } = planner;
                    assert_eq!(found, expected, "{level}, products: {multiplies}, {limits:?}");
                    if matcher.search.multiplies() {
                        by_products.set(by_products.get() + 1);
                        continue;
                    }
                    let is_exact = matcher.workers.iter().any(SearchWorker::has_made_a_map);
                    by_estimates.set(by_estimates.get() + usize::from(!is_exact && !found.is_empty()));
                }
            }
        });
        assert!(by_estimates.get() > 0, "nothing was found by estimates alone");
        let has_products = Level::available().into_iter().any(products::is_there);
        assert!(by_products.get() > 1000 || !has_products, "{} searches by products", by_products.get());
    }
}
