//! Pipelines as gst-launch text, and what a running pipeline says.
//!
//! A pipeline is text that people can read and try: a [`Launch`] is that text with the properties to set on
//! its named elements. Values are never pasted into the text that GStreamer parses, so a file name may hold
//! anything; they are written in, quoted, only where the text is printed for a shell.
//!
//! [`Running`] holds a pipeline from its first change of state to NULL. No `GLib` main loop runs: a handler
//! on the bus sorts messages on the thread that posts them, and passes on the few that matter through a
//! channel.

use std::fmt::{self, Write as _};
use std::fs::File;
use std::io::Read;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender};
use gst::glib;
use gst::prelude::*;

use crate::{damage, doctor};
use lockon_core::control::{Control, STOP_CHECK};
use lockon_core::error::{Error, Result, catch_panic};
use lockon_core::shell;
use lockon_core::text::without_secrets;

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

/// Most bytes of a file with gst-launch text.
const MAX_TEXT: u64 = 1 << 20;

/// gst-launch text with the properties to set on its elements by name.
///
/// Displayed, it is one line for `gst-launch-1.0` in a POSIX shell, with the properties written in, and `***`
/// in the place of passwords.
#[derive(Clone, PartialEq, Eq)]
pub struct Launch {
    /// Where the text is from, for messages: a file, or the option it was typed after.
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

    /// What was typed after `option`: the text itself, or `@` and the file that holds it.
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
                { file }.read_to_string(&mut read).map_err(unreadable())?;
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

    /// One pipeline instead of several: this source with an `element` of that name in the place of its
    /// appsink `frames`, and behind it what follows the appsrc `results` in each of `sinks`, or nothing but a
    /// `fakesink`.
    ///
    /// Names that are taken already get a number in the later text.
    ///
    /// # Errors
    /// `Launch` if a text has not the end that is to be joined.
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
                // An encoder that looks ahead gives nothing before it has had many frames, and the others
                // must not hold it up.
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

    /// The same with an appsink `frames` at its end, if it has no appsink and ends in something that can be
    /// followed by one.
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

    /// The same with an appsrc `results` in front of it, if it has no appsrc and begins with something that
    /// can follow one.
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

    /// The pipeline, in state NULL, with all properties set.
    ///
    /// # Errors
    /// `MissingElement` if an element is not installed, `Launch` if GStreamer does not accept the text or a
    /// property.
    pub fn build(&self) -> Result<gst::Pipeline> {
        init()?;
        let mut context = gst::ParseContext::new();
        let built = gst::parse::launch_full(&self.text, Some(&mut context), gst::ParseFlags::FATAL_ERRORS);
        let element = built.map_err(|e| self.not_built(&e, &context))?;
        // A text of one element alone gives that element, not a pipeline.
        let pipeline = element.downcast::<gst::Pipeline>().or_else(|element| {
            let pipeline = gst::Pipeline::new();
            pipeline.add(&element).map_err(|e| self.fault(e.to_string()))?;
            Ok::<_, Error>(pipeline)
        })?;
        for property in &self.properties {
            self.apply(&pipeline, property)?;
        }
        Ok(pipeline)
    }

    /// As [`Self::build`], but given up when the run is stopped: for text of thousands of elements GStreamer
    /// takes minutes, and cannot be interrupted. The thread that builds is left behind then, and drops what
    /// it has built.
    ///
    /// # Errors
    /// As [`Self::build`], and `Stopped`.
    pub fn build_under(&self, control: &Control) -> Result<gst::Pipeline> {
        let (sender, built) = crossbeam_channel::bounded(1);
        let launch = self.clone();
        let build = move || drop(sender.send(launch.build()));
        std::thread::Builder::new()
            .name("lockon-build".into())
            .spawn(build)
            .map_err(|error| self.fault(format!("no thread can be started to build it: {error}")))?;
        loop {
            control.check()?;
            match built.recv_timeout(STOP_CHECK) {
                Ok(built) => return built,
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => {
                    return Err(self.fault("the thread that built it panicked"));
                }
            }
        }
    }

    /// The element of that name in a pipeline built from this text.
    ///
    /// # Errors
    /// `Launch` if there is none.
    pub fn element(&self, pipeline: &gst::Pipeline, name: &str) -> Result<gst::Element> {
        pipeline.by_name(name).ok_or_else(|| self.fault(format!("there is no element named {name:?}")))
    }

