//! The line in which frames and events wait for each other between the two pads.
//!
//! The streaming thread puts frames and serialised events in at one end. The element's own thread takes the
//! frames out for the engine, notes their results, and asks what to push: always the oldest, a frame only
//! once it has its results, an event only once everything before it was pushed. So frames can be in flight
//! and nothing ever overtakes anything.
//!
//! Both ends wait on one lock. No thread pushes while it holds the lock.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar};
use std::thread::{self, ThreadId};
use std::time::{Duration, Instant};

use lockon_core::frame::{Picture, VideoFormat};
use lockon_core::locks::{MutexGuard, Ranked};
use lockon_core::results::FrameRecord;

/// Frames that wait for the engine: one keeps it busy, the other the decoder.
pub(super) const WAITING: usize = 2;
/// Maximum waiting frames and events. Events need hardly any memory, but every queue has a bound.
const WAITING_WITH_EVENTS: usize = 64;

/// A frame between the pads.
#[derive(Clone)]
pub(super) struct Arrival {
    /// Zero-based count of the frames that came, dropped ones included.
    pub(super) index: u64,
    /// When it came.
    pub(super) at: Instant,
    /// The value of [`ExcludedTime`](super::latency::ExcludedTime) at that moment.
    pub(super) excluded: Duration,
    pub(super) buffer: gst::Buffer,
    pub(super) layout: Arc<Layout>,
    pub(super) times: BufferTimes,
}

/// The content of caps, for GStreamer and for lockon.
pub(super) struct Layout {
    pub(super) caps: gst::Caps,
    pub(super) info: gst_video::VideoInfo,
    pub(super) format: Arc<VideoFormat>,
}

/// A frame's times, computed with its segment.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct BufferTimes {
    pub(super) pts: Option<gst::ClockTime>,
    pub(super) duration: Option<gst::ClockTime>,
    pub(super) stream_time: Option<gst::ClockTime>,
    pub(super) running_time: Option<gst::ClockTime>,
}

/// The results of a frame.
pub(super) struct Outcome {
    pub(super) record: Arc<FrameRecord>,
    pub(super) mask: Option<Arc<dyn Picture>>,
}

/// A frame or event to push.
pub(super) enum Departure {
    Frame(Arrival, Outcome),
    Event(gst::Event),
}

/// The next step of the element's thread.
pub(super) enum Step {
    /// Push this, then call [`Line::pushed`].
    Push(Departure),
    /// Search this.
    Search(Arrival),
    /// No item came in time.
    Pending,
    /// No frame will come: the stream has ended, or the element is being stopped, or downstream accepts no
    /// more frames.
    End,
}

/// The next item while no engine runs.
pub(super) enum Ahead {
    /// Push this, then call [`Line::pushed`].
    Push(gst::Event),
    /// A frame waits: it needs an engine.
    Frame,
    /// The element is being stopped.
    Closed,
}

enum Waiting {
    Frame(Arrival),
    Event(gst::Event),
}

enum Leaving {
    /// Boxed: most waiting items are events, and frames are few.
    Frame(Box<Arrival>, Option<Outcome>),
    Event(gst::Event),
}

struct LineState {
    is_open: bool,
    /// Between the start of a flush and its stop.
    is_flushing: bool,
    /// The end of the stream is in the line: nothing follows until a flush, whatever upstream still sends.
    has_ended: bool,
    /// Frames and events that have come and are not processed yet.
    waiting: VecDeque<Waiting>,
    /// Frames that the engine has, and the events between, oldest first.
    leaving: VecDeque<Leaving>,
    /// The thread that is pushing an item, if one is.
    pushing: Option<ThreadId>,
    /// The result of the last push of a frame.
    flow: Result<gst::FlowSuccess, gst::FlowError>,
    /// The number of frames since the stream began.
    frames: u64,
    /// The number of the last frame, from the end of stream until that is pushed.
    ended_at: Option<u64>,
}

pub(super) struct Line {
    state: Ranked<LineState, 66>,
    changed: Condvar,
}

impl Default for Line {
    fn default() -> Self {
        let state = LineState {
            is_open: false,
            is_flushing: false,
            has_ended: false,
            waiting: VecDeque::new(),
            leaving: VecDeque::new(),
            pushing: None,
            flow: Ok(gst::FlowSuccess::Ok),
            frames: 0,
            ended_at: None,
        };
        Self { state: Ranked::new(state), changed: Condvar::new() }
    }
}

