//! Sound from file to file: which packets arrive, and when.

use std::path::PathBuf;

use super::*;
use crate::sink::{VideoSink, tests as sinks};
use crate::source::{Decoder, Input, SourceSpec, VideoSource};
use crate::testing::make_clip;
use lockon_core::config::View;
use lockon_core::control::Control;
use lockon_core::ports::{Next, Sink, Source};
use lockon_core::results::Summary;

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

/// When a player would play what has that time, in nanoseconds; zero for what it leaves out.
fn running_time(pad: &gst::Pad, pts: Option<gst::ClockTime>) -> Option<u64> {
    let segment = pad.sticky_event::<gst::event::Segment>(0)?;
    let segment = segment.segment().downcast_ref::<gst::ClockTime>()?.to_owned();
    Some(segment.to_running_time_full(pts?)?.positive().map_or(0, gst::ClockTime::nseconds))
}

/// Times and bytes of the packets of a file's first audio stream.
fn packets(path: &Path) -> Vec<(u64, Vec<u8>)> {
    sound_of(path).1
}

/// The codec of a file's first audio stream, and its packets.
fn sound_of(path: &Path) -> (String, Vec<(u64, Vec<u8>)>) {
    let mut launch =
        launch::Launch::new("test", "filesrc name=file ! parsebin name=parse  fakesink name=out async=false");
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
    let sink = out.clone();
    parse.connect_pad_added(move |_, pad| {
        let caps = pad.current_caps().unwrap_or_else(|| pad.query_caps(None));
        if caps.to_string().starts_with("audio/") {
            pad.link(&sink).unwrap();
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
    let codec = out.current_caps().map_or_else(String::new, |caps| codec_name(&caps));
    (codec, packets.try_iter().collect())
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
    assert!(!output.is_empty() && output.len() <= input.len(), "{what}: {} of {}", output.len(), input.len());
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
        ("opus.mkv", "matroskamux", OPUS, &["mkv", "webm"]),
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
            let mut sink = VideoSink::file(&output, View::Overlay, Some(input.clone())).unwrap().from_zero();
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
fn a_file_without_sound_is_written_without_sound() {
    let folder = tempfile::tempdir().unwrap();
    let silent = folder.path().join("silent.mkv");
    write(&silent, Path::new("/nowhere/at/all.mp4"), 5);
    let output = folder.path().join("out.mp4");
    write(&output, &silent, 50);
    assert!(packets(&output).is_empty());
    // A text has no sound either.
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

const MS: u64 = 1_000_000;

/// A file in which pictures are white and sound is loud for 200 ms from 1 s after the later of both begins.
/// Pictures begin at the first time, sound at the second, in milliseconds.
pub(crate) fn marked(path: &Path, mux: &str, video: &str, audio: &str, starts: (u64, u64)) {
    let mut launch = launch::Launch::new(
        "marked",
        &format!(
            "appsrc name=video format=time max-bytes=0
             caps=video/x-raw,format=I420,width=64,height=48,framerate=25/1 ! {video} ! queue !
             {mux} name=mux ! filesink name=file
             appsrc name=audio format=time max-bytes=0
             caps=audio/x-raw,format=S16LE,layout=interleaved,rate=48000,channels=2 !
             audioconvert ! audioresample ! {audio} ! queue ! mux."
        ),
    );
    launch.set("file", "location", path.display());
    let pipeline = launch.build().unwrap();
    let mark = starts.0.max(starts.1) + 1000;
    let end = mark + 1000;
    let push = |name: &str, start: u64, step: u64, data: &dyn Fn(bool) -> Vec<u8>| {
        let source = pipeline.by_name(name).and_downcast::<gst_app::AppSrc>().unwrap();
        for at in (start..end).step_by(step as usize) {
            let mut buffer = gst::Buffer::from_mut_slice(data((mark..mark + 200).contains(&at)));
            let times = buffer.get_mut().unwrap();
            times.set_pts(gst::ClockTime::from_mseconds(at));
            times.set_duration(gst::ClockTime::from_mseconds(step));
            source.push_buffer(buffer).unwrap();
        }
        source.end_of_stream().unwrap();
    };
    // Buffers that are pushed before the start are lost.
    pipeline.set_state(gst::State::Paused).unwrap();
    push("video", starts.0, 40, &|is_marked| {
        [vec![if is_marked { 235 } else { 16 }; 64 * 48], vec![128; 64 * 48 / 2]].concat()
    });
    push("audio", starts.1, 20, &|is_marked| {
        let sample = |n: i16| match n / 24 % 2 {
            _ if !is_marked => 0,
            0 => 20_000_i16,
            _ => -20_000,
        };
        (0..960).flat_map(|n| [sample(n), sample(n)]).flat_map(i16::to_le_bytes).collect()
    });
    crate::testing::play(pipeline);
}

/// When pictures become white and sound becomes loud, in milliseconds of stream time.
pub(crate) fn marks(path: &Path) -> (f64, f64) {
    let mut launch = launch::Launch::new(
        "marks",
        "filesrc name=file ! decodebin name=decode
         decode. ! video/x-raw ! videoconvert ! video/x-raw,format=GRAY8 ! appsink name=flash sync=false
         decode. ! audio/x-raw ! audioconvert ! audio/x-raw,format=S16LE,channels=1 ! appsink name=beep sync=false",
    );
    launch.set("file", "location", path.display());
    let pipeline = launch::Running::new(launch.build().unwrap());
    pipeline.set_state(gst::State::Playing).unwrap();
    let find = |name: &str, found: &dyn Fn(&[u8], i32) -> Option<f64>| {
        let sink = pipeline.pipeline().by_name(name).and_downcast::<gst_app::AppSink>().unwrap();
        loop {
            let sample = sink.try_pull_sample(gst::ClockTime::from_seconds(10));
            let sample = sample.unwrap_or_else(|| panic!("{}: no {name}", path.display()));
            let buffer = sample.buffer().unwrap();
            let rate = sample.caps().unwrap().structure(0).unwrap().get("rate").unwrap_or(0);
            if let Some(after) = found(&buffer.map_readable().unwrap(), rate) {
                let segment = sample.segment().unwrap().downcast_ref::<gst::ClockTime>().unwrap();
                let time = segment.to_stream_time_full(buffer.pts().unwrap()).unwrap();
                return time.positive().map_or(0.0, |time| time.nseconds() as f64 / 1e6) + after;
            }
        }
    };
    let flash = find("flash", &|picture, _| (picture[64 * 24 + 32] > 128).then_some(0.0));
    let beep = find("beep", &|samples, rate| {
        let mut samples = samples.chunks_exact(2).map(|sample| i16::from_le_bytes([sample[0], sample[1]]));
        let at = samples.position(|sample| sample.unsigned_abs() > 8000)?;
        Some(at as f64 * 1e3 / f64::from(rate))
    });
    (flash, beep)
}

/// Writes the frames of `input` from `start` on, with its sound, as a run does.
fn carry(input: &Path, output: &Path, start: Option<u64>) {
    let control = Control::new();
    let spec = SourceSpec::new(Input::File(input.to_owned()), Decoder::Software);
    let mut source = VideoSource::open(&spec, &control).unwrap();
    let mut sink = VideoSink::file(output, View::Overlay, Some(input.to_owned())).unwrap();
    if start.is_some() {
        sink = sink.from_zero();
    }
    sink.begin(&sinks::run_record(), &source.format()).unwrap();
    loop {
        match source.wait_next(Duration::from_secs(10)).unwrap() {
            Next::Frame(frame) if frame.meta.pts_ns.unwrap() >= start.unwrap_or(0) => {
                sinks::deliver(&mut sink, &frame).unwrap();
            }
            Next::Frame(_) => {}
            Next::End => break,
            _ => panic!("{}: no frame", input.display()),
        }
    }
    sink.finish(&Summary::default()).unwrap();
}

const H264: &str = "x264enc bframes=0 key-int-max=10 ! h264parse";

#[test]
fn sound_keeps_its_place_beside_the_picture() {
    let folder = tempfile::tempdir().unwrap();
    for (name, mux, video, audio, starts) in [
        ("a.mp4", "mp4mux", H264, AAC, (0, 0)),
        ("late-sound.mp4", "mp4mux", H264, AAC, (0, 500)),
        ("late-both.mp4", "mp4mux", H264, AAC, (5000, 5400)),
        ("late-picture.mkv", "matroskamux", H264, PCM, (600, 0)),
        ("late-both.mkv", "matroskamux", H264, OPUS, (5000, 5400)),
        ("a.ts", "mpegtsmux", H264, AAC, (0, 0)),
        ("late-both.ts", "mpegtsmux", H264, AAC, (5000, 5400)),
        ("late-picture.ts", "mpegtsmux", H264, AAC, (600, 0)),
        // Its first packets of sound have no times: they come before the first clock reference.
        ("later-picture.ts", "mpegtsmux", H264, AAC, (1000, 0)),
        ("a.m2ts", "mpegtsmux m2ts-mode=true", H264, "avenc_ac3 ! ac3parse", (200, 0)),
        ("a.flv", "flvmux", H264, AAC, (0, 0)),
        ("late-sound.flv", "flvmux", H264, AAC, (0, 480)),
        ("a.avi", "avimux", H264, PCM, (0, 0)),
        ("a.mpg", "mpegpsmux", H264, AAC, (0, 0)),
        // Codecs that .mp4 cannot hold.
        ("a-law.mov", "qtmux", H264, "audio/x-raw,rate=8000 ! alawenc", (0, 0)),
        ("mu-law.mkv", "matroskamux", H264, "audio/x-raw,rate=8000 ! mulawenc", (0, 500)),
        ("pcm.mov", "qtmux", H264, PCM, (600, 0)),
        ("vorbis.mkv", "matroskamux", H264, "vorbisenc", (0, 0)),
    ] {
        let input = folder.path().join(name);
        marked(&input, mux, video, audio, starts);
        let (flash, beep) = marks(&input);
        // An encoder of sound may put up to this much silence in front.
        assert!((flash - beep).abs() < 60.0, "{name}: flash at {flash}, beep at {beep}");
        for extension in ["mkv", "mp4", "webm"] {
            let from = (flash as u64 - 300) * MS;
            for start in [None, Some(from)].into_iter().take(if extension == "webm" { 1 } else { 2 }) {
                let output = folder.path().join("out").with_extension(extension);
                carry(&input, &output, start);
                let (flash_after, beep_after) = marks(&output);
                let moved = (beep_after - flash_after) - (beep - flash);
                assert!(moved.abs() < 5.0, "{name} to {extension} from {start:?}: sound moves by {moved} ms");
            }
        }
    }
}

#[test]
fn sound_of_a_playlist_keeps_its_place_beside_the_picture() {
    let folder = tempfile::tempdir().unwrap();
    marked(&folder.path().join("0.ts"), "mpegtsmux", H264, AAC, (1000, 1000));
    let playlist = folder.path().join("list.m3u8");
    let text = "#EXTM3U\n#EXT-X-VERSION:3\n#EXT-X-TARGETDURATION:2\n#EXTINF:2.0,\n0.ts\n#EXT-X-ENDLIST\n";
    std::fs::write(&playlist, text).unwrap();
    let (flash, beep) = marks(&folder.path().join("0.ts"));
    let output = folder.path().join("out.mkv");
    carry(&playlist, &output, None);
    let (flash_after, beep_after) = marks(&output);
    let moved = (beep_after - flash_after) - (beep - flash);
    assert!(moved.abs() < 5.0, "sound moves by {moved} ms");
}

#[test]
fn sound_that_the_container_cannot_hold_is_encoded_again() {
    let folder = tempfile::tempdir().unwrap();
    for (name, audio, extension, codec) in [
        ("pcm.mkv", PCM, "webm", "Opus"),
        ("pcm.mkv", PCM, "mp4", "AAC"),
        // GStreamer writes Opus into an .mp4, and players lose its beginning.
        ("opus.mkv", OPUS, "mp4", "AAC"),
    ] {
        let input = clip(folder.path(), name, "matroskamux", audio, 100);
        let output = folder.path().join("out").with_extension(extension);
        write(&output, &input, 50);
        let (found, packets) = sound_of(&output);
        assert!(!packets.is_empty(), "{name} to {extension}");
        assert_eq!(found, codec, "{name} to {extension}");
    }
}
