//! Orientations: how a picture must be turned or mirrored for display.
//!
//! GStreamer has a tag for it in most videos. GStreamer 1.22 has none for one of the eight orientations of
//! MP4, which front cameras write, and reads no display orientation messages of H.264 and H.265; this module
//! reads both.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::Path;

/// One of the eight ways to turn and mirror a picture.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Orientation {
    /// Mirrored left to right, before it is turned.
    is_mirrored: bool,
    /// Quarter turns clockwise.
    turns: u8,
}

impl Orientation {
    /// As it is.
    #[cfg(test)]
    pub(super) const UPRIGHT: Self = Self { is_mirrored: false, turns: 0 };

    /// Mirrored left to right if so, then turned by so many quarters clockwise.
    pub(super) fn new(is_mirrored: bool, turns: i64) -> Self {
        Self { is_mirrored, turns: turns.rem_euclid(4) as u8 }
    }

    /// The orientation that a matrix of `x' = a x + c y, y' = b x + d y` makes, with y pointing down; `None`
    /// for one that does something else.
    fn of_matrix(a: i32, b: i32, c: i32, d: i32) -> Option<Self> {
        Some(match [a, b, c, d].map(i32::signum) {
            [1, 0, 0, 1] => Self::new(false, 0),
            [0, 1, -1, 0] => Self::new(false, 1),
            [-1, 0, 0, -1] => Self::new(false, 2),
            [0, -1, 1, 0] => Self::new(false, 3),
            [-1, 0, 0, 1] => Self::new(true, 0),
            [0, 1, 1, 0] => Self::new(true, 3),
            [1, 0, 0, -1] => Self::new(true, 2),
            [0, -1, -1, 0] => Self::new(true, 1),
            _ => return None,
        })
    }

    /// Its name in `videoflip`; `None` if nothing must change.
    pub(super) fn direction(self) -> Option<&'static str> {
        Some(match (self.is_mirrored, self.turns) {
            (false, 0) => return None,
            (false, 1) => "90r",
            (false, 2) => "180",
            (false, _) => "90l",
            (true, 0) => "horiz",
            (true, 1) => "ur-ll",
            (true, 2) => "vert",
            (true, _) => "ul-lr",
        })
    }

    /// In words, such as `turned by 90 degrees clockwise`.
    pub(crate) fn in_words(self) -> String {
        let mirrored = if self.is_mirrored { "mirrored" } else { "" };
        let turned = match self.turns {
            0 => String::new(),
            turns => format!("turned by {} degrees clockwise", u32::from(turns) * 90),
        };
        match (self.is_mirrored, self.turns) {
            (false, 0) => "upright".to_owned(),
            (true, 1..) => format!("{mirrored}, then {turned}"),
            _ => format!("{mirrored}{turned}"),
        }
    }

    /// Reads the text of GStreamer's tag `image-orientation`.
    pub(crate) fn of_tag(tag: &str) -> Option<Self> {
        let (is_mirrored, degrees) = match tag.strip_prefix("flip-rotate-") {
            Some(degrees) => (true, degrees),
            None => (false, tag.strip_prefix("rotate-")?),
        };
        let degrees: i64 = degrees.parse().ok().filter(|degrees| degrees % 90 == 0)?;
        Some(Self::new(is_mirrored, degrees / 90))
    }
}

/// Maximum boxes that are read in one file: a day of fragments has a hundredth of them.
const MAX_BOXES: usize = 1 << 20;

/// The orientation of a track of an MP4 or `QuickTime` file; `None` if it has no such track, or its matrix
/// does more than turning and mirroring.
pub(super) fn of_mp4(path: &Path, track: u32) -> Option<Orientation> {
    // A pipe would lose the bytes read here.
    path.metadata().ok().filter(std::fs::Metadata::is_file)?;
    let mut file = File::open(path).ok()?;
    let length = file.metadata().ok()?.len();
    of_track(&mut file, length, track)
}

/// Searches the boxes of a file of `length` bytes for the header of that track.
fn of_track(file: &mut (impl Read + Seek), length: u64, track: u32) -> Option<Orientation> {
    let mut head = [0; 16];
    file.seek(SeekFrom::Start(0)).ok()?;
    file.read_exact(&mut head[..8]).ok()?;
    if !matches!(&head[4..8], b"ftyp" | b"moov" | b"mdat" | b"wide" | b"free" | b"skip" | b"pnot") {
        return None;
    }
    let mut start = 0_u64;
    for _ in 0..MAX_BOXES {
        if start.checked_add(8)? > length {
            return None;
        }
        file.seek(SeekFrom::Start(start)).ok()?;
        file.read_exact(&mut head[..8]).ok()?;
        let (size, header) = match u32::from_be_bytes(*head.first_chunk()?) {
            0 => (length - start, 8),
            1 => {
                file.read_exact(&mut head[8..]).ok()?;
                (u64::from_be_bytes(*head.last_chunk()?), 16)
            }
            size => (u64::from(size), 8),
        };
        if size < header {
            return None;
        }
        match &head[4..8] {
            // Their content comes next.
            b"moov" | b"trak" => start += header,
            b"tkhd" => {
                let (number, found) = track_header(file, size - header)?;
                if number == track {
                    return found;
                }
                start = start.checked_add(size)?;
            }
            _ => start = start.checked_add(size)?,
        }
    }
    None
}

