//! From a video's colours to those of a screen, and back.

use crate::frame::{Frame, Plane, Rect, Size, VideoFormat};
use crate::simd::{self, Level};

#[cfg(target_arch = "x86_64")]
mod avx512;

/// Luma of limited range at full range: `clamp(round((luma - 16) * 255 / 219))`.
pub const fn expanded(luma: u8) -> u8 {
    // In 16 bits, so that a row becomes vector instructions. 219 is odd: nothing lies halfway.
    let full = (luma.saturating_sub(16) as u16 * 255 + 109) / 219;
    if full > 255 { 255 } else { full as u8 }
}

/// How luma and chroma become red, green and blue.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Conversion {
    is_full_range: bool,
    /// Weights of red and blue in luma.
    red: f64,
    blue: f64,
}

impl Conversion {
    /// BT.601 at limited range, as video of standard definition has it.
    pub const BT601: Self = Self { is_full_range: false, red: 0.299, blue: 0.114 };

    /// As GStreamer's colorimetry says (`RANGE:MATRIX:..`, or a name), or as it takes what says nothing.
    pub fn of(format: &VideoFormat) -> Self {
        let said = format.colorimetry.as_deref().unwrap_or_default();
        let is_full_range = !format.is_limited_range();
        let is_hd = match said {
            "" => format.size.height > 576,
            said => said == "bt709" || said.split(':').nth(1) == Some("3"),
        };
        let (red, blue) = if is_hd { (0.2126, 0.0722) } else { (0.299, 0.114) };
        Self { is_full_range, red, blue }
    }

    /// A pixel's red, green and blue.
    pub fn rgb(&self, [y, cb, cr]: [u8; 3]) -> [u8; 3] {
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

    /// Returns the matrix that converts a video's luma, Cb and Cr to those of JPEG (BT.601 at full range):
    /// for each result the weights of the three, and the constant to add.
    pub fn to_jpeg(&self) -> [[f64; 4]; 3] {
        let (luma, chroma, black) =
            if self.is_full_range { (1.0, 1.0, 0.0) } else { (255.0 / 219.0, 255.0 / 224.0, 16.0) };
        // The map is linear: what it makes of zero and of each unit says it all.
        let rgb = |y: f64, cb: f64, cr: f64| {
            let red = luma * y + chroma * 2.0 * (1.0 - self.red) * cr;
            let blue = luma * y + chroma * 2.0 * (1.0 - self.blue) * cb;
            let green = (luma * y - self.red * red - self.blue * blue) / (1.0 - self.red - self.blue);
            [red, green, blue]
        };
        let jpeg = |[red, green, blue]: [f64; 3]| {
            let y = 0.299 * red + 0.587 * green + 0.114 * blue;
            [y, (blue - y) / 1.772, (red - y) / 1.402]
        };
        let [y, cb, cr] = [rgb(1.0, 0.0, 0.0), rgb(0.0, 1.0, 0.0), rgb(0.0, 0.0, 1.0)].map(jpeg);
        [0, 1, 2].map(|of| {
            let middle = if of == 0 { 0.0 } else { 128.0 };
            [y[of], cb[of], cr[of], middle - black * y[of] - 128.0 * (cb[of] + cr[of])]
        })
    }
}

/// OpenCV's integer luma, `(4899 R + 9617 G + 1868 B + 8192) >> 14`. Grey stays what it is: the weights add
/// up to 2^14.
#[inline(always)]
pub fn luma_of([r, g, b]: [u8; 3]) -> u8 {
    let [red, green, blue] = [r, g, b].map(u16::from);
    let (high, low) = (76 * red + 150 * green + 29 * blue, 35 * red + 17 * green + 12 * blue);
    ((high + (low >> 6) + 128) >> 8) as u8
}

/// Luma, Cb and Cr of a pixel, at full range: [`luma_of`], and chroma as JPEG files have it (JFIF 1.02, by
/// the weights of BT.601 as multiples of 1 / 2^14; rounded to the nearest, down where two are as near):
/// `(8192 B - 2765 R - 5427 G + 2^21 + 8191) >> 14` and `(8192 R - 6860 G - 1332 B + 2^21 + 8191) >> 14`.
#[inline(always)]
pub fn of_rgb([r, g, b]: [u8; 3]) -> [u8; 3] {
    let [cb, cr] = chroma_of([r, g, b]);
    [luma_of([r, g, b]), cb, cr]
}

/// Cb and Cr of [`of_rgb`].
///
/// Each weight is 64 times one number and another below 64. Sums of both kinds fit 16 bits, so that vectors
/// hold twice as many pixels as with 32.
#[inline(always)]
fn chroma_of([r, g, b]: [u8; 3]) -> [u8; 2] {
    let [red, green, blue] = [r, g, b].map(u16::from);
    let half = (1 << 15) + 127;
    // The constant's remainder of 63 turns the rounding of the low sum, which is subtracted.
    let chroma = |high: u16, less: u16, low: u16| ((half + high - less - (low >> 6)) >> 8) as u8;
    [
        chroma(128 * blue, 43 * red + 84 * green, 13 * red + 51 * green),
        chroma(128 * red, 107 * green + 20 * blue, 12 * green + 52 * blue),
    ]
}

/// A component as [`of_rgb`] defines it: the sum of a pixel's three bytes, each times its weight, and of a
/// constant, in units of 2^-14.
#[derive(Clone, Copy)]
struct Weights {
    of: [i16; 3],
    constant: i32,
}

impl Weights {
    /// Weights of red, green and blue.
    const LUMA: Self = Self { of: [4899, 9617, 1868], constant: 8192 };
    const CB: Self = Self { of: [-2765, -5427, 8192], constant: (1 << 21) + 8191 };
    const CR: Self = Self { of: [8192, -6860, -1332], constant: (1 << 21) + 8191 };

