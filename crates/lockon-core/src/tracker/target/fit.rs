//! The position of an object's box relative to the followed one.
//!
//! A filter finds again whatever it has learnt of a target, wherever that lies in the object: it keeps to
//! what it was shown, not to the object's borders. A detector knows these. Training the filter again each
//! time would add the detector's own noise. So a detection counts as the place of the object's borders about
//! the followed box, and the mean of the recent ones is used.

/// Share of a new detection in the mean, once there were as many as that makes.
const RATE: f64 = 0.3;

/// The place of an object's box, in sides of the box that is followed.
#[derive(Debug, Clone, Copy)]
pub(super) struct Fit {
    /// From one middle to the other.
    x: f64,
    y: f64,
    /// Logarithms of the sides' ratios.
    w: f64,
    h: f64,
    /// Boxes that are in the mean; the first is the one with which the target began.
    count: u32,
}

impl Default for Fit {
    /// Both boxes are the same.
    fn default() -> Self {
        Self { x: 0.0, y: 0.0, w: 0.0, h: 0.0, count: 1 }
    }
}

impl Fit {
    /// The object's box where this one is followed.
    pub(super) fn of(&self, followed: [f64; 4]) -> [f64; 4] {
        if self.count == 1 {
            return followed;
        }
        let [x, y, w, h] = followed;
        let (own_w, own_h) = (w * libm::exp(self.w), h * libm::exp(self.h));
        let (middle_x, middle_y) = (x + w * (0.5 + self.x), y + h * (0.5 + self.y));
        [middle_x - own_w / 2.0, middle_y - own_h / 2.0, own_w, own_h]
    }

    /// Takes in that the object was in `detected` while this box was followed.
    pub(super) fn learn(&mut self, followed: [f64; 4], detected: [f64; 4]) {
        let [x, y, w, h] = followed;
        let [own_x, own_y, own_w, own_h] = detected;
        self.count = self.count.saturating_add(1);
        let rate = (1.0 / f64::from(self.count)).max(RATE);
        let said = [
            (own_x + own_w / 2.0 - x - w / 2.0) / w,
            (own_y + own_h / 2.0 - y - h / 2.0) / h,
            libm::log(own_w / w),
            libm::log(own_h / h),
        ];
        for (mean, said) in [&mut self.x, &mut self.y, &mut self.w, &mut self.h].into_iter().zip(said) {
            *mean += rate * (said - *mean);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FOLLOWED: [f64; 4] = [10.0, 20.0, 40.0, 30.0];

    #[test]
    fn without_a_detection_the_box_is_the_one_that_is_followed_to_the_bit() {
        let odd = [0.1 + 0.2, 1.0 / 3.0, 17.7, 9.9];
        assert_eq!(Fit::default().of(odd), odd);
    }

    #[test]
    fn what_detections_say_is_averaged_and_goes_along_with_what_is_followed() {
        let mut fit = Fit::default();
        // As if the first box had been off: four pixels to the left, and a half too narrow.
        for _ in 0..40 {
            fit.learn(FOLLOWED, [14.0, 20.0, 60.0, 30.0]);
        }
        let close = |a: [f64; 4], b: [f64; 4]| a.iter().zip(b).all(|(a, b)| (a - b).abs() < 0.01);
        assert!(close(fit.of(FOLLOWED), [14.0, 20.0, 60.0, 30.0]));
        // Twice as large, elsewhere.
        assert!(close(fit.of([100.0, 50.0, 80.0, 60.0]), [108.0, 50.0, 120.0, 60.0]));
    }

    #[test]
    fn noise_of_detections_is_less_in_the_mean() {
        let mut fit = Fit::default();
        let mut most = 0.0_f64;
        for n in 0..200 {
            // Alternately off to both sides.
            let off = if n % 2 == 0 { 4.0 } else { -4.0 };
            fit.learn(FOLLOWED, [10.0 + off, 20.0, 40.0, 30.0]);
            if n > 10 {
                most = most.max((fit.of(FOLLOWED)[0] - 10.0).abs());
            }
        }
        // A mean with the rate r keeps r / (2 - r) of an alternating value.
        assert!((0.5..1.0).contains(&most), "{most}");
    }
}
