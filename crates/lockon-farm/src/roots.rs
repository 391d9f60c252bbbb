//! Files that a worker may use: strangers submit jobs, and a job names files.
//!
//! With `--root` the worker opens each file and each folder that a job names, and only then checks where it
//! lies. The run uses these handles under the names that the system gives them (`/proc/self/fd/7`), never the
//! submitted names: whatever takes a name's place later is not opened.

use std::fs::File;
use std::io::ErrorKind;
use std::path::{Component, Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;

use super::job::Job;
use lockon_core::error::{Error, Result};
use lockon_core::files::folder_of;
use lockon_core::text;
use lockon_gst::source::{Input, Pictures, Uri};
use lockon_run::request::Request;
use lockon_run::run::Video;

/// The action of errors about files outside of the worker's folders.
const SERVE: &str = "serve";

/// Folders below which jobs may read and write, and the addresses and cameras that they may use. Without any
/// folder jobs may do everything that the worker's user may.
#[derive(Debug, Clone, Default)]
pub struct Roots {
    folders: Vec<PathBuf>,
    allowed: Vec<Allowed>,
}

/// An input that a worker with roots serves besides files: `camera`, a scheme (`rtsp`), or a scheme and a
/// host (`rtsp://10.0.0.7`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Allowed {
    /// Cameras of the worker's machine.
    Camera,
    /// Addresses of this scheme, in lower case, of one host or of all.
    Address {
        /// The scheme.
        scheme: String,
        /// The host.
        host: Option<String>,
    },
}

impl FromStr for Allowed {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let refuse = |expected: &str| Err(Error::value("allow", text, expected));
        if text == "camera" {
            return Ok(Self::Camera);
        }
        let (scheme, host) = text.split_once("://").unwrap_or((text, ""));
        let plain = Uri::from(text).plain_host();
        let is_host = plain.as_deref() == Some(&*host.trim_matches(['[', ']']).to_ascii_lowercase());
        if !text::is_scheme(scheme) || !(host.is_empty() || is_host) {
            return refuse(
                "expected camera, a scheme such as rtsp, or a scheme and a host without port and path, rtsp://10.0.0.7",
            );
        }
        match scheme.to_ascii_lowercase() {
            scheme if scheme == "file" => refuse("files are served below --root alone"),
            scheme => Ok(Self::Address { scheme, host: plain }),
        }
    }
}

impl std::fmt::Display for Allowed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Camera => f.write_str("camera"),
            Self::Address { scheme, host: None } => f.write_str(scheme),
            Self::Address { scheme, host: Some(host) } => write!(f, "{scheme}://{host}"),
        }
    }
}

/// A job's request, with the files and folders that it names held open where the worker has roots.
pub(super) struct Asked {
    /// As it was submitted.
    pub(super) request: Request,
    /// The request with the names of open files and folders.
    pub(super) bound: Request,
    /// The video that may be opened; `None` where nothing is bounded.
    video: Option<Video>,
    held: Vec<Held>,
}

/// A file or folder that is held open.
struct Held {
    _file: Arc<File>,
    /// Its name in `/proc/self/fd`.
    name: PathBuf,
    /// The submitted name.
    stands_for: PathBuf,
}

impl Asked {
    /// A request of a worker without roots.
    pub(super) fn free(request: Request) -> Self {
        Self { bound: request.clone(), request, video: None, held: Vec::new() }
    }

    /// The video, for the run that reads it.
    pub(super) fn take_video(&mut self) -> Option<Video> {
        self.video.take()
    }

    /// Holds a file or folder open as long as this lives. Returns what the system calls it.
    fn hold(&mut self, file: impl Into<Arc<File>>, stands_for: &Path) -> Result<PathBuf> {
        let file = file.into();
        let name = name_of_open(&file)?;
        self.held.push(Held { _file: file, name: name.clone(), stands_for: stands_for.into() });
        Ok(name)
    }

    /// The submitted path, where this one begins with what the system calls an open file.
    pub(super) fn submitted(&self, path: &Path) -> PathBuf {
        let rest = |held: &Held| Some(held.stands_for.join(path.strip_prefix(&held.name).ok()?));
        let found = self.held.iter().find_map(|held| {
            // Joined with nothing, a path gets a slash at its end.
            if path == held.name { Some(held.stands_for.clone()) } else { rest(held) }
        });
        found.unwrap_or_else(|| path.into())
    }

