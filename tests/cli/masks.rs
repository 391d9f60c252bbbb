//! Thresholded pictures without a loss, and pictures and videos on standard output.

use super::*;
use lockon::config::ThresholdSpec;
use lockon::reference::threshold::threshold;

const METHOD: &str = "mean:15:5";

/// Odd, and no multiple of the alignment that rows are padded to.
const SIZE: Size = Size::new(61, 43);

/// Writes `in/00.png` to `in/06.png`, each with different noise. Returns the mask of each by the definition.
fn pictures(place: &Place) -> Vec<Plane> {
    let spec: ThresholdSpec = METHOD.parse().unwrap();
    std::fs::create_dir(place.path("in")).unwrap();
    let mask = |number: u64| {
        let picture = noise(number, SIZE);
        lockon::still::save(&place.path(&format!("in/{number:02}.png")), picture.as_ref()).unwrap();
        threshold(picture.as_ref(), &spec)
    };
    (0..7).map(mask).collect()
}

fn place() -> Place {
    Place { dir: tempfile::tempdir().unwrap() }
}

/// Returns the grey pictures that a pipeline decodes; they must be in that format already.
fn decoded(place: &Place, source: &str) -> Vec<Plane> {
    let caps = format!("video/x-raw,format=GRAY8,width={},height={}", SIZE.width, SIZE.height);
    place.gst(&format!("{source} ! {caps} ! filesink location=decoded.raw"));
    let bytes = std::fs::read(place.path("decoded.raw")).unwrap();
    let stride = SIZE.width.next_multiple_of(4);
    let picture = |bytes: &[u8]| {
        let rows = bytes.chunks(stride).flat_map(|row| row[..SIZE.width].to_vec());
        Plane::from_vec(rows.collect(), SIZE)
    };
    bytes.chunks(stride * SIZE.height).map(picture).collect()
}

#[test]
fn masks_are_written_exactly_as_pictures_and_in_ffv1() {
    let place = place();
    let masks = pictures(&place);
    std::fs::create_dir(place.path("masks")).unwrap();
    let words = format!("run in --threshold {METHOD} --no-progress");
    let outputs = "-o masks/%06d.png -o masks.mkv --codec ffv1 --results out.jsonl";
    let said = stderr(&succeeds(place.lockon(&format!("{words} {outputs}"))));
    assert!(said.contains("masks/%06d.png (7 pictures, ") && said.contains("masks.mkv ("), "{said}");
    let out = succeeds(place.lockon(&format!("{words} -o - --codec ffv1")));
    std::fs::write(place.path("piped.mkv"), out.stdout).unwrap();
    // As GStreamer decodes them, without a conversion.
    let png = "multifilesrc location=masks/%06d.png caps=image/png,framerate=25/1 ! pngdec";
    assert!(decoded(&place, png) == masks, "pictures");
    for video in ["masks.mkv", "piped.mkv"] {
        let ffv1 = format!("filesrc location={video} ! matroskademux ! avdec_ffv1");
        assert!(decoded(&place, &ffv1) == masks, "{video}");
    }
    let records = place.records("out.jsonl");
    for (index, (record, mask)) in frames(&records).into_iter().zip(&masks).enumerate() {
        let written = lockon::still::load(&place.path(&format!("masks/{index:06}.png"))).unwrap();
        assert!(written.luma == *mask && written.rgb.is_none(), "{index}");
        let white = mask.data().iter().filter(|&&value| value == 255).count() as f64;
        let foreground = record["threshold"]["foreground"].as_f64().unwrap();
        assert!((foreground - white / SIZE.area() as f64).abs() < 1e-9, "{index}: {record}");
    }
}

#[test]
fn a_background_is_that_of_the_frames_which_are_processed() {
    let place = place();
    pictures(&place);
    for (every, spec) in [(1, "background:3:20"), (2, "background:100:9..60:inv")] {
        let out = format!("every-{every}");
        std::fs::create_dir(place.path(&out)).unwrap();
        succeeds(place.lockon(&format!(
            "run in --every {every} --threshold {spec} --backend cpu --depth 3 --no-progress -o {out}/%02d.png"
        )));
        let mut background = lockon::reference::threshold::Background::default();
        let mut white = 0;
        for number in (0..7).step_by(every) {
            let expected = background.threshold(noise(number as u64, SIZE).as_ref(), &spec.parse().unwrap());
            let written = lockon::still::load(&place.path(&format!("{out}/{number:02}.png"))).unwrap();
            assert!(written.luma == expected, "{spec}, frame {number}");
            white += expected.data().iter().filter(|&&value| value == 255).count();
        }
        assert!((500..7 * SIZE.area() - 500).contains(&white), "{spec}: {white}");
    }
}

