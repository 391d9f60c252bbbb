//! Text from outside: secrets that must not be shown, and controls that must not reach a terminal.
//!
//! Addresses carry passwords, and file names and servers carry arbitrary text. Both end in messages, logs and
//! results, by many ways, GStreamer's own log among them. To be safe without knowing which text is harmless,
//! [`without_secrets`] takes passwords out of any text, and [`without_controls`] the sequences that a
//! terminal would obey.

mod mistyped;

use std::borrow::Cow;
use std::path::Path;

/// Stands where a secret stood.
pub const HIDDEN: &str = "***";

/// The remedy if user or password of an address have characters that end them there.
pub const ESCAPES: &str = "write @ / ? # : % in user and password as %40 %2F %3F %23 %3A %25";

/// Names whose values are secrets, wherever they stand: properties of GStreamer's elements, parts of an
/// address.
const SECRET_NAMES: [&str; 13] = [
    "user-pw",
    "user-id",
    "proxy-pw",
    "proxy-id",
    "passphrase",
    "password",
    "passwd",
    "pwd",
    "psk",
    "token",
    "secret",
    "api_key",
    "apikey",
];

/// As [`SECRET_NAMES`], but only in addresses: cameras and servers have them there. Elements have properties
/// of these names, as x264enc has `pass`, that are no secrets.
const SECRET_IN_ADDRESS: [&str; 16] = [
    "pw",
    "pass",
    "passw",
    "passcode",
    "psw",
    "pswd",
    "pin",
    "loginpas",
    "userpwd",
    "key",
    "authkey",
    "auth",
    "accesstoken",
    "sig",
    "signature",
    "jwt",
];

/// Returns bytes as hexadecimal digits.
pub fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Returns the text with [`HIDDEN`] in the place of secrets: `user:password` of an address, values of names
/// of secrets (`passphrase=`, `user-pw=`, `access_token=`), and the credentials in an authorization header.
pub fn without_secrets(text: &str) -> Cow<'_, str> {
    let may_have = text.contains("://") || text.contains(['=', '@']) || text.contains("uthorization");
    if !may_have {
        return text.into();
    }
    let mut spans = logins(text);
    spans.extend(mistyped::logins(text));
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

/// True for the scheme of an address, such as `rtsp` (RFC 3986, section 3.1).
pub fn is_scheme(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_alphabetic()) && text.chars().all(is_of_scheme)
}

/// True for a character that schemes of addresses have.
fn is_of_scheme(c: char) -> bool {
    c.is_ascii_alphanumeric() || "+-.".contains(c)
}

/// As [`without_secrets`], for a text that is one address, white space and quotes included.
pub fn address_without_secrets(address: &str) -> Cow<'_, str> {
    let parts = address.split_once("://").filter(|(scheme, _)| scheme.chars().all(is_of_scheme));
    let login = parts.and_then(|(scheme, rest)| login(scheme, rest));
    let start = |(scheme, rest): (&str, &str)| scheme.len() + "://".len() + slashes(scheme, rest);
    let open = match (parts, login) {
        (Some((scheme, rest)), Some(at)) => {
            format!("{}{HIDDEN}{}", &address[..start((scheme, rest))], &rest[at..])
        }
        _ => match mistyped::login_of_address(address) {
            Some((from, at)) => format!("{}{HIDDEN}{}", &address[..from], &address[at..]),
            None => return without_secrets(address),
        },
    };
    without_secrets(&open).into_owned().into()
}

/// True if user or password of an address have characters that end them there: the address would be read as
/// another one. The remedy is [`ESCAPES`].
pub fn has_raw_login(address: &str) -> bool {
    let Some((scheme, rest)) = address.split_once("://") else { return false };
    let slashes = slashes(scheme, rest);
    login(scheme, rest).is_some_and(|at| at > slashes + authority(&rest[slashes..]).len())
}

/// Finds the logins of addresses.
fn logins(text: &str) -> Vec<(usize, usize)> {
    let starts = text.match_indices("://").map(|(at, mark)| (at, at + mark.len()));
    let login = |(scheme_end, start): (usize, usize)| {
        let scheme = text[..scheme_end].trim_end_matches(is_of_scheme).len();
        let (name, rest) = (&text[scheme..scheme_end], &text[start..]);
        let word = &rest[..address_length(text, scheme, start)];
        let at = self::login(name, word).or_else(|| {
            // White space or a quote in a password ended the word too early: no port follows its colon then.
            let place = authority(word).trim_end_matches([':', '.', ',', ';', ')']);
            if word.contains('@') || is_place(place) {
                return None;
            }
            let line = &rest[..rest.find('\n').unwrap_or(rest.len())];
            let at = line.find('@')?;
            let end = line[at..].find(char::is_whitespace).map_or(line.len(), |length| at + length);
            line[..end].rfind('@')
        })?;
        let slashes = slashes(name, rest);
        (at > slashes).then_some((start + slashes, start + at))
    };
    starts.filter_map(login).collect()
}

