//! The CPU backend: the same ring of slots as on a GPU, with a worker thread in the device's place.
//!
//! The worker takes submitted slots in order and does their standing work on a pool of threads, rows across threads, while
//! the engine's thread asks the tracker, tells the sinks and fetches the next frame. Searches have a pool of their own, as
//! they have a stream of their own on a GPU: they do not queue behind the next frame's standing work.

use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Instant;

use crossbeam_channel::{Receiver, Sender};
use rayon::{ThreadPool, ThreadPoolBuilder};

use crate::backend::{Backend, Device, Findings, Query, Response, SlotId, Standing};
use crate::error::{DeviceFault, Error, Result};
use crate::frame::{FrameMeta, Plane, PlaneMut, Size};
use crate::recycle::Recycler;
use crate::template::{Bank, TemplateSums};

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
pub mod simd;
mod sums;
pub mod threshold;

/// A search in this part of the frame or less stays on the engine's thread: waking others takes about as long as they save,
/// and they would take their time from the decoder.
const SMALL_SEARCH: usize = 4;

/// How many searches of the tracker stay planned. Each track asks in a window of one size, and in the whole frame.
const PLANNED_SEARCHES: usize = 16;

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
    /// Slots between `wait_next` and `release`.
    handed_out: Vec<Slot>,
    search_pool: ThreadPool,
    planned: PlannedSearches,
}

struct Slot {
    id: usize,
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
        let pool = |name: &'static str| {
            ThreadPoolBuilder::new()
                .num_threads(threads)
                .thread_name(move |index| format!("{name}-{index}"))
                .build()
                .map_err(|error| failed(&error))
        };
        let (standing_pool, search_pool) = (pool("standing")?, pool("search")?);
        let frame = standing.frame;
        let slot = |id| Slot { id, meta: None, luma: Plane::new(frame), findings: Findings::default() };
        let free = (0..depth).rev().map(slot).collect();
        let (submitted, to_work) = crossbeam_channel::bounded::<Slot>(depth);
        let (worked, completed) = crossbeam_channel::bounded(depth);
        let worker = std::thread::Builder::new()
            .name("cpu".into())
            .spawn(move || {
                let mut work = StandingWork::new(standing, threads);
                for mut slot in to_work {
                    // Without work there is nothing to wake the pool for.
                    if work.is_idle() {
                        work.run(&mut slot);
                    } else {
                        standing_pool.install(|| work.run(&mut slot));
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
            handed_out: Vec::with_capacity(depth),
            search_pool,
            planned: PlannedSearches::default(),
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
        fill(slot.luma.as_mut());
        slot.findings.upload_us = started.elapsed().as_micros() as u64;
        slot.meta = Some(meta);
        let sender = self.submitted.as_ref().expect("open until dropped");
        sender.send(slot).map_err(|_| worker_ended())?;
        self.in_flight += 1;
        Ok(())
    }

    fn wait_next(&mut self, findings: &mut Findings) -> Result<Option<(SlotId, FrameMeta)>> {
        if self.in_flight == 0 {
            return Ok(None);
        }
        let mut slot = self.completed.recv().map_err(|_| worker_ended())?;
        self.in_flight -= 1;
        // Swapped, not copied: the slot takes the caller's used buffers for its next frame.
        std::mem::swap(findings, &mut slot.findings);
        let handed_out = (SlotId(slot.id), slot.meta.take().expect("filled by submit"));
        self.handed_out.push(slot);
        Ok(Some(handed_out))
    }

    fn search(&mut self, slot: &SlotId, queries: &[Query], responses: &mut Vec<Response>) -> Result<()> {
        let slot = self.handed_out.iter().find(|s| s.id == slot.0).expect("the slot was handed out");
        responses.resize_with(queries.len(), Response::default);
        for (query, response) in queries.iter().zip(responses) {
            match query {
                Query::Patch(rect) => {
                    response.matches.clear();
                    let patch = response.patch.get_or_insert_default();
                    patch.luma.resize(rect.size());
                    patch.luma.as_mut().copy_from(slot.luma.as_ref().crop(*rect));
                    patch.sums = TemplateSums::of(&patch.luma);
                }
                Query::Search { bank, window, limits } => {
                    response.patch = None;
                    let luma = slot.luma.as_ref();
                    let is_small = SMALL_SEARCH * window.size().area() <= luma.size().area();
                    let threads = if is_small { 1 } else { self.threads };
                    let matcher = self.planned.matcher(bank, window.size(), threads);
                    let mut run = || matcher.run(luma, *window, limits, &mut response.matches);
                    if threads == 1 { run() } else { self.search_pool.install(run) }
                }
            }
        }
        Ok(())
    }

    fn release(&mut self, slot: SlotId) {
        let index = self.handed_out.iter().position(|s| s.id == slot.0).expect("the slot was handed out");
        self.free.push(self.handed_out.swap_remove(index));
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

/// The tracker's searches, planned once for each bank and window size.
#[derive(Default)]
struct PlannedSearches {
    planner: Planner,
    /// The most recently used last.
    matchers: Vec<Matcher>,
}

impl PlannedSearches {
    /// The matcher for a bank in windows of this size, planned now if it is new.
    fn matcher(&mut self, bank: &Arc<Bank>, window: Size, threads: usize) -> &mut Matcher {
        let is_same = |m: &Matcher| Arc::ptr_eq(m.bank(), bank) && m.region() == window;
        let matcher = if let Some(index) = self.matchers.iter().position(is_same) {
            self.matchers.remove(index)
        } else {
            if self.matchers.len() == PLANNED_SEARCHES {
                self.matchers.remove(0);
            }
            Matcher::new(&mut self.planner, bank.clone(), window, threads)
        };
        self.matchers.push(matcher);
        self.matchers.last_mut().expect("pushed above")
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

    /// Nothing is asked for: the tracker's searches are all there is.
    fn is_idle(&self) -> bool {
        self.matcher.is_none() && self.pyramid.is_none() && self.thresholder.is_none()
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
