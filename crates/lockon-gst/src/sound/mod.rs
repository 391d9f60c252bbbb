//! The sound of the input file, carried into the output file: the first audio stream, copied where the
//! container holds its codec, else encoded again.
//!
//! A branch `filesrc ! parsebin ! queue` beside the video reads the input a second time, on threads of its
//! own, and ends in the muxer. [`attach`] finds out what the file holds before the first frame is pushed,
//! because a muxer must know all of its pads by then. Nothing is added to the pipeline where there is no
//! sound, or none that the container can hold.
//!
//! The muxer interleaves by time, so video waits in it for sound and sound for video. [`Gate`] holds each
//! packet of sound back until the video has come as far. So at the end the muxer has no packet that begins
//! after the last frame, and the sound ends with the picture, however early that is.
//!
//! File by file: `gate` decides when a packet passes and at which time, `encode` replaces codecs that a
//! container cannot hold, `unknown` looks for sound that the demuxer does not show.

use std::fs::File;
use std::io::Read as _;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, Sender};
use gst::glib;
use gst::prelude::*;

use super::launch;
use crate::source::keep_to_file;
use encode::{Encoder, codec_name_for};
use lockon_core::error::{Error, Result};
use lockon_core::{still, text};

pub(super) use encode::{codec_name, is_damaged_in};
pub(super) use gate::Gate;

mod encode;
mod gate;
#[cfg(test)]
pub(crate) mod tests;
mod unknown;

/// How long the demuxer may take to find the file's streams. It reads the file's head only; a network drive
/// may be slow.
const DISCOVERY: Duration = Duration::from_secs(10);
/// How often a wait for the demuxer, or for the video, is interrupted to check whether to continue.
const POLL: Duration = Duration::from_millis(50);

/// The muxers' pads for sound.
const SOUND_PAD: &str = "audio_%u";

/// The system's folder of open files.
const OPEN_FILES: &str = "/proc/self/fd";

/// Package of the elements that are part of GStreamer itself.
const CORE: &str = "libgstreamer1.0-0";

/// Demuxers that show all streams before the first packet. Others show a stream with its first packet.
const SHOW_ALL_FIRST: [&str; 3] = ["qtdemux", "matroskademux", "avidemux"];
/// A stream without a packet in so much of the file is ignored: by time, or by bytes if packets have no
/// times.
const LOOKED_AT: gst::ClockTime = gst::ClockTime::from_seconds(10);
const MOST_BYTES: u64 = 64 << 20;

/// The part of a stream that has passed while another stream is looked for.
pub(crate) struct Passed {
    first_ns: AtomicU64,
    bytes: AtomicU64,
}

impl Passed {
    pub(crate) fn new() -> Self {
        Self { first_ns: AtomicU64::new(u64::MAX), bytes: AtomicU64::new(0) }
    }

    /// Counts a packet. True if so much has passed that the other stream would have been shown.
    pub(crate) fn is_enough_with(&self, packet: &gst::BufferRef) -> bool {
        let time = packet.dts_or_pts().map_or(u64::MAX, gst::ClockTime::nseconds);
        let first = self.first_ns.fetch_min(time, Ordering::Relaxed).min(time);
        let size = packet.size() as u64;
        let bytes = self.bytes.fetch_add(size, Ordering::Relaxed) + size;
        (time != u64::MAX && time - first > LOOKED_AT.nseconds()) || bytes > MOST_BYTES
    }
}

