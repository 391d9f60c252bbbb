//! Requests as files: TOML or JSON, a key for each field that is set, named as on the command line.

use std::ffi::OsString;
use std::fmt;
use std::path::Path;

use serde::de::{self, Deserialize, DeserializeSeed, Deserializer, MapAccess, Visitor};
use serde::ser::{Error as _, Serialize, SerializeMap, Serializer};

use super::{FIELDS, Field, Number, Request, Secret, Shape, shown_receiver};
use lockon_core::error::{Error, Result};
use lockon_core::files;
use lockon_core::text;

/// Columns of a line that an error shows with a mark under it.
const MOST_SHOWN: usize = 200;

/// The error of TOML text, and its place. Shows the line, unless it is long.
fn toml_reason(text: &str, error: &toml::de::Error) -> String {
    let whole = error.to_string();
    if whole.lines().all(|line| line.len() <= MOST_SHOWN) {
        return whole.trim_end().to_owned();
    }
    let reason = text::shortened(error.message());
    let Some(before) = error.span().and_then(|span| text.get(..span.start)) else {
        return reason.into_owned();
    };
    let (line, column) = before.chars().fold((1, 1), |(line, column), c| match c {
        '\n' => (line + 1, 1),
        _ => (line, column + 1),
    });
    format!("TOML parse error at line {line}, column {column}: {reason}")
}

impl Request {
    /// Reads a job file: JSON if its name ends in `.json`, else TOML. Paths in it are relative to the folder
    /// in which the program runs, as on the command line.
    ///
    /// # Errors
    /// `File` if it cannot be read; `Usage` if it is no job, with the place.
    pub fn read(path: &Path) -> Result<Self> {
        let text = files::read_text(path)?;
        let is_json = path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("json"));
        let read = if is_json { Self::from_json(&text) } else { Self::from_toml(&text) };
        read.map_err(|error| Error::Usage(format!("{}: {error}", path.display())))
    }

    /// Reads TOML.
    ///
    /// # Errors
    /// `Usage`, with the place.
    pub fn from_toml(text: &str) -> Result<Self> {
        toml::from_str(text).map_err(|error| Error::Usage(toml_reason(text, &error)))
    }

    /// Reads JSON.
    ///
    /// # Errors
    /// `Usage`, with the place.
    pub fn from_json(text: &str) -> Result<Self> {
        Self::from_json_over(text, &Self::default())
    }

    /// Reads JSON; fields without a key keep their values of `base`.
    ///
    /// # Errors
    /// `Usage`, with the place.
    pub fn from_json_over(text: &str, base: &Self) -> Result<Self> {
        let mut json = serde_json::Deserializer::from_str(text);
        let read = Over(base).deserialize(&mut json).and_then(|request| json.end().map(|()| request));
        read.map_err(|error| Error::Usage(text::shortened(&error.to_string()).into_owned()))
    }

    /// The request as TOML.
    ///
    /// # Errors
    /// `Usage` if a name in it is not UTF-8.
    pub fn to_toml(&self) -> Result<String> {
        toml::to_string(self).map_err(|error| Error::Usage(error.to_string()))
    }

    /// The request as JSON in one line, for lists of videos.
    ///
    /// # Errors
    /// `Usage` if a name in it is not UTF-8.
    pub fn to_json(&self) -> Result<String> {
        serde_json::to_string(self).map_err(|error| Error::Usage(error.to_string()))
    }

    /// The request without passwords in addresses and in pipeline text, and without paths of web receivers,
    /// for display; and whether it had any.
    #[must_use]
    pub fn without_secrets(&self) -> (Self, bool) {
        let mut open = self.clone();
        let mut had_any = false;
        for (field, secret) in FIELDS.iter().filter_map(|field| Some((field, field.spec.secret?))) {
            let shown = |typed: &str| match secret {
                Secret::Receiver => shown_receiver(typed),
                Secret::Login => text::address_without_secrets(typed).into_owned(),
            };
            let hide = |typed: OsString| match typed.to_str().map(shown) {
                Some(hidden) if Some(&*hidden) != typed.to_str() => {
                    had_any = true;
                    hidden.into()
                }
                _ => typed,
            };
            let hidden: Vec<OsString> = field.texts(self).into_iter().map(hide).collect();
            // A value that cannot be read without its password is left out.
            if field.put(&mut open, &hidden).is_err() {
                let _ = field.put(&mut open, &[]);
            }
        }
        (open, had_any)
    }
}

