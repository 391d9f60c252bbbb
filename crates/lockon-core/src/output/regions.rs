//! The pixels of the objects of a mask, in the run-length encoding of COCO.

use std::collections::HashMap;
use std::ops::Range;

use crate::config::{Connectivity, ObjectColour, ObjectSpec};
use crate::frame::{PlaneRef, Rect};

/// Pixels beside each other in a row, from `start` to before `end`.
#[derive(Clone, Copy)]
struct Run {
    y: usize,
    start: usize,
    end: usize,
    /// Its component, or one that is joined with it.
    label: usize,
}

/// The runs of each component of a mask.
///
/// Components are known by their boxes: no two of one mask have the same box, since a part that reaches
/// from the left to the right side of it and one that reaches from the top to the bottom meet.
#[derive(Default)]
pub(super) struct Regions {
    /// Rows and pixels of the mask.
    height: usize,
    area: usize,
    runs: Vec<Run>,
    /// For each label the one that it is joined with, or itself.
    joined: Vec<usize>,
    /// The place of each component among the runs, by its box.
    places: HashMap<Rect, Range<usize>>,
    /// Pixels of a box, column by column.
    pixels: Vec<bool>,
}

impl Regions {
    /// Reads the components of a mask that was cleaned.
    pub(super) fn read(&mut self, mask: PlaneRef<'_>, spec: &ObjectSpec) {
        let Self { runs, joined, .. } = self;
        (self.height, self.area) = (mask.size().height, mask.size().area());
        runs.clear();
        joined.clear();
        let reach = usize::from(spec.connectivity == Connectivity::Eight);
        let mut above = 0..0;
        for (y, row) in mask.rows().enumerate() {
            let begin = runs.len();
            let mut x = 0;
            for part in row.chunk_by(|a, b| (*a >= 128) == (*b >= 128)) {
                let (start, end) = (x, x + part.len());
                x = end;
                if (part[0] >= 128) != (spec.colour == ObjectColour::White) {
                    continue;
                }
                let label = joined.len();
                joined.push(label);
                // Runs above that touch it; those before them touch no later one either.
                while above.start < above.end && runs[above.start].end + reach <= start {
                    above.start += 1;
                }
                for other in above.clone().take_while(|other| runs[*other].start < end + reach) {
                    let (one, other) = (root(joined, label), root(joined, runs[other].label));
                    joined[one.max(other)] = one.min(other);
                }
                runs.push(Run { y, start, end, label });
            }
            above = begin..runs.len();
        }
        for run in &mut *runs {
            run.label = root(joined, run.label);
        }
        // A stable sort: the rows of a component stay in order.
        runs.sort_by_key(|run| run.label);
        self.places.clear();
        let mut begin = 0;
        for region in runs.chunk_by(|a, b| a.label == b.label) {
            self.places.insert(bounds(region), begin..begin + region.len());
            begin += region.len();
        }
    }

    /// The encoding of the component with that box; `None` if there is none.
    ///
    /// Numbers of pixels that are not part of it and that are, by turns, column by column, as text: COCO's
    /// `maskApi.c`, `rleToString`.
    pub(super) fn encoded(&mut self, rect: Rect) -> Option<String> {
        let runs = &self.runs[self.places.get(&rect)?.clone()];
        let Rect { x: left, y: top, w, h } = rect;
        self.pixels.clear();
        self.pixels.resize(w * h, false);
        for run in runs {
            for x in run.start..run.end {
                self.pixels[(x - left) * h + run.y - top] = true;
            }
        }
        let (mut counts, mut at) = (Vec::new(), 0);
        for (column, pixels) in (left..).zip(self.pixels.chunks(h)) {
            let mut y = top;
            for part in pixels.chunk_by(|a, b| a == b) {
                if part[0] {
                    let start = column * self.height + y;
                    match counts.last_mut() {
                        // It continues the column before.
                        Some(count) if start == at => *count += part.len(),
                        _ => counts.extend([start - at, part.len()]),
                    }
                    at = start + part.len();
                }
                y += part.len();
            }
        }
        counts.extend(Some(self.area - at).filter(|rest| *rest > 0));
        Some(text(&counts))
    }
}

/// The first of the labels that this one is joined with.
fn root(joined: &mut [usize], mut label: usize) -> usize {
    while joined[label] != label {
        joined[label] = joined[joined[label]];
        label = joined[label];
    }
    label
}

/// The box of some runs.
fn bounds(runs: &[Run]) -> Rect {
    let left = runs.iter().map(|run| run.start).min().unwrap_or_default();
    let right = runs.iter().map(|run| run.end).max().unwrap_or_default();
    let (top, bottom) = (runs[0].y, runs[runs.len() - 1].y);
    Rect::new(left, top, right - left, bottom + 1 - top)
}

