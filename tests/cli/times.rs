//! Times and parts of videos as they are typed, frames that do not fit the options, and the speed of a
//! machine (`bench`).

use super::{FRAMES, Place, fails, frames, stderr, succeeds};
use serde_json::Value;

/// Numbers of the frames that a run has records of.
fn numbers(records: &[Value]) -> Vec<u64> {
    frames(records).iter().map(|record| record["frame"].as_u64().unwrap()).collect()
}

/// Lines of frames, without what depends on the clock.
fn lines(records: &[Value]) -> Vec<Value> {
    let clean = |record: &&Value| {
        let mut record = (*record).clone();
        record.as_object_mut().unwrap().retain(|key, _| !key.ends_with("_us"));
        record
    };
    frames(records).iter().map(clean).collect()
}

#[test]
fn a_part_of_a_video_has_the_records_of_the_whole() {
    let place = Place::new();
    let run = |part: &str| {
        succeeds(place.lockon(&format!(
            "run -y ball.mp4 --template ball.png --min-score 0.2 --results out.jsonl --no-progress {part}"
        )));
        place.records("out.jsonl")
    };
    let whole = lines(&run(""));
    // 25 frames a second.
    for (part, expected) in [
        ("--start 12", (12..FRAMES).collect::<Vec<_>>()),
        ("--start 0.5s --end 1s", (13..25).collect()),
        ("--start 500ms --end 0:01", (13..25).collect()),
        ("--end 4 --every 2", vec![0, 2]),
        ("--start 30 --every 4 --max-frames 2", vec![30, 34]),
    ] {
        let expected: Vec<_> = expected.into_iter().map(|index| whole[index].clone()).collect();
        assert_eq!(lines(&run(part)), expected, "{part}");
    }
}

#[test]
fn a_track_starts_at_a_time() {
    let place = Place::new();
    succeeds(place.lockon("run ball.mp4 --track 50,40,40,40@0.5s --results out.jsonl --no-progress"));
    let records = place.records("out.jsonl");
    let first = frames(&records).into_iter().find(|record| !record["tracks"].as_array().unwrap().is_empty());
    assert_eq!(first.unwrap()["frame"], 13);
    assert_eq!(records[0]["tracks"][0], "50,40,40,40@0.5s");
}

#[test]
fn a_part_that_is_written_begins_at_zero_and_keeps_its_speed() {
    let place = Place::new();
    for name in ["out.mp4", "out.mkv", "out.avi", "out.webm"] {
        succeeds(place.lockon(&format!(
            "run ball.mp4 --threshold mean:31:5 --start 0.4s --end 30 --every 4 -o {name} --no-progress"
        )));
        succeeds(
            place.lockon(&format!("run -y {name} --threshold mean:31:5 --results again.jsonl --no-progress")),
        );
        let again = place.records("again.jsonl");
        let times: Vec<_> = frames(&again).iter().map(|r| r["pts_ns"].as_u64().unwrap()).collect();
        // Frames 10, 14, 18, 22 and 26.
        assert_eq!(times.len(), 5, "{name}");
        for (index, time) in (0..).zip(&times) {
            assert!(time.abs_diff(index * 160_000_000) < 2_000_000, "{name}: {times:?}");
        }
    }
}

#[test]
fn moments_that_mean_nothing_are_refused() {
    let place = Place::new();
    for (words, says) in [
        ("--start 12.5", "expected a frame's number or a time, such as 120, 12.5s"),
        ("--end 1:70", "such as 120, 12.5s, 500ms, 1:02.5 or 1:02:03.5"),
        ("--every 0", "--every"),
        ("--start 9 --end 9", "--end 9 is not after --start 9: no frame lies between them"),
        ("--start 2s --end 1s", "--end 1s is not after --start 2s"),
        ("--end 0", "--end 0 is not after --start 0"),
        ("--track 1,2,30,40@3 --start 5", "--track 1,2,30,40@3 starts before --start 5"),
        ("--track 1,2,30,40@1s --end 900ms", "--track 1,2,30,40@1s starts after the last of --end 0.9s"),
        ("--track 1,2,30,40@9 --end 9", "starts after the last of --end 9"),
        ("--track 1,2,30,40@9 --start 2 --every 3 --max-frames 3", "starts after the last of --max-frames 3"),
        ("--track 1,2,30,40@1.5", "expected a frame's number or a time"),
    ] {
        let out = place
            .lockon(&format!("run ball.mp4 --threshold mean:31:5 {words} --results out.jsonl --no-progress"));
        fails(&out, 2, says);
        assert!(!place.path("out.jsonl").exists(), "{words}");
    }
    let source = "videotestsrc is-live=true ! appsink name=frames";
    let out = place.lockon_args(&["run", "--source", source, "--threshold", "mean:31:5", "--start", "1s"]);
    fails(&out, 2, "--start is for files");
}

