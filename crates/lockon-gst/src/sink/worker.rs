//! The thread that draws results into frames and pushes them.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use crossbeam_channel::Receiver;
use gst::prelude::*;

use super::Shown;
use super::painter::Painter;
use super::progress::PipelineProgress;
use super::timeline::Timeline;
use crate::sound::Gate;
use crate::window::Steering;
use lockon_core::control::{PAUSE_CHECK, Turnstile};
use lockon_core::frame::{Frame, Picture, VideoFormat};
use lockon_core::results::FrameRecord;

/// What the worker draws.
pub(super) struct DrawJob {
    pub(super) frame: Frame,
    pub(super) record: Arc<FrameRecord>,
    pub(super) mask: Option<Arc<dyn Picture>>,
}

/// The thread that draws and pushes.
pub(super) struct Worker {
    pub(super) jobs: Receiver<DrawJob>,
    pub(super) appsrc: gst_app::AppSrc,
    pub(super) painter: Painter,
    pub(super) times: Timeline,
    pub(super) gate: Option<Arc<Gate>>,
    pub(super) progress: Arc<PipelineProgress>,
    pub(super) shown: Arc<Shown>,
    /// Where frames wait while the run pauses.
    pub(super) turnstile: Option<Turnstile>,
    /// What steers the run by what it shows.
    pub(super) steering: Option<Arc<Steering>>,
}

impl Worker {
    /// Ends when no more frames come, or as soon as the pipeline takes none: why that is, its bus says.
    pub(super) fn run(mut self) {
        while let Ok(job) = self.jobs.recv() {
            if !self.wait_for_turn() {
                continue;
            }
            if let Err(error) = self.adapt(&job.frame.format) {
                gst::element_error!(self.appsrc, gst::CoreError::Negotiation, ("no such frames: {error}"));
                return;
            }
            let times = self.times.next(&job.frame.meta, || running_time(&self.appsrc));
            let painted = self.painter.paint(&job.frame, &job.record, job.mask.as_ref(), times);
            self.shown.expect(times.pts, job.frame.circumstances.captured);
            let (record, size) = (job.record.clone(), job.frame.format.size);
            // Back to the decoder before we wait for the encoder.
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
            if self.appsrc.push_buffer(buffer).is_err() {
                return;
            }
            if let Some(steering) = &self.steering {
                steering.show(&record, size);
            }
            self.shown.pushed.fetch_add(1, Ordering::Relaxed);
            self.progress.moved.fetch_add(1, Ordering::Relaxed);
        }
        if let Some(gate) = &self.gate {
            gate.close();
        }
        // Refused only by a pipeline that is closed already.
        let _ = self.appsrc.end_of_stream();
    }

    /// Waits while the run pauses. False if nobody looks at frames any more.
    fn wait_for_turn(&mut self) -> bool {
        let Some(turnstile) = &mut self.turnstile else { return true };
        while !turnstile.is_open() && !self.progress.is_over.load(Ordering::Relaxed) {
            std::thread::sleep(PAUSE_CHECK);
        }
        turnstile.pass();
        !turnstile.is_stopped()
    }

    /// Tells the pipeline about frames that are unlike those before.
    fn adapt(&mut self, format: &VideoFormat) -> Result<(), gst::glib::BoolError> {
        if self.painter.is_for(format) {
            return Ok(());
        }
        self.painter = self.painter.adapted(format)?;
        self.times.set_rate(format.frame_rate);
        // Takes effect behind the buffers that wait.
        self.appsrc.set_caps(Some(&self.painter.info.to_caps()?));
        Ok(())
    }
}

/// How long the output has been playing. While it is being started an element has a clock, but not yet the
/// time from which to count: it would tell the clock's own time, and the first frame would be shown after as
/// many hours.
pub(super) fn running_time(appsrc: &gst_app::AppSrc) -> Option<gst::ClockTime> {
    if appsrc.current_state() == gst::State::Playing { appsrc.current_running_time() } else { None }
}
