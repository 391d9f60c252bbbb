//! How fast the kernels are on this machine, each checked against the definition before its time counts: what
//! `lockon bench kernels` measures and writes.

#![cfg_attr(not(feature = "cuda"), allow(dead_code, reason = "without a GPU less is measured"))]

use std::io::Write as _;
use std::sync::Arc;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Result, ensure};
use serde::Serialize;

use lockon_core::Error;
use lockon_core::backend::{Backend, Options, Standing, cpu};
use lockon_core::config::{BackendChoice, Kernel, Limits, ThresholdMethod, ThresholdSpec};
use lockon_core::frame::{Plane, Rect, Size};
use lockon_core::reference;
use lockon_core::results::Match;
use lockon_core::template::{Bank, Template};

#[cfg(feature = "cuda")]
mod gpu;
#[cfg(not(feature = "cuda"))]
#[path = "no_gpu.rs"]
mod gpu;

/// How long something took, each time in microseconds, in rising order.
type Micros = Vec<f64>;

/// What can be measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Subject {
    /// From the creation of a context to the first result.
    Start,
    /// Template matching.
    Ncc,
    /// Adaptive thresholds.
    Threshold,
    /// Uploads, downloads, and turning a picture.
    Copies,
    /// Frames through the ring.
    Ring,
}

/// What is to be measured.
#[derive(Debug, Clone)]
pub struct Request {
    /// On which device.
    pub backend: BackendChoice,
    /// Frames of this size only.
    pub frame: Option<Size>,
    /// Templates of this size only.
    pub template: Option<Size>,
    /// Templates in one pass.
    pub bank: usize,
    /// Thresholds of this block only.
    pub block: Option<usize>,
    /// These kernels only, beside what is taken by itself; all if there are none.
    pub kernel: Vec<Kernel>,
    /// These things only; what goes with the rest if there are none.
    pub only: Vec<Subject>,
    /// NPP and cuFFT too, if they are installed.
    pub peers: bool,
    /// Threads of the CPU backend: all cores, unless told otherwise.
    pub threads: Option<u16>,
    /// One JSON object instead of a table.
    pub json: bool,
}

impl Request {
    fn threads(&self) -> usize {
        self.threads.map_or_else(|| std::thread::available_parallelism().map_or(1, usize::from), usize::from)
    }
}

/// What is measured where nothing else was asked for.
const FRAMES: [Size; 2] = [Size::new(1920, 1080), Size::new(3840, 2160)];
const TEMPLATES: [usize; 7] = [8, 16, 32, 48, 64, 128, 256];
const BLOCKS: [usize; 6] = [3, 11, 31, 51, 127, 255];

/// Bytes of frames that a kernel is timed over: twice the L2 cache of an H100 or H200, and 64 frames of
/// 1080p.
const SET_BYTES: usize = 64 * 1920 * 1080;

/// A window of the kind that tracks ask for.
const WINDOW: Rect = Rect { x: 840, y: 444, w: 192, h: 192 };

/// Positions of a score map and pixels of a mask that are compared with the definition.
const CHECKED: usize = 256;

/// What is done to frames that go through the ring.
const RING_TEMPLATE: Size = Size::new(64, 64);
const RING_THRESHOLD: ThresholdSpec =
    ThresholdSpec { method: ThresholdMethod::Mean { c: 5.0 }, block: 31, inverse: false };

/// Frames that go through the ring for one measurement, and seconds after which fewer suffice.
const RING_FRAMES: u64 = 4_000;
const RING_SECONDS: f64 = 1.0;

