//! The ring of a backend without its device: free slots, slots in flight, and the rules once a call has
//! failed.
//!
//! A call that fails, or panics, leaves its slot half started or half read. So no slot is used again then:
//! every later call gives the first error, and frames in flight stay in place until the ring is dropped.

use std::collections::VecDeque;

use crate::error::{DeviceFault, Error, Result};

/// Slots in a cycle: free, in flight, free again.
///
/// A slot stays in the ring while it is started or read. Whatever these calls do, panics included, the device
/// may still write to the slot's memory until the ring is dropped.
pub struct Ring<Slot> {
    free: Vec<Slot>,
    /// Oldest first.
    in_flight: VecDeque<Slot>,
    poison: Poison,
}

impl<Slot> Ring<Slot> {
    /// A ring of these slots, all of them free. `backend` is named in errors.
    pub fn new(backend: &'static str, slots: Vec<Slot>) -> Self {
        Self { in_flight: VecDeque::with_capacity(slots.len()), free: slots, poison: Poison::new(backend) }
    }

    /// Starts the next free slot, which is in flight afterwards. `start` also gets the slot that was
    /// submitted before, if that is in flight.
    ///
    /// # Errors
    /// The errors of `start`, which poison the ring: the slot is not in flight, and stays as it is. The first
    /// error, if an earlier call failed.
    ///
    /// # Panics
    /// If no slot is free.
    pub fn submit(&mut self, start: impl FnOnce(&mut Slot, Option<&Slot>) -> Result<()>) -> Result<()> {
        let Self { free, in_flight, poison } = self;
        poison.check()?;
        let slot = free.last_mut().expect("a slot is free");
        poison.run(|| start(slot, in_flight.back()))?;
        in_flight.extend(free.pop());
        Ok(())
    }

    /// Reads the oldest slot in flight, which is free afterwards; `None` if nothing is in flight.
    ///
    /// # Errors
    /// The errors of `finish`, which poison the ring: the slot stays in flight. The first error, if an
    /// earlier call failed.
    pub fn wait_next<T>(&mut self, finish: impl FnOnce(&mut Slot) -> Result<T>) -> Result<Option<T>> {
        let Self { free, in_flight, poison } = self;
        poison.check()?;
        let Some(slot) = in_flight.front_mut() else { return Ok(None) };
        let found = poison.run(|| finish(slot))?;
        free.extend(in_flight.pop_front());
        Ok(Some(found))
    }

    /// The slots that are free; the next one comes last.
    pub fn free(&self) -> &[Slot] {
        &self.free
    }

    /// The free slots, mutable.
    pub fn free_mut(&mut self) -> &mut [Slot] {
        &mut self.free
    }

    /// The slot that is in flight for the longest time.
    pub fn oldest(&self) -> Option<&Slot> {
        self.in_flight.front()
    }

    /// Drops all slots. The caller has waited until the device is done with them.
    pub fn clear(&mut self) {
        self.free.clear();
        self.in_flight.clear();
    }
}

/// A backend's memory of its failure. After a failure, nothing that the backend holds may be used.
pub struct Poison {
    backend: &'static str,
    state: State,
}

enum State {
    Whole,
    /// A call is running; found by the next call, it says that this one panicked.
    Running,
    Failed(Error),
}

impl Poison {
    /// Nothing has failed yet. `backend` is named in errors.
    pub const fn new(backend: &'static str) -> Self {
        Self { backend, state: State::Whole }
    }

    /// # Errors
    /// The first error of [`Self::run`], once there was one; `Panicked` if a call panicked.
    pub fn check(&self) -> Result<()> {
        match &self.state {
            State::Whole => Ok(()),
            State::Running => Err(Error::Panicked {
                what: format!("the {} backend", self.backend),
                message: "a call before this one did not return".into(),
            }),
            State::Failed(error) => Err(self.again(error)),
        }
    }

    /// Runs a call whose failure leaves the backend unusable.
    ///
    /// # Errors
    /// The errors of `call`. They are kept for [`Self::check`].
    pub fn run<T>(&mut self, call: impl FnOnce() -> Result<T>) -> Result<T> {
        self.state = State::Running;
        let outcome = call();
        self.state = match &outcome {
            Ok(_) => State::Whole,
            Err(error) => State::Failed(self.again(error)),
        };
        outcome
    }

