//! Boxes, dots and labels, in sizes that follow the picture's.

use noto_sans_mono_bitmap::{FontWeight, RasterHeight, RasterizedChar, get_raster, get_raster_width};

use super::canvas::{Area, BLACK, Colour, WHITE};
use super::drawing::Drawing;
use super::look::LineStyle;
use crate::frame::Size;

/// All letters have it.
pub(super) const WEIGHT: FontWeight = FontWeight::Bold;

/// Sizes of the drawn elements, in pixels of the picture.
pub(super) struct Style {
    /// Width of a line.
    pub(super) line: i64,
    /// Font that is nearest to the wanted height when its pixels are `zoom` pixels wide.
    pub(super) font: RasterHeight,
    pub(super) zoom: i64,
    /// Empty space around the text of a label.
    padding: i64,
}

/// The part of a label that fits into a picture.
struct Text {
    /// Its length in bytes.
    letters: usize,
    /// Size of the plate behind the label.
    width: i64,
    height: i64,
}

impl Style {
    /// A line is 1/360 of the picture's height and text 1/34, but never too small to see.
    pub(super) fn for_height(height: usize) -> Self {
        let height = height as i64;
        let wanted = (height / 34).max(16);
        let fonts = [RasterHeight::Size32, RasterHeight::Size24, RasterHeight::Size20, RasterHeight::Size16];
        // The largest font first: of equals, the one that is enlarged least looks best.
        let (font, zoom) = fonts
            .into_iter()
            .map(|font| (font, ((wanted + font.val() as i64 / 2) / font.val() as i64).max(1)))
            .min_by_key(|(font, zoom)| (font.val() as i64 * zoom - wanted).abs())
            .expect("there are fonts");
        let line = ((height + 180) / 360).max(2);
        Self { line, font, zoom, padding: (font.val() as i64 * zoom / 8).max(2) }
    }

    /// A dot of a trail with a shadow for bright pictures, fainter with `age` from 0 to 1.
    pub(super) fn draw_dot(&self, drawing: &mut Drawing, x: f64, y: f64, colour: Colour, age: f64) {
        // i32 holds every picture, and what is beyond it saturates.
        let (x, y) = (i64::from(libm::round(x) as i32), i64::from(libm::round(y) as i32));
        let opacity = 255.0 - 175.0 * age.clamp(0.0, 1.0);
        // Thinner than two lines it is not seen in moving pictures.
        let area =
            Area { left: x - self.line, top: y - self.line, right: x + self.line, bottom: y + self.line };
        drawing.shade(area.grown((self.line / 2).max(1)), (opacity * 0.6) as u8);
        drawing.fill(area, colour, opacity as u8);
    }

    /// A line of dots, every other one dark.
    pub(super) fn draw_dotted(&self, drawing: &mut Drawing, (a, b): ([f64; 2], [f64; 2]), colour: Colour) {
        let length = libm::hypot(b[0] - a[0], b[1] - a[1]);
        let step = (2 * self.line) as f64;
        let dots = (length / step) as usize;
        for dot in 0..=dots {
            let share = if dots > 0 { dot as f64 / dots as f64 } else { 0.0 };
            let at = |axis: usize| libm::round(a[axis] + share * (b[axis] - a[axis])) as i64;
            let (left, top) = (at(0) - self.line / 2, at(1) - self.line / 2);
            let area = Area { left, top, right: left + self.line, bottom: top + self.line };
            drawing.fill(
                area,
                if dot % 2 == 0 { colour } else { BLACK },
                if dot % 2 == 0 { 255 } else { 140 },
            );
        }
    }

    /// A line from one place to another, as dots without gaps so that it needs no more than areas, and from
    /// its middle an arrow to the right side, to which `in` leads.
    pub(super) fn draw_line(&self, drawing: &mut Drawing, [a, b]: [[f64; 2]; 2], colour: Colour) {
        let (dx, dy) = (b[0] - a[0], b[1] - a[1]);
        let length = libm::hypot(dx, dy);
        let middle = [0, 1].map(|axis| f64::midpoint(a[axis], b[axis]));
        let far = (6 * self.line) as f64 / length;
        // To the right, and from there half way back on both sides.
        let tip = [middle[0] - dy * far, middle[1] + dx * far];
        let wing = |side: f64| {
            let (x, y) = (dx * far / 2.0 * side, dy * far / 2.0 * side);
            [f64::midpoint(middle[0], tip[0]) + x, f64::midpoint(middle[1], tip[1]) + y]
        };
        let lines = [(a, b), (middle, tip), (wing(1.0), tip), (wing(-1.0), tip)];
        for (colour, grown) in [(BLACK, (self.line + 1) / 2), (colour, 0)] {
            for (from, to) in lines {
                self.draw_solid(drawing, from, to, |drawing, area| {
                    drawing.fill(area.grown(grown), colour, 255);
                });
            }
        }
    }

