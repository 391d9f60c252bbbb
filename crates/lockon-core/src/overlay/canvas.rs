//! The picture that is drawn into, and what is mixed into it: areas and colours.

use crate::frame::{PixelFormat, PlaneMut, PlaneRef, Rect, Size};

/// The writable planes of one picture.
pub struct Canvas<'a> {
    pub(super) planes: Vec<PlaneMut<'a>>,
    format: PixelFormat,
    pub(super) size: Size,
}

impl<'a> Canvas<'a> {
    /// A picture of `size` in `format`, whose planes lie wherever the caller has them.
    ///
    /// # Panics
    /// If their number or sizes are not those of the format; see [`PixelFormat::plane_size`].
    pub fn new(planes: Vec<PlaneMut<'a>>, format: PixelFormat, size: Size) -> Self {
        assert_eq!(planes.len(), format.planes(), "planes of a {} picture", format.name);
        for (index, plane) in planes.iter().enumerate() {
            assert_eq!(plane.size(), format.plane_size(index, size), "plane {index} of {}", format.name);
        }
        Self { planes, format, size }
    }

    /// Mixes `colour` into the part of `area` that lies in the picture: not at all with `opacity` 0, fully
    /// with 255.
    ///
    /// A chroma sample that the area touches is mixed whole.
    pub(super) fn paint(&mut self, area: Area, colour: Colour, opacity: u8) {
        let Some((columns, rows)) = area.clipped(self.size) else { return };
        for y in rows.clone() {
            for luma in &mut self.planes[0].row(y)[columns.clone()] {
                *luma = mix(*luma, colour.luma, opacity);
            }
        }
        let (x_shift, y_shift) = (self.format.x_shift, self.format.y_shift);
        let columns = columns.start >> x_shift..columns.end.div_ceil(1 << x_shift);
        let rows = rows.start >> y_shift..rows.end.div_ceil(1 << y_shift);
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

    /// Darkens the luma of `area`. Colour stays, so that a coloured line next to it keeps its chroma samples.
    pub(super) fn shade(&mut self, area: Area, opacity: u8) {
        let Some((columns, rows)) = area.clipped(self.size) else { return };
        for y in rows {
            for luma in &mut self.planes[0].row(y)[columns.clone()] {
                *luma = mix(*luma, BLACK.luma, opacity);
            }
        }
    }

    /// Shows `mask` from column `first_column` on.
    pub(super) fn show_mask(&mut self, mask: PlaneRef<'_>, first_column: usize) {
        assert_eq!(mask.size(), self.size, "mask of another size");
        let end = self.size.height as i64;
        let area = Area { left: first_column as i64, top: 0, right: self.size.width as i64, bottom: end };
        self.paint(area, BLACK, 255);
        for (y, row) in mask.rows().enumerate() {
            self.planes[0].row(y)[first_column..].copy_from_slice(&row[first_column..]);
        }
    }
}

/// A box in the picture's coordinates that may leave it on any side; `right` and `bottom` lie just behind it.
#[derive(Clone, Copy)]
pub(super) struct Area {
    pub(super) left: i64,
    pub(super) top: i64,
    pub(super) right: i64,
    pub(super) bottom: i64,
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

    /// Its columns and rows inside a picture, or `None` if it has none there.
    fn clipped(self, size: Size) -> Option<(std::ops::Range<usize>, std::ops::Range<usize>)> {
        let range = |start: i64, end: i64, size: usize| {
            let inside = |v: i64| v.clamp(0, size as i64) as usize;
            Some(inside(start)..inside(end)).filter(|range| !range.is_empty())
        };
        Some((range(self.left, self.right, size.width)?, range(self.top, self.bottom, size.height)?))
    }
}

/// A colour as video has it: BT.601, limited range. Other matrices shift it a little, not into another
/// colour.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Colour {
    pub(super) luma: u8,
    pub(super) cb: u8,
    pub(super) cr: u8,
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
