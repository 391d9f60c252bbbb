//! What a page offers to be opened: the cameras of this machine, and the videos that lie in one folder.
//!
//! Whoever asks for one names it as it was offered, and it is looked for among what is offered then: nothing
//! that is sent becomes a path. What lies below the folder or is a link is not offered.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use crossbeam_channel::Sender;
use serde::{Deserialize, Serialize};
use tokio::sync::{Semaphore, oneshot};

use crate::error::{Error, Result};
use crate::media::cameras;
use crate::media::source::Input;
use crate::text;

/// Endings of the names of videos.
const ENDINGS: [&str; 17] = [
    "3gp", "avi", "flv", "m2ts", "m4v", "mkv", "mov", "mp4", "mpeg", "mpg", "mts", "mxf", "ogv", "ts",
    "webm", "wmv", "y4m",
];

/// Videos that are offered at most, by their names the first.
const MOST_FILES: usize = 1000;

/// What a page offers.
pub(super) struct Offers {
    folder: Option<PathBuf>,
    /// Where it is told what somebody has chosen.
    chosen: Sender<Chosen>,
    /// One looks at a time.
    turn: Semaphore,
}

/// What is offered now: `Offers` in `openapi.json`.
#[derive(Debug, Serialize)]
pub(super) struct Offered {
    /// What the folder is called; `null` if none was named.
    folder: Option<String>,
    cameras: Vec<OfferedCamera>,
    files: Vec<OfferedFile>,
    /// Videos of the folder that are not among them.
    more: usize,
}

#[derive(Debug, Serialize)]
struct OfferedCamera {
    /// What it is asked for by: its device.
    camera: String,
    /// As it may be shown.
    name: String,
}

#[derive(Debug, Serialize)]
struct OfferedFile {
    /// What it is asked for by: its name in the folder.
    file: String,
    /// As it may be shown.
    name: String,
    bytes: u64,
}

/// What somebody asks for.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "lowercase", deny_unknown_fields)]
pub(super) enum Wish {
    Camera(String),
    File(String),
}

/// What somebody has chosen on a page, and waits for.
#[derive(Clone)]
pub struct Chosen {
    /// The input of the run that is to begin.
    pub input: OsString,
    answer: Arc<Mutex<Option<Answer>>>,
}

/// The number of the video on the page, or why it cannot be opened.
type Answer = oneshot::Sender<std::result::Result<usize, String>>;

impl Chosen {
    /// Tells whoever has chosen it what number the video has on the page, or why it cannot be opened. What is
    /// told first counts.
    pub fn answer(&self, answer: std::result::Result<usize, String>) {
        let to = self.answer.lock().unwrap_or_else(PoisonError::into_inner).take();
        // Nobody may be waiting any more.
        let _ = to.map(|to| to.send(answer));
    }
}

impl Offers {
    /// # Errors
    /// `File` if there is no such folder.
    pub(super) fn new(folder: Option<&Path>, chosen: Sender<Chosen>) -> Result<Self> {
        let whole = |folder: &Path| {
            folder
                .canonicalize()
                .and_then(|whole| std::fs::read_dir(&whole).map(|_| whole))
                .map_err(Error::file("read", folder))
        };
        Ok(Self { folder: folder.map(whole).transpose()?, chosen, turn: Semaphore::new(1) })
    }

    /// Has something done with them by a thread that may wait; `None` if the page ends.
    pub(super) async fn ask<T: Send + 'static>(
        self: Arc<Self>,
        what: impl FnOnce(&Self) -> T + Send + 'static,
    ) -> Option<T> {
        let offers = self.clone();
        let _one_at_a_time = self.turn.acquire().await.ok()?;
        tokio::task::spawn_blocking(move || what(&offers)).await.ok()
    }

    /// What there is now. Takes as long as looking.
    pub(super) fn look(&self) -> Offered {
        let cameras = cameras::cameras().into_iter().map(|camera| OfferedCamera {
            name: text::in_one_line(&camera.name).into_owned(),
            camera: camera.device,
        });
        let mut files = self.files();
        let more = files.len().saturating_sub(MOST_FILES);
        files.truncate(MOST_FILES);
        let name = |folder: &PathBuf| {
            let name = folder.file_name().map_or_else(|| "/".into(), |name| name.to_string_lossy());
            text::in_one_line(&name).into_owned()
        };
        Offered { folder: self.folder.as_ref().map(name), cameras: cameras.collect(), files, more }
    }

    /// The videos in the folder, by their names.
    fn files(&self) -> Vec<OfferedFile> {
        let Some(folder) = &self.folder else { return Vec::new() };
        let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
        let mut files: Vec<_> = entries
            .filter_map(|entry| {
                // Of a link it says that it is one.
                let about = entry.metadata().ok().filter(std::fs::Metadata::is_file)?;
                let file = entry.file_name().into_string().ok().filter(|name| is_video(name))?;
                // A name may mean something else where inputs are typed.
                let input = Input::typed(entry.path().as_os_str()).ok()?;
                let is_itself = matches!(input, Input::File(path) if path == entry.path());
                let name = text::in_one_line(&file).into_owned();
                is_itself.then_some(OfferedFile { file, name, bytes: about.len() })
            })
            .collect();
        files.sort_by(|one, other| one.file.cmp(&other.file));
        files
    }

    /// Has opened what somebody asks for; what comes back tells what becomes of it. `None` if that is not
    /// offered.
    pub(super) fn choose(
        &self,
        wish: &Wish,
    ) -> Option<oneshot::Receiver<std::result::Result<usize, String>>> {
        let offered = self.look();
        let input = match wish {
            Wish::Camera(device) => {
                let camera = offered.cameras.iter().find(|offered| offered.camera == *device)?;
                format!("camera:{}", camera.camera).into()
            }
            Wish::File(name) => {
                let file = offered.files.iter().find(|offered| offered.file == *name)?;
                self.folder.as_ref()?.join(&file.file).into_os_string()
            }
        };
        let (answer, answered) = oneshot::channel();
        // Whoever opens them may have ended, and with it the one who would answer.
        let _ = self.chosen.send(Chosen { input, answer: Arc::new(Mutex::new(Some(answer))) });
        Some(answered)
    }
}

