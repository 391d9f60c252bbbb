//! Files that are added together and play at their own speed begin when all are open, one after the other.
//!
//! Opening decoders takes a GPU's driver long: with a hundred of them, the first ones would lose frames while
//! the last ones are opened. And if all began at the same moment, all of their frames would come at the same
//! moments: with 160 videos, each had 60 ms to wait for its turn at times, instead of 8.
//!
//! They are opened a few at a time. The driver opens one decoder after the other, and threads that wait for
//! that hold each other up: 320 videos on four GPUs took 168 s of the processors' time in the system to open,
//! and with turns 41 to 56 s (docs/lab/many-videos.md).

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender};

use lockon_core::control::{Control, STOP_CHECK};
use lockon_core::error::Result;

use crate::setup;

/// If no other run becomes ready for so long, the rest are not waited for: one may wait for its writer.
const PATIENCE: Duration = Duration::from_secs(10);

/// So many runs are opened at once, or a quarter of the processors' number if that is more. 4 and 16 were as
/// fast.
const LEAST_AT_ONCE: usize = 4;

/// From one run's beginning to the next one's. It is no simple part of a frame's time at the usual rates, so
/// that runs of one rate have different phases.
const STEP: Duration = Duration::from_micros(5_300);

/// A run's place at the start. It is dropped when the run will not begin, or need not wait.
pub(super) struct Start {
    own_place: Option<Sender<Infallible>>,
    /// Disconnected when all places were given up.
    all_ready: Receiver<Infallible>,
    line: Arc<Line>,
    patience: Duration,
}

struct Line {
    ready: AtomicUsize,
    /// Some did not wait for the rest.
    has_begun: AtomicBool,
    /// Has a message for each run that is being opened, and room for as many as may be.
    opening: (Sender<()>, Receiver<()>),
}

/// A run's turn to be opened, until this is dropped.
pub(super) struct Turn(Receiver<()>);

impl Drop for Turn {
    fn drop(&mut self) {
        // Its own message, or another's: they are alike.
        let _ = self.0.try_recv();
    }
}

/// Whether no run has become ready for a while.
struct Patience<'a> {
    line: &'a Line,
    limit: Duration,
    ready: usize,
    since: Instant,
}

impl Patience<'_> {
    fn is_over(&mut self) -> bool {
        let ready = self.line.ready.load(Ordering::Relaxed);
        if ready != self.ready {
            (self.ready, self.since) = (ready, Instant::now());
        }
        self.since.elapsed() >= self.limit
    }
}

impl Start {
    /// So many places.
    pub(super) fn places(count: usize) -> Vec<Self> {
        Self::places_for(count, (setup::threads(None) / 4).max(LEAST_AT_ONCE))
    }

    fn places_for(count: usize, at_once: usize) -> Vec<Self> {
        let (place, all_ready) = crossbeam_channel::bounded(0);
        let opening = crossbeam_channel::bounded(at_once);
        let line = Line { ready: AtomicUsize::new(0), has_begun: AtomicBool::new(false), opening };
        let line = Arc::new(line);
        let one = || Self {
            own_place: Some(place.clone()),
            all_ready: all_ready.clone(),
            line: Arc::clone(&line),
            patience: PATIENCE,
        };
        (0..count).map(|_| one()).collect()
    }

