//! The loop: source → backend → tracker → sinks, a few frames in flight, in order, drained at the end.
//!
//! While a slot is free and a frame is *already waiting*, submit it; otherwise complete the oldest frame in
//! flight; wait for a new frame only when nothing is in flight. So work overlaps when there is a backlog, and
//! a live result never waits for the next frame to arrive.
//!
//! The engine runs on its caller's thread and names neither GStreamer nor CUDA.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::backend::{Backend, Device, Findings};
use crate::control::{Control, PAUSE_CHECK, STOP_CHECK, Turnstile};
use crate::error::{Error, Result, catch_panic};
use crate::frame::{Frame, Size, VideoFormat};
use crate::ports::{Delivery, Follow, Found, Next, Sink, Source};
use crate::recycle::Recycler;
use crate::results::{
    Event, FrameRecord, Percentiles, RunRecord, StageSummary, Summary, ThresholdResult, TrafficSummary,
};
use crate::search::Search;
use crate::stats::{Stage, Stats};
use crate::surface::{Surface, Traffic};
use crate::tally::Tally;
use crate::text;
use crate::track_events::{TrackEvent, TrackWatcher};
use auto::Turn;
use orders::{Carried, Refusals};
use relay::{Leg, Relay, Work};

mod auto;
mod devices;
mod orders;
mod relay;

/// A source without a frame for this long has stalled.
const STALL: Duration = Duration::from_secs(2);

/// Maximum number of gaps before the first frame that outputs get. All are counted.
const MAX_GAPS: usize = 64;

/// The work of a device.
#[derive(Debug, Clone, Copy)]
pub struct Purpose<'a> {
    /// The search and the threshold.
    pub search: &'a Search,
    /// The format of the frames.
    pub format: &'a VideoFormat,
    /// True if the thresholded frame itself is needed.
    pub mask: bool,
}

/// Opens a device.
pub type OpenBackend<'a> = dyn Fn(&Purpose<'_>) -> Result<Box<dyn Backend>> + 'a;

/// Opens the device that takes over when one was lost by an error; later, for frames of another format or
/// another search, without one.
pub type OpenSpare<'a> = dyn Fn(&Purpose<'_>, Option<&Error>) -> Result<Box<dyn Backend>> + 'a;

/// The parts of a run.
pub struct Engine<'a> {
    /// The source of frames.
    pub source: &'a mut dyn Source,
    /// The search at the start. Orders change it.
    pub search: Arc<Search>,
    /// Opens the device: at the first frame, and again when frames have another size or the search is
    /// changed.
    pub open_backend: &'a OpenBackend<'a>,
    /// Opens the device that takes over for the rest of the run if that device is lost, with as many slots;
    /// without it the run ends with the error.
    pub open_spare: Option<&'a OpenSpare<'a>>,
    /// Describes the run, once the first frame's format and the device are known.
    pub describe: &'a dyn Fn(&VideoFormat, &Device) -> RunRecord,
    /// Follows the requested targets.
    pub tracker: Box<dyn Follow>,
    /// The outputs, in this order.
    pub sinks: Vec<Box<dyn Sink>>,
    /// Maximum frames, after which the run ends.
    pub max_frames: Option<u64>,
    /// When stopped, it ends the run as if the video had ended: finished frames in flight are completed, the
    /// others abandoned, and outputs closed. During a pause the engine takes no frame from the source: a live
    /// source drops them.
    pub control: Control,
    /// Counts the bytes that the device and the source move.
    pub traffic: Traffic,
}

