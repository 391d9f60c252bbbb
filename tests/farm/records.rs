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
