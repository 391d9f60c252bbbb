//! The thread that draws results into frames and pushes them.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use crossbeam_channel::{Receiver, RecvTimeoutError};
use gst::prelude::*;

use super::Shown;
use super::numbered::Numbers;
use super::painter::Painter;
use super::progress::PipelineProgress;
use super::timeline::{Timeline, Timestamps};
use crate::sound::Gate;
use crate::window::Steering;
use lockon_core::config::Zone;
use lockon_core::control::{PAUSE_CHECK, Turnstile};
use lockon_core::frame::{Frame, FrameMeta, Picture, Rect, VideoFormat};
use lockon_core::overlay::Hidden;
use lockon_core::results::FrameRecord;

/// A frame to draw.
pub(super) struct DrawJob {
    pub(super) frame: Frame,
    pub(super) record: Arc<FrameRecord>,
    pub(super) mask: Option<Arc<dyn Picture>>,
    /// The zones, in pixels of the frame.
    pub(super) zones: Arc<[Zone]>,
    /// The parts that are hidden, in pixels of the frame.
    pub(super) hidden: Vec<Hidden>,
}

/// The thread that draws and pushes.
pub(super) struct SinkWorker {
    pub(super) jobs: Receiver<DrawJob>,
    pub(super) appsrc: gst_app::AppSrc,
    pub(super) painter: Painter,
    pub(super) times: Timeline,
    /// The numbers of frames that become pictures.
    pub(super) numbers: Option<Numbers>,
    pub(super) gate: Option<Arc<Gate>>,
    pub(super) progress: Arc<PipelineProgress>,
    pub(super) shown: Arc<Shown>,
    /// Frames wait here while the run pauses.
    pub(super) turnstile: Option<Turnstile>,
    /// Steers the run from the window.
    pub(super) steering: Option<Arc<Steering>>,
    /// The picture in the window, where the user may drag a box on it.
    pub(super) last: Option<Last>,
}

/// The frame that was pushed last, without the box that is being dragged, and that box.
pub(super) struct Last {
    meta: FrameMeta,
    painted: gst::Buffer,
    dragged: Option<Rect>,
}

impl SinkWorker {
    /// Ends when no more frames come, or as soon as the pipeline accepts none: its bus has the reason.
    pub(super) fn run(mut self) {
        while let Some(job) = self.next() {
            if !self.wait_for_turn() {
                continue;
            }
            if let Err(error) = self.adapt(&job.frame.format) {
                gst::element_error!(self.appsrc, gst::CoreError::Negotiation, ("no such frames: {error}"));
                return;
            }
            let times = self.times.next(&job.frame.meta, || running_time(&self.appsrc));
            let DrawJob { frame, record, mask, zones, hidden } = &job;
            let painted = self.painter.paint(frame, record, zones, hidden, mask.as_ref(), times);
            self.shown.expect(times.pts, job.frame.circumstances.captured);
            let (record, size, meta) = (job.record.clone(), job.frame.format.size, job.frame.meta);
            // Returns the frame to the decoder before the wait for the encoder.
            drop(job);
            let buffer = match painted {
                Ok(buffer) => buffer,
                Err(error) => {
                    gst::element_error!(
                        self.appsrc,
                        gst::ResourceError::Failed,
                        ["no buffer for a frame: {error}"]
                    );
                    return;
                }
            };
            if let Some(gate) = &self.gate {
                gate.video_reached(self.times.origin.unwrap_or(0), times.pts + times.duration);
            }
            if let Some(numbers) = &self.numbers {
                numbers.push(meta.index);
            }
            let pushed = if let Some(steering) = self.steering.clone() {
                self.last = Some(Last { meta, painted: buffer, dragged: None });
                let pushed = self.push_last(steering.dragged(), times);
                steering.show(&record, size);
                pushed
            } else {
                self.push(buffer)
            };
            if !pushed {
                return;
            }
        }
        if let Some(gate) = &self.gate {
            gate.close();
        }
        // A pipeline that is closing would begin a file for it: a muxer whose pads are closed then (qtmux of
        // 1.22) reports missing caps.
        if !self.progress.is_over.load(Ordering::Relaxed) {
            let _ = self.appsrc.end_of_stream();
        }
    }

