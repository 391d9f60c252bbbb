//! The kernels of `kernels/ncc_wgmma_map.cu`: products of large templates without a mask, into a map, on
//! the tensor cores of compute capability 9.0. The kernels of `kernels/ncc.cu` turn it into scores and peaks.

use std::sync::Arc;

use lockon_core::error::Result;
use lockon_core::frame::{Rect, Size};

use super::geometry::chunks_and_steps;
use super::{Spreader, is_there};
use crate::driver::{DeviceBuffer, Gpu, Kernel, Stream, arg, ptx};
use crate::ncc::{ColumnSums, DeviceFrame, Member, Region, positions};
use crate::shared::constant;

const PTX: &str = include_str!("../../ptx/ncc_wgmma_map.ptx");

const TILE_X: usize = constant(PTX, "TILE_X");
const PART_STEPS: usize = constant(PTX, "PART_STEPS");
const PART_BYTES: usize = constant(PTX, "PART_BYTES");
const PIECE_CHUNKS: usize = constant(PTX, "PIECE_CHUNKS");
const MAX_STAGES: usize = constant(PTX, "MAX_STAGES");
const MOST_PIXELS: usize = constant(PTX, "MOST_PIXELS");
const THREADS: usize = constant(PTX, "MAP_THREADS");

/// Bytes of a block's shared memory that are left to the kernels' own variables: the barriers.
const RESERVED_SHARED: usize = 1024;

/// The most that a template's bands may take, which are 16 times as large as the template.
const MOST_BANDS: usize = 64 << 20;

/// One of the kernels.
struct Variant {
    name: &'static str,
    /// Rows of positions of a block's tile.
    tile: usize,
    /// Clock cycles of a step of the products.
    step: usize,
}

const VARIANTS: [Variant; 3] = [
    Variant { name: "ncc_wgmma_map_128", tile: 128, step: 128 },
    Variant { name: "ncc_wgmma_map_96", tile: 96, step: 96 },
    Variant { name: "ncc_wgmma_map_32", tile: 32, step: 48 },
];

/// About how many clock cycles a block takes beside its products, and a launch whose blocks add to the map,
/// which is cleared before. From one H100 ([docs/lab/ncc.md](../../../../docs/lab/ncc.md), "Large templates
/// by `wgmma`"); other numbers were not measured.
const BLOCK: usize = 9_000;
const ADDING: usize = 12_000;

/// The kernels, loaded; all streams may use them at once.
pub(crate) struct WgmmaMapKernels {
    products: [Kernel; VARIANTS.len()],
    columns: ColumnSums,
    spreader: Spreader,
    multiprocessors: usize,
    shared_bytes: usize,
}

/// The data of a template that the kernels need, made on the device when a search is planned.
pub(crate) struct Prepared {
    kernels: Arc<WgmmaMapKernels>,
    bands: DeviceBuffer<u8>,
}

/// How the products are launched.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Geometry {
    /// Index in `VARIANTS`.
    variant: usize,
    /// Tiles across and down.
    grid: [usize; 2],
    /// Blocks that share the work of a tile.
    shares: usize,
    stages: usize,
    shared_bytes: usize,
}

/// Pieces that a template is taken in.
fn pieces(template: Size) -> usize {
    let (chunks, steps) = chunks_and_steps(template);
    chunks.div_ceil(PIECE_CHUNKS) * steps.div_ceil(PART_STEPS)
}

/// The least number of shares whose sums stay below 2^32.
fn least_shares(template: Size) -> usize {
    if template.area() <= MOST_PIXELS {
        return 1;
    }
    let of_piece = template.width.min(16 * PIECE_CHUNKS) * 2 * PART_STEPS;
    pieces(template).div_ceil(MOST_PIXELS / of_piece)
}

/// The launch of one variant with so many shares.
fn geometry(
    variant: usize,
    shares: usize,
    template: Size,
    left: usize,
    map: Size,
    shared_bytes: usize,
) -> Geometry {
    let Variant { tile, .. } = VARIANTS[variant];
    let (chunks, _) = chunks_and_steps(template);
    let pitch = TILE_X - 16 + 16 * chunks.min(PIECE_CHUNKS);
    let pixels = (pitch * (tile - 4 + 2 * PART_STEPS)).next_multiple_of(128);
    let stages = MAX_STAGES.min((shared_bytes - 2 * pixels) / PART_BYTES);
    Geometry {
        variant,
        grid: [(left % 16 + map.width).div_ceil(TILE_X), map.height.div_ceil(tile)],
        shares,
        stages,
        shared_bytes: 2 * pixels + stages * PART_BYTES,
    }
}

/// Chooses the launch that is done first, by the blocks' cycles.
fn best_geometry(
    template: Size,
    left: usize,
    map: Size,
    shared_bytes: usize,
    multiprocessors: usize,
) -> Geometry {
    /// More shares than these beyond the least have not been worth their adding.
    const MORE: usize = 64;
    let (chunks, steps) = chunks_and_steps(template);
    let (pieces, least) = (pieces(template), least_shares(template));
    let cycles = |launch: &Geometry| {
        let blocks = launch.grid[0] * launch.grid[1] * launch.shares;
        let products =
            chunks * steps * VARIANTS[launch.variant].step * pieces.div_ceil(launch.shares) / pieces;
        let adding = if launch.shares > 1 { ADDING } else { 0 };
        blocks.div_ceil(multiprocessors) * (BLOCK + products) + adding
    };
    let shares = least..=pieces.min(least + MORE);
    shares
        .flat_map(|shares| (0..VARIANTS.len()).map(move |variant| (variant, shares)))
        .map(|(variant, shares)| geometry(variant, shares, template, left, map, shared_bytes))
        .min_by_key(cycles)
        .expect("a template has pieces")
}

