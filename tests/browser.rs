//! The live page in a browser: Chromium, driven as a person would use it.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::page::{Ended, Served};
use crate::{live, test_log};

/// A timeout far longer than anything takes, also on a busy machine.
const LONG: Duration = Duration::from_secs(90);

/// Colour bars that move to the left, one pixel a frame.
const BARS: &str = "videotestsrc is-live=true horizontal-speed=1 ! video/x-raw,format=I420,width=320,height=240,framerate=30/1";

/// A browser with one window, closed when this is dropped.
struct Browser {
    /// The browser ends with this: its commands come through a pipe from there.
    _driver: Ended,
    _driver_says: BufReader<ChildStdout>,
    port: u16,
    session: String,
    /// The browser's own profile folder.
    profile: TempDir,
}

impl Browser {
    /// Opens a window of that size; a phone's if `is_phone`. If there is no browser, the test reports that it
    /// is skipped.
    fn start(width: u32, height: u32, is_phone: bool) -> Option<Self> {
        let [driver, chromium] = ["/usr/bin/chromedriver", "/usr/bin/chromium"].map(Path::new);
        if !driver.exists() || !chromium.exists() {
            test_log::missing("BROWSER", "no browser (apt-get install chromium chromium-driver)");
            return None;
        }
        let profile = tempfile::tempdir().unwrap();
        let mut command = Command::new(driver);
        command.arg("--port=0").env("HOME", profile.path()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut driver = Ended(command.spawn().unwrap());
        let mut says = BufReader::new(driver.0.stdout.take().unwrap());
        let mut line = String::new();
        let port = loop {
            line.clear();
            assert!(says.read_line(&mut line).unwrap() > 0, "chromedriver does not start");
            if let Some((_, port)) = line.trim().split_once("successfully on port ") {
                break port.trim_end_matches('.').parse().unwrap();
            }
        };
        let mut browser = Self { _driver: driver, _driver_says: says, port, session: String::new(), profile };
        let mut options = json!({
            "binary": chromium,
            "args": [
                "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
                "--disable-background-networking", "--disable-component-update", "--disable-sync",
                "--disable-dev-shm-usage", "--remote-debugging-pipe",
                format!("--window-size={width},{height}"),
                format!("--user-data-dir={}", browser.profile.path().join("profile").display()),
            ],
        });
        if is_phone {
            options["mobileEmulation"] = json!({ "deviceMetrics": { "width": width, "height": height, "pixelRatio": 2, "touch": true } });
        }
        let wanted = json!({
            "capabilities": { "alwaysMatch": {
                "browserName": "chrome",
                "goog:chromeOptions": options,
                "goog:loggingPrefs": { "browser": "ALL" },
            } }
        });
        let session = browser.ask("POST", "/session", &wanted);
        browser.session = format!("/session/{}", session["sessionId"].as_str().unwrap());
        Some(browser)
    }

    /// Sends the driver a request and returns its answer.
    fn ask(&self, method: &str, path: &str, body: &Value) -> Value {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).unwrap();
        stream.set_read_timeout(Some(LONG)).unwrap();
        let body = if method == "POST" { body.to_string() } else { String::new() };
        write!(
            stream,
            "{method} {}{path} HTTP/1.1\r\nHost: 127.0.0.1:{}\r\nConnection: close\r\n\
             Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
            self.session,
            self.port,
            body.len()
        )
        .unwrap();
        let mut stream = BufReader::new(stream);
        let (mut head, mut line) = (String::new(), String::new());
        while line != "\r\n" {
            line.clear();
            assert!(stream.read_line(&mut line).unwrap() > 0, "{method} {path}: {head}");
            head += &line.to_ascii_lowercase();
        }
        // The driver keeps connections open, whatever the request says.
        let length = head.lines().find_map(|line| line.strip_prefix("content-length:")).unwrap();
        let mut body = vec![0; length.trim().parse().unwrap()];
        stream.read_exact(&mut body).unwrap();
        let body = String::from_utf8_lossy(&body);
        assert!(head.contains(" 200 "), "{method} {path}: {body}");
        serde_json::from_str::<Value>(&body).unwrap()["value"].take()
    }

    fn open(&self, url: &str) {
        self.ask("POST", "/url", &json!({ "url": url }));
    }

    /// Runs a function's body in the page and returns its result.
    fn run(&self, script: &str) -> Value {
        self.ask("POST", "/execute/sync", &json!({ "script": script, "args": [] }))
    }

