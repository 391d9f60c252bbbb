//! Records that cannot be read, and servers that refuse: nothing stops the others, and nothing is asked again
//! for ever.

use super::*;

/// The version in subjects.
fn version() -> String {
    env!("CARGO_PKG_VERSION").replace('.', "_")
}

impl Farm {
    /// A farm whose server is configured so.
    fn configured(text: &str) -> Option<Self> {
        let mut farm = Self::away(&[])?;
        let path = farm.path("nats.conf");
        fs::write(&path, text).unwrap();
        farm.words = vec!["-c".into(), path.to_str().unwrap().into()];
        farm.serve();
        Some(farm)
    }

    fn failed(&self, words: &[&str]) -> String {
        let output = self.output(words);
        assert_eq!(output.status.code(), Some(1), "{words:?}: {}", stderr(&output));
        stderr(&output)
    }
}

#[test]
fn a_record_that_cannot_be_read_is_named_and_skipped_until_it_is_purged() {
    let Some(farm) = Farm::start() else { return };
    farm.said(&["jobs"]);
    let [damaged, newer] = ["00000000000000aa", "00000000000000ab"];
    farm.tell_server(&format!("lockon.main.state.{damaged}"), "{not json");
    farm.tell_server(&format!("lockon.main.state.{newer}"), &format!("{{\"job\":{{\"id\":\"{newer}\"}}}}"));
    farm.tell_server("lockon.main.workers.deadbeef", "{garbage");
    let table = |words: &[&str]| String::from_utf8(farm.output(words).stdout).unwrap();
    for id in [damaged, newer] {
        let said = table(&["jobs"]);
        assert!(said.contains(id) && said.contains("cannot be read"), "{said}");
    }
    assert!(farm.said(&["jobs", "--json"]).contains(damaged));
    assert!(farm.said(&["workers"]).contains("deadbeef cannot be read"));
    for command in ["cancel", "retry", "purge"] {
        farm.said(&["jobs", command, "--all"]);
    }
    let _worker = farm.worker("w", &[]);
    let video = farm.videos(1);
    let words = ["submit", "--wait", "--threshold", "mean:31:5", "--max-frames", "3", "--results", "a.jsonl"];
    farm.said(&[&words[..], &[&video[0]]].concat());
    let refused = farm.output(&["jobs", "retry", damaged]);
    assert!(!refused.status.success() && stderr(&refused).contains("jobs purge"), "{}", stderr(&refused));
    for id in [damaged, newer] {
        assert!(farm.said(&["jobs", "purge", id]).contains("1 job removed"));
    }
    assert!(!table(&["jobs"]).contains("cannot be read"));
    assert_eq!(farm.jobs().len(), 1);
}

#[test]
fn a_record_with_other_files_or_too_many_frames_is_an_error_and_no_panic() {
    let Some(farm) = Farm::start() else { return };
    farm.videos(2);
    let _worker = farm.worker("one", &[]);
    let words = ["submit", "v0.mp4", "v1.mp4", "--threshold", "mean:31:5", "--max-frames", "2", "--results"];
    let words = [&words[..], &["{stem}.jsonl", "--collect", "out"]].concat();
    farm.said(&words);
    let change = |key: &str, value: Value| {
        for mut record in farm.jobs() {
            record[key] = value.clone();
            let id = record["job"]["id"].as_str().unwrap();
            farm.tell_server(&format!("lockon.main.state.{id}"), &record.to_string());
        }
    };
    change("frames", u64::MAX.into());
    farm.said(&words);
    fs::remove_dir_all(farm.path("out")).unwrap();
    change("files", serde_json::json!(["/etc/v9.jsonl"]));
    let said = farm.failed(&words);
    assert!(said.contains("v0.jsonl") && said.contains("2 of 2 jobs failed"), "{said}");
    assert_eq!(fs::read_dir(farm.path("out")).unwrap().count(), 0);
}

