//! The backend on a real device, against the definition and against the CPU backend. Without a GPU each says
//! that it skips.

#![expect(unsafe_code, reason = "they run graphs and publish lists by themselves, as the ring does")]

use std::sync::{Arc, Mutex};
use std::time::Duration;

use rayon::prelude::*;

use super::driver::counted;
use super::mma::Generation;
use super::testing::Random;
use super::*;
use lockon_core::backend::peaks::{ScoreTile, Selector};
use lockon_core::backend::{Options, cpu};
use lockon_core::config::{Kernel, Limits, NccKernel, ObjectSpec, ThresholdSpec};
use lockon_core::frame::{Plane, Rect};
use lockon_core::reference;
use lockon_core::results::Match;
use lockon_core::template::{Bank, Template};

fn shared(frame: &Plane) -> Arc<dyn Picture> {
    Arc::new(frame.clone())
}

fn options(depth: usize, kernels: Kernels) -> Options {
    Options { depth, kernels, ..Options::default() }
}

/// One template in one region of one frame, as a failure prints it.
#[derive(Debug)]
#[expect(dead_code, reason = "printed")]
struct Case {
    seed: u64,
    frame: Size,
    roi: Rect,
    template: Size,
    is_masked: bool,
    kernel: Option<NccKernel>,
    limits: Limits,
}

/// Maximum number of products that the definition computes in one case.
const MOST_PRODUCTS: usize = 2_000_000_000;

/// Positions that are looked at where all would be too many.
const SAMPLED: usize = 4_096;

/// Searches with random numbers.
const SEARCHES: u64 = 2100;

/// Templates that are searched whatever the random numbers are: the smallest, the largest that ncc-wgmma and
/// ncc-mma match in one launch, what is a column, a row or a quarter of them too large, and one larger than
/// any of their pieces.
const CORNERS: [(usize, usize); 12] = [
    (1, 2),
    (2, 1),
    (1, 200),
    (200, 1),
    (200, 200),
    (128, 128),
    (128, 256),
    (129, 128),
    (128, 257),
    (160, 256),
    (513, 129),
    (1000, 700),
];

/// Sizes of a frame, of a region of it, and of a template that fits in there.
fn shapes(random: &mut Random, seed: u64) -> (Size, Rect, Size) {
    let corner = CORNERS.get(seed as usize).map(|&(width, height)| Size::new(width, height));
    let least = corner.unwrap_or(Size::new(1, 1));
    let frame = loop {
        let size = Size::new(random.log_uniform(least.width, 4097), random.log_uniform(least.height, 2161));
        if size.area() >= 2 {
            break size;
        }
    };
    let whole = random.below(3) > 0;
    let smaller = Size::new(random.below(frame.width) + 1, random.below(frame.height) + 1);
    let roi_size = if whole || smaller.area() < 2 || !least.fits_in(smaller) { frame } else { smaller };
    let roi = random.place(roi_size, frame);
    if let Some(template) = corner {
        return (frame, roi, template);
    }
    if random.below(20) == 0 && roi.size().area() <= 1 << 22 {
        return (frame, roi, roi.size());
    }
    // Each side, or each doubling of it, as likely as any other. What it leaves of 16 the tensor cores
    // multiply by zeros.
    let is_uniform = random.below(2) == 0;
    let side = |random: &mut Random, most: usize| {
        if is_uniform { random.below(most.min(200)) + 1 } else { random.log_uniform(1, most.min(300)) }
    };
    let template = loop {
        let size = Size::new(side(random, roi.w), side(random, roi.h));
        if size.area() >= 2 {
            break size;
        }
    };
    (frame, roi, template)
}

#[test]
fn random_searches_have_templates_of_every_remainder_of_16() {
    let all = (0..SEARCHES).map(|seed| {
        let mut random = Random(seed);
        random.next();
        shapes(&mut random, seed)
    });
    let mut seen = [[0; 16]; 2];
    for (frame, roi, template) in all {
        assert!(roi.is_inside(frame) && template.fits_in(roi.size()) && template.area() >= 2);
        // Templates that may be matched in one launch.
        if template.width <= 128 && template.area() <= 1 << 15 {
            seen[0][template.width % 16] += 1;
            seen[1][template.height % 16] += 1;
        }
    }
    assert!(seen.as_flattened().iter().all(|&count| count >= 10), "{seen:?}");
}

fn case(seed: u64) -> (Case, Plane, Arc<Bank>) {
    let mut random = Random(seed);
    random.next();
    let (frame, roi, template) = shapes(&mut random, seed);
    let picture = random.picture(frame);
    let region = picture.as_ref().crop(roi);
    let made = random.template(region, template, "t");
    let is_masked = made.mask().is_some();
    let positions = ncc::positions(roi.size(), template).area();
    let min_score = [-1.0, 0.0, 0.5, 0.9][random.below(4)];
    let min_score: f64 = if positions > 200_000 { f64::max(min_score, 0.3) } else { min_score };
    let limits = Limits {
        min_score,
        max_matches: if random.below(3) == 0 { 1 } else { 1 + random.below(30) },
        max_overlap: random.below(11) as f64 / 10.0,
    };
    let kernels = std::iter::once(None).chain(Kernel::ALL.iter().filter_map(|(_, kernel)| match kernel {
        Kernel::Ncc(kernel) => Some(Some(*kernel)),
        _ => None,
    }));
    let kernels: Vec<_> = kernels.collect();
    let kernel = kernels[random.below(kernels.len())];
    let case = Case { seed, frame, roi, template, is_masked, kernel, limits };
    (case, picture, Arc::new(Bank::new(vec![made]).unwrap()))
}

/// Searches one case after another.
struct Searcher {
    lane: Lane,
    list: CandidateList,
}

/// Generations whose kernels run on the device: kernels compiled for the first run on all.
fn generations(gpu: &Gpu) -> &'static [Generation] {
    let all = &[Generation::Turing, Generation::Ampere];
    if gpu.info().capability.major >= 8 { all } else { &all[..1] }
}

/// The score map and the matches that the device finds. Where the kernel makes no map, another makes it.
fn search_on(
    gpu: &Gpu,
    Searcher { lane, list }: &mut Searcher,
    case: &Case,
    picture: &Plane,
    bank: &Arc<Bank>,
) -> (Vec<f64>, Vec<Match>) {
    let stream = lane.stream.clone();
    let frame = testing::upload(gpu, &stream, picture.as_ref());
    let size = case.roi.size();
    let generations = generations(gpu);
    let generation = generations[case.seed as usize % generations.len()];
    let multiprocessors = gpu.multiprocessors().unwrap();
    let search = |lane: &mut Lane, list: &mut CandidateList, asked: Option<NccKernel>| {
        let planner = Planner::imitating(gpu, asked, generation, multiprocessors).unwrap();
        let plan = PlannedSearch::new(&planner, &stream, bank.clone(), size, &case.limits).unwrap();
        lane.prepare(&plan).unwrap();
        lane.poison().unwrap();
        let search = WindowSearch::new(&plan, case.roi, &case.limits);
        lane.run(list, &mut |lane, list| lane.search(list, &frame, search)).unwrap();
        plan
    };
    let plan = search(lane, list, case.kernel);
    let mut matches = Vec::new();
    let origin = (case.roi.x, case.roi.y);
    plan.select(list.candidates(&stream).unwrap(), origin, &case.limits, &mut Vec::new(), &mut matches);
    if !plan.makes_map() {
        search(lane, list, Some(NccKernel::Shared));
    }
    (lane.score_map(ncc::positions(size, case.template)).unwrap(), matches)
}

