//! Learning a target as it was found, and going back to what was learnt before.

use super::{Target, View};
use crate::frame::Frame;
use crate::frame::correlator::{KEPT, Lesson};
use crate::tracker::eye::Sight;
use crate::tracker::filter::Filter;
use crate::tracker::ground::Ground;
use crate::tracker::look::Looker;
use crate::tracker::sample::Window;

/// The share of a frame's colours that is learnt. Staple's value.
const COLOUR_RATE: f32 = 0.04;

/// Frames from which was learnt, from one to the next time that this is kept, [`KEPT`] times. A target in
/// doubt because of the ground goes back to what was kept first: some 30 to 45 frames.
const KEPT_EVERY: u32 = 15;

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
pub(super) const DISTRACTOR_EVERY: u32 = 2;

/// What both filters are to learn of a frame: where the target lies in the windows, from their middles.
pub(in crate::tracker) struct Places {
    pub(super) wide: (f64, f64),
    pub(super) narrow: (f64, f64),
}

impl Target {
    /// Learns the target as it was found: in the wide window about one place, in the narrow one about
    /// another. The filters do so last.
    pub(super) fn learn(
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
    pub(in crate::tracker) fn lessons(
        &self,
        places: &Places,
        [wide, narrow]: [&Sight; 2],
    ) -> [Option<Lesson<'_>>; 2] {
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
    pub(super) fn go_back(&mut self) {
        self.wide.go_back();
        self.narrow.go_back();
        if let Some(colours) = self.kept.first() {
            self.colours.clone_from(colours);
            self.recent.clone_from(&self.views[0].look);
        }
        self.kept.clear();
        self.ground = Ground::default();
    }
}
