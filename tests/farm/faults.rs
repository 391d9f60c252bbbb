//! Failures: of workers, the server, storage, and jobs themselves.

use std::net::Shutdown;
use std::sync::Mutex;

use super::*;

/// The way of one worker to the server. A test can cut it while other workers reach the server.
struct Link {
    address: String,
    is_cut: Arc<AtomicBool>,
    streams: Arc<Mutex<Vec<TcpStream>>>,
}

impl Link {
    fn to(farm: &Farm) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = format!("nats://{}", listener.local_addr().unwrap());
        let (is_cut, streams) = (Arc::new(AtomicBool::new(false)), Arc::<Mutex<Vec<TcpStream>>>::default());
        let (port, cut, held) = (farm.port, is_cut.clone(), streams.clone());
        // It ends with the test.
        std::thread::spawn(move || {
            for worker in listener.incoming() {
                let mut held = held.lock().unwrap();
                if cut.load(Ordering::Relaxed) {
                    continue;
                }
                let (worker, server) = (worker.unwrap(), TcpStream::connect(("127.0.0.1", port)).unwrap());
                for (from, to) in [(&worker, &server), (&server, &worker)] {
                    let (mut from, mut to) = (from.try_clone().unwrap(), to.try_clone().unwrap());
                    std::thread::spawn(move || std::io::copy(&mut from, &mut to));
                }
                held.extend([worker, server]);
            }
        });
        Self { address, is_cut, streams }
    }

    fn cut(&self) {
        let mut streams = self.streams.lock().unwrap();
        self.is_cut.store(true, Ordering::Relaxed);
        for stream in streams.drain(..) {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }

    fn restore(&self) {
        self.is_cut.store(false, Ordering::Relaxed);
    }
}

/// A worker whose results got their names while it could not reach the server.
struct Unheard {
    worker: Process,
    link: Link,
    slow: Slow,
}

impl Unheard {
    fn on(farm: &Farm) -> Self {
        let (slow, link) = (Slow::new(), Link::to(farm));
        let submitted =
            [&["submit"], &slow.words()[..], &["--results", "slow.csv", "--tries", "10"]].concat();
        farm.said(&submitted);
        let worker = farm.worker("first", &["--farm", &link.address]);
        farm.until("it runs", |jobs| all_are(jobs, "running"));
        link.cut();
        slow.go_on();
        farm.wait("results", || farm.path("slow.csv").exists());
        farm.wait("it is told", || farm.log().contains("waiting for it"));
        slow.hold();
        Self { worker, link, slow }
    }

    /// Waits until it heard from the server that its job is another worker's, and ends it.
    fn returns(mut self, farm: &Farm) -> Slow {
        self.link.restore();
        farm.wait("it hears of the other worker", || farm.log().contains("another worker has it"));
        self.worker.signal("-TERM");
        assert_eq!(self.worker.code(), Some(0), "{}", farm.log());
        self.slow
    }
}

impl Slow {
    /// Checks the job's results in every byte.
    fn are_results(&self, farm: &Farm) {
        let words = [&["run", "--backend", "cpu", "--no-progress"], &self.words()[..]].concat();
        farm.said(&[&words[..], &["--results", "alone.csv"]].concat());
        let [found, expected] =
            ["slow.csv", "alone.csv"].map(|name| fs::read_to_string(farm.path(name)).unwrap());
        assert_eq!(found, expected);
    }
}

#[test]
fn a_worker_that_is_back_while_another_one_does_its_job_again_does_not_report_the_files_that_one_removed() {
    let Some(farm) = Farm::start() else { return };
    let first = Unheard::on(&farm);
    let _second = farm.worker("second", &[]);
    farm.until("another one has it", |jobs| jobs[0]["worker"] == "second" && all_are(jobs, "running"));
    farm.wait("the first results are removed", || !farm.path("slow.csv").exists());
    let slow = first.returns(&farm);
    assert!(all_are(&farm.jobs(), "running"), "{:?}", farm.jobs());
    slow.go_on();
    let jobs = farm.until("it is done", |jobs| all_are(jobs, "done"));
    assert_eq!(jobs[0]["worker"], "second");
    slow.are_results(&farm);
    farm.wait("nothing else is left", || farm.leftovers().is_empty());
}

