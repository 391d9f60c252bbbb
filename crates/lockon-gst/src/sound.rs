//! The sound of the input file, carried into the output file as it is: the first audio stream, not decoded.
//!
//! A branch `filesrc ! parsebin ! queue` beside the video reads the input a second time, on threads of its
//! own, and ends in the muxer. [`attach`] learns what the file holds before the first frame is pushed,
//! because a muxer must know all of its pads by then; nothing is added to the pipeline where there is no
//! sound, or none that the container takes.
//!
//! Who waits for whom: the muxer interleaves by time, so video waits in it for sound and sound for video.
//! [`Gate`] holds each packet of sound back until the video has come as far. At the end no packet that begins
//! after the last frame is in the muxer then, and the sound ends with the picture, however early that is.

use std::path::Path;
use std::sync::Arc;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, Sender};
use gst::prelude::*;

use super::launch;
use crate::source::keep_to_file;
use lockon_core::error::{Error, Result};
use lockon_core::text;

/// How long to wait for the demuxer to tell what a file holds. It reads the file's head only; a network drive
/// may be slow.
const DISCOVERY: Duration = Duration::from_secs(10);
/// How often waiting for the demuxer, or for the video, is interrupted to look whether it is still worth
/// waiting.
const POLL: Duration = Duration::from_millis(50);

/// The muxers' pads for sound.
const SOUND_PAD: &str = "audio_%u";

/// Where the system has the files that are open.
const OPEN_FILES: &str = "/proc/self/fd";

/// Package of the elements that are part of GStreamer itself.
const CORE: &str = "libgstreamer1.0-0";

/// Adds the sound of `input` to an `output`, which must not have been started yet, and links it to the muxer.
///
/// The result holds back all sound until it is told of video. `None` if the file has no sound, or if the
/// container cannot hold it, which is logged once. Waits until the demuxer has read the head of the file.
/// With `from_zero` the sound that comes before the first frame is left out, and the rest is moved as the
/// frames are.
///
/// # Errors
/// `MissingElement` if GStreamer lacks a part that every installation has.
pub(super) fn attach(
    output: &launch::Running,
    container: &str,
    input: &Path,
    from_zero: bool,
) -> Result<Option<Arc<Gate>>> {
    let pipeline = output.pipeline();
    let (Some(mux), true) = (pipeline.by_name("mux"), input.is_file()) else { return Ok(None) };
    let Some(accepted) = caps_for_sound(&mux) else { return Ok(None) };
    // On its way up from NULL the pipeline would take the branch back to READY with it.
    output.set_state(gst::State::Ready)?;
    let branch = Branch::new(input, from_zero)?;
    pipeline
        .add(&branch.bin)
        .map_err(|_| Error::Usage("a pipeline has an element named \"sound\" already".to_owned()))?;

    let refused = match branch.discover(output, &accepted) {
        FoundSound::Carried => match branch.link(&mux) {
            Ok(()) => {
                branch.gate.watch(pipeline.by_name("encoded"));
                return Ok(Some(branch.gate));
            }
            Err(reason) => Some(reason),
        },
        FoundSound::Refused { codec } => Some(format!("{container} cannot hold {codec}")),
        FoundSound::Failed(reason) => Some(reason),
        FoundSound::Nothing => None,
    };
    branch.remove_from(output);
    if let Some(reason) = refused {
        tracing::warn!("the sound of {} is left out: {reason}", text::path(input));
    }
    Ok(None)
}

/// The sound that a muxer takes, or `None` if it takes none.
///
/// From the factory: `Element::pad_template` would take over the last reference of a template that an element
/// class has replaced, as webmmux does in GStreamer 1.22 (it leaves it floating), and the class would be left
/// without one.
fn caps_for_sound(mux: &gst::Element) -> Option<gst::Caps> {
    let templates = mux.factory()?.static_pad_templates();
    templates.iter().find(|template| template.name_template() == SOUND_PAD).map(gst::StaticPadTemplate::caps)
}

/// What the input has for us.
enum FoundSound {
    /// Sound that the muxer takes; it lies in the branch's queue.
    Carried,
    /// Sound that it does not take.
    Refused { codec: String },
    /// No sound.
    Nothing,
    /// We could not find out.
    Failed(String),
}

/// `filesrc ! parsebin ! [aacparse !] queue`, with the queue's end as the pad `src`.
struct Branch {
    bin: gst::Bin,
    /// The caps of the first packet, which waits at the gate by then, or `None` if there is no sound.
    ///
    /// That packet holds back the events before it as well: a muxer that is linked while they pass loses some
    /// of them.
    sound: Receiver<Option<gst::Caps>>,
    gate: Arc<Gate>,
}

