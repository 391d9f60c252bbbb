//! A stand-in for a picture on a device: pixels on the host, and the answers of a device by the definition.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::error::Result;
use crate::frame::outlines::{self, Outline, OutlineFinder, Peak, Peaks};
use crate::frame::{Picture, Plane, PlaneRef, Rect, Size, VideoFormat};
use crate::surface::{Grid, Surface};

/// The results that every device must give for a picture, by the definition: sums of pixels, no sharing of
/// work.
pub struct OnDevice {
    picture: Arc<dyn Picture>,
    format: VideoFormat,
    whole: AtomicUsize,
}

impl OnDevice {
    /// A picture of that format as a device would have it.
    pub fn new(picture: Arc<dyn Picture>, format: &VideoFormat) -> Self {
        Self { picture, format: format.clone(), whole: AtomicUsize::new(0) }
    }

    /// How often a whole plane was asked for, which costs a device most.
    pub fn whole_planes(&self) -> usize {
        self.whole.load(Ordering::Relaxed)
    }

    /// A sample of an upright grid, rounded half up.
    fn sample(&self, grid: &Grid, column: i64, row: i64) -> u32 {
        let plane = self.picture.plane(grid.plane);
        let (width, height) = (plane.size().width / grid.step, plane.size().height);
        let (columns, rows) = (shares(grid.columns, column, width), shares(grid.rows, row, height));
        let mut sum = 1 << 15;
        for (y, of_row) in rows {
            for &(x, of_column) in &columns {
                sum += of_row * of_column * u32::from(plane.row(y)[grid.first + x * grid.step]);
            }
        }
        sum >> 16
    }
}

/// The best places of an outline in a picture of that width and height, by the definition: every score is
/// summed pixel by pixel.
pub fn find_outline(
    pixel: &dyn Fn(usize, usize) -> u8,
    (width, height): (usize, usize),
    outline: &Outline,
) -> Peaks {
    let is_inside = |x: usize, y: usize| (1..width - 1).contains(&x) && (1..height - 1).contains(&y);
    let edge = |x: usize, y: usize| {
        let at = |x: usize, y: usize| i16::from(pixel(x, y));
        let gradient = |x: usize, y: usize| (at(x + 1, y) - at(x - 1, y), at(x, y + 1) - at(x, y - 1));
        let (across, down) = if is_inside(x, y) { gradient(x, y) } else { (0, 0) };
        outlines::is_edge(across, down).then(|| outlines::direction(across, down))
    };
    let edges: Vec<_> = (0..width * height).map(|at| edge(at % width, at / width)).collect();
    let response = |x: usize, y: usize, wanted: u8| {
        if !is_inside(x, y) {
            return 0;
        }
        let about = (0..9).filter_map(|i| edges[(y + i / 3 - 1) * width + x + i % 3 - 1]);
        let steps = |direction: u8| direction.abs_diff(wanted).min(8 - direction.abs_diff(wanted));
        let of_steps = [outlines::OWN, outlines::NEXT, outlines::SECOND, 0, 0];
        about.map(|direction| of_steps[usize::from(steps(direction))]).max().unwrap_or(0)
    };
    let (columns, rows) = outline.places_in((width, height));
    let score = |row: usize, column: usize| -> u8 {
        let of = |edge: &outlines::Edge| {
            response(2 * column + usize::from(edge.x), 2 * row + usize::from(edge.y), edge.direction)
        };
        outline.edges.iter().map(of).sum()
    };
    let mut kept = Vec::new();
    for first in (0..rows).step_by(outline.band()) {
        for column in 0..columns {
            let band = (first..rows.min(first + outline.band())).rev();
            let best = band.map(|row| Peak { score: score(row, column), row, column });
            // `max_by_key` takes the last of equal ones, which is the first row.
            kept.extend(best.max_by_key(|peak| peak.score).filter(|peak| peak.score > 0));
        }
    }
    let (across, down) = outline.apart();
    let mut peaks = Peaks::default();
    for index in 0..peaks.len() {
        let is_apart = |peak: &&Peak| {
            let is_near = |taken: &Peak| {
                peak.row.abs_diff(taken.row) <= down && peak.column.abs_diff(taken.column) <= across
            };
            !peaks.iter().flatten().any(is_near)
        };
        peaks[index] = kept.iter().rev().filter(is_apart).max_by_key(|peak| peak.score).copied();
    }
    peaks
}

