//! Messages on standard error, in colour on a terminal, without tearing the progress bar.

use std::io::{self, IsTerminal, Write};
use std::sync::LazyLock;

use indicatif::MultiProgress;
use tracing_subscriber::filter::LevelFilter;

/// Progress bars are drawn through this, and messages step around them.
pub(super) static BARS: LazyLock<MultiProgress> = LazyLock::new(MultiProgress::new);

/// Starts logging: warnings, and more with each `-v`.
pub(super) fn start(verbose: u8) {
    let level = match verbose {
        0 => LevelFilter::WARN,
        1 => LevelFilter::INFO,
        2 => LevelFilter::DEBUG,
        _ => LevelFilter::TRACE,
    };
    tracing_subscriber::fmt()
        .with_max_level(level)
        .with_writer(|| AroundBars)
        .with_ansi(is_colourful())
        .with_target(false)
        // It would say that standard error cannot be written on standard error, and panic.
        .log_internal_errors(false)
        .without_time()
        .init();
}

/// Says something to people, around the progress bar. Nobody may be listening: that is no reason to stop.
pub(super) fn say(message: &str) {
    BARS.suspend(|| {
        let _ = writeln!(io::stderr(), "{message}");
    });
}

/// Says what made the program fail, once.
pub(super) fn error(message: &str) {
    let label = if is_colourful() { "\x1b[1;31merror:\x1b[0m" } else { "error:" };
    say(&format!("{label} {message}"));
}

/// Colour only on a terminal, and not where <https://no-color.org> says no.
fn is_colourful() -> bool {
    io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
}

struct AroundBars;

impl Write for AroundBars {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        BARS.suspend(|| io::stderr().write(bytes))
    }

    fn flush(&mut self) -> io::Result<()> {
        io::stderr().flush()
    }
}
