//! Thresholds: how a frame becomes black and white.

use std::fmt;
use std::str::FromStr;

use crate::error::{Error, Result};

/// How the threshold of a pixel is made: from its neighbourhood, from the whole frame, or from the frames
/// before.
///
/// m and s are mean and standard deviation of the neighbourhood, the pixels of a [`Block`] around the pixel.
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
    /// C. Wolf, J.-M. Jolion, "Extraction and Recognition of Artificial Text in Multimedia Documents", 2004:
    /// m + k * (s / R - 1) * (m - M), with M the least luma of the frame and R the greatest s of its pixels.
    Wolf {
        /// Weight of the lack of contrast.
        k: f64,
    },
    /// N. Phansalkar, S. More, A. Sabale, M. Joshi, "Adaptive local thresholding for detection of nuclei in
    /// diversity stained cytology images", 2011: m * (1 + 2 * exp(-10 * m / 255) + k * (s / 127.5 - 1)).
    ///
    /// Their p, q and R are 2, 10 and one half, for luma from 0 to 1. The exponential is interpolated between
    /// whole m ([`phansalkar_factors`](crate::backend::threshold::phansalkar_factors)).
    Phansalkar {
        /// Weight of the standard deviation.
        k: f64,
    },
    /// D. Bradley, G. Roth, "Adaptive Thresholding Using the Integral Image", 2007: m * (100 - t) / 100.
    Bradley {
        /// Percent of the mean.
        t: f64,
    },
    /// The same luma everywhere, as `cv::THRESH_BINARY`.
    Fixed {
        /// That luma.
        t: f64,
    },
    /// One luma for the frame, which divides its histogram best: N. Otsu, "A Threshold Selection Method from
    /// Gray-Level Histograms", 1979, as `cv::THRESH_OTSU`.
    Otsu,
    /// One luma for the frame, at the foot of its histogram's peak: G. W. Zack, W. E. Rogers, S. A. Latt,
    /// "Automatic Measurement of Sister Chromatid Exchange Frequency", 1977, as `cv::THRESH_TRIANGLE`.
    Triangle,
    /// A pixel stands out if it differs by more than `t` from the running mean of the frames before: about
    /// `frames` of them, all as long as they are fewer.
    ///
    /// It belongs to a run, and sees the frames that the run processes, in their order. In the first one no
    /// pixel stands out.
    Background {
        /// Frames that count, 1 to 10,000.
        frames: u32,
        /// Levels of grey.
        t: f64,
    },
}

/// Sides of the neighbourhood around a pixel, in pixels.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Block {
    /// Odd, 3 to 255.
    pub width: usize,
    /// Odd, 3 to 255.
    pub height: usize,
}

/// A threshold: `METHOD:BLOCK:VALUE[:inv]`, such as `mean:31:5` or `sauvola:31x15:0.2:inv`. The methods
/// without neighbourhood are `fixed:VALUE`, `otsu`, `triangle` and `background:FRAMES:VALUE`.
///
/// VALUE may be two numbers, `A..B`: hysteresis. Each gives a mask, and one of the masks lies in the other:
/// white are the components of the larger, by 8 neighbours, that hold a pixel of the smaller.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ThresholdSpec {
    /// How the threshold is made.
    pub method: ThresholdMethod,
    /// The neighbourhood: [`Block::PIXEL`] for methods that have none.
    pub block: Block,
    /// The second value of a hysteresis.
    pub second: Option<f64>,
    /// Swaps foreground (255) and background (0). With hysteresis both masks are swapped before components
    /// are chosen.
    pub inverse: bool,
}

impl Block {
    /// A pixel without neighbours.
    pub const PIXEL: Self = Self { width: 1, height: 1 };

    /// As high as wide.
    pub const fn square(side: usize) -> Self {
        Self { width: side, height: side }
    }

    /// Its number of pixels.
    pub const fn area(self) -> usize {
        self.width * self.height
    }

    /// True if it is as high as wide.
    pub const fn is_square(self) -> bool {
        self.width == self.height
    }
}

