//! The NAL units of which H.264 and H.265 consist, and the SEI messages in them.

/// The layout of access units.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Layout {
    pub(crate) is_h265: bool,
    /// Bytes of the length before each unit; `None` if start codes separate them.
    pub(crate) length_bytes: Option<usize>,
}

impl Layout {
    /// The layout by the caps of a stream; `None` for other codecs.
    pub(crate) fn of(caps: &gst::CapsRef) -> Option<Self> {
        let structure = caps.structure(0)?;
        let is_h265 = match structure.name().as_str() {
            "video/x-h264" => false,
            "video/x-h265" => true,
            _ => return None,
        };
        // ISO/IEC 14496-15, 5.3.3 and 8.3.3.
        let length_bytes = structure.get::<gst::Buffer>("codec_data").ok().and_then(|data| {
            let data = data.map_readable().ok()?;
            let packed = data.get(if is_h265 { 21 } else { 4 })?;
            Some(usize::from(packed & 3) + 1)
        });
        Some(Self { is_h265, length_bytes })
    }
}

/// The type of a unit (`nal_unit_type`), from its first byte.
pub(crate) fn kind(first: u8, is_h265: bool) -> u8 {
    if is_h265 { first >> 1 & 0x3F } else { first & 0x1F }
}

/// True if units of this type hold a part of a picture.
pub(crate) fn is_picture(kind: u8, is_h265: bool) -> bool {
    if is_h265 { kind < 32 } else { (1..=5).contains(&kind) }
}

/// The next unit, as far as its bytes are there, and the rest.
pub(crate) fn next(bytes: &[u8], length_bytes: Option<usize>) -> Option<(&[u8], &[u8])> {
    if let Some(count) = length_bytes {
        let end = count.saturating_add(length(bytes, count)?).min(bytes.len());
        return Some((&bytes[count..end], &bytes[end..]));
    }
    let code = |bytes: &[u8]| bytes.windows(3).position(|three| *three == [0, 0, 1]);
    let start = code(bytes)? + 3;
    let end = code(&bytes[start..]).map_or(bytes.len(), |at| start + at);
    Some((&bytes[start..end], &bytes[end..]))
}

/// The units of which all bytes are there.
pub(crate) fn whole_units(bytes: &[u8], length_bytes: Option<usize>) -> impl Iterator<Item = &[u8]> {
    let mut rest = bytes;
    std::iter::from_fn(move || {
        let (unit, after) = next(rest, length_bytes)?;
        let is_whole = length_bytes.is_none_or(|count| length(rest, count) == Some(unit.len()));
        rest = after;
        is_whole.then_some(unit)
    })
}

/// The length of a unit, from so many bytes in front of it.
fn length(bytes: &[u8], count: usize) -> Option<usize> {
    Some(bytes.get(..count)?.iter().fold(0, |length, byte| length << 8 | usize::from(*byte)))
}

/// Returns the bytes of a unit without those that keep start codes out of it.
pub(crate) fn unescaped(bytes: &[u8]) -> Vec<u8> {
    let mut zeros = 0;
    let mut plain = Vec::with_capacity(bytes.len());
    for byte in bytes {
        if zeros >= 2 && *byte == 3 {
            zeros = 0;
            continue;
        }
        zeros = if *byte == 0 { zeros + 1 } else { 0 };
        plain.push(*byte);
    }
    plain
}

/// An SEI message (ITU-T H.274, H.264 annex D, H.265 annex D).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Message<'a> {
    pub(crate) kind: usize,
    /// As far as its bytes are there.
    pub(crate) payload: &'a [u8],
    /// False if its end is missing.
    pub(crate) is_whole: bool,
}

impl Message<'_> {
    pub(crate) const RECOVERY_POINT: usize = 6;
    pub(crate) const DISPLAY_ORIENTATION: usize = 47;
}

/// The messages of an SEI unit, behind its header and unescaped.
pub(crate) fn messages(mut bytes: &[u8]) -> impl Iterator<Item = Message<'_>> {
    std::iter::from_fn(move || {
        // The last byte is the unit's trailing bits.
        if bytes.len() <= 2 {
            return None;
        }
        let (kind, rest) = long_number(bytes)?;
        let (size, rest) = long_number(rest)?;
        let (payload, after) = rest.split_at(size.min(rest.len()));
        bytes = after;
        Some(Message { kind, payload, is_whole: payload.len() == size })
    })
}

/// A number, coded as bytes of 255 and one last byte, which are added.
fn long_number(bytes: &[u8]) -> Option<(usize, &[u8])> {
    let full = bytes.iter().take_while(|byte| **byte == 0xFF).count();
    let last = bytes.get(full)?;
    Some((full * 255 + usize::from(*last), &bytes[full + 1..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_are_cut_by_their_lengths_or_by_start_codes() {
        let units = |bytes, length_bytes| whole_units(bytes, length_bytes).collect::<Vec<_>>();
        assert_eq!(units(&[0, 2, 7, 8, 0, 1, 9], Some(2)), [&[7, 8][..], &[9]]);
        assert_eq!(units(&[0, 2, 7, 8, 0, 9, 9], Some(2)), [&[7, 8]], "cut off");
        assert_eq!(units(&[0, 0, 0, 1, 7, 0, 0, 1, 8], None), [&[7][..], &[8]]);
    }

    #[test]
    fn escapes_are_taken_out() {
        assert_eq!(unescaped(&[0, 0, 3, 1, 0, 0, 3, 0, 0, 3]), [0, 0, 1, 0, 0, 0, 0]);
    }
}
