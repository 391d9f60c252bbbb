//! Files that end before they say they do: a download that broke off, a camera that lost power.
//!
//! Demuxers play such files as far as possible and then report an ordinary end. Users should hear that a part
//! is missing, so the length is read from the outermost layer of the file: boxes of MP4 and `QuickTime`, the
//! RIFF header of AVI, elements of Matroska, packets of MPEG transport streams. A transport stream that ends
//! with a packet does not show that more would follow.

use std::fmt;
use std::fs::File;
use std::io::{Read, Result, Seek, SeekFrom};
use std::path::Path;

/// How much of a file is missing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Truncation {
    /// Bytes that the file should have, by its headers.
    needed: u64,
    /// Bytes that it has.
    length: u64,
    /// An MP4 that is cut before its index cannot be played at all.
    pub has_index: bool,
}

impl fmt::Display for Truncation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { needed, length, has_index } = self;
        let index = if *has_index { "" } else { ", and its index (moov) is in what is missing" };
        write!(f, "the file is cut off: it should have {needed} bytes or more and has {length}{index}")
    }
}

/// Returns the missing part of the file; `None` if nothing is missing, or if its kind does not show that.
///
/// Only regular files are opened: a pipe would lose the bytes read here, and wait for a writer first.
pub fn truncation(path: &Path) -> Option<Truncation> {
    path.metadata().ok().filter(std::fs::Metadata::is_file)?;
    let mut file = File::open(path).ok()?;
    let length = file.metadata().ok()?.len();
    let found = measured(&mut file, length).ok().flatten()?;
    (found.needed > length).then_some(found)
}

/// Most outermost elements that are looked at. A day of fragments of half a second has a tenth of them; a
/// file that is made to keep us busy has no more.
const MAX_ELEMENTS: usize = 1 << 22;

/// Returns the length that the outermost headers of a file of `length` bytes require, whether a part is
/// missing or not; `None` if its kind does not show that.
///
/// # Errors
/// If it cannot be read, or ends in the middle of a header.
pub fn measured(file: &mut (impl Read + Seek), length: u64) -> Result<Option<Truncation>> {
    let mut header = [0; 16];
    file.read_exact(&mut header[..8])?;
    let [a, b, c, d, kind @ ..] = *header.first_chunk::<8>().expect("the header is longer");
    if [a, b, c, d] == *b"RIFF" {
        // A writer to a pipe cannot go back to fill the size in.
        let size = Some(u32::from_le_bytes(kind)).filter(|size| !matches!(*size, 0 | u32::MAX));
        return Ok(size.map(|size| Truncation { needed: 8 + u64::from(size), length, has_index: true }));
    }
    if [a, b, c, d] == EBML {
        return matroska(file, length);
    }
    if a == TS_SYNC {
        return transport_stream(file, length);
    }
    if !is_box(kind) {
        return Ok(None);
    }
    let (mut start, mut has_index, mut boxes) = (0_u64, false, 0);
    while start.saturating_add(8) <= length {
        boxes += 1;
        if boxes > MAX_ELEMENTS {
            return Ok(None);
        }
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

/// How an EBML file begins: the ID of its first element.
const EBML: [u8; 4] = [0x1A, 0x45, 0xDF, 0xA3];

/// Matroska after RFC 9559 and RFC 8794: an EBML header and a segment, which has a size if its writer came to
/// its end.
fn matroska(file: &mut (impl Read + Seek), length: u64) -> Result<Option<Truncation>> {
    let (mut start, mut elements) = (0_u64, 0);
    while start < length {
        elements += 1;
        if elements > MAX_ELEMENTS {
            return Ok(None);
        }
        file.seek(SeekFrom::Start(start))?;
        let mut bytes = [0; 12];
        let got = file.by_ref().take(12).read(&mut bytes)?;
        // A variable-length number has as many bytes as its first has leading zeros, and one.
        let id_length = bytes[0].leading_zeros() as usize + 1;
        let size_length = bytes[id_length.min(4)].leading_zeros() as usize + 1;
        if id_length > 4 || size_length > 8 {
            // No element: the bytes from here on are not Matroska.
            return Ok(None);
        }
        if got < id_length + size_length {
            start += (id_length + size_length) as u64;
            break;
        }
        let mut size = u64::from(bytes[id_length]) & (0xFF >> size_length);
        for byte in &bytes[id_length + 1..id_length + size_length] {
            size = size << 8 | u64::from(*byte);
        }
        start += (id_length + size_length) as u64;
        // All ones: the writer did not know the size while it wrote. The elements inside show it.
        let is_unknown = size == (1 << (7 * size_length)) - 1;
        if !is_unknown {
            start = start.saturating_add(size);
        }
    }
    Ok(Some(Truncation { needed: start, length, has_index: true }))
}

/// How every packet of an MPEG transport stream begins (ISO/IEC 13818-1).
const TS_SYNC: u8 = 0x47;

/// Packets of 188 bytes, each whole.
fn transport_stream(file: &mut (impl Read + Seek), length: u64) -> Result<Option<Truncation>> {
    const PACKET: u64 = 188;
    for packet in 1..4 {
        let mut sync = [0];
        file.seek(SeekFrom::Start(packet * PACKET))?;
        if file.read(&mut sync)? == 1 && sync[0] != TS_SYNC {
            return Ok(None);
        }
    }
    Ok(Some(Truncation { needed: length.next_multiple_of(PACKET), length, has_index: true }))
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
    fn matroska_and_transport_streams_that_are_cut_are_told() {
        let folder = tempfile::tempdir().unwrap();
        crate::launch::init().unwrap();
        for (mux, is_streamed) in
            [("matroskamux", false), ("matroskamux streamable=true", true), ("mpegtsmux", false)]
        {
            let path = folder.path().join("clip");
            let video = "videotestsrc num-buffers=30 ! video/x-raw,width=64,height=48 ! x264enc";
            crate::testing::make_clip(&path, &format!("{video} ! {mux} ! filesink name=file"));
            assert!(truncation(&path).is_none(), "{mux}");
            let whole = std::fs::read(&path).unwrap();
            for share in [30, 50, 90] {
                let cut = whole.len() * share / 100 + 1;
                let found = of(&whole[..cut]).unwrap_or_else(|| panic!("{mux} cut at {cut}"));
                assert!(
                    is_streamed || mux == "mpegtsmux" || found.contains(&whole.len().to_string()),
                    "{found}"
                );
            }
        }
    }

    #[test]
    fn a_file_of_nothing_but_tiny_elements_keeps_nobody_busy_for_long() {
        struct Endless([u8; 8], usize);
        impl Read for Endless {
            fn read(&mut self, into: &mut [u8]) -> Result<usize> {
                self.1 += 1;
                assert!(self.1 <= MAX_ELEMENTS + 10, "it reads on and on");
                let length = into.len().min(self.0.len());
                into[..length].copy_from_slice(&self.0[..length]);
                Ok(length)
            }
        }
        impl Seek for Endless {
            fn seek(&mut self, _: SeekFrom) -> Result<u64> {
                Ok(0)
            }
        }
        for element in [*b"\0\0\0\x08free", [0x1A, 0x45, 0xDF, 0xA3, 0x80, 0, 0, 0]] {
            assert!(measured(&mut Endless(element, 0), u64::MAX).unwrap().is_none());
        }
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
