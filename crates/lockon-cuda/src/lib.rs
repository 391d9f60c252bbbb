//! The CUDA backend: a ring of slots on a GPU, and a stream for each thing that a GPU does at the same time
//! as another.
//!
//! A frame's way: `submit` writes it into the slot's pinned buffer and puts its upload, its kernels, the copy
//! of its mask and the publishing of its results into their streams; nothing waits. A frame that lies on the
//! device (`surface.rs`) is copied there, in the place of the upload. Events in the streams order them: each
//! frame's upload follows the one before, its kernels follow its upload and the kernels before, its mask the
//! threshold, its results the search. Only `wait_next` waits, for the oldest slot's last event; the frames
//! behind it continue meanwhile.
//!
//! So a frame takes as long as the slowest of these, an upload as a rule. Events that measure time are in
//! streams that no code waits for: between two uploads or two kernels each would cost up to 2 us.
//!
//! The results are exact integers and scores by the numeric contract, so the host's part (vertices,
//! suppression, limits) is the code that the CPU backend runs too, and so are the bytes.
//!
//! | module | job |
//! |---|---|
//! | `search` | planning a search, and running it in a lane of streams |
//! | `ncc`, `mma`, `wgmma`, `suspects` | launchers of `kernels/ncc*.cu`, with the checks that make a launch safe |
//! | `threshold`, `fused`, `texture` | launchers of the threshold kernels; textures |
//! | `objects` | objects of masks: launchers of `kernels/objects.cu` |
//! | `range` | launcher of `kernels/range.cu` |
//! | `overlay`, `surface` | launchers of `kernels/overlay.cu` and `kernels/surface.cu` |
//! | `alone`, `bands` | a device for one frame at a time; uploads from ordinary memory for it |
//! | `idle` | what a run has instead of a ring if there is nothing to search |
//! | `correlation` | the tracker's filters on the device, launcher of `kernels/correlation.cu` |
//! | `driver` | the layer over the CUDA driver |
//! | `parts` | searches and thresholds of single frames, for `lockon-bench` |
//!
//! `driver` and `parts` are public for `lockon-bench` alone: hidden, and no part of what this crate promises.

use std::sync::Arc;
use std::time::Instant;

use lockon_core::backend::objects::{FEW, Sums, too_many};
use lockon_core::backend::peaks::Candidate;
use lockon_core::backend::ring::Ring;
use lockon_core::backend::threshold::Background;
use lockon_core::backend::{Backend, Device, Findings, Options, Standing, lists_of_objects};
use lockon_core::config::{Kernel, Kernels, ObjectSpec, ThresholdMethod};
use lockon_core::error::{Bytes, DeviceFault, Error, Result};
use lockon_core::frame::{FrameMeta, Picture, PlaneMut, PlaneRef, Size};
use lockon_core::results::Object;
use lockon_core::surface::{Surface, Traffic};
use lockon_core::{memory, workers};
use rayon::{ThreadPool, ThreadPoolBuildError};

use alone::Alone;
use driver::{
    Attribute, DeviceBuffer, Event, Gpu, Graph, Pinned, PinnedBuffer, Priority, Stream, TimedEvent, fault,
};
use idle::Idle;
use ncc::{DeviceFrame, MAX_SIDE};
use objects::{ComponentList, ObjectFinder};
use range::Expand;
use search::{CandidateList, Lane, PlannedSearch, Planner, WindowSearch};
use surface::DevicePicture;
use threshold::Thresholder;

mod alone;
mod bands;
mod correlation;
#[doc(hidden)]
pub mod driver;
mod fused;
mod idle;
mod mma;
mod ncc;
mod objects;
mod outlines;
mod overlay;
#[doc(hidden)]
pub mod parts;
mod range;
mod search;
mod shared;
mod staged;
mod surface;
mod suspects;
#[cfg(test)]
#[path = "../../../tests/test_log.rs"]
mod test_log;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;
mod texture;
mod threshold;
mod wgmma;

pub use driver::{DeviceInfo, device, devices, memory_at};
pub use surface::Opened;

/// The kernels in this build, for people: their number, the version of their PTX, and the oldest compute
/// capabilities that they are for.
pub const KERNELS: &str = env!("LOCKON_KERNELS");

