//! The range of luma that is searched and thresholded.

use std::fmt;
use std::str::FromStr;

use crate::error::{Error, Result};

/// The range of luma that is searched and thresholded: `as-is` or `full`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum LumaRange {
    /// As decoded.
    #[default]
    AsIs,
    /// Limited-range video, 16 to 235, is expanded to 0 to 255.
    Full,
}

impl LumaRange {
    /// All that can be typed.
    pub const ALL: [Self; 2] = [Self::AsIs, Self::Full];

    /// As it is typed.
    pub fn name(self) -> &'static str {
        match self {
            Self::AsIs => "as-is",
            Self::Full => "full",
        }
    }
}

impl fmt::Display for LumaRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for LumaRange {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let known = Self::ALL.into_iter().find(|range| range.name() == text);
        known.ok_or_else(|| Error::value("range", text, "expected as-is or full"))
    }
}
