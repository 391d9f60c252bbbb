//! Control of a run from outside while it is in progress.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::change::Change;
use crate::config::{CountingLine, CountingLines, Zone, Zones};
use crate::error::{Error, Result};
use crate::frame::{Frame, Rect};
use crate::locks::{MutexGuard, Ranked, lock};
use crate::orders::{Order, Orders, Repeated, Reply, Watched};
use crate::recent_frames::RecentFrames;

/// Maximum time that anything waits before it checks whether the run was stopped.
pub const STOP_CHECK: Duration = Duration::from_millis(50);

/// Maximum time that a paused run waits before it checks whether it may continue.
pub const PAUSE_CHECK: Duration = Duration::from_millis(10);

/// A handle on a run, to be shared freely: with callers that stop it, pause it or change the tracks, and with
/// code that waits or works for long and therefore has to check for these. Clones are handles on the same
/// run.
///
/// Tracks and the search can be changed from any thread while frames pass:
///
/// ```
/// # use lockon_core::{change::Change, control::Control, frame::Rect, Result};
/// # use std::time::Duration;
/// fn follow_from_now_on(run: &Control) -> Result<()> {
///     let reply = run.follow(Rect::new(310, 120, 64, 128), None)?;
///     let id = reply.id().expect("a track has a number");
///     let frame = reply.wait(Duration::from_secs(1))?;
///     println!("track {id} begins with frame {frame}");
///     run.change(Change { min_score: Some(0.7), ..Change::default() })?;
///     Ok(())
/// }
/// ```
#[derive(Debug, Clone, Default)]
pub struct Control {
    is_stopped: Arc<AtomicBool>,
    /// The flag that stops a group of runs with this one.
    all_are_stopped: Option<Arc<AtomicBool>>,
    pace: Arc<Mutex<Pace>>,
    pub(crate) orders: Orders,
    /// The zones and lines after all orders so far.
    pub(crate) watched: Watched,
    /// Frames that have passed.
    recent_frames: Arc<Ranked<RecentFrames, 105>>,
}

/// Controls when a run may continue with its next frame.
#[derive(Debug, Default)]
struct Pace {
    /// The start of the current pause.
    since: Option<Instant>,
    /// Total time of all pauses before.
    before: Duration,
    /// Frames that were allowed by steps while it paused...
    steps: u64,
    /// ...and how many of them were before this pause.
    steps_before: u64,
    /// Speed of the video, relative to its times; `None` is as fast as possible.
    speed: Option<f64>,
    /// The place to continue from, in nanoseconds.
    jump_ns: Option<u64>,
}

impl Pace {
    fn begin(&mut self) {
        if self.since.is_none() {
            self.since = Some(Instant::now());
            self.steps_before = self.steps;
        }
    }
}

impl Control {
    /// Returns a handle on a run that has not been stopped.
    pub fn new() -> Self {
        Self::default()
    }

    /// A handle on another run, which ends by itself, and with this one at the latest.
    #[must_use]
    pub fn child(&self) -> Self {
        debug_assert!(self.all_are_stopped.is_none(), "children have no children");
        Self { all_are_stopped: Some(self.is_stopped.clone()), ..Self::default() }
    }

    /// Stops the run as soon as possible. This cannot be undone. A paused run continues to its end.
    pub fn stop(&self) {
        self.is_stopped.store(true, Ordering::Relaxed);
    }

    /// Returns an error if the run was stopped, to end the caller's work.
    ///
    /// # Errors
    /// `Stopped`.
    pub fn check(&self) -> Result<()> {
        if self.is_stopped() { Err(Error::Stopped) } else { Ok(()) }
    }

    /// True once the run was stopped. Cheap enough to be called between any two pieces of work.
    pub fn is_stopped(&self) -> bool {
        let is_set = |flag: &AtomicBool| flag.load(Ordering::Relaxed);
        is_set(&self.is_stopped) || self.all_are_stopped.as_deref().is_some_and(is_set)
    }

    /// Starts a pause before the next frame, or ends it.
    pub fn pause(&self, pauses: bool) {
        let mut pace = self.pace();
        if pauses {
            pace.begin();
        } else if let Some(since) = pace.since.take() {
            pace.before += since.elapsed();
        }
    }

    /// Lets the run continue for one frame. A run that is not paused pauses after it.
    pub fn step(&self) {
        let mut pace = self.pace();
        pace.begin();
        pace.steps += 1;
    }

    /// True if a pause was requested and the run was not stopped.
    pub fn is_paused(&self) -> bool {
        !self.is_stopped() && self.pace().since.is_some()
    }

    /// Total time that the run has paused so far.
    pub fn paused(&self) -> Duration {
        let pace = self.pace();
        pace.before + pace.since.map_or(Duration::ZERO, |since| since.elapsed())
    }

