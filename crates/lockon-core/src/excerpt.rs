//! A part of a video: from one moment to another, each frame or each Nth.
//!
//! [`Excerpt`] is between a source and the engine. Frames that are not wanted are decoded and dropped before
//! any processing; the kept ones have their number and their time in the whole video, so that results of a
//! part and of the whole can be compared.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::config::{Moment, Part, TrackSpec};
use crate::control::{Control, STOP_CHECK};
use crate::error::{Error, Result};
use crate::frame::{Frame, FrameMeta, VideoFormat};
use crate::ports::{Next, Source};
use crate::results::Detection;

/// Maximum time that frames are skipped in one call. Then the caller gets "none is there yet" and can check
/// whether to stop.
const PATIENCE: Duration = Duration::from_millis(50);

/// Maximum number of gaps before the first frame that are reported one by one.
const MAX_GAPS: usize = 64;

/// The frames of a source that belong to a [`Part`].
pub struct Excerpt<S> {
    source: S,
    part: Part,
    /// Boxes; a frame of the part must not be too late for any of them.
    tracks: Vec<TrackSpec>,
    /// The first frame, if it was returned by `first` already.
    first: Option<Frame>,
    /// Minimum number of the next frame that is wanted, after the first.
    next: Option<u64>,
    is_over: bool,
    /// Frames that were skipped.
    passed: u64,
    /// The last frame that came, wanted or not.
    last: Option<FrameMeta>,
    /// Gaps before the first frame, which are passed on before it: for how long, and why.
    gaps: VecDeque<(Duration, String)>,
    /// The format of the frames, and the one that is given to each Nth frame.
    formats: Option<(Arc<VideoFormat>, Arc<VideoFormat>)>,
}

impl<S: Source> Excerpt<S> {
    /// Returns the frames of `source` that belong to the part.
    pub fn new(source: S, part: Part) -> Self {
        Self {
            source,
            part,
            tracks: Vec::new(),
            first: None,
            next: None,
            is_over: false,
            passed: 0,
            last: None,
            gaps: VecDeque::new(),
            formats: None,
        }
    }

    /// As `self`, but a box that was drawn on a frame before the part is an error (`Usage`): in the first
    /// frame of the part something else may be in it. If the part begins at a time, only its first frame
    /// shows which frame numbers come before it, and the other way round.
    #[must_use]
    pub fn refusing_earlier(self, tracks: &[TrackSpec]) -> Self {
        Self { tracks: tracks.to_vec(), ..self }
    }

    /// Notes that the source was lost for so long before it came here: a gap comes before its first frame.
    pub fn follow_gap(&mut self, away: Duration, reason: String) {
        note(&mut self.gaps, away, reason);
    }

    /// The source of the frames.
    pub fn source(&self) -> &S {
        &self.source
    }

    /// Waits for the first frame and returns a copy: the next request returns the frame, and gaps before it,
    /// again. `None` if there is no frame, or if `control` was stopped before it came.
    ///
    /// # Errors
    /// The source's.
    pub fn first(&mut self, control: &Control) -> Result<Option<Frame>> {
        let mut gaps = std::mem::take(&mut self.gaps);
        let first = loop {
            if control.is_stopped() {
                break Ok(None);
            }
            match self.wait_next(STOP_CHECK) {
                Ok(Next::Frame(frame)) => {
                    self.first = Some(frame.clone());
                    break Ok(Some(frame));
                }
                Ok(Next::End) => break Ok(None),
                Ok(Next::Gap { away, reason }) => note(&mut gaps, away, reason),
                Ok(Next::Pending) => {}
                Err(error) => break Err(error),
            }
        };
        self.gaps = gaps;
        first
    }

    /// The last frame of the source, if none of them belongs to the part.
    pub fn missed(&self) -> Option<FrameMeta> {
        self.last.filter(|_| self.next.is_none())
    }