impl Serialize for Request {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        for field in FIELDS.iter().filter(|field| field.is_set(self)) {
            let texts = field.texts(self);
            let texts: Option<Vec<&str>> = texts.iter().map(|text| text.to_str()).collect();
            let texts = texts.ok_or_else(|| {
                S::Error::custom(format!(
                    "{}: a name that is not UTF-8 cannot be in a job file",
                    field.option()
                ))
            })?;
            let invariant = "a number's text is a number";
            match (field.shape, field.number, &texts[..]) {
                (Shape::Switch, ..) => map.serialize_entry(field.name, &!texts.is_empty())?,
                (Shape::List, ..) => map.serialize_entry(field.name, &texts)?,
                (_, Number::Real, [text]) => {
                    map.serialize_entry(field.name, &text.parse::<f64>().expect(invariant))?;
                }
                (_, Number::Whole | Number::Long, [text]) => {
                    map.serialize_entry(field.name, &text.parse::<u64>().expect(invariant))?;
                }
                (_, _, [text]) => map.serialize_entry(field.name, text)?,
                _ => unreachable!("what is set has one value"),
            }
        }
        map.end()
    }
}

/// The value of a key.
struct Given(Vec<OsString>);

impl<'de> Deserialize<'de> for Given {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Read;

        impl<'de> Visitor<'de> for Read {
            type Value = Given;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("text, a number, true, false, or a list of these")
            }

            fn visit_bool<E>(self, value: bool) -> Result<Given, E> {
                Ok(Given(vec![value.to_string().into()]))
            }

            fn visit_i64<E>(self, value: i64) -> Result<Given, E> {
                Ok(Given(vec![value.to_string().into()]))
            }

            fn visit_u64<E>(self, value: u64) -> Result<Given, E> {
                Ok(Given(vec![value.to_string().into()]))
            }

            // Numbers that no field has, so that the error names the range.
            fn visit_i128<E>(self, value: i128) -> Result<Given, E> {
                Ok(Given(vec![value.to_string().into()]))
            }

            fn visit_u128<E>(self, value: u128) -> Result<Given, E> {
                Ok(Given(vec![value.to_string().into()]))
            }

            fn visit_f64<E>(self, value: f64) -> Result<Given, E> {
                Ok(Given(vec![value.to_string().into()]))
            }

            fn visit_str<E>(self, value: &str) -> Result<Given, E> {
                Ok(Given(vec![value.into()]))
            }

            fn visit_seq<A: de::SeqAccess<'de>>(self, mut items: A) -> Result<Given, A::Error> {
                let mut texts = Vec::new();
                while let Some(Given(item)) = items.next_element()? {
                    texts.extend(item);
                }
                Ok(Given(texts))
            }
        }
        deserializer.deserialize_any(Read)
    }
}

impl<'de> Deserialize<'de> for Request {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Over(&Self::default()).deserialize(deserializer)
    }
}

/// Reads a job on top of an existing request.
struct Over<'a>(&'a Request);

impl<'de> DeserializeSeed<'de> for Over<'_> {
    type Value = Request;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Request, D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Over<'_> {
    type Value = Request;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a job: a key for each option")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Request, A::Error> {
        let mut request = self.0.clone();
        while let Some(key) = map.next_key::<String>()? {
            let Some(field) = Field::named(&key) else {
                let near = near(&key).map_or_else(String::new, |near| format!(" (is {near} meant?)"));
                return Err(de::Error::custom(format!("a job has no key {key:?}{near}")));
            };
            let Given(texts) = map.next_value()?;
            field.put(&mut request, &texts).map_err(|what| de::Error::custom(format!("{key}: {what}")))?;
        }
        Ok(request)
    }
}

/// The field whose name is most like a key, if one is.
fn near(key: &str) -> Option<&'static str> {
    let key = key.replace('_', "-").to_lowercase();
    let is_like = |field: &&Field| {
        field.name == key || field.name.starts_with(&key) || key.strip_suffix('s') == Some(field.name)
    };
    FIELDS.iter().find(is_like).map(|field| field.name)
}
