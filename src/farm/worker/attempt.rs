//! One try of a job: from the record that says that it is this worker's to the one that says what has become
//! of it.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::super::count::{Count, Counting};
use super::super::job::{Job, Record, Status};
use super::super::join::{self, Joined, Part};
use super::super::lease::{self, Lease};
use super::super::place::{Committed, Place};
use super::super::store::Numbered;
use super::claim::Claimed;
use super::{Drain, LAST_WORDS, News, PATIENCE, Shared};
use crate::error::{Error, Result};
use crate::fleet::{Ended, Order};
use crate::job;
use crate::output::Format;
use crate::request::Request;
use crate::results::Summary;

/// Between the end of a camera and the next try.
const CAMERA_PAUSE: Duration = Duration::from_secs(2);

/// Between a failure and the next try.
const PAUSE: Duration = Duration::from_millis(250);

pub(super) struct Attempt<'a> {
    pub(super) shared: &'a Shared,
    pub(super) lease: Lease,
    pub(super) length: Duration,
    pub(super) count: Arc<Count>,
    pub(super) claimed: Box<Claimed>,
}

/// How a try ended.
enum End {
    Done(Box<Summary>, Committed),
    Failed(Error),
    /// The worker drains.
    GivenBack,
    /// Somebody cancelled the job, or another worker has it.
    NotOurs,
}

