//! Where a job's outputs are while they are made: under another name beside the last one, so that what has
//! its name is whole.

use std::path::{Path, PathBuf};

use tempfile::TempDir;

use super::job::{Job, Record};
use crate::error::{Error, Result};
use crate::fleet::{self, Completion};
use crate::request::Request;

/// What a job finds where its outputs belong.
pub(super) enum Found {
    /// Its results, whole: an earlier worker was gone before it could say so.
    Results,
    /// Nothing that it must not replace.
    Room,
}

/// Looks where a job's outputs belong.
///
/// # Errors
/// `Usage` if somebody else's files are there; `File` if what is there cannot be read.
pub(super) fn look(record: &Record, request: &Request) -> Result<Found> {
    if record.job.collect || record.job.live {
        return Ok(Found::Room);
    }
    let is_ours_to_replace = record.started || record.job.overwrite;
    let has_lines = request.results.iter().any(|path| path.to_ascii_lowercase().ends_with(".jsonl"));
    // What was asked to be overwritten is made anew, once.
    if has_lines && (record.started || !record.job.overwrite) {
        match fleet::completion(request)? {
            Completion::Done => return Ok(Found::Results),
            Completion::Part(_) => return Ok(Found::Room),
            Completion::None | Completion::Other => {}
        }
    }
    match request.output_files().iter().find(|path| path.is_file()) {
        Some(path) if !is_ours_to_replace => Err(Error::Usage(format!(
            "{} exists already and is no result of this job: submit it with -y to overwrite it",
            path.display()
        ))),
        _ => Ok(Found::Room),
    }
}

/// A job's outputs under names of their own.
pub(super) struct Place {
    /// What is asked, with these names.
    pub(super) request: Request,
    /// In front of the last names.
    prefix: String,
    /// Where results are that come back through the farm.
    scratch: Option<TempDir>,
    /// Outputs as they are asked for, in their order.
    last: Vec<PathBuf>,
    /// A camera's results are read while they are written.
    is_live: bool,
}

impl Place {
    /// Makes room for a job; what an earlier try of it left is removed.
    ///
    /// # Errors
    /// `File` if there is none.
    pub(super) fn new(job: &Job, request: &Request, instance: &str) -> Result<Self> {
        let mut place = Self {
            request: request.clone(),
            prefix: format!(".lockon-{}-{instance}-", job.id),
            scratch: None,
            last: request.output_files(),
            is_live: job.live,
        };
        if job.live {
            place.rename(free);
            place.last = place.request.output_files();
            return Ok(place);
        }
        if job.collect {
            let folder = tempfile::tempdir().map_err(Error::file("create", &std::env::temp_dir()))?;
            let path = folder.path().to_owned();
            place.scratch = Some(folder);
            place.rename(|name| path.join(name));
            return Ok(place);
        }
        sweep_all(job, request);
        let prefix = place.prefix.clone();
        place.rename(|path| beside(path, &prefix));
        Ok(place)
    }

    fn rename(&mut self, name: impl Fn(&Path) -> PathBuf) {
        let text = |path: &String| name(Path::new(path)).to_string_lossy().into_owned();
        let request = &mut self.request;
        request.output = request.output.iter().map(|path| name(path)).collect();
        request.results = request.results.iter().map(text).collect();
        request.report = request.report.as_ref().map(text);
    }

    /// The outputs, by the names that they will have.
    pub(super) fn outputs(&self) -> impl Iterator<Item = String> {
        self.last.iter().map(|path| path.to_string_lossy().into_owned())
    }

    /// Gives what was written its last names; the results, which tell that all is there, come last. Those
    /// that are collected are read instead.
    ///
    /// # Errors
    /// `File`.
    pub(super) fn commit(self, written: &[PathBuf]) -> Result<Committed> {
        if self.is_live {
            return Ok(Committed { files: names(written), contents: Vec::new() });
        }
        if self.scratch.is_some() {
            let read = |path: PathBuf| std::fs::read(&path).map_err(Error::file("read", &path));
            let contents = self.request.output_files().into_iter().map(read).collect::<Result<_>>()?;
            return Ok(Committed { files: names(&self.last), contents });
        }
        let is_results = |path: &&PathBuf| self.request.results.iter().any(|name| Path::new(name) == **path);
        let (results, others): (Vec<_>, Vec<_>) = written.iter().partition(is_results);
        let mut files = Vec::new();
        for path in others.into_iter().chain(results) {
            // A video whose frames changed goes on in files that its output names after its own.
            let name = path.file_name().and_then(|name| name.to_str());
            let Some(name) = name.and_then(|name| name.strip_prefix(&self.prefix)) else { continue };
            let last = path.with_file_name(name);
            // The bytes are on the disk before they have the name.
            std::fs::File::open(path).and_then(|file| file.sync_all()).map_err(Error::file("write", path))?;
            std::fs::rename(path, &last).map_err(Error::file("write", &last))?;
            files.push(last);
        }
        Ok(Committed { files: names(&files), contents: Vec::new() })
    }

    /// Removes what a run left that failed.
    pub(super) fn discard(self) {
        if self.scratch.is_none() && !self.is_live {
            self.last.iter().for_each(|path| sweep(path, &self.prefix));
        }
    }
}