    fn patience(&self) -> Patience<'_> {
        let ready = self.line.ready.load(Ordering::Relaxed);
        Patience { line: &self.line, limit: self.patience, ready, since: Instant::now() }
    }

    /// Waits for a turn to be opened. `None` if no run became ready for a while: those that have a turn may
    /// all wait for their writers.
    ///
    /// # Errors
    /// `Stopped`.
    pub(super) fn turn_to_open(&self, control: &Control) -> Result<Option<Turn>> {
        let (turn, turns) = &self.line.opening;
        let mut patience = self.patience();
        while turn.send_timeout((), STOP_CHECK).is_err() {
            control.check()?;
            if patience.is_over() {
                let waited = self.patience;
                tracing::info!("it is opened without its turn: no run became ready for {waited:?}");
                return Ok(None);
            }
        }
        Ok(Some(Turn(turns.clone())))
    }

    /// Returns when all others are ready too, and those that were ready before have begun.
    ///
    /// # Errors
    /// `Stopped`.
    pub(super) fn wait(mut self, control: &Control) -> Result<()> {
        let before = self.give_up_place();
        let mut patience = self.patience();
        while let Err(RecvTimeoutError::Timeout) = self.all_ready.recv_timeout(STOP_CHECK) {
            control.check()?;
            if self.line.has_begun.load(Ordering::Relaxed) {
                return Ok(());
            }
            if patience.is_over() {
                let waited = self.patience;
                tracing::info!("it begins before all others are ready: none became ready for {waited:?}");
                self.line.has_begun.store(true, Ordering::Relaxed);
                break;
            }
        }
        let began = Instant::now();
        while let Some(left) = offset(before).checked_sub(began.elapsed()) {
            control.check()?;
            std::thread::sleep(left.min(STOP_CHECK));
        }
        Ok(())
    }

    /// Returns how many places were given up before.
    fn give_up_place(&mut self) -> usize {
        match self.own_place.take() {
            Some(_) => self.line.ready.fetch_add(1, Ordering::Relaxed),
            None => 0,
        }
    }
}

impl Drop for Start {
    fn drop(&mut self) {
        self.give_up_place();
    }
}

/// When the run begins that so many were ready before.
fn offset(before: usize) -> Duration {
    STEP * u32::try_from(before).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use lockon_core::error::Error;

    #[test]
    fn runs_begin_when_the_last_one_is_ready_or_has_failed() {
        let [first, second, third] = Start::places(3).try_into().ok().unwrap();
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
        let [start, _other] = Start::places(2).try_into().ok().unwrap();
        let control = Control::new();
        control.stop();
        assert!(matches!(start.wait(&control), Err(Error::Stopped)));
    }

    #[test]
    fn runs_do_not_wait_for_ever_for_one_that_is_never_ready_and_it_does_not_wait_for_them() {
        let [mut first, mut second, late] = Start::places(3).try_into().ok().unwrap();
        for start in [&mut first, &mut second] {
            start.patience = 3 * STOP_CHECK;
        }
        let began = Instant::now();
        std::thread::scope(|scope| {
            scope.spawn(|| first.wait(&Control::new()).unwrap());
            scope.spawn(|| second.wait(&Control::new()).unwrap());
        });
        assert!(began.elapsed() >= 3 * STOP_CHECK);
        late.wait(&Control::new()).unwrap();
        assert!(began.elapsed() < PATIENCE);
    }

    #[test]
    fn runs_are_opened_a_few_at_a_time_and_those_that_never_are_do_not_stop_the_rest() {
        let mut starts = Start::places_for(4, 2);
        let control = Control::new();
        let turns = [0, 1].map(|at| starts[at].turn_to_open(&control).unwrap().unwrap());
        // All turns are taken, and no run becomes ready.
        starts[2].patience = 3 * STOP_CHECK;
        let began = Instant::now();
        assert!(starts[2].turn_to_open(&control).unwrap().is_none());
        assert!(began.elapsed() >= 3 * STOP_CHECK);
        std::thread::scope(|scope| {
            let third = &starts[3];
            let waits = scope.spawn(|| third.turn_to_open(&control).unwrap().is_some());
            std::thread::sleep(2 * STOP_CHECK);
            assert!(!waits.is_finished());
            let [first, _second] = turns;
            drop(first);
            assert!(waits.join().unwrap());
        });
        let _turns = [0, 1].map(|at| starts[at].turn_to_open(&control).unwrap().unwrap());
        control.stop();
        assert!(matches!(starts[2].turn_to_open(&control), Err(Error::Stopped)));
    }

    #[test]
    fn frames_of_160_videos_come_at_all_moments_of_a_frames_time() {
        for rate in [23.976, 25.0, 29.97, 30.0, 50.0, 59.94, 60.0] {
            let mut tenths = [0; 10];
            for before in 0..160 {
                let phase = (offset(before).as_secs_f64() * rate).fract();
                tenths[(10.0 * phase) as usize] += 1;
            }
            assert!(tenths.iter().all(|count| (12..=20).contains(count)), "{rate} a second: {tenths:?}");
        }
    }
}
