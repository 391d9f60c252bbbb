//! The frames of a run's video, which can go on at another place.

use std::sync::Arc;
use std::time::Duration;

use crate::config::{Moment, Part};
use crate::control::Control;
use crate::error::Result;
use crate::excerpt::Excerpt;
use crate::frame::{Frame, FrameMeta};
use crate::job;
use crate::media::source::{SourceSpec, VideoSource};
use crate::paced::Jump;
use crate::ports::{Next, Source};
use crate::results::Detection;

/// The frames of a video. After a jump the file is opened again and decoded from the key frame before that
/// place.
///
/// A decoder that begins there does not know how many frames came before. Numbers after a jump are therefore
/// computed from times and the frame rate, from the first frame of the run on; where the rate is constant
/// they are those of the whole video.
pub(super) struct Playback {
    frames: Excerpt<VideoSource>,
    /// How to open the video again, and which part of it; `None` where the run cannot go on elsewhere.
    again: Option<(SourceSpec, Part)>,
    control: Control,
    /// The first frame of the run.
    first: Option<FrameMeta>,
    /// The video was opened again.
    has_jumped: bool,
    /// Added to frame numbers since the last jump; `None` until the first frame after it has come.
    shift: Option<i64>,
}

impl Playback {
    pub(super) fn new(
        frames: Excerpt<VideoSource>,
        again: Option<(SourceSpec, Part)>,
        control: &Control,
    ) -> Self {
        let control = control.clone();
        Self { frames, again, control, first: None, has_jumped: false, shift: None }
    }

    /// The last frame of the video, if none of them belongs to the part.
    pub(super) fn missed(&self) -> Option<FrameMeta> {
        self.frames.missed()
    }

    fn numbered(&mut self, next: Next) -> Next {
        let Next::Frame(mut frame) = next else { return next };
        let first = *self.first.get_or_insert(frame.meta);
        if self.has_jumped {
            if self.shift.is_none() {
                frame.circumstances.is_discontinuity = true;
            }
            let rate = job::frame_rate(&self.frames.source().format());
            let shift = *self.shift.get_or_insert_with(|| shift(&first, &frame, rate));
            frame.meta.index = frame.meta.index.saturating_add_signed(shift);
        }
        Next::Frame(frame)
    }
}

/// The number to add to a frame's number, and to those after it, so that they count from `first` on.
fn shift(first: &FrameMeta, frame: &Frame, rate: f64) -> i64 {
    let ns = |meta: &FrameMeta| meta.pts_ns.unwrap_or(0) as f64;
    let number = first.index as f64 + (ns(&frame.meta) - ns(first)) / 1e9 * rate;
    number.round().max(0.0) as i64 - frame.meta.index as i64
}

impl Jump for Playback {
    /// A file that cannot be opened again stays where it is, with a warning.
    fn jump_to(&mut self, ns: u64) -> Result<bool> {
        let Some((spec, part)) = &self.again else { return Ok(false) };
        let begin = match part.start {
            Moment::Time(start) => ns.max(start),
            Moment::Frame(_) => ns,
        };
        let spec = SourceSpec { seek_ns: Some(begin), ..spec.clone() };
        let part = Part { start: Moment::Time(begin), ..*part };
        match VideoSource::open(&spec, &self.control) {
            Ok(source) => {
                self.frames = Excerpt::new(source, part);
                (self.has_jumped, self.shift) = (true, None);
                Ok(true)
            }
            Err(error) => {
                self.control.check()?;
                tracing::warn!("cannot go on at {}: {error}", Moment::Time(begin));
                Ok(false)
            }
        }
    }
}

impl Source for Playback {
    fn try_next(&mut self) -> Result<Next> {
        let next = self.frames.try_next()?;
        Ok(self.numbered(next))
    }

    fn wait_next(&mut self, timeout: Duration) -> Result<Next> {
        let next = self.frames.wait_next(timeout)?;
        Ok(self.numbered(next))
    }

    fn dropped(&self) -> u64 {
        self.frames.dropped()
    }

    fn damaged(&self) -> u64 {
        self.frames.damaged()
    }

    fn held_up(&self) -> Duration {
        self.frames.held_up()
    }

    fn passed(&self) -> u64 {
        self.frames.passed()
    }

    fn detections(&mut self, frame: u64, found: &mut Vec<Detection>) {
        self.frames.detections(frame, found);
    }

    fn picture(&self, frame: u64) -> Option<Arc<str>> {
        self.frames.picture(frame)
    }

    fn has_discarded(&self, frame: u64) -> bool {
        self.frames.has_discarded(frame)
    }
}
