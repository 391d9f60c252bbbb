//! Ctrl-C and similar signals: the first ends the run as if the video had ended, the second ends the process
//! at once.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use lockon::control::Control;

use super::{Outcome, log};

/// A signal this soon after the first is the same request: `timeout` sends one to the process and one to its
/// group.
const SAME_REQUEST: Duration = Duration::from_millis(250);

/// The requests that signals have made so far.
#[derive(Clone, Default)]
pub(super) struct Signals {
    control: Control,
    /// The message about the first signal.
    said: &'static str,
    /// The work is done: now a signal is the intended end of the program, and needs no message.
    is_end_expected: Arc<AtomicBool>,
    /// When the first signal came, and the exit code for it: 128 and its number, as a shell has it.
    first: Arc<OnceLock<(Instant, u8)>>,
}

impl Signals {
    /// Watches from now on. The thread that does so waits for signals only, and nothing waits for it.
    pub(super) fn watch() -> Result<Self> {
        Self::watch_saying("stopping: outputs are being closed (Ctrl-C again ends at once)")
    }

    /// As `watch`, with another message about the first signal.
    pub(super) fn watch_saying(said: &'static str) -> Result<Self> {
        let signals = Self { said, ..Self::default() };
        signals.clone().start().context("cannot watch for Ctrl-C")?;
        Ok(signals)
    }

    /// Returns the control that a signal stops.
    pub(super) fn control(&self) -> &Control {
        &self.control
    }

    /// Notes that all work is done and only a signal ends the program.
    pub(super) fn expect_end(&self) {
        self.is_end_expected.store(true, Ordering::Relaxed);
    }

    /// Returns the outcome of the run that ends now.
    pub(super) fn outcome(&self) -> Outcome {
        self.exit_code().map_or(Outcome::Done, Outcome::Interrupted)
    }

    /// The exit code of a run that a signal ended.
    pub(super) fn exit_code(&self) -> Option<u8> {
        self.first.get().map(|(_, code)| *code)
    }

    /// Handles a signal. Returns true if it must end the process at once.
    fn hear(&self, code: u8) -> bool {
        if self.first.set((Instant::now(), code)).is_ok() {
            self.control.stop();
            if !self.is_end_expected.load(Ordering::Relaxed) {
                log::say(self.said);
            }
            // Even if a busy machine took long for this.
            return false;
        }
        self.first.get().is_some_and(|(at, _)| at.elapsed() > SAME_REQUEST)
    }

    #[cfg(unix)]
    fn start(self) -> Result<()> {
        use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
        let ignored = ignored(&std::fs::read_to_string("/proc/self/status").unwrap_or_default());
        let heard = |signal: &i32| ignored >> (signal - 1) & 1 == 0;
        if heard(&SIGINT) {
            let signals = self.clone();
            ctrlc::set_handler(move || signals.obey(130))?;
        }
        self.watch_relatives([SIGTERM, SIGHUP].into_iter().filter(heard))?;
        Ok(())
    }

    #[cfg(not(unix))]
    fn start(self) -> Result<()> {
        ctrlc::set_handler(move || self.obey(130))?;
        Ok(())
    }

    /// Handles the signals of `timeout`, systemd and a closed terminal: the signal decides the exit code.
    #[cfg(unix)]
    fn watch_relatives(self, heard: impl Iterator<Item = i32>) -> std::io::Result<()> {
        let mut signals = signal_hook::iterator::Signals::new(heard)?;
        let watch = move || signals.forever().for_each(|signal| self.obey(128 + signal as u8));
        std::thread::Builder::new().name("lockon-signals".into()).spawn(watch).map(drop)
    }

    /// Handles a signal, and ends the process if needed.
    fn obey(&self, code: u8) {
        if self.hear(code) {
            // Skips exit handlers of libraries, which could wait for something that hangs.
            #[cfg(unix)]
            signal_hook::low_level::exit(i32::from(code));
            #[cfg(not(unix))]
            std::process::exit(i32::from(code));
        }
    }
}

/// The signals that the process was started to ignore, as bits from `/proc/self/status`. They stay ignored:
/// `nohup` ignores SIGHUP, and a shell SIGINT for commands in its background.
#[cfg(unix)]
fn ignored(status: &str) -> u64 {
    let bits = status.lines().find_map(|line| line.strip_prefix("SigIgn:")).unwrap_or_default();
    u64::from_str_radix(bits.trim(), 16).unwrap_or(0)
}
