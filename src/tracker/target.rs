//! One target: its templates, where it should be, and how sure we are.

use std::sync::Arc;

use crate::backend::{Query, Response};
use crate::config::Limits;
use crate::error::Result;
use crate::frame::{Rect, Size};
use crate::results::{Match, Track, TrackState};
use crate::template::{Bank, Patch, Template};

use super::pushed_inside;

/// NCC at which a candidate near the predicted place is taken for the target. Unlike things that share a rough layout of
/// light and dark reach about 0.5.
const CONFIRM: f64 = 0.6;

/// Below this a candidate near the predicted place is no sign of the target at all.
const DOUBT: f64 = 0.4;

/// A second candidate that scores this share of the first makes the place ambiguous.
const AMBIGUOUS: f64 = 0.95;

/// A target that is somewhere in the whole frame has many more look-alikes than one that is nearby.
const REACQUIRE: f64 = 0.75;

/// After so many uncertain frames in a row the target is lost.
const PATIENCE_FRAMES: u32 = 10;

/// The recent template is taken anew when the best score falls below this, while the target is still sure...
const REFRESH_BELOW: f64 = 0.9;

/// ...and only while the first template agrees this much: what looks unlike the first box is not learnt (drift).
const ANCHOR: f64 = 0.5;

/// Name of the template cut from the first box in a target's bank; the other is the recent one.
const FIRST: &str = "first";
const RECENT: &str = "recent";

#[derive(Clone)]
pub(super) struct Target {
    id: u32,
    size: Size,
    /// Centre of the box in the last frame in which something was found, in pixels: where the search goes on.
    centre: (f64, f64),
    /// Centre of the last box that was surely the target.
    confirmed: (f64, f64),
    /// Displacement from frame to frame, smoothed, in pixels.
    velocity: (f64, f64),
    /// The first template, and the recent one once there is one.
    bank: Arc<Bank>,
    state: TrackState,
    uncertain_frames: u32,
    /// This frame's answer.
    found: Found,
}

/// What this frame said.
#[derive(Clone, Copy, Default)]
struct Found {
    centre: (f64, f64),
    score: f64,
    second_peak_ratio: f64,
    /// Score of the first template at its own best place in the window.
    first_score: f64,
}

impl Target {
    pub(super) fn new(id: u32, rect: Rect, patch: Patch) -> Result<Self> {
        let centre = (rect.x as f64 + rect.w as f64 / 2.0, rect.y as f64 + rect.h as f64 / 2.0);
        let first = Template::of_patch(format!("track {id}"), patch)?.renamed(FIRST);
        Ok(Self {
            id,
            size: rect.size(),
            centre,
            confirmed: centre,
            velocity: (0.0, 0.0),
            bank: Arc::new(Bank::new(vec![first])?),
            state: TrackState::Tracked,
            uncertain_frames: 0,
            found: Found { centre, score: 1.0, ..Found::default() },
        })
    }

    pub(super) fn rescale(&mut self, x_factor: f64, y_factor: f64) {
        for point in [&mut self.centre, &mut self.confirmed, &mut self.velocity, &mut self.found.centre] {
            *point = (point.0 * x_factor, point.1 * y_factor);
        }
    }

    /// A target that is larger than the frame cannot be searched for: it is lost until the frame has its size again.
    pub(super) fn lose_if_too_large(&mut self, frame: Size) {
        if !self.size.fits_in(frame) {
            self.state = TrackState::Lost;
            self.found = Found::default();
        }
    }

    /// Where it should be by now, plus half its size on every side, at least 16 pixels: people and cars at video rate move
    /// less than half of themselves from frame to frame.
    pub(super) fn nearby_query(&self, frame: Size) -> Option<Query> {
        if self.state == TrackState::Lost {
            return None;
        }
        let around = |length: usize, end: usize| (length + 2 * (length / 2).max(16)).min(end);
        let size = Size::new(around(self.size.width, frame.width), around(self.size.height, frame.height));
        let (x, y) = (self.centre.0 + self.velocity.0, self.centre.1 + self.velocity.1);
        Some(self.search(pushed_inside(x, y, size, frame)))
    }

