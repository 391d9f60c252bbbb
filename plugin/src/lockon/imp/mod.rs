//! The element itself: pads, properties, states, and the flow between the pads.
//!
//! The streaming thread of upstream puts frames and serialised events into the [`Line`]; the task of the
//! source pad runs lockon's engine and pushes everything. So the element is a border between threads, as a
//! `queue` is.
//!
//! This module has the properties and states; `sink_pad` and `src_pad` have the pads' functions, `latency`
//! reports to the pipeline how long live frames stay.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, LazyLock, Mutex, OnceLock};

use gst::glib;
use gst::prelude::*;
use gst::subclass::prelude::*;
use lockon_core::change::Change;
use lockon_core::config::{BackendChoice, OnDeviceLoss};
use lockon_core::control::Control;
use lockon_core::error::{Error, Result};
use lockon_core::files;
use lockon_core::frame::PixelFormat;
use lockon_core::locks::{MutexGuard, Ranked, lock};
use lockon_core::message::Dialect;
use lockon_core::output;
use lockon_core::overlay::{Drawing, Trails};
use lockon_core::surface::Traffic;
use lockon_gst::cuda::{self, Surfaces};
use lockon_gst::source;
use lockon_gst::window::{self, Steering};
use lockon_run::backend::{self, Ahead};
use lockon_run::devices::GpuSeat;

use super::audience::Audience;
use super::latency::{ExcludedTime, Stay};
use super::line::{Layout, Line};
use super::log::ToGStreamersLog;
use super::marks;
use super::settings::{Device, Settings};
use super::work::{Refused, Work};
use super::{CAT, trouble};

mod latency;
mod outlet;
mod signals;
mod sink_pad;
mod src_pad;

/// The state of one element.
pub struct Lockon {
    sinkpad: gst::Pad,
    srcpad: gst::Pad,
    settings: Mutex<Settings>,
    pub(super) line: Line,
    /// The work on frames and its device: present from READY to PAUSED until back.
    work: Ranked<Work, 60>,
    /// Held while a change of the search is made, so that each change builds on the one before.
    asking: Ranked<(), 50>,
    device: Mutex<Option<Device>>,
    /// The device on which upstream may leave frames; known from READY on.
    surfaces: Ranked<Option<Surfaces>, 68>,
    seat: Mutex<Option<Seated>>,
    traffic: Traffic,
    /// The caps and segment that the sink pad received last.
    input: Mutex<InputStream>,
    /// Controls the current run, from one activation of the source pad to the next.
    control: Ranked<Control, 60>,
    /// Lets a window downstream steer the run.
    steering: Mutex<Option<Arc<Steering>>>,
    pub(super) dropped: AtomicU64,
    pushed: AtomicU64,
    /// True if upstream has reported that it is live.
    is_live: AtomicBool,
    /// True while frames flow: not in PAUSED.
    is_playing: AtomicBool,
    stay: Mutex<Stay>,
    pub(super) excluded: ExcludedTime,
    /// Frames due before this running time are late already, in nanoseconds; 0 if none are.
    earliest: AtomicU64,
    outlet: Mutex<outlet::NegotiatedLayers>,
    /// The paths of tracks, and the list of drawn shapes, which is filled again for each frame.
    drawing: Ranked<(Trails, Drawing), 65>,
    /// The ids of regions that are put on frames: present from READY to PAUSED until back.
    ids: Mutex<Option<marks::Ids>>,
    /// Checks whether the application reads the messages.
    pub(super) audience: Mutex<Audience>,
    #[cfg(feature = "v1_24")]
    seen: Mutex<marks::Seen>,
}

/// Address of the element's guide, if it was set for the build: `scripts/install-plugin` sets it.
const DOCUMENTATION: Option<&str> = option_env!("LOCKON_DOC_URI");

/// Describes the frames that come.
#[derive(Default)]
struct InputStream {
    layout: Option<Arc<Layout>>,
    segment: Option<gst::Segment>,
    /// A frame before the next was dropped.
    has_gap: bool,
}

#[glib::object_subclass]
impl ObjectSubclass for Lockon {
    const NAME: &'static str = "GstLockon";
    type Type = super::Lockon;
    type ParentType = gst::Element;
    type Interfaces = (gst::Preset,);

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
            work: Ranked::default(),
            asking: Ranked::default(),
            device: Mutex::default(),
            surfaces: Ranked::default(),
            seat: Mutex::default(),
            traffic: Traffic::default(),
            input: Mutex::default(),
            control: Ranked::default(),
            steering: Mutex::default(),
            dropped: AtomicU64::new(0),
            pushed: AtomicU64::new(0),
            is_live: AtomicBool::new(false),
            is_playing: AtomicBool::new(false),
            stay: Mutex::default(),
            excluded: ExcludedTime::default(),
            earliest: AtomicU64::new(0),
            outlet: Mutex::default(),
            drawing: Ranked::default(),
            ids: Mutex::default(),
            audience: Mutex::default(),
            #[cfg(feature = "v1_24")]
            seen: Mutex::default(),
        }
    }
}

