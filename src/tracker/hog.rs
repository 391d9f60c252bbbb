//! Histograms of oriented gradients, as the features that a filter sees.
//!
//! P. Felzenszwalb et al., "Object Detection with Discriminatively Trained Part-Based Models", 2010, section 6: 18 signed and 9
//! unsigned directions a cell, shared out linearly between neighbouring cells and directions, divided by the energy of each of
//! the four 2x2 blocks around the cell, cut off, and added up. f32 in a fixed order.

/// Pixels on a side of a cell.
pub(super) const CELL: usize = 4;

/// Numbers of a cell: signed directions, unsigned ones, energy.
pub(super) const HOG: usize = SIGNED + UNSIGNED + 1;

const SIGNED: usize = 18;
const UNSIGNED: usize = 9;

/// No direction may make more than this of a block: one strong edge must not drown the rest. Felzenszwalb's value.
const CUT: f32 = 0.2;

/// Added to a block's energy, so that noise in something flat stays small: about what gradients of 2 grey levels make.
const NOISE_ENERGY: f32 = 1000.0;

/// Share of a pixel that goes to the neighbouring cell, by its place in its own.
const TO_NEIGHBOUR: [f32; CELL] = [0.375, 0.125, 0.125, 0.375];

/// Makes histograms; keeps its room.
#[derive(Default)]
pub(super) struct Hog {
    magnitudes: Vec<f32>,
    directions: Vec<f32>,
    /// One row of cells, with one to spare on each side. 32 numbers a cell spare the compiler its bounds checks.
    line: Vec<[f32; 32]>,
    histograms: Vec<[f32; SIGNED]>,
    energies: Vec<f32>,
    /// One over the root of the energy of the block whose lower right cell is this one.
    norms: Vec<f32>,
}

impl Hog {
    /// `luma` is `cells * CELL` pixels on a side. Writes the first [`HOG`] of each cell's `stride` numbers in `out`.
    pub(super) fn run(&mut self, luma: &[u8], cells: usize, out: &mut [f32], stride: usize) {
        self.collect(luma, cells);
        self.normalise(cells);
        let blocks = cells + 1;
        for (index, (histogram, out)) in self.histograms.iter().zip(out.chunks_exact_mut(stride)).enumerate()
        {
            let at = index / cells * blocks + index % cells;
            let norms =
                [self.norms[at], self.norms[at + 1], self.norms[at + blocks], self.norms[at + blocks + 1]];
            let mut cell = [0.0; HOG];
            for norm in norms {
                let mut total = 0.0;
                for bin in 0..SIGNED {
                    let value = (histogram[bin] * norm).min(CUT);
                    cell[bin] += 0.5 * value;
                    total += value;
                }
                for bin in 0..UNSIGNED {
                    cell[SIGNED + bin] +=
                        0.5 * ((histogram[bin] + histogram[bin + UNSIGNED]) * norm).min(CUT);
                }
                cell[SIGNED + UNSIGNED] += 0.0589 * total;
            }
            out[..HOG].copy_from_slice(&cell);
        }
    }

    fn collect(&mut self, luma: &[u8], cells: usize) {
        let width = cells * CELL;
        let Self { magnitudes, directions, line, histograms, .. } = self;
        magnitudes.resize(width, 0.0);
        directions.resize(width, 0.0);
        line.resize(cells + 2, [0.0; 32]);
        histograms.clear();
        histograms.resize(cells * cells, [0.0; SIGNED]);
        for y in 0..width {
            let row = |y: usize| &luma[y * width..][..width];
            let (above, here, below) = (row(y.saturating_sub(1)), row(y), row((y + 1).min(width - 1)));
            let gradient = |left: u8, right: u8, up: u8, down: u8| {
                let (gx, gy) = (f32::from(right) - f32::from(left), f32::from(down) - f32::from(up));
                ((gx * gx + gy * gy).sqrt(), direction(gx, gy))
            };
            let inner = magnitudes[1..].iter_mut().zip(&mut directions[1..]);
            let sides = here.iter().zip(&here[2..]).zip(above[1..].iter().zip(&below[1..]));
            for ((magnitude, direction), ((&left, &right), (&up, &down))) in inner.zip(sides) {
                (*magnitude, *direction) = gradient(left, right, up, down);
            }
            let last = width - 1;
            (magnitudes[0], directions[0]) = gradient(here[0], here[1], above[0], below[0]);
            (magnitudes[last], directions[last]) =
                gradient(here[last - 1], here[last], above[last], below[last]);

            share_out(magnitudes, directions, line);
            let (cell, neighbour) =
                (y / CELL, if y % CELL < CELL / 2 { (y / CELL).wrapping_sub(1) } else { y / CELL + 1 });
            let share = TO_NEIGHBOUR[y % CELL];
            for (cell, share) in [(cell, 1.0 - share), (neighbour, share)] {
                if cell < cells {
                    for (histogram, line) in histograms[cell * cells..][..cells].iter_mut().zip(&line[1..]) {
                        for (sum, value) in histogram.iter_mut().zip(line) {
                            *sum += value * share;
                        }
                    }
                }
            }
        }
    }

