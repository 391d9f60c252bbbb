//! Jobs and their records: the data that the server stores, as JSON.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use sha2::{Digest, Sha256};

use super::split::{self, Segment};
use lockon_core::error::{Error, Result};
use lockon_core::files;
use lockon_core::output::is_dated;
use lockon_core::text;
use lockon_gst::sink::Numbered;
use lockon_gst::source::Input;
use lockon_run::fleet;
use lockon_run::request::Request;
use lockon_run::run::Count;
use lockon_run::setup::NamedTemplate;

/// Maximum characters of an error in a record.
pub(super) const LONGEST_ERROR: usize = 2000;

/// The default number of tries of a job.
pub const TRIES: u32 = 3;

/// One video, and the options of its run.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Job {
    /// The hash of its options, templates and output names.
    pub id: String,
    /// Its name in messages and tables.
    pub name: String,
    /// The version of lockon that submitted it. Workers of other versions ignore it: only one version gives
    /// the same bytes everywhere.
    pub version: String,
    /// [`Request::digest`], which the worker computes too: it differs if a template was changed.
    pub digest: String,
    /// The request, in the form of a job file.
    pub request: Box<RawValue>,
    /// True for a camera or a stream, which never ends.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub live: bool,
    /// True if results come back through the farm: then the submitter chooses their names.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub collect: bool,
    /// True if files that are there already may be overwritten.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub overwrite: bool,
    /// Maximum tries.
    pub tries: u32,
    /// Its segment, if it is a part of a video.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub segment: Option<Segment>,
    /// The number of segments whose results it joins; 0 if it is one run.
    #[serde(default, skip_serializing_if = "is_none")]
    pub segments: usize,
}

/// Terms of a job besides its request.
#[derive(Debug, Clone, Copy)]
pub struct Terms {
    /// Results come back through the farm.
    pub collect: bool,
    /// Files that are there already may be overwritten.
    pub overwrite: bool,
    /// Maximum tries, at least one.
    pub tries: u32,
}

impl Job {
    /// The job of a checked request with these templates. Names of files become absolute: workers run
    /// elsewhere.
    ///
    /// # Errors
    /// `Usage` if no worker can do it: a window, standard output, passwords that the server would store; or
    /// if it has no output.
    pub fn new(
        name: impl Into<String>,
        request: &Request,
        templates: &[NamedTemplate],
        terms: Terms,
    ) -> Result<Self> {
        let usage = |text: &str| Err(Error::Usage(text.into()));
        check(request)?;
        if request.without_secrets().1 {
            return usage(
                "passwords and paths of webhooks would be kept by the farm's server: give --credentials FILE or --events @FILE, which workers \
                 can read, or start workers with LOCKON_CREDENTIALS",
            );
        }
        let live = fleet::is_live(request);
        if terms.collect && live {
            return usage("--collect is for files: a camera's results are never complete");
        }
        let request = absolute(request, terms.collect)?;
        let digest = request.digest(templates);
        let mut hash = Sha256::new();
        hash.update(format!("{digest}\0{}\0", terms.collect));
        for path in request.output_files() {
            hash.update(format!("{}\0", path.display()));
        }
        Ok(Self {
            id: number(&hash.finalize()),
            name: name.into(),
            version: env!("CARGO_PKG_VERSION").into(),
            digest,
            request: Self::raw(&request)?,
            live,
            collect: terms.collect,
            overwrite: terms.overwrite,
            tries: terms.tries.max(1),
            segment: None,
            segments: 0,
        })
    }

    /// The request, checked for a worker that does not know its submitter.
    ///
    /// # Errors
    /// `Usage` if another version wrote it, with other options, or if no worker can do it; as
    /// [`Self::check_numbers`].
    pub(super) fn request_of_stranger(&self) -> Result<Request> {
        self.check_numbers()?;
        let request = self.request()?;
        check(&request)?;
        Ok(request)
    }

