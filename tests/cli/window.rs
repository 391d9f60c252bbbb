//! Pauses, the window that a run is watched in, and the one that boxes are picked in.
//!
//! Tests that need a window open it on an Xvfb of their own and operate it with xdotool. If these are not
//! installed, the tests report it.

use std::io::{BufRead, BufReader};
use std::process::Child;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use lockon::control::Control;
use lockon::media::source::{Decoder, Input, SourceSpec, VideoSource};

use super::*;
use crate::test_log;
use crate::util::{Job, MemorySink, MemorySource};

/// Repeats a check until it is true, for at most 60 s.
fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_mins(1);
    while !is_so() {
        assert!(Instant::now() < deadline, "waited for 60 s: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Long enough that a forbidden effect would have happened.
const A_WHILE: Duration = Duration::from_millis(300);

#[test]
fn a_run_that_pauses_takes_a_frame_for_each_step_only() {
    let pictures: Vec<_> = (0..12).map(|seed| noise(seed, Size::new(31, 17))).collect();
    let (job, sink) = (Job::default(), MemorySink::default());
    let heard = sink.heard.clone();
    let count = || heard.lock().unwrap().records.len();
    job.control.pause(true);
    std::thread::scope(|scope| {
        let run = scope.spawn(|| job.run(&mut MemorySource::new(&pictures), vec![Box::new(sink)]));
        std::thread::sleep(A_WHILE);
        assert_eq!(count(), 0);
        for steps in [1, 2] {
            let before = count();
            (0..steps).for_each(|_| job.control.step());
            wait_until("the frames of the steps", || count() == before + steps);
            std::thread::sleep(A_WHILE);
            assert_eq!(count(), before + steps);
        }
        assert!(!run.is_finished());
        job.control.pause(false);
        let (summary, outcome) = run.join().unwrap();
        outcome.unwrap();
        assert_eq!(summary.frames, 12);
        let stalls = heard.lock().unwrap().events.len();
        assert_eq!((stalls, summary.interrupted), (0, false));
    });
}

#[test]
fn a_run_that_pauses_can_be_ended() {
    let pictures: Vec<_> = (0..5).map(|seed| noise(seed, Size::new(31, 17))).collect();
    let job = Job::default();
    job.control.pause(true);
    std::thread::scope(|scope| {
        let run = scope.spawn(|| job.run(&mut MemorySource::new(&pictures), vec![]));
        std::thread::sleep(A_WHILE);
        assert!(!run.is_finished());
        job.control.stop();
        let (summary, outcome) = run.join().unwrap();
        outcome.unwrap();
        assert_eq!((summary.frames, summary.interrupted), (0, true));
    });
}

#[test]
fn a_live_source_drops_what_comes_in_a_pause() {
    let text = "videotestsrc is-live=true num-buffers=150 \
                ! video/x-raw,format=GRAY8,width=64,height=48,framerate=50/1 ! appsink name=frames";
    let launch = lockon::media::launch::Launch::new("test", text);
    let spec = SourceSpec::new(Input::Launch(launch), Decoder::Software);
    let mut source = VideoSource::open(&spec, &Control::new()).unwrap();
    let (job, sink) = (Job::default(), MemorySink::default());
    let heard = sink.heard.clone();
    let frames = || heard.lock().unwrap().records.iter().map(|record| record.frame).collect::<Vec<_>>();
    std::thread::scope(|scope| {
        let run = scope.spawn(|| {
            job.run_on(&mut source, vec![Box::new(sink)], &|purpose| job.open_backend(purpose), None)
        });
        wait_until("the first frames", || frames().len() >= 3);
        job.control.pause(true);
        std::thread::sleep(Duration::from_secs(1));
        let before = frames();
        std::thread::sleep(A_WHILE);
        assert_eq!(frames(), before);
        job.control.pause(false);
        let (summary, outcome) = run.join().unwrap();
        outcome.unwrap();
        // 50 frames came in the second, and only a few of them may wait.
        assert!(summary.dropped >= 40, "{} dropped", summary.dropped);
        assert!(frames()[before.len()] >= before.last().unwrap() + 40, "{:?}", frames());
    });
}

#[test]
fn a_box_is_cut_out_of_a_frame_without_a_window_and_found_there_again() {
    let place = Place::new();
    let out = succeeds(place.lockon("pick ball.mp4 --frame 7 --box 10,20,60,50 -o crop.png"));
    let lines = "lockon run ball.mp4 --track 10,20,60,50@7\nlockon run ball.mp4 --template crop.png\n";
    assert_eq!(String::from_utf8(out.stdout).unwrap(), lines);
    // There is no picture that could be searched for.
    std::os::unix::fs::symlink("/dev/null", place.path("null.png")).unwrap();
    let out = succeeds(place.lockon("pick ball.mp4 --frame 7 --box 10,20,60,50 -o null.png -y"));
    assert_eq!(String::from_utf8(out.stdout).unwrap(), lines.split_inclusive('\n').next().unwrap());
    let crop = lockon::still::load(&place.path("crop.png")).unwrap().luma;
    assert_eq!(crop.size(), Size::new(60, 50));
    // Frame 7 is at 0.28 s; the first frame that is not before 0.25 s is the same.
    succeeds(place.lockon("pick ball.mp4 --at 0.25s --box 10,20,60,50 -o at.png"));
    assert_eq!(std::fs::read(place.path("crop.png")).unwrap(), std::fs::read(place.path("at.png")).unwrap());
    succeeds(place.lockon("pick ball.mp4 --frame 8 --box 10,20,60,50 -o next.png"));
    assert_ne!(
        std::fs::read(place.path("crop.png")).unwrap(),
        std::fs::read(place.path("next.png")).unwrap()
    );
    fails(&place.lockon("pick ball.mp4 --frame 8 --box 10,20,60,50 -o next.png"), 1, "exists already");
}

#[test]
fn a_picked_template_has_the_colours_of_the_video() {
    let place = Place::new();
    place.gst(
        "videotestsrc num-buffers=3 pattern=smpte ! video/x-raw,format=I420,width=140,height=120,framerate=25/1 \
         ! x264enc pass=qual quantizer=1 ! mp4mux ! filesink location=bars.mp4",
    );
    succeeds(place.lockon("pick bars.mp4 --box 2,2,138,60 -o bars.png"));
    let colours = image::open(place.path("bars.png")).unwrap().into_rgb8();
    // SMPTE's bars, 20 pixels wide: grey, yellow, cyan, green, magenta, red, blue.
    let bars = [[1, 1, 1], [1, 1, 0], [0, 1, 1], [0, 1, 0], [1, 0, 1], [1, 0, 0], [0, 0, 1]];
    for (bar, expected) in (0..).zip(bars) {
        let seen = colours.get_pixel(8 + 20 * bar, 30).0.map(|v| u8::from(v > 95));
        assert_eq!(seen, expected, "bar {bar}: {:?}", colours.get_pixel(8 + 20 * bar, 30));
    }
}

#[test]
fn picks_that_cannot_be_are_refused_in_plain_words() {
    let place = Place::new();
    fails(
        &place.lockon("pick ball.mp4 --box 100,100,60,50"),
        1,
        "box 100,100,60,50 does not lie inside the 160x120",
    );
    fails(
        &place.lockon("pick ball.mp4 --frame 400 --box 1,1,9,9"),
        1,
        "it ends before frame 400: its last frame is 39",
    );
    fails(&place.lockon("pick ball.mp4 --box 1,1,9,9 -o crop.txt"), 2, "must end in .png, .jpg or .bmp");
    fails(&place.lockon("pick ball.mp4 --frame 1 --at 2s --box 1,1,9,9"), 2, "cannot be used with");
}

#[test]
fn a_pick_destroys_none_of_its_own_pictures() {
    let place = Place::new();
    std::fs::create_dir(place.path("seq")).unwrap();
    place.gst("videotestsrc num-buffers=3 ! video/x-raw,width=64,height=48 ! pngenc ! multifilesink location=seq/%04d.png");
    std::fs::copy(place.path("seq/0002.png"), place.path("seq/a b.png")).unwrap();
    let kept = std::fs::read(place.path("seq/a b.png")).unwrap();
    let folder = place.path("seq").display().to_string();
    for (input, output) in [
        ("seq/%04d.png", "seq/0002.png"),
        ("seq", "seq/0002.png"),
        ("seq/*.png", "seq/../seq/0002.png"),
        (&format!("file://{folder}/0002.png"), "seq/0002.png"),
        (&format!("file://{folder}/a%20b.png"), "seq/a b.png"),
        ("seq/0002.png", "seq/0002.png"),
    ] {
        let out = place.lockon_args(&["pick", input, "--box", "1,1,9,9", "-o", output, "-y"]);
        fails(&out, 2, "is both input and output");
    }
    // The second box would go there.
    let boxes = ["--box", "1,1,9,9", "--box", "2,2,9,9"];
    std::fs::copy(place.path("seq/0002.png"), place.path("seq/new-2.png")).unwrap();
    let out = place.lockon_args(&[&["pick", "seq/*.png"][..], &boxes, &["-o", "seq/new.png", "-y"]].concat());
    fails(&out, 2, "new-2.png is both input and output");
    for name in ["seq/0002.png", "seq/a b.png", "seq/new-2.png"] {
        assert_eq!(std::fs::read(place.path(name)).unwrap(), kept, "{name}");
    }
}

#[test]
fn several_boxes_go_to_free_names_or_over_those_of_before() {
    let place = Place::new();
    let pick = |boxes: [&str; 2], more: &str| {
        let [one, two] = boxes;
        place.lockon(&format!("pick ball.mp4 --box {one} --box {two} -o crop.png {more}"))
    };
    let size = |name: &str| lockon::still::load(&place.path(name)).unwrap().luma.size();
    std::fs::write(place.path("crop-2.png"), "kept").unwrap();
    let out = succeeds(pick(["1,1,20,10", "1,1,30,20"], "-n"));
    let said = String::from_utf8(out.stdout).unwrap();
    assert!(said.ends_with("lockon run ball.mp4 --template crop.png --template crop-3.png\n"), "{said}");
    assert_eq!((size("crop.png"), size("crop-3.png")), (Size::new(20, 10), Size::new(30, 20)));
    assert_eq!(place.read("crop-2.png"), "kept");
    fails(&pick(["1,1,9,9", "1,1,9,9"], ""), 1, "crop.png exists already");
    succeeds(pick(["1,1,12,10", "1,1,14,20"], "-y"));
    assert_eq!((size("crop.png"), size("crop-2.png")), (Size::new(12, 10), Size::new(14, 20)));
    assert!(!place.path("crop-4.png").exists());
}

/// Runs `lockon` where there is no screen, or none that answers.
fn without_a_screen(place: &Place, words: &str, display: Option<&str>) -> Output {
    let mut command = Command::new("timeout");
    command.arg("120").arg(program()).args(words.split_whitespace());
    command.current_dir(place.dir.path()).stdin(Stdio::null());
    command.env_remove("DISPLAY").env_remove("WAYLAND_DISPLAY");
    command.envs(display.map(|display| ("DISPLAY", display))).output().unwrap()
}

#[test]
#[cfg(target_os = "linux")]
fn a_screen_that_does_not_answer_is_an_error_and_no_crash() {
    let place = Place::new();
    for words in ["run ball.mp4 --threshold mean:31:5 --display --no-progress", "pick ball.mp4"] {
        // No server has so high a number.
        let out = without_a_screen(&place, words, Some(":65000"));
        // Libraries of windows print messages of their own too.
        let said = stderr(&out);
        assert_eq!(out.status.code(), Some(1), "{said}");
        assert!(said.contains("no window can be opened"), "{said}");
    }
}

#[test]
#[cfg(target_os = "linux")]
fn without_a_screen_the_frame_is_written_with_a_grid_and_the_way_on_is_said() {
    let place = Place::new();
    for (words, name) in [
        ("pick ball.mp4 --frame 3", "ball-frame-3.png"),
        ("pick ball.mp4 --frame 3", "ball-frame-3-2.png"),
        ("run ball.mp4 --pick --no-progress", "ball-frame-0.png"),
    ] {
        let out = without_a_screen(&place, words, None);
        fails(&out, 1, "neither DISPLAY nor WAYLAND_DISPLAY is set");
        let said = stderr(&out);
        assert!(said.contains(name) && said.contains("lockon run ball.mp4 --track X,Y,W,H@"), "{said}");
        assert!(out.stdout.is_empty());
        // In a small picture labelled lines lie 20 pixels apart.
        let luma = lockon::still::load(&place.path(name)).unwrap().luma;
        assert_eq!(luma.size(), Size::new(160, 120));
        let brightness = |x| (50..120).map(|y| u64::from(luma.as_ref().row(y)[x])).sum::<u64>();
        for x in [60, 80, 100, 120, 140] {
            assert!(brightness(x) > brightness(x - 2) + 70 * 20, "no line at {x}");
        }
    }
}

/// Sends a window the client message `WM_DELETE_WINDOW`, as a window manager does: an `XClientMessageEvent`
/// of 32-bit values.
const CLOSE: &str = "
import ctypes, struct, sys
x = ctypes.CDLL('libX11.so.6')
x.XOpenDisplay.restype = ctypes.c_void_p
display, window = ctypes.c_void_p(x.XOpenDisplay(None)), int(sys.argv[1])
x.XInternAtom.restype = ctypes.c_ulong
protocols, delete = (x.XInternAtom(display, name, 0) for name in (b'WM_PROTOCOLS', b'WM_DELETE_WINDOW'))
event = struct.pack('@iLiPLLi5l', 33, 0, 1, 0, window, protocols, 32, delete, 0, 0, 0, 0).ljust(192, bytes(1))
x.XSendEvent(display, ctypes.c_ulong(window), 0, ctypes.c_long(0), event)
x.XSync(display, 0)
";

/// An X server without a screen to see, and what is done on it.
pub(super) struct Screen {
    server: Child,
    pub(super) name: String,
}

/// Reports that a test is skipped because there is no screen. That is a failure if `LOCKON_REQUIRE_SCREEN` is
/// set.
fn no_screen(why: &str) -> Option<Screen> {
    test_log::missing("SCREEN", why);
    None
}

impl Screen {
    /// Starts an X server; returns `None`, with a message, if Xvfb and xdotool are not installed.
    pub(super) fn new() -> Option<Self> {
        let mut command = Command::new("Xvfb");
        // Without -noreset it starts again when its last client leaves, and drops a client that connects just
        // then.
        command.args(["-displayfd", "1", "-screen", "0", "800x600x24", "-nolisten", "tcp", "-noreset"]);
        let started = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn();
        let has_xdotool = Command::new("xdotool").arg("version").output().is_ok();
        let mut server = match started {
            Ok(server) if has_xdotool => server,
            Ok(mut server) => {
                let _ = server.kill();
                let _ = server.wait();
                return no_screen("xdotool is not installed");
            }
            Err(error) => {
                return no_screen(&format!("Xvfb cannot be started: {error}"));
            }
        };
        let mut number = String::new();
        BufReader::new(server.stdout.as_mut().unwrap()).read_line(&mut number).unwrap();
        Some(Self { server, name: format!(":{}", number.trim()) })
    }

    pub(super) fn lockon(&self, place: &Place, words: &str) -> Child {
        let mut command = Command::new(program());
        command.args(words.split_whitespace()).current_dir(place.dir.path()).stdin(Stdio::null());
        command.env("DISPLAY", &self.name).env_remove("WAYLAND_DISPLAY");
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    }

    pub(super) fn xdotool(&self, words: &str) -> String {
        let mut command = Command::new("xdotool");
        let done = command.args(words.split_whitespace()).env("DISPLAY", &self.name).output().unwrap();
        String::from_utf8(done.stdout).unwrap().trim().to_owned()
    }

    /// Closes a window as its title bar's button does: asks its program to.
    fn close(&self, window: &str) {
        let mut command = Command::new("python3");
        let done = command.args(["-c", CLOSE, window]).env("DISPLAY", &self.name).output().unwrap();
        assert!(done.status.success(), "{}", stderr(&done));
    }

    /// Returns the window with that text in its name, once there is one.
    pub(super) fn window(&self, name: &str) -> String {
        let mut found = String::new();
        wait_until("the window", || {
            found = self.xdotool(&format!("search --onlyvisible --name {name}"));
            !found.is_empty()
        });
        found
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        let _ = self.server.kill();
        let _ = self.server.wait();
    }
}

/// Returns the output of a program, which must end within a minute.
pub(super) fn ends(mut child: Child) -> Output {
    wait_until("the end of the program", || child.try_wait().unwrap().is_some());
    child.wait_with_output().unwrap()
}

impl Place {
    /// `long.mp4`: a minute at its own pace.
    fn long(&self) {
        self.gst(
            "videotestsrc num-buffers=1500 pattern=ball ! video/x-raw,format=I420,width=160,height=120,framerate=25/1 \
             ! x264enc speed-preset=ultrafast ! mp4mux ! filesink location=long.mp4",
        );
    }
}

#[test]
fn keys_and_the_close_of_the_window_end_a_run_well_and_complete_its_files() {
    let Some(screen) = Screen::new() else { return };
    let place = Place::new();
    place.long();
    for end in ["q", "Escape", "close"] {
        let words =
            "run long.mp4 --threshold mean:31:5 --display -y -o out.mkv --results out.jsonl --no-progress";
        let run = screen.lockon(&place, words);
        let window = screen.window("long.mp4");
        std::thread::sleep(Duration::from_millis(500));
        match end {
            "close" => screen.close(&window),
            key => drop(screen.xdotool(&format!("key --window {window} {key}"))),
        }
        let out = succeeds(ends(run));
        let said = stderr(&out);
        assert!(!said.contains("error") && !said.contains("dropped."), "{end}: {said}");
        let records = place.records("out.jsonl");
        let count = frames(&records).len();
        assert!((1..1500).contains(&count), "{end}: {count} frames");
        assert_eq!(records.last().unwrap()["type"], "summary");
        assert_eq!(records.last().unwrap()["interrupted"], true);
        assert_eq!(place.play("out.mkv"), count, "{end}");
    }
}

#[test]
fn space_pauses_a_run_and_a_full_stop_goes_on_by_one_frame() {
    let Some(screen) = Screen::new() else { return };
    let place = Place::new();
    place.long();
    let mut run =
        screen.lockon(&place, "run long.mp4 --threshold mean:31:5 --display --results - --no-progress");
    let lines = Arc::new(AtomicUsize::new(0));
    let (counted, stdout) = (lines.clone(), run.stdout.take().unwrap());
    let reader = std::thread::spawn(move || {
        BufReader::new(stdout).lines().for_each(|_| {
            counted.fetch_add(1, Ordering::Relaxed);
        });
    });
    let count = || lines.load(Ordering::Relaxed);
    let window = screen.window("long.mp4");
    let press = |key: &str| screen.xdotool(&format!("key --window {window} {key}"));
    wait_until("some frames", || count() > 5);
    press("space");
    let mut stands = count();
    wait_until("the pause", || {
        std::thread::sleep(A_WHILE);
        std::mem::replace(&mut stands, count()) == count()
    });
    for step in 1..=3 {
        press("period");
        wait_until("the step", || count() == stands + step);
        std::thread::sleep(A_WHILE);
        assert_eq!(count(), stands + step);
    }
    press("space");
    wait_until("it goes on", || count() > stands + 10);
    // It can be closed while it pauses.
    press("space");
    std::thread::sleep(A_WHILE);
    screen.close(&window);
    succeeds(ends(run));
    reader.join().unwrap();
}

/// Drags the mouse over a window from one place to another.
pub(super) fn drag(screen: &Screen, window: &str, (x, y): (u32, u32), (to_x, to_y): (u32, u32)) {
    for words in [
        format!("mousemove --window {window} {x} {y}"),
        "mousedown 1".to_owned(),
        format!("mousemove --window {window} {} {}", u32::midpoint(x, to_x), u32::midpoint(y, to_y)),
        format!("mousemove --window {window} {to_x} {to_y}"),
        "mouseup 1".to_owned(),
    ] {
        screen.xdotool(&words);
        // The output looks for the mouse's events 20 times a second, and of its moves uses the last.
        std::thread::sleep(Duration::from_millis(150));
    }
}

#[test]
fn boxes_that_are_dragged_in_a_window_become_a_command_and_a_template() {
    let Some(screen) = Screen::new() else { return };
    let place = Place::new();
    let pick = screen.lockon(&place, "pick ball.mp4 --frame 7 -o crop.png");
    let window = screen.window("ball.mp4");
    drag(&screen, &window, (20, 30), (80, 70));
    screen.xdotool(&format!("key --window {window} a"));
    drag(&screen, &window, (140, 100), (90, 60));
    screen.xdotool(&format!("key --window {window} Left Up Return"));
    let out = succeeds(ends(pick));
    let lines = String::from_utf8(out.stdout).unwrap();
    assert_eq!(
        lines,
        "lockon run ball.mp4 --track 20,30,60,40@7 --track 89,59,50,40@7\n\
         lockon run ball.mp4 --template crop.png --template crop-2.png\n"
    );
    for (name, size) in [("crop.png", Size::new(60, 40)), ("crop-2.png", Size::new(50, 40))] {
        assert_eq!(lockon::still::load(&place.path(name)).unwrap().luma.size(), size);
    }

    let pick = screen.lockon(&place, "pick ball.mp4");
    let window = screen.window("ball.mp4");
    screen.xdotool(&format!("key --window {window} Escape"));
    let out = ends(pick);
    fails(&out, 1, "nothing was picked");
    assert!(out.stdout.is_empty());
}

#[test]
fn a_run_follows_what_was_picked_on_its_first_frame() {
    let Some(screen) = Screen::new() else { return };
    let place = Place::new();
    let run = screen.lockon(&place, "run ball.mp4 --pick --start 5 --results out.jsonl --no-progress");
    let window = screen.window("ball.mp4");
    drag(&screen, &window, (20, 30), (120, 110));
    screen.xdotool(&format!("key --window {window} Return"));
    let out = succeeds(ends(run));
    assert!(stderr(&out).contains("picked: --track 20,30,100,80@5"), "{}", stderr(&out));
    let records = place.records("out.jsonl");
    assert_eq!(records[0]["tracks"][0], "20,30,100,80@5");
    let frames = frames(&records);
    // The frame that was picked on is the first that is followed.
    assert_eq!((frames.len(), &frames[0]["frame"]), (FRAMES - 5, &Value::from(5)));
    assert_eq!(frames[0]["tracks"][0]["x"], 20.0);
}

#[test]
fn what_is_dragged_over_a_running_video_is_followed_what_is_clicked_forgotten_and_both_are_repeated() {
    let Some(screen) = Screen::new() else { return };
    let place = Place::new();
    place.gst(
        "videotestsrc num-buffers=1500 pattern=smpte ! video/x-raw,format=I420,width=160,height=120,framerate=25/1 \
         ! x264enc speed-preset=ultrafast ! mp4mux ! filesink location=bars.mp4",
    );
    // The only option is the window (`--display`).
    let run = screen.lockon(&place, "run bars.mp4 --display --results out.jsonl --no-progress");
    let window = screen.window("bars.mp4");
    let said = |what: &str| {
        let text = std::fs::read_to_string(place.path("out.jsonl")).unwrap_or_default();
        text.contains(what)
    };
    let press = |key: &str| screen.xdotool(&format!("key --window {window} {key}"));
    wait_until("some frames", || said("\"frame\":5,"));
    press("space");
    drag(&screen, &window, (60, 70), (92, 106));
    press("space");
    wait_until("a track", || said("\"state\":\"tracked\""));
    drag(&screen, &window, (75, 85), (75, 85));
    wait_until("that it is forgotten", || said("\"order\":\"forget\""));
    std::thread::sleep(A_WHILE);
    press("q");
    succeeds(ends(run));
    let records = place.records("out.jsonl");
    let orders: Vec<_> = records.iter().filter(|record| record["type"] == "control").collect();
    assert_eq!(orders.len(), 2, "{orders:?}");
    assert_eq!(
        (&orders[0]["id"], &orders[0]["box"], &orders[1]["id"]),
        (&1.into(), &"60,70,32,36".into(), &1.into())
    );
    // The box was dragged over the frame in the window, some frames before the frame that was searched.
    let (at, from) = (orders[0]["at"].as_u64().unwrap(), orders[0]["frame"].as_u64().unwrap());
    assert!(at < from && from - at < 16, "{at}, {from}");
    let until = orders[1]["frame"].as_u64().unwrap();
    for record in frames(&records) {
        let is_followed = (from..until).contains(&record["frame"].as_u64().unwrap());
        assert_eq!(record["tracks"].as_array().unwrap().len(), usize::from(is_followed), "{record}");
    }
    let count = frames(&records).len();
    let again =
        place.lockon(&format!("run bars.mp4 --control out.jsonl --max-frames {count} --results again.jsonl"));
    succeeds(again);
    let found = |name: &str| {
        let of =
            |record: &Value| (record["frame"].clone(), record["matches"].clone(), record["tracks"].clone());
        frames(&place.records(name)).iter().map(|record| of(record)).collect::<Vec<_>>()
    };
    assert_eq!(found("out.jsonl"), found("again.jsonl"));
}
