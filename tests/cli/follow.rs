//! A part of the picture that follows a track.

use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;

use crate::util::{noise, paste, program};
use lockon::frame::{Plane, Size};
use lockon::still;

const FRAMES: usize = 75;
const TARGET: Size = Size::new(32, 32);

fn lockon(dir: &Path, words: &str) -> Output {
    let output = Command::new(program())
        .current_dir(dir)
        .args(words.split_whitespace())
        .args(["--backend", "cpu", "--no-progress"])
        .output()
        .unwrap();
    assert!(output.status.success(), "{words}: {}", String::from_utf8_lossy(&output.stderr));
    output
}

/// A patch of noise that moves by two pixels a frame to the right and one down, over a smooth picture; the
/// middle of the patch in frame `index`.
fn middle(index: usize) -> [f64; 2] {
    [60.0 + 2.0 * index as f64 + 16.0, 60.0 + index as f64 + 16.0]
}

fn write_pictures(dir: &Path) {
    let size = Size::new(320, 240);
    let patch = noise(7, TARGET);
    still::save(&dir.join("patch.png"), patch.as_ref()).unwrap();
    for index in 0..FRAMES {
        let ground = (0..size.area()).map(|at| (60 + (at % 320) / 8 + (at / 320) / 6) as u8).collect();
        let mut picture = Plane::from_vec(ground, size);
        let [x, y] = middle(index);
        paste(&mut picture, &patch, x as usize - 16, y as usize - 16);
        still::save(&dir.join(format!("{index:04}.png")), picture.as_ref()).unwrap();
    }
}

#[test]
fn what_follows_a_track_keeps_it_in_the_middle_without_shaking() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    write_pictures(dir);
    let follow = "run %04d.png --fps 25 --track 60,60,32,32 --follow 128x96 --no-audio";
    lockon(dir, &format!("{follow} -o a.avi"));
    lockon(dir, &format!("{follow} -o b.avi"));
    let read = |name: &str| std::fs::read(dir.join(name)).unwrap();
    assert!(read("a.avi") == read("b.avi"), "the same again, to the byte");
    let found = lockon(dir, "run a.avi --template patch.png --min-score 0.5 --results -").stdout;
    let found: Vec<[f64; 2]> = found
        .split(|&b| b == b'\n')
        .filter_map(|line| serde_json::from_slice::<Value>(line).ok())
        .filter(|record| record["type"] == "frame")
        .map(|record| {
            let found = &record["matches"][0];
            ["cx", "cy"].map(|key| found[key].as_f64().unwrap_or_else(|| panic!("no target in {record}")))
        })
        .collect();
    assert_eq!(found.len(), FRAMES);
    // In the middle from the second second on, in spite of whole pixels and of the tracker's own error.
    for (index, [x, y]) in found.iter().enumerate().skip(50) {
        assert!((x - 64.0).abs() < 1.5 && (y - 48.0).abs() < 1.5, "frame {index}: {x}, {y}");
    }
    // Where the part is in the picture: the target's place there less that in the part.
    let places: Vec<_> =
        (0..FRAMES).map(|index| [0, 1].map(|axis| middle(index)[axis] - found[index][axis])).collect();
    for (index, w) in places.windows(3).enumerate().skip(5) {
        let jerk = [0, 1].map(|axis| (w[2][axis] - 2.0 * w[1][axis] + w[0][axis]).abs());
        assert!(jerk[0] < 0.6 && jerk[1] < 0.6, "frame {index}: {jerk:?}");
    }
}

#[test]
fn it_is_larger_where_that_is_asked_for_and_needs_something_to_follow() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    write_pictures(dir);
    lockon(
        dir,
        "run %04d.png --fps 25 --track 60,60,32,32 --follow 128x96@1 --follow-zoom 2 --max-frames 60 -o a.avi",
    );
    let found =
        lockon(dir, "run a.avi --template patch.png --scales 2 --min-score 0.5 --results - --start 55")
            .stdout;
    let found = String::from_utf8(found).unwrap();
    let record: Value = serde_json::from_str(found.lines().nth(1).unwrap()).unwrap();
    let at = ["cx", "cy"].map(|key| record["matches"][0][key].as_f64().unwrap());
    assert!((at[0] - 64.0).abs() < 3.0 && (at[1] - 48.0).abs() < 3.0, "{record}");
    for (words, expected) in [
        ("--track 1,1,32,32 --follow 64x64", "--follow needs --output"),
        ("--threshold mean:5:1 --follow 64x64 -o x.avi", "--follow needs tracks"),
        ("--track 1,1,32,32 --follow 64x64 -o x.avi --view overlay", "--follow cannot be used with --view"),
        ("--track 1,1,32,32 --follow 8x8 -o x.avi", "expected WIDTHxHEIGHT[@TRACK]"),
    ] {
        let output = Command::new(program())
            .current_dir(dir)
            .args(["run", "%04d.png"])
            .args(words.split_whitespace())
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.code() == Some(2) && said.contains(expected), "{words}: {said}");
    }
}
