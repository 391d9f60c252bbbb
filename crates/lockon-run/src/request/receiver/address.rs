//! Addresses of receivers of events: parsed, with their parts that may be shown.

use percent_encoding::percent_decode_str;
use sha2::{Digest, Sha256};
use url::Url;

use super::ReceiverText;
use lockon_core::error::{Error, Result};
use lockon_core::text;

/// Maximum length of the topic that all topics of a run begin with, in bytes. MQTT allows 65535, many brokers
/// fewer.
const MAX_TOPIC: usize = 512;

/// Maximum number of levels of that topic. Mosquitto allows 200.
const MAX_LEVELS: usize = 100;

/// The address of a receiver of events.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ReceiverAddress {
    /// Lines on standard output.
    Stdout,
    /// A web server that events are posted to.
    Webhook(Webhook),
    /// An MQTT broker that events are published to.
    Mqtt(Broker),
}

/// A web server to which events are posted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Webhook {
    /// The whole address, without the login.
    pub url: String,
    /// The login that was typed in the address.
    pub login: Option<Login>,
    /// The address in messages, without the path: that can be a secret.
    pub name: String,
}

/// An MQTT broker, and the topic there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Broker {
    /// The host's name or address; IPv6 without brackets.
    pub host: String,
    /// The port: 1883, or 8883 for mqtts, unless another was typed.
    pub port: u16,
    /// True for mqtts.
    pub is_secure: bool,
    /// The login that was typed in the address.
    pub login: Option<Login>,
    /// The beginning of all topics.
    pub topic: String,
    /// True if it differs from the typed topic, because MQTT does not allow that one.
    pub is_replaced: bool,
    /// The address in messages.
    pub name: String,
}

impl Broker {
    /// A topic below that of the broker.
    pub fn below(&self, name: &str) -> String {
        format!("{}/{name}", self.topic)
    }
}

/// User and password of a receiver. `Debug` shows neither.
#[derive(Clone, PartialEq, Eq)]
pub struct Login {
    /// The user, without escapes.
    pub user: String,
    /// The password, without escapes.
    pub password: String,
}

impl std::fmt::Debug for Login {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(text::HIDDEN)
    }
}

impl ReceiverAddress {
    /// Parses `-`, `http[s]://[USER:PASSWORD@]HOST[:PORT][/PATH]`,
    /// `mqtt[s]://[USER:PASSWORD@]HOST[:PORT]/TOPIC`, or `@FILE` with one of the latter in its one line.
    ///
    /// # Errors
    /// `Value` if it is none of these, without its secrets; `File` if a file cannot be read.
    pub fn of(typed: &ReceiverText) -> Result<Self> {
        let address = typed.address()?;
        let parsed = match (typed.file(), address) {
            (None, "-") => Ok(Self::Stdout),
            _ => Self::parse(address),
        };
        parsed.map_err(|what| Error::value("events", &typed.shown(), what))
    }

