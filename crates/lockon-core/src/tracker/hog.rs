//! Histograms of oriented gradients, as the features that a filter sees.
//!
//! P. Felzenszwalb et al., "Object Detection with Discriminatively Trained Part-Based Models", 2010, section
//! 6: 18 signed and 9 unsigned directions a cell, shared out linearly between neighbouring cells and
//! directions, divided by the energy of each of the four 2x2 blocks around the cell, cut off, and added up.
//!
//! Gradients are shared out in integers of 16 bits, without arc tangents or tables: a gradient g between the
//! directions d and e, 20 degrees apart, is a d + b e, and a and b are the cross products of g with e and of
//! d with g, over the sine of 20 degrees. a and b are linear in the angle within 1.5 %. All later steps use
//! f32 in a fixed order.

use crate::simd::Level;

/// Pixels on a side of a cell.
pub(super) const CELL: usize = 4;

/// Features of a cell: signed and unsigned directions, energy.
pub(super) const HOG: usize = SIGNED + UNSIGNED + 1;

/// Number of cells in a row, processed together: one square of this width, or several smaller ones beside
/// each other.
pub(super) const LANES: usize = 32;

pub(super) const SIGNED: usize = 18;
const UNSIGNED: usize = 9;

/// Maximum normalised value of a direction: one strong edge must not dominate. Felzenszwalb's value.
const CUT: f32 = 0.2;

/// Added to a block's energy, so that noise in flat areas stays small: about the energy of gradients of 2
/// grey levels.
const NOISE_ENERGY: f32 = 1000.0;

/// Cosines and sines of the unsigned directions times 90: the products with gradients of at most 361 fit 16
/// bits.
const COSINES: [i16; UNSIGNED] = [90, 85, 69, 45, 16, -16, -45, -69, -85];
const SINES: [i16; UNSIGNED] = [0, 31, 58, 78, 89, 89, 78, 58, 31];

/// Bits of these products that are dropped, so that the weighted sum of a cell's column fits 16 bits too: 32
/// times 1389.
const DROPPED: u32 = 3;

/// The amount that a gradient of one grey level in the middle of a cell adds to the cell: 90 / 8 times the
/// sine of 20 degrees, and the weights of rows and columns, in eighths.
const UNIT: f32 = 90.0 / 8.0 * 0.342_020_14 * 64.0;

type Lanes<T> = [T; LANES];

/// Products of the gradients of a row of cells with an unsigned direction, by column and row in their cells.
type Products = [[Lanes<i16>; CELL]; CELL];

/// Sums of the columns of one row of cells, by direction.
type Columns = [[Lanes<u16>; CELL]; SIGNED];

/// As [`Columns`], padded at both ends, so that each cell has neighbours.
type Finished = [[Lanes<u16>; CELL]; SIGNED + 2];

/// The shares of a row of cells, before they are divided by an energy.
type Histogram = [Lanes<f32>; SIGNED];

/// The features of a row of cells.
pub(super) type Row = [Lanes<f32>; HOG];

/// Computes histograms of gradients; reuses its buffers.
pub(super) struct Hog {
    level: Level,
    room: Box<Room>,
}

struct Room {
    /// By direction; the last is the first, negated.
    products: [Products; UNSIGNED + 1],
    /// Sums of the row of cells above, without the share of the row below. The sums of the `behind`
    /// directions of [`share_out`] are stored negated, here and in `carried`.
    columns: Columns,
    /// The contribution of the row above to this one.
    carried: Columns,
    finished: Finished,
    above: Histogram,
    here: Histogram,
    row: Row,
}

impl Hog {
    pub(super) fn new() -> Self {
        let columns = [[[0; LANES]; CELL]; SIGNED];
        let room = Room {
            products: [[[[0; LANES]; CELL]; CELL]; UNSIGNED + 1],
            columns,
            carried: columns,
            finished: [[[0; LANES]; CELL]; SIGNED + 2],
            above: [[0.0; LANES]; SIGNED],
            here: [[0.0; LANES]; SIGNED],
            row: [[0.0; LANES]; HOG],
        };
        Self { level: Level::best(), room: Box::new(room) }
    }

