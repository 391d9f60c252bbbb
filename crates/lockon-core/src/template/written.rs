//! Templates as orders and their records have them: pixels in base64, as a PNG where that is shorter.

use std::sync::{Arc, OnceLock};

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde::de::{Deserialize, Deserializer, Error};
use serde::ser::{Serialize, Serializer};

use super::Template;
use crate::frame::{Plane, Size};

/// The text form. Without a mask every pixel counts.
#[derive(serde::Serialize, serde::Deserialize)]
struct Written {
    name: Arc<str>,
    w: usize,
    h: usize,
    #[serde(flatten)]
    pixels: Pixels,
}

/// The pixels, in base64.
#[derive(Debug, Clone, Default, PartialEq, serde::Serialize, serde::Deserialize)]
struct Pixels {
    /// A PNG: 8-bit grey, with an alpha channel of 255 and 0 if there is a mask.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    png: Option<String>,
    /// The pixels themselves, row by row, without padding.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    luma: Option<String>,
    /// Beside `luma`: 128 or more where a pixel counts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    mask: Option<String>,
}

/// The pixels as text, made when they are first needed. Clones share them.
#[derive(Debug, Clone, Default)]
pub(super) struct Cache(Arc<OnceLock<Pixels>>);

impl PartialEq for Cache {
    /// Whether the text exists already makes no difference between two templates.
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Template {
    /// The bytes of the pixels in a record: no more than 2.7 for each, and few where the picture is plain.
    pub fn record_bytes(&self) -> usize {
        let Pixels { png, luma, mask } = self.written();
        [png, luma, mask].into_iter().flatten().map(String::len).sum()
    }

    fn written(&self) -> &Pixels {
        self.written.0.get_or_init(|| {
            let mask =
                self.mask().map(|mask| mask.data().iter().map(|&counts| counts * 255).collect::<Vec<_>>());
            let bytes = self.luma.data().len() * if mask.is_some() { 2 } else { 1 };
            if let Some(png) = png(&self.luma, mask.as_deref()).filter(|png| png.len() < bytes) {
                return Pixels { png: Some(BASE64_STANDARD.encode(png)), ..Pixels::default() };
            }
            let luma = Some(BASE64_STANDARD.encode(self.luma.data()));
            Pixels { png: None, luma, mask: mask.map(|mask| BASE64_STANDARD.encode(mask)) }
        })
    }
}

impl Serialize for Template {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Size { width: w, height: h } = self.size();
        Written { name: self.name.clone(), w, h, pixels: self.written().clone() }.serialize(serializer)
    }
}

impl<'a> Deserialize<'a> for Template {
    fn deserialize<D: Deserializer<'a>>(deserializer: D) -> Result<Self, D::Error> {
        let Written { name, w, h, pixels } = Written::deserialize(deserializer)?;
        let of = |what: &str, error: &dyn std::fmt::Display| {
            D::Error::custom(format!("{what} of {name:?}: {error}"))
        };
        let bytes = |what: &str, text: &str| BASE64_STANDARD.decode(text).map_err(|error| of(what, &error));
        let plane = |what: &str, text: &str| {
            let bytes = bytes(what, text)?;
            if w.checked_mul(h) != Some(bytes.len()) {
                let count = bytes.len();
                return Err(of(what, &format_args!("{count} bytes are not the pixels of {w}x{h}")));
            }
            Ok(Plane::from_vec(bytes, Size::new(w, h)))
        };
        let (luma, mask) = match pixels {
            Pixels { png: Some(text), .. } => {
                decode(&bytes("png", &text)?, Size::new(w, h)).map_err(|error| of("png", &error))?
            }
            Pixels { luma: Some(luma), mask, .. } => {
                (plane("luma", &luma)?, mask.map(|text| plane("mask", &text)).transpose()?)
            }
            Pixels { luma: None, .. } => return Err(of("pixels", &"there is neither `png` nor `luma`")),
        };
        Self::new(name.clone(), luma, mask.as_ref()).map_err(D::Error::custom)
    }
}

/// A PNG of these pixels; `None` where it cannot be made.
#[cfg(feature = "pictures")]
fn png(luma: &Plane, mask: Option<&[u8]>) -> Option<Vec<u8>> {
    use image::codecs::png::{CompressionType, FilterType, PngEncoder};
    use image::{ExtendedColorType, ImageEncoder};
    let mut png = Vec::new();
    let encoder = PngEncoder::new_with_quality(&mut png, CompressionType::Default, FilterType::Adaptive);
    let (w, h) = (luma.size().width as u32, luma.size().height as u32);
    let encoded = match mask {
        None => encoder.write_image(luma.data(), w, h, ExtendedColorType::L8),
        Some(mask) => {
            let both: Vec<u8> =
                luma.data().iter().zip(mask).flat_map(|(&luma, &mask)| [luma, mask]).collect();
            encoder.write_image(&both, w, h, ExtendedColorType::La8)
        }
    };
    encoded.ok().map(|()| png)
}

/// Without a decoder no PNG is written.
#[cfg(not(feature = "pictures"))]
fn png(_: &Plane, _: Option<&[u8]>) -> Option<Vec<u8>> {
    None
}

