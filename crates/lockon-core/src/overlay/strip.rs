//! The strip below a displayed picture: the place in its video, and hints for the keys.

use noto_sans_mono_bitmap::get_raster_width;

use super::canvas::{Area, Colour};
use super::drawing::Drawing;
use super::style::{Style, WEIGHT};
use super::{KEPT, SELECTED};
use crate::frame::{Rect, Size};

const GROUND: Colour = Colour::rgb(28, 28, 32);
const TRACK: Colour = Colour::rgb(88, 88, 96);

/// The separator between two hints.
const BETWEEN: &str = "   ";

/// The contents of a strip.
#[derive(Debug, Default)]
pub struct Strip<'a> {
    /// The position of the picture in the video, from 0 to 1; `None` if there is no bar.
    pub place: Option<f64>,
    /// Other places on the bar, from 0 to 1, that have a mark.
    pub marks: &'a [f64],
    /// Text at the end of the bar, in several lengths, the longest first. Each should always have the same
    /// number of letters: the bar takes the rest.
    pub labels: &'a [String],
    /// Hints for the keys that can be used, the most important first: as many as fit are written.
    pub hints: &'a [&'a str],
}

/// The areas of a strip's parts, in pixels of the picture and the strip together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StripLayout {
    /// The picture and the strip.
    pub size: Size,
    /// The columns from the left end of the bar to behind its right end; `None` without a bar.
    pub bar: Option<(usize, usize)>,
    /// The index of the label that is written.
    label: Option<usize>,
    /// Height of a row of text, with the space around it.
    row: usize,
    /// Space above and below text.
    edge: usize,
    /// Space at the left and the right.
    side: usize,
}

impl StripLayout {
    /// The layout for a picture of that size.
    pub fn new(picture: Size, strip: &Strip<'_>) -> Self {
        let style = Style::for_height(picture.height);
        let letter = get_raster_width(WEIGHT, style.font) * style.zoom as usize;
        let edge = 2 * style.padding() as usize;
        let row = style.font.val() * style.zoom as usize + edge;
        // Even, so that the chroma of most formats ends with it.
        let size = Size::new(picture.width, picture.height + (2 * row + edge).next_multiple_of(2));
        // In small pictures every column counts.
        let side = if picture.width < 400 { edge } else { 3 * edge };
        let inside = picture.width.saturating_sub(2 * side);
        // A bar with less than a third of the width is too short to point at.
        let room = if strip.place.is_some() { inside - inside / 3 } else { inside };
        let width = |label: &String| label.chars().count() * letter + edge;
        let label = strip.labels.iter().position(|label| width(label) <= room);
        let text = label.map_or(0, |label| width(&strip.labels[label]));
        let bar = (side, side + inside.saturating_sub(text));
        let bar = Some(bar).filter(|_| strip.place.is_some() && bar.1 > bar.0);
        Self { size, bar, label, row, edge, side }
    }

    /// The position of a column along the bar, from 0 to 1; outside of the bar it is the nearer end.
    pub fn share(&self, x: f64) -> Option<f64> {
        let (left, right) = self.bar?;
        // The last column is the end.
        let length = (right - left - 1).max(1);
        Some(((x - left as f64) / length as f64).clamp(0.0, 1.0))
    }
}

impl Drawing {
    /// A strip below a picture, for a picture of [`StripLayout::size`].
    pub fn strip(&mut self, layout: &StripLayout, picture: Size, strip: &Strip<'_>) {
        let StripLayout { size, bar, row, edge, side, .. } = *layout;
        self.start(size);
        let style = Style::for_height(picture.height);
        let (line, top) = (style.line, picture.height as i64);
        let whole = Area { top, ..Area::of(Rect::whole(size)) };
        self.fill(whole, GROUND, 255);
        let first = picture.height + edge / 2;
        if let (Some((left, right)), Some(share)) = (bar, strip.place) {
            let (left, right) = (left as i64, right as i64);
            let middle = first as i64 + row as i64 / 2;
            let column =
                |share: f64| left + libm::round(share.clamp(0.0, 1.0) * (right - left - 1) as f64) as i64;
            let track = Area { left, right, top: middle - line, bottom: middle + line };
            self.fill(track, TRACK, 255);
            let at = column(share);
            self.fill(Area { right: at, ..track }, SELECTED, 255);
            let tall = row as i64 / 2 - style.padding();
            for mark in strip.marks.iter().map(|mark| column(*mark)) {
                let area = Area { left: mark - line / 2, right: mark - line / 2 + line, ..track };
                self.fill(Area { top: middle - tall, bottom: middle + tall, ..area }, KEPT, 255);
            }
            let knob = Area { left: at - 2 * line, right: at + 2 * line, ..track };
            self.fill(Area { top: middle - tall, bottom: middle + tall, ..knob }, SELECTED, 255);
        }
        let second = first + row;
        if let Some(label) = layout.label.map(|label| &strip.labels[label]) {
            let x = bar.map_or(side, |(_, right)| right + edge);
            style.write_letters(self, (x, first + edge / 2), label);
        }
        let letter = get_raster_width(WEIGHT, style.font) * style.zoom as usize;
        let room = size.width.saturating_sub(2 * side) / letter;
        let mut text = String::new();
        for hint in strip.hints {
            let between = if text.is_empty() { "" } else { BETWEEN };
            if text.chars().count() + between.len() + hint.chars().count() <= room {
                text += between;
                text += hint;
            }
        }
        style.write_letters(self, (side, second + edge / 2), &text);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels() -> [String; 2] {
        ["0:01.000 / 0:12.000  frame 25".into(), "0:01.000".into()]
    }

    #[test]
    fn a_strip_lies_below_the_picture_whatever_its_size() {
        let (labels, mut drawing) = (labels(), Drawing::default());
        for (width, height) in [(1, 1), (7, 5), (33, 21), (160, 120), (641, 363), (1920, 1080), (3840, 2160)]
        {
            let picture = Size::new(width, height);
            for place in [None, Some(0.0), Some(0.37), Some(1.0)] {
                let strip =
                    Strip { place, marks: &[0.0, 1.0], labels: &labels, hints: &["drag a box", "Esc: stop"] };
                let layout = StripLayout::new(picture, &strip);
                drawing.strip(&layout, picture, &strip);
                assert!(layout.size.height > height && drawing.size() == layout.size);
                for step in drawing.steps() {
                    assert!(step.area.y >= height && step.area.is_inside(layout.size), "{picture}: {step:?}");
                }
            }
        }
    }

    #[test]
    fn the_bar_takes_what_the_longest_label_that_fits_leaves() {
        let labels = labels();
        let strip = Strip { place: Some(0.5), labels: &labels, ..Strip::default() };
        for (width, label) in [(1280, Some(0)), (160, Some(1)), (60, None)] {
            let layout = StripLayout::new(Size::new(width, 120), &strip);
            let (left, right) = layout.bar.unwrap();
            assert_eq!(layout.label, label, "{width}");
            assert!(
                left < right && right < width && 3 * (right - left) >= width - 20,
                "{width}: {left} {right}"
            );
            // Its ends are reached by the mouse.
            let shares =
                [0.0, left as f64, (right - 1) as f64, width as f64].map(|x| layout.share(x).unwrap());
            assert_eq!(shares, [0.0, 0.0, 1.0, 1.0]);
        }
        assert_eq!(StripLayout::new(Size::new(640, 360), &Strip::default()).bar, None);
    }
}
