//! Results files for other tools, compared with the JSON Lines of the same run.

use std::collections::BTreeMap;
use std::process::Command;

use serde_json::Value;

use crate::util::{program, root};

/// Returns the boxes of tracks that are not lost in JSON Lines, by frame and number.
fn boxes(lines: &str) -> BTreeMap<(u64, u64), [f64; 4]> {
    let mut boxes = BTreeMap::new();
    for line in lines.lines() {
        let record: Value = serde_json::from_str(line).unwrap();
        for track in
            record["tracks"].as_array().into_iter().flatten().filter(|track| track["state"] != "lost")
        {
            if record["type"] == "frame" {
                let bounds = ["x", "y", "w", "h"].map(|key| track[key].as_f64().unwrap());
                boxes.insert((record["frame"].as_u64().unwrap(), track["id"].as_u64().unwrap()), bounds);
            }
        }
    }
    boxes
}

/// The value of an attribute of an XML tag.
fn attribute<'a>(tag: &'a str, name: &str) -> &'a str {
    let start = tag.find(&format!(" {name}=\"")).unwrap() + name.len() + 3;
    &tag[start..][..tag[start..].find('"').unwrap()]
}

/// The boxes that CVAT shows of a track in the frames up to `last`: linear between key frames.
fn shown(track: &str, last: u64) -> BTreeMap<u64, [f64; 4]> {
    let keys: Vec<(u64, bool, [f64; 4])> = track
        .match_indices("<box ")
        .map(|(at, _)| {
            let tag = &track[at..][..track[at..].find('>').unwrap()];
            let edges = ["xtl", "ytl", "xbr", "ybr"].map(|edge| attribute(tag, edge).parse().unwrap());
            (attribute(tag, "frame").parse().unwrap(), attribute(tag, "outside") == "1", edges)
        })
        .collect();
    let mut shown = BTreeMap::new();
    for (index, (from, is_outside, edges)) in keys.iter().enumerate().filter(|(_, key)| !key.1) {
        assert!(!is_outside);
        let (to, _, behind) = keys.get(index + 1).copied().unwrap_or((last + 1, true, *edges));
        for frame in *from..to {
            let share = (frame - from) as f64 / (to - from) as f64;
            shown.insert(frame, std::array::from_fn(|i| edges[i] + share * (behind[i] - edges[i])));
        }
    }
    shown
}

#[test]
fn cvat_and_coco_have_the_boxes_of_the_json_lines_of_the_same_run() {
    let dir = tempfile::tempdir().unwrap();
    let output = Command::new(program())
        .current_dir(dir.path())
        .arg("run")
        .arg(root().join("examples/media/cars.mp4"))
        .args(["--template", root().join("examples/media/car.png").to_str().unwrap(), "--track-matches"])
        // And a marking of the road, which is there all the time.
        .args(["--track", "572,0,56,40", "--backend", "cpu", "--no-progress"])
        .args(["--results", "a.jsonl", "--results", "a.cvat.xml", "--results", "a.coco.json"])
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let read = |name: &str| std::fs::read_to_string(dir.path().join(name)).unwrap();
    let found = boxes(&read("a.jsonl"));
    assert!(found.len() > 50, "{} boxes", found.len());

    let xml = read("a.cvat.xml");
    let mut interpolated = BTreeMap::new();
    for track in xml.split("<track ").skip(1) {
        let id: u64 = attribute(&format!(" {track}"), "id").parse().unwrap();
        interpolated.extend(shown(track, 59).into_iter().map(|(frame, edges)| ((frame, id), edges)));
    }
    assert!(interpolated.keys().eq(found.keys()), "it is seen where it was found, and nowhere else");
    for (place, [x, y, w, h]) in &found {
        let edges = interpolated[place];
        let farthest = edges.iter().zip([*x, *y, x + w, y + h]).map(|(a, b)| (a - b).abs());
        assert!(farthest.fold(0.0, f64::max) <= 1.0, "{place:?}: {edges:?}");
    }
    let keys = xml.matches("<box ").count();
    // The car comes nearer and shakes, at 12 frames a second.
    assert!(3 * keys < 2 * found.len(), "{keys} key frames for {} boxes", found.len());

    let coco: Value = serde_json::from_str(&read("a.coco.json")).unwrap();
    let annotated: BTreeMap<_, _> = coco["annotations"]
        .as_array()
        .unwrap()
        .iter()
        .map(|a| {
            let place = (a["image_id"].as_u64().unwrap() - 1, a["track_id"].as_u64().unwrap());
            (place, [0, 1, 2, 3].map(|i| a["bbox"][i].as_f64().unwrap()))
        })
        .collect();
    assert_eq!(annotated, found);
    assert_eq!(coco["images"].as_array().unwrap().len(), 60);
}
