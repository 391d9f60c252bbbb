//! A pipeline as one line for `gst-launch-1.0` in a shell.

use std::fmt;

use super::Launch;
use super::words::{find, typed, words};
use lockon_core::shell;
use lockon_core::text::without_secrets;

impl fmt::Display for Launch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Before anything is unescaped: afterwards the end of a password cannot be found.
        let mut words = words(&without_secrets(&self.text));
        for word in &mut words {
            *word = unescape_spaces(word);
        }
        for p in self.properties.iter().rev() {
            let word = format!("{}={}", p.name, for_launch(&p.value));
            if let Some(at) = typed(&words, &p.element, &p.name) {
                words[at] = word;
            } else if let Some((_, at)) = find(&words, &p.element) {
                words.insert(at + 1, word);
            }
        }
        let words = words.iter().map(|word| without_secrets(word)).collect::<Vec<_>>();
        f.write_str(&shell::line(&words))
    }
}

impl fmt::Debug for Launch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Launch({}: {self})", self.name)
    }
}

/// `gst-launch-1.0` escapes the spaces of its arguments itself, and would escape these twice.
fn unescape_spaces(word: &str) -> String {
    if word.contains(['"', '\'']) { word.to_owned() } else { word.replace("\\ ", " ") }
}

/// A property's value as gst-launch reads it back.
fn for_launch(value: &str) -> String {
    let plain = |c: char| c.is_alphanumeric() || "/._-+:,@%=~".contains(c);
    if !value.is_empty() && value != "NULL" && value.chars().all(plain) {
        return value.to_owned();
    }
    let quoted = |value: &str| format!("\"{}\"", value.replace('\\', "\\\\").replace('"', "\\\""));
    // gst-launch takes quotes and backslashes off, and then reads what is left as a value: that again can be
    // quoted, or be NULL. A backslash at its end is understood only in quotes of that second kind.
    let is_read_twice = value.starts_with('"') || value.ends_with('\\') || value == "NULL";
    if is_read_twice { quoted(&serialised(value)) } else { quoted(value) }
}

/// A text in quotes, as GStreamer writes values: all but letters are escaped.
pub(super) fn serialised(value: &str) -> String {
    let is_plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"_-+/:.".contains(byte);
    let escaped = value.bytes().map(|byte| match byte {
        byte if is_plain(&byte) => char::from(byte).to_string(),
        byte => format!("\\{byte:03o}"),
    });
    format!("\"{}\"", escaped.collect::<String>())
}
