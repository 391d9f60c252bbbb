//! Shared by the tests: frames made in memory, and sources and sinks for the engine.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::test_log;
use lockon::backend::{self, Backend, Device, Options};
use lockon::config::{
    BackendChoice, Kernels, Limits, ObjectSpec, SearchMethod, ThresholdSpec, TimeSpan, TrackSpec, Typed,
};
use lockon::control::Control;
use lockon::engine::{Engine, OpenBackend, OpenSpare, Purpose};
use lockon::frame::{
    Circumstances, Frame, FrameMeta, Picture, PixelFormat, Plane, PlaneRef, Size, VideoFormat,
};
use lockon::ports::{Delivery, Next, Sink, Source};
use lockon::reference::surface::OnDevice;
use lockon::results::{Event, FrameRecord, RunRecord, Summary};
use lockon::search::Search;
use lockon::surface::Traffic;
use lockon::template::Template;
use lockon::tracker::Tracker;
use lockon::{Error, Result};

/// The repository, whose files tests read: `LOCKON_ROOT`, or the working directory if it is one, or where
/// this test was built.
pub fn root() -> PathBuf {
    let named = std::env::var_os("LOCKON_ROOT").map(PathBuf::from);
    let here = std::env::current_dir().ok().filter(|here| here.join("examples/media/cars.mp4").exists());
    named.or(here).unwrap_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).to_owned())
}

/// The program under test: `LOCKON_BIN`, or the one that cargo built with this test.
pub fn program() -> OsString {
    let built = option_env!("CARGO_BIN_EXE_lockon").unwrap_or("lockon");
    std::env::var_os("LOCKON_BIN").unwrap_or_else(|| built.into())
}

/// The first GPU; `None` where there is none, as [`test_log::gpu_or_skip`].
pub fn gpu() -> Option<BackendChoice> {
    test_log::gpu_or_skip(backend::cuda::device(0).map(|_| BackendChoice::Cuda(0)))
}

/// The backends of this machine: the CPU first, and the GPU where there is one.
pub fn backends() -> Vec<BackendChoice> {
    let gpu = backend::cuda::device(0).map(|_| BackendChoice::Cuda(0));
    let gpu = gpu.inspect_err(|error| test_log::check_required("GPU", &error.to_string()));
    std::iter::once(BackendChoice::Cpu).chain(gpu).collect()
}

/// Records as they are written, without what depends on the clock.
pub fn timeless(records: &[FrameRecord]) -> Vec<String> {
    let text = |record: &FrameRecord| {
        let mut record = record.clone();
        record.latency_us = 0;
        record.tracker_us = record.tracker_us.map(|_| 0);
        serde_json::to_string(&record).expect("records can be written")
    };
    records.iter().map(text).collect()
}

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

/// A smooth picture, as cameras make them: blurred noise.
pub fn smooth(seed: u64, size: Size) -> Plane {
    let noise = noise(seed, size);
    let at = |x: usize, y: usize| u32::from(noise.data()[y % size.height * size.width + x % size.width]);
    let mean = |x: usize, y: usize| (0..25).map(|k| at(x + k % 5, y + k / 5)).sum::<u32>() / 25;
    let value = |i: usize| ((mean(i % size.width, i / size.width).max(60) - 60) * 2).min(255) as u8;
    Plane::from_vec((0..size.area()).map(value).collect(), size)
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
    Frame {
        meta,
        circumstances: Circumstances::default(),
        format: Arc::new(format),
        picture: Arc::new(Grey { bytes, size, stride }),
    }
}

/// Makes frames give what frames on a device give, by the definition.
pub fn on_device(source: &mut MemorySource) -> Vec<Arc<OnDevice>> {
    let mut there = Vec::new();
    for frame in source.frames.iter_mut().flatten() {
        let picture = Arc::new(OnDevice::new(frame.picture.clone(), &frame.format));
        frame.picture = picture.clone();
        there.push(picture);
    }
    there
}