    /// Passes the features of each row of cells to `take`, which must be `#[inline(always)]`. `luma` holds
    /// squares of `CELLS` x `CELLS` cells side by side, [`LANES`] cells wide in total. A row of `luma` holds
    /// the first pixels of all cells, then the second ones, and so on.
    #[inline]
    pub(super) fn run<const CELLS: usize>(&mut self, luma: &[u8], take: impl FnMut(usize, &Row)) {
        debug_assert_eq!(luma.len(), CELLS * CELL * LANES * CELL);
        let Self { level, room } = self;
        level.run(
            #[inline(always)]
            || room.run::<CELLS>(luma, take),
        );
    }
}

impl Room {
    /// A row's histogram needs the gradients of the row below; its features need the histogram of the row
    /// below. The buffers fit the L1 cache.
    #[inline(always)]
    fn run<const CELLS: usize>(&mut self, luma: &[u8], mut take: impl FnMut(usize, &Row)) {
        let Self { products, columns, carried, finished, above, here, row } = self;
        (*columns, *carried) = ([[[0; LANES]; CELL]; SIGNED], [[[0; LANES]; CELL]; SIGNED]);
        let (mut energy_above, mut norms_above) = ([0.0; LANES], [[0.0; LANES]; 2]);
        for y in 0..=CELLS {
            if y < CELLS {
                multiply::<CELLS>(luma, y, products);
            } else {
                *products = [[[[0; LANES]; CELL]; CELL]; UNSIGNED + 1];
            }
            share_out(products, columns, carried, finished);
            if y == 0 {
                continue;
            }
            gather::<CELLS>(finished, here);
            let energy = energy(here);
            let norms = norms::<CELLS>(if y == 1 { &energy } else { &energy_above }, &energy);
            if y > 1 {
                normalise(above, [&norms_above[0], &norms_above[1], &norms[0], &norms[1]], row);
                take(y - 2, row);
            }
            (energy_above, norms_above) = (energy, norms);
            std::mem::swap(above, here);
        }
        let norms = norms::<CELLS>(&energy_above, &energy_above);
        normalise(above, [&norms_above[0], &norms_above[1], &norms[0], &norms[1]], row);
        take(CELLS - 1, row);
    }
}

/// For each cell, the pixels to the left and right of its part of `row`. A square's border pixels are
/// repeated.
#[inline(always)]
fn sides<const CELLS: usize>(row: &[u8; LANES * CELL]) -> [Lanes<i16>; 2] {
    let (mut left, mut right) = ([0; LANES], [0; LANES]);
    let (last, first) = (LANES * (CELL - 1), 0);
    for i in 0..LANES {
        left[i] = i16::from(if i % CELLS == 0 { row[first + i] } else { row[last + i - 1] });
        right[i] = i16::from(if i % CELLS == CELLS - 1 { row[last + i] } else { row[first + i + 1] });
    }
    [left, right]
}

/// True if products with an unsigned direction are stored negated: two in four, so that the two neighbours of
/// a direction have the signs that [`share_out`] needs.
const fn is_turned(bin: usize) -> bool {
    bin % 4 >= 2
}

