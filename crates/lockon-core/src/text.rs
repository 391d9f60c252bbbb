//! Text from outside: what of it must be told to nobody, and what of it must not reach a terminal.
//!
//! Addresses carry passwords, and file names and servers carry whatever somebody put there. Both end in
//! messages, logs and results, by many ways, GStreamer's own log among them. So nobody has to remember which
//! text is harmless: [`without_secrets`] takes passwords out of any text, and [`without_controls`] what a
//! terminal would obey.

use std::borrow::Cow;

/// Stands where a secret stood.
pub const HIDDEN: &str = "***";

/// Names whose values are secrets, wherever they stand: properties of GStreamer's elements, parts of an
/// address.
const SECRET_NAMES: [&str; 12] = [
    "user-pw",
    "user-id",
    "proxy-pw",
    "proxy-id",
    "passphrase",
    "password",
    "passwd",
    "pwd",
    "token",
    "secret",
    "api_key",
    "apikey",
];

/// The text with [`HIDDEN`] in the place of what is secret in it: `user:password` of an address, values of
/// names that stand for secrets (`passphrase=`, `user-pw=`, `access_token=`), and what a header says that
/// authorises.
pub fn without_secrets(text: &str) -> Cow<'_, str> {
    let may_have = text.contains("://") || text.contains('=') || text.contains("uthorization");
    if !may_have {
        return text.into();
    }
    let mut spans = logins(text);
    spans.extend(values(text));
    spans.extend(headers(text));
    if spans.is_empty() {
        return text.into();
    }
    spans.sort_unstable();
    let (mut clean, mut end) = (String::with_capacity(text.len()), 0);
    for (from, to) in spans {
        if from >= end {
            clean.push_str(&text[end..from]);
            clean.push_str(HIDDEN);
        }
        end = end.max(to);
    }
    clean.push_str(&text[end..]);
    clean.into()
}

/// Where `user:password` stands between `://` and the last `@` before the path.
fn logins(text: &str) -> Vec<(usize, usize)> {
    let starts = text.match_indices("://").map(|(at, mark)| at + mark.len());
    let login = |start: usize| {
        let rest = &text[start..];
        let until = |is_end: &dyn Fn(char) -> bool| rest.find(is_end).unwrap_or(rest.len());
        let host = &rest[..until(&|c| c.is_whitespace() || c.is_control() || "/?#'\"<>`".contains(c))];
        let at = host.rfind('@').or_else(|| {
            // A password that was not escaped ends the host too early: what follows its colon is no port
            // then.
            let port = host.rsplit_once(':')?.1;
            let is_port = port.chars().all(|c| c.is_ascii_digit()) || host.starts_with('[');
            if is_port { None } else { rest[..until(&char::is_whitespace)].rfind('@') }
        })?;
        (at > 0).then_some((start, start + at))
    };
    starts.filter_map(login).collect()
}

/// Where the values of secret names stand.
fn values(text: &str) -> Vec<(usize, usize)> {
    let mut found = Vec::new();
    for (equals, _) in text.match_indices('=') {
        let name = |c: char| c.is_ascii_alphanumeric() || "-_".contains(c);
        let before = &text[..equals];
        let start = before
            .rfind(|c| !name(c))
            .map_or(0, |at| at + before[at..].chars().next().map_or(1, char::len_utf8));
        let called = before[start..].to_ascii_lowercase();
        let is_secret = SECRET_NAMES.iter().any(|secret| {
            called.strip_suffix(secret).is_some_and(|rest| rest.is_empty() || rest.ends_with(['-', '_']))
        });
        let value = equals + 1;
        // gst-launch and the log of its values: `user-pw="a b"`, `user-pw=(string)x`.
        let typed = text[value..].strip_prefix("(string)").map_or(value, |rest| text.len() - rest.len());
        let rest = &text[typed..];
        let length = match rest.chars().next().filter(|quote| "\"'".contains(*quote)) {
            Some(quote) => rest[1..].find(quote).map_or(rest.len(), |end| end + 2),
            None => rest.find(|c: char| c.is_whitespace() || "&;,'\"<>#)".contains(c)).unwrap_or(rest.len()),
        };
        if is_secret && length > 0 {
            found.push((typed, typed + length));
        }
    }
    found
}

/// Where what authorises stands: all that follows `Authorization:` in its line.
fn headers(text: &str) -> Vec<(usize, usize)> {
    let of_name = |(at, name): (usize, &str)| {
        let rest = &text[at + name.len()..];
        let value = at + name.len() + rest.find(|c: char| !matches!(c, ':' | ' ' | '=' | '\''))?;
        let end = text[value..].find(['\r', '\n', '"', '\\']).map_or(text.len(), |end| value + end);
        (value > at + name.len() && value < end).then_some((value, end))
    };
    let names = text.match_indices("uthorization");
    names.filter_map(of_name).collect()
}

