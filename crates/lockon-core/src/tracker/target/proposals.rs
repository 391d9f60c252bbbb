//! Boxes of a frame that may show a target, at any size and in any direction, within a fixed time.
//!
//! Two ways to search take turns: in one frame by the outlines of known looks, in the next by the
//! target's colours and by motion. On returning targets either of the two ranks the right place among its
//! first five in about half of the frames, but not in the same ones (docs/lab/tracking.md). So few boxes
//! are proposed each time, and those that were refused lately are passed over: less likely ones get their
//! turn.

use std::cmp::Ordering;
use std::f64::consts::{FRAC_PI_2, TAU};

use super::{LEAST_SIDE, View};
use crate::frame::iou;
use crate::frame::outlines::{Outline, OutlineFinder};
use crate::tracker::backprojection::FrameColours;
use crate::tracker::colour::Colours;
use crate::tracker::movers::Movers;
use crate::tracker::outlines::{Outlines, Place, Scratch};
use crate::tracker::sample::Window;
use crate::tracker::turn::normalised;

/// The ways to search the whole frame.
#[derive(Clone, Copy)]
pub(in crate::tracker) enum Cues<'a> {
    /// And what finds them on a device.
    Outlines(&'a Outlines, Option<&'a dyn OutlineFinder>),
    Colours {
        colours: &'a FrameColours,
        movers: &'a Movers,
    },
}

/// The sizes of a target that comes back, relative to the one with which it was lost.
const SIZES: [f64; 9] = [0.4, 0.5, 0.63, 0.8, 1.0, 1.25, 1.6, 2.0, 2.5];
/// Its directions: one of them in a frame, beside upright.
pub(super) const DIRECTIONS: usize = 8;
/// Sizes of which one is looked at in a frame, by outlines and by colours.
const OUTLINES_IN_TURN: usize = 2;
const COLOURS_IN_TURN: usize = 3;

/// Boxes that are proposed in a frame, and places that each box with the colours adds to the choice.
const COUNT: usize = 4;
/// With the place that moves most.
pub(super) const MOST_PROPOSALS: usize = COUNT + 1;
const PLACES: usize = 2;

/// Boxes that overlap so much in about the same direction are one proposal.
const SAME: f64 = 0.6;
const SAME_DIRECTION: f64 = 0.4;

/// Frames for which a box that was refused is passed over: one that looked like the target at first, and one
/// that did not. All of 6 to 12 score alike.
const REFUSED_FRAMES: u32 = 12;
const UNLIKE_FRAMES: u32 = 8;

/// A box that may show the target.
#[derive(Clone, Copy)]
pub(super) struct Proposal {
    pub(super) at: Window,
    /// The direction is a guess.
    pub(super) is_any_direction: bool,
}

/// A box that does not show the target.
struct Refused {
    at: Window,
    /// For so many more it is passed over.
    frames: u32,
    /// Proposals in about this direction, and those in any, are the same box.
    of_direction: bool,
    of_any: bool,
}

impl Proposal {
    /// The boxes that it stands for: in all directions, if it may have any.
    pub(super) fn boxes(self) -> impl Iterator<Item = Window> {
        let count = if self.is_any_direction { DIRECTIONS } else { 1 };
        let angle = move |index| if self.is_any_direction { angle_of(index) } else { self.at.angle };
        (0..count).map(move |index| Window { angle: angle(index), ..self.at })
    }
}

/// A look, a direction and a size, by their indices.
type Key = (usize, usize, usize);

/// Makes proposals; keeps its room.
#[derive(Default)]
pub(super) struct Proposals {
    /// Rounds so far: looks, directions and sizes take turns.
    round: usize,
    refused: Vec<Refused>,
    /// The outlines made so far, and what of: the number of views ever taken, and the box's size.
    outlines: Vec<(Key, Option<Outline>)>,
    outlines_of: (u32, f64, f64),
    /// The outlines of a frame's search, as indices of `outlines`, with their boxes; and the places found.
    wanted: Vec<(usize, Window)>,
    found: Vec<(usize, Place)>,
    sums: Vec<f32>,
    places: Vec<Place>,
    all: Vec<(f64, Proposal)>,
    scratch: Scratch,
    /// The list that was made last.
    made: Vec<Proposal>,
}

impl Proposals {
    /// Begins a search.
    pub(super) fn restart(&mut self) {
        self.round = 0;
        self.refused.clear();
    }

    /// A proposal does not look like the target.
    pub(super) fn skip(&mut self, Proposal { at, is_any_direction }: Proposal) {
        let (of_direction, of_any) = (!is_any_direction, is_any_direction);
        self.refused.push(Refused { at, frames: UNLIKE_FRAMES, of_direction, of_any });
    }

    /// A box that looked like the target does not show it.
    pub(super) fn refuse(&mut self, at: Window) {
        self.refused.push(Refused { at, frames: REFUSED_FRAMES, of_direction: true, of_any: true });
    }

    /// Gives a list back, so that its memory is used again.
    pub(super) fn reuse(&mut self, list: Vec<Proposal>) {
        self.made = list;
    }