/// Delivers frames from memory, then ends, or fails if the last entry is an error.
#[derive(Default)]
pub struct MemorySource {
    pub frames: VecDeque<Result<Frame>>,
    /// Nothing is ever waiting: frames come only when they are waited for.
    pub is_slow: bool,
    /// Nothing comes for so long before a frame of that number.
    pub silence: Option<(u64, Duration)>,
    /// It was away before the frame of that number.
    pub gap_before: Option<u64>,
    /// Panics where it should end.
    pub panics: bool,
    /// At each wait for a frame, the number of records that this sink has received is added to
    /// `heard_at_wait`.
    pub watched: Option<Arc<Mutex<Heard>>>,
    pub heard_at_wait: Vec<usize>,
}

impl MemorySource {
    pub fn new(pictures: &[Plane]) -> Self {
        let frames = (0..).zip(pictures).map(|(index, luma)| Ok(frame(index, luma))).collect();
        Self { frames, ..Self::default() }
    }

    /// Waits for so long in the silence; false when it is over.
    fn silent(&mut self, wait: Duration) -> bool {
        let next = self.frames.front().and_then(|frame| frame.as_ref().ok()).map(|frame| frame.meta.index);
        let Some((_, left)) = self.silence.as_mut().filter(|(at, _)| Some(*at) == next) else { return false };
        let wait = wait.min(*left);
        std::thread::sleep(wait);
        *left -= wait;
        let is_over = left.is_zero();
        if is_over {
            self.silence = None;
        }
        true
    }

    fn next(&mut self) -> Result<Next> {
        let index = self.frames.front().and_then(|frame| frame.as_ref().ok()).map(|frame| frame.meta.index);
        if self.gap_before.is_some() && self.gap_before == index {
            self.gap_before = None;
            return Ok(Next::Gap { away: Duration::from_secs(3), reason: "it was away".into() });
        }
        assert!(!self.panics || !self.frames.is_empty(), "asked to panic");
        self.frames.pop_front().map_or(Ok(Next::End), |frame| frame.map(Next::Frame))
    }
}

impl Source for MemorySource {
    fn try_next(&mut self) -> Result<Next> {
        if self.is_slow || self.silent(Duration::ZERO) { Ok(Next::Pending) } else { self.next() }
    }

    fn wait_next(&mut self, timeout: Duration) -> Result<Next> {
        if self.silent(timeout) {
            return Ok(Next::Pending);
        }
        self.heard_at_wait.extend(self.watched.as_ref().map(|heard| heard.lock().unwrap().records.len()));
        self.next()
    }

    fn dropped(&self) -> u64 {
        0
    }
}

/// Everything that a [`MemorySink`] received.
#[derive(Default)]
pub struct Heard {
    pub begun: usize,
    pub finished: usize,
    pub records: Vec<Arc<FrameRecord>>,
    pub masks: Vec<Option<Arc<dyn Picture>>>,
    /// Each with the number of records before it.
    pub events: Vec<(usize, Event)>,
}

/// Keeps everything that it receives; fails on purpose at a frame if asked to.
#[derive(Default)]
pub struct MemorySink {
    pub heard: Arc<Mutex<Heard>>,
    pub fails_at: Option<u64>,
    /// Panics where it should fail.
    pub panics: bool,
    /// Is no output.
    pub only_watches: bool,
    /// Stops the engine when this frame is delivered, as Ctrl-C would.
    pub stops_at: Option<(u64, Control)>,
    /// A file that the sink reports as written.
    pub file: Option<PathBuf>,
    /// Fails when it is finished.
    pub fails_at_end: bool,
}

impl Sink for MemorySink {
    fn name(&self) -> &'static str {
        "memory"
    }

    fn is_output(&self) -> bool {
        !self.only_watches
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
            assert!(!self.panics, "asked to panic");
            return Err(Error::Output { name: "memory".into(), reason: "asked to fail".into() });
        }
        if let Some((at, control)) = &self.stops_at
            && *at == frame
        {
            control.stop();
        }
        let mut heard = self.heard.lock().unwrap();
        heard.records.push(delivery.record.clone());
        heard.masks.push(delivery.mask.cloned());
        Ok(())
    }

    fn note(&mut self, event: &Event) -> Result<()> {
        let mut heard = self.heard.lock().unwrap();
        let before = heard.records.len();
        heard.events.push((before, event.clone()));
        Ok(())
    }

    fn files(&self) -> Vec<PathBuf> {
        self.file.iter().cloned().collect()
    }

    fn finish(&mut self, _: &Summary) -> Result<()> {
        self.heard.lock().unwrap().finished += 1;
        if self.fails_at_end {
            return Err(Error::Output { name: "memory".into(), reason: "asked to fail".into() });
        }
        Ok(())
    }
}

