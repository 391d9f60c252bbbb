//! The program, interrupted by signals at random moments a thousand times: it ends at once, and its files are
//! whole.
//!
//! This takes minutes, so it is run by name (scripts/endurance), and prints what it measures.

use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use gst::prelude::*;
use serde_json::Value;

use crate::resources::{asked, backend_name, lives, watch};
use crate::util::{Random, program};

/// The maximum time for a run to end when it is asked to.
const PATIENCE: Duration = Duration::from_secs(30);
const SIGINT: i32 = 2;
const SIGTERM: i32 = 15;

/// The ways in which an interrupted run can end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    /// The program did not yet listen: the signal ended it as it ends any program.
    Unborn,
    /// Before the first frame.
    Early,
    Interrupted,
    /// The second signal came so late, on a busy machine, that it asked for the end at once.
    Forced,
    /// The video had ended by itself.
    Complete,
}

/// Starts the program, sends it one or two signals at random moments, and checks the files that it leaves.
/// Returns how it ended, and how many milliseconds after the first signal.
fn interrupted_run(seed: u64) -> (End, u128) {
    let (dir, mut random) = (tempfile::tempdir().unwrap(), Random::new(seed));
    // Every third ends by itself after 0.6 s: before the signal, or just then, or not in time.
    let end = if seed.is_multiple_of(3) { " num-buffers=30" } else { "" };
    let source = format!(
        "videotestsrc is-live=true pattern=checkers-8{end} ! video/x-raw,width=160,height=120,framerate=50/1 ! appsink name=frames"
    );
    let mut child = Command::new(program())
        .args(["run", "--source", &source, "--track", "60,40,30,30", "--no-progress", "--threads", "1"])
        .args(["--backend", &backend_name(), "-o", "out.mkv", "--results", "out.jsonl"])
        .current_dir(dir.path())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let pid = child.id().to_string();
    let send = |signal: i32| {
        let _ = Command::new("kill").args([&format!("-{signal}"), &pid]).stderr(Stdio::null()).status();
    };
    let signals = [
        if random.byte() < 128 { SIGINT } else { SIGTERM },
        if random.byte() < 128 { SIGINT } else { SIGTERM },
    ];
    std::thread::sleep(Duration::from_millis(5) * u32::from(random.byte()));
    let signalled = Instant::now();
    send(signals[0]);
    // A second one that follows at once is the same request.
    let is_second_sent = random.byte() < 64;
    if is_second_sent {
        std::thread::sleep(Duration::from_micros(200) * u32::from(random.byte()));
        send(signals[1]);
    }
    let status = loop {
        if let Some(status) = child.try_wait().unwrap() {
            break status;
        }
        if signalled.elapsed() > PATIENCE {
            child.kill().unwrap();
            panic!("run {seed} hangs: {:?} after the signal", signalled.elapsed());
        }
        std::thread::sleep(Duration::from_millis(1));
    };
    let took = signalled.elapsed().as_millis();
    let mut said = String::new();
    std::io::Read::read_to_string(&mut child.stderr.take().unwrap(), &mut said).unwrap();

    let text = std::fs::read_to_string(dir.path().join("out.jsonl")).unwrap_or_default();
    let told = format!("run {seed}, {signals:?}, twice: {is_second_sent}, {status}: {said}{text}");
    assert!(text.is_empty() || text.ends_with('\n'), "{told}");
    let parse = |line| serde_json::from_str::<Value>(line).unwrap_or_else(|error| panic!("{error}: {told}"));
    let records: Vec<Value> = text.lines().map(parse).collect();
    let sent = |signal: i32| signals[0] == signal || is_second_sent && signals[1] == signal;
    let Some(code) = status.code() else {
        assert!(status.signal().is_some_and(sent) && records.is_empty(), "{told}");
        return (End::Unborn, took);
    };
    assert!(code == 0 || sent(code - 128), "{told}");
    let numbers: Vec<u64> = records
        .iter()
        .filter(|record| record["type"] == "frame")
        .map(|record| record["frame"].as_u64().unwrap())
        .collect();
    assert!(numbers.is_sorted_by(|a, b| a < b), "{told}");
    if records.is_empty() {
        assert_ne!(code, 0, "{told}");
        return (End::Early, took);
    }
    let summary = records.last().unwrap();
    assert_eq!(records[0]["type"], "run", "{told}");
    // A quarter of a second later, on a busy machine, a second one is a second request: then what counts is
    // that lines are whole.
    if is_second_sent && summary["type"] != "summary" {
        return (End::Forced, took);
    }
    assert_eq!(summary["type"], "summary", "{told}");
    assert_eq!(summary["frames"], numbers.len(), "{told}");
    assert_eq!(summary["interrupted"], code != 0, "{told}");
    if !numbers.is_empty() {
        let (played, whole) = (played(&dir.path().join("out.mkv")), Ok(numbers.len() as u64));
        if is_second_sent && played != whole {
            return (End::Forced, took);
        }
        assert_eq!(played, whole, "{told}");
    }
    (if code == 0 { End::Complete } else { End::Interrupted }, took)
}

