//! Objects: the connected components of a mask.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::as_text;
use crate::error::{Error, Result};
use crate::frame::Size;

/// How the objects of a mask are found, and which of them are reported.
///
/// In records it has the names and texts of the options: `{"connect":"4","open":"3","area":"20.."}`. What is
/// left out has its default.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "Written", into = "Written")]
pub struct ObjectSpec {
    /// Objects are found and reported. Otherwise the mask is only cleaned.
    pub reports: bool,
    /// The colour of the objects in the mask.
    pub colour: ObjectColour,
    /// The neighbours that belong to one object.
    pub connectivity: Connectivity,
    /// Changes of the mask before objects are found.
    pub cleaning: Cleaning,
    /// Areas of reported objects, in pixels.
    pub area: Bounds<usize>,
    /// Sizes of the boxes of reported objects.
    pub size: Bounds<Size>,
    /// Maximum reported objects: the largest of them.
    pub max: Option<usize>,
}

/// An [`ObjectSpec`] as it is written: flat, so that unknown names can be refused.
#[derive(Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Written {
    #[serde(skip_serializing_if = "Clone::clone")]
    reports: bool,
    #[serde(with = "as_text")]
    colour: ObjectColour,
    #[serde(with = "as_text")]
    connect: Connectivity,
    #[serde(with = "as_text::maybe", skip_serializing_if = "Option::is_none")]
    open: Option<Square>,
    #[serde(with = "as_text::maybe", skip_serializing_if = "Option::is_none")]
    close: Option<Square>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    fill_holes: bool,
    #[serde(with = "as_text::maybe", skip_serializing_if = "Option::is_none")]
    area: Option<Bounds<usize>>,
    #[serde(with = "as_text::maybe", skip_serializing_if = "Option::is_none")]
    size: Option<Bounds<Size>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    max: Option<usize>,
}

/// The colour of objects in a mask: `white` or `black`. The other colour is the background.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ObjectColour {
    /// Pixels of 128 or more, as in OpenCV and scikit-image.
    #[default]
    White,
    /// Pixels below 128: ink on paper.
    Black,
}

/// The neighbours of a pixel that belong to its object: `4` (beside, above and below it) or `8` (those and
/// the diagonal ones). The background is connected by the other number, so that a line of either separates
/// what lies on both of its sides.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Connectivity {
    /// Neighbours share an edge.
    Four,
    /// Neighbours share an edge or a corner.
    #[default]
    Eight,
}

/// Changes of a mask before its objects are found, in this order. Pixels outside of the picture are ignored,
/// as in OpenCV's `morphologyEx`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Cleaning {
    /// Opening by a square: removes parts of objects that no square of this side fits into.
    pub open: Option<Square>,
    /// Closing by a square: fills gaps that no square of this side fits into.
    pub close: Option<Square>,
    /// Fills parts of the background that objects enclose.
    pub fill_holes: bool,
}

/// The side of a square in pixels: odd, 3 to 255.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Square(u8);

/// An inclusive range, `MIN..MAX`; each end may be left out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bounds<T> {
    /// The least value, if there is one.
    pub min: Option<T>,
    /// The greatest value, if there is one.
    pub max: Option<T>,
}

impl Default for ObjectSpec {
    /// White objects, joined across corners, all of them.
    fn default() -> Self {
        Self {
            reports: true,
            colour: ObjectColour::default(),
            connectivity: Connectivity::default(),
            cleaning: Cleaning::default(),
            area: Bounds::default(),
            size: Bounds::default(),
            max: None,
        }
    }
}

impl fmt::Display for ObjectSpec {
    /// In words, for people.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { reports, colour, connectivity, cleaning, area, size, max } = self;
        let Cleaning { open, close, fill_holes } = cleaning;
        f.write_str(if *reports { "" } else { "only cleaned, " })?;
        write!(f, "{colour}, {connectivity} neighbours")?;
        open.iter().try_for_each(|square| write!(f, ", open {square}"))?;
        close.iter().try_for_each(|square| write!(f, ", close {square}"))?;
        f.write_str(if *fill_holes { ", holes filled" } else { "" })?;
        area.if_any().iter().try_for_each(|area| write!(f, ", area {area}"))?;
        size.if_any().iter().try_for_each(|size| write!(f, ", size {size}"))?;
        max.iter().try_for_each(|max| write!(f, ", at most {max}"))
    }
}

