//! Makes planes of bytes, by one copy, for pictures whose luma is no such plane.
//!
//! - **Packed YUV** (`YUY2`): each sample is taken as it is.
//! - **More than 8 bits a sample** (`P010_10LE`, `GRAY16_LE`): the upper 8 bits of each, as `videoconvert
//!   dither=none` does.
//! - **RGB**: luma and chroma by the rule for still pictures ([`lockon_core::colour::of_rgb`]), so that a
//!   template that was cut out of such a picture is found with a score of 1.
//!
//! Formats in which samples begin between bytes or lie in tiles (`v210`, `NV12_10LE32`) are left to a
//! converter, and so are RGB of more than 8 bits, and `VYUY`, because GStreamer 1.22 contradicts itself about
//! it.

use gst_video::prelude::*;
use lockon_core::colour;
use lockon_core::frame::{Picture, PixelFormat, Plane, PlaneRef, Size};

use super::picture::MappedFrame;

/// GStreamer's names of the formats, and of the planes made from them.
pub(super) const GATHERED: [(&str, &str); 44] = [
    ("YUY2", "Y42B"),
    ("UYVY", "Y42B"),
    ("YVYU", "Y42B"),
    ("AYUV", "Y444"),
    ("VUYA", "Y444"),
    ("v308", "Y444"),
    ("IYU2", "Y444"),
    ("A420", "I420"),
    ("GRAY16_LE", "GRAY8"),
    ("GRAY16_BE", "GRAY8"),
    ("P010_10LE", "NV12"),
    ("P010_10BE", "NV12"),
    ("P012_LE", "NV12"),
    ("P012_BE", "NV12"),
    ("P016_LE", "NV12"),
    ("P016_BE", "NV12"),
    ("I420_10LE", "I420"),
    ("I420_10BE", "I420"),
    ("I420_12LE", "I420"),
    ("I420_12BE", "I420"),
    ("I422_10LE", "Y42B"),
    ("I422_10BE", "Y42B"),
    ("I422_12LE", "Y42B"),
    ("I422_12BE", "Y42B"),
    ("Y444_10LE", "Y444"),
    ("Y444_10BE", "Y444"),
    ("Y444_12LE", "Y444"),
    ("Y444_12BE", "Y444"),
    ("Y444_16LE", "Y444"),
    ("Y444_16BE", "Y444"),
    ("RGB", "Y444"),
    ("BGR", "Y444"),
    ("RGBx", "Y444"),
    ("BGRx", "Y444"),
    ("xRGB", "Y444"),
    ("xBGR", "Y444"),
    ("RGBA", "Y444"),
    ("BGRA", "Y444"),
    ("ARGB", "Y444"),
    ("ABGR", "Y444"),
    ("GBR", "Y444"),
    ("GBRA", "Y444"),
    ("RGBP", "Y444"),
    ("BGRP", "Y444"),
];

/// The planes for a format of that name.
pub(super) fn planes_of(name: &str) -> Option<PixelFormat> {
    let (_, planes) = GATHERED.iter().find(|(gathered, _)| *gathered == name)?;
    PixelFormat::from_name(planes)
}

/// The planes made from a picture.
#[derive(Default)]
pub(super) struct Gathered(Vec<Plane>);

impl Picture for Gathered {
    fn plane(&self, index: usize) -> PlaneRef<'_> {
        self.0[index].as_ref()
    }
}

/// The layout of one component's samples.
struct Samples<'a> {
    data: &'a [u8],
    /// Bytes from one row to the next, from one sample to the next, and to the first in a row.
    stride: usize,
    step: usize,
    first: usize,
    /// The shift from a sample of two bytes to one of 8 bits.
    shift: u32,
    is_le: bool,
    is_wide: bool,
}

impl<'a> Samples<'a> {
    fn of(frame: &'a MappedFrame, component: usize) -> Self {
        let info = frame.format_info();
        let plane = info.plane()[component];
        let is_wide = info.depth()[component] > 8;
        // GStreamer's table says of P010 and its like that Cr begins one byte after Cb.
        let is_second_of_two = is_wide && component == 2 && info.plane()[1] == plane;
        Self {
            data: frame.plane_data(plane).expect("planes are those of the format"),
            stride: frame.plane_stride()[plane as usize] as usize,
            step: info.pixel_stride()[component] as usize,
            first: if is_second_of_two { 2 } else { info.poffset()[component] as usize },
            shift: (info.shift()[component] + info.depth()[component]).saturating_sub(8),
            is_le: info.is_le(),
            is_wide,
        }
    }

