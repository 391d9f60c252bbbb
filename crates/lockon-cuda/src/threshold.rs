//! Adaptive threshold on the device: kernels/threshold.cu and the one-pass kernels, planned and launched.

#![expect(unsafe_code, reason = "launching a kernel: what it reads and writes are addresses without lengths")]

use std::ffi::c_void;

use super::driver::{DeviceBuffer, Gpu, Kernel, Module, Stream, arg};
use super::fused::{self, Room, Tiling};
use super::ncc::DeviceFrame;
use super::shared::constant;
use lockon_core::backend::threshold;
use lockon_core::config::{self, BoxKernel, GaussianKernel, Kernels, ThresholdMethod, ThresholdSpec};
use lockon_core::error::Result;
use lockon_core::frame::Size;

const PTX: &str = include_str!("../../../kernels/ptx/threshold.ptx");

/// PTX of a kernel that takes one pass, by what it was compiled for. A module of its own, for a module is
/// compiled as a whole when it is loaded for the first time.
#[derive(Clone, Copy)]
pub(super) struct Fused {
    /// From compute capability 8.0 on.
    pub(super) ptx_80: &'static str,
    /// From 9.0 on: they can begin before the launch before has ended.
    ptx_90: &'static str,
}

macro_rules! fused {
    ($file:literal) => {
        Fused {
            ptx_80: include_str!(concat!("../../../kernels/ptx/", $file, ".ptx")),
            ptx_90: include_str!(concat!("../../../kernels/ptx/", $file, "_90.ptx")),
        }
    };
}
pub(super) const MEAN_FUSED: Fused = fused!("mean_fused");
const MEAN_FUSED_WIDE: Fused = fused!("mean_fused_wide");
const DEVIATION_FUSED: Fused = fused!("deviation_fused");
pub(super) const GAUSSIAN_FUSED: Fused = fused!("gaussian_fused");

/// Where kernels come from.
struct Modules<'a> {
    gpu: &'a Gpu,
    load: &'a dyn Fn(&'static str) -> Result<Module>,
    /// Those that can begin early do.
    begins_early: bool,
}

impl Fused {
    /// The kernel of that name.
    fn kernel(&self, modules: &Modules<'_>, name: &'static str) -> Result<Kernel> {
        if !modules.begins_early {
            return (modules.load)(self.ptx_80)?.kernel(name);
        }
        // SAFETY: compiled for 9.0; the test `kernels_that_begin_early_wait_before_they_write` looks at the
        // PTX of each.
        unsafe { (modules.load)(self.ptx_90)?.early_kernel(name) }
    }
}

// Pairs are [x, y].

const BOX_TILE: [usize; 2] = [constant(PTX, "BOX_TILE_X"), constant(PTX, "BOX_TILE_Y")];
const STRIP_ROWS: usize = constant(PTX, "STRIP_ROWS");
const SEGMENT: usize = constant(PTX, "SEGMENT");
const ROWS_TILE: [usize; 2] = [constant(PTX, "ROWS_TILE_X"), constant(PTX, "ROWS_TILE_Y")];
const COLUMNS_TILE: [usize; 2] = [constant(PTX, "COLUMNS_TILE_X"), constant(PTX, "COLUMNS_TILE_Y")];
const COLUMNS_THREADS: [usize; 2] = [COLUMNS_TILE[0], constant(PTX, "COLUMNS_THREADS_Y")];

const _: () = {
    let same = constant(PTX, "WEIGHT_BITS") == threshold::WEIGHT_BITS as usize
        && constant(PTX, "ROW_BITS") == threshold::ROW_BITS as usize;
    assert!(same, "the kernels' fixed point is not the numeric contract's");
};

/// Threads of the two sliding kernels: warps of neighbours, few in a block, so that small frames keep many
/// blocks busy.
const SLIDING_THREADS: [usize; 2] = [32, 4];

/// An adaptive threshold planned for frames of one size on one stream, whose working memory it has.
pub(super) struct Thresholder {
    size: Size,
    radius: i32,
    inverse: i32,
    rule: Rule,
    steps: Steps,
}

/// How a pixel is compared, with what can be computed before a frame is there.
enum Rule {
    Mean {
        scale: f32,
        offset: i32,
    },
    Gaussian {
        offset: i32,
    },
    /// Sauvola or Niblack: the one-pass kernel is told which, the others are for one of them.
    Deviation {
        k: f64,
        is_niblack: i32,
    },
}

