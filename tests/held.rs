//! What a process holds, and a watchdog: for the tests of endurance, the program's and the element's.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Nothing may take so long without a sign of life.
const WATCHDOG: Duration = Duration::from_mins(1);

/// How often something happened, in this process.
static SIGNS_OF_LIFE: AtomicU64 = AtomicU64::new(0);

/// What the process holds.
#[derive(Debug, Clone, Copy)]
pub struct Held {
    pub resident_mb: f64,
    /// What is taken of the device's memory, whoever took it; none without a device.
    pub device_mb: Option<f64>,
    pub descriptors: usize,
    pub threads: usize,
}

impl Held {
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

    /// What is still held a moment later: the least descriptors and threads of 0.2 s. Some of what was stopped ends in its own time,
    /// as the threads of rayon's pools, for which nobody waits.
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

    #[allow(clippy::print_stdout, reason = "what is measured is told")]
    pub fn tell(self, what: &str, started: Instant) -> Self {
        let Self { resident_mb, device_mb, descriptors, threads } = self;
        let seconds = started.elapsed().as_secs_f64();
        let device = device_mb.map(|mb| format!(" {mb:8.1} MB on the device")).unwrap_or_default();
        println!(
            "{what:>16} {seconds:8.1} s {resident_mb:8.1} MB{device} {descriptors:4} descriptors {threads:3} threads"
        );
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

/// Something happened.
pub fn lives() {
    SIGNS_OF_LIFE.fetch_add(1, Ordering::Relaxed);
}

/// Sleeps, and that is no bad sign.
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

/// A number that an environment variable may name.
pub fn asked(name: &str, otherwise: u64) -> u64 {
    std::env::var(name).map_or(otherwise, |text| text.parse().expect("a number"))
}

/// The backend, as it is typed, that `LOCKON_ENDURANCE_BACKEND` names; the CPU if it names none.
pub fn backend_name() -> String {
    std::env::var("LOCKON_ENDURANCE_BACKEND").unwrap_or_else(|_| "cpu".to_owned())
}
