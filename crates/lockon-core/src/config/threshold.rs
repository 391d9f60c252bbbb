//! Adaptive thresholds.

use std::fmt;
use std::str::FromStr;

use crate::error::{Error, Result};

/// How the local threshold of a pixel is made from its neighbourhood.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum ThresholdMethod {
    /// Box mean minus `c`, as `cv::ADAPTIVE_THRESH_MEAN_C`.
    Mean {
        /// Subtracted from the mean.
        c: f64,
    },
    /// Gaussian-weighted mean minus `c`, as `cv::ADAPTIVE_THRESH_GAUSSIAN_C`.
    Gaussian {
        /// Subtracted from the mean.
        c: f64,
    },
    /// J. Sauvola, M. Pietikäinen, "Adaptive document image binarization", 2000: m * (1 + k * (s / 128 - 1)).
    Sauvola {
        /// Weight of the standard deviation.
        k: f64,
    },
    /// W. Niblack, "An Introduction to Digital Image Processing", 1986: m + k * s.
    Niblack {
        /// Weight of the standard deviation.
        k: f64,
    },
}

/// An adaptive threshold: `METHOD:BLOCK:PARAMETER[:inv]`, such as `mean:31:5` or `sauvola:31:0.2:inv`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ThresholdSpec {
    /// How the threshold is made.
    pub method: ThresholdMethod,
    /// Side of the square neighbourhood: odd, 3 to 255.
    pub block: usize,
    /// Swaps foreground (255) and background (0).
    pub inverse: bool,
}

impl FromStr for ThresholdSpec {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let bad = |expected: String| Error::value("threshold", text, expected);
        let mut parts = text.split(':');
        let (Some(name), Some(block), Some(parameter)) = (parts.next(), parts.next(), parts.next()) else {
            return Err(bad("expected METHOD:BLOCK:PARAMETER[:inv], such as mean:31:5".into()));
        };
        let inverse = match (parts.next(), parts.next()) {
            (None, _) => false,
            (Some("inv"), None) => true,
            (Some(other), _) => return Err(bad(format!("{other:?} is not `inv`"))),
        };
        let value = parameter
            .parse::<f64>()
            .ok()
            .filter(|v| v.is_finite())
            .ok_or_else(|| bad(format!("{parameter:?} is not a finite number")))?;
        let method = match name {
            "mean" => ThresholdMethod::Mean { c: value },
            "gaussian" => ThresholdMethod::Gaussian { c: value },
            "sauvola" => ThresholdMethod::Sauvola { k: value },
            "niblack" => ThresholdMethod::Niblack { k: value },
            other => return Err(bad(format!("{other:?} is not one of mean, gaussian, sauvola, niblack"))),
        };
        let block = block
            .parse::<usize>()
            .ok()
            .filter(|b| b % 2 == 1 && (3..=255).contains(b))
            .ok_or_else(|| bad(format!("block {block} is not an odd number from 3 to 255")))?;
        Ok(Self { method, block, inverse })
    }
}

impl ThresholdMethod {
    /// Its name on the command line.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Mean { .. } => "mean",
            Self::Gaussian { .. } => "gaussian",
            Self::Sauvola { .. } => "sauvola",
            Self::Niblack { .. } => "niblack",
        }
    }
}

impl fmt::Display for ThresholdSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let value = match self.method {
            ThresholdMethod::Mean { c } | ThresholdMethod::Gaussian { c } => c,
            ThresholdMethod::Sauvola { k } | ThresholdMethod::Niblack { k } => k,
        };
        write!(f, "{}:{}:{value}{}", self.method.name(), self.block, if self.inverse { ":inv" } else { "" })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_threshold_prints_as_it_was_typed() {
        for text in ["mean:31:5", "gaussian:3:-7.5:inv", "sauvola:255:0.2", "niblack:31:-0.2:inv"] {
            assert_eq!(text.parse::<ThresholdSpec>().unwrap().to_string(), text);
        }
    }

    #[test]
    fn impossible_thresholds_are_refused_by_name() {
        for (text, says) in [
            ("mean:30:5", "block 30 is not an odd number from 3 to 255"),
            ("mean:0:5", "block 0"),
            ("mean:-3:5", "block -3"),
            ("mean:257:5", "block 257"),
            ("mean:99999999999999999999:5", "block 99999999999999999999"),
            ("mean:31:nan", "not a finite number"),
            ("median:31:5", "not one of mean, gaussian, sauvola, niblack"),
            ("mean:31", "expected METHOD:BLOCK:PARAMETER"),
            ("mean:31:5:inverse", "is not `inv`"),
            ("mean:31:5:inv:inv", "is not `inv`"),
        ] {
            let said = text.parse::<ThresholdSpec>().unwrap_err().to_string();
            assert!(said.contains(says), "{text}: {said}");
        }
    }
}
