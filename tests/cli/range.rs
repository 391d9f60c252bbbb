//! `--range full`: limited-range video, full-range video and pictures give the same results.

use super::*;
use lockon::colour::expanded;

const SIZE: Size = Size::new(72, 50);

/// One picture in three forms: a source of limited range, one of full range, and PNG files.
fn place() -> (Place, [Vec<String>; 3]) {
    let place = Place { dir: tempfile::tempdir().unwrap() };
    // Values below black and above white too, as encoders leave them.
    let limited = noise(9, SIZE);
    let full = Plane::from_vec(limited.data().iter().map(|&luma| expanded(luma)).collect(), SIZE);
    let raw = |luma: &Plane| [luma.data().to_vec(), vec![128; SIZE.area() / 2]].concat().repeat(3);
    std::fs::write(place.path("limited.yuv"), raw(&limited)).unwrap();
    std::fs::write(place.path("full.yuv"), raw(&full)).unwrap();
    std::fs::create_dir(place.path("seq")).unwrap();
    for number in 0..3 {
        lockon::still::save(&place.path(&format!("seq/{number}.png")), full.as_ref()).unwrap();
    }
    let part = full.as_ref().crop(lockon::frame::Rect::new(21, 11, 15, 13)).to_plane();
    lockon::still::save(&place.path("part.png"), part.as_ref()).unwrap();
    let source = |name: &str, colorimetry: &str| {
        let text = format!(
            "filesrc location={name}.yuv ! rawvideoparse width=72 height=50 format=i420 framerate=25/1 \
             colorimetry={colorimetry} ! appsink name=frames"
        );
        vec!["--source".to_owned(), text]
    };
    let sources = [source("limited", "bt601"), source("full", "1:4:0:0"), vec!["seq/%d.png".to_owned()]];
    (place, sources)
}

/// Returns the range of the run, and the threshold and matches of each frame.
fn answers(place: &Place, source: &[String], more: &[&str]) -> (Value, Vec<String>) {
    let mut args = vec!["run"];
    args.extend(source.iter().map(String::as_str));
    args.extend(["-t", "part.png", "--threshold", "mean:31:5", "--results", "out.jsonl", "-y"]);
    args.extend(more);
    succeeds(place.lockon_args(&args));
    let records = place.records("out.jsonl");
    let frames = frames(&records);
    assert_eq!(frames.len(), 3);
    let answer = |frame: &&Value| format!("{} {}", frame["threshold"], frame["matches"]);
    (records[0]["range"].clone(), frames.iter().map(answer).collect())
}

#[test]
fn limited_range_full_range_and_pictures_give_the_same_results_with_range_full() {
    let (place, sources) = place();
    let [limited, full, pictures] =
        sources.each_ref().map(|source| answers(&place, source, &["--range", "full"]));
    assert_eq!(limited, pictures);
    assert_eq!(full, pictures);
    assert_eq!(pictures.0, "full");
    assert!(pictures.1[0].contains("\"score\":1.0"), "{pictures:?}");
    // By default luma is taken as it is decoded, and records are unchanged.
    let [limited, full, pictures] = sources.each_ref().map(|source| answers(&place, source, &[]));
    assert_eq!((&full, &full.0), (&pictures, &Value::Null));
    assert_ne!(limited.1, pictures.1);
    assert_eq!(answers(&place, &sources[0], &["--range=as-is"]), limited);
}

#[test]
fn an_unknown_range_is_refused() {
    let place = Place { dir: tempfile::tempdir().unwrap() };
    fails(&place.lockon("run a.mp4 --range limited"), 2, "expected as-is or full");
}
