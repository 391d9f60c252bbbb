//! Appearances, clips of them, and hidden parts of pictures, by the program.

use super::{Place, fails, frames, stderr, succeeds};

impl Place {
    /// `appears.mp4`: the ball for 40 frames, nothing for 75, the ball for 40; 25 frames a second, a key
    /// frame every 10 at least, and sound.
    fn with_appearances() -> Self {
        let place = Self::new();
        let ball = "videotestsrc num-buffers=40 pattern=ball motion=sweep ! video/x-raw,format=I420,width=160,height=120,framerate=25/1";
        let none = "videotestsrc num-buffers=75 pattern=black ! video/x-raw,format=I420,width=160,height=120,framerate=25/1";
        place.gst(&format!(
            "concat name=all ! identity single-segment=true ! x264enc pass=qual quantizer=10 key-int-max=10 ! mp4mux name=mux ! filesink location={} \
             {ball} ! all. {none} ! all. {ball} ! all. \
             audiotestsrc num-buffers=310 samplesperbuffer=960 ! audio/x-raw,rate=48000,channels=1 ! avenc_aac ! mux.",
            place.path("appears.mp4").display()
        ));
        place
    }

    /// How many frames and packets of sound a file has.
    fn streams(&self, file: &str) -> (usize, usize) {
        let count = |kind: &str| {
            let counted = std::process::Command::new("gst-launch-1.0")
                .args(["-v", "filesrc", &format!("location={file}"), "!", "parsebin", "!", kind, "!"])
                .args(["identity", "silent=false", "!", "fakesink"])
                .current_dir(self.dir.path())
                .output()
                .unwrap();
            String::from_utf8_lossy(&counted.stdout).matches("chain ").count()
        };
        (self.play(file), count("audio/mpeg"))
    }
}

const SEARCH: &str = "run appears.mp4 --template ball.png --min-score 0.9 --backend cpu --no-progress";

#[test]
fn each_appearance_is_a_row_and_a_clip_that_is_copied_with_its_sound() {
    let place = Place::with_appearances();
    let words = format!(
        "{SEARCH} --results a.intervals.csv --results b.intervals.jsonl --report r.html --cut {{name}}-{{n}}.mp4 --cut-padding 0s"
    );
    let said = stderr(&succeeds(place.lockon(&words)));
    assert!(
        said.contains("ball appeared 2 times: frames 0 to 39 (0.00 s to 1.56 s), frames 115 to 154"),
        "{said}"
    );
    let csv = place.read("a.intervals.csv");
    let rows: Vec<Vec<&str>> = csv.lines().skip(1).map(|line| line.split(',').collect()).collect();
    assert_eq!(rows.len(), 2, "{csv}");
    assert_eq!(rows[0][..7], ["ball", "", "0", "39", "0", "1.56", "40"]);
    assert_eq!(rows[1][..7], ["ball", "", "115", "154", "4.6", "6.16", "40"]);
    let records = place.records("b.intervals.jsonl");
    assert_eq!(records.len(), 2);
    assert_eq!((&records[1]["type"], &records[1]["start_frame"]), (&"interval".into(), &115.into()));
    assert!(place.read("r.html").contains("<h2>Appearances</h2>"));
    // From the last key frame on: at most 9 frames more. The sound is as long as the picture.
    for clip in ["ball-1.mp4", "ball-2.mp4"] {
        let (pictures, sounds) = place.streams(clip);
        assert!((40..50).contains(&pictures), "{clip}: {pictures}");
        let seconds = pictures as f64 / 25.0;
        assert!(
            (sounds as f64 * 1024.0 / 48_000.0 - seconds).abs() < 0.1,
            "{clip}: {sounds} packets for {seconds} s"
        );
    }
    assert!(!place.path("ball-3.mp4").exists());
    // Files that exist are not lost.
    std::fs::write(place.path("ball-2.mp4"), "mine").unwrap();
    fails(
        &place.lockon(
            &words.replace(" --results a.intervals.csv --results b.intervals.jsonl --report r.html", ""),
        ),
        1,
        "ball-1.mp4, ball-2.mp4 exist already",
    );
    assert_eq!(place.read("ball-2.mp4"), "mine");
    succeeds(place.lockon(&format!("{words} -y")));
    assert!(place.play("ball-2.mp4") >= 40);
}

#[test]
fn clips_of_a_video_without_sound_are_copied() {
    let place = Place::new();
    for container in ["mp4", "mkv"] {
        let muxer = if container == "mp4" { "mp4mux" } else { "matroskamux" };
        place.gst(&format!(
            "videotestsrc num-buffers=45 pattern=ball motion=sweep ! video/x-raw,format=I420,width=160,height=120,framerate=25/1 ! \
             x264enc pass=qual quantizer=10 key-int-max=7 ! {muxer} ! filesink location=silent.{container}"
        ));
        let words = format!(
            "run silent.{container} --track 0,0,160,120@0 --backend cpu --no-progress --cut {{n}}-silent.{container}"
        );
        let said = stderr(&succeeds(place.lockon(&words)));
        assert!(!said.contains("clips are encoded"), "{said}");
        assert_eq!(place.streams(&format!("1-silent.{container}")), (45, 0), "{container}: {said}");
    }
}

