//! Where decoding can begin in files whose demuxers know only times: transport streams.
//!
//! A seek for a key frame ends there at some packet before the time. The parser behind the demuxer marks the
//! first packet after a seek as a key frame, whatever it is, and every I picture later, although frames after
//! that may refer to earlier ones. So a picture counts only if its packet says that decoding can begin with
//! it, and packets are read from further before until there is such a picture.

use gst::prelude::*;

use crate::launch;
use crate::nal::{self, Layout, Message};
use crate::source::{has_container, picture_decoder, presentation_time};

/// First distance from a place to the packets that are read: some seconds have a key frame mostly.
const FIRST_BACK_NS: u64 = 4_000_000_000;

/// Decoding begins so long before its first picture, as a demuxer estimates where a time lies.
const MARGIN_NS: u64 = 4_000_000_000;

/// No codec reorders more frames than this: so many packets after a place, all frames before it have come.
const REORDERED: usize = 32;

/// How a file's key frames can be found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Index {
    /// The demuxer knows key frames: a seek ends at one.
    KeyFrames,
    /// A seek ends at a time, before the wanted one.
    Times,
    /// A seek ends anywhere.
    Nothing,
}

impl Index {
    /// The index of a file, from the elements that read it.
    pub(crate) fn of(pipeline: &gst::Pipeline) -> Self {
        let mut is_stream = false;
        for factory in pipeline.iterate_recurse().into_iter().flatten().filter_map(|it| it.factory()) {
            match factory.name().as_str() {
                "tsdemux" => return Self::Times,
                "mpegpsdemux" => return Self::Nothing,
                "h264parse" | "h265parse" | "mpegvideoparse" | "mpeg4videoparse" => is_stream = true,
                _ => {}
            }
        }
        if is_stream && !has_container(pipeline) { Self::Nothing } else { Self::KeyFrames }
    }
}

/// The time to seek to, so that the packets from a picture at this time on come for certain; `None` for the
/// beginning.
pub(crate) fn place_before(picture_ns: u64) -> Option<u64> {
    picture_ns.checked_sub(MARGIN_NS).filter(|ns| *ns > 0)
}

/// Goes to the last key frame that is not after a time.
pub(crate) fn seek(pipeline: &gst::Pipeline, ns: u64) -> Option<()> {
    let flags = gst::SeekFlags::FLUSH | gst::SeekFlags::KEY_UNIT | gst::SeekFlags::SNAP_BEFORE;
    // GStreamer's seeks have signed times: later ones are all past the end.
    let place = gst::ClockTime::from_nseconds(ns.min(i64::MAX as u64));
    pipeline.seek_simple(flags, place).ok()
}

/// A picture with which decoding can begin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct EntryPicture {
    /// Its time.
    pub(crate) ns: u64,
    /// The time of the picture to decode from so that this one comes as in a run of the whole; `None` for the
    /// beginning. Decoders may leave out a picture at which they recover, so it is the one before that.
    pub(crate) decode_ns: Option<u64>,
}

/// How decoding can begin with a picture.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Start {
    Fresh,
    /// Pictures before it may be referred to by those that are decoded later and shown earlier.
    Recovery,
}

/// Returns the last picture that is not after a time and with which decoding can begin; `None` if there is
/// none. `next` returns the next packet of the video in such a file.
///
/// # Errors
/// Errors of `next`.
pub(crate) fn last_before<E>(
    pipeline: &gst::Pipeline,
    ns: u64,
    mut next: impl FnMut() -> Result<Option<gst::Sample>, E>,
) -> Result<Option<EntryPicture>, E> {
    let mut back = FIRST_BACK_NS;
    loop {
        let from = ns.saturating_sub(back);
        if seek(pipeline, from).is_none() {
            return Ok(None);
        }
        let (mut last, mut behind) = (None::<EntryPicture>, 0);
        while let Some(sample) = next()? {
            let Some(buffer) = sample.buffer() else { continue };
            let time = |at| presentation_time(sample.segment(), at, false);
            // No frame is shown before it is decoded.
            behind += usize::from(time(buffer.pts()).is_some_and(|pts| pts > ns));
            if time(buffer.dts()).is_some_and(|dts| dts > ns) || behind > REORDERED {
                break;
            }
            if let (Some(pts), Some(caps)) = (time(buffer.pts()), sample.caps())
                && pts <= ns
                && let Some(start) = start(caps, buffer)
            {
                let before = last.map(|last| last.ns);
                last = Some(EntryPicture {
                    ns: pts,
                    decode_ns: if start == Start::Fresh { Some(pts) } else { before },
                });
            }
        }
        if last.is_some_and(|last| last.decode_ns.is_some()) || from == 0 {
            return Ok(last);
        }
        back = back.saturating_mul(4);
    }
}

/// Drops what the video decoder of a pipeline gets before a picture at this time, with which decoding can
/// begin. False if there is no decoder.
pub(crate) fn begin_with(pipeline: &gst::Pipeline, picture_ns: u64) -> bool {
    let Some(pad) = picture_decoder(pipeline).and_then(|decoder| decoder.static_pad("sink")) else {
        return false;
    };
    // Packets from before the seek do not come any more once it has returned, and they need no decoder.
    pad.add_probe(gst::PadProbeType::BUFFER, move |pad, info| {
        launch::guarded(pad, gst::PadProbeReturn::Remove, || {
            let Some(gst::PadProbeData::Buffer(packet)) = &info.data else {
                return gst::PadProbeReturn::Ok;
            };
            let segment = pad.sticky_event::<gst::event::Segment>(0);
            let pts = presentation_time(segment.as_ref().map(|event| event.segment()), packet.pts(), false);
            let is_due = pts.is_some_and(|pts| pts >= picture_ns);
            if is_due && pad.current_caps().is_some_and(|caps| start(&caps, packet).is_some()) {
                return gst::PadProbeReturn::Remove;
            }
            gst::PadProbeReturn::Handled
        })
    });
    true
}

