//! Finds places in a picture that have the outlines of a known look, at any size and in any direction.
//!
//! After S. Hinterstoisser et al., "Gradient Response Maps for Real-Time Detection of Textureless
//! Objects", 2012 (LINE-2D): of a look only the directions of its strongest edges are kept. For each of
//! eight directions, a map says how well it is seen near each pixel of the picture. The score of a place
//! is a sum of bytes, so hundreds of outlines can be tried. An edge has the same direction whichever side
//! is brighter. `frame/outlines.rs` defines all of it. A picture on a device is searched there, if the device
//! can do so.
//!
//! On returning targets this ranks the right place among the first five in half of the frames; NCC of their
//! pixels does so in a third (docs/lab/tracking.md).

use super::camera::Small;
use super::sample::Window;
use crate::frame::outlines::{
    DIRECTIONS, Edge, LEAST_GRADIENT, MOST_EDGES, NEXT, OWN, Outline, OutlineFinder, PLACES, Peak, Peaks,
    SECOND,
};
use crate::simd::Level;

/// Edges of an outline: with fewer than the first number nothing is recognised, with fewer than the
/// second the score is reduced. Of more than [`MOST_EDGES`] the strongest ones are kept.
const FEWEST: usize = 12;
const MANY: usize = 40;

/// The shorter side of an outline, in pixels, and the largest share of the picture's side that its own sides
/// may have.
const LEAST_SIDE: usize = 5;
const LARGEST: f64 = 0.9;

/// The smallest picture in which anything is looked for.
const LEAST_PICTURE: usize = 8;

/// Columns of responses that lie together, and how many of those are summed at a time: their sums stay in
/// registers.
const LANES: usize = 64;
const AT_ONCE: usize = 4;

/// Side of the picture of a look.
pub(super) const SIDE: usize = 32;

/// The pixels of a box, as a square of [`SIDE`] pixels; then the same at half and at a quarter of that.
pub(super) struct Sketch(Vec<u8>);

impl Sketch {
    /// Of pixels row by row.
    pub(super) fn new(pixels: impl Iterator<Item = u8>) -> Self {
        let mut all: Vec<u8> = pixels.collect();
        assert_eq!(all.len(), SIDE * SIDE, "pixels of a sketch");
        let (mut from, mut side) = (0, SIDE);
        while side > SIDE / 4 {
            for (y, x) in (0..side).step_by(2).flat_map(|y| (0..side).step_by(2).map(move |x| (y, x))) {
                let at = |x: usize, y: usize| u16::from(all[from + y * side + x]);
                let sum = at(x, y) + at(x + 1, y) + at(x, y + 1) + at(x + 1, y + 1);
                all.push(((sum + 2) / 4) as u8);
            }
            (from, side) = (from + side * side, side / 2);
        }
        Self(all)
    }

    /// The version that is shown by so many pixels on its shorter side, and its side.
    fn level(&self, pixels: f64) -> (&[u8], usize) {
        let (mut from, mut side) = (0, SIDE);
        while side > SIDE / 4 && pixels < 0.75 * side as f64 {
            (from, side) = (from + side * side, side / 2);
        }
        (&self.0[from..][..side * side], side)
    }
}

/// A place that was found.
#[derive(Debug, Clone, Copy)]
pub(super) struct Place {
    /// Comparable among places that were found in the same way.
    pub(super) score: f64,
    /// Its middle, in pixels of the frame.
    pub(super) x: f64,
    pub(super) y: f64,
}

/// The edges of a picture; keeps its memory.
pub(super) struct Outlines {
    level: Level,
    /// The picture's.
    size: (usize, usize),
    /// Pixels of the frame to one of the picture; 0 if nothing is known of this frame.
    factor: usize,
    /// The size of the picture that the maps have room for.
    room: (usize, usize),
    /// The direction of the edge at each pixel, as a bit.
    bits: Vec<u8>,
    /// For each direction, how well it is seen near each pixel: first those of even rows and even columns,
    /// then of even rows and odd columns, and so on. Each of these has `rows` rows of `stride` bytes.
    responses: Vec<u8>,
    rows: usize,
    stride: usize,
    /// The directions seen in three pixels of each column, near each pixel of a row, and of these the
    /// even and the odd ones.
    columns: Vec<u8>,
    near: Vec<u8>,
    halves: [Vec<u8>; 2],
}

