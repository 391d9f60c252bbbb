//! A run as seen from outside: its log, and the metrics that it serves for Prometheus.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, ChildStderr, Command, Output, Stdio};
use std::time::{Duration, Instant};

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
    // Variables that the caller of this test has set must not affect the test.
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

/// A run that serves metrics, killed when it is dropped.
struct Served {
    child: Child,
    stderr: BufReader<ChildStderr>,
    address: String,
}

impl Served {
    fn start() -> Self {
        let source = "videotestsrc is-live=true pattern=ball ! video/x-raw,format=GRAY8,width=160,height=120,framerate=50/1 ! appsink name=frames";
        let mut child = Command::new(program())
            .args(["run", "--source", source, "--track", "60,40,30,30", "--backend", "cpu", "--no-progress"])
            .args(["--metrics", "0"])
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut stderr = BufReader::new(child.stderr.take().unwrap());
        let mut line = String::new();
        let address = loop {
            line.clear();
            assert!(stderr.read_line(&mut line).unwrap() > 0, "it ended without saying where it serves");
            if let Some(url) = line.trim().strip_prefix("metrics: http://") {
                break url.strip_suffix("/metrics").unwrap().to_owned();
            }
        };
        Self { child, stderr, address }
    }

    fn ask(&self, path: &str) -> String {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        write!(stream, "GET {path} HTTP/1.1\r\nHost: {}\r\n\r\n", self.address).unwrap();
        let mut said = String::new();
        stream.read_to_string(&mut said).unwrap();
        said
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The value of a sample of the one video, with the rest of its labels in braces; none where the video is not
/// there yet.
fn value_if_there(text: &str, sample: &str) -> Option<f64> {
    let (name, labels) = sample.split_once('{').unwrap_or((sample, "}"));
    let comma = if labels == "}" { "" } else { "," };
    let sample = &format!("{name}{{video=\"source\"{comma}{labels}");
    let value = text.lines().find_map(|line| line.strip_prefix(sample)?.strip_prefix(' '))?;
    Some(value.parse().unwrap())
}

fn value(text: &str, sample: &str) -> f64 {
    value_if_there(text, sample).unwrap_or_else(|| panic!("{sample} is not in {text}"))
}

#[test]
fn metrics_are_served_while_it_runs() {
    let mut served = Served::start();
    assert!(served.address.starts_with("127.0.0.1:"), "{}", served.address);
    let deadline = Instant::now() + Duration::from_mins(1);
    let (text, frames) = loop {
        let said = served.ask("/metrics");
        let (head, text) = said.split_once("\r\n\r\n").unwrap();
        assert!(head.starts_with("HTTP/1.1 200 OK\r\n"), "{head}");
        assert!(head.to_lowercase().contains("\r\ncontent-type: text/plain; version=0.0.4"), "{head}");
        // The address is printed before the video is opened.
        if let Some(frames) = value_if_there(text, "lockon_frames_total")
            && frames >= 20.0
        {
            break (text.to_owned(), frames);
        }
        assert!(Instant::now() < deadline, "{text}");
        std::thread::sleep(Duration::from_millis(100));
    };
    // Each sample belongs to a metric whose type was given before.
    let mut typed = "";
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("# TYPE ") {
            typed = rest.split(' ').next().unwrap();
        } else if !line.starts_with('#') {
            let (name, number) = line.rsplit_once(' ').unwrap();
            assert!(name.starts_with(typed) && number.parse::<f64>().is_ok(), "{line}");
        }
    }
    assert!(
        text.contains("lockon_info{video=\"source\",version=\"")
            && text.contains(",backend=\"cpu\",device=\""),
        "{text}"
    );
    for latency in ["lockon_latency_seconds", "lockon_capture_latency_seconds"] {
        assert_eq!(value(&text, &format!("{latency}_count")), frames);
        assert_eq!(value(&text, &format!("{latency}_bucket{{le=\"+Inf\"}}")), frames);
        assert!(value(&text, &format!("{latency}_sum")) > 0.0);
    }
    let states = ["tracked", "uncertain", "lost", "reacquired"];
    let states =
        states.map(|state| value(&text, &format!("lockon_track_state{{track=\"1\",state=\"{state}\"}}")));
    assert_eq!(states.iter().sum::<f64>(), 1.0, "{text}");
    assert!((0.0..=1.0).contains(&value(&text, "lockon_track_score{track=\"1\"}")), "{text}");
    assert_eq!((value(&text, "lockon_stalled"), value(&text, "lockon_gaps_total")), (0.0, 0.0));
    assert!(value(&text, "lockon_frames_dropped_total") >= 0.0);
    assert!(served.ask("/").starts_with("HTTP/1.1 404"));

    // Ctrl-C ends it as ever, and the server is gone.
    let id = served.child.id().to_string();
    assert!(Command::new("kill").args(["-INT", &id]).status().unwrap().success());
    let mut rest = String::new();
    served.stderr.read_to_string(&mut rest).unwrap();
    assert_eq!(served.child.wait().unwrap().code(), Some(130), "{rest}");
    assert!(TcpStream::connect(&served.address).is_err());
}

#[test]
fn an_address_that_is_taken_ends_the_run_before_it_starts() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let output = run(&["--source", VIDEO, "--metrics", &address], &[]);
    let said = stderr(&output);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains(&format!("cannot listen at {address}")), "{said}");
    assert_eq!(run(&["--source", VIDEO, "--metrics", ":9090"], &[]).status.code(), Some(2));
}
