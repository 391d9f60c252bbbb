//! Connects lockon's log to GStreamer's.

use std::fmt::Write as _;

use gst::glib;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

use super::CAT;

/// Passes lockon's log of the current thread to GStreamer's log, in the element's name.
pub(super) struct ToGStreamersLog(pub(super) glib::SendWeakRef<super::Lockon>);

impl Subscriber for ToGStreamersLog {
    fn register_callsite(&self, _: &'static Metadata<'static>) -> tracing::subscriber::Interest {
        // Checked every time: the level of a category can change at any time, and other threads have other
        // subscribers.
        tracing::subscriber::Interest::sometimes()
    }

    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        level(*metadata.level()) <= CAT.threshold()
    }

    fn event(&self, event: &Event<'_>) {
        let mut text = Text(String::new());
        event.record(&mut text);
        let place = event.metadata();
        let file = glib::GString::from(place.file().unwrap_or_default());
        CAT.log(
            self.0.upgrade().as_ref(),
            level(*place.level()),
            file.as_ref(),
            place.target(),
            place.line().unwrap_or(0),
            format_args!("{}", text.0),
        );
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

fn level(level: Level) -> gst::DebugLevel {
    match level {
        Level::ERROR => gst::DebugLevel::Error,
        Level::WARN => gst::DebugLevel::Warning,
        Level::INFO => gst::DebugLevel::Info,
        Level::DEBUG => gst::DebugLevel::Debug,
        Level::TRACE => gst::DebugLevel::Trace,
    }
}

struct Text(String);

impl Visit for Text {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        // Writing to a text cannot fail.
        let _ = match field.name() {
            "message" => write!(self.0, "{value:?}"),
            name => write!(self.0, " {name}={value:?}"),
        };
    }
}
