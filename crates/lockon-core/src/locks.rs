//! Locks of data that are whole at every moment, and the order in which a thread takes them.
//!
//! A thread that holds a lock takes only locks of higher ranks, so no threads can wait for each other in a
//! circle. Most locks are plain mutexes, of rank [`UNRANKED`]: no thread holds two of them. A lock that is
//! held while another is taken, or that is taken under an unranked one, is a [`Ranked`] one.
//! `docs/threads.md` lists all locks with their ranks. With debug assertions each lock is checked as it is
//! taken; without them nothing of this is in the program.

use std::ops::{Deref, DerefMut};
use std::sync::{Condvar, Mutex, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::Duration;

use order::Held;

/// The rank of all mutexes that are not [`Ranked`].
pub const UNRANKED: u8 = 200;

/// Access to what a lock guards, until this is dropped.
#[derive(Debug)]
#[must_use = "the lock is released at once"]
pub struct Guard<G> {
    // Dropped in this order: a lock counts as held until it is released.
    guard: G,
    held: Held,
}

/// Access to what a mutex guards, until this is dropped.
pub type MutexGuard<'a, T> = Guard<std::sync::MutexGuard<'a, T>>;

impl<G: Deref> Deref for Guard<G> {
    type Target = G::Target;

    fn deref(&self) -> &G::Target {
        &self.guard
    }
}

impl<G: DerefMut> DerefMut for Guard<G> {
    fn deref_mut(&mut self) -> &mut G::Target {
        &mut self.guard
    }
}

impl<T> MutexGuard<'_, T> {
    /// Releases the lock until `changed` is notified.
    pub fn wait(self, changed: &Condvar) -> Self {
        let Self { guard, held } = self;
        Self { guard: changed.wait(guard).unwrap_or_else(PoisonError::into_inner), held }
    }

    /// Releases the lock until `changed` is notified, or for `timeout`.
    pub fn wait_timeout(self, changed: &Condvar, timeout: Duration) -> Self {
        let Self { guard, held } = self;
        let (guard, _) = changed.wait_timeout(guard, timeout).unwrap_or_else(PoisonError::into_inner);
        Self { guard, held }
    }
}

/// Locks a mutex, also after a thread has panicked with it: nothing here is changed in steps between which a
/// panic could leave it half done.
#[track_caller]
pub fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    let held = Held::new(UNRANKED);
    Guard { guard: mutex.lock().unwrap_or_else(PoisonError::into_inner), held }
}

/// A mutex with a rank: it is taken before locks of higher ranks, and after those of lower ones.
#[derive(Debug, Default)]
pub struct Ranked<T: ?Sized, const RANK: u8>(Mutex<T>);

impl<T, const RANK: u8> Ranked<T, RANK> {
    /// A mutex that guards `value`.
    pub const fn new(value: T) -> Self {
        Self(Mutex::new(value))
    }
}

impl<T: ?Sized, const RANK: u8> Ranked<T, RANK> {
    /// Locks it, as [`lock`] does.
    #[track_caller]
    pub fn lock(&self) -> MutexGuard<'_, T> {
        let held = Held::new(RANK);
        Guard { guard: self.0.lock().unwrap_or_else(PoisonError::into_inner), held }
    }

    /// The guarded value, without locking: no other thread can have the mutex.
    pub fn get_mut(&mut self) -> &mut T {
        self.0.get_mut().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A lock with a rank, which many readers or one writer hold.
#[derive(Debug, Default)]
pub struct RankedRw<T: ?Sized, const RANK: u8>(RwLock<T>);

impl<T, const RANK: u8> RankedRw<T, RANK> {
    /// A lock that guards `value`.
    pub const fn new(value: T) -> Self {
        Self(RwLock::new(value))
    }
}

impl<T: ?Sized, const RANK: u8> RankedRw<T, RANK> {
    /// Locks it for one of many readers.
    #[track_caller]
    pub fn read(&self) -> Guard<RwLockReadGuard<'_, T>> {
        let held = Held::new(RANK);
        Guard { guard: self.0.read().unwrap_or_else(PoisonError::into_inner), held }
    }

    /// Locks it for the only writer, if no other thread holds it.
    #[track_caller]
    pub fn try_write(&self) -> Option<Guard<RwLockWriteGuard<'_, T>>> {
        let held = Held::new(RANK);
        self.0.try_write().ok().map(|guard| Guard { guard, held })
    }

    /// Locks it for the only writer.
    #[track_caller]
    pub fn write(&self) -> Guard<RwLockWriteGuard<'_, T>> {
        let held = Held::new(RANK);
        Guard { guard: self.0.write().unwrap_or_else(PoisonError::into_inner), held }
    }
}

