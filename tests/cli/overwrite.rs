//! Files that exist are overwritten only with `-y` or after a yes.

use super::*;

/// Commands that write a file, and the name of one for each.
const WRITERS: [(&str, &str); 5] = [
    ("run ball.mp4 --threshold mean:31:5 --max-frames 2 --no-progress -o", "there.mp4"),
    ("run ball.mp4 --threshold mean:31:5 --max-frames 2 --no-progress --results", "there.jsonl"),
    ("run ball.mp4 --threshold mean:31:5 --max-frames 2 --no-progress --report", "there.html"),
    ("match ball.png ball.png -o", "there.png"),
    ("threshold ball.png --method mean:31:5 -o", "there.png"),
];

#[test]
fn a_script_overwrites_nothing_unless_it_says_so() {
    let place = Place::new();
    for (command, name) in WRITERS {
        std::fs::write(place.path(name), "kept").unwrap();
        let out = place.lockon(&format!("{command} {name}"));
        // 1 is no error there, as in grep.
        let code = if command.starts_with("match") { 2 } else { 1 };
        fails(&out, code, &format!("{name} exists already: give -y (--overwrite)"));
        assert!(stderr(&out).contains("-n (--no-overwrite)"), "{}", stderr(&out));
        assert!(out.stdout.is_empty(), "{command}: the work was done all the same");
        fails(&place.lockon(&format!("{command} {name} -n")), code, "-n (--no-overwrite) keeps what exists");
        assert_eq!(place.read(name), "kept", "{command}");
        succeeds(place.lockon(&format!("{command} {name} -y")));
        assert_ne!(std::fs::read(place.path(name)).unwrap(), b"kept", "{command}");
        fails(&place.lockon(&format!("{command} {name} -y -n")), 2, "cannot be used with");
    }
}

#[test]
#[cfg(unix)]
fn two_runs_of_one_output_at_the_same_time_do_not_mix() {
    let place = Place::new();
    let run = |frames: u32, outputs: &[&str]| {
        let source = format!(
            "videotestsrc is-live=true num-buffers={frames} ! \
             video/x-raw,format=GRAY8,width=160,height=120,framerate=25/1 ! appsink name=frames"
        );
        let mut run = Command::new("timeout");
        run.arg("120").arg(program()).args([
            "run",
            "--source",
            &source,
            "--lossless",
            "--threshold",
            "mean:31:5",
            "--no-progress",
        ]);
        run.args(outputs).current_dir(place.dir.path()).stdin(Stdio::null()).stderr(Stdio::piped());
        run
    };
    // Long enough for three programs to start beside it.
    let first =
        run(300, &["-o", "two.mp4", "--results", "two.jsonl", "--report", "two.html"]).spawn().unwrap();
    let is_begun = || place.path("two.jsonl").metadata().is_ok_and(|about| about.len() > 0);
    let start = std::time::Instant::now();
    while !is_begun() {
        assert!(start.elapsed() < std::time::Duration::from_mins(1), "the first run does not begin");
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    for outputs in
        [["-y", "-o", "two.mp4"], ["-y", "--results", "./two.jsonl"], ["-y", "--report", "two.html"]]
    {
        fails(
            &run(5, &outputs).output().unwrap(),
            1,
            "another process writes it: give each run its own name",
        );
    }
    let first = succeeds(first.wait_with_output().unwrap());
    assert!(stderr(&first).contains("300 frames"), "{}", stderr(&first));
    assert_eq!(place.play("two.mp4"), 300);
    assert_eq!(frames(&place.records("two.jsonl")).len(), 300);
    assert!(place.read("two.html").contains("</html>"));
    // Its end frees the names.
    succeeds(run(5, &["-y", "--results", "two.jsonl"]).output().unwrap());
}

#[test]
fn all_outputs_are_asked_about_before_the_first_is_opened() {
    let place = Place::new();
    std::fs::write(place.path("last.html"), "kept").unwrap();
    std::fs::write(place.path("also.csv"), "kept").unwrap();
    let out = place.lockon(
        "run ball.mp4 --threshold mean:31:5 -o first.mp4 --results second.jsonl --results also.csv --report last.html",
    );
    fails(&out, 1, "also.csv, last.html exist already");
    for name in ["first.mp4", "second.jsonl"] {
        assert!(!place.path(name).exists(), "{name}");
    }
    // A missing video is reported first: a question would be in vain.
    fails(&place.lockon("run no.mp4 --threshold mean:31:5 --results also.csv"), 1, "cannot read no.mp4");
}

#[test]
#[cfg(unix)]
fn devices_pipes_and_standard_output_are_not_asked_about() {
    let place = Place::new();
    assert!(Command::new("mkfifo").arg(place.path("pipe.csv")).status().unwrap().success());
    std::os::unix::fs::symlink("/dev/null", place.path("null.html")).unwrap();
    std::os::unix::fs::symlink("/dev/stdout", place.path("out.jsonl")).unwrap();
    let mut reader = Command::new("cat").arg(place.path("pipe.csv")).stdout(Stdio::piped()).spawn().unwrap();
    let run = "run ball.mp4 --track 50,40,40,40 --max-frames 2 --no-progress";
    let out = succeeds(
        place.lockon(&format!("{run} --results out.jsonl --results pipe.csv --report null.html -n")),
    );
    assert_eq!(String::from_utf8(out.stdout).unwrap().lines().count(), 4);
    let mut piped = String::new();
    std::io::Read::read_to_string(&mut reader.stdout.take().unwrap(), &mut piped).unwrap();
    assert_eq!(piped.lines().count(), 1 + 2);
    assert!(reader.wait().unwrap().success());
}

/// Under `script` standard input and error are a terminal.
#[test]
#[cfg(target_os = "linux")]
fn a_terminal_is_asked_and_no_answer_is_no() {
    let place = Place::new();
    let command = format!(
        "{} run ball.mp4 --threshold mean:31:5 --max-frames 2 --results there.jsonl --no-progress",
        program().display()
    );
    for (answer, code) in [("n\n", 1), ("\n", 1), ("yesterday\n", 1), ("y\n", 0), ("YES\n", 0)] {
        std::fs::write(place.path("there.jsonl"), "kept").unwrap();
        let mut child = Command::new("timeout")
            .args(["--foreground", "60", "script", "-qec", &command, "/dev/null"])
            .current_dir(place.dir.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        std::io::Write::write_all(child.stdin.as_mut().unwrap(), answer.as_bytes()).unwrap();
        let out = child.wait_with_output().unwrap();
        let said = String::from_utf8_lossy(&out.stdout);
        assert!(said.contains("there.jsonl exists (4 bytes). Overwrite? [y/N]"), "{said}");
        assert_eq!(out.status.code(), Some(code), "{answer:?}: {said}");
        assert_eq!(place.read("there.jsonl") == "kept", code == 1, "{answer:?}: {said}");
        assert_eq!(said.contains("there.jsonl exists and was not overwritten"), code == 1, "{said}");
    }
}
