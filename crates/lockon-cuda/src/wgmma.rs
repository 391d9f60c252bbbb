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

use super::driver::{DeviceBuffer, Gpu, Kernel, Stream, arg};
use super::ncc::{DeviceFrame, Found, How, Image, Member, Pattern, Wanted, positions};
use super::shared::{constant, pod_structure};
use super::suspects::{Packer, Words};

const PTX: &str = include_str!("../../../kernels/ptx/ncc_wgmma.ptx");

const TILE_X: usize = constant(PTX, "TILE_X");
const PEAKS_OVERLAP: usize = constant(PTX, "PEAKS_OVERLAP");
const PART_STEPS: usize = constant(PTX, "PART_STEPS");
const PART_BYTES: usize = constant(PTX, "PART_BYTES");
const MAX_STAGES: usize = constant(PTX, "MAX_STAGES");
const SUM_WARPS: usize = constant(PTX, "SUM_WARPS");
const MAX_SEARCHES: usize = constant(PTX, "MAX_SEARCHES");

/// Bytes of a block's shared memory that are left to the kernels' own variables. Those of `ncc_wgmma_3x96`
/// are the most: 5184 of `exact`, 420 of `lists`, 312 of `barrier_words` and 64 of `patterns`.
const RESERVED_SHARED: usize = 7168;

/// Largest template: sums of its products and what they begin at stay below 2^31.
const MAX_WIDTH: usize = 128;
const MAX_HEIGHT: usize = 256;
const MAX_AREA: usize = 32_768;

/// Templates of one launch that a lane has room for.
const MAX_MEMBERS: usize = 1024;

/// One of the kernels for the best position, and that for all peaks with the same tiles.
struct Variant {
    /// Their names.
    best: &'static str,
    peaks: &'static str,
    /// Most rows of positions of a block's tile.
    tile: usize,
    threads: usize,
    /// About how many clock cycles a block takes of an H200: for itself, for each template beside its
    /// products, and for each step of these. From times of searches for the best position, of single
    /// templates and of banks of 32 (docs/lab/ncc.md, step 7).
    cycles: Cycles,
}

struct Cycles {
    block: usize,
    template: usize,
    step: usize,
}

const VARIANTS: [Variant; 4] = [
    Variant {
        best: "ncc_wgmma_2x128",
        peaks: "ncc_wgmma_2x128_peaks",
        tile: 128,
        threads: (8 + SUM_WARPS + 1) * 32,
        cycles: Cycles { block: 19_000, template: 2400, step: 128 },
    },
    Variant {
        best: "ncc_wgmma_3x96",
        peaks: "ncc_wgmma_3x96_peaks",
        tile: 144,
        threads: (12 + SUM_WARPS + 1) * 32,
        cycles: Cycles { block: 19_000, template: 2400, step: 144 },
    },
    Variant {
        best: "ncc_wgmma_2x80",
        peaks: "ncc_wgmma_2x80_peaks",
        tile: 80,
        threads: (8 + SUM_WARPS + 1) * 32,
        cycles: Cycles { block: 19_000, template: 2400, step: 80 },
    },
    Variant {
        best: "ncc_wgmma_1x32",
        peaks: "ncc_wgmma_1x32_peaks",
        tile: 16,
        threads: (4 + SUM_WARPS + 1) * 32,
        cycles: Cycles { block: 14_000, template: 1200, step: 40 },
    },
];

/// The kernels, loaded; all streams may use them at once.
pub(super) struct WgmmaKernels {
    gpu: Gpu,
    best: [Kernel; VARIANTS.len()],
    peaks: [Kernel; VARIANTS.len()],
    spread: Kernel,
    packer: Packer,
    multiprocessors: usize,
    shared_bytes: usize,
}

/// What the kernels want of a template, made on the device when a search is planned.
pub(super) struct Prepared {
    /// The bands of A.
    spread: DeviceBuffer<u8>,
    /// The rows that searches for the best position score it from.
    words: Option<Words>,
}

