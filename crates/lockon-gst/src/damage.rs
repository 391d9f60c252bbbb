//! Counts errors that demuxers and decoders report before they continue.
//!
//! Demuxers warn on the bus: packets of a transport stream that are missing. Decoders are silent there. A
//! damaged packet is concealed as far as that goes: the frame comes out, with no flag on it. The only trace
//! is in GStreamer's log, so that is where we listen: errors of libav, which decodes nearly everything, and
//! of the base class of GStreamer's own decoders. libav does not say which of its decoders complains: what
//! comes from the thread that gives a decoder its packets is that decoder's, and what comes from libav's own
//! threads is counted for a source that is alone in the process.

use std::cell::RefCell;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Once};

use gst::DebugLevel;

/// Counts the errors of one pipeline; the first one is reported.
#[derive(Debug, Clone, Default)]
pub(super) struct Errors(Arc<AtomicU64>);

thread_local! {
    /// The pipeline whose decoder this thread gives packets.
    static OF_THREAD: RefCell<Option<Errors>> = const { RefCell::new(None) };
}

impl Errors {
    /// Counts one; true for the first.
    pub(super) fn count(&self) -> bool {
        self.0.fetch_add(1, Ordering::Relaxed) == 0
    }

    pub(super) fn so_far(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    /// Counts the calling thread's errors here from now on.
    pub(super) fn are_of_this_thread(&self) {
        // A thread that ends has nothing to count any more.
        let _ = OF_THREAD.try_with(|of_thread| {
            let is_set =
                of_thread.borrow().as_ref().is_some_and(|of_thread| Arc::ptr_eq(&of_thread.0, &self.0));
            if !is_set {
                of_thread.replace(Some(self.clone()));
            }
        });
    }
}

/// Errors on threads that work for no pipeline, as far as we know.
static ELSEWHERE: AtomicU64 = AtomicU64::new(0);

/// Number of sources that had been opened when the last of these errors was reported.
static TOLD_ELSEWHERE: AtomicU64 = AtomicU64::new(u64::MAX);

/// Sources that are open, and how many have been opened.
static OPEN: AtomicU64 = AtomicU64::new(0);
static OPENED: AtomicU64 = AtomicU64::new(0);

/// Whether a source is alone in the process.
#[derive(Debug)]
pub(super) struct Company {
    was_alone: bool,
    opened: u64,
    elsewhere_before: u64,
}

impl Default for Company {
    fn default() -> Self {
        Self {
            was_alone: OPEN.fetch_add(1, Ordering::Relaxed) == 0,
            opened: OPENED.fetch_add(1, Ordering::Relaxed) + 1,
            elsewhere_before: ELSEWHERE.load(Ordering::Relaxed),
        }
    }
}

impl Company {
    /// Returns the number of errors of threads that no pipeline has claimed: they are the source's, if there
    /// has been no other one.
    pub(super) fn errors_elsewhere(&self) -> u64 {
        let is_alone = self.was_alone && OPENED.load(Ordering::Relaxed) == self.opened;
        if is_alone { ELSEWHERE.load(Ordering::Relaxed) - self.elsewhere_before } else { 0 }
    }
}

impl Drop for Company {
    fn drop(&mut self) {
        OPEN.fetch_sub(1, Ordering::Relaxed);
    }
}

/// libav's GIF demuxer reports this at the end of each file, complete or not.
const END_OF_GIF: &str = "invalid block label";

/// Listens from now on. GStreamer must have been started.
pub(super) fn watch() {
    static WATCHING: Once = Once::new();
    WATCHING.call_once(|| {
        // A log that the user asked for is left as it is; libav's errors are in it from level 1 on.
        if std::env::var_os("GST_DEBUG").is_none() {
            gst::log::remove_default_log_function();
            gst::log::set_threshold_for_name("libav", DebugLevel::Error);
            gst::log::set_threshold_for_name("videodecoder", DebugLevel::Warning);
        }
        gst::log::add_log_function(|category, level, _, _, _, _, message| {
            let is_damage = match category.name() {
                "libav" => {
                    let is_end_of_gif = message.get().is_some_and(|text| text.as_str().contains(END_OF_GIF));
                    level == DebugLevel::Error && !is_end_of_gif
                }
                // Its other warnings are about times.
                "videodecoder" => {
                    level == DebugLevel::Warning
                        && message.get().is_some_and(|text| text.as_str().starts_with("error: "))
                }
                _ => false,
            };
            if is_damage {
                let ours = OF_THREAD.try_with(|of_thread| of_thread.borrow().clone()).ok().flatten();
                let is_first = if let Some(errors) = ours {
                    errors.count()
                } else {
                    ELSEWHERE.fetch_add(1, Ordering::Relaxed);
                    // Reported once for each video that was opened: it is not known which video has the
                    // error.
                    let opened = OPENED.load(Ordering::Relaxed);
                    TOLD_ELSEWHERE.swap(opened, Ordering::Relaxed) != opened
                };
                if !is_first {
                    return;
                }
                let text = message.get();
                tracing::warn!(
                    "the video is damaged, the decoder continues: {}",
                    text.as_ref().map_or("", |text| text.as_str().trim_start_matches("error: "))
                );
            }
        });
    });
}
