//! Messages about all of several videos or jobs: their progress, the failed ones, the last line.

use std::fmt::Write as _;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use indicatif::ProgressBar;

use lockon::text;

use super::log;
use super::progress::bar_of_all;
use super::words::counted;

/// Time between two lines in a log.
const LINE_INTERVAL: Duration = Duration::from_secs(10);

/// Maximum number of failed ones that the last lines list again.
const MOST_FAILED: usize = 20;

/// Counts those that have ended, and reports about all.
pub(super) struct Told {
    all: usize,
    /// The word for one of them, and for several.
    words: [&'static str; 2],
    ended: usize,
    /// Names and reasons.
    failed: Vec<(String, String)>,
    started: Instant,
    last_line: Instant,
    shows: bool,
    bar: Option<ProgressBar>,
}

impl Told {
    /// For so many of them. With `shows` their progress is reported.
    pub(super) fn new(all: usize, words: [&'static str; 2], shows: bool) -> Self {
        let bar = if shows { bar_of_all(all, words[1]) } else { None };
        let now = Instant::now();
        let (ended, failed) = (0, Vec::new());
        Self { all, words, ended, failed, started: now, last_line: now, shows, bar }
    }

    /// `1 video`, `2 videos`
    pub(super) fn all(&self) -> String {
        counted(self.all as u64, self.words[0], self.words[1])
    }

    pub(super) fn failed(&self) -> usize {
        self.failed.len()
    }

    pub(super) fn seconds(&self) -> f64 {
        self.started.elapsed().as_secs_f64().max(1e-9)
    }

    /// One has ended.
    pub(super) fn end(&mut self) {
        self.ended += 1;
    }

    /// One has ended with an error, which is reported.
    pub(super) fn fail(&mut self, name: &str, reason: String) {
        self.end();
        let name = text::in_one_line(name).into_owned();
        log::error(&format!("{name}: {reason}"));
        self.failed.push((name, reason));
    }

    /// Shows the progress, with `detail`: beside a bar, or from time to time in a line.
    pub(super) fn tick(&mut self, detail: impl FnOnce(&Self) -> String) {
        if let Some(bar) = &self.bar {
            bar.set_position(self.ended as u64);
            bar.set_message(detail(self));
        } else if self.shows && self.last_line.elapsed() >= LINE_INTERVAL {
            log::say(&format!("{} of {} ended, {}", self.ended, self.all(), detail(self)));
            self.last_line = Instant::now();
        }
    }

    /// Prints the last line, with `detail` behind the number of all.
    pub(super) fn close(&self, detail: &str) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
        log::say(&format!("{}, {detail}", self.all()));
    }

    /// # Errors
    /// The list of those that failed, if any did.
    pub(super) fn outcome(&self) -> Result<()> {
        let mut said = match (self.failed.len(), self.all) {
            (0, _) => return Ok(()),
            (_, 1) => format!("the {} failed:", self.words[0]),
            (failed, all) => format!("{failed} of {all} {} failed:", self.words[1]),
        };
        for (name, reason) in self.failed.iter().take(MOST_FAILED) {
            let _ = write!(said, "\n  {name}: {reason}");
        }
        if let Some(more) = self.failed.len().checked_sub(MOST_FAILED).filter(|more| *more > 0) {
            let _ = write!(said, "\n  and {more} more");
        }
        bail!(said)
    }
}
