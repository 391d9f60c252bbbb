//! `lockon bench`: the speed of a machine in one sentence: the whole loop on frames in memory, for some
//! seconds. A program of its own, `lockon-bench`, measures the kernels.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use lockon::backend::{Device, Options};
use lockon::config::{BackendChoice, OnDeviceLoss, SearchMethod, TrackSpec, Typed};
use lockon::control::Control;
use lockon::devices::Devices;
use lockon::frame::{Circumstances, Frame, FrameMeta, Picture, PixelFormat, Rect, Size, VideoFormat};
use lockon::locks::lock;
use lockon::ports::{Delivery, Next, Sink, Source};
use lockon::reference;
use lockon::search::Search;
use lockon::setup::{self, Ends, Setup};
use lockon::template::Template;
use lockon::{Error, Result};

use super::args::BenchArgs;
use super::{Outcome, print};

/// The usual frame sizes, with their names.
const FRAMES: [(&str, Size); 3] =
    [("640x360", Size::new(640, 360)), ("1080p", Size::new(1920, 1080)), ("4K", Size::new(3840, 2160))];

/// Side of the template and of the track.
const SIDE: usize = 64;

/// The threshold that is applied to every frame too.
const THRESHOLD: &str = "mean:31:5";

/// The time, and the minimum number of frames, for which each size is measured.
const TIME: Duration = Duration::from_millis(800);
const LEAST_FRAMES: u64 = 5;

/// Frames before the measurement begins: the first ones open the device and make room.
const WARM_UP: u64 = 2;

/// Pictures by which the camera moves to and fro, and by how many pixels.
const VIEWS: usize = 4;
const STEP: usize = 2;

/// Measures the whole loop, and prints this machine's frames per second.
pub(super) fn bench(args: &BenchArgs) -> anyhow::Result<Outcome> {
    if matches!(args.backend, BackendChoice::Cuda(_) | BackendChoice::CudaOf(_)) && args.threads.is_some() {
        return Err(Error::Usage("--threads is for the CPU backend".into()).into());
    }
    let sentence = sentence(args.backend, setup::threads(args.threads))?;
    print(&format!("{sentence}\n"))?;
    Ok(Outcome::Done)
}

/// Measures, and returns the sentence.
///
/// # Errors
/// If the device is not available, or fails.
fn sentence(choice: BackendChoice, threads: usize) -> Result<String> {
    let mut rates = Vec::new();
    let mut what = String::new();
    for (_, size) in FRAMES {
        let (rate, device) = rate(choice, threads, size)?;
        rates.push(if rate < 10.0 { format!("{rate:.1}") } else { format!("{rate:.0}") });
        what = device.name;
    }
    let others = rates.iter().zip(FRAMES).skip(1).map(|(rate, (name, _))| format!("{rate} of {name}"));
    Ok(format!(
        "This machine does {} frames a second of {}, {}: with one template and one track of {SIDE}x{SIDE} and the threshold {THRESHOLD}, \
         without decoding, on {what}.",
        rates[0],
        FRAMES[0].0,
        others.collect::<Vec<_>>().join(" or ")
    ))
}

/// Returns the frames per second at that size, and the device.
fn rate(choice: BackendChoice, threads: usize, size: Size) -> Result<(f64, Device)> {
    let scene = reference::natural(Size::new(size.width + STEP * VIEWS, size.height + STEP * VIEWS));
    let view = |index: usize| {
        let at = STEP * index;
        Arc::new(scene.as_ref().crop(Rect::new(at, at, size.width, size.height)).to_plane())
            as Arc<dyn Picture>
    };
    let views: Vec<_> = (0..VIEWS).map(view).collect();
    let middle =
        |part: usize| Rect::new(size.width / part - SIDE / 2, size.height / part - SIDE / 2, SIDE, SIDE);
    let template = Template::new("template", views[0].plane(0).crop(middle(2)).to_plane(), None)?;
    let (scales, angles) = (Typed::default(), Typed::default());
    let mut search =
        Search::new(vec![template], SearchMethod::Exhaustive, &scales, &angles, &Control::new())?;
    search.threshold = Some(THRESHOLD.parse()?);
    let setup = Setup {
        search: search.into(),
        tracks: vec![TrackSpec::new(middle(3), lockon::config::Moment::default())],
        ..Setup::default()
    };
    let options = Options { choice, threads, ..Options::default() };
    let format = VideoFormat {
        size,
        pixels: PixelFormat::GRAY8,
        frame_rate: (30, 1),
        pixel_aspect: (1, 1),
        colorimetry: None,
    };
    let seen = Arc::new(Mutex::new(Seen::default()));
    let mut source = Panorama { views, format: Arc::new(format), next: 0, seen: seen.clone() };
    let used = Mutex::new(None);
    let devices = Devices::new(options, OnDeviceLoss::End, false)?;
    let ends = Ends {
        source: &mut source,
        sinks: vec![Box::new(Watch(seen.clone()))],
        describe: &|format, device| {
            *lock(&used) = Some(device.clone());
            setup.describe("bench", None, format, device)
        },
        max_frames: None,
        control: Control::new(),
    };
    setup.run(&devices, &setup::open, ends).1?;
    let device = lock(&used).take().expect("frames were done");
    let seen = *lock(&seen);
    let (began, ended) = seen.began.zip(seen.ended).expect("more frames were done than warm it up");
    Ok((seen.frames as f64 / (ended - began).as_secs_f64(), device))
}

/// The frames that have been processed.
#[derive(Clone, Copy, Default)]
struct Seen {
    /// When the warm-up was over.
    began: Option<Instant>,
    ended: Option<Instant>,
    /// Frames since then.
    frames: u64,
}

impl Seen {
    fn is_enough(&self) -> bool {
        self.frames >= LEAST_FRAMES && self.began.is_some_and(|began| began.elapsed() >= TIME)
    }
}

/// A source whose frames are always ready.
struct Panorama {
    views: Vec<Arc<dyn Picture>>,
    format: Arc<VideoFormat>,
    next: u64,
    seen: Arc<Mutex<Seen>>,
}

impl Source for Panorama {
    fn try_next(&mut self) -> Result<Next> {
        if lock(&self.seen).is_enough() {
            return Ok(Next::End);
        }
        let index = self.next;
        self.next += 1;
        // To and fro: 0, 1, 2, 3, 2, 1, 0, 1 and so on.
        let turns = 2 * (self.views.len() - 1);
        let step = (index % turns as u64) as usize;
        let picture = self.views[step.min(turns - step)].clone();
        let meta = FrameMeta {
            index,
            pts_ns: Some(index * 1_000_000_000 / 30),
            duration_ns: None,
            arrived: Instant::now(),
        };
        let circumstances = Circumstances::default();
        Ok(Next::Frame(Frame { meta, circumstances, format: self.format.clone(), picture }))
    }

    fn wait_next(&mut self, _: Duration) -> Result<Next> {
        self.try_next()
    }

    fn dropped(&self) -> u64 {
        0
    }
}

/// Counts processed frames.
struct Watch(Arc<Mutex<Seen>>);

impl Sink for Watch {
    fn name(&self) -> &'static str {
        "bench"
    }

    fn deliver(&mut self, delivery: &Delivery<'_>) -> Result<()> {
        let mut seen = lock(&self.0);
        let now = Instant::now();
        if delivery.record.frame == WARM_UP {
            seen.began = Some(now);
        } else if seen.began.is_some() {
            seen.frames += 1;
            seen.ended = Some(now);
        }
        Ok(())
    }
}