impl FromStr for ThresholdSpec {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let bad = |expected: String| Error::value("threshold", text, expected);
        let mut parts: Vec<_> = text.split(':').collect();
        let inverse = parts.len() > 1 && parts.last() == Some(&"inv");
        if inverse {
            parts.pop();
        }
        let name = parts.remove(0);
        let form = match name {
            "otsu" | "triangle" => "",
            "fixed" => ":VALUE",
            "background" => ":FRAMES:VALUE",
            _ => ":BLOCK:PARAMETER",
        };
        // Unknown methods are told first, whatever follows them.
        let method = ThresholdMethod::of_name(name).ok_or_else(|| {
            let names = ThresholdMethod::ALL.map(|method| method.name()).join(", ");
            bad(format!("{name:?} is not one of {names}"))
        })?;
        let count = form.matches(':').count();
        if parts.len() < count {
            let such = match name {
                "fixed" => "fixed:128".into(),
                "background" => "background:200:25".into(),
                _ => format!("{name}:31:{}", method.usual()),
            };
            let shown = if form.contains("BLOCK") { "METHOD" } else { name };
            return Err(bad(format!("expected {shown}{form}[:inv], such as {such}")));
        }
        if let Some(other) = parts.get(count) {
            return Err(bad(format!("{other:?} is not `inv`")));
        }
        let number = |text: &str| {
            let number = text.parse::<f64>().ok().filter(|v| v.is_finite());
            number.ok_or_else(|| bad(format!("{text:?} is not a finite number")))
        };
        let (mut value, mut second) = (0.0, None);
        if let Some(values) = count.checked_sub(1).map(|last| parts[last]) {
            let (first, other) = values.split_once("..").map_or((values, None), |(a, b)| (a, Some(b)));
            value = number(first)?;
            second = other.map(number).transpose()?;
        }
        let mut method = method.with_value(value);
        let block = if method.has_block() { parts[0].parse().map_err(bad)? } else { Block::PIXEL };
        if let ThresholdMethod::Background { frames, .. } = &mut method {
            let given = parts[0].parse().ok().filter(|frames| (1..=MAX_FRAMES).contains(frames));
            *frames = given.ok_or_else(|| {
                bad(format!("{:?} is not a number of frames from 1 to {MAX_FRAMES}", parts[0]))
            })?;
        }
        if matches!(method, ThresholdMethod::Gaussian { .. }) && !block.is_square() {
            return Err(bad(format!("the block of gaussian is a square, {block} is none")));
        }
        Ok(Self { method, block, second, inverse })
    }
}

/// Maximum frames of a background: with more, a change of less than a tenth of a level of grey would be
/// rounded away from frame to frame.
const MAX_FRAMES: u32 = 10_000;

impl FromStr for Block {
    /// What is wrong with it.
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let side = |side: &str| side.parse::<usize>().ok().filter(|b| b % 2 == 1 && (3..=255).contains(b));
        match text.split_once('x') {
            None => {
                let side = side(text).ok_or(format!("block {text} is not an odd number from 3 to 255"))?;
                Ok(Self::square(side))
            }
            Some((width, height)) => match (side(width), side(height)) {
                (Some(width), Some(height)) => Ok(Self { width, height }),
                _ => Err(format!("block {text} is not WIDTHxHEIGHT, each an odd number from 3 to 255")),
            },
        }
    }
}

impl fmt::Display for Block {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_square() {
            write!(f, "{}", self.width)
        } else {
            write!(f, "{}x{}", self.width, self.height)
        }
    }
}

impl ThresholdMethod {
    /// Every method, in the order in which errors list them.
    const ALL: [Self; 11] = [
        Self::Mean { c: 0.0 },
        Self::Gaussian { c: 0.0 },
        Self::Sauvola { k: 0.0 },
        Self::Niblack { k: 0.0 },
        Self::Wolf { k: 0.0 },
        Self::Phansalkar { k: 0.0 },
        Self::Bradley { t: 0.0 },
        Self::Fixed { t: 0.0 },
        Self::Otsu,
        Self::Triangle,
        Self::Background { frames: 1, t: 0.0 },
    ];

