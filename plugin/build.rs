//! Tells the plugin its commit, its date and where it comes from.

fn main() {
    gst_plugin_version_helper::info();
    // Who packages it says so; GStreamer has this text for what nobody says of.
    println!("cargo::rerun-if-env-changed=LOCKON_ORIGIN");
    let origin = std::env::var("LOCKON_ORIGIN").unwrap_or_else(|_| "Unknown package origin".into());
    println!("cargo::rustc-env=LOCKON_ORIGIN={origin}");
}
