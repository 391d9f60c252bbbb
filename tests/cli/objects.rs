//! Objects: `lockon threshold --objects`, and of videos.

use super::*;

use lockon::config::ObjectSpec;
use lockon::reference;

/// A folder with `scene.png`: noise over waves, which thresholds cut into parts of every size.
fn place() -> (Place, Plane) {
    let place = Place { dir: tempfile::tempdir().unwrap() };
    let size = Size::new(121, 77);
    let mut scene = noise(3, size);
    for (at, pixel) in scene.data_mut().iter_mut().enumerate() {
        let (x, y) = ((at % size.width) as f64, (at / size.width) as f64);
        let wave = 100.0 + 60.0 * (x / 7.0).sin() * (y / 9.0).cos();
        *pixel = wave as u8 + *pixel % 64;
    }
    lockon::still::save(&place.path("scene.png"), scene.as_ref()).unwrap();
    (place, scene)
}

fn record(out: &Output) -> Value {
    serde_json::from_slice(&out.stdout).unwrap_or_else(|error| panic!("{error}: {}", stderr(out)))
}

#[test]
fn objects_of_a_still_picture_and_its_mask_are_those_of_the_definition() {
    let (place, scene) = place();
    let method = "mean:21:3";
    let mask = reference::threshold::threshold(scene.as_ref(), &method.parse().unwrap());
    let three = || Some("3".parse().unwrap());
    let (mut spec, usual) = (ObjectSpec::default(), ObjectSpec::default());
    spec.colour = "black".parse().unwrap();
    spec.connectivity = "4".parse().unwrap();
    (spec.cleaning.open, spec.cleaning.close, spec.cleaning.fill_holes) = (three(), three(), true);
    (spec.area, spec.size) = ("4..900".parse().unwrap(), "2x2..".parse().unwrap());
    let options = "--object-colour black --connect 4 --open 3 --close 3 --fill-holes --object-area 4..900 --object-size 2x2..";
    for (options, spec) in
        [("", usual), (options, spec), ("--object-max 3", ObjectSpec { max: Some(3), ..usual })]
    {
        let expected = reference::objects::find(mask.as_ref(), scene.as_ref(), &spec);
        assert!(expected.objects.len() > 2, "{options}: {} objects", expected.objects.len());
        let words = format!("threshold scene.png -y -o mask.png --method {method} --objects {options}");
        let out = succeeds(place.lockon(&words));
        let record = record(&out);
        assert_eq!(record["type"], "frame");
        assert_eq!(record["objects"], serde_json::to_value(&expected.objects).unwrap(), "{options}");
        let more = record.get("more_objects").map_or(0, |more| more.as_u64().unwrap());
        assert_eq!(more, expected.more, "{options}");
        assert_eq!(lockon::still::load(&place.path("mask.png")).unwrap().luma, expected.mask, "{options}");
        let says = format!("largest objects are reported, {more} are left out");
        assert_eq!(stderr(&out).contains(&says), more > 0, "{}", stderr(&out));
    }
}

#[test]
fn a_mask_is_cleaned_without_objects_too_and_a_picture_without_objects_is_no_error() {
    let (place, scene) = place();
    succeeds(place.lockon("threshold scene.png -o mask.png --method mean:21:3 --open 5"));
    let mask = reference::threshold::threshold(scene.as_ref(), &"mean:21:3".parse().unwrap());
    let mut spec = ObjectSpec::default();
    spec.cleaning.open = Some("5".parse().unwrap());
    let expected = reference::objects::find(mask.as_ref(), scene.as_ref(), &spec).mask;
    assert_ne!(expected, mask);
    assert_eq!(lockon::still::load(&place.path("mask.png")).unwrap().luma, expected);
    let none = "threshold scene.png --method mean:21:3 --objects --object-area 9999..";
    assert_eq!(record(&succeeds(place.lockon(none)))["objects"], serde_json::json!([]));
}