#[test]
fn a_worker_that_is_back_after_another_one_did_its_job_again_keeps_the_results_of_that_one() {
    let Some(farm) = Farm::start() else { return };
    let first = Unheard::on(&farm);
    first.slow.go_on();
    let _second = farm.worker("second", &[]);
    farm.until("another one did it", |jobs| jobs[0]["worker"] == "second" && all_are(jobs, "done"));
    let slow = first.returns(&farm);
    slow.are_results(&farm);
    farm.wait("nothing else is left", || farm.leftovers().is_empty());
}

/// The other worker says that it has the job, and is held up before it removes the files of earlier tries.
#[test]
fn a_worker_that_is_back_does_not_report_files_that_another_one_is_about_to_remove() {
    let Some(farm) = Farm::start() else { return };
    let first = Unheard::on(&farm);
    let mut claimed = farm.jobs().remove(0);
    let id = claimed["job"]["id"].as_str().unwrap().to_owned();
    (claimed["worker"], claimed["instance"]) = ("second".into(), "5ec0d5ec".into());
    farm.tell_server(&format!("lockon.main.state.{id}"), &claimed.to_string());
    let Unheard { worker, link, slow } = first;
    link.restore();
    farm.wait("it hears of the other worker", || farm.log().contains("another worker has it"));
    farm.wait("a job that is not done has no results", || !farm.path("slow.csv").exists());
    // It may have got the job again by now.
    worker.kill();
    assert!(all_are(&farm.jobs(), "running"), "{:?}", farm.jobs());
    slow.go_on();
    let _third = farm.worker("third", &[]);
    let jobs = farm.until("it is done", |jobs| all_are(jobs, "done"));
    assert_eq!(jobs[0]["worker"], "third");
    slow.are_results(&farm);
    farm.wait("nothing else is left", || farm.leftovers().is_empty());
}

#[test]
fn a_job_whose_worker_was_killed_is_done_by_another() {
    let Some(farm) = Farm::start() else { return };
    let slow = Slow::new();
    farm.said(&slow.submitted(&[]));
    let first = farm.worker("first", &[]);
    farm.until("it runs", |jobs| all_are(jobs, "running"));
    first.kill();
    slow.go_on();
    let _second = farm.worker("second", &[]);
    let jobs = farm.until("it is done", |jobs| all_are(jobs, "done"));
    assert_eq!(jobs[0]["worker"], "second");
    assert!(jobs[0]["tries"][0]["error"].as_str().unwrap().contains("was gone in the middle"), "{jobs:?}");
    assert_eq!(timeless(&farm.path("slow.jsonl")), alone(&farm, &slow.words(), "alone.jsonl"));
    assert!(farm.leftovers().is_empty(), "what the first one left is removed");
}

/// A worker that a swapping machine or a network held up comes back and finds its job with another one.
#[test]
fn a_worker_that_was_thought_dead_touches_nothing_of_the_job_that_another_one_has() {
    let Some(farm) = Farm::start() else { return };
    let slow = Slow::new();
    farm.said(&slow.submitted(&["--tries", "10"]));
    let first = farm.worker("first", &[]);
    farm.until("it runs", |jobs| all_are(jobs, "running"));
    first.signal("-STOP");
    let second = farm.worker("second", &[]);
    let is_of = |name: &str, jobs: &[Value]| jobs[0]["worker"] == name && all_are(jobs, "running");
    farm.until("another one has it", |jobs| is_of("second", jobs));
    first.signal("-CONT");
    farm.wait("the first one hears of it", || farm.log().contains("another worker has it"));
    assert!(is_of("second", &farm.jobs()));
    // If it had closed the lease, no worker would get the job any more.
    first.kill();
    second.kill();
    slow.go_on();
    let _third = farm.worker("third", &[]);
    let jobs = farm.until("it is done", |jobs| all_are(jobs, "done"));
    assert_eq!(jobs[0]["worker"], "third");
    assert_eq!(timeless(&farm.path("slow.jsonl")), alone(&farm, &slow.words(), "alone.jsonl"));
    assert!(farm.leftovers().is_empty(), "{:?}", farm.leftovers());
}

#[test]
fn a_job_that_kills_its_workers_is_given_up_and_says_so() {
    let Some(farm) = Farm::start() else { return };
    let slow = Slow::new();
    farm.said(&slow.submitted(&["--tries", "2"]));
    for name in ["first", "second"] {
        let worker = farm.worker(name, &[]);
        farm.until("it runs", |jobs| jobs[0]["worker"] == name && all_are(jobs, "running"));
        worker.kill();
    }
    let _third = farm.worker("third", &[]);
    let jobs = farm.until("it is given up", |jobs| all_are(jobs, "failed"));
    let tries: Vec<_> = jobs[0]["tries"].as_array().unwrap().iter().map(|tried| &tried["worker"]).collect();
    assert_eq!(tries, ["first", "second"]);
    assert!(!farm.path("slow.jsonl").exists());
    farm.wait("it is told", || farm.log().contains("given up"));
    farm.wait("nothing of it is left", || farm.leftovers().is_empty());
}

