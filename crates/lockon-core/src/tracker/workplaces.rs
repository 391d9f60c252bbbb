//! The threads that follow targets, and what each of them needs for that.

use std::sync::{Arc, Mutex};

use rayon::prelude::*;

use super::eye::Eyes;
use super::sample::Window;
use crate::workers;

/// What one thread needs to follow a target.
pub(super) struct Workplace {
    pub(super) eyes: Eyes,
    /// Where the targets are that this one must not be taken for.
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

    /// Runs `work`, which hands out what it has to as many threads if there is enough of it. Once a frame:
    /// handing it over to the pool takes as long as a tenth of a look at a window.
    fn run<R: Send>(&self, work: impl FnOnce() -> R + Send) -> R {
        match &self.pool {
            Some(pool) => pool.install(work),
            None => work(),
        }
    }

    /// This thread's number, if it is one of the pool's.
    fn index(&self) -> Option<usize> {
        self.pool.as_ref()?.current_thread_index()
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
        if self.index().is_some() {
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

/// The threads that follow targets, and a workplace for each of them: these are large, and made when they are
/// needed.
pub(super) struct Workplaces {
    pub(super) threads: Threads,
    /// Each thread of the pool has its own, which it finds in its caches again, and waits for no other. The
    /// first one is the calling thread's while the pool rests.
    places: Vec<Mutex<Option<Workplace>>>,
}

impl Workplaces {
    /// For so many threads.
    pub(super) fn new(threads: usize) -> Self {
        Self {
            threads: Threads::new(threads),
            places: (0..threads.max(1)).map(|_| Mutex::default()).collect(),
        }
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

    /// Does `work` for each item, in any order, on all threads where it is run among them. It must not share
    /// out anything itself: while a thread waits for that, it may be given another item, and its workplace is
    /// taken.
    pub(super) fn each<T: Send>(&self, items: &mut [T], work: impl Fn(&mut T, &mut Workplace) + Sync) {
        let one = |item: &mut T| self.with_own(|place| work(item, place));
        // One by one: a target that has turned takes longer than another.
        match self.threads.index() {
            Some(_) => items.par_iter_mut().with_max_len(1).for_each(one),
            None => items.iter_mut().for_each(one),
        }
    }

    /// Does `work` in this thread's workplace.
    pub(super) fn with_own<R>(&self, work: impl FnOnce(&mut Workplace) -> R) -> R {
        let place = &self.places[self.threads.index().unwrap_or(0)];
        let mut place = place.lock().expect("what fails in a workplace ends the run");
        work(place.get_or_insert_with(Workplace::new))
    }
}
