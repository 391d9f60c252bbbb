//! Makes a JPEG of the requested size from a frame.
//!
//! Luma and chroma are scaled down from the decoded planes by area averaging, then converted to JPEG's
//! colours.

use lockon_core::colour::Conversion;
use lockon_core::error::Result;
use lockon_core::frame::{Frame, Plane, PlaneRef, Size};
use lockon_core::simd::Level;
use lockon_gst::jpeg::{Encoder, MOST_SIDE};

use super::resize::Resize;

const QUALITY: u8 = 80;

/// Fraction bits of colour weights: sums fit 16 bits, so that a vector holds more of them.
const COLOUR_BITS: u32 = 7;

/// Makes pictures.
pub(super) struct PicturePainter {
    encoder: Encoder,
    room: Room,
}

/// Memory that is reused for each picture: the system would have to clear new memory each time.
#[derive(Default)]
struct Room {
    /// Luma or grey, Cb, Cr.
    planes: [Plane; 3],
    /// One chroma component of interleaved chroma.
    samples: Plane,
    /// The scalers of luma and chroma.
    resize: [Resize; 2],
    /// Contributions of chroma to a row of luma.
    added: Vec<i16>,
}

impl PicturePainter {
    /// # Errors
    /// As [`Encoder::new`].
    pub(super) fn new() -> Result<Self> {
        Ok(Self { encoder: Encoder::new(QUALITY)?, room: Room::default() })
    }

    /// A JPEG of a frame, at most `width` columns wide.
    ///
    /// # Errors
    /// As [`Encoder::encode`].
    pub(super) fn picture(&mut self, frame: &Frame, width: Option<usize>) -> Result<Vec<u8>> {
        let format = &frame.format;
        let size = within(format.size, width);
        let half = Size::new(size.width.div_ceil(2), size.height.div_ceil(2));
        let Self { encoder, room } = self;
        let Room { planes: [luma, chroma @ ..], samples, resize: [of_luma, of_chroma], added } = room;
        of_luma.run(frame.luma(), size, luma);
        let weights = Conversion::of(format).to_jpeg();
        for (component, plane) in chroma.iter_mut().enumerate() {
            let Some((index, first, step)) = format.pixels.chroma_samples(component) else {
                let [[of_y, of_cb, of_cr, more], ..] = weights;
                // Without chroma both values are 128.
                let more = more + 128.0 * (of_cb + of_cr);
                let table: [u8; 256] =
                    std::array::from_fn(|y| (of_y * y as f64 + more).round().clamp(0.0, 255.0) as u8);
                luma.data_mut().iter_mut().for_each(|y| *y = table[usize::from(*y)]);
                return encoder.encode(&[luma.as_ref()]);
            };
            let source = frame.picture.plane(index);
            if step == 1 {
                of_chroma.run(source, half, plane);
            } else {
                every(step, first, source, samples);
                of_chroma.run(samples.as_ref(), half, plane);
            }
        }
        Level::best().run(
            #[inline(always)]
            || recolour(&mut room.planes, weights, added),
        );
        encoder.encode(&room.planes.each_ref().map(Plane::as_ref))
    }

    /// A JPEG of a thresholded frame.
    ///
    /// # Errors
    /// As [`Encoder::encode`].
    pub(super) fn mask(&mut self, mask: PlaneRef<'_>, width: Option<usize>) -> Result<Vec<u8>> {
        let Room { planes: [plane, ..], resize: [resize, _], .. } = &mut self.room;
        resize.run(mask, within(mask.size(), width), plane);
        self.encoder.encode(&[plane.as_ref()])
    }
}

/// Converts luma, Cb and Cr (half the samples in both directions) to JPEG's colours with the weights of
/// [`Conversion::to_jpeg`].
#[inline(always)]
fn recolour([luma, cb, cr]: &mut [Plane; 3], weights: [[f64; 4]; 3], added: &mut Vec<i16>) {
    let fixed = |weight: f64| (weight * f64::from(1 << COLOUR_BITS)).round() as i16;
    // Values relative to the middle keep sums small; larger ones saturate.
    let from_middle = |value: u8| i16::from(value) - 128;
    let rounding = 1 << (COLOUR_BITS - 1);
    let [[of_y, of_u, of_v, _], of_cb, of_cr] = weights.map(|of| of.map(fixed));
    let [y, u, v, more] = weights[0];
    let more = fixed(more + 128.0 * (y + u + v)) + rounding;
    let width = luma.size().width;
    added.resize(2 * cb.size().width, 0);
    for row in 0..luma.size().height {
        if row % 2 == 0 {
            let chroma = cb.as_ref().row(row / 2).iter().zip(cr.as_ref().row(row / 2));
            for (two, (&u, &v)) in added.chunks_exact_mut(2).zip(chroma) {
                two.fill(of_u * from_middle(u) + of_v * from_middle(v) + more);
            }
        }
        let row = &mut luma.data_mut()[row * width..][..width];
        for (y, &added) in row.iter_mut().zip(&*added) {
            *y = ((of_y * from_middle(*y)).saturating_add(added) >> COLOUR_BITS).max(0) as u8;
        }
    }
    // Grey stays grey: luma adds nothing to chroma, and the middle stays the middle.
    let mix = |[_, of_u, of_v, _]: [i16; 4], u: i16, v: i16| {
        let sum = (of_u * u).saturating_add(of_v * v + rounding) >> COLOUR_BITS;
        (sum.clamp(-128, 127) + 128) as u8
    };
    for (cb, cr) in cb.data_mut().iter_mut().zip(cr.data_mut()) {
        let (u, v) = (from_middle(*cb), from_middle(*cr));
        (*cb, *cr) = (mix(of_cb, u, v), mix(of_cr, u, v));
    }
}

