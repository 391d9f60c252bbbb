//! The current state of a run: its newest frame, its last records and events, counts, and the names of
//! tracks.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use serde::Serialize;
use tokio::sync::watch;

use lockon_core::frame::{Frame, Picture, VideoFormat};
use lockon_core::locks::{MutexGuard, Ranked, lock};
use lockon_core::ports::Delivery;
use lockon_core::results::{Event, FrameRecord, RunRecord, SearchRecord, Summary};
use lockon_core::text;

use super::feed::{Feed, Look};
use super::folder::Folder;
use super::history::History;
use super::memory::{MemoryBudget, Reservation};
use super::recent_events::{RecentEvents, ShownEvent, ShownLine, ShownZone};
use super::{KEPT, Shown};

/// Maximum frames kept while a browser draws a box on a still picture: eight seconds.
const MOST_KEPT: usize = 240;

/// Entries of the log in a report.
const MOST_EVENTS: usize = 20;

/// Maximum named tracks, and maximum length of a name.
const MOST_NAMES: usize = 1024;
pub(super) const MOST_LETTERS: usize = 64;

/// Bytes that the templates added on the page may take in a run's records, all together: every results file
/// has them, and repeating the run reads them into memory.
pub(super) const MOST_TEMPLATE_BYTES: usize = 64 << 20;

/// Frames a second are counted over this many marks at this distance.
const MARKS: usize = 8;
const MARK: Duration = Duration::from_millis(250);

/// Latencies are measured over the last frames.
const LATENCIES: usize = 120;

/// Shortest time between two reports because of events.
const REPORTS: Duration = Duration::from_millis(100);

/// A run.
pub(super) struct Video {
    pub(super) id: usize,
    pub(super) shown: Shown,
    state: Ranked<State, 40>,
    /// Counts up with each frame.
    frames: watch::Sender<u64>,
    /// Counts up whenever something else has changed.
    changes: watch::Sender<u64>,
    viewers: Ranked<Viewers, 20>,
    /// True while the run pauses at its first frame until a box is drawn.
    waits: AtomicBool,
    /// How many feeds show the thresholded picture.
    pub(super) masks: AtomicUsize,
    feeds: Mutex<HashMap<Look, Arc<Feed>>>,
    /// Bytes that templates added on the page take in the records.
    template_bytes: AtomicUsize,
    /// The folder whose place messages must not contain.
    folder: Option<Arc<Folder>>,
}

/// A frame with its results.
#[derive(Clone)]
pub(super) struct Newest {
    pub(super) frame: Frame,
    pub(super) record: Arc<FrameRecord>,
    pub(super) mask: Option<Arc<dyn Picture>>,
}

#[derive(Default)]
struct State {
    run: Option<Arc<RunRecord>>,
    newest: Option<Newest>,
    history: History,
    search: Arc<SearchRecord>,
    names: BTreeMap<u32, String>,
    log: VecDeque<Logged>,
    recent_events: RecentEvents,
    /// When events last caused a report.
    reported: Option<Instant>,
    frames: u64,
    first: Option<u64>,
    stalls: u64,
    gaps: u64,
    is_stalled: bool,
    marks: VecDeque<(Instant, u64)>,
    ended: Option<End>,
}

/// How a run ended.
struct End {
    error: Option<String>,
}

/// The browsers that show a run.
struct Viewers {
    all: usize,
    /// Browsers in which a box is being drawn.
    draw: usize,
    /// Memory for the frames kept for them.
    reserved: Reservation,
}

/// An entry of the log: an order, or something that the source did.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct Logged {
    /// The first frame after it.
    frame: u64,
    what: String,
}

