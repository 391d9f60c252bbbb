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
        }
    }
}

/// The CPU as the device.
pub const ON_CPU: Setting = Setting::with("backend", "cpu");

/// The search from coarse to fine.
pub const PYRAMID: Setting = Setting::with("search", "pyramid");

/// A text in which `{}` stands for settings. As text it has those of [`Dialect::Options`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message {
    text: Cow<'static, str>,
    settings: Vec<Setting>,
}

impl Message {
    /// A text with as many `{}` as there are settings.
    pub fn new(text: impl Into<Cow<'static, str>>, settings: impl IntoIterator<Item = Setting>) -> Self {
        let (text, settings) = (text.into(), settings.into_iter().collect::<Vec<_>>());
        debug_assert_eq!(text.matches("{}").count(), settings.len(), "{text}");
        Self { text, settings }
    }

    /// True if the message names this setting.
    pub fn names(&self, setting: &Setting) -> bool {
        self.settings.contains(setting)
    }

    /// The message, and more behind it.
    #[must_use]
    pub fn and(mut self, text: &str, settings: impl IntoIterator<Item = Setting>) -> Self {
        self.text = (self.text.into_owned() + text).into();
        self.settings.extend(settings);
        self
    }

    /// The text with its settings in a dialect.
    pub fn told(&self, dialect: Dialect) -> String {
        let mut settings = self.settings.iter();
        let mut parts = self.text.split("{}");
        let mut told = parts.next().unwrap_or_default().to_owned();
        for part in parts {
            told += &settings.next().map_or_else(String::new, |setting| setting.told(dialect));
            told += part;
        }
        told
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
        let message = message.and(" and no {}", [Setting::named("kernel")]);
        assert!(message.told(Dialect::Properties).ends_with("or backend=cpu and no kernel"));
        assert!(message.names(&ON_CPU) && !message.names(&Setting::named("backend")));
        // Values have no braces of their own.
        let message = Message::new("{} has nothing to do here", [Setting::of("kernel", &"{}")]);
        assert_eq!(message.to_string(), "--kernel {} has nothing to do here");
    }
}