/// The size of a picture of that shape, no wider than `width` and within JPEG's limits.
fn within(size: Size, width: Option<usize>) -> Size {
    let shrink = |size: Size, most: usize, of: usize| {
        if of <= most {
            return size;
        }
        let scaled = |length: usize| ((length * most + of / 2) / of).max(1);
        Size::new(scaled(size.width), scaled(size.height))
    };
    let size = shrink(size, width.unwrap_or(MOST_SIDE).min(MOST_SIDE), size.width);
    shrink(size, MOST_SIDE, size.height)
}

/// Every `step`th byte of each row, from `first` on.
fn every(step: usize, first: usize, plane: PlaneRef<'_>, samples: &mut Plane) {
    let width = plane.size().width / step;
    samples.resize(Size::new(width, plane.size().height));
    for (to, row) in samples.data_mut().chunks_exact_mut(width).zip(plane.rows()) {
        to.iter_mut().zip(row.chunks_exact(step)).for_each(|(to, samples)| *to = samples[first]);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Instant;

    use super::*;
    use lockon_core::frame::{Circumstances, FrameMeta, Picture, PixelFormat, VideoFormat};
    use lockon_gst::launch;

    fn painter() -> PicturePainter {
        launch::init().unwrap();
        PicturePainter::new().unwrap()
    }

    struct Planes(Vec<Plane>);

    impl Picture for Planes {
        fn plane(&self, index: usize) -> PlaneRef<'_> {
            self.0[index].as_ref()
        }
    }

    /// A frame whose left half has one colour and whose right half another.
    fn halves(pixels: PixelFormat, size: Size, colours: [[u8; 3]; 2]) -> Frame {
        let mut planes: Vec<_> =
            (0..pixels.planes()).map(|plane| Plane::new(pixels.plane_size(plane, size))).collect();
        for y in 0..size.height {
            for x in 0..size.width {
                let colour = colours[usize::from(2 * x >= size.width)];
                planes[0].as_mut().row(y)[x] = colour[0];
                for component in [0, 1] {
                    let Some((plane, first, step)) = pixels.chroma_samples(component) else { continue };
                    let (x, y) = (x >> pixels.x_shift, y >> pixels.y_shift);
                    planes[plane].as_mut().row(y)[first + step * x] = colour[1 + component];
                }
            }
        }
        Frame {
            meta: FrameMeta { index: 0, pts_ns: None, duration_ns: None, arrived: Instant::now() },
            circumstances: Circumstances::default(),
            format: Arc::new(VideoFormat {
                size,
                pixels,
                frame_rate: (25, 1),
                pixel_aspect: (1, 1),
                colorimetry: Some("bt709".into()),
            }),
            picture: Arc::new(Planes(planes)),
        }
    }

    #[test]
    fn a_picture_has_the_colours_of_every_format_in_every_size() {
        // Red and grey of BT.709 in limited range.
        let colours = [[63, 102, 240], [126, 128, 128]];
        let mut painter = painter();
        for pixels in PixelFormat::ALL {
            for width in [None, Some(320), Some(640), Some(1)] {
                let frame = halves(pixels, Size::new(643, 361), colours);
                let jpeg = painter.picture(&frame, width).unwrap();
                let picture = image::load_from_memory(&jpeg).unwrap().into_rgb8();
                let expected = within(Size::new(643, 361), width);
                assert_eq!(
                    (picture.width() as usize, picture.height() as usize),
                    (expected.width, expected.height)
                );
                if width == Some(1) {
                    continue;
                }
                let middle = picture.height() / 2;
                let red = if pixels == PixelFormat::GRAY8 { [55; 3] } else { [255, 1, 0] };
                for (x, meant) in [(picture.width() / 4, red), (picture.width() * 3 / 4, [128; 3])] {
                    let shown = picture.get_pixel(x, middle).0;
                    // JPEG's rounding of a plain area.
                    let is_near = shown.iter().zip(meant).all(|(&shown, meant)| shown.abs_diff(meant) <= 4);
                    assert!(is_near, "{} {width:?}: {shown:?}, not {meant:?}", pixels.name);
                }
            }
        }
    }

    #[test]
    fn a_mask_stays_black_and_white() {
        let mut mask = Plane::new(Size::new(101, 37));
        mask.as_mut().row(20).fill(255);
        let jpeg = painter().mask(mask.as_ref(), None).unwrap();
        let picture = image::load_from_memory(&jpeg).unwrap().into_luma8();
        assert_eq!((picture.width(), picture.height()), (101, 37));
        assert!(picture.get_pixel(50, 20).0[0] > 240 && picture.get_pixel(50, 5).0[0] < 15);
    }

    #[test]
    fn a_picture_is_no_wider_than_asked_and_keeps_its_shape() {
        assert_eq!(within(Size::new(1920, 1080), Some(1280)), Size::new(1280, 720));
        assert_eq!(within(Size::new(640, 480), Some(1280)), Size::new(640, 480));
        assert_eq!(within(Size::new(3, 100_000), Some(1280)), Size::new(2, 65_500));
        assert_eq!(within(Size::new(100_000, 1), None), Size::new(65_500, 1));
    }
}
