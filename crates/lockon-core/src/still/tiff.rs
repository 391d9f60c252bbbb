//! Reads the directories of TIFF files, which EXIF data are too, for what their decoder leaves out: the
//! number of pages, and dots per inch. Nothing is allocated but a copy of the file.

use super::density::Density;

/// More pages than this are not counted: directories can point at each other in a circle.
const MAX_PAGES: usize = 1 << 16;

/// Sizes of the parts of a file.
#[derive(Clone, Copy)]
struct Tiff<'a> {
    bytes: &'a [u8],
    is_big_endian: bool,
    /// Offsets of 8 bytes.
    is_big: bool,
}

/// One directory: a page.
#[derive(Clone, Copy)]
struct Directory {
    /// The first entry, and how many there are.
    entries: usize,
    count: usize,
    /// Place of the next directory's offset.
    link: usize,
}

impl<'a> Tiff<'a> {
    fn new(bytes: &'a [u8]) -> Option<Self> {
        let is_big_endian = match bytes.first_chunk()? {
            b"II" => false,
            b"MM" => true,
            _ => return None,
        };
        let mut tiff = Self { bytes, is_big_endian, is_big: false };
        tiff.is_big = match tiff.number(2, 2)? {
            42 => false,
            43 => true,
            _ => return None,
        };
        Some(tiff)
    }

    /// The number of so many bytes at a place.
    fn number(&self, at: usize, bytes: usize) -> Option<u64> {
        let bytes = self.bytes.get(at..at.checked_add(bytes)?)?;
        let add = |sum: u64, byte: &u8| sum << 8 | u64::from(*byte);
        Some(if self.is_big_endian { bytes.iter().fold(0, add) } else { bytes.iter().rev().fold(0, add) })
    }

    /// Bytes of an offset.
    fn offset_bytes(&self) -> usize {
        if self.is_big { 8 } else { 4 }
    }

    /// Place of the first directory's offset.
    fn first_link(&self) -> usize {
        if self.is_big { 8 } else { 4 }
    }

    /// The directory that the offset at this place leads to; `None` at the end.
    fn directory(&self, link: usize) -> Option<Directory> {
        let at = usize::try_from(self.number(link, self.offset_bytes())?).ok().filter(|at| *at > 0)?;
        let (count_bytes, entry_bytes) = if self.is_big { (8, 20) } else { (2, 12) };
        let count = usize::try_from(self.number(at, count_bytes)?).ok()?;
        let entries = at.checked_add(count_bytes)?;
        let link = entries.checked_add(count.checked_mul(entry_bytes)?)?;
        Some(Directory { entries, count, link })
    }

    fn directories(&self) -> impl Iterator<Item = Directory> {
        let mut link = self.first_link();
        let next = move || {
            let directory = self.directory(link)?;
            link = directory.link;
            Some(directory)
        };
        std::iter::from_fn(next).take(MAX_PAGES)
    }

    /// A value of one entry: an integer of two or four bytes, or a quotient.
    fn value(&self, directory: Directory, tag: u64) -> Option<f64> {
        let entry_bytes = if self.is_big { 20 } else { 12 };
        let mut entries = (0..directory.count.min(4096)).map(|i| directory.entries + i * entry_bytes);
        let at = entries.find(|&at| self.number(at, 2) == Some(tag))?;
        let value = at + if self.is_big { 12 } else { 8 };
        match self.number(at + 2, 2)? {
            3 => Some(self.number(value, 2)? as f64),
            4 => Some(self.number(value, 4)? as f64),
            5 => {
                // Two integers, which fit into the entry only where offsets have 8 bytes.
                let at = if self.is_big { value } else { usize::try_from(self.number(value, 4)?).ok()? };
                Some(self.number(at, 4)? as f64 / self.number(at.checked_add(4)?, 4)? as f64)
            }
            _ => None,
        }
    }
}

/// The number of pages of a TIFF file, as far as its directories can be read; 0 for anything else.
pub(super) fn pages(bytes: &[u8]) -> usize {
    Tiff::new(bytes).map_or(0, |tiff| tiff.directories().count())
}

/// The file with only the page of that number, counted from 0: the same bytes, of which the header leads to
/// that page. `None` if it has no such page.
pub(super) fn page(bytes: &[u8], page: usize) -> Option<Vec<u8>> {
    let tiff = Tiff::new(bytes)?;
    let directory = tiff.directories().nth(page)?;
    // The number of entries comes before these.
    let at = directory.entries - if tiff.is_big { 8 } else { 2 };
    let mut only = bytes.to_vec();
    let (first, length) = (tiff.first_link(), tiff.offset_bytes());
    for (place, offset) in [(first, at as u64), (directory.link, 0)] {
        let bytes = if tiff.is_big_endian { offset.to_be_bytes() } else { offset.to_le_bytes() };
        let bytes = if tiff.is_big_endian { &bytes[8 - length..] } else { &bytes[..length] };
        // A file can end before the last directory's offset.
        if let Some(to) = only.get_mut(place..place.saturating_add(length)) {
            to.copy_from_slice(bytes);
        }
    }
    Some(only)
}

/// Dots per inch of the first page, or of a picture with these EXIF data.
pub(super) fn density(bytes: &[u8]) -> Option<Density> {
    const X_RESOLUTION: u64 = 282;
    const Y_RESOLUTION: u64 = 283;
    const RESOLUTION_UNIT: u64 = 296;
    let tiff = Tiff::new(bytes)?;
    let directory = tiff.directories().next()?;
    let value = |tag| tiff.value(directory, tag);
    // 2, the default, is an inch and 3 a centimetre; 1 is no unit.
    let per_inch = match value(RESOLUTION_UNIT) {
        None | Some(2.0) => 1.0,
        Some(3.0) => 2.54,
        Some(_) => return None,
    };
    let x = value(X_RESOLUTION)?;
    Density::new(x * per_inch, value(Y_RESOLUTION).unwrap_or(x) * per_inch)
}
