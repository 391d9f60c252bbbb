//! The gate between the branch that reads sound and the muxer: it decides when each packet passes, and its
//! time.
//!
//! Pictures are at their stream time: the demuxer's position in the video, as in results. A demuxer may begin
//! its running time with the first packet of a stream instead, so packets get their stream time here too.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use gst::prelude::*;

use super::POLL;
use lockon_core::locks::lock;

/// Sound that is later than this is reported: a frame or two.
const NOTICED: u64 = 50_000_000;

/// Lets sound pass as far as the video has come.
#[derive(Default)]
pub(crate) struct Gate {
    state: Mutex<GateState>,
    changed: Condvar,
}

/// All times are in nanoseconds.
#[derive(Default)]
struct GateState {
    /// Stream time of the input at which the output begins, once that is known.
    origin: Option<u64>,
    /// How much later packets are than their sound, because the encoder put silence in front.
    delay: u64,
    /// End of the last frame that was pushed, in the output.
    video_end: u64,
    /// Stream time of the last packet that came to the gate.
    last: i64,
    /// No more frames come.
    is_closed: bool,
    /// The pipeline is shutting down: no thread waits here any more.
    is_open: bool,
    /// The queue in which encoded video waits for the muxer.
    video_queue: Option<gst::Element>,
    /// The name of the input, if its sound loses its place in the output when it begins late.
    loses_place: Option<String>,
}

impl Gate {
    /// Returns a gate to an output that begins at `origin` of the input, or with the first frame if that is
    /// `None`.
    pub(super) fn new(origin: Option<u64>) -> Self {
        let gate = Self::default();
        gate.lock().origin = origin;
        gate
    }

    /// Moves all packets forward, by the silence that their encoder puts in front.
    pub(super) fn set_delay(&self, ns: u64) {
        self.lock().delay = ns;
    }

    /// The container stores no times: sound that begins late begins at once there, which is reported.
    pub(super) fn warn_if_late(&self, input: String) {
        self.lock().loses_place = Some(input);
    }

    /// Names the queue of encoded video. While that is full, the muxer waits for sound.
    pub(super) fn watch(&self, queue: Option<gst::Element>) {
        self.lock().video_queue = queue;
    }

    /// A frame was pushed that ends at `end_ns` in the output, which begins at `origin_ns` of the input.
    pub(crate) fn video_reached(&self, origin_ns: u64, end_ns: u64) {
        let mut state = self.lock();
        state.origin = Some(origin_ns);
        state.video_end = state.video_end.max(end_ns);
        self.changed.notify_all();
    }

    /// The last frame was pushed: sound that begins after its end is cut off.
    pub(crate) fn close(&self) {
        self.lock().is_closed = true;
        self.changed.notify_all();
    }

    /// Ends all waits and drops the sound, so that the pipeline can stop. Call this before setting it to
    /// NULL.
    pub(crate) fn open(&self) {
        self.lock().is_open = true;
        self.changed.notify_all();
    }

    /// Waits until the packet is due, and gives it its time in the output. Runs on the queue's thread.
    pub(super) fn pass(&self, pad: &gst::Pad, info: &mut gst::PadProbeInfo) -> gst::PadProbeReturn {
        let first = match &info.data {
            Some(gst::PadProbeData::Buffer(packet)) => Some(packet.as_ref()),
            Some(gst::PadProbeData::BufferList(packets)) => packets.get(0),
            _ => None,
        };
        let mut state = self.lock();
        let delay = state.delay.cast_signed();
        // Packets without a time follow the one before.
        let starts = first.and_then(|packet| stream_time(pad, packet.pts()));
        let starts = starts.map_or(state.last, |starts| starts - delay);
        state.last = starts;
        loop {
            if state.is_open {
                return gst::PadProbeReturn::Drop;
            }
            if let Some(origin) = state.origin {
                let Ok(starts) = u64::try_from(starts - origin.cast_signed()) else {
                    return gst::PadProbeReturn::Drop;
                };
                // Sound may begin late or pause: the muxer needs it before it continues with the video, and
                // video must not wait for ever. Such a packet may stay although the video is cut before it.
                let video_waits = state.video_queue.as_ref().is_some_and(is_full) && !state.is_closed;
                if starts < state.video_end || video_waits {
                    if let Some(input) = state.loses_place.take().filter(|_| starts > NOTICED) {
                        tracing::warn!(
                            "the sound of {input} begins {:.2} s after its picture, and at once in an .avi, which holds \
                             no times: use .mkv or .mp4",
                            starts as f64 * 1e-9
                        );
                    }
                    place(pad, info, origin.cast_signed() + delay);
                    return gst::PadProbeReturn::Ok;
                }
            }
            if state.is_closed {
                // The queue must be able to continue when the event arrives at the muxer.
                drop(state);
                pad.push_event(gst::event::Eos::new());
                return gst::PadProbeReturn::Drop;
            }
            let waited = self.changed.wait_timeout(state, POLL);
            (state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn lock(&self) -> MutexGuard<'_, GateState> {
        // The state is consistent at every moment: a panic elsewhere leaves nothing half done.
        lock(&self.state)
    }
}

/// The segment in which packets leave the gate: their times are those of the output.
pub(super) fn output_segment() -> gst::Event {
    gst::event::Segment::new(&gst::FormattedSegment::<gst::ClockTime>::new())
}

/// Time since the beginning of the video; below zero for parts that an edit list cuts off in front of it.
fn stream_time(pad: &gst::Pad, pts: Option<gst::ClockTime>) -> Option<i64> {
    let segment = pad.sticky_event::<gst::event::Segment>(0)?;
    let segment = segment.segment().downcast_ref::<gst::ClockTime>()?.to_owned();
    Some(match segment.to_stream_time_full(pts?)? {
        gst::Signed::Positive(time) => i64::try_from(time.nseconds()).unwrap_or(i64::MAX),
        gst::Signed::Negative(time) => -i64::try_from(time.nseconds()).unwrap_or(i64::MAX),
    })
}

/// Gives packets their times in an output that begins at `origin` of the input.
fn place(pad: &gst::Pad, info: &mut gst::PadProbeInfo, origin: i64) {
    let moved = |time: Option<gst::ClockTime>| {
        let ns = stream_time(pad, time)? - origin;
        Some(gst::ClockTime::from_nseconds(u64::try_from(ns).unwrap_or(0)))
    };
    let place = |packet: &mut gst::BufferRef| {
        packet.set_pts(moved(packet.pts()));
        packet.set_dts(moved(packet.dts()));
    };
    match &mut info.data {
        Some(gst::PadProbeData::Buffer(packet)) => place(packet.make_mut()),
        Some(gst::PadProbeData::BufferList(packets)) => {
            packets.make_mut().foreach_mut(|mut packet, _| {
                place(packet.make_mut());
                std::ops::ControlFlow::Continue(Some(packet))
            });
        }
        _ => {}
    }
}

fn is_full(queue: &gst::Element) -> bool {
    queue.property::<u64>("current-level-time") >= queue.property::<u64>("max-size-time")
        || queue.property::<u32>("current-level-bytes") >= queue.property::<u32>("max-size-bytes")
}
