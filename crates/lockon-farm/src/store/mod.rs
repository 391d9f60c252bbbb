//! The data on the farm's server, and all requests to it.
//!
//! Nothing here compares clocks: the server removes old data by its own. `errors` decides which of its
//! errors are permanent.

mod errors;

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use async_nats::Client;
use async_nats::connection::State;
use async_nats::jetstream::consumer::{AckPolicy, Consumer, DeliverPolicy, PullConsumer, pull, push};
use async_nats::jetstream::context::{Context, PublishErrorKind};
use async_nats::jetstream::message::{PublishMessage, StreamMessage};
use async_nats::jetstream::stream::{
    Config, DeleteMessageErrorKind, DirectGetErrorKind, DiscardPolicy, LastRawMessageErrorKind,
    RetentionPolicy, StorageType, Stream,
};
use async_nats::jetstream::{self, Message};
use bytes::Bytes;
use futures_util::stream::{self, StreamExt, TryStreamExt};
use serde::Serialize;
use tokio::time::Instant;

use super::access::{Access, Denied};
use super::job::{Content, Job, JobKind, Record, Status, Worker};
use super::lease;
use super::names::Names;
use errors::{TOO_LARGE, has_too_few_servers, is_lost, is_there_already};
use lockon_core::error::{Error, Result};
use lockon_core::text;

pub(super) use errors::{is_full, is_too_large};

/// Reports of workers expire after this time.
pub(super) const FORGOTTEN: Duration = Duration::from_secs(15);

/// How long a request for the next job waits at the server.
const PULL: Duration = Duration::from_secs(5);

/// Time between two checks of the connection.
const LOOK: Duration = Duration::from_millis(20);

/// How long an answer may take.
const ANSWER: Duration = Duration::from_secs(5);

/// How long a list continues after the message that was the last when it began.
const QUIET: Duration = Duration::from_millis(100);

/// Messages on their way to the server at a time.
pub(super) const IN_FLIGHT: usize = 512;

/// Maximum bytes of a piece of a results file; less if the server accepts no messages of that size.
const PIECE: usize = 512 << 10;

/// How long a list may be silent before lockon asks the server whether anything is left.
const SILENCE: Duration = Duration::from_millis(500);

/// Maximum tries to create a reader of a stream.
const READER_TRIES: u32 = 5;

/// Copies of every stream in a cluster, so that one server of three may be lost.
const COPIES: usize = 3;

/// Maximum bytes of a message's headers: the server counts them too.
const HEADERS: usize = 128;

/// Bytes that a record grows by while its job runs, without errors.
const GROWTH: usize = 256;

/// A farm's streams.
pub(super) struct Store {
    client: Client,
    /// The server's last refusal of a message.
    denied: Denied,
    context: Context,
    names: Names,
    /// The servers, as messages name them.
    server: String,
}

/// A record and its number, which is needed to replace it.
pub(super) struct NumberedRecord {
    pub(super) record: Record,
    pub(super) number: u64,
    /// When it was written, by the server's clock, in nanoseconds; 0 if that is not known.
    pub(super) at_ns: i128,
}

/// A record that this version of lockon cannot read: another version wrote it, or it was damaged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unreadable {
    /// The number of its job, or a worker's.
    pub id: String,
    /// Why it cannot be read.
    pub reason: String,
    pub(super) number: u64,
}

/// The newest record of a job.
pub(super) enum Newest {
    Record(Box<NumberedRecord>),
    Unreadable(Unreadable),
}

/// The part of each message that a list needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum MessagePart {
    All,
    Subject,
}

/// Jobs of one kind and version that are not done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Queue {
    /// Cameras and streams, or files.
    pub is_live: bool,
    /// lockon's version.
    pub version: String,
    /// Jobs that wait.
    pub waiting: u64,
    /// Jobs that workers hold.
    pub held: u64,
}

