//! Parts of the picture that have a name.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use crate::error::{Error, Result};

/// Most corners.
const MOST_CORNERS: usize = 1000;

/// A polygon in the picture: `NAME=X,Y,X,Y,X,Y`, a corner in each two numbers, in pixels. The last corner is
/// joined to the first. Where its edges cross, a place is inside that an odd number of edges lies around.
#[derive(Debug, Clone, PartialEq)]
pub struct Zone {
    name: Arc<str>,
    corners: Vec<[f64; 2]>,
}

impl Zone {
    /// What it is called.
    pub fn name(&self) -> &Arc<str> {
        &self.name
    }

    /// Its corners, x and y in pixels.
    pub fn corners(&self) -> &[[f64; 2]] {
        &self.corners
    }

    /// How far a place is from the border, in pixels: positive inside, negative outside.
    pub fn depth(&self, [x, y]: [f64; 2]) -> f64 {
        let (mut is_inside, mut nearest) = (false, f64::INFINITY);
        for ([ax, ay], [bx, by]) in self.edges() {
            if (ay > y) != (by > y) && x < ax + (y - ay) / (by - ay) * (bx - ax) {
                is_inside = !is_inside;
            }
            let (dx, dy) = (bx - ax, by - ay);
            let length = dx * dx + dy * dy;
            let share =
                if length > 0.0 { (((x - ax) * dx + (y - ay) * dy) / length).clamp(0.0, 1.0) } else { 0.0 };
            let (ex, ey) = (x - ax - share * dx, y - ay - share * dy);
            nearest = nearest.min(ex * ex + ey * ey);
        }
        if is_inside { nearest.sqrt() } else { -nearest.sqrt() }
    }

    /// Its area over the length of its border, in pixels: half of the width of a long strip, a quarter of a
    /// square's side.
    pub fn thickness(&self) -> f64 {
        let length: f64 =
            self.edges().map(|([ax, ay], [bx, by])| ((bx - ax).powi(2) + (by - ay).powi(2)).sqrt()).sum();
        self.area() / length
    }

    /// The zone in pictures whose width and height are so many times as large.
    #[must_use]
    pub fn scaled(&self, by: [f64; 2]) -> Self {
        let corners = self.corners.iter().map(|[x, y]| [x * by[0], y * by[1]]).collect();
        Self { name: self.name.clone(), corners }
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
        if name.chars().any(char::is_control) {
            return Err(bad("a name has no control characters"));
        }
        let number = |text: &str| text.trim().parse().ok().filter(|v: &f64| v.abs() <= 1e6);
        let numbers: Option<Vec<f64>> = numbers.split(',').map(number).collect();
        let numbers = numbers.ok_or_else(|| bad("corners are numbers of pixels: X,Y,X,Y,X,Y"))?;
        let (corners, rest) = numbers.as_chunks::<2>();
        if !rest.is_empty() {
            return Err(bad("each corner has two numbers, X and Y"));
        }
        if !(3..=MOST_CORNERS).contains(&corners.len()) {
            return Err(bad("a polygon has 3 corners or more, and 1000 at most"));
        }
        let zone = Self { name: name.into(), corners: corners.to_vec() };
        if zone.area() == 0.0 {
            Err(bad("it has no area: its corners lie on one line, or its edges cross"))
        } else {
            Ok(zone)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
            assert_eq!(square.depth(place).abs(), f64::abs(depth), "{place:?}");
            assert!(square.depth(place) * depth >= 0.0, "{place:?}");
        }
        // Whichever way round, and in the notch of one that is not convex.
        assert_eq!(zone("a=10,30,30,30,30,10,10,10").depth([12.0, 20.0]), 2.0);
        let notched = zone("a=0,0,40,0,40,40,20,10,0,40");
        assert!(notched.depth([20.0, 20.0]) < 0.0 && notched.depth([20.0, 5.0]) > 0.0);
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
}
