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
use lockon_core::frame::{FrameMeta, Picture, Size};
use lockon_core::surface::{Surface, Traffic};

use super::bands::Bands;
use super::driver::{Gpu, Graph, Mark, Rows};
use super::ncc::DeviceFrame;
use super::search::{CandidateList, WindowSearch};
use super::surface::DevicePicture;
use super::{Mask, MaskPool, Planned};

/// Places of frames on the device that are remembered: a caller has few buffers, which it uses in turn.
const MOST_PLACES: usize = 8;

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
    /// Where frames on the device lay last, the newest one last, and the same work behind the copy of a frame
    /// from there, once there was a second one: to start a copy takes 4 us.
    places: Vec<(Rows, Option<Graph>)>,
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
            places: Vec::new(),
            held: None,
            mark: gpu.mark()?,
        };
        let masks = MaskPool::new(&gpu, standing.frame, usize::from(standing.wants_mask))?;
        let traffic = options.traffic.clone();
        let mut work = Work { gpu, standing, planned, masks, traffic, candidates: Vec::new() };
        slot.graph = work.capture(&mut slot, None)?;
        Ok(Self { work, ring: Ring::new("cuda", vec![slot]) })
    }
}

impl Work {
    /// Makes one graph of all kernels, to the one that passes the results to the host, and of the copy of a
    /// frame on the device before them, if it lies at `from`. `None` if there is nothing to do.
    fn capture(&mut self, slot: &mut Slot, from: Option<Rows>) -> Result<Option<Graph>> {
        let Self { standing, planned: Planned { plan, lane, thresholder, .. }, .. } = self;
        if plan.is_none() && thresholder.is_none() {
            return Ok(None);
        }
        let Slot { frame, list, mask, .. } = slot;
        let made = lane.capture(&mut |lane| {
            if let Some(from) = from {
                let Size { width, height } = frame.size;
                // SAFETY: `start` runs this graph only for a frame that lies there, and has as many rows.
                unsafe { lane.stream.copy_rows(from, frame.rows_from(0, 0), width, height)? };
            }
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
        Ok(Some(made))
    }

    /// The place of the graph in `places` that copies a frame from there too, if there is one.
    fn graph_from(&mut self, slot: &mut Slot, from: Rows) -> Result<Option<usize>> {
        if self.planned.expand.is_some() {
            return Ok(None);
        }
        let Some(known) = slot.places.iter().position(|(rows, _)| *rows == from) else {
            if slot.places.len() == MOST_PLACES {
                slot.places.remove(0);
            }
            slot.places.push((from, None));
            return Ok(None);
        };
        // Those used last are kept.
        let place = slot.places.remove(known);
        slot.places.push(place);
        let known = slot.places.len() - 1;
        if slot.places[known].1.is_none() {
            slot.places[known].1 = self.capture(slot, Some(from))?;
        }
        Ok(slot.places[known].1.is_some().then_some(known))
    }

    /// Puts a frame, and all its work, into the stream.
    fn start(&mut self, slot: &mut Slot, picture: &Arc<dyn Picture>) -> Result<()> {
        if slot.graph.is_none() {
            slot.graph = self.capture(slot, None)?;
        }
        let on_device = picture.surface().and_then(|surface| DevicePicture::of(&self.gpu, surface));
        let with_copy = match on_device {
            Some(on_device) => self.graph_from(slot, on_device.luma(slot.frame.size))?,
            None => None,
        };
        let Self { gpu, standing, planned, masks, traffic, .. } = self;
        let Slot { bands, frame, mask, graph, places, held, .. } = slot;
        let stream = &planned.lane.stream;
        let surface = picture.surface();
        // SAFETY: the slot keeps the picture, and the ring the slot, until `finish` has waited for the
        // stream, or `Alone::drop` has, whatever fails. The bands are used again after that.
        unsafe {
            if let Some(on_device) = on_device {
                *held = Some(picture.clone());
                if with_copy.is_some() {
                    on_device.begin(stream)?;
                } else {
                    on_device.copy_luma(stream, frame)?;
                }
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
        let graph = with_copy.map_or(graph.as_ref(), |index| places[index].1.as_ref());
        if let Some(graph) = graph {
            // SAFETY: it was captured with the slot's frame, list and mask, which the ring keeps as said
            // above, and with the plan, the lane and the thresholder, which are never replaced. Where the
            // list is replaced, `finish` drops all graphs first. One that copies the frame has its address,
            // and the slot keeps the picture that has it. It writes to the list on the host, which is
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
        let Slot { frame, list, mask, graph, places, held, mark, .. } = slot;
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
                // To search again frees the list that the graphs write to, and may fail after that.
                *graph = None;
                places.clear();
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

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use lockon_core::backend::cpu;
    use lockon_core::config::Limits;
    use lockon_core::device_memory::{DeviceMemory, DevicePlane, SurfaceDevice};
    use lockon_core::frame::{PixelFormat, Plane, VideoFormat};
    use lockon_core::template::Bank;

    use super::*;
    use crate::driver::{DeviceBuffer, Priority, Stream};
    use crate::testing::{self, Random};
    use crate::{Opened, open};

    fn meta(index: u64) -> FrameMeta {
        FrameMeta { index, pts_ns: None, duration_ns: None, arrived: Instant::now() }
    }

    fn found(backend: &mut dyn Backend, index: u64, picture: &Arc<dyn Picture>) -> Findings {
        backend.submit(meta(index), picture).unwrap();
        let mut findings = Findings::default();
        let said = backend.wait_next(&mut findings).unwrap();
        assert_eq!(said.map(|meta| meta.index), Some(index));
        assert!(backend.wait_next(&mut Findings::default()).unwrap().is_none());
        findings
    }

    fn assert_same(found: &Findings, expected: &Findings, what: &str) {
        assert_eq!(found.matches, expected.matches, "{what}");
        assert_eq!(found.foreground, expected.foreground, "{what}");
        let mask = |findings: &Findings| findings.mask.as_ref().map(|mask| mask.plane(0).to_plane());
        assert!(mask(found) == mask(expected), "{what}: another mask");
    }

    /// A picture whose luma is that of a buffer on the device, whose rows are `stride` bytes apart.
    fn adopted(
        opened: &Opened,
        buffer: &Arc<DeviceBuffer<u8>>,
        size: Size,
        stride: usize,
    ) -> Arc<dyn Picture> {
        let format = VideoFormat {
            size,
            pixels: PixelFormat::from_name("GRAY8").unwrap(),
            frame_rate: (0, 1),
            pixel_aspect: (1, 1),
            colorimetry: None,
        };
        let plane = DevicePlane { address: buffer.address(), stride };
        let (context, _) = opened.context();
        // SAFETY: the buffer has the plane, is kept, and nobody writes to it before the frame is done.
        let memory = unsafe { DeviceMemory::new(context, vec![plane], None, Box::new(buffer.clone())) };
        opened.adopt(memory, &format).unwrap()
    }

    fn filled(stream: &Stream, picture: &Plane, stride: usize) -> Arc<DeviceBuffer<u8>> {
        let size = picture.size();
        let mut bytes = vec![0xA5; stride * size.height];
        for (row, to) in picture.as_ref().rows().zip(bytes.chunks_exact_mut(stride)) {
            to[..row.len()].copy_from_slice(row);
        }
        let mut buffer = stream.gpu().alloc("a picture", bytes.len()).unwrap();
        stream.upload_now(&bytes, &mut buffer).unwrap();
        Arc::new(buffer)
    }

    #[test]
    fn frames_one_at_a_time_have_the_findings_of_the_cpu_wherever_they_lie() {
        let Some(gpu) = testing::gpu() else { return };
        let (stream, opened) = (gpu.stream(Priority::Normal).unwrap(), Opened::open(0).unwrap());
        let mut random = Random(91);
        let size = Size::new(641, 363);
        let pictures: Vec<_> = (0..12).map(|_| random.picture(size)).collect();
        for (side, max_matches) in [(3, 50), (24, 1), (24, 9)] {
            let template = random.template(pictures[0].as_ref(), Size::new(side, side), "t");
            let bank = Bank::new(vec![template]).unwrap();
            let limits =
                Limits { min_score: if side == 3 { -1.0 } else { 0.3 }, max_matches, max_overlap: 0.2 };
            let standing = Standing::new(size)
                .thresholding(Some("mean:31:5".parse().unwrap()), true)
                .searching(&bank, None, limits)
                .unwrap();
            let options = Options { alone: true, threads: 8, ..Options::default() };
            let mut alone = open(standing.clone(), &options, 0).unwrap();
            let mut cpu = cpu::Cpu::open(standing, &Options { threads: 2, ..Options::default() }).unwrap();
            let expected: Vec<_> = (0..)
                .zip(&pictures)
                .map(|(index, picture)| {
                    let picture: Arc<dyn Picture> = Arc::new(picture.clone());
                    found(&mut cpu, index, &picture)
                })
                .collect();
            let buffers: Vec<_> = (0..)
                .zip(&pictures)
                .map(|(index, picture)| filled(&stream, picture, size.width + index % 3 * 7))
                .collect();
            for turn in 0..4 {
                for (index, picture) in pictures.iter().enumerate() {
                    let host: Arc<dyn Picture> = Arc::new(picture.clone());
                    let on_host = found(&mut *alone, index as u64, &host);
                    assert_same(
                        &on_host,
                        &expected[index],
                        &format!("frame {index} of the host, turn {turn}"),
                    );
                    // Of twelve places more come by than are remembered; of three none is forgotten.
                    let index = if turn < 2 { index } else { index % 3 };
                    let there = adopted(&opened, &buffers[index], size, size.width + index % 3 * 7);
                    let on_device = found(&mut *alone, index as u64, &there);
                    assert_same(&on_device, &expected[index], &format!("frame {index} there, turn {turn}"));
                }
            }
        }
        gpu.check_dropped().unwrap();
    }
}
