//! Cuts a search into pieces of work.
//!
//! The score maps of all members of a bank are cut along one grid of tiles. A tile is a piece of work of its
//! own: its pixels in, its peaks out. It scores one position more than its own on each side, to find out
//! which of its own are peaks; beside that it reads the template's size less one more pixels (the halo).
//! Small tiles waste much time on the halo and large ones little, but large tiles leave the processor's
//! cache.

use crate::frame::{Rect, Size};

/// The size of a search.
#[derive(Debug, Clone, Copy)]
pub(super) struct Workload {
    /// Size of the searched region.
    pub(super) region: Size,
    /// Width of the widest member and height of the highest.
    pub(super) largest: Size,
    /// Planes whose spectra are needed: the pixels, and for masked members their squares.
    pub(super) planes: usize,
    /// Members of the bank.
    pub(super) members: usize,
    /// Correlations, over all members.
    pub(super) correlations: usize,
    /// Threads to keep busy.
    pub(super) threads: usize,
}

/// The grid of tiles.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Plan {
    /// Pixels of a tile, halo included: the size of its FFT.
    pub(super) tile: Size,
    /// Positions that are a tile's own; the last of a row or column has the rest.
    step: Size,
    /// Tiles across and down.
    tiles: Size,
    /// Into how many groups the members are divided, so that few tiles still keep all threads busy.
    pub(super) groups: usize,
}

/// The part of a score map that one task computes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Tile {
    /// Its first position in the map, which is also its first pixel in the region.
    pub(super) origin: (usize, usize),
    /// Its positions.
    pub(super) size: Size,
    /// The positions that are the tile's own, counted from `origin`.
    pub(super) own: Rect,
}

impl Plan {
    /// The grid that should take least time.
    pub(super) fn new(work: &Workload) -> Self {
        let across = axis_choices(work.region.width, work.largest.width);
        let down = axis_choices(work.region.height, work.largest.height);
        let plans = across.iter().flat_map(|across| {
            down.iter().flat_map(|down| {
                let tiles = Size::new(across.tiles, down.tiles);
                let plan = Self {
                    tile: Size::new(across.tile, down.tile),
                    step: Size::new(across.step, down.step),
                    tiles,
                    groups: 1,
                };
                let enough = work.threads.div_ceil(tiles.area()).clamp(1, work.members);
                [plan, Self { groups: enough, ..plan }]
            })
        });
        plans.min_by(|a, b| a.cost_ns(work).total_cmp(&b.cost_ns(work))).expect("one tile always is a choice")
    }

    /// Pieces of work: each is one tile and one group of members.
    pub(super) fn pieces(&self) -> usize {
        self.tiles.area() * self.groups
    }

    /// The tile of a piece of work, in reading order, and its group. Pieces of one tile follow each other.
    pub(super) fn piece(&self, index: usize) -> (usize, usize) {
        (index / self.groups, index % self.groups)
    }

    /// Number of tiles.
    pub(super) fn tiles(&self) -> usize {
        self.tiles.area()
    }

    /// The part of a score map of size `map` that tile number `index` computes.
    pub(super) fn tile(&self, index: usize, map: Size) -> Tile {
        let (column, row) = (index % self.tiles.width, index / self.tiles.width);
        let (x, width, own_x, own_w) = axis_part(column, self.tiles.width, self.step.width, map.width);
        let (y, height, own_y, own_h) = axis_part(row, self.tiles.height, self.step.height, map.height);
        Tile { origin: (x, y), size: Size::new(width, height), own: Rect::new(own_x, own_y, own_w, own_h) }
    }

    /// About how long it takes to make the transforms of all members, in nanoseconds of the same machine.
    pub(super) fn preparation_ns(&self, work: &Workload) -> f64 {
        let Size { width, height } = self.tile;
        let rows = work.largest.height as f64 / 2.0 * fft_ns(width);
        let transform = (width / 2 + 1) as f64 * fft_ns(height) + rows;
        transform * work.members as f64 * work.planes as f64 / work.threads as f64
    }

    /// About how long the search takes, in nanoseconds of the machine that the constants were measured on.
    pub(super) fn cost_ns(&self, work: &Workload) -> f64 {
        let rounds = self.pieces().div_ceil(work.threads) as f64;
        let woken = if work.threads.min(self.pieces()) > 1 { WAKE_NS } else { 0.0 };
        self.piece_ns(work) * rounds + woken
    }

    /// About how long one piece of work takes, in the same nanoseconds.
    pub(super) fn piece_ns(&self, work: &Workload) -> f64 {
        let Size { width, height } = self.tile;
        let columns = (width / 2 + 1) as f64 * fft_ns(height);
        let rows = |count: usize| count as f64 / 2.0 * fft_ns(width);
        let valid = work.largest.positions_in(Size::new(width, height));
        let forward = columns + rows(height);
        let correlation = columns + rows(valid.height) + valid.area() as f64 * SCORE_NS;
        let piece =
            forward * work.planes as f64 + correlation * work.correlations.div_ceil(self.groups) as f64;
        // Tile, template and product, each half a spectrum of 8 bytes a number.
        let excess = (3 * 4 * self.tile.area()) as f64 / CACHE_BYTES;
        piece * (1.0 + UNCACHED * excess.log2().max(0.0))
    }
}

