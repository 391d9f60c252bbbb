//! Searches, thresholds and objects of single frames: for `lockon-bench`, which times them.

#![expect(unsafe_code, reason = "the device writes into the host's memory after a call has returned")]

use std::sync::Arc;

use lockon_core::config::{Kernel, Kernels, Limits, NccKernel, ObjectSpec, ThresholdSpec};
use lockon_core::error::Result;
use lockon_core::frame::{PlaneMut, PlaneRef, Rect, Size};
use lockon_core::results::{Match, Object};
use lockon_core::template::Bank;

use super::driver::{DeviceBuffer, Gpu, Stream};
use super::ncc::{DeviceFrame, positions};
use super::objects::{ComponentList, ObjectFinder};
use super::search::{CandidateList, Lane, PlannedSearch, Planner, WindowSearch};
use super::threshold::Thresholder;

/// A frame on the device.
pub struct Frame(DeviceFrame);

impl Frame {
    /// Copies a picture to the device and waits.
    pub fn upload(stream: &Stream, picture: PlaneRef<'_>) -> Result<Self> {
        let mut frame = DeviceFrame::new(stream.gpu(), picture.size())?;
        let mut bytes = vec![0; frame.pixels.len()];
        PlaneMut::new(&mut bytes, frame.size, frame.pitch).copy_from(picture);
        stream.upload_now(&bytes, &mut frame.pixels)?;
        Ok(Self(frame))
    }

    /// Its width and height.
    pub fn size(&self) -> Size {
        self.0.size
    }

    /// Bytes from the start of a row to that of the next.
    pub fn pitch(&self) -> usize {
        self.0.pitch
    }

    /// Its rows.
    pub fn pixels(&self) -> &DeviceBuffer<u8> {
        &self.0.pixels
    }
}

/// Room for what a search finds.
pub struct Found(CandidateList);

/// A bank that is searched in one window of frames, on a stream of its own.
pub struct BankSearch {
    lane: Lane,
    plan: PlannedSearch,
    window: Rect,
    limits: Limits,
}

impl BankSearch {
    /// Plans it as the ring does, with the requested kernel if that suits the templates.
    ///
    /// # Panics
    /// If a member is larger than the window.
    pub fn new(
        gpu: &Gpu,
        window: Rect,
        bank: &Arc<Bank>,
        limits: &Limits,
        asked: Option<NccKernel>,
    ) -> Result<Self> {
        let mut lane = Lane::new(gpu, window.size().area())?;
        let planner = Planner::new(gpu, asked);
        let plan = PlannedSearch::new(&planner, &lane.stream, bank.clone(), window.size(), limits)?;
        lane.prepare(&plan)?;
        Ok(Self { lane, plan, window, limits: *limits })
    }

    /// The kernel that searches for the first member.
    pub fn kernel(&self) -> Kernel {
        Kernel::Ncc(self.plan.kernel())
    }

    /// The stream that it runs on.
    pub fn stream(&self) -> Stream {
        self.lane.stream.clone()
    }

    /// From now on each launch begins when the one before has ended.
    pub fn run_one_by_one(&mut self) {
        self.lane.stream = self.lane.stream.one_by_one();
    }

    /// An empty list.
    pub fn room(&self) -> Result<Found> {
        CandidateList::new(self.lane.stream.gpu(), true).map(Found)
    }

    /// Searches a frame and waits, until all that is found has room.
    ///
    /// # Panics
    /// If the window does not lie inside the frame.
    pub fn run(&mut self, frame: &Frame, found: &mut Found) -> Result<()> {
        let Self { lane, plan, window, limits } = self;
        let search = WindowSearch::new(plan, *window, limits);
        lane.run(&mut found.0, &mut |lane, list| lane.search(list, &frame.0, search))?;
        Ok(())
    }

    /// Returns the matches that [`Self::run`] has found.
    pub fn matches(&self, found: &mut Found) -> Result<Vec<Match>> {
        let Self { lane, plan, window, limits } = self;
        let mut matches = Vec::new();
        let peaks = found.0.candidates(&lane.stream)?;
        plan.select(peaks, (window.x, window.y), limits, &mut Vec::new(), &mut matches);
        Ok(matches)
    }

