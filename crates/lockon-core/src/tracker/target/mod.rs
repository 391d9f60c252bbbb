//! One target: its looks, its place, and the certainty.
//!
//! Each frame is looked at in a wide window about where the target should be, to find it and to learn from.
//! Then a narrow window gives place and size more finely (`following.rs`, `learning.rs`). Three things must
//! agree for a track to be sure: the response of the filter is what it usually is, the box looks like earlier
//! looks, and no other place is as good; measured in how much these vary for this target (`usual.rs`). Where
//! they do not, the track is uncertain and nothing is learnt; when that lasts, it is lost, and the frame is
//! searched (`search.rs`). A target found there must look like the lost one in several frames before it is
//! believed. A box that goes out of the picture (`leaving.rs`) and is not clearly on its target is lost too.
//!
//! Motion against the ground (`ground.rs`) is a witness of its own. A target that used to move and sticks to
//! the ground now is lost at once, and recent looks are forgotten, unless it looks like the first one. A
//! target that keeps moving but looks strange has changed, and is learnt.
//!
//! How likely the box is right is another question (`score.rs`): what is learnt answers for itself, so only
//! the first look counts there.

mod distractors;
mod fit;
mod following;
mod learning;
mod leaving;
mod proposals;
mod search;

use super::camera::Motion;
use super::colour::Colours;
use super::eye::{Aim, Eye, Eyes, Purpose, Sighting};
use super::filter::{Filter, Memory};
use super::ground::Ground;
use super::look::{Look, similarity};
use super::outlines::Sketch;
use super::sample::Window;
use super::score;
use super::usual::Usual;
use crate::frame::correlator::Correlator;
use crate::frame::{Frame, Rect};
use crate::results::{Track, TrackState};

use distractors::Distractors;
use fit::Fit;
pub(super) use following::Pursuit;
use leaving::Leaving;
pub(super) use proposals::Cues;
use proposals::Proposals;
use search::{Doubt, Windows, is_taken, worth_of};

/// Side of the window over the root of the box's area: a target may move by its own size between frames, and
/// the filter sees what lies around it. 3.2 loses fast targets (mean AUC 0.68), 4, 4.8 and 5.5 score alike
/// (0.71).
const SEARCH: f64 = 4.8;

/// As above, for the narrow window. 2.4 follows less well (mean AUC of 31 sequences, three starts each:
/// 0.589), 3 and 3.5 alike (0.603 and 0.597).
const NARROW: f64 = 3.0;

/// The values that each filter is drawn to. The wide one is to find the target whatever happened of late; the
/// narrow one to follow it closely: with the memory of the wide one it follows less well (mean AUC of 31
/// sequences, 400 frames, three starts each: 0.609 instead of 0.625; 10 and 10, or 15 and 5 without colour
/// names: 0.619 and 0.621).
const WIDE_MEMORY: Memory = Memory { last: 40.0, first: 20.0 };
const NARROW_MEMORY: Memory = Memory { last: 15.0, first: 5.0 };

/// A box is between a fifth and six times its first size; with fewer than five pixels on a side the target
/// cannot be recognised.
const LEAST_SIZE: f64 = 0.2;
const MOST_SIZE: f64 = 6.0;
const LEAST_SIDE: f64 = 5.0;

/// The expected score of a box on its target, before there is experience.
const EXPECTED: f64 = 0.8;
const EXPECTED_SECOND: f64 = 0.5;

/// The data of a frame that all targets share.
pub(super) struct Scene<'a> {
    pub(super) frame: &'a Frame,
    /// Since the last frame.
    pub(super) seconds: f64,
    /// The camera's motion since then, if known.
    pub(super) camera: Option<Motion>,
    /// What is searched by in this frame; only where a target is searched for.
    pub(super) cues: Option<Cues<'a>>,
}

impl Scene<'_> {
    /// The place with the most motion for such a box, if that is searched by in this frame; none where it
    /// would show another target.
    fn moving(&self, at: Window, rivals: &[Window]) -> Option<(f64, f64)> {
        let Some(Cues::Colours { movers, .. }) = self.cues else { return None };
        movers.find((at.w, at.h), |(x, y)| !is_taken(Window { x, y, ..at }, rivals))
    }
}

