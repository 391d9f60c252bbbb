//! Parts of an HTTP request, with errors that name the wrong part and the expected form. Errors of axum and
//! serde name Rust types instead.

use axum::Json;
use axum::extract::path::ErrorKind;
use axum::extract::rejection::{JsonRejection, PathRejection};
use axum::extract::{self, FromRequestParts};
use axum::http::request::Parts;
use serde::de::DeserializeOwned;

use super::orders::{Refused, refuse};

/// A body or a query that can be described in an error.
pub(super) trait Form {
    /// An example of all of it, with placeholders for values.
    const FORM: &'static str;
}

/// A body, or the reason why it is invalid.
pub(super) type Sent<T> = Result<Json<T>, JsonRejection>;

/// The body, or the reason why it is refused.
pub(super) fn sent<T: Form>(body: Sent<T>) -> Result<T, Refused> {
    body.map(|Json(body)| body).map_err(|error| {
        let said = error.body_text();
        match &error {
            JsonRejection::JsonDataError(_) => refuse(error.status(), &explained(&said, T::FORM)),
            _ => refuse(error.status(), &said),
        }
    })
}

/// axum's `Path`, which refuses with words for people.
pub(super) struct Path<T>(pub(super) T);

impl<T: DeserializeOwned + Send, S: Send + Sync> FromRequestParts<S> for Path<T> {
    type Rejection = Refused;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Refused> {
        let path = extract::Path::from_request_parts(parts, state).await;
        path.map(|extract::Path(value)| Self(value)).map_err(|error| refuse(error.status(), &in_path(&error)))
    }
}

fn in_path(error: &PathRejection) -> String {
    let PathRejection::FailedToDeserializePathParams(failed) = error else { return error.body_text() };
    let number = |of: &str, value: &str| format!("{of} {value:?}: expected a whole number");
    match failed.kind() {
        ErrorKind::ParseError { value, .. } | ErrorKind::ParseErrorAtIndex { index: 0, value, .. } => {
            number("video", value)
        }
        ErrorKind::ParseErrorAtIndex { value, .. } => number("track", value),
        ErrorKind::InvalidUtf8InPathParam { key } => format!("{key}: expected UTF-8"),
        _ => error.body_text(),
    }
}

/// axum's `Query`, which refuses with words for people.
pub(super) struct Query<T>(pub(super) T);

impl<T: DeserializeOwned + Form, S: Send + Sync> FromRequestParts<S> for Query<T> {
    type Rejection = Refused;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Refused> {
        let query = extract::Query::from_request_parts(parts, state).await;
        query.map(|extract::Query(value)| Self(value)).map_err(|error| {
            let said = error.body_text();
            let key = said.split(": ").nth(1).filter(|key| !key.contains(' '));
            let key = key.map(|key| format!("{key}: ")).unwrap_or_default();
            refuse(error.status(), &format!("{key}expected {}", T::FORM))
        })
    }
}

/// Returns serde's message about a value, with the form in the place of its types:
/// `box[0]: string "a" is wrong: expected ...`.
fn explained(said: &str, form: &str) -> String {
    let said = said.split_once(": ").map_or(said, |(_, said)| said);
    let said = said.split_once(", expected ").map_or(said, |(said, _)| said);
    let said = said.rsplit_once(" at line ").map_or(said, |(said, _)| said);
    // The beginnings of serde's errors.
    let words = [
        ("invalid type: ", ""),
        ("invalid value: ", ""),
        ("invalid length ", "length "),
        ("missing field ", "missing key "),
        ("unknown field ", "unknown key "),
        ("unknown variant ", "unknown key "),
        ("duplicate field ", "second key "),
        ("data did not match any variant", ""),
    ];
    let found = words.iter().filter_map(|(theirs, ours)| Some((said.find(theirs)?, *theirs, *ours)));
    let Some((at, theirs, ours)) = found.min() else { return format!("{said}: expected {form}") };
    let (place, what) = (&said[..at], &said[at + theirs.len()..]);
    if theirs.starts_with("data") {
        return format!("{place}expected {form}");
    }
    let nouns =
        [("sequence", "array"), ("map", "object"), ("floating point", "number"), ("integer", "number")];
    let noun = nouns.iter().find_map(|(theirs, ours)| Some((ours, what.strip_prefix(theirs)?)));
    let what = noun
        .filter(|_| ours.is_empty())
        .map_or_else(|| what.to_owned(), |(noun, rest)| format!("{noun}{rest}"));
    let verb = if ours.is_empty() || ours == "length " { " is wrong" } else { "" };
    format!("{place}{ours}{what}{verb}: expected {form}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_says_which_field_is_wrong_and_what_is_expected() {
        for (said, expected) in [
            (
                "x: box[0]: invalid type: string \"a\", expected u32 at line 1 column 9",
                "box[0]: string \"a\" is wrong: expected F",
            ),
            (
                "x: box: invalid type: map, expected an array of length 4 at line 1 column 7",
                "box: object is wrong: expected F",
            ),
            (
                "x: box[3]: invalid value: integer `-4`, expected u32 at line 1",
                "box[3]: number `-4` is wrong: expected F",
            ),
            (
                "x: invalid length 0, expected struct Drawn with 2 elements at line 1 column 2",
                "length 0 is wrong: expected F",
            ),
            ("x: missing field `box` at line 1 column 2", "missing key `box`: expected F"),
            (
                "x: more: unknown field `more`, expected `box` or `frame` at line 1",
                "more: unknown key `more`: expected F",
            ),
            ("x: speed: data did not match any variant of untagged enum AskedSpeed", "speed: expected F"),
            ("x: name: invalid type: sequence, expected a string", "name: array is wrong: expected F"),
        ] {
            assert_eq!(explained(said, "F"), expected);
        }
    }
}