/// The luma of a PNG of that size, and its mask if it has an alpha channel. The size is compared before there
/// is memory for the pixels.
#[cfg(feature = "pictures")]
fn decode(png: &[u8], size: Size) -> Result<(Plane, Option<Plane>), String> {
    use image::codecs::png::PngDecoder;
    use image::{DynamicImage, ImageDecoder};
    let failed = |error: image::ImageError| error.to_string();
    let decoder = PngDecoder::new(std::io::Cursor::new(png)).map_err(failed)?;
    let (w, h) = decoder.dimensions();
    if (w as usize, h as usize) != (size.width, size.height) {
        return Err(format!("it has {w}x{h} pixels, not {size}"));
    }
    super::check_size(size).map_err(|fault| fault.to_string())?;
    match DynamicImage::from_decoder(decoder).map_err(failed)? {
        DynamicImage::ImageLuma8(grey) => Ok((Plane::from_vec(grey.into_raw(), size), None)),
        DynamicImage::ImageLumaA8(both) => {
            let (luma, mask) = both.pixels().map(|pixel| (pixel.0[0], pixel.0[1])).unzip();
            Ok((Plane::from_vec(luma, size), Some(Plane::from_vec(mask, size))))
        }
        _ => Err("it is not 8-bit grey".into()),
    }
}

#[cfg(not(feature = "pictures"))]
fn decode(_: &[u8], _: Size) -> Result<(Plane, Option<Plane>), String> {
    Err("reading it needs the feature `pictures`".into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reference::picture;

    /// Stripes, as a logo or a screenshot has them: a picture that a PNG makes small.
    fn stripes(size: Size) -> Plane {
        let stripe = |i: usize| if (i % size.width / (size.width / 5)).is_multiple_of(2) { 20 } else { 220 };
        Plane::from_vec((0..size.area()).map(stripe).collect(), size)
    }

    fn holes(size: Size) -> Plane {
        Plane::from_vec((0..size.area()).map(|i| if i % 5 == 0 { 127 } else { 128 }).collect(), size)
    }

    #[test]
    fn a_template_is_the_same_after_it_was_written_and_read() {
        for size in [Size::new(13, 7), Size::new(211, 97)] {
            for (luma, mask) in [
                (picture(size), None),
                (picture(size), Some(holes(size))),
                (stripes(size), None),
                (stripes(size), Some(holes(size))),
            ] {
                let template = Template::new("a \"b\"", luma, mask.as_ref()).unwrap();
                let text = serde_json::to_string(&template).unwrap();
                assert!(!text.contains("null"), "{text}");
                let read: Template = serde_json::from_str(&text).unwrap();
                assert_eq!(read, template);
                assert_eq!(read.sums(), template.sums());
                assert!(text.len() > template.record_bytes());
            }
        }
    }

    #[test]
    #[cfg(feature = "pictures")]
    fn a_plain_picture_takes_little_in_a_record_and_noise_no_more_than_its_pixels() {
        let size = Size::new(1301, 1009);
        let plain = Template::new("plain", stripes(size), None).unwrap();
        let text = serde_json::to_string(&plain).unwrap();
        assert!(text.len() * 200 < size.area(), "{} bytes of {} pixels", text.len(), size.area());
        let mut random = 7_u32;
        let mut noise = || {
            random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (random >> 24) as u8
        };
        let noise = Plane::from_vec((0..41 * 23).map(|_| noise()).collect(), Size::new(41, 23));
        let noise = Template::new("noise", noise, None).unwrap();
        assert_eq!(noise.record_bytes(), (41_usize * 23).div_ceil(3) * 4);
    }

    #[test]
    fn records_of_earlier_versions_are_read() {
        let text = r#"{"name":"a","w":2,"h":2,"luma":"AAECAw==","mask":"/////w=="}"#;
        let read: Template = serde_json::from_str(text).unwrap();
        assert_eq!((read.size(), read.sums().n), (Size::new(2, 2), 4));
    }

    #[test]
    fn what_is_no_template_is_refused_with_its_reason() {
        for (text, said) in [
            (r#"{"name":"a","w":2,"h":2,"luma":"AAEC"}"#, "3 bytes are not the pixels of 2x2"),
            (r#"{"name":"a","w":2,"h":1,"luma":"AA=E"}"#, "luma of \"a\": "),
            (r#"{"name":"a","w":2,"h":1,"luma":"AAE=","mask":"/w=="}"#, "mask of \"a\": 1 bytes"),
            (r#"{"name":"a","w":2,"h":1,"luma":"AAA="}"#, "template \"a\""),
            (r#"{"name":"a","w":0,"h":0,"luma":""}"#, "template \"a\""),
            (r#"{"name":"a","w":18446744073709551615,"h":3,"luma":""}"#, "0 bytes are not"),
            (r#"{"name":"a","w":2,"h":2}"#, "neither `png` nor `luma`"),
            (r#"{"name":"a","w":2,"h":2,"png":"AAEC"}"#, "png of \"a\": "),
        ] {
            let error = serde_json::from_str::<Template>(text).unwrap_err().to_string();
            assert!(error.contains(said), "{text}: {error}");
        }
    }

    #[test]
    #[cfg(feature = "pictures")]
    fn a_png_of_another_size_or_kind_is_refused() {
        let written = |w: u32, h: u32, png: &[u8]| {
            let png = BASE64_STANDARD.encode(png);
            let text = serde_json::json!({ "name": "a", "w": w, "h": h, "png": png }).to_string();
            serde_json::from_str::<Template>(&text).unwrap_err().to_string()
        };
        let png = png(&stripes(Size::new(101, 7)), None).unwrap();
        assert!(written(7, 101, &png).contains("it has 101x7 pixels, not 7x101"));
        let mut coloured = std::io::Cursor::new(Vec::new());
        image::RgbImage::new(3, 5).write_to(&mut coloured, image::ImageFormat::Png).unwrap();
        assert!(written(3, 5, coloured.get_ref()).contains("it is not 8-bit grey"));
    }
}
