//! Checks the system's limits for this process before something fails because of them.

use std::thread::Builder;

use anyhow::Result;

use lockon::Error;

/// Bytes of stack that threads need if the limit sets their stack: the first thread, and all threads of
/// `GLib` and of codecs.
const STACK: u64 = 1 << 20;

/// Bytes of stack of a thread of GStreamer or a codec, and of one that only counts.
const LARGE_STACK: usize = 8 << 20;
const SMALL_STACK: usize = 64 << 10;

/// Threads of a run besides those that work: for signals, the device, each output, and what `GStreamer` and
/// codecs start.
const THREADS: usize = 24;

/// Threads that each of several runs needs beside those that work for all: its own, GStreamer's and a
/// codec's.
pub(super) const THREADS_EACH: usize = 8;

/// Lets a write beyond the limit of a file's size (`ulimit -f`) fail as on a full disk, so that the run ends
/// with an error and whole lines. The signal of that limit would end the process in the middle of a line.
pub(super) fn outlive_file_limit() {
    // The flag is never read: the write reports the error.
    #[cfg(unix)]
    let _ = signal_hook::flag::register(signal_hook::consts::SIGXFSZ, std::sync::Arc::default());
}

/// Checks that there is enough stack for all threads.
///
/// # Errors
/// If the limit is too low: the program would crash without a reason.
pub(super) fn check_stack() -> Result<(), String> {
    let limits = std::fs::read_to_string("/proc/self/limits").unwrap_or_default();
    match stack_limit(&limits) {
        Some(limit) if limit < STACK => Err(format!(
            "the stack may have {} KiB here, and {} KiB are needed (ulimit -s 8192 sets what is usual)",
            limit >> 10,
            STACK >> 10
        )),
        _ => Ok(()),
    }
}

/// Returns the soft limit in Linux's table of limits, in bytes; `None` if there is none.
fn stack_limit(limits: &str) -> Option<u64> {
    let line = limits.lines().find_map(|line| line.strip_prefix("Max stack size"))?;
    line.split_whitespace().next()?.parse().ok()
}

/// Checks that as many threads can be started as a run with `working` threads may need. `GLib` ends the
/// process if it gets no thread, and some codecs wait for a thread that never started.
///
/// # Errors
/// If the system gives fewer.
pub(super) fn check_threads(working: usize, remedy: &str) -> Result<()> {
    let needed = working + THREADS;
    // Threads of GStreamer and codecs have the system's usual stack, which takes addresses.
    let stack = |number: usize| if number < THREADS { LARGE_STACK } else { SMALL_STACK };
    let started = start_at_once(needed, |number| Builder::new().stack_size(stack(number)));
    if started == needed {
        return Ok(());
    }
    let message = format!(
        "the system gives only {started} more threads, and {needed} are needed (ulimit -u, the container's limit of \
         processes, or ulimit -v; {remedy})"
    );
    Err(Error::Resource { element: "threads".into(), message, debug: String::new() }.into())
}

/// Raises the limit of open files as far as allowed: a video needs some twenty, and the usual limit is 1024.
pub(super) fn allow_files() {
    #[cfg(unix)]
    {
        use rustix::process::{Resource, getrlimit, setrlimit};
        let mut limit = getrlimit(Resource::Nofile);
        limit.current = limit.maximum;
        // With fewer files some videos may fail, and report it then.
        if let Err(error) = setrlimit(Resource::Nofile, limit) {
            tracing::debug!("the limit of open files stays: {error}");
        }
    }
}

/// Returns how many of `wanted` threads there can be at one time.
fn start_at_once(wanted: usize, builder: impl Fn(usize) -> Builder) -> usize {
    let (hold, held) = crossbeam_channel::bounded::<()>(0);
    let threads: Vec<_> = (0..wanted)
        .map_while(|number| {
            let held = held.clone();
            // Each waits until all are there.
            builder(number).spawn(move || held.recv().is_err()).ok()
        })
        .collect();
    drop(hold);
    threads.into_iter().map(|thread| drop(thread.join())).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_soft_limit_of_the_stack_is_read() {
        let text = |soft| {
            format!(
                "Limit  Soft Limit\nMax stack size            {soft}              unlimited            bytes\n"
            )
        };
        assert_eq!(stack_limit(&text("65536")), Some(65536));
        assert_eq!((stack_limit(&text("unlimited")), stack_limit("")), (None, None));
    }

    #[test]
    fn threads_that_the_system_does_not_give_are_counted() {
        assert_eq!(start_at_once(5, |_| Builder::new()), 5);
        // More stack than the address space has: no thread can get it.
        assert_eq!(start_at_once(5, |_| Builder::new().stack_size(1 << 52)), 0);
    }
}
