//! Searches for a target, and confirms the places found.
//!
//! A lost target is searched for in every frame: by its filter where something moves, or where it was lost
//! and in another window; and by proposals of the whole frame (`proposals.rs`), which are moved, scaled and
//! turned to where they look most like the target. The best place is believed if the filter, the looks, the
//! colours and the lack of a second such place say so in several frames.
//!
//! A target that is followed, but hardly looks like itself any more, is searched for in the same way: a place
//! that is clearly better than its own is confirmed in its stead.

use std::iter;

use super::following::Near;
use super::leaving::Leaving;
use super::proposals::MOST_PROPOSALS;
use super::{
    Followed, LEAST_SIDE, LEAST_SIZE, Looks, MOST_SIZE, Mode, SEARCH, Scene, Target, square, wide_aim,
};
use crate::frame::{Frame, iou, visible};
use crate::results::TrackState;
use crate::tracker::eye::Eyes;
use crate::tracker::look::{KEPT, Look, Looker, TOGETHER, similarity};
use crate::tracker::sample::Window;
use crate::tracker::turn::normalised;

/// The distance of the filter's windows over their side. With the wide taper a target is seen up to 0.3 of
/// the side from the middle.
const WINDOW_STEP: f64 = 0.6;
/// Sizes at which the filter's place is looked at: one step of the scale that it tolerates.
const WINDOW_SIZES: [f64; 3] = [1.0, 1.0 / 1.2, 1.2];

/// A response below this share of the usual one is none. 0.4 finds the same, in more time.
const FAINT: f64 = 0.8;

/// Proposals are first looked at as they are. So many of the best are aligned: the second one only if it
/// looks at least by this share as much like the target as the first one.
const ALIGNED: usize = 2;
const _: () = assert!(ALIGNED <= KEPT);
const ALMOST: f64 = 0.85;
/// Aligning moves, turns and scales them in so many rounds, by these shares of their sides; angles by so much
/// more, in radians.
const STEPS: [f64; 2] = [0.15, 0.09];
const TURN: f64 = 1.5;

/// Below the first share of the usual likeness a proposal is passed over for some frames; below the second no
/// place is believed.
const UNLIKE: f64 = 0.45;
const LEAST_LIKENESS: f64 = 0.5;

/// The evidence that a place shows the target: a logistic regression (D. Cox, 1958) over the filter's
/// response and the likeness, both relative to the usual ones, the likeness to distractors and of the
/// colours, the second peak, the share in the picture, and how far the size is from what it was (logarithm).
/// Fitted to the places that were found best in the first half of 42 sequences and of 119 exits and returns
/// made from them while none was believed, each sequence with the same weight. The likeness to the first look
/// and the direction add nothing to these.
const BIAS: f64 = -1.3;
const RESPONSE: f64 = 0.53;
const LIKENESS: f64 = 1.6;
const DISTRACTORS: f64 = -2.2;
const COLOURS: f64 = 5.9;
const SECOND_PEAK: f64 = -7.0;
const VISIBLE: f64 = 1.3;
const SIZE: f64 = -2.0;

/// What is so much more like a distractor than like the target is that one: 14 % of the wrong places, and 3 %
/// of the right ones.
const DISTRACTOR: f64 = 0.15;

/// The evidence for a place to be looked at again, and in each of so many frames after that: 2.5 and 2 find
/// fewer, 0 and -0.5 believe more of what is wrong (docs/lab/tracking.md).
const FOUND: f64 = 0.5;
const CONFIRMED: f64 = 0.0;
const CONFIRMATIONS: u32 = 3;
/// In each of these its size is looked at smaller and larger by this factor too.
const CONFIRM_STEP: f64 = 1.06;
/// The least score of what is found again.
const LEAST_SCORE: f64 = 0.3;

/// The least usual likeness and response that others are measured in.
const LEAST_USUAL: f64 = 0.2;

/// A target whose mean score of late is below that may be elsewhere.
const DOUBTED: f64 = 0.4;
/// After it was found again it may be if the mean is below that, for so many frames, and until it has risen
/// above. Otherwise a false find lasts: 0.42 of the frames off target are `tracked`, instead of 0.13.
const DOUBTED_WHEN_NEW: f64 = 0.7;
const NEW_FRAMES: u32 = 60;
/// Share of a frame in the mean.
const SCORE_RATE: f64 = 0.1;
/// The place that takes over has at least this score, and one that is so much above the mean of late.
const LEAST_BETTER_SCORE: f64 = 0.6;
const BETTER_BY: f64 = 0.2;
/// It overlaps the present place by no more than that.
const ELSEWHERE: f64 = 0.1;

