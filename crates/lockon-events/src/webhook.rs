//! Events posted to an HTTP server, one at a time, in their order.

use std::convert::Infallible;
use std::error::Error;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use bytes::Bytes;
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use hyper::header::{AUTHORIZATION, CONTENT_LENGTH, CONTENT_TYPE, HeaderValue, USER_AGENT};
use hyper::{Request, Response, StatusCode};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use tokio::time::timeout;

use super::outage::Outage;
use super::queue::Queue;
use super::{Notice, tls};
use lockon_run::request::Webhook;

/// Maximum time until a response begins.
const ANSWER: Duration = Duration::from_millis(if cfg!(test) { 500 } else { 10_000 });

/// Maximum bytes, and time, to read of a response after its status, so that the connection can be reused.
const MOST_READ: usize = 64 << 10;
const READING: Duration = Duration::from_millis(if cfg!(test) { 100 } else { 1000 });

/// Minimum number of tries, and minimum time, before an event is dropped if the server fails, or accepts the
/// event and does not respond.
const TRIES: u32 = 6;
const TRYING: Duration = Duration::from_secs(if cfg!(test) { 0 } else { 60 });

/// The meaning of a response, by its status alone, or of no response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Meaning {
    /// The event was delivered.
    Told,
    /// The server is away or overloaded.
    Away,
    /// The server failed; a retry may succeed.
    Failed,
    /// A retry would be refused again.
    Refused,
}

impl Meaning {
    fn of(status: StatusCode) -> Self {
        match status.as_u16() {
            200..=299 => Self::Told,
            // Too slow, too early, too many; gateways and servers that are not ready.
            408 | 425 | 429 | 502..=504 => Self::Away,
            500.. => Self::Failed,
            _ => Self::Refused,
        }
    }

    /// The meaning of no response. If a connection has accepted the event, it may have been delivered to a
    /// server that is always too slow, or fails on it.
    fn of_silence(is_taken: &AtomicBool) -> Self {
        if is_taken.load(Ordering::Relaxed) { Self::Failed } else { Self::Away }
    }
}

/// Posts the events of a queue until it is closed. Drops an event that the server refuses. While the server
/// is away, the oldest event waits, and the others behind it.
pub(super) async fn post(to: Webhook, queue: &Queue<Arc<Notice>>, sent: &AtomicU64) {
    let mut outage = Outage::new(&to.name);
    let mut dropped = Dropped::default();
    let server = Server::new(&to);
    while let Some(notice) = queue.next().await {
        let (mut tries, begun) = (0, Instant::now());
        loop {
            let is_taken = Arc::default();
            let (meaning, reason) = match timeout(ANSWER, server.post(&notice, &is_taken)).await {
                Ok(Ok(answer)) => {
                    let status = answer.status();
                    drain(answer).await;
                    (Meaning::of(status), format!("the server responds {status}"))
                }
                Ok(Err(error)) => (Meaning::of_silence(&is_taken), in_words(&*error)),
                Err(_) => {
                    (Meaning::of_silence(&is_taken), format!("no response for {} s", ANSWER.as_secs_f32()))
                }
            };
            tries += u32::from(meaning == Meaning::Failed);
            if meaning == Meaning::Told {
                outage.over();
                dropped.end(&to.name);
                sent.fetch_add(1, Ordering::Relaxed);
                break;
            }
            if meaning == Meaning::Refused || (tries >= TRIES && begun.elapsed() >= TRYING) {
                dropped.count(&to.name, &reason);
                break;
            }
            outage.wait(&reason).await;
        }
    }
    dropped.end(&to.name);
}

/// Events that were dropped one after the other: a server that refuses one for good mostly refuses all.
#[derive(Default)]
struct Dropped {
    /// Refused events after the reported one.
    more: u64,
    reason: Option<String>,
}

impl Dropped {
    /// Reports the first event that was dropped for a reason.
    fn count(&mut self, name: &str, reason: &str) {
        if self.reason.as_deref() == Some(reason) {
            self.more += 1;
            return;
        }
        self.end(name);
        self.reason = Some(reason.to_owned());
        tracing::warn!("events: {name}: an event was dropped: {reason}");
    }

    /// Reports how many followed it.
    fn end(&mut self, name: &str) {
        if let Some(reason) = self.reason.take().filter(|_| self.more > 0) {
            tracing::warn!("events: {name}: {} more events were dropped: {reason}", self.more);
        }
        self.more = 0;
    }
}

/// Reads the response after its status. The content does not matter, and may be endless.
async fn drain(answer: Response<Incoming>) {
    let rest = Limited::new(answer.into_body(), MOST_READ).collect();
    let _ = timeout(READING, rest).await;
}

