//! 4. Behind a detector: a source, a detector of your own that looks at each Nth frame, and a tracker that
//!    follows in between what it found.
//!
//! ```text
//! cargo run --release --example 4_behind_a_detector -- VIDEO BOXES.csv [N]
//! ```
//!
//! The detector here takes its boxes from a file, `frame,x,y,w,h` a line. Prints a line for each track of a
//! frame: frame, number, class, state, box. `examples/behind_a_detector.py` does the same in a pipeline.

#![allow(clippy::print_stdout, reason = "an example prints its result")]

use std::collections::HashMap;
use std::time::Duration;

use lockon::control::Control;
use lockon::frame::Rect;
use lockon::media::source::{Decoder, Input, SourceSpec, VideoSource};
use lockon::ports::{Follow, Found, Next, Source};
use lockon::results::Detection;
use lockon::tracker::Tracker;

/// Stands for a network: the boxes that it would detect, by frame.
struct Detector {
    boxes: HashMap<u64, Vec<[f64; 4]>>,
}

impl Detector {
    fn of(path: &str) -> Result<Self, Box<dyn std::error::Error>> {
        let mut boxes = HashMap::<u64, Vec<[f64; 4]>>::new();
        for record in csv::Reader::from_path(path)?.records() {
            let record = record?;
            let numbers: Vec<f64> = record.iter().map(str::parse).collect::<Result<_, _>>()?;
            let &[frame, x, y, w, h] = &numbers[..] else { return Err("expected frame,x,y,w,h".into()) };
            if w > 0.0 {
                boxes.entry(frame as u64).or_default().push([x, y, w, h]);
            }
        }
        Ok(Self { boxes })
    }

    /// The objects in a frame: a real one looks at its picture.
    fn detect(&self, frame: u64) -> Vec<Detection> {
        let of = |[left, top, w, h]: &[f64; 4]| {
            // A box that begins left of the frame or above it is cut off there.
            let edge = |at: f64| at.round().max(0.0) as usize;
            let (x, y) = (edge(*left), edge(*top));
            let rect = Rect::new(x, y, edge(left + w).saturating_sub(x), edge(top + h).saturating_sub(y));
            Detection { label: "object".into(), x: rect.x, y: rect.y, w: rect.w, h: rect.h, score: 1.0 }
        };
        self.boxes.get(&frame).into_iter().flatten().map(of).collect()
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let (video, boxes, every) = match &args[..] {
        [video, boxes] => (video, boxes, 10),
        [video, boxes, every] => (video, boxes, every.parse::<u64>()?),
        _ => return Err("usage: 4_behind_a_detector VIDEO BOXES.csv [N]".into()),
    };
    let detector = Detector::of(boxes)?;
    let spec = SourceSpec::new(Input::File(video.into()), Decoder::Software);
    let mut source = VideoSource::open(&spec, &Control::new())?;
    let mut tracker = Tracker::new(&[]).following_detections();
    let mut tracks = Vec::new();
    loop {
        let frame = match source.wait_next(Duration::from_secs(10))? {
            Next::Frame(frame) => frame,
            Next::Pending | Next::Gap { .. } => continue,
            Next::End => return Ok(()),
        };
        let (index, size) = (frame.meta.index, frame.format.size);
        let mut found = if index.is_multiple_of(every) { detector.detect(index) } else { Vec::new() };
        found.retain(|found| found.rect().is_inside(size));
        tracks.clear();
        tracker.step_with(&frame, &Found { detections: &found, ..Found::default() }, &mut tracks);
        for track in &tracks {
            let label = track.template.as_deref().unwrap_or("-");
            let (id, state) = (track.id, track.state.name());
            println!(
                "{index} {id} {label} {state} {:.1} {:.1} {:.1} {:.1}",
                track.x, track.y, track.w, track.h
            );
        }
    }
}
