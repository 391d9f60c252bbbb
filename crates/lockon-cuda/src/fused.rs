//! How the one-pass thresholds, `kernels/*_fused*.cu`, share a frame among blocks.
//!
//! A block makes a tile of the mask and needs all that the tile's windows see in its shared memory at once.
//! Large tiles load less twice; tiles as many as the device has multiprocessors finish at the same time. This
//! module estimates the best size.

use super::driver::{Attribute, Gpu};
use super::shared::{constant, pod_structure};
use lockon_core::backend::threshold::{WEIGHT_BITS, gaussian_weights};
use lockon_core::error::Result;
use lockon_core::frame::Size;

const MEAN_PTX: &str = include_str!("../ptx/mean_fused.ptx");
const GAUSSIAN_PTX: &str = include_str!("../ptx/gaussian_fused.ptx");

// Any PTX of the box thresholds has the first five, the Gaussian's the others.
const FUSED_THREADS: usize = constant(MEAN_PTX, "FUSED_THREADS");
const BOX_THREADS: usize = constant(MEAN_PTX, "BOX_THREADS");
const BOX_WIDTH: usize = constant(MEAN_PTX, "BOX_WIDTH");
const SEGMENT_PIXELS: usize = constant(MEAN_PTX, "SEGMENT_PIXELS");
const HALO_PITCH: usize = constant(MEAN_PTX, "HALO_PITCH");
const GAUSSIAN_THREADS: usize = constant(GAUSSIAN_PTX, "GAUSSIAN_THREADS");
const PLANES: usize = constant(GAUSSIAN_PTX, "PLANES");

/// Largest block of `mean_fused`; larger ones have a slower kernel ("wide").
pub(super) const NARROW: usize = 127;

/// Largest width of a tile of the Gaussian.
const GAUSSIAN_WIDTH: usize = 160;

/// `Divisor` of `fused_tile.cuh`.
#[derive(Debug, Clone, Copy, Default)]
#[repr(C)]
struct Divisor {
    by: u32,
    reciprocal: u32,
}

pod_structure!(Divisor, 8 bytes { by: u32, reciprocal: u32 = 4 });

impl Divisor {
    fn new(by: usize) -> Self {
        debug_assert!(by >= 2, "division by {by}");
        Self { by: by as u32, reciprocal: (1_u64 << 32).div_ceil(by as u64) as u32 }
    }
}

/// `Shares` of `fused_tile.cuh`.
#[derive(Debug, Clone, Copy, Default)]
#[repr(C)]
pub(super) struct Shares {
    mask_pieces: Divisor,
    pieces: Divisor,
    mask_rows_at_once: u32,
    rows_at_once: u32,
    rows: Divisor,
    groups: Divisor,
    run: u32,
    runs: u32,
    runs_in_window: u32,
    steps: u32,
}

pod_structure!(Shares, 56 bytes {
    mask_pieces: Divisor,
    pieces: Divisor,
    mask_rows_at_once: u32 = 16,
    rows_at_once: u32,
    rows: Divisor = 24,
    groups: Divisor = 32,
    run: u32 = 40,
    runs: u32,
    runs_in_window: u32,
    steps: u32 = 52,
});

/// A launch: the tiles of a frame.
#[derive(Debug, Clone, Copy)]
pub(super) struct Tiling {
    pub(super) shares: Shares,
    pub(super) grid: [usize; 3],
    pub(super) threads: usize,
    pub(super) shared_bytes: usize,
    /// The cost of a tile, in cycles of a multiprocessor: fitted to the time on an H200 for frames of 1080p.
    tile_cycles: f64,
}

/// The limits of a device that decide the choice of tiles.
#[derive(Debug, Clone, Copy)]
pub(super) struct Room {
    pub(super) multiprocessors: usize,
    /// Maximum dynamic shared memory of a block.
    pub(super) shared_bytes: usize,
}

