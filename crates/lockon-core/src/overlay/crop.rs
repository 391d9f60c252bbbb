//! A part of the picture that follows a track, as a camera operator would: without shaking.

use crate::config::Shot;
use crate::frame::{PlaneMut, PlaneRef, Size};
use crate::results::{FrameRecord, Track, TrackState};

/// The time in seconds in which the distance of the part's middle from the target's falls to 1/e.
const CALM: f64 = 0.3;

/// The time in seconds until it reaches a target that was found elsewhere.
const GLIDE: f64 = 0.6;

/// The time between two frames without times.
const USUAL_INTERVAL: f64 = 1.0 / 30.0;

/// Maximum interval between frames: during a longer one the movement is unknown.
const LONGEST_INTERVAL: f64 = 0.5;

/// Fraction bits of places between pixels.
const BITS: u32 = 8;

/// The place of the part, from frame to frame.
///
/// The target's middle goes through an alpha-beta filter whose two poles lie on each other: the part's middle
/// neither shakes nor overshoots, and has no lag if the target moves evenly. While the track is lost the part
/// stays in place; if the track is found elsewhere the part glides there. It never leaves the picture. P. R.
/// Kalata, "The tracking index", IEEE Trans. AES 20, 1984, for the filter.
#[derive(Debug, Clone)]
pub struct Crop {
    shot: Shot,
    zoom: f64,
    /// The followed track if none was named.
    track: Option<u32>,
    size: Option<Size>,
    pts_ns: Option<u64>,
    /// The filter's state: the target's middle and its movement per second.
    place: [f64; 2],
    speed: [f64; 2],
    /// Offset of the part's middle from that place, `since` seconds ago.
    beside: [f64; 2],
    since: f64,
    /// False while nothing is followed.
    follows: bool,
}

impl Crop {
    /// Returns a crop that shows the part `zoom` times as large as in the picture, 1 or more; larger if the
    /// picture is too small.
    pub fn new(shot: Shot, zoom: f64) -> Self {
        Self {
            shot,
            zoom,
            track: None,
            size: None,
            pts_ns: None,
            place: [0.0; 2],
            speed: [0.0; 2],
            beside: [0.0; 2],
            since: GLIDE,
            follows: false,
        }
    }

    /// Size of the shown part.
    pub fn shown(&self) -> Size {
        self.shot.size
    }

    /// The part of the next frame, a picture of `size`: left, top, width, height.
    pub fn step(&mut self, record: &FrameRecord, size: Size) -> [f64; 4] {
        let is_first = self.size.replace(size) != Some(size);
        let before = std::mem::replace(&mut self.pts_ns, record.pts_ns);
        let passed = before.zip(record.pts_ns).and_then(|(before, now)| now.checked_sub(before));
        let passed = passed.map_or(USUAL_INTERVAL, |ns| ns as f64 / 1e9).min(LONGEST_INTERVAL);
        if is_first {
            // A picture of another size starts a new view.
            (self.place, self.speed) = ([size.width as f64 / 2.0, size.height as f64 / 2.0], [0.0; 2]);
            (self.since, self.follows) = (GLIDE, false);
        } else {
            self.since += passed;
        }
        match self.target(record) {
            Some(target) if self.follows => self.filter(target, passed),
            Some(target) => {
                let shown = self.middle();
                (self.place, self.speed, self.follows) = (target, [0.0; 2], true);
                if !is_first {
                    self.beside = [shown[0] - target[0], shown[1] - target[1]];
                    self.since = 0.0;
                }
            }
            None => {
                // It stays in place.
                (self.place, self.speed, self.since) = (self.middle(), [0.0; 2], GLIDE);
                self.follows = false;
            }
        }
        self.part(size)
    }