/// The products of the gradients of the `y`-th row of cells with the directions.
#[inline(always)]
fn multiply<const CELLS: usize>(luma: &[u8], y: usize, products: &mut [Products; UNSIGNED + 1]) {
    // Rounded; -((p + 4) >> 3) is (3 - p) >> 3.
    let keep = |bin: usize, product: i16| {
        if is_turned(bin) {
            3_i16.wrapping_sub(product) >> DROPPED
        } else {
            product.wrapping_add(4) >> DROPPED
        }
    };
    let lines = luma.as_chunks::<{ LANES * CELL }>().0;
    let lines: [_; CELL + 2] =
        std::array::from_fn(|row| &lines[(y * CELL + row).saturating_sub(1).min(CELLS * CELL - 1)]);
    let mut rows = [[[0; LANES]; CELL]; CELL + 2];
    for (row, line) in rows.iter_mut().zip(lines) {
        for (pixels, group) in row.iter_mut().zip(line.as_chunks::<LANES>().0) {
            let mut wide = [0; LANES];
            for i in 0..LANES {
                wide[i] = i16::from(group[i]);
            }
            *pixels = wide;
        }
    }
    for row in 0..CELL {
        let [first, last] = sides::<CELLS>(lines[row + 1]);
        let (above, here, below) = (&rows[row], &rows[row + 1], &rows[row + 2]);
        for k in 0..CELL {
            let left = if k == 0 { &first } else { &here[k - 1] };
            let right = if k == CELL - 1 { &last } else { &here[k + 1] };
            let (up, down) = (&above[k], &below[k]);
            let (mut gx, mut gy) = ([0; LANES], [0; LANES]);
            for i in 0..LANES {
                (gx[i], gy[i]) = (right[i] - left[i], down[i] - up[i]);
            }
            let (mut one, mut other) = ([0; LANES], [0; LANES]);
            for i in 0..LANES {
                one[i] = keep(0, COSINES[0].wrapping_mul(gy[i]));
                other[i] = -one[i];
            }
            (products[0][k][row], products[UNSIGNED][k][row]) = (one, other);
            // The directions to both sides of 90 degrees are each other's mirror images.
            for bin in 1..=UNSIGNED / 2 {
                let mirrored = UNSIGNED - bin;
                for i in 0..LANES {
                    let (y, x) = (COSINES[bin].wrapping_mul(gy[i]), SINES[bin].wrapping_mul(gx[i]));
                    one[i] = keep(bin, y.wrapping_sub(x));
                    other[i] = keep(mirrored, 0_i16.wrapping_sub(x).wrapping_sub(y));
                }
                (products[bin][k][row], products[mirrored][k][row]) = (one, other);
            }
        }
    }
}

/// Shares out a row of cells among directions and rows, and finishes the columns of the row above.
///
/// A row of pixels gives 5, 7, 7 and 5 eighths to its own cell, the rest to the nearer neighbour.
#[inline(always)]
fn share_out(
    products: &[Products; UNSIGNED + 1],
    columns: &mut Columns,
    carried: &mut Columns,
    finished: &mut Finished,
) {
    for bin in 0..UNSIGNED {
        // A gradient's share of a direction is the smaller of its products with the two neighbours, the
        // second one negated, if both are positive. If both are negative, the opposite direction gets the
        // smaller magnitude. The first direction's previous neighbour is the last one, negated.
        let (before, after) = ((bin + UNSIGNED - 1) % UNSIGNED, bin + 1);
        let is_behind = if bin == 0 { !is_turned(before) } else { is_turned(before) };
        let (ahead, behind) = if is_behind { (bin + UNSIGNED, bin) } else { (bin, bin + UNSIGNED) };
        for k in 0..CELL {
            let (before, after) = (&products[before][k], &products[after][k]);
            let (mut shares, mut negative) = ([[0; LANES]; CELL], [[0; LANES]; CELL]);
            for row in 0..CELL {
                for i in 0..LANES {
                    let (a, b) = (before[row][i], after[row][i]);
                    shares[row][i] = a.min(b).max(0) as u16;
                    negative[row][i] = a.max(b).min(0) as u16;
                }
            }
            finished[1 + ahead][k] = add(&shares, &mut columns[ahead][k], &mut carried[ahead][k]);
            let mut sums = add(&negative, &mut columns[behind][k], &mut carried[behind][k]);
            for sum in &mut sums {
                *sum = sum.wrapping_neg();
            }
            finished[1 + behind][k] = sums;
        }
    }
}

/// Splits columns of a row of cells among rows. Returns the sums of the row above; `columns` becomes this
/// row's.
#[inline(always)]
fn add(shares: &[Lanes<u16>; CELL], columns: &mut Lanes<u16>, carried: &mut Lanes<u16>) -> Lanes<u16> {
    // Copies, so that the loop needs no checks for overlap.
    let (mut own, mut next, mut sums) = (*columns, *carried, [0; LANES]);
    for i in 0..LANES {
        let [a, b, c, d] = [shares[0][i], shares[1][i], shares[2][i], shares[3][i]];
        let (upper, lower) = (a.wrapping_add(b), c.wrapping_add(d));
        let to_above = upper.wrapping_add(a).wrapping_add(a);
        let to_below = lower.wrapping_add(d).wrapping_add(d);
        let all = upper.wrapping_add(lower) << 3;
        sums[i] = own[i].wrapping_add(to_above);
        own[i] = all.wrapping_sub(to_above).wrapping_sub(to_below).wrapping_add(next[i]);
        next[i] = to_below;
    }
    (*columns, *carried) = (own, next);
    sums
}

