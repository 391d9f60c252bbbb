//! The program as a user runs it: real files in, results and exit codes out.

mod times;

use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;
use tempfile::TempDir;

use crate::util::{gpu, noise, paste, program, root};
use lockon::frame::{Plane, Rect, Size};

mod clips;
mod closing;
mod decode;
mod folders;
mod follow;
mod info;
mod lasting;
mod masks;
mod objects;
mod overwrite;
mod pictures;
mod pipelines;
mod range;
mod repeat;
mod report;
mod results;
mod scrub;
mod search;
mod source;
mod typed;
mod window;

/// A folder with a small video, a template that is in it, and whatever a test adds.
struct Place {
    dir: TempDir,
}

/// Where GStreamer's ball is drawn, and how many frames of it there are.
const FRAMES: usize = 40;

impl Place {
    /// `ball.mp4`: a ball that moves over black, 40 frames of 160x120; `ball.png`: the ball.
    fn new() -> Self {
        let place = Self { dir: tempfile::tempdir().unwrap() };
        place.gst(&format!(
            "videotestsrc num-buffers={FRAMES} pattern=ball motion=sweep ! video/x-raw,format=I420,width=160,height=120,framerate=25/1 \
             ! x264enc pass=qual quantizer=10 ! mp4mux ! filesink location={}",
            place.path("ball.mp4").display()
        ));
        let frame = place.frame("ball.mp4");
        let brightest = (0..frame.size().area()).max_by_key(|&i| frame.data()[i]).unwrap();
        let (x, y) = (brightest % 160, brightest / 160);
        let corner = |centre: usize, end: usize| centre.saturating_sub(24).min(end - 48);
        let rect = Rect::new(corner(x, 160), corner(y, 120), 48, 48);
        lockon::still::save(&place.path("ball.png"), frame.as_ref().crop(rect)).unwrap();
        place
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.path(name)).unwrap()
    }

    /// The records of a JSON Lines file.
    fn records(&self, name: &str) -> Vec<Value> {
        self.read(name).lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    /// Runs `lockon` in this folder. Words are separated by spaces; none of ours contain any.
    fn lockon(&self, words: &str) -> Output {
        self.lockon_args(&words.split_whitespace().collect::<Vec<_>>())
    }

    fn lockon_args(&self, args: &[&str]) -> Output {
        // A run that hangs is a failure, not the end of the tests.
        let mut limited = Command::new("timeout");
        limited.arg("120").arg(program()).args(args).current_dir(self.dir.path()).stdin(Stdio::null());
        limited.output().unwrap()
    }

    /// Runs a GStreamer pipeline to its end.
    fn gst(&self, pipeline: &str) {
        let done = Command::new("gst-launch-1.0")
            .args(["-q", "-e"])
            .args(pipeline.split_whitespace())
            .current_dir(self.dir.path())
            .output()
            .expect("gst-launch-1.0 is installed (gstreamer1.0-tools)");
        assert!(done.status.success(), "{pipeline}\n{}", String::from_utf8_lossy(&done.stderr));
    }

    /// How many frames of a video GStreamer plays, up to its end or up to where it is cut.
    fn play(&self, video: &str) -> usize {
        let played = Command::new("gst-launch-1.0")
            .args(["-v", "filesrc", &format!("location={video}"), "!", "decodebin", "!", "video/x-raw", "!"])
            .args(["identity", "silent=false", "!", "fakesink"])
            // GStreamer may warn of a video that is cut; that is not lockon's error.
            .env_remove("G_DEBUG")
            .current_dir(self.dir.path())
            .output()
            .unwrap();
        String::from_utf8_lossy(&played.stdout).matches("chain ").count()
    }

    /// Luma of the first frame of a video.
    fn frame(&self, video: &str) -> Plane {
        let png = self.path("first-frame.png");
        self.gst(&format!(
            "filesrc location={video} ! decodebin ! videoconvert ! video/x-raw,format=GRAY8 ! pngenc snapshot=true ! filesink location={}",
            png.display()
        ));
        lockon::still::load(&png).unwrap().luma
    }
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn succeeds(output: Output) -> Output {
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    output
}

/// Asserts an exit code and the text of the message, and that there is only one message.
fn fails(output: &Output, code: i32, says: &str) {
    let said = stderr(output);
    assert_eq!(output.status.code(), Some(code), "{said}");
    assert!(said.contains(says), "expected {says:?} in {said:?}");
    assert!(!said.contains("panicked"), "{said}");
    assert_eq!(said.matches("error:").count(), 1, "{said}");
}

fn frames(records: &[Value]) -> Vec<&Value> {
    records.iter().filter(|r| r["type"] == "frame").collect()
}

/// Returns the lines of a JSON Lines file without everything that depends on the clock or the machine.
fn timeless(text: &str) -> Vec<Value> {
    let records = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    records
        .filter(|record| record["type"] != "summary")
        .map(|mut record| {
            let fields = record.as_object_mut().unwrap();
            fields.retain(|key, _| {
                !key.ends_with("_us")
                    && !["backend", "device", "driver", "decoder", "started", "command"]
                        .contains(&key.as_str())
            });
            record
        })
        .collect()
}

#[test]
fn the_main_job_gives_a_record_for_each_frame_and_a_video_of_as_many() {
    let place = Place::new();
    succeeds(place.lockon("run ball.mp4 --template ball.png -o out.mp4 --results out.jsonl --no-progress"));
    let records = place.records("out.jsonl");
    assert_eq!(
        (records[0]["type"].as_str(), records.last().unwrap()["type"].as_str()),
        (Some("run"), Some("summary"))
    );
    assert_eq!(records[0]["templates"][0]["name"], "ball");
    let frames = frames(&records);
    assert_eq!(frames.len(), FRAMES);
    assert!(frames.iter().enumerate().all(|(index, r)| r["frame"] == index));
    assert!(frames[0]["matches"][0]["score"].as_f64().unwrap() > 0.99, "{}", frames[0]);

    // The annotated video, read again, has the same frames at the same times.
    succeeds(place.lockon("run out.mp4 --threshold mean:31:5 --results again.jsonl --no-progress"));
    let again = place.records("again.jsonl");
    let times = |records: &[Value]| {
        records
            .iter()
            .filter(|r| r["type"] == "frame")
            .map(|r| r["pts_ns"].as_u64().unwrap())
            .collect::<Vec<_>>()
    };
    let (expected, written) = (times(&records), times(&again));
    assert_eq!(written.len(), FRAMES);
    for (a, b) in expected.iter().zip(&written) {
        assert!(a.abs_diff(*b) < 1_000_000, "{expected:?} {written:?}");
    }
}

#[test]
fn threads_and_repetition_change_nothing_but_times() {
    let place = Place::new();
    let run = |name: &str, threads: usize| {
        succeeds(place.lockon(&format!(
            "run ball.mp4 --template ball.png --track 50,40,40,40@3 --threshold gaussian:31:5 --min-score 0.3 --max-matches 5 \
             --angles -20..20/20 --backend cpu --threads {threads} --results {name} --no-progress"
        )));
        timeless(&place.read(name))
    };
    let expected = run("a.jsonl", 1);
    assert_eq!(expected.len(), FRAMES + 1);
    for (name, threads) in [("b.jsonl", 1), ("c.jsonl", 2), ("d.jsonl", 3)] {
        assert_eq!(run(name, threads), expected);
    }
}

#[test]
fn csv_mot_and_standard_output_tell_the_same_tracks() {
    let place = Place::new();
    let out = succeeds(place.lockon(
        "run ball.mp4 --track 50,40,40,40 --results out.csv --results out.mot.txt --results - --max-frames 5 --no-progress",
    ));
    let stdout = String::from_utf8(out.stdout).unwrap();
    assert_eq!(stdout.lines().filter(|l| l.starts_with("{\"type\":\"frame\"")).count(), 5);
    assert_eq!(place.read("out.csv").lines().count(), 1 + 5);
    let mot = place.read("out.mot.txt");
    // One-based frame, id, one-based corner.
    assert!(mot.starts_with("1,1,51,41,40,40,1,-1,-1,-1\n"), "{mot}");
}

#[test]
fn still_pictures_are_searched_and_the_best_comes_first() {
    let place = Place { dir: tempfile::tempdir().unwrap() };
    let (mut scene, patch) = (noise(1, Size::new(150, 90)), noise(2, Size::new(21, 13)));
    paste(&mut scene, &patch, 77, 31);
    lockon::still::save(&place.path("scene.png"), scene.as_ref()).unwrap();
    lockon::still::save(&place.path("patch.png"), patch.as_ref()).unwrap();
    let out =
        succeeds(place.lockon("match scene.png patch.png --max-matches 3 --min-score 0.1 -o found.png"));
    let record: Value = serde_json::from_slice(&out.stdout).unwrap();
    let best = &record["matches"][0];
    assert_eq!((&best["x"], &best["y"], &best["score"]), (&77.into(), &31.into(), &1.0.into()), "{record}");
    assert!(record["matches"].as_array().unwrap().len() > 1);
    assert_eq!(lockon::still::load(&place.path("found.png")).unwrap().luma.size(), scene.size());
}

#[test]
fn a_search_from_coarse_to_fine_says_so_and_finds_the_same_ball() {
    let place = Place::new();
    let run = |name: &str, how: &str| {
        succeeds(place.lockon(&format!(
            "run ball.mp4 --template ball.png --angles 0..8/4 --max-frames 3 {how} --results {name} --no-progress"
        )));
        place.records(name)
    };
    let (coarse, all) = (run("coarse.jsonl", "--search pyramid"), run("all.jsonl", "--search exhaustive"));
    assert_eq!((&coarse[0]["search"], &all[0]["search"]), (&"pyramid".into(), &Value::Null));
    assert_eq!(coarse[0]["templates"], all[0]["templates"]);
    for (coarse, all) in frames(&coarse).iter().zip(frames(&all)) {
        assert_eq!(coarse["matches"], all["matches"]);
    }
    let words = "run ball.mp4 --template ball.png --search pyramid --results no.jsonl";
    fails(&place.lockon(&format!("{words} --backend cuda")), 2, "it needs --backend cpu");
    fails(&place.lockon(&format!("{words} --kernel ncc-mma")), 2, "--kernel ncc-mma the CUDA backend's");
}

#[test]
fn still_pictures_are_thresholded() {
    let place = Place { dir: tempfile::tempdir().unwrap() };
    let scene = noise(1, Size::new(91, 57));
    lockon::still::save(&place.path("scene.png"), scene.as_ref()).unwrap();
    for method in [
        "mean:5:-2.5",
        "gaussian:9:1:inv",
        "sauvola:15:0.2",
        "niblack:7:-0.2:inv",
        "mean:31x5:8",
        "wolf:15:0.5",
        "phansalkar:7:0.25:inv",
        "bradley:9:5",
        "fixed:90..170",
        "otsu",
        "triangle",
    ] {
        succeeds(place.lockon(&format!("threshold scene.png -y -o mask.png --method {method}")));
        let expected = lockon::reference::threshold::threshold(scene.as_ref(), &method.parse().unwrap());
        assert_eq!(lockon::still::load(&place.path("mask.png")).unwrap().luma, expected, "{method}");
    }
    let words = "threshold scene.png -y -o mask.png --method background:9:9";
    fails(&place.lockon(words), 2, "--method background:9:9 compares frames with those before");
}

#[test]
fn inputs_that_cannot_be_played_are_told_apart() {
    let place = Place::new();
    std::fs::create_dir(place.path("folder")).unwrap();
    std::fs::write(place.path("empty.mp4"), "").unwrap();
    std::fs::write(place.path("random.mp4"), noise(9, Size::new(64, 64)).data()).unwrap();
    let whole = std::fs::read(place.path("ball.mp4")).unwrap();
    std::fs::write(place.path("cut.mp4"), &whole[..whole.len() / 2]).unwrap();
    place.gst("audiotestsrc num-buffers=20 ! audio/x-raw,rate=8000 ! wavenc ! filesink location=sound.wav");
    for (input, says) in [
        ("nowhere.mp4", "error: cannot read nowhere.mp4: No such file or directory (os error 2)\n"),
        ("folder", "folder: a folder, not a file"),
        ("empty.mp4", "empty.mp4: the file is empty"),
        ("random.mp4", "random.mp4: could not determine type of stream"),
        ("cut.mp4", "cut.mp4: the file is cut off"),
        ("sound.wav", "sound.wav: it has no video stream"),
        ("camera:/dev/video77", "there is no device /dev/video77"),
    ] {
        let out =
            place.lockon(&format!("run {input} --threshold mean:31:5 --results out.jsonl --no-progress"));
        fails(&out, 1, says);
    }
}

#[test]
fn what_is_left_of_a_cut_file_is_processed_before_the_run_fails() {
    let place = Place::new();
    // With the index in front, a file can be played up to where it was cut.
    place.gst(
        "filesrc location=ball.mp4 ! qtdemux ! h264parse ! mp4mux faststart=true ! filesink location=front.mp4",
    );
    let whole = std::fs::read(place.path("front.mp4")).unwrap();
    std::fs::write(place.path("cut.mp4"), &whole[..whole.len() * 9 / 10]).unwrap();
    let out = place.lockon("run cut.mp4 --threshold mean:31:5 --results out.jsonl -o out.mp4 --no-progress");
    fails(&out, 1, &format!("cut.mp4: the file is cut off: it should have {} bytes", whole.len()));
    let records = place.records("out.jsonl");
    assert!((10..FRAMES).contains(&frames(&records).len()));
    assert_eq!(records.last().unwrap()["type"], "summary");
    succeeds(place.lockon("run out.mp4 --threshold mean:31:5 --no-progress"));
}

#[test]
fn templates_that_cannot_be_searched_are_refused_by_name() {
    let place = Place::new();
    let save = |name: &str, plane: &Plane| lockon::still::save(&place.path(name), plane.as_ref()).unwrap();
    save("flat.png", &Plane::from_vec(vec![7; 100], Size::new(10, 10)));
    save("wall.png", &noise(4, Size::new(161, 20)));
    std::fs::write(place.path("words.png"), "no pixels").unwrap();
    std::fs::write(place.path("empty.png"), "").unwrap();
    for (template, says) in [
        ("flat.png", "template \"flat\" is flat"),
        ("wall.png", "no template fits: the smallest is 161x20, the searched area 160x120"),
        ("words.png", "words.png"),
        ("empty.png", "empty.png"),
        ("missing.png", "cannot read missing.png"),
    ] {
        fails(&place.lockon(&format!("run ball.mp4 --template {template} --no-progress")), 1, says);
    }
}

#[test]
fn wrong_usage_ends_with_code_2_before_anything_is_written() {
    let place = Place::new();
    for (words, says) in [
        ("--threshold mean:30:5", "block 30 is not an odd number from 3 to 255"),
        ("--threshold mean:0:5", "block 0"),
        ("--threshold mean:-31:5", "block -31"),
        ("--threshold mean:1000001:5", "block 1000001"),
        ("--track 1,2,0,4", "width and height must be 1 or more"),
        ("--track 1,2,3", "expected X,Y,W,H"),
        ("--threshold mean:31:5 --max-frames 0", "--max-frames"),
        ("--threshold mean:31:5 -o out.gif", "out.gif"),
        ("--threshold mean:31:5 --results out.xml", "out.xml"),
        ("--track 1,2,3,4 --view mask", "add --threshold"),
        ("--template ball.png --min-score 1.5", "not between -1 and 1"),
        ("--threshold mean:31:5 --live --lossless", "cannot be used with"),
        ("--threshold mean:31:5 --on-device-loss tpu", "expected end, gpu or cpu"),
        ("--threshold mean:31:5 --kernel box", "expected one of ncc-texture"),
        ("--threshold mean:31:5 --kernel box-tile --backend cpu", "it needs --backend cuda"),
        ("", "nothing to do"),
    ] {
        let out = place.lockon(&format!("run ball.mp4 {words} --results early.jsonl --no-progress"));
        fails(&out, 2, says);
        assert!(!place.path("early.jsonl").exists(), "{words}");
    }
}

#[test]
fn files_that_would_destroy_each_other_are_refused() {
    let place = Place::new();
    std::fs::hard_link(place.path("ball.mp4"), place.path("hard.mp4")).unwrap();
    std::os::unix::fs::symlink(place.path("ball.mp4"), place.path("soft.jsonl")).unwrap();
    let uri = format!("file://{}", place.path("ball.mp4").display());
    let before = std::fs::read(place.path("ball.mp4")).unwrap();
    for (input, words, says) in [
        ("ball.mp4", "-o ball.mp4", "is both input and output"),
        ("ball.mp4", "-o hard.mp4 --no-audio", "is both input and output"),
        ("ball.mp4", "--results soft.jsonl", "is both input and output"),
        (uri.as_str(), "-o ball.mp4", "is both input and output"),
        ("ball.mp4", "-o a.mp4 -o ./a.mp4", "is given twice as an output"),
        ("ball.mp4", "--results - --results -", "given twice"),
    ] {
        let out = place.lockon(&format!("run {input} --threshold mean:31:5 {words} --no-progress"));
        fails(&out, 2, says);
    }
    // Standard input is a file here too.
    let mut command = Command::new(program());
    command.args("run - --threshold mean:31:5 -o ball.mp4 -y --no-progress".split_whitespace());
    let video = std::fs::File::open(place.path("ball.mp4")).unwrap();
    let out = command.current_dir(place.dir.path()).stdin(video).output().unwrap();
    fails(&out, 2, "is both input and output");
    std::fs::write(place.path("sink.txt"), "fakesink").unwrap();
    let words = "run ball.mp4 --threshold mean:31:5 --sink @sink.txt --results sink.txt -y --no-progress";
    assert!(!place.lockon(words).status.success());
    assert_eq!(std::fs::read(place.path("sink.txt")).unwrap(), b"fakesink");
    assert_eq!(std::fs::read(place.path("ball.mp4")).unwrap(), before);
}

#[test]
fn results_of_the_last_run_are_kept_until_the_next_has_begun() {
    let place = Place::new();
    for name in ["keep.jsonl", "keep.csv", "keep.mot.txt"] {
        std::fs::write(place.path(name), "kept").unwrap();
        let run = |words: &str| place.lockon(&format!("run {words} -y --results {name} --no-progress"));
        fails(&run("nowhere.mp4 --threshold mean:31:5"), 1, "nowhere.mp4");
        fails(&run("ball.mp4 --track 150,110,40,40"), 1, "track box 150,110,40,40");
        assert_eq!(place.read(name), "kept");
        succeeds(run("ball.mp4 --track 50,40,40,40 --max-frames 3"));
        assert_ne!(place.read(name), "kept");
    }
}

#[test]
fn a_track_that_can_never_start_is_told() {
    let place = Place::new();
    let out = place.lockon("run ball.mp4 --track 1,1,9,9@5 --max-frames 5 --no-progress");
    fails(&out, 2, "--track 1,1,9,9@5 starts after the last of --max-frames 5");
    let out = succeeds(place.lockon("run ball.mp4 --track 1,1,9,9@100 --no-progress"));
    assert!(
        stderr(&out).contains("track 1 never started: the video ended before frame 100"),
        "{}",
        stderr(&out)
    );
}

#[test]
fn nobody_listening_on_standard_error_is_no_reason_to_stop() {
    let place = Place::new();
    let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let mut run = Command::new(program());
    run.args(["run", "ball.mp4", "--threshold", "mean:31:5", "-o", "out.mp4", "-vv"]);
    let status = run.current_dir(place.dir.path()).stderr(full).status().unwrap();
    assert_eq!(status.code(), Some(0));
    assert!(place.path("out.mp4").exists());
}

#[test]
fn pipelines_of_ones_own_are_checked_for_their_ends() {
    let place = Place::new();
    let source = |text: &str| {
        place.lockon_args(&[
            "run",
            "--source",
            text,
            "--threshold",
            "mean:31:5",
            "--max-frames",
            "3",
            "--no-progress",
        ])
    };
    succeeds(source("videotestsrc num-buffers=9 ! appsink name=frames"));
    fails(&source("videotestsrc ! vidoeconvert ! appsink name=frames"), 2, "is it misspelt?");
    fails(&source("videotestsrc ! ! appsink name=frames"), 2, "--source");
    fails(&source("videotestsrc ! fakesink"), 2, "appsink name=frames");
    fails(&source("videotestsrc ! appsink name=frames videotestsrc ! appsink"), 2, "appsink");
    let sink = |text: &str| {
        place.lockon_args(&["run", "ball.mp4", "--threshold", "mean:31:5", "--sink", text, "--no-progress"])
    };
    fails(&sink("videotestsrc ! fakesink"), 2, "appsrc name=results");
}

#[test]
fn gst_launch_text_works_as_source_and_as_a_sink_with_two_outputs() {
    let place = Place::new();
    let out = place.lockon_args(&[
        "run",
        "--source",
        "filesrc location=ball.mp4 ! decodebin ! appsink name=frames",
        "--track",
        "50,40,40,40",
        "--sink",
        "appsrc name=results ! tee name=t ! queue ! videoconvert ! x264enc ! mp4mux ! filesink location=a.mp4 \
         t. ! queue ! videoconvert ! jpegenc ! avimux ! filesink location=b.avi",
        "--results",
        "out.jsonl",
        "--no-progress",
    ]);
    succeeds(out);
    for video in ["a.mp4", "b.avi"] {
        succeeds(
            place
                .lockon(&format!("run -y {video} --threshold mean:31:5 --results again.jsonl --no-progress")),
        );
        assert_eq!(frames(&place.records("again.jsonl")).len(), FRAMES, "{video}");
    }
}

#[test]
fn printed_pipelines_run_in_gst_launch_with_test_ends() {
    let place = Place::new();
    let out = succeeds(place.lockon("run ball.mp4 --track 50,40,40,40 -o out.mp4 --print-pipeline"));
    let text = String::from_utf8(out.stdout).unwrap();
    let lines: Vec<_> = text.lines().filter(|line| !line.starts_with('#')).collect();
    assert_eq!(lines.len(), 2, "{text}");
    assert!(!place.path("out.mp4").exists());
    for (line, from, to) in
        [(lines[0], "appsink", "fakesink"), (lines[1], "appsrc", "videotestsrc num-buffers=5")]
    {
        assert!(line.contains(from), "{line}");
        // The command is run by a shell, as a user would paste it.
        let script = format!("gst-launch-1.0 -q -e {}", line.replacen(from, to, 1));
        let done = Command::new("sh").args(["-c", &script]).current_dir(place.dir.path()).output().unwrap();
        assert!(done.status.success(), "{script}\n{}", stderr(&done));
    }
    assert!(place.path("out.mp4").exists());
}

#[test]
fn a_gpu_that_is_not_there_is_refused_with_the_remedy_and_auto_takes_the_cpu() {
    let place = Place::new();
    let run = |backend: &str| {
        place.lockon(&format!(
            "run ball.mp4 --threshold mean:31:5 --backend {backend} --results out.jsonl --no-progress"
        ))
    };
    let Err(error) = lockon::backend::cuda::device(0) else {
        return fails(&run("cuda:77"), 1, "error: cuda: there is no device 77");
    };
    fails(&run("cuda"), 1, &format!("error: {error}\n"));
    // The CPU has none of the kernels that were chosen.
    let is_mended_by_the_cpu = error.to_string().ends_with("use --backend cpu");
    for backend in ["cuda", "auto"].iter().filter(|_| is_mended_by_the_cpu) {
        fails(&run(&format!("{backend} --kernel box-tile")), 1, &format!("error: {error} and no --kernel\n"));
    }
    assert!(!place.path("out.jsonl").exists());
    let out = succeeds(run("auto"));
    // Without such hardware there is nothing to warn of.
    let is_warned = stderr(&out).contains(&format!("the CPU does the work: {error}\n"));
    let has_hardware = lockon::backend::may_have_gpu("/".as_ref());
    assert_eq!(is_warned, has_hardware, "{}", stderr(&out));
    assert!(has_hardware || !stderr(&out).to_lowercase().contains("cuda"), "{}", stderr(&out));
    assert_eq!(place.records("out.jsonl")[0]["backend"], "cpu");
}

#[test]
fn the_gpu_gives_what_the_cpu_gives() {
    if gpu().is_none() {
        return;
    }
    let place = Place { dir: tempfile::tempdir().unwrap() };
    let (video, car) = (root().join("examples/media/cars.mp4"), root().join("examples/media/car.png"));
    let (video, car) = (video.to_str().unwrap(), format!("car={}", car.display()));
    for what in [
        ["--template", &car],
        ["--track", "318,245,172,110@18"],
        ["--threshold", "mean:31:5"],
        ["--threshold", "gaussian:31:5"],
        ["--threshold", "sauvola:31:0.2"],
        ["--threshold", "wolf:31x15:0.2"],
        ["--threshold", "otsu"],
        ["--threshold", "background:20:12..30"],
    ] {
        let run = |backend: &str| {
            // Decoders of the GPU give another format, which the first record names.
            let mut args = vec!["run", "-y", video, "--decoder", "software", "--backend", backend];
            args.extend(what);
            args.extend(["-o", "out.mp4", "--results", "out.jsonl", "--no-progress"]);
            succeeds(place.lockon_args(&args));
            let records = place.records("out.jsonl");
            assert_eq!(records[0]["backend"], backend, "{what:?}");
            succeeds(
                place.lockon("run -y out.mp4 --threshold mean:31:5 --results again.jsonl --no-progress"),
            );
            assert_eq!(frames(&place.records("again.jsonl")).len(), frames(&records).len(), "{what:?}");
            timeless(&place.read("out.jsonl"))
        };
        let (expected, found) = (run("cpu"), run("cuda"));
        assert_eq!(found.len(), expected.len(), "{what:?}");
        for (found, expected) in found.iter().zip(&expected) {
            assert_eq!(found, expected, "{what:?}");
        }
    }
}

#[test]
fn outputs_that_cannot_be_written_are_told_before_the_video_starts() {
    let place = Place::new();
    for name in ["out.mp4", "out.jsonl"] {
        std::fs::create_dir(place.path(name)).unwrap();
    }
    for words in ["-o out.mp4", "--results out.jsonl"] {
        let out = place.lockon(&format!("run ball.mp4 --threshold mean:31:5 {words} --no-progress"));
        fails(&out, 1, "cannot write out.");
    }
}

#[test]
fn a_disk_that_is_full_from_the_start_fails_the_run_in_the_systems_words() {
    let place = Place::new();
    std::os::unix::fs::symlink("/dev/full", place.path("full.jsonl")).unwrap();
    let out =
        place.lockon("run ball.mp4 --threshold mean:31:5 --results full.jsonl -o out.mp4 --no-progress");
    fails(&out, 1, "No space left on device");
}

/// Runs `lockon` in a shell that lets no file grow beyond so many KiB, which stands for a full disk in an
/// unprivileged test.
#[cfg(target_os = "linux")]
fn on_a_full_disk(place: &Place, kib: usize, words: &str) -> Output {
    // Bash counts KiB, other shells half as many.
    let script = format!("ulimit -f {kib}; exec \"$0\" {words}");
    let mut shell = Command::new("timeout");
    shell.arg("120").args(["bash", "-c", &script]).arg(program()).current_dir(place.dir.path());
    shell.output().unwrap()
}

/// Each kind of file hits the limit at a different place, so each is filled alone.
#[test]
#[cfg(target_os = "linux")]
fn a_disk_that_is_full_in_mid_file_leaves_what_was_written_before() {
    let place = Place::new();
    for (name, kib) in
        [("out.mp4", 500), ("out.mkv", 500), ("out.webm", 200), ("out.jsonl", 8), ("out.csv", 8)]
    {
        let option = if name.starts_with("out.j") || name.starts_with("out.c") { "--results" } else { "-o" };
        // Noise is large, so that few frames fill the file.
        let words = format!(
            "run --source 'videotestsrc num-buffers=200 pattern=snow ! \
             video/x-raw,width=160,height=120,framerate=25/1 ! appsink name=frames' --track 8,8,40,40 {option} {name} \
             --results - --no-progress"
        );
        let out = on_a_full_disk(&place, kib, &words);
        fails(&out, 1, &format!("output {name}: "));
        let said = stderr(&out);
        assert!(said.contains("File too large") && !said.contains("written:"), "{said}");
        // Standard output has everything.
        let text = String::from_utf8(out.stdout).unwrap();
        assert_eq!(
            text.lines().filter(|line| line.starts_with("{\"type\":\"frame\"")).count(),
            200,
            "{name}"
        );
        assert!(text.lines().last().unwrap().starts_with("{\"type\":\"summary\""));
        if option == "-o" {
            assert!(place.play(name) >= 10, "{name}: {} frames", place.play(name));
        } else {
            let written = place.read(name);
            assert!(written.ends_with('\n') && written.lines().count() > 10, "{name}");
            let last = written.lines().last().unwrap();
            assert!(last.ends_with('}') || last.split(',').count() == 15, "{last}");
        }
    }
}

#[test]
fn an_encoder_that_fails_closes_its_output_and_the_others_go_on() {
    let place = Place::new();
    let sink = "appsrc name=results ! identity name=breaks error-after=20 ! fakesink";
    let mut args = vec!["run", "ball.mp4", "--threshold", "mean:31:5", "--sink", sink, "-o", "out.mp4"];
    args.extend(["--results", "out.jsonl", "--no-progress"]);
    let out = place.lockon_args(&args);
    fails(&out, 1, "output --sink: breaks: ");
    assert!(
        stderr(&out).contains("output --sink failed and is closed; the others continue"),
        "{}",
        stderr(&out)
    );
    assert_eq!(frames(&place.records("out.jsonl")).len(), FRAMES);
    assert_eq!(place.play("out.mp4"), FRAMES);
}

#[test]
#[cfg(unix)]
fn a_killed_run_leaves_lines_and_videos_up_to_its_last_second() {
    let place = Place::new();
    let mut child = live(&place, "-o out.mp4 -o out.mkv -o out.webm --results out.jsonl");
    await_frames(&place, 150);
    child.kill().unwrap();
    child.wait().unwrap();
    let text = place.read("out.jsonl");
    let whole = &text[..=text.rfind('\n').unwrap()];
    let frames = whole.lines().filter(|line| serde_json::from_str::<Value>(line).unwrap()["type"] == "frame");
    let count = frames.count();
    assert!(count >= 150);
    for name in ["out.mp4", "out.mkv", "out.webm"] {
        let played = place.play(name);
        // 50 frames a second.
        assert!(played + 50 >= count, "{name} plays {played} of {count} frames");
    }
}

#[test]
#[cfg(unix)]
fn ctrl_c_leaves_a_playable_video_and_valid_results() {
    interrupted_by("-INT", 130);
}

#[test]
#[cfg(unix)]
fn a_polite_request_to_end_leaves_them_too() {
    interrupted_by("-TERM", 143);
}

/// `nohup` ignores SIGHUP, and a shell ignores SIGINT for commands in its background.
#[test]
#[cfg(unix)]
fn a_signal_that_was_ignored_at_the_start_stays_ignored() {
    let source =
        "videotestsrc is-live=true ! video/x-raw,width=64,height=48,framerate=50/1 ! appsink name=frames";
    for ignored in ["HUP", "INT"] {
        let place = Place { dir: tempfile::tempdir().unwrap() };
        let mut child = Command::new("sh")
            .args(["-c", "trap '' $0; exec \"$@\"", ignored])
            .arg(program())
            .args(["run", "--source", source, "--threshold", "mean:31:5", "--results", "out.jsonl"])
            .current_dir(place.dir.path())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        await_frames(&place, 10);
        signal(&child, ignored);
        let count = place.read("out.jsonl").lines().count();
        await_frames(&place, count + 50);
        signal(&child, "TERM");
        assert_eq!(child.wait().unwrap().code(), Some(143), "{ignored}");
    }
}

#[test]
fn frames_of_any_size_are_processed_and_written() {
    let place = Place { dir: tempfile::tempdir().unwrap() };
    for (width, height, frames_asked, extra) in
        [(1, 1, 5, "-o out.mkv"), (3, 5, 5, "-o out.mkv"), (7680, 4320, 2, "")]
    {
        let source = format!(
            "videotestsrc num-buffers={frames_asked} pattern=snow ! video/x-raw,format=I420,width={width},height={height} \
             ! appsink name=frames"
        );
        let mut args = vec!["run", "--source", &source, "--threshold", "mean:31:5", "--results", "out.jsonl"];
        args.extend(["-y", "--no-progress"]);
        args.extend(extra.split_whitespace());
        succeeds(place.lockon_args(&args));
        let records = place.records("out.jsonl");
        assert_eq!((&records[0]["width"], &records[0]["height"]), (&width.into(), &height.into()));
        assert_eq!(frames(&records).len(), frames_asked);
        if !extra.is_empty() {
            assert_eq!(place.play("out.mkv"), frames_asked, "{width}x{height}");
        }
    }
}

#[test]
fn options_of_cameras_and_streams_are_refused_where_they_mean_nothing() {
    let place = Place::new();
    for (words, says) in [
        ("--reconnect", "a file is not lost"),
        ("--size 64x48", "--size and --fps are a camera's"),
        ("--fps 30", "--size and --fps are a camera's"),
        ("--fps 0", "expected frames a second"),
        ("--fps 30/", "expected frames a second"),
        ("--jitter 60001", "not between 0 and 60000"),
        ("--jitter 50", "--jitter is for rtsp:// and srt://"),
    ] {
        fails(&place.lockon(&format!("run ball.mp4 --threshold mean:31:5 {words} --no-progress")), 2, says);
    }
}

#[test]
#[cfg(unix)]
fn a_second_ctrl_c_ends_at_once_whatever_hangs() {
    let place = Place::new();
    // An end that waits for a time that is far off.
    let sink = "appsrc name=results ! fakesink sync=true ts-offset=1000000000000";
    let mut child = Command::new(program())
        .args(["run", "ball.mp4", "--threshold", "mean:31:5", "--sink", sink, "--results", "out.jsonl"])
        .arg("--no-progress")
        .current_dir(place.dir.path())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    await_frames(&place, 1);
    signal(&child, "INT");
    std::thread::sleep(Duration::from_millis(1500));
    let started = Instant::now();
    signal(&child, "INT");
    assert_eq!(child.wait().unwrap().code(), Some(130));
    // Without the second signal it would hang for good.
    assert!(started.elapsed() < Duration::from_secs(8), "{:?}", started.elapsed());
}

/// A run on a live source without an end, of 50 frames a second.
fn live(place: &Place, words: &str) -> Child {
    Command::new(program())
        .args([
            "run",
            "--source",
            "videotestsrc is-live=true pattern=ball ! video/x-raw,framerate=50/1 ! appsink name=frames",
        ])
        .args(["--track", "100,100,60,60", "--lossless", "--no-progress"])
        .args(words.split_whitespace())
        .current_dir(place.dir.path())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

fn signal(child: &Child, name: &str) {
    let sent = Command::new("kill").args([&format!("-{name}"), &child.id().to_string()]).status();
    assert!(sent.unwrap().success());
}

/// Waits until out.jsonl has so many frames.
fn await_frames(place: &Place, count: usize) {
    let deadline = Instant::now() + Duration::from_secs(30);
    let written = || std::fs::read_to_string(place.path("out.jsonl")).unwrap_or_default().lines().count();
    while written() < count + 1 && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Takes XML apart as far as names and nesting go, and returns the names of all elements. Panics if it is not
/// well-formed.
fn elements(text: &str) -> Vec<String> {
    let mut rest = text.strip_prefix("<!DOCTYPE html>").expect("it begins with its type").trim();
    let (mut open, mut all) = (Vec::new(), Vec::new());
    while !rest.is_empty() {
        let (words, tag) = rest.split_once('<').unwrap_or((rest, ""));
        let entities = ["&amp;", "&lt;", "&gt;", "&quot;", "&#39;"];
        let unknown =
            words.match_indices('&').find(|(at, _)| !entities.iter().any(|e| words[*at..].starts_with(e)));
        assert!(unknown.is_none() && !words.contains('>') || open.last() == Some(&"style"), "{words}");
        assert!(tag.is_empty() || !open.is_empty() || all.is_empty(), "more than one root");
        let Some((tag, after)) = tag.split_once('>') else { break };
        if let Some(name) = tag.strip_prefix('/') {
            assert_eq!(open.pop(), Some(name), "closes something else");
        } else {
            let name = tag.split([' ', '/']).next().unwrap();
            assert!(name.chars().all(|c| c.is_ascii_alphanumeric()) && !name.is_empty(), "<{tag}>");
            // Values are quoted, and whole: a quote in a name would leave an odd number.
            assert!(tag.matches('"').count().is_multiple_of(2), "<{tag}>");
            all.push(name.to_owned());
            if !tag.ends_with('/') {
                open.push(name);
            }
        }
        rest = after;
    }
    assert_eq!(open, [""; 0], "not closed");
    all
}

#[test]
fn a_report_has_everything_about_the_run_and_is_well_formed() {
    let place = Place::new();
    // Names that a page must not mistake for its own markup.
    std::fs::rename(place.path("ball.mp4"), place.path("a<b>&'c'.mp4")).unwrap();
    std::fs::rename(place.path("ball.png"), place.path("ball\".png")).unwrap();
    let args = [
        "run",
        "a<b>&'c'.mp4",
        "--template",
        "x<i>&=ball\".png",
        "--track-matches",
        "--track",
        "40,30,48,48@5",
    ];
    succeeds(place.lockon_args(&[&args[..], &["--report", "out.html", "--no-progress"]].concat()));
    let page = place.read("out.html");
    let names = elements(&page);
    for name in ["html", "title", "style", "h1", "h2", "table", "svg", "image", "polyline", "rect"] {
        assert!(names.iter().any(|other| other == name), "there is no <{name}>");
    }
    for text in [
        "a&lt;b&gt;&amp;&#39;c&#39;.mp4",
        "x&lt;i&gt;&amp;",
        "160x120 I420, 25.00 frames/s",
        "#1: 40,30,48,48@5",
        "40 frames over",
        "<h2>Trajectory</h2>",
        "<h2>Score and state over time</h2>",
        "<h2>Latency</h2>",
        "<h2>Run</h2>",
        "data:image/jpeg;base64,",
        "prefers-color-scheme: dark",
    ] {
        assert!(page.contains(text), "{text} is not in the page");
    }
    assert!(!page.contains("<i>") && !page.contains("Interrupted"));
}

#[test]
fn ctrl_c_leaves_a_complete_report() {
    let place = Place::new();
    let mut child = live(&place, "--report out.html --results out.jsonl");
    await_frames(&place, 20);
    assert!(place.read("out.html").is_empty(), "it comes at the end: until then its name is taken");
    signal(&child, "INT");
    assert_eq!(child.wait().unwrap().code(), Some(130));
    let page = place.read("out.html");
    assert!(elements(&page).len() > 50);
    let count = frames(&place.records("out.jsonl")).len();
    assert!(page.contains("Interrupted before the end of the input."));
    assert!(page.contains(&format!("{count} frames over")), "{count} frames");
}

#[test]
fn reports_that_cannot_be_written_are_refused_before_the_video_starts() {
    let place = Place::new();
    let run = |more: &str| place.lockon(&format!("run ball.mp4 --track 40,30,48,48 --no-progress {more}"));
    fails(&run("--report out.pdf"), 2, "ends in .html");
    std::fs::create_dir(place.path("out.html")).unwrap();
    fails(&run("--report out.html"), 1, "cannot write out.html");
    std::fs::rename(place.path("ball.mp4"), place.path("ball.html")).unwrap();
    let same = place.lockon("run ball.html --track 40,30,48,48 --report ball.html");
    fails(&same, 2, "is both input and output");
}

#[test]
fn matches_are_followed_in_every_results_format() {
    let place = Place::new();
    let run = "run ball.mp4 --template ball=ball.png --min-score 0.6 --track-matches --no-progress";
    succeeds(place.lockon(&format!("{run} --results out.jsonl --results out.csv --results out.mot.txt")));
    let records = place.records("out.jsonl");
    assert_eq!(records[0]["track_matches"], true);
    let frames = frames(&records);
    let tracks = |frame: usize| frames[frame]["tracks"].as_array().unwrap().clone();
    assert_eq!((tracks(0).len(), tracks(1).len(), tracks(2).len()), (0, 0, 1));
    let first = &tracks(2)[0];
    assert_eq!((&first["id"], &first["template"]), (&1.into(), &"ball".into()));
    assert_eq!(first["x"], frames[2]["matches"][0]["x"].as_f64().unwrap());
    let csv = place.read("out.csv");
    assert!(
        csv.lines()
            .any(|line| line.starts_with("2,") && line.contains(",track,1,") && line.ends_with(",ball"))
    );
    assert!(place.read("out.mot.txt").starts_with("3,1,"), "tracks, no detections");
    fails(&place.lockon("run ball.mp4 --track 1,1,9,9 --track-matches"), 2, "--template");
}

fn interrupted_by(signal: &str, code: i32) {
    let place = Place::new();
    let mut child = live(&place, "-o out.mp4 --results out.jsonl");
    await_frames(&place, 50);
    // Twice, as `timeout` does: that is one request.
    let pid = child.id().to_string();
    assert!(Command::new("kill").args([signal, &pid]).status().unwrap().success());
    let _ = Command::new("kill").args([signal, &pid]).stderr(Stdio::null()).status();
    assert_eq!(child.wait().unwrap().code(), Some(code));
    let records = place.records("out.jsonl");
    let count = frames(&records).len();
    assert!(count >= 50, "{count}");
    assert_eq!(records.last().unwrap()["interrupted"], true);
    assert_eq!(place.play("out.mp4"), count);
}

#[test]
fn doctor_completions_and_the_man_page_speak() {
    let place = Place { dir: tempfile::tempdir().unwrap() };
    let doctor = place.lockon("doctor");
    let text = String::from_utf8(doctor.stdout).unwrap();
    assert!(text.contains("GStreamer 1."), "{text}");
    match lockon::backend::cuda::device(0) {
        Ok(info) => assert!(text.contains(&format!("ok       cuda: {}", info.name)), "{text}"),
        Err(_) => {
            assert!(text.contains("absent   cuda: ") && text.contains("NVIDIA's driver 530"), "{text}");
        }
    }
    for (words, says) in [("completions bash", "_lockon"), ("man", ".SH NAME"), ("run --help", "Examples:")] {
        let out = succeeds(place.lockon(words));
        assert!(String::from_utf8(out.stdout).unwrap().contains(says), "{words}");
    }
}

#[test]
fn a_reader_that_goes_away_is_no_crash() {
    let place = Place::new();
    let mut child = Command::new(program())
        .args(["run", "ball.mp4", "--threshold", "mean:31:5", "--results", "-", "--no-progress"])
        .current_dir(place.dir.path())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let out = child.wait_with_output().unwrap();
    assert_eq!(out.status.code(), Some(141), "{}", stderr(&out));
    assert!(!stderr(&out).contains("panicked"), "{}", stderr(&out));
}
