//! The whole program on a video file beside decoding alone, and beside decoding and encoding, in one run:
//! frames per second, their ratio, and memory.
//!
//!     cargo bench --bench pipeline -- VIDEO X,Y,W,H [ROUNDS [COPIES [OPTION...]]]
//!
//! The box is cut out of the first frame as the template that is searched in every frame, and it is the box
//! that is followed. Rounds alternate, so that all meet the machine in the same state;
//! medians are printed. The answer is checked before a time counts: as many frame records as frames, the
//! first match in its place. COPIES of each program are started at once, and the last one's end counts. Each
//! OPTION is given to `lockon run`: `--backend cuda`.

#![allow(clippy::print_stdout, reason = "a bench prints its table")]

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use lockon::frame::Rect;
use lockon::media::{launch, sink};
use serde_json::Value;

const USAGE: &str = "usage: cargo bench --bench pipeline -- VIDEO X,Y,W,H [ROUNDS [COPIES [OPTION...]]]";

/// The rows behind each of these are compared with it.
const DECODE: &str = "decode alone (gst-launch-1.0)";
const ENCODE: &str = "decode and encode (gst-launch-1.0)";

struct Measured {
    seconds: f64,
    peak_rss_kib: u64,
}

fn main() {
    // `cargo bench` adds one of its own.
    let args: Vec<String> = std::env::args().skip(1).filter(|arg| arg != "--bench").collect();
    let (Some(video), Some(rect)) = (args.first(), args.get(1)) else {
        // `cargo bench` without arguments runs every bench; this one needs a video.
        println!("{USAGE}");
        return;
    };
    let rect: Rect = rect.parse().expect(USAGE);
    let rounds = args.get(2).map_or(5, |n| n.parse().expect(USAGE));
    let copies = args.get(3).map_or(1, |n| n.parse().expect(USAGE));
    let options = args.get(4..).unwrap_or_default();
    let dir = tempfile::tempdir().expect("a temporary folder");
    let template = dir.path().join("template.png");
    let results: Vec<_> = (0..copies).map(|copy| dir.path().join(format!("results-{copy}.jsonl"))).collect();
    cut_template(video, rect, &template);

    let decode =
        ["-q", "filesrc", &format!("location={video}"), "!", "decodebin", "!", "fakesink", "sync=false"]
            .map(str::to_owned)
            .to_vec();
    let run = |words: &[&str]| {
        let mut args = vec!["run".to_owned(), video.clone()];
        args.extend(words.iter().map(|w| (*w).to_owned()));
        args.extend_from_slice(options);
        args.extend(["-y".into(), "--no-progress".into(), "--results".into()]);
        args
    };
    launch::init().expect("GStreamer starts");
    let video_out = |name: &str| dir.path().join(name);
    let (theirs, ours) = (video_out("theirs.mp4"), video_out("ours.mp4"));
    let encoder =
        sink::file_launch(&theirs, lockon::config::Codec::Auto).expect("an encoder for MP4").to_string();
    // Printed for a shell, so a shell reads it.
    let encode = encoder.replacen("appsrc name=results", &format!("filesrc location={video} ! decodebin"), 1);
    let (ours, template) = (ours.display().to_string(), template.display().to_string());
    let lockon = std::env::var("LOCKON_BIN").unwrap_or_else(|_| env!("CARGO_BIN_EXE_lockon").into());
    let lockon = lockon.as_str();
    let rows = [
        (DECODE, "gst-launch-1.0", decode),
        ("run --template", lockon, run(&["--template", &template])),
        ("run --track", lockon, run(&["--track", &rect.to_string()])),
        ("run --threshold mean:31:5", lockon, run(&["--threshold", "mean:31:5"])),
        (ENCODE, "sh", vec!["-c".into(), format!("exec gst-launch-1.0 -q {encode}")]),
        ("run --track -o out.mp4", lockon, run(&["--track", &rect.to_string(), "--no-audio", "-o", &ours])),
    ];
    // Copies would write the same file.
    let rows = if copies > 1 { &rows[..4] } else { &rows[..] };
    let mut measured: Vec<Vec<Measured>> = rows.iter().map(|_| Vec::new()).collect();
    let mut frames = 0;
    for _ in 0..rounds {
        for ((name, program, args), measured) in rows.iter().zip(&mut measured) {
            let is_lockon = *program == lockon;
            measured.push(measure(results.iter().map(|results| {
                let mut command = Command::new(program);
                command.args(args).args(is_lockon.then_some(results));
                command
            })));
            for results in results.iter().filter(|_| is_lockon) {
                let found = check(results, rect, *name == "run --template");
                assert!(frames == 0 || frames == found, "{name}: {found} frame records, {frames} before");
                frames = found;
            }
        }
    }
    println!(
        "{frames} frames of {video}, box {rect}, {copies} at once {options:?}, median of {rounds} whole-process runs"
    );
    println!("{:<38} {:>9} {:>9} {:>9} {:>10}", "", "seconds", "fps", "of theirs", "peak MB");
    let mut their_seconds = 0.0;
    for ((name, ..), measured) in rows.iter().zip(&measured) {
        if [DECODE, ENCODE].contains(name) {
            their_seconds = median(measured);
        }
        let seconds = median(measured);
        let peak = measured.iter().map(|m| m.peak_rss_kib).max().unwrap_or(0);
        println!(
            "{name:<38} {seconds:>9.3} {:>9.1} {:>9.3} {:>10.1}",
            (frames * copies) as f64 / seconds,
            their_seconds / seconds,
            peak as f64 / 1024.0
        );
    }
}