/// Counts as text: each from the fourth on as its difference to the one before the last, in groups of five
/// bits from the lowest on, a sixth bit where more follow, as characters from `0` on.
fn text(counts: &[usize]) -> String {
    let mut text = String::new();
    for (index, &count) in counts.iter().enumerate() {
        let before = if index > 2 { counts[index - 2] as i64 } else { 0 };
        let mut rest = count as i64 - before;
        loop {
            let group = (rest & 0x1f) as u8;
            rest >>= 5;
            let is_last = if group & 0x10 == 0 { rest == 0 } else { rest == -1 };
            text.push(char::from(b'0' + if is_last { group } else { group | 0x20 }));
            if is_last {
                break;
            }
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::{Plane, Size};
    use crate::reference;

    /// The counts of a text.
    fn read(text: &str) -> Vec<i64> {
        let mut counts: Vec<i64> = Vec::new();
        let mut bytes = text.bytes();
        while bytes.len() > 0 {
            let (mut value, mut shift) = (0_i64, 0);
            for byte in &mut bytes {
                let group = i64::from(byte - b'0');
                value |= (group & 0x1f) << shift;
                shift += 5;
                if group & 0x20 == 0 {
                    if group & 0x10 != 0 {
                        value |= -1 << shift;
                    }
                    break;
                }
            }
            let before = if counts.len() > 2 { counts[counts.len() - 2] } else { 0 };
            counts.push(value + before);
        }
        counts
    }

    #[test]
    fn a_region_has_the_text_that_cocos_own_code_writes() {
        // `pycocotools.mask.encode` of these pixels.
        let rows = ["..##.", "..#.#", "##..#"];
        let pixels = rows.iter().flat_map(|row| row.bytes()).map(|c| if c == b'#' { 255 } else { 0 });
        let mask = Plane::from_vec(pixels.collect(), Size::new(5, 3));
        let mut regions = Regions::default();
        regions.read(mask.as_ref(), &ObjectSpec::default());
        let whole = regions.encoded(Rect::new(0, 0, 5, 3)).unwrap();
        assert_eq!(read(&whole), [2, 1, 2, 3, 1, 1, 3, 2]);
        assert_eq!(whole, "2122ON21");
        assert_eq!(regions.encoded(Rect::new(0, 0, 4, 3)), None);
        // A count whose difference is long, and negative.
        assert_eq!(read(&text(&[5, 3000, 7, 2, 4000, 1])), [5, 3000, 7, 2, 4000, 1]);
    }

    #[test]
    fn regions_are_the_pixels_of_the_objects_of_the_definition() {
        let size = Size::new(67, 41);
        for seed in 0..40_u64 {
            let mut state = seed * 2 + 1;
            let mut random = || {
                state = state.wrapping_mul(0xDA94_2042_E4DD_58B5).wrapping_add(0x9E37_79B9);
                (state >> 56) as u8
            };
            let share = 40 + (seed * 5) as u8;
            let pixels = (0..size.area()).map(|_| if random() < share { 255 } else { 0 });
            let mask = Plane::from_vec(pixels.collect(), size);
            let spec = ObjectSpec {
                connectivity: [Connectivity::Four, Connectivity::Eight][seed as usize % 2],
                colour: [ObjectColour::White, ObjectColour::Black][seed as usize / 2 % 2],
                ..ObjectSpec::default()
            };
            let objects = reference::objects::find(mask.as_ref(), mask.as_ref(), &spec).objects;
            let mut regions = Regions::default();
            // The second mask is read over what the first left behind.
            regions.read(Plane::new(size).as_ref(), &spec);
            regions.read(mask.as_ref(), &spec);
            assert_eq!(regions.places.len(), objects.len(), "{seed}");
            let mut sum = vec![0; size.area()];
            for object in &objects {
                let counts = read(&regions.encoded(object.rect()).unwrap());
                assert_eq!(counts.iter().sum::<i64>(), size.area() as i64);
                assert_eq!(counts.iter().skip(1).step_by(2).sum::<i64>(), object.area as i64);
                assert!(counts.iter().skip(1).all(|count| *count > 0), "{counts:?}");
                let mut at = 0;
                for (index, count) in counts.into_iter().enumerate() {
                    (at..at + count).for_each(|at| sum[at as usize] += index % 2);
                    at += count;
                }
            }
            let is_object = |at: usize| {
                let (x, y) = (at / size.height, at % size.height);
                (mask.as_ref().row(y)[x] >= 128) == (spec.colour == ObjectColour::White)
            };
            assert!((0..size.area()).all(|at| sum[at] == usize::from(is_object(at))), "{seed}");
        }
    }
}
