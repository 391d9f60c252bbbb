//! Detects files that deliver nothing any more, although nothing else blocks them.
//!
//! Three causes are known. `decodebin` gets no errors of a demuxer while it connects it, so a demuxer that
//! fails at once fails silently: its thread pauses, and all others wait for it. Opening the file again
//! usually shows the error. At the end of a file the demuxers of libav (GIF) in GStreamer 1.22 learn that
//! there is nothing *yet*, and read there for ever. The demuxer of MP4 reads fragments without an index over
//! and over. Any other cause shows by the time without any movement.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use gst::prelude::*;

use lockon_core::control::STOP_CHECK;
use lockon_core::locks::lock;

/// How long a pipeline may be at rest before it is abandoned. Its threads pause one after the other, so a
/// short rest means nothing.
const AT_REST: Duration = Duration::from_millis(400);

/// Maximum time without a frame and without a new byte of the file. Slow disks and decoders still move.
const PATIENCE: Duration = Duration::from_secs(if cfg!(test) { 2 } else { 30 });

/// Maximum reads of a demuxer at the end of a file in succession. A demuxer that looks for an index there
/// reads a few times.
const MOST_READS_AT_END: u32 = 64;

/// Maximum reads of one place of a file without a frame from it.
const MOST_READS_OF_ONE_PLACE: u32 = 1000;

/// Pause between two checks of a pipeline's threads: each checks all of its pads.
const LOOK: Duration = Duration::from_millis(50);

/// Maximum counted time between two checks. After a longer pause the observer itself was stopped: by Ctrl-Z,
/// or by a machine that slept.
const MOST_BETWEEN_LOOKS: Duration = STOP_CHECK.saturating_mul(4);

/// Adds up the time in which nothing happens, between calls of [`Stillness::look`].
#[derive(Debug, Default)]
pub(super) struct Stillness {
    lasted: Duration,
    looked: Option<Instant>,
}

impl Stillness {
    /// Returns how long nothing has happened until `now`: zero at the first check.
    pub(super) fn look(&mut self, now: Instant) -> Duration {
        if let Some(looked) = self.looked.replace(now) {
            self.lasted += now.saturating_duration_since(looked).min(MOST_BETWEEN_LOOKS);
        }
        self.lasted
    }

    /// Notes that something happened: the time starts again with the next check.
    pub(super) fn end(&mut self) {
        *self = Self::default();
    }
}

/// Watches over a pipeline that reads a file.
pub(super) struct Watchdog {
    pipeline: gst::glib::WeakRef<gst::Pipeline>,
    reads: Arc<Mutex<Reads>>,
    /// Bytes of the file that were read when something last moved.
    read: u64,
    /// How long nothing has moved.
    still: Stillness,
    /// How long none of its threads has run, and the time of the last check.
    resting: Stillness,
    looked: Option<Instant>,
}

/// Counts the reads of a file.
#[derive(Debug, Default)]
struct Reads {
    /// Bytes of the file up to the last that was ever read.
    furthest: u64,
    /// Reads since the last frame.
    count: u64,
    /// The place read last when their number was a power of two, and how often it was read since: R. P.
    /// Brent's method to find cycles of any length.
    place: u64,
    returns: u32,
}

impl Reads {
    fn add(&mut self, offset: u64, size: u64) {
        self.furthest = self.furthest.max(offset.saturating_add(size));
        self.count += 1;
        if self.count.is_power_of_two() {
            (self.place, self.returns) = (offset, 0);
        } else if self.place == offset {
            self.returns += 1;
        }
    }
}

/// How a pipeline is stuck.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stuck {
    /// None of its threads runs.
    AtRest,
    /// It reads the same places of the file again and again.
    InCircles,
    /// They run or wait without a result.
    Idle,
}

impl Stuck {
    /// Describes the error, for users.
    pub(super) fn reason(self) -> String {
        match self {
            Self::AtRest => "the file is damaged: what should read it gave up without a word".to_owned(),
            Self::InCircles => "the file is damaged: what should read it goes round in circles".to_owned(),
            Self::Idle => {
                let seconds = PATIENCE.as_secs();
                format!("the file is damaged, or its decoder is stuck: nothing moved for {seconds} s")
            }
        }
    }
}

