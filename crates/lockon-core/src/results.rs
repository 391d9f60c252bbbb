//! Results of a run, as the records that results files hold. These types' docs are the schema.
//!
//! A JSON Lines file has one object a line, `"type"` first: one `run`, one `frame` for each frame in order,
//! one `summary`. What happens between two frames of a source in trouble stands between their lines: an
//! [`Event`]. Only the top-level keys of `frame` that end in `_us`, the whole `summary`, and `backend`,
//! `device`, `driver`, `decoder`, `started` and `command` of `run` depend on the clock, the machine or how
//! lockon was started: two runs can be compared by bytes without them. Of the `summary`, `frames`, `found`,
//! `tracks`, `more_tracks`, `births`, `foreground`, `objects`, `zones` and `lines` do not depend on these
//! either where no frame is dropped.

use std::sync::Arc;

use serde::Serialize;

use crate::config::{Direction, ObjectSpec, TimeSpan};
use crate::frame::Rect;
use crate::orders::Order;

mod summary;

pub use summary::{
    Appearance, EventsSummary, FrameTime, LineSummary, ObjectsSummary, OutputSummary, Percentiles, Span,
    Spread, StageSummary, Summary, TemplateSummary, TrackSummary, TrafficSummary, ZoneSummary,
};

/// One line of a JSON Lines file.
#[derive(Debug, Serialize)]
#[serde(tag = "type", rename_all = "lowercase")]
pub enum Record<'a> {
    /// The first line.
    Run(&'a RunRecord),
    /// One for each frame, in order.
    Frame(&'a FrameRecord),
    /// The last line.
    Summary(&'a Summary),
}

/// Something that happened between two frames. `frame` is the number of the frame that comes next.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(tag = "type", rename_all = "lowercase")]
pub enum Event {
    /// The source has given no frame for a while. It may continue by itself.
    Stalled {
        /// The next frame.
        frame: u64,
        /// For how long nothing has come, in microseconds.
        waited_us: u64,
    },
    /// The source delivers frames again after a stall.
    Resumed {
        /// The frame that came.
        frame: u64,
        /// For how long nothing came, in microseconds.
        waited_us: u64,
    },
    /// The source was gone and has reconnected. Frames that it sent meanwhile are lost, and have no numbers.
    Gap {
        /// The first frame after the gap.
        frame: u64,
        /// From the loss of the source to this frame, in microseconds.
        away_us: u64,
        /// The reason for the gap.
        reason: String,
    },
    /// Frames are different from here on. Boxes that are followed were scaled with the frame.
    Caps {
        /// The first such frame.
        frame: u64,
        /// Width of the upright picture.
        width: usize,
        /// Its height.
        height: usize,
        /// Format of the decoded frames.
        format: &'static str,
        /// Nominal frames a second, 0 where it varies or is unknown.
        frame_rate: f64,
    },
    /// The run was changed while it was active: by an order, or by `--search auto`, which changes to a
    /// pyramid where a picture takes too long. `--control` with such a file repeats the changes.
    Control {
        /// The frame from which the order holds, or would.
        frame: u64,
        /// The order: `order` is `follow`, `correct`, `forget` or `clear`, with `id`, `box` and `at`; `zone`,
        /// with `zone`; `remove-zone`, with `name`; `line`, with `line`; `remove-line`, with `name`; or
        /// `change`, with the fields of a [`Change`](crate::change::Change).
        #[serde(flatten)]
        order: Order,
        /// Why it was not done, if it was not.
        #[serde(skip_serializing_if = "Option::is_none")]
        refused: Option<String>,
        /// The search from that frame on, if the order changed it. In no results file.
        #[serde(skip)]
        search: Option<Arc<SearchRecord>>,
    },
}

/// The search of a run at some moment.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct SearchRecord {
    /// The templates, in the order of their matches in results.
    pub templates: Vec<SoughtRecord>,
    /// Minimum score of a match.
    pub min_score: f64,
    /// Maximum matches of each template in a frame.
    pub max_matches: usize,
    /// Maximum overlap of two matches of one template: intersection over union.
    pub max_overlap: f64,
    /// The box that is searched: `X,Y,W,H`. The whole frame if there is none.
    pub roi: Option<String>,
    /// The threshold, as it is typed: `METHOD:BLOCK:VALUE[:inv]`.
    pub threshold: Option<String>,
    /// The cleaning of the mask, and the objects that are reported of it.
    pub objects: Option<ObjectSpec>,
}

/// A template of a search.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct SoughtRecord {
    /// Its name in matches.
    pub name: Arc<str>,
    /// Its width at scale 1.
    pub w: usize,
    /// Its height at scale 1.
    pub h: usize,
}

