//! Named lines in the picture, across which tracks are counted.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use serde::Serialize;

use super::zone::{Placed, Places, in_picture, onto_edge};
use crate::error::{Error, Result};
use crate::frame::Size;

/// A straight line in the picture, from one point to another: `NAME=X,Y,X,Y`, in pixels.
///
/// It has a left and a right side, as they are seen in the picture by somebody who stands on the first point
/// and looks at the second.
#[derive(Debug, Clone, PartialEq)]
pub struct CountingLine {
    name: Arc<str>,
    ends: [[f64; 2]; 2],
}

/// The lines of a run.
pub type CountingLines = Places<CountingLine>;

/// The direction in which a line is crossed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Direction {
    /// From its left side to its right one: downwards over a line that is drawn from left to right.
    In,
    /// From its right side to its left one.
    Out,
}

impl Direction {
    /// Both of them.
    pub const ALL: [Self; 2] = [Self::In, Self::Out];

    /// Its name in results and messages.
    pub fn name(self) -> &'static str {
        match self {
            Self::In => "in",
            Self::Out => "out",
        }
    }
}

impl CountingLine {
    /// A line between these points, in pixels.
    ///
    /// # Errors
    /// `Value` for a name that is empty or has `=` or control characters, points beyond a million pixels, or
    /// ends that are less than a pixel apart.
    pub fn new(name: &str, ends: [[f64; 2]; 2]) -> Result<Self> {
        let line = Self { name: name.into(), ends };
        let bad = |expected: &str| Err(Error::value("line", &line.to_string(), expected));
        if name.is_empty() || name.contains('=') {
            return bad("a name is not empty and has no `=`");
        }
        if name.chars().any(char::is_control) {
            return bad("a name has no control characters");
        }
        if !line.ends.iter().flatten().all(|v| v.abs() <= 1e6) {
            return bad("its ends are numbers of pixels: X,Y,X,Y");
        }
        if line.length() < 1.0 {
            return bad("its ends are at least a pixel apart");
        }
        Ok(line)
    }

    /// Its name.
    pub fn name(&self) -> &Arc<str> {
        &self.name
    }

    /// Its two ends, x and y in pixels.
    pub fn ends(&self) -> [[f64; 2]; 2] {
        self.ends
    }

    /// How far a place is from the line, continued beyond its ends, in pixels: positive on its right side,
    /// negative on its left.
    pub fn side(&self, [x, y]: [f64; 2]) -> f64 {
        let [[ax, ay], [bx, by]] = self.ends;
        ((bx - ax) * (y - ay) - (by - ay) * (x - ax)) / self.length()
    }

    /// True if the straight path between two places on different sides passes between the line's ends, these
    /// included. An end within a pixel of the edge of pictures of that size, or beyond it, has no limit: a
    /// box can be cut by that edge.
    pub fn is_between_ends(&self, from: [f64; 2], to: [f64; 2], picture: Size) -> bool {
        let (before, after) = (self.side(from), self.side(to));
        let share = before / (before - after);
        let place: [f64; 2] = std::array::from_fn(|axis| from[axis] + share * (to[axis] - from[axis]));
        let [[ax, ay], [bx, by]] = self.ends;
        let (dx, dy) = (bx - ax, by - ay);
        let along = ((place[0] - ax) * dx + (place[1] - ay) * dy) / (dx * dx + dy * dy);
        let most = [picture.width as f64, picture.height as f64];
        let is_open = |end: [f64; 2]| {
            let [x, y] = onto_edge(end, most);
            x <= 0.0 || y <= 0.0 || x >= most[0] || y >= most[1]
        };
        (along >= 0.0 || is_open(self.ends[0])) && (along <= 1.0 || is_open(self.ends[1]))
    }

    /// True if no part of the line lies in the picture.
    pub fn is_outside(&self, picture: Size) -> bool {
        let most = [picture.width as f64, picture.height as f64];
        in_picture(self.ends[0], self.ends[1], most).is_none()
    }

    fn length(&self) -> f64 {
        let [[ax, ay], [bx, by]] = self.ends;
        ((bx - ax) * (bx - ax) + (by - ay) * (by - ay)).sqrt()
    }
}

impl Placed for CountingLine {
    fn name(&self) -> &Arc<str> {
        &self.name
    }

