//! The end of a run: counts, times and what was found.

use std::path::PathBuf;
use std::sync::Arc;

use serde::Serialize;

use super::is_zero;
use crate::stats::Durations;
use crate::surface::Traffic;
/// The end of a run.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Summary {
    /// Frames whose results were delivered to every output that had not failed.
    pub frames: u64,
    /// Frames of a live source that were dropped because newer ones waited.
    pub dropped: u64,
    /// Wall time from the first frame's arrival to the last result, in seconds, without pauses.
    pub seconds: f64,
    /// Frames a second of that time.
    pub fps: f64,
    /// Arrival to final result.
    pub latency_us: Percentiles,
    /// Capture to final result, of a live source that reports when its frames were captured.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub capture_us: Option<Percentiles>,
    /// Times that nothing came from the source for two seconds.
    pub stalls: u64,
    /// Times that the source was lost and reconnected.
    pub gaps: u64,
    /// Errors that demuxers and decoders reported before they continued. libav does not say which of its
    /// decoders complains: where several videos are decoded in one process, by several threads each, its
    /// errors are in the log alone.
    pub damaged: u64,
    /// Frames whose time was interpolated.
    pub interpolated: u64,
    /// Outputs that show frames of a live source.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub outputs: Vec<OutputSummary>,
    /// Where the time went. Stages overlap, so they may add up to more than the latency.
    pub stages: Vec<StageSummary>,
    /// True if it was interrupted before the end of the input.
    pub interrupted: bool,
    /// The error, if there was one: the results may then be incomplete.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// Searches that were done again, because there were more peaks than the device had room for at first.
    pub redone: u64,
    /// The first frame that was not done by the device of `run`, which was lost: from here on another
    /// one did the work.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub device_lost: Option<u64>,
    /// Bytes that were moved on the way.
    pub traffic: TrafficSummary,
    /// The results of each template, in the order in which they were given.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub found: Vec<TemplateSummary>,
    /// How each track went, in the order in which they began. Of those that matches became no more than 100
    /// are here.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tracks: Vec<TrackSummary>,
    /// Tracks that are not.
    #[serde(skip_serializing_if = "is_zero")]
    pub more_tracks: u64,
    /// Tracks that matches, detections or objects became, where these are followed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub births: Option<u64>,
    /// Share of a frame's pixels that were 255 in the mask, where an adaptive threshold was requested.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub foreground: Option<Spread>,
    /// The objects of masks, where they were requested.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub objects: Option<ObjectsSummary>,
    /// The zones that the run had, with what went in and out.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub zones: Vec<ZoneSummary>,
    /// The lines that the run had, with the tracks that crossed them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub lines: Vec<LineSummary>,
    /// The first appearances of each template and track, in the order in which they ended. In no results
    /// file of frames: `--results NAME.intervals.jsonl` has all of them.
    #[serde(skip)]
    pub appearances: Vec<Appearance>,
    /// Appearances that are not among these.
    #[serde(skip)]
    pub more_appearances: u64,
    /// The receivers of events, and the counts for each. Known when all events are delivered or lost.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub events: Vec<EventsSummary>,
    /// The files that outputs wrote. Known when all are complete, and in no results file.
    #[serde(skip)]
    pub files: Vec<PathBuf>,
}

/// Bytes of frames, results and masks that a run moved, all frames together. What decoders and encoders move
/// by themselves is not in it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct TrafficSummary {
    /// From the host to the device.
    pub to_device: u64,
    /// From the device to the host.
    pub from_device: u64,
    /// From one place in the host's memory to another, on the way to the search.
    pub on_host: u64,
}

impl TrafficSummary {
    /// Returns the counts so far.
    pub fn of(traffic: &Traffic) -> Self {
        let (to_device, from_device, on_host) = traffic.so_far();
        Self { to_device, from_device, on_host }
    }
}

/// The results of one template.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct TemplateSummary {
    /// Its name.
    pub template: Arc<str>,
    /// Frames with a match.
    pub frames: u64,
    /// Matches in all of them.
    pub matches: u64,
    /// Score of the best of these.
    pub best: Option<f64>,
    /// Score of the worst.
    pub worst: Option<f64>,
    /// The first frame with a match.
    pub first: Option<FrameTime>,
    /// The last one.
    pub last: Option<FrameTime>,
}

/// How one track went.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct TrackSummary {
    /// Its number.
    pub id: u32,
    /// The name that its box was given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<Arc<str>>,
    /// The template whose match it began as; none if its box was given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub template: Option<Arc<str>>,
    /// The frame in which it began.
    pub first: FrameTime,
    /// The last frame in which it was followed.
    pub last: FrameTime,
    /// Frames in which it was followed: the sum of the next four.
    pub frames: u64,
    /// Frames in which it was found.
    pub tracked: u64,
    /// Frames in which it was not clear that the found object is the target.
    pub uncertain: u64,
    /// Frames in which it was found after it was lost.
    pub reacquired: u64,
    /// Frames in which it was not found.
    pub lost: u64,
    /// How often it was lost.
    pub losses: u64,
    /// When: the first ten times.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub lost_spans: Vec<Span>,
}

