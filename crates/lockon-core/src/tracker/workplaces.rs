//! The threads that follow targets, and what each of them needs for that.

use std::sync::Mutex;

use rayon::prelude::*;

use super::eye::Eyes;
use super::sample::Window;

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

/// The threads that follow targets, and a workplace for each of them: these are large, and made when they are
/// needed.
pub(super) struct Workplaces {
    threads: usize,
    pool: Option<rayon::ThreadPool>,
    /// Each thread of the pool has its own, which it finds in its caches again, and waits for no other. The
    /// first one is the calling thread's while the pool rests.
    places: Vec<Mutex<Option<Workplace>>>,
}

impl Workplaces {
    /// For so many threads; 0 is the calling thread alone, as is 1.
    pub(super) fn new(threads: usize) -> Self {
        let threads = threads.max(1);
        Self { threads, pool: None, places: (0..threads).map(|_| Mutex::default()).collect() }
    }

    /// Does `work` for each item, in any order. It must not hand out work itself: while a thread waits for
    /// that, it may be given another item, and its workplace is taken.
    pub(super) fn each<T: Send>(&mut self, items: &mut [T], work: impl Fn(&mut T, &mut Workplace) + Sync) {
        if self.threads > 1 && items.len() > 1 {
            self.start();
        }
        let Some(pool) = self.pool.as_ref().filter(|_| items.len() > 1) else {
            let first = self.first();
            return items.iter_mut().for_each(|item| work(item, first));
        };
        let places = &self.places;
        let one = |item| {
            let index = rayon::current_thread_index().expect("threads of the pool do the work");
            let mut place = places[index].lock().expect("what fails in a workplace ends the run");
            work(item, place.get_or_insert_with(Workplace::new));
        };
        // One by one: a target that is lost takes several times as long as another.
        pool.install(|| items.par_iter_mut().with_max_len(1).for_each(one));
    }

    /// That of the calling thread, while no other works.
    pub(super) fn first(&mut self) -> &mut Workplace {
        let place = self.places[0].get_mut().expect("what fails in a workplace ends the run");
        place.get_or_insert_with(Workplace::new)
    }

    fn start(&mut self) {
        if self.pool.is_some() {
            return;
        }
        let pool = rayon::ThreadPoolBuilder::new().num_threads(self.threads);
        match pool.thread_name(|index| format!("tracker-{index}")).build() {
            Ok(pool) => self.pool = Some(pool),
            Err(error) => {
                tracing::warn!("targets are followed on one thread: {error}");
                self.threads = 1;
            }
        }
    }
}
