//! The seam between the farm, which waits for a server, and a fleet, which has threads of its own: one thread
//! that passes entries to the fleet and ends of runs back.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender};
use tokio::sync::oneshot;

use lockon_core::error::Result;
use lockon_core::threads;
use lockon_run::fleet::{Ended, Entry, Fleet, RunId};

/// Time between two checks for entries while runs are active: an entry waits at most this long, an end not at
/// all.
const TICK: Duration = Duration::from_millis(4);

/// A fleet that other threads use. Dropping it ends all runs.
pub(super) struct Runs {
    asks: Sender<Ask>,
    next: AtomicU64,
}

/// The number of a run.
pub(super) type Ticket = u64;

enum Ask {
    Begin(Ticket, Box<Entry>, oneshot::Sender<Ended>),
    Stop(Ticket),
}

impl Runs {
    /// A fleet that processes so many files at a time.
    pub(super) fn start(files: usize) -> Result<Self> {
        let (asks, asked) = crossbeam_channel::unbounded();
        let serve = move || serve(files, &asked);
        let started = std::thread::Builder::new().name("lockon-runs".into()).spawn(serve);
        started.map_err(|error| threads::refused("the fleet", &error))?;
        Ok(Self { asks, next: AtomicU64::new(0) })
    }

    /// Begins a run; its end comes through the channel.
    pub(super) fn begin(&self, entry: Entry) -> (Ticket, oneshot::Receiver<Ended>) {
        let (tell, ended) = oneshot::channel();
        let ticket = self.next.fetch_add(1, Ordering::Relaxed);
        // Without the thread the channel is closed, and the caller gets an error.
        let _ = self.asks.send(Ask::Begin(ticket, Box::new(entry), tell));
        (ticket, ended)
    }

    /// Stops a run. Its outputs are closed properly, and its end is reported as any other.
    pub(super) fn stop(&self, ticket: Ticket) {
        let _ = self.asks.send(Ask::Stop(ticket));
    }
}

fn serve(files: usize, asked: &Receiver<Ask>) {
    let mut fleet = Fleet::new(files);
    let mut waiting: HashMap<RunId, (Ticket, oneshot::Sender<Ended>)> = HashMap::new();
    loop {
        let wait = if waiting.is_empty() { Duration::from_hours(1) } else { Duration::ZERO };
        match asked.recv_timeout(wait) {
            Ok(Ask::Begin(ticket, entry, tell)) => {
                waiting.insert(fleet.add(*entry), (ticket, tell));
                continue;
            }
            Ok(Ask::Stop(ticket)) => {
                if let Some((id, _)) = waiting.iter().find(|(_, (known, _))| *known == ticket) {
                    fleet.remove(*id);
                }
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return,
        }
        if waiting.is_empty() {
            continue;
        }
        if let Some(ended) = fleet.wait_timeout(TICK)
            && let Some((_, tell)) = waiting.remove(&ended.id)
        {
            // While the worker ends the receiver may be gone.
            let _ = tell.send(ended);
        }
    }
}