/// The run: the input, the job, the device.
#[derive(Debug, Clone, Serialize)]
#[expect(clippy::struct_excessive_bools, reason = "each says another thing of a run")]
pub struct RunRecord {
    /// lockon's version.
    pub version: &'static str,
    /// The input as it was typed.
    pub input: String,
    /// Width of the upright picture.
    pub width: usize,
    /// Its height.
    pub height: usize,
    /// Nominal frames a second, 0 where it varies or is unknown.
    pub frame_rate: f64,
    /// Format of the decoded frames, whose luma plane is searched.
    pub format: &'static str,
    /// `cpu` or `cuda`.
    pub backend: &'static str,
    /// The processor or GPU, and the parts of it that are used.
    pub device: String,
    /// The GPU's driver.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub driver: Option<String>,
    /// The element that decoded; `lockon` for pictures, which it decodes itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub decoder: Option<String>,
    /// True if frames are pictures in files of their own, which frames name.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub pictures: bool,
    /// When, in seconds since 1970.
    pub started: u64,
    /// The templates that were searched.
    pub templates: Vec<TemplateRecord>,
    /// How they were searched, where not exhaustively.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub search: Option<&'static str>,
    /// The boxes that were followed: `[NAME=]X,Y,W,H@FRAME`.
    pub tracks: Vec<String>,
    /// True if matches were followed too.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub track_matches: bool,
    /// True if objects of the mask were followed too.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub track_objects: bool,
    /// The threshold, as it is typed: `METHOD:BLOCK:VALUE[:inv]`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub threshold: Option<String>,
    /// The cleaning of the mask, and the objects that are reported of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub objects: Option<ObjectSpec>,
    /// `full` if luma of limited range was expanded before it was searched and thresholded.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub range: Option<&'static str>,
    /// Other settings that decide which matches are found, where templates are searched.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub settings: Option<SettingsRecord>,
    /// The command that started the program; the GStreamer element has none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub command: Option<CommandRecord>,
    /// The longest time that something may be out of sight within one appearance. In no results file.
    #[serde(skip)]
    pub gap: TimeSpan,
    /// Something is hidden in pictures: outputs that cannot hide it show none. In no results file.
    #[serde(skip)]
    pub hides: bool,
}

/// The settings that decide which matches are found, beside the templates.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct SettingsRecord {
    /// Minimum score of a match.
    pub min_score: f64,
    /// Maximum matches of each template in a frame.
    pub max_matches: usize,
    /// Maximum overlap of two matches of one template: intersection over union.
    pub max_overlap: f64,
    /// The box that is searched: `X,Y,W,H`. The whole frame if there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub roi: Option<String>,
    /// The sizes at which templates are searched.
    pub scales: Vec<f64>,
    /// The directions, in degrees, counter-clockwise positive.
    pub angles: Vec<f64>,
}