/// The kernels that make the mask, with what one leaves for the next.
enum Steps {
    /// With the Gaussian's matrices, or nothing where boxes are summed.
    Fused {
        compare: Kernel,
        tiling: Tiling,
        matrices: Option<DeviceBuffer<u32>>,
    },
    Tile {
        compare: Kernel,
    },
    Sliding {
        columns: Kernel,
        rows: Kernel,
        sums: DeviceBuffer<u32>,
        squares: DeviceBuffer<u32>,
    },
    Gaussian {
        how: GaussianKernel,
        rows: Kernel,
        columns: Kernel,
        weighed: DeviceBuffer<u32>,
    },
}

impl Thresholder {
    /// Plans `spec` for frames of `size`: loads the kernels, takes working memory, sets the weights by way of
    /// `stream`.
    ///
    /// What `kernels` leaves open is made in one pass. Where a kernel's tile is too large for this device's
    /// shared memory, or the device too old for it, sums are slid (3 x 3 boxes that were left open: come from
    /// a tile) and the Gaussian takes two passes.
    pub(super) fn new(
        gpu: &Gpu,
        stream: &Stream,
        spec: &ThresholdSpec,
        size: Size,
        kernels: Kernels,
    ) -> Result<Self> {
        // Weights may lie in the module, so that two thresholds cannot share one.
        let modules = Modules { gpu, load: &|ptx| gpu.load(ptx), begins_early: gpu.begins_early() };
        Self::from_modules(&modules, stream, spec, size, kernels)
    }

    fn from_modules(
        modules: &Modules<'_>,
        stream: &Stream,
        spec: &ThresholdSpec,
        size: Size,
        kernels: Kernels,
    ) -> Result<Self> {
        let radius = spec.block / 2;
        let offset = |c| threshold::offset(c, spec.inverse);
        let boxes = |names: &BoxNames| Steps::boxes(modules, size, radius, kernels.boxes, names);
        let (rule, steps) = match spec.method {
            ThresholdMethod::Mean { c } => {
                let rule = Rule::Mean { scale: threshold::mean_scale(spec.block), offset: offset(c) };
                (rule, boxes(&MEAN)?)
            }
            ThresholdMethod::Sauvola { k } => (Rule::Deviation { k, is_niblack: 0 }, boxes(&SAUVOLA)?),
            ThresholdMethod::Niblack { k } => (Rule::Deviation { k, is_niblack: 1 }, boxes(&NIBLACK)?),
            ThresholdMethod::Gaussian { c } => {
                let steps = Steps::gaussian(modules, stream, size, spec.block, kernels.gaussian)?;
                (Rule::Gaussian { offset: offset(c) }, steps)
            }
        };
        Ok(Self { size, radius: radius as i32, inverse: i32::from(spec.inverse), rule, steps })
    }

    /// The kernel that makes the mask.
    pub(super) fn kernel(&self) -> config::Kernel {
        match self.steps {
            Steps::Fused { matrices: None, .. } => config::Kernel::Box(BoxKernel::Fused),
            Steps::Fused { matrices: Some(_), .. } => config::Kernel::Gaussian(GaussianKernel::Fused),
            Steps::Tile { .. } => config::Kernel::Box(BoxKernel::Tile),
            Steps::Sliding { .. } => config::Kernel::Box(BoxKernel::Sliding),
            Steps::Gaussian { how, .. } => config::Kernel::Gaussian(how),
        }
    }

