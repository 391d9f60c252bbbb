//! The appsink's end: from GStreamer's streaming thread into a bounded channel.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, Sender, TrySendError};
use gst::prelude::*;

use super::ending::Ending;
use super::multipart::Multipart;
use super::reconnect::ResumePoint;
use crate::cuda::Surfaces;
use crate::launch;
use lockon_core::locks::Ranked;

/// Samples that wait in the channel of a file. Two keep the decoder busy while the engine uses one; pools are
/// small.
const LOSSLESS_WAITING: usize = 2;

/// Samples that wait in the channel of a live source: as many as come together. Older ones are dropped before
/// they are taken.
const LIVE_WAITING: usize = 4;

/// Samples that arrive within this time came together: less than a frame's time at 120 frames a second.
const TOGETHER: Duration = Duration::from_millis(8);

/// Maximum samples held at once, to size buffer pools: waiting ones, and those in a deep ring.
const SAMPLES_HELD: u32 = 10;

/// A sample with its number and the time of its arrival.
pub(super) struct NumberedSample {
    pub(super) index: u64,
    pub(super) at: Instant,
    pub(super) captured: Option<Instant>,
    pub(super) sample: gst::Sample,
}

/// Counts of a source so far; a reconnected source continues them.
#[derive(Debug, Default)]
pub(super) struct Counts {
    /// Frames that arrived, which is also the next one's number.
    pub(super) arrived: AtomicU64,
    /// Frames that were dropped because newer ones waited.
    pub(super) dropped: AtomicU64,
}

/// The streaming thread's end of the channel.
///
/// The appsink's callbacks hold it, and it has no reference to the pipeline, so there is no cycle.
#[derive(Default)]
pub(super) struct Feed {
    outlet: Ranked<Outlet, 107>,
    pub(super) counts: Arc<Counts>,
    ending: Arc<Ending>,
    multipart: Arc<Multipart>,
    /// True if times are those of the capture.
    is_real_time: AtomicBool,
    /// The first frame was taken while the pipeline paused, and must not come again.
    is_first_taken: AtomicBool,
}

/// The destination of samples.
#[derive(Clone, Default)]
enum Outlet {
    /// It is not known yet whether the source is live. No sample arrives before that is known.
    #[default]
    Closed,
    /// Every sample goes in, waiting for room. It ends when the receiver is dropped.
    Lossless(Sender<NumberedSample>),
    /// The newest sample goes in; if there is no room, the oldest is removed.
    Live(Sender<NumberedSample>, Receiver<NumberedSample>),
    /// The stream has ended. The channel's last sender is gone: the receiver notices that.
    Ended,
}

impl Feed {
    pub(super) fn new(resume: &ResumePoint, ending: &Arc<Ending>, multipart: &Arc<Multipart>) -> Self {
        let counts = Counts { arrived: resume.arrived.into(), dropped: resume.dropped.into() };
        let (ending, multipart) = (Arc::clone(ending), Arc::clone(multipart));
        Self { counts: Arc::new(counts), ending, multipart, ..Self::default() }
    }

    /// Connects it to the appsink. The first frame of a file stays in the appsink in PAUSED; it arrives here,
    /// once, as soon as the pipeline plays.
    pub(super) fn attach(self: &Arc<Self>, sink: &gst_app::AppSink) {
        // The appsink's own queue is not used: a sample is pulled as soon as it arrives.
        sink.set_max_buffers(1);
        sink.set_wait_on_eos(false);
        // Otherwise the appsink would keep the last sample from the decoder's pool.
        sink.set_enable_last_sample(false);
        let (of_samples, of_end) = (Arc::clone(self), Arc::clone(self));
        sink.set_callbacks(
            gst_app::AppSinkCallbacks::builder()
                .new_sample(move |sink| {
                    let sample = sink.pull_sample().map_err(|_| gst::FlowError::Eos)?;
                    let at = Instant::now();
                    of_samples.ending.hear_frame(at);
                    let is_real_time = of_samples.is_real_time.load(Ordering::Relaxed);
                    let captured = if is_real_time { captured(sink, &sample, at) } else { None };
                    if of_samples.is_first_taken.swap(false, Ordering::Relaxed) {
                        return Ok(gst::FlowSuccess::Ok);
                    }
                    let skipped = of_samples.multipart.take_skipped();
                    of_samples.counts.dropped.fetch_add(skipped, Ordering::Relaxed);
                    let index = skipped + of_samples.counts.arrived.fetch_add(skipped + 1, Ordering::Relaxed);
                    of_samples.push(NumberedSample { index, at, captured, sample })
                })
                .eos(move |_| {
                    of_end.ending.hear_end();
                    of_end.end();
                })
                .build(),
        );
    }

