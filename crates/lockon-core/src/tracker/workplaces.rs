//! The threads that follow targets, and the buffers that each needs.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, Weak};

use rayon::prelude::*;

use super::eye::Eyes;
use super::sample::Window;
use crate::locks::{MutexGuard, lock};
use crate::workers;

/// The memory that one thread needs to follow a target.
pub(super) struct Workplace {
    pub(super) eyes: Eyes,
    /// The places of other targets, which this one must not be confused with.
    pub(super) rivals: Vec<Window>,
}

impl Workplace {
    fn new() -> Self {
        Self { eyes: Eyes::new(), rivals: Vec::new() }
    }
}

/// Threads that share work, if there are several.
pub(super) struct Threads {
    /// 0 is the calling thread alone, as is 1.
    count: usize,
    pool: Option<Arc<rayon::ThreadPool>>,
}

impl Threads {
    pub(super) fn new(count: usize) -> Self {
        Self { count, pool: None }
    }

    /// Their number.
    pub(super) fn count(&self) -> usize {
        self.count.max(1)
    }

    /// Runs `work`, which shares its work among the threads if there is enough. Once a frame: handing it over
    /// to the pool takes as long as a tenth of a look at a window.
    fn run<R: Send>(&self, work: impl FnOnce() -> R + Send) -> R {
        match &self.pool {
            Some(pool) => pool.install(work),
            None => work(),
        }
    }

    /// True if this thread is one of the pool's.
    fn is_among_them(&self) -> bool {
        self.pool.as_ref().is_some_and(|pool| pool.current_thread_index().is_some())
    }

    /// Does `work` for each row of `width` items with its number, in any order; a thread takes `at_once` of
    /// them.
    pub(super) fn rows<T: Send>(
        &self,
        items: &mut [T],
        (width, at_once): (usize, usize),
        work: impl Fn(usize, &mut [T]) + Sync,
    ) {
        let band = |(index, rows): (usize, &mut [T])| {
            for (y, row) in (index * at_once..).zip(rows.chunks_mut(width)) {
                work(y, row);
            }
        };
        if self.is_among_them() {
            items.par_chunks_mut(width * at_once).enumerate().with_max_len(1).for_each(band);
        } else {
            items.chunks_mut(width * at_once).enumerate().for_each(band);
        }
    }

    fn start(&mut self) {
        if self.pool.is_some() || self.count < 2 {
            return;
        }
        match workers::pool("tracker", self.count) {
            Ok(pool) => self.pool = Some(pool),
            Err(error) => {
                tracing::warn!("targets are followed on one thread: {error}");
                self.count = 1;
            }
        }
    }
}

/// Workplaces that no thread uses.
///
/// They are as large as a processor's second cache, so each processor takes the one that was left on it last,
/// which that cache still has, whatever its threads do.
struct Idle {
    /// The number of workplaces, also those in use.
    made: AtomicUsize,
    of_processors: [Mutex<Vec<Workplace>>; PROCESSORS],
}

/// Beyond so many, several processors share their places.
const PROCESSORS: usize = 64;

impl Default for Idle {
    fn default() -> Self {
        Self { made: AtomicUsize::new(0), of_processors: std::array::from_fn(|_| Mutex::default()) }
    }
}

impl Idle {
    fn on(&self, processor: usize) -> MutexGuard<'_, Vec<Workplace>> {
        lock(&self.of_processors[processor % PROCESSORS])
    }

    /// Returns one that was left on this processor; else one of any other; else a new one.
    fn take(&self) -> Workplace {
        let here = processor();
        let left = (here..here + PROCESSORS).find_map(|processor| self.on(processor).pop());
        left.unwrap_or_else(|| self.make())
    }

    fn make(&self) -> Workplace {
        self.made.fetch_add(1, Ordering::Relaxed);
        Workplace::new()
    }

    /// Sees to it that there are so many, so that none has to be made as soon as so many work at once.
    fn provide(&self, count: usize) {
        while self.made.load(Ordering::Relaxed) < count {
            self.leave(self.make());
        }
    }

    fn leave(&self, place: Workplace) {
        self.on(processor()).push(place);
    }
}

/// The processor that this thread is on just now; 0 where that is not known.
fn processor() -> usize {
    #[cfg(target_os = "linux")]
    return rustix::thread::sched_getcpu();
    #[cfg(not(target_os = "linux"))]
    return 0;
}

/// The workplaces of all trackers of the process, while there is one: many videos at once need no more of
/// them than threads are at work.
static IDLE: Mutex<Weak<Idle>> = Mutex::new(Weak::new());

/// The threads that follow targets, and their buffers.
pub(super) struct Workplaces {
    pub(super) threads: Threads,
    idle: Arc<Idle>,
}

impl Workplaces {
    /// For so many threads.
    pub(super) fn new(threads: usize) -> Self {
        let mut shared = lock(&IDLE);
        let idle = shared.upgrade().unwrap_or_default();
        *shared = Arc::downgrade(&idle);
        Self { threads: Threads::new(threads), idle }
    }

    /// Runs `work` on the calling thread alone, or where it can share with all.
    pub(super) fn run<R: Send>(&mut self, is_shared: bool, work: impl FnOnce(&Self) -> R + Send) -> R {
        if !is_shared {
            return work(self);
        }
        self.threads.start();
        let this = &*self;
        this.threads.run(|| work(this))
    }

    /// Does `work` for each item, in any order, on all threads where it is run among them.
    pub(super) fn each<T: Send>(&self, items: &mut [T], work: impl Fn(&mut T, &mut Workplace) + Sync) {
        let one = |item: &mut T| self.with_one(|place| work(item, place));
        // One by one: a turned target takes longer than another.
        if self.threads.is_among_them() {
            self.idle.provide(self.threads.count.min(items.len()));
            items.par_iter_mut().with_max_len(1).for_each(one);
        } else {
            items.iter_mut().for_each(one);
        }
    }

    /// Does `work` in a workplace.
    pub(super) fn with_one<R>(&self, work: impl FnOnce(&mut Workplace) -> R) -> R {
        let mut place = self.idle.take();
        let result = work(&mut place);
        self.idle.leave(place);
        result
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_workplace_that_was_left_is_taken_by_the_next_tracker_and_gone_with_the_last() {
        // Other tests have trackers at the same time, so these have a pool of their own.
        let idle = Arc::new(Idle::default());
        let [one, other] = [0, 1].map(|_| Workplaces { threads: Threads::new(1), idle: idle.clone() });
        // Its buffers stay where they are, however it is moved.
        let place = |workplaces: &Workplaces| {
            workplaces.with_one(|place| {
                place.rivals.reserve(1);
                place.rivals.as_ptr().addr()
            })
        };
        let first = place(&one);
        assert_eq!(place(&other), first);
        // While it is taken another one is made.
        one.with_one(|_| assert_ne!(place(&other), first));
        assert_eq!(idle.of_processors.iter().map(|places| places.lock().unwrap().len()).sum::<usize>(), 2);
        let shared = [Workplaces::new(1), Workplaces::new(2)];
        assert!(Arc::ptr_eq(&shared[0].idle, &shared[1].idle));
        let weak = Arc::downgrade(&idle);
        drop((idle, one, other));
        assert!(weak.upgrade().is_none());
    }
}
