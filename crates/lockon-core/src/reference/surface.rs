//! A stand-in for a picture on a device: pixels on the host, and the answers of a device by the definition.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::error::Result;
use crate::frame::{Picture, Plane, PlaneRef, Rect, VideoFormat};
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

    fn check(&self) -> Result<()> {
        Ok(())
    }
}
