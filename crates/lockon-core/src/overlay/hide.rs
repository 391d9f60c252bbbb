//! Hides tracks and matches in pictures on the host: blurred, or as large squares.
//!
//! It hides rather too much than too little. A box that is surely right is hidden with a margin. While the
//! track is uncertain, its box is hidden with a wide margin, and so is the last box that was sure: one of
//! them has the object. While the track is lost, the last sure box stays hidden and grows, as the object may
//! have moved. A match that is missing in a frame stays hidden for a second. Before a track begins and after
//! it has ended nothing is known of it, so nothing is hidden.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::canvas::{Area, Canvas};
use crate::config::Subject;
use crate::frame::{Rect, Size};
use crate::results::{FrameRecord, Match, TrackState};

/// Margins on each side, as shares of the box's width and height.
const SURE: f64 = 0.15;
const UNSURE: f64 = 0.5;

/// A lost track's margin grows by so much in a second...
const GROWTH: f64 = 1.0;
/// ...up to this.
const MOST_GROWTH: f64 = 2.0;

/// Seconds that a missing match stays hidden.
const KEPT: f64 = 1.0;

/// The time between two frames without times, in seconds.
const USUAL_INTERVAL: f64 = 1.0 / 30.0;

/// Squares along the shorter side of a hidden part: too few to show a face or a number plate.
const SQUARES: usize = 6;

/// The least length of a square's side, in pixels.
const LEAST_SIDE: usize = 8;

/// The way of hiding.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// Out of focus.
    Blur,
    /// As large squares.
    Pixelate,
}

/// A part of a picture that is hidden.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Hidden {
    /// Left, top, width and height; it may leave the picture.
    pub bounds: [f64; 4],
    /// How.
    pub way: Way,
}

/// Remembers from frame to frame which areas are hidden.
#[derive(Debug, Clone, Default)]
pub struct Hiding {
    subjects: Vec<(Subject, Way)>,
    /// The last sure box of each track, and for how many seconds the track has been lost.
    tracks: BTreeMap<u32, ([f64; 4], f64)>,
    /// The matches of each template when it had most lately, and for how many seconds some have been missing.
    matches: Vec<(Arc<str>, Vec<[f64; 4]>, f64)>,
    pts_ns: Option<u64>,
    size: Option<Size>,
}

impl Hiding {
    /// Hides these; the last one that means something says how.
    pub fn new(subjects: Vec<(Subject, Way)>) -> Self {
        Self { subjects, ..Self::default() }
    }

    /// True if nothing is ever hidden.
    pub fn is_idle(&self) -> bool {
        self.subjects.is_empty()
    }

    /// The parts of the next frame, a picture of that size, that are hidden.
    pub fn step(&mut self, record: &FrameRecord, size: Size) -> Vec<Hidden> {
        let before = std::mem::replace(&mut self.pts_ns, record.pts_ns);
        let passed = before.zip(record.pts_ns).and_then(|(before, now)| now.checked_sub(before));
        let passed = passed.map_or(USUAL_INTERVAL, |ns| ns as f64 * 1e-9);
        if let Some(old) = self.size.replace(size).filter(|old| *old != size) {
            // Boxes are scaled with the frames.
            let by = [size.width as f64 / old.width as f64, size.height as f64 / old.height as f64];
            let scale = |[x, y, w, h]: &mut [f64; 4]| {
                (*x, *y, *w, *h) = (*x * by[0], *y * by[1], *w * by[0], *h * by[1]);
            };
            self.tracks.values_mut().for_each(|(bounds, _)| scale(bounds));
            self.matches.iter_mut().for_each(|(_, all, _)| all.iter_mut().for_each(scale));
        }
        let mut hidden = Vec::new();
        self.tracks.retain(|id, _| record.tracks.iter().any(|track| track.id == *id));
        for track in &record.tracks {
            let names = [track.name.as_deref(), track.template.as_deref()];
            let Some(way) = self.way(Some(track.id), names) else { continue };
            let (sure, lost) = self.tracks.entry(track.id).or_insert((track.bounds(), 0.0));
            let mut hide = |bounds, margin| hidden.push(Hidden { bounds: grown(bounds, margin), way });
            match track.state {
                TrackState::Tracked | TrackState::Reacquired => {
                    (*sure, *lost) = (track.bounds(), 0.0);
                    hide(*sure, SURE);
                }
                TrackState::Uncertain => {
                    hide(*sure, UNSURE);
                    hide(track.bounds(), UNSURE);
                }
                TrackState::Lost => {
                    *lost += passed;
                    hide(*sure, (UNSURE + GROWTH * *lost).min(MOST_GROWTH));
                }
            }
        }
        for (_, _, missing) in &mut self.matches {
            *missing += passed;
        }
        for found in record.matches.chunk_by(|a, b| a.template == b.template) {
            let name = &found[0].template;
            if self.way(None, [Some(name), None]).is_none() {
                continue;
            }
            let bounds = || found.iter().map(Match::bounds).collect::<Vec<_>>();
            match self.matches.iter_mut().find(|(known, ..)| known == name) {
                Some((_, kept, missing)) if found.len() >= kept.len() => (*kept, *missing) = (bounds(), 0.0),
                Some(_) => {}
                None => self.matches.push((name.clone(), bounds(), 0.0)),
            }
        }
        self.matches.retain(|(.., missing)| *missing <= KEPT);
        for (name, kept, _) in &self.matches {
            let Some(way) = self.way(None, [Some(name), None]) else { continue };
            let now = record.matches.iter().filter(|m| m.template == *name).map(Match::bounds);
            let all = now.filter(|bounds| !kept.contains(bounds)).chain(kept.iter().copied());
            hidden.extend(all.map(|bounds| Hidden { bounds: grown(bounds, SURE), way }));
        }
        // Matches of a template whose earlier ones have been missing for too long.
        for found in record.matches.chunk_by(|a, b| a.template == b.template) {
            let name = &found[0].template;
            let Some(way) = self.way(None, [Some(name), None]) else { continue };
            if !self.matches.iter().any(|(known, ..)| known == name) {
                let bounds: Vec<_> = found.iter().map(Match::bounds).collect();
                hidden.extend(bounds.iter().map(|&bounds| Hidden { bounds: grown(bounds, SURE), way }));
                self.matches.push((name.clone(), bounds, 0.0));
            }
        }
        hidden
    }

