//! The progress of a run, counted on its thread and read by another.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use super::job::Progress;
use lockon_core::error::Result;
use lockon_core::ports::{Delivery, Sink};

/// A time that is not known.
const UNKNOWN: u64 = u64::MAX;

/// The counts of one run.
#[derive(Debug)]
pub(super) struct Count {
    begun: Instant,
    frames: AtomicU64,
    first_ns: AtomicU64,
    last_ns: AtomicU64,
    length_ns: AtomicU64,
}

impl Count {
    pub(super) fn new() -> Arc<Self> {
        let unknown = || AtomicU64::new(UNKNOWN);
        let (first_ns, last_ns, length_ns) = (unknown(), unknown(), unknown());
        Arc::new(Self { begun: Instant::now(), frames: AtomicU64::new(0), first_ns, last_ns, length_ns })
    }

    /// Sets the length of the video that will be processed, if it is known.
    pub(super) fn set_length(&self, ns: Option<u64>) {
        self.length_ns.store(ns.unwrap_or(UNKNOWN), Ordering::Relaxed);
    }

    /// Frames so far.
    pub(super) fn frames(&self) -> u64 {
        self.frames.load(Ordering::Relaxed)
    }

    /// How far it is now.
    pub(super) fn progress(&self, id: &str) -> Progress {
        let frames = self.frames();
        let known = |ns: &AtomicU64| Some(ns.load(Ordering::Relaxed)).filter(|ns| *ns != UNKNOWN);
        let (first, last) = (known(&self.first_ns), known(&self.last_ns));
        let done = first.zip(last).map(|(first, last)| last.saturating_sub(first));
        let length = known(&self.length_ns).filter(|length| *length > 0);
        let share = done.zip(length).map(|(done, length)| (done as f64 / length as f64).min(1.0));
        let fps = frames as f64 / self.begun.elapsed().as_secs_f64().max(1e-9);
        Progress { id: id.to_owned(), frames, fps, share }
    }
}

/// Counts the frames of a run.
pub(super) struct Counting(pub(super) Arc<Count>);

impl Sink for Counting {
    fn name(&self) -> &'static str {
        "farm"
    }

    fn is_output(&self) -> bool {
        false
    }

    fn deliver(&mut self, delivery: &Delivery<'_>) -> Result<()> {
        self.0.frames.fetch_add(1, Ordering::Relaxed);
        if let Some(ns) = delivery.record.pts_ns {
            let _ = self.0.first_ns.compare_exchange(UNKNOWN, ns, Ordering::Relaxed, Ordering::Relaxed);
            self.0.last_ns.store(ns, Ordering::Relaxed);
        }
        Ok(())
    }
}