/// A box that overlaps another target's so much shows that one.
const TAKEN: f64 = 0.3;

/// The windows of the filter; they go out from where the target was lost.
#[derive(Default)]
pub(super) struct Windows {
    places: Vec<(f64, f64)>,
    next: usize,
}

impl Windows {
    pub(super) fn rescale(&mut self, x: f64, y: f64) {
        for place in &mut self.places {
            *place = (place.0 * x, place.1 * y);
        }
    }

    fn restart(&mut self, at: Window, frame: &Frame) {
        let size = frame.format.size;
        let step = square(at, SEARCH).w * WINDOW_STEP;
        let count = |length: usize| (libm::ceil(length as f64 / step) as usize).max(1);
        let (columns, rows) = (count(size.width), count(size.height));
        let middle =
            |index: usize, count: usize, length: usize| (index as f64 + 0.5) * length as f64 / count as f64;
        self.next = 0;
        self.places.clear();
        self.places.extend((0..columns * rows).map(|index| {
            (middle(index % columns, columns, size.width), middle(index / columns, rows, size.height))
        }));
        let (x, y) = Target::inside(frame, at.x, at.y);
        let distance = |place: &(f64, f64)| (place.0 - x) * (place.0 - x) + (place.1 - y) * (place.1 - y);
        self.places.sort_by(|a, b| distance(a).total_cmp(&distance(b)));
    }

    fn next(&mut self) -> Option<(f64, f64)> {
        let place = self.places.get(self.next).copied();
        self.next = (self.next + 1) % self.places.len().max(1);
        place
    }
}

/// Whether a followed target may be elsewhere.
#[derive(Default)]
pub(super) struct Doubt {
    /// How far the mean score is from 1: 0 before there is one.
    lack: f64,
    /// Frames since it was found again, until it is trusted.
    new: Option<u32>,
    is_doubted: bool,
}

impl Doubt {
    /// Takes in the score of a frame in which it was followed.
    pub(super) fn step(&mut self, score: f64) {
        self.lack += SCORE_RATE * (1.0 - score - self.lack);
        let is_low = self.mean_score() < DOUBTED_WHEN_NEW;
        self.new =
            self.new.filter(|&frames| frames < NEW_FRAMES || is_low).map(|frames| frames.saturating_add(1));
        let limit = if self.new.is_some() { DOUBTED_WHEN_NEW } else { DOUBTED };
        self.is_doubted = self.mean_score() < limit;
    }

    /// It was found again.
    fn restart(&mut self) {
        *self = Self { new: Some(0), ..Self::default() };
    }

    fn mean_score(&self) -> f64 {
        1.0 - self.lack
    }

    /// As of the last frame.
    pub(super) fn is_doubted(&self) -> bool {
        self.is_doubted
    }
}

/// What was seen at a place.
#[derive(Clone, Copy)]
struct Seen {
    looks: Looks,
    /// The filter's response.
    peak: f64,
    /// The likeness of the box to other things.
    distractors: f64,
    /// The likeness of its colours to the target's.
    colours: f64,
    /// The share of it in the picture.
    visible: f64,
}

/// A place that was looked at.
#[derive(Clone, Copy)]
struct Found {
    at: Window,
    evidence: f64,
    is_distractor: bool,
    looks: Looks,
}

/// A proposal on its way to where it looks most like the target.
#[derive(Clone, Copy)]
struct Candidate {
    likeness: f64,
    at: Window,
    /// Its look is kept.
    is_kept: bool,
}

impl Target {
    /// Gives the place up; the search goes out from it.
    pub(super) fn lose(&mut self, frame: &Frame) {
        self.state = TrackState::Lost;
        self.mode = Mode::Searching;
        self.stop();
        self.windows.restart(self.at, frame);
        self.proposals.restart();
    }

    /// Forgets how it moved and grew: it is not where it was.
    fn stop(&mut self) {
        self.velocity = (0.0, 0.0);
        self.ground.interrupt();
        self.leaving = Leaving::default();
        self.other_size = (false, None);
    }

