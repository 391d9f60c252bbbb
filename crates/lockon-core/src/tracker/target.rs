//! One target: what is known of it, where it is, and how sure that is.
//!
//! Each frame is looked at in a window about where the target should be, to find it and to learn from. Three
//! things must agree before anything is learnt: the response of the filter is what it usually is, the box
//! looks like what was seen before, and no other place is as good; measured in how much these vary for this
//! target (`usual.rs`). Where they do not, the track is uncertain and goes on as it moved; when that lasts,
//! it is lost, and a few windows of the frame are searched in each frame, nearest first. What is found there
//! must look like the target in several frames before it is believed.

use super::colour::Colours;
use super::eye::{Eye, Sighting};
use super::filter::Filter;
use super::sample::Window;
use super::shape::{Look, Shape, similarity};
use super::turn;
use super::usual::Usual;
use crate::frame::{Frame, Rect, visible};
use crate::results::{Track, TrackState};

/// Side of the window over the root of the box's area: a target may move by its own size between frames, and
/// the filter sees what lies around it. 3.2 loses fast targets (mean AUC 0.68), 4, 4.8 and 5.5 score alike
/// (0.71).
const SEARCH: f64 = 4.8;

/// Share of the expected motion by which the window leads; cameras shake, so the last motion is half
/// believed.
const LEAD: f64 = 0.5;
/// How much of a new motion is taken in, and what is kept of it in a frame without a sighting.
const MOTION_RATE: f64 = 0.3;
const MOTION_DECAY: f64 = 0.95;

/// How much of a frame's colours are learnt. Staple's.
const COLOUR_RATE: f32 = 0.04;

/// The shape is learnt in every third frame: it takes a third of the time, and changes slowly.
const SHAPE_PERIOD: u32 = 3;

/// A response below this share of the usual one is a sudden change: a jump, or something in front.
const SUDDEN: f64 = 0.55;
/// Unless the box looks this much, relative to what is usual, like what was seen before.
const FAMILIAR: f64 = 0.75;
/// A box that looks less like what was seen before, relative to what is usual, is something else.
const STRANGE: f64 = 0.35;

/// How far likeness and the second peak together must be from what is usual, in their own spreads and as a
/// mean over some three frames, for the target to be in doubt; and how near, for it to be trusted again, or
/// what is in front would be learnt at the first chance. Doubt at 2 and at 3 tells 0.91 and 0.84 of absences,
/// for 1.3 % and 0.6 % of good frames.
const IN_DOUBT: f64 = -2.5;
const TRUSTED_AGAIN: f64 = -1.25;
const SHORT_MEMORY: f64 = 0.3;
/// One of the two counts as at most so far below, and above: it may tell alone, and must not make up for the
/// other.
const DEPARTURES: (f64, f64) = (-8.0, 2.0);

/// Uncertain for more frames than this it is called lost; that the target is gone is likelier by then.
const PATIENCE: u32 = 4;
/// After so many more the window about where it should be is given up, and the frame is searched.
const WAITING: u32 = 8;

/// A box of which less than this lies in the frame has left it.
const VISIBLE: f64 = 0.3;

/// Windows of the frame that are searched in a frame while it is lost: the cost is bounded, a whole 720p
/// frame takes a second.
const WINDOWS: usize = 6;
/// Their distance over their side. With the wide taper a target is seen up to 0.3 of the side from the
/// middle.
const WINDOW_STEP: f64 = 0.6;
/// What is found again must respond and look like this share of what was usual, and be no farther from it,
/// for so many frames.
const FOUND_RESPONSE: f64 = 0.65;
const FOUND_LOOK: f64 = 0.6;
const FOUND_DEPARTURE: f64 = -2.5;
const CONFIRMATIONS: u32 = 3;

/// Rate at which the usual response is learnt: over some 20 frames.
const RESPONSE_RATE: f64 = 0.05;
/// What a box that is the target scores, before there is experience.
const EXPECTED: f64 = 0.8;
const EXPECTED_SECOND: f64 = 0.5;

