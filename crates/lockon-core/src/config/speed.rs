//! The speed of a video.

use std::fmt;
use std::str::FromStr;

use crate::error::{Error, Result};

/// The speed of a video, relative to its timestamps: `0.5`, `1`, `4`, or `max`, as fast as possible.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Speed(Option<f64>);

impl Speed {
    /// The maximum speed.
    pub const MAX: Self = Self(None);

    /// Minimum and maximum that can be requested besides [`Self::MAX`].
    pub const RANGE: (f64, f64) = (0.05, 64.0);

    /// Returns a speed, as a multiple of the video's own; `None` is the maximum.
    ///
    /// # Errors
    /// `Value` outside of [`Self::RANGE`].
    pub fn new(times: Option<f64>) -> Result<Self> {
        let (least, most) = Self::RANGE;
        match times {
            Some(times) if !(least..=most).contains(&times) => {
                Err(Error::value("speed", &times.to_string(), "expected 0.05 to 64, or max"))
            }
            times => Ok(Self(times)),
        }
    }

    /// The factor; `None` is the maximum speed.
    pub fn times(self) -> Option<f64> {
        self.0
    }
}

impl Default for Speed {
    /// As the video was recorded.
    fn default() -> Self {
        Self(Some(1.0))
    }
}

impl fmt::Display for Speed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(times) => times.fmt(f),
            None => f.write_str("max"),
        }
    }
}

impl FromStr for Speed {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        if text == "max" {
            return Ok(Self::MAX);
        }
        let times = text.strip_suffix('x').unwrap_or(text).parse().ok();
        let bad = || Error::value("speed", text, "expected 0.05 to 64, or max");
        Self::new(Some(times.ok_or_else(bad)?)).map_err(|_| bad())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_speed_is_a_number_or_max() {
        for (text, times, shown) in [
            ("1", Some(1.0), "1"),
            ("0.25x", Some(0.25), "0.25"),
            ("64", Some(64.0), "64"),
            ("max", None, "max"),
        ] {
            let speed: Speed = text.parse().unwrap();
            assert_eq!((speed.times(), &*speed.to_string()), (times, shown));
        }
        for text in ["", "x", "0", "0.01", "65", "-1", "NaN", "inf", "fast", "1 x"] {
            assert!(text.parse::<Speed>().is_err(), "{text}");
        }
        assert_eq!(Speed::default().times(), Some(1.0));
    }
}
