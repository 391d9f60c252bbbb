//! The gate between the branch that reads sound and the muxer: it decides when each packet passes, and its
//! time.
//!
//! Pictures are at their stream time: the demuxer's position in the video, as in results. A demuxer may begin
//! its running time with the first packet of a stream instead, so packets get their stream time here too.

use std::sync::{Condvar, Mutex};

use gst::prelude::*;

use super::POLL;
use lockon_core::locks::{MutexGuard, lock};

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
    /// Stream time at which the packet before ended, if it is known: there begins one without a time.
    next: Option<i64>,
    /// Packets without a time that came before all that have one: they have no place in the output.
    untimed: u64,
    /// No more frames come.
    is_closed: bool,
    /// The pipeline is shutting down: no thread waits here any more.
    is_open: bool,
    /// The queue in which encoded video waits for the muxer.
    video_queue: Option<gst::Element>,
    /// The name of the input, for messages.
    input: String,
    /// Sound that begins late loses its place in the output, which has not been reported yet.
    loses_place: bool,
}

impl Gate {
    /// Returns a gate to an output that begins at `origin` of the input, or with the first frame if that is
    /// `None`. Messages name the `input`.
    pub(super) fn new(origin: Option<u64>, input: String) -> Self {
        let state = GateState { origin, input, ..GateState::default() };
        Self { state: Mutex::new(state), changed: Condvar::new() }
    }

    /// Moves all packets forward, by the silence that their encoder puts in front.
    pub(super) fn set_delay(&self, ns: u64) {
        self.lock().delay = ns;
    }

    /// The container stores no times: sound that begins late begins at once there, which is reported.
    pub(super) fn warn_if_late(&self) {
        self.lock().loses_place = true;
    }

    /// The sound has ended. Reports it if no packet had a time: then all were left out.
    pub(super) fn end(&self) {
        let state = self.lock();
        if state.untimed > 0 && state.next.is_none() {
            tracing::warn!(
                "the sound of {} is left out: its packets have no times (ffmpeg -i FILE -c copy FILE.mkv may give them some)",
                state.input
            );
        }
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
        let own = first.and_then(|packet| stream_time(pad, packet.pts()));
        // A transport stream has packets without a time before its first clock reference.
        let Some(begins) = own.or(state.next) else {
            state.untimed += 1;
            return gst::PadProbeReturn::Drop;
        };
        let starts = begins - delay;
        loop {
            if state.is_open {
                return gst::PadProbeReturn::Drop;
            }
            if let Some(origin) = state.origin {
                let Ok(starts) = u64::try_from(starts - origin.cast_signed()) else {
                    state.next = Some(begins + duration(info));
                    return gst::PadProbeReturn::Drop;
                };
                // Sound may begin late or pause: the muxer needs it before it continues with the video, and
                // video must not wait for ever. Such a packet may stay although the video is cut before it.
                let video_waits = state.video_queue.as_ref().is_some_and(is_full) && !state.is_closed;
                if starts < state.video_end || video_waits {
                    if std::mem::take(&mut state.loses_place) && starts > NOTICED {
                        tracing::warn!(
                            "the sound of {} begins {:.2} s after its picture, and at once in an .avi, which holds \
                             no times: use .mkv or .mp4",
                            state.input,
                            starts as f64 * 1e-9
                        );
                    }
                    state.next = Some(place(pad, info, begins, origin.cast_signed() + delay));
                    return gst::PadProbeReturn::Ok;
                }
            }
            if state.is_closed {
                // The queue must be able to continue when the event arrives at the muxer.
                drop(state);
                pad.push_event(gst::event::Eos::new());
                return gst::PadProbeReturn::Drop;
            }
            state = state.wait_timeout(&self.changed, POLL);
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
    crate::source::stream_time(segment.segment(), pts?)
}

/// Gives packets their times in an output that begins at `origin` of the input. A packet without a time
/// follows the packet before it; the first one begins at `next`. Returns the end of the last one, in stream
/// time.
fn place(pad: &gst::Pad, info: &mut gst::PadProbeInfo, mut next: i64, origin: i64) -> i64 {
    let moved = |ns: i64| gst::ClockTime::from_nseconds(u64::try_from(ns - origin).unwrap_or(0));
    let mut place = |packet: &mut gst::BufferRef| {
        let begins = stream_time(pad, packet.pts()).unwrap_or(next);
        next = begins + duration_of(packet);
        packet.set_pts(moved(begins));
        let dts = stream_time(pad, packet.dts()).map(moved);
        packet.set_dts(dts);
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
    next
}

/// How long packets last together, in nanoseconds.
fn duration(info: &gst::PadProbeInfo) -> i64 {
    match &info.data {
        Some(gst::PadProbeData::Buffer(packet)) => duration_of(packet),
        Some(gst::PadProbeData::BufferList(packets)) => packets.iter().map(duration_of).sum(),
        _ => 0,
    }
}

fn duration_of(packet: &gst::BufferRef) -> i64 {
    packet.duration().map_or(0, |duration| i64::try_from(duration.nseconds()).unwrap_or(0))
}

fn is_full(queue: &gst::Element) -> bool {
    queue.property::<u64>("current-level-time") >= queue.property::<u64>("max-size-time")
        || queue.property::<u32>("current-level-bytes") >= queue.property::<u32>("max-size-bytes")
}
