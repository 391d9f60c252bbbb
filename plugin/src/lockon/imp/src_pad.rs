//! The source pad: its task runs the engine and pushes, and it answers what downstream asks.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use gst::glib;
use gst::prelude::*;
use gst::subclass::prelude::*;
use lockon_core::config;
use lockon_core::control::Control;
use lockon_core::results::FrameRecord;
use lockon_gst::window::{self, Steering};
use lockon_gst::{sink, source};

use super::super::line::{Ahead, Arrival, BufferTimes, Departure, Layout, Outcome};
use super::super::{CAT, PostMessages, composition, marks, run, trouble};
use super::{Lockon, lock};

impl Lockon {
    pub(super) fn activate(
        &self,
        pad: &gst::Pad,
        mode: gst::PadMode,
        is_active: bool,
    ) -> std::result::Result<(), gst::LoggableError> {
        if mode != gst::PadMode::Push {
            return Err(gst::loggable_error!(CAT, "only push mode is there"));
        }
        if is_active {
            let control = Control::new();
            if lock(&self.settings).navigates {
                control.keep_frames(window::KEPT);
            }
            *lock(&self.steering) = Some(Arc::new(Steering::new(control.clone())));
            *self.control.lock() = control;
            self.line.open();
            let element = self.obj().downgrade();
            pad.start_task(move || {
                if let Some(element) = element.upgrade() {
                    let this = element.imp();
                    // Otherwise the task would run for ever without work.
                    let goes_on = this.catch_panic(|| false, Self::serve);
                    if !goes_on {
                        this.line.fail();
                        let _ = this.srcpad.pause_task();
                    }
                }
            })
            .map_err(|error| gst::loggable_error!(CAT, "no thread can be started: {error}"))
        } else {
            self.control.lock().stop();
            self.line.close();
            pad.stop_task()
                .map_err(|error| gst::loggable_error!(CAT, "the thread cannot be stopped: {error}"))
        }
    }

    /// Runs one round of the task: pushes the next event, or runs the engine. False when the element is being
    /// stopped.
    fn serve(&self) -> bool {
        match self.line.ahead() {
            Ahead::Closed => return false,
            Ahead::Push(event) => {
                let flow = self.depart(Departure::Event(event));
                self.line.pushed(flow);
            }
            Ahead::Frame => {
                let Some(device) = lock(&self.device).clone() else { return false };
                let input = self.input_name();
                #[cfg(feature = "v1_24")]
                lock(&self.seen).clear();
                let control = self.control.lock().clone();
                let outcome = self.logging(|| run::run(&self.obj(), &device, &input, &control));
                if let Err(error) = outcome
                    && !control.is_stopped()
                {
                    // When the line has failed, upstream gets an error and posts a message without details:
                    // this one must be the first.
                    self.post_error_message(trouble::error_message(&error));
                    self.line.fail();
                }
                self.line.settle();
            }
        }
        true
    }

    /// The origin of the video, if an element upstream reports it.
    fn input_name(&self) -> String {
        let mut query = gst::query::Uri::new();
        let uri = self.sinkpad.peer_query(&mut query).then(|| query.uri()).flatten();
        let Some(uri) = uri else { return self.obj().name().into() };
        match glib::filename_from_uri(&uri) {
            Ok((path, _)) => path.to_string_lossy().into_owned(),
            Err(_) => uri.into(),
        }
    }

    /// Pushes a frame with its results, or an event. Returns the result of pushing a frame.
    pub(in crate::lockon) fn depart(
        &self,
        departure: Departure,
    ) -> Option<std::result::Result<gst::FlowSuccess, gst::FlowError>> {
        match departure {
            Departure::Event(event) if event.type_() == gst::EventType::Caps => {
                if let gst::EventView::Caps(caps) = event.view() {
                    self.excluded.during(|| self.announce(&caps.caps_owned()));
                }
                None
            }
            Departure::Event(event) => {
                gst::log!(CAT, imp = self, "pushing {event:?}");
                // A refused event is no reason to stop: the next frame shows if downstream has failed.
                let _ = self.excluded.during(|| self.srcpad.push_event(event));
                None
            }
            Departure::Frame(arrival, outcome) => Some(self.push_frame(arrival, outcome)),
        }
    }