    /// Refuses numbers that lockon did not make: they become parts of names of files and subjects.
    ///
    /// # Errors
    /// `Usage`.
    pub(super) fn check_numbers(&self) -> Result<()> {
        let segment = self.segment.as_ref().map(|segment| &segment.whole);
        if let Some(id) = std::iter::once(&self.id).chain(segment).find(|id| !is_number(id)) {
            return Err(Error::Usage(format!("{id:?} is no number of a job")));
        }
        if self.segments > split::MOST {
            return Err(Error::Usage(format!(
                "{} segments are more than the {} that a video is cut into",
                self.segments,
                split::MOST
            )));
        }
        Ok(())
    }

    /// A request as the farm stores it.
    pub(super) fn raw(request: &Request) -> Result<Box<RawValue>> {
        RawValue::from_string(request.to_json()?).map_err(|error| Error::Usage(error.to_string()))
    }

    /// The numbers of the segments that it joins.
    pub fn parts(&self) -> impl Iterator<Item = String> {
        (0..self.segments).map(|index| split::id_of(&self.id, index))
    }

    /// The request.
    ///
    /// # Errors
    /// `Usage` if another version wrote it, with other options.
    pub fn request(&self) -> Result<Request> {
        Request::from_json(self.request.get())
    }

    /// The queue that it waits in.
    pub fn kind(&self) -> JobKind {
        if self.live { JobKind::Live } else { JobKind::File }
    }
}

/// Refuses a request that no worker can do.
fn check(request: &Request) -> Result<()> {
    let usage = |text: &str| Err(Error::Usage(text.into()));
    if request.display || request.pick || request.serve.is_some() {
        return usage(
            "--display, --pick and --serve are for whoever sits at the machine: a worker has no screen, and \
             nobody steers it",
        );
    }
    if request.metrics.is_some() {
        return usage("--metrics is for a run: `lockon worker --metrics` covers all its jobs");
    }
    let names = request.output_files();
    if request.append
        || request.rotate.is_some()
        || names.iter().any(|name| is_dated(&name.to_string_lossy()))
    {
        return usage(
            "--append, --rotate, {date} and {time} are for a run: the farm has to know the names of all files before",
        );
    }
    if request.output.iter().any(|path| Numbered::of(path).is_some()) {
        return usage("numbered pictures are for a run: the farm has to know the names of all files before");
    }
    if request.cut.is_some() {
        return usage("--cut is for a run: the farm has to know the names of all files before");
    }
    if request.output_files().is_empty() && request.sink.is_empty() {
        return usage("a worker shows nothing: say where results go, by --results, -o or --report");
    }
    if matches!(request.parsed_input()?, Input::Stdin)
        || request.output.iter().any(|to| files::is_stdout(to))
        || request.results.iter().any(|to| to == "-")
        || request.events.iter().any(|to| to.as_str() == "-")
    {
        return usage("standard input and output are not a worker's: name files");
    }
    Ok(())
}

/// Shortens a text to so many characters by leaving out its middle: the cause comes last.
pub(super) fn shortened(text: &str, most: usize) -> String {
    let count = text.chars().count();
    if count <= most {
        return text.into();
    }
    let half = most / 2;
    let start: String = text.chars().take(half).collect();
    let end: String = text.chars().skip(count - half).collect();
    format!("{start}...{end}")
}

/// The number of a job, or of a segment, as this program makes them.
pub(super) fn number(hash: &[u8]) -> String {
    text::hexadecimal(&hash[..8])
}

fn is_number(id: &str) -> bool {
    id.len() == 16 && id.bytes().all(|digit| matches!(digit, b'0'..=b'9' | b'a'..=b'f'))
}

/// Jobs that end and jobs that never end have separate queues: a camera must not wait for files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum JobKind {
    /// It ends.
    File,
    /// A camera or a stream.
    Live,
}