#[derive(Clone, Copy, PartialEq)]
enum Mode {
    /// Followed; for so many frames without being sure.
    Following { doubtful: u32 },
    /// The frame is searched.
    Searching,
    /// Found elsewhere, and confirmed for so many frames so far. If it is not, it goes on where it was
    /// `before`: lost, or followed.
    Confirming { frames: u32, before: Window, followed: Option<Followed> },
}

/// How a target was followed when it seemed to be elsewhere.
#[derive(Clone, Copy, PartialEq)]
struct Followed {
    doubtful: u32,
    looks: Looks,
    /// The score that the other place must have.
    enough: f64,
}

/// How much a place looks like the target.
#[derive(Clone, Copy, PartialEq)]
struct Looks {
    /// The likeness of the box to the known looks of the target, and to its first look.
    likeness: f64,
    first_likeness: f64,
    /// The response at the second best place over that at the best one.
    second_peak_ratio: f64,
}

impl Looks {
    fn score(self) -> f64 {
        score::of(self.first_likeness, self.second_peak_ratio)
    }
}

/// An appearance that is remembered.
struct View {
    look: Look,
    sketch: Sketch,
}

pub(super) struct Target {
    id: u32,
    /// Its box, and the size it began with.
    at: Window,
    first: (f64, f64),
    /// The position of the object's own box relative to it.
    fit: Fit,
    /// The last box that was surely the target.
    confirmed: Window,
    /// In pixels a second.
    velocity: (f64, f64),
    mode: Mode,
    state: TrackState,
    looks: Looks,
    /// The probability that the box is on the target, if it is not lost.
    score: f64,
    colours: Colours,
    wide: Filter,
    narrow: Filter,
    /// The colours as they were when the filters were kept, oldest first.
    kept: Vec<Colours>,
    ground: Ground,
    /// The first look, which is never forgotten, then others; and the number ever taken.
    views: Vec<View>,
    views_taken: u32,
    distractors: Distractors,
    recent: Look,
    usual_look: Usual,
    usual_second: Usual,
    usual_response: f64,
    departure_of_late: f64,
    /// Frames from which was learnt.
    age: u32,
    /// The other size that was looked at last was the larger one, and by how much less the filter
    /// responded to it.
    other_size: (bool, Option<f64>),
    leaving: Leaving,
    doubt: Doubt,
    proposals: Proposals,
    windows: Windows,
    /// The lane of the device that its filters lie on, if they do.
    lane: Option<usize>,
}

impl Target {
    pub(super) fn new(id: u32, rect: Rect, frame: &Frame, eyes: &mut Eyes) -> Self {
        let (w, h) = (rect.w as f64, rect.h as f64);
        let at = Window { x: rect.x as f64 + w / 2.0, y: rect.y as f64 + h / 2.0, w, h, angle: 0.0 };
        let Eyes { wide, narrow, looker } = eyes;
        let window = square(at, SEARCH);
        let mut colours = Colours::new(wide.is_coloured(frame, window));
        wide.describe(frame, wide_aim(at, false), &colours);
        wide.sight.learn_colours(&mut colours, (at.x, at.y), (w, h), 1.0);
        wide.describe(frame, wide_aim(at, false), &colours);
        narrow.describe(frame, narrow_aim(at, 1.0, Purpose::Place), &colours);
        let view = View { look: looker.look(frame, at).clone(), sketch: looker.sketch() };
        Self {
            id,
            at,
            first: (w, h),
            fit: Fit::default(),
            confirmed: at,
            velocity: (0.0, 0.0),
            mode: Mode::Following { doubtful: 0 },
            state: TrackState::Tracked,
            looks: Looks { likeness: 1.0, first_likeness: 1.0, second_peak_ratio: 0.0 },
            score: 1.0,
            colours,
            wide: wide.new_filter(WIDE_MEMORY),
            narrow: narrow.new_filter(NARROW_MEMORY),
            kept: Vec::new(),
            ground: Ground::default(),
            recent: view.look.clone(),
            views: vec![view],
            views_taken: 1,
            distractors: Distractors::default(),
            usual_look: Usual::new(EXPECTED),
            usual_second: Usual::new(EXPECTED_SECOND),
            usual_response: EXPECTED,
            departure_of_late: 0.0,
            age: 0,
            other_size: (false, None),
            leaving: Leaving::default(),
            doubt: Doubt::default(),
            proposals: Proposals::default(),
            windows: Windows::default(),
            lane: None,
        }
    }

    pub(super) fn id(&self) -> u32 {
        self.id
    }

