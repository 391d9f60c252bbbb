//! The frames of a run's video, which can jump to another place.

use std::sync::Arc;
use std::time::Duration;

use crate::setup;
use lockon_core::config::{Moment, Part};
use lockon_core::control::Control;
use lockon_core::error::Result;
use lockon_core::excerpt::Excerpt;
use lockon_core::frame::{Frame, FrameMeta};
use lockon_core::paced::Jump;
use lockon_core::ports::{Next, Source};
use lockon_core::results::Detection;
use lockon_gst::source::{SourceSpec, VideoSource};

/// The first step back from a time after which there is no frame. Each further step is twice as long.
const STEP_BACK_NS: u64 = 1_000_000_000;

/// The frames of a video. A jump opens the file again and decodes it from the key frame before that place.
///
/// A decoder that begins there does not know how many frames came before. Numbers after a jump are therefore
/// computed from times and the frame rate, from the first frame of the run on; if the rate is constant they
/// are those of the whole video.
pub(super) struct Playback {
    frames: Excerpt<VideoSource>,
    /// How to open the video again, and which part of it; `None` where the run cannot jump.
    again: Option<(SourceSpec, Part)>,
    control: Control,
    /// The first frame of the run.
    first: Option<FrameMeta>,
    /// The last jump, until its first frame has come.
    jump: Option<Landing>,
    /// The video was opened again.
    has_jumped: bool,
    /// Added to frame numbers since the last jump; `None` until the first frame after it has come.
    shift: Option<i64>,
    /// Counts of the sources before the last jump.
    before: Counts,
}

/// A jump whose first frame has not come.
#[derive(Debug, Clone, Copy)]
struct Landing {
    /// The first frame is at or after this time.
    ns: u64,
    /// The run pauses at the first frame, because it is the last one of the video.
    is_last: bool,
    /// If there is no frame at or after `ns`, the next attempt begins this much earlier.
    back_ns: u64,
}

/// The counts of a source, see [`Source`].
#[derive(Debug, Clone, Copy, Default, PartialEq)]
struct Counts {
    dropped: u64,
    damaged: u64,
    passed: u64,
    held_up: Duration,
}

impl Counts {
    /// The counts of this source and of those before it.
    fn with(self, source: &impl Source) -> Self {
        Self {
            dropped: self.dropped + source.dropped(),
            damaged: self.damaged + source.damaged(),
            passed: self.passed + source.passed(),
            held_up: self.held_up + source.held_up(),
        }
    }
}

impl Playback {
    pub(super) fn new(
        frames: Excerpt<VideoSource>,
        again: Option<(SourceSpec, Part)>,
        control: &Control,
    ) -> Self {
        Self {
            frames,
            again,
            control: control.clone(),
            first: None,
            jump: None,
            has_jumped: false,
            shift: None,
            before: Counts::default(),
        }
    }

    /// The last frame of the video, if none of them belongs to the part.
    pub(super) fn missed(&self) -> Option<FrameMeta> {
        self.frames.missed()
    }

    /// The counts since the run began.
    fn counts(&self) -> Counts {
        self.before.with(&self.frames)
    }

    /// The run's next step, from the source's next one.
    fn next(&mut self, next: Next) -> Result<Next> {
        match next {
            Next::Frame(frame) => {
                if self.jump.take().is_some_and(|jump| jump.is_last) {
                    self.control.pause(true);
                }
                Ok(Next::Frame(self.numbered(frame)))
            }
            Next::End => self.step_back(),
            next => Ok(next),
        }
    }

    fn numbered(&mut self, mut frame: Frame) -> Frame {
        let first = *self.first.get_or_insert(frame.meta);
        if self.has_jumped {
            if self.shift.is_none() {
                frame.circumstances.is_discontinuity = true;
            }
            let rate = setup::frame_rate(&self.frames.source().format());
            let shift = *self.shift.get_or_insert_with(|| shift(&first, &frame, rate));
            frame.meta.index = frame.meta.index.saturating_add_signed(shift);
        }
        frame
    }

    /// The time of the first frame of the run.
    fn start_ns(&self) -> u64 {
        self.first.and_then(|first| first.pts_ns).unwrap_or(0)
    }

    /// A time at or before the last frame, and after the one before it, if frames are as regular as the
    /// video's rate.
    fn last_ns(&self, part: Part) -> u64 {
        let source = self.frames.source();
        let end = match part.end {
            Some(Moment::Time(ns)) => Some(ns),
            _ => None,
        };
        let end = source.duration_ns().into_iter().chain(end).min().unwrap_or(u64::MAX);
        let rate = setup::frame_rate(&source.format());
        // An eighth more than a frame, because files round times.
        let frame = if rate > 0.0 { 1.125e9 / rate } else { 1.0 };
        end.saturating_sub(frame as u64)
    }