    fn scaled(&self, by: [f64; 2]) -> Self {
        Self { name: self.name.clone(), ends: self.ends.map(|[x, y]| [x * by[0], y * by[1]]) }
    }
}

impl fmt::Display for CountingLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [[ax, ay], [bx, by]] = self.ends;
        write!(f, "{}={ax},{ay},{bx},{by}", self.name)
    }
}

impl FromStr for CountingLine {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let bad = |expected: &str| Error::value("line", text, expected);
        let (name, numbers) = text
            .split_once('=')
            .filter(|(name, _)| !name.is_empty())
            .ok_or_else(|| bad("expected NAME=X,Y,X,Y: a name and the line's two ends, in pixels"))?;
        let number = |text: &str| text.trim().parse().ok().filter(|v: &f64| v.abs() <= 1e6);
        let numbers: Option<Vec<f64>> = numbers.split(',').map(number).collect();
        match numbers.as_deref() {
            Some(&[ax, ay, bx, by]) => Self::new(name, [[ax, ay], [bx, by]]),
            Some(_) => Err(bad("a line has two ends, each of two numbers: X,Y,X,Y")),
            None => Err(bad("its ends are numbers of pixels: X,Y,X,Y")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PICTURE: Size = Size::new(641, 479);

    fn line(text: &str) -> CountingLine {
        text.parse().unwrap()
    }

    #[test]
    fn the_right_side_is_the_one_that_is_seen_from_its_first_end() {
        // From left to right: below is right. Downwards: left in the picture is right.
        for (text, place, side) in [
            ("a=0,100,200,100", [50.0, 110.0], 10.0),
            ("a=0,100,200,100", [900.0, 97.0], -3.0),
            ("a=200,100,0,100", [50.0, 110.0], -10.0),
            ("a=100,0,100,50", [90.0, 20.0], 10.0),
            ("a=100,0,100,50", [100.0, 20.0], 0.0),
            ("a=0,0,30,40", [30.0, 0.0], -24.0),
        ] {
            assert_eq!(line(text).side(place), side, "{text} {place:?}");
        }
    }

    #[test]
    fn a_path_crosses_between_the_ends_and_beyond_ends_at_the_edge_of_the_picture() {
        let within = line("a=100,200,300,200");
        for (x, is_between) in [(99.0, false), (100.0, true), (200.0, true), (300.0, true), (301.0, false)] {
            assert_eq!(within.is_between_ends([x, 190.0], [x, 210.0], PICTURE), is_between, "{x}");
        }
        // It is where the path meets the line that counts.
        assert!(!within.is_between_ends([80.0, 190.0], [110.0, 220.0], PICTURE));
        assert!(within.is_between_ends([80.0, 190.0], [120.0, 200.5], PICTURE));
        for whole in ["a=0,200,641,200", "a=1,200,640,200", "a=-9,200,900,200"] {
            for x in [-20.0, 320.0, 700.0] {
                assert!(line(whole).is_between_ends([x, 190.0], [x, 210.0], PICTURE), "{whole} {x}");
            }
        }
    }

    #[test]
    fn a_line_is_outside_if_no_part_of_it_is_in_the_picture() {
        for (text, is_outside) in [
            ("a=-5,10,5,10", false),
            ("a=-5,10,0,10", true),
            ("a=700,0,700,90", true),
            ("a=-9,-9,999,999", false),
        ] {
            assert_eq!(line(text).is_outside(PICTURE), is_outside, "{text}");
        }
    }

    #[test]
    fn what_is_no_line_is_refused_and_what_is_comes_back() {
        for (text, said) in [
            ("1,2,3,4", "expected NAME="),
            ("=1,2,3,4", "expected NAME="),
            ("a=1,2,3", "two ends"),
            ("a=1,2,3,4,5,6", "two ends"),
            ("a=1,2,3,x", "numbers of pixels"),
            ("a=1,2,3,NaN", "numbers of pixels"),
            ("a=1,2,1.5,2.5", "at least a pixel apart"),
            ("a\n=0,0,9,9", "control characters"),
        ] {
            let error = text.parse::<CountingLine>().unwrap_err().to_string();
            assert!(error.contains(said), "{text}: {error}");
        }
        let text = "front door=0,0,10.5,-3";
        assert_eq!(line(text).to_string(), text);
        assert_eq!(line("a=0,0,1,2").scaled([2.0, 3.0]), line("a=0,0,2,6"));
    }
}