#[test]
fn a_box_from_before_the_start_is_refused_where_one_is_a_frame_and_one_a_time() {
    let place = Place::new();
    let run = |words: &str| {
        place.lockon(&format!("run -y ball.mp4 {words} --results out.jsonl -o out.mkv --no-progress"))
    };
    // Frames are 40 ms apart: the first that is not before 0.5 s is the 13th, at 0.52 s.
    for (words, says) in [
        (
            "--track 50,40,40,40@12 --start 0.5s",
            "--track 50,40,40,40@12 starts before --start 0.5s, which is frame 13 at 0.52s: give an earlier --start",
        ),
        (
            "--track 50,40,40,40@0.48s --start 13",
            "--track 50,40,40,40@0.48s starts before --start 13, which is frame 13 at 0.52s: give an earlier --start",
        ),
    ] {
        fails(&run(words), 2, says);
        assert!(!place.path("out.jsonl").exists(), "{words}");
    }
    for words in [
        "--track 50,40,40,40@13 --start 0.5s",
        "--track 50,40,40,40@0.49s --start 13",
        "--track 50,40,40,40 --start 0.5s",
        "--track 50,40,40,40@20 --start 0.5s",
    ] {
        succeeds(run(words));
    }
}

#[test]
fn a_part_without_frames_says_where_the_video_ends() {
    let place = Place::new();
    let run = |part: &str| {
        place.lockon(&format!(
            "run -y ball.mp4 --threshold mean:31:5 --results out.jsonl --no-progress {part}"
        ))
    };
    fails(&run("--start 5s"), 1, "ball.mp4: --start 5s is after its last frame, 39 at 1.56s");
    fails(&run("--start 40"), 1, "ball.mp4: --start 40 is after its last frame, 39 at 1.56s");
    fails(&run("--start 1.501s --end 1.51s"), 1, "no frame lies between --start 1.501s and --end 1.51s");
}

#[test]
fn a_live_source_ends_at_its_time() {
    let place = Place::new();
    let source = "videotestsrc is-live=true ! video/x-raw,format=GRAY8,width=64,height=48,framerate=30/1 ! appsink name=frames";
    let args =
        ["run", "--source", source, "--threshold", "mean:31:5", "--results", "out.jsonl", "--no-progress"];
    let out = place.lockon_args(&[&args[..], &["--end", "1s", "--every", "5"]].concat());
    let out = succeeds(out);
    let numbers = numbers(&place.records("out.jsonl"));
    assert!((2..=7).contains(&numbers.len()), "{numbers:?} {}", stderr(&out));
    assert!(numbers.windows(2).all(|pair| pair[1] - pair[0] >= 5), "{numbers:?}");
}

/// Text for a source of several parts, each of as many frames: what is shown, how large.
fn in_turn(parts: &[(&str, usize, usize)]) -> String {
    let part = |&(shows, width, height): &(&str, usize, usize)| {
        format!(
            "videotestsrc num-buffers={FRAMES} {shows} ! \
             video/x-raw,format=I420,width={width},height={height},framerate=25/1 ! all. "
        )
    };
    format!("concat name=all ! appsink name=frames {}", parts.iter().map(part).collect::<String>())
}

const BALL: &str = "pattern=ball motion=sweep";

