//! A farm: jobs that many machines share, over a NATS server with its `JetStream`.
//!
//! A job is a [`Request`](lockon_run::request::Request) as data, under a number that is the hash of its
//! options and output names. `submit` puts it into a queue; a worker takes it, holds it by a lease that it
//! renews, and runs it in a [`Fleet`](lockon_run::fleet::Fleet) like any run. Outputs have another name until
//! they are complete. A job may run twice, if a worker seemed dead; this does no harm, since results are
//! equal to the bit on every machine.
//!
//! The engine does not know the farm. Waiting for the server happens on a small runtime, decoding and
//! searching on the fleet's threads; `runs` is the seam between the two.
//!
//! File by file: `access` has the server's address, `job` the stored data, `names` their names, `store` all
//! requests; `staging` and `roots` are the files that a job reads and writes; `lease`, `runs` and
//! `worker` do jobs.

mod access;
mod job;
mod join;
mod lease;
mod names;
mod roots;
mod runs;
mod split;
mod staging;
mod store;
mod worker;

use std::collections::{HashMap, HashSet};

use futures_util::stream::{self, StreamExt, TryStreamExt};
use tokio::runtime::Runtime;

use lockon_core::error::{Error, Result};
use lockon_core::threads;
use store::{Newest, NumberedRecord, Store};

pub use access::{Access, Namespace};
pub use job::{Content, Job, JobKind, Progress, Record, Status, Stored, TRIES, Terms, Try, Worker};
pub use roots::{Allowed, Roots};
pub use split::{Segment, Split, split};
pub use store::{Queue, Unreadable, counts};
pub use worker::{Drain, News, WorkerOptions, work};

/// Jobs that are changed at a time: a slow server must answer each in time.
const CHANGES: usize = 64;

/// Up to this many jobs, their results are looked up one by one.
const FEW: usize = 16;

/// Whether videos that are cut are changed before their segments or after them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Sequence {
    WholesFirst,
    PartsFirst,
}

/// The outcome of a change of a job's record.
enum Change {
    /// Another process has changed the record meanwhile.
    Late,
    /// It is as it should be.
    Unneeded,
    /// It was changed.
    Done,
    /// It was changed, and the job is to be queued.
    Queues(Box<Job>),
}

impl Change {
    fn of(is_done: bool) -> Self {
        if is_done { Self::Done } else { Self::Late }
    }
}

/// True for a job that has ended without results, and that can be queued again.
fn is_without_results(status: Status) -> bool {
    matches!(status, Status::Failed | Status::Cancelled)
}

/// A farm, asked from a program that waits for the answers.
pub struct Farm {
    store: Store,
    runtime: Runtime,
}

/// The result of submitting a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Submitted {
    /// It waits now.
    New,
    /// It was submitted before, and has this status.
    Known(Status),
    /// Its record in the farm cannot be read, so nothing was done.
    Unreadable,
}

/// All jobs that a farm has.
#[derive(Debug, Default)]
pub struct Records {
    /// In the order in which they last changed.
    pub readable: Vec<Record>,
    /// Records that another version wrote, or that are damaged.
    pub unreadable: Vec<Unreadable>,
}

/// A file that came back through the farm: its name and its bytes.
pub type NamedFile = (String, Vec<u8>);

/// The number of jobs that [`Farm::cancel`] and others changed.
pub type Changed = usize;

impl Farm {
    /// Connects to a farm, and creates missing streams.
    ///
    /// # Errors
    /// `Unreachable` if no server answers, `Refused` if it does not accept this user, or stores nothing;
    /// `Usage` or `File` if the address or a file of it is wrong.
    pub fn connect(access: &Access) -> Result<Self> {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name("lockon-farm")
            .enable_all()
            .build()
            .map_err(|error| threads::refused("the farm", &error))?;
        let store = runtime.block_on(Store::open(access, "lockon"))?;
        Ok(Self { store, runtime })
    }

    /// The servers, as messages name them.
    pub fn server(&self) -> &str {
        self.store.server()
    }

