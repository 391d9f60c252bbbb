//! The counts of runs over HTTP, for Prometheus: `GET /metrics`.
//!
//! At a loopback address only this machine's users can send requests, and the web pages that they have open:
//! a `Host` that a foreign DNS may have pointed here is refused, as on the page. Other addresses accept any
//! name.

use std::sync::Arc;

use axum::Router;
use axum::extract::Request;
use axum::http::header::CONTENT_TYPE;
use axum::http::{StatusCode, Uri};
use axum::middleware::{self, Next};
use axum::response::IntoResponse as _;
use axum::routing::get;

use super::guard::Guard;
use super::listen::Server;
use lockon_core::error::Result;
use lockon_core::metrics::Registry;
use lockon_core::ports::Sink;
use lockon_run::request::ListenAddress;
use lockon_run::run::{Opening, Outlet};

/// The exposition format of Prometheus.
const FORMAT: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Serves the counts of any number of runs at one address, until it is dropped.
pub struct MetricsServer {
    registry: Registry,
    url: String,
    _server: Server,
}

impl MetricsServer {
    /// Serves the counts of a registry from now on.
    ///
    /// # Errors
    /// `Listen` if the address is in use or is not an address of this machine, or if the system gives no
    /// thread.
    pub fn start(address: &ListenAddress, registry: &Registry) -> Result<Self> {
        let (server, url) = Server::start(address, "lockon-metrics", 1, |at, _| {
            let guard = at.ip().is_loopback().then(|| Guard::of(address, at)).transpose()?;
            Ok((router(registry.clone(), guard), format!("http://{at}/metrics")))
        })?;
        Ok(Self { registry: registry.clone(), url, _server: server })
    }

    /// Returns the outlet that adds a run under this name.
    pub fn outlet(&self, video: &str) -> impl Outlet + use<> {
        Counted { registry: self.registry.clone(), video: video.to_owned() }
    }

    /// The address, with the chosen port if 0 was requested.
    pub fn url(&self) -> &str {
        &self.url
    }
}

/// Adds a run to a registry, under a name.
#[derive(Debug)]
struct Counted {
    registry: Registry,
    video: String,
}

impl Outlet for Counted {
    fn option(&self) -> &'static str {
        "metrics"
    }

    fn open(&self, opening: &Opening<'_>) -> Result<Box<dyn Sink>> {
        Ok(Box::new(self.registry.watch(&self.video, opening.traffic)))
    }
}

