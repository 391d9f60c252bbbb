//! Buffers that show a part of the picture in their memory (`GstVideoCropMeta`): decoders and `videocrop`
//! send them if downstream offers to accept them. Caps have the size of the part.

use gst_video::prelude::*;

/// Returns the buffer with a `GstVideoMeta` of the part that it shows, and without a crop. Other buffers come
/// back unchanged.
///
/// Memory is shared where the part can be described in place, and copied where not: pairs of chroma samples
/// that the crop would split, or a last row that would reach behind the memory. `None` if the crop is not of
/// the size in the caps, does not lie in the picture, or lies in memory that is not described.
pub fn uncropped(buffer: gst::Buffer, info: &gst_video::VideoInfo) -> Option<gst::Buffer> {
    let Some(rect) = buffer.meta::<gst_video::VideoCropMeta>().map(|crop| crop.rect()) else {
        return Some(buffer);
    };
    let (x, y, width, height) = rect;
    let shown = (info.width(), info.height());
    let whole = buffer.meta::<gst_video::VideoMeta>().map_or(shown, |meta| (meta.width(), meta.height()));
    if whole == shown {
        // The memory is what caps describe. The crop is meant for a display.
        return Some(buffer);
    }
    let fits = |start: u32, length: u32, end: u32| start.checked_add(length).is_some_and(|to| to <= end);
    if (width, height) != shown || !fits(x, width, whole.0) || !fits(y, height, whole.1) {
        return None;
    }
    let part = Part { x: x as usize, y: y as usize, info };
    part.described(&buffer).or_else(|| part.copied(&buffer))
}

/// The part of a picture that is shown. Its size is that of `info`.
struct Part<'a> {
    x: usize,
    y: usize,
    info: &'a gst_video::VideoInfo,
}

/// How the samples of one component lie in a plane.
struct Samples {
    plane: usize,
    /// Bytes from one sample to the next, and bytes of a sample.
    step: usize,
    bytes: usize,
    first: usize,
    /// Samples and rows before the part, and in it.
    skipped: (usize, usize),
    shown: (usize, usize),
}

impl Part<'_> {
    fn samples(&self) -> impl Iterator<Item = Samples> {
        let format = self.info.format_info();
        (0..format.n_components() as usize).map(move |component| {
            let (across, down) = (format.w_sub()[component], format.h_sub()[component]);
            let size = (self.info.width() as usize, self.info.height() as usize);
            Samples {
                plane: format.plane()[component] as usize,
                step: format.pixel_stride()[component] as usize,
                bytes: (format.depth()[component] + format.shift()[component]).div_ceil(8) as usize,
                first: format.poffset()[component] as usize,
                skipped: (self.x >> across, self.y >> down),
                shown: (size.0.div_ceil(1 << across), size.1.div_ceil(1 << down)),
            }
        })
    }

    /// Bytes before the part in a row of a plane, and rows above it; `None` if its components do not begin
    /// together.
    fn origin(&self, plane: usize) -> Option<(usize, usize)> {
        let mut origins = self
            .samples()
            .filter(|samples| samples.plane == plane)
            .map(|samples| (samples.skipped.0 * samples.step, samples.skipped.1));
        let first = origins.next()?;
        origins.all(|origin| origin == first).then_some(first)
    }

    /// A buffer that shares the memory.
    fn described(&self, buffer: &gst::BufferRef) -> Option<gst::Buffer> {
        let meta = buffer.meta::<gst_video::VideoMeta>()?;
        let (mut offsets, strides) = (meta.offset().to_vec(), meta.stride().to_vec());
        for (plane, (offset, &stride)) in offsets.iter_mut().zip(&strides).enumerate() {
            let (left, above) = self.origin(plane)?;
            let stride = usize::try_from(stride).ok()?;
            *offset += above * stride + left;
            let rows = self.samples().filter(|samples| samples.plane == plane).map(|s| s.shown.1).max()?;
            // GStreamer assumes that every row, also the last one, has as many bytes as the stride.
            if rows * stride > room_behind(buffer, *offset) {
                return None;
            }
        }
        let (flags, format) = (meta.video_frame_flags(), meta.format());
        let mut described = copy_without_layout(buffer, gst::BufferCopyFlags::MEMORY)?;
        let writable = described.get_mut()?;
        gst_video::VideoMeta::add_full(
            writable,
            flags,
            format,
            self.info.width(),
            self.info.height(),
            &offsets,
            &strides,
        )
        .ok()?;
        Some(described)
    }

    /// A buffer with a copy of the part, laid out as caps say.
    fn copied(&self, buffer: &gst::Buffer) -> Option<gst::Buffer> {
        let from = gst_video::VideoFrame::from_buffer_readable(buffer.clone(), self.info).ok()?;
        let mut pixels = gst::Buffer::with_size(self.info.size()).ok()?;
        {
            let mut to =
                gst_video::VideoFrameRef::from_buffer_ref_writable(pixels.get_mut()?, self.info).ok()?;
            let strides: Vec<_> = to.plane_stride().to_vec();
            let planes = to.planes_data_mut();
            for (index, (plane, stride)) in planes.into_iter().zip(strides).enumerate() {
                let stride = usize::try_from(stride).ok()?;
                let from_stride = usize::try_from(from.plane_stride()[index]).ok()?;
                let source = from.plane_data(index as u32).ok()?;
                let rows = |skipped: usize| source.chunks(from_stride).skip(skipped);
                if let Some((left, above)) = self.origin(index) {
                    let samples = || self.samples().filter(|samples| samples.plane == index);
                    let length = samples().map(|samples| samples.shown.0 * samples.step).max()?;
                    let count = samples().map(|samples| samples.shown.1).max()?;
                    for (to, from) in plane.chunks_mut(stride).zip(rows(above)).take(count) {
                        to.get_mut(..length)?.copy_from_slice(from.get(left..left + length)?);
                    }
                    continue;
                }
                for samples in self.samples().filter(|samples| samples.plane == index) {
                    let Samples { step, bytes, first, skipped, shown, .. } = samples;
                    for (to, from) in plane.chunks_mut(stride).zip(rows(skipped.1)).take(shown.1) {
                        for at in 0..shown.0 {
                            let (to_at, from_at) = (first + at * step, first + (skipped.0 + at) * step);
                            to.get_mut(to_at..to_at + bytes)?
                                .copy_from_slice(from.get(from_at..from_at + bytes)?);
                        }
                    }
                }
            }
        }
        let mut copied = copy_without_layout(buffer, gst::BufferCopyFlags::empty())?;
        copied.get_mut()?.append_memory(pixels.memory(0)?);
        Some(copied)
    }
}

