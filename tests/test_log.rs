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