impl Branch {
    /// A branch that is not in a pipeline yet.
    fn new(input: &Path, from_zero: bool) -> Result<Self> {
        let bin = gst::Bin::with_name("sound");
        let [source, queue] = [make("filesrc", CORE)?, make("queue", CORE)?];
        let parse = make("parsebin", "gstreamer1.0-plugins-base")?;
        source.set_property("location", input);
        bin.add_many([&source, &parse, &queue]).expect("the bin is new");
        source.link(&parse).expect("filesrc links to parsebin");
        // A file that is open already is read alone, as its video is.
        if input.starts_with(OPEN_FILES) {
            keep_to_file(&bin);
        }
        let queue_end = queue.static_pad("src").expect("a queue has a src pad");
        let end = gst::GhostPad::with_target(&queue_end).expect("the pad has no ghost yet");
        bin.add_pad(&end).expect("the bin is new");

        // The first thing heard decides; what comes after it may be lost, but must not block.
        let (heard, sound) = crossbeam_channel::bounded(1);
        let gate = Arc::new(Gate::default());
        gate.lock().origin = (!from_zero).then_some(0);
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
                    gst::PadProbeReturn::Ok
                }
                Some(_) => gst::PadProbeReturn::Ok,
            }
        });
        // Weak: the closure belongs to parsebin, which belongs to the bin.
        let (weak_bin, weak_queue) = (bin.downgrade(), queue.downgrade());
        parse.connect_pad_added(move |_, pad| {
            if let (Some(bin), Some(queue)) = (weak_bin.upgrade(), weak_queue.upgrade())
                && !take(pad, &bin, &queue)
            {
                lead_nowhere(pad, &queue, heard.clone());
            }
        });
        Ok(Self { bin, sound, gate })
    }

    /// Starts the branch alone, and waits until it knows what the file holds. `accepted` is what the muxer
    /// takes.
    fn discover(&self, output: &launch::Running, accepted: &gst::Caps) -> FoundSound {
        if self.bin.set_state(gst::State::Paused).is_err() {
            return FoundSound::Failed("the file cannot be opened a second time".to_owned());
        }
        let deadline = Instant::now() + DISCOVERY;
        while Instant::now() < deadline {
            // Only this branch runs yet, so that what fails can only be its own.
            if let Err(error) = output.wait(Duration::ZERO) {
                return FoundSound::Failed(error.to_string());
            }
            match self.sound.recv_timeout(POLL) {
                Ok(Some(caps)) if accepted.can_intersect(&caps) => return FoundSound::Carried,
                Ok(Some(caps)) => return FoundSound::Refused { codec: codec_name(&caps) },
                Ok(None) => return FoundSound::Nothing,
                Err(_) => {}
            }
        }
        FoundSound::Failed(format!("its streams were not known after {} s", DISCOVERY.as_secs()))
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
        // What it said while it failed is no concern of the video's. Nothing else has run yet.
        output.news().try_iter().for_each(drop);
    }
}

/// Links the first audio pad to the queue. True if it was this one.
///
/// On parsebin's thread, before data flow.
fn take(pad: &gst::Pad, bin: &gst::Bin, queue: &gst::Element) -> bool {
    // Not fixed yet where the parser has seen no packet, but the codec is known.
    let caps = pad.current_caps().unwrap_or_else(|| pad.query_caps(None));
    let is_audio = caps.structure(0).is_some_and(|s| s.name().starts_with("audio/"));
    let entry = queue.static_pad("sink").expect("a queue has a sink pad");
    if !is_audio || entry.is_linked() {
        return false;
    }
    let aac = gst::Caps::builder("audio/mpeg").field("mpegversion", gst::List::new([2, 4])).build();
    if caps.can_intersect(&aac) { unpack_aac(pad, bin, queue) } else { pad.link(&entry).is_ok() }
}

/// Drops the data of a pad, since a demuxer fails once none of its pads takes any.
///
/// parsebin lets data flow when all of its pads have been added: if sound has none by then, there is no
/// sound.
fn lead_nowhere(pad: &gst::Pad, queue: &gst::Element, heard: Sender<Option<gst::Caps>>) {
    let entry = queue.static_pad("sink").expect("a queue has a sink pad").downgrade();
    let types =
        gst::PadProbeType::BUFFER | gst::PadProbeType::BUFFER_LIST | gst::PadProbeType::EVENT_DOWNSTREAM;
    pad.add_probe(types, move |_, info| {
        let event = info.event().map(|event| event.type_());
        if event.is_none_or(|event| event == gst::EventType::Eos)
            && entry.upgrade().is_none_or(|entry| !entry.is_linked())
        {
            let _ = heard.try_send(None);
        }
        if event.is_none() { gst::PadProbeReturn::Drop } else { gst::PadProbeReturn::Ok }
    });
}