impl Outlines {
    pub(super) fn new() -> Self {
        Self {
            level: Level::best(),
            size: (0, 0),
            factor: 0,
            room: (0, 0),
            bits: Vec::new(),
            responses: Vec::new(),
            rows: 0,
            stride: 0,
            columns: Vec::new(),
            near: Vec::new(),
            halves: [Vec::new(), Vec::new()],
        }
    }

    /// Takes in a picture, and pixels of the frame to one of its own. No maps are made if outlines are found
    /// elsewhere.
    pub(super) fn see(&mut self, picture: &Small, factor: usize, has_finder: bool) {
        let (width, height) = (picture.width, picture.height);
        self.size = (width, height);
        self.factor = if width.min(height) < LEAST_PICTURE { 0 } else { factor };
        if self.factor == 0 || has_finder {
            return;
        }
        if self.room != (width, height) {
            self.resize(width, height);
        }
        let plane = self.plane();
        let Self { level, bits, responses, stride, columns, near, halves, .. } = self;
        let stride = *stride;
        level.run(
            #[inline(always)]
            || {
                for y in 1..height - 1 {
                    let (above, row, below) = (picture.row(y - 1), picture.row(y), picture.row(y + 1));
                    let pixels = row.iter().zip(&row[2..]).zip(above[1..].iter().zip(&below[1..]));
                    let bits = &mut bits[y * width + 1..][..width - 2];
                    for (bit, ((&left, &right), (&above, &below))) in bits.iter_mut().zip(pixels) {
                        *bit = edge(i16::from(right) - i16::from(left), i16::from(below) - i16::from(above));
                    }
                }
                // The directions that are seen in the three by three pixels about each.
                for y in 1..height - 1 {
                    let mut rows = bits[(y - 1) * width..][..3 * width].chunks_exact(width);
                    let mut next = || rows.next().expect("three rows");
                    let rows = next().iter().zip(next()).zip(next());
                    for (column, ((&above, &row), &below)) in columns.iter_mut().zip(rows) {
                        *column = above | row | below;
                    }
                    let sides = columns.iter().zip(&columns[1..]).zip(&columns[2..]);
                    for (near, ((&left, &middle), &right)) in near[1..].iter_mut().zip(sides) {
                        *near = left | middle | right;
                    }
                    let [even, odd] = &mut *halves;
                    let pairs = near.as_chunks::<2>().0;
                    for ((even, odd), &pair) in even.iter_mut().zip(odd).zip(pairs) {
                        [*even, *odd] = pair;
                    }
                    for (direction, index) in (0..DIRECTIONS).flat_map(|d| [(d, 0), (d, 1)]) {
                        let start = (4 * direction + y % 2 * 2 + index) * plane + y / 2 * stride;
                        respond(direction, &halves[index], &mut responses[start..][..stride]);
                    }
                }
            },
        );
    }

    /// Makes room for a picture. What lies at its border and beyond is 0 and stays so.
    fn resize(&mut self, width: usize, height: usize) {
        self.room = (width, height);
        self.rows = height.div_ceil(2);
        self.stride = width.div_ceil(2).next_multiple_of(LANES) + LANES;
        self.bits = vec![0; width * height];
        self.responses = vec![0; DIRECTIONS * 4 * self.plane() + LANES];
        self.columns = vec![0; width];
        self.near = vec![0; width];
        self.halves = [vec![0; self.stride], vec![0; self.stride]];
    }

    fn plane(&self) -> usize {
        self.rows * self.stride
    }