fn router(registry: Registry, guard: Option<Guard>) -> Router {
    let registry = Arc::new(registry);
    let text = move || {
        let registry = registry.clone();
        async move { ([(CONTENT_TYPE, FORMAT)], registry.text()) }
    };
    let elsewhere =
        async |uri: Uri| (StatusCode::NOT_FOUND, format!("nothing at {}: try /metrics\n", uri.path()));
    let router = Router::new().route("/metrics", get(text)).fallback(elsewhere);
    let Some(guard) = guard.map(Arc::new) else { return router };
    router.layer(middleware::from_fn(move |request: Request, next: Next| {
        let is_foreign = guard.is_foreign_host(request.headers());
        async move {
            if is_foreign {
                let why = "unknown host name: ask by the IP address, or give NAME:PORT to --metrics\n";
                return (StatusCode::MISDIRECTED_REQUEST, why).into_response();
            }
            next.run(request).await
        }
    }))
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::net::TcpStream;
    use std::time::{Duration, Instant};

    use super::*;
    use lockon_core::surface::Traffic;

    fn server() -> MetricsServer {
        MetricsServer::start(&"0".parse().unwrap(), &Registry::default()).unwrap()
    }

    fn connect(server: &MetricsServer) -> TcpStream {
        let stream = TcpStream::connect(address(server)).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        stream
    }

    fn address(server: &MetricsServer) -> &str {
        server.url().strip_prefix("http://").and_then(|url| url.strip_suffix("/metrics")).unwrap()
    }

    fn ask(server: &MetricsServer, request: &str) -> String {
        let mut stream = connect(server);
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        let _ = stream.read_to_string(&mut answer);
        answer
    }

    const GET: &str = "GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";

    #[test]
    fn requests_are_answered_by_what_they_are() {
        let server = server();
        for (request, status) in [
            ("GET /metrics?x=1 HTTP/1.0\r\n\r\n", "200"),
            ("HEAD /metrics HTTP/1.0\r\n\r\n", "200"),
            ("GET / HTTP/1.0\r\n\r\n", "404"),
            ("GET /metrics/../secret HTTP/1.0\r\n\r\n", "404"),
            ("POST /metrics HTTP/1.0\r\n\r\n", "405"),
            ("GET  /metrics HTTP/1.1\r\n\r\n", "400"),
            ("GET /metrics HTTP/1.1\r\nno colon\r\n\r\n", "400"),
        ] {
            let answer = ask(&server, request);
            assert!(answer.split(' ').nth(1) == Some(status), "{request:?}: {answer}");
        }
    }

    #[test]
    fn a_name_that_dns_may_have_pointed_here_is_refused_at_a_loopback_address() {
        let named = |server: &MetricsServer, host: &str| {
            ask(server, &GET.replacen("localhost", host, 1)).split(' ').nth(1).unwrap().to_owned()
        };
        let own = server();
        for (host, status) in [
            ("evil.example", "421"),
            ("127.0.0.1.evil.example:9100", "421"),
            ("a@evil.example", "421"),
            ("localhost\r\nHost: evil.example", "421"),
            ("LOCALHOST:9100", "200"),
            ("127.0.0.1:9100", "200"),
            ("[::1]:9100", "200"),
        ] {
            assert_eq!(named(&own, host), status, "{host}");
        }
        // Other machines use any name of this machine there.
        let open = MetricsServer::start(&"0.0.0.0:0".parse().unwrap(), &Registry::default()).unwrap();
        let port = open.url().rsplit(':').next().unwrap().trim_end_matches("/metrics").to_owned();
        let mut stream = TcpStream::connect(format!("127.0.0.1:{port}")).unwrap();
        stream.write_all(GET.replacen("localhost", "yard.example", 1).as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    }

    #[test]
    fn an_answer_comes_whole_with_its_length_and_that_to_head_without_the_body() {
        let server = server();
        let _sink = server.registry.watch("yard.mp4", &Traffic::default());
        let answer = ask(&server, GET);
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        let head = head.to_ascii_lowercase();
        assert!(
            head.starts_with("http/1.1 200 ok\r\n") && head.contains("text/plain; version=0.0.4"),
            "{head}"
        );
        assert!(head.contains(&format!("content-length: {}\r\n", body.len())), "{head}");
        assert!(body.contains("lockon_frames_total{video=\"yard.mp4\"} 0\n"), "{body}");
        let answer = ask(&server, &GET.replacen("GET", "HEAD", 1));
        assert!(answer.to_ascii_lowercase().contains(&format!("content-length: {}\r\n", body.len())));
        assert!(answer.ends_with("\r\n\r\n"), "{answer}");
    }

    #[test]
    fn connections_that_ask_nothing_delay_neither_others_nor_the_end() {
        let server = server();
        let silent: Vec<_> = (0..300).map(|_| connect(&server)).collect();
        let asked = Instant::now();
        assert!(ask(&server, GET).contains("lockon_videos 0"));
        let mut slow = connect(&server);
        let (first, rest) = GET.split_at(9);
        slow.write_all(first.as_bytes()).unwrap();
        assert!(ask(&server, GET).contains("lockon_videos 0"));
        slow.write_all(rest.as_bytes()).unwrap();
        let mut answer = String::new();
        slow.read_to_string(&mut answer).unwrap();
        assert!(answer.contains("lockon_videos 0"), "{answer}");
        drop(server);
        // One after another they would take minutes.
        assert!(asked.elapsed() < Duration::from_secs(8), "{:?}", asked.elapsed());
        drop(silent);
    }

    #[test]
    fn a_request_without_end_is_refused() {
        let answer = ask(&server(), &format!("GET /{} HTTP/1.1\r\n", "a".repeat(64 << 10)));
        assert!(["414", "431"].contains(&answer.split(' ').nth(1).unwrap_or_default()), "{answer}");
    }

    #[test]
    fn a_server_that_is_dropped_frees_its_address() {
        let server = server();
        let address: ListenAddress = address(&server).parse().unwrap();
        let error = MetricsServer::start(&address, &Registry::default()).err().unwrap();
        assert!(error.to_string().contains(&address.to_string()));
        drop(server);
        let start = Instant::now();
        while MetricsServer::start(&address, &Registry::default()).is_err() {
            assert!(start.elapsed() < Duration::from_secs(5), "the address stays in use");
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}
