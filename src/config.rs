//! What is asked for, as plain data: the search, the threshold, boxes, scales, angles, the device.
//!
//! Each type parses the text that the command line documents and refuses what cannot mean anything, so that a value that
//! exists is a value that can be run.

use std::fmt;
use std::str::FromStr;

use crate::error::{Error, Result};
use crate::frame::{Rect, Size};

/// What counts as a match, and how many of them are reported. Limits count per named template.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Limits {
    /// Least exact score of a match, in [-1, 1].
    pub min_score: f64,
    /// Most matches of one name in one frame, 1 or more.
    pub max_matches: usize,
    /// Largest intersection over union of two matches of one name, in [0, 1].
    pub max_overlap: f64,
}

impl Default for Limits {
    fn default() -> Self {
        Self { min_score: 0.8, max_matches: 1, max_overlap: 0.3 }
    }
}

/// How the local threshold of a pixel is made from its neighbourhood.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum ThresholdMethod {
    /// Box mean minus `c`, as `cv::ADAPTIVE_THRESH_MEAN_C`.
    Mean {
        /// Taken off the mean.
        c: f64,
    },
    /// Gaussian-weighted mean minus `c`, as `cv::ADAPTIVE_THRESH_GAUSSIAN_C`.
    Gaussian {
        /// Taken off the mean.
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
    /// As it is typed.
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

impl FromStr for Size {
    type Err = Error;

    /// `WxH` in whole pixels, each from 1 to 65535.
    fn from_str(text: &str) -> Result<Self> {
        let side = |text: &str| text.parse::<u16>().ok().map(usize::from).filter(|&side| side > 0);
        text.split_once('x')
            .and_then(|(width, height)| Some(Self::new(side(width)?, side(height)?)))
            .ok_or_else(|| Error::value("size", text, "expected WIDTHxHEIGHT up to 65535, such as 64x48"))
    }
}

impl FromStr for Rect {
    type Err = Error;

    /// `X,Y,W,H` in whole pixels, with W and H of 1 or more.
    fn from_str(text: &str) -> Result<Self> {
        let bad = |expected: &str| Error::value("box", text, expected);
        let mut numbers = [0; 4];
        let mut parts = text.split(',');
        for number in &mut numbers {
            *number = parts
                .next()
                .and_then(|part| part.trim().parse().ok())
                .ok_or_else(|| bad("expected X,Y,W,H: four whole numbers of pixels, none negative"))?;
        }
        if parts.next().is_some() {
            return Err(bad("more than four numbers"));
        }
        let [x, y, w, h] = numbers;
        if w == 0 || h == 0 {
            return Err(bad("width and height must be 1 or more"));
        }
        Ok(Self { x, y, w, h })
    }
}

/// A box to follow: `X,Y,W,H[@FRAME]`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TrackSpec {
    /// Where the object is.
    pub rect: Rect,
    /// In which frame, zero-based.
    pub frame: u64,
}

impl FromStr for TrackSpec {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let (rect, frame) = match text.split_once('@') {
            None => (text, 0),
            Some((rect, frame)) => (
                rect,
                frame
                    .parse()
                    .map_err(|_| Error::value("track", text, format!("{frame:?} is not a frame number")))?,
            ),
        };
        Ok(Self { rect: rect.parse()?, frame })
    }
}

impl fmt::Display for TrackSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}@{}", self.rect, self.frame)
    }
}

/// Sizes at which a template is searched, as factors in rising order: `A..B/F` gives every power of F between A and B, and 1.
#[derive(Debug, Clone, PartialEq)]
pub struct Scales(pub Vec<f64>);

impl Default for Scales {
    fn default() -> Self {
        Self(vec![1.0])
    }
}