#[test]
fn a_longer_gap_makes_one_appearance_of_two() {
    let place = Place::with_appearances();
    succeeds(place.lockon(&format!("{SEARCH} --results a.intervals.csv --gap 3.1s")));
    assert_eq!(place.read("a.intervals.csv").lines().count(), 2);
    // A gap changes no other results.
    succeeds(place.lockon(&format!("{SEARCH} --results a.jsonl --gap 3.1s")));
    succeeds(place.lockon(&format!("{SEARCH} --results b.jsonl")));
    assert_eq!(super::timeless(&place.read("a.jsonl")), super::timeless(&place.read("b.jsonl")));
}

#[test]
fn exact_clips_have_the_frames_of_the_appearance_and_its_padding() {
    let place = Place::with_appearances();
    succeeds(place.lockon(&format!("{SEARCH} --cut {{n}}.mkv --cut-exact --cut-padding 200ms --gap 40ms")));
    // 5 frames are within 200 ms on each side, if there are so many.
    assert_eq!((place.play("1.mkv"), place.play("2.mkv")), (45, 45));
}

#[test]
fn names_of_clips_that_cannot_be_several_are_wrong_usage() {
    let place = Place::new();
    for (cut, says) in [("a.mp4", "{n}"), ("{n}.txt", ".mp4"), ("{name}/{n}.mp4", "folder")] {
        fails(&place.lockon(&format!("run ball.mp4 --template ball.png --cut {cut}")), 2, says);
    }
}

#[test]
fn what_is_hidden_cannot_be_found_in_the_written_video() {
    let place = Place::new();
    for file in ["cars.mp4", "car.png"] {
        std::fs::copy(crate::util::root().join("examples/media").join(file), place.path(file)).unwrap();
    }
    let found = |video: &str| {
        let search =
            "--template car.png --min-score 0.9 --backend cpu --no-progress --results found.jsonl -y";
        succeeds(place.lockon(&format!("run {video} {search}")));
        let records = place.records("found.jsonl");
        frames(&records).iter().filter(|frame| !frame["matches"].as_array().unwrap().is_empty()).count()
    };
    assert!(found("cars.mp4") > 5);
    for hide in ["--blur all", "--pixelate car", "--blur 1"] {
        let words =
            "run cars.mp4 --template car.png --track-matches --backend cpu --no-progress --every 2 -y";
        succeeds(place.lockon(&format!("{words} {hide} --cut {{n}}.mkv -o hidden.mkv")));
        for video in ["hidden.mkv", "1.mkv"] {
            // Track 1 begins with the third match.
            let before = if hide == "--blur 1" { 2 } else { 0 };
            assert!(found(video) <= before, "{hide} {video}");
        }
    }
    let search = "run ball.mp4 --template ball.png --min-score 0.9 --backend cpu --no-progress";
    // A name that nothing has would hide nothing.
    fails(
        &place.lockon(&format!("{search} --blur Ball -o a.mkv -y")),
        2,
        "--blur Ball: nothing has that name: the names are ball",
    );
    assert!(!place.path("a.mkv").exists());
    // Nothing with the name `other` is in the video, so it is the same.
    let other = "--template other=car.png";
    let same = succeeds(place.lockon(&format!("{search} {other} --blur other -o a.mkv -y")));
    assert!(!stderr(&same).contains("hid nothing"), "{}", stderr(&same));
    succeeds(place.lockon(&format!("{search} {other} -o b.mkv -y")));
    assert_eq!(place.frame("a.mkv").data(), place.frame("b.mkv").data());
    fails(
        &place.lockon(&format!("{search} --blur all --results c.jsonl")),
        2,
        "--blur and --pixelate hide parts",
    );
    fails(
        &place.lockon(&format!("{search} --blur all --serve 0 -o c.mkv")),
        2,
        "cannot be used with --serve",
    );
    let as_element = format!("{search} --blur all -o c.mkv --print-pipeline --as-element");
    fails(&place.lockon(&as_element), 2, "the element hides nothing");
}

#[test]
fn a_tracks_name_stands_where_its_number_does() {
    let place = Place::new();
    let words = "run ball.mp4 --track van=0,0,160,120@0 --backend cpu --no-progress --results a.jsonl --results a.csv \
                 --results a.cvat.xml --results a.coco.json --results a.mot.txt --report a.html";
    let said = stderr(&succeeds(place.lockon(words)));
    assert!(said.contains("#1 (van): tracked"), "{said}");
    let records = place.records("a.jsonl");
    assert_eq!(records[0]["tracks"][0], "van=0,0,160,120@0");
    assert!(
        frames(&records)
            .iter()
            .all(|frame| frame["tracks"][0]["name"] == "van" && frame["tracks"][0]["id"] == 1)
    );
    assert_eq!(records.last().unwrap()["tracks"][0]["name"], "van");
    assert!(place.read("a.csv").lines().nth(1).unwrap().starts_with("0,0,track,van,tracked,"));
    assert!(place.read("a.cvat.xml").contains("label=\"van\""));
    assert!(place.read("a.coco.json").contains("\"name\":\"van\""));
    assert!(place.read("a.mot.txt").starts_with("1,1,"));
    assert!(place.read("a.html").contains("#1 van"));
    fails(&place.lockon("run ball.mp4 --track a=1,1,9,9 --track a=2,2,9,9"), 2, "two tracks are named a");
    // Without a name nothing of it is there.
    succeeds(
        place.lockon("run ball.mp4 --track 0,0,160,120@0 --backend cpu --no-progress --results b.jsonl"),
    );
    assert!(!place.read("b.jsonl").contains("\"name\""));
}
