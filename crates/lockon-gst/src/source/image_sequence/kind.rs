//! Kinds of pictures: what they are called, how they begin, and whether their end is there.

use std::io::Read;
use std::path::Path;

/// A kind of pictures.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct PictureKind {
    pub(super) endings: &'static [&'static str],
    pub(super) caps: &'static str,
    /// What decodes it.
    pub(super) decoder: &'static str,
}

pub(super) const KINDS: [PictureKind; 5] = [
    PictureKind { endings: &["jpg", "jpeg"], caps: "image/jpeg", decoder: "jpegdec name=decode" },
    PictureKind { endings: &["png"], caps: "image/png", decoder: "pngdec name=decode" },
    PictureKind { endings: &["bmp"], caps: "image/bmp", decoder: "avdec_bmp name=decode" },
    PictureKind {
        endings: &["tif", "tiff"],
        caps: "image/tiff",
        decoder: "avdec_tiff name=decode max-threads=1",
    },
    PictureKind { endings: &["webp"], caps: "image/webp", decoder: "webpdec name=decode" },
];

impl PictureKind {
    pub(super) fn of(path: &Path) -> Option<Self> {
        let ending = path.extension()?.to_str()?.to_ascii_lowercase();
        KINDS.into_iter().find(|kind| kind.endings.contains(&ending.as_str()))
    }

    /// False if the end of a picture is missing, as far as its kind tells.
    pub(super) fn is_whole(self, bytes: &[u8]) -> bool {
        match self.caps {
            "image/jpeg" => ends_as_jpeg(bytes),
            "image/png" => ends_as_png(bytes),
            _ => true,
        }
    }
}

/// True if the end of the picture is there (ITU-T T.81, B.1.1), whatever is behind it: cameras put previews
/// and films there. Segments are passed over by their lengths, since a preview in one has an end of its own.
fn ends_as_jpeg(bytes: &[u8]) -> bool {
    const END: u8 = 0xD9;
    let mut rest = bytes;
    loop {
        // What is compressed has no marker but those of restarts, and decoders look for the next one as well.
        let Some(at) = rest.iter().position(|byte| *byte == 0xFF) else { return false };
        rest = &rest[at + 1..];
        match rest {
            [END, ..] => return true,
            // No marker, one that has filling before it, or one that has no segment.
            [0x00 | 0x01 | 0xD0..=0xD8 | 0xFF, ..] => {}
            [_, high, low, ..] => {
                let length = usize::from(u16::from_be_bytes([*high, *low]));
                let Some(behind) = rest.get(1 + length..) else { return false };
                rest = behind;
            }
            _ => return false,
        }
    }
}

/// True if the last chunk of the picture is there (PNG specification, 5.3), whatever is behind it.
fn ends_as_png(bytes: &[u8]) -> bool {
    // Behind the signature.
    let mut rest = bytes.get(8..).unwrap_or_default();
    while let [a, b, c, d, kind @ ..] = rest {
        if kind.starts_with(b"IEND") {
            return true;
        }
        let length = u32::from_be_bytes([*a, *b, *c, *d]) as usize;
        // Four bytes each of length, kind and checksum.
        let Some(behind) = rest.get(12 + length..) else { return false };
        rest = behind;
    }
    false
}

/// The kind of a picture by how it begins.
pub(super) fn sniffed(path: &Path) -> Option<PictureKind> {
    let mut start = [0; 12];
    let mut file =
        std::fs::File::open(path).ok().filter(|file| file.metadata().is_ok_and(|about| about.is_file()))?;
    file.read_exact(&mut start).ok()?;
    let caps = match start {
        [0xFF, 0xD8, 0xFF, ..] => "image/jpeg",
        [0x89, b'P', b'N', b'G', ..] => "image/png",
        [b'B', b'M', ..] => "image/bmp",
        [b'I', b'I', 42, 0, ..] | [b'M', b'M', 0, 42, ..] => "image/tiff",
        [b'R', b'I', b'F', b'F', _, _, _, _, b'W', b'E', b'B', b'P'] => "image/webp",
        _ => return None,
    };
    KINDS.into_iter().find(|kind| kind.caps == caps)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A picture of `kind`, whole, with noise in it so that it is no short file.
    fn picture(kind: image::ImageFormat) -> Vec<u8> {
        let mix = |x: u32, y: u32| {
            (x.wrapping_mul(0x9E37_79B9) ^ y.wrapping_mul(0x85EB_CA6B)).wrapping_mul(0xC2B2_AE35)
        };
        let pixel = |x: u32, y: u32| image::Luma([(mix(x, y) >> 24) as u8]);
        let mut bytes = std::io::Cursor::new(Vec::new());
        image::GrayImage::from_fn(160, 120, pixel).write_to(&mut bytes, kind).unwrap();
        bytes.into_inner()
    }

    #[test]
    fn a_picture_is_whole_whatever_is_behind_it_and_cut_off_wherever_that_is() {
        for (format, kind) in [(image::ImageFormat::Jpeg, KINDS[0]), (image::ImageFormat::Png, KINDS[1])] {
            let bytes = picture(format);
            assert!(bytes.len() > 5000 && kind.is_whole(&bytes), "{format:?}");
            let film = [bytes.clone(), vec![7; 100_000]].concat();
            assert!(kind.is_whole(&film), "{format:?}");
            for length in [0, 1, 9, 20, bytes.len() / 2, bytes.len() - 20] {
                assert!(!kind.is_whole(&bytes[..length]), "{format:?} {length}");
            }
        }
    }

    #[test]
    fn the_end_of_a_preview_is_not_that_of_its_picture() {
        let bytes = picture(image::ImageFormat::Jpeg);
        let preview = [0xFF, 0xD8, 0x00, 0xFF, 0xD9];
        let mut with_preview = vec![0xFF, 0xD8, 0xFF, 0xE1, 0, 2 + preview.len() as u8];
        with_preview.extend(preview);
        with_preview.extend(&bytes[2..]);
        assert!(KINDS[0].is_whole(&with_preview));
        assert!(!KINDS[0].is_whole(&with_preview[..3000]));
    }
}
