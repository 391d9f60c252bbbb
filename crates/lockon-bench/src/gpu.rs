//! Benchmarks that run on a GPU.

use std::sync::Arc;
use std::time::Instant;

use anyhow::{Result, ensure};

use lockon_core::backend::{Backend, Device, Findings, Options, Standing, cpu};
use lockon_core::config::{Cleaning, Connectivity, Kernel, Kernels, Limits, ObjectSpec, ThresholdMethod};
use lockon_core::frame::{FrameMeta, Picture, Plane, Rect, Size};
use lockon_core::reference;
use lockon_cuda::Cuda;
use lockon_cuda::driver::Gpu;

use super::check::{check_mask, check_matches, check_npp_scores, check_scores, found_on_cpu};
use super::device::{Bench, Copy, Frames, PictureMemory};
use super::plan::{FRAMES, RING_FRAMES, RING_SECONDS, RING_TEMPLATE, RING_THRESHOLD, Subject, WINDOW, Work};
use super::say;
use super::scene::{Scene, SearchCase, masks, methods, pictures, ring_standing, spec_of};
use super::table::{Name, Row, Times, at};

/// The number of the first GPU.
///
/// # Errors
/// `Backend` if there is none.
pub(super) fn first() -> lockon_core::Result<usize> {
    lockon_cuda::device(0).map(|device| device.number)
}

/// Measures; gives the device's name, its driver, and how times were taken.
pub(super) fn measure(work: &mut Work, number: usize) -> Result<(String, Option<String>, &'static str)> {
    let began = Instant::now();
    let gpu = Gpu::open(number)?;
    let context_us = began.elapsed().as_secs_f64() * 1e6;
    let Device { name, driver, .. } = gpu.info().describe();
    work.header(&name)?;
    if work.wants_subject(Subject::Start) {
        work.start(number, context_us)?;
    }
    work.on_gpu(&mut Bench::new(&gpu)?, number)?;
    Ok((
        name,
        driver,
        "CUDA graphs over frames that do not fit the L2 cache, by events on the device; launches begin as soon as they can, but for one_by_one_us",
    ))
}

impl Work {
    fn on_gpu(&mut self, bench: &mut Bench, number: usize) -> Result<()> {
        if let Some(peers) = self.peers.as_ref().filter(|peers| !peers.missing.is_empty()) {
            say(&format!("not installed, and not measured: {}", peers.missing.join(", ")));
        }
        for frame in self.frames.clone() {
            if self.is_all && self.wants_subject(Subject::Ncc) {
                let pictures = pictures(Scene::Repeating, frame);
                let frames = bench.load(&pictures)?;
                self.searches(bench, (Scene::Repeating, &pictures), &frames)?;
            }
            let pictures = pictures(Scene::Natural, frame);
            let frames = bench.load(&pictures)?;
            if self.wants_subject(Subject::Ncc) {
                self.searches(bench, (Scene::Natural, &pictures), &frames)?;
                self.peers(bench, &pictures, &frames)?;
            }
            if self.wants_subject(Subject::Threshold) {
                self.thresholds(bench, &pictures, &frames)?;
            }
            if self.wants_subject(Subject::Objects) {
                self.objects(bench, &pictures[0], &frames)?;
            }
            if self.wants_subject(Subject::Copies) {
                self.copies(bench, frame)?;
                for (name, from) in [("rows", PictureMemory::Rows), ("array", PictureMemory::Array)] {
                    let (micros, made) = bench.resample(&pictures[0], 1.0, 30.0, from)?;
                    self.add(Row::new("resample", name.into(), frame, frame.area() + made.area(), &micros))?;
                }
            }
            drop(frames);
            if self.wants_subject(Subject::Ring) && RING_TEMPLATE.fits_in(frame) {
                self.rings(number, &pictures[0])?;
            }
        }
        Ok(())
    }

