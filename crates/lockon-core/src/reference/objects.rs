//! Objects of a mask: cleaning, connected components and their numbers, each object by itself.

use std::cmp::Reverse;

use crate::config::{Connectivity, ObjectColour, ObjectSpec};
use crate::frame::{Plane, PlaneRef, Rect, Size};
use crate::results::Object;

/// The objects of a mask.
#[derive(Debug, Clone, PartialEq)]
pub struct Found {
    /// The mask after cleaning, in the colours of the one before: 255 and 0.
    pub mask: Plane,
    /// The objects that the filters let through, in the order of their first pixels, row by row; with a
    /// maximum number the largest first, of equal ones the first.
    pub objects: Vec<Object>,
    /// Objects beyond the maximum number.
    pub more: u64,
}

/// Cleans `mask`, finds its objects and measures them, their luma in `luma`. Pixels of 128 or more are white.
///
/// # Panics
/// If mask and luma differ in size.
pub fn find(mask: PlaneRef<'_>, luma: PlaneRef<'_>, spec: &ObjectSpec) -> Found {
    assert_eq!(mask.size(), luma.size(), "mask and luma");
    let white = |x: usize, y: usize| mask.row(y)[x] >= 128;
    let mut objects = Pixels::new(mask.size(), |x, y| white(x, y) == (spec.colour == ObjectColour::White));
    if let Some(square) = spec.cleaning.open {
        objects = objects.eroded(square.radius()).dilated(square.radius());
    }
    if let Some(square) = spec.cleaning.close {
        objects = objects.dilated(square.radius()).eroded(square.radius());
    }
    let background = spec.connectivity.of_background();
    if spec.cleaning.fill_holes {
        let outside = objects.inverted().components(background);
        let outside = outside.into_iter().filter(Pixels::is_at_border);
        let outside: Vec<Pixels> = outside.collect();
        objects = Pixels::new(mask.size(), |x, y| !outside.iter().any(|part| part.has(x, y)));
    }
    let components = objects.components(spec.connectivity).into_iter();
    let measured = components.map(|component| measure(&component, luma, background));
    let mut kept: Vec<Object> =
        measured.filter(|o| spec.area.has(o.area) && spec.size.has(Size::new(o.w, o.h))).collect();
    let mut more = 0;
    if let Some(max) = spec.max {
        // A stable sort.
        kept.sort_by_key(|object| Reverse(object.area));
        more = kept.len().saturating_sub(max) as u64;
        kept.truncate(max);
    }
    let mut cleaned = Plane::new(mask.size());
    for y in 0..mask.size().height {
        for x in 0..mask.size().width {
            let is_white = objects.has(x, y) == (spec.colour == ObjectColour::White);
            cleaned.as_mut().row(y)[x] = if is_white { 255 } else { 0 };
        }
    }
    Found { mask: cleaned, objects: kept, more }
}

/// Some pixels of a part of a picture.
struct Pixels {
    /// The part of the picture.
    part: Rect,
    /// The picture.
    picture: Size,
    has: Vec<bool>,
}

impl Pixels {
    fn new(picture: Size, has: impl Fn(usize, usize) -> bool) -> Self {
        let part = Rect::whole(picture);
        let has = (0..picture.area()).map(|i| has(i % picture.width, i / picture.width)).collect();
        Self { part, picture, has }
    }

    /// True for a pixel of these; false outside of the picture too.
    fn at(&self, x: i64, y: i64) -> bool {
        x >= 0 && y >= 0 && self.has(x as usize, y as usize)
    }

    fn has(&self, x: usize, y: usize) -> bool {
        let Rect { x: left, y: top, w, h } = self.part;
        x >= left && y >= top && x < left + w && y < top + h && self.has[(y - top) * w + x - left]
    }

    fn inverted(&self) -> Self {
        Self::new(self.picture, |x, y| !self.has(x, y))
    }

    /// The pixels of the square about a pixel that lie in the picture.
    fn square(&self, x: usize, y: usize, radius: usize) -> impl Iterator<Item = (usize, usize)> {
        let columns = x.saturating_sub(radius)..(x + radius + 1).min(self.picture.width);
        let rows = y.saturating_sub(radius)..(y + radius + 1).min(self.picture.height);
        rows.flat_map(move |y| columns.clone().map(move |x| (x, y)))
    }

