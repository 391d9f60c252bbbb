//! What tells a target's colours from those around it: two histograms, of the box and of the ring about it.
//!
//! After L. Bertinetto et al., "Staple: Complementary Learners for Real-Time Tracking", 2016: shape and colour fail at different
//! times. Where the picture has no chroma, the histograms are of luma.

use super::sample::Patch;

/// Chroma in 12 steps of 6 about grey, beyond which hardly anything lies, by 8 steps of luma; luma alone in 32 steps.
const BINS: usize = 8 * 12 * 12;

/// The part of the box, on each axis, that is surely target: a box's corners often are not.
const INNER: f64 = 0.8;

/// The ring lies between these factors of the box.
const RING: (f64, f64) = (1.1, 2.2);

/// Added to both shares of a bin, so that colours that were hardly seen tell nothing.
const RARE: f32 = 0.002;

/// Histograms of one target, as shares that sum to 1.
#[derive(Clone)]
pub(super) struct Colours {
    target: Vec<f32>,
    around: Vec<f32>,
    pub(super) has_chroma: bool,
}

impl Colours {
    pub(super) fn new(has_chroma: bool) -> Self {
        Self { target: vec![0.0; BINS], around: vec![0.0; BINS], has_chroma }
    }

    /// The bin of each sample of a patch at half of its size.
    pub(super) fn bins(&self, patch: &Patch, bins: &mut Vec<u16>) {
        let side = patch.side / 2;
        let step = |chroma: u8| ((u16::from(chroma).saturating_sub(128 - 36)).min(71)) / 6;
        bins.clear();
        for (y, rows) in patch.luma.chunks_exact(2 * patch.side).enumerate() {
            let (above, below) = rows.split_at(patch.side);
            let squares = above.chunks_exact(2).zip(below.chunks_exact(2));
            bins.extend(squares.enumerate().map(|(x, (a, b))| {
                let luma = (u16::from(a[0]) + u16::from(a[1]) + u16::from(b[0]) + u16::from(b[1])) / 4;
                if self.has_chroma {
                    (luma / 32 * 12 + step(patch.u[y * side + x])) * 12 + step(patch.v[y * side + x])
                } else {
                    luma / 8
                }
            }));
        }
    }

    /// Takes in the colours of a box of `width` x `height` samples in the middle of a square of them.
    pub(super) fn learn(&mut self, bins: &[u16], side: usize, width: f64, height: f64, rate: f32) {
        let mut counts = [0.0, 0.0];
        let distance = |index: usize| (index as f64 + 0.5 - side as f64 / 2.0).abs() * 2.0;
        // 1: target, 2: around, 0: neither.
        let part = |x: usize, y: usize| {
            let (x, y) = (distance(x) / width, distance(y) / height);
            if x <= INNER && y <= INNER {
                1
            } else if (x > RING.0 || y > RING.0) && x < RING.1 && y < RING.1 {
                2
            } else {
                0
            }
        };
        let parts = || (0..side * side).map(|index| part(index % side, index / side));
        for part in parts().filter(|&part| part > 0) {
            counts[part - 1] += 1.0;
        }
        for share in self.target.iter_mut().chain(&mut self.around) {
            *share *= 1.0 - rate;
        }
        for (part, &bin) in parts().zip(bins) {
            match part {
                1 => self.target[usize::from(bin)] += rate / counts[0],
                2 => self.around[usize::from(bin)] += rate / counts[1],
                _ => {}
            }
        }
    }

    /// How likely each sample is to be the target's, in [0, 1]; 1/2 where nothing is known.
    pub(super) fn probabilities(&self, bins: &[u16], probabilities: &mut Vec<f32>) {
        probabilities.clear();
        probabilities.extend(bins.iter().map(|&bin| {
            let (target, around) = (self.target[usize::from(bin)], self.around[usize::from(bin)]);
            (target + RARE) / (target + around + 2.0 * RARE)
        }));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_targets_colour_is_told_from_the_ground() {
        let mut patch = Patch::new(32);
        for y in 0..16 {
            for x in 0..16 {
                let is_target = (5..11).contains(&x) && (5..11).contains(&y);
                patch.u[y * 16 + x] = if is_target { 150 } else { 110 };
            }
        }
        let mut colours = Colours::new(true);
        let (mut bins, mut probabilities) = (Vec::new(), Vec::new());
        colours.bins(&patch, &mut bins);
        colours.learn(&bins, 16, 6.0, 6.0, 1.0);
        colours.probabilities(&bins, &mut probabilities);
        assert!(probabilities[8 * 16 + 8] > 0.99, "{}", probabilities[8 * 16 + 8]);
        assert!(probabilities[0] < 0.01, "{}", probabilities[0]);
        // Never seen, so nothing is known.
        assert!(colours.probabilities_of(0) == 0.5);
    }

    impl Colours {
        fn probabilities_of(&self, bin: u16) -> f32 {
            let mut out = Vec::new();
            self.probabilities(&[bin], &mut out);
            out[0]
        }
    }
}
