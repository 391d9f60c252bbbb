//! Searches that take long: they can be stopped, and take as much memory as they may.

use super::*;
use std::io::Read;
use std::process::Child;

/// What a run may take to end when it is asked to. The claim is 0.2 s, on a machine that does nothing else.
const PATIENCE: Duration = Duration::from_secs(10);

/// A picture of noise in large blocks, which is still something when it is halved.
fn blocks(size: Size, side: usize) -> Plane {
    let small = noise(5, Size::new(size.width.div_ceil(side), size.height.div_ceil(side)));
    let pixel = |i: usize| small.data()[i / size.width / side * small.size().width + i % size.width / side];
    Plane::from_vec((0..size.area()).map(pixel).collect(), size)
}

/// An empty folder but for `thing.png`, a picture of `side` x `side` pixels.
fn place_with_thing(side: usize) -> Place {
    let place = Place { dir: tempfile::tempdir().unwrap() };
    let thing = blocks(Size::new(side, side), 7);
    lockon::still::save(&place.path("thing.png"), thing.as_ref()).unwrap();
    place
}

fn signal(child: &Child, name: &str) {
    let sent = Command::new("kill").args([&format!("-{name}"), &child.id().to_string()]).status();
    assert!(sent.unwrap().success());
}

/// Waits for the end, and tells the exit code and how long it took from now.
fn end_of(mut child: Child) -> (Option<i32>, Duration, String) {
    let asked = Instant::now();
    let status = loop {
        if let Some(status) = child.try_wait().unwrap() {
            break status;
        }
        if asked.elapsed() > 3 * PATIENCE {
            child.kill().unwrap();
            panic!("it hangs");
        }
        std::thread::sleep(Duration::from_millis(5));
    };
    let (took, mut said) = (asked.elapsed(), String::new());
    child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
    (status.code(), took, said)
}

#[test]
fn signals_are_heard_while_a_frame_is_searched() {
    for (name, code, search) in [("INT", 130, "exhaustive"), ("TERM", 143, "pyramid")] {
        let place = place_with_thing(100);
        let source = "videotestsrc pattern=snow ! video/x-raw,format=GRAY8,width=1920,height=1080 ! appsink name=frames";
        let child = Command::new(program())
            .args([
                "run",
                "--source",
                source,
                "-t",
                "thing.png",
                "--angles=-180..180/1",
                "--scales=0.5..2/1.05",
            ])
            .args(["--search", search, "--backend", "cpu", "--min-score", "0.1"])
            .args(["--results", "out.jsonl", "-o", "out.mkv", "--no-progress"])
            .current_dir(place.dir.path())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        // Templates are being made ready, or searched.
        std::thread::sleep(Duration::from_secs(4));
        signal(&child, name);
        let (ended, took, said) = end_of(child);
        assert_eq!(ended, Some(code), "{search}: {said}");
        assert!(took < PATIENCE, "{search}: {took:?} after the signal");
        let records = place.records("out.jsonl");
        let summary = records.last().unwrap_or_else(|| panic!("{search}: no record, {said}"));
        assert_eq!((&summary["type"], &summary["interrupted"]), (&"summary".into(), &true.into()));
        assert_eq!(summary["frames"], frames(&records).len());
    }
}
