//! Reads still pictures for every command: by [`lockon_core::still`], or by GStreamer's decoder if a file of
//! a supported kind uses an unsupported encoding (a JPEG in arithmetic coding, some TIFFs).

use std::path::Path;

use gst::prelude::*;
use gst_video::prelude::*;

use lockon_core::error::{Error, Result};
use lockon_core::frame::Size;
use lockon_core::still::{self, MAX_PIXELS, Still};

use crate::launch;

/// Maximum time for one picture.
const PATIENCE: gst::ClockTime = gst::ClockTime::from_seconds(20);

/// Decodes a picture as [`still::decode`] does, with GStreamer's decoder as the second choice.
///
/// # Errors
/// As [`still::decode`].
pub fn decode(bytes: &[u8], path: &Path, max_pixels: u64) -> Result<Still> {
    or_by_gstreamer(still::decode(bytes, path, max_pixels), bytes, path, max_pixels)
}

/// Decodes a picture as [`still::decode_luma`] does, with GStreamer's decoder as the second choice.
///
/// # Errors
/// As [`still::decode_luma`].
pub(crate) fn decode_luma(bytes: &[u8], path: &Path, max_pixels: u64) -> Result<Still> {
    or_by_gstreamer(still::decode_luma(bytes, path, max_pixels), bytes, path, max_pixels)
}

fn or_by_gstreamer(decoded: Result<Still>, bytes: &[u8], path: &Path, max_pixels: u64) -> Result<Still> {
    match decoded {
        Err(error) if error.is_unsupported_picture() => match by_gstreamer(bytes) {
            Some(still) if still.luma.size().area() as u64 <= max_pixels.min(MAX_PIXELS) => {
                Ok(still.with_facts_of(bytes))
            }
            Some(still) => {
                let (size, max) = (still.luma.size(), max_pixels.min(MAX_PIXELS));
                Err(Error::PictureTooLarge { path: path.to_owned(), size, max })
            }
            None => Err(error),
        },
        decoded => decoded,
    }
}

/// The picture as GStreamer decodes it; `None` if it cannot.
fn by_gstreamer(bytes: &[u8]) -> Option<Still> {
    let ending = still::ending_of(bytes)?;
    let (kind, decoder) = match ending {
        "jpg" => ("jpeg", "jpegdec"),
        "png" => (ending, "pngdec"),
        "bmp" => (ending, "avdec_bmp"),
        "tiff" => (ending, "avdec_tiff max-threads=1"),
        "webp" => (ending, "webpdec"),
        _ => return None,
    };
    launch::init().ok()?;
    let text = format!(
        "appsrc name=input format=time caps=image/{kind},framerate=(fraction)25/1 ! {decoder} ! tee name=decoded ! videoconvert dither=none ! video/x-raw,format=RGBA ! \
         appsink name=output sync=false"
    );
    let pipeline = gst::parse::launch(&text).ok()?.downcast::<gst::Pipeline>().ok()?;
    // The bus is not read: the reported error is that of the first decoder.
    let picture = pull(&pipeline, bytes);
    let _ = pipeline.set_state(gst::State::Null);
    picture
}

fn pull(pipeline: &gst::Pipeline, bytes: &[u8]) -> Option<Still> {
    let input = pipeline.by_name("input")?.downcast::<gst_app::AppSrc>().ok()?;
    let output = pipeline.by_name("output")?.downcast::<gst_app::AppSink>().ok()?;
    pipeline.set_state(gst::State::Playing).ok()?;
    input.push_buffer(gst::Buffer::from_slice(bytes.to_vec())).ok()?;
    input.end_of_stream().ok()?;
    let sample = output.try_pull_sample(PATIENCE)?;
    let decoded = pipeline.by_name("decoded")?.static_pad("sink")?.current_caps()?;
    let decoded = gst_video::VideoInfo::from_caps(&decoded).ok()?;
    let info = gst_video::VideoInfo::from_caps(sample.caps()?).ok()?;
    let frame = gst_video::VideoFrameRef::from_buffer_ref_readable(sample.buffer()?, &info).ok()?;
    let (width, height) = (info.width() as usize, info.height() as usize);
    let (data, stride) = (frame.plane_data(0).ok()?, usize::try_from(*frame.plane_stride().first()?).ok()?);
    let rgba = (0..height).flat_map(|y| &data[y * stride..][..4 * width]).copied().collect();
    Still::of_rgba(rgba, Size::new(width, height), !decoded.is_gray())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A TIFF of 4 x 2 pixels of 16 bits each in one strip, with a compression that `image` may not know.
    fn tiff(tags: &[(u16, u16, u32, u32)], data: &[u8]) -> Vec<u8> {
        let mut bytes = b"II*\0\x08\0\0\0".to_vec();
        bytes.extend((tags.len() as u16).to_le_bytes());
        for &(tag, kind, count, value) in tags {
            bytes.extend(tag.to_le_bytes());
            bytes.extend(kind.to_le_bytes());
            bytes.extend(count.to_le_bytes());
            bytes.extend(value.to_le_bytes());
        }
        bytes.extend([0; 4]);
        bytes.extend(data);
        bytes
    }

    #[test]
    fn a_tiff_with_a_palette_is_read() {
        // Behind the header and ten tags: the palette of 256 entries of red, green and blue, then the pixels.
        let palette_at = 8 + 2 + 10 * 12 + 4;
        let pixels_at = palette_at + 3 * 256 * 2;
        let tags = [
            (256, 3, 1, 4),
            (257, 3, 1, 2),
            (258, 3, 1, 8),
            (259, 3, 1, 1),
            (262, 3, 1, 3),
            (273, 4, 1, pixels_at),
            (277, 3, 1, 1),
            (278, 3, 1, 2),
            (279, 4, 1, 8),
            (320, 3, 768, palette_at),
        ];
        let level = |index: usize, of: usize| [index, 255 - index, index / 2][of] as u8;
        let mut data = Vec::new();
        for of in 0..3 {
            // 16 bits each; both bytes are equal.
            data.extend((0..256).flat_map(|index| [level(index, of); 2]));
        }
        let pixels = [0_u8, 9, 100, 255, 3, 77, 200, 128];
        data.extend(pixels);
        let still = decode(&tiff(&tags, &data), Path::new("palette.tif"), MAX_PIXELS).unwrap();
        let expected: Vec<u8> =
            pixels.iter().flat_map(|&index| [0, 1, 2].map(|of| level(usize::from(index), of))).collect();
        assert_eq!((still.luma.size(), still.rgb), (Size::new(4, 2), Some(expected)));
    }

    #[test]
    fn what_no_decoder_reads_is_refused_in_the_words_of_the_first() {
        let error = decode(b"II*\0\x08\0\0\0\0\0", Path::new("empty.tif"), MAX_PIXELS).unwrap_err();
        assert!(error.to_string().contains("empty.tif"), "{error}");
        let error = decode(b"no picture", Path::new("words.txt"), MAX_PIXELS).unwrap_err();
        assert!(error.to_string().contains("words.txt"), "{error}");
    }
}
