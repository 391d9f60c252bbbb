//! What can go wrong, in GStreamer's terms: domains and codes for errors, its log for what lockon logs.

use std::fmt::Write as _;

use gst::glib;
use lockon::Error;
use lockon::error::DeviceFault;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

use super::CAT;

/// An error as the bus carries it: its domain and code say whose fault it is, its text what happened and what mends it.
pub(super) fn error_message(error: &Error) -> gst::ErrorMessage {
    use gst::{LibraryError, ResourceError, StreamError};
    let text = in_properties(&error.to_string());
    let io = |cause: &std::io::Error, other| match cause.kind() {
        std::io::ErrorKind::NotFound => ResourceError::NotFound,
        std::io::ErrorKind::PermissionDenied => ResourceError::NotAuthorized,
        std::io::ErrorKind::StorageFull => ResourceError::NoSpaceLeft,
        _ => other,
    };
    match error {
        Error::File { action: "read", cause, .. } => {
            gst::error_msg!(io(cause, ResourceError::OpenRead), ("{text}"))
        }
        Error::File { cause, .. } => gst::error_msg!(io(cause, ResourceError::OpenWrite), ("{text}")),
        Error::Picture { .. } => gst::error_msg!(ResourceError::Read, ("{text}")),
        Error::Output { .. } | Error::PictureNotWritten { .. } => {
            gst::error_msg!(ResourceError::Write, ("{text}"))
        }
        Error::Pipeline { .. } | Error::NoVideo { .. } => {
            gst::error_msg!(StreamError::Format, ("{text}"))
        }
        Error::Backend { fault, .. } => {
            let code = match fault {
                DeviceFault::NoDriver { .. } | DeviceFault::NoSuchDevice { .. } => ResourceError::NotFound,
                DeviceFault::OutOfMemory { .. } | DeviceFault::OutOfHostMemory { .. } => {
                    ResourceError::NoSpaceLeft
                }
                DeviceFault::DriverTooOld { .. }
                | DeviceFault::DeviceTooOld { .. }
                | DeviceFault::FrameTooLarge { .. } => ResourceError::Settings,
                _ => ResourceError::Failed,
            };
            gst::error_msg!(code, ("{text}"))
        }
        // Values, templates and boxes that cannot be used.
        _ => gst::error_msg!(LibraryError::Settings, ("{text}")),
    }
}

/// Options of the program are properties here: `--backend cpu` becomes `backend=cpu`.
pub(super) fn in_properties(text: &str) -> String {
    const WITH_VALUE: [&str; 3] = ["--backend", "--kernel", "--on-device-loss"];
    let words: Vec<&str> = text.split(' ').collect();
    let mut said: Vec<String> = Vec::with_capacity(words.len());
    let mut at = 0;
    while let Some(word) = words.get(at) {
        let value = words.get(at + 1).filter(|v| v.starts_with(|c: char| c.is_ascii_lowercase()));
        // `--kernel NAME` names a value, `--kernel chooses` does not.
        let value = value.filter(|v| **v != "chooses");
        match (WITH_VALUE.contains(word), value) {
            (true, Some(value)) => {
                said.push(format!("{}={value}", &word[2..]));
                at += 1;
            }
            _ => said.push(word.strip_prefix("--").unwrap_or(word).to_owned()),
        }
        at += 1;
    }
    said.join(" ")
}

/// Passes what lockon logs on the current thread to GStreamer's log, in the element's name.
pub(super) struct ToGStreamersLog(pub(super) glib::SendWeakRef<super::Lockon>);

impl Subscriber for ToGStreamersLog {
    fn register_callsite(&self, _: &'static Metadata<'static>) -> tracing::subscriber::Interest {
        // Asked every time, as the level of a category can be changed at any time, and other threads have other subscribers.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn remedies_name_properties() {
        for (options, properties) in [
            ("install a driver, or use --backend cpu", "install a driver, or use backend=cpu"),
            ("use a smaller --depth if it is not 1", "use a smaller depth if it is not 1"),
            (
                "--kernel chooses among them: it needs --backend cuda",
                "kernel chooses among them: it needs backend=cuda",
            ),
            ("--kernel ncc-shared has nothing to do here", "kernel=ncc-shared has nothing to do here"),
            ("run again, or with --on-device-loss cpu", "run again, or with on-device-loss=cpu"),
        ] {
            assert_eq!(in_properties(options), properties);
        }
    }
}