    /// The message with submitted names instead of those in `/proc/self/fd`.
    pub(super) fn in_submitted_names(&self, message: &str) -> String {
        self.held.iter().fold(message.to_owned(), |message, held| {
            let name = held.name.to_string_lossy();
            let mut parts = message.split(&*name);
            let mut renamed = parts.next().unwrap_or_default().to_owned();
            for part in parts {
                // `/proc/self/fd/1` is not the beginning of `/proc/self/fd/12`.
                let is_other = part.starts_with(|c: char| c.is_ascii_digit());
                renamed += &if is_other { name.clone() } else { held.stands_for.to_string_lossy() };
                renamed += part;
            }
            renamed
        })
    }

    /// The error with submitted names instead of those in `/proc/self/fd`.
    pub(super) fn named(&self, error: Error) -> Error {
        match error {
            Error::File { action, path, cause } => Error::File { action, path: self.submitted(&path), cause },
            Error::NoVideo { input, reason } => Error::NoVideo {
                input: self.in_submitted_names(&input),
                reason: self.in_submitted_names(&reason),
            },
            Error::Usage(text) => Error::Usage(self.in_submitted_names(&text)),
            Error::Value { what, value, expected } => {
                Error::Value { what, value: self.in_submitted_names(&value), expected }
            }
            other => other,
        }
    }
}

/// The name of an open file in `/proc/self/fd`.
#[cfg(unix)]
#[expect(clippy::unnecessary_wraps, reason = "there are systems without")]
fn name_of_open(file: &File) -> Result<PathBuf> {
    use std::os::fd::AsRawFd;
    Ok(format!("/proc/self/fd/{}", file.as_raw_fd()).into())
}

#[cfg(not(unix))]
fn name_of_open(_: &File) -> Result<PathBuf> {
    Err(Error::Usage("--root is available on Linux only".into()))
}

/// How many files this process may have open; `None` if there is no limit.
#[cfg(unix)]
fn maximum_of_files() -> Option<u64> {
    rustix::process::getrlimit(rustix::process::Resource::Nofile).current
}

#[cfg(not(unix))]
fn maximum_of_files() -> Option<u64> {
    None
}

/// True for the error about a file outside of the folders.
pub(super) fn is_refusal(error: &Error) -> bool {
    matches!(error, Error::File { action: SERVE, .. })
}

/// Refuses pictures that need more than a quarter of the open files that the process may have: each stays
/// open until the job ends, and other jobs run beside it.
fn check_count(typed: &Path, pictures: usize, files: Option<u64>) -> Result<()> {
    match files {
        Some(files) if pictures as u64 > files / 4 => Err(Error::Usage(format!(
            "{}: {pictures} pictures, and a worker with --root opens at most {}, a quarter of its limit of open \
             files ({files}): raise that limit for the worker (ulimit -n), or make a video of the pictures",
            typed.display(),
            files / 4
        ))),
        _ => Ok(()),
    }
}

impl Roots {
    /// These folders, with links resolved, and the addresses and cameras that are allowed too.
    ///
    /// # Errors
    /// `File` if one does not exist; `Usage` on systems other than Linux, which cannot hold files open by
    /// name.
    pub fn new(folders: &[PathBuf], allowed: &[Allowed]) -> Result<Self> {
        if cfg!(not(target_os = "linux")) && !folders.is_empty() {
            return Err(Error::Usage("--root is available on Linux only".into()));
        }
        let real = |path: &PathBuf| path.canonicalize().map_err(Error::file(SERVE, path));
        let folders = folders.iter().map(real).collect::<Result<_>>()?;
        Ok(Self { folders, allowed: allowed.to_vec() })
    }

    /// True if there is a bound.
    pub fn is_bound(&self) -> bool {
        !self.folders.is_empty()
    }

    /// Refuses a request that can read or write outside of the folders, through links or not, or that uses an
    /// address or a camera that is not allowed. Pipeline text is always refused, since it can open anything.
    /// If no output `stays` here, outputs must be names without folders.
    ///
    /// # Errors
    /// `File`, which names the path.
    pub fn check(&self, request: &Request, stays: bool) -> Result<()> {
        self.open(request.clone(), stays).map(drop)
    }

    /// Opens the files of a job, if it may use them on this worker.
    ///
    /// # Errors
    /// As [`Job::request_of_stranger`] and [`Self::check`].
    pub(super) fn open_job(&self, job: &Job) -> Result<Asked> {
        job.check_numbers()?;
        // Before other code reads the text: with `@FILE` that would open the file.
        self.refuse_text(&job.request()?)?;
        self.open(job.request_of_stranger()?, !job.collect)
    }

