//! What is held must not grow: memory, file descriptors and threads over many starts, many streams, many frames.
//!
//! These take minutes to half an hour, so they are run by name (scripts/endurance), and print what they measure.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use lockon::backend::{self, Options, Standing};
use lockon::config::{BackendChoice, Kernels, View};
use lockon::engine::Engine;
use lockon::frame::VideoFormat;
use lockon::media::sink::VideoSink;
use lockon::media::source::{Decoder, Input, SourceSpec, VideoSource};
use lockon::ports::{Delivery, Sink};
use lockon::results::{RunRecord, Summary};
use lockon::tracker::Tracker;

use crate::util::{Random, run_record};

/// Nothing may take so long without a sign of life.
const WATCHDOG: Duration = Duration::from_mins(1);

/// How often something happened, in this process.
static SIGNS_OF_LIFE: AtomicU64 = AtomicU64::new(0);

/// What the process holds.
#[derive(Debug, Clone, Copy)]
struct Held {
    resident_mb: f64,
    descriptors: usize,
    threads: usize,
}

impl Held {
    fn now() -> Self {
        let status = std::fs::read_to_string("/proc/self/status").unwrap();
        let number = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap();
            line.split_whitespace().next().unwrap().parse::<usize>().unwrap()
        };
        Self {
            resident_mb: number("VmRSS:") as f64 / 1024.0,
            descriptors: std::fs::read_dir("/proc/self/fd").unwrap().count() - 1,
            threads: number("Threads:"),
        }
    }

    #[allow(clippy::print_stdout, reason = "what is measured is told")]
    fn tell(self, what: &str, started: Instant) -> Self {
        let Self { resident_mb, descriptors, threads } = self;
        let seconds = started.elapsed().as_secs_f64();
        println!(
            "{what:>16} {seconds:8.1} s {resident_mb:8.1} MB {descriptors:4} descriptors {threads:3} threads"
        );
        self
    }

    /// Later it holds no more than this, but for what an allocator keeps.
    fn check(self, later: Self) {
        assert!(later.descriptors <= self.descriptors, "descriptors: {self:?}, later {later:?}");
        assert!(later.threads <= self.threads + 1, "threads: {self:?}, later {later:?}");
        let room = (self.resident_mb * 0.1).max(16.0);
        assert!(later.resident_mb <= self.resident_mb + room, "memory: {self:?}, later {later:?}");
    }
}

/// Ends the process if nothing happens for a while.
fn watch() {
    std::thread::spawn(|| {
        let mut before = u64::MAX;
        loop {
            let now = SIGNS_OF_LIFE.load(Ordering::Relaxed);
            if now == before {
                #[allow(clippy::print_stderr, reason = "its last words")]
                {
                    eprintln!("nothing has happened for {WATCHDOG:?}");
                }
                std::process::abort();
            }
            before = now;
            std::thread::sleep(WATCHDOG);
        }
    });
}

fn asked(name: &str, otherwise: u64) -> u64 {
    std::env::var(name).map_or(otherwise, |text| text.parse().expect("a number"))
}

/// Gives a sign of life for each frame, and tells what is held now and then.
struct Heart {
    started: Instant,
    /// Tells after so many frames.
    every: u64,
    frames: u64,
    held: Vec<Held>,
    done: std::sync::mpsc::Sender<Vec<Held>>,
}

impl Sink for Heart {
    fn name(&self) -> &'static str {
        "heart"
    }

    fn begin(&mut self, _: &RunRecord, _: &VideoFormat) -> lockon::Result<()> {
        Ok(())
    }

    fn deliver(&mut self, _: &Delivery<'_>) -> lockon::Result<()> {
        SIGNS_OF_LIFE.fetch_add(1, Ordering::Relaxed);
        self.frames += 1;
        if self.frames.is_multiple_of(self.every) {
            self.held.push(Held::now().tell(&format!("frame {}", self.frames), self.started));
        }
        Ok(())
    }

    fn finish(&mut self, _: &Summary) -> lockon::Result<()> {
        let _ = self.done.send(std::mem::take(&mut self.held));
        Ok(())
    }
}

