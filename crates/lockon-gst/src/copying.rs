//! A part of a video file as a file of its own, without encoding: packets from a key frame on, with the sound
//! that belongs to them.
//!
//! One pipeline reads the file up to packets of its video, a second one up to those of its sound, so neither
//! waits for the other, however far apart they are stored. A third one puts them into a container. Between
//! them packets go by hand, in the order of their times, which are counted from the first one.
//!
//! A slow disk holds the reading up, so that few packets wait in memory ([`MOST_WAITING`]). It never does so
//! where the muxer may need a packet of one stream before it takes more of the other.

use std::cell::Cell;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use gst::prelude::*;

use crate::launch;
use crate::random_access::{self, EntryPicture, Index};
use crate::sink::Container;
use crate::sound::is_picture;
use crate::source::presentation_time;
use lockon_core::control::{Control, STOP_CHECK};
use lockon_core::error::{Error, Result};
use lockon_core::locks::lock;
use lockon_core::text;

/// How long the demuxer may take to find a place, and a muxer to complete its file.
const PATIENCE: Duration = Duration::from_secs(30);

/// Bytes of packets that may wait to be written before reading stops.
const MOST_WAITING: u64 = 16 << 20;

/// How often it is looked whether the disk has taken some.
const POLL: Duration = Duration::from_millis(5);

/// Sound that begins so long after a frame is pushed at once, or ended: the muxer would keep all frames
/// until then.
const SILENCE: gst::ClockTime = gst::ClockTime::from_seconds(1);

