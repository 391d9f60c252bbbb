//! Reads the parts of PNG files around the picture, for which no decoder is needed, and writes PNG files.

use image::error::{EncodingError, ImageFormatHint};
use image::metadata::Orientation;
use image::{ImageError, ImageFormat};

use super::MAX_PIXELS;
use super::density::Density;
use crate::frame::Size;

/// How every PNG file begins.
const PNG: &[u8; 8] = b"\x89PNG\r\n\x1a\n";

/// Maximum bytes of a row of a PNG of this header, as long as a picture of that width can be taken; 0 for
/// other files.
pub(super) fn row_bytes(bytes: &[u8]) -> u64 {
    let width =
        bytes.strip_prefix(PNG).and_then(|rest| rest.get(8..12)).and_then(|width| width.first_chunk());
    // Four samples of two bytes, and one byte for the row's filter.
    width.map_or(0, |width| u64::from(u32::from_be_bytes(*width)).min(MAX_PIXELS) * 8 + 1)
}

/// The chunks of a PNG file as far as they are whole: kind and data.
fn chunks(bytes: &[u8]) -> impl Iterator<Item = ([u8; 4], &[u8])> {
    let mut rest = bytes.strip_prefix(PNG).unwrap_or_default();
    std::iter::from_fn(move || {
        let ([a, b, c, d, kind @ ..], data) = rest.split_first_chunk::<8>()?;
        let length = u32::from_be_bytes([*a, *b, *c, *d]) as usize;
        // A checksum follows the data.
        rest = data.get(length.saturating_add(4)..).unwrap_or_default();
        Some((*kind, data.get(..length).unwrap_or(data)))
    })
}

/// The orientation in an eXIf chunk behind the picture, where its decoder does not look.
pub(super) fn late_orientation(bytes: &[u8]) -> Option<Orientation> {
    let behind = chunks(bytes).skip_while(|(kind, _)| kind != b"IDAT");
    let mut found = behind.filter(|(kind, _)| kind == b"eXIf");
    Orientation::from_exif_chunk(found.next()?.1)
}

/// True for the beginning of a PNG file that says that it has several pictures (APNG), as it must before the
/// first.
pub fn has_animation(bytes: &[u8]) -> bool {
    chunks(bytes).take_while(|(kind, _)| !matches!(kind, b"IDAT" | b"IEND")).any(|(kind, data)| {
        &kind == b"acTL" && data.first_chunk().is_some_and(|n| u32::from_be_bytes(*n) > 1)
    })
}

/// Dots per metre across and down that a PNG file declares, in a pHYs chunk before the picture.
pub(super) fn dots_per_metre(bytes: &[u8]) -> Option<[u32; 2]> {
    let mut before = chunks(bytes).take_while(|(kind, _)| kind != b"IDAT");
    let (_, data) = before.find(|(kind, _)| kind == b"pHYs")?;
    let [a, b, c, d, e, f, g, h, 1] = *data else { return None };
    Some([[a, b, c, d], [e, f, g, h]].map(u32::from_be_bytes))
}

/// A PNG file of these rows of whole bytes.
///
/// # Errors
/// The encoder's, if the picture has no pixels or is too large.
pub(super) fn encode(
    rows: &[u8],
    size: Size,
    colours: ::png::ColorType,
    bits: u8,
    density: Option<Density>,
) -> image::ImageResult<Vec<u8>> {
    let mut bytes = Vec::new();
    let mut encoder = ::png::Encoder::new(&mut bytes, size.width as u32, size.height as u32);
    encoder.set_color(colours);
    if bits == 1 {
        encoder.set_depth(::png::BitDepth::One);
        // Filters are for samples of whole bytes. There is an eighth of the bytes to compress.
        encoder.set_filter(::png::Filter::NoFilter);
        encoder.set_compression(::png::Compression::Balanced);
    } else {
        // As `image` has them.
        encoder.set_filter(::png::Filter::Adaptive);
        encoder.set_compression(::png::Compression::Fast);
    }
    encoder.set_pixel_dims(density.map(|density| {
        let [xppu, yppu] = density.to_per_metre();
        ::png::PixelDimensions { xppu, yppu, unit: ::png::Unit::Meter }
    }));
    let written = encoder.write_header().and_then(|mut writer| {
        writer.write_image_data(rows)?;
        writer.finish()
    });
    let kind = ImageFormatHint::Exact(ImageFormat::Png);
    written.map_err(|error| ImageError::Encoding(EncodingError::new(kind, error)))?;
    Ok(bytes)
}