impl JobKind {
    /// Its name in subjects.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::File => "file",
            Self::Live => "live",
        }
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks so")]
fn is_none(count: &usize) -> bool {
    *count == 0
}

/// The request with absolute names of files. The submitter names collected results.
fn absolute(request: &Request, collect: bool) -> Result<Request> {
    let whole = |path: &PathBuf| std::path::absolute(path).map_err(Error::file("find", path));
    let text = |text: &String| {
        let path = whole(&PathBuf::from(text))?;
        path.into_os_string()
            .into_string()
            .map_err(|_| Error::Usage(format!("{text}: a name that is not UTF-8")))
    };
    let mut absolute = request.clone();
    match request.parsed_input()? {
        Input::File(path) => absolute.input = Request::new(whole(&path)?)?.input,
        Input::Pictures(pictures) => {
            absolute.input = Request::new(whole(&PathBuf::from(pictures.to_string()))?)?.input;
        }
        _ => {}
    }
    for template in &mut absolute.template {
        let (name, path) = lockon_run::setup::name_and_path(template);
        let path = text(&path.to_string_lossy().into_owned())?;
        *template = format!("{name}={path}");
    }
    for path in [&mut absolute.control, &mut absolute.credentials].into_iter().flatten() {
        *path = whole(path)?;
    }
    for to in &mut absolute.events {
        if let Some(file) = to.file() {
            *to = format!("@{}", text(&file.to_owned())?).into();
        }
    }
    if !collect {
        absolute.output = request.output.iter().map(whole).collect::<Result<_>>()?;
        absolute.results = request.results.iter().map(text).collect::<Result<_>>()?;
        absolute.report = request.report.as_ref().map(text).transpose()?;
    } else if let Some(path) = request
        .output_files()
        .iter()
        .find(|path| path.components().count() != 1 || path.file_name().is_none())
    {
        return Err(Error::Usage(format!(
            "{}: what --collect brings back has a name without folders",
            path.display()
        )));
    }
    if !request.output.is_empty() && collect {
        return Err(Error::Usage(
            "-o is too large to come back through the farm: --collect is for --results and --report".into(),
        ));
    }
    Ok(absolute)
}

/// The status of a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Status {
    /// It waits for a worker.
    Queued,
    /// A worker has it.
    Running,
    /// Its results are there.
    Done,
    /// It failed.
    Failed,
    /// It was cancelled.
    Cancelled,
}

impl Status {
    /// All of them, in the order of a job's life.
    pub const ALL: [Self; 5] = [Self::Queued, Self::Running, Self::Done, Self::Failed, Self::Cancelled];

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Queued => "queued",
            Self::Running => "running",
            Self::Done => "done",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
        }
    }

    /// True if the job has ended.
    pub fn is_final(self) -> bool {
        matches!(self, Self::Done | Self::Failed | Self::Cancelled)
    }
}

/// A failed try.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Try {
    /// The worker's name.
    pub worker: String,
    /// The error.
    pub error: String,
    /// True if the worker was gone before it ended.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub lost: bool,
}

/// A job and its current state.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Record {
    /// The job.
    pub job: Job,
    /// Its status.
    pub status: Status,
    /// The worker that has it or had it last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub worker: Option<String>,
    /// The unique instance of that worker.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instance: Option<String>,
    /// True once a worker may have written outputs of it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub started: bool,
    /// Failed tries.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tries: Vec<Try>,
    /// The number of frames, once it is done, if the worker counted them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub frames: Option<u64>,
    /// The time that they took, in seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seconds: Option<f64>,
    /// The files that were written.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub files: Vec<String>,
    /// Their contents, if they come back through the farm.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kept: Option<Stored>,
}

/// Results files that are stored in the farm.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stored {
    /// The try that made them: results of two tries differ in times, and are never mixed.
    pub by: u64,
    /// Each file, in the order of [`Record::files`].
    pub files: Vec<Content>,
}