/// Adds the sound of `input` to an `output`, which must not have been started yet, and links it to the muxer.
///
/// The result holds back all sound until video comes. `None` if the file has no sound, or if the sound is
/// lost, which is logged once. Waits until the demuxer has read the head of the file. With `from_zero` sound
/// before the first frame is left out, and the rest is moved with the frames.
///
/// # Errors
/// `MissingElement` if GStreamer lacks a part that every installation has.
pub(super) fn attach(
    output: &launch::Running,
    container: &'static str,
    input: &Path,
    from_zero: bool,
) -> Result<Option<Arc<Gate>>> {
    let pipeline = output.pipeline();
    // A demuxer that looks for sound in a GIF finds no end of it.
    let (Some(mux), true) = (pipeline.by_name("mux"), input.is_file() && !is_picture(input)) else {
        return Ok(None);
    };
    let Some(accepted) = caps_for_sound(&mux) else { return Ok(None) };
    // On its way up from NULL the pipeline would set the branch back to READY.
    output.set_state(gst::State::Ready)?;
    let branch = Branch::new(input, from_zero, Wanted { accepted, container })?;
    pipeline
        .add(&branch.bin)
        .map_err(|_| Error::Usage("a pipeline has an element named \"sound\" already".to_owned()))?;

    let lost = match branch.discover(output) {
        FoundSound::Carried => match branch.link(&mux) {
            Ok(()) => {
                branch.gate.watch(pipeline.by_name("encoded"));
                return Ok(Some(branch.gate));
            }
            Err(reason) => Some(reason),
        },
        FoundSound::Refused { codec } => {
            let wanted = codec_name_for(container);
            let why = if Encoder::for_container(container).is_some() {
                format!(
                    "could not convert it to {wanted} (its decoder may be missing: install gstreamer1.0-libav and \
                     gstreamer1.0-plugins-bad)"
                )
            } else {
                format!("has no encoder for {wanted} (install {})", encode::package_for(container))
            };
            Some(format!("{container} cannot hold {codec}, and GStreamer {why}"))
        }
        FoundSound::Failed(reason) => Some(reason),
        FoundSound::Nothing => match branch.lost_on_the_way() {
            Some(sound) => Some(format!("{sound} cannot be converted to {}", codec_name_for(container))),
            None => unknown::has_audio_packets(input).then(|| {
                "GStreamer does not know its codec (ffmpeg -i FILE -c:v copy FILE.mkv converts it)".to_owned()
            }),
        },
    };
    branch.remove_from(output);
    if let Some(reason) = lost {
        tracing::warn!("the sound of {} is left out: {reason}", text::path(input));
    }
    Ok(None)
}

/// The sound that a muxer accepts, or `None` if it accepts none.
///
/// From the factory: `Element::pad_template` would take over the last reference of a template that an element
/// class has replaced, as webmmux does in GStreamer 1.22 (it leaves it floating), and the class would be left
/// without one.
fn caps_for_sound(mux: &gst::Element) -> Option<gst::Caps> {
    let templates = mux.factory()?.static_pad_templates();
    templates.iter().find(|template| template.name_template() == SOUND_PAD).map(gst::StaticPadTemplate::caps)
}

/// The sound that the output accepts.
struct Wanted {
    /// Codecs of the muxer.
    accepted: gst::Caps,
    /// The extension of its files.
    container: &'static str,
}

/// True for a file with a picture or an animation, by its content.
pub(crate) fn is_picture(path: &Path) -> bool {
    let mut start = Vec::new();
    let read = File::open(path).and_then(|file| file.take(64).read_to_end(&mut start));
    read.is_ok() && still::ending_of(&start).is_some()
}

/// The result of the search for sound in the input.
enum FoundSound {
    /// Sound that the muxer accepts; its first packet waits at the gate.
    Carried,
    /// Sound that it does not accept.
    Refused { codec: String },
    /// No sound.
    Nothing,
    /// The streams are not known.
    Failed(String),
}

/// `filesrc ! parsebin ! queue`, with the queue's end as the pad `src`. Between parsebin and the queue stands
/// what this sound needs.
struct Branch {
    bin: gst::Bin,
    accepted: gst::Caps,
    /// The caps of the first packet, which waits at the gate by then, or `None` if there is no sound.
    ///
    /// The packet holds back the events before it as well: a muxer that is linked while they pass loses some
    /// of them.
    sound: Receiver<Option<gst::Caps>>,
    /// The sound from the demuxer, as soon as there is some.
    given: Arc<OnceLock<String>>,
    gate: Arc<Gate>,
}

