//! One run of lockon's engine, from the first frame to the end of the stream, on the element's own thread.
//!
//! The engine is plugged between [`Frames`], which takes frames out of the line, and [`Found`], which notes their results
//! there. What can be pushed is pushed when the engine asks for the next frame: by then it has let go of the last one, so that
//! the buffer is the only one of its kind again, and drawing on it or adding metadata copies nothing.

use std::cell::Cell;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use gst::subclass::prelude::*;
use lockon::backend::{Backend, Findings, Options};
use lockon::config::OnDeviceLoss;
use lockon::engine::Engine;
use lockon::error::{Error, Result};
use lockon::frame::{Circumstances, Frame, FrameMeta, PlaneMut, VideoFormat};
use lockon::job;
use lockon::media::source;
use lockon::output;
use lockon::ports::{Delivery, Next, Sink, Source};
use lockon::results::{RunRecord, Summary};

use super::line::{Arrival, Outcome, Step};
use super::settings::Device;
use super::work::Asked;

/// Runs the engine until the stream ends, the element is stopped, downstream takes no more, or something fails.
pub(super) fn run(element: &super::Lockon, device: &Device, input: &str, stop: &AtomicBool) -> Result<()> {
    let results = device.results.iter().map(|path| output::open(path)).collect::<Result<_>>()?;
    let found = Found { element: element.clone(), results };
    let tracker = element.imp().work().asked().job.tracker(device.options.threads);
    let choice = Cell::new(device.options.choice);
    let open_backend = |format: &VideoFormat| {
        let options = Options { choice: choice.get(), ..device.options };
        let backend = Retuned::open(element, options, format)?;
        choice.set(job::settled(choice.get(), &backend.describe()));
        Ok(backend)
    };
    let open_spare = |format: &VideoFormat| Retuned::open(element, device.options.on_cpu(), format);
    let engine = Engine {
        source: &mut Frames { element: element.clone() },
        open_backend: &open_backend,
        open_spare: match device.on_loss {
            OnDeviceLoss::End => None,
            OnDeviceLoss::Cpu => Some(&open_spare),
        },
        describe: &|format, device| {
            let job = element.imp().work().opened().job;
            job.describe(input.to_owned(), None, format, device)
        },
        tracker,
        sinks: vec![Box::new(found)],
        max_frames: None,
        stop,
    };
    let (summary, outcome) = engine.run();
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

/// The engine's source: the line.
struct Frames {
    element: super::Lockon,
}

impl Frames {
    fn next(&mut self, deadline: Option<Instant>) -> Result<Next> {
        let line = &self.element.imp().line;
        loop {
            match line.next(deadline) {
                Step::Push(departure) => line.pushed(self.element.imp().depart(departure)),
                Step::Search(arrival) => return frame(arrival).map(Next::Frame),
                Step::Pending => return Ok(Next::Pending),
                Step::End => return Ok(Next::End),
            }
        }
    }
}

fn frame(Arrival { index, at, buffer, layout, times, .. }: Arrival) -> Result<Frame> {
    let meta = FrameMeta {
        index,
        pts_ns: times.stream_time.map(gst::ClockTime::nseconds),
        duration_ns: times.duration.map(gst::ClockTime::nseconds),
        arrived: at,
    };
    let damage = gst::BufferFlags::DISCONT | gst::BufferFlags::CORRUPTED;
    let circumstances = Circumstances {
        is_discontinuity: index > 0 && buffer.flags().intersects(damage),
        ..Circumstances::default()
    };
    let picture = source::picture(buffer, &layout.info, &layout.format).ok_or_else(|| Error::Pipeline {
        element: "sink".into(),
        message: format!("frame {index} is not laid out as its caps say"),
        debug: String::new(),
    })?;
    Ok(Frame { meta, circumstances, format: layout.format.clone(), picture })
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
}

/// The engine's sink: results files, then the line, where results wait for their turn to be pushed.
struct Found {
    element: super::Lockon,
    results: Vec<Box<dyn Sink>>,
}

impl Sink for Found {
    fn name(&self) -> &'static str {
        "src"
    }

    fn begin(&mut self, run: &RunRecord, format: &VideoFormat) -> Result<()> {
        self.results.iter_mut().try_for_each(|file| file.begin(run, format))
    }

    fn deliver(&mut self, delivery: &Delivery<'_>) -> Result<()> {
        let line = &self.element.imp().line;
        let index = delivery.record.frame;
        // What a flush dropped was never there.
        if !line.wants(index) {
            return Ok(());
        }
        for file in &mut self.results {
            file.deliver(delivery)?;
        }
        line.found(index, Outcome { record: delivery.record.clone(), mask: delivery.mask.cloned() });
        Ok(())
    }

    fn finish(&mut self, summary: &Summary) -> Result<()> {
        let mut outcome = Ok(());
        for file in &mut self.results {
            let finished = file.finish(summary);
            outcome = outcome.and(finished);
        }
        outcome
    }
}

