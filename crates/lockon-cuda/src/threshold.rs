//! Threshold on the device: kernels/threshold.cu and the one-pass kernels, planned and launched. Those of
//! whole frames and of backgrounds are in `whole`, the choice of components in `hysteresis`.

#![expect(unsafe_code, reason = "launching a kernel: what it reads and writes are addresses without lengths")]

use std::ffi::c_void;

use super::driver::{DeviceBuffer, Gpu, Kernel, Module, Ptx, Stream, arg, ptx};
use super::fused::{self, Room, Tiling};
use super::ncc::DeviceFrame;
use super::shared::constant;
use lockon_core::backend::threshold::{self, Background};
use lockon_core::config::{self, Block, BoxKernel, GaussianKernel, Kernels, ThresholdMethod, ThresholdSpec};
use lockon_core::error::Result;
use lockon_core::frame::Size;

use hysteresis::Hysteresis;
use whole::{Survey, Whole};

mod hysteresis;
mod whole;

const PTX: &str = include_str!("../ptx/threshold.ptx");
const KERNELS: Ptx = ptx!("threshold");

/// PTX of a one-pass kernel, by target. Each is a module of its own, since a module is compiled as a whole
/// when it is first loaded.
#[derive(Clone, Copy)]
pub(super) struct Fused {
    /// From compute capability 8.0 on.
    ptx_80: Ptx,
    /// From 9.0 on: they can begin before the previous launch has ended.
    ptx_90: Ptx,
}

macro_rules! fused {
    ($file:literal) => {
        Fused { ptx_80: ptx!($file), ptx_90: ptx!(concat!($file, "_90")) }
    };
}
const MEAN_FUSED: Fused = fused!("mean_fused");
const MEAN_FUSED_WIDE: Fused = fused!("mean_fused_wide");
const DEVIATION_FUSED: Fused = fused!("deviation_fused");
const GAUSSIAN_FUSED: Fused = fused!("gaussian_fused");

/// The source of kernels.
struct Modules<'a> {
    gpu: &'a Gpu,
    load: &'a dyn Fn(Ptx) -> Result<Module>,
    /// Uses kernels that can begin early.
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
        && constant(PTX, "ROW_BITS") == threshold::ROW_BITS as usize
        && constant(PTX, "PHANSALKAR_MEANS") == threshold::PHANSALKAR_MEANS;
    assert!(same, "the kernels' numbers are not the numeric contract's");
};

/// Threads of the two sliding kernels: warps of neighbours, few in a block, so that small frames keep many
/// blocks busy.
const SLIDING_THREADS: [usize; 2] = [32, 4];

/// A threshold planned for frames of one size on one stream, with its working memory.
pub(super) struct Thresholder {
    pass: Pass,
    strict: Option<Strict>,
}

/// The stricter mask of a hysteresis.
struct Strict {
    /// Nothing if the first pass makes both masks.
    pass: Option<Pass>,
    mask: DeviceBuffer<u8>,
    /// Takes the counts of masks that are not the result.
    uncounted: DeviceBuffer<u64>,
    hysteresis: Hysteresis,
}

/// A mask by one rule.
struct Pass {
    size: Size,
    /// Pixels of the block on one side of its centre, across and down.
    radii: [i32; 2],
    inverse: i32,
    rule: Rule,
    steps: Steps,
}

/// The comparison of a pixel, with the numbers that can be computed before a frame.
enum Rule {
    Mean {
        scale: f32,
        offset: i32,
    },
    Gaussian {
        offset: i32,
    },
    /// Sauvola or Niblack: the one-pass kernel gets this as an argument, the others are for one of them.
    Deviation {
        k: f64,
        is_niblack: i32,
    },
    Wolf {
        k: f64,
        survey: Survey,
        take: Kernel,
    },
    Phansalkar {
        k: f64,
        factors: DeviceBuffer<f64>,
    },
    Bradley {
        share: f64,
    },
    /// [`Steps::Whole`] has it.
    Whole,
}

/// The kernels that make the mask, with the memory between them.
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
    Whole(Whole),
}

impl Thresholder {
    /// Plans `spec` for frames of `size`: loads the kernels, allocates working memory, sets the weights
    /// through `stream`.
    ///
    /// If `kernels` names none, the threshold takes one pass. If a kernel's tile is too large for this
    /// device's shared memory, or the device is too old for it, sums are slid (those of 3 x 3 boxes come from
    /// a tile) and the Gaussian takes two passes.
    pub(super) fn new(
        gpu: &Gpu,
        stream: &Stream,
        spec: &ThresholdSpec,
        size: Size,
        kernels: Kernels,
    ) -> Result<Self> {
        // Weights may lie in the module, so that two thresholds cannot share one.
        let modules = Modules { gpu, load: &|ptx| gpu.load(&ptx.text()), begins_early: gpu.begins_early() };
        Self::from_modules(&modules, stream, spec, size, kernels)
    }

