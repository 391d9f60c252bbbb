//! Pictures in files: all commands read them in the same way, and results name them.

use std::io::Cursor;
use std::path::Path;

use base64::prelude::{BASE64_STANDARD, Engine};
use image::codecs::{gif::GifEncoder, jpeg::JpegEncoder};
use image::{DynamicImage, ImageEncoder, ImageFormat};

use super::*;

/// A JPEG of 16 x 16 in CMYK.
const CMYK: &str = include_str!("../../crates/lockon-core/src/still/cmyk.jpg.base64");

/// Exif data with an orientation of 6: turned by 90 degrees.
const TURNED: &[u8] = b"MM\0*\0\0\0\x08\0\x01\x01\x12\0\x03\0\0\0\x01\0\x06\0\0\0\0\0\0";

fn place() -> Place {
    Place { dir: tempfile::tempdir().unwrap() }
}

/// Noise in colours, all of whose pixels differ.
fn coloured(width: u32, height: u32) -> DynamicImage {
    let noise = noise(5, Size::new(3 * width as usize, height as usize)).data().to_vec();
    image::RgbImage::from_raw(width, height, noise).unwrap().into()
}

fn encoded(picture: &DynamicImage, format: ImageFormat) -> Vec<u8> {
    let mut bytes = Cursor::new(Vec::new());
    picture.write_to(&mut bytes, format).unwrap();
    bytes.into_inner()
}

fn jpeg(picture: &DynamicImage, exif: Option<&[u8]>) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut encoder = JpegEncoder::new_with_quality(&mut bytes, 95);
    if let Some(exif) = exif {
        encoder.set_exif_metadata(exif.to_vec()).unwrap();
    }
    picture.write_with_encoder(encoder).unwrap();
    bytes
}

#[test]
fn pictures_keep_their_colours_where_something_is_followed_or_shown() {
    let place = place();
    std::fs::create_dir(place.path("in")).unwrap();
    for number in 0..2 {
        std::fs::write(place.path(&format!("in/{number}.jpg")), jpeg(&coloured(61, 43), None)).unwrap();
    }
    lockon::still::save(&place.path("part.png"), noise(1, Size::new(9, 7)).as_ref()).unwrap();
    std::fs::write(place.path("orders.jsonl"), "{\"type\":\"run\"}\n").unwrap();
    for (option, format) in [
        ("", "GRAY8"),
        ("--jobs 1", "GRAY8"),
        ("--track 9,9,20,20", "Y444"),
        ("--template part.png --track-matches", "Y444"),
        ("--control orders.jsonl", "Y444"),
        ("--report out.html", "Y444"),
        ("--sink fakesink", "Y444"),
        ("-o out.mkv", "Y444"),
    ] {
        let mut words: Vec<_> =
            "run in --threshold mean:3:1 --results out.jsonl -y --no-progress".split(' ').collect();
        words.extend(option.split_whitespace());
        let _ = std::fs::remove_file(place.path("out.jsonl"));
        let out = succeeds(place.lockon_args(&words));
        let records = place.records("out.jsonl");
        assert_eq!(records[0]["format"], format, "{option}: {}", stderr(&out));
    }
}

/// The matches of the first record of a frame.
fn matches(lines: &[u8]) -> Value {
    let text = String::from_utf8_lossy(lines);
    let frame = text
        .lines()
        .find(|line| line.contains("\"frame\""))
        .unwrap_or_else(|| panic!("no frame in {text:?}"));
    serde_json::from_str::<Value>(frame).unwrap()["matches"].clone()
}

