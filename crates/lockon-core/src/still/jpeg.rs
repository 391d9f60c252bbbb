//! Whether the end of a JPEG file is there.
//!
//! Decoders fill missing data with grey, and a file that lacks only its end marker has all of its pixels. The
//! walk over the segments finds out whether the marker is there; where it is not, the compressed data are
//! decoded once with ones behind them: no code of ones alone exists (ITU-T T.81, C), so a decoder that needs
//! more than the file has fails there.

use image::metadata::Orientation;
use image::{DynamicImage, GrayImage};
use zune_core::bytestream::ZCursor;
use zune_core::colorspace::ColorSpace;
use zune_core::options::DecoderOptions;
use zune_jpeg::JpegDecoder;

use crate::colour::luma_of;
use crate::frame::{Plane, Size};
use crate::simd::Level;

/// How a segment is marked (ITU-T T.81, table B.1).
const END: u8 = 0xD9;
const START: [u8; 3] = [0xFF, 0xD8, 0xFF];
const SCAN: u8 = 0xDA;
const PROGRESSIVE: u8 = 0xC2;
const APP2: u8 = 0xE2;

/// Bytes of ones behind the data of a file without an end, each with the zero that distinguishes it from a
/// marker. A decoder reads 4 bytes ahead; 8 are in its buffer at most.
const ONES: [u8; 24] = {
    let mut ones = [0; 24];
    let mut at = 0;
    while at < ones.len() {
        ones[at] = 0xFF;
        at += 2;
    }
    ones
};

/// A JPEG file with its end.
pub(super) enum Completed {
    /// It has one.
    Whole,
    /// Only the marker was missing: the file with it.
    WithEnd(Vec<u8>),
    /// A part of the picture is missing.
    Cut,
}

/// Looks for the end of a picture. Pictures of more than `max_pixels` count as whole: they are not decoded
/// here.
pub(super) fn completed(bytes: &[u8], max_pixels: u64) -> Completed {
    let segments = Segments::of(bytes);
    if segments.end.is_some() || segments.pixels() > max_pixels {
        return Completed::Whole;
    }
    if !segments.has_all_scans() {
        return Completed::Cut;
    }
    // One half of the marker may be there.
    let data = bytes.strip_suffix(&[0xFF]).unwrap_or(bytes);
    let strictly = [data, &ONES, if segments.is_progressive { &[0xFF, END] } else { &[] }].concat();
    let [height, width] = segments.size();
    let options = DecoderOptions::default()
        .set_strict_mode(true)
        .set_max_width(usize::from(width))
        .set_max_height(usize::from(height));
    let is_whole = JpegDecoder::new_with_options(ZCursor::new(&strictly[..]), options).decode().is_ok();
    if is_whole { Completed::WithEnd([data, &[0xFF, END]].concat()) } else { Completed::Cut }
}

/// Decodes the luma of a JPEG that stores luma and chroma, and turns it upright. The result is that of its
/// red, green and blue, which the stored luma is not: they are rounded and cut at 0 and 255.
///
/// `None` for JPEGs of other kinds, of more than `max_pixels`, and for those that cannot be decoded.
pub(super) fn luma(bytes: &[u8], max_pixels: u64) -> Option<Plane> {
    // With alpha: vectors take samples apart several times as fast from four bytes a pixel as from three.
    let options = DecoderOptions::default()
        .set_strict_mode(false)
        .set_max_width(usize::MAX)
        .set_max_height(usize::MAX)
        .jpeg_set_out_colorspace(ColorSpace::RGBA);
    let mut decoder = JpegDecoder::new_with_options(ZCursor::new(bytes), options);
    decoder.decode_headers().ok()?;
    let (width, height) = decoder.dimensions()?;
    let is_usual = decoder.input_colorspace() == Some(ColorSpace::YCbCr);
    if !is_usual || width as u64 * height as u64 > max_pixels {
        return None;
    }
    let rgba = decoder.decode().ok()?;
    let mut luma = vec![0; width * height];
    Level::best().run(
        #[inline(always)]
        || {
            for (luma, &pixel) in luma.iter_mut().zip(rgba.as_chunks::<4>().0) {
                let pixel = u32::from_le_bytes(pixel);
                *luma = luma_of([pixel as u8, (pixel >> 8) as u8, (pixel >> 16) as u8]);
            }
        },
    );
    let exif = decoder.exif().and_then(|exif| Orientation::from_exif_chunk(exif));
    let Some(orientation) = exif.filter(|orientation| *orientation != Orientation::NoTransforms) else {
        return Some(Plane::from_vec(luma, Size::new(width, height)));
    };
    let mut picture: DynamicImage = GrayImage::from_raw(width as u32, height as u32, luma)?.into();
    picture.apply_orientation(orientation);
    let size = Size::new(picture.width() as usize, picture.height() as usize);
    Some(Plane::from_vec(picture.into_luma8().into_raw(), size))
}

