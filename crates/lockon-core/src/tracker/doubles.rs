//! Two tracks on one object: one of them has left its own.
//!
//! When two targets that look alike pass each other, the one behind is covered, and its filter finds in the
//! one in front all that it knows. From then on both tracks are as sure as ever. So tracks that lie on one
//! another for some frames are compared: the one that was less like itself while they met was covered, and is
//! lost. It is searched for again, and not where another target is.

use super::target::Target;
use crate::frame::{Frame, iou};

/// Boxes that overlap so much show one object, if it lasts for more than so many frames: what passes
/// something of its own size quickly covers it for less.
const SAME: f64 = 0.5;
const PASSING: u32 = 5;

/// Boxes that overlap so much meet.
const MEETING: f64 = 0.1;

/// Pairs of targets that meet; keeps its room.
#[derive(Default)]
pub(super) struct Doubles {
    meetings: Vec<Meeting>,
    /// Pairs of boxes that were given on one object.
    given: Vec<(u32, u32)>,
}

struct Meeting {
    /// The lower one first.
    ids: (u32, u32),
    /// How far each was at most from what is usual, since they met.
    least: (f64, f64),
    /// For how long they have lain on one another.
    frames: u32,
    goes_on: bool,
}

impl Doubles {
    /// A target begins. What lies on another one from its first frame on, was given twice.
    pub(super) fn begin(&mut self, begun: &Target, targets: &[Target]) {
        for other in targets {
            if iou(begun.bounds(), other.bounds()) >= SAME {
                self.given.push((other.id().min(begun.id()), other.id().max(begun.id())));
            }
        }
    }

    /// True if the numbers are of two targets, on two objects.
    pub(super) fn are_two(&self, a: u32, b: u32) -> bool {
        a != b && !self.given.contains(&(a.min(b), a.max(b)))
    }

    /// Loses targets that lie on another one's, after all have been followed into a frame. They are in the
    /// order of ids.
    pub(super) fn part(&mut self, targets: &mut [Target], frame: &Frame) {
        for meeting in &mut self.meetings {
            meeting.goes_on = false;
        }
        for second in 1..targets.len() {
            for first in 0..second {
                let (a, b) = (&targets[first], &targets[second]);
                let ids = (a.id(), b.id());
                if !a.is_followed() || !b.is_followed() || !self.are_two(ids.0, ids.1) {
                    continue;
                }
                let overlap = iou(a.bounds(), b.bounds());
                if overlap < MEETING {
                    continue;
                }
                let Self { meetings, .. } = self;
                let place = meetings.iter().position(|meeting| meeting.ids == ids).unwrap_or_else(|| {
                    meetings.push(Meeting { ids, least: (0.0, 0.0), frames: 0, goes_on: true });
                    meetings.len() - 1
                });
                let Meeting { least, frames, goes_on, .. } = &mut meetings[place];
                *least = (least.0.min(a.departure_of_late()), least.1.min(b.departure_of_late()));
                *frames = if overlap >= SAME { *frames + 1 } else { 0 };
                *goes_on = *frames <= PASSING;
                if !*goes_on {
                    let lost = if least.0 < least.1 { first } else { second };
                    targets[lost].lose(frame);
                }
            }
        }
        self.meetings.retain(|meeting| meeting.goes_on);
    }
}
