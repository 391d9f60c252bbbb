//! A playing pipeline: starts it, passes frames to its worker, and ends it on every path.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, Sender, TrySendError, select};
use gst::prelude::*;

use super::appsrc::{count_drops, prepare};
use super::containers::MP4_TIMESCALE;
use super::numbered::Numbers;
use super::painter::{Painter, Shows};
use super::progress::{Patience, PipelineProgress};
use super::screen::{NO_WINDOW, REMEDY};
use super::timeline::Timeline;
use super::worker::{DrawJob, SinkWorker};
use super::{Destination, LOG, Shown, VideoSink, fault};
use crate::launch::{self, Milestone, News};
use crate::sound::{self, Gate};
use crate::window::{self, Steering};
use lockon_core::config::View;
use lockon_core::control::{Control, Turnstile};
use lockon_core::error::Result;
use lockon_core::frame::VideoFormat;

/// Frames that may wait for the worker. Together with the one being copied a sink keeps two decoded pictures
/// at most, since a decoder's pool is small.
const WAITING: usize = 1;

/// Drawn frames that may wait in the `appsrc` of a screen: they are still shown after a request to pause.
const QUEUED_TO_SHOW: u64 = 1;

/// How often the wait for the end is interrupted to check whether anything still moves.
pub(super) const POLL: Duration = Duration::from_millis(50);

/// Maximum time without any movement in an output. Slow encoders move, broken ones do not.
pub(super) const PATIENCE: Duration = Duration::from_secs(if cfg!(test) { 2 } else { 30 });

/// As `PATIENCE`, after a request to end the run: the user waits for that.
pub(super) const HURRY: Duration = Duration::from_secs(if cfg!(test) { 1 } else { 10 });

/// How long frames are still passed on after a request to end the run.
pub(super) const LAST_CALL: Duration = Duration::from_secs(2);

/// Time limit for the other ends of a pipeline to complete their files after one has failed.
const LAST_RITES: Duration = Duration::from_secs(1);

/// Time limit for a pipeline's threads to end. Each checks after at most one frame.
pub(super) const TO_STOP: Duration = Duration::from_secs(if cfg!(test) { 2 } else { 5 });

/// A pipeline that plays, and its worker. Dropping it stops both, wherever they wait, or abandons them if the
/// system makes them wait.
pub(super) struct Playing {
    pipeline: launch::Running,
    gate: Option<Arc<Gate>>,
    jobs: Option<Sender<DrawJob>>,
    /// The other end of `jobs`, for a live source: a frame that the worker did not take in time is taken out
    /// for a newer one.
    late: Option<Receiver<DrawJob>>,
    shown: Arc<Shown>,
    worker: Option<JoinHandle<()>>,
    progress: Arc<PipelineProgress>,
    /// The format that the pipeline was started for.
    format: Arc<VideoFormat>,
    is_constant_rate: bool,
    /// Sources beside ours in a pipeline of the user's: they must get the end of the stream too.
    other_sources: Vec<gst::Element>,
    /// Frames passed to the worker.
    pub(super) delivered: u64,
    /// True if every sink has reported its end, or the window was closed.
    has_ended: bool,
    control: Option<Control>,
    run: Control,
    /// The first time that frames found no room after a request to end the run.
    hurries: Option<Instant>,
    /// Frames that found no room.
    left_out: u64,
}

