//! The least of HTTP/1.1 that a scraper needs: `GET /metrics`, each request with little time and little room.
//!
//! One thread serves a few connections at a time, none of which it waits for: whoever connects and says
//! nothing holds nobody up.

use std::collections::VecDeque;
use std::fmt;
use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::error::{Error, Result};

/// Most bytes of a request, up to the empty line.
const MAX_REQUEST: usize = 8192;

/// A request and its answer take so long at most.
const PATIENCE: Duration = Duration::from_secs(2);

/// Most connections at a time; the oldest is closed for one more.
const MAX_CONNECTIONS: usize = 16;

/// How often to look at connections that are open.
const TICK: Duration = Duration::from_millis(10);

/// Where something is served: `PORT` of this machine's own 127.0.0.1, or `HOST:PORT`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Address {
    host: String,
    port: u16,
}

impl FromStr for Address {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let bad =
            || Error::value("address", text, "expected PORT or HOST:PORT, such as 9090 or 0.0.0.0:9090");
        if let Ok(port) = text.parse() {
            return Ok(Self { host: Ipv4Addr::LOCALHOST.to_string(), port });
        }
        let (host, port) = text.rsplit_once(':').ok_or_else(bad)?;
        let host = match host.strip_prefix('[') {
            Some(host) => host.strip_suffix(']').filter(|host| host.parse::<Ipv6Addr>().is_ok()),
            None => Some(host).filter(|host| !host.is_empty() && !host.contains(':')),
        };
        let host = host.ok_or_else(bad)?.to_owned();
        Ok(Self { host, port: port.parse().map_err(|_| bad())? })
    }
}

impl Address {
    /// The host as it was typed; of a bare port 127.0.0.1.
    pub fn host(&self) -> &str {
        &self.host
    }

    /// Takes connections there.
    ///
    /// # Errors
    /// `Listen` if the address is taken, or is none of this machine's.
    pub fn listen(&self) -> Result<TcpListener> {
        let failed = |cause| Error::Listen { address: self.to_string(), cause };
        let found = (self.host.as_str(), self.port).to_socket_addrs().map_err(failed)?;
        TcpListener::bind(found.collect::<Vec<_>>().as_slice()).map_err(failed)
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { host, port } = self;
        if host.contains(':') { write!(f, "[{host}]:{port}") } else { write!(f, "{host}:{port}") }
    }
}

/// A thread that answers; dropping this ends it.
#[derive(Debug)]
pub struct Server {
    address: SocketAddr,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    /// Answers `GET /metrics` with what `text` gives.
    ///
    /// # Errors
    /// `Listen` if the address is taken, or is none of this machine's.
    pub fn start(address: &Address, text: impl Fn() -> String + Send + 'static) -> Result<Self> {
        let failed = |cause| Error::Listen { address: address.to_string(), cause };
        let listener = address.listen()?;
        let address = listener.local_addr().map_err(failed)?;
        let stop = Arc::new(AtomicBool::new(false));
        let is_over = stop.clone();
        let serve = move || serve(&listener, &text, &is_over);
        let thread =
            std::thread::Builder::new().name("lockon-metrics".into()).spawn(serve).map_err(failed)?;
        Ok(Self { address, stop, thread: Some(thread) })
    }

    /// Where to ask.
    pub fn url(&self) -> String {
        format!("http://{}/metrics", self.address)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        // It waits for a connection: here is one.
        let mut door = self.address;
        if door.ip().is_unspecified() {
            door.set_ip(match door.ip() {
                IpAddr::V4(_) => Ipv4Addr::LOCALHOST.into(),
                IpAddr::V6(_) => Ipv6Addr::LOCALHOST.into(),
            });
        }
        let has_knocked = TcpStream::connect_timeout(&door, PATIENCE).is_ok();
        // If nobody can reach it, it is left to the end of the process rather than waited for.
        if let Some(thread) = self.thread.take().filter(|_| has_knocked) {
            let _ = thread.join();
        }
    }
}

