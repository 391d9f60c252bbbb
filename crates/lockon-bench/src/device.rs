//! Times the kernels by events on the device.
//!
//! A kernel is timed over a set of frames that together do not fit in the L2 cache, so that each finds its
//! input in the device's memory, as a frame that has just been uploaded would lie there. Their work is
//! captured into one graph, whose time is divided by the frames: what a launch costs the host is not in it,
//! as it is not in a ring that is full. A kernel that takes long is timed over fewer frames; it does not wait
//! for its input.
//!
//! Where a launch can begin before the one before has ended (`kernels/launches.cuh`), the work of a frame
//! begins on multiprocessors that the one before it has left. So there is a second time, of frames that are
//! worked on one by one.

#![expect(unsafe_code, reason = "copies and graphs go on after a call has returned")]

use std::sync::Arc;
use std::time::{Duration, Instant};

use lockon_core::config::{Kernel, Kernels, Limits, NccKernel, ObjectSpec, ThresholdSpec};
use lockon_core::error::{Error, Result};
use lockon_core::frame::{Plane, Rect, Size};
use lockon_core::results::{Match, Object};
use lockon_core::template::Bank;

use lockon_cuda::driver::{Attribute, DeviceBuffer, Gpu, Graph, Pinned, Priority, Stream, TimedEvent};
use lockon_cuda::parts::{BankSearch, Frame, Objects, Threshold};

use super::peers::{Fft, Npp};
use super::table::Micros;
use super::textures::{Address, Array, Coordinates, Filter, Read, Resample, Sampling, View};

/// Fewest and most repeats of one thing, and how long it may be repeated.
const FEWEST: usize = 5;
const MOST: usize = 100;
const LONG_ENOUGH: Duration = Duration::from_millis(400);

/// How long a graph may take, in microseconds, unless a single frame takes longer.
const GRAPH_US: f64 = 50_000.0;

/// Copies of one plane that are timed together.
const COPIES: usize = 64;

/// A device, and what timing on it needs.
pub(super) struct Bench {
    gpu: Gpu,
    stream: Stream,
    start: TimedEvent,
    end: TimedEvent,
    flushed: DeviceBuffer<u8>,
}

/// Frames of one size on the device.
pub(super) struct Frames {
    size: Size,
    frames: Vec<Frame>,
}

/// A search that was timed.
#[derive(Debug)]
pub(super) struct TimedSearch {
    /// The kernel that did the work; not the requested one if the template is too large for that.
    pub(super) kernel: Kernel,
    /// Score map of the bank's last member in the first frame, row by row, if its kernel makes one.
    pub(super) scores: Option<Vec<f64>>,
    /// Matches of the bank in each frame that it was timed over.
    pub(super) matches: Vec<Vec<Match>>,
    /// All kernels, for one frame.
    pub(super) micros: Micros,
    /// As `micros`, with launches that all begin when the one before has ended, if they can begin sooner on
    /// this device and no kernel was requested.
    pub(super) one_by_one: Option<Micros>,
}

/// A threshold that was timed.
#[derive(Debug)]
pub(super) struct TimedThreshold {
    /// The kernel that did the work; not the requested one if the block is too large for that.
    pub(super) kernel: Kernel,
    /// The first frame, thresholded.
    pub(super) mask: Plane,
    /// All kernels, for one frame.
    pub(super) micros: Micros,
    /// As of a search.
    pub(super) one_by_one: Option<Micros>,
}

/// The answer of another library, and how long it took.
#[derive(Debug)]
pub(super) struct TimedPeer<T> {
    /// Its answer for the first frame.
    pub(super) answer: Vec<T>,
    /// For one frame.
    pub(super) micros: Micros,
}

/// Where a picture that is resampled lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PictureMemory {
    /// In rows.
    Rows,
    /// In a CUDA array.
    Array,
}