/// A backend that is opened anew, between two frames, when the search is changed while frames pass.
///
/// The one before keeps its frames until they are through, so nothing is dropped, nothing waits, and tracks go on.
struct Retuned {
    element: super::Lockon,
    options: Options,
    format: VideoFormat,
    /// Number of the change that the last opened one knows.
    change: u64,
    /// Oldest first. Frames go into the last one, results come out of the first.
    opened: VecDeque<Opened>,
}

struct Opened {
    backend: Box<dyn Backend>,
    in_flight: usize,
}

impl Retuned {
    fn open(element: &super::Lockon, options: Options, format: &VideoFormat) -> Result<Box<dyn Backend>> {
        let imp = element.imp();
        let asked = imp.work().asked();
        let (change, backend) = match Self::opened(element, &asked, &options, format) {
            Ok(backend) => (asked.change(), backend),
            Err(error) => {
                // Was it frames of this size, or what was changed just before them?
                let Some(before) = imp.work().before(&asked) else { return Err(error) };
                let Ok(backend) = Self::opened(element, &before, &options, format) else {
                    return Err(error);
                };
                imp.take_back(&asked, &before, &error);
                (before.change(), backend)
            }
        };
        let choice = job::settled(options.choice, &backend.describe());
        Ok(Box::new(Self {
            element: element.clone(),
            options: Options { choice, ..options },
            format: format.clone(),
            change,
            opened: VecDeque::from([Opened { backend, in_flight: 0 }]),
        }))
    }

    /// A device for what was asked for, which is noted as what works if it can be opened.
    fn opened(
        element: &super::Lockon,
        asked: &Asked,
        options: &Options,
        format: &VideoFormat,
    ) -> Result<Box<dyn Backend>> {
        let imp = element.imp();
        let backend = imp.aside.during(|| asked.job.open(options, format))?;
        imp.work().prove(asked);
        Ok(backend)
    }

    fn retune(&mut self) {
        let imp = self.element.imp();
        let asked = imp.work().asked();
        if asked.change() == self.change {
            return;
        }
        self.change = asked.change();
        match Self::opened(&self.element, &asked, &self.options, &self.format) {
            Ok(backend) => {
                self.opened.retain(|opened| opened.in_flight > 0);
                self.opened.push_back(Opened { backend, in_flight: 0 });
            }
            Err(error) => {
                let before = imp.work().opened();
                imp.take_back(&asked, &before, &error);
                self.change = before.change();
            }
        }
    }

    /// The one that results come out of.
    fn first(&mut self) -> &mut Opened {
        self.opened.front_mut().expect("one is always open")
    }
}

impl Backend for Retuned {
    fn describe(&self) -> lockon::backend::Device {
        self.opened.back().expect("one is always open").backend.describe()
    }

    fn depth(&self) -> usize {
        self.options.depth
    }

    fn submit(&mut self, meta: FrameMeta, fill: &mut dyn FnMut(PlaneMut<'_>)) -> Result<()> {
        self.retune();
        let last = self.opened.back_mut().expect("one is always open");
        last.backend.submit(meta, fill)?;
        last.in_flight += 1;
        Ok(())
    }

    fn wait_next(&mut self, findings: &mut Findings) -> Result<Option<FrameMeta>> {
        let first = self.first();
        let meta = first.backend.wait_next(findings)?;
        first.in_flight -= usize::from(meta.is_some());
        if first.in_flight == 0 && self.opened.len() > 1 {
            self.opened.pop_front();
        }
        Ok(meta)
    }
}