/// Each of its segments was looked for: a worker did nothing else any more, and `jobs purge` of any job took
/// more and more memory.
#[test]
fn a_record_with_more_segments_than_a_video_has_is_named_and_skipped_until_it_is_purged() {
    let Some(farm) = Farm::start() else { return };
    let video = farm.videos(1);
    let words = ["submit", &video[0], "--threshold", "mean:31:5", "--max-frames", "3", "--results"];
    farm.said(&[&words[..], &["a.jsonl"]].concat());
    let [huge, queued] = ["00000000000000b1", "00000000000000c1"];
    let mut record = farm.jobs().remove(0);
    for (id, segments, has_ended) in [(huge, 1_u64 << 60, false), (queued, 1 << 40, true)] {
        record["job"]["id"] = id.into();
        let message = record["job"].to_string();
        record["job"]["segments"] = segments.into();
        record["status"] = if has_ended { "done" } else { "queued" }.into();
        farm.tell_server(&format!("lockon.main.state.{id}"), &record.to_string());
        if has_ended {
            let message = message.replace(&format!(",\"segments\":{}", 1_u64 << 60), "");
            farm.tell_server(&format!("lockon.main.queue.file.{}.{id}", version()), &message);
        }
    }
    let table = || String::from_utf8(farm.output(&["jobs"]).stdout).unwrap();
    assert!(table().contains(&format!("{huge} cannot be read")), "{}", table());
    let _worker = farm.worker("w", &[]);
    farm.said(&[&words[..], &["b.jsonl", "--wait"]].concat());
    for command in ["cancel", "retry", "purge"] {
        let refused = farm.output(&["jobs", command, "--all"]);
        assert!(refused.status.success(), "{command}: {}", stderr(&refused));
    }
    assert!(farm.output(&["jobs", "retry", huge]).status.code() == Some(2), "it does not panic");
    assert!(farm.said(&["jobs", "purge", huge]).contains("1 job removed"));
    assert!(!table().contains(huge), "{}", table());
}

#[test]
fn what_strangers_store_reaches_no_screen_as_it_is() {
    let Some(farm) = Farm::start() else { return };
    farm.said(&["jobs"]);
    let escape = "\\u001b]0;title\\u0007\\u001b[31m";
    let request = "{\"input\":\"/x/a.mp4\",\"results\":[\"/x/a.jsonl\"]}";
    let record = |id: &str, status: &str| {
        format!(
            "{{\"job\":{{\"id\":\"{id}\",\"name\":\"x{escape}\",\"version\":\"0\",\"digest\":\"x\",\"request\":{request},\"tries\":3}},\
             \"status\":\"{status}\",\"tries\":[{{\"worker\":\"{escape}\",\"error\":\"{escape}\"}}]}}"
        )
    };
    let [failed, unknown] = ["00000000000000d1", "00000000000000d2"];
    farm.tell_server(&format!("lockon.main.state.{failed}"), &record(failed, "failed"));
    farm.tell_server(&format!("lockon.main.state.{unknown}"), &record(unknown, escape));
    farm.tell_server("lockon.main.state.\u{1b}[31m", &record("\\u001b[31m", "failed"));
    let worker = format!(
        "{{\"name\":\"w\",\"instance\":\"zz\",\"version\":\"V{escape}\",\"jobs\":{max},\"cameras\":{max},\"done\":1,\"failed\":1,\
         \"draining\":false,\"running\":[]}}",
        max = u64::MAX
    );
    farm.tell_server("lockon.main.workers.zz", &worker);
    for words in [&["jobs"][..], &["workers"], &["jobs", "purge", "--all"]] {
        let output = farm.output(words);
        let shown = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
        assert!(!shown.contains(['\u{1b}', '\u{7}']), "{words:?}: {shown:?}");
        assert!(words.len() > 1 || shown.contains("\\u{1b}"), "{words:?}: {shown:?}");
    }
}

#[test]
fn a_full_server_is_emptied_by_cancel_and_purge_and_says_so() {
    let text = "jetstream { max_file_store: 65536, max_memory_store: 1048576 }\n";
    let Some(farm) = Farm::configured(text) else { return };
    let videos = farm.videos(100);
    let words = ["submit", "--threshold", "mean:31:5", "--results", "{stem}.jsonl"];
    let submit = [&words[..], &videos.iter().map(String::as_str).collect::<Vec<_>>()].concat();
    let said = farm.failed(&submit);
    assert!(said.contains("jobs purge --all") && said.contains("max_file_store"), "{said}");
    let jobs = farm.jobs().len();
    assert!(jobs > 10, "{jobs}");
    assert!(farm.said(&["jobs", "cancel", "--all"]).contains(&format!("{jobs} jobs cancelled")));
    assert!(farm.jobs().iter().all(|job| status(job) == "cancelled"));
    farm.said(&["jobs", "purge", "--all"]);
    assert!(farm.jobs().is_empty());
    farm.said(&[&words[..], &[&videos[0]]].concat());
}

