//! Still pictures: files to luma, and masks to files.

use std::fmt;
use std::fs::File;
use std::io::{Cursor, Read, Write};
use std::path::Path;

use image::codecs::jpeg::{JpegEncoder, PixelDensity, PixelDensityUnit};
use image::codecs::{gif::GifDecoder, png::PngDecoder, webp::WebPDecoder};
use image::error::{ImageFormatHint, UnsupportedError, UnsupportedErrorKind};
use image::metadata::Orientation;
use image::{AnimationDecoder, ColorType, DynamicImage, ImageDecoder, ImageFormat, ImageReader};
use sha2::{Digest, Sha256};

use crate::colour::{self, Conversion};
use crate::error::{Error, Result};
use crate::files;
use crate::frame::{Plane, PlaneRef, Rect, Size};
use crate::text;

use jpeg::Completed;
use png::{late_orientation, row_bytes};

mod density;
mod gif;
mod jpeg;
mod mask;
mod png;
mod tiff;
mod webp;

pub use density::Density;
pub use mask::{MaskFile, MaskKind, save_mask};
pub use png::has_animation;

/// A decoded still picture.
#[derive(Debug)]
pub struct Still {
    /// 8-bit luma, upright.
    pub luma: Plane,
    /// The alpha channel, where the picture has one.
    pub alpha: Option<Plane>,
    /// Red, green and blue of every pixel, where some pixel is not grey.
    pub rgb: Option<Vec<u8>>,
    /// True if the file stores colours, even if all of its pixels are grey.
    pub has_colours: bool,
    /// The range of the samples, where these have 16 bits.
    pub deep: Option<DeepSamples>,
    /// True if the file has other pictures behind this one, to be shown one after the other.
    pub is_animated: bool,
    /// Pages of a TIFF file, of which this is the first; 1 for other pictures.
    pub pages: usize,
    /// Dots per inch, of the upright picture; `None` where the file does not say, and where luma alone was
    /// asked for.
    pub density: Option<Density>,
}

/// The range of the 16-bit samples of a picture, alpha excluded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DeepSamples {
    /// The least.
    pub min: u16,
    /// The greatest.
    pub max: u16,
}

/// Maximum pixels of a picture: decoded, that is 1 GiB at most. A file of a few bytes can claim more.
pub const MAX_PIXELS: u64 = 1 << 27;

/// The kinds of pictures that are read, for messages.
pub use crate::error::PICTURE_KINDS as KINDS;

/// The kinds of pictures that are read.
const FORMATS: [ImageFormat; 7] = [
    ImageFormat::Png,
    ImageFormat::Jpeg,
    ImageFormat::WebP,
    ImageFormat::Tiff,
    ImageFormat::Gif,
    ImageFormat::Bmp,
    ImageFormat::Pnm,
];

/// Maximum bytes that a PNG's colour profile and text may take, unpacked. Real profiles have some kB, the
/// largest a few MB.
const MAX_PNG_EXTRAS: u64 = 16 << 20;

/// Maximum bytes of a file. An uncompressed picture of [`MAX_PIXELS`] fits.
const MAX_BYTES: u64 = 1 << 30;

/// Bytes at the start of a file that identify its kind.
const HEAD: u64 = 64;

/// Fewer levels than this after the reduction to 8 bits are reported: 12-bit samples have 16, and matches of
/// such pictures score visibly less.
const FEW_LEVELS: u16 = 32;

/// Returns the picture in a file of one of [`KINDS`], whatever its name; see [`decode`].
///
/// # Errors
/// `File` if it cannot be read; as [`decode`] if it is no such picture.
pub fn load(path: &Path) -> Result<Still> {
    decode(&read(path)?, path, MAX_PIXELS)
}

/// Returns the bytes of a file: all of a picture's, and the first few of any other file.
///
/// # Errors
/// `File` if it cannot be read or is too large.
pub fn read(path: &Path) -> Result<Vec<u8>> {
    let unreadable = || Error::file("read", path);
    let file = File::open(path).map_err(unreadable())?;
    let mut bytes = Vec::new();
    // Devices and pipes may have no end.
    (&file).take(HEAD).read_to_end(&mut bytes).map_err(unreadable())?;
    if is_picture(&bytes) {
        (&file).take(MAX_BYTES).read_to_end(&mut bytes).map_err(unreadable())?;
    }
    if bytes.len() as u64 > MAX_BYTES {
        return Err(unreadable()(std::io::ErrorKind::FileTooLarge.into()));
    }
    Ok(bytes)
}

/// True for the beginning of a file of one of [`KINDS`].
pub fn is_picture(bytes: &[u8]) -> bool {
    kind_of(bytes).is_some()
}

/// True if the end of a JPEG picture is missing, and visible pixels with it. Pictures of too many pixels, and
/// those that cannot be decoded at all, count as complete.
pub fn is_cut_jpeg(bytes: &[u8]) -> bool {
    matches!(jpeg::completed(bytes, MAX_PIXELS), Completed::Cut)
}

/// The ending of the names of such files, as `png` or `jpg`, of the beginning of a picture; `None` for
/// anything else.
pub fn ending_of(bytes: &[u8]) -> Option<&'static str> {
    kind_of(bytes).map(|format| match format {
        // Its list begins with another one.
        ImageFormat::Pnm => "pnm",
        format => format.extensions_str()[0],
    })
}

