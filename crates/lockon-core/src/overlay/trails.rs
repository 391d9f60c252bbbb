//! The trails of tracks: dots behind their boxes.

use std::collections::VecDeque;

use super::canvas::Colour;
use super::drawing::Drawing;
use super::look::colour_of_state;
use super::style::Style;
use crate::frame::{Size, USUAL_INTERVAL_NS};
use crate::results::{FrameRecord, Track, TrackState};

/// For how long a trail stays, in nanoseconds: long enough to see where a target came from, short enough to
/// see the picture.
const TRAIL_NS: u64 = 2_000_000_000;
/// Places of a trail are no nearer in time, whatever the frame rate: so it has a bounded length.
const BETWEEN_PLACES_NS: u64 = TRAIL_NS / 128;
/// A single frame would not be seen.
const FOUND_NS: u64 = 500_000_000;
/// Maximum dots of a trail: one that goes to and fro is cut off.
const MOST_DOTS: usize = 256;

/// The path of each track in the last two seconds, for [`Drawing::results`].
#[derive(Default)]
pub struct Trails {
    pub(super) of_tracks: Vec<Trail>,
    /// Time of the last frame.
    now_ns: u64,
    size: Option<Size>,
}

pub(super) struct Trail {
    id: u32,
    /// Oldest first.
    pub(super) places: VecDeque<TrailPoint>,
    /// When it was found again.
    found_ns: Option<u64>,
    /// It was lost in the last frame: no line leads from there to where it is found again.
    is_broken: bool,
    is_alive: bool,
}

pub(super) struct TrailPoint {
    at_ns: u64,
    x: f64,
    y: f64,
    colour: Colour,
    /// It begins a piece.
    is_start: bool,
}

impl Trails {
    pub(super) fn note(&mut self, record: &FrameRecord, size: Size) {
        let now = record.pts_ns.unwrap_or(record.frame * USUAL_INTERVAL_NS);
        // Another video, or the same one again.
        if now < self.now_ns || self.size != Some(size) {
            self.of_tracks.clear();
        }
        (self.now_ns, self.size) = (now, Some(size));
        self.of_tracks.iter_mut().for_each(|trail| trail.is_alive = false);
        for track in &record.tracks {
            let index = self.of_tracks.iter().position(|trail| trail.id == track.id).unwrap_or_else(|| {
                self.of_tracks.push(Trail {
                    id: track.id,
                    places: VecDeque::new(),
                    found_ns: None,
                    is_broken: true,
                    is_alive: true,
                });
                self.of_tracks.len() - 1
            });
            self.of_tracks[index].note(track, now);
        }
        self.of_tracks.retain(|trail| trail.is_alive);
    }

    /// The state that is shown: one that lasts for a frame only is held.
    pub(super) fn shown_state(&self, track: &Track) -> TrackState {
        let found = self.of_tracks.iter().find(|trail| trail.id == track.id).and_then(|trail| trail.found_ns);
        match track.state {
            TrackState::Tracked if found.is_some_and(|at| self.now_ns - at < FOUND_NS) => {
                TrackState::Reacquired
            }
            state => state,
        }
    }

    /// Dots at even distances along the way of the box's middle, the newest first; they fade with age. None
    /// lies in the box: what was found stays visible.
    pub(super) fn draw(&self, drawing: &mut Drawing, style: &Style, track: &Track) {
        let Some(trail) = self.of_tracks.iter().find(|trail| trail.id == track.id) else { return };
        let is_inside = |x: f64, y: f64| {
            (0.0..=track.w).contains(&(x - track.x)) && (0.0..=track.h).contains(&(y - track.y))
        };
        let step = (6 * style.line) as f64;
        let (mut since, mut dots) = (0.0, 0);
        for index in (1..trail.places.len()).rev() {
            let (to, from) = (&trail.places[index], &trail.places[index - 1]);
            if to.is_start {
                since = 0.0;
                continue;
            }
            let length = libm::hypot(to.x - from.x, to.y - from.y);
            let age = (self.now_ns - to.at_ns) as f64 / TRAIL_NS as f64;
            while since <= length && dots < MOST_DOTS {
                let share = if length > 0.0 { since / length } else { 0.0 };
                let (x, y) = (to.x + share * (from.x - to.x), to.y + share * (from.y - to.y));
                if !is_inside(x, y) {
                    style.draw_dot(drawing, x, y, to.colour, age);
                }
                since += step;
                dots += 1;
            }
            since -= length;
        }
    }
}

impl Trail {
    fn note(&mut self, track: &Track, now: u64) {
        self.is_alive = true;
        self.places.retain(|place| now - place.at_ns <= TRAIL_NS);
        if track.state == TrackState::Lost {
            self.is_broken = true;
            return;
        }
        if track.state == TrackState::Reacquired {
            self.found_ns = Some(now);
        }
        // The newest place always counts; it is replaced if the one before it is so near that it adds
        // nothing.
        if let [.., before, last] = self.places.make_contiguous()
            && !last.is_start
            && last.at_ns - before.at_ns < BETWEEN_PLACES_NS
        {
            self.places.pop_back();
        }
        let (x, y) = (track.x + track.w / 2.0, track.y + track.h / 2.0);
        let is_start = std::mem::take(&mut self.is_broken);
        let colour = colour_of_state(track.state);
        self.places.push_back(TrailPoint { at_ns: now, x, y, colour, is_start });
    }
}
