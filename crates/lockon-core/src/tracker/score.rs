//! The probability that a followed box is on its target.
//!
//! The most recently learnt look confirms whatever the tracker follows. The evidence is the first look, which
//! was given and is never changed, and how much better the place is than the second best one. A logistic
//! regression over both says how likely the box overlaps the target by more than a half (D. Cox, "The
//! Regression Analysis of Binary Sequences", 1958).

/// Fitted to the first half of 31 sequences, six starts each, each sequence with the same weight
/// (docs/tracking.md).
const BIAS: f64 = 2.8;
const FIRST_LIKENESS: f64 = 6.8;
const SECOND_PEAK: f64 = -6.8;

/// A box with a score below that is more likely off its target than on it, and its track is not sure.
pub(super) const LIKELY: f64 = 0.5;

/// In how many of the frames with a score in each tenth from 0 to 1 the box was on its target, as a share: in
/// the second half of those sequences, which the constants were not made from. Lost ones do not count.
pub const RELIABILITY: [f64; 10] = [0.16, 0.34, 0.36, 0.42, 0.45, 0.62, 0.74, 0.83, 0.81, 0.97];

/// The share of frames in which a box is on its target, from its likeness to the first look and the second
/// peak over the first. Where other targets are near, second peaks at their places are weighted: that was not
/// measured.
pub(super) fn of(first_likeness: f64, second_peak_ratio: f64) -> f64 {
    let evidence = BIAS + FIRST_LIKENESS * first_likeness + SECOND_PEAK * second_peak_ratio;
    1.0 / (1.0 + libm::exp(-evidence))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_score_rises_with_likeness_to_the_first_look_and_falls_with_a_second_place_as_good() {
        // exp(2.8) to 1, and 1 to exp(4).
        assert!((of(0.5, 0.5) - 0.942_676).abs() < 1e-6);
        assert!((of(0.0, 1.0) - 0.017_986).abs() < 1e-6);
        for tenth in 0..10 {
            let share = f64::from(tenth) / 10.0;
            assert!(of(share + 0.1, 0.5) > of(share, 0.5) && of(0.5, share + 0.1) < of(0.5, share));
        }
    }
}
