//! `lockon --version`: what this program was built of. Its first line, and all of `-V`, is name and version.

use lockon::backend::cuda;
use lockon::media::doctor;

/// Returns the version and four lines: commit, features, GStreamer, kernels.
pub(super) fn long() -> String {
    // `scripts/package` sets it. A build script that asked git would compile the program again at each
    // commit.
    let commit =
        option_env!("LOCKON_COMMIT").unwrap_or("not known: built without the variable LOCKON_COMMIT");
    let features = [
        ("cuda", cfg!(feature = "cuda")),
        ("events", cfg!(feature = "events")),
        ("farm", cfg!(feature = "farm")),
        ("page", cfg!(feature = "page")),
        ("v1_24", cfg!(feature = "v1_24")),
    ];
    let features: Vec<_> = features.iter().filter(|(_, is_on)| *is_on).map(|(name, _)| *name).collect();
    format!(
        "{}\ncommit: {commit}\nfeatures: {}\nGStreamer: {}\nCUDA kernels: {}",
        env!("CARGO_PKG_VERSION"),
        features.join(", "),
        doctor::gstreamer_version().trim_start_matches("GStreamer "),
        cuda::KERNELS,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_line_is_the_version_alone_and_the_others_have_a_name_and_a_value() {
        let text = long();
        let mut lines = text.lines();
        assert_eq!(lines.next(), Some(env!("CARGO_PKG_VERSION")));
        let named: Vec<_> = lines.map(|line| line.split_once(": ").unwrap()).collect();
        let names: Vec<_> = named.iter().map(|(name, _)| *name).collect();
        assert_eq!(names, ["commit", "features", "GStreamer", "CUDA kernels"]);
        assert!(named[2].1.starts_with("1."), "{text}");
        if cfg!(feature = "cuda") {
            // The oldest GPU, and the one with instructions of its own.
            let kernels = named[3].1;
            assert!(kernels.contains(" modules of PTX 8.1 for compute capability 7.5, "), "{kernels}");
            assert!(kernels.ends_with("9.0, 9.0a"), "{kernels}");
        }
    }
}