    fn refuse_text(&self, request: &Request) -> Result<()> {
        let is_text = request.source.is_some() || !request.sink.is_empty();
        if !self.is_bound() || !is_text {
            return Ok(());
        }
        Err(self.refusal(Path::new(if request.source.is_some() { "--source" } else { "--sink" })))
    }

    fn open(&self, request: Request, stays: bool) -> Result<Asked> {
        let mut asked = Asked::free(request);
        if self.is_bound() {
            self.refuse_text(&asked.request)?;
            let opened = self.open_video(&mut asked).and_then(|()| self.open_others(&mut asked, stays));
            opened.map_err(|error| asked.named(error))?;
        }
        Ok(asked)
    }

    /// Opens the video, so that whatever gets its name later is not read.
    fn open_video(&self, asked: &mut Asked) -> Result<()> {
        if asked.request.append || asked.request.rotate.is_some() {
            return Err(self.refusal(Path::new("--append")));
        }
        if asked.request.cut.is_some() {
            return Err(self.refusal(Path::new("--cut")));
        }
        let input = asked.request.parsed_input()?;
        self.check_input(&input)?;
        let video = match input {
            Input::File(path) => {
                let file = Arc::new(self.open_file(&path)?);
                asked.hold(file.clone(), &path)?;
                Video { input: Input::File(path), file: Some(file), pictures: None }
            }
            Input::Uri(uri) => match uri.path() {
                Some(path) => {
                    let file = Arc::new(self.open_file(&path)?);
                    asked.hold(file.clone(), &path)?;
                    Video { input: Input::File(path), file: Some(file), pictures: None }
                }
                None => Video { input: Input::Uri(uri), file: None, pictures: None },
            },
            Input::Pictures(pictures) => {
                let opened = self.open_pictures(&pictures, asked)?;
                let pictures = Input::Pictures(pictures);
                Video { input: pictures, file: None, pictures: Some(opened.into()) }
            }
            other => Video { input: other, file: None, pictures: None },
        };
        asked.video = Some(video);
        Ok(())
    }

    /// Opens each picture. The folder is read through a handle too: its names are secret outside of the
    /// roots.
    fn open_pictures(&self, typed: &Pictures, asked: &mut Asked) -> Result<Vec<(PathBuf, File)>> {
        let typed = typed.path();
        let (folder, name) =
            if typed.is_dir() { (typed, None) } else { (folder_of(typed), typed.file_name()) };
        let here = asked.hold(self.open_folder(folder)?, folder)?;
        let text = name.map_or_else(|| here.clone(), |name| here.join(name));
        let Input::Pictures(found) = Input::typed(text.as_os_str())? else {
            let changed = std::io::Error::other("it was replaced while it was opened");
            return Err(Error::file("read", typed)(changed));
        };
        let open = |path: PathBuf| {
            let file = self.open_file(&path)?;
            Ok((folder.join(path.file_name().unwrap_or_default()), file))
        };
        let names = found.names()?;
        check_count(typed, names.len(), maximum_of_files())?;
        names.into_iter().map(open).collect()
    }

    /// Opens templates, the login, an earlier run's results and receivers of events, and the folders of
    /// outputs.
    fn open_others(&self, asked: &mut Asked, stays: bool) -> Result<()> {
        for index in 0..asked.request.template.len() {
            let (name, path) = lockon_run::setup::name_and_path(&asked.request.template[index]);
            if name.contains('=') || name.is_empty() {
                let text = format!("template {}: give it a name without `=`, NAME=PATH", path.display());
                return Err(Error::Usage(text));
            }
            let here = asked.hold(self.open_file(&path)?, &path)?;
            asked.bound.template[index] = format!("{name}={}", here.display());
        }
        if let Some(path) = asked.request.credentials.clone() {
            asked.bound.credentials = Some(asked.hold(self.open_file(&path)?, &path)?);
        }
        if let Some(path) = asked.request.control.clone() {
            asked.bound.control = Some(asked.hold(self.open_file(&path)?, &path)?);
        }
        for index in 0..asked.request.events.len() {
            let mut to = asked.request.events[index].clone();
            if let Some(path) = to.file().map(PathBuf::from) {
                let here = asked.hold(self.open_file(&path)?, &path)?;
                to = to.read_from(&here)?;
                asked.bound.events[index] = to.clone();
            }
            self.check_address(&Uri::from(to.address()?), &to.shown())?;
        }
        for path in asked.request.output_files() {
            if stays {
                self.check_output(&path, asked)?;
            } else {
                let mut parts = path.components();
                let is_name = matches!((parts.next(), parts.next()), (Some(Component::Normal(_)), None));
                is_name.then_some(()).ok_or_else(|| self.refusal(&path))?;
            }
        }
        Ok(())
    }