fn kind_of(bytes: &[u8]) -> Option<ImageFormat> {
    image::guess_format(bytes).ok().filter(|format| FORMATS.contains(format))
}

/// Decodes a file of one of [`KINDS`] of up to `max_pixels`, [`MAX_PIXELS`] at most, and turns it upright as
/// its EXIF orientation says. `path` is for messages. Larger pictures are refused before memory is allocated.
/// The first picture of an animation is decoded.
///
/// Colours become luma by OpenCV's rule, Y = (4899 R + 9617 G + 1868 B + 8192) >> 14; 16-bit samples lose
/// their low byte.
///
/// # Errors
/// `PictureCut` if its end is missing; `Picture` if it cannot be decoded, `PictureTooLarge` if it has more
/// pixels.
pub fn decode(bytes: &[u8], path: &Path, max_pixels: u64) -> Result<Still> {
    decode_as(bytes, path, max_pixels, false)
}

/// As [`decode`], for callers that use luma alone: colours may be left out. The luma is the same to the bit,
/// and is decoded faster.
///
/// # Errors
/// As [`decode`].
pub fn decode_luma(bytes: &[u8], path: &Path, max_pixels: u64) -> Result<Still> {
    decode_as(bytes, path, max_pixels, true)
}

fn decode_as(bytes: &[u8], path: &Path, max_pixels: u64, luma_only: bool) -> Result<Still> {
    let undecodable = |cause| Error::Picture { path: path.to_owned(), cause };
    // Decoders of JPEG fill what is missing with grey.
    let completed;
    let whole = match kind_of(bytes) {
        Some(ImageFormat::Jpeg) => {
            completed = jpeg::completed(bytes, max_pixels.min(MAX_PIXELS));
            match &completed {
                Completed::Whole => bytes,
                Completed::WithEnd(bytes) => bytes,
                Completed::Cut => return Err(Error::PictureCut { path: path.to_owned() }),
            }
        }
        _ => bytes,
    };
    webp::check(bytes).map_err(undecodable)?;
    if luma_only && let Some(luma) = jpeg::luma(whole, max_pixels.min(MAX_PIXELS)) {
        return Ok(Still {
            luma,
            alpha: None,
            rgb: None,
            has_colours: false,
            deep: None,
            is_animated: false,
            pages: 1,
            density: None,
        });
    }
    let mut reader =
        ImageReader::new(Cursor::new(whole)).with_guessed_format().map_err(Error::file("read", path))?;
    let format = reader.format();
    let (mut limits, is_png) = (image::Limits::default(), format == Some(ImageFormat::Png));
    if is_png {
        // PNG's decoder unpacks what stands before the picture, by default up to half a gigabyte, and ignores
        // a profile that is too large.
        limits.max_alloc = Some(MAX_PNG_EXTRAS + row_bytes(bytes));
    }
    reader.limits(limits.clone());
    let mut decoder = reader.into_decoder().map_err(undecodable)?;
    let (width, height) = decoder.dimensions();
    let (pixels, max) = (u64::from(width) * u64::from(height), max_pixels.min(MAX_PIXELS));
    if pixels > max {
        let size = Size::new(width as usize, height as usize);
        return Err(Error::PictureTooLarge { path: path.to_owned(), size, max });
    }
    if !is_png {
        // The largest of the decoders' own buffers is a picture of four samples of two bytes.
        limits.max_alloc = Some(MAX_PNG_EXTRAS + 8 * pixels);
        decoder.set_limits(limits).map_err(undecodable)?;
    }
    let colours = decoder.color_type();
    if matches!(colours, ColorType::Rgb32F | ColorType::Rgba32F) {
        let hint = format.map_or(ImageFormatHint::Unknown, ImageFormatHint::Exact);
        let kind = UnsupportedErrorKind::Color(decoder.original_color_type());
        let cause = UnsupportedError::from_format_and_kind(hint, kind);
        return Err(undecodable(image::ImageError::Unsupported(cause)));
    }
    let late = if is_png { late_orientation(bytes) } else { None };
    let orientation = decoder.orientation().map_err(undecodable)?;
    let mut picture = DynamicImage::from_decoder(decoder).map_err(|cause| not_decoded(cause, path))?;
    let orientation = late.unwrap_or(orientation);
    picture.apply_orientation(orientation);
    let mut still = Still::of(picture);
    let is_turned = matches!(
        orientation,
        Orientation::Rotate90
            | Orientation::Rotate270
            | Orientation::Rotate90FlipH
            | Orientation::Rotate270FlipH
    );
    still = still.with_facts_of(bytes);
    if is_turned {
        still.density = still.density.map(Density::turned);
    }
    // Phones store more views of a scene behind a JPEG.
    still.is_animated = format != Some(ImageFormat::Jpeg) && is_video(bytes);
    Ok(still)
}

