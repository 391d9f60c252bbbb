//! The NCC kernels of `kernels/ncc_wgmma.cu`: templates without a mask, on the tensor cores of compute
//! capability 9.0.
//!
//! One launch does many searches. For the best position of each template, templates of one size make one,
//! whose tiles and window sums they share; where all peaks are wanted, each makes its own. Several sizes lie
//! side by side. Exact scores are appended to the list of candidates. No score map is written, nothing waits
//! and nothing is allocated, so launches can be recorded in a graph.

#![expect(unsafe_code, reason = "a kernel's arguments carry no types, device addresses no lengths")]

use std::sync::Arc;

use lockon_core::error::Result;
use lockon_core::frame::{Rect, Size};

use super::driver::{DeviceBuffer, Gpu, Kernel, Module, Stream, arg, ptx};
use super::ncc::{DeviceFrame, Found, How, Member, Wanted, positions};
use super::suspects::{Packer, Words};

mod arguments;
#[cfg(test)]
mod bounds;
mod geometry;
pub(super) mod map;

use arguments::{Record, WgmmaLaunch};
use geometry::{Finds, Geometry, MAX_SEARCHES, VARIANTS, best_geometry, chunks_and_steps, geometry};

const PTX: &str = include_str!("../ptx/ncc_wgmma.ptx");

/// Bytes of a block's shared memory that are left to the kernels' own variables. Those of `ncc_wgmma_3x96`
/// are the most: 5184 of `exact`, 420 of `lists`, 312 of `barrier_words` and 64 of `patterns`.
const RESERVED_SHARED: usize = 7168;

/// Largest template: sums of its products, with their start values, stay below 2^31.
const MAX_WIDTH: usize = 128;
const MAX_HEIGHT: usize = 256;
const MAX_AREA: usize = 32_768;

/// Templates of one launch that a lane has room for.
const MAX_MEMBERS: usize = 1024;

/// True on devices of the one generation that has these instructions.
fn is_there(gpu: &Gpu) -> bool {
    let capability = gpu.info().capability;
    (capability.major, capability.minor) == (9, 0)
}

/// The kernel that lays out a template as bands: the matrices A of `kernels/ncc_wgmma.cu`.
struct Spreader {
    gpu: Gpu,
    spread: Kernel,
}

impl Spreader {
    fn new(gpu: &Gpu, module: &Module) -> Result<Self> {
        Ok(Self { gpu: gpu.clone(), spread: module.kernel("spread_template")? })
    }

    /// Bytes that the bands of a template take.
    fn bytes(template: Size) -> usize {
        let (chunks, steps) = chunks_and_steps(template);
        chunks * (2 * steps + 3) * 256
    }

    /// The bands of a template, made by way of `stream`.
    fn spread(&self, stream: &Stream, member: &Member) -> Result<DeviceBuffer<u8>> {
        let bands = self.gpu.alloc("bands of a template", Self::bytes(member.size))?;
        let (pixels, pitch, to) = (member.rows.address, member.rows.pitch as i32, bands.address());
        let (w, h) = (member.size.width as i32, member.size.height as i32);
        let mut args = [arg(&pixels), arg(&pitch), arg(&w), arg(&h), arg(&to)];
        // SAFETY: the arguments of `spread_template`. A `Member`'s rows lie in its bank's buffer
        // (`PlannedSearch::new`); the kernel writes as many bytes as were allocated.
        unsafe {
            stream.launch(&self.spread, [bands.len().div_ceil(256), 1, 1], [256, 1, 1], 0, &mut args)?;
        };
        Ok(bands)
    }
}

/// The kernels, loaded; all streams may use them at once.
pub(super) struct WgmmaKernels {
    gpu: Gpu,
    best: [Kernel; VARIANTS.len()],
    peaks: [Kernel; VARIANTS.len()],
    spreader: Spreader,
    packer: Packer,
    multiprocessors: usize,
    shared_bytes: usize,
}

