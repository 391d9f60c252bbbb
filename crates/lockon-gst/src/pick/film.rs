//! The video that boxes are picked in: any of its frames can be shown.
//!
//! A place that is far away is reached by opening the video again and decoding from the key frame before it.
//! The decoder then does not know how many frames came before, so such a frame is named by its time. The
//! frames around the one that is shown are kept, so that single steps back cost nothing.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use crate::source::{Input, SourceSpec, VideoSource};
use lockon_core::config::Moment;
use lockon_core::control::{Control, STOP_CHECK};
use lockon_core::error::{Error, Result};
use lockon_core::frame::{Frame, FrameMeta};
use lockon_core::ports::{Next, Source};

/// The luma of an empty frame varies by less. Black that was compressed varies by some levels, and a fade
/// that can be seen by more.
const SPREAD: u8 = 16;

/// Frames that may be empty at the beginning: a minute of most videos.
const MOST_EMPTY: u64 = 1500;

/// How long a camera may give empty frames: some seconds pass until it has set its exposure.
const CAMERA_WAKES: Duration = Duration::from_secs(3);

/// A place that is nearer ahead is reached by decoding on.
const NEAR_NS: u64 = 2_000_000_000;

/// The first step back from a place at which no frame was found. Each further step is twice as long.
const STEP_BACK_NS: u64 = 1_000_000_000;

/// Frames that are kept, and the bytes that they may have together. Two are always kept.
const MOST_RECENT: usize = 64;
const MOST_RECENT_BYTES: usize = 256 << 20;

/// A page is so long, or a tenth of the video if that is less.
pub(super) const PAGE_NS: u64 = 10_000_000_000;

/// How a frame other than the next one can be reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reach {
    /// There is one frame.
    Nothing,
    /// Not at all: a camera, a pipe.
    Forward,
    /// By decoding from the beginning: the video has no index, or no length.
    Recount,
    /// By seeking.
    Seek,
}

/// Where a film began.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Opening {
    /// At the requested frame, or at the first.
    Asked,
    /// At the first frame that is not empty: so many before it are.
    NotEmpty(u64),
    /// At the first frame: so many frames, the first among them, are all empty.
    AllEmpty(u64),
}

/// A move to another frame.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Step {
    /// So many frames ahead, or back.
    Frames(i64),
    /// So many nanoseconds ahead, or back.
    Time(i64),
    /// So many pages ahead, or back.
    Pages(i64),
    /// To a share of the length, from 0 to 1.
    Share(f64),
    /// To the first frame.
    Start,
    /// To the last frame.
    End,
}

/// A frame to land on.
#[derive(Debug, Clone, Copy)]
enum Target {
    /// The first one at or after this time; the last one if there is none.
    From(u64),
    /// The last one before this time.
    Before(u64),
}

/// A video that shows one of its frames.
pub struct Film {
    spec: Option<SourceSpec>,
    reach: Reach,
    source: Option<VideoSource>,
    /// Frames that follow one another; the source continues with the one after the last.
    recent: VecDeque<Frame>,
    /// Index in `recent` of the frame that is shown.
    at: usize,
    /// Their numbers count from the video's first frame.
    is_counted: bool,
    /// The time of the video's first frame, if that frame was seen.
    first_ns: Option<u64>,
    length_ns: Option<u64>,
    opening: Opening,
}

impl Film {
    /// A single frame.
    pub fn of(frame: Frame) -> Self {
        Self {
            spec: None,
            reach: Reach::Nothing,
            source: None,
            recent: [frame].into(),
            at: 0,
            is_counted: true,
            first_ns: None,
            length_ns: None,
            opening: Opening::Asked,
        }
    }