/// One run from a live source, with a box that is followed and a sink pipeline, until it is stopped or has had so many frames.
fn run(caps: &str, max_frames: Option<u64>, stop: &AtomicBool, sinks: Vec<Box<dyn Sink>>) -> Summary {
    let text = format!("videotestsrc is-live=true pattern=checkers-8 ! {caps} ! appsink name=frames");
    let launch = lockon::media::launch::Launch::user("--source", &text).unwrap();
    let spec = SourceSpec::new(Input::Launch(launch), Decoder::Software);
    let mut source = match VideoSource::open(&spec, stop) {
        Err(_) if stop.load(Ordering::Relaxed) => return Summary::default(),
        source => source.unwrap(),
    };
    let mut all = sinks;
    all.push(Box::new(VideoSink::user("appsrc name=results ! fakesink", View::Overlay, true).unwrap()));
    let options = Options { choice: BackendChoice::Cpu, depth: 2, threads: 2, kernels: Kernels::default() };
    let threshold = "mean:15:5".parse().unwrap();
    let open = |format: &VideoFormat| {
        backend::open(&options, &Standing::new(format.size).thresholding(Some(threshold), false))
    };
    let engine = Engine {
        source: &mut source,
        open_backend: &open,
        open_spare: None,
        describe: &run_record,
        tracker: Tracker::new(&["40,40,64,64".parse().unwrap()]),
        sinks: all,
        max_frames,
        stop,
    };
    let (summary, outcome) = engine.run();
    outcome.unwrap();
    SIGNS_OF_LIFE.fetch_add(1, Ordering::Relaxed);
    summary
}

#[test]
#[ignore = "takes minutes: scripts/endurance"]
fn a_thousand_starts_and_stops_leave_nothing_behind() {
    let cycles = asked("LOCKON_CYCLES", 1000);
    watch();
    let (started, mut random) = (Instant::now(), Random::new(5));
    let mut warm = None;
    for cycle in 1..=cycles {
        let stop = AtomicBool::new(false);
        let stopped_after = Duration::from_millis(u64::from(random.byte()) / 2);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                std::thread::sleep(stopped_after);
                stop.store(true, Ordering::Relaxed);
            });
            run("video/x-raw,format=NV12,width=320,height=240,framerate=100/1", None, &stop, Vec::new());
        });
        if cycle % (cycles / 20).max(1) == 0 {
            let held = Held::now().tell(&format!("cycle {cycle}"), started);
            // An allocator takes a while to have what it will keep.
            if cycle >= cycles / 4 {
                warm.get_or_insert(held).check(held);
            }
        }
    }
}

#[test]
#[ignore = "takes a minute: scripts/endurance"]
fn sixteen_streams_run_in_one_process() {
    let (streams, seconds) = (asked("LOCKON_STREAMS", 16), asked("LOCKON_SECONDS", 30));
    watch();
    let started = Instant::now();
    Held::now().tell("before", started);
    let mut first = None;
    for _ in 0..3 {
        let stop = AtomicBool::new(false);
        let summaries: Vec<Summary> = std::thread::scope(|scope| {
            let caps = "video/x-raw,format=NV12,width=320,height=240,framerate=10/1";
            let runs: Vec<_> =
                (0..streams).map(|_| scope.spawn(|| run(caps, None, &stop, Vec::new()))).collect();
            std::thread::sleep(Duration::from_secs(seconds / 3));
            Held::now().tell("all streams", started);
            stop.store(true, Ordering::Relaxed);
            runs.into_iter().map(|run| run.join().unwrap()).collect()
        });
        assert!(summaries.iter().all(|summary| summary.frames > 0), "a stream got nothing");
        let frames: u64 = summaries.iter().map(|summary| summary.frames).sum();
        let dropped: u64 = summaries.iter().map(|summary| summary.dropped).sum();
        let after = Held::now().tell(&format!("{frames} frames"), started);
        #[allow(clippy::print_stdout, reason = "what is measured is told")]
        {
            println!("{dropped} dropped");
        }
        // GLib keeps threads that have nothing to do for a while, so the first round is what later ones are held to.
        first.get_or_insert(after).check(after);
    }
}

#[test]
#[ignore = "takes half an hour: scripts/endurance"]
fn many_frames_of_1080p_leave_nothing_behind() {
    let frames = asked("LOCKON_FRAMES", 100_000);
    watch();
    let (done, held) = std::sync::mpsc::channel();
    let heart =
        Heart { started: Instant::now(), every: (frames / 20).max(1), frames: 0, held: Vec::new(), done };
    let stop = AtomicBool::new(false);
    let caps = "video/x-raw,format=NV12,width=1920,height=1080,framerate=60/1";
    let summary = run(caps, Some(frames), &stop, vec![Box::new(heart)]);
    let held = held.recv().unwrap();
    #[allow(clippy::print_stdout, reason = "what is measured is told")]
    {
        println!("{} frames, {} dropped, {:.1} s", summary.frames, summary.dropped, summary.seconds);
    }
    held[held.len() / 4].check(*held.last().unwrap());
}
