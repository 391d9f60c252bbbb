//! Counts what demuxers and decoders complain of and go on from.
//!
//! Demuxers warn on the bus: packets of a transport stream that are missing. Decoders are silent there. A
//! damaged packet is concealed as far as that goes: the frame comes out, with no flag on it. The only trace
//! is in GStreamer's log, so that is where we listen: errors of libav, which decodes nearly everything, and
//! of the base class of GStreamer's own decoders. libav does not say which of its decoders complains, so the
//! count is the process's.

use std::sync::Once;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use gst::DebugLevel;

static ERRORS: AtomicU64 = AtomicU64::new(0);

/// What is damaged was told once.
static TOLD: AtomicBool = AtomicBool::new(false);

/// Listens from now on. GStreamer must have been started.
pub(super) fn watch() {
    static WATCHING: Once = Once::new();
    WATCHING.call_once(|| {
        // Who asked for a log gets it as asked; libav's errors are in it from level 1 on.
        if std::env::var_os("GST_DEBUG").is_none() {
            gst::log::remove_default_log_function();
            gst::log::set_threshold_for_name("libav", DebugLevel::Error);
            gst::log::set_threshold_for_name("videodecoder", DebugLevel::Warning);
        }
        gst::log::add_log_function(|category, level, _, _, _, _, message| {
            let is_damage = match category.name() {
                "libav" => level == DebugLevel::Error,
                // Its other warnings are about times.
                "videodecoder" => {
                    level == DebugLevel::Warning
                        && message.get().is_some_and(|text| text.as_str().starts_with("error: "))
                }
                _ => false,
            };
            if is_damage {
                count();
            }
            if is_damage && !TOLD.swap(true, Ordering::Relaxed) {
                let text = message.get();
                tracing::warn!(
                    "the video is damaged, the decoder goes on: {}",
                    text.as_ref().map_or("", |text| text.as_str().trim_start_matches("error: "))
                );
            }
        });
    });
}

/// Something was damaged.
pub(super) fn count() {
    ERRORS.fetch_add(1, Ordering::Relaxed);
}

/// Errors so far.
pub(super) fn errors() -> u64 {
    ERRORS.load(Ordering::Relaxed)
}
