//! Masks as files: one bit a pixel where the kind of file has that.

use std::fmt;
use std::path::Path;
use std::str::FromStr;

use fax::{Color, VecWriter, encoder::Encoder};
use image::{ExtendedColorType, ImageFormat};

use super::density::Density;
use super::encode;
use crate::error::{Error, Result};
use crate::files;
use crate::frame::{PlaneRef, Size};

/// The kinds of files that a mask is written as.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MaskKind {
    /// PNG, of 8 or 1 bits.
    Png,
    /// JPEG, of 8 bits and with losses.
    Jpeg,
    /// BMP, of 8 bits.
    Bmp,
    /// Portable bitmap (P4): 1 bit, not compressed.
    Pbm,
    /// TIFF of 1 bit, compressed as ITU-T T.6 defines it (CCITT Group 4), as scanners and archives have
    /// pages.
    Tiff,
}

impl MaskKind {
    /// All names, for help.
    pub const NAMES: [&str; 5] = ["png", "jpg", "bmp", "pbm", "tiff"];

    /// The kind that the ending of a name asks for; PNG for standard output.
    ///
    /// # Errors
    /// `Value` if it is not the ending of one.
    pub fn of_path(path: &Path) -> Result<Self> {
        if files::is_stdout(path) {
            return Ok(Self::Png);
        }
        let ending = path.extension().and_then(|ending| ending.to_str()).unwrap_or_default();
        ending.to_ascii_lowercase().parse().map_err(|_| {
            let expected = "its name must end in .png, .jpg, .bmp, .pbm or .tif, or --format says what it is";
            Error::value("output", &path.to_string_lossy(), expected)
        })
    }

    /// True if pictures in colour can be written so.
    pub fn has_colours(self) -> bool {
        matches!(self, Self::Png | Self::Jpeg | Self::Bmp)
    }

    /// The bits that a pixel can have: the first by default.
    pub fn bits(self) -> &'static [u8] {
        match self {
            Self::Png => &[8, 1],
            Self::Jpeg | Self::Bmp => &[8],
            Self::Pbm | Self::Tiff => &[1],
        }
    }

    /// The format of `image` that has it.
    pub(super) fn format(self) -> ImageFormat {
        match self {
            Self::Png => ImageFormat::Png,
            Self::Jpeg => ImageFormat::Jpeg,
            Self::Bmp => ImageFormat::Bmp,
            Self::Pbm => ImageFormat::Pnm,
            Self::Tiff => ImageFormat::Tiff,
        }
    }
}

impl FromStr for MaskKind {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        Ok(match text {
            "png" => Self::Png,
            "jpg" | "jpeg" => Self::Jpeg,
            "bmp" => Self::Bmp,
            "pbm" => Self::Pbm,
            "tif" | "tiff" => Self::Tiff,
            _ => return Err(Error::value("format", text, "expected png, jpg, bmp, pbm or tiff")),
        })
    }
}

impl fmt::Display for MaskKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Png => "png",
            Self::Jpeg => "jpg",
            Self::Bmp => "bmp",
            Self::Pbm => "pbm",
            Self::Tiff => "tiff",
        })
    }
}

/// How a mask is written.
#[derive(Debug, Clone, Copy)]
pub struct MaskFile {
    /// The kind of file.
    pub kind: MaskKind,
    /// Bits of a pixel: one of [`MaskKind::bits`].
    pub bits: u8,
    /// Dots per inch; a PBM does not have them.
    pub density: Option<Density>,
}

/// The widest line of Group 4: the encoder counts columns in 15 bits.
const MAX_GROUP4_WIDTH: usize = i16::MAX as usize;

/// Writes a mask: pixels of 128 or more are white, which is 1 in a PNG of 1 bit, and 0 in PBM and TIFF, as
/// these have paper. `-` is standard output.
///
/// # Errors
/// `Usage` for a mask that is too wide for its kind of file; otherwise as [`save`](super::save).
///
/// # Panics
/// If the kind cannot have so many bits.
pub fn save_mask(path: &Path, mask: PlaneRef<'_>, file: &MaskFile) -> Result<()> {
    let &MaskFile { kind, bits, density } = file;
    assert!(kind.bits().contains(&bits), "{kind} of {bits} bits");
    let (size, png) = (mask.size(), kind == MaskKind::Png && bits == 1);
    let unwritable = |cause| Error::PictureNotWritten { path: path.to_owned(), cause };
    let bytes = match kind {
        MaskKind::Pbm => pbm(mask),
        MaskKind::Tiff if size.width > MAX_GROUP4_WIDTH => {
            return Err(Error::Usage(format!(
                "a TIFF of Group 4 is up to {MAX_GROUP4_WIDTH} pixels wide, and the mask has {size}: use .png or .pbm"
            )));
        }
        MaskKind::Tiff => tiff(mask, density),
        _ if png => super::png::encode(&packed(mask, 0), size, ::png::ColorType::Grayscale, 1, density)
            .map_err(unwritable)?,
        _ => encode(mask.to_plane().data(), size, ExtendedColorType::L8, kind.format(), density)
            .map_err(unwritable)?,
    };
    super::write(path, &bytes)
}

