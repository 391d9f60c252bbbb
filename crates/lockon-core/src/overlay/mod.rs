//! Drawing results into the planes of a picture: boxes, labels, masks.
//!
//! Drawing has two stages. A [`Drawing`] is a list, made from a record: the ink to mix into each area. A
//! painter goes through the list where the picture lies: a [`Canvas`] on the host, or one of the CUDA backend
//! on a device. [`layers`] makes small pictures of it that others lay over the large one.
//!
//! It draws in the picture's own format, whatever its chroma subsampling, so that nothing is converted on the
//! way to an encoder or a display. Line width and text size follow the height of the picture: what can be
//! read at 360 rows looks the same at 4320. Boxes may lie partly or wholly outside the picture; labels always
//! stay inside.

use std::fmt::Write as _;
use std::ops::Range;

use crate::config::Zone;
use crate::frame::{PlaneRef, Rect, Size, iou};
use crate::results::{FrameRecord, LineCount, Match, Track, TrackState};

mod canvas;
mod crop;
mod drawing;
mod hide;
mod layers;
mod look;
mod strip;
mod style;
#[cfg(test)]
mod tests;
mod trails;

pub use canvas::{Area, Canvas, Colour};
pub use crop::{Crop, resample};
pub use drawing::{Drawing, Ink, Step};
pub use hide::{Hidden, Hiding, Way};
pub use layers::{Layer, layers};
// For the report.
#[cfg(all(test, feature = "report"))]
pub(crate) use look::rgb_of_state;
#[cfg(feature = "report")]
pub(crate) use look::{NAMES, rgb_of_name};
pub use strip::{Strip, StripLayout};
pub use trails::Trails;

use canvas::WHITE;
use drawing::Notes;
use look::{LineStyle, colour_of_name, colour_of_state};
use style::Style;

/// The box that is being selected, and the boxes that are kept.
const SELECTED: Colour = Colour::rgb(255, 220, 0);
const KEPT: Colour = Colour::rgb(255, 255, 255);

/// The boxes of objects, and how many of them have numbers: more would hide the picture.
const OBJECT: Colour = Colour::rgb(255, 0, 160);
const MOST_NUMBERED: usize = 99;

/// A box that is shown, with its label.
struct Mark {
    area: Area,
    colour: Colour,
    line: LineStyle,
    /// The place of the label in [`Notes::words`](drawing::Notes::words).
    label: Range<usize>,
}

impl Drawing {
    /// A box with a label for every match and every track of `record`, and the trails of the tracks, for a
    /// picture of `size`. A box for every object that is no track's; if they are few, with its number in the
    /// record, from 1. The lines across which tracks are counted, each with its name, its counts and an arrow
    /// in the direction of `in`.
    ///
    /// Matches: `name score`, then the scale where it is not 1 and the angle where it is not 0; one colour a
    /// name. One that is followed is shown by its track alone. Tracks: `#id state score`, the template in
    /// front of it if there is one; the colour is the state's: tracked green, unsure (uncertain) amber with
    /// long dashes, found (reacquired) cyan and for half a second, lost red with short dashes and without a
    /// score. Tracks are drawn last, the first one on top.
    ///
    /// `trails` is where the tracks of the frames before came along; it learns of this one.
    pub fn results(&mut self, record: &FrameRecord, trails: &mut Trails, size: Size) {
        self.results_and_zones(record, trails, &[], size);
    }