/// A ring on the device of that number, as options ask for it.
///
/// # Errors
/// As [`Cuda::open`].
pub fn open(standing: Standing, options: &Options, number: usize) -> Result<Box<dyn Backend>> {
    if standing.is_idle() {
        return Ok(Box::new(Idle::open(&standing, options.depth, number)?));
    }
    if options.alone && standing.work_on_masks().is_none() {
        return Ok(Box::new(Alone::open(standing, options, number)?));
    }
    Ok(Box::new(Cuda::open(standing, options, number)?))
}

/// A CUDA device.
pub struct Cuda {
    work: Work,
    depth: usize,
    /// Remembers a failed call: after one no slot is touched.
    ring: Ring<Slot>,
}

/// What a frame's work is done by.
struct Planned {
    plan: Option<PlannedSearch>,
    /// Expands luma of limited range after its upload, if full range was requested.
    expand: Option<Expand>,
    /// Does the standing work of all frames, one after the other: side by side two would both take as long,
    /// and the older would be late.
    lane: Lane,
    thresholder: Option<Thresholder>,
}

/// The work on the slots of the ring: the parts of the device that they share, and the calls of the driver.
struct Work {
    gpu: Gpu,
    standing: Standing,
    planned: Planned,
    streams: Streams,
    objects: Option<ObjectWork>,
    /// One for each frame that a frame in flight can follow, and one for that.
    times: Vec<Times>,
    /// Index in `times` of the frame that is submitted next.
    turn: usize,
    masks: MaskPool,
    /// Slots are uploaded as they are.
    keeps_pixels: bool,
    traffic: Traffic,
    candidates: Vec<Candidate>,
}

impl Cuda {
    /// A ring on the device of that number, of as many slots and with the kernels that `options` ask for. All
    /// that every frame needs is allocated here. Frames are uploaded also if nothing is to be done to them.
    ///
    /// # Errors
    /// As [`Standing::check`]; `Backend`: no driver, an old one, no such device, frames larger than it can
    /// take, no room for them, no threads.
    pub fn open(standing: Standing, options: &Options, number: usize) -> Result<Self> {
        standing.check()?;
        let (depth, kernels) = (options.depth, options.kernels);
        let gpu = Gpu::open(number)?;
        check_size(&gpu, standing.frame)?;
        // The device's memory first: there is less of it, and it is had faster.
        let frames = (0..depth).map(|_| DeviceFrame::new(&gpu, standing.frame));
        let frames = frames.collect::<Result<Vec<_>>>()?;
        let planned = Planned::new(&gpu, &standing, kernels)?;
        let objects = match standing.work_on_masks() {
            Some(spec) => Some(ObjectWork::new(&gpu, &spec, standing.frame, options)?),
            None => None,
        };
        let slots = frames.into_iter().map(|frame| Slot::new(&gpu, frame, &standing));
        let mut slots = slots.collect::<Result<Vec<_>>>()?;
        let times = (0..=depth).map(|_| Times::new(&gpu)).collect::<Result<Vec<_>>>()?;
        // One a slot; more are made when sinks hold on to them.
        let masks = MaskPool::new(&gpu, standing.frame, if standing.wants_mask { depth } else { 0 })?;
        let mut work = Work {
            streams: Streams::new(&gpu)?,
            gpu,
            standing,
            planned,
            objects,
            times,
            turn: 0,
            masks,
            keeps_pixels: false,
            traffic: options.traffic.clone(),
            candidates: Vec::new(),
        };
        // Not at the first frames, which may be live.
        slots.iter_mut().try_for_each(|slot| work.capture(slot))?;
        Ok(Self { work, depth, ring: Ring::new("cuda", slots) })
    }

    /// From now on slots are uploaded with the pixels that they have: what a bench times is the device.
    pub fn keep_pixels(&mut self) {
        self.work.keeps_pixels = true;
    }
}

impl Planned {
    fn new(gpu: &Gpu, standing: &Standing, kernels: Kernels) -> Result<Self> {
        let searched = standing.bank.as_ref().map_or(0, |_| standing.roi.size().area());
        let mut lane = Lane::new(gpu, searched)?;
        let planner = Planner::new(gpu, kernels.ncc);
        let plan = match &standing.bank {
            Some(bank) => {
                let size = standing.roi.size();
                let plan = PlannedSearch::new(&planner, &lane.stream, bank.clone(), size, &standing.limits)?;
                plan.tell_replaced(kernels.ncc);
                lane.prepare(&plan)?;
                Some(plan)
            }
            None => None,
        };
        let thresholder = match &standing.threshold {
            Some(spec) => {
                let thresholder = Thresholder::new(gpu, &lane.stream, spec, standing.frame, kernels)?;
                tell_replaced(spec.method, thresholder.kernel(), kernels);
                Some(thresholder)
            }
            None => None,
        };
        let expand = if standing.expands { Some(Expand::load(gpu)?) } else { None };
        Ok(Self { plan, expand, lane, thresholder })
    }