impl Engine<'_> {
    /// Runs to the end of the video, to `max_frames`, until stopped, or until something fails.
    ///
    /// Sinks are finished on every path, a panic included; the summary is true also after an error. A sink
    /// that fails is finished at once, and the run continues for the others; it then ends with that error.
    pub fn run(mut self) -> (Summary, Result<()>) {
        let none = vec![false; self.sinks.len()];
        let search = self.search.clone();
        let mut run = Run { search, is_closed: none.clone(), has_failed: none, ..Run::default() };
        let mut outcome = catch_panic(|| self.pump(&mut run))
            .unwrap_or_else(|message| Err(Error::Panicked { what: "the engine".into(), message }));
        self.control.orders.end();
        self.control.recent_frames().clear();
        // Frees slots and device memory before the wait for the sinks.
        run.open = None;
        if let Err(Error::Stopped) = outcome {
            // The frames in flight were abandoned, which is no failure: the sinks have all complete frames.
            outcome = Ok(());
        }
        outcome = first_error(run.failed.take().map_or(Ok(()), Err), outcome);
        if outcome.is_ok() && !self.control.is_stopped() {
            for (id, reason) in self.tracker.not_started() {
                tracing::warn!("track {id} never started: {reason}");
            }
            self.report_left(&run);
        }
        let mut summary = self.summary(&run);
        // Results are the first of them: their summary says whether all is complete, and has the error.
        for (index, sink) in self.sinks.iter_mut().enumerate().rev() {
            if !run.is_closed[index] {
                summary.error = outcome.as_ref().err().map(in_words);
                let finished = finish(&mut **sink, &summary);
                run.has_failed[index] |= finished.is_err();
                outcome = first_error(outcome, finished);
            }
            summary.events.extend(sink.events());
        }
        summary.error = outcome.as_ref().err().map(in_words);
        // A sink that failed may have left a part of a file, or the file that was there before.
        let whole = self.sinks.iter().zip(&run.has_failed).filter(|(_, has_failed)| !**has_failed);
        summary.files = whole.flat_map(|(sink, _)| sink.files()).collect();
        (summary, outcome)
    }

    /// Calls all sinks that have not failed. A sink that fails now is closed, so that it keeps what it has.
    ///
    /// # Errors
    /// The first failure, as soon as no output is left.
    fn tell(&mut self, run: &mut Run, call: impl Fn(&mut dyn Sink) -> Result<()>) -> Result<()> {
        for index in 0..self.sinks.len() {
            if run.is_closed[index] {
                continue;
            }
            if let Err(error) = guarded(&mut *self.sinks[index], &call) {
                self.close_failed(run, index, error)?;
            }
        }
        Ok(())
    }

    /// Closes a sink that has failed.
    ///
    /// # Errors
    /// The first failure, if no output is left.
    fn close_failed(&mut self, run: &mut Run, index: usize, error: Error) -> Result<()> {
        (run.is_closed[index], run.has_failed[index]) = (true, true);
        let is_reader_gone = matches!(error, Error::ReaderGone { .. });
        let summary = Summary { error: Some(in_words(&error)), ..self.summary(run) };
        let error = first_error(Err(error), finish(&mut *self.sinks[index], &summary));
        let failed = first_error(run.failed.take().map_or(Ok(()), Err), error);
        if !self.sinks.iter().zip(&run.is_closed).any(|(sink, closed)| sink.is_output() && !closed) {
            return failed;
        }
        run.failed = failed.err();
        if !is_reader_gone {
            let name = text::in_one_line(self.sinks[index].name());
            tracing::warn!("output {name} failed and is closed; the others continue");
        }
        Ok(())
    }

    fn pump(&mut self, run: &mut Run) -> Result<()> {
        for sink in &mut self.sinks {
            sink.belong_to(&self.control);
        }
        self.control.begin(self.tracker.given());
        self.tracker.number_by(self.control.orders.numbers());
        let (zones, lines) = self.control.watched.now();
        run.watcher = TrackWatcher::new(zones).with_lines(lines);
        let mut submitted = 0;
        let mut turnstile = Turnstile::new(&self.control);
        loop {
            let wants_more = !self.control.is_stopped() && self.max_frames.is_none_or(|max| submitted < max);
            if run.is_held && turnstile.is_open() {
                (run.is_held, run.resumed) = (false, Some(Instant::now()));
            }
            let next = match (wants_more, run.has_free_slot()) {
                (false, _) => Ok(Next::End),
                (true, false) => Ok(Next::Pending),
                (true, true) if !turnstile.is_open() => {
                    run.is_held = true;
                    if run.in_flight.is_empty() {
                        std::thread::sleep(PAUSE_CHECK);
                    }
                    Ok(Next::Pending)
                }
                (true, true) if run.in_flight.is_empty() => {
                    let (asked, held_up) = (Instant::now(), self.source.held_up());
                    let next = self.source.wait_next(STOP_CHECK);
                    let held_up = self.source.held_up().saturating_sub(held_up);
                    let waited = asked.elapsed().saturating_sub(held_up);
                    run.waited += waited;
                    run.silent += waited;
                    next
                }
                (true, true) => self.source.try_next(),
            };
            let next = match next {
                Ok(next) => next,
                Err(error) => {
                    // Frames that came before the failure still get their results.
                    self.drain(run)?;
                    return Err(error);
                }
            };
            match next {
                Next::Frame(mut frame) => {
                    turnstile.pass();
                    // A frame that waited while the run paused arrives when the run resumes.
                    frame.meta.arrived =
                        run.resumed.map_or(frame.meta.arrived, |at| at.max(frame.meta.arrived));
                    self.submit(run, frame)?;
                    submitted += 1;
                }
                Next::Gap { away, reason } => {
                    self.drain(run)?;
                    run.gaps += 1;
                    tracing::warn!("the source is back after {:.1} s", away.as_secs_f64());
                    if run.size.is_none() {
                        if run.gaps_before.len() < MAX_GAPS {
                            run.gaps_before.push((away, reason));
                        }
                        continue;
                    }
                    self.note(run, |frame| Event::Gap { frame, away_us: micros(away), reason })?;
                }
                Next::Pending if run.in_flight.is_empty() => self.notice_stall(run)?,
                Next::End if run.in_flight.is_empty() => return Ok(()),
                Next::Pending | Next::End => self.complete(run)?,
            }
        }
    }

    /// Puts a frame into a free slot.
    fn submit(&mut self, run: &mut Run, frame: Frame) -> Result<()> {
        run.paused_before.get_or_insert_with(|| self.control.paused());
        let waited_us = micros(std::mem::take(&mut run.waited));
        run.stats.stage(Stage::Source, waited_us);
        self.end_silence(run)?;
        if run.open.as_ref().is_none_or(|open| open.format != frame.format) {
            self.drain(run)?;
            // Preparing for other frames can take long.
            self.control.check()?;
            self.change(run, &frame)?;
        }
        self.change_search(run, &frame)?;
        self.watch_content(run, &frame)?;
        self.notice_mask(run, frame.meta.index)?;
        run.next_index = frame.meta.index + 1;
        let relay = &mut run.open.as_mut().expect("opened above").relay;
        let work = relay.last().work.clone();
        let submitted = relay.submit(&frame);
        // Also after a failure: `take_over` gives it to the spare device.
        run.in_flight.push_back(Flight { frame, work });
        submitted.or_else(|error| self.take_over(run, error))
    }

    /// Prepares for frames that are unlike those before, with nothing in flight.
    fn change(&mut self, run: &mut Run, frame: &Frame) -> Result<()> {
        let format = &frame.format;
        match &mut run.open {
            // The backend sees only the luma plane, which is the same.
            Some(open)
                if open.format.size == format.size
                    && run.search.expands(&open.format) == run.search.expands(format) =>
            {
                open.format = format.clone();
            }
            _ => {
                if let Err(error) = self.open(run, frame) {
                    // A change of size is no reason to end a run that another device could continue.
                    if !self.lose(run, &error, frame.meta.index) {
                        return Err(error);
                    }
                    self.open(run, frame)?;
                }
            }
        }
        // After a reconnect the format is often the same.
        let before = run.format.replace(format.clone());
        if before.is_none_or(|before| before == *format) {
            return Ok(());
        }
        let VideoFormat { size, pixels, frame_rate: (frames, seconds), .. } = **format;
        tracing::warn!("frame {}: the video is {size} {} from here on", frame.meta.index, pixels.name);
        let frame_rate = if seconds == 0 { 0.0 } else { f64::from(frames) / f64::from(seconds) };
        let (width, height, format) = (size.width, size.height, pixels.name);
        self.note(run, |frame| Event::Caps { frame, width, height, format, frame_rate })
    }

    /// Reports once that no frame has come for a while.
    fn notice_stall(&mut self, run: &mut Run) -> Result<()> {
        let passed = self.source.passed();
        if std::mem::replace(&mut run.passed, passed) != passed {
            self.end_silence(run)?;
        }
        // Before the first frame there is nothing that could stall.
        if run.is_stalled || run.size.is_none() || run.silent < STALL {
            return Ok(());
        }
        run.is_stalled = true;
        run.stalls += 1;
        let waited = run.silent;
        tracing::warn!("no frame for {:.0} s: waiting", waited.as_secs_f64());
        self.note(run, |frame| Event::Stalled { frame, waited_us: micros(waited) })
    }

    /// A frame has come.
    fn end_silence(&mut self, run: &mut Run) -> Result<()> {
        let waited_us = micros(std::mem::take(&mut run.silent));
        if std::mem::take(&mut run.is_stalled) {
            self.note(run, |frame| Event::Resumed { frame, waited_us })?;
        }
        Ok(())
    }

    /// Reports an event to the sinks before the next frame. Earlier frames have been delivered.
    fn note(&mut self, run: &mut Run, event: impl FnOnce(u64) -> Event) -> Result<()> {
        // Sinks begin at the first frame.
        if run.size.is_none() {
            return Ok(());
        }
        let event = event(run.next_index);
        self.tell(run, |sink| sink.note(&event))
    }

    /// Completes all frames in flight.
    fn drain(&mut self, run: &mut Run) -> Result<()> {
        while !run.in_flight.is_empty() {
            self.complete(run)?;
        }
        Ok(())
    }

    /// Completes the oldest frame in flight: waits for its results, runs the tracker, calls the sinks.
    fn complete(&mut self, run: &mut Run) -> Result<()> {
        self.obey(run)?;
        let record = loop {
            match self.decide(run) {
                Ok(record) => break record,
                // The frame is still the oldest in flight, on the spare device now.
                Err(error) => self.take_over(run, error)?,
            }
        };
        let Flight { frame, .. } = run.in_flight.pop_front().expect("called with a frame in flight");
        debug_assert_eq!(record.frame, frame.meta.index, "frames come back in order");

        Self::report_turn(run, record.frame);
        let started = Instant::now();
        let mask = run.findings.mask.take();
        let most = self.control.orders.kept();
        self.control.recent_frames().keep(&frame, most);
        // Checked once, so that every sink gets it or none.
        if self.source.has_discarded(record.frame) {
            return Ok(());
        }
        let delivery = Delivery { frame: &frame, record: &record, mask: mask.as_ref() };
        self.tell(run, |sink| sink.deliver(&delivery))?;
        run.stats.stage(Stage::Sinks, micros(started.elapsed()));
        run.stats.frames += 1;
        run.tally.count(&record);
        run.interpolated += u64::from(record.pts_interpolated);
        // The mask's buffer goes back to the backend here, as soon as the sinks are done with it.
        Ok(())
    }

    /// Waits for the results of the oldest frame in flight, asks the tracker about it, and writes its record.
    /// If the backend fails, tracker and statistics are as if it had not been called. An error of the frame's
    /// own picture comes after them; it ends the run, because such frames exist only without a spare device.
    fn decide(&mut self, run: &mut Run) -> Result<Arc<FrameRecord>> {
        let Run { open, findings, records, stats, redone, paused, in_flight, watcher, happened, .. } = run;
        let Flight { frame, .. } = in_flight.front().expect("called with a frame in flight");
        let circumstances = frame.circumstances;
        let relay = &mut open.as_mut().expect("a frame in flight lies in an open backend").relay;
        let meta = relay.wait_next(findings)?.expect("the backend holds the frame that was submitted");
        // A tracker cannot fail: it continues with the matches it got, and there were none if the device
        // failed.
        let mut seen = Ok(());
        let record = records.share(|record| {
            // The list of an earlier frame, which the backend fills again.
            let used = record.objects.take();
            record.clear();
            (record.frame, record.pts_ns) = (meta.index, meta.pts_ns);
            record.pts_interpolated = circumstances.is_pts_interpolated;
            record.discontinuity = circumstances.is_discontinuity;
            record.picture = self.source.picture(meta.index);
            record.matches.append(&mut findings.matches);
            record.threshold = findings.foreground.map(|foreground| ThresholdResult { foreground });
            record.objects = std::mem::replace(&mut findings.objects, used);
            record.more_objects = findings.more_objects;
            let started = Instant::now();
            let FrameRecord { matches, tracks, detections, objects, .. } = record;
            self.source.detections(meta.index, detections);
            let found = Found { matches, detections, objects: objects.as_deref() };
            self.tracker.step_with(frame, &found, tracks);
            if watcher.counts_something() {
                watcher.write_counts(record, frame.format.size, happened);
            }
            seen = frame.picture.surface().map_or(Ok(()), Surface::check);
            *redone += findings.redone;
            stats.stage(Stage::Upload, findings.upload_us);
            stats.stage(Stage::Standing, findings.standing_us);
            self.traffic.add_device_us(findings.standing_us);
            if !record.tracks.is_empty() {
                let step_us = micros(started.elapsed());
                stats.stage(Stage::Tracker, step_us);
                record.tracker_us = Some(step_us);
            }
            record.latency_us = stats.result(meta.arrived);
            *paused = self.control.paused();
            if let Some(captured) = circumstances.captured {
                let capture_us = micros(captured.elapsed());
                stats.capture.record(capture_us);
                record.capture_us = Some(capture_us);
            }
        });
        seen.map(|()| record)
    }

    fn summary(&self, run: &Run) -> Summary {
        let stats = &run.stats;
        let paused = run.paused.saturating_sub(run.paused_before.unwrap_or_default());
        let seconds = stats.elapsed().saturating_sub(paused).as_secs_f64();
        let mut summary = Summary {
            frames: stats.frames,
            dropped: self.source.dropped(),
            seconds,
            fps: if seconds > 0.0 { stats.frames as f64 / seconds } else { 0.0 },
            latency_us: Percentiles::of(&stats.latency),
            capture_us: (!stats.capture.is_empty()).then(|| Percentiles::of(&stats.capture)),
            stalls: run.stalls,
            gaps: run.gaps,
            damaged: self.source.damaged(),
            interpolated: run.interpolated,
            outputs: self.sinks.iter().filter_map(|sink| sink.status()).collect(),
            stages: Stage::ALL
                .into_iter()
                .map(|stage| {
                    let durations = stats.of(stage);
                    StageSummary {
                        stage: stage.name(),
                        mean_us: durations.mean(),
                        p99_us: durations.percentile(99.0),
                    }
                })
                .collect(),
            interrupted: self.control.is_stopped(),
            redone: run.redone,
            device_lost: run.device_lost,
            traffic: TrafficSummary::of(&self.traffic),
            ..Summary::default()
        };
        run.tally.tell(&mut summary);
        summary
    }
}

