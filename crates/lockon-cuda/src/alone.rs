//! A device for callers that wait for each frame before they bring the next one: all of a frame's work is in
//! one stream, and no event measures it, so that its results are there sooner.
//!
//! The ring (`lib.rs`) does more frames a second, since each is uploaded while the one before is searched.
//! Where there is only one, its events and its streams are in the way: the streams of an H100 take 2 us to
//! wait for one another, and to ask for the times of a frame takes 8 us.

#![expect(unsafe_code, reason = "the device works on the slot's memory after a call has returned")]

use std::sync::Arc;

use lockon_core::backend::peaks::Candidate;
use lockon_core::backend::ring::Ring;
use lockon_core::backend::threshold::Background;
use lockon_core::backend::{Backend, Device, Findings, Options, Standing};
use lockon_core::error::Result;
use lockon_core::frame::{FrameMeta, Picture};
use lockon_core::surface::{Surface, Traffic};

use super::bands::Bands;
use super::driver::{Gpu, Graph, Mark};
use super::ncc::DeviceFrame;
use super::search::{CandidateList, WindowSearch};
use super::surface::DevicePicture;
use super::{Mask, MaskPool, Planned};

/// A device with one slot. It finds no objects.
pub(super) struct Alone {
    work: Work,
    ring: Ring<Slot>,
}

/// What does the work in the slot.
struct Work {
    gpu: Gpu,
    standing: Standing,
    planned: Planned,
    masks: MaskPool,
    traffic: Traffic,
    candidates: Vec<Candidate>,
}

struct Slot {
    meta: Option<FrameMeta>,
    bands: Bands,
    frame: DeviceFrame,
    list: CandidateList,
    /// Where frames are thresholded.
    mask: Option<Mask>,
    /// All kernels; none if there is nothing to do, or the list lies elsewhere now.
    graph: Option<Graph>,
    /// The frame, if it is taken from where it lies.
    held: Option<Arc<dyn Picture>>,
    mark: Mark,
}

impl Alone {
    /// Opens the device of that number.
    ///
    /// # Errors
    /// As [`super::Cuda::open`].
    pub(super) fn open(standing: Standing, options: &Options, number: usize) -> Result<Self> {
        standing.check()?;
        let gpu = Gpu::open(number)?;
        super::check_size(&gpu, standing.frame)?;
        let frame = DeviceFrame::new(&gpu, standing.frame)?;
        let planned = Planned::new(&gpu, &standing, options.kernels)?;
        let mut slot = Slot {
            meta: None,
            bands: Bands::new(&gpu, &frame, options.threads)?,
            frame,
            list: CandidateList::new(&gpu, standing.bank.is_some())?,
            mask: Mask::of(&gpu, &standing)?,
            graph: None,
            held: None,
            mark: gpu.mark()?,
        };
        let masks = MaskPool::new(&gpu, standing.frame, usize::from(standing.wants_mask))?;
        let traffic = options.traffic.clone();
        let mut work = Work { gpu, standing, planned, masks, traffic, candidates: Vec::new() };
        work.capture(&mut slot)?;
        Ok(Self { work, ring: Ring::new("cuda", vec![slot]) })
    }
}

impl Work {
    /// Makes one graph of all kernels, to the one that passes the results to the host.
    fn capture(&mut self, slot: &mut Slot) -> Result<()> {
        let Self { standing, planned: Planned { plan, lane, thresholder, .. }, .. } = self;
        if plan.is_none() && thresholder.is_none() {
            return Ok(());
        }
        let Slot { frame, list, mask, graph, .. } = slot;
        let made = lane.capture(&mut |lane| {
            if let (Some(thresholder), Some(mask)) = (&mut *thresholder, &mut *mask) {
                thresholder.run(&lane.stream, frame, &mut mask.device, list.foreground())?;
            }
            if let Some(plan) = plan {
                let search = WindowSearch::new(plan, standing.roi, &standing.limits);
                lane.search(list, frame, search)?;
            }
            // SAFETY: `start` runs the graph, and the ring keeps the list until that was waited for; `finish`
            // reads it then.
            unsafe { lane.publish(list, &lane.stream) }
        })?;
        *graph = Some(made);
        Ok(())
    }