/// A copy of flags, times and metas without the metas of the layout. Not the buffer itself: a pool's buffer
/// must keep them.
fn copy_without_layout(buffer: &gst::BufferRef, more: gst::BufferCopyFlags) -> Option<gst::Buffer> {
    let flags = gst::BufferCopyFlags::FLAGS | gst::BufferCopyFlags::TIMESTAMPS | gst::BufferCopyFlags::META;
    let mut copy = buffer.copy_region(flags | more, ..).ok()?;
    let writable = copy.get_mut()?;
    while let Some(meta) = writable.meta_mut::<gst_video::VideoMeta>() {
        meta.remove().ok()?;
    }
    while let Some(meta) = writable.meta_mut::<gst_video::VideoCropMeta>() {
        meta.remove().ok()?;
    }
    Some(copy)
}

/// Bytes from this place in a buffer to the end of the memory that it lies in.
fn room_behind(buffer: &gst::BufferRef, place: usize) -> usize {
    let mut end = 0;
    for memory in buffer.iter_memories() {
        end += memory.size();
        if place < end {
            return end - place;
        }
    }
    0
}

#[cfg(test)]
mod tests {
    use lockon_core::frame::Size;

    use super::*;
    use crate::source::{self, Mapper};

    const WHOLE: (u32, u32) = (37, 23);

    /// A buffer of any bytes, in rows that are padded by `padding` bytes, and with so many behind the last.
    fn buffer(name: &str, padding: usize, behind: usize) -> (gst::Buffer, gst_video::VideoFormat) {
        let format: gst_video::VideoFormat = name.parse().unwrap();
        let info = gst_video::VideoInfo::builder(format, WHOLE.0, WHOLE.1).build().unwrap();
        let strides: Vec<_> = info.stride().iter().map(|stride| stride + padding as i32).collect();
        let mut offsets = Vec::new();
        let mut end = 5;
        for (plane, stride) in strides.iter().enumerate() {
            offsets.push(end);
            let component = info.format_info().plane().iter().position(|of| *of == plane as u32).unwrap();
            end += *stride as usize * info.comp_height(component as u8) as usize;
        }
        let bytes: Vec<u8> = (0..end + behind).map(|at| (at * 167 + at / 251) as u8).collect();
        let mut buffer = gst::Buffer::from_mut_slice(bytes);
        let flags = gst_video::VideoFrameFlags::empty();
        let writable = buffer.get_mut().unwrap();
        writable.set_pts(gst::ClockTime::from_seconds(3));
        gst_video::VideoMeta::add_full(writable, flags, format, WHOLE.0, WHOLE.1, &offsets, &strides)
            .unwrap();
        (buffer, format)
    }