/// Those of a bank's members that were prepared.
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

/// What blocks let each other know; a lane has one.
pub(super) struct Progress(DeviceBuffer<u64>);

impl Progress {
    /// All zeros, as a search wants it and leaves it.
    pub(super) fn new(gpu: &Gpu) -> Result<Self> {
        Ok(Self(gpu.alloc("progress of searches", MAX_MEMBERS)?))
    }
}

/// How a search is launched.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Geometry {
    /// Index in `VARIANTS`.
    variant: usize,
    /// Tiles across and down.
    grid: [usize; 2],
    tile_rows: usize,
    /// Templates that a block goes through.
    at_once: usize,
    shared_bytes: usize,
}

impl Geometry {
    fn blocks(&self) -> usize {
        self.grid[0] * self.grid[1]
    }
}

/// Steps of 16 columns, and of two rows, that a template takes.
fn chunks_and_steps(template: Size) -> (usize, usize) {
    ((template.width + 30) / 16, template.height / 2 + 2)
}

/// What a search finds of each template.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Finds {
    Best,
    Peaks,
}

impl Finds {
    fn of(best_only: bool) -> Self {
        if best_only { Self::Best } else { Self::Peaks }
    }
}

/// The launch of one variant for `at_once` templates at `map` positions whose first column is `left`, or
/// `None` if it does not fit in `shared_bytes`.
fn geometry(
    variant: usize,
    finds: Finds,
    template: Size,
    at_once: usize,
    left: usize,
    map: Size,
    shared_bytes: usize,
) -> Option<Geometry> {
    let Variant { tile, .. } = VARIANTS[variant];
    let (chunks, steps) = chunks_and_steps(template);
    let (grid, tile_rows) = match finds {
        Finds::Best => {
            let down = map.height.div_ceil(tile);
            ([(left % 16 + map.width).div_ceil(TILE_X), down], map.height.div_ceil(down))
        }
        Finds::Peaks => {
            // Nothing is asked of a tile's last row and column.
            let [columns, rows] = [map.width, map.height].map(|side| (side - 1).max(1));
            let down = rows.div_ceil(tile - PEAKS_OVERLAP);
            ([columns.div_ceil(TILE_X - PEAKS_OVERLAP), down], rows.div_ceil(down) + PEAKS_OVERLAP)
        }
    };
    let tile_rows = tile_rows.next_multiple_of(8);
    let (pitch, rows) = (112 + 16 * chunks, tile_rows + template.height - 1);
    let (moments, starts) = (tile_rows * TILE_X * 8, (tile_rows * 8).next_multiple_of(128));
    let fixed = (pitch * rows).next_multiple_of(128) + moments + starts;
    let parts = chunks * steps.div_ceil(PART_STEPS) * at_once;
    let stages = parts.min(MAX_STAGES).min(shared_bytes.checked_sub(fixed)? / PART_BYTES);
    let products = if finds == Finds::Peaks { tile_rows * TILE_X * 4 } else { 0 };
    // The tensor cores read past the tile, at most so far.
    let shared =
        (fixed + stages * PART_BYTES).max(pitch * (tile + 2 * steps)).max(products + moments + starts);
    (stages >= parts.min(2) && shared <= shared_bytes).then_some(Geometry {
        variant,
        grid,
        tile_rows,
        at_once,
        shared_bytes: shared,
    })
}

