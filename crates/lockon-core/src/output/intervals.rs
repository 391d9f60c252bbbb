//! Appearances of templates and tracks, a line for each, written when it has ended: JSON Lines of `interval`
//! records, or CSV with times in seconds. [`crate::appearances`] defines them.

use std::borrow::Cow;
use std::path::PathBuf;

use serde::Serialize;

use crate::appearances::{Appearance, Appearances};
use crate::error::Result;
use crate::frame::VideoFormat;
use crate::output::csv::plain;
use crate::output::jsonl::write_line;
use crate::output::{Format, Target};
use crate::ports::{Delivery, Sink};
use crate::results::{FrameTime, RunRecord, Summary};

/// Column names, in the order of [`Row`]'s fields.
pub(super) const HEADER: &str = "name,track,start_frame,end_frame,start_s,end_s,frames,best_score\n";

/// A line for each appearance.
pub(super) struct Intervals {
    target: Target,
    format: Format,
    watch: Appearances,
    ended: Vec<Appearance>,
    lines: Vec<u8>,
}

/// A line of JSON Lines.
#[derive(Serialize)]
#[serde(tag = "type", rename = "interval")]
struct Line<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    track: Option<u32>,
    start_frame: u64,
    end_frame: u64,
    start_ns: Option<u64>,
    end_ns: Option<u64>,
    frames: u64,
    best_score: f64,
}

/// A row of CSV.
#[derive(Serialize)]
struct Row<'a> {
    name: Option<Cow<'a, str>>,
    track: Option<u32>,
    start_frame: u64,
    end_frame: u64,
    start_s: Option<String>,
    end_s: Option<String>,
    frames: u64,
    best_score: f64,
}

/// Seconds to the nanosecond, without trailing zeros.
fn seconds(FrameTime { pts_ns, .. }: FrameTime) -> Option<String> {
    let ns = pts_ns?;
    let text = format!("{}.{:09}", ns / 1_000_000_000, ns % 1_000_000_000);
    Some(text.trim_end_matches('0').trim_end_matches('.').to_owned())
}

impl Intervals {
    pub(super) fn lines(target: Target) -> Self {
        Self::new(target, Format::IntervalLines)
    }

    pub(super) fn rows(target: Target) -> Self {
        Self::new(target, Format::IntervalRows)
    }

    fn new(target: Target, format: Format) -> Self {
        Self { target, format, watch: Appearances::default(), ended: Vec::new(), lines: Vec::new() }
    }

    /// Writes the appearances that have ended.
    fn write(&mut self) -> Result<()> {
        if self.ended.is_empty() {
            return Ok(());
        }
        if self.target.roll()? && self.format == Format::IntervalRows {
            self.target.write(HEADER.as_bytes())?;
        }
        self.lines.clear();
        for appearance in self.ended.drain(..) {
            let Appearance { name, track, start, end, frames, best } = &appearance;
            let written = if self.format == Format::IntervalLines {
                let line = Line {
                    name: name.as_deref(),
                    track: *track,
                    start_frame: start.frame,
                    end_frame: end.frame,
                    start_ns: start.pts_ns,
                    end_ns: end.pts_ns,
                    frames: *frames,
                    best_score: *best,
                };
                write_line(&mut self.lines, &line)
            } else {
                let row = Row {
                    name: name.as_deref().map(plain),
                    track: *track,
                    start_frame: start.frame,
                    end_frame: end.frame,
                    start_s: seconds(*start),
                    end_s: seconds(*end),
                    frames: *frames,
                    best_score: *best,
                };
                let mut writer = csv::WriterBuilder::new().has_headers(false).from_writer(&mut self.lines);
                writer.serialize(row).map_err(Into::into).and_then(|()| writer.flush())
            };
            written.map_err(|error| self.target.failure(&error.to_string()))?;
        }
        self.target.write(&self.lines)
    }
}

impl Sink for Intervals {
    fn name(&self) -> &str {
        &self.target.name
    }

    fn files(&self) -> Vec<PathBuf> {
        self.target.files()
    }

    fn begin(&mut self, run: &RunRecord, _: &VideoFormat) -> Result<()> {
        self.watch = Appearances::of(run);
        let is_empty = self.target.is_empty()?;
        match self.format {
            Format::IntervalRows if is_empty => self.target.write(HEADER.as_bytes()),
            _ => self.target.start(),
        }
    }

    fn deliver(&mut self, delivery: &Delivery<'_>) -> Result<()> {
        let ended = &mut self.ended;
        self.watch.step(delivery.record, |appearance| ended.push(appearance));
        self.write()
    }

    fn finish(&mut self, _: &Summary) -> Result<()> {
        if !self.target.has_failed {
            let ended = &mut self.ended;
            self.watch.end(|appearance| ended.push(appearance));
            self.write()?;
        }
        self.target.finish()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use crate::output::samples;
    use crate::results::FrameRecord;

    #[test]
    fn each_appearance_is_a_line_of_json_or_a_row() {
        assert_eq!(
            samples::written(".intervals.jsonl", &["1,2,3,4@0"]).lines().collect::<Vec<_>>(),
            [
                r#"{"type":"interval","name":"logo","start_frame":0,"end_frame":0,"start_ns":0,"end_ns":0,"frames":1,"best_score":0.875}"#,
                r#"{"type":"interval","name":"a, \"b\"","start_frame":0,"end_frame":0,"start_ns":0,"end_ns":0,"frames":1,"best_score":0.875}"#,
                r#"{"type":"interval","track":1,"start_frame":0,"end_frame":0,"start_ns":0,"end_ns":0,"frames":1,"best_score":0.5}"#,
            ]
        );
        assert_eq!(
            samples::written(".intervals.csv", &["1,2,3,4@0"]).lines().collect::<Vec<_>>(),
            [
                "name,track,start_frame,end_frame,start_s,end_s,frames,best_score",
                "logo,,0,0,0,0,1,0.875",
                r#""a, ""b""",,0,0,0,0,1,0.875"#,
                ",1,0,0,0,0,1,0.5",
            ]
        );
    }

    #[test]
    fn an_appearance_is_written_as_soon_as_it_has_ended() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.intervals.csv");
        let mut sink = crate::output::open(path.to_str().unwrap()).unwrap();
        sink.begin(&samples::run(&[]), &samples::format()).unwrap();
        let [first, _] = samples::frames();
        for frame in 0..70 {
            let mut record = if frame < 3 { first.clone() } else { FrameRecord::default() };
            (record.frame, record.pts_ns) = (frame, Some(frame * 33_333_333));
            record.tracks.truncate(1);
            record.tracks.iter_mut().for_each(|track| track.name = Some(Arc::from("=van")));
            record.matches.clear();
            samples::deliver(&mut *sink, record).unwrap();
        }
        let text = std::fs::read_to_string(&path).unwrap();
        assert_eq!(text.lines().nth(1), Some("'=van,1,0,2,0,0.066666666,3,0.5"), "{text}");
    }
}
