//! Access control: a request needs the token, a host name of this machine, and must come from the page
//! itself.
//!
//! Only this machine's users can connect to a loopback address, but every web page that they have open can
//! too. The guard therefore refuses a `Host` that a foreign DNS may have pointed here (DNS rebinding), and
//! requests that another site's page sends. Any other address needs a token, too.

use std::net::{IpAddr, SocketAddr};

use axum::http::header::{AUTHORIZATION, COOKIE, HOST, ORIGIN};
use axum::http::uri::Authority;
use axum::http::{HeaderMap, HeaderName, Method, StatusCode, Uri};
use subtle::ConstantTimeEq;

use lockon_core::text;
use lockon_run::request::ListenAddress;

/// Browsers report the origin of a request in these headers.
const FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");
const FETCH_MODE: HeaderName = HeaderName::from_static("sec-fetch-mode");

/// Decides about the requests to one address.
pub(super) struct Guard {
    /// Required if others can connect.
    token: Option<String>,
    /// The name of this machine that the user gave.
    name: String,
    /// Name of the cookie. Browsers send a cookie to every port of a host, so each port has its own name.
    cookie: String,
}

/// The decision about a request.
#[derive(Debug, PartialEq)]
pub(super) enum Verdict {
    /// Answer it.
    Welcome,
    /// The address contains the token: set a cookie and redirect, so that the token leaves the address bar.
    Newcomer,
    /// Refuse it with this status and reason.
    Refused(StatusCode, &'static str),
}

impl Guard {
    /// The guard for a requested address and the socket address that it was bound to.
    ///
    /// # Errors
    /// If the system has no random numbers.
    pub(super) fn of(asked: &ListenAddress, at: SocketAddr) -> std::io::Result<Self> {
        let token = if at.ip().is_loopback() { None } else { Some(token()?) };
        let cookie = format!("lockon-{}", at.port());
        Ok(Self { token, name: asked.host().to_ascii_lowercase(), cookie })
    }

    pub(super) fn token(&self) -> Option<&str> {
        self.token.as_deref()
    }

    /// The cookie of a browser that brought the token in the address.
    ///
    /// `SameSite=Lax`, not `Strict`: a link in a mail or a chat is opened from another site, and so is the
    /// redirect that follows. A browser keeps a `Strict` cookie back there, and the page would answer 401.
    /// `Lax` sends it with a visit to the page alone, a GET that changes nothing. It is still not sent with
    /// what another site's page posts, loads or fetches, and [`Self::judge`] refuses these by `Origin` and
    /// `Sec-Fetch-Site` too.
    pub(super) fn cookie(&self) -> Option<String> {
        let token = self.token.as_deref()?;
        Some(format!("{}={token}; HttpOnly; SameSite=Lax; Path=/", self.cookie))
    }

    pub(super) fn judge(&self, method: &Method, uri: &Uri, headers: &HeaderMap) -> Verdict {
        let refused = Verdict::Refused;
        let text = |name: &HeaderName| headers.get(name).and_then(|value| value.to_str().ok());
        // A page of another site cannot set this header without the token.
        let is_program = text(&AUTHORIZATION)
            .and_then(|value| value.strip_prefix("Bearer "))
            .is_some_and(|given| self.is_token(given));
        let host = text(&HOST).and_then(|host| host.parse::<Authority>().ok());
        let Some(host) = host.filter(|_| headers.get_all(HOST).iter().count() == 1) else {
            return refused(StatusCode::BAD_REQUEST, "a request needs exactly one Host header");
        };
        if !is_program && !self.is_own_name(host.host()) {
            return refused(
                StatusCode::MISDIRECTED_REQUEST,
                "unknown host name: open the page by its IP address, or start it with NAME:PORT as its address",
            );
        }
        let origin = headers.get(ORIGIN).map(|value| value.to_str().unwrap_or("null"));
        if origin.is_some_and(|origin| !is_same(origin, &host)) {
            return refused(StatusCode::FORBIDDEN, "requests from pages of other sites are refused");
        }
        // Links from other sites may open the page; their pictures, scripts and forms may not use it.
        let site = text(&FETCH_SITE).unwrap_or("none");
        let is_visit = method == Method::GET && uri.path() == "/" && text(&FETCH_MODE) == Some("navigate");
        if !matches!(site, "none" | "same-origin") && !is_visit {
            return refused(StatusCode::FORBIDDEN, "requests from pages of other sites are refused");
        }
        if self.token.is_none() || is_program {
            return Verdict::Welcome;
        }
        let in_address = || {
            let mut words = uri.query().unwrap_or_default().split('&');
            words.any(|word| word.strip_prefix("t=").is_some_and(|given| self.is_token(given)))
        };
        let in_cookie = || {
            let cookies = headers.get_all(COOKIE).iter().filter_map(|value| value.to_str().ok());
            cookies.flat_map(|line| line.split(';')).any(|pair| {
                let value = pair.trim().strip_prefix(self.cookie.as_str());
                value.and_then(|value| value.strip_prefix('=')).is_some_and(|given| self.is_token(given))
            })
        };
        if in_address() {
            let is_page = method == Method::GET && uri.path() == "/";
            if is_page { Verdict::Newcomer } else { Verdict::Welcome }
        } else if in_cookie() {
            Verdict::Welcome
        } else {
            refused(
                StatusCode::UNAUTHORIZED,
                "the token is missing: open the whole address that lockon printed",
            )
        }
    }

