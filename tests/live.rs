//! Live sources that go wrong: a real RTSP server that is killed, halted and started again, on the loopback
//! interface.

use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::time::{Duration, Instant};

use serde_json::Value;
use tempfile::TempDir;

use crate::test_log;
use crate::util::{program, root};

/// A timeout for a server on a busy machine.
const LONG: Duration = Duration::from_mins(1);

/// A server, killed when it is dropped, and the lines that it prints.
pub(crate) struct Server(Child, Receiver<String>);

impl Server {
    /// Starts a server that answers, at a port of its own.
    pub(crate) fn start(port: u16, size: &str) -> Self {
        Self::with(port, &[size])
    }

    /// Starts a server with other arguments for `rtsp-server.py`.
    fn with(port: u16, words: &[&str]) -> Self {
        let mut child = Command::new("/usr/bin/python3")
            .arg(root().join("tests/rtsp-server.py"))
            .arg(port.to_string())
            .args(words)
            .env_remove("G_DEBUG")
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let (sender, said) = mpsc::channel();
        // Ends with the server.
        std::thread::spawn(move || lines.map_while(Result::ok).try_for_each(|line| sender.send(line)));
        let server = Self(child, said);
        assert_eq!(server.says(), "ready", "the server does not start");
        server
    }

    /// The next line that it prints.
    fn says(&self) -> String {
        self.1.recv_timeout(LONG).expect("the server says nothing")
    }

