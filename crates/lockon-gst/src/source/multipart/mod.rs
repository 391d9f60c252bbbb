//! Cameras that send JPEG pictures over HTTP, one after the other in one response
//! (`multipart/x-mixed-replace`): ESP32-CAM, Axis, mjpg-streamer, `OctoPrint`.
//!
//! GStreamer's own path for them delivers each picture only with the next one, waits for kilobytes before it
//! knows the type, and treats the camera as a file. So an element of our own, registered in this process
//! only, extracts the pictures from the response. The HTTP source sends the `Content-Type` of the response in
//! an event before the first byte; if it announces such pictures, that pad gets caps that only this element
//! accepts. So no bytes are needed to find the type, and the camera gets one connection: small cameras allow
//! no second.
//!
//! Files of the same form are not live. They have other caps, for which GStreamer chooses its own element: it
//! keeps every picture. So both can be read in one process, in any order.
//!
//! Pictures get the time of their arrival. The HTTP source is read as fast as the camera sends: if the
//! decoder is slower, older pictures are dropped and counted, before they are decoded.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

use gst::glib;
use gst::prelude::*;
use gst::subclass::prelude::ObjectSubclassIsExt;

use super::reconnect::ResumePoint;
use super::{Input, LOG, SourceSpec};
use crate::damage::Errors;
use crate::launch;
use lockon_core::locks::lock;
use lockon_core::still;

mod jpeg_end;
mod parser;
#[cfg(test)]
mod tests;

/// Caps of such a response. No type finder and no other element has this name.
const RESPONSE: &str = "application/x-lockon-multipart";

/// The name of our element.
const ELEMENT: &str = "lockonmultipart";

/// State of the pictures of one connection.
#[derive(Debug, Default)]
pub(super) struct Multipart {
    is_found: AtomicBool,
    /// Pictures that were dropped before they were decoded, and are not counted yet.
    skipped: AtomicU64,
    /// Counts pictures that arrived incomplete.
    errors: OnceLock<Errors>,
    /// True if every picture is kept.
    is_lossless: bool,
    /// The clock, and its time at the start of the run, before the pipeline has one of its own.
    clock: Option<(gst::Clock, gst::ClockTime)>,
}

impl Multipart {
    /// Listens to the HTTP source that the pipeline will have.
    pub(super) fn watch(spec: &SourceSpec, pipeline: &gst::Pipeline, resume: &ResumePoint) -> Arc<Self> {
        let multipart = Arc::new(Self {
            is_lossless: spec.live == Some(false),
            clock: resume.clock.clone(),
            ..Self::default()
        });
        if matches!(&spec.input, Input::Uri(uri) if uri.scheme().starts_with("http")) && register() {
            let of_elements = Arc::clone(&multipart);
            pipeline.connect_deep_element_added(move |_, _, element| of_elements.meet(element));
        }
        multipart
    }

    /// True once the server has announced such pictures.
    pub(super) fn is_found(&self) -> bool {
        self.is_found.load(Ordering::Acquire)
    }

    /// Counts damaged pictures there.
    pub(super) fn count_damage(&self, errors: &Errors) {
        let _ = self.errors.set(errors.clone());
    }

    /// Checks whether a picture without its end marker is complete. The decoder fills in the missing part
    /// without an error.
    fn check(&self, picture: &[u8]) {
        if let Some(errors) = self.errors.get()
            && still::is_cut_jpeg(picture)
            && errors.count()
        {
            tracing::warn!("the video is damaged: a picture is cut off, its rest is grey");
        }
    }

    /// Returns how many pictures were dropped since the last call.
    pub(super) fn take_skipped(&self) -> u64 {
        self.skipped.swap(0, Ordering::Relaxed)
    }

    fn meet(self: &Arc<Self>, element: &gst::Element) {
        if let Some(bin) = element.downcast_ref::<MultipartBin>() {
            // Elements are added once.
            let _ = bin.imp().multipart.set(Arc::clone(self));
            return;
        }
        let is_network = element.factory().is_some_and(|factory| {
            factory.metadata("klass").is_some_and(|class| class.contains("Source/Network"))
        });
        let Some(pad) = element.static_pad("src").filter(|_| is_network) else { return };
        let multipart = Arc::clone(self);
        let seen = Mutex::new(None);
        pad.add_probe(gst::PadProbeType::EVENT_DOWNSTREAM, move |pad, info| {
            launch::guarded(pad, gst::PadProbeReturn::Ok, || {
                if let Some(event) = info.event()
                    && let Some(boundary) = boundary_of(event)
                {
                    // Pushing caps from here repeats this event.
                    let seen = lock(&seen).replace(event.seqnum());
                    if seen != Some(event.seqnum()) {
                        multipart.begin(pad, &boundary);
                    }
                }
                gst::PadProbeReturn::Ok
            })
        });
    }

