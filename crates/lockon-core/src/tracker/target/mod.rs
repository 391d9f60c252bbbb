//! One target: its looks, its place, and the certainty.
//!
//! Each frame is looked at in a wide window about where the target should be, to find it and to learn from.
//! Then a narrow window gives place and size more finely. Three things must agree for a track to be sure: the
//! response of the filter is what it usually is, the box looks like earlier looks, and no other place is as
//! good; measured in how much these vary for this target (`usual.rs`). Where they do not, the track is
//! uncertain and nothing is learnt; when that lasts, it is lost, and the frame is searched (`search.rs`). A
//! target found there must look like the lost one in several frames before it is believed. A box that goes
//! out of the picture (`leaving.rs`) and is not clearly on its target is lost too.
//!
//! Motion against the ground (`ground.rs`) is a witness of its own. A target that used to move and sticks to
//! the ground now is lost at once, and recent looks are forgotten, unless it looks like the first one. A
//! target that keeps moving but looks strange has changed, and is learnt.
//!
//! How likely the box is right is another question (`score.rs`): what is learnt answers for itself, so only
//! the first look counts there.

mod distractors;
mod fit;
mod leaving;
mod proposals;
mod search;

use super::camera::Motion;
use super::colour::Colours;
use super::eye::{Aim, Eye, Eyes, LookThere, Purpose, Sight, Sighting};
use super::filter::{Filter, Memory};
use super::ground::Ground;
use super::look::{Look, Looker, similarity};
use super::outlines::Sketch;
use super::sample::Window;
use super::score;
use super::turn;
use super::usual::Usual;
use crate::frame::correlator::{Correlator, KEPT, Lesson};
use crate::frame::{Frame, Rect, visible};
use crate::results::{Track, TrackState};

use distractors::Distractors;
use fit::Fit;
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

/// The narrow window is looked at smaller and larger by this factor too, and so much of the step that
/// responds best is believed. 1.02 and the whole step score alike.
const SIZE_STEP: f64 = 1.03;
const SIZE_GAIN: f64 = 0.7;
/// Added to the curvature of the response over size, which draws a step to none where the response hardly
/// depends on size: a flat or striped target has any size.
const FLATNESS: f64 = 0.01;
/// Share by which the size goes back to the first one, every frame: the filter confirms what it was taught,
/// errors included, so without evidence the size would walk at random. With 0.1 % it does (0.592 instead of
/// 0.602).
const SIZE_DECAY: f64 = 0.005;

/// A box is between a fifth and six times its first size; with fewer than five pixels on a side the target
/// cannot be recognised.
const LEAST_SIZE: f64 = 0.2;
const MOST_SIZE: f64 = 6.0;
const LEAST_SIDE: f64 = 5.0;

/// Share of the expected motion by which the window leads; cameras shake, so the last motion is half
/// believed.
const LEAD: f64 = 0.5;
/// How much of a new motion is taken in, and what is kept of it in a frame without a sighting.
const MOTION_RATE: f64 = 0.3;
const MOTION_DECAY: f64 = 0.95;

/// The share of a frame's colours that is learnt. Staple's value.
const COLOUR_RATE: f32 = 0.04;

/// A response below this share of the usual one is a sudden change: a jump, or something in front.
const SUDDEN: f64 = 0.55;
/// Unless the box looks this much, relative to what is usual, like what was seen before.
const FAMILIAR: f64 = 0.75;
/// A box that looks less like what was seen before, relative to what is usual, is something else.
const STRANGE: f64 = 0.35;

/// A target that looks strange but keeps moving over the ground has changed, if it is no farther than this
/// from the usual in this frame: it is followed and learnt on, uncertain. -3 and -5 detect 0.50 and 0.68 of
/// absences in eight sequences, instead of 0.92.
const CHANGED: f64 = -4.0;
/// A target that stands still and looks so much like it did first is not ground. Boxes on ground had a
/// likeness to the first look of 0.33 at most, targets that really stood still 0.26 to 0.73; 0.35 and 0.55
/// score alike.
const STILL_ITSELF: f64 = 0.45;

