//! A farm with a real NATS server: jobs are done once, whatever happens to workers and to the server, and
//! their results are those of a run on one machine.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU16, Ordering};
use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant};

use serde_json::Value;
use tempfile::TempDir;

use crate::test_log;
use crate::util::{program, root};

#[path = "farm/access.rs"]
mod access;
#[path = "farm/cameras.rs"]
mod cameras;
#[path = "farm/cluster.rs"]
mod cluster;
#[path = "farm/faults.rs"]
mod faults;
#[path = "farm/records.rs"]
mod records;
#[path = "farm/roots.rs"]
mod roots;
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

/// A server and a folder that its workers share. The server ends before its folder does.
struct Farm {
    server: Option<Process>,
    port: u16,
    address: String,
    words: Vec<String>,
    dir: TempDir,
}

/// A port without a listener. It lies outside the range from which the system assigns ports, so that a killed
/// server can have it again.
fn free_port() -> u16 {
    static NEXT: LazyLock<AtomicU16> =
        LazyLock::new(|| AtomicU16::new((std::process::id() % 1000) as u16 * 20));
    loop {
        let port = 10_000 + NEXT.fetch_add(1, Ordering::Relaxed) % 20_000;
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
    }
}

impl Farm {
    /// Starts a farm with a running server. If there is no server program, the test reports that it is
    /// skipped.
    fn start() -> Option<Self> {
        let mut farm = Self::away(&[])?;
        farm.serve();
        Some(farm)
    }

    /// As `start`, with other arguments for the server, which is not started yet.
    fn away(words: &[&str]) -> Option<Self> {
        let version = Command::new("nats-server").arg("--version").stdout(Stdio::null()).status();
        if !version.is_ok_and(|status| status.success()) {
            test_log::missing("NATS", "no NATS server (apt-get install nats-server)");
            return None;
        }
        let words = words.iter().map(|word| (*word).to_owned()).collect();
        let port = free_port();
        let (address, dir) = (format!("nats://127.0.0.1:{port}"), tempfile::tempdir().unwrap());
        Some(Self { server: None, port, address, words, dir })
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
        self.wait("nats-server starts", || TcpStream::connect(("127.0.0.1", self.port)).is_ok());
    }

    /// Waits until something is as a test wants it.
    fn wait(&self, what: &str, holds: impl Fn() -> bool) {
        let deadline = Instant::now() + LONG;
        while !holds() {
            assert!(Instant::now() < deadline, "{what}: {}", self.log());
            std::thread::sleep(Duration::from_millis(20));
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

    /// Sends the server a message as any client can, and returns its answer.
    fn tell_server(&self, subject: &str, says: &str) -> Value {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).unwrap();
        write!(stream, "CONNECT {{}}\r\nSUB answer 1\r\nPUB {subject} answer {}\r\n{says}\r\n", says.len())
            .unwrap();
        let lines = BufReader::new(stream).lines().map(Result::unwrap);
        let answer = lines.skip_while(|line| !line.starts_with("MSG answer")).nth(1).unwrap();
        assert!(!answer.contains("\"error\""), "{answer}");
        serde_json::from_str(&answer).unwrap()
    }

    fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(program());
        command
            .current_dir(self.dir.path())
            .env("LOCKON_FARM", &self.address)
            .args(words)
            .stdin(Stdio::null());
        command
    }

    fn output(&self, words: &[&str]) -> Output {
        self.command(words).output().unwrap()
    }

    /// Runs a command that must succeed, and returns its output.
    fn said(&self, words: &[&str]) -> String {
        let output = self.output(words);
        assert!(output.status.success(), "{words:?}: {}", stderr(&output));
        stderr(&output)
    }

    fn worker(&self, name: &str, words: &[&str]) -> Process {
        let words = [&["worker", "--name", name, "--lease", "2", "--jobs", "2"], words].concat();
        self.begin(&words, "workers.log")
    }

    /// Begins a command, which says into a file what it says.
    fn begin(&self, words: &[&str], log: &str) -> Process {
        let log = fs::File::options().create(true).append(true).open(self.path(log)).unwrap();
        Process(self.command(words).stdout(Stdio::null()).stderr(log).spawn().unwrap())
    }

    /// The log of the workers.
    fn log(&self) -> String {
        fs::read_to_string(self.path("workers.log")).unwrap_or_default()
    }

    fn jobs(&self) -> Vec<Value> {
        self.jobs_of(&[])
    }

