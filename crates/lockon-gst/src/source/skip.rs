//! Finds where decoding may begin so that no wanted frame is missing, and every frame keeps its number.
//!
//! A part of a file can be decoded without the frames before it. A seek alone is not enough: results number
//! frames from the video's first, and a demuxer knows no numbers. So the packets up to the part are counted,
//! which takes the demuxer alone: some percent of the time that decoding takes. Only key frames at which a
//! decoder starts fresh qualify, and only in streams in which each packet becomes one frame. If that is not
//! certain, decoding begins with the video.
//!
//! The frames that the decoder gives from there are compared with the packets' times, up to the part
//! ([`SeekPoint::begin_at`]). If one differs, the source is opened again, without a seek.

use std::collections::VecDeque;
use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use gst::prelude::*;

use super::{SourceSpec, presentation_time};
use crate::launch::{self, Running};
use lockon_core::config::Moment;
use lockon_core::control::{Control, STOP_CHECK};
use lockon_core::locks::lock;

/// No codec reorders more frames than this: so many packets after a moment, all frames before it have come.
const REORDERED: usize = 32;

/// Decoding fewer frames than this is faster than skipping them.
const WORTHWHILE: usize = 10;

/// Where decoding may begin.
#[derive(Debug, PartialEq)]
pub(super) struct SeekPoint {
    /// The time to seek to, between the last of the entries and the frame behind it.
    pub(super) seek_ns: u64,
    /// The frames at which it may begin, by time, each with its number. A demuxer's index need not have all
    /// key frames, so a seek ends at any of them.
    entries: Vec<(u64, u64)>,
    /// The times of all frames, from the video's first to the first that is wanted.
    times: Vec<u64>,
}

impl SeekPoint {
    /// The number of the frame at that time, with which decoding began, and the times of the frames from
    /// there to the first that is wanted. `None` if it may not begin there.
    pub(super) fn begin_at(&self, pts: u64) -> Option<(u64, VecDeque<u64>)> {
        let found = self.entries.binary_search_by_key(&pts, |entry| entry.0).ok()?;
        let index = self.entries[found].1;
        Some((index, self.times[index as usize..].iter().copied().collect()))
    }
}

/// The last place from which `spec` can be decoded without losing a wanted frame; `None` if that is the
/// beginning, as far as is known. `info` describes the first frame.
pub(super) fn find(spec: &SourceSpec, info: &gst_video::VideoInfo, control: &Control) -> Option<SeekPoint> {
    let moment = spec.wanted_from.filter(|_| spec.seek_ns.is_none() && spec.live != Some(true))?;
    let path = spec.file().filter(|path| path.is_file())?;
    // Two fields may be two packets.
    if info.is_interlaced() || matches!(moment, Moment::Frame(index) if index < WORTHWHILE as u64) {
        return None;
    }
    let packets = count(&path, moment, control)?;
    seek_point(&packets, moment)
}

/// A packet of video, in the order in which it is decoded.
#[derive(Debug, Clone, Copy)]
struct Packet {
    /// The time to show its frame.
    pts: u64,
    /// True if a decoder can start here.
    is_entry: bool,
}

fn seek_point(packets: &[Packet], moment: Moment) -> Option<SeekPoint> {
    let is_before = |(index, packet): (usize, &Packet)| match moment {
        Moment::Frame(wanted) => (index as u64) < wanted,
        Moment::Time(ns) => packet.pts < ns,
    };
    let mut times: Vec<_> = packets.iter().map(|packet| packet.pts).collect();
    times.sort_unstable();
    if times.windows(2).any(|pair| pair[0] == pair[1]) {
        return None;
    }
    // If earlier packets are shown before it, and later ones after it, the number of its frame is that of its
    // packet.
    let (mut entries, mut latest) = (Vec::new(), None);
    for (at, packet) in packets.iter().enumerate() {
        let is_clean = times[at] == packet.pts && latest.is_none_or(|latest| latest < packet.pts);
        if packet.is_entry && is_clean && is_before((at, packet)) {
            entries.push((packet.pts, at as u64));
        }
        latest = latest.max(Some(packet.pts));
    }
    // A decoder leaves out frames before the first key frame.
    let (first, last) = (entries.first()?, entries.last()?.1 as usize);
    if first.1 != 0 || last < WORTHWHILE {
        return None;
    }
    let seek_ns = times.get(last + 1).map_or(times[last] + 1, |next| times[last] + (next - times[last]) / 2);
    let wanted = match moment {
        Moment::Frame(index) => usize::try_from(index).ok(),
        Moment::Time(ns) => times.iter().position(|&time| time >= ns),
    };
    // The first wanted frame is the last compared one.
    times.truncate(wanted.map_or(times.len(), |wanted| wanted.saturating_add(1)));
    Some(SeekPoint { seek_ns, entries, times })
}

