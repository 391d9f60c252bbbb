//! What the tests share: frames made in memory, and ends for the engine to run between.

use std::collections::VecDeque;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use lockon::backend::{self, Backend, Device, Options, Standing};
use lockon::config::{BackendChoice, Kernels, Limits, ThresholdSpec, TrackSpec};
use lockon::engine::{Engine, OpenBackend};
use lockon::frame::{Frame, FrameMeta, Picture, PixelFormat, Plane, PlaneRef, Size, VideoFormat};
use lockon::ports::{Delivery, Next, Sink, Source};
use lockon::results::{FrameRecord, RunRecord, Summary};
use lockon::template::{Bank, Template};
use lockon::tracker::Tracker;
use lockon::{Error, Result};

/// Numbers that look random and are the same every time: D. Lehmer's generator, as L'Ecuyer parametrised it.
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)
    }

    pub fn byte(&mut self) -> u8 {
        self.0 = self.0.wrapping_mul(0xDA94_2042_E4DD_58B5).wrapping_add(0x9E37_79B9);
        (self.0 >> 56) as u8
    }
}

/// A picture of random bytes.
pub fn noise(seed: u64, size: Size) -> Plane {
    let mut random = Random::new(seed);
    Plane::from_vec((0..size.area()).map(|_| random.byte()).collect(), size)
}

/// Copies `patch` into `picture` at (`x`, `y`).
pub fn paste(picture: &mut Plane, patch: &Plane, x: usize, y: usize) {
    let (width, size) = (picture.size().width, patch.size());
    for row in 0..size.height {
        let at = (y + row) * width + x;
        picture.data_mut()[at..at + size.width].copy_from_slice(patch.as_ref().row(row));
    }
}

struct Grey {
    bytes: Vec<u8>,
    size: Size,
    stride: usize,
}

impl Picture for Grey {
    fn plane(&self, _: usize) -> PlaneRef<'_> {
        PlaneRef::new(&self.bytes, self.size, self.stride)
    }
}

/// A frame with padded rows, 40 ms apart from the one before. Padding is poisoned: it must never matter.
pub fn frame(index: u64, luma: &Plane) -> Frame {
    let (size, stride) = (luma.size(), luma.size().width + 13);
    let mut bytes = vec![0xFA; stride * size.height];
    for (y, row) in luma.as_ref().rows().enumerate() {
        bytes[y * stride..][..size.width].copy_from_slice(row);
    }
    let format = VideoFormat {
        size,
        pixels: PixelFormat::GRAY8,
        frame_rate: (25, 1),
        pixel_aspect: (1, 1),
        colorimetry: None,
    };
    let meta = FrameMeta {
        index,
        pts_ns: Some(index * 40_000_000),
        duration_ns: Some(40_000_000),
        arrived: Instant::now(),
    };
    Frame { meta, format: Arc::new(format), picture: Arc::new(Grey { bytes, size, stride }) }
}

/// Delivers frames from memory, then ends, or fails if the last entry is an error.
#[derive(Default)]
pub struct MemorySource {
    pub frames: VecDeque<Result<Frame>>,
    /// Nothing is ever waiting: frames come only when they are waited for.
    pub is_slow: bool,
    /// Records that this sink had heard of whenever a frame was waited for.
    pub watched: Option<Arc<Mutex<Heard>>>,
    pub heard_at_wait: Vec<usize>,
}

impl MemorySource {
    pub fn new(pictures: &[Plane]) -> Self {
        let frames = (0..).zip(pictures).map(|(index, luma)| Ok(frame(index, luma))).collect();
        Self { frames, ..Self::default() }
    }

    fn next(&mut self) -> Result<Next> {
        self.frames.pop_front().map_or(Ok(Next::End), |frame| frame.map(Next::Frame))
    }
}

impl Source for MemorySource {
    fn try_next(&mut self) -> Result<Next> {
        if self.is_slow { Ok(Next::Pending) } else { self.next() }
    }

    fn wait_next(&mut self, _: Duration) -> Result<Next> {
        self.heard_at_wait.extend(self.watched.as_ref().map(|heard| heard.lock().unwrap().records.len()));
        self.next()
    }

    fn dropped(&self) -> u64 {
        0
    }
}

/// What a [`MemorySink`] was told.
#[derive(Default)]
pub struct Heard {
    pub begun: usize,
    pub finished: usize,
    pub records: Vec<Arc<FrameRecord>>,
    pub masks: Vec<Option<Arc<Plane>>>,
}

