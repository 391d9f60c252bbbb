//! Measures what a process holds, and a watchdog: for the endurance tests of the program and of the element.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Nothing may take so long without a sign of life.
const WATCHDOG: Duration = Duration::from_mins(1);

/// How often something happened, in this process.
static SIGNS_OF_LIFE: AtomicU64 = AtomicU64::new(0);

/// The resources that the process holds.
#[derive(Debug, Clone, Copy)]
pub struct Resources {
    pub resident_mb: f64,
    /// The device's memory in use, by any process, in MB; none without a device.
    pub device_mb: Option<f64>,
    pub descriptors: usize,
    pub threads: usize,
}

impl Resources {
    pub fn now() -> Self {
        let status = std::fs::read_to_string("/proc/self/status").unwrap();
        let number = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap();
            line.split_whitespace().next().unwrap().parse::<usize>().unwrap()
        };
        Self {
            resident_mb: number("VmRSS:") as f64 / 1024.0,
            device_mb: None,
            descriptors: std::fs::read_dir("/proc/self/fd").unwrap().count() - 1,
            threads: number("Threads:"),
        }
    }

    /// Measures what is still held a moment later: the minimum of descriptors and threads over 0.2 s. Some
    /// things that were stopped end in their own time, as the threads of rayon's pools, which nothing waits
    /// for.
    pub fn at_rest() -> Self {
        let mut held = Self::now();
        for _ in 0..20 {
            std::thread::sleep(Duration::from_millis(10));
            let now = Self::now();
            let (descriptors, threads) =
                (held.descriptors.min(now.descriptors), held.threads.min(now.threads));
            held = Self { descriptors, threads, ..now };
        }
        held
    }

    pub fn tell(self, what: &str, started: Instant) -> Self {
        let Self { resident_mb, device_mb, descriptors, threads } = self;
        let seconds = started.elapsed().as_secs_f64();
        let device = device_mb.map(|mb| format!(" {mb:8.1} MB on the device")).unwrap_or_default();
        say(&format!(
            "{what:>16} {seconds:8.1} s {resident_mb:8.1} MB{device} {descriptors:4} descriptors {threads:3} threads"
        ));
        self
    }

    /// Later it holds no more than this, but for what an allocator keeps.
    pub fn check(self, later: Self) {
        assert!(later.descriptors <= self.descriptors, "descriptors: {self:?}, later {later:?}");
        assert!(later.threads <= self.threads + 1, "threads: {self:?}, later {later:?}");
        let grows = |before: f64, after: f64| after > before + (before * 0.1).max(16.0);
        assert!(!grows(self.resident_mb, later.resident_mb), "memory: {self:?}, later {later:?}");
        let device = self.device_mb.zip(later.device_mb);
        assert!(!device.is_some_and(|(before, after)| grows(before, after)), "{self:?}, later {later:?}");
    }
}

/// Measures the resources held while many frames pass.
pub struct Pulse {
    started: Instant,
    /// Looks after so many frames.
    every: u64,
    frames: u64,
    held: Vec<Resources>,
}

impl Pulse {
    /// Looks twenty times while so many frames pass.
    pub fn of(frames: u64) -> Self {
        Self { started: Instant::now(), every: (frames / 20).max(1), frames: 0, held: Vec::new() }
    }

    /// Records that a frame has passed, as a sign of life. Now and then measures and prints what is held.
    pub fn beat(&mut self, held: impl FnOnce() -> Resources) {
        lives();
        self.frames += 1;
        if self.frames.is_multiple_of(self.every) {
            self.held.push(held().tell(&format!("frame {}", self.frames), self.started));
        }
    }

    /// Checks that at the end no more is held than after a quarter of the frames. Returns the number of
    /// frames.
    pub fn check(&self) -> u64 {
        self.held[self.held.len() / 4].check(*self.held.last().unwrap());
        self.frames
    }
}

/// Runs `LOCKON_ROUNDS` rounds in which `LOCKON_STREAMS` streams run at once, for `LOCKON_SECONDS` all
/// together. `round` starts so many streams and calls the function that it is given, which returns when they
/// must be stopped. Then it stops them and returns a description of the results.
///
/// Later rounds hold no more than the third one while they run, and none leaves a descriptor behind.
pub fn rounds(
    held: impl Fn() -> Resources,
    held_at_rest: impl Fn() -> Resources,
    mut round: impl FnMut(u64, &mut dyn FnMut()) -> String,
) {
    let (streams, rounds) = (asked("LOCKON_STREAMS", 16), asked("LOCKON_ROUNDS", 9));
    let seconds = asked("LOCKON_SECONDS", 10 * rounds);
    assert!(rounds > 3, "LOCKON_ROUNDS: the third round is what later ones are held to");
    watch();
    let started = Instant::now();
    held().tell("before", started);
    let (mut during, mut after) = (Vec::new(), Vec::new());
    for number in 1..=rounds {
        let what_came = round(streams, &mut || {
            rest(Duration::from_secs_f64(seconds as f64 / rounds as f64));
            during.push(held().tell(&format!("round {number}"), started));
        });
        after.push(held_at_rest().tell("after it", started));
        say(&what_came);
    }
    // Resources kept for the next round are in use again while that runs: freed memory by the C library,
    // threads by GLib.
    let warm = during[2];
    during[3..].iter().for_each(|later| warm.check(*later));
    assert!(after.iter().all(|held| held.descriptors == after[0].descriptors), "{after:?}");
}

#[allow(clippy::print_stdout, reason = "what is measured is told")]
pub fn say(text: &str) {
    println!("{text}");
}

/// Records a sign of life.
pub fn lives() {
    SIGNS_OF_LIFE.fetch_add(1, Ordering::Relaxed);
}

/// Sleeps with signs of life, so that the watchdog does not end the process.
pub fn rest(mut time: Duration) {
    while !time.is_zero() {
        let slice = time.min(WATCHDOG / 4);
        std::thread::sleep(slice);
        lives();
        time -= slice;
    }
}

/// Ends the process if nothing happens for a while.
pub fn watch() {
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

/// Returns the number in an environment variable, or the default.
pub fn asked(name: &str, otherwise: u64) -> u64 {
    std::env::var(name).map_or(otherwise, |text| text.parse().expect("a number"))
}

/// The backend, as it is typed, that `LOCKON_ENDURANCE_BACKEND` names; the CPU if it names none.
pub fn backend_name() -> String {
    std::env::var("LOCKON_ENDURANCE_BACKEND").unwrap_or_else(|_| "cpu".to_owned())
}