#[test]
fn a_worker_whose_job_fails_with_an_error_larger_than_the_server_takes_goes_on() {
    let Some(farm) = Farm::configured("max_payload: 2500\n") else { return };
    let video = farm.videos(1);
    let _worker = farm.worker("w", &[]);
    // The folder is missing, and the error names it.
    let folder = farm.path(&"x".repeat(200)).join("y".repeat(200)).join("z".repeat(200));
    let results = folder.join("a.jsonl").to_str().unwrap().to_owned();
    let words = ["--threshold", "mean:31:5", "--max-frames", "3", "--results"];
    let lost = [&["submit", &video[0]], &words[..], &[&results, "--tries", "6", "--wait"]].concat();
    assert!(farm.failed(&lost).contains("mkdir -p"));
    farm.said(&[&["submit", &video[0]], &words[..], &["a.jsonl", "--wait"]].concat());
}

#[test]
fn retry_queues_jobs_whose_submit_broke_off_when_the_server_was_full() {
    let text = "jetstream { max_file_store: 65536, max_memory_store: 1048576 }\n";
    let Some(farm) = Farm::configured(text) else { return };
    let videos = farm.videos(100);
    let words = ["submit", "--threshold", "mean:31:5", "--max-frames", "2", "--results", "{stem}.jsonl"];
    farm.failed(&[&words[..], &videos.iter().map(String::as_str).collect::<Vec<_>>()].concat());
    let ids: Vec<_> = farm.jobs().iter().map(|job| job["job"]["id"].as_str().unwrap().to_owned()).collect();
    let (kept, removed) = ids.split_at(3);
    let removed: Vec<_> = removed.iter().map(String::as_str).collect();
    farm.said(&[&["jobs", "cancel"], &removed[..]].concat());
    // Some were removed at once, where there was no room to mark them as cancelled.
    farm.said(&["jobs", "purge", "--all"]);
    let _worker = farm.worker("w", &[]);
    farm.said(&["jobs", "retry", "--all"]);
    let jobs = farm.until("all are done", |jobs| all_are(jobs, "done"));
    assert_eq!(jobs.len(), kept.len());
    assert!(farm.said(&["jobs", "retry", "--all"]).contains("0 jobs queued again"));
}

/// Every worker that got it ended, since it could not say that it has it.
#[test]
fn a_job_that_the_server_has_no_room_for_once_it_runs_is_not_submitted() {
    let Some(farm) = Farm::start() else { return };
    let submit = ["submit", "v0.mp4", "--threshold", "mean:31:5", "--results", "a.jsonl"];
    farm.videos(1);
    farm.said(&submit);
    // Names of folders for tests are of one length.
    let size = farm.jobs()[0].to_string().len();
    let farm = Farm::configured(&format!("max_payload: {}\n", size + 200)).unwrap();
    farm.videos(1);
    let said = farm.failed(&submit);
    assert!(said.contains("raise max_payload") && said.contains("v0.mp4 needs"), "{said}");
    assert!(farm.jobs().is_empty());
}