/// What is taken for `count` templates: the launch that is done first, by what blocks take, on so many
/// multiprocessors. Low tiles and few templates at once keep more of them busy, but cost more altogether.
fn best_geometry(
    finds: Finds,
    template: Size,
    count: usize,
    left: usize,
    map: Size,
    shared_bytes: usize,
    multiprocessors: usize,
) -> Option<Geometry> {
    let (chunks, steps) = chunks_and_steps(template);
    let cycles = |launch: &Geometry| {
        let Cycles { block, template, step } = VARIANTS[launch.variant].cycles;
        let blocks = launch.blocks() * count.div_ceil(launch.at_once);
        blocks.div_ceil(multiprocessors) * (block + launch.at_once * (template + chunks * steps * step))
    };
    let most_searches = if finds == Finds::Best { count.min(MAX_SEARCHES) } else { 1 };
    let shares = (1..=most_searches).map(|searches| match finds {
        Finds::Best => count.div_ceil(searches),
        Finds::Peaks => 1,
    });
    shares
        .flat_map(|at_once| (0..VARIANTS.len()).map(move |variant| (variant, at_once)))
        .filter_map(|(variant, at_once)| geometry(variant, finds, template, at_once, left, map, shared_bytes))
        .min_by_key(cycles)
}

/// `Member` of `kernels/ncc_wgmma.cuh`.
#[derive(Clone, Copy)]
#[repr(C)]
struct Record {
    pattern: Pattern,
    spread: u64,
    words: u64,
    mean: u32,
    scale: f32,
    rough_mean: f32,
    root_scale: f32,
}

pod_structure!(Record, 64 bytes {
    pattern: Pattern,
    spread: u64 = 32,
    words: u64,
    mean: u32 = 48,
    scale: f32,
    rough_mean: f32,
    root_scale: f32 = 60,
});

impl Record {
    fn new(member: &Member, prepared: &Prepared) -> Self {
        let sums = member.sums;
        let n = sums.n as f64;
        let mean = sums.t1 as f64 / n;
        let scale = sums.variance() as f64 / (n * n) * f64::from(1 << shift(sums.n));
        Self {
            pattern: member.pattern,
            spread: prepared.spread.address(),
            words: prepared.words.as_ref().map_or(0, Words::address),
            mean: (mean * f64::from(1 << 24)).round() as u32,
            scale: scale as f32,
            rough_mean: mean as f32,
            root_scale: scale.sqrt() as f32,
        }
    }
}

/// Bits by which the kernels cut off a window's n SS - S S, so that 32 remain.
fn shift(n: i64) -> u32 {
    (2 * (64 - (n - 1).leading_zeros())).saturating_sub(18)
}

/// `Search` of `kernels/ncc_wgmma.cuh`.
#[derive(Clone, Copy, Default)]
#[repr(C)]
struct WgmmaSearch {
    members: u64,
    left: i32,
    top: i32,
    width: i32,
    height: i32,
    first_block: i32,
    end_block: i32,
    tag: u32,
    first_progress: u16,
    members_count: u16,
    w: u16,
    h: u16,
    tile_rows: u16,
    across: u16,
}

pod_structure!(WgmmaSearch, 48 bytes {
    members: u64,
    left: i32 = 8,
    top: i32,
    width: i32,
    height: i32,
    first_block: i32,
    end_block: i32,
    tag: u32 = 32,
    first_progress: u16 = 36,
    members_count: u16,
    w: u16,
    h: u16,
    tile_rows: u16,
    across: u16 = 46,
});

/// `Launch` of `kernels/ncc_wgmma.cuh`.
#[derive(Clone, Copy)]
#[repr(C)]
struct WgmmaLaunch {
    search: [WgmmaSearch; MAX_SEARCHES],
    frame: Image,
    searches: u16,
    shares_best: u16,
    shared_bytes: i32,
    progress: u64,
    candidates: u64,
    count: u64,
    min_score_exact: f64,
    capacity: u32,
    min_score: f32,
}

pod_structure!(WgmmaLaunch, 3144 bytes {
    search: [WgmmaSearch; MAX_SEARCHES],
    frame: Image = 3072,
    searches: u16 = 3096,
    shares_best: u16,
    shared_bytes: i32 = 3100,
    progress: u64 = 3104,
    candidates: u64,
    count: u64,
    min_score_exact: f64 = 3128,
    capacity: u32,
    min_score: f32 = 3140,
});

