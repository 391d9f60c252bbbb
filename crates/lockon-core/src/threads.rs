//! The errors where the system gives no thread, or no memory for a plugin.

use std::io;

use crate::error::Error;

/// The error of something that needs a thread and gets none, with the number of threads and the limits.
pub fn refused(of: &str, error: &io::Error) -> Error {
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    let message = refusal(error, &read("/proc/self/status"), &read("/proc/self/limits"));
    Error::Resource { element: of.into(), message, debug: String::new() }
}

/// The error of something that cannot be loaded, which is installed.
pub fn not_loaded(of: &str, what: &str) -> Error {
    let open = std::fs::read_dir("/proc/self/fd").map(|files| files.count() as u64);
    let limits = std::fs::read_to_string("/proc/self/limits").unwrap_or_default();
    let message = if has_too_many_files(open, limit(&limits, "Max open files")) {
        format!(
            "{what} cannot be loaded: this process has too many open files: raise their limit (ulimit -n), or do fewer \
             things at a time"
        )
    } else {
        no_memory(what, &limits)
    };
    Error::Resource { element: of.into(), message, debug: String::new() }
}

/// True if a library cannot be opened because too many files are open. `open` is how many there are, or the
/// error where they cannot be counted.
fn has_too_many_files(open: io::Result<u64>, most: &str) -> bool {
    const TOO_MANY: i32 = 24;
    match (open, most.parse::<u64>()) {
        (Err(error), _) => error.raw_os_error() == Some(TOO_MANY),
        // A library opens others.
        (Ok(open), Ok(most)) => open + 4 > most,
        (Ok(_), Err(_)) => false,
    }
}

fn no_memory(what: &str, limits: &str) -> String {
    format!(
        "{what} cannot be loaded: there is too little memory (ulimit -v, now {} bytes; a container's limit), or its file \
         is damaged",
        limit(limits, "Max address space")
    )
}

/// A limit of the process, as `/proc/self/limits` has it.
fn limit<'a>(limits: &'a str, name: &str) -> &'a str {
    let words = limits.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_default();
    words.split_whitespace().next().unwrap_or("unknown")
}

fn refusal(error: &io::Error, status: &str, limits: &str) -> String {
    let count = status.lines().find_map(|line| line.strip_prefix("Threads:"));
    let count = count.map_or_else(String::new, |count| format!(" beside its {}", count.trim()));
    let (threads, bytes) = (limit(limits, "Max processes"), limit(limits, "Max address space"));
    format!(
        "the system gives this process no thread{count} ({error}): raise the limit of threads (ulimit -u, now {threads}; a \
         container's limit of processes) or of memory (ulimit -v, now {bytes} bytes), or do fewer things at a time"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_whose_files_are_used_up_is_not_called_one_with_too_little_memory() {
        assert!(has_too_many_files(Err(io::Error::from_raw_os_error(24)), "unknown"));
        assert!(has_too_many_files(Ok(254), "256"));
        assert!(!has_too_many_files(Ok(20), "1024") && !has_too_many_files(Ok(20), "unlimited"));
        assert!(!has_too_many_files(Err(io::Error::from_raw_os_error(2)), "20"));
    }

    #[test]
    fn a_refused_thread_is_no_bug_and_says_how_many_there_are_and_which_limit_to_raise() {
        let error = io::Error::from_raw_os_error(11);
        let limits = "Max processes             77      90      processes\nMax address space         unlimited   unlimited   bytes\n";
        let said = refusal(&error, "Name:\tlockon\nThreads:\t41\n", limits);
        for part in ["beside its 41 (", "ulimit -u, now 77;", "ulimit -v, now unlimited bytes", "fewer"] {
            assert!(said.contains(part), "{said}");
        }
        let error = refused("the run", &error);
        assert!(matches!(error, Error::Resource { .. }) && !error.to_string().contains("report"), "{error}");
    }
}
