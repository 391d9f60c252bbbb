use std::collections::HashMap;

use proptest::prelude::*;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};

use super::super::driver::Priority;
use super::super::testing;
use super::*;
use lockon_core::frame::{Plane, PlaneRef};
use lockon_core::reference;

/// The kernels that a request may name and that make this method's threshold.
fn kernels_of(method: ThresholdMethod) -> impl Iterator<Item = config::Kernel> {
    let is_gaussian = matches!(method, ThresholdMethod::Gaussian { .. });
    config::Kernel::ALL.into_iter().map(|(_, kernel)| kernel).filter(move |kernel| match kernel {
        config::Kernel::Ncc(_) => false,
        config::Kernel::Box(_) => !is_gaussian,
        config::Kernel::Gaussian(_) => is_gaussian,
    })
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
        let modules: Vec<_> = std::iter::once(KERNELS).chain(fused).collect();
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
        (kernel, begins_early): (config::Kernel, bool),
    ) -> (Plane, u64) {
        const BEFORE: u64 = (1 << 32) - 1;
        const GUARD: usize = 64;
        let (gpu, stream, size) = (&self.gpu, &self.stream, picture.size);
        let frame = testing::upload(gpu, stream, picture.view());
        let mut mask = gpu.alloc::<u8>("a mask", size.area() + GUARD).unwrap();
        let mut counter = gpu.alloc::<u64>("counters", 3).unwrap();
        let mut thresholder = self.plan(spec, size, std::iter::once(kernel).collect(), begins_early);
        for _ in 0..2 {
            stream.upload_now(&vec![0xAA; size.area() + GUARD], &mut mask).unwrap();
            stream.upload_now(&[7, BEFORE, 7], &mut counter).unwrap();
            thresholder.run(stream, &frame, &mut mask, (&mut counter, 1)).unwrap();
        }
        let mut bytes = vec![0; size.area() + GUARD];
        stream.download_now(&mask, &mut bytes).unwrap();
        assert!(bytes.split_off(size.area()).iter().all(|&b| b == 0xAA), "{kernel} wrote behind the mask");
        let mut counts = [0; 3];
        stream.download_now(&counter, &mut counts).unwrap();
        assert_eq!([counts[0], counts[2]], [7, 7], "{kernel} wrote beside the counter");
        (Plane::from_vec(bytes, size), counts[1] - BEFORE)
    }

    /// True if this kernel exists twice here, and one of the two can begin early.
    fn begins_early(&self, kernel: config::Kernel) -> bool {
        self.gpu.begins_early() && kernel.to_string().ends_with("-fused")
    }

    fn check(&self, picture: &Padded, spec: &ThresholdSpec) {
        let expected = reference::threshold::threshold(picture.view(), spec);
        self.check_against(picture, spec, &expected);
    }

    fn check_against(&self, picture: &Padded, spec: &ThresholdSpec, expected: &Plane) {
        let foreground = expected.data().iter().filter(|&&v| v == 255).count() as u64;
        for (kernel, begins_early) in kernels_of(spec.method)
            .flat_map(|kernel| [(kernel, false), (kernel, true)])
            .filter(|&(kernel, begins_early)| !begins_early || self.begins_early(kernel))
        {
            let (mask, count) = self.run(picture, spec, (kernel, begins_early));
            let wrong = mask.data().iter().zip(expected.data()).position(|(got, want)| got != want);
            let place = wrong.map(|at| (at % picture.size.width, at / picture.size.width));
            assert_eq!(place, None, "{kernel}, {spec} of {}: first wrong pixel (x, y)", picture.size);
            assert_eq!(count, foreground, "{kernel}, {spec} of {}: foreground", picture.size);
        }
    }
}

const SPECS: [&str; 6] =
    ["mean:31:5", "mean:3:-7.5", "gaussian:11:2.5", "gaussian:31:-3", "sauvola:15:0.2", "niblack:7:-0.2"];

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
        for method in ["mean:B:2.5", "gaussian:B:2", "sauvola:B:0.2", "niblack:B:-0.2"] {
            let spec = method.replace('B', &block.to_string());
            bench.check(&picture, &spec.parse().unwrap());
        }
    }
}

#[test]
fn a_frame_larger_than_all_tiles_is_the_cpus() {
    let Some(bench) = Bench::open() else { return };
    let picture = Padded::noise(Size::new(517, 389), 123, 5);
    for spec in with_both_polarities(&["mean:255:5", "gaussian:255:1", "sauvola:101:0.2", "niblack:255:0"])
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
    ]) {
        bench.check(&picture, &spec);
    }
}

#[test]
fn the_kernel_asked_for_is_launched_unless_its_tile_is_too_large() {
    let Some(bench) = Bench::open() else { return };
    let size = Size::new(40, 30);
    let launched = |spec: &str, kernels: Kernels| {
        bench.plan(&spec.parse().unwrap(), size, kernels, bench.gpu.begins_early()).kernel().to_string()
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
    (size, any::<u64>(), 1..128_usize, 0..4_usize, -12..13_i32, any::<bool>()).prop_map(
        |((w, h, padding), seed, radius, method, parameter, inverse)| {
            let block = 2 * radius + 1;
            let height = h.min(2_000_000 / (w * block * block)).max(1);
            let width = w.min(2_000_000 / (height * block * block)).max(1);
            let value = f64::from(parameter);
            let method = match method {
                0 => ThresholdMethod::Mean { c: value / 2.0 },
                1 => ThresholdMethod::Gaussian { c: value / 2.0 },
                2 => ThresholdMethod::Sauvola { k: value / 20.0 },
                _ => ThresholdMethod::Niblack { k: value / 10.0 },
            };
            let picture = Padded::noise(Size::new(width, height), padding, seed);
            (picture, ThresholdSpec { method, block, inverse })
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