impl Playing {
    /// Starts the pipeline and the worker for frames of that format.
    pub(super) fn start(sink: &VideoSink, running: launch::Running, format: &VideoFormat) -> Result<Self> {
        let (container, input) = match &sink.target {
            Destination::File { container, sound, .. } => (Some(*container), sound.as_deref()),
            Destination::Display { .. } | Destination::User => (None, None),
        };
        if container.is_some_and(|c| c.is_constant_rate) && format.frame_rate.0 == 0 {
            return Err(fault(
                "AVI needs a constant frame rate, which this video does not have (.mp4, .mkv and .webm do not)",
            ));
        }
        let needs_even_size = container.is_some_and(|c| c.needs_even_size);
        let is_grey = container.is_some_and(|c| c.is_lossless) && sink.view == View::Mask;
        let shows = Shows { is_grey, ..sink.shows.clone() };
        let painter =
            Painter::with(format, sink.view, needs_even_size, &shows).map_err(|e| fault(e.to_string()))?;
        let pipeline = running.pipeline();
        let appsrc = sink.launch.element(pipeline, "results")?.downcast::<gst_app::AppSrc>();
        let appsrc = appsrc.map_err(|_| sink.launch.fault("`results` is not an appsrc"))?;
        prepare(&appsrc, &painter.info, sink.is_live);
        if let Some(control) = &sink.control {
            running.stop_when_closed(control);
        }
        let (mut turnstile, mut steering) = (None, None);
        if let Destination::Display { title } = &sink.target {
            window::set_title(&appsrc, title);
            window::show_late_frames(pipeline);
            if !sink.is_live {
                appsrc.set_max_buffers(QUEUED_TO_SHOW);
            }
            if let Some(control) = sink.control.clone() {
                // A live source has few frames waiting, and they are the newest.
                turnstile = (!sink.is_live).then(|| Turnstile::new(&control));
                let steers = Arc::new(Steering::new(control));
                steering = Some(steers.clone());
                window::watch(&appsrc, move |action| steers.hear(&action));
            }
        }
        // A pad's property, which text cannot set before the pad is there.
        if container.is_some()
            && let Some(pad) = pipeline.by_name("mux").and_then(|mux| mux.static_pad("video_0"))
            && pad.has_property("trak-timescale")
        {
            pad.set_property("trak-timescale", MP4_TIMESCALE);
        }
        let numbers = match &sink.target {
            Destination::File { numbered: Some(_), .. } => {
                Some(Numbers::attach(&sink.launch.element(pipeline, "file")?))
            }
            _ => None,
        };
        let gate = match (container, input) {
            (Some(container), Some(input)) => {
                sound::attach(&running, container.extension, input, sink.from_zero)?
            }
            _ => None,
        };

        // In a file, frames keep the input's times; on a screen, the clock decides.
        let on_clock = sink.is_live || matches!(sink.target, Destination::Display { .. });
        let constant_rate = container.is_some_and(|c| c.is_constant_rate);
        let mut times = Timeline::new(format.frame_rate, on_clock, constant_rate.then(|| sink.name.clone()));
        times.origin = (!sink.from_zero).then_some(0);
        let progress = Arc::new(PipelineProgress::default());
        let is_users = matches!(sink.target, Destination::User);
        let sources = pipeline.iterate_sources().into_iter().flatten();
        let other_sources = sources.filter(|source| is_users && source.name() != "results").collect();
        progress.watch(pipeline, &sink.shown);
        if sink.is_live {
            count_drops(&appsrc, &sink.shown);
        }
        let (jobs, waiting) = crossbeam_channel::bounded(WAITING);
        let late = sink.is_live.then(|| waiting.clone());
        let worker = SinkWorker {
            jobs: waiting,
            appsrc,
            painter,
            times,
            numbers,
            gate: gate.clone(),
            progress: progress.clone(),
            shown: sink.shown.clone(),
            turnstile,
            steering,
            last: None,
        };
        let mut playing = Self {
            pipeline: running,
            gate,
            jobs: Some(jobs),
            late,
            shown: sink.shown.clone(),
            worker: None,
            progress,
            format: Arc::new(format.clone()),
            is_constant_rate: constant_rate,
            other_sources,
            delivered: 0,
            has_ended: false,
            control: sink.control.clone(),
            run: sink.run.clone(),
            hurries: None,
            left_out: 0,
        };
        playing.pipeline.set_state(gst::State::Playing)?;
        if !window::is_shown(playing.pipeline.pipeline()) {
            return Err(fault(format!("{NO_WINDOW}{REMEDY}")));
        }
        let thread = std::thread::Builder::new().name("lockon-sink".to_owned());
        let worker = thread.spawn(move || worker.run());
        playing.worker = Some(worker.map_err(|e| fault(format!("no thread can be started: {e}")))?);
        Ok(playing)
    }

    /// True if the output has the sound of the input.
    pub(super) fn has_sound(&self) -> bool {
        self.gate.is_some()
    }

    /// True if a file begun for other frames can hold these too. With times the rate does not matter.
    pub(super) fn holds(&self, format: &VideoFormat) -> bool {
        let begun = &self.format;
        let same_rate = !self.is_constant_rate || begun.frame_rate == format.frame_rate;
        same_rate
            && (begun.size, begun.pixels, begun.pixel_aspect)
                == (format.size, format.pixels, format.pixel_aspect)
    }

    /// Waits until the worker accepts a frame, or the pipeline fails, or nothing has moved in it for too
    /// long.
    pub(super) fn hand_over(&mut self, job: DrawJob) -> Result<()> {
        // Messages come first: a failed pipeline accepts no more frames.
        self.listen(Duration::ZERO)?;
        if !self.has_ended && self.late.is_some() {
            return self.replace(job);
        }
        let mut patience = Patience::new(&self.progress);
        while !self.has_ended {
            let jobs = self.jobs.as_ref().expect("closed by drain and drop only");
            select! {
                send(jobs, job) -> sent => {
                    // The worker ends early only if it panics, or if the pipeline is closed.
                    return if sent.is_ok() { self.delivered += 1; Ok(()) } else { self.join_worker() };
                }
                recv(self.pipeline.news()) -> news => self.heed(news.ok())?,
                default(POLL) => {
                    if self.is_too_late() {
                        self.left_out += 1;
                        return Ok(());
                    }
                    self.check(&mut patience)?;
                }
            }
        }
        // A user's pipeline may end before we do.
        Ok(())
    }

