//! Gives the plugin its commit, its date and its origin.

fn main() {
    gst_plugin_version_helper::info();
    // A packager sets the origin; this is GStreamer's text for an unknown one.
    println!("cargo::rerun-if-env-changed=LOCKON_ORIGIN");
    let origin = std::env::var("LOCKON_ORIGIN").unwrap_or_else(|_| "Unknown package origin".into());
    println!("cargo::rustc-env=LOCKON_ORIGIN={origin}");
}