    /// As [`Self::results`], over the borders of `zones` and their names: a line of dots, dark and in one
    /// colour for each name, so that it can be seen on any ground. A border along the picture's edge is not
    /// drawn.
    pub fn results_and_zones(
        &mut self,
        record: &FrameRecord,
        trails: &mut Trails,
        zones: &[Zone],
        size: Size,
    ) {
        self.start(size);
        let style = Style::for_height(size.height);
        trails.note(record, size);
        for zone in zones {
            let colour = colour_of_name(zone.name());
            zone.lines(size).for_each(|line| style.draw_dotted(self, line, colour));
        }
        for line in &record.lines {
            style.draw_line(self, line.ends, colour_of_name(&line.line));
        }
        let mut notes = std::mem::take(&mut self.notes);
        let Notes { marks, words, taken } = &mut notes;
        marks.clear();
        words.clear();
        taken.clear();
        let objects = record.objects.as_deref().unwrap_or_default();
        let is_tracks = |index: usize| {
            let number = index as u32 + 1;
            record.tracks.iter().any(|track| track.object == Some(number))
        };
        for (index, object) in objects.iter().enumerate().rev() {
            if is_tracks(index) {
                continue;
            }
            let start = words.len();
            if objects.len() <= MOST_NUMBERED {
                let _ = write!(words, "{}", index + 1);
            }
            let (area, label) = (Area::of(object.rect()), start..words.len());
            marks.push(Mark { area, colour: OBJECT, line: LineStyle::Solid, label });
        }
        for m in record.matches.iter().rev().filter(|m| !is_followed(m, record)) {
            let start = words.len();
            add_match_label(words, m);
            let (colour, label) = (colour_of_name(&m.template), start..words.len());
            marks.push(Mark { area: match_area(m), colour, line: LineStyle::Solid, label });
        }
        for track in record.tracks.iter().rev() {
            let (start, state) = (words.len(), trails.shown_state(track));
            add_track_label(words, track, state);
            let (colour, line) = (colour_of_state(state), LineStyle::of_state(state));
            marks.push(Mark { area: track_area(track), colour, line, label: start..words.len() });
            trails.draw(self, &style, track);
        }
        // All boxes before all labels: no line crosses a label.
        for Mark { area, colour, line, .. } in &*marks {
            style.draw_box(self, *area, *colour, *line);
        }
        for Mark { area, colour, label, .. } in marks.iter().rev().filter(|mark| !mark.label.is_empty()) {
            style.draw_label(self, *area, *colour, &words[label.clone()], taken);
        }
        for zone in zones {
            let Some(area) = area_of_zone(zone, size) else { continue };
            style.draw_label(self, area, colour_of_name(zone.name()), zone.name(), taken);
        }
        for LineCount { line, inwards, outwards, ends } in &record.lines {
            let start = words.len();
            let _ = write!(words, "{line} in {inwards} out {outwards}");
            if let Some(area) = around(ends.iter().copied()) {
                style.draw_label(self, area, colour_of_name(line), &words[start..], taken);
            }
        }
        self.notes = notes;
    }

    /// The thin line where the halves of a split picture of `size` meet.
    pub fn divider(&mut self, size: Size) {
        self.start(size);
        let line = Style::for_height(size.height).line;
        let left = (size.width / 2) as i64 - line / 2;
        let area = Area { left, top: 0, right: left + line, bottom: size.height as i64 };
        self.fill(area, WHITE, 255);
    }

    /// Draws a user's selection in a picture of `size`: the boxes that are `kept`, each with its number, and
    /// the `current` one, around which the picture is darker.
    pub fn selection(&mut self, kept: &[(usize, Rect)], current: Option<Rect>, size: Size) {
        self.start(size);
        let style = Style::for_height(size.height);
        let whole = Area::of(Rect::whole(size));
        if let Some(Area { left, top, right, bottom }) = current.map(Area::of) {
            for area in [
                Area { bottom: top, ..whole },
                Area { top: bottom, ..whole },
                Area { top, bottom, right: left, ..whole },
                Area { top, bottom, left: right, ..whole },
            ] {
                self.shade(area, 110);
            }
        }
        for (_, rect) in kept {
            style.draw_box(self, Area::of(*rect), KEPT, LineStyle::Solid);
        }
        let mut taken = Vec::with_capacity(kept.len() + 1);
        if let Some(rect) = current {
            let area = Area::of(rect);
            style.draw_box(self, area, SELECTED, LineStyle::Solid);
            let label = format!("{},{} {}x{}", rect.x, rect.y, rect.w, rect.h);
            style.draw_label(self, area, SELECTED, &label, &mut taken);
        }
        for (number, rect) in kept {
            style.draw_label(self, Area::of(*rect), KEPT, &number.to_string(), &mut taken);
        }
    }

    /// Lines over a picture of `size` by which places in it can be read: one every 100 pixels with its
    /// coordinate, and fainter ones between them. In small pictures they lie closer.
    pub fn grid(&mut self, size: Size) {
        self.start(size);
        let Size { width, height } = size;
        let step = match width.max(height) {
            0..200 => 20,
            200..400 => 50,
            _ => 100,
        };
        // Small letters, that labels of lines beside each other keep apart whatever the picture's size.
        let style = Style::for_height(0);
        let whole = Area::of(Rect::whole(size));
        for (faint, opacity) in [(true, 50), (false, 150)] {
            let step = if faint { step / 5 } else { step };
            for (length, is_column) in [(width, true), (height, false)] {
                for at in (0..length).step_by(step) {
                    let at = at as i64;
                    let line = if is_column {
                        Area { left: at, right: at + 1, ..whole }
                    } else {
                        Area { top: at, bottom: at + 1, ..whole }
                    };
                    // Seen on bright and on dark.
                    self.shade(line.grown(1), opacity / 3);
                    self.fill(line, WHITE, opacity);
                }
            }
        }
        for x in (0..width).step_by(step) {
            style.write_at(self, (x, 0), &x.to_string());
        }
        for y in (step..height).step_by(step) {
            style.write_at(self, (0, y), &y.to_string());
        }
    }
}