/// Keeps what it is told; fails on purpose at a frame if asked to.
#[derive(Default)]
pub struct MemorySink {
    pub heard: Arc<Mutex<Heard>>,
    pub fails_at: Option<u64>,
    /// Sets the engine's stop flag when this frame is delivered, as Ctrl-C would.
    pub stops_at: Option<(u64, Arc<AtomicBool>)>,
}

impl Sink for MemorySink {
    fn name(&self) -> &'static str {
        "memory"
    }

    fn wants_mask(&self) -> bool {
        true
    }

    fn begin(&mut self, _: &RunRecord, _: &VideoFormat) -> Result<()> {
        self.heard.lock().unwrap().begun += 1;
        Ok(())
    }

    fn deliver(&mut self, delivery: &Delivery<'_>) -> Result<()> {
        let frame = delivery.record.frame;
        if self.fails_at == Some(frame) {
            return Err(Error::Output { name: "memory".into(), reason: "asked to fail".into() });
        }
        if let Some((at, stop)) = &self.stops_at
            && *at == frame
        {
            stop.store(true, std::sync::atomic::Ordering::Relaxed);
        }
        let mut heard = self.heard.lock().unwrap();
        heard.records.push(delivery.record.clone());
        heard.masks.push(delivery.mask.cloned());
        Ok(())
    }

    fn finish(&mut self, _: &Summary) -> Result<()> {
        self.heard.lock().unwrap().finished += 1;
        Ok(())
    }
}

/// What a test asks the engine for.
pub struct Job {
    pub templates: Vec<Template>,
    pub threshold: Option<ThresholdSpec>,
    pub tracks: Vec<TrackSpec>,
    pub limits: Limits,
    pub threads: usize,
    pub depth: usize,
    pub max_frames: Option<u64>,
    pub stop: Arc<AtomicBool>,
}

impl Default for Job {
    fn default() -> Self {
        Self {
            templates: Vec::new(),
            threshold: None,
            tracks: Vec::new(),
            limits: Limits::default(),
            threads: 2,
            depth: 2,
            max_frames: None,
            stop: Arc::default(),
        }
    }
}

impl Job {
    pub fn open_backend(&self, size: Size) -> Result<Box<dyn Backend>> {
        let mut standing = Standing::new(size).thresholding(self.threshold, self.threshold.is_some());
        if !self.templates.is_empty() {
            standing = standing.searching(&Bank::new(self.templates.clone())?, None, self.limits)?;
        }
        let Self { depth, threads, .. } = *self;
        let options = Options { choice: BackendChoice::Cpu, depth, threads, kernels: Kernels::default() };
        backend::open(&options, &standing)
    }

    /// Runs the engine from `source` to `sinks`.
    pub fn run(&self, source: &mut MemorySource, sinks: Vec<Box<dyn Sink>>) -> (Summary, Result<()>) {
        self.run_on(source, sinks, &|format| self.open_backend(format.size), None)
    }

    /// Runs the engine on a backend that `open_backend` opens, with what `open_spare` opens to take over.
    pub fn run_on(
        &self,
        source: &mut MemorySource,
        sinks: Vec<Box<dyn Sink>>,
        open_backend: &OpenBackend<'_>,
        open_spare: Option<&OpenBackend<'_>>,
    ) -> (Summary, Result<()>) {
        let engine = Engine {
            source,
            open_backend,
            open_spare,
            describe: &run_record,
            tracker: Tracker::new(&self.tracks),
            sinks,
            max_frames: self.max_frames,
            stop: &self.stop,
        };
        engine.run()
    }

    /// Runs over pictures in memory, which must not fail, and gives the records.
    pub fn records(&self, pictures: &[Plane]) -> Vec<FrameRecord> {
        let sink = MemorySink::default();
        let heard = sink.heard.clone();
        let (_, outcome) = self.run(&mut MemorySource::new(pictures), vec![Box::new(sink)]);
        outcome.expect("the run succeeds");
        heard.lock().unwrap().records.iter().map(|record| FrameRecord::clone(record)).collect()
    }
}

fn run_record(format: &VideoFormat, device: &Device) -> RunRecord {
    RunRecord {
        version: "0",
        input: "memory".into(),
        width: format.size.width,
        height: format.size.height,
        frame_rate: 25.0,
        format: format.pixels.name,
        backend: device.backend,
        device: device.name.clone(),
        driver: None,
        decoder: None,
        started: 0,
        templates: Vec::new(),
        tracks: Vec::new(),
        threshold: None,
    }
}
