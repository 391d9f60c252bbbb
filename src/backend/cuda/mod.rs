//! The CUDA backend: a ring of slots on a GPU, each with a stream of its own.
//!
//! A frame's way: `submit` has it written into the slot's pinned buffer and puts upload, threshold, searches and the reading
//! back of their results into the slot's stream; nothing waits. `wait_next` waits for the oldest slot's last event, and is
//! the only one that does; the frames behind it go on meanwhile, the upload of one beside the kernels of another. What the
//! tracker asks runs on a lane of high priority while the frame lies in its slot.
//!
//! What comes back are exact integers and scores by the numeric contract, so the host's part (vertices, suppression, limits)
//! is the code that the CPU backend runs too, and so are the bytes.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;

use crate::backend::peaks::Candidate;
use crate::backend::{Backend, Device, Findings, Query, Response, SlotId, Standing};
use crate::config::{Kernels, NccKernel};
use crate::error::{DeviceFault, Error, Result};
use crate::frame::{FrameMeta, Picture, PlaneMut, PlaneRef, Rect, Size};
use crate::template::{Bank, TemplateSums};

use driver::{Attribute, DeviceBuffer, Event, Gpu, Pinned, PinnedBuffer, Priority, fault};
use ncc::{DeviceFrame, FoundPeak, MAX_SIDE, patch_words};
use search::{Lane, PlannedSearch};
use threshold::Thresholder;
use wgmma::WgmmaKernels;

pub mod bench;
mod driver;
mod fused;
mod ncc;
mod search;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;
mod texture;
#[cfg(test)]
mod texture_model;
mod threshold;
mod wgmma;

pub use driver::{DeviceInfo, device, devices};

/// Fewest searches of the tracker that stay planned. Each track asks in a window of one size, and in the whole frame.
const PLANNED_SEARCHES: usize = 16;

/// A CUDA device.
pub struct Cuda {
    gpu: Gpu,
    standing: Arc<Standing>,
    plan: Option<Arc<PlannedSearch>>,
    depth: usize,
    free: Vec<Slot>,
    /// Submitted slots, oldest first.
    in_flight: VecDeque<Slot>,
    /// Slots between `wait_next` and `release`.
    handed_out: Vec<Slot>,
    masks: MaskPool,
    tracker: TrackerLane,
    candidates: Vec<Candidate>,
}

impl Cuda {
    /// A ring of `depth` slots (1 or more) on the device of that number. All that every frame needs is allocated here; what
    /// the tracker needs, when it asks for the first time.
    ///
    /// # Errors
    /// `Backend`: no driver, an old one, no such device, frames larger than it can take, no room for them.
    pub fn open(standing: Standing, depth: usize, kernels: Kernels, number: usize) -> Result<Self> {
        let gpu = Gpu::open(number)?;
        check_size(&gpu, standing.frame)?;
        let free: Result<Vec<_>> =
            (0..depth).rev().map(|id| Slot::new(&gpu, id, &standing, kernels)).collect();
        let free = free?;
        let stream = &free[0].lane.stream;
        let wgmma = if kernels.ncc == Some(NccKernel::Wgmma) { WgmmaKernels::load(&gpu)? } else { None };
        let plan = match &standing.bank {
            Some(bank) => {
                let plan = PlannedSearch::new(
                    &gpu,
                    stream,
                    bank.clone(),
                    standing.roi.size(),
                    None,
                    0,
                    wgmma.as_ref(),
                )?;
                plan.tell_replaced(&free[0].lane);
                Some(Arc::new(plan))
            }
            None => None,
        };
        // One a slot; more are made when sinks hold on to them.
        let masks = MaskPool::new(&gpu, standing.frame, if standing.wants_mask { depth } else { 0 })?;
        let tracker = TrackerLane::new(&gpu, standing.frame, kernels, wgmma);
        Ok(Self {
            gpu,
            standing: Arc::new(standing),
            plan,
            depth,
            free,
            in_flight: VecDeque::with_capacity(depth),
            handed_out: Vec::with_capacity(depth),
            masks,
            tracker,
            candidates: Vec::new(),
        })
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
        let DeviceInfo { number, name, capability, memory, driver } = self.gpu.info();
        let gib = *memory as f64 / f64::from(1 << 30);
        Device {
            backend: "cuda",
            name: format!("{name} (device {number}, compute capability {capability}, {gib:.0} GiB)"),
            driver: Some(format!("CUDA {driver}")),
        }
    }

    fn depth(&self) -> usize {
        self.depth
    }