    /// Opens the folder of an output, and has the output written through it.
    fn check_output(&self, path: &Path, asked: &mut Asked) -> Result<()> {
        let folder = folder_of(path);
        let held = asked.held.iter().find(|held| held.stands_for == folder);
        let here = if let Some(held) = held {
            held.name.clone()
        } else {
            let opened = self.open_folder(folder).map_err(|error| match error {
                Error::File { cause, .. } => Error::file("write", path)(cause),
                other => other,
            })?;
            asked.hold(opened, folder)?
        };
        let here = here.join(path.file_name().ok_or_else(|| self.refusal(path))?);
        // A link is not followed, but one that leads outside is no name for results.
        if here.symlink_metadata().is_ok() && !self.would_contain(&here) {
            return Err(self.refusal(path));
        }
        let text = here.to_string_lossy().into_owned();
        let is = |named: &String| Path::new(named) == path;
        let bound = &mut asked.bound;
        bound.output.iter_mut().filter(|named| *named == path).for_each(|named| named.clone_from(&here));
        let texts = bound.results.iter_mut().chain(&mut bound.report);
        texts.filter(|named| is(named)).for_each(|named| named.clone_from(&text));
        Ok(())
    }

    /// Opens a regular file below the folders. It opens nothing else on the way and never blocks.
    fn open_file(&self, path: &Path) -> Result<File> {
        let unreadable = || Error::file("read", path);
        let found = self.locate(path)?;
        if !found.metadata().map_err(unreadable())?.is_file() {
            return Err(unreadable()(std::io::Error::new(ErrorKind::InvalidInput, "it is no file")));
        }
        // Another handle of the file that was checked.
        File::open(name_of_open(&found)?).map_err(unreadable())
    }

    fn open_folder(&self, path: &Path) -> Result<File> {
        let found = self.locate(path)?;
        if !found.metadata().map_err(Error::file("read", path))?.is_dir() {
            return Err(Error::file("read", path)(ErrorKind::NotADirectory.into()));
        }
        Ok(found)
    }

