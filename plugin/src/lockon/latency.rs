//! How long live frames stay in the element, for latency queries.
//!
//! A frame's stay is the time in which it is searched or waits for the search of others. Time in downstream,
//! such as a sink that waits for the clock, does not count, nor does the time to open a device for frames of
//! another size, which is needed only once.

use lockon_core::locks::{MutexGuard, lock};
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// The latency is reported in steps of this if neither caps nor buffers have a duration.
const STEP: gst::ClockTime = gst::ClockTime::from_mseconds(10);

/// Stays must be shorter for this long before a shorter latency is reported: each change makes the pipeline
/// shift its frames in time.
const QUIET: Duration = Duration::from_secs(10);

/// Maximum number of doublings: after each rise that follows a fall, the next fall waits twice as long. So
/// a search that is sometimes slow does not change the latency endlessly.
const MOST_DOUBLINGS: u32 = 5;

/// Measures how long frames stay.
#[derive(Debug, Default)]
pub(super) struct Stay {
    /// The duration of a frame, if known.
    frame: Option<gst::ClockTime>,
    /// The longest stay, from which the reported latency is computed.
    longest: gst::ClockTime,
    /// The time since which all stays were shorter than reported, and the longest of these.
    quiet: Option<(Instant, gst::ClockTime)>,
    /// True if the latency has fallen, and not risen since.
    has_fallen: bool,
    /// The number of rises after falls.
    doublings: u32,
}

impl Stay {
    /// Notes the duration from caps, or that it is not known. True if that is new.
    pub(super) fn set_frame(&mut self, duration: Option<gst::ClockTime>) -> bool {
        std::mem::replace(&mut self.frame, duration) != duration
    }

    /// Notes the duration from a buffer, if caps have none: the longest counts. True if that is new.
    pub(super) fn see_frame(&mut self, duration: gst::ClockTime) -> bool {
        let is_longer = self.frame.is_none_or(|frame| frame < duration) && !duration.is_zero();
        is_longer && self.set_frame(Some(duration))
    }

    /// Notes the stay of a frame that leaves `now`; at most `room` frames can be inside. True if the latency
    /// changes: a rise counts at once, a fall after a [quiet](QUIET) while.
    pub(super) fn note(&mut self, stay: Duration, room: u64, now: Instant) -> bool {
        let told = self.least(room);
        let stay = u64::try_from(stay.as_nanos()).unwrap_or(u64::MAX);
        let stay = gst::ClockTime::from_nseconds(stay.min(u64::MAX - 1));
        let needed = self.latency_of(stay, room);
        if needed >= told {
            (self.longest, self.quiet) = (self.longest.max(stay), None);
            if needed > told && std::mem::take(&mut self.has_fallen) {
                self.doublings = (self.doublings + 1).min(MOST_DOUBLINGS);
            }
            return needed > told;
        }
        let (since, longest) = self.quiet.get_or_insert((now, stay));
        *longest = stay.max(*longest);
        let (since, longest) = (*since, *longest);
        if now.saturating_duration_since(since) < QUIET * (1 << self.doublings) {
            return false;
        }
        (self.longest, self.quiet, self.has_fallen) = (longest, None, true);
        true
    }

    /// The minimum latency to report. A search that keeps up takes a frame's duration or
    /// less; it is more only if frames stayed longer, in whole durations and never more than `room` of them.
    pub(super) fn least(&self, room: u64) -> gst::ClockTime {
        self.latency_of(self.longest, room)
    }

    fn latency_of(&self, stay: gst::ClockTime, room: u64) -> gst::ClockTime {
        match self.frame {
            Some(frame) => frame * stay.nseconds().div_ceil(frame.nseconds()).clamp(1, room),
            None => STEP * stay.nseconds().div_ceil(STEP.nseconds()),
        }
    }

    /// Returns how long frames can be held when the element is full.
    pub(super) fn most(&self, room: u64) -> gst::ClockTime {
        self.frame.map_or(self.least(room), |frame| frame * room)
    }
}

/// A watch that runs while the element's thread neither searches nor waits for frames: it pushes downstream,
/// or opens a device for frames of another size.
#[derive(Debug, Default)]
pub(super) struct ExcludedTime(Mutex<Stopwatch>);

#[derive(Debug, Default)]
struct Stopwatch {
    stopped_at: Duration,
    running_since: Option<Instant>,
}

