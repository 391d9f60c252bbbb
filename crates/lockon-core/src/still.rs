//! Still pictures: files to luma, and masks to files.

use std::fs::File;
use std::io::{Cursor, Read};
use std::path::Path;

use image::{DynamicImage, ImageDecoder, ImageFormat, ImageReader};
use sha2::{Digest, Sha256};

use crate::colour::{Conversion, luma_of};
use crate::error::{Error, Result};
use crate::files;
use crate::frame::{Plane, PlaneRef, Rect, Size};

/// A decoded still picture.
#[derive(Debug)]
pub struct Still {
    /// 8-bit luma, upright.
    pub luma: Plane,
    /// The alpha channel, where the picture has one.
    pub alpha: Option<Plane>,
    /// Red, green and blue of every pixel, where some pixel is not grey.
    pub rgb: Option<Vec<u8>>,
    /// SHA-256 of the file, in hexadecimal.
    pub sha256: String,
}

/// Most pixels of a picture: decoded, that is 1 GiB at most. A file of a few bytes can say that it has more.
pub const MAX_PIXELS: u64 = 1 << 27;

/// Most bytes that a PNG's colour profile and text may take, unpacked. Real profiles have some kB, the
/// largest a few MB.
const MAX_PNG_EXTRAS: u64 = 16 << 20;

/// Most bytes of a file. An uncompressed picture of [`MAX_PIXELS`] fits.
const MAX_BYTES: u64 = 1 << 30;

/// Reads a PNG, JPEG or BMP file, whatever its name; see [`decode`].
///
/// # Errors
/// `File` if it cannot be read; as [`decode`] if it is no such picture.
pub fn load(path: &Path) -> Result<Still> {
    load_up_to(path, MAX_PIXELS)
}

/// Reads a picture of up to `max_pixels`.
///
/// # Errors
/// As [`load`].
pub fn load_up_to(path: &Path, max_pixels: u64) -> Result<Still> {
    let unreadable = || Error::file("read", path);
    let file = File::open(path).map_err(unreadable())?;
    let mut bytes = Vec::new();
    // What is no picture may have no end, as a device or a pipe has none.
    (&file).take(64).read_to_end(&mut bytes).map_err(unreadable())?;
    if matches!(image::guess_format(&bytes), Ok(ImageFormat::Png | ImageFormat::Jpeg | ImageFormat::Bmp)) {
        (&file).take(MAX_BYTES).read_to_end(&mut bytes).map_err(unreadable())?;
    }
    if bytes.len() as u64 > MAX_BYTES {
        return Err(unreadable()(std::io::ErrorKind::FileTooLarge.into()));
    }
    decode(&bytes, path, max_pixels)
}

/// Decodes a PNG, JPEG or BMP file of up to `max_pixels`, [`MAX_PIXELS`] at most, and turns it upright as its
/// EXIF orientation says. `path` is for messages. What is too large is refused before there is memory for it.
///
/// Colours become luma by OpenCV's rule, Y = (4899 R + 9617 G + 1868 B + 8192) >> 14; 16-bit samples lose
/// their low byte.
///
/// # Errors
/// `Picture` if it cannot be decoded, `PictureTooLarge` if it has more pixels.
pub fn decode(bytes: &[u8], path: &Path, max_pixels: u64) -> Result<Still> {
    let undecodable = |cause| Error::Picture { path: path.to_owned(), cause };
    let mut reader =
        ImageReader::new(Cursor::new(bytes)).with_guessed_format().map_err(Error::file("read", path))?;
    // PNG's decoder unpacks what stands before the picture, by default up to half a gigabyte; a profile that
    // is too large it leaves aside.
    let mut limits = image::Limits::default();
    limits.max_alloc = Some(MAX_PNG_EXTRAS + row_bytes(bytes));
    reader.limits(limits);
    let mut decoder = reader.into_decoder().map_err(undecodable)?;
    let (width, height) = decoder.dimensions();
    let max = max_pixels.min(MAX_PIXELS);
    if u64::from(width) * u64::from(height) > max {
        let size = Size::new(width as usize, height as usize);
        return Err(Error::PictureTooLarge { path: path.to_owned(), size, max });
    }
    let orientation = decoder.orientation().map_err(undecodable)?;
    let mut picture = DynamicImage::from_decoder(decoder).map_err(undecodable)?;
    picture.apply_orientation(orientation);
    let size = Size::new(picture.width() as usize, picture.height() as usize);
    let alpha = picture.color().has_alpha();
    // One pass over 16-bit RGBA would do for all, but most files are 8-bit and large.
    let (luma, alpha, rgb) = match picture {
        DynamicImage::ImageLuma8(grey) => (grey.into_raw(), None, None),
        DynamicImage::ImageLuma16(grey) => {
            (grey.as_raw().iter().map(|&v| (v >> 8) as u8).collect(), None, None)
        }
        picture => {
            let wide = matches!(
                picture,
                DynamicImage::ImageLumaA16(_) | DynamicImage::ImageRgb16(_) | DynamicImage::ImageRgba16(_)
            );
            let rgba: Vec<u8> = if wide {
                picture.into_rgba16().as_raw().iter().map(|&v| (v >> 8) as u8).collect()
            } else {
                picture.into_rgba8().into_raw()
            };
            let pixels = || rgba.chunks_exact(4).map(|p| [p[0], p[1], p[2]]);
            let is_coloured = pixels().any(|[r, g, b]| r != g || g != b);
            (
                pixels().map(luma_of).collect(),
                alpha.then(|| rgba.chunks_exact(4).map(|p| p[3]).collect()),
                is_coloured.then(|| pixels().flatten().collect()),
            )
        }
    };
    Ok(Still {
        luma: Plane::from_vec(luma, size),
        alpha: alpha.map(|a| Plane::from_vec(a, size)),
        rgb,
        sha256: Sha256::digest(bytes).iter().map(|b| format!("{b:02x}")).collect(),
    })
}