impl Branch {
    /// A branch that is not in a pipeline yet.
    fn new(input: &Path, from_zero: bool, wanted: Wanted) -> Result<Self> {
        let bin = gst::Bin::with_name("sound");
        let [source, queue] = [make("filesrc", CORE)?, make("queue", CORE)?];
        let parse = make("parsebin", "gstreamer1.0-plugins-base")?;
        source.set_property("location", input);
        bin.add_many([&source, &parse, &queue]).expect("the bin is new");
        source.link(&parse).expect("filesrc links to parsebin");
        // If the file is open already, only that file is read, as for its video.
        if input.starts_with(OPEN_FILES) {
            keep_to_file(&bin);
        }
        let queue_end = queue.static_pad("src").expect("a queue has a src pad");
        let end = gst::GhostPad::with_target(&queue_end).expect("the pad has no ghost yet");
        bin.add_pad(&end).expect("the bin is new");

        // The first news decides; later news may be lost, but must not block.
        let (heard, sound) = crossbeam_channel::bounded(1);
        let gate = Arc::new(Gate::new((!from_zero).then_some(0), text::path(input)));
        if wanted.container == "avi" {
            gate.warn_if_late();
        }
        let types =
            gst::PadProbeType::BUFFER | gst::PadProbeType::BUFFER_LIST | gst::PadProbeType::EVENT_DOWNSTREAM;
        queue_end.add_probe(types, {
            let (gate, heard) = (gate.clone(), heard.clone());
            move |pad, info| match info.event().map(|event| event.type_()) {
                None => {
                    let _ = heard.try_send(pad.current_caps());
                    launch::guarded(pad, gst::PadProbeReturn::Ok, || gate.pass(pad, info))
                }
                Some(gst::EventType::Eos) => {
                    let _ = heard.try_send(None);
                    gate.end();
                    gst::PadProbeReturn::Ok
                }
                // The pad keeps the demuxer's segment, by which the gate reads times.
                Some(gst::EventType::Segment) => {
                    info.data = Some(gst::PadProbeData::Event(gate::output_segment()));
                    gst::PadProbeReturn::Ok
                }
                // Its times are the demuxer's. Dropped, it would be released twice (GStreamer 1.22).
                Some(gst::EventType::Gap) => gst::PadProbeReturn::Handled,
                Some(_) => gst::PadProbeReturn::Ok,
            }
        });
        let accepted = wanted.accepted.clone();
        let all_shown = Arc::new(AtomicBool::new(false));
        bin.connect_deep_element_added({
            let all_shown = all_shown.clone();
            move |_, _, element| {
                if element.factory().is_some_and(|factory| SHOW_ALL_FIRST.contains(&factory.name().as_str()))
                {
                    all_shown.store(true, Ordering::Relaxed);
                }
            }
        });
        pass_over_streams_aware(&parse);
        parse.connect("unknown-type", false, {
            let heard = heard.clone();
            move |values| {
                let caps = values.get(2).and_then(|caps| caps.get::<gst::Caps>().ok());
                if let Some(caps) = caps.filter(is_audio) {
                    let _ = heard.try_send(Some(caps));
                }
                None
            }
        });
        // Weak: the closure belongs to parsebin, which belongs to the bin.
        let (weak_bin, weak_queue, gate_of_pads) = (bin.downgrade(), queue.downgrade(), gate.clone());
        let given = Arc::new(OnceLock::new());
        let first_given = given.clone();
        parse.connect_pad_added(move |_, pad| {
            note_first(pad, first_given.clone());
            if let (Some(bin), Some(queue)) = (weak_bin.upgrade(), weak_queue.upgrade())
                && !take(pad, &bin, &queue, &wanted, &gate_of_pads)
            {
                lead_nowhere(pad, &queue, heard.clone(), all_shown.clone());
            }
        });
        Ok(Self { bin, accepted, sound, given, gate })
    }