    fn rows(&self) -> impl Iterator<Item = &'a [u8]> {
        self.data.chunks(self.stride)
    }

    /// True if a row has room for so many samples.
    fn has(&self, samples: usize) -> bool {
        samples * self.step <= self.stride
    }

    /// Copies the upper 8 bits of a row's samples to every `step`th byte from the first on.
    fn copy(&self, from: &[u8], to: &mut [u8], step: usize) {
        let Self { first, shift, .. } = *self;
        match (self.is_wide, self.is_le) {
            (false, _) => self.spread(from, to, step, |sample| sample[first]),
            (true, true) => self.spread(from, to, step, |sample| {
                (u16::from_le_bytes([sample[first], sample[first + 1]]) >> shift) as u8
            }),
            (true, false) => self.spread(from, to, step, |sample| {
                (u16::from_be_bytes([sample[first], sample[first + 1]]) >> shift) as u8
            }),
        }
    }

    /// The loop, compiled for each distance of samples.
    fn spread(&self, from: &[u8], to: &mut [u8], step: usize, read: impl Fn(&[u8]) -> u8) {
        let to = to.iter_mut().step_by(step);
        macro_rules! apart {
            ($($bytes:literal),+) => {
                match self.step {
                    $($bytes => to.zip(from.as_chunks::<$bytes>().0).for_each(|(to, from)| *to = read(from)),)+
                    bytes => to.zip(from.chunks_exact(bytes)).for_each(|(to, from)| *to = read(from)),
                }
            };
        }
        apart!(1, 2, 3, 4);
    }
}

impl Gathered {
    /// Makes the planes of a picture of this size, in the memory of earlier ones. False if its rows are too
    /// short.
    pub(super) fn fill(&mut self, frame: &MappedFrame, pixels: PixelFormat, size: Size) -> bool {
        self.0.resize_with(pixels.planes(), Plane::default);
        for (index, plane) in self.0.iter_mut().enumerate() {
            plane.resize(pixels.plane_size(index, size));
        }
        if frame.format_info().is_rgb() {
            return self.fill_with_rgb(frame, size.width);
        }
        for component in 0..3 {
            let place = match component {
                0 => Some((0, 0, 1)),
                chroma => pixels.chroma_samples(chroma - 1),
            };
            let Some((plane, first, step)) = place else { break };
            let samples = Samples::of(frame, component);
            let width = self.0[plane].size().width;
            if !samples.has(width / step) {
                return false;
            }
            for (to, from) in self.0[plane].data_mut().chunks_exact_mut(width).zip(samples.rows()) {
                samples.copy(from, &mut to[first..], step);
            }
        }
        true
    }

    fn fill_with_rgb(&mut self, frame: &MappedFrame, width: usize) -> bool {
        let [red, green, blue] = [0, 1, 2].map(|component| Samples::of(frame, component));
        if ![&red, &green, &blue].iter().all(|samples| samples.has(width)) {
            return false;
        }
        let [luma, cb, cr] = &mut self.0[..] else { unreachable!("planes for RGB are three") };
        let to = luma.data_mut().chunks_exact_mut(width);
        let to = to.zip(cb.data_mut().chunks_exact_mut(width)).zip(cr.data_mut().chunks_exact_mut(width));
        let from = red.rows().zip(green.rows()).zip(blue.rows());
        for (((luma, cb), cr), ((reds, greens), blues)) in to.zip(from) {
            let pixels = luma.iter_mut().zip(cb).zip(cr).enumerate();
            for (x, ((luma, cb), cr)) in pixels {
                let of = |row: &[u8], samples: &Samples<'_>| row[samples.first + x * samples.step];
                let rgb = [of(reds, &red), of(greens, &green), of(blues, &blue)];
                [*luma, *cb, *cr] = colour::of_rgb(rgb);
            }
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::sync::Arc;

    use super::super::picture::{Mapper, describe};
    use super::*;

    /// Odd, and not divided by the distance of any chroma samples.
    const SIZE: Size = Size::new(51, 37);
    const PADDING: i32 = 24;

    /// A buffer of bytes that look random, with padded rows, and its layout.
    fn buffer(name: &str, seed: u32) -> (gst::Buffer, gst_video::VideoInfo) {
        let format = name.parse::<gst_video::VideoFormat>().unwrap();
        let (width, height) = (SIZE.width as u32, SIZE.height as u32);
        let info = gst_video::VideoInfo::builder(format, width, height).build().unwrap();
        let strides: Vec<i32> = info.stride().iter().map(|stride| stride + PADDING).collect();
        let rows = |plane: usize| {
            let component = info.format_info().plane().iter().position(|&of| of as usize == plane).unwrap();
            info.comp_height(component as u8) as usize
        };
        let mut offsets = Vec::new();
        let mut total = 0;
        for (plane, stride) in strides.iter().enumerate() {
            offsets.push(total);
            total += *stride as usize * rows(plane);
        }
        let mut state = seed;
        let bytes = (0..total).map(|_| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 24) as u8
        });
        let mut buffer = gst::Buffer::from_mut_slice(bytes.collect::<Vec<_>>());
        let writable = buffer.get_mut().unwrap();
        let flags = gst_video::VideoFrameFlags::empty();
        gst_video::VideoMeta::add_full(writable, flags, format, width, height, &offsets, &strides).unwrap();
        (buffer, info)
    }