/// A frame and its time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct FrameTime {
    /// Its number.
    pub frame: u64,
    /// Its presentation time in nanoseconds, as in its record.
    pub pts_ns: Option<u64>,
}

/// One appearance of a template or a track.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Appearance {
    /// The template's name, or the track's name or template; none for a box without a name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<Arc<str>>,
    /// The track's number; none for matches that are not followed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub track: Option<u32>,
    /// The first frame in which it was in sight.
    pub start: FrameTime,
    /// The last one.
    pub end: FrameTime,
    /// The number of processed frames between these, both included, in which it was surely in sight.
    pub frames: u64,
    /// The best score in these.
    pub best: f64,
}

impl Appearance {
    /// The name, or `track3` for a box without one.
    pub fn label(&self) -> String {
        match (&self.name, self.track) {
            (Some(name), _) => name.to_string(),
            (None, Some(track)) => format!("track{track}"),
            (None, None) => String::new(),
        }
    }
}

/// From one frame to another, both included.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Span {
    /// The first.
    pub from: FrameTime,
    /// The last.
    pub to: FrameTime,
}

/// Values of many frames.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Spread {
    /// The least.
    pub least: f64,
    /// Their mean.
    pub mean: f64,
    /// The most.
    pub most: f64,
}

/// The number of objects in frames.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct ObjectsSummary {
    /// Frames in which objects were looked for.
    pub frames: u64,
    /// Objects that were reported in all of them.
    pub total: u64,
    /// The least that were reported in a frame.
    pub least: u64,
    /// The mean of a frame.
    pub mean: f64,
    /// The most.
    pub most: u64,
    /// Frames with more objects than the maximum number.
    #[serde(skip_serializing_if = "is_zero")]
    pub cut_off_frames: u64,
    /// Objects beyond the maximum number, in all of them.
    #[serde(skip_serializing_if = "is_zero")]
    pub more_objects: u64,
}

/// What went into a zone and out of it.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ZoneSummary {
    /// Its name.
    pub zone: Arc<str>,
    /// Times that a track came into it.
    pub entered: u64,
    /// Times that a track went out of it, or ended in it.
    pub left: u64,
    /// Tracks that were in it at the end.
    pub inside: u64,
    /// Most tracks that were in it in a frame.
    pub most_inside: u64,
    /// The number of objects that were in it in a frame, where objects were reported.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub objects: Option<Spread>,
}

/// How often a line was crossed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct LineSummary {
    /// Its name.
    pub line: Arc<str>,
    /// From its left to its right side, looking from its first end to its second.
    #[serde(rename = "in")]
    pub inwards: u64,
    /// From its right to its left side.
    #[serde(rename = "out")]
    pub outwards: u64,
}

/// Percentiles in microseconds, within 0.1 %.
#[derive(Debug, Clone, Copy, Default, Serialize)]
pub struct Percentiles {
    /// Half are below.
    pub p50: u64,
    /// 95 % are below.
    pub p95: u64,
    /// 99 % are below.
    pub p99: u64,
    /// The largest.
    pub max: u64,
}

impl Percentiles {
    /// The percentiles of these durations.
    pub fn of(durations: &Durations) -> Self {
        Self {
            p50: durations.percentile(50.0),
            p95: durations.percentile(95.0),
            p99: durations.percentile(99.0),
            max: durations.max(),
        }
    }
}

/// How an output that shows frames of a live source kept up.
#[derive(Debug, Clone, Serialize)]
pub struct OutputSummary {
    /// Its name.
    pub name: String,
    /// Frames that were dropped because newer ones waited.
    pub dropped: u64,
    /// From capture to the frame's arrival at the screen, or whatever the output ends in.
    pub shown_us: Percentiles,
}

/// The deliveries to one receiver of events.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct EventsSummary {
    /// Its address, without secrets.
    pub name: String,
    /// Events that it has taken.
    pub sent: u64,
    /// Events that it has not: it was away for too long, or did not want them.
    pub lost: u64,
}

/// Time per frame of one stage.
#[derive(Debug, Clone, Serialize)]
pub struct StageSummary {
    /// `source`, `upload`, `standing`, `tracker`, `sinks`.
    pub stage: &'static str,
    /// Mean over the frames, in microseconds.
    pub mean_us: f64,
    /// 99 % of the frames were faster, in microseconds.
    pub p99_us: u64,
}
