//! From caps to a format, and from a buffer to a picture where it lies.

use std::sync::Arc;

use gst_video::prelude::*;

use super::errors::failure;
use lockon_core::error::Result;
use lockon_core::frame::{Picture, PixelFormat, Plane, PlaneRef, Size, VideoFormat};

/// Most pixels of a side of a picture.
pub const MAX_SIDE: usize = u16::MAX as usize;

/// Formats of two planes whose samples are 16 bits, the upper of which count: hardware decoders make them of
/// video with more than 8 bits. The upper bytes are an NV12 picture, which is what `videoconvert dither=none`
/// makes of them.
const WIDE: [&str; 3] = ["P010_10LE", "P012_LE", "P016_LE"];

/// The format that pictures have here whose caps name this one; `None` if that has no luma of 8 bits, nor one
/// that is made of it on the way.
pub(super) fn pixels(name: &str) -> Option<PixelFormat> {
    PixelFormat::from_name(if WIDE.contains(&name) { "NV12" } else { name })
}

/// What caps say, for GStreamer and for us.
///
/// # Errors
/// `Pipeline` if they are not of raw video, of a format that has no luma plane whose upper 8 bits can be
/// taken, or of pictures of a size that none has.
pub fn describe(caps: &gst::CapsRef) -> Result<(gst_video::VideoInfo, Arc<VideoFormat>)> {
    let info = gst_video::VideoInfo::from_caps(caps).map_err(|_| failure(format!("not video: {caps}")))?;
    let pixels = pixels(info.format().to_str())
        .ok_or_else(|| failure(format!("{} has no 8-bit luma plane", info.format())))?;
    let size = Size::new(info.width() as usize, info.height() as usize);
    // Caps can say what no picture is: that it is empty, or, as GStreamer 1.22 passes on, less than that.
    if ![size.width, size.height].iter().all(|side| (1..=MAX_SIDE).contains(side)) {
        return Err(failure(format!("pictures have 1 to {MAX_SIDE} pixels on each side: {caps}")));
    }
    // Fractions below zero mean nothing.
    let positive = |n: i32, d: i32, otherwise| if n > 0 && d > 0 { (n, d) } else { otherwise };
    let (fps, par) = (info.fps(), info.par());
    let colorimetry = caps.structure(0).and_then(|s| s.get::<String>("colorimetry").ok());
    let format = VideoFormat {
        size,
        pixels,
        frame_rate: positive(fps.numer(), fps.denom(), (0, 1)),
        pixel_aspect: positive(par.numer(), par.denom(), (1, 1)),
        colorimetry,
    };
    Ok((info, Arc::new(format)))
}

/// A buffer of that format, mapped for reading where it lies, for as long as the picture is held; `None` if
/// it is not laid out as `info` says.
pub fn picture(
    buffer: gst::Buffer,
    info: &gst_video::VideoInfo,
    format: &VideoFormat,
) -> Option<Arc<dyn Picture>> {
    let frame = gst_video::VideoFrame::from_buffer_readable(buffer, info).ok()?;
    let (pixels, size) = (format.pixels, format.size);
    if info.comp_depth(0) > 8 {
        return Some(Arc::new(NarrowedPicture::new(&frame, pixels, size)));
    }
    Some(Arc::new(MappedPicture { pixels, size, frame }))
}

type MappedFrame = gst_video::VideoFrame<gst_video::video_frame::Readable>;

/// The upper bytes of a picture whose samples are 16 bits.
struct NarrowedPicture(Vec<Plane>);

impl NarrowedPicture {
    fn new(frame: &MappedFrame, pixels: PixelFormat, size: Size) -> Self {
        let plane = |index: usize| {
            let size = pixels.plane_size(index, size);
            let mut narrow = Plane::new(size);
            let data = frame.plane_data(index as u32).expect("planes are those of the format");
            let wide = data.chunks(frame.plane_stride()[index] as usize);
            for (narrow, wide) in narrow.data_mut().chunks_exact_mut(size.width).zip(wide) {
                for (upper, sample) in narrow.iter_mut().zip(wide.as_chunks::<2>().0) {
                    *upper = sample[1];
                }
            }
            narrow
        };
        Self((0..pixels.planes()).map(plane).collect())
    }
}

impl Picture for NarrowedPicture {
    fn plane(&self, index: usize) -> PlaneRef<'_> {
        self.0[index].as_ref()
    }
}

/// A decoder's buffer, mapped for reading for as long as this lives.
struct MappedPicture {
    pixels: PixelFormat,
    size: Size,
    frame: MappedFrame,
}

impl Picture for MappedPicture {
    fn plane(&self, index: usize) -> PlaneRef<'_> {
        let data =
            self.frame.plane_data(index as u32).expect("planes of a format are fewer than its picture has");
        // Strides are negative in bottom-up pictures only, which no format with a luma plane has.
        let stride = self.frame.plane_stride()[index] as usize;
        PlaneRef::new(data, self.pixels.plane_size(index, self.size), stride)
    }
}