    fn not_built(&self, error: &glib::Error, context: &gst::ParseContext) -> Error {
        let missing = context.missing_elements();
        // The list also has elements that exist but were given a property that they have not.
        match missing.first().filter(|_| error.matches(gst::ParseError::NoSuchElement)) {
            Some(missing) => missing_element(missing).unwrap_or_else(|| {
                self.fault(format!("there is no element {:?}, is it misspelt?", missing.as_str()))
            }),
            None => self.fault(error.message()),
        }
    }

    fn apply(
        &self,
        pipeline: &gst::Pipeline,
        Property { element: name, name: property, value }: &Property,
    ) -> Result<()> {
        let element = self.element(pipeline, name)?;
        let spec = element
            .find_property(property)
            .filter(|spec| spec.flags().contains(glib::ParamFlags::WRITABLE))
            .ok_or_else(|| self.fault(format!("element {name:?} has no property {property:?} to set")))?;
        // Strings are taken as they are: deserialising would undo quotes and turn a file named NULL into
        // nothing.
        let value = if spec.value_type() == glib::Type::STRING {
            value.to_value()
        } else {
            glib::Value::deserialize_with_pspec(value, &spec)
                .map_err(|_| self.fault(format!("{property} of element {name:?} cannot be {value:?}")))?
        };
        element.set_property_from_value(property, &value);
        Ok(())
    }

    /// This text is at fault.
    pub fn fault(&self, reason: impl Into<String>) -> Error {
        let reason = without_secrets(&reason.into()).into_owned();
        Error::Launch { name: self.name.clone(), reason }
    }
}

impl fmt::Display for Launch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Before anything is unescaped: afterwards nobody knows any more where a password ends.
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

/// gst-launch text cut at white space, but not inside quotes nor after a backslash. Nothing is unquoted.
fn words(text: &str) -> Vec<String> {
    let mut words = Vec::new();
    let mut word = String::new();
    let mut quote = None;
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        match quote {
            None if c.is_whitespace() => {
                words.extend((!word.is_empty()).then(|| std::mem::take(&mut word)));
                continue;
            }
            // Inside a word an apostrophe is just a character.
            None if matches!(c, '"' | '\'') && (word.is_empty() || word.ends_with(['=', ','])) => {
                quote = Some(c);
            }
            Some(open) if c == open => quote = None,
            _ => {}
        }
        word.push(c);
        if c == '\\' {
            word.extend(chars.next());
        }
    }
    words.extend((!word.is_empty()).then_some(word));
    words
}

/// Where the element of that name begins (its factory) and where its `name=` is.
fn find(words: &[String], element: &str) -> Option<(usize, usize)> {
    let (plain, quoted) = (format!("name={element}"), format!("name=\"{element}\""));
    let at = words.iter().position(|w| *w == plain || *w == quoted)?;
    let start = words[..at].iter().rposition(|w| !w.contains('='))?;
    Some((start, at))
}

/// The factory of the last element, or the caps at its end.
fn words_of_last(words: &[String]) -> Option<&String> {
    let start = words.iter().rposition(|word| word == "!").map_or(0, |at| at + 1);
    words.get(start)
}

/// True if something can be linked to the element of that factory: in front of it, or behind it. `end` is the
/// word there. Caps and what is misspelt can be linked, a named element's pad (`t.`) is linked already.
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

/// The words of the element of that name: where its factory is, and where the next thing begins.
fn span(words: &[String], element: &str) -> Option<(usize, usize)> {
    let (start, _) = find(words, element)?;
    let properties = words[start + 1..].iter().take_while(|word| word.contains('=')).count();
    Some((start, start + 1 + properties))
}

