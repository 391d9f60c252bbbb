//! Gives the plugin its commit, its date and its origin.

fn main() {
    gst_plugin_version_helper::info();
    // The helper looks at git only when this runs, which a commit alone does not cause. `scripts/package`
    // names the commit, as for the program.
    println!("cargo::rerun-if-env-changed=LOCKON_COMMIT");
    if let Ok(commit) = std::env::var("LOCKON_COMMIT") {
        println!("cargo::rustc-env=COMMIT_ID={commit}");
    }
    // A packager sets the origin; this is GStreamer's text for an unknown one.
    println!("cargo::rerun-if-env-changed=LOCKON_ORIGIN");
    let origin = std::env::var("LOCKON_ORIGIN").unwrap_or_else(|_| "Unknown package origin".into());
    println!("cargo::rustc-env=LOCKON_ORIGIN={origin}");
}