    /// Looks for it in a frame. The result must be confirmed.
    pub(super) fn search(&mut self, scene: &Scene, rivals: &[Window], eyes: &mut Eyes) {
        let lost = self.at;
        let mover = scene.moving(lost, rivals);
        let by_filter = self.search_windows(scene.frame, mover, rivals, eyes);
        let by_looks = self.search_proposals(scene, (lost, mover), rivals, |_| true, eyes);
        let all = [by_filter, by_looks].into_iter().flatten();
        let best = all
            .filter(|found| self.is_found(found, FOUND))
            .reduce(|best, found| if found.evidence > best.evidence { found } else { best });
        if let Some(found) = by_filter {
            self.looks = found.looks;
        }
        if let Some(found) = best {
            (self.at, self.looks) = (found.at, found.looks);
            self.mode = Mode::Confirming { frames: 0, before: lost, followed: None };
        } else if let Some(found) = by_looks {
            self.proposals.refuse(found.at);
        }
    }

    /// Looks for it elsewhere while it is followed.
    pub(super) fn look_elsewhere(
        &mut self,
        scene: &Scene,
        doubtful: u32,
        rivals: &[Window],
        eyes: &mut Eyes,
    ) {
        let here = self.at;
        let from = Window { x: here.x, y: here.y, ..self.confirmed };
        let mover = scene.moving(from, rivals);
        let is_elsewhere = |at: Window| iou(at.bounds(), here.bounds()) <= ELSEWHERE;
        let Some(found) = self.search_proposals(scene, (from, mover), rivals, is_elsewhere, eyes) else {
            return;
        };
        let enough = LEAST_BETTER_SCORE.max(self.doubt.mean_score() + BETTER_BY);
        if self.is_found(&found, CONFIRMED) && found.looks.score() >= enough {
            let followed = Followed { doubtful, looks: self.looks, enough };
            self.mode = Mode::Confirming { frames: 0, before: here, followed: Some(followed) };
            (self.at, self.looks) = (found.at, found.looks);
            if self.state != TrackState::Lost {
                self.state = TrackState::Uncertain;
            }
        } else {
            self.proposals.refuse(found.at);
        }
    }

    /// Looks at the place found in the next frame.
    pub(super) fn confirm(&mut self, scene: &Scene, rivals: &[Window], eyes: &mut Eyes) {
        let Mode::Confirming { frames, mut before, followed } = self.mode else { return };
        let frame = scene.frame;
        if let Some(camera) = scene.camera {
            (before.x, before.y) = camera.apply((before.x, before.y));
        }
        self.mode = Mode::Confirming { frames: frames + 1, before, followed };
        let place = Self::inside(frame, self.at.x, self.at.y);
        let at = self.at;
        let (sighting, second_peak_ratio) = self.look_for(frame, at, place, rivals, &mut eyes.wide);
        self.looks.second_peak_ratio = second_peak_ratio;
        (self.at.x, self.at.y) = Self::inside(frame, place.0 + sighting.x, place.1 + sighting.y);
        // The proposal had its size by steps.
        let mut best = (f64::MIN, self.at);
        let scaled = |by: f64| Window { w: at.w * by, h: at.h * by, ..self.at };
        let boxes = [self.at, scaled(CONFIRM_STEP), scaled(1.0 / CONFIRM_STEP)];
        self.compare_each(frame, boxes.map(|at| (0, at)).into_iter(), &mut eyes.looker, |_, at, likeness| {
            if likeness > best.0 {
                best = (likeness, at);
            }
            false
        });
        self.at = best.1;
        self.turn(frame, &mut eyes.looker);
        let seen = Seen {
            looks: self.looks,
            peak: sighting.peak,
            distractors: self.distractors.likeness(eyes.looker.looked()),
            colours: eyes.wide.sight.colour_likeness(&self.colours, (sighting.x, sighting.y), (at.w, at.h)),
            visible: visible(self.at.bounds(), frame.format.size),
        };
        let found = self.found(self.at, before, seen);
        let enough = followed.map_or(LEAST_SCORE, |followed| followed.enough);
        if !self.is_found(&found, CONFIRMED) || self.looks.score() < enough {
            self.refuse();
        } else if frames + 1 == CONFIRMATIONS {
            self.mode = Mode::Following { doubtful: 0 };
            self.state = TrackState::Reacquired;
            self.departure_of_late = 0.0;
            self.doubt.restart();
            self.stop();
        }
    }

