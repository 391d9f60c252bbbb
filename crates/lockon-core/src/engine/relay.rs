//! Devices that replace each other between two frames, when the search changes.
//!
//! The earlier device keeps its frames until they are done: nothing is dropped, nothing waits, and tracks
//! continue. A threshold with a background waits: the later device goes on with the mean of all frames.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::backend::{Backend, Findings};
use crate::error::Result;
use crate::frame::{Frame, FrameMeta};
use crate::search::Search;

/// The work on a frame.
#[derive(Debug, Clone, Default)]
pub(super) struct Work {
    pub(super) search: Arc<Search>,
    /// Whether the thresholded frame is needed.
    pub(super) mask: bool,
}

impl Work {
    pub(super) fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.search, &other.search) && self.mask == other.mask
    }
}

/// The devices that are open.
pub(super) struct Relay {
    /// Oldest first, never empty. Frames go into the last one, results come out of the first.
    legs: VecDeque<Leg>,
}

/// A device, its work, and its number of frames.
pub(super) struct Leg {
    pub(super) backend: Box<dyn Backend>,
    pub(super) work: Work,
    /// True if a part of it cannot be done in frames of this size.
    pub(super) is_cut: bool,
    in_flight: usize,
}

impl Leg {
    pub(super) fn new(backend: Box<dyn Backend>, work: Work, is_cut: bool) -> Self {
        Self { backend, work, is_cut, in_flight: 0 }
    }
}

impl Relay {
    pub(super) fn new(first: Leg) -> Self {
        Self { legs: VecDeque::from([first]) }
    }

    /// Frames go into this one from now on.
    pub(super) fn hand_over(&mut self, to: Leg) {
        self.legs.retain(|leg| leg.in_flight > 0);
        self.legs.push_back(to);
    }

    /// The device that gets new frames.
    pub(super) fn last(&self) -> &Leg {
        self.legs.back().expect("one is always open")
    }

    pub(super) fn last_mut(&mut self) -> &mut Leg {
        self.legs.back_mut().expect("one is always open")
    }

    pub(super) fn submit(&mut self, frame: &Frame) -> Result<()> {
        let last = self.last_mut();
        last.backend.submit(frame.meta, &frame.picture)?;
        last.in_flight += 1;
        Ok(())
    }

    /// The oldest frame in flight; see [`Backend::wait_next`].
    pub(super) fn wait_next(&mut self, findings: &mut Findings) -> Result<Option<FrameMeta>> {
        let first = self.legs.front_mut().expect("one is always open");
        let meta = first.backend.wait_next(findings)?;
        first.in_flight -= usize::from(meta.is_some());
        if first.in_flight == 0 && self.legs.len() > 1 {
            self.legs.pop_front();
        }
        Ok(meta)
    }
}