    /// Sets the speed relative to the video's times, more than 0; `None`, the default, is as fast as
    /// possible. It applies to frames that come through [`crate::paced::Paced`], from the next frame on, and
    /// changes no results.
    pub fn set_speed(&self, speed: Option<f64>) {
        self.pace().speed = speed.filter(|speed| speed.is_finite() && *speed > 0.0);
    }

    /// Speed of the video, relative to its times; `None` is as fast as possible.
    pub fn speed(&self) -> Option<f64> {
        self.pace().speed
    }

    /// Requests a jump: the next frame is the first at or after that time. A source that cannot jump there
    /// ignores it.
    pub fn jump_to(&self, ns: u64) {
        self.pace().jump_ns = Some(ns);
    }

    /// Removes and returns the last requested place.
    pub(crate) fn take_jump(&self) -> Option<u64> {
        self.pace().jump_ns.take()
    }

    /// Watches a zone from the next frame on, or moves the one of that name. Its corners are in pixels of the
    /// current frames.
    ///
    /// # Errors
    /// `Order` if no run is active. The reply has `Order` if the zone lies outside of the picture, or
    /// there are too many.
    pub fn set_zone(&self, zone: Zone) -> Result<Reply> {
        self.orders.ask(|_| Some(Order::Zone { zone }))
    }

    /// Stops watching a zone.
    ///
    /// # Errors
    /// `Order` if no run is active. The reply has `Order` if there is no such zone.
    pub fn remove_zone(&self, name: impl Into<Arc<str>>) -> Result<Reply> {
        self.orders.ask(|_| Some(Order::RemoveZone { name: name.into() }))
    }

    /// Sets the zones at the start of the run. Call it before the run begins.
    pub fn begin_with_zones(&self, zones: Vec<Zone>) {
        self.watched.lock().zones = Zones::new(zones);
    }

    /// Counts the tracks that cross a line from the next frame on, or moves the line of that name; its counts
    /// begin at 0. Its ends are in pixels of the current frames.
    ///
    /// # Errors
    /// `Order` if no run is active. The reply has `Order` if the line lies outside of the picture, or
    /// there are too many.
    pub fn set_line(&self, line: CountingLine) -> Result<Reply> {
        self.orders.ask(|_| Some(Order::Line { line }))
    }

    /// Removes a line.
    ///
    /// # Errors
    /// `Order` if no run is active. The reply has `Order` if there is no such line.
    pub fn remove_line(&self, name: impl Into<Arc<str>>) -> Result<Reply> {
        self.orders.ask(|_| Some(Order::RemoveLine { name: name.into() }))
    }

    /// The zones after all orders so far, in pixels of the pictures that came with the last of these.
    pub fn zones(&self) -> Vec<Zone> {
        self.watched.now().0
    }

    /// Sets the lines at the start of the run. Call it before the run begins.
    pub fn begin_with_lines(&self, lines: Vec<CountingLine>) {
        self.watched.lock().lines = CountingLines::new(lines);
    }

    /// Follows the content of a box in frame `at`, or in the next processed frame. The reply has the track's
    /// number at once.
    ///
    /// A frame that has passed must be one of those that are kept ([`Control::keep_frames`]): the target is
    /// followed through the frames since, so that its track begins at its current place.
    ///
    /// # Errors
    /// `Order` if no run is active.
    pub fn follow(&self, rect: Rect, at: Option<u64>) -> Result<Reply> {
        self.orders.ask(|numbers| Some(Order::Follow { id: numbers.next()?, rect, at }))
    }

    /// Corrects a track: its target is in this box. It is learnt again from there, under its number.
    ///
    /// # Errors
    /// `Order` if no run is active.
    pub fn correct(&self, id: u32, rect: Rect, at: Option<u64>) -> Result<Reply> {
        self.orders.ask(|_| Some(Order::Correct { id, rect, at }))
    }

    /// Stops following a track. A template that finds its target may begin another one there.
    ///
    /// # Errors
    /// `Order` if no run is active.
    pub fn forget(&self, id: u32) -> Result<Reply> {
        self.orders.ask(|_| Some(Order::Forget { id }))
    }

    /// Stops following all tracks.
    ///
    /// # Errors
    /// `Order` if no run is active.
    pub fn clear(&self) -> Result<Reply> {
        self.orders.ask(|_| Some(Order::Clear))
    }

    /// Changes the search from the next processed frame on: templates, limits, region, threshold. Either the
    /// whole change is made or nothing.
    ///
    /// # Errors
    /// `Order` if no run is active. The reply has the error of the part that cannot be done: `Order`,
    /// `Value`, `Template`, `NothingFits`, `Outside`, or the error of opening a device for it.
    pub fn change(&self, change: Change) -> Result<Reply> {
        self.orders.ask(|_| Some(Order::Change(change.into())))
    }

    /// Accepts orders from now on, for a run that begins soon and follows so many boxes from its start: the
    /// orders are carried out with its first frame. A run does this by itself when it begins.
    pub fn begin(&self, tracks: u32) {
        self.orders.begin(tracks);
    }

