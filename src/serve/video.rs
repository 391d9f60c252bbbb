//! What is known of a run now: its newest frame, its last records, counts, and the names that tracks were
//! given on the page.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use serde::Serialize;
use tokio::sync::watch;

use crate::frame::{Frame, Picture, VideoFormat};
use crate::orders::Order;
use crate::ports::Delivery;
use crate::results::{Event, FrameRecord, RunRecord, Summary};
use crate::text;

use super::feed::{Feed, Look};
use super::folder::Folder;
use super::history::History;
use super::memory::{Memory, Part};
use super::searched::Searched;
use super::{KEPT, Shown};

/// Most frames that are kept while a box is drawn, so that it can be drawn on a picture that stands still for
/// a while: eight seconds.
const MOST_KEPT: usize = 240;

/// Events that are told.
const MOST_EVENTS: usize = 20;

/// Names that tracks are given, at most, and how long each is.
const MOST_NAMES: usize = 1024;
pub(super) const MOST_LETTERS: usize = 64;

/// Frames a second are counted over so many marks of this distance.
const MARKS: usize = 8;
const MARK: Duration = Duration::from_millis(250);

/// Latencies are told of so many of the last frames.
const LATENCIES: usize = 120;

/// A run.
pub(super) struct Video {
    pub(super) id: usize,
    pub(super) shown: Shown,
    state: Mutex<State>,
    /// Counts up with each frame.
    frames: watch::Sender<u64>,
    /// Counts up whenever something else has changed.
    changes: watch::Sender<u64>,
    viewers: Mutex<Viewers>,
    /// Until the first box was drawn, if it waits for that.
    waits: AtomicBool,
    /// How many kinds of thresholded pictures are looked at.
    pub(super) masks: AtomicUsize,
    feeds: Mutex<HashMap<Look, Arc<Feed>>>,
    /// What is to be hidden in what is told of it.
    folder: Option<Arc<Folder>>,
}

/// A frame with what was found in it.
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
    search: Searched,
    names: BTreeMap<u32, String>,
    events: VecDeque<Told>,
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

/// How many look.
struct Viewers {
    all: usize,
    /// Those who draw a box.
    draw: usize,
    /// Memory for the frames that they need.
    part: Part,
}

/// Something that happened, in words.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct Told {
    /// The frame before which it happened.
    frame: u64,
    what: String,
}

/// What is told of a run: `Video` in `openapi.json`.
#[derive(Debug, Serialize)]
pub(super) struct Status {
    id: usize,
    name: String,
    state: &'static str,
    is_live: bool,
    waits: bool,
    width: Option<usize>,
    height: Option<usize>,
    frame: Option<u64>,
    position_s: Option<f64>,
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
    search: Searched,
    viewers: usize,
    names: BTreeMap<u32, String>,
    events: Vec<Told>,
    error: Option<String>,
}