    /// Opens the video again, at that time. False if that fails: then nothing has changed.
    fn land(&mut self, jump: Landing) -> Result<bool> {
        let Some((spec, part)) = &self.again else { return Ok(false) };
        let spec = SourceSpec { seek_ns: Some(jump.ns), ..spec.clone() };
        let part = Part { start: Moment::Time(jump.ns), ..*part };
        match VideoSource::open(&spec, &self.control) {
            Ok(source) => {
                self.before = self.counts();
                self.frames = Excerpt::new(source, part);
                (self.jump, self.has_jumped, self.shift) = (Some(jump), true, None);
                Ok(true)
            }
            Err(error) => {
                self.control.check()?;
                tracing::warn!("cannot go on at {}: {error}", Moment::Time(jump.ns));
                Ok(false)
            }
        }
    }

    /// The end of the video, unless a jump went past the last frame: then that frame is next. A file may last
    /// longer than its pictures, or be shorter than its header says.
    fn step_back(&mut self) -> Result<Next> {
        let Some(Landing { ns, back_ns, .. }) = self.jump.take() else { return Ok(Next::End) };
        let last = self.frames.missed().and_then(|last| last.pts_ns).filter(|last| *last < ns);
        let earlier = last.unwrap_or_else(|| ns.saturating_sub(back_ns)).max(self.start_ns());
        let jump = Landing { ns: earlier, is_last: true, back_ns: back_ns.saturating_mul(2) };
        let is_next = earlier < ns && !self.control.is_stopped() && self.land(jump)?;
        Ok(if is_next { Next::Pending } else { Next::End })
    }
}

/// The number to add to a frame's number, and to those after it, so that they count from `first` on.
fn shift(first: &FrameMeta, frame: &Frame, rate: f64) -> i64 {
    let ns = |meta: &FrameMeta| meta.pts_ns.unwrap_or(0) as f64;
    let number = first.index as f64 + (ns(&frame.meta) - ns(first)) / 1e9 * rate;
    number.round().max(0.0) as i64 - frame.meta.index as i64
}

impl Jump for Playback {
    /// A time before the first frame of the run means that frame; a time after the last frame means the last
    /// one, where the run pauses. If the file cannot be opened again, the run stays where it is, with a
    /// warning.
    fn jump_to(&mut self, ns: u64) -> Result<bool> {
        let Some((_, part)) = self.again else { return Ok(false) };
        if self.first.is_none() {
            self.first = self.frames.first(&self.control)?.map(|frame| frame.meta);
        }
        if self.first.is_none() {
            return Ok(false);
        }
        let last = self.last_ns(part);
        self.land(Landing {
            ns: ns.min(last).max(self.start_ns()),
            is_last: ns > last,
            back_ns: STEP_BACK_NS,
        })
    }
}

impl Source for Playback {
    fn try_next(&mut self) -> Result<Next> {
        let next = self.frames.try_next()?;
        self.next(next)
    }

    fn wait_next(&mut self, timeout: Duration) -> Result<Next> {
        let next = self.frames.wait_next(timeout)?;
        self.next(next)
    }

    fn dropped(&self) -> u64 {
        self.counts().dropped
    }

    fn damaged(&self) -> u64 {
        self.counts().damaged
    }

    fn held_up(&self) -> Duration {
        self.counts().held_up
    }

    fn passed(&self) -> u64 {
        self.counts().passed
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

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use lockon_gst::source::{Decoder, Input};

    /// Opens a file and returns its frames from a moment on.
    fn open(path: &Path, start: Moment) -> Playback {
        let (control, part) = (Control::new(), Part { start, ..Part::default() });
        // Errors of several decoding threads cannot be attributed to a video.
        let spec = SourceSpec {
            decoder_threads: Some(1),
            ..SourceSpec::new(Input::File(path.into()), Decoder::Software)
        };
        let source = VideoSource::open(&spec, &control).unwrap();
        Playback::new(Excerpt::new(source, part), Some((spec, part)), &control)
    }

    fn cars() -> std::path::PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/media/cars.mp4")
    }

    /// The number of the next frame; `None` at the end.
    fn next(playback: &mut Playback) -> Option<u64> {
        loop {
            match playback.wait_next(Duration::from_secs(1)).unwrap() {
                Next::Frame(frame) => return Some(frame.meta.index),
                Next::End => return None,
                _ => {}
            }
        }
    }

    #[test]
    fn a_jump_anywhere_past_the_last_frame_gives_that_frame_and_pauses() {
        let mut playback = open(&cars(), Moment::default());
        for ns in [u64::MAX, i64::MAX as u64 + 1, 1_000_000_000_000, 4_800_000_000, 4_720_000_000] {
            playback.control.pause(false);
            assert!(playback.jump_to(ns).unwrap());
            assert_eq!((next(&mut playback), playback.control.is_paused()), (Some(59), true), "{ns}");
            assert_eq!(next(&mut playback), None, "{ns}");
        }
        playback.control.pause(false);
        assert!(playback.jump_to(4_640_000_000).unwrap());
        assert_eq!((next(&mut playback), playback.control.is_paused()), (Some(58), false));
        assert_eq!((next(&mut playback), next(&mut playback)), (Some(59), None));
        assert!(!playback.control.is_paused(), "the video came to its end by itself");
    }