    fn from_modules(
        modules: &Modules<'_>,
        stream: &Stream,
        spec: &ThresholdSpec,
        size: Size,
        kernels: Kernels,
    ) -> Result<Self> {
        let (all, few) = spec.stages();
        let pass = Pass::new(modules, stream, &all, few.as_ref(), size, kernels)?;
        let strict = |few: ThresholdSpec| {
            let is_made = few.method.remembers();
            Ok(Strict {
                pass: (!is_made)
                    .then(|| Pass::new(modules, stream, &few, None, size, kernels))
                    .transpose()?,
                mask: modules.gpu.alloc("the stricter mask of a hysteresis", size.area())?,
                uncounted: modules.gpu.alloc("a counter", 1)?,
                hysteresis: Hysteresis::new(modules, size)?,
            })
        };
        Ok(Self { pass, strict: few.map(strict).transpose()? })
    }

    /// The kernel that makes the mask, if it is one of those that can be chosen.
    pub(super) fn kernel(&self) -> Option<config::Kernel> {
        match self.pass.steps {
            Steps::Fused { matrices: None, .. } => Some(config::Kernel::Box(BoxKernel::Fused)),
            Steps::Fused { matrices: Some(_), .. } => Some(config::Kernel::Gaussian(GaussianKernel::Fused)),
            Steps::Tile { .. } => Some(config::Kernel::Box(BoxKernel::Tile)),
            Steps::Sliding { .. } => Some(config::Kernel::Box(BoxKernel::Sliding)),
            Steps::Gaussian { how, .. } => Some(config::Kernel::Gaussian(how)),
            Steps::Whole(_) => None,
        }
    }

    /// Waits, and gives the background of the frames so far, if the method has one and there were any.
    pub(super) fn background(&self, stream: &Stream) -> Result<Option<Background>> {
        match &self.pass.steps {
            Steps::Whole(whole) => whole.background(stream),
            _ => Ok(None),
        }
    }

    /// Waits, and continues with the background of earlier frames, if the method has one.
    ///
    /// # Panics
    /// If it is of frames of another size.
    pub(super) fn continue_from(&mut self, stream: &Stream, background: &Background) -> Result<()> {
        match &mut self.pass.steps {
            Steps::Whole(whole) => whole.continue_from(stream, background),
            _ => Ok(()),
        }
    }

    /// Enqueues the threshold of `frame` without waiting: 255 or 0 for every pixel in `mask`, and the number
    /// of 255 added to the u64 at `counter`.
    ///
    /// All arguments must be kept until the work is done. An empty picture does nothing.
    ///
    /// # Panics
    /// If the frame has another size, the mask is too small, or there is no such counter.
    pub(super) fn run(
        &mut self,
        stream: &Stream,
        frame: &DeviceFrame,
        mask: &mut DeviceBuffer<u8>,
        (counters, index): (&mut DeviceBuffer<u64>, usize),
    ) -> Result<()> {
        let Self { pass, strict } = self;
        let Some(Strict { pass: strict, mask: few, uncounted, hysteresis }) = strict else {
            return pass.run(stream, frame, (mask, None), (counters, index));
        };
        let both = if strict.is_none() { Some(&mut *few) } else { None };
        pass.run(stream, frame, (mask, both), (uncounted, 0))?;
        if let Some(strict) = strict {
            strict.run(stream, frame, (few, None), (uncounted, 0))?;
        }
        hysteresis.run(stream, mask, few, (counters, index))
    }
}

