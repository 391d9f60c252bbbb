//! Names put into gst-launch text in the place of words in braces.
//!
//! A name comes from a file, whose name may be hostile. In the text it must stay one value: it must not end
//! the value that contains it and begin an element of its own. So a value with such a name is decoded as
//! GStreamer would decode it, the name is put in, and the result is written again in a form that has no white
//! space and no quotes that a parser could pair with others.

use gst::glib;
use gst::prelude::*;

use super::print::serialised;
use super::words::words;
use super::{Launch, init};
use lockon_core::error::Result;

/// Properties that `printf` reads: a `%` of a name would be a conversion there.
const PRINTF_PATTERNS: [(&str, &str); 5] = [
    ("multifilesink", "location"),
    ("splitmuxsink", "location"),
    ("hlssink", "location"),
    ("hlssink2", "location"),
    ("hlssink3", "location"),
];

/// Returns gst-launch text with each of `words` replaced by its value. GStreamer takes that as part of one
/// literal value, whatever characters it has.
///
/// `option` names the text in errors.
///
/// # Errors
/// `Launch` if a word stands where no value of a property is, or in a property that is no text and the value
/// has characters that mean something there; `Pipeline` if GStreamer does not start.
pub fn fill(option: &str, text: &str, words: &[(&str, &str)]) -> Result<String> {
    init()?;
    let launch = Launch::new(option, text);
    let typed = self::words(&launch.text);
    let mut filled = Vec::with_capacity(typed.len());
    for (at, word) in typed.iter().enumerate() {
        filled.push(if parts(word, words).iter().any(|part| part.value.is_some()) {
            fill_word(&launch, &typed, at, words)?
        } else {
            word.clone()
        });
    }
    Ok(filled.join(" "))
}

fn fill_word(launch: &Launch, typed: &[String], at: usize, words: &[(&str, &str)]) -> Result<String> {
    let word = &typed[at];
    let parts = parts(word, words);
    let values = || parts.iter().filter_map(|part| Some((part.text, part.value?)));
    // Most names. They leave the text as it was typed.
    let fits_anywhere = values().all(|(_, value)| is_harmless(value));
    let in_place = || parts.iter().map(|part| part.value.unwrap_or(part.text)).collect::<String>();
    let Some(assignment) = Assignment::find(typed, at) else {
        let is_in_caps = word.contains('=');
        let is_number = values().all(|(_, value)| value.bytes().all(|byte| byte.is_ascii_digit()));
        if is_number || (is_in_caps && fits_anywhere) {
            return Ok(in_place());
        }
        let (word, value) = values()
            .find(|(_, value)| !is_harmless(value))
            .or_else(|| values().next())
            .expect("it has a word");
        return Err(launch.fault(format!(
            "{word} is {value:?} here, which is possible only in the value of a property, as in location=\"{word}.mkv\""
        )));
    };
    if fits_anywhere {
        return Ok(in_place());
    }
    let property = assignment.property;
    if !assignment.is_text() {
        let (word, value) = values().find(|(_, value)| !is_harmless(value)).expect("one is not harmless");
        let reason = format!(
            "{word} is {value:?} here, which is not possible in {property}: only a property that is text takes such a name"
        );
        return Err(launch.fault(reason));
    }
    let is_pattern = PRINTF_PATTERNS.contains(&(assignment.factory.unwrap_or_default(), property));
    let decoded = decoded(assignment.value);
    let value: String = self::parts(&decoded, words)
        .iter()
        .map(|part| match part.value {
            Some(value) if is_pattern => value.replace('%', "%%"),
            Some(value) => value.to_owned(),
            None => part.text.to_owned(),
        })
        .collect();
    let in_front = &word[..word.len() - assignment.value.len()];
    // The backslashes are removed first; the rest is a value in quotes.
    let encoded = serialised(&value).replace('\\', "\\\\").replace('"', "\\\"");
    Ok(format!("{in_front}{encoded}"))
}

/// A stretch of text: a word with its value, or the text between two of them.
struct Part<'a> {
    text: &'a str,
    value: Option<&'a str>,
}