    /// Returns a handle without read access to the target of a path below the folders.
    #[cfg(target_os = "linux")]
    fn locate(&self, path: &Path) -> Result<File> {
        use rustix::fs::{Mode, OFlags, open};
        let unreadable = || Error::file("read", path);
        let found = open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty());
        // Another answer for a file that does not exist would show strangers which files do.
        if found.is_err() && !self.would_contain(path) {
            return Err(self.refusal(path));
        }
        let found = File::from(found.map_err(|error| unreadable()(error.into()))?);
        let real = std::fs::read_link(name_of_open(&found)?).map_err(unreadable())?;
        if self.contains(&real) { Ok(found) } else { Err(self.refusal(path)) }
    }

    #[cfg(not(target_os = "linux"))]
    fn locate(&self, path: &Path) -> Result<File> {
        Err(self.refusal(path))
    }

    /// Refuses an address or a camera that is not allowed.
    fn check_input(&self, input: &Input) -> Result<()> {
        match input {
            // The file itself is checked when it is opened.
            Input::Uri(uri) if uri.path().is_some() => Ok(()),
            Input::Uri(uri) => self.check_address(uri, &input.to_string()),
            Input::Camera(_) if !self.allowed.contains(&Allowed::Camera) => {
                Err(self.not_allowed(&input.to_string(), "camera"))
            }
            // Files and pictures are checked when they are opened, texts of pipelines before this.
            Input::File(_) | Input::Pictures(_) | Input::Camera(_) | Input::Launch(_) | Input::Stdin => {
                Ok(())
            }
        }
    }

    /// Refuses an address that is not allowed, which is shown so.
    fn check_address(&self, uri: &Uri, shown: &str) -> Result<()> {
        let is_allowed = |allowed: &Allowed| match allowed {
            Allowed::Camera => false,
            Allowed::Address { scheme, host } => {
                *scheme == uri.scheme() && (host.is_none() || *host == uri.plain_host())
            }
        };
        if self.allowed.iter().any(is_allowed) { Ok(()) } else { Err(self.not_allowed(shown, &uri.scheme())) }
    }

    fn not_allowed(&self, shown: &str, what: &str) -> Error {
        let allowed = self.allowed.iter().map(|it| format!("--allow {it}"));
        let options = std::iter::once(format!("--root {}", self.named())).chain(allowed);
        let options = options.collect::<Vec<_>>().join(", ");
        let remedy = match what {
            "file" => "files of another host are never served".into(),
            _ => format!("start it with --allow {what} as well"),
        };
        let said = format!("this worker does not serve it ({options}): {remedy}");
        Error::file(SERVE, Path::new(shown))(std::io::Error::new(ErrorKind::PermissionDenied, said))
    }

    fn contains(&self, real: &Path) -> bool {
        self.folders.iter().any(|root| real.starts_with(root))
    }

    /// True if a path that cannot be opened would lie below the folders: its nearest existing folder does, or
    /// the target of its link.
    fn would_contain(&self, path: &Path) -> bool {
        let mut path = path.to_owned();
        // As many links as the system follows.
        let mut links = 40;
        loop {
            if let Ok(real) = path.canonicalize() {
                return self.contains(&real);
            }
            let next = match path.read_link() {
                Ok(target) if links > 0 => {
                    links -= 1;
                    folder_of(&path).join(target)
                }
                Ok(_) => return false,
                Err(_) if path.parent().is_none() => return false,
                Err(_) => folder_of(&path).to_owned(),
            };
            if next == path {
                return false;
            }
            path = next;
        }
    }

    fn refusal(&self, path: &Path) -> Error {
        let said = format!("it lies outside of what this worker serves (--root {})", self.named());
        Error::file(SERVE, path)(std::io::Error::new(ErrorKind::PermissionDenied, said))
    }

    fn named(&self) -> String {
        let roots: Vec<_> = self.folders.iter().map(|root| root.display().to_string()).collect();
        roots.join(", ")
    }
}

