//! Following a target into a frame: from the forecast to the decision whether it is there.
//!
//! The steps are separate, since a device looks at the windows of all targets together between them.

use super::learning::DISTRACTOR_EVERY;
use super::{LEAST_SIDE, LEAST_SIZE, MOST_SIZE, Mode, SEARCH, Scene, Target, narrow_aim, square, wide_aim};
use crate::frame::{Frame, visible};
use crate::results::TrackState;
use crate::tracker::eye::{Aim, Eyes, LookThere, Purpose, Sight};
use crate::tracker::ground::Ground;
use crate::tracker::look::{Look, Looker, similarity};
use crate::tracker::sample::Window;
use crate::tracker::turn;

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

/// Share of the expected motion by which the window leads; cameras shake, so the last motion is half
/// believed.
const LEAD: f64 = 0.5;

/// How much of a new motion is taken in, and what is kept of it in a frame without a sighting.
const MOTION_RATE: f64 = 0.3;
const MOTION_DECAY: f64 = 0.95;

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

/// Rate at which the usual response is learnt: over some 20 frames.
const RESPONSE_RATE: f64 = 0.05;

/// Responses this near to another target are worth this share: two targets that look alike are not one.
const RIVAL: f32 = 0.6;

/// A followed target on its way into a frame.
pub(in crate::tracker) struct Pursuit {
    /// Its box if it were ground, or in the frame before if that is not known.
    before: Window,
    /// The middle of the wide window.
    expected: (f64, f64),
    /// The place that its own motion takes it to.
    own: (f64, f64),
    /// Frames without being sure, and whether it may be elsewhere.
    doubtful: u32,
    was_doubted: bool,
    /// The filter's response in the wide window.
    peak: f64,
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
pub(super) struct Near<'a> {
    few: [Window; FEW],
    count: usize,
    all: &'a [Window],
}

impl<'a> Near<'a> {
    /// Finds the rivals that a box of this size can touch if its middle is in the window.
    pub(super) fn new(all: &'a [Window], window: Window, (w, h): (f64, f64)) -> Self {
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

    pub(super) fn rivals(&self) -> &[Window] {
        self.few.get(..self.count).unwrap_or(self.all)
    }
}

impl Target {
    /// Follows it in the windows that are looked at one after the other.
    pub(super) fn follow(&mut self, scene: &Scene, mut pursuit: Pursuit, rivals: &[Window], eyes: &mut Eyes) {
        let frame = scene.frame;
        eyes.wide.see(frame, pursuit.wide_aim(), &self.colours, &self.wide);
        self.find(frame, &mut pursuit, rivals, &mut eyes.wide.sight);
        let [other, same] = self.narrow_aims();
        eyes.narrow.see(frame, other, &self.colours, &self.narrow);
        let response = eyes.narrow.sight.peak();
        eyes.narrow.see(frame, same, &self.colours, &self.narrow);
        self.sharpen(frame, &pursuit, rivals, response, &mut eyes.narrow.sight);
        if self.decide(scene, &pursuit, &eyes.wide.sight, &mut eyes.looker) {
            let place = self.middle();
            eyes.narrow.learn(&mut self.narrow, place);
            eyes.wide.learn(&mut self.wide, place);
        }
        self.reconsider(scene, &pursuit, rivals, eyes);
    }

    /// Begins to follow it into a frame, if it is being followed: from where it would be if it were ground,
    /// which is not known where the camera's motion is not.
    pub(in crate::tracker) fn begin(&mut self, scene: &Scene) -> Option<Pursuit> {
        let Mode::Following { doubtful } = self.mode else { return None };
        let &Scene { frame, seconds, camera, .. } = scene;
        (self.at.x, self.at.y) = self.carried(camera);
        let before = self.at;
        let limit = square(before, SEARCH).w / 4.0;
        let lead = |velocity: f64| (LEAD * velocity * seconds).clamp(-limit, limit);
        Some(Pursuit {
            before,
            expected: Self::inside(frame, before.x + lead(self.velocity.0), before.y + lead(self.velocity.1)),
            own: (before.x + self.velocity.0 * seconds, before.y + self.velocity.1 * seconds),
            doubtful,
            was_doubted: self.doubt.is_doubted(),
            peak: 0.0,
        })
    }