/// How every PNG file begins.
const PNG: &[u8; 8] = b"\x89PNG\r\n\x1a\n";

/// Bytes that a row of a PNG of this header has at most, as long as a picture of that width can be taken; 0
/// for other files.
fn row_bytes(bytes: &[u8]) -> u64 {
    let width =
        bytes.strip_prefix(PNG).and_then(|rest| rest.get(8..12)).and_then(|width| width.first_chunk());
    // Four samples of two bytes, and one byte for the row's filter.
    width.map_or(0, |width| u64::from(u32::from_be_bytes(*width)).min(MAX_PIXELS) * 8 + 1)
}

/// True for the beginning of a PNG file that says that it has several pictures (APNG), as it must before the
/// first.
pub fn has_animation(bytes: &[u8]) -> bool {
    let Some(mut rest) = bytes.strip_prefix(PNG) else { return false };
    while let Some((header, data)) = rest.split_first_chunk::<8>() {
        let [a, b, c, d, kind @ ..] = *header;
        match &kind {
            b"acTL" => return data.first_chunk().is_some_and(|count| u32::from_be_bytes(*count) > 1),
            b"IDAT" | b"IEND" => return false,
            // What follows is the chunk's checksum.
            _ => rest = data.get(u32::from_be_bytes([a, b, c, d]) as usize + 4..).unwrap_or_default(),
        }
    }
    false
}

/// The name ends in that of a format that can be written: `.png`, `.jpg`, `.jpeg`, `.bmp`.
///
/// # Errors
/// `Value` if not.
pub fn check_extension(path: &Path) -> Result<()> {
    match image::ImageFormat::from_path(path) {
        Ok(format) if format.can_write() && format.writing_enabled() => Ok(()),
        _ => Err(Error::value("output", &path.to_string_lossy(), "its name must end in .png, .jpg or .bmp")),
    }
}

/// Writes a plane as a grey picture, in the format of the file's extension.
///
/// # Errors
/// `PictureNotWritten` if the extension is unknown, `File` if the file cannot be written.
pub fn save(path: &Path, plane: PlaneRef<'_>) -> Result<()> {
    encode(path, plane.to_plane().data(), plane.size(), image::ExtendedColorType::L8)
}

/// Encoded in memory first: what cannot be written is then an error, and no half of a picture, nor the end of
/// the one before.
fn encode(path: &Path, pixels: &[u8], size: Size, colours: image::ExtendedColorType) -> Result<()> {
    let unwritable = |cause| Error::PictureNotWritten { path: path.to_owned(), cause };
    let format = image::ImageFormat::from_path(path).map_err(unwritable)?;
    let mut bytes = Cursor::new(Vec::new());
    image::write_buffer_with_format(
        &mut bytes,
        pixels,
        size.width as u32,
        size.height as u32,
        colours,
        format,
    )
    .map_err(unwritable)?;
    files::replace(path, bytes.get_ref()).map_err(Error::file("write", path))
}

