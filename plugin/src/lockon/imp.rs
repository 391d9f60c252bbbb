//! The element itself: pads, properties, states, and what flows between the pads.
//!
//! The streaming thread of upstream puts frames and serialised events into the [`Line`]; the task of the
//! source pad is the thread on which lockon's engine runs and from which everything is pushed. So the element
//! is a border between threads, as a `queue` is.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use gst::glib;
use gst::prelude::*;
use gst::subclass::prelude::*;
use lockon::backend;
use lockon::control::Control;
use lockon::error::{Error, Result};
use lockon::files;
use lockon::frame::PixelFormat;
use lockon::media::{sink, source};
use lockon::output;
use lockon::overlay::Trails;

use super::latency::{Aside, Stay};
use super::line::{Ahead, Arrival, Departure, Layout, Line, Times, WAITING};
use super::log::ToGStreamersLog;
use super::settings::{Device, Settings};
use super::work::{Asked, Work};
use super::{CAT, View, marks, run, trouble};

pub struct Lockon {
    sinkpad: gst::Pad,
    srcpad: gst::Pad,
    settings: Mutex<Settings>,
    pub(super) line: Line,
    /// What is done to frames, and where: there from READY to PAUSED until back.
    work: Mutex<Work>,
    device: Mutex<Option<Device>>,
    /// What the sink pad was told last.
    input: Mutex<Input>,
    /// Controls the run that goes on, from one activation of the source pad to the next.
    control: Mutex<Control>,
    pub(super) dropped: AtomicU64,
    pushed: AtomicU64,
    /// Upstream is live, as far as it was asked.
    is_live: AtomicBool,
    /// Frames come and go: not in PAUSED.
    is_playing: AtomicBool,
    stay: Mutex<Stay>,
    pub(super) aside: Aside,
    /// Frames due before this running time are late already, in nanoseconds; 0 if none are.
    earliest: AtomicU64,
    /// Where tracks came along, to be drawn.
    trails: Mutex<Trails>,
    #[cfg(feature = "v1_24")]
    first_seen: Mutex<marks::FirstSeen>,
}

/// What describes frames that come.
#[derive(Default)]
struct Input {
    layout: Option<Arc<Layout>>,
    segment: Option<gst::Segment>,
    /// A frame before the next was dropped.
    has_gap: bool,
}

/// For locks whose holders leave nothing half-done.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[glib::object_subclass]
impl ObjectSubclass for Lockon {
    const NAME: &'static str = "GstLockon";
    type Type = super::Lockon;
    type ParentType = gst::Element;

    fn with_class(class: &Self::Class) -> Self {
        let template = |name| class.pad_template(name).expect("both pads have templates");
        let sinkpad = gst::Pad::builder_from_template(&template("sink"))
            .chain_function(|pad, parent, buffer| {
                Self::catch_panic_pad_function(
                    parent,
                    || Err(gst::FlowError::Error),
                    |this| this.chain(pad, buffer),
                )
            })
            .event_function(|pad, parent, event| {
                Self::catch_panic_pad_function(parent, || false, |this| this.sink_event(pad, event))
            })
            .query_function(|pad, parent, query| {
                Self::catch_panic_pad_function(parent, || false, |this| this.sink_query(pad, query))
            })
            .flags(gst::PadFlags::PROXY_CAPS | gst::PadFlags::PROXY_SCHEDULING)
            .build();
        let srcpad = gst::Pad::builder_from_template(&template("src"))
            .activatemode_function(|pad, parent, mode, is_active| {
                // Not refused to an element that has panicked: its thread must end.
                let element = parent.and_then(|parent| parent.downcast_ref::<super::Lockon>());
                let element =
                    element.ok_or_else(|| gst::loggable_error!(CAT, "a pad without its element"))?;
                element.imp().activate(pad, mode, is_active)
            })
            .event_function(|pad, parent, event| {
                Self::catch_panic_pad_function(parent, || false, |this| this.src_event(pad, event))
            })
            .query_function(|pad, parent, query| {
                Self::catch_panic_pad_function(parent, || false, |this| this.src_query(pad, query))
            })
            .flags(gst::PadFlags::PROXY_CAPS)
            .build();
        Self {
            sinkpad,
            srcpad,
            settings: Mutex::default(),
            line: Line::default(),
            work: Mutex::default(),
            device: Mutex::default(),
            input: Mutex::default(),
            control: Mutex::default(),
            dropped: AtomicU64::new(0),
            pushed: AtomicU64::new(0),
            is_live: AtomicBool::new(false),
            is_playing: AtomicBool::new(false),
            stay: Mutex::default(),
            aside: Aside::default(),
            earliest: AtomicU64::new(0),
            trails: Mutex::default(),
            #[cfg(feature = "v1_24")]
            first_seen: Mutex::default(),
        }
    }
}