/// Each redelivery listened for the dead worker for seconds, in a place that other jobs waited for.
#[test]
fn of_the_jobs_of_a_dead_worker_those_that_wait_hold_no_others_up() {
    let Some(farm) = Farm::start() else { return };
    let (slow, other) = (Slow::new(), Slow::new());
    farm.said(&slow.submitted(&[]));
    let other = [&["submit"], &other.words()[..], &["--results", "other.jsonl"]].concat();
    farm.said(&other);
    let first = farm.worker("first", &[]);
    farm.until("they run", |jobs| all_are(jobs, "running"));
    first.kill();
    let _second = farm.worker("second", &[]);
    let of_second = |jobs: &[Value]| jobs.iter().filter(|job| job["worker"] == "second").count();
    farm.until("one of them runs, and the other is noted as lost", |jobs| {
        let waits = jobs.iter().any(|job| status(job) == "queued" && job["tries"][0]["lost"] == true);
        waits && of_second(jobs) == 1
    });
    farm.videos(2);
    let quick =
        ["submit", "v0.mp4", "v1.mp4", "--track", "310,120,64,128", "--results", "{stem}.jsonl", "--wait"];
    farm.said(&quick);
    assert!(!farm.path("slow.jsonl").exists() && !farm.path("other.jsonl").exists());
}

#[test]
fn a_server_that_is_killed_in_the_middle_of_a_job_is_waited_for() {
    let Some(mut farm) = Farm::start() else { return };
    let slow = Slow::new();
    let _worker = farm.worker("one", &[]);
    let mut waiting = farm.begin(&slow.submitted(&["--wait"]), "submit.log");
    farm.until("it runs", |jobs| all_are(jobs, "running"));
    farm.kill_server();
    slow.go_on();
    // The run ends meanwhile, and its results have their name.
    farm.wait("results", || farm.path("slow.jsonl").exists());
    farm.wait("it is told", || farm.log().contains("waiting for it"));
    farm.serve();
    let jobs = farm.until("it is done", |jobs| all_are(jobs, "done"));
    assert!(jobs[0].get("tries").is_none(), "nobody did it twice: {jobs:?}");
    let said = fs::read_to_string(farm.path("submit.log")).unwrap();
    assert_eq!(waiting.code(), Some(0), "{said}");
    farm.wait("it is told", || farm.log().contains("the farm's server is there again"));
}

#[test]
fn what_a_server_that_is_away_did_not_hear_is_done_again_and_not_lost() {
    let Some(mut farm) = Farm::start() else { return };
    let slow = Slow::new();
    let mut first = farm.worker("first", &[]);
    // Results come back through the farm: those of the first worker never do.
    let submitted = slow.submitted(&["--collect", "out"]);
    let mut waiting = farm.begin(&submitted, "submit.log");
    farm.until("it runs", |jobs| all_are(jobs, "running"));
    farm.kill_server();
    slow.go_on();
    farm.wait("it is told", || farm.log().contains("waiting for it"));
    first.signal("-TERM");
    assert_eq!(first.code(), Some(0), "{}", farm.log());
    assert!(farm.log().contains("the farm did not hear how it ended"), "{}", farm.log());
    farm.serve();
    let jobs = farm.jobs();
    assert!(all_are(&jobs, "running"), "nothing is called done that is not stored: {jobs:?}");
    let _second = farm.worker("second", &[]);
    let said = || fs::read_to_string(farm.path("submit.log")).unwrap();
    assert_eq!(waiting.code(), Some(0), "{}\n{}", said(), farm.log());
    let jobs = farm.jobs();
    assert!(all_are(&jobs, "done") && jobs[0]["worker"] == "second", "{jobs:?}");
    assert_eq!(timeless(&farm.path("out/slow.jsonl")), alone(&farm, &slow.words(), "alone.jsonl"));
}

#[test]
fn a_server_that_is_not_there_is_told_at_once_and_workers_wait_for_it() {
    let Some(mut farm) = Farm::away(&[]) else { return };
    farm.videos(1);
    let submit = ["submit", "v0.mp4", "--track", "310,120,64,128", "--results", "{stem}.jsonl"];
    let output = farm.output(&submit);
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains("is nats-server running there?"), "{}", stderr(&output));
    let _worker = farm.worker("one", &[]);
    farm.wait("it waits", || farm.log().contains("waiting for it"));
    farm.serve();
    farm.said(&[&submit[..], &["--wait"]].concat());
}

