//! Named parts of the picture, and how the zones of a run change.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use crate::error::{Error, Result};
use crate::frame::Size;

/// Maximum corners.
const MOST_CORNERS: usize = 1000;

/// A polygon in the picture: `NAME=X,Y,X,Y,X,Y`, a corner in each two numbers, in pixels. The last corner is
/// joined to the first. Where its edges cross, a place is inside that an odd number of edges lies around.
#[derive(Debug, Clone, PartialEq)]
pub struct Zone {
    name: Arc<str>,
    corners: Vec<[f64; 2]>,
}

impl Zone {
    /// A polygon with these corners, in pixels.
    ///
    /// # Errors
    /// `Value` for a name that is empty or has `=` or control characters, corners beyond a million pixels,
    /// fewer than 3 or more than 1000 corners, or a polygon without an area.
    pub fn new(name: &str, corners: Vec<[f64; 2]>) -> Result<Self> {
        let zone = Self { name: name.into(), corners };
        let bad = |expected: &str| Err(Error::value("zone", &zone.to_string(), expected));
        if name.is_empty() || name.contains('=') {
            return bad("a name is not empty and has no `=`");
        }
        if name.chars().any(char::is_control) {
            return bad("a name has no control characters");
        }
        if !zone.corners.iter().flatten().all(|v| v.abs() <= 1e6) {
            return bad("corners are numbers of pixels: X,Y,X,Y,X,Y");
        }
        if !(3..=MOST_CORNERS).contains(&zone.corners.len()) {
            return bad("a polygon has 3 corners or more, and 1000 at most");
        }
        if zone.area() == 0.0 {
            return bad("it has no area: its corners lie on one line, or its edges cross");
        }
        Ok(zone)
    }

    /// Its name.
    pub fn name(&self) -> &Arc<str> {
        &self.name
    }

    /// Its corners, x and y in pixels.
    pub fn corners(&self) -> &[[f64; 2]] {
        &self.corners
    }

    /// How far a place is from the zone's border in pictures of that size, in pixels: positive inside,
    /// negative outside.
    ///
    /// A zone that the picture's edge cuts off continues beyond it: a place out there counts as the nearest
    /// one in the picture, and a border of the zone along that edge, within a pixel of it, or beyond is none.
    /// A zone that has no other border is infinitely deep.
    pub fn depth(&self, [x, y]: [f64; 2], picture: Size) -> f64 {
        let most = [picture.width as f64, picture.height as f64];
        let [x, y] = [x.min(most[0] - 0.5).max(0.5), y.min(most[1] - 0.5).max(0.5)];
        let (mut is_inside, mut nearest) = (false, f64::INFINITY);
        for (a, b) in self.edges() {
            let (a, b) = (onto_edge(a, most), onto_edge(b, most));
            let ([ax, ay], [bx, by]) = (a, b);
            if (ay > y) != (by > y) && x < ax + (y - ay) / (by - ay) * (bx - ax) {
                is_inside = !is_inside;
            }
            let Some(([ax, ay], [bx, by])) = in_picture(a, b, most) else { continue };
            let (dx, dy) = (bx - ax, by - ay);
            let length = dx * dx + dy * dy;
            let share =
                if length > 0.0 { (((x - ax) * dx + (y - ay) * dy) / length).clamp(0.0, 1.0) } else { 0.0 };
            let (ex, ey) = (x - ax - share * dx, y - ay - share * dy);
            nearest = nearest.min(ex * ex + ey * ey);
        }
        if is_inside { nearest.sqrt() } else { -nearest.sqrt() }
    }

    /// True if a place is inside in pictures of that size, by the rule of [`Self::depth`].
    pub fn contains(&self, [x, y]: [f64; 2], picture: Size) -> bool {
        let most = [picture.width as f64, picture.height as f64];
        let [x, y] = [x.min(most[0] - 0.5).max(0.5), y.min(most[1] - 0.5).max(0.5)];
        let mut is_inside = false;
        for (a, b) in self.edges() {
            let ([ax, ay], [bx, by]) = (onto_edge(a, most), onto_edge(b, most));
            if (ay > y) != (by > y) && x < ax + (y - ay) / (by - ay) * (bx - ax) {
                is_inside = !is_inside;
            }
        }
        is_inside
    }