impl FromStr for Scales {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let bad = |expected: &str| Error::value("scales", text, expected);
        let [from, to, factor] =
            range(text).ok_or_else(|| bad("expected FROM..TO/FACTOR, such as 0.8..1.25/1.05"))?;
        if !(0.01..=100.0).contains(&from) || !(0.01..=100.0).contains(&to) || from > to {
            return Err(bad("FROM and TO must rise, and lie between 0.01 and 100"));
        }
        if !(1.001..=100.0).contains(&factor) {
            return Err(bad("FACTOR must lie between 1.001 and 100"));
        }
        // Ends that are powers of the factor are meant to be included, whatever rounding does to them.
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

/// Directions in which a template is searched, in degrees, counter-clockwise positive: `A..B/S` gives A, A+S, ... up to B.
#[derive(Debug, Clone, PartialEq)]
pub struct Angles(pub Vec<f64>);

impl Default for Angles {
    fn default() -> Self {
        Self(vec![0.0])
    }
}

impl FromStr for Angles {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let bad = |expected: &str| Error::value("angles", text, expected);
        let [from, to, step] = range(text).ok_or_else(|| bad("expected FROM..TO/STEP, such as -30..30/5"))?;
        if !(-360.0..=360.0).contains(&from)
            || !(-360.0..=360.0).contains(&to)
            || from > to
            || to - from > 360.0
        {
            return Err(bad(
                "FROM and TO must rise, lie between -360 and 360 degrees, and span a turn at most",
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

/// `FROM..TO/STEP` as three finite numbers.
fn range(text: &str) -> Option<[f64; 3]> {
    let (ends, step) = text.split_once('/')?;
    let (from, to) = ends.split_once("..")?;
    let number = |s: &str| s.trim().parse::<f64>().ok().filter(|v| v.is_finite());
    Some([number(from)?, number(to)?, number(step)?])
}

/// How templates are searched: `exhaustive` or `pyramid`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum SearchMethod {
    /// At every place, size and direction.
    #[default]
    Exhaustive,
    /// From coarse to fine: much faster with many sizes and directions, and a match can be missed.
    Pyramid,
}

impl SearchMethod {
    /// As it is typed.
    pub fn name(self) -> &'static str {
        match self {
            Self::Exhaustive => "exhaustive",
            Self::Pyramid => "pyramid",
        }
    }
}

impl FromStr for SearchMethod {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let known = [Self::Exhaustive, Self::Pyramid].into_iter().find(|method| method.name() == text);
        known.ok_or_else(|| Error::value("search", text, "expected exhaustive or pyramid"))
    }
}

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

impl FromStr for OnDeviceLoss {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        match text {
            "end" => Ok(Self::End),
            "cpu" => Ok(Self::Cpu),
            _ => Err(Error::value("on-device-loss", text, "expected end or cpu")),
        }
    }
}

/// One hand-written kernel of the CUDA backend, as `--kernel` and the bench table name it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kernel {
    /// How the products of NCC are summed.
    Ncc(NccKernel),
    /// How the sums of the box thresholds (mean, Sauvola, Niblack) are made.
    Box(BoxKernel),
    /// How the Gaussian threshold is convolved.
    Gaussian(GaussianKernel),
}

/// How the products of NCC are summed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NccKernel {
    /// Image and template through textures: any size.
    Texture,
    /// The template in constant memory, the image through a texture.
    Constant,
    /// The image's tile in shared memory, the template in constant memory.
    Shared,
    /// Products on the tensor cores of compute capability 9.0, no score map.
    Wgmma,
    /// Products on the tensor cores of compute capability 7.5 and later: any size, no score map for small templates.
    Mma,
}

/// How the sums of a box are made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BoxKernel {
    /// One pass: sums slide in shared memory.
    Fused,
    /// Each pixel's window is summed from a tile in shared memory.
    Tile,
    /// Sums slide down the columns and along the rows.
    Sliding,
}

/// How a picture is convolved.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GaussianKernel {
    /// One pass, on the tensor cores.
    Fused,
    /// The tile and its halo lie in shared memory.
    Shared,
    /// The tile lies in shared memory, the halo is left to the cache.
    Cached,
}

impl Kernel {
    /// All that can be asked for, with their names.
    pub const ALL: [(&str, Self); 11] = [
        ("ncc-texture", Self::Ncc(NccKernel::Texture)),
        ("ncc-constant", Self::Ncc(NccKernel::Constant)),
        ("ncc-shared", Self::Ncc(NccKernel::Shared)),
        ("ncc-wgmma", Self::Ncc(NccKernel::Wgmma)),
        ("ncc-mma", Self::Ncc(NccKernel::Mma)),
        ("box-tile", Self::Box(BoxKernel::Tile)),
        ("box-sliding", Self::Box(BoxKernel::Sliding)),
        ("box-fused", Self::Box(BoxKernel::Fused)),
        ("gaussian-shared", Self::Gaussian(GaussianKernel::Shared)),
        ("gaussian-cached", Self::Gaussian(GaussianKernel::Cached)),
        ("gaussian-fused", Self::Gaussian(GaussianKernel::Fused)),
    ];