    /// Runs read-only requests, and stops as soon as the connection is lost: then no answer comes, and the
    /// next request would wait for seconds.
    fn read<T>(&self, what: impl Future<Output = Result<T>>) -> Result<T> {
        self.runtime.block_on(self.store.while_connected(what))
    }

    /// Puts jobs into the queue that are not known there. Returns the result for each, in their order. A job
    /// that failed or was cancelled is queued again with the new terms; other known jobs stay unchanged. A
    /// job whose submitter died halfway is completed.
    ///
    /// # Errors
    /// `Unreachable` if the server is away; jobs that were submitted before that stay, and submitting all
    /// again queues nothing twice.
    pub fn submit(&self, jobs: &[Job]) -> Result<Vec<Submitted>> {
        let mut submitted = self.submit_new(jobs)?;
        let is_back =
            |told: &Submitted| matches!(told, Submitted::Known(status) if is_without_results(*status));
        let back = jobs.iter().zip(&submitted).filter(|(_, told)| is_back(told));
        let (ids, back): (Vec<_>, HashMap<&str, &Job>) =
            back.map(|(job, _)| (job.id.clone(), (&*job.id, job))).unzip();
        // Parts of an earlier cut that are not submitted now stay as they are.
        let can = |record: &Record| is_without_results(record.status) && back.contains_key(&*record.job.id);
        // A segment that ends meanwhile finds none any more that has failed.
        let changed = self.change(&ids, Sequence::PartsFirst, can, async |record, number| {
            let job = back[&*record.job.id].clone();
            self.queue_again(&record.job, record.again_as(job), number).await
        })?;
        if changed > 0 {
            submitted.iter_mut().filter(|told| is_back(told)).for_each(|told| *told = Submitted::New);
        }
        Ok(submitted)
    }

    /// Replaces the record of a job by that of one that waits and is to be queued. `had` is the job of the
    /// record before.
    async fn queue_again(&self, had: &Job, record: Record, number: u64) -> Result<Change> {
        let queued = self.store.queued(had).await?;
        if self.store.replace(&record, number).await?.is_none() {
            return Ok(Change::Late);
        }
        for part in record.job.parts() {
            if self.store.record(&part).await?.is_some_and(|part| part.record.status != Status::Done) {
                // The worker that completes the last segment queues the whole.
                return Ok(Change::Done);
            }
        }
        // The message there was delivered, and the worker that just gave up the job acknowledges it.
        self.store.dequeue(queued).await?;
        Ok(Change::Queues(record.job.into()))
    }

    fn submit_new(&self, jobs: &[Job]) -> Result<Vec<Submitted>> {
        self.runtime.block_on(async {
            let mut versions: Vec<(JobKind, &str)> = Vec::new();
            for job in jobs {
                if !versions.contains(&(job.kind(), &job.version)) {
                    versions.push((job.kind(), &job.version));
                }
            }
            // `lockon jobs` shows waiting jobs by kind and version, also of versions that never had a worker.
            for (kind, version) in versions {
                self.store.consumer(kind, version, None).await?;
            }
            let records: Vec<_> = jobs.iter().cloned().map(Record::new).collect();
            let is_new = self.store.create(&records).await?;
            let known = jobs.iter().zip(is_new).map(async |(job, is_new)| {
                let known = if is_new { None } else { self.store.found(&job.id).await? };
                Ok::<_, Error>(match known {
                    None => Submitted::New,
                    Some(Newest::Record(known)) => Submitted::Known(known.record.status),
                    Some(Newest::Unreadable(_)) => Submitted::Unreadable,
                })
            });
            let submitted: Vec<_> = stream::iter(known).buffered(store::IN_FLIGHT).try_collect().await?;
            let waits = |told: &Submitted| matches!(told, Submitted::New | Submitted::Known(Status::Queued));
            let is_done = |id: &str| {
                let known = jobs.iter().zip(&submitted).find(|(job, _)| job.id == id);
                known.is_some_and(|(_, told)| *told == Submitted::Known(Status::Done))
            };
            // The job that joins segments waits for them.
            let is_next = |job: &Job| job.segments == 0 || job.parts().all(|part| is_done(&part));
            let to_queue = jobs.iter().zip(&submitted).filter(|(job, told)| waits(told) && is_next(job));
            let to_queue: Vec<_> = to_queue.map(|(job, _)| job).collect();
            self.store.enqueue_all(&to_queue).await?;
            Ok(submitted)
        })
    }