fn is_video(name: &str) -> bool {
    let ending = Path::new(name).extension().and_then(|ending| ending.to_str());
    let is_known =
        |ending: &str| ENDINGS.binary_search_by(|known| (*known).cmp(&ending.to_ascii_lowercase())).is_ok();
    !name.starts_with('.') && ending.is_some_and(is_known)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wishes(offers: &Offers, chosen: &crossbeam_channel::Receiver<Chosen>, name: &str) -> Option<OsString> {
        offers.choose(&Wish::File(name.into())).map(|_| chosen.try_recv().unwrap().input)
    }

    #[test]
    #[cfg(unix)]
    fn what_lies_in_the_folder_is_offered_and_nothing_else() {
        let around = tempfile::tempdir().unwrap();
        let folder = around.path().join("videos");
        std::fs::create_dir_all(folder.join("below.mp4")).unwrap();
        let secret = around.path().join("secret.mp4");
        for file in [&secret, &folder.join("below.mp4/c.mp4")] {
            std::fs::write(file, "x").unwrap();
        }
        for name in
            ["b.MP4", "a.mkv", "notes.txt", ".hidden.mp4", "seq%04d.mp4", "a\u{202e}b.ts", "é<i>.webm"]
        {
            std::fs::write(folder.join(name), "12345").unwrap();
        }
        std::os::unix::fs::symlink(&secret, folder.join("link.mp4")).unwrap();
        std::os::unix::fs::symlink("a.mkv", folder.join("near.mp4")).unwrap();
        std::os::unix::fs::symlink("/dev/zero", folder.join("zero.mp4")).unwrap();
        let (chosen, is_chosen) = crossbeam_channel::unbounded();
        let offers = Offers::new(Some(&folder), chosen).unwrap();
        let offered = offers.look();
        let names: Vec<_> = offered.files.iter().map(|file| file.file.as_str()).collect();
        assert_eq!(names, ["a.mkv", "a\u{202e}b.ts", "b.MP4", "seq%04d.mp4", "é<i>.webm"]);
        assert_eq!(offered.files[1].name, "a\\u{202e}b.ts");
        assert_eq!((offered.files[0].bytes, offered.more, offered.folder.as_deref()), (5, 0, Some("videos")));
        let whole = folder.canonicalize().unwrap();
        assert_eq!(wishes(&offers, &is_chosen, "b.MP4"), Some(whole.join("b.MP4").into_os_string()));
        let outside = secret.to_string_lossy().into_owned();
        for name in [
            "",
            ".",
            "..",
            "/",
            "../secret.mp4",
            "./a.mkv",
            "link.mp4",
            "near.mp4",
            "zero.mp4",
            "notes.txt",
            "below.mp4",
            "below.mp4/c.mp4",
            "a.mkv\0",
            "A.MKV",
            "camera",
            "-",
            "file:///etc/passwd",
            &outside,
        ] {
            assert_eq!(wishes(&offers, &is_chosen, name), None, "{name}");
        }
        assert!(offers.choose(&Wish::Camera("/dev/zero".into())).is_none());
    }

    #[test]
    fn without_a_folder_no_file_is_offered_and_one_that_is_none_is_refused() {
        let (chosen, _) = crossbeam_channel::unbounded();
        let offered = Offers::new(None, chosen.clone()).unwrap().look();
        assert!(offered.files.is_empty() && offered.folder.is_none());
        let file = tempfile::NamedTempFile::new().unwrap();
        for none in [file.path(), Path::new("/no/such/folder")] {
            let error = Offers::new(Some(none), chosen.clone()).err().unwrap().to_string();
            assert!(error.contains(&none.display().to_string()), "{error}");
        }
        assert!(ENDINGS.is_sorted());
    }
}