    /// As [`Backend::take_background`].
    fn background(&self) -> Result<Option<Background>> {
        self.thresholder.as_ref().map_or(Ok(None), |it| it.background(&self.lane.stream))
    }

    /// As [`Backend::continue_from`].
    fn continue_from(&mut self, background: &Background) -> Result<()> {
        let Self { thresholder, lane, .. } = self;
        thresholder.as_mut().map_or(Ok(()), |it| it.continue_from(&lane.stream, background))
    }
}

impl Work {
    /// Takes a mask from the pool, if one is wanted.
    fn lend_mask(&mut self, slot: &mut Slot) -> Result<()> {
        if let Some(mask) = slot.mask.as_mut().filter(|_| self.standing.wants_mask) {
            mask.host = Some(self.masks.take()?);
        }
        Ok(())
    }

    /// Makes one graph of the kernels of all frames that come to lie in this slot: the host starts them by
    /// one call.
    fn capture(&mut self, slot: &mut Slot) -> Result<()> {
        let Self { standing, planned: Planned { plan, lane, thresholder, .. }, objects, .. } = self;
        if plan.is_none() && thresholder.is_none() {
            return Ok(());
        }
        let Slot { frame, list, mask, events, graph, .. } = slot;
        let made = lane.capture(&mut |lane| {
            if let (Some(thresholder), Some(mask)) = (&mut *thresholder, &mut *mask) {
                thresholder.run(&lane.stream, frame, &mut mask.device, list.foreground())?;
                if let Some(objects) = &mut *objects {
                    objects.clean(&lane.stream, mask, frame.size.width)?;
                }
                if standing.wants_mask {
                    events.thresholded.capture(&lane.stream)?;
                }
                if let (Some(objects), Some(components)) = (&mut *objects, &mut mask.components) {
                    objects.finder.count(&lane.stream, frame, components)?;
                }
            }
            match plan {
                Some(plan) => {
                    let search = WindowSearch::new(plan, standing.roi, &standing.limits);
                    lane.search(list, frame, search)
                }
                None => Ok(()),
            }
        })?;
        *graph = Some(made);
        Ok(())
    }

    /// Has the frame's pixels where [`Self::start`] takes them from: where the decoder left them, if that is
    /// on the device or in page-locked memory, else in the slot's pinned buffer.
    fn take_in(&self, slot: &mut Slot, picture: &Arc<dyn Picture>) -> Result<()> {
        let surface = picture.surface();
        let is_on_device = || surface.and_then(|surface| DevicePicture::of(&self.gpu, surface)).is_some();
        let is_pinned = || surface.is_none() && self.gpu.is_pinned(picture.plane(0).first_byte());
        if is_on_device() || is_pinned() {
            slot.held = Some(picture.clone());
        } else if !self.keeps_pixels {
            let started = Instant::now();
            slot.upload_plane().copy_from(picture.plane(0));
            surface.map_or(Ok(()), Surface::check)?;
            slot.fill_us = started.elapsed().as_micros() as u64;
            self.traffic.add_copied(slot.frame.size.area());
        }
        Ok(())
    }