/// The settings of an engine's run in a test.
#[derive(Clone)]
pub struct Job {
    pub backend: BackendChoice,
    pub kernels: Kernels,
    pub templates: Vec<Template>,
    /// Instead of a search for the templates.
    pub searched: Option<Search>,
    pub threshold: Option<ThresholdSpec>,
    pub objects: Option<ObjectSpec>,
    pub tracks: Vec<TrackSpec>,
    pub track_matches: bool,
    pub track_objects: bool,
    pub lost_for: Option<TimeSpan>,
    pub limits: Limits,
    pub threads: usize,
    pub depth: usize,
    pub max_frames: Option<u64>,
    pub control: Control,
}

impl Default for Job {
    fn default() -> Self {
        Self {
            backend: BackendChoice::Cpu,
            kernels: Kernels::default(),
            templates: Vec::new(),
            searched: None,
            threshold: None,
            objects: None,
            tracks: Vec::new(),
            track_matches: false,
            track_objects: false,
            lost_for: None,
            limits: Limits::default(),
            threads: 2,
            depth: 2,
            max_frames: None,
            control: Control::new(),
        }
    }
}

impl Job {
    pub fn search(&self) -> Search {
        if let Some(search) = &self.searched {
            return search.clone();
        }
        let (scales, angles) = (Typed::default(), Typed::default());
        let templates = self.templates.clone();
        let search = Search::new(templates, SearchMethod::Auto, &scales, &angles, &self.control);
        let mut search = search.unwrap();
        (search.limits, search.threshold, search.objects) = (self.limits, self.threshold, self.objects);
        search
    }

    pub fn open_backend(&self, purpose: &Purpose<'_>) -> Result<Box<dyn Backend>> {
        let Self { backend: choice, kernels, depth, threads, .. } = *self;
        let control = self.control.clone();
        let options = Options { choice, depth, threads, kernels, control, ..Options::default() };
        lockon::setup::open(&options, purpose)
    }

    /// Runs the engine from `source` to `sinks`.
    pub fn run(&self, source: &mut MemorySource, sinks: Vec<Box<dyn Sink>>) -> (Summary, Result<()>) {
        self.run_on(source, sinks, &|purpose| self.open_backend(purpose), None)
    }

    /// Runs the engine on a backend that `open_backend` opens, with what `open_spare` opens to take over.
    pub fn run_on(
        &self,
        source: &mut dyn Source,
        sinks: Vec<Box<dyn Sink>>,
        open_backend: &OpenBackend<'_>,
        open_spare: Option<&OpenSpare<'_>>,
    ) -> (Summary, Result<()>) {
        let tracker = Tracker::new(&self.tracks).with_threads(self.threads);
        let tracker = if self.track_matches { tracker.following_matches() } else { tracker };
        let tracker = if self.track_objects { tracker.following_objects() } else { tracker };
        let tracker = Box::new(tracker.ending_lost(self.lost_for));
        let engine = Engine {
            source,
            search: self.search().into(),
            open_backend,
            open_spare,
            describe: &run_record,
            tracker,
            sinks,
            max_frames: self.max_frames,
            control: self.control.clone(),
            traffic: Traffic::default(),
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

    /// As `records`, on every backend; all must find what the CPU finds.
    pub fn records_of_all(&self, pictures: &[Plane]) -> Vec<FrameRecord> {
        let on = |backend| Self { backend, ..self.clone() }.records(pictures);
        let expected = on(BackendChoice::Cpu);
        for backend in backends() {
            assert_eq!(timeless(&on(backend)), timeless(&expected), "{backend:?}");
        }
        expected
    }
}

pub fn run_record(format: &VideoFormat, device: &Device) -> RunRecord {
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
        pictures: false,
        started: 0,
        templates: Vec::new(),
        search: None,
        tracks: Vec::new(),
        track_matches: false,
        track_objects: false,
        threshold: None,
        objects: None,
        range: None,
        settings: None,
        command: None,
        gap: TimeSpan::default(),
        hides: false,
    }
}
