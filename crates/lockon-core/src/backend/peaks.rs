//! Peaks of score maps, and the matches they become. One code path for all backends.
//!
//! A peak is a position whose exact score is at least the limit and which precedes its (up to 8) neighbours
//! in the tie order: higher score, then smaller y, then smaller x, then bank order. So a plateau has one
//! peak, its first position.

use std::cmp::Ordering;

use crate::config::Limits;
use crate::frame::{Rect, Size};
use crate::results::Match;
use crate::template::Bank;

/// A peak of the score map of one member of a bank.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Candidate {
    /// The member's place in its bank.
    pub member: u32,
    /// Left column of the window in the searched region.
    pub x: u32,
    /// Top row of the window in the searched region.
    pub y: u32,
    /// Exact NCC.
    pub score: f64,
    /// Sub-pixel offset of the true maximum from (`x`, `y`), each in [-0.5, 0.5]; see [`vertex`].
    pub shift: [f64; 2],
}

/// Offset, in [-0.5, 0.5], of the vertex of the parabola through a peak's score and those of its two
/// neighbours on an axis.
///
/// It is 0 where the peak lies at the score map's edge and so has no neighbour on one side, and where the
/// three are equal.
pub fn vertex(before: Option<f64>, peak: f64, after: Option<f64>) -> f64 {
    let (Some(before), Some(after)) = (before, after) else { return 0.0 };
    let curvature = before - 2.0 * peak + after;
    if curvature < 0.0 { (before - after) / (2.0 * curvature) } else { 0.0 }
}

/// A rectangular part of a score map, cut with one position to spare on each side that is not the map's own
/// edge.
#[derive(Debug, Clone, Copy)]
pub struct ScoreTile<'a> {
    /// Exact scores, row by row without padding.
    pub scores: &'a [f64],
    /// Positions in a row, and rows.
    pub size: Size,
    /// The place of its first position in the score map.
    pub origin: (usize, usize),
    /// The positions, counted from `origin`, whose peaks are wanted; the others are there as their
    /// neighbours.
    pub wanted: Rect,
}

impl<'a> ScoreTile<'a> {
    /// A whole score map.
    pub fn whole(scores: &'a [f64], size: Size) -> Self {
        Self { scores, size, origin: (0, 0), wanted: Rect::whole(size) }
    }

    /// Appends the peaks among the wanted positions that score `min_score` or more to `found`, row by row.
    ///
    /// # Panics
    /// If there are fewer scores than `size` says, or `wanted` does not lie inside it.
    pub fn find(&self, member: u32, min_score: f64, found: &mut Vec<Candidate>) {
        let Self { scores, size: Size { width, height }, origin, wanted } = *self;
        let row_at = |y: usize| &scores[y * width..][..width];
        for y in wanted.y..wanted.y + wanted.h {
            let row = row_at(y);
            let above = (y > 0).then(|| row_at(y - 1));
            let below = (y + 1 < height).then(|| row_at(y + 1));
            for x in wanted.x..wanted.x + wanted.w {
                let score = row[x];
                if score < min_score {
                    continue;
                }
                // Neighbours that come first in the tie order win a draw.
                let (left, right) = (x.saturating_sub(1), (x + 2).min(width));
                let is_beaten = row[left..x].iter().any(|&s| s >= score)
                    || row[x + 1..right].iter().any(|&s| s > score)
                    || above.is_some_and(|row| row[left..right].iter().any(|&s| s >= score))
                    || below.is_some_and(|row| row[left..right].iter().any(|&s| s > score));
                if is_beaten {
                    continue;
                }
                let before = x.checked_sub(1).map(|x| row[x]);
                let shift = [
                    vertex(before, score, row.get(x + 1).copied()),
                    vertex(above.map(|row| row[x]), score, below.map(|row| row[x])),
                ];
                let (x, y) = ((origin.0 + x) as u32, (origin.1 + y) as u32);
                found.push(Candidate { member, x, y, score, shift });
            }
        }
    }
}

/// Chooses the matches among the candidates of one bank: by name, best first, without those that overlap
/// better ones.
#[derive(Debug)]
pub struct Selector {
    /// The place of each member's name among the names, in the order of their first appearance.
    name_of: Vec<u32>,
}

impl Selector {
    /// A selector for the candidates of `bank`.
    pub fn new(bank: &Bank) -> Self {
        let mut names = Vec::new();
        let name_of = bank.members().iter().map(|member| {
            let known = names.iter().position(|&name| name == member.name());
            known.unwrap_or_else(|| {
                names.push(member.name());
                names.len() - 1
            }) as u32
        });
        Self { name_of: name_of.collect() }
    }

