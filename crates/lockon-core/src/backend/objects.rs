//! Numbers of objects from the integers that devices count, and the choice of the objects that are reported.

use std::cmp::Reverse;

use rayon::prelude::*;

use crate::config::ObjectSpec;
use crate::error::{Bytes, Error, Result};
use crate::frame::Size;
use crate::message::{Message, Setting};
use crate::results::Object;

/// The integers of a connected component, which a device counts: [`Object`] says what each is for.
///
/// They fit for every picture that [`Sums::check`] lets through: no sum over n pixels exceeds n times the
/// square of the last column or row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sums {
    /// Sum of the columns of its pixels, counted from 0.
    pub x: u64,
    /// Sum of their rows.
    pub y: u64,
    /// Sum of squared columns.
    pub xx: u64,
    /// Sum of columns times rows.
    pub xy: u64,
    /// Sum of squared rows.
    pub yy: u64,
    /// Sum of their luma.
    pub luma: u64,
    /// Pixels.
    pub area: u32,
    /// Pairs of pixels that share an edge.
    pub edges: u32,
    /// Pairs of pixels that share only a corner.
    pub corners: u32,
    /// The Euler number: 1 less the number of holes.
    pub euler: i32,
    /// First column.
    pub left: u32,
    /// Last column.
    pub right: u32,
    /// First row.
    pub top: u32,
    /// Last row.
    pub bottom: u32,
    /// Least luma.
    pub min_luma: u8,
    /// Greatest luma.
    pub max_luma: u8,
}

impl Sums {
    /// Refuses a picture in which a sum could exceed its integer. One of up to 2^27 pixels passes with sides
    /// up to 370,000.
    ///
    /// # Errors
    /// `Usage`.
    pub fn check(size: Size) -> Result<()> {
        let last = (size.width.max(size.height) as u128).saturating_sub(1);
        let area = size.width as u128 * size.height as u128;
        // Twice the area is the bound of pairs.
        if 2 * area <= u128::from(u32::MAX) && area * last * last <= u128::from(u64::MAX) {
            return Ok(());
        }
        Err(Error::Usage(format!(
            "a mask of {size} is too large for objects: at most 2^31 pixels, and area times squared longest side \
             below 2^64: cut it into parts"
        )))
    }

    /// Adds the sums of another part of the same component.
    #[inline(always)]
    pub fn add(&mut self, other: &Self) {
        self.x += other.x;
        self.y += other.y;
        self.xx += other.xx;
        self.xy += other.xy;
        self.yy += other.yy;
        self.luma += other.luma;
        self.area += other.area;
        self.edges += other.edges;
        self.corners += other.corners;
        self.euler += other.euler;
        self.left = self.left.min(other.left);
        self.right = self.right.max(other.right);
        self.top = self.top.min(other.top);
        self.bottom = self.bottom.max(other.bottom);
        self.min_luma = self.min_luma.min(other.min_luma);
        self.max_luma = self.max_luma.max(other.max_luma);
    }

    /// Size of the box.
    pub fn size(&self) -> Size {
        Size::new((self.right - self.left + 1) as usize, (self.bottom - self.top + 1) as usize)
    }

    /// The object of a picture of this size that has these sums.
    pub fn object(&self, picture: Size) -> Object {
        let (length, width, angle) = self.axes();
        let n = f64::from(self.area);
        let edges = 2 * i64::from(self.area) - i64::from(self.edges);
        let corners = 2 * i64::from(self.area) - i64::from(self.corners);
        let Size { width: w, height: h } = self.size();
        let (x, y) = (self.left as usize, self.top as usize);
        let touches_border = x == 0 || y == 0 || x + w == picture.width || y + h == picture.height;
        Object {
            x,
            y,
            w,
            h,
            area: self.area as usize,
            cx: rounded(self.x as f64 / n + 0.5),
            cy: rounded(self.y as f64 / n + 0.5),
            length,
            width,
            angle,
            perimeter: rounded(
                std::f64::consts::PI / 4.0 * (edges as f64 + corners as f64 / std::f64::consts::SQRT_2),
            ),
            holes: (1 - self.euler) as usize,
            min_luma: self.min_luma,
            mean_luma: rounded(self.luma as f64 / n),
            max_luma: self.max_luma,
            touches_border,
        }
    }

