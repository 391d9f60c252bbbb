//! Helpers for tests of several modules: files that GStreamer makes.

use std::path::Path;
use std::time::{Duration, Instant};

use crate::launch::{Launch, Milestone, Running};

/// How long a test's pipeline may take to its end.
const LONG_ENOUGH: Duration = Duration::from_secs(20);

/// Plays a pipeline to its end.
pub(crate) fn play(pipeline: gst::Pipeline) {
    let running = Running::new(pipeline);
    running.set_state(gst::State::Playing).unwrap();
    let deadline = Instant::now() + LONG_ENOUGH;
    while running.wait(Duration::from_secs(1)).unwrap() != Some(Milestone::Ended) {
        assert!(Instant::now() < deadline, "the pipeline takes too long");
    }
}

/// Makes a file by gst-launch text that ends in `filesink name=file`.
pub(crate) fn make_clip(path: &Path, text: &str) {
    let mut launch = Launch::new("clip", text);
    launch.set("file", "location", path.display());
    play(launch.build().unwrap());
}