#[test]
fn the_overlay_has_a_box_around_each_object_and_standard_output_takes_the_picture() {
    let (place, _) = place();
    // The overlay of a grey picture is grey too.
    image::open(place.path("scene.png")).unwrap().into_rgb8().save(place.path("colour.png")).unwrap();
    let words = "threshold colour.png --method mean:21:-20 --objects --object-max 1 --view overlay -o";
    let found = record(&succeeds(place.lockon(&format!("{words} found.png"))));
    let at = |key: &str| found["objects"][0][key].as_u64().unwrap() as usize;
    let picture = image::open(place.path("found.png")).unwrap().into_rgb8();
    // Its lines lie around the object, and inside where the picture ends.
    let middle = (at("x") + at("w") / 2) as u32;
    let is_line = |y: usize| {
        let image::Rgb([red, green, _]) = *picture.get_pixel(middle, y as u32);
        red > 200 && green < 80
    };
    assert!((at("y").saturating_sub(2)..=at("y")).any(is_line), "{found}");
    let out = succeeds(place.lockon(&format!("{words} -")));
    assert!(out.stdout.starts_with(b"\x89PNG"), "{:?}", &out.stdout[..8]);
    assert_eq!(image::load_from_memory(&out.stdout).unwrap().into_rgb8(), picture);
}

#[test]
fn options_of_objects_that_mean_nothing_are_wrong_usage() {
    let (place, _) = place();
    for (words, says) in [
        ("", "--output <FILE>"),
        ("-o mask.png --object-area 3..", "--objects"),
        ("-o mask.png --object-colour black", "--objects"),
        ("--objects --view overlay", "--output <FILE>"),
        ("-o mask.png --view overlay", "--objects"),
        ("-o mask.png --objects --view split", "--view split is for videos"),
        ("--objects --object-area 9..3", "the range ends before it begins"),
        ("--objects --object-size 9..30", "expected WxH..WxH"),
        ("--objects --object-max 0", "not 1 or more"),
        ("--objects --connect 6", "expected 4 or 8"),
        ("-o mask.png --open 3 --connect 4", "--objects"),
        ("--objects --open 4", "expected an odd number from 3 to 255"),
    ] {
        fails(&place.lockon(&format!("threshold scene.png --method mean:21:3 {words}")), 2, says);
        assert!(!place.path("mask.png").exists(), "{words}");
    }
}

/// A folder with `scene.png` and five pictures of a sequence, which move and get darker.
fn sequence() -> Place {
    let (place, scene) = place();
    std::fs::create_dir(place.path("seq")).unwrap();
    for index in 0..5 {
        let mut picture = scene.clone();
        picture.data_mut().rotate_left(7 * index);
        picture.data_mut().iter_mut().for_each(|pixel| *pixel -= *pixel / 8 * index as u8 / 4);
        lockon::still::save(&place.path(&format!("seq/{index}.png")), picture.as_ref()).unwrap();
    }
    place
}

/// The objects of each picture of the sequence by itself, and how many are beyond the maximum.
fn of_stills(place: &Place, options: &str) -> Vec<(Value, u64)> {
    let one = |index| {
        let words = format!("threshold seq/{index}.png --method mean:21:3 --objects {options}");
        let record = record(&succeeds(place.lockon(&words)));
        let more = record.get("more_objects").map_or(0, |more| more.as_u64().unwrap());
        (record["objects"].clone(), more)
    };
    (0..5).map(one).collect()
}

