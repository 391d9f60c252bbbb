//! Searches for a lost target, and confirms the places found.

use super::{Mode, SEARCH, Scene, Target, square};
use crate::frame::{Frame, iou};
use crate::results::TrackState;
use crate::tracker::eye::{Eye, Eyes};
use crate::tracker::sample::Window;

/// Windows of the frame that are searched in a frame, so that the cost is bounded, and for how many frames: a
/// small target in 720p is looked for everywhere within some ten of them. With 6 windows it is found later
/// (mean AUC of 31 sequences, 400 frames, three starts each: 0.639 instead of 0.644).
const WINDOWS: usize = 18;
const SOON: u32 = 60;
/// After these, as many windows, at least so many, as look everywhere in so many frames: what did not come
/// back by then will hardly do so in any one frame. It costs nothing (mean AUC of the same over all their
/// frames, two starts each: 0.637 both ways), and a third of the time.
const FRAMES_FOR_ALL: usize = 15;
const LEAST_WINDOWS: usize = 3;
/// Their distance over their side. With the wide taper a target is seen up to 0.3 of the side from the
/// middle.
const WINDOW_STEP: f64 = 0.6;
/// A target found again must respond and look like this share of the usual, and be no farther from it, for so
/// many frames. With a likeness of 0.6 half of the frames off target are `tracked`, instead of a quarter, and
/// 0.57 instead of 0.49 of the lost targets are found within 30 frames.
const FOUND_RESPONSE: f64 = 0.65;
const FOUND_LOOK: f64 = 0.7;
const FOUND_DEPARTURE: f64 = -2.5;
const CONFIRMATIONS: u32 = 3;

/// A box that overlaps another target's so much shows that one.
const TAKEN: f64 = 0.3;

/// A window of a frame in which a lost target is looked for.
pub(in crate::tracker) struct Glance {
    /// The target's.
    id: u32,
    place: Place,
    /// The best response and where it is; nothing before it was looked, or where there is nothing to look at.
    found: Option<(f64, (f64, f64))>,
}

/// The middle of a window.
enum Place {
    At((f64, f64)),
    /// The place with the most motion, if there is any.
    Mover,
}

impl Glance {
    pub(in crate::tracker) fn is_of(&self, target: &Target) -> bool {
        self.id == target.id
    }
}

impl Target {
    /// Gives the place up; the search goes out from it.
    pub(super) fn lose(&mut self, frame: &Frame) {
        self.ground.interrupt();
        self.state = TrackState::Lost;
        self.velocity = (0.0, 0.0);
        self.mode = Mode::Searching { next: 0, is_upright: false };
        self.searched = 0;
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

    /// Adds the windows to search in a frame, if it is lost.
    pub(in crate::tracker) fn glances(&self, frame: &Frame, glances: &mut Vec<Glance>) {
        let Mode::Searching { next, .. } = self.mode else { return };
        // The place of the loss and moving places are searched in every frame.
        let here = Place::At(Self::inside(frame, self.at.x, self.at.y));
        let in_turn = self.places.iter().cycle().skip(next).take(self.windows());
        let places = [here, Place::Mover].into_iter().chain(in_turn.map(|&place| Place::At(place)));
        glances.extend(places.map(|place| Glance { id: self.id, place, found: None }));
    }

    /// The number of windows that are searched in a frame.
    fn windows(&self) -> usize {
        let places = self.places.len();
        let most = if self.searched < SOON {
            WINDOWS
        } else {
            places.div_ceil(FRAMES_FOR_ALL).clamp(LEAST_WINDOWS, WINDOWS)
        };
        most.min(places)
    }

    /// The box whose windows are looked at while it is lost.
    fn sought(&self) -> Window {
        match self.mode {
            Mode::Searching { is_upright: true, .. } => Window { angle: 0.0, ..self.at },
            _ => self.at,
        }
    }

    /// Looks for it in one window.
    pub(in crate::tracker) fn glance(
        &self,
        glance: &mut Glance,
        scene: &Scene,
        rivals: &[Window],
        wide: &mut Eye,
    ) {
        let is_free = |(x, y)| !is_taken(Window { x, y, ..self.at }, rivals);
        let place = match glance.place {
            Place::At(place) => Some(place),
            Place::Mover => scene.movers.find((self.at.w, self.at.h), is_free),
        };
        glance.found = place.map(|(x, y)| {
            let worth = |place| if is_free(place) { 1.0 } else { 0.0 };
            let sighting = self.look_about(scene.frame, Window { x, y, ..self.sought() }, worth, true, wide);
            (sighting.peak, (x + sighting.x, y + sighting.y))
        });
    }

    /// Looks again at the best place of a glance. The result must be confirmed.
    pub(super) fn search(
        &mut self,
        frame: &Frame,
        next: usize,
        glances: &[Glance],
        rivals: &[Window],
        eyes: &mut Eyes,
    ) {
        let lost = self.at;
        self.at = self.sought();
        let angle = self.at.angle;
        let mut best: Option<(f64, (f64, f64))> = None;
        for (peak, place) in
            glances.iter().filter(|glance| glance.is_of(self)).filter_map(|glance| glance.found)
        {
            if best.is_none_or(|(most, _)| peak > most) {
                best = Some((peak, place));
            }
        }
        let (_, place) = best.expect("at least one window was looked at");
        // Once more, with the window about it.
        let place = Self::inside(frame, place.0, place.1);
        let worth = |(x, y)| if is_taken(Window { x, y, ..lost }, rivals) { 0.0 } else { 1.0 };
        let sighting = self.look_for(frame, place, worth, &mut eyes.wide);
        let (x, y) = Self::inside(frame, place.0 + sighting.x, place.1 + sighting.y);
        // It may have come back nearer or farther by one step of the scale that the search tolerates.
        let boxes = [1.0, 1.0 / 1.2, 1.2].map(|factor| Window {
            x,
            y,
            w: lost.w * factor,
            h: lost.h * factor,
            angle,
        });
        let mut found = (f64::MIN, lost);
        for (at, look) in boxes.into_iter().zip(eyes.looker.look_at(frame, &boxes)) {
            let (known, recent) = self.compare(look);
            if known.max(recent) > found.0 {
                found = (known.max(recent), at);
            }
        }
        self.likeness = found.0;
        let after = (next + self.windows()) % self.places.len();
        self.searched = self.searched.saturating_add(1);
        if self.is_found(sighting.peak) {
            self.at = found.1;
            self.mode = Mode::Confirming { frames: 0, lost, next: after };
        } else {
            self.at = lost;
            // Next are these windows upright, if they were turned; then the following ones.
            let is_upright = angle != 0.0;
            self.mode = Mode::Searching { next: if is_upright { next } else { after }, is_upright };
        }
    }

    pub(super) fn confirm(&mut self, frame: &Frame, rivals: &[Window], eyes: &mut Eyes) {
        let Mode::Confirming { frames, lost, next } = self.mode else { return };
        let place = Self::inside(frame, self.at.x, self.at.y);
        let at = self.at;
        let worth = |(x, y)| if is_taken(Window { x, y, ..at }, rivals) { 0.0 } else { 1.0 };
        let sighting = self.look_for(frame, place, worth, &mut eyes.wide);
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

    /// Rejects the place that was found: it shows another target. The search continues.
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

/// True if the box would show another target. A box inside a larger one shows something else.
fn is_taken(at: Window, rivals: &[Window]) -> bool {
    rivals.iter().any(|rival| iou(rival.bounds(), at.bounds()) >= TAKEN)
}