/// How far likeness and the second peak together must be from the usual, in their own spreads and as a mean
/// over some three frames, for the target to be in doubt; and how near, for it to be trusted again, or the
/// object in front would be learnt at the first chance. Doubt at 2 and at 3 detects 0.91 and 0.84 of
/// absences, for 1.3 % and 0.6 % of good frames.
const IN_DOUBT: f64 = -2.5;
const TRUSTED_AGAIN: f64 = -1.25;
const SHORT_MEMORY: f64 = 0.3;
/// Limits of each of the two, below and above: one alone may cause doubt, but must not make up for the other.
const DEPARTURES: (f64, f64) = (-8.0, 2.0);

/// Uncertain for more frames than this it is called lost; that the target is gone is likelier by then.
const PATIENCE: u32 = 4;
/// After so many more the window about its forecast is abandoned, and the frame is searched.
const WAITING: u32 = 8;

/// A box has left the frame if less than this share of it lies inside.
const VISIBLE: f64 = 0.3;
/// A box that is leaving the frame with a score below that is not on its target. With 0.5 more absences are
/// seen (0.93 instead of 0.90), but targets that change at the border are lost.
const LEAVING_SCORE: f64 = 0.3;

/// Frames from which was learnt, from one to the next time that this is kept, [`KEPT`] times. A target in
/// doubt because of the ground goes back to what was kept first: some 30 to 45 frames.
const KEPT_EVERY: u32 = 15;

/// Rate at which the usual response is learnt: over some 20 frames.
const RESPONSE_RATE: f64 = 0.05;
/// The expected score of a box on its target, before there is experience.
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

/// What else the filter responds to is learnt from frames with such a score: every second one.
const SURE: f64 = 0.8;
const DISTRACTOR_EVERY: u32 = 2;

/// Responses this near to another target are worth this share: two targets that look alike are not one.
const RIVAL: f32 = 0.6;

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

/// A followed target on its way into a frame.
pub(super) struct Pursuit {
    /// Its box if it were ground, or in the frame before if that is not known.
    before: Window,
    /// The middle of the wide window.
    expected: (f64, f64),
    /// The place that its own motion takes it to.
    own: (f64, f64),
    /// Frames without being sure, and whether it may be elsewhere.
    doubtful: u32,
    was_doubted: bool,
    is_ground_known: bool,
    /// The filter's response in the wide window, and the middle of the narrow one.
    peak: f64,
    near: (f64, f64),
}

impl Pursuit {
    /// The wide window.
    fn wide_aim(&self) -> Aim {
        let (x, y) = self.expected;
        wide_aim(Window { x, y, ..self.before }, false)
    }

    /// The weight of a response at a place in a window. One that is nearer to another target than to this one
    /// is that target's, if it is near at all. When two pass each other only their motion separates them,
    /// hence the forecasts.
    fn worth<'a>(&self, rivals: &'a [Window], window: Window) -> impl Fn((f64, f64)) -> f32 + use<'a> {
        let squared =
            |(ax, ay): (f64, f64), (bx, by): (f64, f64)| (ax - bx) * (ax - bx) + (ay - by) * (ay - by);
        let own = self.own;
        let near = Near::new(rivals, window, (0.0, 0.0));
        move |place| {
            let is_taken = near.rivals().iter().any(|rival| {
                let distance = squared(place, (rival.x, rival.y));
                distance < squared(place, own) && distance < 0.25 * rival.w * rival.h
            });
            if is_taken { RIVAL } else { 1.0 }
        }
    }
}

/// If more rivals can matter in a window, all are looked at.
const FEW: usize = 8;

/// The rivals that can matter in a window.
struct Near<'a> {
    few: [Window; FEW],
    count: usize,
    all: &'a [Window],
}

impl<'a> Near<'a> {
    /// Those that a box of this size can touch whose middle is in the window.
    fn new(all: &'a [Window], window: Window, (w, h): (f64, f64)) -> Self {
        let (mut few, mut count) = ([window; FEW], 0);
        let half = |w: f64, h: f64| 0.5 * (w * w + h * h).sqrt();
        let reach = half(window.w, window.h) + half(w, h);
        for rival in all {
            let (x, y, reach) = (rival.x - window.x, rival.y - window.y, reach + half(rival.w, rival.h));
            if x * x + y * y <= reach * reach {
                if count < FEW {
                    few[count] = *rival;
                }
                count += 1;
            }
        }
        Self { few, count, all }
    }

