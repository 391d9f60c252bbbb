//! How templates are searched: what counts as a match, at which sizes, in which directions, by which method.

use std::fmt;
use std::str::FromStr;

use crate::error::{Error, Result};

/// The limits of a match, and of the number of matches, for each named template.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Limits {
    /// Minimum exact score of a match, in [-1, 1].
    pub min_score: f64,
    /// Maximum matches of one name in one frame, 1 or more.
    pub max_matches: usize,
    /// Largest intersection over union of two matches of one name, in [0, 1].
    pub max_overlap: f64,
}

impl Default for Limits {
    fn default() -> Self {
        Self { min_score: 0.8, max_matches: 1, max_overlap: 0.3 }
    }
}

impl Limits {
    /// Returns an error for values out of range.
    ///
    /// # Errors
    /// `Value`.
    pub fn check(&self) -> Result<()> {
        let Self { min_score, max_matches, max_overlap } = *self;
        let bad = |what, value: &dyn fmt::Display, expected: &str| {
            Err(Error::value(what, &value.to_string(), expected))
        };
        if !(-1.0..=1.0).contains(&min_score) {
            return bad("min-score", &min_score, "expected a score from -1 to 1");
        }
        if max_matches == 0 {
            return bad("max-matches", &max_matches, "expected 1 or more");
        }
        if !(0.0..=1.0).contains(&max_overlap) {
            return bad("max-overlap", &max_overlap, "expected a share from 0 to 1");
        }
        Ok(())
    }
}

/// Sizes at which a template is searched, as factors in rising order: `A..B/F` gives every power of F between
/// A and B, and 1; `A..B` uses [`Scales::USUAL_FACTOR`]; `A` is one size.
#[derive(Debug, Clone, PartialEq)]
pub struct Scales(pub Vec<f64>);

impl Default for Scales {
    fn default() -> Self {
        Self(vec![1.0])
    }
}

impl Scales {
    /// Default factor: at the nearest size, the edges of a 40-pixel template are at most a pixel off.
    pub const USUAL_FACTOR: f64 = 1.05;
}

impl FromStr for Scales {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let bad = |expected: &str| Error::value("scales", text, expected);
        let (from, to, factor) = match range(text) {
            Some(Numbers::One(scale)) if (0.01..=100.0).contains(&scale) => return Ok(Self(vec![scale])),
            Some(Numbers::One(_)) => return Err(bad("a scale lies between 0.01 and 100")),
            Some(Numbers::Range { from, to, step }) => (from, to, step.unwrap_or(Self::USUAL_FACTOR)),
            None => {
                let expected = "expected FROM..TO, FROM..TO/FACTOR or one SCALE, such as 0.8..1.25, 0.8..1.25/1.02 or 0.5";
                return Err(bad(expected));
            }
        };
        if !(0.01..=100.0).contains(&from) || !(0.01..=100.0).contains(&to) || from > to {
            return Err(bad("FROM must be at most TO, and both within 0.01 and 100"));
        }
        if !(1.001..=100.0).contains(&factor) {
            return Err(bad("FACTOR must lie between 1.001 and 100"));
        }
        // Ends that are powers of the factor must be included despite rounding errors.
        let (from, to) = (from * (1.0 - 1e-9), to * (1.0 + 1e-9));
        let mut scales = vec![1.0];
        let mut up = factor;
        while up <= to {
            scales.push(up);
            up *= factor;
        }
        let mut down = 1.0 / factor;
        while down >= from {
            scales.push(down);
            down /= factor;
        }
        scales.retain(|s| *s == 1.0 || (from..=to).contains(s));
        scales.sort_by(f64::total_cmp);
        Ok(Self(scales))
    }
}

/// Directions in which a template is searched, in degrees, counter-clockwise positive: `A..B/S` gives A, A+S,
/// ... up to B; `A..B` uses [`Angles::USUAL_STEP`]; `A` is one direction.
#[derive(Debug, Clone, PartialEq)]
pub struct Angles(pub Vec<f64>);

impl Default for Angles {
    fn default() -> Self {
        Self(vec![0.0])
    }
}

impl Angles {
    /// Default step in degrees: at the nearest angle, the edges of a 40-pixel template are at most a pixel
    /// off.
    pub const USUAL_STEP: f64 = 5.0;
}

