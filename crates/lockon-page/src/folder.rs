//! The folder whose videos a page offers. The page shows the folder's name and the names of its files, never
//! the folder's place.
//!
//! A client asks for a video by its listed name, which is compared with the names in the folder: no text from
//! a client becomes a path. Subfolders and links are not offered. A file is opened once, before it is used,
//! and read through that handle.

use std::fs::{DirEntry, File, Metadata};
use std::io;
use std::path::{Path, PathBuf};

use serde::Serialize;

use lockon_core::error::{Error, Result};
use lockon_core::text;
use lockon_gst::source::Input;

/// Extensions of videos.
const ENDINGS: [&str; 17] = [
    "3gp", "avi", "flv", "m2ts", "m4v", "mkv", "mov", "mp4", "mpeg", "mpg", "mts", "mxf", "ogv", "ts",
    "webm", "wmv", "y4m",
];

/// A folder with videos.
pub(super) struct Folder {
    path: PathBuf,
    /// Its path in all forms that messages contain, the longest first; empty for the root.
    told: Vec<String>,
}

/// A video in the list.
#[derive(Debug, Serialize)]
pub(super) struct OfferedFile {
    /// Its name in the folder, which opens it.
    pub(super) file: String,
    /// Its name for display.
    name: String,
    bytes: u64,
}

impl Folder {
    /// # Errors
    /// `File` if there is no such folder.
    pub(super) fn new(folder: &Path) -> Result<Self> {
        let whole = folder.canonicalize().and_then(|path| std::fs::read_dir(&path).map(|_| path));
        let path = whole.map_err(Error::file("read", folder))?;
        let raw = path.to_string_lossy().into_owned();
        let quoted = format!("{raw:?}");
        let mut told = vec![
            text::in_one_line(&raw).into_owned(),
            text::for_people(&raw),
            quoted[1..quoted.len() - 1].into(),
        ];
        told.push(raw);
        told.retain(|told| told.len() > 1);
        told.sort_by(|one, other| (other.len(), one).cmp(&(one.len(), other)));
        told.dedup();
        Ok(Self { path, told })
    }

    /// Its name for display.
    pub(super) fn name(&self) -> String {
        let name = self.path.file_name().map_or_else(|| "/".into(), |name| name.to_string_lossy());
        text::in_one_line(&name).into_owned()
    }

    /// Its videos, sorted by name.
    pub(super) fn videos(&self) -> Vec<OfferedFile> {
        let mut videos: Vec<_> = self.entries().filter_map(|entry| offered(&entry)).collect();
        videos.sort_by(|one, other| one.file.cmp(&other.file));
        videos
    }

    /// Opens the video of that name; `None` if it is not offered.
    ///
    /// # Errors
    /// `File` if it cannot be read.
    pub(super) fn open(&self, name: &str) -> Result<Option<(PathBuf, File)>> {
        let Some(entry) = self.entries().find(|entry| entry.file_name() == *name) else { return Ok(None) };
        if offered(&entry).is_none() {
            return Ok(None);
        }
        match open(&entry.path()) {
            Ok(file) => Ok(Some((entry.path(), file))),
            // It was replaced meanwhile.
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(Error::file("read", name.as_ref())(error)),
        }
    }

    /// Replaces paths in a text: files of the folder by their names, and the folder by its own.
    pub(super) fn hide(&self, text: &str) -> String {
        let name = self.name();
        self.told.iter().fold(text.to_owned(), |text, path| without(&text, path, &name))
    }

    fn entries(&self) -> impl Iterator<Item = DirEntry> {
        std::fs::read_dir(&self.path).into_iter().flatten().flatten()
    }
}

/// The text with paths below `path` made relative, and `path` itself replaced by `name`.
fn without(text: &str, path: &str, name: &str) -> String {
    let (mut out, mut rest) = (String::new(), text);
    while let Some(at) = rest.find(path) {
        let behind = &rest[at + path.len()..];
        out.push_str(&rest[..at]);
        match behind.strip_prefix('/') {
            Some(inside) if inside.starts_with(|c: char| !c.is_whitespace()) => rest = inside,
            _ => {
                // The path may be the beginning of another folder's.
                let is_other = behind.starts_with(|c: char| c.is_alphanumeric() || "-_".contains(c));
                out.push_str(if is_other { path } else { name });
                rest = behind;
            }
        }
    }
    out + rest
}