    fn way(&self, track: Option<u32>, names: [Option<&str>; 2]) -> Option<Way> {
        self.subjects.iter().rfind(|(subject, _)| subject.means(track, names)).map(|(_, way)| *way)
    }
}

fn grown([x, y, w, h]: [f64; 4], by: f64) -> [f64; 4] {
    [x - by * w, y - by * h, w * (1.0 + 2.0 * by), h * (1.0 + 2.0 * by)]
}

impl Canvas<'_> {
    /// Hides parts of the picture, whose own coordinates they have.
    pub fn hide(&mut self, parts: &[Hidden]) {
        for Hidden { bounds: [x, y, w, h], way } in parts {
            let pixel = |v: f64| i64::from(v as i32);
            let area = Area {
                left: pixel(libm::floor(*x)),
                top: pixel(libm::floor(*y)),
                right: pixel(libm::ceil(x + w)),
                bottom: pixel(libm::ceil(y + h)),
            };
            let Some(rect) = area.clipped(self.size) else { continue };
            // Measured on the whole box: the part inside the picture may be small, and its squares too fine.
            let side = (w.min(*h) as usize / SQUARES).max(LEAST_SIDE);
            let side = side.min(self.size.width.max(self.size.height));
            self.hide_rect(rect, side, *way);
        }
    }

    fn hide_rect(&mut self, rect: Rect, side: usize, way: Way) {
        let (x_shift, y_shift) = (self.format.x_shift, self.format.y_shift);
        self.coarsen(0, (0, 1), rect, [side; 2], way);
        // Every sample that belongs to a pixel of the rectangle.
        let (left, top) = (rect.x >> x_shift, rect.y >> y_shift);
        let right = (rect.x + rect.w).div_ceil(1 << x_shift);
        let bottom = (rect.y + rect.h).div_ceil(1 << y_shift);
        let samples = Rect { x: left, y: top, w: right - left, h: bottom - top };
        let sides = [(side >> x_shift).max(1), (side >> y_shift).max(1)];
        for component in 0..2 {
            let Some((plane, first, step)) = self.format.chroma_samples(component) else { return };
            self.coarsen(plane, (first, step), samples, sides, way);
        }
    }

    /// Replaces the samples of a part of a plane, each `step` bytes from the next, by the means of squares.
    fn coarsen(
        &mut self,
        plane: usize,
        (first, step): (usize, usize),
        Rect { x, y, w, h }: Rect,
        [across, down]: [usize; 2],
        way: Way,
    ) {
        let plane = &mut self.planes[plane];
        let (columns, rows) = (w.div_ceil(across), h.div_ceil(down));
        let mut means = vec![0; columns * rows];
        for row in 0..rows {
            let range = row * down..((row + 1) * down).min(h);
            let mut sums = vec![0_u64; columns];
            for j in range.clone() {
                let samples = plane.row(y + j)[first..].iter().step_by(step).skip(x).take(w);
                samples.enumerate().for_each(|(i, &sample)| sums[i / across] += u64::from(sample));
            }
            for (column, sum) in sums.iter().enumerate() {
                let count = (((column + 1) * across).min(w) - column * across) * range.len();
                means[row * columns + column] = ((sum + count as u64 / 2) / count as u64) as u8;
            }
        }
        let mean = |column: usize, row: usize| {
            u64::from(means[row.min(rows - 1) * columns + column.min(columns - 1)])
        };
        // A blur goes evenly from the middle of each square to that of the next, which needs no more than the
        // means: nothing finer than they are is left.
        let between = |at: usize, length: usize| {
            let place = (2 * at + 1).saturating_sub(length);
            (place / (2 * length), (place % (2 * length)) as u64)
        };
        let places: Vec<_> = (0..w).map(|i| between(i, across)).collect();
        for j in 0..h {
            let (row, down_share) = between(j, down);
            let samples = plane.row(y + j)[first..].iter_mut().step_by(step).skip(x).take(w);
            for (i, sample) in samples.enumerate() {
                *sample = match way {
                    Way::Pixelate => mean(i / across, j / down) as u8,
                    Way::Blur => {
                        let (column, across_share) = places[i];
                        // 32 bits are too few for squares of 2053 pixels.
                        let (width, height) = (2 * across as u64, 2 * down as u64);
                        let along = |row| {
                            mean(column, row) * (width - across_share) + mean(column + 1, row) * across_share
                        };
                        let sum = along(row) * (height - down_share) + along(row + 1) * down_share;
                        ((sum + width * height / 2) / (width * height)) as u8
                    }
                };
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::{PixelFormat, Plane};
    use crate::results::Track;

    const SIZE: Size = Size::new(641, 483);

    fn record(frame: u64, tracks: Vec<Track>, matches: Vec<Match>) -> FrameRecord {
        FrameRecord { frame, pts_ns: Some(frame * 100_000_000), tracks, matches, ..FrameRecord::default() }
    }

    fn track(state: TrackState, x: f64) -> Track {
        Track { id: 1, state, x, y: 100.0, w: 40.0, h: 20.0, ..Track::default() }
    }

    fn found(x: usize) -> Match {
        let template = "face".into();
        Match { template, x, y: 10, w: 20, h: 20, score: 0.9, scale: 1.0, angle: 0.0, cx: 0.0, cy: 0.0 }
    }

    fn hiding(subject: &str) -> Hiding {
        Hiding::new(vec![(subject.parse().unwrap(), Way::Blur)])
    }

    fn bounds(hidden: &[Hidden]) -> Vec<[f64; 4]> {
        hidden.iter().map(|hidden| hidden.bounds).collect()
    }

    #[test]
    fn a_lost_or_uncertain_track_stays_hidden_where_it_was_sure_and_the_part_grows() {
        use TrackState::{Lost, Tracked, Uncertain};
        let mut hiding = hiding("1");
        let mut step =
            |frame, state, x| bounds(&hiding.step(&record(frame, vec![track(state, x)], vec![]), SIZE));
        assert_eq!(step(0, Tracked, 200.0), [[194.0, 97.0, 52.0, 26.0]]);
        assert_eq!(step(1, Uncertain, 300.0), [[180.0, 90.0, 80.0, 40.0], [280.0, 90.0, 80.0, 40.0]]);
        // The margin is 0.5 + 0.1, on both sides.
        assert_eq!(step(2, Lost, 300.0), [[176.0, 88.0, 88.0, 44.0]]);
        assert_eq!(step(3, Lost, 300.0), [[172.0, 86.0, 96.0, 48.0]]);
        assert_eq!(step(90, Lost, 300.0), [[120.0, 60.0, 200.0, 100.0]]);
        assert_eq!(bounds(&hiding.step(&record(91, vec![], vec![]), SIZE)), [[0.0; 4]; 0]);
    }

    #[test]
    fn matches_that_are_missing_stay_hidden_for_a_second() {
        let mut hiding = hiding("face");
        let mut count = |frame, found: Vec<Match>| hiding.step(&record(frame, vec![], found), SIZE).len();
        assert_eq!(count(0, vec![found(10), found(100)]), 2);
        // The one found now, and the earlier places of both.
        assert_eq!(count(1, vec![found(12)]), 3);
        assert_eq!(count(10, vec![]), 2);
        assert_eq!(count(11, vec![]), 0);
        assert_eq!(count(12, vec![found(12)]), 1);
        assert_eq!(count(30, vec![found(12)]), 1);
    }

    #[test]
    fn only_those_that_are_meant_are_hidden_and_the_last_word_says_how() {
        let all = |subjects: &[(&str, Way)]| {
            let subjects = subjects.iter().map(|(text, way)| (text.parse().unwrap(), *way)).collect();
            let named = Track { name: Some("van".into()), ..track(TrackState::Tracked, 50.0) };
            let other = Track { id: 2, template: Some("car".into()), ..track(TrackState::Tracked, 250.0) };
            let hidden = Hiding::new(subjects).step(&record(0, vec![named, other], vec![]), SIZE);
            hidden.iter().map(|hidden| (hidden.bounds[0], hidden.way)).collect::<Vec<_>>()
        };
        assert_eq!(all(&[("van", Way::Blur)]), [(44.0, Way::Blur)]);
        assert_eq!(all(&[("car", Way::Blur)]), [(244.0, Way::Blur)]);
        assert_eq!(all(&[("2", Way::Pixelate)]), [(244.0, Way::Pixelate)]);
        assert_eq!(
            all(&[("all", Way::Blur), ("2", Way::Pixelate)]),
            [(44.0, Way::Blur), (244.0, Way::Pixelate)]
        );
        assert_eq!(all(&[("bus", Way::Blur), ("7", Way::Blur)]), []);
    }

    /// A picture of noise in that format, with a part of it hidden.
    fn drawn(format: &str, bounds: [f64; 4], way: Way) -> (Vec<Plane>, Vec<Plane>) {
        let format = PixelFormat::from_name(format).unwrap();
        let mut seed = 17_u32;
        let mut noise = |size: Size| {
            let bytes = (0..size.area()).map(|_| {
                seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                (seed >> 24) as u8
            });
            Plane::from_vec(bytes.collect(), size)
        };
        let before: Vec<Plane> = (0..format.planes()).map(|i| noise(format.plane_size(i, SIZE))).collect();
        let mut after = before.clone();
        let views = after.iter_mut().map(Plane::as_mut).collect();
        Canvas::new(views, format, SIZE).hide(&[Hidden { bounds, way }]);
        (before, after)
    }

    #[test]
    fn what_is_hidden_has_no_detail_and_the_rest_is_as_it_was() {
        for format in ["I420", "NV12", "GRAY8", "Y444"] {
            for way in [Way::Blur, Way::Pixelate] {
                let (before, after) = drawn(format, [100.0, 50.0, 120.0, 90.0], way);
                let (old, new) = (before[0].as_ref(), after[0].as_ref());
                for y in 0..SIZE.height {
                    for x in 0..SIZE.width {
                        let is_inside = (100..220).contains(&x) && (50..140).contains(&y);
                        let (before, now) = (old.row(y)[x], new.row(y)[x]);
                        if is_inside {
                            // Means of 225 values of noise lie near the middle.
                            assert!((100..156).contains(&now), "{format} {x},{y}: {now}");
                        } else {
                            assert_eq!(before, now, "{format} {x},{y}");
                        }
                    }
                }
                let differing = before.iter().zip(&after).filter(|(a, b)| a.data() != b.data());
                assert_eq!(differing.count(), before.len(), "{format}: colours too");
            }
        }
    }

    #[test]
    fn a_part_as_large_as_the_largest_pictures_is_blurred_to_their_mean() {
        let (format, size) = (PixelFormat::from_name("GRAY8").unwrap(), Size::new(2503, 3));
        let mut plane = Plane::from_vec(vec![255; size.area()], size);
        let way = Way::Blur;
        Canvas::new(vec![plane.as_mut()], format, size)
            .hide(&[Hidden { bounds: [-9e3, -9e3, 2e4, 2e4], way }]);
        assert!(plane.data().iter().all(|&sample| sample == 255));
    }

    #[test]
    fn parts_at_and_beyond_the_edges_are_hidden_as_far_as_they_are_there() {
        for bounds in [[-50.0, -50.0, 60.0, 60.0], [630.0, 470.0, 40.0, 40.0], [-9e9, -9e9, 2e10, 2e10]] {
            let (before, after) = drawn("I420", bounds, Way::Blur);
            assert_ne!(before[0].data(), after[0].data());
        }
        let (before, after) = drawn("NV12", [700.0, 0.0, 9.0, 9.0], Way::Pixelate);
        assert_eq!((before[0].data(), before[1].data()), (after[0].data(), after[1].data()));
    }
}