/// Answers until it is over.
fn serve(listener: &TcpListener, text: &dyn Fn() -> String, is_over: &AtomicBool) {
    let mut open: VecDeque<Connection> = VecDeque::new();
    loop {
        // With nobody to look after it waits for the next connection.
        let accepted = listener.set_nonblocking(!open.is_empty()).and_then(|()| listener.accept());
        if is_over.load(Ordering::Relaxed) {
            return;
        }
        let pause = match accepted {
            Ok((stream, _)) => {
                if open.len() == MAX_CONNECTIONS {
                    open.pop_front();
                }
                open.extend(Connection::new(stream).inspect_err(|error| tracing::debug!("metrics: {error}")));
                Duration::ZERO
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => TICK,
            // Gone again already, or too many files are open: that may pass.
            Err(error) => {
                tracing::debug!("metrics: {error}");
                TICK * 10
            }
        };
        // Whoever does not listen to the end misses something; nobody else does.
        open.retain_mut(|connection| match connection.advance(text) {
            Err(error) if error.kind() == ErrorKind::WouldBlock => true,
            Err(error) => {
                tracing::debug!("metrics: {error}");
                false
            }
            Ok(()) => false,
        });
        if !open.is_empty() || pause > TICK {
            std::thread::sleep(pause);
        }
    }
}

/// A request on its way in, or its answer on its way out.
struct Connection {
    stream: TcpStream,
    deadline: Instant,
    request: Vec<u8>,
    /// What is left to write of the answer, once there is one.
    answer: Option<Vec<u8>>,
    /// Bytes that are still read and thrown away after the answer.
    unread: usize,
}

impl Connection {
    fn new(stream: TcpStream) -> std::io::Result<Self> {
        stream.set_nonblocking(true)?;
        let deadline = Instant::now() + PATIENCE;
        Ok(Self { stream, deadline, request: Vec::new(), answer: None, unread: 8 * MAX_REQUEST })
    }

    /// Reads the request and writes the answer as far as that can be done now.
    ///
    /// # Errors
    /// `WouldBlock` if more is to be done later.
    fn advance(&mut self, text: &dyn Fn() -> String) -> std::io::Result<()> {
        if Instant::now() > self.deadline {
            return Err(ErrorKind::TimedOut.into());
        }
        if self.answer.is_none() {
            self.read_request()?;
            self.answer = Some(answer_to(&self.request, text));
        }
        if let Some(rest) = &mut self.answer
            && !rest.is_empty()
        {
            while !rest.is_empty() {
                let written = again(|| self.stream.write(rest))?;
                rest.drain(..written.max(1).min(rest.len()));
            }
            self.stream.shutdown(std::net::Shutdown::Write)?;
        }
        // What is closed with unread bytes is reset, and the answer lost with it: a little more is read and
        // thrown away.
        let mut bytes = [0; 1024];
        while self.unread > 0 {
            match again(|| self.stream.read(&mut bytes))? {
                0 => break,
                read => self.unread = self.unread.saturating_sub(read),
            }
        }
        Ok(())
    }

    /// The request up to its empty line, to its end, or to [`MAX_REQUEST`].
    fn read_request(&mut self) -> std::io::Result<()> {
        let mut bytes = [0; 1024];
        while head_of(&self.request).is_none() && self.request.len() < MAX_REQUEST {
            match again(|| self.stream.read(&mut bytes))? {
                0 => break,
                read => self.request.extend_from_slice(&bytes[..read]),
            }
        }
        Ok(())
    }
}

/// Calls again what a signal interrupted.
fn again(mut call: impl FnMut() -> std::io::Result<usize>) -> std::io::Result<usize> {
    loop {
        match call() {
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            done => return done,
        }
    }
}

/// The whole answer. That to HEAD has the length of the body, but not the body.
fn answer_to(request: &[u8], text: &dyn Fn() -> String) -> Vec<u8> {
    let status = status_of(request);
    let (body, kind) = match status {
        "200 OK" => (text(), "text/plain; version=0.0.4; charset=utf-8"),
        _ => (format!("{status}: GET /metrics is what is served here\n"), "text/plain; charset=utf-8"),
    };
    let allow = if status.starts_with("405") { "Allow: GET, HEAD\r\n" } else { "" };
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {}\r\n{allow}Connection: close\r\n\r\n",
        body.len()
    );
    let body = if request.starts_with(b"HEAD ") { "" } else { &body };
    [head.as_bytes(), body.as_bytes()].concat()
}