    /// Enqueues the threshold of `image` without waiting: 255 or 0 for every pixel in `mask`, and the number
    /// of 255 added to the u64 at `counter`.
    ///
    /// What is given must be kept until the work is done. An empty picture does nothing.
    ///
    /// # Panics
    /// If the frame is of another size, the mask is too small, or there is no such counter.
    pub(super) fn run(
        &mut self,
        stream: &Stream,
        frame: &DeviceFrame,
        mask: &mut DeviceBuffer<u8>,
        (counters, index): (&mut DeviceBuffer<u64>, usize),
    ) -> Result<()> {
        let Size { width, height } = self.size;
        assert!(mask.len() >= self.size.area(), "a mask of {} bytes for {}", mask.len(), self.size);
        assert_eq!(frame.size, self.size, "threshold planned for another size");
        assert!(index < counters.len(), "counter {index} of {}", counters.len());
        let (image, counter) = (frame.rows_from(0, 0), counters.address_of(index));
        let int = |value: usize| i32::try_from(value).expect("a frame's sides fit in 31 bits");
        if self.size.area() == 0 {
            return Ok(());
        }
        let (mask, counter) = (mask.address(), counter);
        let sides = [int(image.pitch), int(width), int(height)];
        // What the kernels take: all of them the image; those that compare the outputs, and last what they
        // compare by, of which a kernel that takes only the first leaves the other.
        let input = [arg(&image.address), arg(&sides[0]), arg(&sides[1]), arg(&sides[2])];
        let output = [arg(&mask), arg(&counter), arg(&self.radius), arg(&self.inverse)];
        let compared = match &self.rule {
            Rule::Mean { scale, offset } => [arg(scale), arg(offset)],
            Rule::Gaussian { offset } => [arg(offset), std::ptr::null_mut()],
            Rule::Deviation { k, is_niblack } => [arg(k), arg(is_niblack)],
        };
        let across = |tile: [usize; 2]| [width.div_ceil(tile[0]), height.div_ceil(tile[1]), 1];
        let threads = |block: [usize; 2]| [block[0], block[1], 1];
        match &self.steps {
            Steps::Fused { compare, tiling, matrices } => {
                let matrices = matrices.as_ref().map(DeviceBuffer::address);
                let compared = match &matrices {
                    None => compared,
                    // The Gaussian's matrices come before its offset.
                    Some(address) => [arg(address), compared[0]],
                };
                let args = &mut joined::<11>(&[&input, &output, &[arg(&tiling.shares)], &compared]);
                // SAFETY: the arguments of `mean_fused`, `deviation_fused` or `gaussian_fused`, whichever
                // `compare` is; `joined` counts them. It reads the image within w x h, which is the frame's,
                // as asserted, and, where its rows are multiples of 16 bytes, up to the end of these; it
                // writes w * h bytes of the mask, whose length is asserted. `Tiling` made the tiles for this
                // size and block and counted their shared memory; `Steps::gaussian` made the matrices for
                // this kernel.
                unsafe {
                    stream.launch(compare, tiling.grid, [tiling.threads, 1, 1], tiling.shared_bytes, args)
                }
            }
            Steps::Tile { compare } => {
                let args = &mut joined::<10>(&[&input, &output, &compared]);
                // SAFETY: the arguments of `mean_tile`, the longest list of the three that `compare` can be:
                // the driver reads as many as the kernel takes. It reads the image, which is the caller's,
                // within w x h and the pitch asserted above; it writes w * h bytes of the mask, whose length
                // is asserted above. Its tile was compared with the device's limit by `Steps::boxes`.
                unsafe {
                    let shared_bytes = box_tile_bytes(self.radius as usize);
                    stream.launch(compare, across(BOX_TILE), threads(BOX_TILE), shared_bytes, args)
                }
            }
            Steps::Sliding { columns, rows, sums, squares } => {
                let (sums, squares) = (sums.address(), squares.address());
                let between = [arg(&sums), arg(&squares)];
                let args = &mut joined::<7>(&[&input, &between, &[arg(&self.radius)]]);
                // SAFETY: the arguments of `box_columns`, which reads the image within w x h, the frame's, as
                // asserted, and writes w * h numbers of either sum: `Steps::boxes` allocated so many.
                unsafe {
                    let [threads_x, threads_y] = SLIDING_THREADS;
                    let grid = across([threads_x, threads_y * STRIP_ROWS]);
                    stream.launch(columns, grid, threads(SLIDING_THREADS), 0, args)?;
                }
                let args = &mut joined::<12>(&[&input, &between, &output, &compared]);
                // SAFETY: the arguments of `mean_rows`, the longest list of the three that `rows` can be. It
                // reads the image within w x h, the frame's, as asserted, and w * h numbers of either sum,
                // and writes w * h bytes of the mask, whose length is asserted. A warp is one row of threads,
                // as it must be: SLIDING_THREADS is 32 wide.
                unsafe {
                    let grid = across([SEGMENT, SLIDING_THREADS[1]]);
                    stream.launch(rows, grid, threads(SLIDING_THREADS), 0, args)
                }
            }
            Steps::Gaussian { how, rows, columns, weighed } => {
                let weighed = weighed.address();
                let [halo_x, halo_y] = match how {
                    GaussianKernel::Shared | GaussianKernel::Fused => {
                        let halo = 2 * self.radius as usize;
                        [(ROWS_TILE[0] + halo) * ROWS_TILE[1], (COLUMNS_TILE[1] + halo) * COLUMNS_TILE[0] * 4]
                    }
                    // Their tiles do not depend on the block, so they have them by themselves.
                    GaussianKernel::Cached => [0, 0],
                };
                let args = &mut joined::<6>(&[&input, &[arg(&weighed), arg(&self.radius)]]);
                // SAFETY: the arguments of `gaussian_rows_*`, which read the image within w x h, the frame's,
                // as asserted, and write w * h numbers of `weighed`: `Steps::gaussian` allocated so many.
                unsafe {
                    stream.launch(rows, across(ROWS_TILE), threads(ROWS_TILE), halo_x, args)?;
                }
                let args = &mut joined::<10>(&[&input, &[arg(&weighed)], &output, &compared[..1]]);
                // SAFETY: the arguments of `gaussian_columns_*`, which read the image and `weighed` within
                // w x h and write w * h bytes of the mask, whose length is asserted. The tile of the largest
                // block has 40704 bytes, less than the 48 KiB that every device gives.
                unsafe {
                    stream.launch(columns, across(COLUMNS_TILE), threads(COLUMNS_THREADS), halo_y, args)
                }
            }
        }
    }
}

