//! Offers to open: the cameras of this machine, and the videos in one folder.
//!
//! Asking every camera may take seconds. The search runs on its own, and answers contain its last result:
//! opening a file does not wait for cameras.

use std::ffi::OsString;
use std::fs::File;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crossbeam_channel::Sender;
use serde::{Deserialize, Serialize};
use tokio::sync::{Semaphore, oneshot};

use lockon_core::error::Result;
use lockon_core::locks::lock;
use lockon_core::text;
use lockon_gst::cameras::Camera;

use super::asked::Form;
use super::folder::{Folder, OfferedFile};
use super::work::{place, work};

/// Maximum videos in the list, the first by name.
const MOST_FILES: usize = 1000;

/// Age at which the list of cameras is renewed.
const AGE: Duration = Duration::from_secs(if cfg!(test) { 3600 } else { 4 });

/// Finds cameras, which may take long.
type Find = dyn Fn() -> Vec<Camera> + Send + Sync;

/// The offers of a page.
pub(super) struct Offers {
    pub(super) folder: Option<Arc<Folder>>,
    /// Gets the chosen cameras and files.
    chosen: Sender<Chosen>,
    /// The folder is read by one request at a time.
    turn: Arc<Semaphore>,
    /// The last list of cameras.
    cameras: Mutex<Option<Found>>,
    find: Box<Find>,
    /// One search for cameras at a time.
    search: Arc<Semaphore>,
}

/// Cameras, and when they were found.
struct Found {
    cameras: Vec<Camera>,
    at: Instant,
}

/// The current offers: `Offers` in `openapi.json`.
#[derive(Debug, Serialize)]
pub(super) struct Offered {
    /// The folder's name; `null` if none was given.
    folder: Option<String>,
    /// `null` until the first search has ended.
    cameras: Option<Vec<OfferedCamera>>,
    files: Vec<OfferedFile>,
    /// Number of videos that are not listed.
    more: usize,
}

#[derive(Debug, Serialize)]
struct OfferedCamera {
    /// Its device, which opens it.
    camera: String,
    /// Its name for display.
    name: String,
}

/// A request to open a camera or a file.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "lowercase", deny_unknown_fields)]
pub(super) enum Wish {
    Camera(String),
    File(String),
}

impl Form for Wish {
    const FORM: &'static str = "{\"file\": \"NAME\"} or {\"camera\": \"DEVICE\"}";
}

/// A camera or file that was chosen on a page, whose client waits for an answer.
#[derive(Clone)]
pub struct Chosen {
    /// The input of the new run.
    pub input: OsString,
    /// The opened file; the run reads no other: see [`lockon_run::run::Prepared::reading`].
    pub file: Option<Arc<File>>,
    folder: Option<Arc<Folder>>,
    answer: Arc<Mutex<Option<Answer>>>,
}

/// The video's number on the page, or why it cannot be opened.
pub(super) type Opened = std::result::Result<usize, String>;

type Answer = oneshot::Sender<Opened>;

impl Chosen {
    /// Answers the client with the video's number on the page, or why it cannot be opened. The first answer
    /// counts. The folder's place is removed from it.
    pub fn answer(&self, answer: Opened) {
        let to = lock(&self.answer).take();
        let hide = |why: String| self.folder.as_ref().map_or_else(|| why.clone(), |folder| folder.hide(&why));
        // The client may be gone.
        let _ = to.map(|to| to.send(answer.map_err(hide)));
    }
}

impl Offers {
    /// # Errors
    /// `File` if there is no such folder.
    pub(super) fn new(folder: Option<&Path>, chosen: Sender<Chosen>, find: Box<Find>) -> Result<Self> {
        let folder = folder.map(Folder::new).transpose()?.map(Arc::new);
        let [turn, search] = [(); 2].map(|()| Arc::new(Semaphore::new(1)));
        Ok(Self { folder, chosen, turn, cameras: Mutex::default(), find, search })
    }

