//! Playback: a file's frames at the speed of their times, and jumps if a source supports them.
//!
//! [`Paced`] stands between a source and the engine. It decides when a frame passes, never its results: they
//! are the same at every speed.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::control::Control;
use crate::error::Result;
use crate::frame::Frame;
use crate::ports::{Next, Source};
use crate::results::Detection;

/// A run that is later than this continues from there: it does not hurry to catch up.
const MOST_LATE: Duration = Duration::from_millis(250);

/// Longest wait for one frame at speed 1. Longer gaps between the times of two frames are skipped.
const MOST_GAP: Duration = Duration::from_secs(10);

/// A source that can jump to another place of its video.
pub trait Jump: Source {
    /// The next frame is the first at or after that time. False if this source cannot jump there: then
    /// nothing has changed.
    ///
    /// # Errors
    /// As [`Source::wait_next`].
    fn jump_to(&mut self, ns: u64) -> Result<bool>;
}

/// The frames of a source at the speed of [`Control::speed`]. Without a speed they pass as they come.
pub struct Paced<S> {
    source: S,
    control: Control,
    /// A frame whose time has not come.
    held: Option<Frame>,
    clock: Option<Clock>,
    /// Time that frames waited here.
    waited: Duration,
}

/// A time of the clock, and its place in the video.
struct Clock {
    at: Instant,
    ns: u64,
    speed: f64,
    /// How long the run had paused until then.
    paused: Duration,
}

impl<S: Jump> Paced<S> {
    /// The frames of `source`, at the speed of a run.
    pub fn new(source: S, control: &Control) -> Self {
        Self { source, control: control.clone(), held: None, clock: None, waited: Duration::ZERO }
    }

    /// The source of the frames.
    pub fn source(&self) -> &S {
        &self.source
    }

    fn next(&mut self, timeout: Option<Duration>) -> Result<Next> {
        let deadline = timeout.map(|timeout| Instant::now() + timeout);
        if let Some(ns) = self.control.take_jump()
            && self.source.jump_to(ns)?
        {
            (self.held, self.clock) = (None, None);
        }
        let (frame, was_held) = match self.held.take() {
            Some(frame) => (frame, true),
            None => match self.source.next_until(deadline)? {
                Next::Frame(frame) => (frame, false),
                other => return Ok(other),
            },
        };
        let wait = self.wait_for(&frame);
        if wait.is_zero() {
            return Ok(Next::Frame(if was_held { on_time(frame) } else { frame }));
        }
        let left = deadline.map_or(Duration::ZERO, |at| at.saturating_duration_since(Instant::now()));
        let sleep = wait.min(left);
        std::thread::sleep(sleep);
        self.waited += sleep;
        if sleep < wait {
            self.held = Some(frame);
            return Ok(Next::Pending);
        }
        Ok(Next::Frame(on_time(frame)))
    }

    /// Returns the time that a frame has to wait from now on. Starts the clock again where the video does not
    /// continue as before.
    fn wait_for(&mut self, frame: &Frame) -> Duration {
        // A step of a run that pauses, or its end: nothing to wait for.
        let is_held_up = self.control.is_paused() || self.control.is_stopped();
        let (false, Some(speed), Some(ns)) = (is_held_up, self.control.speed(), frame.meta.pts_ns) else {
            self.clock = None;
            return Duration::ZERO;
        };
        let (now, paused) = (Instant::now(), self.control.paused());
        if let Some(clock) = &self.clock
            && clock.speed == speed
            && clock.paused == paused
            && let Some(passed) = ns.checked_sub(clock.ns)
        {
            let due = clock.at + Duration::from_nanos(passed).div_f64(speed);
            let wait = due.saturating_duration_since(now);
            if now.saturating_duration_since(due) < MOST_LATE && wait <= MOST_GAP.div_f64(speed) {
                if wait.is_zero() && passed > 0 {
                    // In steps of a frame: an error of the clock does not add up over hours.
                    self.clock = Some(Clock { at: due, ns, speed, paused });
                }
                return wait;
            }
        }
        self.clock = Some(Clock { at: now, ns, speed, paused });
        Duration::ZERO
    }
}

/// A frame that waited for its time arrives when that comes.
fn on_time(mut frame: Frame) -> Frame {
    frame.meta.arrived = Instant::now();
    frame
}

impl<S: Jump> Source for Paced<S> {
    fn try_next(&mut self) -> Result<Next> {
        self.next(None)
    }

    fn wait_next(&mut self, timeout: Duration) -> Result<Next> {
        self.next(Some(timeout))
    }

    fn dropped(&self) -> u64 {
        self.source.dropped()
    }

    fn damaged(&self) -> u64 {
        self.source.damaged()
    }

    fn held_up(&self) -> Duration {
        self.source.held_up() + self.waited
    }

    fn passed(&self) -> u64 {
        self.source.passed()
    }

    fn detections(&mut self, frame: u64, found: &mut Vec<Detection>) {
        self.source.detections(frame, found);
    }

    fn picture(&self, frame: u64) -> Option<Arc<str>> {
        self.source.picture(frame)
    }

