//! A page without a network, answering in memory. For tests and fuzz targets.

use std::sync::Arc;
use std::time::Instant;

use axum::Router;
use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::watch;

use lockon_core::control::Control;
use lockon_core::error::Result;
use lockon_core::frame::{Circumstances, Frame, FrameMeta, Picture, PixelFormat, Plane, Size, VideoFormat};
use lockon_core::ports::Delivery;
use lockon_core::results::{FrameRecord, Track};
use lockon_core::surface::Traffic;
use lockon_gst::cameras::Camera;
use lockon_run::request::ListenAddress;

use super::guard::Guard;
use super::offers::{Chosen, Offers};
use super::video::Video;
use super::{Shared, Shown, api, listen};

/// Bytes on their way to the page, and from it.
const ON_THE_WAY: usize = 64 << 10;

/// The page's answer to a ping.
const PONG: &[u8] = b"\x8a\x05there";

/// Turns of the executor within which every request without another thread is answered.
const TURNS: usize = 16;

/// A page with one video that shows one frame. Its run has not begun: orders are parsed, then refused. The
/// only camera offered is that video.
pub struct Rehearsal {
    runtime: Runtime,
    router: Router,
    shared: Arc<Shared>,
    video: Arc<Video>,
    /// The page ends with it.
    _over: watch::Sender<bool>,
}

