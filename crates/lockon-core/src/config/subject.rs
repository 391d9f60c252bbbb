//! Selects the results that are hidden in written pictures: all, or some of them.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use crate::error::{Error, Result};

/// Tracks and matches that are meant: `all`, a track's number, or the name of a track, template or class.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Subject {
    /// Every track and every match.
    All,
    /// The track of that number.
    Track(u32),
    /// The track, the tracks or the matches of that name.
    Named(Arc<str>),
}

impl Subject {
    /// True if it means a track of that number, or something of that name or template.
    pub fn means(&self, track: Option<u32>, names: [Option<&str>; 2]) -> bool {
        match self {
            Self::All => true,
            Self::Track(id) => track == Some(*id),
            Self::Named(name) => names.contains(&Some(&**name)),
        }
    }
}

impl FromStr for Subject {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let expected = "expected all, a track's number (1 or more), or a name without control characters";
        match text {
            "all" => Ok(Self::All),
            _ if text.is_empty() || text.chars().any(char::is_control) => {
                Err(Error::value("subject", text, expected))
            }
            _ if text.bytes().all(|byte| byte.is_ascii_digit()) => match text.parse() {
                Ok(id) if id > 0 => Ok(Self::Track(id)),
                _ => Err(Error::value("subject", text, expected)),
            },
            name => Ok(Self::Named(name.into())),
        }
    }
}

impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::All => f.write_str("all"),
            Self::Track(id) => id.fmt(f),
            Self::Named(name) => f.write_str(name),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_subject_is_all_a_number_or_a_name_and_comes_back() {
        for (text, subject) in
            [("all", Subject::All), ("12", Subject::Track(12)), ("a b", Subject::Named("a b".into()))]
        {
            assert_eq!(text.parse::<Subject>().unwrap(), subject);
            assert_eq!(subject.to_string(), text);
        }
        for text in ["", "0", "99999999999", "a\nb"] {
            assert!(text.parse::<Subject>().is_err(), "{text:?}");
        }
    }
}