#[test]
fn objects_of_a_video_are_those_of_its_pictures_in_every_output_for_any_number_of_threads() {
    let place = sequence();
    let options = "--object-colour black --connect 4 --open 3 --fill-holes --object-area 4.. --object-max 6";
    for (options, threads) in [("", 1), (options, 1), (options, 3)] {
        let expected = of_stills(&place, options);
        assert!(expected.iter().any(|(_, more)| (*more > 0) != options.is_empty()), "{expected:?}");
        let words = format!(
            "run seq/%d.png --threshold mean:21:3 --objects {options} --backend cpu --threads {threads} -y --no-progress \
             --results a.jsonl --results a.csv --results a.coco.json --report a.html"
        );
        let out = succeeds(place.lockon(&words));
        let lines = std::fs::read_to_string(place.path("a.jsonl")).unwrap();
        let lines: Vec<Value> = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let frames: Vec<_> = lines.iter().filter(|line| line["type"] == "frame").collect();
        assert_eq!(frames.len(), 5);
        for (frame, (objects, more)) in frames.iter().zip(&expected) {
            assert_eq!(frame["objects"], *objects, "{options}");
            assert_eq!(frame.get("more_objects").map_or(0, |more| more.as_u64().unwrap()), *more);
        }
        let counts: Vec<u64> = expected.iter().map(|(all, _)| all.as_array().unwrap().len() as u64).collect();
        let (total, more) = (counts.iter().sum::<u64>(), expected.iter().map(|(_, more)| more).sum::<u64>());
        let of_run = &lines.last().unwrap()["objects"];
        assert_eq!((of_run["frames"].as_u64(), of_run["total"].as_u64()), (Some(5), Some(total)));
        assert_eq!(of_run["most"].as_u64(), counts.iter().max().copied());
        assert_eq!(of_run["more_objects"].as_u64().unwrap_or(0), more);
        let said = stderr(&out);
        assert!(said.contains(&format!("{total} in 5 frames")), "{said}");
        assert_eq!(said.contains(&format!("--object-max left out {more} in ")), more > 0, "{said}");

        let all = || expected.iter().flat_map(|(objects, _)| objects.as_array().unwrap());
        let mut csv = csv::Reader::from_path(place.path("a.csv")).unwrap();
        let rows: Vec<_> =
            csv.deserialize::<std::collections::BTreeMap<String, String>>().map(Result::unwrap).collect();
        assert_eq!(rows.len() as u64, total);
        for (row, object) in rows.iter().zip(all()) {
            assert_eq!(row["kind"], "object");
            for key in [
                "x",
                "y",
                "w",
                "h",
                "area",
                "cx",
                "cy",
                "length",
                "width",
                "angle",
                "perimeter",
                "holes",
                "mean_luma",
            ] {
                assert_eq!(row[key].parse::<f64>().unwrap(), object[key].as_f64().unwrap(), "{key}");
            }
            assert_eq!(row["touches_border"] == "true", object.get("touches_border").is_some());
        }
        let coco: Value = serde_json::from_slice(&std::fs::read(place.path("a.coco.json")).unwrap()).unwrap();
        let annotations = coco["annotations"].as_array().unwrap();
        assert_eq!(annotations.len() as u64, total);
        for (annotation, object) in annotations.iter().zip(all()) {
            assert_eq!(annotation["area"].as_f64(), object["area"].as_f64());
            assert_eq!(annotation["segmentation"]["size"], serde_json::json!([77, 121]), "{annotation}");
        }
        let report = std::fs::read_to_string(place.path("a.html")).unwrap();
        assert!(report.contains("<h2>Objects over time</h2>") && report.contains(&format!("{total} in all")));
    }
}

#[test]
fn masks_of_a_video_are_cleaned_and_pictures_have_boxes_around_objects() {
    let place = sequence();
    std::fs::create_dir(place.path("out")).unwrap();
    let clean =
        "run seq/%d.png --threshold mean:21:3 --close 3 --open 5 --backend cpu --no-progress -o out/%d.png";
    succeeds(place.lockon(clean));
    for index in 0..5 {
        let words = format!("threshold seq/{index}.png --method mean:21:3 --close 3 --open 5 -y -o one.png");
        succeeds(place.lockon(&words));
        let of_run = lockon::still::load(&place.path(&format!("out/{index}.png"))).unwrap().luma;
        assert_eq!(of_run, lockon::still::load(&place.path("one.png")).unwrap().luma, "{index}");
    }
    // With objects the picture is shown, with a box around each: its lines lie around the object.
    let objects = of_stills(&place, "--object-max 1");
    let words = "run seq/%d.png --threshold mean:21:3 --objects --object-max 1 --backend cpu --no-progress -y -o out/%d.png";
    succeeds(place.lockon(words));
    for (index, (objects, _)) in objects.iter().enumerate() {
        let at = |key: &str| objects[0][key].as_u64().unwrap() as u32;
        let picture = image::open(place.path(&format!("out/{index}.png"))).unwrap().into_rgb8();
        let middle = at("x") + at("w") / 2;
        let is_line = |y: u32| {
            let image::Rgb([red, green, _]) = *picture.get_pixel(middle, y);
            red > 150 && green < 110
        };
        assert!((at("y").saturating_sub(2)..=at("y")).any(is_line), "{index}: {objects}");
    }
}

