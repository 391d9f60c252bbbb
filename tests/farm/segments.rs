//! Long videos that are cut.

use super::*;

/// A video with B frames and a key frame every 25, of an odd length.
fn video(farm: &Farm, name: &str, muxer: &str) {
    let text = format!(
        "videotestsrc num-buffers=137 pattern=ball ! video/x-raw,width=176,height=144,framerate=25/1 ! \
         x264enc key-int-max=25 bframes=3 b-adapt=false speed-preset=ultrafast threads=1 ! {muxer} ! \
         filesink location={}",
        farm.path(name).display()
    );
    let made = Command::new("gst-launch-1.0").args(["-q"]).args(text.split_whitespace()).status().unwrap();
    assert!(made.success());
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