    /// The look at the wide window, if the filters lie on a device.
    pub(in crate::tracker) fn wide_look<'a>(
        &'a self,
        pursuit: &Pursuit,
        sight: &'a mut Sight,
    ) -> Option<LookThere<'a>> {
        let filter = self.wide.placed()?;
        let (aim, colours) = (pursuit.wide_aim(), &self.colours);
        Some(LookThere { aim, colours, filter, is_learnt: true, sight })
    }

    /// Finds it in the wide window; `rivals` are where the other targets should be by now.
    pub(in crate::tracker) fn find(
        &mut self,
        frame: &Frame,
        pursuit: &mut Pursuit,
        rivals: &[Window],
        wide: &mut Sight,
    ) {
        let (x, y) = pursuit.expected;
        let worth = pursuit.worth(rivals, wide.window());
        let sighting = wide.find(|dx, dy| worth((x + dx, y + dy)));
        self.looks.second_peak_ratio = wide.second_peak_ratio();
        (self.at.x, self.at.y) = Self::inside(frame, x + sighting.x, y + sighting.y);
        pursuit.peak = sighting.peak;
    }

    /// The looks at the narrow window, of another size and as it is.
    pub(in crate::tracker) fn narrow_looks<'a>(
        &'a self,
        sights: [&'a mut Sight; 2],
    ) -> Option<[LookThere<'a>; 2]> {
        let (filter, colours) = (self.narrow.placed()?, &self.colours);
        let ([other, same], [of_other, of_same]) = (self.narrow_aims(), sights);
        Some([
            LookThere { aim: other, colours, filter, is_learnt: false, sight: of_other },
            LookThere { aim: same, colours, filter, is_learnt: true, sight: of_same },
        ])
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
    pub(in crate::tracker) fn sharpen(
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

    /// Adds the boxes whose looks [`Self::decide`] compares.
    pub(in crate::tracker) fn boxes_to_compare(&self, wide: &Sight, boxes: &mut Vec<Window>) {
        boxes.extend(turn::boxes(self.at));
        if (self.age + 1).is_multiple_of(DISTRACTOR_EVERY) {
            boxes.extend(self.beside(wide));
        }
    }

    /// Decides whether it is where it was found, and learns it if so: all but the filters, which are to learn
    /// it if this is true.
    pub(in crate::tracker) fn decide(
        &mut self,
        scene: &Scene,
        pursuit: &Pursuit,
        wide: &Sight,
        looker: &mut Looker,
    ) -> bool {
        let &Scene { frame, seconds, camera, .. } = scene;
        let &Pursuit { before, expected, doubtful, peak, .. } = pursuit;
        let is_ground_known = camera.is_some();
        let (known, recent) = self.turn(frame, looker);
        let departure = self.departure();
        self.departure_of_late += SHORT_MEMORY * (departure - self.departure_of_late);

        if visible(self.at.bounds(), frame.format.size) < VISIBLE {
            (self.at.w, self.at.h, self.at.angle) = (before.w, before.h, before.angle);
            self.lose(frame);
            return false;
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
            return false;
        }
        if self.move_over_ground(before, seconds, is_ground_known, !has_changed) {
            if self.looks.first_likeness >= STILL_ITSELF {
                // It rests. Its motion is learnt again from the start, or one odd look would lose it later.
                self.ground = Ground::default();
            } else if doubtful == 0 {
                self.go_back();
                self.lose(frame);
                return false;
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
        self.learn(frame, (known, recent), wide, looker);
        true
    }

    /// Looks whether it is elsewhere, if that was doubted before it was followed into this frame.
    pub(in crate::tracker) fn reconsider(
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

    /// How far the last look at the target is from what is usual: 0 is as always, below is worse.
    ///
    /// An object that slowly comes in front of a target, or a part that the target leaves behind, is learnt
    /// as fast as it comes, and responds well. But it looks less like what was there before, and more of its
    /// surroundings look like it.
    pub(super) fn departure(&self) -> f64 {
        let look = self.usual_look.departure(self.looks.likeness);
        let second = -self.usual_second.departure(self.looks.second_peak_ratio);
        let (least, most) = DEPARTURES;
        0.5 * (look.clamp(least, most) + second.clamp(least, most))
    }

    /// Gives the box its direction. Returns how much it looks like what was seen at any time, and of late.
    pub(super) fn turn(&mut self, frame: &Frame, looker: &mut Looker) -> (f64, f64) {
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
}
