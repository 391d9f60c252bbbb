//! Facts from the first access units of H.264 and H.265 that GStreamer 1.22 does not report.
//!
//! - **Where decoding can begin.** A raw stream or a transport stream may begin in the middle of a group of
//!   pictures: frames before the first key frame decode to grey garbage. They are skipped, and frames are
//!   numbered from the key frame on. A recovery point (SEI message) counts as one: streams that refresh their
//!   picture bit by bit have no others.
//! - **How the picture is turned**: the display orientation (SEI message). The first one counts for the whole
//!   video.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use gst::prelude::*;

use super::orientation::Orientation;
use super::{Input, LOG, SourceSpec};
use crate::launch;
use crate::nal::{self, Layout, Message};
use lockon_core::locks::{Ranked, lock};

/// Maximum access units that are searched for a display orientation. It comes with the first key frame.
const LOOKED_AT: u32 = 32;

/// Maximum access units that are skipped: after so many without a key frame the rest is decoded as it comes.
const MOST_SKIPPED: u32 = 600;

/// Maximum buffers of a raw stream that are searched for its parameter sets.
const MOST_BUFFERS: u32 = 1 << 14;

/// Bytes of an access unit that are searched: messages come before the picture.
const MAX_BYTES: usize = 1 << 16;

/// Facts from the first access units of a pipeline's video.
#[derive(Debug, Default)]
pub(super) struct Head {
    orientation: Ranked<Option<Orientation>, 205>,
    /// Pictures that a parser drops, as they come before the parameter sets.
    dropped: AtomicU32,
}

impl Head {
    /// Inspects the input of H.264 and H.265 decoders. A user's own text runs as written.
    pub(super) fn watch(spec: &SourceSpec, pipeline: &gst::Pipeline) -> Arc<Self> {
        let head = Arc::new(Self::default());
        if !matches!(spec.input, Input::Launch(_)) {
            let (found, input) = (Arc::clone(&head), spec.input.clone());
            pipeline.connect_deep_element_added(move |_, _, element| {
                let Some((factory, pad)) = element.factory().zip(element.static_pad("sink")) else { return };
                let class = factory.metadata("klass").unwrap_or_default();
                if class.contains("Decoder") && class.contains("Video") {
                    found.look(&pad, &input);
                } else if matches!(factory.name().as_str(), "h264parse" | "h265parse") {
                    found.look_at_raw_bytes(&pad, factory.name() == "h265parse");
                }
            });
        }
        head
    }

    /// Returns the orientation that the video declares.
    pub(super) fn orientation(&self) -> Option<Orientation> {
        *self.orientation.lock()
    }

    /// Inspects a raw stream before its parser, which silently drops messages and pictures before the
    /// parameter sets.
    fn look_at_raw_bytes(self: &Arc<Self>, pad: &gst::Pad, is_h265: bool) {
        let (head, raw) = (Arc::clone(self), Mutex::new(RawBeginning::default()));
        pad.add_probe(gst::PadProbeType::BUFFER, move |pad, info| {
            launch::guarded(pad, gst::PadProbeReturn::Ok, || {
                let mut raw = lock(&raw);
                let layout = pad.current_caps().and_then(|caps| Layout::of(&caps));
                if layout.is_some_and(|layout| layout.length_bytes.is_some()) {
                    return gst::PadProbeReturn::Remove;
                }
                let Some(Ok(bytes)) = info.buffer().map(|buffer| buffer.map_readable()) else {
                    return gst::PadProbeReturn::Ok;
                };
                raw.looked_at += 1;
                if raw.looked_at <= LOOKED_AT {
                    head.keep(messages(&bytes, &Layout { is_h265, length_bytes: None }));
                }
                raw.count(&bytes, is_h265);
                head.dropped.store(raw.pictures, Ordering::Relaxed);
                let is_done = raw.has_parameters && raw.looked_at >= LOOKED_AT;
                if is_done || raw.looked_at >= MOST_BUFFERS {
                    return gst::PadProbeReturn::Remove;
                }
                gst::PadProbeReturn::Ok
            })
        });
    }

    /// Keeps the first orientation.
    fn keep(&self, said: Said) {
        if let Some(orientation) = said.orientation {
            self.orientation.lock().get_or_insert(orientation);
        }
    }

    fn look(self: &Arc<Self>, pad: &gst::Pad, input: &Input) {
        let (head, input) = (Arc::clone(self), input.clone());
        let beginning = Mutex::new(Beginning::default());
        pad.add_probe(gst::PadProbeType::BUFFER | gst::PadProbeType::EVENT_DOWNSTREAM, move |pad, info| {
            launch::guarded(pad, gst::PadProbeReturn::Ok, || {
                let mut beginning = lock(&beginning);
                match (info.buffer(), info.event()) {
                    (Some(buffer), _) => beginning.judge(pad, buffer, &head, &input),
                    (None, Some(event)) if event.type_() == gst::EventType::Eos => {
                        beginning.end(pad);
                        gst::PadProbeReturn::Remove
                    }
                    _ => gst::PadProbeReturn::Ok,
                }
            })
        });
    }
}

