//! Output files that one run has for itself.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::{Identity, replaceable};
use crate::error::{Error, Result};

/// How long a lock is tried. A run that is just about to fail gives its files back.
const PATIENCE: Duration = Duration::from_millis(300);

/// The lock on an output file: as long as it exists, no other run of this or another process gets the file.
///
/// A missing file is created, empty. Dropped, this removes it again if it is still empty, unless it was
/// [kept](Self::keep).
#[derive(Debug)]
pub struct Claim {
    path: PathBuf,
    /// The real name.
    found: PathBuf,
    file: File,
    is_removed: bool,
}

impl Claim {
    /// Locks the file at `path`, and changes nothing of a file that is there. `None` for pipes and devices,
    /// and for files that cannot be opened: the writer reports the reason later. File systems without locks
    /// lock nothing, and so do systems other than Unix, where a lock would keep the writer out as well.
    ///
    /// # Errors
    /// `Output` if another run has the file.
    pub fn take(path: &Path) -> Result<Option<Self>> {
        if !cfg!(unix) {
            return Ok(None);
        }
        let Some((folder, name)) = replaceable(path) else { return Ok(None) };
        let found = folder.join(name);
        let until = Instant::now() + PATIENCE;
        loop {
            let created = OpenOptions::new().write(true).create_new(true).open(&found);
            let is_new = created.is_ok();
            let opened = match created {
                Err(error) if error.kind() == ErrorKind::AlreadyExists => {
                    let opened = OpenOptions::new().write(true).open(&found);
                    // It may be replaced as a whole, if not written.
                    opened.or_else(|_| File::open(&found))
                }
                created => created,
            };
            let is_late = Instant::now() > until;
            match opened {
                Ok(file) => match file.try_lock() {
                    Err(TryLockError::WouldBlock) if is_late => {
                        let reason = "another process writes it: give each run its own name".to_owned();
                        return Err(Error::Output { name: path.display().to_string(), reason });
                    }
                    Err(TryLockError::WouldBlock) => {}
                    Ok(()) | Err(TryLockError::Error(_)) => {
                        let claim =
                            Self { path: path.into(), found: found.clone(), file, is_removed: is_new };
                        // The run that had the lock before may have removed or replaced the file meanwhile.
                        if claim.is_in_place() || is_late {
                            return Ok(Some(claim));
                        }
                    }
                },
                Err(error) if error.kind() == ErrorKind::NotFound && !is_late && folder.is_dir() => {}
                Err(_) => return Ok(None),
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// The name that was given.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Leaves the file where it is, also if it is empty.
    pub fn keep(&mut self) {
        self.is_removed = false;
    }

    /// True if the file still has its name.
    fn is_in_place(&self) -> bool {
        let (Ok(locked), Ok(there)) = (self.file.metadata(), self.found.symlink_metadata()) else {
            return false;
        };
        Identity::same(&locked, &there)
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        let is_empty = || self.file.metadata().is_ok_and(|about| about.len() == 0);
        // Under the lock: no other run has begun to write it.
        if self.is_removed && is_empty() && self.is_in_place() {
            let _ = std::fs::remove_file(&self.found);
        }
    }
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_one_run_writes_is_refused_to_another_until_it_ends() {
        let dir = tempfile::tempdir().unwrap();
        let (new, old) = (dir.path().join("new.jsonl"), dir.path().join("old.mp4"));
        std::fs::write(&old, "kept").unwrap();
        std::os::unix::fs::symlink("old.mp4", dir.path().join("link.mp4")).unwrap();
        let first = [Claim::take(&new).unwrap().unwrap(), Claim::take(&old).unwrap().unwrap()];
        for name in ["new.jsonl", "old.mp4", "link.mp4", "./old.mp4"] {
            let refused = Claim::take(&dir.path().join(name)).unwrap_err().to_string();
            assert!(refused.contains(name) && refused.contains("another process writes it"), "{refused}");
        }
        drop(first);
        assert!(!new.exists(), "it was created and stayed empty");
        assert_eq!(std::fs::read(&old).unwrap(), b"kept");
        let mut again = Claim::take(&new).unwrap().unwrap();
        again.keep();
        drop(again);
        assert!(new.exists());
    }

    #[test]
    fn a_claim_removes_no_file_that_has_taken_the_place_of_its_own() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("report.html");
        let claim = Claim::take(&path).unwrap().unwrap();
        super::super::replace(&path, b"").unwrap();
        drop(claim);
        assert!(path.exists());
    }

    #[test]
    fn devices_pipes_and_places_that_cannot_be_written_are_left_to_the_writer() {
        let dir = tempfile::tempdir().unwrap();
        for path in ["/dev/null", "/dev/stdout", "/proc/self/fd/1", "no/such/folder/a.mp4"] {
            assert!(Claim::take(Path::new(path)).unwrap().is_none(), "{path}");
        }
        assert!(Claim::take(dir.path()).unwrap().is_none());
    }
}
