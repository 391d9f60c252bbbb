//! Decides whether this worker does a job.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use super::super::job::{Job, LONGEST_ERROR, Record, Status, Try, shortened};
use super::super::lease::Fate;
use super::super::roots::{self, Asked};
use super::super::split;
use super::super::staging;
use super::super::store::{Newest, NumberedRecord, Unreadable};
use super::attempt::CAMERA_PAUSE;
use super::{BEAT, News, Shared, on_disk};
use lockon_core::error::{Error, Result};
use lockon_core::text;
use lockon_run::run::Video;

/// How long a job waits if this worker leaves it to another one.
const LEFT: Duration = Duration::from_millis(500);

/// Maximum checks whether another worker is still alive, half a [`BEAT`] apart.
const LISTENS: u32 = 5;

/// The decision about a job.
pub(super) enum Claim {
    /// It is this worker's: with the record that says so, and the request.
    Begin(Box<Claimed>),
    /// It is not this worker's.
    End(Fate),
}

/// A job that is this worker's.
pub(super) struct Claimed {
    /// The record that says so.
    pub(super) record: Record,
    /// The number of that record or of its successor.
    pub(super) number: u64,
    /// Its first number, which no other try has.
    pub(super) tried: u64,
    /// The request.
    pub(super) asked: Arc<Asked>,
    /// The video that may be opened, where the worker has roots.
    pub(super) video: Option<Video>,
    /// Files that the job may replace.
    pub(super) ours: Vec<PathBuf>,
    /// Why an earlier run of this camera ended, and the time since its last report, by the server's clock.
    pub(super) moved: Option<(String, Duration)>,
}