/// Middle and tail of durations, in milliseconds.
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
    pub(super) fn new(id: usize, shown: Shown, memory: &Arc<Memory>, folder: Option<Arc<Folder>>) -> Self {
        Self {
            id,
            folder,
            waits: AtomicBool::new(shown.waits),
            masks: AtomicUsize::new(0),
            state: Mutex::new(State { search: Searched::new(shown.limits, shown.roi), ..State::default() }),
            shown,
            frames: watch::Sender::new(0),
            changes: watch::Sender::new(0),
            viewers: Mutex::new(Viewers { all: 0, draw: 0, part: Part::none_of(memory) }),
            feeds: Mutex::default(),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // It is whole at every moment.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The pictures that are looked at.
    pub(super) fn feeds(&self) -> MutexGuard<'_, HashMap<Look, Arc<Feed>>> {
        self.feeds.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What may be told of it to whoever looks. What is hidden goes first: escaped, it would not be found.
    fn for_people(&self, text: &str) -> String {
        match &self.folder {
            Some(folder) => text::for_people(&folder.hide(text)),
            None => text::for_people(text),
        }
    }

    /// Hears of each frame from now on.
    pub(super) fn frames(&self) -> watch::Receiver<u64> {
        self.frames.subscribe()
    }

    /// Hears of what else changes from now on.
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
        state.search.begin(&run);
        state.run = Some(Arc::new(run));
        drop(state);
        if self.waits.load(Ordering::Relaxed) {
            // The first frame is on its way, and none after it.
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
        // The picture before goes back to its decoder without the lock.
        let before = state.newest.replace(newest);
        drop(state);
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
                (frame, format!("nothing has come for {:.1} s", seconds(waited_us)))
            }
            Event::Resumed { frame, waited_us } => {
                state.is_stalled = false;
                (frame, format!("goes on after {:.1} s", seconds(waited_us)))
            }
            Event::Gap { frame, away_us, reason } => {
                state.gaps += 1;
                let reason = self.for_people(reason);
                (frame, format!("connected again after {:.1} s: {reason}", seconds(away_us)))
            }
            Event::Caps { frame, width, height, format, .. } => {
                (frame, format!("frames are {width}x{height} {format} from here on"))
            }
            Event::Control { frame, order, refused: None } => {
                if let Order::Change(change) = order {
                    state.search.change(change);
                }
                (frame, order.to_string())
            }
            Event::Control { frame, order, refused: Some(reason) } => {
                (frame, format!("refused to {order}: {}", self.for_people(reason)))
            }
        };
        state.events.push_back(Told { frame: *frame, what });
        if state.events.len() > MOST_EVENTS {
            state.events.pop_front();
        }
        drop(state);
        self.tell();
    }

    pub(super) fn finish(&self, summary: Option<&Summary>) {
        let mut state = self.state();
        if state.ended.is_none() {
            let error = summary.and_then(|summary| summary.error.as_deref());
            state.ended = Some(End { error: error.map(|error| self.for_people(error)) });
            // What lies on a device goes with the device.
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

    /// A frame as it was decoded: the newest, or that of number `at` if it is the newest or kept.
    pub(super) fn frame(&self, at: Option<u64>) -> Option<Frame> {
        let newest = self.newest().filter(|newest| at.is_none_or(|at| at == newest.record.frame));
        newest.map(|newest| newest.frame).or_else(|| self.shown.control.kept_frame(at?))
    }

    pub(super) fn run(&self) -> Option<Arc<RunRecord>> {
        self.state().run.clone()
    }

    /// Up to `most` records of frames from number `frame` on, of those that are kept.
    pub(super) fn records(&self, frame: u64, most: usize) -> Vec<Arc<FrameRecord>> {
        self.state().history.since(frame, most)
    }

    /// The last records that are kept, up to `most`.
    pub(super) fn last_records(&self, most: usize) -> Vec<Arc<FrameRecord>> {
        self.state().history.last(most).cloned().collect()
    }

    /// A track is called so from now on; an empty name is none.
    ///
    /// # Errors
    /// If too many have names already.
    pub(super) fn rename(&self, track: u32, name: &str) -> Result<(), &'static str> {
        let mut state = self.state();
        if name.is_empty() {
            state.names.remove(&track);
        } else if state.names.len() < MOST_NAMES || state.names.contains_key(&track) {
            state.names.insert(track, name.to_owned());
        } else {
            return Err("too many tracks have names");
        }
        drop(state);
        self.tell();
        Ok(())
    }

    pub(super) fn is_followed(&self, track: u32) -> bool {
        self.state()
            .newest
            .as_ref()
            .is_some_and(|newest| newest.record.tracks.iter().any(|followed| followed.id == track))
    }

    /// Something is to be done: whatever waited for it goes on.
    pub(super) fn has_work(&self) {
        if self.waits.swap(false, Ordering::Relaxed) {
            self.shown.control.pause(false);
            self.tell();
        }
    }

    /// Pauses or goes on.
    pub(super) fn pause(&self, pauses: bool) {
        if !pauses {
            self.waits.store(false, Ordering::Relaxed);
        }
        self.shown.control.pause(pauses);
        self.tell();
    }

    /// Goes on by one frame.
    pub(super) fn step(&self) {
        self.waits.store(false, Ordering::Relaxed);
        self.shown.control.step();
        self.tell();
    }

    pub(super) fn status(&self) -> Status {
        // Before the lock that is taken after that one elsewhere.
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
            state: name_of,
            is_live: *is_live,
            waits: self.waits.load(Ordering::Relaxed),
            width: newest.map(|newest| newest.frame.format.size.width),
            height: newest.map(|newest| newest.frame.format.size.height),
            frame: record.map(|record| record.frame),
            position_s: record.and_then(|record| record.pts_ns).map(seconds),
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
            events: state.events.iter().cloned().collect(),
            error: state.ended.as_ref().and_then(|end| end.error.clone()),
        }
    }

    /// Somebody looks, as long as what comes back lives.
    pub(super) fn look(self: &Arc<Self>) -> Viewer {
        self.count(|viewers| viewers.all += 1);
        Viewer { video: self.clone(), draws: false }
    }

    fn viewers(&self) -> MutexGuard<'_, Viewers> {
        self.viewers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps as many frames as are needed now.
    pub(super) fn keep_frames(&self) {
        self.count(|_| {});
    }

    /// Counts who looks, and keeps as many frames as they need and as there is memory for. Each is a copy, so
    /// none are kept for nobody.
    fn count(&self, change: impl FnOnce(&mut Viewers)) {
        let mut viewers = self.viewers();
        change(&mut viewers);
        let is_seen = viewers.all > 0 || self.waits.load(Ordering::Relaxed);
        let wanted = match (self.has_ended(), viewers.draw > 0, is_seen) {
            (true, ..) | (_, false, false) => 0,
            (_, true, _) => MOST_KEPT,
            (_, false, true) => KEPT,
        };
        let granted = viewers.part.take(wanted, self.bytes_of_frame());
        self.shown.control.keep_frames(self.shown.kept.max(granted));
    }

    fn bytes_of_frame(&self) -> usize {
        let newest = self.state().newest.as_ref().map(|newest| newest.frame.format.bytes());
        newest.unwrap_or(self.shown.frame_bytes)
    }
}

/// Somebody who looks at a video.
pub(super) struct Viewer {
    video: Arc<Video>,
    draws: bool,
}

impl Viewer {
    /// He draws a box, on a picture that stands still for him, or has done so.
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
