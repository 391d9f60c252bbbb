//! Kinds of pictures: their names, and their decoders in a pipeline of GStreamer's own elements.

use std::io::Read;
use std::path::Path;

use lockon_core::still;

/// A kind of pictures.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct PictureKind {
    pub(super) endings: &'static [&'static str],
    pub(super) caps: &'static str,
    /// Its decoder, in the text of a pipeline.
    pub(super) decoder: &'static str,
    /// A folder's pictures have this kind only if the folder has no other kind: such files may lie beside
    /// others.
    pub(super) is_rare: bool,
}

pub(super) const KINDS: [PictureKind; 7] = [
    kind(&["jpg", "jpeg"], "image/jpeg", "jpegdec name=decode"),
    kind(&["png"], "image/png", "pngdec name=decode"),
    kind(&["bmp"], "image/bmp", "avdec_bmp name=decode"),
    kind(&["tif", "tiff"], "image/tiff", "avdec_tiff name=decode max-threads=1"),
    kind(&["webp"], "image/webp", "webpdec name=decode"),
    PictureKind { is_rare: true, ..kind(&["gif"], "image/gif", "decodebin name=decode") },
    PictureKind {
        is_rare: true,
        ..kind(&["pnm", "pgm", "ppm", "pbm", "pam"], "image/x-portable-anymap", "decodebin name=decode")
    },
];

const fn kind(endings: &'static [&'static str], caps: &'static str, decoder: &'static str) -> PictureKind {
    PictureKind { endings, caps, decoder, is_rare: false }
}

impl PictureKind {
    pub(super) fn of(path: &Path) -> Option<Self> {
        Self::of_ending(&path.extension()?.to_str()?.to_ascii_lowercase())
    }

    fn of_ending(ending: &str) -> Option<Self> {
        KINDS.into_iter().find(|kind| kind.endings.contains(&ending))
    }
}

/// The kind of a picture by its content.
pub(super) fn sniffed(path: &Path) -> Option<PictureKind> {
    let mut start = Vec::new();
    let file = Some(path).filter(|path| path.is_file()).and_then(|path| std::fs::File::open(path).ok())?;
    file.take(64).read_to_end(&mut start).ok()?;
    PictureKind::of_ending(still::ending_of(&start)?)
}