/// The direction and memory of a copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Copy {
    /// To the device from memory that the processor does not cache, as the ring does.
    UploadWriteCombined,
    /// To the device from memory that the processor caches.
    Upload,
    /// From the device.
    ReadBack,
    /// Both ways at once.
    BothWays,
}

impl Bench {
    /// Times on a device that is open.
    ///
    /// # Errors
    /// `Backend`.
    pub(super) fn new(gpu: &Gpu) -> Result<Self> {
        let cache = gpu.attribute(Attribute::CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE)?;
        Ok(Self {
            stream: gpu.stream(Priority::Normal)?,
            start: gpu.timed_event()?,
            end: gpu.timed_event()?,
            flushed: gpu.alloc("flushing the cache", 4 * cache)?,
            gpu: gpu.clone(),
        })
    }

    /// Puts pictures of one size on the device.
    ///
    /// # Errors
    /// `Backend`.
    ///
    /// # Panics
    /// If there are none, or their sizes differ.
    pub(super) fn load(&self, pictures: &[Plane]) -> Result<Frames> {
        let size = pictures.first().expect("there are pictures").size();
        let frames = pictures.iter().map(|picture| self.upload(picture)).collect::<Result<_>>()?;
        Ok(Frames { size, frames })
    }

    /// Times the search of a bank in a window of each frame, as the ring does it.
    ///
    /// # Errors
    /// `Backend`.
    ///
    /// # Panics
    /// If the window does not lie inside the frames, or a member is larger.
    pub(super) fn search(
        &mut self,
        frames: &Frames,
        window: Rect,
        bank: &Arc<Bank>,
        limits: &Limits,
        asked: Option<NccKernel>,
    ) -> Result<TimedSearch> {
        let mut search = BankSearch::new(&self.gpu, window, bank, limits, asked)?;
        let stream = search.stream();
        let found = |search: &mut BankSearch, frame: &Frame| {
            let mut list = search.room()?;
            let began = Instant::now();
            search.run(frame, &mut list)?;
            let took_us = began.elapsed().as_secs_f64() * 1e6;
            let matches = search.matches(&mut list)?;
            Ok::<_, Error>((list, matches, took_us))
        };
        // The first run pays for what the driver puts off.
        found(&mut search, &frames.frames[0])?;
        let (_, _, took_us) = found(&mut search, &frames.frames[0])?;
        let used = &frames.frames[..frames_for(took_us, frames.frames.len())];
        let (mut lists, mut matches) = (Vec::new(), Vec::new());
        // The first frame last, so that its score map stays.
        for frame in used.iter().rev() {
            let (list, found, _) = found(&mut search, frame)?;
            lists.push(list);
            matches.push(found);
        }
        lists.reverse();
        matches.reverse();
        let scores = search.score_map()?;
        let mut time = |search: &mut BankSearch| {
            self.time_frames(&stream, used.len(), &mut |step| match step {
                Step::Work(index) => search.start(&used[index], &mut lists[index]),
                // SAFETY: the lists live until `time_frames` has waited, and no code reads them.
                Step::Between => lists.iter_mut().try_for_each(|list| unsafe { search.publish(list) }),
            })
        };
        let micros = time(&mut search)?;
        search.run_one_by_one();
        let tells_both = asked.is_none() && self.gpu.begins_early();
        let one_by_one = if tells_both { Some(time(&mut search)?) } else { None };
        Ok(TimedSearch { kernel: search.kernel(), scores, matches, micros, one_by_one })
    }