#[test]
fn what_one_worker_has_no_storage_for_another_one_does() {
    let Some(farm) = Farm::start() else { return };
    farm.videos(1);
    fs::create_dir(farm.path("elsewhere")).unwrap();
    let submit = ["submit", "v0.mp4", "--track", "310,120,64,128", "--results", "{stem}.jsonl"];
    farm.said(&[&submit[..], &["--tries", "1000"]].concat());
    let _poor = farm.worker("poor", &["--root", farm.path("elsewhere").to_str().unwrap()]);
    let jobs = farm.until("it has failed there", |jobs| jobs[0]["tries"][0]["worker"] == "poor");
    let error = jobs[0]["tries"][0]["error"].as_str().unwrap();
    assert!(error.contains("v0.mp4") && error.contains("outside of what this worker serves"), "{error}");
    farm.until("it has failed again", |jobs| jobs[0]["tries"].as_array().unwrap().len() > 2);
    assert!(!farm.log().contains("takes no jobs"), "it still serves others: {}", farm.log());
    let _rich = farm.worker("rich", &["--root", farm.dir.path().to_str().unwrap()]);
    let jobs = farm.until("it is done", |jobs| all_are(jobs, "done"));
    assert_eq!(jobs[0]["worker"], "rich");
}

/// Files of the worker may have no more bytes, which is what a quota says, and nearly what a full disk does.
#[test]
fn what_fills_the_disk_of_one_worker_another_one_does() {
    let Some(farm) = Farm::start() else { return };
    farm.videos(1);
    let video = farm.path("v0.mp4").to_str().unwrap().to_owned();
    let expected = alone(&farm, &[&video, "--track", "310,120,64,128"], "alone.jsonl");
    let submit = ["submit", "v0.mp4", "--track", "310,120,64,128", "--results", "{stem}.jsonl"];
    farm.said(&[&submit[..], &["--tries", "1000"]].concat());
    let limited = "ulimit -f 8; exec \"$@\"";
    let mut full = Command::new("sh");
    full.args(["-c", limited, "sh"]).arg(program());
    full.args(["worker", "--name", "full", "--lease", "2", "--jobs", "1"]);
    full.current_dir(farm.dir.path()).env("LOCKON_FARM", &farm.address);
    let log = fs::File::create(farm.path("full.log")).unwrap();
    let _full = Process(full.stdin(Stdio::null()).stderr(log).spawn().unwrap());
    let jobs = farm.until("it has failed there", |jobs| jobs[0]["tries"][0]["worker"] == "full");
    let error = jobs[0]["tries"][0]["error"].as_str().unwrap();
    assert!(error.contains("v0.jsonl") && error.contains("File too large"), "{error}");
    assert!(!farm.path("v0.jsonl").exists());
    let _other = farm.worker("other", &[]);
    let jobs = farm.until("it is done", |jobs| all_are(jobs, "done"));
    assert_eq!(jobs[0]["worker"], "other");
    assert_eq!(timeless(&farm.path("v0.jsonl")), expected);
    assert!(farm.leftovers().is_empty(), "{:?}", farm.leftovers());
}

#[test]
fn files_that_are_nobodys_results_are_kept_until_somebody_says_so() {
    let Some(farm) = Farm::start() else { return };
    farm.videos(1);
    fs::write(farm.path("v0.jsonl"), "mine\n").unwrap();
    let _worker = farm.worker("one", &[]);
    let submit = ["submit", "v0.mp4", "--track", "310,120,64,128", "--results", "{stem}.jsonl", "--wait"];
    let refused = farm.output(&submit);
    assert_eq!(refused.status.code(), Some(1));
    assert!(stderr(&refused).contains("submit it with -y"), "{}", stderr(&refused));
    assert_eq!(fs::read_to_string(farm.path("v0.jsonl")).unwrap(), "mine\n");
    farm.said(&["jobs", "purge", "--all"]);
    farm.said(&[&submit[..], &["-y"]].concat());
    assert!(timeless(&farm.path("v0.jsonl")).len() > 60);
}

