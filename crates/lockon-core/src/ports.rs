//! The two ends of the engine: the source of frames and the outputs for results.
//!
//! The engine knows only these traits. They are implemented by GStreamer in `media`, by results files in
//! `output`, by the GStreamer element in its own package, and by tests in memory.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::control::Control;
use crate::error::{Error, Result};
use crate::frame::{Frame, Picture, Size, VideoFormat};
use crate::orders::{Numbers, Order};
use crate::recent_frames::RecentFrames;
use crate::results::{
    Detection, Event, EventsSummary, FrameRecord, Match, Object, OutputSummary, RunRecord, Summary, Track,
};

/// A source's answer to a request for a frame.
pub enum Next {
    /// The next frame, in order.
    Frame(Frame),
    /// No frame is available yet.
    Pending,
    /// The source was gone and is back: the next frame is the first after the gap.
    Gap {
        /// How long it was gone.
        away: Duration,
        /// The reason for the gap.
        reason: String,
    },
    /// The video has ended. A failure is never reported this way.
    End,
}

/// A source of frames.
pub trait Source: Send {
    /// The next frame if one is already waiting, without waiting for it.
    ///
    /// # Errors
    /// The error that made the source fail. Frames that came before are delivered first.
    fn try_next(&mut self) -> Result<Next>;

    /// Waits for the next frame, at most for `timeout`.
    ///
    /// # Errors
    /// As [`Source::try_next`].
    fn wait_next(&mut self, timeout: Duration) -> Result<Next>;

    /// Waits for the next frame, at most until `deadline`; without one as [`Source::try_next`].
    ///
    /// # Errors
    /// As [`Source::try_next`].
    fn next_until(&mut self, deadline: Option<Instant>) -> Result<Next> {
        match deadline {
            Some(deadline) => self.wait_next(deadline.saturating_duration_since(Instant::now())),
            None => self.try_next(),
        }
    }

    /// Frames dropped so far because newer ones waited; always 0 for files.
    fn dropped(&self) -> u64;

    /// Errors so far that demuxers and decoders reported before they continued.
    fn damaged(&self) -> u64 {
        0
    }

    /// Time so far in which its calls did other work than waiting for a frame, or in which no frame could
    /// come: a GStreamer element pushes frames on, and may be paused. It counts neither as a stall nor as
    /// time spent on the source.
    fn held_up(&self) -> Duration {
        Duration::ZERO
    }

    /// Frames so far that were not needed: a source that delivers them has not stalled.
    fn passed(&self) -> u64 {
        0
    }

    /// Adds a detector's results in a delivered frame, if there is a detector in front. Called once for each
    /// frame, in their order.
    fn detections(&mut self, _frame: u64, _found: &mut Vec<Detection>) {}

    /// The name of the picture file that a frame came from, relative to its folder; `None` for a video.
    fn picture(&self, _frame: u64) -> Option<Arc<str>> {
        None
    }

    /// True for a delivered frame that is no longer wanted, such as one that a flush dropped: the engine does
    /// not pass it to sinks, and does not count it.
    fn has_discarded(&self, _frame: u64) -> bool {
        false
    }
}

impl<S: Source + ?Sized> Source for &mut S {
    fn try_next(&mut self) -> Result<Next> {
        (**self).try_next()
    }

    fn wait_next(&mut self, timeout: Duration) -> Result<Next> {
        (**self).wait_next(timeout)
    }

    fn dropped(&self) -> u64 {
        (**self).dropped()
    }

    fn damaged(&self) -> u64 {
        (**self).damaged()
    }

    fn held_up(&self) -> Duration {
        (**self).held_up()
    }

    fn passed(&self) -> u64 {
        (**self).passed()
    }

    fn detections(&mut self, frame: u64, found: &mut Vec<Detection>) {
        (**self).detections(frame, found);
    }

    fn picture(&self, frame: u64) -> Option<Arc<str>> {
        (**self).picture(frame)
    }

    fn has_discarded(&self, frame: u64) -> bool {
        (**self).has_discarded(frame)
    }
}

/// Everything that was found in a frame, by which something can be followed.
#[derive(Debug, Clone, Copy, Default)]
pub struct Found<'a> {
    /// Matches of templates.
    pub matches: &'a [Match],
    /// Detections of a detector in front.
    pub detections: &'a [Detection],
    /// Objects of the mask; none where they are not reported.
    pub objects: Option<&'a [Object]>,
}