    /// The server has answered with such pictures; on the streaming thread of the HTTP source.
    fn begin(&self, pad: &gst::Pad, boundary: &str) {
        // A lost camera is reported. By itself the source would reconnect silently.
        if let Some(source) = pad.parent_element().filter(|source| source.has_property("retries")) {
            source.set_property("retries", 0);
        }
        tracing::debug!(target: LOG, "JPEG pictures over HTTP, boundary {boundary:?}");
        self.is_found.store(true, Ordering::Release);
        let caps = gst::Caps::builder(RESPONSE).field("boundary", boundary).build();
        pad.push_event(gst::event::Caps::new(&caps));
    }

    /// The time for a picture that arrives now.
    fn now(&self, element: &gst::Element) -> Option<gst::ClockTime> {
        let of_run = || {
            let (clock, start) = self.clock.as_ref()?;
            Some(clock.time().saturating_sub(*start))
        };
        element.current_running_time().or_else(of_run)
    }
}

/// The boundary in the head of a response that announces such pictures; it may be empty.
fn boundary_of(event: &gst::EventRef) -> Option<String> {
    let structure = event.structure().filter(|structure| structure.name() == "http-headers")?;
    let headers = structure.get::<gst::Structure>("response-headers").ok()?;
    let kind = headers.iter().find_map(|(name, value)| {
        let is_kind = name.as_str().eq_ignore_ascii_case("content-type");
        value.get::<String>().ok().filter(|_| is_kind)
    })?;
    let mut parts = kind.split(';').map(str::trim);
    let name = parts.next()?.to_ascii_lowercase();
    let boundary = parts.find_map(|parameter| {
        let (name, value) = parameter.split_once('=')?;
        name.trim().eq_ignore_ascii_case("boundary").then(|| value.trim().trim_matches('"').to_owned())
    });
    name.starts_with("multipart/").then(|| boundary.unwrap_or_default())
}

/// Registers the element in this process; returns false if that fails. Its rank only makes it eligible: it
/// accepts no caps but [`RESPONSE`].
fn register() -> bool {
    static IS_REGISTERED: OnceLock<bool> = OnceLock::new();
    *IS_REGISTERED.get_or_init(|| {
        gst::Element::register(None, ELEMENT, gst::Rank::PRIMARY, MultipartBin::static_type()).is_ok()
    })
}

glib::wrapper! {
    /// Extracts JPEG pictures from a response.
    pub struct MultipartBin(ObjectSubclass<imp::MultipartBin>)
        @extends gst::Bin, gst::Element, gst::Object;
}

mod imp {
    use std::sync::LazyLock;

    use lockon_core::locks::MutexGuard;

    use super::parser::Parser;
    use super::{Arc, AtomicU64, Multipart, Mutex, OnceLock, Ordering, RESPONSE, glib, lock};
    use gst::prelude::*;
    use gst::subclass::prelude::*;

    /// Pictures between the response and the decoder: one that is decoded next, and a newer one.
    const WAITING: u32 = 2;

    /// A sink pad that takes the response apart, and a queue that keeps the newest pictures.
    pub struct MultipartBin {
        sink: gst::Pad,
        queue: OnceLock<gst::Element>,
        pub(in super::super) multipart: OnceLock<Arc<Multipart>>,
        reading: Mutex<Reading>,
    }

    #[derive(Default)]
    struct Reading {
        parser: Parser,
        /// The number of the next picture.
        next: u64,
        last: Option<gst::ClockTime>,
        has_segment: bool,
    }

    static TEMPLATES: LazyLock<Vec<gst::PadTemplate>> = LazyLock::new(|| {
        let always = gst::PadPresence::Always;
        let sink = gst::Caps::builder(RESPONSE).build();
        let src = gst::Caps::builder("image/jpeg").build();
        let made = [("sink", gst::PadDirection::Sink, sink), ("src", gst::PadDirection::Src, src)]
            .map(|(name, direction, caps)| gst::PadTemplate::new(name, direction, always, &caps));
        made.into_iter().collect::<Result<_, _>>().expect("names and caps are valid")
    });

    #[glib::object_subclass]
    impl ObjectSubclass for MultipartBin {
        const NAME: &'static str = "LockonMultipart";
        type Type = super::MultipartBin;
        type ParentType = gst::Bin;

        fn with_class(_: &Self::Class) -> Self {
            let sink = gst::Pad::builder_from_template(&TEMPLATES[0])
                .chain_function(|pad, parent, buffer| {
                    let otherwise = || Err(gst::FlowError::Error);
                    Self::catch_panic_pad_function(parent, otherwise, |this| this.take(pad, &buffer))
                })
                .event_function(|pad, parent, event| {
                    Self::catch_panic_pad_function(parent, || false, |this| this.hear(pad, event))
                })
                .build();
            Self { sink, queue: OnceLock::new(), multipart: OnceLock::new(), reading: Mutex::default() }
        }
    }

    impl ObjectImpl for MultipartBin {
        fn constructed(&self) {
            self.parent_constructed();
            let bin = self.obj();
            let made = gst::ElementFactory::make("queue")
                .property("max-size-buffers", WAITING)
                .property("max-size-bytes", 0_u32)
                .property("max-size-time", 0_u64)
                .build();
            // Without a queue the first buffer is an error.
            let Ok(queue) = made else { return };
            let Some(pad) = queue.static_pad("src") else { return };
            self.count(&pad);
            let ghost = gst::GhostPad::builder_from_template(&TEMPLATES[1]).build();
            let is_made = bin.add(&queue).is_ok()
                && ghost.set_target(Some(&pad)).is_ok()
                && bin.add_pad(&self.sink).is_ok()
                && bin.add_pad(&ghost).is_ok();
            if is_made {
                let _ = self.queue.set(queue);
            }
        }
    }

