//! The summary that a run prints at its end, and the facts that its records keep.

use super::*;

/// Returns the last line that begins with this text.
fn line<'a>(said: &'a str, start: &str) -> &'a str {
    said.lines().rfind(|line| line.starts_with(start)).unwrap_or_else(|| panic!("no {start:?} in {said}"))
}

#[test]
fn a_run_says_what_was_found_and_where_it_is() {
    let place = Place::new();
    let out = succeeds(place.lockon(
        "run ball.mp4 --template ball=ball.png --template none=ball.png --min-score 0.9 --track 50,40,40,40@3 \
         --threshold mean:31:5 -o out.mp4 --results out.jsonl --no-progress --backend cpu",
    ));
    let said = stderr(&out);
    let records = place.records("out.jsonl");
    let frames = frames(&records);
    let with_match = |name: &str| {
        let has = |r: &&&Value| r["matches"].as_array().unwrap().iter().any(|m| m["template"] == name);
        frames.iter().filter(has).count()
    };
    assert!(with_match("ball") > 0);
    let ball = line(&said, "ball: ");
    assert!(
        ball.starts_with(&format!("ball: found in {} of 40 frames, score", with_match("ball"))),
        "{ball}"
    );
    assert!(ball.contains("first in frame 0 (0.00 s)"), "{ball}");
    assert!(line(&said, "#1: ").contains("of 37 frames from frame 3 (0.12 s) on"), "{said}");
    assert!(line(&said, "foreground: ").contains("on average"), "{said}");
    let bytes = std::fs::metadata(place.path("out.mp4")).unwrap().len();
    let written = line(&said, "written: ");
    assert!(written.contains("out.mp4 (") && written.contains("out.jsonl ("), "{written} {bytes}");
    assert!(!said.contains("nothing was saved") && !said.contains("mean ms"), "{said}");

    // The records hold these facts too, for programs.
    let summary = records.last().unwrap();
    let found = &summary["found"][0];
    assert_eq!((&found["template"], &found["frames"]), (&"ball".into(), &with_match("ball").into()));
    let scores = frames.iter().flat_map(|r| r["matches"].as_array().unwrap());
    let scores = scores.filter(|m| m["template"] == "ball").map(|m| m["score"].as_f64().unwrap());
    let (worst, best) = scores.fold((2.0_f64, -2.0_f64), |(a, b), score| (a.min(score), b.max(score)));
    assert_eq!((found["worst"].as_f64(), found["best"].as_f64()), (Some(worst), Some(best)));
    let track = &summary["tracks"][0];
    assert_eq!(
        (&track["id"], &track["frames"], &track["first"]["frame"]),
        (&1.into(), &37.into(), &3.into())
    );
    let states = ["tracked", "uncertain", "reacquired", "lost"].map(|state| {
        let count = frames.iter().filter(|r| r["tracks"][0]["state"] == state).count();
        assert_eq!(track[state], count, "{state}");
        count
    });
    assert_eq!(states.iter().sum::<usize>(), 37);
    let shares = frames.iter().map(|r| r["threshold"]["foreground"].as_f64().unwrap());
    assert_eq!(summary["foreground"]["most"].as_f64().unwrap(), shares.fold(0.0, f64::max));
}

#[test]
fn what_is_never_found_and_what_nobody_sees_are_told_with_the_remedy() {
    let place = Place::new();
    let out = succeeds(
        place.lockon("run ball.mp4 -t ball.png --min-score 1 --max-frames 5 --roi 0,0,60,60 --no-progress"),
    );
    let said = stderr(&out);
    assert!(
        said.contains("ball: no match in 5 frames: no score reached 1 (lower it with --min-score)"),
        "{said}"
    );
    assert!(said.contains("nothing was saved: -o FILE.mp4"), "{said}");
    let out =
        succeeds(place.lockon("run ball.mp4 --threshold mean:31:5 --max-frames 5 --results - --no-progress"));
    assert!(!stderr(&out).contains("nothing was saved"), "{}", stderr(&out));
}

#[test]
fn where_the_time_went_is_told_to_those_who_ask_and_nothing_to_those_who_want_quiet() {
    let place = Place::new();
    let run =
        |words: &str| stderr(&succeeds(place.lockon(&format!("run ball.mp4 --threshold mean:31:5 {words}"))));
    let said = run("-v");
    assert!(said.contains("latency p50") && said.contains("searching and thresholding"), "{said}");
    assert_eq!(run("-q"), "");
    // Otherwise that is a warning.
    assert_eq!(run("-q --track 1,1,20,20@100"), "");
}

#[test]
fn errors_are_told_to_those_who_want_quiet() {
    let place = Place::new();
    let out = place.lockon("-q run nowhere.mp4 --threshold mean:31:5");
    assert_eq!(stderr(&out), "error: cannot read nowhere.mp4: No such file or directory (os error 2)\n");
    fails(&place.lockon("run ball.mp4 --threshold mean:31:5 -q -v"), 2, "cannot be used with");
}

