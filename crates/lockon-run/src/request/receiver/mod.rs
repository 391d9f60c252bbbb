//! The typed address of a receiver of events, and the part of it that may be shown.

mod address;

use std::convert::Infallible;
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::path::Path;
use std::str::FromStr;
use std::sync::{Arc, OnceLock};

use super::Text;
use lockon_core::error::{Error, Result};
use lockon_core::files;
use lockon_core::text::{self, HIDDEN};

pub use address::{Broker, Login, ReceiverAddress, Webhook, decoded};

/// A typed receiver of events: `-`, an address, or `@FILE` with an address in it.
#[derive(Clone)]
pub struct ReceiverText {
    typed: String,
    /// The content of the file, after it was read. Copies share it.
    line: Arc<OnceLock<String>>,
}

impl ReceiverText {
    /// Returns the typed text.
    pub fn as_str(&self) -> &str {
        &self.typed
    }

    /// The file with the address, if one was named.
    pub fn file(&self) -> Option<&str> {
        self.typed.strip_prefix('@')
    }

    /// The address. A file with it is read once for all copies.
    ///
    /// # Errors
    /// `File` if the file cannot be read, `Value` if it has not exactly one line.
    pub fn address(&self) -> Result<&str> {
        let Some(file) = self.file() else { return Ok(&self.typed) };
        if let Some(line) = self.line.get() {
            return Ok(line);
        }
        let said = files::secret(Path::new(file))?;
        let lines = said.lines().filter(|line| !line.trim().is_empty()).count();
        if lines != 1 {
            let what = format!("expected one line with an address in that file, and it has {lines}");
            return Err(Error::value("events", &self.typed, what));
        }
        Ok(self.line.get_or_init(|| said.trim().to_owned()))
    }

    /// This receiver, with its file open under another name: reads the address there, now.
    ///
    /// # Errors
    /// As [`Self::address`].
    pub fn read_from(&self, opened: &Path) -> Result<Self> {
        let line = Self::from(format!("@{}", opened.display()));
        line.address()?;
        Ok(Self { typed: self.typed.clone(), line: line.line })
    }

    /// Returns the part that may be shown: the file's name, or the address without its login. Paths and
    /// queries can be secrets: only topics of MQTT are shown.
    pub fn shown(&self) -> String {
        shown(&self.typed)
    }
}

/// As [`ReceiverText::shown`], for any typed text of a receiver.
pub(crate) fn shown(typed: &str) -> String {
    let open = text::address_without_secrets(typed).into_owned();
    if typed.starts_with('@') {
        return open;
    }
    let Some((scheme, rest)) = open.split_once("://") else { return without_path(&open) };
    // A mistyped scheme may stand for that of a web address.
    let is_web = !is_one_of(scheme, BROKERS);
    let ends_host: &[char] = if is_web { &['/', '?', '#', '\\'] } else { &['?', '#'] };
    match rest.find(ends_host) {
        Some(end) if &rest[end..] != "/" => {
            let slash = if is_web { "/" } else { "?" };
            format!("{scheme}://{}{slash}{HIDDEN}", &rest[..end])
        }
        _ => open,
    }
}

/// The schemes of MQTT.
const BROKERS: [&str; 2] = ["mqtt", "mqtts"];

fn is_one_of(scheme: &str, names: [&str; 2]) -> bool {
    names.iter().any(|name| scheme.eq_ignore_ascii_case(name))
}

/// Removes the path of an address without `://` that may be a web address. Names of files and topics of MQTT
/// stay.
fn without_path(open: &str) -> String {
    if Path::new(open).exists() {
        return open.to_owned();
    }
    let is_scheme = |c: char| c.is_ascii_alphanumeric();
    let behind = open.trim_start_matches(is_scheme);
    let scheme = &open[..open.len() - behind.len()];
    let rest = behind.trim_start_matches([':', '/']);
    let is_address =
        is_one_of(scheme, ["http", "https"]) || behind.starts_with(':') || behind.starts_with("//");
    let is_web = is_address && !is_one_of(scheme, BROKERS);
    let host = if is_web { rest } else { open };
    let length = host.find(['/', '?', '#']).unwrap_or(host.len());
    let is_host = !open.starts_with(['/', '.']) && host[..length].contains('.');
    if length + 1 < host.len() && (is_web || is_host) {
        return format!("{}/{HIDDEN}", &open[..open.len() - host.len() + length]);
    }
    open.to_owned()
}

