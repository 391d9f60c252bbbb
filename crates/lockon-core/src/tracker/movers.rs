//! Objects that move against the ground: places at which a lost target may be.
//!
//! A target that has turned or changed responds less than other places do; but it keeps moving, and often
//! nothing else does. So the place with the most motion is looked at in every second frame of a search.
//!
//! The frame before, carried by the camera's motion, is subtracted from this one. A pixel counts by how much
//! it differs from all nine about its place there: edges that lie between pixels, and a motion that is a
//! pixel off, leave nothing behind.

use super::camera::{Motion, Small};
use super::workplaces::Threads;
use crate::simd::Level;

/// Differences up to that are noise of the camera and of coding, in grey levels.
const NOISE: u8 = 3;

/// A place at which pixels differ by no more than this in the mean, beyond noise, does not move.
const LEAST_MEAN: u32 = 1;

/// The shortest side of a box that is looked for, in pixels of the shrunken picture.
const LEAST_SIDE: usize = 4;

/// Pixels of a row that are worked on together, and rows that a thread takes at a time.
const LANES: usize = 128;
const AT_ONCE: usize = 12;

/// The differences of places of the shrunken picture from the frame before; keeps its memory.
pub(super) struct Movers {
    level: Level,
    /// The minima and the maxima of the three by three pixels about each, in the frame before: a row of
    /// minima, its maxima, and so on. At the border nothing is known: there they are 0 and 255.
    extremes: Vec<u8>,
    /// Sums of the differences in all rows above and all columns to the left of a pixel; one row and one
    /// column more than the picture has.
    sums: Vec<u32>,
    width: usize,
    height: usize,
    /// Pixels of the frame to one of the shrunken picture; 0 if nothing is known of this frame.
    factor: f64,
}

impl Movers {
    pub(super) fn new() -> Self {
        Self {
            level: Level::best(),
            extremes: Vec::new(),
            sums: Vec::new(),
            width: 0,
            height: 0,
            factor: 0.0,
        }
    }

    /// Takes in two pictures of one size, the motion between them in their pixels, and pixels of the frame to
    /// one of them; or that nothing is known of this frame.
    pub(super) fn see(&mut self, pictures: Option<(&Small, &Small, Motion, usize)>, threads: &Threads) {
        let Some((before, now, motion, factor)) = pictures else {
            self.factor = 0.0;
            return;
        };
        (self.width, self.height, self.factor) = (now.width, now.height, factor as f64);
        let Self { level, extremes, sums, .. } = self;
        let (width, height, length) = (now.width, now.height, now.width + 1);
        spread((*level, threads), before, extremes);
        let extremes = &*extremes;
        let back = motion.inverse();
        sums.resize(length * (height + 1), 0);
        sums[..length].fill(0);
        threads.rows(&mut sums[length..], (length, AT_ONCE), |y, sums| {
            level.run(
                #[inline(always)]
                || {
                    sums[0] = 0;
                    let mut sum = 0;
                    let lanes = sums[1..].chunks_mut(LANES).zip(now.row(y).chunks(LANES));
                    for (index, (sums, row)) in lanes.enumerate() {
                        let mut pixels = [0; LANES];
                        pixels[..row.len()].copy_from_slice(row);
                        let about = About::of(back, (index * LANES, y), row.len(), (width, height), extremes);
                        for (sum_here, difference) in sums.iter_mut().zip(differ(&pixels, &about)) {
                            sum += u32::from(difference);
                            *sum_here = sum;
                        }
                    }
                },
            );
        });
        level.run(
            #[inline(always)]
            || {
                for y in 1..height {
                    let (above, below) = sums[y * length..][..2 * length].split_at_mut(length);
                    for (below, above) in below.iter_mut().zip(above) {
                        *below += *above;
                    }
                }
            },
        );
    }

    /// The middle of the box of a size whose pixels differ most, in pixels of the frame, the first of equal
    /// ones; only what `is_free`.
    pub(super) fn find(
        &self,
        (w, h): (f64, f64),
        is_free: impl Fn((f64, f64)) -> bool,
    ) -> Option<(f64, f64)> {
        if self.factor == 0.0 || self.width < LEAST_SIDE || self.height < LEAST_SIDE {
            return None;
        }
        let side = |length: f64, most: usize| ((length / self.factor) as usize).clamp(LEAST_SIDE, most);
        let (w, h) = (side(w, self.width), side(h, self.height));
        let middle = |x: usize, y: usize| {
            ((x as f64 + 0.5 * w as f64) * self.factor, (y as f64 + 0.5 * h as f64) * self.factor)
        };
        let length = self.width + 1;
        let (mut best, mut most) = (None, LEAST_MEAN * (w * h) as u32);
        for y in 0..=self.height - h {
            let above = &self.sums[y * length..][..length];
            let below = &self.sums[(y + h) * length..][..length];
            let corners = above.iter().zip(&above[w..]).zip(below.iter().zip(&below[w..]));
            let boxes = corners.map(|((a, b), (c, d))| (d - c) - (b - a));
            // Few rows have a larger one, and a maximum is computed with vectors.
            let has_more = self.level.run(
                #[inline(always)]
                || boxes.clone().fold(0, u32::max) > most,
            );
            if !has_more {
                continue;
            }
            for (x, sum) in boxes.enumerate() {
                if sum > most && is_free(middle(x, y)) {
                    (best, most) = (Some(middle(x, y)), sum);
                }
            }
        }
        best
    }
}