    fn eroded(&self, radius: usize) -> Self {
        Self::new(self.picture, |x, y| self.square(x, y, radius).all(|(x, y)| self.has(x, y)))
    }

    fn dilated(&self, radius: usize) -> Self {
        Self::new(self.picture, |x, y| self.square(x, y, radius).any(|(x, y)| self.has(x, y)))
    }

    fn is_at_border(&self) -> bool {
        let Rect { x, y, w, h } = self.part;
        x == 0 || y == 0 || x + w == self.picture.width || y + h == self.picture.height
    }

    /// The components, each in its box, in the order of their first pixels.
    fn components(&self, connectivity: Connectivity) -> Vec<Self> {
        let Size { width, height } = self.picture;
        let mut is_taken = vec![false; self.picture.area()];
        let mut components = Vec::new();
        for start in 0..self.picture.area() {
            if is_taken[start] || !self.has(start % width, start / width) {
                continue;
            }
            let (mut pixels, mut next) = (vec![(start % width, start / width)], 0);
            is_taken[start] = true;
            while let Some(&(x, y)) = pixels.get(next) {
                next += 1;
                for &(dx, dy) in neighbours(connectivity) {
                    let (x, y) = (x as i64 + dx, y as i64 + dy);
                    let is_inside = x >= 0 && y >= 0 && x < width as i64 && y < height as i64;
                    if is_inside && self.at(x, y) && !is_taken[y as usize * width + x as usize] {
                        is_taken[y as usize * width + x as usize] = true;
                        pixels.push((x as usize, y as usize));
                    }
                }
            }
            let ends = |of: fn(&(usize, usize)) -> usize| {
                let all = pixels.iter().map(of);
                (all.clone().min().expect("it has a pixel"), all.max().expect("it has a pixel"))
            };
            let ((left, right), (top, bottom)) = (ends(|p| p.0), ends(|p| p.1));
            let part = Rect::new(left, top, right - left + 1, bottom - top + 1);
            let mut has = vec![false; part.size().area()];
            for (x, y) in &pixels {
                has[(y - top) * part.w + x - left] = true;
            }
            components.push(Self { part, picture: self.picture, has });
        }
        components
    }

    /// The parts of the background that these pixels enclose: all but the one around them.
    fn holes(&self, background: Connectivity) -> usize {
        let Rect { x: left, y: top, w, h } = self.part;
        // One pixel of background more on every side joins what is outside.
        let framed =
            Self::new(Size::new(w + 2, h + 2), |x, y| !self.at((x + left) as i64 - 1, (y + top) as i64 - 1));
        framed.components(background).len() - 1
    }
}

/// Steps to the neighbours of a pixel.
fn neighbours(connectivity: Connectivity) -> &'static [(i64, i64)] {
    const ALL: [(i64, i64); 8] = [(-1, 0), (1, 0), (0, -1), (0, 1), (-1, -1), (1, -1), (-1, 1), (1, 1)];
    match connectivity {
        Connectivity::Four => &ALL[..4],
        Connectivity::Eight => &ALL,
    }
}

