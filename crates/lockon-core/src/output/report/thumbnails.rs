//! Pictures on the page, and what they show of a frame.

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
        format!("data:image/jpeg;base64,{}", base64(&self.0))
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

/// RFC 4648, section 4.
fn base64(bytes: &[u8]) -> String {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for three in bytes.chunks(3) {
        let bits = (0..3).fold(0, |bits, i| bits << 8 | u32::from(three.get(i).copied().unwrap_or(0)));
        for letter in 0..4 {
            let value = bits >> (18 - 6 * letter) & 63;
            text.push(if letter <= three.len() { LETTERS[value as usize] as char } else { '=' });
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn letters_of_base64_are_those_of_the_rfc() {
        let texts = ["", "f", "fo", "foo", "foob", "fooba", "foobar"].map(|text| base64(text.as_bytes()));
        assert_eq!(texts, ["", "Zg==", "Zm8=", "Zm9v", "Zm9vYg==", "Zm9vYmE=", "Zm9vYmFy"]);
        assert_eq!(base64(&[0xfb, 0xff, 0xfe]), "+//+");
    }

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
