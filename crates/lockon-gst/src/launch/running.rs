//! A pipeline while it runs: its states, and what it says that matters to whoever holds it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, RecvTimeoutError};
use gst::prelude::*;

use super::LOG;
use super::bus::sort;
use crate::damage::Errors;
use lockon_core::control::Control;
use lockon_core::error::{Error, Result, catch_panic};

/// A pipeline from its first change of state to NULL: dropping this stops it, on every path.
///
/// Dropping waits for the pipeline's threads. Whoever drops it must not be one of them, and must first have
/// let go of what they may be waiting for.
#[derive(Debug)]
pub struct Running {
    pipeline: gst::Pipeline,
    news: Receiver<News>,
    heard: Arc<Heard>,
}

/// What was on the bus, for what comes later.
#[derive(Debug, Default)]
pub(super) struct Heard {
    /// Which plugin is missing.
    pub(super) missing: Mutex<Option<Error>>,
    /// The run that ends when the window is closed in which the pipeline ends.
    pub(super) control: OnceLock<Control>,
    pub(super) is_closed: AtomicBool,
    /// It did not stop in time.
    pub(super) is_left: AtomicBool,
    /// What its threads went on from.
    pub(super) errors: Errors,
    /// That frames come too late to be shown, which outputs say each second.
    pub(super) is_late: AtomicBool,
}

/// What a running pipeline said that matters to whoever holds it.
#[derive(Debug)]
pub enum News {
    /// All sinks have a frame, or have ended without one.
    Prerolled,
    /// All sinks have ended.
    Ended,
    /// Somebody closed the window in which it ends, so that it takes no more frames.
    Closed,
    /// Something failed; what follows are consequences.
    Failed(Error),
    /// A resource is in trouble: a server that closed the connection, after which some sources tell an
    /// ordinary end.
    InTrouble(Error),
    /// The latency must be worked out again. [`Running::attend`] does that.
    Latency,
    /// The clock is gone and another must be chosen. [`Running::attend`] does that.
    ClockLost,
}

/// The points that a pipeline passes if all goes well.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Milestone {
    /// All sinks have a frame, or have ended without one.
    Prerolled,
    /// All sinks have ended.
    Ended,
    /// Its window was closed. Nothing else comes.
    Closed,
}

impl Running {
    /// Takes charge of a pipeline that has not been started yet.
    pub fn new(pipeline: gst::Pipeline) -> Self {
        let (sender, news) = crossbeam_channel::unbounded();
        let heard = Arc::new(Heard::default());
        let of_bus = heard.clone();
        if let Some(bus) = pipeline.bus() {
            // Nobody reads the bus, so nothing may stay on it.
            bus.set_sync_handler(move |_, message| {
                if let Err(said) = catch_panic(|| sort(message, &of_bus, &sender)) {
                    let what = "the bus handler".to_owned();
                    let _ = sender.send(News::Failed(Error::Panicked { what, message: said }));
                }
                gst::BusSyncReply::Drop
            });
        }
        Self { pipeline, news, heard }
    }

    /// Stops that run as soon as somebody closes the window in which the pipeline ends, whoever listens by
    /// then.
    pub fn stop_when_closed(&self, control: &Control) {
        // There is one run, and it is told once.
        let _ = self.heard.control.set(control.clone());
    }

    /// The pipeline.
    pub fn pipeline(&self) -> &gst::Pipeline {
        &self.pipeline
    }

    /// Errors so far that its elements went on from.
    pub(crate) fn errors(&self) -> &Errors {
        &self.heard.errors
    }

    /// What the pipeline says, in order, for a `select!`; what is taken out belongs into [`Running::attend`].
    pub fn news(&self) -> &Receiver<News> {
        &self.news
    }

