//! Pictures in files as a video: one picture, a numbered sequence (`seq/%04d.jpg`), a folder, a glob
//! (`seq/*.png`), or an animation whose pictures have times (GIF, WebP, PNG).
//!
//! They are decoded like templates and scenes ([`crate::stills`]), by the threads of [`reader`], and enter
//! the pipeline through an `appsrc`. Their printed text has GStreamer's own elements instead: `multifilesrc`
//! counts through a printf pattern, and a decoder makes a frame of each.

use std::ffi::OsStr;
use std::fmt;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::{SourceSpec, inlet};
use crate::launch::Launch;
use lockon_core::error::{Error, Result};
use lockon_core::{still, text};

use kind::{PictureKind, sniffed};
use names::{matches_glob, natural};

pub(crate) use names::{NumberedName, number_of};

mod kind;
mod names;
mod reader;

/// Default frames per second.
const USUAL_RATE: (i32, i32) = (25, 1);

/// Maximum bytes of a file that are read to distinguish a picture from a video of pictures.
const HEAD: u64 = 64 << 20;

/// Typed pictures: a folder, a pattern with one `%d` or `%0Nd` in the file's name, or a glob.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pictures(PathBuf);

/// Existing pictures, in order.
#[derive(Debug)]
pub(super) struct PictureFiles {
    pub(super) files: Vec<PathBuf>,
    kind: PictureKind,
    /// The single picture or animation, under its given name; `None` for a sequence.
    single: Option<PathBuf>,
    is_animation: bool,
    /// The files, if they are open already: these are read, whatever has their names now.
    opened: Option<Arc<Vec<(PathBuf, File)>>>,
}

impl Pictures {
    /// Returns the typed path, if it stands for pictures: an existing folder, or a path that does not exist
    /// and has a number or a wildcard in it.
    pub(super) fn typed(path: &Path) -> Option<Self> {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let stands_for_many = number_of(&name).is_some() || name.contains(['*', '?', '[']);
        (path.is_dir() || (stands_for_many && !path.exists())).then(|| Self(path.to_owned()))
    }

