//! Errors in GStreamer's terms: domains and codes, and texts that name properties.

use lockon_core::Error;
use lockon_core::error::DeviceFault;
use lockon_core::message::Dialect;

/// An error for the bus: its domain and code name the cause, its text the failure and what fixes it.
pub(super) fn error_message(error: &Error) -> gst::ErrorMessage {
    use gst::{LibraryError, ResourceError, StreamError};
    let text = error.told(Dialect::Properties);
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