    /// Waits until an expression is true in the page.
    fn until(&self, what: &str) {
        let begun = Instant::now();
        while self.run(&format!("return Boolean({what})")) != true {
            let text = self.run("return document.body.innerText");
            assert!(begun.elapsed() < LONG, "{what} does not come to be: {text}");
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Draws a box over these pixels of the frame, with a mouse or a finger.
    fn drag(&self, with: &str, frame: [f64; 2], from: [f64; 2], to: [f64; 2]) {
        let picture = self.run("const r = document.getElementById('picture').getBoundingClientRect(); return [r.x, r.y, r.width, r.height]");
        let side = |index: usize| picture[index].as_f64().unwrap();
        let place = |[x, y]: [f64; 2]| {
            [side(0) + x / frame[0] * side(2), side(1) + y / frame[1] * side(3)].map(|v| v.round() as i64)
        };
        let step = |[x, y]: [i64; 2]| json!({ "type": "pointerMove", "x": x, "y": y, "duration": 60 });
        let (from, to) = (place(from), place(to));
        let middle = [i64::midpoint(from[0], to[0]), i64::midpoint(from[1], to[1])];
        let actions = json!([
            step(from), { "type": "pointerDown", "button": 0 }, step(middle), step(to), { "type": "pointerUp", "button": 0 }
        ]);
        let pointer = json!({ "type": "pointer", "id": "p", "parameters": { "pointerType": with }, "actions": actions });
        self.ask("POST", "/actions", &json!({ "actions": [pointer] }));
    }

    fn keys(&self, text: &str) {
        let press = |key: char| {
            [
                json!({ "type": "keyDown", "value": key.to_string() }),
                json!({ "type": "keyUp", "value": key.to_string() }),
            ]
        };
        let actions: Vec<_> = text.chars().flat_map(press).collect();
        self.ask(
            "POST",
            "/actions",
            &json!({ "actions": [{ "type": "key", "id": "k", "actions": actions }] }),
        );
    }

    /// Drops a file of these bytes on an element, as a user's drag and drop does.
    fn drop_file(&self, on: &str, name: &str, kind: &str, bytes: &[u8]) {
        self.run(&format!(
            "const files = new DataTransfer(); \
             files.items.add(new File([new Uint8Array({bytes:?})], '{name}', {{ type: '{kind}' }})); \
             for (const kind of ['dragenter', 'dragover', 'drop']) document.querySelector('{on}').dispatchEvent(\
             new DragEvent(kind, {{ dataTransfer: files, bubbles: true, cancelable: true }}))"
        ));
    }

    /// Sets the system's colour scheme: dark or light.
    fn shine(&self, scheme: &str) {
        let scheme = json!([{ "name": "prefers-color-scheme", "value": scheme }]);
        let params = json!({ "cmd": "Emulation.setEmulatedMedia", "params": { "features": scheme } });
        self.ask("POST", "/goog/cdp/execute", &params);
    }

    /// Gives the page this size.
    fn resize(&self, width: u32, height: u32) {
        let is_phone = width < 500;
        let params = json!({ "width": width, "height": height, "deviceScaleFactor": 1, "mobile": is_phone });
        let command = json!({ "cmd": "Emulation.setDeviceMetricsOverride", "params": params });
        self.ask("POST", "/goog/cdp/execute", &command);
    }

    /// Saves a screenshot, if `LOCKON_SCREENSHOTS` names a folder.
    fn photograph(&self, name: &str) {
        let Some(folder) = std::env::var_os("LOCKON_SCREENSHOTS") else { return };
        let png = self.ask("GET", "/screenshot", &Value::Null);
        let png = base64(png.as_str().unwrap());
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(Path::new(&folder).join(format!("{name}.png")), png).unwrap();
    }

    /// Returns the errors in the page's log, including violations of its content security policy.
    fn complaints(&self) -> Vec<String> {
        let log = self.ask("POST", "/se/log", &json!({ "type": "browser" }));
        let severe = log.as_array().unwrap().iter().filter(|entry| entry["level"] == "SEVERE");
        severe.map(|entry| entry["message"].to_string()).collect()
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        // The browser ends by itself with the session.
        if !self.session.is_empty()
            && let Ok(mut stream) = TcpStream::connect(("127.0.0.1", self.port))
        {
            let _ = stream.set_read_timeout(Some(Duration::from_secs(10)));
            let _ = write!(
                stream,
                "DELETE {} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n",
                self.session
            );
            let _ = stream.read_to_string(&mut String::new());
        }
    }
}

/// Decodes base64.
fn base64(text: &str) -> Vec<u8> {
    let digit = |c: u8| match c {
        b'A'..=b'Z' => u32::from(c - b'A'),
        b'a'..=b'z' => u32::from(c - b'a') + 26,
        b'0'..=b'9' => u32::from(c - b'0') + 52,
        b'+' => 62,
        _ => 63,
    };
    let digits: Vec<_> = text.bytes().filter(|c| *c != b'=').map(digit).collect();
    digits
        .chunks(4)
        .flat_map(|four| {
            let bits = (0..4).fold(0, |bits, at| bits << 6 | four.get(at).copied().unwrap_or(0));
            bits.to_be_bytes()[1..four.len()].to_vec()
        })
        .collect()
}

/// The driver's own names of keys.
const ENTER: &str = "\u{e007}";
const DELETE: &str = "\u{e017}";

#[test]
fn a_box_that_is_dragged_in_a_browser_is_followed_called_something_and_forgotten() {
    let Some(browser) = Browser::start(1280, 800, false) else { return };
    let served = Served::start("0", &["--source", BARS]);
    browser.open(&served.url);
    browser.until("document.getElementById('state').textContent === 'running'");
    browser.until("document.getElementById('picture').width === 320");
    // Runs of pipelines have the pipeline's text in their titles, to distinguish them.
    let title = browser.run("return document.title");
    assert!(
        title.as_str().unwrap().starts_with("source: videotestsrc is-live=true horizontal-speed=1"),
        "{title}"
    );
    assert_eq!(
        browser.run(
            "return document.title === `${document.getElementById('name').textContent} \u{2013} lockon`"
        ),
        true
    );
    // Where bars end below: there is no other such place near it.
    browser.drag("mouse", [320.0, 240.0], [60.0, 140.0], [110.0, 185.0]);
    browser.until("document.querySelector('#tracks .is')?.textContent === 'tracked'");
    let x = std::cell::Cell::new(None);
    served.wait_for_track("a track that moves", |track| {
        let now = track.and_then(|track| track["x"].as_f64());
        let first = x.get().or(now);
        x.set(first);
        first.zip(now).is_some_and(|(first, now)| (first - now).abs() > 5.0)
    });
    // The box that was drawn is selected. Its name is shown as plain text.
    browser.until("!document.getElementById('selected').hidden");
    browser.keys("n");
    browser.until("document.getElementById('naming').open");
    browser.keys("<b>car</b>");
    browser.keys(ENTER);
    browser.until("document.querySelector('#tracks .name')?.textContent === '<b>car</b>'");
    assert_eq!(browser.run("return document.querySelectorAll('#tracks b').length"), 0);
    assert_eq!(served.video()["names"]["1"], "<b>car</b>");
    browser.until("document.getElementById('eyes').dataset.p95 > 0");
    browser.photograph("light");
    browser.shine("dark");
    browser.photograph("dark");
    browser.keys(DELETE);
    browser.until("document.querySelectorAll('#tracks li').length === 0");
    served.wait_for_track("no track", |track| track.is_none());
    assert_eq!(browser.complaints(), [""; 0]);
}

#[test]
fn a_phone_draws_the_first_box_of_a_file_with_a_finger() {
    let Some(browser) = Browser::start(390, 844, true) else { return };
    let served = Served::endless();
    browser.open(&served.url);
    browser.until("document.getElementById('hint').textContent === 'Drag a box around what to follow.'");
    browser.until("document.getElementById('picture').getBoundingClientRect().width > 200");
    // Nothing lies beside the screen.
    assert_eq!(browser.run("return document.documentElement.scrollWidth <= window.innerWidth"), true);
    browser.photograph("phone-waits");
    browser.drag("touch", [320.0, 240.0], [100.0, 60.0], [220.0, 180.0]);
    served.wait("the first box", |video| video["waits"] == false);
    browser.until("document.querySelector('#tracks .is') !== null");
    browser.photograph("phone");
    assert_eq!(browser.complaints(), [""; 0]);
}

#[test]
fn videos_stand_side_by_side_and_one_can_be_opened() {
    let Some(browser) = Browser::start(1280, 800, false) else { return };
    let clip = crate::util::root().join("examples/media/cars.mp4");
    let folder = tempfile::tempdir().unwrap();
    let names = ["a.mp4", "b.mp4"].map(|name| folder.path().join(name).to_string_lossy().into_owned());
    for name in &names {
        std::fs::copy(&clip, name).unwrap();
    }
    let served = Served::start("0", &["--jobs", "2", &names[0], &names[1]]);
    browser.open(&served.url);
    browser.until("document.querySelectorAll('#videos a').length === 2");
    // Each shows its first frame, which is not black.
    browser.until(
        "[...document.querySelectorAll('#videos canvas')].every((c) => c.width > 0 && \
         c.getContext('2d').getImageData(c.width / 2, c.height / 2, 1, 1).data[3] === 255)",
    );
    browser.photograph("wall");
    browser.run("document.querySelector('#videos a').click()");
    browser.until("document.getElementById('name').textContent.endsWith('.mp4')");
    browser.until("document.getElementById('state').textContent === 'paused'");
    browser.keys(".");
    browser.until("document.getElementById('position').textContent !== '0'");
    browser.run("document.getElementById('home').click()");
    browser.until("document.querySelectorAll('#videos a').length === 2");
    assert_eq!(browser.complaints(), [""; 0]);
}

#[test]
fn a_video_that_is_opened_later_is_shown_beside_the_one_that_was_there() {
    let Some(browser) = Browser::start(1280, 800, false) else { return };
    let folder = tempfile::tempdir().unwrap();
    let source = |late: &str| {
        let caps = "video/x-raw,format=I420,width=320,height=240";
        json!({ "source": format!("videotestsrc is-live=true ! {late} ! {caps} ! appsink name=frames"), "track": ["20,20,30,30"] })
    };
    let late = "queue min-threshold-time=6000000000 max-size-time=0 max-size-bytes=0 max-size-buffers=0";
    let list = folder.path().join("list");
    std::fs::write(&list, format!("{}\n{}\n", source("identity"), source(late))).unwrap();
    let served = Served::start("0", &["--inputs", &list.to_string_lossy()]);
    browser.open(&served.url);
    browser.until(
        "document.getElementById('waiting').innerText.trim() === '1 video waits to be opened: source (2)'",
    );
    browser.until("document.querySelectorAll('#videos a').length === 1");
    browser.until("document.querySelectorAll('#videos a').length === 2");
    browser.until("document.getElementById('waiting').hidden");
    assert_eq!(browser.complaints(), [""; 0]);
}

/// Colour bars that stand still.
const STILL: &str =
    "videotestsrc is-live=true pattern=smpte ! video/x-raw,format=I420,width=320,height=240,framerate=30/1";

#[test]
fn a_file_that_is_dropped_and_a_box_that_is_drawn_become_templates_and_the_threshold_moves() {
    let Some(browser) = Browser::start(1280, 800, false) else { return };
    let served = Served::start("0", &["--source", STILL, "--threshold", "mean:31:5"]);
    browser.open(&served.url);
    browser.until("document.getElementById('picture').width === 320");
    // A file that is no picture is refused with a message.
    browser.drop_file("#stage", "notes.png", "image/png", b"no picture");
    browser.until("document.getElementById('toast').textContent.includes('notes')");
    // Where bars end, as a picture of its own.
    let picture = served.picture();
    let mut png = std::io::Cursor::new(Vec::new());
    picture.crop_imm(80, 140, 48, 40).write_to(&mut png, image::ImageFormat::Png).unwrap();
    browser.drop_file("#stage", "my <i>logo.png", "image/png", png.get_ref());
    browser.until("document.querySelector('#templates b')?.textContent === 'my <i>logo'");
    assert_eq!(browser.run("return document.querySelectorAll('#templates i').length"), 0);
    let is_found = |name: &'static str| {
        served.wait_for_shot("a match", |head| {
            head["record"]["matches"].as_array().unwrap().iter().any(|found| found["template"] == name)
        });
    };
    is_found("my <i>logo");
    // The other way: from what is seen.
    browser.run("document.getElementById('tool-template').click()");
    browser.run("document.getElementById('drawn-name').value = 'drawn'");
    browser.drag("mouse", [320.0, 240.0], [120.0, 145.0], [160.0, 185.0]);
    browser.until("document.querySelectorAll('#templates li').length === 2");
    is_found("drawn");
    served.wait("its size", |video| {
        let drawn = &video["search"]["templates"][1];
        // By a pixel of the screen.
        let is_near = |side: &str, meant: f64| (drawn[side].as_f64().unwrap_or(0.0) - meant).abs() <= 1.0;
        drawn["name"] == "drawn" && is_near("w", 40.0) && is_near("h", 40.0)
    });
    browser.photograph("templates");
    // After that a box is followed again.
    browser.drag("mouse", [320.0, 240.0], [60.0, 140.0], [110.0, 185.0]);
    browser.until("document.querySelectorAll('#tracks li').length === 1");
    browser.until("!document.getElementById('view').hidden");
    browser.keys("t");
    browser.until("document.getElementById('view').getAttribute('aria-pressed') === 'true'");
    browser.run(
        "const value = document.getElementById('value'); value.value = 20; \
         value.dispatchEvent(new Event('input', { bubbles: true }))",
    );
    served.wait("the threshold", |video| video["search"]["threshold"] == "mean:31:20");
    // Black and white, with nothing between except JPEG's errors at edges.
    browser.until(
        "(() => { const c = document.getElementById('picture'); \
         const { data } = c.getContext('2d').getImageData(0, 0, c.width, c.height); let plain = 0; \
         for (let i = 0; i < data.length; i += 4) plain += data[i] < 40 || data[i] > 215; \
         return plain > 0.8 * data.length / 4; })()",
    );
    browser.photograph("threshold");
    // Methods have the sliders that they need; what sliders cannot show stays until they are moved.
    let choose = |id: &str, value: &str| {
        let event = if id == "method" { "change" } else { "input" };
        browser.run(&format!(
            "const one = document.getElementById('{id}'); one.value = '{value}'; \
             one.dispatchEvent(new Event('{event}', {{ bubbles: true }}))"
        ));
    };
    let is_hidden = |ids: [&str; 3]| {
        ids.map(|id| browser.run(&format!("return document.getElementById('{id}').hidden")) == true)
    };
    let sliders = ["of-block", "of-frames", "of-value"];
    for (method, threshold, hidden) in [
        ("background", "background:200:25", [true, false, false]),
        ("otsu", "otsu", [true, true, true]),
        ("fixed", "fixed:128", [true, true, false]),
        ("wolf", "wolf:31:0.5", [false, true, false]),
    ] {
        choose("method", method);
        served.wait(threshold, |video| video["search"]["threshold"] == threshold);
        assert_eq!(is_hidden(sliders), hidden, "{method}");
    }
    browser.run(
        "fetch('/api/videos/0/search', { method: 'PUT', headers: { 'Content-Type': 'application/json' }, \
         body: JSON.stringify({ threshold: 'mean:31x5:8..2' }) })",
    );
    browser.until("document.getElementById('block-is').textContent === '31x5'");
    browser.until("document.getElementById('value-is').textContent === '8 .. 2'");
    choose("value", "9");
    served.wait("the value", |video| video["search"]["threshold"] == "mean:31x5:9..2");
    choose("block", "41");
    served.wait("the block", |video| video["search"]["threshold"] == "mean:41:9..2");
    // The only complaint is the refusal of the file that is no picture.
    let complaints = browser.complaints();
    assert!(complaints.len() == 1 && complaints[0].contains("400"), "{complaints:?}");
}

#[test]
fn a_source_that_stalls_and_one_that_comes_back_are_seen() {
    let Some(browser) = Browser::start(1280, 800, false) else { return };
    let Some(port) = live::port() else { return };
    let server = live::Server::start(port, "320x240");
    let address = format!("rtsp://127.0.0.1:{port}/test");
    let served = Served::start("0", &[&address, "--reconnect", "--jitter", "50"]);
    browser.open(&served.url);
    let state = |is: &str| browser.until(&format!("document.getElementById('state').textContent === '{is}'"));
    state("running");
    server.signal("-STOP");
    state("stalled");
    browser.until("document.getElementById('hint').textContent.startsWith('No frames')");
    browser.photograph("stalled");
    server.signal("-CONT");
    state("running");
    browser.until("document.getElementById('stalls').textContent >= 1");
    drop(server);
    state("stalled");
    let _server = live::Server::start(port, "320x240");
    state("running");
    browser.until("document.getElementById('events').textContent.includes('reconnected')");
    assert_eq!(browser.complaints(), [""; 0]);
}

#[test]
fn a_page_goes_on_when_lockon_is_back() {
    let Some(browser) = Browser::start(1280, 800, false) else { return };
    // No other process takes a port there meanwhile: all of 127.0.0.0/8 is this machine, and only this
    // process uses this address.
    let [high, low] = (std::process::id() as u16).to_be_bytes();
    let host = format!("127.99.{high}.{low}");
    let served = Served::start(&format!("{host}:0"), &["--source", BARS]);
    let (url, address) = (served.url.clone(), served.address.to_string());
    browser.open(&url);
    let is_running = "document.getElementById('state').textContent === 'running'";
    browser.until(is_running);
    browser.until("document.getElementById('picture').width === 320");
    drop(served);
    browser.until("document.getElementById('state').textContent === 'disconnected'");
    browser.until("document.getElementById('hint').textContent.includes('does not answer')");
    browser.photograph("out-of-reach");
    let served = Served::start(&address, &["--source", BARS]);
    browser.until(is_running);
    browser.drag("mouse", [320.0, 240.0], [60.0, 140.0], [110.0, 185.0]);
    served.wait_for_track("a track", |track| track.is_some());
}

#[test]
#[cfg(unix)]
fn a_video_of_a_folder_is_opened_and_its_target_followed_by_whoever_knows_the_address_alone() {
    let Some(browser) = Browser::start(1280, 800, false) else { return };
    let around = crate::page::folder_of_videos();
    let folder = around.path().join("my videos").to_string_lossy().into_owned();
    let served = Served::serving(&folder, &[]);
    browser.open(&served.url);
    browser.until("document.querySelectorAll('#files button').length === 3");
    assert_eq!(browser.run("return document.getElementById('folder').textContent"), "my videos");
    // A name is text and nothing else.
    assert_eq!(browser.run("return document.querySelectorAll('#files i').length"), 0);
    browser.shine("dark");
    browser.photograph("offers");
    // The focused element keeps the focus when the list changes.
    browser.run("document.querySelectorAll('#files button')[2].focus()");
    std::fs::write(around.path().join("my videos/bare.mp4"), "no video").unwrap();
    browser.until("document.querySelectorAll('#files button').length === 4");
    assert_eq!(browser.run("return document.activeElement.textContent.startsWith('cars.mp4')"), true);
    browser.run("[...document.querySelectorAll('#files button')].find((b) => b.textContent.startsWith('broken')).click()");
    // It stays there when it is seen no more.
    browser.until("document.getElementById('toast').textContent.includes('broken.mp4')");
    browser.run("[...document.querySelectorAll('#files button')].find((b) => b.textContent.startsWith('cars')).click()");
    browser.until("document.getElementById('name').textContent === 'cars.mp4'");
    browser.until("document.getElementById('hint').textContent === 'Drag a box around what to follow.'");
    browser.until("document.getElementById('picture').width > 300");
    browser.drag("mouse", [768.0, 432.0], [260.0, 180.0], [320.0, 230.0]);
    browser.until("document.getElementById('state').textContent === 'ended'");
    browser.until("document.querySelector('#tracks .is') !== null");
    browser.photograph("followed");
    // And back to what else there is.
    browser.run("document.getElementById('home').click()");
    browser.until("document.querySelectorAll('#files button').length === 4");
    browser.until("document.querySelectorAll('#videos a').length === 1");
    // The list of videos is shown even if the request for the offers is never answered.
    browser.run(
        "document.querySelector('#videos a').dataset.before = 1; const ask = window.fetch; \
         window.fetch = (url, how) => url.endsWith('/offers') ? new Promise(() => {}) : ask(url, how); \
         window.dispatchEvent(new Event('hashchange'))",
    );
    browser.until("document.querySelectorAll('#videos a:not([data-before])').length === 1");
    // The only complaint is the refusal of the file that is no video.
    let complaints = browser.complaints();
    assert!(complaints.len() == 1 && complaints[0].contains("409"), "{complaints:?}");
}

/// Videos with long names, each under the name of a file.
fn long_names(count: usize) -> (TempDir, Vec<String>) {
    let folder = tempfile::tempdir().unwrap();
    let clip = crate::util::root().join("examples/media/cars.mp4");
    let name =
        |number| format!("recording-of-the-north-entrance-{number}-2026-11-26T01-30-37-without-a-space.mp4");
    let names: Vec<_> =
        (1..=count).map(|n| folder.path().join(name(n)).to_string_lossy().into_owned()).collect();
    for name in &names {
        std::fs::copy(&clip, name).unwrap();
    }
    (folder, names)
}

#[test]
fn one_video_three_and_nine_fit_every_width() {
    let Some(browser) = Browser::start(1366, 800, false) else { return };
    for count in [1, 3, 9] {
        let (_folder, mut names) = long_names(count);
        // An error is longer than any card.
        if count == 3 {
            let whole = std::fs::read(&names[2]).unwrap();
            std::fs::write(&names[2], &whole[..whole.len() / 2]).unwrap();
        }
        let zone = "a zone with a name that is longer than the zone=100,100,400,120,420,400,90,380";
        names.extend(
            ["--jobs", "9", "--threads", "1", "--threshold", "mean:31:5", "--zone", zone].map(Into::into),
        );
        let served = Served::start("0", &names.iter().map(String::as_str).collect::<Vec<_>>());
        browser.open(&served.url);
        if count == 1 {
            browser.until("document.getElementById('picture').width > 300");
        } else {
            browser.until(&format!("document.querySelectorAll('#videos a').length === {count}"));
            browser.until("[...document.querySelectorAll('#videos canvas')].some((c) => c.width > 0)");
        }
        for width in [390, 1000, 1366, 1920] {
            browser.resize(width, 900);
            browser.until(&format!("window.innerWidth === {width}"));
            let sizes = browser.run(
                "return [document.documentElement.scrollWidth, window.innerWidth, \
                 [...document.querySelectorAll('main:not([hidden]), main:not([hidden]) *, header *')]\
                 .filter((e) => e.checkVisibility() && e.getBoundingClientRect().right > window.innerWidth + 1)\
                 .map((e) => e.id || e.className || e.tagName)]",
            );
            assert!(sizes[0].as_u64() <= sizes[1].as_u64(), "{count} videos in {width} pixels: {sizes}");
            assert_eq!(sizes[2], json!([]), "{count} videos in {width} pixels");
            browser.photograph(&format!("fits-{count}-{width}"));
        }
        // This comes before the server ends, because its silence would be a complaint.
        browser.open("about:blank");
    }
    assert_eq!(browser.complaints(), [""; 0]);
}

#[test]
fn the_wall_does_not_scroll_sideways_with_one_long_file_name() {
    let Some(browser) = Browser::start(1366, 800, false) else { return };
    let clip = crate::util::root().join("examples/media/cars.mp4");
    for letters in [84, 246] {
        let folder = tempfile::tempdir().unwrap();
        let name = format!("{}.mp4", "n".repeat(letters));
        std::fs::copy(&clip, folder.path().join(&name)).unwrap();
        let served = Served::serving(&folder.path().to_string_lossy(), &[]);
        for is_open in [false, true] {
            browser.open(&served.url);
            browser.until("document.querySelectorAll('#files button').length === 1");
            for width in [390, 1000, 1366, 1920] {
                browser.resize(width, 900);
                browser.until(&format!("window.innerWidth === {width}"));
                let wide = browser.run(
                    "return [document.documentElement, ...document.querySelectorAll('#wall, #wall *')]\
                     .filter((e) => e.checkVisibility() && e.scrollWidth > e.clientWidth + 1 && e.clientWidth > 0 \
                     && getComputedStyle(e).overflowX !== 'hidden' && getComputedStyle(e).display !== 'inline')\
                     .map((e) => [e.id || e.className || e.tagName, e.scrollWidth, e.clientWidth])",
                );
                browser.photograph(&format!("wall-{letters}-{is_open}-{width}"));
                assert_eq!(wide, json!([]), "{letters} letters in {width} pixels");
            }
            if !is_open {
                served.open_file(&name);
            }
        }
        browser.open("about:blank");
    }
    assert_eq!(browser.complaints(), [""; 0]);
}

#[test]
fn nothing_of_a_run_that_has_ended_can_be_changed() {
    let Some(browser) = Browser::start(1366, 800, false) else { return };
    let media = crate::util::root().join("examples/media");
    let [clip, car] = ["cars.mp4", "car.png"].map(|name| media.join(name).to_string_lossy().into_owned());
    let words = ["--template", &car, "--zone", "gate=0,0,300,0,300,300", "--threshold", "mean:31:5"];
    let served = Served::start("0", &[&[&*clip][..], &words].concat());
    browser.open(&served.url);
    let removers = "[...document.querySelectorAll('#zones button:last-child, #templates button')]";
    browser.until(&format!("{removers}.length === 2"));
    assert_eq!(browser.run(&format!("return {removers}.some((b) => b.disabled)")), false);
    served.set_speed("max");
    browser.until("document.getElementById('state').textContent === 'ended'");
    browser.until(&format!("{removers}.length === 2 && {removers}.every((b) => b.disabled)"));
    let open = browser.run(
        "return [...document.querySelectorAll('#video :is(button:not(.close), input, select)')]\
         .filter((e) => e.checkVisibility() && !e.disabled && !e.closest('[inert]')).map((e) => e.id || e.textContent)",
    );
    browser.photograph("ended-controls");
    // Only a control that changes nothing of the run is still enabled.
    assert_eq!(open, json!(["Copy"]));
    assert_eq!(browser.complaints(), [""; 0]);
}

#[test]
fn a_file_can_be_watched_paused_set_to_a_place_and_closed_after_its_end() {
    let Some(browser) = Browser::start(1366, 800, false) else { return };
    let clip = crate::util::root().join("examples/media/cars.mp4").to_string_lossy().into_owned();
    let served = Served::start("0", &[&clip, "--threshold", "mean:31:5", "--speed", "0.25"]);
    browser.open(&served.url);
    browser.until("document.getElementById('speed').value === '0.25x'");
    assert_eq!(browser.run("return document.title"), "cars.mp4 \u{2013} lockon");
    browser.until("/^0:0\\d\\.\\d \\/ 0:04\\.8$/.test(document.getElementById('time').textContent)");
    browser.keys(" ");
    browser.until("document.getElementById('state').textContent === 'paused'");
    // It jumps where the bar is set, also back, and nothing is written that would be wrong then.
    for (seconds, frame) in [("3", 38), ("seek.max", 59), ("0.5", 7)] {
        browser.run(&format!(
            "const seek = document.getElementById('seek'); seek.value = {seconds}; \
             for (const kind of ['input', 'change']) seek.dispatchEvent(new Event(kind, {{ bubbles: true }}))"
        ));
        browser.until(&format!("document.getElementById('position').textContent === '{frame}'"));
    }
    assert_eq!(browser.run("return document.getElementById('seek').disabled"), false);
    browser.run(
        "const speed = document.getElementById('speed'); speed.value = '4x'; \
         speed.dispatchEvent(new Event('change', { bubbles: true }))",
    );
    served.wait("that speed", |video| video["speed"] == 4.0);
    browser.keys(" ");
    browser.until("!document.getElementById('ended').hidden");
    browser.until("document.getElementById('ended-text').textContent.startsWith('The video has ended')");
    browser.until("!document.querySelector('#ended .close').hidden");
    for width in [390, 1000, 1366, 1920] {
        browser.resize(width, 900);
        browser.photograph(&format!("ended-{width}"));
    }
    browser.run("document.querySelector('#ended .close').click()");
    browser.until("!document.getElementById('closed').hidden");
    assert_eq!(served.end().0, Some(0));
    assert_eq!(browser.complaints(), [""; 0]);
}

#[test]
fn a_bar_of_a_run_that_writes_results_shows_the_position_and_says_that_it_is_no_more() {
    let Some(browser) = Browser::start(390, 844, true) else { return };
    let folder = tempfile::tempdir().unwrap();
    let results = folder.path().join("a.jsonl").to_string_lossy().into_owned();
    let clip = crate::util::root().join("examples/media/cars.mp4").to_string_lossy().into_owned();
    let served = Served::start("0", &[&clip, "--threshold", "mean:31:5", "--results", &results]);
    browser.open(&served.url);
    browser.until("document.getElementById('seek-note').textContent.startsWith('Position only')");
    assert_eq!(browser.run("return document.getElementById('seek').disabled"), true);
    browser.until("document.getElementById('seek').value > 0.2");
    browser.photograph("position-only");
}

#[test]
fn a_zone_that_is_drawn_is_seen_counted_and_removed_and_events_stand_on_the_page() {
    let Some(browser) = Browser::start(1366, 800, false) else { return };
    let served = Served::start("0", &["--source", BARS]);
    browser.open(&served.url);
    browser.until("document.getElementById('picture').width === 320");
    browser.keys("z");
    browser.until("document.getElementById('drawn-name').placeholder === 'zone-1'");
    browser.drag("mouse", [320.0, 240.0], [10.0, 100.0], [300.0, 230.0]);
    browser.until("document.querySelector('#zones b')?.textContent === 'zone-1'");
    let video =
        served.wait("a zone", |video| video["zones"].as_array().is_some_and(|zones| zones.len() == 1));
    let corners = &video["zones"][0]["corners"];
    for (corner, expected) in [(0, [10.0, 100.0]), (2, [300.0, 230.0])] {
        for axis in [0, 1] {
            let is = corners[corner][axis].as_f64().unwrap();
            assert!((is - expected[axis]).abs() <= 1.0, "{corners}");
        }
    }
    // By its corners, with a name of its own, which is text and nothing else.
    browser.keys("z");
    browser.run("document.getElementById('drawn-name').value = '<b>gate</b>'");
    for [x, y] in [[20.0, 20.0], [120.0, 25.0], [60.0, 90.0], [20.0, 20.0]] {
        browser.drag("mouse", [320.0, 240.0], [x, y], [x, y]);
    }
    browser.until("document.querySelectorAll('#zones li').length === 2");
    assert_eq!(browser.run("return document.querySelectorAll('#zones b b').length"), 0);
    browser.drag("mouse", [320.0, 240.0], [60.0, 140.0], [110.0, 185.0]);
    browser.until("document.getElementById('happenings').textContent.includes('entered zone-1')");
    browser.until("document.getElementById('happenings').textContent.includes('appeared')");
    browser.until("document.querySelectorAll('#happenings canvas').length > 0");
    for width in [390, 1000, 1366, 1920] {
        browser.resize(width, 900);
        browser.photograph(&format!("zones-{width}"));
    }
    browser.run("document.querySelectorAll('#zones li button')[1].click()");
    browser.until("document.querySelectorAll('#zones li').length === 1");
    browser.until("document.getElementById('happenings').textContent.includes('left zone-1')");
    assert_eq!(browser.complaints(), [""; 0]);
}

#[test]
fn a_line_that_is_drawn_is_seen_counted_and_removed() {
    let Some(browser) = Browser::start(1366, 800, false) else { return };
    let served = Served::start("0", &["--source", BARS]);
    browser.open(&served.url);
    browser.until("document.getElementById('picture').width === 320");
    browser.keys("z");
    for [x, y] in [[40.0, 60.0], [280.0, 200.0], [280.0, 200.0]] {
        browser.drag("mouse", [320.0, 240.0], [x, y], [x, y]);
    }
    browser.until("document.querySelector('#lines b')?.textContent === 'line-1'");
    let video =
        served.wait("a line", |video| video["lines"].as_array().is_some_and(|lines| lines.len() == 1));
    let ends = &video["lines"][0]["ends"];
    for (end, expected) in [(0, [40.0, 60.0]), (1, [280.0, 200.0])] {
        for axis in [0, 1] {
            assert!((ends[end][axis].as_f64().unwrap() - expected[axis]).abs() <= 1.0, "{ends}");
        }
    }
    browser.until("document.querySelector('#lines span').textContent === 'in 0, out 0'");
    for width in [390, 1366] {
        browser.resize(width, 900);
        browser.photograph(&format!("lines-{width}"));
    }
    browser.run("document.querySelectorAll('#lines li button')[1].click()");
    browser.until("document.querySelectorAll('#lines li').length === 0");
    assert_eq!(browser.complaints(), [""; 0]);
}

#[test]
fn another_tool_lets_the_picture_go_that_was_held_for_a_zone_half_drawn() {
    let Some(browser) = Browser::start(1366, 800, false) else { return };
    let served = Served::start("0", &["--source", BARS]);
    browser.open(&served.url);
    browser.until("document.getElementById('picture').width === 320");
    for tool in ["follow", "template"] {
        browser.keys("z");
        browser.drag("mouse", [320.0, 240.0], [20.0, 20.0], [20.0, 20.0]);
        browser.until("document.getElementById('hint').textContent.startsWith('Click the next corner')");
        browser.run(&format!("document.getElementById('tool-{tool}').click()"));
        browser.run("window.held = document.getElementById('picture').toDataURL()");
        browser.until("document.getElementById('picture').toDataURL() !== window.held");
    }
    assert_eq!(browser.complaints(), [""; 0]);
}

#[test]
fn an_event_shows_the_name_of_its_track() {
    let Some(browser) = Browser::start(1366, 800, false) else { return };
    let served = Served::start("0", &["--source", STILL, "--track", "<b>bar=60,140,50,45"]);
    browser.open(&served.url);
    browser.until("document.querySelector('#happenings .what')?.textContent === '<b>bar appeared'");
    browser.until("document.querySelector('#tracks .name')?.textContent === '<b>bar'");
    // A name that is given on the page is the newer one.
    browser.keys("1n");
    browser.until("document.getElementById('naming').open");
    browser.keys("gate");
    browser.keys(ENTER);
    browser.until("document.querySelector('#tracks .name')?.textContent === 'gate'");
    browser.until("document.querySelector('#happenings .what')?.textContent === 'gate appeared'");
    assert_eq!(browser.complaints(), [""; 0]);
}

/// A page of another site, which a user may have open: `localhost` is another site than `127.0.0.1`.
fn other_site(html: String) -> String {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let _ = stream.read(&mut [0; 4096]);
            let length = html.len();
            let head = format!("HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: {length}\r\n");
            let _ = write!(stream, "{head}Connection: close\r\n\r\n{html}");
        }
    });
    format!("http://localhost:{port}/")
}

