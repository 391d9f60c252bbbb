//! One run of lockon's engine, from the first frame to the end of the stream, on the element's own thread.
//!
//! The engine is plugged between [`Frames`], which takes frames out of the line, and its sinks: the results
//! files, and after them [`ResultsToLine`], which notes results there. Ready items are pushed when the engine
//! requests the next frame: by then it has released the last one, so that the buffer is the only one of its
//! kind again, and drawing on it or adding metadata copies nothing.

use std::cell::Cell;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use gst::prelude::*;
use gst::subclass::prelude::*;
use lockon_core::control::Control;
use lockon_core::engine::Purpose;
use lockon_core::error::{Error, Result};
use lockon_core::frame::{Circumstances, Frame, FrameMeta, VideoFormat};
use lockon_core::orders::Order;
use lockon_core::output;
use lockon_core::ports::{Delivery, Next, Sink, Source};
use lockon_core::results::{Detection, Event, RunRecord, Summary};
use lockon_gst::cuda::Surfaces;
use lockon_gst::detections::{Detected, DetectionFilter};
use lockon_gst::source::{Mapper, PtsInterpolator};
use lockon_run::backend::Options;
use lockon_run::devices::Devices;
use lockon_run::setup::Ends;

use super::line::{Arrival, Layout, Outcome, Step};
use super::settings::Device;

/// Runs the engine until the stream ends, the element is stopped, downstream takes no more, or something
/// fails.
pub(super) fn run(element: &super::Lockon, device: &Device, input: &str, control: &Control) -> Result<()> {
    // Files come first: the results of a pushed frame have been written.
    let mut sinks = Vec::<Box<dyn Sink>>::new();
    for path in &device.results {
        sinks.push(Box::new(ResultsFile { element: element.clone(), file: Some(output::open(path)?) }));
    }
    sinks.push(Box::new(ResultsToLine { element: element.clone() }));
    // Before a signal can come: their numbers are in use.
    control.repeat(device.orders.clone());
    let _ended = Ended(element);
    let setup = element.imp().work().begin(control)?;
    let depth = element.imp().depth();
    let options = Options { control: control.clone(), depth, ..device.options.clone() };
    let devices = Devices::new(options, device.on_loss, false)?;
    // Frames that wait for the device of a change stay longer; frames of a new size wait once.
    let size = Cell::new(None);
    let open = |options: &Options, purpose: &Purpose<'_>| {
        let open = || lockon_run::setup::open(options, purpose);
        if size.get() == Some(purpose.format.size) {
            return open();
        }
        let opened = element.imp().excluded.during(open)?;
        size.set(Some(purpose.format.size));
        Ok(opened)
    };
    let ends = Ends {
        source: &mut Frames::of(element, device.detections.clone()),
        sinks,
        describe: &|format, device| setup.describe(input, None, format, device),
        max_frames: None,
        control: control.clone(),
    };
    let (summary, outcome) = setup.run(&devices, &open, ends);
    gst::info!(
        super::CAT,
        obj = element,
        "{} frames, {} dropped, {:.2} frames/s, latency {} us (median)",
        summary.frames,
        summary.dropped,
        summary.fps,
        summary.latency_us.p50
    );
    outcome
}

/// Notes the end of the run, also after a panic.
struct Ended<'a>(&'a super::Lockon);

impl Drop for Ended<'_> {
    fn drop(&mut self) {
        let refused = self.0.imp().work().end();
        for refused in refused {
            let error = refused.error.to_string();
            if !self.0.imp().take_back(refused) {
                self.0.imp().refuse(&error);
            }
        }
    }
}

/// The engine's source: the line.
struct Frames {
    element: super::Lockon,
    times: PtsInterpolator,
    mapper: Mapper,
    detected: Detected,
    /// Time spent on pushing, or in PAUSED, where no frame comes.
    held_up: Duration,
}

impl Frames {
    fn of(element: &super::Lockon, wanted: Option<DetectionFilter>) -> Self {
        Self {
            element: element.clone(),
            times: PtsInterpolator::default(),
            mapper: Mapper::default(),
            detected: Detected::new(wanted),
            held_up: Duration::ZERO,
        }
    }

    fn next(&mut self, deadline: Option<Instant>) -> Result<Next> {
        let imp = self.element.imp();
        loop {
            let (asked, was_playing) = (Instant::now(), imp.is_playing());
            let step = imp.line.next(deadline);
            if !(was_playing && imp.is_playing()) {
                self.held_up += asked.elapsed();
            }
            match step {
                Step::Push(departure) => {
                    let started = Instant::now();
                    imp.line.pushed(imp.depart(departure));
                    self.held_up += started.elapsed();
                }
                Step::Search(arrival) => {
                    // Controlled properties count for this frame: it is the next to be submitted.
                    if let Some(time) =
                        arrival.times.stream_time.filter(|_| self.element.has_active_control_bindings())
                    {
                        let _ = self.element.sync_values(time);
                        // Needed also while the application holds back property notifications.
                        imp.obey_bindings();
                    }
                    self.detected.see(arrival.index, &arrival.buffer, arrival.layout.format.size);
                    return self.frame(arrival, &imp.surfaces()).map(Next::Frame);
                }
                Step::Pending => return Ok(Next::Pending),
                Step::End => return Ok(Next::End),
            }
        }
    }

