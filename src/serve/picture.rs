//! From a frame to a JPEG of the size that is looked at.
//!
//! Pictures are made smaller by the mean of the area that a pixel stands for, luma and chroma each from the
//! planes as they were decoded; what is left of them gets JPEG's colours.

use crate::colour::Conversion;
use crate::error::Result;
use crate::frame::{Frame, Plane, PlaneRef, Size};
use crate::media::jpeg::{Encoder, MOST_SIDE};
use crate::simd::Level;

const QUALITY: u8 = 80;

/// Weights have so many bits behind the point; means of bytes then fit 16 bits.
const BITS: u32 = 8;

/// Colours are weighed with so many bits behind the point: sums then fit 16 bits, and more of them a vector.
const COLOUR_BITS: u32 = 7;

/// Makes pictures, one after the other.
pub(super) struct Painter {
    encoder: Encoder,
    room: Room,
}

/// Memory that one picture after the other is made in: what is taken from the system anew for each has to be
/// cleared by it first.
#[derive(Default)]
struct Room {
    /// Luma, or what is grey; Cb; Cr.
    planes: [Plane; 3],
    /// Chroma that lies between other chroma.
    samples: Plane,
    /// A row of means of columns.
    means: Vec<u16>,
    /// What chroma adds to luma, in a row of it.
    added: Vec<i16>,
}

impl Painter {
    /// # Errors
    /// Those of [`Encoder::new`].
    pub(super) fn new() -> Result<Self> {
        Ok(Self { encoder: Encoder::new(QUALITY)?, room: Room::default() })
    }

