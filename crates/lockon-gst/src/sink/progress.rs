//! Checks whether anything still moves in a pipeline, with a time limit.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use gst::prelude::*;

use super::{Shown, fault};
use crate::launch;
use crate::stuck::Stillness;
use lockon_core::error::Result;

/// Shows that something still moves in a pipeline.
#[derive(Default)]
pub(super) struct PipelineProgress {
    /// Frames that the worker pushed and buffers that arrived at the pipeline's ends.
    pub(super) moved: AtomicU64,
    /// Ends that have seen the end of the stream.
    pub(super) ended: AtomicUsize,
    /// Ends.
    pub(super) ends: AtomicUsize,
    /// The pipeline is about to be stopped.
    pub(super) is_over: AtomicBool,
}

impl PipelineProgress {
    /// Counts buffers that arrive at the ends of `pipeline`.
    pub(super) fn watch(self: &Arc<Self>, pipeline: &gst::Pipeline, shown: &Arc<Shown>) {
        let pads = pipeline
            .iterate_sinks()
            .into_iter()
            .flatten()
            .filter_map(|end| end.sink_pads().into_iter().next());
        for pad in pads {
            self.ends.fetch_add(1, Ordering::Relaxed);
            let types = gst::PadProbeType::BUFFER
                | gst::PadProbeType::BUFFER_LIST
                | gst::PadProbeType::EVENT_DOWNSTREAM;
            let (progress, shown) = (self.clone(), shown.clone());
            pad.add_probe(types, move |pad, info| {
                progress.moved.fetch_add(1, Ordering::Relaxed);
                if let Some(pts) = info.buffer().and_then(|buffer| buffer.pts()) {
                    launch::guarded(pad, (), || shown.arrived(pts.nseconds()));
                }
                if info.event().is_some_and(|event| event.type_() == gst::EventType::Eos) {
                    progress.ended.fetch_add(1, Ordering::Relaxed);
                }
                gst::PadProbeReturn::Ok
            });
        }
    }
}

/// Waits for a pipeline as long as something moves in it.
pub(super) struct Patience {
    moved: u64,
    still: Stillness,
}

impl Patience {
    pub(super) fn new(progress: &PipelineProgress) -> Self {
        Self { moved: progress.moved.load(Ordering::Relaxed), still: Stillness::default() }
    }

    /// Fails if, at `now`, nothing has moved for longer than `limit`.
    pub(super) fn check(&mut self, progress: &PipelineProgress, now: Instant, limit: Duration) -> Result<()> {
        if progress.moved.load(Ordering::Relaxed) != self.moved {
            *self = Self::new(progress);
        }
        if self.still.look(now) > limit {
            return Err(fault(format!("nothing has moved in it for {} s", limit.as_secs())));
        }
        Ok(())
    }
}
