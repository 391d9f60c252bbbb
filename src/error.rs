//! Everything that can go wrong, as one enum with fields.
//!
//! A message says what failed, with both values, and then the remedy if one is known: lower case, no full stop.
//! The end of a video is not an error, and an error is never turned into the end of a video.

use std::path::{Path, PathBuf};

use crate::frame::{Rect, Size};

/// The library's result.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What failed. [`Error::is_usage`] tells a wrong request from a failure at run time.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A value that was typed cannot mean anything: `--threshold mean:30:5`.
    #[error("{what} {value:?}: {expected}")]
    Value {
        /// The option or the thing that the value is for.
        what: &'static str,
        /// What was typed.
        value: String,
        /// What is wrong with it, or what was expected.
        expected: String,
    },
    /// Options that contradict each other, or one that is missing.
    #[error("{0}")]
    Usage(String),
    /// A file or folder could not be read or written.
    #[error("cannot {action} {}: {cause}", path.display())]
    File {
        /// What was tried: `read`, `write`, `create`.
        action: &'static str,
        /// On what.
        path: PathBuf,
        /// What the system said.
        cause: std::io::Error,
    },
    /// A still picture could not be decoded.
    #[error("{}: {cause} (PNG, JPEG and BMP are read)", path.display())]
    Picture {
        /// The file.
        path: PathBuf,
        /// What the decoder said.
        cause: image::ImageError,
    },
    /// A still picture could not be written.
    #[error("cannot write {}: {cause}", path.display())]
    PictureNotWritten {
        /// The file.
        path: PathBuf,
        /// What the encoder or the system said.
        cause: image::ImageError,
    },
    /// A template that cannot be searched for.
    #[error("template {name:?} {fault}")]
    Template {
        /// The template's name.
        name: String,
        /// Why not.
        fault: TemplateFault,
    },
    /// No member of the bank fits where it is to be searched.
    #[error("no template fits: the smallest is {smallest}, the searched area {area}")]
    NothingFits {
        /// Size of the smallest member.
        smallest: Size,
        /// Size of the frame, or of the region of interest.
        area: Size,
    },
    /// A box that does not lie in the frame.
    #[error("{what} {rect} does not lie inside the {frame} frame")]
    Outside {
        /// What the box is for: `track box`, `region of interest`.
        what: &'static str,
        /// The box.
        rect: Rect,
        /// The frame's size.
        frame: Size,
    },
    /// gst-launch text that GStreamer does not accept, or that lacks an element that we need.
    #[error("pipeline {name}: {reason}")]
    Launch {
        /// Where the text is from: an option or a file.
        name: String,
        /// What GStreamer said, or what is missing.
        reason: String,
    },
    /// A GStreamer element that is not installed.
    #[error("GStreamer has no element {element:?} here (on Debian and Ubuntu: apt-get install {package})")]
    MissingElement {
        /// The element's factory name.
        element: String,
        /// The package that has it.
        package: &'static str,
    },
    /// A running pipeline failed.
    #[error("{element}: {message}{}", debug_suffix(debug))]
    Pipeline {
        /// The failing element's name.
        element: String,
        /// What it said.
        message: String,
        /// Its debug text, may be empty.
        debug: String,
    },
    /// The input has no video that can be shown.
    #[error("{input}: {reason}")]
    NoVideo {
        /// The input as typed.
        input: String,
        /// Why not.
        reason: String,
    },
    /// A device that was asked for is not to be had.
    #[error("{backend}: {reason}")]
    Backend {
        /// `cuda`, `cpu`.
        backend: &'static str,
        /// Why not, and what to try.
        reason: String,
    },
    /// An output failed; the others were finished.
    #[error("output {name}: {reason}")]
    Output {
        /// Its file or name.
        name: String,
        /// What happened.
        reason: String,
    },
}

/// Why a template cannot be searched for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum TemplateFault {
    /// Zero width or height.
    #[error("is empty: {0}")]
    Empty(Size),
    /// All counted pixels are equal, so no correlation is defined.
    #[error("is flat: all of its pixels have the value {0}, so nothing can be recognised")]
    Flat(u8),
    /// The mask leaves fewer than two pixels.
    #[error("has a mask that leaves {0} pixels (2 or more are needed)")]
    MaskTooSmall(u64),
    /// The mask is not of the template's size.
    #[error("is {template}, but its mask is {mask}")]
    MaskSize {
        /// The template's size.
        template: Size,
        /// The mask's size.
        mask: Size,
    },
    /// More pixels than the exact sums have room for.
    #[error("has {pixels} pixels, more than {max}")]
    TooManyPixels {
        /// Its pixels.
        pixels: u64,
        /// The most that are allowed.
        max: u64,
    },
}

impl Error {
    /// True for a wrong request (exit code 2), false for a failure at run time (exit code 1).
    pub fn is_usage(&self) -> bool {
        matches!(self, Self::Value { .. } | Self::Usage(_) | Self::Launch { .. })
    }

    /// For `map_err`: the system's error with what was tried and on what.
    pub fn file(action: &'static str, path: &Path) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.to_owned();
        move |cause| Self::File { action, path, cause }
    }

    /// A typed value that cannot mean anything.
    pub fn value(what: &'static str, value: &str, expected: impl Into<String>) -> Self {
        Self::Value { what, value: value.to_owned(), expected: expected.into() }
    }
}

fn debug_suffix(debug: &str) -> String {
    // The first line names source file and function inside GStreamer; what follows it is for people.
    match debug.split_once('\n') {
        Some((_, text)) if !text.trim().is_empty() => format!(" ({})", text.trim()),
        _ => String::new(),
    }
}