#[test]
fn every_command_reads_a_picture_to_the_same_luma() {
    let place = place();
    let scene = coloured(61, 43);
    let transparent: DynamicImage = {
        let mut picture = scene.to_rgba8();
        picture.pixels_mut().enumerate().for_each(|(at, pixel)| pixel.0[3] = (at * 7 % 256) as u8);
        picture.into()
    };
    let deep: DynamicImage = {
        let samples = scene.as_bytes().iter().map(|&value| u16::from(value) * 3).collect();
        image::ImageBuffer::<image::Rgb<u16>, _>::from_raw(61, 43, samples)
            .map(DynamicImage::ImageRgb16)
            .unwrap()
    };
    let whole = jpeg(&scene, None);
    let pictures = [
        ("turned.jpg", jpeg(&scene, Some(TURNED))),
        ("endless.jpg", whole[..whole.len() - 2].to_vec()),
        ("grey.jpg", jpeg(&scene.to_luma8().into(), None)),
        ("cmyk.jpg", BASE64_STANDARD.decode(CMYK.trim()).unwrap()),
        ("really-png.jpg", encoded(&scene, ImageFormat::Png)),
        ("transparent.png", encoded(&transparent, ImageFormat::Png)),
        ("deep.png", encoded(&deep, ImageFormat::Png)),
        ("lossless.webp", encoded(&scene, ImageFormat::WebP)),
        ("strips.tif", encoded(&scene, ImageFormat::Tiff)),
        ("colours.bmp", encoded(&scene, ImageFormat::Bmp)),
        ("plain.ppm", encoded(&scene, ImageFormat::Pnm)),
        ("still.gif", encoded(&scene.to_rgba8().into(), ImageFormat::Gif)),
    ];
    // All commands must see the same pixels as the library: each must find the part that is cut out of the
    // picture which the library reads.
    for (name, bytes) in pictures {
        std::fs::write(place.path(name), bytes).unwrap();
        let (still, _) = lockon::still::load(&place.path(name)).unwrap().into_scene();
        let size = still.luma.size();
        let rect = Rect::new(size.width / 3, size.height / 3, 9, 7);
        lockon::still::save(&place.path("part.png"), still.luma.as_ref().crop(rect)).unwrap();
        let expected = matches(&place.lockon(&format!("match {name} part.png --min-score -1")).stdout);
        let found = &expected[0];
        // All columns of the one in CMYK are equal.
        let x = if name == "cmyk.jpg" { &found["x"] } else { &rect.x.into() };
        assert_eq!((&found["x"], &found["y"]), (x, &rect.y.into()), "{name}: {found}");
        assert!(found["score"].as_f64().unwrap() > 0.9999, "{name}: {found}");
        let glob = format!("{}[{}]", &name[..name.len() - 1], &name[name.len() - 1..]);
        for input in [name, &glob] {
            let words = format!("run {input} --template part.png --min-score -1 --results - --no-progress");
            assert_eq!(matches(&succeeds(place.lockon(&words)).stdout), expected, "{input}");
        }
        // Used as a template it is found in itself, at its pixels that are not transparent.
        if name != "transparent.png" {
            let itself = matches(&succeeds(place.lockon(&format!("match {name} {name}"))).stdout);
            assert!(itself[0]["score"].as_f64().unwrap() > 0.9999, "{name}: {itself}");
        }
        succeeds(place.lockon(&format!("threshold {name} -o mask.png -y --method mean:31:5")));
        let mask = lockon::still::load(&place.path("mask.png")).unwrap().luma;
        let share = mask.data().iter().filter(|&&pixel| pixel == 255).count() as f64 / size.area() as f64;
        // Results alone need no colours, which another output shows.
        for (output, is_grey) in [("", true), (" -o drawn-%d.png --view overlay", still.rgb.is_none())] {
            let words =
                format!("run {glob} --threshold mean:31:5 --results out.jsonl -y --no-progress{output}");
            succeeds(place.lockon(&words));
            let records = place.records("out.jsonl");
            let foreground = frames(&records)[0]["threshold"]["foreground"].as_f64().unwrap();
            assert!((foreground - share).abs() < 1e-9, "{words}: {foreground} and {share}");
            assert!(is_grey || records[0]["format"] == "Y444", "{words}: {}", records[0]);
            assert!(!output.is_empty() || records[0]["format"] == "GRAY8", "{words}: {}", records[0]);
        }
    }
}