impl ExcludedTime {
    fn lock(&self) -> MutexGuard<'_, Stopwatch> {
        lock(&self.0)
    }

    /// Runs `work`, whose time does not count as search.
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

    /// Returns the time excluded so far.
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
        let (mut stay, now) = (Stay::default(), Instant::now());
        assert!(stay.set_frame(Some(FRAME)) && !stay.set_frame(Some(FRAME)));
        assert_eq!((stay.least(4), stay.most(4)), (FRAME, 4 * FRAME), "one, before anything was seen");
        let grows = [0, 40, 41, 80, 60, 100, 300].map(|stayed| stay.note(ms(stayed), 4, now));
        assert_eq!(grows, [false, false, true, false, false, true, true]);
        assert_eq!(stay.least(4), 4 * FRAME);
        assert!(!stay.note(ms(900), 4, now), "no more than has room");
        // Earlier stays count again if frames have a longer duration.
        stay.set_frame(Some(10 * FRAME));
        assert_eq!(stay.least(4), 30 * FRAME);
    }

    #[test]
    fn without_a_rate_buffers_tell_it_or_the_stay_itself_counts() {
        let (mut stay, now) = (Stay::default(), Instant::now());
        assert_eq!((stay.least(4), stay.most(4)), (gst::ClockTime::ZERO, gst::ClockTime::ZERO));
        assert!(stay.note(ms(63), 4, now));
        assert_eq!((stay.least(4), stay.most(4)), (7 * STEP, 7 * STEP));
        assert!(!stay.see_frame(gst::ClockTime::ZERO));
        let new = [30, 40, 35].map(|shown| stay.see_frame(gst::ClockTime::from_mseconds(shown)));
        assert_eq!(new, [true, true, false]);
        assert_eq!((stay.least(4), stay.most(4)), (2 * FRAME, 4 * FRAME));
    }

    /// Frames that stay for so long each, every 40 ms from `from` on. Gives when the latency changed, in
    /// milliseconds after that.
    fn changes(stay: &mut Stay, from: Instant, stays: impl Iterator<Item = u64>) -> Vec<u64> {
        let frames = (0..).step_by(40).zip(stays);
        frames.filter(|(at, stayed)| stay.note(ms(*stayed), 6, from + ms(*at))).map(|(at, _)| at).collect()
    }

    #[test]
    fn after_ten_quiet_seconds_the_latency_falls_to_what_was_needed_in_them() {
        let (mut stay, start) = (Stay::default(), Instant::now());
        stay.set_frame(Some(FRAME));
        assert_eq!(changes(&mut stay, start, [30, 230, 60].into_iter()), [40]);
        assert_eq!(stay.least(6), 6 * FRAME);
        // A stay as long as the reported latency restarts the wait.
        let noisy = (0..1000).map(|n| if n % 200 == 0 { 210 } else { 30 });
        assert_eq!(changes(&mut stay, start, noisy), [0u64; 0]);
        let quiet = |first: u64, longest: u64| {
            (0..300).map(move |n| {
                if n == 0 {
                    first
                } else if n == 100 {
                    longest
                } else {
                    30
                }
            })
        };
        assert_eq!(changes(&mut stay, start + ms(100_000), quiet(230, 90)), [10_040]);
        assert_eq!(stay.least(6), 3 * FRAME, "as the longest of these seconds needs");
        assert_eq!(changes(&mut stay, start + ms(200_000), quiet(90, 30)), [10_040]);
        assert_eq!(stay.least(6), FRAME);
        assert_eq!(changes(&mut stay, start + ms(300_000), [30; 900].into_iter()), [0u64; 0], "no less");
    }

    #[test]
    fn a_latency_that_rises_again_and_again_takes_longer_to_fall_each_time() {
        let (mut stay, mut now) = (Stay::default(), Instant::now());
        stay.set_frame(Some(FRAME));
        let falls = [10u64, 20, 40, 80, 160, 320, 320].map(|seconds| {
            let stays = std::iter::once(100).chain(std::iter::repeat_n(30, 25 * 330));
            let changed = changes(&mut stay, now, stays);
            now += ms(400_000);
            (changed, seconds)
        });
        for (changed, seconds) in falls {
            // It falls with the first frame after so many seconds from the second on.
            assert_eq!(changed, [0, 40 + 1000 * seconds]);
        }
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
