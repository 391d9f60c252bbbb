//! `lockon bench`: how fast the kernels are on this machine, each checked against the definition before its time counts.

use std::io::Write as _;
use std::sync::Arc;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Result, ensure};
use serde::Serialize;

use lockon::Error;
use lockon::backend::cuda::bench::{Bench, Copy, Micros, Picture};
use lockon::backend::cuda::{self, Cuda};
use lockon::backend::{Backend, Findings, Standing, cpu};
use lockon::config::{BackendChoice, Kernel, Kernels, Limits, ThresholdMethod, ThresholdSpec};
use lockon::frame::{FrameMeta, Plane, Rect, Size};
use lockon::reference;
use lockon::results::Match;
use lockon::template::{Bank, Template};

use super::args::BenchKernelsArgs;
use super::{Outcome, log, run};

/// What is measured where nothing else was asked for.
const FRAMES: [Size; 2] = [Size::new(1920, 1080), Size::new(3840, 2160)];
const TEMPLATES: [usize; 7] = [8, 16, 32, 48, 64, 128, 256];
const BLOCKS: [usize; 6] = [3, 11, 31, 51, 127, 255];

/// Positions of a score map and pixels of a mask that are compared with the definition.
const CHECKED: usize = 256;

/// What is searched for in frames that go through the ring.
const RING_TEMPLATE: Size = Size::new(32, 32);

/// Frames that go through the ring for one measurement.
const RING_FRAMES: u64 = 2_000;

/// One measurement.
#[derive(Debug, Serialize)]
struct Row {
    /// `ncc`, `threshold`, `resample`, `upload`, `readback`, `ring`.
    op: &'static str,
    /// As `--kernel` takes it; `auto` is what `run` would use.
    kernel: String,
    /// Width and height.
    frame: [usize; 2],
    /// Width and height, of the largest member of a bank.
    #[serde(skip_serializing_if = "Option::is_none")]
    template: Option<[usize; 2]>,
    /// Members.
    bank: usize,
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
    median_us: f64,
    p90_us: f64,
    /// Products of NCC in a second: positions times template pixels, whatever was really multiplied.
    #[serde(skip_serializing_if = "Option::is_none")]
    products_per_s: Option<f64>,
    /// Bytes that have to be moved at least, read once and written once, in a second.
    bytes_per_s: f64,
}

impl Row {
    fn new(op: &'static str, kernel: String, frame: Size, bytes: usize, micros: &Micros) -> Self {
        let at = |share: f64| micros[((micros.len() - 1) as f64 * share).round() as usize];
        let median_us = at(0.5);
        Self {
            op,
            kernel,
            frame: [frame.width, frame.height],
            template: None,
            bank: 1,
            method: None,
            block: None,
            depth: None,
            mask: None,
            median_us,
            p90_us: at(0.9),
            products_per_s: None,
            bytes_per_s: bytes as f64 / median_us * 1e6,
        }
    }
}

/// The whole report.
#[derive(Serialize)]
struct Report {
    device: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    driver: Option<String>,
    /// Of lockon.
    version: &'static str,
    /// What it was built from, where that is known.
    commit: &'static str,
    /// Seconds since 1970.
    date: u64,
    /// How the times were taken.
    timing: &'static str,
    rows: Vec<Row>,
}

