//! What is asked for, as plain data: the search, the threshold, boxes, scales, angles, the device.
//!
//! Each type parses the text that the command line documents and refuses what cannot mean anything, so that a
//! value that exists is a value that can be run.

use std::fmt;
use std::ops::Deref;
use std::str::FromStr;

use crate::error::{Error, Result};
use crate::frame::{FrameMeta, Rect, Size};

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

/// A place in a video: the number of a frame (`120`), or a time (`12.5s`, `500ms`, `1:02.5`, `1:02:03.5`).
///
/// Frames are counted from the video's first, which is 0; times are those of the frames, as results tell
/// them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Moment {
    /// The frame of that number.
    Frame(u64),
    /// The first frame that is not before this time, in nanoseconds.
    Time(u64),
}

impl Default for Moment {
    /// The beginning.
    fn default() -> Self {
        Self::Frame(0)
    }
}

impl Moment {
    /// True for the frame that it names and for all that follow. A frame without a time is before every time.
    pub fn is_reached(self, frame: &FrameMeta) -> bool {
        match self {
            Self::Frame(index) => frame.index >= index,
            Self::Time(ns) => frame.pts_ns.is_some_and(|pts| pts >= ns),
        }
    }

    /// For sentences: `frame 120`, `12.5s`.
    pub fn in_words(self) -> String {
        match self {
            Self::Frame(index) => format!("frame {index}"),
            Self::Time(_) => self.to_string(),
        }
    }
}

impl FromStr for Moment {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let bad = |expected: &str| Error::value("moment", text, expected);
        if !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()) {
            return text.parse().map(Self::Frame).map_err(|_| bad("no video has so many frames"));
        }
        let time = match (text.strip_suffix("ms"), text.strip_suffix('s'), text.contains(':')) {
            (Some(number), _, false) => nanoseconds(number, 6),
            (None, Some(number), false) => nanoseconds(number, 9),
            (None, None, true) => clock_time(text),
            _ => None,
        };
        time.map(Self::Time).ok_or_else(|| {
            bad("expected a frame's number or a time, such as 120, 12.5s, 500ms, 1:02.5 or 1:02:03.5")
        })
    }
}

impl fmt::Display for Moment {
    /// In the shortest way that comes back as the same: times in seconds.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Frame(index) => index.fmt(f),
            Self::Time(ns) => {
                let (seconds, fraction) = (ns / NANOSECONDS, format!("{:09}", ns % NANOSECONDS));
                match fraction.trim_end_matches('0') {
                    "" => write!(f, "{seconds}s"),
                    digits => write!(f, "{seconds}.{digits}s"),
                }
            }
        }
    }
}

const NANOSECONDS: u64 = 1_000_000_000;

/// `[H:]MM:SS[.FRACTION]` in nanoseconds. What is not in front is less than 60.
fn clock_time(text: &str) -> Option<u64> {
    let (rest, seconds) = text.rsplit_once(':')?;
    let (hours, minutes) = rest.rsplit_once(':').map_or((None, rest), |(hours, rest)| (Some(hours), rest));
    let whole = |text: &str| text.parse::<u64>().ok().filter(|_| text.bytes().all(|b| b.is_ascii_digit()));
    let (hours, minutes, seconds) = (hours.map(whole), whole(minutes)?, nanoseconds(seconds, 9)?);
    if seconds >= 60 * NANOSECONDS || (hours.is_some() && minutes >= 60) {
        return None;
    }
    let minutes = hours.unwrap_or(Some(0))?.checked_mul(60)?.checked_add(minutes)?;
    minutes.checked_mul(60 * NANOSECONDS)?.checked_add(seconds)
}

/// A decimal number as so many times 10 to the power of `places`, without rounding; digits that do not fit
/// are refused.
fn nanoseconds(number: &str, places: usize) -> Option<u64> {
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let is_number = [whole, fraction].iter().all(|part| part.bytes().all(|byte| byte.is_ascii_digit()));
    if !is_number || (whole.is_empty() && fraction.is_empty()) || fraction.len() > places {
        return None;
    }
    format!("{whole}{fraction:0<places$}").parse().ok()
}

/// Which frames of a video are processed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Part {
    /// The first one.
    pub start: Moment,
    /// The first after the last one; the video's end if nothing is said.
    pub end: Option<Moment>,
    /// The distance from one processed frame to the next: 1, or more to leave frames out.
    pub every: u64,
}

impl Default for Part {
    /// The whole video.
    fn default() -> Self {
        Self { start: Moment::default(), end: None, every: 1 }
    }
}

