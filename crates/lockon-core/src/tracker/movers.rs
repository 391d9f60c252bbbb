//! What moves against the ground, as places at which a lost target may be.
//!
//! A large frame is searched over several frames, and a target that has turned responds less than other
//! places do; but it goes on, and often nothing else does. So what moves is looked at in every frame, and a
//! target that is there is found sooner.
//!
//! The frame before, carried by the camera's motion, is subtracted from this one. A pixel counts by how much
//! it differs from all nine about its place there: edges that lie between pixels, and a motion that is a
//! pixel off, leave nothing behind.

use super::camera::{Motion, Small};
use crate::simd::Level;

/// Differences up to that are noise of the camera and of coding, in grey levels.
const NOISE: u8 = 3;

/// A place at which pixels differ by no more than this in the mean, beyond noise, does not move.
const LEAST_MEAN: u32 = 1;

/// The shortest side of a box that is looked for, in pixels of the shrunken picture.
const LEAST_SIDE: usize = 4;

/// By how much places of the shrunken picture differ from what was there before; keeps its room.
pub(super) struct Movers {
    level: Level,
    /// The least and the most of the three by three pixels about each, in the frame before.
    least: Vec<u8>,
    most: Vec<u8>,
    /// The same of the three in each column of a row.
    columns: Vec<u8>,
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
            least: Vec::new(),
            most: Vec::new(),
            columns: Vec::new(),
            sums: Vec::new(),
            width: 0,
            height: 0,
            factor: 0.0,
        }
    }

    /// Takes in two pictures of one size, the motion between them in their pixels, and pixels of the frame to
    /// one of them; or that nothing is known of this frame.
    pub(super) fn see(&mut self, pictures: Option<(&Small, &Small, Motion, usize)>) {
        let Some((before, now, motion, factor)) = pictures else {
            self.factor = 0.0;
            return;
        };
        (self.width, self.height, self.factor) = (now.width, now.height, factor as f64);
        let Self { level, least, most, columns, sums, .. } = self;
        spread(*level, before, columns, least, u8::min);
        spread(*level, before, columns, most, u8::max);
        let back = motion.inverse();
        let length = now.width + 1;
        sums.clear();
        sums.resize(length * (now.height + 1), 0);
        for y in 0..now.height {
            let (above, below) = sums[y * length..].split_at_mut(length);
            let mut row = 0;
            for (x, &pixel) in now.row(y).iter().enumerate() {
                // A pixel's middle lies half a pixel from its corner.
                let (from_x, from_y) = back.apply((x as f64 + 0.5, y as f64 + 0.5));
                let (from_x, from_y) = (libm::floor(from_x), libm::floor(from_y));
                let is_inside = from_x >= 1.0
                    && from_y >= 1.0
                    && from_x < now.width as f64 - 1.0
                    && from_y < now.height as f64 - 1.0;
                if is_inside {
                    let from = from_y as usize * now.width + from_x as usize;
                    let darker = least[from].saturating_sub(pixel);
                    let brighter = pixel.saturating_sub(most[from]);
                    row += u32::from(darker.max(brighter).saturating_sub(NOISE));
                }
                below[x + 1] = above[x + 1] + row;
            }
        }
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
            let (top, bottom) =
                (&self.sums[y * length..][..length], &self.sums[(y + h) * length..][..length]);
            for x in 0..=self.width - w {
                let sum = bottom[x + w] + top[x] - bottom[x] - top[x + w];
                if sum > most && is_free(middle(x, y)) {
                    (best, most) = (Some(middle(x, y)), sum);
                }
            }
        }
        best
    }
}

/// Writes what a choice takes of the three by three pixels about each; nothing is said of the outermost ones.
fn spread(
    level: Level,
    picture: &Small,
    columns: &mut Vec<u8>,
    chosen: &mut Vec<u8>,
    choose: impl Fn(u8, u8) -> u8,
) {
    let (width, height) = (picture.width, picture.height);
    chosen.resize(width * height, 0);
    columns.resize(width, 0);
    level.run(
        #[inline(always)]
        || {
            for y in 1..height.saturating_sub(1) {
                let rows = [picture.row(y - 1), picture.row(y), picture.row(y + 1)];
                for (x, of_three) in columns.iter_mut().enumerate() {
                    *of_three = choose(choose(rows[0][x], rows[1][x]), rows[2][x]);
                }
                let out = &mut chosen[y * width..][..width];
                for x in 1..width.saturating_sub(1) {
                    out[x] = choose(choose(columns[x - 1], columns[x]), columns[x + 1]);
                }
            }
        },
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    const WIDTH: usize = 97;
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
        movers.see(Some((before, now, motion, 2)));
        movers.find((22.0, 18.0), |_| is_free)
    }

    #[test]
    fn what_goes_over_the_ground_is_found_where_it_is_now() {
        let motion = Motion::shift(3.4, -1.7);
        let (before, now) = (picture((0.0, 0.0), Some((40, 30))), picture((3.4, -1.7), Some((52, 20))));
        let (x, y) = found(&before, &now, motion, true).expect("something moves");
        // In pixels of the frame, of which two are one here.
        assert!((x - 2.0 * 57.5).abs() <= 4.0 && (y - 2.0 * 24.5).abs() <= 4.0, "{x}, {y}");
        assert_eq!(found(&before, &now, motion, false), None, "there is another target");
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
        movers.see(Some((&before, &now, Motion::shift(0.0, 0.0), 2)));
        assert!(movers.find((22.0, 18.0), |_| true).is_some());
        movers.see(None);
        assert_eq!(movers.find((22.0, 18.0), |_| true), None);
        let small = |value| Small::new(3, 2, vec![value; 6]);
        movers.see(Some((&small(9), &small(200), Motion::shift(0.0, 0.0), 1)));
        assert_eq!(movers.find((2.0, 2.0), |_| true), None);
    }
}
