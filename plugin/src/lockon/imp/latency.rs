//! How long live frames stay, and when the element reports it to the pipeline.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use gst::prelude::*;
use gst::subclass::prelude::*;

use super::super::CAT;
use super::super::line::WAITING;
use super::{Lockon, lock};

impl Lockon {
    /// Measures how long live frames stay here, and reports changes.
    pub(super) fn note_stay(&self, arrived: Instant, excluded: Duration) {
        if !self.is_live.load(Ordering::Relaxed) {
            return;
        }
        // A sink that waits for the clock delays the next frames; that time is not ours.
        let excluded = self.excluded.total().saturating_sub(excluded);
        let stay = arrived.elapsed().saturating_sub(excluded);
        let room = self.room();
        let (is_new, latency) = {
            let mut stays = lock(&self.stay);
            (stays.note(stay, room, Instant::now()), stays.least(room))
        };
        if is_new {
            gst::debug!(CAT, imp = self, "a live frame has stayed for {stay:?}, latency is {latency}");
            self.ask_for_latency();
        }
    }

    /// Maximum frames inside.
    pub(super) fn room(&self) -> u64 {
        (WAITING + self.depth()) as u64
    }

    /// Frames in flight on the device.
    pub(in crate::lockon) fn depth(&self) -> usize {
        lock(&self.settings).depth(self.is_live.load(Ordering::Relaxed))
    }

    /// Asks the pipeline to compute its latency again: the element's has changed.
    pub(super) fn ask_for_latency(&self) {
        let _ = self.obj().post_message(gst::message::Latency::builder().src(&*self.obj()).build());
    }
}