    /// Opens a video at the first frame at or after `start`; without `start`, at the first frame that is not
    /// empty. `None` if `control` was stopped before that frame came.
    ///
    /// A frame is empty if the darkest and the brightest of its pixels differ by less than 16 of 255 levels
    /// of luma: it is black, or one flat colour. At most 1500 frames are looked at, of a camera those of 3 s.
    ///
    /// # Errors
    /// The source's; `NoVideo` if it ends before that frame.
    pub fn open(spec: &SourceSpec, start: Option<Moment>, control: &Control) -> Result<Option<Self>> {
        // Decoding may begin later as long as the numbers stay right.
        let opened = SourceSpec { wanted_from: start, ..spec.clone() };
        let mut source = VideoSource::open(&opened, control)?;
        let deadline = if spec.is_real_time()? { Some(Instant::now() + CAMERA_WAKES) } else { None };
        let (mut empty, mut last) = (None::<Frame>, None::<FrameMeta>);
        let mut count = 0;
        let (shown, opening) = loop {
            let Some(frame) = pull(&mut source, control)? else {
                if control.is_stopped() {
                    return Ok(None);
                }
                match empty.take() {
                    Some(first) => break (first, Opening::AllEmpty(count)),
                    None => return Err(ended(&spec.input, start.unwrap_or_default(), last)),
                }
            };
            last = Some(frame.meta);
            match start {
                Some(start) if start.is_reached(&frame.meta) => break (frame, Opening::Asked),
                Some(_) => continue,
                None if !is_empty(&frame) => {
                    break (frame, if count == 0 { Opening::Asked } else { Opening::NotEmpty(count) });
                }
                None => {}
            }
            count += 1;
            let first = empty.get_or_insert(frame);
            if count == MOST_EMPTY || deadline.is_some_and(|deadline| Instant::now() > deadline) {
                break (first.clone(), Opening::AllEmpty(count));
            }
        };
        let length_ns = source.duration_ns();
        let is_again = match &spec.input {
            Input::Pictures(_) => true,
            input => input.file().is_some(),
        };
        let is_vod = matches!(spec.input, Input::Uri(_)) && !source.is_live();
        let reach = match shown.meta.pts_ns.and(length_ns) {
            _ if deadline.is_some() => Reach::Forward,
            Some(_) if (is_again || is_vod) && !matches!(spec.input, Input::Pictures(_)) => Reach::Seek,
            _ if is_again => Reach::Recount,
            _ => Reach::Forward,
        };
        let first_ns = empty.as_ref().unwrap_or(&shown).meta;
        let first_ns = first_ns.pts_ns.filter(|_| first_ns.index == 0);
        let goes_back = matches!(opening, Opening::AllEmpty(_)) && reach != Reach::Forward;
        let mut film = Self {
            spec: Some(spec.clone()),
            reach,
            source: Some(source),
            recent: [shown].into(),
            at: 0,
            is_counted: true,
            first_ns,
            length_ns,
            opening,
        };
        // The source is far ahead of the frame that is shown.
        if goes_back && !film.jump(Target::From(0), 0, control)? {
            return Ok(None);
        }
        Ok(Some(film))
    }

    /// The frame that is shown.
    pub fn shown(&self) -> &Frame {
        &self.recent[self.at]
    }

    /// Names the frame that is shown, so that a run finds it: its number, or its time if frames before it
    /// were never counted.
    pub fn moment(&self) -> Moment {
        let meta = self.shown().meta;
        match meta.pts_ns.filter(|_| !self.is_counted) {
            None => Moment::Frame(meta.index),
            Some(pts) => {
                // Whole milliseconds, which are shorter to read, if they mean the same frame.
                let before = self.at.checked_sub(1).and_then(|at| self.recent[at].meta.pts_ns);
                let before = before.unwrap_or_else(|| pts.saturating_sub(self.interval_ns() / 2));
                let whole = pts - pts % 1_000_000;
                Moment::Time(if whole > before { whole } else { pts })
            }
        }
    }

    /// How other frames can be reached.
    pub fn reach(&self) -> Reach {
        self.reach
    }

    /// Where it began.
    pub fn opening(&self) -> Opening {
        self.opening
    }

    /// Length of the video in nanoseconds, where it is known.
    pub(super) fn length_ns(&self) -> Option<u64> {
        self.length_ns.filter(|_| matches!(self.reach, Reach::Seek | Reach::Recount))
    }

    /// The time of the shown frame.
    pub(super) fn shown_ns(&self) -> u64 {
        self.time_of(self.shown())
    }

    /// Length of a page, in nanoseconds.
    pub(super) fn page_ns(&self) -> u64 {
        self.length_ns().map_or(PAGE_NS, |length| (length / 10).clamp(1, PAGE_NS))
    }

    /// From one frame to the next, in nanoseconds.
    pub(super) fn interval_ns(&self) -> u64 {
        let (frames, seconds) = self.shown().format.frame_rate;
        let is_known = frames > 0 && seconds > 0;
        if is_known { (f64::from(seconds) / f64::from(frames) * 1e9) as u64 } else { 40_000_000 }
    }