/// Links AAC so that it arrives as files keep it: transport streams have a header on each packet. True if
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

/// A name that people know, else the caps' own.
fn codec_name(caps: &gst::Caps) -> String {
    let Some(structure) = caps.structure(0) else { return "sound of unknown type".to_owned() };
    match (structure.name().as_str(), structure.get::<i32>("mpegversion"), structure.get::<i32>("layer")) {
        ("audio/mpeg", Ok(1), Ok(3)) => "MP3".to_owned(),
        ("audio/mpeg", Ok(1), Ok(layer)) => format!("MPEG audio layer {layer}"),
        ("audio/mpeg", Ok(2 | 4), _) => "AAC".to_owned(),
        ("audio/x-raw", ..) => "uncompressed sound".to_owned(),
        (name, ..) => name.trim_start_matches("audio/").trim_start_matches("x-").to_owned(),
    }
}

/// Lets sound pass as far as the video has come.
#[derive(Default)]
pub(super) struct Gate {
    state: Mutex<GateState>,
    changed: Condvar,
}

#[derive(Default)]
struct GateState {
    /// Time of the output's beginning in the input, in nanoseconds, once that is known.
    origin: Option<u64>,
    /// End of the last frame that was pushed, in the output.
    video_end: u64,
    /// When the last packet began that came to the gate.
    last: u64,
    /// No further frame comes.
    is_closed: bool,
    /// The pipeline is going down: nobody waits any more.
    is_open: bool,
    /// The queue in which encoded video waits for the muxer.
    video_queue: Option<gst::Element>,
}

impl Gate {
    /// Names the queue of encoded video, whose being full shows that the muxer waits for sound.
    pub(super) fn watch(&self, queue: Option<gst::Element>) {
        self.lock().video_queue = queue;
    }

    /// A frame was pushed that ends at `end_ns` in the output, which begins at `origin_ns` of the input.
    pub(super) fn video_reached(&self, origin_ns: u64, end_ns: u64) {
        let mut state = self.lock();
        state.origin = Some(origin_ns);
        state.video_end = state.video_end.max(end_ns);
        self.changed.notify_all();
    }

    /// The last frame was pushed: sound that begins after its end is cut off.
    pub(super) fn close(&self) {
        self.lock().is_closed = true;
        self.changed.notify_all();
    }

    /// Lets everything go, and drops it, so that the pipeline can stop. Comes before setting it to NULL.
    pub(super) fn open(&self) {
        self.lock().is_open = true;
        self.changed.notify_all();
    }

