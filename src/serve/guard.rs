//! Who may ask: whoever has the token, under a name that is this machine's, from the page itself.
//!
//! At a loopback address only this machine's users can connect, but so can any page that they have open in
//! a browser. So a request is refused whose `Host` is a name that somebody else's DNS may have pointed here
//! (DNS rebinding), and one that another site's page sends. At any other address a token is needed, too.

use std::net::{IpAddr, SocketAddr};

use axum::http::header::{AUTHORIZATION, COOKIE, HOST, ORIGIN};
use axum::http::uri::Authority;
use axum::http::{HeaderMap, HeaderName, Method, StatusCode, Uri};
use subtle::ConstantTimeEq;

use crate::metrics::Address;

/// What browsers say of where a request comes from.
const FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");
const FETCH_MODE: HeaderName = HeaderName::from_static("sec-fetch-mode");

/// Who may ask at one address.
pub(super) struct Guard {
    /// Needed where others can connect.
    token: Option<String>,
    /// The name of this machine that the user gave.
    name: String,
    /// A cookie is sent to every port of a host: each has one of its own.
    cookie: String,
}

/// What becomes of a request.
#[derive(Debug, PartialEq)]
pub(super) enum Verdict {
    /// It may be answered.
    Welcome,
    /// It has the token in its address: it gets a cookie, so that the token stands nowhere else.
    Newcomer,
    /// It may not.
    Refused(StatusCode, &'static str),
}

impl Guard {
    /// The one of an address that was asked for, and of what it came to.
    ///
    /// # Errors
    /// If the system has no random numbers.
    pub(super) fn of(asked: &Address, at: SocketAddr) -> std::io::Result<Self> {
        let token = if at.ip().is_loopback() { None } else { Some(token()?) };
        let cookie = format!("lockon-{}", at.port());
        Ok(Self { token, name: asked.host().to_ascii_lowercase(), cookie })
    }

    pub(super) fn token(&self) -> Option<&str> {
        self.token.as_deref()
    }

    /// The cookie that a newcomer gets.
    pub(super) fn cookie(&self) -> Option<String> {
        let token = self.token.as_deref()?;
        Some(format!("{}={token}; HttpOnly; SameSite=Strict; Path=/", self.cookie))
    }

    pub(super) fn judge(&self, method: &Method, uri: &Uri, headers: &HeaderMap) -> Verdict {
        let refused = Verdict::Refused;
        let text = |name: &HeaderName| headers.get(name).and_then(|value| value.to_str().ok());
        // No page can have this header sent, unless it knows the token.
        let is_program = text(&AUTHORIZATION)
            .and_then(|value| value.strip_prefix("Bearer "))
            .is_some_and(|given| self.is_token(given));
        let host = text(&HOST).and_then(|host| host.parse::<Authority>().ok());
        let Some(host) = host.filter(|_| headers.get_all(HOST).iter().count() == 1) else {
            return refused(StatusCode::BAD_REQUEST, "a request has one Host");
        };
        if !is_program && !self.is_own_name(host.host()) {
            return refused(
                StatusCode::MISDIRECTED_REQUEST,
                "this name is not known to be this machine's: open the page by its IP address, or start it with \
                 NAME:PORT as its address",
            );
        }
        let origin = headers.get(ORIGIN).map(|value| value.to_str().unwrap_or("null"));
        if origin.is_some_and(|origin| !is_same(origin, &host)) {
            return refused(StatusCode::FORBIDDEN, "a page of another site may not ask");
        }
        // A link on another page may lead here, but a picture, a script or a form there may not.
        let site = text(&FETCH_SITE).unwrap_or("none");
        let is_visit = method == Method::GET && uri.path() == "/" && text(&FETCH_MODE) == Some("navigate");
        if !matches!(site, "none" | "same-origin") && !is_visit {
            return refused(StatusCode::FORBIDDEN, "a page of another site may not ask");
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
            refused(StatusCode::UNAUTHORIZED, "open the address that lockon printed, with its token")
        }
    }

    /// Takes as long for every text of that length.
    fn is_token(&self, given: &str) -> bool {
        self.token.as_ref().is_some_and(|token| token.as_bytes().ct_eq(given.as_bytes()).into())
    }

    /// True for what no foreign DNS can have pointed here: an address, this machine's own name for itself,
    /// and the name that the user gave.
    fn is_own_name(&self, host: &str) -> bool {
        let bare = host.trim_start_matches('[').trim_end_matches(']');
        let host = host.to_ascii_lowercase();
        bare.parse::<IpAddr>().is_ok() || host == "localhost" || host == self.name
    }
}

/// True if an origin is the one of this host itself.
fn is_same(origin: &str, host: &Authority) -> bool {
    let origin = origin.strip_prefix("http://").or_else(|| origin.strip_prefix("https://"));
    origin.is_some_and(|origin| origin.eq_ignore_ascii_case(host.as_str()))
}

/// 128 bits that nobody can guess, in hexadecimal.
fn token() -> std::io::Result<String> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes)?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
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
        // Another port's cookie is another's.
        assert_eq!(status(&ask("/", ("cookie", &format!("lockon-81={token}")))), 401);
        // A program that knows the token may call this machine what it likes.
        let named = [("host", "camera.example"), ("authorization", &format!("Bearer {token}"))];
        assert_eq!(judge(&guard, &Method::GET, "/metrics", &named), Verdict::Welcome);
        let cookie = [("host", "camera.example"), ("cookie", &format!("lockon-80={token}"))];
        assert_eq!(status(&judge(&guard, &Method::GET, "/", &cookie)), 421);
    }

    #[test]
    fn no_two_pages_have_the_same_token() {
        let guards = [(); 2].map(|()| guard("0.0.0.0:80", "0.0.0.0:80"));
        assert_ne!(guards[0].token(), guards[1].token());
        assert_eq!(guard("80", "127.0.0.1:80").token(), None);
    }
}
