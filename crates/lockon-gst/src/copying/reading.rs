//! Packets of one stream of a file.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use gst::prelude::*;

use super::{PATIENCE, Packet, Pipeline, Stream, make, reported};
use crate::launch;
use crate::packet_times::{self, MOST_REORDERED};
use crate::random_access::{self, EntryPicture, Index};
use crate::sound::{Passed, is_picture};
use crate::source::{has_container, presentation_time, stream_time};
use lockon_core::control::{Control, STOP_CHECK};
use lockon_core::locks::lock;
use lockon_core::text;

/// Packets of each stream by which it is decided whether a file can be copied: more than a second of video.
const TRIED: usize = 48;

/// How far back the first step goes where a place has no key frame; each further step is twice as long.
const STEP_BACK_NS: u64 = 1_000_000_000;
/// The first step: after a seek to the very time of a key frame, qtdemux of GStreamer 1.22 begins with the
/// second frame of the group before it.
const FIRST_STEP_NS: u64 = 10_000_000;

/// The kind of packets that are read from a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Video,
    Sound,
}

/// A file up to the packets of its first stream of a kind.
#[expect(clippy::struct_excessive_bools, reason = "facts of the file, each by itself")]
pub(crate) struct Reading {
    pub(super) pipeline: Pipeline,
    /// Ends waiting for packets.
    control: Control,
    pub(super) stream: Stream,
    file: PathBuf,
    begins_ns: u64,
    /// Players turn or mirror the picture.
    pub(super) is_turned: bool,
    /// It has more than one video stream.
    pub(super) has_several: bool,
    /// It has sound that GStreamer has no parts for.
    pub(super) has_unknown_sound: bool,
    /// It is no raw stream.
    pub(super) has_container: bool,
}