/// Returns the error with its causes. They contain no addresses.
fn in_words(error: &dyn Error) -> String {
    let mut words = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        words = format!("{words}: {error}");
        cause = error.source();
    }
    words
}

struct Server {
    url: String,
    authorization: Option<HeaderValue>,
    client: Client<HttpsConnector<HttpConnector>, BoxBody<Bytes, Infallible>>,
}

impl Server {
    fn new(to: &Webhook) -> Self {
        let authorization = to.login.as_ref().and_then(|login| {
            let word = BASE64_STANDARD.encode(format!("{}:{}", login.user, login.password));
            let mut value = HeaderValue::try_from(format!("Basic {word}")).ok()?;
            value.set_sensitive(true);
            Some(value)
        });
        let connector =
            HttpsConnectorBuilder::new().with_tls_config(tls::config()).https_or_http().enable_http1();
        let client = Client::builder(TokioExecutor::new()).build(connector.build());
        Self { url: to.url.clone(), authorization, client }
    }

    /// Posts an event. `is_taken` becomes true when a connection accepts it.
    async fn post(
        &self,
        notice: &Notice,
        is_taken: &Arc<AtomicBool>,
    ) -> Result<Response<Incoming>, Box<dyn Error + Send + Sync>> {
        let is_taken = is_taken.clone();
        let event = Full::new(notice.event.clone()).map_frame(move |frame| {
            is_taken.store(true, Ordering::Relaxed);
            frame
        });
        // A body without a length is sent in chunks, which some servers do not accept.
        let mut request = Request::post(&self.url)
            .header(CONTENT_TYPE, "application/json")
            .header(CONTENT_LENGTH, notice.event.len())
            .header(USER_AGENT, concat!("lockon/", env!("CARGO_PKG_VERSION")));
        if let Some(value) = &self.authorization {
            request = request.header(AUTHORIZATION, value);
        }
        Ok(self.client.request(request.body(event.boxed())?).await?)
    }
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader, Read, Write};
    use std::net::{TcpListener, TcpStream};
    use std::sync::mpsc;

    use super::*;

    /// A server's reaction to a request.
    #[derive(Debug, Clone, Copy, PartialEq)]
    enum Does {
        Answer(u16),
        /// Accepts it without a response.
        Hang,
        /// Closes the connection.
        Close,
        /// Answers without an end.
        Babble,
        /// Begins an answer, and never completes it.
        Stall,
    }

    /// Reads a request and returns its body; `None` at the end of a connection.
    fn request(from: &mut BufReader<TcpStream>) -> Option<(String, String)> {
        let (mut head, mut length) = (String::new(), 0);
        loop {
            let start = head.len();
            if from.read_line(&mut head).ok()? == 0 {
                return None;
            }
            let line = head[start..].to_ascii_lowercase();
            if let Some(value) = line.strip_prefix("content-length:") {
                length = value.trim().parse().unwrap();
            }
            if line == "\r\n" {
                let mut body = vec![0; length];
                from.read_exact(&mut body).ok()?;
                return Some((head, String::from_utf8(body).unwrap()));
            }
        }
    }

    /// Serves one connection after the other, with the listed reaction to each request; after the list all
    /// succeed. Sends each accepted request to `taken`.
    fn serve(listener: &TcpListener, script: Vec<Does>, taken: &mpsc::Sender<(String, String)>) {
        let mut script = script.into_iter();
        let mut held = Vec::new();
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let mut reader = BufReader::new(stream.try_clone().unwrap());
            while let Some(request) = request(&mut reader) {
                match script.next().unwrap_or(Does::Answer(204)) {
                    Does::Answer(status) => {
                        if (200..300).contains(&status) && taken.send(request).is_err() {
                            return;
                        }
                        let _ = write!(stream, "HTTP/1.1 {status} x\r\ncontent-length: 0\r\n\r\n");
                    }
                    Does::Hang => {
                        held.push(stream);
                        break;
                    }
                    Does::Close => break,
                    Does::Babble => {
                        taken.send(request).unwrap();
                        let _ = write!(stream, "HTTP/1.1 200 x\r\n\r\n");
                        while stream.write_all(&[b'x'; 4096]).is_ok() {}
                        break;
                    }
                    Does::Stall => {
                        taken.send(request).unwrap();
                        let _ = write!(stream, "HTTP/1.1 200 x\r\ncontent-length: 9\r\n\r\nx");
                        held.push(stream);
                        break;
                    }
                }
            }
        }
    }

    fn notice(number: usize) -> Arc<Notice> {
        let (event, empty) = (Bytes::from(format!("{{\"seq\":{number}}}")), Bytes::new());
        let live = Arc::new([]);
        Arc::new(Notice { event, track: Some(1), track_state: empty.clone(), state: empty, live })
    }

    /// Posts so many events to a server with these reactions. Returns the requests that it accepted, and the
    /// number of delivered events.
    fn posted(script: &[Does], events: usize) -> (Vec<(String, String)>, u64) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/hook?a=b", listener.local_addr().unwrap());
        let (sender, taken) = mpsc::channel();
        let script = script.to_vec();
        std::thread::spawn(move || serve(&listener, script, &sender));
        let (queue, sent) = (Queue::new(), AtomicU64::new(0));
        (0..events).for_each(|number| queue.push(notice(number), 1));
        queue.close();
        let login = lockon_run::request::Login { user: "me".into(), password: "s3cret".into() };
        let to = Webhook { url, login: Some(login), name: "hook".into() };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(post(to, &queue, &sent));
        (taken.try_iter().collect(), sent.into_inner())
    }

    fn bodies(taken: &[(String, String)]) -> Vec<String> {
        taken.iter().map(|(_, body)| body.clone()).collect()
    }

    fn numbers(numbers: std::ops::Range<usize>) -> Vec<String> {
        numbers.map(|number| format!("{{\"seq\":{number}}}")).collect()
    }

    #[test]
    fn a_server_that_fails_and_hangs_and_comes_back_is_told_all_in_order() {
        let script = [
            Does::Answer(200),
            Does::Answer(503),
            Does::Close,
            Does::Answer(429),
            Does::Hang,
            Does::Answer(204),
            Does::Hang,
            Does::Babble,
        ];
        let (taken, sent) = posted(&script, 12);
        assert_eq!((bodies(&taken), sent), (numbers(0..12), 12));
        let head = taken[0].0.to_ascii_lowercase();
        assert!(head.starts_with("post /hook?a=b http/1.1\r\n"), "{head}");
        assert!(head.contains("content-type: application/json\r\n"), "{head}");
        assert!(head.contains("content-length: 9\r\n") && !head.contains("transfer-encoding"), "{head}");
        assert!(head.contains("authorization: basic bwu6cznjcmv0\r\n"), "{head}");
    }

    #[test]
    fn what_is_answered_is_told_once_whatever_follows_the_status() {
        let (taken, sent) = posted(&[Does::Stall, Does::Stall, Does::Answer(200), Does::Babble], 5);
        assert_eq!((bodies(&taken), sent), (numbers(0..5), 5));
    }

    #[test]
    fn a_server_that_is_away_behind_its_gateway_is_waited_for() {
        for status in [502, 503, 504, 429] {
            let (taken, sent) = posted(&[Does::Answer(status); TRIES as usize + 2], 2);
            assert_eq!((bodies(&taken), sent), (numbers(0..2), 2), "{status}");
        }
    }

    #[test]
    fn a_server_that_takes_an_event_and_never_answers_is_told_it_a_few_times() {
        for silent in [Does::Hang, Does::Close] {
            let script = [[silent; TRIES as usize].as_slice(), &[Does::Answer(204)]].concat();
            let (taken, sent) = posted(&script, 3);
            assert_eq!((bodies(&taken), sent), (numbers(1..3), 2), "{silent:?}");
        }
    }

    #[test]
    fn an_event_that_no_connection_has_taken_is_not_given_up() {
        // The listener never begins with TLS.
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("https://{}/", listener.local_addr().unwrap());
        let (queue, sent) = (Queue::new(), AtomicU64::new(0));
        (0..2).for_each(|number| queue.push(notice(number), 1));
        queue.close();
        let to = Webhook { url, login: None, name: "hook".into() };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let longer_than_all_tries = (ANSWER + Duration::from_millis(100)) * (TRIES + 1);
            timeout(longer_than_all_tries, post(to, &queue, &sent)).await.unwrap_err();
            // It still retries the first.
            assert_eq!(queue.next().await.unwrap().event, notice(1).event);
        });
    }

    #[test]
    fn events_that_are_refused_for_one_reason_are_counted_and_not_reported_each() {
        let mut dropped = Dropped::default();
        let mut unreported = |reason: &str| {
            dropped.count("hook", reason);
            dropped.more
        };
        assert_eq!(["302", "302", "302", "404", "404"].map(&mut unreported), [0, 1, 2, 0, 1]);
        dropped.end("hook");
        assert!(dropped.more == 0 && dropped.reason.is_none());
    }

    #[test]
    fn what_a_server_does_not_want_is_left_out_and_the_rest_goes_on() {
        // The first is refused for good, the second until all its tries have failed.
        let script = [&[Does::Answer(400)][..], &[Does::Answer(500); TRIES as usize]].concat();
        let (taken, sent) = posted(&script, 4);
        assert_eq!((bodies(&taken), sent), (numbers(2..4), 2));
    }
}
