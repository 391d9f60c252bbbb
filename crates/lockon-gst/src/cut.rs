//! Finds where a video file can be cut: key frames, with which a decoder can begin. Nothing is decoded.

use std::path::Path;
use std::sync::Mutex;
use std::time::Duration;

use gst::prelude::*;

use crate::launch;
use crate::source::presentation_time;
use lockon_core::error::{Error, Result};
use lockon_core::locks::lock;

/// How long the demuxer may take to find one place.
const PATIENCE: Duration = Duration::from_secs(30);

/// Returns the times of key frames in nanoseconds, in order and without repeats: for each place that `places`
/// returns for a video of that length, the last key frame that is not after it. The video's beginning is left
/// out.
///
/// # Errors
/// `File` if it cannot be read; `NoVideo` if its length or the places of its key frames are not known.
pub fn key_frames(path: &Path, places: impl FnOnce(u64) -> Vec<u64>) -> Result<Vec<u64>> {
    launch::init()?;
    path.metadata().map_err(Error::file("read", path))?;
    let failed = |reason: &str| Error::NoVideo {
        input: path.display().to_string(),
        reason: format!("it cannot be cut into segments: {reason}"),
    };
    let reading = Reading::open(path).ok_or_else(|| failed("its video stream was not found"))?;
    let length = reading.pipeline.query_duration::<gst::ClockTime>().filter(|length| !length.is_zero());
    let length = length.ok_or_else(|| failed("its length is unknown"))?;
    let mut found = Vec::new();
    for place in places(length.nseconds()) {
        let at = reading.key_frame(place).ok_or_else(|| failed("its key frames are unknown"))?;
        if at > found.last().copied().unwrap_or(0) {
            found.push(at);
        }
    }
    Ok(found)
}

/// A file up to its first video stream's packets.
struct Reading {
    pipeline: gst::Pipeline,
    sink: gst_app::AppSink,
}

impl Reading {
    fn open(path: &Path) -> Option<Self> {
        let make = |name| gst::ElementFactory::make(name).build().ok();
        let (input, parser) = (make("filesrc")?, make("parsebin")?);
        input.set_property("location", path);
        let sink = gst_app::AppSink::builder().sync(false).max_buffers(1).build();
        let pipeline = gst::Pipeline::new();
        pipeline.add_many([&input, &parser, sink.upcast_ref()]).ok()?;
        input.link(&parser).ok()?;
        let target = Mutex::new(sink.static_pad("sink"));
        let weak = pipeline.downgrade();
        parser.connect_pad_added(move |_, pad| {
            let caps = pad.current_caps().unwrap_or_else(|| pad.query_caps(None));
            let is_video = caps.structure(0).is_some_and(|it| it.name().starts_with("video/"));
            let mut free = lock(&target);
            if is_video && let Some(sink) = free.take() {
                let _ = pad.link(&sink);
                return;
            }
            drop(free);
            // Other streams flow into a sink that drops them.
            if let (Some(pipeline), Ok(nothing)) =
                (weak.upgrade(), gst::ElementFactory::make("fakesink").build())
            {
                nothing.set_property("async", false);
                let is_added = pipeline.add(&nothing).is_ok() && nothing.sync_state_with_parent().is_ok();
                if let Some(sink) = nothing.static_pad("sink").filter(|_| is_added) {
                    let _ = pad.link(&sink);
                }
            }
        });
        let reading = Self { pipeline, sink };
        reading.pipeline.set_state(gst::State::Playing).ok()?;
        reading.packet().map(|_| reading)
    }

    /// Returns the next packet. The sink has room for one, and a packet from before a seek is dropped.
    fn packet(&self) -> Option<gst::Sample> {
        self.sink.try_pull_sample(gst::ClockTime::try_from(PATIENCE).ok())
    }

    /// The time of the last key frame that is not after a place.
    fn key_frame(&self, ns: u64) -> Option<u64> {
        let flags = gst::SeekFlags::FLUSH | gst::SeekFlags::KEY_UNIT | gst::SeekFlags::SNAP_BEFORE;
        self.pipeline.seek_simple(flags, gst::ClockTime::from_nseconds(ns)).ok()?;
        let sample = self.packet()?;
        let buffer = sample.buffer()?;
        let is_key_frame = !buffer.flags().contains(gst::BufferFlags::DELTA_UNIT);
        presentation_time(sample.segment(), buffer.pts(), false).filter(|_| is_key_frame)
    }
}

impl Drop for Reading {
    fn drop(&mut self) {
        let _ = self.pipeline.set_state(gst::State::Null);
    }
}
