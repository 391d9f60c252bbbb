//! Identity switches: two tracks that exchange their objects where these cross.
//!
//! When two targets cross, each filter may continue with the other target's object, and both tracks stay as
//! sure as before. So the looks and the motion of both are stored when they meet. Once they are apart again,
//! two assignments are compared: each track is on its own object, or each is on the other's. If their looks
//! differ enough, the looks decide, and tracks on each other's object change places. If not, and they met for
//! a moment only, their motion decides. Otherwise the identities are unknown: both tracks are uncertain until
//! their looks differ enough, one of them is corrected, or one of them ends.

use super::camera::Motion;
use super::doubles::{Doubles, MEETING};
use super::look::{Look, Looker, similarity};
use super::target::Target;
use crate::frame::{Frame, Rect, iou};

/// Targets whose boxes overlapped so much have crossed; less is a touch.
const CROSSED: f64 = 0.3;

/// The decision is made after so many frames apart. The comparison of looks is averaged over the frames,
/// later with this rate.
const APART: u32 = 3;
const RATE: f64 = 0.1;
/// Looks decide if one assignment is better than the other by this, in the sum of both targets' NCC.
const TOLD: f64 = 0.2;
/// Frames apart after which looks are compared in each so many frames only, and can say no more than that
/// both are what they were: light and poses change.
const EARLY: u32 = 30;
const EVERY: u32 = 8;

/// Frames for which a motion is extrapolated. 12 frames, and places that are 0.7 off, leave 8 % of the boxes
/// of shuffled cups wrong and sure, instead of 0.2 % (docs/lab/tracking.md).
const EXTRAPOLATED: u32 = 8;
/// The most that both may be off their places, in roots of the box's area, and how many times as far they
/// must be from each other's.
const PLACE: f64 = 0.35;
const FARTHER: f64 = 2.0;

/// Pairs of targets that cross, or that have crossed and whose identities are not known yet.
#[derive(Default)]
pub(super) struct Crossings {
    crossings: Vec<Crossing>,
}

struct Crossing {
    /// The lower one first, as everything of two.
    ids: (u32, u32),
    /// Their looks when they met.
    looks: [Look; 2],
    /// Where they would be with the motion that they had then, and that motion in pixels a second.
    places: [(f64, f64); 2],
    velocities: [(f64, f64); 2],
    /// Frames since they met, and since they have parted.
    together: u32,
    apart: u32,
    deepest: f64,
    verdict: Verdict,
    /// Their identities are unknown.
    is_unknown: bool,
}

/// The evidence for an assignment: above 0 each track is on its own object, below 0 on the other's.
#[derive(Clone, Copy, Default)]
struct Verdict {
    looks: f64,
    motion: f64,
}

impl Verdict {
    /// True if each track is on the other's object; `None` if that is unknown.
    fn is_exchanged(self) -> Option<bool> {
        [(self.looks, TOLD), (self.motion, f64::MIN_POSITIVE)]
            .into_iter()
            .find(|(says, least)| says.abs() >= *least)
            .map(|(says, _)| says < 0.0)
    }
}

impl Crossings {
    /// Takes in a frame, into which the targets have been followed, in the order of their ids. Two on each
    /// other's object change places.
    pub(super) fn step(
        &mut self,
        targets: &mut [Target],
        doubles: &Doubles,
        (frame, seconds, camera): (&Frame, f64, Option<Motion>),
        looker: &mut Looker,
    ) {
        // At most one exchange in a frame: it changes what the others are about.
        let mut exchanged = None;
        self.crossings.retain_mut(|crossing| {
            let of = |id: u32| targets.iter().find(|target| target.id() == id);
            let (Some(a), Some(b)) = (of(crossing.ids.0), of(crossing.ids.1)) else { return false };
            crossing.go_on(seconds, camera);
            let overlap = iou(a.bounds(), b.bounds());
            if overlap >= MEETING && a.is_followed() && b.is_followed() {
                crossing.deepest = crossing.deepest.max(overlap);
                crossing.apart = 0;
            }
            if overlap >= MEETING || !a.is_sure() || !b.is_sure() {
                return true;
            }
            if crossing.deepest < CROSSED {
                return false;
            }
            crossing.judge([a, b], frame, looker);
            if crossing.apart < APART {
                return true;
            }
            match crossing.verdict.is_exchanged() {
                Some(false) => false,
                Some(true) if crossing.apart <= EARLY && exchanged.is_none() => {
                    exchanged = Some(crossing.ids);
                    false
                }
                _ => {
                    crossing.is_unknown = true;
                    true
                }
            }
        });
        if let Some(ids) = exchanged {
            tracing::info!("tracks {} and {} were on each other's object after they crossed", ids.0, ids.1);
            self.exchange(ids, targets);
        }
        self.begin(targets, doubles);
    }

    /// Two change places; what they have with others is judged again.
    fn exchange(&mut self, ids: (u32, u32), targets: &mut [Target]) {
        let mut pair = targets.iter_mut().filter(|target| [ids.0, ids.1].contains(&target.id()));
        if let (Some(a), Some(b)) = (pair.next(), pair.next()) {
            a.change_places(b);
        }
        for crossing in
            self.crossings.iter_mut().filter(|crossing| crossing.is_of(ids.0) || crossing.is_of(ids.1))
        {
            crossing.apart = 0;
        }
    }

