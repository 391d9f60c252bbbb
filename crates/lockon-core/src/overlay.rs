//! Drawing results into the planes of a picture: boxes, labels, masks.
//!
//! It draws in the picture's own format, whatever its chroma subsampling, so that nothing is converted on the
//! way to an encoder or a display. Line width and text size follow the height of the picture: what can be
//! read at 360 rows looks the same at 4320. Boxes may lie partly or wholly outside the picture; labels always
//! stay inside.

use std::collections::VecDeque;

use noto_sans_mono_bitmap::{FontWeight, RasterHeight, RasterizedChar, get_raster, get_raster_width};

use crate::frame::{PixelFormat, PlaneMut, PlaneRef, Rect, Size, USUAL_INTERVAL_NS, iou};
use crate::results::{FrameRecord, Match, Track, TrackState};

/// The writable planes of one picture.
pub struct Canvas<'a> {
    planes: Vec<PlaneMut<'a>>,
    format: PixelFormat,
    size: Size,
}

impl<'a> Canvas<'a> {
    /// A picture of `size` in `format`, whose planes lie wherever the caller has them.
    ///
    /// # Panics
    /// If their number or sizes are not those of the format; see [`PixelFormat::plane_size`].
    pub fn new(planes: Vec<PlaneMut<'a>>, format: PixelFormat, size: Size) -> Self {
        assert_eq!(planes.len(), format.planes(), "planes of a {} picture", format.name);
        for (index, plane) in planes.iter().enumerate() {
            assert_eq!(plane.size(), format.plane_size(index, size), "plane {index} of {}", format.name);
        }
        Self { planes, format, size }
    }

    /// Mixes `colour` into the part of `area` that lies in the picture: not at all with `opacity` 0, fully
    /// with 255.
    ///
    /// A chroma sample that the area touches is mixed whole.
    fn paint(&mut self, area: Area, colour: Colour, opacity: u8) {
        let Some((columns, rows)) = area.clipped(self.size) else { return };
        for y in rows.clone() {
            for luma in &mut self.planes[0].row(y)[columns.clone()] {
                *luma = mix(*luma, colour.luma, opacity);
            }
        }
        let (x_shift, y_shift) = (self.format.x_shift, self.format.y_shift);
        let columns = columns.start >> x_shift..columns.end.div_ceil(1 << x_shift);
        let rows = rows.start >> y_shift..rows.end.div_ceil(1 << y_shift);
        for (component, value) in [(0, colour.cb), (1, colour.cr)] {
            let Some((plane, first, step)) = self.format.chroma_samples(component) else { return };
            for y in rows.clone() {
                let row = &mut self.planes[plane].row(y)[columns.start * step..columns.end * step];
                for sample in row.iter_mut().skip(first).step_by(step) {
                    *sample = mix(*sample, value, opacity);
                }
            }
        }
    }

    /// Darkens the luma of `area`. Colour stays, so that a coloured line next to it keeps its chroma samples.
    fn shade(&mut self, area: Area, opacity: u8) {
        let Some((columns, rows)) = area.clipped(self.size) else { return };
        for y in rows {
            for luma in &mut self.planes[0].row(y)[columns.clone()] {
                *luma = mix(*luma, BLACK.luma, opacity);
            }
        }
    }

    /// Shows `mask` from column `first_column` on.
    fn show_mask(&mut self, mask: PlaneRef<'_>, first_column: usize) {
        assert_eq!(mask.size(), self.size, "mask of another size");
        let end = self.size.height as i64;
        let area = Area { left: first_column as i64, top: 0, right: self.size.width as i64, bottom: end };
        self.paint(area, BLACK, 255);
        for (y, row) in mask.rows().enumerate() {
            self.planes[0].row(y)[first_column..].copy_from_slice(&row[first_column..]);
        }
    }
}

/// Draws a box with a label for every match and every track of `record`, and the trails of the tracks.
///
/// Matches: `name score`, then the scale where it is not 1 and the angle where it is not 0; one colour a
/// name. One that is followed is shown by its track alone. Tracks: `#id state score`, the template in front
/// of it if there is one; the colour is the state's: tracked green, unsure (uncertain) amber with long
/// dashes, found (reacquired) cyan and for half a second, lost red with short dashes. One that is found with
/// a score below [`SURE`] is drawn as an unsure one, its word followed by a question mark. A lost one shows
/// no score: what it has is that of a place that was rejected. Tracks are drawn last, the first one on top.
///
/// `trails` is where the tracks of the frames before came along; it learns of this one.
pub fn draw_results(canvas: &mut Canvas<'_>, record: &FrameRecord, trails: &mut Trails) {
    let style = Style::for_height(canvas.size.height);
    trails.note(record, canvas.size);
    let matches = record
        .matches
        .iter()
        .rev()
        .filter(|m| !is_followed(m, record))
        .map(|m| (match_area(m), colour_of_name(&m.template), Line::Solid, match_label(m)));
    let tracks = record.tracks.iter().rev().map(|t| {
        let state = trails.shown_state(t);
        let look = look(state, t.score);
        (track_area(t), colour_of_state(look), Line::of_state(look), track_label(t, state))
    });
    let marks: Vec<_> = matches.chain(tracks).collect();
    for track in record.tracks.iter().rev() {
        trails.draw(canvas, &style, track);
    }
    // All boxes before all labels: no line crosses one.
    for (area, colour, line, _) in &marks {
        style.draw_box(canvas, *area, *colour, *line);
    }
    let mut taken = Vec::with_capacity(marks.len());
    for (area, colour, _, label) in marks.iter().rev() {
        style.draw_label(canvas, *area, *colour, label, &mut taken);
    }
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
    let middle = canvas.size.width / 2;
    canvas.show_mask(mask, middle);
    let line = Style::for_height(canvas.size.height).line;
    let left = middle as i64 - line / 2;
    let area = Area { left, top: 0, right: left + line, bottom: canvas.size.height as i64 };
    canvas.paint(area, WHITE, 255);
}

