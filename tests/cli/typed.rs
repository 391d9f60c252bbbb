//! The command line: parsing, and help with typing.

use super::*;

#[test]
fn directions_and_sizes_have_usual_steps() {
    let place = Place::new();
    let members = |words: &str| {
        succeeds(place.lockon(&format!(
            "run ball.mp4 -t ball.png {words} --max-frames 1 --results out.jsonl -y --no-progress"
        )));
        place.records("out.jsonl")[0]["templates"][0]["members"].as_u64().unwrap()
    };
    assert_eq!(members("--angles 45"), 1);
    assert_eq!(members("--angles -30..30"), 13);
    assert_eq!(members("--scales 0.5"), 1);
    assert_eq!(members("--scales 0.9..1.1"), 4, "1.05 to the powers -2, -1, 0 and 1");
}

#[test]
fn a_bad_value_is_said_once() {
    let place = Place::new();
    for (words, value, says) in [
        ("--angles 30..", "30..", "expected FROM..TO, FROM..TO/STEP or one ANGLE"),
        ("--scales big", "big", "expected FROM..TO, FROM..TO/FACTOR or one SCALE"),
        ("--threshold mean:30:5", "mean:30:5", "block 30 is not an odd number"),
        ("--backend gpu", "gpu", "expected auto, cpu, cuda, cuda:N, cuda:N,N or cuda:all"),
        ("--view masked", "masked", "expected overlay, mask or split"),
        ("--roi 1,2,3", "1,2,3", "expected X,Y,W,H"),
        ("--track 1,2,3,4@x", "1,2,3,4@x", "expected a frame's number or a time"),
    ] {
        let out = place.lockon(&format!("run ball.mp4 {words}"));
        fails(&out, 2, says);
        assert_eq!(stderr(&out).matches(&format!("{value}'")).count(), 1, "{}", stderr(&out));
        assert!(!stderr(&out).contains(&format!("{value:?}")), "{}", stderr(&out));
    }
}

#[test]
fn a_forgotten_run_is_suggested() {
    let place = Place::new();
    for input in ["ball.mp4", "rtsp://cam/1", "camera", "missing.mkv"] {
        let out = place.lockon(&format!("{input} --track 1,2,3,4"));
        fails(&out, 2, &format!("lockon run {input} --track 1,2,3,4"));
    }
    let out = place.lockon("rnu ball.mp4");
    fails(&out, 2, "unrecognized subcommand");
    assert!(!stderr(&out).contains("lockon run rnu"), "{}", stderr(&out));
}

#[test]
fn ends_that_are_missing_are_put_to_pipelines_of_ones_own() {
    let place = Place::new();
    let run = |source: &str, sink: &str| {
        let args =
            ["run", "--source", source, "--threshold", "mean:31:5", "--max-frames", "3", "--sink", sink];
        place.lockon_args(&[&args[..], &["--results", "-", "--no-progress"]].concat())
    };
    for source in [
        "videotestsrc",
        "videotestsrc ! video/x-raw,width=64,height=48",
        "videotestsrc !",
        "videotestsrc ! tee name=t  t. ! queue ! fakesink  t. ! queue",
        "videotestsrc ! appsink name=frames",
    ] {
        for sink in ["fakesink", "videoconvert ! fakesink", "! fakesink", "appsrc name=results ! fakesink"] {
            let out = succeeds(run(source, sink));
            let text = String::from_utf8(out.stdout).unwrap();
            assert_eq!(text.matches("{\"type\":\"frame\"").count(), 3, "{source} {sink}");
        }
    }
    // A pipeline text with a sink or source of its own is not changed.
    fails(&run("videotestsrc ! fakesink", "fakesink"), 2, "appsink name=frames");
    fails(&run("videotestsrc ! appsink name=mine", "fakesink"), 2, "appsink");
    fails(&run("videotestsrc", "videotestsrc ! fakesink"), 2, "appsrc name=results");
}

/// Returns the completions that bash offers for the last of these words.
fn offered(place: &Place, words: &[&str]) -> Vec<String> {
    let script = format!(
        "source <({} completions bash); COMP_WORDS=(lockon {}); COMP_CWORD={}; \
         _lockon_with_files lockon \"${{COMP_WORDS[-1]}}\" \"${{COMP_WORDS[-2]}}\" 2>/dev/null; printf '%s\\n' \"${{COMPREPLY[@]}}\"",
        program().display(),
        words.iter().map(|word| format!("'{word}'")).collect::<Vec<_>>().join(" "),
        words.len()
    );
    let out = Command::new("bash").args(["-c", &script]).current_dir(place.dir.path()).output().unwrap();
    let text = String::from_utf8(out.stdout).unwrap();
    text.lines().filter(|line| !line.is_empty()).map(str::to_owned).collect()
}