/// The state of a run.
#[derive(Default)]
struct Run {
    /// The search from the next frame on.
    search: Arc<Search>,
    open: Option<Open>,
    /// Frames whose slots the backend holds, oldest first. Decoded pictures stay alive here for the sinks: at
    /// most `depth`.
    in_flight: VecDeque<Flight>,
    /// Orders about the search to carry out before the first frame, as the first device could not be opened
    /// for them.
    due: Vec<Carried>,
    /// Orders about the search that are not reported to sinks yet, by their frames.
    carried: VecDeque<Carried>,
    refusals: Refusals,
    /// Frames that were submitted.
    submitted: u64,
    /// `auto` has changed to a pyramid during the run, or tried to.
    has_turned: bool,
    /// The change to a pyramid, until it is reported.
    turn: Option<Turn>,
    findings: Findings,
    records: Recycler<FrameRecord>,
    stats: Stats,
    tally: Tally,
    /// Counts for records.
    watcher: TrackWatcher,
    happened: Vec<TrackEvent>,
    /// Time spent waiting for the frame that comes next.
    waited: Duration,
    /// Time without a new frame, including frames that are skipped.
    silent: Duration,
    /// Skipped frames at the last check.
    passed: u64,
    /// How long the run had paused when the last results were final...
    paused: Duration,
    /// ...and when the first frame was taken.
    paused_before: Option<Duration>,
    /// The run is paused.
    is_held: bool,
    /// The time when the last pause ended, or a step was requested.
    resumed: Option<Instant>,
    /// Size of the frames so far, once there was one.
    size: Option<Size>,
    /// Searches that were done again.
    redone: u64,
    /// The first frame that the spare device did.
    device_lost: Option<u64>,
    /// The format of the newest frames.
    format: Option<Arc<VideoFormat>>,
    /// Number of the frame that comes next, if none is dropped.
    next_index: u64,
    /// True if no frame has come for a while, and that was reported.
    is_stalled: bool,
    stalls: u64,
    gaps: u64,
    /// The first [`MAX_GAPS`] gaps before the first frame. They are reported when outputs have begun.
    gaps_before: Vec<(Duration, String)>,
    interpolated: u64,
    /// True for sinks that failed and are finished already.
    is_closed: Vec<bool>,
    /// True for sinks that failed, finished or not.
    has_failed: Vec<bool>,
    /// The error of the first of them.
    failed: Option<Error>,
}

