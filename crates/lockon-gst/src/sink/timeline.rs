//! The times of frames in the output.

use super::LOG;
use lockon_core::frame::{FrameMeta, USUAL_INTERVAL_NS};

/// The distance given to frames that came at one time, in nanoseconds; less if frames follow each other fast.
const MOST_APART_NS: u64 = 1_000_000;

/// The time of a frame, in nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Timestamps {
    pub(crate) pts: u64,
    /// Its duration: a guess if it is unknown, but never 0, or MP4's players would not show the last frame.
    pub(crate) duration: u64,
}

/// Gives every frame its time in the output.
pub(super) struct Timeline {
    /// Nanoseconds a frame at a constant rate, as a fraction; `None` if it varies.
    interval: Option<(u64, u64)>,
    /// Frames go by the clock of the output, not by their own times.
    on_clock: bool,
    /// Added to the frames' own times so that none is late on the clock.
    shift: Option<i128>,
    /// Added to the frames' own times because the source's clock was turned back: files need ascending times.
    turned_back: u64,
    /// Subtracted from the frames' own times; `None` means the first frame's time, which is not known yet.
    pub(super) origin: Option<u64>,
    /// The output's name, if it has a constant rate and there was no warning yet.
    constant_rate: Option<String>,
    frames: u64,
    first: u64,
    /// The last frame's own time, and its time in the output.
    last: Option<u64>,
    last_pts: Option<u64>,
}

impl Timeline {
    pub(super) fn new(rate: (i32, i32), on_clock: bool, constant_rate: Option<String>) -> Self {
        let interval = interval(rate);
        Self {
            interval,
            on_clock,
            shift: None,
            turned_back: 0,
            origin: Some(0),
            constant_rate,
            frames: 0,
            first: 0,
            last: None,
            last_pts: None,
        }
    }

    /// Frames come at another rate from now on.
    pub(super) fn set_rate(&mut self, rate: (i32, i32)) {
        self.interval = interval(rate);
    }

    /// The next frame's times. `now` is the output's clock, if it has a running one.
    pub(super) fn next(
        &mut self,
        meta: &FrameMeta,
        now: impl FnOnce() -> Option<gst::ClockTime>,
    ) -> Timestamps {
        let nominal = self.interval.map(|(ns, frames)| ns / frames);
        let step = |last: u64| last + meta.duration_ns.or(nominal).unwrap_or(USUAL_INTERVAL_NS);
        // A source without times gets those of its frame rate, or else evenly spaced ones.
        let own = meta.pts_ns.or_else(|| self.interval.map(|i| grid(i, self.frames)));
        let origin = *self.origin.get_or_insert(own.unwrap_or(0));
        let own = own.map(|own| (own + self.turned_back).saturating_sub(origin));
        let own = own.unwrap_or_else(|| self.last.map_or(0, step));
        let own = match self.last {
            Some(last) if own < last => {
                let next = step(last);
                self.turned_back += next - own;
                next
            }
            _ => own,
        };
        let pts = if self.on_clock { self.on_clock(own, now()) } else { own };
        // If frames came at one time, as after a stall, players show only the first: their times are moved
        // apart a little.
        let apart = meta.duration_ns.or(nominal).unwrap_or(USUAL_INTERVAL_NS) / 8;
        let earliest = self.last_pts.map_or(0, |last| last + apart.min(MOST_APART_NS));
        let pts = pts.max(earliest);
        self.last_pts = Some(pts);
        if self.frames == 0 {
            self.first = pts;
        }
        self.warn_if_off_the_grid(pts);
        let gap = self.last.and_then(|last| own.checked_sub(last)).filter(|&gap| gap > 0);
        self.last = Some(own);
        self.frames += 1;
        let duration = meta.duration_ns.or(nominal).or(gap).unwrap_or(USUAL_INTERVAL_NS);
        Timestamps { pts, duration }
    }

    /// The frame's own time, moved so that the first is shown at once and none is late.
    ///
    /// A late frame moves itself and later frames: a search slower than the video shows it in slow motion.
    /// Without this a screen would drop it, and all later frames.
    fn on_clock(&mut self, own: u64, now: Option<gst::ClockTime>) -> u64 {
        let (own, now) = (i128::from(own), now.map_or(0, |now| i128::from(now.nseconds())));
        let shift = self.shift.map_or(now - own, |shift| shift.max(now - own));
        self.shift = Some(shift);
        u64::try_from(own + shift).unwrap_or(0)
    }

    fn warn_if_off_the_grid(&mut self, pts: u64) {
        let (Some(name), Some(interval)) = (&self.constant_rate, self.interval) else { return };
        let shown = self.first + grid(interval, self.frames);
        if shown.abs_diff(pts) > interval.0 / interval.1 {
            tracing::warn!(target: LOG,
                "{name}: the frame rate varies, but AVI shows frames at a constant rate (.mp4, .mkv and .webm keep times)"
            );
            self.constant_rate = None;
        }
    }
}

/// Nanoseconds a frame, as a fraction; `None` if the rate varies.
fn interval((n, d): (i32, i32)) -> Option<(u64, u64)> {
    (n > 0 && d > 0).then(|| (d as u64 * 1_000_000_000, n as u64))
}

/// Time of frame `index` at a constant rate.
fn grid((ns, frames): (u64, u64), index: u64) -> u64 {
    (u128::from(ns) * u128::from(index) / u128::from(frames)) as u64
}