    /// Its area over the length of its border, in pixels: half of the width of a long strip, a quarter of a
    /// square's side.
    pub fn thickness(&self) -> f64 {
        let length: f64 =
            self.edges().map(|([ax, ay], [bx, by])| ((bx - ax).powi(2) + (by - ay).powi(2)).sqrt()).sum();
        self.area() / length
    }

    /// True if no place of the picture is in the zone, so that nothing can enter it.
    pub fn is_outside(&self, picture: Size) -> bool {
        let most = [picture.width as f64, picture.height as f64];
        // Cut by one edge of the picture after the other: I. E. Sutherland and G. W. Hodgman, "Reentrant
        // polygon clipping", 1974. Where edges cross, the area may cancel, so any corner that is left counts.
        let mut corners = self.corners.clone();
        for (axis, is_least) in [(0, true), (0, false), (1, true), (1, false)] {
            let limit = if is_least { 0.0 } else { most[axis] };
            let is_in = |corner: [f64; 2]| if is_least { corner[axis] > limit } else { corner[axis] < limit };
            let behind: Vec<_> = corners.iter().cycle().skip(1).take(corners.len()).copied().collect();
            let mut left = Vec::with_capacity(corners.len() + 1);
            for (&a, b) in corners.iter().zip(behind) {
                if is_in(a) {
                    left.push(a);
                }
                if is_in(a) != is_in(b) {
                    let share = (limit - a[axis]) / (b[axis] - a[axis]);
                    left.push(std::array::from_fn(|axis| a[axis] + share * (b[axis] - a[axis])));
                }
            }
            corners = left;
        }
        corners.len() < 3
    }

    /// The zone in pictures whose width and height are so many times as large.
    #[must_use]
    pub fn scaled(&self, by: [f64; 2]) -> Self {
        let corners = self.corners.iter().map(|[x, y]| [x * by[0], y * by[1]]).collect();
        Self { name: self.name.clone(), corners }
    }

    /// The parts of its border that lie in pictures of that size, without those along their edge.
    pub(crate) fn lines(&self, picture: Size) -> impl Iterator<Item = ([f64; 2], [f64; 2])> {
        let most = [picture.width as f64, picture.height as f64];
        self.edges().filter_map(move |(a, b)| in_picture(onto_edge(a, most), onto_edge(b, most), most))
    }

    fn area(&self) -> f64 {
        let twice: f64 = self.edges().map(|([ax, ay], [bx, by])| ax * by - bx * ay).sum();
        twice.abs() / 2.0
    }

    fn edges(&self) -> impl Iterator<Item = ([f64; 2], [f64; 2])> {
        let behind = self.corners.iter().cycle().skip(1);
        self.corners.iter().copied().zip(behind.copied())
    }
}

/// Something with a name that lies in the picture.
pub trait Placed: Clone {
    /// Its name.
    fn name(&self) -> &Arc<str>;

    /// The same in pictures whose width and height are so many times as large.
    #[must_use]
    fn scaled(&self, by: [f64; 2]) -> Self;
}

impl Placed for Zone {
    fn name(&self) -> &Arc<str> {
        &self.name
    }

    fn scaled(&self, by: [f64; 2]) -> Self {
        Self::scaled(self, by)
    }
}

/// The zones or lines of a run, in pixels of the pictures that come now.
///
/// Those that a run begins with are given for the pictures that come first. Where pictures change their size,
/// they are scaled with them.
#[derive(Debug, Clone, PartialEq)]
pub struct Places<T> {
    now: Vec<T>,
    /// The same in pixels of the first pictures: scaling back and forth changes nothing.
    given: Vec<T>,
    first: Option<Size>,
    size: Option<Size>,
}