#[test]
fn masks_of_limited_range_video_and_beside_matches_have_two_values() {
    let place = Place::new();
    let words =
        "run ball.mp4 --template ball.png --threshold mean:31:5 --view mask --max-frames 5 --no-progress";
    succeeds(place.lockon(&format!("{words} -o %d.png -o a.mkv --codec ffv1")));
    let caps = "video/x-raw,format=GRAY8";
    place.gst(&format!(
        "filesrc location=a.mkv ! matroskademux ! avdec_ffv1 ! {caps} ! filesink location=a.raw"
    ));
    let video = std::fs::read(place.path("a.raw")).unwrap();
    assert_eq!(video.len(), 5 * 160 * 120);
    for (index, mask) in video.chunks(160 * 120).enumerate() {
        let picture = lockon::still::load(&place.path(&format!("{index}.png"))).unwrap();
        assert!(picture.luma.data() == mask && picture.rgb.is_none(), "{index}");
        assert!(mask.iter().all(|value| [0, 255].contains(value)) && mask.contains(&255), "{index}");
    }
}

#[test]
fn a_still_mask_is_the_same_in_every_kind_of_file_and_keeps_its_dots_per_inch() {
    let place = place();
    let mask = &pictures(&place)[3];
    let words = format!("threshold in/03.png -y --method {METHOD} -o");
    let loaded = |name: &str| lockon::still::load(&place.path(name)).unwrap();
    for (name, dpi) in
        [("a.png", None), ("a.pbm", None), ("a.tif --dpi 300", Some(300.0)), ("a.bmp --dpi 72", Some(72.0))]
    {
        succeeds(place.lockon(&format!("{words} {name}")));
        let still = loaded(name.split(' ').next().unwrap());
        assert!(still.luma == *mask, "{name}");
        assert_eq!(still.density.map(|density| (density.x, density.y)), dpi.map(|dpi| (dpi, dpi)), "{name}");
    }
    succeeds(place.lockon(&format!("{words} one.png --bits 1")));
    assert!(loaded("one.png").luma == *mask);
    let depth = |name: &str| std::fs::read(place.path(name)).unwrap()[24];
    assert_eq!((depth("one.png"), depth("a.png")), (1, 8));
    // Whatever the name, and on standard output.
    succeeds(place.lockon(&format!("{words} page --format tiff")));
    let piped = succeeds(place.lockon(&format!("{words} - --format pbm"))).stdout;
    std::fs::write(place.path("piped"), piped).unwrap();
    assert!(loaded("page").luma == *mask && loaded("piped").luma == *mask);
    // White and black are thresholds of themselves here; what counts is that 300 dots stay.
    for name in ["b.tif", "b.png", "b.jpg"] {
        succeeds(place.lockon(&format!("threshold a.tif -y --method {METHOD} -o {name}")));
        assert_eq!(loaded(name).density.map(|density| density.x), Some(300.0), "{name}");
    }
}

#[test]
fn kinds_of_files_that_a_mask_cannot_be_are_refused_before_any_work() {
    let place = place();
    pictures(&place);
    for (words, says) in [
        ("-o a.gif", "its name must end in .png, .jpg, .bmp, .pbm or .tif"),
        ("-o a.tif --bits 8", "--bits 8: a tiff has 1 bit a pixel"),
        ("-o a.jpg --bits 1", "--bits 1: a jpg has 8 bits a pixel"),
        ("-o a.png --format gif", "expected png, jpg, bmp, pbm or tiff"),
        ("-o a.pbm --objects --view overlay", "--view overlay has colours"),
        ("-o a.png --objects --view overlay --bits 1", "--view overlay has colours"),
        ("-o a --objects --view overlay --format png", "must end in"),
        ("-o a.png --dpi 0", "1..=65535"),
        ("-o a.png --page 2", "in/00.png has no page 2: it has 1"),
    ] {
        fails(&place.lockon(&format!("threshold in/00.png --method {METHOD} {words}")), 2, says);
    }
}