/// How many frames of a video file GStreamer plays.
fn played(path: &Path) -> Result<u64, String> {
    let text = "filesrc name=file ! matroskademux ! decodebin ! fakesink name=end";
    let pipeline = gst::parse::launch(text).unwrap().downcast::<gst::Pipeline>().unwrap();
    pipeline.by_name("file").unwrap().set_property("location", path);
    let _ = pipeline.set_state(gst::State::Playing);
    let ends = [gst::MessageType::Eos, gst::MessageType::Error];
    let message = pipeline.bus().unwrap().timed_pop_filtered(gst::ClockTime::from_seconds(30), &ends);
    let stats = pipeline.by_name("end").unwrap().property::<gst::Structure>("stats");
    pipeline.set_state(gst::State::Null).unwrap();
    match message {
        Some(message) if message.type_() == gst::MessageType::Eos => Ok(stats.get("rendered").unwrap()),
        Some(message) => Err(format!("{message:?}")),
        None => Err("does not end".into()),
    }
}

#[test]
#[ignore = "takes minutes: scripts/endurance"]
fn a_thousand_interrupted_runs_end_at_once_and_leave_whole_files() {
    let (runs, at_once) = (asked("LOCKON_INTERRUPTS", 1000), asked("LOCKON_JOBS", 4));
    watch();
    lockon::media::launch::init().unwrap();
    let (started, next) = (Instant::now(), AtomicU64::new(0));
    let one_after_the_other = || {
        let mut ends = Vec::new();
        loop {
            let run = next.fetch_add(1, Ordering::Relaxed);
            if run >= runs {
                return ends;
            }
            ends.push(interrupted_run(run));
            lives();
        }
    };
    let ends: Vec<(End, u128)> = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..at_once).map(|_| scope.spawn(one_after_the_other)).collect();
        workers.into_iter().flat_map(|worker| worker.join().unwrap()).collect()
    });
    let mut took: Vec<u128> = ends.iter().map(|(_, took)| *took).collect();
    took.sort_unstable();
    let count = |wanted| ends.iter().filter(|(end, _)| *end == wanted).count();
    #[allow(clippy::print_stdout, reason = "what is measured is told")]
    {
        let [unborn, early, interrupted, forced, complete] =
            [End::Unborn, End::Early, End::Interrupted, End::Forced, End::Complete].map(count);
        println!(
            "{runs} runs in {:.1} s: {unborn} ended before they listened to signals, {early} before the first frame, {interrupted} after it, {forced} by \
             a second signal, {complete} by themselves; from signal to end {} ms (median), {} ms (99 %), {} ms at most",
            started.elapsed().as_secs_f64(),
            took[took.len() / 2],
            took[took.len() * 99 / 100],
            took[took.len() - 1]
        );
    }
    assert!(count(End::Interrupted) > 0, "no signal came while frames did");
}