/// One after the other, from the left: a value may have braces of its own.
fn parts<'a>(text: &'a str, words: &[(&'a str, &'a str)]) -> Vec<Part<'a>> {
    let mut parts = Vec::new();
    let (mut start, mut at) = (0, 0);
    while let Some(brace) = text[at..].find('{').map(|brace| at + brace) {
        let Some((word, value)) = words.iter().find(|(word, _)| text[brace..].starts_with(word)) else {
            at = brace + 1;
            continue;
        };
        parts.push(Part { text: &text[start..brace], value: None });
        at = brace + word.len();
        parts.push(Part { text: &text[brace..at], value: Some(value) });
        start = at;
    }
    parts.push(Part { text: &text[start..], value: None });
    parts
}

/// True if a value is the same in every position: bare, in quotes, in caps.
fn is_harmless(value: &str) -> bool {
    let is_plain = |c: char| c.is_alphanumeric() || "-_.".contains(c);
    value != "NULL" && value.chars().all(is_plain)
}

/// `property=value`, with white space around the `=` or without.
struct Assignment<'a> {
    factory: Option<&'a str>,
    property: &'a str,
    value: &'a str,
}

impl<'a> Assignment<'a> {
    /// The assignment whose value ends the word at that place.
    fn find(typed: &'a [String], at: usize) -> Option<Self> {
        let word = typed[at].as_str();
        let before = |back: usize| at.checked_sub(back).map_or("", |at| typed[at].as_str());
        let (first, property, value) = if let Some(value) = word.strip_prefix('=') {
            (at.checked_sub(1)?, before(1), value)
        } else if before(1) == "=" {
            (at.checked_sub(2)?, before(2), word)
        } else if let Some(property) = before(1).strip_suffix('=') {
            (at - 1, property, word)
        } else {
            let (property, value) = word.split_once('=')?;
            (at, property, value)
        };
        let is_name = |c: char| c.is_ascii_alphanumeric() || "_-%:".contains(c);
        if property.is_empty() || !property.chars().all(is_name) {
            return None;
        }
        let factory = typed[..first].iter().rev().find(|word| !word.contains('=')).map(String::as_str);
        Some(Self { factory, property, value })
    }

    /// True if the element's property is known and text.
    fn is_text(&self) -> bool {
        let factory = self.factory.and_then(gst::ElementFactory::find).and_then(|it| it.load().ok());
        let class = factory.and_then(|it| glib::object::ObjectClass::from_type(it.element_type()));
        let property = class.and_then(|class| class.find_property(self.property));
        property.is_some_and(|property| property.value_type() == glib::Type::STRING)
    }
}

/// A typed value as GStreamer reads it: without the quotes around it and without backslashes, and once more
/// if quotes are left around it.
fn decoded(typed: &str) -> String {
    let inner = |text: &str| text.len() > 1 && text.starts_with('"') && text.ends_with('"');
    let typed = if inner(typed) { &typed[1..typed.len() - 1] } else { typed };
    // As gst_parse_unescape: quotes stay, and between them so do backslashes.
    let mut once = String::new();
    let (mut is_quoted, mut before) = (false, None);
    let mut chars = typed.chars();
    while let Some(mut c) = chars.next() {
        if c == '\\' && !is_quoted {
            c = chars.next().unwrap_or('\\');
        } else if c == '"' && (!is_quoted || before != Some('\\')) {
            is_quoted = !is_quoted;
        }
        once.push(c);
        before = Some(c);
    }
    if !inner(&once) {
        return once;
    }
    let mut twice = Vec::new();
    let mut bytes = once.as_bytes()[1..once.len() - 1].iter().copied().peekable();
    while let Some(byte) = bytes.next() {
        if byte != b'\\' {
            twice.push(byte);
            continue;
        }
        let mut value = None;
        while let Some(digit) = bytes.next_if(|byte| (b'0'..b'8').contains(byte)) {
            value = Some(value.unwrap_or(0u8).wrapping_mul(8).wrapping_add(digit - b'0'));
        }
        twice.extend(value.or_else(|| bytes.next()));
    }
    String::from_utf8_lossy(&twice).into_owned()
}