/// A clip that is copied.
#[derive(Debug, Clone)]
pub(crate) struct CopyJob {
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
pub(crate) struct Reading {
    pipeline: Pipeline,
    /// Ends waiting for packets.
    control: Control,
    stream: Stream,
    file: PathBuf,
    begins_ns: u64,
    has_sound: bool,
    /// Players turn or mirror the picture.
    is_turned: bool,
    /// It has more than one video stream.
    has_several: bool,
}

/// Checks that packets of a file can be copied into files of such a name.
///
/// # Errors
/// The reason; some reason if `control` was stopped meanwhile.
pub(crate) fn check(file: &Path, to: &Path, control: &Control) -> Result<(), String> {
    let reading = Reading::video(file, control)?;
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
pub(crate) fn copy(job: &CopyJob) -> Result<()> {
    let mut is_created = false;
    let copied = Container::of(&job.to).map_err(|error| error.to_string());
    let copied = copied.and_then(|container| try_copy(job, container, &mut is_created));
    if copied.is_err() && is_created {
        // Half a file would look like a clip.
        let _ = std::fs::remove_file(&job.to);
    }
    copied.map_err(|reason| Error::Output { name: job.to.display().to_string(), reason })
}

fn try_copy(job: &CopyJob, container: &Container, is_created: &mut bool) -> Result<(), String> {
    // A run that must end still completes its clips.
    let control = Control::new();
    let reading = Reading::video(&job.file, &control)?;
    let hears = job.has_sound && reading.has_sound;
    let hearing = if hears { Reading::open(&job.file, Kind::Sound, &control)? } else { None };
    let first = reading.seek(job.from_ns)?.ok_or("there is no frame at that place")?;
    let writing = Writing::build(container, &job.to, &reading.stream, hearing.as_ref().map(|it| &it.stream))?;
    let base = first.decoded.into_iter().chain(first.pts()).min().unwrap_or(gst::ClockTime::ZERO);
    writing.create()?;
    *is_created = true;
    writing.start()?;
    // Both go to the same key frame.
    let mut sound = hearing.as_ref().map_or(Ok(None), |hearing| hearing.seek(job.from_ns))?;
    let next_sound = || hearing.as_ref().map_or(Ok(None), Reading::next);
    // Frames are stored in the order in which they are decoded, and none is shown before it is decoded.
    let is_in = |packet: &Packet| {
        let is_behind = |ns: Option<u64>| ns.is_none_or(|ns| ns > job.to_ns);
        !(is_behind(packet.shown_ns) && is_behind(packet.decoded_ns.or(packet.shown_ns)))
    };
    let mut next = Some(first).filter(is_in);
    let mut last = base;
    while let Some(packet) = next {
        let time_of = |packet: &Packet| packet.decoded.or(packet.pts());
        let at = time_of(&packet).unwrap_or(last);
        last = last.max(at + packet.buffer.duration().unwrap_or_default());
        writing.push_video(packet, base)?;
        next = reading.next()?.filter(is_in);
        let until = next.as_ref().map_or(last, |next| time_of(next).unwrap_or(last));
        let is_last = next.is_none();
        let is_due = |heard: &mut Packet| match heard.pts() {
            Some(heard) if is_last => heard < until,
            Some(heard) => heard <= until,
            None => !is_last,
        };
        while let Some(heard) = sound.take_if(is_due) {
            if heard.pts().is_some_and(|heard| heard >= base) {
                writing.push_sound(heard, base)?;
            }
            sound = next_sound()?;
        }
        let is_far = |heard: &mut Packet| heard.pts().is_some_and(|heard| heard > until + SILENCE);
        match sound.take_if(is_far) {
            Some(heard) if !is_last && heard.shown_ns.is_some_and(|ns| ns <= job.to_ns) => {
                writing.push_sound(heard, base)?;
                sound = next_sound()?;
            }
            // No later packet belongs to the clip.
            Some(_) => writing.end_sound(),
            None if sound.is_none() => writing.end_sound(),
            None => {}
        }
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

/// Returns the next sample, or `None` at the end of the stream or if `is_absent` says that there is none.
fn pull(
    pipeline: &gst::Pipeline,
    sink: &gst_app::AppSink,
    patience: Duration,
    control: &Control,
    is_absent: impl Fn() -> bool,
) -> Result<Option<gst::Sample>, String> {
    let deadline = Instant::now() + patience;
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        if let Some(sample) = sink.try_pull_sample(gst::ClockTime::try_from(left.min(STOP_CHECK)).ok()) {
            return Ok(Some(sample));
        }
        // After an error a demuxer ends its streams: such an end is not the end of the file. Or it ends
        // nothing, and no packet ever comes.
        if let Some(reason) = reported(pipeline) {
            return Err(reason);
        }
        if sink.is_eos() || is_absent() {
            return Ok(None);
        }
        if control.is_stopped() {
            return Err("the run was stopped".into());
        }
        if left.is_zero() {
            return Err(format!("no packet came within {} s", patience.as_secs_f64()));
        }
    }
}

fn make(name: &str) -> Result<gst::Element, String> {
    gst::ElementFactory::make(name).build().map_err(|_| format!("GStreamer has no element {name}"))
}

impl Reading {
    /// Opens the first video stream of a file.
    pub(crate) fn video(path: &Path, control: &Control) -> Result<Self, String> {
        Self::open(path, Kind::Video, control)?.ok_or_else(|| format!("{} has no video", text::path(path)))
    }

    /// Opens the first stream of a kind; `None` if nothing is in it. The file must have such a stream.
    fn open(path: &Path, kind: Kind, control: &Control) -> Result<Option<Self>, String> {
        launch::init().map_err(|error| error.to_string())?;
        // A demuxer finds no end of looking for a stream in a GIF.
        if is_picture(path) {
            return Err("its pictures are no packets of a video".into());
        }
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
        let free = Arc::new(Mutex::new(Some(place)));
        let (is_free, is_absent) = (free.clone(), Arc::new(AtomicBool::new(false)));
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
            let place = lock(&free).take_if(|_| is_wanted);
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
        let absent = is_absent.clone();
        parser.connect_no_more_pads(move |_| {
            let place = lock(&is_free);
            absent.store(place.is_some(), Ordering::Relaxed);
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
        let sample = pull(pipeline, &sink, PATIENCE, control, || is_absent.load(Ordering::Relaxed));
        let Some(sample) = sample.map_err(|reason| format!("{}: {reason}", text::path(path)))? else {
            return Ok(None);
        };
        let Some(caps) = sample.caps_owned() else { return Ok(None) };
        let pts = sample.buffer().and_then(gst::BufferRef::pts);
        let begins_ns = presentation_time(sample.segment(), pts, false).unwrap_or(0);
        drop(sample);
        let tags = sink.static_pad("sink").and_then(|pad| pad.sticky_event::<gst::event::Tag>(0));
        let orientation = tags.and_then(|event| {
            event.tag().get::<gst::tags::ImageOrientation>().map(|value| value.get().to_owned())
        });
        let is_turned = orientation.is_some_and(|orientation| orientation != "rotate-0");
        // Streams are announced together: no sound comes later if none was announced before the first packet.
        let count = |kind: Kind| counts[kind as usize].load(Ordering::Relaxed);
        let (has_sound, has_several) = (count(Kind::Sound) > 0, count(Kind::Video) > 1);
        let (stream, file, control) = (Stream { sink, caps }, path.to_owned(), control.clone());
        Ok(Some(Self {
            pipeline: guarded,
            control,
            stream,
            file,
            begins_ns,
            has_sound,
            is_turned,
            has_several,
        }))
    }

    /// The length of the video, where it is known.
    pub(crate) fn length_ns(&self) -> Option<u64> {
        let length = self.pipeline.0.query_duration::<gst::ClockTime>();
        length.map(gst::ClockTime::nseconds).filter(|ns| *ns > 0)
    }

    /// The time of its first packet.
    pub(crate) fn begins_ns(&self) -> u64 {
        self.begins_ns
    }

    /// The last picture that is not after a time, and with which decoding can begin; `None` if it is not
    /// found.
    pub(crate) fn entry(&self, ns: u64) -> Option<EntryPicture> {
        let pipeline = &self.pipeline.0;
        match Index::of(pipeline) {
            Index::Nothing => None,
            Index::Times => {
                let next = || pull(pipeline, &self.stream.sink, PATIENCE, &self.control, || false);
                random_access::last_before(pipeline, ns, next).ok()?
            }
            Index::KeyFrames => {
                let packet = self.seek(ns).ok()??;
                let is_key_frame = !packet.buffer.flags().contains(gst::BufferFlags::DELTA_UNIT);
                let ns = packet.shown_ns.filter(|_| is_key_frame)?;
                Some(EntryPicture { ns, decode_ns: Some(ns) })
            }
        }
    }

    /// Goes to the last key frame that is not after a time, and returns the first packet from there on.
    fn seek(&self, ns: u64) -> Result<Option<Packet>, String> {
        let sought = random_access::seek(&self.pipeline.0, ns);
        sought.ok_or_else(|| format!("{} cannot be seeked", text::path(&self.file)))?;
        self.next()
    }

    /// Returns the next packet, or `None` at the end of the stream.
    fn next(&self) -> Result<Option<Packet>, String> {
        let in_file = |reason: String| format!("{}: {reason}", text::path(&self.file));
        let sample = pull(&self.pipeline.0, &self.stream.sink, PATIENCE, &self.control, || false);
        let Some(sample) = sample.map_err(in_file)? else { return Ok(None) };
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
    video: Feed,
    sound: Option<Feed>,
}

/// The way of one stream's packets into a container.
struct Feed {
    source: gst_app::AppSrc,
    /// The latest time of its packets, and whether they have ended.
    pushed: Cell<Option<gst::ClockTime>>,
    has_ended: Cell<bool>,
}

impl Feed {
    fn of(source: gst_app::AppSrc) -> Self {
        Self { source, pushed: Cell::default(), has_ended: Cell::default() }
    }

    fn end(&self) {
        if !self.has_ended.replace(true) {
            let _ = self.source.end_of_stream();
        }
    }

    fn waiting(&self) -> u64 {
        self.source.current_level_bytes()
    }

    /// True if the muxer needs no packet of this stream to take all that the other one got so far.
    fn lets_go_on(&self, other: &Self) -> bool {
        self.has_ended.get() || self.waiting() > 0 || self.pushed.get() > other.pushed.get()
    }
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
            if name == "video/x-vp9" {
                complete_caps(&out);
            }
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
        Ok(Self { pipeline: guarded, file, video: Feed::of(video), sound: sound.map(Feed::of) })
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
        self.push(&self.video, self.sound.as_ref(), packet, base)
    }

    fn push_sound(&self, packet: Packet, base: gst::ClockTime) -> Result<(), String> {
        self.sound.as_ref().map_or(Ok(()), |sound| self.push(sound, Some(&self.video), packet, base))
    }

    /// Ends the sound, so that the muxer does not wait for more.
    fn end_sound(&self) {
        self.sound.iter().for_each(Feed::end);
    }

    fn push(
        &self,
        feed: &Feed,
        other: Option<&Feed>,
        packet: Packet,
        base: gst::ClockTime,
    ) -> Result<(), String> {
        self.make_room(feed, other)?;
        let Packet { mut buffer, .. } = packet;
        let moved = buffer.make_mut();
        moved.set_pts(moved.pts().map(|at| at.saturating_sub(base)));
        moved.set_dts(moved.dts().map(|at| at.saturating_sub(base)));
        feed.pushed.set(feed.pushed.get().max(moved.pts()).max(moved.dts()));
        feed.source.push_buffer(buffer).map(|_| ()).map_err(|_| self.reason())
    }

    /// Waits while too many packets are not written yet, unless the muxer may be waiting for this stream's.
    fn make_room(&self, feed: &Feed, other: Option<&Feed>) -> Result<(), String> {
        let waiting = || feed.waiting() + other.map_or(0, Feed::waiting);
        let is_full = || {
            let can_be_written = other.is_none_or(|other| other.lets_go_on(feed));
            feed.waiting() > 0 && waiting() > MOST_WAITING && can_be_written
        };
        let (mut before, mut since) = (waiting(), Instant::now());
        while is_full() {
            if let Some(reason) = reported(&self.pipeline.0) {
                return Err(reason);
            }
            if since.elapsed() > PATIENCE {
                return Err(format!("nothing was written within {} s", PATIENCE.as_secs()));
            }
            std::thread::sleep(POLL);
            let now = waiting();
            if now != before {
                (before, since) = (now, Instant::now());
            }
        }
        Ok(())
    }

    /// Returns the reason why the pipeline takes no more packets.
    fn reason(&self) -> String {
        reported(&self.pipeline.0).unwrap_or_else(|| "the container takes no more packets".into())
    }

    fn finish(&self) -> Result<(), String> {
        self.video.end();
        self.end_sound();
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

/// Completes the caps of VP9: the MP4 muxer of GStreamer 1.22 crashes without a place of the colour samples,
/// which most VP9 does not state. Unstated, they lie on samples of the luma.
fn complete_caps(out: &gst::Pad) {
    out.add_probe(gst::PadProbeType::EVENT_DOWNSTREAM, |pad, info| {
        launch::guarded(pad, gst::PadProbeReturn::Ok, || {
            let Some(gst::PadProbeData::Event(event)) = &mut info.data else {
                return gst::PadProbeReturn::Ok;
            };
            if let gst::EventView::Caps(announced) = event.view()
                && announced.caps().structure(0).is_some_and(|it| !it.has_field("chroma-site"))
            {
                let mut caps = announced.caps_owned();
                caps.make_mut().set("chroma-site", "cosited");
                *event = gst::event::Caps::builder(&caps).seqnum(event.seqnum()).build();
            }
            gst::PadProbeReturn::Ok
        })
    });
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
        let reading = Reading::open(file, kind, &Control::new()).unwrap().unwrap();
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
        let control = Control::new();
        let next =
            |milliseconds| pull(&guarded.0, &sink, Duration::from_millis(milliseconds), &control, || false);
        assert_eq!(next(10).unwrap_err(), "no packet came within 0.01 s");
        source.push_buffer(gst::Buffer::from_slice([7_u8])).unwrap();
        assert!(next(9000).unwrap().is_some());
        source.end_of_stream().unwrap();
        assert!(next(9000).unwrap().is_none());
        gst::element_error!(source, gst::ResourceError::Read, ("the disk is gone"));
        assert_eq!(next(9000).unwrap_err(), "the disk is gone");
    }

    #[test]
    fn a_file_whose_packets_never_come_is_refused_at_once() {
        launch::init().unwrap();
        let dir = tempfile::tempdir().unwrap();
        // Its pictures are one stream that is no video.
        let gif = [
            &b"GIF89a\x01\0\x01\0\x80\0\0\0\0\0\xff\xff\xff"[..],
            &[0x2c, 0, 0, 0, 0, 1, 0, 1, 0, 0, 2, 2, 0x44, 1, 0, 0x3b],
        ];
        let pictures = dir.path().join("a.gif");
        std::fs::write(&pictures, gif.concat()).unwrap();
        let reason = check(&pictures, Path::new("a.mp4"), &Control::new()).unwrap_err();
        assert!(!reason.contains("no packet came"), "{reason}");
    }

    #[test]
    fn a_run_that_is_stopped_waits_for_no_packet() {
        launch::init().unwrap();
        let pipeline = Pipeline(gst::Pipeline::new());
        let sink = gst_app::AppSink::builder().sync(false).build();
        pipeline.0.add(&sink).unwrap();
        pipeline.0.set_state(gst::State::Playing).unwrap();
        let control = Control::new();
        control.stop();
        let reason = pull(&pipeline.0, &sink, PATIENCE, &control, || false).unwrap_err();
        assert_eq!(reason, "the run was stopped");
    }

    #[test]
    fn vp9_that_states_no_place_of_its_colour_samples_is_copied_into_an_mp4() {
        let dir = tempfile::tempdir().unwrap();
        let (file, to) = (dir.path().join("a.webm"), dir.path().join("clip.mp4"));
        play(&format!(
            "videotestsrc num-buffers=9 ! video/x-raw,format=I420,width=34,height=18,framerate=25/1 ! vp9enc ! webmmux ! \
             filesink location={}",
            file.display()
        ));
        check(&file, &to, &Control::new()).unwrap();
        copy(&CopyJob { file, to: to.clone(), from_ns: 0, to_ns: 1_000_000_000, has_sound: false }).unwrap();
        assert_eq!(packets(&to, Kind::Video), 8);
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
        let job = CopyJob {
            file: file.clone(),
            to: to.clone(),
            from_ns: 0,
            to_ns: 75_000_000_000,
            has_sound: true,
        };
        copy(&job).unwrap();
        assert_eq!(packets(&to, Kind::Video), 4);
        assert_eq!(packets(&to, Kind::Sound), packets(&file, Kind::Sound));
    }

    fn stream(caps: &str) -> Stream {
        launch::init().unwrap();
        Stream { sink: gst_app::AppSink::builder().build(), caps: caps.parse().unwrap() }
    }

    /// A packet of so many MiB at a time in milliseconds.
    fn packet(mebibytes: usize, ms: u64) -> Packet {
        let mut buffer = gst::Buffer::from_slice(vec![7; (mebibytes << 20).max(160)]);
        let at = gst::ClockTime::from_mseconds(ms);
        buffer.get_mut().unwrap().set_pts(at);
        Packet { buffer, decoded: Some(at), shown_ns: Some(at.nseconds()), decoded_ns: Some(at.nseconds()) }
    }

    const PICTURES: &str = "video/x-raw,format=GRAY8,width=1024,height=1024,framerate=25/1";
    const SOUND: &str = "audio/x-mulaw,rate=8000,channels=1";

    /// Starts to write a Matroska file of pictures, and of sound if asked for.
    fn writing(to: &Path, has_sound: bool) -> Writing {
        let (video, sound) = (stream(PICTURES), stream(SOUND));
        let container = Container::of(Path::new("a.mkv")).unwrap();
        let writing = Writing::build(container, to, &video, has_sound.then_some(&sound)).unwrap();
        writing.create().unwrap();
        writing.start().unwrap();
        writing
    }

    #[test]
    #[cfg(unix)]
    fn a_slow_disk_holds_a_copy_up_and_the_clip_is_whole_in_the_end() {
        const PACKETS: usize = 64;
        let dir = tempfile::tempdir().unwrap();
        let to = dir.path().join("slow.mkv");
        assert!(std::process::Command::new("mkfifo").arg(&to).status().unwrap().success());
        let (go, may_read) = std::sync::mpsc::channel::<()>();
        let path = to.clone();
        let reader = std::thread::spawn(move || {
            let mut file = std::fs::File::open(path).unwrap();
            may_read.recv().unwrap();
            std::io::copy(&mut file, &mut std::io::sink()).unwrap()
        });
        let pushed = Arc::new(AtomicUsize::new(0));
        let counted = pushed.clone();
        let writer = std::thread::spawn(move || {
            let writing = writing(&to, true);
            for index in 0..PACKETS {
                let at = index as u64 * 40;
                writing.push_video(packet(1, at), gst::ClockTime::ZERO).unwrap();
                writing.push_sound(packet(0, at + 20), gst::ClockTime::ZERO).unwrap();
                counted.fetch_add(1, Ordering::Relaxed);
            }
            writing.finish().unwrap();
        });
        std::thread::sleep(Duration::from_secs(2));
        let waiting = pushed.load(Ordering::Relaxed);
        go.send(()).unwrap();
        writer.join().unwrap();
        let written = reader.join().unwrap();
        // Some packets are on their way through the muxer.
        assert!((8..=24).contains(&waiting), "{waiting} MiB");
        assert!(written > (PACKETS << 20) as u64, "{written} bytes");
    }

    #[test]
    fn frames_behind_the_end_of_the_sound_do_not_pile_up() {
        let dir = tempfile::tempdir().unwrap();
        let to = dir.path().join("a.mkv");
        let writing = writing(&to, true);
        writing.push_sound(packet(0, 0), gst::ClockTime::ZERO).unwrap();
        writing.end_sound();
        for index in 0..64 {
            writing.push_video(packet(1, index * 40), gst::ClockTime::ZERO).unwrap();
            let waiting = writing.video.waiting();
            assert!(waiting <= MOST_WAITING + (1 << 20), "{waiting} bytes");
        }
        writing.finish().unwrap();
        assert!(to.metadata().unwrap().len() > 64 << 20);
    }

    #[test]
    fn packets_of_one_stream_never_wait_for_those_of_the_other() {
        let dir = tempfile::tempdir().unwrap();
        for is_video_first in [true, false] {
            let writing = writing(&dir.path().join("a.mkv"), true);
            let push = |is_video: bool, index: u64| {
                let packet = packet(1, index * 40);
                let pushed = if is_video {
                    writing.push_video(packet, gst::ClockTime::ZERO)
                } else {
                    writing.push_sound(packet, gst::ClockTime::ZERO)
                };
                pushed.unwrap();
            };
            (0..40).for_each(|index| push(is_video_first, index));
            (0..40).for_each(|index| push(!is_video_first, index));
            writing.finish().unwrap();
        }
    }

    #[test]
    fn a_clip_that_fails_removes_only_a_file_that_it_created() {
        let dir = tempfile::tempdir().unwrap();
        let (file, to) = (dir.path().join("a.mkv"), dir.path().join("clip.mkv"));
        std::fs::write(&to, "mine").unwrap();
        let job = CopyJob { file: file.clone(), to: to.clone(), from_ns: 0, to_ns: 1, has_sound: false };
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
