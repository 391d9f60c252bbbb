//! When: moments of a video, the part of it that is processed, and boxes that are followed from a moment on.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use crate::error::{Error, Result};
use crate::frame::{FrameMeta, Rect};

/// A place in a video: the number of a frame (`120`), or a time (`12.5s`, `500ms`, `1:02.5`, `1:02:03.5`).
///
/// Frames are counted from 0, the video's first; times are the frames' times in results.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Moment {
    /// The frame of that number.
    Frame(u64),
    /// The first frame that is not before this time, in nanoseconds.
    Time(u64),
}

impl Default for Moment {
    /// The beginning.
    fn default() -> Self {
        Self::Frame(0)
    }
}

impl Moment {
    /// True for the frame that it names and for all that follow. A frame without a time is before every time.
    pub fn is_reached(self, frame: &FrameMeta) -> bool {
        match self {
            Self::Frame(index) => frame.index >= index,
            Self::Time(ns) => frame.pts_ns.is_some_and(|pts| pts >= ns),
        }
    }

    /// For sentences: `frame 120`, `12.5s`.
    pub fn in_words(self) -> String {
        match self {
            Self::Frame(index) => format!("frame {index}"),
            Self::Time(_) => self.to_string(),
        }
    }
}

impl FromStr for Moment {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let bad = |expected: &str| Error::value("moment", text, expected);
        if !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()) {
            return text.parse().map(Self::Frame).map_err(|_| bad("no video has so many frames"));
        }
        let time = match (text.strip_suffix("ms"), text.strip_suffix('s'), text.contains(':')) {
            (Some(number), _, false) => nanoseconds(number, 6),
            (None, Some(number), false) => nanoseconds(number, 9),
            (None, None, true) => clock_time(text),
            _ => None,
        };
        time.map(Self::Time).ok_or_else(|| {
            bad("expected a frame's number or a time, such as 120, 12.5s, 500ms, 1:02.5 or 1:02:03.5")
        })
    }
}

impl fmt::Display for Moment {
    /// In the shortest way that comes back as the same: times in seconds.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Frame(index) => index.fmt(f),
            Self::Time(ns) => {
                let (seconds, fraction) = (ns / NANOSECONDS, format!("{:09}", ns % NANOSECONDS));
                match fraction.trim_end_matches('0') {
                    "" => write!(f, "{seconds}s"),
                    digits => write!(f, "{seconds}.{digits}s"),
                }
            }
        }
    }
}

const NANOSECONDS: u64 = 1_000_000_000;

/// `[H:]MM:SS[.FRACTION]` in nanoseconds. What is not in front is less than 60.
fn clock_time(text: &str) -> Option<u64> {
    let (rest, seconds) = text.rsplit_once(':')?;
    let (hours, minutes) = rest.rsplit_once(':').map_or((None, rest), |(hours, rest)| (Some(hours), rest));
    let whole = |text: &str| text.parse::<u64>().ok().filter(|_| text.bytes().all(|b| b.is_ascii_digit()));
    let (hours, minutes, seconds) = (hours.map(whole), whole(minutes)?, nanoseconds(seconds, 9)?);
    if seconds >= 60 * NANOSECONDS || (hours.is_some() && minutes >= 60) {
        return None;
    }
    let minutes = hours.unwrap_or(Some(0))?.checked_mul(60)?.checked_add(minutes)?;
    minutes.checked_mul(60 * NANOSECONDS)?.checked_add(seconds)
}

/// A decimal number as so many times 10 to the power of `places`, without rounding; digits that do not fit
/// are refused.
fn nanoseconds(number: &str, places: usize) -> Option<u64> {
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let is_number = [whole, fraction].iter().all(|part| part.bytes().all(|byte| byte.is_ascii_digit()));
    if !is_number || (whole.is_empty() && fraction.is_empty()) || fraction.len() > places {
        return None;
    }
    format!("{whole}{fraction:0<places$}").parse().ok()
}

/// The frames of a video that are processed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Part {
    /// The first one.
    pub start: Moment,
    /// The first frame after the last one; the video's end by default.
    pub end: Option<Moment>,
    /// The distance from one processed frame to the next: 1, or more to leave frames out.
    pub every: u64,
}

impl Default for Part {
    /// The whole video.
    fn default() -> Self {
        Self { start: Moment::default(), end: None, every: 1 }
    }
}

impl Part {
    /// The remedy for a box that was drawn on a frame before the part.
    pub const EARLIER_BOX: &str = "give an earlier --start, or a box that was drawn on a frame of this part";

