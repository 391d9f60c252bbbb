//! Values that remember how they were typed.

use std::fmt;
use std::ops::Deref;
use std::str::FromStr;

use crate::config::{Angles, Scales};
use crate::error::{Error, Result};

/// A value with the text that it was typed as, where the value alone does not give the text.
#[derive(Debug, Clone, PartialEq)]
pub struct Typed<T> {
    text: String,
    value: T,
}

impl<T: FromStr<Err = Error>> Typed<T> {
    /// The value of a text that is known to have one.
    ///
    /// # Panics
    /// If it has none.
    pub fn of(text: &str) -> Self {
        text.parse().unwrap_or_else(|error: Error| panic!("{error}"))
    }
}

impl Default for Typed<Scales> {
    fn default() -> Self {
        Self::of("1")
    }
}

impl Default for Typed<Angles> {
    fn default() -> Self {
        Self::of("0")
    }
}

impl<T: FromStr<Err = Error>> FromStr for Typed<T> {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        Ok(Self { value: text.parse()?, text: text.to_owned() })
    }
}

impl<T> fmt::Display for Typed<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl<T> Deref for Typed<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.value
    }
}
