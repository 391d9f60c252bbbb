//! Errors of the server: which are permanent, and after which a retry may work.

use std::fmt::Display;

use async_nats::jetstream::context::{
    CreateStreamError, CreateStreamErrorKind, GetStreamError, GetStreamErrorKind, PublishError,
};
use async_nats::jetstream::{self, ErrorCode};

use super::Store;
use lockon_core::error::Error;
use lockon_core::locks::lock;
use lockon_core::text;

/// The client's error for messages that are larger than the server accepts.
pub(super) const TOO_LARGE: &str = "max payload size exceeded";

/// Permanent errors besides those of [`FULL`]: the server lacks another resource, or stores nothing.
const REFUSALS: [ErrorCode; 9] = [
    ErrorCode::MAXIMUM_CONSUMERS_LIMIT,
    ErrorCode::MAXIMUM_STREAMS_LIMIT,
    ErrorCode::MEMORY_RESOURCES_EXCEEDED,
    ErrorCode::NO_LIMITS,
    ErrorCode::JETSTREAM_NOT_ENABLED_FOR_ACCOUNT,
    ErrorCode::JETSTREAM_NOT_ENABLED,
    ErrorCode::STREAM_HEADER_EXCEEDS_MAXIMUM,
    ErrorCode::STREAM_LIMITS,
    ErrorCode::STREAM_MESSAGE_EXCEEDS_MAXIMUM,
];

/// Errors of a server whose storage is full.
const FULL: [ErrorCode; 5] = [
    ErrorCode::ACCOUNT_RESOURCES_EXCEEDED,
    ErrorCode::INSUFFICIENT_RESOURCES,
    ErrorCode::STORAGE_RESOURCES_EXCEEDED,
    ErrorCode::STREAM_MAX_STREAM_BYTES_EXCEEDED,
    ErrorCode::STREAM_STORE_FAILED,
];

/// Explains these errors.
const IS_FULL: &str = "its storage is full";

impl Store {
    /// The error of a request to the server: `Refused`, with the server's own words, if it refuses the
    /// request; `Unreachable` if a retry may work.
    pub(super) fn away(&self, error: impl std::error::Error + 'static) -> Error {
        let said = error.to_string();
        // Requests and messages have errors of different types, with the same words.
        if said.contains(TOO_LARGE) {
            return self.refused(format!("{said}: raise max_payload in the server's configuration"));
        }
        match source::<jetstream::Error>(&error) {
            Some(answer) => self.answered(answer),
            None => match lock(&self.denied).take() {
                Some(denied) => self.refused(denied),
                None => self.silent(said),
            },
        }
    }

    /// The error for an answer of the server.
    fn answered(&self, answer: &jetstream::Error) -> Error {
        if FULL.contains(&answer.error_code()) {
            self.refused(format!(
                "{answer}: {IS_FULL}: run `lockon jobs cancel --all` and `lockon jobs purge --all`, or raise \
                 max_file_store in the server's configuration"
            ))
        } else if REFUSALS.contains(&answer.error_code()) {
            self.refused(answer)
        } else {
            self.silent(answer)
        }
    }

    pub(super) fn refused(&self, said: impl Display) -> Error {
        Error::Refused { input: self.server.clone(), reason: of_server(&said) }
    }

    pub(super) fn silent(&self, said: impl Display) -> Error {
        Error::Unreachable { input: self.server.clone(), reason: of_server(&said) }
    }

    pub(super) fn not_made(&self, error: CreateStreamError) -> Error {
        match error.kind() {
            CreateStreamErrorKind::JetStream(answer) => self.answered(&answer),
            _ => self.away(error),
        }
    }
}

/// True for the error of a message that is larger than the server accepts.
pub(crate) fn is_too_large(error: &Error) -> bool {
    matches!(error, Error::Refused { reason, .. } if reason.contains(TOO_LARGE))
}

/// True for the error of a server whose storage is full.
pub(crate) fn is_full(error: &Error) -> bool {
    matches!(error, Error::Refused { reason, .. } if reason.contains(IS_FULL))
}

/// A reason of the server's, in one line: it may quote what strangers stored.
fn of_server(said: &impl Display) -> String {
    format!("the farm's server: {}", text::in_one_line(&said.to_string()))
}

/// True for the answer that there is no such stream.
pub(super) fn is_lost(error: &GetStreamError) -> bool {
    matches!(error.kind(), GetStreamErrorKind::JetStream(said) if said.error_code() == ErrorCode::STREAM_NOT_FOUND)
}

/// True if a cluster has not as many servers as copies are asked for. One that is only busy is asked again.
pub(super) fn has_too_few_servers(error: &CreateStreamError) -> bool {
    let CreateStreamErrorKind::JetStream(said) = error.kind() else { return false };
    [ErrorCode::CLUSTER_NO_PEERS, ErrorCode::INSUFFICIENT_RESOURCES].contains(&said.error_code())
}

/// True if the queue has a message of that subject, and so refuses a second one. The server has no number of
/// its own for that.
pub(super) fn is_there_already(error: &PublishError) -> bool {
    let said = std::error::Error::source(error).map(ToString::to_string).unwrap_or_default();
    said.contains("maximum messages per subject")
}

/// The first error of a chain of causes that has this type.
fn source<'a, T: std::error::Error + 'static>(error: &'a (dyn std::error::Error + 'static)) -> Option<&'a T> {
    let mut next = Some(error);
    while let Some(error) = next {
        if let Some(found) = error.downcast_ref() {
            return Some(found);
        }
        next = error.source();
    }
    None
}