#[test]
fn frames_that_become_too_small_are_searched_for_what_fits() {
    let place = Place::new();
    let source = in_turn(&[(BALL, 160, 120), (BALL, 48, 40), (BALL, 160, 120)]);
    let run = |words: &str| {
        let mut args =
            vec!["run", "-y", "--source", source.as_str(), "--results", "out.jsonl", "--no-progress"];
        args.extend(words.split_whitespace());
        let said = stderr(&succeeds(place.lockon_args(&args)));
        (place.records("out.jsonl"), said)
    };
    let found = |records: &[Value]| -> Vec<(u64, bool)> {
        let has_match = |record: &&Value| !record["matches"].as_array().unwrap().is_empty();
        let frames = frames(records);
        frames.iter().map(|r| (r["frame"].as_u64().unwrap(), has_match(r))).collect()
    };

    // The template is 48x48: larger than the frames in the middle.
    let (records, said) = run("--template ball.png --min-score 0.5 --track 50,40,40,40");
    let found_there = found(&records);
    assert_eq!(found_there.len(), 3 * FRAMES);
    assert!(found_there[0].1 && found_there[2 * FRAMES].1, "{found_there:?}");
    assert!(found_there[FRAMES..2 * FRAMES].iter().all(|(_, is_found)| !is_found));
    assert_eq!(said.matches("no template is searched for while frames are 48x40").count(), 1, "{said}");

    // A part of the region is left, and then nothing of it.
    let (records, said) = run("--template ball.png --min-score -1 --roi 20,10,100,100 --scales 0.25..1/2");
    assert!(found(&records).iter().all(|(_, is_found)| *is_found), "{said}");
    assert_eq!(said.matches("what is left of it is searched, 20,10,28,30").count(), 1, "{said}");
    let (records, said) = run("--template ball.png --min-score -1 --roi 60,50,80,60");
    let is_found: Vec<_> = found(&records).iter().map(|(_, is_found)| *is_found).collect();
    assert!(
        is_found[..FRAMES].iter().all(|found| *found) && is_found[2 * FRAMES..].iter().all(|found| *found)
    );
    assert!(is_found[FRAMES..2 * FRAMES].iter().all(|found| !found), "{said}");
}

#[test]
fn a_black_first_frame_makes_a_track_wait() {
    let place = Place { dir: tempfile::tempdir().unwrap() };
    let run = |parts: &[(&str, usize, usize)]| {
        let source = in_turn(parts);
        let args =
            ["run", "-y", "--source", source.as_str(), "--track", "50,40,40,40", "--results", "out.jsonl"];
        stderr(&succeeds(place.lockon_args(&[&args[..], &["--no-progress"]].concat())))
    };
    let said = run(&[("pattern=black", 160, 120), (BALL, 160, 120)]);
    let records = place.records("out.jsonl");
    let first = frames(&records).into_iter().find(|record| !record["tracks"].as_array().unwrap().is_empty());
    assert_eq!(first.unwrap()["frame"], FRAMES);
    assert!(said.contains("track 1 waits: its box 50,40,40,40 is flat in frame 0"), "{said}");
    assert!(said.contains("track 1 starts in frame 40: its box was flat from frame 0 on"), "{said}");
    // If it never has anything, the run says so at its end.
    let said = run(&[("pattern=black", 160, 120)]);
    assert!(said.contains("track 1 never started: its box 50,40,40,40 was flat from frame 0 on"), "{said}");
}

#[test]
fn a_box_without_structure_is_followed_with_a_warning_that_names_it() {
    let place = Place { dir: tempfile::tempdir().unwrap() };
    let source = "videotestsrc num-buffers=3 pattern=gradient ! video/x-raw,format=GRAY8,width=160,height=120 ! appsink name=frames";
    let run = |rect: &str| {
        let args =
            ["run", "--source", source, "--track", rect, "--results", "out.jsonl", "-y", "--no-progress"];
        stderr(&succeeds(place.lockon_args(&args)))
    };
    let said = run("50,40,40,4");
    assert_eq!(said.matches("track 1: its box 50,40,40,4 is nearly flat in frame 0").count(), 1, "{said}");
    assert!(!run("50,40,40,40").contains("nearly flat"));
}

#[test]
fn bench_ends_with_what_the_machine_does_in_a_second() {
    let place = Place { dir: tempfile::tempdir().unwrap() };
    let out = succeeds(place.lockon("bench --backend cpu --threads 2"));
    let said = String::from_utf8(out.stdout).unwrap();
    let numbers = said.split_whitespace().filter(|word| word.parse::<f64>().is_ok_and(|rate| rate > 0.0));
    assert!(numbers.count() >= 3, "{said}");
    assert!(said.starts_with("This machine does ") && said.lines().count() == 1, "{said}");
    for size in ["frames a second of 640x360", "of 1080p", "of 4K"] {
        assert!(said.contains(size), "{said}");
    }
    fails(&place.lockon("bench --backend cuda --threads 2"), 2, "--threads is for the CPU backend");
}
