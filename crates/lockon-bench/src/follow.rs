//! Times a followed frame: on the host, and on the GPU that the pictures lie on. Checks first that both give
//! the same tracks.

#![expect(unsafe_code, reason = "the memory of a device is described by addresses without lengths")]

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use clap::Args;

use lockon_core::config::TrackSpec;
use lockon_core::device_memory::{DeviceMemory, DevicePlane, SurfaceDevice};
use lockon_core::frame::{
    Circumstances, Frame, FrameMeta, Picture, PixelFormat, PlaneRef, Size, VideoFormat,
};
use lockon_core::ports::Follow;
use lockon_core::results::{Track, TrackState};
use lockon_core::surface::Surface;
use lockon_core::tracker::{Tracker, tables};
use lockon_cuda::Opened;
use lockon_cuda::driver::{DeviceBuffer, Gpu, Priority};

use super::print;

#[derive(Args)]
pub(super) struct FollowRequest {
    /// Frames as they lie in memory: I420, one after the other, without padding
    frames: PathBuf,
    /// Size of a frame, as 1920x1080
    size: Size,
    /// Boxes to follow, as X,Y,W,H or X,Y,W,H@FRAME; with + between them they are followed together,
    /// otherwise each in a run of its own
    #[arg(required = true)]
    boxes: Vec<String>,
    /// Frames a second
    #[arg(long, default_value_t = 30)]
    rate: u64,
    /// Threads that share the targets
    #[arg(long, default_value_t = 1)]
    threads: usize,
    /// The GPU
    #[arg(long, default_value_t = 0)]
    gpu: usize,
}

/// Frames on the host.
struct Frames {
    bytes: Vec<u8>,
    format: Arc<VideoFormat>,
}

/// One of them.
struct OnHost {
    frames: Arc<Frames>,
    index: usize,
}

impl Frames {
    fn count(&self) -> usize {
        self.bytes.len() / self.format.bytes()
    }

    /// The byte that a plane of a frame begins with, and its size.
    fn plane(&self, frame: usize, index: usize) -> (usize, Size) {
        let VideoFormat { pixels, size, .. } = &*self.format;
        let before: usize = (0..index).map(|index| pixels.plane_size(index, *size).area()).sum();
        (frame * self.format.bytes() + before, pixels.plane_size(index, *size))
    }
}

impl Picture for OnHost {
    fn plane(&self, index: usize) -> PlaneRef<'_> {
        let (from, size) = self.frames.plane(self.index, index);
        PlaneRef::new(&self.frames.bytes[from..], size, size.width)
    }
}

/// Tracks of all frames, and microseconds that each took.
type Followed = (Vec<Vec<Track>>, Vec<f64>);

/// # Errors
/// Files and boxes that cannot be read, no GPU, a failed device, tracks that differ.
pub(super) fn follow(request: &FollowRequest) -> Result<()> {
    let FollowRequest { frames: path, size, boxes, rate, threads, gpu } = request;
    let bytes = std::fs::read(path).with_context(|| format!("reading {}", path.display()))?;
    let format = VideoFormat {
        size: *size,
        pixels: PixelFormat::from_name("I420").context("I420 is known")?,
        frame_rate: (*rate as i32, 1),
        pixel_aspect: (1, 1),
        colorimetry: None,
    };
    let frames = Arc::new(Frames { bytes, format: Arc::new(format) });
    ensure!(frames.count() > 1, "{} has no two I420 frames of {size}", path.display());
    let device = Opened::open(*gpu)?;
    let gpu = Gpu::open(*gpu)?;
    let mut there = gpu.alloc("frames", frames.bytes.len())?;
    gpu.stream(Priority::Normal)?.upload_now(&frames.bytes, &mut there)?;
    let there = Arc::new(there);
    let on_host = |index: usize| {
        let picture: Arc<dyn Picture> = Arc::new(OnHost { frames: frames.clone(), index });
        Ok(picture)
    };
    let on_device = |index: usize| on_device(&device, &frames, &there, index);
    let first = on_device(0)?;
    let keeps_filters = first.surface().is_some_and(|surface| surface.correlator(tables()).is_some());
    ensure!(keeps_filters, "this GPU cannot keep the tracker's filters");
    for boxes in boxes {
        let specs = boxes.split('+').map(str::parse).collect::<Result<Vec<TrackSpec>, _>>();
        let specs = specs.map_err(anyhow::Error::msg).context(boxes.clone())?;
        let (wanted, host_us) = run(&specs, &frames, (*rate, *threads), on_host)?;
        let (found, device_us) = run(&specs, &frames, (*rate, *threads), on_device)?;
        let differs = found.iter().zip(&wanted).position(|(found, wanted)| found != wanted);
        ensure!(
            differs.is_none(),
            "{boxes}: tracks differ from frame {} on: {:?} on the device, {:?} on the host",
            differs.unwrap_or_default(),
            differs.map(|at| &found[at]),
            differs.map(|at| &wanted[at]),
        );
        let [host, device] = [host_us, device_us].map(|us| by_state(&wanted, &us));
        print(&format!(
            "{} {boxes}: {} frames alike; us a frame, median and mean, host: {host}; device: {device}\n",
            path.file_stem().unwrap_or_default().display(),
            wanted.len()
        ))?;
    }
    Ok(())
}

