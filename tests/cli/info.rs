//! `lockon info`, and the choice of a video stream.

use super::*;

/// Two video streams and sound.
fn two_streams(place: &Place) {
    let video = "videotestsrc num-buffers=12 ! video/x-raw,height=48,framerate=12/1";
    let sound = "audiotestsrc num-buffers=40 ! audio/x-raw,rate=22050,channels=1 ! vorbisenc";
    place.gst(&format!(
        "matroskamux name=mux ! filesink location=two.mkv {video},width=64 ! x264enc ! mux. \
         {video},width=32 ! x264enc ! mux. {sound} ! mux."
    ));
}

fn json_of(place: &Place, words: &str) -> Value {
    let out = succeeds(place.lockon(&format!("info --json {words}")));
    serde_json::from_slice(&out.stdout).unwrap()
}

#[test]
fn info_names_every_stream_and_the_one_that_is_used() {
    let place = Place { dir: tempfile::tempdir().unwrap() };
    two_streams(&place);
    let info = json_of(&place, "two.mkv");
    let streams = info["streams"].as_array().unwrap();
    let seen: Vec<_> = streams.iter().map(|s| (s["kind"].as_str().unwrap(), s["used"] == true)).collect();
    assert_eq!(seen, [("video", true), ("video", false), ("sound", false)]);
    assert_eq!((&streams[0]["codec"], &streams[0]["width"]), (&"H.264".into(), &64.into()));
    assert_eq!((&streams[0]["frame_rate"], &streams[1]["width"]), (&"12/1".into(), &32.into()));
    assert_eq!(info["container"], "video/x-matroska");
    let sound = &streams[2];
    assert_eq!((&sound["codec"], &sound["sample_rate"]), (&"Vorbis".into(), &22050.into()));
    assert_eq!(sound["channels"], 1);
    let decoded = &info["decoded"];
    assert_eq!((&decoded["width"], &decoded["height"]), (&64.into(), &48.into()));
    assert_eq!((&decoded["range"], &decoded["decoder"]), (&"limited".into(), &"avdec_h264".into()));
    assert_eq!((&info["live"], &info["frames_are_counted"]), (&false.into(), &false.into()));
    assert_eq!(info["bytes"], place.path("two.mkv").metadata().unwrap().len());
    let counted = json_of(&place, "two.mkv --count --video-stream 1");
    assert_eq!((&counted["frames"], &counted["frames_are_counted"]), (&12.into(), &true.into()));
    assert_eq!(counted["decoded"]["width"], 32);
    let text = String::from_utf8(succeeds(place.lockon("info two.mkv --count")).stdout).unwrap();
    for expected in ["video 0 (used)", "H.264, profile", "64x48", "sound 0", "22050 Hz, 1 channel", "frames"]
    {
        assert!(text.contains(expected), "{expected}: {text}");
    }
    assert!(text.lines().any(|line| line.starts_with("frames") && line.ends_with(" 12")), "{text}");
}

#[test]
fn info_of_what_has_no_video_is_an_error_and_of_pictures_is_not() {
    let place = Place { dir: tempfile::tempdir().unwrap() };
    place.gst("audiotestsrc num-buffers=9 ! wavenc ! filesink location=a.wav");
    fails(&place.lockon("info a.wav"), 1, "it has no video stream");
    fails(&place.lockon("info missing.mp4"), 1, "missing.mp4");
    fails(&place.lockon("info"), 2, "INPUT");
    place.gst("videotestsrc num-buffers=3 ! video/x-raw,width=33,height=17 ! pngenc ! multifilesink location=p%d.png");
    let info = json_of(&place, "p*.png --count");
    assert_eq!((&info["frames"], &info["decoded"]["width"]), (&3.into(), &33.into()));
}

#[test]
fn escape_sequences_in_a_files_tags_do_not_reach_the_terminal() {
    let place = Place { dir: tempfile::tempdir().unwrap() };
    place.gst(
        "videotestsrc num-buffers=3 ! video/x-raw,format=I420,width=64,height=48 ! x264enc ! \
         taginject tags=language-code=fr ! matroskamux ! filesink location=tagged.mkv",
    );
    let mut bytes = std::fs::read(place.path("tagged.mkv")).unwrap();
    let at = bytes.windows(6).position(|w| w == b"\x22\xb5\x9c\x84fr").expect("the language of the stream");
    bytes[at + 4..][..3].copy_from_slice(b"\x1b[m");
    std::fs::write(place.path("tagged.mkv"), bytes).unwrap();
    let out = succeeds(place.lockon("info tagged.mkv"));
    let text = String::from_utf8(out.stdout).unwrap();
    assert!(text.contains("\\u{1b}[m") && !text.contains('\u{1b}'), "{text:?}");
    let language = &json_of(&place, "tagged.mkv")["streams"][0]["language"];
    assert_eq!(language, "\u{1b}[m");
}

#[test]
fn a_video_stream_is_chosen_by_its_number_which_a_job_file_keeps() {
    let place = Place { dir: tempfile::tempdir().unwrap() };
    two_streams(&place);
    let words = "run two.mkv --threshold mean:31:5 --no-progress -y --results out.jsonl";
    let width = || place.records("out.jsonl")[0]["width"].clone();
    let out = succeeds(place.lockon(words));
    let said = stderr(&out);
    assert!(said.contains("it has 2 video streams: 0 (64x48, default), 1 (32x48, default)"), "{said}");
    assert_eq!(said.matches("video streams").count(), 1, "{said}");
    assert_eq!(width(), 64);
    let job = succeeds(place.lockon(&format!("{words} --video-stream 1 --print-job"))).stdout;
    std::fs::write(place.path("job.toml"), job).unwrap();
    let out = succeeds(place.lockon("run @job.toml --no-progress -y"));
    assert_eq!((width(), stderr(&out).contains("video streams")), (32.into(), false));
    let line = succeeds(place.lockon(&format!("{words} --video-stream 1 --print-pipeline --as-element")));
    let line = String::from_utf8(line.stdout).unwrap();
    assert!(line.contains("decode.src_1 !"), "{line}");
    let out = place.lockon(&format!("{words} --video-stream 2"));
    fails(&out, 1, "there is no video stream 2: it has 2 video streams: 0 (64x48, default), 1 (32x48");
    fails(
        &place.lockon("run camera --threshold mean:31:5 --video-stream 0"),
        2,
        "--video-stream is for files",
    );
}
