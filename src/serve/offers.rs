//! What a page offers to be opened: the cameras of this machine, and the videos that lie in one folder.
//!
//! To ask every camera may take seconds. So that is done beside all else, and what is known by then is told:
//! nobody waits for cameras who wants a file.

use std::ffi::OsString;
use std::fs::File;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use crossbeam_channel::Sender;
use serde::{Deserialize, Serialize};
use tokio::sync::{Semaphore, oneshot};

use crate::error::Result;
use crate::media::cameras::Camera;
use crate::text;

use super::folder::{Folder, OfferedFile};
use super::work::{place, work};

/// Videos that are shown at most, by their names the first.
const MOST_FILES: usize = 1000;

/// Which cameras there are is looked for anew after so long.
const AGE: Duration = Duration::from_secs(if cfg!(test) { 3600 } else { 4 });

/// Looks for cameras, which may take long.
type Find = dyn Fn() -> Vec<Camera> + Send + Sync;

/// What a page offers.
pub(super) struct Offers {
    pub(super) folder: Option<Arc<Folder>>,
    /// Where it is told what somebody has chosen.
    chosen: Sender<Chosen>,
    /// One looks into the folder at a time.
    turn: Arc<Semaphore>,
    /// The cameras that were found last.
    cameras: Mutex<Option<Found>>,
    find: Box<Find>,
    /// One looks for cameras at a time.
    search: Arc<Semaphore>,
}

/// Cameras, and when they were found.
struct Found {
    cameras: Vec<Camera>,
    at: Instant,
}

/// What is offered now: `Offers` in `openapi.json`.
#[derive(Debug, Serialize)]
pub(super) struct Offered {
    /// What the folder is called; `null` if none was named.
    folder: Option<String>,
    /// `null` until they have been looked for.
    cameras: Option<Vec<OfferedCamera>>,
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
    /// The file that it names, which is read and no other: see [`crate::run::Prepared::reading`].
    pub file: Option<Arc<File>>,
    folder: Option<Arc<Folder>>,
    answer: Arc<Mutex<Option<Answer>>>,
}

/// The number of the video on the page, or why it cannot be opened.
pub(super) type Opened = std::result::Result<usize, String>;

type Answer = oneshot::Sender<Opened>;

impl Chosen {
    /// Tells whoever has chosen it what number the video has on the page, or why it cannot be opened. What is
    /// told first counts. Where the folder lies is not told.
    pub fn answer(&self, answer: Opened) {
        let to = self.answer.lock().unwrap_or_else(PoisonError::into_inner).take();
        let hide = |why: String| self.folder.as_ref().map_or_else(|| why.clone(), |folder| folder.hide(&why));
        // Nobody may be waiting any more.
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

    /// Has something done with them by a thread that may wait, one after the other; `None` if the page ends.
    pub(super) async fn ask<T: Send + 'static>(
        self: &Arc<Self>,
        what: impl FnOnce(&Self) -> T + Send + 'static,
    ) -> Option<T> {
        let offers = self.clone();
        let turn = self.turn.clone().acquire_owned().await.ok()?;
        work(turn, move || what(&offers)).await.ok()
    }

    /// Has cameras looked for, unless they were found a short while ago or somebody does so. Nobody waits.
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

    fn found(&self) -> std::sync::MutexGuard<'_, Option<Found>> {
        // It is whole at every moment.
        self.cameras.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What is known now. Takes as long as reading the folder.
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

    /// Has opened what somebody asks for; what comes back tells what becomes of it. `None` if that is not
    /// offered. Looks for cameras only if one is asked for, and nobody has looked for them yet.
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
        // Whoever opens them may have ended, and with it the one who would answer.
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
            // One looks; the others are told what is known.
            offers.look_for_cameras();
            let offered = offers.ask(Offers::look).await.unwrap();
            assert!(offered.cameras.is_none() && offered.files.len() == 1);
            assert!(offers.ask(|offers| offers.choose(&Wish::File("a.mkv".into()))).await.unwrap().is_some());
            assert_eq!(is_chosen.try_iter().count(), 1);
            go_on.send(()).unwrap();
            drop(offers.search.acquire().await.unwrap());
            let cameras = offers.look().cameras.unwrap();
            assert_eq!((&*cameras[0].camera, &*cameras[0].name), ("/dev/video3", "a\\u{202e}b"));
            // What was found a moment ago is not looked for again.
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