    /// Compares in constant time.
    fn is_token(&self, given: &str) -> bool {
        self.token.as_ref().is_some_and(|token| token.as_bytes().ct_eq(given.as_bytes()).into())
    }

    /// True if the request has a host that a foreign DNS may have pointed here. Programs may send none, but
    /// browsers always do.
    pub(super) fn is_foreign_host(&self, headers: &HeaderMap) -> bool {
        headers.get_all(HOST).iter().any(|host| {
            let host = host.to_str().ok().and_then(|host| host.parse::<Authority>().ok());
            host.is_none_or(|host| !self.is_own_name(host.host()))
        })
    }

    /// True for names that no foreign DNS can have pointed here: IP addresses, `localhost`, and the name that
    /// the user gave.
    fn is_own_name(&self, host: &str) -> bool {
        let bare = host.trim_start_matches('[').trim_end_matches(']');
        let host = host.to_ascii_lowercase();
        bare.parse::<IpAddr>().is_ok() || host == "localhost" || host == self.name
    }
}

/// True if an origin is this host itself.
fn is_same(origin: &str, host: &Authority) -> bool {
    let origin = origin.strip_prefix("http://").or_else(|| origin.strip_prefix("https://"));
    origin.is_some_and(|origin| origin.eq_ignore_ascii_case(host.as_str()))
}

/// A random token of 128 bits, in hexadecimal.
fn token() -> std::io::Result<String> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes)?;
    Ok(text::hexadecimal(&bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn guard(asked: &str, at: &str) -> Guard {
        Guard::of(&asked.parse().unwrap(), at.parse().unwrap()).unwrap()
    }

    fn judge(guard: &Guard, method: &Method, uri: &str, headers: &[(&str, &str)]) -> Verdict {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.append(name.parse::<HeaderName>().unwrap(), value.parse().unwrap());
        }
        guard.judge(method, &uri.parse().unwrap(), &map)
    }

    fn status(verdict: &Verdict) -> u16 {
        match verdict {
            Verdict::Refused(status, _) => status.as_u16(),
            Verdict::Welcome | Verdict::Newcomer => 200,
        }
    }

    #[test]
    fn names_that_dns_may_have_pointed_here_are_refused() {
        let guard = guard("camera.example:80", "127.0.0.1:80");
        for (host, expected) in [
            ("127.0.0.1:80", 200),
            ("localhost", 200),
            ("LOCALHOST:80", 200),
            ("[::1]:80", 200),
            ("192.168.1.7:80", 200),
            ("Camera.example:80", 200),
            ("evil.example", 421),
            ("127.0.0.1.evil.example", 421),
            ("localhost.evil.example:80", 421),
            ("", 400),
            ("a b", 400),
        ] {
            let verdict = judge(&guard, &Method::GET, "/", &[("host", host)]);
            assert_eq!(status(&verdict), expected, "{host}");
        }
        assert_eq!(status(&judge(&guard, &Method::GET, "/", &[])), 400);
        let twice = [("host", "127.0.0.1"), ("host", "127.0.0.1")];
        assert_eq!(status(&judge(&guard, &Method::GET, "/", &twice)), 400);
    }

    #[test]
    fn other_sites_pages_are_refused_but_for_a_link_to_the_page() {
        let guard = guard("80", "127.0.0.1:80");
        let host = ("host", "127.0.0.1:80");
        for (name, value, expected) in [
            ("origin", "http://127.0.0.1:80", 200),
            ("origin", "http://127.0.0.1:81", 403),
            ("origin", "http://evil.example", 403),
            ("origin", "http://127.0.0.1:80.evil.example", 403),
            ("origin", "null", 403),
            ("origin", "", 403),
            ("sec-fetch-site", "cross-site", 403),
            ("sec-fetch-site", "same-site", 403),
            ("sec-fetch-site", "same-origin", 200),
            ("sec-fetch-site", "none", 200),
        ] {
            for method in [Method::GET, Method::POST, Method::DELETE] {
                let verdict = judge(&guard, &method, "/api/videos", &[host, (name, value)]);
                assert_eq!(status(&verdict), expected, "{method} {name}: {value}");
            }
        }
        let link = [host, ("sec-fetch-site", "cross-site"), ("sec-fetch-mode", "navigate")];
        assert_eq!(status(&judge(&guard, &Method::GET, "/", &link)), 200);
        assert_eq!(status(&judge(&guard, &Method::POST, "/", &link)), 403);
        assert_eq!(status(&judge(&guard, &Method::GET, "/api/videos", &link)), 403);
    }

    #[test]
    fn an_address_that_others_reach_takes_the_token() {
        let guard = guard("0.0.0.0:80", "0.0.0.0:80");
        let token = guard.token().unwrap().to_owned();
        assert_eq!(token.len(), 32);
        let host = ("host", "192.168.1.7");
        let ask = |uri: &str, header: (&str, &str)| judge(&guard, &Method::GET, uri, &[host, header]);
        let none = ("x", "y");
        assert_eq!(status(&ask("/", none)), 401);
        assert_eq!(ask(&format!("/?t={token}"), none), Verdict::Newcomer);
        assert_eq!(ask(&format!("/metrics?t={token}"), none), Verdict::Welcome);
        assert_eq!(ask("/", ("authorization", &format!("Bearer {token}"))), Verdict::Welcome);
        assert_eq!(ask("/", ("cookie", &format!("a=b; lockon-80={token}"))), Verdict::Welcome);
        let shorter = &token[1..];
        let other = format!("{}0{shorter}", if token.starts_with('1') { "2" } else { "1" });
        for wrong in ["", shorter, &other[..32], &format!("{token}0")] {
            assert_eq!(status(&ask(&format!("/?t={wrong}"), none)), 401, "{wrong}");
            assert_eq!(status(&ask("/", ("authorization", &format!("Bearer {wrong}")))), 401, "{wrong}");
            assert_eq!(status(&ask("/", ("cookie", &format!("lockon-80={wrong}")))), 401, "{wrong}");
        }
        // A cookie of another port belongs to another page.
        assert_eq!(status(&ask("/", ("cookie", &format!("lockon-81={token}")))), 401);
        // A program with the token may use any host name.
        let named = [("host", "camera.example"), ("authorization", &format!("Bearer {token}"))];
        assert_eq!(judge(&guard, &Method::GET, "/metrics", &named), Verdict::Welcome);
        let cookie = [("host", "camera.example"), ("cookie", &format!("lockon-80={token}"))];
        assert_eq!(status(&judge(&guard, &Method::GET, "/", &cookie)), 421);
    }

    #[test]
    fn a_visit_by_a_link_in_a_mail_is_let_in_with_its_cookie_and_nothing_else_of_that_site() {
        let guard = guard("0.0.0.0:80", "0.0.0.0:80");
        let token = guard.token().unwrap().to_owned();
        let cookie = guard.cookie().unwrap();
        assert!(cookie.contains("; HttpOnly; SameSite=Lax;"), "{cookie}");
        let cookie = cookie.split(';').next().unwrap();
        let from_mail = [
            ("host", "192.168.1.7"),
            ("sec-fetch-site", "cross-site"),
            ("sec-fetch-mode", "navigate"),
            ("cookie", cookie),
        ];
        let address = format!("/?t={token}");
        assert_eq!(judge(&guard, &Method::GET, &address, &from_mail[..3]), Verdict::Newcomer);
        // The redirect: the browser sends its cookie, and still calls it a request of the other site.
        assert_eq!(judge(&guard, &Method::GET, "/", &from_mail), Verdict::Welcome);
        for (method, path) in [
            (Method::POST, "/"),
            (Method::POST, "/api/videos/0/stop"),
            (Method::PUT, "/api/videos/0/pace"),
            (Method::DELETE, "/api/videos/0/tracks"),
            (Method::GET, "/api/videos"),
        ] {
            assert_eq!(status(&judge(&guard, &method, path, &from_mail)), 403, "{method} {path}");
            // An older browser sends no `Sec-Fetch-Site`, but with all that changes something an `Origin`.
            let older = [("host", "192.168.1.7"), ("origin", "https://mail.example"), ("cookie", cookie)];
            assert_eq!(status(&judge(&guard, &method, path, &older)), 403, "{method} {path}");
        }
    }

    #[test]
    fn no_two_pages_have_the_same_token() {
        let guards = [(); 2].map(|()| guard("0.0.0.0:80", "0.0.0.0:80"));
        assert_ne!(guards[0].token(), guards[1].token());
        assert_eq!(guard("80", "127.0.0.1:80").token(), None);
    }
}