#[test]
fn ffv1_keeps_every_sample_of_the_ordinary_picture() {
    let place = Place::new();
    let run = "run ball.mp4 --threshold mean:31:5 --view overlay --no-progress";
    succeeds(place.lockon(&format!("{run} -o a.mkv --codec ffv1 --no-audio")));
    let raw = "video/x-raw,format=I420 ! filesink location";
    place.gst(&format!("filesrc location=ball.mp4 ! decodebin ! {raw}=in.raw"));
    place.gst(&format!("filesrc location=a.mkv ! matroskademux ! avdec_ffv1 ! {raw}=out.raw"));
    let [before, after] = ["in.raw", "out.raw"].map(|name| std::fs::read(place.path(name)).unwrap());
    assert!(before.len() == FRAMES * 160 * 120 * 3 / 2 && before == after);
}

#[test]
fn masks_may_be_written_beside_the_pictures_that_are_read() {
    let place = place();
    let masks = pictures(&place);
    succeeds(place.lockon(&format!("run in --threshold {METHOD} -o in/m%04d.png --no-progress")));
    assert_eq!(place.path("in").read_dir().unwrap().count(), 2 * masks.len());
}

#[test]
fn pictures_have_the_numbers_of_their_frames() {
    let place = place();
    let masks = pictures(&place);
    let words = format!("run in --threshold {METHOD} --start 2 --every 2 -o m%%%02d.png --no-progress");
    succeeds(place.lockon(&words));
    let mut names: Vec<_> =
        place.dir.path().read_dir().unwrap().map(|entry| entry.unwrap().file_name()).collect();
    names.sort();
    assert_eq!(names, ["in", "m%02.png", "m%04.png", "m%06.png"]);
    for number in [2, 4, 6] {
        let written = lockon::still::load(&place.path(&format!("m%{number:02}.png"))).unwrap();
        assert!(written.luma == masks[number], "{number}");
    }
    // Colours of results need three samples.
    succeeds(place.lockon("run in --track 9,9,20,20 -o drawn-%d.png --no-progress"));
    assert!(lockon::still::load(&place.path("drawn-6.png")).unwrap().rgb.is_some());
}

#[test]
fn numbered_pictures_replace_no_others_unless_somebody_says_so() {
    let place = place();
    pictures(&place);
    std::fs::create_dir(place.path("out")).unwrap();
    std::fs::write(place.path("out/0012.png"), "kept").unwrap();
    std::fs::write(place.path("out/notes.png"), "kept").unwrap();
    let words = format!("run in --threshold {METHOD} --no-progress -o out/%04d.png");
    fails(&place.lockon(&words), 1, "out/0012.png exists already: give -y (--overwrite)");
    fails(&place.lockon(&format!("{words} -n")), 1, "out/0012.png exists already, and -n");
    let said = stderr(&succeeds(place.lockon(&format!("{words} -y"))));
    assert!(said.contains("out/%04d.png: 1 of 8 pictures are not of this run"), "{said}");
    assert_eq!((place.read("out/0012.png"), place.read("out/notes.png")), ("kept".into(), "kept".into()));
    let names = "out/0000.png, out/0001.png, out/0002.png, out/0003.png, and 4 more exist already";
    fails(&place.lockon(&words), 1, names);
    // Also with -y.
    let onto_itself = format!("run in --threshold {METHOD} --no-progress -y -o");
    fails(&place.lockon(&format!("{onto_itself} in/%02d.png")), 2, "in/00.png is both input and output");
    fails(&place.lockon(&format!("{onto_itself} ./in/../in/%02d.png")), 2, "is both input and output");
    for (name, says) in [
        ("mask.png", "its name needs a number, as in mask-%06d.png"),
        ("%d-%d.png", "its name needs a number"),
        ("mask.jpg", "or be numbered, as in %06d.png"),
        ("no/%06d.png --codec ffv1", "folder no does not exist (fix: mkdir -p no)"),
        ("a.mp4 --codec ffv1", "--codec ffv1 needs an .mkv"),
        ("a.mkv --codec h265", "expected auto or ffv1"),
    ] {
        fails(&place.lockon(&format!("run in --threshold {METHOD} -o {name}")), 2, says);
    }
    fails(&place.lockon("run in --threshold mean:3:1 --codec ffv1 --results -"), 2, "needs --output");
    fails(&place.lockon("run in --threshold mean:3:1 --cut {n}.png"), 2, "its name must end in .mp4");
}