/// The minima and the maxima about the places that pixels beside each other come from.
struct About {
    least: [u8; LANES],
    most: [u8; LANES],
}

impl About {
    /// For `count` pixels from (`x`, `y`) on, from the extremes of a picture of that size. Beyond it nothing
    /// is known.
    fn of(
        back: Motion,
        (x, y): (usize, usize),
        count: usize,
        (width, height): (usize, usize),
        extremes: &[u8],
    ) -> Self {
        let (right, bottom) = (width as f64, height as f64);
        let place = |x: usize| {
            // A pixel's middle lies half a pixel from its corner.
            let (x, y) = back.apply((x as f64 + 0.5, y as f64 + 0.5));
            let is_inside = x >= 0.0 && y >= 0.0 && x < right && y < bottom;
            is_inside.then(|| y as usize * 2 * width + x as usize)
        };
        let mut about = Self { least: [u8::MIN; LANES], most: [u8::MAX; LANES] };
        let (mut at, mut likely) = (0, LANES);
        while at < count {
            let Some(from) = place(x + at) else {
                at += 1;
                continue;
            };
            // Most cameras hardly zoom and turn: then many come from beside each other, and all between two
            // that do.
            let are_beside = |count: usize| place(x + at + count - 1) == Some(from + count - 1);
            let mut length = likely.min(count - at);
            while length > 1 && !are_beside(length) {
                length /= 2;
            }
            about.least[at..][..length].copy_from_slice(&extremes[from..][..length]);
            about.most[at..][..length].copy_from_slice(&extremes[from + width..][..length]);
            at += length;
            likely = 2 * length;
        }
        about
    }
}

/// By how much pixels differ from all about their places, beyond noise.
#[inline(always)]
fn differ(pixels: &[u8; LANES], About { least, most }: &About) -> [u8; LANES] {
    let mut differences = [0; LANES];
    for lane in 0..LANES {
        let (darker, brighter) =
            (least[lane].saturating_sub(pixels[lane]), pixels[lane].saturating_sub(most[lane]));
        differences[lane] = darker.max(brighter).saturating_sub(NOISE);
    }
    differences
}

/// Writes the minima and the maxima of the three by three pixels about each; 0 and 255 at the border.
fn spread((level, threads): (Level, &Threads), picture: &Small, extremes: &mut Vec<u8>) {
    let (width, height) = (picture.width, picture.height);
    extremes.resize(2 * width * height, 0);
    threads.rows(extremes, (2 * width.max(1), AT_ONCE), |y, extremes| {
        let (minima, maxima) = extremes.split_at_mut(width);
        if y == 0 || y + 1 == height || width < 3 {
            minima.fill(u8::MIN);
            maxima.fill(u8::MAX);
            return;
        }
        let rows = [picture.row(y - 1), picture.row(y), picture.row(y + 1)];
        level.run(
            #[inline(always)]
            || {
                for x in (1..width - 1).step_by(LANES) {
                    let count = LANES.min(width - 1 - x);
                    // The columns', and one more at each end.
                    let (mut least, mut most) = ([u8::MAX; LANES + 2], [u8::MIN; LANES + 2]);
                    for row in rows {
                        let mut pixels = [0; LANES + 2];
                        pixels[..count + 2].copy_from_slice(&row[x - 1..][..count + 2]);
                        for ((least, most), pixel) in least.iter_mut().zip(&mut most).zip(pixels) {
                            (*least, *most) = ((*least).min(pixel), (*most).max(pixel));
                        }
                    }
                    let (mut minimum, mut maximum) = ([0; LANES], [0; LANES]);
                    for lane in 0..LANES {
                        minimum[lane] = least[lane].min(least[lane + 1]).min(least[lane + 2]);
                        maximum[lane] = most[lane].max(most[lane + 1]).max(most[lane + 2]);
                    }
                    minima[x..][..count].copy_from_slice(&minimum[..count]);
                    maxima[x..][..count].copy_from_slice(&maximum[..count]);
                }
            },
        );
        (minima[0], minima[width - 1]) = (u8::MIN, u8::MIN);
        (maxima[0], maxima[width - 1]) = (u8::MAX, u8::MAX);
    });
}

#[cfg(test)]
mod tests {
    use super::super::workplaces::Workplaces;
    use super::*;

    // Three runs of lanes, and a few pixels more than two.
    const WIDTH: usize = 293;
    const HEIGHT: usize = 61;

