//! Values in records and orders that are written as people type them: boxes, thresholds, scales.

use std::fmt::Display;
use std::str::FromStr;

use serde::de::{Deserialize, Deserializer, Error};
use serde::ser::Serializer;

pub(crate) fn serialize<T: Display, S: Serializer>(value: &T, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(value)
}

pub(crate) fn deserialize<'a, T: FromStr<Err: Display>, D: Deserializer<'a>>(
    deserializer: D,
) -> Result<T, D::Error> {
    String::deserialize(deserializer)?.parse().map_err(D::Error::custom)
}

/// Values that may be missing.
pub(crate) mod maybe {
    use super::{Deserialize, Deserializer, Display, Error, FromStr, Serializer};

    #[expect(clippy::ref_option, reason = "serde gives it so")]
    pub(crate) fn serialize<T: Display, S: Serializer>(
        value: &Option<T>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        match value {
            Some(value) => serializer.collect_str(value),
            None => serializer.serialize_none(),
        }
    }

    pub(crate) fn deserialize<'a, T: FromStr<Err: Display>, D: Deserializer<'a>>(
        deserializer: D,
    ) -> Result<Option<T>, D::Error> {
        let text = Option::<String>::deserialize(deserializer)?;
        text.map(|text| text.parse().map_err(D::Error::custom)).transpose()
    }
}

/// Values that can be set to "none" explicitly, by `null`.
pub(crate) mod or_null {
    #![expect(clippy::option_option, reason = "to leave it, to have none, and to have this are three things")]

    use super::{Deserializer, Display, FromStr, Serializer, maybe};

    #[expect(clippy::ref_option, reason = "serde gives it so")]
    pub(crate) fn serialize<T: Display, S: Serializer>(
        value: &Option<Option<T>>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        maybe::serialize(&value.as_ref().and_then(Option::as_ref), serializer)
    }

    pub(crate) fn deserialize<'a, T: FromStr<Err: Display>, D: Deserializer<'a>>(
        deserializer: D,
    ) -> Result<Option<Option<T>>, D::Error> {
        maybe::deserialize(deserializer).map(Some)
    }
}
