//! Long runs: results that continue after a crash, files by size, names with a date, a service.

use std::collections::BTreeSet;
use std::process::Command;

use serde_json::Value;

use super::{Place, await_frames, fails, frames, live, succeeds};
use crate::util::{program, root};

impl Place {
    fn names(&self) -> BTreeSet<String> {
        let entries = self.dir.path().read_dir().unwrap();
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
    }
}

fn types(records: &[Value]) -> Vec<&str> {
    let mut types: Vec<_> = records.iter().map(|record| record["type"].as_str().unwrap()).collect();
    types.dedup();
    types
}

#[test]
#[cfg(unix)]
fn a_killed_run_goes_on_in_its_files_without_a_lost_or_broken_line() {
    let place = Place::new();
    let words = "--results out.jsonl --results out.csv --append";
    let mut child = live(&place, words);
    await_frames(&place, 60);
    child.kill().unwrap();
    child.wait().unwrap();
    // As if it had been killed while it wrote.
    let mut before = place.read("out.jsonl");
    before.truncate(before.len() - 9);
    std::fs::write(place.path("out.jsonl"), &before).unwrap();
    let rows = place.read("out.csv");
    std::fs::write(place.path("out.csv"), &rows[..rows.len() - 3]).unwrap();
    let count = before.lines().count();
    let child = live(&place, words);
    await_frames(&place, count + 40);
    let pid = child.id().to_string();
    assert!(Command::new("kill").args(["-INT", &pid]).status().unwrap().success());
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130), "{}", super::stderr(&output));
    let (whole, torn) = before.rsplit_once('\n').unwrap();
    assert!(place.read("out.jsonl").starts_with(&format!("{whole}\n")), "all that was whole is there");
    let records = place.records("out.jsonl");
    assert_eq!(types(&records), ["run", "frame", "torn", "run", "frame", "summary"]);
    assert_eq!(records[count - 1]["text"], torn);
    let csv = place.read("out.csv");
    assert!(csv.starts_with(rows.trim_end().rsplit_once('\n').unwrap().0));
    assert_eq!(csv.matches("name_or_id").count(), 1);
    let columns = |line: &str| line.matches(',').count();
    assert!(csv.lines().all(|line| columns(line) == columns(csv.lines().next().unwrap())));
}

#[test]
fn files_that_are_full_are_followed_by_others_and_nothing_is_overwritten() {
    let place = Place::new();
    let words = "run ball.mp4 --template ball.png --backend cpu --no-progress --results a.jsonl --rotate 4K";
    succeeds(place.lockon(words));
    let files = |place: &Place| -> Vec<String> {
        let mut files: Vec<_> = place.names().into_iter().filter(|name| name.starts_with("a.")).collect();
        // The first has no number.
        files.sort_by_key(|name| (name.len(), name.clone()));
        files
    };
    let first = files(&place);
    assert!(first.len() > 2 && first[..2] == ["a.jsonl", "a.0002.jsonl"], "{first:?}");
    let records: Vec<_> = first.iter().map(|name| place.records(name)).collect();
    assert!(records.iter().all(|records| records[0]["type"] == "run"), "each can be read alone");
    let all = records.concat();
    let numbers: Vec<_> = frames(&all).iter().map(|frame| frame["frame"].as_u64().unwrap()).collect();
    assert_eq!(numbers, (0..40).collect::<Vec<_>>());
    assert_eq!(all.iter().filter(|record| record["type"] == "summary").count(), 1);
    let before: Vec<_> = first.iter().map(|name| place.read(name)).collect();
    succeeds(place.lockon(words));
    assert_eq!(first.iter().map(|name| place.read(name)).collect::<Vec<_>>(), before);
    assert_eq!(files(&place).len(), 2 * first.len());
    std::fs::write(place.path("a.0099.jsonl"), "mine\n").unwrap();
    succeeds(place.lockon(&format!("{words} --keep 2")));
    assert_eq!(files(&place).len(), 3, "{:?}", files(&place));
    assert_eq!(place.read("a.0099.jsonl"), "mine\n");
}

#[test]
fn names_with_a_date_are_those_of_the_start_and_job_files_keep_the_word() {
    let place = Place::new();
    let words = "run ball.mp4 --template ball.png --backend cpu --no-progress --results a-{date}.jsonl";
    succeeds(place.lockon(words));
    let name = place.names().into_iter().find(|name| name.starts_with("a-20")).unwrap();
    assert_eq!(name.len(), "a-2026-11-26.jsonl".len());
    fails(&place.lockon(words), 1, "exists already");
    let runs = |place: &Place| place.records(&name).iter().filter(|record| record["type"] == "run").count();
    assert_eq!(runs(&place), 1);
    succeeds(place.lockon(&format!("{words} --append")));
    assert_eq!(runs(&place), 2);
    let job = succeeds(place.lockon(&format!("{words} --append --rotate day --keep 3 --print-job")));
    let job = String::from_utf8(job.stdout).unwrap();
    for line in ["\"a-{date}.jsonl\"", "append = true", "rotate = \"day\"", "keep = 3"] {
        assert!(job.contains(line), "{line} is not in {job}");
    }
}