/// The packets of a file's only video stream, up to some after the moment, or to the end.
fn count(path: &Path, moment: Moment, control: &Control) -> Option<Vec<Packet>> {
    let make = |factory: &str| gst::ElementFactory::make(factory).build().ok();
    let (input, demuxer, sink) = (make("filesrc")?, make(demuxer_for(path)?)?, make("fakesink")?);
    input.set_property("location", path);
    sink.set_property("sync", false);
    let pipeline = gst::Pipeline::new();
    pipeline.add_many([&input, &demuxer, &sink]).ok()?;
    input.link(&demuxer).ok()?;
    let pad = sink.static_pad("sink")?;
    let (done, counted) = crossbeam_channel::bounded(1);
    let counter = Arc::new(Mutex::new(Counter { moment, codec: None, packets: Vec::new(), behind: 0 }));
    let types =
        gst::PadProbeType::BUFFER | gst::PadProbeType::BUFFER_LIST | gst::PadProbeType::EVENT_DOWNSTREAM;
    pad.add_probe(types, {
        let (counter, done) = (counter.clone(), done.clone());
        move |pad, info| {
            let result = launch::guarded(pad, Err(Uncountable), || lock(&counter).see(pad, info));
            match result {
                Ok(false) => return gst::PadProbeReturn::Ok,
                Ok(true) => drop(done.try_send(true)),
                Err(Uncountable) => drop(done.try_send(false)),
            }
            gst::PadProbeReturn::Ok
        }
    });
    demuxer.connect_pad_added(move |_, added| {
        let is_picture = |name: &str| name.starts_with("video/") || name.starts_with("image/");
        let caps = added.current_caps().unwrap_or_else(|| added.query_caps(None));
        if !caps.structure(0).is_some_and(|structure| is_picture(structure.name())) {
            return;
        }
        // With several streams, another one may be decoded.
        if added.link(&pad).is_err() {
            let _ = done.try_send(false);
        }
    });
    let running = Running::new(pipeline);
    running.set_state(gst::State::Playing).ok()?;
    let is_counted = loop {
        if let Ok(is_counted) = counted.recv_timeout(STOP_CHECK) {
            break is_counted;
        }
        if control.is_stopped() || running.wait(Duration::ZERO).is_err() {
            break false;
        }
    };
    drop(running);
    let packets = std::mem::take(&mut lock(&counter).packets);
    is_counted.then_some(packets)
}

/// The demuxer for a file that has an index of its packets, with the time of each.
fn demuxer_for(path: &Path) -> Option<&'static str> {
    let mut head = [0; 12];
    File::open(path).and_then(|mut file| file.read_exact(&mut head)).ok()?;
    match (&head[..4], &head[4..8]) {
        (b"\x1A\x45\xDF\xA3", _) => Some("matroskademux"),
        (_, b"ftyp" | b"moov" | b"wide" | b"mdat" | b"free" | b"skip") => Some("qtdemux"),
        _ => None,
    }
}

/// The error if it is not certain that each packet becomes one frame.
struct Uncountable;

/// The form of a stream's packets.
#[derive(Debug, Clone, Copy)]
enum Codec {
    /// NAL units, each after its length in so many bytes.
    H264(usize),
    H265(usize),
    Vp8,
    Vp9,
    Jpeg,
}

struct Counter {
    moment: Moment,
    codec: Option<Codec>,
    packets: Vec<Packet>,
    /// Packets after the moment.
    behind: usize,
}