    /// Replaces the contents of `matches`: names in the order of their first appearance in `bank`, best first
    /// in each.
    ///
    /// `origin` is where the searched region lies in the frame. The candidates end in an unspecified order.
    /// Nothing is allocated once `matches` has grown to its largest.
    ///
    /// # Panics
    /// If `bank` is smaller than the one this selector was made for.
    pub fn select(
        &self,
        candidates: &mut [Candidate],
        bank: &Bank,
        origin: (usize, usize),
        limits: &Limits,
        matches: &mut Vec<Match>,
    ) {
        matches.clear();
        let name_of = |c: &Candidate| self.name_of[c.member as usize];
        if !candidates.is_sorted_by_key(name_of) {
            candidates.sort_unstable_by_key(name_of);
        }
        for of_one_name in candidates.chunk_by_mut(|a, b| name_of(a) == name_of(b)) {
            accept(of_one_name, bank, origin, limits, matches);
        }
    }
}

/// Appends the best candidates that do not overlap each other too much, best first.
fn accept(
    mut rest: &mut [Candidate],
    bank: &Bank,
    origin: (usize, usize),
    limits: &Limits,
    matches: &mut Vec<Match>,
) {
    let first = matches.len();
    // With a low limit there are as many candidates as there are bumps in the map, and few of them are asked
    // for: the best are sorted first, and the others only if these did not suffice.
    let mut portion = 64_usize.max(limits.max_matches.saturating_mul(2));
    while !rest.is_empty() {
        let best = portion.min(rest.len());
        if best < rest.len() {
            rest.select_nth_unstable_by(best, tie_order);
        }
        let (sorted, others) = rest.split_at_mut(best);
        sorted.sort_unstable_by(tie_order);
        for candidate in sorted.iter() {
            if matches.len() - first >= limits.max_matches {
                return;
            }
            let found = to_match(candidate, bank, origin);
            if matches[first..].iter().all(|m| m.rect().iou(found.rect()) <= limits.max_overlap) {
                matches.push(found);
            }
        }
        rest = others;
        portion = portion.saturating_mul(4);
    }
}

/// Higher score, then smaller y, then smaller x, then bank order. No two candidates of a bank are equal in
/// it.
fn tie_order(a: &Candidate, b: &Candidate) -> Ordering {
    // The total order is the usual one here: scores are never NaN or negative zero.
    b.score.total_cmp(&a.score).then_with(|| (a.y, a.x, a.member).cmp(&(b.y, b.x, b.member)))
}