/// The record of the first submit was kept, with its -y.
#[test]
fn a_job_that_was_cancelled_or_failed_is_done_on_the_terms_of_the_newest_submit() {
    let Some(farm) = Farm::start() else { return };
    farm.videos(1);
    let at = |name: &str| fs::read_to_string(farm.path(name)).unwrap();
    fs::write(farm.path("a.jsonl"), "mine\n").unwrap();
    let submit =
        ["submit", "v0.mp4", "--track", "310,120,64,128", "--max-frames", "3", "--results", "a.jsonl"];
    farm.said(&[&submit[..], &["-y", "--tries", "9"]].concat());
    farm.said(&["jobs", "cancel", "--all"]);
    let _worker = farm.worker("one", &[]);
    let refused = farm.output(&[&submit[..], &["--wait", "--tries", "2"]].concat());
    assert_eq!(refused.status.code(), Some(1));
    assert!(stderr(&refused).contains("submit it with -y"), "{}", stderr(&refused));
    assert_eq!(at("a.jsonl"), "mine\n");
    assert_eq!(farm.jobs()[0]["job"]["tries"], 2);
    let said = farm.said(&[&submit[..], &["-y", "--wait"]].concat());
    assert!(said.contains("1 job submitted"), "{said}");
    assert_eq!(timeless(&farm.path("a.jsonl")).len(), 5);
}

#[test]
fn a_file_that_took_the_place_of_an_output_is_no_result_of_the_job() {
    let Some(farm) = Farm::start() else { return };
    farm.videos(1);
    let submit = ["submit", "v0.mp4", "--threshold", "mean:31:5", "--max-frames", "3", "--wait"];
    let submit = [&submit[..], &["--results", "a.jsonl", "-o", "a.mkv"]].concat();
    let _worker = farm.worker("one", &[]);
    farm.said(&submit);
    farm.said(&["jobs", "purge", "--all"]);
    fs::write(farm.path("a.mkv"), "FOREIGN").unwrap();
    let refused = farm.output(&submit);
    assert_eq!(refused.status.code(), Some(1));
    assert!(stderr(&refused).contains("a.mkv exists already"), "{}", stderr(&refused));
    assert_eq!(fs::read_to_string(farm.path("a.mkv")).unwrap(), "FOREIGN");
    farm.said(&[&submit[..], &["-y"]].concat());
    assert!(fs::metadata(farm.path("a.mkv")).unwrap().len() > 100);
}

#[test]
fn a_file_that_comes_into_the_folder_of_collect_meanwhile_is_not_replaced() {
    let Some(farm) = Farm::start() else { return };
    farm.videos(1);
    let submit = ["submit", "v0.mp4", "--track", "310,120,64,128", "--max-frames", "3"];
    let submit = [&submit[..], &["--results", "a.jsonl", "--report", "a.html", "--collect", "out"]].concat();
    let mut waiting = farm.begin(&submit, "submit.log");
    farm.until("it is submitted", |jobs| all_are(jobs, "queued"));
    fs::write(farm.path("out/a.html"), "mine\n").unwrap();
    let _worker = farm.worker("one", &[]);
    assert_eq!(waiting.code(), Some(1));
    let said = fs::read_to_string(farm.path("submit.log")).unwrap();
    assert!(said.contains("out/a.html exists already") && said.contains("with -y"), "{said}");
    assert_eq!(fs::read_to_string(farm.path("out/a.html")).unwrap(), "mine\n");
    assert!(!farm.path("out/a.jsonl").exists(), "results of one job come together");
    let refused = farm.output(&submit);
    let said = stderr(&refused);
    assert!(said.contains("-y (--overwrite)") && !said.contains("-n"), "{said}");
    farm.said(&[&submit[..], &["-y"]].concat());
    assert!(fs::read_to_string(farm.path("out/a.html")).unwrap().contains("</html>"));
    farm.said(&submit);
}

#[test]
fn who_waits_hears_of_an_outage_once_and_of_the_end_soon_after_the_server_is_back() {
    let Some(mut farm) = Farm::start() else { return };
    farm.videos(1);
    let submit = ["submit", "v0.mp4", "--track", "310,120,64,128", "--max-frames", "3"];
    let submit = [&submit[..], &["--results", "a.jsonl", "--wait"]].concat();
    let mut waiting = farm.begin(&submit, "submit.log");
    let log = farm.path("submit.log");
    let said = || fs::read_to_string(&log).unwrap();
    farm.until("it is submitted", |jobs| all_are(jobs, "queued"));
    farm.wait("it waits", || said().contains("no worker of lockon"));
    farm.kill_server();
    farm.wait("it says so", || said().contains("waiting for it"));
    std::thread::sleep(Duration::from_secs(3));
    farm.serve();
    let _worker = farm.worker("one", &[]);
    let is_done = |jobs: &[Value]| all_are(jobs, "done");
    farm.until("it is done", is_done);
    let done = Instant::now();
    assert_eq!(waiting.code(), Some(0), "{}", said());
    assert!(done.elapsed() < Duration::from_secs(4), "{:?}: {}", done.elapsed(), said());
    assert_eq!(said().matches("waiting for it").count(), 1, "{}", said());
    assert_eq!(said().matches("the farm's server is there again").count(), 1, "{}", said());
}

