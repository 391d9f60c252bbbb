//! One try of a job: from the record that gives it to this worker to the record of its end.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use super::super::job::{Content, Job, Record, Status, Stored};
use super::super::join::{self, Joined, SegmentResults};
use super::super::lease::{Fate, Lease};
use super::super::staging::{Committed, Staging, without_hidden};
use super::super::store::NumberedRecord;
use super::claim::Claimed;
use super::{Drain, News, Shared, on_disk};
use lockon_core::error::{Error, Result};
use lockon_core::output::Format;
use lockon_core::results::Summary;
use lockon_run::fleet::{Ended, Entry};
use lockon_run::request::Request;
use lockon_run::run::Count;
use lockon_run::setup;

/// Time between the end of a camera, or an address that does not answer, and the next try.
pub(super) const CAMERA_PAUSE: Duration = Duration::from_secs(2);

/// Time between a failure and the next try.
const PAUSE: Duration = Duration::from_millis(250);

pub(super) struct Attempt<'a> {
    pub(super) shared: &'a Shared,
    pub(super) lease: &'a Lease,
    pub(super) count: Arc<Count>,
    pub(super) claimed: Box<Claimed>,
}

/// How a try ended.
enum End {
    Done(Box<Summary>, Committed),
    Failed(Error),
    /// The worker drains.
    GivenBack,
    /// The job was cancelled, or another worker has it.
    NotOurs,
}

/// Whether the farm knows how a try ended. If it does not, the job must stay in the queue.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Said {
    /// The job's record says so.
    Stored,
    /// Another worker has the job, or it is gone: only this worker's own files may be removed.
    NotOurs,
    /// The server is away, and the worker ends.
    Unheard,
}