/// The length of an address from `start` on, behind its `://`; its scheme begins at `scheme`. In quotes it
/// ends with them, else at white space, at a closing quote, or in front of the next address of a list.
fn address_length(text: &str, scheme: usize, start: usize) -> usize {
    let rest = &text[start..];
    let before = &text[..scheme];
    let quote = ["\\\"", "\\'", "\"", "'"].into_iter().find(|quote| before.ends_with(quote));
    if let Some(quote) = quote {
        let from = scheme - quote.len();
        if let Some(length) = of_quotes(&text[from..]).filter(|length| from + length >= start + quote.len()) {
            return from + length - quote.len() - start;
        }
    }
    let closing = [('<', '>'), ('`', '`')].into_iter().find(|(open, _)| before.ends_with(*open));
    if let Some(length) = closing.and_then(|(_, close)| rest.find(close)) {
        return length;
    }
    let mut chars = rest.char_indices().peekable();
    while let Some((at, c)) = chars.next() {
        let next = chars.peek().map(|(_, c)| *c);
        let is_end = match c {
            '"' | '\'' => next.is_none_or(|c| c.is_whitespace() || ",}]):;".contains(c)),
            ',' | ';' => begins_with_scheme(&rest[at + 1..]),
            c => c.is_whitespace() || c.is_control(),
        };
        if is_end {
            return at;
        }
    }
    rest.len()
}

fn begins_with_scheme(text: &str) -> bool {
    let scheme = text.trim_start_matches(is_of_scheme);
    scheme.len() < text.len() && scheme.starts_with("://")
}

/// An address's user, password, host and port, as far as they are escaped: up to the path.
fn authority(rest: &str) -> &str {
    &rest[..rest.find(['/', '?', '#']).unwrap_or(rest.len())]
}

/// Slashes too many behind the `://` of an address that is no file's.
fn slashes(scheme: &str, rest: &str) -> usize {
    if scheme.eq_ignore_ascii_case("file") { 0 } else { rest.len() - rest.trim_start_matches('/').len() }
}

/// Returns the place of the `@` that ends user and password, in an address behind its `://`. People type
/// passwords with `@`, `/`, `?` and `#` in them as they are, and paths have an `@` too: if in doubt, it is a
/// password.
fn login(scheme: &str, rest: &str) -> Option<usize> {
    let last = rest.rfind('@')?;
    let slashes = slashes(scheme, rest);
    if slashes > 0 {
        return login(scheme, &rest[slashes..]).map(|at| slashes + at);
    }
    let authority = authority(rest);
    if authority.is_empty() || ["nats", "tls"].contains(&scheme) {
        // A file; and servers that have no path.
        return (!authority.is_empty()).then_some(last);
    }
    let is_host_behind = is_host_like(&rest[last + 1..]);
    if let Some(first) = authority.rfind('@') {
        let place = &authority[first + 1..];
        let is_path = rest[authority.len()..].starts_with('/');
        let is_place = is_place(place) && (is_surely_host(place) || place.contains(':'));
        return Some(if is_place && is_path && !is_host_behind { first } else { last });
    }
    let is_login = if !is_place(authority) {
        authority.contains(':')
    } else if is_surely_host(authority) {
        false
    } else {
        rest[..last].contains(':') && (is_host_behind || rest[authority.len()..].starts_with('#'))
    };
    is_login.then_some(last)
}

/// True for `host` and `host:port`.
fn is_place(authority: &str) -> bool {
    let is_port = |port: &str| port.parse::<u16>().is_ok() || port.is_empty();
    let host = match authority.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((host, port)) => {
            return !host.is_empty() && (port.is_empty() || port.strip_prefix(':').is_some_and(is_port));
        }
        None => {
            authority.rsplit_once(':').map_or(Some(authority), |(host, port)| is_port(port).then_some(host))
        }
    };
    host.is_some_and(|host| !host.contains([':', '@']))
}

/// True for a place whose host is a number, `localhost`, or a name with a dot.
fn is_surely_host(place: &str) -> bool {
    let host = place.rsplit_once(':').map_or(place, |(host, _)| host);
    place.starts_with('[') || host == "localhost" || host.trim_end_matches('.').contains('.')
}

