//! Whether a target is leaving the picture.
//!
//! A target that leaves does not come to a stop at the border, but its box does: the last place where the
//! filter sees anything is the ground there, and it would learn that. So a box that goes out and is not
//! clearly on its target is lost.

use crate::frame::{Size, visible};
use crate::tracker::sample::Window;

/// Share of a frame's motion in the mean.
const RATE: f64 = 0.3;
/// The least motion over the border, in roots of the box's area a frame.
const LEAST_SPEED: f64 = 0.01;

#[derive(Default)]
pub(super) struct Leaving {
    last: Option<(f64, f64)>,
    /// Mean motion in the picture.
    speed: (f64, f64),
    goes_out: bool,
}

impl Leaving {
    /// Takes in the box in a frame. True from where it goes over a border until it is inside again.
    pub(super) fn step(&mut self, at: Window, frame: Size) -> bool {
        let root = (at.w * at.h).sqrt();
        let (x, y) = self.last.unwrap_or((at.x, at.y));
        self.speed.0 += RATE * ((at.x - x) / root - self.speed.0);
        self.speed.1 += RATE * ((at.y - y) / root - self.speed.1);
        self.last = Some((at.x, at.y));
        let bounds = at.bounds();
        let is_outwards = |start: f64, length: f64, frame: usize, speed: f64| {
            start < 0.0 && speed < -LEAST_SPEED || start + length > frame as f64 && speed > LEAST_SPEED
        };
        let [x, y, w, h] = bounds;
        if visible(bounds, frame) >= 1.0 {
            self.goes_out = false;
        } else if is_outwards(x, w, frame.width, self.speed.0)
            || is_outwards(y, h, frame.height, self.speed.1)
        {
            self.goes_out = true;
        }
        self.goes_out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FRAME: Size = Size { width: 320, height: 240 };

    fn at(x: f64, y: f64) -> Window {
        Window { x, y, w: 40.0, h: 30.0, angle: 0.0 }
    }

    #[test]
    fn what_goes_over_the_border_is_leaving_until_it_is_inside_again() {
        let mut leaving = Leaving::default();
        let out = (0..20).find(|&i| leaving.step(at(250.0 + 5.0 * f64::from(i), 120.0), FRAME));
        assert_eq!(out, Some(11), "305 and half of 40 is beyond 320 then");
        assert!((0..50).all(|_| leaving.step(at(318.0, 120.0), FRAME)), "it sticks to the border");
        assert!(!leaving.step(at(290.0, 120.0), FRAME));
    }

    #[test]
    fn what_rests_at_the_border_or_comes_in_is_not_leaving() {
        let mut leaving = Leaving::default();
        assert!((0..50).all(|_| !leaving.step(at(10.0, 120.0), FRAME)));
        let mut leaving = Leaving::default();
        assert!((0..50).all(|i| !leaving.step(at(-10.0 + f64::from(i), 235.0), FRAME)));
    }
}
