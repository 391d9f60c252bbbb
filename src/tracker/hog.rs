//! Histograms of oriented gradients, as the features that a filter sees.
//!
//! P. Felzenszwalb et al., "Object Detection with Discriminatively Trained Part-Based Models", 2010, section 6: 18 signed and 9
//! unsigned directions a cell, shared out linearly between neighbouring cells and directions, divided by the energy of each of
//! the four 2x2 blocks around the cell, cut off, and added up.
//!
//! Gradients are shared out in integers of 16 bits, without arc tangents or tables: a gradient g between the directions d and
//! e, 20 degrees apart, is a d + b e, and a and b are the cross products of g with e and of d with g, over the sine of 20
//! degrees. They fall off within 1.5 % of linearly. All that follows is f32 in a fixed order.

use crate::simd::Level;

/// Pixels on a side of a cell.
pub(super) const CELL: usize = 4;

/// Numbers of a cell: signed directions, unsigned ones, energy.
pub(super) const HOG: usize = SIGNED + UNSIGNED + 1;

/// Cells in a row, which are worked on together: one square of so many, or several smaller ones beside each other.
pub(super) const LANES: usize = 32;

const SIGNED: usize = 18;
const UNSIGNED: usize = 9;

/// No direction may make more than this of a block: one strong edge must not drown the rest. Felzenszwalb's value.
const CUT: f32 = 0.2;

/// Added to a block's energy, so that noise in something flat stays small: about what gradients of 2 grey levels make.
const NOISE_ENERGY: f32 = 1000.0;

/// Cosines and sines of the unsigned directions times 90: the products with gradients of at most 361 fit 16 bits.
const COSINES: [i16; UNSIGNED] = [90, 85, 69, 45, 16, -16, -45, -69, -85];
const SINES: [i16; UNSIGNED] = [0, 31, 58, 78, 89, 89, 78, 58, 31];

/// Bits of these products that are dropped, so that the weighted sum of a cell's column fits 16 bits too: 32 times 1389.
const DROPPED: u32 = 3;

/// What a gradient of one grey level in the middle of a cell adds to the cell: 90 / 8 times the sine of 20 degrees, and the
/// weights of rows and columns, in eighths.
const UNIT: f32 = 90.0 / 8.0 * 0.342_020_14 * 64.0;

type Lanes<T> = [T; LANES];

/// One row of pixels of a patch, by their place in their cells: the last of the cell before, the four, the first of the next.
type Pixels = [Lanes<i16>; CELL + 2];

/// Sums of the columns of one row of cells.
type Columns = [[Lanes<u16>; SIGNED]; CELL];

/// Makes histograms; keeps its room.
pub(super) struct Hog {
    level: Level,
    columns: Box<[Columns; 3]>,
    histograms: Vec<[Lanes<f32>; SIGNED]>,
    energies: Vec<Lanes<f32>>,
    /// For each row of cells, every number of its cells.
    features: Vec<[Lanes<f32>; HOG]>,
}

impl Hog {
    pub(super) fn new() -> Self {
        Self {
            level: Level::best(),
            columns: Box::new([[[[0; LANES]; SIGNED]; CELL]; 3]),
            histograms: Vec::new(),
            energies: Vec::new(),
            features: Vec::new(),
        }
    }

    /// The numbers of the cells of squares of `cells` on a side, which stand beside each other in `luma` and together are
    /// [`LANES`] cells wide: by row, number, column. In a row of `luma` the first pixels of all cells stand first, then the
    /// second ones, and so on.
    pub(super) fn run(&mut self, luma: &[u8], cells: usize) -> &[[Lanes<f32>; HOG]] {
        debug_assert_eq!(luma.len(), cells * CELL * LANES * CELL);
        self.level.run(
            #[inline(always)]
            || {
                self.collect(luma, cells);
                self.normalise(cells);
            },
        );
        &self.features
    }