/// Rows of bits, the first pixel in the highest: 1 for white pixels, or for black ones if `flip` is 255.
fn packed(mask: PlaneRef<'_>, flip: u8) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(mask.size().width.div_ceil(8) * mask.size().height);
    for row in mask.rows() {
        bytes.extend(row.chunks(8).map(|eight| {
            let bits = eight.iter().enumerate().fold(0, |bits, (at, &pixel)| bits | (pixel >> 7) << (7 - at));
            // Bits behind the end of a row are 0.
            (bits ^ flip) & 0xff << (8 - eight.len())
        }));
    }
    bytes
}

fn pbm(mask: PlaneRef<'_>) -> Vec<u8> {
    let Size { width, height } = mask.size();
    let mut bytes = format!("P4\n{width} {height}\n").into_bytes();
    bytes.extend(packed(mask, 0xff));
    bytes
}

/// One strip, behind the header and before the directory.
fn tiff(mask: PlaneRef<'_>, density: Option<Density>) -> Vec<u8> {
    const SHORT: u16 = 3;
    const LONG: u16 = 4;
    const RATIONAL: u16 = 5;
    const HEADER: u32 = 8;
    let Size { width, height } = mask.size();
    let mut encoder = Encoder::new(VecWriter::new());
    for row in mask.rows() {
        let pixels = row.iter().map(|&pixel| if pixel >= 128 { Color::White } else { Color::Black });
        let Ok(()) = encoder.encode_line(pixels, width as u16);
    }
    let Ok(writer) = encoder.finish();
    let strip = writer.finish();
    // Directories are at even places.
    let directory = (HEADER + strip.len() as u32).next_multiple_of(2);
    let mut entries = vec![
        (256, LONG, width as u32),
        (257, LONG, height as u32),
        // Bits of a sample; Group 4; 0 is white.
        (258, SHORT, 1),
        (259, SHORT, 4),
        (262, SHORT, 0),
        (273, LONG, HEADER),
        (277, SHORT, 1),
        // All rows are in one strip of so many bytes.
        (278, LONG, height as u32),
        (279, LONG, strip.len() as u32),
    ];
    let mut quotients = Vec::new();
    if let Some(Density { x, y }) = density {
        let behind = directory + 2 + 12 * (entries.len() as u32 + 4) + 4;
        entries.extend([(282, RATIONAL, behind), (283, RATIONAL, behind + 8)]);
        for dots in [x, y] {
            let below = if dots.fract() == 0.0 { 1 } else { 10_000 };
            quotients.extend([(dots * f64::from(below)).round() as u32, below]);
        }
    }
    // Options of Group 4: none.
    entries.push((293, LONG, 0));
    if density.is_some() {
        // Inches.
        entries.push((296, SHORT, 2));
    }
    let mut bytes = b"II*\0".to_vec();
    bytes.extend(directory.to_le_bytes());
    bytes.extend(strip);
    bytes.resize(directory as usize, 0);
    bytes.extend((entries.len() as u16).to_le_bytes());
    for (tag, kind, value) in entries {
        bytes.extend([u16::to_le_bytes(tag), kind.to_le_bytes()].concat());
        bytes.extend([1_u32.to_le_bytes(), value.to_le_bytes()].concat());
    }
    bytes.extend(0_u32.to_le_bytes());
    bytes.extend(quotients.into_iter().flat_map(u32::to_le_bytes));
    bytes
}

#[cfg(test)]
mod tests {
    use super::super::{MAX_PIXELS, decode, page};
    use super::*;
    use crate::frame::Plane;

    /// Runs, noise, empty and full rows, in rows longer than they are wide, of which the rest is poisoned.
    fn mask(size: Size, stride: usize) -> Vec<u8> {
        let mut random = 7_u64;
        let mut pixel = |x: usize, y: usize| {
            random = random.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
            let is_white = match y % 5 {
                0 => random >> 63 == 1,
                1 => (x / 7).is_multiple_of(2),
                2 => false,
                3 => true,
                _ => !((x + y) / 40).is_multiple_of(3),
            };
            if is_white { 255 } else { 0 }
        };
        (0..size.height * stride).map(|i| pixel(i % stride, i / stride)).collect()
    }

