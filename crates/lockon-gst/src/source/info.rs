//! Facts about an open source: its streams, and the one that is used.

use gst::prelude::*;

use super::adapt::{tagged, untagged};
use super::{Input, VideoSource, check};
use crate::launch::{Launch, Milestone, Running};
use lockon_core::control::{Control, STOP_CHECK};
use lockon_core::error::Result;
use lockon_core::frame::{Size, VideoFormat};
use lockon_core::locks::lock;
use lockon_core::ports::{Next, Source};

use super::errors::{in_words_of_the_input, no_video};

/// Maximum elements that a stream passes from its demuxer to the frames.
const MOST_STEPS: usize = 32;

/// Facts about a source. `None`: cannot be known.
#[derive(Debug, Clone)]
pub struct SourceInfo {
    /// The container or transport, as GStreamer's caps name it: `video/quicktime`.
    pub container: Option<String>,
    /// All streams, in the order of the container.
    pub streams: Vec<StreamInfo>,
    /// Format of the decoded frames.
    pub format: VideoFormat,
    /// The bits of a sample before they are reduced to 8.
    pub bits: u32,
    /// True if luma uses all values, false if it uses those from 16 to 235.
    pub is_full_range: Option<bool>,
    /// The turn that made the picture upright, in words, if there was one.
    pub turned: Option<String>,
    /// Factory name of the element that decodes.
    pub decoder: Option<String>,
    /// Length in nanoseconds.
    pub duration_ns: Option<u64>,
    /// True for a camera or a stream: frames come at its own pace.
    pub is_live: bool,
}

/// Facts about a stream.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct StreamInfo {
    /// Its kind.
    pub kind: StreamKind,
    /// Its codec, in words where GStreamer has some, such as `H.264 (High Profile)`.
    pub codec: String,
    /// The profile, as the codec calls it.
    pub profile: Option<String>,
    /// The level, as the codec calls it.
    pub level: Option<String>,
    /// Coded size, before it is turned.
    pub size: Option<Size>,
    /// Frames a second, as a fraction.
    pub frame_rate: Option<(i32, i32)>,
    /// Chroma format, such as `4:2:0`.
    pub chroma: Option<String>,
    /// Bits of a luma sample.
    pub bits: Option<u32>,
    /// True if its frames are made of two fields.
    pub is_interlaced: Option<bool>,
    /// As GStreamer writes it: `bt709`, `1:3:5:1`.
    pub colorimetry: Option<String>,
    /// Samples a second.
    pub sample_rate: Option<u32>,
    /// Channels of sound.
    pub channels: Option<u32>,
    /// Language, as the container names it.
    pub language: Option<String>,
    /// Bits a second, as the container names it.
    pub bit_rate: Option<u32>,
    /// True if the container flags it as default.
    pub is_default: bool,
    /// True for the video stream that is used.
    pub is_used: bool,
}

/// Kinds of streams.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum StreamKind {
    /// Pictures.
    Video,
    /// Sound.
    Sound,
    /// Subtitles.
    Text,
    /// Something else.
    #[default]
    Other,
}

impl VideoSource {
    /// Facts about the source.
    pub fn info(&self) -> SourceInfo {
        let pipeline = self.connection.running.pipeline();
        let format = (*self.connection.format).clone();
        let colours = self.connection.info.colorimetry();
        let is_full_range = match colours.range() {
            gst_video::VideoColorRange::Range0_255 => Some(true),
            gst_video::VideoColorRange::Range16_235 => Some(false),
            _ => None,
        };
        let sink = pipeline.by_name("frames").and_then(|sink| sink.static_pad("sink"));
        let turned = sink.as_ref().and_then(|pad| {
            let orientation = tagged(pad).or_else(|| untagged(pad, &self.spec, &self.connection.head));
            orientation.filter(|orientation| orientation.direction().is_some())
        });
        let mut streams: Vec<_> = stream_pads(pipeline).iter().map(described).collect();
        // A single stream is always the used one.
        if !streams.iter().any(|stream| stream.is_used)
            && let Some(first) = streams.iter_mut().find(|stream| stream.kind == StreamKind::Video)
        {
            first.is_used = true;
        }
        SourceInfo {
            container: container(pipeline),
            bits: self.connection.info.comp_depth(0),
            format,
            is_full_range,
            turned: turned.map(super::orientation::Orientation::in_words),
            decoder: self.decoder_name().map(str::to_owned),
            duration_ns: self.duration_ns,
            is_live: self.is_real_time,
            streams,
        }
    }