    /// Pushes a frame with its results.
    fn push_frame(
        &self,
        Arrival { index, at, excluded, mut buffer, layout, times }: Arrival,
        outcome: Outcome,
    ) -> std::result::Result<gst::FlowSuccess, gst::FlowError> {
        let (view, posts) = {
            let settings = lock(&self.settings);
            (settings.view, settings.posts)
        };
        let has_layers = self.excluded.during(|| self.has_layers(view, &layout));
        let record = &outcome.record;
        let has_objects = record.objects.as_ref().is_some_and(|objects| !objects.is_empty());
        let has_results = !record.matches.is_empty() || !record.tracks.is_empty() || has_objects;
        if has_results {
            let buffer = buffer.make_mut();
            if let Some(ids) = &*lock(&self.ids) {
                marks::add_regions(buffer, record, layout.format.size, ids);
            }
            #[cfg(feature = "v1_24")]
            {
                let mut seen = lock(&self.seen);
                let now = times.running_time.unwrap_or_default();
                if let Err(error) = marks::add_analytics(buffer, record, layout.format.size, now, &mut seen) {
                    gst::warning!(CAT, imp = self, "frame {index} has no analytics metadata: {error}");
                }
            }
        }
        let has_places = !record.lines.is_empty() || !record.zones.is_empty();
        if let Some(view) = view.drawn()
            && (has_results || has_places || outcome.mask.is_some())
            && let Err(error) = self.draw((view, has_layers), &outcome, &layout, buffer.make_mut())
        {
            gst::warning!(CAT, imp = self, "frame {index} cannot be drawn on: {error}");
        }
        let is_told = match posts {
            PostMessages::None => false,
            PostMessages::Results => has_results || record.threshold.is_some(),
            PostMessages::All => true,
        };
        if is_told {
            self.tell_of_results(record, &times);
        }
        if let Some(steering) = self.steering() {
            steering.show(record, layout.format.size);
        }
        // Returns it to the backend before the wait for downstream.
        drop(outcome);
        self.pushed.fetch_add(1, Ordering::Relaxed);
        self.note_stay(at, excluded);
        gst::log!(CAT, imp = self, "pushing frame {index}");
        let flow = self.excluded.during(|| self.srcpad.push(buffer));
        if let Err(error) = flow {
            self.tell_of(error);
        }
        flow
    }

    /// Posts a frame's results, unless the application does not read them.
    fn tell_of_results(&self, record: &FrameRecord, times: &BufferTimes) {
        let element = self.obj();
        if !lock(&self.audience).listens(element.upcast_ref()) {
            return;
        }
        let structure = lock(&self.ids).as_ref().map(|ids| marks::structure(record, times, ids));
        if let Some(structure) = structure {
            // There may be no bus.
            let _ = element.post_message(gst::message::Element::builder(structure).src(&*element).build());
        }
    }

    /// Draws the results into the buffer of a frame, or adds them as pictures over it.
    fn draw(
        &self,
        (view, has_layers): (config::View, bool),
        Outcome { record, mask }: &Outcome,
        layout: &Layout,
        buffer: &mut gst::BufferRef,
    ) -> std::result::Result<(), glib::BoolError> {
        let Layout { info, format, .. } = layout;
        let zones = if record.zones.is_empty() { Vec::new() } else { self.control.lock().zones() };
        let (trails, drawing) = &mut *self.drawing.lock();
        drawing.results_and_zones(record, trails, &zones, format.size);
        if has_layers || source::is_gathered(info) {
            let composition = composition::of(view, mask.as_deref(), drawing)?;
            let Some(composition) = composition else { return Ok(()) };
            if has_layers {
                return composition::attach(buffer, &composition);
            }
            let mut frame = gst_video::VideoFrameRef::from_buffer_ref_writable(buffer, info)?;
            return composition.blend(&mut frame);
        }
        // Masks are in host memory.
        let has_mask = mask.is_some() && matches!(view, config::View::Mask | config::View::Split);
        let is_painted = !has_mask
            && self
                .surfaces()
                .paint(buffer, info, format, drawing)
                .map_err(|error| glib::bool_error!("{error}"))?;
        if !is_painted {
            let mut frame = gst_video::VideoFrameRef::from_buffer_ref_writable(buffer, info)?;
            sink::draw_in_place(&mut frame, format, view, mask.as_ref(), drawing);
        }
        Ok(())
    }