/// The command that started the program.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct CommandRecord {
    /// The words of the command line, without secrets.
    pub line: Vec<String>,
    /// The job, as SHA-256 in hexadecimal: equal for runs that have the same results.
    pub job: String,
    /// The files that the run writes, by their names as they were given, with what words in braces stand for.
    pub outputs: Vec<String>,
    /// The view that outputs show: `overlay`, `mask` or `split`.
    pub view: &'static str,
    /// Decoders that might be used: `auto`, `software` or `hardware`.
    pub decoders: &'static str,
    /// True if frames may be dropped to keep up with the source.
    pub live: bool,
    /// The frame or time with which it began.
    pub start: String,
    /// The frame or time before which it was to end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub end: Option<String>,
    /// Each frame of that many was processed.
    pub every: u64,
    /// Maximum frames.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_frames: Option<u64>,
    /// Threads.
    pub threads: usize,
    /// Frames in flight on the device.
    pub depth: usize,
    /// Kernels that were chosen by name.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub kernels: Vec<String>,
    /// The action if the device were lost: `end`, `gpu` or `cpu`.
    pub on_device_loss: &'static str,
}

/// One template that was given.
#[derive(Debug, Clone, Serialize)]
pub struct TemplateRecord {
    /// Its name in matches.
    pub name: Arc<str>,
    /// Its width at scale 1.
    pub w: usize,
    /// Its height at scale 1.
    pub h: usize,
    /// SHA-256 of its file, in hexadecimal.
    pub sha256: String,
    /// In how many sizes and directions it is searched.
    pub members: usize,
}

/// The results of one frame.
#[derive(Debug, Clone, Default, Serialize)]
pub struct FrameRecord {
    /// Zero-based count of frames that the source delivered, dropped ones included: a gap shows a drop.
    pub frame: u64,
    /// Presentation time in nanoseconds; of a live source, when the frame was captured, counted from the
    /// start of the run.
    pub pts_ns: Option<u64>,
    /// True if the source gave no time: `pts_ns` continues the frames before.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub pts_interpolated: bool,
    /// True if data before this frame are missing or damaged, as far as demuxer and decoder noticed.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub discontinuity: bool,
    /// Name of the picture file that the frame came from, relative to its folder, where the input is
    /// pictures.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub picture: Option<Arc<str>>,
    /// From the frame's arrival to its results being final, in microseconds.
    pub latency_us: u64,
    /// From the capture of a live source's frame to its results being final, in microseconds: with transport
    /// and decoding.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub capture_us: Option<u64>,
    /// From the frame lying in host memory to its tracks being final, in microseconds: no decoding, drawing
    /// or writing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tracker_us: Option<u64>,
    /// Accepted peaks: by name in the order given, best first within a name.
    pub matches: Vec<Match>,
    /// Tracks by their numbers: requested ones from the frame on which they start, tracks of matches and
    /// objects from the frame on which they begin to the one before they end.
    pub tracks: Vec<Track>,
    /// Detections of a detector in front of lockon, where they are followed.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub detections: Vec<Detection>,
    /// The adaptive threshold, where one was requested.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub threshold: Option<ThresholdResult>,
    /// Objects of the mask, where they were requested: in the order of their first pixels, row by row; with a
    /// maximum number, the largest first.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub objects: Option<Vec<Object>>,
    /// Objects beyond the maximum number, if there are any.
    #[serde(skip_serializing_if = "is_zero")]
    pub more_objects: u64,
    /// The zones of the run, with what is in them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub zones: Vec<ZoneCount>,
    /// The lines of the run, with the tracks that have crossed them so far.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub lines: Vec<LineCount>,
    /// The tracks that crossed a line in this frame.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub crossings: Vec<Crossing>,
}

/// What is in a zone.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ZoneCount {
    /// Its name.
    pub zone: Arc<str>,
    /// Tracks that are in it.
    pub inside: u64,
    /// Times that a track came into it, since the run began.
    pub entered: u64,
    /// Times that a track went out of it, or ended in it.
    pub left: u64,
    /// Objects of the mask that are in it: the middle of the lower edge of their boxes is. None where objects
    /// are not reported.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub objects: Option<u64>,
}