    /// The frame in the appsink of a paused pipeline; it does not arrive again when the pipeline plays.
    pub(super) fn take_first(&self, sink: &gst_app::AppSink) -> Option<NumberedSample> {
        let sample = sink.try_pull_preroll(gst::ClockTime::ZERO)?;
        self.is_first_taken.store(true, Ordering::Relaxed);
        let index = self.counts.arrived.fetch_add(1, Ordering::Relaxed);
        Some(NumberedSample { index, at: Instant::now(), captured: None, sample })
    }

    /// Opens the channel, before the pipeline plays.
    pub(super) fn open(&self, is_live: bool, is_real_time: bool) -> Receiver<NumberedSample> {
        self.is_real_time.store(is_real_time, Ordering::Relaxed);
        let (sender, receiver) =
            crossbeam_channel::bounded(if is_live { LIVE_WAITING } else { LOSSLESS_WAITING });
        let mut outlet = self.outlet.lock();
        match *outlet {
            Outlet::Ended => {}
            _ if is_live => *outlet = Outlet::Live(sender, receiver.clone()),
            _ => *outlet = Outlet::Lossless(sender),
        }
        receiver
    }

    /// Passes on one sample; on the streaming thread.
    pub(super) fn push(&self, arrival: NumberedSample) -> Result<gst::FlowSuccess, gst::FlowError> {
        // Cloned, so that the lock is not held while the channel is full.
        let outlet = self.outlet.lock().clone();
        match outlet {
            Outlet::Lossless(sender) => {
                // The receiver is gone: the pipeline will be stopped.
                sender.send(arrival).map_err(|_| gst::FlowError::Flushing)?;
            }
            Outlet::Live(sender, receiver) => {
                let mut newest = arrival;
                while let Err(TrySendError::Full(back)) = sender.try_send(newest) {
                    newest = back;
                    if receiver.try_recv().is_ok() {
                        self.counts.dropped.fetch_add(1, Ordering::Relaxed);
                    }
                }
            }
            Outlet::Closed | Outlet::Ended => return Err(gst::FlowError::Flushing),
        }
        Ok(gst::FlowSuccess::Ok)
    }

    /// Notes that no more samples come; on the streaming thread.
    pub(super) fn end(&self) {
        *self.outlet.lock() = Outlet::Ended;
    }
}

/// Drops outdated samples, oldest first, and returns how many: all but those that came together with the
/// newest.
pub(super) fn drop_late(waiting: &mut VecDeque<NumberedSample>) -> u64 {
    let before = waiting.len();
    if let Some(newest) = waiting.back().map(|newest| newest.at) {
        while waiting.front().is_some_and(|oldest| newest.duration_since(oldest.at) > TOGETHER) {
            waiting.pop_front();
        }
    }
    (before - waiting.len()) as u64
}

/// Tells decoders that rows may be padded, so that they do not copy each picture to remove the padding, and
/// which memory a GPU reads frames from.
///
/// An appsink does not answer this by itself before GStreamer 1.24.
pub(super) fn answer_allocation_queries(pad: &gst::Pad, surfaces: &Surfaces) {
    let surfaces = surfaces.clone();
    let answer = move |info: &mut gst::PadProbeInfo<'_>| {
        let Some(gst::QueryViewMut::Allocation(query)) = info.query_mut().map(gst::QueryRef::view_mut) else {
            return gst::PadProbeReturn::Ok;
        };
        query.add_allocation_meta::<gst_video::VideoMeta>(None);
        surfaces.offer_pinned_memory(query);
        let caps = query.get_owned().0;
        if let Some(info) = caps.and_then(|caps| gst_video::VideoInfo::from_caps(&caps).ok()) {
            query.add_allocation_pool(None::<&gst::BufferPool>, info.size() as u32, SAMPLES_HELD, 0);
        }
        gst::PadProbeReturn::Handled
    };
    pad.add_probe(gst::PadProbeType::QUERY_DOWNSTREAM, move |pad, info| {
        launch::guarded(pad, gst::PadProbeReturn::Ok, || answer(info))
    });
}

/// The capture time of a frame that arrives now, by the pipeline's clock.
fn captured(sink: &gst_app::AppSink, sample: &gst::Sample, now: Instant) -> Option<Instant> {
    let segment = sample.segment()?.downcast_ref::<gst::ClockTime>()?;
    let captured = segment.to_running_time(sample.buffer()?.pts()?)?;
    // Not older than now, whatever a source's clock says.
    let age = sink.current_running_time()?.saturating_sub(captured);
    now.checked_sub(age.into())
}