    #[test]
    fn masks_of_every_kind_without_losses_come_back_with_their_dots_per_inch() {
        let dir = tempfile::tempdir().unwrap();
        let density = Density::new(300.0, 150.5);
        for (width, height) in [(1, 1), (7, 5), (8, 3), (65, 31), (2561, 10), (32_767, 5)] {
            let size = Size::new(width, height);
            let pixels = mask(size, width + 3);
            let mask = PlaneRef::new(&pixels, size, width + 3);
            for (kind, bits) in [("png", 1), ("png", 8), ("bmp", 8), ("pbm", 1), ("tiff", 1)] {
                for density in [None, density] {
                    let path = dir.path().join(format!("a.{kind}"));
                    let file = MaskFile { kind: MaskKind::of_path(&path).unwrap(), bits, density };
                    save_mask(&path, mask, &file).unwrap();
                    let still = decode(&std::fs::read(&path).unwrap(), &path, MAX_PIXELS).unwrap();
                    let what = format!("{size} {kind} {bits}");
                    assert!(still.luma == mask.to_plane(), "{what}");
                    match (kind, density, still.density) {
                        ("pbm", _, None) | (_, None, None) => {}
                        (_, Some(wanted), Some(got)) => {
                            let apart = (got.x - wanted.x).abs().max((got.y - wanted.y).abs());
                            // Whole dots per metre.
                            assert!(apart < 0.013, "{what}: {got:?}");
                        }
                        other => panic!("{what}: {other:?}"),
                    }
                }
            }
        }
    }

    #[test]
    fn a_pbm_has_1_where_the_mask_is_black_and_zeros_behind_each_row() {
        let pixels = [255, 0, 0, 255, 255, 255, 255, 255, 0, 255];
        let mask = PlaneRef::new(&pixels, Size::new(10, 1), 10);
        assert_eq!(pbm(mask), b"P4\n10 1\n\x60\x80");
        assert_eq!(packed(mask, 0), [0x9f, 0x40]);
    }

    #[test]
    fn a_tiff_that_group_4_cannot_have_is_refused_with_the_remedy() {
        let mask = Plane::new(Size::new(MAX_GROUP4_WIDTH + 1, 1));
        let file = MaskFile { kind: MaskKind::Tiff, bits: 1, density: None };
        let said = save_mask(Path::new("a.tif"), mask.as_ref(), &file).unwrap_err();
        assert!(said.is_usage() && said.to_string().contains("32768x1: use .png or .pbm"), "{said}");
    }

    #[test]
    fn a_page_of_a_tiff_is_decoded_by_its_number() {
        // Pages behind each other: offsets count from the beginning of the file.
        let sizes = [Size::new(9, 4), Size::new(20, 3), Size::new(5, 6)];
        let mut all = Vec::new();
        let mut link = 4;
        for size in sizes {
            let pixels = mask(size, size.width);
            let mut one = tiff(PlaneRef::new(&pixels, size, size.width), Density::new(200.0, 200.0));
            let begin = all.len() as u32;
            let number = |at: usize, bytes: &[u8]| u32::from_le_bytes(*bytes[at..].first_chunk().unwrap());
            let directory = number(4, &one) as usize;
            for entry in (0..13).map(|i| directory + 2 + 12 * i) {
                let tag = u16::from_le_bytes(*one[entry..].first_chunk().unwrap());
                if [273, 282, 283].contains(&tag) {
                    let moved = number(entry + 8, &one) + begin;
                    one[entry + 8..][..4].copy_from_slice(&moved.to_le_bytes());
                }
            }
            all.extend(one);
            let to = begin + directory as u32;
            all[link..][..4].copy_from_slice(&to.to_le_bytes());
            link = begin as usize + directory + 2 + 12 * 13;
            if all.len() % 2 == 1 {
                all.push(0);
            }
        }
        let path = Path::new("pages.tif");
        assert_eq!(decode(&all, path, MAX_PIXELS).unwrap().pages, 3);
        for (number, size) in (1..).zip(sizes) {
            let still = decode(&page(&all, number, path).unwrap(), path, MAX_PIXELS).unwrap();
            assert_eq!((still.luma.size(), still.pages), (size, 1));
            assert_eq!(still.density, Density::new(200.0, 200.0));
        }
        let said = page(&all, 4, path).unwrap_err();
        assert_eq!(said.to_string(), "pages.tif has no page 4: it has 3");
        let said = page(b"P1 1 1 0", 2, path).unwrap_err();
        assert_eq!(said.to_string(), "pages.tif has no page 2: it has 1");
    }

    #[test]
    fn damaged_pages_are_pictures_or_errors() {
        let size = Size::new(40, 30);
        let whole = tiff(mask_of(&mask(size, 40), size), Density::new(300.0, 300.0));
        let mut random = 5_u64;
        let mut below = |end: usize| {
            random = random.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
            (random >> 33) as usize % end
        };
        let path = Path::new("damaged.tif");
        for _ in 0..3000 {
            let mut bytes = whole.clone();
            for _ in 0..=below(4) {
                bytes[below(whole.len())] = below(256) as u8;
            }
            bytes.truncate(if below(4) == 0 { below(whole.len()) } else { whole.len() });
            for number in [1, 2] {
                let one = page(&bytes, number, path);
                let _ = one.and_then(|bytes| decode(&bytes, path, 1 << 16));
            }
            let _ = decode(&bytes, path, 1 << 16);
        }
    }

    fn mask_of(pixels: &[u8], size: Size) -> PlaneRef<'_> {
        PlaneRef::new(pixels, size, size.width)
    }
}