impl Default for Written {
    fn default() -> Self {
        ObjectSpec::default().into()
    }
}

impl From<ObjectSpec> for Written {
    fn from(spec: ObjectSpec) -> Self {
        let ObjectSpec { reports, colour, connectivity, cleaning, area, size, max } = spec;
        let Cleaning { open, close, fill_holes } = cleaning;
        let (connect, area, size) = (connectivity, area.if_any(), size.if_any());
        Self { reports, colour, connect, open, close, fill_holes, area, size, max }
    }
}

impl From<Written> for ObjectSpec {
    fn from(written: Written) -> Self {
        let Written { reports, colour, connect, open, close, fill_holes, area, size, max } = written;
        let cleaning = Cleaning { open, close, fill_holes };
        let (area, size) = (area.unwrap_or_default(), size.unwrap_or_default());
        Self { reports, colour, connectivity: connect, cleaning, area, size, max }
    }
}

impl<T> Default for Bounds<T> {
    fn default() -> Self {
        Self { min: None, max: None }
    }
}

impl<T: Copy> Bounds<T> {
    /// The range, if it has an end.
    fn if_any(self) -> Option<Self> {
        (self.min.is_some() || self.max.is_some()).then_some(self)
    }
}

impl Bounds<usize> {
    /// True if a number lies in the range.
    pub fn has(&self, number: usize) -> bool {
        self.min.is_none_or(|min| number >= min) && self.max.is_none_or(|max| number <= max)
    }
}

impl Bounds<Size> {
    /// True if width and height both lie in the range.
    pub fn has(&self, size: Size) -> bool {
        self.min.is_none_or(|min| min.fits_in(size)) && self.max.is_none_or(|max| size.fits_in(max))
    }
}

impl Cleaning {
    /// True if it changes nothing.
    pub fn is_none(self) -> bool {
        self == Self::default()
    }
}

impl Square {
    /// Pixels along a side.
    pub fn side(self) -> usize {
        usize::from(self.0)
    }

    /// Pixels on each side of its centre.
    pub fn radius(self) -> usize {
        self.side() / 2
    }
}

impl FromStr for Square {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let side = text.parse().ok().filter(|side| side % 2 == 1 && *side >= 3);
        let bad = || Error::value("open or close", text, "expected an odd number from 3 to 255");
        side.map(Self).ok_or_else(bad)
    }
}

impl fmt::Display for Square {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl ObjectColour {
    /// All that can be typed.
    pub const ALL: [Self; 2] = [Self::White, Self::Black];

    /// As it is typed.
    pub fn name(self) -> &'static str {
        match self {
            Self::White => "white",
            Self::Black => "black",
        }
    }
}

impl FromStr for ObjectColour {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let known = Self::ALL.into_iter().find(|colour| colour.name() == text);
        known.ok_or_else(|| Error::value("object-colour", text, "expected white or black"))
    }
}

impl fmt::Display for ObjectColour {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl Connectivity {
    /// All that can be typed.
    pub const ALL: [Self; 2] = [Self::Four, Self::Eight];

    /// As it is typed.
    pub fn name(self) -> &'static str {
        match self {
            Self::Four => "4",
            Self::Eight => "8",
        }
    }

    /// The connectivity of the background of such objects.
    #[must_use]
    pub fn of_background(self) -> Self {
        match self {
            Self::Four => Self::Eight,
            Self::Eight => Self::Four,
        }
    }
}

impl FromStr for Connectivity {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let known = Self::ALL.into_iter().find(|connectivity| connectivity.name() == text);
        known.ok_or_else(|| Error::value("connect", text, "expected 4 or 8"))
    }
}

impl fmt::Display for Connectivity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Bounds<usize> {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let bad = |expected: &str| Error::value("object-area", text, expected);
        let bounds =
            ends(text).ok_or_else(|| bad("expected MIN..MAX in pixels, such as 20..500, 20.. or ..500"))?;
        match bounds {
            Self { min: Some(min), max: Some(max) } if min > max => {
                Err(bad("the range ends before it begins"))
            }
            _ => Ok(bounds),
        }
    }
}

impl FromStr for Bounds<Size> {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let bad = |expected: &str| Error::value("object-size", text, expected);
        let expected = "expected WxH..WxH in pixels, such as 5x8..40x60, 5x8.. or ..40x60";
        let bounds = ends(text).ok_or_else(|| bad(expected))?;
        match bounds {
            Self { min: Some(min), max: Some(max) } if !min.fits_in(max) => {
                Err(bad("the largest size is less than the smallest one"))
            }
            _ => Ok(bounds),
        }
    }
}