impl Attempt<'_> {
    pub(super) async fn make(mut self) {
        let name = self.claimed.record.job.name.clone();
        (self.shared.tell)(News::Begun { name: name.clone() });
        let end = self.run().await;
        let Claimed { record, request, .. } = &mut *self.claimed;
        match end {
            End::Done(summary, committed) if !record.job.live => {
                record.status = Status::Done;
                record.frames = (summary.frames > 0).then_some(summary.frames);
                record.seconds = Some(summary.seconds);
                record.files = committed.files;
                let min_score = request.min_score;
                self.keep(committed.contents).await;
                self.settle().await;
                self.clear_up().await;
                self.lease.close().await;
                self.shared.has_done(&name, *summary, min_score);
            }
            // The end of a camera is a failure like others: it is watched again.
            End::Done(..) => self.fail(&Error::NoVideo { input: name, reason: "it ended".into() }).await,
            End::Failed(error) => self.fail(&error).await,
            End::GivenBack => {
                record.status = Status::Queued;
                (self.shared.tell)(News::GivenBack { name });
                self.settle().await;
                self.lease.give_back(Duration::ZERO).await;
            }
            End::NotOurs => (self.shared.tell)(News::Taken { name }),
        }
    }

    /// Says that a try came to nothing, and lets the job go.
    async fn fail(&mut self, error: &Error) {
        let is_live = self.claimed.record.job.live;
        self.claimed.record.note_failure(&self.shared.options.name, error, error.is_usage());
        self.settle().await;
        let is_given_up = self.claimed.record.status == Status::Failed;
        self.shared.has_failed(&self.claimed.record, is_given_up);
        if is_given_up {
            self.clear_up().await;
            return self.lease.close().await;
        }
        if is_of_storage(error) {
            self.shared.rest_after(error);
        }
        self.lease.give_back(if is_live { CAMERA_PAUSE } else { PAUSE }).await;
    }

    /// Does the job on the fleet, and holds its lease meanwhile.
    async fn run(&mut self) -> End {
        let Claimed { record, request, .. } = &*self.claimed;
        let (job, request, instance) = (record.job.clone(), request.clone(), self.shared.instance.clone());
        // A disk may take its time, and others are not to wait.
        let placed = tokio::task::spawn_blocking(move || Place::new(&job, &request, &instance));
        let place = match placed.await.unwrap_or_else(|error| Err(panicked(&error))) {
            Ok(place) => place,
            Err(error) => return End::Failed(error),
        };
        if self.claimed.record.job.segments > 0 {
            return self.join(place).await;
        }
        let (ticket, mut ended) = self.shared.runs.begin(self.order(&place));
        let mut renewal = tokio::time::interval(lease::renewal(self.length));
        let mut is_stopped = None;
        let must_give_back = self.shared.options.drain == Drain::GiveBack || self.claimed.record.job.live;
        let ended = loop {
            tokio::select! {
                ended = &mut ended => break ended,
                _ = renewal.tick() => {
                    self.lease.renew().await;
                    if is_stopped.is_none() && !self.is_ours().await {
                        is_stopped = Some(End::NotOurs);
                        self.shared.runs.stop(ticket);
                    }
                }
                () = self.shared.drained(), if must_give_back && is_stopped.is_none() => {
                    is_stopped = Some(End::GivenBack);
                    self.shared.runs.stop(ticket);
                }
            }
        };
        let Ok(Ended { summary, outcome, .. }) = ended else {
            place.discard();
            return End::Failed(Error::Panicked { what: "the fleet".into(), message: "it is gone".into() });
        };
        // It may have ended by itself before it heard of that.
        let is_whole = outcome.is_ok() && !summary.interrupted;
        if let (Some(stopped), false) = (is_stopped, is_whole) {
            place.discard();
            return stopped;
        }
        let written = summary.files.clone();
        let committed = match outcome {
            Ok(()) if is_whole => tokio::task::spawn_blocking(move || place.commit(&written))
                .await
                .unwrap_or_else(|error| Err(panicked(&error))),
            Ok(()) | Err(Error::Stopped) => {
                place.discard();
                return End::GivenBack;
            }
            Err(error) => {
                place.discard();
                Err(error)
            }
        };
        match committed {
            Ok(committed) => End::Done(Box::new(summary), committed),
            Err(error) => End::Failed(error),
        }
    }

    fn order(&self, place: &Place) -> Order {
        let Claimed { record, request, .. } = &*self.claimed;
        let asked = asked(&record.job, request);
        let outputs: Vec<_> = match &record.job.segment {
            Some(segment) => segment.results.clone(),
            None => place.outputs().collect(),
        };
        let line = ["lockon".to_owned(), "run".to_owned()].into_iter();
        let line: Vec<_> = line.chain(words(&asked)).collect();
        let metrics = self.shared.page.as_ref().map(|page| (page.runs(), record.job.name.clone()));
        let (count, moved) = (self.count.clone(), self.claimed.moved.clone());
        let digest = record.job.digest.clone();
        let order = Order::new(record.job.name.clone(), place.request.clone());
        let order = if record.job.segment.is_some() { order.seeking() } else { order };
        order.when_opened(move |run| {
            run.note_command(line);
            if run.note_asked(&asked, outputs) != digest {
                return Err(changed(&asked));
            }
            if let Some((reason, away)) = moved {
                run.note_gap(away, reason);
            }
            count.set_length(run.length_ns());
            run.add_sink(Box::new(Counting(count)));
            if let Some((server, video)) = metrics {
                let sink = run.metrics(&server, &video);
                run.add_sink(Box::new(sink));
            }
            Ok(())
        })
    }

    /// Joins the results of a video's segments.
    async fn join(&self, place: Place) -> End {
        let Claimed { record, request, .. } = &*self.claimed;
        let mut parts = Vec::with_capacity(record.job.segments);
        for id in record.job.parts() {
            self.lease.renew().await;
            match self.part(&id).await {
                Ok(part) => parts.push(part),
                Err(error) => {
                    place.discard();
                    return End::Failed(error);
                }
            }
        }
        let (name, results) = (record.job.name.clone(), request.results.clone());
        let joined = tokio::task::spawn_blocking(move || {
            let joined =
                join::join(&name, &parts).and_then(|joined| write(&place.request.results, &results, joined));
            match joined {
                Ok(summary) => {
                    let written = place.request.output_files();
                    Ok((summary, place.commit(&written)?))
                }
                Err(error) => {
                    place.discard();
                    Err(error)
                }
            }
        });
        match joined.await.unwrap_or_else(|error| Err(panicked(&error))) {
            Ok((summary, committed)) => End::Done(Box::new(summary), committed),
            Err(error) => End::Failed(error),
        }
    }

    /// The results of a segment.
    async fn part(&self, id: &str) -> Result<Part> {
        let store = &self.shared.store;
        let found = store.record(id).await?.filter(|found| found.record.status == Status::Done);
        let Some(Numbered { record, .. }) = found else {
            return Err(Error::Usage(format!("segment {id} is not there any more: submit the video anew")));
        };
        let files = store.results(id, record.files.len()).await?;
        let (mut lines, mut rows) = (Vec::new(), Vec::new());
        for (name, bytes) in record.files.iter().zip(files) {
            match Format::of(name)? {
                Format::JsonLines => lines = bytes,
                _ => rows.push(bytes),
            }
        }
        Ok(Part { from_ns: record.job.segment.and_then(|segment| segment.from_ns), lines, rows })
    }

    /// Does what is left to do of a job that has ended, for as long as it takes: see [`Shared::clear_up`].
    async fn clear_up(&self) {
        let mut patience = Patience::default();
        while let Err(error) = self.shared.clear_up(&self.claimed.record.job).await {
            if !self.wait(error, &mut patience).await {
                return;
            }
        }
    }

    /// True unless the record says that the job is somebody else's, or nobody's. A camera's record tells how
    /// far it is.
    async fn is_ours(&mut self) -> bool {
        let Claimed { record, number, .. } = &mut *self.claimed;
        if record.job.live {
            record.frames = Some(self.count.frames());
            return match self.shared.store.replace(record, *number).await {
                Ok(Some(newest)) => {
                    *number = newest;
                    true
                }
                Ok(None) => self.is_still_ours().await,
                Err(_) => true,
            };
        }
        self.is_still_ours().await
    }

    /// The same, by what the server has. One that does not answer says nothing.
    async fn is_still_ours(&mut self) -> bool {
        let Claimed { record, number, .. } = &mut *self.claimed;
        match self.shared.store.record(&record.job.id).await {
            Ok(Some(found)) => {
                *number = found.number;
                found.record.status == Status::Running && found.record.instance == record.instance
            }
            // The server has lost its disk, or somebody forgot the job.
            Ok(None) => false,
            Err(_) => true,
        }
    }

    /// Keeps results that come back through the farm, for as long as it takes.
    async fn keep(&self, contents: Vec<Vec<u8>>) {
        let mut patience = Patience::default();
        while !contents.is_empty()
            && let Err(error) = self.shared.store.keep_results(&self.claimed.record.job.id, &contents).await
        {
            if !self.wait(error, &mut patience).await {
                return;
            }
        }
    }

    /// Says what has become of the job, for as long as it takes, unless somebody else has said something that
    /// counts more.
    async fn settle(&mut self) {
        let mut patience = Patience::default();
        while let Err(error) = self.say_end().await {
            if !self.wait(error, &mut patience).await {
                return;
            }
        }
        self.shared.is_back();
    }

    async fn say_end(&mut self) -> Result<()> {
        let (store, Claimed { record, number, .. }) = (&self.shared.store, &mut *self.claimed);
        loop {
            if store.replace(record, *number).await?.is_some() {
                return Ok(());
            }
            let Some(Numbered { record: found, number: newest, .. }) = store.record(&record.job.id).await?
            else {
                // The server has lost its disk.
                *number = 0;
                continue;
            };
            let is_ours = found.instance == record.instance;
            let is_said = is_ours && found.status == record.status;
            // Results that are there are there, whoever else is still at it.
            let counts_more = record.status == Status::Done || is_ours;
            if is_said || found.status.is_final() || !counts_more {
                return Ok(());
            }
            *number = newest;
        }
    }

    /// Waits for a server that is away; false if the worker is to end, and has waited for long enough.
    async fn wait(&self, error: Error, Patience { since_drain }: &mut Patience) -> bool {
        self.shared.is_away(error);
        tokio::time::sleep(PATIENCE).await;
        self.lease.renew().await;
        !self.shared.drains() || since_drain.get_or_insert_with(Instant::now).elapsed() < LAST_WORDS
    }
}