    /// Counts the frames of a video that was just opened: of a file by its packets if these are frames, else
    /// by decoding all. `None` if `control` was stopped before the end.
    ///
    /// # Errors
    /// `Usage` for a live source, which has no end; errors of reading and decoding.
    pub fn count_frames(mut self, control: &Control) -> Result<Option<u64>> {
        let spec = self.spec.clone();
        if self.is_real_time {
            return Err(lockon_core::error::Error::Usage(format!(
                "{}: --count is for files: a live source has no number of frames",
                spec.input
            )));
        }
        let info = self.info();
        let used =
            info.streams.iter().filter(|stream| stream.kind == StreamKind::Video).position(|s| s.is_used);
        if let (Input::File(_), Some(path), Some(used), true) =
            (&spec.input, spec.file(), used, are_packets_frames(&info))
            && path.is_file()
        {
            drop(self);
            check::check(&spec)?;
            let counted = count_packets(&spec.input, &path, used, control)?;
            return Ok(counted);
        }
        let mut count = 0;
        while !control.is_stopped() {
            match self.wait_next(STOP_CHECK)? {
                Next::Frame(_) => count += 1,
                Next::End => return Ok(Some(count)),
                Next::Pending | Next::Gap { .. } => {}
            }
        }
        Ok(None)
    }
}

/// True if each packet of the used video becomes one frame: not where fields have packets of their own, some
/// are never shown, or a stream may begin between two key frames.
fn are_packets_frames(info: &SourceInfo) -> bool {
    let used = info.streams.iter().find(|stream| stream.is_used);
    let known = ["H.264", "H.265", "JPEG", "PNG", "FFV1", "ProRes"];
    let is_file = ["video/quicktime", "video/x-matroska", "video/x-msvideo"];
    info.container.as_deref().is_some_and(|container| is_file.contains(&container))
        && used.is_some_and(|stream| stream.is_interlaced != Some(true) && known.contains(&&*stream.codec))
}

/// Counts the packets of a video stream that are shown.
fn count_packets(
    input: &Input,
    path: &std::path::Path,
    used: usize,
    control: &Control,
) -> Result<Option<u64>> {
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::sync::{Arc, Mutex};
    let mut launch = Launch::new("count", "filesrc name=input ! parsebin name=parse");
    launch.set("input", "location", path.display());
    let pipeline = launch.build()?;
    let parse = launch.element(&pipeline, "parse")?;
    let counts: Arc<Mutex<Vec<Arc<AtomicU64>>>> = Arc::default();
    let (found, weak) = (Arc::clone(&counts), pipeline.downgrade());
    parse.connect_pad_added(move |_, pad| {
        let Some(pipeline) = weak.upgrade() else { return };
        let made =
            gst::ElementFactory::make("fakesink").property("sync", false).property("async", false).build();
        let Ok(sink) = made else { return };
        let is_added = pipeline.add(&sink).is_ok() && sink.sync_state_with_parent().is_ok();
        let Some(into) = sink.static_pad("sink").filter(|_| is_added) else { return };
        if pad.link(&into).is_err() || !is_of(pad, &["video/", "image/"]) {
            return;
        }
        let count = Arc::new(AtomicU64::new(0));
        lock(&found).push(Arc::clone(&count));
        pad.add_probe(gst::PadProbeType::BUFFER, move |pad, info| {
            if info.buffer().is_some_and(|buffer| is_shown(pad, buffer)) {
                count.fetch_add(1, Ordering::Relaxed);
            }
            gst::PadProbeReturn::Ok
        });
    });
    let running = Running::new(pipeline);
    running.set_state(gst::State::Playing).map_err(|error| in_words_of_the_input(error, input))?;
    loop {
        if control.is_stopped() {
            return Ok(None);
        }
        let passed = running.wait(STOP_CHECK).map_err(|error| in_words_of_the_input(error, input))?;
        if passed == Some(Milestone::Ended) {
            break;
        }
    }
    let counts = lock(&counts);
    let count = counts.get(used).ok_or_else(|| no_video(input, "its video stream is gone"))?;
    Ok(Some(count.load(Ordering::Relaxed)))
}

/// True if a decoder would show the packet's frame: it lies within the played part.
fn is_shown(pad: &gst::Pad, buffer: &gst::BufferRef) -> bool {
    if buffer.flags().contains(gst::BufferFlags::DECODE_ONLY) {
        return false;
    }
    let segment = pad.sticky_event::<gst::event::Segment>(0);
    let segment = segment.as_ref().and_then(|event| event.segment().downcast_ref::<gst::ClockTime>());
    match (segment, buffer.pts()) {
        (Some(segment), Some(pts)) => {
            let end = buffer.duration().map_or(pts, |duration| pts + duration);
            segment.clip(pts, end).is_some()
        }
        _ => true,
    }
}

