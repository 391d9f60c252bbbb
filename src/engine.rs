//! The loop: source → backend → tracker → sinks, a few frames in flight, in order, drained at the end.
//!
//! While a slot is free and a frame is *already waiting*, submit it; otherwise complete the oldest frame in flight; wait for
//! a new frame only when nothing is in flight. So work overlaps when there is a backlog, and a live result never waits for
//! the next frame to arrive.
//!
//! The engine runs on its caller's thread and names neither GStreamer nor CUDA.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::backend::{Backend, Device, Findings};
use crate::error::{DeviceFault, Error, Result, catch_panic};
use crate::frame::{Frame, Size, VideoFormat};
use crate::ports::{Delivery, Next, Sink, Source};
use crate::recycle::Recycler;
use crate::results::{FrameRecord, Percentiles, RunRecord, StageSummary, Summary, ThresholdResult};
use crate::stats::{Stage, Stats};
use crate::tracker::Tracker;

/// How long to wait for a frame before looking whether the run was stopped.
const STOP_CHECK: Duration = Duration::from_millis(50);

/// Opens a device for frames of a format.
pub type OpenBackend<'a> = dyn Fn(&VideoFormat) -> Result<Box<dyn Backend>> + 'a;

/// What a run is made of.
pub struct Engine<'a> {
    /// Where frames come from.
    pub source: &'a mut dyn Source,
    /// Opens the device for frames of a format: at the first frame, and again when their size changes.
    pub open_backend: &'a OpenBackend<'a>,
    /// Opens what takes over for the rest of the run if that device is lost, with as many slots; without it the run ends
    /// with the error.
    pub open_spare: Option<&'a OpenBackend<'a>>,
    /// Describes the run, once the first frame's format and the device are known.
    pub describe: &'a dyn Fn(&VideoFormat, &Device) -> RunRecord,
    /// Follows what it was asked to.
    pub tracker: Tracker,
    /// Where results go, in this order.
    pub sinks: Vec<Box<dyn Sink>>,
    /// Ends the run after so many frames.
    pub max_frames: Option<u64>,
    /// Set from outside, it ends the run as if the video had ended: frames in flight are completed, outputs closed.
    pub stop: &'a AtomicBool,
}