    #[inline(always)]
    fn collect(&mut self, luma: &[u8], cells: usize) {
        let last = cells * CELL - 1;
        self.histograms.resize(cells, [[0.0; LANES]; SIGNED]);
        let [above, here, below] = &mut *self.columns;
        (*above, *here) = ([[[0; LANES]; SIGNED]; CELL], [[[0; LANES]; SIGNED]; CELL]);
        for y in 0..cells {
            let top = y * CELL;
            let rows = [
                pixels(luma, top.saturating_sub(1), cells),
                pixels(luma, top, cells),
                pixels(luma, top + 1, cells),
                pixels(luma, top + 2, cells),
                pixels(luma, top + 3, cells),
                pixels(luma, (top + 4).min(last), cells),
            ];
            for k in 0..CELL {
                share_out(&rows, k, &mut above[k], &mut here[k], &mut below[k]);
            }
            if y > 0 {
                gather(above, cells, &mut self.histograms[y - 1]);
            }
            std::mem::swap(above, here);
            std::mem::swap(here, below);
        }
        gather(above, cells, &mut self.histograms[cells - 1]);
    }

    #[inline(always)]
    fn normalise(&mut self, cells: usize) {
        let Self { histograms, energies, features, .. } = self;
        energies.resize(cells, [0.0; LANES]);
        features.resize(cells, [[0.0; LANES]; HOG]);
        for (energy, histogram) in energies.iter_mut().zip(histograms.iter()) {
            *energy = [0.0; LANES];
            for bin in 0..UNSIGNED {
                let (one, other) = (&histogram[bin], &histogram[bin + UNSIGNED]);
                for i in 0..LANES {
                    let value = one[i] + other[i];
                    energy[i] += value * value;
                }
            }
        }
        for (y, (histogram, cell)) in histograms.iter().zip(features.iter_mut()).enumerate() {
            let (above, here) = (&energies[y.saturating_sub(1)], &energies[y]);
            let below = &energies[(y + 1).min(cells - 1)];
            let [top_left, top_right] = norms(above, here, cells);
            let [left, right] = norms(here, below, cells);
            let norms = [top_left, top_right, left, right];
            let mut total = [0.0; LANES];
            for bin in 0..SIGNED {
                let mut sum = [0.0; LANES];
                for norm in &norms {
                    for i in 0..LANES {
                        let value = (histogram[bin][i] * norm[i]).min(CUT);
                        sum[i] += value;
                    }
                }
                for i in 0..LANES {
                    cell[bin][i] = 0.5 * sum[i];
                    total[i] += sum[i];
                }
            }
            for bin in 0..UNSIGNED {
                let mut sum = [0.0; LANES];
                for norm in &norms {
                    for i in 0..LANES {
                        let value = histogram[bin][i] + histogram[bin + UNSIGNED][i];
                        sum[i] += (value * norm[i]).min(CUT);
                    }
                }
                for i in 0..LANES {
                    cell[SIGNED + bin][i] = 0.5 * sum[i];
                }
            }
            for i in 0..LANES {
                cell[SIGNED + UNSIGNED][i] = 0.0589 * total[i];
            }
        }
    }
}

/// The `y`-th row of pixels with what lies left and right of each cell. At a square's border there is nothing but the border.
#[inline(always)]
fn pixels(luma: &[u8], y: usize, cells: usize) -> Pixels {
    let row = &luma[y * LANES * CELL..][..LANES * CELL];
    let mut out = [[0; LANES]; CELL + 2];
    for k in 0..CELL {
        for (out, &pixel) in out[k + 1].iter_mut().zip(&row[k * LANES..][..LANES]) {
            *out = i16::from(pixel);
        }
    }
    for i in 1..LANES {
        out[0][i] = out[CELL][i - 1];
        out[CELL + 1][i - 1] = out[1][i];
    }
    for first in (0..LANES).step_by(cells) {
        out[0][first] = out[1][first];
        out[CELL + 1][first + cells - 1] = out[CELL][first + cells - 1];
    }
    out
}