impl Rehearsal {
    /// All requests with a body: method, address, and a valid body.
    pub const ORDERS: [(&str, &str, &str); 19] = [
        ("POST", "/api/videos", r#"{"camera":"/dev/video7"}"#),
        ("POST", "/api/videos/0/tracks", r#"{"box":[1,2,30,40],"frame":7}"#),
        ("PUT", "/api/videos/0/tracks/1", r#"{"box":[1,2,30,40],"frame":null}"#),
        ("PUT", "/api/videos/0/tracks/1/name", r#"{"name":"a car"}"#),
        ("PUT", "/api/videos/0/search", r#"{"min_score":0.5,"max_matches":2,"max_overlap":0.1}"#),
        ("PUT", "/api/videos/0/search", r#"{"roi":"1,2,30,40","threshold":"sauvola:31:0.2:inv"}"#),
        ("PUT", "/api/videos/0/search", r#"{"objects":{"connect":"4","open":"3","area":"20..","max":9}}"#),
        ("POST", "/api/videos/0/templates/a", r#"{"box":[1,2,30,40],"frame":7}"#),
        ("PUT", "/api/videos/0/pace", r#"{"paused":true}"#),
        ("PUT", "/api/videos/0/pace", r#"{"speed":0.5}"#),
        ("PUT", "/api/videos/0/pace", r#"{"speed":"max"}"#),
        ("PUT", "/api/videos/0/position", r#"{"seconds":1.5}"#),
        ("PUT", "/api/videos/0/position", r#"{"seconds":1e9}"#),
        ("PUT", "/api/videos/0/zones/a", r#"{"corners":[[0,0],[9,0],[9,9]]}"#),
        ("DELETE", "/api/videos/0/zones/a", "{}"),
        ("PUT", "/api/videos/0/lines/a", r#"{"ends":[[0,0],[9,9]]}"#),
        ("DELETE", "/api/videos/0/lines/a", "{}"),
        ("POST", "/api/videos/0/step", "{}"),
        ("DELETE", "/api/videos/0/templates/a", "{}"),
    ];

    /// # Errors
    /// `Listen` if the system gives no threads, or no random numbers.
    pub fn new() -> Result<Self> {
        let address: ListenAddress = "127.0.0.1:80".parse()?;
        let failed = |cause| lockon_core::Error::Listen { address: address.to_string(), cause };
        let (over, is_over) = watch::channel(false);
        let guard = Guard::of(&address, ([127, 0, 0, 1], 80).into()).map_err(failed)?;
        let (chosen, is_chosen) = crossbeam_channel::unbounded::<Chosen>();
        // Ends with the offers.
        std::thread::spawn(move || is_chosen.iter().for_each(|chosen| chosen.answer(Ok(0))));
        let camera = Camera { name: "a camera".into(), device: "/dev/video7".into() };
        let offers = Offers::new(None, chosen, Box::new(move || vec![camera.clone()]))?;
        let shared = Arc::new(Shared::new(guard, Some(offers), is_over));
        let video = shared.videos().add(Shown { can_jump: true, ..shown() }, &shared);
        deliver(&video, 7, plane());
        let runtime = Builder::new_current_thread().enable_all().build().map_err(failed)?;
        Ok(Self { runtime, router: api::router(&shared), shared, video, _over: over })
    }

    /// The answer on a connection that sends this and then ends.
    pub fn answer(&self, sent: &[u8]) -> Vec<u8> {
        self.talk(sent, true)
    }

    /// The answer until the connection is closed: by the page, unless the client `ends` it.
    fn talk(&self, sent: &[u8], ends: bool) -> Vec<u8> {
        let (mut client, server) = duplex(ON_THE_WAY);
        let (mut from, mut to) = tokio::io::split(&mut client);
        let router = self.router.clone();
        let serve = async move { listen::serve(server, router).await };
        let send = async move {
            // A refusal may come before everything was sent.
            let _ = to.write_all(sent).await;
            if ends {
                // A client that closes before the answer gets none, so it waits a few turns.
                for _ in 0..TURNS {
                    tokio::task::yield_now().await;
                }
                let _ = to.shutdown().await;
            }
        };
        let receive = async move {
            let mut answer = Vec::new();
            let _ = from.read_to_end(&mut answer).await;
            answer
        };
        self.runtime.block_on(async { tokio::join!(serve, send, receive) }).2
    }

    /// The answer to a request as the page sends it.
    pub fn answer_to(&self, method: &str, path: &str, kind: &str, body: &[u8]) -> Vec<u8> {
        let length = body.len();
        let head = format!(
            "{method} {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\nContent-Type: {kind}\r\n\
             Content-Length: {length}\r\n\r\n"
        );
        self.talk(&[head.as_bytes(), body].concat(), false)
    }

    /// The answer to a browser's WebSocket message (text of less than 64 kB) and a ping after it.
    pub fn answer_to_viewer(&self, said: &[u8]) -> Vec<u8> {
        let head = "GET /api/videos/0/live HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: Upgrade\r\n\
                    Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\
                    Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";
        // A frame with a length of 16 bits, masked with zeros.
        let [high, low] = (said.len() as u16).to_be_bytes();
        let ping = [&[0x89, 0x80 | (PONG.len() - 2) as u8, 0, 0, 0, 0], &PONG[2..]].concat();
        self.answer(&[head.as_bytes(), &[0x81, 0xfe, high, low, 0, 0, 0, 0], said, &ping].concat())
    }

    /// The report about the video as JSON, which is constant while nothing changes.
    pub fn status(&self) -> String {
        let all = self.shared.all().len();
        format!("{all} {}", serde_json::to_string(&self.video.status()).unwrap_or_default())
    }
}

const SIZE: Size = Size::new(64, 48);

/// A run that has not begun.
pub(super) fn shown() -> Shown {
    Shown {
        name: "a.mp4".into(),
        title: "a.mp4".into(),
        start_ns: 0,
        can_jump: false,
        zones: Vec::new(),
        lines: Vec::new(),
        control: Control::new(),
        traffic: Traffic::default(),
        is_live: false,
        every: 1,
        length_ns: None,
        search: Arc::default(),
        waits: false,
        kept: 0,
        frame_bytes: SIZE.area(),
    }
}

/// A picture that is not flat.
pub(super) fn plane() -> Arc<dyn Picture> {
    Arc::new(Plane::from_vec((0..SIZE.area()).map(|at| (at * 37 % 251) as u8).collect(), SIZE))
}

/// Delivers a frame with this number and picture.
pub(super) fn deliver(video: &Video, index: u64, picture: Arc<dyn Picture>) {
    let format = VideoFormat {
        size: SIZE,
        pixels: PixelFormat::GRAY8,
        frame_rate: (25, 1),
        pixel_aspect: (1, 1),
        colorimetry: None,
    };
    let frame = Frame {
        meta: FrameMeta { index, pts_ns: None, duration_ns: None, arrived: Instant::now() },
        circumstances: Circumstances::default(),
        format: Arc::new(format),
        picture,
    };
    let tracks = vec![Track { id: 1, ..Track::default() }];
    let record = Arc::new(FrameRecord { frame: index, tracks, ..FrameRecord::default() });
    video.deliver(&Delivery { frame: &frame, record: &record, mask: None });
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Numbers that look random and are the same every time: D. Lehmer's generator.
    struct Random(u64);

    impl Random {
        fn below(&mut self, end: usize) -> usize {
            self.0 = self.0.wrapping_mul(0xDA94_2042_E4DD_58B5).wrapping_add(0x9E37_79B9);
            ((self.0 >> 33) as usize) % end
        }

        fn bytes(&mut self, most: usize) -> Vec<u8> {
            (0..self.below(most + 1)).map(|_| self.below(256) as u8).collect()
        }

        /// The bytes with a few of them changed, left out or repeated.
        fn broken(&mut self, text: &[u8]) -> Vec<u8> {
            let mut bytes = text.to_vec();
            for _ in 0..=self.below(4) {
                let (at, other) = (self.below(bytes.len().max(1)), self.below(bytes.len().max(1)));
                match self.below(4) {
                    _ if bytes.is_empty() => {}
                    0 => bytes[at] = self.below(256) as u8,
                    1 => drop(bytes.remove(at)),
                    2 => bytes.truncate(at),
                    _ => bytes.extend_from_within(at.min(other)..at.max(other)),
                }
            }
            bytes
        }

        /// Valid JSON without a valid meaning.
        fn json(&mut self, depth: usize) -> String {
            const WORDS: [&str; 16] = [
                "null",
                "true",
                "-1",
                "0",
                "4294967296",
                "1e999",
                "0.5",
                "\"\"",
                "\"a\\u0000\\ud800\"",
                "\"mean:3:5\"",
                "\"box\"",
                "18446744073709551615",
                "[]",
                "{}",
                "-0.0",
                "\"1,2,3,4\"",
            ];
            const KEYS: [&str; 13] = [
                "box",
                "frame",
                "name",
                "min_score",
                "max_matches",
                "max_overlap",
                "roi",
                "threshold",
                "objects",
                "paused",
                "file",
                "camera",
                "more",
            ];
            let parts = self.below(5);
            match self.below(if depth == 0 { 1 } else { 3 }) {
                0 => WORDS[self.below(WORDS.len())].to_owned(),
                1 => {
                    let parts: Vec<_> = (0..parts).map(|_| self.json(depth - 1)).collect();
                    format!("[{}]", parts.join(","))
                }
                _ => {
                    let part = |random: &mut Self| {
                        format!("\"{}\":{}", KEYS[random.below(KEYS.len())], random.json(depth - 1))
                    };
                    let parts: Vec<_> = (0..parts).map(|_| part(self)).collect();
                    format!("{{{}}}", parts.join(","))
                }
            }
        }
    }

    fn status(answer: &[u8]) -> u16 {
        let head = String::from_utf8_lossy(&answer[..answer.len().min(40)]).into_owned();
        head.strip_prefix("HTTP/1.1 ").and_then(|head| head.get(..3)?.parse().ok()).unwrap_or(0)
    }

    #[test]
    fn orders_of_any_bytes_are_answered_in_json_and_what_is_none_changes_nothing() {
        let rehearsal = Rehearsal::new().unwrap();
        let mut random = Random(1);
        let (mut understood, mut not) = (0, 0);
        for (method, path, body) in Rehearsal::ORDERS {
            let is_one = status(&rehearsal.answer_to(method, path, "application/json", body.as_bytes()));
            assert!(matches!(is_one, 201 | 204 | 409), "{method} {path} {body}: {is_one}");
            for round in 0..300 {
                let body = match round % 3 {
                    0 => random.bytes(60),
                    1 => random.broken(body.as_bytes()),
                    _ => random.json(3).into_bytes(),
                };
                let before = rehearsal.status();
                let answer = rehearsal.answer_to(method, path, "application/json", &body);
                let (status, text) = (status(&answer), String::from_utf8_lossy(&answer));
                let shown = String::from_utf8_lossy(&body);
                assert!(matches!(status, 201 | 204 | 400..=499), "{method} {path} {shown}: {text}");
                if matches!(status, 201 | 204) {
                    understood += 1;
                    continue;
                }
                not += 1;
                let (_, said) = text.split_once("\r\n\r\n").unwrap();
                let said: serde_json::Value = serde_json::from_str(said).unwrap();
                assert!(said["error"].is_string(), "{method} {path} {shown}: {said}");
                assert_eq!(rehearsal.status(), before, "{method} {path} {shown}");
            }
        }
        assert!(not > 2000 && understood > 100, "{not} {understood}");
    }

    #[test]
    fn pictures_of_any_bytes_are_no_templates() {
        let rehearsal = Rehearsal::new().unwrap();
        let mut random = Random(2);
        let mut png = std::io::Cursor::new(Vec::new());
        let grey = image::GrayImage::from_fn(9, 7, |x, y| image::Luma([(x * 37 + y * 91) as u8]));
        grey.write_to(&mut png, image::ImageFormat::Png).unwrap();
        let path = "/api/videos/0/templates/a";
        let before = rehearsal.status();
        // Valid, and refused because the run has not begun.
        assert_eq!(status(&rehearsal.answer_to("PUT", path, "image/png", png.get_ref())), 409);
        let (mut understood, mut not) = (0, 0);
        for round in 0..600 {
            let bytes = if round % 2 == 0 { random.bytes(300) } else { random.broken(png.get_ref()) };
            let answer = status(&rehearsal.answer_to("PUT", path, "image/png", &bytes));
            // A picture must be readable by another decoder.
            let is_picture = image::load_from_memory(&bytes).is_ok();
            assert_eq!(answer, if is_picture { 409 } else { 400 }, "{bytes:?}");
            *if is_picture { &mut understood } else { &mut not } += 1;
        }
        assert!(not > 500 && understood > 0, "{not} {understood}");
        assert_eq!(rehearsal.status(), before);
    }

    #[test]
    fn requests_of_any_bytes_are_answered_or_the_connection_is_closed() {
        let rehearsal = Rehearsal::new().unwrap();
        let mut random = Random(3);
        let request = b"GET /api/videos/0/plot?seconds=1e3 HTTP/1.1\r\nHost: 127.0.0.1:80\r\n\
                        Origin: http://127.0.0.1:80\r\nSec-Fetch-Site: same-origin\r\nCookie: lockon-80=x; a=b\r\n\
                        Authorization: Bearer x\r\nConnection: close\r\n\r\n";
        assert_eq!(status(&rehearsal.answer(request)), 200);
        let mut answered = 0;
        for round in 0..3000 {
            let bytes = if round % 4 == 0 { random.bytes(200) } else { random.broken(request) };
            let answer = rehearsal.answer(&bytes);
            let status = status(&answer);
            answered += usize::from(status > 0);
            assert!(answer.is_empty() || (100..500).contains(&status), "{status} {bytes:?}");
        }
        assert!(answered > 1000, "{answered}");
    }

    #[test]
    fn viewers_who_say_what_no_page_says_are_left_and_others_are_not() {
        let rehearsal = Rehearsal::new().unwrap();
        let mut random = Random(4);
        let (mut stay, mut are_left) = (0, 0);
        for round in 0..600 {
            let said = match round % 3 {
                0 => random.bytes(60),
                1 => random.broken(br#"{"shown":1,"drawing":true}"#),
                _ => random.json(3).into_bytes(),
            };
            let answer = rehearsal.answer_to_viewer(&said);
            assert_eq!(status(&answer), 101, "{said:?}");
            // A connection that stays open answers the ping.
            let is_answered = answer.windows(PONG.len()).any(|bytes| bytes == PONG);
            let shown = String::from_utf8_lossy(&said);
            assert_eq!(is_answered, is_of_a_page(&said), "{shown}");
            *if is_answered { &mut stay } else { &mut are_left } += 1;
        }
        assert!(stay > 5 && are_left > 300, "{stay} {are_left}");
        assert!(rehearsal.status().contains("\"viewers\":0"), "{}", rehearsal.status());
    }

    /// True for an object that contains only fields of openapi.json.
    fn is_of_a_page(said: &[u8]) -> bool {
        let Ok(serde_json::Value::Object(said)) = serde_json::from_slice(said) else { return false };
        said.iter().all(|(key, value)| match &**key {
            "shown" => value.as_u64().is_some_and(|shown| u32::try_from(shown).is_ok()),
            "drawing" => value.is_boolean() || value.is_null(),
            _ => false,
        })
    }
}