    /// Moves to another frame. False if that is not possible, or if `control` was stopped: then the same
    /// frame is shown.
    ///
    /// # Errors
    /// The source's: then the same frame is shown.
    pub(super) fn go(&mut self, step: Step, control: &Control) -> Result<bool> {
        let (now, length) = (self.shown_ns(), self.length_ns());
        match step {
            _ if self.source.is_none() => Ok(false),
            Step::Frames(count) if count >= 0 => self.forward(count as u64, control),
            Step::Frames(count) => {
                let mut has_moved = false;
                for _ in 0..count.unsigned_abs() {
                    if self.at > 0 {
                        self.at -= 1;
                    } else if !self.jump_before(self.shown_ns(), control)? {
                        break;
                    }
                    has_moved = true;
                }
                Ok(has_moved)
            }
            Step::Pages(pages) => self.go(Step::Time(pages.saturating_mul(self.page_ns() as i64)), control),
            // A camera gives each frame when it is due: the user does not wait for the one in ten seconds.
            Step::Time(ns) if ns > 0 && self.is_real_time() => self.forward(1, control),
            Step::Time(ns) if ns > 0 => self.seek(now.saturating_add(ns as u64), control),
            Step::Time(ns) => {
                let target = now.saturating_sub(ns.unsigned_abs()).saturating_add(1);
                Ok(self.jump_before(target, control)? || self.go(Step::Start, control)?)
            }
            Step::Share(share) => match length {
                Some(length) => self.seek((share.clamp(0.0, 1.0) * length as f64) as u64, control),
                None => Ok(false),
            },
            Step::Start => self.jump(Target::From(0), 0, control),
            Step::End => match (self.reach, length) {
                // Files round times, so it begins somewhat earlier.
                (Reach::Seek, Some(length)) => {
                    let from = length.saturating_sub(self.interval_ns().saturating_mul(9) / 8);
                    self.jump(Target::From(u64::MAX), from, control)
                }
                (Reach::Recount, _) => self.forward(u64::MAX, control),
                _ => Ok(false),
            },
        }
    }

    fn is_real_time(&self) -> bool {
        self.spec.as_ref().is_some_and(|spec| spec.is_real_time().unwrap_or(false))
    }

    /// The time of a frame; for one without a time, an estimate from its number.
    pub(super) fn time_of(&self, frame: &Frame) -> u64 {
        let counted = || frame.meta.index.saturating_mul(self.interval_ns());
        frame.meta.pts_ns.unwrap_or_else(counted)
    }

    /// Moves forward by so many frames, or to the end.
    fn forward(&mut self, count: u64, control: &Control) -> Result<bool> {
        let mut has_moved = false;
        for _ in 0..count {
            if self.at + 1 >= self.recent.len() {
                let Some(source) = &mut self.source else { break };
                let Some(frame) = pull(source, control)? else { break };
                push(&mut self.recent, frame);
                self.at = self.recent.len() - 2;
            }
            self.at += 1;
            has_moved = true;
        }
        Ok(has_moved)
    }

    /// Goes to the first frame at or after a time, or to the last frame.
    fn seek(&mut self, ns: u64, control: &Control) -> Result<bool> {
        let now = self.shown_ns();
        if let Some(at) = self.recent.iter().position(|frame| self.time_of(frame) >= ns)
            && (at > 0 || self.time_of(&self.recent[0]) == ns)
        {
            self.at = at;
            return Ok(true);
        }
        let is_near = ns >= now && (ns - now <= NEAR_NS || self.reach != Reach::Seek);
        if !is_near {
            let last = self.length_ns.unwrap_or(u64::MAX).saturating_sub(self.interval_ns());
            return self.jump(Target::From(ns), ns.min(last), control);
        }
        let mut has_moved = false;
        while self.shown_ns() < ns && self.forward(1, control)? {
            has_moved = true;
        }
        Ok(has_moved)
    }

    /// Moves to the last frame before a time. False if there is none.
    fn jump_before(&mut self, ns: u64, control: &Control) -> Result<bool> {
        if let Some(at) = self.recent.iter().rposition(|frame| self.time_of(frame) < ns) {
            self.at = at;
            return Ok(true);
        }
        self.jump(Target::Before(ns), ns.saturating_sub(1), control)
    }

