//! Checks of an input before a pipeline is built for it.

use std::path::Path;

use super::errors::{no_video, unreachable};
use super::{Input, SourceSpec, inlet};
use crate::{doctor, truncated};
use lockon_core::error::{Error, Result};

/// Reports errors that GStreamer would report less clearly.
pub(super) fn check(spec: &SourceSpec) -> Result<()> {
    let input = &spec.input;
    match input {
        Input::File(named) => {
            let path = &spec.file().unwrap_or_else(|| named.clone());
            let found = std::fs::metadata(path).map_err(Error::file("read", named))?;
            match found {
                found if found.is_dir() => Err(no_video(input, "a folder, not a file")),
                found if !found.is_file() => Ok(()),
                found if found.is_file() && found.len() == 0 => Err(no_video(input, "the file is empty")),
                // GStreamer 1.22 refuses it too, but once in a hundred times it waits for ever instead.
                _ => match truncated::truncation(path).filter(|found| !found.has_index) {
                    Some(found) => Err(no_video(input, found.to_string())),
                    None => Ok(()),
                },
            }
        }
        Input::Stdin => inlet::check_stdin(),
        Input::Camera(Some(device)) if !Path::new(device).exists() => {
            Err(unreachable(input, format!("there is no device {device}")))
        }
        Input::Camera(None) if doctor::cameras().is_empty() => {
            Err(unreachable(input, "no camera was found: there is no /dev/video*"))
        }
        _ => Ok(()),
    }
}
