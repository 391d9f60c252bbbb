//! A part of a video file as a file of its own, without encoding: packets from a key frame on, with the sound
//! that belongs to them.
//!
//! One pipeline reads the file up to packets, another puts them into a container. Between them packets go by
//! hand, in the order of their times, which are counted from the first one.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use gst::prelude::*;

use crate::launch;
use crate::sink::Container;
use crate::source::presentation_time;
use lockon_core::error::{Error, Result};
use lockon_core::text;

/// How long the demuxer may take to find a place, and a muxer to complete its file.
const PATIENCE: Duration = Duration::from_secs(30);

/// A clip that is copied.
#[derive(Debug, Clone)]
pub(crate) struct Job {
    /// Where it is copied from.
    pub(crate) file: PathBuf,
    /// Where it goes.
    pub(crate) to: PathBuf,
    /// It begins with the last key frame that is not after this time...
    pub(crate) from_ns: u64,
    /// ...and ends with the last frame that is not after this one.
    pub(crate) to_ns: u64,
    /// With the first sound of the file, if the container holds it.
    pub(crate) has_sound: bool,
}

/// Packets of one stream of a file.
struct Stream {
    sink: gst_app::AppSink,
    caps: gst::Caps,
}

/// A file up to the packets of its first video stream and its first sound.
struct Reading {
    pipeline: Pipeline,
    video: Stream,
    sound: Option<Stream>,
    file: PathBuf,
    /// Players turn or mirror the picture.
    is_turned: bool,
    /// It has more than one video stream.
    has_several: bool,
}

/// Checks that packets of a file can be copied into files of such a name.
///
/// # Errors
/// The reason.
pub(crate) fn check(file: &Path, to: &Path) -> Result<(), String> {
    let reading = Reading::open(file, false)?;
    if reading.is_turned {
        return Err("players turn its picture".into());
    }
    if reading.has_several {
        return Err("it has several video streams".into());
    }
    let mut query = gst::query::Seeking::new(gst::Format::Time);
    if !reading.pipeline.0.query(&mut query) || !query.result().0 {
        return Err(format!("{} cannot be seeked", text::path(file)));
    }
    let container = Container::of(to).map_err(|error| error.to_string())?;
    Writing::build(container, to, &reading.video, None).map(|_| ())
}

/// Copies a clip.
///
/// # Errors
/// `Output`.
pub(crate) fn copy(job: &Job) -> Result<()> {
    let copied = Container::of(&job.to).map_err(|error| error.to_string()).and_then(|it| try_copy(job, it));
    if copied.is_err() {
        // Half a file would look like a clip.
        let _ = std::fs::remove_file(&job.to);
    }
    copied.map_err(|reason| Error::Output { name: job.to.display().to_string(), reason })
}

fn try_copy(job: &Job, container: &Container) -> Result<(), String> {
    let reading = Reading::open(&job.file, job.has_sound)?;
    let first = reading.seek(job.from_ns)?;
    let writing = Writing::build(container, &job.to, &reading.video, reading.sound.as_ref())?;
    let base = first.decoded.into_iter().chain(first.pts()).min().unwrap_or(gst::ClockTime::ZERO);
    writing.start()?;
    let next_sound = || reading.sound.as_ref().and_then(Stream::next);
    let mut video = Some(first);
    let mut sound = next_sound();
    let mut last = base;
    while let Some(packet) = video {
        // Frames are stored in the order in which they are decoded, and none is shown before it is decoded.
        let is_behind = |ns: Option<u64>| ns.is_none_or(|ns| ns > job.to_ns);
        if is_behind(packet.shown_ns) && is_behind(packet.decoded_ns.or(packet.shown_ns)) {
            break;
        }
        let at = packet.decoded.or(packet.pts()).unwrap_or(last);
        last = last.max(at + packet.buffer.duration().unwrap_or_default());
        while let Some(heard) = sound.take_if(|heard| heard.pts().is_none_or(|heard| heard <= at)) {
            if heard.pts().is_some_and(|heard| heard >= base) {
                writing.push_sound(heard, base)?;
            }
            sound = next_sound();
        }
        writing.push_video(packet, base)?;
        video = reading.video.next();
    }
    while let Some(heard) = sound.take_if(|heard| heard.pts().is_some_and(|heard| heard < last)) {
        if heard.pts().is_some_and(|heard| heard >= base) {
            writing.push_sound(heard, base)?;
        }
        sound = next_sound();
    }
    writing.finish()
}

