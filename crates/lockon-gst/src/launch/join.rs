//! Joins several pipelines into one, and adds missing ends.

use std::fmt::Write as _;

use super::Launch;
use super::words::{find, span, words};
use lockon_core::error::Result;

impl Launch {
    /// One pipeline instead of several: this source with an `element` of that name in place of its appsink
    /// `frames`, followed by the part after the appsrc `results` of each of `sinks`, or by a `fakesink`.
    ///
    /// Names that are taken already get a number in the later text.
    ///
    /// # Errors
    /// `Launch` if a text lacks the end to join.
    pub fn joined(&self, element: &str, sinks: &[Self]) -> Result<Self> {
        let mut words = words(&self.text);
        let (start, end) =
            span(&words, "frames").ok_or_else(|| self.fault("it has no appsink named \"frames\""))?;
        let behind = words.split_off(end);
        words.truncate(start);
        words.extend([element.to_owned(), format!("name={element}"), "!".to_owned()]);
        let mut properties = self.properties.clone();
        properties.retain(|property| property.element != "frames");
        if sinks.is_empty() {
            words.push("fakesink".to_owned());
        } else if sinks.len() > 1 {
            words.extend(["tee", "name=outputs"].map(str::to_owned));
        }
        for sink in sinks {
            let mut sink = sink.clone();
            sink.rename_what_is_in(&words);
            let mut rest = self::words(&sink.text);
            let fault = || sink.fault("it does not begin with `appsrc name=results !`");
            let (start, end) = span(&rest, "results").ok_or_else(fault)?;
            if rest.get(end).is_none_or(|word| word != "!") {
                return Err(fault());
            }
            if sinks.len() > 1 {
                // An encoder with lookahead gives nothing before it has many frames, and the other branches
                // must not block it.
                let queue = "outputs. ! queue max-size-buffers=100 max-size-bytes=0 max-size-time=0 !";
                words.extend(queue.split(' ').map(str::to_owned));
            }
            words.extend(rest.drain(end + 1..));
            words.extend(rest.drain(..start));
            properties.extend(sink.properties.into_iter().filter(|property| property.element != "results"));
        }
        words.extend(behind);
        Ok(Self { name: self.name.clone(), text: words.join(" "), properties })
    }

    /// Returns the text with an appsink `frames` at its end, if it has no appsink and its last element can be
    /// linked to one.
    #[must_use]
    pub fn with_appsink(mut self) -> Self {
        let words = words(&self.text);
        let has_sink = words.iter().any(|word| word == "appsink");
        if has_sink
            || find(&words, "frames").is_some()
            || !is_open(words.last(), words_of_last(&words), false)
        {
            return self;
        }
        let link = if words.last().is_some_and(|word| word == "!") { "" } else { "! " };
        let _ = write!(self.text, " {link}appsink name=frames");
        self
    }

    /// Returns the text with an appsrc `results` in front, if it has no appsrc and its first element can be
    /// linked to one.
    #[must_use]
    pub fn with_appsrc(mut self) -> Self {
        let words = words(&self.text);
        let has_source = words.iter().any(|word| word == "appsrc");
        if has_source || find(&words, "results").is_some() || !is_open(words.first(), words.first(), true) {
            return self;
        }
        let link = if words.first().is_some_and(|word| word == "!") { "" } else { "! " };
        self.text = format!("appsrc name=results {link}{}", self.text);
        self
    }

    /// Gives numbers to elements whose names are in `others` too.
    fn rename_what_is_in(&mut self, others: &[String]) {
        let mut words = words(&self.text);
        let names: Vec<String> =
            words.iter().filter_map(|w| w.strip_prefix("name=")).map(str::to_owned).collect();
        let is_taken = |name: &str| others.iter().any(|word| word.strip_prefix("name=") == Some(name));
        for name in names.iter().filter(|name| is_taken(name)) {
            let mut number = 2;
            while is_taken(&format!("{name}{number}")) || names.contains(&format!("{name}{number}")) {
                number += 1;
            }
            let new = format!("{name}{number}");
            for word in &mut words {
                if let Some(pad) = word.strip_prefix(name).filter(|rest| rest.starts_with('.')) {
                    *word = format!("{new}{pad}");
                } else if word.strip_prefix("name=") == Some(name) {
                    *word = format!("name={new}");
                }
            }
            for property in self.properties.iter_mut().filter(|property| property.element == *name) {
                property.element.clone_from(&new);
            }
        }
        self.text = words.join(" ");
    }
}

/// The factory of the last element, or the caps at its end.
fn words_of_last(words: &[String]) -> Option<&String> {
    let start = words.iter().rposition(|word| word == "!").map_or(0, |at| at + 1);
    words.get(start)
}

/// True if another element can be linked to the element of that factory, before or after it. `end` is the
/// word there. Caps and misspelt names count as linkable; a named element's pad (`t.`) is linked already.
fn is_open(end: Option<&String>, factory: Option<&String>, in_front: bool) -> bool {
    let Some(end) = end else { return false };
    if end == "!" {
        return true;
    }
    if end.ends_with('.') && !end.contains('=') {
        return false;
    }
    let Some(factory) = factory.and_then(|name| gst::ElementFactory::find(name)) else { return true };
    let direction = if in_front { gst::PadDirection::Sink } else { gst::PadDirection::Src };
    factory.static_pad_templates().iter().any(|template| template.direction() == direction)
}