/// A report about a run: `Video` in `openapi.json`.
#[derive(Debug, Serialize)]
pub(super) struct Status {
    id: usize,
    name: String,
    title: String,
    state: &'static str,
    is_live: bool,
    waits: bool,
    /// Speed relative to the recording; `None` is as fast as possible.
    speed: Option<f64>,
    can_jump: bool,
    width: Option<usize>,
    height: Option<usize>,
    frame: Option<u64>,
    position_s: Option<f64>,
    start_s: f64,
    length_s: Option<f64>,
    frames: u64,
    fps: f64,
    dropped: u64,
    stalls: u64,
    gaps: u64,
    latency_ms: Option<Spread>,
    capture_ms: Option<Spread>,
    backend: Option<&'static str>,
    device: Option<String>,
    decoder: Option<String>,
    search: Arc<SearchRecord>,
    viewers: usize,
    names: BTreeMap<u32, String>,
    zones: Vec<ShownZone>,
    lines: Vec<ShownLine>,
    happened: Vec<ShownEvent>,
    events: Vec<Logged>,
    error: Option<String>,
}

/// Median and 95th percentile of durations, in milliseconds.
#[derive(Debug, PartialEq, Serialize)]
struct Spread {
    p50: f64,
    p95: f64,
}

impl Spread {
    fn of(mut us: Vec<u64>) -> Option<Self> {
        us.sort_unstable();
        let at = |share: usize| us.get((us.len() * share / 100).min(us.len().saturating_sub(1)));
        let ms = |share| at(share).map(|&us| us as f64 / 1e3);
        Some(Self { p50: ms(50)?, p95: ms(95)? })
    }
}