fn not_decoded(cause: image::ImageError, path: &Path) -> Error {
    let path = path.to_owned();
    match cause {
        image::ImageError::IoError(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => {
            Error::PictureCut { path }
        }
        cause => Error::Picture { path, cause },
    }
}

/// SHA-256 of a file's bytes, in hexadecimal.
pub fn sha256(bytes: &[u8]) -> String {
    text::hexadecimal(&Sha256::digest(bytes))
}

impl Still {
    /// The picture as it was decoded, turned upright.
    fn of(picture: DynamicImage) -> Self {
        let size = Size::new(picture.width() as usize, picture.height() as usize);
        let (has_colours, has_alpha) = (picture.color().has_color(), picture.color().has_alpha());
        let deep = DeepSamples::of(&picture);
        // 16-bit samples lose their low byte: the conversions of `image` would round.
        let upper = |samples: Vec<u16>| samples.into_iter().map(|v| (v >> 8) as u8).collect();
        let samples: Vec<u8> = match picture {
            DynamicImage::ImageLuma8(picture) => picture.into_raw(),
            DynamicImage::ImageLumaA8(picture) => picture.into_raw(),
            DynamicImage::ImageRgb8(picture) => picture.into_raw(),
            DynamicImage::ImageLuma16(picture) => upper(picture.into_raw()),
            DynamicImage::ImageLumaA16(picture) => upper(picture.into_raw()),
            DynamicImage::ImageRgb16(picture) => upper(picture.into_raw()),
            DynamicImage::ImageRgba16(picture) => upper(picture.into_raw()),
            // The last kind without samples of its own would be one that is new in `image`.
            picture => picture.into_rgba8().into_raw(),
        };
        let (luma, alpha, rgb): (Vec<u8>, Vec<u8>, Vec<u8>) = match (has_colours, has_alpha) {
            (false, false) => (samples, Vec::new(), Vec::new()),
            (false, true) => {
                let (pixels, _) = samples.as_chunks::<2>();
                (pixels.iter().map(|p| p[0]).collect(), pixels.iter().map(|p| p[1]).collect(), Vec::new())
            }
            (true, false) => (luma_of_all(&samples), Vec::new(), samples),
            (true, true) => {
                let (pixels, _) = samples.as_chunks::<4>();
                let rgb: Vec<u8> = pixels.iter().flat_map(|&[r, g, b, _]| [r, g, b]).collect();
                (luma_of_all(&rgb), pixels.iter().map(|p| p[3]).collect(), rgb)
            }
        };
        Self {
            luma: Plane::from_vec(luma, size),
            alpha: has_alpha.then(|| Plane::from_vec(alpha, size)),
            rgb: Some(rgb).filter(|rgb| is_coloured(rgb)),
            has_colours,
            deep,
            is_animated: false,
            pages: 1,
            density: None,
        }
    }

    /// The picture of these pixels, red, green, blue and alpha, that another decoder made. `has_colours` is
    /// false where red, green and blue are equal everywhere. `None` if there are not as many bytes.
    pub fn of_rgba(rgba: Vec<u8>, size: Size, has_colours: bool) -> Option<Self> {
        let picture = image::RgbaImage::from_raw(size.width as u32, size.height as u32, rgba)?;
        let is_opaque = picture.pixels().all(|pixel| pixel.0[3] == 255);
        let picture = DynamicImage::ImageRgba8(picture);
        Some(Self::of(match (has_colours, is_opaque) {
            (true, true) => picture.into_rgb8().into(),
            (true, false) => picture,
            (false, true) => picture.into_luma8().into(),
            (false, false) => picture.into_luma_alpha8().into(),
        }))
    }

    /// With what its file says beside the pixels: dots per inch, and how many pages there are.
    #[must_use]
    pub fn with_facts_of(mut self, bytes: &[u8]) -> Self {
        let format = kind_of(bytes);
        self.density = format.and_then(|format| density::of(bytes, format));
        if format == Some(ImageFormat::Tiff) {
            self.pages = tiff::pages(bytes);
        }
        self
    }

    /// Makes the picture one that is searched: without an alpha channel, which a scene has no use for.
    pub fn into_scene(mut self) -> (Self, Loss) {
        let is_laid_on_white = self.lay_on_white();
        let loss = Loss { is_laid_on_white, ..self.loss() };
        (self, loss)
    }

    /// The losses of its decoding.
    pub fn loss(&self) -> Loss {
        Loss { deep: self.deep, is_laid_on_white: false, is_animated: self.is_animated, pages: self.pages }
    }

    /// Lays the picture on a white ground and removes its alpha channel. Returns true if some pixel let the
    /// ground through.
    fn lay_on_white(&mut self) -> bool {
        let Some(alpha) = self.alpha.take().filter(|alpha| alpha.data().iter().any(|&alpha| alpha < 255))
        else {
            return false;
        };
        let over = |value: u8, alpha: u8| {
            let (value, alpha) = (u32::from(value), u32::from(alpha));
            ((value * alpha + 255 * (255 - alpha) + 127) / 255) as u8
        };
        if let Some(rgb) = &mut self.rgb {
            for (pixel, &alpha) in rgb.as_chunks_mut::<3>().0.iter_mut().zip(alpha.data()) {
                *pixel = pixel.map(|value| over(value, alpha));
            }
            self.luma = Plane::from_vec(luma_of_all(rgb), self.luma.size());
            self.rgb = self.rgb.take().filter(|rgb| is_coloured(rgb));
        } else {
            for (luma, &alpha) in self.luma.data_mut().iter_mut().zip(alpha.data()) {
                *luma = over(*luma, alpha);
            }
        }
        true
    }

    /// Makes the picture one without colours, of the same luma.
    pub fn remove_colours(&mut self) {
        (self.rgb, self.has_colours) = (None, false);
    }

    /// Luma, Cb and Cr at full range ([`colour::of_rgb`]), row by row in rows of `stride` bytes, one plane
    /// behind the other; of a file without colours the luma plane alone.
    ///
    /// # Panics
    /// If the stride is less than the width.
    pub fn into_full_range(self, stride: usize) -> Vec<u8> {
        let Size { width, height } = self.luma.size();
        assert!(stride >= width, "a stride of {stride} for rows of {width}");
        if !self.has_colours && stride == width {
            return self.luma.into_vec();
        }
        let plane = stride * height;
        let unwritten = if self.rgb.is_some() { 0 } else { 128 };
        let mut planes = vec![unwritten; if self.has_colours { 3 * plane } else { plane }];
        for (y, row) in self.luma.as_ref().rows().enumerate() {
            planes[y * stride..][..width].copy_from_slice(row);
        }
        if let Some(rgb) = &self.rgb {
            let (cb, cr) = planes[plane..].split_at_mut(plane);
            let to = cb.chunks_exact_mut(stride).zip(cr.chunks_exact_mut(stride));
            for (row, (cb, cr)) in rgb.chunks_exact(3 * width).zip(to) {
                colour::chroma_of_rgb(row, [&mut cb[..width], &mut cr[..width]]);
            }
        }
        planes
    }
}

fn luma_of_all(rgb: &[u8]) -> Vec<u8> {
    let mut luma = vec![0; rgb.len() / 3];
    colour::luma_of_rgb(rgb, &mut luma);
    luma
}

fn is_coloured(rgb: &[u8]) -> bool {
    rgb.as_chunks::<3>().0.iter().any(|[r, g, b]| r != g || g != b)
}

impl DeepSamples {
    fn of(picture: &DynamicImage) -> Option<Self> {
        let (samples, channels, colours): (&[u16], usize, usize) = match picture {
            DynamicImage::ImageLuma16(picture) => (picture.as_raw(), 1, 1),
            DynamicImage::ImageLumaA16(picture) => (picture.as_raw(), 2, 1),
            DynamicImage::ImageRgb16(picture) => (picture.as_raw(), 3, 3),
            DynamicImage::ImageRgba16(picture) => (picture.as_raw(), 4, 3),
            _ => return None,
        };
        let mut range = Self { min: u16::MAX, max: 0 };
        for pixel in samples.chunks_exact(channels) {
            for &sample in &pixel[..colours] {
                range = Self { min: range.min.min(sample), max: range.max.max(sample) };
            }
        }
        Some(range)
    }

    /// True if the reduction to 8 bits leaves so few levels that what is in the picture may be lost.
    pub fn are_few(self) -> bool {
        self.min < self.max && self.levels() < FEW_LEVELS
    }

    /// Levels between the least and the greatest sample in 8 bits, both included.
    fn levels(self) -> u16 {
        (self.max >> 8) - (self.min >> 8) + 1
    }
}

impl fmt::Display for DeepSamples {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { min, max } = *self;
        f.write_str("16 bits are reduced to 8")?;
        if !self.are_few() {
            return Ok(());
        }
        // Samples of 8, 10 or 12 bits begin with zero; anything else keeps its own range.
        let all_of = (u32::from(max) + 1).next_power_of_two() - 1;
        let from = if u32::from(min) < all_of / 2 { 0 } else { u32::from(min) };
        let to = if from == 0 { all_of } else { u32::from(max) };
        write!(
            f,
            ", and samples from {min} to {max} use {} of the 256 levels: stretch all pictures and templates first \
             (ImageMagick: convert IN -level {from},{to} OUT)",
            self.levels()
        )
    }
}