    /// Goes on where the other one is, and that one where it was: each was on the other one's object, and
    /// knows its own as it was before.
    pub(super) fn change_places(&mut self, other: &mut Self) {
        for target in [&mut *self, &mut *other] {
            target.go_back();
            target.leaving = Leaving::default();
        }
        std::mem::swap(&mut self.velocity, &mut other.velocity);
        let (here, there) = (self.at, other.at);
        self.at = Window { x: there.x, y: there.y, ..here };
        other.at = Window { x: here.x, y: here.y, ..there };
        (self.confirmed, other.confirmed) = (self.at, other.at);
    }

    /// True if it is reported as surely followed, but for its score.
    pub(super) fn is_sure(&self) -> bool {
        self.is_followed() && self.state != TrackState::Uncertain
    }

    /// The place of its middle.
    pub(super) fn middle(&self) -> (f64, f64) {
        (self.at.x, self.at.y)
    }

    /// Its motion over the ground, in pixels a second.
    pub(super) fn velocity(&self) -> (f64, f64) {
        self.velocity
    }

    /// What is followed of it: its box before a detection corrected that.
    pub(super) fn window(&self) -> Window {
        self.at
    }

    /// The mean of its looks of late.
    pub(super) fn recent(&self) -> &Look {
        &self.recent
    }

    pub(super) fn rescale(&mut self, x: f64, y: f64) {
        let scale = |at: Window| Window { x: at.x * x, y: at.y * y, w: at.w * x, h: at.h * y, ..at };
        (self.at, self.confirmed) = (scale(self.at), scale(self.confirmed));
        self.first = (self.first.0 * x, self.first.1 * y);
        self.velocity = (self.velocity.0 * x, self.velocity.1 * y);
        if let Mode::Confirming { before, .. } = &mut self.mode {
            *before = scale(*before);
        }
        self.windows.rescale(x, y);
        self.proposals.restart();
        self.leaving = Leaving::default();
    }

    /// True if it is where its box is, as far as is known.
    pub(super) fn is_followed(&self) -> bool {
        matches!(self.mode, Mode::Following { .. }) && self.state != TrackState::Lost
    }

    /// True if something was found that may be it.
    pub(super) fn is_being_confirmed(&self) -> bool {
        matches!(self.mode, Mode::Confirming { .. })
    }

    /// The likeness of the box to its known looks.
    pub(super) fn likeness(&self) -> f64 {
        self.looks.likeness
    }

    /// The distance from its usual likeness in the last frames.
    pub(super) fn departure_of_late(&self) -> f64 {
        self.departure_of_late
    }

    /// The last box that was surely its own.
    pub(super) fn confirmed(&self) -> Window {
        self.confirmed
    }

    /// It has come upon another target, and was where it is `confirmed` before: what was learnt since then is
    /// of the other one.
    pub(super) fn leave(&mut self, confirmed: Window, frame: &Frame) {
        (self.at, self.confirmed) = (confirmed, confirmed);
        self.go_back();
        self.lose(frame);
    }

    /// True if the next frame will be searched for it.
    pub(super) fn is_searched_for(&self) -> bool {
        match self.mode {
            Mode::Following { .. } => self.doubt.is_doubted(),
            Mode::Searching => true,
            Mode::Confirming { .. } => false,
        }
    }

    /// True if its colours have chroma.
    pub(super) fn is_coloured(&self) -> bool {
        self.colours.has_chroma
    }

    /// The object's box, as `[x, y, w, h]`.
    pub(super) fn bounds(&self) -> [f64; 4] {
        self.fit.of(self.at.bounds())
    }

    /// The object was detected in this box. What is followed of it stays as it is: only how the object's box
    /// lies to that is known better.
    pub(super) fn correct(&mut self, rect: Rect) {
        self.fit.learn(self.at.bounds(), rect.bounds());
    }

    /// Its forecast place after `seconds` with this motion of the camera, if it is known at all.
    pub(super) fn forecast(&self, seconds: f64, camera: Option<Motion>) -> Option<Window> {
        let Mode::Following { .. } = self.mode else { return None };
        let (x, y) = self.carried(camera);
        let (x, y) = (x + self.velocity.0 * seconds, y + self.velocity.1 * seconds);
        Some(Window { x, y, ..self.at })
    }