impl Video {
    pub(super) fn new(
        id: usize,
        shown: Shown,
        memory: &Arc<MemoryBudget>,
        folder: Option<Arc<Folder>>,
    ) -> Self {
        Self {
            id,
            folder,
            waits: AtomicBool::new(shown.waits),
            masks: AtomicUsize::new(0),
            state: Ranked::new(State {
                search: shown.search.clone(),
                recent_events: RecentEvents::new(shown.zones.clone(), shown.lines.clone()),
                ..State::default()
            }),
            shown,
            frames: watch::Sender::new(0),
            changes: watch::Sender::new(0),
            viewers: Ranked::new(Viewers { all: 0, draw: 0, reserved: Reservation::none_of(memory) }),
            feeds: Mutex::default(),
            template_bytes: AtomicUsize::new(0),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    /// The feeds that browsers show.
    pub(super) fn feeds(&self) -> MutexGuard<'_, HashMap<Look, Arc<Feed>>> {
        lock(&self.feeds)
    }

    /// Text for the page. The folder's place is removed first, since it would not be found in escaped text.
    fn for_people(&self, text: &str) -> String {
        match &self.folder {
            Some(folder) => text::for_people(&folder.hide(text)),
            None => text::for_people(text),
        }
    }

    /// Changes with each frame from now on.
    pub(super) fn frames(&self) -> watch::Receiver<u64> {
        self.frames.subscribe()
    }

    /// Changes whenever a report should be sent, besides frames.
    pub(super) fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    fn tell(&self) {
        self.changes.send_modify(|count| *count += 1);
    }

    pub(super) fn begin(&self, run: &RunRecord, _: &VideoFormat) {
        let mut run = run.clone();
        if let Some(folder) = &self.folder {
            let words = run.command.iter_mut().flat_map(|said| said.line.iter_mut().chain(&mut said.outputs));
            words.chain([&mut run.input]).for_each(|word| *word = folder.hide(word));
        }
        let mut state = self.state();
        state.run = Some(Arc::new(run));
        drop(state);
        if self.waits.load(Ordering::Relaxed) {
            // Only the first frame is on its way.
            self.shown.control.pause(true);
        }
        self.tell();
    }

    pub(super) fn deliver(&self, delivery: &Delivery<'_>) {
        let newest = Newest {
            frame: delivery.frame.clone(),
            record: delivery.record.clone(),
            mask: delivery.mask.cloned(),
        };
        let mut state = self.state();
        state.frames += 1;
        state.first.get_or_insert(newest.record.frame);
        state.is_stalled = false;
        let (now, frames) = (Instant::now(), state.frames);
        if state.marks.back().is_none_or(|(at, _)| now.duration_since(*at) >= MARK) {
            state.marks.push_back((now, frames));
            if state.marks.len() > MARKS {
                state.marks.pop_front();
            }
        }
        state.history.push(&newest.record);
        let has_happened = state.recent_events.step(&newest.record, newest.frame.format.size);
        let reports = has_happened && state.reported.is_none_or(|at| now.duration_since(at) >= REPORTS);
        if reports {
            state.reported = Some(now);
        }
        // The previous picture goes back to its decoder without the lock.
        let before = state.newest.replace(newest);
        drop(state);
        if reports {
            self.tell();
        }
        if before.is_some_and(|before| before.frame.format.bytes() != delivery.frame.format.bytes()) {
            self.keep_frames();
        }
        self.frames.send_modify(|count| *count += 1);
    }

    pub(super) fn note(&self, event: &Event) {
        let seconds = |us: &u64| *us as f64 / 1e6;
        let mut state = self.state();
        let (frame, what) = match event {
            Event::Stalled { frame, waited_us } => {
                (state.stalls, state.is_stalled) = (state.stalls + 1, true);
                (frame, format!("no frame for {:.1} s", seconds(waited_us)))
            }
            Event::Resumed { frame, waited_us } => {
                state.is_stalled = false;
                (frame, format!("frames again after {:.1} s", seconds(waited_us)))
            }
            Event::Gap { frame, away_us, reason } => {
                state.gaps += 1;
                let reason = self.for_people(reason);
                (frame, format!("reconnected after {:.1} s: {reason}", seconds(away_us)))
            }
            Event::Caps { frame, width, height, format, .. } => {
                (frame, format!("frames are {width}x{height} {format} from now on"))
            }
            Event::Control { frame, order, refused: None, search } => {
                match search {
                    Some(search) => state.search = search.clone(),
                    None => state.recent_events.obey(*frame, order),
                }
                (frame, order.to_string())
            }
            Event::Control { frame, order, refused: Some(reason), .. } => {
                (frame, format!("refused to {order}: {}", self.for_people(reason)))
            }
        };
        state.log.push_back(Logged { frame: *frame, what });
        if state.log.len() > MOST_EVENTS {
            state.log.pop_front();
        }
        drop(state);
        self.tell();
    }

    pub(super) fn finish(&self, summary: Option<&Summary>) {
        let mut state = self.state();
        if state.ended.is_none() {
            let error = summary.and_then(|summary| summary.error.as_deref());
            state.ended = Some(End { error: error.map(|error| self.for_people(error)) });
            // A picture in a device's memory ends with the device.
            if state.newest.as_ref().is_some_and(|newest| newest.frame.picture.surface().is_some()) {
                state.newest = None;
            }
        }
        drop(state);
        self.keep_frames();
        self.tell();
    }

    pub(super) fn has_ended(&self) -> bool {
        self.state().ended.is_some()
    }

    pub(super) fn newest(&self) -> Option<Newest> {
        self.state().newest.clone()
    }

    /// A decoded frame: the newest, or frame `at` if it is the newest or kept.
    pub(super) fn frame(&self, at: Option<u64>) -> Option<Frame> {
        let newest = self.newest().filter(|newest| at.is_none_or(|at| at == newest.record.frame));
        newest.map(|newest| newest.frame).or_else(|| self.shown.control.kept_frame(at?))
    }

    pub(super) fn run(&self) -> Option<Arc<RunRecord>> {
        self.state().run.clone()
    }

    /// Up to `most` kept records, from frame `frame` on.
    pub(super) fn records(&self, frame: u64, most: usize) -> Vec<Arc<FrameRecord>> {
        self.state().history.since(frame, most)
    }

    /// The last kept records, up to `most`.
    pub(super) fn last_records(&self, most: usize) -> Vec<Arc<FrameRecord>> {
        self.state().history.last(most).cloned().collect()
    }

    /// Names a track; an empty name removes the name.
    ///
    /// # Errors
    /// If too many tracks have names.
    pub(super) fn rename(&self, track: u32, name: &str) -> Result<(), &'static str> {
        let mut state = self.state();
        if name.is_empty() {
            state.names.remove(&track);
        } else if state.names.len() < MOST_NAMES || state.names.contains_key(&track) {
            state.names.insert(track, name.to_owned());
        } else {
            return Err("too many tracks have names: remove one first");
        }
        drop(state);
        self.tell();
        Ok(())
    }