    /// A line of areas that touch each other. Parts outside of the picture are skipped.
    fn draw_solid(
        &self,
        drawing: &mut Drawing,
        from: [f64; 2],
        to: [f64; 2],
        mut draw: impl FnMut(&mut Drawing, Area),
    ) {
        let Size { width, height } = drawing.size();
        let longest = (to[0] - from[0]).abs().max((to[1] - from[1]).abs());
        // A line of which a thousandth lies in the picture is as good as none.
        let steps = (longest / self.line as f64).ceil().clamp(1.0, 100_000.0) as usize;
        for step in 0..=steps {
            let share = step as f64 / steps as f64;
            let at = |axis: usize| libm::round(from[axis] + share * (to[axis] - from[axis])) as i64;
            let (left, top) = (at(0) - self.line / 2, at(1) - self.line / 2);
            let area = Area { left, top, right: left + self.line, bottom: top + self.line };
            if area.right > 0 && area.bottom > 0 && left < width as i64 && top < height as i64 {
                draw(drawing, area);
            }
        }
    }

    /// A frame just outside `area`, so that the found object stays visible, with a shadow for bright
    /// pictures.
    pub(super) fn draw_box(&self, drawing: &mut Drawing, area: Area, colour: Colour, kind: LineStyle) {
        let outline = self.outline(area, drawing.size());
        self.dashes(outline, kind, &mut |dash| drawing.shade(dash.grown(self.line / 2), 90));
        self.dashes(outline, kind, &mut |dash| drawing.fill(dash, colour, 255));
    }

    /// Draws each dash of the lines inside an outline; solid lines are four of them.
    fn dashes(&self, outline: Area, kind: LineStyle, draw: &mut dyn FnMut(Area)) {
        let line = self.line;
        let (dash, gap) =
            if kind == LineStyle::LongDashes { (12 * line, 3 * line) } else { (5 * line, 4 * line) };
        let mut side = |from: i64, to: i64, across: i64, is_row: bool| {
            let mut draw = |start: i64, end: i64| {
                draw(if is_row {
                    Area { left: start, top: across, right: end, bottom: across + line }
                } else {
                    Area { left: across, top: start, right: across + line, bottom: end }
                });
            };
            if kind == LineStyle::Solid {
                return draw(from, to);
            }
            // Both halves of a side go from the corner inwards, so that dashes meet in every corner.
            let half = (to - from + 1) / 2;
            let mut start = 0;
            while start < half {
                let end = (start + dash).min(half);
                draw(from + start, from + end);
                draw(to - end, to - start);
                start = end + gap;
            }
        };
        side(outline.left, outline.right, outline.top, true);
        side(outline.left, outline.right, outline.bottom - line, true);
        side(outline.top, outline.bottom, outline.left, false);
        side(outline.top, outline.bottom, outline.right - line, false);
    }

    /// Returns the outer edge of the frame around `area`: moved into the picture where only the line would be
    /// outside, and cut off where it is far outside, so that the dashes of a line of a million pixels are not
    /// counted.
    fn outline(&self, area: Area, size: Size) -> Area {
        let (width, height) = (size.width as i64, size.height as i64);
        let far = 100 * self.line;
        let edges = area.grown(self.line);
        let start =
            |edge: i64, inside: i64, size: i64| edge.clamp(if inside >= 0 { 0 } else { -far }, size + far);
        let end = |edge: i64, inside: i64, size: i64| {
            edge.clamp(-far, if inside <= size { size } else { size + far })
        };
        Area {
            left: start(edges.left, area.left, width),
            top: start(edges.top, area.top, height),
            right: end(edges.right, area.right, width),
            bottom: end(edges.bottom, area.bottom, height),
        }
    }

