//! The live page from outside: what its API does, and what it does not allow.

use std::collections::VecDeque;
use std::fmt::Write as _;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Child, ChildStderr, Command, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::test_log;
use crate::util::{program, root};

/// A timeout far longer than anything takes, also on a busy machine.
const LONG: Duration = Duration::from_mins(1);

/// A ball that moves over black, 50 times a second.
const BALL: &str =
    "videotestsrc is-live=true pattern=ball ! video/x-raw,format=I420,width=320,height=240,framerate=50/1";

/// The ball as an endless file: the page plays it at its own speed.
const ENDLESS: &str =
    "videotestsrc pattern=ball ! video/x-raw,format=I420,width=320,height=240,framerate=25/1";

/// Repeats an attempt until it returns something.
fn within<T>(what: &str, mut attempt: impl FnMut() -> Option<T>) -> T {
    let begun = Instant::now();
    loop {
        if let Some(done) = attempt() {
            return done;
        }
        assert!(begun.elapsed() < LONG, "{what} does not come");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// A process, ended when this is dropped.
pub(crate) struct Ended(pub(crate) Child);

impl Drop for Ended {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A program that serves a page, ended when this is dropped.
pub(crate) struct Served {
    child: Ended,
    stderr: BufReader<ChildStderr>,
    /// As it was printed.
    pub(crate) url: String,
    pub(crate) address: SocketAddr,
}

impl Served {
    /// A run.
    pub(crate) fn start(address: &str, words: &[&str]) -> Self {
        let run = ["run", "--no-progress", "--backend", "cpu", "--serve", address];
        Self::saying(&[&run, words].concat())
    }

    /// A page on which the videos of a folder can be opened.
    pub(crate) fn serving(folder: &str, words: &[&str]) -> Self {
        let serve = ["serve", folder, "--address", "0", "--backend", "cpu"];
        Self::saying(&[&serve, words].concat())
    }

    /// Starts lockon with these arguments, and returns once it has printed where its page is.
    pub(crate) fn saying(words: &[&str]) -> Self {
        let mut command = Command::new(program());
        command.args(words);
        Self::of(command)
    }

    /// A command, once it has printed where its page is.
    fn of(mut command: Command) -> Self {
        let mut child = Ended(command.stderr(Stdio::piped()).spawn().unwrap());
        let mut stderr = BufReader::new(child.0.stderr.take().unwrap());
        let mut line = String::new();
        let url = loop {
            line.clear();
            assert!(stderr.read_line(&mut line).unwrap() > 0, "it ended without saying where its page is");
            if let Some(url) = line.trim().strip_prefix("page: ") {
                break url.to_owned();
            }
        };
        let mut address: SocketAddr = url.split('/').nth(2).unwrap().parse().unwrap();
        if !address.ip().is_loopback() {
            address.set_ip([127, 0, 0, 1].into());
        }
        Self { child, stderr, url, address }
    }

    /// Starts a page that shows the ball, and waits until the run has begun.
    fn ball(words: &[&str]) -> Self {
        let served = Self::start("0", &[&["--source", BALL][..], words].concat());
        served.wait("a frame", |video| video["frames"].as_u64() > Some(3));
        served
    }

    /// Opens a file of cars with nothing to search or follow: two seconds, after which it has ended.
    fn file() -> Self {
        Self::waiting(&[&root().join("examples/media/cars.mp4").to_string_lossy()])
    }

    /// Opens the ball as an endless file, with nothing to search or follow.
    pub(crate) fn endless() -> Self {
        Self::waiting(&["--source", ENDLESS])
    }

    /// Starts a run with nothing to search or follow, and waits for its first frame.
    fn waiting(words: &[&str]) -> Self {
        let served = Self::start("0", words);
        served.wait("the first frame", |video| video["frames"].as_u64() == Some(1));
        served
    }

    fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(self.address).unwrap();
        stream.set_read_timeout(Some(LONG)).unwrap();
        stream.set_write_timeout(Some(LONG)).unwrap();
        stream
    }

    /// The answer to a request with these headers, beside those that it needs.
    fn request(&self, method: &str, path: &str, headers: &[(&str, &str)], body: &[u8]) -> Answer {
        let mut stream = self.connect();
        let mut head = format!("{method} {path} HTTP/1.1\r\nConnection: close\r\n");
        if !headers.iter().any(|(name, _)| *name == "Host") {
            let _ = write!(head, "Host: {}\r\n", self.address);
        }
        for (name, value) in headers {
            let _ = write!(head, "{name}: {value}\r\n");
        }
        if !body.is_empty() {
            let _ = write!(head, "Content-Length: {}\r\n", body.len());
        }
        // A refusal may come before everything was sent.
        let _ = stream.write_all(&[head.as_bytes(), b"\r\n", body].concat());
        Answer::read(&mut BufReader::new(stream))
    }

    fn get(&self, path: &str) -> Answer {
        self.request("GET", path, &[], &[])
    }

    fn send(&self, method: &str, path: &str, body: &Value) -> Answer {
        let json = [("Content-Type", "application/json")];
        let body = if body.is_null() { String::new() } else { body.to_string() };
        self.request(method, path, if body.is_empty() { &[] } else { &json }, body.as_bytes())
    }

    /// The answer to an order that is done, or will be before the next frame, which on a busy machine may be
    /// long in coming.
    fn order(&self, method: &str, path: &str, body: &Value) -> Answer {
        let answer = self.send(method, path, body);
        assert!(matches!(answer.status, 200 | 202), "{method} {path}: {}", answer.text());
        answer
    }

    /// The answer to an order that cannot be done, however often it is given.
    fn refused(&self, method: &str, path: &str, body: &Value) -> Answer {
        let answer =
            within("an answer", || Some(self.send(method, path, body)).filter(|answer| answer.status != 202));
        assert!((400..500).contains(&answer.status), "{method} {path} {body}: {}", answer.text());
        answer
    }

    /// Opens a video of the folder.
    pub(crate) fn open_file(&self, name: &str) {
        let answer = self.send("POST", "/api/videos", &json!({ "file": name }));
        assert_eq!(answer.status, 201, "{}", answer.text());
    }

    pub(crate) fn set_speed(&self, speed: &str) {
        assert_eq!(self.send("PUT", "/api/videos/0/pace", &json!({ "speed": speed })).status, 204);
    }

    pub(crate) fn video(&self) -> Value {
        self.get("/api/videos").json()[0].clone()
    }

    /// The video, once it is so.
    pub(crate) fn wait(&self, what: &str, is_so: impl Fn(&Value) -> bool) -> Value {
        let begun = Instant::now();
        loop {
            let video = self.video();
            if is_so(&video) {
                return video;
            }
            assert!(begun.elapsed() < LONG, "{what} does not come: {video}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// The newest picture.
    pub(crate) fn picture(&self) -> image::DynamicImage {
        let answer = self.get("/api/videos/0/picture.jpg");
        assert_eq!(answer.status, 200, "{}", answer.text());
        image::load_from_memory(&answer.body).unwrap()
    }

    /// Waits until the newest record's first track passes `is_so`.
    pub(crate) fn wait_for_track(&self, what: &str, is_so: impl Fn(Option<&Value>) -> bool) {
        self.wait_for_shot(what, |head| is_so(head["record"]["tracks"].get(0)));
    }

    /// Waits until the description of the newest picture passes `is_so`.
    pub(crate) fn wait_for_shot(&self, what: &str, is_so: impl Fn(&Value) -> bool) {
        let begun = Instant::now();
        let mut socket = WebSocket::open(self, "/api/videos/0/live?width=320", &[]).unwrap();
        loop {
            let shot = socket.shot();
            if is_so(&shot.head) {
                return;
            }
            assert!(begun.elapsed() < LONG, "{what} does not come: {}", shot.head);
            socket.say(&json!({ "shown": 1 }));
        }
    }

    /// Its exit code, and the rest of its messages.
    pub(crate) fn end(mut self) -> (Option<i32>, String) {
        let mut said = String::new();
        self.stderr.read_to_string(&mut said).unwrap();
        (self.child.0.wait().unwrap().code(), said)
    }
}

#[derive(Debug)]
struct Answer {
    status: u16,
    head: String,
    body: Vec<u8>,
}

impl Answer {
    fn read(from: &mut impl BufRead) -> Self {
        let mut head = String::new();
        loop {
            let mut line = String::new();
            if from.read_line(&mut line).unwrap_or(0) == 0 || line == "\r\n" {
                break;
            }
            head += &line;
        }
        let status = head.split(' ').nth(1).and_then(|word| word.parse().ok()).unwrap_or(0);
        let mut body = Vec::new();
        if status != 101 {
            let _ = from.read_to_end(&mut body);
        }
        if head.to_ascii_lowercase().contains("transfer-encoding: chunked") {
            body = unchunked(&body);
        }
        Self { status, head, body }
    }

    fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    fn json(&self) -> Value {
        serde_json::from_slice(&self.body)
            .unwrap_or_else(|error| panic!("{error}: {}\n{}", self.head, self.text()))
    }

    fn header(&self, name: &str) -> Option<&str> {
        let of =
            |line: &'_ str| line.split_once(": ").is_some_and(|(found, _)| found.eq_ignore_ascii_case(name));
        self.head.lines().find(|line| of(line)).and_then(|line| line.split_once(": ")).map(|(_, value)| value)
    }
}

fn unchunked(mut body: &[u8]) -> Vec<u8> {
    let mut whole = Vec::new();
    while let Some(end) = body.windows(2).position(|two| two == b"\r\n") {
        let length = usize::from_str_radix(std::str::from_utf8(&body[..end]).unwrap(), 16).unwrap();
        whole.extend_from_slice(&body[end + 2..][..length]);
        body = &body[end + 2 + length + 2..];
    }
    whole
}

/// The minimum of RFC 6455 that a viewer needs. Pings are answered, also while the test waits for no message.
struct WebSocket {
    stream: Arc<Mutex<TcpStream>>,
    messages: Receiver<(u8, Vec<u8>)>,
}

/// A picture that came.
struct Shot {
    head: Value,
    jpeg: Vec<u8>,
}

impl Shot {
    fn frame(&self) -> u64 {
        self.head["record"]["frame"].as_u64().unwrap()
    }
}

impl WebSocket {
    fn open(served: &Served, path: &str, headers: &[(&str, &str)]) -> Result<Self, Answer> {
        let mut stream = served.connect();
        let mut head = format!(
            "GET {path} HTTP/1.1\r\nHost: {}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
             Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n",
            served.address
        );
        for (name, value) in headers {
            let _ = write!(head, "{name}: {value}\r\n");
        }
        if !headers.is_empty() {
            head += "Connection: Upgrade\r\n";
        }
        stream.write_all((head + "\r\n").as_bytes()).unwrap();
        let mut stream = BufReader::new(stream);
        let mut line = String::new();
        stream.read_line(&mut line).unwrap();
        let is_open = line.contains(" 101 ");
        let mut head = line.clone();
        while line != "\r\n" && !line.is_empty() {
            line.clear();
            stream.read_line(&mut line).unwrap();
            head += &line;
        }
        if is_open {
            return Ok(Self::of(stream));
        }
        let status = head.split(' ').nth(1).and_then(|word| word.parse().ok()).unwrap_or(0);
        Err(Answer { status, head, body: Vec::new() })
    }

    fn of(mut stream: BufReader<TcpStream>) -> Self {
        stream.get_ref().set_read_timeout(None).unwrap();
        let writer = Arc::new(Mutex::new(stream.get_ref().try_clone().unwrap()));
        let (heard, messages) = mpsc::channel();
        let pongs = writer.clone();
        std::thread::spawn(move || {
            while let Some((kind, bytes)) = message(&mut stream) {
                if kind == 9 {
                    write(&pongs, 10, &bytes);
                } else if heard.send((kind, bytes)).is_err() {
                    break;
                }
            }
        });
        Self { stream: writer, messages }
    }

    /// Kind (1 text, 2 binary, 8 close) and content of the next message; nothing once it is closed.
    fn next(&mut self) -> Option<(u8, Vec<u8>)> {
        match self.messages.recv_timeout(LONG) {
            Ok(message) => Some(message),
            Err(RecvTimeoutError::Disconnected) => None,
            Err(RecvTimeoutError::Timeout) => panic!("no message comes"),
        }
    }

    /// The next picture.
    fn shot(&mut self) -> Shot {
        loop {
            let (kind, bytes) = self.next().expect("it is open");
            if kind == 2 {
                let length = u32::from_le_bytes(bytes[..4].try_into().unwrap()) as usize;
                let head = serde_json::from_slice(&bytes[4..][..length]).unwrap();
                return Shot { head, jpeg: bytes[4 + length..].to_vec() };
            }
        }
    }

    fn say(&self, what: &Value) {
        self.send(1, what.to_string().as_bytes());
    }

    fn send(&self, kind: u8, bytes: &[u8]) {
        write(&self.stream, kind, bytes);
    }
}

impl Drop for WebSocket {
    fn drop(&mut self) {
        let _ = self.stream.lock().unwrap().shutdown(Shutdown::Both);
    }
}

/// Kind and content of a message; nothing once the stream is closed.
fn message(stream: &mut impl Read) -> Option<(u8, Vec<u8>)> {
    let mut read = |count: usize| {
        let mut bytes = vec![0; count];
        stream.read_exact(&mut bytes).ok().map(|()| bytes)
    };
    let head = read(2)?;
    let length = match head[1] & 127 {
        126 => read(2)?.iter().fold(0, |sum, &byte| sum << 8 | usize::from(byte)),
        127 => read(8)?.iter().fold(0, |sum, &byte| sum << 8 | usize::from(byte)),
        length => usize::from(length),
    };
    Some((head[0] & 15, read(length)?))
}

fn write(stream: &Mutex<TcpStream>, kind: u8, bytes: &[u8]) {
    let mut frame = vec![0x80 | kind];
    match bytes.len() {
        length @ ..126 => frame.push(0x80 | length as u8),
        length @ ..65536 => frame.extend([&[0xfe][..], &(length as u16).to_be_bytes()].concat()),
        length => frame.extend([&[0xff][..], &(length as u64).to_be_bytes()].concat()),
    }
    // Masked by zeros, it stays as it is.
    frame.extend([0; 4]);
    frame.extend(bytes);
    let _ = stream.lock().unwrap().write_all(&frame);
}

/// Where the ball is, as the page would draw a box around it: 40x40 of its middle.
fn box_of_ball(served: &Served) -> Value {
    let answer = served.get("/api/videos/0/picture.jpg");
    assert_eq!(answer.status, 200, "{}", answer.text());
    let picture = image::load_from_memory(&answer.body).unwrap().into_luma8();
    let white = picture.enumerate_pixels().filter(|(_, _, pixel)| pixel.0[0] > 128);
    let (count, x, y) = white.fold((0, 0, 0), |(count, sx, sy), (x, y, _)| (count + 1, sx + x, sy + y));
    let corner = |sum: u32, most: u32| (sum / count).saturating_sub(24).min(most - 48);
    let frame: u64 = answer.header("x-lockon-frame").unwrap().parse().unwrap();
    json!({ "box": [corner(x, 320), corner(y, 240), 48, 48], "frame": frame })
}

#[test]
fn a_box_is_followed_called_something_corrected_and_forgotten() {
    let served = Served::ball(&[]);
    // Frames are kept for a viewer, and one of them contains the box.
    let _looks = WebSocket::open(&served, "/api/videos/0/live?width=320", &[]).unwrap();
    served.wait("a viewer", |video| video["viewers"] == 1);
    let seen = served.video()["frames"].as_u64();
    served.wait("frames that are kept", |video| video["frames"].as_u64() > seen.map(|seen| seen + 2));
    // A busy machine may take longer than frames are kept for.
    let answer = within("a box in a frame that is kept", || {
        let answer = served.send("POST", "/api/videos/0/tracks", &box_of_ball(&served));
        assert!(answer.status != 409 || answer.text().contains("has passed"), "{}", answer.text());
        Some(answer).filter(|answer| answer.status != 409)
    });
    assert!(matches!(answer.status, 200 | 202), "{}", answer.text());
    let id = answer.json()["id"].as_u64().unwrap();
    let track = format!("/api/videos/0/tracks/{id}");
    served.wait_for_track("a track", |track| {
        track.is_some_and(|track| track["id"] == id && track["state"] == "tracked")
    });
    let plot = served.get("/api/videos/0/plot").json();
    assert!(plot["tracks"][id.to_string()].as_array().is_some_and(|points| !points.is_empty()), "{plot}");
    // Not what it looks like.
    let name = "<img src=x onerror=alert(1)>\u{202e}";
    assert_eq!(served.send("PUT", &format!("{track}/name"), &json!({ "name": name })).status, 204);
    assert_eq!(served.video()["names"][id.to_string()], "<img src=x onerror=alert(1)>\\u{202e}");
    assert_eq!(served.send("PUT", &format!("{track}/name"), &json!({ "name": "x".repeat(65) })).status, 400);
    assert_eq!(served.send("PUT", "/api/videos/0/tracks/99/name", &json!({ "name": "x" })).status, 404);
    assert_eq!(served.send("PUT", &format!("{track}/name"), &json!({ "name": "" })).status, 204);
    assert!(served.video()["names"].as_object().unwrap().is_empty());
    let corrected = served.order("PUT", &track, &json!({ "box": [100, 80, 40, 40] }));
    assert_eq!(corrected.json()["id"].as_u64(), Some(id), "{}", corrected.text());
    served.order("DELETE", &track, &Value::Null);
    served.wait_for_track("no track", |track| track.is_none());
    let again = served.refused("DELETE", &track, &Value::Null);
    assert_eq!(again.status, 409, "{}", again.text());
    assert!(again.text().contains("error"), "{}", again.text());
    let events = served.video()["events"].to_string();
    assert!(events.contains("follow") && events.contains("forget track"), "{events}");
    let saved = served.get("/api/videos/0/results.jsonl").text();
    let mut lines = saved.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    assert_eq!(lines.next().unwrap()["type"], "run");
    let frames: Vec<_> = lines.map(|line| line["frame"].as_u64().unwrap()).collect();
    assert!(frames.len() > 10 && frames.is_sorted(), "{frames:?}");
    let metrics = served.get("/metrics").text();
    assert!(metrics.contains("lockon_frames_total{video=\"source\"}"), "{metrics}");
}

#[test]
fn a_file_waits_for_the_first_box_and_goes_by_steps() {
    let served = Served::file();
    let video = served.video();
    assert_eq!(
        (&video["state"], &video["waits"], &video["frame"]),
        (&json!("paused"), &json!(true), &json!(0))
    );
    // It stays so until a box is drawn.
    std::thread::sleep(Duration::from_millis(200));
    assert_eq!(served.video()["frames"], 1);
    assert_eq!(served.send("POST", "/api/videos/0/step", &Value::Null).status, 204);
    served.wait("the second frame", |video| video["frames"] == 2);
    let shown = || served.get("/api/videos/0/picture.jpg").header("x-lockon-frame").map(str::to_owned);
    assert_eq!(shown().as_deref(), Some("1"));
    // An order that cannot be carried out before the next frame is accepted all the same.
    let boxed = json!({ "box": [260, 180, 60, 50], "frame": 1 });
    let answer = served.send("POST", "/api/videos/0/tracks", &boxed);
    assert_eq!((answer.status, &answer.json()), (202, &json!({ "id": 1, "frame": null })));
    served.send("POST", "/api/videos/0/step", &Value::Null);
    served.wait("the third frame", |video| video["frames"] == 3);
    // A picture that was made for an earlier request is not new for a request after the next frame, and later
    // than the interval between pictures.
    std::thread::sleep(Duration::from_millis(100));
    assert_eq!(shown().as_deref(), Some("2"));
    assert_eq!(served.send("PUT", "/api/videos/0/pace", &json!({ "paused": false })).status, 204);
    // To its end.
    let (code, said) = served.end();
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("#1: "), "{said}");
}

#[test]
fn the_first_box_lets_a_file_go_on() {
    let served = Served::file();
    served.order("POST", "/api/videos/0/tracks", &json!({ "box": [260, 180, 60, 50], "frame": 0 }));
    // To its end.
    let (code, said) = served.end();
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("#1: tracked"), "{said}");
}

#[test]
fn pages_of_other_sites_and_names_that_dns_may_have_pointed_here_are_refused() {
    let served = Served::ball(&[]);
    let own = served.address.to_string();
    let boxed = json!({ "box": [1, 1, 30, 30] }).to_string();
    for (name, value, expected) in [
        ("Host", "evil.example", 421),
        ("Host", "127.0.0.1.evil.example", 421),
        ("Origin", "http://evil.example", 403),
        ("Origin", "null", 403),
        ("Sec-Fetch-Site", "cross-site", 403),
    ] {
        for (method, path) in [("GET", "/api/videos"), ("GET", "/metrics"), ("POST", "/api/videos/0/tracks")]
        {
            let headers = [("Content-Type", "application/json"), (name, value)];
            let answer = served.request(method, path, &headers, boxed.as_bytes());
            assert_eq!(answer.status, expected, "{method} {path} {name}: {value}");
        }
        if name != "Host" {
            let refused = WebSocket::open(&served, "/api/videos/0/live", &[(name, value)]);
            assert_eq!(refused.err().map(|answer| answer.status), Some(expected), "{name}: {value}");
        }
    }
    // A form of another site cannot send JSON, and what is no JSON is not taken.
    let plain =
        served.request("POST", "/api/videos/0/tracks", &[("Content-Type", "text/plain")], boxed.as_bytes());
    assert_eq!(plain.status, 415);
    assert!(served.video()["events"].as_array().unwrap().is_empty());
    let origin = format!("http://{own}");
    assert_eq!(served.request("GET", "/api/videos", &[("Origin", &origin)], &[]).status, 200);
    assert!(WebSocket::open(&served, "/api/videos/0/live", &[("Origin", &origin)]).is_ok());
    let page = served.get("/");
    let policy = page.header("content-security-policy").unwrap();
    assert!(policy.contains("default-src 'none'") && policy.contains("frame-ancestors 'none'"), "{policy}");
    assert_eq!(page.header("x-content-type-options"), Some("nosniff"));
}

#[test]
fn where_others_can_connect_nothing_is_answered_without_the_token() {
    let served = Served::start("0.0.0.0:0", &["--source", BALL]);
    let token = served.url.split_once("/?t=").expect("its address has a token").1.to_owned();
    let wrong = "0".repeat(token.len());
    for path in ["/", "/page.js", "/api/videos", "/api/videos/0/picture.jpg", "/metrics", "/nothing"] {
        assert_eq!(served.get(path).status, 401, "{path}");
        assert_eq!(served.get(&format!("{path}?t={wrong}")).status, 401, "{path}");
    }
    assert!(WebSocket::open(&served, "/api/videos/0/live", &[]).is_err_and(|answer| answer.status == 401));
    let first = served.get(&format!("/?t={token}"));
    assert_eq!((first.status, first.header("location")), (303, Some("/")));
    let cookie = first.header("set-cookie").unwrap();
    assert!(cookie.contains("HttpOnly") && cookie.contains("SameSite=Lax"), "{cookie}");
    let cookie = cookie.split(';').next().unwrap();
    assert_eq!(served.request("GET", "/", &[("Cookie", cookie)], &[]).status, 200);
    // A link in a mail: both requests come from another site, and the second one brings the cookie.
    let visit = [("Sec-Fetch-Site", "cross-site"), ("Sec-Fetch-Mode", "navigate")];
    assert_eq!(served.request("GET", &format!("/?t={token}"), &visit, &[]).status, 303);
    let with_cookie = [visit[0], visit[1], ("Cookie", cookie)];
    assert_eq!(served.request("GET", "/", &with_cookie, &[]).status, 200);
    // Nothing else of that site is let in with it.
    for (method, path) in
        [("POST", "/api/videos/0/stop"), ("DELETE", "/api/videos/0/tracks"), ("GET", "/api/videos")]
    {
        assert_eq!(served.request(method, path, &with_cookie, &[]).status, 403, "{method} {path}");
        let posted = [("Origin", "https://mail.example"), ("Cookie", cookie)];
        assert_eq!(served.request(method, path, &posted, &[]).status, 403, "{method} {path}");
    }
    let bearer = format!("Bearer {token}");
    assert_eq!(served.request("GET", "/metrics", &[("Authorization", &bearer)], &[]).status, 200);
    // No answer but the cookie's contains the token.
    let page = served.request("GET", "/api/videos", &[("Cookie", cookie)], &[]);
    assert!(!page.text().contains(&token) && !page.head.contains(&token));
}

#[test]
fn nothing_but_the_page_is_served() {
    let served = Served::ball(&[]);
    for path in [
        "/../Cargo.toml",
        "/page.js/../../Cargo.toml",
        "/%2e%2e/%2e%2e/etc/passwd",
        "/..%2f..%2fetc/passwd",
        "//etc/passwd",
        "/etc/passwd",
        "/index.html",
        "/api/videos/../../etc/passwd",
        "/api/videos/1",
        "/api/videos/1/picture.jpg",
        "/api/videos/0/%00",
    ] {
        assert_eq!(served.get(path).status, 404, "{path}");
    }
    for path in [
        "/api/videos/-1",
        "/api/videos/x",
        "/api/videos/99999999999999999999",
        "/api/videos/0/plot?seconds=x",
    ] {
        assert_eq!(served.get(path).status, 400, "{path}");
    }
    for (method, path) in
        [("DELETE", "/"), ("PUT", "/api/videos"), ("PUT", "/metrics"), ("TRACE", "/page.js")]
    {
        assert_eq!(served.request(method, path, &[], &[]).status, 405, "{method} {path}");
    }
}

#[test]
fn what_is_no_order_is_refused_and_changes_nothing() {
    let served = Served::ball(&[]);
    let tracks = "/api/videos/0/tracks";
    for body in [
        "",
        "{",
        "[]",
        "{}",
        r#"{"box":[1,2,3]}"#,
        r#"{"box":[1,2,3,-4]}"#,
        r#"{"box":[1,2,3,4.5]}"#,
        r#"{"box":[1,2,3,99999999999]}"#,
        r#"{"box":"1,2,3,4"}"#,
        r#"{"box":[1,2,30,40],"frame":-1}"#,
        r#"{"box":[1,2,30,40],"more":1}"#,
        "\u{0}",
    ] {
        let answer = served.request("POST", tracks, &[("Content-Type", "application/json")], body.as_bytes());
        assert!((400..500).contains(&answer.status), "{body}: {}", answer.status);
        assert!(answer.json()["error"].is_string(), "{body}");
    }
    let deep = "[".repeat(10_000);
    let answer = served.request("POST", tracks, &[("Content-Type", "application/json")], deep.as_bytes());
    assert!((400..500).contains(&answer.status), "{}", answer.status);
    // A body larger than any valid request, announced in its Content-Length.
    for size in [20_000, 2_000_000] {
        let large = vec![b' '; size];
        let answer = served.request("POST", tracks, &[("Content-Type", "application/json")], &large);
        assert!(matches!(answer.status, 413 | 0), "{size}: {}", answer.status);
    }
    // Outside of the frame, without a pixel.
    for boxed in [
        json!({ "box": [300, 0, 30, 30] }),
        json!({ "box": [0, 0, 0, 0] }),
        json!({ "box": [4_000_000_000_u32, 4_000_000_000_u32, 4_000_000_000_u32, 4_000_000_000_u32] }),
    ] {
        assert_eq!(served.refused("POST", tracks, &boxed).status, 409, "{boxed}");
    }
    served.wait_for_track("a picture", |track| track.is_none());
    // No HTTP at all, and heads without end.
    for bytes in [
        &b"\x16\x03\x01\x02\x00"[..],
        b"GET / HTTP/1.1\r\n",
        &b"a".repeat(100_000),
        &b"GET / HTTP/1.1\r\nx: y\r\n".repeat(3000),
    ] {
        let mut stream = served.connect();
        let _ = stream.write_all(bytes);
        let _ = stream.shutdown(std::net::Shutdown::Write);
        let mut said = Vec::new();
        let _ = stream.read_to_end(&mut said);
        assert!(!said.starts_with(b"HTTP/1.1 200"), "{}", String::from_utf8_lossy(&said));
    }
    assert_eq!(served.get("/").status, 200);
}

#[test]
fn a_thousand_sockets_stop_neither_the_page_nor_the_run() {
    let served = Served::ball(&[]);
    let before = served.video()["frames"].as_u64().unwrap();
    // At any time more than it has places for, and fewer than this process may open.
    let mut sockets = VecDeque::new();
    for index in 0..1000 {
        let mut socket = served.connect();
        // Some say nothing, some begin and never end.
        if index % 2 == 0 {
            let _ = socket.write_all(b"GET /api/videos HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Slow: ");
        }
        sockets.push_back(socket);
        if sockets.len() > 400 {
            sockets.pop_front();
        }
    }
    assert_eq!(served.get("/").status, 200);
    served.wait("more frames", |video| video["frames"].as_u64() > Some(before + 20));
    drop(sockets);
    // Viewers have places of their own, a limited number.
    let path = "/api/videos/0/live?width=320";
    let mut looks = Vec::new();
    let full = loop {
        match WebSocket::open(&served, path, &[]) {
            Ok(socket) => looks.push(socket),
            Err(answer) => break answer,
        }
        assert!(looks.len() < 200, "nobody is ever refused");
    };
    assert_eq!((full.status, looks.len()), (503, 64));
    drop(looks);
    served.wait("that they have gone", |video| video["viewers"] == 0);
    assert!(WebSocket::open(&served, path, &[]).is_ok());
}

#[test]
fn who_is_slow_gets_the_newest_picture_and_holds_nobody_up() {
    let served = Served::ball(&[]);
    let mut slow = WebSocket::open(&served, "/api/videos/0/live?width=320", &[]).unwrap();
    let shown = [slow.shot().frame(), slow.shot().frame()];
    let seen = served.video()["frames"].as_u64().unwrap();
    served.wait("a hundred frames", |video| video["frames"].as_u64() > Some(seen + 100));
    // Other viewers are not held up: a viewer that shows pictures gets more.
    let mut quick = WebSocket::open(&served, "/api/videos/0/live?width=320", &[]).unwrap();
    for _ in 0..5 {
        quick.shot();
        quick.say(&json!({ "shown": 1 }));
    }
    slow.say(&json!({ "shown": 2 }));
    let next = slow.shot();
    assert!(next.frame() > shown[1] + 90, "{} after {shown:?}", next.frame());
    let picture = image::load_from_memory(&next.jpeg).unwrap();
    assert_eq!((picture.width(), picture.height()), (320, 240));
    // A message that no page sends ends the connection.
    for (kind, said) in [(1, &b"{\"shown\":-1}"[..]), (1, b"x"), (2, b"x"), (1, &[b' '; 2000])] {
        let mut socket = WebSocket::open(&served, "/api/videos/0/live?width=320", &[]).unwrap();
        socket.send(kind, said);
        while socket.next().is_some_and(|(kind, _)| kind != 8) {}
    }
    served.wait("that they have gone", |video| video["viewers"] == 2);
}

#[test]
fn a_viewer_hears_of_the_end() {
    let served = Served::ball(&[]);
    let mut socket = WebSocket::open(&served, "/api/videos/0/live?width=320", &[]).unwrap();
    socket.shot();
    // The page cannot be closed while a run is active.
    assert_eq!(served.send("POST", "/api/page/close", &Value::Null).status, 409);
    served.send("POST", "/api/videos/0/stop", &Value::Null);
    let mut last = Value::Null;
    while last["state"] != "ended" {
        if let (1, bytes) = socket.next().expect("the page stays while somebody looks") {
            last = serde_json::from_slice(&bytes).unwrap();
        }
    }
    within("its end", || (served.get("/api/page").json()["is_done"] == true).then_some(()));
    assert_eq!(served.send("POST", "/api/page/close", &Value::Null).status, 204);
    while socket.next().is_some() {}
    let (code, said) = served.end();
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("the page stays while a browser shows it"), "{said}");
}

/// A clip of 60 frames, 12.5 a second.
fn cars() -> String {
    root().join("examples/media/cars.mp4").to_string_lossy().into_owned()
}

#[test]
fn after_the_end_the_page_stays_while_a_browser_shows_it_and_a_script_has_its_way() {
    // No browser shows it, and it is no terminal.
    let (code, said) = Served::start("0", &[&cars(), "--threshold", "mean:31:5", "--speed", "max"]).end();
    assert_eq!((code, said.contains("the page stays")), (Some(0), false), "{said}");
    let looked_at = |words: &[&str]| {
        let cars = cars();
        let served =
            Served::start("0", &[&[&*cars, "--threshold", "mean:31:5", "--speed", "max"], words].concat());
        served.wait("a frame", |video| video["frames"].as_u64() > Some(0));
        let socket = WebSocket::open(&served, "/api/videos/0/live?width=320", &[]);
        (served, socket)
    };
    // It stays until the last browser is gone.
    let served = Served::start("0", &[&cars(), "--threshold", "mean:31:5"]);
    served.wait("a frame", |video| video["frames"].as_u64() > Some(0));
    let socket = WebSocket::open(&served, "/api/videos/0/live?width=320", &[]).unwrap();
    served.wait("its viewer", |video| video["viewers"] == 1);
    served.send("PUT", "/api/videos/0/pace", &json!({ "speed": "max" }));
    let ended = served.wait("its end", |video| video["state"] == "ended");
    assert_eq!(ended["frames"], 60);
    std::thread::sleep(Duration::from_millis(300));
    assert_eq!(served.video()["state"], "ended");
    for (method, path, body) in [
        ("PUT", "pace", json!({ "speed": 2 })),
        ("PUT", "pace", json!({ "paused": true })),
        ("PUT", "position", json!({ "seconds": 1 })),
        ("POST", "step", Value::Null),
        ("POST", "stop", Value::Null),
        ("POST", "tracks", json!({ "box": [10, 10, 50, 50] })),
        ("DELETE", "tracks", Value::Null),
        ("PUT", "search", json!({ "min_score": 0.5 })),
        ("DELETE", "zones/gate", Value::Null),
        ("DELETE", "templates/car", Value::Null),
    ] {
        let answer = served.send(method, &format!("/api/videos/0/{path}"), &body);
        assert_eq!(
            (answer.status, &answer.json()["error"]),
            (409, &json!("the run has ended")),
            "{method} {path}"
        );
    }
    drop(socket);
    assert_eq!(served.end().0, Some(0));
    // Unless --exit-at-end ends it with the video.
    let (served, _socket) = looked_at(&["--exit-at-end"]);
    assert_eq!(served.end().0, Some(0));
}

#[test]
#[cfg(unix)]
fn on_a_terminal_the_page_stays_after_the_end_until_it_is_closed_or_ctrl_c_comes() {
    if !Path::new("/usr/bin/script").exists() {
        test_log::skipped("no terminal (apt-get install bsdutils)");
        return;
    }
    let cars = cars();
    for is_closed in [true, false] {
        let words =
            ["run", &*cars, "--backend", "cpu", "--threshold", "mean:31:5", "--serve", "0", "--speed", "max"];
        let line = words.iter().map(|word| format!(" '{word}'")).collect::<String>();
        // `script` runs it on a terminal of its own, and ends with its exit code. It replaces the shell
        // (`exec`): a shell that waits for the program receives Ctrl-C too, and ends by it (dash).
        let line = format!("exec '{}'{line} --no-progress", program().display());
        let mut command = Command::new("sh");
        command.args(["-c", "exec script -qefc \"$0\" /dev/null >&2", &line]).stdin(Stdio::piped());
        let mut served = Served::of(command);
        let mut said = String::new();
        while !said.contains("the page stays until Ctrl-C, or Close on the page") {
            assert!(served.stderr.read_line(&mut said).unwrap() > 0, "{said}");
        }
        // No browser shows the page, and it stays all the same.
        std::thread::sleep(Duration::from_millis(500));
        assert_eq!(served.video()["state"], "ended");
        if is_closed {
            assert_eq!(served.send("POST", "/api/page/close", &Value::Null).status, 204);
        } else {
            served.child.0.stdin.as_mut().unwrap().write_all(b"\x03").unwrap();
        }
        let (code, said) = served.end();
        assert_eq!(code, Some(0), "{said}");
    }
}

/// The frames of a results file, without what depends on the time.
fn frames_of(path: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(path).unwrap();
    let records = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let mut frames: Vec<_> = records.filter(|record| record["type"] == "frame").collect();
    for frame in &mut frames {
        frame.as_object_mut().unwrap().retain(|key, _| !key.ends_with("_us"));
    }
    frames
}

#[test]
fn a_file_on_the_page_passes_at_its_own_speed_and_results_are_the_same_at_every_speed() {
    let folder = tempfile::tempdir().unwrap();
    let run = |name: &str, words: &[&str]| {
        let path = folder.path().join(name);
        let results = path.to_string_lossy().into_owned();
        let begun = Instant::now();
        let run = ["run", &cars(), "--backend", "cpu", "--track", "260,180,60,50", "--results", &results];
        let output = Command::new(program()).args(run).args(words).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        (frames_of(&path), begun.elapsed())
    };
    let (plain, _) = run("plain.jsonl", &[]);
    assert_eq!(plain.len(), 60);
    // From the first frame to the last 59 intervals of 80 ms pass: more on a busy machine, never less.
    for (name, words, least_ms) in [
        ("one.jsonl", &["--serve", "0"][..], 4700),
        ("four.jsonl", &["--serve", "0", "--speed", "4"], 1170),
        ("max.jsonl", &["--serve", "0", "--speed", "max"], 0),
    ] {
        let (frames, took) = run(name, words);
        assert!(frames == plain, "{name}");
        assert!(took >= Duration::from_millis(least_ms), "{name}: {took:?}");
    }
}

#[test]
fn the_speed_can_be_changed_and_what_is_no_speed_is_refused() {
    let served = Served::file();
    assert_eq!(served.video()["speed"], 1.0);
    for (speed, is) in [(json!(0.25), json!(0.25)), (json!("max"), Value::Null), (json!("2x"), json!(2.0))] {
        assert_eq!(served.send("PUT", "/api/videos/0/pace", &json!({ "speed": speed })).status, 204);
        assert_eq!(served.video()["speed"], is);
    }
    for wrong in [json!({ "speed": 0 }), json!({ "speed": "fast" }), json!({ "speed": 1000 }), json!({})] {
        assert_eq!(served.send("PUT", "/api/videos/0/pace", &wrong).status, 400, "{wrong}");
    }
    let live = Served::ball(&[]);
    assert_eq!(live.send("PUT", "/api/videos/0/pace", &json!({ "speed": 2 })).status, 409);
    let paused = |paused: bool| live.send("PUT", "/api/videos/0/pace", &json!({ "paused": paused })).status;
    assert_eq!((paused(true), paused(false)), (204, 204));
}

#[test]
fn a_run_that_writes_nothing_goes_on_at_another_place_and_one_that_writes_does_not() {
    let served = Served::file();
    let video = served.video();
    assert_eq!((&video["can_jump"], &video["start_s"]), (&json!(true), &json!(0.0)));
    assert!((video["length_s"].as_f64().unwrap() - 4.8).abs() < 0.1, "{video}");
    let jump = |served: &Served, seconds: f64| {
        served.send("PUT", "/api/videos/0/position", &json!({ "seconds": seconds })).status
    };
    // Forward and back, while it pauses: frames have the numbers and times of the whole video.
    for (seconds, frame) in [(3.0, 38), (0.5, 7), (4.0, 50), (0.0, 0)] {
        assert_eq!(jump(&served, seconds), 204);
        let video = served.wait("that frame", |video| video["frame"] == frame);
        assert!((video["position_s"].as_f64().unwrap() - frame as f64 * 0.08).abs() < 1e-6, "{video}");
    }
    let saved = served.get("/api/videos/0/results.jsonl").text();
    assert_eq!(saved.lines().count(), 2, "records begin again after a jump back: {saved}");
    served.order("POST", "/api/videos/0/tracks", &json!({ "box": [260, 180, 60, 50] }));
    served.send("PUT", "/api/videos/0/pace", &json!({ "paused": false, "speed": "max" }));
    let (code, said) = served.end();
    assert_eq!(code, Some(0), "{said}");
    let folder = tempfile::tempdir().unwrap();
    let results = folder.path().join("a.jsonl").to_string_lossy().into_owned();
    let clips = folder.path().join("clip-{n}.mp4").to_string_lossy().into_owned();
    for output in [["--results", &results], ["--cut", &clips]] {
        let writes = Served::waiting(&[&[&*cars()][..], &output].concat());
        assert_eq!(writes.video()["can_jump"], false, "{output:?}");
        let answer = writes.send("PUT", "/api/videos/0/position", &json!({ "seconds": 3.0 }));
        assert_eq!(answer.status, 409);
        assert!(answer.text().contains("each frame of the video once"), "{}", answer.text());
    }
    assert_eq!(jump(&Served::ball(&[]), 3.0), 409);
}

#[test]
fn a_jump_past_the_end_pauses_at_the_last_frame_and_does_not_end_the_run() {
    let served = Served::start("0", &[&cars(), "--threshold", "mean:31:5", "--speed", "0.25"]);
    served.wait("a frame", |video| video["frames"].as_u64() > Some(0));
    let send = |path: &str, body: Value| {
        assert_eq!(served.send("PUT", &format!("/api/videos/0/{path}"), &body).status, 204, "{path} {body}");
    };
    for seconds in [1e9, 1000.0, 4.8] {
        send("pace", json!({ "paused": false }));
        send("position", json!({ "seconds": seconds }));
        let video = served.wait("the last frame", |video| video["frame"] == 59);
        assert_eq!((&video["can_jump"], &video["error"]), (&json!(true), &Value::Null));
        served.wait("a pause", |video| video["state"] == "paused");
        send("position", json!({ "seconds": 0.5 }));
        served.wait("that frame", |video| video["frame"] == 7);
    }
    send("position", json!({ "seconds": 0 }));
    served.wait("the first frame", |video| video["frame"] == 0);
    send("pace", json!({ "paused": false, "speed": "max" }));
    let (code, said) = served.end();
    assert_eq!(code, Some(0), "{said}");
}

#[test]
fn a_jump_stays_behind_a_start_that_is_a_frame() {
    let served = Served::waiting(&[&cars(), "--start", "20"]);
    let video = served.video();
    assert_eq!((&video["start_s"], &video["frame"]), (&json!(1.6), &json!(20)), "{video}");
    assert!((video["length_s"].as_f64().unwrap() - 3.2).abs() < 0.1, "{video}");
    for (seconds, frame) in [(3.0, 38), (0.0, 20), (4.8, 59), (0.5, 20)] {
        let body = json!({ "seconds": seconds });
        assert_eq!(served.send("PUT", "/api/videos/0/position", &body).status, 204);
        served.wait("that frame", |video| video["frame"] == frame);
    }
}

#[test]
fn zones_are_drawn_on_the_page_recorded_and_repeated_and_their_events_need_no_receiver() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_string_lossy().into_owned();
    let (results, again) = (path("a.jsonl"), path("b.jsonl"));
    let zone = ["--zone", "left=0,0,100,0,100,432,0,432"];
    let served = Served::waiting(&[&[&*cars(), "--results", &results][..], &zone].concat());
    let zones = "/api/videos/0/zones";
    let all = json!({ "corners": [[0, 0], [768, 0], [768, 432], [0, 432]] });
    served.order("PUT", &format!("{zones}/everything"), &all);
    served.order("DELETE", &format!("{zones}/left"), &Value::Null);
    served.order("POST", "/api/videos/0/tracks", &json!({ "box": [260, 180, 60, 50], "frame": 0 }));
    let video = served.wait("an event", |video| {
        video["happened"].as_array().unwrap().iter().any(|event| event["event"] == "entered")
    });
    let happened: Vec<_> =
        video["happened"].as_array().unwrap().iter().map(|e| (&e["event"], &e["zone"])).collect();
    assert_eq!(
        happened[..2],
        [(&json!("appeared"), &Value::Null), (&json!("entered"), &json!("everything"))]
    );
    assert_eq!(video["zones"].as_array().unwrap().len(), 1, "{video}");
    let shown = &video["zones"][0];
    assert_eq!((&shown["name"], &shown["inside"]), (&json!("everything"), &json!(1)));
    assert_eq!(shown["text"], "everything=0,0,768,0,768,432,0,432");
    for (method, path, body, expected) in [
        (
            "PUT",
            "away",
            json!({ "corners": [[800, 0], [900, 0], [900, 90]] }),
            "outside of the 768x432 picture",
        ),
        ("DELETE", "left", Value::Null, "there is no such zone: there are \"everything\""),
        ("PUT", "line", json!({ "corners": [[0, 0], [9, 9], [18, 18]] }), "it has no area"),
        ("PUT", "a=b", json!({ "corners": [[0, 0], [9, 0], [9, 9]] }), "has no `=`"),
    ] {
        let answer = served.refused(method, &format!("{zones}/{path}"), &body);
        assert!(answer.json()["error"].as_str().unwrap().contains(expected), "{path}: {}", answer.text());
    }
    served.send("PUT", "/api/videos/0/pace", &json!({ "speed": "max" }));
    let (code, said) = served.end();
    assert_eq!(code, Some(0), "{said}");
    let orders = |path: &str| {
        let text = std::fs::read_to_string(path).unwrap();
        let records = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        records.filter(|record| record["type"] == "control").collect::<Vec<_>>()
    };
    let given = orders(&results);
    assert_eq!((&given[0]["order"], &given[0]["zone"]), (&json!("zone"), &shown["text"]));
    assert_eq!((&given[1]["order"], &given[1]["name"]), (&json!("remove-zone"), &json!("left")));
    // Given again, the orders make the same zones, whose events go to the receivers then.
    let mut command = Command::new(program());
    command.args([
        "run",
        &cars(),
        "--backend",
        "cpu",
        "--control",
        &results,
        "--results",
        &again,
        "--events",
        "-",
    ]);
    let output = command.args(zone).output().unwrap();
    let events = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success() && events.contains("\"zone\":\"everything\""), "{events}");
    assert_eq!(orders(&again), given);
    assert!(frames_of(Path::new(&again)) == frames_of(Path::new(&results)));
}