    /// Rejects the place that was found. It is searched for, or followed where it was.
    pub(in crate::tracker) fn refuse(&mut self) {
        let Mode::Confirming { before, followed, .. } = self.mode else { return };
        self.proposals.refuse(self.at);
        self.at = before;
        self.mode = match followed {
            Some(Followed { doubtful, looks, .. }) => {
                self.looks = looks;
                // Some frames were left out.
                self.ground.interrupt();
                Mode::Following { doubtful }
            }
            None => Mode::Searching,
        };
    }

    fn is_found(&self, found: &Found, limit: f64) -> bool {
        let is_like = found.looks.likeness >= LEAST_LIKENESS * self.usual_likeness();
        found.evidence >= limit && is_like && !found.is_distractor
    }

    /// What is usual for targets, where it is too little to be divided by.
    fn usual_likeness(&self) -> f64 {
        self.usual_look.mean.max(LEAST_USUAL)
    }

    /// What is known of a place, for a target that had the box `before`.
    fn found(&self, at: Window, before: Window, seen: Seen) -> Found {
        let Seen { looks, peak, distractors, colours, visible } = seen;
        let size = 0.5 * libm::log(at.w * at.h / (before.w * before.h));
        let evidence = BIAS
            + RESPONSE * peak / self.usual_response.max(LEAST_USUAL)
            + LIKENESS * looks.likeness / self.usual_likeness()
            + DISTRACTORS * distractors
            + COLOURS * colours
            + SECOND_PEAK * looks.second_peak_ratio
            + VISIBLE * visible
            + SIZE * size.abs();
        let is_distractor = distractors > looks.likeness + DISTRACTOR;
        Found { at, evidence, is_distractor, looks }
    }

    /// The place where the filter responds best in two windows, unless it hardly does.
    fn search_windows(
        &mut self,
        frame: &Frame,
        mover: Option<(f64, f64)>,
        rivals: &[Window],
        eyes: &mut Eyes,
    ) -> Option<Found> {
        let lost = self.at;
        let here = Self::inside(frame, lost.x, lost.y);
        let mut best = (f64::MIN, here);
        let ratio = &mut self.looks.second_peak_ratio;
        let places = match mover {
            Some(_) => [mover, None],
            None => [Some(here), self.windows.next()],
        };
        let aims = places.map(|place| place.map(|(x, y)| wide_aim(Window { x, y, ..lost }, true)));
        eyes.wide.see_each(frame, aims, (&self.colours, &self.wide), |sight| {
            let Window { x, y, .. } = sight.window();
            let worth = worth_of(lost, rivals, sight.window());
            let sighting = sight.find(|dx, dy| worth((x + dx, y + dy)));
            if sighting.peak > best.0 {
                best = (sighting.peak, (x + sighting.x, y + sighting.y));
                *ratio = sight.second_peak_ratio();
            }
        });
        if best.0 < FAINT * self.usual_response {
            return None;
        }
        // Once more, with the window about it.
        let (_, place) = best;
        let place = Self::inside(frame, place.0, place.1);
        let (sighting, second_peak_ratio) = self.look_for(frame, lost, place, rivals, &mut eyes.wide);
        let (x, y) = Self::inside(frame, place.0 + sighting.x, place.1 + sighting.y);
        let boxes = WINDOW_SIZES.map(|size| Window { x, y, w: lost.w * size, h: lost.h * size, ..lost });
        let mut best = (lost, Looks { likeness: f64::MIN, first_likeness: 0.0, second_peak_ratio }, 0.0);
        for (at, look) in boxes.into_iter().zip(eyes.looker.look_at(frame, &boxes)) {
            let likeness = self.like(look);
            if likeness > best.1.likeness {
                let first_likeness = similarity(&self.views[0].look, look);
                let distractors = self.distractors.likeness(look);
                best = (at, Looks { likeness, first_likeness, second_peak_ratio }, distractors);
            }
        }
        let (at, looks, distractors) = best;
        let seen = Seen {
            looks,
            peak: sighting.peak,
            distractors,
            colours: eyes.wide.sight.colour_likeness(&self.colours, (sighting.x, sighting.y), (at.w, at.h)),
            visible: visible(at.bounds(), frame.format.size),
        };
        Some(self.found(at, lost, seen))
    }

