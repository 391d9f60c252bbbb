//! Pictures in files as a video: a numbered sequence (`seq/%04d.jpg`), a folder, a glob (`seq/*.png`).
//!
//! `multifilesrc` reads them by a printf pattern, and a decoder of their kind makes a frame of each. Names
//! that are no such pattern get links that are, in a folder of their own that is removed at the end. Decoders
//! of GStreamer pass over a picture that they cannot decode, some with a few that follow, which would shift
//! all frame numbers: so what goes into the decoder and what comes out are counted, and a picture without a
//! frame is an error that names it.

use std::cmp::Ordering as Order;
use std::ffi::OsStr;
use std::fmt;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use gst::prelude::*;
use tempfile::TempDir;

use crate::launch::{self, Launch};
use lockon_core::error::{Error, Result};
use lockon_core::text;

/// Frames a second where nobody says how many.
const USUAL_RATE: (i32, i32) = (25, 1);

/// How the name of a folder with links begins.
const LINKS: &str = "lockon-pictures-";

/// Pictures as they were typed: a folder, a pattern with one `%d` or `%0Nd` in the file's name, or a glob.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pictures(PathBuf);

/// A kind of pictures.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct PictureKind {
    endings: &'static [&'static str],
    caps: &'static str,
    /// What decodes it.
    decoder: &'static str,
}

const KINDS: [PictureKind; 5] = [
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
    fn of(path: &Path) -> Option<Self> {
        let ending = path.extension()?.to_str()?.to_ascii_lowercase();
        KINDS.into_iter().find(|kind| kind.endings.contains(&ending.as_str()))
    }

    /// False if the end of a picture is missing, as far as its kind tells.
    fn is_whole(self, bytes: &[u8]) -> bool {
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

/// Pictures that are there, in order.
pub(super) struct PictureFiles {
    pub(super) files: Vec<PathBuf>,
    kind: PictureKind,
}

/// A folder with links to pictures under names that `multifilesrc` can count through; removed when it is
/// dropped.
#[derive(Debug)]
pub(super) struct Links(TempDir);

impl Pictures {
    /// What was typed, if it stands for pictures: an existing folder, or what does not exist and has a number
    /// or a wildcard in it.
    pub(super) fn typed(path: &Path) -> Option<Self> {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let stands_for_many = number_of(&name).is_some() || name.contains(['*', '?', '[']);
        (path.is_dir() || (stands_for_many && !path.exists())).then(|| Self(path.to_owned()))
    }

    /// The pictures that are there.
    ///
    /// # Errors
    /// `NoVideo` if there are none, if they are of several kinds, or if a number is missing among them.
    pub(super) fn find(&self) -> Result<PictureFiles> {
        let fault = |reason: String| Error::NoVideo { input: self.to_string(), reason };
        let name = self.0.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let is_folder = self.0.is_dir();
        let folder = match self.0.parent() {
            _ if is_folder => &self.0,
            Some(parent) if parent != Path::new("") => parent,
            _ => Path::new("."),
        };
        let number = number_of(&name).filter(|_| !is_folder);
        let listed = std::fs::read_dir(folder).map_err(Error::file("read", folder))?;
        let mut files = Vec::new();
        for entry in listed {
            let entry = entry.map_err(Error::file("read", folder))?;
            let bytes = entry.file_name();
            let called = bytes.to_string_lossy();
            let is_wanted = match &number {
                _ if called.starts_with('.') => false,
                _ if is_folder => PictureKind::of(Path::new(&bytes)).is_some(),
                Some(number) => number.value(&called).is_some(),
                None => matches_glob(&name, &called),
            };
            if is_wanted {
                files.push(if is_folder || folder != Path::new(".") {
                    folder.join(&bytes)
                } else {
                    bytes.into()
                });
            }
        }
        files.sort_by(|a, b| natural(a.file_name().unwrap_or_default(), b.file_name().unwrap_or_default()));
        let Some(first) = files.first() else {
            let what = if is_folder {
                "a folder, not a file, and there are no pictures in it"
            } else {
                "there is no such picture"
            };
            return Err(fault(format!("{what} (PNG, JPEG, BMP, TIFF and WebP are read)")));
        };
        if let Some(number) = &number {
            let values: Vec<u64> = files
                .iter()
                .filter_map(|file| number.value(&file.file_name().unwrap_or_default().to_string_lossy()))
                .collect();
            if let Some(pair) = values.windows(2).find(|pair| pair[1] != pair[0] + 1) {
                return Err(fault(format!(
                    "{} is missing between {} and {} (a glob takes what is there: '{}')",
                    text::path(&folder.join(number.name(pair[0] + 1))),
                    values[0],
                    values[values.len() - 1],
                    text::path(&folder.join(format!("{}*{}", number.before, number.after))),
                )));
            }
        }
        let kind = PictureKind::of(first).or_else(|| sniffed(first)).ok_or_else(|| {
            fault(format!(
                "{} is no picture that is read (PNG, JPEG, BMP, TIFF and WebP are)",
                text::path(first)
            ))
        })?;
        if let Some(other) =
            files.iter().find(|file| PictureKind::of(file).is_some_and(|other| other != kind))
        {
            return Err(fault(format!(
                "pictures of several kinds: {} and {} (take one kind by a glob, as '*.{}')",
                text::path(first),
                text::path(other),
                kind.endings[0]
            )));
        }
        Ok(PictureFiles { files, kind })
    }
}

impl fmt::Display for Pictures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&text::path(&self.0))
    }
}

