//! Inputs that can be opened as video, and their typed forms.

use std::ffi::OsStr;
use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use super::{Pictures, Uri, inlet};
use crate::launch::Launch;
use lockon_core::error::{Error, Result};
use lockon_core::text;

/// The origin of video.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Input {
    /// A file.
    File(PathBuf),
    /// Standard input, from a pipe.
    Stdin,
    /// Pictures in files, each a frame.
    Pictures(Pictures),
    /// An address whose scheme has a source in GStreamer.
    Uri(Uri),
    /// A camera: a device such as `/dev/video0`, or the first one.
    Camera(Option<String>),
    /// gst-launch text with an `appsink name=frames`.
    Launch(Launch),
}

impl FromStr for Input {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        Self::typed(text.as_ref())
    }
}

impl Input {
    /// Parses INPUT: `-`, a file that exists or has no `scheme://`, pictures, `camera[:DEVICE]`, or a URI.
    /// The `file://` URI of a file that exists is the file itself, so that it is read in the same way.
    ///
    /// # Errors
    /// `Value` if there is nothing, or a part is missing.
    pub fn typed(typed: &OsStr) -> Result<Self> {
        let path = Path::new(typed);
        // A name that is not text is a path.
        let text = typed.to_str().unwrap_or("/");
        let has_scheme = text.split_once("://").is_some_and(|(scheme, _)| text::is_scheme(scheme));
        let pictures = Pictures::typed(path).filter(|_| !has_scheme);
        Ok(match text.strip_prefix("camera") {
            _ if text.is_empty() => {
                return Err(Error::value("input", text, "expected a file, a URI, `camera` or -"));
            }
            _ if text == "-" => Self::Stdin,
            _ if pictures.is_none() && path.exists() => Self::File(path.into()),
            Some("") if !path.exists() => Self::Camera(None),
            Some(":") => {
                let expected = "expected camera:DEVICE, such as camera:/dev/video0";
                return Err(Error::value("input", text, expected));
            }
            Some(rest) if rest.starts_with(':') => Self::Camera(Some(rest[1..].to_owned())),
            _ => match pictures {
                Some(pictures) => Self::Pictures(pictures),
                None if has_scheme => {
                    let uri = Uri::from(text);
                    uri.path().filter(|path| path.exists()).map_or(Self::Uri(uri), Self::File)
                }
                None => Self::File(path.into()),
            },
        })
    }

    /// The input's file, if it can be read again: for its sound and other streams.
    pub fn file(&self) -> Option<PathBuf> {
        match self {
            Self::File(path) => Some(path.clone()).filter(|path| !path.exists() || inlet::is_regular(path)),
            Self::Uri(uri) => uri.path().filter(|path| inlet::is_regular(path)),
            Self::Stdin | Self::Pictures(_) | Self::Camera(_) | Self::Launch(_) => None,
        }
    }

    /// Returns all files that it reads, as far as they can be found: no output may be one of them.
    pub fn files(&self) -> Vec<PathBuf> {
        match self {
            Self::File(path) => vec![path.clone()],
            Self::Uri(uri) => uri.path().into_iter().collect(),
            // Errors are reported when they are opened.
            Self::Pictures(pictures) => pictures.find().map(|found| found.files).unwrap_or_default(),
            // It may be a file, which an output would cut off.
            Self::Stdin => vec![PathBuf::from("/dev/stdin")],
            Self::Camera(_) | Self::Launch(_) => Vec::new(),
        }
    }
}

impl Input {
    /// The title of its window.
    pub fn title(&self) -> String {
        match self {
            Self::Launch(_) => "lockon".to_owned(),
            input => input.to_string(),
        }
    }
}

impl fmt::Display for Input {
    /// The typed input without passwords; for gst-launch text the name of its origin.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(path) => {
                f.write_str(&text::in_one_line(&text::address_without_secrets(&path.to_string_lossy())))
            }
            Self::Stdin => f.write_str("-"),
            Self::Pictures(pictures) => pictures.fmt(f),
            Self::Uri(uri) => uri.fmt(f),
            Self::Camera(None) => f.write_str("camera"),
            Self::Camera(Some(device)) => write!(f, "camera:{device}"),
            Self::Launch(launch) => f.write_str(launch.name()),
        }
    }
}
