//! Pipelines as gst-launch text, and the messages of running pipelines.
//!
//! A pipeline is text that people can read and try: a [`Launch`] is that text with the properties to set on
//! its named elements. Values are never pasted into the text that GStreamer parses, so a file name may hold
//! anything; they are written in, quoted, only where the text is printed for a shell.
//!
//! [`Running`] holds a pipeline from its first change of state to NULL. No `GLib` main loop runs: a handler
//! on the bus sorts messages on the thread that posts them, and passes on the few that matter through a
//! channel.
//!
//! File by file: `words` reads text, `fill` puts names into it, `join` puts texts together, `print` writes
//! one for a shell; `build` makes the pipeline, `missing` names missing elements, `running` holds it, `bus`
//! sorts its messages, `gl` and `reserve` give elements what they share: a display, threads.

use std::fs::File;
use std::io::Read;

use gst::prelude::*;

use lockon_core::error::{Error, Result};
use lockon_core::files;
use lockon_core::text::without_secrets;

use words::{find, span, typed, words};

pub use bus::{NOTHING_WANTED, bus_error};
pub use fill::fill;
pub use running::{Milestone, News, Redirection, Running};

pub(crate) use running::guarded;

mod build;
mod bus;
mod fill;
mod gl;
mod join;
mod missing;
mod print;
mod reserve;
mod running;
#[cfg(test)]
mod tests;
mod words;

/// Log target of all files of this folder, so that a filter needs no file names.
const LOG: &str = module_path!();

/// Starts GStreamer. Cheap after the first time, from any thread.
///
/// # Errors
/// `Pipeline` if it does not start.
pub fn init() -> Result<()> {
    gst::init().map_err(|e| Error::Pipeline {
        element: "gstreamer".into(),
        message: e.to_string(),
        debug: String::new(),
    })
}

/// Maximum bytes of a file with gst-launch text.
const MAX_TEXT: u64 = 1 << 20;

/// gst-launch text with the properties to set on its elements by name.
///
/// Displayed, it is one line for `gst-launch-1.0` in a POSIX shell, with the properties written in, and `***`
/// in the place of passwords.
#[derive(Clone, PartialEq, Eq)]
pub struct Launch {
    /// Where the text is from, for messages: a file or an option.
    name: String,
    text: String,
    properties: Vec<Property>,
}

/// A property of a named element, and its value as gst-launch would read it.
#[derive(Clone, PartialEq, Eq)]
struct Property {
    element: String,
    name: String,
    value: String,
}

impl Launch {
    /// `text` without the lines that begin with `#`. `name` says in messages where it is from.
    pub fn new(name: impl Into<String>, text: &str) -> Self {
        let lines = text.lines().filter(|line| !line.trim_start().starts_with('#'));
        let text = lines.map(str::trim).filter(|line| !line.is_empty()).collect::<Vec<_>>().join(" ");
        Self { name: name.into(), text, properties: Vec::new() }
    }

    /// Reads the value of `option`: the text itself, or `@` and the file that holds it.
    ///
    /// # Errors
    /// `File` if the file cannot be read, `Launch` if there is no text.
    pub fn user(option: &str, text: &str) -> Result<Self> {
        let launch = match text.strip_prefix('@') {
            Some(path) => {
                let unreadable = || Error::file("read", path.as_ref());
                let mut read = String::new();
                // A device or a pipe may have no end.
                let file = File::open(path).map_err(unreadable())?.take(MAX_TEXT + 1);
                files::text_of(file)
                    .and_then(|mut text| text.read_to_string(&mut read))
                    .map_err(unreadable())?;
                if read.len() as u64 > MAX_TEXT {
                    return Err(unreadable()(std::io::ErrorKind::FileTooLarge.into()));
                }
                Self::new(path, &read)
            }
            None => Self::new(option, text),
        };
        if launch.text.is_empty() {
            return Err(launch.fault("there is no text"));
        }
        Ok(launch)
    }

    /// Where the text is from.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Sets a property of the element of that name when the pipeline is built; the last value counts.
    #[expect(clippy::needless_pass_by_value, reason = "`set(\"input\", \"loop\", true)` reads best")]
    pub fn set(&mut self, element: &str, property: &str, value: impl ToString) -> &mut Self {
        self.properties.retain(|p| (p.element.as_str(), p.name.as_str()) != (element, property));
        let (element, name) = (element.to_owned(), property.to_owned());
        self.properties.push(Property { element, name, value: value.to_string() });
        self
    }

    /// True if the element of that name is given the property, by its text or by [`Launch::set`].
    pub fn sets(&self, element: &str, property: &str) -> bool {
        typed(&words(&self.text), element, property).is_some() || self.was_set(element, property)
    }

    /// True if [`Launch::set`] gave the element of that name the property.
    pub fn was_set(&self, element: &str, property: &str) -> bool {
        self.properties.iter().any(|p| p.element == element && p.name == property)
    }

    /// True if the text names an element so.
    pub fn has(&self, element: &str) -> bool {
        find(&words(&self.text), element).is_some()
    }

    /// Puts `chain` (`videoconvert ! deinterlace`) into the text, between the element of that name and the
    /// one before.
    ///
    /// # Errors
    /// `Launch` if the element is not linked by a `!` in front of it.
    pub fn insert_before(&mut self, element: &str, chain: &str) -> Result<()> {
        let mut words = words(&self.text);
        match find(&words, element) {
            Some((start, _)) if start > 0 && words[start - 1] == "!" => {
                words.insert(start, format!("{chain} !"));
                self.text = words.join(" ");
                Ok(())
            }
            _ => {
                Err(self
                    .fault(format!("write `... ! FACTORY name={element}`: `{chain}` must be put before it")))
            }
        }
    }

    /// Has what follows the element of that name linked to its pad `pad`, which it may get later.
    ///
    /// # Errors
    /// `Launch` if nothing is linked behind the element by a `!`.
    pub fn take_pad(&mut self, element: &str, pad: &str) -> Result<()> {
        let mut words = words(&self.text);
        match span(&words, element) {
            Some((_, end)) if words.get(end).is_some_and(|word| word == "!") => {
                words.insert(end, format!("{element}.{pad}"));
                self.text = words.join(" ");
                Ok(())
            }
            _ => Err(self.fault(format!("nothing is linked behind the element {element:?}"))),
        }
    }

    /// The element of that name in a pipeline built from this text.
    ///
    /// # Errors
    /// `Launch` if there is none.
    pub fn element(&self, pipeline: &gst::Pipeline, name: &str) -> Result<gst::Element> {
        pipeline.by_name(name).ok_or_else(|| self.fault(format!("there is no element named {name:?}")))
    }

    /// The error for this text.
    pub fn fault(&self, reason: impl Into<String>) -> Error {
        let reason = without_secrets(&reason.into()).into_owned();
        Error::Launch { name: self.name.clone(), reason }
    }
}