    /// Starts the branch alone, and waits until it knows what the file holds.
    fn discover(&self, output: &launch::Running) -> FoundSound {
        if self.bin.set_state(gst::State::Paused).is_err() {
            return FoundSound::Failed("the file cannot be opened a second time".to_owned());
        }
        let deadline = Instant::now() + DISCOVERY;
        while Instant::now() < deadline {
            // Only this branch runs yet, so every error is its own.
            if let Err(error) = output.wait(Duration::ZERO) {
                return FoundSound::Failed(error.to_string());
            }
            match self.sound.recv_timeout(POLL) {
                Ok(Some(caps)) if self.accepted.can_intersect(&caps) => return FoundSound::Carried,
                Ok(Some(caps)) => return FoundSound::Refused { codec: codec_name(&caps) },
                Ok(None) => return FoundSound::Nothing,
                Err(_) => {}
            }
        }
        FoundSound::Failed(format!("its streams were not found within {} s", DISCOVERY.as_secs()))
    }

    /// The sound that had packets, but none at the end of the branch: for example one with more channels than
    /// an encoder accepts.
    fn lost_on_the_way(&self) -> Option<&str> {
        self.given.get().map(String::as_str)
    }

    fn link(&self, mux: &gst::Element) -> Result<(), String> {
        let end = self.bin.static_pad("src").expect("made in new");
        let pad = mux.request_pad_simple(SOUND_PAD).ok_or("the muxer takes no sound beside video")?;
        match end.link(&pad) {
            Ok(_) => Ok(()),
            Err(error) => {
                mux.release_request_pad(&pad);
                Err(format!("the muxer does not take it ({error})"))
            }
        }
    }

    fn remove_from(&self, output: &launch::Running) {
        self.gate.open();
        let _ = self.bin.set_state(gst::State::Null);
        let _ = output.pipeline().remove(&self.bin);
        // Its errors are not the video's. Nothing else has run yet.
        output.news().try_iter().for_each(drop);
    }
}

/// Notes the sound of a pad, with its first packet.
fn note_first(pad: &gst::Pad, given: Arc<OnceLock<String>>) {
    pad.add_probe(gst::PadProbeType::BUFFER | gst::PadProbeType::BUFFER_LIST, move |pad, _| {
        if let Some(caps) = pad.current_caps().filter(is_audio) {
            let channels = caps.structure(0).and_then(|structure| structure.get::<i32>("channels").ok());
            let of = channels.map_or_else(String::new, |channels| format!(" of {channels} channels"));
            let _ = given.set(codec_name(&caps) + &of);
        }
        gst::PadProbeReturn::Remove
    });
}

fn is_audio(caps: &gst::Caps) -> bool {
    caps.structure(0).is_some_and(|structure| structure.name().starts_with("audio/"))
}

/// Keeps parsebin from the demuxers of adaptive streams that download by themselves: they read no files, and
/// decodebin, which reads the video, skips them too.
fn pass_over_streams_aware(parse: &gst::Element) {
    let Some(signal) = glib::subclass::SignalId::lookup("autoplug-select", parse.type_()) else { return };
    // The type has no bindings.
    let Some(answer) = glib::EnumClass::with_type(signal.query().return_type().type_()) else { return };
    parse.connect("autoplug-select", false, move |values| {
        let factory = values.last().and_then(|value| value.get::<gst::ElementFactory>().ok());
        let plugin = factory.and_then(|factory| factory.plugin_name());
        let is_passed_over = plugin.is_some_and(|plugin| plugin == "adaptivedemux2");
        answer.to_value_by_nick(if is_passed_over { "skip" } else { "try" })
    });
}