    /// The outline of a look in a box of this size and direction, wherever it lies; none if the picture would
    /// show too little of it.
    pub(super) fn outline(
        &self,
        sketch: &Sketch,
        at: Window,
        Scratch { pixels, found, .. }: &mut Scratch,
    ) -> Option<Outline> {
        if self.factor == 0 {
            return None;
        }
        let factor = self.factor as f64;
        let [_, _, w, h] = at.bounds().map(|length| length / factor);
        let (width, height) = (libm::round(w) as usize, libm::round(h) as usize);
        let is_too_large = |length: usize, picture: usize| length as f64 > LARGEST * picture as f64;
        if width.min(height) < LEAST_SIDE
            || is_too_large(width, self.size.0)
            || is_too_large(height, self.size.1)
        {
            return None;
        }
        let (own_w, own_h) = (at.w / factor, at.h / factor);
        if own_w.min(own_h) < 1.0 {
            return None;
        }
        let (picture, side) = sketch.level(own_w.min(own_h));
        let (sin, cos) = (libm::sin(at.angle), libm::cos(at.angle));
        // Places of the sketch in 1/65536 of its pixels: from one pixel of the outline to its right
        // neighbour, to the one below, and of the first one.
        let fixed = |length: f64| libm::round(length * side as f64 * 65536.0) as i32;
        let right = (fixed(cos / own_w), fixed(-sin / own_h));
        let below = (fixed(sin / own_w), fixed(cos / own_h));
        let (x, y) = (0.5 - width as f64 / 2.0, 0.5 - height as f64 / 2.0);
        let first = (fixed((cos * x + sin * y) / own_w), fixed((cos * y - sin * x) / own_h));
        // From the middle of the sketch.
        let place = |x: usize, y: usize| {
            let (x, y) = (x as i32, y as i32);
            (first.0 + x * right.0 + y * below.0, first.1 + x * right.1 + y * below.1)
        };
        let half = (side as i32) << 15;
        let limit = ((side as i32 - 1) << 16) - 1;
        pixels.clear();
        pixels.extend((0..width * height).map(|index| {
            let (u, v) = place(index % width, index / width);
            let inside = |place: i32| (place + half - 32768).clamp(0, limit);
            let (u, v) = (inside(u), inside(v));
            let at = (v >> 16) as usize * side + (u >> 16) as usize;
            let (u, v) = (u >> 8 & 255, v >> 8 & 255);
            let pixel = |at: usize| i32::from(picture[at]);
            let across = |at: usize| (256 - u) * pixel(at) + u * pixel(at + 1);
            ((256 - v) * across(at) + v * across(at + side) + (1 << 15)) >> 16
        }));
        // The strongest edges in the ellipse; its corners are seldom the target's.
        found.clear();
        let mut counts = [0_usize; 512];
        for (y, x) in (1..height - 1).flat_map(|y| (1..width - 1).map(move |x| (y, x))) {
            let (u, v) = place(x, y);
            let squared = |length: i32| i64::from(length) * i64::from(length);
            if squared(u) + squared(v) > squared(half) {
                continue;
            }
            let at = |x: usize, y: usize| pixels[y * width + x];
            let (across, down) = (at(x + 1, y) - at(x - 1, y), at(x, y + 1) - at(x, y - 1));
            let bit = edge(across as i16, down as i16);
            if bit != 0 {
                let strength = ((across * across + down * down) >> 8).min(511) as usize;
                counts[strength] += 1;
                let direction = bit.trailing_zeros() as u8;
                found.push((strength, Edge { x: x as u16, y: y as u16, direction }));
            }
        }
        if found.len() < FEWEST {
            return None;
        }
        let (mut least, mut stronger) = (511, 0);
        while least > 0 && stronger + counts[least] < MOST_EDGES {
            stronger += counts[least];
            least -= 1;
        }
        // Of those that are as strong as the last of them, the first ones.
        let mut equal = MOST_EDGES - stronger;
        found.retain(|&(strength, _)| {
            let is_equal = strength == least && equal > 0;
            equal -= usize::from(is_equal);
            is_equal || strength > least
        });
        Some(Outline { edges: found.iter().map(|&(_, edge)| edge).collect(), width, height })
    }