/// True if a text begins as a host does that has a port, a path or a dot.
fn is_host_like(text: &str) -> bool {
    let place = authority(text);
    let is_name = |c: char| c.is_alphanumeric() || "-._:[]{}".contains(c);
    !place.is_empty()
        && place.chars().all(is_name)
        && is_place(place)
        && (is_surely_host(place) || place.contains(':') || place.len() < text.len())
}

/// Finds the values of secret names.
fn values(text: &str) -> Vec<(usize, usize)> {
    let mut found = Vec::new();
    for (equals, _) in text.match_indices('=') {
        let name = |c: char| c.is_ascii_alphanumeric() || "-_".contains(c);
        // gst-launch takes white space around the sign.
        let before = text[..equals].trim_end();
        let start = before
            .rfind(|c| !name(c))
            .map_or(0, |at| at + before[at..].chars().next().map_or(1, char::len_utf8));
        let called = before[start..].to_ascii_lowercase();
        let word = before.rsplit(char::is_whitespace).next().unwrap_or_default();
        let is_in_address = word.contains("://") || before[..start].ends_with(['?', '&']);
        let ends_with = |secret: &&str| {
            called.strip_suffix(secret).is_some_and(|rest| rest.is_empty() || rest.ends_with(['-', '_']))
        };
        let is_secret =
            SECRET_NAMES.iter().any(&ends_with) || (is_in_address && SECRET_IN_ADDRESS.iter().any(ends_with));
        if !is_secret {
            continue;
        }
        let rest = &text[equals + 1..];
        let (rest, length) = if is_in_address {
            (rest, of_address(rest))
        } else if let Some(rest) = rest.trim_start().strip_prefix("(string)") {
            (rest, of_structure(rest))
        } else {
            (rest.trim_start(), of_launch(rest.trim_start()))
        };
        if length > 0 && !is_hidden(rest) {
            let value = text.len() - rest.len();
            found.push((value, value + length));
        }
    }
    found
}

/// True for a value that was hidden before, perhaps in quotes that a shell needs.
fn is_hidden(value: &str) -> bool {
    value.strip_prefix(HIDDEN).is_some_and(|rest| {
        rest.chars().next().is_none_or(|c| c.is_whitespace() || "'\"\\&#,;:)".contains(c))
    })
}

/// Bytes of a value in an address. More characters than these may stand there without being escaped.
fn of_address(text: &str) -> usize {
    let ends = |c: char| c.is_whitespace() || "&#\"<>`".contains(c);
    of_quotes(text).unwrap_or_else(|| text.find(ends).unwrap_or(text.len()))
}

/// Bytes of a value in a structure that GStreamer wrote: `user-pw=(string)"a\ b", x=(int)1`.
fn of_structure(text: &str) -> usize {
    of_quotes(text).unwrap_or_else(|| text[..of_word(text)].trim_end_matches([',', ';']).len())
}

/// Bytes of a value as gst-launch reads it: quotes count where it begins with them.
fn of_launch(text: &str) -> usize {
    let quoted = of_quotes(text).unwrap_or(0);
    quoted + of_word(&text[quoted..])
}

/// Bytes up to white space; a backslash takes its meaning from it.
fn of_word(text: &str) -> usize {
    let mut is_escaped = false;
    let ends = |c: char| {
        let is_end = c.is_whitespace() && !is_escaped;
        is_escaped = c == '\\' && !is_escaped;
        is_end
    };
    text.find(ends).unwrap_or(text.len())
}

/// Returns the length of a text that begins with a quote, up to the same quote, unless a backslash is before
/// it; all of the text where there is none. Quotes that are escaped, as in a text inside another, are quotes
/// only in pairs.
fn of_quotes(text: &str) -> Option<usize> {
    let quote = ["\\\"", "\\'", "\"", "'"].into_iter().find(|quote| text.starts_with(quote))?;
    let mut ends = text.match_indices(quote).skip(1).filter(|(at, _)| {
        let backslashes = text[..*at].bytes().rev().take_while(|byte| *byte == b'\\').count();
        // In a text inside another each of them is two.
        (backslashes / quote.len()).is_multiple_of(2)
    });
    match ends.next() {
        Some((at, _)) => Some(at + quote.len()),
        None => (quote.len() == 1).then_some(text.len()),
    }
}

/// Returns the places of credentials in headers: the text that follows `Authorization:` in its line.
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

/// Returns the text with all characters that a terminal would obey written out, as `\u{1b}`: control
/// characters but for the line feed and the tab, and marks that turn the direction of writing.
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