#[test]
fn options_of_objects_that_mean_nothing_in_a_run_are_wrong_usage_with_the_remedy() {
    let place = sequence();
    for (words, says) in [
        (
            "--objects",
            "--objects is for the thresholded picture: add a threshold, such as --threshold mean:31:5",
        ),
        ("--open 3", "--open is for the thresholded picture: add a threshold"),
        ("--threshold mean:21:3 --object-area 3..", "--object-area needs --objects"),
        ("--threshold mean:21:3 --object-max 5", "--object-max needs --objects"),
        ("--threshold mean:21:3 --connect 4", "--connect needs --objects or --fill-holes"),
        (
            "--threshold mean:21:3 --object-colour black",
            "--object-colour needs --objects, --open, --close or",
        ),
        ("--threshold mean:21:3 --objects --object-max 0", "not 1 or more"),
        ("--threshold mean:21:3 --open 4", "expected an odd number from 3 to 255"),
    ] {
        fails(&place.lockon(&format!("run seq/%d.png --results a.jsonl {words}")), 2, says);
        assert!(!place.path("a.jsonl").exists(), "{words}");
    }
}

/// A folder with forty pictures, in which a bright square goes down and another one up.
fn traffic() -> Place {
    let place = Place { dir: tempfile::tempdir().unwrap() };
    std::fs::create_dir(place.path("seq")).unwrap();
    let size = Size::new(141, 131);
    for index in 0..40 {
        let mut picture = Plane::from_vec(vec![30; size.area()], size);
        for (left, top) in [(20, 5 + 2 * index), (90, 105 - 2 * index)] {
            for y in top..top + 17 {
                picture.data_mut()[y * size.width + left..][..19].fill(210);
            }
        }
        lockon::still::save(&place.path(&format!("seq/{index:02}.png")), picture.as_ref()).unwrap();
    }
    place
}

