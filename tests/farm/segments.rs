//! Long videos that are cut.

use super::*;

/// A video of so many frames, encoded and muxed by the elements of `encoder`.
fn encode(farm: &Farm, name: &str, frames: u64, encoder: &str) {
    let text = format!(
        "videotestsrc num-buffers={frames} pattern=ball ! video/x-raw,width=176,height=144,framerate=25/1 ! \
         {encoder} ! filesink location={}",
        farm.path(name).display()
    );
    let made = Command::new("gst-launch-1.0").args(["-q"]).args(text.split_whitespace()).status().unwrap();
    assert!(made.success(), "{name}");
}

/// A video with B frames and a key frame every 25, of an odd length.
fn video(farm: &Farm, name: &str, muxer: &str) {
    let encoder = "x264enc key-int-max=25 bframes=3 b-adapt=false speed-preset=ultrafast threads=1";
    encode(farm, name, 137, &format!("{encoder} ! {muxer}"));
}

#[test]
fn results_of_segments_are_those_of_the_whole_to_the_bit() {
    let Some(farm) = Farm::start() else { return };
    video(&farm, "a.mp4", "mp4mux");
    video(&farm, "a.mkv", "matroskamux");
    farm.said(&["pick", "a.mp4", "--frame", "3", "--box", "60,50,41,37", "-o", "ball.png"]);
    let _workers = [farm.worker("one", &[]), farm.worker("two", &[])];
    for name in ["a.mp4", "a.mkv"] {
        let video = farm.path(name).to_str().unwrap().to_owned();
        let template = farm.path("ball.png").to_str().unwrap().to_owned();
        let words = [
            &*video,
            "--template",
            &template,
            "--threshold",
            "mean:31:5",
            "--min-score",
            "0.2",
            "--max-matches",
            "3",
        ];
        farm.said(
            &[
                &["run", "-y", "--backend", "cpu", "--no-progress"],
                &words[..],
                &["--results", "alone.jsonl", "--results", "alone.csv"],
            ]
            .concat(),
        );
        let expected = timeless(&farm.path("alone.jsonl"));
        assert_eq!(expected.len(), 139, "a line for each of 137 frames");
        let results = ["--results", "joined.jsonl", "--results", "joined.csv", "--split", "4", "--wait"];
        let said = farm.said(&[&["submit", "-y", "--backend", "cpu"], &words[..], &results].concat());
        assert!(said.contains("5 jobs submitted"), "{said}");
        assert_eq!(timeless(&farm.path("joined.jsonl")), expected, "{name}");
        assert!(
            fs::read(farm.path("joined.csv")).unwrap() == fs::read(farm.path("alone.csv")).unwrap(),
            "{name}"
        );
        let done = lockon::fleet::completion(&{
            let mut request = lockon::request::Request::new(&video).unwrap();
            request.template = vec![format!("ball={template}")];
            request.threshold = Some("mean:31:5".parse().unwrap());
            (request.min_score, request.max_matches) = (0.2, 3);
            request.results = vec![farm.path("joined.jsonl").to_str().unwrap().into()];
            request
        });
        assert_eq!(done.unwrap(), lockon::fleet::Completion::Done, "as --skip-done sees it");
    }
    let refused =
        farm.output(&["submit", "a.mp4", "--track", "1,2,30,40", "--results", "x.jsonl", "--split", "2"]);
    assert_eq!(refused.status.code(), Some(2));
    assert!(stderr(&refused).contains("needs the frames before"), "{}", stderr(&refused));
}

/// A seek in a transport stream ends between key frames, and parsers mark what follows as one.
#[test]
fn segments_of_a_transport_stream_begin_with_its_key_frames() {
    let Some(farm) = Farm::start() else { return };
    let _worker = farm.worker("one", &[]);
    for (name, encoder) in [
        ("closed.ts", "x264enc key-int-max=50 bframes=3 speed-preset=ultrafast threads=1"),
        ("open.ts", "x264enc key-int-max=50 bframes=3 option-string=open-gop=1 threads=1"),
        ("hevc.ts", "x265enc key-int-max=50 speed-preset=ultrafast log-level=none"),
    ] {
        encode(&farm, name, 503, &format!("{encoder} ! mpegtsmux"));
        let input = farm.path(name).to_str().unwrap().to_owned();
        let expected = alone(&farm, &[&input, "--threshold", "mean:31:5"], "alone.jsonl");
        let submit = ["submit", &input, "--threshold", "mean:31:5", "--results", "joined.jsonl", "-y"];
        let said = farm.said(&[&submit[..], &["--split", "7", "--wait", "--backend", "cpu"]].concat());
        assert!(said.contains("8 jobs submitted"), "{name}: {said}");
        assert!(timeless(&farm.path("joined.jsonl")) == expected, "{name}");
        let joined = fs::read_to_string(farm.path("joined.jsonl")).unwrap();
        let summary: Value = serde_json::from_str(joined.lines().last().unwrap()).unwrap();
        assert_eq!(summary["frames"], 503, "{name}");
        // With open GOPs a decoder reports references to pictures before its first one.
        assert!(name == "open.ts" || summary["damaged"] == 0, "{name}: {summary}");
    }
}