    fn jobs_of(&self, words: &[&str]) -> Vec<Value> {
        self.asked_for_jobs(words).unwrap_or_else(|error| panic!("{error}"))
    }

    /// The jobs, or what is said instead.
    fn asked_for_jobs(&self, words: &[&str]) -> Result<Vec<Value>, String> {
        let output = self.output(&[&["jobs", "--json"], words].concat());
        if !output.status.success() {
            return Err(stderr(&output));
        }
        let text = String::from_utf8(output.stdout).unwrap();
        Ok(text.lines().map(|line| serde_json::from_str(line).unwrap()).collect())
    }

    /// Waits until jobs are as a test wants them. A server may be away meanwhile.
    fn until(&self, what: &str, holds: impl Fn(&[Value]) -> bool) -> Vec<Value> {
        let deadline = Instant::now() + LONG;
        loop {
            let jobs = self.asked_for_jobs(&[]);
            if let Ok(jobs) = &jobs
                && holds(jobs)
            {
                return jobs.clone();
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

/// A video that comes through a socket, the same each time: its end comes when a test wants it.
struct Slow {
    source: String,
    is_open: Arc<AtomicBool>,
}

impl Slow {
    const FRAMES: u8 = 60;

    /// Sends only the first frames until it is opened, to each client that connects.
    fn new() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let source = format!(
            "tcpclientsrc host=127.0.0.1 port={} ! rawvideoparse width=160 height=120 format=gray8 framerate=20/1",
            listener.local_addr().unwrap().port()
        );
        let is_open = Arc::new(AtomicBool::new(false));
        let opened = is_open.clone();
        // It ends with the test.
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let opened = opened.clone();
                std::thread::spawn(move || Self::send(&stream.unwrap(), &opened));
            }
        });
        Self { source, is_open }
    }

    fn send(mut stream: &TcpStream, opened: &AtomicBool) {
        for frame in 0..Self::FRAMES {
            while frame == 10 && !opened.load(Ordering::Relaxed) {
                std::thread::sleep(Duration::from_millis(5));
            }
            let pixel = |at: usize| (at * at / 7 % 251) as u8 ^ frame;
            // A killed client receives nothing.
            let _ = stream.write_all(&(0..160 * 120).map(pixel).collect::<Vec<_>>());
        }
    }

    /// Lets all come.
    fn go_on(&self) {
        self.is_open.store(true, Ordering::Relaxed);
    }

    /// Holds up the next who connects.
    fn hold(&self) {
        self.is_open.store(false, Ordering::Relaxed);
    }

    fn words(&self) -> [&str; 4] {
        ["--source", &self.source, "--track", "30,20,64,28"]
    }

    /// The words that submit it.
    fn submitted<'a>(&'a self, words: &[&'a str]) -> Vec<&'a str> {
        [&["submit"], &self.words()[..], &["--results", "slow.jsonl"], words].concat()
    }
}

/// The result lines of a run on this machine alone.
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
    assert!(all_are(&farm.jobs(), "done"));
    let times = || {
        let written =
            |index| fs::metadata(farm.path(&format!("v{index}.jsonl"))).unwrap().modified().unwrap();
        [0, 1, 2].map(written)
    };
    for (index, expected) in expected.iter().enumerate() {
        assert_eq!(&timeless(&farm.path(&format!("v{index}.jsonl"))), expected);
    }
    let before = times();
    let again = farm.output(&words);
    assert!(stderr(&again).contains("0 jobs submitted; known already: 3 done\n"), "{}", stderr(&again));
    // Scripts hear the jobs' numbers, in the order of the inputs.
    let mut jobs = farm.jobs();
    jobs.sort_by_key(|job| job["job"]["name"].to_string());
    let ids: Vec<_> = jobs.iter().map(|job| job["job"]["id"].as_str().unwrap()).collect();
    assert_eq!(String::from_utf8(again.stdout).unwrap().lines().collect::<Vec<_>>(), ids);
    // If the jobs are purged and submitted again, their results are found.
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
    // A file that is not the farm's is not overwritten without an error.
    fs::write(farm.path("out/v1.jsonl"), "mine\n").unwrap();
    let refused = farm.output(&words);
    assert!(!refused.status.success() && stderr(&refused).contains("out/v1.jsonl"), "{}", stderr(&refused));
}