/// Shares out the gradients of the `k`-th pixels of cells in the four rows of a row of cells, among directions and rows.
///
/// A row gives 5, 7, 7 and 5 eighths to its own cell, the rest to the nearer neighbour.
#[inline(always)]
fn share_out(
    rows: &[Pixels; CELL + 2],
    k: usize,
    above: &mut [Lanes<u16>; SIGNED],
    here: &mut [Lanes<u16>; SIGNED],
    below: &mut [Lanes<u16>; SIGNED],
) {
    let mut across = [[[0_i16; LANES]; CELL]; UNSIGNED];
    for row in 0..CELL {
        let (left, right) = (&rows[row + 1][k], &rows[row + 1][k + 2]);
        let (up, down) = (&rows[row][k + 1], &rows[row + 2][k + 1]);
        for i in 0..LANES {
            let (gx, gy) = (right[i] - left[i], down[i] - up[i]);
            for bin in 0..UNSIGNED {
                let product =
                    COSINES[bin].wrapping_mul(gy).wrapping_sub(SINES[bin].wrapping_mul(gx)).wrapping_add(4);
                across[bin][row][i] = product >> DROPPED;
            }
        }
    }
    for bin in 0..UNSIGNED {
        // The direction before the first is the last one turned round, and the other way about.
        let (before, sign_before) = if bin == 0 { (UNSIGNED - 1, -1) } else { (bin - 1, 1) };
        let (after, sign_after) = if bin == UNSIGNED - 1 { (0, 1) } else { (bin + 1, -1) };
        for (bin, sign) in [(bin, 1), (bin + UNSIGNED, -1)] {
            let (sign_before, sign_after) = (sign * sign_before, sign * sign_after);
            for i in 0..LANES {
                let share = |row: usize| {
                    let a = across[before][row][i].wrapping_mul(sign_before);
                    let b = across[after][row][i].wrapping_mul(sign_after);
                    a.min(b).max(0) as u16
                };
                let (a, b, c, d) = (share(0), share(1), share(2), share(3));
                above[bin][i] += 3 * a + b;
                here[bin][i] += 5 * (a + d) + 7 * (b + c);
                below[bin][i] = c + 3 * d;
            }
        }
    }
}

/// Adds up columns of cells, in the same shares as rows.
#[inline(always)]
fn gather(columns: &Columns, cells: usize, histogram: &mut [Lanes<f32>; SIGNED]) {
    for bin in 0..SIGNED {
        let [a, b, c, d] = [0, 1, 2, 3].map(|k: usize| &columns[k][bin]);
        let (mut to_left, mut to_right) = ([0; LANES + 1], [0; LANES + 1]);
        for i in 0..LANES {
            to_left[i] = 3 * i32::from(a[i]) + i32::from(b[i]);
            to_right[i + 1] = i32::from(c[i]) + 3 * i32::from(d[i]);
        }
        for first in (0..LANES).step_by(cells) {
            (to_left[first], to_right[first + cells]) = (0, 0);
        }
        for i in 0..LANES {
            let own = 5 * (i32::from(a[i]) + i32::from(d[i])) + 7 * (i32::from(b[i]) + i32::from(c[i]));
            // Below 2^24, so that it is exact.
            let sum = own + to_left[i + 1] + to_right[i];
            histogram[bin][i] = sum as f32 * (1.0 / UNIT);
        }
    }
}

/// One over the root of the energy of the blocks at the left and right corners of cells, between two rows of energies.
#[inline(always)]
fn norms(above: &Lanes<f32>, below: &Lanes<f32>, cells: usize) -> [Lanes<f32>; 2] {
    let mut sides = [[0.0; LANES]; 2];
    let mut pairs = [0.0; LANES];
    for i in 0..LANES {
        pairs[i] = above[i] + below[i];
    }
    for i in 1..LANES {
        sides[0][i] = pairs[i - 1] + pairs[i];
        sides[1][i - 1] = pairs[i - 1] + pairs[i];
    }
    for first in (0..LANES).step_by(cells) {
        let last = first + cells - 1;
        (sides[0][first], sides[1][last]) = (2.0 * pairs[first], 2.0 * pairs[last]);
    }
    for side in &mut sides {
        for energy in side {
            *energy = 1.0 / (*energy + NOISE_ENERGY).sqrt();
        }
    }
    sides
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The features of a picture of `LANES` cells on a side.
    fn features(pixel: impl Fn(usize, usize) -> u8) -> Vec<[Lanes<f32>; HOG]> {
        let width = LANES * CELL;
        let at = |i: usize| (i % width % LANES * CELL + i % width / LANES, i / width);
        let luma: Vec<u8> = (0..width * width).map(|i| pixel(at(i).0, at(i).1)).collect();
        Hog::new().run(&luma, LANES).to_vec()
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
            // Whole grey levels turn the gradient of single pixels.
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
        let features = hog.run(&together, 8).to_vec();
        // The third of four, alone: the others are flat.
        let is_third = |i: usize| (16..24).contains(&(i % LANES));
        let alone: Vec<u8> = (0..width * height).map(|i| if is_third(i) { pixel(i) } else { 7 }).collect();
        for (row, expected) in hog.run(&alone, 8).iter().zip(&features) {
            for (bin, expected) in row.iter().zip(expected) {
                assert_eq!(bin[16..24], expected[16..24]);
            }
        }
    }
}