/// The matches that a score map holds.
fn matches_of(map: &[f64], case: &Case, bank: &Bank) -> Vec<Match> {
    let mut found = Vec::new();
    let size = ncc::positions(case.roi.size(), case.template);
    ScoreTile::whole(map, size).find(0, case.limits.min_score, &mut found);
    let mut matches = Vec::new();
    let origin = (case.roi.x, case.roi.y);
    Selector::new(bank).select(&mut found, bank, origin, &case.limits, &mut matches);
    matches
}

fn check_case(gpu: &Gpu, searcher: &Mutex<Searcher>, seed: u64) -> usize {
    let (case, picture, bank) = case(seed);
    let region = picture.as_ref().crop(case.roi);
    let template = &bank.members()[0];
    let size = ncc::positions(case.roi.size(), case.template);
    let (map, matches) = search_on(gpu, &mut searcher.lock().unwrap(), &case, &picture, &bank);
    // Peaks, limits and suppression, from the map that the device made.
    assert_eq!(matches, matches_of(&map, &case, &bank), "{case:?}");
    let products = size.area() * case.template.area();
    let check = |index: usize| {
        let expected = reference::ncc::score_at(region, template, index % size.width, index / size.width);
        let found = map[index];
        assert_eq!(
            found.to_bits(),
            expected.to_bits(),
            "{case:?}: position {index}: {found} is not {expected}"
        );
    };
    if products <= MOST_PRODUCTS {
        (0..size.area()).for_each(check);
        if products <= MOST_PRODUCTS / 20 {
            let expected = reference::ncc::matches(picture.as_ref(), &bank, case.roi, &case.limits);
            assert_eq!(matches, expected, "{case:?}");
        }
        return products;
    }
    let mut random = Random(!seed);
    (0..SAMPLED).for_each(|_| check(random.below(size.area())));
    for found in &matches {
        check((found.y - case.roi.y) * size.width + found.x - case.roi.x);
    }
    SAMPLED * case.template.area()
}

#[test]
fn scores_and_matches_of_2100_random_searches_are_those_of_the_definition() {
    let Some(gpu) = testing::gpu() else { return };
    let lane = Lane::new(&gpu, 4097 * 2161).unwrap();
    let searcher = Mutex::new(Searcher { lane, list: CandidateList::new(&gpu, true).unwrap() });
    let products: usize = (0..SEARCHES).into_par_iter().map(|seed| check_case(&gpu, &searcher, seed)).sum();
    assert!(products > 0);
    gpu.check_dropped().unwrap();
}

/// The CPU backend, for frames that are submitted as fast as it has slots for them.
fn on_cpu(standing: &Standing, depth: usize) -> cpu::Cpu {
    let options = Options { depth, threads: 1, ..Options::default() };
    cpu::Cpu::open(standing.clone(), &options).unwrap()
}

fn findings_of(backend: &mut dyn Backend, frames: &[Plane]) -> Vec<Findings> {
    let mut all = Vec::new();
    let mut finish = |backend: &mut dyn Backend, index: usize| {
        let mut findings = Findings::default();
        let meta = backend.wait_next(&mut findings).unwrap().expect("a frame is in flight");
        assert_eq!(meta.index, index as u64);
        all.push(findings);
    };
    let mut done = 0;
    for (index, frame) in frames.iter().enumerate() {
        if index - done == backend.depth() {
            finish(backend, done);
            done += 1;
        }
        let meta =
            FrameMeta { index: index as u64, pts_ns: None, duration_ns: None, arrived: Instant::now() };
        backend.submit(meta, &shared(frame)).unwrap();
    }
    while done < frames.len() {
        finish(backend, done);
        done += 1;
    }
    all
}

/// Both backends must return equal results for these frames.
fn compare(
    standing: &Standing,
    depth: usize,
    kernels: Kernels,
    frames: &[Plane],
    what: &str,
) -> Vec<Findings> {
    let mut cuda = Cuda::open(standing.clone(), &options(depth, kernels), 0).unwrap();
    let mut cpu = on_cpu(standing, depth);
    let found = findings_of(&mut cuda, frames);
    for (index, (found, expected)) in found.iter().zip(findings_of(&mut cpu, frames)).enumerate() {
        assert_eq!(found.matches, expected.matches, "{what}, frame {index}: matches");
        assert_eq!(found.foreground, expected.foreground, "{what}, frame {index}: foreground");
        let pixels = |findings: &Findings| findings.mask.as_ref().map(|mask| mask.plane(0).to_plane());
        assert!(pixels(found) == pixels(&expected), "{what}, frame {index}: masks differ");
        let counts = |findings: &Findings| (findings.objects.as_ref().map(Vec::len), findings.more_objects);
        assert_eq!(counts(found), counts(&expected), "{what}, frame {index}: numbers of objects");
        assert!(found.objects == expected.objects, "{what}, frame {index}: objects differ");
    }
    found
}

fn objects(spec: &str) -> ObjectSpec {
    serde_json::from_str(spec).unwrap()
}

#[test]
fn objects_of_a_full_ring_are_the_cpus() {
    if testing::gpu().is_none() {
        return;
    }
    let mut random = Random(51);
    for (turn, spec) in [
        "{}",
        r#"{"connect":"4","area":"2..50"}"#,
        r#"{"colour":"black","open":"3","fill_holes":true,"max":3}"#,
        r#"{"close":"3"}"#,
        r#"{"reports":false,"close":"3"}"#,
        r#"{"reports":false}"#,
    ]
    .iter()
    .enumerate()
    {
        for (wants_mask, expands, is_searched) in
            [(false, false, true), (true, false, false), (true, true, true), (false, true, false)]
        {
            let size = Size::new(97 + 40 * turn, 61 + 9 * turn);
            let frames: Vec<_> = (0..6).map(|_| random.picture(size)).collect();
            let mut standing = Standing::new(size)
                .thresholding(Some("mean:15:3".parse().unwrap()), wants_mask)
                .finding(Some(objects(spec)))
                .expanding(expands);
            if is_searched {
                let template = random.template(frames[0].as_ref(), Size::new(12, 9), "t");
                let limits = Limits { min_score: 0.2, ..Limits::default() };
                standing = standing.searching(&Bank::new(vec![template]).unwrap(), None, limits).unwrap();
            }
            let depth = 1 + turn % 3;
            let what = format!("{spec}, mask {wants_mask}, expanded {expands}, {depth} slots");
            let found = compare(&standing, depth, Kernels::default(), &frames, &what);
            let reports = standing.objects.unwrap().reports;
            assert!(found.iter().all(|frame| frame.objects.is_some() == reports), "{what}");
        }
    }
    testing::gpu().unwrap().check_dropped().unwrap();
}

/// Pixels of a checkerboard, each an object of its own.
fn checkerboard(size: Size) -> Plane {
    let at = |at: usize| if (at % size.width + at / size.width).is_multiple_of(2) { 200 } else { 50 };
    Plane::from_vec((0..size.area()).map(at).collect(), size)
}