// Before PTX 8.1, a kernel's arguments took 4352 bytes at most; on the safe side of it.
const _: () = assert!(size_of::<WgmmaLaunch>() <= 4096);

impl WgmmaLaunch {
    /// A launch without searches.
    fn new(frame: &DeviceFrame, wanted: Wanted, progress: &mut Progress, found: &mut Found) -> Self {
        Self {
            search: [WgmmaSearch::default(); MAX_SEARCHES],
            frame: frame.image(Rect::whole(frame.size)),
            searches: 0,
            shares_best: 0,
            shared_bytes: 0,
            progress: progress.0.address(),
            candidates: found.words.address_of(Found::HEADER),
            count: found.words.address(),
            min_score_exact: wanted.min_score,
            capacity: found.capacity() as u32,
            min_score: wanted.min_score_below(),
        }
    }

    /// The blocks so far.
    fn blocks(&self) -> usize {
        self.searches.checked_sub(1).map_or(0, |last| self.search[usize::from(last)].end_block as usize)
    }

    /// Adds a search of `members` members, from that record on, launched like this; their numbers are `tag`
    /// and those that follow.
    fn add(
        &mut self,
        geometry: &Geometry,
        window: Rect,
        template: Size,
        records: u64,
        (tag, first_progress, members): (usize, usize, usize),
    ) {
        let (map, first_block) = (positions(window.size(), template), self.blocks());
        self.search[usize::from(self.searches)] = WgmmaSearch {
            members: records,
            left: window.x as i32,
            top: window.y as i32,
            width: map.width as i32,
            height: map.height as i32,
            first_block: first_block as i32,
            end_block: (first_block + geometry.blocks()) as i32,
            tag: tag as u32,
            first_progress: first_progress as u16,
            members_count: members as u16,
            w: template.width as u16,
            h: template.height as u16,
            tile_rows: geometry.tile_rows as u16,
            across: geometry.grid[0] as u16,
        };
        self.searches += 1;
        self.shared_bytes = self.shared_bytes.max(geometry.shared_bytes as i32);
    }
}

impl WgmmaKernels {
    /// Loads them, or `None` if the device is not of the one generation that has these instructions.
    pub(super) fn load(gpu: &Gpu) -> Result<Option<Arc<Self>>> {
        Self::load_for(gpu, gpu.multiprocessors()?)
    }

    /// Loads them to be launched as on a device of so many multiprocessors.
    pub(super) fn load_for(gpu: &Gpu, multiprocessors: usize) -> Result<Option<Arc<Self>>> {
        let capability = gpu.info().capability;
        if (capability.major, capability.minor) != (9, 0) {
            return Ok(None);
        }
        let module = gpu.share(PTX)?;
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
            spread: module.kernel("spread_template")?,
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
        let (chunks, steps) = chunks_and_steps(size);
        let spread = self.gpu.alloc("bands of a template", chunks * (2 * steps + 3) * 256)?;
        let (pixels, pitch, to) = (member.rows.address, member.rows.pitch as i32, spread.address());
        let (w, h) = (size.width as i32, size.height as i32);
        let mut args = [arg(&pixels), arg(&pitch), arg(&w), arg(&h), arg(&to)];
        // SAFETY: the arguments of `spread_template`. A `Member`'s rows lie in its bank's buffer
        // (`PlannedSearch::new`); the kernel writes as many bytes as were allocated.
        unsafe {
            stream.launch(&self.spread, [spread.len().div_ceil(256), 1, 1], [256, 1, 1], 0, &mut args)?;
        };
        let words = if best_only { Some(self.packer.pack(stream, member)?) } else { None };
        Ok(Some(Prepared { spread, words }))
    }

    /// Puts the prepared members of a bank together, of which there is at least one.
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
    use super::super::testing::Random;
    use super::*;

