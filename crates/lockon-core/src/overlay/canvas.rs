//! A picture on the host to draw into, and the mixing of areas and colours.

use super::drawing::{Drawing, Ink, Step};
use crate::frame::{PixelFormat, PlaneMut, PlaneRef, Rect, Size};

/// The writable planes of one picture.
pub struct Canvas<'a> {
    pub(super) planes: Vec<PlaneMut<'a>>,
    pub(super) format: PixelFormat,
    pub(super) size: Size,
}

impl<'a> Canvas<'a> {
    /// A picture of `size` in `format`, whose planes lie wherever the caller has them.
    ///
    /// # Panics
    /// If their number or sizes do not match the format; see [`PixelFormat::plane_size`].
    pub fn new(planes: Vec<PlaneMut<'a>>, format: PixelFormat, size: Size) -> Self {
        assert_eq!(planes.len(), format.planes(), "planes of a {} picture", format.name);
        for (index, plane) in planes.iter().enumerate() {
            assert_eq!(plane.size(), format.plane_size(index, size), "plane {index} of {}", format.name);
        }
        Self { planes, format, size }
    }

    /// The picture's size.
    pub fn size(&self) -> Size {
        self.size
    }

    /// Paints the steps of a drawing, one after the other.
    ///
    /// # Panics
    /// If it is for pictures of another size.
    pub fn paint(&mut self, drawing: &Drawing) {
        assert_eq!(drawing.size(), self.size, "drawing for pictures of another size");
        for Step { area, ink } in drawing.steps() {
            match *ink {
                Ink::Colour { colour, opacity } => self.fill(*area, colour, opacity),
                Ink::Luma { luma, opacity } => self.fill_luma(*area, luma, opacity),
                Ink::Letter { luma, first, zoom } => {
                    self.write(*area, luma, &drawing.coverage()[first..], zoom);
                }
            }
        }
    }

    fn fill(&mut self, area: Rect, colour: Colour, opacity: u8) {
        self.fill_luma(area, colour.luma, opacity);
        let (x_shift, y_shift) = (self.format.x_shift, self.format.y_shift);
        let columns = area.x >> x_shift..(area.x + area.w).div_ceil(1 << x_shift);
        let rows = area.y >> y_shift..(area.y + area.h).div_ceil(1 << y_shift);
        for (component, value) in [(0, colour.cb), (1, colour.cr)] {
            let Some((plane, first, step)) = self.format.chroma_samples(component) else { return };
            for y in rows.clone() {
                let row = &mut self.planes[plane].row(y)[columns.start * step..columns.end * step];
                for sample in row.iter_mut().skip(first).step_by(step) {
                    *sample = mix(*sample, value, opacity);
                }
            }
        }
    }

    fn fill_luma(&mut self, area: Rect, over: u8, opacity: u8) {
        for y in area.y..area.y + area.h {
            for luma in &mut self.planes[0].row(y)[area.x..][..area.w] {
                *luma = mix(*luma, over, opacity);
            }
        }
    }

    /// Mixes `over` into the luma of an area, whose opacities begin `coverage`, one for `zoom` x `zoom`
    /// pixels.
    fn write(&mut self, area: Rect, over: u8, coverage: &[u8], zoom: usize) {
        let coverage = coverage.chunks_exact(area.w / zoom);
        for (j, opacities) in coverage.take(area.h / zoom).enumerate() {
            for y in area.y + j * zoom..area.y + (j + 1) * zoom {
                let row = &mut self.planes[0].row(y)[area.x..][..area.w];
                for (luma, &opacity) in row.chunks_exact_mut(zoom).zip(opacities) {
                    for luma in luma {
                        *luma = mix(*luma, over, opacity);
                    }
                }
            }
        }
    }

    /// Shows `mask` from column `first_column` on.
    pub(super) fn show_mask(&mut self, mask: PlaneRef<'_>, first_column: usize) {
        assert_eq!(mask.size(), self.size, "mask of another size");
        let Size { width, height } = self.size;
        self.fill(Rect::new(first_column, 0, width - first_column, height), BLACK, 255);
        for (y, row) in mask.rows().enumerate() {
            self.planes[0].row(y)[first_column..].copy_from_slice(&row[first_column..]);
        }
    }
}

/// A box in the picture's coordinates that may leave it on any side; `right` and `bottom` lie just behind it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Area {
    /// Leftmost column.
    pub left: i64,
    /// Topmost row.
    pub top: i64,
    /// The column behind the last one.
    pub right: i64,
    /// The row behind the last one.
    pub bottom: i64,
}

impl Area {
    pub(super) fn of(rect: Rect) -> Self {
        let [left, top, right, bottom] =
            [rect.x, rect.y, rect.x + rect.w, rect.y + rect.h].map(|edge| edge as i64);
        Self { left, top, right, bottom }
    }

    pub(super) fn grown(self, by: i64) -> Self {
        Self { left: self.left - by, top: self.top - by, right: self.right + by, bottom: self.bottom + by }
    }

    pub(super) fn touches(self, other: Self) -> bool {
        self.left < other.right
            && other.left < self.right
            && self.top < other.bottom
            && other.top < self.bottom
    }

    /// Returns the part of it that lies in a picture, or `None` if it has nothing there.
    pub(super) fn clipped(self, size: Size) -> Option<Rect> {
        let range = |start: i64, end: i64, size: usize| {
            let inside = |v: i64| v.clamp(0, size as i64) as usize;
            let (start, end) = (inside(start), inside(end));
            (start < end).then_some((start, end - start))
        };
        let (x, w) = range(self.left, self.right, size.width)?;
        let (y, h) = range(self.top, self.bottom, size.height)?;
        Some(Rect { x, y, w, h })
    }
}

/// A colour as video has it: BT.601, limited range. Other matrices shift it a little, not into another
/// colour.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Colour {
    /// 16 is black, 235 white.
    pub luma: u8,
    /// Blue difference; 128 without colour.
    pub cb: u8,
    /// Red difference; 128 without colour.
    pub cr: u8,
}

impl Colour {
    pub(super) fn of([r, g, b]: [u8; 3]) -> Self {
        Self::rgb(i32::from(r), i32::from(g), i32::from(b))
    }

    pub(super) const fn rgb(r: i32, g: i32, b: i32) -> Self {
        Self {
            luma: (16 + ((66 * r + 129 * g + 25 * b + 128) >> 8)) as u8,
            cb: (128 + ((-38 * r - 74 * g + 112 * b + 128) >> 8)) as u8,
            cr: (128 + ((112 * r - 94 * g - 18 * b + 128) >> 8)) as u8,
        }
    }
}

pub(super) const BLACK: Colour = Colour::rgb(0, 0, 0);
pub(super) const WHITE: Colour = Colour::rgb(255, 255, 255);

/// `over` with an opacity of 0 to 255 over `under`.
pub(super) fn mix(under: u8, over: u8, opacity: u8) -> u8 {
    let opacity = u32::from(opacity);
    ((u32::from(under) * (255 - opacity) + u32::from(over) * opacity + 127) / 255) as u8
}