/// Looks that are remembered besides the first. One is taken when the target has looked alike for some frames
/// and like none of those known.
const VIEWS: usize = 8;
const STEADY: f64 = 0.8;
const NEW: f64 = 0.6;
const STEADY_FRAMES: u32 = 10;
/// Share of a frame in the mean of recent looks.
const RECENT_RATE: f32 = 0.05;

/// Responses this near to another target are worth this share: two targets that look alike are not one.
const RIVAL: f32 = 0.6;

#[derive(Clone, Copy, PartialEq)]
enum Mode {
    /// Followed; for so many frames without being sure.
    Following { doubtful: u32 },
    /// The frame is searched. The window that comes next, and whether it is upright: a target that had turned
    /// may come back either way.
    Searching { next: usize, is_upright: bool },
    /// Found again, to be confirmed for so many frames; else `lost` was its box.
    Confirming { frames: u32, lost: Window },
}

pub(super) struct Target {
    id: u32,
    /// Its box, and the one it began with.
    at: Window,
    first: (f64, f64),
    /// The last box that was surely the target.
    confirmed: Window,
    /// In pixels a second.
    velocity: (f64, f64),
    mode: Mode,
    state: TrackState,
    score: f64,
    second_peak_ratio: f64,
    colours: Colours,
    filter: Filter,
    shape: Shape,
    /// The first look, which is never forgotten, then others.
    views: Vec<Look>,
    recent: Look,
    usual_look: Usual,
    usual_second: Usual,
    usual_response: f64,
    departure_of_late: f64,
    /// Frames from which was learnt.
    age: u32,
    /// Where the windows of a search lie, nearest first.
    places: Vec<(f64, f64)>,
}

impl Target {
    pub(super) fn new(id: u32, rect: Rect, frame: &Frame, eye: &mut Eye) -> Self {
        let (w, h) = (rect.w as f64, rect.h as f64);
        let at = Window { x: rect.x as f64 + w / 2.0, y: rect.y as f64 + h / 2.0, w, h, angle: 0.0 };
        let window = search_window(at);
        let mut colours = Colours::new(eye.is_coloured(frame, window));
        eye.look(frame, window, &colours);
        eye.learn_colours(&mut colours, (0.0, 0.0), (w, h), 1.0);
        eye.describe(&colours, false);
        let filter = eye.new_filter(w, h);
        let shape = Shape::new(&mut eye.looker, frame, at);
        let look = eye.looker.look(frame, at).clone();
        Self {
            id,
            at,
            first: (w, h),
            confirmed: at,
            velocity: (0.0, 0.0),
            mode: Mode::Following { doubtful: 0 },
            state: TrackState::Tracked,
            score: 1.0,
            second_peak_ratio: 0.0,
            colours,
            filter,
            shape,
            recent: look.clone(),
            views: vec![look],
            usual_look: Usual::new(EXPECTED),
            usual_second: Usual::new(EXPECTED_SECOND),
            usual_response: EXPECTED,
            departure_of_late: 0.0,
            age: 0,
            places: Vec::new(),
        }
    }

    pub(super) fn id(&self) -> u32 {
        self.id
    }

    pub(super) fn rescale(&mut self, x: f64, y: f64) {
        let scale = |at: Window| Window { x: at.x * x, y: at.y * y, w: at.w * x, h: at.h * y, ..at };
        (self.at, self.confirmed) = (scale(self.at), scale(self.confirmed));
        self.first = (self.first.0 * x, self.first.1 * y);
        self.velocity = (self.velocity.0 * x, self.velocity.1 * y);
        if let Mode::Confirming { lost, .. } = &mut self.mode {
            *lost = scale(*lost);
        }
        for place in &mut self.places {
            *place = (place.0 * x, place.1 * y);
        }
    }

    /// Where it should be after `seconds`, if it is known at all.
    pub(super) fn forecast(&self, seconds: f64) -> Option<Window> {
        let Mode::Following { .. } = self.mode else { return None };
        let (x, y) = (self.at.x + self.velocity.0 * seconds, self.at.y + self.velocity.1 * seconds);
        Some(Window { x, y, ..self.at })
    }