/// One measurement.
#[derive(Debug, Serialize)]
struct Row {
    /// `start`, `ncc`, `threshold`, `fft`, `resample`, `upload`, `readback`, `ring`.
    op: &'static str,
    /// As `--kernel` takes it, several joined by `+`; `auto` is what `run` would use.
    kernel: String,
    /// The kernel that `auto` took, of the CUDA backend.
    #[serde(skip_serializing_if = "Option::is_none")]
    taken: Option<String>,
    /// Width and height; of the window, where one is searched.
    frame: [usize; 2],
    /// Width and height, of the largest member of a bank.
    #[serde(skip_serializing_if = "Option::is_none")]
    template: Option<[usize; 2]>,
    /// What is searched in, see [`Scene`].
    #[serde(skip_serializing_if = "Option::is_none")]
    scene: Option<&'static str>,
    /// Members.
    bank: usize,
    /// Most matches of a template, if not only the best is wanted.
    #[serde(skip_serializing_if = "Option::is_none")]
    max_matches: Option<usize>,
    /// Their least score.
    #[serde(skip_serializing_if = "Option::is_none")]
    min_score: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    method: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    block: Option<usize>,
    /// Slots of the ring.
    #[serde(skip_serializing_if = "Option::is_none")]
    depth: Option<usize>,
    /// The mask is read back.
    #[serde(skip_serializing_if = "Option::is_none")]
    mask: Option<bool>,
    /// What of the median the host spends on submitting.
    #[serde(skip_serializing_if = "Option::is_none")]
    submit_us: Option<f64>,
    median_us: f64,
    p90_us: f64,
    /// The median where every launch begins when the one before has ended, if launches may begin sooner.
    #[serde(skip_serializing_if = "Option::is_none")]
    one_by_one_us: Option<f64>,
    /// Products of NCC in a second: positions times template pixels, whatever was really multiplied.
    #[serde(skip_serializing_if = "Option::is_none")]
    products_per_s: Option<f64>,
    /// Bytes that have to be moved at least, read once and written once, in a second.
    bytes_per_s: f64,
}

impl Row {
    fn new(op: &'static str, kernel: String, frame: Size, bytes: usize, micros: &Micros) -> Self {
        let median_us = at(micros, 0.5);
        Self {
            op,
            kernel,
            taken: None,
            frame: [frame.width, frame.height],
            template: None,
            scene: None,
            bank: 1,
            max_matches: None,
            min_score: None,
            method: None,
            block: None,
            depth: None,
            mask: None,
            submit_us: None,
            median_us,
            p90_us: at(micros, 0.9),
            one_by_one_us: None,
            products_per_s: None,
            bytes_per_s: bytes as f64 / median_us * 1e6,
        }
    }
}

/// By what a row was measured, see [`Row`].
struct Name {
    kernel: String,
    taken: Option<String>,
}

/// How long a row took.
#[derive(Clone, Copy)]
struct Times<'a> {
    micros: &'a Micros,
    one_by_one: Option<&'a Micros>,
}

impl<'a> From<&'a Micros> for Times<'a> {
    fn from(micros: &'a Micros) -> Self {
        Self { micros, one_by_one: None }
    }
}

impl Name {
    /// The name of a kernel of the CUDA backend.
    fn of(asked: Option<Kernel>, taken: Kernel) -> Self {
        match asked {
            Some(asked) => asked.to_string().as_str().into(),
            None => Self { kernel: "auto".into(), taken: Some(taken.to_string()) },
        }
    }
}

impl From<&str> for Name {
    fn from(kernel: &str) -> Self {
        Self { kernel: kernel.into(), taken: None }
    }
}

/// What a share of the times is not longer than.
fn at(micros: &Micros, share: f64) -> f64 {
    micros[((micros.len() - 1) as f64 * share).round() as usize]
}

/// What pictures show.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Scene {
    /// Noise on every scale, the coarser the stronger, as nature has it: a template is like few places.
    Natural,
    /// Waves, and noise: a template is like many places.
    Repeating,
}

impl Scene {
    fn name(self) -> &'static str {
        match self {
            Self::Natural => "natural",
            Self::Repeating => "repeating",
        }
    }

    fn picture(self, frame: Size) -> Plane {
        match self {
            Self::Natural => natural(frame),
            Self::Repeating => reference::picture(frame),
        }
    }
}

/// One search that is measured.
struct SearchCase {
    scene: Scene,
    window: Rect,
    limits: Limits,
    bank: Arc<Bank>,
    /// Where the bank's first member was cut out of the first picture.
    place: Rect,
}

impl SearchCase {
    /// A search for templates that are cut out of the window.
    fn new(
        (scene, picture): (Scene, &Plane),
        window: Rect,
        template: Size,
        members: usize,
        limits: Limits,
    ) -> Result<Self> {
        let (bank, place) = bank(picture, window, template, members)?;
        Ok(Self { scene, window, limits, bank, place })
    }
}

/// The whole report.
#[derive(Serialize)]
struct Report {
    device: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    driver: Option<String>,
    /// The version of lockon.
    version: &'static str,
    /// What it was built from, where that is known.
    commit: &'static str,
    /// Seconds since 1970.
    date: u64,
    /// How the times were taken.
    timing: &'static str,
    rows: Vec<Row>,
}

