//! How a target that is lost is searched for, and what is found confirmed.

use std::iter;

use super::{Mode, SEARCH, Scene, Target, square};
use crate::frame::{Frame, iou};
use crate::results::TrackState;
use crate::tracker::eye::Eyes;
use crate::tracker::sample::Window;

/// Windows of the frame that are searched in a frame while it is lost: the cost is bounded, and a small
/// target in 720p is looked for everywhere within some ten frames. 6 find it later (mean AUC of 31 sequences,
/// 400 frames, three starts each: 0.625 instead of 0.629).
const WINDOWS: usize = 18;
/// Their distance over their side. With the wide taper a target is seen up to 0.3 of the side from the
/// middle.
const WINDOW_STEP: f64 = 0.6;
/// What is found again must respond and look like this share of what was usual, and be no farther from it,
/// for so many frames. With a likeness of 0.6 half of the frames off target are `tracked`, instead of a
/// quarter, and 0.57 instead of 0.49 of what was lost is found within 30 frames.
const FOUND_RESPONSE: f64 = 0.65;
const FOUND_LOOK: f64 = 0.7;
const FOUND_DEPARTURE: f64 = -2.5;
const CONFIRMATIONS: u32 = 3;

/// A box that overlaps another target's so much shows that one.
const TAKEN: f64 = 0.3;

impl Target {
    /// Gives the place up; the search goes out from it.
    pub(super) fn lose(&mut self, frame: &Frame) {
        self.ground.interrupt();
        self.state = TrackState::Lost;
        self.velocity = (0.0, 0.0);
        self.mode = Mode::Searching { next: 0, is_upright: false };
        let size = frame.format.size;
        let step = square(self.at, SEARCH).w * WINDOW_STEP;
        let count = |length: usize| (libm::ceil(length as f64 / step) as usize).max(1);
        let (columns, rows) = (count(size.width), count(size.height));
        let middle =
            |index: usize, count: usize, length: usize| (index as f64 + 0.5) * length as f64 / count as f64;
        self.places.clear();
        self.places.extend((0..columns * rows).map(|index| {
            (middle(index % columns, columns, size.width), middle(index / columns, rows, size.height))
        }));
        let (x, y) = Self::inside(frame, self.at.x, self.at.y);
        let distance = |place: &(f64, f64)| (place.0 - x) * (place.0 - x) + (place.1 - y) * (place.1 - y);
        let order = |place: &(f64, f64)| (distance(place), place.1, place.0);
        self.places.sort_unstable_by(|a, b| {
            let ((a, ay, ax), (b, by, bx)) = (order(a), order(b));
            a.total_cmp(&b).then(ay.total_cmp(&by)).then(ax.total_cmp(&bx))
        });
    }

    /// Looks for it in some windows of the frame. What is found is to be confirmed.
    pub(super) fn search(
        &mut self,
        scene: &Scene,
        (next, is_upright): (usize, bool),
        rivals: &[Window],
        eyes: &mut Eyes,
    ) {
        let frame = scene.frame;
        let lost = self.at;
        if is_upright {
            self.at.angle = 0.0;
        }
        let angle = self.at.angle;
        let is_free = |(x, y)| !is_taken(Window { x, y, ..lost }, rivals);
        let worth = |place| if is_free(place) { 1.0 } else { 0.0 };
        // Where it was lost and what moves are looked at in every frame.
        let here = Self::inside(frame, lost.x, lost.y);
        let mover = scene.movers.find((lost.w, lost.h), is_free);
        let places = std::mem::take(&mut self.places);
        let count = WINDOWS.min(places.len());
        let in_turn = places.iter().copied().cycle().skip(next).take(count);
        let mut best: Option<(f64, (f64, f64))> = None;
        for place in iter::once(here).chain(mover).chain(in_turn) {
            let sighting = self.look_for(frame, place, worth, true, &mut eyes.wide);
            if best.is_none_or(|(peak, _)| sighting.peak > peak) {
                best = Some((sighting.peak, (place.0 + sighting.x, place.1 + sighting.y)));
            }
        }
        self.places = places;
        let (_, place) = best.expect("at least one window was looked at");
        // Once more, with the window about it.
        let place = Self::inside(frame, place.0, place.1);
        let sighting = self.look_for(frame, place, worth, false, &mut eyes.wide);
        let (x, y) = Self::inside(frame, place.0 + sighting.x, place.1 + sighting.y);
        // It may have come back nearer or farther by one step of what the search tolerates.
        let mut found = (f64::MIN, lost);
        for factor in [1.0, 1.0 / 1.2, 1.2] {
            self.at = Window { x, y, w: lost.w * factor, h: lost.h * factor, angle };
            let (known, recent) = self.compare(eyes.looker.look(frame, self.at));
            if known.max(recent) > found.0 {
                found = (known.max(recent), self.at);
            }
        }
        self.likeness = found.0;
        let after = (next + count) % self.places.len();
        if self.is_found(sighting.peak) {
            self.at = found.1;
            self.mode = Mode::Confirming { frames: 0, lost, next: after };
        } else {
            self.at = lost;
            // The same windows upright, if that is something else, then the next ones.
            let is_upright = angle != 0.0;
            self.mode = Mode::Searching { next: if is_upright { next } else { after }, is_upright };
        }
    }

    pub(super) fn confirm(&mut self, frame: &Frame, rivals: &[Window], eyes: &mut Eyes) {
        let Mode::Confirming { frames, lost, next } = self.mode else { return };
        let place = Self::inside(frame, self.at.x, self.at.y);
        let at = self.at;
        let worth = |(x, y)| if is_taken(Window { x, y, ..at }, rivals) { 0.0 } else { 1.0 };
        let sighting = self.look_for(frame, place, worth, false, &mut eyes.wide);
        (self.at.x, self.at.y) = Self::inside(frame, place.0 + sighting.x, place.1 + sighting.y);
        self.turn(frame, &mut eyes.looker);
        if !self.is_found(sighting.peak) {
            self.refuse();
        } else if frames + 1 < CONFIRMATIONS {
            self.mode = Mode::Confirming { frames: frames + 1, lost, next };
        } else {
            self.mode = Mode::Following { doubtful: 0 };
            self.state = TrackState::Reacquired;
            self.departure_of_late = 0.0;
        }
    }

    /// What was found is another target: the search goes on.
    pub(in crate::tracker) fn refuse(&mut self) {
        if let Mode::Confirming { lost, next, .. } = self.mode {
            self.at = lost;
            self.mode = Mode::Searching { next, is_upright: false };
        }
    }

    fn is_found(&self, peak: f64) -> bool {
        peak >= FOUND_RESPONSE * self.usual_response
            && self.likeness >= FOUND_LOOK * self.usual_look.mean
            && self.departure() >= FOUND_DEPARTURE
    }
}

/// True if the box would show what another target is. One that lies in a larger one is something else.
fn is_taken(at: Window, rivals: &[Window]) -> bool {
    rivals.iter().any(|rival| iou(rival.bounds(), at.bounds()) >= TAKEN)
}