impl Engine<'_> {
    /// Runs to the end of the video, to `max_frames`, until stopped, or until something fails.
    ///
    /// Sinks are finished on every path, a panic included; the summary is true also after an error. A sink that fails is
    /// finished at once, and the run goes on for the others: its error is what the run ends with.
    pub fn run(mut self) -> (Summary, Result<()>) {
        let mut run = Run { is_closed: vec![false; self.sinks.len()], ..Run::default() };
        let mut outcome = catch_panic(|| self.pump(&mut run))
            .unwrap_or_else(|message| Err(Error::Panicked { what: "the engine".into(), message }));
        // Slots and device memory go before the sinks are waited for.
        run.open = None;
        outcome = first_error(run.failed.take().map_or(Ok(()), Err), outcome);
        if outcome.is_ok() && !self.stop.load(Ordering::Relaxed) {
            for (id, spec) in self.tracker.not_started() {
                tracing::warn!("track {id} never started: the video ended before frame {}", spec.frame);
            }
        }
        let summary = self.summary(&run);
        for (sink, _) in self.sinks.iter_mut().zip(&run.is_closed).filter(|(_, is_closed)| !**is_closed) {
            outcome = first_error(outcome, finish(&mut **sink, &summary));
        }
        (summary, outcome)
    }

    /// Tells all sinks that have not failed. One that fails now is closed, so that it keeps what it has.
    ///
    /// # Errors
    /// The first failure, as soon as no output is left.
    fn tell(&mut self, run: &mut Run, call: impl Fn(&mut dyn Sink) -> Result<()>) -> Result<()> {
        for index in 0..self.sinks.len() {
            if run.is_closed[index] {
                continue;
            }
            let Err(error) = guarded(&mut *self.sinks[index], &call) else { continue };
            run.is_closed[index] = true;
            let summary = self.summary(run);
            let error = first_error(Err(error), finish(&mut *self.sinks[index], &summary));
            let failed = first_error(run.failed.take().map_or(Ok(()), Err), error);
            let is_left = |(sink, is_closed): (&Box<dyn Sink>, &bool)| sink.is_output() && !is_closed;
            if !self.sinks.iter().zip(&run.is_closed).any(is_left) {
                return failed;
            }
            run.failed = failed.err();
            tracing::warn!("output {} failed and is closed, the others go on", self.sinks[index].name());
        }
        Ok(())
    }

    fn pump(&mut self, run: &mut Run) -> Result<()> {
        let mut submitted = 0;
        loop {
            let wants_more =
                !self.stop.load(Ordering::Relaxed) && self.max_frames.is_none_or(|max| submitted < max);
            let next = match (wants_more, run.has_free_slot()) {
                (false, _) => Ok(Next::End),
                (true, false) => Ok(Next::Pending),
                (true, true) if run.in_flight.is_empty() => {
                    let asked = Instant::now();
                    let next = self.source.wait_next(STOP_CHECK);
                    run.waited += asked.elapsed();
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
                Next::Frame(frame) => {
                    self.submit(run, frame)?;
                    submitted += 1;
                }
                Next::Pending if run.in_flight.is_empty() => {}
                Next::End if run.in_flight.is_empty() => return Ok(()),
                Next::Pending | Next::End => self.complete(run)?,
            }
        }
    }

    /// Puts a frame into a free slot.
    fn submit(&mut self, run: &mut Run, frame: Frame) -> Result<()> {
        run.stats.stage(Stage::Source, micros(std::mem::take(&mut run.waited)));
        if run.open.as_ref().is_none_or(|open| open.format.size != frame.format.size) {
            self.drain(run)?;
            if let Err(error) = self.open(run, &frame.format) {
                // A change of size is no reason to end a run that another device could go on with.
                if !self.lose(run, &error, frame.meta.index) {
                    return Err(error);
                }
                self.open(run, &frame.format)?;
            }
        }
        let open = run.open.as_mut().expect("opened above");
        let submitted = open.submit(&frame);
        run.in_flight.push_back(frame);
        submitted.or_else(|error| self.take_over(run, error))
    }

    fn open(&mut self, run: &mut Run, format: &Arc<VideoFormat>) -> Result<()> {
        run.open = None;
        let open_backend = match self.open_spare {
            Some(open_spare) if run.device_lost.is_some() => open_spare,
            _ => self.open_backend,
        };
        let backend = open_backend(format)?;
        match run.size {
            None => {
                self.tracker.check(format.size)?;
                let record = (self.describe)(format, &backend.describe());
                for sink in &mut self.sinks {
                    guarded(&mut **sink, |sink| sink.begin(&record, format))?;
                }
            }
            Some(before) => {
                tracing::info!("frame size changed from {before} to {}", format.size);
                self.tracker.rescale(before, format.size);
            }
        }
        run.size = Some(format.size);
        run.open = Some(Open { backend, format: format.clone() });
        Ok(())
    }

    /// The backend failed. If that means that its device is lost and there is a spare one, that one gets the frames in
    /// flight, whose pictures are still held, and the run goes on; otherwise the error comes back.
    fn take_over(&mut self, run: &mut Run, error: Error) -> Result<()> {
        let first = run.in_flight.front().expect("backends fail while they work on a frame").meta.index;
        if !self.lose(run, &error, first) {
            return Err(error);
        }
        let Open { backend: lost, format } = run.open.take().expect("it failed, so it was open");
        // What it still holds of the host's memory is free before the spare one asks for its own.
        drop(lost);
        let open_spare = self.open_spare.expect("there is one, or nothing would be lost");
        let mut open = Open { backend: open_spare(&format)?, format };
        for frame in &run.in_flight {
            open.submit(frame)?;
        }
        run.open = Some(open);
        Ok(())
    }

    /// True if the device is lost and a spare one is to do the work from frame `first` on, which is said once.
    fn lose(&self, run: &mut Run, error: &Error, first: u64) -> bool {
        // Before the first frame there is no run that could go on.
        let has_begun = run.size.is_some();
        let is_lost =
            has_begun && self.open_spare.is_some() && error.is_device_lost() && run.device_lost.is_none();
        if is_lost {
            // A fault's own words can end with the remedy that is being applied here.
            let reason = match error {
                Error::Backend { fault: DeviceFault::Lost { reason }, .. } => reason.clone(),
                error => error.to_string(),
            };
            tracing::warn!(
                "the device was lost, the spare one does the work from frame {first} on: {reason}"
            );
            run.device_lost = Some(first);
        }
        is_lost
    }

    /// Completes all frames in flight.
    fn drain(&mut self, run: &mut Run) -> Result<()> {
        while !run.in_flight.is_empty() {
            self.complete(run)?;
        }
        Ok(())
    }

    /// Completes the oldest frame in flight: waits for its results, asks the tracker, tells the sinks.
    fn complete(&mut self, run: &mut Run) -> Result<()> {
        let record = loop {
            match self.decide(run) {
                Ok(record) => break record,
                // The frame is still the oldest in flight, on the spare device now.
                Err(error) => self.take_over(run, error)?,
            }
        };
        let frame = run.in_flight.pop_front().expect("called with a frame in flight");
        debug_assert_eq!(record.frame, frame.meta.index, "frames come back in order");

        let started = Instant::now();
        let mask = run.findings.mask.take();
        let delivery = Delivery { frame: &frame, record: &record, mask: mask.as_ref() };
        self.tell(run, |sink| sink.deliver(&delivery))?;
        run.stats.stage(Stage::Sinks, micros(started.elapsed()));
        run.stats.frames += 1;
        // The mask's buffer goes back to the backend here, as soon as the sinks are done with it.
        Ok(())
    }

    /// Waits for the results of the oldest frame in flight, asks the tracker about it, and writes its record. If the backend
    /// fails, tracker and statistics are as if it had not been asked.
    fn decide(&mut self, run: &mut Run) -> Result<Arc<FrameRecord>> {
        let Run { open, in_flight, findings, records, stats, redone, .. } = run;
        let frame = in_flight.front().expect("called with a frame in flight");
        let backend = &mut *open.as_mut().expect("a frame in flight lies in an open backend").backend;
        let (slot, meta) =
            backend.wait_next(findings)?.expect("the backend holds the frame that was submitted");
        let mut outcome = Ok(());
        let record = records.share(|record| {
            record.clear();
            (record.frame, record.pts_ns) = (meta.index, meta.pts_ns);
            record.matches.append(&mut findings.matches);
            record.threshold = findings.foreground.map(|foreground| ThresholdResult { foreground });
            let started = Instant::now();
            outcome = self.tracker.step(frame, &mut record.tracks);
            if outcome.is_err() {
                return;
            }
            *redone += findings.redone;
            stats.stage(Stage::Upload, findings.upload_us);
            stats.stage(Stage::Standing, findings.standing_us);
            if !record.tracks.is_empty() {
                let step_us = micros(started.elapsed());
                stats.stage(Stage::Tracker, step_us);
                record.tracker_us = Some(findings.upload_us + step_us);
            }
            record.latency_us = stats.result(meta.arrived);
        });
        outcome?;
        backend.release(slot);
        Ok(record)
    }

    fn summary(&self, run: &Run) -> Summary {
        let stats = &run.stats;
        let seconds = stats.elapsed().as_secs_f64();
        let latency = &stats.latency;
        Summary {
            frames: stats.frames,
            dropped: self.source.dropped(),
            seconds,
            fps: if seconds > 0.0 { stats.frames as f64 / seconds } else { 0.0 },
            latency_us: Percentiles {
                p50: latency.percentile(50.0),
                p95: latency.percentile(95.0),
                p99: latency.percentile(99.0),
                max: latency.max(),
            },
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
            interrupted: self.stop.load(Ordering::Relaxed),
            redone: run.redone,
            device_lost: run.device_lost,
        }
    }
}

