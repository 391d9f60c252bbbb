//! Addresses of videos, which may contain passwords, and the diagnosis when one gives no video.

use std::fmt;
use std::io::ErrorKind;
use std::net::{TcpStream, ToSocketAddrs};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use crossbeam_channel::RecvTimeoutError;
use gst::glib;

use super::Login;
use lockon_core::control::{Control, STOP_CHECK};
use lockon_core::error::{Error, Result};
use lockon_core::text;

/// Time limit of the check whether a server exists.
const ANSWER: Duration = Duration::from_secs(3);

/// State of a server that sent no video.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Server {
    /// It rejects the user and password: waiting does not help.
    Refuses,
    /// The server does not exist, or has nothing at the address yet.
    IsAway,
    /// It answers.
    Answers,
}

/// A typed URI. Its displayed form has no password.
#[derive(Clone, PartialEq, Eq)]
pub struct Uri(String);

impl Uri {
    /// The whole address with its password, for GStreamer alone.
    pub fn as_typed(&self) -> &str {
        &self.0
    }

    /// Its scheme in lower case.
    pub fn scheme(&self) -> String {
        self.0.split("://").next().unwrap_or_default().to_ascii_lowercase()
    }

    /// The URI without its login, and the login. Schemes other than `rtsp` and `http` stay unchanged.
    pub(super) fn split(&self) -> Result<(String, Option<Login>)> {
        let scheme = self.scheme();
        if text::has_raw_login(&self.0) {
            let what = format!("user and password are not escaped: {}", text::ESCAPES);
            return Err(Error::value("address", &self.to_string(), what));
        }
        let takes_login = ["rtsp", "http"].iter().any(|known| scheme.starts_with(known));
        let Some((start, rest)) = self.0.split_once("://").filter(|_| takes_login) else {
            return Ok((self.0.clone(), None));
        };
        let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
        let Some(at) = rest[..end].rfind('@') else {
            return Ok((self.0.clone(), None));
        };
        let (user, password) = rest[..at].split_once(':').unwrap_or((&rest[..at], ""));
        let plain = |text: &str| {
            unescaped(text).ok_or_else(|| {
                let what = format!("user or password has a % that is no escape: {}", text::ESCAPES);
                Error::value("address", &self.to_string(), what)
            })
        };
        let login = Login::new(&plain(user)?, &plain(password)?);
        Ok((format!("{start}://{}", &rest[at + 1..]), Some(login)))
    }

    /// The address without user, password and other secrets, for typing again, and whether something was left
    /// out.
    pub fn without_login(&self) -> (String, bool) {
        let shown = self.to_string();
        let bare = shown.replacen(&format!("://{}@", text::HIDDEN), "://", 1);
        let is_cut = bare != shown || shown.contains(text::HIDDEN) && !self.0.contains(text::HIDDEN);
        (bare, is_cut)
    }

    /// Its local file, as GStreamer's source reads it.
    pub fn path(&self) -> Option<PathBuf> {
        let (path, host) = glib::filename_from_uri(&self.0).ok()?;
        host.is_none_or(|host| host == "localhost").then_some(path)
    }

    /// Its server's host, in lower case; `None` if another parser could take another host for it: nothing is
    /// escaped in front of the path, and the login, if any, is a plain name.
    pub fn plain_host(&self) -> Option<String> {
        let (_, rest) = self.0.split_once("://")?;
        let server = &rest[..rest.find(['/', '?', '#']).unwrap_or(rest.len())];
        let (user, server) = server.split_once('@').unwrap_or(("", server));
        let is_plain =
            |text: &str, signs: &str| text.chars().all(|c| c.is_ascii_alphanumeric() || signs.contains(c));
        if !is_plain(user, "-._") || !is_plain(server, "-.:[]") {
            return None;
        }
        let host = match server.strip_prefix('[') {
            Some(bare) => bare.split(']').next(),
            None => server.split(':').next(),
        };
        host.filter(|host| !host.is_empty()).map(str::to_ascii_lowercase)
    }

    /// The URI without its login, and the login for its server: its own, or `given` where it has no password.
    pub(super) fn with_login(&self, given: Option<Login>) -> Result<(String, Option<Login>)> {
        let (address, typed) = self.split()?;
        let is_enough = |typed: &Login| typed.has_password() || given.is_none();
        Ok((address, typed.filter(is_enough).or(given)))
    }

    /// True if a login for this server may be given to the one at `other`: host and port are equal, and the
    /// connection is encrypted if this one is.
    pub(super) fn lends_login_to(&self, other: &Self) -> bool {
        let (Some((host, port)), Some((other_host, other_port))) = (self.server(), other.server()) else {
            return false;
        };
        let is_same = host.eq_ignore_ascii_case(&other_host) && port == other_port;
        self.has_server() && is_same && (other.is_encrypted() || !self.is_encrypted())
    }

