//! Codecs of written videos.

use std::fmt;
use std::str::FromStr;

use crate::error::{Error, Result};

/// The codec of written videos: `auto` or `ffv1`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Codec {
    /// H.264, or VP9 in `WebM`: small, and played everywhere.
    #[default]
    Auto,
    /// FFV1: lossless.
    Ffv1,
}

impl Codec {
    /// All values.
    pub const ALL: [Self; 2] = [Self::Auto, Self::Ffv1];

    /// Its typed form.
    pub fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Ffv1 => "ffv1",
        }
    }
}

impl fmt::Display for Codec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Codec {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let known = Self::ALL.into_iter().find(|codec| codec.name() == text);
        known.ok_or_else(|| Error::value("codec", text, "expected auto or ffv1"))
    }
}