/// A JPEG file in memory, of pixels of three bytes: red, green, blue.
///
/// # Errors
/// The encoder's, if the picture has no pixels or is larger than the format can have it.
pub fn jpeg(rgb: &[u8], size: Size) -> image::ImageResult<Vec<u8>> {
    let mut bytes = Vec::new();
    image::codecs::jpeg::JpegEncoder::new(&mut bytes).encode(
        rgb,
        size.width as u32,
        size.height as u32,
        image::ExtendedColorType::Rgb8,
    )?;
    Ok(bytes)
}

/// A small picture of a box shows so many times the box.
const AROUND: f64 = 3.0;

/// What a small picture of a box `[x, y, w, h]` shows: the box and its surroundings, as far as they lie in a
/// frame of that size.
pub fn around([x, y, w, h]: [f64; 4], frame: Size) -> Rect {
    let side = (AROUND * w.max(h)).max(48.0);
    let range = |middle: f64, length: usize| {
        let side = side.min(length as f64);
        let start = (middle - side / 2.0).clamp(0.0, length as f64 - side);
        (start as usize, (side as usize).max(1))
    };
    let ((x, w), (y, h)) = (range(x + w / 2.0, frame.width), range(y + h / 2.0, frame.height));
    Rect::new(x, y, w, h)
}

impl Still {
    /// The picture as video has it, to be drawn on: Y, Cb, Cr of its size by BT.601, limited range.
    pub fn planes(&self) -> [Plane; 3] {
        let size = self.luma.size();
        let mut planes = [Plane::new(size), Plane::new(size), Plane::new(size)];
        for index in 0..size.area() {
            for (plane, value) in planes.iter_mut().zip(ycbcr_of(self.pixel(index))) {
                plane.data_mut()[index] = value;
            }
        }
        planes
    }

    /// Writes the picture with what was drawn on its [`planes`](Self::planes), in colour, in the format of
    /// the file's extension. Where nothing was drawn every pixel is as it was.
    ///
    /// # Errors
    /// As [`save`].
    ///
    /// # Panics
    /// If the planes are not of the picture's size.
    pub fn save_drawn(&self, path: &Path, drawn: &[Plane; 3]) -> Result<()> {
        let size = self.luma.size();
        assert!(drawn.iter().all(|plane| plane.size() == size), "planes of another size");
        let mut rgb = Vec::with_capacity(3 * size.area());
        for index in 0..size.area() {
            let (before, after) = (self.pixel(index), drawn.each_ref().map(|plane| plane.data()[index]));
            rgb.extend(if ycbcr_of(before) == after { before } else { Conversion::BT601.rgb(after) });
        }
        save_rgb(path, &rgb, size)
    }

    fn pixel(&self, index: usize) -> [u8; 3] {
        match &self.rgb {
            Some(rgb) => [rgb[3 * index], rgb[3 * index + 1], rgb[3 * index + 2]],
            None => [self.luma.data()[index]; 3],
        }
    }
}

/// BT.601 at limited range, in 16 fraction bits.
fn ycbcr_of([r, g, b]: [u8; 3]) -> [u8; 3] {
    let [r, g, b] = [r, g, b].map(i32::from);
    let sample = |value: i32, zero: i32| (((value + (1 << 15)) >> 16) + zero).clamp(0, 255) as u8;
    [
        sample(16_829 * r + 33_039 * g + 6_416 * b, 16),
        sample(-9_714 * r - 19_070 * g + 28_784 * b, 128),
        sample(28_784 * r - 24_103 * g - 4_681 * b, 128),
    ]
}