/// A packet. The sample that it came in is not kept: while somebody holds that, GStreamer 1.22 complains when
/// the stream is announced again.
struct Packet {
    buffer: gst::Buffer,
    decoded: Option<gst::ClockTime>,
    /// When its frame is shown, counted from the beginning of the video.
    shown_ns: Option<u64>,
    /// When its frame is decoded.
    decoded_ns: Option<u64>,
}

impl Packet {
    fn pts(&self) -> Option<gst::ClockTime> {
        self.buffer.pts()
    }
}

impl Stream {
    fn next(&self) -> Option<Packet> {
        let sample = self.sink.try_pull_sample(gst::ClockTime::try_from(PATIENCE).ok())?;
        let buffer = sample.buffer_owned()?;
        let time = |at| presentation_time(sample.segment(), at, false);
        let decoded = buffer.dts();
        Some(Packet { decoded, shown_ns: time(buffer.pts()), decoded_ns: time(decoded), buffer })
    }
}

fn make(name: &str) -> Result<gst::Element, String> {
    gst::ElementFactory::make(name).build().map_err(|_| format!("GStreamer has no element {name}"))
}

impl Reading {
    fn open(path: &Path, has_sound: bool) -> Result<Self, String> {
        launch::init().map_err(|error| error.to_string())?;
        let (input, parser) = (make("filesrc")?, make("parsebin")?);
        input.set_property("location", path);
        let guarded = Pipeline(gst::Pipeline::new());
        let pipeline = &guarded.0;
        pipeline.add_many([&input, &parser]).map_err(|error| error.to_string())?;
        input.link(&parser).map_err(|error| error.to_string())?;
        let ends = |is_wanted: bool| -> Result<Option<(gst_app::AppSink, gst::Pad)>, String> {
            if !is_wanted {
                return Ok(None);
            }
            let queue = make("queue")?;
            // As far as streams of a file may lie apart.
            queue.set_property("max-size-buffers", 0_u32);
            queue.set_property("max-size-bytes", 64_u32 << 20);
            queue.set_property("max-size-time", 10_000_000_000_u64);
            let sink = gst_app::AppSink::builder().sync(false).max_buffers(1).build();
            sink.set_property("async", false);
            pipeline.add_many([&queue, sink.upcast_ref()]).map_err(|error| error.to_string())?;
            queue.link(&sink).map_err(|error| error.to_string())?;
            let pad = queue.static_pad("sink").ok_or("a queue has no pad")?;
            Ok(Some((sink, pad)))
        };
        let video = ends(true)?.ok_or("no place for the video")?;
        let sound = ends(has_sound)?;
        let free = Arc::new(Mutex::new((Some(video.1), sound.as_ref().map(|(_, pad)| pad.clone()))));
        let weak = pipeline.downgrade();
        let taken = free.clone();
        let count = Arc::new(AtomicUsize::new(0));
        let videos = count.clone();
        parser.connect_pad_added(move |_, pad| {
            let caps = pad.current_caps().unwrap_or_else(|| pad.query_caps(None));
            let name = caps.structure(0).map_or_else(String::new, |it| it.name().to_string());
            let mut free = free.lock().unwrap_or_else(PoisonError::into_inner);
            let place = match &*name {
                _ if name.starts_with("video/") => {
                    videos.fetch_add(1, Ordering::Relaxed);
                    free.0.take()
                }
                _ if name.starts_with("audio/") => free.1.take(),
                _ => None,
            };
            drop(free);
            if let Some(place) = place {
                let _ = pad.link(&place);
                return;
            }
            // Other streams are thrown away.
            if let (Some(pipeline), Ok(nothing)) = (weak.upgrade(), make("fakesink")) {
                nothing.set_property("async", false);
                let is_added = pipeline.add(&nothing).is_ok() && nothing.sync_state_with_parent().is_ok();
                if let Some(sink) = nothing.static_pad("sink").filter(|_| is_added) {
                    let _ = pad.link(&sink);
                }
            }
        });
        // Sinks reach PLAYING before the first packet comes. A full appsink holds the lock that this change
        // needs, and nobody would empty it.
        let failed = |error: &dyn std::error::Error| error.to_string();
        pipeline.set_state(gst::State::Ready).map_err(|error| failed(&error))?;
        for element in [&parser, &input] {
            element.set_locked_state(true);
        }
        pipeline.set_state(gst::State::Playing).map_err(|error| failed(&error))?;
        for element in [&parser, &input] {
            element.set_locked_state(false);
            element.sync_state_with_parent().map_err(|error| failed(&error))?;
        }
        let caps = |sink: &gst_app::AppSink| {
            let sample = sink.try_pull_sample(gst::ClockTime::try_from(PATIENCE).ok());
            sample.and_then(|sample| sample.caps_owned())
        };
        let video_caps = caps(&video.0).ok_or("its video stream was not found")?;
        let video = Stream { caps: video_caps, sink: video.0 };
        // Streams are announced together: a file has no sound if none was announced with its video.
        let is_there = taken.lock().unwrap_or_else(PoisonError::into_inner).1.is_none();
        if !is_there && let Some((sink, pad)) = &sound {
            // A pipeline is seeked only if each of its sinks is.
            let queue = pad.parent_element().ok_or("a queue has no element")?;
            for element in [&queue, sink.upcast_ref::<gst::Element>()] {
                pipeline.remove(element).map_err(|error| error.to_string())?;
                element.set_state(gst::State::Null).map_err(|error| failed(&error))?;
            }
        }
        let sound = sound.filter(|_| is_there);
        let sound = sound.and_then(|(sink, _)| caps(&sink).map(|caps| Stream { sink, caps }));
        let tags = video.sink.static_pad("sink").and_then(|pad| pad.sticky_event::<gst::event::Tag>(0));
        let orientation = tags.and_then(|event| {
            event.tag().get::<gst::tags::ImageOrientation>().map(|value| value.get().to_owned())
        });
        let is_turned = orientation.is_some_and(|orientation| orientation != "rotate-0");
        let has_several = count.load(Ordering::Relaxed) > 1;
        Ok(Self { pipeline: guarded, file: path.to_owned(), video, sound, is_turned, has_several })
    }

