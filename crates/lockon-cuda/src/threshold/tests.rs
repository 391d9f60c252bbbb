use std::collections::HashMap;

use proptest::prelude::*;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};

use super::super::driver::Priority;
use super::super::testing;
use super::*;
use lockon_core::frame::{Plane, PlaneRef};
use lockon_core::reference;

/// The kernels that a request may name and that make this threshold; nothing where none can be named.
fn kernels_of(spec: &ThresholdSpec) -> Vec<Option<config::Kernel>> {
    let is_fused = matches!(
        spec.method,
        ThresholdMethod::Mean { .. } | ThresholdMethod::Sauvola { .. } | ThresholdMethod::Niblack { .. }
    );
    if !spec.method.has_block() || !spec.block.is_square() {
        return vec![None];
    }
    let all = config::Kernel::ALL.into_iter().map(|(_, kernel)| kernel);
    let chosen = all.filter(|kernel| match kernel {
        config::Kernel::Box(how) => kernel.makes(spec.method) && (is_fused || *how == BoxKernel::Sliding),
        kernel => kernel.makes(spec.method),
    });
    chosen.map(Some).collect()
}

/// A picture in rows longer than it is wide, the padding poisoned.
struct Padded {
    data: Vec<u8>,
    size: Size,
    stride: usize,
}

impl Padded {
    fn new(size: Size, padding: usize, mut pixel: impl FnMut(usize, usize) -> u8) -> Self {
        let stride = size.width + padding;
        let mut data = vec![0xFA; stride * size.height];
        for (y, row) in data.chunks_mut(stride).enumerate() {
            for (x, value) in row[..size.width].iter_mut().enumerate() {
                *value = pixel(x, y);
            }
        }
        Self { data, size, stride }
    }

    /// Noise over slow waves: neighbourhoods differ, and so do their deviations.
    fn noise(size: Size, padding: usize, seed: u64) -> Self {
        let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
        Self::new(size, padding, |x, y| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            let noise = (state >> 40) % (1 + (x as u64 * 5 + y as u64) % 120);
            ((x * 3 + y * 2) % 170) as u8 + (noise % 86) as u8
        })
    }

    fn view(&self) -> PlaneRef<'_> {
        PlaneRef::new(&self.data, self.size, self.stride)
    }
}

struct Bench {
    gpu: Gpu,
    stream: Stream,
    /// For thresholds one after the other: loading takes longer than most cases.
    modules: HashMap<Ptx, Module>,
}

impl Bench {
    /// Nothing where there is no device.
    fn open() -> Option<Self> {
        let gpu = testing::gpu()?;
        let stream = gpu.stream(Priority::Normal).unwrap();
        let fused = [MEAN_FUSED, MEAN_FUSED_WIDE, DEVIATION_FUSED, GAUSSIAN_FUSED];
        let fused = fused.into_iter().flat_map(|fused| [fused.ptx_80, fused.ptx_90]);
        let modules: Vec<_> =
            [KERNELS, whole::KERNELS, hysteresis::KERNELS].into_iter().chain(fused).collect();
        // A device may be too old for some of them; then the tests do not use these.
        let modules = modules.iter().filter_map(|ptx| Some((*ptx, gpu.load(&ptx.text()).ok()?))).collect();
        Some(Self { gpu, stream, modules })
    }

    fn plan(&self, spec: &ThresholdSpec, size: Size, kernels: Kernels, begins_early: bool) -> Thresholder {
        let load = |ptx| Ok(self.modules[&ptx].clone());
        let modules = Modules { gpu: &self.gpu, load: &load, begins_early };
        Thresholder::from_modules(&modules, &self.stream, spec, size, kernels).unwrap()
    }

