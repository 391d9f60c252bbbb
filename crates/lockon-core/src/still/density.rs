//! Dots per inch of pictures, where the kinds of files have them.

use image::ImageFormat;

use super::{png, tiff};

/// Dots per inch of a picture.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Density {
    /// Across.
    pub x: f64,
    /// Down.
    pub y: f64,
}

/// Inches of a metre.
const INCHES: f64 = 1.0 / 0.0254;

impl Density {
    /// As many dots per inch across and down: 1 to 65535. `None` for other numbers, which no picture has.
    pub fn new(x: f64, y: f64) -> Option<Self> {
        // Kinds of files that count dots per metre have no whole number of dots per inch.
        let nearest = |dots: f64| if (dots - dots.round()).abs() < 0.013 { dots.round() } else { dots };
        let (x, y) = (nearest(x), nearest(y));
        let is_known = |dots: f64| (1.0..=f64::from(u16::MAX)).contains(&dots);
        (is_known(x) && is_known(y)).then_some(Self { x, y })
    }

    fn per_metre(x: u32, y: u32) -> Option<Self> {
        Self::new(f64::from(x) / INCHES, f64::from(y) / INCHES)
    }

    /// That of the picture turned by a quarter.
    pub(super) fn turned(self) -> Self {
        Self { x: self.y, y: self.x }
    }

    /// Dots per metre, rounded.
    pub(super) fn to_per_metre(self) -> [u32; 2] {
        [self.x, self.y].map(|dots| (dots * INCHES).round() as u32)
    }

    /// Whole dots per inch.
    pub(super) fn rounded(self) -> (u16, u16) {
        (self.x.round() as u16, self.y.round() as u16)
    }
}

/// Dots per inch of a picture in a file of this kind, as its pixels are stored; `None` where the file does
/// not say, or has only the ratio of width and height.
pub(super) fn of(bytes: &[u8], format: ImageFormat) -> Option<Density> {
    match format {
        ImageFormat::Png => {
            let [x, y] = png::dots_per_metre(bytes)?;
            Density::per_metre(x, y)
        }
        ImageFormat::Jpeg => of_jpeg(bytes),
        ImageFormat::Tiff => tiff::density(bytes),
        ImageFormat::Bmp => {
            let number = |at: usize| Some(u32::from_le_bytes(*bytes.get(at..)?.first_chunk()?));
            // Headers of less than 40 bytes do not have them.
            (number(14)? >= 40).then_some(())?;
            Density::per_metre(number(38)?, number(42)?)
        }
        _ => None,
    }
}

/// That of the JFIF segment, or else of EXIF data.
fn of_jpeg(bytes: &[u8]) -> Option<Density> {
    let (mut rest, mut exif) = (bytes.strip_prefix(&[0xff, 0xd8])?, None);
    while let Some(([0xff, kind, high, low], behind)) = rest.split_first_chunk() {
        let length = usize::from(u16::from_be_bytes([*high, *low]));
        // The length counts itself. The picture begins with a start of scan.
        let Some(data) = behind.get(..length.saturating_sub(2)).filter(|_| *kind != 0xda) else { break };
        if *kind == 0xe0
            && let [b'J', b'F', b'I', b'F', 0, _, _, unit, x1, x0, y1, y0, ..] = *data
        {
            let [x, y] = [[x1, x0], [y1, y0]].map(|dots| f64::from(u16::from_be_bytes(dots)));
            let found = match unit {
                1 => Density::new(x, y),
                2 => Density::new(2.54 * x, 2.54 * y),
                _ => None,
            };
            if found.is_some() {
                return found;
            }
        }
        if *kind == 0xe1 && exif.is_none() {
            exif = data.strip_prefix(b"Exif\0\0").and_then(tiff::density);
        }
        rest = &behind[data.len()..];
    }
    exif
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dots(x: f64, y: f64) -> Option<Density> {
        let density = Density::new(x, y);
        assert!(density.is_some());
        density
    }

    /// EXIF data or the beginning of a TIFF file with a resolution of 300/2 and 600 per unit.
    fn directory(is_big_endian: bool, unit: u16) -> Vec<u8> {
        let two = |value: u16| if is_big_endian { value.to_be_bytes() } else { value.to_le_bytes() };
        let four = |value: u32| if is_big_endian { value.to_be_bytes() } else { value.to_le_bytes() };
        let mut bytes = if is_big_endian { b"MM".to_vec() } else { b"II".to_vec() };
        bytes.extend(two(42));
        bytes.extend(four(8));
        bytes.extend(two(3));
        let begin = 8 + 2 + 3 * 12 + 4;
        for (tag, kind, value) in [(282, 5, begin), (283, 5, begin + 8)] {
            bytes.extend([two(tag), two(kind)].concat());
            bytes.extend([four(1), four(value)].concat());
        }
        bytes.extend([two(296), two(3)].concat());
        bytes.extend(four(1));
        bytes.extend([two(unit), two(0)].concat());
        bytes.extend(four(0));
        for value in [300, 2, 600, 1] {
            bytes.extend(four(value));
        }
        bytes
    }

    #[test]
    fn tiff_and_exif_have_dots_per_inch_or_centimetre() {
        for is_big_endian in [false, true] {
            let of = |unit| tiff::density(&directory(is_big_endian, unit));
            assert_eq!((of(2), of(1)), (dots(150.0, 600.0), None));
            assert_eq!(of(3), dots(381.0, 1524.0));
        }
    }

    #[test]
    fn jfif_comes_before_exif_and_may_have_no_unit() {
        let exif = [b"Exif\0\0".to_vec(), directory(true, 2)].concat();
        let jpeg = |unit: u8| {
            let mut bytes = vec![0xff, 0xd8, 0xff, 0xe0, 0, 16];
            bytes.extend(*b"JFIF\0\x01\x02");
            bytes.extend([unit, 0, 72, 0, 96, 0, 0, 0xff, 0xe1, 0, exif.len() as u8 + 2]);
            bytes.extend(&exif);
            bytes.extend([0xff, 0xda, 0, 2]);
            bytes
        };
        assert_eq!(of(&jpeg(1), ImageFormat::Jpeg), dots(72.0, 96.0));
        assert_eq!(of(&jpeg(2), ImageFormat::Jpeg), dots(2.54 * 72.0, 2.54 * 96.0));
        assert_eq!(of(&jpeg(0), ImageFormat::Jpeg), dots(150.0, 600.0));
    }

    #[test]
    fn a_directory_that_is_cut_or_leads_to_itself_is_no_density_and_few_pages() {
        let whole = directory(false, 2);
        for end in 0..whole.len() {
            tiff::density(&whole[..end]);
            assert!(tiff::pages(&whole[..end]) <= 1, "{end}");
        }
        let mut circle = whole.clone();
        circle[8 + 2 + 36] = 8;
        assert_eq!(tiff::pages(&circle), 1 << 16);
        circle[8..10].fill(0xff);
        assert_eq!(tiff::pages(&circle), 1);
    }

    #[test]
    fn dots_per_metre_are_whole_dots_per_inch_again() {
        for dpi in [72, 96, 150, 200, 300, 600, 1200, 2400] {
            let [x, y] = Density::new(f64::from(dpi), f64::from(dpi)).unwrap().to_per_metre();
            assert_eq!(Density::per_metre(x, y), dots(f64::from(dpi), f64::from(dpi)));
        }
        assert_eq!((Density::new(0.0, 300.0), Density::new(f64::NAN, 1.0)), (None, None));
    }
}
