//! Points in streams that others wait for.

#![expect(
    unsafe_code,
    reason = "the driver's interface is C: addresses without lengths, calls without types"
)]

use cudarc::driver::{CudaEvent, result, sys};

use lockon_core::error::Result;

#[cfg(test)]
use super::counted;
use super::device::Gpu;
use super::error::failed;
use super::graph::{Quiet, hold_captures_up};
use super::stream::Stream;

/// An event in a stream.
pub struct Event {
    pub(super) handle: Quiet<CudaEvent>,
}

impl Event {
    /// Marks the end of the current work in the stream.
    pub fn record(&self, stream: &Stream) -> Result<()> {
        self.handle.record(&stream.queue).map_err(failed("recording an event"))
    }

    /// Marks the end of the current work in a stream that this crate does not own, by the driver's handle of
    /// it.
    ///
    /// # Safety
    /// It is the handle of a stream of this context that lives.
    pub(crate) unsafe fn record_in(&self, stream: usize) -> Result<()> {
        // SAFETY: the event lives, and the stream does as the caller guarantees.
        unsafe { sys::cuEventRecord(self.handle.cu_event(), stream as sys::CUstream) }
            .result()
            .map_err(failed("recording an event"))
    }

    /// True if all work in a stream that this crate does not own, by the driver's handle of it, is done.
    ///
    /// # Safety
    /// As [`Self::record_in`].
    pub(crate) unsafe fn is_empty(stream: usize) -> bool {
        // SAFETY: the stream lives, as the caller guarantees.
        unsafe { sys::cuStreamQuery(stream as sys::CUstream) }.result().is_ok()
    }

    /// Marks the end of the current work in a stream that is being captured: the device passes it each time
    /// that the graph runs.
    pub(crate) fn capture(&self, stream: &Stream) -> Result<()> {
        let external = sys::CUevent_record_flags_enum::CU_EVENT_RECORD_EXTERNAL as u32;
        // SAFETY: both live now; the caller that runs the graph keeps the event (`Stream::run`).
        unsafe { sys::cuEventRecordWithFlags(self.handle.cu_event(), stream.handle(), external) }
            .result()
            .map_err(failed("recording an event"))
    }

    /// Waits until the device has passed it.
    pub fn wait(&self) -> Result<()> {
        #[cfg(test)]
        counted::wait();
        self.handle.synchronize().map_err(failed("waiting for the device"))
    }

    /// True if the device has passed it, or it was never recorded. The next call returns an error if there is
    /// one.
    pub(crate) fn is_passed(&self) -> bool {
        self.handle.is_complete()
    }
}

/// An event in a stream that also measures time.
pub struct TimedEvent {
    event: Event,
}

impl TimedEvent {
    /// Returns the microseconds from this event to `end`; the device has passed both.
    pub fn micros_to(&self, end: &Self) -> Result<f64> {
        // SAFETY: both events live. For events that were not recorded the driver returns an error.
        let millis =
            unsafe { result::event::elapsed(self.event.handle.cu_event(), end.event.handle.cu_event()) }
                .map_err(failed("timing the device"))?;
        Ok(f64::from(millis) * 1000.0)
    }
}

impl std::ops::Deref for TimedEvent {
    type Target = Event;

    fn deref(&self) -> &Event {
        &self.event
    }
}

impl Gpu {
    /// An event in a stream that others can wait for.
    pub fn event(&self) -> Result<Event> {
        let _captures_wait = hold_captures_up();
        let untimed = sys::CUevent_flags::CU_EVENT_DISABLE_TIMING;
        let event = self.context.new_event(Some(untimed)).map_err(failed("creating an event"))?;
        Ok(Event { handle: Quiet::new(event) })
    }

    /// Creates an event in a stream that also measures time. It delays the work after it in the stream by up
    /// to 2 us on an H200: streams whose work must be dense have events without time.
    pub fn timed_event(&self) -> Result<TimedEvent> {
        let _captures_wait = hold_captures_up();
        let timed = sys::CUevent_flags::CU_EVENT_DEFAULT;
        let event = self.context.new_event(Some(timed)).map_err(failed("creating an event"))?;
        Ok(TimedEvent { event: Event { handle: Quiet::new(event) } })
    }
}