/// For how long a worker that is to end has waited.
#[derive(Default)]
struct Patience {
    since_drain: Option<Instant>,
}

/// Writes joined results: lines to each file of lines, and rows to those of rows, in their order.
fn write(paths: &[String], names: &[String], joined: Joined) -> Result<Summary> {
    let mut rows = joined.rows.iter();
    for (path, name) in paths.iter().zip(names) {
        let bytes = match Format::of(name)? {
            Format::JsonLines => Some(&joined.lines),
            _ => rows.next(),
        };
        let Some(bytes) = bytes else { continue };
        std::fs::write(path, bytes).map_err(Error::file("write", Path::new(path)))?;
    }
    Ok(joined.summary)
}

/// What was asked by whoever submitted: of the whole, where the job is a segment.
fn asked(job: &Job, request: &Request) -> Request {
    job.segment.as_ref().map_or_else(|| request.clone(), |segment| segment.of_whole(request))
}

/// The words behind `lockon run` that ask for the same.
fn words(request: &Request) -> impl Iterator<Item = String> {
    request.words().into_iter().map(|word| word.to_string_lossy().into_owned())
}

/// Templates are not those that were there when the job was submitted; another worker may have them.
fn changed(request: &Request) -> Error {
    let path = request.template.first().map_or_else(PathBuf::new, |text| job::name_and_path(text).1);
    let cause = "a template is not what it was when the job was submitted";
    Error::file("use", &path)(std::io::Error::other(cause))
}

/// True if another worker may have the storage that is missing or full here.
fn is_of_storage(error: &Error) -> bool {
    matches!(
        error,
        Error::File { .. } | Error::Output { .. } | Error::Unreachable { .. } | Error::Resource { .. }
    )
}

fn panicked(error: &tokio::task::JoinError) -> Error {
    Error::Panicked { what: "the farm".into(), message: error.to_string() }
}

impl Numbered {
    /// A record that the server does not have yet.
    pub(super) fn first(record: Record) -> Self {
        Self { record, number: 0, at_ns: 0 }
    }
}