    /// The mask and the count of a second run into poisoned memory, on top of the first run's leftovers.
    fn run(
        &self,
        picture: &Padded,
        spec: &ThresholdSpec,
        (kernel, begins_early): (Option<config::Kernel>, bool),
    ) -> (Plane, u64) {
        const BEFORE: u64 = (1 << 32) - 1;
        const GUARD: usize = 64;
        let (gpu, stream, size) = (&self.gpu, &self.stream, picture.size);
        let frame = testing::upload(gpu, stream, picture.view());
        let mut mask = gpu.alloc::<u8>("a mask", size.area() + GUARD).unwrap();
        let mut counter = gpu.alloc::<u64>("counters", 3).unwrap();
        let mut thresholder = self.plan(spec, size, kernel.into_iter().collect(), begins_early);
        for _ in 0..2 {
            stream.upload_now(&vec![0xAA; size.area() + GUARD], &mut mask).unwrap();
            stream.upload_now(&[7, BEFORE, 7], &mut counter).unwrap();
            thresholder.run(stream, &frame, &mut mask, (&mut counter, 1)).unwrap();
        }
        let mut bytes = vec![0; size.area() + GUARD];
        stream.download_now(&mask, &mut bytes).unwrap();
        assert!(bytes.split_off(size.area()).iter().all(|&b| b == 0xAA), "{kernel:?} wrote behind the mask");
        let mut counts = [0; 3];
        stream.download_now(&counter, &mut counts).unwrap();
        assert_eq!([counts[0], counts[2]], [7, 7], "{kernel:?} wrote beside the counter");
        (Plane::from_vec(bytes, size), counts[1] - BEFORE)
    }

    /// True if this kernel exists twice here, and one of the two can begin early.
    fn begins_early(&self, kernel: Option<config::Kernel>) -> bool {
        self.gpu.begins_early() && kernel.is_some_and(|kernel| kernel.to_string().ends_with("-fused"))
    }

    fn check(&self, picture: &Padded, spec: &ThresholdSpec) {
        let expected = reference::threshold::threshold(picture.view(), spec);
        self.check_against(picture, spec, &expected);
    }

    fn check_against(&self, picture: &Padded, spec: &ThresholdSpec, expected: &Plane) {
        let foreground = expected.data().iter().filter(|&&v| v == 255).count() as u64;
        for (kernel, begins_early) in kernels_of(spec)
            .into_iter()
            .flat_map(|kernel| [(kernel, false), (kernel, true)])
            .filter(|&(kernel, begins_early)| !begins_early || self.begins_early(kernel))
        {
            let (mask, count) = self.run(picture, spec, (kernel, begins_early));
            let wrong = mask.data().iter().zip(expected.data()).position(|(got, want)| got != want);
            let place = wrong.map(|at| (at % picture.size.width, at / picture.size.width));
            assert_eq!(place, None, "{kernel:?}, {spec} of {}: first wrong pixel (x, y)", picture.size);
            assert_eq!(count, foreground, "{kernel:?}, {spec} of {}: foreground", picture.size);
        }
    }
}

const SPECS: [&str; 26] = [
    "mean:31:5",
    "mean:3:-7.5",
    "gaussian:11:2.5",
    "gaussian:31:-3",
    "sauvola:15:0.2",
    "niblack:7:-0.2",
    "wolf:15:0.5",
    "phansalkar:9:0.25",
    "bradley:31:15",
    "fixed:99.5",
    "otsu",
    "triangle",
    "background:20:3",
    "mean:31x5:8",
    "mean:3x65:-4",
    "sauvola:5x21:0.3",
    "niblack:33x3:0.1",
    "wolf:3x7:0.2",
    "bradley:41x3:5",
    "mean:9:-30..2",
    "gaussian:9:4..-12",
    "sauvola:15x9:0.05..0.4",
    "niblack:7:-0.2..1",
    "wolf:7:0.1..0.9",
    "fixed:60..140",
    "background:20:3..9",
];

fn with_both_polarities(specs: &[&str]) -> Vec<ThresholdSpec> {
    let both = specs.iter().flat_map(|spec| [(*spec).to_owned(), format!("{spec}:inv")]);
    both.map(|spec| spec.parse().unwrap()).collect()
}

/// Sides around those of the tiles, segments, strips and warps.
const SIZES: [(usize, usize); 18] = [
    (1, 1),
    (1, 300),
    (300, 1),
    (33, 5),
    (32, 4),
    (31, 3),
    (128, 64),
    (129, 65),
    (123, 65),
    (256, 33),
    (257, 31),
    (513, 34),
    (5, 130),
    (2, 2),
    (192, 84),
    (193, 85),
    (400, 113),
    (16, 16),
];