impl Store {
    /// Connects, and creates missing streams.
    pub(super) async fn open(access: &Access, client: &str) -> Result<Self> {
        let server = access.name();
        let denied = Denied::default();
        let client = access.connect(client, &denied).await?;
        if !client.server_info().jetstream {
            return Err(Error::Refused {
                input: server,
                reason: "the server keeps nothing: start one with JetStream (nats-server -js -sd DIR), on another \
                         port (-p) if a system's service has this one"
                    .into(),
            });
        }
        let mut context = jetstream::new(client.clone());
        context.set_timeout(ANSWER);
        let names = Names::new(&access.namespace);
        let store = Self { client, denied, context, names, server };
        store.ensure().await?;
        Ok(store)
    }

    /// The servers, as messages name them.
    pub(super) fn server(&self) -> &str {
        &self.server
    }

    /// Does something until the connection is lost.
    ///
    /// # Errors
    /// `Unreachable` at once if there is no connection, or when it is lost; else those of `what`.
    pub(super) async fn while_connected<T>(&self, what: impl Future<Output = Result<T>>) -> Result<T> {
        let is_lost = async {
            while self.client.connection_state() != State::Disconnected {
                tokio::time::sleep(LOOK).await;
            }
        };
        tokio::select! {
            biased;
            () = is_lost => Err(self.silent("the connection is lost")),
            done = what => done,
        }
    }

    /// Creates missing streams, for example after the server has lost its disk.
    pub(super) async fn ensure(&self) -> Result<()> {
        // The server reports whether it is in a cluster, which may have too few servers.
        let copies = if self.client.server_info().cluster.is_some() { COPIES } else { 1 };
        for config in self.streams() {
            let copied = Config { num_replicas: copies, ..config.clone() };
            match self.context.get_or_create_stream(copied).await {
                Ok(_) => {}
                Err(error) if copies > 1 && has_too_few_servers(&error) => {
                    let made = self.context.get_or_create_stream(config).await;
                    made.map_err(|error| self.not_made(error))?;
                }
                // If another client creates the stream at the same time, the server reports an error.
                Err(error) => {
                    let made = self.context.get_stream(&config.name).await;
                    made.map_err(|_| self.not_made(error))?;
                }
            }
        }
        Ok(())
    }

    fn streams(&self) -> [Config; 4] {
        let of = |what: &str| Config {
            name: self.names.stream(what),
            subjects: vec![self.names.all(what)],
            num_replicas: 1,
            ..Config::default()
        };
        let newest = |what: &str| Config { max_messages_per_subject: 1, allow_direct: true, ..of(what) };
        let queue = Config {
            retention: RetentionPolicy::WorkQueue,
            max_messages_per_subject: 1,
            discard: DiscardPolicy::New,
            discard_new_per_subject: true,
            ..of("queue")
        };
        let workers = Config { max_age: FORGOTTEN, storage: StorageType::Memory, ..newest("workers") };
        [queue, newest("state"), workers, of("results")]
    }

    async fn stream(&self, what: &str) -> Result<Stream> {
        let name = self.names.stream(what);
        match self.context.get_stream(&name).await {
            // The server has lost its disk since this program began.
            Err(error) if is_lost(&error) => {
                self.ensure().await?;
                self.context.get_stream(name).await.map_err(|error| self.away(error))
            }
            found => found.map_err(|error| self.away(error)),
        }
    }

    /// As [`Self::stream`], without a request for its state.
    async fn stream_without_info(&self, what: &str) -> Result<Stream<()>> {
        let stream = self.context.get_stream_no_info(self.names.stream(what)).await;
        stream.map_err(|error| self.away(error))
    }

