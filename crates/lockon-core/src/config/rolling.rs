//! When results continue in another file.

use std::fmt;
use std::str::FromStr;

use crate::error::{Error, Result};

/// When a results file is closed and the next one begun: at a size, or at the end of an hour or a day in UTC.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rotate {
    /// When it has so many bytes.
    Size(u64),
    /// When the hour ends.
    Hour,
    /// When the day ends.
    Day,
}

/// The least size: a file has the line of the run and some of frames.
const LEAST: u64 = 4096;

impl FromStr for Rotate {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        match text {
            "hour" => return Ok(Self::Hour),
            "day" => return Ok(Self::Day),
            _ => {}
        }
        match text.parse() {
            Ok(crate::error::Bytes(bytes)) if bytes >= LEAST => Ok(Self::Size(bytes)),
            _ => {
                Err(Error::value("rotate", text, "expected hour, day, or a size of 4K or more, such as 100M"))
            }
        }
    }
}

impl fmt::Display for Rotate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Size(bytes) => {
                let unit = [("G", 30), ("M", 20), ("K", 10)]
                    .into_iter()
                    .find(|(_, shift)| bytes % (1 << shift) == 0);
                match unit {
                    Some((unit, shift)) => write!(f, "{}{unit}", bytes >> shift),
                    None => bytes.fmt(f),
                }
            }
            Self::Hour => f.write_str("hour"),
            Self::Day => f.write_str("day"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rotation_is_a_size_or_a_period_and_comes_back() {
        for (text, rotate) in [
            ("hour", Rotate::Hour),
            ("day", Rotate::Day),
            ("100M", Rotate::Size(100 << 20)),
            ("4K", Rotate::Size(4096)),
            ("5000", Rotate::Size(5000)),
            ("2G", Rotate::Size(2 << 30)),
        ] {
            assert_eq!(text.parse::<Rotate>().unwrap(), rotate, "{text}");
            assert_eq!(rotate.to_string(), text);
        }
        for text in ["", "week", "1K", "-1M", "100 days"] {
            assert!(text.parse::<Rotate>().is_err(), "{text}");
        }
    }
}