#[test]
fn lines_are_drawn_on_the_page_counted_recorded_and_repeated() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_string_lossy().into_owned();
    let (results, again) = (path("a.jsonl"), path("b.jsonl"));
    let objects =
        ["--threshold", "mean:151:-25", "--objects", "--open", "5", "--close", "41", "--fill-holes"];
    let follow = ["--object-area", "5000..", "--track-objects", "--line", "left=0,0,0,432"];
    let words = [&objects[..], &follow].concat();
    // Slow until the orders have come.
    let input = [&*cars(), "--results", &results, "--speed", "0.1"];
    let served = Served::start("0", &[&input[..], &words].concat());
    served.wait("the first frame", |video| video["frames"].as_u64() >= Some(1));
    let lines = "/api/videos/0/lines";
    served.order("PUT", &format!("{lines}/road"), &json!({ "ends": [[0, 300], [768, 300]] }));
    served.order("DELETE", &format!("{lines}/left"), &Value::Null);
    for (method, path, body, expected) in [
        ("PUT", "away", json!({ "ends": [[800, 0], [900, 0]] }), "outside of the 768x432 picture"),
        ("DELETE", "left", Value::Null, "there is no such line: there are \"road\""),
        ("PUT", "short", json!({ "ends": [[1, 1], [1, 1]] }), "at least a pixel apart"),
    ] {
        let answer = served.refused(method, &format!("{lines}/{path}"), &body);
        assert!(answer.json()["error"].as_str().unwrap().contains(expected), "{path}: {}", answer.text());
    }
    served.send("PUT", "/api/videos/0/pace", &json!({ "speed": "1" }));
    let video = served.wait("both cars", |video| {
        video["lines"][0]["in"] == json!(1) && video["lines"][0]["out"] == json!(1)
    });
    served.send("PUT", "/api/videos/0/pace", &json!({ "speed": "max" }));
    assert_eq!(video["lines"][0]["text"], "road=0,300,768,300");
    let crossed = video["happened"].as_array().unwrap().iter().filter(|e| e["event"] == "crossed");
    let told: Vec<_> = crossed.map(|event| (&event["line"], event["direction"].as_str().unwrap())).collect();
    assert_eq!(told.len(), 2, "{told:?}");
    assert!(told.contains(&(&json!("road"), "in")) && told.contains(&(&json!("road"), "out")), "{told:?}");
    let (code, said) = served.end();
    assert_eq!(code, Some(0), "{said}");
    let mut command = Command::new(program());
    command.args(["run", &cars(), "--backend", "cpu", "--control", &results, "--results", &again]);
    let output = command.args(&words).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success() && said.contains("line road: 1 in, 1 out"), "{said}");
}

