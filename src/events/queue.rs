//! What waits to be told. Whoever puts something in never waits.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

/// Most that wait: then the oldest goes.
pub(super) const MOST: usize = 1000;

/// A queue with one reader.
pub(super) struct Queue<T> {
    state: Mutex<State<T>>,
    changed: Notify,
}

struct State<T> {
    items: VecDeque<T>,
    is_closed: bool,
}

impl<T> Queue<T> {
    pub(super) fn new() -> Self {
        let state = State { items: VecDeque::new(), is_closed: false };
        Self { state: Mutex::new(state), changed: Notify::new() }
    }

    fn state(&self) -> MutexGuard<'_, State<T>> {
        // It is whole at every moment.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Puts something in. The oldest goes where too many wait.
    pub(super) fn push(&self, item: T) {
        let mut state = self.state();
        let oldest = if state.items.len() == MOST { state.items.pop_front() } else { None };
        state.items.push_back(item);
        drop(state);
        drop(oldest);
        self.changed.notify_one();
    }

    /// Nothing more comes.
    pub(super) fn close(&self) {
        self.state().is_closed = true;
        self.changed.notify_one();
    }

    /// The oldest, waited for; none when it is closed and empty. Nothing is lost if this is not waited for to
    /// its end.
    pub(super) async fn next(&self) -> Option<T> {
        loop {
            {
                let mut state = self.state();
                if let Some(item) = state.items.pop_front() {
                    return Some(item);
                }
                if state.is_closed {
                    return None;
                }
            }
            self.changed.notified().await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_go_where_too_many_wait_and_the_rest_keeps_its_order() {
        let queue = Queue::new();
        (0..MOST + 3).for_each(|item| queue.push(item));
        queue.close();
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let read: Vec<_> = runtime.block_on(async {
            let mut read = Vec::new();
            while let Some(item) = queue.next().await {
                read.push(item);
            }
            read
        });
        assert!(read.iter().copied().eq(3..MOST + 3));
    }

    #[test]
    fn a_reader_that_waits_is_woken() {
        let queue = std::sync::Arc::new(Queue::new());
        let reader = {
            let queue = queue.clone();
            std::thread::spawn(move || {
                let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
                runtime.block_on(async { (queue.next().await, queue.next().await) })
            })
        };
        queue.push(7);
        queue.close();
        assert_eq!(reader.join().unwrap(), (Some(7), None));
    }
}