#[test]
fn kernels_that_begin_early_wait_before_they_write() {
    let matchers = [ptx!("ncc_wgmma").text(), ptx!("ncc_wgmma_map").text()].map(|ptx| (ptx, true));
    let fused =
        [MEAN_FUSED, MEAN_FUSED_WIDE, DEVIATION_FUSED, GAUSSIAN_FUSED].map(|fused| fused.ptx_90.text());
    let mut seen = 0;
    for (ptx, is_matcher) in matchers.into_iter().chain(fused.map(|ptx| (ptx, false))) {
        for entry in ptx.split(".entry ").skip(1) {
            let name = entry.split('(').next().unwrap();
            // Templates are laid out before the first search; column sums begin when all before is done.
            if ["spread_template", "pack_template", "column_sums"].contains(&name) {
                continue;
            }
            let (before, _) =
                entry.split_once("griddepcontrol.wait").unwrap_or_else(|| panic!("{name} never waits"));
            assert!(before.contains("griddepcontrol.launch_dependents"), "{name} holds the next launch up");
            // In those that match, some warps write before the others come to wait in the text, though
            // not in time.
            if !is_matcher || name.starts_with("ncc_wgmma_map") {
                let writes = ["st.", "atom.", "red."];
                let is_write = |word: &&str| {
                    let goes_out = !["shared", "param"].iter().any(|space| word.contains(space));
                    goes_out && writes.iter().any(|write| word.starts_with(write))
                };
                let writes = before.split_whitespace().find(is_write);
                assert_eq!(writes, None, "{name}");
            }
            seen += 1;
        }
    }
    // Eight that match, three that leave a map, mean twice, deviation, and two Gaussians.
    assert_eq!(seen, 16);
}

#[test]
fn every_method_and_polarity_is_the_reference_on_odd_sizes() {
    let Some(bench) = Bench::open() else { return };
    for (seed, (w, h)) in (1..).zip(SIZES) {
        let picture = Padded::noise(Size::new(w, h), seed as usize * 7 % 30, seed);
        for spec in with_both_polarities(&SPECS) {
            bench.check(&picture, &spec);
        }
    }
}

#[test]
fn every_block_is_the_reference() {
    let Some(bench) = Bench::open() else { return };
    // Few pixels, because the reference takes block * block steps for each.
    let picture = Padded::noise(Size::new(35, 5), 29, 3);
    for block in (3..=255).step_by(2) {
        for method in [
            "mean:B:2.5",
            "gaussian:B:2",
            "sauvola:B:0.2",
            "niblack:B:-0.2",
            "mean:BxC:2.5",
            "wolf:CxB:0.4",
            "phansalkar:BxC:0.2",
        ] {
            let spec = method.replace('B', &block.to_string()).replace('C', &(258 - block).to_string());
            bench.check(&picture, &spec.parse().unwrap());
        }
    }
}

#[test]
fn a_frame_larger_than_all_tiles_is_the_cpus() {
    let Some(bench) = Bench::open() else { return };
    let picture = Padded::noise(Size::new(517, 389), 123, 5);
    for spec in with_both_polarities(&[
        "mean:255:5",
        "gaussian:255:1",
        "sauvola:101:0.2",
        "niblack:255:0",
        "wolf:255x101:0.3",
    ])
    .iter()
    .chain(&with_both_polarities(&SPECS))
    {
        // The reference would take minutes; the CPU's mask is tested against it.
        let mut expected = Plane::new(Size::new(0, 0));
        lockon_core::backend::cpu::threshold::Thresholder::new(spec, picture.size)
            .run(picture.view(), &mut expected);
        bench.check_against(&picture, spec, &expected);
    }
}