impl ObjectImpl for Lockon {
    fn properties() -> &'static [glib::ParamSpec] {
        static PROPERTIES: LazyLock<Vec<glib::ParamSpec>> = LazyLock::new(super::settings::properties);
        &PROPERTIES
    }

    fn signals() -> &'static [glib::subclass::Signal] {
        static SIGNALS: LazyLock<Vec<glib::subclass::Signal>> = LazyLock::new(signals::signals);
        &SIGNALS
    }

    fn constructed(&self) {
        self.parent_constructed();
        let element = self.obj();
        element.add_pad(&self.sinkpad).expect("a new element has no pads");
        element.add_pad(&self.srcpad).expect("a new element has no pads");
    }

    fn set_property(&self, _id: usize, value: &glib::Value, spec: &glib::ParamSpec) {
        let mut settings = lock(&self.settings);
        let was_navigating = settings.navigates;
        // A controlled property is set for every frame.
        if !settings.set(spec.name(), value) {
            return;
        }
        let begins_to_navigate = settings.navigates && !was_navigating;
        drop(settings);
        let same = match spec.name() {
            "template" => Some("templates"),
            "templates" => Some("template"),
            _ => None,
        };
        if let Some(same) = same {
            self.obj().notify(same);
        }
        if begins_to_navigate {
            self.control.lock().keep_frames(window::KEPT);
        }
    }

    /// Called with all properties that one call has set.
    fn dispatch_properties_changed(&self, specs: &[glib::ParamSpec]) {
        self.apply(specs);
        self.parent_dispatch_properties_changed(specs);
    }

    fn property(&self, _id: usize, spec: &glib::ParamSpec) -> glib::Value {
        lock(&self.settings).get(spec.name())
    }
}

impl GstObjectImpl for Lockon {}

/// Presets contain all properties; `GObject` and the interface do the work.
impl PresetImpl for Lockon {}