    /// Refuses a part without frames, as far as that is known without the video.
    ///
    /// # Errors
    /// `Usage`.
    pub fn check(&self) -> Result<()> {
        let Self { start, end, .. } = *self;
        let is_empty = match (start, end) {
            (Moment::Frame(start), Some(Moment::Frame(end)))
            | (Moment::Time(start), Some(Moment::Time(end))) => end <= start,
            (_, Some(Moment::Frame(0) | Moment::Time(0))) => true,
            _ => false,
        };
        if is_empty {
            let end = end.expect("a part without an end is not empty");
            return Err(Error::Usage(format!(
                "--end {end} is not after --start {start}: no frame lies between them"
            )));
        }
        Ok(())
    }

    /// True if a moment surely lies before the first frame, as far as that is known without the video: a
    /// frame's number and a time cannot be compared.
    pub fn begins_after(&self, moment: Moment) -> bool {
        match (moment, self.start) {
            (Moment::Frame(moment), Moment::Frame(start)) | (Moment::Time(moment), Moment::Time(start)) => {
                moment < start
            }
            _ => false,
        }
    }

    /// True if a moment surely lies after the last frame, where at most `max_frames` are processed.
    pub fn ends_before(&self, moment: Moment, max_frames: Option<u64>) -> bool {
        match (moment, self.end) {
            (Moment::Frame(moment), Some(Moment::Frame(end))) if moment >= end => return true,
            (Moment::Time(moment), Some(Moment::Time(end))) if moment >= end => return true,
            _ => {}
        }
        match (moment, self.start, max_frames) {
            (Moment::Frame(moment), Moment::Frame(start), Some(max)) => {
                moment > start.saturating_add((max - 1).saturating_mul(self.every))
            }
            _ => false,
        }
    }
}

/// A length of time: `10s`, `500ms`, `1:30`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct TimeSpan {
    /// In nanoseconds.
    pub ns: u64,
}

impl TimeSpan {
    /// So many seconds.
    pub const fn seconds(seconds: u64) -> Self {
        Self { ns: seconds * NANOSECONDS }
    }
}

impl FromStr for TimeSpan {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        match text.parse() {
            Ok(Moment::Time(ns)) => Ok(Self { ns }),
            _ => Err(Error::value("time", text, "expected a length of time, such as 10s, 500ms or 1:30")),
        }
    }
}

impl fmt::Display for TimeSpan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Moment::Time(self.ns).fmt(f)
    }
}

/// A box to follow: `[NAME=]X,Y,W,H[@MOMENT]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TrackSpec {
    /// The track's name, if it was given one.
    pub name: Option<Arc<str>>,
    /// Where the object is.
    pub rect: Rect,
    /// The moment from which it is followed: the tracker learns the contents of the box there.
    pub from: Moment,
}

impl TrackSpec {
    /// A box without a name.
    pub fn new(rect: Rect, from: Moment) -> Self {
        Self { name: None, rect, from }
    }
}

impl FromStr for TrackSpec {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        // A box and a moment have no `=`, so a name may have some.
        let (name, place) = text.rsplit_once('=').map_or((None, text), |(name, place)| (Some(name), place));
        if let Some(name) = name {
            check_track_name(name).map_err(|expected| Error::value("track", text, expected))?;
        }
        let (rect, from) = place.split_once('@').map_or((place, None), |(rect, from)| (rect, Some(from)));
        let from = from.map_or(Ok(Moment::default()), str::parse)?;
        Ok(Self { name: name.map(Into::into), rect: rect.parse()?, from })
    }
}

/// Refuses names that would be read as something else where a track's name or number stands.
fn check_track_name(name: &str) -> Result<(), &'static str> {
    if name.is_empty() || name.trim() != name {
        Err("expected NAME=X,Y,W,H: a name that is not empty, without space around it")
    } else if name.contains(|c: char| c.is_control() || ";/+#{}".contains(c)) {
        Err("a track's name has no control characters and none of ; / + # { }")
    } else if name == "all" || name.bytes().all(|byte| byte.is_ascii_digit()) {
        Err("a track's name is not a number and not `all`: these stand for other tracks")
    } else {
        Ok(())
    }
}