impl ObjectImpl for Lockon {
    fn properties() -> &'static [glib::ParamSpec] {
        static PROPERTIES: LazyLock<Vec<glib::ParamSpec>> = LazyLock::new(super::settings::properties);
        &PROPERTIES
    }

    fn constructed(&self) {
        self.parent_constructed();
        let element = self.obj();
        element.add_pad(&self.sinkpad).expect("a new element has no pads");
        element.add_pad(&self.srcpad).expect("a new element has no pads");
    }

    fn set_property(&self, _id: usize, value: &glib::Value, spec: &glib::ParamSpec) {
        let mut settings = lock(&self.settings);
        let before = settings.clone();
        settings.set(spec.name(), value);
        let after = settings.clone();
        drop(settings);
        self.apply(&before, after, spec.name());
    }

    fn property(&self, _id: usize, spec: &glib::ParamSpec) -> glib::Value {
        lock(&self.settings).get(spec.name())
    }
}

impl GstObjectImpl for Lockon {}

impl ElementImpl for Lockon {
    fn metadata() -> Option<&'static gst::subclass::ElementMetadata> {
        static METADATA: LazyLock<gst::subclass::ElementMetadata> = LazyLock::new(|| {
            gst::subclass::ElementMetadata::new(
                "lockon: template matching, tracking, adaptive thresholds",
                "Filter/Analyzer/Effect/Video",
                "Finds and follows known patterns by exact NCC, on the CPU or an NVIDIA GPU",
                "the authors of lockon",
            )
        });
        Some(&METADATA)
    }

    fn pad_templates() -> &'static [gst::PadTemplate] {
        static TEMPLATES: LazyLock<Vec<gst::PadTemplate>> = LazyLock::new(|| {
            let formats = PixelFormat::ALL.map(|format| format.name);
            let side = gst::IntRange::new(1, source::MAX_SIDE as i32);
            let caps = gst::Caps::builder("video/x-raw")
                .field("format", gst::List::new(formats))
                .field("width", side)
                .field("height", side)
                .field(
                    "framerate",
                    gst::FractionRange::new(gst::Fraction::new(0, 1), gst::Fraction::new(i32::MAX, 1)),
                )
                .build();
            [("sink", gst::PadDirection::Sink), ("src", gst::PadDirection::Src)]
                .map(|(name, direction)| {
                    gst::PadTemplate::new(name, direction, gst::PadPresence::Always, &caps)
                        .expect("a template with fixed names")
                })
                .into()
        });
        &TEMPLATES
    }

    fn change_state(
        &self,
        transition: gst::StateChange,
    ) -> std::result::Result<gst::StateChangeSuccess, gst::StateChangeError> {
        let prepared = match transition {
            gst::StateChange::NullToReady => self.probe(),
            gst::StateChange::ReadyToPaused => self.prepare(),
            _ => Ok(()),
        };
        prepared.map_err(|error| {
            self.post_error_message(trouble::error_message(&error));
            gst::StateChangeError
        })?;
        if transition == gst::StateChange::PlayingToPaused {
            self.is_playing.store(false, Ordering::Relaxed);
        }
        let changed = self.parent_change_state(transition)?;
        match transition {
            gst::StateChange::PausedToPlaying => self.is_playing.store(true, Ordering::Relaxed),
            // Pads are inactive by now, so nobody works with these any more.
            gst::StateChange::PausedToReady => {
                *lock(&self.work) = Work::default();
                *lock(&self.device) = None;
                *lock(&self.input) = Input::default();
            }
            _ => {}
        }
        Ok(changed)
    }
}