impl Part {
    /// What helps where a box was drawn on a frame before the part.
    pub const EARLIER_BOX: &str = "give an earlier --start, or a box that was drawn on a frame of this part";

    /// Refuses a part that has no frame, as far as that can be told without the video.
    ///
    /// # Errors
    /// `Usage`.
    pub fn check(&self) -> Result<()> {
        let Self { start, end, .. } = *self;
        let is_empty = match (start, end) {
            (Moment::Frame(start), Some(Moment::Frame(end)))
            | (Moment::Time(start), Some(Moment::Time(end))) => end <= start,
            (_, Some(Moment::Frame(0) | Moment::Time(0))) => true,
            _ => false,
        };
        if is_empty {
            let end = end.expect("a part without an end is not empty");
            return Err(Error::Usage(format!(
                "--end {end} is not after --start {start}: no frame lies between them"
            )));
        }
        Ok(())
    }

    /// True if a moment surely lies before the first frame, as far as that can be told without the video: a
    /// frame's number and a time cannot be compared.
    pub fn begins_after(&self, moment: Moment) -> bool {
        match (moment, self.start) {
            (Moment::Frame(moment), Moment::Frame(start)) | (Moment::Time(moment), Moment::Time(start)) => {
                moment < start
            }
            _ => false,
        }
    }

    /// True if a moment surely lies after the last frame, where at most `max_frames` are processed.
    pub fn ends_before(&self, moment: Moment, max_frames: Option<u64>) -> bool {
        match (moment, self.end) {
            (Moment::Frame(moment), Some(Moment::Frame(end))) if moment >= end => return true,
            (Moment::Time(moment), Some(Moment::Time(end))) if moment >= end => return true,
            _ => {}
        }
        match (moment, self.start, max_frames) {
            (Moment::Frame(moment), Moment::Frame(start), Some(max)) => {
                moment > start.saturating_add((max - 1).saturating_mul(self.every))
            }
            _ => false,
        }
    }
}

/// A box to follow: `X,Y,W,H[@MOMENT]`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TrackSpec {
    /// Where the object is.
    pub rect: Rect,
    /// From when on: what is in the box there is learnt.
    pub from: Moment,
}

impl FromStr for TrackSpec {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let (rect, from) = text.split_once('@').map_or((text, None), |(rect, from)| (rect, Some(from)));
        let from = from.map_or(Ok(Moment::default()), str::parse)?;
        Ok(Self { rect: rect.parse()?, from })
    }
}

impl fmt::Display for TrackSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}@{}", self.rect, self.from)
    }
}

/// Sizes at which a template is searched, as factors in rising order: `A..B/F` gives every power of F between
/// A and B, and 1; `A..B` those of [`Scales::USUAL_FACTOR`]; `A` that size alone.
#[derive(Debug, Clone, PartialEq)]
pub struct Scales(pub Vec<f64>);

impl Default for Scales {
    fn default() -> Self {
        Self(vec![1.0])
    }
}

impl Scales {
    /// From one size to the next, unless another factor is typed: of a template of 40 pixels its edges are a
    /// pixel off at most.
    pub const USUAL_FACTOR: f64 = 1.05;
}