#[cfg(not(debug_assertions))]
mod order {
    #[derive(Debug)]
    pub(super) struct Held;

    impl Held {
        pub(super) fn new(_: u8) -> Self {
            Self
        }
    }
}

#[cfg(debug_assertions)]
mod order {
    use std::cell::RefCell;
    use std::panic::Location;

    thread_local! {
        /// Ranks of the locks that this thread holds, with the places where it took them.
        static HELD: RefCell<Vec<(u8, &'static Location<'static>)>> = const { RefCell::new(Vec::new()) };
    }

    /// A lock that a thread holds, or is about to.
    #[derive(Debug)]
    pub(super) struct Held {
        rank: u8,
    }

    impl Held {
        #[track_caller]
        pub(super) fn new(rank: u8) -> Self {
            let here = Location::caller();
            // Where a thread ends, the list may be gone already.
            let above = HELD.try_with(|held| {
                let mut held = held.borrow_mut();
                let above = held.iter().find(|(other, _)| *other >= rank).copied();
                held.push((rank, here));
                above
            });
            let held = Self { rank };
            if let Ok(Some((other, there))) = above
                && !std::thread::panicking()
            {
                panic!(
                    "a lock of rank {rank} is taken at {here} while one of rank {other} is held, taken at {there}: \
                     docs/threads.md has the order"
                );
            }
            held
        }
    }

    impl Drop for Held {
        fn drop(&mut self) {
            let _ = HELD.try_with(|held| {
                let mut held = held.borrow_mut();
                if let Some(at) = held.iter().rposition(|(rank, _)| *rank == self.rank) {
                    held.remove(at);
                }
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    #[cfg(debug_assertions)]
    use crate::error::catch_panic;

    #[test]
    fn ranks_rise_from_lock_to_lock() {
        let (low, high) = (Ranked::<_, 3>::new(1), RankedRw::<_, 7>::new(2));
        let plain = Mutex::new(3);
        {
            let (low, high) = (low.lock(), high.read());
            assert_eq!(*low + *high + *lock(&plain), 6);
        }
        // In the order in which they are released nothing depends on.
        let (first, second) = (low.lock(), high.write());
        drop(first);
        drop(second);
        drop(low.lock());
    }

    #[test]
    #[cfg(debug_assertions)]
    fn a_lock_of_a_lower_rank_or_of_the_same_is_refused() {
        let (low, high) = (Ranked::<_, 3>::new(1), Ranked::<_, 7>::new(2));
        let [one, other] = [Mutex::new(1), Mutex::new(2)];
        let refused = |work: &dyn Fn()| catch_panic(work).unwrap_err();
        let message = refused(&|| {
            let _high = high.lock();
            drop(low.lock());
        });
        assert!(message.contains("a lock of rank 3 is taken at"), "{message}");
        assert!(message.contains("while one of rank 7 is held"), "{message}");
        refused(&|| {
            let _one = lock(&one);
            drop(lock(&other));
        });
        // Nothing counts as held after that.
        drop(low.lock());
    }

    #[test]
    #[cfg(debug_assertions)]
    fn a_lock_that_waits_is_still_held_afterwards() {
        let (state, changed) = (Mutex::new(0), Condvar::new());
        let held = lock(&state).wait_timeout(&changed, Duration::from_millis(1));
        catch_panic(|| drop(lock(&Mutex::new(1)))).unwrap_err();
        drop(held);
        drop(lock(&Mutex::new(1)));
    }
}
