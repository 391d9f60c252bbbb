//! Ctrl-C and its relatives: the first ends the run as if the video had ended, the second ends the process at once.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};

use anyhow::{Context, Result};

use super::{Outcome, log};

/// What signals have asked for so far.
#[derive(Clone, Default)]
pub(super) struct Signals {
    stop: Arc<AtomicBool>,
    /// 128 and the number of the first signal, as a shell would tell it; 0 before one came.
    code: Arc<AtomicU8>,
}

impl Signals {
    /// Watches from now on. The thread that does so waits for signals only, and nothing waits for it.
    pub(super) fn watch() -> Result<Self> {
        let signals = Self::default();
        signals.clone().start().context("cannot watch for Ctrl-C")?;
        Ok(signals)
    }

    /// True once a signal has asked for the end.
    pub(super) fn stop(&self) -> &AtomicBool {
        &self.stop
    }

    /// How the run that ends now ended.
    pub(super) fn outcome(&self) -> Outcome {
        self.exit_code().map_or(Outcome::Done, Outcome::Interrupted)
    }

    /// The exit code of a run that a signal ended.
    pub(super) fn exit_code(&self) -> Option<u8> {
        Some(self.code.load(Ordering::Relaxed)).filter(|code| *code != 0)
    }

    /// Hears a signal; true if it is the first.
    fn hear(&self, code: u8) -> bool {
        let is_first = self.code.compare_exchange(0, code, Ordering::Relaxed, Ordering::Relaxed).is_ok();
        if is_first {
            self.stop.store(true, Ordering::Relaxed);
            log::say("stopping: outputs are being closed (Ctrl-C again ends at once)");
        }
        is_first
    }

    #[cfg(unix)]
    fn start(self) -> std::io::Result<()> {
        use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
        let mut signals = signal_hook::iterator::Signals::new([SIGINT, SIGTERM, SIGHUP])?;
        let watch = move || {
            for signal in signals.forever() {
                let code = 128 + signal as u8;
                if !self.hear(code) {
                    // Without handlers of libraries, which could wait for what hangs.
                    signal_hook::low_level::exit(i32::from(code));
                }
            }
        };
        std::thread::Builder::new().name("lockon-signals".into()).spawn(watch).map(drop)
    }

    #[cfg(not(unix))]
    fn start(self) -> Result<(), ctrlc::Error> {
        ctrlc::set_handler(move || {
            if !self.hear(130) {
                std::process::exit(130);
            }
        })
    }
}