/// The zones of a run.
pub type Zones = Places<Zone>;

impl<T> Default for Places<T> {
    fn default() -> Self {
        Self { now: Vec::new(), given: Vec::new(), first: None, size: None }
    }
}

impl<T: Placed> Places<T> {
    /// Maximum number that orders may add up to.
    pub const MOST: usize = 64;

    /// Zones or lines for the pictures that come first.
    pub fn new(given: Vec<T>) -> Self {
        Self { now: given.clone(), given, first: None, size: None }
    }

    /// Pictures have this size from now on. True if something has changed with it.
    pub fn fit(&mut self, size: Size) -> bool {
        if self.size.replace(size) == Some(size) {
            return false;
        }
        let by = self.scale();
        self.now = self.given.iter().map(|one| one.scaled(by)).collect();
        true
    }

    fn scale(&mut self) -> [f64; 2] {
        let Some(size) = self.size else { return [1.0; 2] };
        let first = *self.first.get_or_insert(size);
        [size.width as f64 / first.width as f64, size.height as f64 / first.height as f64]
    }

    /// All of them, in pixels of the pictures that come now.
    pub fn now(&self) -> &[T] {
        &self.now
    }

    /// Where the one of that name is in [`Self::now`].
    pub fn place(&self, name: &str) -> Option<usize> {
        self.now.iter().position(|one| **one.name() == *name)
    }

    /// Adds one, given for the pictures that come now, or puts it in the place of the one of its name; gives
    /// its place.
    pub fn set(&mut self, one: &T) -> usize {
        let given = one.scaled(self.scale().map(f64::recip));
        let place = self.place(one.name());
        if let Some(place) = place {
            (self.now[place], self.given[place]) = (one.clone(), given);
        } else {
            self.now.push(one.clone());
            self.given.push(given);
        }
        place.unwrap_or(self.now.len() - 1)
    }

    /// Removes the one of that name; gives the place that it had.
    pub fn remove(&mut self, name: &str) -> Option<usize> {
        let place = self.place(name)?;
        self.given.remove(place);
        self.now.remove(place);
        Some(place)
    }
}

/// A corner, moved onto the edge of the picture if it is within a pixel of it: the last pixel of 1080 is 1079
/// for some, and ends at 1080 for others.
pub(super) fn onto_edge(corner: [f64; 2], most: [f64; 2]) -> [f64; 2] {
    std::array::from_fn(|axis| match corner[axis] {
        at if at.abs() <= 1.0 => 0.0,
        at if (at - most[axis]).abs() <= 1.0 => most[axis],
        at => at,
    })
}

/// The part of a line from `a` to `b` that lies in the picture; none if it is outside or runs along its edge.
///
/// Y.-D. Liang and B. A. Barsky, "A New Concept and Method for Line Clipping", 1984.
pub(super) fn in_picture(a: [f64; 2], b: [f64; 2], most: [f64; 2]) -> Option<([f64; 2], [f64; 2])> {
    let (mut from, mut to) = (0.0_f64, 1.0_f64);
    for axis in 0..2 {
        let (start, end, most) = (a[axis], b[axis], most[axis]);
        if start.max(end) <= 0.0 || start.min(end) >= most {
            return None;
        }
        let length = end - start;
        if length != 0.0 {
            let (one, other) = (-start / length, (most - start) / length);
            (from, to) = (from.max(one.min(other)), to.min(one.max(other)));
        }
    }
    let at = |share: f64| std::array::from_fn(|axis| a[axis] + share * (b[axis] - a[axis]));
    (from < to).then(|| (at(from), at(to)))
}

impl fmt::Display for Zone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}=", self.name)?;
        for (index, [x, y]) in self.corners.iter().enumerate() {
            let comma = if index == 0 { "" } else { "," };
            write!(f, "{comma}{x},{y}")?;
        }
        Ok(())
    }
}

