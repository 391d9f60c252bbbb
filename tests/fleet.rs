//! Several videos in one process: the results of each are those of a run of its own, whatever happens to the
//! others.

use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use lockon::error::Error;
use lockon::fleet::{Entry, Fleet};
use lockon::request::Request;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::util::{Random, program, root};

/// A folder with so many videos, `v0.mp4` and on.
fn videos(count: usize) -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    for index in 0..count {
        fs::copy(root().join("examples/media/cars.mp4"), dir.path().join(format!("v{index}.mp4"))).unwrap();
    }
    dir
}

/// A job for the video of that number, whose box is another one in each.
fn job(index: usize) -> Value {
    let (x, y) = (20 + 7 * index % 200, 30 + 11 * index % 100);
    json!({ "input": format!("v{index}.mp4"), "track": [format!("{x},{y},40,36")] })
}

fn list(jobs: impl IntoIterator<Item = Value>) -> String {
    jobs.into_iter().map(|job| format!("{job}\n")).collect()
}

fn lockon(dir: &Path, words: &[&str]) -> Command {
    let mut command = Command::new(program());
    command.current_dir(dir).args(["run", "--backend", "cpu", "--no-progress"]).args(words);
    command
}

fn output(dir: &Path, words: &[&str]) -> Output {
    lockon(dir, words).output().unwrap()
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// The frames of a results file, without what depends on the clock.
fn frames(path: &Path) -> Vec<Value> {
    let text = fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let records = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let mut frames: Vec<_> = records.filter(|record| record["type"] == "frame").collect();
    for frame in &mut frames {
        for key in ["latency_us", "tracker_us"] {
            frame.as_object_mut().unwrap().remove(key);
        }
    }
    frames
}

/// The frames of each job, by processes of their own.
fn alone(dir: &Path, indices: &[usize]) -> Vec<Vec<Value>> {
    let one = |index: &usize| {
        let job = job(*index);
        let [video, track] = [&job["input"], &job["track"][0]].map(|word| word.as_str().unwrap());
        let run = output(dir, &[video, "--track", track, "-y", "--results", "alone.jsonl"]);
        assert!(run.status.success(), "{}", stderr(&run));
        frames(&dir.join("alone.jsonl"))
    };
    indices.iter().map(one).collect()
}

#[test]
#[cfg(unix)]
fn a_videos_name_adds_nothing_to_a_pipeline() {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;

    let dir = tempfile::tempdir().unwrap();
    let names: [(&[u8], &str); 8] = [
        (b"holiday videotestsrc num-buffers=2 ! filesink location=PWNED.mp4", ""),
        (b"a b", ""),
        (b"a\" ! filesink location=PWNED b=\"", ""),
        (b"ends in \\", ""),
        (b"\"quoted\"", ""),
        (b"(x) {y} $HOME 'z' 50%", ""),
        (b"a\nb ! filesink location=PWNED", "a_b ! filesink location=PWNED"),
        (b"not \xff UTF-8", "not \u{fffd} UTF-8"),
    ];
    let mut words: Vec<_> = Vec::new();
    let mut expected = Vec::new();
    for (name, stem) in names {
        let input = OsStr::from_bytes(&[name, b".mp4"].concat()).to_owned();
        fs::copy(root().join("examples/media/cars.mp4"), dir.path().join(&input)).unwrap();
        let stem = if stem.is_empty() { String::from_utf8(name.to_vec()).unwrap() } else { stem.to_owned() };
        expected.extend([input.clone(), format!("bare {stem}.jpg").into(), stem.into()]);
        words.push(input);
    }
    let text = "tee name=t t. ! queue ! jpegenc ! filesink location=\"bare {stem}.jpg\"
                t. ! queue ! jpegenc ! filesink location={stem}";
    let run = lockon(dir.path(), &["-y", "--track", "9,9,30,30", "--max-frames", "2", "--sink", text])
        .args(words)
        .output()
        .unwrap();
    assert!(run.status.success(), "{}", stderr(&run));
    let mut found: Vec<_> =
        fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    found.sort();
    expected.sort();
    assert_eq!(found, expected);
}

#[test]
fn each_of_several_videos_has_the_results_of_a_run_of_its_own() {
    let dir = videos(6);
    let expected = alone(dir.path(), &[0, 1, 2, 3, 4, 5]);
    assert!(expected.iter().all(|frames| frames.len() == 60) && expected[0] != expected[1]);
    fs::write(dir.path().join("list"), list((0..6).map(job))).unwrap();
    for jobs in ["1", "3", "6"] {
        let run =
            output(dir.path(), &["--inputs", "list", "-y", "--jobs", jobs, "--results", "{stem}.jsonl"]);
        let said = stderr(&run);
        assert!(run.status.success(), "{said}");
        assert!(said.contains("6 videos, 360 frames in "), "{said}");
        for (index, expected) in expected.iter().enumerate() {
            assert!(said.contains(&format!("v{index}.mp4: 60 frames in ")), "{said}");
            assert!(
                frames(&dir.path().join(format!("v{index}.jsonl"))) == *expected,
                "{jobs} jobs, v{index}"
            );
        }
    }
}

#[cfg(unix)]
#[test]
fn what_happens_to_one_of_sixteen_videos_leaves_the_others_unharmed() {
    let dir = videos(16);
    let path = |name: &str| dir.path().join(name);
    let whole = [0, 1, 2, 4, 6, 8, 10, 11, 12, 13, 14, 15];
    let expected = alone(dir.path(), &whole);
    fs::remove_file(path("v3.mp4")).unwrap();
    let cut = fs::read(path("v5.mp4")).unwrap();
    fs::write(path("v5.mp4"), &cut[..cut.len() / 2]).unwrap();
    fs::remove_file(path("v7.mp4")).unwrap();
    assert!(Command::new("mkfifo").arg(path("v7.mp4")).status().unwrap().success());
    // A disk that is full.
    std::os::unix::fs::symlink("/dev/full", path("v9.jsonl")).unwrap();
    fs::write(path("list"), list((0..16).map(job))).unwrap();
    let run = lockon(dir.path(), &["--inputs", "list", "-y", "--jobs", "16", "--results", "{stem}.jsonl"])
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // Nothing ever comes of this one until all the others have ended.
    let stalled = fs::OpenOptions::new().write(true).open(path("v7.mp4")).unwrap();
    let is_whole = |index: &usize| {
        fs::read_to_string(path(&format!("v{index}.jsonl")))
            .is_ok_and(|text| text.contains("\"type\":\"summary\""))
    };
    let deadline = Instant::now() + Duration::from_mins(2);
    while !whole.iter().all(is_whole) {
        assert!(Instant::now() < deadline, "the others wait for the one that stalls");
        std::thread::sleep(Duration::from_millis(50));
    }
    drop(stalled);
    let run = run.wait_with_output().unwrap();
    let said = stderr(&run);
    assert_eq!(run.status.code(), Some(1), "{said}");
    assert!(said.contains("4 of 16 videos failed:\n"), "{said}");
    let list = said.rsplit_once("failed:\n").unwrap().1;
    for (video, reason) in [
        ("v3", "No such file"),
        ("v5", "the file is cut off"),
        ("v7", "enough data"),
        ("v9", "No space left on device"),
    ] {
        let line = list.lines().find(|line| line.starts_with(&format!("  {video}.mp4: ")));
        assert!(line.is_some_and(|line| line.contains(reason)), "{video}: {said}");
    }
    for (index, expected) in whole.iter().zip(&expected) {
        assert!(frames(&path(&format!("v{index}.jsonl"))) == *expected, "v{index}");
    }
}

#[test]
fn standard_input_is_one_list_or_one_video() {
    let dir = tempfile::tempdir().unwrap();
    let track = ["--track", "9,9,30,30", "--results", "{index}.jsonl"];
    for words in [&["--inputs", "-", "-"][..], &["-", "-"]] {
        let run = output(dir.path(), &[words, &track].concat());
        let said = stderr(&run);
        assert_eq!(run.status.code(), Some(2), "{said}");
        assert!(said.contains("both read from standard input"), "{said}");
    }
}

#[test]
fn names_of_outputs_that_two_videos_would_share_are_refused_before_anything_is_written() {
    let dir = videos(2);
    for words in [
        &["v0.mp4", "v1.mp4", "--track", "9,9,30,30", "--results", "x.jsonl"][..],
        &["v0.mp4", "v1.mp4", "--track", "9,9,30,30", "-o", "{other}.mkv"],
        &["v0.mp4", "v0.mp4", "--track", "9,9,30,30", "--results", "{stem}.jsonl"],
        &["v0.mp4", "v1.mp4", "--track", "9,9,30,30", "--results", "-"],
        &["v0.mp4", "v1.mp4", "--pick"],
    ] {
        let run = output(dir.path(), words);
        assert_eq!(run.status.code(), Some(2), "{words:?}: {}", stderr(&run));
    }
    let written = fs::read_dir(dir.path()).unwrap().count();
    assert_eq!(written, 2, "the videos alone are there");
    let words = ["v0.mp4", "v0.mp4", "--track", "9,9,30,30", "--results", "{stem}.{index}.jsonl"];
    let run = output(dir.path(), &words);
    assert!(run.status.success(), "{}", stderr(&run));
    assert!(frames(&dir.path().join("v0.1.jsonl")) == frames(&dir.path().join("v0.2.jsonl")));
}

#[test]
fn jobs_that_were_printed_are_read_as_a_list() {
    let dir = videos(2);
    let words = ["v0.mp4", "v1.mp4", "--track", "9,9,30,30", "--results", "{stem}.jsonl", "--print-job=json"];
    let printed = output(dir.path(), &words);
    let text = String::from_utf8(printed.stdout).unwrap();
    assert_eq!(text.lines().count(), 2, "{text}");
    fs::write(dir.path().join("list"), text).unwrap();
    let run = output(dir.path(), &["--inputs", "list"]);
    assert!(run.status.success(), "{}", stderr(&run));
    assert_eq!(frames(&dir.path().join("v1.jsonl")).len(), 60);
    fs::write(dir.path().join("list"), "v0.mp4\n").unwrap();
    let one = output(dir.path(), &["--inputs", "list", "--track", "9,9,30,30"]);
    assert!(stderr(&one).contains("\n1 video, 60 frames"), "{}", stderr(&one));
    fs::write(dir.path().join("list"), "\n# nothing\n").unwrap();
    let run = output(dir.path(), &["--inputs", "list"]);
    assert_eq!(run.status.code(), Some(2));
    assert!(stderr(&run).contains("list names no video"), "{}", stderr(&run));
}

#[test]
fn metrics_of_all_videos_are_served_at_one_address() {
    use std::io::{BufRead, BufReader, Read};

    let dir = tempfile::tempdir().unwrap();
    let live = |name: &str| json!({ "source": "videotestsrc is-live=true ! video/x-raw,width=160,height=120 ! appsink name=frames", "track": ["20,20,30,30"], "metrics": "0", "results": [name] });
    fs::write(dir.path().join("list"), list(["a.jsonl", "b.jsonl"].map(live))).unwrap();
    let run = lockon(dir.path(), &["--inputs", "list"]).stdout(Stdio::null()).stderr(Stdio::piped()).spawn();
    let mut run = Killed(run.unwrap());
    let mut lines = BufReader::new(run.0.stderr.take().unwrap()).lines();
    let url =
        lines.find_map(|line| line.unwrap().strip_prefix("metrics: http://").map(str::to_owned)).unwrap();
    let address = url.strip_suffix("/metrics").unwrap().to_owned();
    let ask = || {
        let mut stream = std::net::TcpStream::connect(&address).unwrap();
        write!(stream, "GET /metrics HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n").unwrap();
        let mut said = String::new();
        stream.read_to_string(&mut said).unwrap();
        said
    };
    let deadline = Instant::now() + Duration::from_mins(1);
    let has = |said: &str, video: u32| {
        let sample = format!("lockon_frames_total{{video=\"source ({video})\"}} ");
        said.lines().any(|line| line.strip_prefix(&sample).is_some_and(|count| count != "0"))
    };
    loop {
        let said = ask();
        if has(&said, 1) && has(&said, 2) {
            assert!(said.contains("lockon_videos 2\n"), "{said}");
            break;
        }
        assert!(Instant::now() < deadline, "{said}");
        std::thread::sleep(Duration::from_millis(100));
    }
    // Ctrl-C closes all.
    interrupt(&run.0, "-INT");
    let rest: Vec<_> = lines.map(Result::unwrap).collect();
    assert_eq!(run.0.wait().unwrap().code(), Some(130), "{rest:?}");
    for name in ["a.jsonl", "b.jsonl"] {
        let text = fs::read_to_string(dir.path().join(name)).unwrap();
        assert!(text.lines().last().unwrap().contains("\"interrupted\":true"), "{name}");
    }
}

/// A run that is killed when it is dropped.
struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn interrupt(run: &Child, signal: &str) {
    assert!(Command::new("kill").args([signal, &run.id().to_string()]).status().unwrap().success());
}

#[test]
fn a_batch_that_was_killed_goes_on_where_it_was() {
    let (videos, kills) = (24, 4);
    batch_with_kills(videos, kills);
}

/// A batch of so many videos is killed at so many random moments, by either signal; then it is run to its
/// end.
fn batch_with_kills(count: usize, kills: usize) {
    let dir = videos(count);
    let jobs = || (0..count).map(job);
    fs::write(dir.path().join("list"), list(jobs())).unwrap();
    let whole = output(dir.path(), &["--inputs", "list", "--results", "{stem}.whole.jsonl"]);
    assert!(whole.status.success(), "{}", stderr(&whole));
    let words = ["--inputs", "list", "--skip-done", "--results", "{stem}.jsonl", "-o", "{stem}.mkv"];
    let is_done = |index: &usize| {
        fs::read_to_string(dir.path().join(format!("v{index}.jsonl")))
            .is_ok_and(|text| text.contains("\"interrupted\":false"))
    };
    let done = || (0..count).filter(is_done).count();
    let mut random = Random::new(5);
    for kill in 0..kills {
        let mut run = Killed(lockon(dir.path(), &words).stderr(Stdio::null()).spawn().unwrap());
        // Some more videos are done, and others are in the middle of it.
        let enough = (kill + 1) * count / (kills + 2);
        let deadline = Instant::now() + Duration::from_mins(2);
        while done() < enough {
            assert!(Instant::now() < deadline, "{} of {count} videos are done", done());
            std::thread::sleep(Duration::from_millis(10));
        }
        std::thread::sleep(Duration::from_millis(u64::from(random.byte())));
        assert!(run.0.try_wait().unwrap().is_none(), "it ended before it was killed");
        interrupt(&run.0, if kill % 2 == 0 { "-KILL" } else { "-INT" });
        let _ = run.0.wait().unwrap();
    }
    let before = done();
    assert!((1..count).contains(&before), "{before} of {count} videos were done");
    let run = output(dir.path(), &words);
    assert!(run.status.success(), "{}", stderr(&run));
    assert!(
        stderr(&run).contains(&format!("{before} of {count} videos are done already")),
        "{}",
        stderr(&run)
    );
    for index in 0..count {
        let of = |name: &str| frames(&dir.path().join(format!("v{index}{name}")));
        assert!(of(".jsonl") == of(".whole.jsonl"), "v{index}");
        assert_eq!(frames_of_video(&dir.path().join(format!("v{index}.mkv"))), 60, "v{index}");
    }
    let again = output(dir.path(), &words);
    let said = stderr(&again);
    assert!(said.contains(&format!("{count} of {count} videos are done already")), "{said}");
    // A different request is not answered with the results that exist.
    let other = output(dir.path(), &[&words[..], &["--max-frames", "5"]].concat());
    assert_eq!(other.status.code(), Some(1), "{}", stderr(&other));
    assert!(stderr(&other).contains("exist already"), "{}", stderr(&other));
}

fn frames_of_video(path: &Path) -> usize {
    use lockon::control::Control;
    use lockon::media::source::{Decoder, Input, SourceSpec, VideoSource};
    use lockon::ports::{Next, Source};

    let spec = SourceSpec::new(Input::File(path.into()), Decoder::Software);
    let mut source = VideoSource::open(&spec, &Control::new()).unwrap();
    let mut count = 0;
    loop {
        match source.wait_next(Duration::from_secs(20)).unwrap() {
            Next::Frame(_) => count += 1,
            Next::End => return count,
            _ => panic!("{}: nothing comes after {count} frames", path.display()),
        }
    }
}

#[test]
fn keep_what_exists_holds_for_what_an_interrupted_run_left() {
    let dir = videos(1);
    let words = ["v0.mp4", "--track", "9,9,30,30", "--skip-done", "--results", "{stem}.jsonl"];
    let whole = output(dir.path(), &words);
    assert!(whole.status.success(), "{}", stderr(&whole));
    let path = dir.path().join("v0.jsonl");
    let text = fs::read_to_string(&path).unwrap();
    let part = text.rsplit_once("{\"type\":\"summary\"").unwrap().0;
    fs::write(&path, part).unwrap();
    let kept = output(dir.path(), &[&words[..], &["-n"]].concat());
    assert_eq!(kept.status.code(), Some(1), "{}", stderr(&kept));
    assert_eq!(fs::read_to_string(&path).unwrap(), part);
    let on = output(dir.path(), &words);
    assert!(on.status.success(), "{}", stderr(&on));
    assert_eq!(frames(&path).len(), 60);
    // A file that does not hold lockon's results is not overwritten.
    fs::write(&path, "mine\n").unwrap();
    let other = output(dir.path(), &words);
    assert_eq!(other.status.code(), Some(1), "{}", stderr(&other));
    assert_eq!(fs::read_to_string(&path).unwrap(), "mine\n");
}

#[test]
#[ignore = "minutes: scripts/endurance batch"]
fn a_batch_of_two_hundred_videos_that_is_killed_ten_times_ends_with_all_results() {
    batch_with_kills(200, 10);
}

#[test]
fn runs_are_added_and_removed_while_others_go_on() {
    let request = |pattern: &str, live: bool| {
        let text = format!(
            "videotestsrc is-live={live} pattern={pattern} ! video/x-raw,width=96,height=64,framerate=50/1 ! appsink name=frames"
        );
        let mut request = Request { source: Some(text), ..Request::default() };
        request.backend = "cpu".parse().unwrap();
        request.track.push("10,10,24,24".parse().unwrap());
        request
    };
    let mut fleet = Fleet::new(1);
    let stays = fleet.add(Entry::new("stays", request("ball", true)));
    let endless = Request { lossless: true, ..request("smpte", true) };
    let first = fleet.add(Entry::new("first file", endless.clone()));
    let waits = fleet.add(Entry::new("waits", Request { max_frames: Some(3), ..endless.clone() }));
    let never = fleet.add(Entry::new("never begins", endless));
    assert_eq!(
        (fleet.counts().running, fleet.counts().waiting),
        (2, 2),
        "one file at a time, and what is live"
    );
    fleet.remove(never);
    let ended = fleet.wait().unwrap();
    assert_eq!(ended.id, never);
    assert!(matches!(ended.outcome, Err(Error::Stopped)) && ended.summary.interrupted);
    fleet.remove(first);
    let ended = fleet.wait().unwrap();
    assert_eq!((ended.id, ended.outcome.is_err()), (first, ended.summary.frames == 0));
    let ended = fleet.wait().unwrap();
    assert_eq!((ended.id, ended.summary.frames, ended.outcome.is_ok()), (waits, 3, true));
    for _ in 0..3 {
        let another =
            fleet.add(Entry::new("another", Request { max_frames: Some(2), ..request("snow", true) }));
        let ended = fleet.wait().unwrap();
        assert_eq!((ended.id, ended.summary.frames), (another, 2));
    }
    assert!(!fleet.is_done());
    fleet.remove(stays);
    let ended = fleet.wait().unwrap();
    assert_eq!(ended.id, stays);
    assert!(ended.outcome.is_ok() && ended.summary.interrupted && ended.summary.frames > 0);
    assert!(fleet.is_done() && fleet.wait().is_none());
}

#[test]
fn a_run_that_panics_or_cannot_be_opened_is_told_and_no_other_hears_of_it() {
    let request = |text: &str| Request {
        source: Some(text.into()),
        backend: "cpu".parse().unwrap(),
        track: vec!["10,10,24,24".parse().unwrap()],
        max_frames: Some(4),
        ..Request::default()
    };
    let good = "videotestsrc ! video/x-raw,width=96,height=64 ! appsink name=frames";
    let mut fleet = Fleet::new(3);
    let panics = Entry::new("panics", request(good)).when_opened(|_| panic!("on purpose"));
    let fails = Entry::new("fails", request("filesrc location=/nowhere ! decodebin ! appsink name=frames"));
    let ids = fleet.add_all([panics, fails, Entry::new("good", request(good))]);
    let mut ended = [fleet.wait().unwrap(), fleet.wait().unwrap(), fleet.wait().unwrap()];
    ended.sort_by_key(|ended| ended.id);
    assert_eq!(ended[0].id, ids.start);
    assert!(
        matches!(&ended[0].outcome, Err(Error::Panicked { message, .. }) if message.contains("on purpose"))
    );
    assert!(ended[1].outcome.is_err());
    assert_eq!((ended[2].summary.frames, ended[2].outcome.is_ok()), (4, true));
}