/// How often a line was crossed since the run began.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct LineCount {
    /// Its name.
    pub line: Arc<str>,
    /// From its left to its right side, looking from its first end to its second.
    #[serde(rename = "in")]
    pub inwards: u64,
    /// From its right to its left side.
    #[serde(rename = "out")]
    pub outwards: u64,
    /// Its ends, in pixels of the frame. In no results file.
    #[serde(skip)]
    pub ends: [[f64; 2]; 2],
}

/// A track crossed a line.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Crossing {
    /// The line's name.
    pub line: Arc<str>,
    /// The track's number.
    pub id: u32,
    /// In which direction.
    pub direction: Direction,
}

impl FrameRecord {
    /// Makes it an empty record, keeping its allocations.
    pub fn clear(&mut self) {
        self.matches.clear();
        self.tracks.clear();
        self.detections.clear();
        (self.tracker_us, self.capture_us, self.threshold) = (None, None, None);
        self.picture = None;
        (self.objects, self.more_objects) = (None, 0);
        self.zones.clear();
        self.lines.clear();
        self.crossings.clear();
    }
}

/// An object that a detector in front of lockon found in a frame.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Detection {
    /// The object's class, as the detector names it.
    pub label: Arc<str>,
    /// Left column of the box.
    pub x: usize,
    /// Its top row.
    pub y: usize,
    /// Its width.
    pub w: usize,
    /// Its height.
    pub h: usize,
    /// How sure the detector is, in [0, 1]; 1 if it does not say.
    pub score: f64,
}

impl Detection {
    /// The box in whole pixels.
    pub fn rect(&self) -> Rect {
        Rect::new(self.x, self.y, self.w, self.h)
    }
}

/// An accepted peak of a score map.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Match {
    /// The template's name.
    pub template: Arc<str>,
    /// Left column of the axis-aligned box of the (scaled, turned) template.
    pub x: usize,
    /// Top row of the box.
    pub y: usize,
    /// Width of the box.
    pub w: usize,
    /// Height of the box.
    pub h: usize,
    /// Exact NCC, in [-1, 1].
    pub score: f64,
    /// Size of the template relative to its picture.
    pub scale: f64,
    /// Direction of the template in degrees, counter-clockwise positive.
    pub angle: f64,
    /// Centre of the box between pixels, in units of 1/1000 pixel: `x + w/2` where the peak is symmetric.
    pub cx: f64,
    /// Centre of the box between pixels, see `cx`.
    pub cy: f64,
}

impl Match {
    /// The box in whole pixels.
    pub fn rect(&self) -> Rect {
        Rect::new(self.x, self.y, self.w, self.h)
    }

    /// The box as `[x, y, w, h]`.
    pub fn bounds(&self) -> [f64; 4] {
        self.rect().bounds()
    }
}

/// A connected component of a mask.
///
/// Numbers with a fraction are computed in f64, in the order that is written here, from exact integers, and
/// are then rounded to 1/1000. The sums run over the object's n pixels, x and y being their columns and rows.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct Object {
    /// Left column of the box.
    pub x: usize,
    /// Top row of the box.
    pub y: usize,
    /// Width of the box.
    pub w: usize,
    /// Height of the box.
    pub h: usize,
    /// Number of pixels: n.
    pub area: usize,
    /// Centre of mass, in the coordinates of a match's centre: sum of x / n + 0.5, so that an object of one
    /// pixel has its centre in the middle of that pixel.
    pub cx: f64,
    /// Centre of mass, see `cx`.
    pub cy: f64,
    /// Long axis of the ellipse with the same second moments. With the integers a = n * sum of x^2 - (sum of
    /// x)^2, c the same of y, b = n * sum of x y - sum of x * sum of y, and r = sqrt((a - c)^2 + (2 b)^2), it
    /// is 4 sqrt((a + c + r) / (2 n^2)). 0 for one pixel.
    pub length: f64,
    /// Short axis of that ellipse: 4 sqrt((a + c - r) / (2 n^2)), 0 where the difference is negative. 0 for a
    /// straight line.
    pub width: f64,
    /// Direction of the long axis in degrees, counter-clockwise positive, 0 along a row, in (-90, 90]:
    /// -atan2(2 b, a - c) / 2 * 180 / pi. 0 where no direction is longer.
    pub angle: f64,
    /// Perimeter, the one of holes included, by the formula of Crofton in four directions:
    /// pi / 4 * (2 n - e + (2 n - d) / sqrt(2)). e is the number of pairs of its pixels that share an edge, d
    /// the number of those that share only a corner.
    pub perimeter: f64,
    /// Number of holes: parts of the background that it encloses, those with other objects in them included.
    pub holes: usize,
    /// Least luma of its pixels.
    pub min_luma: u8,
    /// Mean luma.
    pub mean_luma: f64,
    /// Greatest luma.
    pub max_luma: u8,
    /// True if it has a pixel at the border of the picture, so that a part of it may be missing.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub touches_border: bool,
}