#[test]
fn the_error_of_a_picture_that_is_too_large_has_its_name_once() {
    let place = place();
    let mut bytes = encoded(&coloured(9, 7).to_rgba8().into(), ImageFormat::Gif);
    bytes[6..10].fill(0xFF);
    std::fs::write(place.path("large.gif"), bytes).unwrap();
    for words in ["info large.gif", "run large.gif --threshold mean:3:1", "match large.gif large.gif"] {
        let said = stderr(&place.lockon(words));
        let expected =
            "error: large.gif: the picture has 65535x65535 pixels: the maximum is 134217728 pixels\n";
        assert!(said.ends_with(expected), "{words}: {said}");
    }
}

#[test]
fn a_cut_picture_is_refused_by_every_command() {
    let place = place();
    let scene = coloured(61, 43);
    lockon::still::save(&place.path("part.png"), noise(1, Size::new(9, 7)).as_ref()).unwrap();
    std::fs::write(place.path("whole.png"), encoded(&scene, ImageFormat::Png)).unwrap();
    for (name, bytes) in [("cut.jpg", jpeg(&scene, None)), ("cut.png", encoded(&scene, ImageFormat::Png))] {
        std::fs::write(place.path(name), &bytes[..bytes.len() / 4]).unwrap();
        let says = format!("{name}: the picture is cut off: its end is missing");
        let (code, mask) = (2, "--threshold mean:3:1 --results out.jsonl --no-progress");
        // 1 says that `match` found nothing.
        fails(&place.lockon(&format!("match {name} part.png")), code, &says);
        fails(&place.lockon(&format!("match whole.png {name}")), code, &says);
        fails(&place.lockon(&format!("threshold {name} -o out.png --method mean:3:1")), 1, &says);
        fails(&place.lockon(&format!("run {name} {mask}")), 1, &says);
        fails(&place.lockon(&format!("run cut* {mask}")), 1, &says);
        fails(
            &place.lockon(&format!("run whole.png --template {name} --results out.jsonl --no-progress")),
            1,
            &says,
        );
        std::fs::remove_file(place.path(name)).unwrap();
        assert!(!place.path("out.png").exists());
    }
}

#[test]
fn what_a_picture_loses_is_said_by_every_command_and_once_for_many_pictures() {
    let place = place();
    let clear: DynamicImage =
        image::GrayAlphaImage::from_fn(61, 43, |x, y| image::LumaA([0, (x * y % 256) as u8])).into();
    let few = image::ImageBuffer::from_fn(61, 43, |x, y| image::Luma([(x * 4 + y) as u16]));
    for (name, picture, says) in [
        ("clear", clear, "transparent: the picture is laid on a white ground"),
        ("few", DynamicImage::ImageLuma16(few), "samples from 0 to 282 use 2 of the 256 levels"),
    ] {
        std::fs::create_dir(place.path(name)).unwrap();
        for number in 0..3 {
            std::fs::write(place.path(&format!("{name}/{number}.png")), encoded(&picture, ImageFormat::Png))
                .unwrap();
        }
        lockon::still::save(&place.path("part.png"), noise(1, Size::new(9, 7)).as_ref()).unwrap();
        for words in [
            format!("match {name}/0.png part.png --min-score -1"),
            format!("threshold {name}/0.png -o out.png -y --method mean:3:1"),
            format!("run {name}/0.png --threshold mean:3:1 --results out.jsonl -y --no-progress"),
            format!("run {name} --threshold mean:3:1 --results out.jsonl -y --no-progress"),
        ] {
            let said = stderr(&succeeds(place.lockon(&words)));
            assert_eq!(said.matches(says).count(), 1, "{words}: {said}");
            assert!(said.contains(&format!("{name}/0.png: ")), "{words}: {said}");
        }
    }
    let out = place.lockon("match clear/0.png few/0.png --min-score -1");
    assert!(stderr(&out).contains("few/0.png: 16 bits are reduced to 8, and samples"), "{}", stderr(&out));
}