    /// Returns the middle of the followed track, if it is found.
    fn target(&mut self, record: &FrameRecord) -> Option<[f64; 2]> {
        let with = |id| record.tracks.iter().find(|track| track.id == id);
        let track = if let Some(id) = self.shot.track {
            with(id)
        } else {
            let found = |track: &&Track| track.state != TrackState::Lost;
            let track = self.track.and_then(with).or_else(|| record.tracks.iter().find(found));
            // The next track is another target.
            self.follows &= track.map(|track| track.id) == self.track;
            self.track = track.map(|track| track.id);
            track
        };
        let Track { x, y, w, h, .. } = *track.filter(|track| track.state != TrackState::Lost)?;
        Some([x + w / 2.0, y + h / 2.0])
    }

    fn filter(&mut self, target: [f64; 2], passed: f64) {
        if passed <= 0.0 {
            return;
        }
        let pole = libm::exp(-passed / CALM);
        let (alpha, beta) = (1.0 - pole * pole, (1.0 - pole) * (1.0 - pole));
        for ((place, speed), target) in self.place.iter_mut().zip(&mut self.speed).zip(target) {
            *place += *speed * passed;
            let off = target - *place;
            *place += alpha * off;
            *speed += beta * off / passed;
        }
    }

    /// Returns the middle of the shown part.
    fn middle(&self) -> [f64; 2] {
        let share = (self.since / GLIDE).clamp(0.0, 1.0);
        let left = 1.0 - share * share * (3.0 - 2.0 * share);
        [0, 1].map(|axis| self.place[axis] + left * self.beside[axis])
    }

    fn part(&self, size: Size) -> [f64; 4] {
        let (width, height) = (size.width as f64, size.height as f64);
        let (w, h) = (self.shot.size.width as f64 / self.zoom, self.shot.size.height as f64 / self.zoom);
        let fits = (width / w).min(height / h).min(1.0);
        let (w, h) = ((w * fits).min(width), (h * fits).min(height));
        let [x, y] = self.middle();
        [(x - w / 2.0).clamp(0.0, width - w), (y - h / 2.0).clamp(0.0, height - h), w, h]
    }
}

/// Fills `target` with the part of `source` that begins at `place`. One pixel of the result covers `step`
/// pixels of the source, across and down; places between pixels are bilinear, to 1/256 of a pixel. `bytes`
/// belong together: 2 if two kinds of chroma share a plane.
pub fn resample(
    source: PlaneRef<'_>,
    target: &mut PlaneMut<'_>,
    place: [f64; 2],
    step: [f64; 2],
    bytes: usize,
) {
    let (from, to) = (source.size(), target.size());
    let columns: Vec<_> =
        (0..to.width / bytes).map(|column| between(place[0], step[0], column, from.width / bytes)).collect();
    for row in 0..to.height {
        let (upper, share) = between(place[1], step[1], row, from.height);
        let (above, below) = (source.row(upper), source.row((upper + 1).min(from.height - 1)));
        let line = target.row(row);
        for (pixel, &(left, across)) in line.chunks_exact_mut(bytes).zip(&columns) {
            let right = (left + 1).min(from.width / bytes - 1);
            for (byte, value) in pixel.iter_mut().enumerate() {
                let column = |at: usize| {
                    let (above, below) =
                        (u32::from(above[at * bytes + byte]), u32::from(below[at * bytes + byte]));
                    above * ((1 << BITS) - share) + below * share
                };
                let sum = column(left) * ((1 << BITS) - across) + column(right) * across;
                *value = ((sum + (1 << (2 * BITS - 1))) >> (2 * BITS)) as u8;
            }
        }
    }
}