    /// The records of all jobs.
    ///
    /// # Errors
    /// `Unreachable` if the server is away.
    pub fn records(&self) -> Result<Records> {
        let mut records = Records::default();
        for found in self.read(self.store.records())? {
            match found {
                Newest::Record(found) => records.readable.push(found.record),
                Newest::Unreadable(bad) => records.unreadable.push(bad),
            }
        }
        Ok(records)
    }

    /// The record of a job; nothing if it is not known or cannot be read.
    ///
    /// # Errors
    /// `Unreachable` if the server is away.
    pub fn record(&self, id: &str) -> Result<Option<Record>> {
        Ok(self.read(self.store.record(id))?.map(|found| found.record))
    }

    /// The last report of each worker, and the reports that cannot be read.
    ///
    /// # Errors
    /// `Unreachable` if the server is away.
    pub fn workers(&self) -> Result<(Vec<Worker>, Vec<Unreadable>)> {
        self.read(self.store.workers())
    }

    /// The open jobs, by kind and version.
    ///
    /// # Errors
    /// `Unreachable` if the server is away.
    pub fn queues(&self) -> Result<Vec<Queue>> {
        self.read(self.store.queues())
    }

    /// Cancels jobs that are not done. A worker that has one notices it within seconds and removes its
    /// outputs. Jobs that a full server cannot mark as cancelled are removed.
    ///
    /// # Errors
    /// `Unreachable` if the server is away.
    pub fn cancel(&self, ids: &[String]) -> Result<Changed> {
        self.change(
            ids,
            Sequence::WholesFirst,
            |record| !record.status.is_final(),
            async |mut record, number| {
                record.status = Status::Cancelled;
                // A later submit of the same job has another message, which stays.
                let queued = self.store.queued(&record.job).await?;
                let replaced = match self.store.replace(&record, number).await {
                    // Without the job's message a full server may have room for the record. If it has none,
                    // the job is removed: that needs no room, and makes some for the others.
                    Err(error) if store::is_full(&error) => {
                        self.store.dequeue(queued).await?;
                        match self.store.replace(&record, number).await {
                            Err(error) if store::is_full(&error) => {
                                return Ok(Change::of(self.store.forget(&record, number, None).await?));
                            }
                            replaced => replaced?,
                        }
                    }
                    replaced => replaced?,
                };
                if replaced.is_none() {
                    return Ok(Change::Late);
                }
                self.store.dequeue(queued).await?;
                Ok(Change::Done)
            },
        )
    }

    /// Puts jobs into the queue again that failed or were cancelled, as if they had not been tried, and those
    /// that wait but are not in the queue: the server had no room for that when they were submitted.
    ///
    /// # Errors
    /// `Unreachable` if the server is away.
    pub fn retry(&self, ids: &[String]) -> Result<Changed> {
        let can = |record: &Record| is_without_results(record.status) || record.status == Status::Queued;
        // A segment that ends meanwhile finds none any more that has failed.
        self.change(ids, Sequence::PartsFirst, can, async |mut record, number| {
            // A job that joins segments is queued when the last one is done.
            let is_waiting = record.status == Status::Queued;
            if is_waiting && (record.job.segments > 0 || self.store.queued(&record.job).await?.is_some()) {
                return Ok(Change::Unneeded);
            }
            record.status = Status::Queued;
            record.tries.clear();
            let job = record.job.clone();
            self.queue_again(&job, record, number).await
        })
    }