#[test]
fn results_name_the_picture_that_a_frame_came_from() {
    let place = place();
    let patch = noise(7, Size::new(15, 11));
    lockon::still::save(&place.path("patch.png"), patch.as_ref()).unwrap();
    std::fs::create_dir(place.path("shots")).unwrap();
    let names = ["DSC_0007.png", "DSC_0009.png", "=DSC_2000.png"];
    for name in names {
        let mut scene = Plane::from_vec(vec![90; 63 * 47], Size::new(63, 47));
        paste(&mut scene, &patch, 20, 13);
        lockon::still::save(&place.path(&format!("shots/{name}")), scene.as_ref()).unwrap();
    }
    let run = "run shots --template patch.png --no-progress -y";
    succeeds(place.lockon(&format!("{run} --results a.jsonl --results a.csv --results a.coco.json")));
    // As people count: signs before letters.
    let sorted = ["=DSC_2000.png", "DSC_0007.png", "DSC_0009.png"];
    let records = place.records("a.jsonl");
    assert_eq!(records[0]["pictures"], true);
    let named: Vec<_> = frames(&records).iter().map(|frame| frame["picture"].as_str().unwrap()).collect();
    assert_eq!(named, sorted);
    let coco: Value = serde_json::from_str(&place.read("a.coco.json")).unwrap();
    let images: Vec<_> =
        coco["images"].as_array().unwrap().iter().map(|image| image["file_name"].as_str().unwrap()).collect();
    assert_eq!(images, sorted);
    let mut csv = csv::Reader::from_reader(place.read("a.csv").as_bytes().to_vec().leak() as &[u8]);
    assert_eq!(csv.headers().unwrap().iter().next_back(), Some("picture"));
    let last: Vec<_> = csv.records().map(|row| row.unwrap().iter().next_back().unwrap().to_owned()).collect();
    assert_eq!(last, ["'=DSC_2000.png", "DSC_0007.png", "DSC_0009.png"]);
    // Each second one keeps its own name.
    succeeds(place.lockon(&format!("{run} --every 2 --results b.coco.json")));
    let coco: Value = serde_json::from_str(&place.read("b.coco.json")).unwrap();
    assert_eq!(coco["images"][1]["file_name"], "DSC_0009.png");
}

/// Writes an animated GIF of a patch that moves to the right, with these delays in milliseconds.
fn animate(path: &Path, patch: &Plane, delays: &[u32]) {
    let mut bytes = Vec::new();
    let mut encoder = GifEncoder::new(&mut bytes);
    let frames = delays.iter().enumerate().map(|(at, &delay)| {
        let mut scene = Plane::from_vec(vec![90; 128 * 64], Size::new(128, 64));
        paste(&mut scene, patch, 5 + 9 * at, 20);
        let grey = image::GrayImage::from_raw(128, 64, scene.data().to_vec()).unwrap();
        let delay = image::Delay::from_numer_denom_ms(delay, 1);
        image::Frame::from_parts(DynamicImage::from(grey).into_rgba8(), 0, 0, delay)
    });
    encoder.encode_frames(frames).unwrap();
    drop(encoder);
    std::fs::write(path, bytes).unwrap();
}

