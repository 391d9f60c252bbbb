//! NCC by its definition: five sums over the template's pixels at every position, then peaks, suppression and
//! sub-pixel.

use crate::config::Limits;
use crate::frame::{PlaneRef, Rect, Size};
use crate::results::Match;
use crate::template::{Bank, Template};

/// NCC, in [-1, 1], from the sums over the counted pixels: n their number, S = sum I, SS = sum I * I, ST =
/// sum I * T, t1 = sum T, t2 = sum T * T. 0 if the window is flat.
pub fn score(n: i64, s: i64, ss: i64, st: i64, t1: i64, t2: i64) -> f64 {
    let numerator = n * st - s * t1;
    let window_variance = n * ss - s * s;
    let template_variance = n * t2 - t1 * t1;
    if window_variance == 0 {
        return 0.0;
    }
    let score = numerator as f64 / (window_variance as f64 * template_variance as f64).sqrt();
    score.clamp(-1.0, 1.0)
}

/// NCC of `template` with the window of `frame` whose top-left pixel is (`x`, `y`).
///
/// # Panics
/// If the window does not lie inside the frame.
pub fn score_at(frame: PlaneRef<'_>, template: &Template, x: usize, y: usize) -> f64 {
    let (mut n, mut s, mut ss, mut st, mut t1, mut t2) = (0, 0, 0, 0, 0, 0);
    let width = template.size().width;
    for (j, row) in template.luma().as_ref().rows().enumerate() {
        let window = &frame.row(y + j)[x..x + width];
        for (i, (&pixel, &wanted)) in window.iter().zip(row).enumerate() {
            if template.mask().is_none_or(|mask| mask.data()[j * width + i] == 1) {
                let (pixel, wanted) = (i64::from(pixel), i64::from(wanted));
                n += 1;
                s += pixel;
                ss += pixel * pixel;
                st += pixel * wanted;
                t1 += wanted;
                t2 += wanted * wanted;
            }
        }
    }
    score(n, s, ss, st, t1, t2)
}

/// NCC of `template` at every position where it fits in `frame`: (W-w+1) x (H-h+1) scores, row by row; none
/// if it is larger than the frame.
pub fn score_map(frame: PlaneRef<'_>, template: &Template) -> Vec<f64> {
    let Size { width, height } = map_size(frame.size(), template.size());
    (0..width * height).map(|i| score_at(frame, template, i % width, i / width)).collect()
}

/// The matches of `bank` inside `roi`: names in the order of their first appearance, best first within a
/// name.
///
/// # Panics
/// If `roi` does not lie inside the frame.
pub fn matches(frame: PlaneRef<'_>, bank: &Bank, roi: Rect, limits: &Limits) -> Vec<Match> {
    let mut names: Vec<&str> = Vec::new();
    for member in bank.members() {
        if !names.contains(&&**member.name()) {
            names.push(member.name());
        }
    }
    let region = frame.crop(roi);
    names.iter().flat_map(|name| matches_of_name(region, bank, name, (roi.x, roi.y), limits)).collect()
}

/// The matches of the members called `name`, over all their scales and angles.
fn matches_of_name(
    region: PlaneRef<'_>,
    bank: &Bank,
    name: &str,
    origin: (usize, usize),
    limits: &Limits,
) -> Vec<Match> {
    let mut peaks = Vec::new();
    for member in bank.members().iter().filter(|member| &**member.name() == name) {
        peaks.extend(peaks_of(region, member, origin, limits.min_score));
    }
    // Stable: members of equal score and place stay in bank order.
    peaks.sort_by(|a, b| b.score.total_cmp(&a.score).then(a.y.cmp(&b.y)).then(a.x.cmp(&b.x)));
    let mut accepted: Vec<Match> = Vec::new();
    for peak in peaks {
        let overlaps = accepted.iter().any(|better| better.rect().iou(peak.rect()) > limits.max_overlap);
        if !overlaps && accepted.len() < limits.max_matches {
            accepted.push(peak);
        }
    }
    accepted
}