/// What changes while a run goes on.
#[derive(Default)]
struct Run {
    open: Option<Open>,
    /// Frames whose slots the backend holds, oldest first. Decoded pictures stay alive here for the sinks: at most `depth`.
    in_flight: VecDeque<Frame>,
    findings: Findings,
    records: Recycler<FrameRecord>,
    stats: Stats,
    /// Time spent waiting for the frame that comes next.
    waited: Duration,
    /// Size of the frames so far, once there was one.
    size: Option<Size>,
    /// Searches that were done again.
    redone: u64,
    /// The first frame that the spare device did.
    device_lost: Option<u64>,
    /// Which sinks have failed and are finished already.
    is_closed: Vec<bool>,
    /// What the first of them failed with.
    failed: Option<Error>,
}

struct Open {
    backend: Box<dyn Backend>,
    format: Arc<VideoFormat>,
}

impl Open {
    fn submit(&mut self, frame: &Frame) -> Result<()> {
        self.backend.submit(frame.meta, &mut |mut plane| plane.copy_from(frame.luma()))
    }
}

impl Run {
    fn has_free_slot(&self) -> bool {
        self.open.as_ref().is_none_or(|open| self.in_flight.len() < open.backend.depth())
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

/// What went wrong first; what went wrong later is logged.
fn first_error(first: Result<()>, later: Result<()>) -> Result<()> {
    match (&first, later) {
        (Ok(()), later) => return later,
        (Err(_), Err(later)) => tracing::error!("{later}"),
        (Err(_), Ok(())) => {}
    }
    first
}

fn micros(duration: Duration) -> u64 {
    duration.as_micros() as u64
}