impl Counter {
    /// Counts a buffer or event. True when enough has been counted.
    fn see(&mut self, pad: &gst::Pad, info: &gst::PadProbeInfo) -> Result<bool, Uncountable> {
        match &info.data {
            Some(gst::PadProbeData::Buffer(packet)) => self.count(pad, packet),
            Some(gst::PadProbeData::BufferList(packets)) => {
                packets.iter().try_fold(false, |is_enough, packet| Ok(is_enough || self.count(pad, packet)?))
            }
            Some(gst::PadProbeData::Event(event)) => match event.view() {
                gst::EventView::Eos(_) => Ok(true),
                gst::EventView::Caps(caps) if self.packets.is_empty() => {
                    self.codec = Codec::of(caps.caps());
                    Ok(false)
                }
                gst::EventView::Caps(_) => Err(Uncountable),
                _ => Ok(false),
            },
            _ => Ok(false),
        }
    }

    fn count(&mut self, pad: &gst::Pad, packet: &gst::BufferRef) -> Result<bool, Uncountable> {
        let flags = packet.flags();
        let is_first = self.packets.is_empty();
        let is_whole = !flags.contains(gst::BufferFlags::CORRUPTED)
            && !flags.contains(gst::BufferFlags::DECODE_ONLY)
            && (is_first || !flags.contains(gst::BufferFlags::DISCONT));
        let event = pad.sticky_event::<gst::event::Segment>(0).ok_or(Uncountable)?;
        let segment = event.segment();
        let time = segment.downcast_ref::<gst::ClockTime>().ok_or(Uncountable)?;
        // Frames that an edit list cuts off are decoded, and not shown.
        let is_shown = packet.pts().is_some_and(|pts| time.to_stream_time(pts).is_some());
        let codec = self.codec.filter(|_| is_whole && is_shown).ok_or(Uncountable)?;
        let data = packet.map_readable().map_err(|_| Uncountable)?;
        if !codec.is_one_frame(&data) {
            return Err(Uncountable);
        }
        let pts = presentation_time(Some(segment), packet.pts(), false).ok_or(Uncountable)?;
        let is_key_frame = !flags.contains(gst::BufferFlags::DELTA_UNIT);
        let is_behind = match self.moment {
            Moment::Frame(index) => self.packets.len() as u64 > index,
            Moment::Time(ns) => pts >= ns,
        };
        self.packets.push(Packet { pts, is_entry: is_key_frame && codec.is_entry(&data) });
        self.behind += usize::from(is_behind);
        Ok(self.behind > REORDERED)
    }
}

impl Codec {
    fn of(caps: &gst::CapsRef) -> Option<Self> {
        let structure = caps.structure(0)?;
        if structure.get::<bool>("codec-alpha") == Ok(true) {
            return None;
        }
        let length = |at: usize| {
            let data = structure.get::<gst::Buffer>("codec_data").ok()?;
            Some(usize::from(data.map_readable().ok()?.get(at)? & 3) + 1)
        };
        match structure.name().as_str() {
            "video/x-h264" => length(4).map(Self::H264),
            "video/x-h265" => length(21).map(Self::H265),
            "video/x-vp8" => Some(Self::Vp8),
            "video/x-vp9" => Some(Self::Vp9),
            "image/jpeg" => Some(Self::Jpeg),
            _ => None,
        }
    }

    /// True if the packet is a frame that is shown, and no more than one.
    fn is_one_frame(self, packet: &[u8]) -> bool {
        let (Some(first), Some(last)) = (packet.first(), packet.last()) else { return false };
        match self {
            Self::H264(_) | Self::H265(_) | Self::Jpeg => true,
            Self::Vp8 => first >> 4 & 1 == 1,
            // With an index at its end the packet has several frames, and one of them is shown. Otherwise a
            // bit says whether it shows another frame, and a bit whether it is shown itself.
            Self::Vp9 => {
                let is_profile_3 = first >> 4 & 0b11 == 0b11;
                !is_profile_3 && (last & 0xe0 == 0xc0 || first >> 3 & 1 == 1 || first >> 1 & 1 == 1)
            }
        }
    }

    /// True if no later frame needs an earlier one, as far as the packet of a key frame shows.
    fn is_entry(self, packet: &[u8]) -> bool {
        match self {
            // An IDR picture; other key frames may be followed by pictures that refer to earlier ones.
            Self::H264(length) => first_slice(packet, length, |head| head & 0x1f, 1..=5) == Some(5),
            Self::H265(length) => {
                matches!(first_slice(packet, length, |head| head >> 1 & 0x3f, 0..=31), Some(19 | 20))
            }
            Self::Vp8 | Self::Vp9 | Self::Jpeg => true,
        }
    }
}