    fn of_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|method| method.name() == name)
    }

    /// Its name on the command line.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Mean { .. } => "mean",
            Self::Gaussian { .. } => "gaussian",
            Self::Sauvola { .. } => "sauvola",
            Self::Niblack { .. } => "niblack",
            Self::Wolf { .. } => "wolf",
            Self::Phansalkar { .. } => "phansalkar",
            Self::Bradley { .. } => "bradley",
            Self::Fixed { .. } => "fixed",
            Self::Otsu => "otsu",
            Self::Triangle => "triangle",
            Self::Background { .. } => "background",
        }
    }

    /// Its number; `None` for methods without one.
    pub fn value(&self) -> Option<f64> {
        match *self {
            Self::Mean { c } | Self::Gaussian { c } => Some(c),
            Self::Sauvola { k } | Self::Niblack { k } | Self::Wolf { k } | Self::Phansalkar { k } => Some(k),
            Self::Bradley { t } | Self::Fixed { t } | Self::Background { t, .. } => Some(t),
            Self::Otsu | Self::Triangle => None,
        }
    }

    /// The same method with another number.
    #[must_use]
    pub fn with_value(self, value: f64) -> Self {
        match self {
            Self::Mean { .. } => Self::Mean { c: value },
            Self::Gaussian { .. } => Self::Gaussian { c: value },
            Self::Sauvola { .. } => Self::Sauvola { k: value },
            Self::Niblack { .. } => Self::Niblack { k: value },
            Self::Wolf { .. } => Self::Wolf { k: value },
            Self::Phansalkar { .. } => Self::Phansalkar { k: value },
            Self::Bradley { .. } => Self::Bradley { t: value },
            Self::Fixed { .. } => Self::Fixed { t: value },
            Self::Otsu | Self::Triangle => self,
            Self::Background { frames, .. } => Self::Background { frames, t: value },
        }
    }

    /// True if it compares a pixel with its neighbourhood.
    pub fn has_block(&self) -> bool {
        match self {
            Self::Mean { .. }
            | Self::Gaussian { .. }
            | Self::Sauvola { .. }
            | Self::Niblack { .. }
            | Self::Wolf { .. }
            | Self::Phansalkar { .. }
            | Self::Bradley { .. } => true,
            Self::Fixed { .. } | Self::Otsu | Self::Triangle | Self::Background { .. } => false,
        }
    }

    /// True if a frame's mask depends on the frames before it.
    pub fn remembers(&self) -> bool {
        matches!(self, Self::Background { .. })
    }

    /// A value to begin with, for messages.
    fn usual(&self) -> &'static str {
        match self {
            Self::Mean { .. } | Self::Gaussian { .. } => "5",
            Self::Niblack { .. } => "-0.2",
            Self::Wolf { .. } => "0.5",
            Self::Phansalkar { .. } => "0.25",
            Self::Bradley { .. } => "15",
            _ => "0.2",
        }
    }

    /// True if a larger number makes more pixels white, without inversion.
    fn grows(&self) -> bool {
        match self {
            Self::Niblack { .. } | Self::Fixed { .. } | Self::Background { .. } => false,
            Self::Mean { .. }
            | Self::Gaussian { .. }
            | Self::Sauvola { .. }
            | Self::Wolf { .. }
            | Self::Phansalkar { .. }
            | Self::Bradley { .. }
            | Self::Otsu
            | Self::Triangle => true,
        }
    }
}

impl ThresholdSpec {
    /// The threshold by one value alone; with hysteresis the one that makes more pixels white, and the one
    /// that makes fewer.
    pub fn stages(&self) -> (Self, Option<Self>) {
        let (Some(second), Some(first)) = (self.second, self.method.value()) else {
            return (Self { second: None, ..*self }, None);
        };
        let by = |value| Self { method: self.method.with_value(value), second: None, ..*self };
        let (low, high) = (by(first.min(second)), by(first.max(second)));
        if self.method.grows() == self.inverse { (low, Some(high)) } else { (high, Some(low)) }
    }
}

