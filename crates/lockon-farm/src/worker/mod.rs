//! A worker: takes jobs from a farm and does a fixed number at a time.
//!
//! Each place for a job is a task that takes one, holds its lease while the fleet runs it, and reports its
//! end. `claim` decides whether this worker does a job, `attempt` does it.

mod attempt;
mod claim;
mod telling;

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use async_nats::jetstream::Message;
use async_nats::jetstream::consumer::PullConsumer;
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::access::Access;
use super::job::{Job, JobKind, LONGEST_ERROR, Progress, Worker, shortened};
use super::lease::{self, Fate, Lease};
use super::roots::Roots;
use super::runs::Runs;
use super::store::{self, Store};
use attempt::Attempt;
use claim::Claim;
use lockon_core::control::Control;
use lockon_core::error::{Error, Result};
use lockon_core::locks::{MutexGuard, lock};
use lockon_core::metrics::Registry;
use lockon_core::results::Summary;
use lockon_core::text;
use lockon_core::threads;
use lockon_run::run::{Count, Outlet};
use telling::describe;

pub use telling::News;

/// Time between two reports of a worker.
const BEAT: Duration = Duration::from_secs(1);

/// Time between two requests to a server that does not answer.
const PATIENCE: Duration = Duration::from_millis(500);

/// How long a draining worker waits for a server that is away, to report the ends of its jobs.
const LAST_WORDS: Duration = Duration::from_secs(10);

/// Time between two checks whether the worker must end.
const LOOK: Duration = Duration::from_millis(50);

/// The longest rest after jobs that failed here because storage was missing or full.
const LONGEST_REST: Duration = Duration::from_secs(8);

/// How a worker that is stopped treats its running jobs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Drain {
    /// They are finished. Cameras, which never end, are given back.
    #[default]
    Finish,
    /// They are given back, and start again elsewhere.
    GiveBack,
}

/// Options of a worker.
#[derive(Debug, Clone)]
pub struct WorkerOptions {
    /// Its name.
    pub name: String,
    /// lockon's version, whose jobs it takes.
    pub version: String,
    /// Files at a time.
    pub jobs: usize,
    /// Cameras and streams at a time.
    pub cameras: usize,
    /// After this time without a report from a worker, another one gets its jobs; one value for the whole
    /// farm. `None` leaves the value there: at first five seconds, three for cameras.
    pub lease: Option<Duration>,
    /// How it treats running jobs when it is stopped.
    pub drain: Drain,
    /// The files that its jobs may use.
    pub roots: Roots,
    /// Counts the jobs that run, and gets the counts of the worker and the farm.
    pub metrics: Option<Registry>,
    /// Open outputs of other crates for each job: see [`lockon_run::run::Prepared::start`].
    pub outlets: Vec<Arc<dyn Outlet>>,
}

/// A running worker.
struct Shared {
    store: Store,
    options: WorkerOptions,
    instance: String,
    runs: Runs,
    state: Mutex<State>,
    drains: watch::Receiver<bool>,
    tell: Box<dyn Fn(News) + Send + Sync>,
}

/// The state of a worker.
#[derive(Default)]
struct State {
    running: BTreeMap<String, Arc<Count>>,
    /// Running jobs whose earlier worker died, each with the maximum number of such jobs that may run with
    /// it.
    suspects: BTreeMap<String, usize>,
    done: u64,
    failed: u64,
    /// Jobs in a row that failed because storage was missing or full.
    wants: u32,
    rest: Option<(Instant, String)>,
    is_away: bool,
    /// The reason why the worker ends by itself: the server refuses a request that every job needs.
    end: Option<Error>,
}

impl State {
    /// Begins a rest, unless a longer one is running.
    fn begin_rest(&mut self, until: Instant, why: String) {
        if self.rest.as_ref().is_none_or(|(known, _)| *known < until) {
            self.rest = Some((until, why));
        }
    }