fn cut_template(video: &str, rect: Rect, template: &Path) {
    let frame: PathBuf = template.with_file_name("frame.png");
    let pipeline = format!(
        "filesrc location={video} ! decodebin ! videoconvert ! video/x-raw,format=GRAY8 ! pngenc snapshot=true ! filesink location={}",
        frame.display()
    );
    let done = Command::new("gst-launch-1.0").arg("-q").args(pipeline.split_whitespace()).status();
    assert!(done.is_ok_and(|status| status.success()), "gst-launch-1.0 gives the first frame of {video}");
    let luma = lockon::still::load(&frame).expect("the frame is a picture").luma;
    lockon::still::save(template, luma.as_ref().crop(rect)).expect("the template can be written");
}

/// Runs programs side by side to their ends; the peak memory of each is what the kernel last said of it.
fn measure(commands: impl Iterator<Item = Command>) -> Measured {
    let started = Instant::now();
    let mut running: Vec<_> = commands
        .map(|mut command| {
            let child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn();
            (child.unwrap_or_else(|error| panic!("{command:?}: {error}")), command)
        })
        .collect();
    let mut peak_rss_kib = 0;
    while !running.is_empty() {
        running.retain_mut(|(child, command)| {
            let status = std::fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap_or_default();
            let peak = status
                .lines()
                .find_map(|l| l.strip_prefix("VmHWM:")?.trim().strip_suffix(" kB")?.parse().ok());
            peak_rss_kib = peak_rss_kib.max(peak.unwrap_or(0));
            let ended = child.try_wait().expect("a child can be waited for");
            assert!(ended.is_none_or(|status| status.success()), "{command:?}: {ended:?}");
            ended.is_none()
        });
        std::thread::sleep(Duration::from_millis(2));
    }
    Measured { seconds: started.elapsed().as_secs_f64(), peak_rss_kib }
}

/// The number of frame records, after checking that they are what they should be.
fn check(results: &Path, rect: Rect, has_template: bool) -> usize {
    let text = std::fs::read_to_string(results).expect("results were written");
    let records = text.lines().map(|line| serde_json::from_str::<Value>(line).expect("a valid record"));
    let frames: Vec<Value> = records.filter(|record| record["type"] == "frame").collect();
    if has_template {
        let found = &frames[0]["matches"][0];
        assert_eq!((&found["x"], &found["y"]), (&rect.x.into(), &rect.y.into()), "{found}");
    }
    frames.len()
}

fn median(measured: &[Measured]) -> f64 {
    let mut seconds: Vec<f64> = measured.iter().map(|m| m.seconds).collect();
    seconds.sort_by(f64::total_cmp);
    seconds[seconds.len() / 2]
}
