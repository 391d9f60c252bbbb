//! The sink pad: puts upstream's frames and events into the line, on upstream's thread.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use gst::prelude::*;
use gst::subclass::prelude::*;
use lockon_gst::{crop, source};

use super::super::CAT;
use super::super::line::{Arrival, BufferTimes, Layout, WAITING};
use super::{Lockon, lock};

impl Lockon {
    pub(super) fn chain(
        &self,
        _pad: &gst::Pad,
        mut buffer: gst::Buffer,
    ) -> std::result::Result<gst::FlowSuccess, gst::FlowError> {
        let (at, excluded) = (Instant::now(), self.excluded.total());
        let (layout, times, has_gap) = {
            let mut input = lock(&self.input);
            let layout = input.layout.clone().ok_or(gst::FlowError::NotNegotiated)?;
            (layout, times(&buffer, input.segment.as_ref()), std::mem::take(&mut input.has_gap))
        };
        // From here on the buffer has the picture that caps describe: for search, drawing and downstream.
        buffer = crop::uncropped(buffer, &layout.info).ok_or_else(|| {
            gst::element_imp_error!(
                self,
                gst::StreamError::Format,
                (
                    "a frame's crop is not of the size in its caps, or does not lie in its memory: {}",
                    layout.caps
                )
            );
            gst::FlowError::Error
        })?;
        if let (None, Some(duration)) = (frame_duration(&layout), times.duration) {
            let is_new = lock(&self.stay).see_frame(duration);
            if is_new && self.is_live.load(Ordering::Relaxed) {
                self.ask_for_latency();
            }
        }
        let index = self.line.number()?;
        let flow = if self.is_late(&times) {
            self.drop_late(&times);
            Ok(gst::FlowSuccess::Ok)
        } else {
            if has_gap {
                buffer.make_mut().set_flags(gst::BufferFlags::DISCONT);
            }
            self.line.put_frame(Arrival { index, at, excluded, buffer, layout, times })
        };
        let max_frames = lock(&self.settings).max_frames;
        if flow.is_ok() && max_frames > 0 && index + 1 >= max_frames {
            // Sent from here, since upstream has more frames.
            self.line.put_event(gst::event::Eos::new());
        }
        flow
    }

    /// True if the sink has reported that frames of this time come too late.
    fn is_late(&self, times: &BufferTimes) -> bool {
        let earliest = self.earliest.load(Ordering::Relaxed);
        let is_late = earliest > 0 && times.running_time.is_some_and(|time| time.nseconds() <= earliest);
        is_late && lock(&self.settings).has_qos
    }

    fn drop_late(&self, times: &BufferTimes) {
        let dropped = self.dropped.fetch_add(1, Ordering::Relaxed) + 1;
        lock(&self.input).has_gap = true;
        let earliest = self.earliest.load(Ordering::Relaxed);
        let jitter = earliest.saturating_sub(times.running_time.map_or(0, gst::ClockTime::nseconds));
        let mut message = gst::message::Qos::builder(self.is_live.load(Ordering::Relaxed))
            .running_time_if_some(times.running_time)
            .stream_time_if_some(times.stream_time)
            .timestamp_if_some(times.pts)
            .duration_if_some(times.duration)
            .values(i64::try_from(jitter).unwrap_or(i64::MAX), 1.0, 1_000_000)
            .stats(
                gst::GenericFormattedValue::from(gst::format::Buffers::from_u64(
                    self.pushed.load(Ordering::Relaxed),
                )),
                gst::GenericFormattedValue::from(gst::format::Buffers::from_u64(dropped)),
            );
        message = message.src(&*self.obj());
        let _ = self.obj().post_message(message.build());
    }

