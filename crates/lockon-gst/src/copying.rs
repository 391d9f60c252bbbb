//! A part of a video file as a file of its own, without encoding: packets from a key frame on, with the sound
//! that belongs to them.
//!
//! One pipeline reads the file up to packets of its video, a second one up to those of its sound, so neither
//! waits for the other, however far apart they are stored. A third one puts them into a container. Between
//! them packets go by hand, in the order of their times, which are counted from the first one.

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

/// The kind of packets that are read from a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Video,
    Sound,
}

/// A file up to the packets of its first stream of a kind.
struct Reading {
    pipeline: Pipeline,
    stream: Stream,
    file: PathBuf,
    has_sound: bool,
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
    let reading = Reading::video(file)?;
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
    Writing::build(container, to, &reading.stream, None).map(|_| ())
}

/// Copies a clip.
///
/// # Errors
/// `Output`.
pub(crate) fn copy(job: &Job) -> Result<()> {
    let mut is_created = false;
    let copied = Container::of(&job.to).map_err(|error| error.to_string());
    let copied = copied.and_then(|container| try_copy(job, container, &mut is_created));
    if copied.is_err() && is_created {
        // Half a file would look like a clip.
        let _ = std::fs::remove_file(&job.to);
    }
    copied.map_err(|reason| Error::Output { name: job.to.display().to_string(), reason })
}

fn try_copy(job: &Job, container: &Container, is_created: &mut bool) -> Result<(), String> {
    let reading = Reading::video(&job.file)?;
    let hearing =
        if job.has_sound && reading.has_sound { Reading::open(&job.file, Kind::Sound)? } else { None };
    let first = reading.seek(job.from_ns)?.ok_or("there is no frame at that place")?;
    let writing = Writing::build(container, &job.to, &reading.stream, hearing.as_ref().map(|it| &it.stream))?;
    let base = first.decoded.into_iter().chain(first.pts()).min().unwrap_or(gst::ClockTime::ZERO);
    writing.create()?;
    *is_created = true;
    writing.start()?;
    // Both go to the same key frame.
    let mut sound = hearing.as_ref().map_or(Ok(None), |hearing| hearing.seek(job.from_ns))?;
    let next_sound = || hearing.as_ref().map_or(Ok(None), Reading::next);
    let mut video = Some(first);
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
            sound = next_sound()?;
        }
        writing.push_video(packet, base)?;
        video = reading.next()?;
    }
    while let Some(heard) = sound.take_if(|heard| heard.pts().is_some_and(|heard| heard < last)) {
        if heard.pts().is_some_and(|heard| heard >= base) {
            writing.push_sound(heard, base)?;
        }
        sound = next_sound()?;
    }
    writing.finish()
}

/// A packet. Its sample is not kept: while a sample is held, GStreamer 1.22 complains when
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

/// Returns the first error that a pipeline reported.
fn reported(pipeline: &gst::Pipeline) -> Option<String> {
    let message = pipeline.bus()?.pop_filtered(&[gst::MessageType::Error])?;
    match message.view() {
        gst::MessageView::Error(error) => Some(error.error().to_string()),
        _ => None,
    }
}

/// Returns the next sample, or `None` at the end of the stream.
fn pull(
    pipeline: &gst::Pipeline,
    sink: &gst_app::AppSink,
    patience: Duration,
) -> Result<Option<gst::Sample>, String> {
    if let Some(sample) = sink.try_pull_sample(gst::ClockTime::try_from(patience).ok()) {
        return Ok(Some(sample));
    }
    // After an error a demuxer ends its streams: such an end is not the end of the file.
    if let Some(reason) = reported(pipeline) {
        return Err(reason);
    }
    if sink.is_eos() { Ok(None) } else { Err(format!("no packet came within {} s", patience.as_secs_f64())) }
}

fn make(name: &str) -> Result<gst::Element, String> {
    gst::ElementFactory::make(name).build().map_err(|_| format!("GStreamer has no element {name}"))
}

impl Reading {
    /// Opens the first video stream of a file.
    fn video(path: &Path) -> Result<Self, String> {
        Self::open(path, Kind::Video)?.ok_or_else(|| format!("{} has no video", text::path(path)))
    }

