//! Many videos at once: a run of its own for each, in one process.
//!
//! Runs share the open devices, the loaded kernels and the pools of threads of the process. Each has its own
//! thread for the engine, its own pipeline, and its own results, equal to the bit to those of a run that is
//! alone. A failed run does not affect the others.
//!
//! ```no_run
//! use lockon_run::fleet::{Entry, Fleet};
//! use lockon_run::request::Request;
//!
//! let mut fleet = Fleet::new(4);
//! for name in ["a", "b", "c"] {
//!     let mut request = Request::new(format!("{name}.mp4"))?;
//!     request.track.push("310,120,64,128".parse()?);
//!     request.results.push(format!("{name}.jsonl"));
//!     fleet.add(Entry::new(name, request));
//! }
//! while let Some(ended) = fleet.wait() {
//!     match ended.outcome {
//!         Ok(()) => println!("{}: {} frames", ended.name, ended.summary.frames),
//!         Err(error) => println!("{}: {error}", ended.name),
//!     }
//! }
//! # Ok::<(), lockon_core::Error>(())
//! ```

mod done;
mod list;
mod start;

use std::collections::{BTreeMap, VecDeque};
use std::fs::File;
use std::ops::Range;
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use crossbeam_channel::{Receiver, Sender};

use crate::backend::cuda;
use crate::request::{Request, Share};
use crate::run::{Outlet, Prepared, Run, Video};
use crate::setup;
use lockon_core::config::BackendChoice;
use lockon_core::control::Control;
use lockon_core::error::{Error, Result, catch_panic};
use lockon_core::locks::{MutexGuard, lock};
use lockon_core::results::Summary;
use lockon_core::threads;
use lockon_gst::launch;

pub use done::{Completion, completion};
pub use list::{check, read_list};
use start::Start;

/// A run to do.
pub struct Entry {
    /// The name in messages and metrics.
    pub name: String,
    /// The request to run.
    pub request: Request,
    /// See [`Entry::with_outlets`].
    outlets: Vec<Arc<dyn Outlet>>,
    /// Called when the run is open, before its first frame: to add outputs, for example.
    opened: Option<Box<Opened>>,
    /// Adapts the run before it is started: see [`Entry::seeking`] and the methods like it.
    adapt: Box<dyn FnOnce(Prepared) -> Prepared + Send>,
}

type Opened = dyn FnOnce(&mut Run) -> Result<()> + Send;

impl Entry {
    /// A run with a name.
    pub fn new(name: impl Into<String>, request: Request) -> Self {
        let adapt = Box::new(|prepared| prepared);
        Self { name: name.into(), request, outlets: Vec::new(), opened: None, adapt }
    }

    /// Opens outputs of other crates with it: see [`crate::run::Prepared::start`].
    #[must_use]
    pub fn with_outlets(self, outlets: Vec<Arc<dyn Outlet>>) -> Self {
        Self { outlets, ..self }
    }

    /// Returns this entry for a video from an open file: see [`crate::run::Prepared::reading`].
    #[must_use]
    pub fn reading(self, file: Arc<File>) -> Self {
        self.adapted(move |prepared| prepared.reading(file))
    }

    /// Allows it to open only this for its video: see [`crate::run::Prepared::confined_to`].
    #[must_use]
    pub fn confined_to(self, video: Video) -> Self {
        self.adapted(move |prepared| prepared.confined_to(video))
    }

    /// Returns this entry so that it begins to decode at `--start`: see [`crate::run::Prepared::seeking`].
    #[must_use]
    pub fn seeking(self) -> Self {
        self.adapted(Prepared::seeking)
    }

    /// Returns this entry without colours that it does not use: see
    /// [`crate::run::Prepared::sparing_colours`].
    #[must_use]
    pub fn sparing_colours(self) -> Self {
        self.adapted(Prepared::sparing_colours)
    }

    /// Returns this entry with a callback: `opened` is called when the run is open, on its thread, and its
    /// error is the run's.
    #[must_use]
    pub fn when_opened(self, opened: impl FnOnce(&mut Run) -> Result<()> + Send + 'static) -> Self {
        Self { opened: Some(Box::new(opened)), ..self }
    }

    fn adapted(self, next: impl FnOnce(Prepared) -> Prepared + Send + 'static) -> Self {
        let before = self.adapt;
        Self { adapt: Box::new(move |prepared| next(before(prepared))), ..self }
    }
}

/// Identifies a run of a fleet: its number, in the order in which runs were added.
pub type RunId = u64;

/// A run that has ended.
#[derive(Debug)]
pub struct Ended {
    /// Its number.
    pub id: RunId,
    /// Its name.
    pub name: String,
    /// The request that was run.
    pub request: Request,
    /// The work that was done; empty if the run did not begin.
    pub summary: Summary,
    /// The error, if the run failed.
    pub outcome: Result<()>,
}

/// The number of runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counts {
    /// Runs that wait for others to end.
    pub waiting: usize,
    /// Runs that are in progress.
    pub running: usize,
    /// Runs that have ended.
    pub ended: usize,
}