impl fmt::Display for TrackSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(name) = &self.name {
            write!(f, "{name}=")?;
        }
        write!(f, "{}@{}", self.rect, self.from)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn boxes_without_pixels_are_refused() {
        assert_eq!(
            "1,2,3,4@5".parse::<TrackSpec>().unwrap(),
            TrackSpec::new(Rect::new(1, 2, 3, 4), Moment::Frame(5))
        );
        assert_eq!("1,2,3,4@12.5s".parse::<TrackSpec>().unwrap().to_string(), "1,2,3,4@12.5s");
        for text in ["1,2,0,4", "1,2,3", "1,2,3,4,5", "-1,2,3,4", "1,2,3,4@", "1,2,3,4@x", "a,b,c,d"] {
            assert!(text.parse::<TrackSpec>().is_err(), "{text}");
        }
    }

    #[test]
    fn a_box_may_have_a_name_that_comes_back() {
        for (text, name) in [("van=1,2,3,4@5", "van"), ("a b=1,2,3,4@0", "a b"), ("x=y=1,2,3,4@0.5s", "x=y")]
        {
            let spec: TrackSpec = text.parse().unwrap();
            assert_eq!((spec.name.as_deref(), &*spec.to_string()), (Some(name), text));
            assert_eq!(spec.rect, Rect::new(1, 2, 3, 4));
        }
        for text in [
            "=1,2,3,4",
            "7=1,2,3,4",
            "all=1,2,3,4",
            "a\u{1b}=1,2,3,4",
            " a=1,2,3,4",
            "a;b=1,2,3,4",
            "a/b=1,2,3,4",
        ] {
            assert!(text.parse::<TrackSpec>().is_err(), "{text:?}");
        }
    }

    #[test]
    fn a_length_of_time_has_a_unit() {
        for (text, ns) in
            [("10s", 10_000_000_000), ("500ms", 500_000_000), ("1:30", 90_000_000_000), ("0s", 0)]
        {
            assert_eq!(text.parse::<TimeSpan>().unwrap(), TimeSpan { ns }, "{text}");
        }
        for text in ["", "10", "-1s", "ten"] {
            let error = text.parse::<TimeSpan>().unwrap_err().to_string();
            assert!(error.contains("500ms"), "{error}");
        }
    }

    #[test]
    fn a_moment_is_a_frame_or_a_time_to_the_nanosecond() {
        for (text, moment, prints) in [
            ("120", Moment::Frame(120), "120"),
            ("0", Moment::default(), "0"),
            ("12.5s", Moment::Time(12_500_000_000), "12.5s"),
            ("0s", Moment::Time(0), "0s"),
            (".5s", Moment::Time(500_000_000), "0.5s"),
            ("500ms", Moment::Time(500_000_000), "0.5s"),
            ("1.000001ms", Moment::Time(1_000_001), "0.001000001s"),
            ("33.366667ms", Moment::Time(33_366_667), "0.033366667s"),
            ("1:02.5", Moment::Time(62_500_000_000), "62.5s"),
            ("90:00", Moment::Time(5_400_000_000_000), "5400s"),
            ("1:02:03.5", Moment::Time(3_723_500_000_000), "3723.5s"),
            ("18446744073709551615", Moment::Frame(u64::MAX), "18446744073709551615"),
            ("18446744073.709551615s", Moment::Time(u64::MAX), "18446744073.709551615s"),
        ] {
            assert_eq!(text.parse::<Moment>().unwrap(), moment, "{text}");
            assert_eq!(moment.to_string(), prints, "{text}");
            assert_eq!(prints.parse::<Moment>().unwrap(), moment, "{text}");
        }
    }

    #[test]
    fn what_is_neither_a_frame_nor_a_time_is_refused() {
        for text in [
            "",
            "-1",
            "+1",
            "12.5",
            "1e3s",
            "s",
            "ms",
            ".s",
            "1 s",
            "-1s",
            "1.5.5s",
            "1:",
            ":1",
            ":",
            "1:60",
            "1:-1",
            "1:60:00",
            "1:00:00:00",
            "1:02s",
            "1:02ms",
            "1h",
            "nans",
            "infs",
            "0.0000000001s",
            "18446744073709551616",
            "18446744074s",
            "99999999999999:00",
        ] {
            let said = text.parse::<Moment>().unwrap_err().to_string();
            assert!(said.contains("12.5s") || said.contains("so many frames"), "{text}: {said}");
        }
    }

    #[test]
    fn a_moment_is_reached_at_the_first_frame_that_is_not_before_it() {
        let meta = |index, pts_ns| FrameMeta {
            index,
            pts_ns,
            duration_ns: None,
            arrived: std::time::Instant::now(),
        };
        let time = Moment::Time(80);
        assert!(!time.is_reached(&meta(9, Some(79))) && time.is_reached(&meta(0, Some(80))));
        assert!(!time.is_reached(&meta(9, None)), "a frame without a time");
        let frame = Moment::Frame(2);
        assert!(!frame.is_reached(&meta(1, Some(99))) && frame.is_reached(&meta(2, None)));
    }
}