    /// Follows it into a frame, `seconds` after the last; `rivals` are where the other targets should be by
    /// now.
    pub(super) fn step(&mut self, frame: &Frame, seconds: f64, rivals: &[Window], eye: &mut Eye) {
        match self.mode {
            Mode::Following { doubtful } => self.follow(frame, seconds, doubtful, rivals, eye),
            Mode::Confirming { frames, lost } => self.confirm(frame, frames, lost, eye),
            Mode::Searching { next, is_upright } => self.search(frame, next, is_upright, eye),
        }
        if matches!(self.state, TrackState::Tracked | TrackState::Reacquired) {
            self.confirmed = self.at;
        }
    }

    fn follow(&mut self, frame: &Frame, seconds: f64, doubtful: u32, rivals: &[Window], eye: &mut Eye) {
        let before = self.at;
        let limit = search_side(before) / 4.0;
        let lead = |velocity: f64| (LEAD * velocity * seconds).clamp(-limit, limit);
        let expected =
            Self::inside(frame, before.x + lead(self.velocity.0), before.y + lead(self.velocity.1));
        let own = (before.x + self.velocity.0 * seconds, before.y + self.velocity.1 * seconds);
        // A place that is nearer to another target than to this one is that target's, if it is near at all.
        // When two pass each other only their motion tells them apart, hence the forecasts.
        let squared =
            |(ax, ay): (f64, f64), (bx, by): (f64, f64)| (ax - bx) * (ax - bx) + (ay - by) * (ay - by);
        let weight = |dx: f64, dy: f64| {
            let place = (expected.0 + dx, expected.1 + dy);
            let is_taken = rivals.iter().any(|rival| {
                let distance = squared(place, (rival.x, rival.y));
                distance < squared(place, own) && distance < 0.25 * rival.w * rival.h
            });
            if is_taken { RIVAL } else { 1.0 }
        };
        let sighting = self.look_for(frame, expected, weight, false, eye);
        (self.at.x, self.at.y) = Self::inside(frame, expected.0 + sighting.x, expected.1 + sighting.y);
        let (known, recent) = self.fit(frame, eye);
        let departure = self.departure();
        self.departure_of_late += SHORT_MEMORY * (departure - self.departure_of_late);

        if visible(self.at.bounds(), frame.format.size) < VISIBLE {
            (self.at.w, self.at.h, self.at.angle) = (before.w, before.h, before.angle);
            self.lose(frame);
            return;
        }
        let is_usual = sighting.peak >= SUDDEN * self.usual_response;
        let is_gone = self.score < STRANGE * self.usual_look.mean
            || !is_usual && self.score < FAMILIAR * self.usual_look.mean;
        let enough = if doubtful == 0 { IN_DOUBT } else { TRUSTED_AGAIN };
        let is_doubtful = self.departure_of_late < enough;
        if is_gone || is_doubtful {
            self.velocity = (MOTION_DECAY * self.velocity.0, MOTION_DECAY * self.velocity.1);
            if is_gone {
                (self.at.x, self.at.y) = expected;
            }
            (self.at.w, self.at.h, self.at.angle) = (before.w, before.h, before.angle);
            let doubtful = doubtful + 1;
            self.mode = Mode::Following { doubtful };
            self.state = if doubtful > PATIENCE { TrackState::Lost } else { TrackState::Uncertain };
            if doubtful > WAITING {
                self.lose(frame);
            }
            return;
        }
        self.mode = Mode::Following { doubtful: 0 };
        self.state =
            if self.state == TrackState::Lost { TrackState::Reacquired } else { TrackState::Tracked };
        let moved = ((self.at.x - before.x) / seconds, (self.at.y - before.y) / seconds);
        self.velocity.0 += MOTION_RATE * (moved.0 - self.velocity.0);
        self.velocity.1 += MOTION_RATE * (moved.1 - self.velocity.1);
        self.usual_look.learn(self.score);
        self.usual_second.learn(sighting.second);
        self.usual_response += RESPONSE_RATE * (sighting.peak - self.usual_response);
        self.learn(frame, known, recent, expected, eye);
    }

