//! GStreamer's log, joined to ours: each line becomes an event of `tracing` with the target `gst:CATEGORY`.
//!
//! `tracing` needs a call site for each event, which lives as long as the program. Here they are created on
//! demand, one for each category and level; there are some hundred categories.

use std::collections::HashMap;
use std::sync::OnceLock;

use tracing::callsite::{Callsite, Identifier};
use tracing::field::{FieldSet, Value};
use tracing::level_filters::LevelFilter;
use tracing::metadata::Kind;
use tracing::subscriber::Interest;
use tracing::{Event, Level, Metadata};

use lockon_core::locks::Ranked;
use lockon_core::text::without_secrets;

/// The prefix of a category's name in a target.
pub const PREFIX: &str = "gst:";

/// Sends GStreamer's log to `tracing` instead of standard error. Each of `levels` is for the categories whose
/// names begin with its text, the empty one for all; more special ones come later.
///
/// Without levels nothing is installed, and GStreamer's log costs only its usual comparison. Levels in
/// `GST_DEBUG` stay. With `GST_DEBUG_FILE` the log also goes into that file.
pub fn join<'a>(levels: impl IntoIterator<Item = (&'a str, LevelFilter)>) {
    let is_set = |name| std::env::var_os(name).is_some_and(|value: std::ffi::OsString| !value.is_empty());
    if is_set("GST_DEBUG_FILE") {
        return;
    }
    let mut is_wanted = is_set("GST_DEBUG");
    for (category, level) in levels {
        let level = threshold(level);
        is_wanted |= level != gst::DebugLevel::None;
        if category.is_empty() {
            // A threshold for all categories would undo those that GST_DEBUG set.
            if !is_set("GST_DEBUG") {
                gst::log::set_default_threshold(level);
            }
        } else {
            gst::log::set_threshold_for_name(&format!("{category}*"), level);
        }
    }
    if !is_wanted {
        return;
    }
    gst::log::remove_default_log_function();
    let sites = Callsites::default();
    gst::log::add_log_function(move |category, level, _, _, _, object, message| {
        let Some(level) = level_of(level) else { return };
        let site = sites.get(category.name(), level);
        let text = message.get();
        let text = text.as_deref().map_or("", |text| text.as_str());
        match object {
            Some(object) => site.tell(&format_args!("{object}: {}", without_secrets(text))),
            None => site.tell(&format_args!("{}", without_secrets(text))),
        }
    });
}

/// GStreamer's level for a level of `tracing`.
fn threshold(level: LevelFilter) -> gst::DebugLevel {
    match level.into_level() {
        None => gst::DebugLevel::None,
        Some(Level::ERROR) => gst::DebugLevel::Error,
        Some(Level::WARN) => gst::DebugLevel::Warning,
        Some(Level::INFO) => gst::DebugLevel::Info,
        Some(Level::DEBUG) => gst::DebugLevel::Debug,
        // Messages for every buffer; memory dumps need GST_DEBUG.
        Some(Level::TRACE) => gst::DebugLevel::Trace,
    }
}

fn level_of(level: gst::DebugLevel) -> Option<Level> {
    Some(match level {
        gst::DebugLevel::None => return None,
        gst::DebugLevel::Error => Level::ERROR,
        gst::DebugLevel::Warning => Level::WARN,
        gst::DebugLevel::Fixme | gst::DebugLevel::Info => Level::INFO,
        gst::DebugLevel::Debug => Level::DEBUG,
        _ => Level::TRACE,
    })
}

/// The call sites so far.
#[derive(Default)]
struct Callsites(Ranked<HashMap<(String, Level), &'static Site>, 210>);

impl Callsites {
    fn get(&self, category: &str, level: Level) -> &'static Site {
        let mut sites = self.0.lock();
        let key = (category.to_owned(), level);
        sites.entry(key).or_insert_with(|| Site::new(category, level))
    }
}

/// A call site of one category and level.
struct Site(OnceLock<Metadata<'static>>);

impl Site {
    fn new(category: &str, level: Level) -> &'static Self {
        let site: &'static Self = Box::leak(Box::new(Self(OnceLock::new())));
        let target: &'static str = Box::leak(format!("{PREFIX}{category}").into_boxed_str());
        let fields = FieldSet::new(&["message"], Identifier(site));
        site.0
            .get_or_init(|| Metadata::new("GStreamer", target, level, None, None, None, fields, Kind::EVENT));
        site
    }

    fn tell(&'static self, message: &std::fmt::Arguments<'_>) {
        let metadata = self.metadata();
        tracing::dispatcher::get_default(|dispatch| {
            if dispatch.enabled(metadata) {
                let field = metadata.fields().iter().next().expect("it has one field");
                let values = [(&field, Some(message as &dyn Value))];
                dispatch.event(&Event::new(metadata, &metadata.fields().value_set(&values)));
            }
        });
    }
}

impl Callsite for Site {
    // It is not registered, since the code asks the subscriber each time.
    fn set_interest(&self, _: Interest) {}

    fn metadata(&self) -> &Metadata<'_> {
        self.0.get().expect("it is set where the site is made")
    }
}
