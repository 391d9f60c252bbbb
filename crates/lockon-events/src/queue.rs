//! The events that wait for a receiver. Adding one never waits.

use std::collections::VecDeque;
use std::sync::Mutex;

use lockon_core::locks::{MutexGuard, lock};
use tokio::sync::Notify;

/// Maximum number and bytes of events that wait; beyond that the oldest are dropped.
pub(super) const MOST: usize = 1000;
pub(super) const MOST_BYTES: usize = 16 << 20;

/// A queue with one reader.
pub(super) struct Queue<T> {
    state: Mutex<State<T>>,
    changed: Notify,
}

struct State<T> {
    /// Each with its size.
    items: VecDeque<(T, usize)>,
    bytes: usize,
    is_closed: bool,
}

impl<T> State<T> {
    fn take(&mut self) -> Option<T> {
        let (item, bytes) = self.items.pop_front()?;
        self.bytes -= bytes;
        Some(item)
    }
}

impl<T> Queue<T> {
    pub(super) fn new() -> Self {
        let state = State { items: VecDeque::new(), bytes: 0, is_closed: false };
        Self { state: Mutex::new(state), changed: Notify::new() }
    }

    fn state(&self) -> MutexGuard<'_, State<T>> {
        // The state is consistent whenever the lock is free.
        lock(&self.state)
    }

    /// Adds an item of so many bytes. Drops the oldest ones if too many wait, never the new one.
    pub(super) fn push(&self, item: T, bytes: usize) {
        let mut state = self.state();
        let mut oldest = Vec::new();
        while state.items.len() == MOST || (state.bytes + bytes > MOST_BYTES && !state.items.is_empty()) {
            oldest.extend(state.take());
        }
        state.items.push_back((item, bytes));
        state.bytes += bytes;
        // Dropped outside of the lock.
        drop(state);
        drop(oldest);
        self.changed.notify_one();
    }

    /// Ends the queue: nothing more is added.
    pub(super) fn close(&self) {
        self.state().is_closed = true;
        self.changed.notify_one();
    }

    /// Removes and returns the oldest item, if there is one now.
    pub(super) fn try_next(&self) -> Option<T> {
        self.state().take()
    }

    /// Waits for the oldest item, and removes and returns it; `None` when the queue is closed and empty.
    /// Nothing is lost if this is not awaited to its end.
    pub(super) async fn next(&self) -> Option<T> {
        loop {
            {
                let mut state = self.state();
                if let Some(item) = state.take() {
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

    /// All items of a queue.
    fn read<T>(queue: &Queue<T>) -> Vec<T> {
        queue.close();
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            let mut read = Vec::new();
            while let Some(item) = queue.next().await {
                read.push(item);
            }
            read
        })
    }

    #[test]
    fn the_oldest_go_where_too_many_wait_and_the_rest_keeps_its_order() {
        let queue = Queue::new();
        (0..MOST + 3).for_each(|item| queue.push(item, 1));
        assert!(read(&queue).into_iter().eq(3..MOST + 3));
    }

    #[test]
    fn the_oldest_go_where_too_many_bytes_wait_and_the_newest_never() {
        let queue = Queue::new();
        (0..9).for_each(|item| queue.push(item, MOST_BYTES / 4));
        assert_eq!(read(&queue), [5, 6, 7, 8]);
        let queue = Queue::new();
        for bytes in [1, 2 * MOST_BYTES, 3, 4] {
            queue.push(bytes, bytes);
        }
        assert_eq!(read(&queue), [3, 4]);
        queue.push(2 * MOST_BYTES, 2 * MOST_BYTES);
        assert_eq!(read(&queue), [2 * MOST_BYTES]);
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
        queue.push(7, 1);
        queue.close();
        assert_eq!(reader.join().unwrap(), (Some(7), None));
    }
}