    fn next(&mut self, deadline: Option<Instant>) -> Result<Next> {
        let started = Instant::now();
        if let Some((away, reason)) = self.gaps.pop_front() {
            return Ok(Next::Gap { away, reason });
        }
        if let Some(mut first) = self.first.take() {
            // The time between `first` and this call is not latency.
            first.meta.arrived = started;
            first.circumstances.captured = None;
            return Ok(Next::Frame(first));
        }
        loop {
            if self.is_over {
                return Ok(Next::End);
            }
            let next = self.source.next_until(deadline)?;
            let Next::Frame(frame) = next else { return Ok(next) };
            let before = self.last.replace(frame.meta);
            if self.part.end.is_some_and(|end| end.is_reached(&frame.meta)) {
                self.is_over = true;
                return Ok(Next::End);
            }
            if self.wants(&frame.meta) {
                if self.next.is_none() {
                    self.refuse_earlier(before, frame.meta)?;
                }
                return Ok(Next::Frame(self.take(frame)));
            }
            self.passed += 1;
            if started.elapsed() > PATIENCE {
                return Ok(Next::Pending);
            }
        }
    }

    fn wants(&self, frame: &FrameMeta) -> bool {
        self.next.map_or_else(|| self.part.start.is_reached(frame), |next| frame.index >= next)
    }

    /// Refuses a box that could have been learnt in a skipped frame, now that the part begins.
    fn refuse_earlier(&mut self, before: Option<FrameMeta>, first: FrameMeta) -> Result<()> {
        let Some(before) = before else { return Ok(()) };
        // 0 is the default, so it was not typed.
        let is_earlier =
            |track: &&TrackSpec| track.from != Moment::default() && track.from.is_reached(&before);
        let Some(track) = self.tracks.iter().find(is_earlier) else { return Ok(()) };
        self.is_over = true;
        let at = first.pts_ns.map_or_else(String::new, |ns| format!(" at {}", Moment::Time(ns)));
        Err(Error::Usage(format!(
            "--track {track} starts before --start {}, which is frame {}{at}: {}",
            self.part.start,
            first.index,
            Part::EARLIER_BOX
        )))
    }

    /// The frame as one of each Nth.
    fn take(&mut self, mut frame: Frame) -> Frame {
        let every = self.part.every;
        let next = frame.meta.index.saturating_add(every);
        self.next = Some(next);
        // The next frame would be decoded only to find that it is too late.
        self.is_over = matches!(self.part.end, Some(Moment::Frame(end)) if next >= end);
        if every > 1 {
            frame.meta.duration_ns = frame.meta.duration_ns.map(|ns| ns.saturating_mul(every));
            frame.format = self.slowed(&frame.format);
        }
        frame
    }

    /// The format with the rate at which each Nth frame comes.
    fn slowed(&mut self, format: &Arc<VideoFormat>) -> Arc<VideoFormat> {
        if let Some((own, slowed)) = &self.formats
            && Arc::ptr_eq(own, format)
        {
            return slowed.clone();
        }
        let (frames, seconds) = format.frame_rate;
        let frame_rate = i32::try_from(self.part.every)
            .ok()
            .and_then(|every| seconds.checked_mul(every))
            .map_or((0, 1), |seconds| if frames > 0 { (frames, seconds) } else { (0, 1) });
        let slowed = Arc::new(VideoFormat { frame_rate, ..(**format).clone() });
        self.formats = Some((format.clone(), slowed.clone()));
        slowed
    }
}

/// Notes a gap before the first frame. Beyond [`MAX_GAPS`] the last one becomes longer.
fn note(gaps: &mut VecDeque<(Duration, String)>, away: Duration, reason: String) {
    let is_full = gaps.len() == MAX_GAPS;
    match gaps.back_mut().filter(|_| is_full) {
        Some(last) => *last = (last.0 + away, reason),
        None => gaps.push_back((away, reason)),
    }
}

impl<S: Source> Source for Excerpt<S> {
    fn try_next(&mut self) -> Result<Next> {
        self.next(None)
    }

    fn wait_next(&mut self, timeout: Duration) -> Result<Next> {
        self.next(Some(Instant::now() + timeout))
    }

    fn dropped(&self) -> u64 {
        self.source.dropped()
    }

    fn damaged(&self) -> u64 {
        self.source.damaged()
    }

    fn held_up(&self) -> Duration {
        self.source.held_up()
    }

    fn passed(&self) -> u64 {
        self.passed
    }

    fn detections(&mut self, frame: u64, found: &mut Vec<Detection>) {
        self.source.detections(frame, found);
    }

    fn picture(&self, frame: u64) -> Option<Arc<str>> {
        self.source.picture(frame)
    }

    fn has_discarded(&self, frame: u64) -> bool {
        self.source.has_discarded(frame)
    }
}