#[cfg(test)]
#[cfg(unix)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn a_job_reads_and_writes_below_the_roots_only_and_links_lead_nowhere() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        for name in ["in", "out", "in/sub"] {
            std::fs::create_dir(path(name)).unwrap();
        }
        for name in ["in/a.mp4", "out/a.mp4", "out/a.png"] {
            std::fs::write(path(name), "").unwrap();
        }
        symlink(path("out"), path("in/link")).unwrap();
        symlink(path("out/kept"), path("in/kept.csv")).unwrap();
        std::fs::write(path("out/kept"), "").unwrap();
        let roots = Roots::new(&[path("in")], &[]).unwrap();
        let check = |input: &str, results: &str, template: Option<&str>| {
            let mut request = Request::new(path(input)).unwrap();
            request.results = vec![path(results).to_str().unwrap().into()];
            request.template = template.map(|name| path(name).to_str().unwrap().into()).into_iter().collect();
            roots.check(&request, true).map_err(|error| error.to_string())
        };
        check("in/a.mp4", "in/sub/a.csv", None).unwrap();
        check("in/sub/../a.mp4", "in/a.csv", None).unwrap();
        for (input, results, template) in [
            ("out/a.mp4", "in/a.csv", None),
            ("in/../out/a.mp4", "in/a.csv", None),
            ("in/link/a.mp4", "in/a.csv", None),
            ("in/a.mp4", "out/a.csv", None),
            ("in/a.mp4", "in/link/a.csv", None),
            ("in/a.mp4", "in/kept.csv", None),
            ("in/a.mp4", "in/a.csv", Some("out/a.png")),
        ] {
            let said = check(input, results, template).unwrap_err();
            assert!(said.contains("outside of what this worker serves"), "{input} {results}: {said}");
        }
        let mut piped = Request::new(path("in/a.mp4")).unwrap();
        piped.sink = vec!["filesink location=/etc/x".into()];
        assert!(roots.check(&piped, false).is_err());
        assert!(Roots::default().check(&piped, true).is_ok());
        let mut away = Request::new(path("in/a.mp4")).unwrap();
        away.results = vec!["a.csv".into()];
        roots.check(&away, false).unwrap();
        for elsewhere in ["../a.csv", "/etc/a.csv", "b/a.csv", ".."] {
            away.results = vec![elsewhere.into()];
            assert!(roots.check(&away, false).is_err(), "{elsewhere}");
        }
        assert!(check("in/none.mp4", "in/a.csv", None).unwrap_err().contains("No such file"));
    }

    #[test]
    fn a_file_outside_of_the_roots_gets_one_answer_whether_it_exists_or_not() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        for name in ["in", "out", "out/sub"] {
            std::fs::create_dir(path(name)).unwrap();
        }
        for name in ["out/a.mp4", "out/a.jsonl"] {
            std::fs::write(path(name), "").unwrap();
        }
        symlink(path("out"), path("in/link")).unwrap();
        symlink(path("out/a.mp4"), path("in/there.mp4")).unwrap();
        symlink("../out/none.mp4", path("in/dangling.mp4")).unwrap();
        symlink("loop.mp4", path("in/loop.mp4")).unwrap();
        let roots = Roots::new(&[path("in")], &[]).unwrap();
        let said = |input: &str, results: &str| {
            let mut request = Request::new(path(input)).unwrap();
            request.results = vec![path(results).to_str().unwrap().into()];
            let said = roots.check(&request, true).unwrap_err().to_string();
            let named = [input, results].map(|name| path(name).to_str().unwrap().to_owned());
            named.iter().fold(said, |said, name| said.replace(&**name, "IT"))
        };
        std::fs::write(path("in/a.mp4"), "").unwrap();
        let outside = said("out/a.mp4", "in/a.jsonl");
        assert!(outside.contains("outside of what this worker serves"), "{outside}");
        for input in [
            "out/none.mp4",
            "out/sub/none/none.mp4",
            "none/none.mp4",
            "in/link/a.mp4",
            "in/link/none.mp4",
            "in/../out/none.mp4",
            "in/there.mp4",
            "in/dangling.mp4",
            "in/loop.mp4",
        ] {
            assert_eq!(said(input, "in/a.jsonl"), outside, "{input}");
        }
        let [there, none] = ["out/sub/a.jsonl", "out/none/a.jsonl"].map(|results| said("in/a.mp4", results));
        assert!(there.contains("outside") && none.contains("outside"), "{there} {none}");
        assert!(said("in/none.mp4", "in/a.jsonl").contains("No such file"));
    }

    #[test]
    fn what_was_checked_is_what_is_read_and_written_whatever_has_the_names_later() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        for name in ["in", "in/out", "out"] {
            std::fs::create_dir(path(name)).unwrap();
        }
        let files = ["a.mp4", "t.png", "login", "run.jsonl", "hook"];
        for name in files {
            std::fs::write(path("in").join(name), format!("http://host/{name}")).unwrap();
            std::fs::write(path("out").join(name), "http://host/secret").unwrap();
        }
        let mut request = Request::new(path("in/a.mp4")).unwrap();
        request.template = vec![format!("t={}", path("in/t.png").display())];
        request.credentials = Some(path("in/login"));
        request.control = Some(path("in/run.jsonl"));
        request.events = vec![format!("@{}", path("in/hook").display()).into()];
        request.output = vec![path("in/out/a.mkv")];
        request.results = vec![path("in/out/a.jsonl").to_str().unwrap().into()];
        let roots = Roots::new(&[path("in")], &["http".parse().unwrap()]).unwrap();
        let mut asked = roots.open(request.clone(), true).unwrap();
        for name in files {
            std::fs::remove_file(path("in").join(name)).unwrap();
            symlink(path("out").join(name), path("in").join(name)).unwrap();
        }
        std::fs::rename(path("in/out"), path("in/moved")).unwrap();
        symlink(path("out"), path("in/out")).unwrap();
        let read = |path: &Path| std::fs::read_to_string(path).unwrap();
        let bound = &asked.bound;
        assert_eq!(read(&lockon_run::setup::name_and_path(&bound.template[0]).1), "http://host/t.png");
        assert_eq!(lockon_run::setup::name_and_path(&bound.template[0]).0, "t");
        assert_eq!(read(bound.credentials.as_ref().unwrap()), "http://host/login");
        assert_eq!(read(bound.control.as_ref().unwrap()), "http://host/run.jsonl");
        assert_eq!(bound.events[0].address().unwrap(), "http://host/hook");
        assert_eq!(bound.events[0].shown(), request.events[0].shown());
        for output in bound.output_files() {
            std::fs::write(&output, "new").unwrap();
            assert_eq!(asked.submitted(&output).parent().unwrap(), path("in/out"));
        }
        assert!(path("in/moved/a.mkv").exists() && !path("out/a.mkv").exists());
        let message = format!("cannot read {}: no", bound.credentials.as_ref().unwrap().display());
        assert!(asked.in_submitted_names(&message).contains("in/login: no"));
        let video = asked.take_video().unwrap();
        assert_eq!(std::io::read_to_string(&*video.file.unwrap()).unwrap(), "http://host/a.mp4");
        assert!(roots.open(request, true).is_err(), "and the same job is refused now");
    }

    #[test]
    fn pictures_are_opened_one_by_one_and_none_outside_of_the_roots() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        for name in ["in", "out"] {
            std::fs::create_dir(path(name)).unwrap();
        }
        for name in ["in/p1.png", "in/p2.png", "out/p3.png", "out/secret.jpg"] {
            std::fs::write(path(name), name).unwrap();
        }
        let roots = Roots::new(&[path("in")], &[]).unwrap();
        let open = |typed: &str| {
            let mut request = Request::new(path(typed)).unwrap();
            request.results = vec!["a.csv".into()];
            roots.open(request, false)
        };
        for typed in ["in", "in/p%d.png", "in/*.png"] {
            let pictures = open(typed).unwrap().take_video().unwrap().pictures.unwrap();
            let names: Vec<_> = pictures.iter().map(|(name, _)| name.clone()).collect();
            assert_eq!(names, [path("in/p1.png"), path("in/p2.png")], "{typed}");
        }
        for typed in ["out", "out/*.png"] {
            let said = open(typed).err().unwrap().to_string();
            assert!(said.contains("outside") && !said.contains("secret"), "{typed}: {said}");
        }
        symlink(path("out/p3.png"), path("in/p3.png")).unwrap();
        assert!(open("in").err().unwrap().to_string().contains("outside"));
    }

    #[test]
    fn more_pictures_than_a_quarter_of_the_open_files_are_wrong_usage() {
        let check = |pictures, files| check_count(Path::new("in/*.png"), pictures, files);
        check(63, Some(253)).unwrap();
        check(1_000_000, None).unwrap();
        let error = check(64, Some(253)).unwrap_err();
        let said = error.to_string();
        assert!(error.is_usage() && said.contains("64 pictures") && said.contains("at most 63"), "{said}");
    }

    #[test]
    fn pipeline_text_that_a_file_has_is_not_read_before_it_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        std::fs::create_dir(path("in")).unwrap();
        std::fs::write(path("secret"), "p4ssw0rd ! x").unwrap();
        std::fs::write(path("in/a.mp4"), "").unwrap();
        let roots = Roots::new(&[path("in")], &[]).unwrap();
        let said = |change: &dyn Fn(&mut Request)| {
            let mut request = Request::new(path("in/a.mp4")).unwrap();
            request.results = vec![path("in/a.csv").to_str().unwrap().into()];
            let terms = super::super::job::Terms { collect: false, overwrite: false, tries: 1 };
            let mut job = Job::new("a", &request, &[], terms).unwrap();
            change(&mut request);
            job.request = Job::raw(&request).unwrap();
            roots.open_job(&job).err().unwrap().to_string()
        };
        let text = format!("@{}", path("secret").display());
        for said in [
            said(&|request| (request.input, request.source) = (None, Some(text.clone()))),
            said(&|request| request.sink.push(text.clone())),
        ] {
            assert!(said.contains("outside of what this worker serves") && !said.contains("p4ss"), "{said}");
        }
    }

    #[test]
    fn pipes_and_folders_below_the_roots_are_no_files() {
        let folder = tempfile::tempdir().unwrap();
        let pipe = folder.path().join("pipe");
        assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
        let roots = Roots::new(&[folder.path().into()], &[]).unwrap();
        let mut request = Request::new(&pipe).unwrap();
        request.results = vec!["a.csv".into()];
        let said = roots.check(&request, false).unwrap_err().to_string();
        assert!(said.contains("it is no file"), "{said}");
    }

    #[test]
    fn events_are_told_to_addresses_that_are_allowed_and_their_files_lie_below_the_roots() {
        let folder = tempfile::tempdir().unwrap();
        let inside = folder.path().join("in");
        std::fs::create_dir(&inside).unwrap();
        std::fs::write(inside.join("a.mp4"), "").unwrap();
        std::fs::write(inside.join("hook"), "https://host/secret\n").unwrap();
        std::fs::write(folder.path().join("hook"), "https://host/secret\n").unwrap();
        let at = |path: std::path::PathBuf| format!("@{}", path.display());
        let (below, outside) = (at(inside.join("hook")), at(folder.path().join("hook")));
        let check = |allowed: &[&str], to: &str| {
            let allowed: Vec<_> = allowed.iter().map(|text| text.parse().unwrap()).collect();
            let roots = Roots::new(std::slice::from_ref(&inside), &allowed).unwrap();
            let mut request = Request::new(inside.join("a.mp4")).unwrap();
            request.results = vec!["a.csv".into()];
            request.events = vec![to.into()];
            roots.check(&request, false).map_err(|error| error.to_string())
        };
        for (allowed, to) in [
            (&["mqtt"][..], "mqtt://broker/yard"),
            (&["mqtt://broker"], "mqtt://broker:1883/yard"),
            (&["https"], &below),
            (&["https://host"], &below),
        ] {
            check(allowed, to).unwrap();
        }
        for (allowed, to, expected) in [
            (&[][..], "mqtt://broker/yard", "--allow mqtt"),
            (&["mqtt://other"], "mqtt://broker/yard", "--allow mqtt"),
            (&["mqtt"], "http://127.0.0.1/secret", "--allow http"),
            (&[], &below, "--allow https"),
            (&["https"], &outside, "outside of what this worker serves"),
        ] {
            let said = check(allowed, to).unwrap_err();
            assert!(said.contains(expected) && !said.contains("secret"), "{to}: {said}");
        }
    }

    #[test]
    fn addresses_and_cameras_are_served_if_that_was_said_and_files_by_address_below_the_roots() {
        let folder = tempfile::tempdir().unwrap();
        let inside = folder.path().canonicalize().unwrap();
        std::fs::write(inside.join("a b.mp4"), "").unwrap();
        let inside = inside.to_str().unwrap();
        let check = |allowed: &[&str], input: &str| {
            let allowed: Vec<_> = allowed.iter().map(|text| text.parse().unwrap()).collect();
            let roots = Roots::new(&[inside.into()], &allowed).unwrap();
            let mut request = Request::new(input).unwrap();
            request.results = vec!["a.csv".into()];
            roots.check(&request, false).map_err(|error| error.to_string())
        };
        check(&[], &format!("file://{inside}/a%20b.mp4")).unwrap();
        check(&[], &format!("FILE://localhost{inside}/a%20b.mp4")).unwrap();
        for outside in ["file:///etc/passwd", "file:///%65tc/passwd", "File://localhost/etc/passwd"] {
            let said = check(&["rtsp"], outside).unwrap_err();
            assert!(said.contains("outside of what this worker serves"), "{outside}: {said}");
        }
        let escaped = format!("file://{inside}/%2e%2e/%2e%2e/etc/passwd");
        assert!(check(&[], &escaped).is_err());
        for (input, allowed) in [
            ("rtsp://cam/1", "--allow rtsp"),
            ("http://10.0.0.1/x", "--allow http"),
            ("fd://3", "--allow fd"),
            ("v4l2:///dev/video0", "--allow v4l2"),
            ("file://elsewhere/a.mp4", "files of another host are never served"),
            ("camera", "--allow camera"),
            ("camera:/dev/video1", "--allow camera"),
        ] {
            let said = check(&["srt", "rtsp://other"], input).unwrap_err();
            assert!(said.contains(allowed), "{input}: {said}");
            assert!(said.contains(&format!("--root {inside}, --allow srt, --allow rtsp://other")), "{said}");
        }
        check(&["rtsp"], "rtsp://cam/1").unwrap();
        check(&["http", "RTSP://Cam"], "rtsp://cam:8554/1").unwrap();
        check(&["rtsp://[::1]"], "rtsp://[::1]:554/1").unwrap();
        check(&["camera"], "camera:/dev/video1").unwrap();
        for input in ["rtsp://cam.evil/1", "rtsp://cam@evil/1", "rtsp://evil@cam@evil/1", "http://cam/1"] {
            assert!(check(&["rtsp://cam"], input).is_err(), "{input}");
        }
        for text in ["", "file", "FILE://x", "rtsp:", "rtsp://a/b", "rtsp://a:1", "rtsp://a@b", "r t"] {
            assert!(text.parse::<Allowed>().is_err(), "{text}");
        }
    }
}