    fn submit(&mut self, meta: FrameMeta, fill: &mut dyn FnMut(PlaneMut<'_>)) -> Result<()> {
        let mut slot = self.free.pop().expect("a slot is free");
        let started = Instant::now();
        fill(slot.upload_plane());
        slot.fill_us = started.elapsed().as_micros() as u64;
        slot.meta = Some(meta);
        let mut start = || {
            if let Some(Threshold { host, .. }) = slot.threshold.as_mut().filter(|_| self.standing.wants_mask)
            {
                *host = Some(self.masks.take()?);
            }
            slot.start(&self.standing, self.plan.as_deref(), self.in_flight.back())
        };
        let outcome = start();
        self.in_flight.push_back(slot);
        outcome
    }

    fn wait_next(&mut self, findings: &mut Findings) -> Result<Option<(SlotId, FrameMeta)>> {
        let Some(slot) = self.in_flight.front_mut() else { return Ok(None) };
        slot.finish(&self.standing, self.plan.as_deref(), &mut self.candidates, &mut self.masks, findings)?;
        findings.redone += std::mem::take(&mut self.tracker.redone);
        let mut slot = self.in_flight.pop_front().expect("looked at above");
        let handed_out = (SlotId(slot.id), slot.meta.take().expect("filled by submit"));
        self.handed_out.push(slot);
        Ok(Some(handed_out))
    }

    fn search(&mut self, slot: &SlotId, queries: &[Query], responses: &mut Vec<Response>) -> Result<()> {
        let slot = self.handed_out.iter().find(|s| s.id == slot.0).expect("the slot was handed out");
        responses.resize_with(queries.len(), Response::default);
        self.tracker.answer(&slot.frame, queries, responses, &mut self.candidates)
    }

    fn release(&mut self, slot: SlotId) {
        let index = self.handed_out.iter().position(|s| s.id == slot.0).expect("the slot was handed out");
        self.free.push(self.handed_out.swap_remove(index));
    }
}

impl Drop for Cuda {
    fn drop(&mut self) {
        // What still runs may be copying to and from the host's memory. That it failed was told, or ends the run now.
        for slot in self.free.iter().chain(&self.in_flight).chain(&self.handed_out) {
            let _ = slot.lane.stream.wait();
        }
        self.tracker.wait();
        // What lies on the device is freed now, so that what goes wrong can be told.
        self.free.clear();
        self.in_flight.clear();
        self.handed_out.clear();
        self.tracker.clear();
        self.plan = None;
        match self.gpu.check_dropped() {
            // That it is lost was said when it happened.
            Err(error) if error.is_device_lost() => tracing::debug!("{error}"),
            Err(error) => tracing::warn!("{error}"),
            Ok(()) => {}
        }
    }
}

/// One place of the ring: buffers on both sides, a lane, and marks in its stream.
struct Slot {
    id: usize,
    meta: Option<FrameMeta>,
    /// Rows as they lie on the device.
    upload: PinnedBuffer<u8>,
    frame: DeviceFrame,
    lane: Lane,
    threshold: Option<Threshold>,
    started: Event,
    uploaded: Event,
    computing: Event,
    computed: Event,
    done: Event,
    fill_us: u64,
}

/// The adaptive threshold's part of a slot.
struct Threshold {
    thresholder: Thresholder,
    mask: DeviceBuffer<u8>,
    /// Where this frame's mask is read back to, if it is wanted.
    host: Option<Arc<HostMask>>,
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

/// Masks that were lent, to be used again when everybody has dropped them.
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

    /// A mask that nobody else has.
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
    fn new(gpu: &Gpu, id: usize, standing: &Standing, kernels: Kernels) -> Result<Self> {
        let size = standing.frame;
        let frame = DeviceFrame::new(gpu, size)?;
        let searched = standing.bank.as_ref().map_or(0, |_| standing.roi.size().area());
        let lane = Lane::new(gpu, Priority::Normal, searched, kernels.ncc)?;
        let threshold = match &standing.threshold {
            None => None,
            Some(spec) => Some(Threshold {
                thresholder: Thresholder::new(gpu, &lane.stream, spec, size, kernels)?,
                mask: gpu.alloc("a mask", size.area())?,
                host: None,
            }),
        };
        Ok(Self {
            id,
            meta: None,
            upload: gpu.alloc_pinned("a frame", frame.pixels.len(), Pinned::WriteCombined)?,
            frame,
            lane,
            threshold,
            started: gpu.event()?,
            uploaded: gpu.event()?,
            computing: gpu.event()?,
            computed: gpu.event()?,
            done: gpu.event()?,
            fill_us: 0,
        })
    }

    /// The pinned buffer as a plane.
    fn upload_plane(&mut self) -> PlaneMut<'_> {
        PlaneMut::new(self.upload.as_mut_slice(), self.frame.size, self.frame.pitch)
    }