#[test]
fn a_link_from_another_site_opens_the_page_and_its_forms_and_scripts_do_nothing() {
    let Some(browser) = Browser::start(1000, 800, false) else { return };
    let served = Served::start("0.0.0.0:0", &["--source", BARS]);
    let address = served.address;
    let token = served.url.split_once("/?t=").expect("its address has a token").1.to_owned();
    let site = other_site(format!(
        "<a id=link href='http://{address}/?t={token}'>the page</a>\
         <form id=form method=post action='http://{address}/api/videos/0/stop'></form>"
    ));
    browser.open(&site);
    browser.run("document.getElementById('link').click()");
    browser.until("document.getElementById('state')?.textContent === 'running'");
    assert_eq!(browser.run("return location.href"), format!("http://{address}/"));
    // The browser has the cookie now. Another site can use it for a visit and for nothing else.
    browser.open(&site);
    browser.run(&format!(
        "for (const method of ['POST', 'DELETE']) fetch('http://{address}/api/videos/0/stop', \
         {{ method, mode: 'no-cors', credentials: 'include' }}).catch(() => {{}}).then(() => {{ window.asked = (window.asked ?? 0) + 1; }})"
    ));
    browser.until("window.asked === 2");
    browser.run("document.getElementById('form').submit()");
    browser.until("location.port !== '' && document.body.innerText.includes('error')");
    browser.open(&site);
    browser.run("document.getElementById('link').click()");
    browser.until("document.getElementById('state')?.textContent === 'running'");
}

#[test]
fn a_page_of_24_files_says_which_of_them_wait() {
    let Some(browser) = Browser::start(1000, 800, false) else { return };
    let (_folder, names) = long_names(24);
    let words: Vec<_> = ["--jobs", "1"].into_iter().chain(names.iter().map(String::as_str)).collect();
    let served = Served::start("0", &words);
    browser.open(&served.url);
    browser.until("document.getElementById('waiting-count').textContent === '23 videos wait to be opened:'");
    browser.until("document.querySelectorAll('#videos a').length === 1");
    assert_eq!(browser.run("return document.title.endsWith('and 22 more \u{2013} lockon')"), true);
    browser.photograph("waiting");
    assert_eq!(browser.complaints(), [""; 0]);
}