    /// Handles downstream refusing frames. Upstream gets the error with its next frame; if it has no more
    /// frames, the element itself has to report it.
    fn tell_of(&self, flow: gst::FlowError) {
        gst::debug!(CAT, imp = self, "downstream answers {flow:?}");
        let is_failure = !matches!(flow, gst::FlowError::Flushing | gst::FlowError::Eos);
        if is_failure && self.line.has_ended() {
            gst::element_imp_error!(
                self,
                gst::StreamError::Failed,
                ("internal data stream error"),
                ["streaming stopped, reason {flow:?}"]
            );
        }
    }

    pub(super) fn src_event(&self, pad: &gst::Pad, event: gst::Event) -> bool {
        if let gst::EventView::Qos(qos) = event.view()
            && let (_, _, jitter, Some(time)) = qos.get()
        {
            // A sink that is behind by `jitter` at `time` needs nothing that is due before both together.
            let earliest = i64::try_from(time.nseconds()).unwrap_or(i64::MAX).saturating_add(jitter).max(0);
            let earliest = if jitter > 0 { earliest.unsigned_abs() } else { 0 };
            self.earliest.store(earliest, Ordering::Relaxed);
        }
        if let gst::EventView::Navigation(navigation) = event.view()
            && lock(&self.settings).navigates
            && let (Some(steering), Some(what)) = (self.steering(), navigation.structure())
        {
            self.logging(|| steering.hear_mouse(what));
        }
        gst::Pad::event_default(pad, Some(&*self.obj()), event)
    }

    pub(super) fn src_query(&self, pad: &gst::Pad, query: &mut gst::QueryRef) -> bool {
        let gst::QueryViewMut::Latency(latency) = query.view_mut() else {
            return self.answer(pad, query);
        };
        let mut upstream = gst::query::Latency::new();
        if !self.sinkpad.peer_query(&mut upstream) {
            return false;
        }
        let (is_live, mut min, mut max) = upstream.result();
        self.is_live.store(is_live, Ordering::Relaxed);
        // Frames of a file wait for no clock.
        if is_live {
            let room = self.room();
            let stay = lock(&self.stay);
            min += stay.least(room);
            max = max.map(|max| (max + stay.most(room)).max(min));
        }
        latency.set(is_live, min, max);
        true
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use gst_check::Harness;

    use super::*;

    #[test]
    fn a_panic_is_an_error_and_not_the_end_of_the_process() {
        gst::init().unwrap();
        let element: gst::Element = glib::Object::new::<super::super::super::Lockon>().upcast();
        element.set_property_from_str("backend", "cpu");
        let bus = gst::Bus::new();
        element.set_bus(Some(&bus));
        let mut harness = Harness::with_element(&element, Some("sink"), Some("src"));
        harness.set_src_caps_str("video/x-raw,format=GRAY8,width=96,height=64,framerate=25/1");
        let mut next = 0;
        let mut push = |harness: &mut Harness| {
            let mut buffer = gst::Buffer::with_size(96 * 64).unwrap();
            buffer.get_mut().unwrap().set_pts(gst::ClockTime::from_mseconds(40 * next));
            next += 1;
            harness.push(buffer)
        };
        push(&mut harness).unwrap();
        harness.pull().unwrap();
        let lockon = element.downcast_ref::<super::super::super::Lockon>().unwrap();
        lockon.imp().catch_panic(|| (), |_| panic!("on purpose"));
        let message = bus.timed_pop_filtered(gst::ClockTime::from_seconds(10), &[gst::MessageType::Error]);
        let message = message.expect("an error");
        let gst::MessageView::Error(error) = message.view() else { unreachable!() };
        assert!(error.error().matches(gst::LibraryError::Failed), "{error:?}");
        assert!(error.error().message().contains("on purpose"), "{error:?}");
        // Upstream gets the error after the bus does.
        let deadline = Instant::now() + Duration::from_secs(10);
        while push(&mut harness) != Err(gst::FlowError::Error) {
            assert!(Instant::now() < deadline, "frames are still taken");
        }
    }
}