fn class_of(element: &gst::Element) -> String {
    let factory = element.factory();
    factory.and_then(|factory| factory.metadata("klass").map(str::to_owned)).unwrap_or_default()
}

fn is_of(pad: &gst::Pad, kinds: &[&str]) -> bool {
    let caps = pad.current_caps().unwrap_or_else(|| pad.query_caps(None));
    caps.structure(0).is_some_and(|s| kinds.iter().any(|kind| s.name().starts_with(kind)))
}

/// True if the element takes the streams of a container apart.
fn is_demuxer(element: &gst::Element) -> bool {
    let class = class_of(element);
    class.contains("Demuxer") && !class.contains("Metadata")
}

/// True if the pipeline reads a container, whose length its headers or indexes state. The length of a bare
/// stream is estimated from its bit rate.
pub(crate) fn has_container(pipeline: &gst::Pipeline) -> bool {
    pipeline.iterate_recurse().into_iter().flatten().any(|element| is_demuxer(&element))
}

/// True if a pad of the pipeline has caps of sound, or of RTP with sound.
pub(super) fn has_sound(pipeline: &gst::Pipeline) -> bool {
    let is_sound = |pad: &gst::Pad| {
        pad.current_caps().is_some_and(|caps| {
            caps.iter().any(|s| s.name().starts_with("audio/") || s.get("media") == Ok("audio"))
        })
    };
    pipeline.iterate_recurse().into_iter().flatten().any(|element| element.pads().iter().any(is_sound))
}

/// The pads at which the streams leave the last demuxer of a pipeline, else its source.
fn stream_pads(pipeline: &gst::Pipeline) -> Vec<gst::Pad> {
    let mut elements: Vec<_> = pipeline.iterate_recurse().into_iter().flatten().collect();
    // The newest first, as they are added; a bin is no demuxer itself.
    elements.retain(|element| {
        !element.is::<gst::Bin>() || element.factory().is_some_and(|f| f.name() == "rtspsrc")
    });
    let is_rtsp =
        |element: &gst::Element| element.factory().is_some_and(|factory| factory.name() == "rtspsrc");
    let is_demuxer = |element: &&gst::Element| is_demuxer(element) || is_rtsp(element);
    let with_streams = |element: &&gst::Element| !element.src_pads().is_empty();
    let demuxer = elements.iter().find(|element| is_demuxer(element) && with_streams(element));
    if let Some(demuxer) = demuxer {
        return demuxer.src_pads();
    }
    // No container: the input of a decoder, or else the output of a source.
    let decoder = elements.iter().find(|element| class_of(element).contains("Decoder"));
    if let Some(pad) = decoder.and_then(|decoder| decoder.static_pad("sink")).and_then(|pad| pad.peer()) {
        return vec![pad];
    }
    let source = elements.iter().find(|element| class_of(element).starts_with("Source"));
    source.map(ElementExtManual::src_pads).unwrap_or_default()
}

/// The media type of the input: its container, or its codec if it has none.
fn container(pipeline: &gst::Pipeline) -> Option<String> {
    let is_finder =
        |element: &gst::Element| element.factory().is_some_and(|factory| factory.name() == "typefind");
    let finders = pipeline.iterate_recurse().into_iter().flatten().filter(is_finder);
    let caps = finders.into_iter().find_map(|finder| finder.property::<Option<gst::Caps>>("caps"))?;
    Some(caps.structure(0)?.name().to_string())
}

/// Pads that a stream passes from `pad` to the frames' end.
fn path_of(pad: &gst::Pad) -> Vec<gst::Pad> {
    let mut path = vec![pad.clone()];
    for _ in 0..MOST_STEPS {
        let Some(last) = path.last() else { break };
        let next = match last.direction() {
            gst::PadDirection::Src => last.peer(),
            _ => last.iterate_internal_links().into_iter().flatten().next(),
        };
        match next {
            // A ghost pad represents the pad behind it.
            Some(next) => path.push(next),
            None => break,
        }
    }
    path
}

/// Facts about the stream that leaves by that pad.
fn described(pad: &gst::Pad) -> StreamInfo {
    let path = path_of(pad);
    let is_used =
        path.iter().any(|pad| pad.parent_element().is_some_and(|element| element.name() == "frames"));
    let start = pad.sticky_event::<gst::event::StreamStart>(0);
    let flags = start.map_or(gst::StreamFlags::empty(), |start| start.stream_flags());
    let mut info =
        StreamInfo { is_used, is_default: flags.contains(gst::StreamFlags::SELECT), ..StreamInfo::default() };
    // Parsers know more than containers; a decoder's output is no part of the stream.
    for pad in &path {
        let Some(caps) = pad.current_caps() else { continue };
        let Some(structure) = caps.structure(0) else { continue };
        if structure.name() == "video/x-raw" && !info.codec.is_empty() {
            let raw = StreamInfo::of_caps(structure);
            info.size = info.size.or(raw.size);
            info.frame_rate = info.frame_rate.or(raw.frame_rate);
            break;
        }
        info.take_caps(structure);
        for event in (0..).map_while(|n| pad.sticky_event::<gst::event::Tag>(n)) {
            info.take_tags(event.tag());
        }
    }
    info
}

