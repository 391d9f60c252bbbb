//! Finds where a video file can be cut: key frames, with which a decoder can begin. Nothing is decoded.

use std::path::Path;

use crate::copying::Reading;
use crate::random_access::EntryPicture;
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
        let at = reading.entry(place).ok_or_else(|| failed("its key frames are unknown"))?.ns;
        if at > found.last().copied().unwrap_or(reading.begins_ns()) {
            found.push(at);
        }
    }
    Ok(found)
}

/// Returns the last picture that is not after a place in a file, and with which decoding can begin; `None` if
/// it is not found.
pub(crate) fn entry_before(path: &Path, ns: u64, control: &Control) -> Option<EntryPicture> {
    Reading::video(path, control).ok()?.entry(ns)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::launch;
    use crate::testing::make_clip;

    #[test]
    fn a_transport_stream_is_cut_at_its_key_frames() {
        launch::init().unwrap();
        let folder = tempfile::tempdir().unwrap();
        let clip = |name: &str, frames: u32, interval: u32| {
            let path = folder.path().join(name);
            let text = format!(
                "videotestsrc num-buffers={frames} ! video/x-raw,width=32,height=32,framerate=25/1 ! \
                 x264enc key-int-max={interval} bframes=2 ! mpegtsmux ! filesink name=file"
            );
            make_clip(&path, &text);
            path
        };
        let seconds = |length_ns: u64| -> Vec<u64> {
            (1..length_ns / 1_000_000_000).map(|at| at * 1_000_000_000).collect()
        };
        let found = key_frames(&clip("a.ts", 750, 50), seconds).unwrap();
        assert!(found.len() >= 13, "{found:?}");
        // Every two seconds, to a tick of 90 kHz.
        let from_first = found.iter().map(|at| (at - found[0]) % 2_000_000_000);
        assert!(from_first.map(|off| off.min(2_000_000_000 - off)).all(|off| off < 20_000), "{found:?}");
        // Its only key frame is its first frame, which is not at 0.
        assert!(key_frames(&clip("long.ts", 400, 900), seconds).unwrap().is_empty());
    }
}