    impl GstObjectImpl for MultipartBin {}

    impl ElementImpl for MultipartBin {
        fn metadata() -> Option<&'static gst::subclass::ElementMetadata> {
            static METADATA: LazyLock<gst::subclass::ElementMetadata> = LazyLock::new(|| {
                gst::subclass::ElementMetadata::new(
                    "JPEG pictures of a response",
                    "Codec/Demuxer",
                    "Takes JPEG pictures out of multipart/x-mixed-replace as they arrive",
                    "lockon",
                )
            });
            Some(&METADATA)
        }

        fn pad_templates() -> &'static [gst::PadTemplate] {
            &TEMPLATES
        }

        fn change_state(
            &self,
            change: gst::StateChange,
        ) -> Result<gst::StateChangeSuccess, gst::StateChangeError> {
            if change == gst::StateChange::ReadyToPaused
                && let Some(queue) = self.queue.get()
            {
                let is_lossless = self.multipart.get().is_none_or(|multipart| multipart.is_lossless);
                queue.set_property_from_str("leaky", if is_lossless { "no" } else { "downstream" });
                *self.reading() = Reading::default();
            }
            self.parent_change_state(change)
        }
    }

    impl BinImpl for MultipartBin {}

    impl MultipartBin {
        fn reading(&self) -> MutexGuard<'_, Reading> {
            lock(&self.reading)
        }

        fn inner(&self) -> Option<gst::Pad> {
            self.queue.get()?.static_pad("sink")
        }

        /// Counts pictures that the queue dropped, by the numbers of those that leave it.
        fn count(&self, pad: &gst::Pad) {
            let (bin, next) = (self.obj().downgrade(), AtomicU64::new(0));
            pad.add_probe(gst::PadProbeType::BUFFER, move |_, info| {
                if let Some(number) = info.buffer().map(|buffer| buffer.offset())
                    && let Some(bin) = bin.upgrade()
                    && let Some(multipart) = bin.imp().multipart.get()
                {
                    let expected = next.swap(number + 1, Ordering::Relaxed);
                    multipart.skipped.fetch_add(number.saturating_sub(expected), Ordering::Relaxed);
                }
                gst::PadProbeReturn::Ok
            });
        }

        /// A piece of the response.
        fn take(&self, _: &gst::Pad, buffer: &gst::Buffer) -> Result<gst::FlowSuccess, gst::FlowError> {
            let inner = self.inner().ok_or(gst::FlowError::Error)?;
            let bytes = buffer.map_readable().map_err(|_| gst::FlowError::Error)?;
            let mut pictures = Vec::new();
            let mut reading = self.reading();
            let pushed =
                reading.parser.push(&bytes, |picture, has_end| pictures.push((picture.to_vec(), has_end)));
            let element = self.obj();
            let mut flow = Ok(gst::FlowSuccess::Ok);
            for (picture, has_end) in pictures {
                if let Some(multipart) = self.multipart.get().filter(|_| !has_end) {
                    multipart.check(&picture);
                }
                if !std::mem::replace(&mut reading.has_segment, true) {
                    inner.send_event(gst::event::Segment::new(
                        &gst::FormattedSegment::<gst::ClockTime>::new(),
                    ));
                }
                let now = self.multipart.get().and_then(|multipart| multipart.now(element.upcast_ref()));
                // Times of the first pictures are known only when the pipeline plays.
                let pts = now.unwrap_or_default().max(reading.last.unwrap_or_default());
                let mut made = gst::Buffer::from_slice(picture);
                if let Some(made) = made.get_mut() {
                    made.set_pts(pts);
                    made.set_offset(reading.next);
                }
                (reading.last, reading.next) = (Some(pts), reading.next + 1);
                flow = inner.chain(made);
                if flow.is_err() {
                    break;
                }
            }
            if let Err(reason) = pushed {
                gst::element_imp_error!(self, gst::StreamError::Demux, ("{}", reason));
                return Err(gst::FlowError::Error);
            }
            flow
        }

        fn hear(&self, _: &gst::Pad, event: gst::Event) -> bool {
            let Some(inner) = self.inner() else { return false };
            match event.view() {
                gst::EventView::Caps(caps) => {
                    let said = caps.caps().structure(0).and_then(|s| s.get::<String>("boundary").ok());
                    self.reading().parser = Parser::new(&said.unwrap_or_default());
                    // The rate of the pictures varies.
                    let rate = gst::Fraction::new(0, 1);
                    let pictures = gst::Caps::builder("image/jpeg").field("framerate", rate).build();
                    inner.send_event(gst::event::Caps::new(&pictures))
                }
                // This segment counts bytes of the response.
                gst::EventView::Segment(_) => true,
                _ => inner.send_event(event),
            }
        }
    }
}
