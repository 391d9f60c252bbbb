//! The matches that are wanted of a frame: what its threads share while they search.

use std::sync::atomic::{AtomicI64, Ordering};

use crate::config::Limits;

/// The limits of matches in a frame, and the best scores so far.
pub(super) struct Wanted {
    limits: Limits,
    /// For each name, a score that its best match reaches: of use where the best is all that is wanted.
    best: Vec<AtomicI64>,
}

impl Wanted {
    /// No limits yet, for so many names.
    pub(super) fn new(names: usize) -> Self {
        let best = (0..names).map(|_| AtomicI64::new(0)).collect();
        Self { limits: Limits::default(), best }
    }

    /// Starts over for another frame.
    pub(super) fn reset(&mut self, limits: &Limits) {
        self.limits = *limits;
        for best in &mut self.best {
            *best.get_mut() = to_ordered(-1.0);
        }
    }

    /// The least score of a match of a name that can still count.
    pub(super) fn threshold(&self, name: usize) -> f64 {
        let least = self.limits.min_score;
        if self.is_best_only() {
            least.max(from_ordered(self.best[name].load(Ordering::Relaxed)))
        } else {
            least
        }
    }

    /// One match a name is needed: only the best, since nothing better can overlap it.
    pub(super) fn is_best_only(&self) -> bool {
        self.limits.max_matches == 1
    }

    /// Some match of a name scores this or more.
    pub(super) fn raise(&self, name: usize, score: f64) {
        self.best[name].fetch_max(to_ordered(score), Ordering::Relaxed);
    }
}

/// Returns a number in the order of `f64::total_cmp`. The function is its own inverse.
fn to_ordered(score: f64) -> i64 {
    flip(score.to_bits() as i64)
}

fn from_ordered(ordered: i64) -> f64 {
    f64::from_bits(flip(ordered) as u64)
}

fn flip(bits: i64) -> i64 {
    bits ^ (((bits >> 63) as u64) >> 1) as i64
}
