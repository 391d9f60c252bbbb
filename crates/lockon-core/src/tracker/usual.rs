//! The usual value of a number that is measured in every frame, and how far the latest is from it.
//!
//! Some targets look the same for a thousand frames, some never look alike twice: a departure that is strange
//! for one target is normal for another. So departures are measured in the target's own spread.

/// Rate at which the usual value is learnt: over some 30 frames, and faster at first.
const RATE: f64 = 0.03;

/// A value counts as at most so many spreads off (P. Huber, "Robust Estimation of a Location Parameter",
/// 1964): an object that covers a target within a second must not have become usual by then.
const LIMIT: f64 = 2.0;
/// Minimum spread that the limit is measured in: otherwise a target that stood as still as a paused picture
/// could not learn how it looks when it moves.
const LEAST_LIMIT: f64 = 0.02;

/// Mean distance from the mean to standard deviation, for a normal distribution.
const TO_DEVIATION: f64 = 1.25;

/// Minimum spread: likeness and second peaks of a target that stands still vary by 0.02 to 0.05 with noise
/// and coding alone. 0.04 to 0.07 find 0.9 to 0.8 of absences; the rest changes little.
const LEAST_SPREAD: f64 = 0.05;

/// Before there is experience, which counts as so many frames of it.
const FIRST_SPREAD: f64 = 0.1;
const FIRST_FRAMES: f64 = 5.0;

/// A running mean and spread.
#[derive(Debug, Clone, Copy)]
pub(super) struct Usual {
    pub(super) mean: f64,
    spread: f64,
    /// Frames that it knows.
    frames: f64,
}

impl Usual {
    pub(super) fn new(mean: f64) -> Self {
        Self { mean, spread: FIRST_SPREAD, frames: FIRST_FRAMES }
    }

    /// The distance of a value above the mean, in spreads.
    pub(super) fn departure(self, value: f64) -> f64 {
        (value - self.mean) / self.spread.max(LEAST_SPREAD)
    }

    /// Takes in a value of the target.
    pub(super) fn learn(&mut self, value: f64) {
        let limit = LIMIT * self.spread.max(LEAST_LIMIT);
        let step = (value - self.mean).clamp(-limit, limit);
        self.frames += 1.0;
        let rate = RATE.max(1.0 / self.frames);
        self.mean += rate * step;
        self.spread += rate * (TO_DEVIATION * step.abs() - self.spread);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mean_and_spread_are_those_of_the_values() {
        let mut usual = Usual::new(0.8);
        for i in 0..1000 {
            usual.learn(if i % 2 == 0 { 0.5 } else { 0.7 });
        }
        assert!((usual.mean - 0.6).abs() < 0.01, "{usual:?}");
        // All are 0.1 off the mean.
        assert!((usual.spread - 0.125).abs() < 0.01, "{usual:?}");
        assert!((usual.departure(0.35) + 2.0).abs() < 0.2, "{usual:?}");
    }

    #[test]
    fn a_small_step_after_no_change_at_all_becomes_usual() {
        let mut usual = Usual::new(0.8);
        for i in 0..1700 {
            usual.learn(if i < 1500 { 0.9 } else { 0.8 });
        }
        assert!(usual.departure(0.8).abs() < 0.5, "{usual:?}");
    }

    #[test]
    fn a_fall_does_not_become_usual_before_it_is_seen() {
        let mut usual = Usual::new(0.9);
        for i in 0..300 {
            usual.learn(if i % 2 == 0 { 0.88 } else { 0.92 });
        }
        // Over a second from 0.9 to 0.4.
        for i in 0..25 {
            usual.learn(0.9 - 0.02 * f64::from(i));
        }
        assert!(usual.departure(0.4) < -6.0, "{usual:?}");
    }
}