/// The type of the first NAL unit that is a slice.
fn first_slice(
    mut packet: &[u8],
    length: usize,
    kind: impl Fn(u8) -> u8,
    slices: std::ops::RangeInclusive<u8>,
) -> Option<u8> {
    loop {
        let size = packet.get(..length)?.iter().fold(0_usize, |size, &byte| size << 8 | usize::from(byte));
        let unit = packet.get(length..)?;
        let found = kind(*unit.first()?);
        if slices.contains(&found) {
            return Some(found);
        }
        packet = unit.get(size..)?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::{Decoder, Input, VideoSource};
    use crate::testing::make_clip;
    use lockon_core::ports::{Next, Source};

    /// Packets in decoding order; `I` is an entry, with its time in frames behind it.
    fn packets(text: &str) -> Vec<Packet> {
        let packet = |word: &str| Packet { pts: word[1..].parse().unwrap(), is_entry: word.starts_with('I') };
        text.split(' ').map(packet).collect()
    }

    fn gop(first: u64, frames: u64) -> String {
        (first..first + frames)
            .map(|at| format!("{}{at}", if at == first { 'I' } else { 'P' }))
            .collect::<Vec<_>>()
            .join(" ")
    }

    #[test]
    fn the_last_entry_before_the_part_keeps_its_number() {
        let video = packets(&[gop(0, 20), gop(20, 20), gop(40, 20)].join(" "));
        let last =
            |moment| seek_point(&video, moment).and_then(|found| found.entries.last().map(|entry| entry.1));
        let found = seek_point(&video, Moment::Time(45)).unwrap();
        assert_eq!(found.begin_at(40), Some((40, (40..=45).collect())));
        assert_eq!(found.begin_at(20), Some((20, (20..=45).collect())));
        assert_eq!(found.begin_at(41), None);
        // The frame before the part is decoded too: a box of it is refused.
        assert_eq!(last(Moment::Time(40)), Some(20));
        let found = seek_point(&video, Moment::Frame(21)).unwrap();
        assert_eq!(found.begin_at(20), Some((20, (20..=21).collect())));
        // No frame is wanted: all that follow are compared.
        assert_eq!(seek_point(&video, Moment::Time(99)).unwrap().times.len(), 60);
        assert_eq!(last(Moment::Time(19)), None);
    }

    #[test]
    fn entries_over_which_frames_are_reordered_are_none() {
        let first = gop(0, 20);
        // Frame 19 comes after the entry and is shown before it.
        let open = packets(&format!("{first} I21 B20 P22 P23"));
        assert_eq!(seek_point(&open, Moment::Time(23)), None);
        let late = packets(&format!("{first} P25 I21 P22 P23"));
        assert_eq!(seek_point(&late, Moment::Time(23)), None);
        let closed = packets(&format!("{first} I20 P23 B21 B22 P24"));
        let begun = seek_point(&closed, Moment::Time(23)).unwrap().begin_at(20);
        assert_eq!(begun, Some((20, (20..=23).collect())));
        let twice = packets(&format!("{first} I20 P21 P21 P24"));
        assert_eq!(seek_point(&twice, Moment::Time(23)), None);
        assert_eq!(seek_point(&packets(&format!("P0 {}", gop(1, 40))), Moment::Time(30)), None);
    }

    #[test]
    fn a_slice_is_found_behind_other_units() {
        let units = |kinds: &[u8]| kinds.iter().flat_map(|&kind| [0, 0, 0, 2, kind, 9]).collect::<Vec<_>>();
        assert!(
            Codec::H264(4).is_entry(&units(&[6, 7, 0x65]))
                && !Codec::H264(4).is_entry(&units(&[6, 0x41, 0x65]))
        );
        assert!(
            Codec::H265(4).is_entry(&units(&[78, 19 << 1])) && !Codec::H265(4).is_entry(&units(&[21 << 1]))
        );
        assert!(
            !Codec::H264(4).is_entry(&[0, 0, 0]) && !Codec::H264(4).is_entry(&[0xff, 0xff, 0xff, 0xff, 6])
        );
    }

    /// Number, time, and the sum of luma of each frame from the first that is given.
    fn frames(mut source: VideoSource) -> Vec<(u64, Option<u64>, u64)> {
        let (mut frames, mut pauses) = (Vec::new(), 0);
        loop {
            match source.wait_next(Duration::from_secs(10)).unwrap() {
                Next::Frame(frame) => {
                    let luma = frame.picture.plane(0);
                    let sum = luma.rows().flatten().map(|&value| u64::from(value)).sum();
                    frames.push((frame.meta.index, frame.meta.pts_ns, sum));
                }
                Next::End => return frames,
                // It begins again.
                Next::Pending if pauses == 0 => pauses += 1,
                _ => panic!("no frame"),
            }
        }
    }

    fn open(path: &Path, wanted_from: Option<Moment>) -> VideoSource {
        let spec = SourceSpec::new(Input::File(path.to_owned()), Decoder::Software);
        VideoSource::open(&SourceSpec { wanted_from, ..spec }, &Control::new()).unwrap()
    }

    fn make(path: &Path, encoder_and_mux: &str) {
        let text = "videotestsrc num-buffers=100 pattern=ball !
             video/x-raw,format=I420,width=96,height=64,framerate=25/1";
        make_clip(path, &format!("{text} ! {encoder_and_mux} ! filesink name=file"));
    }

    #[test]
    fn decoding_begins_before_the_part_and_changes_no_frame_of_it() {
        let folder = tempfile::tempdir().unwrap();
        for (name, encoder_and_mux, is_skipped) in [
            ("plain.mp4", "x264enc key-int-max=12 bframes=0 ! mp4mux", true),
            ("reordered.mp4", "x264enc key-int-max=12 bframes=3 ! mp4mux", true),
            ("reordered.mkv", "x264enc key-int-max=12 bframes=3 ! matroskamux", true),
            ("fragments.mp4", "x264enc key-int-max=12 bframes=0 ! mp4mux fragment-duration=500", false),
            ("8.webm", "vp8enc deadline=1 keyframe-max-dist=12 ! webmmux", true),
            ("9.webm", "vp9enc deadline=1 cpu-used=8 lag-in-frames=0 keyframe-max-dist=12 ! webmmux", true),
            ("pictures.mov", "jpegenc ! qtmux", true),
            ("open.mkv", "x264enc key-int-max=12 bframes=3 option-string=open-gop=1 ! matroskamux", false),
            ("one-key-frame.mp4", "x264enc key-int-max=500 ! mp4mux", false),
            ("no-index.ts", "x264enc key-int-max=12 ! mpegtsmux", false),
            ("old.avi", "avenc_mpeg4 ! avimux", false),
        ] {
            let path = folder.path().join(name);
            make(&path, encoder_and_mux);
            let whole = frames(open(&path, None));
            assert!(whole.len() >= 90, "{name}: {} frames", whole.len());
            // The times of the part's first frame, of one before it and of none.
            let time = whole[65].1.unwrap();
            let moments =
                [Moment::Time(time), Moment::Time(time - 1), Moment::Frame(65), Moment::Time(time * 9)];
            for moment in moments {
                let part = frames(open(&path, Some(moment)));
                let first = part[0].0 as usize;
                assert!(
                    first < 65 || matches!(moment, Moment::Time(ns) if ns > time),
                    "{name} {moment}: {first}"
                );
                assert_eq!(first > 0, is_skipped, "{name} {moment}: decoding begins with frame {first}");
                assert_eq!(part, whole[first..], "{name} {moment}");
            }
        }
    }

    #[test]
    fn other_frames_than_were_counted_make_it_begin_again() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("plain.mp4");
        make(&path, "x264enc key-int-max=12 bframes=0 ! mp4mux");
        let whole = frames(open(&path, None));
        // It begins elsewhere; it ends sooner.
        for (begins_elsewhere, given) in [(true, 0), (false, 40)] {
            let mut source = open(&path, Some(Moment::Frame(65)));
            let point = source.sought.as_mut().unwrap();
            if begins_elsewhere {
                point.entries.clear();
            } else {
                point.times.extend((66..101).map(|frame| frame * 40_000_000));
            }
            let part = frames(source);
            assert_eq!((part.len(), &part[given..]), (given + 100, &whole[..]));
        }
    }
}