/// The ends of `MIN..MAX`, if there is at least one.
fn ends<T: FromStr + Copy>(text: &str) -> Option<Bounds<T>> {
    let (min, max) = text.split_once("..")?;
    let end = |text: &str| if text.is_empty() { Some(None) } else { text.parse().ok().map(Some) };
    Bounds { min: end(min)?, max: end(max)? }.if_any()
}

impl<T: fmt::Display> fmt::Display for Bounds<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.min.as_ref().map_or(Ok(()), |min| min.fmt(f))?;
        f.write_str("..")?;
        self.max.as_ref().map_or(Ok(()), |max| max.fmt(f))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_of_objects_print_as_they_were_typed() {
        for text in ["20..500", "20..", "..500", "7..7"] {
            assert_eq!(text.parse::<Bounds<usize>>().unwrap().to_string(), text);
        }
        for text in ["5x8..40x60", "5x8..", "..40x60"] {
            assert_eq!(text.parse::<Bounds<Size>>().unwrap().to_string(), text);
        }
        assert_eq!("4".parse::<Connectivity>().unwrap().to_string(), "4");
        assert_eq!("black".parse::<ObjectColour>().unwrap().to_string(), "black");
        assert_eq!("255".parse::<Square>().unwrap().to_string(), "255");
    }

    #[test]
    fn a_spec_comes_back_from_its_record_and_is_told_in_words() {
        let all = r#"{"reports":false,"colour":"black","connect":"4","open":"3","close":"5","fill_holes":true,"area":"20..","size":"..9x9","max":7}"#;
        let few = r#"{"colour":"white","connect":"8"}"#;
        for (text, words) in [
            (
                all,
                "only cleaned, black, 4 neighbours, open 3, close 5, holes filled, area 20.., size ..9x9, at most 7",
            ),
            (few, "white, 8 neighbours"),
        ] {
            let spec: ObjectSpec = serde_json::from_str(text).unwrap();
            assert_eq!(serde_json::to_string(&spec).unwrap(), text);
            assert_eq!(spec.to_string(), words);
        }
        assert_eq!(serde_json::from_str::<ObjectSpec>("{}").unwrap(), ObjectSpec::default());
        for text in [r#"{"conect":"4"}"#, r#"{"open":"4"}"#, r#"{"area":"9..3"}"#] {
            assert!(serde_json::from_str::<ObjectSpec>(text).is_err(), "{text}");
        }
    }

    #[test]
    fn impossible_values_of_objects_are_refused_with_what_is_expected() {
        for (said, says) in [
            ("20".parse::<Bounds<usize>>().map(|_| ()), "such as 20..500"),
            ("..".parse::<Bounds<usize>>().map(|_| ()), "such as 20..500"),
            ("9..3".parse::<Bounds<usize>>().map(|_| ()), "ends before it begins"),
            ("-3..9".parse::<Bounds<usize>>().map(|_| ()), "such as 20..500"),
            ("3..9".parse::<Bounds<Size>>().map(|_| ()), "such as 5x8..40x60"),
            ("9x9..20x8".parse::<Bounds<Size>>().map(|_| ()), "less than the smallest"),
            ("6".parse::<Connectivity>().map(|_| ()), "expected 4 or 8"),
            ("blue".parse::<ObjectColour>().map(|_| ()), "expected white or black"),
            ("4".parse::<Square>().map(|_| ()), "an odd number from 3 to 255"),
            ("1".parse::<Square>().map(|_| ()), "an odd number from 3 to 255"),
            ("257".parse::<Square>().map(|_| ()), "an odd number from 3 to 255"),
        ] {
            let said = said.unwrap_err().to_string();
            assert!(said.contains(says), "{said}");
        }
    }

    #[test]
    fn both_ends_of_a_range_belong_to_it() {
        let area: Bounds<usize> = "3..5".parse().unwrap();
        assert_eq!([2, 3, 5, 6].map(|area_of| area.has(area_of)), [false, true, true, false]);
        let size: Bounds<Size> = "3x2..5x9".parse().unwrap();
        let has = |w, h| size.has(Size::new(w, h));
        assert!(has(3, 2) && has(5, 9) && !has(2, 5) && !has(3, 1) && !has(6, 5) && !has(4, 10));
    }
}
