//! MOTChallenge text: `frame,id,left,top,width,height,confidence,-1,-1,-1` a line, the format that evaluation
//! tools read.
//!
//! Frames and pixels count from 1, as the format has it: lockon's frame 0 is frame 1, and a box at the
//! picture's first pixel lies at 1, 1. Confidence is the score. Lost tracks are left out. A. Milan et al.,
//! "MOT16: A Benchmark for Multi-Object Tracking", 2016, on its data format.
//!
//! A run that follows nothing (`--template` without `--track` and `--track-matches`) gives its matches as the
//! format gives detections: with the id -1, until something is followed after all. Beside tracks matches are
//! left out, for a tool would count them as one more target.

use std::io::Write;
use std::path::PathBuf;

use crate::error::Result;
use crate::frame::VideoFormat;
use crate::output::Target;
use crate::ports::{Delivery, Sink};
use crate::results::{RunRecord, Summary, TrackState};

/// Tracks, or matches as detections if nothing is followed.
pub(super) struct Mot {
    target: Target,
    has_tracks: bool,
    lines: Vec<u8>,
}

impl Mot {
    pub(super) fn new(target: Target) -> Self {
        Self { target, has_tracks: false, lines: Vec::new() }
    }

    fn push(&mut self, frame: u64, id: i64, [x, y, w, h]: [f64; 4], score: f64) -> Result<()> {
        writeln!(self.lines, "{},{id},{},{},{w},{h},{score},-1,-1,-1", frame + 1, x + 1.0, y + 1.0)
            .map_err(|error| self.target.failure(&error.to_string()))
    }
}

impl Sink for Mot {
    fn name(&self) -> &str {
        &self.target.name
    }

    fn files(&self) -> Vec<PathBuf> {
        self.target.files()
    }

    fn begin(&mut self, run: &RunRecord, _: &VideoFormat) -> Result<()> {
        self.has_tracks = !run.tracks.is_empty() || run.track_matches || run.track_objects;
        self.target.start()
    }

    fn deliver(&mut self, delivery: &Delivery<'_>) -> Result<()> {
        let record = delivery.record;
        self.lines.clear();
        // Tracks that were requested later, or that a detector's boxes began.
        self.has_tracks |= !record.tracks.is_empty();
        if self.has_tracks {
            for t in record.tracks.iter().filter(|t| t.state != TrackState::Lost) {
                self.push(record.frame, i64::from(t.id), [t.x, t.y, t.w, t.h], t.score)?;
            }
        } else {
            for m in &record.matches {
                self.push(record.frame, -1, [m.x, m.y, m.w, m.h].map(|v| v as f64), m.score)?;
            }
        }
        if self.lines.is_empty() { Ok(()) } else { self.target.write(&self.lines) }
    }

    fn finish(&mut self, _: &Summary) -> Result<()> {
        self.target.finish()
    }
}

#[cfg(test)]
mod tests {
    use crate::output::samples;
    use crate::results::{FrameRecord, TrackState};

    #[test]
    fn tracks_count_from_one_and_lost_ones_are_left_out() {
        assert_eq!(
            samples::written(".mot.txt", &["1,2,3,4@0"]),
            "1,1,0.5,3.25,4,3,0.5,-1,-1,-1\n1,3,0.5,3.25,4,3,0.5,-1,-1,-1\n"
        );
    }

    #[test]
    fn matches_are_detections_until_something_is_followed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.mot.txt");
        let mut sink = crate::output::open(path.to_str().unwrap()).unwrap();
        sink.begin(&samples::run(&[]), &samples::format()).unwrap();
        let record = |frame, tracks| FrameRecord {
            frame,
            matches: vec![samples::found("logo")],
            tracks,
            ..FrameRecord::default()
        };
        let track = samples::track(1, TrackState::Tracked);
        for (frame, tracks) in [vec![], vec![track], vec![]].into_iter().enumerate() {
            samples::deliver(&mut *sink, record(frame as u64, tracks)).unwrap();
        }
        let expected = "1,-1,2,3,4,3,0.875,-1,-1,-1\n2,1,0.5,3.25,4,3,0.5,-1,-1,-1\n";
        assert_eq!(std::fs::read_to_string(path).unwrap(), expected);
    }
}