    /// Puts a frame's standing work into the stream. Its kernels come after those of `before`, the frame submitted last:
    /// side by side both would take as long as one after the other, and the older would be late.
    fn start(
        &mut self,
        standing: &Standing,
        plan: Option<&PlannedSearch>,
        before: Option<&Self>,
    ) -> Result<()> {
        let Self { upload, frame, lane, threshold, .. } = self;
        self.started.record(&lane.stream)?;
        let bytes = upload.len();
        lane.stream.upload(upload, &mut frame.pixels, bytes)?;
        self.uploaded.record(&lane.stream)?;
        if let Some(before) = before {
            lane.stream.wait_for(&before.computed)?;
        }
        self.computing.record(&lane.stream)?;
        lane.clear()?;
        if let Some(Threshold { thresholder, mask, .. }) = threshold {
            let (stream, counters, index) = lane.foreground();
            thresholder.run(stream, frame, mask, (counters, index))?;
        }
        if let Some(plan) = plan {
            lane.search(frame, plan, standing.roi, &standing.limits, 0)?;
        }
        self.computed.record(&lane.stream)?;
        if let Some(Threshold { mask, host: Some(host), .. }) = threshold {
            let host = Arc::get_mut(host).expect("it was taken from the pool");
            lane.stream.download(mask, 0, &mut host.pixels, frame.size.area())?;
        }
        if plan.is_some() || threshold.is_some() {
            lane.read_back()?;
        }
        self.done.record(&lane.stream)
    }

    /// Waits for the standing work and gives its results.
    fn finish(
        &mut self,
        standing: &Standing,
        plan: Option<&PlannedSearch>,
        candidates: &mut Vec<Candidate>,
        masks: &mut MaskPool,
        findings: &mut Findings,
    ) -> Result<()> {
        self.done.wait()?;
        findings.upload_us = self.fill_us + self.started.micros_to(&self.uploaded)? as u64;
        findings.standing_us = self.computing.micros_to(&self.done)? as u64;
        findings.matches.clear();
        (findings.foreground, findings.mask, findings.redone) = (None, None, 0);
        if let Some(Threshold { host, .. }) = &mut self.threshold {
            let area = self.frame.size.area();
            findings.foreground = Some(self.lane.foreground_count() as f64 / area as f64);
            findings.mask = host.take().map(|host| masks.lend(host));
        }
        if let Some(plan) = plan {
            while !self.lane.had_room()? {
                findings.redone += 1;
                self.lane.clear()?;
                self.lane.search(&self.frame, plan, standing.roi, &standing.limits, 0)?;
                self.lane.read_back()?;
                self.lane.stream.wait()?;
            }
            let Rect { x, y, .. } = standing.roi;
            let found = self.lane.candidates()?;
            plan.select(found, 0, (x, y), &standing.limits, candidates, &mut findings.matches);
        }
        Ok(())
    }
}

/// What answers the tracker: a lane of high priority, and the banks it has asked for lately.
struct TrackerLane {
    gpu: Gpu,
    frame: Size,
    kernels: Kernels,
    wgmma: Option<Arc<WgmmaKernels>>,
    /// Made when the first question comes: most runs have no tracks.
    lane: Option<Lane>,
    /// The most recently used last.
    planned: Vec<PlannedSearch>,
    plans_made: u64,
    patches: Vec<Patches>,
    /// What the device found in this round.
    found: Vec<FoundPeak>,
    /// How many searches stay planned.
    keep: usize,
    /// Rounds that were done twice, since somebody asked.
    redone: u64,
}

/// A box that is being cut out of a frame, on both sides.
struct Patches {
    device: DeviceBuffer<u64>,
    host: PinnedBuffer<u64>,
}

impl TrackerLane {
    fn new(gpu: &Gpu, frame: Size, kernels: Kernels, wgmma: Option<Arc<WgmmaKernels>>) -> Self {
        Self {
            gpu: gpu.clone(),
            wgmma,
            frame,
            kernels,
            lane: None,
            planned: Vec::new(),
            plans_made: 0,
            patches: Vec::new(),
            found: Vec::new(),
            keep: PLANNED_SEARCHES,
            redone: 0,
        }
    }

    /// All questions of a round go to the device together, and their answers come back together.
    fn answer(
        &mut self,
        frame: &DeviceFrame,
        queries: &[Query],
        responses: &mut [Response],
        candidates: &mut Vec<Candidate>,
    ) -> Result<()> {
        let mut lane = match self.lane.take() {
            Some(lane) => lane,
            None => Lane::new(&self.gpu, Priority::High, self.frame.area(), self.kernels.ncc)?,
        };
        let outcome = self.answer_on(&mut lane, frame, queries, responses, candidates);
        if outcome.is_err() {
            // Copies that were started before it failed end before anything is freed.
            let _ = lane.stream.wait();
        }
        self.lane = Some(lane);
        outcome
    }

