//! Separates a target's colours from those around it: two histograms, of the box and of the ring about it.
//!
//! After L. Bertinetto et al., "Staple: Complementary Learners for Real-Time Tracking", 2016: shape and
//! colour fail at different times. Where the picture has no chroma, the histograms are of luma.

use std::ops::Range;

use super::sample::Patch;
use crate::frame::correlator::BINS;
use crate::simd::Level;

/// The part of the box, on each axis, that is surely target: a box's corners often are not.
const INNER: f64 = 0.8;

/// The ring lies between these factors of the box.
const RING: (f64, f64) = (1.1, 2.2);

/// Added to both shares of a bin, so that rarely seen colours have no effect.
const RARE: f32 = 0.002;

/// Histograms of one target, as shares that sum to 1.
pub(super) struct Colours {
    target: Vec<f32>,
    around: Vec<f32>,
    pub(super) has_chroma: bool,
}

impl Clone for Colours {
    fn clone(&self) -> Self {
        Self { target: self.target.clone(), around: self.around.clone(), has_chroma: self.has_chroma }
    }

    /// In the room that is there.
    fn clone_from(&mut self, other: &Self) {
        self.target.clone_from(&other.target);
        self.around.clone_from(&other.around);
        self.has_chroma = other.has_chroma;
    }
}

impl Colours {
    pub(super) fn new(has_chroma: bool) -> Self {
        Self { target: vec![0.0; BINS], around: vec![0.0; BINS], has_chroma }
    }

    /// The share of each bin in the target.
    pub(super) fn target(&self) -> &[f32] {
        &self.target
    }

    /// The bin of each sample of a patch at half of its size.
    pub(super) fn bins(&self, patch: &Patch, bins: &mut Vec<u16>) {
        let side = patch.side / 2;
        bins.resize(side * side, 0);
        Level::best().run(
            #[inline(always)]
            || {
                let step = |chroma: u8| (u16::from(chroma).saturating_sub(128 - 36).min(71)) / 6;
                let lines = patch.luma.chunks_exact(2 * patch.side).zip(patch.u.chunks_exact(side));
                let lines = lines.zip(patch.v.chunks_exact(side)).zip(bins.chunks_exact_mut(side));
                for (((luma, u), v), bins) in lines {
                    let (above, below) = luma.split_at(patch.side);
                    // Two samples of each row, which stand in two groups: of even bins first, then of odd
                    // ones.
                    let groups = above.chunks_exact(side).zip(below.chunks_exact(side)).enumerate();
                    for (odd, (above, below)) in groups {
                        let (above, below) = (above.split_at(side / 2), below.split_at(side / 2));
                        let sums = above.0.iter().zip(above.1).zip(below.0.iter().zip(below.1));
                        let own = bins.as_chunks_mut::<2>().0.iter_mut();
                        for (bins, ((&a, &b), (&c, &d))) in own.zip(sums) {
                            bins[odd] = (u16::from(a) + u16::from(b) + u16::from(c) + u16::from(d)) / 4;
                        }
                    }
                    if self.has_chroma {
                        for ((bin, &u), &v) in bins.iter_mut().zip(u).zip(v) {
                            *bin = (*bin / 32 * 12 + step(u)) * 12 + step(v);
                        }
                    } else {
                        for bin in bins {
                            *bin /= 8;
                        }
                    }
                }
            },
        );
    }

    /// How much the colours of a box of `width` x `height` samples, (`x`, `y`) from the middle of a square of
    /// them, are like the target's: the Bhattacharyya coefficient of the histograms, in [0, 1].
    pub(super) fn likeness(
        &self,
        bins: &[u16],
        side: usize,
        (x, y): (f64, f64),
        (width, height): (f64, f64),
    ) -> f64 {
        let (columns, rows) = (within(side, x, INNER * width), within(side, y, INNER * height));
        let mut counts = [0_u16; BINS];
        for y in rows.clone() {
            for &bin in &bins[y * side..][columns.clone()] {
                counts[usize::from(bin)] += 1;
            }
        }
        let samples = (columns.len() * rows.len()).max(1) as f32;
        let shares = counts.iter().zip(&self.target).filter(|(count, _)| **count > 0);
        shares.map(|(&count, share)| f64::from((f32::from(count) / samples * share).sqrt())).sum()
    }

    /// Takes in the colours of a box of `width` x `height` samples, (`x`, `y`) from the middle of a square of
    /// them.
    pub(super) fn learn(
        &mut self,
        bins: &[u16],
        side: usize,
        (x, y): (f64, f64),
        (width, height): (f64, f64),
        rate: f32,
    ) {
        let areas = [INNER, RING.0, RING.1]
            .map(|factor| (within(side, x, factor * width), within(side, y, factor * height)));
        let area = |index: usize| (areas[index].0.len() * areas[index].1.len()) as f32;
        let (of_target, of_ring) = (rate / area(0), rate / (area(2) - area(1)));
        for share in self.target.iter_mut().chain(&mut self.around) {
            *share *= 1.0 - rate;
        }
        let [inner, hole, outer] = areas;
        for y in outer.1 {
            let row = &bins[y * side..][..side];
            let mut add = |bins: &[u16]| {
                for &bin in bins {
                    self.around[usize::from(bin)] += of_ring;
                }
            };
            if hole.1.contains(&y) {
                add(&row[outer.0.start..hole.0.start]);
                add(&row[hole.0.end..outer.0.end]);
            } else {
                add(&row[outer.0.clone()]);
            }
            if inner.1.contains(&y) {
                for &bin in &row[inner.0.clone()] {
                    self.target[usize::from(bin)] += of_target;
                }
            }
        }
    }

    /// The probability that a sample of each bin belongs to the target, in [0, 1]; 1/2 if nothing is known.
    pub(super) fn probabilities(&self, of_bins: &mut Vec<f32>) {
        of_bins.resize(BINS, 0.0);
        Level::best().run(
            #[inline(always)]
            || {
                let shares = self.target.iter().zip(&self.around);
                for (probability, (target, around)) in of_bins.iter_mut().zip(shares) {
                    *probability = (target + RARE) / (target + around + 2.0 * RARE);
                }
            },
        );
    }
}

/// The samples of a square whose middles lie within a length about a place, which is `off` from the middle.
fn within(side: usize, off: f64, length: f64) -> Range<usize> {
    let middle = side as f64 / 2.0 + off - 0.5;
    let bound = |v: f64| libm::ceil(v).clamp(0.0, side as f64) as usize;
    bound(middle - 0.5 * length)..bound(middle + 0.5 * length)
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
        let (mut bins, mut of_bins) = (Vec::new(), Vec::new());
        colours.bins(&patch, &mut bins);
        colours.learn(&bins, 16, (0.0, 0.0), (6.0, 6.0), 1.0);
        colours.probabilities(&mut of_bins);
        let probability = |sample: usize| of_bins[usize::from(bins[sample])];
        assert!(probability(8 * 16 + 8) > 0.99, "{}", probability(8 * 16 + 8));
        assert!(probability(0) < 0.01, "{}", probability(0));
        let likeness = |x: f64| colours.likeness(&bins, 16, (x, 0.0), (6.0, 6.0));
        assert!(likeness(0.0) > 0.999 && likeness(6.0) < 0.001, "{} and {}", likeness(0.0), likeness(6.0));
        // Never seen, so nothing is known.
        assert!(of_bins[0] == 0.5);
    }
}