/// The numbers of one component, as the docs of [`Object`] define them.
fn measure(component: &Pixels, luma: PlaneRef<'_>, background: Connectivity) -> Object {
    let Rect { x: left, y: top, w, h } = component.part;
    let (mut n, mut sx, mut sy, mut sxx, mut syy, mut sxy) = (0_i128, 0_i128, 0_i128, 0_i128, 0_i128, 0_i128);
    let (mut sharing_edge, mut sharing_corner) = (0_i128, 0_i128);
    let (mut total, mut min_luma, mut max_luma) = (0_i128, u8::MAX, u8::MIN);
    for y in top..top + h {
        for x in (left..left + w).filter(|&x| component.has(x, y)) {
            n += 1;
            let value = luma.row(y)[x];
            total += i128::from(value);
            (min_luma, max_luma) = (min_luma.min(value), max_luma.max(value));
            let (x, y) = (x as i64, y as i64);
            sharing_edge += i128::from(component.at(x + 1, y)) + i128::from(component.at(x, y + 1));
            sharing_corner += i128::from(component.at(x + 1, y + 1)) + i128::from(component.at(x - 1, y + 1));
            let (x, y) = (i128::from(x), i128::from(y));
            (sx, sy) = (sx + x, sy + y);
            (sxx, syy, sxy) = (sxx + x * x, syy + y * y, sxy + x * y);
        }
    }
    let (a, b, c) = (n * sxx - sx * sx, n * sxy - sx * sy, n * syy - sy * sy);
    let (sum, difference, twice_b) = ((a + c) as f64, (a - c) as f64, (2 * b) as f64);
    let r = (difference * difference + twice_b * twice_b).sqrt();
    let twice_nn = 2.0 * (n as f64 * n as f64);
    let degrees = -libm::atan2(twice_b, difference) / 2.0 * 180.0 / std::f64::consts::PI;
    let angle = rounded(degrees);
    let edges = (2 * n - sharing_edge) as f64;
    let diagonals = (2 * n - sharing_corner) as f64;
    Object {
        x: left,
        y: top,
        w,
        h,
        area: n as usize,
        cx: rounded(sx as f64 / n as f64 + 0.5),
        cy: rounded(sy as f64 / n as f64 + 0.5),
        length: rounded(4.0 * ((sum + r) / twice_nn).sqrt()),
        width: rounded(4.0 * ((sum - r).max(0.0) / twice_nn).sqrt()),
        angle: if angle <= -90.0 { 90.0 } else { angle },
        perimeter: rounded(std::f64::consts::PI / 4.0 * (edges + diagonals / 2.0_f64.sqrt())),
        holes: component.holes(background),
        min_luma,
        mean_luma: rounded(total as f64 / n as f64),
        max_luma,
        touches_border: component.is_at_border(),
    }
}