#[test]
fn flat_and_saturated_pictures_are_the_reference() {
    let Some(bench) = Bench::open() else { return };
    let size = Size::new(67, 9);
    let flat = [0, 9, 128, 255].map(|value| Padded::new(size, 5, |_, _| value));
    let steps = [1, 2, 13].map(|side| Padded::new(size, 5, |x, y| ((x / side + y / side) % 2) as u8 * 255));
    for picture in flat.iter().chain(&steps) {
        for spec in with_both_polarities(&[
            "mean:255:0",
            "mean:3:0.1",
            "gaussian:255:0",
            "gaussian:3:0.1",
            "sauvola:63:0.5",
            "niblack:255:0",
            "niblack:3:0.2",
            "wolf:63:0.5",
            "phansalkar:3:0.25",
            "bradley:255:0",
            "fixed:9",
            "otsu",
            "triangle",
            "fixed:0..200",
            "background:5:0",
        ]) {
            bench.check(picture, &spec);
        }
    }
}

#[test]
fn parameters_beyond_all_pixels_are_all_or_nothing() {
    let Some(bench) = Bench::open() else { return };
    let picture = Padded::noise(Size::new(41, 7), 0, 5);
    for spec in with_both_polarities(&[
        "mean:3:1e300",
        "mean:3:-1e300",
        "gaussian:3:-300",
        "sauvola:3:1e308",
        "niblack:3:-1e308",
        "wolf:3:1e308",
        "phansalkar:3:-1e308",
        "bradley:3:1e308",
        "fixed:1e308",
        "fixed:-1e308",
        "background:3:-1e308",
        "mean:3:-1e300..1e300",
    ]) {
        bench.check(&picture, &spec);
    }
}

#[test]
fn the_kernel_asked_for_is_launched_unless_its_tile_is_too_large() {
    let Some(bench) = Bench::open() else { return };
    let size = Size::new(40, 30);
    let launched = |spec: &str, kernels: Kernels| {
        let planned = bench.plan(&spec.parse().unwrap(), size, kernels, bench.gpu.begins_early());
        planned.kernel().map_or("none".into(), |kernel| kernel.to_string())
    };
    let has_fused = Room::of(&bench.gpu).unwrap().is_some();
    let [boxes, smallest, gaussian] = if has_fused {
        ["box-fused", "box-fused", "gaussian-fused"]
    } else {
        ["box-sliding", "box-tile", "gaussian-shared"]
    };
    for spec in ["mean:31:5", "mean:129:5", "sauvola:31:0.2", "niblack:5:0.2"] {
        assert_eq!(launched(spec, Kernels::default()), boxes, "{spec}");
    }
    assert_eq!(launched("mean:3:5", Kernels::default()), smallest);
    assert_eq!(launched("gaussian:31:5", Kernels::default()), gaussian);
    for spec in ["mean:31x5:5", "wolf:31:0.2", "phansalkar:3:0.2", "bradley:31:5"] {
        let tile = Kernels { boxes: Some(BoxKernel::Tile), ..Kernels::default() };
        assert_eq!([Kernels::default(), tile].map(|it| launched(spec, it)), ["box-sliding"; 2], "{spec}");
    }
    assert_eq!(
        ["otsu", "fixed:9", "background:9:9"].map(|spec| launched(spec, Kernels::default())),
        ["none"; 3]
    );
    for (name, kernel) in config::Kernel::ALL {
        if name.ends_with("fused") && !has_fused {
            continue;
        }
        let kernels = std::iter::once(kernel).collect();
        match kernel {
            config::Kernel::Ncc(_) => {}
            config::Kernel::Box(_) => assert_eq!(launched("niblack:31:0.1", kernels), name),
            config::Kernel::Gaussian(_) => assert_eq!(launched("gaussian:101:0", kernels), name),
        }
    }
    let tile = Kernels { boxes: Some(BoxKernel::Tile), ..Kernels::default() };
    let fits = bench.gpu.max_shared_bytes().unwrap() >= 73_788;
    assert_eq!(launched("mean:255:5", tile), if fits { "box-tile" } else { "box-sliding" });
}