    fn normalise(&mut self, cells: usize) {
        let Self { histograms, energies, norms, .. } = self;
        energies.clear();
        energies.extend(histograms.iter().map(|histogram| {
            let mut energy = 0.0;
            for bin in 0..UNSIGNED {
                let value = histogram[bin] + histogram[bin + UNSIGNED];
                energy += value * value;
            }
            energy
        }));
        norms.clear();
        for y in 0..=cells {
            for x in 0..=cells {
                let at = |x: usize, y: usize| energies[y.min(cells - 1) * cells + x.min(cells - 1)];
                let (left, top) = (x.saturating_sub(1), y.saturating_sub(1));
                let energy = at(left, top) + at(x, top) + at(left, y) + at(x, y);
                norms.push(1.0 / (energy + NOISE_ENERGY).sqrt());
            }
        }
    }
}

/// Adds a row of pixels to a row of cells.
fn share_out(magnitudes: &[f32], directions: &[f32], line: &mut [[f32; 32]]) {
    line.fill([0.0; 32]);
    let pixels = magnitudes.chunks_exact(CELL).zip(directions.chunks_exact(CELL));
    for (cell, (magnitudes, directions)) in pixels.enumerate() {
        let [left, own, right] = &mut line[cell..cell + 3] else {
            unreachable!("three cells were asked for")
        };
        for k in 0..CELL {
            // Rounding can make the direction 18, which is 0: hence two bins to spare.
            let bin = (directions[k] as usize) & 31;
            let next = (bin + 1) & 31;
            let beyond = directions[k] - bin as f32;
            let (near, far) = (magnitudes[k] * (1.0 - beyond), magnitudes[k] * beyond);
            let share = TO_NEIGHBOUR[k];
            own[bin] += near * (1.0 - share);
            own[next] += far * (1.0 - share);
            let neighbour = if k < CELL / 2 { &mut *left } else { &mut *right };
            neighbour[bin] += near * share;
            neighbour[next] += far * share;
        }
    }
    for cell in line {
        cell[0] += cell[SIGNED];
        cell[1] += cell[SIGNED + 1];
    }
}

/// Direction of (x, y) in bins, [0, 18]: the arc tangent by a polynomial (M. Abramowitz, I. Stegun, 4.4.49, off by 1e-5 at
/// most), since those of libraries differ between machines.
#[inline]
fn direction(x: f32, y: f32) -> f32 {
    use std::f32::consts::PI;
    let (small, large) = (x.abs().min(y.abs()), x.abs().max(y.abs()));
    let t = small / large.max(1e-9);
    let s = t * t;
    let angle = t * (0.999_866 + s * (-0.330_299_5 + s * (0.180_141 + s * (-0.085_133 + s * 0.020_835_1))));
    let angle = if y.abs() > x.abs() { 0.5 * PI - angle } else { angle };
    let angle = if x < 0.0 { PI - angle } else { angle };
    let angle = if y < 0.0 { 2.0 * PI - angle } else { angle };
    angle * (SIGNED as f32 / (2.0 * PI))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directions_are_those_of_the_arc_tangent() {
        for degrees in 0..360 {
            let angle = f64::from(degrees).to_radians();
            let bin = direction(100.0 * libm::cos(angle) as f32, 100.0 * libm::sin(angle) as f32);
            let off = (f64::from(bin) - f64::from(degrees) / 20.0).abs();
            // At 0 the sine's rounding may put it just below 18.
            assert!(off.min(18.0 - off) < 1e-4, "{degrees} degrees: {bin}");
        }
    }

    #[test]
    fn an_edge_is_seen_in_its_direction_and_its_cells() {
        // Dark left half, bright right half: the gradient points right, bin 0.
        let luma: Vec<u8> = (0..32 * 32).map(|i| if i % 32 < 16 { 20 } else { 220 }).collect();
        let mut out = vec![9.0; 64 * HOG];
        Hog::default().run(&luma, 8, &mut out, HOG);
        let cell = |x: usize, y: usize| &out[(y * 8 + x) * HOG..][..HOG];
        for y in 0..8 {
            assert!(cell(3, y)[0] > 0.3 && cell(4, y)[0] > 0.3, "row {y}: {:?}", cell(3, y));
            assert!(cell(3, y)[1..SIGNED].iter().all(|&v| v == 0.0), "row {y}: {:?}", cell(3, y));
            assert!(cell(0, y).iter().all(|&v| v == 0.0) && cell(7, y).iter().all(|&v| v == 0.0));
        }
    }
}
