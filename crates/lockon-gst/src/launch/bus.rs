//! The bus: selects the messages that matter, and converts its errors.

use std::sync::atomic::Ordering;

use crossbeam_channel::Sender;
use gst::prelude::*;

use super::missing::missing_plugin;
use super::running::{Heard, Redirection};
use super::{LOG, News};
use lockon_core::error::Error;
use lockon_core::text::without_secrets;

/// Passes on the messages that matter. Runs on the thread that posts the message, so it only sorts.
pub(super) fn sort(message: &gst::Message, heard: &Heard, sender: &Sender<News>) {
    let news = match message.view() {
        gst::MessageView::AsyncDone(_) => News::Prerolled,
        gst::MessageView::Eos(_) => News::Ended,
        gst::MessageView::Latency(_) => News::Latency,
        gst::MessageView::ClockLost(_) => News::ClockLost,
        gst::MessageView::Error(_) if heard.is_closed.load(Ordering::Relaxed) => return,
        gst::MessageView::Error(error) if is_of_closed_window(error) => {
            heard.is_closed.store(true, Ordering::Relaxed);
            if let Some(control) = heard.control.get() {
                control.stop();
            }
            News::Closed
        }
        gst::MessageView::Error(error) => {
            // A missing plugin was announced by a message of its own; the error itself does not say which.
            let named = heard.missing.lock().take();
            News::Failed(named.unwrap_or_else(|| bus_error(error)))
        }
        gst::MessageView::Warning(warning) => {
            let (element, said) = (source_name(message), warning.error());
            if said.is::<gst::StreamError>() {
                heard.errors.count();
            }
            let text = without_secrets(said.message()).into_owned();
            if said.matches(gst::CoreError::Clock) && heard.is_late.swap(true, Ordering::Relaxed) {
                tracing::debug!(target: LOG, "{element}: {text}");
                return;
            }
            let debug = without_secrets(&warning.debug().unwrap_or_default()).into_owned();
            // A converter that cannot read a frame passes an empty one on.
            let is_of_filter = message.src().is_some_and(ObjectExt::is::<gst_video::VideoFilter>);
            if said.matches(gst::CoreError::NotImplemented) && is_of_filter {
                let message = "it cannot convert these pictures".to_owned();
                let _ = sender.send(News::Failed(Error::Pipeline { element, message, debug }));
                return;
            }
            tracing::warn!(target: LOG, "{element}: {text}");
            if !said.is::<gst::ResourceError>() {
                return;
            }
            News::InTrouble(Error::Resource { element, message: text, debug })
        }
        gst::MessageView::Element(element) => {
            if let Some(error) = element.structure().and_then(missing_plugin) {
                heard.missing.lock().get_or_insert(error);
            }
            if let Some(redirection) = element.structure().and_then(redirection) {
                heard.redirection.lock().replace(redirection);
            }
            return;
        }
        _ => return,
    };
    // The receiver is gone with the pipeline's owner: then the message has no use.
    let _ = sender.send(news);
}

/// Reads the target of an HTTP server's redirect. A source that follows redirections reports only the last
/// response.
fn redirection(message: &gst::StructureRef) -> Option<Redirection> {
    let status = message.get::<u32>("http-status-code").ok()?;
    if message.name() != "http-headers" || !(300..400).contains(&status) {
        return None;
    }
    let from = message.get::<String>("uri").ok()?;
    let headers = message.get::<gst::Structure>("response-headers").ok()?;
    let is_location = |name: &str| name.eq_ignore_ascii_case("location");
    let (_, to) = headers.iter().find(|(name, _)| is_location(name.as_str()))?;
    Some(Redirection { from, to: to.get::<String>().ok()? })
}

/// True if a video output reports that its window was closed. Only the text differs from the error for a
/// missing device.
fn is_of_closed_window(error: &gst::message::Error) -> bool {
    error.error().matches(gst::ResourceError::NotFound)
        && error.error().message().ends_with("indow was closed")
}

/// Our message if decodebin finds streams, but none of the wanted kind.
///
/// decodebin itself reports a missing plug-in; if one is missing, an earlier message has named it.
pub const NOTHING_WANTED: &str = "no stream of the wanted kind";

/// Converts an error message of a bus to `Pipeline`, or to `Resource` if waiting may help: not for a wrong
/// password.
pub fn bus_error(error: &gst::message::Error) -> Error {
    let said = error.error();
    let debug = error.debug().unwrap_or_default();
    // The text for people is translated, the one for developers is not.
    let message = if debug.contains("no suitable plugins found") {
        NOTHING_WANTED.to_owned()
    } else {
        without_secrets(said.message().trim_end_matches('.')).into_owned()
    };
    let debug = without_secrets(&debug).into_owned();
    let element = source_name(error.message());
    if said.is::<gst::ResourceError>() && !said.matches(gst::ResourceError::NotAuthorized) {
        return Error::Resource { element, message, debug };
    }
    Error::Pipeline { element, message, debug }
}

/// Name of the element that posted a message.
fn source_name(message: &gst::MessageRef) -> String {
    message.src().map_or_else(|| "pipeline".to_owned(), |source| source.name().into())
}