impl Pass {
    /// Plans a mask by one value. With `few` a pass that looks at frames in their order makes that mask, too.
    fn new(
        modules: &Modules<'_>,
        stream: &Stream,
        spec: &ThresholdSpec,
        few: Option<&ThresholdSpec>,
        size: Size,
        kernels: Kernels,
    ) -> Result<Self> {
        let Modules { gpu, load, .. } = *modules;
        let offset = |c| threshold::offset(c, spec.inverse);
        let boxes = |names: &BoxNames| Steps::boxes(modules, size, spec.block, kernels.boxes, names);
        let (rule, steps) = match spec.method {
            ThresholdMethod::Mean { c } => {
                let rule = Rule::Mean { scale: threshold::mean_scale(spec.block), offset: offset(c) };
                (rule, boxes(&MEAN)?)
            }
            ThresholdMethod::Sauvola { k } => (Rule::Deviation { k, is_niblack: 0 }, boxes(&SAUVOLA)?),
            ThresholdMethod::Niblack { k } => (Rule::Deviation { k, is_niblack: 1 }, boxes(&NIBLACK)?),
            ThresholdMethod::Wolf { k } => {
                let take = load(KERNELS)?.kernel("wolf_survey")?;
                (Rule::Wolf { k, survey: Survey::new(modules)?, take }, boxes(&WOLF)?)
            }
            ThresholdMethod::Phansalkar { k } => {
                let table = threshold::phansalkar_factors();
                let mut factors = gpu.alloc("the table of Phansalkar's threshold", 2 * table.len())?;
                stream.upload_now(table.as_flattened(), &mut factors)?;
                (Rule::Phansalkar { k, factors }, boxes(&PHANSALKAR)?)
            }
            ThresholdMethod::Bradley { t } => {
                (Rule::Bradley { share: threshold::bradley_share(t) }, boxes(&BRADLEY)?)
            }
            ThresholdMethod::Gaussian { c } => {
                let steps = Steps::gaussian(modules, stream, size, spec.block.width, kernels.gaussian)?;
                (Rule::Gaussian { offset: offset(c) }, steps)
            }
            ThresholdMethod::Fixed { .. }
            | ThresholdMethod::Otsu
            | ThresholdMethod::Triangle
            | ThresholdMethod::Background { .. } => {
                let few = few.map(|few| few.method);
                (Rule::Whole, Steps::Whole(Whole::new(modules, stream, spec.method, few, size)?))
            }
        };
        let radii = [spec.block.width as i32 / 2, spec.block.height as i32 / 2];
        Ok(Self { size, radii, inverse: i32::from(spec.inverse), rule, steps })
    }

    /// As [`Thresholder::run`]. A second mask is for [`Steps::Whole`].
    fn run(
        &self,
        stream: &Stream,
        frame: &DeviceFrame,
        (mask, few): (&mut DeviceBuffer<u8>, Option<&mut DeviceBuffer<u8>>),
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
        if let Steps::Whole(whole) = &self.steps {
            return whole.run(stream, frame, (mask, few), (counters, index), self.inverse);
        }
        let mask = mask.address();
        let [radius, down] = self.radii;
        let sides = [int(image.pitch), int(width), int(height)];
        // The kernels' arguments: all kernels take the image; kernels that compare take the outputs too, and
        // last the values to compare by. A kernel that takes only the first of these ignores the other.
        let input = [arg(&image.address), arg(&sides[0]), arg(&sides[1]), arg(&sides[2])];
        let output = [arg(&mask), arg(&counter), arg(&radius), arg(&self.inverse)];
        let table = match &self.rule {
            Rule::Wolf { survey, .. } => survey.address(),
            Rule::Phansalkar { factors, .. } => factors.address(),
            _ => 0,
        };
        let compared = match &self.rule {
            Rule::Mean { scale, offset } => [arg(scale), arg(offset)],
            Rule::Gaussian { offset } => [arg(offset), std::ptr::null_mut()],
            Rule::Deviation { k, is_niblack } => [arg(k), arg(is_niblack)],
            Rule::Wolf { k, .. } | Rule::Phansalkar { k, .. } => [arg(k), arg(&table)],
            Rule::Bradley { share } => [arg(share), std::ptr::null_mut()],
            Rule::Whole => unreachable!("its steps have it"),
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
                    let shared_bytes = box_tile_bytes(radius as usize);
                    stream.launch(compare, across(BOX_TILE), threads(BOX_TILE), shared_bytes, args)
                }
            }
            Steps::Sliding { columns, rows, sums, squares } => {
                let (sums, squares) = (sums.address(), squares.address());
                let between = [arg(&sums), arg(&squares)];
                let args = &mut joined::<7>(&[&input, &between, &[arg(&down)]]);
                // SAFETY: the arguments of `box_columns`, which reads the image within w x h, the frame's, as
                // asserted, and writes w * h numbers of either sum: `Steps::boxes` allocated so many.
                unsafe {
                    let [threads_x, threads_y] = SLIDING_THREADS;
                    let grid = across([threads_x, threads_y * STRIP_ROWS]);
                    stream.launch(columns, grid, threads(SLIDING_THREADS), 0, args)?;
                }
                let grid = across([SEGMENT, SLIDING_THREADS[1]]);
                if let Rule::Wolf { survey, take, .. } = &self.rule {
                    survey.begin(stream)?;
                    let last = [arg(&table), arg(&radius), arg(&down)];
                    let args = &mut joined::<9>(&[&input, &between, &last]);
                    // SAFETY: the arguments of `wolf_survey`, which reads as `wolf_rows` below, and writes
                    // the survey.
                    unsafe { stream.launch(take, grid, threads(SLIDING_THREADS), 0, args)? };
                }
                let args = &mut joined::<13>(&[&input, &between, &output, &[arg(&down)], &compared]);
                // SAFETY: the arguments of `mean_rows`, the longest list of those that `rows` can be, or of
                // `wolf_rows` or `phansalkar_rows` with the table of that rule. It reads the image within
                // w x h, the frame's, as asserted, and w * h numbers of either sum, and writes w * h bytes
                // of the mask, whose length is asserted. A warp is one row of threads, as it must be:
                // SLIDING_THREADS is 32 wide.
                unsafe { stream.launch(rows, grid, threads(SLIDING_THREADS), 0, args) }
            }
            Steps::Gaussian { how, rows, columns, weighed } => {
                let weighed = weighed.address();
                let [halo_x, halo_y] = match how {
                    GaussianKernel::Shared | GaussianKernel::Fused => {
                        let halo = 2 * radius as usize;
                        [(ROWS_TILE[0] + halo) * ROWS_TILE[1], (COLUMNS_TILE[1] + halo) * COLUMNS_TILE[0] * 4]
                    }
                    // Their tiles do not depend on the block, so they have them by themselves.
                    GaussianKernel::Cached => [0, 0],
                };
                let args = &mut joined::<6>(&[&input, &[arg(&weighed), arg(&radius)]]);
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
            Steps::Whole(_) => unreachable!("done above"),
        }
    }
}

