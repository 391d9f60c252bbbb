//! Files that are added together and play at their own speed begin when all are open, one after the other.
//!
//! Opening decoders takes a GPU's driver long: with a hundred of them, the first ones would lose frames while
//! the last ones are opened. And if all began at the same moment, all of their frames would come at the same
//! moments: with 160 videos, each had 60 ms to wait for its turn at times, instead of 8.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender};

use lockon_core::control::{Control, STOP_CHECK};
use lockon_core::error::Result;

/// If no other run becomes ready for so long, the rest are not waited for: one may wait for its writer.
const PATIENCE: Duration = Duration::from_secs(10);

/// From one run's beginning to the next one's. No multiple of it is near the usual times between frames.
const STEP: Duration = Duration::from_millis(5);

/// A run's place at the start. Whoever drops it is ready, or will not begin.
#[derive(Clone)]
pub(super) struct Start {
    here: Sender<Infallible>,
    all: Receiver<Infallible>,
    ready: Arc<AtomicUsize>,
}

impl Start {
    pub(super) fn new() -> Self {
        let (here, all) = crossbeam_channel::bounded(0);
        Self { here, all, ready: Arc::default() }
    }

    /// Returns when all others are ready too, and those that were ready before have begun.
    ///
    /// # Errors
    /// `Stopped`.
    pub(super) fn wait(self, control: &Control) -> Result<()> {
        let Self { here, all, ready } = self;
        drop(here);
        let before = ready.fetch_add(1, Ordering::Relaxed) as u32;
        let (mut known, mut since) = (before as usize + 1, Instant::now());
        while let Err(RecvTimeoutError::Timeout) = all.recv_timeout(STOP_CHECK) {
            control.check()?;
            let now = ready.load(Ordering::Relaxed);
            if now != known {
                (known, since) = (now, Instant::now());
            } else if since.elapsed() >= PATIENCE {
                tracing::info!("it begins before all others are ready: none became ready for {PATIENCE:?}");
                break;
            }
        }
        let all_ready = Instant::now();
        while let Some(left) = (STEP * before).checked_sub(all_ready.elapsed()) {
            control.check()?;
            std::thread::sleep(left.min(STOP_CHECK));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lockon_core::error::Error;

    #[test]
    fn runs_begin_when_the_last_one_is_ready_or_has_failed() {
        let first = Start::new();
        let [second, third] = [first.clone(), first.clone()];
        let begun = AtomicUsize::new(0);
        std::thread::scope(|scope| {
            for start in [first, second] {
                let begun = &begun;
                scope.spawn(move || {
                    start.wait(&Control::new()).unwrap();
                    begun.fetch_add(1, Ordering::Relaxed);
                });
            }
            std::thread::sleep(3 * STOP_CHECK);
            assert_eq!(begun.load(Ordering::Relaxed), 0);
            drop(third);
        });
        assert_eq!(begun.load(Ordering::Relaxed), 2);
    }

    #[test]
    fn a_run_that_is_stopped_does_not_wait() {
        let (start, control) = (Start::new(), Control::new());
        let _other = start.clone();
        control.stop();
        assert!(matches!(start.wait(&control), Err(Error::Stopped)));
    }
}