impl FromStr for Scales {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let bad = |expected: &str| Error::value("scales", text, expected);
        let (from, to, factor) = match range(text) {
            Some(Numbers::One(scale)) if (0.01..=100.0).contains(&scale) => return Ok(Self(vec![scale])),
            Some(Numbers::One(_)) => return Err(bad("a scale lies between 0.01 and 100")),
            Some(Numbers::Range { from, to, step }) => (from, to, step.unwrap_or(Self::USUAL_FACTOR)),
            None => {
                let expected = "expected FROM..TO, FROM..TO/FACTOR or one SCALE, such as 0.8..1.25, 0.8..1.25/1.02 or 0.5";
                return Err(bad(expected));
            }
        };
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

/// Directions in which a template is searched, in degrees, counter-clockwise positive: `A..B/S` gives A, A+S,
/// ... up to B; `A..B` takes steps of [`Angles::USUAL_STEP`]; `A` is that direction alone.
#[derive(Debug, Clone, PartialEq)]
pub struct Angles(pub Vec<f64>);

impl Default for Angles {
    fn default() -> Self {
        Self(vec![0.0])
    }
}

impl Angles {
    /// From one direction to the next, unless another step is typed, in degrees: of a template of 40 pixels
    /// its edges are a pixel off at most.
    pub const USUAL_STEP: f64 = 5.0;
}

impl FromStr for Angles {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let bad = |expected: &str| Error::value("angles", text, expected);
        let (from, to, step) = match range(text) {
            Some(Numbers::One(angle)) if (-360.0..=360.0).contains(&angle) => return Ok(Self(vec![angle])),
            Some(Numbers::One(_)) => return Err(bad("an angle lies between -360 and 360 degrees")),
            Some(Numbers::Range { from, to, step }) => (from, to, step.unwrap_or(Self::USUAL_STEP)),
            None => {
                let expected =
                    "expected FROM..TO, FROM..TO/STEP or one ANGLE, such as -30..30, -30..30/2 or 45";
                return Err(bad(expected));
            }
        };
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

/// A value with the text that it was typed as, where that cannot be told from the value.
#[derive(Debug, Clone, PartialEq)]
pub struct Typed<T> {
    text: String,
    value: T,
}

impl<T: FromStr<Err = Error>> Typed<T> {
    /// The value of a text that is known to have one.
    ///
    /// # Panics
    /// If it has none.
    pub fn of(text: &str) -> Self {
        text.parse().unwrap_or_else(|error: Error| panic!("{error}"))
    }
}

impl<T: FromStr<Err = Error>> FromStr for Typed<T> {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        Ok(Self { value: text.parse()?, text: text.to_owned() })
    }
}

impl<T> fmt::Display for Typed<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl<T> Deref for Typed<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.value
    }
}

/// `FROM..TO/STEP`, `FROM..TO` or one number, all finite.
enum Numbers {
    One(f64),
    Range { from: f64, to: f64, step: Option<f64> },
}

fn range(text: &str) -> Option<Numbers> {
    let number = |s: &str| s.trim().parse::<f64>().ok().filter(|v| v.is_finite());
    let Some((from, rest)) = text.split_once("..") else { return number(text).map(Numbers::One) };
    let (to, step) = match rest.split_once('/') {
        Some((to, step)) => (to, Some(number(step)?)),
        None => (rest, None),
    };
    Some(Numbers::Range { from: number(from)?, to: number(to)?, step })
}

/// How templates are searched: `auto`, `exhaustive` or `pyramid`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum SearchMethod {
    /// Exhaustively where that does not take long; `backend::preferred_search` tells the rule.
    #[default]
    Auto,
    /// At every place, size and direction.
    Exhaustive,
    /// From coarse to fine: much faster with many sizes and directions, and a match can be missed.
    Pyramid,
}

impl SearchMethod {
    /// As it is typed.
    pub fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Exhaustive => "exhaustive",
            Self::Pyramid => "pyramid",
        }
    }
}

impl fmt::Display for SearchMethod {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for SearchMethod {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let all = [Self::Auto, Self::Exhaustive, Self::Pyramid];
        let known = all.into_iter().find(|method| method.name() == text);
        known.ok_or_else(|| Error::value("search", text, "expected auto, exhaustive or pyramid"))
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
    /// Products on the tensor cores of compute capability 7.5 and later: any size, no score map for small
    /// templates.
    Mma,
    /// The same products, into a score map for small templates too.
    MmaMap,
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
    pub const ALL: [(&str, Self); 12] = [
        ("ncc-texture", Self::Ncc(NccKernel::Texture)),
        ("ncc-constant", Self::Ncc(NccKernel::Constant)),
        ("ncc-shared", Self::Ncc(NccKernel::Shared)),
        ("ncc-wgmma", Self::Ncc(NccKernel::Wgmma)),
        ("ncc-mma", Self::Ncc(NccKernel::Mma)),
        ("ncc-mma-map", Self::Ncc(NccKernel::MmaMap)),
        ("box-tile", Self::Box(BoxKernel::Tile)),
        ("box-sliding", Self::Box(BoxKernel::Sliding)),
        ("box-fused", Self::Box(BoxKernel::Fused)),
        ("gaussian-shared", Self::Gaussian(GaussianKernel::Shared)),
        ("gaussian-cached", Self::Gaussian(GaussianKernel::Cached)),
        ("gaussian-fused", Self::Gaussian(GaussianKernel::Fused)),
    ];

    /// Their names.
    pub const NAMES: [&str; Self::ALL.len()] = {
        let mut names = [""; Self::ALL.len()];
        let mut at = 0;
        while at < names.len() {
            names[at] = Self::ALL[at].0;
            at += 1;
        }
        names
    };

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
    /// If two kernels are for the same thing, the later one counts.
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
    /// All that can be typed.
    pub const ALL: [Self; 3] = [Self::Overlay, Self::Mask, Self::Split];

