//! Messages that name settings of a run, which the program and the GStreamer element write in their own ways.

use std::borrow::Cow;
use std::fmt;

/// How settings are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Dialect {
    /// As options of the program: `--backend cpu`.
    Options,
    /// As properties of the element: `backend=cpu`.
    Properties,
    /// As arguments of Python's functions: `device="cpu"`.
    Arguments,
}

/// A setting in a message: its name, such as `backend`, perhaps with a value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Setting {
    name: &'static str,
    value: Option<Cow<'static, str>>,
}

impl Setting {
    /// A setting without a value.
    pub const fn named(name: &'static str) -> Self {
        Self { name, value: None }
    }

    /// A setting with a value.
    pub const fn with(name: &'static str, value: &'static str) -> Self {
        Self { name, value: Some(Cow::Borrowed(value)) }
    }

    /// A setting with a value that is known at run time.
    pub fn of(name: &'static str, value: &impl fmt::Display) -> Self {
        Self { name, value: Some(value.to_string().into()) }
    }

    fn told(&self, dialect: Dialect) -> String {
        match (dialect, &self.value) {
            (Dialect::Options, Some(value)) => format!("--{} {value}", self.name),
            (Dialect::Options, None) => format!("--{}", self.name),
            (Dialect::Properties, Some(value)) => format!("{}={value}", self.name),
            (Dialect::Properties, None) => self.name.to_owned(),
            (Dialect::Arguments, Some(value)) => format!("{}=\"{value}\"", argument(self.name)),
            (Dialect::Arguments, None) => argument(self.name),
        }
    }
}

/// The name that a setting has as an argument in Python.
pub(crate) fn argument(name: &str) -> String {
    if name == "backend" { "device".to_owned() } else { name.replace('-', "_") }
}

/// The CPU as the device.
pub const ON_CPU: Setting = Setting::with("backend", "cpu");

/// The search from coarse to fine.
pub const PYRAMID: Setting = Setting::with("search", "pyramid");

/// A text that names settings. As text it has those of [`Dialect::Options`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message {
    /// The text in front of each setting, and behind the last one.
    parts: Vec<Cow<'static, str>>,
    settings: Vec<Setting>,
}

impl Message {
    /// Returns a text in which each `{}` is replaced by the next setting. Other text, which may have braces
    /// of its own, is appended by [`Self::followed_by`].
    ///
    /// # Panics
    /// If there are not as many `{}` as settings.
    pub fn new(text: &'static str, settings: impl IntoIterator<Item = Setting>) -> Self {
        let (parts, settings): (Vec<_>, Vec<_>) =
            (text.split("{}").map(Cow::Borrowed).collect(), settings.into_iter().collect());
        assert_eq!(parts.len(), settings.len() + 1, "{text}");
        Self { parts, settings }
    }

    /// Appends text as it is.
    #[must_use]
    pub fn followed_by(mut self, text: &str) -> Self {
        self.parts.last_mut().expect("a message has text").to_mut().push_str(text);
        self
    }

    /// Appends another message.
    #[must_use]
    pub fn and(mut self, other: Self) -> Self {
        let mut parts = other.parts.into_iter();
        self = self.followed_by(&parts.next().unwrap_or_default());
        self.parts.extend(parts);
        self.settings.extend(other.settings);
        self
    }

    /// True if the message names this setting.
    pub fn names(&self, setting: &Setting) -> bool {
        self.settings.contains(setting)
    }

    /// The text with its settings in a dialect.
    pub fn told(&self, dialect: Dialect) -> String {
        let settings = self.settings.iter().map(|setting| setting.told(dialect));
        let settings = settings.chain([String::new()]);
        self.parts.iter().zip(settings).fold(String::new(), |told, (part, setting)| told + part + &setting)
    }
}

impl fmt::Display for Message {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.told(Dialect::Options))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_options_of_the_program_and_properties_of_the_element() {
        let message =
            Message::new("use a smaller {} if it is not 1, or {}", [Setting::named("depth"), ON_CPU]);
        assert_eq!(message.to_string(), "use a smaller --depth if it is not 1, or --backend cpu");
        assert_eq!(message.told(Dialect::Properties), "use a smaller depth if it is not 1, or backend=cpu");
        let told = message.told(Dialect::Arguments);
        assert_eq!(told, "use a smaller depth if it is not 1, or device=\"cpu\"");
        let message = message.and(Message::new(" and no {}", [Setting::named("kernel")]));
        assert!(message.told(Dialect::Properties).ends_with("or backend=cpu and no kernel"));
        assert!(message.names(&ON_CPU) && !message.names(&Setting::named("backend")));
        // Braces of values and of text that is appended stay.
        let message = Message::new("{}: line ", [Setting::of("control", &"{}")]).followed_by("7 is {}");
        assert_eq!(message.told(Dialect::Properties), "control={}: line 7 is {}");
    }
}