    pub(super) fn nearby_answer(&mut self, response: &Response) {
        let previous = self.state;
        self.read(response);
        let clear = self.found.second_peak_ratio < AMBIGUOUS;
        self.state = match self.found.score {
            score if score >= CONFIRM && clear => TrackState::Tracked,
            score if score >= DOUBT => TrackState::Uncertain,
            _ => TrackState::Lost,
        };
        if self.state == TrackState::Uncertain {
            self.uncertain_frames =
                if previous == TrackState::Uncertain { self.uncertain_frames + 1 } else { 1 };
            if self.uncertain_frames > PATIENCE_FRAMES {
                self.state = TrackState::Lost;
            }
        }
        match self.state {
            TrackState::Tracked => {
                let moved = (self.found.centre.0 - self.centre.0, self.found.centre.1 - self.centre.1);
                let smoothed = |velocity: f64, moved: f64| 0.5 * velocity + 0.5 * moved;
                self.velocity = (smoothed(self.velocity.0, moved.0), smoothed(self.velocity.1, moved.1));
                (self.centre, self.confirmed) = (self.found.centre, self.found.centre);
            }
            // Follow it, but do not trust its motion.
            TrackState::Uncertain => (self.centre, self.velocity) = (self.found.centre, (0.0, 0.0)),
            TrackState::Lost | TrackState::Reacquired => self.velocity = (0.0, 0.0),
        }
    }

    /// The whole frame, while it is lost: in the frame on which it is lost already.
    pub(super) fn anywhere_query(&self, frame: Size) -> Option<Query> {
        (self.state == TrackState::Lost && self.size.fits_in(frame)).then(|| self.search(Rect::whole(frame)))
    }

    pub(super) fn anywhere_answer(&mut self, response: &Response) {
        self.read(response);
        if self.found.score >= REACQUIRE && self.found.second_peak_ratio < AMBIGUOUS {
            self.state = TrackState::Reacquired;
            (self.centre, self.confirmed) = (self.found.centre, self.found.centre);
        }
    }

    /// The pixels of the box, when the target has changed and is surely the target.
    pub(super) fn refresh_query(&self, frame: Size) -> Option<Query> {
        let sure = self.state == TrackState::Tracked && self.found.first_score >= ANCHOR;
        (sure && self.found.score < REFRESH_BELOW)
            .then(|| Query::Patch(pushed_inside(self.centre.0, self.centre.1, self.size, frame)))
    }

    pub(super) fn refresh_answer(&mut self, response: &Response) {
        let first = self.bank.members()[0].clone();
        // A flat box teaches nothing; what is known stays.
        if let Some(Ok(recent)) = response.patch.clone().map(|patch| Template::of_patch(RECENT, patch))
            && let Ok(bank) = Bank::new(vec![first, recent])
        {
            self.bank = Arc::new(bank);
        }
    }

    /// This frame's record.
    pub(super) fn track(&self) -> Track {
        let (w, h) = (self.size.width as f64, self.size.height as f64);
        let at = if self.state == TrackState::Lost { self.confirmed } else { self.found.centre };
        // As precise as a match's centre is, without the noise of taking half the size off it.
        let thousandths = |v: f64| libm::round(v * 1000.0) / 1000.0;
        Track {
            id: self.id,
            state: self.state,
            x: thousandths(at.0 - w / 2.0),
            y: thousandths(at.1 - h / 2.0),
            w,
            h,
            score: self.found.score,
            second_peak_ratio: self.found.second_peak_ratio,
        }
    }

    /// The record of the frame on which it starts: the box as given.
    pub(super) fn first_track(&self) -> Track {
        Track { score: 1.0, second_peak_ratio: 0.0, ..self.track() }
    }

    fn search(&self, window: Rect) -> Query {
        // The second candidate of each template tells whether the best is the only one, so nothing is too weak to hear of.
        let limits = Limits { min_score: 0.0, max_matches: 2, max_overlap: 0.3 };
        Query::Search { bank: self.bank.clone(), window, limits }
    }

    /// The best candidate of both templates, and the best of the same template elsewhere.
    fn read(&mut self, response: &Response) {
        let matches = &response.matches;
        let of = |name: &'static str| matches.iter().filter(move |m| &*m.template == name);
        let score = |candidate: Option<&Match>| candidate.map_or(0.0, |m| m.score);
        let first_score = score(of(FIRST).next());
        let name = if score(of(RECENT).next()) > first_score { RECENT } else { FIRST };
        let mut candidates = of(name);
        self.found = match candidates.next() {
            Some(best) => Found {
                centre: (best.cx, best.cy),
                score: best.score,
                second_peak_ratio: score(candidates.next()) / best.score.max(f64::MIN_POSITIVE),
                first_score,
            },
            None => Found { centre: self.centre, ..Found::default() },
        };
    }
}
