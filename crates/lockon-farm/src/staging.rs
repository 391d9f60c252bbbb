//! Hidden folders for a job's outputs while they are written, beside their final places: a file with its
//! final name is complete.

use std::fs::{DirEntry, File};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use tempfile::TempDir;

use super::job::{Job, Record};
use super::roots::Asked;
use lockon_core::error::{Error, Result};
use lockon_core::files::folder_of;
use lockon_run::fleet::{self, Completion};
use lockon_run::request::Request;

/// The files that a job finds in place of its outputs.
pub(super) enum Existing {
    /// Its results, whole: an earlier worker was gone before it could report them.
    Results,
    /// No files that must stay. The job may replace these.
    Room(Vec<PathBuf>),
}

/// Checks the places of a job's outputs.
///
/// # Errors
/// `Usage` if other files have the names of outputs; `File` if a file there cannot be read.
pub(super) fn look(record: &Record, request: &Request) -> Result<Existing> {
    if record.job.collect || record.job.live {
        return Ok(Existing::Room(Vec::new()));
    }
    let has_lines = request.results.iter().any(|path| path.to_ascii_lowercase().ends_with(".jsonl"));
    let mut ours = Vec::new();
    // Outputs that may be overwritten are written again, and then they are this job's results.
    if has_lines && (record.started || !record.job.overwrite) {
        match fleet::completion(request)? {
            Completion::Done => return Ok(Existing::Results),
            Completion::Part(files) => ours = files,
            Completion::None | Completion::Other => {}
        }
    }
    if record.job.overwrite {
        return Ok(Existing::Room(Vec::new()));
    }
    let is_taken = |path: &&PathBuf| path.symlink_metadata().is_ok();
    for path in request.output_files().iter().filter(is_taken) {
        if !ours.contains(path) && !placed_by(&record.job, path) {
            return Err(taken(path));
        }
    }
    Ok(Existing::Room(ours))
}

fn taken(path: &Path) -> Error {
    Error::Usage(format!(
        "{} exists already and is no result of this job: submit it with -y to overwrite it",
        path.display()
    ))
}

/// A job's outputs while they are made: in hidden folders beside the places where they belong.
///
/// A file that is whole gets its name by a hard link, which fails if the name is in use: no file is replaced
/// without `-y`. Until the farm knows that the job is done, the hidden folder keeps its own name of the file.
/// If the worker dies in between, the next try recognises the job's files by that.
pub(super) struct Staging {
    /// The request, with the names that are written to.
    pub(super) request: Request,
    folders: Vec<Hidden>,
    /// Where results are that come back through the farm.
    scratch: Option<TempDir>,
    /// Outputs as they were submitted, in their order.
    last: Vec<PathBuf>,
    /// Declared outputs, by the names that they will have.
    declared: Vec<PathBuf>,
    /// True if files of any name may be replaced.
    overwrites: bool,
    /// Files that may be replaced: a part of the same results.
    ours: Vec<PathBuf>,
    /// A camera's results are read while they are written.
    is_live: bool,
}

/// The hidden folder for outputs that belong to another one.
struct Hidden {
    path: PathBuf,
    /// Where they belong.
    of: PathBuf,
}