/// True if another picture of the same size follows the first at once, and the first does not say that both
/// are views of one scene (CIPA DC-007, as stereo cameras and phones store them).
pub(super) fn is_video(bytes: &[u8]) -> bool {
    let first = Segments::of(bytes);
    let Some(behind) = first.end.and_then(|end| bytes.get(end..)) else { return false };
    behind.starts_with(&START) && !first.has_views && Segments::of(behind).size == first.size
}

/// The information in the segments of a JPEG file, up to its end.
#[derive(Default)]
struct Segments {
    /// Where the next byte behind the end marker is.
    end: Option<usize>,
    has_frame: bool,
    is_progressive: bool,
    /// Height and width, as they are stored.
    size: [u8; 4],
    components: usize,
    /// The coefficients of each component that some scan has given its last bit.
    complete: [u64; 4],
    ids: [u8; 4],
    has_views: bool,
}

impl Segments {
    /// Segments are passed over by their lengths, since a preview in one has an end of its own.
    fn of(bytes: &[u8]) -> Self {
        let mut found = Self::default();
        let mut at = 0;
        loop {
            // Compressed data have no marker but those of restarts, and decoders look for the next one as
            // well.
            let Some(next) = bytes[at..].iter().position(|byte| *byte == 0xFF) else { return found };
            at += next + 1;
            match bytes[at..] {
                [END, ..] => {
                    found.end = Some(at + 1);
                    return found;
                }
                // No marker, one that has filling before it, or one that has no segment.
                [0x00 | 0x01 | 0xD0..=0xD8 | 0xFF, ..] => {}
                [marker, high, low, ..] => {
                    let length = usize::from(u16::from_be_bytes([high, low]));
                    let Some(segment) = bytes.get(at + 3..at + 1 + length) else { return found };
                    found.see(marker, segment);
                    at += 1 + length;
                }
                _ => return found,
            }
        }
    }

    fn see(&mut self, marker: u8, segment: &[u8]) {
        match (marker, segment) {
            // Frames: precision, height, width, components of three bytes each.
            // A file has one, and decoders take the first.
            (0xC0..=0xC3 | 0xC5..=0xC7 | 0xC9..=0xCB | 0xCD..=0xCF, [_, size @ ..]) if !self.has_frame => {
                self.is_progressive = marker == PROGRESSIVE;
                if let [a, b, c, d, components, rest @ ..] = size {
                    self.has_frame = true;
                    self.size = [*a, *b, *c, *d];
                    self.components = usize::from(*components).min(4);
                    for (id, component) in self.ids.iter_mut().zip(rest.chunks_exact(3)) {
                        *id = component[0];
                    }
                }
            }
            // Scans: components of two bytes each, first and last coefficient, bits before and in this scan.
            (SCAN, [components, rest @ ..]) => {
                let components = 2 * usize::from(*components);
                let (Some(ids), Some([first, last, bits, ..])) =
                    (rest.get(..components), rest.get(components..))
                else {
                    return;
                };
                let is_last = bits.trailing_zeros() >= 4 && first <= last && *last < 64;
                let covered = match self.is_progressive {
                    false => u64::MAX,
                    true if is_last => (u64::MAX >> (63 - last)) & (u64::MAX << first),
                    true => 0,
                };
                for id in ids.chunks_exact(2) {
                    let known = &self.ids[..self.components];
                    if let Some(component) = known.iter().position(|known| *known == id[0]) {
                        self.complete[component] |= covered;
                    }
                }
            }
            (APP2, [b'M', b'P', b'F', 0, ..]) => self.has_views = true,
            _ => {}
        }
    }