    fn searches(
        &mut self,
        bench: &mut Bench,
        (scene, pictures): (Scene, &[Plane]),
        frames: &Frames,
    ) -> Result<()> {
        let picture = &pictures[0];
        let (seen, frame) = ((scene, picture), picture.size());
        let whole = Rect::whole(frame);
        let best = Limits::default();
        let mut searches = Vec::new();
        for template in self.templates.iter().filter(|size| size.fits_in(frame)) {
            searches.push(SearchCase::new(seen, whole, *template, self.bank, best)?);
        }
        if self.is_all && WINDOW.is_inside(frame) {
            let (middle, many) = (Size::new(64, 64), Limits { min_score: 0.5, max_matches: 20, ..best });
            searches.push(SearchCase::new(seen, whole, middle, 1, many)?);
            searches.push(SearchCase::new(seen, whole, Size::new(32, 32), 32, best)?);
            searches.push(SearchCase::new(seen, WINDOW, middle, 1, best)?);
            searches.push(SearchCase::new(seen, WINDOW, middle, 64, best)?);
        }
        for search in searches {
            // The expected results for the first frame and the last.
            let expected =
                found_on_cpu(&search, &[&pictures[0], &pictures[pictures.len() - 1]], self.threads)?;
            let wanted = Kernel::ALL.into_iter().filter_map(|(_, kernel)| match kernel {
                // Only what would be taken is measured in more than one scene.
                Kernel::Ncc(ncc) if self.wants_kernel(kernel) && scene == Scene::Natural => Some(Some(ncc)),
                _ => None,
            });
            for asked in std::iter::once(None).chain(wanted).collect::<Vec<_>>() {
                let timed = bench.search(frames, search.window, &search.bank, &search.limits, asked)?;
                // A kernel that is too small for the template has its row where it is that kernel's own.
                if asked.is_some_and(|asked| timed.kernel != Kernel::Ncc(asked)) {
                    continue;
                }
                check_scores(picture, &search, timed.scores.as_deref())?;
                check_matches(picture, &search, &timed.matches[0])?;
                let last = timed.matches.get(pictures.len() - 1);
                let is_right =
                    timed.matches[0] == expected[0] && last.is_none_or(|last| *last == expected[1]);
                ensure!(is_right, "not the matches that the CPU finds: {:?}", timed.matches[0]);
                let name = Name::of(asked.map(Kernel::Ncc), timed.kernel);
                let times = Times { micros: &timed.micros, one_by_one: timed.one_by_one.as_ref() };
                self.add_search(name, &search, times)?;
            }
        }
        Ok(())
    }

    /// Times other libraries on the same task.
    fn peers(&mut self, bench: &mut Bench, pictures: &[Plane], frames: &Frames) -> Result<()> {
        let picture = &pictures[0];
        let frame = picture.size();
        let npp = self.peers.as_ref().and_then(|peers| peers.npp.as_ref());
        let mut peer_rows = Vec::new();
        if let Some(npp) = npp {
            for template in [16, 32, 64, 128].map(|side| Size::new(side, side)) {
                if !self.templates.contains(&template) || !template.fits_in(frame) {
                    continue;
                }
                let (whole, best) = (Rect::whole(frame), Limits::default());
                let search = SearchCase::new((Scene::Natural, picture), whole, template, 1, best)?;
                let timed = bench.npp_search(npp, frames, search.bank.members()[0].luma())?;
                check_npp_scores(picture, &search, &timed.answer)?;
                peer_rows.push((search, timed.micros));
            }
        }
        for (search, micros) in peer_rows {
            self.add_search("npp".into(), &search, Times::from(&micros))?;
        }
        if let Some(fft) = self.peers.as_ref().and_then(|peers| peers.fft.as_ref()) {
            let timed = bench.fft(fft, pictures)?;
            let area = frame.area() as f32;
            let is_same = |(found, pixel): (&f32, &u8)| (found / area - f32::from(*pixel)).abs() < 0.1;
            ensure!(
                timed.answer.iter().zip(picture.data()).all(is_same),
                "cuFFT did not give the picture back"
            );
            self.add(Row::new("fft", "cufft".into(), frame, 8 * frame.area(), &timed.micros))?;
        }
        Ok(())
    }

    fn thresholds(&mut self, bench: &mut Bench, pictures: &[Plane], frames: &Frames) -> Result<()> {
        let picture = &pictures[0];
        let frame = picture.size();
        for block in self.blocks.clone() {
            for method in methods() {
                let spec = spec_of(method, block);
                let mut expected = Plane::new(frame);
                cpu::threshold::Thresholder::new(&spec, frame).run(picture.as_ref(), &mut expected);
                let wanted = Kernel::ALL.into_iter().filter_map(|(_, kernel)| {
                    (kernel.makes(method) && self.wants_kernel(kernel)).then_some(Some(kernel))
                });
                for asked in std::iter::once(None).chain(wanted).collect::<Vec<_>>() {
                    let timed = bench.threshold(frames, &spec, asked.into_iter().collect())?;
                    // As above.
                    if asked.is_some_and(|asked| timed.kernel != asked) {
                        continue;
                    }
                    check_mask(picture, &spec, &timed.mask)?;
                    ensure!(timed.mask == expected, "{spec}: not the mask that the CPU makes");
                    let name = Name::of(asked, timed.kernel);
                    let times = Times { micros: &timed.micros, one_by_one: timed.one_by_one.as_ref() };
                    self.add_threshold(name, frame, &spec, times)?;
                }
                if let (ThresholdMethod::Mean { c }, Some(npp)) =
                    (method, self.peers.as_ref().and_then(|peers| peers.npp.as_ref()))
                {
                    let timed = bench.npp_threshold(npp, frames, block, c as f32)?;
                    // Its mean is rounded otherwise.
                    let differ = timed.answer.iter().zip(expected.data()).filter(|(a, b)| a != b).count();
                    ensure!(differ < frame.area() / 20, "NPP's {spec} differs in {differ} pixels");
                    self.add_threshold("npp".into(), frame, &spec, Times::from(&timed.micros))?;
                }
            }
        }
        Ok(())
    }

