//! `lockon threshold --objects`.

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
        ("--objects --object-max 0", "0 is not in 1.."),
        ("--objects --connect 6", "expected 4 or 8"),
        ("-o mask.png --open 3 --connect 4", "--objects"),
        ("--objects --open 4", "expected an odd number from 3 to 255"),
    ] {
        fails(&place.lockon(&format!("threshold scene.png --method mean:21:3 {words}")), 2, says);
        assert!(!place.path("mask.png").exists(), "{words}");
    }
}
