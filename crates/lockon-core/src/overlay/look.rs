//! How what is found looks: the colours of names and states, and lines for those to whom colours are not
//! enough.

use super::canvas::Colour;
use crate::results::TrackState;

/// Line styles of boxes, for people and screens that need more than colours.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LineStyle {
    Solid,
    LongDashes,
    ShortDashes,
}

impl LineStyle {
    pub(super) fn of_state(state: TrackState) -> Self {
        match state {
            TrackState::Tracked | TrackState::Reacquired => Self::Solid,
            TrackState::Uncertain => Self::LongDashes,
            TrackState::Lost => Self::ShortDashes,
        }
    }
}

/// Colours of named items, red, green and blue: magentas, blues and white, since the others are those of
/// states. None is near one of these to the colour-blind either.
pub(crate) const NAMES: [[u8; 3]; 8] = [
    [255, 70, 255],
    [120, 160, 255],
    [250, 250, 250],
    [205, 50, 180],
    [60, 110, 255],
    [255, 130, 200],
    [150, 90, 255],
    [195, 135, 165],
];

/// Red, green and blue of a state. Far from each other also to those who lack the receptors for red or for
/// green (by the matrices of G. Machado et al., "A physiologically-based model for simulation of color vision
/// deficiency", 2009); lines say it too.
pub(crate) fn rgb_of_state(state: TrackState) -> [u8; 3] {
    match state {
        TrackState::Tracked => [0, 230, 150],
        TrackState::Uncertain => [255, 190, 0],
        TrackState::Reacquired => [0, 220, 255],
        TrackState::Lost => [210, 20, 20],
    }
}

pub(super) fn colour_of_state(state: TrackState) -> Colour {
    Colour::of(rgb_of_state(state))
}

/// A colour for a name, the same in every frame and every run.
///
/// Names that count up in their last letter, such as `cam1` to `cam8`, have eight different ones.
pub(crate) fn rgb_of_name(name: &str) -> [u8; 3] {
    // FNV-1a. Its low three bits are an odd multiple of the last letter's, mixed with all letters before it.
    let hash =
        name.bytes().fold(0x811c_9dc5_u32, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193));
    NAMES[hash as usize % NAMES.len()]
}

pub(super) fn colour_of_name(name: &str) -> Colour {
    Colour::of(rgb_of_name(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_keep_their_colours_and_these_differ_from_the_tracks() {
        use TrackState::{Lost, Reacquired, Tracked, Uncertain};
        assert_eq!(colour_of_name("logo"), colour_of_name("logo"));
        let counted = ["cam1", "cam2", "cam3", "cam4", "cam5", "cam6", "cam7", "cam8"].map(colour_of_name);
        for (i, colour) in counted.iter().enumerate() {
            assert!(!counted[..i].contains(colour), "cam{} looks like another", i + 1);
        }
        for state in [Lost, Reacquired, Tracked, Uncertain] {
            assert!(!NAMES.contains(&rgb_of_state(state)));
        }
    }

    /// The appearance of a colour for people with all receptors, and for people without those for red or
    /// green, in CIE's L*a*b* (D65).
    fn seen([r, g, b]: [u8; 3]) -> [[f64; 3]; 3] {
        let linear = [r, g, b].map(|v| {
            let v = f64::from(v) / 255.0;
            if v <= 0.04045 { v / 12.92 } else { libm::pow((v + 0.055) / 1.055, 2.4) }
        });
        let all = [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]];
        let no_red = [
            [0.152_286, 1.052_583, -0.204_868],
            [0.114_503, 0.786_281, 0.099_216],
            [-0.003_882, -0.048_116, 1.051_998],
        ];
        let no_green = [
            [0.367_322, 0.860_646, -0.227_968],
            [0.280_085, 0.672_501, 0.047_413],
            [-0.011_820, 0.042_940, 0.968_881],
        ];
        [all, no_red, no_green].map(|eye| {
            let [r, g, b] = eye.map(|row| (0..3).map(|i| row[i] * linear[i]).sum::<f64>().clamp(0.0, 1.0));
            let root = |t: f64| if t > 0.008_856 { libm::cbrt(t) } else { 7.787 * t + 16.0 / 116.0 };
            let x = root((0.4124 * r + 0.3576 * g + 0.1805 * b) / 0.9505);
            let y = root(0.2126 * r + 0.7152 * g + 0.0722 * b);
            let z = root((0.0193 * r + 0.1192 * g + 0.9505 * b) / 1.089);
            [116.0 * y - 16.0, 500.0 * (x - y), 200.0 * (y - z)]
        })
    }

    /// The minimum distance of two colours for any of these people. About 2 is just visible, 10 at a glance.
    fn distance(a: [u8; 3], b: [u8; 3]) -> f64 {
        let pairs = seen(a).into_iter().zip(seen(b));
        pairs
            .map(|(a, b)| (0..3).map(|i| (a[i] - b[i]) * (a[i] - b[i])).sum::<f64>().sqrt())
            .fold(f64::INFINITY, f64::min)
    }

    #[test]
    fn states_are_told_apart_by_the_colour_blind_and_no_match_looks_like_a_state() {
        for (i, a) in TrackState::ALL.into_iter().enumerate() {
            for b in &TrackState::ALL[..i] {
                let apart = distance(rgb_of_state(a), rgb_of_state(*b));
                assert!(apart > 40.0, "{a:?} and {b:?} are {apart:.0} apart");
            }
            for name in NAMES {
                let apart = distance(rgb_of_state(a), name);
                assert!(apart > 15.0, "{a:?} and the match's {name:?} are {apart:.0} apart");
            }
        }
        // A plain green and amber look alike to those who lack the receptors for red.
        assert!(distance([40, 220, 80], [255, 170, 0]) < 15.0);
    }
}