impl PictureFiles {
    /// The pipeline that plays them at `frame_rate`, which may need links.
    pub(super) fn launch(&self, frame_rate: Option<(i32, i32)>) -> Launch {
        let (n, d) = frame_rate.unwrap_or(USUAL_RATE);
        let text = include_str!("../../../../pipelines/pictures.launch")
            .replace("jpegdec name=decode", self.kind.decoder);
        let mut launch = Launch::new("pictures.launch", &text);
        let (pattern, first) = self.pattern().unwrap_or_else(|| {
            let folder = std::env::temp_dir().join(format!("{LINKS}XXXXXX"));
            (links_pattern(&folder), 0)
        });
        launch.set("input", "location", pattern);
        launch.set("input", "caps", format!("{},framerate=(fraction){n}/{d}", self.kind.caps));
        launch.set("input", "start-index", first);
        launch.set("input", "stop-index", first + self.files.len() as u64 - 1);
        launch
    }

    /// True if their names cannot be counted through.
    pub(super) fn needs_links(&self) -> bool {
        self.pattern().is_none()
    }

    /// Makes the links that their pipeline needs, if it needs any.
    pub(super) fn link(&self, launch: &mut Launch) -> Result<Option<Links>> {
        if !self.needs_links() {
            return Ok(None);
        }
        let links = self.links()?;
        launch.set("input", "location", links_pattern(links.0.path()));
        Ok(Some(links))
    }

    /// How long they last.
    pub(super) fn duration_ns(&self, frame_rate: Option<(i32, i32)>) -> u64 {
        let (n, d) = frame_rate.unwrap_or(USUAL_RATE);
        (self.files.len() as f64 * f64::from(d) / f64::from(n) * 1e9) as u64
    }

    /// The names as a printf pattern and the first number, if they are numbered without a gap.
    fn pattern(&self) -> Option<(String, u64)> {
        let first = self.files.first()?;
        let name = first.file_name()?.to_str()?;
        let folder = first.parent()?.to_str()?;
        // The last number of the name counts, in as many digits as the first has.
        let end = name.rfind(|c: char| c.is_ascii_digit())? + 1;
        let start = name[..end]
            .rfind(|c: char| !c.is_ascii_digit())
            .map_or(0, |at| at + name[at..].chars().next().map_or(1, char::len_utf8));
        let digits = &name[start..end];
        let value: u64 = digits.parse().ok()?;
        let width = if digits.starts_with('0') || self.files.len() > 1 && self.has_one_length() {
            digits.len()
        } else {
            1
        };
        let number = NumberedName { before: name[..start].into(), after: name[end..].into(), width };
        // multifilesrc counts in 32 bits.
        let last = value.checked_add(self.files.len() as u64).filter(|last| *last < i32::MAX as u64)?;
        let is_counted = (value..last).zip(&self.files).all(|(value, file)| {
            file.file_name().is_some_and(|name| name == OsStr::new(&number.name(value)))
        });
        let escaped = |text: &str| text.replace('%', "%%");
        let slash = if folder.is_empty() { "" } else { "/" };
        let format = if number.width > 1 { format!("%0{}d", number.width) } else { "%d".into() };
        let pattern = format!(
            "{}{slash}{}{format}{}",
            escaped(folder),
            escaped(&number.before),
            escaped(&number.after)
        );
        is_counted.then_some((pattern, value))
    }

