//! Files that end before they say they do: a download that broke off, a camera that lost power.
//!
//! Demuxers play such files as far as they go and then tell an ordinary end. Users should hear that a part is missing, so
//! the outermost layer of the file is asked for its length: boxes of MP4 and `QuickTime`, the RIFF header of AVI.

use std::fmt;
use std::fs::File;
use std::io::{Read, Result, Seek, SeekFrom};
use std::path::Path;

/// How much of a file is missing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Truncation {
    /// Bytes that it should have, as far as it tells.
    needed: u64,
    /// Bytes that it has.
    length: u64,
    /// An MP4 that is cut before its index cannot be played at all.
    pub(super) has_index: bool,
}

impl fmt::Display for Truncation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { needed, length, has_index } = self;
        let index = if *has_index { "" } else { ", and its index (moov) is in what is missing" };
        write!(f, "the file is cut off: it should have {needed} bytes or more and has {length}{index}")
    }
}

/// What is missing of the file; `None` if nothing is, or if its kind does not tell.
pub(super) fn truncation(path: &Path) -> Option<Truncation> {
    let mut file = File::open(path).ok()?;
    let length = file.metadata().ok()?.len();
    let found = measured(&mut file, length).ok().flatten()?;
    (found.needed > length).then_some(found)
}

/// The length that the outermost headers ask for.
fn measured(file: &mut File, length: u64) -> Result<Option<Truncation>> {
    let mut header = [0; 16];
    file.read_exact(&mut header[..8])?;
    let [a, b, c, d, kind @ ..] = *header.first_chunk::<8>().expect("the header is longer");
    if [a, b, c, d] == *b"RIFF" {
        // Who writes to a pipe cannot go back to fill the size in.
        let size = Some(u32::from_le_bytes(kind)).filter(|size| !matches!(*size, 0 | u32::MAX));
        return Ok(size.map(|size| Truncation { needed: 8 + u64::from(size), length, has_index: true }));
    }
    if !is_box(kind) {
        return Ok(None);
    }
    let (mut start, mut has_index) = (0, false);
    while start + 8 <= length {
        file.seek(SeekFrom::Start(start))?;
        file.read_exact(&mut header[..8])?;
        let size = match u32::from_be_bytes(*header.first_chunk().expect("the header is longer")) {
            // The last box reaches to the end, wherever that is.
            0 => return Ok(None),
            1 => {
                file.read_exact(&mut header[8..])?;
                u64::from_be_bytes(*header.last_chunk().expect("the header is longer"))
            }
            size => u64::from(size),
        };
        let is_box = is_box(*header[4..].first_chunk().expect("the header is longer"));
        if size < 8 || !is_box {
            // Something else than a box, behind the last one: cameras leave notes there.
            break;
        }
        start = start.saturating_add(size);
        has_index |= header[4..8] == *b"moov" && start <= length;
    }
    Ok(Some(Truncation { needed: start, length, has_index }))
}

/// The boxes that stand outermost in MP4 and `QuickTime` files.
fn is_box(kind: [u8; 4]) -> bool {
    const KINDS: [&[u8; 4]; 14] = [
        b"ftyp", b"moov", b"mdat", b"wide", b"free", b"skip", b"moof", b"mfra", b"sidx", b"styp", b"uuid",
        b"meta", b"pnot", b"udta",
    ];
    KINDS.contains(&&kind)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(bytes: &[u8]) -> Option<String> {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        std::fs::write(&path, bytes).unwrap();
        truncation(&path).map(|found| found.to_string())
    }

    fn boxes(mdat_size: u32, mdat_bytes: usize) -> Vec<u8> {
        let mut bytes = b"\0\0\0\x0cftypisom".to_vec();
        bytes.extend(mdat_size.to_be_bytes());
        bytes.extend(b"mdat");
        bytes.resize(bytes.len() + mdat_bytes, 7);
        bytes
    }

    #[test]
    fn a_cut_mp4_says_how_much_is_missing() {
        assert_eq!(of(&boxes(108, 100)), None);
        assert_eq!(
            of(&boxes(108, 40)).unwrap(),
            "the file is cut off: it should have 120 bytes or more and has 60, and its index (moov) is in what is missing"
        );
    }

    #[test]
    fn boxes_without_a_length_and_nonsense_say_nothing() {
        assert_eq!(of(&boxes(0, 40)), None);
        assert_eq!(of(&boxes(3, 40)), None);
        let mut noted = boxes(48, 40);
        noted.extend(b"\x7f\0\0\0 notes of a camera");
        assert_eq!(of(&noted), None);
        assert_eq!(of(b"short"), None);
        assert_eq!(of(b"no video at all, just words"), None);
    }

    #[test]
    fn large_boxes_and_riff_are_measured() {
        let mut large = b"\0\0\0\x01mdat\0\0\0\x01\0\0\0\0".to_vec();
        large.extend([0; 30]);
        assert!(of(&large).unwrap().contains("4294967296 bytes"));
        assert_eq!(of(b"RIFF\x04\0\0\0AVI "), None);
        assert_eq!(of(b"RIFF\xff\xff\xff\xffAVI "), None);
        assert!(of(b"RIFF\xff\0\0\0AVI ").unwrap().contains("263 bytes"));
    }
}
