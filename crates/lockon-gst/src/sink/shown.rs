//! How an output keeps up with a live source.

use std::collections::VecDeque;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use super::lock;
use lockon_core::results::Percentiles;
use lockon_core::stats::Durations;

/// Maximum frames on their way through an output whose time of capture is kept.
const PENDING: usize = 64;

/// How an output keeps up with a live source.
#[derive(Debug, Default)]
pub struct Shown {
    /// From capture to the output's end.
    latency: Mutex<Durations>,
    /// Frames that were not drawn because newer ones waited.
    pub(super) replaced: AtomicU64,
    /// Frames given to the pipeline.
    pub(super) pushed: AtomicU64,
    /// Frames that it accepted; it drops the others because newer ones wait.
    pub(super) left: AtomicU64,
    /// The frames on their way: their time in the output, and when they were captured.
    pending: Mutex<VecDeque<(u64, Instant)>>,
}

impl Shown {
    /// From capture to the output's end, so far.
    pub fn latency(&self) -> Percentiles {
        Percentiles::of(&lock(&self.latency))
    }

    /// Frames that were dropped because newer ones waited.
    pub(super) fn dropped(&self) -> u64 {
        let taken = self.left.load(Ordering::Relaxed);
        // One frame may be waiting.
        let in_pipeline = self.pushed.load(Ordering::Relaxed).saturating_sub(taken + 1);
        in_pipeline + self.replaced.load(Ordering::Relaxed)
    }

    /// A frame is about to be pushed.
    pub(super) fn expect(&self, pts: u64, captured: Option<Instant>) {
        let Some(captured) = captured else { return };
        let mut pending = lock(&self.pending);
        // The oldest never arrived: it was dropped on the way.
        if pending.len() == PENDING {
            pending.pop_front();
        }
        pending.push_back((pts, captured));
    }

    /// A frame is at the end of the pipeline.
    pub(super) fn arrived(&self, pts: u64) {
        let mut pending = lock(&self.pending);
        let found = pending.iter().position(|(time, _)| *time == pts);
        // The frames before it were dropped on the way.
        let captured = found.and_then(|at| pending.drain(..=at).next_back());
        drop(pending);
        if let Some((_, captured)) = captured {
            lock(&self.latency).record(captured.elapsed().as_micros() as u64);
        }
    }
}