/// Adds up columns of cells, in the same shares as rows.
#[inline(always)]
fn gather<const CELLS: usize>(finished: &Finished, histogram: &mut Histogram) {
    let columns = finished.as_flattened().as_flattened();
    for (bin, out) in histogram.iter_mut().enumerate() {
        let column = |k: usize, shift: usize| {
            let start = ((1 + bin) * CELL + k) * LANES + shift - 1;
            columns[start..].first_chunk::<LANES>().expect("one row is beyond the last")
        };
        let mut sums = [0.0; LANES];
        let [a, b, c, d] = [0, 1, 2, 3].map(|k| column(k, 1));
        let (next_a, next_b, last_c, last_d) = (column(0, 2), column(1, 2), column(2, 0), column(3, 0));
        for i in 0..LANES {
            let outer = |outer: u16, inner: u16| 3 * i32::from(outer) + i32::from(inner);
            let (to_left, to_right) = (outer(a[i], b[i]), outer(d[i], c[i]));
            let from_right = if i % CELLS == CELLS - 1 { 0 } else { outer(next_a[i], next_b[i]) };
            let from_left = if i % CELLS == 0 { 0 } else { outer(last_d[i], last_c[i]) };
            let all = i32::from(a[i]) + i32::from(b[i]) + i32::from(c[i]) + i32::from(d[i]);
            // Below 2^24, so that it is exact.
            let sum = 8 * all - to_left - to_right + from_left + from_right;
            sums[i] = sum as f32 * (1.0 / UNIT);
        }
        *out = sums;
    }
}

/// The energy of the unsigned directions of cells.
#[inline(always)]
fn energy(histogram: &Histogram) -> Lanes<f32> {
    let mut energy = [0.0; LANES];
    for bin in 0..UNSIGNED {
        let (one, other) = (&histogram[bin], &histogram[bin + UNSIGNED]);
        for i in 0..LANES {
            let value = one[i] + other[i];
            energy[i] += value * value;
        }
    }
    energy
}

/// One over the root of the energy of the blocks at the left and right corners of cells, between two rows of
/// energies.
#[inline(always)]
fn norms<const CELLS: usize>(above: &Lanes<f32>, below: &Lanes<f32>) -> [Lanes<f32>; 2] {
    let mut sides = [[0.0; LANES]; 2];
    let mut pairs = [0.0; LANES];
    for i in 0..LANES {
        pairs[i] = above[i] + below[i];
    }
    for i in 0..LANES {
        // A square's border cells are repeated.
        let left = if i % CELLS == 0 { i } else { i - 1 };
        let right = if i % CELLS == CELLS - 1 { i } else { i + 1 };
        (sides[0][i], sides[1][i]) = (pairs[left] + pairs[i], pairs[i] + pairs[right]);
    }
    for side in &mut sides {
        for energy in side {
            *energy = 1.0 / (*energy + NOISE_ENERGY).sqrt();
        }
    }
    sides
}

