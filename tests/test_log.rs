//! Messages of tests for the reader of their log. Every program of tests includes this file.

#![allow(dead_code, reason = "not every program of tests needs all of it")]
#![allow(unreachable_pub, reason = "nothing outside a program of tests can reach anything")]

use std::cell::Cell;
use std::io::Write as _;

/// Prints, once in a test, that the test that calls this skips its main part, and why. `scripts/test` counts
/// these lines.
pub fn skipped(why: &str) {
    thread_local!(static IS_SAID: Cell<bool> = const { Cell::new(false) });
    if !IS_SAID.replace(true) {
        line(&format!("skipped: {}: {why}", test()));
    }
}

/// Fails if the environment requires a part of the machine that is missing: `LOCKON_REQUIRE_GPU=1` for `GPU`.
pub fn check_required(part: &str, why: &str) {
    let variable = format!("LOCKON_REQUIRE_{part}");
    let is_required = std::env::var_os(&variable).is_some_and(|value| value != "0");
    assert!(!is_required, "{variable} is set: {why}");
}

/// As [`skipped`], for a part of the machine, which [`check_required`] may require.
pub fn missing(part: &str, why: &str) {
    check_required(part, why);
    skipped(why);
}

/// A GPU that was opened, or `None` where there is none, which is [`missing`]: a test then has nothing to do.
pub fn gpu_or_skip<T, E: std::fmt::Display>(opened: Result<T, E>) -> Option<T> {
    opened.inspect_err(|error| missing("GPU", &format!("no GPU: {error}"))).ok()
}

/// Prints that a panic which follows in the log is expected: the test that calls this provokes it on another
/// thread.
pub fn panic_follows() {
    line(&format!("meant: {} provokes a panic", test()));
}

/// The name of the test that runs on this thread.
fn test() -> String {
    std::thread::current().name().unwrap_or("a test").to_owned()
}

/// Cargo shows what tests print only if they fail, but always shows text that is written to the stream
/// itself.
fn line(text: &str) {
    let _ = writeln!(std::io::stderr(), "{text}");
}