/// Returns the next sample, or `None` at the end of the stream or if `is_absent` says that there is none.
pub(super) fn pull(
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

impl Reading {
    /// Opens the first video stream of a file.
    pub(crate) fn video(path: &Path, control: &Control) -> Result<Self, String> {
        Self::open(path, Kind::Video, control)?.ok_or_else(|| format!("{} has no video", text::path(path)))
    }

    /// Opens the first stream of a kind; `None` if there is none, or nothing in it.
    pub(super) fn open(path: &Path, kind: Kind, control: &Control) -> Result<Option<Self>, String> {
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
        let is_absent = Arc::new(AtomicBool::new(false));
        let absent = is_absent.clone();
        let weak = pipeline.downgrade();
        let several = Arc::new(AtomicUsize::new(0));
        let counted = several.clone();
        parser.connect_pad_added(move |_, pad| {
            let caps = pad.current_caps().unwrap_or_else(|| pad.query_caps(None));
            let name = caps.structure(0).map_or_else(String::new, |it| it.name().to_string());
            let found = match &*name {
                _ if name.starts_with("video/") || name == "image/jpeg" => Some(Kind::Video),
                _ if name.starts_with("audio/") => Some(Kind::Sound),
                _ => None,
            };
            if found == Some(Kind::Video) {
                counted.fetch_add(1, Ordering::Relaxed);
            }
            let is_wanted = found == Some(kind);
            let place = lock(&free).take_if(|_| is_wanted);
            if let Some(place) = place {
                let _ = pad.link(&place);
                return;
            }
            // Other streams are thrown away. Some demuxers announce a stream with its first packet.
            let (is_free, absent) = (free.clone(), absent.clone());
            let passed = Passed::new();
            pad.add_probe(gst::PadProbeType::BUFFER | gst::PadProbeType::EVENT_DOWNSTREAM, move |_, info| {
                let is_enough = match &info.data {
                    Some(gst::PadProbeData::Event(event)) => event.type_() == gst::EventType::Eos,
                    Some(gst::PadProbeData::Buffer(packet)) => passed.is_enough_with(packet),
                    _ => false,
                };
                if is_enough {
                    absent.fetch_or(lock(&is_free).is_some(), Ordering::Relaxed);
                }
                gst::PadProbeReturn::Ok
            });
            if let (Some(pipeline), Ok(nothing)) = (weak.upgrade(), make("fakesink")) {
                nothing.set_property("async", false);
                let is_added = pipeline.add(&nothing).is_ok() && nothing.sync_state_with_parent().is_ok();
                if let Some(sink) = nothing.static_pad("sink").filter(|_| is_added) {
                    let _ = pad.link(&sink);
                }
            }
        });
        let has_unknown = Arc::new(AtomicBool::new(false));
        let found_unknown = has_unknown.clone();
        parser.connect("unknown-type", false, move |values| {
            let caps = values.get(2).and_then(|caps| caps.get::<gst::Caps>().ok());
            let is_sound = caps.is_some_and(|caps| caps.iter().any(|it| it.name().starts_with("audio/")));
            found_unknown.fetch_or(is_sound, Ordering::Relaxed);
            None
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
        let has_several = several.load(Ordering::Relaxed) > 1;
        let (stream, file, control) = (Stream { sink, caps }, path.to_owned(), control.clone());
        let has_container = has_container(pipeline);
        let has_unknown_sound = has_unknown.load(Ordering::Relaxed);
        Ok(Some(Self {
            pipeline: guarded,
            control,
            stream,
            file,
            begins_ns,
            is_turned,
            has_several,
            has_unknown_sound,
            has_container,
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
                let ns = packet.shown.filter(|_| packet.is_key_frame())?;
                let ns = u64::try_from(ns).unwrap_or(0);
                Some(EntryPicture { ns, decode_ns: Some(ns) })
            }
        }
    }

    /// Opens the file's sound if it is wanted and there is some.
    pub(super) fn sound(&self, is_wanted: bool) -> Result<Option<Self>, String> {
        if is_wanted { Self::open(&self.file, Kind::Sound, &self.control) } else { Ok(None) }
    }

    /// Returns the first packets of the stream.
    pub(super) fn first_packets(&self) -> Result<Vec<Packet>, String> {
        let mut packets: Vec<_> = self.seek(0)?.into_iter().collect();
        while (1..TRIED).contains(&packets.len()) {
            let Some(packet) = self.next()? else { break };
            packets.push(packet);
        }
        Ok(packets)
    }

    /// Goes to the last key frame that is not after a time. Returns its packet, and the place that leads
    /// there.
    pub(super) fn seek_key_frame(&self, ns: u64) -> Result<Option<(Packet, u64)>, String> {
        // Where a demuxer knows only times, packets say themselves whether they are key frames.
        let is_by_times = Index::of(&self.pipeline.0) == Index::Times;
        if let Some(entry) = is_by_times.then(|| self.entry(ns)).flatten() {
            let place = random_access::place_before(entry.ns).unwrap_or(0);
            let mut packet = self.seek(place)?;
            let is_entry = |packet: &Packet| packet.shown == Some(entry.ns.cast_signed());
            while packet.as_ref().is_some_and(|packet| !is_entry(packet)) {
                packet = self.next()?;
            }
            return Ok(packet.map(|packet| (packet, place)));
        }
        let (mut place, mut step) = (ns, FIRST_STEP_NS);
        loop {
            let mut packet = self.seek(place)?;
            if place == 0 {
                while packet.as_ref().is_some_and(|packet| !packet.is_key_frame()) {
                    packet = self.next()?;
                }
                return Ok(packet.map(|packet| (packet, place)));
            }
            // Without an index a demuxer goes to a place near by.
            let is_late = |packet: &Packet| packet.shown.is_some_and(|shown| shown > ns.cast_signed());
            match packet {
                Some(packet) if packet.is_key_frame() && !is_late(&packet) => {
                    return Ok(Some((packet, place)));
                }
                _ => (place, step) = (place.saturating_sub(step), (step * 2).max(STEP_BACK_NS)),
            }
        }
    }

    /// Goes to a place where the sound for a clip from `base` on begins.
    pub(super) fn seek_sound(&self, place: u64, base: i64) -> Result<Option<Packet>, String> {
        let packet = self.seek(place)?;
        let is_late = packet.as_ref().is_none_or(|heard| heard.shown.is_some_and(|ns| ns > base));
        let earlier = u64::try_from(base).unwrap_or(0).min(place).saturating_sub(STEP_BACK_NS);
        if is_late && place > 0 { self.seek(earlier) } else { Ok(packet) }
    }

    /// Finds when the packets of a clip are decoded, from `first` on, which was read last.
    pub(super) fn decoding_times(&self, first: &Packet, to_ns: i64) -> Result<VecDeque<i64>, String> {
        let mut shown = vec![first.shown.unwrap_or_default()];
        let mut end = 1;
        while shown.len() - end < MOST_REORDERED {
            let Some(packet) = self.next()? else { break };
            let at =
                packet.shown.ok_or_else(|| format!("{}: a packet has no time", text::path(&self.file)))?;
            shown.push(at);
            if at <= to_ns {
                end = shown.len();
            }
        }
        shown.truncate(end);
        Ok(packet_times::decoded(&shown).into())
    }

    /// Goes to a place, or a key frame before it, and returns the first packet from there on.
    fn seek(&self, ns: u64) -> Result<Option<Packet>, String> {
        let sought = random_access::seek(&self.pipeline.0, ns);
        sought.ok_or_else(|| format!("{} cannot be seeked", text::path(&self.file)))?;
        self.next()
    }

    /// Returns the next packet, or `None` at the end of the stream.
    pub(super) fn next(&self) -> Result<Option<Packet>, String> {
        let in_file = |reason: String| format!("{}: {reason}", text::path(&self.file));
        let sample = pull(&self.pipeline.0, &self.stream.sink, PATIENCE, &self.control, || false);
        let Some(sample) = sample.map_err(in_file)? else { return Ok(None) };
        let buffer = sample.buffer_owned().ok_or_else(|| in_file("a packet has no data".into()))?;
        let time = |at: Option<gst::ClockTime>| {
            let placed = sample.segment().and_then(|segment| stream_time(segment, at?));
            placed.or_else(|| i64::try_from(at?.nseconds()).ok())
        };
        Ok(Some(Packet { shown: time(buffer.pts()), decoded: time(buffer.dts()), buffer }))
    }
}