/// Returns how a packet's picture, and all that are shown after it, can be decoded without earlier packets.
fn start(caps: &gst::CapsRef, packet: &gst::BufferRef) -> Option<Start> {
    let data = packet.map_readable().ok()?;
    if let Some(Layout { is_h265, length_bytes }) = Layout::of(caps) {
        let units = nal::whole_units(&data, length_bytes);
        return if is_h265 { begins_h265(units) } else { begins_h264(units) };
    }
    let structure = caps.structure(0)?;
    let is_mpeg2 =
        structure.name() == "video/mpeg" && matches!(structure.get::<i32>("mpegversion"), Ok(1 | 2));
    if is_mpeg2 { begins_mpeg2(&data) } else { None }
}

/// An IDR picture, or one at which recovery begins and is complete and exact at once.
fn begins_h264<'a>(units: impl IntoIterator<Item = &'a [u8]>) -> Option<Start> {
    let mut is_recovered = false;
    for unit in units {
        match nal::kind(*unit.first()?, false) {
            5 => return Some(Start::Fresh),
            1..=4 => return is_recovered.then_some(Start::Recovery),
            6 => is_recovered |= is_exact_recovery(&nal::unescaped(&unit[1..])),
            _ => {}
        }
    }
    None
}

/// True if additional information (SEI) has a recovery point after no frame, with an exact match.
fn is_exact_recovery(sei: &[u8]) -> bool {
    let found = nal::messages(sei).find(|message| message.kind == Message::RECOVERY_POINT);
    // The count of frames until recovery is one bit if it is zero; the next bit says whether what is shown
    // then is exact.
    found.is_some_and(|message| {
        message.is_whole && message.payload.first().is_some_and(|first| first >> 6 == 0b11)
    })
}

/// A picture of random access: IDR, or BLA or CRA, where pictures that are shown before it may be missing.
fn begins_h265<'a>(units: impl IntoIterator<Item = &'a [u8]>) -> Option<Start> {
    let kinds = units.into_iter().filter_map(|unit| unit.first().map(|first| nal::kind(*first, true)));
    match kinds.into_iter().find(|kind| nal::is_picture(*kind, true))? {
        19 | 20 => Some(Start::Fresh),
        16..=21 => Some(Start::Recovery),
        _ => None,
    }
}

/// An I picture behind a sequence header.
fn begins_mpeg2(data: &[u8]) -> Option<Start> {
    let mut has_header = false;
    for unit in nal::whole_units(data, None) {
        match unit {
            [0xb3, ..] => has_header = true,
            [0, _, kind, ..] => return (has_header && kind >> 3 & 7 == 1).then_some(Start::Recovery),
            _ => {}
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_pictures_with_which_decoding_can_begin_count() {
        let h264 = |units: &[&[u8]]| begins_h264(units.iter().copied());
        assert_eq!(
            h264(&[&[9, 0x10], &[0x67], &[0x68], &[0x65, 0x88]]),
            Some(Start::Fresh),
            "an IDR picture"
        );
        assert_eq!(h264(&[&[9, 0x10], &[0x41, 0x88]]), None, "an I or P picture");
        // A recovery point: at once and exact; at once and not exact; after a frame.
        let recovery = Some(Start::Recovery);
        assert_eq!(h264(&[&[6, 6, 1, 0b1100_0100, 0x80], &[0x41]]), recovery);
        assert_eq!(h264(&[&[6, 5, 2, 1, 2, 6, 1, 0b1100_0100, 0x80], &[0x41]]), recovery);
        assert_eq!(h264(&[&[6, 6, 1, 0b1000_0100, 0x80], &[0x41]]), None);
        assert_eq!(h264(&[&[6, 6, 1, 0b0101_1001, 0x80], &[0x41]]), None);
        assert_eq!(h264(&[&[6, 6, 200, 0b1100_0100], &[0x41]]), None, "cut off");
        let h265 = |units: &[&[u8]]| begins_h265(units.iter().copied());
        assert_eq!(h265(&[&[32 << 1, 1], &[19 << 1, 1]]), Some(Start::Fresh));
        assert_eq!(h265(&[&[21 << 1, 1]]), recovery);
        assert_eq!([h265(&[&[1 << 1, 1]]), h265(&[&[9 << 1, 1], &[21 << 1, 1]]), h265(&[])], [None; 3]);
        assert_eq!(begins_mpeg2(&[0, 0, 1, 0xb3, 9, 0, 0, 1, 0, 0, 1 << 3, 0]), recovery);
        assert_eq!(begins_mpeg2(&[0, 0, 1, 0xb3, 9, 0, 0, 1, 0, 0, 2 << 3, 0]), None);
        assert_eq!(begins_mpeg2(&[0, 0, 1, 0, 0, 1 << 3, 0]), None, "without a header");
    }
}