    /// The consumer of the jobs of a kind and version. Leases get this length, or keep theirs if it is
    /// `None`.
    pub(super) async fn consumer(
        &self,
        kind: JobKind,
        version: &str,
        lease: Option<Duration>,
    ) -> Result<PullConsumer> {
        let name = Names::consumer(kind, version);
        let config = pull::Config {
            durable_name: Some(name.clone()),
            filter_subject: self.names.queue_of(kind, version),
            ack_policy: AckPolicy::Explicit,
            ack_wait: lease.unwrap_or_else(|| lease::usual(kind)),
            max_ack_pending: -1,
            max_waiting: 1 << 16,
            ..pull::Config::default()
        };
        let stream = self.stream("queue").await?;
        let consumer = match lease {
            Some(_) => stream.create_consumer(config).await,
            None => match stream.get_consumer(&name).await {
                Ok(consumer) => Ok(consumer),
                Err(_) => stream.create_consumer(config).await,
            },
        };
        consumer.map_err(|error| self.away(error))
    }

    /// The next job, if one comes within a few seconds.
    pub(super) async fn pull(&self, consumer: &PullConsumer) -> Result<Option<Message>> {
        let batch = consumer.batch().max_messages(1).expires(PULL).messages().await;
        match batch.map_err(|error| self.away(error))?.next().await {
            None => Ok(None),
            Some(message) => message.map(Some).map_err(|error| self.silent(error)),
        }
    }

    /// The open jobs, by kind and version.
    pub(super) async fn queues(&self) -> Result<Vec<Queue>> {
        let stream = self.stream("queue").await?;
        let mut consumers = stream.consumers();
        let mut queues = Vec::new();
        while let Some(info) = consumers.next().await {
            let info = info.map_err(|error| self.away(error))?;
            if let Some((kind, version)) = Names::of_consumer(&info.name) {
                let (waiting, held) = (info.num_pending, info.num_ack_pending as u64);
                queues.push(Queue { is_live: kind == JobKind::Live, version, waiting, held });
            }
        }
        Ok(queues)
    }

    /// The record of a job; `None` also if it cannot be read.
    pub(super) async fn record(&self, id: &str) -> Result<Option<NumberedRecord>> {
        Ok(match self.found(id).await? {
            Some(Newest::Record(found)) => Some(*found),
            Some(Newest::Unreadable(Unreadable { reason, .. })) => {
                tracing::warn!("farm: the record of job {id} cannot be read: {reason}");
                None
            }
            None => None,
        })
    }

    /// The record of a job, readable or not.
    pub(super) async fn found(&self, id: &str) -> Result<Option<Newest>> {
        let Some(message) = self.last("state", self.names.state(id)).await? else { return Ok(None) };
        let at_ns = message.time.unix_timestamp_nanos();
        Ok(Some(Newest::read(id, &message.payload, message.sequence, at_ns)))
    }

    async fn last(&self, what: &str, subject: String) -> Result<Option<StreamMessage>> {
        let stream = self.stream_without_info(what).await?;
        match stream.direct_get_last_for_subject(subject).await {
            Ok(message) => Ok(Some(message)),
            Err(error) if error.kind() == DirectGetErrorKind::NotFound => Ok(None),
            Err(error) => Err(self.away(error)),
        }
    }

    /// Replaces the record of that number, or creates it if that is 0. Returns its new number, or `None` if
    /// another process has replaced it meanwhile.
    pub(super) async fn replace(&self, record: &Record, number: u64) -> Result<Option<u64>> {
        let most = self.client.max_payload().saturating_sub(HEADERS);
        let bytes = Bytes::from(record.to_json(most));
        let message = PublishMessage::build().payload(bytes).expected_last_subject_sequence(number);
        let sent = self.context.send_publish(self.names.state(&record.job.id), message).await;
        let acknowledged = match sent {
            Ok(sent) => sent.await,
            Err(error) => Err(error),
        };
        match acknowledged {
            Ok(done) => Ok(Some(done.sequence)),
            Err(error) if error.kind() == PublishErrorKind::WrongLastSequence => Ok(None),
            Err(error) => Err(self.away(error)),
        }
    }