/// The number of a track and its orientation, of the track header whose bytes come next.
fn track_header(file: &mut impl Read, length: u64) -> Option<(u32, Option<Orientation>)> {
    let mut bytes = [0; 96];
    let length = usize::try_from(length).ok()?.min(bytes.len());
    file.read_exact(&mut bytes[..length]).ok()?;
    // ISO/IEC 14496-12, 8.3.2: times and durations have 64 bits in version 1.
    let (id, matrix) = if bytes[0] == 1 { (20, 52) } else { (12, 40) };
    let number = |at: usize| Some(i32::from_be_bytes(*bytes[..length].get(at..)?.first_chunk()?));
    let at = |index: usize| number(matrix + 4 * index);
    let orientation = || Orientation::of_matrix(at(0)?, at(1)?, at(3)?, at(4)?);
    Some((number(id)? as u32, orientation()))
}

#[cfg(test)]
mod tests {
    use std::io::Cursor;

    use super::*;

    fn boxed(kind: [u8; 4], inside: &[u8]) -> Vec<u8> {
        [&(inside.len() as u32 + 8).to_be_bytes()[..], &kind, inside].concat()
    }

    fn header(version: u8, track: u32, matrix: [i32; 4]) -> Vec<u8> {
        let mut bytes = vec![0; if version == 1 { 96 } else { 84 }];
        bytes[0] = version;
        let (id, at) = if version == 1 { (20, 52) } else { (12, 40) };
        bytes[id..id + 4].copy_from_slice(&track.to_be_bytes());
        for (index, value) in [0, 1, 3, 4].into_iter().zip(matrix) {
            bytes[at + 4 * index..][..4].copy_from_slice(&(value << 16).to_be_bytes());
        }
        boxed(*b"tkhd", &bytes)
    }

    #[test]
    fn the_matrix_of_the_track_is_found_whatever_lies_around_it() {
        let tracks: Vec<_> = [(0, 1, [1, 0, 0, 1]), (1, 7, [0, -1, -1, 0])]
            .map(|(version, track, matrix)| boxed(*b"trak", &header(version, track, matrix)))
            .concat();
        let moov = boxed(*b"moov", &[boxed(*b"mvhd", &[0; 100]), tracks].concat());
        for file in [
            [boxed(*b"ftyp", b"isom"), moov.clone(), boxed(*b"mdat", &[0; 50])].concat(),
            // A large box has its size behind its kind.
            [boxed(*b"ftyp", b"isom"), b"\0\0\0\x01mdat\0\0\0\0\0\0\0\x14abcd".to_vec(), moov].concat(),
        ] {
            let of = |track| of_track(&mut Cursor::new(&file), file.len() as u64, track);
            assert_eq!(of(1), Some(Orientation::UPRIGHT));
            assert_eq!(of(7), Some(Orientation::new(true, 1)));
            assert_eq!(of(2), None);
            // A file that is cut anywhere, or is no MP4, is no reason to fail.
            for cut in 0..file.len() {
                of_track(&mut Cursor::new(&file[..cut]), file.len() as u64, 7);
                of_track(&mut Cursor::new(&file[cut..]), (file.len() - cut) as u64, 7);
            }
        }
        assert_eq!(of_track(&mut Cursor::new(b"\x1A\x45\xDF\xA3 no MP4 at all"), 18, 1), None);
    }

    #[test]
    fn a_matrix_that_does_something_else_says_nothing() {
        assert_eq!(Orientation::of_matrix(1, 1, -1, 1), None);
        assert_eq!(Orientation::of_matrix(0, 0, 0, 0), None);
        assert_eq!(Orientation::new(true, 1).in_words(), "mirrored, then turned by 90 degrees clockwise");
        assert_eq!(Orientation::of_tag("flip-rotate-270"), Some(Orientation::new(true, 3)));
        assert_eq!(Orientation::of_tag("rotate-90"), Some(Orientation::new(false, 1)));
    }
}
