//! `lockon jobs` and `lockon workers`: the state of a farm.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::time::{Duration, Instant};

use anyhow::Result;
use serde_json::{Value, json};

use lockon::Error;
use lockon::farm::{self, Farm, Progress, Queue, Record, Records, Status, Worker};
use lockon::text;

use super::super::signals::Signals;
use super::super::words::counted;
use super::super::{Outcome, log, print};
use super::args::{ChangeArgs, JobsArgs, JobsCommand, WorkersArgs};
use super::table::table;
use super::{of_jobs, said_of};

/// Maximum shown jobs of each status.
const MOST: usize = 20;

/// Maximum characters of a job's name and of an error.
const LONGEST: usize = 100;

/// Time between two tables with `--watch`.
const WATCH: Duration = Duration::from_secs(2);

/// The order in which jobs are shown: those that may need the user's action come last, nearest to the prompt.
const ORDER: [Status; 5] = [Status::Done, Status::Cancelled, Status::Queued, Status::Running, Status::Failed];

pub(in crate::cli) fn jobs(args: &JobsArgs) -> Result<Outcome> {
    match &args.command {
        Some(JobsCommand::Cancel(args)) => {
            return change(What::Cancel, args, |status| !status.is_final(), Farm::cancel, "cancelled");
        }
        Some(JobsCommand::Retry(args)) => {
            // Those that wait are looked at: a full server may have kept them out of the queue.
            let can = |status| matches!(status, Status::Failed | Status::Cancelled | Status::Queued);
            return change(What::Retry, args, can, Farm::retry, "queued again");
        }
        Some(JobsCommand::Purge(args)) => {
            return change(What::Purge, args, Status::is_final, Farm::purge, "removed");
        }
        None => {}
    }
    let farm = Farm::connect(&args.farm.access()?)?;
    if !args.watch {
        print(&if args.json { lines(&farm)? } else { overview(&farm, args.all)? })?;
        return Ok(Outcome::Done);
    }
    let signals = Signals::watch_saying("")?;
    while !signals.control().is_stopped() {
        let text = overview(&farm, args.all).unwrap_or_else(|error| format!("{error:#}\n"));
        // Clear the screen and begin at its upper left corner.
        print(&format!("\x1b[H\x1b[2J{text}"))?;
        let until = Instant::now() + WATCH;
        while Instant::now() < until && !signals.control().is_stopped() {
            std::thread::sleep(WATCH / 40);
        }
    }
    Ok(signals.outcome())
}

pub(in crate::cli) fn workers(args: &WorkersArgs) -> Result<Outcome> {
    let farm = Farm::connect(&args.farm.access()?)?;
    let (mut workers, unreadable) = farm.workers()?;
    for bad in unreadable {
        log::say(&format!("the report of worker {} cannot be read ({}): it is skipped", bad.id, bad.reason));
    }
    workers.sort_by(|a, b| (&a.name, &a.instance).cmp(&(&b.name, &b.instance)));
    let text = if args.json {
        workers.iter().map(|worker| json!(worker).to_string() + "\n").collect()
    } else {
        let rows: Vec<_> = workers.iter().map(row_of_worker).collect();
        table(&["WORKER", "VERSION", "FILES", "CAMERAS", "RUNNING", "DONE", "FAILED", "STATE"], &rows)
    };
    print(&text)?;
    Ok(Outcome::Done)
}

fn row_of_worker(worker: &Worker) -> Vec<String> {
    let state = match (&worker.resting, worker.draining) {
        (_, true) => "draining".into(),
        (Some(why), _) => format!("resting: {}", clean(why)),
        _ => "ready".into(),
    };
    let numbers = [worker.jobs, worker.cameras, worker.running.len()].map(|number| number.to_string());
    let counts = [worker.done, worker.failed].map(|number| number.to_string());
    let names = [clean(&worker.name), clean(&worker.version)];
    names.into_iter().chain(numbers).chain(counts).chain([state]).collect()
}

/// Text for a table: one line, not too long, without control characters.
fn clean(said: &str) -> String {
    let line = text::in_one_line(said);
    match line.char_indices().nth(LONGEST) {
        Some((end, _)) => format!("{}...", &line[..end]),
        None => line.into_owned(),
    }
}

/// The progress of jobs, by their numbers.
fn progress(workers: &[Worker]) -> HashMap<&str, &Progress> {
    workers.iter().flat_map(|worker| &worker.running).map(|run| (&*run.id, run)).collect()
}

/// A JSON object for each job.
fn lines(farm: &Farm) -> Result<String> {
    let (Records { readable: records, unreadable }, (workers, _)) = (farm.records()?, farm.workers()?);
    for bad in &unreadable {
        log::say(&said_of(bad));
    }
    let progress = progress(&workers);
    let mut text = String::new();
    for record in &records {
        let mut value = serde_json::to_value(record)?;
        if let (Some(run), Value::Object(map)) = (progress.get(&*record.job.id), &mut value) {
            map.insert("progress".into(), json!(run));
        }
        writeln!(text, "{value}")?;
    }
    Ok(text)
}