/// A frame on the device.
fn on_device(
    device: &Opened,
    frames: &Arc<Frames>,
    there: &Arc<DeviceBuffer<u8>>,
    index: usize,
) -> lockon_core::Result<Arc<dyn Picture>> {
    let plane = |plane: usize| {
        let (from, size) = frames.plane(index, plane);
        DevicePlane { address: there.address() + from as u64, stride: size.width }
    };
    let planes = (0..3).map(plane).collect();
    // SAFETY: the buffer has all planes of all frames, is kept, and nothing writes to it.
    let memory = unsafe { DeviceMemory::new(device.context().0, planes, None, Box::new(there.clone())) };
    device.adopt(memory, &frames.format)
}

fn run(
    specs: &[TrackSpec],
    frames: &Frames,
    (rate, threads): (u64, usize),
    picture: impl Fn(usize) -> lockon_core::Result<Arc<dyn Picture>>,
) -> Result<Followed> {
    let mut tracker = Tracker::new(specs).with_threads(threads);
    tracker.check(frames.format.size)?;
    let (mut all, mut us) = (Vec::new(), Vec::new());
    for index in 0..frames.count() {
        let pts_ns = Some(index as u64 * 1_000_000_000 / rate);
        let meta = FrameMeta { index: index as u64, pts_ns, duration_ns: None, arrived: Instant::now() };
        let (circumstances, format) = (Circumstances::default(), frames.format.clone());
        let frame = Frame { meta, circumstances, format, picture: picture(index)? };
        let mut tracks = Vec::new();
        let started = Instant::now();
        tracker.step(&frame, &[], &mut tracks);
        us.push(started.elapsed().as_secs_f64() * 1e6);
        frame.picture.surface().map_or(Ok(()), Surface::check)?;
        all.push(tracks);
    }
    Ok((all, us))
}

/// Times of frames in which all targets are followed, some are lost, and all are; the first ones load
/// kernels.
fn by_state(tracks: &[Vec<Track>], us: &[f64]) -> String {
    let mut times: BTreeMap<&str, Vec<f64>> = BTreeMap::new();
    for (tracks, us) in tracks.iter().zip(us).skip(3).filter(|(tracks, _)| !tracks.is_empty()) {
        let lost = tracks.iter().filter(|track| track.state == TrackState::Lost).count();
        let state = match lost {
            0 => "followed",
            lost if lost == tracks.len() => "lost",
            _ => "some lost",
        };
        times.entry(state).or_default().push(*us);
    }
    let parts = times.into_iter().map(|(state, mut times)| {
        times.sort_by(f64::total_cmp);
        let mean = times.iter().sum::<f64>() / times.len() as f64;
        format!("{state} {:.0} {mean:.0} ({})", times[times.len() / 2], times.len())
    });
    parts.collect::<Vec<_>>().join(", ")
}
