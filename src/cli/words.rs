//! Numbers as text for people.

/// `1 frame`, `2 frames`
pub(super) fn counted(count: u64, one: &str, many: &str) -> String {
    format!("{count} {}", if count == 1 { one } else { many })
}

/// `0.48 s`, `1:02.50`, `1:00:05.00`: a time in a video.
pub(super) fn time(ns: u64) -> String {
    let hundredths = ns.saturating_add(5_000_000) / 10_000_000;
    let (minutes, rest) = (hundredths / 6000, hundredths % 6000);
    let seconds = format!("{}.{:02}", rest / 100, rest % 100);
    match (minutes / 60, minutes % 60) {
        (0, 0) => format!("{seconds} s"),
        (0, minutes) => format!("{minutes}:{seconds:0>5}"),
        (hours, minutes) => format!("{hours}:{minutes:02}:{seconds:0>5}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_minutes_and_hours_where_they_need_them() {
        for (ns, text) in [
            (0, "0.00 s"),
            (479_999_999, "0.48 s"),
            (59_999_000_000, "1:00.00"),
            (62_500_000_000, "1:02.50"),
            (3_605_000_000_000, "1:00:05.00"),
        ] {
            assert_eq!(time(ns), text);
        }
    }
}