/// The list entry of a directory entry, if it is a video.
fn offered(entry: &DirEntry) -> Option<OfferedFile> {
    // `metadata` of an entry does not follow links, so a link is no file.
    let about = entry.metadata().ok().filter(Metadata::is_file)?;
    let file = entry.file_name().into_string().ok().filter(|name| is_video(name))?;
    // As a typed input the name may mean something else, such as a pattern of pictures.
    let input = Input::typed(entry.path().as_os_str()).ok()?;
    let is_itself = matches!(input, Input::File(path) if path == entry.path());
    let name = text::in_one_line(&file).into_owned();
    is_itself.then_some(OfferedFile { file, name, bytes: about.len() })
}

fn is_video(name: &str) -> bool {
    let ending = Path::new(name).extension().and_then(|ending| ending.to_str());
    let is_known =
        |ending: &str| ENDINGS.binary_search_by(|known| (*known).cmp(&ending.to_ascii_lowercase())).is_ok();
    !name.starts_with('.') && ending.is_some_and(is_known)
}

/// Opens a regular file without following links and without waiting.
///
/// # Errors
/// `NotFound` for a link, a folder, a pipe or nothing.
fn open(path: &Path) -> io::Result<File> {
    #[cfg(unix)]
    let file = {
        use rustix::fs::{Mode, OFlags, open};
        use rustix::io::Errno;
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let opened = open(path, flags, Mode::empty());
        File::from(opened.map_err(|error| if error == Errno::LOOP { Errno::NOENT } else { error })?)
    };
    #[cfg(not(unix))]
    let file = File::open(path)?;
    if file.metadata()?.is_file() { Ok(file) } else { Err(io::ErrorKind::NotFound.into()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg(unix)]
    fn what_is_no_file_is_not_opened_and_nobody_is_waited_for() {
        let around = tempfile::tempdir().unwrap();
        let path = |name: &str| around.path().join(name);
        std::fs::write(path("a.mkv"), "12345").unwrap();
        std::os::unix::fs::symlink("a.mkv", path("link.mkv")).unwrap();
        std::fs::create_dir(path("below.mkv")).unwrap();
        assert!(std::process::Command::new("mkfifo").arg(path("pipe.mkv")).status().unwrap().success());
        assert_eq!(open(&path("a.mkv")).unwrap().metadata().unwrap().len(), 5);
        for none in ["link.mkv", "below.mkv", "pipe.mkv", "none.mkv"] {
            assert_eq!(open(&path(none)).unwrap_err().kind(), io::ErrorKind::NotFound, "{none}");
        }
    }

    #[test]
    #[cfg(unix)]
    fn where_a_folder_lies_is_told_in_no_way_in_which_messages_have_it() {
        let around = tempfile::tempdir().unwrap();
        let path = around.path().join("my\n\u{202e}videos");
        std::fs::create_dir(&path).unwrap();
        let folder = Folder::new(&path).unwrap();
        let whole = path.canonicalize().unwrap().join("a.mp4");
        let raw = whole.to_string_lossy();
        for told in [raw.to_string(), text::path(&whole), text::for_people(&raw), format!("{whole:?}")] {
            let hidden = folder.hide(&format!("cannot read {told}: no"));
            assert!(!hidden.contains("videos") && hidden.contains("a.mp4"), "{told}: {hidden}");
            assert!(hidden.len() < 30, "{hidden}");
        }
    }

    #[test]
    fn a_folder_is_told_by_its_name_and_others_as_they_are() {
        for (text, told) in [
            ("cannot read /data/v/a.mp4: no", "cannot read a.mp4: no"),
            ("/data/v/a.mp4 and /data/v/b.mp4", "a.mp4 and b.mp4"),
            ("in /data/v", "in v"),
            ("in /data/v/", "in v/"),
            ("in \"/data/v\".", "in \"v\"."),
            ("/data/v-2/a.mp4, /data/video/a.mp4", "/data/v-2/a.mp4, /data/video/a.mp4"),
            ("/data/a.mp4", "/data/a.mp4"),
        ] {
            assert_eq!(without(text, "/data/v", "v"), told);
        }
    }

    #[test]
    fn endings_can_be_looked_up() {
        assert!(ENDINGS.is_sorted());
        assert!(is_video("a.MP4") && !is_video(".a.mp4") && !is_video("a") && !is_video("a.txt"));
    }
}