    /// True if a threshold of this method can be made by it.
    pub fn makes(self, method: ThresholdMethod) -> bool {
        match self {
            Self::Ncc(_) => false,
            Self::Gaussian(_) => matches!(method, ThresholdMethod::Gaussian { .. }),
            Self::Box(_) => !matches!(method, ThresholdMethod::Gaussian { .. }),
        }
    }
}

impl FromStr for Kernel {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let known = Self::ALL.iter().find(|(name, _)| *name == text);
        known.map(|(_, kernel)| *kernel).ok_or_else(|| {
            let names: Vec<_> = Self::ALL.iter().map(|(name, _)| *name).collect();
            Error::value("kernel", text, format!("expected one of {}", names.join(", ")))
        })
    }
}

impl fmt::Display for Kernel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (name, _) = Self::ALL.iter().find(|(_, kernel)| kernel == self).expect("each has its name");
        f.write_str(name)
    }
}

/// The kernels that were chosen; for what is `None`, the fastest is taken that can do the work.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Kernels {
    /// For template matching.
    pub ncc: Option<NccKernel>,
    /// For the mean, Sauvola and Niblack.
    pub boxes: Option<BoxKernel>,
    /// For the Gaussian.
    pub gaussian: Option<GaussianKernel>,
}

impl FromIterator<Kernel> for Kernels {
    /// Of two for the same thing the later counts.
    fn from_iter<I: IntoIterator<Item = Kernel>>(kernels: I) -> Self {
        let mut chosen = Self::default();
        for kernel in kernels {
            match kernel {
                Kernel::Ncc(kernel) => chosen.ncc = Some(kernel),
                Kernel::Box(kernel) => chosen.boxes = Some(kernel),
                Kernel::Gaussian(kernel) => chosen.gaussian = Some(kernel),
            }
        }
        chosen
    }
}

/// What an output shows of a frame: `overlay`, `mask` or `split`.
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
    /// True if the thresholded frame is shown.
    pub fn has_mask(self) -> bool {
        self != Self::Overlay
    }
}

impl FromStr for View {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        match text {
            "overlay" => Ok(Self::Overlay),
            "mask" => Ok(Self::Mask),
            "split" => Ok(Self::Split),
            _ => Err(Error::value("view", text, "expected overlay, mask or split")),
        }
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

    #[test]
    fn sizes_that_no_picture_has_are_refused() {
        assert_eq!("65535x1".parse::<Size>().unwrap(), Size::new(65535, 1));
        for text in ["0x1", "65536x1", "4294967296x4294967296", "-1x5", "5", "5x", "x", "5x5x5"] {
            assert!(text.parse::<Size>().is_err(), "{text}");
        }
    }

    #[test]
    fn scales_are_powers_of_the_factor_and_one() {
        assert_eq!("0.5..2/2".parse::<Scales>().unwrap().0, [0.5, 1.0, 2.0]);
        assert_eq!("2..4/2".parse::<Scales>().unwrap().0, [1.0, 2.0, 4.0]);
        assert_eq!("1..1/1.05".parse::<Scales>().unwrap().0, [1.0]);
        assert!("0.8..1.25/1".parse::<Scales>().is_err());
        assert!("1.25..0.8/1.05".parse::<Scales>().is_err());
    }

    #[test]
    fn a_full_turn_has_no_direction_twice() {
        assert_eq!("-30..30/15".parse::<Angles>().unwrap().0, [-30.0, -15.0, 0.0, 15.0, 30.0]);
        let turn = "-180..180/2".parse::<Angles>().unwrap().0;
        assert_eq!((turn.len(), turn[0], turn[179]), (180, -180.0, 178.0));
        assert_eq!("0..0/1".parse::<Angles>().unwrap().0, [0.0]);
    }

    #[test]
    fn boxes_without_pixels_are_refused() {
        assert_eq!(
            "1,2,3,4@5".parse::<TrackSpec>().unwrap(),
            TrackSpec { rect: Rect::new(1, 2, 3, 4), frame: 5 }
        );
        for text in ["1,2,0,4", "1,2,3", "1,2,3,4,5", "-1,2,3,4", "1,2,3,4@", "1,2,3,4@x", "a,b,c,d"] {
            assert!(text.parse::<TrackSpec>().is_err(), "{text}");
        }
    }

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

    #[test]
    fn views_have_three_names() {
        assert_eq!("split".parse::<View>().unwrap(), View::Split);
        assert!("mask".parse::<View>().unwrap().has_mask() && !View::default().has_mask());
        assert!("Overlay".parse::<View>().is_err());
    }
}