impl Staging {
    /// Creates the folders for a job, and removes leftovers of an earlier try.
    ///
    /// # Errors
    /// `File` if there is none.
    pub(super) fn new(job: &Job, asked: &Asked, ours: Vec<PathBuf>, instance: &str) -> Result<Self> {
        let declared = asked.bound.output_files();
        let mut staging = Self {
            request: asked.bound.clone(),
            folders: Vec::new(),
            scratch: None,
            last: asked.request.output_files(),
            declared,
            overwrites: job.overwrite,
            ours,
            is_live: job.live,
        };
        if job.live {
            // Reserved, so that no other job gets the name; those that stay empty are removed at the end.
            staging.rename(reserve)?;
            let names = staging.request.output_files();
            staging.last = names.iter().map(|path| asked.submitted(path)).collect();
            return Ok(staging);
        }
        if job.collect {
            let folder = tempfile::tempdir().map_err(Error::file("create", &std::env::temp_dir()))?;
            let path = folder.path().to_owned();
            staging.scratch = Some(folder);
            staging.rename(|name| Ok(path.join(name)))?;
            return Ok(staging);
        }
        sweep_all(job, &asked.bound);
        let name = format!("{}{instance}", hidden_prefix(job));
        for path in staging.declared.clone() {
            let of = folder_of(&path).to_owned();
            if staging.folders.iter().any(|hidden| hidden.of == of) {
                continue;
            }
            let path = of.join(&name);
            create_private(&path).map_err(|error| no_room(&of, error))?;
            staging.folders.push(Hidden { path, of });
        }
        let hidden: Vec<_> = staging.folders.iter().map(|it| (it.of.clone(), it.path.clone())).collect();
        staging.rename(|path| {
            let found = hidden.iter().find(|(of, _)| of == folder_of(path));
            let (_, folder) = found.expect("each output's folder was just gone through");
            Ok(folder.join(path.file_name().unwrap_or_default()))
        })?;
        Ok(staging)
    }

    fn rename(&mut self, name: impl Fn(&Path) -> Result<PathBuf>) -> Result<()> {
        let text = |path: &String| Ok(name(Path::new(path))?.to_string_lossy().into_owned());
        let request = &mut self.request;
        request.output = request.output.iter().map(|path| name(path)).collect::<Result<_>>()?;
        request.results = request.results.iter().map(text).collect::<Result<_>>()?;
        request.report = request.report.as_ref().map(text).transpose()?;
        Ok(())
    }

    /// The outputs, by the names that they will have.
    pub(super) fn outputs(&self) -> impl Iterator<Item = String> {
        self.last.iter().map(|path| path.to_string_lossy().into_owned())
    }

    /// Gives the written files their final names. Results come last, since they show that the outputs are
    /// complete. Collected outputs are read instead.
    ///
    /// # Errors
    /// `Usage` if another file has a name by now; `File`. Then no file gets its name.
    pub(super) fn commit(self, written: &[PathBuf]) -> Result<Committed> {
        if self.is_live {
            remove_empty(&self.request.output_files());
            return Ok(Committed::of(written.to_vec(), Vec::new()));
        }
        if self.scratch.is_some() {
            let read = |path: PathBuf| std::fs::read(&path).map_err(Error::file("read", &path));
            let contents = self.request.output_files().into_iter().map(read).collect::<Result<_>>()?;
            return Ok(Committed::of(self.last, contents));
        }
        let mut committed = Committed::of(Vec::new(), Vec::new());
        let placed = self.place_all(written, &mut committed);
        committed.hidden = self.folders.into_iter().map(|hidden| hidden.path).collect();
        match placed {
            Ok(()) => Ok(committed),
            Err(error) => {
                committed.undo();
                Err(error)
            }
        }
    }

    fn place_all(&self, written: &[PathBuf], committed: &mut Committed) -> Result<()> {
        let is_results = |path: &&PathBuf| self.request.results.iter().any(|name| Path::new(name) == **path);
        let (results, others): (Vec<_>, Vec<_>) = written.iter().partition(is_results);
        for path in others.into_iter().chain(results) {
            let hidden = self.folders.iter().find(|hidden| hidden.path == folder_of(path));
            let (Some(hidden), Some(name)) = (hidden, path.file_name()) else { continue };
            // The bytes are on the disk before they have the name.
            File::open(path).and_then(|file| file.sync_all()).map_err(Error::file("write", path))?;
            let wanted = hidden.of.join(name);
            let unwritable = || Error::file("write", &wanted);
            if self.overwrites || self.ours.contains(&wanted) {
                std::fs::rename(path, &wanted).map_err(unwritable())?;
                committed.files.push(wanted);
                continue;
            }
            let placed = if self.declared.contains(&wanted) {
                link(path, &wanted).map(|()| wanted.clone())
            } else {
                // Further parts of a video whose frames change size get any free name.
                link_free(path, &wanted, &self.declared)
            };
            let placed = placed.map_err(|error| match error.kind() {
                ErrorKind::AlreadyExists => taken(&wanted),
                _ => unwritable()(error),
            })?;
            committed.placed.push(Placed::of(path, &placed));
            committed.files.push(placed);
        }
        Ok(())
    }