impl Object {
    /// The box in whole pixels.
    pub fn rect(&self) -> Rect {
        Rect::new(self.x, self.y, self.w, self.h)
    }
}

/// How sure the tracker is of a track in one frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum TrackState {
    /// Found, and likelier on its target than not.
    #[default]
    Tracked,
    /// Something was found where the target should be, but it is not clear that it is the target: it looks
    /// strange, or its score is below 0.5.
    Uncertain,
    /// Not found: the box is the last confirmed one.
    Lost,
    /// Found again in this frame, after it was lost.
    Reacquired,
}

impl TrackState {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Tracked, Self::Uncertain, Self::Reacquired, Self::Lost];

    /// Its name in results files.
    pub fn name(self) -> &'static str {
        match self {
            Self::Tracked => "tracked",
            Self::Uncertain => "uncertain",
            Self::Lost => "lost",
            Self::Reacquired => "reacquired",
        }
    }
}

/// A track in one frame.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct Track {
    /// One-based number, in the order in which tracks were requested. Tracks of matches and objects are
    /// numbered on from there as they begin, and no number is used again.
    pub id: u32,
    /// The name that its box was given; none if it was given none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<Arc<str>>,
    /// The template whose match, or the class whose detection, became this track; `object` if an object of
    /// the mask did; none if its box was given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub template: Option<Arc<str>>,
    /// How sure the tracker is.
    pub state: TrackState,
    /// Left edge of the box. Of a target that has turned in the picture it bounds the ellipse in the turned
    /// box.
    pub x: f64,
    /// Top edge.
    pub y: f64,
    /// Width.
    pub w: f64,
    /// Height.
    pub h: f64,
    /// The probability that the box is on its target, overlapping it by more than a half, in [0, 1]: of
    /// frames with a score s, a share near s is. 0 while it is lost. docs/tracking.md describes how it is
    /// computed and how well it holds. Of a track of an object it is the intersection over union of the
    /// object's box and the box where it was expected, which is no probability.
    pub score: f64,
    /// The tracking filter's response at the next best place elsewhere over that at the best, 0 if there is
    /// none: near 1, two places look alike.
    pub second_peak_ratio: f64,
    /// Of a track of an object: the place of its object in [`FrameRecord::objects`], from 1. Tracks that have
    /// merged into one object share it. None while it is lost.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub object: Option<u32>,
}

impl Track {
    /// The word that people know it by: its name, or the template or class that it began as.
    pub fn label(&self) -> Option<&Arc<str>> {
        self.name.as_ref().or(self.template.as_ref())
    }

    /// The box as `[x, y, w, h]`.
    pub fn bounds(&self) -> [f64; 4] {
        [self.x, self.y, self.w, self.h]
    }
}

/// Result of the adaptive threshold of one frame.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct ThresholdResult {
    /// Share of the pixels that are 255 in the mask, in [0, 1].
    pub foreground: f64,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks so")]
fn is_zero(count: &u64) -> bool {
    *count == 0
}
