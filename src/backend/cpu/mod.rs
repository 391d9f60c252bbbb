//! The CPU backend: the same ring of slots as on a GPU, with a worker thread in the device's place.
//!
//! The worker takes submitted slots in order and does their standing work on a pool of threads, rows across threads, while
//! the engine's thread asks the tracker, tells the sinks and fetches the next frame.

use std::thread::JoinHandle;
use std::time::Instant;

use crossbeam_channel::{Receiver, Sender};
use rayon::ThreadPoolBuilder;

use crate::backend::{Backend, Device, Findings, Standing};
use crate::error::{DeviceFault, Error, Result};
use crate::frame::{FrameMeta, Plane, PlaneMut, Size};
use crate::recycle::Recycler;

use ncc::{Matcher, Planner};
use pyramid::Pyramid;
use threshold::Thresholder;

mod correlate;
mod estimate;
mod exact;
mod gaussian;
pub mod ncc;
mod plan;
mod pyramid;
mod search;
mod sums;
pub mod threshold;

pub use crate::simd;

/// The CPU as a device.
pub struct Cpu {
    threads: usize,
    depth: usize,
    free: Vec<Slot>,
    /// Filled slots to the worker. `None` only while shutting down.
    submitted: Option<Sender<Slot>>,
    /// Worked slots from the worker, in the same order.
    completed: Receiver<Slot>,
    worker: Option<JoinHandle<()>>,
    in_flight: usize,
    is_idle: bool,
}

struct Slot {
    meta: Option<FrameMeta>,
    luma: Plane,
    findings: Findings,
}

impl Cpu {
    /// A ring of `depth` slots (1 or more), worked on by `threads` threads.
    ///
    /// # Errors
    /// `Backend` if the system gives no more threads.
    pub fn open(standing: Standing, depth: usize, threads: usize) -> Result<Self> {
        let failed = |error: &dyn std::fmt::Display| Error::Backend {
            backend: "cpu",
            fault: DeviceFault::Other(error.to_string()),
        };
        let pool = ThreadPoolBuilder::new()
            .num_threads(threads)
            .thread_name(|index| format!("standing-{index}"))
            .build()
            .map_err(|error| failed(&error))?;
        let is_idle = standing.is_idle();
        let frame = if is_idle { Size::new(1, 1) } else { standing.frame };
        let slot = |_| Slot { meta: None, luma: Plane::new(frame), findings: Findings::default() };
        let free = (0..depth).map(slot).collect();
        let (submitted, to_work) = crossbeam_channel::bounded::<Slot>(depth);
        let (worked, completed) = crossbeam_channel::bounded(depth);
        let worker = std::thread::Builder::new()
            .name("cpu".into())
            .spawn(move || {
                let mut work = StandingWork::new(standing, threads);
                for mut slot in to_work {
                    // Without work there is nothing to wake the pool for.
                    if is_idle {
                        work.run(&mut slot);
                    } else {
                        pool.install(|| work.run(&mut slot));
                    }
                    if worked.send(slot).is_err() {
                        break;
                    }
                }
            })
            .map_err(|error| failed(&error))?;
        Ok(Self {
            threads,
            depth,
            free,
            submitted: Some(submitted),
            completed,
            worker: Some(worker),
            in_flight: 0,
            is_idle,
        })
    }
}

impl Backend for Cpu {
    fn describe(&self) -> Device {
        let threads = if self.threads == 1 { "1 thread".into() } else { format!("{} threads", self.threads) };
        Device { backend: "cpu", name: format!("{}, {threads}", processor_name()), driver: None }
    }

    fn depth(&self) -> usize {
        self.depth
    }

    fn submit(&mut self, meta: FrameMeta, fill: &mut dyn FnMut(PlaneMut<'_>)) -> Result<()> {
        let mut slot = self.free.pop().expect("a slot is free");
        let started = Instant::now();
        if !self.is_idle {
            fill(slot.luma.as_mut());
        }
        slot.findings.upload_us = started.elapsed().as_micros() as u64;
        slot.meta = Some(meta);
        let sender = self.submitted.as_ref().expect("open until dropped");
        sender.send(slot).map_err(|_| worker_ended())?;
        self.in_flight += 1;
        Ok(())
    }

    fn wait_next(&mut self, findings: &mut Findings) -> Result<Option<FrameMeta>> {
        if self.in_flight == 0 {
            return Ok(None);
        }
        let mut slot = self.completed.recv().map_err(|_| worker_ended())?;
        self.in_flight -= 1;
        // Swapped, not copied: the slot takes the caller's used buffers for its next frame.
        std::mem::swap(findings, &mut slot.findings);
        let meta = slot.meta.take();
        self.free.push(slot);
        Ok(meta)
    }
}

impl Drop for Cpu {
    fn drop(&mut self) {
        // The worker ends when its queue does.
        self.submitted = None;
        if let Some(worker) = self.worker.take() {
            // A panic of the worker was reported when it happened, and surfaced as an error on the next call.
            let _ = worker.join();
        }
    }
}

/// What the worker does to every frame.
struct StandingWork {
    standing: Standing,
    matcher: Option<Matcher>,
    pyramid: Option<Pyramid>,
    thresholder: Option<Thresholder>,
    masks: Recycler<Plane>,
}

impl StandingWork {
    fn new(standing: Standing, threads: usize) -> Self {
        let matcher = standing
            .bank
            .clone()
            .map(|bank| Matcher::new(&mut Planner::new(), bank, standing.roi.size(), threads));
        let variants = standing.pyramid.clone();
        let pyramid = variants.and_then(|variants| Pyramid::new(variants, standing.roi.size(), threads));
        let thresholder = standing.threshold.map(|spec| Thresholder::new(&spec, standing.frame));
        Self { standing, matcher, pyramid, thresholder, masks: Recycler::default() }
    }

    fn run(&mut self, slot: &mut Slot) {
        let started = Instant::now();
        let (luma, findings) = (slot.luma.as_ref(), &mut slot.findings);
        findings.matches.clear();
        (findings.foreground, findings.mask) = (None, None);
        if let Some(matcher) = &mut self.matcher {
            matcher.run(luma, self.standing.roi, &self.standing.limits, &mut findings.matches);
        }
        if let Some(pyramid) = &mut self.pyramid {
            pyramid.run(luma, self.standing.roi, &self.standing.limits, &mut findings.matches);
        }
        if let Some(thresholder) = &mut self.thresholder {
            let mask = self.masks.share(|mask| findings.foreground = Some(thresholder.run(luma, mask)));
            findings.mask = if self.standing.wants_mask { Some(mask) } else { None };
        }
        findings.standing_us = started.elapsed().as_micros() as u64;
    }
}

fn worker_ended() -> Error {
    Error::Backend {
        backend: "cpu",
        fault: DeviceFault::Other("the worker thread has ended (a panic was reported above)".into()),
    }
}

/// The processor's name where the system tells it, for the run record.
fn processor_name() -> String {
    let cpuinfo = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let name = cpuinfo.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
    name.map_or_else(|| std::env::consts::ARCH.to_owned(), |(_, name)| name.trim().to_owned())
}