    /// Puts a frame, and all its work, into the stream.
    fn start(&mut self, slot: &mut Slot, picture: &Arc<dyn Picture>) -> Result<()> {
        if slot.graph.is_none() {
            self.capture(slot)?;
        }
        let Self { gpu, standing, planned, masks, traffic, .. } = self;
        let Slot { bands, frame, mask, graph, held, .. } = slot;
        let stream = &planned.lane.stream;
        let surface = picture.surface();
        let on_device = surface.and_then(|surface| DevicePicture::of(gpu, surface));
        // SAFETY: the slot keeps the picture, and the ring the slot, until `finish` has waited for the
        // stream, or `Alone::drop` has, whatever fails. The bands are used again after that.
        unsafe {
            if let Some(on_device) = on_device {
                *held = Some(picture.clone());
                on_device.copy_luma(stream, frame)?;
            } else {
                let plane = picture.plane(0);
                surface.map_or(Ok(()), Surface::check)?;
                assert_eq!(plane.size(), frame.size, "frames of different size");
                if surface.is_none() && gpu.is_pinned(plane.first_byte()) {
                    *held = Some(picture.clone());
                    stream.upload_rows(plane, frame.rows_from(0, 0))?;
                } else {
                    bands.upload(stream, plane, frame)?;
                    traffic.add_copied(frame.size.area());
                }
                traffic.add_up(frame.size.area());
            }
        }
        if let Some(expand) = &planned.expand {
            expand.run(stream, frame)?;
        }
        if let Some(graph) = graph {
            // SAFETY: it was captured with the slot's frame, list and mask, which the ring keeps as said
            // above, and with the plan, the lane and the thresholder, which are never replaced. Where the
            // list is replaced, `finish` drops the graph first. It writes to the list on the host, which is
            // read once the stream was waited for.
            unsafe { stream.run(graph)? };
        }
        if let Some(Mask { device, host, .. }) = mask
            && standing.wants_mask
        {
            let host = Arc::get_mut(host.insert(masks.take()?)).expect("it was taken from the pool");
            // SAFETY: the slot has the only `Arc` of this mask until `finish` has waited for the stream, and
            // the ring keeps the slot as said above.
            unsafe { stream.download(device, 0, &mut host.pixels, frame.size.area())? };
            traffic.add_down(frame.size.area());
        }
        Ok(())
    }

    /// Waits for the frame in the slot, and gives its results.
    fn finish(&mut self, slot: &mut Slot, findings: &mut Findings) -> Result<()> {
        let Self { standing, planned: Planned { plan, lane, .. }, masks, traffic, candidates, .. } = self;
        let Slot { frame, list, mask, graph, held, mark, .. } = slot;
        lane.stream.wait_for_mark(mark)?;
        *held = None;
        *findings = Findings { matches: std::mem::take(&mut findings.matches), ..Findings::default() };
        findings.matches.clear();
        if let Some(mask) = mask {
            findings.foreground = Some(list.foreground_count() as f64 / frame.size.area() as f64);
            findings.mask = mask.host.take().map(|host| masks.lend(host));
        }
        if let Some(plan) = plan {
            let (roi, limits) = (standing.roi, &standing.limits);
            let search = WindowSearch::new(plan, roi, limits);
            if !list.had_room() {
                // To search again frees the list that the graph writes to, and may fail after that.
                *graph = None;
            }
            findings.redone = lane.redo(list, &mut |lane, list| lane.search(list, frame, search))?;
            traffic.add_down(list.bytes());
            let found = list.candidates(&lane.stream)?;
            plan.select(found, (roi.x, roi.y), limits, candidates, &mut findings.matches);
        }
        Ok(())
    }
}

impl Backend for Alone {
    fn describe(&self) -> Device {
        self.work.gpu.info().describe()
    }

    fn depth(&self) -> usize {
        1
    }

    fn submit(&mut self, meta: FrameMeta, picture: &Arc<dyn Picture>) -> Result<()> {
        let Self { work, ring } = self;
        ring.submit(|slot, _| {
            slot.meta = Some(meta);
            work.start(slot, picture)
        })
    }

    fn wait_next(&mut self, findings: &mut Findings) -> Result<Option<FrameMeta>> {
        let Self { work, ring } = self;
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

impl Drop for Alone {
    fn drop(&mut self) {
        // Work that still runs may be copying to and from the host's memory.
        let _ = self.work.planned.lane.stream.wait();
        self.ring.clear();
        self.work.planned.plan = None;
        super::tell_dropped(&self.work.gpu);
    }
}
