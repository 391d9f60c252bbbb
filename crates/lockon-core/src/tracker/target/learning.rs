//! Learning a target as it was found, and going back to what was learnt before.

use super::{Target, View};
use crate::frame::Frame;
use crate::frame::correlator::Lesson;
use crate::tracker::eye::Sight;
use crate::tracker::filter::keep_in;
use crate::tracker::ground::Ground;
use crate::tracker::look::Looker;
use crate::tracker::sample::Window;

/// The share of a frame's colours that is learnt. Staple's value.
const COLOUR_RATE: f32 = 0.04;

/// Frames from which was learnt, from one to the next time that this is kept, as often as a filter keeps it.
/// A target in doubt because of the ground goes back to what was kept first: some 30 to 45 frames.
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

impl Target {
    /// Learns the target as it was found, all but the filters, which do so last.
    pub(super) fn learn(
        &mut self,
        frame: &Frame,
        (known, recent): (f64, f64),
        wide: &Sight,
        looker: &mut Looker,
    ) {
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
            && let Some(at) = self.beside(wide)
        {
            self.distractors.learn(looker.look(frame, at));
        }
        let place = self.middle();
        wide.learn_colours(&mut self.colours, place, (self.at.w, self.at.h), COLOUR_RATE);
    }

    /// The box where the filter responds best beside the target.
    pub(super) fn beside(&self, wide: &Sight) -> Option<Window> {
        let Window { x, y, .. } = wide.window();
        let (dx, dy) = wide.second_place(self.at.w, self.at.h)?;
        Some(Window { x: x + dx, y: y + dy, ..self.at })
    }

    /// The lessons for filters on a device, from the wide and the narrow window.
    pub(in crate::tracker) fn lessons(&self, [wide, narrow]: [&Sight; 2]) -> [Option<Lesson<'_>>; 2] {
        [(&self.narrow, narrow), (&self.wide, wide)]
            .map(|(filter, sight)| Some(sight.lesson(filter.placed()?, self.middle())))
    }

    /// Keeps the current state.
    fn keep(&mut self) {
        self.wide.keep();
        self.narrow.keep();
        keep_in(&mut self.kept, &self.colours);
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
