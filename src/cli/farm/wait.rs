//! Waiting for jobs, and bringing their results back.

use std::collections::{HashMap, HashSet};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use indicatif::ProgressBar;

use lockon::Error;
use lockon::control::Control;
use lockon::farm::{Farm, Job, Record, Status};
use lockon::files;
use lockon::text;

use super::super::Outcome;
use super::super::log;
use super::super::progress::bar_of_all;
use super::super::signals::Signals;

/// Between two questions how far all are; longer where the answer takes long.
const TICK: Duration = Duration::from_millis(50);

/// Between two lines in a log.
const LINE_INTERVAL: Duration = Duration::from_secs(10);

/// Jobs that failed and are told once more at the end.
const MOST_FAILED: usize = 20;

const STOPPING: &str =
    "jobs go on without this: `lockon jobs` tells how far, and the same command waits again";

/// A folder that results come back into.
pub(super) struct Collected {
    folder: PathBuf,
    have: HashSet<String>,
}

impl Collected {
    pub(super) fn new(folder: &Path) -> Self {
        Self { folder: folder.into(), have: HashSet::new() }
    }

    /// Fetches the results of a job that is done.
    fn fetch(&mut self, farm: &Farm, record: &Record) -> Result<()> {
        if !self.have.insert(record.job.id.clone()) {
            return Ok(());
        }
        for (name, bytes) in farm.results(record)? {
            // Names are this program's, but came back from elsewhere.
            let Some(name) = Path::new(&name).file_name() else { continue };
            if bytes.is_empty() {
                bail!("{}: its results are no longer in the farm: submit it anew", record.job.name);
            }
            let path = self.folder.join(name);
            files::replace(&path, &bytes).map_err(Error::file("write", &path))?;
        }
        Ok(())
    }
}

/// Waits until nothing more will come of these jobs.
pub(super) fn wait(
    farm: &Farm,
    jobs: &[Job],
    mut collected: Option<Collected>,
    shows: bool,
) -> Result<Outcome> {
    let signals = Signals::watch_saying(STOPPING)?;
    let mut open: HashMap<&str, &str> = jobs.iter().map(|job| (&*job.id, &*job.name)).collect();
    let mut told = Told::new(open.len(), shows && !log::is_quiet());
    let mut is_away = false;
    while !open.is_empty() {
        let asked = Instant::now();
        let records = match farm.records() {
            Ok(records) => records,
            Err(error) => {
                if !std::mem::replace(&mut is_away, true) {
                    log::say(&format!("{error}: waiting for it"));
                }
                if !pause(TICK * 2, signals.control()) {
                    return Ok(signals.outcome());
                }
                continue;
            }
        };
        is_away = false;
        let mut running = 0;
        for record in records {
            if !open.contains_key(&*record.job.id) {
                continue;
            }
            running += usize::from(record.status == Status::Running);
            if !record.status.is_final() {
                continue;
            }
            if let (Some(collected), Status::Done) = (&mut collected, record.status) {
                collected.fetch(farm, &record)?;
            }
            open.remove(&*record.job.id);
            told.tell(&record);
        }
        told.tick(running);
        if !open.is_empty() && !pause(TICK.max(asked.elapsed() * 4), signals.control()) {
            return Ok(signals.outcome());
        }
    }
    told.close()?;
    Ok(Outcome::Done)
}

/// Waits a while; false if the program is to end.
fn pause(time: Duration, control: &Control) -> bool {
    let until = Instant::now() + time;
    while Instant::now() < until && !control.is_stopped() {
        std::thread::sleep(TICK / 5);
    }
    !control.is_stopped()
}

/// What is said of all jobs.
struct Told {
    jobs: usize,
    ended: usize,
    frames: u64,
    failed: Vec<(String, String)>,
    started: Instant,
    last_line: Instant,
    shows: bool,
    bar: Option<ProgressBar>,
}

impl Told {
    fn new(jobs: usize, shows: bool) -> Self {
        let bar = if shows { bar_of_all(jobs, "jobs") } else { None };
        let now = Instant::now();
        let (ended, frames, failed) = Default::default();
        Self { jobs, ended, frames, failed, started: now, last_line: now, shows, bar }
    }

    fn tell(&mut self, record: &Record) {
        self.ended += 1;
        self.frames += record.frames.unwrap_or(0);
        let name = text::in_one_line(&record.job.name).into_owned();
        match record.status {
            Status::Done if log::is_verbose() => {
                let worker = record.worker.as_deref().unwrap_or("nobody");
                log::say(&format!("{name}: done by {worker}, {} frames", record.frames.unwrap_or(0)));
            }
            Status::Failed => {
                let reason = text::for_people(record.error().unwrap_or("nobody said why"));
                log::error(&format!("{name}: {reason}"));
                self.failed.push((name, reason));
            }
            Status::Cancelled => self.failed.push((name, "it was cancelled".into())),
            _ => {}
        }
    }

    fn tick(&mut self, running: usize) {
        if let Some(bar) = &self.bar {
            bar.set_position(self.ended as u64);
            bar.set_message(format!("{running} run"));
        } else if self.shows && self.last_line.elapsed() >= LINE_INTERVAL {
            log::say(&format!("{} of {} jobs ended, {running} run", self.ended, self.jobs));
            self.last_line = Instant::now();
        }
    }

    fn close(self) -> Result<()> {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
        let seconds = self.started.elapsed().as_secs_f64();
        let failed = match self.failed.len() {
            0 => String::new(),
            count => format!(", {count} failed"),
        };
        log::say(&format!("{} jobs, {} frames in {seconds:.1} s{failed}", self.jobs, self.frames));
        if self.failed.is_empty() {
            return Ok(());
        }
        let mut said = format!("{} of {} jobs failed:", self.failed.len(), self.jobs);
        for (name, reason) in self.failed.iter().take(MOST_FAILED) {
            let _ = write!(said, "\n  {name}: {reason}");
        }
        if let Some(more) = self.failed.len().checked_sub(MOST_FAILED).filter(|more| *more > 0) {
            let _ = write!(said, "\n  and {more} more");
        }
        bail!(said)
    }
}