/// Where the element of that name is given the property.
fn typed(words: &[String], element: &str, property: &str) -> Option<usize> {
    let (factory, _) = find(words, element)?;
    let mut given =
        words.iter().enumerate().skip(factory + 1).map_while(|(at, w)| Some((at, w.split_once('=')?.0)));
    given.find(|(_, name)| *name == property).map(|(at, _)| at)
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

/// A text in quotes as GStreamer writes one that is a value: what is more than a letter is escaped.
fn serialised(value: &str) -> String {
    let is_plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"_-+/:.".contains(byte);
    let escaped = value.bytes().map(|byte| match byte {
        byte if is_plain(&byte) => char::from(byte).to_string(),
        byte => format!("\\{byte:03o}"),
    });
    format!("\"{}\"", escaped.collect::<String>())
}

/// `MissingElement`, if it is known which package has the element.
fn missing_element(element: &str) -> Option<Error> {
    let package = doctor::package_of(element)?;
    Some(Error::MissingElement { element: element.to_owned(), package })
}

/// A pipeline from its first change of state to NULL: dropping this stops it, on every path.
///
/// Dropping waits for the pipeline's threads. Whoever drops it must not be one of them, and must first have
/// let go of what they may be waiting for.
#[derive(Debug)]
pub struct Running {
    pipeline: gst::Pipeline,
    news: Receiver<News>,
    heard: Arc<Heard>,
}

/// What was on the bus, for what comes later.
#[derive(Debug, Default)]
struct Heard {
    /// Which plugin is missing.
    missing: Mutex<Option<Error>>,
    /// The run that ends when the window is closed in which the pipeline ends.
    control: OnceLock<Control>,
    is_closed: AtomicBool,
    /// It did not stop in time.
    is_left: AtomicBool,
    /// That frames come too late to be shown, which outputs say each second.
    is_late: AtomicBool,
}

/// What a running pipeline said that matters to whoever holds it.
#[derive(Debug)]
pub enum News {
    /// All sinks have a frame, or have ended without one.
    Prerolled,
    /// All sinks have ended.
    Ended,
    /// Somebody closed the window in which it ends, so that it takes no more frames.
    Closed,
    /// Something failed; what follows are consequences.
    Failed(Error),
    /// A resource is in trouble: a server that closed the connection, after which some sources tell an
    /// ordinary end.
    InTrouble(Error),
    /// The latency must be worked out again. [`Running::attend`] does that.
    Latency,
    /// The clock is gone and another must be chosen. [`Running::attend`] does that.
    ClockLost,
}

/// The points that a pipeline passes if all goes well.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Milestone {
    /// All sinks have a frame, or have ended without one.
    Prerolled,
    /// All sinks have ended.
    Ended,
    /// Its window was closed. Nothing else comes.
    Closed,
}

impl Running {
    /// Takes charge of a pipeline that has not been started yet.
    pub fn new(pipeline: gst::Pipeline) -> Self {
        let (sender, news) = crossbeam_channel::unbounded();
        let heard = Arc::new(Heard::default());
        let of_bus = heard.clone();
        if let Some(bus) = pipeline.bus() {
            // Nobody reads the bus, so nothing may stay on it.
            bus.set_sync_handler(move |_, message| {
                if let Err(said) = catch_panic(|| sort(message, &of_bus, &sender)) {
                    let what = "the bus handler".to_owned();
                    let _ = sender.send(News::Failed(Error::Panicked { what, message: said }));
                }
                gst::BusSyncReply::Drop
            });
        }
        Self { pipeline, news, heard }
    }

    /// Stops that run as soon as somebody closes the window in which the pipeline ends, whoever listens by
    /// then.
    pub fn stop_when_closed(&self, control: &Control) {
        // There is one run, and it is told once.
        let _ = self.heard.control.set(control.clone());
    }

    /// The pipeline.
    pub fn pipeline(&self) -> &gst::Pipeline {
        &self.pipeline
    }

    /// What the pipeline says, in order, for a `select!`; what is taken out belongs into [`Running::attend`].
    pub fn news(&self) -> &Receiver<News> {
        &self.news
    }

    /// Changes the pipeline's state, without waiting where the change takes its time.
    ///
    /// # Errors
    /// What the failing element said.
    pub fn set_state(&self, state: gst::State) -> Result<gst::StateChangeSuccess> {
        self.pipeline.set_state(state).map_err(|_| {
            let mut said = self.news.try_iter();
            let first = said.find_map(|news| if let News::Failed(error) = news { Some(error) } else { None });
            first.unwrap_or_else(|| Error::Pipeline {
                element: self.pipeline.name().into(),
                message: format!("cannot be set to {state:?}"),
                debug: String::new(),
            })
        })
    }