    /// Returns an error once more. A backend's own errors keep their kind, so that every call reports a lost
    /// device as lost.
    fn again(&self, error: &Error) -> Error {
        match error {
            Error::Backend { backend, fault } => Error::Backend { backend, fault: fault.clone() },
            Error::NoMemory { what, wanted } => Error::NoMemory { what, wanted: *wanted },
            Error::MemoryLimit { what, wanted, limit, remedy } => Error::MemoryLimit {
                what: what.clone(),
                wanted: *wanted,
                limit: *limit,
                remedy: remedy.clone(),
            },
            Error::Panicked { what, message } => {
                Error::Panicked { what: what.clone(), message: message.clone() }
            }
            error => Error::Backend { backend: self.backend, fault: DeviceFault::Other(error.to_string()) },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::{Bytes, catch_panic};

    /// A slot that remembers the frame that it was started with.
    type Fake = Option<u32>;

    fn ring(depth: usize) -> Ring<Fake> {
        Ring::new("cuda", vec![None; depth])
    }

    fn submit(ring: &mut Ring<Fake>, frame: u32) -> Result<()> {
        ring.submit(|slot, _| {
            *slot = Some(frame);
            Ok(())
        })
    }

    fn wait_next(ring: &mut Ring<Fake>) -> Result<Option<u32>> {
        ring.wait_next(|slot| Ok(slot.take().expect("it was started")))
    }

    fn lost() -> Error {
        Error::Backend { backend: "cuda", fault: DeviceFault::Lost { reason: "launch failed".into() } }
    }

    fn assert_fails_from_now_on(ring: &mut Ring<Fake>, said: &str) {
        for _ in 0..3 {
            let error = submit(ring, 99).unwrap_err();
            assert_eq!(error.to_string(), said);
            let error = wait_next(ring).unwrap_err();
            assert_eq!(error.to_string(), said);
        }
    }

    #[test]
    fn frames_come_back_in_the_order_in_which_they_were_submitted() {
        let mut ring = ring(2);
        assert_eq!(wait_next(&mut ring).unwrap(), None);
        for first in [0, 10, 20] {
            submit(&mut ring, first).unwrap();
            ring.submit(|slot, before| {
                assert_eq!(before, Some(&Some(first)), "the slot that was submitted before");
                *slot = Some(first + 1);
                Ok(())
            })
            .unwrap();
            assert_eq!(wait_next(&mut ring).unwrap(), Some(first));
            assert_eq!(wait_next(&mut ring).unwrap(), Some(first + 1));
        }
    }

    #[test]
    fn a_failed_submit_puts_nothing_in_flight_and_every_later_call_gives_its_error() {
        let mut ring = ring(2);
        submit(&mut ring, 1).unwrap();
        assert!(ring.submit(|_, _| Err(lost())).is_err());
        assert_eq!((ring.free.len(), ring.in_flight.len()), (1, 1));
        assert_fails_from_now_on(&mut ring, &lost().to_string());
        assert!(wait_next(&mut ring).unwrap_err().is_device_lost(), "the engine asks this");
    }

    #[test]
    fn a_failed_wait_gives_its_error_and_no_stale_frame_ever_after() {
        let mut ring = ring(2);
        submit(&mut ring, 1).unwrap();
        submit(&mut ring, 2).unwrap();
        assert!(ring.wait_next(|_| Err::<u32, _>(lost())).is_err());
        assert_fails_from_now_on(&mut ring, &lost().to_string());
        assert_eq!(ring.in_flight, [Some(1), Some(2)], "what the device may be writing to stays");
    }

    #[test]
    fn a_call_that_panicked_leaves_its_slot_in_the_ring_and_the_ring_unusable() {
        let mut ring = ring(1);
        let panicked = catch_panic(|| ring.submit(|_, _| panic!("while it fills")));
        assert_eq!(panicked.unwrap_err(), "while it fills");
        assert_eq!(ring.free.len(), 1, "the device may be reading from it");
        let said = "the cuda backend panicked: a call before this one did not return";
        assert!(submit(&mut ring, 1).unwrap_err().to_string().starts_with(said));
        assert!(wait_next(&mut ring).unwrap_err().to_string().starts_with(said));
    }

    #[test]
    fn a_ring_without_a_free_slot_panics_and_goes_on() {
        let mut ring = ring(1);
        submit(&mut ring, 1).unwrap();
        assert!(catch_panic(|| submit(&mut ring, 2)).unwrap_err().contains("a slot is free"));
        assert_eq!(wait_next(&mut ring).unwrap(), Some(1));
    }

    #[test]
    fn an_error_said_again_is_the_same_error() {
        let poison = Poison::new("cpu");
        let memory = || Error::MemoryLimit {
            what: "frames".into(),
            wanted: Bytes(3),
            limit: Bytes(2),
            remedy: crate::message::Message::new("take fewer", []),
        };
        for error in [lost(), memory(), Error::NoMemory { what: "a map", wanted: Bytes(7) }] {
            let again = poison.again(&error);
            assert_eq!(std::mem::discriminant(&again), std::mem::discriminant(&error));
            assert_eq!(again.to_string(), error.to_string());
        }
        let other = Error::Usage("something else".into());
        assert_eq!(poison.again(&other).to_string(), "cpu: something else");
    }
}
