//! Reads values from the command line, and chooses those that completions offer.

use std::ffi::OsStr;
use std::marker::PhantomData;
use std::str::FromStr;

use clap::builder::{PossibleValue, TypedValueParser};
use clap::{Arg, Command};

/// Reads a value of the library. The error does not contain the value, since clap names it before.
pub(super) fn read<T: FromStr<Err = lockon::Error>>(text: &str) -> Result<T, String> {
    text.parse().map_err(|error| match error {
        lockon::Error::Value { expected, .. } => expected,
        other => other.to_string(),
    })
}

/// Reads a value as [`read`] does, and offers some values to completions.
#[derive(Clone)]
pub(super) struct Offering<T> {
    names: Vec<&'static str>,
    value: PhantomData<fn() -> T>,
}

/// A parser that offers these names. Others may be understood too.
pub(super) fn offering<T>(names: impl IntoIterator<Item = &'static str>) -> Offering<T> {
    Offering { names: names.into_iter().collect(), value: PhantomData }
}

impl<T> TypedValueParser for Offering<T>
where
    T: FromStr<Err = lockon::Error> + Clone + Send + Sync + 'static,
{
    type Value = T;

    fn parse_ref(&self, command: &Command, arg: Option<&Arg>, value: &OsStr) -> Result<T, clap::Error> {
        TypedValueParser::parse_ref(&read::<T>, command, arg, value)
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        Some(Box::new(self.names.iter().map(PossibleValue::new)))
    }
}
