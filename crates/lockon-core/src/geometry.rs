//! Sizes and boxes in whole pixels.

use std::fmt;

use serde::Serialize;

/// Width and height in pixels.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
pub struct Size {
    /// Pixels in a row.
    pub width: usize,
    /// Rows.
    pub height: usize,
}

impl Size {
    /// `width` x `height`.
    pub const fn new(width: usize, height: usize) -> Self {
        Self { width, height }
    }

    /// Number of pixels.
    pub const fn area(self) -> usize {
        self.width * self.height
    }

    /// True if this fits inside `outer` without being turned.
    pub const fn fits_in(self, outer: Self) -> bool {
        self.width <= outer.width && self.height <= outer.height
    }

    /// The number of positions, across and down, of a box of this size in `outer`: the size of a template's
    /// score map. 0 along a side in which it does not fit.
    pub const fn positions_in(self, outer: Self) -> Self {
        Self::new(
            (outer.width + 1).saturating_sub(self.width),
            (outer.height + 1).saturating_sub(self.height),
        )
    }
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}x{}", self.width, self.height)
    }
}

/// A box of whole pixels: columns `x..x+w`, rows `y..y+h`, counted from the picture's top-left pixel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
pub struct Rect {
    /// Leftmost column.
    pub x: usize,
    /// Topmost row.
    pub y: usize,
    /// Width.
    pub w: usize,
    /// Height.
    pub h: usize,
}

impl Rect {
    /// The box at (`x`, `y`), `w` pixels wide and `h` high.
    pub const fn new(x: usize, y: usize, w: usize, h: usize) -> Self {
        Self { x, y, w, h }
    }

    /// The box that covers a whole picture.
    pub const fn whole(size: Size) -> Self {
        Self::new(0, 0, size.width, size.height)
    }

    /// Its width and height.
    pub const fn size(self) -> Size {
        Size::new(self.w, self.h)
    }

    /// True if it has pixels and all of them lie in a picture of this size.
    pub fn is_inside(self, size: Size) -> bool {
        let fits = |start: usize, len: usize, end: usize| start.checked_add(len).is_some_and(|e| e <= end);
        self.w > 0 && self.h > 0 && fits(self.x, self.w, size.width) && fits(self.y, self.h, size.height)
    }

    /// The part inside a picture of this size.
    pub fn cut_to(self, size: Size) -> Option<Self> {
        let length = |start: usize, length: usize, end: usize| end.saturating_sub(start).min(length);
        let (w, h) = (length(self.x, self.w, size.width), length(self.y, self.h, size.height));
        (w > 0 && h > 0).then_some(Self { w, h, ..self })
    }

    /// The box as `[x, y, w, h]`.
    pub fn bounds(self) -> [f64; 4] {
        [self.x, self.y, self.w, self.h].map(|v| v as f64)
    }

    /// Intersection over union of two boxes, in [0, 1]; 0 if both are empty.
    pub fn iou(self, other: Self) -> f64 {
        iou(self.bounds(), other.bounds())
    }
}

/// Intersection over union of two boxes `[x, y, w, h]` that may lie anywhere, in [0, 1]; 0 if both are empty.
pub fn iou([ax, ay, aw, ah]: [f64; 4], [bx, by, bw, bh]: [f64; 4]) -> f64 {
    let overlap = |a: f64, a_len: f64, b: f64, b_len: f64| ((a + a_len).min(b + b_len) - a.max(b)).max(0.0);
    let both = overlap(ax, aw, bx, bw) * overlap(ay, ah, by, bh);
    let either = aw * ah + bw * bh - both;
    if either > 0.0 { both / either } else { 0.0 }
}

/// Share of a box `[x, y, w, h]` that lies in a frame, in [0, 1].
pub fn visible([x, y, w, h]: [f64; 4], frame: Size) -> f64 {
    let inside = |start: f64, length: f64, end: usize| {
        ((start + length).min(end as f64) - start.max(0.0)).max(0.0) / length
    };
    inside(x, w, frame.width) * inside(y, h, frame.height)
}

impl fmt::Display for Rect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{},{},{},{}", self.x, self.y, self.w, self.h)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_box_that_does_not_fit_has_no_positions() {
        let positions = |w, h| Size::new(w, h).positions_in(Size::new(10, 7));
        assert_eq!(positions(1, 1), Size::new(10, 7));
        assert_eq!(positions(10, 3), Size::new(1, 5));
        assert_eq!(positions(11, 3), Size::new(0, 5));
        assert_eq!(positions(99, 8), Size::new(0, 0));
    }

    #[test]
    fn iou_of_known_boxes() {
        let a = Rect::new(0, 0, 4, 4);
        assert_eq!(a.iou(a), 1.0);
        assert_eq!(a.iou(Rect::new(2, 0, 4, 4)), 8.0 / 24.0);
        assert_eq!(a.iou(Rect::new(4, 0, 4, 4)), 0.0);
    }

    #[test]
    fn a_box_at_the_end_of_the_number_range_is_outside() {
        assert!(!Rect::new(usize::MAX, 0, 2, 2).is_inside(Size::new(10, 10)));
        assert!(!Rect::new(0, 0, 0, 2).is_inside(Size::new(10, 10)));
        assert!(Rect::new(8, 8, 2, 2).is_inside(Size::new(10, 10)));
    }
}