    /// True if it names a server, or a local port as SRT's listener does.
    pub(super) fn has_server(&self) -> bool {
        self.server().is_some_and(|(host, port)| !host.is_empty() || port.is_some())
    }

    fn is_encrypted(&self) -> bool {
        let scheme = self.scheme();
        scheme == "https" || scheme.starts_with("rtsps")
    }

    /// Host and port, if it has both.
    fn host_and_port(&self) -> Option<(String, u16)> {
        let (host, port) = self.server()?;
        (!host.is_empty()).then_some((host, port?))
    }

    /// Host, which may be empty, and port: the one in it, else the usual one of its scheme.
    fn server(&self) -> Option<(String, Option<u16>)> {
        let (_, rest) = self.0.split_once("://")?;
        let host = &rest[..rest.find(['/', '?', '#']).unwrap_or(rest.len())];
        let host = host.rsplit_once('@').map_or(host, |(_, host)| host);
        let is_bare = |host: &str| host.starts_with('[') && host.ends_with(']');
        let (host, port) = match host.rsplit_once(':').filter(|_| !is_bare(host)) {
            Some((host, port)) => (host, Some(port.parse().ok()?)),
            None => (host, None),
        };
        let default = || match self.scheme().as_str() {
            "http" => Some(80),
            "https" => Some(443),
            scheme if scheme.starts_with("rtsps") => Some(322),
            scheme if scheme.starts_with("rtsp") => Some(554),
            _ => None,
        };
        let host = host.trim_start_matches('[').trim_end_matches(']');
        Some((host.to_owned(), port.or_else(default)))
    }

    /// Its server, in words: `192.168.1.20 port 554`.
    pub(super) fn place(&self) -> Option<String> {
        self.host_and_port().map(|(host, port)| format!("{host} port {port}"))
    }

    /// The reason why its server sent no video, and a remedy. `said` is GStreamer's message. Connects to the
    /// server once more to see if it answers, which takes 3 s at most; not if the run is stopped.
    pub(super) fn why_nothing_came(&self, said: &str, control: &Control) -> Option<(Server, String)> {
        let (scheme, place) = (self.scheme(), self.place()?);
        if !(scheme.starts_with("rtsp") || scheme.starts_with("http")) {
            return None;
        }
        let says = |words: &[&str]| words.iter().any(|word| said.to_ascii_lowercase().contains(word));
        let said = said.trim_end_matches('.');
        Some(match () {
            () if says(&["(401", " 401", "unauthorized", "(403", " 403", "forbidden"]) => {
                let reason = format!(
                    "the server at {place} rejects this user and password ({said}): give others with --credentials FILE"
                );
                (Server::Refuses, reason)
            }
            () if says(&["(404", " 404", "not found", "not-found"]) && !says(&["resolv"]) => {
                let reason = format!(
                    "the server at {place} has nothing under this path ({said}): is the path right, has the camera been started?"
                );
                (Server::IsAway, reason)
            }
            () => match self.greet(control)? {
                Ok(()) => {
                    let reason = format!(
                        "the server at {place} answers, but gave no video: {said} (is {scheme}:// right, and the path?)"
                    );
                    (Server::Answers, reason)
                }
                Err(reason) => (Server::IsAway, reason),
            },
        })
    }

    /// Opens a connection to the server and closes it. Returns the error if it cannot be opened. `None` if
    /// the run is stopped before that is known.
    fn greet(&self, control: &Control) -> Option<Result<(), String>> {
        let Some((host, port)) = self.host_and_port() else { return Some(Ok(())) };
        let (sender, answer) = crossbeam_channel::bounded(1);
        let place = (host.clone(), port);
        // Looking up a name has no time limit, so another thread does it.
        let greet = move || {
            let _ = sender.send(place.to_socket_addrs().map(|addresses| {
                let tries = addresses.map(|address| TcpStream::connect_timeout(&address, ANSWER / 2).err());
                let tries: Vec<_> = tries.collect();
                if tries.iter().any(Option::is_none) { None } else { tries.into_iter().flatten().next() }
            }));
        };
        let started = std::thread::Builder::new().name("lockon-greet".into()).spawn(greet);
        let deadline = Instant::now() + ANSWER;
        let heard = loop {
            match answer.recv_timeout(STOP_CHECK) {
                Ok(heard) => break Some(heard),
                Err(RecvTimeoutError::Timeout) if control.is_stopped() => return None,
                Err(RecvTimeoutError::Timeout) if started.is_ok() && Instant::now() < deadline => {}
                Err(_) => break None,
            }
        };
        Some(match heard {
            None => Err(format!(
                "no answer from {host} port {port} within {} s: is it switched on, is it in this network, is a firewall between?",
                ANSWER.as_secs()
            )),
            Some(Err(error)) => {
                Err(format!("unknown host {host} ({error}): is its name right, does DNS work here?"))
            }
            Some(Ok(None)) => Ok(()),
            Some(Ok(Some(error))) => Err(match error.kind() {
                ErrorKind::ConnectionRefused => format!(
                    "connection refused by {host} port {port}: is the server running, is the port right?"
                ),
                ErrorKind::TimedOut => format!(
                    "no answer from {host} port {port}: is it switched on, is it in this network, is a firewall between?"
                ),
                _ => format!("{host} port {port} cannot be reached: {error}"),
            }),
        })
    }
}