    /// On the queue's thread, for each packet of sound: waits until the packet is due.
    fn pass(&self, pad: &gst::Pad, info: &mut gst::PadProbeInfo) -> gst::PadProbeReturn {
        let first = match &info.data {
            Some(gst::PadProbeData::Buffer(packet)) => Some(packet.as_ref()),
            Some(gst::PadProbeData::BufferList(packets)) => packets.get(0),
            _ => None,
        };
        let mut state = self.lock();
        // Packets without a time follow the one before.
        let starts = first.and_then(|packet| running_time(pad, packet.pts())).unwrap_or(state.last);
        state.last = starts;
        loop {
            if state.is_open {
                return gst::PadProbeReturn::Drop;
            }
            if let Some(origin) = state.origin {
                if starts < origin {
                    return gst::PadProbeReturn::Drop;
                }
                // Sound that begins late, or pauses: the muxer wants to see it before it goes on with the
                // video, and video must not wait for ever. It may then lie in the muxer when the video is cut
                // short, which we accept.
                let video_waits = state.video_queue.as_ref().is_some_and(is_full) && !state.is_closed;
                if starts - origin < state.video_end || video_waits {
                    move_back(info, origin);
                    return gst::PadProbeReturn::Ok;
                }
            }
            if state.is_closed {
                // The queue must be able to go on when the event arrives at the muxer.
                drop(state);
                pad.push_event(gst::event::Eos::new());
                return gst::PadProbeReturn::Drop;
            }
            let waited = self.changed.wait_timeout(state, POLL);
            (state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn lock(&self) -> MutexGuard<'_, GateState> {
        // The state is whole at every moment: a panic elsewhere leaves nothing half done.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Time since the beginning of the video, which is what the muxer sorts by. Zero for what precedes the
/// beginning.
fn running_time(pad: &gst::Pad, pts: Option<gst::ClockTime>) -> Option<u64> {
    let segment = pad.sticky_event::<gst::event::Segment>(0)?;
    let segment = segment.segment().downcast_ref::<gst::ClockTime>()?.to_owned();
    match segment.to_running_time_full(pts?)? {
        gst::Signed::Positive(time) => Some(time.nseconds()),
        gst::Signed::Negative(_) => Some(0),
    }
}

/// Makes packets so much earlier.
fn move_back(info: &mut gst::PadProbeInfo, by_ns: u64) {
    let by = gst::ClockTime::from_nseconds(by_ns);
    let shift = |packet: &mut gst::BufferRef| {
        packet.set_pts(packet.pts().map(|pts| pts.saturating_sub(by)));
        packet.set_dts(packet.dts().map(|dts| dts.saturating_sub(by)));
    };
    match &mut info.data {
        _ if by_ns == 0 => {}
        Some(gst::PadProbeData::Buffer(packet)) => shift(packet.make_mut()),
        Some(gst::PadProbeData::BufferList(packets)) => {
            packets.make_mut().foreach_mut(|mut packet, _| {
                shift(packet.make_mut());
                std::ops::ControlFlow::Continue(Some(packet))
            });
        }
        _ => {}
    }
}

fn is_full(queue: &gst::Element) -> bool {
    queue.property::<u64>("current-level-time") >= queue.property::<u64>("max-size-time")
        || queue.property::<u32>("current-level-bytes") >= queue.property::<u32>("max-size-bytes")
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;
    use crate::sink::{VideoSink, tests as sinks};
    use crate::testing::make_clip;
    use lockon_core::config::View;

    /// 2 s of video with sound of that many buffers of 20 ms, encoded by `audio`.
    fn clip(folder: &Path, name: &str, mux: &str, audio: &str, buffers: u32) -> PathBuf {
        let path = folder.join(name);
        make_clip(
            &path,
            &format!(
                "videotestsrc num-buffers=50 ! video/x-raw,width=64,height=48,framerate=25/1 ! x264enc ! queue !
                 {mux} name=mux ! filesink name=file
                 audiotestsrc wave=white-noise num-buffers={buffers} samplesperbuffer=960 !
                 audio/x-raw,rate=48000,channels=2 ! audioconvert ! {audio} ! queue ! mux."
            ),
        );
        path
    }

    /// Times and bytes of the packets of a file's first audio stream.
    fn packets(path: &Path) -> Vec<(u64, Vec<u8>)> {
        let mut launch = launch::Launch::new(
            "test",
            "filesrc name=file ! parsebin name=parse  fakesink name=out async=false",
        );
        launch.set("file", "location", path.display());
        let pipeline = launch::Running::new(launch.build().unwrap());
        let out = pipeline.pipeline().by_name("out").unwrap().static_pad("sink").unwrap();
        let (sender, packets) = crossbeam_channel::unbounded();
        out.add_probe(gst::PadProbeType::BUFFER, move |pad, info| {
            let packet = info.buffer().unwrap();
            let time = running_time(pad, packet.pts()).unwrap();
            let _ = sender.send((time, packet.map_readable().unwrap().to_vec()));
            gst::PadProbeReturn::Ok
        });
        let parse = pipeline.pipeline().by_name("parse").unwrap();
        parse.connect_pad_added(move |_, pad| {
            let caps = pad.current_caps().unwrap_or_else(|| pad.query_caps(None));
            if caps.to_string().starts_with("audio/") {
                pad.link(&out).unwrap();
            } else {
                pad.add_probe(gst::PadProbeType::BUFFER, |_, _| gst::PadProbeReturn::Drop);
            }
        });
        // Once for all pads, after their data have gone through.
        let (done, drained) = crossbeam_channel::bounded(1);
        parse.connect("drained", false, move |_| {
            let _ = done.try_send(());
            None
        });
        pipeline.set_state(gst::State::Playing).unwrap();
        drained.recv_timeout(Duration::from_secs(10)).unwrap();
        packets.try_iter().collect()
    }

    /// Writes `frames` frames of 40 ms with the sound of `input`.
    fn write(output: &Path, input: &Path, frames: u64) {
        let format = sinks::format("I420", 64, 48, (25, 1));
        let mut sink = VideoSink::file(output, View::Overlay, Some(input.to_owned())).unwrap();
        sinks::write(&mut sink, &format, &sinks::constant(frames, (25, 1))).unwrap();
        assert_eq!(sinks::decode(output).len(), frames as usize, "{}", output.display());
    }

    const AAC: &str = "avenc_aac ! aacparse";
    const MP3: &str = "lamemp3enc ! mpegaudioparse";
    const PCM: &str = "audio/x-raw,format=S16LE";
    const OPUS: &str = "opusenc ! opusparse";

    /// The packets of `output` are the first of `input`, at the same times.
    fn assert_carried(input: &[(u64, Vec<u8>)], output: &[(u64, Vec<u8>)], what: &str) {
        assert!(
            !output.is_empty() && output.len() <= input.len(),
            "{what}: {} of {}",
            output.len(),
            input.len()
        );
        for (i, (a, b)) in input.iter().zip(output).enumerate() {
            assert_eq!(a.1, b.1, "{what}: bytes of packet {i}");
            assert!(a.0.abs_diff(b.0) < 1_500_000, "{what}: packet {i} at {} instead of {}", b.0, a.0);
        }
    }

    #[test]
    fn sound_is_carried_unchanged() {
        let folder = tempfile::tempdir().unwrap();
        for (name, mux, audio, outputs) in [
            ("aac.mp4", "mp4mux", AAC, &["mp4", "mkv", "avi"][..]),
            ("mp3.mp4", "mp4mux", MP3, &["mp4", "mkv"]),
            ("mp3.avi", "avimux", MP3, &["mkv", "avi"]),
            ("opus.mkv", "matroskamux", OPUS, &["mp4", "webm"]),
            ("pcm.mkv", "matroskamux", PCM, &["mkv", "avi"]),
        ] {
            // A little shorter than the video, so that nothing is cut.
            let input = clip(folder.path(), name, mux, audio, 95);
            let before = packets(&input);
            for extension in outputs {
                let output = folder.path().join(format!("{name}.{extension}"));
                write(&output, &input, 50);
                let (after, what) = (packets(&output), format!("{name} to {extension}"));
                if *extension == "avi" {
                    // AVI has no times, and PCM no packets.
                    let bytes = |p: &[(u64, Vec<u8>)]| p.iter().flat_map(|p| p.1.clone()).collect::<Vec<_>>();
                    assert_eq!(bytes(&before), bytes(&after), "{what}");
                } else {
                    assert_eq!(before.len(), after.len(), "{what}: number of packets");
                    assert_carried(&before, &after, &what);
                }
            }
        }
    }

    #[test]
    fn sound_is_cut_where_the_video_ends() {
        let folder = tempfile::tempdir().unwrap();
        for (name, mux, audio) in
            [("aac.mp4", "mp4mux", AAC), ("mp3.mkv", "matroskamux", MP3), ("pcm.avi", "avimux", PCM)]
        {
            // 10 s of sound; the run stops after 0.8 s of video.
            let input = clip(folder.path(), name, mux, audio, 500);
            let output = folder.path().join("cut.mkv");
            write(&output, &input, 20);
            let (before, after) = (packets(&input), packets(&output));
            assert_carried(&before, &after, name);
            let last = after.last().unwrap().0;
            assert!((700_000_000..800_000_000).contains(&last), "{name}: last packet at {last}");
        }
    }

    #[test]
    fn sound_of_a_part_begins_and_ends_with_it() {
        let folder = tempfile::tempdir().unwrap();
        for (name, mux, audio) in
            [("aac.mp4", "mp4mux", AAC), ("mp3.mkv", "matroskamux", MP3), ("pcm.avi", "avimux", PCM)]
        {
            // 10 s of sound; frames from 3 s to 4 s.
            let input = clip(folder.path(), name, mux, audio, 500);
            let before = packets(&input);
            let format = sinks::format("I420", 64, 48, (25, 1));
            let times: Vec<u64> = (75..100).map(|frame| frame * 40_000_000).collect();
            for extension in ["mp4", "mkv"] {
                if extension == "mp4" && audio == PCM {
                    continue;
                }
                let output = folder.path().join("part").with_extension(extension);
                let mut sink =
                    VideoSink::file(&output, View::Overlay, Some(input.clone())).unwrap().from_zero();
                sinks::write(&mut sink, &format, &times).unwrap();
                assert_eq!(sinks::decode(&output).len(), 25, "{name} to {extension}");
                let after = packets(&output);
                // The packet that begins at 3 s, or the next.
                let first = before.iter().position(|packet| packet.0 >= 3_000_000_000).unwrap();
                assert!(!after.is_empty(), "{name} to {extension}");
                for (i, (a, b)) in before[first..].iter().zip(&after).enumerate() {
                    let moved = a.0 - 3_000_000_000;
                    assert_eq!(a.1, b.1, "{name} to {extension}: bytes of packet {i}");
                    assert!(
                        moved.abs_diff(b.0) < 1_500_000,
                        "{name} to {extension}: {i} at {}, not {moved}",
                        b.0
                    );
                }
                let last = after.last().unwrap().0;
                assert!((900_000_000..1_000_000_000).contains(&last), "{name} to {extension}: {last}");
            }
        }
    }

    #[test]
    fn sound_that_ends_early_or_begins_late_holds_nothing_up() {
        let folder = tempfile::tempdir().unwrap();
        let short = clip(folder.path(), "short.mkv", "matroskamux", AAC, 10);
        let output = folder.path().join("out.mkv");
        write(&output, &short, 300);
        let (before, after) = (packets(&short), packets(&output));
        assert_eq!(before.len(), after.len(), "packets of sound shorter than the video");
        assert_carried(&before, &after, "short");

        // Sound from 15 s on: later than the queue of encoded video is long.
        let late = folder.path().join("late.mkv");
        make_clip(
            &late,
            &format!(
                "videotestsrc num-buffers=50 ! video/x-raw,width=64,height=48,framerate=25/1 ! x264enc ! queue !
                 matroskamux name=mux ! filesink name=file
                 audiotestsrc num-buffers=250 samplesperbuffer=960 timestamp-offset=15000000000 !
                 audio/x-raw,rate=48000,channels=2 ! audioconvert ! {AAC} ! queue ! mux."
            ),
        );
        for (extension, frames) in [("mp4", 500), ("mkv", 500), ("mkv", 30)] {
            let output = folder.path().join("late").with_extension(format!("{frames}.{extension}"));
            let started = Instant::now();
            write(&output, &late, frames);
            assert!(started.elapsed() < Duration::from_secs(10), "{extension}: {:?}", started.elapsed());
            let sound = packets(&output);
            if frames == 30 {
                assert!(sound.is_empty(), "sound after the end of the video");
            } else {
                assert_carried(&packets(&late), &sound, extension);
            }
        }
    }

    #[test]
    fn sound_that_the_container_cannot_hold_is_left_out() {
        let folder = tempfile::tempdir().unwrap();
        let input = clip(folder.path(), "pcm.mkv", "matroskamux", PCM, 100);
        let output = folder.path().join("out.webm");
        write(&output, &input, 50);
        assert!(packets(&output).is_empty());

        let silent = folder.path().join("silent.mkv");
        write(&silent, Path::new("/nowhere/at/all.mp4"), 5);
        let output = folder.path().join("out.mp4");
        write(&output, &silent, 50);
        assert!(packets(&output).is_empty());
        // What is no video at all has no sound either.
        let text = folder.path().join("notes.mp4");
        std::fs::write(&text, "not a video").unwrap();
        write(&output, &text, 10);
    }

    #[test]
    fn adts_headers_are_taken_off_for_files() {
        let folder = tempfile::tempdir().unwrap();
        let input = clip(folder.path(), "aac.ts", "mpegtsmux", AAC, 100);
        let output = folder.path().join("out.mp4");
        write(&output, &input, 50);
        let (before, after) = (packets(&input), packets(&output));
        // 7 bytes of header, then the same.
        assert!(!after.is_empty() && before.iter().zip(&after).all(|(a, b)| a.1[7..] == b.1[..]));
    }

    #[test]
    fn a_sink_with_sound_dropped_in_the_middle_stops() {
        let folder = tempfile::tempdir().unwrap();
        let input = clip(folder.path(), "long.mp4", "mp4mux", AAC, 500);
        let format = sinks::format("I420", 64, 48, (25, 1));
        for frames in [0, 1, 10] {
            let output = folder.path().join("out.mp4");
            let mut sink = VideoSink::file(&output, View::Overlay, Some(input.clone())).unwrap();
            let started = Instant::now();
            sinks::begin_and_deliver(&mut sink, &format, &sinks::constant(frames, (25, 1))).unwrap();
            drop(sink);
            assert!(started.elapsed() < Duration::from_secs(3), "{frames}: {:?}", started.elapsed());
        }
    }
}
