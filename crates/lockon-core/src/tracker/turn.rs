//! The box's direction: the angle by which the target has turned in the picture.
//!
//! A turned target is looked at in a turned window, as a larger one is in a larger window: filter, shape and
//! looks see it upright. Its direction of turning is found from the look of the box a step further to either
//! side. It counts as turned only while it looks more like itself in the turned box than in the upright one:
//! a target that merely changes its looks stays upright, and no error lasts.

use std::f64::consts::TAU;

use super::look::{Look, Looker, similarity};
use super::sample::Window;
use crate::frame::Frame;

/// The step to either side: at it, the likeness of an object with clear edges has fallen by a quarter to a
/// third. 8 degrees score alike.
const STEP: f64 = 6_f64.to_radians();

/// Share of the first look in the measure of direction; looks of late have the rest. These follow each
/// change, and the first keeps them from following themselves. 0.3 and 0.7 score alike.
const FIRST_SHARE: f64 = 0.5;

/// Added to the curvature of likeness, which draws a step to none where likeness hardly depends on direction.
/// With 0.1 turns are followed late (mean AUC of 24 that turn: 0.79 instead of 0.90).
const FLATNESS: f64 = 0.02;

/// How much of a step is believed, as with size (0.6: 0.89 instead of 0.90), and the most steps in a frame.
const GAIN: f64 = 0.8;
const LIMIT: f64 = 1.5;

/// How much more a turned box must look like what is known than the upright one. 0.02 and 0.05 score alike;
/// with 0.1 the filter has learnt a slow turn before it is seen (0.85 instead of 0.90), with 0.15 many are
/// not followed (0.72).
const CLEARLY: f64 = 0.05;

/// The boxes whose looks are compared: as it is, a step further to either side, and upright if it is not.
pub(super) fn boxes(window: Window) -> impl Iterator<Item = Window> {
    let angles = [window.angle, window.angle - STEP, window.angle + STEP, 0.0];
    let count = if window.angle == 0.0 { 3 } else { 4 };
    angles.into_iter().take(count).map(move |angle| Window { angle, ..window })
}

/// Returns the angle that a box has turned to; `known` rates how much a look is like any known one.
pub(super) fn follow(
    looker: &mut Looker,
    frame: &Frame,
    window: Window,
    first: &Look,
    recent: &Look,
    known: impl Fn(&Look) -> f64,
) -> f64 {
    let mut boxes = [window; 4];
    let mut count = 0;
    for (place, of_angle) in boxes.iter_mut().zip(self::boxes(window)) {
        *place = of_angle;
        count += 1;
    }
    let looks = looker.look_at(frame, &boxes[..count]);
    let like =
        |look: &Look| FIRST_SHARE * similarity(first, look) + (1.0 - FIRST_SHARE) * similarity(recent, look);
    let [here, before, after] = [like(&looks[0]), like(&looks[1]), like(&looks[2])];
    let curvature = (2.0 * here - before - after).max(0.0) + FLATNESS;
    let steps = (0.5 * (after - before) / curvature).clamp(-LIMIT, LIMIT);
    let further = if steps < 0.0 { &looks[1] } else { &looks[2] };
    let (here, upright) = (known(&looks[0]), looks.get(3).map(&known));
    if here.max(known(further)) <= upright.unwrap_or(here) + CLEARLY {
        return 0.0;
    }
    normalised(window.angle + GAIN * steps * STEP)
}

/// The same angle in [-pi, pi].
pub(super) fn normalised(angle: f64) -> f64 {
    angle - TAU * libm::round(angle / TAU)
}
