//! The device that does the work, and the behaviour when it is lost.

use std::fmt;
use std::str::FromStr;

use crate::error::{Error, Result};

/// The device that does the work.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum BackendChoice {
    /// The GPU if there is one, else the CPU.
    #[default]
    Auto,
    /// The CPU.
    Cpu,
    /// The CUDA device of that number.
    Cuda(usize),
    /// One of these CUDA devices, that on which the fewest runs of the process are.
    CudaOf(Gpus),
}

/// CUDA devices by their numbers. The first 64 can be named.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Gpus(u64);

impl Gpus {
    /// All that there are.
    pub const ALL: Self = Self(u64::MAX);

    /// The numbers among these that are below `count`, the number of existing devices.
    pub fn among(self, count: usize) -> impl Iterator<Item = usize> {
        (0..count.min(64)).filter(move |&number| self.0 >> number & 1 == 1)
    }

    /// The first of them that is not among so many that there are; all that there are have none.
    pub fn beyond(self, count: usize) -> Option<usize> {
        (count..64).find(|&number| self != Self::ALL && self.0 >> number & 1 == 1)
    }

    /// The first.
    pub fn first(self) -> usize {
        self.0.trailing_zeros() as usize
    }

    /// `all`, or numbers with commas between them.
    fn read(text: &str) -> Option<Self> {
        if text == "all" {
            return Some(Self::ALL);
        }
        text.split(',').try_fold(Self(0), |Self(bits), number| {
            Some(number.parse::<u32>().ok()?)
                .filter(|&number| number < 64)
                .map(|number| Self(bits | 1 << number))
        })
    }
}

impl fmt::Display for Gpus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if *self == Self::ALL {
            return f.write_str("all");
        }
        let numbers: Vec<_> = self.among(64).map(|number| number.to_string()).collect();
        f.write_str(&numbers.join(","))
    }
}

impl fmt::Display for BackendChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Auto => f.write_str("auto"),
            Self::Cpu => f.write_str("cpu"),
            Self::Cuda(device) => write!(f, "cuda:{device}"),
            Self::CudaOf(gpus) => write!(f, "cuda:{gpus}"),
        }
    }
}

impl FromStr for BackendChoice {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let numbers = text.strip_prefix("cuda:");
        match (text, numbers.map(str::parse), numbers.and_then(Gpus::read)) {
            ("auto", ..) => Ok(Self::Auto),
            ("cpu", ..) => Ok(Self::Cpu),
            ("cuda", ..) => Ok(Self::Cuda(0)),
            (_, Some(Ok(device)), _) => Ok(Self::Cuda(device)),
            (.., Some(gpus)) => Ok(Self::CudaOf(gpus)),
            _ => Err(Error::value("backend", text, "expected auto, cpu, cuda, cuda:N, cuda:N,N or cuda:all")),
        }
    }
}

/// A run's behaviour when its device is lost: `end`, `gpu` or `cpu`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum OnDeviceLoss {
    /// It ends with the error; the results written so far are kept.
    #[default]
    End,
    /// Another GPU does the rest, or the CPU if there is none.
    Gpu,
    /// The CPU does the rest.
    Cpu,
}

impl OnDeviceLoss {
    /// All that can be typed.
    pub const ALL: [Self; 3] = [Self::End, Self::Gpu, Self::Cpu];

    /// As it is typed.
    pub fn name(self) -> &'static str {
        match self {
            Self::End => "end",
            Self::Gpu => "gpu",
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
        known.ok_or_else(|| Error::value("on-device-loss", text, "expected end, gpu or cpu"))
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
    fn several_gpus_are_parsed_and_said_in_order() {
        let gpus = |text: &str| match text.parse() {
            Ok(BackendChoice::CudaOf(gpus)) => gpus,
            other => panic!("{text}: {other:?}"),
        };
        assert_eq!(gpus("cuda:3,0,3").among(9).collect::<Vec<_>>(), [0, 3]);
        assert_eq!(gpus("cuda:all").among(2).collect::<Vec<_>>(), [0, 1]);
        assert_eq!(
            (gpus("cuda:1,4").first(), gpus("cuda:1,4").beyond(2), gpus("cuda:1,4").beyond(5)),
            (1, Some(4), None)
        );
        assert_eq!(gpus("cuda:all").beyond(2), None);
        for text in ["cuda:0,2", "cuda:all"] {
            assert_eq!(BackendChoice::CudaOf(gpus(text)).to_string(), text);
        }
        for text in ["cuda:0,", "cuda:,", "cuda:0,x", "cuda:0,64", "cuda:all,0", "cuda:0, 1"] {
            assert!(text.parse::<BackendChoice>().is_err(), "{text}");
        }
    }

    #[test]
    fn a_lost_device_ends_the_run_unless_told_otherwise() {
        assert_eq!("end".parse::<OnDeviceLoss>().unwrap(), OnDeviceLoss::default());
        assert_eq!("cpu".parse::<OnDeviceLoss>().unwrap(), OnDeviceLoss::Cpu);
        assert!("auto".parse::<OnDeviceLoss>().is_err());
    }
}