/// To 1/1000; never a negative zero.
fn rounded(value: f64) -> f64 {
    libm::round(value * 1000.0) / 1000.0 + 0.0
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Cleaning;

    /// Pixels of a drawing: `#` is white, with the luma 200 plus its column; the rest is 10.
    fn drawn(rows: &[&str]) -> (Plane, Plane) {
        let size = Size::new(rows[0].len(), rows.len());
        let white: Vec<bool> = rows.iter().flat_map(|row| row.bytes().map(|c| c == b'#')).collect();
        let luma = white
            .iter()
            .enumerate()
            .map(|(i, &is_white)| if is_white { 200 + (i % size.width) as u8 } else { 10 });
        let mask = white.iter().map(|&is_white| if is_white { 255 } else { 0 }).collect();
        (Plane::from_vec(mask, size), Plane::from_vec(luma.collect(), size))
    }

    fn found(rows: &[&str], spec: &ObjectSpec) -> Found {
        let (mask, luma) = drawn(rows);
        find(mask.as_ref(), luma.as_ref(), spec)
    }

    fn text(mask: &Plane) -> Vec<String> {
        let row = |row: &[u8]| row.iter().map(|&v| if v == 255 { '#' } else { '.' }).collect();
        mask.as_ref().rows().map(row).collect()
    }

    #[test]
    fn objects_come_in_the_order_of_their_first_pixels() {
        let rows = ["..#.", "#..#", "#..#"];
        let boxes = |connectivity| {
            let spec = ObjectSpec { connectivity, ..ObjectSpec::default() };
            found(&rows, &spec).objects.iter().map(|o| o.rect().to_string()).collect::<Vec<_>>()
        };
        assert_eq!(boxes(Connectivity::Four), ["2,0,1,1", "0,1,1,2", "3,1,1,2"]);
        assert_eq!(boxes(Connectivity::Eight), ["2,0,2,3", "0,1,1,2"]);
    }

    #[test]
    fn numbers_of_a_ring_by_hand() {
        let ring = found(&[".....", ".###.", ".#.#.", ".###.", "....."], &ObjectSpec::default());
        let [ring] = ring.objects.as_slice() else { panic!("{ring:?}") };
        assert_eq!((ring.rect(), ring.area, ring.holes), (Rect::new(1, 1, 3, 3), 8, 1));
        assert_eq!((ring.cx, ring.cy, ring.angle), (2.5, 2.5, 0.0));
        // Sums of squares about the centre: 6 along each axis; 4 sqrt(6 / 8).
        assert_eq!((ring.length, ring.width), (3.464, 3.464));
        // 8 pairs share an edge and 4 a corner: pi / 4 * (16 - 8 + (16 - 4) / sqrt(2)).
        assert_eq!(ring.perimeter, 12.948);
        assert_eq!((ring.min_luma, ring.mean_luma, ring.max_luma), (201, 202.0, 203));
        assert!(!ring.touches_border);
    }

    #[test]
    fn directions_are_counter_clockwise_from_the_row() {
        let angle = |rows: &[&str]| found(rows, &ObjectSpec::default()).objects[0].angle;
        assert_eq!(angle(&["####"]), 0.0);
        assert_eq!(angle(&["#", "#", "#"]), 90.0);
        assert_eq!(angle(&["..#", ".#.", "#.."]), 45.0);
        assert_eq!(angle(&["#..", ".#.", "..#"]), -45.0);
        assert_eq!(angle(&["##", "##"]), 0.0);
        let line = &found(&["..#", ".#.", "#.."], &ObjectSpec::default()).objects[0];
        assert_eq!((line.length, line.width, line.touches_border), (4.619, 0.0, true));
    }

    #[test]
    fn black_objects_are_the_holes_of_white_ones() {
        let spec = ObjectSpec {
            colour: ObjectColour::Black,
            connectivity: Connectivity::Four,
            ..ObjectSpec::default()
        };
        let black = found(&["####", "#.##", "##.#", "####"], &spec);
        assert_eq!(
            black.objects.iter().map(|o| o.rect().to_string()).collect::<Vec<_>>(),
            ["1,1,1,1", "2,2,1,1"]
        );
        let white = found(&["####", "#.##", "##.#", "####"], &ObjectSpec::default());
        assert_eq!(white.objects[0].holes, 2);
        let four = ObjectSpec { connectivity: Connectivity::Four, ..ObjectSpec::default() };
        assert_eq!(
            found(&["####", "#.##", "##.#", "####"], &four).objects[0].holes,
            1,
            "they share a corner"
        );
    }

    #[test]
    fn opening_removes_what_no_square_fits_into_and_closing_fills_such_gaps() {
        let three = Some("3".parse().unwrap());
        let rows = [
            "............",
            "............",
            "..####.#....",
            "..####.#....",
            "..##.#.#....",
            "..####......",
            "............",
            "............",
        ];
        let cleaned = |cleaning| text(&found(&rows, &ObjectSpec { cleaning, ..ObjectSpec::default() }).mask);
        let open = cleaned(Cleaning { open: three, ..Cleaning::default() });
        assert!(open.iter().all(|row| !row.contains('#')), "{open:?}");
        let close = cleaned(Cleaning { close: three, ..Cleaning::default() });
        assert_eq!(close[2..6], ["..######....", "..######....", "..######....", "..####......"]);
        assert!([0, 1, 6, 7].iter().all(|&row| !close[row].contains('#')), "{close:?}");
        let filled = cleaned(Cleaning { fill_holes: true, ..Cleaning::default() });
        assert_eq!(filled[4], "..####.#....");
    }

    #[test]
    fn an_opening_ignores_what_is_outside_of_the_picture() {
        let three = Some("3".parse().unwrap());
        let spec =
            ObjectSpec { cleaning: Cleaning { open: three, ..Cleaning::default() }, ..ObjectSpec::default() };
        assert_eq!(
            text(&found(&["##..", "##..", "...#", "...#"], &spec).mask),
            ["##..", "##..", "....", "...."]
        );
    }

    #[test]
    fn the_largest_objects_are_kept_and_the_others_counted() {
        let rows = ["#.##.###.##"];
        let spec = |max| ObjectSpec { max: Some(max), area: "2..".parse().unwrap(), ..ObjectSpec::default() };
        let two = found(&rows, &spec(2));
        assert_eq!((two.objects.iter().map(|o| o.x).collect::<Vec<_>>(), two.more), (vec![5, 2], 1));
        let all = found(&rows, &spec(9));
        assert_eq!((all.objects.iter().map(|o| o.x).collect::<Vec<_>>(), all.more), (vec![5, 2, 9], 0));
    }
}