impl Room {
    /// Nothing if the device is too old for the kernels.
    pub(super) fn of(gpu: &Gpu) -> Result<Option<Self>> {
        if gpu.info().capability.major < 8 {
            return Ok(None);
        }
        // The kernels have a few words by themselves.
        let own = 4 * FUSED_THREADS / 32;
        Ok(Some(Self {
            multiprocessors: gpu.attribute(Attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)?,
            shared_bytes: gpu.max_shared_bytes()? - own,
        }))
    }
}

/// Cycles that a pixel takes on its way into shared memory: fitted, as [`Tiling::tile_cycles`] is.
const LOAD: f64 = 0.036;

/// The next odd multiple of 16.
fn round_up_odd(bytes: usize) -> usize {
    (bytes.div_ceil(16) | 1) * 16
}

impl Tiling {
    /// The best tiles for a box threshold: nothing if not even the smallest have room.
    pub(super) fn of_box(size: Size, radius: usize, with_squares: bool, room: Room) -> Option<Self> {
        let widths = (1..=BOX_WIDTH / SEGMENT_PIXELS).map(|segments| segments * SEGMENT_PIXELS);
        let tiles = widths.flat_map(|width| {
            let most = (BOX_THREADS / (width / SEGMENT_PIXELS)).min(size.height.max(2));
            (2..=most).map(move |height| Self::box_tiles(size, radius, with_squares, width, height))
        });
        Self::best(tiles.filter(|tiling| 16 * tiling.shares.pieces.by as usize <= HALO_PITCH), room)
    }

    /// The best tiles for a Gaussian threshold: nothing if not even the smallest have room.
    pub(super) fn of_gaussian(size: Size, radius: usize, room: Room) -> Option<Self> {
        let widths = (32..=GAUSSIAN_WIDTH).step_by(16);
        let tiles = widths.flat_map(|width| {
            (16..=256).step_by(16).map(move |height| Self::gaussian_tiles(size, radius, width, height))
        });
        Self::best(tiles, room)
    }

    fn best(tiles: impl Iterator<Item = Self>, room: Room) -> Option<Self> {
        // Until the first pixel is there, and until the last has gone.
        const START: f64 = 4000.0;
        let cost = |tiling: &Self| {
            let rounds = tiling.grid.iter().product::<usize>().div_ceil(room.multiprocessors);
            rounds as f64 * (START + tiling.tile_cycles)
        };
        tiles
            .filter(|tiling| tiling.shared_bytes <= room.shared_bytes)
            .min_by(|a, b| cost(a).total_cmp(&cost(b)))
    }

    fn box_tiles(size: Size, radius: usize, with_squares: bool, width: usize, height: usize) -> Self {
        let block = 2 * radius + 1;
        let lead = radius.next_multiple_of(16) - radius;
        let groups = (lead % 4 + width + 2 * radius).div_ceil(4);
        let run = height.div_ceil(BOX_THREADS / groups);
        // Summing runs first pays where a window is much longer than a run, and a run not too short.
        let runs_in_window = if block > 2 * run && run >= 8 { block / run } else { 0 };
        let runs = if runs_in_window > 0 { height.div_ceil(run) - 1 + runs_in_window } else { 0 };
        let squares = if with_squares { [round_up_odd(16 * groups), 24] } else { [0, 8] };
        let halo = HALO_PITCH * (height + 2 * radius);
        let sums = (round_up_odd(8 * groups) + squares[0]) * height + squares[1] * runs * groups;
        // Instructions of a thread: rows that it adds, rows that it slides down, pixels that it slides along.
        let added = run * (runs * groups).div_ceil(BOX_THREADS) + block - runs_in_window * run;
        let [add, slide, compare] = if with_squares { [8.0, 17.0, 12.0] } else { [4.5, 9.5, 5.0] };
        let instructions =
            add * added as f64 + slide * run as f64 + compare * (SEGMENT_PIXELS as f64 + 0.14 * block as f64);
        // Four warps have their turn at once, each in every third cycle, as it turns out.
        let turns = 3.0 * BOX_THREADS as f64 / 128.0;
        Self {
            shares: Shares {
                groups: Divisor::new(groups),
                run: run as u32,
                runs: runs as u32,
                runs_in_window: runs_in_window as u32,
                ..Shares::new(lead, radius, width, height, BOX_THREADS)
            },
            grid: [size.width.div_ceil(width), size.height.div_ceil(height), 1],
            threads: BOX_THREADS,
            // Past the end a few numbers are read, which count for nothing.
            shared_bytes: halo + sums + 64,
            tile_cycles: LOAD * ((width + 2 * radius) * (height + 2 * radius)) as f64 + turns * instructions,
        }
    }