    /// What a block of an H100 or H200 can have.
    const SHARED: usize = 232_448 - RESERVED_SHARED;

    #[test]
    fn every_variant_is_compiled_under_its_names() {
        for Variant { best, peaks, .. } in VARIANTS {
            assert_eq!(peaks, format!("{best}_peaks"));
            for name in [best, peaks] {
                assert!(PTX.contains(&format!(".entry {name}(")), "{name}");
            }
        }
    }

    #[test]
    fn every_tile_covers_its_positions_and_fits() {
        for (w, h) in [(1, 2), (2, 1), (16, 16), (17, 3), (33, 64), (60, 44), (64, 64), (128, 128)] {
            for (width, height) in [(1, 1), (129, 130), (1857, 1017), (4000, 2000)] {
                let (template, map) = (Size::new(w, h), Size::new(width, height));
                for (left, count) in [(0, 1), (5, 32), (15, 1), (3, 100), (8, 1024)] {
                    for finds in [Finds::Best, Finds::Peaks] {
                        let launch = best_geometry(finds, template, count, left, map, SHARED, 132);
                        let launch = launch.expect("it fits");
                        assert!(launch.tile_rows <= VARIANTS[launch.variant].tile, "{launch:?}");
                        assert!(launch.shared_bytes <= SHARED, "{launch:?}");
                        let [across, down] = launch.grid;
                        if finds == Finds::Best {
                            assert!(launch.at_once <= count, "{launch:?}");
                            assert!(across * TILE_X >= left + width, "{launch:?}");
                            assert!(down * launch.tile_rows >= height, "{launch:?}");
                        } else {
                            assert_eq!(launch.at_once, 1);
                            assert!(launch.shared_bytes >= launch.tile_rows * TILE_X * (8 + 4), "{launch:?}");
                            // Down to the last row and column that the last tile is asked for.
                            let rows = launch.tile_rows - PEAKS_OVERLAP;
                            assert!(across * (TILE_X - PEAKS_OVERLAP) >= width - 1, "{launch:?}");
                            assert!(down * rows >= height - 1, "{launch:?}");
                        }
                    }
                }
            }
        }
        // The largest, in lower tiles.
        let largest =
            best_geometry(Finds::Best, Size::new(128, 256), 1, 15, Size::new(500, 500), SHARED, 132);
        assert_eq!(largest.map(|launch| VARIANTS[launch.variant].tile), Some(80));
    }

    #[test]
    fn the_launch_is_the_one_that_is_done_first() {
        let best = |side: (usize, usize), count, map| {
            let template = Size::new(side.0, side.1);
            let launch = best_geometry(Finds::Best, template, count, 0, map, SHARED, 132).unwrap();
            (VARIANTS[launch.variant].best, launch.at_once)
        };
        let in_frame = |w, h| best((w, h), 1, Size::new(1920 - w + 1, 1080 - h + 1)).0;
        assert_eq!([in_frame(16, 16), in_frame(60, 44)], ["ncc_wgmma_3x96"; 2]);
        assert_eq!([in_frame(64, 64), in_frame(128, 128)], ["ncc_wgmma_2x128"; 2]);
        // A bank shares the tiles of a frame; in a window, its templates are shared out.
        assert_eq!(best((32, 32), 32, Size::new(1889, 1049)), ("ncc_wgmma_3x96", 32));
        let window = Size::new(129, 129);
        assert_eq!(best((64, 64), 1, window), ("ncc_wgmma_1x32", 1));
        assert_eq!(best((64, 64), 64, window), ("ncc_wgmma_3x96", 1));
        assert_eq!(best((64, 64), 20, window).0, "ncc_wgmma_2x80");
    }

