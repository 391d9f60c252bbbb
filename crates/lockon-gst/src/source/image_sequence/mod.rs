//! Pictures in files as a video: a numbered sequence (`seq/%04d.jpg`), a folder, a glob (`seq/*.png`).
//!
//! `multifilesrc` reads them by a printf pattern, and a decoder of their kind makes a frame of each. Names
//! that are no such pattern get links that are, in a folder of their own that is removed at the end. Decoders
//! of GStreamer pass over a picture that they cannot decode, some with a few that follow, which would shift
//! all frame numbers: so what goes into the decoder and what comes out are counted, and a picture without a
//! frame is an error that names it.

use std::ffi::OsStr;
use std::fmt;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use gst::prelude::*;
use tempfile::TempDir;

use super::inlet;
use crate::launch::{self, Launch};
use lockon_core::error::{Error, Result};
use lockon_core::text;

use kind::{PictureKind, sniffed};
use names::{NumberedName, matches_glob, natural, number_of};

mod kind;
mod names;

/// Frames a second where nobody says how many.
const USUAL_RATE: (i32, i32) = (25, 1);

/// How the name of a folder with links begins.
const LINKS: &str = "lockon-pictures-";

/// Pictures as they were typed: a folder, a pattern with one `%d` or `%0Nd` in the file's name, or a glob.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pictures(PathBuf);

/// Pictures that are there, in order.
pub(super) struct PictureFiles {
    pub(super) files: Vec<PathBuf>,
    kind: PictureKind,
    /// The files, where they are open already: these are read, whatever has their names now.
    opened: Option<Arc<Vec<(PathBuf, File)>>>,
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

    /// A folder, a pattern or a glob, as it was typed.
    pub fn path(&self) -> &Path {
        &self.0
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
        Ok(PictureFiles { files, kind, opened: None })
    }

    /// The names of the pictures, in order.
    ///
    /// # Errors
    /// `NoVideo` if there are none, if they are of several kinds, or if a number is missing among them; `File`
    /// if their folder cannot be read.
    pub fn names(&self) -> Result<Vec<PathBuf>> {
        Ok(self.find()?.files)
    }
}

impl fmt::Display for Pictures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&text::path(&self.0))
    }
}

impl PictureFiles {
    /// Pictures that are open already.
    ///
    /// # Errors
    /// `NoVideo` if there are none, or if the first one is no picture.
    pub(super) fn opened(typed: &Pictures, opened: &Arc<Vec<(PathBuf, File)>>) -> Result<Self> {
        let fault = |reason: &str| Error::NoVideo { input: typed.to_string(), reason: reason.into() };
        let (name, file) = opened.first().ok_or_else(|| fault("there is no picture"))?;
        let by_bytes = || sniffed(&inlet::path_of(file).ok()?);
        let kind = PictureKind::of(name).or_else(by_bytes).ok_or_else(|| fault("it is no picture"))?;
        let files = opened.iter().map(|(name, _)| name.clone()).collect();
        Ok(Self { files, kind, opened: Some(opened.clone()) })
    }

    /// The pipeline that plays them at `frame_rate`, which may need links.
    pub(super) fn launch(&self, frame_rate: Option<(i32, i32)>) -> Launch {
        let (n, d) = frame_rate.unwrap_or(USUAL_RATE);
        let text = include_str!("../../../../../pipelines/pictures.launch")
            .replace("jpegdec name=decode", self.kind.decoder);
        let mut launch = Launch::new("pictures.launch", &text);
        let pattern = if self.needs_links() { None } else { self.pattern() };
        let (pattern, first) = pattern.unwrap_or_else(|| {
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
        self.opened.is_some() || self.pattern().is_none()
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
            let target = match &self.opened {
                Some(opened) => inlet::path_of(&opened[number].1)?,
                None => std::path::absolute(file).map_err(Error::file("read", file))?,
            };
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

/// The names of links in that folder.
fn links_pattern(folder: &Path) -> String {
    format!("{}/%08d", folder.display().to_string().replace('%', "%%"))
}

#[cfg(test)]
mod tests {
    use super::kind::KINDS;
    use super::*;

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
        let links = PictureFiles { files, kind: KINDS[1], opened: None }.links();
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
            PictureFiles { files, kind: KINDS[0], opened: None }.pattern()
        };
        assert_eq!(of(&["s/0001.jpg", "s/0002.jpg"]), Some(("s/%04d.jpg".into(), 1)));
        assert_eq!(of(&["s%/f9x.jpg", "s%/f10x.jpg"]), Some(("s%%/f%dx.jpg".into(), 9)));
        assert_eq!(of(&["s/1.jpg", "s/3.jpg"]), None);
        assert_eq!(of(&["a.jpg"]), None);
        assert_eq!(of(&["s/9.jpg", "s/010.jpg"]), None);
    }
}