    /// Creates the first record of each job; true for those that had none. A record that has no room for the
    /// worker that gets the job is refused here: every worker would fail at it.
    pub(super) async fn create(&self, records: &[Record]) -> Result<Vec<bool>> {
        let most = self.client.max_payload();
        for record in records {
            let needed = record.to_json(usize::MAX).len() + HEADERS + GROWTH;
            if needed > most {
                return Err(self.refused(format!(
                    "{TOO_LARGE}: {} needs {needed} bytes, and the server takes {most}: raise max_payload in the \
                     server's configuration",
                    text::in_one_line(&record.job.name)
                )));
            }
        }
        let create = |record| async move { Ok(self.replace(record, 0).await?.is_some()) };
        stream::iter(records).map(create).buffered(IN_FLIGHT).try_collect().await
    }

    /// Queues a job, unless it is queued or held already.
    pub(super) async fn enqueue(&self, job: &Job) -> Result<()> {
        let sent = self.context.publish(self.names.queued(job), bytes(job)).await;
        match sent.map_err(|error| self.away(error))?.await {
            Err(error) if is_there_already(&error) => Ok(()),
            Err(error) => Err(self.away(error)),
            Ok(_) => Ok(()),
        }
    }

    /// Queues many jobs.
    pub(super) async fn enqueue_all(&self, jobs: &[&Job]) -> Result<()> {
        stream::iter(jobs).map(|job| self.enqueue(job)).buffered(IN_FLIGHT).try_collect().await
    }

    /// The number of a job's message in the queue, whether or not a worker holds it.
    pub(super) async fn queued(&self, job: &Job) -> Result<Option<u64>> {
        let stream = self.stream_without_info("queue").await?;
        match stream.get_last_raw_message_by_subject(&self.names.queued(job)).await {
            Ok(message) => Ok(Some(message.sequence)),
            Err(error) if error.kind() == LastRawMessageErrorKind::NoMessageFound => Ok(None),
            Err(error) => Err(self.away(error)),
        }
    }

    /// Removes a message from the queue. A newer one of the same job stays.
    pub(super) async fn dequeue(&self, number: Option<u64>) -> Result<()> {
        match number {
            Some(number) => self.delete("queue", number).await.map(drop),
            None => Ok(()),
        }
    }

    /// Removes a job, whose record has this number, and its results; false if the record has changed.
    /// `pieces` are those of all jobs, if the caller has requested them.
    pub(super) async fn forget(
        &self,
        record: &Record,
        number: u64,
        pieces: Option<&HashMap<String, Vec<u64>>>,
    ) -> Result<bool> {
        // A worker that gave it up may have left its message. A newer record has a newer message: so this
        // message is found first, and then the record must still be the same.
        let left = self.queued(&record.job).await?;
        let is_same = self.record(&record.job.id).await?.is_some_and(|found| found.number == number);
        if !is_same {
            return Ok(false);
        }
        self.dequeue(left).await?;
        if record.job.collect {
            match pieces {
                Some(pieces) => {
                    for piece in pieces.get(&record.job.id).into_iter().flatten() {
                        self.delete("results", *piece).await?;
                    }
                }
                None => self.forget_results(&record.job.id).await?,
            }
        }
        self.delete("state", number).await
    }

    /// Removes a job whose record cannot be read: its messages in all queues, its results and the record.
    pub(super) async fn forget_unreadable(&self, bad: &Unreadable) -> Result<bool> {
        // The number of a job has no `*`, but this text may be anything.
        let is_plain = !bad.id.contains(['*', '>', '.']) && !bad.id.is_empty();
        if !self.delete("state", bad.number).await? {
            return Ok(false);
        }
        if is_plain {
            self.purge("queue", self.names.queued_anywhere(&bad.id)).await?;
            self.forget_results(&bad.id).await?;
        }
        Ok(true)
    }

