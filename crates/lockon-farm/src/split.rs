//! Cuts long videos into segments for many workers.
//!
//! A segment begins with a key frame, and ends before the next one's. Each is a job of its own, whose results
//! stay in the farm; the worker that ends the last of them queues the whole, and the worker that takes that
//! joins the results.

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::job::{self, Job};
use lockon_core::config::Moment;
use lockon_core::error::{Error, Result};
use lockon_core::output::Format;
use lockon_gst::cut;
use lockon_run::request::Request;

/// The number of segments of a video.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Split {
    /// This number, or fewer if it has fewer key frames.
    Into(usize),
    /// Segments have about a minute each.
    Auto,
}

impl std::str::FromStr for Split {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        match text.parse() {
            _ if text == "auto" => Ok(Self::Auto),
            Ok(count @ 1..=MOST) => Ok(Self::Into(count)),
            _ => Err(Error::value("split", text, format!("expected auto, or a number from 1 to {MOST}"))),
        }
    }
}

/// Maximum segments of a video.
pub(super) const MOST: usize = 10_000;

/// Default length of a segment: long against the seconds that it takes to begin one.
const SEGMENT_NS: u64 = 60_000_000_000;

/// A segment of a video.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Segment {
    /// The job of the whole.
    pub whole: String,
    /// Its place, from 0 on.
    pub index: usize,
    /// How many there are.
    pub of: usize,
    /// The time of its first frame, in nanoseconds; `None` for the first segment.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from_ns: Option<u64>,
    /// Results of the whole.
    pub results: Vec<String>,
}

impl Segment {
    /// The request of the whole, from that of a segment.
    pub(super) fn of_whole(&self, part: &Request) -> Request {
        Request { start: Moment::default(), end: None, results: self.results.clone(), ..part.clone() }
    }
}

/// Cuts the video of a job. Returns its segments, and the job itself, which joins them. A video that is too
/// short stays one job, alone.
///
/// # Errors
/// `Usage` if results of segments could not be joined to those of the whole: tracks need the frames before,
/// and encoded videos and pages are made in one piece. `File` or `NoVideo` if the video cannot be read here.
pub fn split(job: &Job, how: Split) -> Result<Vec<Job>> {
    let request = job.request()?;
    check(&request)?;
    let input = request.parsed_input()?;
    let path = input.file().ok_or_else(|| Error::Usage("--split is for files".into()))?;
    let found = cut::key_frames(&path, |length_ns| {
        let count = match how {
            Split::Into(count) => count,
            Split::Auto => (length_ns / SEGMENT_NS) as usize,
        };
        (1..count as u64).map(|at| (u128::from(length_ns) * u128::from(at) / count as u128) as u64).collect()
    })?;
    let of = found.len() + 1;
    if of == 1 {
        return Ok(vec![job.clone()]);
    }
    let starts: Vec<Option<u64>> = std::iter::once(None).chain(found.into_iter().map(Some)).collect();
    let mut jobs = Vec::with_capacity(of + 1);
    for (index, from_ns) in starts.iter().enumerate() {
        let mut part = request.clone();
        part.start = from_ns.map_or_else(Moment::default, Moment::Time);
        part.end = starts.get(index + 1).copied().flatten().map(Moment::Time);
        // They stay in the farm, where names have no folders.
        let name = |path: &String| {
            std::path::Path::new(path)
                .file_name()
                .map_or_else(String::new, |name| name.to_string_lossy().into())
        };
        part.results = request.results.iter().map(name).collect();
        let (whole, results) = (job.id.clone(), request.results.clone());
        let segment = Segment { whole, index, of, from_ns: *from_ns, results };
        jobs.push(Job {
            id: id_of(&job.id, index),
            name: format!("{} {}/{of}", job.name, index + 1),
            request: Job::raw(&part)?,
            collect: true,
            segment: Some(segment),
            ..job.clone()
        });
    }
    jobs.push(Job { segments: of, ..job.clone() });
    Ok(jobs)
}

/// The number of a segment's job.
pub(super) fn id_of(whole: &str, index: usize) -> String {
    job::number(&Sha256::digest(format!("{whole}\0{index}")))
}

fn check(request: &Request) -> Result<()> {
    let usage = |text: &str| Err(Error::Usage(format!("--split: {text}")));
    let follows = !request.track.is_empty()
        || request.track_matches
        || request.track_detections
        || request.track_objects
        || request.control.is_some();
    if follows {
        return usage(
            "what is followed needs the frames before: templates and thresholds alone can be split",
        );
    }
    if request.threshold.is_some_and(|threshold| threshold.method.remembers()) {
        return usage("a background needs the frames before: other thresholds can be split");
    }
    if !request.zone.is_empty() || !request.line.is_empty() {
        return usage("zones and lines are counted from the first frame to the last");
    }
    if !request.output.is_empty() || !request.sink.is_empty() || request.report.is_some() {
        return usage("-o, --sink and --report are made in one piece: submit them without --split");
    }
    let formats = request.results.iter().map(|path| Format::of(path)).collect::<Result<Vec<_>>>()?;
    let is_joined = |format: &Format| matches!(format, Format::JsonLines | Format::Csv);
    if !formats.contains(&Format::JsonLines) || !formats.iter().all(is_joined) {
        return usage("results are joined of .jsonl, which must be one of them, and .csv");
    }
    if request.start != Moment::default()
        || request.end.is_some()
        || request.every != 1
        || request.max_frames.is_some()
    {
        return usage("it is for whole videos: not with --start, --end, --every or --max-frames");
    }
    if request.live {
        return usage("--live may drop frames, and segments would drop others");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_joined_is_refused_with_the_reason() {
        let said = |change: fn(&mut Request)| {
            let mut request = Request::new("a.mp4").unwrap();
            request.results = vec!["a.jsonl".into()];
            change(&mut request);
            check(&request).map_err(|error| error.to_string())
        };
        said(|_| {}).unwrap();
        said(|request| request.results.push("a.csv".into())).unwrap();
        for (change, reason) in [
            ((|request| request.track_matches = true) as fn(&mut Request), "needs the frames before"),
            (|request| request.track_objects = true, "needs the frames before"),
            (
                |request| request.threshold = "background:9:9".parse().ok(),
                "a background needs the frames before",
            ),
            (|request| request.zone.push("a=0,0,9,0,9,9".parse().unwrap()), "counted from the first frame"),
            (|request| request.output.push("a.mkv".into()), "in one piece"),
            (|request| request.results = vec!["a.csv".into()], ".jsonl, which must be"),
            (|request| request.results.push("a.coco.json".into()), ".jsonl, which must be"),
            (|request| request.every = 2, "whole videos"),
            (|request| request.live = true, "drop frames"),
        ] {
            assert!(said(change).unwrap_err().contains(reason), "{reason}");
        }
        assert_eq!("auto".parse::<Split>().unwrap(), Split::Auto);
        assert!("0".parse::<Split>().is_err() && "x".parse::<Split>().is_err());
    }
}