/// Measures, and prints on standard output a table line by line, or JSON at the end. What people should know
/// beside that goes to `say`.
///
/// # Errors
/// `Usage` if the request cannot mean anything; those of the device; an answer that is wrong.
pub fn kernels(args: &Request, say: fn(&str)) -> Result<()> {
    check(args)?;
    let mut work = Work::new(args, say);
    let number = match args.backend {
        BackendChoice::Cpu => None,
        BackendChoice::Cuda(number) => Some(number),
        BackendChoice::Auto => match gpu::first() {
            Ok(number) => Some(number),
            // What was chosen is meant to be measured.
            Err(why) if !args.kernel.is_empty() || args.peers => return Err(why.into()),
            Err(why) => {
                tracing::warn!("the CPU is measured: {why}");
                None
            }
        },
    };
    let (device, driver, timing) = if let Some(number) = number {
        gpu::measure(&mut work, number)?
    } else {
        let threads = args.threads();
        let options = Options { depth: 1, threads, ..Options::default() };
        let device = cpu::Cpu::open(Standing::new(Size::new(64, 64)), &options)?.describe();
        work.header(&device.name)?;
        work.on_cpu(threads)?;
        (device.name, None, "the processor's clock, input in its cache")
    };
    if args.json {
        let report = Report {
            device,
            driver,
            version: env!("CARGO_PKG_VERSION"),
            commit: option_env!("LOCKON_COMMIT").unwrap_or("unknown"),
            date: SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs()),
            timing,
            rows: work.rows,
        };
        let mut text = serde_json::to_vec_pretty(&report)?;
        text.push(b'\n');
        std::io::stdout().write_all(&text)?;
    }
    Ok(())
}

/// Refuses what cannot mean anything.
fn check(args: &Request) -> lockon_core::Result<()> {
    let usage = |text: String| Err(Error::Usage(text));
    if let (Some(template), Some(frame)) = (args.template, args.frame)
        && !template.fits_in(frame)
    {
        return usage(format!("--template {template} does not fit in --frame {frame}"));
    }
    if args.bank > 1 && args.template.is_none() && args.block.is_some() {
        return usage("--bank is for templates, and --block measures thresholds only".into());
    }
    let on_both = [Subject::Ncc, Subject::Threshold];
    let nothing = |subject: &Subject| match subject {
        Subject::Ncc => args.block.is_some() && args.template.is_none(),
        Subject::Threshold => args.template.is_some() && args.block.is_none(),
        _ => args.backend == BackendChoice::Cpu,
    };
    if !args.only.is_empty() && args.only.iter().all(nothing) {
        return usage(
            "nothing to measure: --only, --template, --block and --backend exclude each other".into(),
        );
    }
    match args.backend {
        BackendChoice::Cpu if !args.kernel.is_empty() => {
            usage("--kernel chooses among the CUDA backend's: it needs --backend cuda".into())
        }
        BackendChoice::Cpu if args.peers => usage("--peers are the GPU's: it needs --backend cuda".into()),
        BackendChoice::Cpu if args.only.iter().any(|subject| !on_both.contains(subject)) => {
            usage("--backend cpu measures ncc and threshold only".into())
        }
        BackendChoice::Cuda(_) if args.threads.is_some() => usage("--threads is for the CPU backend".into()),
        _ => Ok(()),
    }
}

/// What is to be measured, and what has been.
struct Work {
    frames: Vec<Size>,
    templates: Vec<Size>,
    blocks: Vec<usize>,
    bank: usize,
    kernels: Vec<Kernel>,
    only: Vec<Subject>,
    peers: Option<gpu::Peers>,
    /// Everything is measured, not one thing only.
    is_all: bool,
    threads: usize,
    prints_table: bool,
    say: fn(&str),
    rows: Vec<Row>,
}

impl Work {
    fn new(args: &Request, say: fn(&str)) -> Self {
        let is_all = args.template.is_none() && args.block.is_none();
        let square = |side: &usize| Size::new(*side, *side);
        Self {
            frames: args.frame.map_or(FRAMES.to_vec(), |frame| vec![frame]),
            templates: match args.template {
                Some(size) => vec![size],
                None if is_all => TEMPLATES.iter().map(square).collect(),
                None => Vec::new(),
            },
            blocks: match args.block {
                Some(block) => vec![block],
                None if is_all => BLOCKS.to_vec(),
                None => Vec::new(),
            },
            bank: args.bank,
            kernels: args.kernel.clone(),
            only: args.only.clone(),
            peers: args.peers.then(gpu::Peers::load),
            is_all,
            threads: args.threads(),
            prints_table: !args.json,
            say,
            rows: Vec::new(),
        }
    }