#[test]
fn tracks_of_objects_are_counted_across_lines_in_every_output() {
    let place = traffic();
    let run = "run seq/%02d.png --fps 25 --threshold mean:61:-30 --objects --track-objects --backend cpu -y --no-progress";
    let line = "--line gate=0,60,141,60 --zone low=0,60,141,60,141,131,0,131";
    for every in [1, 2] {
        let words = format!(
            "{run} {line} --every {every} --results a.jsonl --results a.csv --report a.html -o shown/%d.png \
             --results a.mot.txt --results a.coco.json"
        );
        std::fs::create_dir_all(place.path("shown")).unwrap();
        let out = succeeds(place.lockon(&words));
        let said = stderr(&out);
        for words in [
            "line gate: 1 in, 1 out",
            "zone low: 2 entered, 1 left, 1 inside at the end, 2 at most",
            "objects became 2 tracks",
        ] {
            assert!(said.contains(words), "{words}: {said}");
        }
        let lines = std::fs::read_to_string(place.path("a.jsonl")).unwrap();
        let lines: Vec<Value> = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!(lines[0]["track_objects"], true);
        let summary = lines.last().unwrap();
        assert_eq!(summary["lines"], serde_json::json!([{ "line": "gate", "in": 1, "out": 1 }]));
        assert_eq!(summary["zones"][0]["objects"]["most"], 2.0);
        let crossings: Vec<_> =
            lines.iter().filter_map(|line| Some((line["frame"].as_u64()?, line.get("crossings")?))).collect();
        assert_eq!(crossings.len(), 2, "{crossings:?}");
        let csv = std::fs::read_to_string(place.path("a.csv")).unwrap();
        let rows: Vec<Vec<&str>> = csv
            .lines()
            .map(|line| line.split(',').collect())
            .filter(|row: &Vec<_>| row[2] == "crossing")
            .collect();
        assert_eq!(rows.len(), 2, "{csv}");
        assert!(rows.iter().all(|row| row[14] == "gate"), "{rows:?}");
        assert_eq!(rows.iter().map(|row| row[4]).collect::<std::collections::BTreeSet<_>>().len(), 2);
        let report = std::fs::read_to_string(place.path("a.html")).unwrap();
        assert!(
            report.contains("<h2>Lines</h2>") && report.contains("<td>gate</td>"),
            "no line in the report"
        );
        let mot = std::fs::read_to_string(place.path("a.mot.txt")).unwrap();
        assert!(mot.lines().any(|line| line.split(',').nth(1) == Some("2")), "{mot}");
        // The exact pixels of a track's object, once, with its number.
        let coco: Value = serde_json::from_slice(&std::fs::read(place.path("a.coco.json")).unwrap()).unwrap();
        let annotations = coco["annotations"].as_array().unwrap();
        assert_eq!(annotations.len(), 80 / every);
        assert!(annotations.iter().any(|one| one["track_id"] == 2), "{annotations:?}");
        // The line is drawn.
        let shown = image::open(place.path("shown/38.png")).unwrap().into_rgb8();
        let image::Rgb(pixel) = *shown.get_pixel(137, 60);
        // Grey pictures stay grey; the ground is 30.
        assert!(pixel[0] > 90, "{pixel:?}");
    }
}

#[test]
fn objects_are_followed_and_counted_where_that_makes_sense() {
    let place = traffic();
    let run = "run seq/%02d.png --backend cpu --no-progress";
    for (words, says) in [
        ("--threshold mean:61:-30 --track-objects", "--objects"),
        ("--threshold mean:61:-30 --objects --line a=0,0,9,9", "--line needs tracks"),
        ("--threshold mean:61:-30 --objects --track-objects --line a=0,0,9", "a line has two ends"),
        ("--threshold mean:61:-30 --objects --track-objects --zone-limit a=3", "--zone"),
        ("--threshold mean:61:-30 --zone a=0,0,9,0,9,9", "--zone needs tracks"),
    ] {
        fails(&place.lockon(&format!("{run} {words} --results a.jsonl")), 2, says);
    }
    // Objects alone are counted in zones, and can be too many.
    let words = "--threshold mean:61:-30 --objects --zone low=0,60,141,60,141,131,0,131 --zone-limit low=0";
    let out = succeeds(place.lockon(&format!("{run} {words} --events - --results a.jsonl")));
    let events: Vec<Value> = String::from_utf8_lossy(&out.stdout)
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let told: Vec<_> = events.iter().map(|e| (e["type"].as_str().unwrap(), e["count"].as_u64())).collect();
    assert_eq!(told[0], ("crowded", Some(1)), "{events:?}");
    assert_eq!((&events[0]["zone"], &events[0]["limit"]), (&"low".into(), &0.into()));
    let out = succeeds(place.lockon(&format!(
        "{run} --threshold mean:61:-30 --objects --track-objects --line gate=0,60,141,60 --line far=900,0,900,9 --events -"
    )));
    assert!(stderr(&out).contains("line far lies outside of the 141x131 picture"), "{}", stderr(&out));
    let crossed: Vec<Value> = String::from_utf8_lossy(&out.stdout)
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .filter(|event: &Value| event["type"] == "crossed")
        .collect();
    let told: Vec<_> = crossed.iter().map(|e| (e["line"].as_str(), e["direction"].as_str())).collect();
    assert_eq!(told, [(Some("gate"), Some("in")), (Some("gate"), Some("out"))], "{crossed:?}");
}