    /// Waits for the next milestone, until `timeout` at most, and keeps the pipeline in order meanwhile.
    ///
    /// # Errors
    /// What failed: `Pipeline` or `Resource`, or `MissingElement` where an element would have been needed.
    pub fn wait(&self, timeout: Duration) -> Result<Option<Milestone>> {
        let deadline = Instant::now() + timeout;
        let next = || match self.news.try_recv() {
            // Waiting, even for no time, would give up the processor, and this is asked for each frame.
            Err(_) if !timeout.is_zero() => self.news.recv_deadline(deadline).ok(),
            news => news.ok(),
        };
        while let Some(news) = next() {
            if let Some(milestone) = self.attend(news)? {
                return Ok(Some(milestone));
            }
        }
        Ok(None)
    }

    /// Does what a piece of news asks for; gives the milestone it tells, if it tells one.
    ///
    /// # Errors
    /// As [`Running::wait`].
    pub fn attend(&self, news: News) -> Result<Option<Milestone>> {
        match news {
            News::Prerolled => return Ok(Some(Milestone::Prerolled)),
            News::Ended => return Ok(Some(Milestone::Ended)),
            News::Closed => return Ok(Some(Milestone::Closed)),
            News::Failed(error) => return Err(error),
            // It was logged as the warning that it was.
            News::InTrouble(_) => {}
            News::Latency => {
                if let Err(error) = self.pipeline.recalculate_latency() {
                    tracing::warn!("latency of the pipeline is unknown: {error}");
                }
            }
            News::ClockLost => {
                self.set_state(gst::State::Paused)?;
                self.set_state(gst::State::Playing)?;
            }
        }
        Ok(None)
    }

    /// Sets the pipeline to NULL, and waits until `limit` at most for its threads to end; false if they do
    /// not. A thread that the system makes wait hears of nothing: one that writes to a pipe which nobody
    /// reads. Then the pipeline is left as it is, also when this is dropped.
    pub fn stop_within(&self, limit: Duration) -> bool {
        let (sender, stopped) = crossbeam_channel::bounded(1);
        let pipeline = self.pipeline.clone();
        let stop = move || {
            let _ = pipeline.set_state(gst::State::Null);
            // Nobody waits any more for what took too long.
            let _ = sender.send(());
        };
        if std::thread::Builder::new().name("lockon-stop".to_owned()).spawn(stop).is_err() {
            self.stop();
            return true;
        }
        let is_stopped = stopped.recv_timeout(limit) != Err(RecvTimeoutError::Timeout);
        self.heard.is_left.store(!is_stopped, Ordering::Relaxed);
        is_stopped
    }