    #[test]
    fn tests_with_small_frames_reach_each_variant() {
        // They imitate a device of one multiprocessor, or have one.
        let of = |finds, rows, multiprocessors| {
            let (template, map) = (Size::new(16, 16), Size::new(135, rows));
            best_geometry(finds, template, 1, 7, map, SHARED, multiprocessors).unwrap().variant
        };
        let best = |(rows, multiprocessors)| of(Finds::Best, rows, multiprocessors);
        assert_eq!([(135, 1), (128, 1), (75, 1), (135, 132)].map(best), [1, 0, 2, 3]);
        let peaks = |(rows, multiprocessors)| of(Finds::Peaks, rows, multiprocessors);
        assert_eq!([(135, 1), (126, 1), (75, 1), (135, 132)].map(peaks), [1, 0, 2, 3]);
    }

    /// `slack_of` of `kernels/ncc_wgmma.cuh`.
    const fn slack(n: i64) -> i64 {
        2 + 3 * n / 256
    }
    const _: () = assert!(slack(2) == 2 && slack(86) == 3 && slack(32_768) == 386);

    #[test]
    fn a_score_that_is_told_roughly_is_off_by_less_than_slack() {
        // As `rough_lack` and `Record` have it.
        let mut random = Random(7);
        // As often near the largest as anywhere.
        let up_to = |most: i64, random: &mut Random| {
            let any = random.below(most as usize + 1) as i64;
            if random.below(2) == 0 { any } else { most - any % 1000.min(most + 1) }
        };
        let mut most = 0.0_f64;
        for n in [2, 3, 85, 86, 256, 1024, 4096, 12_345, 32_768_i64].repeat(20_000) {
            let (s, t1) = (up_to(255 * n, &mut random), up_to(255 * n, &mut random));
            let st = up_to(255 * s.min(t1), &mut random);
            let products = st + slack(n);
            assert!(products <= i64::from(i32::MAX), "{n}");
            let mean = (t1 as f64 / n as f64) as f32;
            let told = f64::from((s as f32).mul_add(mean, -(products as f32)));
            let is = (s * t1) as f64 / n as f64 - st as f64 - slack(n) as f64;
            assert!((told - is).abs() <= (slack(n) - 1) as f64, "{n} {s} {t1} {st}: {told} instead of {is}");
            most = most.max((told - is).abs() / (slack(n) - 1) as f64);
        }
        // It is not far from that.
        assert!(most > 0.3, "{most}");
    }

    /// Bits of S, below those of SS.
    const SUM_BITS: usize = constant(PTX, "SUM_BITS");

    /// `cut_of` of `kernels/ncc_peaks.cuh`, which asserts this number.
    const CUT: f32 = 0.55;

    /// What `inverse_root` may be off by, 2^-22.9 of it.
    const ROOT_OFF: f64 = 1.2778e-7;

    /// A window's n SS - S S as `moments_of` keeps it where all peaks are wanted: 1 / sqrt, off by a part of
    /// what it may be.
    fn inverse_root(n: i64, s: i64, ss: i64, off: f64) -> f32 {
        let variance = (n * ss - s * s - (1 << shift(n))) as u64 >> shift(n);
        let nearest = variance as u32 as f32;
        // Towards zero.
        let above = f64::from(nearest) > f64::from(variance as u32);
        let below = if above { nearest.next_down() } else { nearest };
        (1.0 / f64::from(below + 1.0).sqrt() * (1.0 + off * ROOT_OFF)) as f32
    }

    /// Sums over n pixels of pairs of up to four values, of a window and of a template: S, SS, t1, t2 and ST.
    fn sums_of_pairs(n: i64, random: &mut Random) -> [i64; 5] {
        let contrast = [2, 20, 256][random.below(3)];
        let mut sums = [0; 5];
        let mut left = n;
        for part in 0..4 {
            let count = if part == 3 { left } else { random.below(left as usize + 1) as i64 };
            left -= count;
            let [i, t] = [0; 2].map(|_| (256 - contrast + random.below(contrast)) as i64);
            for (sum, product) in sums.iter_mut().zip([i, i * i, t, t * t, i * t]) {
                *sum += count * product;
            }
        }
        sums
    }