    /// Runs `what` on a thread that may wait, one call at a time; `None` if the page ends.
    pub(super) async fn ask<T: Send + 'static>(
        self: &Arc<Self>,
        what: impl FnOnce(&Self) -> T + Send + 'static,
    ) -> Option<T> {
        let offers = self.clone();
        let turn = self.turn.clone().acquire_owned().await.ok()?;
        work(turn, move || what(&offers)).await.ok()
    }

    /// Starts a search for cameras, unless the last one is recent or still running. Does not wait.
    pub(super) fn look_for_cameras(self: &Arc<Self>) {
        let is_new = self.found().as_ref().is_some_and(|found| found.at.elapsed() < AGE);
        if let Some(place) = place(&self.search).filter(|_| !is_new) {
            let offers = self.clone();
            drop(work(place, move || offers.find_cameras()));
        }
    }

    fn find_cameras(&self) {
        let cameras = (self.find)();
        *self.found() = Some(Found { cameras, at: Instant::now() });
    }

    fn found(&self) -> lockon_core::locks::MutexGuard<'_, Option<Found>> {
        lock(&self.cameras)
    }

    /// The current offers. Takes as long as reading the folder.
    pub(super) fn look(&self) -> Offered {
        let offered = |camera: &Camera| OfferedCamera {
            name: text::in_one_line(&camera.name).into_owned(),
            camera: camera.device.clone(),
        };
        let cameras = self.found().as_ref().map(|found| found.cameras.iter().map(offered).collect());
        let mut files = self.folder.as_ref().map_or_else(Vec::new, |folder| folder.videos());
        let more = files.len().saturating_sub(MOST_FILES);
        files.truncate(MOST_FILES);
        Offered { folder: self.folder.as_ref().map(|folder| folder.name()), cameras, files, more }
    }

    /// Opens a camera or a file; the receiver gives the answer. `None` if it is not offered. Searches for
    /// cameras only for the first camera that is opened.
    pub(super) fn choose(&self, wish: &Wish) -> Option<oneshot::Receiver<Opened>> {
        let (answer, answered) = oneshot::channel();
        let (input, file) = match wish {
            Wish::Camera(device) => {
                let is_unknown = self.found().is_none();
                if is_unknown {
                    self.find_cameras();
                }
                let is_it = |camera: &Camera| camera.device == *device;
                self.found().as_ref().filter(|found| found.cameras.iter().any(is_it))?;
                (format!("camera:{device}").into(), None)
            }
            Wish::File(name) => match self.folder.as_ref()?.open(name) {
                Ok(opened) => {
                    let (path, file) = opened?;
                    (path.into_os_string(), Some(file.into()))
                }
                Err(error) => {
                    let _ = answer.send(Err(error.to_string()));
                    return Some(answered);
                }
            },
        };
        let (folder, answer) = (self.folder.clone(), Arc::new(Mutex::new(Some(answer))));
        // If the receiver is gone, dropping `answer` informs the client.
        let _ = self.chosen.send(Chosen { input, file, folder, answer });
        Some(answered)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    fn camera(number: usize) -> Camera {
        Camera { name: "a\u{202e}b".into(), device: format!("/dev/video{number}") }
    }

    fn offers(folder: Option<&Path>, find: Box<Find>) -> (Arc<Offers>, crossbeam_channel::Receiver<Chosen>) {
        let (chosen, is_chosen) = crossbeam_channel::unbounded();
        (Arc::new(Offers::new(folder, chosen, find).unwrap()), is_chosen)
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
        let (offers, is_chosen) = offers(Some(&folder), Box::new(Vec::new));
        let offered = serde_json::to_value(offers.look()).unwrap();
        let of = |key: &str| {
            offered["files"].as_array().unwrap().iter().map(|file| file[key].clone()).collect::<Vec<_>>()
        };
        assert_eq!(of("file"), ["a.mkv", "a\u{202e}b.ts", "b.MP4", "seq%04d.mp4", "é<i>.webm"]);
        assert_eq!(of("name")[1], "a\\u{202e}b.ts");
        assert_eq!(
            (&of("bytes")[0], &offered["more"], &offered["folder"]),
            (&5.into(), &0.into(), &"videos".into())
        );
        let chosen =
            |name: &str| offers.choose(&Wish::File(name.into())).map(|_| is_chosen.try_recv().unwrap());
        let b = chosen("b.MP4").unwrap();
        assert_eq!(b.input, folder.canonicalize().unwrap().join("b.MP4"));
        assert_eq!(b.file.unwrap().metadata().unwrap().len(), 5);
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
            assert!(chosen(name).is_none(), "{name}");
        }
        assert!(offers.choose(&Wish::Camera("/dev/zero".into())).is_none());
    }

    #[test]
    fn without_a_folder_no_file_is_offered_and_one_that_is_none_is_refused() {
        let offered = offers(None, Box::new(Vec::new)).0.look();
        assert!(offered.files.is_empty() && offered.folder.is_none());
        let file = tempfile::NamedTempFile::new().unwrap();
        for none in [file.path(), Path::new("/no/such/folder")] {
            let (chosen, _) = crossbeam_channel::unbounded();
            let error = Offers::new(Some(none), chosen, Box::new(Vec::new)).err().unwrap().to_string();
            assert!(error.contains(&none.display().to_string()), "{error}");
        }
    }

    #[test]
    fn nobody_waits_for_cameras_but_who_asks_for_one() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("a.mkv"), "x").unwrap();
        let (begun, has_begun) = mpsc::channel();
        let (go_on, may_go_on) = mpsc::channel::<()>();
        let may_go_on = Mutex::new(may_go_on);
        let find = move || {
            begun.send(()).unwrap();
            may_go_on.lock().unwrap().recv().unwrap();
            vec![camera(3)]
        };
        let (offers, is_chosen) = offers(Some(folder.path()), Box::new(find));
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            offers.look_for_cameras();
            has_begun.recv().unwrap();
            // One search runs; others get the last list.
            offers.look_for_cameras();
            let offered = offers.ask(Offers::look).await.unwrap();
            assert!(offered.cameras.is_none() && offered.files.len() == 1);
            assert!(offers.ask(|offers| offers.choose(&Wish::File("a.mkv".into()))).await.unwrap().is_some());
            assert_eq!(is_chosen.try_iter().count(), 1);
            go_on.send(()).unwrap();
            drop(offers.search.acquire().await.unwrap());
            let cameras = offers.look().cameras.unwrap();
            assert_eq!((&*cameras[0].camera, &*cameras[0].name), ("/dev/video3", "a\\u{202e}b"));
            // A recent list is not renewed.
            offers.look_for_cameras();
            assert!(offers.search.available_permits() == 1 && has_begun.try_recv().is_err());
            assert!(offers.choose(&Wish::Camera("/dev/video3".into())).is_some());
            assert_eq!(is_chosen.try_recv().unwrap().input, "camera:/dev/video3");
            assert!(offers.choose(&Wish::Camera("/dev/video4".into())).is_none());
        });
    }

    #[test]
    fn a_camera_that_nobody_has_looked_for_is_looked_for() {
        let (offers, is_chosen) = offers(None, Box::new(|| vec![camera(0)]));
        assert!(offers.choose(&Wish::Camera("/dev/video0".into())).is_some());
        assert_eq!(is_chosen.try_recv().unwrap().input, "camera:/dev/video0");
    }

    #[test]
    fn a_refusal_does_not_tell_where_the_folder_lies() {
        let around = tempfile::tempdir().unwrap();
        std::fs::write(around.path().join("a.mkv"), "x").unwrap();
        let (offers, is_chosen) = offers(Some(around.path()), Box::new(Vec::new));
        let mut answered = offers.choose(&Wish::File("a.mkv".into())).unwrap();
        let chosen = is_chosen.try_recv().unwrap();
        chosen.answer(Err(format!("{}: no video", Path::new(&chosen.input).display())));
        chosen.answer(Ok(7));
        assert_eq!(answered.try_recv().unwrap(), Err("a.mkv: no video".into()));
    }
}