    /// Reserves space in the records for a template of this size; false if there is not enough. A template
    /// that the run refuses keeps its space, because the record of the refusal contains it.
    pub(super) fn has_room_for_template(&self, bytes: usize) -> bool {
        let add = |sum: usize| sum.checked_add(bytes).filter(|&sum| sum <= MOST_TEMPLATE_BYTES);
        self.template_bytes.fetch_update(Ordering::Relaxed, Ordering::Relaxed, add).is_ok()
    }

    pub(super) fn is_followed(&self, track: u32) -> bool {
        self.state()
            .newest
            .as_ref()
            .is_some_and(|newest| newest.record.tracks.iter().any(|followed| followed.id == track))
    }

    /// True if a name was given to a track, which may be gone.
    pub(super) fn has_name(&self, track: u32) -> bool {
        self.state().names.contains_key(&track)
    }

    /// The run has something to do now: it resumes if it waited for that.
    pub(super) fn has_work(&self) {
        if self.waits.swap(false, Ordering::Relaxed) {
            self.shown.control.pause(false);
            self.tell();
        }
    }

    /// Sets the speed relative to the video's times; `None` is as fast as possible.
    pub(super) fn set_speed(&self, speed: Option<f64>) {
        self.shown.control.set_speed(speed);
        self.tell();
    }

    /// Jumps to another place of the video; false if this run cannot. A paused run shows one frame there.
    /// Places outside of the video are its first and its last frame.
    pub(super) fn jump_to(&self, seconds: f64) -> bool {
        if !self.shown.can_jump || self.has_ended() {
            return false;
        }
        // Saturates: the run clamps it to the video.
        self.shown.control.jump_to((seconds * 1e9) as u64);
        if self.shown.control.is_paused() {
            self.shown.control.step();
        }
        self.tell();
        true
    }

    /// Pauses or resumes.
    pub(super) fn pause(&self, pauses: bool) {
        if !pauses {
            self.waits.store(false, Ordering::Relaxed);
        }
        self.shown.control.pause(pauses);
        self.tell();
    }

    /// Steps by one frame.
    pub(super) fn step(&self) {
        self.waits.store(false, Ordering::Relaxed);
        self.shown.control.step();
        self.tell();
    }