/// As [`without_controls`], and without line breaks and tabs: a name that enters a message begins no line of
/// its own there.
pub fn in_one_line(name: &str) -> Cow<'_, str> {
    match without_controls(name) {
        clean if clean.contains(['\n', '\t']) => clean.replace('\n', "\\u{a}").replace('\t', "\\u{9}").into(),
        clean => clean,
    }
}

/// Returns a message with short lines: a longer line loses its middle.
pub fn shortened(message: &str) -> Cow<'_, str> {
    const MOST: usize = 400;
    const END: usize = 150;
    if message.lines().all(|line| line.len() <= MOST) {
        return message.into();
    }
    let short = |line: &str| match line.len() {
        ..=MOST => line.to_owned(),
        length => {
            let front = &line[..line.floor_char_boundary(MOST - END)];
            let end = &line[line.ceil_char_boundary(length - END)..];
            format!("{front} [...] {end}")
        }
    };
    message.lines().map(short).collect::<Vec<_>>().join("\n").into()
}

/// A path for a message: [`in_one_line`].
pub fn path(path: &Path) -> String {
    in_one_line(&path.to_string_lossy()).into_owned()
}

/// Text as HTML and XML have it. What XML cannot have at all becomes U+FFFD.
#[cfg(feature = "output")]
pub(crate) fn escaped(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => safe.push_str("&amp;"),
            '<' => safe.push_str("&lt;"),
            '>' => safe.push_str("&gt;"),
            '"' => safe.push_str("&quot;"),
            '\'' => safe.push_str("&#39;"),
            '\t' | '\n' | '\r' => safe.push(' '),
            '\0'..='\x1f' | '\u{fffe}' | '\u{ffff}' => safe.push('\u{fffd}'),
            c => safe.push(c),
        }
    }
    safe
}

/// As [`without_controls`], but keeps sequences that set colours: our own messages have them.
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

/// True for a character that a terminal would obey.
pub(crate) fn is_obeyed(c: char) -> bool {
    let turns =
        matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    (c.is_control() && !matches!(c, '\n' | '\t')) || matches!(c, '\u{2028}' | '\u{2029}') || turns
}