    /// The numbers of the stored pieces of each job's results. To purge one job's pieces a server looks at
    /// all of them, so a caller that removes many jobs requests them once.
    pub(super) async fn pieces(&self) -> Result<HashMap<String, Vec<u64>>> {
        let read =
            |message: &Message| Ok(message.info().map_err(|error| self.silent(error))?.stream_sequence);
        let found = self.list("results", self.names.all("results"), MessagePart::Subject, read).await?;
        let mut pieces = HashMap::<_, Vec<_>>::new();
        for (subject, number) in found {
            if let Some(id) = self.names.job_of_piece(&subject) {
                pieces.entry(id.to_owned()).or_default().push(number);
            }
        }
        Ok(pieces)
    }

    /// Deletes a message; false if it was not there. For many messages this is much faster than purging their
    /// subjects, for which a server looks at all messages.
    async fn delete(&self, what: &str, number: u64) -> Result<bool> {
        let stream = self.stream_without_info(what).await?;
        match stream.delete_message(number).await {
            Ok(is_deleted) => Ok(is_deleted),
            Err(error) if matches!(error.kind(), DeleteMessageErrorKind::JetStream(_)) => Ok(false),
            Err(error) => Err(self.away(error)),
        }
    }

    async fn purge(&self, what: &str, subject: String) -> Result<()> {
        let stream = self.stream_without_info(what).await?;
        stream.purge().filter(subject).await.map(drop).map_err(|error| self.away(error))
    }

    /// The records of all jobs, in the order in which they last changed.
    pub(super) async fn records(&self) -> Result<Vec<Newest>> {
        let all = self.names.all("state");
        let read = |message: &Message| {
            let number = message.info().map_err(|error| self.silent(error))?.stream_sequence;
            Ok(Newest::read(last_word(&message.subject), &message.payload, number, 0))
        };
        self.newest("state", all, read).await
    }

    /// The last report of each worker, and the reports that cannot be read.
    pub(super) async fn workers(&self) -> Result<(Vec<Worker>, Vec<Unreadable>)> {
        let all = self.names.all("workers");
        let read = |message: &Message| {
            let id = || text::in_one_line(last_word(&message.subject)).into_owned();
            Ok(serde_json::from_slice::<Worker>(&message.payload).map_err(|error| Unreadable {
                id: id(),
                reason: text::in_one_line(&error.to_string()).into_owned(),
                number: 0,
            }))
        };
        let (mut workers, mut unreadable) = (Vec::new(), Vec::new());
        for found in self.newest("workers", all, read).await? {
            match found {
                Ok(worker) if worker.gone => {}
                Ok(worker) => workers.push(worker),
                Err(bad) => unreadable.push(bad),
            }
        }
        Ok((workers, unreadable))
    }

    /// The last report of a worker and its number: a newer report has a higher one.
    pub(super) async fn worker(&self, instance: &str) -> Result<Option<(Worker, u64)>> {
        let Some(message) = self.last("workers", self.names.worker(instance)).await? else { return Ok(None) };
        let worker = serde_json::from_slice(&message.payload);
        if let Err(error) = &worker {
            let reason = error.to_string();
            tracing::warn!("farm: a worker's report cannot be read: {}", text::in_one_line(&reason));
        }
        Ok(worker.ok().map(|worker| (worker, message.sequence)))
    }

    /// The last message of each of some subjects of a stream.
    async fn newest<T>(
        &self,
        what: &str,
        subject: String,
        read: impl Fn(&Message) -> Result<T>,
    ) -> Result<Vec<T>> {
        let found = self.list(what, subject, MessagePart::All, read).await?;
        // Messages that were replaced meanwhile come twice.
        let mut subjects = HashSet::with_capacity(found.len());
        let newest =
            found.into_iter().rev().filter_map(|(subject, it)| subjects.insert(subject).then_some(it));
        let mut newest: Vec<_> = newest.collect();
        newest.reverse();
        Ok(newest)
    }