    /// Times and pictures of the next frames.
    fn pictures(playback: &mut Playback, most: usize) -> Vec<(u64, Vec<u8>)> {
        let mut found = Vec::new();
        while found.len() < most {
            match playback.wait_next(Duration::from_secs(1)).unwrap() {
                Next::Frame(frame) => {
                    let luma = frame.luma();
                    let rows = (0..luma.size().height).flat_map(|row| luma.row(row)).copied().collect();
                    found.push((frame.meta.pts_ns.unwrap(), rows));
                }
                Next::End => break,
                _ => {}
            }
        }
        found
    }

    /// A seek in a transport stream ends between key frames.
    #[test]
    fn pictures_after_a_jump_are_those_of_the_whole_video() {
        let folder = tempfile::tempdir().unwrap();
        for (name, end) in [
            ("a.ts", "x264enc key-int-max=50 bframes=3 threads=1 ! mpegtsmux"),
            ("a.h265.ts", "x265enc key-int-max=50 speed-preset=ultrafast log-level=none ! mpegtsmux"),
            ("a.open.ts", "x264enc key-int-max=50 bframes=3 option-string=open-gop=1 threads=1 ! mpegtsmux"),
            ("a.mpg", "x264enc key-int-max=50 bframes=3 threads=1 ! mpegpsmux"),
            ("a.mkv", "x264enc key-int-max=50 bframes=3 threads=1 ! matroskamux"),
        ] {
            let path = folder.path().join(name);
            let text = format!(
                "videotestsrc num-buffers=303 pattern=ball ! video/x-raw,width=80,height=64,framerate=25/1 ! {end} ! \
                 filesink location={}",
                path.display()
            );
            let mut make = std::process::Command::new("gst-launch-1.0");
            let made = make.arg("-q").args(text.split_whitespace()).status();
            assert!(made.unwrap().success(), "{name}");
            let mut playback = open(&path, Moment::default());
            let whole = pictures(&mut playback, usize::MAX);
            assert!(whole.len() > 270, "{name}");
            for at in [5, 240, 49, 50, 170, 148] {
                assert!(playback.jump_to(whole[at].0).unwrap());
                let found = pictures(&mut playback, 60);
                let expected = &whole[at..whole.len().min(at + 60)];
                assert!(found == expected, "{name}: {at}");
            }
        }
    }

    #[test]
    fn a_jump_to_a_time_without_frames_steps_back_to_the_last_one() {
        let mut playback = open(&cars(), Moment::default());
        assert_eq!(next(&mut playback), Some(0));
        // As in a file whose sound lasts longer than its pictures.
        for seconds in [5, 60, 4000] {
            playback.control.pause(false);
            let ns = seconds * 1_000_000_000;
            assert!(playback.land(Landing { ns, is_last: false, back_ns: STEP_BACK_NS }).unwrap());
            assert_eq!((next(&mut playback), playback.control.is_paused()), (Some(59), true), "{seconds}");
        }
    }

    #[test]
    fn decoding_that_begins_at_any_time_is_no_panic() {
        for ns in [u64::MAX, u64::MAX - 1, i64::MAX as u64 + 1] {
            let mut playback = open(&cars(), Moment::default());
            let begun = playback.land(Landing { ns, is_last: false, back_ns: u64::MAX });
            assert!(begun.is_err() || next(&mut playback).is_some(), "{ns}");
        }
    }

    #[test]
    fn a_jump_does_not_leave_the_part_that_begins_at_a_frame() {
        let mut playback = open(&cars(), Moment::Frame(20));
        // Also before the first frame has been asked for.
        for (ns, frame) in [(0, 20), (3_000_000_000, 38), (400_000_000, 20), (1_680_000_000, 21)] {
            assert!(playback.jump_to(ns).unwrap());
            assert_eq!(next(&mut playback), Some(frame), "{ns}");
        }
    }

    #[test]
    fn counts_go_on_after_a_jump() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("damaged.mp4");
        let mut bytes = std::fs::read(cars()).unwrap();
        let half = bytes.len() / 2;
        bytes[half..half + 2000].iter_mut().for_each(|byte| *byte ^= 0x5a);
        std::fs::write(&path, bytes).unwrap();
        let mut playback = open(&path, Moment::Frame(5));
        while next(&mut playback).is_some() {}
        let before = playback.counts();
        assert!(before.damaged > 0 && before.passed == 5, "{before:?}");
        assert!(playback.jump_to(0).unwrap());
        let after = [playback.dropped(), playback.damaged(), playback.passed()];
        assert_eq!(after, [before.dropped, before.damaged, before.passed]);
        assert!(playback.held_up() >= before.held_up);
        while next(&mut playback).is_some() {}
        let after = playback.counts();
        assert!(after.damaged > before.damaged && after.passed > before.passed, "{before:?} {after:?}");
    }
}
