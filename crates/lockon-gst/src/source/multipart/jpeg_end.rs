//! Finds the end of a JPEG picture from its bytes as they arrive.

/// Marker codes of ITU-T T.81, table B.1.
const SOI: u8 = 0xD8;
const EOI: u8 = 0xD9;
const SOS: u8 = 0xDA;
const TEM: u8 = 0x01;
const RST: std::ops::RangeInclusive<u8> = 0xD0..=0xD7;

/// Finds the end of one JPEG picture in pieces of any size.
///
/// Segments are skipped by their length, so the end of a thumbnail in them does not count as the picture's.
#[derive(Debug, Default)]
pub(super) struct JpegEnd {
    state: State,
    /// Bytes up to here were scanned.
    seen: usize,
    /// The segment that is skipped is followed by compressed data.
    is_scan: bool,
    /// The start of the last compressed data, or of the first byte that no JPEG has.
    data: Option<usize>,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum State {
    /// The 0xFF of a marker comes next.
    #[default]
    Marker,
    /// The code of a marker comes next; 0xFF before it is padding.
    Code,
    /// The upper, then the lower byte of a segment's length.
    Length(Option<u8>),
    /// So many bytes of a segment are left.
    Segment(usize),
    /// Compressed data, after the first byte 0xFF if true.
    Data(bool),
    /// No JPEG, or a damaged one: its bytes do not show its end.
    Unknown,
}

impl JpegEnd {
    /// Scans the bytes added to `picture`, which begins with the picture's first byte. Returns the length of
    /// the picture once its last byte is there.
    pub(super) fn look(&mut self, picture: &[u8]) -> Option<usize> {
        while self.seen < picture.len() {
            let byte = picture[self.seen];
            if matches!(self.state, State::Data(_) | State::Unknown) {
                self.data.get_or_insert(self.seen);
            }
            match self.state {
                State::Unknown => {
                    self.seen = picture.len();
                    return None;
                }
                State::Segment(left) => {
                    let skipped = left.min(picture.len() - self.seen);
                    self.seen += skipped;
                    self.state = match left - skipped {
                        0 if self.is_scan => State::Data(false),
                        0 => State::Marker,
                        left => State::Segment(left),
                    };
                    continue;
                }
                State::Data(false) => {
                    let Some(at) = picture[self.seen..].iter().position(|byte| *byte == 0xFF) else {
                        self.seen = picture.len();
                        return None;
                    };
                    self.seen += at;
                    self.state = State::Data(true);
                }
                // A stuffed zero, or a restart marker.
                State::Data(true) if byte == 0 || RST.contains(&byte) => self.state = State::Data(false),
                State::Data(true) | State::Code if byte == 0xFF => {}
                State::Data(true) | State::Code => match byte {
                    EOI => {
                        self.seen += 1;
                        return Some(self.seen);
                    }
                    SOI | TEM => self.state = State::Marker,
                    0 => self.state = State::Unknown,
                    code => (self.state, self.is_scan) = (State::Length(None), code == SOS),
                },
                State::Marker if byte == 0xFF => self.state = State::Code,
                State::Marker => self.state = State::Unknown,
                State::Length(None) => self.state = State::Length(Some(byte)),
                State::Length(Some(upper)) => {
                    // The length counts its own two bytes.
                    self.state = match usize::from(u16::from_be_bytes([upper, byte])) {
                        0 | 1 => State::Unknown,
                        2 if self.is_scan => State::Data(false),
                        2 => State::Marker,
                        length => State::Segment(length - 2),
                    };
                }
            }
            self.seen += 1;
        }
        None
    }

    /// The first place at which a boundary may end the picture: not within a segment, which may hold any
    /// bytes. `None` before the compressed data.
    pub(super) fn data(&self) -> Option<usize> {
        self.data
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Start, a segment that holds a whole thumbnail, a scan with stuffing and a restart marker, end.
    const PICTURE: [u8; 27] = [
        0xFF, SOI, 0xFF, 0xE1, 0, 6, 0xFF, SOI, 0xFF, EOI, 0xFF, 0xFF, SOS, 0, 3, 9, 7, 0xFF, 0, 0xFF, 0xD3,
        8, 0xFF, 0xFF, EOI, 1, 2,
    ];

    #[test]
    fn a_picture_ends_with_its_own_end_in_pieces_of_any_size() {
        for piece in 1..PICTURE.len() {
            let mut end = JpegEnd::default();
            let ends: Vec<_> = (0..PICTURE.len())
                .step_by(piece)
                .map(|start| (start + piece).min(PICTURE.len()))
                .map(|length| end.look(&PICTURE[..length]))
                .take_while(Option::is_none)
                .collect();
            let mut end = JpegEnd::default();
            assert_eq!(end.look(&PICTURE[..24]), None);
            assert_eq!(end.look(&PICTURE), Some(25));
            assert!(ends.len() < PICTURE.len().div_ceil(piece), "pieces of {piece}");
        }
    }

    #[test]
    fn what_is_no_jpeg_has_no_end_of_its_own() {
        for bytes in [&b"<html>"[..], &[0xFF, SOI, 0xFF, 0xE1, 0, 1, 0xFF, EOI], &[0xFF, 0, 0xFF, EOI]] {
            let mut end = JpegEnd::default();
            assert_eq!(end.look(bytes), None);
            assert_eq!(end.state, State::Unknown, "{bytes:?}");
        }
    }
}
