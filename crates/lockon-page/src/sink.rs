//! The sink between the engine and the page.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use lockon_core::error::Result;
use lockon_core::frame::VideoFormat;
use lockon_core::metrics::MetricsSink;
use lockon_core::ports::{Delivery, Sink};
use lockon_core::results::{Event, RunRecord, Summary};

use super::video::Video;

/// Shows a run on a [`Page`](super::Page). It never waits: it keeps the newest frame, and other threads make
/// pictures.
pub(super) struct PageSink {
    video: Arc<Video>,
    metrics: MetricsSink,
}

impl PageSink {
    pub(super) fn new(video: Arc<Video>, metrics: MetricsSink) -> Self {
        Self { video, metrics }
    }
}

impl PageSink {
    /// The run's number on the page.
    pub(super) fn number(&self) -> usize {
        self.video.id
    }
}

impl Sink for PageSink {
    fn name(&self) -> &'static str {
        "page"
    }

    fn is_output(&self) -> bool {
        false
    }

    fn wants_mask(&self) -> bool {
        self.video.masks.load(Ordering::Relaxed) > 0
    }

    fn begin(&mut self, run: &RunRecord, format: &VideoFormat) -> Result<()> {
        self.video.begin(run, format);
        self.metrics.begin(run, format)
    }

    fn deliver(&mut self, delivery: &Delivery<'_>) -> Result<()> {
        self.video.deliver(delivery);
        self.metrics.deliver(delivery)
    }

    fn note(&mut self, event: &Event) -> Result<()> {
        self.video.note(event);
        self.metrics.note(event)
    }

    fn finish(&mut self, summary: &Summary) -> Result<()> {
        self.video.finish(Some(summary));
        self.metrics.finish(summary)
    }
}

impl Drop for PageSink {
    /// A run that failed before its first frame has no summary.
    fn drop(&mut self) {
        self.video.finish(None);
    }
}