/// Draws what somebody selects: the boxes that are `kept`, numbered, and the `current` one, around which the
/// picture is darker. `hint` is written along the edge that is farther from the current box: the lower one,
/// or the upper one.
pub fn draw_selection(canvas: &mut Canvas<'_>, kept: &[Rect], current: Option<Rect>, hint: &str) {
    let style = Style::for_height(canvas.size.height);
    let whole = Area::of(Rect::whole(canvas.size));
    if let Some(Area { left, top, right, bottom }) = current.map(Area::of) {
        for area in [
            Area { bottom: top, ..whole },
            Area { top: bottom, ..whole },
            Area { top, bottom, right: left, ..whole },
            Area { top, bottom, left: right, ..whole },
        ] {
            canvas.shade(area, 110);
        }
    }
    for rect in kept {
        style.draw_box(canvas, Area::of(*rect), KEPT, Line::Solid);
    }
    let mut taken = Vec::with_capacity(kept.len() + 1);
    if let Some(rect) = current {
        let area = Area::of(rect);
        style.draw_box(canvas, area, SELECTED, Line::Solid);
        let label = format!("{},{} {}x{}", rect.x, rect.y, rect.w, rect.h);
        style.draw_label(canvas, area, SELECTED, &label, &mut taken);
    }
    for (number, rect) in kept.iter().enumerate() {
        style.draw_label(canvas, Area::of(*rect), KEPT, &(number + 1).to_string(), &mut taken);
    }
    let is_low = current.is_some_and(|rect| 2 * rect.y + rect.h > canvas.size.height);
    style.write_at(canvas, (0, if is_low { 0 } else { canvas.size.height }), hint);
}

/// Draws lines over the picture by which places in it can be read: one every 100 pixels with its coordinate,
/// and fainter ones between them. In small pictures they lie closer.
pub fn draw_grid(canvas: &mut Canvas<'_>) {
    let Size { width, height } = canvas.size;
    let step = match width.max(height) {
        0..200 => 20,
        200..400 => 50,
        _ => 100,
    };
    // Small letters, that labels of lines beside each other keep apart whatever the picture's size.
    let style = Style::for_height(0);
    let whole = Area::of(Rect::whole(canvas.size));
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
                canvas.shade(line.grown(1), opacity / 3);
                canvas.paint(line, WHITE, opacity);
            }
        }
    }
    for x in (0..width).step_by(step) {
        style.write_at(canvas, (x, 0), &x.to_string());
    }
    for y in (step..height).step_by(step) {
        style.write_at(canvas, (0, y), &y.to_string());
    }
}

/// A box in the picture's coordinates that may leave it on any side; `right` and `bottom` lie just behind it.
#[derive(Clone, Copy)]
struct Area {
    left: i64,
    top: i64,
    right: i64,
    bottom: i64,
}

impl Area {
    fn of(rect: Rect) -> Self {
        let [left, top, right, bottom] =
            [rect.x, rect.y, rect.x + rect.w, rect.y + rect.h].map(|edge| edge as i64);
        Self { left, top, right, bottom }
    }

    fn grown(self, by: i64) -> Self {
        Self { left: self.left - by, top: self.top - by, right: self.right + by, bottom: self.bottom + by }
    }

    fn touches(self, other: Self) -> bool {
        self.left < other.right
            && other.left < self.right
            && self.top < other.bottom
            && other.top < self.bottom
    }

    /// Its columns and rows inside a picture, or `None` if it has none there.
    fn clipped(self, size: Size) -> Option<(std::ops::Range<usize>, std::ops::Range<usize>)> {
        let range = |start: i64, end: i64, size: usize| {
            let inside = |v: i64| v.clamp(0, size as i64) as usize;
            Some(inside(start)..inside(end)).filter(|range| !range.is_empty())
        };
        Some((range(self.left, self.right, size.width)?, range(self.top, self.bottom, size.height)?))
    }
}

/// A colour as video has it: BT.601, limited range. Other matrices shift it a little, not into another
/// colour.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Colour {
    luma: u8,
    cb: u8,
    cr: u8,
}

impl Colour {
    fn of([r, g, b]: [u8; 3]) -> Self {
        Self::rgb(i32::from(r), i32::from(g), i32::from(b))
    }

    const fn rgb(r: i32, g: i32, b: i32) -> Self {
        Self {
            luma: (16 + ((66 * r + 129 * g + 25 * b + 128) >> 8)) as u8,
            cb: (128 + ((-38 * r - 74 * g + 112 * b + 128) >> 8)) as u8,
            cr: (128 + ((112 * r - 94 * g - 18 * b + 128) >> 8)) as u8,
        }
    }
}

/// How a box is drawn, for eyes and screens to which colours are not enough.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Line {
    Solid,
    LongDashes,
    ShortDashes,
}

impl Line {
    fn of_state(state: TrackState) -> Self {
        match state {
            TrackState::Tracked | TrackState::Reacquired => Self::Solid,
            TrackState::Uncertain => Self::LongDashes,
            TrackState::Lost => Self::ShortDashes,
        }
    }
}

const BLACK: Colour = Colour::rgb(0, 0, 0);
const WHITE: Colour = Colour::rgb(255, 255, 255);

/// The box that is being selected, and those that are kept.
const SELECTED: Colour = Colour::rgb(255, 220, 0);
const KEPT: Colour = Colour::rgb(255, 255, 255);

/// A score below which a box that is found is not shown as a sure one: half way to what has nothing of the
/// target.
pub const SURE: f64 = 0.5;