#[test]
fn frames_of_a_gif_have_its_times_and_its_video_plays_as_fast() {
    let place = place();
    let patch = noise(7, Size::new(15, 11));
    lockon::still::save(&place.path("patch.png"), patch.as_ref()).unwrap();
    animate(&place.path("moving.gif"), &patch, &[40, 120, 200, 280, 500, 40]);
    let out = succeeds(
        place.lockon("run moving.gif --template patch.png --results a.jsonl -o out.mkv --no-progress"),
    );
    let said = stderr(&out);
    assert!(!said.contains("damaged") && !said.contains("WARN"), "{said}");
    let times = |name: &str| -> Vec<u64> {
        let records = place.records(name);
        assert!(frames(&records).iter().all(|frame| frame["pts_interpolated"].is_null()));
        frames(&records).iter().map(|frame| frame["pts_ns"].as_u64().unwrap() / 1_000_000).collect()
    };
    assert_eq!(times("a.jsonl"), [0, 40, 160, 360, 640, 1140]);
    let found: Vec<_> = frames(&place.records("a.jsonl"))
        .iter()
        .map(|frame| frame["matches"][0]["x"].as_u64().unwrap())
        .collect();
    assert_eq!(found, [5, 14, 23, 32, 41, 50]);
    succeeds(place.lockon("run out.mkv --threshold mean:3:1 --results again.jsonl --no-progress"));
    assert_eq!(times("again.jsonl"), [0, 40, 160, 360, 640, 1140]);
    // A part by time, and each second frame of it.
    succeeds(place.lockon(
        "run moving.gif --start 0.1s --every 2 --threshold mean:3:1 --results part.jsonl --no-progress",
    ));
    assert_eq!(times("part.jsonl"), [160, 640]);
    // One picture of it is all that a scene has.
    let out = succeeds(place.lockon("match moving.gif patch.png"));
    assert!(
        stderr(&out).contains("moving.gif: an animation: only its first picture is used"),
        "{}",
        stderr(&out)
    );
    assert_eq!(matches(&out.stdout)[0]["x"], 5);
}

/// A chunk of a PNG with its checksum (ISO 3309).
fn chunk(kind: [u8; 4], data: &[u8]) -> Vec<u8> {
    let body = [&kind, data].concat();
    let checksum = !body.iter().fold(!0, |crc: u32, byte| {
        (0..8).fold(crc ^ u32::from(*byte), |crc, _| (crc >> 1) ^ (0xEDB8_8320 & 0_u32.wrapping_sub(crc & 1)))
    });
    [&(data.len() as u32).to_be_bytes()[..], &body, &checksum.to_be_bytes()].concat()
}

#[test]
fn all_pictures_of_an_animated_png_are_frames() {
    let place = place();
    // Each of one data chunk, between 33 bytes of header and 12 of the end.
    let [first, second] = [3, 4].map(|seed| {
        let grey =
            image::GrayImage::from_raw(32, 24, noise(seed, Size::new(32, 24)).data().to_vec()).unwrap();
        encoded(&grey.into(), ImageFormat::Png)
    });
    let data = |png: &[u8]| {
        let at = png.windows(4).position(|window| window == b"IDAT").unwrap();
        let length = u32::from_be_bytes(*png[at - 4..].first_chunk().unwrap()) as usize;
        png[at + 4..][..length].to_vec()
    };
    let control = |sequence: u32, ms: u16| {
        let mut control = sequence.to_be_bytes().to_vec();
        control.extend([0, 0, 0, 32, 0, 0, 0, 24, 0, 0, 0, 0, 0, 0, 0, 0]);
        control.extend(ms.to_be_bytes());
        control.extend([0x03, 0xE8, 0, 0]);
        chunk(*b"fcTL", &control)
    };
    let animated = [
        first[..33].to_vec(),
        chunk(*b"acTL", &[0, 0, 0, 2, 0, 0, 0, 0]),
        control(0, 300),
        chunk(*b"IDAT", &data(&first)),
        control(1, 100),
        chunk(*b"fdAT", &[vec![0, 0, 0, 2], data(&second)].concat()),
        chunk(*b"IEND", &[]),
    ]
    .concat();
    std::fs::write(place.path("moving.png"), animated).unwrap();
    std::fs::write(place.path("second.png"), second).unwrap();
    succeeds(place.lockon("run moving.png --template second.png --results a.jsonl --no-progress"));
    let records = place.records("a.jsonl");
    let frames = frames(&records);
    assert_eq!((frames.len(), &frames[1]["pts_ns"]), (2, &300_000_000.into()));
    assert_eq!(
        (&frames[0]["matches"], &frames[1]["matches"][0]["score"]),
        (&serde_json::json!([]), &1.0.into())
    );
}