impl From<&str> for ReceiverText {
    fn from(typed: &str) -> Self {
        Self { typed: typed.to_owned(), line: Arc::default() }
    }
}

impl From<String> for ReceiverText {
    fn from(typed: String) -> Self {
        Self { typed, line: Arc::default() }
    }
}

impl FromStr for ReceiverText {
    type Err = Infallible;

    fn from_str(typed: &str) -> Result<Self, Infallible> {
        Ok(typed.into())
    }
}

impl PartialEq for ReceiverText {
    fn eq(&self, other: &Self) -> bool {
        self.typed == other.typed
    }
}

impl Eq for ReceiverText {}

impl fmt::Debug for ReceiverText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.shown().fmt(f)
    }
}

impl Text for ReceiverText {
    fn read(text: &OsStr) -> Result<Self, String> {
        String::read(text).map(Self::from)
    }

    fn text(&self) -> OsString {
        self.typed.clone().into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_shown_without_what_can_be_secret_in_it() {
        for (typed, expected) in [
            ("-", "-"),
            ("@/etc/hook", "@/etc/hook"),
            ("https://hooks.example:8443/T0/s3cret?a=b#c", "https://hooks.example:8443/***"),
            ("HTTPS://me:p@hooks.example/{stem}/s3cret", "HTTPS://***@hooks.example/***"),
            ("http://hooks.example?s3cret", "http://hooks.example/***"),
            ("http://hooks.example/", "http://hooks.example/"),
            ("http://me:p/a@host/s3cret", "http://***@host/***"),
            ("mqtt://cam:p@s3cret:w#r/d%1?x@127.0.0.1/yard", "mqtt://***@127.0.0.1/yard"),
            ("mqtts://me:p@broker/home/{stem}", "mqtts://***@broker/home/{stem}"),
            ("mqtt://broker/home?auth=s3cret", "mqtt://broker/home?***"),
            ("https://host:x/s3cret", "https://host:x/***"),
            ("https:/me:s3cret@host/s3cret", "https:/***@host/***"),
            ("https//hooks.example/T0/s3cret", "https//hooks.example/***"),
            ("hooks.example/T0/s3cret", "hooks.example/***"),
            ("me:s3cret@host/yard", "***@host/yard"),
            ("mqtt:/me:s3cret@host/yard", "mqtt:/***@host/yard"),
            ("htps://hooks.example/services/T0/s3cret", "htps://hooks.example/***"),
            ("wss://me:s3cret@hooks.example/s3cret", "wss://***@hooks.example/***"),
            ("htps:/hooks.example/s3cret", "htps:/hooks.example/***"),
            ("htps:hooks.example/s3cret", "htps:hooks.example/***"),
            ("htps//hooks.example/s3cret", "htps//hooks.example/***"),
            ("mqtt:/broker/yard", "mqtt:/broker/yard"),
            ("events.jsonl", "events.jsonl"),
            ("/tmp/a.b/events.jsonl", "/tmp/a.b/events.jsonl"),
        ] {
            assert_eq!(shown(typed), expected);
            assert_eq!(shown(expected), expected, "what is hidden stays so");
            assert!(!format!("{:?}", ReceiverText::from(typed)).contains("s3cret"));
        }
    }

    #[test]
    fn a_file_is_read_once_and_has_one_line() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("hook");
        let typed = format!("@{}", path.display());
        for (text, lines) in [("", "it has 0"), ("http://a/s3cret\nhttp://b/\n", "it has 2")] {
            std::fs::write(&path, text).unwrap();
            let error = ReceiverText::from(&*typed).address().unwrap_err();
            let words = error.to_string();
            assert!(error.is_usage() && words.contains(lines) && !words.contains("s3cret"), "{words}");
        }
        std::fs::write(&path, "http://a/s3cret\r\n").unwrap();
        let (one, other) = (ReceiverText::from(&*typed), ReceiverText::from(&*typed));
        let copy = one.clone();
        assert_eq!(one.address().unwrap(), "http://a/s3cret");
        std::fs::write(&path, "http://b/").unwrap();
        assert_eq!((copy.address().unwrap(), other.address().unwrap()), ("http://a/s3cret", "http://b/"));
        assert_eq!(one, other);
    }
}
