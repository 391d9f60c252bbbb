//! Times the kernels by events on the device, for `lockon bench kernels`.
//!
//! Between repeats a buffer of several times the L2 cache is written, so that each finds its input in the device's memory,
//! as a frame that has just been uploaded would lie there.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::config::{Kernel, Kernels, Limits, NccKernel, ThresholdSpec};
use crate::error::Result;
use crate::frame::{Plane, PlaneMut, Rect, Size};
use crate::results::Match;
use crate::template::Bank;

use super::driver::{Attribute, DeviceBuffer, Event, Gpu, Pinned, Priority, Stream};
use super::ncc::{DeviceFrame, positions};
use super::search::{CandidateList, Lane, PlannedSearch};
use super::texture::{Address, Array, Coordinates, Filter, Read, Resample, Sampling, Texture};
use super::threshold::Thresholder;
use super::wgmma::WgmmaKernels;

/// Fewest and most repeats of one thing, and how long it may be repeated.
const FEWEST: usize = 5;
const MOST: usize = 100;
const LONG_ENOUGH: Duration = Duration::from_millis(400);

/// A device, and what timing on it needs.
pub struct Bench {
    gpu: Gpu,
    stream: Stream,
    start: Event,
    end: Event,
    flushed: DeviceBuffer<u8>,
}

/// How long something took, each time in microseconds, in rising order.
pub type Micros = Vec<f64>;

/// A search that was timed.
#[derive(Debug)]
pub struct TimedSearch {
    /// The kernel that did the work; another than was asked for, if the template is too large for that.
    pub kernel: Kernel,
    /// Score map of the bank's last member, row by row, if its kernel makes one.
    pub scores: Option<Vec<f64>>,
    /// Matches of the bank.
    pub matches: Vec<Match>,
    /// All kernels, and handing the candidates to the host.
    pub micros: Micros,
}

/// A threshold that was timed.
#[derive(Debug)]
pub struct TimedThreshold {
    /// The kernel that did the work; another than was asked for, if the block is too large for that.
    pub kernel: Kernel,
    /// The thresholded picture.
    pub mask: Plane,
    /// All kernels.
    pub micros: Micros,
}

/// Where a picture that is resampled lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Picture {
    /// In rows.
    Rows,
    /// In a CUDA array.
    Array,
}

/// What is copied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Copy {
    /// To the device from memory that the processor does not cache, as the ring does.
    UploadWriteCombined,
    /// To the device from memory that the processor caches.
    Upload,
    /// From the device.
    ReadBack,
}

impl Bench {
    /// Opens the device of that number.
    ///
    /// # Errors
    /// `Backend`.
    pub fn open(number: usize) -> Result<Self> {
        let gpu = Gpu::open(number)?;
        let cache = gpu.attribute(Attribute::CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE)?;
        Ok(Self {
            stream: gpu.stream(Priority::Normal)?,
            start: gpu.event()?,
            end: gpu.event()?,
            flushed: gpu.alloc("flushing the cache", 4 * cache)?,
            gpu,
        })
    }

    /// Times the search of a bank in a whole frame, as the ring does it for one match a name.
    ///
    /// # Errors
    /// `Backend`.
    ///
    /// # Panics
    /// If a member is larger than the frame.
    pub fn search(
        &mut self,
        picture: &Plane,
        bank: &Arc<Bank>,
        asked: Option<NccKernel>,
    ) -> Result<TimedSearch> {
        let size = picture.size();
        let limits = Limits::default();
        let frame = self.upload(picture)?;
        let mut lane = Lane::new(&self.gpu, Priority::Normal, size.area(), asked)?;
        let wgmma = if asked == Some(NccKernel::Wgmma) { WgmmaKernels::load(&self.gpu)? } else { None };
        let plan = PlannedSearch::new(&self.gpu, &lane.stream, bank.clone(), size, None, 0, wgmma.as_ref())?;
        let whole = Rect::whole(size);
        let stream = lane.stream.clone();
        let mut list = CandidateList::new(&self.gpu, true)?;
        let micros = self.time(&stream, &mut || {
            lane.search(&mut list, &frame, &plan, whole, &limits, 0)?;
            lane.publish(&mut list, &stream)
        })?;
        lane.run(&mut list, &mut |lane, list| lane.search(list, &frame, &plan, whole, &limits, 0))?;
        let mut matches = Vec::new();
        plan.select(list.candidates(&stream)?, 0, (0, 0), &limits, &mut Vec::new(), &mut matches);
        let kernel = plan.kernel(&lane);
        let last = bank.members().last().expect("a bank has members").size();
        let scores = match kernel {
            NccKernel::Wgmma => None,
            _ => Some(lane.score_map(positions(size, last))?),
        };
        Ok(TimedSearch { kernel: Kernel::Ncc(kernel), scores, matches, micros })
    }