impl FromStr for Angles {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let bad = |expected: &str| Error::value("angles", text, expected);
        let (from, to, step) = match range(text) {
            Some(Numbers::One(angle)) if (-360.0..=360.0).contains(&angle) => return Ok(Self(vec![angle])),
            Some(Numbers::One(_)) => return Err(bad("an angle lies between -360 and 360 degrees")),
            Some(Numbers::Range { from, to, step }) => (from, to, step.unwrap_or(Self::USUAL_STEP)),
            None => {
                let expected =
                    "expected FROM..TO, FROM..TO/STEP or one ANGLE, such as -30..30, -30..30/2 or 45";
                return Err(bad(expected));
            }
        };
        if !(-360.0..=360.0).contains(&from)
            || !(-360.0..=360.0).contains(&to)
            || from > to
            || to - from > 360.0
        {
            return Err(bad(
                "FROM must be at most TO, both within -360 and 360 degrees and at most 360 apart",
            ));
        }
        if !(0.01..=360.0).contains(&step) {
            return Err(bad("STEP must lie between 0.01 and 360 degrees"));
        }
        let steps = ((to - from) / step + 1e-9) as usize;
        let mut angles: Vec<f64> = (0..=steps).map(|i| from + i as f64 * step).collect();
        // -180 and +180 are the same direction, and so are any two ends a full turn apart.
        if angles.len() > 1 && angles[angles.len() - 1] - angles[0] >= 360.0 - 1e-9 {
            angles.pop();
        }
        Ok(Self(angles))
    }
}

/// `FROM..TO/STEP`, `FROM..TO` or one number, all finite.
enum Numbers {
    One(f64),
    Range { from: f64, to: f64, step: Option<f64> },
}

fn range(text: &str) -> Option<Numbers> {
    let number = |s: &str| s.trim().parse::<f64>().ok().filter(|v| v.is_finite());
    let Some((from, rest)) = text.split_once("..") else { return number(text).map(Numbers::One) };
    let (to, step) = match rest.split_once('/') {
        Some((to, step)) => (to, Some(number(step)?)),
        None => (rest, None),
    };
    Some(Numbers::Range { from: number(from)?, to: number(to)?, step })
}

/// How templates are searched: `auto`, `exhaustive` or `pyramid`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum SearchMethod {
    /// Exhaustive unless that takes long; the rule is in `backend::preferred_search` and `backend::long_in`.
    #[default]
    Auto,
    /// At every place, size and direction.
    Exhaustive,
    /// From coarse to fine: much faster with many sizes and directions, and a match can be missed.
    Pyramid,
}

impl SearchMethod {
    /// Its name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Exhaustive => "exhaustive",
            Self::Pyramid => "pyramid",
        }
    }
}

impl fmt::Display for SearchMethod {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for SearchMethod {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let all = [Self::Auto, Self::Exhaustive, Self::Pyramid];
        let known = all.into_iter().find(|method| method.name() == text);
        known.ok_or_else(|| Error::value("search", text, "expected auto, exhaustive or pyramid"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scales_are_powers_of_the_factor_and_one() {
        assert_eq!("0.5..2/2".parse::<Scales>().unwrap().0, [0.5, 1.0, 2.0]);
        assert_eq!("2..4/2".parse::<Scales>().unwrap().0, [1.0, 2.0, 4.0]);
        assert_eq!("1..1/1.05".parse::<Scales>().unwrap().0, [1.0]);
        assert!("0.8..1.25/1".parse::<Scales>().is_err());
        assert!("1.25..0.8/1.05".parse::<Scales>().is_err());
    }

    #[test]
    fn one_number_is_that_size_or_direction_alone_and_ranges_have_usual_steps() {
        assert_eq!("45".parse::<Angles>().unwrap().0, [45.0]);
        assert_eq!("-12.5".parse::<Angles>().unwrap().0, [-12.5]);
        assert_eq!("0.5".parse::<Scales>().unwrap().0, [0.5]);
        assert_eq!("-30..30".parse::<Angles>().unwrap(), "-30..30/5".parse().unwrap());
        assert_eq!("0.5..2".parse::<Scales>().unwrap(), "0.5..2/1.05".parse().unwrap());
        for text in ["361", "nan", "", "1..", "..1", "1..2/", "a", "1/5", "1,2"] {
            assert!(text.parse::<Angles>().is_err(), "{text}");
        }
        for text in ["0", "-1", "101", "", "0.5..", "0.5..2/x", "1/2"] {
            assert!(text.parse::<Scales>().is_err(), "{text}");
        }
    }

    #[test]
    fn a_full_turn_has_no_direction_twice() {
        assert_eq!("-30..30/15".parse::<Angles>().unwrap().0, [-30.0, -15.0, 0.0, 15.0, 30.0]);
        let turn = "-180..180/2".parse::<Angles>().unwrap().0;
        assert_eq!((turn.len(), turn[0], turn[179]), (180, -180.0, 178.0));
        assert_eq!("0..0/1".parse::<Angles>().unwrap().0, [0.0]);
    }
}
