//! Outlines of known looks, and what a device that keeps a picture says of where they are seen in it.
//!
//! A tracker looks for outlines in the whole picture ([`tracker`](crate::tracker) says why). On a device that
//! can do so, a shrunken picture is searched where it lies, and the host gets the best places alone.
//!
//! After S. Hinterstoisser et al., "Gradient Response Maps for Real-Time Detection of Textureless Objects",
//! 2012 (LINE-2D). All of it is in integers, so every device finds the same places:
//!
//! - A pixel that is not at the border of the shrunken picture has an edge if its gradient, which is the
//!   difference of its neighbours across and down, has at least [`LEAST_GRADIENT`] as its length: the longer
//!   of the two and half of the shorter one, rounded down. [`direction`] says which direction the edge has.
//! - The response of a direction at such a pixel is the largest of [`OWN`], [`NEXT`] and [`SECOND`] among the
//!   three by three pixels about it: for edges of that direction, of the ones beside it, and of those after
//!   these. At the border it is 0.
//! - The score of a place is the sum of the responses of an outline's edges, each of its direction. Places
//!   have even coordinates.

/// Directions of edges, which are the same to both sides.
pub const DIRECTIONS: usize = 8;

/// The shortest gradient that is an edge, in grey levels over two pixels.
pub const LEAST_GRADIENT: i16 = 8;

/// The response to an edge that has the direction that is looked for.
pub const OWN: u8 = 4;
/// The response to an edge in a direction beside that.
pub const NEXT: u8 = 3;
/// The response to an edge in a direction after these.
pub const SECOND: u8 = 1;

/// The most edges of an outline: a score fits into a byte.
pub const MOST_EDGES: usize = 63;
const _: () = assert!(MOST_EDGES * (OWN as usize) < 256);

/// Places that are given for an outline.
pub const PLACES: usize = 2;

/// An edge of an outline: its place from the top left, and its direction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Edge {
    /// Pixels of the shrunken picture to the right.
    pub x: u16,
    /// And down.
    pub y: u16,
    /// From 0, less than [`DIRECTIONS`].
    pub direction: u8,
}

/// The edges of a look at some size and in some direction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outline {
    /// Up to [`MOST_EDGES`].
    pub edges: Vec<Edge>,
    /// In pixels of the shrunken picture.
    pub width: usize,
    /// In pixels of the shrunken picture.
    pub height: usize,
}

impl Outline {
    /// Columns and rows of places at which it lies in a shrunken picture of that width and height.
    pub fn places_in(&self, (width, height): (usize, usize)) -> (usize, usize) {
        ((width - self.width) / 2 + 1, (height - self.height) / 2 + 1)
    }

    /// Rows in a band. Of each band, the best place of each column is kept, the first of equal ones.
    pub fn band(&self) -> usize {
        (self.height / 4).clamp(2, 255)
    }

    /// Columns and rows between places: a place as near to a better one is left out.
    pub fn apart(&self) -> (usize, usize) {
        (self.width / 4, self.height / 4)
    }
}

/// A place at which an outline is seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Peak {
    /// Its score, from 1.
    pub score: u8,
    /// Half of its vertical coordinate.
    pub row: usize,
    /// Half of its horizontal coordinate.
    pub column: usize,
}

/// The best places of an outline, the best first; of equal ones the one of the first band, in that the first
/// column.
pub type Peaks = [Option<Peak>; PLACES];

/// A picture on a device that finds outlines in it.
pub trait OutlineFinder: Sync {
    /// Writes for each outline its best places in luma that is shrunken by this factor, as
    /// [`Surface::shrink`](super::surface::Surface::shrink) does it. There are none if the device fails.
    ///
    /// # Panics
    /// If there are not as many `peaks` as outlines, or if an outline does not lie in the shrunken picture.
    fn find_outlines(&self, factor: usize, outlines: &[&Outline], peaks: &mut [Peaks]);
}

/// The direction of a gradient, from its differences across and down: 0 for a vertical edge, and on in steps
/// of 22.5 degrees. The tangents of the limits between them, 11.25, 33.75, 56.25 and 78.75 degrees, are about
/// 1/5, 2/3, 3/2 and 5.
#[inline(always)]
pub fn direction(across: i16, down: i16) -> u8 {
    // The opposite direction is the same.
    let (x, y) = if down < 0 { (-across, -down) } else { (across, down) };
    let a = x.abs();
    let steps = u8::from(5 * y > a) + u8::from(3 * y > 2 * a) + u8::from(2 * y > 3 * a) + u8::from(y > 5 * a);
    if x < 0 { (DIRECTIONS as u8 - steps) % DIRECTIONS as u8 } else { steps }
}

/// True if a gradient is long enough for an edge.
#[inline(always)]
pub fn is_edge(across: i16, down: i16) -> bool {
    let (a, b) = (across.abs(), down.abs());
    a.max(b) + a.min(b) / 2 >= LEAST_GRADIENT
}
