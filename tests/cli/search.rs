//! Searches that take long: they can be stopped, and use as much memory as they may.

use super::*;
use std::io::Read;

/// The maximum time for a run to end when it is asked to. The claim is 0.2 s, on a machine that does nothing
/// else.
const PATIENCE: Duration = Duration::from_secs(2);
/// The maximum time for a run to begin, or to end after all, on a busy machine.
const LONG: Duration = Duration::from_mins(2);

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

/// Waits until the run has a handler for SIGTERM.
#[cfg(target_os = "linux")]
fn await_handler(child: &Child) {
    const TERM: u32 = 15;
    let begun = Instant::now();
    let is_ready = || {
        let status = std::fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap_or_default();
        let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:")).unwrap_or_default();
        u64::from_str_radix(caught.trim(), 16).is_ok_and(|caught| caught >> (TERM - 1) & 1 == 1)
    };
    while !is_ready() {
        assert!(begun.elapsed() < LONG, "it does not begin");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Waits for the end. Returns the exit code, how long it took from now, and what the run printed.
fn end_of(mut child: Child) -> (Option<i32>, Duration, String) {
    let asked = Instant::now();
    let status = loop {
        if let Some(status) = child.try_wait().unwrap() {
            break status;
        }
        if asked.elapsed() > LONG {
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
#[cfg(target_os = "linux")]
fn signals_are_heard_while_a_pipe_with_orders_is_silent() {
    let place = place_with_thing(20);
    assert!(Command::new("mkfifo").arg(place.path("orders.jsonl")).status().unwrap().success());
    for has_writer in [false, true] {
        let source = "videotestsrc ! video/x-raw,format=GRAY8,width=160,height=120 ! appsink name=frames";
        let child = Command::new(program())
            .args(["run", "--source", source, "--control", "orders.jsonl", "--no-progress"])
            .current_dir(place.dir.path())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        // Opening waits for the reader.
        let writer = has_writer
            .then(|| std::fs::OpenOptions::new().write(true).open(place.path("orders.jsonl")).unwrap());
        await_handler(&child);
        // It reaches the orders shortly after, and what comes before hears signals too.
        std::thread::sleep(Duration::from_millis(300));
        signal(&child, "TERM");
        let (code, took, said) = end_of(child);
        assert_eq!(code, Some(143), "{has_writer}: {said}");
        assert!(took < Duration::from_secs(5), "{took:?}");
        drop(writer);
    }
}

#[test]
#[cfg(unix)]
fn a_pipe_among_pictures_is_refused() {
    let place = place_with_thing(20);
    assert!(Command::new("mkfifo").arg(place.path("z.png")).status().unwrap().success());
    let search = "--threshold mean:31:5 --no-progress";
    fails(&place.lockon(&format!("run . {search}")), 1, "cannot read ./z.png: it is not a regular file");
    fails(&place.lockon(&format!("run z*.png {search}")), 1, "z.png");
}

#[test]
fn signals_are_heard_while_a_frame_is_searched() {
    // A frame takes minutes: a run that ignored the signal would not end in time by being done.
    for (name, code, search, angles, scales) in [
        ("INT", 130, "exhaustive", "--angles=-180..180/4", "--scales=0.8..1.25/1.05"),
        ("TERM", 143, "pyramid", "--angles=-180..180/1", "--scales=0.5..2/1.02"),
    ] {
        let place = place_with_thing(100);
        let source = "videotestsrc pattern=snow ! video/x-raw,format=GRAY8,width=1920,height=1080 ! appsink name=frames";
        let child = Command::new(program())
            .args(["run", "--source", source, "-t", "thing.png", angles, scales])
            .args(["--search", search, "--backend", "cpu", "--min-score", "0.1"])
            .args(["--results", "out.jsonl", "-o", "out.mkv", "--no-progress"])
            .current_dir(place.dir.path())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        // The run has begun: templates are being made ready, or searched.
        let begun = Instant::now();
        while !std::fs::metadata(place.path("out.jsonl")).is_ok_and(|file| file.len() > 0) {
            assert!(begun.elapsed() < LONG, "{search}: it does not begin");
            std::thread::sleep(Duration::from_millis(50));
        }
        std::thread::sleep(Duration::from_secs(1));
        signal(&child, name);
        let (ended, took, said) = end_of(child);
        assert_eq!(ended, Some(code), "{search}: {said}");
        assert!(took < PATIENCE, "{search}: {took:?} after the signal");
        let records = place.records("out.jsonl");
        let summary = records.last().unwrap_or_else(|| panic!("{search}: no record, {said}"));
        assert_eq!((&summary["type"], &summary["interrupted"]), (&"summary".into(), &true.into()));
        assert_eq!(
            (summary["frames"].as_u64(), frames(&records).len()),
            (Some(0), 0),
            "{search}: it was done"
        );
    }
}

/// `scene.png`, with the thing turned by 35 degrees at (330, 120), and `thing.png`.
fn place_with_scene(side: usize) -> Place {
    let place = place_with_thing(side);
    let thing = lockon::still::load(&place.path("thing.png")).unwrap().luma;
    let turned = lockon::template::Template::new("thing", thing, None).unwrap().resampled(1.0, 35.0).unwrap();
    let size = Size::new(640, 360);
    let mut scene = blocks(size, 11);
    for (i, &pixel) in turned.luma().data().iter().enumerate() {
        let (x, y) = (330 + i % turned.size().width, 120 + i / turned.size().width);
        if turned.mask().is_none_or(|mask| mask.data()[i] == 1) {
            scene.data_mut()[y * size.width + x] = pixel;
        }
    }
    lockon::still::save(&place.path("scene.png"), scene.as_ref()).unwrap();
    place
}

/// The one record of `lockon match`, but for the time that it took.
fn matched(place: &Place, options: &str) -> Value {
    let done = succeeds(place.lockon(&format!("match scene.png thing.png --backend cpu {options}")));
    let mut record: Value = serde_json::from_slice(&done.stdout).unwrap();
    record.as_object_mut().unwrap().remove("latency_us");
    record
}

#[test]
fn matches_are_the_same_in_little_memory_and_too_little_is_refused_with_both_numbers() {
    let place = place_with_scene(40);
    let asked = "--angles=-60..60/5 --search exhaustive --max-matches 5 --min-score 0.4";
    let whole = matched(&place, asked);
    assert_eq!(whole["matches"][0]["angle"], 35.0, "{whole}");
    assert_eq!(matched(&place, &format!("{asked} --memory 24M --threads 1")), whole);
    let refused = place.lockon(&format!("match scene.png thing.png --backend cpu {asked} --memory 1M"));
    fails(&refused, 2, "of memory needed, and ");
    let said = stderr(&refused);
    assert!(said.contains("iB may be taken") && said.contains("--memory"), "{said}");
    fails(&place.lockon("match scene.png thing.png --memory lots"), 2, "expected a size such as 2G");
}

#[test]
fn auto_searches_many_directions_from_coarse_to_fine_and_says_so_once() {
    let place = place_with_scene(60);
    place.gst("filesrc location=scene.png ! pngdec ! imagefreeze num-buffers=3 ! videoconvert ! jpegenc ! avimux ! filesink location=v.avi");
    let run = |options: &str| {
        let command = format!("run v.avi -t thing.png --results out.jsonl --no-progress {options}");
        let said = stderr(&succeeds(place.lockon(&command)));
        let records = place.records("out.jsonl");
        let found = frames(&records)[2]["matches"][0].clone();
        std::fs::remove_file(place.path("out.jsonl")).unwrap();
        (records[0]["search"].clone(), found, said)
    };
    let (search, found, said) = run("--angles=-180..180/5 --scales=0.8..1.25/1.05 --backend cpu");
    assert_eq!((search, &found["angle"]), ("pyramid".into(), &35.0.into()));
    assert_eq!(said.matches("--search exhaustive misses none").count(), 1, "{said}");
    assert!(said.contains("s a frame for 648 sizes and directions"), "{said}");
    // A search that would be refused is not proposed.
    let (search, _, said) = run("--angles=-180..180/5 --scales=0.8..1.25/1.05 --backend cpu --memory 6M");
    assert_eq!(search, "pyramid");
    assert!(said.contains("too many for --search exhaustive here"), "{said}");
    let refused = place.lockon(
        "run v.avi -t thing.png --angles=-180..180/5 --scales=0.8..1.25/1.05 --backend cpu --memory 6M \
         --search exhaustive --no-progress",
    );
    assert!(
        !refused.status.success() && stderr(&refused).contains("of memory needed"),
        "{}",
        stderr(&refused)
    );
    // Without a GPU, no other device could have done it.
    let (_, found, said) = run("--angles=35..35/1 --search pyramid --backend auto");
    assert_eq!(found["angle"], 35.0);
    assert!(lockon::backend::cuda::device(0).is_ok() || !said.contains("the CPU does the work"), "{said}");
    let (search, found, said) = run("--angles=35..35/1 --backend cpu");
    assert_eq!((search, &found["angle"]), (Value::Null, &35.0.into()));
    assert!(!said.contains("--search"), "{said}");
}

#[test]
fn a_source_of_thousands_of_elements_is_given_up_while_it_is_built() {
    let place = place_with_thing(20);
    let text = format!("videotestsrc ! {}appsink name=frames", "identity ! ".repeat(5000));
    std::fs::write(place.path("long.launch"), text).unwrap();
    let mut child = Command::new(program())
        .args(["run", "--source", "@long.launch", "-t", "thing.png", "--metrics", "0", "--no-progress"])
        .current_dir(place.dir.path())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // The address of the metrics is printed before the source is opened.
    let mut said = String::new();
    while !said.contains("metrics:") {
        let mut byte = [0];
        child.stderr.as_mut().unwrap().read_exact(&mut byte).unwrap();
        said.push(char::from(byte[0]));
    }
    std::thread::sleep(Duration::from_millis(300));
    signal(&child, "TERM");
    let (ended, took, said) = end_of(child);
    assert_eq!(ended, Some(143), "{said}");
    assert!(took < PATIENCE, "{took:?} after the signal");
}