    fn wants_kernel(&self, kernel: Kernel) -> bool {
        self.kernels.is_empty() || self.kernels.contains(&kernel)
    }

    /// What was named; if nothing was, everything, or the templates and thresholds that were asked for.
    fn wants_subject(&self, subject: Subject) -> bool {
        let belongs = self.is_all || matches!(subject, Subject::Ncc | Subject::Threshold);
        if self.only.is_empty() { belongs } else { self.only.contains(&subject) }
    }

    fn on_cpu(&mut self, threads: usize) -> Result<()> {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build()?;
        for frame in self.frames.clone() {
            let picture = Scene::Natural.picture(frame);
            let wants_searches = self.wants_subject(Subject::Ncc);
            let templates = self.templates.clone().into_iter();
            for template in templates.filter(|size| wants_searches && size.fits_in(frame)) {
                let (whole, limits) = (Rect::whole(frame), Limits::default());
                let search = SearchCase::new((Scene::Natural, &picture), whole, template, self.bank, limits)?;
                let mut planner = cpu::ncc::Planner::new();
                let mut matcher = cpu::ncc::Matcher::new(&mut planner, search.bank.clone(), frame, threads);
                let mut matches = Vec::new();
                let micros = pool.install(|| {
                    time(|| {
                        matcher.run(picture.as_ref(), whole, &limits, &mut matches).expect("there is memory");
                    })
                });
                check_matches(&picture, &search, &matches)?;
                self.add_search("auto".into(), &search, Times::from(&micros))?;
            }
            let wants_thresholds = self.wants_subject(Subject::Threshold);
            for block in self.blocks.clone().into_iter().filter(|_| wants_thresholds) {
                for method in methods() {
                    let spec = ThresholdSpec { method, block, inverse: false };
                    let mut thresholder = cpu::threshold::Thresholder::new(&spec, frame);
                    let mut mask = Plane::new(frame);
                    let micros = pool.install(|| {
                        time(|| {
                            thresholder.run(picture.as_ref(), &mut mask);
                        })
                    });
                    check_mask(&picture, &spec, &mask)?;
                    self.add_threshold("auto".into(), frame, &spec, Times::from(&micros))?;
                }
            }
        }
        Ok(())
    }

    fn add_search(&mut self, name: Name, search: &SearchCase, times: Times<'_>) -> Result<()> {
        let SearchCase { bank, limits, .. } = search;
        let window = search.window.size();
        let mut row = Row::new("ncc", name.kernel, window, window.area(), times.micros);
        row.one_by_one_us = times.one_by_one.map(|micros| at(micros, 0.5));
        (row.taken, row.scene) = (name.taken, Some(search.scene.name()));
        let products =
            |template: &Template| template.size().positions_in(window).area() * template.size().area();
        let all: usize = bank.members().iter().map(products).sum();
        row.products_per_s = Some(all as f64 / row.median_us * 1e6);
        let size = bank.members()[0].size();
        (row.template, row.bank) = (Some([size.width, size.height]), bank.members().len());
        if *limits != Limits::default() {
            (row.max_matches, row.min_score) = (Some(limits.max_matches), Some(limits.min_score));
        }
        self.add(row)
    }

    fn add_threshold(
        &mut self,
        name: Name,
        frame: Size,
        spec: &ThresholdSpec,
        times: Times<'_>,
    ) -> Result<()> {
        let mut row = Row::new("threshold", name.kernel, frame, 2 * frame.area(), times.micros);
        row.one_by_one_us = times.one_by_one.map(|micros| at(micros, 0.5));
        row.taken = name.taken;
        (row.method, row.block) = (Some(spec.method.name()), Some(spec.block));
        self.add(row)
    }

    fn header(&self, device: &str) -> Result<()> {
        if self.prints_table {
            let mut out = std::io::stdout();
            writeln!(out, "{device}")?;
            writeln!(
                out,
                "{:<10} {:<21} {:>9} {:>9} {:>16} {:>12} {:>10} {:>13} {:>9} {:>8}",
                "op", "kernel", "scene", "frame", "of", "median", "p90", "one by one", "Gprod/s", "GB/s"
            )?;
        } else {
            (self.say)(&format!("measuring {device}"));
        }
        Ok(())
    }