impl Lockon {
    /// NULL to READY: what was set can be read, and the device is there.
    fn probe(&self) -> Result<()> {
        let device = lock(&self.settings).device()?;
        backend::probe(device.options.choice)
    }

    /// READY to PAUSED: templates are read, and results files could be written.
    fn prepare(&self) -> Result<()> {
        let settings = lock(&self.settings).clone();
        let (device, job) = self.logging(|| Ok::<_, Error>((settings.device()?, settings.job()?)))?;
        let mut written = Vec::new();
        for path in device.results.iter().filter(|path| *path != "-") {
            output::Format::of(path)?;
            files::check_writable(path.as_ref())?;
            written.push(path.into());
        }
        let request = settings.request()?;
        let read: Vec<_> = request.template.iter().map(|text| lockon::job::name_and_path(text).1).collect();
        files::check_distinct(&read, &written)?;
        if !settings.has_work() {
            gst::element_imp_warning!(
                self,
                gst::LibraryError::Settings,
                ("nothing to do: set template, track or threshold; frames pass untouched")
            );
        }
        *lock(&self.work) = Work::new(Asked::new(job, settings));
        *lock(&self.device) = Some(device);
        self.dropped.store(0, Ordering::Relaxed);
        self.pushed.store(0, Ordering::Relaxed);
        *lock(&self.stay) = Stay::default();
        self.is_live.store(false, Ordering::Relaxed);
        self.earliest.store(0, Ordering::Relaxed);
        Ok(())
    }

    /// Makes a change of the search count from the next frame on. What cannot be used is told and taken back.
    fn apply(&self, before: &Settings, after: Settings, property: &str) {
        // Before PAUSED nothing has been read: that happens on the way there, once.
        let Some(property) = Settings::of_the_search(property).filter(|_| lock(&self.device).is_some())
        else {
            return;
        };
        if property == "view" && before.wants_mask() == after.wants_mask() {
            return;
        }
        match self.logging(|| after.job()) {
            Ok(job) => lock(&self.work).ask(property, job, after),
            Err(error) => {
                lock(&self.settings).restore(property, before);
                self.warn(&error);
            }
        }
    }

    /// No device can be opened for what was asked for: what was there before goes on, and the properties say
    /// so.
    pub(super) fn take_back(&self, asked: &Asked, before: &Asked, error: &Error) {
        let properties = lock(&self.work).refuse(asked, before);
        {
            let mut settings = lock(&self.settings);
            for property in &properties {
                settings.restore(property, before.settings());
            }
        }
        for property in properties {
            self.obj().notify(property);
        }
        self.warn(error);
    }

    /// Tells of a change that could not be made: what was set before goes on.
    fn warn(&self, error: &Error) {
        let text = trouble::in_properties(&error.to_string());
        gst::element_imp_warning!(self, gst::LibraryError::Settings, ("{text}; what was set before goes on"));
    }

    /// Tells of a results file that has failed.
    pub(super) fn warn_of_output(&self, error: &Error) {
        gst::element_imp_warning!(
            self,
            gst::ResourceError::Write,
            ("{error}; it is closed, and frames go on without it")
        );
    }