impl Shared {
    /// Decides about a job, and writes that into its record. Two workers cannot both do that: only a worker
    /// that knows the current record can replace it.
    pub(super) async fn claim(&self, job: Job) -> Result<Claim> {
        loop {
            let NumberedRecord { mut record, number, at_ns } = match self.store.found(&job.id).await? {
                Some(Newest::Record(found)) => *found,
                Some(Newest::Unreadable(bad)) => match self.give_up_unreadable(&job, &bad).await? {
                    Some(fate) => return Ok(Claim::End(fate)),
                    None => continue,
                },
                None => NumberedRecord::first(Record::new(job.clone())),
            };
            let had = record.worker.clone().unwrap_or_default();
            let was_watched = job.live && record.started;
            let before = (record.status == Status::Running).then(|| record.clone());
            if let Some(holder) = &before
                && holder.instance.as_ref() != Some(&self.instance)
            {
                if self.is_at_it(holder).await? {
                    return Ok(Claim::End(Fate::GiveBack(BEAT)));
                }
                record.note_loss();
            } else if record.status.is_final() {
                // The worker that had it may have died before that.
                self.sweep(&record).await;
                self.clear_up(&record).await?;
                return Ok(Claim::End(Fate::Close));
            }
            if record.tries.len() >= record.job.tries as usize {
                record.status = Status::Failed;
                if self.store.replace(&record, number).await?.is_some() {
                    self.has_failed(&record, true);
                    self.sweep(&record).await;
                    self.clear_up(&record).await?;
                    return Ok(Claim::End(Fate::Close));
                }
                continue;
            }
            if record.is_suspect() && !self.may_be_tried(&record) {
                if before.is_some() {
                    // The next worker need not wait for reports of the dead one again.
                    record.status = Status::Queued;
                    if self.store.replace(&record, number).await?.is_none() {
                        continue;
                    }
                }
                return Ok(Claim::End(Fate::GiveBack(BEAT)));
            }
            if before.is_none() && self.leaves_to_another(&record).await? {
                return Ok(Claim::End(Fate::GiveBack(LEFT)));
            }
            let (known, served) = (record.clone(), self.options.roots.clone());
            let looked = on_disk(move || {
                let asked = served.open_job(&known.job)?;
                Ok((staging::look(&known, &asked.bound).map_err(|error| asked.named(error))?, asked))
            });
            let (mut asked, ours) = match looked.await {
                Ok((staging::Existing::Room(ours), asked)) => (asked, ours),
                Ok((staging::Existing::Results, asked)) => {
                    record.status = Status::Done;
                    let files = asked.request.output_files();
                    record.files = files.iter().map(|path| path.display().to_string()).collect();
                    if self.store.replace(&record, number).await?.is_some() {
                        self.clear_up(&record).await?;
                        (self.tell)(News::Found { name: record.job.name });
                        return Ok(Claim::End(Fate::Close));
                    }
                    continue;
                }
                Err(error) => {
                    let is_final = error.is_usage();
                    record.note_failure(&self.options.name, error.to_string(), is_final);
                    if self.store.replace(&record, number).await?.is_none() {
                        continue;
                    }
                    self.has_failed(&record, record.status == Status::Failed);
                    if record.status == Status::Failed {
                        self.clear_up(&record).await?;
                        return Ok(Claim::End(Fate::Close));
                    }
                    if job.live {
                        return Ok(Claim::End(Fate::GiveBack(CAMERA_PAUSE)));
                    }
                    if roots::is_refusal(&error) {
                        // A rest of the worker does not change what it serves: the job waits for another one.
                        let rest = LEFT.saturating_mul(1 << record.tries.len().min(4));
                        return Ok(Claim::End(Fate::GiveBack(rest)));
                    }
                    self.rest_after(&error.to_string());
                    return Ok(Claim::End(Fate::GiveBack(LEFT)));
                }
            };
            record.status = Status::Running;
            record.started = true;
            record.worker = Some(self.options.name.clone());
            record.instance = Some(self.instance.clone());
            (record.frames, record.kept) = (None, None);
            if let Some(number) = self.store.replace(&record, number).await? {
                let moved = if was_watched {
                    let now = self.store.record(&job.id).await?.map_or(at_ns, |found| found.at_ns);
                    let reason = match before {
                        Some(_) => format!("worker {had} was gone"),
                        None => format!("worker {had} let it go"),
                    };
                    Some((reason, Duration::from_nanos((now - at_ns).max(0) as u64)))
                } else {
                    None
                };
                let (video, asked) = (asked.take_video(), asked.into());
                let claimed = Claimed { record, number, tried: number, asked, video, ours, moved };
                return Ok(Claim::Begin(Box::new(claimed)));
            }
        }
    }

    /// Ends a job whose record cannot be read: otherwise it would be delivered for ever. Returns `None` if
    /// the record was replaced meanwhile.
    async fn give_up_unreadable(&self, job: &Job, bad: &Unreadable) -> Result<Option<Fate>> {
        let mut record = Record::new(job.clone());
        let version = env!("CARGO_PKG_VERSION");
        let error = format!("the farm's record of it cannot be read by lockon {version}: {}", bad.reason);
        record.note_failure(&self.options.name, error, true);
        if self.store.replace(&record, bad.number).await?.is_none() {
            return Ok(None);
        }
        self.has_failed(&record, true);
        self.clear_up(&record).await?;
        Ok(Some(Fate::Close))
    }

    /// Ends a job that cannot be read itself. Its record, if there is one, says so.
    pub(super) async fn bury(&self, id: &str, error: &Error) -> Fate {
        let error = format!("the farm's queue has a job that cannot be read: {error}");
        let name = text::in_one_line(id).into_owned();
        (self.tell)(News::Failed { name, error: error.clone(), is_given_up: true });
        self.state().failed += 1;
        match self.insist(|| self.bury_record(id, &error)).await {
            Ok(Some(())) => Fate::Close,
            Ok(None) => Fate::Lapse,
            Err(error) => {
                self.is_away(error);
                Fate::Lapse
            }
        }
    }