/// The devices that are open, and for what frames.
struct Open {
    relay: Relay,
    format: Arc<VideoFormat>,
}

/// A frame in flight, and the work on it.
struct Flight {
    frame: Frame,
    work: Work,
}

impl Run {
    fn has_free_slot(&self) -> bool {
        self.open.as_ref().is_none_or(|open| self.in_flight.len() < open.relay.last().backend.depth())
    }

    /// Frames go into this device from now on.
    fn hand_over(&mut self, to: Leg) {
        self.open.as_mut().expect("called while a device is open").relay.hand_over(to);
    }
}

/// Calls a sink; a panic in it is its failure.
fn guarded(sink: &mut dyn Sink, call: impl FnOnce(&mut dyn Sink) -> Result<()>) -> Result<()> {
    catch_panic(|| call(sink))
        .unwrap_or_else(|message| Err(Error::Panicked { what: format!("output {}", sink.name()), message }))
}

fn finish(sink: &mut dyn Sink, summary: &Summary) -> Result<()> {
    guarded(sink, |sink| sink.finish(summary))
}

/// Returns the first error and logs the later one. A reader that is gone counts only if all else is well.
fn first_error(first: Result<()>, later: Result<()>) -> Result<()> {
    match (&first, later) {
        (Ok(()), later) => return later,
        (Err(_), Ok(()) | Err(Error::ReaderGone { .. })) => {}
        (Err(Error::ReaderGone { .. }), Err(later)) => return Err(later),
        (Err(_), Err(later)) => tracing::error!("{later}"),
    }
    first
}

/// An error in the form of a results file.
fn in_words(error: &Error) -> String {
    text::for_people(&error.to_string())
}

fn micros(duration: Duration) -> u64 {
    duration.as_micros() as u64
}
