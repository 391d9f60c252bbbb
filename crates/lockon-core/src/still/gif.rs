//! Checks whether a GIF file has several pictures.
//!
//! A file of a few bytes can claim pictures of gigabytes, so the blocks are counted and none is decoded
//! (version 89a of the format, appendix A).

/// The header and the size, colours and shape of the screen.
const HEAD: usize = 13;
const IMAGE: u8 = b',';
const EXTENSION: u8 = b'!';
const TRAILER: u8 = b';';

/// True if anything but the end of the file follows the first picture: another picture, or a file that is cut
/// off.
pub(super) fn is_video(bytes: &[u8]) -> bool {
    behind_first(bytes).is_some_and(|rest| {
        let mut rest = Some(rest);
        loop {
            match rest {
                Some([EXTENSION, _, blocks @ ..]) => rest = behind_blocks(blocks),
                Some([TRAILER, ..]) => return false,
                _ => return true,
            }
        }
    })
}

/// The bytes after the first picture, if that is complete.
fn behind_first(bytes: &[u8]) -> Option<&[u8]> {
    let mut rest = behind_colours(bytes.get(HEAD..)?, *bytes.get(10)?)?;
    loop {
        match rest {
            [EXTENSION, _, blocks @ ..] => rest = behind_blocks(blocks)?,
            // Place and size, then flags; one byte before the data is the length of the first code.
            [IMAGE, _, _, _, _, _, _, _, _, flags, data @ ..] => {
                return behind_blocks(behind_colours(data, *flags)?.get(1..)?);
            }
            _ => return None,
        }
    }
}

/// The bytes after a table of colours, if the flags announce one.
fn behind_colours(bytes: &[u8], flags: u8) -> Option<&[u8]> {
    let colours = if flags & 0x80 == 0 { 0 } else { 2 << (flags & 7) };
    bytes.get(3 * colours..)
}

/// Returns the bytes behind blocks of data. The last block is empty.
fn behind_blocks(mut bytes: &[u8]) -> Option<&[u8]> {
    loop {
        let (length, rest) = bytes.split_first()?;
        bytes = rest.get(usize::from(*length)..)?;
        if *length == 0 {
            return Some(bytes);
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// Returns a GIF of pictures of these sizes. Each has no more data than one code.
    pub(in crate::still) fn gif(screen: (u16, u16), pictures: &[(u16, u16)]) -> Vec<u8> {
        let bytes_of = |(width, height): (u16, u16)| [width.to_le_bytes(), height.to_le_bytes()].concat();
        let mut bytes =
            [&b"GIF89a"[..], &bytes_of(screen), &[0x80, 0, 0], &[0, 0, 0, 255, 255, 255]].concat();
        for size in pictures {
            bytes.extend(b"\x21\xF9\x04\x04\x04\0\0\0\x2C\0\0\0\0");
            bytes.extend(bytes_of(*size));
            bytes.extend(b"\0\x02\x02\x4C\x01\0");
        }
        bytes.push(TRAILER);
        bytes
    }

    #[test]
    fn the_pictures_of_a_gif_are_counted_whatever_size_they_claim() {
        let large = (65_535, 65_535);
        let (one, two) = (gif(large, &[large]), gif(large, &[large, large]));
        assert!(!is_video(&one) && is_video(&two) && !is_video(&gif(large, &[])));
        // A table of colours of its own, and a comment behind the picture.
        let at = HEAD + 6 + 8;
        let local =
            [&one[..at + 9], &[0x81], &[7; 12], &one[at + 10..one.len() - 1], b"!\xFE\x02,,\0"].concat();
        assert!(!is_video(&[&local[..], b";"].concat()));
        assert!(is_video(&[&local[..], &two[HEAD + 6..]].concat()));
    }

    #[test]
    fn a_gif_that_is_cut_in_its_first_picture_is_no_video_and_one_cut_behind_it_is() {
        let one = gif((9, 7), &[(9, 7)]);
        let end = one.len() - 1;
        for length in 0..end {
            assert!(!is_video(&one[..length]), "{length}");
        }
        assert!(is_video(&one[..end]));
    }
}