    fn learn(&mut self, frame: &Frame, known: f64, recent: f64, place: (f64, f64), eye: &mut Eye) {
        self.age += 1;
        let look = eye.looker.looked();
        if recent > STEADY && known < NEW && self.age > STEADY_FRAMES {
            if self.views.len() > VIEWS {
                self.views.remove(1);
            }
            self.views.push(look.clone());
        }
        for (recent, look) in self.recent.iter_mut().zip(look) {
            *recent += RECENT_RATE * (look - *recent);
        }
        let found = (self.at.x - place.0, self.at.y - place.1);
        eye.learn_filter(&mut self.filter, found);
        eye.learn_colours(&mut self.colours, found, (self.at.w, self.at.h), COLOUR_RATE);
        if self.age.is_multiple_of(SHAPE_PERIOD) {
            self.shape.learn(&mut eye.looker, frame, self.at);
        }
    }

    /// Gives the place up; the search goes out from it.
    fn lose(&mut self, frame: &Frame) {
        self.state = TrackState::Lost;
        self.velocity = (0.0, 0.0);
        self.mode = Mode::Searching { next: 0, is_upright: false };
        let size = frame.format.size;
        let step = search_side(self.at) * WINDOW_STEP;
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

    fn search(&mut self, frame: &Frame, next: usize, is_upright: bool, eye: &mut Eye) {
        let lost = self.at;
        if is_upright {
            self.at.angle = 0.0;
        }
        let angle = self.at.angle;
        let here = Self::inside(frame, lost.x, lost.y);
        let mut best: Option<(f64, (f64, f64))> = None;
        let count = WINDOWS.min(self.places.len());
        for index in 0..=count {
            // Where it was lost is looked at in every frame.
            let place = if index == count { here } else { self.places[(next + index) % self.places.len()] };
            let sighting = self.look_for(frame, place, |_, _| 1.0, true, eye);
            if best.is_none_or(|(peak, _)| sighting.peak > peak) {
                best = Some((sighting.peak, (place.0 + sighting.x, place.1 + sighting.y)));
            }
        }
        let (_, place) = best.expect("at least one window was looked at");
        // Once more, with the window about it.
        let place = Self::inside(frame, place.0, place.1);
        let sighting = self.look_for(frame, place, |_, _| 1.0, false, eye);
        let (x, y) = Self::inside(frame, place.0 + sighting.x, place.1 + sighting.y);
        // It may have come back nearer or farther by one step of what the search tolerates.
        let mut found = (f64::MIN, lost);
        for factor in [1.0, 1.0 / 1.2, 1.2] {
            self.at = Window { x, y, w: lost.w * factor, h: lost.h * factor, angle };
            let (known, recent) = self.likeness(eye.looker.look(frame, self.at));
            if known.max(recent) > found.0 {
                found = (known.max(recent), self.at);
            }
        }
        self.score = found.0;
        if self.is_found(sighting.peak) {
            self.at = found.1;
            self.mode = Mode::Confirming { frames: 0, lost };
        } else {
            self.at = lost;
            // The same windows upright, if that is something else, then the next ones.
            self.mode = if angle == 0.0 {
                Mode::Searching { next: (next + count) % self.places.len(), is_upright: false }
            } else {
                Mode::Searching { next, is_upright: true }
            };
        }
    }

    fn confirm(&mut self, frame: &Frame, frames: u32, lost: Window, eye: &mut Eye) {
        let place = Self::inside(frame, self.at.x, self.at.y);
        let sighting = self.look_for(frame, place, |_, _| 1.0, false, eye);
        (self.at.x, self.at.y) = Self::inside(frame, place.0 + sighting.x, place.1 + sighting.y);
        self.fit(frame, eye);
        if !self.is_found(sighting.peak) {
            self.at = lost;
            self.lose(frame);
        } else if frames + 1 < CONFIRMATIONS {
            self.mode = Mode::Confirming { frames: frames + 1, lost };
        } else {
            self.mode = Mode::Following { doubtful: 0 };
            self.state = TrackState::Reacquired;
            self.departure_of_late = 0.0;
        }
    }

    fn is_found(&self, peak: f64) -> bool {
        peak >= FOUND_RESPONSE * self.usual_response
            && self.score >= FOUND_LOOK * self.usual_look.mean
            && self.departure() >= FOUND_DEPARTURE
    }

    /// How far the last look at the target is from what is usual: 0 is as always, below is worse.
    ///
    /// What slowly comes in front of a target, or what it leaves behind, is learnt as fast as it comes, and
    /// responds well; but it looks less like what was there before, and more of its surroundings look like
    /// it.
    fn departure(&self) -> f64 {
        let look = self.usual_look.departure(self.score);
        let second = -self.usual_second.departure(self.second_peak_ratio);
        let (least, most) = DEPARTURES;
        0.5 * (look.clamp(least, most) + second.clamp(least, most))
    }

    /// The best place in a window, in which responses are worth what `weight` says of their displacement.
    fn look_for(
        &mut self,
        frame: &Frame,
        (x, y): (f64, f64),
        weight: impl Fn(f64, f64) -> f32,
        is_wide: bool,
        eye: &mut Eye,
    ) -> Sighting {
        eye.look(frame, search_window(Window { x, y, ..self.at }), &self.colours);
        eye.describe(&self.colours, is_wide);
        let sighting = eye.find(&self.filter, self.at.w, self.at.h, weight);
        self.second_peak_ratio = sighting.second;
        sighting
    }

    /// Gives the box its size, aspect and direction. Returns how much it looks like what was seen at any
    /// time, and of late.
    fn fit(&mut self, frame: &Frame, eye: &mut Eye) -> (f64, f64) {
        self.at = sensible(self.shape.fit(&mut eye.looker, frame, self.at, self.first), self.first);
        let known = |look: &Look| self.likeness(look).0;
        let angle = turn::follow(&mut eye.looker, frame, self.at, &self.views[0], &self.recent, known);
        if angle != self.at.angle {
            self.at.angle = angle;
            eye.looker.look(frame, self.at);
        }
        let (known, recent) = self.likeness(eye.looker.looked());
        self.score = known.max(recent);
        (known, recent)
    }

    /// How much a look is like what was seen at any time, and of late.
    fn likeness(&self, look: &Look) -> (f64, f64) {
        let known = self.views.iter().map(|view| similarity(view, look)).fold(-1.0, f64::max);
        (known, similarity(&self.recent, look))
    }

    /// A target's middle stays in the frame: beyond its border there is nothing to see.
    fn inside(frame: &Frame, x: f64, y: f64) -> (f64, f64) {
        let size = frame.format.size;
        (x.clamp(0.0, size.width as f64), y.clamp(0.0, size.height as f64))
    }

    /// This frame's record.
    pub(super) fn track(&self) -> Track {
        let at = if self.state == TrackState::Lost { self.confirmed } else { self.at };
        let [x, y, w, h] = at.bounds().map(|v| libm::round(v * 1000.0) / 1000.0);
        Track {
            id: self.id,
            template: None,
            state: self.state,
            x,
            y,
            w,
            h,
            score: self.score,
            second_peak_ratio: self.second_peak_ratio,
        }
    }
}

fn search_side(at: Window) -> f64 {
    SEARCH * (at.w * at.h).sqrt()
}

/// Where a target is looked for that should be at a place.
fn search_window(at: Window) -> Window {
    let side = search_side(at);
    Window { w: side, h: side, ..at }
}

/// A box between a fifth and six times its first size; with fewer than five pixels on a side nothing can be
/// told.
fn sensible(at: Window, first: (f64, f64)) -> Window {
    let limit = |length: f64, first: f64| length.clamp((0.2 * first).max(5.0).min(first), 6.0 * first);
    Window { w: limit(at.w, first.0), h: limit(at.h, first.1), ..at }
}