impl Watchdog {
    /// Watches a pipeline that has not been started yet. `source` is the element that reads the file.
    pub(super) fn new(pipeline: &gst::Pipeline, source: &gst::Element) -> Self {
        let reads = Arc::new(Mutex::new(Reads::default()));
        if let Some(pad) = source.static_pad("src") {
            let told = Arc::clone(&reads);
            let both_ways = gst::PadProbeType::BUFFER | gst::PadProbeType::PULL | gst::PadProbeType::PUSH;
            pad.add_probe(both_ways, move |_, info| {
                // A buffer without an offset has the largest number as its offset.
                if let Some(buffer) = info.buffer().filter(|buffer| buffer.offset() != u64::MAX) {
                    lock(&told).add(buffer.offset(), buffer.size() as u64);
                }
                gst::PadProbeReturn::Ok
            });
        }
        pipeline.connect_deep_element_added(|_, _, element| {
            let is_of_libav = element.factory().is_some_and(|factory| factory.name().starts_with("avdemux_"));
            if let Some(pad) = element.static_pad("sink").filter(|_| is_of_libav) {
                end_reads_at_the_end(&pad);
            }
        });
        let (still, resting) = (Stillness::default(), Stillness::default());
        Self { pipeline: pipeline.downgrade(), reads, read: 0, still, resting, looked: None }
    }

    /// Notes that the pipeline may be blocked from outside, or that a frame came: the wait starts again.
    pub(super) fn reset(&mut self) {
        self.still.end();
        self.resting.end();
        let mut reads = lock(&self.reads);
        (reads.count, reads.returns) = (0, 0);
    }

    /// Checks the pipeline while the caller waits for a frame and nothing else blocks it.
    pub(super) fn look(&mut self) -> Option<Stuck> {
        self.look_at(Instant::now())
    }

    fn look_at(&mut self, now: Instant) -> Option<Stuck> {
        let (read, returns) = {
            let reads = lock(&self.reads);
            (reads.furthest, reads.returns)
        };
        if returns > MOST_READS_OF_ONE_PLACE {
            return Some(Stuck::InCircles);
        }
        if read > self.read {
            self.read = read;
            self.still.end();
        }
        if self.still.look(now) > PATIENCE {
            return Some(Stuck::Idle);
        }
        if self.looked.is_some_and(|looked| now - looked < LOOK) {
            return None;
        }
        self.looked = Some(now);
        if !self.pipeline.upgrade().is_some_and(|pipeline| is_at_rest(&pipeline)) {
            self.resting.end();
            return None;
        }
        (self.resting.look(now) > AT_REST).then_some(Stuck::AtRest)
    }
}

/// True if the pipeline has threads but none of them runs, so that no frame will ever come.
fn is_at_rest(pipeline: &gst::Pipeline) -> bool {
    let mut has_paused = false;
    for element in pipeline.iterate_recurse().into_iter().flatten() {
        for pad in element.pads() {
            match pad.task_state() {
                gst::TaskState::Started => return false,
                gst::TaskState::Paused => has_paused = true,
                _ => {}
            }
        }
    }
    has_paused
}