    /// Times an adaptive threshold.
    ///
    /// # Errors
    /// `Backend`.
    pub(super) fn threshold(
        &mut self,
        frames: &Frames,
        spec: &ThresholdSpec,
        kernels: Kernels,
    ) -> Result<TimedThreshold> {
        let mut masks = self.masks(frames)?;
        let mut threshold = Threshold::new(&self.stream, spec, frames.size, kernels)?;
        let mut time = |stream: &Stream| {
            self.time_frames(stream, masks.len(), &mut |step| match step {
                Step::Work(index) => threshold.start(stream, &frames.frames[index], &mut masks[index]),
                Step::Between => Ok(()),
            })
        };
        let micros = time(&self.stream)?;
        let is_asked = kernels.boxes.is_some() || kernels.gaussian.is_some();
        let tells_both = !is_asked && self.gpu.begins_early();
        let one_by_one = if tells_both { Some(time(&self.stream.one_by_one())?) } else { None };
        let mut mask = Plane::new(frames.size);
        self.stream.download_now(&masks[0], mask.data_mut())?;
        let kernel = threshold.kernel().expect("all that are timed have kernels that can be chosen");
        Ok(TimedThreshold { kernel, mask, micros, one_by_one })
    }

    /// Times the objects of a mask, with the luma of each of the frames, and reads those of the first, and
    /// the mask after cleaning.
    ///
    /// # Errors
    /// `Backend`.
    pub(super) fn objects(
        &mut self,
        frames: &Frames,
        mask: &Plane,
        spec: &ObjectSpec,
    ) -> Result<(Micros, Vec<Object>, Plane)> {
        let mut masks = self.masks(frames)?;
        for on_device in &mut masks {
            self.stream.upload_now(mask.data(), on_device)?;
        }
        let stream = self.stream.clone();
        let mut finder = Objects::new(&self.gpu, spec, frames.size)?;
        let mut objects = Vec::new();
        finder.start(&stream, &masks[0], &frames.frames[0])?;
        // Makes room, too.
        finder.wait(&stream, &masks[0], &frames.frames[0], &mut objects)?;
        let micros = self.time_frames(&stream, masks.len(), &mut |step| match step {
            Step::Work(index) => finder.start(&stream, &masks[index], &frames.frames[index]),
            Step::Between => Ok(()),
        })?;
        finder.start(&stream, &masks[0], &frames.frames[0])?;
        finder.wait(&stream, &masks[0], &frames.frames[0], &mut objects)?;
        finder.cleaned(&stream, &mut masks[0])?;
        let mut cleaned = Plane::new(frames.size);
        stream.download_now(&masks[0], cleaned.data_mut())?;
        Ok((micros, objects, cleaned))
    }

    /// Times NPP's score map of a template in whole frames, which it gives in f32.
    ///
    /// # Errors
    /// `Backend`, if NPP fails too.
    pub(super) fn npp_search(
        &mut self,
        npp: &Npp,
        frames: &Frames,
        template: &Plane,
    ) -> Result<TimedPeer<f32>> {
        let template = self.upload(template)?;
        let map = template.size().positions_in(frames.size);
        let mut scores = self.gpu.alloc::<f32>("a score map", map.area())?;
        let stream = self.stream.clone();
        let mut search = npp.search(&self.gpu, &stream, frames.size)?;
        search.run(&frames.frames[0], &template, &mut scores)?;
        let mut answer = vec![0.0; map.area()];
        stream.download_now(&scores, &mut answer)?;
        let micros = self.time_frames(&stream, frames.frames.len(), &mut |step| match step {
            Step::Work(index) => search.run(&frames.frames[index], &template, &mut scores),
            Step::Between => Ok(()),
        })?;
        Ok(TimedPeer { answer, micros })
    }

    /// Times NPP's adaptive threshold by the mean.
    ///
    /// # Errors
    /// `Backend`, if NPP fails too.
    pub(super) fn npp_threshold(
        &mut self,
        npp: &Npp,
        frames: &Frames,
        block: usize,
        c: f32,
    ) -> Result<TimedPeer<u8>> {
        let mut masks = self.masks(frames)?;
        let stream = self.stream.clone();
        let threshold = npp.threshold(&self.gpu, &stream, block, c)?;
        let micros = self.time_frames(&stream, masks.len(), &mut |step| match step {
            Step::Work(index) => threshold.run(&frames.frames[index], &mut masks[index]),
            Step::Between => Ok(()),
        })?;
        let mut answer = vec![0; frames.size.area()];
        stream.download_now(&masks[0], &mut answer)?;
        Ok(TimedPeer { answer, micros })
    }