#[test]
fn bash_offers_what_can_be_typed() {
    let place = Place::new();
    for (words, expected) in [
        (&["run", "ball.mp4", "--backend", ""][..], &["auto", "cpu", "cuda"][..]),
        (&["run", "ball.mp4", "--view", "m"], &["mask"]),
        (&["run", "ball.mp4", "--decoder", "h"], &["hardware"]),
        (&["run", "ball.mp4", "--on-device-loss", ""], &["cpu", "end", "gpu"]),
        (&["run", "ball.mp4", "--kernel", "box-t"], &["box-tile"]),
        (&["run", "ball.mp4", "--search", "p"], &["pyramid"]),
        (&["run", "--log-format", ""], &["json", "text"]),
        (&["run", "ca"], &["camera"]),
        (&["pick", "ca"], &["camera"]),
        (&["info", "ca"], &["camera"]),
        (&["run", "ball.m"], &["ball.mp4"]),
        (&["run", "--template", "ball.p"], &["ball.png"]),
        (&["match", "ball.p"], &["ball.png"]),
        (&["-q", "run", "ca"], &["camera"]),
        (&["-v", "--log-format", "json", "run", "ball.m"], &["ball.mp4"]),
        (&["-q", "r"], &["run"]),
        (&["man", "r"], &["run"]),
        (&["man", "events", ""], &["forget"]),
        (&["man", "run", ""], &[]),
    ] {
        let mut found = offered(&place, words);
        found.sort();
        assert_eq!(found, expected, "{words:?}");
    }
    // A GPU of some number is none of these, and is understood.
    fails(&place.lockon("run ball.mp4 --threshold mean:31:5 --backend cuda:77"), 1, "cuda");
}

#[test]
fn man_pages_are_rendered_without_a_warning() {
    let place = Place { dir: tempfile::tempdir().unwrap() };
    succeeds(place.lockon("man --dir pages"));
    let mut pages = 0;
    for entry in std::fs::read_dir(place.path("pages/man1")).unwrap() {
        let path = entry.unwrap().path();
        let mut groff = Command::new("groff");
        let rendered = groff.args(["-man", "-Tutf8", "-ww"]).arg(&path).output();
        let out = rendered.expect("groff is installed (groff-base)");
        assert!(out.status.success() && out.stderr.is_empty(), "{}: {}", path.display(), stderr(&out));
        pages += 1;
    }
    assert!(pages >= 9, "{pages}");
    let run = String::from_utf8(succeeds(place.lockon("man run")).stdout).unwrap();
    assert_eq!(run, place.read("pages/man1/lockon-run.1"));
    let forget = String::from_utf8(succeeds(place.lockon("man events forget")).stdout).unwrap();
    assert!(forget.contains(".TH lockon-events-forget 1"), "{forget}");
    fails(&place.lockon("man walk"), 2, "there is no command \"walk\"");
}

#[test]
fn numbers_that_are_far_too_large_are_refused_with_their_range() {
    let place = Place { dir: tempfile::tempdir().unwrap() };
    for (option, range) in [
        ("--threads 100000", "not between 1 and 1024"),
        ("--depth 1000000", "not between 1 and 32"),
        ("--max-frames 99999999999999999999", "more than 18446744073709551615"),
    ] {
        fails(&place.lockon(&format!("run a.mp4 -t a.png {option}")), 2, range);
    }
}

#[test]
fn an_error_in_a_long_line_has_its_place_and_not_the_line() {
    let place = Place { dir: tempfile::tempdir().unwrap() };
    let long = "x".repeat(100_000);
    std::fs::write(place.path("a.toml"), format!("input = \"a.mp4\"\ntemplate = [\"{long}\"] wobble\n"))
        .unwrap();
    std::fs::write(place.path("b.toml"), format!("input = \"a.mp4\"\n{long} = 1\n")).unwrap();
    std::fs::write(place.path("c.json"), format!("{{\"input\":\"a.mp4\",\"{long}\":1}}")).unwrap();
    std::fs::write(place.path("list"), format!("{{\"input\":\"a.mp4\",\"min-score\":\"{long}\"}}\n"))
        .unwrap();
    for (words, says) in [
        ("run @a.toml", "line 2, column 100017"),
        ("run @b.toml", "a job has no key"),
        ("run @c.json", "a job has no key"),
        ("run --inputs list -t a.png", "list: line 1"),
    ] {
        let out = place.lockon(words);
        fails(&out, 2, says);
        assert!(stderr(&out).len() < 1000, "{words}: {} bytes", stderr(&out).len());
    }
}