    /// Height and width.
    fn size(&self) -> [u16; 2] {
        let [a, b, c, d] = self.size;
        [u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d])]
    }

    fn pixels(&self) -> u64 {
        self.size().map(u64::from).iter().product()
    }

    /// True if the scans give every coefficient all of its bits.
    fn has_all_scans(&self) -> bool {
        let complete = &self.complete[..self.components];
        !complete.is_empty() && complete.iter().all(|complete| *complete == u64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A JPEG of noise, so that no row of it is short.
    fn noise() -> Vec<u8> {
        let mix = |x: u32, y: u32| {
            (x.wrapping_mul(0x9E37_79B9) ^ y.wrapping_mul(0x85EB_CA6B)).wrapping_mul(0xC2B2_AE35)
        };
        let pixel = |x: u32, y: u32| image::Luma([(mix(x, y) >> 24) as u8]);
        encoded(&image::GrayImage::from_fn(161, 119, pixel))
    }

    fn encoded(picture: &image::GrayImage) -> Vec<u8> {
        let mut bytes = std::io::Cursor::new(Vec::new());
        picture.write_to(&mut bytes, image::ImageFormat::Jpeg).unwrap();
        bytes.into_inner()
    }

    fn is_cut(bytes: &[u8]) -> bool {
        matches!(completed(bytes, u64::MAX), Completed::Cut)
    }

    #[test]
    fn a_jpeg_is_whole_whatever_is_behind_it_and_cut_off_wherever_that_is() {
        let bytes = noise();
        assert!(bytes.len() > 5000);
        for behind in [0, 100_000] {
            let film = [bytes.clone(), vec![7; behind]].concat();
            assert!(matches!(completed(&film, u64::MAX), Completed::Whole));
        }
        for length in [0, 1, 9, 20, bytes.len() / 4, bytes.len() / 2, bytes.len() - 50] {
            assert!(is_cut(&bytes[..length]), "{length}");
        }
    }

    #[test]
    fn luma_alone_is_that_of_the_decoded_colours_for_all_kinds_of_jpeg() {
        use base64::prelude::{BASE64_STANDARD, Engine};
        use image::ImageEncoder;
        use image::codecs::jpeg::JpegEncoder;
        let mix = |x: u32, y: u32, c: u32| {
            let mixed =
                (x.wrapping_mul(0x9E37_79B9) ^ y.wrapping_mul(0x85EB_CA6B) ^ c.wrapping_mul(0xC2B2_AE35))
                    .wrapping_mul(0x27D4_EB2F);
            (mixed >> 24) as u8
        };
        // Strong colours too, which decoders clip much.
        let pixel = |x, y| {
            image::Rgb([0, 1, 2].map(|c| if x % 3 == 0 { mix(x / 9, y / 7, c) } else { mix(x, y, c) }))
        };
        let exif = b"MM\0*\0\0\0\x08\0\x01\x01\x12\0\x03\0\0\0\x01\0\x06\0\0\0\0\0\0";
        let mut files =
            vec![BASE64_STANDARD.decode(include_str!("cmyk.jpg.base64").trim()).unwrap(), noise()];
        for (size, quality, turned) in [
            ((161, 119), 100, false),
            ((33, 70), 40, false),
            ((16, 16), 95, true),
            ((7, 5), 90, true),
            ((1, 1), 75, false),
        ] {
            let mut bytes = Vec::new();
            let mut encoder = JpegEncoder::new_with_quality(&mut bytes, quality);
            if turned {
                encoder.set_exif_metadata(exif.to_vec()).unwrap();
            }
            DynamicImage::from(image::RgbImage::from_fn(size.0, size.1, pixel))
                .write_with_encoder(encoder)
                .unwrap();
            files.push(bytes[..bytes.len() - 2].to_vec());
            // Adobe's mark for three samples that are red, green and blue. A JFIF header would overrule it.
            let adobe = b"\xFF\xEE\0\x0EAdobe\0\x64\0\0\0\0\0";
            let without_jfif =
                bytes[2..].strip_prefix(b"\xFF\xE0\0\x10").map_or(&bytes[2..], |rest| &rest[14..]);
            files.push([&START[..2], adobe, without_jfif].concat());
            files.push(bytes);
        }
        let (mut fast, path) = (0, std::path::Path::new("a.jpg"));
        for bytes in &files {
            let [colours, alone] = [crate::still::decode, crate::still::decode_luma]
                .map(|decode| decode(bytes, path, u64::MAX).unwrap());
            assert!(colours.luma == alone.luma, "{}", colours.luma.size());
            fast += usize::from(colours.has_colours && !alone.has_colours);
        }
        assert_eq!((files.len(), fast), (17, 10));
        assert!(luma(&files[4], 100).is_none(), "too large");
    }

    #[test]
    fn the_end_of_a_preview_is_not_that_of_its_picture() {
        let bytes = noise();
        let preview = [0xFF, 0xD8, 0x00, 0xFF, END];
        let mut with_preview = vec![0xFF, 0xD8, 0xFF, 0xE1, 0, 2 + preview.len() as u8];
        with_preview.extend(preview);
        with_preview.extend(&bytes[2..]);
        assert!(matches!(completed(&with_preview, u64::MAX), Completed::Whole));
        assert!(is_cut(&with_preview[..3000]));
    }

    #[test]
    fn a_jpeg_without_its_end_marker_is_given_one() {
        // Rows of a flat picture are a few bits each: all of them are in a decoder's buffer at once.
        let flat = encoded(&image::GrayImage::from_pixel(17, 65, image::Luma([99])));
        for bytes in [noise(), flat] {
            for missing in [1, 2] {
                match completed(&bytes[..bytes.len() - missing], u64::MAX) {
                    Completed::WithEnd(again) => assert_eq!(again, bytes),
                    _ => panic!("{missing} bytes are missing"),
                }
            }
        }
    }

    #[test]
    fn a_progressive_jpeg_that_lacks_scans_is_cut() {
        let frame = [0xFF, PROGRESSIVE, 0, 11, 8, 0, 8, 0, 8, 1, 1, 0x11, 0];
        let scan = |first, last, bits| vec![0xFF, SCAN, 0, 8, 1, 1, 0, first, last, bits, 0x55];
        let start = [&START[..2], &frame, &scan(0, 0, 1), &scan(1, 63, 0)].concat();
        assert!(!Segments::of(&start).has_all_scans());
        assert!(Segments::of(&[&start[..], &scan(0, 0, 0x10)].concat()).has_all_scans());
    }

    #[test]
    fn a_second_frame_header_does_not_hide_the_size_of_the_first() {
        let frame = |side: u16| {
            let [a, b] = side.to_be_bytes();
            vec![0xFF, 0xC0, 0, 11, 8, a, b, a, b, 1, 1, 0x11, 0]
        };
        let scan = [0xFF, SCAN, 0, 8, 1, 1, 0, 0, 63, 0, 0x55];
        let hidden = [&START[..2], &frame(65_535), &scan, &frame(8)].concat();
        assert_eq!(Segments::of(&hidden).pixels(), 65_535 * 65_535);
        // Whole: the size is checked before anything is decoded.
        assert!(matches!(completed(&hidden, 1 << 27), Completed::Whole));
        let error = crate::still::decode(&hidden, std::path::Path::new("a.jpg"), 1 << 27).unwrap_err();
        assert!(matches!(error, crate::Error::PictureTooLarge { .. }), "{error}");
        // A picture that lacks its marker is judged by its own header.
        let bytes = noise();
        let small = [&bytes[..bytes.len() - 2], &frame(8)].concat();
        assert_eq!(Segments::of(&small).size(), [119, 161]);
    }

    #[test]
    fn jpegs_in_a_row_are_a_video_and_a_picture_with_another_view_is_not() {
        let (bytes, other) = (noise(), encoded(&image::GrayImage::new(80, 60)));
        assert!(is_video(&[&bytes[..], &bytes].concat()));
        assert!(!is_video(&bytes));
        assert!(!is_video(&[&bytes[..], &other].concat()), "a smaller picture behind it: a preview");
        let mut stereo = vec![0xFF, 0xD8, 0xFF, APP2, 0, 6, b'M', b'P', b'F', 0];
        stereo.extend(&bytes[2..]);
        assert!(!is_video(&[&stereo[..], &bytes].concat()));
    }
}
