//! Threads that many runs of a process share.

use std::sync::{Arc, Mutex, Weak};

use crate::locks::lock;
use crate::processors::Processors;
use rayon::{ThreadPool, ThreadPoolBuildError, ThreadPoolBuilder};

/// Pools that are in use.
static POOLS: Mutex<Vec<Shared>> = Mutex::new(Vec::new());

struct Shared {
    name: &'static str,
    threads: usize,
    /// The process that made it: one that was forked from it has none of its threads.
    process: u32,
    /// The processors of its threads: those of the thread that made it.
    processors: Processors,
    pool: Weak<ThreadPool>,
}

/// Returns the pool of that name and number of threads, which run on the caller's processors. Callers on the
/// same processors share it while one of them holds it, so another run needs no more threads. A pool of one
/// thread is never shared, or runs that should share nothing would wait for each other.
///
/// # Errors
/// If the system gives no more threads.
pub fn pool(name: &'static str, threads: usize) -> Result<Arc<ThreadPool>, ThreadPoolBuildError> {
    let build = || ThreadPoolBuilder::new().num_threads(threads).thread_name(move |n| format!("{name}-{n}"));
    if threads == 1 {
        return build().build().map(Arc::new);
    }
    let (process, processors) = (std::process::id(), Processors::of_thread());
    let mut pools = lock(&POOLS);
    pools.retain(|shared| shared.pool.strong_count() > 0);
    let asked = (name, threads, process, processors);
    let is_same =
        |shared: &&Shared| (shared.name, shared.threads, shared.process, shared.processors) == asked;
    if let Some(pool) = pools.iter().find(is_same).and_then(|shared| shared.pool.upgrade()) {
        return Ok(pool);
    }
    let pool = Arc::new(build().build()?);
    pools.push(Shared { name, threads, process, processors, pool: Arc::downgrade(&pool) });
    Ok(pool)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pool_is_shared_by_those_who_ask_for_the_same_and_by_nobody_after_them() {
        let [first, same, other, more] = [("a test", 2), ("a test", 2), ("another test", 2), ("a test", 3)]
            .map(|(n, t)| pool(n, t).unwrap());
        assert!(Arc::ptr_eq(&first, &same) && !Arc::ptr_eq(&first, &other) && !Arc::ptr_eq(&first, &more));
        assert_eq!((first.current_num_threads(), more.current_num_threads()), (2, 3));
        let alone = [pool("a test", 1).unwrap(), pool("a test", 1).unwrap()];
        assert!(!Arc::ptr_eq(&alone[0], &alone[1]));
        let gone = Arc::downgrade(&first);
        drop((first, same));
        assert!(gone.upgrade().is_none());
        assert_eq!(pool("a test", 2).unwrap().install(|| 5), 5);
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn a_pool_runs_on_the_processors_of_its_maker_and_is_not_shared_with_callers_on_others() {
        let everywhere = Processors::of_thread();
        let anywhere = pool("a test of processors", 2).unwrap();
        let first = (0..1024).find_map(|number| Processors::of_thread_among(&[number])).unwrap();
        let kept = first.keep_thread();
        let beside = pool("a test of processors", 2).unwrap();
        assert_eq!(beside.install(Processors::of_thread), first);
        drop(kept);
        assert_eq!(anywhere.install(Processors::of_thread), everywhere);
        assert_eq!(Arc::ptr_eq(&anywhere, &beside), first == everywhere);
    }
}