    fn frame(&mut self, arrival: Arrival, surfaces: &Surfaces) -> Result<Frame> {
        let Arrival { index, at, buffer, layout, times, .. } = arrival;
        let own = times.stream_time.map(gst::ClockTime::nseconds);
        let (pts_ns, is_pts_interpolated) = self.times.next(own, layout.format.frame_rate);
        let duration_ns = times.duration.map(gst::ClockTime::nseconds);
        let meta = FrameMeta { index, pts_ns, duration_ns, arrived: at };
        let damage = gst::BufferFlags::DISCONT | gst::BufferFlags::CORRUPTED;
        let is_discontinuity = index > 0 && buffer.flags().intersects(damage);
        let circumstances =
            Circumstances { is_discontinuity, is_pts_interpolated, ..Circumstances::default() };
        let Layout { info, format, .. } = &*layout;
        let on_device = surfaces.adopt(&buffer, info, format)?;
        let picture = on_device.or_else(|| self.mapper.picture(buffer, info, format));
        let picture = picture.ok_or_else(|| Error::Pipeline {
            element: "sink".into(),
            message: format!("frame {index} is not laid out as its caps say"),
            debug: String::new(),
        })?;
        Ok(Frame { meta, circumstances, format: layout.format.clone(), picture })
    }
}

impl Source for Frames {
    fn try_next(&mut self) -> Result<Next> {
        self.next(None)
    }

    fn wait_next(&mut self, timeout: Duration) -> Result<Next> {
        self.next(Some(Instant::now() + timeout))
    }

    fn dropped(&self) -> u64 {
        self.element.imp().dropped.load(Ordering::Relaxed)
    }

    fn held_up(&self) -> Duration {
        self.held_up
    }

    fn detections(&mut self, frame: u64, found: &mut Vec<Detection>) {
        self.detected.take(frame, found);
    }

    fn has_discarded(&self, frame: u64) -> bool {
        !self.element.imp().line.wants(frame)
    }
}

/// A results file. If it fails, the video and the other files continue: it is closed, and a warning is posted
/// on the bus at once.
struct ResultsFile {
    element: super::Lockon,
    /// None once it has failed.
    file: Option<Box<dyn Sink>>,
}

impl ResultsFile {
    fn attempt(&mut self, call: impl FnOnce(&mut dyn Sink) -> Result<()>) {
        let Some(file) = &mut self.file else { return };
        if let Err(error) = call(&mut **file) {
            self.file = None;
            self.element.imp().warn_of_output(&error);
        }
    }
}

impl Sink for ResultsFile {
    fn name(&self) -> &str {
        self.file.as_ref().map_or("closed", |file| file.name())
    }

    fn begin(&mut self, run: &RunRecord, format: &VideoFormat) -> Result<()> {
        // A file that cannot even begin is an error, before any frame has passed.
        self.file.as_mut().map_or(Ok(()), |file| file.begin(run, format))
    }

    fn deliver(&mut self, delivery: &Delivery<'_>) -> Result<()> {
        self.attempt(|file| file.deliver(delivery));
        Ok(())
    }

    fn wants_mask(&self) -> bool {
        self.file.as_ref().is_some_and(|file| file.wants_mask())
    }

    fn note(&mut self, event: &Event) -> Result<()> {
        self.attempt(|file| file.note(event));
        Ok(())
    }

    fn finish(&mut self, summary: &Summary) -> Result<()> {
        self.attempt(|file| file.finish(summary));
        Ok(())
    }
}

/// The line, in which results wait for their turn.
struct ResultsToLine {
    element: super::Lockon,
}

impl Sink for ResultsToLine {
    fn name(&self) -> &'static str {
        "src"
    }

    fn deliver(&mut self, delivery: &Delivery<'_>) -> Result<()> {
        // A file may want the mask where the frames do not.
        let mask = delivery.mask.filter(|_| self.wants_mask()).cloned();
        let outcome = Outcome { record: delivery.record.clone(), mask };
        self.element.imp().line.found(delivery.record.frame, outcome);
        Ok(())
    }

    fn wants_mask(&self) -> bool {
        self.element.imp().wants_mask()
    }

    fn note(&mut self, event: &Event) -> Result<()> {
        let Event::Control { frame, order, refused, .. } = event else { return Ok(()) };
        let is_taken_back = matches!(order, Order::Change(_)) && self.element.imp().hear_of_change();
        if let (Some(reason), false) = (refused, is_taken_back) {
            self.element.imp().refuse(&format!("frame {frame}: cannot {order}: {reason}"));
        }
        Ok(())
    }
}