    /// A JPEG of a frame, at most so many columns wide.
    ///
    /// # Errors
    /// Those of [`Encoder::encode`].
    pub(super) fn picture(&mut self, frame: &Frame, width: Option<usize>) -> Result<Vec<u8>> {
        let format = &frame.format;
        let size = within(format.size, width);
        let half = Size::new(size.width.div_ceil(2), size.height.div_ceil(2));
        let Self { encoder, room } = self;
        let Room { planes: [luma, chroma @ ..], samples, means, added } = room;
        resize(frame.luma(), size, luma, means);
        let weights = Conversion::of(format).to_jpeg();
        for (component, plane) in chroma.iter_mut().enumerate() {
            let Some((index, first, step)) = format.pixels.chroma_samples(component) else {
                let [[of_y, of_cb, of_cr, more], ..] = weights;
                // No chroma is 128.
                let more = more + 128.0 * (of_cb + of_cr);
                let table: [u8; 256] =
                    std::array::from_fn(|y| (of_y * y as f64 + more).round().clamp(0.0, 255.0) as u8);
                luma.data_mut().iter_mut().for_each(|y| *y = table[usize::from(*y)]);
                return encoder.encode(&[luma.as_ref()]);
            };
            let source = frame.picture.plane(index);
            if step == 1 {
                resize(source, half, plane, means);
            } else {
                every(step, first, source, samples);
                resize(samples.as_ref(), half, plane, means);
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
    /// Those of [`Encoder::encode`].
    pub(super) fn mask(&mut self, mask: PlaneRef<'_>, width: Option<usize>) -> Result<Vec<u8>> {
        let Room { planes: [plane, ..], means, .. } = &mut self.room;
        resize(mask, within(mask.size(), width), plane, means);
        self.encoder.encode(&[plane.as_ref()])
    }
}

/// Makes luma, Cb and Cr, with half the samples in both directions, what JPEG has: `weights` are those of
/// [`Conversion::to_jpeg`].
#[inline(always)]
fn recolour([luma, cb, cr]: &mut [Plane; 3], weights: [[f64; 4]; 3], added: &mut Vec<i16>) {
    let fixed = |weight: f64| (weight * f64::from(1 << COLOUR_BITS)).round() as i16;
    // All from the middle, so that sums are small. Those that are too large all the same are as large as can
    // be.
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
    // Grey does not become colour: luma has no part in chroma, and the middle stays where it is.
    let mix = |[_, of_u, of_v, _]: [i16; 4], u: i16, v: i16| {
        let sum = (of_u * u).saturating_add(of_v * v + rounding) >> COLOUR_BITS;
        (sum.clamp(-128, 127) + 128) as u8
    };
    for (cb, cr) in cb.data_mut().iter_mut().zip(cr.data_mut()) {
        let (u, v) = (from_middle(*cb), from_middle(*cr));
        (*cb, *cr) = (mix(of_cb, u, v), mix(of_cr, u, v));
    }
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

/// Every `step`th byte of each row, from `first` on.
fn every(step: usize, first: usize, plane: PlaneRef<'_>, samples: &mut Plane) {
    let width = plane.size().width / step;
    samples.resize(Size::new(width, plane.size().height));
    for (to, row) in samples.data_mut().chunks_exact_mut(width).zip(plane.rows()) {
        to.iter_mut().zip(row.chunks_exact(step)).for_each(|(to, samples)| *to = samples[first]);
    }
}

/// Each pixel is the mean of the area that it stands for; where that is less than a pixel, that pixel.
fn resize(plane: PlaneRef<'_>, size: Size, to: &mut Plane, means: &mut Vec<u16>) {
    to.resize(size);
    if plane.size() == size {
        return to.as_mut().copy_from(plane);
    }
    let columns = spans(plane.size().width, size.width);
    match period(plane.size().width, size.width) {
        (3, 2) => repeated::<3, 2>(plane, to, means, &columns),
        (2, 1) => repeated::<2, 1>(plane, to, means, &columns),
        (3, 1) => repeated::<3, 1>(plane, to, means, &columns),
        (4, 1) => repeated::<4, 1>(plane, to, means, &columns),
        (6, 1) => repeated::<6, 1>(plane, to, means, &columns),
        // All of one length, so that nobody has to look how long each is.
        _ => match columns.iter().map(|(_, weights)| weights.len()).max().unwrap_or(0) {
            ..=2 => each(plane, to, means, &padded::<2>(&columns), |weights| weights),
            3..=4 => each(plane, to, means, &padded::<4>(&columns), |weights| weights),
            _ => each(plane, to, means, &columns, |weights| weights),
        },
    }
}

/// Columns, and weights of as many pixels from there on.
fn padded<const N: usize>(columns: &[(usize, Vec<u16>)]) -> Vec<(usize, [u16; N])> {
    let pad = |(first, weights): &(usize, Vec<u16>)| {
        (*first, std::array::from_fn(|at| weights.get(at).copied().unwrap_or(0)))
    };
    columns.iter().map(pad).collect()
}

/// The means of areas, each column by its own weights.
#[inline(always)]
fn each<W>(
    plane: PlaneRef<'_>,
    to: &mut Plane,
    means: &mut Vec<u16>,
    columns: &[(usize, W)],
    weights: impl Fn(&W) -> &[u16],
) {
    average(
        plane,
        to,
        means,
        #[inline(always)]
        |means, to| {
            for (to, (first, own)) in to.iter_mut().zip(columns) {
                let own = weights(own);
                *to = mean(&means[*first..][..own.len()], own);
            }
        },
    );
}

/// The least numbers of pixels in which the weights of columns repeat: of what there is, and of what it is
/// made into.
fn period(from: usize, to: usize) -> (usize, usize) {
    let (mut a, mut b) = (from, to);
    while b > 0 {
        (a, b) = (b, a % b);
    }
    (from / a.max(1), to / a.max(1))
}

/// The same where each `FROM` columns become `TO` in the same way: what is known when it is compiled becomes
/// instructions for many columns at once.
fn repeated<const FROM: usize, const TO: usize>(
    plane: PlaneRef<'_>,
    to: &mut Plane,
    means: &mut Vec<u16>,
    columns: &[(usize, Vec<u16>)],
) {
    let mut weights = [[0; FROM]; TO];
    for (of, (first, own)) in weights.iter_mut().zip(columns) {
        of[*first..][..own.len()].copy_from_slice(own);
    }
    average(
        plane,
        to,
        means,
        #[inline(always)]
        |means, to| {
            let (whole, _) = means.as_chunks::<FROM>();
            let (made, _) = to.as_chunks_mut::<TO>();
            for (to, means) in made.iter_mut().zip(whole) {
                for (to, own) in to.iter_mut().zip(&weights) {
                    *to = mean(means, own);
                }
            }
        },
    );
}

/// The mean of means, by their weights.
#[inline(always)]
fn mean(means: &[u16], weights: &[u16]) -> u8 {
    let sum: u32 = means.iter().zip(weights).map(|(&v, &w)| u32::from(v) * u32::from(w)).sum();
    ((sum + (1 << (2 * BITS - 1))) >> (2 * BITS)) as u8
}

/// Makes each row of the means of the columns that it stands for, and of these what `across` makes of them.
fn average(plane: PlaneRef<'_>, to: &mut Plane, means: &mut Vec<u16>, across: impl Fn(&[u16], &mut [u8])) {
    let Size { width, height } = to.size();
    // Behind the last column are those that padded weights look at.
    means.resize(plane.size().width + 4, 0);
    let means = &mut means[..];
    let rows = spans(plane.size().height, height);
    Level::best().run(
        #[inline(always)]
        || {
            for (to, (first, shares)) in to.data_mut().chunks_exact_mut(width).zip(&rows) {
                means.fill(0);
                for (y, &share) in (*first..).zip(shares) {
                    // At most 255 * 256 in all.
                    means.iter_mut().zip(plane.row(y)).for_each(|(sum, &v)| *sum += u16::from(v) * share);
                }
                across(means, to);
            }
        },
    );
}

/// What each of `to` pixels is made of, where `from` are made into them: the first one, and the weights of
/// that one and those after it, which are 1 together.
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
        let means = |size| {
            let mut resized = Plane::default();
            resize(plane.as_ref(), size, &mut resized, &mut Vec::new());
            resized.data().to_vec()
        };
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
    fn columns_that_repeat_become_what_they_are_one_by_one() {
        let mut value = 1_u32;
        let mut noise = || {
            value = value.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (value >> 24) as u8
        };
        for (from, to) in [(1920, 1280), (1280, 640), (1920, 640), (1280, 320), (1920, 320), (1920, 960)] {
            let plane = Plane::from_vec((0..from).map(|_| noise()).collect(), Size::new(from, 1));
            let means: Vec<_> = plane.data().iter().map(|&v| u16::from(v) << BITS).collect();
            let mean = |(first, own): (usize, Vec<u16>)| mean(&means[first..][..own.len()], &own);
            let expected: Vec<_> = spans(from, to).into_iter().map(mean).collect();
            let mut resized = Plane::default();
            resize(plane.as_ref(), Size::new(to, 1), &mut resized, &mut Vec::new());
            assert_eq!(resized.data(), expected, "{from} -> {to}");
        }
        assert_eq!([(1920, 1280), (640, 320), (7, 3)].map(|(a, b)| period(a, b)), [(3, 2), (2, 1), (7, 3)]);
    }

    #[test]
    fn a_picture_is_no_wider_than_asked_and_keeps_its_shape() {
        assert_eq!(within(Size::new(1920, 1080), Some(1280)), Size::new(1280, 720));
        assert_eq!(within(Size::new(640, 480), Some(1280)), Size::new(640, 480));
        assert_eq!(within(Size::new(3, 100_000), Some(1280)), Size::new(2, 65_500));
        assert_eq!(within(Size::new(100_000, 1), None), Size::new(65_500, 1));
    }
}