    /// As above, of blue, green and red.
    const fn of_bgr(self) -> Self {
        let Self { of: [red, green, blue], constant } = self;
        Self { of: [blue, green, red], constant }
    }
}

/// Pixels that are converted together.
const TOGETHER: usize = 64;

/// Writes luma, Cb and Cr of pixels that lie as OpenCV has them, three bytes each: blue, green, red. See
/// [`of_rgb`].
///
/// # Panics
/// If there are not as many bytes in each plane as pixels.
pub fn of_bgr(pixels: &[u8], planes: [&mut [u8]; 3]) {
    let weights = [Weights::LUMA, Weights::CB, Weights::CR].map(Weights::of_bgr);
    convert(Level::best(), pixels, planes, weights, |[b, g, r]| of_rgb([r, g, b]));
}

/// Writes the luma of pixels that lie as [`of_bgr`] has them.
///
/// # Panics
/// As there.
pub fn luma_of_bgr(pixels: &[u8], luma: &mut [u8]) {
    let weights = [Weights::LUMA.of_bgr()];
    convert(Level::best(), pixels, [luma], weights, |[b, g, r]| [luma_of([r, g, b])]);
}

/// Writes Cb and Cr of pixels that lie as [`of_bgr`] has them.
///
/// # Panics
/// As there.
pub fn chroma_of_bgr(pixels: &[u8], chroma: [&mut [u8]; 2]) {
    let weights = [Weights::CB, Weights::CR].map(Weights::of_bgr);
    convert(Level::best(), pixels, chroma, weights, |[b, g, r]| chroma_of([r, g, b]));
}

/// As [`luma_of_bgr`], of red, green and blue.
#[cfg(feature = "pictures")]
pub(crate) fn luma_of_rgb(pixels: &[u8], luma: &mut [u8]) {
    convert(Level::best(), pixels, [luma], [Weights::LUMA], |pixel| [luma_of(pixel)]);
}

/// Writes Cb and Cr of red, green and blue.
#[cfg(feature = "pictures")]
pub(crate) fn chroma_of_rgb(pixels: &[u8], chroma: [&mut [u8]; 2]) {
    convert(Level::best(), pixels, chroma, [Weights::CB, Weights::CR], chroma_of);
}

/// Writes for each pixel of three bytes a byte in each plane: the component with its weights, as `of_pixel`
/// makes it too, in 16 bits.
#[inline(always)]
fn convert<const PLANES: usize>(
    level: Level,
    pixels: &[u8],
    mut planes: [&mut [u8]; PLANES],
    weights: [Weights; PLANES],
    of_pixel: impl Fn([u8; 3]) -> [u8; PLANES],
) {
    let count = pixels.len() / 3;
    assert!(planes.iter().all(|plane| plane.len() == count), "planes of {count} pixels");
    #[cfg(target_arch = "x86_64")]
    let done = avx512::convert(level, pixels, &mut planes, &weights);
    #[cfg(not(target_arch = "x86_64"))]
    let (done, _) = (0, weights);
    level.run(
        #[inline(always)]
        || {
            let mut first = done;
            for pixels in pixels[3 * done..].chunks(3 * TOGETHER) {
                simd::prefetch_next_page(pixels);
                let own = pixels.len() / 3;
                let mut whole = [0; 3 * TOGETHER];
                let packed = if let Some(packed) = pixels.first_chunk() {
                    packed
                } else {
                    whole[..pixels.len()].copy_from_slice(pixels);
                    &whole
                };
                // Taken apart first: these loops are vectors then.
                let mut bytes = [[0; TOGETHER]; 3];
                let [a, b, c] = &mut bytes;
                for at in 0..TOGETHER {
                    (a[at], b[at], c[at]) = (packed[3 * at], packed[3 * at + 1], packed[3 * at + 2]);
                }
                let mut converted = [[0; TOGETHER]; PLANES];
                for at in 0..TOGETHER {
                    let values = of_pixel([bytes[0][at], bytes[1][at], bytes[2][at]]);
                    for (plane, value) in converted.iter_mut().zip(values) {
                        plane[at] = value;
                    }
                }
                for (plane, converted) in planes.iter_mut().zip(&converted) {
                    // A copy of a length that is known is one store, another one a call.
                    match plane[first..].first_chunk_mut() {
                        Some(whole) => *whole = *converted,
                        None => plane[first..].copy_from_slice(&converted[..own]),
                    }
                }
                first += own;
            }
        },
    );
}

/// Luma, Cb and Cr of a frame as planes of its own size.
pub fn planes(frame: &Frame) -> [Plane; 3] {
    let VideoFormat { size, pixels, .. } = *frame.format;
    let chroma = [0, 1].map(|component| {
        let Some((plane, first, step)) = pixels.chroma_samples(component) else {
            return Plane::from_vec(vec![128; size.area()], size);
        };
        let plane = frame.picture.plane(plane);
        let row = |y: usize| plane.row(y >> pixels.y_shift);
        let samples = |y| (0..size.width).map(move |x| row(y)[first + step * (x >> pixels.x_shift)]);
        Plane::from_vec((0..size.height).flat_map(samples).collect(), size)
    });
    let [cb, cr] = chroma;
    [frame.luma().to_plane(), cb, cr]
}

/// The part `area` of a frame as it is, three bytes a pixel: red, green, blue.
///
/// # Panics
/// If `area` does not lie in the frame.
pub fn rgb(frame: &Frame, area: Rect) -> Vec<u8> {
    shrunk(frame, area, usize::MAX).0
}

/// The part `crop` of a frame as RGB, made smaller by a whole number so that no side is longer than `side`.
///
/// # Panics
/// If `crop` does not lie in the frame.
pub fn shrunk(frame: &Frame, crop: Rect, side: usize) -> (Vec<u8>, Size) {
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
            rgb.extend(convert.rgb([mean as u8, cb, cr]));
        }
    }
    (rgb, size)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Instant;

    use super::*;
    use crate::frame::{Circumstances, FrameMeta, Picture, PixelFormat, PlaneRef};

    fn format(pixels: &str, size: Size, colorimetry: Option<&str>) -> VideoFormat {
        VideoFormat {
            size,
            pixels: PixelFormat::from_name(pixels).unwrap(),
            frame_rate: (25, 1),
            pixel_aspect: (1, 1),
            colorimetry: colorimetry.map(str::to_owned),
        }
    }

    struct Planes(Vec<Plane>);

    impl Picture for Planes {
        fn plane(&self, index: usize) -> PlaneRef<'_> {
            self.0[index].as_ref()
        }
    }

    #[test]
    fn rows_of_any_length_are_converted_as_their_pixels() {
        for count in [0, 1, 63, 64, 65, 191, 1280] {
            let pixels: Vec<u8> = (0..3 * count).map(|i| (i * i * 31 % 256) as u8).collect();
            let mut planes = [(); 3].map(|()| vec![0xA5; count]);
            let mut luma = vec![0xA5; count];
            luma_of_bgr(&pixels, &mut luma);
            let mut chroma = [(); 2].map(|()| vec![0xA5; count]);
            let [cb, cr] = &mut chroma;
            chroma_of_bgr(&pixels, [cb, cr]);
            let [y, cb, cr] = &mut planes;
            of_bgr(&pixels, [y, cb, cr]);
            for (at, &[blue, green, red]) in pixels.as_chunks::<3>().0.iter().enumerate() {
                let expected = of_rgb([red, green, blue]);
                assert_eq!([0, 1, 2].map(|plane| planes[plane][at]), expected, "{at} of {count}");
                assert_eq!([luma[at], chroma[0][at], chroma[1][at]], expected);
            }
        }
    }

    #[test]
    fn every_colour_is_converted_by_the_formula() {
        for rgb in 0..1 << 24 {
            let [_, r, g, b] = i32::to_be_bytes(rgb);
            let [red, green, blue] = [r, g, b].map(i32::from);
            let half = (1 << 21) + 8191;
            let expected = [
                4899 * red + 9617 * green + 1868 * blue + 8192,
                8192 * blue - 2765 * red - 5427 * green + half,
                8192 * red - 6860 * green - 1332 * blue + half,
            ];
            assert_eq!(of_rgb([r, g, b]), expected.map(|sum| (sum >> 14) as u8), "{r}, {g}, {b}");
        }
    }

    #[test]
    fn every_colour_is_the_same_by_every_levels_instructions() {
        let components = [Weights::LUMA, Weights::CB, Weights::CR];
        let mut planes = [(); 3].map(|()| vec![0; 1 << 8]);
        for (red, green) in (0..=255).flat_map(|red| (0..=255).map(move |green| (red, green))) {
            let pixels: Vec<u8> = (0..=255).flat_map(|blue| [red, green, blue]).collect();
            for level in Level::available() {
                // The results of another level would look right.
                for plane in &mut planes {
                    plane.fill(0xA5);
                }
                convert(level, &pixels, planes.each_mut().map(|plane| &mut plane[..]), components, of_rgb);
                for (at, pixel) in pixels.as_chunks().0.iter().enumerate() {
                    let found = planes.each_ref().map(|plane| plane[at]);
                    assert_eq!(found, of_rgb(*pixel), "{level}: {pixel:?}");
                }
            }
        }
    }

    #[test]
    fn grey_colours_keep_their_value() {
        for v in 0..=255 {
            assert_eq!(of_rgb([v, v, v]), [v, 128, 128]);
        }
    }

    #[test]
    fn luma_follows_opencv() {
        // cv2.cvtColor(BGR2GRAY) of pure red, green and blue.
        assert_eq!([luma_of([255, 0, 0]), luma_of([0, 255, 0]), luma_of([0, 0, 255])], [76, 150, 29]);
    }

    #[test]
    fn limited_luma_is_expanded_by_the_rounded_formula() {
        for luma in 0..=255_u8 {
            let full = libm::round((f64::from(luma) - 16.0) * 255.0 / 219.0).clamp(0.0, 255.0);
            assert_eq!(f64::from(expanded(luma)), full, "{luma}");
        }
    }

    #[test]
    fn the_range_of_luma_is_what_caps_say_or_gstreamers_default() {
        for (pixels, said, is_limited) in [
            ("I420", None, true),
            ("NV12", Some("bt709"), true),
            ("NV12", Some("2:4:7:1"), true),
            ("I420", Some("1:4:0:0"), false),
            ("Y444", Some("sRGB"), false),
            ("GRAY8", None, false),
            ("GRAY8", Some("1:4:0:0"), false),
        ] {
            let format = format(pixels, Size::new(64, 48), said);
            assert_eq!(format.is_limited_range(), is_limited, "{pixels} {said:?}");
        }
    }

    #[test]
    fn colours_of_a_screen_come_back_from_full_range() {
        let full = Conversion::of(&format("Y444", Size::new(1, 1), Some("1:4:0:0")));
        assert_eq!(of_rgb([255, 0, 0]), [76, 85, 255]);
        for rgb in [[255, 0, 0], [0, 255, 0], [0, 0, 255], [255, 255, 0], [12, 200, 99], [250, 3, 180]] {
            let back = full.rgb(of_rgb(rgb));
            // Three numbers are rounded, and blue weighs a chroma sample 1.77 times.
            assert!(rgb.iter().zip(back).all(|(there, back)| there.abs_diff(back) <= 2), "{rgb:?} {back:?}");
        }
    }

    #[test]
    fn known_colours_come_back() {
        let of = |colorimetry| Conversion::of(&format("I420", Size::new(64, 48), colorimetry));
        // Red as BT.601 and BT.709 have it in limited range.
        assert_eq!(of(None).rgb([81, 90, 240]), [254, 0, 0]);
        assert_eq!(of(Some("bt709")).rgb([63, 102, 240]), [255, 1, 0]);
        assert_eq!(of(Some("1:4:0:0")).rgb([200, 128, 128]), [200, 200, 200]);
        // At full range, as JPEG has it.
        assert_eq!(of(Some("1:4:0:0")).rgb([76, 85, 255]), [254, 0, 0]);
        assert_eq!(of(None), Conversion::BT601);
    }

    #[test]
    fn jpegs_colours_are_the_videos() {
        let jpeg = Conversion::of(&format("I420", Size::new(64, 48), Some("1:4:0:0")));
        for colorimetry in [None, Some("bt709"), Some("1:3:5:1"), Some("1:4:0:0")] {
            let video = Conversion::of(&format("I420", Size::new(64, 48), colorimetry));
            for pixel in [[81, 90, 240], [63, 102, 220], [235, 128, 128], [16, 128, 128], [120, 100, 150]] {
                let said = video.to_jpeg().map(|[y, cb, cr, more]| {
                    let [a, b, c] = pixel.map(f64::from);
                    (y * a + cb * b + cr * c + more).round().clamp(0.0, 255.0) as u8
                });
                let (shown, meant) = (jpeg.rgb(said), video.rgb(pixel));
                // Each of the three is rounded, and blue weighs chroma by nearly two.
                let is_near = shown.iter().zip(meant).all(|(&shown, meant)| shown.abs_diff(meant) <= 2);
                assert!(is_near, "{colorimetry:?} {pixel:?}: {shown:?}, not {meant:?}");
            }
        }
    }

    #[test]
    fn a_part_of_a_frame_has_the_colours_of_the_pixels_there() {
        // Red but for a grey pixel, in a plane of Cb and Cr by turns, at half the size.
        let size = Size::new(5, 3);
        let mut luma = vec![81; size.area()];
        luma[2 * 5 + 3] = 200;
        let mut chroma = [90, 240].repeat(3 * 2);
        chroma[(3 + 1) * 2..][..2].copy_from_slice(&[128, 128]);
        let picture = vec![Plane::from_vec(luma, size), Plane::from_vec(chroma, Size::new(6, 2))];
        let frame = Frame {
            meta: FrameMeta { index: 0, pts_ns: None, duration_ns: None, arrived: Instant::now() },
            circumstances: Circumstances::default(),
            format: Arc::new(format("NV12", size, None)),
            picture: Arc::new(Planes(picture)),
        };
        let (red, bright) = ([254, 0, 0], [214, 214, 214]);
        assert_eq!(rgb(&frame, Rect::new(1, 1, 1, 1)), red);
        assert_eq!(rgb(&frame, Rect::new(3, 2, 1, 1)), bright);
        assert_eq!(rgb(&frame, Rect::new(3, 1, 2, 2)).len(), 2 * 2 * 3);
        assert_eq!(rgb(&frame, Rect::whole(size))[..3], red);
        let [y, cb, cr] = planes(&frame);
        for (x, y_cb_cr) in [(1, [81, 90, 240]), (3, [200, 128, 128])] {
            let at = 2 * 5 + x;
            assert_eq!([y.data()[at], cb.data()[at], cr.data()[at]], y_cb_cr);
        }
    }
}
