//! The search for a frame in the window that boxes are picked in, and the first frame that is shown there.

use super::window::{Screen, drag, ends};
use super::*;

impl Place {
    /// `keyed.mp4`: a ball that is elsewhere in each of 120 frames, with a key frame every 10.
    fn keyed(&self) {
        self.gst(
            "videotestsrc num-buffers=120 pattern=ball motion=sweep ! video/x-raw,format=I420,width=160,height=120,framerate=25/1 \
             ! x264enc key-int-max=10 ! mp4mux ! filesink location=keyed.mp4",
        );
    }

    /// True if the box that was cut out as `crop` shows frame `number` of a video.
    fn shows(&self, crop: &str, video: &str, rect: &str, number: u64) -> bool {
        succeeds(self.lockon(&format!("pick {video} --frame {number} --box {rect} -o expected.png -y")));
        std::fs::read(self.path(crop)).unwrap() == std::fs::read(self.path("expected.png")).unwrap()
    }
}

/// Presses keys one after the other. `ximagesink` looks for keys 20 times a second, and loses a key that
/// comes just while it handles other events. Many come when its window has opened.
fn press(screen: &Screen, window: &str, keys: &str) {
    std::thread::sleep(Duration::from_millis(500));
    for key in keys.split(' ') {
        screen.xdotool(&format!("key --delay 70 --window {window} {key}"));
        std::thread::sleep(Duration::from_millis(130));
    }
}

#[test]
fn keys_find_the_frame_and_the_command_names_the_frame_that_was_shown() {
    let Some(screen) = Screen::new() else { return };
    let place = Place::new();
    place.keyed();
    for (keys, number, named) in [
        ("Right Right Right Left", 2, "@2"),
        ("shift+Right period", 26, "@26"),
        // After a seek the frame's number is not known, but its time is.
        ("End", 119, "@4.76s"),
        ("End Left Left", 117, "@4.68s"),
        ("End shift+Left", 94, "@3.76s"),
        ("End Next Prior Prior Home Right", 1, "@1"),
    ] {
        let pick = screen.lockon(&place, "pick keyed.mp4 -o crop.png -y");
        let window = screen.window("keyed.mp4");
        press(&screen, &window, keys);
        drag(&screen, &window, (10, 10), (150, 110));
        press(&screen, &window, "Return");
        let out = succeeds(ends(pick));
        let said = String::from_utf8_lossy(&out.stdout);
        let line = format!("lockon run keyed.mp4 --track 10,10,140,100{named}\n");
        assert!(said.starts_with(&line), "{keys}: {said}");
        assert!(place.shows("crop.png", "keyed.mp4", "10,10,140,100", number), "{keys}");
        assert!(stderr(&out).contains("Page Up and Page Down"), "{}", stderr(&out));
    }
    // A run that gets this moment begins the track on the same frame.
    succeeds(place.lockon("run keyed.mp4 --track 10,10,140,100@3.76s --results out.jsonl --no-progress"));
    let records = place.records("out.jsonl");
    let first = frames(&records).into_iter().find(|frame| frame["tracks"] != serde_json::json!([]));
    assert_eq!(first.unwrap()["frame"], 94);
}

#[test]
fn the_bar_goes_to_a_place_in_the_video_and_boxes_may_be_on_several_frames() {
    let Some(screen) = Screen::new() else { return };
    let place = Place::new();
    let pick = screen.lockon(&place, "pick ball.mp4 -o crop.png");
    let window = screen.window("ball.mp4");
    drag(&screen, &window, (10, 10), (70, 60));
    // With a box, arrows move it, and the full stop goes to the next frame.
    press(&screen, &window, "Right period a");
    // The strip begins below row 119, the bar at column 4, and the times at about column 80.
    drag(&screen, &window, (4, 132), (42, 132));
    drag(&screen, &window, (20, 20), (90, 110));
    press(&screen, &window, "Return");
    let out = succeeds(ends(pick));
    let said = String::from_utf8_lossy(&out.stdout).into_owned();
    assert!(said.starts_with("lockon run ball.mp4 --track 11,10,60,50@1 --track 20,20,70,90@"), "{said}");
    let number = said.lines().next().unwrap().rsplit('@').next().unwrap().parse().unwrap();
    assert!((17..=23).contains(&number), "{said}");
    assert!(place.shows("crop.png", "ball.mp4", "11,10,60,50", 1));
    assert!(place.shows("crop-2.png", "ball.mp4", "20,20,70,90", number));
}

#[test]
fn a_source_that_cannot_be_seeked_says_so_and_goes_ahead() {
    let Some(screen) = Screen::new() else { return };
    let place = Place::new();
    let mut command = Command::new(program());
    command.args(["pick", "-", "-o", "crop.png"]).current_dir(place.dir.path());
    command.env("DISPLAY", &screen.name).env_remove("WAYLAND_DISPLAY");
    place.gst("filesrc location=ball.mp4 ! qtdemux ! h264parse ! matroskamux streamable=true ! filesink location=ball.mkv");
    let mut cat = Command::new("cat").arg(place.path("ball.mkv")).stdout(Stdio::piped()).spawn().unwrap();
    command.stdin(cat.stdout.take().unwrap()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let pick = command.spawn().unwrap();
    let window = screen.window("^-");
    press(&screen, &window, "Right Right Right End Home Left");
    drag(&screen, &window, (10, 10), (150, 110));
    press(&screen, &window, "Return");
    let out = succeeds(ends(pick));
    assert!(stderr(&out).contains("this input cannot be seeked"), "{}", stderr(&out));
    assert!(String::from_utf8_lossy(&out.stdout).contains("--track 10,10,140,100@2"), "{out:?}");
    assert!(place.shows("crop.png", "ball.mp4", "10,10,140,100", 2));
    cat.wait().unwrap();
}

#[test]
fn the_first_frame_that_is_not_empty_is_picked_on_and_that_is_said() {
    let place = Place::new();
    let part = |pattern: &str, frames: u32| {
        format!(
            "videotestsrc num-buffers={frames} pattern={pattern} ! video/x-raw,format=I420,width=160,height=120,framerate=25/1 ! c. "
        )
    };
    place.gst(&format!(
        "concat name=c ! identity single-segment=true ! x264enc ! mp4mux ! filesink location=dark.mp4 {}{}{}",
        part("black", 12),
        part("blue", 3),
        part("smpte", 10)
    ));
    let out = succeeds(place.lockon("pick dark.mp4 --box 10,10,140,100"));
    assert_eq!(String::from_utf8_lossy(&out.stdout), "lockon run dark.mp4 --track 10,10,140,100@15\n");
    let said = "frames 0 to 14 are empty (black, or one flat colour): starting at frame 15";
    assert!(stderr(&out).contains(said), "{}", stderr(&out));
    // A frame given with `--frame` is shown, even if it is empty.
    let out = succeeds(place.lockon("pick dark.mp4 --frame 0 --box 10,10,140,100"));
    assert_eq!(String::from_utf8_lossy(&out.stdout), "lockon run dark.mp4 --track 10,10,140,100@0\n");
    assert!(!stderr(&out).contains("empty"), "{}", stderr(&out));
}
