//! Tells the plugin its commit and date.

fn main() {
    gst_plugin_version_helper::info();
}