    /// Puts a frame in a slot, and all its work, into the streams. `before` is the slot that was submitted
    /// before, if that is in flight.
    #[expect(unsafe_code, reason = "the device works on the slot's memory after this has returned")]
    fn start(&mut self, slot: &mut Slot, before: Option<&Slot>) -> Result<()> {
        let moves = self.objects.as_ref().map_or(0, |objects| objects.finder.moves());
        if slot.graph.is_none() || slot.moves != moves {
            slot.graph = None;
            self.capture(slot)?;
            slot.moves = moves;
        }
        let Streams { uploads, clock, masks, results } = &self.streams;
        let Slot { upload, frame, list, mask, events, graph, held, .. } = slot;
        let kernels = &self.planned.lane.stream;
        let times = &self.times[slot.turn];

        // While the upload before is still running, this one starts where that ends, which has its event
        // already.
        slot.waits_for_upload = before.is_some_and(|before| !before.events.uploaded.is_passed());
        if !slot.waits_for_upload {
            times.started.record(uploads)?;
        }
        if let Some(picture) = held {
            // SAFETY: the slot keeps the picture until `finish` has waited for the frame's last event, which
            // comes after this copy; if that fails, until `Cuda::drop` has waited for all streams.
            unsafe {
                let surface = picture.surface();
                if let Some(picture) = surface.and_then(|surface| DevicePicture::of(&self.gpu, surface)) {
                    picture.copy_luma(uploads, frame)?;
                } else {
                    let plane = picture.plane(0);
                    assert_eq!(plane.size(), frame.size, "frames of different size");
                    uploads.upload_rows(plane, frame.rows_from(0, 0))?;
                    self.traffic.add_up(frame.size.area());
                }
            }
        } else {
            let bytes = upload.len();
            // SAFETY: the ring keeps the slot, whatever fails, until `Cuda::drop` has waited for all streams.
            // Its pinned buffer is written by `submit` only, once `finish` has waited for the frame's last
            // event, which comes after this copy.
            unsafe { uploads.upload(upload, &mut frame.pixels, bytes)? };
            self.traffic.add_up(bytes);
        }
        // In this stream: kernels that begin early may read the frame before those in front of them end.
        if let Some(expand) = &self.planned.expand {
            expand.run(uploads, frame)?;
        }
        events.uploaded.record(uploads)?;
        clock.wait_for(&events.uploaded)?;
        times.uploaded.record(clock)?;

        kernels.wait_for(&events.uploaded)?;
        if let Some(graph) = graph {
            // SAFETY: it was captured with this slot's frame, list, mask and events, which the ring keeps as
            // said above, and with the plan, the lane and the thresholder, which are never replaced. Where
            // the list is replaced, `finish` drops the graph first. It copies nothing to or from the host.
            unsafe { kernels.run(graph)? };
        }
        events.computed.record(kernels)?;
        if let Some(Mask { device, cleaned, host: Some(host), .. }) = mask {
            let device = cleaned.as_ref().unwrap_or(device);
            masks.wait_for(&events.thresholded)?;
            let host = Arc::get_mut(host).expect("it was taken from the pool");
            // SAFETY: the slot has the only `Arc` of this mask until `finish` has waited for `times.done`,
            // which comes after this copy, and the ring keeps the slot as said above.
            unsafe { masks.download(device, 0, &mut host.pixels, frame.size.area())? };
            self.traffic.add_down(frame.size.area());
            events.masked.record(masks)?;
        }

        // Code that waits for the results may read all times.
        results.wait_for(&times.uploaded)?;
        results.wait_for(&events.computed)?;
        if graph.is_some() {
            // SAFETY: the list is the slot's, which the ring keeps as said above; it is read by `finish`,
            // after it has waited for an event that comes after this.
            unsafe { self.planned.lane.publish(list, results)? };
        }
        if let (Some(objects), Some(Mask { components: Some(components), .. })) = (&self.objects, mask) {
            // SAFETY: as the list.
            unsafe { objects.finder.publish(results, components)? };
        }
        times.published.record(results)?;
        if self.standing.wants_mask {
            results.wait_for(&events.masked)?;
            times.done.record(results)?;
        }
        Ok(())
    }

