//! From caps to a format, and from a buffer to a picture where it lies.

use std::sync::Arc;

use gst_video::prelude::*;

use super::errors::failure;
use lockon_core::error::Result;
use lockon_core::frame::{Picture, PixelFormat, PlaneRef, Size, VideoFormat};

/// Most pixels of a side of a picture.
pub const MAX_SIDE: usize = u16::MAX as usize;

/// What caps say, for GStreamer and for us.
///
/// # Errors
/// `Pipeline` if they are not of raw video, of a format that has no 8-bit luma plane, or of pictures of a
/// size that none has.
pub fn describe(caps: &gst::CapsRef) -> Result<(gst_video::VideoInfo, Arc<VideoFormat>)> {
    let info = gst_video::VideoInfo::from_caps(caps).map_err(|_| failure(format!("not video: {caps}")))?;
    let pixels = PixelFormat::from_name(info.format().to_str())
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
    Some(Arc::new(MappedPicture { pixels: format.pixels, size: format.size, frame }))
}

/// A decoder's buffer, mapped for reading for as long as this lives.
struct MappedPicture {
    pixels: PixelFormat,
    size: Size,
    frame: gst_video::VideoFrame<gst_video::video_frame::Readable>,
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