#[test]
fn a_job_whose_record_or_message_cannot_be_read_is_given_up_and_the_others_are_done() {
    let Some(farm) = Farm::start() else { return };
    let videos = farm.videos(3);
    let words = ["submit", "--threshold", "mean:31:5", "--max-frames", "3", "--results", "{stem}.jsonl"];
    let submitted = farm.output(&[&words[..], &[&videos[0], &videos[1], &videos[2]]].concat());
    let ids: Vec<_> = String::from_utf8(submitted.stdout).unwrap().lines().map(str::to_owned).collect();
    // One was damaged, and a later version wrote the other one, which has more states.
    farm.tell_server(&format!("lockon.main.state.{}", ids[0]), "{not json");
    let mut later = farm.jobs().into_iter().find(|job| job["job"]["id"] == ids[1].as_str()).unwrap();
    later["status"] = "archived".into();
    farm.tell_server(&format!("lockon.main.state.{}", ids[1]), &later.to_string());
    // A message that is no job.
    farm.tell_server(&format!("lockon.main.queue.file.{}.00000000000000ac", version()), "[]");
    let worker = farm.worker("w", &[]);
    let jobs = farm.until("all have ended", |jobs| {
        jobs.len() == 3 && jobs.iter().all(|job| ["done", "failed"].contains(&status(job)))
    });
    for job in &jobs {
        let is_third = job["job"]["id"] == ids[2].as_str();
        assert_eq!(status(job), if is_third { "done" } else { "failed" }, "{job}");
        if !is_third {
            let said = job["tries"][0]["error"].as_str().unwrap();
            assert!(said.contains("record of it cannot be read by lockon"), "{said}");
        }
    }
    farm.wait("it is thrown away", || farm.log().contains("00000000000000ac: the farm's queue has a job"));
    assert!(!farm.log().contains("there again"), "{}", farm.log());
    drop(worker);
    assert!(farm.said(&["jobs", "purge", "--all"]).contains("3 jobs removed"));
}

#[test]
fn a_server_that_takes_small_messages_alone_says_so_at_once() {
    let Some(farm) = Farm::configured("max_payload: 300\n") else { return };
    let video = farm.videos(1);
    let said = farm.failed(&["submit", &video[0], "--threshold", "mean:31:5", "--results", "a.jsonl"]);
    assert!(said.contains("max_payload") && said.contains("300"), "{said}");
}

#[test]
fn results_come_back_in_pieces_that_the_server_takes() {
    let Some(farm) = Farm::configured("max_payload: 3000\n") else { return };
    let video = farm.videos(1);
    let _worker = farm.worker("w", &[]);
    let words =
        ["submit", &video[0], "--threshold", "mean:31:5", "--max-frames", "40", "--results", "a.jsonl"];
    farm.said(&[&words[..], &["--collect", "out"]].concat());
    let there = farm.path("out/a.jsonl");
    assert!(there.metadata().unwrap().len() > 6000, "several pieces");
    let alone = ["run", &video[0], "--threshold", "mean:31:5", "--max-frames", "40", "--results", "b.jsonl"];
    farm.said(&alone);
    assert_eq!(timeless(&there).len(), timeless(&farm.path("b.jsonl")).len());
    assert_eq!(timeless(&there)[1..], timeless(&farm.path("b.jsonl"))[1..]);
}

#[test]
fn a_server_that_refuses_what_a_user_writes_is_quoted_and_not_asked_for_ever() {
    let text = "authorization: { users: [{ user: u, password: p, permissions: { publish: { deny: [\"lockon.main.state.>\"] } } }] }\n";
    let Some(mut farm) = Farm::configured(text) else { return };
    farm.address = farm.address.replace("nats://", "nats://u:p@");
    let video = farm.videos(1);
    let said = farm.failed(&["submit", &video[0], "--threshold", "mean:31:5", "--results", "a.jsonl"]);
    assert!(said.to_lowercase().contains("permissions violation"), "{said}");
}

#[test]
fn a_file_that_is_not_there_is_not_submitted_and_who_waits_alone_hears_of_it() {
    let Some(farm) = Farm::start() else { return };
    let words = ["--threshold", "mean:31:5", "--results", "a.jsonl"];
    let said = farm.failed(&[&["submit", "nofile.mp4"], &words[..]].concat());
    assert!(said.contains("nofile.mp4") && said.contains("file://"), "{said}");
    assert!(farm.jobs().is_empty());
    let video = farm.videos(1);
    let waits = farm.begin(&[&["submit", "--wait", &video[0]], &words[..]].concat(), "waits.log");
    let log = || fs::read_to_string(farm.path("waits.log")).unwrap_or_default();
    farm.wait("it says that nobody is there", || log().contains("no worker of lockon"));
    let _worker = farm.worker("w", &[]);
    let mut waits = waits;
    assert_eq!(waits.code(), Some(0), "{}", log());
}