    pub(super) fn work(&self) -> MutexGuard<'_, Work> {
        lock(&self.work)
    }

    pub(super) fn is_playing(&self) -> bool {
        self.is_playing.load(Ordering::Relaxed)
    }

    /// Runs something of lockon's whose log is to be GStreamer's.
    fn logging<T>(&self, work: impl FnOnce() -> T) -> T {
        let log = ToGStreamersLog(glib::SendWeakRef::from(self.obj().downgrade()));
        tracing::subscriber::with_default(log, work)
    }

    fn activate(
        &self,
        pad: &gst::Pad,
        mode: gst::PadMode,
        is_active: bool,
    ) -> std::result::Result<(), gst::LoggableError> {
        if mode != gst::PadMode::Push {
            return Err(gst::loggable_error!(CAT, "only push mode is there"));
        }
        if is_active {
            *lock(&self.control) = Control::new();
            self.line.open();
            let element = self.obj().downgrade();
            pad.start_task(move || {
                if let Some(element) = element.upgrade() {
                    let this = element.imp();
                    // Otherwise the task would come round for ever, with nothing to do.
                    let goes_on = this.catch_panic(|| false, Self::serve);
                    if !goes_on {
                        this.line.fail();
                        let _ = this.srcpad.pause_task();
                    }
                }
            })
            .map_err(|error| gst::loggable_error!(CAT, "no thread can be started: {error}"))
        } else {
            lock(&self.control).stop();
            self.line.close();
            pad.stop_task()
                .map_err(|error| gst::loggable_error!(CAT, "the thread cannot be stopped: {error}"))
        }
    }

    /// One round of the task: pushes the event that comes next, or runs the engine. False when the element is
    /// being stopped.
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
                lock(&self.first_seen).clear();
                let control = lock(&self.control).clone();
                let outcome = self.logging(|| run::run(&self.obj(), &device, &input, &control));
                if let Err(error) = outcome
                    && !control.is_stopped()
                {
                    self.line.fail();
                    self.post_error_message(trouble::error_message(&error));
                }
                self.line.settle();
            }
        }
        true
    }

    /// Where the video comes from, if an element upstream says so.
    fn input_name(&self) -> String {
        let mut query = gst::query::Uri::new();
        let uri = self.sinkpad.peer_query(&mut query).then(|| query.uri()).flatten();
        let Some(uri) = uri else { return self.obj().name().into() };
        match glib::filename_from_uri(&uri) {
            Ok((path, _)) => path.to_string_lossy().into_owned(),
            Err(_) => uri.into(),
        }
    }

    /// Pushes a frame with its results, or an event. Tells what became of a frame.
    pub(super) fn depart(
        &self,
        departure: Departure,
    ) -> Option<std::result::Result<gst::FlowSuccess, gst::FlowError>> {
        match departure {
            Departure::Event(event) => {
                gst::log!(CAT, imp = self, "pushing {event:?}");
                // An event that nobody takes is no reason to stop: the next frame tells.
                let _ = self.aside.during(|| self.srcpad.push_event(event));
                None
            }
            Departure::Frame(arrival, outcome) => {
                let Arrival { index, at, aside, mut buffer, layout, times } = arrival;
                let (view, posts_messages) = {
                    let settings = lock(&self.settings);
                    (settings.view, settings.posts_messages)
                };
                let record = &outcome.record;
                let has_results = !record.matches.is_empty() || !record.tracks.is_empty();
                if has_results {
                    let buffer = buffer.make_mut();
                    marks::add_regions(buffer, record, layout.format.size);
                    #[cfg(feature = "v1_24")]
                    {
                        let mut seen = lock(&self.first_seen);
                        let now = times.running_time.unwrap_or_default();
                        if let Err(error) =
                            marks::add_analytics(buffer, record, layout.format.size, now, &mut seen)
                        {
                            gst::warning!(
                                CAT,
                                imp = self,
                                "frame {index} has no analytics metadata: {error}"
                            );
                        }
                    }
                }
                if let Some(view) = view.drawn()
                    && (has_results || outcome.mask.is_some())
                {
                    let writable = buffer.make_mut();
                    let frame = gst_video::VideoFrameRef::from_buffer_ref_writable(writable, &layout.info);
                    match frame {
                        Ok(mut frame) => sink::draw_in_place(
                            &mut frame,
                            &layout.format,
                            view,
                            record,
                            outcome.mask.as_ref(),
                            &mut lock(&self.trails),
                        ),
                        Err(error) => {
                            gst::warning!(CAT, imp = self, "frame {index} cannot be drawn on: {error}");
                        }
                    }
                }
                if posts_messages {
                    let structure = marks::structure(record, &times);
                    let message = gst::message::Element::builder(structure).src(&*self.obj()).build();
                    // Nobody may be listening.
                    let _ = self.obj().post_message(message);
                }
                // Back to the backend before downstream is waited for.
                drop(outcome);
                self.pushed.fetch_add(1, Ordering::Relaxed);
                self.note_stay(at, aside);
                gst::log!(CAT, imp = self, "pushing frame {index}");
                let flow = self.aside.during(|| self.srcpad.push(buffer));
                if let Err(error) = flow {
                    self.tell_of(error);
                }
                Some(flow)
            }
        }
    }

    /// Downstream refuses frames. Upstream hears of it with its next frame; if it has none, nobody else would
    /// tell.
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

    /// Learns how long live frames stay here, and says so when that becomes longer.
    fn note_stay(&self, arrived: Instant, aside: Duration) {
        if !self.is_live.load(Ordering::Relaxed) {
            return;
        }
        // A sink that waits for the clock holds up what comes after; that is its time, not ours.
        let aside = self.aside.total().saturating_sub(aside);
        let stay = arrived.elapsed().saturating_sub(aside);
        let room = self.room();
        if lock(&self.stay).note(stay, room) {
            gst::debug!(CAT, imp = self, "a live frame has stayed for {stay:?}");
            self.ask_for_latency();
        }
    }

    /// Most frames that are inside.
    fn room(&self) -> u64 {
        WAITING as u64 + u64::from(lock(&self.settings).depth)
    }

    /// Has the pipeline work out its latency again: ours has changed.
    fn ask_for_latency(&self) {
        let _ = self.obj().post_message(gst::message::Latency::builder().src(&*self.obj()).build());
    }

    fn chain(
        &self,
        _pad: &gst::Pad,
        mut buffer: gst::Buffer,
    ) -> std::result::Result<gst::FlowSuccess, gst::FlowError> {
        let (at, aside) = (Instant::now(), self.aside.total());
        let (layout, times, has_gap) = {
            let mut input = lock(&self.input);
            let layout = input.layout.clone().ok_or(gst::FlowError::NotNegotiated)?;
            (layout, times(&buffer, input.segment.as_ref()), std::mem::take(&mut input.has_gap))
        };
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
            self.line.put_frame(Arrival { index, at, aside, buffer, layout, times })
        };
        let max_frames = lock(&self.settings).max_frames;
        if flow.is_ok() && max_frames > 0 && index + 1 >= max_frames {
            // Told downstream from here, since upstream has more to send.
            self.line.put_event(gst::event::Eos::new());
        }
        flow
    }

    /// True if the sink has said that frames of this time come too late to be shown.
    fn is_late(&self, times: &Times) -> bool {
        let earliest = self.earliest.load(Ordering::Relaxed);
        let is_late = earliest > 0 && times.running_time.is_some_and(|time| time.nseconds() <= earliest);
        is_late && lock(&self.settings).has_qos
    }

    fn drop_late(&self, times: &Times) {
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

    fn sink_event(&self, pad: &gst::Pad, event: gst::Event) -> bool {
        gst::log!(CAT, obj = pad, "{event:?}");
        match event.view() {
            gst::EventView::FlushStart(_) => {
                self.line.start_flush();
                // Lets go of whoever waits downstream, in our push too.
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
                    let layout = Arc::new(Layout { info, format });
                    let duration = frame_duration(&layout);
                    lock(&self.input).layout = Some(layout);
                    if lock(&self.stay).set_frame(duration) {
                        // A live pipeline asks for latencies before its frames' rate is known.
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

    fn sink_query(&self, pad: &gst::Pad, query: &mut gst::QueryRef) -> bool {
        if !query.is_serialized() {
            return gst::Pad::query_default(pad, Some(&*self.obj()), query);
        }
        // It comes on the thread that frames come on, so none comes while it waits for those before it.
        if !self.line.wait_empty() {
            return false;
        }
        let is_answered = self.srcpad.peer_query(query);
        match query.view_mut() {
            // Frames are neither converted nor copied here, so what downstream can take upstream can make.
            gst::QueryViewMut::Allocation(allocation) => {
                if !is_answered {
                    return false;
                }
                self.ask_for_buffers(allocation);
                true
            }
            _ => is_answered,
        }
    }

    /// Says to whoever sizes a pool how many frames stay here.
    fn ask_for_buffers(&self, query: &mut gst::query::Allocation) {
        let ours = WAITING as u32 + lock(&self.settings).depth + 1;
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

    fn src_event(&self, pad: &gst::Pad, event: gst::Event) -> bool {
        if let gst::EventView::Qos(qos) = event.view()
            && let (_, _, jitter, Some(time)) = qos.get()
        {
            // A sink that is behind by `jitter` at `time` needs nothing that is due before both together.
            let earliest = i64::try_from(time.nseconds()).unwrap_or(i64::MAX).saturating_add(jitter).max(0);
            let earliest = if jitter > 0 { earliest.unsigned_abs() } else { 0 };
            self.earliest.store(earliest, Ordering::Relaxed);
        }
        gst::Pad::event_default(pad, Some(&*self.obj()), event)
    }

    fn src_query(&self, pad: &gst::Pad, query: &mut gst::QueryRef) -> bool {
        let gst::QueryViewMut::Latency(latency) = query.view_mut() else {
            return gst::Pad::query_default(pad, Some(&*self.obj()), query);
        };
        let mut upstream = gst::query::Latency::new();
        if !self.sinkpad.peer_query(&mut upstream) {
            return false;
        }
        let (is_live, mut min, mut max) = upstream.result();
        self.is_live.store(is_live, Ordering::Relaxed);
        // Frames of a file wait for nobody.
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

/// How long a frame is shown, where the rate is known.
fn frame_duration(layout: &Layout) -> Option<gst::ClockTime> {
    let (frames, seconds) = layout.format.frame_rate;
    let (frames, seconds) = (u64::try_from(frames).ok()?, u64::try_from(seconds).ok()?);
    // A rate of 0 is a rate that varies.
    (frames > 0).then(|| gst::ClockTime::SECOND.mul_div_round(seconds, frames)).flatten()
}

/// A buffer's times. Stream time is what results call `pts_ns`.
fn times(buffer: &gst::Buffer, segment: Option<&gst::Segment>) -> Times {
    let in_time = segment.and_then(|segment| segment.downcast_ref::<gst::ClockTime>());
    Times {
        pts: buffer.pts(),
        duration: buffer.duration(),
        stream_time: source::presentation_time(segment, buffer.pts(), false)
            .map(gst::ClockTime::from_nseconds),
        running_time: in_time.and_then(|segment| segment.to_running_time(buffer.pts())),
    }
}

impl View {
    /// As lockon names it; `None` leaves frames as they are.
    fn drawn(self) -> Option<lockon::config::View> {
        match self {
            Self::None => None,
            Self::Overlay => Some(lockon::config::View::Overlay),
            Self::Mask => Some(lockon::config::View::Mask),
            Self::Split => Some(lockon::config::View::Split),
        }
    }

    pub(super) fn has_mask(self) -> bool {
        self.drawn().is_some_and(lockon::config::View::has_mask)
    }
}