/// The losses of a picture on its way to 8-bit luma, for messages.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Loss {
    deep: Option<DeepSamples>,
    is_laid_on_white: bool,
    is_animated: bool,
    pages: usize,
}

/// Warns of each kind of loss once: of a sequence for the first picture that has it.
#[derive(Debug, Default)]
pub struct Warned([bool; 5]);

impl Warned {
    /// Warns of the losses in `loss` that were not reported before. `path` is for messages.
    pub fn of(&mut self, loss: Loss, path: &Path) {
        let (few, deep) = (loss.deep.filter(|deep| deep.are_few()), loss.deep.filter(|deep| !deep.are_few()));
        let words = [
            few.map(|few| few.to_string()),
            deep.map(|deep| deep.to_string()),
            loss.is_laid_on_white.then(|| "transparent: the picture is laid on a white ground".to_owned()),
            loss.is_animated.then(|| "an animation: only its first picture is used".to_owned()),
            (loss.pages > 1).then(|| {
                let pages = loss.pages;
                format!("{pages} pages: only the first is used (lockon threshold --page N uses another)")
            }),
        ];
        for (words, said) in words.into_iter().zip(&mut self.0) {
            if let Some(words) = words.filter(|_| !std::mem::replace(said, true)) {
                tracing::warn!("{}: {words}", text::path(path));
            }
        }
    }
}

/// True for a file with several pictures to be shown one after the other: an animated GIF, WebP or PNG, or
/// JPEGs in a row (Motion JPEG).
pub fn is_video(bytes: &[u8]) -> bool {
    match kind_of(bytes) {
        Some(ImageFormat::Png) => has_animation(bytes),
        Some(ImageFormat::Jpeg) => jpeg::is_video(bytes),
        Some(ImageFormat::WebP) => {
            WebPDecoder::new(Cursor::new(bytes)).is_ok_and(|decoder| decoder.has_animation())
        }
        Some(ImageFormat::Gif) => gif::is_video(bytes),
        _ => false,
    }
}