    /// A track is about to be corrected to this box. If the box lies on a track that it may have exchanged
    /// its object with, the two change places.
    pub(super) fn correct(&mut self, id: u32, rect: Rect, targets: &mut [Target]) {
        let box_of = |id: u32| targets.iter().find(|target| target.id() == id).map(Target::bounds);
        let on = |id: u32| box_of(id).map_or(0.0, |bounds| iou(bounds, rect.bounds()));
        let unknown = self.crossings.iter().filter(|crossing| crossing.is_unknown && crossing.is_of(id));
        let ids = unknown.map(|crossing| crossing.ids).find(|ids| {
            let other = if ids.0 == id { ids.1 } else { ids.0 };
            on(other) >= CROSSED && on(other) > on(id)
        });
        if let Some(ids) = ids {
            self.exchange(ids, targets);
        }
    }

    /// Begins the crossings of those that meet.
    fn begin(&mut self, targets: &[Target], doubles: &Doubles) {
        for (index, b) in targets.iter().enumerate() {
            for a in &targets[..index] {
                let ids = (a.id(), b.id());
                let is_new = || !self.crossings.iter().any(|crossing| crossing.ids == ids);
                if a.is_followed()
                    && b.is_followed()
                    && iou(a.bounds(), b.bounds()) >= MEETING
                    && doubles.are_two(a.id(), b.id())
                    && is_new()
                {
                    self.crossings.push(Crossing {
                        ids,
                        looks: [a, b].map(|target| target.recent().clone()),
                        places: [a, b].map(Target::middle),
                        velocities: [a, b].map(Target::velocity),
                        together: 0,
                        apart: 0,
                        deepest: 0.0,
                        verdict: Verdict::default(),
                        is_unknown: false,
                    });
                }
            }
        }
    }

    /// True if the track's identity is unknown since a crossing.
    pub(super) fn is_unknown(&self, id: u32) -> bool {
        self.crossings.iter().any(|crossing| crossing.is_unknown && crossing.is_of(id))
    }

    /// Frames have another size from now on: motions are not known any more.
    pub(super) fn rescale(&mut self) {
        for crossing in &mut self.crossings {
            crossing.together = EXTRAPOLATED + 1;
        }
    }

    /// Forgets a target's crossings: it ends, or begins again elsewhere.
    pub(super) fn forget(&mut self, is_gone: impl Fn(u32) -> bool) {
        self.crossings.retain(|crossing| !is_gone(crossing.ids.0) && !is_gone(crossing.ids.1));
    }
}

impl Crossing {
    fn is_of(&self, id: u32) -> bool {
        self.ids.0 == id || self.ids.1 == id
    }

    /// The next frame: where they would be now.
    fn go_on(&mut self, seconds: f64, camera: Option<Motion>) {
        self.together += u32::from(self.apart == 0);
        for (place, (x, y)) in self.places.iter_mut().zip(self.velocities) {
            let carried = camera.map_or(*place, |camera| camera.apply(*place));
            *place = (carried.0 + x * seconds, carried.1 + y * seconds);
        }
    }

    /// Compares the two ways to give out the numbers, in a frame in which they are apart.
    fn judge(&mut self, pair: [&Target; 2], frame: &Frame, looker: &mut Looker) {
        self.apart += 1;
        if self.apart == 1 {
            self.verdict = Verdict { looks: 0.0, motion: self.by_motion(pair) };
        }
        if self.apart > EARLY && !self.apart.is_multiple_of(EVERY) {
            return;
        }
        let [a, b] = pair.map(|target| {
            let look = looker.look(frame, target.window());
            [similarity(look, &self.looks[0]), similarity(look, &self.looks[1])]
        });
        let says = a[0] + b[1] - a[1] - b[0];
        let rate = RATE.max(1.0 / f64::from(self.apart));
        self.verdict.looks += rate * (says - self.verdict.looks);
    }

    /// 1 if both are where their motion took them, -1 if each is where the other one's did, 0 if neither is
    /// clear.
    fn by_motion(&self, pair: [&Target; 2]) -> f64 {
        if self.together > EXTRAPOLATED {
            return 0.0;
        }
        let off = |target: usize, place: usize| {
            let ((x, y), (to_x, to_y)) = (pair[target].middle(), self.places[place]);
            let [.., w, h] = pair[target].bounds();
            ((x - to_x) * (x - to_x) + (y - to_y) * (y - to_y)).sqrt() / (w * h).sqrt()
        };
        let (straight, exchanged) = (off(0, 0).max(off(1, 1)), off(0, 1).max(off(1, 0)));
        let is_clear = |one: f64, other: f64| one < PLACE && FARTHER * one < other;
        f64::from(i8::from(is_clear(straight, exchanged)) - i8::from(is_clear(exchanged, straight)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn looks_decide_where_they_tell_and_motion_where_they_do_not() {
        let verdict = |looks: f64, motion: f64| Verdict { looks, motion }.is_exchanged();
        assert_eq!([verdict(0.5, -1.0), verdict(-0.5, 1.0)], [Some(false), Some(true)]);
        assert_eq!([verdict(0.1, -1.0), verdict(-0.1, 1.0)], [Some(true), Some(false)]);
        assert_eq!(verdict(0.1, 0.0), None);
    }
}
