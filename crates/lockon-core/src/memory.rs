//! The limit of memory, and large buffers that may not be available.
//!
//! A run's memory is documented where it is counted: the members of a bank in [`crate::template::Bank`],
//! their transforms, the score maps and the lists of a search in `backend::cpu::search`, the slots in
//! `backend::cpu`.

use std::path::Path;
use std::str::FromStr;

use crate::error::{Error, Result};

pub use crate::error::Bytes;

const UNITS: [(char, u32); 4] = [('T', 40), ('G', 30), ('M', 20), ('K', 10)];

impl FromStr for Bytes {
    type Err = Error;

    /// Reads `2G`, `500M`, `64K` or `1048576`; a K is 1024 bytes.
    fn from_str(text: &str) -> Result<Self> {
        let upper = text.trim().to_ascii_uppercase();
        let bare = upper.trim_end_matches('B').trim_end_matches('I');
        let unit = UNITS.iter().find(|(unit, _)| bare.ends_with(*unit));
        let (number, shift) = unit.map_or((bare, 0), |(unit, shift)| (bare.trim_end_matches(*unit), *shift));
        let bytes = number.trim().parse::<f64>().ok().map(|number| number * (1_u64 << shift) as f64);
        match bytes.filter(|bytes| (1.0..1e18).contains(bytes)) {
            Some(bytes) => Ok(Self(bytes as u64)),
            None => Err(Error::value("memory", text, "expected a size such as 2G, 500M or 1048576")),
        }
    }
}

/// Returns the default limit of memory: half of the free memory, so that decoder, encoder and others have
/// room too.
///
/// Free memory is the smaller of the amount that the system calls available and the amount that the control
/// groups of the process still allow. Where neither can be read there is no limit.
pub fn default_limit() -> Bytes {
    Bytes(free_below(Path::new("/")).map_or(u64::MAX, |free| free / 2))
}

/// Returns the free memory, from the system's files below `root`.
fn free_below(root: &Path) -> Option<u64> {
    let read = |path: &str| std::fs::read_to_string(root.join(path)).ok();
    let available = read("proc/meminfo").and_then(|text| {
        let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
        Some(line.split_whitespace().next()?.parse::<u64>().ok()? << 10)
    });
    let groups = read("proc/self/cgroup").unwrap_or_default();
    let mut least = available;
    for line in groups.lines() {
        let mut parts = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(path)) = (parts.next(), parts.next()) else { continue };
        let (folder, limit, current) = match controllers {
            "" => ("sys/fs/cgroup", "memory.max", "memory.current"),
            "memory" => ("sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes"),
            _ => continue,
        };
        // Limits of groups above count too. In a container the path may be the host's: then only the root
        // exists.
        let mut group = Path::new(path.trim_start_matches('/'));
        loop {
            let file = |name: &str| read(&format!("{folder}/{}/{name}", group.display()));
            let number = |name: &str| file(name)?.trim().parse::<u64>().ok();
            if let (Some(limit), Some(current)) = (number(limit), number(current)) {
                let statistics = file("memory.stat").unwrap_or_default();
                // The system frees pages of files when it needs memory.
                let cached = statistics.lines().find_map(|line| line.strip_prefix("inactive_file "));
                let cached = cached.and_then(|bytes| bytes.trim().parse::<u64>().ok()).unwrap_or(0);
                let room = limit.saturating_sub(current.saturating_sub(cached));
                least = Some(least.map_or(room, |least| least.min(room)));
            }
            let Some(parent) = group.parent() else { break };
            group = parent;
        }
    }
    least
}

/// Returns `count` times `value`, or an error if the system has no memory for it; `what` is for the message.
///
/// # Errors
/// `NoMemory`.
pub fn filled<T: Clone>(what: &'static str, count: usize, value: T) -> Result<Vec<T>> {
    let mut made = Vec::new();
    let wanted = Bytes((count as u64).saturating_mul(size_of::<T>() as u64));
    made.try_reserve_exact(count).map_err(|_| Error::NoMemory { what, wanted })?;
    made.resize(count, value);
    Ok(made)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_numbers_with_a_unit() {
        for (text, bytes) in [
            ("2G", 2 << 30),
            ("500M", 500 << 20),
            ("1.5g", 3 << 29),
            ("64KiB", 64 << 10),
            ("3MB", 3 << 20),
            ("77", 77),
        ] {
            assert_eq!(text.parse::<Bytes>().unwrap(), Bytes(bytes), "{text}");
        }
        for text in ["", "G", "-1G", "0", "1X", "nan", "inf", "1e300"] {
            assert!(text.parse::<Bytes>().is_err(), "{text}");
        }
        let shown = [Bytes(0), Bytes(1), Bytes(700), Bytes(1024), Bytes(3 << 29)].map(|b| b.to_string());
        assert_eq!(shown, ["0 bytes", "1 byte", "700 bytes", "1.0 KiB", "1.5 GiB"]);
    }

    #[test]
    fn the_tightest_of_system_and_control_groups_counts() {
        let root = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let path = root.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        assert_eq!(free_below(root.path()), None);
        write("proc/meminfo", "MemTotal: 9000 kB\nMemAvailable:    8000 kB\n");
        assert_eq!(free_below(root.path()), Some(8000 << 10));
        write("proc/self/cgroup", "0::/a/b\n");
        write("sys/fs/cgroup/a/b/memory.max", "max\n");
        write("sys/fs/cgroup/a/b/memory.current", "5\n");
        assert_eq!(free_below(root.path()), Some(8000 << 10));
        // The group above has a limit, and pages of files that it can give back.
        write("sys/fs/cgroup/a/memory.max", "5000000\n");
        write("sys/fs/cgroup/a/memory.current", "3000000\n");
        write("sys/fs/cgroup/a/memory.stat", "anon 1\ninactive_file 1000000\n");
        assert_eq!(free_below(root.path()), Some(3_000_000));
    }

    #[test]
    fn what_no_system_has_room_for_is_an_error() {
        let error = filled("a test", 1 << 60, 0_u64).unwrap_err();
        assert!(error.to_string().contains("a test"), "{error}");
    }
}