#[test]
fn results_that_are_not_whole_in_the_farm_are_told_and_not_collected() {
    let Some(farm) = Farm::start() else { return };
    farm.videos(1);
    let _worker = farm.worker("one", &[]);
    let words =
        ["submit", "v0.mp4", "--track", "310,120,64,128", "--results", "{stem}.jsonl", "--collect", "out"];
    farm.said(&words);
    let whole = fs::read(farm.path("out/v0.jsonl")).unwrap();
    let job = farm.jobs().remove(0);
    assert_eq!(job["kept"]["files"][0]["bytes"], whole.len());
    let id = job["job"]["id"].as_str().unwrap();
    let piece = format!("lockon.main.results.{id}.{}.0.0", job["kept"]["by"]);
    for (subject, says) in [(&*piece, "half"), ("$JS.API.STREAM.PURGE.lockon-main-results", "")] {
        farm.tell_server(subject, says);
        fs::remove_file(farm.path("out/v0.jsonl")).ok();
        let output = farm.output(&words);
        assert_eq!(output.status.code(), Some(1));
        let said = stderr(&output);
        assert!(said.contains("not in the farm any more") && said.contains(&format!("purge {id}")), "{said}");
        assert!(!farm.path("out/v0.jsonl").exists());
    }
    farm.said(&["jobs", "purge", id]);
    farm.said(&words);
    assert_eq!(fs::read_to_string(farm.path("out/v0.jsonl")).unwrap().lines().count(), 62);
}

#[test]
fn of_many_jobs_that_are_forgotten_no_results_stay_and_those_of_others_do() {
    let Some(farm) = Farm::start() else { return };
    let videos = farm.videos(18);
    let _worker = farm.worker("one", &[]);
    let words = ["submit", "--track", "310,120,64,128", "--max-frames", "2", "--backend", "cpu"];
    let mut words = [&words[..], &["--results", "{stem}.jsonl", "--collect", "out"]].concat();
    words.extend(videos.iter().map(String::as_str));
    farm.said(&words);
    let jobs = farm.jobs();
    let id = |job: &Value| job["job"]["id"].as_str().unwrap().to_owned();
    let (left, forgotten) = jobs.split_first().unwrap();
    let forgotten: Vec<_> = forgotten.iter().map(id).collect();
    let kept =
        || farm.tell_server("$JS.API.STREAM.INFO.lockon-main-results", "")["state"]["messages"].clone();
    assert_eq!(kept(), 18);
    farm.said(&[&["jobs", "purge"], &forgotten.iter().map(String::as_str).collect::<Vec<_>>()[..]].concat());
    assert_eq!(kept(), 1);
    assert_eq!(farm.jobs().iter().map(id).collect::<Vec<_>>(), [id(left)]);
}

#[test]
#[cfg(target_os = "linux")]
fn numbers_that_cannot_be_printed_do_not_hide_that_the_jobs_were_submitted() {
    let Some(farm) = Farm::start() else { return };
    farm.videos(1);
    let full = fs::File::options().write(true).open("/dev/full").unwrap();
    let mut command =
        farm.command(&["submit", "v0.mp4", "--track", "260,180,60,50", "--results", "{stem}.jsonl"]);
    let output = command.stdout(full).output().unwrap();
    let words = ["1 job", "the jobs were submitted, but their numbers could not be printed"];
    assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
    assert!(words.iter().all(|word| stderr(&output).contains(word)), "{}", stderr(&output));
    assert_eq!(farm.jobs().len(), 1);
}

#[test]
fn jobs_are_cancelled_retried_and_forgotten() {
    let Some(farm) = Farm::start() else { return };
    let slow = Slow::new();
    farm.said(&slow.submitted(&[]));
    farm.said(&["jobs", "cancel", "--all"]);
    assert!(all_are(&farm.jobs(), "cancelled"));
    let _worker = farm.worker("one", &[]);
    farm.said(&["jobs", "retry", "--all"]);
    let jobs = farm.until("it runs", |jobs| all_are(jobs, "running"));
    let id = jobs[0]["job"]["id"].as_str().unwrap();
    // The beginning of its number will do.
    farm.said(&["jobs", "cancel", &id[..6]]);
    farm.wait("the worker hears of it", || farm.log().contains("cancelled, or another worker has it"));
    assert!(!farm.path("slow.jsonl").exists() && farm.leftovers().is_empty());
    assert!(all_are(&farm.jobs(), "cancelled"));
    farm.said(&["jobs", "purge", "--all"]);
    assert!(farm.jobs().is_empty());
    let unknown = farm.output(&["jobs", "retry", "abc"]);
    assert_eq!(unknown.status.code(), Some(2));
    assert!(stderr(&unknown).contains("there is no job abc"), "{}", stderr(&unknown));
}