    fn gaussian_tiles(size: Size, radius: usize, width: usize, height: usize) -> Self {
        let steps = gaussian_steps(2 * radius + 1);
        let lead = radius.next_multiple_of(16) - radius;
        let rows = (height + radius.next_multiple_of(4) + radius).next_multiple_of(16);
        let halo = round_up_odd(width - 16 + 12 + 16 * steps) * rows;
        let planes = PLANES * round_up_odd(height - 16 + 16 * steps) * width;
        let matrices = if steps > IN_REGISTERS { PLANES * steps * 32 * 8 } else { 0 };
        // A warp has whole units of 16 x 16, so that some have one more than others.
        let units = |rows: usize| (rows / 16 * (width / 16)).next_multiple_of(GAUSSIAN_THREADS / 32) as f64;
        let loaded = ((width + 2 * radius) * (height + 2 * radius)) as f64;
        let shares =
            Shares { steps: steps as u32, ..Shares::new(lead, radius, width, height, GAUSSIAN_THREADS) };
        let steps = steps as f64;
        Self {
            shares,
            grid: [size.width.div_ceil(width), size.height.div_ceil(height), 1],
            threads: GAUSSIAN_THREADS,
            shared_bytes: halo + planes + matrices,
            tile_cycles: LOAD * loaded
                + units(rows) * (9.0 * steps + 12.0)
                + units(height) * (19.0 * steps + 20.0),
        }
    }
}

impl Shares {
    fn new(lead: usize, radius: usize, width: usize, height: usize, threads: usize) -> Self {
        let mask_pieces = width / 16;
        let pieces = (lead + width + 2 * radius).div_ceil(16);
        Self {
            mask_pieces: Divisor::new(mask_pieces),
            pieces: Divisor::new(pieces),
            mask_rows_at_once: (threads / mask_pieces) as u32,
            rows_at_once: (threads / pieces) as u32,
            rows: Divisor::new(height),
            ..Self::default()
        }
    }
}

/// Steps of 16 that the matrices of the Gaussian have: enough for the windows of 16 neighbours, the first of
/// which starts up to 3 numbers into the first step.
fn gaussian_steps(block: usize) -> usize {
    match block {
        ..=33 => IN_REGISTERS,
        34..=65 => 5,
        66..=129 => 9,
        _ => 17,
    }
}

/// `WeightsInRegisters::STEPS` of `gaussian_fused.cu`: larger matrices lie in shared memory.
const IN_REGISTERS: usize = constant(GAUSSIAN_PTX, "_ZN18WeightsInRegisters5STEPSE");

/// The kernel of `gaussian_fused.cu` for that block.
pub(super) fn gaussian_kernel(block: usize) -> &'static str {
    if gaussian_steps(block) <= IN_REGISTERS { "gaussian_fused_33" } else { "gaussian_fused" }
}