    /// Removes ended jobs, and their results in the farm; segments only if their whole has ended too. Jobs
    /// whose records cannot be read are also removed. Files stay.
    ///
    /// # Errors
    /// `Unreachable` if the server is away.
    pub fn purge(&self, ids: &[String]) -> Result<Changed> {
        let Records { readable: records, unreadable } = self.records()?;
        let bad = unreadable.iter().filter(|bad| ids.contains(&bad.id));
        let forgotten = self.runtime.block_on(async {
            let mut forgotten = 0;
            for bad in bad {
                forgotten += usize::from(self.store.forget_unreadable(bad).await?);
            }
            Ok::<_, Error>(forgotten)
        })?;
        let open = records.iter().filter(|record| !record.status.is_final());
        let needed: HashSet<String> = open.flat_map(|record| record.job.parts()).collect();
        let named: HashSet<&String> = ids.iter().collect();
        let wholes = records.iter().filter(|record| named.contains(&record.job.id));
        let count: usize = wholes.map(|record| 1 + record.job.segments).sum();
        let pieces = if count > FEW { Some(self.runtime.block_on(self.store.pieces())?) } else { None };
        let can = |record: &Record| record.status.is_final() && !needed.contains(&record.job.id);
        let forget = async |record: Record, number| {
            Ok(Change::of(self.store.forget(&record, number, pieces.as_ref()).await?))
        };
        Ok(forgotten + self.change(ids, Sequence::WholesFirst, can, forget)?)
    }

    /// Changes each of these jobs for which `is_for` holds, and the segments of split ones. Retries if
    /// another process changes a record meanwhile. Jobs are queued again in the order of `ids`.
    fn change(
        &self,
        ids: &[String],
        sequence: Sequence,
        is_for: impl Fn(&Record) -> bool,
        change: impl AsyncFn(Record, u64) -> Result<Change>,
    ) -> Result<Changed> {
        let read = async |id: String| Ok::<_, Error>((self.store.record(&id).await?, id));
        let read_all =
            |ids: Vec<String>| stream::iter(ids).map(&read).buffered(CHANGES).try_collect::<Vec<_>>();
        let change_one = async |(mut found, id): (Option<NumberedRecord>, String)| {
            while let Some(NumberedRecord { record, number, .. }) =
                found.filter(|found| is_for(&found.record))
            {
                match change(record, number).await? {
                    Change::Unneeded => break,
                    Change::Late => found = self.store.record(&id).await?,
                    done => return Ok(Some(done)),
                }
            }
            Ok::<_, Error>(None)
        };
        let queue = async |done: Option<Change>| {
            if let Some(Change::Queues(job)) = &done {
                self.store.enqueue(job).await?;
            }
            Ok(usize::from(done.is_some()))
        };
        self.runtime.block_on(async {
            let mut known = HashSet::new();
            let mut jobs = read_all(ids.iter().filter(|id| known.insert(*id)).cloned().collect()).await?;
            let wholes = jobs.iter().filter_map(|(found, _)| found.as_ref());
            let parts = wholes.flat_map(|found| found.record.job.parts()).filter(|id| !known.contains(id));
            jobs.extend(read_all(parts.collect()).await?);
            let is_part = |(found, _): &(Option<NumberedRecord>, String)| {
                found.as_ref().is_some_and(|found| found.record.job.segment.is_some())
            };
            let (parts, wholes): (Vec<_>, Vec<_>) = jobs.into_iter().partition(is_part);
            let in_order = match sequence {
                Sequence::WholesFirst => [wholes, parts],
                Sequence::PartsFirst => [parts, wholes],
            };
            let mut changed = 0;
            for jobs in in_order {
                let changes = stream::iter(jobs).map(&change_one).buffered(CHANGES);
                let queued = changes.map_ok(&queue).try_buffered(CHANGES);
                changed += queued.try_collect::<Vec<usize>>().await?.into_iter().sum::<usize>();
            }
            Ok(changed)
        })
    }

    /// Returns the collected results of a job that is done: names and bytes; nothing unless all are there and
    /// complete.
    ///
    /// # Errors
    /// `Unreachable` if the server is away.
    pub fn results(&self, record: &Record) -> Result<Option<Vec<NamedFile>>> {
        let contents = self.read(self.store.results(record))?;
        Ok(contents.map(|contents| record.files.iter().cloned().zip(contents).collect()))
    }
}
