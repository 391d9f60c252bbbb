//! Waiting for jobs, and bringing their results back.

use std::collections::{HashMap, HashSet};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::Result;

use lockon::Error;
use lockon::control::Control;
use lockon::farm::{Farm, Job, Record, Status, Worker};
use lockon::files;
use lockon::fleet::{self, Completion};
use lockon::request::Request;
use lockon::text;

use super::super::Outcome;
use super::super::log;
use super::super::signals::Signals;
use super::super::told::Told;
use super::super::words::counted;
use super::{line, said_of};

/// Time between two queries of the jobs' progress; longer if the answer takes long.
const TICK: Duration = Duration::from_millis(50);

/// Time between two checks for workers while no job runs. A worker that has just started has reported by
/// then.
const LOOK: Duration = Duration::from_secs(2);

const FORGOTTEN: &str = "the farm does not know it any more: somebody purged it, or the server lost its disk; submit \
                         it anew";

const STOPPING: &str =
    "the jobs continue: `lockon jobs` shows their progress, and the same command waits again";

/// Waits until no more results can come from these jobs, and copies the results of those that are done into a
/// folder, if one is named.
pub(super) fn wait(farm: &Farm, jobs: &[Job], collect: Option<&Collect>, shows: bool) -> Result<Outcome> {
    let signals = Signals::watch_saying(STOPPING)?;
    let mut open: HashMap<&str, &str> = jobs.iter().map(|job| (&*job.id, &*job.name)).collect();
    let mut told = Jobs::new(open.len(), shows && !log::is_quiet());
    let mut is_away = false;
    while !open.is_empty() {
        let asked = Instant::now();
        let running = match look(farm, collect, &mut open, &mut told) {
            Ok(running) => running,
            Err(error @ Error::Unreachable { .. }) => {
                if !std::mem::replace(&mut is_away, true) {
                    log::say(&format!("{error}: waiting for it"));
                }
                if !pause(TICK * 2, signals.control()) {
                    return Ok(signals.outcome());
                }
                continue;
            }
            Err(error) => return Err(error.into()),
        };
        if std::mem::replace(&mut is_away, false) {
            log::say("the farm's server is there again");
        }
        told.told.tick(|_| format!("{running} run"));
        if running == 0 && !open.is_empty() {
            told.look_for_workers(farm, jobs.iter().filter(|job| open.contains_key(&*job.id)));
        }
        if !open.is_empty() && !pause(TICK.max(asked.elapsed() * 4), signals.control()) {
            return Ok(signals.outcome());
        }
    }
    told.close()?;
    Ok(Outcome::Done)
}

/// Reports jobs that have ended and removes them from `open`. Returns the number of running jobs.
fn look(
    farm: &Farm,
    collect: Option<&Collect>,
    open: &mut HashMap<&str, &str>,
    told: &mut Jobs,
) -> lockon::Result<usize> {
    let mut running = 0;
    let mut unknown: HashSet<String> = open.keys().map(|&id| id.to_owned()).collect();
    let records = farm.records()?;
    for bad in &records.unreadable {
        unknown.remove(&*bad.id);
        if let Some(name) = open.remove(&*bad.id) {
            told.fail(name, &said_of(bad));
        }
    }
    for record in records.readable {
        unknown.remove(&*record.job.id);
        if !open.contains_key(&*record.job.id) {
            continue;
        }
        running += usize::from(record.status == Status::Running);
        if !record.status.is_final() {
            continue;
        }
        let fault = match (collect, record.status) {
            (Some(collect), Status::Done) => collect.fetch(farm, &record)?,
            _ => None,
        };
        open.remove(&*record.job.id);
        told.tell(&record, fault);
    }
    for id in unknown {
        // A list may miss changes that happen while it is made.
        if farm.record(&id)?.is_none()
            && let Some(name) = open.remove(&*id)
        {
            told.fail(name, FORGOTTEN);
        }
    }
    Ok(running)
}

/// The folder that results come back to.
pub(super) struct Collect {
    pub(super) folder: PathBuf,
    /// True if any file there may be replaced.
    pub(super) overwrites: bool,
    /// Files that the user at the terminal allowed to replace.
    pub(super) confirmed: Vec<PathBuf>,
}