/// The arguments of a kernel, of which there are `N`, from lists that kernels share.
fn joined<const N: usize>(lists: &[&[*mut c_void]]) -> [*mut c_void; N] {
    let mut arguments = lists.iter().copied().flatten().copied();
    let all = std::array::from_fn(|_| arguments.next().expect("as many arguments as the kernel takes"));
    assert!(arguments.next().is_none(), "more arguments than the kernel takes");
    all
}

/// What the kernels of a box threshold are called.
struct BoxNames {
    /// For blocks up to `fused::NARROW`, and for larger ones: each in a module of its own.
    fused: [(Fused, &'static str); 2],
    tile: &'static str,
    rows: &'static str,
    /// It compares by the sum of squares, too.
    with_squares: bool,
}

const MEAN: BoxNames = BoxNames {
    fused: [(MEAN_FUSED, "mean_fused"), (MEAN_FUSED_WIDE, "mean_fused_wide")],
    tile: "mean_tile",
    rows: "mean_rows",
    with_squares: false,
};
const SAUVOLA: BoxNames = BoxNames {
    fused: [(DEVIATION_FUSED, "deviation_fused"); 2],
    tile: "sauvola_tile",
    rows: "sauvola_rows",
    with_squares: true,
};
const NIBLACK: BoxNames = BoxNames {
    fused: [(DEVIATION_FUSED, "deviation_fused"); 2],
    tile: "niblack_tile",
    rows: "niblack_rows",
    with_squares: true,
};

impl Steps {
    fn boxes(
        modules: &Modules<'_>,
        size: Size,
        radius: usize,
        wanted: Option<BoxKernel>,
        names: &BoxNames,
    ) -> Result<Self> {
        let Modules { gpu, load, .. } = *modules;
        let block = 2 * radius + 1;
        // One pass is several times as fast as the others.
        let mut how = wanted.unwrap_or(BoxKernel::Fused);
        if how == BoxKernel::Fused {
            if let Some(room) = Room::of(gpu)?
                && let Some(tiling) = Tiling::of_box(size, radius, names.with_squares, room)
            {
                let (kernels, name) = names.fused[usize::from(block > fused::NARROW)];
                let compare = kernels.kernel(modules, name)?;
                return Ok(Self::Fused { compare, tiling, matrices: None });
            }
            // Nine steps a pixel, by a tile, are faster than sliding.
            how = if wanted.is_none() && block == 3 { BoxKernel::Tile } else { BoxKernel::Sliding };
        }
        if how == BoxKernel::Tile && box_tile_bytes(radius) <= gpu.max_shared_bytes()? {
            return Ok(Self::Tile { compare: load(PTX)?.kernel(names.tile)? });
        }
        let module = load(PTX)?;
        Ok(Self::Sliding {
            columns: module.kernel("box_columns")?,
            rows: module.kernel(names.rows)?,
            sums: gpu.alloc("sums of columns", size.area())?,
            squares: gpu.alloc("sums of squares of columns", size.area())?,
        })
    }

    fn gaussian(
        modules: &Modules<'_>,
        stream: &Stream,
        size: Size,
        block: usize,
        wanted: Option<GaussianKernel>,
    ) -> Result<Self> {
        let Modules { gpu, load, .. } = *modules;
        let how = match wanted.unwrap_or(GaussianKernel::Fused) {
            GaussianKernel::Fused => {
                if let Some(room) = Room::of(gpu)?
                    && let Some(tiling) = Tiling::of_gaussian(size, block / 2, room)
                {
                    let words = fused::gaussian_matrices(block);
                    let mut matrices = gpu.alloc("matrices of the Gaussian threshold", words.len())?;
                    stream.upload_now(&words, &mut matrices)?;
                    let compare = GAUSSIAN_FUSED.kernel(modules, fused::gaussian_kernel(block))?;
                    return Ok(Self::Fused { compare, tiling, matrices: Some(matrices) });
                }
                GaussianKernel::Shared
            }
            how => how,
        };
        let [rows, columns] = match how {
            GaussianKernel::Shared | GaussianKernel::Fused => {
                ["gaussian_rows_shared", "gaussian_columns_shared"]
            }
            GaussianKernel::Cached => ["gaussian_rows_cached", "gaussian_columns_cached"],
        };
        let module = load(PTX)?;
        module.set_constant("weights", &threshold::gaussian_weights(block), stream)?;
        Ok(Self::Gaussian {
            how,
            rows: module.kernel(rows)?,
            columns: module.kernel(columns)?,
            weighed: gpu.alloc("rows of the Gaussian threshold", size.area())?,
        })
    }
}

/// Bytes of a tile of `box_tile` with its halo.
fn box_tile_bytes(radius: usize) -> usize {
    BOX_TILE.map(|side| side + 2 * radius).iter().product()
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use proptest::prelude::*;
    use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};

    use super::super::driver::Priority;
    use super::super::testing;
    use super::*;
    use lockon_core::frame::{Plane, PlaneRef};
    use lockon_core::reference;

    /// The kernels that can be asked for and make this method's threshold.
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
        modules: HashMap<&'static str, Module>,
    }

