//! Explains in words how well a template stands out from the rest of a picture: `lockon match --explain`.

use std::fmt::Write as _;

use lockon::config::Limits;
use lockon::results::Match;
use lockon::template::Template;
use lockon::text;

/// Maximum places that are searched. A template may occur some hundred times in a picture, and only the first
/// wrong place ends the right ones.
const PLACES: usize = 1000;
/// Maximum listed places of each kind.
const LISTED: usize = 5;
/// A place with a lower score is nothing like the template.
const LEAST: f64 = 0.3;
/// A place with a lower score is hardly the template itself.
const LIKELY: f64 = 0.5;
/// The next frame may lose a smaller step between right and wrong.
const CLEAR: f64 = 0.1;

/// Returns the limits of the search that explains a search with limits `asked`: the best places, whether they
/// pass or not.
pub(super) fn limits(asked: Limits) -> Limits {
    Limits { min_score: asked.min_score.min(LEAST), max_matches: PLACES, ..asked }
}

/// A search whose results are explained.
pub(super) struct ExplainedSearch {
    /// The limits of the request.
    pub(super) limits: Limits,
    /// How many matches of the template it reported.
    pub(super) reported: usize,
}

/// Describes the best places of a template, best first, split at the largest fall of their scores; the
/// `--min-score` for that split; and the limits that decided which places were reported. Places with a score
/// below `least` were not searched for.
pub(super) fn describe(
    template: &Template,
    places: &[&Match],
    least: f64,
    search: &ExplainedSearch,
) -> String {
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
    // A place counts as right only if that is clear.
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
        if let Some(last) = places.get(LISTED..).and_then(<[_]>::last) {
            let more = places.len() - LISTED;
            let _ = write!(text, "\n         and {more} more, down to {:.3}", last.score);
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
    for line in decided(&scores, is_clear.then_some(right), search) {
        let _ = write!(text, "\n  {line}");
    }
    text
}

/// Returns which limits left places out, or let wrong ones pass, and what decided between places of the same
/// score. `right` is how many of these scores are right, where that is clear; scores are in falling order.
fn decided(scores: &[f64], right: Option<usize>, search: &ExplainedSearch) -> Vec<String> {
    let Limits { min_score, max_matches, .. } = search.limits;
    let mut lines = Vec::new();
    let passing = scores.iter().filter(|score| **score >= min_score).count();
    if let Some(right) = right {
        if passing < right {
            let (high, low) = (scores[passing], scores[right - 1]);
            let range =
                if right - passing == 1 { format!("{low:.3}") } else { format!("{high:.3} to {low:.3}") };
            let all = if right == 1 { "right place".to_owned() } else { format!("{right} right places") };
            lines.push(match (passing, right) {
                (0, 1) => format!("--min-score {min_score} leaves out the {all}: it scores {range}"),
                (0, _) => format!("--min-score {min_score} leaves out the {all}: they score {range}"),
                _ => {
                    format!(
                        "--min-score {min_score} reports {passing} of the {all}: the others score {range}"
                    )
                }
            });
        }
        let wrong = search.reported.saturating_sub(passing.min(right));
        if wrong > 0 {
            lines.push(if wrong == 1 {
                format!("1 wrong place is reported: --min-score {min_score} lets it pass")
            } else {
                format!("{wrong} wrong places are reported: --min-score {min_score} lets them pass")
            });
        }
    }
    // Counts places that all could be right, or only the right ones if they are known.
    let (pool, kind) = match right {
        Some(right) => (passing.min(right), "right places"),
        None => (passing, "places that pass --min-score"),
    };
    if search.reported >= max_matches && max_matches < pool {
        let all = if pool == PLACES { format!("{pool} or more") } else { pool.to_string() };
        let (last, next) = (scores[max_matches - 1], scores[max_matches]);
        let why = if last == next {
            "equal scores are reported from the top down, then from left to right".to_owned()
        } else if max_matches == 1 {
            format!("its score decided, {last:.4} before {next:.4}")
        } else {
            format!("their scores decided, {last:.4} before {next:.4}")
        };
        lines.push(format!("--max-matches {max_matches} reports {max_matches} of {all} {kind}: {why}"));
    }
    lines
}

fn counted(places: usize) -> String {
    if places == 1 { "1 place stands out".into() } else { format!("{places} places stand out") }
}

/// Returns how many of these scores, in falling order, come before the largest step down. The last score
/// steps down to `least`, unless there were more places than `PLACES`.
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
        explained(scores, scores.len(), 0.8)
    }

    /// Returns the explanation of a search with these limits, which reports all places that pass them.
    fn explained(scores: &[f64], max_matches: usize, min_score: f64) -> String {
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
        let limits = Limits { min_score, max_matches, ..Limits::default() };
        let passing = scores.iter().filter(|score| **score >= min_score).count();
        let search = ExplainedSearch { limits, reported: passing.min(max_matches) };
        describe(&template, &places.iter().collect::<Vec<_>>(), LEAST, &search)
    }

    #[test]
    fn many_right_places_are_counted_and_the_limit_that_leaves_some_out_is_named() {
        let scores: Vec<_> = [1.0; 30].into_iter().chain([0.97, 0.95, 0.41, 0.40]).collect();
        let said = explained(&scores, 1, 0.8);
        for expected in [
            "part (4x3): 32 places stand out\n",
            "         and 27 more, down to 0.950\n  wrong  0.410 ",
            "\n  --min-score 0.68 separates them: scores fall from 0.95 to 0.41\n",
            "\n  --max-matches 1 reports 1 of 32 right places: equal scores are reported from the top down, then from \
             left to right",
        ] {
            assert!(said.contains(expected), "{said}");
        }
        let said = explained(&scores, 31, 0.8);
        let expected =
            "--max-matches 31 reports 31 of 32 right places: their scores decided, 0.9700 before 0.9500";
        assert!(said.ends_with(expected), "{said}");
        let said = explained(&scores, 100, 0.96);
        assert!(
            said.ends_with("--min-score 0.96 reports 31 of the 32 right places: the others score 0.950"),
            "{said}"
        );
        let said = explained(&scores, 100, 0.35);
        assert!(said.ends_with("2 wrong places are reported: --min-score 0.35 lets them pass"), "{said}");
        // All of them, and nothing else.
        assert!(explained(&scores, 100, 0.8).ends_with("from 0.95 to 0.41"));
        let said = explained(&[0.79, 0.4], 5, 0.8);
        assert!(said.ends_with("--min-score 0.8 leaves out the right place: it scores 0.790"), "{said}");
    }

    #[test]
    fn places_that_nothing_tells_apart_are_reported_in_the_order_that_is_named() {
        let said = explained(&[1.0; PLACES], 3, 0.8);
        assert!(said.contains("no place stands out\n  best   1.000"), "{said}");
        let expected = "--max-matches 3 reports 3 of 1000 or more places that pass --min-score: equal scores are \
                        reported from the top down, then from left to right";
        assert!(said.ends_with(expected), "{said}");
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
            // The step after the last of many is not known.
            let many: Vec<_> =
                scores.iter().copied().chain((0..PLACES).map(|i| 0.85 - 0.0005 * i as f64)).collect();
            let said = described(if scores.len() == 4 { &many } else { scores });
            assert!(!said.contains("separates them"), "{said}");
            // Nor is any of them called right.
            assert!(!said.contains("  right ") && !said.contains("stands out\n  wrong"), "{said}");
            assert!(scores.is_empty() || said.contains("no place stands out\n  best   0."), "{said}");
        }
    }
}