/// The beginning of one stream.
#[derive(Debug, Default)]
struct Beginning {
    looked_at: u32,
    skipped: u32,
    has_begun: bool,
}

impl Beginning {
    /// Decides if an access unit is passed to the decoder.
    fn judge(
        &mut self,
        pad: &gst::Pad,
        buffer: &gst::Buffer,
        head: &Head,
        input: &Input,
    ) -> gst::PadProbeReturn {
        let Some(layout) = pad.current_caps().and_then(|caps| Layout::of(&caps)) else {
            return gst::PadProbeReturn::Remove;
        };
        let said = buffer.map_readable().map(|bytes| messages(&bytes, &layout)).unwrap_or_default();
        head.keep(said);
        let is_key = !buffer.flags().contains(gst::BufferFlags::DELTA_UNIT) || said.is_recovery_point;
        if !self.has_begun && !is_key && self.skipped < MOST_SKIPPED {
            self.skipped += 1;
            // Not `Drop`: the bindings and GStreamer 1.22 would both release the buffer.
            return gst::PadProbeReturn::Handled;
        }
        let skipped = self.skipped + head.dropped.load(Ordering::Relaxed);
        if !std::mem::replace(&mut self.has_begun, true) && skipped > 0 {
            let frames = if skipped == 1 { "frame" } else { "frames" };
            match input {
                // Joining a running stream in the middle is normal.
                Input::Uri(_) | Input::Camera(_) => {
                    tracing::info!(target: LOG, "{input}: skipped {skipped} {frames} before the first key frame");
                }
                _ if is_key => tracing::warn!(target: LOG,
                    "{input}: it begins in the middle of a group of pictures: skipped {skipped} {frames} \
                     before the first key frame, which is frame 0"
                ),
                _ => tracing::warn!(target: LOG, "{input}: no key frame in its first {skipped} {frames}"),
            }
        }
        self.looked_at += 1;
        if self.looked_at < LOOKED_AT { gst::PadProbeReturn::Ok } else { gst::PadProbeReturn::Remove }
    }

    /// The stream has ended.
    fn end(&self, pad: &gst::Pad) {
        if !self.has_begun
            && self.skipped > 0
            && let Some(element) = pad.parent_element()
        {
            gst::element_error!(
                element,
                gst::StreamError::Decode,
                ("none of its {} frames is a key frame, so decoding cannot begin", self.skipped)
            );
        }
    }
}

/// The beginning of a raw stream, in buffers of any size.
#[derive(Debug, Default)]
struct RawBeginning {
    looked_at: u32,
    /// Pictures before the first parameter set.
    pictures: u32,
    has_parameters: bool,
    /// The end of the last buffer, in which a unit may begin.
    tail: Vec<u8>,
}

impl RawBeginning {
    fn count(&mut self, bytes: &[u8], is_h265: bool) {
        let bytes = [&self.tail[..], bytes].concat();
        let mut rest = &bytes[..];
        while let Some(at) = rest.windows(3).position(|three| *three == [0, 0, 1]) {
            let Some(header) = rest.get(at + 3..at + 6).filter(|_| !self.has_parameters) else {
                rest = &rest[at..];
                break;
            };
            // A slice is its picture's first if the first bit behind its header is set.
            let kind = nal::kind(header[0], is_h265);
            let (is_parameters, slice) =
                if is_h265 { (kind == 33, header[2]) } else { (kind == 7, header[1]) };
            self.has_parameters |= is_parameters;
            if nal::is_picture(kind, is_h265) && !self.has_parameters && slice & 0x80 != 0 {
                self.pictures += 1;
            }
            rest = &rest[at + 3..];
        }
        let kept = rest.len().min(if rest.starts_with(&[0, 0, 1]) { 6 } else { 2 });
        self.tail = if self.has_parameters { Vec::new() } else { rest[rest.len() - kept..].to_vec() };
    }
}

/// Facts from the messages in front of a picture.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
struct Said {
    orientation: Option<Orientation>,
    is_recovery_point: bool,
}

/// Reads the SEI messages in front of the picture of an access unit.
fn messages(unit: &[u8], layout: &Layout) -> Said {
    let mut said = Said::default();
    // The last unit may be cut off by this.
    let mut rest = &unit[..unit.len().min(MAX_BYTES)];
    while let Some((unit, after)) = nal::next(rest, layout.length_bytes) {
        rest = after;
        let Some(first) = unit.first() else { continue };
        let kind = nal::kind(*first, layout.is_h265);
        let (is_sei, header) = if layout.is_h265 { (kind == 39, 2) } else { (kind == 6, 1) };
        if nal::is_picture(kind, layout.is_h265) {
            break;
        }
        if let Some(payload) = unit.get(header..).filter(|_| is_sei) {
            said.read(&nal::unescaped(payload));
        }
    }
    said
}

