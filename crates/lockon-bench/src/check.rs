//! Answers beside the definition, and beside the CPU backend's: a time counts only if they are right.

use anyhow::{Result, ensure};

use lockon_core::backend::cpu;
use lockon_core::config::ThresholdSpec;
use lockon_core::frame::{Plane, Size};
use lockon_core::reference;
use lockon_core::results::Match;

use super::scene::SearchCase;

/// Positions of a score map and pixels of a mask that are compared with the definition.
const CHECKED: usize = 256;

/// The matches that the CPU backend finds in each picture.
pub(super) fn found_on_cpu(
    search: &SearchCase,
    pictures: &[&Plane],
    threads: usize,
) -> Result<Vec<Vec<Match>>> {
    let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build()?;
    let mut planner = cpu::ncc::Planner::new();
    let (bank, window) = (search.bank.clone(), search.window);
    let mut matcher = cpu::ncc::Matcher::new(&mut planner, bank, window.size(), threads);
    let mut find = |picture: &Plane| {
        let mut matches = Vec::new();
        pool.install(|| matcher.run(picture.as_ref(), window, &search.limits, &mut matches))?;
        Ok(matches)
    };
    pictures.iter().map(|picture| find(picture)).collect()
}

/// Compares the score map of the bank's last member, where there is one, with the definition at some
/// positions.
pub(super) fn check_scores(picture: &Plane, search: &SearchCase, scores: Option<&[f64]>) -> Result<()> {
    let Some(scores) = scores else { return Ok(()) };
    let template = search.bank.members().last().expect("a bank has members");
    let window = search.window;
    let width = template.size().positions_in(window.size()).width;
    for index in (0..CHECKED).map(|i| i * 2_654_435_761 % scores.len()) {
        let (x, y) = (window.x + index % width, window.y + index / width);
        let expected = reference::ncc::score_at(picture.as_ref(), template, x, y);
        ensure!(scores[index] == expected, "score at {x},{y} is {} and not {expected}", scores[index]);
    }
    Ok(())
}

/// Compares NPP's scores with the definition at some positions. NPP computes in f32, from sums that lose
/// digits.
pub(super) fn check_npp_scores(picture: &Plane, search: &SearchCase, scores: &[f32]) -> Result<()> {
    let template = &search.bank.members()[0];
    let width = template.size().positions_in(picture.size()).width;
    for index in (0..CHECKED).map(|i| i * 2_654_435_761 % scores.len()) {
        let (x, y) = (index % width, index / width);
        let expected = reference::ncc::score_at(picture.as_ref(), template, x, y);
        let found = f64::from(scores[index]);
        ensure!((found - expected).abs() < 0.01, "NPP's score at {x},{y} is {found} and not {expected}");
    }
    Ok(())
}

/// Each member was cut out of the picture, so it must be found with score 1: the first in its place, or in
/// one that comes before it and looks the same.
pub(super) fn check_matches(picture: &Plane, search: &SearchCase, matches: &[Match]) -> Result<()> {
    let SearchCase { bank, place, limits, .. } = search;
    if limits.max_matches == 1 {
        ensure!(matches.len() == bank.members().len(), "{} matches", matches.len());
        for (found, template) in matches.iter().zip(bank.members()) {
            let exact = reference::ncc::score_at(picture.as_ref(), template, found.x, found.y);
            ensure!(found.score == 1.0 && exact == 1.0, "{found:?}, exactly {exact}");
        }
    }
    let first = matches.first();
    ensure!(
        first.is_some_and(|first| (first.y, first.x) <= (place.y, place.x)),
        "{first:?} and not at {place}"
    );
    Ok(())
}

/// Compares a mask with the definition at some pixels.
pub(super) fn check_mask(picture: &Plane, spec: &ThresholdSpec, mask: &Plane) -> Result<()> {
    let Size { width, .. } = picture.size();
    for index in (0..CHECKED).map(|i| i * 2_654_435_761 % mask.data().len()) {
        let (x, y) = (index % width, index / width);
        let expected = reference::threshold::is_foreground(picture.as_ref(), spec, x, y);
        ensure!((mask.data()[index] == 255) == expected, "{spec} at {x},{y} is {}", mask.data()[index]);
    }
    Ok(())
}