/// Runs, with a limit on the number of files that are processed at the same time. Live sources do not wait
/// for others. Dropping the fleet ends all runs and waits for them.
pub struct Fleet {
    shared: Arc<Shared>,
    ended: Receiver<Ended>,
    threads: Vec<JoinHandle<Option<()>>>,
    next: RunId,
    /// Ends of runs that [`Fleet::wait`] has not returned yet.
    untold: usize,
}

struct Shared {
    /// Files at a time.
    jobs: usize,
    control: Control,
    state: Mutex<State>,
    tell: Sender<Ended>,
}

#[derive(Default)]
struct State {
    line: VecDeque<(RunId, Entry)>,
    running: BTreeMap<RunId, Control>,
    /// How many of them are files.
    files: usize,
    ended: usize,
}

impl Fleet {
    /// An empty fleet that processes so many files at a time, one or more.
    pub fn new(jobs: usize) -> Self {
        Self::under(jobs, &Control::new())
    }

    /// As [`Fleet::new`], and all runs end with `control`.
    pub fn under(jobs: usize, control: &Control) -> Self {
        let (tell, ended) = crossbeam_channel::unbounded();
        let shared = Shared { jobs: jobs.max(1), control: control.clone(), state: Mutex::default(), tell };
        Self { shared: Arc::new(shared), ended, threads: Vec::new(), next: 0, untold: 0 }
    }

    /// Adds a run, which starts as soon as there is a place for it.
    pub fn add(&mut self, entry: Entry) -> RunId {
        let ids = self.add_all([entry]);
        ids.start
    }

    /// Adds runs that start together, as far as there are places: each gets the number of runs, so that it
    /// takes its share of the processor. Files that play at their own speed begin when all are ready.
    pub fn add_all(&mut self, entries: impl IntoIterator<Item = Entry>) -> Range<RunId> {
        let first = self.next;
        let entries = (first..).zip(entries).map(|(id, entry)| (is_live(&entry.request), (id, entry)));
        let entries: Vec<_> = entries.collect();
        self.next += entries.len() as RunId;
        self.untold += entries.len();
        let mut state = self.shared.state();
        let plays_at_own_speed = |entry: &Entry| entry.request.live;
        let count = entries.iter().filter(|(_, (_, entry))| plays_at_own_speed(entry)).count();
        let (mut tasks, mut places) = (Vec::new(), Start::places(count));
        for (is_live, entry) in entries {
            if is_live || state.files < self.shared.jobs {
                let start = if plays_at_own_speed(&entry.1) { places.pop() } else { None };
                tasks.push(Task { start, ..self.shared.begin(&mut state, entry, !is_live) });
            } else {
                state.line.push_back(entry);
            }
        }
        let share = Share::among(state.running.len());
        drop(state);
        self.threads.retain(|thread| !thread.is_finished());
        for task in tasks {
            let (shared, name) = (self.shared.clone(), format!("run-{}", task.id));
            let thread = std::thread::Builder::new().name(name);
            // Without a thread the run is reported as failed.
            let task = Arc::new(Mutex::new(Some(task)));
            let taken = task.clone();
            let take = |task: &Mutex<Option<Task>>| lock(task).take();
            match thread.spawn(move || take(&taken).map(|task| shared.work(task, share))) {
                Ok(thread) => self.threads.push(thread),
                Err(error) => take(&task).into_iter().for_each(|task| self.shared.refuse(task, &error)),
            }
        }
        first..self.next
    }

    /// Ends a run and completes its outputs. A waiting run does not begin.
    pub fn remove(&self, id: RunId) {
        let mut state = self.shared.state();
        if let Some(control) = state.running.get(&id) {
            control.stop();
        } else if let Some(at) = state.line.iter().position(|(other, _)| *other == id) {
            let entry = state.line.remove(at).expect("it was just found");
            self.shared.leave_out(&mut state, entry);
        }
    }

    /// Ends all runs.
    pub fn stop(&self) {
        let mut state = self.shared.state();
        for control in state.running.values() {
            control.stop();
        }
        self.shared.leave_out_all(&mut state);
    }

    /// Waits for the next run to end and returns its end; `None` if all ends were returned.
    pub fn wait(&mut self) -> Option<Ended> {
        if self.untold == 0 {
            return None;
        }
        let ended = self.ended.recv().ok()?;
        self.untold -= 1;
        Some(ended)
    }

    /// The next run that ends, if one does within `timeout`.
    pub fn wait_timeout(&mut self, timeout: Duration) -> Option<Ended> {
        let ended = self.ended.recv_timeout(timeout).ok()?;
        self.untold -= 1;
        Some(ended)
    }

    /// True if all ends were returned.
    pub fn is_done(&self) -> bool {
        self.untold == 0
    }

    /// How many runs there are now.
    pub fn counts(&self) -> Counts {
        let state = self.shared.state();
        Counts { waiting: state.line.len(), running: state.running.len(), ended: state.ended }
    }
}