/// The data of a template that the kernels need, made on the device when a search is planned.
pub(super) struct Prepared {
    /// The bands of A.
    spread: DeviceBuffer<u8>,
    /// The rows that searches for the best position score it from.
    words: Option<Words>,
}

/// The prepared members of a bank.
pub(super) struct PreparedBank {
    table: DeviceBuffer<Record>,
    runs: Vec<Run>,
}

/// Members of one size that follow each other in a bank and in its table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Run {
    first_member: usize,
    first_record: usize,
    count: usize,
    size: Size,
}

/// The progress that blocks signal to each other; a lane has one.
pub(super) struct Progress(DeviceBuffer<u64>);

impl Progress {
    /// All zeros, as a search wants it and leaves it.
    pub(super) fn new(gpu: &Gpu) -> Result<Self> {
        Ok(Self(gpu.alloc("progress of searches", MAX_MEMBERS)?))
    }
}

impl WgmmaKernels {
    /// Loads them, or `None` if the device is not of the one generation that has these instructions.
    pub(super) fn load(gpu: &Gpu) -> Result<Option<Arc<Self>>> {
        Self::load_for(gpu, gpu.multiprocessors()?)
    }

    /// Loads them to be launched as on a device of so many multiprocessors.
    pub(super) fn load_for(gpu: &Gpu, multiprocessors: usize) -> Result<Option<Arc<Self>>> {
        if !is_there(gpu) {
            return Ok(None);
        }
        let module = gpu.share(ptx!("ncc_wgmma"))?;
        let early = |names: [_; VARIANTS.len()]| -> Result<_> {
            // SAFETY: compiled for 9.0a; the test `kernels_that_begin_early_wait_before_they_write` looks at
            // the PTX of those that are loaded so below.
            let [a, b, c, d] = names.map(|name| unsafe { module.early_kernel(name) });
            Ok([a?, b?, c?, d?])
        };
        Ok(Some(Arc::new(Self {
            gpu: gpu.clone(),
            best: early(VARIANTS.map(|variant| variant.best))?,
            peaks: early(VARIANTS.map(|variant| variant.peaks))?,
            spreader: Spreader::new(gpu, &module)?,
            packer: Packer::new(gpu, &module)?,
            multiprocessors,
            shared_bytes: gpu.max_shared_bytes()? - RESERVED_SHARED,
        })))
    }

    /// Prepares a template for searches in regions of this size, or `None` if it is not for these kernels.
    pub(super) fn prepare(
        &self,
        stream: &Stream,
        member: &Member,
        region: Size,
        best_only: bool,
    ) -> Result<Option<Prepared>> {
        let size = member.size;
        let is_small = size.width <= MAX_WIDTH
            && size.height <= MAX_HEIGHT
            && size.area() <= MAX_AREA
            && !member.is_masked;
        // Wherever a window lies, and whatever is searched with it, it fits if it does at the worst place.
        let fits =
            || (0..16).all(|left| self.fits(Finds::of(best_only), size, left, positions(region, size)));
        if !is_small || !fits() {
            return Ok(None);
        }
        let spread = self.spreader.spread(stream, member)?;
        let words = if best_only { Some(self.packer.pack(stream, member)?) } else { None };
        Ok(Some(Prepared { spread, words }))
    }

    /// Puts the prepared members of a bank together; there must be at least one.
    pub(super) fn prepare_bank(&self, stream: &Stream, members: &[Member]) -> Result<PreparedBank> {
        let (mut records, mut runs) = (Vec::new(), Vec::<Run>::new());
        for (index, member) in members.iter().enumerate() {
            let How::Wgmma(prepared) = &member.how else { continue };
            match runs.last_mut() {
                Some(run)
                    if run.size == member.size
                        && run.first_member + run.count == index
                        && run.count < MAX_MEMBERS =>
                {
                    run.count += 1;
                }
                _ => runs.push(Run {
                    first_member: index,
                    first_record: records.len(),
                    count: 1,
                    size: member.size,
                }),
            }
            records.push(Record::new(member, prepared));
        }
        let mut table = self.gpu.alloc("table of templates", records.len())?;
        stream.upload_now(&records, &mut table)?;
        Ok(PreparedBank { table, runs })
    }