/// Measures, prints a table line by line, or JSON at the end.
pub(super) fn kernels(args: &BenchKernelsArgs) -> Result<Outcome> {
    check(args)?;
    let mut work = Work::new(args);
    let number = match args.backend {
        BackendChoice::Cpu => None,
        BackendChoice::Cuda(number) => Some(number),
        BackendChoice::Auto => match cuda::device(0) {
            Ok(device) => Some(device.number),
            Err(why) => {
                tracing::warn!("the CPU is measured: {why}");
                None
            }
        },
    };
    let (device, driver, timing) = if let Some(number) = number {
        let cuda = Cuda::open(Standing::new(Size::new(64, 64)), 1, Kernels::default(), number)?;
        let device = cuda.describe();
        work.header(&device.name)?;
        work.on_gpu(&mut Bench::open(number)?, number)?;
        (device.name, device.driver, "events on the device, L2 flushed before each")
    } else {
        let threads = run::threads(args.threads);
        let device = cpu::Cpu::open(Standing::new(Size::new(64, 64)), 1, threads)?.describe();
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
    Ok(Outcome::Done)
}

/// Refuses what cannot mean anything.
fn check(args: &BenchKernelsArgs) -> lockon::Result<()> {
    let usage = |text: String| Err(Error::Usage(text));
    if let (Some(template), Some(frame)) = (args.template, args.frame)
        && !template.fits_in(frame)
    {
        return usage(format!("--template {template} does not fit in --frame {frame}"));
    }
    if args.bank > 1 && args.template.is_none() && args.block.is_some() {
        return usage("--bank is for templates, and --block measures thresholds only".into());
    }
    match args.backend {
        BackendChoice::Cpu if args.kernel.is_some() => {
            usage("--kernel chooses among the CUDA backend's: it needs --backend cuda".into())
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
    kernel: Option<Kernel>,
    /// Everything is measured, not one thing only.
    is_all: bool,
    prints_table: bool,
    rows: Vec<Row>,
}

impl Work {
    fn new(args: &BenchKernelsArgs) -> Self {
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
            kernel: args.kernel,
            is_all,
            prints_table: !args.json,
            rows: Vec::new(),
        }
    }

    fn wants(&self, kernel: Kernel) -> bool {
        self.kernel.is_none_or(|only| only == kernel)
    }

    fn on_gpu(&mut self, bench: &mut Bench, number: usize) -> Result<()> {
        for frame in self.frames.clone() {
            let picture = reference::picture(frame);
            for template in self.templates.clone().into_iter().filter(|size| size.fits_in(frame)) {
                let (bank, place) = bank(&picture, template, self.bank)?;
                let wanted = Kernel::ALL.into_iter().filter_map(|(_, kernel)| match kernel {
                    Kernel::Ncc(ncc) if self.wants(kernel) => Some(Some(ncc)),
                    _ => None,
                });
                for asked in std::iter::once(None).chain(wanted).collect::<Vec<_>>() {
                    let timed = bench.search(&picture, &bank, asked)?;
                    // A kernel that is too small for the template has its row where it is that kernel's own.
                    if asked.is_some_and(|asked| timed.kernel != Kernel::Ncc(asked)) {
                        continue;
                    }
                    check_search(&picture, &bank, place, timed.scores.as_deref(), &timed.matches)?;
                    let name = asked.map_or("auto".into(), |asked| Kernel::Ncc(asked).to_string());
                    self.add_search(name, frame, &bank, &timed.micros)?;
                }
            }
            for block in self.blocks.clone() {
                for method in methods() {
                    let spec = ThresholdSpec { method, block, inverse: false };
                    let wanted = Kernel::ALL.into_iter().filter_map(|(_, kernel)| {
                        (kernel.makes(method) && self.wants(kernel)).then_some(Some(kernel))
                    });
                    for asked in std::iter::once(None).chain(wanted).collect::<Vec<_>>() {
                        let timed = bench.threshold(&picture, &spec, asked.into_iter().collect())?;
                        // As above.
                        if asked.is_some_and(|asked| timed.kernel != asked) {
                            continue;
                        }
                        check_mask(&picture, &spec, &timed.mask)?;
                        let name = asked.map_or("auto".into(), |asked| asked.to_string());
                        self.add_threshold(name, frame, &spec, &timed.micros)?;
                    }
                }
            }
            if self.is_all && self.kernel.is_none() {
                self.copies(bench, frame)?;
                for (name, from) in [("rows", Picture::Rows), ("array", Picture::Array)] {
                    let (micros, made) = bench.resample(&picture, 1.0, 30.0, from)?;
                    self.add(Row::new("resample", name.into(), frame, frame.area() + made.area(), &micros))?;
                }
                for depth in (1..=4).filter(|_| RING_TEMPLATE.fits_in(frame)) {
                    for mask in [false, true] {
                        self.ring(number, &picture, depth, mask)?;
                    }
                }
            }
        }
        Ok(())
    }

    fn copies(&mut self, bench: &mut Bench, frame: Size) -> Result<()> {
        for (op, kernel, copy) in [
            ("upload", "write-combined", Copy::UploadWriteCombined),
            ("upload", "pinned", Copy::Upload),
            ("readback", "pinned", Copy::ReadBack),
        ] {
            let micros = bench.copy(frame, copy)?;
            self.add(Row::new(op, kernel.into(), frame, frame.area(), &micros))?;
        }
        Ok(())
    }

    /// Frames through the whole ring, from pinned host memory: they lie in the slots' buffers already.
    fn ring(&mut self, number: usize, picture: &Plane, depth: usize, mask: bool) -> Result<()> {
        let frame = picture.size();
        let (bank, place) = bank(picture, RING_TEMPLATE, 1)?;
        let spec = ThresholdSpec { method: ThresholdMethod::Mean { c: 5.0 }, block: 31, inverse: false };
        let standing =
            Standing::new(frame).thresholding(Some(spec), mask).searching(&bank, None, Limits::default())?;
        let mut cuda = Cuda::open(standing, depth, Kernels::default(), number)?;
        let mut findings = Findings::default();
        let mut finish = |cuda: &mut Cuda| -> Result<()> {
            if let Some((slot, _)) = cuda.wait_next(&mut findings)? {
                cuda.release(slot);
            }
            let found = findings.matches.first();
            ensure!(found.is_some_and(|found| found.rect() == place), "the ring found {found:?}");
            Ok(())
        };
        // Frames leave the ring in bunches of up to `depth`: what is timed is `depth` of them.
        let bunch = depth as u64;
        let mut times = Vec::new();
        let mut before = Instant::now();
        for index in 0..RING_FRAMES {
            let meta = FrameMeta { index, pts_ns: None, duration_ns: None, arrived: before };
            if index >= bunch {
                finish(&mut cuda)?;
            }
            if index % bunch == 0 {
                let now = Instant::now();
                // The first frames find an empty ring.
                if index > RING_FRAMES / 10 {
                    times.push((now - before).as_secs_f64() * 1e6 / bunch as f64);
                }
                before = now;
            }
            // Each slot's buffer is written once; after that it holds the frame already.
            let is_new = index < bunch;
            cuda.submit(meta, &mut |mut plane| {
                if is_new {
                    plane.copy_from(picture.as_ref());
                }
            })?;
        }
        for _ in 0..depth {
            finish(&mut cuda)?;
        }
        times.sort_by(f64::total_cmp);
        let mut row = Row::new("ring", "auto".into(), frame, frame.area(), &times);
        (row.template, row.method, row.block) =
            (Some([RING_TEMPLATE.width, RING_TEMPLATE.height]), Some("mean"), Some(31));
        (row.depth, row.mask) = (Some(depth), Some(mask));
        self.add(row)
    }

    fn on_cpu(&mut self, threads: usize) -> Result<()> {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build()?;
        for frame in self.frames.clone() {
            let picture = reference::picture(frame);
            for template in self.templates.clone().into_iter().filter(|size| size.fits_in(frame)) {
                let (bank, place) = bank(&picture, template, self.bank)?;
                let mut planner = cpu::ncc::Planner::new();
                let mut matcher = cpu::ncc::Matcher::new(&mut planner, bank.clone(), frame, threads);
                let (mut matches, limits) = (Vec::new(), Limits::default());
                let micros = pool.install(|| {
                    time(|| {
                        matcher.run(picture.as_ref(), Rect::whole(frame), &limits, &mut matches);
                    })
                });
                check_matches(&picture, &bank, place, &matches)?;
                self.add_search("auto".into(), frame, &bank, &micros)?;
            }
            for block in self.blocks.clone() {
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
                    self.add_threshold("auto".into(), frame, &spec, &micros)?;
                }
            }
        }
        Ok(())
    }

    fn add_search(&mut self, kernel: String, frame: Size, bank: &Bank, micros: &Micros) -> Result<()> {
        let mut row = Row::new("ncc", kernel, frame, frame.area(), micros);
        let products = |template: &Template| {
            let Size { width, height } = template.size();
            (frame.width - width + 1) * (frame.height - height + 1) * width * height
        };
        let all: usize = bank.members().iter().map(products).sum();
        row.products_per_s = Some(all as f64 / row.median_us * 1e6);
        let size = bank.members()[0].size();
        (row.template, row.bank) = (Some([size.width, size.height]), bank.members().len());
        self.add(row)
    }

    fn add_threshold(
        &mut self,
        kernel: String,
        frame: Size,
        spec: &ThresholdSpec,
        micros: &Micros,
    ) -> Result<()> {
        let mut row = Row::new("threshold", kernel, frame, 2 * frame.area(), micros);
        (row.method, row.block) = (Some(spec.method.name()), Some(spec.block));
        self.add(row)
    }

    fn header(&self, device: &str) -> Result<()> {
        if self.prints_table {
            let mut out = std::io::stdout();
            writeln!(out, "{device}")?;
            writeln!(
                out,
                "{:<10} {:<16} {:>9} {:>16} {:>12} {:>10} {:>9} {:>8}",
                "op", "kernel", "frame", "of", "median", "p90", "Gprod/s", "GB/s"
            )?;
        } else {
            log::say(&format!("measuring {device}"));
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
                (Some([w, h]), ..) => format!("{w}x{h}"),
                (None, Some(method), Some(block), _) => format!("{method} {block}"),
                _ => String::new(),
            };
            let products = row.products_per_s.map_or(String::new(), |rate| format!("{:.0}", rate / 1e9));
            writeln!(
                std::io::stdout(),
                "{:<10} {:<16} {:>9} {:>16} {:>9.1} us {:>7.1} us {:>9} {:>8.1}",
                row.op,
                row.kernel,
                format!("{}x{}", row.frame[0], row.frame[1]),
                of,
                row.median_us,
                row.p90_us,
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

/// Templates cut out of a picture along its diagonal, and the place of the first.
fn bank(picture: &Plane, size: Size, members: usize) -> Result<(Arc<Bank>, Rect)> {
    let room = Size::new(picture.size().width - size.width, picture.size().height - size.height);
    let place = |index: usize| {
        let share = (index + 1) as f64 / (members + 2) as f64;
        let (x, y) = ((room.width as f64 * share) as usize, (room.height as f64 * share) as usize);
        Rect::new(x, y, size.width, size.height)
    };
    let cut = |index: usize| {
        let luma = picture.as_ref().crop(place(index)).to_plane();
        Template::new(format!("{index}"), luma, None)
    };
    let members: lockon::Result<Vec<_>> = (0..members).map(cut).collect();
    Ok((Arc::new(Bank::new(members?)?), place(0)))
}

/// Compares the matches with the definition, and the score map, where there is one, at some positions.
fn check_search(
    picture: &Plane,
    bank: &Bank,
    place: Rect,
    scores: Option<&[f64]>,
    matches: &[Match],
) -> Result<()> {
    check_matches(picture, bank, place, matches)?;
    let Some(scores) = scores else { return Ok(()) };
    let template = bank.members().last().expect("a bank has members");
    let width = picture.size().width - template.size().width + 1;
    for index in (0..CHECKED).map(|i| i * 2_654_435_761 % scores.len()) {
        let (x, y) = (index % width, index / width);
        let expected = reference::ncc::score_at(picture.as_ref(), template, x, y);
        ensure!(scores[index] == expected, "score at {x},{y} is {} and not {expected}", scores[index]);
    }
    Ok(())
}

/// Each member was cut out of the picture, so it must be found with score 1: the first in its place, or in one that comes
/// before it and looks the same.
fn check_matches(picture: &Plane, bank: &Bank, place: Rect, matches: &[Match]) -> Result<()> {
    ensure!(matches.len() == bank.members().len(), "{} matches", matches.len());
    for (found, template) in matches.iter().zip(bank.members()) {
        let exact = reference::ncc::score_at(picture.as_ref(), template, found.x, found.y);
        ensure!(found.score == 1.0 && exact == 1.0, "{found:?}, exactly {exact}");
    }
    let first = &matches[0];
    ensure!((first.y, first.x) <= (place.y, place.x), "{first:?} and not at {place}");
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
