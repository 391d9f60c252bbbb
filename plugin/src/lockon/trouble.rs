//! What can go wrong, in GStreamer's terms: domains and codes for errors, and texts that name properties.

use lockon_core::Error;
use lockon_core::error::DeviceFault;

/// An error as the bus carries it: its domain and code say whose fault it is, its text what happened and what
/// fixes it.
pub(super) fn error_message(error: &Error) -> gst::ErrorMessage {
    use gst::{LibraryError, ResourceError, StreamError};
    let text = in_properties(&error.to_string());
    let io = |cause: &std::io::Error, other| match cause.kind() {
        std::io::ErrorKind::NotFound => ResourceError::NotFound,
        std::io::ErrorKind::PermissionDenied => ResourceError::NotAuthorized,
        std::io::ErrorKind::StorageFull => ResourceError::NoSpaceLeft,
        _ => other,
    };
    match error {
        Error::File { action: "read", cause, .. } => {
            gst::error_msg!(io(cause, ResourceError::OpenRead), ("{text}"))
        }
        Error::File { cause, .. } => gst::error_msg!(io(cause, ResourceError::OpenWrite), ("{text}")),
        Error::Picture { .. } => gst::error_msg!(ResourceError::Read, ("{text}")),
        Error::Output { .. } | Error::PictureNotWritten { .. } => {
            gst::error_msg!(ResourceError::Write, ("{text}"))
        }
        Error::Pipeline { .. } | Error::NoVideo { .. } => {
            gst::error_msg!(StreamError::Format, ("{text}"))
        }
        Error::Backend { fault, .. } => {
            let code = match fault {
                DeviceFault::NoDriver { .. } | DeviceFault::NoSuchDevice { .. } => ResourceError::NotFound,
                DeviceFault::OutOfMemory { .. } | DeviceFault::OutOfHostMemory { .. } => {
                    ResourceError::NoSpaceLeft
                }
                DeviceFault::DriverTooOld { .. }
                | DeviceFault::DeviceTooOld { .. }
                | DeviceFault::FrameTooLarge { .. } => ResourceError::Settings,
                _ => ResourceError::Failed,
            };
            gst::error_msg!(code, ("{text}"))
        }
        Error::Panicked { .. } => gst::error_msg!(LibraryError::Failed, ("{text}")),
        // Values, templates and boxes that cannot be used.
        _ => gst::error_msg!(LibraryError::Settings, ("{text}")),
    }
}

/// Options of the program are properties here: `--backend cpu` becomes `backend=cpu`.
pub(super) fn in_properties(text: &str) -> String {
    const WITH_VALUE: [&str; 3] = ["--backend", "--kernel", "--on-device-loss"];
    let words: Vec<&str> = text.split(' ').collect();
    let mut said: Vec<String> = Vec::with_capacity(words.len());
    let mut at = 0;
    while let Some(word) = words.get(at) {
        let value = words.get(at + 1).filter(|v| v.starts_with(|c: char| c.is_ascii_lowercase()));
        // `--kernel NAME` names a value, `--kernel chooses` does not.
        let value = value.filter(|v| **v != "chooses");
        match (WITH_VALUE.contains(word), value) {
            (true, Some(value)) => {
                said.push(format!("{}={value}", &word[2..]));
                at += 1;
            }
            _ => said.push(word.strip_prefix("--").unwrap_or(word).to_owned()),
        }
        at += 1;
    }
    said.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn remedies_name_properties() {
        for (options, properties) in [
            ("install a driver, or use --backend cpu", "install a driver, or use backend=cpu"),
            ("use a smaller --depth if it is not 1", "use a smaller depth if it is not 1"),
            (
                "--kernel chooses among them: it needs --backend cuda",
                "kernel chooses among them: it needs backend=cuda",
            ),
            ("--kernel ncc-shared has nothing to do here", "kernel=ncc-shared has nothing to do here"),
            ("run again, or with --on-device-loss cpu", "run again, or with on-device-loss=cpu"),
        ] {
            assert_eq!(in_properties(options), properties);
        }
    }
}