    pub(super) fn status(&self) -> Status {
        // Lock order: `viewers` before `state`, as in `count`.
        let viewers = self.viewers().all;
        let state = self.state();
        let Shown { name, control, is_live, every, length_ns, .. } = &self.shown;
        let newest = state.newest.as_ref();
        let record = newest.map(|newest| &newest.record);
        let seconds = |ns: u64| ns as f64 / 1e9;
        let dropped = match (is_live, state.first, record) {
            (true, Some(first), Some(last)) => {
                ((last.frame - first) / every + 1).saturating_sub(state.frames)
            }
            _ => 0,
        };
        let fps = state.marks.front().map_or(0.0, |(at, before)| {
            (state.frames - before) as f64 / at.elapsed().as_secs_f64().max(MARK.as_secs_f64())
        });
        let last = || state.history.last(LATENCIES);
        let run = state.run.as_ref();
        let name_of = if state.ended.is_some() {
            "ended"
        } else if run.is_none() {
            "opening"
        } else if control.is_paused() {
            "paused"
        } else if state.is_stalled {
            "stalled"
        } else {
            "running"
        };
        Status {
            id: self.id,
            name: text::in_one_line(name).into_owned(),
            title: text::in_one_line(&self.shown.title).into_owned(),
            state: name_of,
            is_live: *is_live,
            waits: self.waits.load(Ordering::Relaxed),
            speed: control.speed(),
            can_jump: self.shown.can_jump && state.ended.is_none(),
            width: newest.map(|newest| newest.frame.format.size.width),
            height: newest.map(|newest| newest.frame.format.size.height),
            frame: record.map(|record| record.frame),
            position_s: record.and_then(|record| record.pts_ns).map(seconds),
            start_s: seconds(self.shown.start_ns),
            length_s: length_ns.map(seconds),
            frames: state.frames,
            fps: if matches!(name_of, "running" | "stalled") { fps } else { 0.0 },
            dropped,
            stalls: state.stalls,
            gaps: state.gaps,
            latency_ms: Spread::of(last().map(|record| record.latency_us).collect()),
            capture_ms: Spread::of(last().filter_map(|record| record.capture_us).collect()),
            backend: run.map(|run| run.backend),
            device: run.map(|run| run.device.clone()),
            decoder: run.and_then(|run| run.decoder.clone()),
            search: state.search.clone(),
            viewers,
            names: state.names.clone(),
            zones: state.recent_events.zones(),
            lines: state.recent_events.lines(),
            happened: state.recent_events.last(),
            events: state.log.iter().cloned().collect(),
            error: state.ended.as_ref().and_then(|end| end.error.clone()),
        }
    }

    /// Counts a browser until the returned viewer is dropped.
    pub(super) fn look(self: &Arc<Self>) -> Viewer {
        self.count(|viewers| viewers.all += 1);
        Viewer { video: self.clone(), draws: false }
    }

    fn viewers(&self) -> MutexGuard<'_, Viewers> {
        self.viewers.lock()
    }

    /// Keeps as many frames as needed now.
    pub(super) fn keep_frames(&self) {
        self.count(|_| {});
    }

    /// Changes the counts of browsers and keeps the frames that they need, limited by the memory. Each kept
    /// frame is a copy, so without a browser none are kept.
    fn count(&self, change: impl FnOnce(&mut Viewers)) {
        let mut viewers = self.viewers();
        change(&mut viewers);
        let is_seen = viewers.all > 0 || self.waits.load(Ordering::Relaxed);
        let wanted = match (self.has_ended(), viewers.draw > 0, is_seen) {
            (true, ..) | (_, false, false) => 0,
            (_, true, _) => MOST_KEPT,
            (_, false, true) => KEPT,
        };
        let granted = viewers.reserved.take(wanted, self.bytes_of_frame());
        self.shown.control.keep_frames(self.shown.kept.max(granted));
    }

    fn bytes_of_frame(&self) -> usize {
        let newest = self.state().newest.as_ref().map(|newest| newest.frame.format.bytes());
        newest.unwrap_or(self.shown.frame_bytes)
    }
}

/// A browser that shows a video.
pub(super) struct Viewer {
    video: Arc<Video>,
    draws: bool,
}

impl Viewer {
    /// Drawing a box on a still picture begins or ends in this browser.
    pub(super) fn draw(&mut self, draws: bool) {
        if std::mem::replace(&mut self.draws, draws) == draws {
            return;
        }
        self.video.count(|viewers| if draws { viewers.draw += 1 } else { viewers.draw -= 1 });
    }
}

impl Drop for Viewer {
    fn drop(&mut self) {
        self.draw(false);
        self.video.count(|viewers| viewers.all -= 1);
    }
}

#[cfg(test)]
mod tests {
    use super::super::rehearsal;
    use super::*;

    #[test]
    fn templates_take_so_many_bytes_of_a_runs_records_and_no_more() {
        let video = Video::new(0, rehearsal::shown(), &Arc::default(), None);
        for (bytes, has_room) in [
            (usize::MAX, false),
            (MOST_TEMPLATE_BYTES - 10, true),
            (11, false),
            (10, true),
            (1, false),
            (0, true),
        ] {
            assert_eq!(video.has_room_for_template(bytes), has_room, "{bytes}");
        }
    }
}
