//! How long live frames stay in the element, for whoever asks for its latency.
//!
//! What counts is the time in which a frame is searched or waits for the search of others. What downstream
//! takes, a sink that waits for the clock, is the sink's; what it takes to open a device happens once, not to
//! every frame.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Stays are told in steps of this where neither caps nor buffers say how long a frame is shown.
const STEP: gst::ClockTime = gst::ClockTime::from_mseconds(10);

/// The longest stay of a frame so far.
#[derive(Debug, Default)]
pub(super) struct Stay {
    /// How long a frame is shown, where that is known.
    frame: Option<gst::ClockTime>,
    longest: gst::ClockTime,
}

impl Stay {
    /// Caps say how long a frame is shown, or that it is not known. True if that is new.
    pub(super) fn set_frame(&mut self, duration: Option<gst::ClockTime>) -> bool {
        std::mem::replace(&mut self.frame, duration) != duration
    }

    /// A buffer says it, where caps do not: the longest counts. True if that is new.
    pub(super) fn see_frame(&mut self, duration: gst::ClockTime) -> bool {
        let is_longer = self.frame.is_none_or(|frame| frame < duration) && !duration.is_zero();
        is_longer && self.set_frame(Some(duration))
    }

    /// A frame has stayed for so long, where `room` of them can be inside. True if that makes the latency
    /// longer.
    pub(super) fn note(&mut self, stay: Duration, room: u64) -> bool {
        let before = self.least(room);
        let stay = u64::try_from(stay.as_nanos()).unwrap_or(u64::MAX);
        self.longest = self.longest.max(gst::ClockTime::from_nseconds(stay.min(u64::MAX - 1)));
        self.least(room) > before
    }

    /// By how much a frame is late at least behind the element. A search that keeps up takes a frame's
    /// duration or less; it is more only where frames were seen to stay longer, in whole durations and never
    /// more than `room` of them.
    pub(super) fn least(&self, room: u64) -> gst::ClockTime {
        match self.frame {
            Some(frame) => frame * self.longest.nseconds().div_ceil(frame.nseconds()).clamp(1, room),
            None => STEP * self.longest.nseconds().div_ceil(STEP.nseconds()),
        }
    }

    /// How long frames can be held: what is inside when it is full.
    pub(super) fn most(&self, room: u64) -> gst::ClockTime {
        self.frame.map_or(self.least(room), |frame| frame * room)
    }
}

/// A watch that runs while the element's thread neither searches nor waits for frames: it pushes downstream,
/// or opens a device.
#[derive(Debug, Default)]
pub(super) struct ExcludedTime(Mutex<Stopwatch>);

#[derive(Debug, Default)]
struct Stopwatch {
    stopped_at: Duration,
    running_since: Option<Instant>,
}

impl ExcludedTime {
    fn lock(&self) -> MutexGuard<'_, Stopwatch> {
        // Nothing panics while it holds the lock.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs `work`, which is not the search.
    pub(super) fn during<T>(&self, work: impl FnOnce() -> T) -> T {
        struct Running<'a>(&'a ExcludedTime);
        impl Drop for Running<'_> {
            fn drop(&mut self) {
                let mut watch = self.0.lock();
                let ran = watch.running_since.take().map_or(Duration::ZERO, |since| since.elapsed());
                watch.stopped_at += ran;
            }
        }
        self.lock().running_since = Some(Instant::now());
        let _running = Running(self);
        work()
    }

    /// What it shows now.
    pub(super) fn total(&self) -> Duration {
        let watch = self.lock();
        watch.stopped_at + watch.running_since.map_or(Duration::ZERO, |since| since.elapsed())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FRAME: gst::ClockTime = gst::ClockTime::from_mseconds(40);

    fn ms(milliseconds: u64) -> Duration {
        Duration::from_millis(milliseconds)
    }

    #[test]
    fn a_stay_counts_in_frame_durations_up_to_what_has_room() {
        let mut stay = Stay::default();
        assert!(stay.set_frame(Some(FRAME)) && !stay.set_frame(Some(FRAME)));
        assert_eq!((stay.least(4), stay.most(4)), (FRAME, 4 * FRAME), "one, before anything was seen");
        let grows = [0, 40, 41, 80, 60, 100, 300].map(|stayed| stay.note(ms(stayed), 4));
        assert_eq!(grows, [false, false, true, false, false, true, true]);
        assert_eq!(stay.least(4), 4 * FRAME);
        assert!(!stay.note(ms(900), 4), "no more than has room");
        // What was seen counts anew where frames are shown for longer.
        stay.set_frame(Some(10 * FRAME));
        assert_eq!(stay.least(4), 30 * FRAME);
    }

    #[test]
    fn without_a_rate_buffers_tell_it_or_the_stay_itself_counts() {
        let mut stay = Stay::default();
        assert_eq!((stay.least(4), stay.most(4)), (gst::ClockTime::ZERO, gst::ClockTime::ZERO));
        assert!(stay.note(ms(63), 4));
        assert_eq!((stay.least(4), stay.most(4)), (7 * STEP, 7 * STEP));
        assert!(!stay.see_frame(gst::ClockTime::ZERO));
        let new = [30, 40, 35].map(|shown| stay.see_frame(gst::ClockTime::from_mseconds(shown)));
        assert_eq!(new, [true, true, false]);
        assert_eq!((stay.least(4), stay.most(4)), (2 * FRAME, 4 * FRAME));
    }

    #[test]
    fn the_watch_runs_during_the_work_only_and_stops_when_that_panics() {
        let excluded = ExcludedTime::default();
        excluded.during(|| {
            std::thread::sleep(ms(5));
            assert!(excluded.total() >= ms(5), "also before it stops");
        });
        let panics = std::panic::AssertUnwindSafe(|| excluded.during(|| panic!("on purpose")));
        assert!(std::panic::catch_unwind(panics).is_err());
        let total = excluded.total();
        std::thread::sleep(ms(5));
        assert_eq!(excluded.total(), total);
    }
}