// These are times on one core of an EPYC of 2022 (Zen 4, 1 MiB of cache a core), from the shares that
// transforms, passes and scores had in a profile of a search for 64x64 in 1920x1080.

/// Each halving of a transform, for each of its numbers.
const HALVING_NS: f64 = 0.13;
/// As `HALVING_NS` for factors of 3 and 5, as far as they make a half.
const ODD_NS: f64 = 0.25;
/// Loading, turning over and multiplying, for each number of a transform.
const PASS_NS: f64 = 0.4;
/// Sliding, and bounding scores, for each position.
const SCORE_NS: f64 = 2.4;
/// Cache of each core, in bytes.
const CACHE_BYTES: f64 = 1_048_576.0;
/// Share by which all of it takes longer for each doubling beyond that.
const UNCACHED: f64 = 0.15;
/// Waking other threads and waiting for them; also, what one thread does as fast is not worth the time of
/// two.
const WAKE_NS: f64 = 30_000.0;

/// The approximate time of a complex transform, with the work before and after it.
fn fft_ns(length: usize) -> f64 {
    let halvings = length.trailing_zeros();
    let odd = f64::from((length >> halvings) as u32).log2();
    length as f64 * (f64::from(halvings) * HALVING_NS + odd * ODD_NS + PASS_NS)
}

/// A way to cut an axis.
#[derive(Debug, Clone, Copy)]
struct AxisChoice {
    tile: usize,
    step: usize,
    tiles: usize,
}

/// The ways to cut an axis of `length` pixels for windows of up to `largest`: for each number of tiles the
/// best length of one, from a single tile to many small ones.
fn axis_choices(length: usize, largest: usize) -> Vec<AxisChoice> {
    let positions = length - largest + 1;
    // Where most of a tile is halo, smaller ones are never better. A power of two is never far above what is
    // needed.
    let shortest = (largest + 1 + largest.div_ceil(4)).min(length);
    let lengths = (shortest..=length.next_power_of_two()).filter(|&tile| is_smooth(tile));
    let mut choices: Vec<AxisChoice> = Vec::new();
    for tile in lengths {
        // Beside its own positions it has one to spare on each side, and the halo; a single one has none to
        // spare.
        let step = if tile >= length { positions } else { tile - largest - 1 };
        let choice = AxisChoice { tile, step, tiles: positions.div_ceil(step) };
        match choices.last_mut().filter(|last| last.tiles == choice.tiles) {
            Some(last) if fft_ns(last.tile) <= fft_ns(tile) => {}
            Some(last) => *last = choice,
            None => choices.push(choice),
        }
    }
    choices
}

/// True if FFTs of this length are fast: it has no prime factors but 2, 3 and 5.
fn is_smooth(length: usize) -> bool {
    let mut rest = length;
    for factor in [2, 3, 5] {
        while rest.is_multiple_of(factor) {
            rest /= factor;
        }
    }
    rest == 1
}

/// First position, number of positions, and which of them are its own, of tile `index` of `tiles` on one axis
/// of a map.
fn axis_part(index: usize, tiles: usize, step: usize, map: usize) -> (usize, usize, usize, usize) {
    let own_start = index * step;
    let own_end = if index + 1 == tiles { map } else { own_start + step };
    let start = own_start.saturating_sub(1);
    let end = (own_end + 1).min(map);
    (start, end - start, own_start - start, own_end - own_start)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn smooth_lengths_are_products_of_two_three_and_five() {
        let lengths: Vec<_> = (1..33).filter(|&length| is_smooth(length)).collect();
        assert_eq!(lengths, [1, 2, 3, 4, 5, 6, 8, 9, 10, 12, 15, 16, 18, 20, 24, 25, 27, 30, 32]);
    }

    #[test]
    fn every_position_of_every_member_is_the_own_of_one_tile_and_lies_inside_it() {
        let (largest, smallest) = (Size::new(30, 11), Size::new(4, 9));
        for (width, height) in [(30, 11), (31, 200), (123, 33), (700, 500)] {
            let region = Size::new(width, height);
            for threads in [1, 2, 7] {
                let work = Workload { region, largest, planes: 1, members: 2, correlations: 2, threads };
                let plan = Plan::new(&work);
                for member in [largest, smallest] {
                    let map = member.positions_in(Size::new(width, height));
                    let mut owners = vec![0; map.area()];
                    for index in 0..plan.tiles() {
                        let Tile { origin: (x, y), size, own } = plan.tile(index, map);
                        assert!(size.width + member.width - 1 <= plan.tile.width, "{plan:?}");
                        assert!(size.height + member.height - 1 <= plan.tile.height, "{plan:?}");
                        assert!(own.is_inside(size), "{plan:?}");
                        for row in y + own.y..y + own.y + own.h {
                            for owner in &mut owners[row * map.width + x + own.x..][..own.w] {
                                *owner += 1;
                            }
                        }
                    }
                    assert!(owners.iter().all(|&count| count == 1), "{plan:?}");
                }
            }
        }
    }

    #[test]
    fn a_plan_keeps_all_threads_busy() {
        let region = Size::new(768, 576);
        let largest = Size::new(64, 128);
        for threads in [2, 8] {
            let work = Workload { region, largest, planes: 1, members: 1, correlations: 1, threads };
            assert!(Plan::new(&work).pieces() >= threads);
        }
    }
}