    /// Waits for the standing work of the oldest frame in flight, which lies in this slot, and gives its
    /// results.
    fn finish(&mut self, slot: &mut Slot, findings: &mut Findings) -> Result<()> {
        let times = &self.times[slot.turn];
        let before = &self.times[(slot.turn + self.times.len() - 1) % self.times.len()];
        let done = if self.standing.wants_mask { &times.done } else { &times.published };
        done.wait()?;
        slot.held = None;
        let upload_start = if slot.waits_for_upload { &before.uploaded } else { &times.started };
        findings.upload_us = slot.fill_us + upload_start.micros_to(&times.uploaded)? as u64;
        // The device turns to a frame when it is there and the one before is done with.
        let since_upload = times.uploaded.micros_to(done)?;
        let since_before = if slot.is_first { since_upload } else { before.published.micros_to(done)? };
        findings.standing_us = since_upload.min(since_before) as u64;
        findings.matches.clear();
        (findings.foreground, findings.mask, findings.redone) = (None, None, 0);
        findings.more_objects = 0;
        let Slot { frame, list, mask, graph, .. } = slot;
        let components = mask.as_mut().and_then(|mask| Some((&mask.device, mask.components.as_mut()?)));
        match (&mut self.objects, components) {
            (Some(objects), Some((mask, components))) => {
                let found = findings.objects.get_or_insert_default();
                if !objects.finder.had_room(components) {
                    // To count again frees the list that the graph writes to, and may fail after that.
                    *graph = None;
                }
                let (stream, pitch) = (&self.planned.lane.stream, frame.size.width);
                objects.check_memory(components.count())?;
                findings.redone += objects.finder.redo(stream, mask, pitch, frame, components)?;
                self.traffic.add_down(components.bytes());
                findings.more_objects = objects.find(stream, components, found)?;
            }
            _ => findings.objects = None,
        }
        if let Some(mask) = mask {
            findings.foreground = Some(list.foreground_count() as f64 / frame.size.area() as f64);
            findings.mask = mask.host.take().map(|host| self.masks.lend(host));
        }
        let Planned { plan, lane, .. } = &mut self.planned;
        if let Some(plan) = plan {
            let (roi, limits) = (self.standing.roi, &self.standing.limits);
            let search = WindowSearch::new(plan, roi, limits);
            if !list.had_room() {
                // As above.
                *graph = None;
            }
            findings.redone += lane.redo(list, &mut |lane, list| lane.search(list, frame, search))?;
            self.traffic.add_down(list.bytes());
            let found = list.candidates(&lane.stream)?;
            plan.select(found, (roi.x, roi.y), limits, &mut self.candidates, &mut findings.matches);
        }
        Ok(())
    }
}

/// Reports that another kernel than the requested one computes the threshold.
fn tell_replaced(method: ThresholdMethod, taken: Option<Kernel>, asked: Kernels) {
    let asked = match method {
        ThresholdMethod::Gaussian { .. } => asked.gaussian.map(Kernel::Gaussian),
        _ if method.has_block() => asked.boxes.map(Kernel::Box),
        _ => None,
    };
    if let (Some(asked), Some(taken)) = (asked, taken)
        && asked != taken
    {
        tracing::info!("the {} threshold is not for {asked}: {taken} is taken", method.name());
    }
}

/// Refuses frames that textures cannot read, or for which 32-bit sums of a row would not do.
fn check_size(gpu: &Gpu, frame: Size) -> Result<()> {
    let limit = |which| Ok::<_, Error>(gpu.attribute(which)?.min(MAX_SIDE));
    let max = Size::new(
        limit(Attribute::CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_LINEAR_WIDTH)?,
        limit(Attribute::CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_LINEAR_HEIGHT)?,
    );
    if frame.fits_in(max) { Ok(()) } else { Err(fault(DeviceFault::FrameTooLarge { frame, max })) }
}

impl Backend for Cuda {
    fn describe(&self) -> Device {
        self.work.gpu.info().describe()
    }

    fn depth(&self) -> usize {
        self.depth
    }

    fn submit(&mut self, meta: FrameMeta, picture: &Arc<dyn Picture>) -> Result<()> {
        let Self { work, ring, .. } = self;
        ring.submit(|slot, before| {
            slot.meta = Some(meta);
            slot.fill_us = 0;
            work.take_in(slot, picture)?;
            (slot.turn, slot.is_first) = (work.turn % work.times.len(), work.turn == 0);
            work.turn += 1;
            work.lend_mask(slot)?;
            work.start(slot, before)
        })
    }

    fn wait_next(&mut self, findings: &mut Findings) -> Result<Option<FrameMeta>> {
        let Self { work, ring, .. } = self;
        let meta = ring.wait_next(|slot| {
            work.finish(slot, findings)?;
            Ok(slot.meta.take())
        })?;
        Ok(meta.flatten())
    }

    fn take_background(&mut self) -> Result<Option<Background>> {
        self.work.planned.background()
    }

    fn continue_from(&mut self, background: Background) -> Result<()> {
        self.work.planned.continue_from(&background)
    }
}