/// The request's lines, if they are all there.
fn head_of(request: &[u8]) -> Option<&[u8]> {
    let end = request.windows(4).position(|four| four == b"\r\n\r\n")?;
    Some(&request[..end])
}

/// What a request is answered with: 200, 400, 404 or 405.
pub fn status_of(request: &[u8]) -> &'static str {
    let bad = "400 Bad Request";
    let Some(head) = head_of(request).and_then(|head| std::str::from_utf8(head).ok()) else { return bad };
    let mut lines = head.split("\r\n");
    let mut words = lines.next().unwrap_or_default().split(' ');
    let (Some(method), Some(target), Some(version), None) =
        (words.next(), words.next(), words.next(), words.next())
    else {
        return bad;
    };
    let is_token = |text: &str| {
        !text.is_empty() && text.bytes().all(|b| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b))
    };
    let are_headers = lines.all(|line| line.split_once(':').is_some_and(|(name, _)| is_token(name)));
    if !is_token(method)
        || !matches!(version, "HTTP/1.1" | "HTTP/1.0")
        || !target.starts_with('/')
        || !are_headers
    {
        return bad;
    }
    let path = target.split_once('?').map_or(target, |(path, _)| path);
    match (path, method) {
        ("/metrics", "GET" | "HEAD") => "200 OK",
        ("/metrics", _) => "405 Method Not Allowed",
        _ => "404 Not Found",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask(server: &Server, request: &[u8]) -> String {
        let mut stream = TcpStream::connect(server.address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        stream.write_all(request).unwrap();
        let mut said = String::new();
        let _ = stream.read_to_string(&mut said);
        said
    }

    fn server() -> Server {
        Server::start(&"0".parse().unwrap(), || "answer 42\n".into()).unwrap()
    }

    #[test]
    fn a_bare_port_is_this_machines_own() {
        assert_eq!("9090".parse::<Address>().unwrap().to_string(), "127.0.0.1:9090");
        assert_eq!("[::1]:80".parse::<Address>().unwrap().to_string(), "[::1]:80");
        assert_eq!("localhost:0".parse::<Address>().unwrap().to_string(), "localhost:0");
        for text in
            ["", ":9090", "a", "1.2.3.4", "::1:80", "[::1", "[x]:80", "host:99999", "65536", "-1", "host:"]
        {
            assert!(text.parse::<Address>().is_err(), "{text}");
        }
        assert!(server().address.ip().is_loopback());
    }

    #[test]
    fn requests_are_answered_by_what_they_are() {
        for (request, status) in [
            ("GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n", "200"),
            ("GET /metrics?x=1 HTTP/1.0\r\n\r\n", "200"),
            ("GET / HTTP/1.1\r\n\r\n", "404"),
            ("GET /metrics/../secret HTTP/1.1\r\n\r\n", "404"),
            ("POST /metrics HTTP/1.1\r\n\r\n", "405"),
            ("HEAD /metrics HTTP/1.1\r\n\r\n", "200"),
            ("head /metrics HTTP/1.1\r\n\r\n", "405"),
            ("POST / HTTP/1.1\r\n\r\n", "404"),
            ("GET /metrics HTTP/2.0\r\n\r\n", "400"),
            ("GET  /metrics HTTP/1.1\r\n\r\n", "400"),
            ("GET /metrics HTTP/1.1\r\nno colon\r\n\r\n", "400"),
            ("GET /metrics HTTP/1.1\n\n", "400"),
            ("GET metrics HTTP/1.1\r\n\r\n", "400"),
            ("", "400"),
        ] {
            assert!(status_of(request.as_bytes()).starts_with(status), "{request:?}");
        }
        assert!(status_of(b"GET /\xff HTTP/1.1\r\n\r\n").starts_with("400"));
    }

    #[test]
    fn an_answer_comes_whole_and_with_its_length() {
        let server = server();
        for _ in 0..3 {
            let said = ask(&server, b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n");
            assert!(said.starts_with("HTTP/1.1 200 OK\r\nContent-Type: text/plain; version=0.0.4"), "{said}");
            assert!(
                said.contains("Content-Length: 10\r\n") && said.ends_with("\r\n\r\nanswer 42\n"),
                "{said}"
            );
        }
        let said = ask(&server, b"DELETE /metrics HTTP/1.1\r\n\r\n");
        assert!(said.starts_with("HTTP/1.1 405") && said.contains("Allow: GET, HEAD\r\n"), "{said}");
        assert!(server.url().starts_with("http://127.0.0.1:"));
    }

    #[test]
    fn head_is_answered_as_get_is_without_the_body() {
        let server = server();
        let said = ask(&server, b"HEAD /metrics HTTP/1.1\r\nHost: x\r\n\r\n");
        assert!(said.starts_with("HTTP/1.1 200 OK\r\n") && said.ends_with("\r\n\r\n"), "{said}");
        assert!(said.contains("Content-Length: 10\r\n"), "{said}");
        let said = ask(&server, b"HEAD /else HTTP/1.1\r\n\r\n");
        assert!(said.starts_with("HTTP/1.1 404") && said.ends_with("\r\n\r\n"), "{said}");
    }

    #[test]
    fn idle_connections_hold_up_nobody() {
        for idle in [10, 3 * MAX_CONNECTIONS] {
            let server = server();
            let connect = |_| TcpStream::connect(server.address).unwrap();
            let silent: Vec<_> = (0..idle).map(connect).collect();
            let asked = Instant::now();
            assert!(ask(&server, b"GET /metrics HTTP/1.1\r\n\r\n").contains("42"));
            // One after the other they would take 20 s and more.
            assert!(asked.elapsed() < PATIENCE * 4, "{idle}: {:?}", asked.elapsed());
            // Nor do they hold up the end.
            drop(server);
            assert!(asked.elapsed() < PATIENCE * 4, "{idle}: {:?}", asked.elapsed());
            drop(silent);
        }
    }

    #[test]
    fn a_request_in_pieces_is_answered_between_others() {
        let server = server();
        let mut slow = TcpStream::connect(server.address).unwrap();
        slow.write_all(b"GET /metr").unwrap();
        assert!(ask(&server, b"GET /metrics HTTP/1.1\r\n\r\n").contains("42"));
        slow.write_all(b"ics HTTP/1.1\r\n\r\n").unwrap();
        slow.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        let mut said = String::new();
        slow.read_to_string(&mut said).unwrap();
        assert!(said.ends_with("answer 42\n"), "{said}");
    }

    #[test]
    fn a_request_without_end_is_refused_and_one_that_never_comes_is_given_up() {
        let server = server();
        let said = ask(&server, &vec![b'a'; 3 * MAX_REQUEST]);
        assert!(said.starts_with("HTTP/1.1 400"), "{said}");
        let silent = TcpStream::connect(server.address).unwrap();
        let asked = Instant::now();
        assert!(ask(&server, b"GET /metrics HTTP/1.1\r\n\r\n").contains("42"));
        assert!(asked.elapsed() < PATIENCE * 4, "{:?}", asked.elapsed());
        drop(silent);
    }

    #[test]
    fn a_server_that_is_dropped_frees_its_address() {
        let server = server();
        let address = Address { host: "127.0.0.1".into(), port: server.address.port() };
        assert!(Server::start(&address, String::new).unwrap_err().to_string().contains(&address.to_string()));
        drop(server);
        Server::start(&address, String::new).unwrap();
    }
}