    /// Reads all messages of some subjects of a stream, each as it comes, with its subject.
    async fn list<T>(
        &self,
        what: &str,
        subject: String,
        part: MessagePart,
        read: impl Fn(&Message) -> Result<T>,
    ) -> Result<Vec<(String, T)>> {
        let stream = self.stream(what).await?;
        let consumer = self.reader(&stream, subject, part).await?;
        let name = consumer.cached_info().name.clone();
        let found = self.read_all(&stream, consumer, read).await;
        // Otherwise the server keeps it for a while, and each list creates one.
        let _ = stream.delete_consumer(&name).await;
        found
    }

    async fn read_all<T>(
        &self,
        stream: &Stream,
        consumer: Consumer<push::OrderedConfig>,
        read: impl Fn(&Message) -> Result<T>,
    ) -> Result<Vec<(String, T)>> {
        let last = stream.cached_info().state.last_sequence;
        let name = consumer.cached_info().name.clone();
        let (mut left, mut end) = (consumer.cached_info().num_pending, None);
        let (mut heard, mut delivered) = (Instant::now(), 0);
        let mut found = Vec::with_capacity(left as usize);
        let mut messages = consumer.messages().await.map_err(|error| self.away(error))?;
        // A record that is replaced meanwhile comes with its new number: for ever, if that continues, and not
        // at all if the server counts both.
        while left > 0 && end.is_none_or(|end| Instant::now() < end) {
            let patience = end.unwrap_or_else(|| Instant::now() + SILENCE);
            let next = match tokio::time::timeout_at(patience, messages.next()).await {
                Ok(next) => next,
                Err(_) if end.is_some() => break,
                Err(_) => {
                    // The rest may have been deleted meanwhile, or may have expired: then nothing comes.
                    let about = stream.consumer_info(&name).await;
                    let is_all = about
                        .is_ok_and(|it| it.num_pending == 0 && it.delivered.consumer_sequence <= delivered);
                    if is_all {
                        break;
                    }
                    if heard.elapsed() < ANSWER {
                        continue;
                    }
                    return Err(self.silent("it stopped in the middle of a list"));
                }
            };
            let Some(message) = next else { break };
            let message = message.map_err(|error| self.away(error))?;
            let info = message.info().map_err(|error| self.silent(error))?;
            (left, heard, delivered) = (info.pending, Instant::now(), info.consumer_sequence);
            if info.stream_sequence >= last {
                end.get_or_insert_with(|| Instant::now() + QUIET);
            }
            found.push((message.subject.to_string(), read(&message)?));
        }
        Ok(found)
    }

    /// A reader of a stream from its beginning. A cluster may create it on a server that is away, without an
    /// answer: a second request goes to another server.
    async fn reader(
        &self,
        stream: &Stream,
        subject: String,
        part: MessagePart,
    ) -> Result<Consumer<push::OrderedConfig>> {
        let mut tries = 0;
        loop {
            let config = push::OrderedConfig {
                deliver_subject: self.client.new_inbox(),
                filter_subject: subject.clone(),
                deliver_policy: DeliverPolicy::All,
                headers_only: part == MessagePart::Subject,
                ..push::OrderedConfig::default()
            };
            tries += 1;
            match tokio::time::timeout(Duration::from_secs(2), stream.create_consumer(config)).await {
                Ok(Ok(consumer)) => return Ok(consumer),
                Ok(Err(error)) if tries == READER_TRIES => return Err(self.away(error)),
                Err(_) if tries == READER_TRIES => return Err(self.silent("no answer")),
                Ok(Err(_)) | Err(_) => {}
            }
        }
    }

    /// Publishes this worker's report.
    pub(super) async fn beat(&self, worker: &Worker) -> Result<()> {
        let sent = self.context.publish(self.names.worker(&worker.instance), bytes(worker)).await;
        let sent = sent.map_err(|error| self.away(error))?;
        sent.await.map(drop).map_err(|error| self.away(error))
    }