    /// Smooth waves that go (`x`, `y`) to the right and down, and a checked box of 11 x 9 pixels.
    fn picture((x, y): (f64, f64), at: Option<(usize, usize)>) -> Small {
        let ground = |i: usize| {
            let (u, v) = ((i % WIDTH) as f64 - x, (i / WIDTH) as f64 - y);
            (120.0 + 50.0 * libm::sin(0.3 * u + 0.1 * v) + 30.0 * libm::cos(0.23 * v - 0.07 * u)) as u8
        };
        let mut data: Vec<u8> = (0..WIDTH * HEIGHT).map(ground).collect();
        if let Some((left, top)) = at {
            for i in 0..11 * 9 {
                let (u, v) = (i % 11, i / 11);
                data[(top + v) * WIDTH + left + u] = if (u / 2 + v / 2) % 2 == 0 { 250 } else { 5 };
            }
        }
        Small::new(WIDTH, HEIGHT, data)
    }

    fn found(before: &Small, now: &Small, motion: Motion, is_free: bool) -> Option<(f64, f64)> {
        let mut movers = Movers::new();
        movers.see(Some((before, now, motion, 2)), &Threads::new(1));
        movers.find((22.0, 18.0), |_| is_free)
    }

    #[test]
    fn what_goes_over_the_ground_is_found_where_it_is_now() {
        let motion = Motion::shift(3.4, -1.7);
        let (before, now) = (picture((0.0, 0.0), Some((40, 30))), picture((3.4, -1.7), Some((52, 20))));
        let (x, y) = found(&before, &now, motion, true).expect("something moves");
        // In pixels of the frame; two of them are one here.
        assert!((x - 2.0 * 57.5).abs() <= 4.0 && (y - 2.0 * 24.5).abs() <= 4.0, "{x}, {y}");
        assert_eq!(found(&before, &now, motion, false), None, "there is another target");
    }

    #[test]
    fn sums_are_those_of_the_definition_on_any_number_of_threads() {
        let motion = Motion::fit(&[((10.0, 5.0), (13.1, 4.2)), ((80.0, 50.0), (84.3, 51.9))]).unwrap();
        let (before, now) = (picture((0.0, 0.0), Some((40, 30))), picture((3.4, -1.7), Some((52, 20))));
        let back = motion.inverse();
        let difference = |x: usize, y: usize| {
            let (u, v) = back.apply((x as f64 + 0.5, y as f64 + 0.5));
            let (u, v) = (libm::floor(u), libm::floor(v));
            let is_inside = u >= 1.0 && v >= 1.0 && u < WIDTH as f64 - 1.0 && v < HEIGHT as f64 - 1.0;
            let about = |i: usize| before.row(v as usize + i / 3 - 1)[u as usize + i % 3 - 1];
            let pixel = now.row(y)[x];
            let (least, most) = if is_inside {
                ((0..9).map(about).min().unwrap(), (0..9).map(about).max().unwrap())
            } else {
                (0, 255)
            };
            u32::from(least.saturating_sub(pixel).max(pixel.saturating_sub(most)).saturating_sub(NOISE))
        };
        let mut sums = vec![0; (WIDTH + 1) * (HEIGHT + 1)];
        for (x, y) in (0..HEIGHT).flat_map(|y| (0..WIDTH).map(move |x| (x, y))) {
            let at = |x: usize, y: usize| y * (WIDTH + 1) + x;
            sums[at(x + 1, y + 1)] =
                difference(x, y) + sums[at(x, y + 1)] + sums[at(x + 1, y)] - sums[at(x, y)];
        }
        assert!(sums.last().is_some_and(|&sum| sum > 1000));
        for threads in [1, 3] {
            let mut movers = Movers { sums: vec![77; 5], ..Movers::new() };
            Workplaces::new(threads).run(true, |workplaces| {
                movers.see(Some((&before, &now, motion, 2)), &workplaces.threads);
            });
            assert!(movers.sums == sums, "{threads} threads");
        }
    }

    #[test]
    fn nothing_moves_where_only_the_camera_does() {
        let motion = Motion::shift(3.4, -1.7);
        assert_eq!(found(&picture((0.0, 0.0), None), &picture((3.4, -1.7), None), motion, true), None);
        let before = picture((0.0, 0.0), Some((40, 30)));
        assert_eq!(found(&before, &before, Motion::shift(0.0, 0.0), true), None);
    }

    #[test]
    fn nothing_is_known_without_a_motion_of_the_camera_or_of_pictures_that_are_too_small() {
        let mut movers = Movers::new();
        assert_eq!(movers.find((22.0, 18.0), |_| true), None);
        let (before, now) = (picture((0.0, 0.0), Some((40, 30))), picture((0.0, 0.0), Some((52, 20))));
        movers.see(Some((&before, &now, Motion::shift(0.0, 0.0), 2)), &Threads::new(1));
        assert!(movers.find((22.0, 18.0), |_| true).is_some());
        movers.see(None, &Threads::new(1));
        assert_eq!(movers.find((22.0, 18.0), |_| true), None);
        let small = |value| Small::new(3, 2, vec![value; 6]);
        movers.see(Some((&small(9), &small(200), Motion::shift(0.0, 0.0), 1)), &Threads::new(1));
        assert_eq!(movers.find((2.0, 2.0), |_| true), None);
    }
}