    /// Times a transform of whole frames in f32 and the transform back, and gives what came of the first
    /// frame: itself, times its pixels.
    ///
    /// # Errors
    /// `Backend`, if cuFFT fails too.
    pub(super) fn fft(&mut self, fft: &Fft, pictures: &[Plane]) -> Result<TimedPeer<f32>> {
        let size = pictures[0].size();
        let stream = self.stream.clone();
        let planes = pictures.iter().map(|picture| {
            let numbers: Vec<_> = picture.data().iter().map(|&pixel| f32::from(pixel)).collect();
            let mut plane = self.gpu.alloc("a plane", numbers.len())?;
            stream.upload_now(&numbers, &mut plane).map(|()| plane)
        });
        let planes = planes.collect::<Result<Vec<_>>>()?;
        let mut transform = fft.transform(&self.gpu, &stream, size)?;
        transform.run(&planes[0])?;
        let mut answer = vec![0.0; size.area()];
        stream.download_now(transform.result(), &mut answer)?;
        let micros = self.time_frames(&stream, planes.len(), &mut |step| match step {
            Step::Work(index) => transform.run(&planes[index]),
            Step::Between => Ok(()),
        })?;
        Ok(TimedPeer { answer, micros })
    }

    /// Times scaling and turning a picture with linear filtering, the cache flushed before, and reports the
    /// size of the result.
    ///
    /// # Errors
    /// `Backend`.
    pub(super) fn resample(
        &mut self,
        picture: &Plane,
        scale: f64,
        angle: f64,
        from: PictureMemory,
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
            PictureMemory::Rows => {
                // SAFETY: the frame lives as long as this call.
                unsafe { View::over_rows::<u8, _>(&self.gpu, frame.pixels(), frame.pitch(), size, sampling)? }
            }
            PictureMemory::Array => {
                let array = Array::<u8>::new_2d(&self.gpu, size)?;
                array.upload_now(picture.data(), &self.stream)?;
                View::over_array(&Arc::new(array), sampling)?
            }
        };
        let resample = Resample::load(&self.gpu)?;
        let made = lockon_core::template::resampled_size(size, scale, angle);
        let mut out = self.gpu.alloc("a resampled picture", made.area())?;
        let stream = self.stream.clone();
        // The first run pays for what the driver puts off.
        resample.run(&stream, &texture, scale, angle, &mut out)?;
        let length = self.flushed.len();
        let micros = repeat(&mut || {
            stream.clear(&mut self.flushed, length)?;
            self.start.record(&stream)?;
            resample.run(&stream, &texture, scale, angle, &mut out)?;
            self.end.record(&stream)?;
            self.end.wait()?;
            self.start.micros_to(&self.end)
        })?;
        Ok((micros, made))
    }

    /// Times copying one plane between pinned host memory and the device, many times without a pause.
    ///
    /// # Errors
    /// `Backend`.
    pub(super) fn copy(&mut self, size: Size, copy: Copy) -> Result<Micros> {
        let kind = match copy {
            Copy::UploadWriteCombined | Copy::BothWays => Pinned::WriteCombined,
            Copy::Upload | Copy::ReadBack => Pinned::Plain,
        };
        let area = size.area();
        let mut host = self.gpu.alloc_pinned::<u8>("a plane", area, kind)?;
        let mut back = self.gpu.alloc_pinned::<u8>("a plane", area, Pinned::Plain)?;
        let [mut device, other] = [self.gpu.alloc::<u8>("a plane", area)?, self.gpu.alloc("a plane", area)?];
        let (stream, second) = (self.stream.clone(), self.gpu.stream(Priority::Normal)?);
        let joined = self.gpu.event()?;
        let micros = repeat(&mut || {
            self.start.record(&stream)?;
            second.wait_for(&self.start)?;
            for _ in 0..COPIES {
                // SAFETY: both planes of the host live until the waits below, whatever fails, and no other
                // code reads or writes them.
                unsafe {
                    match copy {
                        Copy::UploadWriteCombined | Copy::Upload => {
                            stream.upload(&host, &mut device, area)?;
                        }
                        Copy::ReadBack => stream.download(&device, 0, &mut host, area)?,
                        Copy::BothWays => {
                            stream.upload(&host, &mut device, area)?;
                            second.download(&other, 0, &mut back, area)?;
                        }
                    }
                }
            }
            joined.record(&second)?;
            stream.wait_for(&joined)?;
            self.end.record(&stream)?;
            self.end.wait()?;
            Ok(self.start.micros_to(&self.end)? / COPIES as f64)
        });
        // A call may have failed after copies were started.
        stream.wait().and(second.wait()).and(micros)
    }

    fn upload(&self, picture: &Plane) -> Result<Frame> {
        Frame::upload(&self.stream, picture.as_ref())
    }

    fn masks(&self, frames: &Frames) -> Result<Vec<DeviceBuffer<u8>>> {
        frames.frames.iter().map(|_| self.gpu.alloc("a mask", frames.size.area())).collect()
    }

    /// Times work on each of so many frames, which puts itself into `stream`.
    fn time_frames(
        &self,
        stream: &Stream,
        frames: usize,
        work: &mut dyn FnMut(Step) -> Result<()>,
    ) -> Result<Micros> {
        // The first run pays for what the driver puts off.
        for _ in 0..2 {
            self.start.record(stream)?;
            work(Step::Work(0))?;
            self.end.record(stream)?;
            self.end.wait()?;
        }
        let one = self.start.micros_to(&self.end)?;
        let frames = frames_for(one, frames);
        let mut all = || (0..frames).try_for_each(|index| work(Step::Work(index)));
        // Work that cannot be captured is started frame by frame: the device is kept busy if each frame takes
        // long enough.
        let graph = stream.capture(&mut all).ok();
        let run = |graph: Option<&Graph>, all: &mut dyn FnMut() -> Result<()>| match graph {
            // SAFETY: what `work` was given is borrowed by it, and lives until the waits below; where one of
            // them fails, nothing runs any more.
            Some(graph) => unsafe { stream.run(graph) },
            None => all(),
        };
        let micros = run(graph.as_ref(), &mut all).and_then(|()| {
            repeat(&mut || {
                work(Step::Between)?;
                let mut all = || (0..frames).try_for_each(|index| work(Step::Work(index)));
                self.start.record(stream)?;
                run(graph.as_ref(), &mut all)?;
                self.end.record(stream)?;
                self.end.wait()?;
                Ok(self.start.micros_to(&self.end)? / frames as f64)
            })
        });
        // A call may have failed after work was started.
        stream.wait().and(micros)
    }
}

/// Over how many of so many frames something is timed that takes so long for one.
fn frames_for(one_us: f64, frames: usize) -> usize {
    ((GRAPH_US / one_us) as usize).clamp(1, frames)
}

/// A step to put into a stream.
enum Step {
    /// The work on the frame of that number.
    Work(usize),
    /// The preparation for the next repetition.
    Between,
}

/// Repeats `work`, which returns its time in microseconds.
fn repeat(work: &mut dyn FnMut() -> Result<f64>) -> Result<Micros> {
    let began = Instant::now();
    let mut micros = Vec::with_capacity(MOST);
    while micros.len() < FEWEST || (micros.len() < MOST && began.elapsed() < LONG_ENOUGH) {
        micros.push(work()?);
    }
    micros.sort_by(f64::total_cmp);
    Ok(micros)
}