    /// Sums the responses of edges at `N` times [`LANES`] places of a row, from the `first` one on. What is
    /// more than the best of the rows before is kept in `tops`.
    #[inline(always)]
    fn sum<const N: usize>(&self, starts: &[usize], first: usize, row: u8, tops: &mut [Tops]) {
        let responses = &self.responses[first..];
        let mut sums = [[0_u8; LANES]; N];
        for &start in starts {
            let here = responses[start..][..N * LANES].as_chunks::<LANES>().0;
            for (sums, responses) in sums.iter_mut().zip(here) {
                for (sum, response) in sums.iter_mut().zip(responses) {
                    *sum += response;
                }
            }
        }
        for ((top, at), sums) in tops.iter_mut().zip(&sums) {
            for lane in 0..LANES {
                let is_more = sums[lane] > top[lane];
                top[lane] = if is_more { sums[lane] } else { top[lane] };
                at[lane] = if is_more { row } else { at[lane] };
            }
        }
    }

    /// Adds the best places of outlines in the picture that was taken in, with the indices of their outlines;
    /// by the `finder`, if the picture has one.
    pub(super) fn find<'a>(
        &self,
        finder: Option<&dyn OutlineFinder>,
        outlines: impl Iterator<Item = &'a Outline>,
        scratch: &mut Scratch,
        places: &mut Vec<(usize, Place)>,
    ) {
        let mut add = |index: usize, outline: &Outline, peaks: Peaks| {
            places.extend(peaks.iter().flatten().map(|peak| (index, self.place(outline, peak))));
        };
        match finder {
            Some(finder) => {
                let outlines: Vec<&Outline> = outlines.collect();
                let mut peaks = vec![Peaks::default(); outlines.len()];
                finder.find_outlines(self.factor, &outlines, &mut peaks);
                for (index, (outline, peaks)) in outlines.into_iter().zip(peaks).enumerate() {
                    add(index, outline, peaks);
                }
            }
            None => {
                for (index, outline) in outlines.enumerate() {
                    add(index, outline, self.peaks(outline, scratch));
                }
            }
        }
    }

    fn place(&self, outline: &Outline, peak: &Peak) -> Place {
        let count = outline.edges.len() as f64;
        let share = (count / MANY as f64).min(1.0).sqrt() / (f64::from(OWN) * count);
        let middle = |place: usize, length: usize| (2 * place) as f64 + length as f64 / 2.0;
        Place {
            score: f64::from(peak.score) * share,
            x: middle(peak.column, outline.width) * self.factor as f64,
            y: middle(peak.row, outline.height) * self.factor as f64,
        }
    }

    /// The best places of an outline, by the maps.
    fn peaks(&self, outline: &Outline, Scratch { starts, tops, best, .. }: &mut Scratch) -> Peaks {
        let (columns, rows) = outline.places_in(self.size);
        let (band, plane) = (outline.band(), self.plane());
        starts.clear();
        starts.extend(outline.edges.iter().map(|edge| {
            let (x, y) = (usize::from(edge.x), usize::from(edge.y));
            (4 * usize::from(edge.direction) + y % 2 * 2 + x % 2) * plane + y / 2 * self.stride + x / 2
        }));
        tops.clear();
        tops.resize(columns.div_ceil(LANES), ([0; LANES], [0; LANES]));
        best.clear();
        // The best of each band of rows, for each column.
        self.level.run(
            #[inline(always)]
            || {
                for y in 0..rows {
                    let row = (y % band) as u8;
                    for (index, tops) in tops.chunks_mut(AT_ONCE).enumerate() {
                        let first = y * self.stride + index * AT_ONCE * LANES;
                        match tops.len() {
                            1 => self.sum::<1>(starts, first, row, tops),
                            2 => self.sum::<2>(starts, first, row, tops),
                            3 => self.sum::<3>(starts, first, row, tops),
                            _ => self.sum::<AT_ONCE>(starts, first, row, tops),
                        }
                    }
                    if y % band == band - 1 || y + 1 == rows {
                        for (chunk, (top, at)) in tops.iter_mut().enumerate() {
                            let lanes = (columns - chunk * LANES).min(LANES);
                            let of_lane = |lane: usize| {
                                (
                                    f32::from(top[lane]),
                                    y - y % band + usize::from(at[lane]),
                                    chunk * LANES + lane,
                                )
                            };
                            best.extend((0..lanes).filter(|&lane| top[lane] > 0).map(of_lane));
                            (*top, *at) = ([0; LANES], [0; LANES]);
                        }
                    }
                }
            },
        );
        let mut peaks = Peaks::default();
        let found = take_best(best, PLACES, outline.apart());
        for (peak, (score, row, column)) in peaks.iter_mut().zip(found) {
            *peak = Some(Peak { score: score as u8, row, column });
        }
        peaks
    }
}

