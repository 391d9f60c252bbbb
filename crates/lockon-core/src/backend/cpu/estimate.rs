//! Finds the places in a tile where a match can be: estimates of scores in f32, with bounds that lose none.
//!
//! Let c = (n * ST - S * t1) / n, the correlation of the window with the template less its mean, V = n * SS -
//! S * S and W the same of the template: the score is n * c / sqrt(V * W). An FFT in f32 gives c with an
//! error of at most E (`correlate.rs`); V is exact but for its rounding to f32 or, under a mask, where S and
//! SS come by FFT too, known to lie between two bounds. So each position has an upper and a lower bound on
//! its score. A position that cannot reach the least score wanted is no match, nor is one that a neighbour
//! certainly beats; of the few that are left the exact scores are made, and their neighbours' (`search.rs`).

use super::simd::Level;
use crate::frame::Size;

/// Room for the roundings of f32 and f64 that the bounds themselves are computed with, relative to each of
/// them: some ten times what there can be.
const SLACK: f64 = 1e-5;

/// Positions that are looked at together.
const LANES: usize = 32;

/// Estimates of one member at the positions of a part of its score map.
#[derive(Clone, Copy)]
pub(super) struct Estimates<'a> {
    /// c, row by row.
    pub(super) correlations: &'a [f32],
    /// V, or a lower bound on it that is above 0; 0 only where the window is known to be flat.
    pub(super) variances: &'a [f32],
    pub(super) size: Size,
    /// E, the largest error of c.
    pub(super) error: f64,
    /// The largest amount by which V is above its lower bound.
    pub(super) spread: f64,
    /// Root of W over n: divides c, with the root of V.
    pub(super) scale: f64,
}

impl Estimates<'_> {
    /// An upper bound on the score at a position.
    pub(super) fn most(&self, index: usize) -> f64 {
        self.quotient(index, f64::from(self.correlations[index]) + self.error, 1.0 + SLACK)
    }

    /// An upper bound on the score at a position whose V is known.
    pub(super) fn most_of(&self, index: usize, variance: i64) -> f64 {
        if variance == 0 {
            return 0.0;
        }
        let numerator = (f64::from(self.correlations[index]) + self.error).max(0.0);
        numerator / ((variance as f64).sqrt() * self.scale) * (1.0 + SLACK)
    }

    /// A lower bound on the score at a position.
    pub(super) fn least(&self, index: usize) -> f64 {
        -self.quotient(index, self.error - f64::from(self.correlations[index]), 1.0 + SLACK)
    }

    /// The largest that `numerator` over the root of V can be.
    fn quotient(&self, index: usize, numerator: f64, up: f64) -> f64 {
        let variance = f64::from(self.variances[index]);
        if variance == 0.0 {
            return 0.0;
        }
        if numerator > 0.0 {
            numerator / (variance.sqrt() * self.scale) * up
        } else {
            numerator / ((variance + self.spread).sqrt() * self.scale) / up
        }
    }

    /// False if the position (x, y) cannot score `threshold`, or if a neighbour certainly scores more.
    pub(super) fn may_be_peak(&self, (x, y): (usize, usize), threshold: f64) -> bool {
        let Size { width, height } = self.size;
        let most = self.most(y * width + x);
        let columns = x.saturating_sub(1)..(x + 2).min(width);
        let mut rows = y.saturating_sub(1)..(y + 2).min(height);
        most >= threshold && !rows.any(|y| columns.clone().any(|x| self.least(y * width + x) > most))
    }

    /// A score that some position certainly reaches; `None` if it would not be above 0.
    pub(super) fn reached(&self, level: Level) -> Option<f64> {
        let (error, spread) = ((self.error * (1.0 + SLACK)) as f32, (self.spread * (1.0 + SLACK)) as f32);
        let squared = level.run(
            #[inline(always)]
            || {
                let mut most = [0.0_f32; LANES];
                let chunks = self.correlations.chunks(LANES).zip(self.variances.chunks(LANES));
                for (correlations, variances) in chunks {
                    for ((most, &c), &v) in most.iter_mut().zip(correlations).zip(variances) {
                        let least = (c - error).max(0.0);
                        // Without a variance there is no score, whatever the spread.
                        let v = if v > 0.0 { v + spread } else { f32::INFINITY };
                        *most = most.max(least * least / v);
                    }
                }
                most.into_iter().fold(0.0, f32::max)
            },
        );
        (squared > 0.0).then(|| f64::from(squared).sqrt() / self.scale * (1.0 - SLACK))
    }

    /// Calls `visit(x)` for the positions `from..to` of row `y` that may score `threshold` or more, from left
    /// to right.
    ///
    /// # Panics
    /// If the threshold is not above 0.
    #[expect(
        clippy::needless_bitwise_bool,
        reason = "no branches, so that it is made for many positions at once"
    )]
    pub(super) fn may_reach(
        &self,
        level: Level,
        threshold: f64,
        y: usize,
        (from, to): (usize, usize),
        mut visit: impl FnMut(usize),
    ) {
        assert!(threshold > 0.0, "the test is one of squares");
        // n * c / sqrt(V * W) >= t: so c is above 0, and c * c >= (t * sqrt(W) / n)^2 * V.
        let error = (self.error * (1.0 + SLACK)) as f32;
        let factor = (threshold * self.scale).powi(2) * (1.0 - SLACK);
        let factor = factor as f32;
        let passes = |c: f32, v: f32| {
            let most = c + error;
            (most > 0.0) & (v > 0.0) & (most * most >= factor * v)
        };
        let row = y * self.size.width;
        let correlations = self.correlations[row + from..row + to].chunks(LANES);
        let variances = self.variances[row + from..row + to].chunks(LANES);
        for (chunk, (correlations, variances)) in correlations.zip(variances).enumerate() {
            let any = level.run(
                #[inline(always)]
                || {
                    let pairs = correlations.iter().zip(variances);
                    pairs.fold(false, |any, (&c, &v)| any | passes(c, v))
                },
            );
            if any {
                for (i, (&c, &v)) in correlations.iter().zip(variances).enumerate() {
                    if passes(c, v) {
                        visit(from + chunk * LANES + i);
                    }
                }
            }
        }
    }
}
