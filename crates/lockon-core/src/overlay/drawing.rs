//! A drawing as plain data: a list of steps that a painter on any device can take.

use noto_sans_mono_bitmap::{RasterHeight, RasterizedChar, get_raster_width};

use super::canvas::{Area, BLACK, Colour, WHITE};
use super::style::WEIGHT;
use crate::frame::{Rect, Size};

/// A drawing for a picture of one size: steps that each mix something into the result of the steps before.
///
/// Its numbers are whole and its areas lie in the picture, so that painters on all devices leave the same
/// bytes: [`Canvas::paint`](super::Canvas::paint) in the host's memory, that of the CUDA backend in a
/// device's. It is made to be reused: each of [`results`](Self::results), [`selection`](Self::selection),
/// [`grid`](Self::grid), [`strip`](Self::strip) and [`divider`](Self::divider) starts with an empty list, and
/// after the first few frames none allocates.
pub struct Drawing {
    size: Size,
    steps: Vec<Step>,
    coverage: Vec<u8>,
    letters: Vec<Letter>,
    pub(super) notes: Notes,
}

/// Mixes something into the pixels of an area: an `over` with an opacity `o` of 0 to 255 makes of the value
/// `under` it `(under * (255 - o) + over * o + 127) / 255`, rounded down.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Step {
    /// Columns and rows of luma, never empty; all lie in the picture.
    pub area: Rect,
    /// The ink that is mixed into them.
    pub ink: Ink,
}

/// The ink that a step mixes into its area.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ink {
    /// A colour. A chroma sample that the area touches is mixed whole.
    Colour {
        /// The colour.
        colour: Colour,
        /// Its opacity.
        opacity: u8,
    },
    /// Luma alone: chroma stays, so that a coloured line beside the area keeps its samples.
    Luma {
        /// The luma.
        luma: u8,
        /// Its opacity.
        opacity: u8,
    },
    /// A letter, in luma alone: letters are finer than chroma samples.
    Letter {
        /// The luma.
        luma: u8,
        /// Index in [`Drawing::coverage`] of the letter's first opacity. The others follow, row by row, a row
        /// being `area.w / zoom` long.
        first: usize,
        /// Columns and rows of the picture that have the same opacity: the area's sides are multiples of it.
        zoom: usize,
    },
}

/// A letter whose opacities lie in the coverage.
struct Letter {
    code: char,
    /// Height of its font.
    height: usize,
    first: usize,
}

/// Working lists of the making of a drawing, kept for their memory.
#[derive(Default)]
pub(super) struct Notes {
    pub(super) marks: Vec<super::Mark>,
    /// The labels of the marks, one behind the other.
    pub(super) words: String,
    /// The areas of labels' plates.
    pub(super) taken: Vec<Area>,
}

impl Default for Drawing {
    /// Nothing, on a picture without pixels.
    fn default() -> Self {
        Self {
            size: Size::new(0, 0),
            steps: Vec::new(),
            coverage: Vec::new(),
            letters: Vec::new(),
            notes: Notes::default(),
        }
    }
}

impl Drawing {
    /// The size of the picture that it is for.
    pub fn size(&self) -> Size {
        self.size
    }

    /// The steps, in their order.
    pub fn steps(&self) -> &[Step] {
        &self.steps
    }

    /// The opacities of letters, to which steps refer.
    pub fn coverage(&self) -> &[u8] {
        &self.coverage
    }

    /// Clears the drawing and prepares it for pictures of `size`.
    pub fn start(&mut self, size: Size) {
        self.size = size;
        self.steps.clear();
        self.coverage.clear();
        self.letters.clear();
    }

    /// Mixes `colour` into the part of `area` that lies in the picture: not at all with `opacity` 0, fully
    /// with 255.
    pub fn fill(&mut self, area: Area, colour: Colour, opacity: u8) {
        self.add(area, Ink::Colour { colour, opacity });
    }

    /// Darkens the luma of the part of `area` that lies in the picture.
    pub fn shade(&mut self, area: Area, opacity: u8) {
        self.add(area, Ink::Luma { luma: BLACK.luma, opacity });
    }

    fn add(&mut self, area: Area, ink: Ink) {
        if let Some(area) = area.clipped(self.size) {
            self.steps.push(Step { area, ink });
        }
    }

    /// Writes a letter of a font at (`x`, `y`), each of whose pixels is `zoom` pixels wide and high. `raster`
    /// gives it, for which is asked once a list.
    ///
    /// # Panics
    /// If a part of it lies outside the picture.
    pub(super) fn write(
        &mut self,
        letter: char,
        font: RasterHeight,
        (x, y): (usize, usize),
        zoom: usize,
        raster: impl FnOnce() -> RasterizedChar,
    ) {
        let height = font.val();
        // There are some forty letters in the labels of a picture.
        let known = self.letters.iter().find(|known| known.code == letter && known.height == height);
        let first = known.map_or(self.coverage.len(), |known| known.first);
        let width = get_raster_width(WEIGHT, font);
        if known.is_none() {
            raster().rows().for_each(|row| self.coverage.extend_from_slice(row));
            // A device's painter has no bounds to stop at.
            assert_eq!(self.coverage.len(), first + width * height, "opacities of {letter:?}");
            self.letters.push(Letter { code: letter, height, first });
        }
        let area = Rect::new(x, y, width * zoom, height * zoom);
        assert!(area.is_inside(self.size), "letter at {area} of a {} picture", self.size);
        self.steps.push(Step { area, ink: Ink::Letter { luma: WHITE.luma, first, zoom } });
    }
}
