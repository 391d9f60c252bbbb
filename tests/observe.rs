//! What can be seen of a run from outside: its log.

use std::process::{Command, Output};

use crate::util::program;

const VIDEO: &str =
    "videotestsrc num-buffers=10 ! video/x-raw,format=GRAY8,width=64,height=48 ! appsink name=frames";

/// Runs with a level of the log, and what it asks of GStreamer's.
fn run(words: &[&str], variables: &[(&str, &str)]) -> Output {
    let mut command = Command::new("timeout");
    command.arg("60").arg(program()).args([
        "run",
        "--threshold",
        "mean:5:1",
        "--no-progress",
        "--backend",
        "cpu",
    ]);
    // What this test's own caller asked for is not what is tested.
    for name in ["RUST_LOG", "GST_DEBUG", "GST_DEBUG_FILE"] {
        command.env_remove(name);
    }
    command.args(words).envs(variables.iter().copied()).output().unwrap()
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn gstreamers_log_is_joined_to_ours() {
    let source = ["--source", VIDEO];
    let quiet = stderr(&run(&source, &[]));
    assert!(!quiet.contains("gst:"), "{quiet}");
    let info = stderr(&run(&source, &[("RUST_LOG", "gst=info")]));
    assert!(info.contains(" INFO gst:GST_"), "{info}");
    assert!(!info.contains("DEBUG gst:"), "{info}");
    // One category alone.
    let one = stderr(&run(&source, &[("RUST_LOG", "gst:GST_STATES=debug")]));
    assert!(one.contains("DEBUG gst:GST_STATES: "), "{one}");
    assert!(!one.contains("gst:GST_PADS"), "{one}");
    // A level for all is not meant for GStreamer.
    let ours = stderr(&run(&source, &[("RUST_LOG", "trace")]));
    assert!(!ours.contains("DEBUG gst:"), "{ours}");
    // GST_DEBUG means what it always means; the lines are ours all the same.
    let named = stderr(&run(&source, &[("GST_DEBUG", "GST_STATES:5")]));
    assert!(named.contains("DEBUG gst:GST_STATES: "), "{named}");
    assert!(!named.contains("gst:GST_PADS"), "{named}");
    let wrong = stderr(&run(&source, &[("RUST_LOG", "lockon=loud")]));
    assert!(wrong.contains("RUST_LOG=lockon=loud is not understood"), "{wrong}");
}

#[test]
fn an_error_is_told_once() {
    let broken = "videotestsrc num-buffers=10 ! identity error-after=5 ! video/x-raw,format=GRAY8 ! appsink name=frames";
    for words in [&["--source", broken][..], &["-v", "--source", broken]] {
        let output = run(words, &[]);
        let said = stderr(&output);
        assert_eq!(output.status.code(), Some(1), "{said}");
        assert_eq!(said.matches("error: ").count(), 1, "{said}");
        assert_eq!(said.matches("Failed after iterations as requested").count(), 1, "{said}");
    }
}