#[test]
fn frames_after_each_other_have_the_references_background() {
    let Some(bench) = Bench::open() else { return };
    let size = Size::new(123, 33);
    for spec in ["background:1:4", "background:3:7.25", "background:7:3..11:inv", "background:10000:0"] {
        let spec: ThresholdSpec = spec.parse().unwrap();
        let mut expected = reference::threshold::Background::default();
        let mut thresholder = bench.plan(&spec, size, Kernels::default(), false);
        let mut mask = bench.gpu.alloc::<u8>("a mask", size.area()).unwrap();
        for frame in 0..12 {
            let mut picture = Padded::noise(size, 13, 5);
            let moved = picture.stride * 2 * frame + frame % 3;
            picture.data.rotate_left(moved);
            let expected = expected.threshold(picture.view(), &spec);
            let mut counter = bench.gpu.alloc::<u64>("a counter", 1).unwrap();
            let uploaded = testing::upload(&bench.gpu, &bench.stream, picture.view());
            bench.stream.upload_now(&vec![0xAA; size.area()], &mut mask).unwrap();
            thresholder.run(&bench.stream, &uploaded, &mut mask, (&mut counter, 0)).unwrap();
            let (mut bytes, mut count) = (vec![0; size.area()], [0]);
            bench.stream.download_now(&mask, &mut bytes).unwrap();
            bench.stream.download_now(&counter, &mut count).unwrap();
            assert!(bytes == expected.data(), "{spec}, frame {frame}");
            if frame % 5 == 4 {
                // Another one continues.
                let background = thresholder.background(&bench.stream).unwrap().expect("there were frames");
                thresholder = bench.plan(&spec, size, Kernels::default(), false);
                assert_eq!(thresholder.background(&bench.stream).unwrap(), None);
                thresholder.continue_from(&bench.stream, &background).unwrap();
            }
            assert_eq!(count[0], bytes.iter().filter(|&&byte| byte == 255).count() as u64, "{spec}");
        }
    }
}

#[test]
fn levels_of_whole_frames_are_the_references_on_random_histograms() {
    let Some(bench) = Bench::open() else { return };
    let mut state = 77_u64;
    let mut below = |end: u64| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 20) % end
    };
    for case in 0..200 {
        let size = Size::new(1 + below(300) as usize, 1 + below(60) as usize);
        let (low, high, wide) = (below(256), below(256), 1 + below(60));
        let picture = Padded::new(size, case % 7, |_, _| {
            let hill = if below(3) == 0 { low } else { high };
            (hill + below(wide)).saturating_sub(below(wide)).min(255) as u8
        });
        let spec = ["otsu", "triangle", "otsu:inv", "triangle:inv"][case % 4];
        bench.check(&picture, &spec.parse().unwrap());
    }
}

#[test]
fn components_that_wind_through_many_blocks_are_chosen_whole() {
    let Some(bench) = Bench::open() else { return };
    // A line that goes to and fro over the picture, with one bright pixel at its end; one without; and combs,
    // whose teeth join in the last row.
    let size = Size::new(301, 203);
    let snake = |x: usize, y: usize| {
        let turn = if (y / 4).is_multiple_of(2) { size.width - 1 } else { 0 };
        y.is_multiple_of(4) || x == turn
    };
    for seeds in [(0, 0), (0, 200), (7, 2)] {
        let picture = Padded::new(size, 3, |x, y| {
            if (x, y) == seeds {
                250
            } else if snake(x, y) {
                150
            } else {
                0
            }
        });
        bench.check(&picture, &"fixed:100..200".parse().unwrap());
        let comb = Padded::new(size, 3, |x, y| {
            if (x, y) == seeds {
                250
            } else if x.is_multiple_of(2) || y + 1 == size.height {
                150
            } else {
                0
            }
        });
        bench.check(&comb, &"fixed:200..100".parse().unwrap());
        let diagonals = Padded::new(size, 0, |x, y| {
            if (x + y).is_multiple_of(3) { 140 + ((x, y) == seeds) as u8 * 90 } else { 3 }
        });
        bench.check(&diagonals, &"fixed:200..100".parse().unwrap());
    }
}

