//! From a frame to a JPEG of the size that is looked at.
//!
//! Pictures are made smaller by the mean of the area that a pixel stands for, luma and chroma each from the
//! planes as they were decoded; what is left of them gets JPEG's colours.

use crate::colour::Conversion;
use crate::error::Result;
use crate::frame::{Frame, Plane, PlaneRef, Size};
use crate::media::jpeg::{Encoder, MOST_SIDE};

const QUALITY: u8 = 80;

/// Weights have so many bits behind the point; means of bytes then fit 16 bits.
const BITS: u32 = 8;

/// Pixels that one is the mean of, in a row: those that more are made of are slower.
const USUAL: usize = 4;

/// Colours are weighed with so many bits behind the point.
const COLOUR_BITS: u32 = 14;

/// Makes pictures, one after the other.
pub(super) struct Painter {
    encoder: Encoder,
}

impl Painter {
    /// # Errors
    /// Those of [`Encoder::new`].
    pub(super) fn new() -> Result<Self> {
        Ok(Self { encoder: Encoder::new(QUALITY)? })
    }

    /// A JPEG of a frame, at most so many columns wide.
    ///
    /// # Errors
    /// Those of [`Encoder::encode`].
    pub(super) fn picture(&mut self, frame: &Frame, width: Option<usize>) -> Result<Vec<u8>> {
        let format = &frame.format;
        let size = within(format.size, width);
        let half = Size::new(size.width.div_ceil(2), size.height.div_ceil(2));
        let chroma = [0, 1].map(|component| {
            let (plane, first, step) = format.pixels.chroma_samples(component)?;
            let plane = frame.picture.plane(plane);
            let samples = every(step, first, plane);
            Some(resized(samples.as_ref(), half).into_owned())
        });
        let luma = resized(frame.luma(), size).into_owned();
        let weights = Conversion::of(format).to_jpeg();
        let [Some(cb), Some(cr)] = chroma else {
            let [[of_y, of_cb, of_cr, more], ..] = weights;
            // No chroma is 128.
            let more = more + 128.0 * (of_cb + of_cr);
            let table: [u8; 256] =
                std::array::from_fn(|y| (of_y * y as f64 + more).round().clamp(0.0, 255.0) as u8);
            let grey = luma.data().iter().map(|&y| table[usize::from(y)]).collect();
            return self.encoder.encode(&[Plane::from_vec(grey, size).as_ref()]);
        };
        let planes = in_jpegs_colours(luma, cb, cr, weights);
        self.encoder.encode(&planes.each_ref().map(Plane::as_ref))
    }

    /// A JPEG of a thresholded frame.
    ///
    /// # Errors
    /// Those of [`Encoder::encode`].
    pub(super) fn mask(&mut self, mask: PlaneRef<'_>, width: Option<usize>) -> Result<Vec<u8>> {
        self.encoder.encode(&[resized(mask, within(mask.size(), width)).view()])
    }
}

/// Luma, Cb and Cr, with half the samples in both directions, as JPEG has them: `weights` are those of
/// [`Conversion::to_jpeg`].
fn in_jpegs_colours(mut luma: Plane, mut cb: Plane, mut cr: Plane, weights: [[f64; 4]; 3]) -> [Plane; 3] {
    let half = 1 << (COLOUR_BITS - 1);
    let byte = |sum: i32| (sum >> COLOUR_BITS).clamp(0, 255) as u8;
    let [of_luma, of_cb, of_cr] = weights.map(|of| of.map(fixed));
    let width = luma.size().width;
    // What chroma adds to luma, in a row of it.
    let mut added = vec![0_i32; 2 * cb.size().width];
    for y in 0..luma.size().height {
        let [of_y, of_u, of_v, more] = of_luma;
        if y % 2 == 0 {
            let chroma = cb.as_ref().row(y / 2).iter().zip(cr.as_ref().row(y / 2));
            for (two, (&u, &v)) in added.chunks_exact_mut(2).zip(chroma) {
                two.fill(of_u * i32::from(u) + of_v * i32::from(v) + more + half);
            }
        }
        let row = &mut luma.data_mut()[y * width..][..width];
        row.iter_mut().zip(&added).for_each(|(y, added)| *y = byte(of_y * i32::from(*y) + added));
    }
    // Of grey nothing becomes colour, so luma has no part in chroma.
    let mix = |[_, of_u, of_v, more]: [i32; 4], u: u8, v: u8| {
        byte(of_u * i32::from(u) + of_v * i32::from(v) + more + half)
    };
    for (u, v) in cb.data_mut().iter_mut().zip(cr.data_mut()) {
        (*u, *v) = (mix(of_cb, *u, *v), mix(of_cr, *u, *v));
    }
    [luma, cb, cr]
}

/// The size of a picture of that shape that is no wider than `width`, and that a JPEG can have.
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

fn fixed(weight: f64) -> i32 {
    (weight * f64::from(1 << COLOUR_BITS)).round() as i32
}

/// Every `step`th byte of each row, from `first` on.
fn every(step: usize, first: usize, plane: PlaneRef<'_>) -> Plane {
    if step == 1 {
        return plane.to_plane();
    }
    let size = Size::new(plane.size().width / step, plane.size().height);
    let rows = plane.rows().flat_map(|row| row.chunks_exact(step).map(|samples| samples[first]));
    Plane::from_vec(rows.collect(), size)
}