/// The text with what a terminal would obey written out, as `\u{1b}`: control characters but for the line
/// feed and the tab, and marks that turn the direction of writing.
pub fn without_controls(text: &str) -> Cow<'_, str> {
    if !text.contains(is_obeyed) {
        return text.into();
    }
    let mut clean = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        if is_obeyed(c) {
            clean.extend(c.escape_unicode());
        } else {
            clean.push(c);
        }
    }
    clean.into()
}

/// As [`without_controls`], but what sets colours is left, as our own messages have them.
pub fn without_controls_but_colours(text: &str) -> Cow<'_, str> {
    if !text.contains(is_obeyed) {
        return text.into();
    }
    let mut clean = String::with_capacity(text.len() + 16);
    let mut rest = text;
    while let Some(at) = rest.find(is_obeyed) {
        clean.push_str(&rest[..at]);
        rest = &rest[at..];
        let colour = rest.strip_prefix("\x1b[").and_then(|codes| {
            let length = codes.find(|c: char| !(c.is_ascii_digit() || c == ';'))?;
            codes[length..].starts_with('m').then_some(2 + length + 1)
        });
        let first = rest.chars().next().expect("something was found here");
        let length = colour.unwrap_or(first.len_utf8());
        match colour {
            Some(length) => clean.push_str(&rest[..length]),
            None => clean.extend(first.escape_unicode()),
        }
        rest = &rest[length..];
    }
    clean.push_str(rest);
    clean.into()
}

fn is_obeyed(c: char) -> bool {
    let turns =
        matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    (c.is_control() && !matches!(c, '\n' | '\t')) || matches!(c, '\u{2028}' | '\u{2029}') || turns
}

/// What may be shown to people: neither secrets nor what a terminal would obey.
pub fn for_people(text: &str) -> String {
    without_controls(&without_secrets(text)).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn logins_of_addresses_are_hidden_wherever_they_stand() {
        for (text, expected) in [
            ("rtsp://admin:s3cret@10.0.0.7:554/x", "rtsp://***@10.0.0.7:554/x"),
            ("rtsp://admin:s3c@ret@host", "rtsp://***@host"),
            (
                "cannot open \"http://u:p@h/a@b\" and srt://q:r@z",
                "cannot open \"http://***@h/a@b\" and srt://***@z",
            ),
            ("location=rtsp://ü:ö@host ! x", "location=rtsp://***@host ! x"),
            ("rtsp://host/path@2", "rtsp://host/path@2"),
            ("rtsp://u:pa/ss'wo@rd@host/x", "rtsp://***@host/x"),
            ("rtsp://host:554/path@2 http://[::1]:80/@", "rtsp://host:554/path@2 http://[::1]:80/@"),
            ("a@b.c and ://", "a@b.c and ://"),
        ] {
            assert_eq!(without_secrets(text), expected);
        }
    }

    #[test]
    fn values_of_secret_names_are_hidden_and_others_are_left() {
        for (text, expected) in [
            ("rtspsrc user-id=admin user-pw=\"a b\" latency=5", "rtspsrc user-id=*** user-pw=*** latency=5"),
            ("srt://h:1?passphrase=0123456789&mode=caller", "srt://h:1?passphrase=***&mode=caller"),
            ("rtsp://h/user=a&password=b&channel=1", "rtsp://h/user=a&password=***&channel=1"),
            ("http://h/x?access_token=abc#f", "http://h/x?access_token=***#f"),
            ("user-pw=(string)s3cret, x=1", "user-pw=(string)***, x=1"),
            ("x264enc pass=qual tokens=5 ü=4", "x264enc pass=qual tokens=5 ü=4"),
            ("Authorization: Basic YTpi\r\nnext", "Authorization: ***\r\nnext"),
        ] {
            assert_eq!(without_secrets(text), expected);
        }
    }

    #[test]
    fn what_a_terminal_would_obey_is_written_out() {
        assert_eq!(
            without_controls("a\x1b[31mb\r\u{9b}2J\x07\u{202e}c\n\td"),
            "a\\u{1b}[31mb\\u{d}\\u{9b}2J\\u{7}\\u{202e}c\n\td"
        );
        assert_eq!(without_controls("plain ü"), "plain ü");
        let kept = "\x1b[1;31merror:\x1b[0m";
        assert_eq!(
            without_controls_but_colours(&format!("{kept} a\x1b[2Jb\x1b]0;title\x07")),
            format!("{kept} a\\u{{1b}}[2Jb\\u{{1b}}]0;title\\u{{7}}")
        );
    }
}