    #[test]
    fn a_crop_is_the_part_of_the_picture_in_every_format_wherever_it_lies() {
        gst::init().unwrap();
        for name in source::formats() {
            for (x, y, width, height) in [(0, 0, 37, 20), (8, 6, 20, 14), (7, 3, 19, 11), (14, 10, 23, 13)] {
                for behind in [0, 64] {
                    let (mut cropped, format) = buffer(name, 12, behind);
                    let picture = |buffer: gst::Buffer, size: (u32, u32)| {
                        let info = gst_video::VideoInfo::builder(format, size.0, size.1).build().unwrap();
                        let (_, described) = source::describe(&info.to_caps().unwrap()).unwrap();
                        (Mapper::default().picture(buffer, &info, &described).unwrap(), described)
                    };
                    let (whole, described) = picture(cropped.clone(), WHOLE);
                    gst_video::VideoCropMeta::add(cropped.make_mut(), (x, y, width, height));
                    let (part, _) = picture(cropped.clone(), (width, height));
                    for plane in 0..described.pixels.planes() {
                        let (across, down) = match plane {
                            0 => (0, 0),
                            _ => (described.pixels.x_shift, described.pixels.y_shift),
                        };
                        let size = Size::new(width as usize, height as usize);
                        let (rows, per_sample) = (
                            described.pixels.plane_size(plane, size),
                            described.pixels.plane_size(plane, Size::new(1 << across, 1)).width,
                        );
                        let left = (x as usize >> across) * per_sample;
                        for row in 0..rows.height {
                            let wanted = whole.plane(plane).row((y as usize >> down) + row);
                            // Chroma of RGB is made of each pixel's own colour.
                            let wanted = &wanted[left..left + rows.width];
                            assert_eq!(part.plane(plane).row(row), wanted, "{name} {x},{y}: plane {plane}");
                        }
                    }
                    let info = gst_video::VideoInfo::builder(format, width, height).build().unwrap();
                    let uncropped = uncropped(cropped, &info).unwrap();
                    assert_eq!(uncropped.pts(), Some(gst::ClockTime::from_seconds(3)));
                    assert!(uncropped.meta::<gst_video::VideoCropMeta>().is_none());
                }
            }
        }
    }

    #[test]
    fn memory_is_shared_where_the_part_can_be_described() {
        gst::init().unwrap();
        let (mut cropped, format) = buffer("NV12", 12, 64);
        gst_video::VideoCropMeta::add(cropped.make_mut(), (8, 6, 20, 14));
        let info = gst_video::VideoInfo::builder(format, 20, 14).build().unwrap();
        let address = |buffer: &gst::BufferRef| buffer.peek_memory(0).as_ptr();
        let shown = uncropped(cropped.clone(), &info).unwrap();
        assert_eq!(address(&shown), address(&cropped));
        let meta = shown.meta::<gst_video::VideoMeta>().unwrap();
        assert_eq!((meta.width(), meta.height()), (20, 14));
        assert!(cropped.meta::<gst_video::VideoCropMeta>().is_some(), "other owners see no change");
    }

    #[test]
    fn a_crop_that_is_not_what_caps_say_is_refused_and_one_of_the_whole_picture_ignored() {
        gst::init().unwrap();
        let part = gst_video::VideoInfo::builder(gst_video::VideoFormat::Gray8, 20, 14).build().unwrap();
        for rect in [(0, 0, 19, 14), (18, 0, 20, 14), (0, 10, 20, 14), (u32::MAX, 0, 20, 14)] {
            let (mut cropped, _) = buffer("GRAY8", 0, 0);
            gst_video::VideoCropMeta::add(cropped.make_mut(), rect);
            assert!(uncropped(cropped, &part).is_none(), "{rect:?}");
        }
        let (mut cropped, format) = buffer("GRAY8", 0, 0);
        let whole = gst_video::VideoInfo::builder(format, WHOLE.0, WHOLE.1).build().unwrap();
        gst_video::VideoCropMeta::add(cropped.make_mut(), (3, 4, 20, 14));
        assert!(uncropped(cropped, &whole).is_some());
    }
}