    fn has_one_length(&self) -> bool {
        let length = |file: &PathBuf| file.file_name().map(OsStr::len);
        self.files.windows(2).all(|pair| length(&pair[0]) == length(&pair[1]))
    }

    /// Links to them, numbered.
    fn links(&self) -> Result<Links> {
        // Under a name that nobody has: a run that was killed leaves its own.
        let folder = tempfile::Builder::new().prefix(LINKS).tempdir();
        let links = Links(folder.map_err(Error::file("create", &std::env::temp_dir()))?);
        for (number, file) in self.files.iter().enumerate() {
            let link = links.0.path().join(format!("{number:08}"));
            let target = std::path::absolute(file).map_err(Error::file("read", file))?;
            #[cfg(unix)]
            std::os::unix::fs::symlink(target, &link).map_err(Error::file("create", &link))?;
            #[cfg(not(unix))]
            std::fs::hard_link(target, &link).map_err(Error::file("create", &link))?;
        }
        Ok(links)
    }

    /// Lets the pipeline fail at a picture that gives no frame, naming it.
    pub(super) fn watch(&self, launch: &Launch, pipeline: &gst::Pipeline) -> Result<()> {
        let input = launch.element(pipeline, "input")?;
        let decoder = launch.element(pipeline, "decode")?;
        let (Some(into), Some(out)) = (input.static_pad("src"), decoder.static_pad("src")) else {
            return Err(launch.fault("its elements have no pads"));
        };
        let (given, made) = (AtomicUsize::new(0), Arc::new(AtomicUsize::new(0)));
        let frames = Arc::clone(&made);
        out.add_probe(gst::PadProbeType::BUFFER, move |_, _| {
            frames.fetch_add(1, Ordering::Relaxed);
            gst::PadProbeReturn::Ok
        });
        let (files, kind) = (self.files.clone(), self.kind);
        let judge = move |pad: &gst::Pad, info: &gst::PadProbeInfo<'_>| {
            let given_before = given.load(Ordering::Relaxed);
            let is_end = info.event().is_some_and(|event| event.type_() == gst::EventType::Eos);
            let cut = match info.buffer() {
                Some(buffer) => {
                    given.fetch_add(1, Ordering::Relaxed);
                    let bytes = buffer.map_readable();
                    bytes
                        .is_ok_and(|bytes| !kind.is_whole(&bytes))
                        .then_some((given_before, "its end is missing"))
                }
                None if is_end => None,
                None => return gst::PadProbeReturn::Ok,
            };
            // Each picture is decoded while it is pushed, so the frames of those before are out by now.
            let made = made.load(Ordering::Relaxed);
            let lost = (made < given_before).then_some((made, "it cannot be decoded"));
            let Some((number, what)) = lost.or(cut) else { return gst::PadProbeReturn::Ok };
            // Nothing after it would have its right number. An event is not for us to drop.
            let verdict = if is_end { gst::PadProbeReturn::Ok } else { gst::PadProbeReturn::Drop };
            let name = files.get(number).map(|file| text::path(file)).unwrap_or_default();
            if let Some(element) = pad.parent_element() {
                gst::element_error!(element, gst::StreamError::Decode, ("the picture {name}: {what}"));
            }
            verdict
        };
        let kinds = gst::PadProbeType::BUFFER | gst::PadProbeType::EVENT_DOWNSTREAM;
        into.add_probe(kinds, move |pad, info| {
            let otherwise =
                if info.buffer().is_some() { gst::PadProbeReturn::Drop } else { gst::PadProbeReturn::Ok };
            launch::guarded(pad, otherwise, || judge(pad, info))
        });
        Ok(())
    }
}

