//! Colours as shares of a few names: black, grey, white and six hues, as the features that a filter sees.
//!
//! A filter is linear, and no linear function of luma and chroma detects "red"; a linear function of shares
//! of names does. After J. van de Weijer et al., "Learning Color Names for Real-World Applications", 2009,
//! and M. Danelljan et al., "Adaptive Color Attributes for Real-Time Visual Tracking", 2014. Their table was
//! learnt from pictures of the web; here a name is a bell over luma and chroma, which needs no table of
//! colours.

use std::sync::LazyLock;

/// Names of a colour.
pub(super) const NAMES: usize = 9;
/// The number of them that are grey, and the lumas of these.
const GREYS: usize = 3;
const LUMAS: [f64; GREYS] = [40.0, 115.0, 190.0];

/// Width of the bells of greys, over luma and over chroma.
const GREY_WIDTHS: (f64, f64) = (37.0, 12.0);

/// Chroma of the hues, which are 60 degrees apart, and the width of their bells. 20 and 10 (greys: 8) score
/// alike.
const HUE: f64 = 25.0;
const HUE_WIDTH: f64 = 14.0;

/// Added to each bell, so that a colour beyond all of them is no name rather than the nearest one.
const NONE: f32 = 1e-6;

/// Room for the names in vector registers.
const LANES: usize = 16;

/// The bells are products of functions of luma and of each chroma: a table of each.
pub(super) struct Names {
    luma: Table,
    u: Table,
    v: Table,
}

type Table = Vec<[f32; LANES]>;

impl Names {
    /// Made once: each takes half a millisecond.
    pub(super) fn get() -> &'static Self {
        static MADE: LazyLock<Names> = LazyLock::new(Names::new);
        &MADE
    }

    fn new() -> Self {
        let bell = |distance: f64, width: f64| -0.5 * (distance / width) * (distance / width);
        let table = |exponent: &dyn Fn(usize, f64) -> f64| {
            let share = |name: usize, value: f64| libm::exp(exponent(name, value)) as f32;
            let shares = |value: usize| {
                std::array::from_fn(|name| if name < NAMES { share(name, value as f64) } else { 0.0 })
            };
            (0..256).map(shares).collect()
        };
        let angle = |name: usize| (name - GREYS) as f64 * std::f64::consts::PI / 3.0;
        let chroma = |name: usize, value: f64, middle: &dyn Fn(f64) -> f64| {
            let value = value - 128.0;
            if name < GREYS {
                bell(value, GREY_WIDTHS.1)
            } else {
                bell(value - HUE * middle(angle(name)), HUE_WIDTH)
            }
        };
        Self {
            luma: table(&|name, value| {
                if name < GREYS { bell(value - LUMAS[name], GREY_WIDTHS.0) } else { 0.0 }
            }),
            u: table(&|name, value| chroma(name, value, &libm::cos)),
            v: table(&|name, value| chroma(name, value, &libm::sin)),
        }
    }

    /// The bells over luma, u and v.
    pub(super) fn tables(&self) -> [Vec<[f32; LANES]>; 3] {
        [&self.luma, &self.u, &self.v].map(Clone::clone)
    }

    /// The share of each name in a colour, less the mean share: sums to 0, within [-1/9, 8/9].
    #[inline(always)]
    pub(super) fn shares(&self, luma: u8, u: u8, v: u8) -> [f32; NAMES] {
        let [luma, u, v] = [(&self.luma, luma), (&self.u, u), (&self.v, v)].map(|(t, i)| &t[usize::from(i)]);
        let mut bells = [0.0; LANES];
        for name in 0..LANES {
            bells[name] = luma[name] * u[name] * v[name] + NONE;
        }
        let mut sum = 0.0;
        for bell in &bells[..NAMES] {
            sum += bell;
        }
        std::array::from_fn(|name| bells[name] / sum - 1.0 / NAMES as f32)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The name with the largest share of a colour.
    fn name(luma: u8, u: u8, v: u8) -> usize {
        let shares = Names::get().shares(luma, u, v);
        assert!(shares.iter().sum::<f32>().abs() < 1e-5, "{shares:?}");
        (0..NAMES).max_by(|&a, &b| shares[a].total_cmp(&shares[b])).unwrap()
    }

    #[test]
    fn greys_are_told_by_luma_and_colours_by_hue() {
        assert_eq!([name(16, 128, 128), name(110, 126, 130), name(235, 128, 128)], [0, 1, 2]);
        let hues = [(153, 128), (140, 150), (116, 150), (103, 128), (116, 106), (140, 106)];
        for (index, (u, v)) in hues.into_iter().enumerate() {
            assert_eq!([name(60, u, v), name(200, u, v)], [GREYS + index; 2]);
        }
    }

    #[test]
    fn the_strongest_colours_have_finite_shares() {
        for (u, v) in [(0, 0), (0, 255), (255, 0), (255, 255)] {
            assert!(Names::get().shares(255, u, v).iter().all(|share| share.is_finite()));
        }
    }
}