/// Writes pixels of three bytes, red, green, blue, as a colour picture, in the format of the file's
/// extension.
///
/// # Errors
/// As [`save`].
pub fn save_rgb(path: &Path, rgb: &[u8], size: Size) -> Result<()> {
    encode(path, rgb, size, image::ExtendedColorType::Rgb8)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_pictures_of_a_box_stay_inside_the_frame() {
        let frame = Size::new(64, 48);
        for at in
            [[-500.0, -3.0, 9.0, 9.0], [60.0, 40.0, 300.0, 2.0], [20.0, 20.0, 0.1, 0.1], [1e9, 1e9, 5.0, 5.0]]
        {
            assert!(around(at, frame).is_inside(frame), "{at:?}: {}", around(at, frame));
        }
        assert!(around([1.0, 1.0, 4.0, 4.0], Size::new(1, 1)).is_inside(Size::new(1, 1)));
    }

    #[test]
    fn known_colours_come_back_from_luma_and_chroma() {
        // Red, and a grey, as BT.601 has them in limited range.
        assert_eq!(ycbcr_of([255, 0, 0]), [81, 90, 240]);
        assert_eq!(Conversion::BT601.rgb([81, 90, 240]), [254, 0, 0]);
        for colour in [[0, 0, 0], [255, 255, 255], [12, 200, 77], [250, 3, 128], [99, 99, 99]] {
            let back = Conversion::BT601.rgb(ycbcr_of(colour));
            let apart = back.iter().zip(colour).map(|(a, b)| a.abs_diff(b)).max();
            // A step of chroma is up to two of blue.
            assert!(apart <= Some(2), "{colour:?} came back as {back:?}");
        }
    }

    #[test]
    fn what_is_not_drawn_on_keeps_its_colours_exactly() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("colours.png");
        let pixels: Vec<u8> = (0..9 * 7 * 3).map(|i| (i * 37 % 256) as u8).collect();
        image::RgbImage::from_raw(9, 7, pixels.clone()).unwrap().save(&path).unwrap();
        let still = load(&path).unwrap();
        assert_eq!(still.rgb.as_deref(), Some(&pixels[..]));
        let mut planes = still.planes();
        for (plane, value) in planes.iter_mut().zip(ycbcr_of([255, 0, 0])) {
            plane.data_mut()[10] = value;
        }
        still.save_drawn(&path, &planes).unwrap();
        let mut expected = pixels;
        expected[30..33].copy_from_slice(&[254, 0, 0]);
        assert_eq!(load(&path).unwrap().rgb, Some(expected));
    }

    #[test]
    fn a_grey_picture_has_no_colours_however_it_is_stored() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("grey.png");
        image::RgbImage::from_pixel(3, 2, image::Rgb([7, 7, 7])).save(&path).unwrap();
        assert_eq!(load(&path).unwrap().rgb, None);
    }

    #[test]
    fn alpha_and_sixteen_bits_survive_a_round_trip() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("wide.png");
        let mut picture = image::RgbaImage::new(2, 1);
        picture.put_pixel(0, 0, image::Rgba([9, 9, 9, 255]));
        picture.put_pixel(1, 0, image::Rgba([200, 200, 200, 100]));
        DynamicImage::ImageRgba8(picture).to_rgba16().save(&path).unwrap();
        let still = load(&path).unwrap();
        assert_eq!(
            (still.luma.data(), still.alpha.unwrap().data()),
            ([9, 200].as_slice(), [255, 100].as_slice())
        );
        assert_eq!(still.sha256.len(), 64);
    }

    /// A PNG that says that it is so large and has nothing to show for it.
    fn declared(width: u32, height: u32) -> Vec<u8> {
        let mut bytes = Cursor::new(Vec::new());
        image::write_buffer_with_format(
            &mut bytes,
            &[0],
            1,
            1,
            image::ExtendedColorType::L8,
            ImageFormat::Png,
        )
        .unwrap();
        let mut bytes = bytes.into_inner();
        bytes[16..20].copy_from_slice(&width.to_be_bytes());
        bytes[20..24].copy_from_slice(&height.to_be_bytes());
        let checksum = crc32(&bytes[12..29]).to_be_bytes();
        bytes[29..33].copy_from_slice(&checksum);
        bytes
    }

    /// ISO 3309's, as PNG has it behind each chunk.
    fn crc32(bytes: &[u8]) -> u32 {
        !bytes.iter().fold(!0, |crc: u32, byte| {
            (0..8).fold(crc ^ u32::from(*byte), |crc, _| {
                (crc >> 1) ^ (0xEDB8_8320 & 0_u32.wrapping_sub(crc & 1))
            })
        })
    }

    #[test]
    fn a_picture_that_declares_60000_x_60000_pixels_is_refused_by_its_header() {
        let said = |bytes: &[u8], max| decode(bytes, Path::new("bomb.png"), max).unwrap_err().to_string();
        assert_eq!(
            said(&declared(60_000, 60_000), u64::MAX),
            "bomb.png is 60000x60000: pictures of up to 134217728 pixels are taken here"
        );
        assert!(said(&declared(u32::MAX >> 1, u32::MAX >> 1), u64::MAX).contains("bomb.png"));
        assert!(said(&declared(2049, 2048), 1 << 22).contains("2049x2048: pictures of up to 4194304"));
    }

    #[test]
    #[cfg(unix)]
    fn a_file_without_end_is_not_read_to_its_end() {
        assert!(matches!(load(Path::new("/dev/zero")), Err(Error::Picture { .. })));
    }

    #[test]
    fn a_text_file_is_not_a_picture() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("not.png");
        std::fs::write(&path, "just words, no pixels").unwrap();
        let said = load(&path).unwrap_err().to_string();
        assert!(said.contains("not.png") && said.contains("PNG, JPEG and BMP are read"), "{said}");
    }
}