impl FromStr for Zone {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let bad = |expected: &str| Error::value("zone", text, expected);
        let (name, numbers) = text
            .split_once('=')
            .filter(|(name, _)| !name.is_empty())
            .ok_or_else(|| bad("expected NAME=X,Y,X,Y,X,Y: a name and three corners or more, in pixels"))?;
        let number = |text: &str| text.trim().parse().ok().filter(|v: &f64| v.abs() <= 1e6);
        let numbers: Option<Vec<f64>> = numbers.split(',').map(number).collect();
        let numbers = numbers.ok_or_else(|| bad("corners are numbers of pixels: X,Y,X,Y,X,Y"))?;
        let (corners, rest) = numbers.as_chunks::<2>();
        if !rest.is_empty() {
            return Err(bad("each corner has two numbers, X and Y"));
        }
        Self::new(name, corners.to_vec())
    }
}

/// How many may be in a zone before that is reported: `NAME=N`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ZoneLimit {
    /// The zone's name.
    pub zone: Arc<str>,
    /// The most that may be in it.
    pub most: u32,
}

impl fmt::Display for ZoneLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}={}", self.zone, self.most)
    }
}

impl FromStr for ZoneLimit {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let parts = text.split_once('=').filter(|(zone, _)| !zone.is_empty());
        let limit = parts.and_then(|(zone, most)| Some(Self { zone: zone.into(), most: most.parse().ok()? }));
        limit.ok_or_else(|| Error::value("zone-limit", text, "expected NAME=N: a zone's name and a number"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PICTURE: Size = Size::new(640, 480);

    fn zone(text: &str) -> Zone {
        text.parse().unwrap()
    }

    #[test]
    fn depth_is_the_distance_from_the_border_and_positive_inside() {
        let square = zone("a=10,10,30,10,30,30,10,30");
        for (place, depth) in [
            ([20.0, 20.0], 10.0),
            ([12.0, 20.0], 2.0),
            ([7.0, 20.0], -3.0),
            ([7.0, 6.0], -5.0),
            ([33.0, 34.0], -5.0),
            ([10.0, 15.0], 0.0),
        ] {
            assert_eq!(square.depth(place, PICTURE).abs(), f64::abs(depth), "{place:?}");
            assert!(square.depth(place, PICTURE) * depth >= 0.0, "{place:?}");
            assert!(depth == 0.0 || square.contains(place, PICTURE) == (depth > 0.0), "{place:?}");
        }
        // Whichever way round, and in the notch of one that is not convex.
        assert_eq!(zone("a=10,30,30,30,30,10,10,10").depth([12.0, 20.0], PICTURE), 2.0);
        let notched = zone("a=0,0,40,0,40,40,20,10,0,40");
        assert!(notched.depth([20.0, 20.0], PICTURE) < 0.0 && notched.depth([20.0, 5.0], PICTURE) > 0.0);
    }

    #[test]
    fn a_zone_is_outside_where_no_place_of_the_picture_is_in_it() {
        for (text, is_outside) in [
            ("a=10,10,20,10,20,20", false),
            ("a=-10,10,20,10,20,20", false),
            ("a=-90,-90,900,-90,900,900,-90,900", false),
            ("a=640,10,700,10,700,90", true),
            ("a=639,10,700,10,700,90", false),
            ("a=-50,10,0,10,0,90", true),
            ("a=10,480,90,480,90,990", true),
            // The box around it covers the picture's corner, the zone itself does not.
            ("a=700,400,700,700,560,700", true),
            ("a=700,400,700,700,400,440", false),
        ] {
            assert_eq!(zone(text).is_outside(PICTURE), is_outside, "{text}");
        }
    }

    #[test]
    fn zones_follow_the_pictures_and_are_replaced_by_name() {
        let mut zones = Zones::new(vec![zone("a=0,0,20,0,20,20"), zone("b=0,0,40,0,40,40")]);
        assert!(zones.fit(PICTURE) && !zones.fit(PICTURE));
        assert!(zones.fit(Size::new(320, 480)));
        assert_eq!(zones.now()[0], zone("a=0,0,10,0,10,20"));
        // Given for the pictures that come now.
        assert_eq!(zones.set(&zone("c=0,0,30,0,30,30")), 2);
        assert_eq!(zones.set(&zone("a=0,0,5,0,5,5")), 0);
        assert_eq!(zones.remove("b"), Some(1));
        assert_eq!(zones.remove("b"), None);
        zones.fit(PICTURE);
        assert_eq!(zones.now(), [zone("a=0,0,10,0,10,5"), zone("c=0,0,60,0,60,30")]);
    }

    #[test]
    fn the_edge_of_the_picture_is_no_border_of_a_zone() {
        // To the last pixel, to its end, and beyond.
        for floor in [
            "a=0,400,639,400,639,479,0,479",
            "a=0,400,640,400,640,480,0,480",
            "a=-9,400,700,400,700,485,-9,485",
        ] {
            for (place, depth) in [
                ([320.0, 470.0], 70.0),
                ([320.0, 480.0], 79.5),
                ([320.0, 900.0], 79.5),
                ([-30.0, 440.0], 40.0),
                ([700.0, 440.0], 40.0),
                ([320.0, 390.0], -10.0),
                ([-30.0, -50.0], -399.5),
            ] {
                assert_eq!(zone(floor).depth(place, PICTURE), depth, "{floor} {place:?}");
            }
        }
        let all = zone("a=0,0,640,0,640,480,0,480");
        assert_eq!(all.depth([640.0, 480.0], PICTURE), f64::INFINITY);
        // Where an edge leaves the picture, the part in it is a border.
        let corner = zone("a=540,480,640,380,900,900");
        assert!((corner.depth([640.0, 480.0], PICTURE) - 99.0 / 2.0_f64.sqrt()).abs() < 1e-9);
    }

    #[test]
    fn thickness_is_half_of_a_strip_and_a_quarter_of_a_square() {
        assert_eq!(zone("a=0,0,20,0,20,20,0,20").thickness(), 5.0);
        let strip = zone("a=0,0,1000,0,1000,4,0,4").thickness();
        assert!((1.9..2.0).contains(&strip), "{strip}");
        assert_eq!(zone("a=0,0,1,0,1,1,0,1").scaled([20.0, 20.0]), zone("a=0,0,20,0,20,20,0,20"));
    }

    #[test]
    fn what_is_no_polygon_is_refused_and_what_is_comes_back() {
        for (text, said) in [
            ("1,2,3,4,5,6", "expected NAME="),
            ("=1,2,3,4,5,6", "expected NAME="),
            ("a=1,2,3,4", "3 corners"),
            ("a=1,2,3,4,5", "two numbers"),
            ("a=1,2,3,4,5,x", "numbers of pixels"),
            ("a=1,2,3,4,5,inf", "numbers of pixels"),
            ("a=1,2,3,4,5,NaN", "numbers of pixels"),
            ("a=0,0,1,1,2,2", "it has no area"),
            ("a\n=0,0,1,0,2,2", "control characters"),
        ] {
            let error = text.parse::<Zone>().unwrap_err().to_string();
            assert!(error.contains(said), "{text}: {error}");
        }
        let text = "front door=0,0,10.5,0,-3,7";
        assert_eq!(zone(text).to_string(), text);
    }

    #[test]
    fn a_limit_is_a_zones_name_and_a_number() {
        for text in ["gate", "gate=", "=3", "gate=-1", "gate=x"] {
            assert!(text.parse::<ZoneLimit>().unwrap_err().to_string().contains("expected NAME=N"), "{text}");
        }
        let limit: ZoneLimit = "front door=0".parse().unwrap();
        assert_eq!((&*limit.zone, limit.most, limit.to_string()), ("front door", 0, "front door=0".into()));
    }
}