    fn parse(address: &str) -> Result<Self, &'static str> {
        const EXPECTED: &str =
            "expected -, http[s]://..., mqtt[s]://HOST/TOPIC, or @FILE with such an address in it";
        if address.contains(text::HIDDEN) {
            return Err("its secret part was replaced by *** when it was printed: give the whole address");
        }
        if text::has_raw_login(address) {
            return Err(text::ESCAPES);
        }
        // `http:/host` would be read as `http://host`, and `me:word@host` as one with the scheme `me`.
        if !address.contains("://") {
            return Err(EXPECTED);
        }
        let mut url = Url::parse(address).map_err(|_| EXPECTED)?;
        let is_secure = matches!(url.scheme(), "https" | "mqtts");
        let login = login(&url)?;
        let host = url.host_str().filter(|host| !host.is_empty()).ok_or("the host is missing")?.to_owned();
        let port = url.port().map_or_else(String::new, |port| format!(":{port}"));
        match url.scheme() {
            "http" | "https" => {
                let name = format!("{}://{host}{port}", url.scheme());
                // Fails only if there is no host.
                let _ = url.set_username("").and_then(|()| url.set_password(None));
                url.set_fragment(None);
                Ok(Self::Webhook(Webhook { url: url.into(), login, name }))
            }
            "mqtt" | "mqtts" => {
                if url.query().is_some() {
                    return Err("a topic has no ? in an address: write %3F");
                }
                let fragment = url.fragment().map_or_else(String::new, |rest| format!("#{rest}"));
                let typed = decoded(&(url.path().to_owned() + &fragment))?;
                let typed = typed.trim_matches('/');
                if typed.is_empty() {
                    return Err("expected a topic behind the host: mqtt://HOST/lockon/yard");
                }
                let topic = allowed(typed);
                let is_replaced = topic != typed;
                let name = format!("{}://{host}{port}/{topic}", url.scheme());
                let port = url.port().unwrap_or(if is_secure { 8883 } else { 1883 });
                let host = host.trim_matches(['[', ']']).to_owned();
                Ok(Self::Mqtt(Broker { host, port, is_secure, login, topic, is_replaced, name }))
            }
            _ => Err(EXPECTED),
        }
    }

    /// The address in messages, without secrets.
    pub fn name(&self) -> &str {
        match self {
            Self::Stdout => "stdout",
            Self::Webhook(webhook) => &webhook.name,
            Self::Mqtt(broker) => &broker.name,
        }
    }
}

/// Returns the topic with `_` in the place of each character that a topic may not have: wildcards, control
/// characters, `$` at its beginning, and `/` after [`MAX_LEVELS`]. A topic that is too long ends with eight
/// digits of a hash.
fn allowed(typed: &str) -> String {
    let is_noncharacter = |c: char| (0xfdd0..=0xfdef).contains(&(c as u32)) || c as u32 & 0xfffe == 0xfffe;
    let mut levels = 1;
    let allow = |(at, c): (usize, char)| {
        levels += usize::from(c == '/');
        let is_refused = c.is_control()
            || is_noncharacter(c)
            || matches!(c, '+' | '#')
            || (c == '$' && at == 0)
            || (c == '/' && levels > MAX_LEVELS);
        if is_refused { '_' } else { c }
    };
    let mut topic: String = typed.char_indices().map(allow).collect();
    if topic.len() > MAX_TOPIC {
        let end = format!("_{}", text::hexadecimal(&Sha256::digest(typed)[..4]));
        topic.truncate(topic.floor_char_boundary(MAX_TOPIC - end.len()));
        topic += &end;
    }
    topic
}

fn login(url: &Url) -> Result<Option<Login>, &'static str> {
    if url.username().is_empty() && url.password().is_none() {
        return Ok(None);
    }
    let (user, password) = (decoded(url.username())?, decoded(url.password().unwrap_or_default())?);
    Ok(Some(Login { user, password }))
}

