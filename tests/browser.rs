//! The live page in a browser: Chromium, driven as a person would use it.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::page::Served;
use crate::say;

/// Far longer than anything takes, also on a machine that has much else to do.
const LONG: Duration = Duration::from_secs(90);

/// Colour bars that move to the left, one pixel a frame.
const BARS: &str = "videotestsrc is-live=true horizontal-speed=1 ! video/x-raw,format=I420,width=320,height=240,framerate=30/1";

/// A browser with one window, closed when this is dropped.
struct Browser {
    driver: Child,
    _driver_says: BufReader<ChildStdout>,
    port: u16,
    session: String,
    /// What it keeps of itself.
    profile: TempDir,
}

impl Browser {
    /// One with a window of that size; a phone's if `is_phone`. Where there is none, the test that asks says
    /// that it is skipped.
    fn start(width: u32, height: u32, is_phone: bool) -> Option<Self> {
        let [driver, chromium] = ["/usr/bin/chromedriver", "/usr/bin/chromium"].map(Path::new);
        if !driver.exists() || !chromium.exists() {
            let is_required = std::env::var_os("LOCKON_REQUIRE_BROWSER").is_some();
            assert!(!is_required, "LOCKON_REQUIRE_BROWSER is set, and there is no Chromium with its driver");
            say::skipped("no browser (apt-get install chromium chromium-driver)");
            return None;
        }
        let profile = tempfile::tempdir().unwrap();
        let mut child = Command::new(driver)
            .arg("--port=0")
            .env("HOME", profile.path())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut says = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        let port = loop {
            line.clear();
            assert!(says.read_line(&mut line).unwrap() > 0, "chromedriver does not start");
            if let Some((_, port)) = line.trim().split_once("successfully on port ") {
                break port.trim_end_matches('.').parse().unwrap();
            }
        };
        let mut browser = Self { driver: child, _driver_says: says, port, session: String::new(), profile };
        let mut options = json!({
            "binary": chromium,
            "args": [
                "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
                "--disable-background-networking", "--disable-component-update", "--disable-sync",
                "--disable-dev-shm-usage",
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

    /// What the driver answers.
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
        // It keeps connections open, whatever it is asked.
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

    /// What a function's body gives in the page.
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

    /// Errors in the page's log, among them what its content security policy kept it from.
    fn complaints(&self) -> Vec<String> {
        let log = self.ask("POST", "/se/log", &json!({ "type": "browser" }));
        let severe = log.as_array().unwrap().iter().filter(|entry| entry["level"] == "SEVERE");
        severe.map(|entry| entry["message"].to_string()).collect()
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        // With the session the browser ends.
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
        let _ = self.driver.kill();
        let _ = self.driver.wait();
    }
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
    assert_eq!(browser.run("return document.title"), "source \u{2013} lockon");
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
    // What was drawn is selected. What it is called is text and nothing else.
    browser.until("!document.getElementById('selected').hidden");
    browser.keys("n");
    browser.until("document.getElementById('naming').open");
    browser.keys("<b>car</b>");
    browser.keys(ENTER);
    browser.until("document.querySelector('#tracks .name')?.textContent === '<b>car</b>'");
    assert_eq!(browser.run("return document.querySelectorAll('#tracks b').length"), 0);
    assert_eq!(served.video()["names"]["1"], "<b>car</b>");
    browser.until("document.getElementById('eyes').dataset.p95 > 0");
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
    browser.drag("touch", [320.0, 240.0], [100.0, 60.0], [220.0, 180.0]);
    served.wait("the first box", |video| video["waits"] == false);
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
    browser.run("document.querySelector('#videos a').click()");
    browser.until("document.getElementById('name').textContent.endsWith('.mp4')");
    browser.until("document.getElementById('state').textContent === 'paused'");
    browser.keys(".");
    browser.until("document.getElementById('position').textContent !== '0 %'");
    browser.run("document.getElementById('home').click()");
    browser.until("document.querySelectorAll('#videos a').length === 2");
    assert_eq!(browser.complaints(), [""; 0]);
}
