//! A farm with a real NATS server: jobs are done once, whatever happens to workers and to the server, and
//! their results are those of a run on one machine.

use std::fs;
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;
use tempfile::TempDir;

use crate::say;
use crate::util::{program, root};

#[path = "farm/cameras.rs"]
mod cameras;
#[path = "farm/faults.rs"]
mod faults;
#[path = "farm/segments.rs"]
mod segments;

/// Patience with a busy machine.
const LONG: Duration = Duration::from_secs(90);

/// A process, killed when it is dropped.
struct Process(Child);

impl Process {
    fn signal(&self, name: &str) {
        assert!(Command::new("kill").args([name, &self.0.id().to_string()]).status().unwrap().success());
    }

    fn kill(mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }

    /// Its exit code, once it has ended by itself.
    fn code(&mut self) -> Option<i32> {
        let deadline = Instant::now() + LONG;
        while Instant::now() < deadline {
            if let Some(status) = self.0.try_wait().unwrap() {
                return status.code();
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        panic!("a process does not end");
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A server and a folder that its workers share.
struct Farm {
    dir: TempDir,
    port: u16,
    words: Vec<String>,
    server: Option<Process>,
}

impl Farm {
    /// A farm whose server is there. Where there is none to be had, the test that asks says that it is
    /// skipped.
    fn start() -> Option<Self> {
        let mut farm = Self::away(&[])?;
        farm.serve();
        Some(farm)
    }

    /// The same with other words for the server, which is not started yet.
    fn away(words: &[&str]) -> Option<Self> {
        let version = Command::new("nats-server").arg("--version").stdout(Stdio::null()).status();
        if !version.is_ok_and(|status| status.success()) {
            let is_required = std::env::var_os("LOCKON_REQUIRE_NATS").is_some();
            assert!(!is_required, "LOCKON_REQUIRE_NATS is set, and there is no nats-server");
            say::skipped("no NATS server (apt-get install nats-server)");
            return None;
        }
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let words = words.iter().map(|word| (*word).to_owned()).collect();
        Some(Self { dir: tempfile::tempdir().unwrap(), port, words, server: None })
    }

    /// Starts the server, again if it was there, with what it kept.
    fn serve(&mut self) {
        let store = self.dir.path().join("store");
        let child = Command::new("nats-server")
            .args(["-js", "-a", "127.0.0.1", "-p", &self.port.to_string(), "-sd"])
            .arg(store)
            .args(&self.words)
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        self.server = Some(Process(child));
        let deadline = Instant::now() + LONG;
        while TcpStream::connect(("127.0.0.1", self.port)).is_err() {
            assert!(Instant::now() < deadline, "nats-server does not start");
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    fn kill_server(&mut self) {
        self.server.take().unwrap().kill();
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Videos `v0.mp4` and on.
    fn videos(&self, count: usize) -> Vec<String> {
        let copy = |index| {
            let name = format!("v{index}.mp4");
            fs::copy(root().join("examples/media/cars.mp4"), self.path(&name)).unwrap();
            name
        };
        (0..count).map(copy).collect()
    }

    fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(program());
        command
            .current_dir(self.dir.path())
            .env("LOCKON_FARM", format!("nats://127.0.0.1:{}", self.port))
            .args(words)
            .stdin(Stdio::null());
        command
    }

    fn output(&self, words: &[&str]) -> Output {
        self.command(words).output().unwrap()
    }

    /// What a command says that must end well.
    fn said(&self, words: &[&str]) -> String {
        let output = self.output(words);
        assert!(output.status.success(), "{words:?}: {}", stderr(&output));
        stderr(&output)
    }

    fn worker(&self, name: &str, words: &[&str]) -> Process {
        let log = fs::File::options().create(true).append(true).open(self.path("workers.log")).unwrap();
        let words = [&["worker", "--name", name, "--lease", "2", "--jobs", "2"], words].concat();
        Process(self.command(&words).stderr(log).spawn().unwrap())
    }

    /// What workers said.
    fn log(&self) -> String {
        fs::read_to_string(self.path("workers.log")).unwrap_or_default()
    }

    fn jobs(&self) -> Vec<Value> {
        self.jobs_of(&[])
    }

    fn jobs_of(&self, words: &[&str]) -> Vec<Value> {
        let output = self.output(&[&["jobs", "--json"], words].concat());
        assert!(output.status.success(), "{}", stderr(&output));
        String::from_utf8(output.stdout)
            .unwrap()
            .lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect()
    }

    /// Waits until jobs are as a test wants them.
    fn until(&self, what: &str, holds: impl Fn(&[Value]) -> bool) -> Vec<Value> {
        let deadline = Instant::now() + LONG;
        loop {
            let jobs = self.jobs();
            if holds(&jobs) {
                return jobs;
            }
            assert!(Instant::now() < deadline, "{what}: {jobs:?}\n{}", self.log());
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Names in the folder that no user has asked for.
    fn leftovers(&self) -> Vec<String> {
        let names = fs::read_dir(self.dir.path()).unwrap().map(|entry| entry.unwrap().file_name());
        let names = names.map(|name| name.into_string().unwrap());
        names.filter(|name| name.starts_with(".lockon-")).collect()
    }
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn status(job: &Value) -> &str {
    job["status"].as_str().unwrap()
}

fn all_are(jobs: &[Value], wanted: &str) -> bool {
    !jobs.is_empty() && jobs.iter().all(|job| status(job) == wanted)
}

/// The lines of a results file without what depends on the clock, the machine, or how lockon was started.
fn timeless(path: &Path) -> Vec<String> {
    let text = fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let clean = |line: &str| {
        let mut value: Value = serde_json::from_str(line).unwrap();
        let map = value.as_object_mut().unwrap();
        if map["type"] == "summary" {
            let keeps = ["type", "frames", "found", "foreground", "interrupted", "error"];
            map.retain(|key, _| keeps.contains(&key.as_str()));
        }
        map.retain(|key, _| !key.ends_with("_us"));
        if map["type"] == "run" {
            for key in ["backend", "device", "driver", "decoder", "started"] {
                map.remove(key);
            }
            let command = map["command"].as_object_mut().unwrap();
            command.retain(|key, _| ["job", "start", "end"].contains(&key.as_str()));
        }
        value.to_string()
    };
    text.lines().map(clean).collect()
}

/// A job that takes three seconds, and is the same each time.
const SLOW: [&str; 4] = [
    "--source",
    "videotestsrc num-buffers=60 ! identity sleep-time=50000 ! video/x-raw,format=GRAY8,width=160,height=120",
    "--track",
    "30,20,64,28",
];

/// What a run on this machine alone gives.
fn alone(farm: &Farm, words: &[&str], results: &str) -> Vec<String> {
    let words =
        [&["run", "--backend", "cpu", "--no-progress", "-y"], words, &["--results", results]].concat();
    farm.said(&words);
    let lines = timeless(&farm.path(results));
    fs::remove_file(farm.path(results)).unwrap();
    lines
}

#[test]
fn what_is_submitted_is_done_once_and_is_what_one_machine_finds() {
    let Some(farm) = Farm::start() else { return };
    let videos = farm.videos(3);
    let videos: Vec<_> = videos.iter().map(|name| farm.path(name).to_str().unwrap().to_owned()).collect();
    let track = ["--track", "310,120,64,128", "--backend", "cpu"];
    let expected: Vec<_> = videos
        .iter()
        .map(|video| alone(&farm, &[&[&**video], &track[..2]].concat(), "alone.jsonl"))
        .collect();
    let mut words = vec!["submit", "--results", "{stem}.jsonl", "--wait"];
    words.extend(track);
    words.extend(videos.iter().map(String::as_str));
    let mut worker = farm.worker("one", &["--root", farm.dir.path().to_str().unwrap()]);
    let said = farm.said(&words);
    assert!(said.contains("3 jobs submitted\n") && said.contains("3 jobs, 180 frames in "), "{said}");
    let times = || {
        let written =
            |index| fs::metadata(farm.path(&format!("v{index}.jsonl"))).unwrap().modified().unwrap();
        [0, 1, 2].map(written)
    };
    for (index, expected) in expected.iter().enumerate() {
        assert_eq!(&timeless(&farm.path(&format!("v{index}.jsonl"))), expected);
    }
    let before = times();
    let said = farm.said(&words);
    assert!(said.contains("0 jobs submitted; known already: 3 done\n"), "{said}");
    // Who forgets the jobs and submits again finds that their results are there.
    farm.said(&["jobs", "purge", "--all"]);
    assert!(farm.jobs().is_empty());
    assert!(farm.said(&words).contains("3 jobs submitted\n"));
    assert!(farm.log().contains("its results are there"), "{}", farm.log());
    assert_eq!(times(), before);
    assert!(farm.leftovers().is_empty(), "{:?}", farm.leftovers());
    let told = String::from_utf8(farm.output(&["workers"]).stdout).unwrap();
    assert!(told.contains("one ") && told.contains("ready"), "{told}");
    worker.signal("-TERM");
    assert_eq!(worker.code(), Some(0));
    let told = String::from_utf8(farm.output(&["workers", "--json"]).stdout).unwrap();
    assert_eq!(told, "", "a worker that has ended says so");
}

#[test]
fn results_come_back_through_the_farm_into_a_folder_here() {
    let Some(farm) = Farm::start() else { return };
    let videos = farm.videos(2);
    fs::create_dir(farm.path("served")).unwrap();
    for name in &videos {
        fs::rename(farm.path(name), farm.path("served").join(name)).unwrap();
    }
    let served = farm.path("served");
    let _worker = farm.worker("one", &["--root", served.to_str().unwrap()]);
    let words = ["submit", "served/v0.mp4", "served/v1.mp4", "--threshold", "mean:31:5", "--backend", "cpu"];
    let words =
        [&words[..], &["--results", "{stem}.jsonl", "--report", "{stem}.html", "--collect", "out"]].concat();
    farm.said(&words);
    let video = served.join("v1.mp4");
    let expected = alone(&farm, &[video.to_str().unwrap(), "--threshold", "mean:31:5"], "alone.jsonl");
    assert_eq!(timeless(&farm.path("out/v1.jsonl")), expected);
    let page = fs::read_to_string(farm.path("out/v0.html")).unwrap();
    assert!(page.trim_end().ends_with("</html>"));
    assert_eq!(fs::read_dir(&served).unwrap().count(), 2, "nothing is written where workers read");
    // Again: they are kept until they are forgotten.
    fs::remove_dir_all(farm.path("out")).unwrap();
    assert!(farm.said(&words).contains("known already: 2 done"));
    assert_eq!(timeless(&farm.path("out/v1.jsonl")), expected);
    // What is somebody else's is not overwritten without a word.
    fs::write(farm.path("out/v1.jsonl"), "mine\n").unwrap();
    let refused = farm.output(&words);
    assert!(!refused.status.success() && stderr(&refused).contains("out/v1.jsonl"), "{}", stderr(&refused));
}

#[test]
fn jobs_are_cancelled_retried_and_forgotten() {
    let Some(farm) = Farm::start() else { return };
    let slow = [&["submit"], &SLOW[..], &["--results", "slow.jsonl"]].concat();
    farm.said(&slow);
    farm.said(&["jobs", "cancel", "--all"]);
    assert!(all_are(&farm.jobs(), "cancelled"));
    let _worker = farm.worker("one", &[]);
    farm.said(&["jobs", "retry", "--all"]);
    let jobs = farm.until("it runs", |jobs| all_are(jobs, "running"));
    let id = jobs[0]["job"]["id"].as_str().unwrap();
    // The beginning of its number will do.
    farm.said(&["jobs", "cancel", &id[..6]]);
    let deadline = Instant::now() + LONG;
    while !farm.log().contains("cancelled, or another worker has it") {
        assert!(Instant::now() < deadline, "{}", farm.log());
        std::thread::sleep(Duration::from_millis(50));
    }
    assert!(!farm.path("slow.jsonl").exists() && farm.leftovers().is_empty());
    assert!(all_are(&farm.jobs(), "cancelled"));
    farm.said(&["jobs", "purge", "--all"]);
    assert!(farm.jobs().is_empty());
    let unknown = farm.output(&["jobs", "retry", "abc"]);
    assert_eq!(unknown.status.code(), Some(2));
    assert!(stderr(&unknown).contains("there is no job abc"), "{}", stderr(&unknown));
}

#[test]
fn two_farms_on_one_server_know_nothing_of_each_other() {
    let Some(farm) = Farm::start() else { return };
    farm.videos(1);
    let submit = ["submit", "v0.mp4", "--track", "310,120,64,128", "--results", "{stem}.jsonl"];
    farm.said(&[&submit[..], &["--namespace", "day"]].concat());
    let _worker = farm.worker("night", &["--namespace", "night"]);
    farm.said(&[&submit[..], &["--namespace", "night", "--wait"]].concat());
    assert!(all_are(&farm.jobs_of(&["--namespace", "night"]), "done"));
    assert!(all_are(&farm.jobs_of(&["--namespace", "day"]), "queued"));
    assert!(farm.jobs().is_empty());
    let told = farm.output(&["jobs", "--namespace", "day"]).stdout;
    let told = String::from_utf8(told).unwrap();
    assert!(told.contains("1 jobs wait, and no worker of lockon "), "{told}");
}

#[test]
fn a_worker_that_is_asked_to_end_finishes_its_jobs_or_gives_them_back() {
    let Some(farm) = Farm::start() else { return };
    let slow = [&["submit"], &SLOW[..], &["--results", "slow.jsonl"]].concat();
    farm.said(&slow);
    let mut first = farm.worker("first", &["--drain", "give-back"]);
    farm.until("it runs", |jobs| all_are(jobs, "running"));
    first.signal("-TERM");
    assert_eq!(first.code(), Some(0), "{}", farm.log());
    let jobs = farm.jobs();
    assert!(all_are(&jobs, "queued") && jobs[0].get("tries").is_none(), "{jobs:?}");
    assert!(farm.leftovers().is_empty() && !farm.path("slow.jsonl").exists());
    let mut second = farm.worker("second", &[]);
    farm.until("it runs", |jobs| all_are(jobs, "running"));
    second.signal("-TERM");
    assert_eq!(second.code(), Some(0), "{}", farm.log());
    assert!(all_are(&farm.jobs(), "done"));
    assert!(timeless(&farm.path("slow.jsonl")) == alone(&farm, &SLOW, "alone.jsonl"));
}

/// Services and containers start lockon with words that it knows, and a server with a file that it reads.
#[test]
fn examples_of_a_farm_say_what_programs_understand() {
    let folder = root().join("examples/farm");
    let help = Command::new(program()).args(["worker", "--help"]).output().unwrap();
    let help = String::from_utf8(help.stdout).unwrap();
    let known: Vec<_> = help.split(|c: char| !(c.is_alphanumeric() || c == '-')).collect();
    let mut checked = 0;
    for entry in fs::read_dir(&folder).unwrap() {
        let path = entry.unwrap().path();
        let text = fs::read_to_string(&path).unwrap();
        for line in text.lines().filter(|line| {
            line.contains("lockon worker") || line.contains("worker\"") || line.contains("args:")
        }) {
            let words = line.split(|c: char| !(c.is_alphanumeric() || c == '-'));
            for option in words.filter(|word| word.starts_with("--") && word.len() > 2) {
                assert!(known.contains(&option), "{}: `lockon worker` has no {option}", path.display());
                checked += 1;
            }
        }
    }
    assert!(checked >= 6, "only {checked} options are there");
    if Farm::away(&[]).is_some() {
        let mut read = Command::new("nats-server");
        read.args(["-t", "-c"]).arg(folder.join("nats.conf")).env("LOCKON_FARM_PASSWORD", "x");
        let read = read.output().unwrap();
        assert!(read.status.success(), "{}", stderr(&read));
    }
}