/// A picture of an animation.
pub struct Shown {
    /// The displayed picture, with the visible rest of the pictures before.
    pub still: Still,
    /// When it is shown, in nanoseconds from the beginning.
    pub pts_ns: u64,
    /// Its duration, in nanoseconds.
    pub duration_ns: u64,
}

/// Delays below this are not meant: browsers and other programs show such pictures for [`SLOW`].
const MIN_DELAY_NS: u64 = 20_000_000;

/// Duration of a picture that names no time, in nanoseconds.
const SLOW: u64 = 100_000_000;

/// Maximum bytes for a pixel of an animation while it is decoded: the picture as it is seen, the one before,
/// the part that changes and two copies, each of four samples, and some room.
const ANIMATION_BYTES: u64 = 24;

/// Returns the pictures of an animated GIF, WebP or PNG, in order, each decoded when it is requested. `path`
/// is for messages.
///
/// # Errors
/// As [`decode`]; each picture may be an error, which is the last one.
pub fn animation(
    bytes: Vec<u8>,
    path: &Path,
    max_pixels: u64,
) -> Result<impl Iterator<Item = Result<Shown>> + use<>> {
    let undecodable = |cause| Error::Picture { path: path.to_owned(), cause };
    let (format, row_bytes) = (kind_of(&bytes), row_bytes(&bytes));
    let bytes = Cursor::new(bytes);
    let limits_of = |(width, height): (u32, u32)| {
        let (pixels, max) = (u64::from(width) * u64::from(height), max_pixels.min(MAX_PIXELS));
        if pixels > max {
            let size = Size::new(width as usize, height as usize);
            return Err(Error::PictureTooLarge { path: path.to_owned(), size, max });
        }
        let mut limits = image::Limits::default();
        limits.max_alloc = Some(MAX_PNG_EXTRAS + ANIMATION_BYTES * pixels);
        Ok(limits)
    };
    let frames = match format {
        Some(ImageFormat::Gif) => {
            let mut decoder = GifDecoder::new(bytes).map_err(undecodable)?;
            decoder.set_limits(limits_of(decoder.dimensions())?).map_err(undecodable)?;
            decoder.into_frames()
        }
        Some(ImageFormat::WebP) => {
            webp::check(bytes.get_ref()).map_err(undecodable)?;
            let canvas = WebPDecoder::new(Cursor::new(bytes.get_ref())).map_err(undecodable)?.dimensions();
            limits_of(canvas)?;
            webp::frames(bytes.into_inner(), canvas)
        }
        _ => {
            let mut before = image::Limits::default();
            before.max_alloc = Some(MAX_PNG_EXTRAS + row_bytes);
            let mut decoder = PngDecoder::with_limits(bytes, before).map_err(undecodable)?;
            decoder.set_limits(limits_of(decoder.dimensions())?).map_err(undecodable)?;
            decoder.apng().map_err(undecodable)?.into_frames()
        }
    };
    let (path, mut next, mut has_failed) = (path.to_owned(), 0, false);
    Ok(frames.map_while(move |frame| {
        if std::mem::replace(&mut has_failed, frame.is_err()) {
            return None;
        }
        Some(frame.map_err(|cause| not_decoded(cause, &path)).map(|frame| {
            let (numerator, denominator) = frame.delay().numer_denom_ms();
            let delay = u64::from(numerator) * 1_000_000 / u64::from(denominator.max(1));
            let duration_ns = if delay < MIN_DELAY_NS { SLOW } else { delay };
            let pts_ns = next;
            next += duration_ns;
            Shown { still: Still::of(frame.into_buffer().into()), pts_ns, duration_ns }
        }))
    }))
}

/// The name ends in that of a format that can be written: `.png`, `.jpg`, `.jpeg`, `.bmp`.
///
/// # Errors
/// `Value` if not.
pub fn check_extension(path: &Path) -> Result<()> {
    match ImageFormat::from_path(path) {
        Ok(ImageFormat::Png | ImageFormat::Jpeg | ImageFormat::Bmp) => Ok(()),
        _ => Err(Error::value("output", &path.to_string_lossy(), "its name must end in .png, .jpg or .bmp")),
    }
}

/// Writes a plane as a grey picture, in the format of the file's extension; `-` is a PNG on standard output.
///
/// # Errors
/// `PictureNotWritten` if the extension is unknown, `File` if the file cannot be written, `ReaderGone` or
/// `Output` if standard output cannot.
pub fn save(path: &Path, plane: PlaneRef<'_>) -> Result<()> {
    save_as(path, plane.to_plane().data(), plane.size(), image::ExtendedColorType::L8, None)
}

/// Encodes in memory first: a picture that cannot be encoded is then an error, and leaves no half of a
/// picture, nor destroys the one before.
fn save_as(
    path: &Path,
    pixels: &[u8],
    size: Size,
    colours: image::ExtendedColorType,
    density: Option<Density>,
) -> Result<()> {
    let unwritable = |cause| Error::PictureNotWritten { path: path.to_owned(), cause };
    let format = if files::is_stdout(path) { Ok(ImageFormat::Png) } else { ImageFormat::from_path(path) };
    let bytes = format.and_then(|format| encode(pixels, size, colours, format, density));
    write(path, &bytes.map_err(unwritable)?)
}