    /// Opens the video again, decodes from the key frame at or before `from`, and shows the target. False if
    /// there is no such frame, or if the video cannot be opened twice.
    fn jump(&mut self, target: Target, mut from: u64, control: &Control) -> Result<bool> {
        let Some(spec) = self.spec.clone().filter(|_| self.reach != Reach::Forward) else { return Ok(false) };
        let mut back = STEP_BACK_NS;
        loop {
            let seek_ns = Some(from).filter(|from| self.reach == Reach::Seek && *from > 0);
            let spec = SourceSpec { seek_ns, wanted_from: None, ..spec.clone() };
            let mut source = match VideoSource::open(&spec, control) {
                Err(error) if seek_ns.is_some() && spec.input.file().is_some() => {
                    control.check()?;
                    tracing::warn!("{error}: places are reached by decoding from the beginning");
                    self.reach = Reach::Recount;
                    continue;
                }
                opened => opened?,
            };
            let (mut recent, mut first) = (VecDeque::new(), None);
            let ns = match target {
                Target::From(ns) | Target::Before(ns) => ns,
            };
            let is_reached = loop {
                let Some(frame) = pull(&mut source, control)? else { break false };
                let time = self.time_of(&frame);
                first.get_or_insert(frame.meta);
                push(&mut recent, frame);
                if time >= ns {
                    break true;
                }
            };
            if control.is_stopped() {
                return Ok(false);
            }
            let behind = if is_reached && matches!(target, Target::Before(_)) { 2 } else { 1 };
            if let (Some(at), Some(first)) = (recent.len().checked_sub(behind), first) {
                let is_first =
                    seek_ns.is_none() || (self.first_ns.is_some() && first.pts_ns == self.first_ns);
                if seek_ns.is_none() {
                    self.first_ns = first.pts_ns;
                }
                self.is_counted = is_first;
                (self.source, self.recent, self.at) = (Some(source), recent, at);
                return Ok(true);
            }
            if seek_ns.is_none() {
                return Ok(false);
            }
            // A file may last longer than its pictures, and a key frame may be later than its index says.
            from = from.saturating_sub(back);
            back = back.saturating_mul(2);
        }
    }
}

/// Adds the next frame, and drops the oldest if there are too many.
fn push(recent: &mut VecDeque<Frame>, frame: Frame) {
    let most = (MOST_RECENT_BYTES / frame.format.bytes().max(1)).clamp(2, MOST_RECENT);
    recent.push_back(frame);
    while recent.len() > most {
        recent.pop_front();
    }
}

/// The next frame of a source; `None` at its end, or if `control` was stopped.
fn pull(source: &mut VideoSource, control: &Control) -> Result<Option<Frame>> {
    while !control.is_stopped() {
        match source.wait_next(STOP_CHECK)? {
            Next::Frame(frame) => return Ok(Some(frame)),
            Next::End => return Ok(None),
            Next::Pending | Next::Gap { .. } => {}
        }
    }
    Ok(None)
}

/// True if nothing can be seen in a frame: it is black, or one flat colour.
fn is_empty(frame: &Frame) -> bool {
    let (mut darkest, mut brightest) = (u8::MAX, u8::MIN);
    for row in frame.luma().rows() {
        for &luma in row {
            (darkest, brightest) = (darkest.min(luma), brightest.max(luma));
        }
        if brightest - darkest >= SPREAD {
            return false;
        }
    }
    true
}