    /// Sets the pipeline to NULL, and waits for its threads to end.
    pub fn stop(&self) {
        // A second change of state would wait for the first.
        if self.heard.is_left.load(Ordering::Relaxed) {
            return;
        }
        // Going down to NULL cannot fail usefully: there is nothing left to be done about it.
        let _ = self.pipeline.set_state(gst::State::Null);
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Runs the body of a pad's callback. A panic must not leave it: its caller is C, and the process would end
/// with its files half written. The pad's element fails instead, as if it had failed by itself, and the
/// callback answers `otherwise`.
pub(super) fn guarded<T>(pad: &gst::Pad, otherwise: T, body: impl FnOnce() -> T) -> T {
    catch_panic(body).unwrap_or_else(|message| {
        if let Some(element) = pad.parent_element() {
            gst::element_error!(element, gst::LibraryError::Failed, ("a callback panicked: {message}"));
        }
        otherwise
    })
}

/// Passes on the messages that matter. Runs on the thread that posts the message, so it only sorts.
fn sort(message: &gst::Message, heard: &Heard, sender: &Sender<News>) {
    let news = match message.view() {
        gst::MessageView::AsyncDone(_) => News::Prerolled,
        gst::MessageView::Eos(_) => News::Ended,
        gst::MessageView::Latency(_) => News::Latency,
        gst::MessageView::ClockLost(_) => News::ClockLost,
        gst::MessageView::Error(_) if heard.is_closed.load(Ordering::Relaxed) => return,
        gst::MessageView::Error(error) if is_of_closed_window(error) => {
            heard.is_closed.store(true, Ordering::Relaxed);
            if let Some(control) = heard.control.get() {
                control.stop();
            }
            News::Closed
        }
        gst::MessageView::Error(error) => {
            // A missing plugin was announced by a message of its own; the error itself does not say which.
            let named = heard.missing.lock().ok().and_then(|mut missing| missing.take());
            News::Failed(named.unwrap_or_else(|| bus_error(error)))
        }
        gst::MessageView::Warning(warning) => {
            let (element, said) = (source_name(message), warning.error());
            if said.is::<gst::StreamError>() {
                damage::count();
            }
            let text = without_secrets(said.message()).into_owned();
            if said.matches(gst::CoreError::Clock) && heard.is_late.swap(true, Ordering::Relaxed) {
                tracing::debug!("{element}: {text}");
                return;
            }
            tracing::warn!("{element}: {text}");
            if !said.is::<gst::ResourceError>() {
                return;
            }
            let debug = without_secrets(&warning.debug().unwrap_or_default()).into_owned();
            News::InTrouble(Error::Resource { element, message: text, debug })
        }
        gst::MessageView::Element(element) => {
            if let (Some(error), Ok(mut missing)) =
                (element.structure().and_then(missing_plugin), heard.missing.lock())
            {
                missing.get_or_insert(error);
            }
            return;
        }
        _ => return,
    };
    // Whoever held the pipeline is gone: then nobody needs to know.
    let _ = sender.send(news);
}

/// True if a video output says that somebody closed its window. Nothing but the text tells that from a device
/// that is not there.
fn is_of_closed_window(error: &gst::message::Error) -> bool {
    error.error().matches(gst::ResourceError::NotFound)
        && error.error().message().ends_with("indow was closed")
}

/// What decodebin says, in our words, of an input that has streams but none of the kind that is asked for.
///
/// Its own words are that a plug-in is missing; where that is so, a message of its own has said which.
pub const NOTHING_WANTED: &str = "no stream of the wanted kind";

/// An error message of a bus as `Pipeline`, or as `Resource` where waiting may help: not for another
/// password.
pub fn bus_error(error: &gst::message::Error) -> Error {
    let said = error.error();
    let debug = error.debug().unwrap_or_default();
    // The text for people is translated, the one for developers is not.
    let message = if debug.contains("no suitable plugins found") {
        NOTHING_WANTED.to_owned()
    } else {
        without_secrets(said.message().trim_end_matches('.')).into_owned()
    };
    let debug = without_secrets(&debug).into_owned();
    let element = source_name(error.message());
    if said.is::<gst::ResourceError>() && !said.matches(gst::ResourceError::NotAuthorized) {
        return Error::Resource { element, message, debug };
    }
    Error::Pipeline { element, message, debug }
}

/// What a `missing-plugin` message asks for, as far as that can be named.
fn missing_plugin(structure: &gst::StructureRef) -> Option<Error> {
    if structure.name() != "missing-plugin" {
        return None;
    }
    let element = match structure.get::<&str>("type").ok()? {
        "element" => structure.get::<String>("detail").ok()?,
        "urisource" => match structure.get::<&str>("detail").ok()? {
            "http" | "https" => "souphttpsrc".to_owned(),
            "rtsp" | "rtsps" => "rtspsrc".to_owned(),
            scheme => format!("{scheme}src"),
        },
        "decoder" => {
            let caps = structure.get::<gst::Caps>("detail").ok()?;
            let media = caps.structure(0)?.name();
            let element = match media.as_str() {
                "video/quicktime" => "qtdemux".to_owned(),
                "video/x-matroska" | "video/webm" => "matroskademux".to_owned(),
                "video/x-msvideo" => "avidemux".to_owned(),
                "video/mpegts" => "tsdemux".to_owned(),
                "video/x-vp8" => "vp8dec".to_owned(),
                "video/x-vp9" => "vp9dec".to_owned(),
                "video/x-av1" => "av1dec".to_owned(),
                "image/jpeg" => "jpegdec".to_owned(),
                // libav has nearly every other decoder, under nearly the name of the format.
                other => format!("avdec_{}", other.trim_start_matches("video/").trim_start_matches("x-")),
            };
            // Where the package is installed, what it would be called there does not help: nothing decodes
            // this.
            let has = |name: &str| gst::ElementFactory::find(name).is_some();
            if has(&element) || (element.starts_with("avdec_") && has("avdec_h264")) {
                return Some(nothing_decodes(media));
            }
            element
        }
        _ => return None,
    };
    missing_element(&element)
}

/// No decoder that is installed takes such a stream.
fn nothing_decodes(media: &str) -> Error {
    Error::Pipeline {
        element: "decodebin".to_owned(),
        message: format!(
            "GStreamer has no decoder for {media} (ffmpeg -i FILE -c:v libx264 FILE.mp4 makes H.264 of it)"
        ),
        debug: String::new(),
    }
}

/// Name of the element that posted a message.
fn source_name(message: &gst::MessageRef) -> String {
    message.src().map_or_else(|| "pipeline".to_owned(), |source| source.name().into())
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    /// The arguments that a POSIX shell makes of a line.
    fn through_shell(line: &str) -> Vec<String> {
        let script = format!("for word in {line}; do printf '%s\\n' \"$word\"; done");
        let output = Command::new("sh").args(["-c", &script]).output().unwrap();
        assert!(output.status.success(), "{line}");
        String::from_utf8(output.stdout).unwrap().lines().map(str::to_owned).collect()
    }

    #[test]
    fn printed_line_means_the_same_to_a_shell_and_gst_launch() {
        init().unwrap();
        for location in [
            "/a/b.mp4",
            "/a b/it's.mp4",
            "/$HOME/`x`/\"q\".mp4",
            "/back\\slash",
            "/a!b; rm (x) {y}",
            "/ü *?~",
            "\"",
            "\"quoted\"",
            "\"ü\\\"",
            "NULL",
            "ends in a backslash\\",
        ] {
            let mut launch =
                Launch::new("test", "# a comment\nfilesrc name=input blocksize=512 !\n  fakesink name=out");
            launch.set("input", "location", location).set("out", "sync", false);
            let words = through_shell(&launch.to_string());
            let words = words.iter().map(String::as_str).collect::<Vec<_>>();
            let pipeline = gst::parse::launchv(&words).unwrap().downcast::<gst::Pipeline>().unwrap();
            let input = pipeline.by_name("input").unwrap();
            assert_eq!(input.property::<String>("location"), location, "{launch}");
            assert_eq!(input.property::<u32>("blocksize"), 512);

            let built = launch.build().unwrap().by_name("input").unwrap();
            assert_eq!(built.property::<String>("location"), location);
        }
    }

    #[test]
    fn text_typed_with_quotes_survives_being_printed() {
        init().unwrap();
        let text = r#"videotestsrc ! capsfilter caps="video/x-raw, format=(string){ I420, NV12 }" ! filesink name=f location=/a\ b"#;
        let words = through_shell(&Launch::new("test", text).to_string());
        let words = words.iter().map(String::as_str).collect::<Vec<_>>();
        let pipeline = gst::parse::launchv(&words).unwrap().downcast::<gst::Pipeline>().unwrap();
        assert_eq!(pipeline.by_name("f").unwrap().property::<String>("location"), "/a b");
    }

    #[test]
    fn an_element_that_is_known_but_missing_names_its_package() {
        let error = Launch::new("test", "fakesrc ! vaapipostproc ! fakesink").build().unwrap_err();
        assert!(matches!(error, Error::MissingElement { package: "gstreamer1.0-vaapi", .. }), "{error}");
    }

    #[test]
    fn wrong_text_is_wrong_usage_and_says_what_is_wrong() {
        let said = |launch: &Launch| {
            let error = launch.build().unwrap_err();
            assert!(error.is_usage(), "{error}");
            error.to_string()
        };
        let text = |text| Launch::new("--source", text);
        assert!(said(&text("fakesrc ! vidoeconvert ! fakesink")).contains("no element \"vidoeconvert\""));
        assert!(said(&text("fakesrc speed=3 ! fakesink")).contains("\"speed\""));
        assert!(said(&text("fakesrc ! ! fakesink")).contains("--source"));
        assert!(said(&text("audiotestsrc ! videoconvert ! fakesink")).contains("link"));
        assert!(said(text("fakesrc ! fakesink name=f").set("g", "sync", true)).contains("named \"g\""));
        assert!(
            said(text("fakesrc ! fakesink name=f").set("f", "snc", true)).contains("no property \"snc\"")
        );
        assert!(said(text("fakesrc ! fakesink name=f").set("f", "sync", "perhaps")).contains("cannot be"));
        assert!(said(&Launch::new("--source", "")).contains("--source"));
        assert!(Launch::user("--source", "# nothing").unwrap_err().is_usage());
    }

    #[test]
    #[cfg(unix)]
    fn a_pipeline_file_without_end_is_not_read_to_its_end() {
        assert!(matches!(Launch::user("--source", "@/dev/zero"), Err(Error::File { .. })));
    }

    #[test]
    fn elements_are_put_in_front_of_a_named_one() {
        let mut launch =
            Launch::new("test", "videotestsrc ! appsink sync=false name=frames  fakesrc ! fakesink");
        launch.insert_before("frames", "videoconvert ! videoflip").unwrap();
        let expected =
            "videotestsrc ! videoconvert ! videoflip ! appsink sync=false name=frames fakesrc ! fakesink";
        assert_eq!(launch.to_string(), expected);
        assert!(launch.sets("frames", "sync") && !launch.sets("frames", "num-buffers"));
        launch.set("frames", "sync", true).set("frames", "max-buffers", 1);
        assert!(
            launch.to_string().contains("! appsink sync=true name=frames max-buffers=1 fakesrc"),
            "{launch}"
        );
        assert!(Launch::new("test", "appsink name=frames").insert_before("frames", "identity").is_err());
    }

    #[test]
    fn a_panic_in_a_callback_fails_its_element() {
        crate::say::panic_follows();
        let pipeline = Launch::new("test", "videotestsrc ! fakesink name=out").build().unwrap();
        let running = Running::new(pipeline);
        let pad = running.pipeline().by_name("out").unwrap().static_pad("sink").unwrap();
        pad.add_probe(gst::PadProbeType::BUFFER, |pad, _| {
            guarded(pad, gst::PadProbeReturn::Ok, || panic!("on purpose"))
        });
        running.set_state(gst::State::Playing).unwrap();
        let second = Duration::from_secs(10);
        let error =
            std::iter::repeat_with(|| running.wait(second)).find_map(Result::err).unwrap().to_string();
        assert!(error.starts_with("out: a callback panicked: on purpose"), "{error}");
    }

    #[test]
    fn source_and_sinks_become_one_pipeline() {
        let mut source = Launch::new(
            "test",
            "filesrc name=file ! decodebin ! tee name=t ! appsink name=frames sync=false t. ! fakesink",
        );
        source.set("file", "location", "in").set("frames", "max-buffers", 1);
        let joined = source.joined("identity", &[]).unwrap().to_string();
        let expected = "filesrc name=file location=in ! decodebin ! tee name=t ! identity name=identity ! fakesink t. ! fakesink";
        assert_eq!(joined, expected);
        let mut first = Launch::new(
            "test",
            "audiotestsrc ! mux. appsrc name=results ! avimux name=mux ! filesink name=file",
        );
        first.set("file", "location", "out");
        let second = Launch::new("test", "appsrc name=results ! mux.video_0 qtmux name=mux ! fakesink");
        let both = source.joined("identity", &[first.clone(), second]).unwrap().to_string();
        for part in [
            "filesrc name=file location=in ! ",
            "! identity name=identity ! tee name=outputs outputs. ! queue ",
            "! avimux name=mux ! filesink name=file2 location=out audiotestsrc ! mux. outputs. ! queue ",
            "! mux2.video_0 qtmux name=mux2 ! fakesink t. ! fakesink",
        ] {
            assert!(both.contains(part), "{part} is not in {both}");
        }
        assert!(first.joined("identity", &[]).unwrap_err().to_string().contains("frames"));
        assert!(source.joined("identity", &[source.clone()]).unwrap_err().to_string().contains("results"));
    }

    #[test]
    fn a_running_pipeline_tells_its_end_and_its_failure() {
        let text = "videotestsrc num-buffers=3 ! fakesink";
        let running = Running::new(Launch::new("test", text).build().unwrap());
        running.set_state(gst::State::Playing).unwrap();
        let second = Duration::from_secs(10);
        assert_eq!(running.wait(second).unwrap(), Some(Milestone::Prerolled));
        assert_eq!(running.wait(second).unwrap(), Some(Milestone::Ended));
        let pipeline = running.pipeline().clone();
        drop(running);
        assert_eq!(pipeline.current_state(), gst::State::Null);

        let text = "filesrc location=/nowhere/at/all ! fakesink";
        let running = Running::new(Launch::new("test", text).build().unwrap());
        let error = running.set_state(gst::State::Playing).unwrap_err().to_string();
        assert!(error.contains("/nowhere/at/all") || error.contains("No such file"), "{error}");
    }
}