impl ElementImpl for Lockon {
    fn metadata() -> Option<&'static gst::subclass::ElementMetadata> {
        static METADATA: LazyLock<gst::subclass::ElementMetadata> = LazyLock::new(|| {
            gst::subclass::ElementMetadata::with_additional(
                "lockon: template matching, tracking, adaptive thresholds",
                "Filter/Analyzer/Video",
                "Finds and follows known patterns by exact NCC, on the CPU or an NVIDIA GPU",
                "the authors of lockon",
                DOCUMENTATION.map(|uri| (&**gst::ELEMENT_METADATA_DOC_URI, uri)).as_slice(),
            )
        });
        Some(&METADATA)
    }

    fn pad_templates() -> &'static [gst::PadTemplate] {
        static TEMPLATES: LazyLock<Vec<gst::PadTemplate>> = LazyLock::new(|| {
            let side = gst::IntRange::new(1, source::MAX_SIDE as i32);
            let rates = gst::FractionRange::new(gst::Fraction::new(0, 1), gst::Fraction::new(i32::MAX, 1));
            let of = |formats: gst::List, features: &[&str]| {
                let caps = gst::Caps::builder("video/x-raw")
                    .field("format", formats)
                    .field("width", side)
                    .field("height", side)
                    .field("framerate", rates);
                caps.features(features.iter().copied()).build()
            };
            let on_host = || gst::List::new(source::formats());
            let on_device = || gst::List::new(PixelFormat::ALL.map(|format| format.name));
            let mut caps = of(on_host(), &[]);
            caps.make_mut().append(of(on_device(), &[cuda::FEATURE]));
            let mut with_layers = caps.clone();
            with_layers
                .make_mut()
                .append(of(on_host(), &[gst::CAPS_FEATURE_MEMORY_SYSTEM_MEMORY.as_str(), outlet::FEATURE]));
            with_layers.make_mut().append(of(on_device(), &[cuda::FEATURE, outlet::FEATURE]));
            [("sink", gst::PadDirection::Sink, caps), ("src", gst::PadDirection::Src, with_layers)]
                .map(|(name, direction, caps)| {
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
            // Pads are inactive by now, so no thread works with these any more.
            gst::StateChange::PausedToReady => {
                *self.work.lock() = Work::default();
                *lock(&self.device) = None;
                *lock(&self.ids) = None;
                *lock(&self.input) = InputStream::default();
                *lock(&self.outlet) = outlet::NegotiatedLayers::default();
            }
            gst::StateChange::ReadyToNull => {
                *self.surfaces.lock() = None;
                *lock(&self.seat) = None;
            }
            _ => {}
        }
        Ok(changed)
    }
}

/// The GPU on which an element is, from READY on.
struct Seated {
    asked: BackendChoice,
    choice: BackendChoice,
    _seat: Option<GpuSeat>,
}

impl Lockon {
    /// NULL to READY: checks that the properties can be read, and that the device exists.
    fn probe(&self) -> Result<()> {
        let Device { mut options, on_loss, .. } = lock(&self.settings).device()?;
        let asked = options.choice;
        let (choice, seat) = GpuSeat::of(asked)?;
        options.choice = choice;
        backend::probe(choice)?;
        *lock(&self.seat) = Some(Seated { asked, choice, _seat: seat });
        // Frames that are lost with the device cannot be given to another.
        let may_stay = options.choice != BackendChoice::Cpu && on_loss == OnDeviceLoss::End;
        let surfaces = if may_stay {
            let (traffic, device) = (self.traffic.clone(), OnceLock::new());
            let open = move || Ahead::open(options.choice, &traffic);
            Surfaces::new(move || Some(device.get_or_init(&open).device()?))
        } else {
            Surfaces::default()
        };
        *self.surfaces.lock() = Some(surfaces);
        Ok(())
    }

    /// The device on which frames may be.
    pub(super) fn surfaces(&self) -> Surfaces {
        self.surfaces.lock().clone().unwrap_or_default()
    }

    /// READY to PAUSED: reads templates, and checks that results files can be written.
    fn prepare(&self) -> Result<()> {
        let settings = lock(&self.settings).clone();
        let (mut device, setup) = self.logging(|| Ok::<_, Error>((settings.device()?, settings.setup()?)))?;
        device.options.traffic = self.traffic.clone();
        // With several GPUs, the run uses the one on which frames may stay.
        if let Some(Seated { asked, choice, .. }) = &*lock(&self.seat)
            && *asked == device.options.choice
        {
            device.options.choice = *choice;
        }
        let mut written = Vec::new();
        for path in device.results.iter().filter(|path| *path != "-") {
            output::Format::of(path)?;
            files::check_writable(path.as_ref())?;
            written.push(path.into());
        }
        let request = settings.request()?;
        let read: Vec<_> =
            request.template.iter().map(|text| lockon_run::setup::name_and_path(text).1).collect();
        files::check_distinct(&read, &written)?;
        if !settings.has_work() {
            gst::element_imp_warning!(
                self,
                gst::LibraryError::Settings,
                ("nothing to do yet: set template, track or threshold, or emit `follow`; until then frames pass untouched")
            );
        }
        *self.work.lock() = Work::new(setup, settings);
        *lock(&self.device) = Some(device);
        *lock(&self.ids) = Some(marks::Ids::new());
        *lock(&self.audience) = Audience::default();
        self.dropped.store(0, Ordering::Relaxed);
        self.pushed.store(0, Ordering::Relaxed);
        *lock(&self.stay) = Stay::default();
        self.is_live.store(false, Ordering::Relaxed);
        self.earliest.store(0, Ordering::Relaxed);
        Ok(())
    }

    /// Applies the properties of one call from the next frame on: all of them or none. Unusable values are
    /// reported and reverted.
    fn apply(&self, specs: &[glib::ParamSpec]) {
        // Before PAUSED nothing has been read: that happens once, on the way there.
        if lock(&self.device).is_none() {
            return;
        }
        for property in specs.iter().filter_map(|spec| Settings::of_the_start(spec.name())) {
            gst::element_imp_warning!(
                self,
                gst::LibraryError::Settings,
                ("{property} was set while the element runs: it counts from the next start on, after READY")
            );
        }
        if specs.iter().any(|spec| Settings::is_of_the_search(spec.name())) {
            self.obey(|_, settings| settings.clone());
        }
    }

    /// Applies values of control bindings from the next frame on. Other properties that are being set may
    /// belong together, so the thread that sets them applies them.
    pub(super) fn obey_bindings(&self) {
        let element = self.obj();
        let bound = Settings::controllable()
            .filter(|name| element.control_binding(name).is_some_and(|binding| !binding.is_disabled()));
        self.obey(|asked, settings| {
            let mut after = asked.clone();
            bound.for_each(|name| after.restore(name, settings));
            after
        });
    }

    /// Requests the settings that `wanted` makes from the last requested ones and the properties' current
    /// values.
    fn obey(&self, wanted: impl FnOnce(&Settings, &Settings) -> Settings) {
        // Warns without holding a lock, since a handler of the warning may set properties again.
        self.ask_of_settings(wanted).unwrap_or_else(|error| self.warn(&error));
    }

    fn ask_of_settings(&self, wanted: impl FnOnce(&Settings, &Settings) -> Settings) -> Result<()> {
        let _one = self.asking.lock();
        let asked = self.work().asked().clone();
        let after = wanted(&asked, &lock(&self.settings));
        let properties = after.changed_since(&asked);
        if properties.is_empty() {
            return Ok(());
        }
        let change = self.logging(|| after.request()?.change_since(&asked.request()?));
        let made = change.and_then(|change| {
            if change.is_empty() { Ok(()) } else { self.ask(change, properties.clone(), after.clone()) }
        });
        if made.is_err() {
            self.restore(&properties, &after, &asked);
        }
        made
    }

    /// Requests a change of the template of a name. If the property lists a file under that name, the file is
    /// no longer searched.
    fn ask_of_template(&self, name: &str, change: Change) -> Result<()> {
        if lock(&self.device).is_none() {
            let reason = "the element is in READY or NULL: set `template`, or wait for PAUSED".into();
            return Err(Error::Order { order: change.to_string(), reason });
        }
        let one = self.asking.lock();
        let mut after = self.work().asked().clone();
        let is_listed = after.forget_template(name);
        let properties = if is_listed { vec!["template"] } else { Vec::new() };
        self.ask(change, properties, after.clone())?;
        if is_listed {
            lock(&self.settings).restore("template", &after);
        }
        drop(one);
        if is_listed {
            self.obj().notify("template");
        }
        Ok(())
    }

    /// Requests a change of the search to the properties' values in `settings`.
    fn ask(&self, change: Change, properties: Vec<&'static str>, settings: Settings) -> Result<()> {
        let control = self.control.lock().clone();
        self.work().ask(&control, change, properties, settings)
    }

    /// Sets properties that still have the values of `refused` to those of `held`. Returns these properties.
    fn restore(&self, properties: &[&'static str], refused: &Settings, held: &Settings) -> Vec<&'static str> {
        let mut settings = lock(&self.settings);
        let are_same = properties.iter().filter(|property| settings.has_same(property, refused));
        let restored: Vec<_> = are_same.copied().collect();
        for property in &restored {
            settings.restore(property, held);
        }
        restored
    }

    /// Receives the answer to a change of the search: a refused change is reverted, also in the properties.
    /// True if a warning was posted.
    pub(super) fn hear_of_change(&self) -> bool {
        let refused = self.work().hear();
        refused.is_some_and(|refused| self.take_back(refused))
    }

    /// Reverts a refused change. True if a warning was posted.
    pub(super) fn take_back(&self, Refused { error, properties, settings, held }: Refused) -> bool {
        for property in self.restore(&properties, &settings, &held) {
            self.obj().notify(property);
        }
        let is_of_properties = !properties.is_empty();
        if is_of_properties {
            self.warn(&error);
        }
        is_of_properties
    }

    /// True if the thresholded frame is drawn, if there is one.
    pub(super) fn wants_mask(&self) -> bool {
        lock(&self.settings).wants_mask()
    }

    /// Warns of a change that could not be made: the earlier settings stay.
    fn warn(&self, error: &Error) {
        let text = error.told(Dialect::Properties);
        gst::element_imp_warning!(self, gst::LibraryError::Settings, ("{text}; the earlier settings stay"));
    }

    /// Warns of a results file that has failed.
    pub(super) fn warn_of_output(&self, error: &Error) {
        gst::element_imp_warning!(
            self,
            gst::ResourceError::Write,
            ("{error}; it is closed, and frames go on without it")
        );
    }

    /// Returns the steering of the run by a window downstream. A copy, since it has locks of its own.
    fn steering(&self) -> Option<Arc<Steering>> {
        lock(&self.steering).clone()
    }

    pub(super) fn work(&self) -> MutexGuard<'_, Work> {
        self.work.lock()
    }

    pub(super) fn is_playing(&self) -> bool {
        self.is_playing.load(Ordering::Relaxed)
    }

    /// Answers a query that is not in the order of frames. From READY on, it leaves out caps whose frames lie
    /// in memory that the element cannot read.
    fn answer(&self, pad: &gst::Pad, query: &mut gst::QueryRef) -> bool {
        if let gst::QueryViewMut::Context(query) = query.view_mut()
            && cuda::answer_context_query(query, &self.surfaces())
        {
            return true;
        }
        let is_answered =
            self.answer_with_layers(pad, query) || gst::Pad::query_default(pad, Some(&*self.obj()), query);
        if let gst::QueryViewMut::Caps(query) = query.view_mut()
            && self.surfaces.lock().as_ref().is_some_and(|surfaces| !surfaces.are_usable())
            && let Some(caps) = query.result_owned()
        {
            query.set_result(&cuda::without_device_memory(&caps));
        }
        is_answered
    }

    /// Runs code of lockon with its log sent to GStreamer's.
    fn logging<T>(&self, work: impl FnOnce() -> T) -> T {
        let log = ToGStreamersLog(glib::SendWeakRef::from(self.obj().downgrade()));
        tracing::subscriber::with_default(log, work)
    }
}