impl fmt::Display for ThresholdSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.method.name())?;
        if self.method.has_block() {
            write!(f, ":{}", self.block)?;
        }
        if let ThresholdMethod::Background { frames, .. } = self.method {
            write!(f, ":{frames}")?;
        }
        if let Some(value) = self.method.value() {
            write!(f, ":{value}")?;
            if let Some(second) = self.second {
                write!(f, "..{second}")?;
            }
        }
        f.write_str(if self.inverse { ":inv" } else { "" })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_threshold_prints_as_it_was_typed() {
        for text in [
            "mean:31:5",
            "gaussian:3:-7.5:inv",
            "sauvola:255:0.2",
            "niblack:31:-0.2:inv",
            "mean:31x5:8",
            "wolf:51x255:0.5:inv",
            "phansalkar:15:0.25",
            "bradley:31:15",
            "fixed:127.5",
            "fixed:160..100:inv",
            "otsu",
            "otsu:inv",
            "triangle",
            "triangle:inv",
            "background:200:25",
            "background:1:12..40:inv",
            "mean:31:-20..-5",
            "sauvola:31x9:0.2..0.4:inv",
        ] {
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
            ("mean:31x4:5", "block 31x4 is not WIDTHxHEIGHT, each an odd number from 3 to 255"),
            ("mean:31x:5", "block 31x is not WIDTHxHEIGHT"),
            ("mean:3x5x7:5", "block 3x5x7 is not WIDTHxHEIGHT"),
            ("gaussian:31x5:5", "the block of gaussian is a square, 31x5 is none"),
            ("mean:31:nan", "not a finite number"),
            ("mean:31:5..", "\"\" is not a finite number"),
            ("mean:31:5..inf", "\"inf\" is not a finite number"),
            ("mean:31:1..2..3", "\"2..3\" is not a finite number"),
            (
                "median:31:5",
                "not one of mean, gaussian, sauvola, niblack, wolf, phansalkar, bradley, fixed, otsu",
            ),
            ("mean", "expected METHOD:BLOCK:PARAMETER"),
            ("mean:31", "expected METHOD:BLOCK:PARAMETER[:inv], such as mean:31:5"),
            ("mean:inv", "expected METHOD:BLOCK:PARAMETER"),
            ("mean:31:5:inverse", "is not `inv`"),
            ("mean:31:5:inv:inv", "is not `inv`"),
            ("otsu:5", "\"5\" is not `inv`"),
            ("triangle:31:5", "\"31\" is not `inv`"),
            ("fixed", "expected fixed:VALUE[:inv], such as fixed:128"),
            ("fixed:31:5", "\"5\" is not `inv`"),
            ("background:25", "expected background:FRAMES:VALUE[:inv], such as background:200:25"),
            ("background:0:25", "\"0\" is not a number of frames from 1 to 10000"),
            ("background:200f:25", "\"200f\" is not a number of frames"),
            ("inv", "\"inv\" is not one of"),
            ("", "\"\" is not one of"),
        ] {
            let said = text.parse::<ThresholdSpec>().unwrap_err().to_string();
            assert!(said.contains(says), "{text}: {said}");
        }
    }

    #[test]
    fn the_first_stage_of_a_hysteresis_is_the_one_with_more_white() {
        for (text, more, fewer) in [
            ("mean:31:-20..-5", "mean:31:-5", "mean:31:-20"),
            ("mean:31:-5..-20:inv", "mean:31:-20:inv", "mean:31:-5:inv"),
            ("niblack:31:0.2..0.4", "niblack:31:0.2", "niblack:31:0.4"),
            ("sauvola:31:0.2..0.4", "sauvola:31:0.4", "sauvola:31:0.2"),
            ("fixed:160..100", "fixed:100", "fixed:160"),
            ("fixed:160..100:inv", "fixed:160:inv", "fixed:100:inv"),
            ("background:9:10..30", "background:9:10", "background:9:30"),
        ] {
            let (first, second) = text.parse::<ThresholdSpec>().unwrap().stages();
            assert_eq!(
                (first.to_string(), second.unwrap().to_string()),
                (more.into(), fewer.into()),
                "{text}"
            );
        }
        let plain: ThresholdSpec = "mean:31:5:inv".parse().unwrap();
        assert_eq!(plain.stages(), (plain, None));
    }
}