fn overview(farm: &Farm, all: bool) -> Result<String> {
    let Records { readable: records, unreadable } = farm.records()?;
    let ((workers, _), queues) = (farm.workers()?, farm.queues()?);
    let counts = farm::counts(&records);
    let told = Status::ALL.map(|status| format!("{} {}", counts[status as usize], status.name()));
    let mut text = format!("{}; {}\n", told.join(", "), counted(workers.len() as u64, "worker", "workers"));
    for queue in &queues {
        text += &unserved(queue, &workers);
    }
    for bad in &unreadable {
        writeln!(text, "{}", said_of(bad))?;
    }
    if records.is_empty() {
        return Ok(text);
    }
    let progress = progress(&workers);
    let mut rows = Vec::new();
    for status in ORDER {
        let of = || records.iter().filter(move |record| record.status == status);
        let count = counts[status as usize] as usize;
        let most = if all { count } else { MOST };
        // Shows the newest ones.
        rows.extend(
            of().skip(count.saturating_sub(most)).map(|record| row(record, progress.get(&*record.job.id))),
        );
    }
    text.push('\n');
    text += &table(&["JOB", "STATUS", "WORKER", "NAME", "HOW FAR"], &rows);
    if rows.len() < records.len() {
        writeln!(text, "and {} more: --all shows them", records.len() - rows.len())?;
    }
    Ok(text)
}

/// A line about jobs that no worker can do.
fn unserved(queue: &Queue, workers: &[Worker]) -> String {
    let takes = |worker: &&Worker| {
        let places = if queue.is_live { worker.cameras } else { worker.jobs };
        worker.version == queue.version && !worker.draining && places > 0
    };
    let open = queue.waiting + queue.held;
    if open == 0 || workers.iter().any(|worker| takes(&worker)) {
        return String::new();
    }
    let what = if queue.is_live { "cameras" } else { "files" };
    let waits = counted(open, "job waits", "jobs wait");
    format!("{waits}, and no worker of lockon {} that takes {what} is there\n", queue.version)
}

fn row(record: &Record, progress: Option<&&Progress>) -> Vec<String> {
    let how_far = match record.status {
        Status::Running => progress.map_or_else(|| "its worker says nothing".into(), |run| far(run)),
        Status::Done => record.frames.map_or_else(String::new, |frames| counted(frames, "frame", "frames")),
        Status::Failed | Status::Queued => record.error().map_or_else(String::new, clean),
        Status::Cancelled => String::new(),
    };
    let tries = record.tries.len();
    let status = match record.status {
        Status::Queued if tries > 0 => format!("queued, tried {}", counted(tries as u64, "time", "times")),
        status => status.name().into(),
    };
    let worker = record.worker.as_deref().map(clean).unwrap_or_default();
    vec![clean(&record.job.id), status, worker, clean(&record.job.name), how_far]
}

fn far(run: &Progress) -> String {
    let share = run.share.map_or_else(String::new, |share| format!("{:.0} %, ", share * 100.0));
    format!("{share}{} frames, {:.1} fps", run.frames, run.fps)
}

/// A change of jobs.
#[derive(Clone, Copy, PartialEq, Eq)]
enum What {
    Cancel,
    Retry,
    Purge,
}

/// Changes jobs that were named, or all whose status allows this change.
fn change(
    what: What,
    args: &ChangeArgs,
    can: impl Fn(Status) -> bool,
    change: impl Fn(&Farm, &[String]) -> lockon::Result<usize>,
    done: &str,
) -> Result<Outcome> {
    // Every number begins with the empty text, which an unset variable gives.
    if args.jobs.iter().any(|typed| typed.trim().is_empty()) {
        return Err(
            Error::Usage("the number of a job is empty: `lockon jobs` shows the numbers".into()).into()
        );
    }
    let farm = Farm::connect(&args.farm.access()?)?;
    let records = farm.records()?;
    let ids: Vec<String> = if args.all {
        let records = records.readable.iter();
        records.filter(|record| can(record.status)).map(|record| record.job.id.clone()).collect()
    } else {
        args.jobs.iter().map(|typed| find(&records, typed, what)).collect::<lockon::Result<_>>()?
    };
    let changed = change(&farm, &ids)?;
    log::say(&format!("{} {done}", of_jobs(changed)));
    if changed < ids.len() {
        let left = counted((ids.len() - changed) as u64, "job is left as it is", "jobs are left as they are");
        log::say(&format!("{left}: see `lockon jobs`"));
    }
    Ok(Outcome::Done)
}

/// Returns the number of the job that begins with the typed text. A job whose record cannot be read can only
/// be purged.
fn find(records: &Records, typed: &str, what: What) -> lockon::Result<String> {
    let readable = records.readable.iter().map(|record| (&record.job.id, None));
    let all = readable.chain(records.unreadable.iter().map(|bad| (&bad.id, Some(bad))));
    let mut found = all.filter(|(id, _)| id.starts_with(typed));
    match (found.next(), found.next()) {
        (Some((_, Some(bad))), None) if what != What::Purge => Err(Error::Usage(said_of(bad))),
        (Some((id, _)), None) => Ok(id.clone()),
        (None, _) => Err(Error::Usage(format!("there is no job {typed}"))),
        (Some(_), Some(_)) => Err(Error::Usage(format!("several jobs begin with {typed}: give more of it"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_of_a_worker_reaches_the_screen_without_what_a_terminal_obeys() {
        let said = "x\x1b]0;title\x07\n\u{9b}31m";
        let worker = Worker {
            name: said.into(),
            version: said.into(),
            resting: Some(said.into()),
            ..Worker::default()
        };
        for cell in row_of_worker(&worker) {
            assert!(!cell.contains(char::is_control), "{cell:?}");
        }
    }
}
