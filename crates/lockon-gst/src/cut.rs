//! Finds where a video file can be cut: key frames, with which a decoder can begin. Nothing is decoded.

use std::path::Path;

use crate::copying::Reading;
use lockon_core::control::Control;
use lockon_core::error::{Error, Result};

/// Returns the times of key frames in nanoseconds, in order and without repeats: for each place that `places`
/// returns for a video of that length, the last key frame that is not after it. The video's beginning is left
/// out.
///
/// # Errors
/// `File` if it cannot be read; `NoVideo` if its length or the places of its key frames are not known.
pub fn key_frames(path: &Path, places: impl FnOnce(u64) -> Vec<u64>) -> Result<Vec<u64>> {
    path.metadata().map_err(Error::file("read", path))?;
    let failed = |reason: &str| Error::NoVideo {
        input: path.display().to_string(),
        reason: format!("it cannot be cut into segments: {reason}"),
    };
    let reading = Reading::video(path, &Control::new()).map_err(|reason| failed(&reason))?;
    let length = reading.length_ns().ok_or_else(|| failed("its length is unknown"))?;
    let mut found = Vec::new();
    for place in places(length) {
        let at = reading.key_frame_ns(place).ok_or_else(|| failed("its key frames are unknown"))?;
        if at > found.last().copied().unwrap_or(0) {
            found.push(at);
        }
    }
    Ok(found)
}