/// A plane of another size, or the plane itself.
enum Resized<'a> {
    Same(PlaneRef<'a>),
    Other(Plane),
}

impl Resized<'_> {
    fn view(&self) -> PlaneRef<'_> {
        match self {
            Self::Same(plane) => *plane,
            Self::Other(plane) => plane.as_ref(),
        }
    }

    fn into_owned(self) -> Plane {
        match self {
            Self::Same(plane) => plane.to_plane(),
            Self::Other(plane) => plane,
        }
    }
}

/// Each pixel is the mean of the area that it stands for; where that is less than a pixel, that pixel.
fn resized(plane: PlaneRef<'_>, size: Size) -> Resized<'_> {
    if plane.size() == size {
        return Resized::Same(plane);
    }
    let columns = spans(plane.size().width, size.width);
    // All of one length, so that nobody has to look how long they are.
    let usual = |(first, weights): &(usize, Vec<u16>)| {
        let mut padded = [0; USUAL];
        padded.get_mut(..weights.len())?.copy_from_slice(weights);
        Some((*first, padded))
    };
    let usual: Option<Vec<_>> = columns.iter().map(usual).collect();
    let mut means = vec![0_u16; plane.size().width + USUAL];
    let mut pixels = Vec::with_capacity(size.area());
    for (first, weights) in spans(plane.size().height, size.height) {
        means.fill(0);
        for (y, &weight) in (first..).zip(&weights) {
            // At most 255 * 256 in all.
            means.iter_mut().zip(plane.row(y)).for_each(|(sum, &v)| *sum += u16::from(v) * weight);
        }
        let mean = |first: usize, weights: &[u16]| {
            let means = &means[first..][..weights.len()];
            let sum: u32 = means.iter().zip(weights).map(|(&v, &w)| u32::from(v) * u32::from(w)).sum();
            ((sum + (1 << (2 * BITS - 1))) >> (2 * BITS)) as u8
        };
        match &usual {
            Some(usual) => pixels.extend(usual.iter().map(|(first, weights)| mean(*first, weights))),
            None => pixels.extend(columns.iter().map(|(first, weights)| mean(*first, weights))),
        }
    }
    Resized::Other(Plane::from_vec(pixels, size))
}

/// Of each of `to` pixels that `from` are made into: the first that it is made of, and the weights of that
/// one and those after it, which are 1 together.
fn spans(from: usize, to: usize) -> Vec<(usize, Vec<u16>)> {
    let one = 1_usize << BITS;
    // In 1/one of a pixel.
    let edge = |index: usize| index * from * one / to;
    let span = |index: usize| {
        let (start, end) = (edge(index), edge(index + 1).max(edge(index) + 1));
        let (first, last) = (start / one, (end - 1) / one);
        let share = |pixel: usize| end.min((pixel + 1) * one) - start.max(pixel * one);
        let mut left = one;
        let mut weights: Vec<_> = (first..last)
            .map(|pixel| {
                let weight = share(pixel) * one / (end - start);
                left -= weight;
                weight as u16
            })
            .collect();
        weights.push(left as u16);
        (first, weights)
    };
    (0..to).map(span).collect()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Instant;

    use super::*;
    use crate::frame::{Circumstances, FrameMeta, Picture, PixelFormat, VideoFormat};
    use crate::media::launch;

    fn painter() -> Painter {
        launch::init().unwrap();
        Painter::new().unwrap()
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
        // Red and grey as BT.709 has them in limited range.
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
                    // What JPEG's own rounding leaves of a plain area.
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
    fn means_of_areas_weigh_what_lies_in_them() {
        let plane = Plane::from_vec(vec![0, 90, 240, 60, 60, 60], Size::new(3, 2));
        let means = |size| resized(plane.as_ref(), size).view().to_plane().data().to_vec();
        // Weights are whole 256ths.
        let is_near = |means: &[u8], meant: &[u8]| {
            means.len() == meant.len() && means.iter().zip(meant).all(|(a, b)| a.abs_diff(*b) <= 1)
        };
        for (size, meant) in [
            (Size::new(1, 2), &[110, 60][..]),
            // 2 of 3 columns: the middle one lies half in each.
            (Size::new(2, 2), &[30, 190, 60, 60]),
            (Size::new(3, 1), &[30, 75, 150]),
            (Size::new(6, 2), &[0, 0, 90, 90, 240, 240, 60, 60, 60, 60, 60, 60]),
        ] {
            assert!(is_near(&means(size), meant), "{size}: {:?}, not {meant:?}", means(size));
        }
        for (from, to) in [(1920, 1280), (7, 7), (5, 3), (65_500, 320), (3, 11), (1, 1)] {
            for (first, weights) in spans(from, to) {
                assert_eq!(weights.iter().map(|&w| u32::from(w)).sum::<u32>(), 256);
                assert!(first + weights.len() <= from, "{from} -> {to}: {first} {}", weights.len());
            }
        }
    }

    #[test]
    fn a_picture_is_no_wider_than_asked_and_keeps_its_shape() {
        assert_eq!(within(Size::new(1920, 1080), Some(1280)), Size::new(1280, 720));
        assert_eq!(within(Size::new(640, 480), Some(1280)), Size::new(640, 480));
        assert_eq!(within(Size::new(3, 100_000), Some(1280)), Size::new(2, 65_500));
        assert_eq!(within(Size::new(100_000, 1), None), Size::new(65_500, 1));
    }
}