/// A file in memory, of pixels of one or three bytes.
fn encode(
    pixels: &[u8],
    size: Size,
    colours: image::ExtendedColorType,
    format: ImageFormat,
    density: Option<Density>,
) -> image::ImageResult<Vec<u8>> {
    let (width, height) = (size.width as u32, size.height as u32);
    if format == ImageFormat::Png {
        let is_grey = colours == image::ExtendedColorType::L8;
        let colours = if is_grey { ::png::ColorType::Grayscale } else { ::png::ColorType::Rgb };
        return png::encode(pixels, size, colours, 8, density);
    }
    let mut bytes = Cursor::new(Vec::new());
    if let (ImageFormat::Jpeg, Some(density)) = (format, density) {
        let mut encoder = JpegEncoder::new(&mut bytes);
        encoder
            .set_pixel_density(PixelDensity { density: density.rounded(), unit: PixelDensityUnit::Inches });
        encoder.encode(pixels, width, height, colours)?;
        return Ok(bytes.into_inner());
    }
    image::write_buffer_with_format(&mut bytes, pixels, width, height, colours, format)?;
    let mut bytes = bytes.into_inner();
    if let (ImageFormat::Bmp, Some(density)) = (format, density) {
        // The header has them at a fixed place.
        let [x, y] = density.to_per_metre().map(u32::to_le_bytes);
        bytes[38..42].copy_from_slice(&x);
        bytes[42..46].copy_from_slice(&y);
    }
    Ok(bytes)
}

/// Writes a whole file; `-` is standard output.
fn write(path: &Path, bytes: &[u8]) -> Result<()> {
    if files::is_stdout(path) {
        let mut stdout = std::io::stdout();
        let written = stdout.write_all(bytes).and_then(|()| stdout.flush());
        return written.map_err(|error| Error::of_stdout("-", &error));
    }
    files::replace(path, bytes).map_err(Error::file("write", path))
}

/// The bytes of a file with one page of it, counted from 1: of a TIFF file that page, of other pictures the
/// only one. `path` is for messages.
///
/// # Errors
/// `Usage` if it has no such page.
pub fn page(bytes: &[u8], page: usize, path: &Path) -> Result<Vec<u8>> {
    let is_tiff = kind_of(bytes) == Some(ImageFormat::Tiff);
    let only = if is_tiff {
        page.checked_sub(1).and_then(|at| tiff::page(bytes, at))
    } else {
        (page == 1).then(|| bytes.to_vec())
    };
    only.ok_or_else(|| {
        let count = if is_tiff { tiff::pages(bytes) } else { 1 };
        Error::Usage(format!("{} has no page {page}: it has {count}", text::path(path)))
    })
}

/// A JPEG file in memory, of pixels of three bytes: red, green, blue.
///
/// # Errors
/// The encoder's, if the picture has no pixels or is larger than the format can have it.
pub fn jpeg(rgb: &[u8], size: Size) -> image::ImageResult<Vec<u8>> {
    let mut bytes = Vec::new();
    JpegEncoder::new(&mut bytes).encode(
        rgb,
        size.width as u32,
        size.height as u32,
        image::ExtendedColorType::Rgb8,
    )?;
    Ok(bytes)
}

/// A small picture of a box shows so many times the box.
const AROUND: f64 = 3.0;

/// Returns the part that a small picture of a box `[x, y, w, h]` shows: the box and its surroundings, as far
/// as they lie in a frame of that size.
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
        save_as(path, &rgb, size, image::ExtendedColorType::Rgb8, self.density)
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
    save_as(path, rgb, size, image::ExtendedColorType::Rgb8, None)
}

#[cfg(test)]
mod tests {