    fn add(&mut self, row: Row) -> Result<()> {
        if self.prints_table {
            let of = match (&row.template, row.method, row.block, row.depth) {
                (_, _, _, Some(depth)) => {
                    format!("depth {depth}{}", if row.mask == Some(true) { " + mask" } else { "" })
                }
                (Some([w, h]), ..) if row.bank > 1 => format!("{} of {w}x{h}", row.bank),
                (Some([w, h]), ..) if let Some(most) = row.max_matches => format!("{w}x{h}, best {most}"),
                (Some([w, h]), ..) => format!("{w}x{h}"),
                (None, Some(method), Some(block), _) => format!("{method} {block}"),
                _ => String::new(),
            };
            let products = row.products_per_s.map_or(String::new(), |rate| format!("{:.0}", rate / 1e9));
            writeln!(
                std::io::stdout(),
                "{:<10} {:<21} {:>9} {:>9} {:>16} {:>9.1} us {:>7.1} us {:>13} {:>9} {:>8.1}",
                row.op,
                row.taken.as_ref().map_or(row.kernel.clone(), |taken| format!("{}: {taken}", row.kernel)),
                row.scene.unwrap_or_default(),
                format!("{}x{}", row.frame[0], row.frame[1]),
                of,
                row.median_us,
                row.p90_us,
                row.one_by_one_us.map_or(String::new(), |micros| format!("{micros:.1} us")),
                products,
                row.bytes_per_s / 1e9,
            )?;
        }
        self.rows.push(row);
        Ok(())
    }
}

/// Times something on this thread, in microseconds in rising order.
fn time(mut work: impl FnMut()) -> Micros {
    work();
    let began = Instant::now();
    let mut micros = Vec::new();
    while micros.len() < 5 || (micros.len() < 50 && began.elapsed().as_secs_f64() < 1.0) {
        let started = Instant::now();
        work();
        micros.push(started.elapsed().as_secs_f64() * 1e6);
    }
    micros.sort_by(f64::total_cmp);
    micros
}

fn methods() -> [ThresholdMethod; 4] {
    [
        ThresholdMethod::Mean { c: 5.0 },
        ThresholdMethod::Gaussian { c: 5.0 },
        ThresholdMethod::Sauvola { k: 0.2 },
        ThresholdMethod::Niblack { k: -0.2 },
    ]
}

/// What is done to frames that go through the ring: nothing, unless it `works`.
fn ring_standing(picture: &Plane, works: bool, mask: bool) -> Result<Standing> {
    let frame = picture.size();
    let standing = Standing::new(frame);
    if !works {
        return Ok(standing);
    }
    let (bank, _) = bank(picture, Rect::whole(frame), RING_TEMPLATE, 1)?;
    Ok(standing.thresholding(Some(RING_THRESHOLD), mask).searching(&bank, None, Limits::default())?)
}

/// A picture, and others of its size that show the same shifted, so that no two are equal: together more than
/// a cache holds.
fn pictures(scene: Scene, frame: Size) -> Vec<Plane> {
    let first = scene.picture(frame);
    let Size { width, height } = frame;
    let shifted = |index: usize| {
        let (left, top) = (53 * index % width, 37 * index % height);
        let mut picture = Plane::new(frame);
        for (y, row) in picture.data_mut().chunks_mut(width).enumerate() {
            row.copy_from_slice(first.as_ref().row((y + top) % height));
            row.rotate_left(left);
        }
        picture
    };
    (0..SET_BYTES.div_ceil(frame.area().max(1)).min(64)).map(shifted).collect()
}

/// Noise on every scale, the coarser the stronger, as nature has it: the same picture every time.
pub fn natural(frame: Size) -> Plane {
    let mut sum = vec![128.0_f32; frame.area()];
    let mut state = 1_u32;
    let mut noise = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 16) as f32 / 32_768.0 - 1.0
    };
    for (cell, strength) in [(64, 40.0), (16, 24.0), (4, 14.0), (1, 9.0)] {
        let across = frame.width / cell + 2;
        let knots: Vec<f32> = (0..across * (frame.height / cell + 2)).map(|_| noise()).collect();
        for (index, value) in sum.iter_mut().enumerate() {
            let (x, y) = (index % frame.width, index / frame.width);
            let (part_x, part_y) = ((x % cell) as f32 / cell as f32, (y % cell) as f32 / cell as f32);
            let knot = |i: usize, j: usize| knots[(y / cell + j) * across + x / cell + i];
            let line = |j: usize| knot(0, j) * (1.0 - part_x) + knot(1, j) * part_x;
            *value += strength * (line(0) * (1.0 - part_y) + line(1) * part_y);
        }
    }
    Plane::from_vec(sum.into_iter().map(|value| value as u8).collect(), frame)
}