/// The length and the hash of a file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Content {
    /// Its length.
    pub bytes: u64,
    /// Its SHA-256, in hexadecimal digits.
    pub sha256: String,
}

impl Content {
    /// The content of a file with these bytes.
    pub fn of(bytes: &[u8]) -> Self {
        Self { bytes: bytes.len() as u64, sha256: text::hexadecimal(&Sha256::digest(bytes)) }
    }
}

impl Record {
    /// A job that no worker has yet.
    pub fn new(job: Job) -> Self {
        Self {
            job,
            status: Status::Queued,
            worker: None,
            instance: None,
            started: false,
            tries: Vec::new(),
            frames: None,
            seconds: None,
            files: Vec::new(),
            kept: None,
        }
    }

    /// The record of the job, queued again on new terms, as if it had not been tried. The last worker of a
    /// camera stays in it, for the gap in its results.
    pub(super) fn again_as(&self, job: Job) -> Self {
        let new = Self::new(job);
        if !new.job.live {
            return new;
        }
        let Self { worker, instance, started, frames, .. } = self.clone();
        Self { worker, instance, started, frames, ..new }
    }

    /// The record with errors of at most so many characters.
    fn with_errors_of(&self, most: usize) -> Self {
        let mut short = self.clone();
        for tried in &mut short.tries {
            tried.error = shortened(&tried.error, most);
        }
        short
    }

    /// The record as JSON: errors are shortened until it has at most so many bytes, as the server requires.
    /// It is larger if the job itself is.
    pub(super) fn to_json(&self, most: usize) -> Vec<u8> {
        let json =
            |record: &Self| serde_json::to_vec(record).expect("what the farm keeps has names that are text");
        let whole = json(self);
        if whole.len() <= most || self.tries.is_empty() {
            return whole;
        }
        let shorter = [LONGEST_ERROR, 500, 120, 30].map(|errors| self.with_errors_of(errors));
        let fits = shorter.iter().map(json).find(|bytes| bytes.len() <= most);
        fits.unwrap_or_else(|| json(&self.with_errors_of(0)))
    }

    /// True if that worker has the job now.
    pub(super) fn is_held_by(&self, instance: &str) -> bool {
        self.status == Status::Running && self.instance.as_deref() == Some(instance)
    }

    /// True if its workers may have died because of it.
    pub fn is_suspect(&self) -> bool {
        self.tries.iter().any(|tried| tried.lost)
    }

    /// The last error.
    pub fn error(&self) -> Option<&str> {
        self.tries.last().map(|last| last.error.as_str())
    }
}

/// The report of a worker, every second.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Worker {
    /// Its name.
    pub name: String,
    /// Its unique instance.
    pub instance: String,
    /// lockon's version.
    pub version: String,
    /// Files at a time.
    pub jobs: usize,
    /// Cameras at a time.
    pub cameras: usize,
    /// Jobs that it has done, and those that failed here.
    pub done: u64,
    /// Tries that failed here.
    pub failed: u64,
    /// True if it accepts no more jobs.
    pub draining: bool,
    /// True once it has ended.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub gone: bool,
    /// The reason for a rest, while it accepts no jobs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resting: Option<String>,
    /// Its running jobs.
    pub running: Vec<Progress>,
}

/// The progress of a job on its worker.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Progress {
    /// The job.
    pub id: String,
    /// Frames so far.
    pub frames: u64,
    /// Frames a second, since it began.
    pub fps: f64,
    /// Share of the video that is done, if its length is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub share: Option<f64>,
}

