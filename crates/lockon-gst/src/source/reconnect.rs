//! Reconnecting to a lost live source, and waiting for one that is not available yet.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crossbeam_channel::Receiver;

use super::errors::{failure, has_fault, may_pass};
use super::{LOG, SourceSpec, SourceState, VideoSource, playlist};
use crate::damage::Company;
use lockon_core::control::{Control, STOP_CHECK};
use lockon_core::error::{Error, Result};
use lockon_core::ports::Next;

/// Pause after the first failed try; each time twice as long, up to [`LONGEST_PAUSE`].
const FIRST_PAUSE: Duration = Duration::from_millis(250);

/// Maximum pause between two tries.
const LONGEST_PAUSE: Duration = Duration::from_secs(8);

/// State that a reconnected source takes over from the lost one.
#[derive(Clone, Default)]
pub(super) struct ResumePoint {
    pub(super) arrived: u64,
    pub(super) dropped: u64,
    pub(super) damaged: u64,
    pub(super) company: Arc<Company>,
    /// The clock and its time at the start of the run, so that times continue.
    pub(super) clock: Option<(gst::Clock, gst::ClockTime)>,
}

/// A search for a source that was lost, on a thread of its own, since opening one may take long.
pub(super) struct Reconnection {
    /// When the last frame came.
    since: Instant,
    reason: String,
    pub(super) found: Receiver<Result<VideoSource>>,
    give_up: Control,
    thread: Option<JoinHandle<()>>,
}

impl Reconnection {
    fn start(spec: SourceSpec, resume: ResumePoint, since: Instant, reason: String) -> Result<Self> {
        let (sender, found) = crossbeam_channel::bounded(1);
        let give_up = Control::new();
        let control = give_up.clone();
        let search = move || {
            playlist::await_renewal(&spec, &control);
            let opened = VideoSource::open_in_time(&spec, &control, &resume, |error, pause| {
                tracing::info!(target: LOG, "not connected, next try in {:.1} s: {error}", pause.as_secs_f64());
            });
            // The receiver is gone if the search was abandoned.
            let _ = sender.send(opened);
        };
        let thread = std::thread::Builder::new().name("lockon-reconnect".to_owned()).spawn(search);
        let thread = thread.map_err(|error| failure(format!("no thread can be started: {error}")))?;
        Ok(Self { since, reason, found, give_up, thread: Some(thread) })
    }
}

impl Drop for Reconnection {
    /// Waits for the thread, which checks `give_up` while it waits itself.
    fn drop(&mut self) {
        self.give_up.stop();
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

fn wait(pause: Duration, control: &Control) {
    let until = Instant::now() + pause;
    while Instant::now() < until && !control.is_stopped() {
        std::thread::sleep(STOP_CHECK);
    }
}

impl VideoSource {
    /// Opens the source as soon as it is available: retries after temporary errors, with growing pauses. A
    /// source that gave video once is also retried after errors of the stream. `tell` is called with each
    /// error and the pause after it.
    pub(super) fn open_in_time(
        spec: &SourceSpec,
        control: &Control,
        resume: &ResumePoint,
        mut tell: impl FnMut(&Error, Duration),
    ) -> Result<Self> {
        let mut pause = FIRST_PAUSE;
        let was_video = resume.arrived > 0;
        loop {
            match Self::open_after(spec, control, resume) {
                Err(error)
                    if !control.is_stopped() && (may_pass(&error) || was_video && has_fault(&error)) =>
                {
                    tell(&error, pause);
                }
                opened => return opened,
            }
            wait(pause, control);
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    /// Starts to reconnect after a loss: an error, or an unexpected end. Times continue by `clock`.
    pub(super) fn reconnect(
        &mut self,
        lost: Option<Error>,
        clock: Option<(gst::Clock, gst::ClockTime)>,
    ) -> Result<()> {
        let reason = match lost {
            Some(
                Error::NoVideo { reason, .. }
                | Error::Unreachable { reason, .. }
                | Error::Refused { reason, .. },
            ) => reason,
            Some(error) => error.to_string(),
            None => "it ended".to_owned(),
        };
        tracing::warn!(target: LOG, "{}: {reason}: reconnecting", self.spec.input);
        let load = |count: &AtomicU64| count.load(Ordering::Relaxed);
        let counts = &self.connection.counts;
        let (arrived, dropped) = (load(&counts.arrived), load(&counts.dropped));
        let damaged = self.damaged_before + self.connection.running.errors().so_far();
        let resume = ResumePoint { arrived, dropped, damaged, company: self.company.clone(), clock };
        let search = Reconnection::start(self.spec.clone(), resume, self.heard, reason)?;
        self.state = SourceState::Reconnecting(search);
        Ok(())
    }

    /// Continues with the source that was found, or fails for good.
    pub(super) fn come_back(&mut self, found: Result<Self>) -> Result<Next> {
        let SourceState::Reconnecting(search) = std::mem::replace(&mut self.state, SourceState::Failed)
        else {
            unreachable!("only a source that is away comes back");
        };
        let found = found?;
        self.damaged_before = found.damaged_before;
        self.connection = found.connection;
        self.resumes = (!self.is_real_time).then(|| search.since.elapsed());
        (self.state, self.heard) = (SourceState::Playing, Instant::now());
        Ok(Next::Gap { away: search.since.elapsed(), reason: search.reason.clone() })
    }
}
