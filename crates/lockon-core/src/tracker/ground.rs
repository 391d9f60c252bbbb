//! The motion of a target against the ground, and whether it has stopped.
//!
//! A tracker that follows something by mistake most often follows ground: a post that the target passed, a
//! bush that it went behind. A filter that has learnt ground responds to it as well as to anything, but
//! ground moves with the camera. So a target that used to move against the ground, and does not any more, is
//! in doubt. It is measured against its own past: a target that hardly moves is never doubted for that.
//!
//! After Z. Zhou et al., "UHP-SOT++: An Unsupervised Lightweight Single Object Tracker", 2021, which compares
//! a target's motion with the background's.

use std::collections::VecDeque;

/// Seconds over which motion is measured, and the steps in it: at least so many, so that jitter is no motion,
/// and at most so many are kept.
const SPAN: f64 = 0.5;
const FEWEST: usize = 8;
const MOST: usize = 60;

/// A target moves if it usually goes farther within the span than this, in roots of its area.
const MOVES: f64 = 0.35;

/// The target has stopped if it went less far than this share of its usual distance. From three starts each
/// in 31 sequences, 0.2, 0.25 and 0.3 leave 0.27, 0.24 and 0.20 of the frames off target undetected, for
/// 0.50 %, 0.45 % and 0.62 % of the frames on target that are called lost.
const STOPPED: f64 = 0.25;

/// Frames after which the usual distance is known, and the rate at which it is learnt. It is learnt more
/// slowly from a target that goes less than half as far: otherwise a target that comes to rest slowly would
/// make rest usual before that is detected. One that goes farther still counts as moving; 0.35 scores alike.
const KNOWN: u32 = 15;
const RATE: f64 = 0.03;
const HALTING: f64 = 0.5;
const HALTING_RATE: f64 = 0.0075;

/// The last motions of a target against the ground, in roots of its area.
#[derive(Default)]
pub(super) struct Ground {
    /// Seconds, and how far it went across and down.
    steps: VecDeque<(f64, f64, f64)>,
    seconds: f64,
    usual: f64,
    frames: u32,
}

impl Ground {
    /// Records a step of the target; `None` where the camera's motion is not known. True if the target used
    /// to move and stands still. The usual distance is learnt where the box is surely the target's.
    pub(super) fn step(&mut self, seconds: f64, step: Option<(f64, f64)>, is_sure: bool) -> bool {
        let Some((x, y)) = step else {
            self.interrupt();
            return false;
        };
        self.steps.push_back((seconds, x, y));
        self.seconds += seconds;
        while self.steps.len() > MOST || self.steps.len() > FEWEST && self.seconds - self.steps[0].0 >= SPAN {
            self.seconds -= self.steps.pop_front().map_or(0.0, |(seconds, ..)| seconds);
        }
        if !self.has_span() {
            return false;
        }
        let went = self.farthest();
        let has_stopped = self.moves() && went < STOPPED * self.usual;
        if is_sure && !has_stopped {
            self.frames += 1;
            let rate = if went < HALTING * self.usual { HALTING_RATE } else { RATE };
            self.usual += rate.max(1.0 / f64::from(self.frames)) * (went - self.usual);
        }
        has_stopped
    }

    /// True if the target moves as it used to, or if the camera's motion is not known for the span, so that
    /// no evidence speaks against it. An object that covers the target, or that the target passes, moves with
    /// the ground.
    pub(super) fn goes_on(&self) -> bool {
        !self.has_span() || self.moves() && self.farthest() >= HALTING * self.usual
    }

    /// Starts the measurement again: the next step does not follow on the last.
    pub(super) fn interrupt(&mut self) {
        self.steps.clear();
        self.seconds = 0.0;
    }

    /// Its usual motion is known, and it usually moves.
    fn moves(&self) -> bool {
        self.frames >= KNOWN && self.usual > MOVES
    }

    /// True if enough steps are known to measure how far the target goes.
    fn has_span(&self) -> bool {
        self.steps.len() >= FEWEST && (self.seconds >= SPAN || self.steps.len() >= MOST)
    }

    /// Its largest distance from here within the span: a swinging target moves too.
    fn farthest(&self) -> f64 {
        let (mut x, mut y, mut most) = (0.0, 0.0, 0.0_f64);
        for step in self.steps.iter().rev() {
            (x, y) = (x + step.1, y + step.2);
            most = most.max(x * x + y * y);
        }
        most.sqrt()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The frame, of 25 a second, in which a target is doubted that goes `speed` a frame and stops in frame
    /// 100.
    fn doubted(speed: impl Fn(u32) -> f64) -> Option<u32> {
        let mut ground = Ground::default();
        (0..200).find(|&frame| ground.step(0.04, Some((speed(frame), 0.0)), true))
    }

    #[test]
    fn a_target_that_moved_and_stands_still_is_doubted_within_a_second() {
        let frame = doubted(|frame| if frame < 100 { 0.06 } else { 0.0 });
        assert!(frame.is_some_and(|frame| (100..125).contains(&frame)), "{frame:?}");
    }

    #[test]
    fn one_that_goes_on_or_never_moved_or_swings_is_not_doubted() {
        assert_eq!(doubted(|_| 0.06), None);
        assert_eq!(doubted(|frame| if frame % 2 == 0 { 0.02 } else { -0.02 }), None);
        assert_eq!(doubted(|frame| 0.1 * libm::sin(f64::from(frame) * 0.5)), None);
    }

    #[test]
    fn what_moves_as_before_goes_on_and_what_sticks_or_hardly_moved_does_not_while_the_camera_is_known() {
        let after = |speed: &dyn Fn(u32) -> f64| {
            let mut ground = Ground::default();
            for frame in 0..115 {
                ground.step(0.04, Some((speed(frame), 0.0)), true);
            }
            ground.goes_on()
        };
        assert!(after(&|_| 0.06));
        assert!(!after(&|frame| if frame < 100 { 0.06 } else { 0.0 }));
        assert!(!after(&|_| 0.01));
        assert!(Ground::default().goes_on());
    }

    #[test]
    fn nothing_is_doubted_while_the_camera_is_unknown() {
        let mut ground = Ground::default();
        for frame in 0..200 {
            let step = if frame < 100 { 0.06 } else { 0.0 };
            let is_known = frame < 100 || frame % 5 != 0;
            assert!(!ground.step(0.04, is_known.then_some((step, 0.0)), true), "{frame}");
        }
    }
}
