//! The processors that threads may run on.
//!
//! On a host of several sockets each GPU hangs on one of them, and memory near the others is slower to reach
//! from there. A run that works on a GPU keeps to the processors of that GPU's socket: its threads inherit
//! them, and Linux takes memory from where the thread runs that first writes to it.

use std::marker::PhantomData;

#[cfg(target_os = "linux")]
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// A set of processors. On other systems than Linux always all of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Processors(#[cfg(target_os = "linux")] CpuSet);

#[cfg(target_os = "linux")]
impl Processors {
    /// Returns the processors that the calling thread may run on.
    pub fn of_thread() -> Self {
        // None without an answer, as on hosts of more than 1,024 processors: threads are left where they
        // are.
        Self(sched_getaffinity(None).unwrap_or_default())
    }

    /// Returns the processors of these numbers that the calling thread may run on; `None` if it may run on
    /// none of them.
    pub fn of_thread_among(numbers: &[usize]) -> Option<Self> {
        let (Self(allowed), mut among) = (Self::of_thread(), CpuSet::new());
        let is_allowed = |number: &&usize| **number < CpuSet::MAX_CPU && allowed.is_set(**number);
        numbers.iter().filter(is_allowed).for_each(|number| among.set(*number));
        (among.count() > 0).then_some(Self(among))
    }

    /// Lets the calling thread, and those that it starts, run on these only, until the value that is returned
    /// is dropped.
    pub fn keep_thread(self) -> Kept {
        let before = Self::of_thread();
        if let Err(error) = sched_setaffinity(None, &self.0) {
            tracing::debug!("a thread stays where it is: {error}");
        }
        Kept { before, _of_this_thread: PhantomData }
    }
}

#[cfg(not(target_os = "linux"))]
impl Processors {
    /// Returns the processors that the calling thread may run on.
    pub fn of_thread() -> Self {
        Self()
    }

    /// Returns none: there is one set.
    pub fn of_thread_among(_: &[usize]) -> Option<Self> {
        None
    }

    /// Changes nothing.
    pub fn keep_thread(self) -> Kept {
        Kept { before: self, _of_this_thread: PhantomData }
    }
}

/// A thread that keeps to some processors, until this is dropped on it.
#[derive(Debug)]
#[must_use = "the thread runs on all processors again at once"]
pub struct Kept {
    before: Processors,
    /// It cannot be sent to another thread, which it would change instead.
    _of_this_thread: PhantomData<*const ()>,
}

impl Drop for Kept {
    fn drop(&mut self) {
        #[cfg(target_os = "linux")]
        let _ = sched_setaffinity(None, &self.before.0);
    }
}

#[cfg(test)]
#[cfg(target_os = "linux")]
mod tests {
    use super::*;

    #[test]
    fn a_thread_and_those_that_it_starts_keep_to_processors_until_they_are_given_up() {
        let all = Processors::of_thread();
        let first = (0..CpuSet::MAX_CPU).find(|number| all.0.is_set(*number)).unwrap();
        let one = Processors::of_thread_among(&[first]).unwrap();
        let kept = one.keep_thread();
        assert_eq!((Processors::of_thread(), one.0.count()), (one, 1));
        assert_eq!(std::thread::spawn(Processors::of_thread).join().unwrap(), one);
        // Inside of it no others are allowed.
        assert!(Processors::of_thread_among(&[first + 1]).is_none());
        drop(kept);
        assert_eq!(Processors::of_thread(), all);
        assert_eq!(std::thread::spawn(Processors::of_thread).join().unwrap(), all);
        assert!(Processors::of_thread_among(&[]).is_none());
        assert!(Processors::of_thread_among(&[CpuSet::MAX_CPU, usize::MAX]).is_none());
    }
}