/// Joins the `N` arguments of a kernel from lists that kernels share.
fn joined<const N: usize>(lists: &[&[*mut c_void]]) -> [*mut c_void; N] {
    let mut arguments = lists.iter().copied().flatten().copied();
    let all = std::array::from_fn(|_| arguments.next().expect("as many arguments as the kernel takes"));
    assert!(arguments.next().is_none(), "more arguments than the kernel takes");
    all
}

/// The names of the kernels of a box threshold.
struct BoxNames {
    /// For blocks up to `fused::NARROW`, and for larger ones: each in a module of its own.
    fused: Option<[(Fused, &'static str); 2]>,
    tile: Option<&'static str>,
    rows: &'static str,
    /// The comparison also uses the sum of squares.
    with_squares: bool,
}

const MEAN: BoxNames = BoxNames {
    fused: Some([(MEAN_FUSED, "mean_fused"), (MEAN_FUSED_WIDE, "mean_fused_wide")]),
    tile: Some("mean_tile"),
    rows: "mean_rows",
    with_squares: false,
};
const SAUVOLA: BoxNames = BoxNames {
    fused: Some([(DEVIATION_FUSED, "deviation_fused"); 2]),
    tile: Some("sauvola_tile"),
    rows: "sauvola_rows",
    with_squares: true,
};
const NIBLACK: BoxNames = BoxNames {
    fused: Some([(DEVIATION_FUSED, "deviation_fused"); 2]),
    tile: Some("niblack_tile"),
    rows: "niblack_rows",
    with_squares: true,
};

const WOLF: BoxNames = BoxNames { fused: None, tile: None, rows: "wolf_rows", with_squares: true };
const PHANSALKAR: BoxNames =
    BoxNames { fused: None, tile: None, rows: "phansalkar_rows", with_squares: true };
const BRADLEY: BoxNames = BoxNames { fused: None, tile: None, rows: "bradley_rows", with_squares: false };

impl Steps {
    fn boxes(
        modules: &Modules<'_>,
        size: Size,
        block: Block,
        wanted: Option<BoxKernel>,
        names: &BoxNames,
    ) -> Result<Self> {
        let Modules { gpu, load, .. } = *modules;
        let radius = block.width / 2;
        // One pass is several times as fast as the others, and as a tile for squares only.
        let mut how = wanted.unwrap_or(BoxKernel::Fused);
        if !block.is_square() {
            how = BoxKernel::Sliding;
        }
        if how == BoxKernel::Fused {
            if let Some(fused) = names.fused
                && let Some(room) = Room::of(gpu)?
                && let Some(tiling) = Tiling::of_box(size, radius, names.with_squares, room)
            {
                let (kernels, name) = fused[usize::from(block.width > fused::NARROW)];
                let compare = kernels.kernel(modules, name)?;
                return Ok(Self::Fused { compare, tiling, matrices: None });
            }
            // Nine steps a pixel, by a tile, are faster than sliding.
            how = if wanted.is_none() && block.width == 3 { BoxKernel::Tile } else { BoxKernel::Sliding };
        }
        if how == BoxKernel::Tile
            && let Some(tile) = names.tile
            && box_tile_bytes(radius) <= gpu.max_shared_bytes()?
        {
            return Ok(Self::Tile { compare: load(KERNELS)?.kernel(tile)? });
        }
        let module = load(KERNELS)?;
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
        let module = load(KERNELS)?;
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
mod tests;