impl StreamInfo {
    fn of_caps(caps: &gst::StructureRef) -> Self {
        let mut info = Self::default();
        info.take_caps(caps);
        info
    }

    fn take_caps(&mut self, caps: &gst::StructureRef) {
        let name = caps.name().as_str();
        let media = caps.get::<String>("media").ok();
        self.kind = match (name.split('/').next().unwrap_or_default(), media.as_deref()) {
            ("video" | "image", _) | (_, Some("video")) => StreamKind::Video,
            ("audio", _) | (_, Some("audio")) => StreamKind::Sound,
            ("text" | "subpicture" | "closedcaption", _) => StreamKind::Text,
            _ => self.kind,
        };
        self.codec = codec_of(caps);
        let text = |name: &str| caps.get::<String>(name).ok();
        let number = |name: &str| caps.get::<i32>(name).ok().and_then(|n| u32::try_from(n).ok());
        let side = |name: &str| caps.get::<i32>(name).ok().filter(|side| *side > 0);
        self.profile = text("profile").or(self.profile.take());
        self.level = text("level").or(self.level.take());
        self.chroma = text("chroma-format").or(self.chroma.take());
        self.bits = caps.get::<u32>("bit-depth-luma").ok().or(self.bits);
        self.colorimetry = text("colorimetry").or(self.colorimetry.take());
        self.is_interlaced = text("interlace-mode").map(|mode| mode != "progressive").or(self.is_interlaced);
        self.sample_rate = number("rate").or(self.sample_rate);
        self.channels = number("channels").or(self.channels);
        let size = side("width").zip(side("height"));
        self.size = size.map(|(w, h)| Size::new(w as usize, h as usize)).or(self.size);
        let rate = caps.get::<gst::Fraction>("framerate").ok().filter(|rate| rate.numer() > 0);
        self.frame_rate = rate.map(|rate| (rate.numer(), rate.denom())).or(self.frame_rate);
    }

    fn take_tags(&mut self, tags: &gst::TagListRef) {
        let language = tags.get::<gst::tags::LanguageCode>().map(|tag| tag.get().to_owned());
        self.language = language.filter(|language| language != "und").or(self.language.take());
        let rate = tags.get::<gst::tags::Bitrate>().map(|tag| tag.get());
        self.bit_rate = rate.filter(|rate| *rate > 0).or(self.bit_rate);
    }
}

/// The usual name of the codec of these caps; else the caps' own name.
pub(crate) fn codec_of(caps: &gst::StructureRef) -> String {
    let version = caps.get::<i32>("mpegversion").unwrap_or_default();
    let format = || caps.get::<String>("format").unwrap_or_default();
    match caps.name().as_str() {
        "video/x-h264" => "H.264".into(),
        "video/x-h265" => "H.265".into(),
        "video/x-h263" => "H.263".into(),
        "video/x-av1" => "AV1".into(),
        "video/x-vp8" => "VP8".into(),
        "video/x-vp9" => "VP9".into(),
        "video/x-prores" => "ProRes".into(),
        "video/x-ffv" => "FFV1".into(),
        "video/x-theora" => "Theora".into(),
        "video/mpeg" if version == 4 => "MPEG-4 part 2".into(),
        "video/mpeg" => format!("MPEG-{version}"),
        "video/x-raw" => format!("raw {}", format()),
        "image/jpeg" => "JPEG".into(),
        "image/png" => "PNG".into(),
        "image/gif" => "GIF".into(),
        "audio/mpeg" if version == 1 => format!("MPEG layer {}", caps.get::<i32>("layer").unwrap_or(3)),
        "audio/mpeg" => "AAC".into(),
        "audio/x-opus" => "Opus".into(),
        "audio/x-vorbis" => "Vorbis".into(),
        "audio/x-flac" => "FLAC".into(),
        "audio/x-ac3" => "AC-3".into(),
        "audio/x-eac3" => "E-AC-3".into(),
        "audio/x-raw" => format!("PCM {}", format()),
        "application/x-rtp" => caps.get::<String>("encoding-name").unwrap_or_else(|_| "RTP".into()),
        name => name.to_owned(),
    }
}
