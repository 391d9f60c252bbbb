//! Counts the frames of runs on their threads, for other threads to read.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use super::Run;
use lockon_core::error::Result;
use lockon_core::ports::{Delivery, Sink};

/// A time that is not known.
const UNKNOWN: u64 = u64::MAX;

/// The frames of one run, or of several together.
#[derive(Debug)]
pub struct Count {
    begun: Instant,
    frames: AtomicU64,
    first_ns: AtomicU64,
    last_ns: AtomicU64,
    length_ns: AtomicU64,
}

impl Count {
    /// A count of no frames, whose time begins now.
    pub fn new() -> Arc<Self> {
        let unknown = || AtomicU64::new(UNKNOWN);
        let (first_ns, last_ns, length_ns) = (unknown(), unknown(), unknown());
        Arc::new(Self { begun: Instant::now(), frames: AtomicU64::new(0), first_ns, last_ns, length_ns })
    }

    /// Counts the frames of a run too.
    pub fn watch(self: &Arc<Self>, run: &mut Run) {
        self.length_ns.store(run.length_ns().unwrap_or(UNKNOWN), Ordering::Relaxed);
        run.add_sink(Box::new(Counting(self.clone())));
    }

    /// Frames so far.
    pub fn frames(&self) -> u64 {
        self.frames.load(Ordering::Relaxed)
    }

    /// Frames a second since this count was made.
    pub fn fps(&self) -> f64 {
        self.frames() as f64 / self.begun.elapsed().as_secs_f64().max(1e-9)
    }

    /// The processed share of the video where its length is known. Only for a count of one run.
    pub fn share(&self) -> Option<f64> {
        let known = |ns: &AtomicU64| Some(ns.load(Ordering::Relaxed)).filter(|ns| *ns != UNKNOWN);
        let done = known(&self.last_ns)?.saturating_sub(known(&self.first_ns)?);
        let length = known(&self.length_ns).filter(|length| *length > 0)?;
        Some((done as f64 / length as f64).min(1.0))
    }
}

struct Counting(Arc<Count>);

impl Sink for Counting {
    fn name(&self) -> &'static str {
        "count"
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