    /// A folder, a pattern or a glob, as it was typed.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// The existing pictures.
    ///
    /// # Errors
    /// `NoVideo` if there are none, if they are of several kinds, or if a number is missing among them.
    pub(super) fn find(&self) -> Result<PictureFiles> {
        let fault = |reason: String| Error::NoVideo { input: self.to_string(), reason };
        let name = self.0.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let is_folder = self.0.is_dir();
        let folder = if is_folder { &*self.0 } else { lockon_core::files::folder_of(&self.0) };
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
        // Files of rare kinds lie beside other pictures, as a preview does.
        if is_folder && files.iter().any(|file| PictureKind::of(file).is_some_and(|kind| !kind.is_rare)) {
            files.retain(|file| PictureKind::of(file).is_some_and(|kind| !kind.is_rare));
        }
        files.sort_by(|a, b| natural(a.file_name().unwrap_or_default(), b.file_name().unwrap_or_default()));
        let Some(first) = files.first() else {
            let what = if is_folder {
                "a folder, not a file, and there are no pictures in it"
            } else {
                "there is no such picture"
            };
            return Err(fault(format!("{what} ({} are read)", still::KINDS)));
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
            fault(format!("{} is not a picture ({} are read)", text::path(first), still::KINDS))
        })?;
        if let Some(other) =
            files.iter().find(|file| PictureKind::of(file).is_some_and(|other| other != kind))
        {
            return Err(fault(format!(
                "pictures of several kinds: {} and {} (choose one kind with a glob, as '*.{}')",
                text::path(first),
                text::path(other),
                kind.endings[0]
            )));
        }
        Ok(PictureFiles { files, kind, single: None, is_animation: false, opened: None })
    }

    /// The names of the pictures, in order.
    ///
    /// # Errors
    /// `NoVideo` if there are none, if they are of several kinds, or if a number is missing among them;
    /// `File` if their folder cannot be read.
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
        let by_content = || sniffed(&inlet::path_of(file).ok()?);
        let kind = PictureKind::of(name).or_else(by_content).ok_or_else(|| fault("it is not a picture"))?;
        let files = opened.iter().map(|(name, _)| name.clone()).collect();
        Ok(Self { files, kind, single: None, is_animation: false, opened: Some(opened.clone()) })
    }

    /// The picture or animation in a file with the given name `named`; `None` if it is anything else, such as
    /// a video.
    pub(super) fn single(path: &Path, named: &Path) -> Option<Self> {
        let kind = sniffed(path)?;
        let mut head = Vec::new();
        File::open(path).ok()?.take(HEAD).read_to_end(&mut head).ok()?;
        let (is_video, is_jpeg) = (still::is_video(&head), kind.caps == "image/jpeg");
        // Concatenated JPEGs are a video that GStreamer splits.
        (!is_video || !is_jpeg).then(|| Self {
            files: vec![path.to_owned()],
            kind,
            single: Some(named.to_owned()),
            is_animation: is_video,
            opened: None,
        })
    }

    /// The name of the picture that a frame came from, relative to the folder; `None` for frames of an
    /// animation.
    pub(super) fn name(&self, frame: u64) -> Option<Arc<str>> {
        if self.is_animation {
            return None;
        }
        let file = match &self.single {
            Some(named) => named,
            None => self.files.get(usize::try_from(frame).ok()?)?,
        };
        Some(file.file_name()?.to_string_lossy().into())
    }

    /// Frames a second; `None` for one picture, and for an animation, whose frames have their own times.
    fn rate(&self, asked: Option<(i32, i32)>) -> (i32, i32) {
        if self.single.is_some() { (0, 1) } else { asked.unwrap_or(USUAL_RATE) }
    }

    /// The pipeline for pictures that are decoded here.
    pub(super) fn running() -> Launch {
        let text = "appsrc name=input format=time ! appsink name=frames sync=false";
        Launch::new("pictures.launch", text)
    }

    /// Connects them to the pipeline of [`Self::running`], with the options of `spec`.
    pub(super) fn attach(&self, spec: &SourceSpec, launch: &Launch, pipeline: &gst::Pipeline) -> Result<()> {
        reader::attach(self, self.rate(spec.camera.frame_rate), spec, launch, pipeline)
    }

    /// The text of a pipeline that plays them at `frame_rate` by GStreamer's own elements, which may need
    /// links.
    pub(super) fn launch(&self, frame_rate: Option<(i32, i32)>) -> Launch {
        let (n, d) = frame_rate.unwrap_or(USUAL_RATE);
        let text = include_str!("../../../pipelines/pictures.launch")
            .replace("jpegdec name=decode", self.kind.decoder);
        let mut launch = Launch::new("pictures.launch", &text);
        let (pattern, first) = self.pattern().unwrap_or_else(|| ("lockon-pictures/%08d".into(), 0));
        launch.set("input", "location", pattern);
        launch.set("input", "caps", format!("{},framerate=(fraction){n}/{d}", self.kind.caps));
        launch.set("input", "start-index", first);
        launch.set("input", "stop-index", first + self.files.len() as u64 - 1);
        launch
    }

    /// The path of each.
    fn paths(&self) -> Result<Vec<PathBuf>> {
        match &self.opened {
            Some(opened) => opened.iter().map(|(_, file)| inlet::path_of(file)).collect(),
            None => Ok(self.files.clone()),
        }
    }

    /// True if the text of a pipeline needs links, since their names are not numbered.
    pub(super) fn needs_links(&self) -> bool {
        self.opened.is_some() || self.pattern().is_none()
    }

    /// Their duration, if they have a rate.
    pub(super) fn duration_ns(&self, frame_rate: Option<(i32, i32)>) -> Option<u64> {
        let (n, d) = self.rate(frame_rate);
        (n > 0).then(|| (self.files.len() as f64 * f64::from(d) / f64::from(n) * 1e9) as u64)
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
}

#[cfg(test)]
mod tests {
    use super::kind::KINDS;
    use super::*;

    #[test]
    fn numbered_names_are_a_pattern_and_others_get_links() {
        let of = |names: &[&str]| {
            let files = names.iter().map(PathBuf::from).collect();
            PictureFiles { files, kind: KINDS[0], single: None, is_animation: false, opened: None }.pattern()
        };
        assert_eq!(of(&["s/0001.jpg", "s/0002.jpg"]), Some(("s/%04d.jpg".into(), 1)));
        assert_eq!(of(&["s%/f9x.jpg", "s%/f10x.jpg"]), Some(("s%%/f%dx.jpg".into(), 9)));
        assert_eq!(of(&["s/1.jpg", "s/3.jpg"]), None);
        assert_eq!(of(&["a.jpg"]), None);
        assert_eq!(of(&["s/9.jpg", "s/010.jpg"]), None);
    }
}