#[test]
fn a_run_whose_numbered_pictures_are_there_is_done() {
    let place = place();
    pictures(&place);
    let words =
        format!("run in --threshold {METHOD} --no-progress --skip-done --results a.jsonl -o %04d.png");
    succeeds(place.lockon(&words));
    assert!(stderr(&succeeds(place.lockon(&words))).contains("the video is done already"));
    for number in 0..7 {
        std::fs::remove_file(place.path(&format!("{number:04}.png"))).unwrap();
    }
    assert!(!stderr(&succeeds(place.lockon(&words))).contains("done already"));
    // The results of an interrupted run may be replaced.
    let whole = place.read("a.jsonl");
    std::fs::write(place.path("a.jsonl"), &whole[..=whole.trim_end().rfind('\n').unwrap()]).unwrap();
    assert!(!stderr(&succeeds(place.lockon(&words))).contains("done already"));
}

#[test]
fn a_video_has_standard_output_to_itself() {
    let place = Place::new();
    let run = "run ball.mp4 --threshold mean:31:5";
    // With progress and a summary, on standard error.
    let out = succeeds(place.lockon(&format!("{run} -o - --results out.jsonl")));
    assert!(stderr(&out).contains("40 frames in "), "{}", stderr(&out));
    assert!(out.stdout.starts_with(&[0x1A, 0x45, 0xDF, 0xA3]), "no Matroska");
    std::fs::write(place.path("piped.mkv"), &out.stdout).unwrap();
    assert_eq!(place.play("piped.mkv"), FRAMES);
    // Appends to a file that the shell has opened.
    let shell = format!("(echo first; {} {run} -q -o -) >>appended", program().display());
    let done = Command::new("sh").args(["-c", &shell]).current_dir(place.dir.path()).status().unwrap();
    assert!(done.success());
    let appended = std::fs::read(place.path("appended")).unwrap();
    let video = appended.strip_prefix(b"first\n").expect("it was written over");
    std::fs::write(place.path("appended.mkv"), video).unwrap();
    assert_eq!(place.play("appended.mkv"), FRAMES);
    assert!(!place.path("-").exists());
    for (words, says) in [
        ("-o - --results -", "-o - and --results -: a video has standard output to itself"),
        ("-o - --events - --track 50,40,40,40", "-o - and --events -: a video"),
        ("-o - -o -", "-o - and -o -: a video"),
        ("ball.mp4 -o -", "-o - is for one video: use -o '{stem}.mkv'"),
    ] {
        let out = place.lockon(&format!("{run} {words}"));
        fails(&out, 2, says);
        assert!(out.stdout.is_empty(), "{words}");
    }
    fails(&place.lockon("serve --threshold mean:31:5 -o -"), 2, "a page opens many videos");
}

#[test]
fn a_picture_has_standard_output_to_itself() {
    let place = Place::new();
    for words in ["threshold ball.png --method mean:31:5 -o", "match ball.png ball.png -o"] {
        let out = succeeds(place.lockon(&format!("{words} -")));
        succeeds(place.lockon(&format!("{words} picture.png -y")));
        assert!(out.stdout == std::fs::read(place.path("picture.png")).unwrap(), "{words}");
        assert!(!place.path("-").exists());
    }
    fails(&place.lockon("pick ball.mp4 --box 3,5,17,19 -o -"), 2, "its name must end in .png");
}

#[test]
fn standard_output_that_is_a_terminal_gets_no_picture_and_no_video() {
    let place = Place::new();
    for words in [
        "run ball.mp4 --threshold mean:31:5 -o -",
        "run ball.mp4 --threshold mean:31:5 -o - --jobs 1",
        "threshold ball.png --method mean:31:5 -o -",
        "match ball.png ball.png -o -",
    ] {
        let command = format!("{} {words}", program().display());
        let shown = Command::new("timeout")
            .args(["60", "script", "-qec", &command, "/dev/null"])
            .current_dir(place.dir.path())
            .stdin(Stdio::null())
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&shown.stdout);
        assert!(said.contains("standard output, which is a terminal"), "{words}: {said}");
        assert_eq!((shown.status.code(), said.lines().count()), (Some(2), 1), "{words}: {said}");
    }
}