/// Draws [`Drawing::results`] into a picture. Where pictures come one after the other, a drawing that is used
/// again allocates less.
pub fn draw_results(canvas: &mut Canvas<'_>, record: &FrameRecord, trails: &mut Trails) {
    draw(canvas, |drawing, size| drawing.results(record, trails, size));
}

/// Makes the picture the thresholded frame: luma is the mask, without colour.
///
/// # Panics
/// If `mask` is not of the picture's size.
pub fn draw_mask(canvas: &mut Canvas<'_>, mask: PlaneRef<'_>) {
    canvas.show_mask(mask, 0);
}

/// Makes the right half of the picture the thresholded frame, with a thin line where the two meet.
///
/// # Panics
/// If `mask` is not of the picture's size.
pub fn draw_split(canvas: &mut Canvas<'_>, mask: PlaneRef<'_>) {
    canvas.show_mask(mask, canvas.size.width / 2);
    draw(canvas, Drawing::divider);
}

/// Draws [`Drawing::selection`] into a picture.
pub fn draw_selection(canvas: &mut Canvas<'_>, kept: &[(usize, Rect)], current: Option<Rect>) {
    draw(canvas, |drawing, size| drawing.selection(kept, current, size));
}

/// Draws [`Drawing::strip`] below a picture.
pub fn draw_strip(canvas: &mut Canvas<'_>, layout: &StripLayout, picture: Size, strip: &Strip<'_>) {
    draw(canvas, |drawing, _| drawing.strip(layout, picture, strip));
}

/// Draws [`Drawing::grid`] into a picture.
pub fn draw_grid(canvas: &mut Canvas<'_>) {
    draw(canvas, Drawing::grid);
}

fn draw(canvas: &mut Canvas<'_>, list: impl FnOnce(&mut Drawing, Size)) {
    let mut drawing = Drawing::default();
    list(&mut drawing, canvas.size);
    canvas.paint(&drawing);
}

/// The box around the part of a zone's border that is drawn.
fn area_of_zone(zone: &Zone, size: Size) -> Option<Area> {
    around(zone.lines(size).flat_map(|(a, b)| [a, b]))
}

/// The box around some places.
fn around(places: impl Iterator<Item = [f64; 2]>) -> Option<Area> {
    let pixel = |v: f64| i64::from(libm::round(v) as i32);
    let points =
        places.map(|[x, y]| Area { left: pixel(x), top: pixel(y), right: pixel(x), bottom: pixel(y) });
    points.reduce(|all, point| Area {
        left: all.left.min(point.left),
        top: all.top.min(point.top),
        right: all.right.max(point.right),
        bottom: all.bottom.max(point.bottom),
    })
}

fn match_area(m: &Match) -> Area {
    let (left, top) = (m.x as i64, m.y as i64);
    Area { left, top, right: left + m.w as i64, bottom: top + m.h as i64 }
}

fn add_match_label(words: &mut String, m: &Match) {
    let _ = write!(words, "{} {:.2}", m.template, m.score);
    if m.scale != 1.0 {
        let _ = write!(words, " \u{d7}{:.2}", m.scale);
    }
    if m.angle != 0.0 {
        let degrees = libm::round(m.angle * 10.0) / 10.0;
        let _ = write!(words, " {degrees}\u{b0}");
    }
}

fn track_area(t: &Track) -> Area {
    // i32 holds every picture, and what is beyond it saturates there instead of overflowing when lines are
    // added.
    let pixel = |v: f64| i64::from(libm::round(v) as i32);
    Area { left: pixel(t.x), top: pixel(t.y), right: pixel(t.x + t.w), bottom: pixel(t.y + t.h) }
}

fn add_track_label(words: &mut String, t: &Track, state: TrackState) {
    if let Some(name) = t.label() {
        let _ = write!(words, "{name} ");
    }
    let _ = write!(words, "#{} {}", t.id, word_of_state(state));
    if state != TrackState::Lost {
        let _ = write!(words, " {:.2}", t.score);
    }
}

/// Short, since boxes are small and stand close.
fn word_of_state(state: TrackState) -> &'static str {
    match state {
        TrackState::Tracked => "tracked",
        TrackState::Uncertain => "unsure",
        TrackState::Reacquired => "found",
        TrackState::Lost => "lost",
    }
}

/// True if a track of the match's template lies on it.
fn is_followed(m: &Match, record: &FrameRecord) -> bool {
    record.tracks.iter().any(|t| {
        t.template.as_ref() == Some(&m.template)
            && t.state != TrackState::Lost
            && iou(t.bounds(), m.bounds()) > FOLLOWED
    })
}

/// Minimum overlap of a track and a match that show one object.
const FOLLOWED: f64 = 0.3;