    impl Bench {
        /// Nothing where there is no device.
        fn open() -> Option<Self> {
            let gpu = testing::gpu()?;
            let stream = gpu.stream(Priority::Normal).unwrap();
            let fused = [MEAN_FUSED, MEAN_FUSED_WIDE, DEVIATION_FUSED, GAUSSIAN_FUSED];
            let fused = fused.into_iter().flat_map(|fused| [fused.ptx_80, fused.ptx_90]);
            let modules: Vec<_> = std::iter::once(PTX).chain(fused).collect();
            // A device may be too old for some, and then none of these is asked for.
            let modules = modules.iter().filter_map(|ptx| Some((*ptx, gpu.load(ptx).ok()?))).collect();
            Some(Self { gpu, stream, modules })
        }

        fn plan(
            &self,
            spec: &ThresholdSpec,
            size: Size,
            kernels: Kernels,
            begins_early: bool,
        ) -> Thresholder {
            let load = |ptx| Ok(self.modules[ptx].clone());
            let modules = Modules { gpu: &self.gpu, load: &load, begins_early };
            Thresholder::from_modules(&modules, &self.stream, spec, size, kernels).unwrap()
        }

        /// The mask and the count of a second run into poisoned memory, on top of what the first left behind.
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
            assert!(
                bytes.split_off(size.area()).iter().all(|&b| b == 0xAA),
                "{kernel} wrote behind the mask"
            );
            let mut counts = [0; 3];
            stream.download_now(&counter, &mut counts).unwrap();
            assert_eq!([counts[0], counts[2]], [7, 7], "{kernel} wrote beside the counter");
            (Plane::from_vec(bytes, size), counts[1] - BEFORE)
        }

        /// True if there are two of a kernel here, of which one can begin early.
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
        let matchers = include_str!("../../../kernels/ptx/ncc_wgmma.ptx");
        let fused = [MEAN_FUSED, MEAN_FUSED_WIDE, DEVIATION_FUSED, GAUSSIAN_FUSED].map(|fused| fused.ptx_90);
        let mut seen = 0;
        for (ptx, is_matcher) in std::iter::once((matchers, true)).chain(fused.map(|ptx| (ptx, false))) {
            for entry in ptx.split(".entry ").skip(1) {
                let name = entry.split('(').next().unwrap();
                // Templates are laid out before the first search.
                if ["spread_template", "pack_template"].contains(&name) {
                    continue;
                }
                let (before, _) =
                    entry.split_once("griddepcontrol.wait").unwrap_or_else(|| panic!("{name} never waits"));
                assert!(
                    before.contains("griddepcontrol.launch_dependents"),
                    "{name} holds the next launch up"
                );
                // In those that match, some warps write before the others come to wait in the text, though
                // not in time.
                if !(is_matcher && name.starts_with("ncc_wgmma")) {
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
        // Eight that match, mean twice, deviation, and two Gaussians.
        assert_eq!(seen, 13);
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
        for spec in
            with_both_polarities(&["mean:255:5", "gaussian:255:1", "sauvola:101:0.2", "niblack:255:0"])
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
        let steps =
            [1, 2, 13].map(|side| Padded::new(size, 5, |x, y| ((x / side + y / side) % 2) as u8 * 255));
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
}