/// The positions that score `min_score` or more and precede all of their neighbours in the tie order, row by
/// row.
fn peaks_of(region: PlaneRef<'_>, template: &Template, origin: (usize, usize), min_score: f64) -> Vec<Match> {
    let map = score_map(region, template);
    let size = map_size(region.size(), template.size());
    // The score at a position, or none outside of the map.
    let at = |x: i64, y: i64| {
        let is_inside = x >= 0 && y >= 0 && x < size.width as i64 && y < size.height as i64;
        is_inside.then(|| map[y as usize * size.width + x as usize])
    };
    let mut peaks = Vec::new();
    for y in 0..size.height as i64 {
        for x in 0..size.width as i64 {
            let score = map[y as usize * size.width + x as usize];
            let precedes = |dx: i64, dy: i64| match at(x + dx, y + dy) {
                None => true,
                Some(other) => score > other || (score == other && (0, 0) < (dy, dx)),
            };
            let precedes_all = (-1..=1).all(|dy| (-1..=1).all(|dx| (dx, dy) == (0, 0) || precedes(dx, dy)));
            if score >= min_score && precedes_all {
                let Size { width: w, height: h } = template.size();
                let (left, top) = (origin.0 + x as usize, origin.1 + y as usize);
                let dx = parabola(at(x - 1, y), score, at(x + 1, y));
                let dy = parabola(at(x, y - 1), score, at(x, y + 1));
                peaks.push(Match {
                    template: template.name().clone(),
                    x: left,
                    y: top,
                    w,
                    h,
                    score,
                    scale: template.scale(),
                    angle: template.angle(),
                    cx: thousandths(left as f64 + w as f64 / 2.0 + dx),
                    cy: thousandths(top as f64 + h as f64 / 2.0 + dy),
                });
            }
        }
    }
    peaks
}

/// Offset of the maximum of the parabola through three scores; 0 without a neighbour on each side, or without
/// curvature.
fn parabola(l: Option<f64>, c: f64, r: Option<f64>) -> f64 {
    match (l, r) {
        (Some(l), Some(r)) if l - 2.0 * c + r < 0.0 => (l - r) / (2.0 * (l - 2.0 * c + r)),
        _ => 0.0,
    }
}

fn thousandths(v: f64) -> f64 {
    libm::round(v * 1000.0) / 1000.0
}

/// Positions of a template in a frame: columns and rows of its score map.
fn map_size(frame: Size, template: Size) -> Size {
    let positions = |frame: usize, template: usize| (frame + 1).saturating_sub(template);
    Size::new(positions(frame.width, template.width), positions(frame.height, template.height))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::Plane;

    fn picture(w: usize, h: usize) -> Plane {
        Plane::from_vec((0..w * h).map(|i| (i * i % 1009 * 31 % 251) as u8).collect(), Size::new(w, h))
    }

    #[test]
    fn a_cut_out_scores_one_where_it_was_cut() {
        let frame = picture(37, 23);
        let luma = frame.as_ref().crop(Rect::new(11, 13, 7, 5)).to_plane();
        let bank = Bank::new(vec![Template::new("t", luma, None).unwrap()]).unwrap();
        let roi = Rect::new(2, 3, 35, 20);
        let found = matches(frame.as_ref(), &bank, roi, &Limits::default());
        assert_eq!((found[0].x, found[0].y, found[0].score), (11, 13, 1.0));
        assert!((found[0].cx - 14.5).abs() <= 0.5 && (found[0].cy - 15.5).abs() <= 0.5);
    }

    #[test]
    fn scores_agree_with_pearsons_correlation() {
        let (frame, luma) = (picture(9, 8), picture(5, 3));
        let template = Template::new("t", luma.clone(), None).unwrap();
        for (i, score) in score_map(frame.as_ref(), &template).into_iter().enumerate() {
            let window = frame.as_ref().crop(Rect::new(i % 5, i / 5, 5, 3)).to_plane();
            let mean = |p: &Plane| p.data().iter().map(|&v| f64::from(v)).sum::<f64>() / 15.0;
            let (a, b) = (mean(&window), mean(&luma));
            let moment = |p: &Plane, a: f64, q: &Plane, b: f64| -> f64 {
                p.data().iter().zip(q.data()).map(|(&p, &q)| (f64::from(p) - a) * (f64::from(q) - b)).sum()
            };
            let pearson = moment(&window, a, &luma, b)
                / (moment(&window, a, &window, a) * moment(&luma, b, &luma, b)).sqrt();
            assert!((score - pearson).abs() < 1e-12, "{score} {pearson}");
        }
    }

    #[test]
    fn a_template_larger_than_the_frame_has_no_positions() {
        let template = Template::new("t", picture(5, 9), None).unwrap();
        assert!(score_map(picture(9, 8).as_ref(), &template).is_empty());
    }
}