    /// As it is typed.
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
    fn one_number_is_that_size_or_direction_alone_and_ranges_have_usual_steps() {
        assert_eq!("45".parse::<Angles>().unwrap().0, [45.0]);
        assert_eq!("-12.5".parse::<Angles>().unwrap().0, [-12.5]);
        assert_eq!("0.5".parse::<Scales>().unwrap().0, [0.5]);
        assert_eq!("-30..30".parse::<Angles>().unwrap(), "-30..30/5".parse().unwrap());
        assert_eq!("0.5..2".parse::<Scales>().unwrap(), "0.5..2/1.05".parse().unwrap());
        for text in ["361", "nan", "", "1..", "..1", "1..2/", "a", "1/5", "1,2"] {
            assert!(text.parse::<Angles>().is_err(), "{text}");
        }
        for text in ["0", "-1", "101", "", "0.5..", "0.5..2/x", "1/2"] {
            assert!(text.parse::<Scales>().is_err(), "{text}");
        }
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
            TrackSpec { rect: Rect::new(1, 2, 3, 4), from: Moment::Frame(5) }
        );
        assert_eq!("1,2,3,4@12.5s".parse::<TrackSpec>().unwrap().to_string(), "1,2,3,4@12.5s");
        for text in ["1,2,0,4", "1,2,3", "1,2,3,4,5", "-1,2,3,4", "1,2,3,4@", "1,2,3,4@x", "a,b,c,d"] {
            assert!(text.parse::<TrackSpec>().is_err(), "{text}");
        }
    }

    #[test]
    fn a_moment_is_a_frame_or_a_time_to_the_nanosecond() {
        for (text, moment, prints) in [
            ("120", Moment::Frame(120), "120"),
            ("0", Moment::default(), "0"),
            ("12.5s", Moment::Time(12_500_000_000), "12.5s"),
            ("0s", Moment::Time(0), "0s"),
            (".5s", Moment::Time(500_000_000), "0.5s"),
            ("500ms", Moment::Time(500_000_000), "0.5s"),
            ("1.000001ms", Moment::Time(1_000_001), "0.001000001s"),
            ("33.366667ms", Moment::Time(33_366_667), "0.033366667s"),
            ("1:02.5", Moment::Time(62_500_000_000), "62.5s"),
            ("90:00", Moment::Time(5_400_000_000_000), "5400s"),
            ("1:02:03.5", Moment::Time(3_723_500_000_000), "3723.5s"),
            ("18446744073709551615", Moment::Frame(u64::MAX), "18446744073709551615"),
            ("18446744073.709551615s", Moment::Time(u64::MAX), "18446744073.709551615s"),
        ] {
            assert_eq!(text.parse::<Moment>().unwrap(), moment, "{text}");
            assert_eq!(moment.to_string(), prints, "{text}");
            assert_eq!(prints.parse::<Moment>().unwrap(), moment, "{text}");
        }
    }

    #[test]
    fn what_is_neither_a_frame_nor_a_time_is_refused() {
        for text in [
            "",
            "-1",
            "+1",
            "12.5",
            "1e3s",
            "s",
            "ms",
            ".s",
            "1 s",
            "-1s",
            "1.5.5s",
            "1:",
            ":1",
            ":",
            "1:60",
            "1:-1",
            "1:60:00",
            "1:00:00:00",
            "1:02s",
            "1:02ms",
            "1h",
            "nans",
            "infs",
            "0.0000000001s",
            "18446744073709551616",
            "18446744074s",
            "99999999999999:00",
        ] {
            let said = text.parse::<Moment>().unwrap_err().to_string();
            assert!(said.contains("12.5s") || said.contains("so many frames"), "{text}: {said}");
        }
    }

    #[test]
    fn a_moment_is_reached_at_the_first_frame_that_is_not_before_it() {
        let meta = |index, pts_ns| FrameMeta {
            index,
            pts_ns,
            duration_ns: None,
            arrived: std::time::Instant::now(),
        };
        let time = Moment::Time(80);
        assert!(!time.is_reached(&meta(9, Some(79))) && time.is_reached(&meta(0, Some(80))));
        assert!(!time.is_reached(&meta(9, None)), "a frame without a time");
        let frame = Moment::Frame(2);
        assert!(!frame.is_reached(&meta(1, Some(99))) && frame.is_reached(&meta(2, None)));
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
