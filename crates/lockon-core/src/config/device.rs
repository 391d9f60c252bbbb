//! Which device does the work, and what happens when it is lost.

use std::fmt;
use std::str::FromStr;

use crate::error::{Error, Result};

/// Which device does the work.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum BackendChoice {
    /// The GPU if there is one, else the CPU.
    #[default]
    Auto,
    /// The CPU.
    Cpu,
    /// The CUDA device of that number.
    Cuda(usize),
}

impl fmt::Display for BackendChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Auto => f.write_str("auto"),
            Self::Cpu => f.write_str("cpu"),
            Self::Cuda(device) => write!(f, "cuda:{device}"),
        }
    }
}

impl FromStr for BackendChoice {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        match (text, text.strip_prefix("cuda:").map(str::parse)) {
            ("auto", _) => Ok(Self::Auto),
            ("cpu", _) => Ok(Self::Cpu),
            ("cuda", _) => Ok(Self::Cuda(0)),
            (_, Some(Ok(device))) => Ok(Self::Cuda(device)),
            _ => Err(Error::value("backend", text, "expected auto, cpu, cuda or cuda:N")),
        }
    }
}

/// What a run does when its device is lost: `end` or `cpu`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum OnDeviceLoss {
    /// It ends with the error; what was written so far is kept.
    #[default]
    End,
    /// The CPU does the rest.
    Cpu,
}

impl OnDeviceLoss {
    /// All that can be typed.
    pub const ALL: [Self; 2] = [Self::End, Self::Cpu];

    /// As it is typed.
    pub fn name(self) -> &'static str {
        match self {
            Self::End => "end",
            Self::Cpu => "cpu",
        }
    }
}

impl fmt::Display for OnDeviceLoss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for OnDeviceLoss {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let known = Self::ALL.into_iter().find(|what| what.name() == text);
        known.ok_or_else(|| Error::value("on-device-loss", text, "expected end or cpu"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn backends_are_parsed_with_their_device() {
        assert_eq!("cuda:3".parse::<BackendChoice>().unwrap(), BackendChoice::Cuda(3));
        assert_eq!("cuda".parse::<BackendChoice>().unwrap(), BackendChoice::Cuda(0));
        assert!("cuda:".parse::<BackendChoice>().is_err() && "gpu".parse::<BackendChoice>().is_err());
    }

    #[test]
    fn a_lost_device_ends_the_run_unless_told_otherwise() {
        assert_eq!("end".parse::<OnDeviceLoss>().unwrap(), OnDeviceLoss::default());
        assert_eq!("cpu".parse::<OnDeviceLoss>().unwrap(), OnDeviceLoss::Cpu);
        assert!("auto".parse::<OnDeviceLoss>().is_err());
    }
}