/// The pixels of a sample's box along one axis, and the share of the box that lies in each, in 1/256.
fn shares((start, step): (i64, i64), index: i64, length: usize) -> Vec<(usize, u32)> {
    let width = step.max(1 << 16) >> 8;
    let from = start + ((step * (2 * index + 1)) >> 9) - width / 2;
    let share_before = |pixel: i64| ((((pixel * 256 - from) * 256) / width).clamp(0, 256)) as u32;
    let pixels = (from >> 8)..=((from + width) >> 8);
    let share =
        |pixel: i64| share_before(pixel + 1) - if pixel == from >> 8 { 0 } else { share_before(pixel) };
    pixels.map(|pixel| (pixel.clamp(0, length as i64 - 1) as usize, share(pixel))).collect()
}

impl Picture for OnDevice {
    fn plane(&self, index: usize) -> PlaneRef<'_> {
        self.whole.fetch_add(1, Ordering::Relaxed);
        self.picture.plane(index)
    }

    fn surface(&self) -> Option<&(dyn Surface + 'static)> {
        Some(self)
    }
}

impl Surface for OnDevice {
    fn fetch(&self, rect: Rect) -> Plane {
        self.picture.plane(0).crop(rect).to_plane()
    }

    fn shrink(&self, factor: usize, means: &mut [u8]) {
        let (luma, size) = (self.picture.plane(0), self.format.size);
        let (width, height) = (size.width / factor, size.height / factor);
        assert_eq!(means.len(), width * height, "means of a {size} picture, {factor} times smaller");
        for (index, mean) in means.iter_mut().enumerate() {
            let (x, y) = (index % width * factor, index / width * factor);
            let row =
                |y: usize| luma.row(y)[x..x + factor].iter().map(|&pixel| u32::from(pixel)).sum::<u32>();
            let (sum, count) = ((y..y + factor).map(row).sum::<u32>(), (factor * factor) as u32);
            *mean = ((sum + count / 2) / count) as u8;
        }
    }

    fn sample(&self, grids: &[Grid], samples: &mut [u8]) {
        for grid in grids {
            let length = grid.side / grid.groups;
            for place in 0..grid.side * grid.side {
                let (row, column) = (place / grid.side, place % grid.side);
                let value = match grid.turn {
                    None => self.sample(grid, column as i64, row as i64),
                    Some(turn) => {
                        let from_middle = |index: usize| 2 * index as i32 + 1 - grid.side as i32;
                        let (x, y) = (from_middle(column), from_middle(row));
                        let middle = (turn.count as i32 - 1) << 15;
                        let u = middle + ((x * turn.right.0 + y * turn.below.0) >> 1);
                        let v = middle + ((x * turn.right.1 + y * turn.below.1) >> 1);
                        let at = |dx: i32, dy: i32| {
                            self.sample(grid, i64::from((u >> 16) + dx), i64::from((v >> 16) + dy))
                        };
                        let mix = |a: u32, b: u32, share: i32| (256 - share as u32) * a + share as u32 * b;
                        let (along, down) = (u >> 8 & 255, v >> 8 & 255);
                        let (above, below) = (mix(at(0, 0), at(1, 0), along), mix(at(0, 1), at(1, 1), along));
                        (mix(above, below, down) + (1 << 15)) >> 16
                    }
                };
                let (group, in_group) = (column % grid.groups, column / grid.groups);
                let line = row * grid.side * grid.across + (group * grid.across + grid.index) * length;
                samples[grid.at + line + in_group] = value as u8;
            }
        }
    }

    fn outline_finder(&self) -> Option<&dyn OutlineFinder> {
        Some(self)
    }

    fn check(&self) -> Result<()> {
        Ok(())
    }
}

impl OutlineFinder for OnDevice {
    fn find_outlines(&self, factor: usize, outlines: &[&Outline], peaks: &mut [Peaks]) {
        let Size { width, height } = self.format.size;
        let (width, height) = (width / factor, height / factor);
        let mut means = vec![0; width * height];
        self.shrink(factor, &mut means);
        assert_eq!(outlines.len(), peaks.len(), "peaks of outlines");
        for (outline, peaks) in outlines.iter().zip(peaks) {
            *peaks = find_outline(&|x, y| means[y * width + x], (width, height), outline);
        }
    }
}