    /// Appends the best position or all peaks of a bank's members in a window of a frame to `found`, with as
    /// few launches as there is room for, without waiting. The bank is one that these kernels prepared for
    /// regions of the window's size, and lives until it is done.
    #[expect(clippy::too_many_arguments, reason = "what is searched, where, for what, and what it leaves")]
    pub(super) fn search(
        &self,
        stream: &Stream,
        frame: &DeviceFrame,
        bank: &PreparedBank,
        window: Rect,
        wanted: Wanted,
        progress: &mut Progress,
        found: &mut Found,
    ) -> Result<()> {
        assert!(window.is_inside(frame.size), "{window} of a {} frame", frame.size);
        let multiprocessors = self.multiprocessors.div_ceil(bank.runs.len());
        let finds = Finds::of(wanted.best_only);
        for variant in 0..VARIANTS.len() {
            let mut launch = WgmmaLaunch::new(frame, wanted, progress, found);
            let mut members = 0;
            for run in &bank.runs {
                let geometry = self.geometry(finds, run.size, run.count, window, multiprocessors);
                if geometry.variant != variant {
                    continue;
                }
                for first in (0..run.count).step_by(geometry.at_once) {
                    let at_once = geometry.at_once.min(run.count - first);
                    if usize::from(launch.searches) == MAX_SEARCHES || members + at_once > MAX_MEMBERS {
                        self.run(stream, finds, variant, launch)?;
                        launch = WgmmaLaunch::new(frame, wanted, progress, found);
                        members = 0;
                    }
                    let records = bank.table.address_of(run.first_record + first);
                    launch.add(
                        &geometry,
                        window,
                        run.size,
                        records,
                        (run.first_member + first, members, at_once),
                    );
                    members += at_once;
                }
            }
            if launch.searches > 0 {
                self.run(stream, finds, variant, launch)?;
            }
        }
        Ok(())
    }

    /// For so many templates of one size.
    fn geometry(
        &self,
        finds: Finds,
        template: Size,
        count: usize,
        window: Rect,
        multiprocessors: usize,
    ) -> Geometry {
        let map = positions(window.size(), template);
        best_geometry(finds, template, count, window.x, map, self.shared_bytes, multiprocessors)
            .expect("asked when it was prepared")
    }

    fn run(&self, stream: &Stream, finds: Finds, variant: usize, mut launch: WgmmaLaunch) -> Result<()> {
        let (blocks, threads) = (launch.blocks(), VARIANTS[variant].threads);
        launch.shares_best = u16::from(blocks > self.multiprocessors);
        let kernel = match finds {
            Finds::Best => &self.best[variant],
            Finds::Peaks => &self.peaks[variant],
        };
        let mut args = [arg(&launch)];
        // SAFETY: the argument of all variants. Windows lie in the frame, as `search` asserts, whose rows
        // begin at multiples of 32 bytes (`pitch_for`);
        // tables, bands and words are their banks'; progress has room for MAX_MEMBERS; the list of candidates
        // has room for `capacity` behind its header, whose first word holds the count; shared memory is what
        // the largest search takes.
        unsafe {
            let shared = launch.shared_bytes as usize;
            stream.launch(kernel, [blocks, 1, 1], [threads, 1, 1], shared, &mut args)
        }
    }

    /// True if there is a launch for a template, and as many of its size as there may be.
    fn fits(&self, finds: Finds, template: Size, left: usize, map: Size) -> bool {
        (0..VARIANTS.len()).any(|variant| {
            geometry(variant, finds, template, MAX_MEMBERS, left, map, self.shared_bytes).is_some()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::geometry::Variant;
    use super::*;

    #[test]
    fn every_variant_is_compiled_under_its_names() {
        for Variant { best, peaks, .. } in VARIANTS {
            assert_eq!(peaks, format!("{best}_peaks"));
            for name in [best, peaks] {
                assert!(PTX.contains(&format!(".entry {name}(")), "{name}");
            }
        }
    }
}