    use super::*;
    use crate::colour::luma_of;

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
        assert_eq!(sha256(b"").get(..8), Some("e3b0c442"));
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
            "bomb.png: the picture has 60000x60000 pixels: the maximum is 134217728 pixels"
        );
        assert!(said(&declared(u32::MAX >> 1, u32::MAX >> 1), u64::MAX).contains("bomb.png"));
        assert!(said(&declared(2049, 2048), 1 << 22).contains("2049x2048 pixels: the maximum is 4194304"));
    }

    #[test]
    #[cfg(unix)]
    fn a_file_without_end_is_not_read_to_its_end() {
        assert!(matches!(load(Path::new("/dev/zero")), Err(Error::Picture { .. })));
    }

    /// A file of that format, with Exif data if there are any.
    fn file(format: ImageFormat, picture: &DynamicImage, exif: Option<Vec<u8>>) -> Vec<u8> {
        use image::ImageEncoder;
        use image::codecs::{jpeg::JpegEncoder, png::PngEncoder, webp::WebPEncoder};
        fn written<E: ImageEncoder>(mut encoder: E, picture: &DynamicImage, exif: Option<Vec<u8>>) {
            if let Some(exif) = exif {
                encoder.set_exif_metadata(exif).unwrap();
            }
            picture.write_with_encoder(encoder).unwrap();
        }
        let mut bytes = Cursor::new(Vec::new());
        match format {
            ImageFormat::Png => written(PngEncoder::new(&mut bytes), picture, exif),
            ImageFormat::Jpeg => written(JpegEncoder::new_with_quality(&mut bytes, 100), picture, exif),
            ImageFormat::WebP => written(WebPEncoder::new_lossless(&mut bytes), picture, exif),
            format => picture.write_to(&mut bytes, format).unwrap(),
        }
        bytes.into_inner()
    }

    fn decoded(bytes: &[u8]) -> Still {
        decode(bytes, Path::new("a picture"), MAX_PIXELS).unwrap()
    }

    /// A grey picture of 24 x 16 whose four quarters differ, so that all eight orientations do.
    fn quarters() -> DynamicImage {
        let value = |x, y| [[20, 90], [160, 230]][usize::from(y >= 8)][usize::from(x >= 12)];
        image::GrayImage::from_fn(24, 16, |x, y| image::Luma([value(x, y)])).into()
    }

    #[test]
    fn exif_turns_pictures_upright_in_every_format_that_has_it() {
        for value in 1..=8_u8 {
            // TIFF in big-endian order with one entry: orientation, a short.
            let exif =
                [b"MM\0*\0\0\0\x08\0\x01\x01\x12\0\x03\0\0\0\x01\0", &[value, 0, 0, 0, 0, 0, 0][..]].concat();
            let mut upright = quarters();
            upright.apply_orientation(Orientation::from_exif(value).unwrap());
            let expected = upright.to_luma8().into_raw();
            for format in [ImageFormat::Png, ImageFormat::WebP, ImageFormat::Jpeg] {
                let still = decoded(&file(format, &quarters(), Some(exif.clone())));
                let size = Size::new(upright.width() as usize, upright.height() as usize);
                assert_eq!(still.luma.size(), size, "{format:?} {value}");
                // Blocks of 8 x 8 are flat but for those that 12 lies in the middle of.
                let apart = if format == ImageFormat::Jpeg { 6 } else { 0 };
                let is_near = |(a, b): (&u8, &u8)| a.abs_diff(*b) <= apart;
                assert!(still.luma.data().iter().zip(&expected).all(is_near), "{format:?} {value}");
            }
            // Programs may add it behind the picture.
            let png = file(ImageFormat::Png, &quarters(), None);
            let behind = png.len() - 12;
            let chunk = [&(exif.len() as u32).to_be_bytes()[..], b"eXIf", &exif].concat();
            let checksum = crc32(&chunk[4..]).to_be_bytes();
            let late = [&png[..behind], &chunk, &checksum, &png[behind..]].concat();
            assert_eq!(decoded(&late).luma.data(), expected, "late {value}");
        }
    }

    #[test]
    fn dots_per_inch_are_those_of_the_upright_picture() {
        use image::ImageEncoder;
        for value in 1..=8_u8 {
            let exif =
                [b"MM\0*\0\0\0\x08\0\x01\x01\x12\0\x03\0\0\0\x01\0", &[value, 0, 0, 0, 0, 0, 0][..]].concat();
            let mut bytes = Vec::new();
            let mut encoder = JpegEncoder::new(&mut bytes);
            encoder.set_pixel_density(PixelDensity { density: (300, 100), unit: PixelDensityUnit::Inches });
            encoder.set_exif_metadata(exif).unwrap();
            quarters().write_with_encoder(encoder).unwrap();
            let density = if value < 5 { Density::new(300.0, 100.0) } else { Density::new(100.0, 300.0) };
            assert_eq!(decoded(&bytes).density, density, "{value}");
        }
    }

    #[test]
    fn the_same_pixels_are_read_from_every_kind_of_file() {
        let pixel = |x: u32, y: u32| image::Rgb([(x * 25) as u8, (y * 31) as u8, (x * y) as u8]);
        let picture: DynamicImage = image::RgbImage::from_fn(9, 7, pixel).into();
        for format in
            [ImageFormat::Png, ImageFormat::WebP, ImageFormat::Tiff, ImageFormat::Bmp, ImageFormat::Pnm]
        {
            let bytes = file(format, &picture, None);
            let still = decoded(&bytes);
            assert_eq!(still.rgb.as_deref(), Some(picture.as_bytes()), "{format:?}");
            assert!(is_picture(&bytes[..64]) && !is_video(&bytes) && still.has_colours, "{format:?}");
            assert!(decode(&bytes[..bytes.len() / 2], Path::new("cut"), MAX_PIXELS).is_err(), "{format:?}");
        }
        let few = image::RgbaImage::from_fn(9, 7, |x, _| {
            image::Rgba([[0, 0, 0, 255], [250, 10, 5, 255]][x as usize % 2])
        });
        assert_eq!(
            decoded(&file(ImageFormat::Gif, &few.clone().into(), None)).luma.data()[..2],
            [0, luma_of([250, 10, 5])]
        );
    }

    #[test]
    fn a_scene_lies_on_white_and_a_template_keeps_its_alpha() {
        let pixels = [[0, 0, 0, 0], [0, 0, 0, 255], [200, 100, 0, 128], [7, 7, 7, 254]];
        let picture = image::RgbaImage::from_fn(4, 1, |x, _| image::Rgba(pixels[x as usize]));
        let still = decoded(&file(ImageFormat::Png, &picture.into(), None));
        assert_eq!(still.alpha.as_ref().unwrap().data(), [0, 255, 128, 254]);
        let (scene, loss) = still.into_scene();
        assert!(loss.is_laid_on_white && scene.alpha.is_none());
        // (200 * 128 + 255 * 127 + 127) / 255 = 227, and so on.
        assert_eq!(scene.rgb.as_deref().unwrap(), [255, 255, 255, 0, 0, 0, 227, 177, 127, 8, 8, 8]);
        assert_eq!(scene.luma.data(), [255, 0, luma_of([227, 177, 127]), 8]);
        let opaque = image::LumaA([9, 255]);
        let grey: DynamicImage = image::GrayAlphaImage::from_fn(3, 1, |_, _| opaque).into();
        let (scene, loss) = decoded(&file(ImageFormat::Png, &grey, None)).into_scene();
        assert!(!loss.is_laid_on_white && scene.luma.data() == [9, 9, 9]);
    }

    #[test]
    fn sixteen_bits_that_use_few_values_name_their_range_and_the_remedy() {
        let of = |values: [u16; 3]| {
            let picture = image::ImageBuffer::from_fn(3, 1, |x, _| image::Luma([values[x as usize]]));
            decoded(&file(ImageFormat::Png, &DynamicImage::ImageLuma16(picture), None)).deep.unwrap()
        };
        let eight = of([0, 9, 255]);
        assert!(eight.are_few());
        assert_eq!(
            eight.to_string(),
            "16 bits are reduced to 8, and samples from 0 to 255 use 1 of the 256 levels: stretch all pictures and \
             templates first (ImageMagick: convert IN -level 0,255 OUT)"
        );
        let twelve = of([3, 4000, 77]).to_string();
        assert!(
            twelve.contains("from 3 to 4000 use 16 of the 256 levels") && twelve.contains("-level 0,4095"),
            "{twelve}"
        );
        assert!(of([40_000, 40_500, 40_100]).to_string().contains("-level 40000,40500"));
        for values in [[0, 65_535, 9], [0, 31 << 8, 9], [300, 300, 300]] {
            assert_eq!(of(values).to_string(), "16 bits are reduced to 8", "{values:?}");
        }
    }

    #[test]
    fn cmyk_with_adobes_inverted_samples_becomes_the_colours_that_imagemagick_shows() {
        use base64::prelude::{BASE64_STANDARD, Engine};
        // 16 x 16, from red above to blue below, by `convert gradient:red-blue -colorspace CMYK`.
        let bytes = BASE64_STANDARD.decode(include_str!("still/cmyk.jpg.base64").trim()).unwrap();
        let still = decoded(&bytes);
        let rgb = still.rgb.as_ref().unwrap();
        // As `convert cmyk.jpg -colorspace sRGB txt:` prints them; decoders round by themselves.
        for (y, expected) in
            [(0, [255, 0, 0]), (1, [238, 0, 16]), (7, [136, 0, 118]), (12, [50, 0, 204]), (15, [0, 0, 255])]
        {
            let pixel = &rgb[3 * (16 * y + 3)..][..3];
            assert!(
                pixel.iter().zip(expected).all(|(a, b)| a.abs_diff(b) <= 3),
                "{y}: {pixel:?}, not {expected:?}"
            );
        }
    }

    #[test]
    fn an_animation_has_the_times_of_its_file() {
        let delays = [40, 120, 200, 0, 70];
        let frame = |(index, delay): (u8, &u32)| {
            let picture = image::RgbaImage::from_pixel(5, 3, image::Rgba([index * 50, 0, 0, 255]));
            image::Frame::from_parts(picture, 0, 0, image::Delay::from_numer_denom_ms(*delay, 1))
        };
        let mut bytes = Vec::new();
        let mut encoder = image::codecs::gif::GifEncoder::new(&mut bytes);
        encoder.encode_frames((0..).zip(&delays).map(frame)).unwrap();
        drop(encoder);
        assert!(is_video(&bytes) && decoded(&bytes).is_animated);
        let shown: Vec<_> =
            animation(bytes, Path::new("a.gif"), MAX_PIXELS).unwrap().map(Result::unwrap).collect();
        let ms: Vec<_> =
            shown.iter().map(|shown| (shown.pts_ns / 1_000_000, shown.duration_ns / 1_000_000)).collect();
        // No delay is shown as a tenth of a second, as browsers do.
        assert_eq!(ms, [(0, 40), (40, 120), (160, 200), (360, 100), (460, 70)]);
        assert_eq!(shown[3].still.luma.data(), [luma_of([150, 0, 0]); 15]);
    }

    #[test]
    fn a_picture_of_an_animation_that_is_larger_than_its_screen_is_refused_before_memory_is_taken() {
        let mut bytes = gif::tests::gif((8, 8), &[(65_535, 65_535), (8, 8)]);
        assert!(is_video(&bytes));
        let mut shown = animation(bytes.clone(), Path::new("a.gif"), MAX_PIXELS).unwrap();
        assert!(matches!(
            shown.next(),
            Some(Err(Error::Picture { cause: image::ImageError::Limits(_), .. }))
        ));
        // The size of the screen is checked even earlier.
        bytes[6..10].fill(0xFF);
        let error = animation(bytes, Path::new("a.gif"), MAX_PIXELS).err();
        assert!(matches!(error, Some(Error::PictureTooLarge { .. })), "{error:?}");
    }

    #[test]
    fn a_text_file_is_not_a_picture() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("not.png");
        std::fs::write(&path, "just words, no pixels").unwrap();
        let said = load(&path).unwrap_err().to_string();
        assert!(said.contains("not.png") && said.contains("BMP and PNM are read"), "{said}");
    }
}