#[test]
fn jobs_that_are_submitted_again_are_done_in_the_order_of_their_submission() {
    let Some(farm) = Farm::start() else { return };
    let videos = farm.videos(9);
    let words = ["submit", "--track", "310,120,64,128", "--max-frames", "2", "--backend", "cpu"];
    let mut words = [&words[..], &["--results", "{stem}.jsonl"]].concat();
    words.extend(videos.iter().map(String::as_str));
    farm.said(&words);
    farm.said(&["jobs", "cancel", "--all"]);
    assert!(farm.said(&words).contains("9 jobs submitted"));
    let _worker = farm.begin(&["worker", "-v", "--jobs", "1", "--cameras", "0"], "workers.log");
    farm.until("all are done", |jobs| all_are(jobs, "done"));
    let log = farm.log();
    let begun: Vec<_> = log.lines().filter_map(|line| line.strip_suffix(" begins")).collect();
    assert_eq!(begun.len(), 9, "{log}");
    assert!(begun.iter().zip(&videos).all(|(line, video)| line.ends_with(&**video)), "{begun:?}");
}

/// A server counted what was replaced while it was listed, and the list waited for it in vain.
#[test]
fn jobs_are_listed_to_the_end_while_they_change() {
    use lockon::farm::{Access, Farm as Asked};

    let Some(farm) = Farm::start() else { return };
    farm.videos(1);
    let track = ["submit", "v0.mp4", "--track", "310,120,64,128", "--results"];
    for results in ["a.jsonl", "b.jsonl", "c.jsonl"] {
        farm.said(&[&track[..], &[results]].concat());
    }
    let ids: Vec<_> = farm.jobs().iter().map(|job| job["job"]["id"].as_str().unwrap().to_owned()).collect();
    let ask = || Asked::connect(&Access::new(&*farm.address)).unwrap();
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let asked = ask();
            while !is_over.load(Ordering::Relaxed) {
                asked.cancel(&ids[1..]).unwrap();
                asked.retry(&ids[1..]).unwrap();
            }
        });
        let asked = ask();
        let lists: Vec<_> = (0..30).map(|_| asked.records()).collect();
        is_over.store(true, Ordering::Relaxed);
        for list in lists {
            let mut listed: Vec<_> = list.unwrap().readable.into_iter().map(|record| record.job.id).collect();
            let count = listed.len();
            listed.sort();
            listed.dedup();
            // The one that stays as it is, and none twice.
            assert!(listed.contains(&ids[0]) && listed.len() == count, "{count}: {listed:?}");
        }
    });
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
    assert!(told.contains("1 job waits, and no worker of lockon "), "{told}");
}

#[test]
fn a_worker_that_is_asked_to_end_finishes_its_jobs_or_gives_them_back() {
    let Some(farm) = Farm::start() else { return };
    let slow = Slow::new();
    farm.said(&slow.submitted(&[]));
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
    let draining = || String::from_utf8(farm.output(&["workers"]).stdout).unwrap().contains("draining");
    farm.wait("it drains", draining);
    slow.go_on();
    assert_eq!(second.code(), Some(0), "{}", farm.log());
    assert!(all_are(&farm.jobs(), "done"));
    assert_eq!(timeless(&farm.path("slow.jsonl")), alone(&farm, &slow.words(), "alone.jsonl"));
}

/// Services and containers start lockon with words that it knows, and a server with a file that it reads.
#[test]
fn examples_of_a_farm_say_what_programs_understand() {
    let folder = root().join("examples/farm");
    let service = root().join("packaging/systemd/lockon-worker.service");
    let options = root().join("packaging/deb/worker.env");
    let help = Command::new(program()).args(["worker", "--help"]).output().unwrap();
    let help = String::from_utf8(help.stdout).unwrap();
    let known: Vec<_> = help.split(|c: char| !(c.is_alphanumeric() || c == '-')).collect();
    let mut checked = 0;
    let examples = fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path());
    for path in examples.chain([service, options]) {
        let text = fs::read_to_string(&path).unwrap();
        for line in text.lines().filter(|line| {
            ["lockon worker ", "worker\"", "args:", "WORKER_OPTIONS="]
                .iter()
                .any(|start| line.contains(start))
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
