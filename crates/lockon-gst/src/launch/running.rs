//! A pipeline while it runs: its states, and its messages for the owner.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, RecvTimeoutError};
use gst::prelude::*;

use super::bus::sort;
use super::{LOG, gl, reserve};
use crate::damage::Errors;
use lockon_core::control::Control;
use lockon_core::error::{Error, Result, catch_panic};
use lockon_core::locks::Ranked;

/// A pipeline from its first change of state to NULL: dropping this stops it, on every path.
///
/// Dropping waits for the pipeline's threads. Do not drop it on one of them, and first release what they may
/// wait for.
#[derive(Debug)]
pub struct Running {
    pipeline: gst::Pipeline,
    news: Receiver<News>,
    heard: Arc<Heard>,
}

/// State that earlier messages on the bus leave for later ones.
#[derive(Debug, Default)]
pub(super) struct Heard {
    /// The plugin that is missing.
    pub(super) missing: Ranked<Option<Error>, 205>,
    /// The run to stop when the pipeline's window is closed.
    pub(super) control: OnceLock<Control>,
    pub(super) is_closed: AtomicBool,
    /// It did not stop in time.
    pub(super) is_left: AtomicBool,
    /// Errors after which its threads continued.
    pub(super) errors: Errors,
    /// Frames came too late to be shown. Outputs report that each second.
    pub(super) is_late: AtomicBool,
    /// The last redirection that an HTTP source did not follow.
    pub(super) redirection: Ranked<Option<Redirection>, 205>,
}

/// A redirection by an HTTP server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Redirection {
    /// The address that was requested.
    pub from: String,
    /// The address that the server gave instead, which may be relative.
    pub to: String,
}

/// A message of a running pipeline for its owner.
#[derive(Debug)]
pub enum News {
    /// All sinks have a frame, or have ended without one.
    Prerolled,
    /// All sinks have ended.
    Ended,
    /// The window in which it ends was closed: it takes no more frames.
    Closed,
    /// Something failed; later messages are consequences.
    Failed(Error),
    /// A resource is in trouble: a server closed the connection. Some sources report an ordinary end then.
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
            // The bus is not read, so nothing may stay on it.
            bus.set_sync_handler(move |_, message| {
                if let gst::MessageView::StreamStatus(status) = message.view() {
                    reserve::attend(status, &sender);
                }
                gl::attend(message);
                if let Err(said) = catch_panic(|| sort(message, &of_bus, &sender)) {
                    let what = "the bus handler".to_owned();
                    let _ = sender.send(News::Failed(Error::Panicked { what, message: said }));
                }
                gst::BusSyncReply::Drop
            });
        }
        Self { pipeline, news, heard }
    }

    /// Stops that run as soon as the pipeline's window is closed, also if no thread listens by then.
    pub fn stop_when_closed(&self, control: &Control) {
        // There is one run, and it is set once.
        let _ = self.heard.control.set(control.clone());
    }

    /// The pipeline.
    pub fn pipeline(&self) -> &gst::Pipeline {
        &self.pipeline
    }

    /// Errors so far after which its elements continued.
    pub(crate) fn errors(&self) -> &Errors {
        &self.heard.errors
    }

    /// The last redirection that an HTTP source was not allowed to follow, which then fails.
    pub fn redirection(&self) -> Option<Redirection> {
        self.heard.redirection.lock().clone()
    }

    /// The pipeline's messages, in order, for a `select!`. Pass each to [`Running::attend`].
    pub fn news(&self) -> &Receiver<News> {
        &self.news
    }

    /// Changes the pipeline's state, without waiting where the change takes its time.
    ///
    /// # Errors
    /// The error of the failing element.
    pub fn set_state(&self, state: gst::State) -> Result<gst::StateChangeSuccess> {
        reserve::check()?;
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
    /// `Pipeline` or `Resource` if an element fails, `MissingElement` if one is not installed.
    pub fn wait(&self, timeout: Duration) -> Result<Option<Milestone>> {
        let deadline = Instant::now() + timeout;
        let next = || match self.news.try_recv() {
            // Waiting, even for no time, would yield the processor, and this runs for each frame.
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

    /// Handles a message; returns the milestone that it reports, if any.
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

    /// Sets the pipeline to NULL, and waits at most `limit` for its threads to end; false if they do not. A
    /// thread in a system call cannot be stopped, such as one that writes to a pipe without a reader. Then
    /// the pipeline is left as it is, also when this is dropped.
    pub fn stop_within(&self, limit: Duration) -> bool {
        let (sender, stopped) = crossbeam_channel::bounded(1);
        let pipeline = self.pipeline.clone();
        let stop = move || {
            let _ = pipeline.set_state(gst::State::Null);
            // The receiver is gone if it took too long.
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