/// Links the first audio pad to the queue, through the elements that it needs. True if it was this one.
///
/// On parsebin's thread, before data flow.
fn take(pad: &gst::Pad, bin: &gst::Bin, queue: &gst::Element, wanted: &Wanted, gate: &Gate) -> bool {
    // Not fixed before the parser has seen a packet, but the codec is known.
    let caps = pad.current_caps().unwrap_or_else(|| pad.query_caps(None));
    let entry = queue.static_pad("sink").expect("a queue has a sink pad");
    // An encoder is linked to the queue before it is linked to a pad.
    if !is_audio(&caps) || entry.is_linked() {
        return false;
    }
    let aac = gst::Caps::builder("audio/mpeg").field("mpegversion", gst::List::new([2, 4])).build();
    if caps.can_intersect(&aac) && wanted.accepted.can_intersect(&aac) {
        return unpack_aac(pad, bin, queue);
    }
    let is_damaged = is_damaged_in(&caps, wanted.container);
    if wanted.accepted.can_intersect(&caps) && !is_damaged {
        return pad.link(&entry).is_ok();
    }
    let Some(encoder) = Encoder::for_container(wanted.container) else {
        return pad.link(&entry).is_ok();
    };
    match encoder.link(pad, bin, queue) {
        Ok(()) => {
            gate.set_delay(encoder.delay_ns());
            let (codec, container) = (codec_name(&caps), wanted.container);
            let why =
                if is_damaged { "is not read correctly by all players in an" } else { "does not fit an" };
            tracing::info!(
                "{codec} {why} .{container}: the sound is encoded again as {}",
                codec_name_for(container)
            );
            true
        }
        Err(error) => {
            tracing::debug!("the sound cannot be encoded again: {error}");
            !entry.is_linked() && pad.link(&entry).is_ok()
        }
    }
}

/// Drops the data of a pad, since a demuxer fails if all of its pads refuse data. Reports that there is no
/// sound once sound should have shown.
fn lead_nowhere(
    pad: &gst::Pad,
    queue: &gst::Element,
    heard: Sender<Option<gst::Caps>>,
    all_shown: Arc<AtomicBool>,
) {
    let entry = queue.static_pad("sink").expect("a queue has a sink pad").downgrade();
    let types =
        gst::PadProbeType::BUFFER | gst::PadProbeType::BUFFER_LIST | gst::PadProbeType::EVENT_DOWNSTREAM;
    let passed = Passed::new();
    pad.add_probe(types, move |_, info| {
        let is_end = match info.event() {
            Some(event) if event.type_() == gst::EventType::Eos => true,
            Some(_) => return gst::PadProbeReturn::Ok,
            None => false,
        };
        let is_enough = match &info.data {
            _ if is_end || all_shown.load(Ordering::Relaxed) => true,
            Some(gst::PadProbeData::Buffer(packet)) => passed.is_enough_with(packet),
            Some(gst::PadProbeData::BufferList(packets)) => {
                packets.iter().any(|packet| passed.is_enough_with(packet))
            }
            _ => false,
        };
        if is_enough && entry.upgrade().is_none_or(|entry| !entry.is_linked()) {
            let _ = heard.try_send(None);
        }
        if is_end { gst::PadProbeReturn::Ok } else { gst::PadProbeReturn::Drop }
    });
}

/// Links AAC so that it arrives in the form of files: transport streams have a header on each packet. True if
/// that worked.
fn unpack_aac(pad: &gst::Pad, bin: &gst::Bin, queue: &gst::Element) -> bool {
    let Ok(parse) = make("aacparse", "gstreamer1.0-plugins-good") else { return false };
    let raw = gst::Caps::builder("audio/mpeg").field("stream-format", "raw").build();
    let filter = gst::ElementFactory::make("capsfilter").property("caps", raw).build();
    filter.is_ok_and(|filter| {
        bin.add_many([&parse, &filter]).is_ok()
            && gst::Element::link_many([&parse, &filter, queue]).is_ok()
            && [&filter, &parse].iter().all(|element| element.sync_state_with_parent().is_ok())
            && parse.static_pad("sink").is_some_and(|sink| pad.link(&sink).is_ok())
    })
}

fn make(factory: &str, package: &'static str) -> Result<gst::Element> {
    let made = gst::ElementFactory::make(factory).build();
    made.map_err(|_| Error::MissingElement { element: factory.to_owned(), package })
}