    /// Opens the first stream of a kind; `None` if nothing is in it. The file must have such a stream.
    fn open(path: &Path, kind: Kind) -> Result<Option<Self>, String> {
        launch::init().map_err(|error| error.to_string())?;
        let (input, parser) = (make("filesrc")?, make("parsebin")?);
        input.set_property("location", path);
        let guarded = Pipeline(gst::Pipeline::new());
        let pipeline = &guarded.0;
        let queue = make("queue")?;
        let sink = gst_app::AppSink::builder().sync(false).max_buffers(1).build();
        sink.set_property("async", false);
        pipeline.add_many([&input, &parser, &queue, sink.upcast_ref()]).map_err(|error| error.to_string())?;
        input.link(&parser).map_err(|error| error.to_string())?;
        queue.link(&sink).map_err(|error| error.to_string())?;
        let place = queue.static_pad("sink").ok_or("a queue has no pad")?;
        let free = Mutex::new(Some(place));
        let weak = pipeline.downgrade();
        let counts = Arc::new([AtomicUsize::new(0), AtomicUsize::new(0)]);
        let counted = counts.clone();
        parser.connect_pad_added(move |_, pad| {
            let caps = pad.current_caps().unwrap_or_else(|| pad.query_caps(None));
            let name = caps.structure(0).map_or_else(String::new, |it| it.name().to_string());
            let found = match &*name {
                _ if name.starts_with("video/") => Some(Kind::Video),
                _ if name.starts_with("audio/") => Some(Kind::Sound),
                _ => None,
            };
            if let Some(found) = found {
                counted[found as usize].fetch_add(1, Ordering::Relaxed);
            }
            let is_wanted = found == Some(kind);
            let place = free.lock().unwrap_or_else(PoisonError::into_inner).take_if(|_| is_wanted);
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
        // needs, and nothing would empty it.
        let failed = |error: &dyn std::error::Error| {
            let reason = reported(pipeline).unwrap_or_else(|| error.to_string());
            format!("{}: {reason}", text::path(path))
        };
        pipeline.set_state(gst::State::Ready).map_err(|error| failed(&error))?;
        for element in [&parser, &input] {
            element.set_locked_state(true);
        }
        pipeline.set_state(gst::State::Playing).map_err(|error| failed(&error))?;
        for element in [&parser, &input] {
            element.set_locked_state(false);
            element.sync_state_with_parent().map_err(|error| failed(&error))?;
        }
        let sample = pull(pipeline, &sink, PATIENCE);
        let Some(sample) = sample.map_err(|reason| format!("{}: {reason}", text::path(path)))? else {
            return Ok(None);
        };
        let Some(caps) = sample.caps_owned() else { return Ok(None) };
        drop(sample);
        let tags = sink.static_pad("sink").and_then(|pad| pad.sticky_event::<gst::event::Tag>(0));
        let orientation = tags.and_then(|event| {
            event.tag().get::<gst::tags::ImageOrientation>().map(|value| value.get().to_owned())
        });
        let is_turned = orientation.is_some_and(|orientation| orientation != "rotate-0");
        // Streams are announced together: no sound comes later if none was announced before the first packet.
        let count = |kind: Kind| counts[kind as usize].load(Ordering::Relaxed);
        let (has_sound, has_several) = (count(Kind::Sound) > 0, count(Kind::Video) > 1);
        let (stream, file) = (Stream { sink, caps }, path.to_owned());
        Ok(Some(Self { pipeline: guarded, stream, file, has_sound, is_turned, has_several }))
    }

    /// Goes to the last key frame that is not after a time, and returns the first packet from there on.
    fn seek(&self, ns: u64) -> Result<Option<Packet>, String> {
        let flags = gst::SeekFlags::FLUSH | gst::SeekFlags::KEY_UNIT | gst::SeekFlags::SNAP_BEFORE;
        let place = gst::ClockTime::from_nseconds(ns);
        let sought = self.pipeline.0.seek_simple(flags, place);
        sought.map_err(|_| format!("{} cannot be seeked", text::path(&self.file)))?;
        self.next()
    }

    /// Returns the next packet, or `None` at the end of the stream.
    fn next(&self) -> Result<Option<Packet>, String> {
        let in_file = |reason: String| format!("{}: {reason}", text::path(&self.file));
        let Some(sample) = pull(&self.pipeline.0, &self.stream.sink, PATIENCE).map_err(in_file)? else {
            return Ok(None);
        };
        let buffer = sample.buffer_owned().ok_or_else(|| in_file("a packet has no data".into()))?;
        let time = |at| presentation_time(sample.segment(), at, false);
        let decoded = buffer.dts();
        Ok(Some(Packet { decoded, shown_ns: time(buffer.pts()), decoded_ns: time(decoded), buffer }))
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
    file: gst::Element,
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
        Ok(Self { pipeline: guarded, file, video, sound })
    }

    /// Creates the file, or empties the one of that name.
    fn create(&self) -> Result<(), String> {
        let opened = self.pipeline.0.set_state(gst::State::Ready);
        let opened = opened.and_then(|_| self.file.set_state(gst::State::Paused));
        opened.map(|_| ()).map_err(|_| self.reason())
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
        reported(&self.pipeline.0).unwrap_or_else(|| "the container takes no more packets".into())
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

#[cfg(test)]
mod tests {
    use super::*;

    fn play(description: &str) {
        launch::init().unwrap();
        let pipeline = gst::parse::launch(description).unwrap();
        pipeline.set_state(gst::State::Playing).unwrap();
        let wanted = [gst::MessageType::Eos, gst::MessageType::Error];
        let message = pipeline.bus().unwrap().timed_pop_filtered(gst::ClockTime::from_seconds(60), &wanted);
        pipeline.set_state(gst::State::Null).unwrap();
        assert!(matches!(message.unwrap().view(), gst::MessageView::Eos(_)), "{description}");
    }

    /// How many packets of a kind a file has, without the first.
    fn packets(file: &Path, kind: Kind) -> usize {
        let reading = Reading::open(file, kind).unwrap().unwrap();
        std::iter::from_fn(|| reading.next().unwrap()).count()
    }

    #[test]
    fn only_the_end_of_a_stream_is_its_end() {
        launch::init().unwrap();
        let pipeline = gst::Pipeline::new();
        let source = gst_app::AppSrc::builder().build();
        let sink = gst_app::AppSink::builder().sync(false).build();
        pipeline.add_many([source.upcast_ref::<gst::Element>(), sink.upcast_ref()]).unwrap();
        source.link(&sink).unwrap();
        pipeline.set_state(gst::State::Playing).unwrap();
        let guarded = Pipeline(pipeline);
        let next = |milliseconds| pull(&guarded.0, &sink, Duration::from_millis(milliseconds));
        assert_eq!(next(10).unwrap_err(), "no packet came within 0.01 s");
        source.push_buffer(gst::Buffer::from_slice([7_u8])).unwrap();
        assert!(next(9000).unwrap().is_some());
        source.end_of_stream().unwrap();
        assert!(next(9000).unwrap().is_none());
        gst::element_error!(source, gst::ResourceError::Read, ("the disk is gone"));
        assert_eq!(next(9000).unwrap_err(), "the disk is gone");
    }

    #[test]
    fn a_clip_of_few_frames_and_much_sound_has_all_of_both() {
        let dir = tempfile::tempdir().unwrap();
        let (file, to) = (dir.path().join("slow.mkv"), dir.path().join("clip.mkv"));
        play(&format!(
            "videotestsrc num-buffers=5 ! video/x-raw,format=I420,width=34,height=18,framerate=1/15 ! x264enc ! matroskamux name=mux ! \
             filesink location={} audiotestsrc num-buffers=750 samplesperbuffer=800 ! audio/x-raw,rate=8000,channels=1 ! vorbisenc ! mux.",
            file.display()
        ));
        let job =
            Job { file: file.clone(), to: to.clone(), from_ns: 0, to_ns: 75_000_000_000, has_sound: true };
        copy(&job).unwrap();
        assert_eq!(packets(&to, Kind::Video), 4);
        assert_eq!(packets(&to, Kind::Sound), packets(&file, Kind::Sound));
    }

    #[test]
    fn a_clip_that_fails_removes_only_a_file_that_it_created() {
        let dir = tempfile::tempdir().unwrap();
        let (file, to) = (dir.path().join("a.mkv"), dir.path().join("clip.mkv"));
        std::fs::write(&to, "mine").unwrap();
        let job = Job { file: file.clone(), to: to.clone(), from_ns: 0, to_ns: 1, has_sound: false };
        assert!(copy(&job).unwrap_err().to_string().contains("a.mkv"));
        assert_eq!(std::fs::read(&to).unwrap(), b"mine");
        play(&format!(
            "videotestsrc num-buffers=3 ! x264enc ! matroskamux ! filesink location={}",
            file.display()
        ));
        std::fs::remove_file(&to).unwrap();
        std::os::unix::fs::symlink("/dev/full", &to).unwrap();
        copy(&job).unwrap_err();
        assert!(!to.is_symlink());
        copy(&job).unwrap();
        assert!(to.is_file());
    }
}