#[test]
fn a_zone_outside_of_the_picture_is_warned_of_and_one_that_reaches_into_it_is_not() {
    let zones = ["--zone", "far=900,0,990,0,990,90", "--zone", "near=700,0,990,0,990,90"];
    let cars = cars();
    let words =
        [&["run", &*cars, "--track", "260,180,60,50", "--events", "-", "--max-frames", "1"][..], &zones]
            .concat();
    let output = Command::new(program()).args(words).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{said}");
    assert!(said.contains("zone far lies outside of the 768x432 picture: no track can enter it"), "{said}");
    assert!(!said.contains("zone near lies"), "{said}");
}

#[test]
fn every_error_of_the_api_has_the_same_form() {
    let served = Served::ball(&[]);
    let token = Served::start("0.0.0.0:0", &["--source", BALL]);
    let json = [("Content-Type", "application/json")];
    let is_error = |answer: &Answer, status: u16, what: &str| {
        assert_eq!(answer.status, status, "{what}: {}", answer.text());
        assert_eq!(answer.header("content-type"), Some("application/json"), "{what}");
        let body = answer.json();
        let keys: Vec<_> = body.as_object().unwrap().keys().collect();
        assert_eq!(keys, ["error"], "{what}");
        assert!(body["error"].as_str().is_some_and(|why| !why.is_empty()), "{what}: {body}");
    };
    for (status, method, path, body) in [
        (400, "GET", "/api/videos/x", ""),
        (400, "GET", "/api/videos/99999999999999999999", ""),
        (400, "GET", "/api/videos/0/plot?seconds=x", ""),
        (400, "GET", "/api/videos/0/picture.jpg?view=other", ""),
        (400, "GET", "/api/videos/0/picture.jpg?width=-1", ""),
        (400, "GET", "/api/videos/0/live", ""),
        (400, "POST", "/api/videos/0/tracks", "{"),
        (400, "PUT", "/api/videos/0/tracks/x", "{}"),
        (400, "PUT", "/api/videos/0/search", "{}"),
        (404, "GET", "/api/videos/7", ""),
        (404, "GET", "/nothing", ""),
        (404, "PUT", "/api/videos/0/tracks/77/name", r#"{"name":"a"}"#),
        (404, "PUT", "/api/videos/0/tracks/77/name", r#"{"name":""}"#),
        (405, "POST", "/api/videos/0/plot", "{}"),
        (409, "DELETE", "/api/videos/0/tracks/77", ""),
        (409, "POST", "/api/page/close", ""),
        (413, "POST", "/api/videos/0/tracks", &" ".repeat(20_000)),
        (415, "PUT", "/api/videos/0/templates/a", "x"),
        (422, "POST", "/api/videos/0/tracks", r#"{"box":[1]}"#),
    ] {
        let answer = served.request(method, path, &json, body.as_bytes());
        is_error(&answer, status, &format!("{method} {path}"));
    }
    is_error(&served.request("POST", "/api/videos/0/tracks", &[], b"{}"), 415, "no type");
    is_error(&served.request("GET", "/", &[("Host", "evil.example")], &[]), 421, "a host");
    is_error(&served.request("GET", "/api/videos", &[("Origin", "null")], &[]), 403, "an origin");
    is_error(&token.get("/api/videos"), 401, "no token");
    // Other answers stay as they are.
    assert_eq!(served.get("/").header("content-type"), Some("text/html; charset=utf-8"));
}

#[test]
fn an_error_names_the_field_that_is_wrong_and_what_is_expected_and_no_type_of_rust() {
    let served = Served::ball(&[]);
    let json = [("Content-Type", "application/json")];
    let expected = "expected {\"box\": [X, Y, W, H], \"frame\": N}";
    for (method, path, body, words) in [
        ("POST", "tracks", "[]", ["length 0 is wrong", expected]),
        ("POST", "tracks", "{}", ["missing key `box`", expected]),
        ("POST", "tracks", r#"{"box":[1,2,3]}"#, ["box: length 3 is wrong", expected]),
        ("POST", "tracks", r#"{"box":["a",1,1,1]}"#, ["box[0]: string \"a\" is wrong", expected]),
        ("POST", "tracks", r#"{"box":[1,2,3,0.5]}"#, ["box[3]: number `0.5` is wrong", expected]),
        ("POST", "tracks", r#"{"box":[1,2,3,4],"frame":-1}"#, ["frame: number `-1` is wrong", expected]),
        ("POST", "tracks", r#"{"box":[1,2,3,4],"x":1}"#, ["unknown key `x`", expected]),
        (
            "PUT",
            "search",
            r#"{"max_matches":-1}"#,
            ["max_matches: number `-1`", "\"max_matches\": 1 or more"],
        ),
        ("PUT", "pace", r#"{"speed":[]}"#, ["speed: expected", "number or \"max\""]),
        ("PUT", "pace", r#"{"paused":"x"}"#, ["paused: string \"x\" is wrong", "true or false"]),
        ("PUT", "position", r#"{"seconds":null}"#, ["seconds: null is wrong", "{\"seconds\": number}"]),
        ("PUT", "position", r#"{"seconds":-5}"#, ["seconds: expected 0 to 1000000000", "past the end"]),
        ("PUT", "position", r#"{"seconds":1e308}"#, ["seconds: expected 0 to 1000000000", "past the end"]),
        (
            "PUT",
            "zones/z",
            r#"{"corners":[[0]]}"#,
            ["corners[0]: length 1 is wrong", "[[X, Y], [X, Y], [X, Y], ...]"],
        ),
        ("PUT", "tracks/1/name", r#"{"name":5}"#, ["name: number `5` is wrong", "{\"name\": \"TEXT\"}"]),
        ("DELETE", "tracks/x", "", ["track \"x\"", "expected a whole number"]),
        ("DELETE", "tracks/4294967296", "", ["track \"4294967296\"", "expected a whole number"]),
        ("PUT", "zones/%ff", "{}", ["zone: expected UTF-8", "zone"]),
        ("GET", "plot?seconds=x", "", ["seconds: expected seconds=SECONDS", "seconds"]),
        ("GET", "picture.jpg?width=-1", "", ["width: expected width=PIXELS", "view=overlay or view=mask"]),
    ] {
        let answer = served.request(method, &format!("/api/videos/0/{path}"), &json, body.as_bytes());
        let error = answer.json()["error"].as_str().unwrap().to_owned();
        assert!((400..500).contains(&answer.status), "{path} {body}: {}", answer.status);
        assert!(words.iter().all(|word| error.contains(word)), "{path} {body}: {error}");
        let of_rust = ["u32", "u64", "usize", "f64", "struct", "enum", "variant", "invalid digit"];
        assert!(!of_rust.iter().any(|word| error.contains(word)), "{path} {body}: {error}");
    }
    let answer = served.get("/api/videos/x");
    assert!(answer.text().contains("video \\\"x\\\": expected a whole number"), "{}", answer.text());
}

/// Bars of 10 pixels, as a PNG: a file that is small for its pixels.
fn bars(width: u32, height: u32) -> Vec<u8> {
    let picture = image::GrayImage::from_fn(width, height, |x, _| {
        image::Luma([if x / 10 % 2 == 0 { 30 } else { 200 }])
    });
    let mut png = std::io::Cursor::new(Vec::new());
    picture.write_to(&mut png, image::ImageFormat::Png).unwrap();
    png.into_inner()
}

#[test]
fn a_template_from_a_small_file_takes_little_in_the_results() {
    let folder = tempfile::tempdir().unwrap();
    let results = folder.path().join("a.jsonl").to_string_lossy().into_owned();
    let served = Served::ball(&["--results", &results]);
    let png = bars(317, 233);
    let path = "/api/videos/0/templates/bars";
    let added = served.request("PUT", path, &[("Content-Type", "image/png")], &png);
    assert!(matches!(added.status, 200 | 202), "{}", added.text());
    served.wait("the template", |video| video["search"]["templates"][0]["name"] == "bars");
    served.send("POST", "/api/videos/0/stop", &Value::Null);
    assert_eq!(served.end().0, Some(0));
    let text = std::fs::read_to_string(&results).unwrap();
    let record = text.lines().find(|line| line.contains(r#""type":"control""#)).unwrap();
    // A byte a pixel would be 98 kB in base64.
    assert!(record.len() < 4000, "{} bytes for a file of {}", record.len(), png.len());
    let value: Value = serde_json::from_str(record).unwrap();
    assert_eq!((&value["add"][0]["w"], &value["add"][0]["h"]), (&json!(317), &json!(233)));
}

#[test]
fn a_template_larger_than_the_frame_and_a_frame_that_has_not_come_are_refused() {
    let served = Served::ball(&[]);
    let put = |name: &str, png: &[u8]| {
        let path = format!("/api/videos/0/templates/{name}");
        within("an answer", || {
            Some(served.request("PUT", &path, &[("Content-Type", "image/png")], png))
                .filter(|a| a.status != 202)
        })
    };
    // Also beside one that fits.
    for name in ["alone", "beside"] {
        let answer = put(name, &bars(400, 300));
        assert_eq!(answer.status, 409, "{}", answer.text());
        let why = format!("template \"{name}\" is larger than what is searched: it has 400x300 pixels");
        assert!(answer.json()["error"].as_str().unwrap().contains(&why), "{}", answer.text());
        assert_eq!(put("fits", &bars(40, 30)).status, 200);
    }
    served.wait("one template", |video| video["search"]["templates"].as_array().unwrap().len() == 1);
    for (method, path) in [("POST", "tracks"), ("POST", "templates/later")] {
        let boxed = json!({ "box": [10, 10, 40, 40], "frame": 99_999_999 });
        let answer = served.refused(method, &format!("/api/videos/0/{path}"), &boxed);
        assert_eq!(answer.status, 409, "{}", answer.text());
        assert!(answer.text().contains("frame 99999999 has not come"), "{}", answer.text());
    }
}

#[test]
fn refused_orders_do_not_fill_the_log() {
    let served = Served::ball(&[]);
    for id in 1000..1060 {
        assert_eq!(served.refused("DELETE", &format!("/api/videos/0/tracks/{id}"), &Value::Null).status, 409);
    }
    served.send("POST", "/api/videos/0/stop", &Value::Null);
    let (code, said) = served.end();
    let logged = said.lines().filter(|line| line.contains("there is no such track")).count();
    // Six in ten seconds, and it may have taken longer than that.
    assert!(code == Some(0) && (6..=30).contains(&logged), "{said}");
    assert!(said.contains("more refused orders are not logged for a while"), "{said}");
}

#[test]
fn a_page_of_many_files_says_which_of_them_wait() {
    let folder = tempfile::tempdir().unwrap();
    let names: Vec<_> =
        (0..24).map(|n| folder.path().join(format!("{n:02}.mp4")).to_string_lossy().into_owned()).collect();
    for name in &names[..3] {
        std::fs::copy(cars(), name).unwrap();
    }
    for name in &names[3..] {
        std::fs::write(name, "no video").unwrap();
    }
    let words: Vec<_> = ["--jobs", "2"].into_iter().chain(names.iter().map(String::as_str)).collect();
    let served = Served::start("0", &words);
    let page = within("two videos", || {
        let page = served.get("/api/page").json();
        (page["waiting"] == 22).then_some(page)
    });
    assert_eq!(page["name"], "00.mp4, 01.mp4 and 22 more");
    assert_eq!((&page["next"][0], &page["is_done"]), (&json!("02.mp4"), &json!(false)));
    assert_eq!(page["next"].as_array().unwrap().len(), 22);
    // The first two end, and all that waited begin or fail.
    for id in [0, 1, 2] {
        within("that video", || {
            let answer = served.send("POST", &format!("/api/videos/{id}/stop"), &Value::Null);
            (answer.status == 204).then_some(())
        });
    }
    let (code, said) = served.end();
    assert_eq!(code, Some(1), "{said}");
}

#[test]
fn no_password_is_told() {
    let secret = "s3cret";
    let source = format!("{BALL} ! identity name=\"access_token={secret}\"");
    let served = Served::start("0", &["--source", &source, "--track", "10,10,40,40"]);
    served.wait("a frame", |video| video["frames"].as_u64() > Some(0));
    for path in
        ["/", "/api/videos", "/api/videos/0", "/api/videos/0/results.jsonl", "/api/videos/0/plot", "/metrics"]
    {
        let answer = served.get(path);
        assert_eq!(answer.status, 200, "{path}");
        assert!(
            !answer.text().contains(secret) && !answer.head.contains(secret),
            "{path}: {}",
            answer.text()
        );
    }
}

#[test]
fn what_is_searched_can_be_changed_and_the_mask_is_seen() {
    let served = Served::ball(&[]);
    // The ball itself, and a file that is no picture.
    let picture = image::load_from_memory(&served.get("/api/videos/0/picture.jpg").body).unwrap();
    let drawn = box_of_ball(&served);
    let [x, y] = [0, 1].map(|index| drawn["box"][index].as_u64().unwrap() as u32);
    let mut png = std::io::Cursor::new(Vec::new());
    picture.crop_imm(x, y, 48, 48).write_to(&mut png, image::ImageFormat::Png).unwrap();
    let put = |name: &str, kind: &str, bytes: &[u8]| {
        served.request("PUT", &format!("/api/videos/0/templates/{name}"), &[("Content-Type", kind)], bytes)
    };
    let png = png.into_inner();
    for (kind, bytes, expected) in [
        ("text/plain", &png[..], 415),
        ("image/png", b"no picture", 400),
        ("image/png", &png[..png.len() / 2], 400),
        ("image/png", &vec![0; 9 << 20], 413),
    ] {
        let answer = put("ball", kind, bytes);
        assert!(
            answer.status == expected || answer.status == 0,
            "{kind}: {} {}",
            answer.status,
            answer.text()
        );
    }
    assert_eq!(served.video()["search"]["templates"], json!([]));
    let added = put("a%20ball", "image/png", &png);
    assert!(matches!(added.status, 200 | 202), "{}", added.text());
    served.order("PUT", "/api/videos/0/search", &json!({ "min_score": 0.3, "max_matches": 2 }));
    served.wait("what was asked", |video| {
        let search = &video["search"];
        search["templates"] == json!([{ "name": "a ball", "w": 48, "h": 48 }])
            && (&search["min_score"], &search["max_matches"]) == (&json!(0.3), &json!(2))
    });
    let begun = Instant::now();
    let mut socket = WebSocket::open(&served, "/api/videos/0/live?width=320", &[]).unwrap();
    while socket.shot().head["record"]["matches"][0]["template"] != "a ball" {
        assert!(begun.elapsed() < LONG, "the ball is not found");
        socket.say(&json!({ "shown": 1 }));
    }
    // The mask of a threshold that was not there at the start.
    served.order("PUT", "/api/videos/0/search", &json!({ "threshold": "mean:31:-20" }));
    served.wait("a threshold", |video| video["search"]["threshold"] == "mean:31:-20");
    let is_mask = |jpeg: &[u8]| {
        let mask = image::load_from_memory(jpeg).unwrap();
        matches!(mask, image::DynamicImage::ImageLuma8(_)) && mask.width() == 320
    };
    while !is_mask(&served.get("/api/videos/0/picture.jpg?view=mask").body) {
        assert!(begun.elapsed() < LONG, "there is no mask");
    }
    served.order(
        "PUT",
        "/api/videos/0/search",
        &json!({ "objects": { "connect": "4", "open": "3", "max": 5 } }),
    );
    served.wait("objects", |video| {
        video["search"]["objects"] == json!({ "colour": "white", "connect": "4", "open": "3", "max": 5 })
    });
    while socket.shot().head["record"]["objects"].as_array().is_none_or(|objects| objects.len() != 1) {
        assert!(begun.elapsed() < LONG, "there are no objects");
        socket.say(&json!({ "shown": 1 }));
    }
    served.order("PUT", "/api/videos/0/search", &json!({ "objects": null }));
    for wrong in [
        json!({}),
        json!({ "objects": { "open": "4" } }),
        json!({ "objects": { "conect": "4" } }),
        json!({ "min_score": 2 }),
        json!({ "threshold": "mean:30:5" }),
        json!({ "roi": "1,2,3" }),
        json!({ "more": 1 }),
    ] {
        served.refused("PUT", "/api/videos/0/search", &wrong);
    }
    served.order("PUT", "/api/videos/0/search", &json!({ "threshold": "" }));
    let template = "/api/videos/0/templates/a%20ball";
    served.order("DELETE", template, &Value::Null);
    assert_eq!(served.refused("DELETE", template, &Value::Null).status, 409);
    let search = served.video()["search"].clone();
    assert_eq!((&search["templates"], &search["threshold"]), (&json!([]), &Value::Null));
    assert_eq!(search["objects"], Value::Null);
}

/// Endless equal frames: a template cut out of one is found in all.
const STILL: &str =
    "videotestsrc is-live=true pattern=smpte ! video/x-raw,format=I420,width=640,height=480,framerate=50/1";

#[test]
fn a_template_is_cut_from_the_frame_as_it_was_decoded() {
    let served = Served::start("0", &["--source", STILL]);
    served.wait("a frame", |video| video["frames"].as_u64() > Some(3));
    let template = "/api/videos/0/templates/a%20corner";
    // Where bars end, of a size that no smaller picture has.
    let boxed = json!({ "box": [151, 301, 77, 41] });
    served.order("POST", template, &boxed);
    let mut socket = WebSocket::open(&served, "/api/videos/0/live?width=320", &[]).unwrap();
    let found = within("a match", || {
        let found = socket.shot().head["record"]["matches"][0].clone();
        socket.say(&json!({ "shown": 1 }));
        Some(found).filter(|found| found["template"] == "a corner")
    });
    // Pixel by pixel, but for what the search interpolates.
    assert!(found["score"].as_f64() > Some(0.9999), "{found}");
    for (side, expected) in [("x", 151.0), ("y", 301.0), ("w", 77.0), ("h", 41.0)] {
        assert!((found[side].as_f64().unwrap() - expected).abs() < 0.01, "{found}");
    }
    let kept = json!([{ "name": "a corner", "w": 77, "h": 41 }]);
    served.wait("the template", |video| video["search"]["templates"] == kept);
    // A frame that has passed long ago, one that has not come, boxes that cannot be, and a flat one.
    served.wait("more frames than are kept", |video| video["frame"].as_u64() > Some(30));
    for (boxed, why) in [
        (json!({ "box": [151, 301, 77, 41], "frame": 0 }), "frame 0 has passed and is not kept"),
        (json!({ "box": [151, 301, 77, 41], "frame": u64::MAX }), "has not come"),
        (json!({ "box": [600, 301, 77, 41] }), "does not lie inside the 640x480 frame"),
        (
            json!({ "box": [4_294_967_295_u32, 4_294_967_295_u32, 4_294_967_295_u32, 9] }),
            "does not lie inside",
        ),
        (json!({ "box": [10, 10, 0, 9] }), "does not lie inside"),
        (json!({ "box": [5, 5, 30, 30] }), "flat"),
    ] {
        let answer = served.refused("POST", template, &boxed);
        assert_eq!(answer.status, 409, "{boxed}: {}", answer.text());
        assert!(answer.text().contains(why), "{boxed}: {}", answer.text());
    }
    // A frame that is kept while there is a viewer.
    let kept = within("a template of a frame that is kept", || {
        let frame = socket.shot().frame();
        socket.say(&json!({ "shown": 1 }));
        let newer = json!({ "box": [151, 301, 77, 41], "frame": frame });
        let answer = served.send("POST", "/api/videos/0/templates/kept", &newer);
        Some(answer.status).filter(|status| *status != 409)
    });
    assert!(matches!(kept, 200 | 202), "{kept}");
    served.wait("another template", |video| video["search"]["templates"][1]["name"] == "kept");
    // Names that would lead elsewhere in an address.
    for name in ["%2e%2e", "..", ".", "%20"] {
        let answer = served.send("POST", &format!("/api/videos/0/templates/{name}"), &boxed);
        assert_eq!(answer.status, 400, "{name}: {}", answer.text());
    }
}

/// A folder with videos, and with files that are no videos.
#[cfg(unix)]
pub(crate) fn folder_of_videos() -> tempfile::TempDir {
    let around = tempfile::tempdir().unwrap();
    let folder = around.path().join("my videos");
    std::fs::create_dir(&folder).unwrap();
    let clip = root().join("examples/media/cars.mp4");
    for path in [around.path().join("outside.mp4"), folder.join("cars.mp4"), folder.join("<i>cars.mp4")] {
        std::fs::copy(&clip, path).unwrap();
    }
    std::fs::write(folder.join("broken.mp4"), "no video").unwrap();
    std::fs::write(folder.join("notes.txt"), "no video").unwrap();
    std::os::unix::fs::symlink(around.path().join("outside.mp4"), folder.join("link.mp4")).unwrap();
    around
}

#[test]
#[cfg(unix)]
fn what_a_folder_has_can_be_opened_and_nothing_else() {
    let around = folder_of_videos();
    let folder = around.path().join("my videos").to_string_lossy().into_owned();
    let results = around.path().join("{stem}.jsonl").to_string_lossy().into_owned();
    let served = Served::serving(&folder, &["--results", &results]);
    let offers = served.get("/api/offers").json();
    assert_eq!(offers["folder"], "my videos");
    let names: Vec<_> = offers["files"].as_array().unwrap().iter().map(|file| &file["file"]).collect();
    assert_eq!(names, ["<i>cars.mp4", "broken.mp4", "cars.mp4"]);
    // They are looked for meanwhile.
    within("cameras", || served.get("/api/offers").json()["cameras"].as_array().map(|_| ()));
    assert_eq!(served.get("/api/videos").json(), json!([]));
    let open = |wish: Value| served.send("POST", "/api/videos", &wish);
    for (wish, expected) in [
        (json!({ "file": "outside.mp4" }), 404),
        (json!({ "file": "../outside.mp4" }), 404),
        (json!({ "file": "link.mp4" }), 404),
        (json!({ "file": "notes.txt" }), 404),
        (json!({ "file": "" }), 404),
        (json!({ "file": "/etc/passwd" }), 404),
        (json!({ "file": format!("{folder}/cars.mp4") }), 404),
        (json!({ "file": "videotestsrc" }), 404),
        (json!({ "camera": "/dev/null" }), 404),
        (json!({ "camera": "rtsp://127.0.0.1/" }), 404),
        (json!({ "file": "cars.mp4", "camera": "/dev/video0" }), 400),
        (json!({ "input": "cars.mp4" }), 422),
        (json!("cars.mp4"), 422),
        (json!({ "file": "broken.mp4" }), 409),
    ] {
        let answer = open(wish.clone());
        assert_eq!(answer.status, expected, "{wish}: {}", answer.text());
        let why = answer.json()["error"].as_str().unwrap().to_owned();
        // The answer must not reveal the path of the folder.
        assert!(!why.is_empty() && !why.contains(&*around.path().to_string_lossy()), "{wish}: {why}");
    }
    let opened = open(json!({ "file": "cars.mp4" }));
    assert_eq!(opened.status, 201, "{}", opened.text());
    let id = opened.json()["id"].as_u64().unwrap();
    let path = format!("/api/videos/{id}");
    let video = served.wait("its first frame", |video| video["frames"] == 1);
    assert_eq!((&video["name"], &video["waits"]), (&json!("cars.mp4"), &json!(true)));
    served.order("POST", &format!("{path}/tracks"), &json!({ "box": [260, 180, 60, 50], "frame": 0 }));
    served.wait("its end", |video| video["state"] == "ended");
    // Nothing is overwritten: its results are there already.
    let again = open(json!({ "file": "cars.mp4" }));
    assert_eq!(again.status, 409, "{}", again.text());
    assert!(again.text().contains("cars.jsonl exists"), "{}", again.text());
    // The page stays, and another video can be opened beside it.
    assert_eq!(open(json!({ "file": "<i>cars.mp4" })).json()["id"], id + 1);
    assert_eq!(served.get("/api/videos").json().as_array().unwrap().len(), 2);
    assert!(std::fs::read_to_string(around.path().join("cars.jsonl")).unwrap().contains("\"tracks\""));
}

#[test]
#[cfg(unix)]
fn two_runs_of_one_video_have_names_of_their_own_and_never_write_the_same_file() {
    let around = folder_of_videos();
    let folder = around.path().join("my videos").to_string_lossy().into_owned();
    let results = |name: &str| around.path().join(name).to_string_lossy().into_owned();
    let cars = json!({ "file": "cars.mp4" });
    let served = Served::serving(&folder, &["-y", "--results", &results("all.jsonl")]);
    assert_eq!(served.send("POST", "/api/videos", &cars).status, 201);
    let again = served.send("POST", "/api/videos", &json!({ "file": "<i>cars.mp4" }));
    assert_eq!(again.status, 409, "{}", again.text());
    assert!(again.text().contains("would both be written to"), "{}", again.text());
    assert!(again.text().contains("put {stem} or {index} into it"), "{}", again.text());
    // When the first has ended, that is what -y is for.
    served.send("POST", "/api/videos/0/stop", &Value::Null);
    within("a second run", || Some(served.send("POST", "/api/videos", &cars)).filter(|a| a.status == 201));
    drop(served);
    let served = Served::serving(&folder, &["--results", &results("{stem}.jsonl")]);
    assert_eq!(served.send("POST", "/api/videos", &cars).status, 201);
    let again = served.send("POST", "/api/videos", &cars);
    assert!(
        again.status == 409 && again.text().contains("put {index} into it, as in '{stem}-{index}.jsonl'"),
        "{}",
        again.text()
    );
    drop(served);
    let served = Served::serving(&folder, &["--results", &results("{stem}-{index}.jsonl")]);
    for id in [0, 1] {
        assert_eq!(served.send("POST", "/api/videos", &cars).json()["id"], id);
    }
    let videos = served.get("/api/videos").json();
    assert_eq!((&videos[0]["name"], &videos[1]["name"]), (&json!("cars.mp4"), &json!("cars.mp4 (2)")));
    // Each is there with its first record.
    let is_there = |name: &str| around.path().join(name).exists();
    within("both results", || (is_there("cars-1.jsonl") && is_there("cars-2.jsonl")).then_some(()));
    let metrics = served.get("/metrics").text();
    let mut series: Vec<_> = metrics.lines().filter_map(|line| line.rsplit_once(' ')).collect();
    series.retain(|(name, _)| !name.starts_with('#'));
    let all = series.len();
    series.sort_unstable();
    series.dedup_by_key(|(name, _)| *name);
    assert_eq!(series.len(), all, "{metrics}");
    assert!(metrics.contains("lockon_frames_total{video=\"cars.mp4 (2)\"}"), "{metrics}");
}

#[test]
#[cfg(unix)]
fn where_a_folder_lies_is_told_to_nobody_who_looks() {
    let around = folder_of_videos();
    let folder = around.path().join("my videos");
    // It begins, and then something is wrong with it.
    let whole = std::fs::read(folder.join("cars.mp4")).unwrap();
    std::fs::write(folder.join("cut.mp4"), &whole[..whole.len() / 2]).unwrap();
    // The file that this playlist names lies outside the folder.
    let outside = around.path().join("outside.mp4");
    let list = format!(
        "#EXTM3U\n#EXT-X-TARGETDURATION:2\n#EXTINF:2,\nfile://{}\n#EXT-X-ENDLIST\n",
        outside.display()
    );
    std::fs::write(folder.join("list.mp4"), list).unwrap();
    let served =
        Served::serving(&folder.to_string_lossy(), &["--max-frames", "1000", "--threshold", "mean:31:5"]);
    let is_hidden = |what: &str, text: &str| {
        let lies = around.path().canonicalize().unwrap();
        assert!(!text.contains(&*lies.to_string_lossy()), "{what}: {text}");
    };
    let list = served.send("POST", "/api/videos", &json!({ "file": "list.mp4" }));
    assert_eq!(list.status, 409, "{}", list.text());
    assert!(list.text().contains("names other videos"), "{}", list.text());
    is_hidden("the refusal", &list.text());
    assert_eq!(served.send("POST", "/api/videos", &json!({ "file": "cut.mp4" })).status, 201);
    let ended = served.wait("its end", |video| video["state"] == "ended");
    assert!(
        ended["error"].as_str().is_some_and(|why| why.contains("cut.mp4") && why.contains("cut off")),
        "{ended}"
    );
    is_hidden("the status", &ended.to_string());
    let results = served.get("/api/videos/0/results.jsonl").text();
    assert!(results.contains("\"input\":\"cut.mp4\""), "{results}");
    is_hidden("the results", &results);
    is_hidden("the metrics", &served.get("/metrics").text());
}

#[test]
fn a_page_whose_videos_were_named_opens_no_others() {
    let served = Served::ball(&[]);
    assert_eq!(served.get("/api/offers").json(), Value::Null);
    let answer = served.send("POST", "/api/videos", &json!({ "file": "cars.mp4" }));
    assert_eq!(answer.status, 409, "{}", answer.text());
}

#[test]
fn the_page_is_small() {
    let parts = ["/", "/page.css", "/page.js", "/icon.svg"];
    let served = Served::ball(&[]);
    let bytes: usize = parts.iter().map(|part| served.get(part).body.len()).sum();
    assert!((10_000..100_000).contains(&bytes), "{bytes} bytes");
}

#[test]
fn several_videos_are_on_one_page_and_each_is_steered_alone() {
    let folder = tempfile::tempdir().unwrap();
    let clip = root().join("examples/media/cars.mp4");
    let copy = |name: &str| {
        let path = folder.path().join(name);
        std::fs::copy(&clip, &path).unwrap();
        path.to_string_lossy().into_owned()
    };
    let [a, b] = ["a.mp4", "b.mp4"].map(copy);
    let served = Served::start("0", &["--jobs", "2", &a, &b]);
    let begun = Instant::now();
    let videos = loop {
        let videos = served.get("/api/videos").json();
        let all = videos.as_array().unwrap();
        if all.len() == 2 && all.iter().all(|video| video["frames"] == 1) {
            break videos;
        }
        assert!(begun.elapsed() < LONG, "{videos}");
        std::thread::sleep(Duration::from_millis(20));
    };
    let id = |name: &str| videos.as_array().unwrap().iter().position(|video| video["name"] == name).unwrap();
    let (first, second) = (id("a.mp4"), id("b.mp4"));
    let boxed = json!({ "box": [260, 180, 60, 50], "frame": 0 });
    served.order("POST", &format!("/api/videos/{second}/tracks"), &boxed);
    let begun = Instant::now();
    while served.get(&format!("/api/videos/{second}")).json()["state"] != "ended" {
        assert!(begun.elapsed() < LONG);
        std::thread::sleep(Duration::from_millis(20));
    }
    let other = served.get(&format!("/api/videos/{first}")).json();
    assert_eq!((&other["state"], &other["frames"]), (&json!("paused"), &json!(1)));
    served.send("POST", &format!("/api/videos/{first}/stop"), &Value::Null);
    assert_eq!(served.end().0, Some(0));
}

#[test]
fn all_that_the_api_is_said_to_have_is_there() {
    let served = Served::ball(&[]);
    let api = served.get("/api/openapi.json").json();
    let mut asked = 0;
    for (path, item) in api["paths"].as_object().unwrap() {
        let path = path.replace("{video}", "0").replace("{track}", "7").replace("{template}", "x");
        let path = path.replace("{zone}", "x");
        for method in ["get", "put", "post", "delete"].into_iter().filter(|method| !item[method].is_null()) {
            if path.ends_with("/stop") || path.ends_with("/live") {
                continue;
            }
            let answer = served.send(&method.to_uppercase(), &path, &Value::Null);
            // Also what is refused is refused by the one who is asked.
            assert!(!matches!(answer.status, 404 | 405), "{method} {path}: {}", answer.text());
            asked += 1;
        }
    }
    assert!(asked > 10);
    // And what the page uses is said.
    let page =
        std::fs::read_to_string(root().join(Path::new("crates/lockon-page/src/page/page.js"))).unwrap();
    for part in [
        "/offers",
        "/templates",
        "/search",
        "/live",
        "/plot",
        "/results.jsonl",
        "/tracks",
        "/name",
        "/pace",
        "/step",
        "/stop",
        "/zones",
        "/position",
        "/page",
        "/page/close",
    ] {
        assert!(page.contains(part), "{part}");
        assert!(api["paths"].as_object().unwrap().keys().any(|path| path.contains(part)), "{part}");
    }
}