/// The error of a video that ends before a moment.
fn ended(input: &Input, moment: Moment, last: Option<FrameMeta>) -> Error {
    let reason = match last.and_then(|last| Some((last.index, last.pts_ns?))) {
        Some((index, ns)) => {
            let last = Moment::Time(ns);
            format!("it ends before {}: its last frame is {index}, at {last}", moment.in_words())
        }
        None => format!("it ended before {}", moment.in_words()),
    };
    Error::NoVideo { input: input.to_string(), reason }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::Decoder;
    use crate::testing::make_clip;
    use std::path::Path;

    const SECOND: i64 = 1_000_000_000;

    /// A video whose picture differs in each frame, with a key frame every 10 frames.
    fn clip(path: &Path, frames: u32, how: &str) {
        make_clip(
            path,
            &format!(
                "videotestsrc num-buffers={frames} pattern=ball motion=sweep \
                 ! video/x-raw,format=I420,width=160,height=120,framerate=25/1 ! {how} ! filesink name=file"
            ),
        );
    }

    fn open(path: &Path, start: Option<Moment>) -> Film {
        // One decoding thread, as in other tests: so each source gets its own errors.
        let spec = SourceSpec {
            decoder_threads: Some(1),
            ..SourceSpec::new(Input::File(path.into()), Decoder::Software)
        };
        Film::open(&spec, start, &Control::new()).unwrap().unwrap()
    }

    /// The luma of each frame of a video, in order.
    fn all(path: &Path) -> Vec<Vec<u8>> {
        let mut film = open(path, Some(Moment::default()));
        let luma = |film: &Film| film.shown().luma().rows().flatten().copied().collect::<Vec<_>>();
        let mut all = vec![luma(&film)];
        while film.go(Step::Frames(1), &Control::new()).unwrap() {
            all.push(luma(&film));
        }
        all
    }

    #[test]
    fn each_step_lands_on_its_frame_and_the_moment_names_that_frame() {
        let folder = tempfile::tempdir().unwrap();
        for (name, how) in [
            ("a.mp4", "x264enc key-int-max=10 bframes=2 ! mp4mux"),
            ("a.mkv", "x264enc key-int-max=10 ! matroskamux"),
            ("a.ts", "x264enc key-int-max=10 ! mpegtsmux"),
            ("a.avi", "jpegenc ! avimux"),
            // Without an index, a length or times.
            ("a.h264", "x264enc key-int-max=10 ! video/x-h264,stream-format=byte-stream"),
        ] {
            let path = folder.path().join(name);
            clip(&path, 120, how);
            let all = all(&path);
            assert_eq!(all.len(), 120, "{name}");
            let mut film = open(&path, Some(Moment::Frame(3)));
            // From which frame, by which step, to which frame.
            for (step, expected) in [
                (Step::Frames(1), 4),
                (Step::Frames(-2), 2),
                (Step::Frames(-1), 1),
                (Step::Time(SECOND), 26),
                (Step::Time(2 * SECOND), 76),
                (Step::Frames(-1), 75),
                (Step::Time(-SECOND), 50),
                (Step::Frames(-12), 38),
                (Step::Frames(3), 41),
                (Step::End, 119),
                (Step::Frames(1), 119),
                (Step::Frames(-1), 118),
                (Step::Time(-3 * SECOND), 43),
                (Step::Start, 0),
                (Step::Frames(-1), 0),
                (Step::Time(-SECOND), 0),
                (Step::Time(60 * SECOND), 119),
            ] {
                film.go(step, &Control::new()).unwrap();
                let shown: Vec<_> = film.shown().luma().rows().flatten().copied().collect();
                let found = all.iter().position(|luma| *luma == shown);
                assert_eq!(found, Some(expected), "{name}: {step:?}");
                let named = open(&path, Some(film.moment()));
                let named: Vec<_> = named.shown().luma().rows().flatten().copied().collect();
                assert!(named == shown, "{name}: {} is not frame {expected}", film.moment());
            }
        }
    }

    #[test]
    fn shares_of_the_length_and_pages_go_through_the_video() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.mp4");
        clip(&path, 100, "x264enc key-int-max=10 ! mp4mux");
        let mut film = open(&path, None);
        assert_eq!((film.reach(), film.length_ns()), (Reach::Seek, Some(4_000_000_000)));
        for (step, ns) in [
            (Step::Share(0.5), 2_000_000_000),
            (Step::Pages(1), 2_400_000_000),
            (Step::Pages(-2), 1_600_000_000),
            (Step::Share(1.0), 3_960_000_000),
            (Step::Share(0.0), 0),
        ] {
            film.go(step, &Control::new()).unwrap();
            assert_eq!(film.shown_ns(), ns, "{step:?}");
        }
        // A number is known again where the video began to be decoded at its first frame.
        assert_eq!(film.moment(), Moment::Frame(0));
    }

    #[test]
    fn a_video_is_opened_at_its_first_frame_that_is_not_empty() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.mkv");
        let part = |pattern: &str, frames: u32| {
            format!(
                "videotestsrc num-buffers={frames} pattern={pattern} \
                 ! video/x-raw,format=I420,width=160,height=120,framerate=25/1 ! c. "
            )
        };
        let clip = |parts: &[(&str, u32)]| {
            let parts: String = parts.iter().map(|(pattern, frames)| part(pattern, *frames)).collect();
            make_clip(
                &path,
                &format!(
                    "concat name=c ! identity single-segment=true ! x264enc ! matroskamux ! filesink name=file {parts}"
                ),
            );
        };
        clip(&[("black", 12), ("blue", 3), ("smpte", 10)]);
        let mut film = open(&path, None);
        assert_eq!((film.moment(), film.opening()), (Moment::Frame(15), Opening::NotEmpty(15)));
        // The empty ones can be looked at.
        film.go(Step::Frames(-1), &Control::new()).unwrap();
        assert_eq!(film.moment(), Moment::Frame(14));
        let film = open(&path, Some(Moment::Frame(2)));
        assert_eq!((film.moment(), film.opening()), (Moment::Frame(2), Opening::Asked));
        clip(&[("smpte", 5)]);
        assert_eq!(open(&path, None).opening(), Opening::Asked);
        clip(&[("black", 12)]);
        let mut film = open(&path, None);
        assert_eq!((film.moment(), film.opening()), (Moment::Frame(0), Opening::AllEmpty(12)));
        film.go(Step::Frames(1), &Control::new()).unwrap();
        assert_eq!(film.moment(), Moment::Frame(1));
    }
}
