//! Two tracks on one object: one of them has left its own.
//!
//! When two targets that look alike pass each other, the one behind is covered, and its filter finds in the
//! one in front all that it knows. From then on both tracks are as sure as ever. So tracks that lie on one
//! another for some frames are compared: the one that was less like itself while they met was covered, and is
//! lost. It is searched for again, and not where another target is.

use super::sample::Window;
use super::target::Target;
use crate::frame::{Frame, iou};

/// Boxes that overlap so much show one object, if it lasts for more than so many frames: what passes
/// something of its own size quickly covers it for less.
const SAME: f64 = 0.5;
const PASSING: u32 = 5;

/// Boxes that overlap so much meet.
pub(super) const MEETING: f64 = 0.1;

/// The share of a moment of low likeness that still counts one frame later.
const MEMORY: f64 = 0.95;

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
    /// The largest recent distance of each from its usual values.
    least: (f64, f64),
    /// The last box at which each was surely itself, before they overlapped.
    confirmed: (Window, Window),
    /// Frames for which they have overlapped.
    frames: u32,
    goes_on: bool,
}

impl Doubles {
    /// A box that was given begins. What lies on another target from its first frame on, was given twice.
    pub(super) fn begin(&mut self, begun: &Target, targets: &[Target]) {
        for other in targets.iter().filter(|other| other.is_followed()) {
            if iou(begun.bounds(), other.bounds()) >= SAME {
                self.given.push((other.id().min(begun.id()), other.id().max(begun.id())));
            }
        }
    }

    /// Frames have another size from now on: meetings continue as if they had just begun.
    pub(super) fn rescale(&mut self) {
        self.meetings.clear();
    }

    /// Forgets a target's meetings: it ends, or begins again elsewhere.
    pub(super) fn forget(&mut self, is_gone: impl Fn(u32) -> bool) {
        self.meetings.retain(|meeting| !is_gone(meeting.ids.0) && !is_gone(meeting.ids.1));
        self.given.retain(|ids| !is_gone(ids.0) && !is_gone(ids.1));
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
                let overlap = iou(a.bounds(), b.bounds());
                if overlap < MEETING || !self.are_two(a.id(), b.id()) {
                    continue;
                }
                if a.is_followed() && b.is_followed() {
                    if let Some((is_second, confirmed)) = self.meet((a, b), overlap) {
                        targets[if is_second { second } else { first }].leave(confirmed, frame);
                    }
                } else if overlap >= SAME {
                    // The target found there is already followed, or two targets claim it and one of them is
                    // more like it.
                    let refused = match (a.is_being_confirmed(), b.is_being_confirmed()) {
                        (true, true) => Some(if a.likeness() < b.likeness() { first } else { second }),
                        (true, false) if b.is_followed() => Some(first),
                        (false, true) if a.is_followed() => Some(second),
                        _ => None,
                    };
                    if let Some(index) = refused {
                        targets[index].refuse();
                    }
                }
            }
        }
        self.meetings.retain(|meeting| meeting.goes_on);
    }

    /// Two targets meet in a frame. Which of them has lain on the other for too long, the second one or not,
    /// and where it was before.
    fn meet(&mut self, (a, b): (&Target, &Target), overlap: f64) -> Option<(bool, Window)> {
        let ids = (a.id(), b.id());
        let confirmed = (a.confirmed(), b.confirmed());
        let place = self.meetings.iter().position(|meeting| meeting.ids == ids).unwrap_or_else(|| {
            self.meetings.push(Meeting { ids, least: (0.0, 0.0), confirmed, frames: 0, goes_on: true });
            self.meetings.len() - 1
        });
        let meeting = &mut self.meetings[place];
        let least = |before: f64, target: &Target| (MEMORY * before).min(target.departure_of_late());
        meeting.least = (least(meeting.least.0, a), least(meeting.least.1, b));
        if overlap < SAME {
            (meeting.frames, meeting.confirmed) = (0, confirmed);
        } else {
            meeting.frames += 1;
        }
        meeting.goes_on = meeting.frames <= PASSING;
        let is_second = meeting.least.1 <= meeting.least.0;
        let place = if is_second { meeting.confirmed.1 } else { meeting.confirmed.0 };
        (!meeting.goes_on).then_some((is_second, place))
    }
}