    /// Changes the pipeline's state, without waiting where the change takes its time.
    ///
    /// # Errors
    /// What the failing element said.
    pub fn set_state(&self, state: gst::State) -> Result<gst::StateChangeSuccess> {
        self.pipeline.set_state(state).map_err(|_| {
            let mut said = self.news.try_iter();
            let first = said.find_map(|news| if let News::Failed(error) = news { Some(error) } else { None });
            first.unwrap_or_else(|| Error::Pipeline {
                element: self.pipeline.name().into(),
                message: format!("cannot be set to {state:?}"),
                debug: String::new(),
            })
        })
    }

    /// Waits for the next milestone, until `timeout` at most, and keeps the pipeline in order meanwhile.
    ///
    /// # Errors
    /// What failed: `Pipeline` or `Resource`, or `MissingElement` where an element would have been needed.
    pub fn wait(&self, timeout: Duration) -> Result<Option<Milestone>> {
        let deadline = Instant::now() + timeout;
        let next = || match self.news.try_recv() {
            // Waiting, even for no time, would give up the processor, and this is asked for each frame.
            Err(_) if !timeout.is_zero() => self.news.recv_deadline(deadline).ok(),
            news => news.ok(),
        };
        while let Some(news) = next() {
            if let Some(milestone) = self.attend(news)? {
                return Ok(Some(milestone));
            }
        }
        Ok(None)
    }

    /// Does what a piece of news asks for; gives the milestone it tells, if it tells one.
    ///
    /// # Errors
    /// As [`Running::wait`].
    pub fn attend(&self, news: News) -> Result<Option<Milestone>> {
        match news {
            News::Prerolled => return Ok(Some(Milestone::Prerolled)),
            News::Ended => return Ok(Some(Milestone::Ended)),
            News::Closed => return Ok(Some(Milestone::Closed)),
            News::Failed(error) => return Err(error),
            // It was logged as the warning that it was.
            News::InTrouble(_) => {}
            News::Latency => {
                if let Err(error) = self.pipeline.recalculate_latency() {
                    tracing::warn!(target: LOG, "latency of the pipeline is unknown: {error}");
                }
            }
            News::ClockLost => {
                self.set_state(gst::State::Paused)?;
                self.set_state(gst::State::Playing)?;
            }
        }
        Ok(None)
    }

    /// Sets the pipeline to NULL, and waits until `limit` at most for its threads to end; false if they do
    /// not. A thread that the system makes wait hears of nothing: one that writes to a pipe which nobody
    /// reads. Then the pipeline is left as it is, also when this is dropped.
    pub fn stop_within(&self, limit: Duration) -> bool {
        let (sender, stopped) = crossbeam_channel::bounded(1);
        let pipeline = self.pipeline.clone();
        let stop = move || {
            let _ = pipeline.set_state(gst::State::Null);
            // Nobody waits any more for what took too long.
            let _ = sender.send(());
        };
        if std::thread::Builder::new().name("lockon-stop".to_owned()).spawn(stop).is_err() {
            self.stop();
            return true;
        }
        let is_stopped = stopped.recv_timeout(limit) != Err(RecvTimeoutError::Timeout);
        self.heard.is_left.store(!is_stopped, Ordering::Relaxed);
        is_stopped
    }

    /// Sets the pipeline to NULL, and waits for its threads to end.
    pub fn stop(&self) {
        // A second change of state would wait for the first.
        if self.heard.is_left.load(Ordering::Relaxed) {
            return;
        }
        // Going down to NULL cannot fail usefully: there is nothing left to be done about it.
        let _ = self.pipeline.set_state(gst::State::Null);
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Runs the body of a pad's callback. A panic must not leave it: its caller is C, and the process would end
/// with its files half written. The pad's element fails instead, as if it had failed by itself, and the
/// callback answers `otherwise`.
pub(crate) fn guarded<T>(pad: &gst::Pad, otherwise: T, body: impl FnOnce() -> T) -> T {
    catch_panic(body).unwrap_or_else(|message| {
        if let Some(element) = pad.parent_element() {
            gst::element_error!(element, gst::LibraryError::Failed, ("a callback panicked: {message}"));
        }
        otherwise
    })
}