/// Colours of what has a name, red, green and blue: magentas, blues and white, since the others are those of
/// states. None is near one of these to the colour-blind either.
pub(crate) const NAMES: [[u8; 3]; 8] = [
    [255, 70, 255],
    [120, 160, 255],
    [250, 250, 250],
    [205, 50, 180],
    [60, 110, 255],
    [255, 130, 200],
    [150, 90, 255],
    [195, 135, 165],
];

/// Red, green and blue of a state. Far from each other also to those who lack the receptors for red or for
/// green (by the matrices of G. Machado et al., "A physiologically-based model for simulation of color vision
/// deficiency", 2009); lines say it too.
pub(crate) fn rgb_of_state(state: TrackState) -> [u8; 3] {
    match state {
        TrackState::Tracked => [0, 230, 150],
        TrackState::Uncertain => [255, 190, 0],
        TrackState::Reacquired => [0, 220, 255],
        TrackState::Lost => [210, 20, 20],
    }
}

fn colour_of_state(state: TrackState) -> Colour {
    Colour::of(rgb_of_state(state))
}

/// The state whose colour and line a box has: what is found with a low score is not a sure thing, whatever it
/// is called.
fn look(state: TrackState, score: f64) -> TrackState {
    match state {
        TrackState::Tracked | TrackState::Reacquired if score < SURE => TrackState::Uncertain,
        state => state,
    }
}

/// One of a few colours, the same for the same name in every frame and every run.
///
/// Names that count up in their last letter, such as `cam1` to `cam8`, have eight different ones.
pub(crate) fn rgb_of_name(name: &str) -> [u8; 3] {
    // FNV-1a. Its low three bits are an odd multiple of the last letter's, mixed with all letters before it.
    let hash =
        name.bytes().fold(0x811c_9dc5_u32, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193));
    NAMES[hash as usize % NAMES.len()]
}

fn colour_of_name(name: &str) -> Colour {
    Colour::of(rgb_of_name(name))
}

fn match_area(m: &Match) -> Area {
    let (left, top) = (m.x as i64, m.y as i64);
    Area { left, top, right: left + m.w as i64, bottom: top + m.h as i64 }
}

fn match_label(m: &Match) -> String {
    let scale = if m.scale == 1.0 { String::new() } else { format!(" \u{d7}{:.2}", m.scale) };
    let degrees = libm::round(m.angle * 10.0) / 10.0;
    let angle = if m.angle == 0.0 { String::new() } else { format!(" {degrees}\u{b0}") };
    format!("{} {:.2}{scale}{angle}", m.template, m.score)
}

fn track_area(t: &Track) -> Area {
    // i32 holds every picture, and what is beyond it saturates there instead of overflowing when lines are
    // added.
    let pixel = |v: f64| i64::from(libm::round(v) as i32);
    Area { left: pixel(t.x), top: pixel(t.y), right: pixel(t.x + t.w), bottom: pixel(t.y + t.h) }
}