    fn rivals(&self) -> &[Window] {
        self.few.get(..self.count).unwrap_or(self.all)
    }
}

/// What both filters are to learn of a frame: where the target lies in the windows, from their middles.
pub(super) struct Places {
    wide: (f64, f64),
    narrow: (f64, f64),
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
}

impl Target {
    pub(super) fn new(id: u32, rect: Rect, frame: &Frame, eyes: &mut Eyes) -> Self {
        let (w, h) = (rect.w as f64, rect.h as f64);
        let at = Window { x: rect.x as f64 + w / 2.0, y: rect.y as f64 + h / 2.0, w, h, angle: 0.0 };
        let Eyes { wide, narrow, looker } = eyes;
        let window = square(at, SEARCH);
        let mut colours = Colours::new(wide.is_coloured(frame, window));
        wide.describe(frame, wide_aim(at, false), &colours);
        wide.sight.learn_colours(&mut colours, (0.0, 0.0), (w, h), 1.0);
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
        match self.mode {
            Mode::Following { doubtful } => self.follow(scene, doubtful, rivals, eyes),
            Mode::Confirming { .. } => self.confirm(scene, rivals, eyes),
            Mode::Searching => self.search(scene, rivals, eyes),
        }
        self.rate();
    }

    /// Follows it in the windows that are looked at one after the other.
    fn follow(&mut self, scene: &Scene, doubtful: u32, rivals: &[Window], eyes: &mut Eyes) {
        let frame = scene.frame;
        let mut pursuit = self.pursue(scene, doubtful);
        eyes.wide.see(frame, pursuit.wide_aim(), &self.colours, &self.wide);
        self.find(frame, &mut pursuit, rivals, &mut eyes.wide.sight);
        let [other, same] = self.narrow_aims();
        eyes.narrow.see(frame, other, &self.colours, &self.narrow);
        let response = eyes.narrow.sight.peak();
        eyes.narrow.see(frame, same, &self.colours, &self.narrow);
        self.sharpen(frame, &pursuit, rivals, response, &mut eyes.narrow.sight);
        if let Some(places) = self.decide(scene, &pursuit, &eyes.wide.sight, &mut eyes.looker) {
            eyes.narrow.learn(&mut self.narrow, places.narrow);
            eyes.wide.learn(&mut self.wide, places.wide);
        }
        self.reconsider(scene, &pursuit, rivals, eyes);
    }

    /// Begins to follow it into a frame, if it is being followed.
    pub(super) fn begin(&mut self, scene: &Scene) -> Option<Pursuit> {
        let Mode::Following { doubtful } = self.mode else { return None };
        Some(self.pursue(scene, doubtful))
    }

    /// Follows it from where it would be if it were ground, which is not known where the camera's motion is
    /// not.
    fn pursue(&mut self, scene: &Scene, doubtful: u32) -> Pursuit {
        let &Scene { frame, seconds, camera, .. } = scene;
        (self.at.x, self.at.y) = self.carried(camera);
        let before = self.at;
        let limit = square(before, SEARCH).w / 4.0;
        let lead = |velocity: f64| (LEAD * velocity * seconds).clamp(-limit, limit);
        Pursuit {
            before,
            expected: Self::inside(frame, before.x + lead(self.velocity.0), before.y + lead(self.velocity.1)),
            own: (before.x + self.velocity.0 * seconds, before.y + self.velocity.1 * seconds),
            doubtful,
            was_doubted: self.doubt.is_doubted(),
            is_ground_known: camera.is_some(),
            peak: 0.0,
            near: (before.x, before.y),
        }
    }

    /// Finds it in the wide window; `rivals` are where the other targets should be by now.
    pub(super) fn find(&mut self, frame: &Frame, pursuit: &mut Pursuit, rivals: &[Window], wide: &mut Sight) {
        let (x, y) = pursuit.expected;
        let worth = pursuit.worth(rivals, wide.window());
        let sighting = wide.find(|dx, dy| worth((x + dx, y + dy)));
        self.looks.second_peak_ratio = wide.second_peak_ratio();
        (self.at.x, self.at.y) = Self::inside(frame, x + sighting.x, y + sighting.y);
        (pursuit.peak, pursuit.near) = (sighting.peak, (self.at.x, self.at.y));
    }