    /// Objects of masks, each with both kinds of neighbours.
    fn objects(&mut self, bench: &mut Bench, picture: &Plane, frames: &Frames) -> Result<()> {
        let size = picture.size();
        for (scene, mask) in masks(picture) {
            for connectivity in [Connectivity::Eight, Connectivity::Four] {
                let spec = ObjectSpec { connectivity, ..ObjectSpec::default() };
                let (micros, found, cleaned) = bench.objects(frames, &mask, &spec)?;
                let mut finder = cpu::objects::ObjectFinder::new(&spec, size, None)?;
                let mut expected = Vec::new();
                finder.clean(mask.as_ref())?;
                finder.find(picture.as_ref(), &mut expected)?;
                let mut expected_mask = Plane::new(size);
                finder.cleaned(&mut expected_mask);
                let is_same = found == expected && cleaned == expected_mask;
                ensure!(is_same, "{scene}: not the objects that the CPU finds");
                let kernel = format!("{connectivity} neighbours, {} objects", found.len());
                // Mask and luma are read.
                let mut row = Row::new("objects", kernel, size, 2 * size.area(), &micros);
                row.scene = Some(scene);
                self.add(row)?;
            }
        }
        Ok(())
    }

    fn copies(&mut self, bench: &mut Bench, frame: Size) -> Result<()> {
        for (op, kernel, copy) in [
            ("upload", "write-combined", Copy::UploadWriteCombined),
            ("upload", "pinned", Copy::Upload),
            ("readback", "pinned", Copy::ReadBack),
            ("upload", "while reading back", Copy::BothWays),
        ] {
            let micros = bench.copy(frame, copy)?;
            self.add(Row::new(op, kernel.into(), frame, frame.area(), &micros))?;
        }
        Ok(())
    }

    /// How long after the process's start, the context's creation left out, there is a first result.
    fn start(&mut self, number: usize, context_us: f64) -> Result<()> {
        let frame = FRAMES[0];
        let picture = reference::picture(frame);
        let standing = ring_standing(&picture, true)?;
        let began = Instant::now();
        let mut cuda = Cuda::open(standing, &ring(2, self.kernels.iter().copied().collect()), number)?;
        let open_us = began.elapsed().as_secs_f64() * 1e6;
        let meta = FrameMeta { index: 0, pts_ns: None, duration_ns: None, arrived: began };
        let picture: Arc<dyn Picture> = Arc::new(picture);
        cuda.submit(meta, &picture)?;
        let mut findings = Findings::default();
        cuda.wait_next(&mut findings)?;
        let result_us = began.elapsed().as_secs_f64() * 1e6;
        ensure!(findings.matches.len() == 1, "the first frame's matches: {:?}", findings.matches);
        for (what, micros) in [("context", context_us), ("open", open_us), ("first result", result_us)] {
            self.add(Row::new("start", what.into(), frame, frame.area(), &vec![micros]))?;
        }
        Ok(())
    }

    /// Frames through the whole ring, from pinned host memory: uploading alone, and with all work.
    fn rings(&mut self, number: usize, picture: &Plane) -> Result<()> {
        let mut asked = vec![("auto".to_owned(), Kernels::default())];
        if !self.kernels.is_empty() {
            let names: Vec<_> = self.kernels.iter().map(ToString::to_string).collect();
            asked.push((names.join("+"), self.kernels.iter().copied().collect()));
        }
        for depth in 1..=4 {
            self.ring(number, picture, depth, RingWork::Nothing, ("none", Kernels::default()))?;
            for (name, kernels) in &asked {
                for mask in [false, true] {
                    self.ring(number, picture, depth, RingWork::Search { mask }, (name, *kernels))?;
                }
            }
            self.ring(number, picture, depth, RingWork::Objects, ("auto", Kernels::default()))?;
        }
        Ok(())
    }

