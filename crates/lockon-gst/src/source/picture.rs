//! Converts caps to a format, and a buffer to a picture in place.

use std::sync::Arc;

use gst_video::prelude::*;

use super::errors::failure;
use super::gather::{self, Gathered};
use crate::crop;
use lockon_core::error::Result;
use lockon_core::frame::{Picture, PixelFormat, PlaneRef, Size, VideoFormat};
use lockon_core::recycle::Recycler;

/// Maximum pixels of a side of a picture.
pub const MAX_SIDE: usize = u16::MAX as usize;

/// The format that pictures have here whose caps name this one; `None` if that has no luma of 8 bits, nor one
/// that is made of it on the way.
pub(super) fn pixels(name: &str) -> Option<PixelFormat> {
    PixelFormat::from_name(name).or_else(|| gather::planes_of(name))
}

/// GStreamer's names of the formats that pictures are taken in: first formats whose planes are taken where
/// they lie, then formats whose planes are made by a copy.
pub fn formats() -> impl Iterator<Item = &'static str> {
    let made = gather::GATHERED.iter().map(|(name, _)| *name);
    PixelFormat::ALL.into_iter().map(|format| format.name).chain(made)
}

/// True if a picture's planes are not the buffer's own, but a copy.
pub fn is_gathered(info: &gst_video::VideoInfo) -> bool {
    PixelFormat::from_name(info.format().to_str()).is_none()
}

/// Parses caps, for GStreamer and for lockon.
///
/// # Errors
/// `Pipeline` if they are not of raw video, or of a format without luma that can be taken as 8 bits, or of
/// pictures of an impossible size.
pub fn describe(caps: &gst::CapsRef) -> Result<(gst_video::VideoInfo, Arc<VideoFormat>)> {
    let info = gst_video::VideoInfo::from_caps(caps).map_err(|_| failure(format!("not video: {caps}")))?;
    let pixels = pixels(info.format().to_str())
        .ok_or_else(|| failure(format!("{} has no luma that can be taken", info.format())))?;
    let size = Size::new(info.width() as usize, info.height() as usize);
    // Caps can describe impossible pictures: empty ones or, as GStreamer 1.22 passes on, negative sizes.
    if ![size.width, size.height].iter().all(|side| (1..=MAX_SIDE).contains(side)) {
        return Err(failure(format!("pictures have 1 to {MAX_SIDE} pixels on each side: {caps}")));
    }
    // Fractions below zero mean nothing.
    let positive = |n: i32, d: i32, otherwise| if n > 0 && d > 0 { (n, d) } else { otherwise };
    let (fps, par) = (info.fps(), info.par());
    let said = || caps.structure(0).and_then(|s| s.get::<String>("colorimetry").ok());
    // Luma made of RGB has full range and the weights of BT.601.
    let colorimetry = if info.is_rgb() { Some("1:4:0:0".into()) } else { said() };
    let format = VideoFormat {
        size,
        pixels,
        frame_rate: positive(fps.numer(), fps.denom(), (0, 1)),
        pixel_aspect: positive(par.numer(), par.denom(), (1, 1)),
        colorimetry,
    };
    Ok((info, Arc::new(format)))
}

/// Makes pictures from buffers.
#[derive(Default)]
pub struct Mapper {
    gathered: Recycler<Gathered>,
}

impl Mapper {
    /// A buffer of that format, mapped for reading where it lies, for as long as the picture is held; or
    /// planes that are made of it, which hold nothing of it. For a buffer with a crop, the visible part.
    /// `None` if its crop is not of the size in the caps, its rows lie from the bottom to the
    /// top, are shorter than the picture or end behind its memory, or planes cannot be made of them.
    pub fn picture(
        &mut self,
        buffer: gst::Buffer,
        info: &gst_video::VideoInfo,
        format: &VideoFormat,
    ) -> Option<Arc<dyn Picture>> {
        let buffer = crop::uncropped(buffer, info)?;
        let frame = gst_video::VideoFrame::from_buffer_readable(buffer, info).ok()?;
        // Rows that lie from the bottom to the top are in no caps; only a buffer's own description has such.
        if frame.plane_stride().iter().any(|stride| *stride <= 0) {
            return None;
        }
        let (pixels, size) = (format.pixels, format.size);
        if is_gathered(info) {
            let mut is_whole = false;
            let gathered = self.gathered.share(|picture| is_whole = picture.fill(&frame, pixels, size));
            return is_whole.then_some(gathered as _);
        }
        // So may rows that are shorter than the picture.
        let is_whole = (0..pixels.planes()).all(|index| {
            let bytes = frame.plane_data(index as u32).map_or(0, <[u8]>::len);
            PlaneRef::fits(bytes, pixels.plane_size(index, size), frame.plane_stride()[index] as usize)
        });
        is_whole.then(|| Arc::new(MappedPicture { pixels, size, frame }) as _)
    }
}

pub(super) type MappedFrame = gst_video::VideoFrame<gst_video::video_frame::Readable>;

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
        let stride = self.frame.plane_stride()[index] as usize;
        PlaneRef::new(data, self.pixels.plane_size(index, self.size), stride)
    }
}