    /// Removes the outputs of a failed run.
    pub(super) fn discard(self) {
        if self.is_live {
            remove_empty(&self.request.output_files());
        }
        let hidden: Vec<_> = self.folders.into_iter().map(|hidden| hidden.path).collect();
        remove_folders(&hidden);
    }
}

/// A job's outputs with their last names.
pub(super) struct Committed {
    /// Their names.
    pub(super) files: Vec<PathBuf>,
    /// Their bytes, if they come back through the farm.
    pub(super) contents: Vec<Vec<u8>>,
    /// Files whose names were free before.
    placed: Vec<Placed>,
    hidden: Vec<PathBuf>,
}

/// A file that has its last name.
struct Placed {
    name: PathBuf,
    identity: Option<(u64, u64)>,
    /// The hidden file, or the hidden folder if the file has no second name there. Another worker that takes
    /// over the job removes it.
    hidden: PathBuf,
}

impl Placed {
    fn of(hidden: &Path, name: &Path) -> Self {
        let has_two_names = hidden.symlink_metadata().is_ok();
        let hidden = if has_two_names { hidden } else { folder_of(hidden) };
        Self { name: name.into(), identity: identity(name), hidden: hidden.into() }
    }

    /// True if the name still belongs to this worker's file. The hidden file keeps its inode in use, so no
    /// other file can have the same identity.
    fn is_there(&self) -> bool {
        let exists = |path: &Path| path.symlink_metadata().is_ok();
        exists(&self.hidden) && exists(&self.name) && identity(&self.name) == self.identity
    }
}

impl Committed {
    fn of(files: Vec<PathBuf>, contents: Vec<Vec<u8>>) -> Self {
        Self { files, contents, placed: Vec::new(), hidden: Vec::new() }
    }

    /// Ends the work on outputs that the farm has recorded.
    pub(super) fn keep(&self) {
        remove_folders(&self.hidden);
    }

    /// True if no other worker has removed or replaced the outputs.
    pub(super) fn is_whole(&self) -> bool {
        self.placed.iter().all(Placed::is_there)
    }

    /// Removes the outputs of a job that this worker lost, except those that replaced other files. Files that
    /// another worker placed under the same names stay.
    pub(super) fn undo(&self) {
        for (number, placed) in self.placed.iter().enumerate().filter(|(_, placed)| placed.is_there()) {
            let hidden = if placed.hidden.is_dir() { &placed.hidden } else { folder_of(&placed.hidden) };
            take_away(&placed.name, hidden, number);
        }
        self.keep();
    }

    /// True if a worker that takes over the job may remove outputs: all but those that replaced other files.
    pub(super) fn can_be_removed(&self) -> bool {
        !self.placed.is_empty()
    }
}

/// The error of a folder in which nothing can be created. It names no hidden folder.
fn no_room(folder: &Path, error: io::Error) -> Error {
    let cause = match error.kind() {
        ErrorKind::NotFound => io::Error::new(
            error.kind(),
            "the folder does not exist: create it (mkdir -p), then run `lockon jobs retry`",
        ),
        _ => error,
    };
    Error::file("write to", folder)(cause)
}

/// A message with the last names of a job's outputs instead of those in the worker's hidden folders.
pub(super) fn without_hidden(job: &Job, instance: &str, message: &str) -> String {
    message.replace(&format!("{}{instance}/", hidden_prefix(job)), "")
}

/// How the names of a job's hidden folders begin.
fn hidden_prefix(job: &Job) -> String {
    format!(".lockon-{}-", job.id)
}

fn create_private(path: &Path) -> io::Result<()> {
    let mut builder = std::fs::DirBuilder::new();
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(path)
}