    #[test]
    fn sums_of_squares_follow_from_nine_bits_and_the_rest() {
        // As `squares_of` has it.
        let squares = |n: i64, packed: u32, inverse_root: f32| {
            let (s, root) = (f64::from(packed & ((1 << SUM_BITS) - 1)), f64::from(inverse_root));
            let is_flat = inverse_root < 1.002 / 65536.0;
            let variance = if is_flat { 0.0 } else { f64::from(1 << shift(n)) / (root * root) };
            let near = ((variance + s * s) / n as f64).round_ties_even() as i32;
            i64::from(near) + i64::from((packed.wrapping_sub((near as u32) << SUM_BITS) as i32) >> SUM_BITS)
        };
        let check = |n: i64, s: i64, ss: i64| {
            for off in [-1.0, -0.5, 0.0, 0.5, 1.0] {
                let packed = s as u32 | (ss as u32) << SUM_BITS;
                assert_eq!(squares(n, packed, inverse_root(n, s, ss, off)), ss, "{n} {s} {off}");
            }
        };
        let mut random = Random(11);
        for n in [2, 3, 512, 513, 4096, 12_345, 16_385, 32_767, 32_768_i64] {
            for value in [0, 1, 128, 255] {
                check(n, n * value, n * value * value);
            }
            // The highest variance, and the lowest.
            check(n, n / 2 * 255, n / 2 * 255 * 255);
            check(n, n * 254 + 1, n * 254 * 254 + 509);
            for _ in 0..2000 {
                let [s, ss, ..] = sums_of_pairs(n, &mut random);
                check(n, s, ss);
            }
        }
    }

    #[test]
    fn scores_lie_between_the_bounds_by_which_peaks_are_told() {
        let margin = 1.0 / f64::from(1 << 18);
        let mut random = Random(13);
        let mut narrow = 0;
        for n in [2, 3, 85, 512, 513, 1024, 4096, 16_385, 32_768_i64].repeat(20_000) {
            let [s, ss, t1, t2, st] = sums_of_pairs(n, &mut random);
            let template_variance = n * t2 - t1 * t1;
            if template_variance == 0 {
                continue;
            }
            let scale = template_variance as f64 / (n * n) as f64 * f64::from(1 << shift(n));
            let (mean, root_scale) = ((t1 as f64 / n as f64) as f32, scale.sqrt() as f32);
            // As `FourBounds` has it.
            let off = random.below(2001) as f64 / 1000.0 - 1.0;
            let (r, cut, doubt) = (inverse_root(n, s, ss, off), CUT * root_scale, 2.0 * slack(n) as f32);
            let y = (-(s as f32)).mul_add(mean, (st - slack(n)) as f32);
            let least = r.mul_add(-cut, y) * r;
            let most = r.mul_add(r.mul_add(2.0 * cut, doubt), least);

            let variance = n * ss - s * s;
            let squared = (variance as f64 * template_variance as f64).max(1.0);
            let score = (n * st - s * t1) as f64 / squared.sqrt();
            let [least, most] = [least, most].map(|bound| f64::from(bound) / scale.sqrt());
            let bounds = (least - margin)..=(most + margin);
            assert!(bounds.contains(&score), "{n} {s} {ss} {t1} {t2} {st}: {score} is not in {bounds:?}");
            narrow += usize::from(most - least < 0.01);
        }
        // They say something.
        assert!(narrow > 100_000, "{narrow}");
    }

    #[test]
    fn what_is_cut_off_leaves_32_bits_and_no_window_but_a_flat_one_at_0() {
        for n in 2_i64..=32_768 {
            // Half of the pixels 0, half 255; and one pixel that is different.
            let (most, least) = (n * n * 255 * 255 / 4, n - 1);
            assert!(most >> shift(n) < 1 << 32 && least >> shift(n) >= 1, "{n}");
        }
    }
}