impl Drop for Cuda {
    fn drop(&mut self) {
        // Work that still runs may be copying to and from the host's memory. Its failure was already
        // reported, or ends the run now.
        let Work { gpu, streams, planned: Planned { lane, plan, .. }, .. } = &mut self.work;
        let Streams { uploads, clock, masks, results } = streams;
        for stream in [uploads, clock, &lane.stream, masks, results] {
            let _ = stream.wait();
        }
        // Device memory is freed now, so that errors can be reported.
        self.ring.clear();
        *plan = None;
        tell_dropped(gpu);
    }
}

/// Reports what failed while the device's memory was freed.
fn tell_dropped(gpu: &Gpu) {
    match gpu.check_dropped() {
        // The loss of the device was reported when it happened.
        Err(error) if error.is_device_lost() => tracing::debug!("{error}"),
        Err(error) => tracing::warn!("{error}"),
        Ok(()) => {}
    }
}

/// The streams beside that of the kernels.
struct Streams {
    uploads: Stream,
    /// Records the time at which uploads end.
    clock: Stream,
    masks: Stream,
    /// It has a high priority, so that a frame's results need not wait for the next frame's kernels.
    results: Stream,
}

impl Streams {
    fn new(gpu: &Gpu) -> Result<Self> {
        Ok(Self {
            uploads: gpu.stream(Priority::Normal)?,
            clock: gpu.stream(Priority::Normal)?,
            masks: gpu.stream(Priority::Normal)?,
            results: gpu.stream(Priority::High)?,
        })
    }
}

/// When a frame was where.
struct Times {
    /// Before the upload, if no other was running.
    started: TimedEvent,
    uploaded: TimedEvent,
    published: TimedEvent,
    /// After the mask, if it is wanted.
    done: TimedEvent,
}

impl Times {
    fn new(gpu: &Gpu) -> Result<Self> {
        Ok(Self {
            started: gpu.timed_event()?,
            uploaded: gpu.timed_event()?,
            published: gpu.timed_event()?,
            done: gpu.timed_event()?,
        })
    }
}

/// A slot of the ring: buffers on both sides, and events in the streams.
struct Slot {
    meta: Option<FrameMeta>,
    /// Rows as they lie on the device.
    upload: PinnedBuffer<u8>,
    frame: DeviceFrame,
    list: CandidateList,
    /// Where frames are thresholded.
    mask: Option<Mask>,
    events: Events,
    /// The kernels, as they are started for each frame; none if there is nothing to do, or the list lies
    /// elsewhere now.
    graph: Option<Graph>,
    /// [`ObjectFinder::moves`] when that was made.
    moves: u64,
    /// The frame, if it is taken from where the decoder left it.
    held: Option<Arc<dyn Picture>>,
    fill_us: u64,
    /// Index in `times`.
    turn: usize,
    /// No frame came before.
    is_first: bool,
    /// The upload before was running when this one was submitted.
    waits_for_upload: bool,
}

/// Events that streams wait for.
struct Events {
    uploaded: Event,
    thresholded: Event,
    masked: Event,
    computed: Event,
}

/// A thresholded frame, on both sides.
struct Mask {
    device: DeviceBuffer<u8>,
    /// What cleaning made of it, if that is wanted.
    cleaned: Option<DeviceBuffer<u8>>,
    /// Where its objects are wanted.
    components: Option<ComponentList>,
    /// Where it is read back to, if it is wanted.
    host: Option<Arc<HostMask>>,
}

impl Mask {
    /// Room for it on the device, if frames are thresholded.
    fn of(gpu: &Gpu, standing: &Standing) -> Result<Option<Self>> {
        if standing.threshold.is_none() {
            return Ok(None);
        }
        let room = || gpu.alloc("a mask", standing.frame.area());
        let work = standing.work_on_masks();
        let is_cleaned = standing.wants_mask && work.is_some_and(|spec| !spec.cleaning.is_none());
        Ok(Some(Self {
            device: room()?,
            cleaned: if is_cleaned { Some(room()?) } else { None },
            components: match work {
                Some(spec) if spec.reports => Some(ComponentList::new(gpu, standing.frame)?),
                _ => None,
            },
            host: None,
        }))
    }
}

/// The work on masks: cleaning, and objects.
struct ObjectWork {
    finder: ObjectFinder,
    /// Makes objects of the components.
    pool: Arc<ThreadPool>,
    /// Most memory of components and objects, and how many lists of these there can be.
    memory: Bytes,
    lists: usize,
}