fn to_match(candidate: &Candidate, bank: &Bank, origin: (usize, usize)) -> Match {
    let template = &bank.members()[candidate.member as usize];
    let Size { width: w, height: h } = template.size();
    let (x, y) = (origin.0 + candidate.x as usize, origin.1 + candidate.y as usize);
    let centre = |start: usize, length: usize, shift: f64| {
        libm::round((start as f64 + length as f64 / 2.0 + shift) * 1000.0) / 1000.0
    };
    Match {
        template: template.name().clone(),
        x,
        y,
        w,
        h,
        score: candidate.score,
        scale: template.scale(),
        angle: template.angle(),
        cx: centre(x, w, candidate.shift[0]),
        cy: centre(y, h, candidate.shift[1]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::Plane;
    use crate::template::Template;

    fn find(scores: &[f64], width: usize, min_score: f64) -> Vec<(u32, u32)> {
        let mut found = Vec::new();
        let size = Size::new(width, scores.len() / width);
        ScoreTile::whole(scores, size).find(0, min_score, &mut found);
        found.iter().map(|c| (c.x, c.y)).collect()
    }

    fn template(name: &str, w: usize, h: usize) -> Template {
        let luma = Plane::from_vec((0..w * h).map(|i| (i * 37 % 251) as u8).collect(), Size::new(w, h));
        Template::new(name, luma, None).unwrap()
    }

    fn candidate(member: u32, x: u32, y: u32, score: f64) -> Candidate {
        Candidate { member, x, y, score, shift: [0.0; 2] }
    }

    fn select(candidates: &[Candidate], bank: &Bank, limits: &Limits) -> Vec<(String, usize, usize)> {
        let mut matches = Vec::new();
        Selector::new(bank).select(&mut candidates.to_vec(), bank, (100, 10), limits, &mut matches);
        matches.iter().map(|m| (m.template.to_string(), m.x, m.y)).collect()
    }

    #[test]
    fn a_plateau_has_one_peak_its_first_position() {
        #[rustfmt::skip]
        let scores = [
            0.1, 0.2, 0.1, 0.0,
            0.1, 0.9, 0.9, 0.0,
            0.9, 0.9, 0.9, 0.0,
        ];
        // (0, 2) touches (1, 1), which comes first.
        assert_eq!(find(&scores, 4, 0.5), [(1, 1)]);
        assert_eq!(find(&[0.3; 12], 4, -1.0), [(0, 0)]);
    }

    #[test]
    fn the_limit_itself_is_enough() {
        assert_eq!(find(&[0.0, 0.8, 0.0], 3, 0.8), [(1, 0)]);
        assert_eq!(find(&[0.0, 0.8, 0.0], 3, 0.800_001), []);
    }

    #[test]
    fn a_map_of_one_position_has_one_peak() {
        assert_eq!(find(&[-1.0], 1, -1.0), [(0, 0)]);
    }

    #[test]
    fn positions_to_spare_beat_their_neighbours_but_are_not_peaks() {
        let mut found = Vec::new();
        let scores = [0.9, 0.5, 0.2, 0.4];
        let tile = ScoreTile {
            scores: &scores,
            size: Size::new(4, 1),
            origin: (6, 3),
            wanted: Rect::new(1, 0, 3, 1),
        };
        tile.find(2, 0.0, &mut found);
        assert_eq!(found, [candidate(2, 9, 3, 0.4)]);
    }

    #[test]
    fn the_vertex_of_a_parabola_is_found() {
        // 0.75 - 0.25 * (x - 0.25)^2 at -1, 0 and 1, all exact in binary.
        let at = |x: f64| 0.75 - 0.25 * (x - 0.25) * (x - 0.25);
        assert_eq!(vertex(Some(at(-1.0)), at(0.0), Some(at(1.0))), 0.25);
        assert_eq!(vertex(None, 0.5, Some(0.4)), 0.0);
        assert_eq!(vertex(Some(0.5), 0.5, Some(0.5)), 0.0);
        assert_eq!(vertex(Some(0.5), 0.5, Some(0.1)), -0.5);
    }

    #[test]
    fn limits_count_per_name_and_names_keep_their_order() {
        let bank = Bank::new(vec![template("b", 4, 4), template("a", 4, 4), template("b", 5, 4)]).unwrap();
        let candidates = [
            candidate(1, 0, 0, 0.99),
            candidate(2, 20, 0, 0.9),
            candidate(0, 0, 0, 0.8),
            candidate(0, 40, 0, 0.7),
            candidate(1, 30, 0, 0.6),
        ];
        let limits = Limits { min_score: 0.0, max_matches: 2, max_overlap: 0.3 };
        let expected = [("b", 120, 10), ("b", 100, 10), ("a", 100, 10), ("a", 130, 10)];
        assert_eq!(select(&candidates, &bank, &limits), expected.map(|(n, x, y)| (n.to_owned(), x, y)));
    }

    #[test]
    fn equal_scores_go_by_row_then_column_then_bank_order() {
        let bank = Bank::new(vec![template("t", 4, 4), template("t", 5, 4)]).unwrap();
        let candidates = [
            candidate(1, 3, 0, 0.9),
            candidate(0, 9, 1, 0.9),
            candidate(1, 9, 1, 0.9),
            candidate(0, 4, 0, 0.9),
        ];
        let limits = Limits { min_score: 0.0, max_matches: 9, max_overlap: 1.0 };
        let places: Vec<_> =
            select(&candidates, &bank, &limits).into_iter().map(|(_, x, y)| (x, y)).collect();
        assert_eq!(places, [(103, 10), (104, 10), (109, 11), (109, 11)]);
    }

    #[test]
    fn overlapping_candidates_are_suppressed_however_many_come_first() {
        // 500 candidates around the best one, then one far away that scores least.
        let bank = Bank::new(vec![template("t", 64, 64)]).unwrap();
        let mut candidates: Vec<_> =
            (0..500).map(|i| candidate(0, i % 20, i / 20, 0.9 - f64::from(i) * 1e-4)).collect();
        candidates.insert(3, candidate(0, 300, 0, 0.1));
        let limits = Limits { min_score: 0.0, max_matches: 2, max_overlap: 0.2 };
        let found = select(&candidates, &bank, &limits);
        assert_eq!(found, [("t".to_owned(), 100, 10), ("t".to_owned(), 400, 10)]);
    }
}
