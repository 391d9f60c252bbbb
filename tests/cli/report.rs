//! Reports and pictures for people: what is in them, and that they are whole.

use std::process::{Command, Output};

use super::*;

/// Runs `lockon` in a shell that lets no file grow beyond so many KiB, which is what an unprivileged test has for a full disk.
fn on_a_full_disk(place: &Place, kib: usize, words: &str) -> Output {
    // `trap` turns the signal into an error of write().
    let script = format!("ulimit -f {kib}; trap '' XFSZ; exec \"$0\" {words}");
    let mut shell = Command::new("timeout");
    shell.arg("120").args(["bash", "-c", &script]).arg(program()).current_dir(place.dir.path());
    shell.output().unwrap()
}

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
    for (file, kib, words) in [
        (
            "page.html",
            4,
            "run -y ball.mp4 --track 0,40,60,60 --max-frames 3 --no-progress --report page.html",
        ),
        ("found.bmp", 4, "match -y ball.png ball.png -o found.bmp"),
        ("mask.bmp", 1, "threshold -y ball.png --method mean:31:5 -o mask.bmp"),
    ] {
        std::fs::write(place.path(file), "the one before").unwrap();
        let before = names(&place);
        let out = on_a_full_disk(&place, kib, words);
        fails(&out, if file == "page.html" { 1 } else { out.status.code().unwrap() }, file);
        assert!(stderr(&out).contains("File too large"), "{file}: {}", stderr(&out));
        assert_eq!((place.read(file).as_str(), names(&place)), ("the one before", before), "{file}");
    }
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