/// Gives a file a second name, unless that is in use. Where files cannot have two it gets the name alone.
fn link(path: &Path, wanted: &Path) -> io::Result<()> {
    match std::fs::hard_link(path, wanted) {
        Err(error) if error.kind() != ErrorKind::AlreadyExists => {
            File::options().write(true).create_new(true).open(wanted)?;
            std::fs::rename(path, wanted).inspect_err(|_| {
                // An empty file with the last name looks like a result.
                let _ = std::fs::remove_file(wanted);
            })
        }
        linked => linked,
    }
}

/// Gives a part of a video, `a-2.mkv`, a second name. If that is in use it is `a-3.mkv`, and so on. Names of
/// declared outputs are skipped. Returns the name.
fn link_free(path: &Path, part: &Path, declared: &[PathBuf]) -> io::Result<PathBuf> {
    let stem = part.file_stem().unwrap_or_default().to_string_lossy();
    let split = stem.rsplit_once('-').and_then(|(stem, number)| Some((stem, number.parse::<u32>().ok()?)));
    let (stem, first) = split.unwrap_or((&stem, 2));
    let whole = part.with_file_name(stem);
    let whole = part.extension().map_or_else(|| whole.clone(), |end| whole.with_added_extension(end));
    for number in first.. {
        let name = numbered(&whole, number);
        if declared.contains(&name) {
            continue;
        }
        match link(path, &name) {
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
            linked => return linked.map(|()| name),
        }
    }
    Err(ErrorKind::AlreadyExists.into())
}

/// Removes the hidden folders that workers left for a job that is done, and keeps its outputs.
pub(super) fn forget_hidden(job: &Job, request: &Request) {
    for path in request.output_files() {
        remove_folders(&hidden_of(job, folder_of(&path)));
    }
}

/// Removes leftovers of a job's dead workers, at the places that this request names: also files that have
/// their final names already while others of the job do not.
pub(super) fn sweep_all(job: &Job, request: &Request) {
    for path in request.output_files() {
        let folder = folder_of(&path);
        let left = hidden_of(job, folder);
        for hidden in &left {
            let ours = identities(hidden);
            if ours.is_empty() {
                continue;
            }
            for (number, entry) in folder.read_dir().into_iter().flatten().flatten().enumerate() {
                if identity(&entry.path()).is_some_and(|it| ours.contains(&it)) {
                    take_away(&entry.path(), hidden, number);
                }
            }
        }
        remove_folders(&left);
    }
}

/// Moves a file of a try into the try's hidden folder, which is removed next. A worker that takes over the
/// job removes that folder before it gives any file its name. So a worker that was held up after its check
/// takes nothing from that worker: the folder is gone.
fn take_away(name: &Path, hidden: &Path, number: usize) {
    // Under its own name there it would be the same file, and stay.
    let _ = std::fs::rename(name, hidden.join(format!(".removed-{number}")));
}

/// True if an earlier try of the job gave this file its name.
fn placed_by(job: &Job, path: &Path) -> bool {
    let Some(found) = identity(path) else { return false };
    hidden_of(job, folder_of(path)).iter().any(|hidden| identities(hidden).contains(&found))
}

/// The hidden folders of a job beside its outputs.
fn hidden_of(job: &Job, folder: &Path) -> Vec<PathBuf> {
    let prefix = hidden_prefix(job);
    let is_hidden =
        |entry: &DirEntry| entry.file_name().to_str().is_some_and(|name| name.starts_with(&prefix));
    let entries = folder.read_dir().into_iter().flatten().flatten();
    entries.filter(is_hidden).map(|entry| entry.path()).collect()
}

/// Device and inode of each file of a folder.
fn identities(folder: &Path) -> Vec<(u64, u64)> {
    let entries = folder.read_dir().into_iter().flatten().flatten();
    entries.filter_map(|entry| identity(&entry.path())).collect()
}

#[cfg(unix)]
fn identity(path: &Path) -> Option<(u64, u64)> {
    use std::os::unix::fs::MetadataExt;
    let about = path.symlink_metadata().ok().filter(std::fs::Metadata::is_file)?;
    Some((about.dev(), about.ino()))
}

#[cfg(not(unix))]
fn identity(_: &Path) -> Option<(u64, u64)> {
    None
}