    pub(super) fn sink_event(&self, pad: &gst::Pad, event: gst::Event) -> bool {
        gst::log!(CAT, obj = pad, "{event:?}");
        match event.view() {
            gst::EventView::FlushStart(_) => {
                self.line.start_flush();
                // Unblocks pushes downstream, ours too.
                let is_taken = self.srcpad.push_event(event);
                self.line.wait_pushed();
                is_taken
            }
            gst::EventView::FlushStop(_) => {
                self.earliest.store(0, Ordering::Relaxed);
                {
                    let mut input = lock(&self.input);
                    (input.segment, input.has_gap) = (None, false);
                }
                let is_taken = self.srcpad.push_event(event);
                for event in self.line.stop_flush() {
                    let _ = self.srcpad.store_sticky_event(&event);
                }
                self.forget_announcement();
                is_taken
            }
            gst::EventView::Caps(caps) => match source::describe(caps.caps()) {
                Ok((info, format)) => {
                    if info.is_interlaced() {
                        gst::warning!(
                            CAT,
                            obj = pad,
                            "interlaced: fields are matched together (put deinterlace before)"
                        );
                    }
                    let layout = Arc::new(Layout { caps: caps.caps_owned(), info, format });
                    let duration = frame_duration(&layout);
                    lock(&self.input).layout = Some(layout);
                    if lock(&self.stay).set_frame(duration) {
                        // A live pipeline queries latencies before its frames' rate is known.
                        self.ask_for_latency();
                    }
                    self.line.put_event(event)
                }
                Err(error) => {
                    gst::error!(CAT, obj = pad, "{error}");
                    false
                }
            },
            gst::EventView::Segment(segment) => {
                lock(&self.input).segment = Some(segment.segment().clone());
                self.earliest.store(0, Ordering::Relaxed);
                self.line.put_event(event)
            }
            _ if event.is_serialized() => self.line.put_event(event),
            _ => gst::Pad::event_default(pad, Some(&*self.obj()), event),
        }
    }

    pub(super) fn sink_query(&self, pad: &gst::Pad, query: &mut gst::QueryRef) -> bool {
        if !query.is_serialized() {
            return self.answer(pad, query);
        }
        // The query comes on the streaming thread, so no frame comes while it waits for the frames before it.
        if !self.line.wait_empty() {
            return false;
        }
        let is_answered = self.srcpad.peer_query(query);
        match query.view_mut() {
            // Frames are neither converted nor copied here, so upstream may send everything that downstream
            // accepts.
            gst::QueryViewMut::Allocation(allocation) => {
                if !is_answered {
                    return false;
                }
                self.ask_for_buffers(allocation);
                self.surfaces().offer_pinned_memory(allocation);
                true
            }
            _ => is_answered,
        }
    }

    /// Adds the frames that stay here to the sizes of pools.
    fn ask_for_buffers(&self, query: &mut gst::query::Allocation) {
        let ours = (WAITING + self.depth() + 1) as u32;
        let pools: Vec<_> = query.allocation_pools().collect();
        for (n, (pool, size, min, max)) in (0..).zip(&pools) {
            let max = if *max == 0 { 0 } else { max + ours };
            query.set_nth_allocation_pool(n, pool.as_ref(), *size, min + ours, max);
        }
        if pools.is_empty() {
            let layout = lock(&self.input).layout.clone();
            let caps = query.get_owned().0;
            let info = caps.and_then(|caps| gst_video::VideoInfo::from_caps(&caps).ok());
            if let Some(size) = info.map(|info| info.size()).or(layout.map(|layout| layout.info.size())) {
                query.add_allocation_pool(None::<&gst::BufferPool>, size as u32, ours, 0);
            }
        }
    }
}

/// The duration of a frame, if the rate is known.
fn frame_duration(layout: &Layout) -> Option<gst::ClockTime> {
    let (frames, seconds) = layout.format.frame_rate;
    let (frames, seconds) = (u64::try_from(frames).ok()?, u64::try_from(seconds).ok()?);
    // A rate of 0 means a varying rate.
    (frames > 0).then(|| gst::ClockTime::SECOND.mul_div_round(seconds, frames)).flatten()
}

/// A buffer's times. Stream time is what results call `pts_ns`.
fn times(buffer: &gst::Buffer, segment: Option<&gst::Segment>) -> BufferTimes {
    let in_time = segment.and_then(|segment| segment.downcast_ref::<gst::ClockTime>());
    BufferTimes {
        pts: buffer.pts(),
        duration: buffer.duration(),
        stream_time: source::presentation_time(segment, buffer.pts(), false)
            .map(gst::ClockTime::from_nseconds),
        running_time: in_time.and_then(|segment| segment.to_running_time(buffer.pts())),
    }
}