    /// White text on a dark plate beside `area`, where it fits and is not `taken` by another plate, which it
    /// then is.
    pub(super) fn draw_label(
        &self,
        drawing: &mut Drawing,
        area: Area,
        colour: Colour,
        label: &str,
        taken: &mut Vec<Area>,
    ) {
        let Some(Text { letters, width, height }) = self.measure(drawing.size(), label) else { return };
        let (picture_width, picture_height) = (drawing.size().width as i64, drawing.size().height as i64);
        let outline = self.outline(area, drawing.size());
        let left = outline.left.clamp(0, picture_width - width);
        let plate = |top: i64| {
            let top = top.clamp(0, picture_height - height);
            Area { left, top, right: left + width, bottom: top + height }
        };
        let above = outline.top - height;
        let places =
            [above, outline.bottom, above - height, outline.bottom + height, area.top, area.bottom - height];
        let is_free = |plate: &Area| taken.iter().all(|t| !t.touches(*plate));
        let plate = places
            .into_iter()
            // Places that need no moving to stay inside come before those that do.
            .filter(|&top| top == top.clamp(0, picture_height - height))
            .map(plate)
            .find(is_free)
            .unwrap_or_else(|| plate(above));
        taken.push(plate);
        self.write(drawing, plate, colour, &label[..letters]);
    }

    /// The part of a label that fits into a picture, and the size of its plate; `None` if nothing fits.
    fn measure(&self, picture: Size, label: &str) -> Option<Text> {
        let advance = get_raster_width(WEIGHT, self.font) as i64 * self.zoom;
        // A coloured bar at the left end shows whose label this is where boxes crowd.
        let around = self.line + 2 * self.padding;
        let room = ((picture.width as i64 - around) / advance).max(0) as usize;
        let count = label.chars().count().min(room);
        let letters = label.char_indices().nth(count).map_or(label.len(), |(end, _)| end);
        let height = self.font.val() as i64 * self.zoom + self.padding;
        let fits = count > 0 && height <= picture.height as i64;
        fits.then_some(Text { letters, width: count as i64 * advance + around, height })
    }

    /// Writes a label at (`left`, `top`), or as near to that as it lies inside the picture.
    pub(super) fn write_at(&self, drawing: &mut Drawing, (left, top): (usize, usize), label: &str) {
        let Some(Text { letters, width, height }) = self.measure(drawing.size(), label) else { return };
        let left = (left as i64).min(drawing.size().width as i64 - width);
        let top = (top as i64).min(drawing.size().height as i64 - height);
        let plate = Area { left, top, right: left + width, bottom: top + height };
        self.write(drawing, plate, WHITE, &label[..letters]);
    }

    /// White text on a dark plate that has room for it and lies in the picture.
    fn write(&self, drawing: &mut Drawing, plate: Area, colour: Colour, text: &str) {
        drawing.fill(plate, BLACK, 200);
        drawing.fill(Area { right: plate.left + self.line, ..plate }, colour, 255);
        let left = plate.left + self.line + self.padding;
        self.write_letters(drawing, (left as usize, (plate.top + self.padding / 2) as usize), text);
    }

    /// White text without a plate from (`left`, `top`) on: the letters that lie in the picture.
    pub(super) fn write_letters(&self, drawing: &mut Drawing, (left, top): (usize, usize), text: &str) {
        let (zoom, Size { width, height }) = (self.zoom as usize, drawing.size());
        let advance = get_raster_width(WEIGHT, self.font) * zoom;
        if top + self.font.val() * zoom > height {
            return;
        }
        let places = (left..).step_by(advance).take_while(|x| x + advance <= width);
        for (x, letter) in places.zip(text.chars()) {
            drawing.write(letter, self.font, (x, top), zoom, || self.glyph(letter));
        }
    }

    /// Empty space around the text of a label.
    pub(super) fn padding(&self) -> i64 {
        self.padding
    }

    /// The glyph of a letter, or of `?` if the font lacks it.
    fn glyph(&self, letter: char) -> RasterizedChar {
        get_raster(letter, WEIGHT, self.font)
            .or_else(|| get_raster('?', WEIGHT, self.font))
            .expect("the font has all of ASCII")
    }
}