/// Removes hidden folders. Failures are ignored: the next try uses other names.
fn remove_folders(paths: &[PathBuf]) {
    for path in paths {
        let _ = std::fs::remove_dir_all(path).or_else(|_| std::fs::remove_file(path));
    }
}

fn remove_empty(paths: &[PathBuf]) {
    for path in paths {
        if path.symlink_metadata().is_ok_and(|about| about.is_file() && about.len() == 0) {
            let _ = std::fs::remove_file(path);
        }
    }
}

/// Creates the first of `a.jsonl`, `a-2.jsonl`, `a-3.jsonl` and so on that does not exist.
fn reserve(path: &Path) -> Result<PathBuf> {
    for number in 1_u32.. {
        let name = if number == 1 { path.to_owned() } else { numbered(path, number) };
        match File::options().write(true).create_new(true).open(&name) {
            Ok(_) => return Ok(name),
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
            Err(error) => return Err(Error::file("write", path)(error)),
        }
    }
    Err(Error::file("write", path)(ErrorKind::AlreadyExists.into()))
}

/// `a-3.jsonl` for `a.jsonl` and 3.
fn numbered(path: &Path, number: u32) -> PathBuf {
    let mut name = path.file_stem().unwrap_or_default().to_owned();
    name.push(format!("-{number}"));
    if let Some(extension) = path.extension() {
        name.push(".");
        name.push(extension);
    }
    path.with_file_name(name)
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

    fn staging(job: &Job, request: &Request, instance: &str) -> Staging {
        Staging::new(job, &Asked::free(request.clone()), Vec::new(), instance).unwrap()
    }

    fn names(folder: &Path) -> Vec<String> {
        let names = folder.read_dir().unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let mut names: Vec<_> = names.collect();
        names.sort();
        names
    }

    /// Writes a job's outputs, and a second part of its video.
    fn write(staging: &Staging) -> Vec<PathBuf> {
        let mut written = staging.request.output_files();
        written.insert(1, written[0].with_file_name("a-2.mkv"));
        for path in &written {
            std::fs::write(path, "new").unwrap();
        }
        written
    }

    #[test]
    fn outputs_have_their_names_only_when_they_are_whole_and_second_parts_have_theirs() {
        let folder = tempfile::tempdir().unwrap();
        let (job, request) = job(folder.path());
        let staging = staging(&job, &request, "w1");
        let written = write(&staging);
        assert!(request.output_files().iter().all(|path| !path.exists()));
        let committed = staging.commit(&written).unwrap();
        assert!(committed.files.last().unwrap().ends_with("a.jsonl"), "{:?}", committed.files);
        committed.keep();
        assert_eq!(names(folder.path()), ["a-2.mkv", "a.jsonl", "a.mkv"]);
    }

    #[test]
    fn a_second_part_gets_a_name_that_is_free_and_with_overwrite_its_own() {
        for (overwrite, old, part) in [(false, "old", "a-4.mkv"), (true, "new", "a-2.mkv")] {
            let folder = tempfile::tempdir().unwrap();
            let (mut job, request) = job(folder.path());
            job.overwrite = overwrite;
            let at = |name: &str| folder.path().join(name);
            for taken in ["a-2.mkv", "a-3.mkv"] {
                std::fs::write(at(taken), "old").unwrap();
            }
            let staging = staging(&job, &request, "w1");
            let written = write(&staging);
            let committed = staging.commit(&written).unwrap();
            assert!(committed.files.contains(&at(part)), "{:?}", committed.files);
            assert_eq!(std::fs::read_to_string(at("a-2.mkv")).unwrap(), old);
            assert_eq!(std::fs::read_to_string(at("a-3.mkv")).unwrap(), "old");
        }
    }

    #[test]
    fn a_second_part_leaves_declared_names_to_the_declared_outputs() {
        let folder = tempfile::tempdir().unwrap();
        let (job, mut request) = job(folder.path());
        let at = |name: &str| folder.path().join(name);
        request.output.push(at("a-3.mkv"));
        std::fs::write(at("a-2.mkv"), "old").unwrap();
        let staging = staging(&job, &request, "w1");
        let written = write(&staging);
        std::fs::write(&staging.request.output[1], "declared").unwrap();
        let committed = staging.commit(&written).unwrap();
        assert!(committed.files.contains(&at("a-4.mkv")), "{:?}", committed.files);
        committed.keep();
        for (name, text) in [("a-2.mkv", "old"), ("a-3.mkv", "declared"), ("a-4.mkv", "new")] {
            assert_eq!(std::fs::read_to_string(at(name)).unwrap(), text, "{name}");
        }
    }

    #[test]
    fn a_file_that_cannot_get_its_last_name_leaves_no_empty_file_there() {
        let folder = tempfile::tempdir().unwrap();
        let wanted = folder.path().join("a.mkv");
        // Neither a hard link nor a rename is possible.
        link(&folder.path().join("missing"), &wanted).unwrap_err();
        assert_eq!(names(folder.path()), [""; 0]);
    }

    #[test]
    fn a_worker_that_lost_its_job_after_its_outputs_got_their_names_removes_its_own_files_only() {
        let folder = tempfile::tempdir().unwrap();
        let (job, request) = job(folder.path());
        let commit = |staging: Staging| {
            let written = write(&staging);
            staging.commit(&written).unwrap()
        };
        let first = commit(staging(&job, &request, "first"));
        assert!(first.is_whole());
        let second = staging(&job, &request, "second");
        assert!(!first.is_whole(), "the second worker removed the files of the first");
        let second = commit(second);
        assert!(second.is_whole() && !first.is_whole());
        first.undo();
        assert!(second.is_whole(), "{:?}", names(folder.path()));
        second.undo();
        assert_eq!(names(folder.path()), [""; 0]);
    }

    #[test]
    fn a_file_that_could_not_have_two_names_is_removed_with_its_job_unless_another_worker_took_over() {
        for is_taken in [false, true] {
            let folder = tempfile::tempdir().unwrap();
            let (hidden, name) = (folder.path().join("hidden"), folder.path().join("a.csv"));
            std::fs::create_dir(&hidden).unwrap();
            std::fs::write(&name, "whole").unwrap();
            let mut committed = Committed::of(Vec::new(), Vec::new());
            committed.placed.push(Placed::of(&hidden.join("a.csv"), &name));
            committed.hidden.push(hidden.clone());
            if is_taken {
                std::fs::remove_dir(&hidden).unwrap();
            }
            assert_eq!(committed.is_whole(), !is_taken);
            committed.undo();
            assert_eq!(name.exists(), is_taken);
        }
    }

    #[test]
    fn a_worker_that_was_held_up_takes_no_name_from_the_one_that_took_over() {
        let folder = tempfile::tempdir().unwrap();
        let (job, request) = job(folder.path());
        let first = staging(&job, &request, "first");
        let hidden = first.folders[0].path.clone();
        let written = write(&first);
        let first = first.commit(&written).unwrap();
        // It has checked that the name is its own. Then it is held up, and another worker does the whole job.
        let name = first.placed[0].name.clone();
        let second = staging(&job, &request, "second");
        let written = write(&second);
        let second = second.commit(&written).unwrap();
        second.keep();
        take_away(&name, &hidden, 0);
        assert_eq!(names(folder.path()), ["a-2.mkv", "a.jsonl", "a.mkv"]);
    }

    #[test]
    fn a_file_that_came_while_the_job_ran_stays_and_nothing_of_the_job_does() {
        let folder = tempfile::tempdir().unwrap();
        let (job, request) = job(folder.path());
        let staging = staging(&job, &request, "w1");
        let written = write(&staging);
        std::fs::write(folder.path().join("a.jsonl"), "mine").unwrap();
        let said = staging.commit(&written).err().unwrap().to_string();
        assert!(said.contains("a.jsonl exists already") && said.contains("-y"), "{said}");
        assert_eq!(names(folder.path()), ["a.jsonl"]);
        assert_eq!(std::fs::read_to_string(folder.path().join("a.jsonl")).unwrap(), "mine");
    }

    #[test]
    fn what_a_try_left_that_was_killed_is_removed_by_the_next_and_nothing_else() {
        let folder = tempfile::tempdir().unwrap();
        let (job, request) = job(folder.path());
        let left = staging(&job, &request, "killed").request.output_files();
        let other = folder.path().join(".lockon-0-killed-a.jsonl");
        left.iter().chain([&other]).for_each(|path| std::fs::write(path, "half").unwrap());
        let next = staging(&job, &request, "next");
        assert!(left.iter().all(|path| !path.exists()) && other.exists());
        std::fs::write(&next.request.output[0], "half").unwrap();
        next.discard();
        assert_eq!(names(folder.path()), [".lockon-0-killed-a.jsonl"]);
    }

    #[test]
    fn a_folder_of_outputs_that_is_missing_is_named_with_the_remedy_and_no_hidden_one_is() {
        let folder = tempfile::tempdir().unwrap();
        let (job, mut request) = job(folder.path());
        request.output = vec![folder.path().join("none/a.mkv")];
        let error = Staging::new(&job, &Asked::free(request.clone()), Vec::new(), "w1").err().unwrap();
        let said = error.to_string();
        assert!(said.contains("none:") && said.contains("mkdir -p") && !said.contains(".lockon"), "{said}");
        request.output = vec![folder.path().join("a.mkv")];
        let hidden = staging(&job, &request, "w1").request.output[0].display().to_string();
        let said = without_hidden(&job, "w1", &format!("cannot write {hidden}: File too large"));
        let expected = folder.path().join("a.mkv");
        assert_eq!(said, format!("cannot write {}: File too large", expected.display()));
    }

    #[test]
    fn outputs_of_a_worker_that_died_between_their_names_and_its_report_are_the_jobs() {
        let folder = tempfile::tempdir().unwrap();
        let (job, request) = job(folder.path());
        let dead = staging(&job, &request, "dead");
        let written = write(&dead);
        dead.commit(&written[..2]).unwrap();
        let mine = folder.path().join("a-9.mkv");
        std::fs::write(&mine, "mine").unwrap();
        let mut record = Record::new(job.clone());
        record.started = true;
        assert!(matches!(look(&record, &request), Ok(Existing::Room(_))));
        let next = staging(&job, &request, "next");
        let written = write(&next);
        next.commit(&written).unwrap().keep();
        assert_eq!(names(folder.path()), ["a-2.mkv", "a-9.mkv", "a.jsonl", "a.mkv"]);
    }

    #[test]
    fn files_that_are_nobodys_results_are_kept_until_somebody_says_so() {
        let folder = tempfile::tempdir().unwrap();
        let (job, request) = job(folder.path());
        let mut record = Record::new(job);
        assert!(matches!(look(&record, &request), Ok(Existing::Room(_))));
        std::fs::write(&request.output[0], "mine").unwrap();
        for started in [false, true] {
            record.started = started;
            assert!(look(&record, &request).err().unwrap().to_string().contains("submit it with -y"));
        }
        record.job.overwrite = true;
        assert!(matches!(look(&record, &request), Ok(Existing::Room(_))));
    }

    #[test]
    fn a_camera_that_moves_goes_on_in_the_next_file_and_leaves_no_empty_ones() {
        let folder = tempfile::tempdir().unwrap();
        let (mut job, request) = job(folder.path());
        job.live = true;
        std::fs::write(folder.path().join("a.jsonl"), "old").unwrap();
        let moved = staging(&job, &request, "w1");
        assert_eq!(
            moved.request.output_files(),
            [folder.path().join("a.mkv"), folder.path().join("a-2.jsonl")]
        );
        let third = staging(&job, &request, "w2");
        assert!(third.request.results[0].ends_with("a-3.jsonl"), "a name that is reserved is in use");
        third.discard();
        std::fs::write(&moved.request.results[0], "new").unwrap();
        moved.discard();
        assert_eq!(names(folder.path()), ["a-2.jsonl", "a.jsonl"]);
    }
}