/// The weights as `gaussian_fused.cu` takes them: for each plane (byte of a weight), step, lane and half two
/// words of the matrix whose row i has the weights shifted by i.
pub(super) fn gaussian_matrices(block: usize) -> Vec<u32> {
    let weights = gaussian_weights(block);
    let radius = block / 2;
    let lead = radius.next_multiple_of(4) - radius;
    let mut words = Vec::new();
    for plane in 0..PLANES {
        for step in 0..gaussian_steps(block) {
            for lane in 0..32 {
                for half in 0..2 {
                    let (g, c) = (lane / 4, lane % 4);
                    let row = 4 * (g / 2) + g % 2 + 2 * half;
                    words.push(u32::from_le_bytes(std::array::from_fn(|j| {
                        let at = (16 * step + 4 * c + j).checked_sub(lead + row);
                        let weight = at.and_then(|at| weights.get(at)).unwrap_or(&0);
                        weight.to_le_bytes()[plane]
                    })));
                }
            }
        }
    }
    const { assert!(WEIGHT_BITS as usize == 8 * PLANES) };
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    const H200: Room = Room { multiprocessors: 132, shared_bytes: 232_384 };

    fn tiles(size: Size, radius: usize) -> impl Iterator<Item = Tiling> {
        let rooms = [48, 99, 163, 226].map(|kib| Room { multiprocessors: 20, shared_bytes: kib << 10 });
        rooms.into_iter().flat_map(move |room| {
            let boxes = [false, true].map(|squares| Tiling::of_box(size, radius, squares, room));
            boxes.into_iter().chain([Tiling::of_gaussian(size, radius, room)]).flatten()
        })
    }

    #[test]
    fn tiles_cover_the_frame_and_threads_suffice() {
        for size in [Size::new(1, 1), Size::new(1920, 1080), Size::new(33, 2000), Size::new(5000, 17)] {
            for radius in 1..128 {
                for Tiling { shares, grid, .. } in tiles(size, radius) {
                    let [width, height] = [16 * shares.mask_pieces.by as usize, shares.rows.by as usize];
                    assert!(
                        grid[0] * width >= size.width && (grid[0] - 1) * width < size.width,
                        "{shares:?}"
                    );
                    assert!(
                        grid[1] * height >= size.height && (grid[1] - 1) * height < size.height,
                        "{shares:?}"
                    );
                    assert!(shares.rows_at_once > 0 && shares.mask_rows_at_once > 0, "{shares:?}");
                    if shares.run > 0 {
                        let workers = BOX_THREADS / shares.groups.by as usize;
                        assert!(workers * shares.run as usize >= height, "{shares:?}");
                        assert!(width / SEGMENT_PIXELS * height <= BOX_THREADS, "{shares:?}");
                    }
                }
            }
        }
    }

    #[test]
    fn reciprocals_divide_all_that_threads_count() {
        for by in 2..=512 {
            let Divisor { reciprocal, .. } = Divisor::new(by);
            for number in 0..4096_usize {
                assert_eq!(
                    (number as u64 * u64::from(reciprocal)) >> 32,
                    (number / by) as u64,
                    "{number} / {by}"
                );
            }
        }
    }

    #[test]
    fn a_1080p_frame_is_one_round_on_a_large_device() {
        let size = Size::new(1920, 1080);
        for radius in 1..=63 {
            let mean = Tiling::of_box(size, radius, false, H200).unwrap();
            let gaussian = Tiling::of_gaussian(size, radius, H200).unwrap();
            for Tiling { grid, .. } in [mean, gaussian] {
                assert!((100..=132).contains(&(grid[0] * grid[1])), "radius {radius}: {grid:?}");
            }
        }
    }

    #[test]
    fn matrices_have_each_weight_once_in_each_row() {
        for block in (3..=255).step_by(2) {
            let words = gaussian_matrices(block);
            let steps = gaussian_steps(block);
            assert_eq!(words.len(), PLANES * steps * 64);
            let mut sums = [0_u64; 16];
            for (at, word) in words.iter().enumerate() {
                let (plane, row) = (at / (steps * 64), at / 2 % 32 / 4 + 8 * (at % 2));
                let bytes = word.to_le_bytes().map(u64::from);
                sums[row] += bytes.iter().sum::<u64>() << (8 * plane);
            }
            assert_eq!(sums, [1 << WEIGHT_BITS; 16], "block {block}");
        }
    }
}
