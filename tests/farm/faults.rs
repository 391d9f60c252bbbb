//! What breaks: workers, the server, storage, jobs themselves.

use super::*;

fn submit_slow(farm: &Farm, words: &[&str]) {
    farm.said(&[&["submit"], &SLOW[..], &["--results", "slow.jsonl"], words].concat());
}

#[test]
fn a_job_whose_worker_was_killed_is_done_by_another() {
    let Some(farm) = Farm::start() else { return };
    submit_slow(&farm, &[]);
    let first = farm.worker("first", &[]);
    farm.until("it runs", |jobs| all_are(jobs, "running"));
    first.kill();
    let _second = farm.worker("second", &[]);
    let jobs = farm.until("it is done", |jobs| all_are(jobs, "done"));
    assert_eq!(jobs[0]["worker"], "second");
    assert!(jobs[0]["tries"][0]["error"].as_str().unwrap().contains("was gone in the middle"), "{jobs:?}");
    assert_eq!(timeless(&farm.path("slow.jsonl")), alone(&farm, &SLOW, "alone.jsonl"));
    assert!(farm.leftovers().is_empty(), "what the first one left is removed");
}

#[test]
fn a_job_that_kills_its_workers_is_given_up_and_says_so() {
    let Some(farm) = Farm::start() else { return };
    submit_slow(&farm, &["--tries", "2"]);
    for name in ["first", "second"] {
        let worker = farm.worker(name, &[]);
        farm.until("it runs", |jobs| jobs[0]["worker"] == name && all_are(jobs, "running"));
        worker.kill();
    }
    let _third = farm.worker("third", &[]);
    let jobs = farm.until("it is given up", |jobs| all_are(jobs, "failed"));
    let tries: Vec<_> = jobs[0]["tries"].as_array().unwrap().iter().map(|tried| &tried["worker"]).collect();
    assert_eq!(tries, ["first", "second"]);
    assert!(!farm.path("slow.jsonl").exists() && farm.log().contains("given up"), "{}", farm.log());
}

#[test]
fn a_server_that_is_killed_in_the_middle_of_a_job_is_waited_for() {
    let Some(mut farm) = Farm::start() else { return };
    let _worker = farm.worker("one", &[]);
    let words = [&["submit"], &SLOW[..], &["--results", "slow.jsonl", "--wait"]].concat();
    let waiting = farm.command(&words).stderr(Stdio::piped()).spawn().unwrap();
    farm.until("it runs", |jobs| all_are(jobs, "running"));
    farm.kill_server();
    // The run ends meanwhile, and its results have their name.
    let deadline = Instant::now() + LONG;
    while !farm.path("slow.jsonl").exists() {
        assert!(Instant::now() < deadline, "{}", farm.log());
        std::thread::sleep(Duration::from_millis(20));
    }
    while !farm.log().contains("waiting for it") {
        assert!(Instant::now() < deadline, "{}", farm.log());
        std::thread::sleep(Duration::from_millis(20));
    }
    farm.serve();
    let jobs = farm.until("it is done", |jobs| all_are(jobs, "done"));
    assert!(jobs[0].get("tries").is_none(), "nobody did it twice: {jobs:?}");
    let waited = waiting.wait_with_output().unwrap();
    assert!(waited.status.success(), "{}", stderr(&waited));
    assert!(farm.log().contains("the farm's server is there again"), "{}", farm.log());
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
    let deadline = Instant::now() + LONG;
    while !farm.log().contains("waiting for it") {
        assert!(Instant::now() < deadline, "{}", farm.log());
        std::thread::sleep(Duration::from_millis(20));
    }
    farm.serve();
    farm.said(&[&submit[..], &["--wait"]].concat());
}

#[test]
fn a_server_that_wants_a_password_gets_it_from_a_file_and_says_so_without_one() {
    let Some(mut farm) = Farm::away(&["--user", "me", "--pass", "s3cret"]) else { return };
    farm.serve();
    for words in [&["jobs"][..], &["workers"], &["worker"]] {
        let output = farm.output(words);
        assert_eq!(output.status.code(), Some(1));
        assert!(stderr(&output).contains("--farm-credentials"), "{words:?}: {}", stderr(&output));
    }
    let wrong = farm.output(&["jobs", "--farm", &format!("nats://me:wr0ng@127.0.0.1:{}", farm.port)]);
    assert!(
        stderr(&wrong).contains("--farm-credentials") && !stderr(&wrong).contains("wr0ng"),
        "{}",
        stderr(&wrong)
    );
    fs::write(farm.path("login"), "me:s3cret\n").unwrap();
    farm.said(&["jobs", "--farm-credentials", "login"]);
    let without = farm.command(&["jobs"]).env_remove("LOCKON_FARM").output().unwrap();
    assert_eq!(without.status.code(), Some(2));
    assert!(stderr(&without).contains("give --farm nats://HOST"), "{}", stderr(&without));
}

#[test]
fn what_one_worker_has_no_storage_for_another_one_does() {
    let Some(farm) = Farm::start() else { return };
    farm.videos(1);
    fs::create_dir(farm.path("elsewhere")).unwrap();
    let submit = ["submit", "v0.mp4", "--track", "310,120,64,128", "--results", "{stem}.jsonl"];
    farm.said(&submit);
    let _poor = farm.worker("poor", &["--root", farm.path("elsewhere").to_str().unwrap()]);
    let jobs = farm.until("it has failed there", |jobs| jobs[0]["tries"][0]["worker"] == "poor");
    let error = jobs[0]["tries"][0]["error"].as_str().unwrap();
    assert!(error.contains("v0.mp4") && error.contains("outside of what this worker serves"), "{error}");
    let _rich = farm.worker("rich", &["--root", farm.dir.path().to_str().unwrap()]);
    let jobs = farm.until("it has ended", |jobs| !["queued", "running"].contains(&status(&jobs[0])));
    // It may have been given up before the second one was there, if that took long.
    let tries = jobs[0]["tries"].as_array().unwrap().len();
    assert!(status(&jobs[0]) == "done" && jobs[0]["worker"] == "rich" || tries == 3, "{jobs:?}");
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
    let asked = Asked::connect(&Access::new(format!("nats://127.0.0.1:{}", farm.port))).unwrap();
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
    let statuses: Vec<_> = records.iter().map(|it| (it.job.version.as_str(), it.status)).collect();
    assert!(statuses.contains(&("0.0.9", Status::Queued)), "{statuses:?}");
    let told = String::from_utf8(farm.output(&["jobs"]).stdout).unwrap();
    assert!(told.contains("1 jobs wait, and no worker of lockon 0.0.9"), "{told}");
}
