//! Errors of an input, with its name and a remedy.

use super::Input;
use super::address::Server;
use crate::launch;
use lockon_core::control::Control;
use lockon_core::error::Error;

/// The error of an input without video.
const NO_VIDEO_STREAM: &str = "it has no video stream";

/// True for errors that waiting may fix: the source is not available. Other errors stay: it is no video, has
/// no decoder or requires another password.
pub(super) fn may_pass(error: &Error) -> bool {
    matches!(error, Error::Unreachable { .. } | Error::Resource { .. })
}

/// True for errors that a broken stream can cause in a source that gave video before.
pub(super) fn has_fault(error: &Error) -> bool {
    matches!(error, Error::NoVideo { .. } | Error::Pipeline { .. })
}

/// While an input is opened, the error names the input: that helps more than an element's name.
pub(super) fn in_words_of_the_input(error: Error, input: &Input) -> Error {
    let may_pass = may_pass(&error);
    match error {
        Error::Pipeline { message, .. } if message == launch::NOTHING_WANTED => {
            no_video(input, NO_VIDEO_STREAM)
        }
        Error::Pipeline { message, debug, .. } | Error::Resource { message, debug, .. } => {
            // The second line of the debug text is for people.
            let detail =
                debug.split_once('\n').map(|(_, detail)| detail.trim()).filter(|detail| !detail.is_empty());
            let mut reason = message;
            if !reason.get(1..2).is_some_and(|second| second.chars().all(char::is_uppercase)) {
                reason.get_mut(..1).map(str::make_ascii_lowercase);
            }
            let reason = detail.map_or_else(|| reason.clone(), |detail| format!("{reason} ({detail})"));
            if may_pass { unreachable(input, reason) } else { no_video(input, reason) }
        }
        other => other,
    }
}

/// The error of an address that gave no video, with its server and a remedy.
pub(super) fn explained(error: Error, input: &Input, control: &Control) -> Error {
    let Input::Uri(uri) = input else { return error };
    if control.is_stopped() {
        return error;
    }
    let may_pass = may_pass(&error);
    let said = match &error {
        Error::NoVideo { reason, .. } | Error::Unreachable { reason, .. } if reason != NO_VIDEO_STREAM => {
            reason
        }
        _ => return error,
    };
    match uri.why_nothing_came(said, control) {
        None => error,
        Some((Server::IsAway, reason)) => unreachable(input, reason),
        Some((Server::Answers, reason)) if may_pass => unreachable(input, reason),
        Some((Server::Answers, reason)) => no_video(input, reason),
        Some((Server::Refuses, reason)) => Error::Refused { input: input.to_string(), reason },
    }
}

pub(super) fn no_video(input: &Input, reason: impl Into<String>) -> Error {
    Error::NoVideo { input: input.to_string(), reason: reason.into() }
}

/// As `no_video`, for errors that waiting may fix.
pub(super) fn unreachable(input: &Input, reason: impl Into<String>) -> Error {
    Error::Unreachable { input: input.to_string(), reason: reason.into() }
}

pub(super) fn failure(message: impl Into<String>) -> Error {
    Error::Pipeline { element: "frames".into(), message: message.into(), debug: String::new() }
}