    /// The proposals of a frame, for a target that had the box `from` at last and these views, `taken` in
    /// all, where this place moves most; only what `is_possible`.
    pub(super) fn next(
        &mut self,
        cues: Cues,
        (from, mover): (Window, Option<(f64, f64)>),
        (views, taken): (&[View], u32),
        colours: &Colours,
        is_possible: impl Fn(Window) -> bool,
    ) -> Vec<Proposal> {
        self.refused.retain_mut(|refused| {
            refused.frames -= 1;
            refused.frames > 0
        });
        let mut proposals = std::mem::take(&mut self.made);
        proposals.clear();
        match cues {
            Cues::Outlines(outlines, finder) => {
                self.by_outlines((outlines, finder), from, (views, taken));
                self.choose(COUNT, &is_possible, &mut proposals);
                // Each round has a frame of both.
                self.round += 1;
            }
            Cues::Colours { colours: of_frame, .. } => {
                self.by_colours(of_frame, from, colours);
                self.choose(COUNT, &is_possible, &mut proposals);
                self.all.extend(mover.map(|(x, y)| {
                    (0.0, Proposal { at: Window { x, y, angle: 0.0, ..from }, is_any_direction: true })
                }));
                self.choose(1, &is_possible, &mut proposals);
            }
        }
        proposals
    }

    /// Adds the places with the outlines of the first view, the last one and the others, which take turns:
    /// one upright, and one in another direction.
    fn by_outlines(
        &mut self,
        (outlines, finder): (&Outlines, Option<&dyn OutlineFinder>),
        from: Window,
        (views, taken): (&[View], u32),
    ) {
        if self.outlines_of != (taken, from.w, from.h) {
            self.outlines.clear();
            self.outlines_of = (taken, from.w, from.h);
        }
        let view_of = |turn: usize| match turn % 3 {
            0 => 0,
            1 => views.len() - 1,
            _ => (1 + turn / 3 % views.len().saturating_sub(2).max(1)).min(views.len() - 1),
        };
        let direction = self.round % DIRECTIONS;
        // So that each direction meets all sizes in two rounds of directions.
        let first_size = (self.round + self.round / DIRECTIONS) % OUTLINES_IN_TURN;
        let upright = (view_of(self.round), 0);
        let turned = (direction != 0).then(|| (view_of(self.round / DIRECTIONS), direction));
        for (view, direction) in [Some(upright), turned].into_iter().flatten() {
            for (index, size) in SIZES.into_iter().enumerate().skip(first_size).step_by(OUTLINES_IN_TURN) {
                let at = Window { w: from.w * size, h: from.h * size, angle: angle_of(direction), ..from };
                if at.w.min(at.h) < LEAST_SIDE {
                    continue;
                }
                let key = (view, direction, index);
                let known = self.outlines.iter().position(|(other, _)| *other == key);
                let known = known.unwrap_or_else(|| {
                    let outline = outlines.outline(&views[view].sketch, at, &mut self.scratch);
                    self.outlines.push((key, outline));
                    self.outlines.len() - 1
                });
                if self.outlines[known].1.is_some() {
                    self.wanted.push((known, at));
                }
            }
        }
        let Self { outlines: drawn, wanted, found, all, scratch, .. } = self;
        let of_wanted = wanted.iter().filter_map(|&(known, _)| drawn[known].1.as_ref());
        outlines.find(finder, of_wanted, scratch, found);
        all.extend(found.drain(..).map(|(index, Place { score, x, y })| {
            let (_, at) = wanted[index];
            (score, Proposal { at: Window { x, y, ..at }, is_any_direction: false })
        }));
        wanted.clear();
    }

    /// Adds the places with the colours: of a box that lies as it did, or on its side, or is square.
    fn by_colours(&mut self, frame: &FrameColours, from: Window, colours: &Colours) {
        frame.project(colours, &mut self.sums);
        let root = (from.w * from.h).sqrt();
        let shapes = [(from.w, from.h, 0.0), (root, root, 0.0), (from.h, from.w, FRAC_PI_2)];
        for size in SIZES.into_iter().skip(self.round % COLOURS_IN_TURN).step_by(COLOURS_IN_TURN) {
            let at = Window { w: from.w * size, h: from.h * size, ..from };
            if at.w.min(at.h) < LEAST_SIDE {
                continue;
            }
            for (w, h, angle) in shapes {
                frame.find(&self.sums, (w * size, h * size), PLACES, &mut self.scratch, &mut self.places);
                self.all.extend(self.places.drain(..).map(|Place { score, x, y }| {
                    (score, Proposal { at: Window { x, y, angle, ..at }, is_any_direction: true })
                }));
            }
        }
    }

    /// Moves the best of those that were added to `proposals`; forgets the others.
    fn choose(&mut self, count: usize, is_possible: impl Fn(Window) -> bool, proposals: &mut Vec<Proposal>) {
        let Self { all, refused, .. } = self;
        let order = |(score, Proposal { at, .. }): &(f64, Proposal)| (-score, at.y, at.x, at.w, at.angle);
        all.sort_unstable_by(|a, b| order(a).partial_cmp(&order(b)).unwrap_or(Ordering::Equal));
        let most = proposals.len() + count;
        for (_, proposal) in all.drain(..) {
            let Proposal { at, is_any_direction } = proposal;
            let is_same = |other: Window| {
                let turned = normalised(other.angle - at.angle).abs();
                (is_any_direction || turned < SAME_DIRECTION) && iou(other.bounds(), at.bounds()) > SAME
            };
            let is_refused = |refused: &Refused| {
                (if is_any_direction { refused.of_any } else { refused.of_direction }) && is_same(refused.at)
            };
            let is_known = proposals.iter().any(|other| is_same(other.at)) || refused.iter().any(is_refused);
            if proposals.len() < most && !is_known && is_possible(at) {
                proposals.push(proposal);
            }
        }
    }
}

/// The angle of a direction.
pub(super) fn angle_of(direction: usize) -> f64 {
    normalised(TAU * direction as f64 / DIRECTIONS as f64)
}