    /// Times an adaptive threshold.
    ///
    /// # Errors
    /// `Backend`.
    pub fn threshold(
        &mut self,
        picture: &Plane,
        spec: &ThresholdSpec,
        kernels: Kernels,
    ) -> Result<TimedThreshold> {
        let size = picture.size();
        let frame = self.upload(picture)?;
        let mut mask = self.gpu.alloc("a mask", size.area())?;
        let mut counter = self.gpu.alloc::<u64>("a counter", 1)?;
        let mut thresholder = Thresholder::new(&self.gpu, &self.stream, spec, size, kernels)?;
        let stream = self.stream.clone();
        let micros =
            self.time(&stream, &mut || thresholder.run(&stream, &frame, &mut mask, (&mut counter, 0)))?;
        let mut found = Plane::new(size);
        self.stream.download_now(&mask, found.data_mut())?;
        Ok(TimedThreshold { kernel: thresholder.kernel(), mask: found, micros })
    }

    /// Times scaling and turning a picture with linear filtering, and tells the size of what comes out.
    ///
    /// # Errors
    /// `Backend`.
    pub fn resample(
        &mut self,
        picture: &Plane,
        scale: f64,
        angle: f64,
        from: Picture,
    ) -> Result<(Micros, Size)> {
        let sampling = Sampling {
            filter: Filter::Linear,
            address: Address::Wrap,
            coordinates: Coordinates::Normalised,
            read: Read::NormalisedFloat,
        };
        let size = picture.size();
        let frame = self.upload(picture)?;
        let texture = match from {
            Picture::Rows => {
                Texture::over_rows::<u8, _>(&self.gpu, &frame.pixels, 0, frame.pitch, size, sampling)?
            }
            Picture::Array => {
                let array = Array::<u8>::new_2d(&self.gpu, size)?;
                array.upload_now(picture.data(), &self.stream)?;
                Texture::over_array(&Arc::new(array), sampling)?
            }
        };
        let resample = Resample::load(&self.gpu)?;
        let made = crate::template::resampled_size(size, scale, angle);
        let mut out = self.gpu.alloc("a resampled picture", made.area())?;
        let stream = self.stream.clone();
        let micros =
            self.time(&stream, &mut || resample.run(&stream, &texture, scale, angle, &mut out).map(drop))?;
        Ok((micros, made))
    }

    /// Times copying one plane between pinned host memory and the device.
    ///
    /// # Errors
    /// `Backend`.
    pub fn copy(&mut self, size: Size, copy: Copy) -> Result<Micros> {
        let kind = match copy {
            Copy::UploadWriteCombined => Pinned::WriteCombined,
            Copy::Upload | Copy::ReadBack => Pinned::Plain,
        };
        let area = size.area();
        let mut host = self.gpu.alloc_pinned::<u8>("a plane", area, kind)?;
        let mut device = self.gpu.alloc::<u8>("a plane", area)?;
        let stream = self.stream.clone();
        self.time(&stream, &mut || match copy {
            Copy::UploadWriteCombined | Copy::Upload => stream.upload(&host, &mut device, area),
            Copy::ReadBack => stream.download(&device, 0, &mut host, area),
        })
    }

    fn upload(&self, picture: &Plane) -> Result<DeviceFrame> {
        let mut frame = DeviceFrame::new(&self.gpu, picture.size())?;
        let mut bytes = vec![0; frame.pixels.len()];
        PlaneMut::new(&mut bytes, frame.size, frame.pitch).copy_from(picture.as_ref());
        self.stream.upload_now(&bytes, &mut frame.pixels)?;
        Ok(frame)
    }

    /// Repeats `work`, which puts itself into `stream`, with a cold cache.
    fn time(&mut self, stream: &Stream, work: &mut dyn FnMut() -> Result<()>) -> Result<Micros> {
        // The first run pays for what the driver puts off.
        work()?;
        stream.wait()?;
        let began = Instant::now();
        let mut micros = Vec::with_capacity(MOST);
        while micros.len() < FEWEST || (micros.len() < MOST && began.elapsed() < LONG_ENOUGH) {
            let length = self.flushed.len();
            stream.clear(&mut self.flushed, length)?;
            self.start.record(stream)?;
            work()?;
            self.end.record(stream)?;
            self.end.wait()?;
            micros.push(self.start.micros_to(&self.end)?);
        }
        micros.sort_by(f64::total_cmp);
        Ok(micros)
    }
}