#[test]
fn log_lines_are_objects_where_that_is_asked_for() {
    let place = Place::new();
    let out = succeeds(place.lockon(
        "run ball.mp4 --threshold mean:31:5 --track 1,1,9,9@100 --results out.csv --log-format json -vv",
    ));
    let said = stderr(&out);
    let lines: Vec<Value> = said.lines().map(|line| serde_json::from_str(line).expect(line)).collect();
    let has = |level: &str, text: &str| {
        let says = |line: &Value| line["level"] == level && line["message"].as_str().unwrap().contains(text);
        lines.iter().any(says)
    };
    assert!(has("WARN", "track 1 never started"), "{said}");
    assert!(has("INFO", "40 frames in ") && has("INFO", "written: out.csv ("), "{said}");
    assert!(lines.iter().all(|line| line["timestamp"].is_string() && line["target"].is_string()), "{said}");
    let out = place.lockon("run nowhere.mp4 --threshold mean:31:5 --log-format json");
    assert_eq!(out.status.code(), Some(1));
    let line: Value = serde_json::from_str(&stderr(&out)).unwrap();
    assert_eq!(
        (&line["level"], line["message"].as_str().unwrap().contains("nowhere.mp4")),
        (&"ERROR".into(), true)
    );
}

#[test]
fn wrong_usage_is_an_object_where_that_is_asked_for() {
    let place = Place::new();
    for (words, says) in [
        ("--log-format json run ball.mp4 --wobble", "unexpected argument '--wobble'"),
        ("run ball.mp4 --log-format=json --threshold mean:30:5", "block 30 is not an odd number"),
        ("ball.mp4 --log-format json", "lockon run ball.mp4"),
    ] {
        let out = place.lockon(words);
        assert_eq!(out.status.code(), Some(2), "{words}");
        let line: Value = serde_json::from_str(&stderr(&out)).expect(words);
        let message = line["message"].as_str().unwrap();
        assert!(line["level"] == "ERROR" && message.contains(says), "{words}: {line}");
        assert!(!message.starts_with("error") && out.stdout.is_empty(), "{line}");
    }
    // A help text that was requested is no error. An argument behind `--` is no option.
    let help = succeeds(place.lockon("--log-format json --help"));
    assert!(help.stderr.is_empty() && !help.stdout.is_empty());
    fails(&place.lockon("run --wobble -- --log-format=json"), 2, "error: unexpected argument");
}

#[test]
fn the_run_record_and_the_report_have_the_command_and_what_decides_results() {
    let place = Place::new();
    // A path that looks like the address of a camera, with a secret.
    std::fs::create_dir(place.path("x:")).unwrap();
    succeeds(place.lockon(
        "run ball.mp4 --template ball.png --min-score 0.5 --max-matches 2 --max-overlap 0.25 --angles -5..5 \
         --scales 0.9..1.1/1.1 --roi 0,0,150,110 --max-frames 3 --threads 2 --results out.jsonl --results x://me:hidden@y.csv --report out.html --no-progress",
    ));
    let run = &place.records("out.jsonl")[0];
    let settings = &run["settings"];
    assert_eq!(
        (&settings["min_score"], &settings["max_matches"], &settings["max_overlap"], &settings["roi"]),
        (&0.5.into(), &2.into(), &0.25.into(), &"0,0,150,110".into())
    );
    assert_eq!(settings["angles"], serde_json::json!([-5.0, 0.0, 5.0]));
    assert_eq!(settings["scales"].as_array().unwrap().len(), 3);
    let command = &run["command"];
    let line: Vec<_> = command["line"].as_array().unwrap().iter().map(|w| w.as_str().unwrap()).collect();
    assert_eq!(line[1..3], ["run", "ball.mp4"]);
    assert!(line.contains(&"x://***@y.csv"), "{line:?}");
    assert_eq!(
        (
            &command["view"],
            &command["decoders"],
            &command["live"],
            &command["max_frames"],
            &command["threads"]
        ),
        (&"overlay".into(), &"software".into(), &false.into(), &3.into(), &2.into())
    );
    let page = place.read("out.html");
    for text in [
        "--max-overlap 0.25",
        "<th>least score</th><td>0.5</td>",
        "3 from -5.0000\u{b0} to 5.0000\u{b0}",
        "0,0,150,110",
    ] {
        assert!(page.contains(text), "{text}");
    }
    assert!(!page.contains("hidden@") && !page.contains("me:hidden"), "a secret");
}