fn track_label(t: &Track, state: TrackState) -> String {
    let name = t.template.as_ref().map(|name| format!("{name} ")).unwrap_or_default();
    let doubt = if look(state, t.score) == state { "" } else { "?" };
    // A lost one's score is that of the best place that was rejected, which may be high.
    let score = if state == TrackState::Lost { String::new() } else { format!(" {:.2}", t.score) };
    format!("{name}#{} {}{doubt}{score}", t.id, word_of_state(state))
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

/// Least overlap of a track and a match that show one object.
const FOLLOWED: f64 = 0.3;

/// For how long a trail stays, in nanoseconds: long enough to see where a target came from, short enough to
/// see the picture.
const TRAIL_NS: u64 = 2_000_000_000;
/// Places of a trail are no nearer in time, whatever the frame rate: so it has a bounded length.
const BETWEEN_PLACES_NS: u64 = TRAIL_NS / 128;
/// A single frame would not be seen.
const FOUND_NS: u64 = 500_000_000;
/// Most dots of a trail: one that goes to and fro is cut off.
const MOST_DOTS: usize = 256;

/// Where each track came along in the last two seconds, for [`draw_results`].
#[derive(Default)]
pub struct Trails {
    of_tracks: Vec<Trail>,
    /// Time of the last frame.
    now_ns: u64,
    size: Option<Size>,
}

struct Trail {
    id: u32,
    /// Oldest first.
    places: VecDeque<Place>,
    /// When it was found again.
    found_ns: Option<u64>,
    /// It was lost in the last frame: no line leads from there to where it is found again.
    is_broken: bool,
    is_alive: bool,
}

struct Place {
    at_ns: u64,
    x: f64,
    y: f64,
    colour: Colour,
    /// It begins a piece.
    is_start: bool,
}

impl Trails {
    fn note(&mut self, record: &FrameRecord, size: Size) {
        let now = record.pts_ns.unwrap_or(record.frame * USUAL_INTERVAL_NS);
        // Another video, or the same one again.
        if now < self.now_ns || self.size != Some(size) {
            self.of_tracks.clear();
        }
        (self.now_ns, self.size) = (now, Some(size));
        self.of_tracks.iter_mut().for_each(|trail| trail.is_alive = false);
        for track in &record.tracks {
            let index = self.of_tracks.iter().position(|trail| trail.id == track.id).unwrap_or_else(|| {
                self.of_tracks.push(Trail {
                    id: track.id,
                    places: VecDeque::new(),
                    found_ns: None,
                    is_broken: true,
                    is_alive: true,
                });
                self.of_tracks.len() - 1
            });
            self.of_tracks[index].note(track, now);
        }
        self.of_tracks.retain(|trail| trail.is_alive);
    }

    /// The state that is shown: one that lasts for a frame only is held.
    fn shown_state(&self, track: &Track) -> TrackState {
        let found = self.of_tracks.iter().find(|trail| trail.id == track.id).and_then(|trail| trail.found_ns);
        match track.state {
            TrackState::Tracked if found.is_some_and(|at| self.now_ns - at < FOUND_NS) => {
                TrackState::Reacquired
            }
            state => state,
        }
    }

    /// Dots at even distances along the way of the box's middle, the newest first; they fade with age. None
    /// lies in the box: what was found stays visible.
    fn draw(&self, canvas: &mut Canvas<'_>, style: &Style, track: &Track) {
        let Some(trail) = self.of_tracks.iter().find(|trail| trail.id == track.id) else { return };
        let is_inside = |x: f64, y: f64| {
            (0.0..=track.w).contains(&(x - track.x)) && (0.0..=track.h).contains(&(y - track.y))
        };
        let step = (6 * style.line) as f64;
        let (mut since, mut dots) = (0.0, 0);
        for index in (1..trail.places.len()).rev() {
            let (to, from) = (&trail.places[index], &trail.places[index - 1]);
            if to.is_start {
                since = 0.0;
                continue;
            }
            let length = libm::hypot(to.x - from.x, to.y - from.y);
            let age = (self.now_ns - to.at_ns) as f64 / TRAIL_NS as f64;
            while since <= length && dots < MOST_DOTS {
                let share = if length > 0.0 { since / length } else { 0.0 };
                let (x, y) = (to.x + share * (from.x - to.x), to.y + share * (from.y - to.y));
                if !is_inside(x, y) {
                    style.draw_dot(canvas, x, y, to.colour, age);
                }
                since += step;
                dots += 1;
            }
            since -= length;
        }
    }
}

impl Trail {
    fn note(&mut self, track: &Track, now: u64) {
        self.is_alive = true;
        self.places.retain(|place| now - place.at_ns <= TRAIL_NS);
        if track.state == TrackState::Lost {
            self.is_broken = true;
            return;
        }
        if track.state == TrackState::Reacquired {
            self.found_ns = Some(now);
        }
        // The newest place always counts; it makes way if the one before it is so near that it says the same.
        if let [.., before, last] = self.places.make_contiguous()
            && !last.is_start
            && last.at_ns - before.at_ns < BETWEEN_PLACES_NS
        {
            self.places.pop_back();
        }
        let (x, y) = (track.x + track.w / 2.0, track.y + track.h / 2.0);
        let is_start = std::mem::take(&mut self.is_broken);
        let colour = colour_of_state(look(track.state, track.score));
        self.places.push_back(Place { at_ns: now, x, y, colour, is_start });
    }
}

/// Sizes of what is drawn, in pixels of the picture.
struct Style {
    /// Width of a line.
    line: i64,
    /// Font that is nearest to the wanted height when its pixels are `zoom` pixels wide.
    font: RasterHeight,
    zoom: i64,
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
    fn for_height(height: usize) -> Self {
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
    fn draw_dot(&self, canvas: &mut Canvas<'_>, x: f64, y: f64, colour: Colour, age: f64) {
        // i32 holds every picture, and what is beyond it saturates.
        let (x, y) = (i64::from(libm::round(x) as i32), i64::from(libm::round(y) as i32));
        let opacity = 255.0 - 175.0 * age.clamp(0.0, 1.0);
        // Thinner than two lines it is not seen in moving pictures.
        let area =
            Area { left: x - self.line, top: y - self.line, right: x + self.line, bottom: y + self.line };
        canvas.shade(area.grown((self.line / 2).max(1)), (opacity * 0.6) as u8);
        canvas.paint(area, colour, opacity as u8);
    }

    /// A frame just outside `area`, so that what was found stays visible, with a shadow for bright pictures.
    fn draw_box(&self, canvas: &mut Canvas<'_>, area: Area, colour: Colour, kind: Line) {
        let line = self.line;
        let outline = self.outline(area, canvas.size);
        let (dash, gap) = if kind == Line::LongDashes { (12 * line, 3 * line) } else { (5 * line, 4 * line) };
        let mut dashes = Vec::new();
        let mut side = |from: i64, to: i64, across: i64, is_row: bool| {
            let mut draw = |start: i64, end: i64| {
                dashes.push(if is_row {
                    Area { left: start, top: across, right: end, bottom: across + line }
                } else {
                    Area { left: across, top: start, right: across + line, bottom: end }
                });
            };
            if kind == Line::Solid {
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
        for dash in &dashes {
            canvas.shade(dash.grown(line / 2), 90);
        }
        for dash in &dashes {
            canvas.paint(*dash, colour, 255);
        }
    }

    /// The outer edge of the frame around `area`: moved into the picture where only the line would be
    /// outside, and cut off where it is far outside, so that nobody counts the dashes of a line of a million
    /// pixels.
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
    fn draw_label(
        &self,
        canvas: &mut Canvas<'_>,
        area: Area,
        colour: Colour,
        label: &str,
        taken: &mut Vec<Area>,
    ) {
        let Some(Text { letters, width, height }) = self.measure(canvas.size, label) else { return };
        let (picture_width, picture_height) = (canvas.size.width as i64, canvas.size.height as i64);
        let outline = self.outline(area, canvas.size);
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
            // What would have to be moved to stay inside comes after what fits.
            .filter(|&top| top == top.clamp(0, picture_height - height))
            .map(plate)
            .find(is_free)
            .unwrap_or_else(|| plate(above));
        taken.push(plate);
        self.write(canvas, plate, colour, &label[..letters]);
    }

    /// How much of a label fits into a picture, and how much room its plate takes; `None` if nothing fits.
    fn measure(&self, picture: Size, label: &str) -> Option<Text> {
        let advance = get_raster_width(FontWeight::Bold, self.font) as i64 * self.zoom;
        // A coloured bar stands at the left end: it says whose label this is where boxes crowd.
        let around = self.line + 2 * self.padding;
        let room = ((picture.width as i64 - around) / advance).max(0) as usize;
        let count = label.chars().count().min(room);
        let letters = label.char_indices().nth(count).map_or(label.len(), |(end, _)| end);
        let height = self.font.val() as i64 * self.zoom + self.padding;
        let fits = count > 0 && height <= picture.height as i64;
        fits.then_some(Text { letters, width: count as i64 * advance + around, height })
    }

    /// Writes a label at (`left`, `top`), or as near to that as it lies inside the picture.
    fn write_at(&self, canvas: &mut Canvas<'_>, (left, top): (usize, usize), label: &str) {
        let Some(Text { letters, width, height }) = self.measure(canvas.size, label) else { return };
        let left = (left as i64).min(canvas.size.width as i64 - width);
        let top = (top as i64).min(canvas.size.height as i64 - height);
        let plate = Area { left, top, right: left + width, bottom: top + height };
        self.write(canvas, plate, WHITE, &label[..letters]);
    }

    /// White text on a dark plate that has room for it and lies in the picture.
    fn write(&self, canvas: &mut Canvas<'_>, plate: Area, colour: Colour, text: &str) {
        let advance = get_raster_width(FontWeight::Bold, self.font) as i64 * self.zoom;
        canvas.paint(plate, BLACK, 200);
        canvas.paint(Area { right: plate.left + self.line, ..plate }, colour, 255);
        let mut x = plate.left + self.line + self.padding;
        for letter in text.chars() {
            self.draw_glyph(canvas, &self.glyph(letter), x, plate.top + self.padding / 2);
            x += advance;
        }
    }

    /// The glyph of a letter, or of `?` if the font lacks it.
    fn glyph(&self, letter: char) -> RasterizedChar {
        get_raster(letter, FontWeight::Bold, self.font)
            .or_else(|| get_raster('?', FontWeight::Bold, self.font))
            .expect("the font has all of ASCII")
    }

    /// Luma alone: the plate below is grey, and letters are finer than chroma samples.
    fn draw_glyph(&self, canvas: &mut Canvas<'_>, glyph: &RasterizedChar, x: i64, y: i64) {
        let (x, y, zoom) = (x as usize, y as usize, self.zoom as usize);
        for (j, pixels) in glyph.rows().enumerate() {
            for row in y + j * zoom..y + (j + 1) * zoom {
                let row = &mut canvas.planes[0].row(row)[x..];
                for (luma, &opacity) in row.chunks_exact_mut(zoom).zip(pixels) {
                    for luma in luma {
                        *luma = mix(*luma, WHITE.luma, opacity);
                    }
                }
            }
        }
    }
}

/// `over` with an opacity of 0 to 255 over `under`.
fn mix(under: u8, over: u8, opacity: u8) -> u8 {
    let opacity = u32::from(opacity);
    ((u32::from(under) * (255 - opacity) + u32::from(over) * opacity + 127) / 255) as u8
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::Chroma;
    use crate::frame::Plane;

    const PADDING: usize = 11;
    const POISON: u8 = 0xFA;

    /// A grey picture with poisoned padding behind every row.
    struct Picture {
        format: PixelFormat,
        size: Size,
        planes: Vec<Vec<u8>>,
    }

    impl Picture {
        fn grey(format: PixelFormat, size: Size) -> Self {
            let planes = (0..format.planes())
                .map(|index| {
                    let Size { width, height } = format.plane_size(index, size);
                    let mut data = vec![POISON; (width + PADDING) * height];
                    for row in data.chunks_mut(width + PADDING) {
                        row[..width].fill(if index == 0 { 100 } else { 128 });
                    }
                    data
                })
                .collect();
            Self { format, size, planes }
        }

        fn draw(&mut self, draw: impl FnOnce(&mut Canvas<'_>)) {
            let (format, size) = (self.format, self.size);
            let planes = self
                .planes
                .iter_mut()
                .enumerate()
                .map(|(index, data)| {
                    let plane = format.plane_size(index, size);
                    PlaneMut::new(data, plane, plane.width + PADDING)
                })
                .collect();
            draw(&mut Canvas::new(planes, format, size));
            for (index, data) in self.planes.iter().enumerate() {
                let width = format.plane_size(index, size).width;
                for row in data.chunks(width + PADDING) {
                    assert_eq!(
                        row[width..],
                        [POISON; PADDING],
                        "padding of plane {index} of {}",
                        format.name
                    );
                }
            }
        }

        fn luma(&self, x: usize, y: usize) -> u8 {
            self.planes[0][y * (self.size.width + PADDING) + x]
        }

        /// Luma, Cb, Cr; grey chroma where the format has none.
        fn colour(&self, x: usize, y: usize) -> Colour {
            let (cx, cy) = (x >> self.format.x_shift, y >> self.format.y_shift);
            let sample = |plane: usize, x: usize| {
                self.planes[plane][cy * (self.format.plane_size(plane, self.size).width + PADDING) + x]
            };
            let (cb, cr) = match self.format.chroma {
                Chroma::None => (128, 128),
                Chroma::Planar { u, v } => (sample(u, cx), sample(v, cx)),
                Chroma::Interleaved { u } => (sample(1, 2 * cx + u), sample(1, 2 * cx + 1 - u)),
            };
            Colour { luma: self.luma(x, y), cb, cr }
        }

        /// Number of luma pixels that are not the grey ground.
        fn drawn(&self) -> usize {
            let Size { width, height } = self.size;
            (0..width * height).filter(|i| self.luma(i % width, i / width) != 100).count()
        }
    }

    fn track(state: TrackState, x: f64, y: f64, w: f64, h: f64) -> FrameRecord {
        let track = Track { id: 1, template: None, state, x, y, w, h, score: 0.87, second_peak_ratio: 0.0 };
        FrameRecord { tracks: vec![track], ..FrameRecord::default() }
    }

    /// Draws a frame that has none before it.
    fn show(canvas: &mut Canvas<'_>, record: &FrameRecord) {
        draw_results(canvas, record, &mut Trails::default());
    }

    fn found(name: &str, x: usize, y: usize) -> FrameRecord {
        let found = Match {
            template: name.into(),
            x,
            y,
            w: 30,
            h: 20,
            score: 0.934,
            scale: 1.0,
            angle: 0.0,
            cx: 0.0,
            cy: 0.0,
        };
        FrameRecord { matches: vec![found], ..FrameRecord::default() }
    }

    #[test]
    fn a_box_has_its_colour_in_every_format_and_leaves_padding_and_inside_alone() {
        for format in PixelFormat::ALL {
            let mut picture = Picture::grey(format, Size::new(317, 203));
            picture.draw(|canvas| show(canvas, &track(TrackState::Tracked, 60.0, 60.0, 90.0, 80.0)));
            let green = colour_of_state(TrackState::Tracked);
            let expected =
                if format.chroma == Chroma::None { Colour { cb: 128, cr: 128, ..green } } else { green };
            for (x, y) in [(58, 100), (59, 100), (150, 100), (100, 141), (151, 141)] {
                assert_eq!(picture.colour(x, y), expected, "{} at {x}, {y}", format.name);
            }
            for (x, y) in [(64, 64), (100, 100), (145, 135), (300, 190), (4, 4)] {
                let grey = Colour { luma: 100, cb: 128, cr: 128 };
                assert_eq!(picture.colour(x, y), grey, "{} at {x}, {y}", format.name);
            }
        }
    }

    #[test]
    fn boxes_outside_the_picture_are_clipped_and_their_labels_stay_inside() {
        let size = Size::new(251, 131);
        for format in PixelFormat::ALL {
            for x in [-1e30, -400.0, -20.5, 0.0, 120.0, 240.0, 251.0, 9000.0, 1e30] {
                for y in [-400.0, -10.0, 0.0, 60.0, 120.0, 131.0, 1e30] {
                    for w in [0.0, 3.0, 50.0, 1000.0, 1e30] {
                        let mut picture = Picture::grey(format, size);
                        picture.draw(|canvas| show(canvas, &track(TrackState::Lost, x, y, w, w)));
                        assert!(picture.drawn() > 800, "no label for a box at {x}, {y}");
                    }
                }
            }
        }
    }

    #[test]
    fn a_box_along_the_border_keeps_its_lines() {
        let mut picture = Picture::grey(PixelFormat::GRAY8, Size::new(97, 61));
        picture.draw(|canvas| show(canvas, &track(TrackState::Uncertain, 0.0, 0.0, 97.0, 61.0)));
        let amber = colour_of_state(TrackState::Uncertain).luma;
        for (x, y) in [(0, 50), (1, 50), (96, 50), (95, 50), (50, 60), (50, 59)] {
            assert_eq!(picture.luma(x, y), amber, "at {x}, {y}");
        }
        assert_eq!(picture.luma(50, 50), 100);
    }

    #[test]
    fn lost_tracks_are_dashed_with_all_four_corners() {
        let mut picture = Picture::grey(PixelFormat::GRAY8, Size::new(317, 203));
        picture.draw(|canvas| show(canvas, &track(TrackState::Lost, 60.0, 60.0, 120.0, 80.0)));
        let red = colour_of_state(TrackState::Lost).luma;
        let row: Vec<u8> = (58..182).map(|x| picture.luma(x, 141)).collect();
        let gaps = row.windows(2).filter(|pair| pair[0] == red && pair[1] != red).count();
        assert!(gaps > 3, "{gaps} gaps in the line");
        for (x, y) in [(58, 58), (181, 58), (58, 141), (181, 141)] {
            assert_eq!(picture.luma(x, y), red, "corner at {x}, {y}");
        }
    }

    /// Draws tracks whose middles are at these places, 40 ms apart, and returns the last picture.
    fn after(places: &[(TrackState, f64, f64)]) -> Picture {
        let mut trails = Trails::default();
        let mut picture = Picture::grey(PixelFormat::ALL[0], Size::new(640, 360));
        for (index, (state, x, y)) in (0..).zip(places) {
            picture = Picture::grey(PixelFormat::ALL[0], Size::new(640, 360));
            let mut record = track(*state, x - 20.0, y - 20.0, 40.0, 40.0);
            (record.frame, record.pts_ns) = (index, Some(index * 40_000_000));
            picture.draw(|canvas| draw_results(canvas, &record, &mut trails));
        }
        picture
    }

    /// Pixels of a row that are as bright as a state's dots, which fade, or at least not grey any more.
    fn dots(picture: &Picture, row: usize, columns: std::ops::Range<usize>) -> usize {
        columns.filter(|&x| picture.luma(x, row) > 105).count()
    }

    #[test]
    fn a_trail_is_dotted_fades_and_is_two_seconds_long() {
        // 5 pixels a frame for 80 frames: 400 pixels, of which 250 are two seconds.
        let places: Vec<_> =
            (0..=80).map(|i| (TrackState::Tracked, 100.0 + 5.0 * f64::from(i), 200.0)).collect();
        let picture = after(&places);
        let (old, young) = (dots(&picture, 200, 255..310), dots(&picture, 200, 420..475));
        assert!(old > 5 && young > 5 && young < 40, "{old} old and {young} young pixels");
        assert_eq!(dots(&picture, 200, 80..244), 0, "what is older than two seconds is gone");
        let brightest =
            |columns: std::ops::Range<usize>| columns.map(|x| picture.luma(x, 200)).max().unwrap();
        assert!(brightest(420..475) > brightest(255..310));
        assert_eq!(dots(&picture, 204, 80..470), 0, "it is a thin line");
    }

    #[test]
    fn a_trail_does_not_lead_through_what_was_not_seen() {
        let place = |i: i32| match i {
            0..20 => (TrackState::Tracked, 60.0 + 4.0 * f64::from(i), 100.0),
            20..30 => (TrackState::Lost, 136.0, 100.0),
            30 => (TrackState::Reacquired, 400.0, 100.0),
            _ => (TrackState::Tracked, 400.0 + 4.0 * f64::from(i - 30), 100.0),
        };
        let picture = after(&(0..35).map(place).collect::<Vec<_>>());
        assert!(dots(&picture, 100, 60..134) > 5, "where it was before it was lost");
        assert_eq!(dots(&picture, 100, 140..390), 0);
        // Found is said for half a second, by the colour of the box's left line.
        assert_eq!(picture.colour(395, 105), colour_of_state(TrackState::Reacquired));
        let picture = after(&(0..45).map(place).collect::<Vec<_>>());
        assert_eq!(picture.colour(435, 105), colour_of_state(TrackState::Tracked));
    }

    #[test]
    fn a_trail_has_a_bounded_length_and_goes_with_its_track() {
        let mut trails = Trails::default();
        let mut record = track(TrackState::Tracked, 0.0, 0.0, 9.0, 9.0);
        for frame in 0..5000 {
            // 1000 frames a second.
            record.pts_ns = Some(frame * 1_000_000);
            trails.note(&record, Size::new(64, 64));
        }
        assert!(
            (100..=140).contains(&trails.of_tracks[0].places.len()),
            "{}",
            trails.of_tracks[0].places.len()
        );
        trails.note(&FrameRecord { pts_ns: record.pts_ns, ..FrameRecord::default() }, Size::new(64, 64));
        assert!(trails.of_tracks.is_empty());
    }

    #[test]
    fn a_match_that_is_followed_is_shown_by_its_track_alone() {
        let mut record = found("logo", 100, 100);
        record.tracks = track(TrackState::Tracked, 102.0, 99.0, 30.0, 20.0).tracks;
        assert!(!is_followed(&record.matches[0], &record), "a box that was given is not of that template");
        record.tracks[0].template = Some("logo".into());
        assert!(is_followed(&record.matches[0], &record));
        record.tracks[0].state = TrackState::Lost;
        assert!(!is_followed(&record.matches[0], &record));
    }

    #[test]
    fn pictures_too_small_for_text_get_their_box() {
        for (w, h) in [(1, 1), (7, 5), (40, 9), (9, 40)] {
            for format in PixelFormat::ALL {
                let mut picture = Picture::grey(format, Size::new(w, h));
                picture.draw(|canvas| show(canvas, &found("a long name", 0, 0)));
                assert!(picture.drawn() > 0);
            }
        }
    }

    #[test]
    fn letters_that_the_font_lacks_become_question_marks() {
        let draw = |name: &str| {
            let mut picture = Picture::grey(PixelFormat::GRAY8, Size::new(640, 360));
            picture.draw(|canvas| show(canvas, &found(name, 100, 100)));
            // Right of the bar, which has the name's colour.
            (100..140).map(|x| picture.luma(x, 90)).collect::<Vec<_>>()
        };
        assert_eq!(draw("??"), draw("\u{4f60}\u{1f600}"));
        assert_ne!(draw("??"), draw("\u{e4}\u{142}"), "umlauts and Latin Extended-A are in the font");
    }

    #[test]
    fn labels_say_scale_and_angle_only_where_they_differ() {
        let mut record = found("logo", 0, 0);
        assert_eq!(match_label(&record.matches[0]), "logo 0.93");
        (record.matches[0].scale, record.matches[0].angle) = (1.1025, -12.5);
        assert_eq!(match_label(&record.matches[0]), "logo 0.93 \u{d7}1.10 -12.5\u{b0}");
        let label = |state| track_label(&track(state, 0.0, 0.0, 1.0, 1.0).tracks[0], state);
        assert_eq!(label(TrackState::Reacquired), "#1 found 0.87");
        let mut record = track(TrackState::Tracked, 0.0, 0.0, 1.0, 1.0);
        record.tracks[0].template = Some("logo".into());
        assert_eq!(track_label(&record.tracks[0], TrackState::Tracked), "logo #1 tracked 0.87");
    }

    #[test]
    fn labels_of_one_place_do_not_cover_each_other() {
        let style = Style::for_height(360);
        let mut picture = Picture::grey(PixelFormat::GRAY8, Size::new(640, 360));
        let mut taken = Vec::new();
        picture.draw(|canvas| {
            let area = Area { left: 300, top: 150, right: 380, bottom: 260 };
            for _ in 0..6 {
                style.draw_label(canvas, area, WHITE, "#1 tracked 0.87", &mut taken);
            }
        });
        for (i, a) in taken.iter().enumerate() {
            assert!(taken[..i].iter().all(|b| !a.touches(*b)), "plate {i} covers another");
        }
    }

    #[test]
    fn text_and_lines_grow_with_the_picture() {
        let sizes = |height| {
            let style = Style::for_height(height);
            (style.line, style.font.val() as i64 * style.zoom)
        };
        assert_eq!([360, 720, 1080, 2160, 4320].map(sizes), [(2, 16), (2, 20), (3, 32), (6, 64), (12, 128)]);
    }

    #[test]
    fn names_keep_their_colours_and_these_differ_from_the_tracks() {
        use TrackState::{Lost, Reacquired, Tracked, Uncertain};
        assert_eq!(colour_of_name("logo"), colour_of_name("logo"));
        let counted = ["cam1", "cam2", "cam3", "cam4", "cam5", "cam6", "cam7", "cam8"].map(colour_of_name);
        for (i, colour) in counted.iter().enumerate() {
            assert!(!counted[..i].contains(colour), "cam{} looks like another", i + 1);
        }
        for state in [Lost, Reacquired, Tracked, Uncertain] {
            assert!(!NAMES.contains(&rgb_of_state(state)));
        }
    }

    #[test]
    fn a_lost_track_shows_no_score() {
        let lost = track(TrackState::Lost, 0.0, 0.0, 1.0, 1.0);
        assert_eq!(track_label(&lost.tracks[0], TrackState::Lost), "#1 lost");
    }

    #[test]
    fn a_track_that_is_found_with_a_low_score_does_not_look_sure() {
        let drawn = |score: f64| {
            let mut record = track(TrackState::Tracked, 60.0, 60.0, 120.0, 80.0);
            record.tracks[0].score = score;
            let mut picture = Picture::grey(PixelFormat::ALL[0], Size::new(317, 203));
            picture.draw(|canvas| show(canvas, &record));
            let amber = colour_of_state(TrackState::Uncertain).luma;
            let row: Vec<u8> = (58..182).map(|x| picture.luma(x, 141)).collect();
            let gaps = row.windows(2).filter(|pair| pair[0] == amber && pair[1] != amber).count();
            (picture.colour(58, 58), gaps, track_label(&record.tracks[0], TrackState::Tracked))
        };
        let (colour, gaps, label) = drawn(0.38);
        assert_eq!((colour, label.as_str()), (colour_of_state(TrackState::Uncertain), "#1 tracked? 0.38"));
        assert!(gaps > 2, "{gaps} gaps in the line");
        let (colour, gaps, label) = drawn(0.5);
        assert_eq!(
            (colour, gaps, label.as_str()),
            (colour_of_state(TrackState::Tracked), 0, "#1 tracked 0.50")
        );
    }

    /// How a colour looks to those who have all receptors, and who lack those for red or green, in CIE's
    /// L*a*b* (D65).
    fn seen([r, g, b]: [u8; 3]) -> [[f64; 3]; 3] {
        let linear = [r, g, b].map(|v| {
            let v = f64::from(v) / 255.0;
            if v <= 0.04045 { v / 12.92 } else { libm::pow((v + 0.055) / 1.055, 2.4) }
        });
        let all = [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]];
        let no_red = [
            [0.152_286, 1.052_583, -0.204_868],
            [0.114_503, 0.786_281, 0.099_216],
            [-0.003_882, -0.048_116, 1.051_998],
        ];
        let no_green = [
            [0.367_322, 0.860_646, -0.227_968],
            [0.280_085, 0.672_501, 0.047_413],
            [-0.011_820, 0.042_940, 0.968_881],
        ];
        [all, no_red, no_green].map(|eye| {
            let [r, g, b] = eye.map(|row| (0..3).map(|i| row[i] * linear[i]).sum::<f64>().clamp(0.0, 1.0));
            let root = |t: f64| if t > 0.008_856 { libm::cbrt(t) } else { 7.787 * t + 16.0 / 116.0 };
            let x = root((0.4124 * r + 0.3576 * g + 0.1805 * b) / 0.9505);
            let y = root(0.2126 * r + 0.7152 * g + 0.0722 * b);
            let z = root((0.0193 * r + 0.1192 * g + 0.9505 * b) / 1.089);
            [116.0 * y - 16.0, 500.0 * (x - y), 200.0 * (y - z)]
        })
    }

    /// The least distance of two colours to any of these eyes. Some 2 can just be seen, 10 at a glance.
    fn distance(a: [u8; 3], b: [u8; 3]) -> f64 {
        let pairs = seen(a).into_iter().zip(seen(b));
        pairs
            .map(|(a, b)| (0..3).map(|i| (a[i] - b[i]) * (a[i] - b[i])).sum::<f64>().sqrt())
            .fold(f64::INFINITY, f64::min)
    }

    #[test]
    fn states_are_told_apart_by_the_colour_blind_and_no_match_looks_like_a_state() {
        for (i, a) in TrackState::ALL.into_iter().enumerate() {
            for b in &TrackState::ALL[..i] {
                let apart = distance(rgb_of_state(a), rgb_of_state(*b));
                assert!(apart > 40.0, "{a:?} and {b:?} are {apart:.0} apart");
            }
            for name in NAMES {
                let apart = distance(rgb_of_state(a), name);
                assert!(apart > 15.0, "{a:?} and the match's {name:?} are {apart:.0} apart");
            }
        }
        // A plain green and amber look alike to those who lack the receptors for red.
        assert!(distance([40, 220, 80], [255, 170, 0]) < 15.0);
    }

    #[test]
    fn a_mask_replaces_the_picture_in_every_format() {
        let size = Size::new(37, 23);
        let mask = Plane::from_vec((0..37 * 23).map(|i| if i % 3 == 0 { 255 } else { 0 }).collect(), size);
        for format in PixelFormat::ALL {
            let mut picture = Picture::grey(format, size);
            picture
                .planes
                .iter_mut()
                .skip(1)
                .for_each(|data| data.iter_mut().for_each(|v| *v = *v / 250 * *v));
            picture.draw(|canvas| draw_mask(canvas, mask.as_ref()));
            for y in 0..23 {
                for x in 0..37 {
                    let expected = Colour { luma: mask.data()[y * 37 + x], cb: 128, cr: 128 };
                    assert_eq!(picture.colour(x, y), expected, "{} at {x}, {y}", format.name);
                }
            }
        }
    }

    #[test]
    fn a_split_has_the_picture_left_and_the_mask_right() {
        let size = Size::new(41, 23);
        let mask = Plane::from_vec(vec![255; 41 * 23], size);
        for format in PixelFormat::ALL {
            let mut picture = Picture::grey(format, size);
            picture.draw(|canvas| draw_split(canvas, mask.as_ref()));
            let row: Vec<u8> = (0..41).map(|x| picture.luma(x, 11)).collect();
            assert_eq!(
                (&row[..19], &row[19..21], &row[21..]),
                (&[100; 19][..], &[235; 2][..], &[255; 20][..])
            );
        }
    }
}