impl WgmmaMapKernels {
    /// Loads them, to be launched as on a device of so many multiprocessors, or `None` if the device is not
    /// of the one generation that has these instructions.
    pub(crate) fn load_for(gpu: &Gpu, multiprocessors: usize) -> Result<Option<Arc<Self>>> {
        if !is_there(gpu) {
            return Ok(None);
        }
        let module = gpu.share(ptx!("ncc_wgmma_map"))?;
        // SAFETY: compiled for 9.0a; the test `kernels_that_begin_early_wait_before_they_write` looks at the
        // PTX of those that are loaded so.
        let [a, b, c] = VARIANTS.map(|variant| unsafe { module.early_kernel(variant.name) });
        Ok(Some(Arc::new(Self {
            products: [a?, b?, c?],
            columns: ColumnSums::load_beside(&module)?,
            spreader: Spreader::new(gpu, &module)?,
            multiprocessors,
            shared_bytes: gpu.max_shared_bytes()? - RESERVED_SHARED,
        })))
    }

    /// Loads them for this device.
    pub(crate) fn load(gpu: &Gpu) -> Result<Option<Arc<Self>>> {
        Self::load_for(gpu, gpu.multiprocessors()?)
    }

    /// Prepares a template, or `None` if it has a mask or its bands would take too much memory.
    pub(crate) fn prepare(self: &Arc<Self>, stream: &Stream, member: &Member) -> Result<Option<Prepared>> {
        if member.is_masked || Spreader::bytes(member.size) > MOST_BANDS {
            return Ok(None);
        }
        Ok(Some(Prepared { kernels: self.clone(), bands: self.spreader.spread(stream, member)? }))
    }
}

impl Prepared {
    /// ST of every position of `region` into `map`, without waiting; and the sums down the region's columns
    /// into `columns`, if there is one. Both are done at the same time.
    ///
    /// # Panics
    /// If the region is not in the frame, or what is written has no room.
    pub(crate) fn correlate(
        &self,
        stream: &Stream,
        frame: &DeviceFrame,
        region: Rect,
        member: &Member,
        columns: Option<&mut [DeviceBuffer<u32>; 2]>,
        map: &mut DeviceBuffer<i64>,
    ) -> Result<()> {
        let (size, kernels) = (member.size, &self.kernels);
        let positions = positions(region.size(), size);
        assert!(region.is_inside(frame.size) && map.len() >= positions.area(), "{region} in {}", frame.size);
        let launch = best_geometry(size, region.x, positions, kernels.shared_bytes, kernels.multiprocessors);
        if launch.shares > 1 {
            stream.clear(map, positions.area())?;
        }
        if let Some(columns) = columns {
            kernels.columns.sum(stream, frame, region, size.height, columns)?;
        }
        let place = Region::new(frame, region, size);
        let (bands, shares, stages) = (self.bands.address(), launch.shares as i32, launch.stages as i32);
        let map = map.address();
        let mut args = [arg(&place), arg(&bands), arg(&shares), arg(&stages), arg(&map)];
        let grid = [launch.grid[0], launch.grid[1], launch.shares];
        // SAFETY: the arguments of `ncc_wgmma_map_*`. The region lies in the frame, as asserted, whose rows
        // begin at multiples of 32 bytes (`pitch_for`); `bands` are this template's; the map has room for all
        // positions, as asserted; shared memory is what `geometry` counts.
        unsafe {
            let kernel = &kernels.products[launch.variant];
            stream.launch(kernel, grid, [THREADS, 1, 1], launch.shared_bytes, &mut args)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Shared memory of a block on an H100 or H200.
    const SHARED: usize = 232_448 - RESERVED_SHARED;

    #[test]
    fn every_variant_is_compiled_under_its_name() {
        for Variant { name, tile, .. } in VARIANTS {
            assert!(PTX.contains(&format!(".entry {name}(")), "{name}");
            assert_eq!(name, format!("ncc_wgmma_map_{tile}"));
        }
    }

    #[test]
    fn tiles_cover_all_positions_fit_and_have_sums_of_32_bits() {
        for (w, h) in
            [(1, 2), (129, 2), (256, 256), (257, 257), (300, 300), (1000, 700), (2047, 1999), (17, 9000)]
        {
            for (width, height) in [(1, 1), (129, 130), (1665, 825), (4000, 2000)] {
                for (left, multiprocessors) in [(0, 132), (15, 132), (3, 1)] {
                    let (template, map) = (Size::new(w, h), Size::new(width, height));
                    let launch = best_geometry(template, left, map, SHARED, multiprocessors);
                    let tile = VARIANTS[launch.variant].tile;
                    assert!(launch.grid[0] * TILE_X >= left + width, "{launch:?}");
                    assert!(launch.grid[1] * tile >= height, "{launch:?}");
                    assert!(launch.shared_bytes <= SHARED && launch.stages >= 2, "{launch:?}");
                    assert!((1..=pieces(template)).contains(&launch.shares), "{launch:?}");
                    let of_piece = w.min(16 * PIECE_CHUNKS) * h.min(2 * PART_STEPS);
                    let of_share = (of_piece * pieces(template).div_ceil(launch.shares)).min(w * h);
                    assert!(255 * 255 * of_share < 1 << 32, "{template}: {launch:?}");
                }
            }
        }
    }

    #[test]
    fn the_launch_is_the_one_that_is_done_first() {
        let best = |w, h| {
            let map = Size::new(1920 - w + 1, 1080 - h + 1);
            let launch = best_geometry(Size::new(w, h), 0, map, SHARED, 132);
            (VARIANTS[launch.variant].tile, launch.shares)
        };
        // 14 by 9 tiles are a wave.
        assert_eq!(best(256, 256), (96, 1));
    }
}