    /// Ends the rest if its time is over by `now`.
    fn end_rest(&mut self, now: Instant) {
        self.rest.take_if(|(until, _)| *until <= now);
    }
}

/// Does a farm's jobs until `control` is stopped, and then as [`Drain`] says. Waits for a server that is
/// away. Calls `tell` for that and for every job.
///
/// # Errors
/// `Refused` if the server does not accept this user, or cannot store jobs; `Usage` or `File` if the farm's
/// address or a file of it is wrong.
pub fn work(
    access: &Access,
    options: WorkerOptions,
    control: &Control,
    tell: impl Fn(News) + Send + Sync + 'static,
) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .thread_name("lockon-farm")
        .enable_all()
        .build()
        .map_err(|error| threads::refused("the worker", &error))?;
    let outcome = runtime.block_on(serve(access, options, control, Box::new(tell)));
    // Threads that hang on a disk are left behind.
    runtime.shutdown_timeout(Duration::from_secs(1));
    outcome
}

async fn serve(
    access: &Access,
    options: WorkerOptions,
    control: &Control,
    tell: Box<dyn Fn(News) + Send + Sync>,
) -> Result<()> {
    let (drain, drains) = watch::channel(false);
    let Some(store) = connect(access, &options, control, &tell).await? else { return Ok(()) };
    let runs = Runs::start(options.jobs)?;
    let (instance, state) = (instance(), Mutex::default());
    let shared = Arc::new(Shared { store, options, instance, runs, state, drains, tell });
    (shared.tell)(News::Ready { instance: shared.instance.clone() });
    let beating = tokio::spawn(shared.clone().beat());
    let mut places = JoinSet::new();
    for _ in 0..shared.options.jobs {
        places.spawn(shared.clone().take_jobs(JobKind::File));
    }
    for _ in 0..shared.options.cameras {
        places.spawn(shared.clone().take_jobs(JobKind::Live));
    }
    while !control.is_stopped() && shared.state().end.is_none() {
        tokio::time::sleep(LOOK).await;
    }
    let _ = drain.send(true);
    while let Some(ended) = places.join_next().await {
        if let Err(error) = ended {
            tracing::error!("farm: a place for jobs panicked: {error}");
        }
    }
    beating.abort();
    // The last report counts.
    let farewell = Worker { gone: true, ..shared.describe() };
    let patience = if shared.state().is_away { PATIENCE } else { LAST_WORDS };
    let _ = tokio::time::timeout(patience, shared.store.beat(&farewell)).await;
    shared.state().end.take().map_or(Ok(()), Err)
}

/// Connects, however long it takes; `None` if the worker must end before that.
async fn connect(
    access: &Access,
    options: &WorkerOptions,
    control: &Control,
    tell: &(dyn Fn(News) + Send + Sync),
) -> Result<Option<Store>> {
    let mut is_told = false;
    let mut pause = PATIENCE / 2;
    while !control.is_stopped() {
        match Store::open(access, &options.name).await {
            Ok(store) => {
                if is_told {
                    tell(News::Back);
                }
                return Ok(Some(store));
            }
            Err(error @ Error::Unreachable { .. }) => {
                if !is_told {
                    tell(News::Away(error));
                }
                is_told = true;
            }
            Err(error) => return Err(error),
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(Duration::from_secs(2));
    }
    Ok(None)
}

/// Runs slow disk work on a thread of its own, so that nothing else waits for it.
async fn on_disk<T: Send + 'static>(what: impl FnOnce() -> Result<T> + Send + 'static) -> Result<T> {
    tokio::task::spawn_blocking(what)
        .await
        .unwrap_or_else(|error| Err(Error::Panicked { what: "the farm".into(), message: error.to_string() }))
}