    /// Returns the scores of the last member in the frame that was searched last, row by row, if its kernel
    /// leaves them.
    pub fn score_map(&self) -> Result<Option<Vec<f64>>> {
        if !self.plan.makes_map() {
            return Ok(None);
        }
        let last = self.plan.bank().members().last().expect("a bank has members").size();
        self.lane.score_map(positions(self.window.size(), last)).map(Some)
    }

    /// Puts a search into the stream, without waiting. The frame and the list are kept until it is done.
    ///
    /// # Panics
    /// If the window does not lie inside the frame.
    pub fn start(&mut self, frame: &Frame, found: &mut Found) -> Result<()> {
        let Self { lane, plan, window, limits } = self;
        lane.search(&mut found.0, &frame.0, WindowSearch::new(plan, *window, limits))
    }

    /// Puts the copy of what was found to the host into the stream, without waiting, which empties the list.
    ///
    /// # Safety
    /// Until that is done (known from a wait for the stream or for a later event in it) the list is neither
    /// dropped nor given to [`Self::run`] or [`Self::matches`].
    pub unsafe fn publish(&self, found: &mut Found) -> Result<()> {
        // SAFETY: the caller keeps the list, and only `run` and `matches` read it.
        unsafe { self.lane.publish(&mut found.0, &self.lane.stream) }
    }
}

/// An adaptive threshold, planned for frames of one size.
pub struct Threshold {
    thresholder: Thresholder,
    counter: DeviceBuffer<u64>,
}

impl Threshold {
    /// Plans it as the ring does, with the requested kernels if they suit the block.
    pub fn new(stream: &Stream, spec: &ThresholdSpec, size: Size, kernels: Kernels) -> Result<Self> {
        let gpu = stream.gpu();
        let thresholder = Thresholder::new(gpu, stream, spec, size, kernels)?;
        Ok(Self { thresholder, counter: gpu.alloc("a counter", 1)? })
    }

    /// The kernel that makes the mask, if it is one of those that can be chosen.
    pub fn kernel(&self) -> Option<Kernel> {
        self.thresholder.kernel()
    }

    /// Puts the threshold of a frame into a stream, without waiting: 255 or 0 for every pixel. The frame and
    /// the mask are kept until it is done.
    ///
    /// # Panics
    /// If the frame is of another size, or the mask is too small.
    pub fn start(&mut self, stream: &Stream, frame: &Frame, mask: &mut DeviceBuffer<u8>) -> Result<()> {
        self.thresholder.run(stream, &frame.0, mask, (&mut self.counter, 0))
    }
}

/// The objects of masks of one size.
pub struct Objects {
    finder: ObjectFinder,
    list: ComponentList,
}

impl Objects {
    /// Finds them as `spec` says.
    ///
    /// # Errors
    /// `Usage` if masks of that size are too large; those of the device.
    pub fn new(gpu: &Gpu, spec: &ObjectSpec, size: Size) -> Result<Self> {
        Ok(Self { finder: ObjectFinder::new(gpu, spec, size)?, list: ComponentList::new(gpu, size)? })
    }

    /// Puts cleaning and counting into a stream, without waiting. `mask` has rows without padding; it and the
    /// frame, which has the objects' luma, are kept until that is done.
    ///
    /// # Panics
    /// If the frame or the mask is of another size.
    pub fn start(&mut self, stream: &Stream, mask: &DeviceBuffer<u8>, frame: &Frame) -> Result<()> {
        self.finder.clean(stream, mask, frame.size().width)?;
        self.finder.count(stream, &frame.0, &mut self.list)
    }

    /// Waits, and writes the objects of the mask and the frame that were counted last. Returns how many are
    /// beyond the maximum.
    pub fn wait(
        &mut self,
        stream: &Stream,
        mask: &DeviceBuffer<u8>,
        frame: &Frame,
        objects: &mut Vec<Object>,
    ) -> Result<u64> {
        let Self { finder, list } = self;
        // SAFETY: it is waited for in the next line, and until then the list is borrowed.
        unsafe { finder.publish(stream, list)? };
        stream.wait()?;
        finder.redo(stream, mask, frame.size().width, &frame.0, list)?;
        finder.objects(stream, list, objects)
    }

    /// Puts the mask that was cleaned last into a stream, in its own colours and rows without padding,
    /// without waiting.
    ///
    /// # Panics
    /// If it has no room.
    pub fn cleaned(&self, stream: &Stream, mask: &mut DeviceBuffer<u8>) -> Result<()> {
        self.finder.cleaned(stream, mask, self.finder.size().width)
    }
}