    /// The narrow window, smaller or larger in turn: how the other one responded is known from the frame
    /// before. Then as it is.
    fn narrow_aims(&self) -> [Aim; 2] {
        let is_larger = !self.other_size.0;
        let factor = if is_larger { SIZE_STEP } else { 1.0 / SIZE_STEP };
        [narrow_aim(self.at, factor, Purpose::Peak), narrow_aim(self.at, 1.0, Purpose::Place)]
    }

    /// Sets the box's place and size from the narrow window, and from the response in the one of another
    /// size.
    pub(super) fn sharpen(
        &mut self,
        frame: &Frame,
        pursuit: &Pursuit,
        rivals: &[Window],
        other: f64,
        narrow: &mut Sight,
    ) {
        let worth = pursuit.worth(rivals, narrow.window());
        let is_larger = !self.other_size.0;
        let same = narrow.peak();
        let fall = same - other;
        let last = same - self.other_size.1.unwrap_or(fall);
        self.other_size = (is_larger, Some(fall));
        let (smaller, larger) = if is_larger { (last, other) } else { (other, last) };
        let curvature = (2.0 * same - smaller - larger).max(0.0) + FLATNESS;
        let steps = (0.5 * (larger - smaller) / curvature).clamp(-1.0, 1.0);
        let at = self.at;
        let found = narrow.find(|dx, dy| worth((at.x + dx, at.y + dy)));
        (self.at.x, self.at.y) = Self::inside(frame, self.at.x + found.x, self.at.y + found.y);
        let size = 0.5 * libm::log(self.at.w * self.at.h / (self.first.0 * self.first.1));
        let size = (size + SIZE_GAIN * steps * libm::log(SIZE_STEP)) * (1.0 - SIZE_DECAY);
        let (w, h) = self.first;
        let least = (LEAST_SIDE / w.min(h)).clamp(LEAST_SIZE, 1.0);
        let size = libm::exp(size).clamp(least, MOST_SIZE);
        (self.at.w, self.at.h) = (size * w, size * h);
    }

    /// Decides whether it is where it was found, and learns it if so: all but the filters, which are to learn
    /// these places.
    pub(super) fn decide(
        &mut self,
        scene: &Scene,
        pursuit: &Pursuit,
        wide: &Sight,
        looker: &mut Looker,
    ) -> Option<Places> {
        let &Scene { frame, seconds, .. } = scene;
        let &Pursuit { before, expected, near, doubtful, is_ground_known, peak, .. } = pursuit;
        let (known, recent) = self.turn(frame, looker);
        let departure = self.departure();
        self.departure_of_late += SHORT_MEMORY * (departure - self.departure_of_late);

        if visible(self.at.bounds(), frame.format.size) < VISIBLE {
            (self.at.w, self.at.h, self.at.angle) = (before.w, before.h, before.angle);
            self.lose(frame);
            return None;
        }
        let is_usual = peak >= SUDDEN * self.usual_response;
        let is_gone = self.looks.likeness < STRANGE * self.usual_look.mean
            || !is_usual && self.looks.likeness < FAMILIAR * self.usual_look.mean;
        let enough = if doubtful == 0 { IN_DOUBT } else { TRUSTED_AGAIN };
        let is_doubtful = self.departure_of_late < enough;
        let is_going = self.leaving.step(self.at, frame.format.size) && self.looks.score() < LEAVING_SCORE;
        let is_strange = is_gone || is_doubtful || is_going;
        // A target that turns or opens its wings looks like nothing before, as a covered one does; but it
        // keeps moving, and the filter knows it. Once it is lost, it has to be found.
        let may_change = is_strange && !is_going && is_usual && departure > CHANGED && doubtful <= PATIENCE;
        let has_changed = may_change && self.ground.goes_on();
        if is_strange && !has_changed {
            self.velocity = (MOTION_DECAY * self.velocity.0, MOTION_DECAY * self.velocity.1);
            if is_gone {
                (self.at.x, self.at.y) = expected;
            }
            (self.at.w, self.at.h, self.at.angle) = (before.w, before.h, before.angle);
            self.move_over_ground(before, seconds, is_ground_known, false);
            let doubtful = doubtful + 1;
            self.mode = Mode::Following { doubtful };
            self.state = if doubtful > PATIENCE { TrackState::Lost } else { TrackState::Uncertain };
            if doubtful > WAITING {
                self.lose(frame);
            }
            return None;
        }
        if self.move_over_ground(before, seconds, is_ground_known, !has_changed) {
            if self.looks.first_likeness >= STILL_ITSELF {
                // It rests. Its motion is learnt again from the start, or one odd look would lose it later.
                self.ground = Ground::default();
            } else if doubtful == 0 {
                self.go_back();
                self.lose(frame);
                return None;
            }
        }
        self.mode = Mode::Following { doubtful: 0 };
        self.state = match self.state {
            _ if has_changed => TrackState::Uncertain,
            TrackState::Lost => TrackState::Reacquired,
            _ => TrackState::Tracked,
        };
        let moved = ((self.at.x - before.x) / seconds, (self.at.y - before.y) / seconds);
        self.velocity.0 += MOTION_RATE * (moved.0 - self.velocity.0);
        self.velocity.1 += MOTION_RATE * (moved.1 - self.velocity.1);
        self.usual_look.learn(self.looks.likeness);
        self.usual_second.learn(self.looks.second_peak_ratio);
        self.usual_response += RESPONSE_RATE * (peak - self.usual_response);
        Some(self.learn(frame, (known, recent), (expected, near), wide, looker))
    }

