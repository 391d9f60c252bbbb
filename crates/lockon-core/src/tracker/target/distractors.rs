//! Distractors: things that look like the target and are not.
//!
//! A lost target is found again at the place with the most evidence. Often that is a thing that was in view
//! all the time: a tree trunk, another pedestrian, a car of the same model. So the places that the filter
//! also responded to are remembered while the target is followed for sure. A place that looks more like one
//! of these than like the target is probably that thing. After Z. Kalal et al.,
//! "Tracking-Learning-Detection", 2012, whose negative examples are such places.

use crate::tracker::look::{Look, similarity};

/// The number that is remembered; the oldest one makes room.
const COUNT: usize = 16;
/// Looks more alike than that are of one thing, of which the latest is kept.
const ALIKE: f64 = 0.9;

#[derive(Default)]
pub(super) struct Distractors {
    /// Those seen longest ago first.
    looks: Vec<Look>,
}

impl Distractors {
    /// Takes in a look of something else.
    pub(super) fn learn(&mut self, look: &Look) {
        let alike = self.looks.iter().position(|known| similarity(known, look) > ALIKE);
        if alike.is_none() && self.looks.len() < COUNT {
            self.looks.push(look.clone());
            return;
        }
        let oldest = alike.unwrap_or(0);
        self.looks[oldest].clone_from(look);
        self.looks[oldest..].rotate_left(1);
    }

    /// How much a look is like any of them; 0 if it is like none.
    pub(super) fn likeness(&self, look: &Look) -> f64 {
        self.looks.iter().map(|known| similarity(known, look)).fold(0.0, f64::max)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tracker::look::LENGTH;

    /// Looks of different things: their values repeat after so many.
    fn look(period: usize) -> Look {
        (0..LENGTH).map(|i| if i % period < period / 2 { 1.0 } else { 0.0 }).collect()
    }

    #[test]
    fn the_latest_look_of_each_thing_is_remembered_until_there_are_too_many() {
        let mut distractors = Distractors::default();
        assert_eq!(distractors.likeness(&look(64)), 0.0);
        for _ in 0..3 {
            distractors.learn(&look(64));
        }
        assert_eq!(distractors.looks.len(), 1);
        assert!(distractors.likeness(&look(64)) > 0.999 && distractors.likeness(&look(7)) < 0.5);
        for period in 0..COUNT {
            distractors.learn(&look(2 * period + 67));
        }
        assert_eq!(distractors.looks.len(), COUNT);
        assert!(distractors.likeness(&look(64)) < 0.5, "the first one has made room");
    }
}