/// The text that a part of an address stands for (RFC 3986, 2.1); `None` if a `%` has no two digits behind it
/// or it is no UTF-8.
fn unescaped(part: &str) -> Option<String> {
    let mut pieces = part.split('%');
    let mut bytes = pieces.next()?.as_bytes().to_vec();
    for piece in pieces {
        let digits = piece.get(..2).filter(|digits| digits.bytes().all(|digit| digit.is_ascii_hexdigit()))?;
        bytes.push(u8::from_str_radix(digits, 16).ok()?);
        bytes.extend(&piece.as_bytes()[2..]);
    }
    String::from_utf8(bytes).ok()
}

impl From<&str> for Uri {
    fn from(text: &str) -> Self {
        Self(text.to_owned())
    }
}

impl From<String> for Uri {
    fn from(text: String) -> Self {
        Self(text)
    }
}

impl fmt::Display for Uri {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&text::in_one_line(&text::address_without_secrets(&self.0)))
    }
}

impl fmt::Debug for Uri {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Uri({self})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_is_named_by_host_and_port() {
        for (uri, expected) in [
            ("rtsp://user:word@10.0.0.7/stream", Some("10.0.0.7 port 554")),
            ("rtspt://10.0.0.7:8554/stream", Some("10.0.0.7 port 8554")),
            ("https://host/x", Some("host port 443")),
            ("srt://host:7001", Some("host port 7001")),
            ("rtsp://[::1]:554/x", Some("::1 port 554")),
            ("http://[::1]/x", Some("::1 port 80")),
            ("srt://host", None),
            ("file:///a", None),
        ] {
            assert_eq!(Uri::from(uri).place().as_deref(), expected, "{uri}");
        }
    }

    #[test]
    fn a_login_is_lent_to_the_same_host_and_port_and_never_in_plain_text_where_it_was_encrypted() {
        for (typed, other, expected) in [
            ("http://cam/list.m3u8", "http://cam/1.ts", true),
            ("http://cam/list.m3u8", "http://CAM:80/1.ts", true),
            ("http://a:b@cam/x", "http://cam/x", true),
            ("http://cam:443/x", "https://cam/x", true),
            ("srt://:7001", "srt://:7001", true),
            ("https://cam:8443/x", "http://cam:8443/x", false),
            ("rtsps://cam:322/x", "rtsp://cam:322/x", false),
            ("http://cam/x", "https://cam/x", false),
            ("http://cam/x", "http://cam:8080/x", false),
            ("http://cam/x", "http://cam.evil/x", false),
            ("http://cam/x", "http://cam:80@evil/x", false),
            ("http://cam/x", "http://evil\\@cam@evil/x", false),
            ("http://cam/x", "http://evil#@cam/x", false),
            ("http://cam/x", "http://cam:80x/x", false),
            ("file:///a", "http://cam/x", false),
        ] {
            assert_eq!(Uri::from(typed).lends_login_to(&Uri::from(other)), expected, "{typed} {other}");
        }
    }

    #[test]
    fn a_login_is_taken_out_and_unescaped_and_never_shown() {
        let uri = Uri::from("rtsp://admin:s3c%40ret@host:554/x@y");
        let (rest, login) = uri.split().unwrap();
        assert_eq!((rest.as_str(), login), ("rtsp://host:554/x@y", Some(Login::new("admin", "s3c@ret"))));
        assert_eq!(format!("{uri} {uri:?}"), "rtsp://***@host:554/x@y Uri(rtsp://***@host:554/x@y)");
        assert_eq!(Uri::from("rtsp://host/a@b").split().unwrap(), ("rtsp://host/a@b".into(), None));
        for raw in ["http://a:%zz@host", "rtsp://a:p@ss:w#r/d%1?x@127.0.0.1:18554/cam", "srt://a:p/q@host:1"]
        {
            let error = Uri::from(raw).split().unwrap_err();
            let words = error.to_string();
            assert!(error.is_usage() && words.contains("%40") && words.contains("://***@"), "{words}");
        }
        assert_eq!(Uri::from("srt://a:b@host").split().unwrap().1, None);
    }

