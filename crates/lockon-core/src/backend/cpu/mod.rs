//! The CPU backend: slots as on a GPU, with a worker thread in the device's place. Two channels pass them
//! back and forth, because the worker owns a slot while it works.
//!
//! The worker takes submitted slots in order and does their standing work on a pool of threads, rows across
//! threads, while the engine's thread runs the tracker, calls the sinks and fetches the next frame.
//!
//! | module | job |
//! |---|---|
//! | `ncc`, `workload`, `plan` | the search of a bank; how much work it is; cutting score maps into tiles |
//! | `correlate`, `sums` | sums of products by FFT; sums of windows by sliding |
//! | `products` | exact sums of products of bytes, for small templates |
//! | `estimate`, `exact`, `search` | where a match can be; the exact scores there; both for one tile |
//! | `wanted` | the least scores that still count in a frame |
//! | `pyramid` | search from coarse to fine |
//! | `threshold`, `gaussian` | the mask |
//! | `objects`, `bits` | the objects of a mask; opening and closing it |

use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Instant;

use crossbeam_channel::{Receiver, Sender};
use rayon::ThreadPool;

use crate::backend::ring::Poison;
use crate::backend::threshold::Background;
use crate::backend::{Backend, Device, Findings, Options, Standing, Variants, lists_of_objects};
use crate::colour;
use crate::control::Control;
use crate::error::{Bytes, DeviceFault, Error, Result};
use crate::frame::{FrameMeta, Picture, Plane, Size};
use crate::memory;
use crate::message::{Message, Setting};
use crate::recycle::Recycler;
use crate::surface::{Surface, Traffic};
use crate::template::Bank;
use crate::workers;

use ncc::{Matcher, Planner};
use objects::ObjectFinder;
use pyramid::Pyramid;
use threshold::Thresholder;

mod bits;
mod correlate;
mod estimate;
mod exact;
mod gaussian;
pub mod ncc;
pub mod objects;
mod plan;
mod products;
mod pyramid;
mod search;
mod sums;
pub mod threshold;
mod wanted;
pub(super) mod workload;

pub use crate::simd;

/// The CPU as a device.
pub struct Cpu {
    threads: usize,
    depth: usize,
    free: Vec<Slot>,
    /// Filled slots to the worker. `None` only while shutting down.
    submitted: Option<Sender<Slot>>,
    /// Worked slots from the worker, in the same order, and how that went.
    completed: Receiver<(Slot, Result<()>)>,
    /// Gives the background of its frames at its end.
    worker: Option<JoinHandle<Option<Background>>>,
    in_flight: usize,
    is_idle: bool,
    /// The background of another backend, until the first frame.
    background: Option<Background>,
    /// Luma is expanded from limited to full range on its way into a slot.
    expands: bool,
    poison: Poison,
    traffic: Traffic,
}

struct Slot {
    meta: Option<FrameMeta>,
    luma: Plane,
    findings: Findings,
    /// Replaces the background before this frame.
    background: Option<Background>,
}

/// What the worker does: something to each slot, and gives what is left at the end.
trait Works: Send + 'static {
    fn run(&mut self, slot: &mut Slot) -> Result<()>;

    fn end(self) -> Option<Background>;
}

impl Cpu {
    /// Opens a ring of one or more slots, processed by the threads that `options` requests.
    ///
    /// It uses no more memory than `options.memory`: the bank, a frame and a mask for each slot, and the
    /// search's memory, which is described in [`Matcher::within`].
    ///
    /// # Errors
    /// The errors of [`Standing::check`]; `Backend` if the system gives no more threads; `MemoryLimit` or
    /// `NoMemory` if it needs more memory than is allowed or available; `Stopped`.
    pub fn open(standing: Standing, options: &Options) -> Result<Self> {
        standing.check()?;
        let (depth, threads) = (options.depth, options.threads);
        let pool = workers::pool("standing", threads).map_err(|error| failed(&error))?;
        let is_idle = standing.is_idle();
        let frame = if is_idle { Size::new(1, 1) } else { standing.frame };
        let expands = standing.expands;
        let work = StandingWork::new(standing, options)?;
        let pool = (!is_idle).then_some(pool);
        let mut opened = Self::working(Pooled { work, pool }, frame, is_idle, depth, threads)?;
        (opened.traffic, opened.expands) = (options.traffic.clone(), expands);
        Ok(opened)
    }