    /// Waits for the next frame; `None` if no more come.
    fn next(&mut self) -> Option<DrawJob> {
        if self.steering.is_none() {
            return self.jobs.recv().ok();
        }
        loop {
            match self.jobs.recv_timeout(PAUSE_CHECK) {
                Ok(job) => return Some(job),
                Err(RecvTimeoutError::Timeout) => self.show_drag(),
                Err(RecvTimeoutError::Disconnected) => return None,
            }
        }
    }

    /// Waits while the run pauses. False if frames are no longer wanted.
    fn wait_for_turn(&mut self) -> bool {
        let Some(mut turnstile) = self.turnstile.take() else { return true };
        while !turnstile.is_open() && !self.progress.is_over.load(Ordering::Relaxed) {
            std::thread::sleep(PAUSE_CHECK);
            self.show_drag();
        }
        turnstile.pass();
        let goes_on = !turnstile.is_stopped();
        self.turnstile = Some(turnstile);
        goes_on
    }

    /// While no frame comes, the last one is shown again when the box on it has changed.
    fn show_drag(&mut self) {
        let Some(steering) = &self.steering else { return };
        let dragged = steering.dragged();
        let Some(last) = self.last.as_ref().filter(|last| last.dragged != dragged) else { return };
        let times = self.times.next(&last.meta, || running_time(&self.appsrc));
        // A pipeline that accepts no more is reported with the next frame.
        self.push_last(dragged, times);
    }

    /// Pushes the last frame, with the box that is being dragged. False if the pipeline accepts none.
    fn push_last(&mut self, dragged: Option<Rect>, times: Timestamps) -> bool {
        let Some(last) = &mut self.last else { return true };
        last.dragged = dragged;
        let mut buffer = last.painted.clone();
        let selected = dragged.map(|rect| self.painter.with_selection(&buffer, rect, times));
        match selected {
            Some(Ok(selected)) => buffer = selected,
            Some(Err(error)) => tracing::debug!("the box that is dragged cannot be drawn: {error}"),
            // The last picture again with a later time: pixels are shared.
            None if buffer.pts() != Some(gst::ClockTime::from_nseconds(times.pts)) => {
                let again = buffer.make_mut();
                again.set_pts(gst::ClockTime::from_nseconds(times.pts));
                again.set_duration(gst::ClockTime::from_nseconds(times.duration));
            }
            None => {}
        }
        self.push(buffer)
    }

    fn push(&self, buffer: gst::Buffer) -> bool {
        if self.appsrc.push_buffer(buffer).is_err() {
            return false;
        }
        self.shown.pushed.fetch_add(1, Ordering::Relaxed);
        self.progress.moved.fetch_add(1, Ordering::Relaxed);
        true
    }

    /// Announces frames of another format to the pipeline.
    fn adapt(&mut self, format: &VideoFormat) -> Result<(), gst::glib::BoolError> {
        if self.painter.is_for(format) {
            return Ok(());
        }
        self.painter = self.painter.adapted(format)?;
        self.last = None;
        self.times.set_rate(format.frame_rate);
        // Takes effect after the waiting buffers.
        self.appsrc.set_caps(Some(&self.painter.info.to_caps()?));
        Ok(())
    }
}

/// How long the output has been playing. An element that is being started has a clock but no base time yet:
/// it would return the clock's own time, and the first frame would be shown after as many hours.
pub(super) fn running_time(appsrc: &gst_app::AppSrc) -> Option<gst::ClockTime> {
    if appsrc.current_state() == gst::State::Playing { appsrc.current_running_time() } else { None }
}