    /// Stores the results files of a try of a job. A repetition changes nothing.
    pub(super) async fn keep_results(&self, id: &str, by: u64, files: &[Vec<u8>]) -> Result<()> {
        for (file, content) in files.iter().enumerate() {
            // No message may be larger than the server allows.
            let size = PIECE.min(self.client.max_payload()).max(1);
            for (piece, part) in content.chunks(size).enumerate() {
                let subject = self.names.piece(id, by, (file, piece));
                let sent = self.context.publish(subject, Bytes::copy_from_slice(part)).await;
                let sent = sent.map_err(|error| self.away(error))?;
                sent.await.map_err(|error| self.away(error))?;
            }
        }
        Ok(())
    }

    /// The stored results files of a job; `None` unless all are there and complete.
    pub(super) async fn results(&self, record: &Record) -> Result<Option<Vec<Vec<u8>>>> {
        let Some(kept) = &record.kept else { return Ok(None) };
        let stream = self.stream_without_info("results").await?;
        let mut files = Vec::with_capacity(kept.files.len());
        for (file, content) in kept.files.iter().enumerate() {
            let mut bytes = Vec::new();
            // Servers differ in how large pieces are.
            for piece in 0.. {
                if bytes.len() as u64 == content.bytes {
                    break;
                }
                let subject = self.names.piece(&record.job.id, kept.by, (file, piece));
                match stream.get_last_raw_message_by_subject(&subject).await {
                    Ok(message) if message.payload.is_empty() => return Ok(None),
                    Ok(message) => bytes.extend_from_slice(&message.payload),
                    Err(error) if error.kind() == LastRawMessageErrorKind::NoMessageFound => return Ok(None),
                    Err(error) => return Err(self.away(error)),
                }
                if bytes.len() as u64 > content.bytes {
                    return Ok(None);
                }
            }
            files.push(bytes);
        }
        let are_whole = files.iter().zip(&kept.files).all(|(file, content)| Content::of(file) == *content);
        Ok(are_whole.then_some(files))
    }

    /// Removes the stored results of a try of a job.
    pub(super) async fn forget_results_by(&self, id: &str, by: u64) -> Result<()> {
        self.purge("results", self.names.pieces_by(id, by)).await
    }

    /// Removes all stored results of a job.
    pub(super) async fn forget_results(&self, id: &str) -> Result<()> {
        self.purge("results", self.names.pieces(id)).await
    }
}

impl Newest {
    /// Reads the record of a job.
    fn read(id: &str, payload: &[u8], number: u64, at_ns: i128) -> Self {
        // An error quotes the record.
        let unreadable = |reason: String| {
            let [id, reason] = [id, &reason].map(|text| text::in_one_line(text).into_owned());
            Self::Unreadable(Unreadable { id, reason, number })
        };
        match serde_json::from_slice::<Record>(payload) {
            Ok(record) if record.job.id == id => match record.job.check_numbers() {
                Ok(()) => Self::Record(NumberedRecord { record, number, at_ns }.into()),
                Err(error) => unreadable(error.to_string()),
            },
            Ok(record) => unreadable(format!("it is the record of job {:?}", record.job.id)),
            Err(error) => unreadable(error.to_string()),
        }
    }
}

/// The last word of a subject.
fn last_word(subject: &str) -> &str {
    subject.rsplit('.').next().unwrap_or(subject)
}

/// The number of jobs of each status.
pub fn counts<'a>(records: impl IntoIterator<Item = &'a Record>) -> [u64; Status::ALL.len()] {
    let mut counts = [0; Status::ALL.len()];
    for record in records {
        counts[record.status as usize] += 1;
    }
    counts
}

fn bytes(value: &impl Serialize) -> Bytes {
    serde_json::to_vec(value).expect("what the farm keeps has names that are text").into()
}