#[test]
fn a_video_that_was_given_up_is_tried_again_whether_its_segments_are_there_or_lost() {
    let Some(farm) = Farm::start() else { return };
    video(&farm, "a.mp4", "mp4mux");
    let input = farm.path("a.mp4").to_str().unwrap().to_owned();
    let expected = alone(&farm, &[&input, "--threshold", "mean:31:5"], "alone.jsonl");
    let _worker = farm.worker("one", &[]);
    // A file of another program is at the place of the joined results.
    fs::write(farm.path("a.jsonl"), "mine\n").unwrap();
    let submit = ["submit", "a.mp4", "--threshold", "mean:31:5", "--results", "a.jsonl", "--split", "3"];
    let output = farm.output(&[&submit[..], &["--wait", "--backend", "cpu"]].concat());
    assert!(stderr(&output).contains("submit it with -y"), "{}", stderr(&output));
    let id = String::from_utf8(output.stdout).unwrap().trim().to_owned();
    let of_whole = |jobs: &[Value]| jobs.iter().find(|job| job["job"]["id"] == id).unwrap().clone();
    fs::remove_file(farm.path("a.jsonl")).unwrap();
    farm.tell_server("$JS.API.STREAM.PURGE.lockon-main-results", "");
    farm.said(&["jobs", "retry", &id]);
    let jobs = farm.until("it is given up", |jobs| status(&of_whole(jobs)) == "failed");
    let error = of_whole(&jobs)["tries"][0]["error"].as_str().unwrap().to_owned();
    assert!(error.contains("a.mp4 1/3 are no longer in the farm: run `lockon jobs retry`"), "{error}");
    farm.said(&["jobs", "retry", &id]);
    farm.until("it is done", |jobs| all_are(jobs, "done"));
    assert_eq!(timeless(&farm.path("a.jsonl")), expected);
}

#[test]
fn segments_that_are_done_are_forgotten_with_their_whole_and_not_before() {
    let Some(farm) = Farm::start() else { return };
    video(&farm, "a.mp4", "mp4mux");
    let submit = ["submit", "a.mp4", "--threshold", "mean:31:5", "--results", "a.jsonl", "--split", "3"];
    farm.said(&submit);
    // As a worker says that it has done one.
    let jobs = farm.jobs();
    let mut part = jobs.iter().find(|job| !job["job"]["segment"].is_null()).unwrap().clone();
    part["status"] = "done".into();
    let id = part["job"]["id"].as_str().unwrap().to_owned();
    farm.tell_server(&format!("lockon.main.state.{id}"), &part.to_string());
    for words in [&["jobs", "purge", "--all"][..], &["jobs", "purge", &id]] {
        assert!(farm.said(words).contains("0 jobs removed"));
    }
    assert_eq!(farm.jobs().len(), 4);
    farm.said(&["jobs", "cancel", "--all"]);
    farm.said(&["jobs", "purge", "--all"]);
    assert!(farm.jobs().is_empty());
}

#[test]
fn a_video_that_was_given_up_when_it_was_joined_has_its_segments_still() {
    let Some(farm) = Farm::start() else { return };
    video(&farm, "a.mp4", "mp4mux");
    let _worker = farm.worker("one", &[]);
    fs::write(farm.path("a.jsonl"), "mine\n").unwrap();
    let submit = ["submit", "a.mp4", "--threshold", "mean:31:5", "--results", "a.jsonl", "--split", "3"];
    assert!(!farm.output(&[&submit[..], &["--wait"]].concat()).status.success());
    fs::remove_file(farm.path("a.jsonl")).unwrap();
    let done = |jobs: &[Value]| jobs.iter().filter(|job| status(job) == "done").count();
    assert_eq!(done(&farm.jobs()), 3);
    farm.said(&["jobs", "retry", "--all"]);
    farm.until("it is done", |jobs| done(jobs) == 4);
    assert_eq!(timeless(&farm.path("a.jsonl")).len(), 139);
}
