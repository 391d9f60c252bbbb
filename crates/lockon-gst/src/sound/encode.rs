//! Sound that a container cannot hold is decoded, and encoded again as a codec that it can hold.

use gst::prelude::*;

use crate::source::codec_of;

/// Sample rate of encoded sound. All of these encoders support it, and their delay is counted in it.
const RATE: i32 = 48_000;

/// Encodes sound for a container.
pub(super) struct Encoder {
    /// Factory name; `None` if the container holds samples as they are.
    factory: Option<&'static str>,
    /// Samples of silence that it puts in front (measured with GStreamer 1.22).
    delay: u64,
}

/// Codecs that every player of the container has, each with its encoders, the best first.
const AAC: (&str, &[Encoder]) = (
    "AAC",
    &[
        Encoder { factory: Some("avenc_aac"), delay: 1024 },
        Encoder { factory: Some("voaacenc"), delay: 1600 },
    ],
);
const OPUS: (&str, &[Encoder]) = ("Opus", &[Encoder { factory: Some("opusenc"), delay: 0 }]);
const PCM: (&str, &[Encoder]) = ("PCM", &[Encoder { factory: None, delay: 0 }]);

/// The codec for a container, and its encoder.
fn codec_for(container: &str) -> (&'static str, &'static [Encoder]) {
    match container {
        "webm" => OPUS,
        "avi" => PCM,
        _ => AAC,
    }
}

/// The name of the codec as which sound is encoded for that container.
pub(super) fn codec_name_for(container: &str) -> &'static str {
    codec_for(container).0
}

/// Debian's package of the first encoder for that container.
pub(super) fn package_for(container: &str) -> &'static str {
    if container == "webm" { "gstreamer1.0-plugins-base" } else { "gstreamer1.0-libav" }
}

impl Encoder {
    /// The encoder for a container, or `None` if it is not installed.
    pub(super) fn for_container(container: &str) -> Option<&'static Self> {
        let is_there =
            |encoder: &&Self| encoder.factory.is_none_or(|it| gst::ElementFactory::find(it).is_some());
        codec_for(container).1.iter().find(is_there)
    }

    /// The delay of its sound against its packets' times, in nanoseconds.
    pub(super) fn delay_ns(&self) -> u64 {
        self.delay * 1_000_000_000 / RATE as u64
    }

    /// Links `pad` to `queue` through a decoder and this encoder, within `bin`.
    pub(super) fn link(
        &self,
        pad: &gst::Pad,
        bin: &gst::Bin,
        queue: &gst::Element,
    ) -> Result<(), gst::glib::BoolError> {
        let make = |factory| gst::ElementFactory::make(factory).build();
        let decode = make("decodebin")?;
        let convert = make("audioconvert")?;
        let resample = make("audioresample")?;
        let samples = gst::Caps::builder("audio/x-raw").field("rate", RATE);
        let samples = if self.factory.is_none() { samples.field("format", "S16LE") } else { samples };
        let filter = gst::ElementFactory::make("capsfilter").property("caps", samples.build()).build()?;
        let mut chain = vec![convert.clone(), resample, filter];
        chain.extend(self.factory.map(make).transpose()?);
        bin.add(&decode)?;
        bin.add_many(&chain)?;
        chain.push(queue.clone());
        gst::Element::link_many(&chain)?;
        for element in chain.iter().rev().skip(1) {
            element.sync_state_with_parent()?;
        }
        let entry = convert.static_pad("sink").expect("audioconvert has a sink pad").downgrade();
        decode.connect_pad_added(move |_, pad| {
            if let Some(entry) = entry.upgrade().filter(|entry| !entry.is_linked()) {
                // A decoder's pad that gives no samples is no sound.
                let _ = pad.link(&entry);
            }
        });
        decode.sync_state_with_parent()?;
        let sink = decode.static_pad("sink").expect("decodebin has a sink pad");
        pad.link(&sink).map(drop).map_err(|error| gst::glib::bool_error!("{error}"))
    }
}

/// True for sound that the container's muxer takes and writes wrongly.
///
/// The MP4 muxer of GStreamer 1.22 writes the header of Opus with its bytes swapped: ffmpeg and players based
/// on it leave out the first 0.3 s.
pub(crate) fn is_damaged_in(caps: &gst::Caps, container: &str) -> bool {
    container == "mp4" && caps.structure(0).is_some_and(|structure| structure.name() == "audio/x-opus")
}

/// A name that people know, else the caps' own.
pub(crate) fn codec_name(caps: &gst::Caps) -> String {
    let Some(structure) = caps.structure(0) else { return "sound of unknown type".to_owned() };
    if !structure.name().starts_with("audio/") {
        return codec_of(structure);
    }
    match (structure.name().as_str(), structure.get::<i32>("mpegversion"), structure.get::<i32>("layer")) {
        ("audio/mpeg", Ok(1), Ok(3)) => "MP3".to_owned(),
        ("audio/mpeg", Ok(1), Ok(layer)) => format!("MPEG audio layer {layer}"),
        ("audio/mpeg", Ok(2 | 4), _) => "AAC".to_owned(),
        ("audio/x-raw", ..) => "PCM".to_owned(),
        ("audio/x-alaw", ..) => "G.711 A-law".to_owned(),
        ("audio/x-mulaw", ..) => "G.711 mu-law".to_owned(),
        ("audio/x-vorbis", ..) => "Vorbis".to_owned(),
        ("audio/x-opus", ..) => "Opus".to_owned(),
        ("audio/x-flac", ..) => "FLAC".to_owned(),
        ("audio/x-ac3", ..) => "AC-3".to_owned(),
        ("audio/x-alac", ..) => "ALAC".to_owned(),
        (name, ..) => name.trim_start_matches("audio/").trim_start_matches("x-").to_owned(),
    }
}