#[test]
fn who_waits_for_jobs_of_a_server_that_lost_its_disk_hears_that_they_are_gone() {
    let Some(mut farm) = Farm::start() else { return };
    farm.videos(1);
    let submit = ["submit", "v0.mp4", "--track", "310,120,64,128", "--results", "a.jsonl", "--wait"];
    let mut waiting = farm.begin(&submit, "submit.log");
    farm.until("it is submitted", |jobs| all_are(jobs, "queued"));
    farm.kill_server();
    fs::remove_dir_all(farm.path("store")).unwrap();
    farm.serve();
    assert_eq!(waiting.code(), Some(1));
    let said = fs::read_to_string(farm.path("submit.log")).unwrap();
    assert!(said.contains("the server lost its disk"), "{said}");
}

#[test]
fn a_number_that_is_empty_names_no_job() {
    let Some(farm) = Farm::start() else { return };
    farm.videos(1);
    farm.said(&["submit", "v0.mp4", "--track", "310,120,64,128", "--results", "a.jsonl"]);
    for command in ["cancel", "retry", "purge"] {
        for typed in ["", " "] {
            let refused = farm.output(&["jobs", command, typed]);
            assert_eq!(refused.status.code(), Some(2), "{command}: {}", stderr(&refused));
            assert!(stderr(&refused).contains("is empty"), "{command}: {}", stderr(&refused));
        }
    }
    assert!(all_are(&farm.jobs(), "queued"));
}

#[test]
fn a_template_that_was_changed_after_the_job_was_submitted_is_not_searched() {
    let Some(farm) = Farm::start() else { return };
    farm.videos(1);
    for (name, place) in [("a.png", "310,120,64,48"), ("b.png", "200,100,64,48")] {
        farm.said(&["pick", "v0.mp4", "--frame", "0", "--box", place, "-o", name]);
    }
    farm.said(&["submit", "v0.mp4", "--template", "a.png", "--results", "a.jsonl", "--tries", "1"]);
    fs::copy(farm.path("b.png"), farm.path("a.png")).unwrap();
    let _worker = farm.worker("one", &[]);
    let jobs = farm.until("it is given up", |jobs| all_are(jobs, "failed"));
    let error = jobs[0]["tries"][0]["error"].as_str().unwrap();
    assert!(error.contains("a.png") && error.contains("not what it was"), "{error}");
    assert!(!farm.path("a.jsonl").exists() && farm.leftovers().is_empty());
}

#[test]
fn jobs_of_another_version_wait_for_workers_of_that_version() {
    use lockon::farm::{Access, Farm as Asked, Job, Status, Terms};
    use lockon::request::Request;

    let Some(farm) = Farm::start() else { return };
    farm.videos(1);
    let asked = Asked::connect(&Access::new(&*farm.address)).unwrap();
    let mut request = Request::new(farm.path("v0.mp4")).unwrap();
    request.track.push("310,120,64,128".parse().unwrap());
    request.results.push(farm.path("old.jsonl").to_str().unwrap().into());
    let terms = Terms { collect: false, overwrite: false, tries: 3 };
    let mut job = Job::new("old", &request, &[], terms).unwrap();
    job.version = "0.0.9".into();
    asked.submit(&[job]).unwrap();
    let _worker = farm.worker("new", &[]);
    farm.said(&["submit", "v0.mp4", "--track", "310,120,64,128", "--results", "new.jsonl", "--wait"]);
    let records = asked.records().unwrap();
    let statuses: Vec<_> = records.readable.iter().map(|it| (it.job.version.as_str(), it.status)).collect();
    assert!(statuses.contains(&("0.0.9", Status::Queued)), "{statuses:?}");
    let told = String::from_utf8(farm.output(&["jobs"]).stdout).unwrap();
    assert!(told.contains("1 job waits, and no worker of lockon 0.0.9"), "{told}");
}