impl Attempt<'_> {
    /// Makes the try. Returns what to do with the lease.
    pub(super) async fn make(mut self) -> Fate {
        let name = self.claimed.record.job.name.clone();
        (self.shared.tell)(News::Begun { name });
        let end = self.run().await;
        let lease = self.lease;
        lease.hold(self.conclude(end)).await
    }

    async fn conclude(&mut self, end: End) -> Fate {
        let job = &self.claimed.record.job;
        match end {
            End::Done(summary, committed) if !job.live => self.succeed(*summary, committed).await,
            // The end of a camera is a failure: it starts again.
            End::Done(..) => {
                let error = Error::NoVideo { input: job.name.clone(), reason: "it ended".into() };
                self.fail(&error).await
            }
            End::Failed(error) => self.fail(&error).await,
            End::GivenBack => {
                self.claimed.record.status = Status::Queued;
                if self.settle(None).await != Said::Stored {
                    return Fate::Lapse;
                }
                (self.shared.tell)(News::GivenBack { name: self.claimed.record.job.name.clone() });
                Fate::GiveBack(Duration::ZERO)
            }
            End::NotOurs => {
                (self.shared.tell)(News::Taken { name: job.name.clone() });
                Fate::Lapse
            }
        }
    }

    /// Records that the job is done, after collected results are stored.
    async fn succeed(&mut self, summary: Summary, committed: Committed) -> Fate {
        let Claimed { record, asked, tried, .. } = &mut *self.claimed;
        let (job, by, min_score) = (record.job.clone(), *tried, asked.request.min_score);
        let name = |path: &PathBuf| asked.submitted(path).to_string_lossy().into_owned();
        let (files, contents) = (committed.files.iter().map(name).collect(), &committed.contents);
        record.status = Status::Done;
        record.frames = (summary.frames > 0).then_some(summary.frames);
        record.seconds = Some(summary.seconds);
        record.files = files;
        if job.collect {
            let files = contents.iter().map(|bytes| Content::of(bytes)).collect();
            record.kept = Some(Stored { by, files });
        }
        let store = &self.shared.store;
        match self.shared.insist(|| store.keep_results(&job.id, by, contents)).await {
            Ok(Some(())) => {}
            Ok(None) => {
                (self.shared.tell)(News::Unheard { name: job.name });
                return Fate::Lapse;
            }
            // A second try would be refused too.
            Err(error) => {
                let _ = store.forget_results_by(&job.id, by).await;
                (record.frames, record.seconds, record.kept) = (None, None, None);
                record.files.clear();
                return self.fail_as(&error, true).await;
            }
        }
        let committed = Arc::new(committed);
        match self.settle(Some(&committed)).await {
            Said::Stored => {
                tidy(move || committed.keep()).await;
                self.shared.has_done(&job.name, summary, min_score);
                self.close().await
            }
            Said::NotOurs => {
                tidy(move || committed.undo()).await;
                // If they stay, they are removed with the job.
                let _ = store.forget_results_by(&job.id, by).await;
                Fate::Lapse
            }
            Said::Unheard => Fate::Lapse,
        }
    }

    /// Reports that the try failed.
    async fn fail(&mut self, error: &Error) -> Fate {
        self.fail_as(error, error.is_usage()).await
    }

    /// Records a failed try; `is_final` if no other try can succeed.
    async fn fail_as(&mut self, error: &Error, is_final: bool) -> Fate {
        let is_live = self.claimed.record.job.live;
        let said = self.claimed.asked.in_submitted_names(&error.to_string());
        let said = without_hidden(&self.claimed.record.job, &self.shared.instance, &said);
        self.claimed.record.note_failure(&self.shared.options.name, said.clone(), is_final);
        let is_given_up = self.claimed.record.status == Status::Failed;
        self.shared.has_failed(&self.claimed.record, is_given_up);
        if self.settle(None).await != Said::Stored {
            return Fate::Lapse;
        }
        if is_given_up {
            return self.close().await;
        }
        // A camera that is away says nothing about this worker: the pause is the job's.
        if !is_live && is_of_storage(error) {
            self.shared.rest_after(&said);
        }
        let is_away = matches!(error, Error::Unreachable { .. });
        Fate::GiveBack(if is_live || is_away { CAMERA_PAUSE } else { PAUSE })
    }

    /// Clears up after a job that has ended. If the server cannot be reached, the next worker that gets the
    /// job does it.
    async fn close(&self) -> Fate {
        match self.shared.insist(|| self.shared.clear_up(&self.claimed.record)).await {
            Ok(Some(())) => Fate::Close,
            Ok(None) => Fate::Lapse,
            Err(error) => {
                self.shared.is_away(error);
                Fate::Lapse
            }
        }
    }

    /// Does the job on the fleet, and holds its lease meanwhile.
    async fn run(&mut self) -> End {
        let lease = self.lease;
        let Claimed { record, asked, ours, .. } = &mut *self.claimed;
        let (job, asked, instance) = (record.job.clone(), asked.clone(), self.shared.instance.clone());
        let ours = std::mem::take(ours);
        let staging = match lease.hold(on_disk(move || Staging::new(&job, &asked, ours, &instance))).await {
            Ok(staging) => staging,
            Err(error) => return End::Failed(error),
        };
        if self.claimed.record.job.segments > 0 {
            return lease.hold(self.join(staging)).await;
        }
        let (ticket, mut ended) = self.shared.runs.begin(self.entry(&staging));
        let mut renewal = tokio::time::interval(lease.renewal());
        let mut is_stopped = None;
        let must_give_back = self.shared.options.drain == Drain::GiveBack || self.claimed.record.job.live;
        let ended = loop {
            tokio::select! {
                ended = &mut ended => break ended,
                _ = renewal.tick(), if !matches!(is_stopped, Some(End::NotOurs)) => {
                    lease.renew().await;
                    if !self.is_ours().await {
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
            staging.discard();
            return End::Failed(Error::Panicked { what: "the fleet".into(), message: "it is gone".into() });
        };
        let is_whole = outcome.is_ok() && !summary.interrupted;
        match is_stopped {
            // Nothing of a cancelled job stays, and another worker writes its own outputs.
            Some(End::NotOurs) => {
                staging.discard();
                return End::NotOurs;
            }
            // It may have ended by itself before that.
            Some(stopped) if !is_whole => {
                staging.discard();
                return stopped;
            }
            _ => {}
        }
        let written = summary.files.clone();
        let committed = match outcome {
            Ok(()) if is_whole => lease.hold(on_disk(move || staging.commit(&written))).await,
            Ok(()) | Err(Error::Stopped) => {
                staging.discard();
                return End::GivenBack;
            }
            Err(error) => {
                staging.discard();
                Err(error)
            }
        };
        match committed {
            Ok(committed) => End::Done(Box::new(summary), committed),
            Err(error) => End::Failed(error),
        }
    }

    fn entry(&mut self, staging: &Staging) -> Entry {
        let video = self.claimed.video.take();
        let Claimed { record, asked: held, .. } = &*self.claimed;
        let asked = asked(&record.job, &held.request);
        let outputs: Vec<_> = match &record.job.segment {
            Some(segment) => segment.results.clone(),
            None => staging.outputs().collect(),
        };
        let line = asked.command_line();
        let (registry, name) = (self.shared.options.metrics.clone(), record.job.name.clone());
        let (count, moved) = (self.count.clone(), self.claimed.moved.clone());
        let digest = record.job.digest.clone();
        let entry = Entry::new(record.job.name.clone(), staging.request.clone())
            .sparing_colours()
            .with_outlets(self.shared.options.outlets.clone());
        let entry = if record.job.segment.is_some() { entry.seeking() } else { entry };
        let entry = match video {
            Some(video) => entry.confined_to(video),
            None => entry,
        };
        // The digest is that of the open file.
        let control = held.bound.control.clone();
        entry.when_opened(move |run| {
            run.note_command(line);
            if run.note_asked(&Request { control, ..asked.clone() }, outputs) != digest {
                return Err(changed(&asked));
            }
            if let Some((reason, away)) = moved {
                run.note_gap(away, reason);
            }
            count.watch(run);
            if let Some(registry) = registry {
                run.add_sink(Box::new(registry.watch(&name, &run.traffic())));
            }
            Ok(())
        })
    }

    /// Joins the results of a video's segments.
    async fn join(&self, staging: Staging) -> End {
        let Claimed { record, asked, .. } = &*self.claimed;
        let (mut parts, mut fault) = (Vec::with_capacity(record.job.segments), None);
        for id in record.job.parts() {
            match self.part(&id).await {
                Ok(part) => parts.push(part),
                // Finds all lost ones at once.
                Err(error) if error.is_usage() => fault = fault.or(Some(error)),
                Err(error) => {
                    fault = Some(error);
                    break;
                }
            }
        }
        if let Some(error) = fault {
            staging.discard();
            return End::Failed(error);
        }
        let (name, results) = (record.job.name.clone(), asked.request.results.clone());
        let joined = on_disk(move || {
            let joined = join::join(&name, &parts)
                .and_then(|joined| write(&staging.request.results, &results, joined));
            match joined {
                Ok(summary) => {
                    let written = staging.request.output_files();
                    Ok((summary, staging.commit(&written)?))
                }
                Err(error) => {
                    staging.discard();
                    Err(error)
                }
            }
        });
        match joined.await {
            Ok((summary, committed)) => End::Done(Box::new(summary), committed),
            Err(error) => End::Failed(error),
        }
    }

    /// The results of a segment. If they are lost, the segment counts as failed, so that `jobs retry` of the
    /// whole repeats it.
    async fn part(&self, id: &str) -> Result<SegmentResults> {
        let store = &self.shared.store;
        let found = store.record(id).await?.filter(|found| found.record.status == Status::Done);
        let Some(NumberedRecord { mut record, number, .. }) = found else {
            return Err(Error::Usage(format!(
                "segment {id} is no longer in the farm: submit the video again"
            )));
        };
        let Some(files) = store.results(&record).await? else {
            let error = Error::Usage(format!(
                "the results of {} are no longer in the farm: run `lockon jobs retry` to make them again",
                record.job.name
            ));
            record.note_failure(&self.shared.options.name, error.to_string(), true);
            store.replace(&record, number).await?;
            return Err(error);
        };
        let (mut lines, mut rows) = (Vec::new(), Vec::new());
        for (name, bytes) in record.files.iter().zip(files) {
            match Format::of(name)? {
                Format::JsonLines => lines = bytes,
                _ => rows.push(bytes),
            }
        }
        Ok(SegmentResults { from_ns: record.job.segment.and_then(|segment| segment.from_ns), lines, rows })
    }

    /// False if the record names another worker or none. Also stores the number of frames of a camera.
    async fn is_ours(&mut self) -> bool {
        let Claimed { record, number, .. } = &mut *self.claimed;
        if record.job.live {
            record.frames = Some(self.count.frames());
            match self.shared.store.replace(record, *number).await {
                Ok(Some(newest)) => {
                    *number = newest;
                    return true;
                }
                Ok(None) => {}
                Err(_) => return true,
            }
        }
        match self.shared.store.record(&record.job.id).await {
            Ok(Some(found)) if found.record.is_held_by(&self.shared.instance) => {
                *number = found.number;
                true
            }
            // The server may have lost its disk, or the job was purged.
            Ok(_) => false,
            // A server that does not answer decides nothing.
            Err(_) => true,
        }
    }

    /// Records the end of the job, however long that takes, unless a record of another worker counts more.
    /// Reports it if the end is not stored.
    async fn settle(&mut self, outputs: Option<&Arc<Committed>>) -> Said {
        let (shared, Claimed { record, number, .. }) = (self.shared, &*self.claimed);
        let said = match shared.insist(|| shared.say_end(record, *number, outputs)).await {
            Ok(said) => said.unwrap_or(Said::Unheard),
            Err(error) => {
                shared.is_away(error);
                Said::Unheard
            }
        };
        let name = record.job.name.clone();
        match said {
            Said::Stored => {}
            Said::NotOurs => (shared.tell)(News::Taken { name }),
            Said::Unheard => (shared.tell)(News::Unheard { name }),
        }
        said
    }
}

impl Shared {
    /// Replaces the record of that number by one with the end of a try and these outputs.
    async fn say_end(
        &self,
        record: &Record,
        mut number: u64,
        outputs: Option<&Arc<Committed>>,
    ) -> Result<Said> {
        let mut is_anothers = false;
        loop {
            if let Some(newest) = self.store.replace(record, number).await? {
                if !is_anothers || are_whole(outputs).await {
                    return Ok(Said::Stored);
                }
                // The other worker removed the outputs just before it lost the job: the job must run again.
                let (frames, seconds, kept, files) = (None, None, None, Vec::new());
                let again = Record { status: Status::Queued, frames, seconds, kept, files, ..record.clone() };
                self.store.replace(&again, newest).await?;
                return Ok(Said::NotOurs);
            }
            let Some(NumberedRecord { record: found, number: newest, .. }) =
                self.store.record(&record.job.id).await?
            else {
                return Ok(Said::NotOurs);
            };
            // It was stored, but the server's answer was lost.
            if found.instance == record.instance && found.status == record.status {
                return Ok(Said::Stored);
            }
            is_anothers = !found.is_held_by(&self.instance);
            if is_anothers {
                // Finished results count, unless another worker has begun the job: it removes files of
                // earlier tries, at a moment that other workers do not know.
                let may_go = found.status == Status::Running
                    && outputs.is_some_and(|outputs| outputs.can_be_removed());
                let is_done = record.status == Status::Done && !found.status.is_final() && !may_go;
                if !is_done || !are_whole(outputs).await {
                    return Ok(Said::NotOurs);
                }
            }
            number = newest;
        }
    }
}

/// True if no other worker has removed or replaced these outputs.
async fn are_whole(outputs: Option<&Arc<Committed>>) -> bool {
    let Some(outputs) = outputs.cloned() else { return true };
    on_disk(move || Ok(outputs.is_whole())).await.unwrap_or(false)
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

/// Removes leftovers on a thread for slow disks. Failures are logged.
async fn tidy(what: impl FnOnce() + Send + 'static) {
    let done = on_disk(move || {
        what();
        Ok(())
    });
    if let Err(error) = done.await {
        tracing::debug!("farm: {error}");
    }
}

/// The submitted request: that of the whole, if the job is a segment.
fn asked(job: &Job, request: &Request) -> Request {
    job.segment.as_ref().map_or_else(|| request.clone(), |segment| segment.of_whole(request))
}

/// The templates have changed since the job was submitted; another worker may have the right ones.
fn changed(request: &Request) -> Error {
    let Some(text) = request.template.first() else {
        return Error::Usage(
            "the job's options, or the file of --control, are not those that it was submitted with: submit it again"
                .into(),
        );
    };
    let path = setup::name_and_path(text).1;
    let cause = "a template is not what it was when the job was submitted";
    Error::file("use", &path)(std::io::Error::other(cause))
}

/// True if another worker may have the storage that is missing or full here.
fn is_of_storage(error: &Error) -> bool {
    matches!(error, Error::File { .. } | Error::Output { .. } | Error::Resource { .. })
}

impl NumberedRecord {
    /// A record that the server does not have yet.
    pub(super) fn first(record: Record) -> Self {
        Self { record, number: 0, at_ns: 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_without_templates_that_was_changed_is_refused_with_the_reason_and_no_empty_name() {
        let mut request = Request::new("a.mp4").unwrap();
        let said = changed(&request).to_string();
        assert!(said.contains("submit it again") && !said.contains("template"), "{said}");
        request.template.push("logo=/x/logo.png".into());
        assert!(changed(&request).to_string().contains("/x/logo.png"));
    }
}