impl Said {
    fn read(&mut self, sei: &[u8]) {
        for message in nal::messages(sei) {
            match message.kind {
                Message::RECOVERY_POINT => self.is_recovery_point = true,
                Message::DISPLAY_ORIENTATION => {
                    self.orientation = self.orientation.or_else(|| orientation(message.payload));
                }
                _ => {}
            }
        }
    }
}

/// H.264 D.1.26, H.265 D.2.17: whether it is cancelled, mirrored left to right and top to bottom, then how
/// far the result is turned counter-clockwise.
fn orientation(payload: &[u8]) -> Option<Orientation> {
    let bits = payload.get(..3)?.iter().fold(0_u32, |bits, byte| bits << 8 | u32::from(*byte));
    let bit = |at: u32| bits >> at & 1 == 1;
    if bit(23) {
        return None;
    }
    let (left_to_right, top_to_bottom) = (bit(22), bit(21));
    // In 65536ths of a full turn. Only quarter turns can be shown.
    let turn = i64::from(bits >> 5 & 0xFFFF);
    if turn % 0x4000 != 0 {
        return None;
    }
    // Mirrored top to bottom is mirrored left to right and turned by half.
    let half = if top_to_bottom { 2 } else { 0 };
    Some(Orientation::new(left_to_right != top_to_bottom, half - turn / 0x4000))
}

#[cfg(test)]
mod tests {
    use super::*;

    const H264: Layout = Layout { is_h265: false, length_bytes: None };

    #[test]
    fn messages_are_read_in_every_layout_and_up_to_the_picture() {
        // 180 degrees, mirrored left to right, behind a long message of another kind that has to be escaped.
        let turned = [47, 3, 0x40 | 0x8000_u16.to_be_bytes()[0] >> 3, 0, 8];
        let mut sei = vec![5, 255, 3];
        sei.extend([9; 258]);
        sei.extend([6, 1, 0x84]);
        sei.extend(turned);
        sei.push(0x80);
        let expected = Said { orientation: Some(Orientation::new(true, 2)), is_recovery_point: true };
        let picture = [0x65, 1, 2, 3];
        let raw = [&b"\0\0\0\x01\x09\x10\0\0\x01\x06"[..], &sei, b"\0\0\x01", &picture].concat();
        assert_eq!(messages(&raw, &H264), expected);
        let sized = |bytes: &[u8]| [&(bytes.len() as u16).to_be_bytes(), bytes].concat();
        let in_file = [sized(&[&[6], &sei[..]].concat()), sized(&picture)].concat();
        assert_eq!(messages(&in_file, &Layout { length_bytes: Some(2), ..H264 }), expected);
        let raw = [&b"\0\0\x01\x4E\x01"[..], &sei, b"\0\0\x01\x26\x01"].concat();
        assert_eq!(messages(&raw, &Layout { is_h265: true, ..H264 }), expected);
        // Messages behind the picture are ignored.
        let late = [&b"\0\0\x01"[..], &picture, b"\0\0\x01\x06", &sei].concat();
        assert_eq!(messages(&late, &H264), Said::default());
        // Cut anywhere, it is no reason to fail.
        for cut in 0..in_file.len() {
            messages(&in_file[..cut], &Layout { length_bytes: Some(2), ..H264 });
            messages(&in_file[cut..], &Layout { length_bytes: Some(2), ..H264 });
            messages(&raw[..cut.min(raw.len())], &H264);
        }
    }

    #[test]
    fn an_orientation_that_cannot_be_shown_or_is_cancelled_is_none() {
        assert_eq!(orientation(&[0x80, 0, 0]), None);
        // 45 degrees.
        assert_eq!(orientation(&[0x2000_u16.to_be_bytes()[0] >> 3, 0, 0]), None);
        assert_eq!(orientation(&[0]), None);
        // A quarter counter-clockwise, and upside down: 0x4000 behind three bits.
        assert_eq!(orientation(&[0x08, 0, 0]), Some(Orientation::new(false, 3)));
        assert_eq!(orientation(&[0x20, 0, 0]), Some(Orientation::new(true, 2)));
    }

    #[test]
    fn pictures_before_the_parameters_are_counted_in_pieces_of_any_size() {
        // Two slices of one picture, another picture, an access unit delimiter, parameters, a picture.
        let h264 = b"\0\0\x01\x41\x9A\x01\0\0\x01\x41\x1A\x01\0\0\0\x01\x09\xF0\0\0\x01\x41\x9A\x02\0\0\x01\x67\x64\0\0\0\x01\x65\x88\x01";
        let h265 = b"\0\0\x01\x02\x01\xD0\0\0\x01\x02\x01\x50\0\0\x01\x02\x01\xD0\0\0\x01\x42\x01\x01\0\0\x01\x26\x01\xAF";
        for (stream, is_h265) in [(&h264[..], false), (&h265[..], true)] {
            for piece in 1..stream.len() {
                let mut raw = RawBeginning::default();
                stream.chunks(piece).for_each(|bytes| raw.count(bytes, is_h265));
                assert_eq!((raw.pictures, raw.has_parameters), (2, true), "{is_h265}, pieces of {piece}");
            }
        }
    }
}
