//! Numbers as people read them.

/// `0 bytes`, `812 bytes`, `12.3 kB`, `4.56 MB`: three digits, decimal units.
pub(super) fn size(bytes: u64) -> String {
    const UNITS: [&str; 4] = ["kB", "MB", "GB", "TB"];
    if bytes < 1000 {
        return format!("{bytes} byte{}", if bytes == 1 { "" } else { "s" });
    }
    let mut value = bytes as f64 / 1000.0;
    let mut unit = 0;
    // What would be rounded to 1000 is 1 of the next unit.
    while value >= 999.5 && unit + 1 < UNITS.len() {
        value /= 1000.0;
        unit += 1;
    }
    let places = if value < 9.995 { 2 } else { usize::from(value < 99.95) };
    format!("{value:.places$} {}", UNITS[unit])
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

    #[test]
    fn sizes_have_three_digits_and_the_unit_that_fits() {
        for (bytes, text) in [
            (0, "0 bytes"),
            (1, "1 byte"),
            (999, "999 bytes"),
            (1000, "1.00 kB"),
            (12_345, "12.3 kB"),
            (999_499, "999 kB"),
            (999_500, "1.00 MB"),
            (1_234_567_890, "1.23 GB"),
        ] {
            assert_eq!(size(bytes), text);
        }
    }
}