/// Templates cut out of a window along its diagonal, and the place of the first.
fn bank(picture: &Plane, window: Rect, size: Size, members: usize) -> Result<(Arc<Bank>, Rect)> {
    let room = Size::new(window.w - size.width, window.h - size.height);
    let place = |index: usize| {
        let share = (index + 1) as f64 / (members + 2) as f64;
        let (x, y) = ((room.width as f64 * share) as usize, (room.height as f64 * share) as usize);
        Rect::new(window.x + x, window.y + y, size.width, size.height)
    };
    let cut = |index: usize| {
        let luma = picture.as_ref().crop(place(index)).to_plane();
        Template::new(format!("{index}"), luma, None)
    };
    let members: lockon_core::Result<Vec<_>> = (0..members).map(cut).collect();
    Ok((Arc::new(Bank::new(members?)?), place(0)))
}

/// The matches that the CPU backend finds in each picture.
fn on_cpu(search: &SearchCase, pictures: &[&Plane], threads: usize) -> Result<Vec<Vec<Match>>> {
    let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build()?;
    let mut planner = cpu::ncc::Planner::new();
    let (bank, window) = (search.bank.clone(), search.window);
    let mut matcher = cpu::ncc::Matcher::new(&mut planner, bank, window.size(), threads);
    let mut find = |picture: &Plane| {
        let mut matches = Vec::new();
        pool.install(|| matcher.run(picture.as_ref(), window, &search.limits, &mut matches))?;
        Ok(matches)
    };
    pictures.iter().map(|picture| find(picture)).collect()
}

/// Compares the score map of the bank's last member, where there is one, with the definition at some
/// positions.
fn check_scores(picture: &Plane, search: &SearchCase, scores: Option<&[f64]>) -> Result<()> {
    let Some(scores) = scores else { return Ok(()) };
    let template = search.bank.members().last().expect("a bank has members");
    let window = search.window;
    let width = template.size().positions_in(window.size()).width;
    for index in (0..CHECKED).map(|i| i * 2_654_435_761 % scores.len()) {
        let (x, y) = (window.x + index % width, window.y + index / width);
        let expected = reference::ncc::score_at(picture.as_ref(), template, x, y);
        ensure!(scores[index] == expected, "score at {x},{y} is {} and not {expected}", scores[index]);
    }
    Ok(())
}

/// Compares what NPP says with the definition at some positions. It computes in f32, from sums that lose
/// digits.
fn check_npp_scores(picture: &Plane, search: &SearchCase, scores: &[f32]) -> Result<()> {
    let template = &search.bank.members()[0];
    let width = template.size().positions_in(picture.size()).width;
    for index in (0..CHECKED).map(|i| i * 2_654_435_761 % scores.len()) {
        let (x, y) = (index % width, index / width);
        let expected = reference::ncc::score_at(picture.as_ref(), template, x, y);
        let found = f64::from(scores[index]);
        ensure!((found - expected).abs() < 0.01, "NPP's score at {x},{y} is {found} and not {expected}");
    }
    Ok(())
}

/// Each member was cut out of the picture, so it must be found with score 1: the first in its place, or in
/// one that comes before it and looks the same.
fn check_matches(picture: &Plane, search: &SearchCase, matches: &[Match]) -> Result<()> {
    let SearchCase { bank, place, limits, .. } = search;
    if limits.max_matches == 1 {
        ensure!(matches.len() == bank.members().len(), "{} matches", matches.len());
        for (found, template) in matches.iter().zip(bank.members()) {
            let exact = reference::ncc::score_at(picture.as_ref(), template, found.x, found.y);
            ensure!(found.score == 1.0 && exact == 1.0, "{found:?}, exactly {exact}");
        }
    }
    let first = matches.first();
    ensure!(
        first.is_some_and(|first| (first.y, first.x) <= (place.y, place.x)),
        "{first:?} and not at {place}"
    );
    Ok(())
}

/// Compares a mask with the definition at some pixels.
fn check_mask(picture: &Plane, spec: &ThresholdSpec, mask: &Plane) -> Result<()> {
    let Size { width, .. } = picture.size();
    for index in (0..CHECKED).map(|i| i * 2_654_435_761 % mask.data().len()) {
        let (x, y) = (index % width, index / width);
        let expected = reference::threshold::is_foreground(picture.as_ref(), spec, x, y);
        ensure!((mask.data()[index] == 255) == expected, "{spec} at {x},{y} is {}", mask.data()[index]);
    }
    Ok(())
}
