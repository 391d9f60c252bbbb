//! Pictures on the page: what they show of a frame, and how a video's pixels become those of a JPEG file.

use crate::frame::{Chroma, Frame, Rect, Size, VideoFormat};
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

/// A part of a frame as RGB, made smaller by a whole number so that no side is longer than `side`.
pub(super) fn shrunk(frame: &Frame, crop: Rect, side: usize) -> (Vec<u8>, Size) {
    let format = &frame.format;
    let step = crop.w.max(crop.h).div_ceil(side).max(1);
    let size = Size::new((crop.w / step).max(1), (crop.h / step).max(1));
    let convert = Conversion::of(format);
    let luma = frame.luma();
    let sample = |plane: usize, x: usize, y: usize| frame.picture.plane(plane).row(y)[x];
    let chroma = [0, 1].map(|component| {
        let samples = format.pixels.chroma_samples(component);
        move |x: usize, y: usize| {
            let (x, y) = (x >> format.pixels.x_shift, y >> format.pixels.y_shift);
            samples.map_or(128, |(plane, first, step)| sample(plane, first + step * x, y))
        }
    });
    let mut rgb = Vec::with_capacity(3 * size.area());
    for row in 0..size.height {
        for column in 0..size.width {
            let (x, y) = (crop.x + column * step, crop.y + row * step);
            let (right, bottom) = ((x + step).min(crop.x + crop.w), (y + step).min(crop.y + crop.h));
            let rows = (y..bottom).map(|y| luma.row(y)[x..right].iter().map(|&v| u32::from(v)).sum::<u32>());
            let mean = rows.sum::<u32>() / ((right - x) * (bottom - y)) as u32;
            let (x, y) = (usize::midpoint(x, right), usize::midpoint(y, bottom));
            let [cb, cr] = chroma.each_ref().map(|sample| sample(x, y));
            rgb.extend(convert.rgb(mean as u8, cb, cr));
        }
    }
    (rgb, size)
}

/// From a video's colours to those of a screen.
struct Conversion {
    is_full_range: bool,
    /// Weights of red and blue in luma.
    red: f64,
    blue: f64,
}

impl Conversion {
    /// As GStreamer's colorimetry says (`RANGE:MATRIX:..`, or a name), or as it takes what says nothing.
    fn of(format: &VideoFormat) -> Self {
        let said = format.colorimetry.as_deref().unwrap_or_default();
        let is_grey = format.pixels.chroma == Chroma::None;
        let is_full_range = said.starts_with("1:") || said.is_empty() && is_grey;
        let is_hd = match said {
            "" => format.size.height > 576,
            said => said == "bt709" || said.split(':').nth(1) == Some("3"),
        };
        let (red, blue) = if is_hd { (0.2126, 0.0722) } else { (0.299, 0.114) };
        Self { is_full_range, red, blue }
    }

    fn rgb(&self, y: u8, cb: u8, cr: u8) -> [u8; 3] {
        let (y, cb, cr) = (f64::from(y), f64::from(cb) - 128.0, f64::from(cr) - 128.0);
        let (y, cb, cr) = if self.is_full_range {
            (y, cb / 255.0, cr / 255.0)
        } else {
            ((y - 16.0) * 255.0 / 219.0, cb / 224.0, cr / 224.0)
        };
        let red = y + 255.0 * 2.0 * (1.0 - self.red) * cr;
        let blue = y + 255.0 * 2.0 * (1.0 - self.blue) * cb;
        let green = (y - self.red * red - self.blue * blue) / (1.0 - self.red - self.blue);
        [red, green, blue].map(|v| libm::round(v).clamp(0.0, 255.0) as u8)
    }
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
    use crate::output::samples;

    #[test]
    fn letters_of_base64_are_those_of_the_rfc() {
        let texts = ["", "f", "fo", "foo", "foob", "fooba", "foobar"].map(|text| base64(text.as_bytes()));
        assert_eq!(texts, ["", "Zg==", "Zm8=", "Zm9v", "Zm9vYg==", "Zm9vYmE=", "Zm9vYmFy"]);
        assert_eq!(base64(&[0xfb, 0xff, 0xfe]), "+//+");
    }

    #[test]
    fn known_colours_come_back() {
        let mut format = samples::format();
        format.pixels = crate::frame::PixelFormat::ALL[0];
        // Red as BT.601 and BT.709 have it in limited range.
        assert_eq!(Conversion::of(&format).rgb(81, 90, 240), [254, 0, 0]);
        format.colorimetry = Some("bt709".into());
        assert_eq!(Conversion::of(&format).rgb(63, 102, 240), [255, 1, 0]);
        format.colorimetry = Some("1:4:0:0".into());
        assert_eq!(Conversion::of(&format).rgb(200, 128, 128), [200, 200, 200]);
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
