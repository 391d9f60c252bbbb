//! JPEGs of planes, by GStreamer's `jpegenc` and so by libjpeg-turbo.
//!
//! The element's pads are linked to ours, so it runs in the calling thread, and no other thread must wake.

use std::time::Duration;

use crossbeam_channel::{Receiver, bounded};
use gst::prelude::*;
use gst_video::prelude::*;

use super::launch::{Launch, Running};
use lockon_core::error::{Error, Result};
use lockon_core::frame::{PlaneRef, Size};

/// Columns and rows of luma for one JPEG block of chroma.
const BLOCK: usize = 16;

/// Longest side of a JPEG.
pub const MOST_SIDE: usize = 65_500;

/// Makes pictures of any size, one after the other.
pub struct Encoder {
    running: Running,
    /// Our pads, before the element and behind it.
    source: gst::Pad,
    _sink: gst::Pad,
    /// The encoded pictures.
    made: Receiver<gst::Buffer>,
    /// For pictures of one format and size.
    made_for: Option<(gst_video::VideoInfo, gst_video::VideoBufferPool)>,
    pictures: u64,
}

impl Encoder {
    /// Returns an encoder of that quality, from 0 to 100.
    ///
    /// # Errors
    /// `Pipeline` or `MissingElement` if there is no `jpegenc`.
    pub fn new(quality: u8) -> Result<Self> {
        // libjpeg-turbo has `islow` in AVX2 and `ifast` in SSE2 alone: 1.58 and 1.70 ms a picture
        // (docs/lab/page.md), and `islow` is the more accurate one.
        let text = format!("jpegenc name=encoder quality={quality} idct-method=islow");
        let launch = Launch::new("jpeg", &text);
        let running = Running::new(launch.build()?);
        let element = launch.element(running.pipeline(), "encoder")?;
        let (sender, made) = bounded(1);
        let source = gst::Pad::builder(gst::PadDirection::Src).name("planes").build();
        // Without a template it would accept only pictures like the first.
        let any = gst::PadTemplate::new(
            "pictures",
            gst::PadDirection::Sink,
            gst::PadPresence::Always,
            &gst::Caps::new_any(),
        )
        .map_err(|error| failed(error.message.to_string()))?;
        let sink = gst::Pad::builder_from_template(&any)
            .chain_function(move |_, _, buffer| {
                sender.try_send(buffer).map(|()| gst::FlowSuccess::Ok).map_err(|_| gst::FlowError::Error)
            })
            // No later element needs the events.
            .event_function(|_, _, _| true)
            .build();
        let is_linked = element.static_pad("sink").is_some_and(|pad| source.link(&pad).is_ok())
            && element.static_pad("src").is_some_and(|pad| pad.link(&sink).is_ok())
            && [&source, &sink].into_iter().all(|pad| pad.set_active(true).is_ok());
        if !is_linked {
            return Err(launch.fault("`jpegenc` has other pads than are known"));
        }
        running.set_state(gst::State::Playing)?;
        Ok(Self { running, source, _sink: sink, made, made_for: None, pictures: 0 })
    }