    /// True if the run was requested to end, and the output has accepted no frame for a while since.
    fn is_too_late(&mut self) -> bool {
        let is_stopped = self.run.is_stopped();
        is_stopped && self.hurries.get_or_insert_with(Instant::now).elapsed() > LAST_CALL
    }

    /// Passes on a live source's frame without waiting: a waiting frame, if any, is dropped.
    fn replace(&mut self, mut job: DrawJob) -> Result<()> {
        if self.worker.as_ref().is_some_and(JoinHandle::is_finished) {
            return self.join_worker();
        }
        let (Some(jobs), Some(late)) = (&self.jobs, &self.late) else { return Ok(()) };
        while let Err(TrySendError::Full(back)) = jobs.try_send(job) {
            job = back;
            if late.try_recv().is_ok() {
                self.shown.replaced.fetch_add(1, Ordering::Relaxed);
            }
        }
        self.delivered += 1;
        Ok(())
    }

    /// Waits until all frames passed on are encoded and written.
    pub(super) fn drain(&mut self) -> Result<()> {
        self.jobs = None;
        if self.left_out > 0 {
            tracing::warn!(target: LOG,
                "the output was too slow: the last {} frames are missing in it",
                self.left_out
            );
        }
        let mut patience = Patience::new(&self.progress);
        while !self.has_ended {
            if self.worker.as_ref().is_some_and(JoinHandle::is_finished) {
                self.join_worker()?;
                // The worker has ended ours, after its last frame.
                for source in &self.other_sources {
                    source.send_event(gst::event::Eos::new());
                }
            }
            self.listen(POLL)?;
            self.check(&mut patience)?;
        }
        Ok(())
    }

    /// While the run pauses nothing moves, which is correct.
    fn check(&self, patience: &mut Patience) -> Result<()> {
        if self.control.as_ref().is_some_and(Control::is_paused) {
            *patience = Patience::new(&self.progress);
        }
        let limit = if self.run.is_stopped() { HURRY } else { PATIENCE };
        patience.check(&self.progress, Instant::now(), limit)
    }

    /// Waits for messages of the pipeline, at most for `timeout`.
    fn listen(&mut self, timeout: Duration) -> Result<()> {
        let milestone = self.pipeline.wait(timeout)?;
        self.pass(milestone);
        Ok(())
    }

    fn heed(&mut self, news: Option<News>) -> Result<()> {
        if let Some(news) = news {
            let milestone = self.pipeline.attend(news)?;
            self.pass(milestone);
        }
        Ok(())
    }

    fn pass(&mut self, milestone: Option<Milestone>) {
        if milestone == Some(Milestone::Closed) && !self.has_ended {
            self.let_others_finish();
        }
        self.has_ended |= matches!(milestone, Some(Milestone::Ended | Milestone::Closed));
    }

    fn join_worker(&mut self) -> Result<()> {
        match self.worker.take().map(JoinHandle::join) {
            Some(Err(_)) => Err(fault("the thread that draws panicked")),
            _ => Ok(()),
        }
    }

    /// After an error, or when a window was closed: ends the stream and gives the other ends of a pipeline
    /// with several the time to complete their files.
    pub(super) fn let_others_finish(&mut self) {
        let ends = self.progress.ends.load(Ordering::Relaxed);
        if ends < 2 {
            return;
        }
        self.jobs = None;
        if let Some(gate) = &self.gate {
            gate.close();
        }
        let mut moved = 0;
        let mut deadline = Instant::now() + LAST_RITES;
        // The end that failed may or may not see the end of the stream.
        while self.progress.ended.load(Ordering::Relaxed) < ends && Instant::now() <= deadline {
            let now_moved = self.progress.moved.load(Ordering::Relaxed);
            if now_moved != moved {
                (moved, deadline) = (now_moved, Instant::now() + LAST_RITES);
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

impl Drop for Playing {
    /// Wakes all waiting threads, and only then waits itself: sound at its gate, a push in the appsrc, the
    /// worker for a frame or for the end of a pause.
    fn drop(&mut self) {
        self.progress.is_over.store(true, Ordering::Relaxed);
        self.jobs = None;
        if let Some(gate) = &self.gate {
            gate.open();
        }
        if self.pipeline.stop_within(TO_STOP) {
            let _ = self.join_worker();
        } else {
            // It may wait for room in the pipeline.
            tracing::warn!(target: LOG, "an output hangs and is abandoned: check that something reads its end");
        }
    }
}
