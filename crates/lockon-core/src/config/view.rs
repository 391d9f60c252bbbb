//! The views that outputs can show.

use std::fmt;
use std::str::FromStr;

use crate::error::{Error, Result};

/// The view of a frame that an output shows: `overlay`, `mask` or `split`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum View {
    /// The picture with the results drawn over it.
    #[default]
    Overlay,
    /// The thresholded frame.
    Mask,
    /// The picture on the left and the thresholded frame on the right, with the results over both.
    Split,
}

impl View {
    /// All views.
    pub const ALL: [Self; 3] = [Self::Overlay, Self::Mask, Self::Split];

    /// Its name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Overlay => "overlay",
            Self::Mask => "mask",
            Self::Split => "split",
        }
    }

    /// True if the thresholded frame is shown.
    pub fn has_mask(self) -> bool {
        self != Self::Overlay
    }
}

impl fmt::Display for View {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for View {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let known = Self::ALL.into_iter().find(|view| view.name() == text);
        known.ok_or_else(|| Error::value("view", text, "expected overlay, mask or split"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn views_have_three_names() {
        assert_eq!("split".parse::<View>().unwrap(), View::Split);
        assert!("mask".parse::<View>().unwrap().has_mask() && !View::default().has_mask());
        assert!("Overlay".parse::<View>().is_err());
    }
}