impl Collect {
    /// Fetches the results of a job that is done. Returns the reason if they are not available, or if another
    /// program has written a file here meanwhile.
    fn fetch(&self, farm: &Farm, record: &Record) -> lockon::Result<Option<String>> {
        let Some(files) = farm.results(record)? else {
            let id = &record.job.id;
            let fault = "its results are not in the farm any more";
            return Ok(Some(format!("{fault}: run `lockon jobs purge {id}`, then submit it again")));
        };
        let request = record.job.request()?;
        let asked = request.output_files();
        // The names come from other machines: only requested ones are written.
        let files = files.into_iter().filter_map(|(name, bytes)| {
            let name = Path::new(&name).file_name()?;
            asked.iter().any(|path| path.as_os_str() == name).then(|| (self.folder.join(name), bytes))
        });
        let files: Vec<_> = files.collect();
        let is_absent = |path: &&PathBuf| !files.iter().any(|(found, _)| *found == self.folder.join(path));
        if let Some(path) = asked.iter().find(is_absent) {
            return Ok(Some(format!("its worker has not sent {}", text::path(path))));
        }
        let is_there = |path: &PathBuf| path.symlink_metadata().is_ok();
        let ours = if files.iter().any(|(path, _)| is_there(path)) {
            ours(&collected(&request, &self.folder))
        } else {
            Vec::new()
        };
        let may_replace = |path: &PathBuf, bytes: &[u8]| {
            let is_same = || std::fs::read(path).is_ok_and(|found| found == bytes);
            self.overwrites || self.confirmed.contains(path) || ours.contains(path) || is_same()
        };
        // Fetches all of them first: results of one job are from one run.
        if let Some((path, _)) =
            files.iter().find(|(path, bytes)| is_there(path) && !may_replace(path, bytes))
        {
            return Ok(Some(taken(path)));
        }
        for (path, bytes) in files {
            let written = match files::create(&path, &bytes) {
                Err(error) if error.kind() != ErrorKind::AlreadyExists => Err(error),
                Err(_) if !may_replace(&path, &bytes) => return Ok(Some(taken(&path))),
                Err(_) => files::replace(&path, &bytes),
                Ok(()) => Ok(()),
            };
            written.map_err(Error::file("write", &path))?;
        }
        Ok(None)
    }
}

/// The request with its outputs in a folder here.
pub(super) fn collected(request: &Request, folder: &Path) -> Request {
    let name = |name: &String| folder.join(name).to_string_lossy().into_owned();
    let results = request.results.iter().map(name).collect();
    Request { results, report: request.report.as_ref().map(name), ..request.clone() }
}

/// The existing outputs of a request that are its own.
fn ours(request: &Request) -> Vec<PathBuf> {
    match fleet::completion(request) {
        Ok(Completion::Done) => request.output_files(),
        Ok(Completion::Part(files)) => files,
        Ok(Completion::None | Completion::Other) | Err(_) => Vec::new(),
    }
}

fn taken(path: &Path) -> String {
    format!(
        "{} exists already and is no result of this job: submit it with -y to overwrite it",
        text::path(path)
    )
}

/// Waits a while; false if the program should end.
fn pause(time: Duration, control: &Control) -> bool {
    let until = Instant::now() + time;
    while Instant::now() < until && !control.is_stopped() {
        std::thread::sleep(TICK / 5);
    }
    !control.is_stopped()
}

/// Reports about all jobs.
struct Jobs {
    told: Told,
    frames: u64,
    /// The time of the last check for workers.
    looked: Option<Instant>,
    /// True after the report that no worker is there.
    is_alone: bool,
}

impl Jobs {
    fn new(jobs: usize, shows: bool) -> Self {
        Self { told: Told::new(jobs, ["job", "jobs"], shows), frames: 0, looked: None, is_alone: false }
    }

    /// Reports a job that has ended, and an error of its results.
    fn tell(&mut self, record: &Record, fault: Option<String>) {
        // A stranger's record may have any number.
        self.frames = self.frames.saturating_add(record.frames.unwrap_or(0));
        let name = &record.job.name;
        match (fault, record.status) {
            (Some(fault), _) => self.fail(name, &fault),
            (None, Status::Failed) => self.fail(name, record.error().unwrap_or("nobody said why")),
            (None, Status::Cancelled) => self.fail(name, "it was cancelled"),
            (None, _) => {
                self.told.end();
                if log::is_verbose() {
                    let [name, worker] = [name, record.worker.as_deref().unwrap_or("nobody")].map(line);
                    log::say(&format!("{name}: done by {worker}, {} frames", record.frames.unwrap_or(0)));
                }
            }
        }
    }

    fn fail(&mut self, name: &str, reason: &str) {
        self.told.fail(name, line(reason));
    }

    /// Reports once if no worker is there for the jobs.
    fn look_for_workers<'a>(&mut self, farm: &Farm, mut jobs: impl Iterator<Item = &'a Job>) {
        if self.looked.is_some_and(|looked| looked.elapsed() < LOOK) {
            return;
        }
        let takes = |worker: &Worker, job: &Job| {
            let places = if job.live { worker.cameras } else { worker.jobs };
            worker.version == job.version && !worker.draining && places > 0
        };
        // If the server is away, the next query of the jobs reports it.
        let Ok((workers, _)) = farm.workers() else { return };
        let lonely = jobs.find(|job| !workers.iter().any(|worker| takes(worker, job)));
        self.looked = Some(Instant::now());
        match lonely {
            Some(job) if !self.is_alone => log::say(&format!(
                "no worker of lockon {} that takes {} is there: waiting for one (`lockon worker`)",
                job.version,
                if job.live { "cameras" } else { "files" }
            )),
            None if self.is_alone => log::say("a worker is there now"),
            _ => {}
        }
        self.is_alone = lonely.is_some();
    }

    fn close(&self) -> Result<()> {
        let failed = match self.told.failed() {
            0 => String::new(),
            count => format!(", {count} failed"),
        };
        let frames = counted(self.frames, "frame", "frames");
        self.told.close(&format!("{frames} in {:.1} s{failed}", self.told.seconds()));
        self.told.outcome()
    }
}