    /// The object of one pixel with this luma: what [`Self::object`] makes of its sums. Noise has many.
    #[inline]
    pub fn object_of_pixel(x: usize, y: usize, luma: u8, picture: Size) -> Object {
        Object {
            x,
            y,
            w: 1,
            h: 1,
            area: 1,
            cx: x as f64 + 0.5,
            cy: y as f64 + 0.5,
            length: 0.0,
            width: 0.0,
            angle: 0.0,
            // pi / 4 * (2 + 2 / sqrt(2)), rounded.
            perimeter: 2.682,
            holes: 0,
            min_luma: luma,
            mean_luma: f64::from(luma),
            max_luma: luma,
            touches_border: x == 0 || y == 0 || x + 1 == picture.width || y + 1 == picture.height,
        }
    }

    /// Long axis, short axis and direction of the ellipse with the same second moments.
    fn axes(&self) -> (f64, f64, f64) {
        let wide = |value: u64| i128::from(value);
        let n = i128::from(self.area);
        let a = n * wide(self.xx) - wide(self.x) * wide(self.x);
        let b = n * wide(self.xy) - wide(self.x) * wide(self.y);
        let c = n * wide(self.yy) - wide(self.y) * wide(self.y);
        let (sum, difference, twice_b) = (to_f64(a + c), to_f64(a - c), to_f64(2 * b));
        let r = (difference * difference + twice_b * twice_b).sqrt();
        let n = f64::from(self.area);
        let twice_nn = 2.0 * (n * n);
        let length = rounded(4.0 * ((sum + r) / twice_nn).sqrt());
        let width = rounded(4.0 * ((sum - r).max(0.0) / twice_nn).sqrt());
        // What the formula gives on the axes: small objects are often there.
        let angle = if b == 0 {
            if a >= c { 0.0 } else { 90.0 }
        } else if a == c {
            if b > 0 { -45.0 } else { 45.0 }
        } else {
            rounded(-libm::atan2(twice_b, difference) / 2.0 * 180.0 / std::f64::consts::PI)
        };
        (length, width, if angle <= -90.0 { 90.0 } else { angle })
    }
}

/// The nearest f64, as by `as`, which takes longer where all 128 bits can be needed.
fn to_f64(value: i128) -> f64 {
    i64::try_from(value).map_or(value as f64, |value| value as f64)
}

/// To 1/1000; never a negative zero.
fn rounded(value: f64) -> f64 {
    round(value * 1000.0) / 1000.0 + 0.0
}

/// The nearest integer, of two the one further from 0, of a number below 2^62 in magnitude.
#[inline]
fn round(value: f64) -> f64 {
    // Just below a half, so that the sum of it and the largest number below a half is below 1.
    let almost_half = 0.5 - 0.25 * f64::EPSILON;
    (value + almost_half.copysign(value)) as i64 as f64
}

/// A component that can become an object.
pub trait Measured {
    /// Pixels.
    fn area(&self) -> usize;
    /// Size of the box.
    fn size(&self) -> Size;
    /// The object of a picture of this size.
    fn object(&self, picture: Size) -> Object;
}

impl Measured for &Sums {
    fn area(&self) -> usize {
        self.area as usize
    }

    fn size(&self) -> Size {
        Sums::size(self)
    }

    fn object(&self, picture: Size) -> Object {
        Sums::object(self, picture)
    }
}

/// The error where the objects of a mask of that size take more memory than is allowed.
pub fn too_many(size: Size, wanted: Bytes, limit: Bytes) -> Error {
    Error::MemoryLimit {
        what: format!("the objects of a mask of {size}"),
        wanted,
        limit,
        remedy: Message::new(
            "use {}, or another threshold that gives fewer objects",
            [Setting::named("open")],
        ),
    }
}

/// Fewer components than that are made objects by the calling thread: to wake others would take longer.
pub const FEW: usize = 512;