#[test]
fn what_cannot_go_on_is_wrong_usage() {
    let place = Place::new();
    for (words, says) in [
        ("--results a.coco.json --append", "a.coco.json is written as a whole"),
        ("--results a.mot.txt --rotate day", "a.mot.txt is written as a whole"),
        ("--results a.jsonl --keep 3", "--keep needs --rotate"),
        ("--append", "--append needs --results"),
        ("--results a.jsonl --rotate 5", "4K or more"),
        ("--results {date}/a.jsonl --rotate day", "not in that of a folder"),
        ("--results {date}/a.csv --append", "not in that of a folder"),
        ("--results a-{time}.jsonl --rotate hour --keep 3", "use a-{date}T{time}.jsonl"),
        ("--results a-{time}.csv --append", "use a-{date}T{time}.csv"),
    ] {
        fails(&place.lockon(&format!("run ball.mp4 --template ball.png {words}")), 2, says);
    }
    std::fs::write(place.path("a.jsonl"), "{\"mine\":1}\n").unwrap();
    let said = place.lockon("run ball.mp4 --template ball.png --no-progress --results a.jsonl --append");
    fails(&said, 1, "does not begin with");
    assert_eq!(place.read("a.jsonl"), "{\"mine\":1}\n");
}

/// The files of `packaging/systemd` with that extension.
fn of_systemd(extension: &str) -> Vec<std::path::PathBuf> {
    let entries = std::fs::read_dir(root().join("packaging/systemd")).unwrap();
    let mut paths: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
    paths.retain(|path| path.extension().is_some_and(|it| it == extension));
    paths
}

#[test]
fn the_example_of_a_service_is_a_job_that_a_restart_continues() {
    let place = Place::new();
    std::fs::write(place.path("login"), "me:secret\n").unwrap();
    let job = std::fs::read_to_string(root().join("examples/service/yard.toml")).unwrap();
    let here = place.path("login").to_str().unwrap().to_owned();
    let job = job.replace("/run/credentials/lockon@yard.service/login", &here);
    std::fs::write(place.path("yard.toml"), job.replace("/etc/lockon/van.png", "ball.png")).unwrap();
    let said = place.lockon("run @yard.toml --no-progress --print-job");
    let read = String::from_utf8(said.stdout.clone()).unwrap();
    succeeds(said);
    for line in ["reconnect = true", "append = true", "serve = \"127.0.0.1:8081\""] {
        assert!(read.contains(line), "{line} is not in {read}");
    }
}

#[test]
#[cfg(unix)]
fn services_are_valid_for_systemd_are_hardened_and_start_commands_that_lockon_has() {
    let place = Place::new();
    let services = of_systemd("service");
    assert_eq!(services.len(), 3, "{services:?}");
    // A service that was stopped has not failed.
    let limits = std::fs::read_to_string(root().join("packaging/systemd/hardening.conf")).unwrap();
    assert!(limits.contains("\nSuccessExitStatus=129 130 143\n"), "{limits}");
    let folder = place.path("system");
    let program = std::path::Path::new(&program()).to_str().unwrap().to_owned();
    for path in &services {
        let name = path.file_name().unwrap().to_str().unwrap();
        let unit = std::fs::read_to_string(path).unwrap();
        let command = unit.lines().find_map(|line| line.strip_prefix("ExecStart=/usr/bin/lockon ")).unwrap();
        let mut words = command.split(' ');
        let help = place.lockon(&format!("{} --help", words.next().unwrap()));
        let known = String::from_utf8(help.stdout.clone()).unwrap();
        succeeds(help);
        for option in words.filter(|word| word.starts_with("--")) {
            assert!(known.contains(option), "{name}: {option}");
        }
        // As the package lays them: one drop-in for the template, one for the others, by their common prefix.
        let prefix = if name.contains('@') { name } else { "lockon-.service" };
        let drop_in = folder.join(format!("{prefix}.d"));
        std::fs::create_dir_all(&drop_in).unwrap();
        for conf in of_systemd("conf") {
            std::fs::copy(&conf, drop_in.join(conf.file_name().unwrap())).unwrap();
        }
        std::fs::write(folder.join(name), unit.replace("/usr/bin/lockon", &program)).unwrap();
    }
    let analyze = |words: &[&str]| {
        let mut command = Command::new("systemd-analyze");
        command.args(words).env("SYSTEMD_UNIT_PATH", format!("{}:", folder.display()));
        command.output()
    };
    if !analyze(&["--version"]).is_ok_and(|it| it.status.success()) {
        return crate::test_log::skipped("systemd-analyze is not here");
    }
    for unit in ["lockon@yard.service", "lockon-worker.service", "lockon-serve.service"] {
        let verified = analyze(&["verify", "--man=no", unit]).unwrap();
        let said = super::stderr(&verified);
        assert!(!said.contains("lockon"), "{unit}: {said}");
        let rated = analyze(&["security", "--offline=true", "--threshold=40", "--no-pager", unit]).unwrap();
        let said = String::from_utf8(rated.stdout).unwrap();
        assert!(rated.status.success() && said.contains("Overall exposure level"), "{unit}: {said}");
    }
}