impl Line {
    fn lock(&self) -> MutexGuard<'_, LineState> {
        // Nothing panics while it holds the lock, and a line that was left half-way is emptied by `open`.
        self.state.lock()
    }

    fn wait<'a>(&'a self, state: MutexGuard<'a, LineState>) -> MutexGuard<'a, LineState> {
        state.wait(&self.changed)
    }

    /// Empties it and lets frames in, counted from 0.
    pub(super) fn open(&self) {
        let mut state = self.lock();
        state.waiting.clear();
        state.leaving.clear();
        (state.is_open, state.is_flushing, state.has_ended, state.frames) = (true, false, false, 0);
        (state.flow, state.pushing, state.ended_at) = (Ok(gst::FlowSuccess::Ok), None, None);
    }

    /// Closes the line: lets no more frames in, and wakes all threads that wait.
    pub(super) fn close(&self) {
        let mut state = self.lock();
        state.is_open = false;
        state.waiting.clear();
        state.leaving.clear();
        self.changed.notify_all();
    }

    /// The next frame's number. Every frame gets one, also a dropped one, but no frame after the end.
    pub(super) fn number(&self) -> Result<u64, gst::FlowError> {
        let mut state = self.lock();
        if state.has_ended {
            return Err(gst::FlowError::Eos);
        }
        state.frames += 1;
        Ok(state.frames - 1)
    }

    /// Puts a frame in; waits for room.
    pub(super) fn put_frame(&self, arrival: Arrival) -> Result<gst::FlowSuccess, gst::FlowError> {
        let is_frame = |waiting: &&Waiting| matches!(waiting, Waiting::Frame(_));
        self.put(Waiting::Frame(arrival), |state| {
            // A failure of the previous stream does not affect this one.
            if state.ended_at.is_none() {
                state.flow?;
            }
            if state.has_ended {
                return Err(gst::FlowError::Eos);
            }
            Ok(state.waiting.iter().filter(is_frame).count() < WAITING)
        })
    }

    /// Puts a serialised event in; waits for room. False while the line is closed, and after the end of the
    /// stream until a new stream begins.
    pub(super) fn put_event(&self, event: gst::Event) -> bool {
        if event.type_() == gst::EventType::StreamStart {
            self.lock().has_ended = false;
        }
        let is_in = self.put(Waiting::Event(event), |state| {
            if state.has_ended { Err(gst::FlowError::Eos) } else { Ok(true) }
        });
        is_in.is_ok()
    }

    fn put(
        &self,
        waiting: Waiting,
        has_room: impl Fn(&LineState) -> Result<bool, gst::FlowError>,
    ) -> Result<gst::FlowSuccess, gst::FlowError> {
        let mut state = self.lock();
        loop {
            if !state.is_open || state.is_flushing {
                return Err(gst::FlowError::Flushing);
            }
            if has_room(&state)? && state.waiting.len() < WAITING_WITH_EVENTS {
                if matches!(&waiting, Waiting::Event(event) if event.type_() == gst::EventType::Eos) {
                    // From here on frames belong to another stream, and are counted from 0.
                    (state.has_ended, state.ended_at) = (true, Some(state.frames));
                    state.frames = 0;
                }
                state.waiting.push_back(waiting);
                self.changed.notify_all();
                return Ok(gst::FlowSuccess::Ok);
            }
            state = self.wait(state);
        }
    }

    /// Waits until the whole line has been pushed. False if it never will be.
    pub(super) fn wait_empty(&self) -> bool {
        let mut state = self.lock();
        loop {
            if !state.is_open || state.is_flushing {
                return false;
            }
            if state.waiting.is_empty() && state.leaving.is_empty() && state.pushing.is_none() {
                return true;
            }
            state = self.wait(state);
        }
    }

    /// Returns the next step while an engine runs. Waits for it until `deadline`; without one it does not
    /// wait. Final results and events whose turn it is come before new frames: a result never waits for the
    /// next frame.
    pub(super) fn next(&self, deadline: Option<Instant>) -> Step {
        let mut state = self.lock();
        loop {
            if !state.is_open || state.flow.is_err() {
                return Step::End;
            }
            if !state.is_flushing {
                if let Some(departure) = state.departure() {
                    state.pushing = Some(thread::current().id());
                    return Step::Push(departure);
                }
                match state.waiting.pop_front() {
                    Some(Waiting::Frame(arrival)) => {
                        state.leaving.push_back(Leaving::Frame(Box::new(arrival.clone()), None));
                        self.changed.notify_all();
                        return Step::Search(arrival);
                    }
                    // The end is pushed when the engine has finished: results files are complete before
                    // downstream gets it.
                    Some(Waiting::Event(event)) if event.type_() == gst::EventType::Eos => {
                        state.waiting.push_front(Waiting::Event(event));
                        return Step::End;
                    }
                    Some(Waiting::Event(event)) => {
                        state.leaving.push_back(Leaving::Event(event));
                        self.changed.notify_all();
                        continue;
                    }
                    None => {}
                }
            }
            let now = Instant::now();
            let Some(wait) = deadline.and_then(|deadline| deadline.checked_duration_since(now)) else {
                return Step::Pending;
            };
            if wait.is_zero() {
                return Step::Pending;
            }
            state = state.wait_timeout(&self.changed, wait);
        }
    }

    /// Waits for the next item while no engine runs, and returns it.
    pub(super) fn ahead(&self) -> Ahead {
        let mut state = self.lock();
        loop {
            if !state.is_open {
                return Ahead::Closed;
            }
            if !state.is_flushing {
                // Frames that downstream does not accept any more are dropped; events still go where they
                // can.
                let is_broken = state.flow.is_err();
                match state.waiting.pop_front() {
                    Some(Waiting::Event(event)) => {
                        if event.type_() == gst::EventType::Eos {
                            (state.flow, state.ended_at) = (Ok(gst::FlowSuccess::Ok), None);
                        }
                        state.pushing = Some(thread::current().id());
                        self.changed.notify_all();
                        return Ahead::Push(event);
                    }
                    Some(Waiting::Frame(_)) if is_broken => {
                        self.changed.notify_all();
                        continue;
                    }
                    Some(frame @ Waiting::Frame(_)) => {
                        state.waiting.push_front(frame);
                        return Ahead::Frame;
                    }
                    None => {}
                }
            }
            state = self.wait(state);
        }
    }

    /// Notes the result of a push: of a frame, or `None` for an event, which downstream may refuse.
    pub(super) fn pushed(&self, flow: Option<Result<gst::FlowSuccess, gst::FlowError>>) {
        let mut state = self.lock();
        state.pushing = None;
        // A refusal because of a flush has nothing to do with the frames after it.
        if let Some(flow) = flow
            && !(state.is_flushing && flow == Err(gst::FlowError::Flushing))
        {
            state.flow = flow;
        }
        self.changed.notify_all();
    }

    /// True if this frame is still needed: a flush or a stop changes that.
    pub(super) fn wants(&self, index: u64) -> bool {
        let state = self.lock();
        state.is_open && !state.is_flushing && state.flow.is_ok() && state.leaving.iter().any(|l| l.is(index))
    }

    /// Notes a frame's results.
    pub(super) fn found(&self, index: u64, outcome: Outcome) {
        let mut state = self.lock();
        let frame = state.leaving.iter_mut().find(|leaving| leaving.is(index));
        if let Some(Leaving::Frame(_, found)) = frame {
            *found = Some(outcome);
        }
    }

    /// The engine has ended, perhaps by a panic in a push: frames that it left without results are gone,
    /// events stay in line.
    pub(super) fn settle(&self) {
        let mut state = self.lock();
        state.pushing = None;
        while let Some(leaving) = state.leaving.pop_back() {
            if let Leaving::Event(event) = leaving {
                state.waiting.push_front(Waiting::Event(event));
            }
        }
        self.changed.notify_all();
    }

    /// Something failed that frames cannot be searched without.
    pub(super) fn fail(&self) {
        let mut state = self.lock();
        (state.flow, state.pushing) = (Err(gst::FlowError::Error), None);
        self.changed.notify_all();
    }

    /// True if the end of the stream has come: then a failure cannot reach upstream any more.
    pub(super) fn has_ended(&self) -> bool {
        self.lock().has_ended
    }

    /// Begins a flush: the line accepts nothing, and nothing more is pushed.
    pub(super) fn start_flush(&self) {
        self.lock().is_flushing = true;
        self.changed.notify_all();
    }

    /// Waits for a push that a flush interrupts, but not for the push in which downstream seeks and so causes
    /// the flush.
    pub(super) fn wait_pushed(&self) {
        let mut state = self.lock();
        while state.is_open && state.pushing.is_some_and(|pusher| pusher != thread::current().id()) {
            state = self.wait(state);
        }
    }

    /// Ends a flush: empties the line, and accepts frames again. Returns the sticky events that outlive a
    /// flush.
    pub(super) fn stop_flush(&self) -> Vec<gst::Event> {
        let mut state = self.lock();
        let leaving = std::mem::take(&mut state.leaving).into_iter().filter_map(|leaving| match leaving {
            Leaving::Event(event) => Some(event),
            Leaving::Frame(..) => None,
        });
        let waiting = std::mem::take(&mut state.waiting).into_iter().filter_map(|waiting| match waiting {
            Waiting::Event(event) => Some(event),
            Waiting::Frame(_) => None,
        });
        let outlives = |event: &gst::Event| {
            event.is_sticky() && !matches!(event.type_(), gst::EventType::Segment | gst::EventType::Eos)
        };
        let events = leaving.chain(waiting).filter(outlives).collect();
        (state.is_flushing, state.has_ended) = (false, false);
        state.flow = Ok(gst::FlowSuccess::Ok);
        // A dropped end has no effect.
        if let Some(frames) = state.ended_at.take() {
            state.frames = frames;
        }
        self.changed.notify_all();
        events
    }
}

impl LineState {
    /// The oldest item, if it can be pushed.
    fn departure(&mut self) -> Option<Departure> {
        match self.leaving.pop_front()? {
            Leaving::Event(event) => Some(Departure::Event(event)),
            Leaving::Frame(arrival, Some(outcome)) => Some(Departure::Frame(*arrival, outcome)),
            frame @ Leaving::Frame(_, None) => {
                self.leaving.push_front(frame);
                None
            }
        }
    }
}

impl Leaving {
    fn is(&self, index: u64) -> bool {
        matches!(self, Self::Frame(arrival, _) if arrival.index == index)
    }
}
