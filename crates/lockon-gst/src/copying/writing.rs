//! Packets into the file of a container.

use std::cell::Cell;
use std::path::Path;
use std::time::{Duration, Instant};

use gst::prelude::*;

use super::{PATIENCE, Packet, Pipeline, Stream, make, reported};
use crate::launch;
use crate::sink::Container;
use crate::sound::{codec_name, is_damaged_in};

/// Bytes of packets that may wait to be written before reading stops.
pub(super) const MOST_WAITING: u64 = 16 << 20;

/// How often it is looked whether the disk has taken some.
const POLL: Duration = Duration::from_millis(5);

/// A container that is written.
pub(super) struct Writing {
    pipeline: Pipeline,
    file: gst::Element,
    pub(super) video: Feed,
    pub(super) sound: Option<Feed>,
}

/// The way of one stream's packets into a container.
pub(super) struct Feed {
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

    pub(super) fn waiting(&self) -> u64 {
        self.source.current_level_bytes()
    }

    /// True if the muxer needs no packet of this stream to take all that the other one got so far.
    fn lets_go_on(&self, other: &Self) -> bool {
        self.has_ended.get() || self.waiting() > 0 || self.pushed.get() > other.pushed.get()
    }
}

impl Writing {
    /// Prepares a file, or, to try the packets, none.
    pub(super) fn build(
        container: &Container,
        to: Option<&Path>,
        video_stream: &Stream,
        sound: Option<&Stream>,
    ) -> Result<Self, String> {
        let mux = make(container.muxer)?;
        let file = make(if to.is_some() { "filesink" } else { "fakesink" })?;
        if let Some(to) = to {
            file.set_property("location", to);
        }
        let guarded = Pipeline(gst::Pipeline::new());
        let pipeline = &guarded.0;
        pipeline.add_many([&mux, &file]).map_err(|error| error.to_string())?;
        mux.link(&file).map_err(|error| error.to_string())?;
        let extension = container.extension;
        let refused = |caps: &gst::Caps| format!("an .{extension} does not hold its {}", codec_name(caps));
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
            if is_damaged_in(&stream.caps, extension) {
                return Err(format!("not all players read {} in an .{extension}", codec_name(&stream.caps)));
            }
            let kind = kind_of(&stream.caps);
            let held = mux.pad_template_list().into_iter().filter(|template| {
                template.direction() == gst::PadDirection::Sink && template.caps().can_intersect(&kind)
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
        let sound = sound.map(into).transpose()?;
        Ok(Self { pipeline: guarded, file, video: Feed::of(video), sound: sound.map(Feed::of) })
    }

    /// Creates the file, or empties the one of that name.
    pub(super) fn create(&self) -> Result<(), String> {
        let opened = self.pipeline.0.set_state(gst::State::Ready);
        let opened = opened.and_then(|_| self.file.set_state(gst::State::Paused));
        opened.map(|_| ()).map_err(|_| self.reason())
    }

    pub(super) fn start(&self) -> Result<(), String> {
        self.pipeline.0.set_state(gst::State::Playing).map(|_| ()).map_err(|_| self.reason())
    }

    pub(super) fn push_video(&self, packet: Packet, base: i64) -> Result<(), String> {
        self.push(&self.video, self.sound.as_ref(), packet, base)
    }

    pub(super) fn push_sound(&self, packet: Packet, base: i64) -> Result<(), String> {
        self.sound.as_ref().map_or(Ok(()), |sound| self.push(sound, Some(&self.video), packet, base))
    }

    /// Ends the sound, so that the muxer does not wait for more.
    pub(super) fn end_sound(&self) {
        self.sound.iter().for_each(Feed::end);
    }

    fn push(&self, feed: &Feed, other: Option<&Feed>, packet: Packet, base: i64) -> Result<(), String> {
        self.make_room(feed, other)?;
        let Packet { mut buffer, shown, decoded } = packet;
        let moved = buffer.make_mut();
        let in_clip = |ns: i64| gst::ClockTime::from_nseconds(u64::try_from(ns - base).unwrap_or(0));
        moved.set_pts(shown.map(in_clip));
        moved.set_dts(decoded.map(in_clip));
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

    pub(super) fn finish(&self) -> Result<(), String> {
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
        "video/mpeg" => "mpegvideoparse",
        "audio/mpeg" if structure.get::<i32>("mpegversion") == Ok(1) => "mpegaudioparse",
        "audio/mpeg" => "aacparse",
        "audio/x-opus" => "opusparse",
        _ => return None,
    })
}

/// The codec that caps name, without the way in which its packets are cut, which a parser changes.
fn kind_of(caps: &gst::Caps) -> gst::Caps {
    let mut kind = gst::Caps::new_empty();
    for structure in caps.iter() {
        // AAC has two numbers for the same.
        let has_version =
            structure.name().starts_with("video/") || structure.get::<i32>("mpegversion") == Ok(1);
        let mut fields = gst::Structure::new_empty(structure.name());
        for name in ["layer", "mpegversion"].into_iter().take(1 + usize::from(has_version)) {
            if let Ok(value) = structure.value(name) {
                fields.set_value(name, value.clone());
            }
        }
        kind.make_mut().append_structure(fields);
    }
    kind
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