    #[test]
    fn an_address_is_typed_again_without_its_login() {
        for (uri, expected) in [
            ("rtsp://admin:s3c%40ret@host:554/x@y", ("rtsp://host:554/x@y", true)),
            ("rtsp://host:554/x@y", ("rtsp://host:554/x@y", false)),
            ("srt://h:1?passphrase=0123456789&mode=caller", ("srt://h:1?passphrase=***&mode=caller", true)),
        ] {
            let (bare, is_cut) = Uri::from(uri).without_login();
            assert_eq!((bare.as_str(), is_cut), expected);
        }
    }

    #[test]
    fn a_file_is_the_one_that_gstreamer_opens() {
        for (uri, expected) in [
            ("file:///a%20b.mp4", Some("/a b.mp4")),
            ("FILE:///a.mp4", Some("/a.mp4")),
            ("file://localhost/a.mp4", Some("/a.mp4")),
            ("file:///a/../b.mp4", Some("/a/../b.mp4")),
            ("file://elsewhere/a.mp4", None),
            ("file://a.mp4", None),
            ("http://a/b.mp4", None),
        ] {
            assert_eq!(Uri::from(uri).path(), expected.map(PathBuf::from), "{uri}");
        }
    }

    #[test]
    fn a_host_is_plain_if_nobody_could_read_another_one() {
        for (uri, expected) in [
            ("rtsp://Cam-1.local:554/x", Some("cam-1.local")),
            ("rtsp://admin@10.0.0.7/x@y", Some("10.0.0.7")),
            ("rtsp://[::1]:554/x", Some("::1")),
            ("rtsp://10.0.0.7?x", Some("10.0.0.7")),
            ("rtsp://10.0.0.7@evil@10.0.0.7/x", None),
            ("rtsp://evil\\@10.0.0.7/x", None),
            ("rtsp://10.0.0.7%2eevil/x", None),
            ("srt://:7001", None),
            ("file:///a", None),
        ] {
            assert_eq!(Uri::from(uri).plain_host().as_deref(), expected, "{uri}");
        }
    }

    #[test]
    fn a_login_that_is_given_stands_in_for_a_password_that_is_not_typed() {
        let (given, typed) = (Login::new("admin", "s3cret"), Login::new("admin", ""));
        for (uri, given, expected) in [
            ("rtsp://admin@host/x", Some(&given), Some(&given)),
            ("rtsp://admin:@host/x", Some(&given), Some(&given)),
            ("rtsp://host/x", Some(&given), Some(&given)),
            ("rtsp://admin@host/x", None, Some(&typed)),
            ("rtsp://host/x", None, None),
        ] {
            let (address, login) = Uri::from(uri).with_login(given.cloned()).unwrap();
            assert_eq!((address.as_str(), login.as_ref()), ("rtsp://host/x", expected), "{uri}");
        }
        let own = Uri::from("rtsp://other:word@host/x").with_login(Some(given)).unwrap().1;
        assert_eq!(own, Some(Login::new("other", "word")));
    }

    #[test]
    fn a_refused_connection_is_reported_with_host_and_port() {
        let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let why = |uri: &str, said: &str| Uri::from(uri).why_nothing_came(said, &Control::new()).unwrap();
        let (server, said) = why(&format!("rtsp://127.0.0.1:{port}/x"), "Failed to connect");
        assert_eq!(server, Server::IsAway);
        assert!(said.starts_with(&format!("connection refused by 127.0.0.1 port {port}")), "{said}");
        let (server, said) = why("http://127.0.0.1:9/x", "Not Found (404)");
        assert_eq!(server, Server::IsAway);
        assert!(
            said.starts_with("the server at 127.0.0.1 port 9 has nothing under this path (Not Found (404))"),
            "{said}"
        );
        let (server, said) = why("http://127.0.0.1:9/x", "Unauthorized (401)");
        assert_eq!(server, Server::Refuses, "{said}");
    }

    #[test]
    fn a_run_that_is_stopped_does_not_wait_for_an_answer() {
        // Addresses for documentation (RFC 5737) never answer.
        let (uri, control) = (Uri::from("rtsp://192.0.2.1/x"), Control::new());
        control.stop();
        let start = Instant::now();
        uri.why_nothing_came("Failed to connect", &control);
        assert!(start.elapsed() < ANSWER / 2, "{:?}", start.elapsed());
    }
}