/// A name that no other worker has.
fn instance() -> String {
    use std::hash::{BuildHasher, RandomState};
    format!("{:08x}", RandomState::new().hash_one(std::process::id()) as u32)
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        // It is whole at every moment.
        lock(&self.state)
    }

    fn drains(&self) -> bool {
        *self.drains.borrow()
    }

    /// Waits until the worker must end.
    async fn drained(&self) {
        let mut drains = self.drains.clone();
        // The sender lives as long as the worker.
        let _ = drains.wait_for(|drains| *drains).await;
    }

    /// One place for a job: takes one after another.
    async fn take_jobs(self: Arc<Self>, kind: JobKind) {
        let mut consumer: Option<PullConsumer> = None;
        while !self.drains() {
            let pulled = tokio::select! {
                biased;
                () = self.drained() => return,
                pulled = self.next(kind, &mut consumer) => pulled,
            };
            match pulled {
                Ok(Some(message)) => {
                    self.is_back();
                    let lease = consumer
                        .as_ref()
                        .map_or_else(|| lease::usual(kind), |it| it.cached_info().config.ack_wait);
                    Box::pin(self.take(message, lease)).await;
                }
                Ok(None) => self.is_back(),
                Err(error) => {
                    self.is_away(error);
                    if self.has_end() {
                        return;
                    }
                    // The server may have lost its data, and the consumer too.
                    consumer = None;
                    tokio::select! {
                        () = self.drained() => {}
                        () = tokio::time::sleep(PATIENCE) => {}
                    }
                    let _ = self.store.ensure().await;
                }
            }
        }
    }

    async fn next(&self, kind: JobKind, consumer: &mut Option<PullConsumer>) -> Result<Option<Message>> {
        self.rest().await;
        if consumer.is_none() {
            let WorkerOptions { version, lease, .. } = &self.options;
            *consumer = Some(self.store.consumer(kind, version, *lease).await?);
        }
        let consumer = consumer.as_ref().expect("it was just made");
        self.store.pull(consumer).await
    }

    /// Decides about a job, does it, and reports its end.
    async fn take(&self, message: Message, length: Duration) {
        let id = message.subject.rsplit('.').next().unwrap_or_default().to_owned();
        let (lease, payload) = Lease::of(message, length);
        let read = serde_json::from_slice(&payload).map_err(|error| Error::Usage(error.to_string()));
        let is_its_own = |job: &Job| {
            if job.id == id { Ok(()) } else { Err(Error::Usage(format!("it is job {:?}", job.id))) }
        };
        let checked = |job: Job| job.check_numbers().and_then(|()| is_its_own(&job)).map(|()| job);
        let job = match read.and_then(checked) {
            Ok(job) => job,
            Err(error) => {
                let fate = lease.hold(self.bury(&id, &error)).await;
                return lease.end(fate).await;
            }
        };
        let count = Count::new();
        match self.state().running.entry(job.id.clone()) {
            // The server delivered it again, but this worker has it already.
            Entry::Occupied(_) => return,
            Entry::Vacant(place) => place.insert(count.clone()),
        };
        let fate = match Box::pin(lease.hold(self.claim(job))).await {
            Ok(Claim::Begin(claimed)) => Attempt { shared: self, lease: &lease, count, claimed }.make().await,
            Ok(Claim::End(fate)) => fate,
            // No worker can store that it has this job, so every worker would end.
            Err(error) if store::is_too_large(&error) => {
                let name = text::in_one_line(&id).into_owned();
                (self.tell)(News::Failed { name, error: error.to_string(), is_given_up: true });
                self.state().failed += 1;
                Fate::Close
            }
            Err(error) => {
                self.is_away(error);
                Fate::GiveBack(PATIENCE)
            }
        };
        lease.end(fate).await;
        let mut state = self.state();
        state.running.remove(&id);
        state.suspects.remove(&id);
    }

    /// Publishes this worker's reports.
    async fn beat(self: Arc<Self>) {
        loop {
            // A report that does not arrive in time is dropped.
            if let Ok(Err(error)) = tokio::time::timeout(BEAT, self.store.beat(&self.describe())).await {
                tracing::debug!("farm: {error}");
            }
            if let Some(registry) = &self.options.metrics {
                let queues = self.store.queues().await.ok();
                registry.set_more(describe(&self.describe(), queues.as_deref()));
            }
            tokio::time::sleep(BEAT).await;
        }
    }

    fn describe(&self) -> Worker {
        let WorkerOptions { name, version, jobs, cameras, .. } = &self.options;
        let state = self.state();
        Worker {
            name: name.clone(),
            instance: self.instance.clone(),
            version: version.clone(),
            jobs: *jobs,
            cameras: *cameras,
            done: state.done,
            failed: state.failed,
            draining: self.drains(),
            gone: false,
            resting: state.rest.as_ref().map(|(_, why)| why.clone()),
            running: state.running.iter().map(|(id, count)| Progress::of(id, count)).collect(),
        }
    }

    /// Waits until the worker may accept jobs: also for a rest that began or grew meanwhile.
    async fn rest(&self) {
        loop {
            let rest = self.state().rest.as_ref().map(|(until, _)| *until);
            let Some(until) = rest else { return };
            tokio::time::sleep_until(until.into()).await;
            self.state().end_rest(Instant::now());
        }
    }

    /// Rests after several jobs in a row that failed here because storage was missing or full: other workers
    /// may have it, and a worker that fails at once would get all jobs.
    fn rest_after(&self, why: &str) {
        // The server would refuse a report that is too large.
        let why = shortened(why, LONGEST_ERROR / 10);
        let mut state = self.state();
        state.wants += 1;
        let rest = (PATIENCE / 2).saturating_mul(1 << state.wants.min(8)).min(LONGEST_REST);
        state.begin_rest(Instant::now() + rest, why.clone());
        let wants = state.wants;
        drop(state);
        if wants > 1 {
            (self.tell)(News::Resting { rest, why });
        }
    }

    /// Repeats a request while the server is away. Returns its answer, or `None` if the worker must end and
    /// has waited long enough.
    ///
    /// # Errors
    /// Permanent ones: `Refused`, with the server's own words.
    async fn insist<T, F: Future<Output = Result<T>>>(&self, ask: impl Fn() -> F) -> Result<Option<T>> {
        let mut since_drain = None;
        loop {
            match ask().await {
                Ok(answer) => {
                    self.is_back();
                    return Ok(Some(answer));
                }
                Err(error @ Error::Refused { .. }) => return Err(error),
                Err(error) => self.is_away(error),
            }
            tokio::time::sleep(PATIENCE).await;
            if self.drains() && since_drain.get_or_insert_with(Instant::now).elapsed() >= LAST_WORDS {
                return Ok(None);
            }
        }
    }

    /// Reports a failed request. If waiting does not help, the worker ends.
    fn is_away(&self, error: Error) {
        if matches!(error, Error::Refused { .. }) {
            self.state().end.get_or_insert(error);
        } else if !std::mem::replace(&mut self.state().is_away, true) {
            (self.tell)(News::Away(error));
        }
    }

    /// True if the worker ends by itself.
    fn has_end(&self) -> bool {
        self.state().end.is_some()
    }

    fn is_back(&self) {
        if std::mem::replace(&mut self.state().is_away, false) {
            (self.tell)(News::Back);
        }
    }

    fn has_done(&self, name: &str, summary: Summary, min_score: f64) {
        let mut state = self.state();
        (state.done, state.wants) = (state.done + 1, 0);
        drop(state);
        (self.tell)(News::Done { name: name.into(), summary: Box::new(summary), min_score });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_longer_rest_outlasts_an_older_shorter_one() {
        let mut state = State::default();
        let begin = Instant::now();
        let at = |seconds| begin + Duration::from_secs(seconds);
        state.begin_rest(at(1), "short".into());
        state.begin_rest(at(8), "long".into());
        state.begin_rest(at(2), "short again".into());
        state.end_rest(at(1));
        assert_eq!(state.rest, Some((at(8), "long".into())));
        state.end_rest(at(8));
        assert_eq!(state.rest, None);
    }
}