/// Makes a demuxer that reads endlessly at the end of a file fail there; it treats the failure as the end.
fn end_reads_at_the_end(pad: &gst::Pad) {
    let reads = AtomicU32::new(0);
    pad.add_probe(gst::PadProbeType::PULL | gst::PadProbeType::BLOCK, move |pad, info| {
        let length = pad.peer_query_duration::<gst::format::Bytes>().map(u64::from);
        if length.is_none_or(|length| info.offset < length) {
            reads.store(0, Ordering::Relaxed);
            return gst::PadProbeReturn::Pass;
        }
        if reads.fetch_add(1, Ordering::Relaxed) < MOST_READS_AT_END {
            return gst::PadProbeReturn::Pass;
        }
        // A read of an unlinked pad fails, and the demuxer then passes on its frames and the end.
        if let Some(peer) = pad.peer() {
            let _ = peer.unlink(pad);
        }
        gst::PadProbeReturn::Remove
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::launch::{Launch, Milestone, Running};

    const LONG: Duration = Duration::from_secs(20);

    /// Checks until it is stuck.
    fn watched(running: &Running, mut watch: Watchdog) -> Option<Stuck> {
        let started = Instant::now();
        running.set_state(gst::State::Playing).unwrap();
        std::iter::repeat_with(|| {
            std::thread::sleep(Duration::from_millis(20));
            watch.look()
        })
        .take_while(|stuck| stuck.is_some() || started.elapsed() < LONG)
        .find_map(|stuck| stuck)
    }

    fn stuck(text: &str) -> Option<Stuck> {
        let running = Running::new(Launch::new("test", text).build().unwrap());
        let source = running.pipeline().by_name("input").unwrap();
        let watch = Watchdog::new(running.pipeline(), &source);
        watched(&running, watch)
    }

    #[test]
    fn a_pipeline_whose_threads_have_all_paused_is_at_rest() {
        // A dropped end looks like a failure that no element has received.
        assert_eq!(stuck("fakesrc name=input num-buffers=3 ! fakesink"), Some(Stuck::AtRest));
    }

    #[test]
    fn a_pipeline_that_runs_and_gives_nothing_is_idle() {
        assert_eq!(
            stuck("fakesrc name=input ! identity sleep-time=3000000 ! fakesink sync=false"),
            Some(Stuck::Idle)
        );
    }

    #[test]
    fn a_process_that_was_stopped_has_not_waited() {
        let running = Running::new(Launch::new("test", "fakesrc name=input ! fakesink").build().unwrap());
        let source = running.pipeline().by_name("input").unwrap();
        let mut watch = Watchdog::new(running.pipeline(), &source);
        let start = Instant::now();
        assert_eq!(watch.look_at(start), None);
        // There was no check for an hour, three times.
        let hours = [1, 2, 3].map(|hour| start + Duration::from_hours(hour));
        assert_eq!(hours.map(|now| watch.look_at(now)), [None; 3]);
        let end = hours[2];
        let looks = (1..=100).map(|n| end + n * STOP_CHECK);
        let waited = looks.into_iter().find(|now| watch.look_at(*now).is_some()).unwrap() - end;
        assert!(waited + 4 * MOST_BETWEEN_LOOKS > PATIENCE && waited <= PATIENCE, "{waited:?}");
    }

    #[test]
    fn circles_of_any_length_are_found_and_a_file_read_forwards_is_none() {
        for length in [1, 3, 1000] {
            let mut reads = Reads::default();
            // Something else comes first.
            (0..77).for_each(|at| reads.add(1_000_000 + at, 1));
            let circle = (0..length).cycle();
            let found = circle.take(5_000_000).position(|at| {
                reads.add(at, 1);
                reads.returns > MOST_READS_OF_ONE_PLACE
            });
            assert!(found.is_some(), "{length}");
        }
        let mut reads = Reads::default();
        (0..100_000).for_each(|at| reads.add(at * 10, 10));
        assert_eq!((reads.furthest, reads.returns), (1_000_000, 0));
    }

    #[test]
    fn a_pipeline_that_reads_on_is_not_stuck() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("zeros");
        std::fs::write(&path, vec![0; 1 << 20]).unwrap();
        let text = "filesrc name=input blocksize=4096 ! identity sleep-time=15000 ! fakesink sync=false";
        let mut launch = Launch::new("test", text);
        launch.set("input", "location", path.display());
        let running = Running::new(launch.build().unwrap());
        let source = running.pipeline().by_name("input").unwrap();
        let mut watch = Watchdog::new(running.pipeline(), &source);
        running.set_state(gst::State::Playing).unwrap();
        while running.wait(Duration::from_millis(20)).unwrap() != Some(Milestone::Ended) {
            assert_eq!(watch.look(), None);
        }
    }
}