    /// Waits for what still runs.
    fn wait(&self) {
        if let Some(lane) = &self.lane {
            let _ = lane.stream.wait();
        }
    }

    /// Frees all that lies on the device, after [`Self::wait`].
    fn clear(&mut self) {
        self.lane = None;
        self.planned.clear();
        self.patches.clear();
    }

    fn answer_on(
        &mut self,
        lane: &mut Lane,
        frame: &DeviceFrame,
        queries: &[Query],
        responses: &mut [Response],
        candidates: &mut Vec<Candidate>,
    ) -> Result<()> {
        self.start_patches(lane, frame, queries)?;
        // Two rounds' plans stay, so that tracks that ask in turn nearby and anywhere are not planned anew each time.
        self.keep = PLANNED_SEARCHES.max(2 * queries.len());
        loop {
            lane.clear()?;
            let (mut tag, mut has_searches) = (0, false);
            for query in queries {
                let Query::Search { bank, window, limits } = query else { continue };
                let plan = self.plan(lane, bank, window.size())?;
                lane.search(frame, plan, *window, limits, tag)?;
                tag += plan.members() as u32;
                has_searches = true;
            }
            if has_searches {
                lane.read_back()?;
            }
            lane.stream.wait()?;
            if !has_searches || lane.had_room()? {
                break;
            }
            self.redone += 1;
        }
        let has_searches = queries.iter().any(|query| matches!(query, Query::Search { .. }));
        let mut found = std::mem::take(&mut self.found);
        found.clear();
        if has_searches {
            found.extend(lane.candidates()?);
        }
        let (mut tag, mut patch) = (0, 0);
        for (query, response) in queries.iter().zip(responses) {
            match query {
                Query::Patch(rect) => {
                    response.matches.clear();
                    let words = self.patches[patch].host.as_slice();
                    patch += 1;
                    let answer = response.patch.get_or_insert_default();
                    answer.luma.resize(rect.size());
                    let area = rect.size().area() as i64;
                    answer.sums = TemplateSums { n: area, t1: words[0] as i64, t2: words[1] as i64 };
                    for (pixels, word) in answer.luma.data_mut().chunks_mut(8).zip(&words[2..]) {
                        pixels.copy_from_slice(&word.to_le_bytes()[..pixels.len()]);
                    }
                }
                Query::Search { bank, window, limits } => {
                    response.patch = None;
                    let plan = self.plan(lane, bank, window.size())?;
                    let tags = tag..tag + plan.members() as u32;
                    let of_this = found.iter().filter(|peak| tags.contains(&peak.tag)).copied();
                    let origin = (window.x, window.y);
                    plan.select(of_this, tags.start, origin, limits, candidates, &mut response.matches);
                    tag = tags.end;
                }
            }
        }
        self.found = found;
        Ok(())
    }

    /// Starts cutting all boxes out of the frame and reading them back.
    fn start_patches(&mut self, lane: &mut Lane, frame: &DeviceFrame, queries: &[Query]) -> Result<()> {
        let boxes = queries.iter().filter_map(|query| match query {
            Query::Patch(rect) => Some(*rect),
            Query::Search { .. } => None,
        });
        for (index, rect) in boxes.enumerate() {
            let words = patch_words(rect.size());
            if self.patches.get(index).is_none_or(|patch| patch.host.len() < words) {
                let room = Patches {
                    device: self.gpu.alloc("a patch", words)?,
                    host: self.gpu.alloc_pinned("a patch", words, Pinned::Plain)?,
                };
                if index < self.patches.len() {
                    self.patches[index] = room;
                } else {
                    self.patches.push(room);
                }
            }
            let Patches { device, host } = &mut self.patches[index];
            lane.stream.clear(device, words)?;
            lane.kernels.cut_patch(&lane.stream, frame, rect, device)?;
            lane.stream.download(device, 0, host, words)?;
        }
        Ok(())
    }

    /// The plan for a bank in windows of this size, made now if it is new.
    fn plan(&mut self, lane: &Lane, bank: &Arc<Bank>, window: Size) -> Result<&PlannedSearch> {
        if let Some(index) = self.planned.iter().position(|plan| plan.is_for(bank, window)) {
            let plan = self.planned.remove(index);
            self.planned.push(plan);
        } else {
            let is_full = self.planned.len() >= self.keep;
            let retired = is_full.then(|| self.planned.remove(0));
            self.plans_made += 1;
            let plan = PlannedSearch::new(
                &self.gpu,
                &lane.stream,
                bank.clone(),
                window,
                retired,
                self.plans_made,
                self.wgmma.as_ref(),
            )?;
            self.planned.push(plan);
        }
        Ok(self.planned.last().expect("pushed above"))
    }
}
