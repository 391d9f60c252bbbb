//! lockon as a GStreamer plugin: the element `lockon` finds and follows known patterns in the video that
//! passes through it.
//!
//! [`lockon`] is the element. Frames go through lockon's own engine and backends; no part of the search is
//! written here.

use gst::glib;

pub mod lockon;

/// Registers the element in GStreamer without a plugin file, for programs that are linked with this crate.
///
/// # Errors
/// If GStreamer rejects the plugin.
pub fn register() -> Result<(), glib::BoolError> {
    definition::plugin_register_static()
}

/// The entry points that GStreamer looks for in a plugin's file.
mod definition {
    fn plugin_init(plugin: &gst::Plugin) -> Result<(), gst::glib::BoolError> {
        crate::lockon::register(plugin)
    }

    gst::plugin_define!(
        lockon,
        env!("CARGO_PKG_DESCRIPTION"),
        plugin_init,
        concat!(env!("CARGO_PKG_VERSION"), "-", env!("COMMIT_ID")),
        // GStreamer's name for MIT OR Apache-2.0: it knows a fixed list of names.
        "MIT/X11",
        env!("CARGO_PKG_NAME"),
        "lockon",
        env!("LOCKON_ORIGIN"),
        env!("BUILD_REL_DATE")
    );
}