/// A part of an address without its escapes: `@`, `:`, `/` and others can stand there only so.
///
/// # Errors
/// The reason, if an escape is not UTF-8.
pub fn decoded(part: &str) -> Result<String, &'static str> {
    let decoded = percent_decode_str(part).decode_utf8().map_err(|_| "an escape in it is not UTF-8")?;
    Ok(decoded.into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn someone(user: &str, password: &str) -> Login {
        Login { user: user.into(), password: password.into() }
    }

    fn of(typed: &str) -> Result<ReceiverAddress> {
        ReceiverAddress::of(&typed.into())
    }

    #[test]
    fn addresses_are_taken_apart_and_their_names_have_no_secret() {
        assert_eq!(of("-").unwrap(), ReceiverAddress::Stdout);
        let ReceiverAddress::Webhook(hook) =
            of("https://me:p%40ss@hooks.example:8443/T0/s3cret?a=b#c").unwrap()
        else {
            panic!("a webhook")
        };
        assert_eq!(hook.url, "https://hooks.example:8443/T0/s3cret?a=b");
        assert_eq!((hook.login, &*hook.name), (Some(someone("me", "p@ss")), "https://hooks.example:8443"));
        let ReceiverAddress::Mqtt(broker) = of("mqtt://me:s3cret@broker/home/front%20door/").unwrap() else {
            panic!("a broker")
        };
        let expected = Broker {
            host: "broker".into(),
            port: 1883,
            is_secure: false,
            login: Some(someone("me", "s3cret")),
            topic: "home/front door".into(),
            is_replaced: false,
            name: "mqtt://broker/home/front door".into(),
        };
        assert_eq!(broker, expected);
        assert!(!format!("{broker:?}").contains("s3cret"));
        let ReceiverAddress::Mqtt(broker) = of("mqtts://[::1]/a").unwrap() else { panic!("a broker") };
        assert_eq!((&*broker.host, broker.port, broker.login), ("::1", 8883, None));
    }

    #[test]
    fn what_a_topic_may_not_have_is_replaced_and_not_refused() {
        for (typed, expected) in [
            ("mqtt://b/a/+/b/", "a/_/b"),
            ("mqtt://b/a/#", "a/_"),
            ("mqtt://b/front%23door%3f", "front_door?"),
            ("mqtt://b/%24SYS/$x", "_SYS/$x"),
            ("mqtt://b/a%00b%1Fc%C2%9Fd%EF%BF%BFe", "a_b_c_d_e"),
            ("mqtt://b/%C3%BC", "\u{fc}"),
        ] {
            let ReceiverAddress::Mqtt(broker) = of(typed).unwrap() else { panic!("a broker") };
            let is_replaced = expected.contains('_');
            assert_eq!((&*broker.topic, broker.is_replaced), (expected, is_replaced), "{typed}");
        }
        let long = |end: &str| {
            let ReceiverAddress::Mqtt(broker) =
                of(&format!("mqtt://b/{}{end}", "%C3%BC".repeat(300))).unwrap()
            else {
                panic!("a broker")
            };
            broker.topic
        };
        assert!(long("a").len() <= MAX_TOPIC && long("a") != long("b"), "{}", long("a"));
        let ReceiverAddress::Mqtt(broker) = of(&format!("mqtt://b/{}a", "a/".repeat(150))).unwrap() else {
            panic!("a broker")
        };
        assert_eq!(broker.topic.split('/').count(), MAX_LEVELS);
    }

    #[test]
    fn what_is_no_address_is_refused_without_its_secrets() {
        for (typed, said) in [
            ("ftp://me:s3cret@host/a", "expected -"),
            ("events.jsonl", "expected -"),
            ("mqtt://me:s3cret@host", "expected a topic"),
            ("mqtt://me:s3cret@host/a?b", "no ?"),
            ("mqtt:///topic", "host is missing"),
            ("http://", "expected -"),
            ("mqtt://me:s3cret@host:x/a", "expected -"),
            ("https://host:x/s3cret", "expected -"),
            ("mqtt://me:p@s3cret#w@host/a", "%40"),
            ("https://me:s3cret/w@host/a", "%40"),
            ("mqtt:/me:s3cret@host/a", "expected -"),
            ("me:s3cret@host/a", "expected -"),
            ("http:/me:s3cret@host/s3cret", "expected -"),
            ("mqtt:///me:s3cret@host/a", "host is missing"),
            ("http://host/***", "was replaced by"),
            ("mqtt://***@host/a", "was replaced by"),
        ] {
            let error = of(typed).unwrap_err();
            let words = error.to_string();
            assert!(error.is_usage() && words.contains(said) && !words.contains("s3cret"), "{words}");
        }
    }

    #[test]
    fn a_file_has_the_address_where_others_must_not_see_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("broker");
        std::fs::write(&path, "mqtt://me:s3cret@host/a\n").unwrap();
        let typed = format!("@{}", path.display());
        assert_eq!(of(&typed).unwrap().name(), "mqtt://host/a");
        std::fs::write(&path, "mqtt://me:s3cret@host\n").unwrap();
        assert!(!of(&typed).unwrap_err().to_string().contains("s3cret"));
        // A file must not choose standard output as the receiver.
        std::fs::write(&path, "-\n").unwrap();
        assert!(of(&typed).is_err());
        assert!(of("@/no/such/file").is_err());
    }
}