    fn has_discarded(&self, frame: u64) -> bool {
        self.source.has_discarded(frame)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::{Circumstances, FrameMeta, PixelFormat, Plane, Size, VideoFormat};

    /// Frames at a fixed interval in milliseconds, without an end.
    struct Ticks {
        next: u64,
        ms: u64,
    }

    impl Ticks {
        fn frame(&self) -> Frame {
            let size = Size::new(3, 5);
            Frame {
                meta: FrameMeta {
                    index: self.next,
                    pts_ns: Some(self.next * self.ms * 1_000_000),
                    duration_ns: None,
                    arrived: Instant::now(),
                },
                circumstances: Circumstances::default(),
                format: Arc::new(VideoFormat {
                    size,
                    pixels: PixelFormat::GRAY8,
                    frame_rate: (0, 1),
                    pixel_aspect: (1, 1),
                    colorimetry: None,
                }),
                picture: Arc::new(Plane::new(size)),
            }
        }
    }

    impl Source for Ticks {
        fn try_next(&mut self) -> Result<Next> {
            let frame = self.frame();
            self.next += 1;
            Ok(Next::Frame(frame))
        }

        fn wait_next(&mut self, _: Duration) -> Result<Next> {
            self.try_next()
        }

        fn dropped(&self) -> u64 {
            0
        }
    }

    impl Jump for Ticks {
        fn jump_to(&mut self, ns: u64) -> Result<bool> {
            self.next = ns / (self.ms * 1_000_000);
            Ok(true)
        }
    }

    fn paced(ms: u64, speed: Option<f64>) -> (Control, Paced<Ticks>) {
        let control = Control::new();
        control.set_speed(speed);
        let paced = Paced::new(Ticks { next: 0, ms }, &control);
        (control, paced)
    }

    fn take(paced: &mut Paced<Ticks>, count: usize) -> Vec<u64> {
        let mut taken = Vec::new();
        while taken.len() < count {
            if let Next::Frame(frame) = paced.wait_next(Duration::from_millis(50)).unwrap() {
                taken.push(frame.meta.index);
            }
        }
        taken
    }

    #[test]
    fn frames_pass_at_the_speed_of_their_times_and_none_is_left_out() {
        for (speed, least) in [(1.0, 200), (0.5, 400), (4.0, 50)] {
            let (_control, mut paced) = paced(10, Some(speed));
            let begun = Instant::now();
            assert_eq!(take(&mut paced, 21), (0..21).collect::<Vec<_>>());
            // It may take longer on a busy machine, but never less.
            let took = begun.elapsed();
            assert!(took >= Duration::from_millis(least - 1), "{speed}: {took:?}");
            assert!(paced.held_up() <= took && paced.held_up() > took / 4, "{speed}: {:?}", paced.held_up());
        }
    }

    #[test]
    fn at_full_speed_nothing_waits() {
        let (control, mut paced) = paced(3_600_000, None);
        assert_eq!(take(&mut paced, 9).len(), 9);
        assert_eq!(paced.held_up(), Duration::ZERO);
        // From the next frame on.
        control.set_speed(Some(1.0));
        assert_eq!(take(&mut paced, 1), [9]);
        assert!(control.speed() == Some(1.0));
        for none in [0.0, -1.0, f64::NAN, f64::INFINITY] {
            control.set_speed(Some(none));
            assert_eq!(control.speed(), None);
        }
    }

    #[test]
    fn a_gap_between_two_times_is_skipped_and_not_waited_for() {
        let (_control, mut paced) = paced(3_600_000, Some(1.0));
        assert_eq!(take(&mut paced, 3), [0, 1, 2]);
    }

    #[test]
    fn a_frame_that_waits_is_let_go_by_a_step_another_speed_and_the_end() {
        let let_go: [fn(&Control); 3] = [Control::step, |control| control.set_speed(None), Control::stop];
        for let_go in let_go {
            let (control, mut paced) = paced(5_000, Some(1.0));
            assert_eq!(take(&mut paced, 1), [0]);
            assert!(matches!(paced.try_next().unwrap(), Next::Pending));
            assert!(matches!(paced.wait_next(Duration::from_millis(1)).unwrap(), Next::Pending));
            let_go(&control);
            assert!(matches!(paced.try_next().unwrap(), Next::Frame(frame) if frame.meta.index == 1));
        }
    }

    #[test]
    fn a_jump_drops_the_frame_that_waits_and_goes_on_there() {
        let (control, mut paced) = paced(1_000, Some(1.0));
        assert_eq!(take(&mut paced, 1), [0]);
        assert!(matches!(paced.try_next().unwrap(), Next::Pending));
        control.jump_to(90_000_000_000);
        assert!(matches!(paced.try_next().unwrap(), Next::Frame(frame) if frame.meta.index == 90));
        assert!(matches!(paced.try_next().unwrap(), Next::Pending));
        control.jump_to(0);
        assert!(matches!(paced.try_next().unwrap(), Next::Frame(frame) if frame.meta.index == 0));
    }
}