    /// A row's pixels as GStreamer unpacks them, the upper 8 bits of each: alpha, and three components.
    fn unpacked(frame: &MappedFrame, y: usize) -> Vec<[u8; 4]> {
        let info = frame.format_info();
        let to = gst_video::VideoFormatInfo::from_format(info.unpack_format());
        let bytes = to.bits() as usize / 8;
        let mut line = vec![0; 4 * bytes * (SIZE.width + 8)];
        // From this row of each plane on, since the binding's check of lengths forgets that some have fewer.
        let from_row = |plane: u32| {
            let component = info.plane().iter().position(|&of| of == plane).unwrap();
            let stride = frame.plane_stride()[plane as usize] as usize;
            &frame.plane_data(plane).unwrap()[(y >> info.h_sub()[component]) * stride..]
        };
        let planes: Vec<_> = (0..info.n_planes()).map(from_row).collect();
        let none = gst_video::VideoPackFlags::empty();
        info.unpack(none, &mut line, &planes, frame.plane_stride(), 0, 0, SIZE.width as i32);
        // Samples of 16 bits are the machine's own numbers.
        let upper = if cfg!(target_endian = "little") { bytes - 1 } else { 0 };
        let pixels = line.chunks_exact(4 * bytes).take(SIZE.width);
        pixels.map(|pixel| [0, 1, 2, 3].map(|n| pixel[n * bytes + upper])).collect()
    }

    #[test]
    fn planes_are_made_of_the_samples_that_gstreamer_unpacks_whatever_the_stride() {
        gst::init().unwrap();
        let (mut mapper, mut wrong) = (Mapper::default(), BTreeMap::new());
        for (seed, (name, planes)) in (1..).zip(GATHERED) {
            let (buffer, info) = buffer(name, seed);
            let (_, format) = describe(&info.to_caps().unwrap()).unwrap();
            assert_eq!((format.pixels.name, format.size), (planes, SIZE), "{name}");
            let picture = mapper.picture(buffer.clone(), &info, &format).expect(name);
            let frame = MappedFrame::from_buffer_readable(buffer, &info).unwrap();
            for y in 0..SIZE.height {
                for (x, [_, pixel @ ..]) in unpacked(&frame, y).into_iter().enumerate() {
                    let [luma, chroma @ ..] = if info.is_rgb() { colour::of_rgb(pixel) } else { pixel };
                    // Each pixel is unpacked with the chroma sample that it lies on.
                    let (column, row) = (x >> format.pixels.x_shift, y >> format.pixels.y_shift);
                    let sample = |component| {
                        let (plane, first, step) = format.pixels.chroma_samples(component)?;
                        Some(picture.plane(plane).row(row)[first + step * column])
                    };
                    let expected = [0, 1].map(|component| sample(component).map(|_| chroma[component]));
                    let made = (picture.plane(0).row(y)[x], [0, 1].map(sample));
                    if made != (luma, expected) {
                        wrong.entry(name).or_insert((x, y, made, pixel));
                    }
                }
            }
        }
        assert!(wrong.is_empty(), "{wrong:?}");
    }

    #[test]
    fn rows_from_the_bottom_to_the_top_and_shorter_ones_than_the_picture_are_none() {
        gst::init().unwrap();
        let mut mapper = Mapper::default();
        for name in ["GRAY8", "YUY2", "RGB"] {
            let format = name.parse::<gst_video::VideoFormat>().unwrap();
            let (width, height) = (SIZE.width as u32, SIZE.height as u32);
            let info = gst_video::VideoInfo::builder(format, width, height).build().unwrap();
            let stride = info.stride()[0];
            let last = info.size() - stride as usize;
            let shorter = SIZE.width as i32 - 1;
            for (offset, stride) in [(last, -stride), (0, shorter)] {
                let mut buffer = gst::Buffer::with_size(info.size()).unwrap();
                let flags = gst_video::VideoFrameFlags::empty();
                let writable = buffer.get_mut().unwrap();
                gst_video::VideoMeta::add_full(writable, flags, format, width, height, &[offset], &[stride])
                    .unwrap();
                let (_, format) = describe(&info.to_caps().unwrap()).unwrap();
                assert!(mapper.picture(buffer, &info, &format).is_none(), "{name}, stride {stride}");
            }
        }
    }

    #[test]
    fn memory_of_planes_is_used_again() {
        gst::init().unwrap();
        let mut mapper = Mapper::default();
        let mut address = |seed: u32| {
            let (buffer, info) = buffer("YUY2", seed);
            let (_, format) = describe(&info.to_caps().unwrap()).unwrap();
            let picture: Arc<dyn Picture> = mapper.picture(buffer, &info, &format).unwrap();
            picture.plane(0).first_byte() as usize
        };
        assert_eq!(address(1), address(2));
    }
}