#[test]
fn the_parts_of_a_video_that_changes_are_all_told() {
    let place = Place::new();
    let parts = "videotestsrc num-buffers=5 ! video/x-raw,format=I420,width=160,height=120,framerate=25/1 ! c. \
                 videotestsrc num-buffers=5 ! video/x-raw,format=I420,width=96,height=64,framerate=25/1 ! c.";
    let source = format!("concat name=c ! appsink name=frames {parts}");
    let args = ["run", "--source", &source, "--threshold", "mean:31:5", "-o", "out.mp4", "--no-progress"];
    let said = stderr(&succeeds(place.lockon_args(&args)));
    let written = line(&said, "written: ");
    assert!(written.contains("out.mp4 (") && written.contains(", out-2.mp4 ("), "{written}");
}

/// Runs `lockon` with a standard output whose reader is gone.
fn unread(place: &Place, words: &str) -> Output {
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let mut limited = Command::new("timeout");
    limited.arg("120").arg(program()).args(words.split_whitespace()).current_dir(place.dir.path());
    limited.stdin(Stdio::null()).stdout(writer).stderr(Stdio::piped());
    limited.spawn().unwrap().wait_with_output().unwrap()
}

#[test]
fn a_closed_pipe_ends_every_command_with_one_exit_code_and_no_message() {
    let place = Place::new();
    for words in [
        "--help",
        "--version",
        "run --help",
        "info ball.mp4",
        "info ball.mp4 --json",
        "doctor",
        "completions bash",
        "man run",
        "match ball.png ball.png",
        "pick ball.mp4 --box 3,5,17,19",
        "bench --backend cpu",
        "run ball.mp4 --threshold mean:31:5 --print-job",
        "run ball.mp4 --threshold mean:31:5 --print-pipeline",
        "-q run ball.mp4 --threshold mean:31:5 --results -",
        "-q run ball.mp4 --track 50,40,40,40@3 --events -",
        "-q run ball.mp4 --threshold mean:31:5 --results - --jobs 1",
        "-q run ball.mp4 --threshold mean:31:5 -o -",
        "-q run ball.mp4 --threshold mean:31:5 -o - --jobs 1",
        "threshold ball.png --method mean:31:5 -o -",
        "match ball.png ball.png -o -",
    ] {
        let out = unread(&place, words);
        let said = stderr(&out);
        assert_eq!(out.status.code(), Some(141), "{words}: {said}");
        for never in ["error", "roken pipe", "closed by", "panicked"] {
            assert!(!said.contains(never), "{words}: {said}");
        }
    }
}

#[test]
fn other_outputs_are_complete_after_a_closed_pipe_and_their_errors_count_more() {
    let place = Place::new();
    let words = "run ball.mp4 --threshold mean:31:5 --no-progress --results -";
    let out = unread(&place, &format!("{words} --results all.jsonl"));
    let said = stderr(&out);
    assert_eq!(out.status.code(), Some(141), "{said}");
    assert!(!said.contains("WARN") && !said.contains("error"), "{said}");
    assert_eq!(frames(&place.records("all.jsonl")).len(), FRAMES);
    std::os::unix::fs::symlink("/dev/full", place.path("full.jsonl")).unwrap();
    let out = unread(&place, &format!("{words} -y --results full.jsonl"));
    fails(&out, 1, "output full.jsonl: No space left on device");
    let out = unread(&place, "match ball.png ball.png -o drawn.png");
    assert_eq!((out.status.code(), place.path("drawn.png").exists()), (Some(141), true), "{}", stderr(&out));
}

#[test]
fn sound_that_is_lost_or_moved_on_its_way_is_reported() {
    let place = Place { dir: tempfile::tempdir().unwrap() };
    let make = |file: &str, sound: &str| {
        place.gst(&format!(
            "videotestsrc num-buffers=50 ! video/x-raw,format=I420,width=64,height=48,framerate=25/1 ! x264enc ! queue ! \
             matroskamux name=mux ! filesink location={file} audiotestsrc num-buffers=50 samplesperbuffer=960 {sound} ! queue ! mux."
        ));
    };
    make("many.mkv", "! audio/x-raw,format=S16LE,rate=48000,channels=16,channel-mask=(bitmask)0");
    make("late.mkv", "timestamp-offset=1000000000 ! audio/x-raw,format=S16LE,rate=48000,channels=2");
    let said = |words: &str| {
        stderr(&succeeds(place.lockon(&format!("run {words} --threshold mean:31:5 --no-progress -y"))))
    };
    for output in ["a.mp4", "a.webm"] {
        let said = said(&format!("many.mkv -o {output}"));
        // Since GStreamer 1.26 Opus can have as many channels.
        let info = place.lockon(&format!("info {output}"));
        let is_carried =
            gst::version() >= (1, 26, 0, 0) && String::from_utf8_lossy(&info.stdout).contains("16 channels");
        assert!(is_carried || said.contains("the sound of many.mkv is left out: "), "{output}: {said}");
    }
    let moved = said("late.mkv -o a.avi");
    assert!(
        moved.contains("the sound of late.mkv begins 1.00 s after its picture, and at once in an .avi"),
        "{moved}"
    );
    let kept = said("late.mkv -o a.mkv");
    assert!(!kept.contains("the sound of"), "{kept}");
}