    /// The place of its middle if it were ground.
    fn carried(&self, camera: Option<Motion>) -> (f64, f64) {
        let place = (self.at.x, self.at.y);
        camera.map_or(place, |camera| camera.apply(place))
    }

    /// Follows it into a frame; `rivals` are where the other targets should be by now.
    pub(super) fn step(&mut self, scene: &Scene, rivals: &[Window], eyes: &mut Eyes) {
        if let Some(pursuit) = self.begin(scene) {
            self.follow(scene, pursuit, rivals, eyes);
        } else if self.is_being_confirmed() {
            self.confirm(scene, rivals, eyes);
        } else {
            self.search(scene, rivals, eyes);
        }
        self.rate();
    }

    /// Sets the score of a frame.
    pub(super) fn rate(&mut self) {
        self.score = self.looks.score();
        let is_sure = matches!(self.state, TrackState::Tracked | TrackState::Reacquired);
        let is_confirmed = matches!(self.mode, Mode::Following { .. });
        if is_confirmed && is_sure && self.score >= score::LIKELY {
            self.confirmed = self.at;
        }
    }

    /// Moves its filters to a lane of a device; false if there is no room for both. Then both are on the
    /// host.
    pub(super) fn enter_lane(&mut self, lane: usize, device: &dyn Correlator) -> bool {
        self.wide.move_to(Some(device));
        self.narrow.move_to(Some(device));
        self.lane = (self.wide.placed().is_some() && self.narrow.placed().is_some()).then_some(lane);
        if self.lane.is_none() {
            self.leave_lane();
        }
        self.lane.is_some()
    }

    /// Moves its filters to the host.
    pub(super) fn leave_lane(&mut self) {
        self.wide.move_to(None);
        self.narrow.move_to(None);
        self.lane = None;
    }

    /// The lane that its filters are in, if they lie on a device.
    pub(super) fn lane(&self) -> Option<usize> {
        self.lane
    }

    /// The best place of a box of this size and direction in a window about a place, unless it would show a
    /// rival there, and the second peak over the first.
    fn look_for(
        &self,
        frame: &Frame,
        at: Window,
        (x, y): (f64, f64),
        rivals: &[Window],
        eye: &mut Eye,
    ) -> (Sighting, f64) {
        eye.see(frame, wide_aim(Window { x, y, ..at }, false), &self.colours, &self.wide);
        let worth = worth_of(at, rivals, eye.sight.window());
        let sighting = eye.sight.find(|dx, dy| worth((x + dx, y + dy)));
        (sighting, eye.sight.second_peak_ratio())
    }

    /// How much a look is like what was seen at any time, and of late.
    fn compare(&self, look: &Look) -> (f64, f64) {
        let known = self.views.iter().map(|view| similarity(&view.look, look)).fold(-1.0, f64::max);
        (known, similarity(&self.recent, look))
    }

    /// A target's middle stays in the frame: beyond its border there is nothing to see.
    fn inside(frame: &Frame, x: f64, y: f64) -> (f64, f64) {
        let size = frame.format.size;
        (x.clamp(0.0, size.width as f64), y.clamp(0.0, size.height as f64))
    }

    /// This frame's record.
    pub(super) fn track(&self) -> Track {
        let (at, score) =
            if self.state == TrackState::Lost { (self.confirmed, 0.0) } else { (self.at, self.score) };
        let [x, y, w, h] = self.fit.of(at.bounds()).map(|v| libm::round(v * 1000.0) / 1000.0);
        Track {
            id: self.id,
            name: None,
            template: None,
            state: self.state,
            x,
            y,
            w,
            h,
            score,
            second_peak_ratio: self.looks.second_peak_ratio,
            object: None,
        }
    }
}

/// A look at the wide window about a box, with the taper of searches or not.
fn wide_aim(at: Window, is_wide: bool) -> Aim {
    Aim { window: square(at, SEARCH), size: (at.w, at.h), is_wide, purpose: Purpose::PlaceAndColours }
}

/// A look at the narrow window about a box, so many times as large.
fn narrow_aim(at: Window, factor: f64, purpose: Purpose) -> Aim {
    Aim { window: square(at, factor * NARROW), size: (at.w, at.h), is_wide: false, purpose }
}

/// A square about a box, so many times as long as the root of the box's area.
fn square(at: Window, factor: f64) -> Window {
    let side = factor * (at.w * at.h).sqrt();
    Window { w: side, h: side, ..at }
}