    fn ring(
        &mut self,
        number: usize,
        picture: &Plane,
        depth: usize,
        work: RingWork,
        (name, kernels): (&str, Kernels),
    ) -> Result<()> {
        let frame = picture.size();
        let shared: Arc<dyn Picture> = Arc::new(picture.clone());
        let standing = match work {
            RingWork::Nothing => Standing::new(frame),
            RingWork::Search { mask } => ring_standing(picture, mask)?,
            RingWork::Objects => {
                let cleaning = Cleaning { open: Some(OPENING.parse()?), ..Cleaning::default() };
                let spec = ObjectSpec { cleaning, ..ObjectSpec::default() };
                Standing::new(frame).thresholding(Some(RING_THRESHOLD), false).finding(Some(spec))
            }
        };
        let mut expected = Findings::default();
        {
            let mut cpu = cpu::Cpu::open(standing.clone(), &ring(1, Kernels::default()))?;
            let meta = FrameMeta { index: 0, pts_ns: None, duration_ns: None, arrived: Instant::now() };
            cpu.submit(meta, &shared)?;
            cpu.wait_next(&mut expected)?;
        }
        let mut cuda = Cuda::open(standing, &ring(depth, kernels), number)?;
        let mut findings = Findings::default();
        let mut finish = |cuda: &mut Cuda| -> Result<()> {
            cuda.wait_next(&mut findings)?;
            ensure!(findings.matches == expected.matches, "the ring found {:?}", findings.matches);
            ensure!(findings.objects == expected.objects, "the ring found other objects than the CPU");
            Ok(())
        };
        // Frames leave the ring in bunches of up to `depth`: what is timed is `depth` of them.
        let bunch = depth as u64;
        let (mut times, mut submits) = (Vec::new(), Vec::new());
        let began = Instant::now();
        let mut before = began;
        for index in 0..RING_FRAMES {
            if times.len() >= 20 && began.elapsed().as_secs_f64() > RING_SECONDS {
                break;
            }
            let meta = FrameMeta { index, pts_ns: None, duration_ns: None, arrived: before };
            if index >= bunch {
                finish(&mut cuda)?;
            }
            let now = Instant::now();
            // The first frames find an empty ring.
            let counts = index >= 20 * bunch;
            if index % bunch == 0 {
                if counts && index > 20 * bunch {
                    times.push((now - before).as_secs_f64() * 1e6 / bunch as f64);
                }
                before = now;
            }
            // Each slot's buffer is written once; after that it holds the frame already.
            if index == bunch {
                cuda.keep_pixels();
            }
            cuda.submit(meta, &shared)?;
            if counts {
                submits.push(now.elapsed().as_secs_f64() * 1e6);
            }
        }
        while cuda.wait_next(&mut Findings::default())?.is_some() {}
        times.sort_by(f64::total_cmp);
        submits.sort_by(f64::total_cmp);
        let mut row = Row::new("ring", name.into(), frame, frame.area(), &times);
        if work != RingWork::Nothing {
            (row.method, row.block) = (Some(RING_THRESHOLD.method.name()), Some(RING_THRESHOLD.block.width));
        }
        let mut mask = None;
        match work {
            RingWork::Nothing => {}
            RingWork::Search { mask: is_wanted } => {
                row.template = Some([RING_TEMPLATE.width, RING_TEMPLATE.height]);
                mask = Some(is_wanted);
            }
            RingWork::Objects => {
                row.op = "ring_objects";
                row.kernel =
                    format!("opening {OPENING}, {} objects", expected.objects.map_or(0, |found| found.len()));
            }
        }
        (row.depth, row.mask, row.submit_us) = (Some(depth), mask, Some(at(&submits, 0.5)));
        self.add(row)
    }
}

/// What a ring does to its frames.
#[derive(Clone, Copy, PartialEq)]
enum RingWork {
    /// It uploads them.
    Nothing,
    /// It searches a template and thresholds, with or without copying the mask back.
    Search { mask: bool },
    /// It thresholds, opens the mask and finds its objects.
    Objects,
}

/// The opening of the ring's masks.
const OPENING: &str = "3";

/// Options of a ring of so many slots.
fn ring(depth: usize, kernels: Kernels) -> Options {
    Options { depth, kernels, ..Options::default() }
}
