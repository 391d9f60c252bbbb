//! How a search is launched: which kernel, how many tiles, how many templates at once.

use lockon_core::frame::Size;

use super::PTX;
use crate::shared::constant;

const TILE_X: usize = constant(PTX, "TILE_X");
const PEAKS_OVERLAP: usize = constant(PTX, "PEAKS_OVERLAP");
const PART_STEPS: usize = constant(PTX, "PART_STEPS");
const PART_BYTES: usize = constant(PTX, "PART_BYTES");
const MAX_STAGES: usize = constant(PTX, "MAX_STAGES");
const SUM_WARPS: usize = constant(PTX, "SUM_WARPS");
pub(super) const MAX_SEARCHES: usize = constant(PTX, "MAX_SEARCHES");

/// One of the kernels for the best position, and that for all peaks with the same tiles.
pub(super) struct Variant {
    /// Their names.
    pub(super) best: &'static str,
    pub(super) peaks: &'static str,
    /// Most rows of positions of a block's tile.
    tile: usize,
    pub(super) threads: usize,
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

pub(super) const VARIANTS: [Variant; 4] = [
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

/// How a search is launched.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Geometry {
    /// Index in `VARIANTS`.
    pub(super) variant: usize,
    /// Tiles across and down.
    pub(super) grid: [usize; 2],
    pub(super) tile_rows: usize,
    /// Templates that a block goes through.
    pub(super) at_once: usize,
    pub(super) shared_bytes: usize,
}

impl Geometry {
    pub(super) fn blocks(&self) -> usize {
        self.grid[0] * self.grid[1]
    }
}

/// Steps of 16 columns, and of two rows, that a template takes.
pub(super) fn chunks_and_steps(template: Size) -> (usize, usize) {
    ((template.width + 30) / 16, template.height / 2 + 2)
}

/// The results that a search finds of each template.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Finds {
    Best,
    Peaks,
}

impl Finds {
    pub(super) fn of(best_only: bool) -> Self {
        if best_only { Self::Best } else { Self::Peaks }
    }
}

/// The launch of one variant for `at_once` templates at `map` positions whose first column is `left`, or
/// `None` if it does not fit in `shared_bytes`.
pub(super) fn geometry(
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

/// Chooses the geometry for `count` templates: the launch that is done first, by the blocks' cycles, on so
/// many multiprocessors. Low tiles and few templates at once keep more of them busy, but cost more
/// altogether.
pub(super) fn best_geometry(
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

#[cfg(test)]
mod tests {
    use super::super::RESERVED_SHARED;
    use super::*;

    /// Shared memory of a block on an H100 or H200.
    const SHARED: usize = 232_448 - RESERVED_SHARED;

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
                            // Down to the last row and column that the last tile has to cover.
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
}