/// Makes objects of the components that the filters of `spec` let through, in the order of `components`,
/// which `of` gives; with a maximum number the largest, largest first. Returns how many are beyond the
/// maximum. `components` come in order: of equal ones of a kind the lower number first. They are changed.
///
/// Uses the threads of the rayon pool that it is called in.
pub fn select<M: Measured>(
    components: &mut Vec<u32>,
    of: impl Fn(u32) -> M + Sync,
    spec: &ObjectSpec,
    picture: Size,
    objects: &mut Vec<Object>,
) -> u64 {
    if (spec.area, spec.size) != Default::default() {
        components.retain(|&at| {
            let component = of(at);
            spec.area.has(component.area()) && spec.size.has(component.size())
        });
    }
    let mut more = 0;
    if let Some(max) = spec.max {
        // The first of equal ones comes first. A stable sort would allocate.
        components.sort_unstable_by_key(|&at| (Reverse(of(at).area()), at));
        more = components.len().saturating_sub(max) as u64;
        components.truncate(max);
    }
    if components.len() < FEW {
        objects.clear();
        objects.extend(components.iter().map(|&at| of(at).object(picture)));
    } else {
        let made = components.par_iter().with_min_len(FEW).map(|&at| of(at).object(picture));
        made.collect_into_vec(objects);
    }
    more
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pictures_whose_sums_could_overflow_are_refused() {
        for (width, height) in [(65_535, 2048), (1 << 14, 1 << 13), (1, 1), (1 << 18, 1 << 9)] {
            assert!(Sums::check(Size::new(width, height)).is_ok(), "{width}x{height}");
        }
        for (width, height) in [(1 << 27, 1), (1, 1 << 27), (1 << 16, 1 << 15)] {
            let said = Sums::check(Size::new(width, height)).unwrap_err().to_string();
            assert!(said.contains(&format!("{width}x{height} is too large")), "{said}");
        }
    }

    #[test]
    fn the_object_of_a_pixel_is_that_of_its_sums() {
        let picture = Size::new(1921, 1079);
        for (x, y, luma) in [(0, 5, 0), (7, 0, 255), (1920, 12, 3), (3, 1078, 4), (1919, 1077, 77)] {
            let (column, row) = (x as u64, y as u64);
            let sums = Sums {
                x: column,
                y: row,
                xx: column * column,
                xy: column * row,
                yy: row * row,
                luma: u64::from(luma),
                area: 1,
                edges: 0,
                corners: 0,
                euler: 1,
                left: x as u32,
                right: x as u32,
                top: y as u32,
                bottom: y as u32,
                min_luma: luma,
                max_luma: luma,
            };
            assert_eq!(Sums::object_of_pixel(x, y, luma, picture), sums.object(picture));
        }
    }

    #[test]
    fn numbers_are_rounded_as_by_the_portable_library() {
        let mut random = 0x9e37_79b9_7f4a_7c15_u64;
        let halves = (-999..999).flat_map(|i| {
            let half = f64::from(i) + 0.5;
            [half.next_down(), half, half.next_up()]
        });
        let others = (0..10_000).map(|i| {
            random = random.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
            (random >> 11) as f64 / f64::from(1_u32 << (i % 32)) * if i % 2 == 0 { 1.0 } else { -1.0 }
        });
        for value in halves.chain(others).chain([0.0, -0.0, 0.5, 2_f64.powi(52) - 0.5, 2_f64.powi(53) + 2.0])
        {
            assert_eq!(round(value), libm::round(value), "{value}");
        }
    }

    #[test]
    fn a_full_mask_of_one_long_row_has_exact_sums_and_a_length() {
        // One row of 2^21 pixels: 1/3 * 2^63 is the sum of squares.
        let size = Size::new(1 << 21, 1);
        Sums::check(size).unwrap();
        let n = 1_u64 << 21;
        let sums = Sums {
            x: n * (n - 1) / 2,
            y: 0,
            xx: (n - 1) * n / 2 * (2 * n - 1) / 3,
            xy: 0,
            yy: 0,
            luma: 255 * n,
            area: n as u32,
            edges: n as u32 - 1,
            corners: 0,
            euler: 1,
            left: 0,
            right: n as u32 - 1,
            top: 0,
            bottom: 0,
            min_luma: 255,
            max_luma: 255,
        };
        let object = sums.object(size);
        // 4 sqrt((n^2 - 1) / 12).
        assert_eq!((object.length, object.width, object.cx), (2_421_582.543, 0.0, 1_048_576.0));
    }
}