    /// The proposal of a frame that looks most like the target, aligned to it; only what `is_possible`. The
    /// target had the box `from`, and this place moves most.
    fn search_proposals(
        &mut self,
        scene: &Scene,
        places: (Window, Option<(f64, f64)>),
        rivals: &[Window],
        is_possible: impl Fn(Window) -> bool,
        eyes: &mut Eyes,
    ) -> Option<Found> {
        let found = self.best_proposal(scene, places, rivals, is_possible, eyes);
        eyes.looker.forget_ahead();
        found
    }

    fn best_proposal(
        &mut self,
        scene: &Scene,
        (from, mover): (Window, Option<(f64, f64)>),
        rivals: &[Window],
        is_possible: impl Fn(Window) -> bool,
        eyes: &mut Eyes,
    ) -> Option<Found> {
        let frame = scene.frame;
        let is_free = |at: Window| is_possible(at) && !is_taken(at, rivals);
        let Self { proposals, views, views_taken, colours, .. } = self;
        let proposed = proposals.next(scene.cues?, (from, mover), (views, *views_taken), colours, is_free);
        let unlike = UNLIKE * self.usual_likeness();
        eyes.looker.sample_ahead(frame, proposed.iter().flat_map(|proposal| proposal.boxes()));
        let mut seen = [Candidate { likeness: f64::MIN, at: from, is_kept: false }; ALIGNED];
        let mut of_proposals = [(f64::MIN, from); MOST_PROPOSALS];
        let boxes =
            proposed.iter().enumerate().flat_map(|(index, own)| own.boxes().map(move |at| (index, at)));
        self.compare_each(frame, boxes, &mut eyes.looker, |index, at, likeness| {
            if likeness > of_proposals[index].0 {
                of_proposals[index] = (likeness, at);
            }
            false
        });
        for (&proposal, (likeness, at)) in proposed.iter().zip(of_proposals) {
            if likeness < unlike {
                self.proposals.skip(proposal);
            }
            // In order, the best first; of equal ones the first.
            if likeness > seen[ALIGNED - 1].likeness {
                seen[ALIGNED - 1] = Candidate { likeness, at, is_kept: false };
                seen.sort_by(|a, b| b.likeness.total_cmp(&a.likeness));
            }
        }
        self.proposals.reuse(proposed);
        let least = (ALMOST * seen[0].likeness).max(0.0);
        let count = seen.iter().take_while(|candidate| candidate.likeness > least).count();
        self.align(frame, &mut seen[..count], &mut eyes.looker);
        let mut best: Option<usize> = None;
        for (index, &Candidate { likeness, at, .. }) in seen[..count].iter().enumerate() {
            let is_more = best.is_none_or(|best| likeness > seen[best].likeness);
            if is_free(at) && self.has_possible_size(at) && is_more {
                best = Some(index);
            }
        }
        let best = best?;
        let Candidate { likeness, at, is_kept } = seen[best];
        if likeness < LEAST_LIKENESS * self.usual_likeness() {
            self.proposals.refuse(at);
            return None;
        }
        // The filter's opinion of it.
        let look = if is_kept { eyes.looker.kept(best) } else { eyes.looker.look(frame, at) };
        let first_likeness = similarity(&self.views[0].look, look);
        let distractors = self.distractors.likeness(look);
        let (sighting, second_peak_ratio) = self.look_for(frame, at, (at.x, at.y), rivals, &mut eyes.wide);
        let seen = Seen {
            looks: Looks { likeness, first_likeness, second_peak_ratio },
            peak: sighting.peak,
            distractors,
            colours: eyes.wide.sight.colour_likeness(&self.colours, (0.0, 0.0), (at.w, at.h)),
            visible: visible(at.bounds(), frame.format.size),
        };
        Some(self.found(at, from, seen))
    }

    fn has_possible_size(&self, at: Window) -> bool {
        let size = (at.w * at.h / (self.first.0 * self.first.1)).sqrt();
        (LEAST_SIZE..=MOST_SIZE).contains(&size) && at.w.min(at.h) >= LEAST_SIDE
    }