    /// True while a run is active, or begins soon: orders are accepted.
    pub fn takes_orders(&self) -> bool {
        self.orders.are_taken()
    }

    /// Keeps copies of the last so many frames, for boxes that are given in a frame that has passed. Each
    /// takes as many bytes as a picture; none are kept unless this is called.
    pub fn keep_frames(&self, count: usize) {
        self.orders.keep(count);
    }

    /// A copy of a frame that has passed, as it was decoded, if it is one of the kept frames and the run is
    /// still in progress.
    pub fn kept_frame(&self, index: u64) -> Option<Frame> {
        self.recent_frames().get(index)
    }

    /// Locks the kept frames. No other thread can access them while the returned guard lives.
    pub(crate) fn recent_frames(&self) -> MutexGuard<'_, RecentFrames> {
        // An incomplete frame is never listed.
        self.recent_frames.lock()
    }

    /// Repeats the orders of an earlier run at the same frames. Call it before the run begins.
    pub fn repeat(&self, orders: Vec<Repeated>) {
        self.orders.repeat(orders);
    }

    fn pace(&self) -> MutexGuard<'_, Pace> {
        // It is whole at every moment.
        lock(&self.pace)
    }
}

/// Stops a thread that goes frame by frame while a run pauses, and counts the steps that the thread used.
/// Each such thread has a turnstile of its own.
#[derive(Debug, Clone)]
pub struct Turnstile {
    control: Control,
    /// Steps that were used, or that are too old to be used.
    taken: u64,
}

impl Turnstile {
    /// Returns a turnstile for that run. Steps that were requested before do not count for it.
    pub fn new(control: &Control) -> Self {
        Self { control: control.clone(), taken: control.pace().steps }
    }

    /// True if the next frame may pass: there is no pause, or a step that was not taken yet.
    pub fn is_open(&mut self) -> bool {
        let pace = self.control.pace();
        self.taken = self.taken.max(pace.steps_before);
        pace.since.is_none() || self.taken < pace.steps || self.control.is_stopped()
    }

    /// True if the run was stopped.
    pub fn is_stopped(&self) -> bool {
        self.control.is_stopped()
    }

    /// A frame passes.
    pub fn pass(&mut self) {
        let pace = self.control.pace();
        // Between pauses there are no steps to take.
        if pace.since.is_some() && self.taken < pace.steps {
            self.taken += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_clones_hear_of_the_end() {
        let control = Control::new();
        let (other, unrelated) = (control.clone(), Control::new());
        assert!(!other.is_stopped());
        control.stop();
        assert!(control.is_stopped() && other.is_stopped() && !unrelated.is_stopped());
    }

    #[test]
    fn a_child_ends_alone_or_with_all() {
        let all = Control::new();
        let [one, other] = [all.child(), all.child()];
        one.stop();
        assert!(one.is_stopped() && !other.is_stopped() && !all.is_stopped());
        one.pause(true);
        other.pause(true);
        assert!(other.is_paused() && !all.is_paused());
        all.stop();
        assert!(other.is_stopped() && !other.is_paused());
    }

    #[test]
    fn a_pause_lets_one_frame_pass_for_each_step() {
        let control = Control::new();
        let mut turnstile = Turnstile::new(&control);
        for _ in 0..3 {
            assert!(turnstile.is_open());
            turnstile.pass();
        }
        control.pause(true);
        assert!(control.is_paused() && !turnstile.is_open());
        control.step();
        control.step();
        for open in [true, true, false] {
            assert_eq!(turnstile.is_open(), open);
            turnstile.pass();
        }
        assert!(!turnstile.is_open() && !Turnstile::new(&control).is_open());
        control.pause(false);
        assert!(!control.is_paused() && turnstile.is_open());
    }

    #[test]
    fn a_step_pauses_after_the_next_frame_and_none_is_saved_up_for_the_next_pause() {
        let control = Control::new();
        let mut turnstile = Turnstile::new(&control);
        control.step();
        assert!(control.is_paused() && turnstile.is_open());
        turnstile.pass();
        assert!(!turnstile.is_open());
        control.step();
        control.pause(false);
        // The turnstile was not asked meanwhile.
        control.pause(true);
        assert!(!turnstile.is_open());
    }

    #[test]
    fn the_end_opens_what_pauses() {
        let control = Control::new();
        control.pause(true);
        control.stop();
        assert!(Turnstile::new(&control).is_open() && !control.is_paused());
    }

    #[test]
    fn the_time_of_all_pauses_is_counted() {
        let control = Control::new();
        assert_eq!(control.paused(), Duration::ZERO);
        for _ in 0..2 {
            control.pause(true);
            std::thread::sleep(Duration::from_millis(10));
            control.pause(false);
        }
        let paused = control.paused();
        assert!(paused >= Duration::from_millis(20));
        std::thread::sleep(Duration::from_millis(5));
        assert_eq!(control.paused(), paused);
    }
}
