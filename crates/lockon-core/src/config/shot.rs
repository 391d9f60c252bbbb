//! An output that follows a track.

use std::fmt;
use std::str::FromStr;

use crate::error::{Error, Result};
use crate::frame::Size;

/// A part of the picture that follows a track: `WxH[@TRACK]`, the size of the shown part, and the track's
/// number; without a number it is the first track that is found, until it is gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shot {
    /// Size of the pictures that are shown.
    pub size: Size,
    /// The track.
    pub track: Option<u32>,
}

impl fmt::Display for Shot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.size)?;
        self.track.map_or(Ok(()), |id| write!(f, "@{id}"))
    }
}

impl FromStr for Shot {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let bad = || {
            Error::value(
                "follow",
                text,
                "expected WIDTHxHEIGHT[@TRACK], such as 640x640 or 640x640@2; 16x16 or more",
            )
        };
        let (size, track) = text.split_once('@').map_or((text, None), |(size, track)| (size, Some(track)));
        let size: Size = size.parse().map_err(|_| bad())?;
        let track = track.map(str::parse).transpose().map_err(|_| bad())?;
        if size.width < 16 || size.height < 16 || track == Some(0) {
            return Err(bad());
        }
        Ok(Self { size, track })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shot_has_a_size_and_perhaps_a_track() {
        for (text, size, track) in
            [("640x480", Size::new(640, 480), None), ("16x16@3", Size::new(16, 16), Some(3))]
        {
            let shot: Shot = text.parse().unwrap();
            assert_eq!((shot, &*shot.to_string()), (Shot { size, track }, text));
        }
        for text in ["", "640", "640x480@", "640x480@0", "640x480@x", "8x8", "640x480@-1"] {
            assert!(text.parse::<Shot>().is_err(), "{text}");
        }
    }
}