/// The pixel left of a place, or above it, and the distance of the place from it, in 1/256.
fn between(place: f64, step: f64, index: usize, length: usize) -> (usize, u32) {
    let at = (place + (index as f64 + 0.5) * step - 0.5).clamp(0.0, (length - 1) as f64);
    let fixed = libm::round(at * f64::from(1 << BITS)) as u64;
    ((fixed >> BITS) as usize, (fixed & ((1 << BITS) - 1)) as u32)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::Plane;

    const SIZE: Size = Size::new(1920, 1080);
    const RATE: f64 = 30.0;

    fn record(frame: u64, tracks: &[(u32, TrackState, [f64; 2])]) -> FrameRecord {
        let track = |&(id, state, [x, y]): &(u32, TrackState, [f64; 2])| Track {
            id,
            state,
            x: x - 20.0,
            y: y - 30.0,
            w: 40.0,
            h: 60.0,
            ..Track::default()
        };
        let pts_ns = Some((frame as f64 / RATE * 1e9) as u64);
        FrameRecord { frame, pts_ns, tracks: tracks.iter().map(track).collect(), ..FrameRecord::default() }
    }

    fn crop(text: &str, zoom: f64) -> Crop {
        Crop::new(text.parse().unwrap(), zoom)
    }

    /// The middles of the parts that follow track 1 along a path, `None` where it is lost.
    fn middles(crop: &mut Crop, path: &[Option<[f64; 2]>]) -> Vec<[f64; 2]> {
        let mut last = [960.0, 540.0];
        let step = |(frame, at): (usize, &Option<[f64; 2]>)| {
            let state = if at.is_some() { TrackState::Tracked } else { TrackState::Lost };
            last = at.unwrap_or(last);
            let [x, y, w, h] = crop.step(&record(frame as u64, &[(1, state, last)]), SIZE);
            assert!(x >= 0.0 && y >= 0.0 && x + w <= 1920.0 && y + h <= 1080.0, "frame {frame}");
            [x + w / 2.0, y + h / 2.0]
        };
        path.iter().enumerate().map(step).collect()
    }

    fn distance(a: [f64; 2], b: [f64; 2]) -> f64 {
        libm::hypot(a[0] - b[0], a[1] - b[1])
    }

    /// The maximum difference between two steps in a row.
    fn jerk(middles: &[[f64; 2]]) -> f64 {
        let change = |w: &[[f64; 2]]| {
            distance([w[2][0] - w[1][0], w[2][1] - w[1][1]], [w[1][0] - w[0][0], w[1][1] - w[0][1]])
        };
        middles.windows(3).map(change).fold(0.0, f64::max)
    }

    #[test]
    fn a_target_that_moves_evenly_is_in_the_middle_after_two_seconds() {
        let path: Vec<_> =
            (0..150).map(|frame| Some([400.0 + 6.0 * f64::from(frame), 500.0 + f64::from(frame)])).collect();
        let middles = middles(&mut crop("640x640", 1.0), &path);
        assert!(distance(middles[0], path[0].unwrap()) < 1e-9, "it begins there");
        for (frame, (middle, at)) in middles.iter().zip(&path).enumerate() {
            let off = distance(*middle, at.unwrap());
            assert!(off <= if frame < 60 { 25.0 } else { 0.5 }, "frame {frame}: {off}");
        }
        assert!(jerk(&middles) <= 2.0, "{}", jerk(&middles));
    }

    #[test]
    fn a_box_that_shakes_does_not_shake_what_is_shown() {
        // Two pixels up and down at random, as the worst tracks do.
        let mut seed = 1_u64;
        let mut shake = || {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            ((seed >> 33) as f64 / f64::from(1_u32 << 31) - 0.5) * 4.0
        };
        let path: Vec<_> = (0..300).map(|_| Some([900.0 + shake(), 500.0 + shake()])).collect();
        let shaken = path.iter().map(|at| at.unwrap()).collect::<Vec<_>>();
        let middles = middles(&mut crop("640x640", 1.0), &path);
        assert!(8.0 * jerk(&middles) < jerk(&shaken), "{} {}", jerk(&shaken), jerk(&middles));
        assert!(middles.iter().skip(10).all(|middle| distance(*middle, [900.0, 500.0]) < 2.0));
    }

    #[test]
    fn while_it_is_lost_it_stays_and_it_glides_to_where_it_is_found() {
        let mut path = vec![Some([600.0, 500.0]); 30];
        path.extend([None; 30]);
        path.extend([Some([1200.0, 600.0]); 60]);
        let middles = middles(&mut crop("640x640", 1.0), &path);
        assert!(middles[30..60].iter().all(|middle| *middle == middles[29]));
        let steps: Vec<_> = middles.windows(2).map(|pair| distance(pair[0], pair[1])).collect();
        // 608 pixels in 18 frames, 1.5 times as fast in the middle, and slow at both ends.
        assert!(steps.iter().all(|step| *step < 55.0), "{steps:?}");
        assert!(jerk(&middles) < 13.0, "{}", jerk(&middles));
        assert!(distance(middles[60 + 19], [1200.0, 600.0]) < 1.0);
    }

    #[test]
    fn the_first_track_is_followed_until_it_is_gone_and_a_chosen_one_always() {
        use TrackState::{Lost, Tracked};
        let frames: Vec<&[(u32, TrackState, [f64; 2])]> = vec![
            &[(2, Lost, [100.0, 100.0]), (3, Tracked, [700.0, 500.0]), (4, Tracked, [1200.0, 600.0])],
            &[(2, Tracked, [100.0, 100.0]), (3, Tracked, [700.0, 500.0]), (4, Tracked, [1200.0, 600.0])],
            &[(4, Tracked, [1200.0, 600.0])],
        ];
        let shown = |text: &str| {
            let mut crop = crop(text, 1.0);
            let mut last = [0.0; 2];
            for frame in 0..90 {
                let tracks = frames[(frame / 30) as usize];
                let [x, y, w, h] = crop.step(&record(frame, tracks), SIZE);
                last = [x + w / 2.0, y + h / 2.0];
                if text == "320x320" && frame < 60 {
                    assert_eq!(last, [700.0, 500.0]);
                }
            }
            last
        };
        assert!(distance(shown("320x320"), [1200.0, 600.0]) < 1.0);
        // Gone: it stays.
        assert!(distance(shown("320x320@3"), [700.0, 500.0]) < 1.0);
    }

    #[test]
    fn the_part_has_the_shape_that_was_asked_for_and_stays_in_the_picture() {
        let record = record(0, &[(1, TrackState::Tracked, [5.0, 1070.0])]);
        for (text, zoom, expected) in [
            ("640x480", 1.0, [0.0, 600.0, 640.0, 480.0]),
            ("640x480", 2.0, [0.0, 840.0, 320.0, 240.0]),
            // As much as exists.
            ("2160x2160", 1.0, [0.0, 0.0, 1080.0, 1080.0]),
            ("3840x1080", 1.0, [0.0, 540.0, 1920.0, 540.0]),
        ] {
            assert_eq!(crop(text, zoom).step(&record, SIZE), expected, "{text}");
        }
    }

    #[test]
    fn whole_places_are_copied_and_those_between_are_mixed() {
        let size = Size::new(13, 9);
        let bytes: Vec<u8> = (0..size.area()).map(|i| (i * 37 % 251) as u8).collect();
        let source = Plane::from_vec(bytes, size);
        let mut target = Plane::new(Size::new(6, 4));
        resample(source.as_ref(), &mut target.as_mut(), [3.0, 2.0], [1.0; 2], 1);
        for (y, row) in target.as_ref().rows().enumerate() {
            assert_eq!(row, &source.as_ref().row(y + 2)[3..9]);
        }
        resample(source.as_ref(), &mut target.as_mut(), [3.5, 2.0], [1.0; 2], 1);
        let [left, right] = [source.as_ref().row(2)[3], source.as_ref().row(2)[4]].map(u32::from);
        assert_eq!(u32::from(target.data()[0]), (left + right).div_ceil(2));
        // Pairs stay together.
        let mut pairs = Plane::new(Size::new(4, 4));
        resample(source.as_ref(), &mut pairs.as_mut(), [2.0, 1.0], [1.0; 2], 2);
        assert_eq!(pairs.as_ref().row(0), &source.as_ref().row(1)[4..8]);
    }
}