#[test]
fn thresholds_of_two_streams_do_not_mix() {
    let Some(bench) = Bench::open() else { return };
    // Two Gaussians at once: each has its own weights.
    let picture = Padded::noise(Size::new(100, 40), 1, 11);
    let specs = ["gaussian:5:0", "gaussian:21:0"].map(|spec| spec.parse::<ThresholdSpec>().unwrap());
    let frame = testing::upload(&bench.gpu, &bench.stream, picture.view());
    let mut counter = bench.gpu.alloc::<u64>("a counter", 1).unwrap();
    let mut lanes = specs.map(|spec| {
        let stream = bench.gpu.stream(Priority::Normal).unwrap();
        let mask = bench.gpu.alloc::<u8>("a mask", picture.size.area()).unwrap();
        let planned = Thresholder::new(&bench.gpu, &stream, &spec, picture.size, Kernels::default());
        (spec, stream, planned.unwrap(), mask)
    });
    for (_, stream, thresholder, mask) in &mut lanes {
        thresholder.run(stream, &frame, mask, (&mut counter, 0)).unwrap();
    }
    for (spec, stream, _, mask) in &lanes {
        let mut bytes = vec![0; picture.size.area()];
        stream.download_now(mask, &mut bytes).unwrap();
        let expected = reference::threshold::threshold(picture.view(), spec);
        assert!(bytes == expected.data(), "{spec}");
    }
}

/// A picture and a threshold that the reference makes in a few million steps.
fn case() -> impl Strategy<Value = (Padded, ThresholdSpec)> {
    let size = (1..600_usize, 1..200_usize, 0..40_usize);
    let sides = (1..128_usize, 1..128_usize, any::<bool>());
    let values = (-12..13_i32, 0..3_i32);
    (size, any::<u64>(), sides, 0..11_usize, values, any::<bool>()).prop_map(
        |((w, h, padding), seed, (across, down, is_square), method, (parameter, band), inverse)| {
            let across = if is_square || method == 1 { down } else { across };
            let block = Block { width: 2 * across + 1, height: 2 * down + 1 };
            let height = h.min(2_000_000 / (w * block.area())).max(1);
            let width = w.min(2_000_000 / (height * block.area())).max(1);
            let value = f64::from(parameter);
            let method = match method {
                0 => ThresholdMethod::Mean { c: value / 2.0 },
                1 => ThresholdMethod::Gaussian { c: value / 2.0 },
                2 => ThresholdMethod::Sauvola { k: value / 20.0 },
                3 => ThresholdMethod::Niblack { k: value / 10.0 },
                4 => ThresholdMethod::Wolf { k: value / 10.0 },
                5 => ThresholdMethod::Phansalkar { k: value / 10.0 },
                6 => ThresholdMethod::Bradley { t: value },
                7 => ThresholdMethod::Fixed { t: 120.0 + 8.0 * value },
                8 => ThresholdMethod::Otsu,
                9 => ThresholdMethod::Triangle,
                _ => ThresholdMethod::Background { frames: 9, t: value },
            };
            // About as many levels of grey apart.
            let second = match method {
                ThresholdMethod::Bradley { .. } | ThresholdMethod::Fixed { .. } => 9.0,
                ThresholdMethod::Mean { .. } | ThresholdMethod::Gaussian { .. } => 6.0,
                _ => 0.2,
            };
            let second = method.value().filter(|_| band > 0).map(|v| v + second * f64::from(band));
            let block = if method.has_block() { block } else { Block::PIXEL };
            let picture = Padded::noise(Size::new(width, height), padding, seed);
            (picture, ThresholdSpec { method, block, second, inverse })
        },
    )
}

impl std::fmt::Debug for Padded {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} with rows {} apart", self.size, self.stride)
    }
}

#[test]
fn threshold_matches_reference_on_random_pictures() {
    let Some(bench) = Bench::open() else { return };
    let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &[9; 32]);
    let config = Config { cases: 300, failure_persistence: None, ..Config::default() };
    TestRunner::new_with_rng(config, rng)
        .run(&case(), |(picture, spec)| {
            bench.check(&picture, &spec);
            Ok(())
        })
        .unwrap();
}