    /// Goes to the last key frame that is not after a time, and returns its packet.
    fn seek(&self, ns: u64) -> Result<Packet, String> {
        let flags = gst::SeekFlags::FLUSH | gst::SeekFlags::KEY_UNIT | gst::SeekFlags::SNAP_BEFORE;
        let place = gst::ClockTime::from_nseconds(ns);
        let sought = self.pipeline.0.seek_simple(flags, place);
        sought.map_err(|_| format!("{} cannot be seeked", text::path(&self.file)))?;
        self.video.next().ok_or_else(|| "there is no frame at that place".to_owned())
    }
}

/// A pipeline that stops when it is dropped.
struct Pipeline(gst::Pipeline);

impl Drop for Pipeline {
    fn drop(&mut self) {
        let _ = self.0.set_state(gst::State::Null);
    }
}

/// A container that is written.
struct Writing {
    pipeline: Pipeline,
    video: gst_app::AppSrc,
    sound: Option<gst_app::AppSrc>,
}

impl Writing {
    fn build(
        container: &Container,
        to: &Path,
        video_stream: &Stream,
        sound: Option<&Stream>,
    ) -> Result<Self, String> {
        let mux = make(container.muxer)?;
        let file = make("filesink")?;
        file.set_property("location", to);
        let guarded = Pipeline(gst::Pipeline::new());
        let pipeline = &guarded.0;
        pipeline.add_many([&mux, &file]).map_err(|error| error.to_string())?;
        mux.link(&file).map_err(|error| error.to_string())?;
        let extension = container.extension;
        let refused = |caps: &gst::Caps| {
            let codec = caps.structure(0).map_or("codec", |it| it.name().as_str()).to_owned();
            format!("an .{extension} does not hold its {codec}")
        };
        let into = |stream: &Stream| -> Result<gst_app::AppSrc, String> {
            let source = gst_app::AppSrc::builder().caps(&stream.caps).format(gst::Format::Time).build();
            pipeline.add(&source).map_err(|error| error.to_string())?;
            let mut last = source.clone().upcast::<gst::Element>();
            // Containers want packets cut and marked in ways of their own.
            if let Some(parser) = parser_of(&stream.caps) {
                let parser = make(parser)?;
                pipeline.add(&parser).map_err(|error| error.to_string())?;
                last.link(&parser).map_err(|error| error.to_string())?;
                last = parser;
            }
            let name = stream.caps.structure(0).map_or("", |it| it.name().as_str());
            let held = mux.pad_template_list().into_iter().filter(|template| {
                template.direction() == gst::PadDirection::Sink
                    && template.caps().iter().any(|structure| structure.name() == name)
            });
            let pad = held.into_iter().find_map(|template| mux.request_pad(&template, None, None));
            let pad = pad.ok_or_else(|| refused(&stream.caps))?;
            let out = last.static_pad("src").ok_or("a parser has no pad")?;
            let fits = out.query_caps(None).can_intersect(&pad.query_caps(None));
            if !fits || out.link(&pad).is_err() {
                return Err(refused(&stream.caps));
            }
            Ok(source)
        };
        let video = into(video_stream)?;
        let sound = match sound.map(into) {
            Some(Err(reason)) => {
                tracing::warn!("{} has no sound: {reason}", text::path(to));
                return Self::build(container, to, video_stream, None);
            }
            Some(Ok(sound)) => Some(sound),
            None => None,
        };
        Ok(Self { pipeline: guarded, video, sound })
    }

