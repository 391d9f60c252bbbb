//! Pictures on the page, and what they show of a frame.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;

use crate::frame::{Rect, Size};
use crate::results::TrackState;

/// Longest side of the key frame and of a thumbnail, in pixels.
pub(super) const KEY_SIDE: usize = 960;
pub(super) const THUMBNAIL_SIDE: usize = 240;
/// A thumbnail shows so many times the box.
const AROUND: f64 = 3.0;

/// The frame on which paths are drawn.
pub(super) struct Key {
    pub(super) picture: Picture,
    pub(super) frame: u64,
    pub(super) size: Size,
    pub(super) has_results: bool,
}

pub(super) struct Thumbnail {
    pub(super) title: String,
    pub(super) state: TrackState,
    /// What it shows of the frame, and the track's box.
    pub(super) crop: Rect,
    pub(super) bounds: [f64; 4],
    pub(super) picture: Picture,
}

/// A JPEG file.
pub(super) struct Picture(pub(super) Vec<u8>);

impl Picture {
    /// The picture as part of a page.
    pub(super) fn uri(&self) -> String {
        format!("data:image/jpeg;base64,{}", BASE64_STANDARD.encode(&self.0))
    }
}

/// What a thumbnail shows: the box and its surroundings, as far as they lie in the frame.
pub(super) fn crop([x, y, w, h]: [f64; 4], frame: Size) -> Rect {
    let side = (AROUND * w.max(h)).max(48.0);
    let range = |middle: f64, length: usize| {
        let side = side.min(length as f64);
        let start = (middle - side / 2.0).clamp(0.0, length as f64 - side);
        (start as usize, (side as usize).max(1))
    };
    let ((x, w), (y, h)) = (range(x + w / 2.0, frame.width), range(y + h / 2.0, frame.height));
    Rect::new(x, y, w, h)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn crops_stay_inside_the_frame() {
        let frame = Size::new(64, 48);
        for at in
            [[-500.0, -3.0, 9.0, 9.0], [60.0, 40.0, 300.0, 2.0], [20.0, 20.0, 0.1, 0.1], [1e9, 1e9, 5.0, 5.0]]
        {
            assert!(crop(at, frame).is_inside(frame), "{at:?}: {}", crop(at, frame));
        }
        assert!(crop([1.0, 1.0, 4.0, 4.0], Size::new(1, 1)).is_inside(Size::new(1, 1)));
    }
}