/// For each of some columns, the best score of a band of rows, and its row in that.
type Tops = ([u8; LANES], [u8; LANES]);

/// Memory to draw outlines and to find places with.
#[derive(Default)]
pub(super) struct Scratch {
    /// A look at the size of an outline.
    pixels: Vec<i32>,
    /// The edges of an outline and how strong they are.
    found: Vec<(usize, Edge)>,
    /// Where the responses of each edge begin.
    starts: Vec<usize>,
    tops: Vec<Tops>,
    /// Places: their score, row and column.
    pub(super) best: Vec<(f32, usize, usize)>,
}

/// The most places that [`take_best`] gives.
const MOST_TAKEN: usize = 4;

/// The best of places with a score, a row and a column, up to so many; none within a distance, across and
/// down, of a better one. Of equal ones the first.
pub(super) fn take_best(
    places: &[(f32, usize, usize)],
    count: usize,
    (across, down): (usize, usize),
) -> impl Iterator<Item = (f32, usize, usize)> {
    let (mut taken, mut given) = ([(0, 0); MOST_TAKEN], 0);
    std::iter::from_fn(move || {
        let is_near = |y: usize, x: usize| {
            taken[..given]
                .iter()
                .any(|&(v, u): &(usize, usize)| y.abs_diff(v) <= down && x.abs_diff(u) <= across)
        };
        let mut best: Option<(f32, usize, usize)> = None;
        for &(score, y, x) in places {
            if best.is_none_or(|(most, ..)| score > most) && !is_near(y, x) {
                best = Some((score, y, x));
            }
        }
        let (_, y, x) = best?;
        taken[given] = (y, x);
        given += 1;
        best
    })
    .take(count.min(MOST_TAKEN))
}

/// The direction of an edge from the differences across and down, as a bit: the first is that of a vertical
/// edge; 0 if there is none.
#[inline(always)]
fn edge(across: i16, down: i16) -> u8 {
    // The opposite direction is the same.
    let (x, y) = if down < 0 { (-across, -down) } else { (across, down) };
    let a = x.abs();
    // The tangents of 11.25, 33.75, 56.25 and 78.75 degrees are about 1/5, 2/3, 3/2 and 5.
    let bit = if 5 * y > a { 1 << 1 } else { 1 };
    let bit = if 3 * y > 2 * a { 1 << 2 } else { bit };
    let bit = if 2 * y > 3 * a { 1 << 3 } else { bit };
    let bit = if y > 5 * a { 1 << 4 } else { bit };
    let mirrored = match bit {
        2 => 1 << 7,
        4 => 1 << 6,
        8 => 1 << 5,
        other => other,
    };
    let bit = if x < 0 { mirrored } else { bit };
    // About its length: the longer side and half of the shorter one.
    let length = a.max(y) + a.min(y) / 2;
    if length >= LEAST_GRADIENT { bit } else { 0 }
}