    fn start(&self) -> Result<(), String> {
        self.pipeline.0.set_state(gst::State::Playing).map(|_| ()).map_err(|_| self.reason())
    }

    fn push_video(&self, packet: Packet, base: gst::ClockTime) -> Result<(), String> {
        push(&self.video, packet, base).map_err(|()| self.reason())
    }

    fn push_sound(&self, packet: Packet, base: gst::ClockTime) -> Result<(), String> {
        self.sound.as_ref().map_or(Ok(()), |sound| push(sound, packet, base)).map_err(|()| self.reason())
    }

    /// Returns the reason why the pipeline takes no more packets.
    fn reason(&self) -> String {
        let bus = self.pipeline.0.bus();
        let message = bus.and_then(|bus| bus.pop_filtered(&[gst::MessageType::Error]));
        match message.as_ref().map(|message| message.view()) {
            Some(gst::MessageView::Error(error)) => error.error().to_string(),
            _ => "the container takes no more packets".into(),
        }
    }

    fn finish(&self) -> Result<(), String> {
        let _ = self.video.end_of_stream();
        let _ = self.sound.as_ref().map(gst_app::AppSrc::end_of_stream);
        let bus = self.pipeline.0.bus().ok_or("the pipeline has no bus")?;
        let wanted = [gst::MessageType::Eos, gst::MessageType::Error];
        let message = bus.timed_pop_filtered(gst::ClockTime::try_from(PATIENCE).ok(), &wanted);
        match message.as_ref().map(|message| message.view()) {
            Some(gst::MessageView::Eos(_)) => Ok(()),
            Some(gst::MessageView::Error(error)) => Err(error.error().to_string()),
            _ => Err(format!("its end was not written within {} s", PATIENCE.as_secs())),
        }
    }
}

fn push(source: &gst_app::AppSrc, Packet { mut buffer, .. }: Packet, base: gst::ClockTime) -> Result<(), ()> {
    let moved = buffer.make_mut();
    moved.set_pts(moved.pts().map(|at| at.saturating_sub(base)));
    moved.set_dts(moved.dts().map(|at| at.saturating_sub(base)));
    source.push_buffer(buffer).map(|_| ()).map_err(|_| ())
}

/// The element that cuts packets of that kind as a container wants them.
fn parser_of(caps: &gst::Caps) -> Option<&'static str> {
    let structure = caps.structure(0)?;
    Some(match structure.name().as_str() {
        "video/x-h264" => "h264parse",
        "video/x-h265" => "h265parse",
        "video/x-av1" => "av1parse",
        "video/x-vp9" => "vp9parse",
        "video/mpeg" if structure.get::<i32>("mpegversion") == Ok(4) => "mpeg4videoparse",
        "audio/mpeg" if structure.get::<i32>("mpegversion") == Ok(1) => "mpegaudioparse",
        "audio/mpeg" => "aacparse",
        "audio/x-opus" => "opusparse",
        _ => return None,
    })
}