/// The kind of a picture by how it begins.
fn sniffed(path: &Path) -> Option<PictureKind> {
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

/// The names of links in that folder.
fn links_pattern(folder: &Path) -> String {
    format!("{}/%08d", folder.display().to_string().replace('%', "%%"))
}

/// A number in a name, with what stands before and after it.
#[derive(Debug, PartialEq, Eq)]
struct NumberedName {
    before: String,
    after: String,
    /// Least digits.
    width: usize,
}

impl NumberedName {
    fn name(&self, value: u64) -> String {
        format!("{}{value:0width$}{}", self.before, self.after, width = self.width)
    }

    /// The number that a name has, if it is one of these.
    fn value(&self, name: &str) -> Option<u64> {
        let digits = name.strip_prefix(&*self.before)?.strip_suffix(&*self.after)?;
        let value = digits.parse().ok().filter(|_| digits.bytes().all(|byte| byte.is_ascii_digit()))?;
        (self.name(value) == name).then_some(value)
    }
}

/// The `%d` or `%0Nd` of a pattern; `%%` is a percent sign.
fn number_of(pattern: &str) -> Option<NumberedName> {
    let mut found = None;
    let mut rest = pattern;
    let mut literal = String::new();
    while let Some((before, after)) = rest.split_once('%') {
        literal.push_str(before);
        if let Some(after) = after.strip_prefix('%') {
            literal.push('%');
            rest = after;
            continue;
        }
        let end = after.find('d')?;
        let width = match &after[..end] {
            "" => 1,
            digits => digits.strip_prefix('0')?.parse().ok().filter(|width| (1..=18).contains(width))?,
        };
        if found.is_some() {
            return None;
        }
        found = Some((std::mem::take(&mut literal), width));
        rest = &after[end + 1..];
    }
    literal.push_str(rest);
    found.map(|(before, width)| NumberedName { before, after: literal, width })
}

/// True if a name is one that a glob stands for: `*`, `?` and `[a-z]`, as a shell has them.
fn matches_glob(glob: &str, name: &str) -> bool {
    fn matches(glob: &[char], name: &[char]) -> bool {
        match glob {
            [] => name.is_empty(),
            ['*', rest @ ..] => (0..=name.len()).any(|skipped| matches(rest, &name[skipped..])),
            ['?', rest @ ..] => !name.is_empty() && matches(rest, &name[1..]),
            ['[', rest @ ..] => {
                let Some(end) = rest.iter().skip(1).position(|c| *c == ']').map(|at| at + 1) else {
                    return name.first() == Some(&'[') && matches(rest, &name[1..]);
                };
                let (set, rest) = (&rest[..end], &rest[end + 1..]);
                let is_inverted = matches!(set.first(), Some('!' | '^'));
                let set = if is_inverted { &set[1..] } else { set };
                let Some(c) = name.first() else { return false };
                let mut is_in = false;
                let mut at = 0;
                while at < set.len() {
                    if at + 2 < set.len() && set[at + 1] == '-' {
                        is_in |= (set[at]..=set[at + 2]).contains(c);
                        at += 3;
                    } else {
                        is_in |= set[at] == *c;
                        at += 1;
                    }
                }
                is_in != is_inverted && matches(rest, &name[1..])
            }
            [c, rest @ ..] => name.first() == Some(c) && matches(rest, &name[1..]),
        }
    }
    // Each star multiplies the work: two of them in a row are one.
    let mut glob: Vec<char> = glob.chars().collect();
    glob.dedup_by(|a, b| *a == '*' && *b == '*');
    matches(&glob, &name.chars().collect::<Vec<_>>())
}

/// The order in which people count: `a2` before `a10`.
fn natural(a: &OsStr, b: &OsStr) -> Order {
    let (a, b) = (a.as_encoded_bytes(), b.as_encoded_bytes());
    let (mut i, mut j) = (0, 0);
    while let (Some(x), Some(y)) = (a.get(i), b.get(j)) {
        if x.is_ascii_digit() && y.is_ascii_digit() {
            let run = |bytes: &[u8], from: usize| {
                let length = bytes[from..].iter().take_while(|byte| byte.is_ascii_digit()).count();
                let zeros = bytes[from..from + length].iter().take_while(|byte| **byte == b'0').count();
                (from + zeros, from + length)
            };
            let ((from_a, to_a), (from_b, to_b)) = (run(a, i), run(b, j));
            let order =
                (to_a - from_a).cmp(&(to_b - from_b)).then_with(|| a[from_a..to_a].cmp(&b[from_b..to_b]));
            if order.is_ne() {
                return order;
            }
            (i, j) = (to_a, to_b);
        } else if x == y {
            (i, j) = (i + 1, j + 1);
        } else {
            return x.cmp(y);
        }
    }
    (a.len() - i).cmp(&(b.len() - j)).then_with(|| a.cmp(b))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_ordered_as_people_count() {
        let mut names = ["f10.png", "f9.png", "f009b.png", "g1", "f010.png", "e", "f1.png"];
        names.sort_by(|a, b| natural(a.as_ref(), b.as_ref()));
        assert_eq!(names, ["e", "f1.png", "f9.png", "f009b.png", "f010.png", "f10.png", "g1"]);
    }

    #[test]
    fn globs_mean_what_they_mean_in_a_shell() {
        for (glob, name, expected) in [
            ("*.png", "a.png", true),
            ("*.png", "a.png.txt", false),
            ("img_??.jpg", "img_07.jpg", true),
            ("img_??.jpg", "img_7.jpg", false),
            ("[a-c]*[!0-9].bmp", "b1x.bmp", true),
            ("[a-c]*[!0-9].bmp", "b11.bmp", false),
            ("**a**", "banana", true),
            ("[", "[", true),
        ] {
            assert_eq!(matches_glob(glob, name), expected, "{glob} {name}");
        }
    }

    #[test]
    fn patterns_have_one_number() {
        let number = number_of("a%%b_%04d.jpg").unwrap();
        assert_eq!((number.name(7).as_str(), number.name(12345).as_str()), ("a%b_0007.jpg", "a%b_12345.jpg"));
        assert_eq!((number.value("a%b_0007.jpg"), number.value("a%b_07.jpg")), (Some(7), None));
        assert_eq!(number_of("%d").unwrap().name(12), "12");
        for none in ["a.jpg", "100%", "%s", "%d-%d", "%4d", "%0d%"] {
            assert!(number_of(none).is_none(), "{none}");
        }
    }

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

    #[test]
    fn links_that_a_killed_run_left_are_in_nobodys_way() {
        let dir = tempfile::tempdir().unwrap();
        let files = vec![dir.path().join("a.png"), dir.path().join("c.png")];
        for file in &files {
            std::fs::write(file, "picture").unwrap();
        }
        let left =
            (0..32).map(|n| std::env::temp_dir().join(format!("lockon-pictures-{}-{n}", std::process::id())));
        let left: Vec<_> = left.collect();
        for folder in &left {
            std::fs::create_dir_all(folder).unwrap();
        }
        let links = PictureFiles { files, kind: KINDS[1] }.links();
        for folder in &left {
            std::fs::remove_dir(folder).unwrap();
        }
        let links = links.unwrap();
        let folder = links.0.path().to_owned();
        assert_eq!(std::fs::read(folder.join("00000001")).unwrap(), b"picture");
        drop(links);
        assert!(!folder.exists());
    }

    #[test]
    fn numbered_names_are_a_pattern_and_others_get_links() {
        let of = |names: &[&str]| {
            let files = names.iter().map(PathBuf::from).collect();
            PictureFiles { files, kind: KINDS[0] }.pattern()
        };
        assert_eq!(of(&["s/0001.jpg", "s/0002.jpg"]), Some(("s/%04d.jpg".into(), 1)));
        assert_eq!(of(&["s%/f9x.jpg", "s%/f10x.jpg"]), Some(("s%%/f%dx.jpg".into(), 9)));
        assert_eq!(of(&["s/1.jpg", "s/3.jpg"]), None);
        assert_eq!(of(&["a.jpg"]), None);
        assert_eq!(of(&["s/9.jpg", "s/010.jpg"]), None);
    }
}