    async fn bury_record(&self, id: &str, error: &str) -> Result<()> {
        while let Some(NumberedRecord { mut record, number, .. }) = self.store.record(id).await? {
            if record.status.is_final() {
                break;
            }
            record.note_failure(&self.options.name, error, true);
            if self.store.replace(&record, number).await?.is_some() {
                return self.clear_up(&record).await;
            }
        }
        Ok(())
    }

    /// Removes leftovers of a dead worker for a job that has ended; outputs of a job that is done stay.
    /// Failures are logged.
    async fn sweep(&self, record: &Record) {
        let (job, roots) = (record.job.clone(), self.options.roots.clone());
        let is_done = record.status == Status::Done;
        // Others write under the names that they keep, or not here.
        if job.collect || job.live {
            return;
        }
        let swept = on_disk(move || {
            let asked = roots.open_job(&job)?;
            if is_done {
                staging::forget_hidden(&job, &asked.bound);
            } else {
                staging::sweep_all(&job, &asked.bound);
            }
            Ok(())
        });
        if let Err(error) = swept.await {
            tracing::debug!("farm: {error}");
        }
    }

    /// Completes the work after the end of a job. Segment: queues the whole if all segments are done, or
    /// fails it too. Whole: removes the segments' results once it is done. All of this can be repeated.
    pub(super) async fn clear_up(&self, record: &Record) -> Result<()> {
        // A job that failed may be tried again, and needs them then.
        if record.status == Status::Done {
            for part in record.job.parts() {
                self.store.forget_results(&part).await?;
            }
        }
        let Some(segment) = &record.job.segment else { return Ok(()) };
        let Some(whole) = self.store.record(&segment.whole).await? else { return Ok(()) };
        if whole.record.status != Status::Queued {
            return Ok(());
        }
        if record.status == Status::Failed {
            let mut failed = whole.record.clone();
            failed.status = Status::Failed;
            let error = format!("{}: {}", record.job.name, record.error().unwrap_or_default());
            let worker = record.worker.clone().unwrap_or_default();
            failed.tries = vec![Try { worker, error, lost: false }];
            // Another worker may have reported it already.
            return self.store.replace(&failed, whole.number).await.map(drop);
        }
        // They begin in their order, so this finds an open one soon.
        for index in (0..whole.record.job.segments).rev() {
            let part = self.store.record(&split::id_of(&segment.whole, index)).await?;
            if part.is_none_or(|part| part.record.status != Status::Done) {
                return Ok(());
            }
        }
        self.store.enqueue(&whole.record.job).await
    }

    /// True if the worker that has a job is still running it: the server was away, and delivered the job
    /// again. A worker's last report stays for a while after its death, and a server that was away has lost
    /// it, so this waits for a newer one.
    async fn is_at_it(&self, record: &Record) -> Result<bool> {
        let Some(holder) = &record.instance else { return Ok(false) };
        let before = self.store.worker(holder).await?.map(|(_, number)| number);
        for _ in 0..LISTENS {
            tokio::time::sleep(BEAT / 2).await;
            let told = self.store.worker(holder).await?.filter(|(_, number)| Some(*number) != before);
            if let Some((worker, _)) = told {
                return Ok(worker.running.iter().any(|run| run.id == record.job.id));
            }
        }
        Ok(false)
    }

    /// True if this job, whose worker may have died of it, can be done beside others of that kind. After the
    /// first loss they may fill half of the places, after the next a quarter; on its last try there is none
    /// beside it. So jobs that only ran beside one that kills its workers do not fail with it.
    fn may_be_tried(&self, record: &Record) -> bool {
        let places = if record.job.live { self.options.cameras } else { self.options.jobs };
        let most = most_suspects(record.tries.iter().filter(|tried| tried.lost).count(), record, places);
        let mut state = self.state();
        let most_of_all = state.suspects.values().copied().fold(most, usize::min);
        let may_be = state.suspects.contains_key(&record.job.id) || state.suspects.len() < most_of_all;
        if may_be {
            state.suspects.insert(record.job.id.clone(), most);
        }
        may_be
    }