    /// A ring whose worker does `work` to each slot.
    fn working(
        mut work: impl Works,
        frame: Size,
        is_idle: bool,
        depth: usize,
        threads: usize,
    ) -> Result<Self> {
        let slot =
            |_| Slot { meta: None, luma: Plane::new(frame), findings: Findings::default(), background: None };
        let free = (0..depth).map(slot).collect();
        let (submitted, to_work) = crossbeam_channel::bounded::<Slot>(depth);
        let (worked, completed) = crossbeam_channel::bounded(depth);
        let worker = std::thread::Builder::new()
            .name("cpu".into())
            .spawn(move || {
                for mut slot in to_work {
                    let outcome = work.run(&mut slot);
                    if worked.send((slot, outcome)).is_err() {
                        break;
                    }
                }
                work.end()
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
            background: None,
            expands: false,
            poison: Poison::new("cpu"),
            traffic: Traffic::default(),
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

    fn submit(&mut self, meta: FrameMeta, picture: &Arc<dyn Picture>) -> Result<()> {
        let Self { poison, free, submitted, in_flight, is_idle, background, expands, traffic, .. } = self;
        poison.check()?;
        let mut slot = free.pop().expect("a slot is free");
        poison.run(|| {
            let started = Instant::now();
            if !*is_idle {
                let (mut luma, decoded) = (slot.luma.as_mut(), picture.plane(0));
                if *expands {
                    luma.copy_changed(decoded, colour::expanded);
                } else {
                    luma.copy_from(decoded);
                }
                picture.surface().map_or(Ok(()), Surface::check)?;
                traffic.add_copied(slot.luma.data().len());
            }
            slot.findings.upload_us = started.elapsed().as_micros() as u64;
            slot.meta = Some(meta);
            slot.background = background.take();
            let sender = submitted.as_ref().expect("open until the background is taken");
            sender.send(slot).map_err(|_| worker_ended())?;
            *in_flight += 1;
            Ok(())
        })
    }

    fn wait_next(&mut self, findings: &mut Findings) -> Result<Option<FrameMeta>> {
        self.poison.check()?;
        if self.in_flight == 0 {
            return Ok(None);
        }
        let completed = &self.completed;
        let (mut slot, is_stopped) = self.poison.run(|| {
            // The worker notices the end itself, and abandons its work.
            let (slot, outcome) = completed.recv().map_err(|_| worker_ended())?;
            match outcome {
                Ok(()) => Ok((slot, false)),
                // The next frame begins afresh, so that nothing is the worse for it.
                Err(Error::Stopped) => Ok((slot, true)),
                Err(error) => Err(error),
            }
        })?;
        self.in_flight -= 1;
        if is_stopped {
            self.free.push(slot);
            return Err(Error::Stopped);
        }
        // Swapped, not copied: the slot takes the caller's used buffers for its next frame.
        std::mem::swap(findings, &mut slot.findings);
        let meta = slot.meta.take();
        self.free.push(slot);
        Ok(meta)
    }

    fn take_background(&mut self) -> Result<Option<Background>> {
        self.poison.check()?;
        assert_eq!(self.in_flight, 0, "frames in flight");
        self.submitted = None;
        let Self { poison, worker, background, .. } = self;
        let left = poison.run(|| match worker.take().map(JoinHandle::join) {
            None => Ok(None),
            Some(left) => left.map_err(|_| worker_ended()),
        })?;
        Ok(left.or(background.take()))
    }

    fn continue_from(&mut self, background: Background) -> Result<()> {
        self.poison.check()?;
        self.background = Some(background);
        Ok(())
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

/// The work on every frame, on a pool of threads; without work there is nothing to wake them for.
struct Pooled {
    work: StandingWork,
    pool: Option<Arc<ThreadPool>>,
}

impl Works for Pooled {
    fn run(&mut self, slot: &mut Slot) -> Result<()> {
        let Self { work, pool } = self;
        match pool {
            Some(pool) => pool.install(|| work.run(slot)),
            None => work.run(slot),
        }
    }

    fn end(self) -> Option<Background> {
        self.work.thresholder?.background()
    }
}

/// The work on every frame.
struct StandingWork {
    control: Control,
    standing: Standing,
    matcher: Option<Matcher>,
    pyramid: Option<Pyramid>,
    thresholder: Option<Thresholder>,
    masks: Recycler<Plane>,
    /// Where masks are cleaned, or their objects reported.
    finder: Option<ObjectFinder>,
}

impl StandingWork {
    fn new(standing: Standing, options: &Options) -> Result<Self> {
        let (control, threads, region) = (options.control.clone(), options.threads, standing.roi.size());
        let limit = options.memory.unwrap_or_else(memory::default_limit);
        let rest = rest(&standing, options.depth, limit)?;
        let bank = standing.bank.clone();
        let matcher =
            bank.map(|bank| Matcher::within(&mut Planner::new(), bank, region, threads, &control, rest));
        let variants = standing.pyramid.clone();
        let pyramid = variants.map(|variants| Pyramid::new(variants, region, threads, &control, rest));
        let thresholder =
            standing.threshold.map(|spec| Thresholder::new(&spec, standing.frame).under(&control));
        let (matcher, pyramid) = (matcher.transpose()?, pyramid.transpose()?.flatten());
        if let Some(matcher) = &matcher {
            tell_cost(matcher, &standing);
        }
        let taken = matcher.as_ref().map_or(0, |matcher| matcher.bytes().0);
        let memory = Bytes((rest as u64).saturating_sub(taken));
        let finder = standing.work_on_masks().map(|spec| {
            let finder = ObjectFinder::new(&spec, standing.frame, Some(memory));
            finder.map(|finder| finder.with_lists(lists_of_objects(options.depth)))
        });
        let (finder, masks) = (finder.transpose()?, Recycler::default());
        Ok(Self { control, standing, matcher, pyramid, thresholder, masks, finder })
    }

    /// Works on a slot. Where it fails, or is stopped, there are no findings.
    fn run(&mut self, slot: &mut Slot) -> Result<()> {
        let started = Instant::now();
        let (luma, findings) = (slot.luma.as_ref(), &mut slot.findings);
        findings.matches.clear();
        (findings.foreground, findings.mask, findings.more_objects) = (None, None, 0);
        self.control.check()?;
        if let Some(matcher) = &mut self.matcher {
            matcher.run(luma, self.standing.roi, &self.standing.limits, &mut findings.matches)?;
        }
        if let Some(pyramid) = &mut self.pyramid {
            pyramid.run(luma, self.standing.roi, &self.standing.limits, &mut findings.matches)?;
        }
        if let Some(thresholder) = &mut self.thresholder {
            if let Some(background) = slot.background.take() {
                thresholder.continue_from(background);
            }
            let Standing { wants_mask, objects, .. } = self.standing;
            let is_changed = wants_mask && objects.is_some_and(|spec| !spec.cleaning.is_none());
            let mut cleaned = Ok(());
            let mask = self.masks.share(|mask| {
                findings.foreground = Some(thresholder.run(luma, mask));
                let Some(finder) = &mut self.finder else { return };
                cleaned = finder.clean(mask.as_ref());
                if is_changed && cleaned.is_ok() {
                    finder.cleaned(mask);
                }
            });
            // Left unfinished, it is no mask.
            self.control.check()?;
            cleaned?;
            findings.mask = if wants_mask { Some(mask) } else { None };
        }
        let reports = self.standing.objects.is_some_and(|spec| spec.reports);
        match self.finder.as_mut().filter(|_| reports) {
            Some(finder) => {
                findings.more_objects = finder.find(luma, findings.objects.get_or_insert_default())?;
            }
            None => findings.objects = None,
        }
        findings.standing_us = started.elapsed().as_micros() as u64;
        Ok(())
    }
}

/// Logs, before the first frame, the cost of each frame; at a higher level if that is seconds.
fn tell_cost(matcher: &Matcher, standing: &Standing) {
    let members = standing.bank.as_ref().map_or(0, |bank| bank.members().len());
    let (seconds, region) = (matcher.estimated_seconds(), standing.roi.size());
    let memory = Bytes(matcher.bytes().0 + standing.bank.as_ref().map_or(0, |bank| bank.bytes()));
    let batches = match matcher.batches() {
        1 => String::new(),
        batches => format!(" in {batches} batches, more --memory makes it faster"),
    };
    if seconds < SLOW_S {
        let ms = seconds * 1e3;
        tracing::info!(
            "{members} templates in {region}: {memory} of memory, about {ms:.1} ms a frame{batches}"
        );
    } else {
        tracing::warn!(
            "{members} templates in {region}: {memory} of memory, about {seconds:.0} s a frame{batches}; fewer --scales or \
             --angles, a --roi or --search pyramid take less"
        );
    }
}

/// A frame that takes so long is worth a warning.
const SLOW_S: f64 = 2.0;

/// Returns the bytes of a limit that remain besides the bank and the slots: a frame for each slot, and a mask
/// for each with one to spare.
fn rest(standing: &Standing, depth: usize, limit: Bytes) -> Result<usize> {
    let planes = if standing.threshold.is_some() { 2 * depth + 1 } else { depth };
    let slots = if standing.is_idle() { 0 } else { planes * standing.frame.area() };
    let kept = standing.threshold.map_or(0, |spec| Thresholder::bytes(&spec, standing.frame));
    let bank = standing.bank.as_ref().map_or(0, |bank| bank.bytes());
    let wanted = Bytes((slots + kept) as u64 + bank);
    match limit.0.checked_sub(wanted.0) {
        Some(rest) => Ok(usize::try_from(rest).unwrap_or(usize::MAX)),
        None => Err(Error::MemoryLimit {
            what: format!(
                "{depth} frames of {} in flight, and the templates in all sizes and directions",
                standing.frame
            ),
            wanted,
            limit,
            remedy: Message::new(
                "give more {}, a smaller {}, or fewer {} or {}",
                ["memory", "depth", "scales", "angles"].map(Setting::named),
            ),
        }),
    }
}

/// True if an exhaustive search for these in an area of that size is not refused, beside what `standing` does
/// else: there are not too many of them, and it may take the memory that it needs at least.
pub(super) fn takes_exhaustively(
    variants: &Variants,
    area: Size,
    standing: &Standing,
    options: &Options,
) -> bool {
    let limit = options.memory.unwrap_or_else(memory::default_limit);
    let Variants { templates, scales, angles } = variants;
    let kept = standing.threshold.map_or(0, |spec| Thresholder::bytes(&spec, standing.frame));
    let slots = (2 * options.depth + 1) * standing.frame.area() + kept;
    let wanted = workload::exhaustive_bytes(variants, area, options.threads).saturating_add(slots);
    Bank::check_expanded(templates, scales, angles, limit).is_ok() && wanted as u64 <= limit.0
}

fn worker_ended() -> Error {
    failed(&"the worker thread has ended (a panic was reported above)")
}

fn failed(error: &dyn std::fmt::Display) -> Error {
    Error::Backend { backend: "cpu", fault: DeviceFault::Other(error.to_string()) }
}

/// The processor's name if the system has it, for the run record.
fn processor_name() -> String {
    let cpuinfo = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let name = cpuinfo.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
    name.map_or_else(|| std::env::consts::ARCH.to_owned(), |(_, name)| name.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{BackendChoice, ObjectSpec};
    use crate::results::Object;
    use crate::template::{Bank, Template};

    fn meta(index: u64) -> FrameMeta {
        FrameMeta { index, pts_ns: None, duration_ns: None, arrived: Instant::now() }
    }

    fn blank() -> Arc<dyn Picture> {
        Arc::new(Plane::new(Size::new(4, 3)))
    }

    /// Has nothing left at its end.
    impl<F: FnMut(&mut Slot) -> Result<()> + Send + 'static> Works for F {
        fn run(&mut self, slot: &mut Slot) -> Result<()> {
            self(slot)
        }

        fn end(self) -> Option<Background> {
            None
        }
    }

    /// A ring of two slots whose worker gives this outcome for its first frame, and none of the others fails.
    fn failing(first: impl FnOnce() -> Result<()> + Send + 'static) -> Cpu {
        let mut first = Some(first);
        let work = move |_: &mut Slot| first.take().map_or(Ok(()), |first| first());
        let mut cpu = Cpu::working(work, Size::new(4, 3), false, 2, 1).unwrap();
        for index in 0..2 {
            cpu.submit(meta(index), &blank()).unwrap();
        }
        cpu
    }

    fn wait_next(cpu: &mut Cpu) -> Result<Option<u64>> {
        Ok(cpu.wait_next(&mut Findings::default())?.map(|meta| meta.index))
    }

    #[test]
    fn a_frame_that_failed_is_the_last_and_every_later_call_gives_its_error() {
        let no_memory = || Error::NoMemory { what: "a map", wanted: Bytes(1 << 40) };
        let mut cpu = failing(move || Err(no_memory()));
        for _ in 0..3 {
            assert_eq!(wait_next(&mut cpu).unwrap_err().to_string(), no_memory().to_string());
            let error = cpu.submit(meta(9), &blank()).unwrap_err();
            assert!(matches!(error, Error::NoMemory { .. }), "{error}");
        }
    }

    #[test]
    fn a_stopped_frame_is_given_up_and_the_next_one_comes() {
        let mut cpu = failing(|| Err(Error::Stopped));
        assert!(matches!(wait_next(&mut cpu), Err(Error::Stopped)));
        cpu.submit(meta(2), &blank()).unwrap();
        assert_eq!(wait_next(&mut cpu).unwrap(), Some(1));
        assert_eq!(wait_next(&mut cpu).unwrap(), Some(2));
        assert_eq!(wait_next(&mut cpu).unwrap(), None);
    }

    #[test]
    fn a_template_that_does_not_fit_is_refused_when_the_ring_is_opened() {
        let luma = crate::reference::picture(Size::new(9, 31));
        let bank = Bank::new(vec![Template::new("t", luma, None).unwrap()]).unwrap();
        let standing = Standing { bank: Some(bank.into()), ..Standing::new(Size::new(40, 30)) };
        let error = Cpu::open(standing, &Options { threads: 1, ..Options::default() }).err().unwrap();
        assert!(matches!(error, Error::Template { .. }), "{error}");
    }

    #[test]
    fn luma_of_limited_range_is_searched_and_thresholded_as_if_it_had_been_expanded_before() {
        let limited = crate::reference::picture(Size::new(83, 61));
        let full = limited.data().iter().map(|&luma| colour::expanded(luma)).collect();
        let full = Plane::from_vec(full, limited.size());
        let part = full.as_ref().crop(crate::frame::Rect::new(31, 17, 19, 13)).to_plane();
        let bank = Bank::new(vec![Template::new("t", part, None).unwrap()]).unwrap();
        let found = |frame: &Plane, expands| {
            let standing = Standing::new(frame.size())
                .thresholding(Some("sauvola:15:0.2".parse().unwrap()), true)
                .searching(&bank, None, crate::config::Limits::default())
                .unwrap()
                .expanding(expands);
            let mut cpu = Cpu::open(standing, &Options { threads: 2, ..Options::default() }).unwrap();
            let picture: Arc<dyn Picture> = Arc::new(frame.clone());
            cpu.submit(meta(0), &picture).unwrap();
            let mut findings = Findings::default();
            cpu.wait_next(&mut findings).unwrap();
            let mask = findings.mask.unwrap().plane(0).to_plane();
            (findings.matches, findings.foreground, mask)
        };
        assert!(limited != full && found(&full, false).0.len() == 1);
        assert_eq!(found(&limited, true), found(&full, false));
    }

    #[test]
    fn a_background_goes_from_one_backend_to_the_next() {
        let size = Size::new(83, 61);
        let standing =
            |threshold: &str| Standing::new(size).thresholding(Some(threshold.parse().unwrap()), true);
        let open = |threshold| {
            Cpu::open(standing(threshold), &Options { threads: 2, ..Options::default() }).unwrap()
        };
        let mask_of = |cpu: &mut Cpu, index: u64| {
            let mut frame = crate::reference::picture(size);
            frame.data_mut().rotate_left(index as usize);
            cpu.submit(meta(index), &(Arc::new(frame) as Arc<dyn Picture>)).unwrap();
            let mut findings = Findings::default();
            cpu.wait_next(&mut findings).unwrap();
            findings.mask.unwrap().plane(0).to_plane()
        };
        let (mut whole, mut part) = (open("background:5:9"), open("background:5:9"));
        for index in 0..6 {
            assert!(mask_of(&mut whole, index) == mask_of(&mut part, index), "frame {index}");
            let background = part.take_background().unwrap().unwrap();
            part = open("background:5:9");
            part.continue_from(background).unwrap();
        }
        // One that saw no frame hands on what it got; another method has nothing to hand on.
        assert!(part.take_background().unwrap().is_some());
        let mut other = open("mean:5:9");
        mask_of(&mut other, 0);
        assert_eq!(other.take_background().unwrap(), None);
        assert_eq!(open("background:5:9").take_background().unwrap(), None);
    }

    #[test]
    fn a_worker_that_panicked_is_an_error_of_every_later_call() {
        let mut cpu = failing(|| panic!("as the test wants it"));
        for _ in 0..3 {
            let said = wait_next(&mut cpu).unwrap_err().to_string();
            assert_eq!(said, "cpu: the worker thread has ended (a panic was reported above)");
            assert!(cpu.submit(meta(9), &blank()).is_err());
        }
    }

    const SIZE: Size = Size::new(97, 61);

    fn options(threads: usize) -> Options {
        Options { choice: BackendChoice::Cpu, depth: 2, threads, ..Options::default() }
    }

    fn standing(spec: &str, wants_mask: bool) -> Standing {
        let objects: ObjectSpec = serde_json::from_str(spec).unwrap();
        let threshold = Some("mean:15:3".parse().unwrap());
        Standing::new(SIZE).thresholding(threshold, wants_mask).finding(Some(objects))
    }

    type Found = (Option<f64>, Option<Vec<u8>>, Option<Vec<Object>>, u64);

    /// The results of three pictures.
    fn found(mut backend: Box<dyn Backend>) -> Vec<Found> {
        let mut findings = Findings::default();
        let mut all = Vec::new();
        for index in 0..3 {
            let mut picture = crate::reference::picture(SIZE);
            picture.data_mut().rotate_left(37 * index as usize);
            backend.submit(meta(index), &(Arc::new(picture) as Arc<dyn Picture>)).unwrap();
            assert_eq!(backend.wait_next(&mut findings).unwrap().unwrap().index, index);
            let mask = findings.mask.take().map(|mask| mask.plane(0).to_plane().into_vec());
            all.push((findings.foreground, mask, findings.objects.clone(), findings.more_objects));
        }
        all
    }

    #[test]
    fn objects_of_frames_are_the_same_for_any_number_of_threads() {
        for spec in [
            "{}",
            r#"{"colour":"black","connect":"4","open":"3","fill_holes":true,"max":3}"#,
            r#"{"reports":false,"close":"3"}"#,
        ] {
            for (wants_mask, expands) in [(false, false), (true, false), (true, true)] {
                let standing = standing(spec, wants_mask).expanding(expands);
                let found =
                    |threads| found(Box::new(Cpu::open(standing.clone(), &options(threads)).unwrap()));
                let expected = found(1);
                assert!(expected.iter().all(|frame| frame.0.is_some() && frame.1.is_some() == wants_mask));
                assert_eq!(found(3), expected, "{spec}");
                let reports = standing.objects.unwrap().reports;
                assert!(expected.iter().all(|frame| frame.2.is_some() == reports));
                assert!(!reports || expected.iter().any(|frame| frame.2 != expected[0].2), "{spec}");
            }
        }
    }

    #[test]
    fn too_many_objects_for_the_memory_are_an_error_that_every_later_call_repeats() {
        let options = Options { memory: Some(Bytes(80_000)), ..options(2) };
        let mut backend = Cpu::open(standing("{}", false), &options).unwrap();
        let dots = (0..SIZE.area())
            .map(|at| if at.is_multiple_of(2) && (at / SIZE.width).is_multiple_of(2) { 255 } else { 0 });
        let picture: Arc<dyn Picture> = Arc::new(Plane::from_vec(dots.collect(), SIZE));
        backend.submit(meta(0), &picture).unwrap();
        for _ in 0..2 {
            let error = backend.wait_next(&mut Findings::default()).unwrap_err();
            assert!(matches!(error, Error::MemoryLimit { .. }), "{error}");
        }
        assert!(matches!(backend.submit(meta(0), &picture), Err(Error::MemoryLimit { .. })));
    }
}