/// Normalises the histogram with the norms of four blocks.
#[inline(always)]
fn normalise(histogram: &Histogram, norms: [&Lanes<f32>; 4], row: &mut Row) {
    // `f32::min` would also check for NaN.
    let cut = |value: f32| if value < CUT { value } else { CUT };
    let mut total = [0.0; LANES];
    for bin in 0..SIGNED {
        for i in 0..LANES {
            let share = |corner: usize| cut(histogram[bin][i] * norms[corner][i]);
            let sum = share(0) + share(1) + share(2) + share(3);
            row[bin][i] = 0.5 * sum;
            total[i] += sum;
        }
    }
    for bin in 0..UNSIGNED {
        for i in 0..LANES {
            let value = histogram[bin][i] + histogram[bin + UNSIGNED][i];
            let share = |corner: usize| cut(value * norms[corner][i]);
            row[SIGNED + bin][i] = 0.5 * (share(0) + share(1) + share(2) + share(3));
        }
    }
    for i in 0..LANES {
        row[SIGNED + UNSIGNED][i] = 0.0589 * total[i];
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The features of a picture of `LANES` cells on a side.
    fn features(pixel: impl Fn(usize, usize) -> u8) -> Vec<Row> {
        let width = LANES * CELL;
        let at = |i: usize| (i % width % LANES * CELL + i % width / LANES, i / width);
        let luma: Vec<u8> = (0..width * width).map(|i| pixel(at(i).0, at(i).1)).collect();
        run::<LANES>(&mut Hog::new(), &luma)
    }

    fn run<const CELLS: usize>(hog: &mut Hog, luma: &[u8]) -> Vec<Row> {
        let mut rows = Vec::new();
        hog.run::<CELLS>(luma, |y, row| {
            assert_eq!(y, rows.len());
            rows.push(*row);
        });
        rows
    }

    #[test]
    fn every_level_gives_the_same_bits() {
        let side = LANES * CELL;
        let luma: Vec<u8> = (0..side * side).map(|i| (i * 97 + i / side * 31 + i * i % 251) as u8).collect();
        let all = Level::available().into_iter().map(|level| {
            let bits =
                |row: &Row| row.as_flattened().iter().map(|number| number.to_bits()).collect::<Vec<_>>();
            run::<LANES>(&mut Hog { level, ..Hog::new() }, &luma).iter().map(bits).collect::<Vec<_>>()
        });
        let all: Vec<_> = all.collect();
        assert!(all.iter().all(|rows| *rows == all[0]));
    }

    #[test]
    fn products_with_gradients_fit() {
        for (cos, sin) in COSINES.into_iter().zip(SINES) {
            let length = f64::hypot(f64::from(cos), f64::from(sin));
            assert!((length - 90.0).abs() < 0.8, "{length}");
            assert!(255 * (i32::from(cos).abs() + i32::from(sin).abs()) + 4 <= i32::from(i16::MAX));
        }
        for (bin, (cos, sin)) in COSINES.into_iter().zip(SINES).enumerate() {
            let angle = libm::atan2(f64::from(sin), f64::from(cos)).to_degrees();
            assert!((angle - 20.0 * bin as f64).abs() < 0.4, "direction {bin} points to {angle} degrees");
        }
    }

    #[test]
    fn a_slope_is_seen_in_its_two_directions() {
        for degrees in (0..360).step_by(5) {
            let angle = f64::from(degrees).to_radians();
            let (x, y) = (libm::cos(angle), libm::sin(angle));
            let slope = |px: usize, py: usize| {
                (128.0 + (px as f64 - 64.0) * x + (py as f64 - 64.0) * y).round() as u8
            };
            let cell = features(slope)[16].map(|lanes| lanes[16]);
            let near = degrees as usize / 20;
            let of_two = cell[near] + cell[(near + 1) % SIGNED];
            let all: f32 = cell[..SIGNED].iter().sum();
            // Rounding to grey levels turns single gradients.
            assert!(of_two > 0.6 * all, "{degrees} degrees: {cell:?}");
        }
    }

    #[test]
    fn an_edge_is_seen_in_its_direction_and_its_cells() {
        // Dark left half, bright right half: the gradient points right, bin 0.
        let rows = features(|x, _| if x < 64 { 20 } else { 220 });
        for (y, row) in rows.iter().enumerate() {
            assert!(row[0][15] > 0.3 && row[0][16] > 0.3, "row {y}: {:?}", row[0]);
            assert!(row[1..SIGNED].iter().all(|bin| bin[15] == 0.0), "row {y}: {row:?}");
            assert!(row.iter().all(|bin| bin[13] == 0.0 && bin[18] == 0.0));
        }
    }

    #[test]
    fn squares_beside_each_other_do_not_meet() {
        let pixel = |i: usize| (i * 7919 % 251) as u8;
        let (width, height) = (LANES * CELL, 8 * CELL);
        let together: Vec<u8> = (0..width * height).map(pixel).collect();
        let mut hog = Hog::new();
        let features = run::<8>(&mut hog, &together);
        // Only the third of four squares is not flat.
        let is_third = |i: usize| (16..24).contains(&(i % LANES));
        let alone: Vec<u8> = (0..width * height).map(|i| if is_third(i) { pixel(i) } else { 7 }).collect();
        for (row, expected) in run::<8>(&mut hog, &alone).iter().zip(&features) {
            for (bin, expected) in row.iter().zip(expected) {
                assert_eq!(bin[16..24], expected[16..24]);
            }
        }
    }
}