/// Text that may be shown to people: without secrets and without sequences that a terminal would obey.
pub fn for_people(text: &str) -> String {
    without_controls(&without_secrets(text)).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_lines_of_a_message_are_shortened_in_the_middle() {
        assert_eq!(shortened("a\nb"), "a\nb");
        let long = format!("line 1: \"{}\" is wrong", "ä".repeat(50_000));
        let short = shortened(&long);
        assert!(
            short.len() < 450 && short.starts_with("line 1: \"ä") && short.ends_with("ä\" is wrong"),
            "{short}"
        );
    }

    #[test]
    fn logins_of_addresses_are_hidden_wherever_they_stand() {
        for (text, expected) in [
            ("rtsp://admin:s3cret@10.0.0.7:554/x", "rtsp://***@10.0.0.7:554/x"),
            ("rtsp://admin:s3c@ret@host", "rtsp://***@host"),
            (
                "cannot open \"http://u:p@h:80/a@b\" and srt://q:r@z",
                "cannot open \"http://***@h:80/a@b\" and srt://***@z",
            ),
            ("location=rtsp://ü:ö@host ! x", "location=rtsp://***@host ! x"),
            ("rtsp://host/path@2", "rtsp://host/path@2"),
            ("rtsp://u:pa/ss'wo@rd@host/x", "rtsp://***@host/x"),
            ("rtsp://host:554/path@2 http://[::1]:80/@", "rtsp://host:554/path@2 http://[::1]:80/@"),
            ("a@b.c and ://", "a@b.c and ://"),
            ("https://example.org/@user/a.mp4", "https://example.org/@user/a.mp4"),
            ("http://cam.local:8080/12:30@x.mp4", "http://cam.local:8080/12:30@x.mp4"),
            ("srt://host:7001?streamid=a@b", "srt://host:7001?streamid=a@b"),
            ("file:///a:b@c.mp4", "file:///a:b@c.mp4"),
            ("nats://u:p@a:1,nats://q:r@b:2", "nats://***@a:1,nats://***@b:2"),
            ("{\"a\":\"run rtsp://u:p@h\",\"b\":\"x@y\"}", "{\"a\":\"run rtsp://***@h\",\"b\":\"x@y\"}"),
        ] {
            assert_eq!(without_secrets(text), expected);
            assert_eq!(without_secrets(expected), expected, "what is hidden stays so");
        }
    }

    #[test]
    fn nothing_is_left_of_a_password_that_is_not_escaped() {
        let places = ["127.0.0.1:18554/cam", "cam.local/a", "host/yard", "[::1]:1883/x", "10.0.0.7"];
        let passwords = [
            "p@ss:w#r/d%1?x",
            "S3@X",
            "S3@X/Y",
            "S3@X#Y",
            "S3@X?Y",
            "S3#X@Y",
            "S3/X",
            "S3?X",
            "S3#X",
            "S3:X",
            "12/34",
            "12#34",
            "S3@X.Y/Z",
            "S3@12/Z",
            "S3'X",
            "S3\"X",
            "S3 X",
            "S3@X Y",
            "S3@X\"Y",
            "S3@X'Y",
            "@S3",
            "S3@",
            "/S3",
        ];
        for (scheme, place, password) in ["rtsp", "http", "srt", "mqtt", "nats", "https"]
            .into_iter()
            .flat_map(|scheme| places.map(|place| (scheme, place)))
            .flat_map(|(scheme, place)| passwords.map(|password| (scheme, place, password)))
        {
            let typed = format!("{scheme}://admin:{password}@{place}");
            let expected = format!("{scheme}://***@{place}");
            assert_eq!(address_without_secrets(&typed), expected, "{typed}");
            assert_eq!(has_raw_login(&typed), password.contains(['/', '?', '#']), "{typed}");
            // In a message, where it ends is a guess.
            let messages =
                [format!("cannot open {typed}"), format!("no answer from {typed:?}: is it there?")];
            for message in messages {
                let shown = without_secrets(&message);
                let is_cut = password.contains(' ') && !message.contains('"') && password.contains('@');
                assert!(is_cut || shown.contains(&format!("***@{place}")), "{shown}");
            }
        }
    }

    #[test]
    fn a_path_with_an_at_sign_is_no_password() {
        for address in
            ["rtsp://u:p@host:554/x@y", "rtsp://host/a@b", "mqtt://broker/yard@home", "rtsp://h:554/x@y"]
        {
            assert!(!has_raw_login(address), "{address}");
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
            ("x264enc pass=qual key=1 tokens=5 ü=4", "x264enc pass=qual key=1 tokens=5 ü=4"),
            ("http://h/x?usr=admin&pw=b&c=1", "http://h/x?usr=admin&pw=***&c=1"),
            ("http://h/x?usr=a&loginpas=b&auth=c#d", "http://h/x?usr=a&loginpas=***&auth=***#d"),
            ("http://h/?pass=b&key=c&api-key=d&monkey=e", "http://h/?pass=***&key=***&api-key=***&monkey=e"),
            ("https://h/a.mp4?X-Amz-Signature=b&passwd=c", "https://h/a.mp4?X-Amz-Signature=***&passwd=***"),
            ("cannot read http:/h/x?u=a&pw=b: no", "cannot read http:/h/x?u=a&pw=*** no"),
            ("rtmp://h/live?secret=b&psk=c", "rtmp://h/live?secret=***&psk=***"),
            ("Authorization: Basic YTpi\r\nnext", "Authorization: ***\r\nnext"),
        ] {
            assert_eq!(without_secrets(text), expected);
        }
    }

    #[test]
    fn nothing_is_left_of_a_password_that_gst_launch_reads_on_in() {
        let plain = ["pa#ss", "a,b", "a&b", "a)b", "a;b", "a'b", r#"a"b"#, r#""a\"b""#, r#""a b"c"#];
        for password in plain.into_iter().chain([r"'a\'b c'", r"s3\ cret", r"a\\"]) {
            for sign in ["=", " = ", "= "] {
                let text = format!("souphttpsrc location=http://h/ user-pw{sign}{password} ! decodebin");
                let clean = format!("souphttpsrc location=http://h/ user-pw{sign}*** ! decodebin");
                assert_eq!(without_secrets(&text), clean);
                assert_eq!(without_secrets(&clean), clean);
                // Again inside quotes, as errors show it.
                let shown = without_secrets(&format!("{text:?}")).into_owned();
                assert!(!plain.contains(&password) || shown == format!("{clean:?}"), "{shown}");
            }
        }
        for (text, expected) in [
            ("x user-pw=(string)\"a b\", y=1", "x user-pw=(string)***, y=1"),
            ("http://h/?token=a,b;c'd&x=1", "http://h/?token=***&x=1"),
            ("lockon run 'http://h/?token=***' --x", "lockon run 'http://h/?token=***' --x"),
        ] {
            assert_eq!(without_secrets(text), expected);
        }
    }

    #[test]
    fn a_name_begins_no_line_of_its_own() {
        assert_eq!(in_one_line("x\ncar:\tfound\x1b[8m"), "x\\u{a}car:\\u{9}found\\u{1b}[8m");
        assert_eq!(path(Path::new("plain \u{fc}.png")), "plain \u{fc}.png");
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