impl Drop for Fleet {
    fn drop(&mut self) {
        self.stop();
        for thread in self.threads.drain(..) {
            // A panic has been reported as its run's error.
            let _ = thread.join();
        }
    }
}

/// A run that has begun.
struct Task {
    id: RunId,
    entry: Entry,
    control: Control,
    is_file: bool,
    /// With the other files that play at their own speed.
    start: Option<Start>,
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        // It is consistent at every moment.
        lock(&self.state)
    }

    fn begin(&self, state: &mut State, (id, entry): (RunId, Entry), is_file: bool) -> Task {
        let control = self.control.child();
        state.running.insert(id, control.clone());
        state.files += usize::from(is_file);
        Task { id, entry, control, is_file, start: None }
    }

    /// Does a run, and after a file the files that wait for a place.
    fn work(&self, task: Task, share: Share) {
        let mut next = Some(task);
        while let Some(task) = next {
            let (id, is_file) = (task.id, task.is_file);
            let ended = task.run(share);
            let mut state = self.end(id, is_file);
            next = if is_file {
                state.line.pop_front().map(|entry| self.begin(&mut state, entry, true))
            } else {
                None
            };
            drop(state);
            // While the fleet is dropped there is no receiver for the ends.
            let _ = self.tell.send(ended);
        }
    }

    /// A run has ended. After the end of all no other begins.
    fn end(&self, id: RunId, is_file: bool) -> MutexGuard<'_, State> {
        let mut state = self.state();
        state.running.remove(&id);
        state.files -= usize::from(is_file);
        state.ended += 1;
        if self.control.is_stopped() {
            self.leave_out_all(&mut state);
        }
        state
    }

    fn leave_out_all(&self, state: &mut State) {
        while let Some(entry) = state.line.pop_front() {
            self.leave_out(state, entry);
        }
    }

    /// Reports that a waiting run will not begin.
    fn leave_out(&self, state: &mut State, (id, Entry { name, request, .. }): (RunId, Entry)) {
        state.ended += 1;
        let summary = Summary { interrupted: true, ..Summary::default() };
        let _ = self.tell.send(Ended { id, name, request, summary, outcome: Err(Error::Stopped) });
    }

    /// Ends a run that gets no thread.
    fn refuse(&self, Task { id, entry, is_file, .. }: Task, error: &std::io::Error) {
        let mut state = self.end(id, is_file);
        // Runs that end start the waiting ones.
        if state.files == 0 {
            self.leave_out_all(&mut state);
        }
        drop(state);
        let Entry { name, request, .. } = entry;
        let outcome = Err(threads::refused(&format!("the run of {name}"), error));
        let _ = self.tell.send(Ended { id, name, request, summary: Summary::default(), outcome });
    }
}

impl Task {
    fn run(self, share: Share) -> Ended {
        let Self { id, entry, control, start, .. } = self;
        let Entry { name, request, outlets, opened, adapt } = entry;
        let _said_of_it = tracing::error_span!("video", name).entered();
        let run = || -> Result<(Summary, Result<()>)> {
            control.check()?;
            let prepared = adapt(request.prepare_for(share)?);
            let turn = start.as_ref().map(|start| start.turn_to_open(&control)).transpose()?;
            let mut run = prepared.start(&control, &outlets)?;
            drop(turn);
            opened.map_or(Ok(()), |opened| opened(&mut run))?;
            // A camera's frames come already.
            let start = start.filter(|_| run.is_waiting_to_play());
            start.map_or(Ok(()), |start| start.wait(&control))?;
            Ok(run.finish())
        };
        let done = catch_panic(run)
            .unwrap_or_else(|message| Err(Error::Panicked { what: format!("the run of {name}"), message }));
        let (summary, outcome) = done.unwrap_or_else(|error| {
            let interrupted = matches!(error, Error::Stopped);
            (Summary { interrupted, ..Summary::default() }, Err(error))
        });
        Ended { id, name, request, summary, outcome }
    }
}

/// Returns the default number of files processed at a time: the number of cores, or twice that with a GPU.
pub fn usual_jobs(request: &Request) -> usize {
    let on_gpu = match request.backend {
        BackendChoice::Cpu => false,
        BackendChoice::Cuda(_) | BackendChoice::CudaOf(_) => true,
        BackendChoice::Auto => cuda::device(0).is_ok(),
    };
    setup::threads(None) * if on_gpu { 2 } else { 1 }
}

/// True if frames come at their own pace, so that the run cannot wait for another to end.
pub fn is_live(request: &Request) -> bool {
    let is_camera = || {
        let Ok(spec) = request.source_spec() else { return false };
        // A camera at an http:// address shows what it is only when it is opened; but a file is never
        // connected to again.
        request.reconnect && spec.can_reconnect()
            || launch::init().is_ok() && spec.is_real_time().unwrap_or(false)
    };
    request.live || !request.lossless && is_camera()
}