impl Progress {
    pub(super) fn of(id: &str, count: &Count) -> Self {
        Self { id: id.to_owned(), frames: count.frames(), fps: count.fps(), share: count.share() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TERMS: Terms = Terms { collect: false, overwrite: false, tries: 3 };

    fn request() -> Request {
        let mut request = Request::new("a.mp4").unwrap();
        request.track.push("1,2,30,40".parse().unwrap());
        request.results = vec!["a.jsonl".into()];
        request
    }

    #[test]
    fn the_same_asked_twice_is_one_job_and_other_outputs_or_options_are_others() {
        let id = |request: &Request, terms: Terms| Job::new("a", request, &[], terms).unwrap().id;
        let same = Request { threads: Some(3), ..request() };
        assert_eq!(id(&request(), TERMS), id(&same, Terms { tries: 5, overwrite: true, ..TERMS }));
        let mut elsewhere = request();
        elsewhere.results = vec!["b.jsonl".into()];
        let other = Request { max_frames: Some(5), ..request() };
        let ids = [
            id(&request(), TERMS),
            id(&elsewhere, TERMS),
            id(&other, TERMS),
            id(&request(), Terms { collect: true, ..TERMS }),
        ];
        let distinct: std::collections::HashSet<_> = ids.iter().collect();
        assert_eq!(distinct.len(), ids.len());
    }

    #[test]
    fn an_http_address_that_is_connected_to_again_is_a_camera_and_otherwise_a_file() {
        let is_live = |reconnect: bool, lossless: bool| {
            let camera =
                Request { reconnect, lossless, ..Request::new("http://127.0.0.1:1/stream").unwrap() };
            let request = Request { track: request().track, results: request().results, ..camera };
            Job::new("a", &request, &[], TERMS).unwrap().live
        };
        assert_eq!([is_live(false, false), is_live(true, false), is_live(true, true)], [false, true, false]);
    }

    #[test]
    fn names_of_files_are_those_that_another_machine_finds() {
        let job = Job::new("a", &request(), &[], TERMS).unwrap();
        let asked = job.request().unwrap();
        let here = std::env::current_dir().unwrap();
        assert_eq!(asked.parsed_input().unwrap().file().unwrap(), here.join("a.mp4"));
        assert_eq!(asked.output_files(), [here.join("a.jsonl")]);
        let collected = Job::new("a", &request(), &[], Terms { collect: true, ..TERMS }).unwrap();
        assert_eq!(collected.request().unwrap().results, ["a.jsonl"]);
    }

    #[test]
    fn what_no_worker_can_give_is_refused_with_the_remedy() {
        let said = |change: fn(&mut Request), terms: Terms| {
            let mut request = request();
            change(&mut request);
            Job::new("a", &request, &[], terms).unwrap_err().to_string()
        };
        assert!(said(|request| request.display = true, TERMS).contains("no screen"));
        assert!(said(|request| request.serve = Some("1".parse().unwrap()), TERMS).contains("nobody steers"));
        assert!(said(|request| request.results.clear(), TERMS).contains("say where results go"));
        assert!(said(|request| request.results.push("-".into()), TERMS).contains("name files"));
        assert!(said(|request| request.output.push("-".into()), TERMS).contains("name files"));
        let numbered = |request: &mut Request| request.output.push("masks/%06d.png".into());
        assert!(said(numbered, TERMS).contains("numbered pictures are for a run"));
        assert!(
            said(|request| request.metrics = Some("1".parse().unwrap()), TERMS).contains("worker --metrics")
        );
        let secret = |request: &mut Request| {
            request.input = Request::new("rtsp://me:pw@cam/1").unwrap().input;
        };
        assert!(said(secret, TERMS).contains("--credentials FILE"));
        let collect = Terms { collect: true, ..TERMS };
        assert!(said(|request| request.output.push("a.mkv".into()), collect).contains("too large"));
        assert!(
            said(|request| request.results = vec!["x/a.jsonl".into()], collect).contains("without folders")
        );
    }

    #[test]
    fn what_a_stranger_writes_into_a_job_is_in_no_name_of_a_file_or_subject() {
        let job = Job::new("a", &request(), &[], TERMS).unwrap();
        assert_eq!(job.request_of_stranger().unwrap(), job.request().unwrap());
        let said = |change: fn(&mut Job)| {
            let mut job = job.clone();
            change(&mut job);
            job.request_of_stranger().unwrap_err().to_string()
        };
        for id in ["", "../../etc/passwd", "0123456789abcde>", "0123456789ABCDEF", "0123456789abcdef0"] {
            let mut job = job.clone();
            job.id = id.into();
            assert!(job.request_of_stranger().unwrap_err().to_string().contains("no number"), "{id}");
        }
        let of = |whole: &str| Segment {
            whole: whole.into(),
            index: 0,
            of: 1,
            from_ns: None,
            results: Vec::new(),
        };
        let mut part = job.clone();
        part.segment = Some(of(&job.id));
        part.request_of_stranger().unwrap();
        part.segment = Some(of("*"));
        assert!(part.request_of_stranger().is_err());
        assert!(said(|job| job.segments = usize::MAX).contains("more than the 10000"));
        let asks = |change: fn(&mut Request)| {
            let mut request = request();
            change(&mut request);
            Job { request: Job::raw(&request).unwrap(), ..job.clone() }.request_of_stranger().unwrap_err()
        };
        assert!(asks(|request| request.results.push("-".into())).to_string().contains("name files"));
        assert!(asks(|request| request.serve = Some("1".parse().unwrap())).is_usage());
    }

    #[test]
    fn a_record_whose_errors_are_larger_than_the_server_takes_is_stored_with_shorter_ones() {
        let mut record = Record::new(Job::new("a", &request(), &[], TERMS).unwrap());
        let bare = record.to_json(usize::MAX).len();
        for _ in 0..3 {
            let error = format!("begin{}the cause", "\u{fc}\u{1b}\"".repeat(3000));
            record.tries.push(Try { worker: "w".into(), error, lost: false });
        }
        for most in [usize::MAX, 100_000, 20_000, bare + 2000, bare + 300] {
            let bytes = record.to_json(most);
            assert!(bytes.len() <= most, "{most}: {}", bytes.len());
            let back: Record = serde_json::from_slice(&bytes).unwrap();
            assert_eq!(back.tries.len(), 3);
            let error = back.error().unwrap();
            assert!(
                most < bare + 2000 || error.starts_with("begin") && error.ends_with("the cause"),
                "{error}"
            );
        }
        assert_eq!(shortened("abcdef", 4), "ab...ef");
        assert_eq!(shortened("abcd", 4), "abcd");
    }

    #[test]
    fn a_job_that_waits_again_has_the_newest_terms_and_a_camera_its_last_worker() {
        let job = |overwrite, live| {
            let terms = Terms { overwrite, ..TERMS };
            Job { live, ..Job::new("a", &request(), &[], terms).unwrap() }
        };
        for live in [false, true] {
            let mut record = Record::new(job(true, live));
            (record.started, record.status, record.frames) = (true, Status::Cancelled, Some(7));
            record.worker = Some("w".into());
            record.tries.push(Try { worker: "w".into(), error: "no".into(), lost: false });
            let again = record.again_as(job(false, live));
            assert!(!again.job.overwrite && again.status == Status::Queued && again.tries.is_empty());
            assert_eq!((again.started, again.worker.is_some(), again.frames.is_some()), (live, live, live));
        }
    }

    #[test]
    fn a_record_comes_back_from_its_json() {
        let mut record = Record::new(Job::new("a", &request(), &[], TERMS).unwrap());
        record.tries.push(Try { worker: "w".into(), error: "no".into(), lost: false });
        (record.status, record.seconds) = (Status::Failed, Some(1.5));
        let text = serde_json::to_string(&record).unwrap();
        let back: Record = serde_json::from_str(&text).unwrap();
        assert_eq!(serde_json::to_string(&back).unwrap(), text);
        assert_eq!(back.error(), Some("no"));
    }
}