    /// Moves, scales and turns boxes of some likeness to where they look most like the target.
    fn align(&self, frame: &Frame, candidates: &mut [Candidate], looker: &mut Looker) {
        for step in STEPS {
            // All that may be looked at, since a request to a device takes longer than its samples.
            looker.sample_ahead(frame, candidates.iter().flat_map(|own| changed(own.at, step)));
            for change in [moved as fn(Window, f64) -> [Window; 4], scaled_and_turned] {
                for (index, best) in candidates.iter_mut().enumerate() {
                    let boxes = change(best.at, step).into_iter().map(|at| (index, at));
                    self.compare_each(frame, boxes, looker, |_, at, likeness| {
                        let is_more = likeness > best.likeness;
                        if is_more {
                            *best = Candidate { likeness, at, is_kept: true };
                        }
                        is_more
                    });
                }
            }
        }
    }

    /// Passes each box, with its number and how much it looks like the target, to `take`. The looks for which
    /// that returns true are kept under their numbers.
    fn compare_each(
        &self,
        frame: &Frame,
        boxes: impl Iterator<Item = (usize, Window)>,
        looker: &mut Looker,
        mut take: impl FnMut(usize, Window, f64) -> bool,
    ) {
        let (mut numbers, mut together, mut count) = ([0; TOGETHER], [self.at; TOGETHER], 0);
        let mut boxes = boxes.peekable();
        while let Some((number, at)) = boxes.next() {
            (numbers[count], together[count]) = (number, at);
            count += 1;
            if count < TOGETHER && boxes.peek().is_some() {
                continue;
            }
            let mut likenesses = [0.0; TOGETHER];
            let looks = looker.look_at(frame, &together[..count]);
            for (likeness, look) in likenesses.iter_mut().zip(looks) {
                *likeness = self.like(look);
            }
            for index in 0..count {
                if take(numbers[index], together[index], likenesses[index]) {
                    looker.keep(index, numbers[index]);
                }
            }
            count = 0;
        }
    }

    /// How much a look is like any known one.
    fn like(&self, look: &Look) -> f64 {
        let (known, recent) = self.compare(look);
        known.max(recent)
    }
}

/// A box, all that [`moved`] makes of it, and all that [`scaled_and_turned`] makes of each of these.
fn changed(at: Window, step: f64) -> impl Iterator<Item = Window> {
    let places = iter::once(at).chain(moved(at, step));
    places.flat_map(move |place| iter::once(place).chain(scaled_and_turned(place, step)))
}

/// A box moved to either side by a share of its sides.
fn moved(at: Window, step: f64) -> [Window; 4] {
    let along = at.turning();
    [(step, 0.0), (-step, 0.0), (0.0, step), (0.0, -step)].map(|(x, y)| {
        let (x, y) = along(x * at.w, y * at.h);
        Window { x: at.x + x, y: at.y + y, ..at }
    })
}

/// A box larger and smaller by a share, and turned either way.
fn scaled_and_turned(at: Window, step: f64) -> [Window; 4] {
    let scaled = |by: f64| Window { w: at.w * by, h: at.h * by, ..at };
    let turned = |by: f64| Window { angle: normalised(at.angle + by), ..at };
    [scaled(1.0 + step), scaled(1.0 / (1.0 + step)), turned(TURN * step), turned(-TURN * step)]
}

/// True if the box would show another target. A box inside a larger one shows something else.
pub(super) fn is_taken(at: Window, rivals: &[Window]) -> bool {
    rivals.iter().any(|rival| iou(rival.bounds(), at.bounds()) >= TAKEN)
}

/// The weight of the response at a place in a window for such a box: none where it would show another target.
pub(super) fn worth_of(at: Window, rivals: &[Window], window: Window) -> impl Fn((f64, f64)) -> f32 {
    let near = Near::new(rivals, window, (at.w, at.h));
    move |(x, y)| if is_taken(Window { x, y, ..at }, near.rivals()) { 0.0 } else { 1.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_with_low_scores_is_doubted_and_one_that_was_found_again_sooner() {
        let frames = |doubt: &mut Doubt, score: f64| {
            (0..200).find(|_| {
                doubt.step(score);
                doubt.is_doubted()
            })
        };
        assert_eq!(frames(&mut Doubt::default(), 0.45), None);
        // 1 - 0.7 (1 - 0.9^n) < 0.4 from the nineteenth frame on.
        assert_eq!(frames(&mut Doubt::default(), 0.3), Some(18));
        let mut found_again = Doubt::default();
        found_again.restart();
        assert!(frames(&mut found_again, 0.45).is_some_and(|frame| frame < 10));
        for _ in 0..100 {
            found_again.step(0.9);
        }
        assert!(!found_again.is_doubted());
    }
}