/// What has become of a job's outputs.
pub(super) struct Committed {
    /// Their names.
    pub(super) files: Vec<String>,
    /// Their bytes, if they come back through the farm.
    pub(super) contents: Vec<Vec<u8>>,
}

fn names(paths: &[PathBuf]) -> Vec<String> {
    paths.iter().map(|path| path.to_string_lossy().into_owned()).collect()
}

fn beside(path: &Path, prefix: &str) -> PathBuf {
    let mut name = std::ffi::OsString::from(prefix);
    name.push(path.file_name().unwrap_or_default());
    path.with_file_name(name)
}

/// Removes what workers that are gone left of a job, whose files have been found to be theirs to touch.
pub(super) fn sweep_all(job: &Job, request: &Request) {
    for path in request.output_files() {
        sweep(&path, &format!(".lockon-{}-", job.id));
    }
}

/// Removes files of a folder whose names begin so. What cannot be removed is in nobody's way.
fn sweep(path: &Path, prefix: &str) {
    let Some(folder) = path.parent().and_then(|folder| folder.read_dir().ok()) else { return };
    for entry in folder.flatten() {
        if entry.file_name().to_str().is_some_and(|name| name.starts_with(prefix)) {
            let _ = std::fs::remove_file(entry.path());
        }
    }
}

/// The first of `a.jsonl`, `a-2.jsonl`, `a-3.jsonl` and so on that is not there.
fn free(path: &Path) -> PathBuf {
    let stem = path.file_stem().unwrap_or_default().to_string_lossy();
    let extension = path.extension().map_or_else(String::new, |end| format!(".{}", end.to_string_lossy()));
    let numbered = |number| path.with_file_name(format!("{stem}-{number}{extension}"));
    let names = std::iter::once(path.to_owned()).chain((2_u32..).map(numbered));
    names.into_iter().find(|path| path.symlink_metadata().is_err()).expect("numbers do not end")
}

#[cfg(test)]
mod tests {
    use super::super::job::Terms;
    use super::*;

    fn job(folder: &Path) -> (Job, Request) {
        let mut request = Request::new(folder.join("a.mp4")).unwrap();
        request.track.push("1,2,30,40".parse().unwrap());
        request.results = vec![folder.join("a.jsonl").to_str().unwrap().into()];
        request.output = vec![folder.join("a.mkv")];
        let terms = Terms { collect: false, overwrite: false, tries: 3 };
        (Job::new("a", &request, &[], terms).unwrap(), request)
    }

    #[test]
    fn outputs_have_their_names_only_when_they_are_whole_and_second_parts_have_theirs() {
        let folder = tempfile::tempdir().unwrap();
        let (job, request) = job(folder.path());
        let place = Place::new(&job, &request, "w1").unwrap();
        let written = place.request.output_files();
        let second = beside(&folder.path().join("a-2.mkv"), &place.prefix);
        for path in written.iter().chain([&second]) {
            std::fs::write(path, "x").unwrap();
        }
        assert!(request.output_files().iter().all(|path| !path.exists()));
        let files = place.commit(&[written[1].clone(), written[0].clone(), second]).unwrap().files;
        let mut there: Vec<_> = folder.path().read_dir().unwrap().map(|e| e.unwrap().file_name()).collect();
        there.sort();
        assert_eq!(there, ["a-2.mkv", "a.jsonl", "a.mkv"]);
        assert!(files.last().unwrap().ends_with("a.jsonl"), "{files:?}");
    }

    #[test]
    fn what_a_try_left_that_was_killed_is_removed_by_the_next_and_nothing_else() {
        let folder = tempfile::tempdir().unwrap();
        let (job, request) = job(folder.path());
        let left = Place::new(&job, &request, "killed").unwrap().request.output_files();
        let other = folder.path().join(".lockon-0-killed-a.jsonl");
        left.iter().chain([&other]).for_each(|path| std::fs::write(path, "half").unwrap());
        let place = Place::new(&job, &request, "next").unwrap();
        assert!(left.iter().all(|path| !path.exists()) && other.exists());
        std::fs::write(&place.request.output[0], "half").unwrap();
        let made = place.request.output[0].clone();
        place.discard();
        assert!(!made.exists() && other.exists());
    }

    #[test]
    fn files_that_are_nobodys_results_are_kept_until_somebody_says_so() {
        let folder = tempfile::tempdir().unwrap();
        let (job, request) = job(folder.path());
        let mut record = Record::new(job);
        assert!(matches!(look(&record, &request), Ok(Found::Room)));
        std::fs::write(&request.output[0], "mine").unwrap();
        assert!(look(&record, &request).err().unwrap().to_string().contains("submit it with -y"));
        record.started = true;
        assert!(matches!(look(&record, &request), Ok(Found::Room)));
        record.started = false;
        record.job.overwrite = true;
        assert!(matches!(look(&record, &request), Ok(Found::Room)));
    }

    #[test]
    fn a_camera_that_moves_goes_on_in_the_next_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("yard.jsonl");
        assert_eq!(free(&path), path);
        std::fs::write(&path, "").unwrap();
        assert_eq!(free(&path), folder.path().join("yard-2.jsonl"));
        std::fs::write(folder.path().join("yard-2.jsonl"), "").unwrap();
        assert_eq!(free(&path), folder.path().join("yard-3.jsonl"));
    }
}
