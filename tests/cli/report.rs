//! Reports and pictures for the user: their contents, and that they are complete.

use std::fmt::Write as _;
use std::process::Command;

use super::*;

/// Every name in the folder, also those that begin with a dot.
fn names(place: &Place) -> Vec<String> {
    let entries = std::fs::read_dir(place.dir.path()).unwrap();
    let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn a_template_name_of_a_hundred_letters_has_its_report() {
    let place = Place::new();
    let name = "n".repeat(100);
    succeeds(place.lockon(&format!(
        "run ball.mp4 --template {name}=ball.png --report page.html --max-frames 3 --no-progress"
    )));
    assert!(place.read("page.html").contains(&name));
}

#[cfg(target_os = "linux")]
#[test]
fn a_disk_that_is_full_keeps_the_report_and_the_picture_of_before() {
    let place = Place::new();
    for (file, kib, code, words) in [
        (
            "page.html",
            4,
            1,
            "run -y ball.mp4 --track 0,40,60,60 --max-frames 3 --no-progress --report page.html",
        ),
        ("found.bmp", 4, 2, "match -y ball.png ball.png -o found.bmp"),
        ("mask.bmp", 1, 1, "threshold -y ball.png --method mean:31:5 -o mask.bmp"),
    ] {
        std::fs::write(place.path(file), "the one before").unwrap();
        let before = names(&place);
        let out = on_a_full_disk(&place, kib, words);
        fails(&out, code, file);
        let said = stderr(&out);
        assert!(said.contains("File too large"), "{file}: {said}");
        // The message does not contain the temporary name under which the file was written, and does not
        // report the old file as written.
        assert!(!said.contains("at path") && !said.contains("written:"), "{file}: {said}");
        assert_eq!((place.read(file).as_str(), names(&place)), ("the one before", before), "{file}");
    }
}

/// As containers are given files of the host.
#[cfg(target_os = "linux")]
#[test]
fn a_report_onto_a_file_that_is_mounted_by_itself_is_written() {
    let place = Place::new();
    let mounted = |script: &str| {
        let script = format!("mount --bind host.html page.html && {script}");
        let mut shell = Command::new("unshare");
        shell.args(["--map-root-user", "--mount", "bash", "-c", &script]).arg(program());
        shell.current_dir(place.dir.path()).output()
    };
    for file in ["host.html", "page.html"] {
        std::fs::write(place.path(file), "the one before").unwrap();
    }
    if !mounted("true").is_ok_and(|done| done.status.success()) {
        return crate::test_log::skipped("nothing can be mounted here");
    }
    let before = names(&place);
    let run =
        "exec \"$0\" run -y ball.mp4 --track 0,40,60,60 --max-frames 3 --no-progress --report page.html";
    succeeds(mounted(run).unwrap());
    assert!(place.read("host.html").contains("</html>"));
    assert_eq!((place.read("page.html").as_str(), names(&place)), ("the one before", before));
}

#[cfg(target_os = "linux")]
#[test]
fn a_picture_goes_through_standard_output_where_that_is_asked_for() {
    let place = Place::new();
    std::os::unix::fs::symlink("/dev/stdout", place.path("out.png")).unwrap();
    let script = "exec \"$0\" threshold ball.png --method mean:31:5 -o out.png | cat >piped.png";
    let done =
        Command::new("bash").args(["-c", script]).arg(program()).current_dir(place.dir.path()).output();
    succeeds(done.unwrap());
    assert_eq!(lockon::still::load(&place.path("piped.png")).unwrap().luma.size(), Size::new(48, 48));
    assert!(place.path("out.png").symlink_metadata().unwrap().is_symlink());
}

/// A scene with colours in which a red patch of noise lies at (77, 31), and one of its own at (20, 50).
fn coloured_scene(place: &Place) -> Vec<u8> {
    let size = Size::new(150, 90);
    let (mut scene, patch, other) =
        (noise(1, size), noise(2, Size::new(21, 13)), noise(3, Size::new(25, 15)));
    paste(&mut scene, &patch, 77, 31);
    paste(&mut scene, &other, 20, 50);
    lockon::still::save(&place.path("patch.png"), patch.as_ref()).unwrap();
    lockon::still::save(&place.path("other.png"), other.as_ref()).unwrap();
    lockon::still::save(&place.path("missing.png"), noise(4, Size::new(21, 13)).as_ref()).unwrap();
    // Colours that leave luma where it is, nearly: more red and less green.
    let rgb: Vec<u8> =
        scene.data().iter().flat_map(|&v| [v.saturating_add(60), v.saturating_sub(30), v]).collect();
    let mut file = format!("P6 {} {} 255\n", size.width, size.height).into_bytes();
    file.extend(&rgb);
    std::fs::write(place.path("scene.ppm"), file).unwrap();
    place.gst("filesrc location=scene.ppm ! pnmdec ! videoconvert ! video/x-raw,format=RGB ! pngenc snapshot=true ! filesink location=scene.png");
    lockon::still::load(&place.path("scene.png")).unwrap().rgb.expect("it has colours")
}

#[test]
fn match_ends_as_grep_does() {
    let place = Place { dir: tempfile::tempdir().unwrap() };
    coloured_scene(&place);
    std::fs::write(place.path("words.png"), "no pixels").unwrap();
    let run = |words: &str| place.lockon(&format!("match {words}"));
    let matches = |out: &Output| {
        let record: Value = serde_json::from_slice(&out.stdout).unwrap();
        record["matches"].as_array().unwrap().len()
    };
    // Found; one of several is enough.
    assert_eq!(matches(&succeeds(run("scene.png patch.png"))), 1);
    assert_eq!(matches(&succeeds(run("scene.png patch.png other.png missing.png"))), 2);
    // Not found: the record says so, and no error is printed.
    let out = run("scene.png missing.png");
    assert_eq!((out.status.code(), matches(&out), stderr(&out).contains("error")), (Some(1), 0, false));
    // Errors of every kind.
    for words in [
        "nowhere.png patch.png",
        "words.png patch.png",
        "scene.png words.png",
        "scene.png scene.png nowhere.png",
        "patch.png scene.png",
        "scene.png patch.png --min-score 2",
        "scene.png patch.png -o found.pdf",
        "scene.png patch.png -o no/where.png",
    ] {
        let out = run(words);
        assert_eq!(out.status.code(), Some(2), "{words}: {}", stderr(&out));
        assert!(out.stdout.is_empty(), "{words}");
    }
    let help = String::from_utf8(run("--help").stdout).unwrap();
    assert!(help.contains("0 a template was found, 1 none was found, 2 an error"), "{help}");
}

#[test]
fn the_picture_of_matches_keeps_the_colours_of_the_scene() {
    let place = Place { dir: tempfile::tempdir().unwrap() };
    let before = coloured_scene(&place);
    succeeds(place.lockon("match scene.png patch.png -o found.png"));
    let after = lockon::still::load(&place.path("found.png")).unwrap().rgb.expect("it has colours");
    let pixel = |rgb: &[u8], x: usize, y: usize| rgb[3 * (y * 150 + x)..][..3].to_vec();
    // In what was found, and far from it.
    for (x, y) in [(80, 35), (96, 42), (5, 5), (20, 80), (140, 70)] {
        assert_eq!(pixel(&after, x, y), pixel(&before, x, y), "at {x}, {y}");
    }
    // Below the middle of the box, its line.
    assert_ne!(pixel(&after, 87, 44), pixel(&before, 87, 44));
}

#[test]
fn explain_tells_right_places_from_wrong_ones_and_leaves_standard_output_alone() {
    let place = Place { dir: tempfile::tempdir().unwrap() };
    coloured_scene(&place);
    let plain = succeeds(place.lockon("match scene.png patch.png other.png"));
    let out = succeeds(place.lockon("match scene.png patch.png other.png --explain"));
    let matches = |out: &Output| {
        let record: Value = serde_json::from_slice(&out.stdout).unwrap();
        record["matches"].clone()
    };
    assert_eq!(matches(&out), matches(&plain));
    let said = stderr(&out);
    for name in ["patch (21x13): 1 place stands out\n  right ", "other (25x15): 1 place stands out\n  right "]
    {
        assert!(said.contains(name), "{said}");
    }
    // The proposed `--min-score` finds the right place alone, although `--max-matches` allows twenty.
    let mut proposed = said.split("--min-score ").skip(1).map(|rest| rest.split(' ').next().unwrap());
    let score = proposed.next().unwrap();
    let found =
        succeeds(place.lockon(&format!("match scene.png patch.png --max-matches 20 --min-score {score}")));
    assert_eq!(matches(&found).as_array().unwrap().len(), 1, "{said}");
    // A template that occurs twenty-five times.
    let (tile, size) = (noise(3, Size::new(20, 16)), Size::new(200, 160));
    let mut many = noise(4, size);
    for copy in 0..25 {
        let (left, top) = (copy % 5 * 40 + 7, copy / 5 * 32 + 5);
        for y in 0..16 {
            many.data_mut()[(top + y) * size.width + left..][..20]
                .copy_from_slice(&tile.data()[y * 20..][..20]);
        }
    }
    lockon::still::save(&place.path("many.png"), many.as_ref()).unwrap();
    lockon::still::save(&place.path("tile.png"), tile.as_ref()).unwrap();
    let out = succeeds(place.lockon("match many.png tile.png --max-matches 7 --explain"));
    let said = stderr(&out);
    for expected in [
        "tile (20x16): 25 places stand out\n",
        "--max-matches 7 reports 7 of 25 right places: equal scores are reported from the top down",
    ] {
        assert!(said.contains(expected), "{said}");
    }
    let places: Vec<_> =
        matches(&out).as_array().unwrap().iter().map(|m| (m["y"].clone(), m["x"].clone())).collect();
    assert_eq!(places[..6].iter().map(|(y, _)| y.as_u64().unwrap()).collect::<Vec<_>>(), [5, 5, 5, 5, 5, 37]);
    // A template that does not occur.
    let out = place.lockon("match scene.png missing.png --explain");
    assert_eq!(out.status.code(), Some(1));
    assert!(stderr(&out).contains("is not in the picture"), "{}", stderr(&out));
}

#[test]
fn templates_that_cannot_be_told_from_what_they_are_not_are_warned_of() {
    let place = Place::new();
    let size = Size::new(48, 40);
    let draw = |name: &str, pixel: &dyn Fn(usize, usize) -> u8| {
        let pixels = (0..size.area()).map(|i| pixel(i % size.width, i / size.width)).collect();
        lockon::still::save(&place.path(name), Plane::from_vec(pixels, size).as_ref()).unwrap();
    };
    draw("edge.png", &|x, y| if x + y / 8 < 25 { 60 } else { 180 });
    draw("stripes.png", &|x, y| if (x / 6) % 2 == 0 { 60 + y as u8 } else { 180 });
    draw("faint.png", &|x, y| 100 + ((x * 7 + y * 13) % 11 / 5) as u8);
    let mut expected = String::new();
    for (name, says) in [
        ("edge", "is little more than one edge"),
        ("stripes", "looks like itself 12,0 pixels further"),
        ("faint", "has little contrast"),
    ] {
        let said = stderr(&succeeds(place.lockon(&format!("match {name}.png {name}.png"))));
        assert!(said.contains(&format!("template \"{name}\" {says}")), "{said}");
        let _ = write!(expected, " --template {name}.png");
    }
    let run = succeeds(place.lockon(&format!("run ball.mp4{expected} --max-frames 1 --no-progress")));
    for says in ["one edge", "looks like itself", "little contrast"] {
        assert!(stderr(&run).contains(says), "{}", stderr(&run));
    }
    let fit = stderr(&succeeds(place.lockon("match ball.png ball.png")));
    assert!(!fit.contains("template"), "{fit}");
}

#[test]
fn a_threshold_is_seen_where_nothing_else_is_asked_for() {
    let place = Place::new();
    let first = |words: &str| {
        let run = "run -y ball.mp4 --threshold mean:31:5 --no-progress -o out.avi";
        succeeds(place.lockon(&format!("{run} {words}")));
        place.frame("out.avi")
    };
    let (alone, mask) = (first(""), first("--view mask"));
    assert_eq!(alone.data(), mask.data());
    let (overlay, tracked) = (first("--view overlay"), first("--track 50,40,40,40@30"));
    assert_ne!(alone.data(), overlay.data());
    // The track has not begun: nothing is drawn.
    assert_eq!(overlay.data(), tracked.data());
}