    /// Looks whether it is elsewhere, if that was doubted before it was followed into this frame.
    pub(super) fn reconsider(
        &mut self,
        scene: &Scene,
        pursuit: &Pursuit,
        rivals: &[Window],
        eyes: &mut Eyes,
    ) {
        self.doubt.step(self.looks.score());
        if pursuit.was_doubted
            && let Mode::Following { doubtful } = self.mode
        {
            self.look_elsewhere(scene, doubtful, rivals, eyes);
        }
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

    /// Records how far the box moved over the ground. True if the target used to move and stands still.
    fn move_over_ground(
        &mut self,
        before: Window,
        seconds: f64,
        is_ground_known: bool,
        is_sure: bool,
    ) -> bool {
        let root = (before.w * before.h).sqrt();
        let step = ((self.at.x - before.x) / root, (self.at.y - before.y) / root);
        self.ground.step(seconds, is_ground_known.then_some(step), is_sure)
    }

    /// Learns the target as it was found: in the wide window about one place, in the narrow one about
    /// another. The filters do so last.
    fn learn(
        &mut self,
        frame: &Frame,
        (known, recent): (f64, f64),
        (place, near): ((f64, f64), (f64, f64)),
        wide: &Sight,
        looker: &mut Looker,
    ) -> Places {
        self.age += 1;
        if self.age.is_multiple_of(KEPT_EVERY) {
            self.keep();
        }
        let look = looker.looked();
        if recent > STEADY && known < NEW && self.age > STEADY_FRAMES {
            if self.views.len() > VIEWS {
                self.views.remove(1);
            }
            self.views.push(View { look: look.clone(), sketch: looker.sketch() });
            self.views_taken += 1;
        }
        for (recent, look) in self.recent.iter_mut().zip(look) {
            *recent += RECENT_RATE * (look - *recent);
        }
        if self.looks.score() >= SURE
            && self.age.is_multiple_of(DISTRACTOR_EVERY)
            && let Some((x, y)) = wide.second_place(self.at.w, self.at.h)
        {
            let at = Window { x: place.0 + x, y: place.1 + y, ..self.at };
            self.distractors.learn(looker.look(frame, at));
        }
        let from = |(x, y): (f64, f64)| (self.at.x - x, self.at.y - y);
        let places = Places { wide: from(place), narrow: from(near) };
        wide.learn_colours(&mut self.colours, places.wide, (self.at.w, self.at.h), COLOUR_RATE);
        places
    }

    /// What a device's filters are to learn, of what was seen in the wide and in the narrow window.
    pub(super) fn lessons(&self, places: &Places, [wide, narrow]: [&Sight; 2]) -> [Option<Lesson<'_>>; 2] {
        fn lesson<'a>(filter: &'a Filter, sight: &Sight, place: (f64, f64)) -> Option<Lesson<'a>> {
            filter.placed().map(|placed| sight.lesson(placed, place))
        }
        [lesson(&self.narrow, narrow, places.narrow), lesson(&self.wide, wide, places.wide)]
    }

    /// Keeps the current state; once [`KEPT`] are stored it replaces the oldest one.
    fn keep(&mut self) {
        self.wide.keep();
        self.narrow.keep();
        if self.kept.len() < KEPT {
            return self.kept.push(self.colours.clone());
        }
        self.kept.rotate_left(1);
        self.kept[KEPT - 1].clone_from(&self.colours);
    }

    /// Forgets recent looks and motion.
    fn go_back(&mut self) {
        self.wide.go_back();
        self.narrow.go_back();
        if let Some(colours) = self.kept.first() {
            self.colours.clone_from(colours);
            self.recent.clone_from(&self.views[0].look);
        }
        self.kept.clear();
        self.ground = Ground::default();
    }

    /// Moves its filters to a device or to the host.
    pub(super) fn move_to(&mut self, device: Option<&dyn Correlator>) {
        self.wide.move_to(device);
        self.narrow.move_to(device);
    }

    /// Adds the boxes whose looks [`Self::decide`] compares.
    pub(super) fn boxes_to_compare(&self, wide: &Sight, boxes: &mut Vec<Window>) {
        boxes.extend(turn::boxes(self.at));
        if (self.age + 1).is_multiple_of(DISTRACTOR_EVERY) {
            let place = wide.second_place(self.at.w, self.at.h);
            let (x, y) = (wide.window().x, wide.window().y);
            boxes.extend(place.map(|(dx, dy)| Window { x: x + dx, y: y + dy, ..self.at }));
        }
    }

    /// True if its filters lie on a device.
    pub(super) fn is_on_device(&self) -> bool {
        self.wide.placed().is_some() && self.narrow.placed().is_some()
    }

    /// The look at the wide window, if the filters lie on a device.
    pub(super) fn wide_look<'a>(&'a self, pursuit: &Pursuit, sight: &'a mut Sight) -> Option<LookThere<'a>> {
        let filter = self.wide.placed()?;
        let (aim, colours) = (pursuit.wide_aim(), &self.colours);
        Some(LookThere { aim, colours, filter, is_learnt: true, sight })
    }

    /// The looks at the narrow window, of another size and as it is.
    pub(super) fn narrow_looks<'a>(&'a self, sights: [&'a mut Sight; 2]) -> Option<[LookThere<'a>; 2]> {
        let (filter, colours) = (self.narrow.placed()?, &self.colours);
        let ([other, same], [of_other, of_same]) = (self.narrow_aims(), sights);
        Some([
            LookThere { aim: other, colours, filter, is_learnt: false, sight: of_other },
            LookThere { aim: same, colours, filter, is_learnt: true, sight: of_same },
        ])
    }

    /// How far the last look at the target is from what is usual: 0 is as always, below is worse.
    ///
    /// An object that slowly comes in front of a target, or a part that the target leaves behind, is learnt
    /// as fast as it comes, and responds well. But it looks less like what was there before, and more of its
    /// surroundings look like it.
    fn departure(&self) -> f64 {
        let look = self.usual_look.departure(self.looks.likeness);
        let second = -self.usual_second.departure(self.looks.second_peak_ratio);
        let (least, most) = DEPARTURES;
        0.5 * (look.clamp(least, most) + second.clamp(least, most))
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

    /// Gives the box its direction. Returns how much it looks like what was seen at any time, and of late.
    fn turn(&mut self, frame: &Frame, looker: &mut Looker) -> (f64, f64) {
        let known = |look: &Look| self.compare(look).0;
        let angle = turn::follow(looker, frame, self.at, &self.views[0].look, &self.recent, known);
        if angle != self.at.angle {
            self.at.angle = angle;
            looker.look(frame, self.at);
        }
        let (known, recent) = self.compare(looker.looked());
        self.looks.likeness = known.max(recent);
        self.looks.first_likeness = similarity(&self.views[0].look, looker.looked());
        (known, recent)
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