impl ObjectWork {
    fn new(gpu: &Gpu, spec: &ObjectSpec, size: Size, options: &Options) -> Result<Self> {
        let failed = |error: ThreadPoolBuildError| fault(DeviceFault::Other(error.to_string()));
        Ok(Self {
            finder: ObjectFinder::new(gpu, spec, size)?,
            pool: workers::pool("objects", options.threads).map_err(failed)?,
            memory: options.memory.unwrap_or_else(memory::default_limit),
            lists: lists_of_objects(options.depth),
        })
    }

    /// Cleans a frame's mask, and writes what is left of it where that is wanted.
    fn clean(&mut self, stream: &Stream, mask: &mut Mask, pitch: usize) -> Result<()> {
        self.finder.clean(stream, &mask.device, pitch)?;
        match &mut mask.cleaned {
            Some(cleaned) => self.finder.cleaned(stream, cleaned, pitch),
            None => Ok(()),
        }
    }

    /// Refuses what the lists of the host have no memory for.
    fn check_memory(&self, components: usize) -> Result<()> {
        let wanted = Bytes((components * (size_of::<Sums>() + self.lists * size_of::<Object>())) as u64);
        let size = self.finder.size();
        if wanted <= self.memory { Ok(()) } else { Err(too_many(size, wanted, self.memory)) }
    }

    /// The objects of a frame's components: [`ObjectFinder::objects`].
    fn find(&mut self, stream: &Stream, list: &mut ComponentList, objects: &mut Vec<Object>) -> Result<u64> {
        let Self { finder, pool, .. } = self;
        if list.count() < FEW {
            // To wake the pool would take longer.
            return finder.objects(stream, list, objects);
        }
        pool.install(|| finder.objects(stream, list, objects))
    }
}

/// A mask in page-locked memory, where the device writes it and sinks read it.
struct HostMask {
    pixels: PinnedBuffer<u8>,
    size: Size,
}

impl Picture for HostMask {
    fn plane(&self, index: usize) -> PlaneRef<'_> {
        assert_eq!(index, 0, "a mask is a picture of one plane");
        PlaneRef::new(self.pixels.as_slice(), self.size, self.size.width)
    }
}

/// Lent masks, reused after all holders have dropped them.
struct MaskPool {
    gpu: Gpu,
    size: Size,
    lent: Vec<Arc<HostMask>>,
}

impl MaskPool {
    fn new(gpu: &Gpu, size: Size, count: usize) -> Result<Self> {
        let mut pool = Self { gpu: gpu.clone(), size, lent: Vec::new() };
        for _ in 0..count {
            let mask = pool.make()?;
            pool.lent.push(mask);
        }
        Ok(pool)
    }

    fn make(&self) -> Result<Arc<HostMask>> {
        let pixels = self.gpu.alloc_pinned("a mask", self.size.area(), Pinned::Plain)?;
        Ok(Arc::new(HostMask { pixels, size: self.size }))
    }

    /// Takes a mask that no other code has.
    fn take(&mut self) -> Result<Arc<HostMask>> {
        match self.lent.iter_mut().position(|mask| Arc::get_mut(mask).is_some()) {
            Some(index) => Ok(self.lent.swap_remove(index)),
            None => self.make(),
        }
    }

    /// Lends a mask that the device has written.
    fn lend(&mut self, mask: Arc<HostMask>) -> Arc<dyn Picture> {
        self.lent.push(mask.clone());
        mask
    }
}

impl Slot {
    fn new(gpu: &Gpu, frame: DeviceFrame, standing: &Standing) -> Result<Self> {
        let mask = Mask::of(gpu, standing)?;
        Ok(Self {
            meta: None,
            list: CandidateList::new(gpu, standing.bank.is_some())?,
            mask,
            upload: gpu.alloc_pinned("a frame", frame.pixels.len(), Pinned::WriteCombined)?,
            frame,
            events: Events {
                uploaded: gpu.event()?,
                thresholded: gpu.event()?,
                masked: gpu.event()?,
                computed: gpu.event()?,
            },
            graph: None,
            moves: 0,
            held: None,
            fill_us: 0,
            turn: 0,
            is_first: false,
            waits_for_upload: false,
        })
    }

    /// The pinned buffer as a plane.
    fn upload_plane(&mut self) -> PlaneMut<'_> {
        PlaneMut::new(self.upload.as_mut_slice(), self.frame.size, self.frame.pitch)
    }
}