    /// The picture of luma alone, or of luma, Cb and Cr, with half the samples in both directions (rounded
    /// up), as JPEG has them: BT.601 at full range.
    ///
    /// # Errors
    /// `Pipeline` if it cannot be made.
    pub fn encode(&mut self, planes: &[PlaneRef<'_>]) -> Result<Vec<u8>> {
        // An error may have left a picture there.
        while self.made.try_recv().is_ok() {}
        let buffer = self.buffer(planes).map_err(|error| failed(error.message.to_string()))?;
        if let Err(error) = self.source.push(buffer) {
            self.running.wait(Duration::ZERO)?;
            return Err(failed(error.to_string()));
        }
        let buffer = self.made.try_recv().map_err(|_| failed("no picture comes".into()))?;
        let bytes = buffer.map_readable().map_err(|error| failed(error.message.to_string()))?;
        Ok(bytes.to_vec())
    }

    /// Sends the encoder the format of the pictures to come, and where their planes lie.
    fn make_for(
        &self,
        format: gst_video::VideoFormat,
        width: usize,
        height: usize,
    ) -> Result<(gst_video::VideoInfo, gst_video::VideoBufferPool), gst::glib::BoolError> {
        let info = gst_video::VideoInfo::builder(format, width as u32, height as u32);
        let info = info.fps(gst::Fraction::new(0, 1)).build()?;
        let caps = info.to_caps()?;
        if !self.source.peer_query_accept_caps(&caps) {
            return Err(gst::glib::bool_error!("it does not take {caps}"));
        }
        // The push of the buffer after an event shows whether the event was accepted.
        let is_first = self.pictures == 0;
        let segment = || gst::event::Segment::new(&gst::FormattedSegment::<gst::ClockTime>::new());
        let start = is_first.then(|| gst::event::StreamStart::new("planes"));
        for event in [start, Some(gst::event::Caps::new(&caps)), is_first.then(segment)].into_iter().flatten()
        {
            self.source.push_event(event);
        }
        // Buffers are reused: the system must clear new memory first.
        let pool = gst_video::VideoBufferPool::new();
        let mut config = pool.config();
        config.set_params(Some(&caps), info.size() as u32, 0, 0);
        // jpegenc also encodes the bytes after the last column, up to the end of its block.
        config.add_option(gst_video::BUFFER_POOL_OPTION_VIDEO_META);
        config.add_option(gst_video::BUFFER_POOL_OPTION_VIDEO_ALIGNMENT);
        let [right, bottom] = [width, height].map(|side| (side.next_multiple_of(BLOCK) - side) as u32);
        config.set_video_alignment(&gst_video::VideoAlignment::new(0, bottom, 0, right, &[0; 4]));
        pool.set_config(config)?;
        pool.set_active(true)?;
        Ok((info, pool))
    }

    fn buffer(&mut self, planes: &[PlaneRef<'_>]) -> Result<gst::Buffer, gst::glib::BoolError> {
        let is_grey = planes.len() == 1;
        let format = if is_grey { gst_video::VideoFormat::Gray8 } else { gst_video::VideoFormat::I420 };
        let Size { width, height } = planes[0].size();
        let is_same = |(info, _): &(gst_video::VideoInfo, _)| {
            (info.format(), info.width(), info.height()) == (format, width as u32, height as u32)
        };
        let made = self.made_for.take().filter(is_same);
        let (info, pool) = made.map_or_else(|| self.make_for(format, width, height), Ok)?;
        let acquired = pool.acquire_buffer(None);
        let mut buffer = acquired.map_err(|error| gst::glib::bool_error!("no buffer: {error}"))?;
        let writable = buffer.get_mut().expect("nobody else has it yet");
        writable.set_pts(gst::ClockTime::from_nseconds(self.pictures));
        self.pictures += 1;
        let mut frame = gst_video::VideoFrameRef::from_buffer_ref_writable(writable, &info)?;
        for (index, plane) in planes.iter().enumerate() {
            let stride = frame.plane_stride()[index] as usize;
            let rows = frame.plane_data_mut(index as u32)?.chunks_mut(stride);
            for (to, row) in rows.zip(plane.rows()) {
                let (to, behind) = to.split_at_mut(row.len());
                to.copy_from_slice(row);
                // Filled with the last sample: an edge here could ring.
                behind.fill(row.last().copied().unwrap_or_default());
            }
        }
        drop(frame);
        self.made_for = Some((info, pool));
        Ok(buffer)
    }
}

fn failed(message: String) -> Error {
    Error::Pipeline { element: "jpegenc".into(), message, debug: String::new() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::launch;
    use lockon_core::frame::Plane;

    #[test]
    fn pictures_of_all_kinds_and_sizes_come_one_after_the_other() {
        launch::init().unwrap();
        let mut encoder = Encoder::new(90).unwrap();
        let plane = |size: Size, value: u8| Plane::from_vec(vec![value; size.area()], size);
        for (width, height) in [(64, 48), (64, 48), (1, 1), (17, 3), (1280, 720)] {
            let (size, half) = (Size::new(width, height), Size::new(width.div_ceil(2), height.div_ceil(2)));
            let grey = encoder.encode(&[plane(size, 200).as_ref()]).unwrap();
            let grey = image::load_from_memory(&grey).unwrap();
            assert_eq!((grey.width() as usize, grey.height() as usize), (width, height));
            assert!(grey.into_luma8().pixels().all(|pixel| pixel.0[0].abs_diff(200) <= 2));
            // Red.
            let planes = [plane(size, 76), plane(half, 85), plane(half, 255)];
            let red = encoder.encode(&planes.each_ref().map(Plane::as_ref)).unwrap();
            let red = image::load_from_memory(&red).unwrap().into_rgb8();
            let is_red = |[r, g, b]: [u8; 3]| r > 245 && g < 12 && b < 12;
            assert!(red.pixels().all(|pixel| is_red(pixel.0)), "{width}x{height}: {:?}", red.get_pixel(0, 0));
        }
    }
}