#[test]
fn a_ring_with_more_objects_than_room_counts_them_again_and_has_room_from_then_on() {
    if testing::gpu().is_none() {
        return;
    }
    let size = Size::new(640, 480);
    let frames = vec![checkerboard(size); 3];
    let standing = Standing::new(size)
        .thresholding(Some("mean:3:0".parse().unwrap()), false)
        .finding(Some(objects(r#"{"connect":"4"}"#)));
    let found = compare(&standing, 1, Kernels::default(), &frames, "a checkerboard");
    assert_eq!(found[0].objects.as_ref().unwrap().len(), size.area() / 2);
    assert_eq!(found.iter().map(|findings| findings.redone).collect::<Vec<_>>(), [1, 0, 0]);
}

/// The frames behind the one that made room were counted with less.
#[test]
fn frames_in_flight_with_more_parts_of_objects_than_room_are_all_counted_again() {
    if testing::gpu().is_none() {
        return;
    }
    // Stripes of one pixel: sixteen parts in each tile, and few objects.
    let size = Size::new(4096, 2080);
    let at = |at: usize| if (at % size.width).is_multiple_of(2) { 200 } else { 50 };
    let frames = vec![Plane::from_vec((0..size.area()).map(at).collect(), size); 3];
    let standing = Standing::new(size)
        .thresholding(Some("mean:3:0".parse().unwrap()), false)
        .finding(Some(objects("{}")));
    let found = compare(&standing, 3, Kernels::default(), &frames, "stripes");
    assert_eq!(found.iter().map(|findings| findings.redone).collect::<Vec<_>>(), [1, 1, 1]);
}

#[test]
fn a_ring_with_more_objects_than_memory_gives_the_error_of_the_cpu_and_is_not_used_again() {
    if testing::gpu().is_none() {
        return;
    }
    let size = Size::new(64, 48);
    let standing = Standing::new(size)
        .thresholding(Some("mean:3:0".parse().unwrap()), false)
        .finding(Some(objects(r#"{"connect":"4"}"#)));
    let options = Options { memory: Some(Bytes(200_000)), ..options(2, Kernels::default()) };
    let mut cuda = Cuda::open(standing, &options, 0).unwrap();
    submitted(&mut cuda, 0, &checkerboard(size)).unwrap();
    let said = waited(&mut cuda).unwrap_err();
    assert!(said.contains("the objects of a mask of 64x48") && said.contains("--open"), "{said}");
    assert_is_poisoned(&mut cuda, &said, &checkerboard(size));
}

/// About 60 small cases that reach every kernel and every edge of its tiles: what a sanitizer has time for.
#[test]
fn each_kernel_agrees_with_the_cpu_at_its_smallest_interesting_sizes() {
    if testing::gpu().is_none() {
        return;
    }
    let mut random = Random(5);
    let kernel = |name: &str| std::iter::once(name.parse::<Kernel>().unwrap()).collect::<Kernels>();
    let sizes = [
        (Size::new(2, 1), Size::new(3, 1)),
        (Size::new(1, 2), Size::new(1, 2)),
        (Size::new(5, 3), Size::new(37, 9)),
        (Size::new(17, 11), Size::new(300, 41)),
        (Size::new(40, 70), Size::new(101, 90)),
        (Size::new(65, 3), Size::new(131, 7)),
    ];
    let named = |is_wanted: fn(&Kernel) -> bool| {
        Kernel::ALL.iter().filter(move |(_, kernel)| is_wanted(kernel)).map(|(name, _)| *name)
    };
    for name in named(|kernel| matches!(kernel, Kernel::Ncc(_))) {
        for (template, frame) in sizes {
            for is_masked in [false, true] {
                let pictures: Vec<_> = (0..2).map(|_| random.picture(frame)).collect();
                let luma = pictures[0].as_ref().crop(random.place(template, frame)).to_plane();
                let mut mask = Plane::from_vec(vec![255; template.area()], template);
                if is_masked && template.area() > 4 {
                    mask.data_mut()[2] = 0;
                }
                let made = Template::new("t", luma, Some(&mask));
                let made = made.unwrap_or_else(|_| random.template(pictures[0].as_ref(), template, "t"));
                let limits = Limits { min_score: -1.0, max_matches: 3, max_overlap: 0.5 };
                let standing =
                    Standing::new(frame).searching(&Bank::new(vec![made]).unwrap(), None, limits).unwrap();
                compare(&standing, 2, kernel(name), &pictures, &format!("{name} {template} in {frame}"));
            }
        }
    }
    for name in named(|kernel| !matches!(kernel, Kernel::Ncc(_))) {
        let methods: &[&str] =
            if name.starts_with("box") { &["mean", "sauvola", "niblack"] } else { &["gaussian"] };
        for method in methods {
            for (block, frame) in [(3, Size::new(1, 1)), (11, Size::new(67, 35)), (33, Size::new(19, 70))] {
                let text = format!("{method}:{block}:{}", if *method == "mean" { "2.5:inv" } else { "0.2" });
                let spec: ThresholdSpec = text.parse().unwrap();
                let pictures: Vec<_> = (0..2).map(|_| random.picture(frame)).collect();
                let standing = Standing::new(frame).thresholding(Some(spec), true);
                compare(&standing, 2, kernel(name), &pictures, &format!("{name} {text} of {frame}"));
            }
        }
    }
    // Kernels that no request names.
    for text in [
        "wolf:11x3:0.3",
        "phansalkar:3:0.2:inv",
        "bradley:5x33:5",
        "mean:3x11:2.5..-9",
        "gaussian:11:2..-9",
        "otsu",
        "triangle:inv",
        "fixed:150..60",
        "background:3:7..20",
    ] {
        for frame in [Size::new(1, 1), Size::new(67, 35), Size::new(19, 70)] {
            let pictures: Vec<_> = (0..3).map(|_| random.picture(frame)).collect();
            let standing = Standing::new(frame).thresholding(Some(text.parse().unwrap()), true);
            compare(&standing, 2, Kernels::default(), &pictures, &format!("{text} of {frame}"));
        }
    }
}

/// Several frames are in flight at a time, and each leaves its mark on the next ones.
#[test]
fn backgrounds_of_rings_are_the_cpus_in_the_order_of_frames() {
    if testing::gpu().is_none() {
        return;
    }
    let mut random = Random(91);
    let frame = Size::new(131, 67);
    let pictures: Vec<_> = (0..9).map(|_| random.picture(frame)).collect();
    for spec in ["background:4:9", "background:100:5..30:inv", "background:1:40"] {
        let standing = Standing::new(frame).thresholding(Some(spec.parse().unwrap()), true);
        for depth in [1, 2, 4] {
            compare(&standing, depth, Kernels::default(), &pictures, &format!("{spec}, depth {depth}"));
        }
    }
}

/// A bank, where to look for it, and what for.
type Asked = (Arc<Bank>, Rect, Limits);

/// Returns the results of searches that follow each other on one lane, and how often they were done again.
fn searched(planner: &Planner, lane: &mut Lane, picture: &Plane, asked: &[Asked]) -> (Vec<Vec<Match>>, u64) {
    let gpu = lane.stream.gpu().clone();
    let stream = lane.stream.clone();
    let frame = testing::upload(&gpu, &stream, picture.as_ref());
    let mut list = CandidateList::new(&gpu, true).unwrap();
    let (mut answers, mut redone) = (Vec::new(), 0);
    for (bank, window, limits) in asked {
        let plan = PlannedSearch::new(planner, &stream, bank.clone(), window.size(), limits).unwrap();
        lane.prepare(&plan).unwrap();
        lane.poison().unwrap();
        let search = WindowSearch::new(&plan, *window, limits);
        redone += lane.run(&mut list, &mut |lane, list| lane.search(list, &frame, search)).unwrap();
        let mut matches = Vec::new();
        let found = list.candidates(&stream).unwrap();
        plan.select(found, (window.x, window.y), limits, &mut Vec::new(), &mut matches);
        answers.push(matches);
    }
    (answers, redone)
}

/// Returns the results of the definition for these searches.
fn defined(picture: &Plane, asked: &[Asked]) -> Vec<Vec<Match>> {
    let matches =
        |(bank, window, limits): &Asked| reference::ncc::matches(picture.as_ref(), bank, *window, limits);
    asked.iter().map(matches).collect()
}

/// The kernels for tensor cores, and the generation for which they are compiled.
const FOR_TENSOR_CORES: [(NccKernel, Generation); 6] = [
    (NccKernel::Wgmma, Generation::Ampere),
    (NccKernel::WgmmaMap, Generation::Ampere),
    (NccKernel::Mma, Generation::Turing),
    (NccKernel::Mma, Generation::Ampere),
    (NccKernel::MmaMap, Generation::Turing),
    (NccKernel::MmaMap, Generation::Ampere),
];

/// Planners for a kernel on a device with so few multiprocessors that tiles are high, and on this one.
fn planners(gpu: &Gpu, (kernel, generation): (NccKernel, Generation)) -> Vec<Planner> {
    let here = gpu.multiprocessors().unwrap();
    let generation = if generations(gpu).contains(&generation) { generation } else { Generation::Turing };
    let planner =
        |multiprocessors| Planner::imitating(gpu, Some(kernel), generation, multiprocessors).unwrap();
    [1, here].map(planner).into()
}

/// A template of that size from a picture, masked by a quarter if it is to be.
fn cut(random: &mut Random, picture: &Plane, size: Size, is_masked: bool, name: &str) -> Template {
    loop {
        let luma = picture.as_ref().crop(random.place(size, picture.size())).to_plane();
        let mask = (0..size.area()).map(|_| if random.below(4) == 0 { 0 } else { 255 }).collect();
        let mask = is_masked.then(|| Plane::from_vec(mask, size));
        // Two pixels may be equal.
        if let Ok(template) = Template::new(name, luma, mask.as_ref()) {
            return template;
        }
    }
}

fn noise(random: &mut Random, size: Size) -> Plane {
    Plane::from_vec((0..size.area()).map(|_| random.next() as u8).collect(), size)
}

/// The size of a template whose picture is bright.
const BRIGHT: Size = Size::new(300, 240);

/// One template each: tiles of all heights, with rows and columns beyond them, products in pieces, masks.
fn searches_at_edges() -> Vec<(Plane, Asked)> {
    let mut random = Random(31);
    let mut all = Vec::new();
    for (template, window, is_masked) in [
        // 130 positions each way: a tile and a bit, or one of 144 rows.
        (Size::new(1, 2), Size::new(130, 131), false),
        // More candidates than come back at once.
        (Size::new(2, 1), Size::new(100, 100), false),
        (Size::new(16, 16), Size::new(150, 150), false),
        (Size::new(33, 20), Size::new(161, 90), false),
        // 80 positions down, a tile; 17, which is more than the lowest, and 16.
        (Size::new(30, 30), Size::new(160, 109), false),
        (Size::new(12, 14), Size::new(140, 30), false),
        (Size::new(40, 64), Size::new(60, 79), false),
        (Size::new(15, 31), Size::new(50, 170), false),
        // For all peaks, tiles have two rows and two columns in common.
        (Size::new(8, 8), Size::new(8, 27), false),
        (Size::new(8, 8), Size::new(134, 8), false),
        (Size::new(8, 8), Size::new(135, 22), false),
        (Size::new(8, 8), Size::new(136, 86), false),
        (Size::new(8, 8), Size::new(260, 134), false),
        (Size::new(8, 8), Size::new(137, 150), false),
        (Size::new(8, 8), Size::new(30, 300), false),
        // The widest and the highest that are matched in one launch.
        (Size::new(128, 3), Size::new(140, 20), false),
        (Size::new(3, 256), Size::new(20, 262), false),
        (Size::new(127, 129), Size::new(135, 140), false),
        // A row and a column of pieces beyond the first, the last of them with a row or a column.
        (Size::new(129, 33), Size::new(150, 50), false),
        (Size::new(150, 40), Size::new(170, 61), false),
        (Size::new(258, 33), Size::new(270, 130), false),
        (Size::new(257, 105), Size::new(272, 236), false),
        // More pixels than one sum of 32 bits has room for, if they are bright.
        (BRIGHT, Size::new(310, 250), false),
        (Size::new(20, 20), Size::new(50, 45), true),
        (Size::new(140, 35), Size::new(160, 50), true),
    ] {
        let mut picture = noise(&mut random, Size::new(window.width + 9, window.height + 4));
        if template == BRIGHT {
            for pixel in picture.data_mut() {
                *pixel |= 0xf8;
            }
        }
        let window = Rect::new(7, 3, window.width, window.height);
        let bank = Bank::new(vec![cut(&mut random, &picture, template, is_masked, "t")]).unwrap();
        let bank = Arc::new(bank);
        for (min_score, max_matches) in [(-1.0, 1), (0.3, 1), (-1.0, 40), (0.3, 40)] {
            let limits = Limits { min_score, max_matches, max_overlap: 0.5 };
            all.push((picture.clone(), (bank.clone(), window, limits)));
        }
    }
    all
}

fn check_edges(kernel: (NccKernel, Generation)) {
    let Some(gpu) = testing::gpu() else { return };
    let mut lane = Lane::new(&gpu, 300 * 300).unwrap();
    let planners = planners(&gpu, kernel);
    for (picture, asked) in searches_at_edges() {
        let (bank, window, limits) = &asked;
        let what = format!("{} in {window}, {limits:?}", bank.members()[0].size());
        let asked = [asked.clone()];
        let expected = defined(&picture, &asked);
        for planner in &planners {
            let (found, _) = searched(planner, &mut lane, &picture, &asked);
            assert_eq!(found, expected, "{kernel:?}: {what}");
        }
    }
    gpu.check_dropped().unwrap();
}

// A test each, so that sanitizers can look at them side by side.
#[test]
fn each_kernel_at_the_edges_of_its_tiles_ncc_wgmma() {
    check_edges(FOR_TENSOR_CORES[0]);
}

#[test]
fn each_kernel_at_the_edges_of_its_tiles_ncc_wgmma_map() {
    check_edges(FOR_TENSOR_CORES[1]);
}

#[test]
fn each_kernel_at_the_edges_of_its_tiles_ncc_mma_for_7_5() {
    check_edges(FOR_TENSOR_CORES[2]);
}

#[test]
fn each_kernel_at_the_edges_of_its_tiles_ncc_mma_for_8_0() {
    check_edges(FOR_TENSOR_CORES[3]);
}

#[test]
fn each_kernel_at_the_edges_of_its_tiles_ncc_mma_map_for_7_5() {
    check_edges(FOR_TENSOR_CORES[4]);
}

#[test]
fn each_kernel_at_the_edges_of_its_tiles_ncc_mma_map_for_8_0() {
    check_edges(FOR_TENSOR_CORES[5]);
}

/// Banks of equal and of different sizes, in several windows, for the best match and for all: what goes into
/// one launch and what does not.
fn searches_of_banks() -> (Plane, Vec<Asked>) {
    let mut random = Random(32);
    let picture = noise(&mut random, Size::new(190, 175));
    let best = Limits { min_score: 0.2, max_matches: 1, max_overlap: 0.3 };
    let mut asked = Vec::new();
    // More than one launch takes.
    let many = [11; 70];
    for (sides, window, limits) in [
        // Three of a size, one of another, and again one of the first.
        (&[16, 16, 16, 9, 16][..], Rect::new(3, 1, 120, 90), best),
        (&[24, 24], Rect::new(0, 0, 60, 167), best),
        (&[24], Rect::new(130, 100, 60, 75), best),
        // Other limits.
        (&[12, 12], Rect::new(50, 20, 70, 60), Limits { min_score: 0.1, ..best }),
        (&[7, 7, 30], Rect::new(9, 30, 80, 80), Limits { min_score: 0.3, max_matches: 5, ..best }),
        // Searches with templates that take different numbers of blocks.
        (&[5, 40, 12, 12, 60], Rect::new(11, 2, 150, 160), Limits { min_score: 0.2, max_matches: 9, ..best }),
        (&many, Rect::new(40, 40, 33, 34), Limits { min_score: 0.2, max_matches: 99, ..best }),
        // As large as the window.
        (&[31], Rect::new(20, 20, 31, 31), best),
    ] {
        let members = sides.iter().zip(0..).map(|(&side, index)| {
            let size = Size::new(side, side);
            let name = format!("t{index}");
            cut(&mut random, &picture.as_ref().crop(window).to_plane(), size, side == 30, &name)
        });
        asked.push((Arc::new(Bank::new(members.collect()).unwrap()), window, limits));
    }
    (picture, asked)
}

#[test]
fn each_kernel_for_tensor_cores_agrees_in_searches_of_banks() {
    let Some(gpu) = testing::gpu() else { return };
    let (picture, asked) = searches_of_banks();
    let mut lane = Lane::new(&gpu, 300 * 300).unwrap();
    let expected = defined(&picture, &asked);
    for kernel in FOR_TENSOR_CORES {
        for planner in planners(&gpu, kernel) {
            let (found, redone) = searched(&planner, &mut lane, &picture, &asked);
            assert_eq!((found.as_slice(), redone), (expected.as_slice(), 0), "{kernel:?}");
        }
    }
    gpu.check_dropped().unwrap();
}

/// Launches that begin before the one before has ended, each after each, and ordinary ones between them.
#[test]
fn work_that_follows_without_a_pause_finds_what_it_finds_alone() {
    const ROUNDS: usize = 5;
    let Some(gpu) = testing::gpu() else { return };
    let (picture, asked) = searches_of_banks();
    let expected = defined(&picture, &asked);
    let specs: [ThresholdSpec; 3] =
        ["mean:31:5", "gaussian:11:2", "sauvola:15:0.2"].map(|spec| spec.parse().unwrap());
    let masks = specs.map(|spec| reference::threshold::threshold(picture.as_ref(), &spec));
    for kernel in FOR_TENSOR_CORES {
        for planner in planners(&gpu, kernel) {
            let mut lane = Lane::new(&gpu, 300 * 300).unwrap();
            let stream = lane.stream.clone();
            let frame = testing::upload(&gpu, &stream, picture.as_ref());
            let plan = |(bank, window, limits): &Asked| {
                PlannedSearch::new(&planner, &stream, bank.clone(), window.size(), limits).unwrap()
            };
            let plans: Vec<_> = asked.iter().map(plan).collect();
            for plan in &plans {
                lane.prepare(plan).unwrap();
            }
            let list = |_| CandidateList::new(&gpu, true).unwrap();
            let mut lists: Vec<_> = (0..ROUNDS * asked.len()).map(list).collect();
            let mut thresholders = specs
                .map(|spec| Thresholder::new(&gpu, &stream, &spec, frame.size, Kernels::default()).unwrap());
            // Written by one threshold after the other; the last mask stays.
            let mut mask = gpu.alloc::<u8>("a mask", frame.size.area()).unwrap();
            let graph = lane.capture(&mut |lane| {
                for round in 0..ROUNDS {
                    for (index, (plan, (_, window, limits))) in plans.iter().zip(&asked).enumerate() {
                        let list = &mut lists[round * asked.len() + index];
                        let which = index % specs.len();
                        if index < specs.len() {
                            thresholders[which].run(&lane.stream, &frame, &mut mask, list.foreground())?;
                        }
                        lane.search(list, &frame, WindowSearch::new(plan, *window, limits))?;
                    }
                }
                Ok(())
            });
            let graph = graph.unwrap();
            for _ in 0..2 {
                stream.fill(&mut mask, 0xA5).unwrap();
                // SAFETY: what was captured lives to the end of the round, and each list is waited for below.
                unsafe { stream.run(&graph) }.unwrap();
                for (number, list) in lists.iter_mut().enumerate() {
                    let index = number % asked.len();
                    let (_, window, limits) = &asked[index];
                    // SAFETY: it is waited for in the next line.
                    unsafe { lane.publish(list, &stream) }.unwrap();
                    stream.wait().unwrap();
                    if index < specs.len() {
                        let white = masks[index].data().iter().filter(|&&pixel| pixel == 255).count();
                        assert_eq!(list.foreground_count(), white as u64, "{kernel:?}, threshold {index}");
                    }
                    let mut matches = Vec::new();
                    let found = list.candidates(&stream).unwrap();
                    plans[index].select(found, (window.x, window.y), limits, &mut Vec::new(), &mut matches);
                    assert_eq!(matches, expected[index], "{kernel:?}, search {index}");
                }
                let mut back = Plane::new(frame.size);
                stream.download_now(&mask, back.data_mut()).unwrap();
                assert!(back == masks[specs.len() - 1], "{kernel:?}");
            }
        }
    }
    gpu.check_dropped().unwrap();
}

#[test]
fn each_kernel_that_leaves_suspects_makes_a_score_map_if_there_are_too_many() {
    let Some(gpu) = testing::gpu() else { return };
    let mut random = Random(33);
    let picture = noise(&mut random, Size::new(70, 60));
    let bank = Arc::new(Bank::new(vec![cut(&mut random, &picture, Size::new(5, 4), false, "t")]).unwrap());
    let limits = Limits { min_score: -1.0, max_matches: 30, max_overlap: 0.2 };
    let asked = [(bank, Rect::whole(picture.size()), limits)];
    let expected = defined(&picture, &asked);
    for kernel in FOR_TENSOR_CORES.into_iter().filter(|(kernel, _)| *kernel == NccKernel::Mma) {
        for planner in planners(&gpu, kernel) {
            let mut lane = Lane::new(&gpu, picture.size().area()).unwrap();
            lane.limit_suspects(4).unwrap();
            // Twice: the first leaves everything as it was.
            for _ in 0..2 {
                let found = searched(&planner, &mut lane, &picture, &asked);
                assert_eq!(found, (expected.clone(), 1), "{kernel:?}");
            }
        }
    }
    gpu.check_dropped().unwrap();
}

#[test]
fn a_ring_that_had_more_suspects_than_room_makes_score_maps_from_then_on() {
    if testing::gpu().is_none() {
        return;
    }
    let mut random = Random(34);
    let frames: Vec<_> = (0..3).map(|_| noise(&mut random, Size::new(70, 60))).collect();
    let template = cut(&mut random, &frames[0], Size::new(5, 4), false, "t");
    let limits = Limits { min_score: -1.0, max_matches: 30, max_overlap: 0.2 };
    let standing =
        Standing::new(frames[0].size()).searching(&Bank::new(vec![template]).unwrap(), None, limits).unwrap();
    let expected = findings_of(&mut on_cpu(&standing, 1), &frames);
    let kernels = std::iter::once(Kernel::Ncc(NccKernel::Mma)).collect();
    let mut cuda = Cuda::open(standing, &options(1, kernels), 0).unwrap();
    // Its graph was captured with the room that there was.
    cuda.ring.free_mut()[0].graph = None;
    cuda.work.planned.lane.limit_suspects(4).unwrap();
    let found = findings_of(&mut cuda, &frames);
    for (index, (found, expected)) in found.iter().zip(&expected).enumerate() {
        assert_eq!(found.matches, expected.matches, "frame {index}");
    }
    assert_eq!(found.iter().map(|findings| findings.redone).collect::<Vec<_>>(), [1, 0, 0]);
}

#[test]
fn of_many_equal_scores_each_kernel_takes_those_that_come_first() {
    let Some(gpu) = testing::gpu() else { return };
    // More possible peaks than a tile's list takes: flat to the left, where all scores are 0, and repeating
    // to the right.
    let size = Size::new(280, 140);
    let pixel = |x: usize, y: usize| if x < 130 { 90 } else { (x % 2 * 50 + y % 3 * 40) as u8 };
    let plane = |left, size: Size| {
        let at = |index| pixel(left + index % size.width, index / size.width);
        Plane::from_vec((0..size.area()).map(at).collect(), size)
    };
    let picture = plane(0, size);
    let template = Template::new("t", plane(200, Size::new(6, 5)), None).unwrap();
    let bank = Arc::new(Bank::new(vec![template]).unwrap());
    for min_score in [-1.0, 0.5] {
        let limits = Limits { min_score, max_matches: 5000, max_overlap: 1.0 };
        let asked = [(bank.clone(), Rect::whole(size), limits)];
        let expected = defined(&picture, &asked);
        assert!(expected[0].len() > 2000, "{}", expected[0].len());
        for kernel in FOR_TENSOR_CORES {
            for planner in planners(&gpu, kernel) {
                let mut lane = Lane::new(&gpu, size.area()).unwrap();
                let (found, _) = searched(&planner, &mut lane, &picture, &asked);
                assert_eq!(found, expected, "{kernel:?} from {min_score}");
            }
        }
    }
    gpu.check_dropped().unwrap();
}

#[test]
fn banks_thresholds_and_masks_of_a_full_ring_are_the_cpus() {
    if testing::gpu().is_none() {
        return;
    }
    for seed in 0..60 {
        let mut random = Random(1000 + seed);
        let frame = Size::new(40 + random.below(300), 40 + random.below(200));
        let frames: Vec<_> = (0..5).map(|_| random.picture(frame)).collect();
        let searched = Size::new(frame.width - random.below(9), frame.height - random.below(9));
        let roi = random.place(searched, frame);
        let members = (0..=random.below(6)).map(|i| {
            let size = Size::new(2 + random.below(30), 2 + random.below(30));
            random.template(frames[i % 5].as_ref().crop(roi), size, ["a", "b", "c"][i % 3])
        });
        let mut members: Vec<_> = members.collect();
        let turned = members[0].resampled(1.1, 30.0);
        members.extend(turned.ok().filter(|t| t.size().fits_in(roi.size())));
        let limits = Limits {
            min_score: random.below(10) as f64 / 10.0 - 0.2,
            max_matches: 1 + random.below(5),
            max_overlap: 0.4,
        };
        let specs = ["mean:31:5", "gaussian:11:2:inv", "sauvola:15:0.2", "niblack:9:-0.2"];
        let spec = specs[random.below(4)].parse().unwrap();
        let standing = Standing::new(frame)
            .thresholding(Some(spec), random.below(2) == 0)
            .searching(&Bank::new(members).unwrap(), Some(roi), limits)
            .unwrap();
        let depth = 1 + random.below(4);
        compare(&standing, depth, Kernels::default(), &frames, &format!("seed {seed}, depth {depth}"));
    }
}

#[test]
fn a_frame_with_more_candidates_than_there_is_room_for_is_searched_again() {
    if testing::gpu().is_none() {
        return;
    }
    let mut random = Random(77);
    let frame = Size::new(640, 480);
    let frames: Vec<_> = (0..3).map(|_| noise(&mut random, frame)).collect();
    let template = random.template(frames[0].as_ref(), Size::new(3, 3), "t");
    let limits = Limits { min_score: -1.0, max_matches: 50, max_overlap: 0.0 };
    let standing = Standing::new(frame).searching(&Bank::new(vec![template]).unwrap(), None, limits).unwrap();
    let found = compare(&standing, 1, Kernels::default(), &frames, "overflow");
    // Once there was not enough room, then there was.
    assert_eq!(found.iter().map(|findings| findings.redone).collect::<Vec<_>>(), [1, 0, 0]);
}

/// The frame's number, the error, or nothing if nothing is in flight.
fn waited(cuda: &mut Cuda) -> std::result::Result<Option<u64>, String> {
    let meta = cuda.wait_next(&mut Findings::default()).map_err(|error| error.to_string())?;
    Ok(meta.map(|meta| meta.index))
}

fn submitted(cuda: &mut Cuda, index: u64, frame: &Plane) -> std::result::Result<(), String> {
    let meta = FrameMeta { index, pts_ns: None, duration_ns: None, arrived: Instant::now() };
    let submitted = cuda.submit(meta, &shared(frame));
    submitted.map_err(|error| error.to_string())
}

/// Asserts that every call returns this error.
fn assert_is_poisoned(cuda: &mut Cuda, said: &str, frame: &Plane) {
    for _ in 0..3 {
        assert_eq!(waited(cuda).unwrap_err(), said);
        assert_eq!(submitted(cuda, 99, frame).unwrap_err(), said);
    }
}

/// It would launch a graph that writes to freed memory, or give the matches of a list that is all zeros.
#[test]
fn a_ring_whose_second_search_failed_gives_its_error_and_launches_nothing() {
    if testing::gpu().is_none() {
        return;
    }
    let mut random = Random(78);
    let size = Size::new(640, 480);
    let frame = noise(&mut random, size);
    let template = random.template(frame.as_ref(), Size::new(3, 3), "t");
    let limits = Limits { min_score: -1.0, max_matches: 50, max_overlap: 0.0 };
    let standing = Standing::new(size).searching(&Bank::new(vec![template]).unwrap(), None, limits).unwrap();
    let mut cuda = Cuda::open(standing, &options(1, Kernels::default()), 0).unwrap();
    submitted(&mut cuda, 0, &frame).unwrap();
    counted::IS_FULL.set(true);
    let said = waited(&mut cuda).unwrap_err();
    counted::IS_FULL.set(false);
    assert!(said.contains("page-locked memory for candidates"), "{said}");
    assert!(cuda.ring.oldest().unwrap().graph.is_none(), "it writes to the list that had no room");
    assert_is_poisoned(&mut cuda, &said, &frame);
    drop(cuda);
    testing::gpu().unwrap().check_dropped().unwrap();
}

/// It would give the findings of an earlier frame as this frame's.
#[test]
fn a_ring_that_could_not_start_a_frame_gives_its_error_and_no_findings() {
    if testing::gpu().is_none() {
        return;
    }
    let size = Size::new(64, 48);
    let frame = Random(79).picture(size);
    let standing = Standing::new(size).thresholding(Some("mean:5:1".parse().unwrap()), true);
    let mut cuda = Cuda::open(standing, &options(2, Kernels::default()), 0).unwrap();
    // All masks are held, so that a third is to be made.
    let mut held = Vec::new();
    for index in 0..2 {
        submitted(&mut cuda, index, &frame).unwrap();
        let mut findings = Findings::default();
        cuda.wait_next(&mut findings).unwrap().unwrap();
        held.push(findings.mask);
    }
    counted::IS_FULL.set(true);
    let said = submitted(&mut cuda, 2, &frame).unwrap_err();
    counted::IS_FULL.set(false);
    assert!(said.contains("page-locked memory for a mask"), "{said}");
    assert_is_poisoned(&mut cuda, &said, &frame);
}

#[test]
fn several_backends_work_side_by_side() {
    if testing::gpu().is_none() {
        return;
    }
    std::thread::scope(|scope| {
        for seed in 0..6 {
            scope.spawn(move || {
                let mut random = Random(40 + seed);
                let size = Size::new(200, 150);
                let frames: Vec<_> = (0..20).map(|_| random.picture(size)).collect();
                let template = random.template(frames[0].as_ref(), Size::new(12, 9), "t");
                let limits = Limits { min_score: 0.2, ..Limits::default() };
                let standing = Standing::new(size)
                    .thresholding(Some("mean:15:3".parse().unwrap()), true)
                    .searching(&Bank::new(vec![template]).unwrap(), None, limits)
                    .unwrap();
                compare(&standing, 3, Kernels::default(), &frames, &format!("backend {seed}"));
            });
        }
    });
}

/// The driver would refuse to free while another thread captures, and spoil the capture.
#[test]
fn backends_open_while_others_allocate_and_free() {
    if testing::gpu().is_none() {
        return;
    }
    std::thread::scope(|scope| {
        for seed in 0..8 {
            scope.spawn(move || {
                let gpu = testing::gpu().expect("there was one");
                let mut random = Random(80 + seed);
                let frames = [random.picture(Size::new(61, 47))];
                let template = random.template(frames[0].as_ref(), Size::new(9, 7), "t");
                let standing = Standing::new(frames[0].size())
                    .thresholding(Some("mean:15:3".parse().unwrap()), true)
                    .searching(&Bank::new(vec![template]).unwrap(), None, Limits::default())
                    .unwrap();
                for round in 0..20 {
                    compare(&standing, 2, Kernels::default(), &frames, &format!("backend {seed}, {round}"));
                    let texture = DeviceFrame::new(&gpu, Size::new(40, 30)).unwrap();
                    let pinned = gpu.alloc_pinned::<u8>("bytes", 5000, Pinned::Plain).unwrap();
                    let room = gpu.alloc::<u8>("bytes", 50_000).unwrap();
                    drop((
                        texture,
                        pinned,
                        room,
                        gpu.stream(Priority::Normal).unwrap(),
                        gpu.event().unwrap(),
                    ));
                }
                gpu.check_dropped().unwrap();
            });
        }
    });
}

/// Decoders work in the same context, and know nothing of our locks.
#[test]
fn backends_open_while_somebody_else_allocates_and_frees_in_the_context() {
    use std::sync::atomic::{AtomicBool, Ordering};

    let Some(gpu) = testing::gpu() else { return };
    let frames = [Random(90).picture(Size::new(61, 47))];
    let standing = Standing::new(frames[0].size()).thresholding(Some("mean:15:3".parse().unwrap()), true);
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let stranger = scope.spawn(|| {
            let (mut rounds, mut refused) = (0, 0);
            while !is_over.load(Ordering::Relaxed) {
                // SAFETY: no other code has the memory.
                let freed = unsafe {
                    cudarc::driver::result::ctx::set_current(gpu.handle()).unwrap();
                    let address = cudarc::driver::result::malloc_sync(100_000);
                    address.and_then(|address| cudarc::driver::result::free_sync(address))
                };
                rounds += 1;
                refused += u32::from(freed.is_err());
            }
            (rounds, refused)
        });
        for round in 0..60 {
            compare(&standing, 3, Kernels::default(), &frames, &format!("round {round}"));
        }
        is_over.store(true, Ordering::Relaxed);
        let (rounds, refused) = stranger.join().unwrap();
        println!("{refused} of {rounds} allocations beside 60 rings were refused");
    });
    gpu.check_dropped().unwrap();
}

/// Here too where there is no device: this is looked at first.
#[test]
fn a_template_that_does_not_fit_is_refused_when_the_ring_is_opened() {
    let luma = reference::picture(Size::new(9, 31));
    let bank = Bank::new(vec![Template::new("t", luma, None).unwrap()]).unwrap();
    let standing = Standing { bank: Some(bank.into()), ..Standing::new(Size::new(40, 30)) };
    let error = Cuda::open(standing, &options(1, Kernels::default()), 0).err().unwrap();
    assert!(matches!(error, Error::Template { .. }), "{error}");
}

#[test]
fn devices_that_are_not_there_are_refused_by_number() {
    if testing::gpu().is_none() {
        return;
    }
    let count = devices().unwrap().len();
    let error =
        Cuda::open(Standing::new(Size::new(8, 8)), &options(1, Kernels::default()), count).err().unwrap();
    let Error::Backend { fault: DeviceFault::NoSuchDevice { asked, count: there }, .. } = error else {
        panic!("{error}")
    };
    assert_eq!((asked, there), (count, count));
}

#[test]
fn frames_that_do_not_fit_are_refused_with_the_bytes_that_are_free() {
    if testing::gpu().is_none() {
        return;
    }
    let template =
        Random(3).template(Plane::from_vec(vec![1, 2, 3, 4], Size::new(2, 2)).as_ref(), Size::new(2, 2), "t");
    let bank = Bank::new(vec![template]).unwrap();
    let open = |size: Size, depth: usize| {
        let standing = Standing::new(size).searching(&bank, None, Limits::default()).unwrap();
        Cuda::open(standing, &options(depth, Kernels::default()), 0).err().unwrap()
    };
    // 16 bytes a pixel for searches, and one in each of 64 slots: 288 GB.
    let error = open(Size::new(60_000, 60_000), 64);
    let Error::Backend { fault: DeviceFault::OutOfMemory { wanted, free, total, .. }, .. } = error else {
        panic!("{error}")
    };
    assert!(wanted > free && free < total, "{wanted} {free} {total}");
    let said = open(Size::new(200_000, 4), 1).to_string();
    assert!(said.contains("200000x4 are larger than the 65536x"), "{said}");
}

#[test]
fn uploads_overlap_kernels_and_frames_neither_allocate_nor_wait_twice() {
    let Some(gpu) = testing::gpu() else { return };
    let mut random = Random(21);
    let size = Size::new(1920, 1080);
    let frames: Vec<_> = (0..3).map(|_| random.picture(size)).collect();
    // Kernels that take several times as long as an upload, also on a host that is busy; the fastest do not.
    let template = random.template(frames[0].as_ref(), Size::new(128, 128), "t");
    let standing = Standing::new(size)
        .thresholding(Some("mean:31:5".parse().unwrap()), true)
        .searching(&Bank::new(vec![template]).unwrap(), None, Limits::default())
        .unwrap();
    // The streams of a process share few queues of the device, so the work of other tests may come between an
    // upload and its stream's turn: it is tried again until these have ended. If uploads waited for kernels,
    // none would ever end before them; alone on a device, all do.
    let patience = Instant::now() + Duration::from_mins(3);
    while uploads_that_overlap(&gpu, standing.clone(), &frames) == 0 {
        assert!(Instant::now() < patience, "no upload ended before the kernels of the frame before");
    }
}

/// Works on 40 frames, and returns how many uploads ended before the kernels of the frame before had. Checks
/// that frames neither allocate nor wait twice.
fn uploads_that_overlap(gpu: &Gpu, standing: Standing, frames: &[Plane]) -> usize {
    let slow = std::iter::once(Kernel::Ncc(NccKernel::Shared)).collect();
    let mut cuda = Cuda::open(standing, &options(2, slow), 0).unwrap();
    let epoch = gpu.timed_event().unwrap();
    epoch.record(&cuda.work.streams.uploads).unwrap();
    let mut findings = Findings::default();
    let (mut timeline, mut counts) = (Vec::<[f64; 3]>::new(), Vec::new());
    for index in 0..40 {
        if index >= 2 {
            cuda.wait_next(&mut findings).unwrap().unwrap();
            let worked = &cuda.work.times[cuda.ring.free().last().unwrap().turn];
            let at = |event: &TimedEvent| epoch.micros_to(event).unwrap();
            let [uploaded, published, done] = [&worked.uploaded, &worked.published, &worked.done].map(at);
            // The device worked on it from when it was there and the one before done with.
            if let Some(&[_, before, _]) = timeline.last() {
                let (started, told) = (uploaded.max(before), findings.standing_us as f64);
                assert!((published - started - 2.0..=done - started + 2.0).contains(&told), "{told} us");
            }
            assert!(findings.upload_us > 0, "{} us", findings.upload_us);
            timeline.push([uploaded, published, done]);
            counts.push((counted::ALLOCATIONS.get(), counted::WAITS.get()));
        }
        let meta = FrameMeta { index, pts_ns: None, duration_ns: None, arrived: Instant::now() };
        let frame = &frames[index as usize % 3];
        cuda.submit(meta, &shared(frame)).unwrap();
    }
    for (index, [uploaded, published, done]) in timeline.iter().enumerate().take(12) {
        println!(
            "frame {index}: uploaded by {uploaded:.0} us, searched by {published:.0}, read back by {done:.0}"
        );
    }
    let later = &timeline[8..];
    // The upload ends before the kernels of the frame before have ended.
    let overlapping = later.windows(2).filter(|pair| pair[1][0] < pair[0][1]).count();
    println!("{overlapping} of {} uploads ended before the kernels of the frame before", later.len() - 1);
    let ((allocated, waited), (allocated_last, waited_last)) = (counts[10], counts[30]);
    assert_eq!(allocated_last - allocated, 0, "allocations in 20 frames");
    assert_eq!(waited_last - waited, 20, "waits in 20 frames");
    overlapping
}

#[test]
fn frames_that_need_no_work_pass_a_device_that_allocates_nothing() {
    if testing::gpu().is_none() {
        return;
    }
    let frames = vec![Random(4).picture(Size::new(640, 361)); 5];
    let (standing, options) = (Standing::new(frames[0].size()), Options { depth: 3, ..Options::default() });
    let before = counted::ALLOCATIONS.get();
    let mut idle = open(standing, &options, 0).unwrap();
    assert_eq!(idle.depth(), 3);
    let all = findings_of(&mut *idle, &frames);
    assert_eq!(all.len(), frames.len());
    assert!(all.iter().all(|findings| findings.matches.is_empty() && findings.upload_us == 0));
    assert_eq!(counted::ALLOCATIONS.get(), before, "allocations");
}

#[test]
fn times_of_frames_that_are_only_uploaded_are_there_with_the_frames() {
    if testing::gpu().is_none() {
        return;
    }
    let frames = vec![Random(4).picture(Size::new(640, 361)); 300];
    for depth in 1..4 {
        let mut cuda =
            Cuda::open(Standing::new(frames[0].size()), &options(depth, Kernels::default()), 0).unwrap();
        for findings in findings_of(&mut cuda, &frames) {
            assert!(findings.matches.is_empty() && findings.foreground.is_none() && findings.mask.is_none());
            assert!(findings.upload_us > 0);
        }
    }
}

#[test]
fn a_kernel_that_cannot_be_launched_is_told_by_name() {
    let Some(gpu) = testing::gpu() else { return };
    let kernel = gpu.load(testing::TRAP).unwrap().kernel("trap_now").unwrap();
    let stream = gpu.stream(Priority::Normal).unwrap();
    let error = stream.launch_without_arguments(&kernel, 4096).unwrap_err();
    assert!(
        error.to_string().starts_with("cuda: kernel trap_now cannot be launched: invalid argument"),
        "{error}"
    );
    assert!(error.is_device_lost(), "another device could do it");
}

#[test]
fn a_lost_device_is_an_error_and_not_a_hang() {
    testing::in_a_process_of_its_own("tests::a_device_is_lost");
}

#[test]
#[ignore = "run by the test above, in a process of its own"]
fn a_device_is_lost() {
    let size = Size::new(64, 48);
    let standing = Standing::new(size).thresholding(Some("mean:5:1".parse().unwrap()), true);
    let mut backend = Cuda::open(standing, &options(2, Kernels::default()), 0).unwrap();
    let meta = FrameMeta { index: 0, pts_ns: None, duration_ns: None, arrived: Instant::now() };
    backend.submit(meta, &shared(&Plane::new(size))).unwrap();
    testing::lose(&backend.work.gpu);
    let mut findings = Findings::default();
    let outcome = match backend.wait_next(&mut findings) {
        Ok(_) => backend.submit(meta, &shared(&Plane::new(size))).map(drop),
        Err(error) => Err(error),
    };
    let error = outcome.unwrap_err();
    assert!(error.is_device_lost(), "{error}");
    drop(backend);
}