/// How well a direction is seen where these directions are.
#[inline(always)]
fn respond(direction: usize, seen: &[u8], responses: &mut [u8]) {
    let bit = |direction: usize| 1_u8 << (direction % DIRECTIONS);
    let beside = |by: usize| bit(direction + by) | bit(direction + DIRECTIONS - by);
    let (own, next, second) = (bit(direction), beside(1), beside(2));
    for (response, &seen) in responses.iter_mut().zip(seen) {
        let value = if seen & second != 0 { SECOND } else { 0 };
        let value = if seen & next != 0 { NEXT } else { value };
        *response = if seen & own != 0 { OWN } else { value };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reference::surface::find_outline;

    const WIDTH: usize = 151;
    const HEIGHT: usize = 89;

    /// An L of bars, which looks the same in no other direction; at (x, y), from -1 to 1 in its box.
    fn shape(x: f64, y: f64) -> bool {
        (-0.7..-0.2).contains(&x) && y.abs() < 0.7 || (0.2..0.7).contains(&y) && x.abs() < 0.7
    }

    fn sketch() -> Sketch {
        let place = |i: usize| (2.0 * i as f64 + 1.0) / SIDE as f64 - 1.0;
        Sketch::new((0..SIDE * SIDE).map(|i| if shape(place(i % SIDE), place(i / SIDE)) { 200 } else { 60 }))
    }

    /// A picture with stripes on one side and the shape in a box.
    fn picture(at: Window) -> Small {
        let pixel = |i: usize| {
            let (x, y) = (i % WIDTH, i / WIDTH);
            let (u, v) = at.own((x as f64 + 0.5 - at.x, y as f64 + 0.5 - at.y));
            let (u, v) = (2.0 * u / at.w, 2.0 * v / at.h);
            match () {
                () if u.abs() <= 1.0 && v.abs() <= 1.0 && shape(u, v) => 200,
                () if x > 110 && y % 9 < 4 => 180,
                () => 60,
            }
        };
        Small::new(WIDTH, HEIGHT, (0..WIDTH * HEIGHT).map(pixel).collect())
    }

    fn seen(at: Window) -> Outlines {
        let mut outlines = Outlines::new();
        outlines.see(&picture(at), 4, false);
        outlines
    }

    /// The best place of an outline.
    fn best(outlines: &Outlines, outline: &Outline) -> Place {
        let mut places = Vec::new();
        outlines.find(None, std::iter::once(outline), &mut Scratch::default(), &mut places);
        places[0].1
    }

    fn window(side: f64, degrees: f64) -> Window {
        Window { x: 61.0, y: 44.0, w: side, h: side, angle: degrees.to_radians() }
    }

    /// In pixels of a frame that is four times as large.
    fn in_frame(at: Window) -> Window {
        Window { x: 4.0 * at.x, y: 4.0 * at.y, w: 4.0 * at.w, h: 4.0 * at.h, ..at }
    }

    #[test]
    fn a_shape_is_found_where_it_is_at_its_size_and_in_its_direction() {
        for (side, degrees) in [(24.0, 0.0), (24.0, 90.0), (36.0, -135.0), (18.0, 45.0)] {
            let at = window(side, degrees);
            let outlines = seen(at);
            let mut most: Option<(Place, f64, f64)> = None;
            for (other, turned) in [12.0, 18.0, 24.0, 36.0]
                .into_iter()
                .flat_map(|side| (-3..=4).map(move |eighth| (side, 45.0 * f64::from(eighth))))
            {
                let wanted = in_frame(Window { x: 0.0, y: 0.0, ..window(other, turned) });
                let Some(outline) = outlines.outline(&sketch(), wanted, &mut Scratch::default()) else {
                    continue;
                };
                let found = best(&outlines, &outline);
                if most.is_none_or(|(place, ..)| found.score > place.score) {
                    most = Some((found, other, turned));
                }
            }
            let (place, found, turned) = most.expect("something is found");
            let off = (place.x - 4.0 * at.x).abs().max((place.y - 4.0 * at.y).abs());
            assert!(
                off <= 8.0 && found == side && turned == degrees,
                "{side}, {degrees}: {place:?}, {found}, {turned}"
            );
        }
    }

    #[test]
    fn maps_and_scores_are_those_of_the_definition_at_every_level() {
        let at = window(24.0, 30.0);
        let picture = picture(at);
        for level in Level::available() {
            let mut outlines = Outlines { level, responses: vec![99; 7], ..Outlines::new() };
            // Nothing may be left of the picture before.
            outlines.see(
                &Small::new(WIDTH, HEIGHT, (0..WIDTH * HEIGHT).map(|i| (i * i % 251) as u8).collect()),
                4,
                false,
            );
            outlines.see(&picture, 4, false);
            let outline =
                outlines.outline(&sketch(), in_frame(at), &mut Scratch::default()).expect("it has edges");
            // Others of all sizes, whose edges lie anywhere.
            let scattered = (0..40).map(|seed: usize| {
                let (width, height) = (5 + seed * 13 % 130, 5 + seed * 7 % 75);
                let edge = |i: usize| Edge {
                    x: ((seed + i * 31) % width) as u16,
                    y: ((seed + i * 17) % height) as u16,
                    direction: ((seed + i * 5) % DIRECTIONS) as u8,
                };
                Outline { edges: (0..FEWEST + seed).map(edge).collect(), width, height }
            });
            for outline in scattered.chain([outline]) {
                let found = outlines.peaks(&outline, &mut Scratch::default());
                let expected = find_outline(&|x, y| picture.row(y)[x], (WIDTH, HEIGHT), &outline);
                assert_eq!(found, expected, "{outline:?} {level}");
                let count = outline.edges.len() as f64;
                let Some(peak) = found[0] else { continue };
                let share = f64::from(peak.score) / (4.0 * count) * (count / MANY as f64).min(1.0).sqrt();
                assert!((outlines.place(&outline, &peak).score - share).abs() < 1e-12);
            }
        }
    }

    #[test]
    fn wide_pictures_are_summed_as_narrow_ones() {
        // Up to four vectors of columns are summed together, and more one after the other.
        for width in [130, 331, 457, 641, 1031] {
            let pixel = |i: usize| ((i % width * 7 + i / width * 13) / 9 * 57 % 256) as u8;
            let picture = Small::new(width, 40, (0..40 * width).map(pixel).collect());
            for level in Level::available() {
                let mut outlines = Outlines { level, ..Outlines::new() };
                outlines.see(&picture, 4, false);
                for (w, h) in [(9, 7), (40, 21), (width - 3, 5)] {
                    let edge = |i: usize| Edge {
                        x: (i * 31 % w) as u16,
                        y: (i * 17 % h) as u16,
                        direction: (i * 5 % DIRECTIONS) as u8,
                    };
                    let outline = Outline { edges: (0..MANY).map(edge).collect(), width: w, height: h };
                    let found = outlines.peaks(&outline, &mut Scratch::default());
                    let expected = find_outline(&|x, y| picture.row(y)[x], (width, 40), &outline);
                    assert_eq!(found, expected, "{w}x{h} in {width} columns, {level}");
                }
            }
        }
    }

    #[test]
    fn nothing_is_looked_for_in_a_picture_that_is_too_small_or_without_edges() {
        let mut outlines = Outlines::new();
        let flat = Sketch::new(std::iter::repeat_n(77, SIDE * SIDE));
        assert!(
            outlines.outline(&sketch(), window(80.0, 0.0), &mut Scratch::default()).is_none(),
            "nothing was seen"
        );
        outlines.see(&picture(window(24.0, 0.0)), 4, false);
        assert!(outlines.outline(&flat, window(80.0, 0.0), &mut Scratch::default()).is_none(), "no edges");
        assert!(
            outlines.outline(&sketch(), window(4.0 * 100.0, 0.0), &mut Scratch::default()).is_none(),
            "as large as the picture"
        );
        assert!(
            outlines.outline(&sketch(), window(8.0, 0.0), &mut Scratch::default()).is_none(),
            "two pixels"
        );
        outlines.see(&Small::new(7, 90, vec![5; 7 * 90]), 4, false);
        assert!(
            outlines.outline(&sketch(), window(80.0, 0.0), &mut Scratch::default()).is_none(),
            "a narrow picture"
        );
    }

    #[test]
    fn the_best_places_are_apart() {
        let places = [(5.0, 10, 10), (9.0, 12, 11), (7.0, 12, 40), (9.0, 30, 10)];
        let best: Vec<_> = take_best(&places, 3, (4, 4)).collect();
        assert_eq!(best, [(9.0, 12, 11), (9.0, 30, 10), (7.0, 12, 40)]);
    }
}
