//! How well a template is told from the rest of a picture, in words: `lockon match --explain`.

use std::fmt::Write as _;

use lockon::config::Limits;
use lockon::results::Match;
use lockon::template::Template;
use lockon::text;

/// Places that are looked at.
const PLACES: usize = 20;
/// Places that are listed of each kind.
const LISTED: usize = 5;
/// What scores less is nothing like the template.
const LEAST: f64 = 0.3;
/// What scores less is hardly the template itself.
const LIKELY: f64 = 0.5;
/// A smaller step between right and wrong is no step that the next frame keeps.
const CLEAR: f64 = 0.1;

/// What is searched for to explain a search with these limits: the best places, whether they pass or not.
pub(super) fn limits(asked: Limits) -> Limits {
    Limits { min_score: asked.min_score.min(LEAST), max_matches: PLACES, ..asked }
}

/// The best places of a template, best first, parted where their scores fall most, and the `--min-score` that
/// does so. Those with less than `least` were not looked for.
pub(super) fn describe(template: &Template, places: &[&Match], least: f64) -> String {
    let scores: Vec<_> = places.iter().map(|place| place.score).collect();
    let (name, size) = (text::in_one_line(template.name()), template.size());
    let Some(&best) = scores.first() else {
        return format!(
            "{name} ({size}): no place scores {least} or more: it is not in the picture, or at another scale or angle (--scales, \
             --angles)"
        );
    };
    let right = parted(&scores, least);
    let wrong = scores.get(right).copied();
    let (high, low) = (scores[right - 1], wrong.unwrap_or(least));
    let is_clear = best >= LIKELY && high - low >= CLEAR;
    // Nothing is called right that is then said to be not.
    let (first, second) = if is_clear { ("right", "wrong") } else { ("best", "next") };
    let stands_out = if is_clear { counted(right) } else { "no place stands out".into() };
    let mut text = format!("{name} ({size}): {stands_out}");
    let mut list = |title: &str, places: &[&Match]| {
        for (index, place) in places.iter().take(LISTED).enumerate() {
            let title = if index == 0 { title } else { "" };
            let Match { x, y, w, h, score, scale, angle, .. } = place;
            let _ = write!(text, "\n  {title:6} {score:.3} at {x},{y} ({w}x{h}");
            if *scale != 1.0 {
                let _ = write!(text, ", scale {scale:.2}");
            }
            if *angle != 0.0 {
                let _ = write!(text, ", angle {angle:.1}");
            }
            text.push(')');
        }
        if places.len() > LISTED {
            let _ = write!(text, "\n         and {} more", places.len() - LISTED);
        }
    };
    list(first, &places[..right]);
    list(second, &places[right..]);
    if wrong.is_none() {
        let _ = write!(text, "\n  {second:6} none scores {least} or more");
    }
    let _ = if best < LIKELY {
        write!(
            text,
            "\n  the best place scores {best:.2} only: it is not in the picture, or at another scale or angle (--scales, --angles)"
        )
    } else if !is_clear {
        write!(
            text,
            "\n  no --min-score tells right from wrong: scores fall by {:.2} at most, from {high:.2} to {low:.2}; choose a larger \
             template, or one that has more of its own",
            high - low
        )
    } else {
        write!(
            text,
            "\n  --min-score {:.2} separates them: scores fall from {high:.2} to {low:.2}",
            f64::midpoint(high, low)
        )
    };
    text
}

fn counted(places: usize) -> String {
    if places == 1 { "1 place stands out".into() } else { format!("{places} places stand out") }
}

/// How many of these scores, which fall, come before the largest step down. The last one steps down to
/// `least`, unless more places were there than were looked at.
fn parted(scores: &[f64], least: f64) -> usize {
    let is_all = scores.len() < PLACES;
    let below = scores[1..].iter().copied().chain(is_all.then_some(least));
    let mut best = (1, f64::NEG_INFINITY);
    for (index, (score, below)) in scores.iter().zip(below).enumerate() {
        if score - below > best.1 {
            best = (index + 1, score - below);
        }
    }
    best.0
}

#[cfg(test)]
mod tests {
    use super::*;
    use lockon::frame::{Plane, Size};

    fn described(scores: &[f64]) -> String {
        let luma = Plane::from_vec((0..12).collect(), Size::new(4, 3));
        let template = Template::new("part", luma, None).expect("it is not flat");
        let places: Vec<_> = scores
            .iter()
            .enumerate()
            .map(|(i, &score)| Match {
                template: "part".into(),
                x: 10 * i,
                y: 7,
                w: 4,
                h: 3,
                score,
                scale: 1.0,
                angle: 0.0,
                cx: 0.0,
                cy: 0.0,
            })
            .collect();
        describe(&template, &places.iter().collect::<Vec<_>>(), LEAST)
    }

    #[test]
    fn right_and_wrong_are_parted_where_scores_fall_most() {
        let said = described(&[0.98, 0.95, 0.61, 0.55]);
        assert_eq!(
            said,
            "part (4x3): 2 places stand out\n  right  0.980 at 0,7 (4x3)\n         0.950 at 10,7 (4x3)\n  wrong  0.610 at 20,7 (4x3)\n\
             \x20        0.550 at 30,7 (4x3)\n  --min-score 0.78 separates them: scores fall from 0.95 to 0.61"
        );
    }

    #[test]
    fn a_place_without_rivals_is_told_from_what_was_not_looked_for() {
        let said = described(&[1.0]);
        assert!(
            said.contains("wrong  none scores 0.3 or more") && said.contains("--min-score 0.65 separates"),
            "{said}"
        );
    }

    #[test]
    fn no_score_is_proposed_where_none_would_help() {
        for scores in [&[0.91, 0.9, 0.88, 0.86][..], &[0.45, 0.31], &[]] {
            // The last of many falls to what is not known.
            let many: Vec<_> =
                scores.iter().copied().chain((0..PLACES).map(|i| 0.85 - 0.01 * i as f64)).collect();
            let said = described(if scores.len() == 4 { &many } else { scores });
            assert!(!said.contains("separates them"), "{said}");
            // Nor is any of them called right.
            assert!(!said.contains("  right ") && !said.contains("stands out\n  wrong"), "{said}");
            assert!(scores.is_empty() || said.contains("no place stands out\n  best   0."), "{said}");
        }
    }
}