    /// True if the job has failed here, and another worker is there that has not tried it.
    async fn leaves_to_another(&self, record: &Record) -> Result<bool> {
        let has_tried = |name: &str| record.tries.iter().any(|tried| tried.worker == name);
        if !has_tried(&self.options.name) {
            return Ok(false);
        }
        let (workers, _) = self.store.workers().await?;
        Ok(workers.iter().any(|worker| {
            let places = if record.job.live { worker.cameras } else { worker.jobs };
            // A stranger's report may have any numbers.
            let is_free = worker.running.len() < worker.jobs.saturating_add(worker.cameras);
            let takes_jobs = !worker.draining && worker.resting.is_none() && places > 0 && is_free;
            takes_jobs && worker.version == record.job.version && !has_tried(&worker.name)
        }))
    }

    /// Counts and reports a job that failed here.
    pub(super) fn has_failed(&self, record: &Record, is_given_up: bool) {
        self.state().failed += 1;
        let error = record.error().unwrap_or_default().to_owned();
        (self.tell)(News::Failed { name: record.job.name.clone(), error, is_given_up });
    }
}

/// The maximum number of suspects, itself included, among which a job with so many losses may run.
fn most_suspects(losses: usize, record: &Record, places: usize) -> usize {
    if record.tries.len() + 1 >= record.job.tries as usize { 1 } else { (places >> losses).max(1) }
}

impl Record {
    /// Notes that the worker that had it is gone.
    fn note_loss(&mut self) {
        let worker = self.worker.clone().unwrap_or_default();
        // A camera that was watched has not crashed its worker at once.
        let was_watched = self.job.live && self.frames.is_some_and(|frames| frames > 0);
        if was_watched {
            self.tries.clear();
        }
        let error = "the worker was gone in the middle of it: it was killed, crashed, or lost its connection";
        self.tries.push(Try { worker, error: error.into(), lost: !was_watched });
    }

    /// Notes a failure: whether it is tried again depends on how often it was, unless it is `final`.
    pub(super) fn note_failure(&mut self, worker: &str, error: impl Into<String>, is_final: bool) {
        let error = shortened(&error.into(), LONGEST_ERROR);
        self.tries.push(Try { worker: worker.into(), error, lost: false });
        let is_given_up = is_final || !self.job.live && self.tries.len() >= self.job.tries as usize;
        self.status = if is_given_up { Status::Failed } else { Status::Queued };
        if self.job.live {
            // It is retried for ever; only the last try is kept.
            self.tries.drain(..self.tries.len() - 1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::job::Terms;
    use super::*;
    use lockon_run::request::Request;

    fn record(input: &str, tries: u32) -> Record {
        let mut request = Request::new(input).unwrap();
        request.results = vec!["a.jsonl".into()];
        let terms = Terms { collect: false, overwrite: false, tries };
        Record::new(Job::new("a", &request, &[], terms).unwrap())
    }

    #[test]
    fn the_more_often_a_job_was_lost_the_fewer_of_its_kind_are_beside_it() {
        let mut record = record("a.mp4", 4);
        let mut most = Vec::new();
        for losses in 1..=3 {
            record.note_loss();
            most.push([1, 5, 16].map(|places| most_suspects(losses, &record, places)));
        }
        assert_eq!(most, [[1, 2, 8], [1, 1, 4], [1, 1, 1]], "alone on the last try");
    }

    #[test]
    fn a_camera_that_was_watched_is_no_suspect_when_its_worker_dies() {
        let mut record = record("rtsp://10.0.0.7/a", 3);
        record.note_loss();
        assert!(record.is_suspect());
        record.frames = Some(7);
        record.note_loss();
        assert!(!record.is_suspect() && record.tries.len() == 1);
    }
}