/// Follows objects from frame to frame. [`crate::tracker::Tracker`] is lockon's own implementation.
///
/// It gets each frame once, in their order, and nothing that it does can fail: a target that it cannot follow
/// is reported as lost. The same frames and matches must give the same tracks, bit by bit, on every machine.
pub trait Follow: Send {
    /// Refuses boxes that do not lie inside frames of that size, before the first frame.
    ///
    /// # Errors
    /// `Outside`.
    fn check(&mut self, frame: Size) -> Result<()>;

    /// Sets a new frame size from now on: targets are where they were in the picture, scaled.
    fn rescale(&mut self, before: Size, after: Size);

    /// Follows all targets into the next frame, in which `matches` were found, and appends their tracks to
    /// `tracks`, in the order of ids.
    fn step(&mut self, frame: &Frame, matches: &[Match], tracks: &mut Vec<Track>);

    /// As `step`, for a frame in which detections and objects were found too.
    fn step_with(&mut self, frame: &Frame, found: &Found<'_>, tracks: &mut Vec<Track>) {
        self.step(frame, found.matches, tracks);
    }

    /// The number of boxes to follow from the start; they have the numbers from 1 on.
    fn given(&self) -> u32 {
        0
    }

    /// Sets the numbers for tracks that are not numbered yet. Called once, before the first frame.
    fn number_by(&mut self, _numbers: Numbers) {}

    /// Carries out an order about tracks, before it follows targets into `next`. `recent` are frames before
    /// that one.
    ///
    /// # Errors
    /// `Outside` or `Order` if it cannot be done: then nothing has changed.
    fn obey(&mut self, order: &Order, _next: &Frame, _recent: &RecentFrames) -> Result<()> {
        Err(Error::Order { order: order.to_string(), reason: "what follows takes no orders".into() })
    }

    /// Ids of boxes that are not followed yet, with the reason if the video has ended.
    fn not_started(&self) -> Vec<(u32, String)>;
}

/// One frame with its final results. Everything is shared, so that a sink may keep it while the engine
/// continues.
pub struct Delivery<'a> {
    /// The frame as decoded.
    pub frame: &'a Frame,
    /// The results of the frame.
    pub record: &'a Arc<FrameRecord>,
    /// The thresholded frame (255 or 0), a picture of one plane, where a sink requested it.
    pub mask: Option<&'a Arc<dyn Picture>>,
}

/// An output for results. Calls come in order: `belong_to` and `begin` once, `deliver` for each frame,
/// `finish` once, on every exit path: also without `begin`, where the run failed before it.
pub trait Sink: Send {
    /// For messages: the file's path, `display`.
    fn name(&self) -> &str;

    /// False for a sink that only watches a run, such as a progress bar: a run continues only while an output
    /// is left.
    fn is_output(&self) -> bool {
        true
    }

    /// True if deliveries should carry the thresholded frame.
    fn wants_mask(&self) -> bool {
        false
    }

    /// Gets a handle on the run before any other call: a sink that waits for long has to check whether the
    /// run was stopped.
    fn belong_to(&mut self, _run: &Control) {}

    /// The run starts: the first frame's format is known.
    ///
    /// # Errors
    /// `Output` or another error that makes the run end.
    fn begin(&mut self, _run: &RunRecord, _format: &VideoFormat) -> Result<()> {
        Ok(())
    }

    /// Takes one frame and its results. It may wait: so a slow output slows down a file.
    ///
    /// # Errors
    /// `Output` or another error. The sink is finished at once then, and the run continues as long as another
    /// output is left.
    fn deliver(&mut self, delivery: &Delivery<'_>) -> Result<()>;

    /// Receives an event between the last frame and the next. Only sinks that keep records need it.
    ///
    /// # Errors
    /// As [`Sink::deliver`].
    fn note(&mut self, _event: &Event) -> Result<()> {
        Ok(())
    }

    /// Returns how the output kept up with a live source; `None` if it shows none.
    fn status(&self) -> Option<OutputSummary> {
        None
    }

    /// The receivers of events, and their counts, once the sink is finished.
    fn events(&self) -> Vec<EventsSummary> {
        Vec::new()
    }

    /// The files that it has written, once it is finished.
    fn files(&self) -> Vec<PathBuf> {
        Vec::new()
    }

    /// Closes the output so that the written results are complete: called after the last frame, after an
    /// error, also its own, and after Ctrl-C.
    ///
    /// # Errors
    /// If the output could not be completed.
    fn finish(&mut self, _summary: &Summary) -> Result<()> {
        Ok(())
    }
}