    pub(crate) fn signal(&self, name: &str) {
        assert!(Command::new("kill").args([name, &self.0.id().to_string()]).status().unwrap().success());
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Returns a port without a listener. If there is no RTSP server on this machine, the test reports that it is
/// skipped.
pub(crate) fn port() -> Option<u16> {
    let imports =
        "import gi; gi.require_version('GstRtspServer', '1.0'); from gi.repository import GstRtspServer";
    let tried = Command::new("/usr/bin/python3").args(["-c", imports]).stderr(Stdio::null()).status();
    if !tried.is_ok_and(|status| status.success()) {
        test_log::missing("RTSP", "no RTSP server (apt-get install python3-gi gir1.2-gst-rtsp-server-1.0)");
        return None;
    }
    Some(TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port())
}

/// A run that follows a box in the server's picture: where colour bars end, which has one place and one size.
struct Run {
    dir: TempDir,
    child: Child,
}

impl Run {
    fn start(port: u16, words: &str) -> Self {
        Self::of(&format!("rtsp://127.0.0.1:{port}/test"), words)
    }

    fn of(address: &str, words: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let child = Command::new("timeout")
            .args(["--foreground", "--signal=KILL", "120"])
            .arg(program())
            .args(["run", address, "--track", "140,150,40,40", "--jitter", "50"])
            .args(["-o", "out.mp4", "--no-audio", "--results", "out.jsonl", "--no-progress"])
            .args(words.split_whitespace())
            // rtspsrc (1.22) complains to itself, "gst_event_set_seqnum: assertion failed", if it gives up
            // a server that fell silent before all of its streams had begun.
            .env_remove("G_DEBUG")
            .current_dir(dir.path())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        Self { dir, child }
    }

    fn records(&self) -> Vec<Value> {
        let text = std::fs::read_to_string(self.dir.path().join("out.jsonl")).unwrap_or_default();
        // The last line may be on its way.
        let lines = text.split_inclusive('\n').filter(|line| line.ends_with('\n'));
        lines.map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    /// Waits until the records are as a test wants them.
    fn until(&self, what: &str, holds: impl Fn(&[Value]) -> bool) {
        let deadline = Instant::now() + Duration::from_secs(40);
        loop {
            let records = self.records();
            if holds(&records) {
                return;
            }
            assert!(Instant::now() < deadline, "{what}: {:?}", kinds(&records));
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Returns its exit code and its messages.
    fn end(mut self, signal: Option<&str>) -> (Option<i32>, String, Vec<Value>) {
        if let Some(signal) = signal {
            // `timeout` passes it on.
            let pid = self.child.id().to_string();
            assert!(Command::new("kill").args([signal, &pid]).status().unwrap().success());
        }
        let mut said = String::new();
        let mut stderr = BufReader::new(self.child.stderr.take().unwrap());
        std::io::Read::read_to_string(&mut stderr, &mut said).unwrap();
        let code = self.child.wait().unwrap().code();
        let records = self.records();
        assert_eq!(records.last().unwrap()["type"], "summary", "{said}");
        let video = self.dir.path().join("out.mp4");
        let played = Command::new("gst-launch-1.0")
            .args(["-v", "filesrc", &format!("location={}", video.display()), "!", "decodebin", "!"])
            .args(["identity", "silent=false", "!", "fakesink"])
            .env_remove("G_DEBUG")
            .output()
            .unwrap();
        let played = String::from_utf8_lossy(&played.stdout).matches("chain ").count();
        let next = records.iter().position(|r| r["type"] == "caps").unwrap_or(records.len());
        assert_eq!(played, records[..next].iter().filter(|r| r["type"] == "frame").count(), "{said}");
        (code, said, records)
    }
}

/// The kinds of records in order, each with how many there were of it in a row.
fn kinds(records: &[Value]) -> Vec<(String, usize)> {
    let mut kinds: Vec<(String, usize)> = Vec::new();
    for kind in records.iter().map(|record| record["type"].as_str().unwrap()) {
        match kinds.last_mut() {
            Some((last, count)) if last == kind => *count += 1,
            _ => kinds.push((kind.to_owned(), 1)),
        }
    }
    kinds
}

fn count(records: &[Value], kind: &str) -> usize {
    records.iter().filter(|record| record["type"] == kind).count()
}

/// Frames after the last record of that kind.
fn frames_after(records: &[Value], kind: &str) -> usize {
    let after = records.iter().rposition(|record| record["type"] == kind);
    after.map_or(0, |at| count(&records[at..], "frame"))
}

#[test]
fn a_server_that_was_killed_and_started_again_leaves_a_gap_and_the_track_goes_on() {
    let Some(port) = port() else { return };
    let server = Server::start(port, "320x240");
    let run = Run::start(port, "--reconnect");
    run.until("frames", |records| count(records, "frame") >= 50);
    drop(server);
    run.until("a stall is told", |records| count(records, "stalled") == 1);
    let _server = Server::start(port, "320x240");
    run.until("frames after the gap", |records| frames_after(records, "gap") >= 30);
    let (code, said, records) = run.end(Some("-INT"));
    assert_eq!(code, Some(130), "{said}");
    assert_eq!((count(&records, "gap"), count(&records, "stalled")), (1, 1), "{:?}", kinds(&records));
    let frames: Vec<_> = records.iter().filter(|record| record["type"] == "frame").collect();
    let times: Vec<_> = frames.iter().map(|frame| frame["pts_ns"].as_u64().unwrap()).collect();
    assert!(times.is_sorted(), "times go on after the gap");
    let numbers: Vec<_> = frames.iter().map(|frame| frame["frame"].as_u64().unwrap()).collect();
    assert!(numbers.windows(2).all(|pair| pair[0] < pair[1]));
    let gap = records.iter().find(|record| record["type"] == "gap").unwrap();
    assert!(gap["away_us"].as_u64().unwrap() > 1_000_000, "{gap}");
    // The picture is still, so the track is where it was.
    let last = &frames.last().unwrap()["tracks"][0];
    assert_eq!(last["state"], "tracked", "{last}");
    assert!((last["x"].as_f64().unwrap() - 140.0).abs() < 2.0, "{last}");
    assert!(frames.last().unwrap()["capture_us"].as_u64().is_some());
}

#[test]
fn a_server_that_is_gone_ends_a_run_with_its_files_closed() {
    let Some(port) = port() else { return };
    let server = Server::start(port, "320x240");
    let run = Run::start(port, "");
    run.until("frames", |records| count(records, "frame") >= 50);
    drop(server);
    let (code, said, records) = run.end(None);
    assert_eq!(code, Some(1), "{said}");
    assert!(count(&records, "frame") >= 50);
}

#[test]
fn a_server_that_halts_for_a_while_stalls_a_run_that_resumes_by_itself() {
    let Some(port) = port() else { return };
    let server = Server::start(port, "320x240");
    let run = Run::start(port, "");
    run.until("frames", |records| count(records, "frame") >= 50);
    server.signal("-STOP");
    run.until("a stall is told", |records| count(records, "stalled") == 1);
    std::thread::sleep(Duration::from_secs(1));
    server.signal("-CONT");
    run.until("it goes on", |records| frames_after(records, "resumed") >= 20);
    let (code, said, records) = run.end(Some("-TERM"));
    assert_eq!(code, Some(143), "{said}");
    assert_eq!(count(&records, "gap"), 0);
    let resumed = records.iter().find(|record| record["type"] == "resumed").unwrap();
    assert!(resumed["waited_us"].as_u64().unwrap() >= 2_500_000, "{resumed}");
}

#[test]
fn a_server_that_comes_back_with_another_picture_is_followed_into_another_file() {
    let Some(port) = port() else { return };
    let server = Server::start(port, "320x240");
    let run = Run::start(port, "--reconnect");
    run.until("frames", |records| count(records, "frame") >= 50);
    drop(server);
    let _server = Server::start(port, "640x480");
    run.until("frames after the change", |records| frames_after(records, "caps") >= 20);
    assert!(run.dir.path().join("out-2.mp4").exists());
    let (code, said, records) = run.end(Some("-INT"));
    assert_eq!(code, Some(130), "{said}");
    let caps = records.iter().find(|record| record["type"] == "caps").unwrap();
    assert_eq!((&caps["width"], &caps["height"]), (&640.into(), &480.into()), "{caps}");
}

#[test]
fn a_server_that_freezes_for_good_is_an_error_with_host_port_and_silence() {
    let Some(port) = port() else { return };
    // Both at once: each takes as long as rtspsrc waits for a sender.
    let runs = ["rtsp", "rtspt"].map(|scheme| {
        let port = if scheme == "rtsp" { port } else { self::port().unwrap() };
        let server = Server::start(port, "320x240");
        let run = Run::of(&format!("{scheme}://127.0.0.1:{port}/test"), "");
        (scheme, port, server, run)
    });
    for (_, _, server, run) in &runs {
        run.until("frames", |records| count(records, "frame") >= 50);
        server.signal("-STOP");
    }
    for (scheme, port, server, run) in runs {
        let (code, said, records) = run.end(None);
        assert_eq!(code, Some(1), "{scheme}: {said}");
        assert!(said.contains("the source was lost: it sent nothing for "), "{scheme}: {said}");
        assert!(said.contains(&format!("server 127.0.0.1 port {port}; --reconnect")), "{scheme}: {said}");
        assert!(count(&records, "frame") >= 50);
        server.signal("-CONT");
    }
}

#[test]
fn a_server_whose_stream_ends_and_that_says_so_ends_a_run_well() {
    let Some(port) = port() else { return };
    for scheme in ["rtsp", "rtspt"] {
        let server = Server::with(port, &["frames=200"]);
        let run = Run::of(&format!("{scheme}://127.0.0.1:{port}/test"), "");
        let (code, said, records) = run.end(None);
        assert_eq!(code, Some(0), "{scheme}: {said}");
        assert!(count(&records, "frame") >= 50, "{scheme}: {:?}", kinds(&records));
        drop(server);
    }
}

#[test]
fn a_server_that_asks_for_a_password_gets_it_and_nobody_else_does() {
    let Some(port) = port() else { return };
    let _server = Server::with(port, &["login=admin:s3c@ret"]);
    let run = Run::of(&format!("rtsp://admin:s3c%40ret@127.0.0.1:{port}/test"), "--max-frames 20 -vvv");
    let (code, said, records) = run.end(None);
    assert_eq!(code, Some(0), "{said}");
    let told = format!("{said}{records:?}");
    // Digests and `admin:` are of no use to an attacker, but the password is.
    assert!(!told.contains("s3c@ret") && !told.contains("s3c%40ret"), "{told}");
    assert!(told.contains("rtsp://***@127.0.0.1"), "{told}");

    let folder = tempfile::tempdir().unwrap();
    let login = folder.path().join("login");
    std::fs::write(&login, "admin:s3c@ret").unwrap();
    let address = format!("rtsp://127.0.0.1:{port}/test");
    let run = Run::of(&address, &format!("--max-frames 20 --credentials {}", login.display()));
    let (code, said, _) = run.end(None);
    assert_eq!(code, Some(0), "{said}");
    let refused = Command::new("timeout")
        .arg("60")
        .arg(program())
        .args(["run", &address, "--threshold", "mean:31:5", "--reconnect", "--no-progress"])
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&refused.stderr);
    assert_eq!(refused.status.code(), Some(1), "{said}");
    assert!(
        said.contains(&format!("the server at 127.0.0.1 port {port} rejects this user and password")),
        "{said}"
    );
}

#[test]
fn reconnect_waits_for_a_server_that_is_not_there_yet() {
    let Some(port) = port() else { return };
    let run = Run::start(port, "--reconnect --max-frames 20");
    std::thread::sleep(Duration::from_secs(2));
    let _server = Server::start(port, "320x240");
    let (code, said, records) = run.end(None);
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains(&format!("connection refused by 127.0.0.1 port {port}")), "{said}");
    assert!(said.contains("waiting until it is available"), "{said}");
    assert_eq!(count(&records, "frame"), 20);
}

#[test]
fn a_server_that_is_killed_ends_its_own_video_and_no_other() {
    let (Some(first), Some(second)) = (port(), port()) else { return };
    let (killed, _other) = (Server::start(first, "320x240"), Server::start(second, "320x240"));
    let dir = tempfile::tempdir().unwrap();
    let cars = root().join("examples/media/cars.mp4");
    let child = Command::new("timeout")
        .args(["--foreground", "--signal=KILL", "120"])
        .arg(program())
        .arg("run")
        .args([first, second].map(|port| format!("rtsp://127.0.0.1:{port}/test")))
        .arg(&cars)
        .args(["--track", "140,150,40,40", "--max-frames", "150", "--no-progress"])
        .args(["--results", "{index}.jsonl"])
        // As in `Run::of`.
        .env_remove("G_DEBUG")
        .current_dir(dir.path())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // Gives the input and the records of each results file.
    let videos = || {
        let files = std::fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().path());
        let read = |path: PathBuf| {
            let text = std::fs::read_to_string(path).unwrap();
            let lines = text.split_inclusive('\n').filter(|line| line.ends_with('\n'));
            let records: Vec<Value> = lines.map(|line| serde_json::from_str(line).unwrap()).collect();
            Some((records.first()?["input"].as_str()?.to_owned(), records))
        };
        files.filter_map(read).collect::<Vec<_>>()
    };
    let of = |input: &str| {
        videos()
            .into_iter()
            .find(|(name, _)| name.contains(input))
            .map_or_else(Vec::new, |(_, records)| records)
    };
    let deadline = Instant::now() + Duration::from_secs(40);
    while count(&of(&format!(":{first}/")), "frame") < 20 {
        assert!(Instant::now() < deadline, "no frames");
        std::thread::sleep(Duration::from_millis(20));
    }
    drop(killed);
    let output = child.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(
        said.contains(&format!("127.0.0.1 port {first}")) && said.contains("1 of 3 videos failed"),
        "{said}"
    );
    let (lost, other, file) = (of(&format!(":{first}/")), of(&format!(":{second}/")), of("cars.mp4"));
    assert!(lost.last().unwrap()["error"].is_string() && count(&lost, "frame") < 150, "{said}");
    for (records, frames) in [(&other, 150), (&file, 60)] {
        let summary = records.last().unwrap();
        assert_eq!(
            (&summary["type"], count(records, "frame") >= frames),
            (&"summary".into(), true),
            "{said}"
        );
        assert!(summary["error"].is_null(), "{said}");
    }
}

#[test]
fn frames_are_sent_to_a_server_that_gives_them_on() {
    let Some(port) = port() else { return };
    let server = Server::start(port, "320x240");
    let text = std::fs::read_to_string(root().join("pipelines/rtsp-out.launch")).unwrap();
    let (from, to) = ("rtsp://127.0.0.1:8554/lockon", format!("rtsp://127.0.0.1:{port}/in"));
    assert!(text.contains(from));
    let dir = tempfile::tempdir().unwrap();
    let source = "videotestsrc is-live=true ! video/x-raw,format=I420,width=176,height=144,framerate=25/1 \
                  ! appsink name=frames";
    let start = |to: &str| {
        std::fs::write(dir.path().join("out.launch"), text.replace(from, to)).unwrap();
        let mut run = Command::new("timeout");
        run.args(["--signal=KILL", "120"])
            .arg(program())
            .args(["run", "--source", source, "--track", "60,60,40,40", "--backend", "cpu", "--no-progress"])
            .args(["--sink", "@out.launch"])
            .current_dir(dir.path())
            .stderr(Stdio::piped());
        run.spawn().unwrap()
    };
    let run = start(&to);
    let size = server.says();
    // `timeout` passes it on.
    assert!(Command::new("kill").args(["-INT", &run.id().to_string()]).status().unwrap().success());
    let output = run.wait_with_output().unwrap();
    assert_eq!(size, "176x144");
    let said = String::from_utf8_lossy(&output.stderr);
    // Now and then GStreamer's `rtspclientsink` (1.22) does not end, which is reported and is an error.
    let stands_still = said.contains("error: output out.launch: nothing has moved in it");
    assert_eq!(output.status.code(), Some(if stands_still { 1 } else { 130 }), "{said}");
    // A server that accepts nothing at that path is an error.
    let output = start(&format!("rtsp://127.0.0.1:{port}/nowhere")).wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.code() == Some(1) && said.contains("output out.launch"), "{said}");
}
