//! A search from coarse to fine: it does not search every place and direction, but reported scores are exact.
//!
//! Picture and templates are halved until the smallest template is about [`COARSE_SIDE`] pixels wide or high.
//! There every place is searched, in as many directions as make a difference. What scores well is followed to
//! the finer pictures, one by one: at each the best of the places and variants (sizes and directions) next to
//! it is taken, and then the best next to that, until none is better. Where this ends in the full picture,
//! score and neighbours are exact, and peaks become matches as they always do. What scores too little on the
//! way is dropped, so it can miss a match that an exhaustive search finds; variants are made only when the
//! way leads to them.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use rayon::prelude::*;

use super::exact;
use super::ncc::{Matcher, Planner};
use super::simd::Level;
use crate::backend::Variants;
use crate::backend::peaks::{Candidate, Selector};
use crate::config::Limits;
use crate::control::Control;
use crate::error::{Bytes, Error, Result};
use crate::frame::{Plane, PlaneRef, Rect, Size};
use crate::locks::lock;
use crate::message::{Message, Setting};
use crate::results::Match;
use crate::template::{Bank, Template};

/// Minimum side of a template that can still be distinguished from its surroundings. With 12 and with 9 the
/// results in 24 crops of four videos were those with 7, and those of an exhaustive search. But the coarsest
/// picture took up to ten times as long: it has four times as many places for each halving less, and twice as
/// many directions.
const COARSE_SIDE: usize = 7;

/// How far apart, in coarse pixels, the corners of a template may lie in two directions, or in two sizes, of
/// which none between is searched.
const COARSE_STEP: f64 = 1.8;

/// By how much a score may be lower for each time that the picture was halved.
const LOSS: f64 = 0.08;

/// Peaks of one variant that are followed.
const PEAKS: usize = 64;

/// Searches frames for templates at several sizes and directions.
pub(super) struct Pyramid {
    control: Control,
    level: Level,
    variants: Arc<Variants>,
    region: Size,
    /// The number of halvings of the picture.
    halvings: usize,
    /// The templates, halved 0 to `halvings` times.
    templates: Vec<Vec<Template>>,
    /// The region, halved once to `halvings` times.
    pictures: Vec<Plane>,
    coarse: Matcher,
    made: Mutex<Made>,
    found: Vec<Match>,
}

/// Variants that the way has led to, by how often they were halved; `None` where there is nothing to search
/// for.
struct Made {
    variants: HashMap<(usize, usize), Option<Template>>,
    /// Bytes that more of them may take. Where there are too few, a variant is made whenever the way leads to
    /// it.
    room: usize,
}

/// A place on the way.
#[derive(Debug, Clone, Copy)]
struct Place {
    variant: usize,
    x: usize,
    y: usize,
    score: f64,
}

impl Pyramid {
    /// A search of regions of size `region`, on up to `threads` threads, in up to `memory` bytes; `None` if
    /// no coarse variant fits into it.
    ///
    /// # Errors
    /// `MemoryLimit` if that takes more; `NoMemory`; `Stopped`.
    pub(super) fn new(
        variants: Arc<Variants>,
        region: Size,
        threads: usize,
        control: &Control,
        memory: usize,
    ) -> Result<Option<Self>> {
        let level = Level::best();
        let sides = variants.templates.iter().map(|t| t.size().width.min(t.size().height));
        let smallest = sides.min().unwrap_or(0) as f64 * variants.scales.0.first().copied().unwrap_or(1.0);
        let mut templates = vec![variants.templates.clone()];
        while (smallest / f64::from(1 << templates.len())) >= COARSE_SIDE as f64 {
            let halved = templates[templates.len() - 1].iter().map(halved_template).collect();
            let Some(halved) = halved else { break };
            templates.push(halved);
        }
        let halvings = templates.len() - 1;
        let size = |times: usize| Size::new(region.width >> times, region.height >> times);
        let (mut members, mut taken) = (Vec::new(), 0);
        let radius = |template: &Template| {
            let Size { width, height } = template.size();
            (width as f64).hypot(height as f64) / 2.0
        };
        let is_searched: Vec<_> = templates[halvings]
            .iter()
            .map(|template| coarse_scales(&variants.scales.0, COARSE_STEP / radius(template)))
            .collect();
        for variant in 0..variants.count() {
            control.check()?;
            let (template, scale, angle) = variants.parts(variant);
            let angles = variants.angles.0.len();
            if !is_searched[template][variant / angles % variants.scales.0.len()] {
                continue;
            }
            let template = &templates[halvings][template];
            let step = variants
                .angle_step()
                .map_or(1.0, |step| COARSE_STEP / (radius(template) * scale * step.to_radians()));
            if !(variant % angles).is_multiple_of((step as usize).max(1)) {
                continue;
            }
            if let Ok(made) = template.resampled(scale, angle)
                && made.size().fits_in(size(halvings))
            {
                taken += bytes(&made);
                if taken > memory / 2 {
                    return Err(Error::MemoryLimit {
                        what: format!(
                            "the first {} of {} coarse variants",
                            members.len() + 1,
                            variants.count()
                        ),
                        wanted: Bytes(taken as u64),
                        limit: Bytes(memory as u64 / 2),
                        remedy: Message::new(
                            "give more {}, or fewer {} or {}",
                            ["memory", "scales", "angles"].map(Setting::named),
                        ),
                    });
                }
                // Each variant has a name of its own here, so that its best places are its own.
                members.push(made.renamed(variant.to_string()));
            }
        }
        let Ok(bank) = Bank::new(members) else { return Ok(None) };
        let pictures = (1..=halvings).map(|times| Plane::new(size(times))).collect();
        let rest = memory - taken;
        let (planner, room) = (&mut Planner::new(), rest - rest / 4);
        let coarse = Matcher::within(planner, Arc::new(bank), size(halvings), threads, control, room)?;
        let made = Mutex::new(Made { variants: HashMap::new(), room: rest / 4 });
        let (control, found) = (control.clone(), Vec::new());
        Ok(Some(Self {
            control,
            level,
            variants,
            region,
            halvings,
            templates,
            pictures,
            coarse,
            made,
            found,
        }))
    }

    /// Replaces the contents of `matches` by those that were found inside `roi`.
    ///
    /// # Errors
    /// As [`Matcher::run`].
    ///
    /// # Panics
    /// If `roi` does not lie inside `frame` or is of another size than this was made for.
    pub(super) fn run(
        &mut self,
        frame: PlaneRef<'_>,
        roi: Rect,
        limits: &Limits,
        matches: &mut Vec<Match>,
    ) -> Result<()> {
        assert_eq!(roi.size(), self.region, "size of a region of interest");
        matches.clear();
        let region = frame.crop(roi);
        let mut pictures = std::mem::take(&mut self.pictures);
        for times in 0..pictures.len() {
            let (finer, coarser) = pictures.split_at_mut(times);
            halve(finer.last().map_or(region, Plane::as_ref), &mut coarser[0]);
        }
        let coarse = self.coarse_places(pictures.last().map_or(region, Plane::as_ref), limits);
        let mut places = coarse.inspect_err(|_| matches.clear())?;
        for times in (0..self.halvings).rev() {
            let picture = if times == 0 { region } else { pictures[times - 1].as_ref() };
            let least = limits.min_score - LOSS * times as f64;
            let follow = |place: &Place| self.follow(picture, times, least, *place);
            places = distinct(places.par_iter().filter_map(follow).collect());
        }
        self.pictures = pictures;
        // Given up half way, places are not where the way would have ended.
        self.control.check()?;
        self.select(region, (roi.x, roi.y), limits, &places, matches);
        self.control.check().inspect_err(|_| matches.clear())
    }

    /// The best places of the coarsest picture, best first, without those that lead where a better one leads.
    fn coarse_places(&mut self, picture: PlaneRef<'_>, limits: &Limits) -> Result<Vec<Place>> {
        let coarse = Limits {
            min_score: limits.min_score - LOSS * self.halvings as f64,
            max_matches: PEAKS,
            max_overlap: 0.5,
        };
        self.coarse.run(picture, Rect::whole(picture.size()), &coarse, &mut self.found)?;
        let place = |found: &Match| {
            let member: usize = found.template.parse().expect("named so when it was made");
            Place { variant: member, x: found.x, y: found.y, score: found.score }
        };
        let mut places: Vec<_> = self.found.iter().map(|found| (place(found), found.cx, found.cy)).collect();
        places.sort_by(|(a, ..), (b, ..)| b.score.total_cmp(&a.score));
        let mut kept: Vec<(Place, f64, f64)> = Vec::new();
        for (place, x, y) in places {
            let (template, scale, angle) = self.variants.parts(place.variant);
            let Size { width, height } = self.templates[self.halvings][template].size();
            let near = 0.2 * scale * width.min(height) as f64;
            let leads_here = |(better, a, b): &(Place, f64, f64)| {
                let (other, _, other_angle) = self.variants.parts(better.variant);
                let turn = (angle - other_angle).rem_euclid(360.0);
                other == template && turn.min(360.0 - turn) <= 20.0 && (x - a).hypot(y - b) <= near
            };
            if !kept.iter().any(leads_here) {
                kept.push((place, x, y));
            }
        }
        Ok(kept.into_iter().map(|(place, ..)| place).collect())
    }

    /// Follows a place of a picture into the next finer one, which was halved `times` times and where it has
    /// to score `least` in the end.
    fn follow(&self, picture: PlaneRef<'_>, times: usize, least: f64, place: Place) -> Option<Place> {
        let coarse = self.made(times + 1, place.variant)?.size();
        let fine = self.made(times, place.variant)?.size();
        let start = |at: usize, coarse: usize, fine: usize| {
            (2.0 * (at as f64 + coarse as f64 / 2.0) - fine as f64 / 2.0).round().max(0.0) as usize
        };
        let (x, y) = (start(place.x, coarse.width, fine.width), start(place.y, coarse.height, fine.height));
        let mut best = self.best_near(picture, times, place.variant, (x, y))?;
        if best.score < least - LOSS / 2.0 {
            return None;
        }
        // Uphill until no variant next to it is better.
        loop {
            let size = self.made(times, best.variant)?.size();
            let mut better = best;
            for variant in self.variants.next_to(best.variant) {
                let Some(other) = self.made(times, variant).map(|made| made.size()) else { continue };
                let (x, y) = (
                    recentred(best.x, size.width, other.width),
                    recentred(best.y, size.height, other.height),
                );
                let found = self.best_near(picture, times, variant, (x, y));
                better = found.filter(|found| found.score > better.score).unwrap_or(better);
            }
            if better.score <= best.score {
                return Some(best).filter(|best| best.score >= least);
            }
            best = better;
        }
    }

    /// The best place of a variant uphill from (x, y); `None` if it does not fit.
    fn best_near(
        &self,
        picture: PlaneRef<'_>,
        times: usize,
        variant: usize,
        (x, y): (usize, usize),
    ) -> Option<Place> {
        let level = self.level;
        let template = &self.made(times, variant)?;
        let size = template.size();
        if !size.fits_in(picture.size()) {
            return None;
        }
        let (right, bottom) = (picture.size().width - size.width, picture.size().height - size.height);
        let mut best = Place { variant, x: x.min(right), y: y.min(bottom), score: f64::NEG_INFINITY };
        loop {
            if self.control.is_stopped() {
                return None;
            }
            let (x, y) = (best.x, best.y);
            for y in y.saturating_sub(1)..=(y + 1).min(bottom) {
                for x in x.saturating_sub(1)..=(x + 1).min(right) {
                    let score = exact::score_at(level, picture, template, (x, y));
                    if score > best.score {
                        best = Place { variant, x, y, score };
                    }
                }
            }
            if (best.x, best.y) == (x, y) {
                return Some(best);
            }
        }
    }

    /// Makes matches of the places in the full picture that are peaks.
    fn select(
        &self,
        region: PlaneRef<'_>,
        origin: (usize, usize),
        limits: &Limits,
        places: &[Place],
        matches: &mut Vec<Match>,
    ) {
        // In the order of the variants, which is that of a bank of all of them.
        let mut used: Vec<usize> = places.iter().map(|place| place.variant).collect();
        used.sort_unstable();
        used.dedup();
        let members: Vec<_> = used.iter().filter_map(|&variant| self.made(0, variant)).collect();
        let Ok(bank) = Bank::new(members) else { return };
        let mut candidates: Vec<Candidate> = Vec::new();
        for place in places {
            if self.control.is_stopped() {
                return;
            }
            let member = used.iter().position(|&variant| variant == place.variant).expect("just collected");
            let (template, at) = (&bank.members()[member], (place.x, place.y));
            let score_at = |at| exact::score_at(self.level, region, template, at);
            let score = score_at(at);
            if score >= limits.min_score {
                let map = template.size().positions_in(region.size());
                exact::find_peak(map, score_at, member as u32, at, score, &mut candidates);
            }
        }
        Selector::new(&bank).select(&mut candidates, &bank, origin, limits, matches);
    }

    /// A variant, halved `times` times, made now if it is new.
    fn made(&self, times: usize, variant: usize) -> Option<Template> {
        let lock = || lock(&self.made);
        if let Some(made) = lock().variants.get(&(times, variant)) {
            return made.clone();
        }
        // Not under the lock: it takes long, and another thread that makes it too gets the same.
        let (template, scale, angle) = self.variants.parts(variant);
        let made = self.templates[times][template].resampled(scale, angle).ok();
        let mut kept = lock();
        let room = kept.room.checked_sub(made.as_ref().map_or(0, bytes));
        if let Some(room) = room
            && kept.variants.insert((times, variant), made.clone()).is_none()
        {
            kept.room = room;
        }
        made
    }
}

/// Returns which of the scales are searched in the coarsest picture: as few as possible with no two
/// neighbours more than `step` apart (unless the given scales already are), always with the first and the
/// last.
fn coarse_scales(scales: &[f64], step: f64) -> Vec<bool> {
    let mut kept = vec![true; scales.len()];
    let mut last = 0;
    for index in 1..scales.len().saturating_sub(1) {
        kept[index] = scales[index + 1] - scales[last] > step;
        if kept[index] {
            last = index;
        }
    }
    kept
}

/// The approximate bytes of a variant.
fn bytes(template: &Template) -> usize {
    2 * template.size().area() + 2 * size_of::<Template>()
}

/// The places, each once.
fn distinct(mut places: Vec<Place>) -> Vec<Place> {
    places.sort_by_key(|place| (place.variant, place.y, place.x));
    places.dedup_by_key(|place| (place.variant, place.y, place.x));
    places
}

/// The start of a box of another length with about the same centre.
fn recentred(at: usize, length: usize, other: usize) -> usize {
    (at + length / 2).saturating_sub(other / 2)
}

/// Makes the picture of half the size: means of two by two pixels. A last odd row or column is left out.
fn halve(finer: PlaneRef<'_>, coarser: &mut Plane) {
    let size = coarser.size();
    for (y, out) in coarser.data_mut().chunks_exact_mut(size.width).enumerate() {
        let (upper, lower) = (finer.row(2 * y).as_chunks().0, finer.row(2 * y + 1).as_chunks().0);
        for ((out, [a, b]), [c, d]) in out.iter_mut().zip(upper).zip(lower) {
            *out = ((u16::from(*a) + u16::from(*b) + u16::from(*c) + u16::from(*d) + 2) / 4) as u8;
        }
    }
}

/// Returns the template at half the size: each pixel is the mean of those that count among two by two pixels.
/// It counts if at least half of them do. `None` if nothing is left to search for.
fn halved_template(template: &Template) -> Option<Template> {
    let size = template.size();
    let half = Size::new(size.width / 2, size.height / 2);
    let counts = |i: usize| template.mask().map_or(1, |mask| u16::from(mask.data()[i]));
    let (mut luma, mut mask) = (Plane::new(half), Plane::new(half));
    for (i, (luma, mask)) in luma.data_mut().iter_mut().zip(mask.data_mut()).enumerate() {
        let first = 2 * (i / half.width) * size.width + 2 * (i % half.width);
        let pixels = [first, first + 1, first + size.width, first + size.width + 1];
        let counted: u16 = pixels.map(counts).iter().sum();
        // Pixels that do not count are 0.
        let sum: u16 = pixels.map(|i| u16::from(template.luma().data()[i])).iter().sum();
        if counted >= 2 {
            (*luma, *mask) = (((2 * sum + counted) / (2 * counted)) as u8, 255);
        }
    }
    Template::new(template.name().clone(), luma, Some(&mask)).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Angles, Scales};
    use crate::reference;

    /// Smooth blobs of several sizes, as pictures of things have them; noise alone is gone once it is halved.
    fn thing(size: Size) -> Template {
        let level = |i: usize| {
            let (x, y) = ((i % size.width) as f64, (i / size.width) as f64);
            let blobs = (x / 5.0).sin() * (y / 7.0).cos() + ((x - 0.4 * y) / 11.0).sin();
            (128.0 + 50.0 * blobs) as u8
        };
        let luma = Plane::from_vec((0..size.area()).map(level).collect(), size);
        Template::new("thing", luma, None).unwrap()
    }

    /// A picture with templates pasted into it, at (x, y) each.
    fn scene(size: Size, things: &[(&Template, usize, usize)]) -> Plane {
        let mut scene = reference::picture(size);
        for pixel in scene.data_mut() {
            *pixel = 60 + *pixel / 4;
        }
        for (thing, x, y) in things {
            let width = thing.size().width;
            for (i, &pixel) in thing.luma().data().iter().enumerate() {
                if thing.mask().is_none_or(|mask| mask.data()[i] == 1) {
                    scene.data_mut()[(y + i / width) * size.width + x + i % width] = pixel;
                }
            }
        }
        scene
    }

    fn pyramid(variants: Variants, region: Size, memory: usize) -> Pyramid {
        Pyramid::new(Arc::new(variants), region, 2, &Control::new(), memory).unwrap().unwrap()
    }

    #[test]
    fn dense_scales_are_searched_in_steps_and_the_ends_always() {
        assert_eq!(coarse_scales(&[], 0.1), [false; 0]);
        assert_eq!(coarse_scales(&[1.0], 0.1), [true]);
        assert_eq!(coarse_scales(&[0.5, 1.0, 2.0], 0.1), [true; 3]);
        let dense = [0.9, 0.95, 1.0, 1.05, 1.1, 1.15];
        assert_eq!(coarse_scales(&dense, 0.11), [true, false, true, false, true, true]);
    }

    #[test]
    fn things_of_sizes_that_are_not_searched_coarsely_are_found_as_by_an_exhaustive_search() {
        let original = thing(Size::new(60, 60));
        let (scales, angles): (Scales, Angles) =
            ("0.8..1.25/1.03".parse().unwrap(), "-20..20/5".parse().unwrap());
        let variants =
            Variants { templates: vec![original.clone()], scales: scales.clone(), angles: angles.clone() };
        let mut pyramid = pyramid(variants, Size::new(300, 200), usize::MAX);
        let all = scales.0.len() * angles.0.len();
        assert!(pyramid.halvings > 0 && pyramid.coarse.members() < all / 2, "{}", pyramid.coarse.members());
        for &scale in &scales.0 {
            let there = original.resampled(scale, 10.0).unwrap();
            let scene = scene(Size::new(300, 200), &[(&there, 143, 77)]);
            let mut found = Vec::new();
            let limits = Limits { max_matches: 1, ..Limits::default() };
            pyramid.run(scene.as_ref(), Rect::new(0, 0, 300, 200), &limits, &mut found).unwrap();
            let places: Vec<_> = found.iter().map(|m| (m.x, m.y, m.scale, m.angle)).collect();
            assert_eq!(places, [(143, 77, scale, 10.0)]);
        }
    }

    #[test]
    fn turned_and_scaled_things_are_found_as_by_an_exhaustive_search() {
        let original = thing(Size::new(61, 47));
        let (scales, angles): (Scales, Angles) =
            ("0.9..1.1/1.1".parse().unwrap(), "-180..180/5".parse().unwrap());
        let (a, b) = (original.resampled(1.0, 35.0).unwrap(), original.resampled(1.1, -110.0).unwrap());
        let scene = scene(Size::new(260, 180), &[(&a, 21, 13), (&b, 140, 71)]);
        let limits = Limits { min_score: 0.7, max_matches: 5, max_overlap: 0.3 };
        let roi = Rect::new(3, 2, 255, 177);
        let variants =
            Variants { templates: vec![original.clone()], scales: scales.clone(), angles: angles.clone() };
        let mut pyramid = pyramid(variants, roi.size(), usize::MAX);
        assert!(pyramid.halvings > 0, "nothing is coarse");
        let (mut found, mut expected) = (Vec::new(), Vec::new());
        pyramid.run(scene.as_ref(), roi, &limits, &mut found).unwrap();
        let bank = Bank::expanded(&[original], &scales, &angles).unwrap().fitting(roi.size()).unwrap();
        let mut matcher = Matcher::new(&mut Planner::new(), Arc::new(bank), roi.size(), 1);
        matcher.run(scene.as_ref(), roi, &limits, &mut expected).unwrap();
        assert_eq!(found, expected);
        let places: Vec<_> = found.iter().map(|m| (m.x, m.y, m.scale, m.angle)).collect();
        assert_eq!(places, [(21, 13, 1.0, 35.0), (140, 71, 1.1, -110.0)]);
        let made = pyramid.made.lock().unwrap().variants.keys().filter(|(times, _)| *times == 0).count();
        assert!(made < pyramid.variants.count() / 2, "{made} variants were made");
        // Nothing of the frame before is left.
        pyramid.run(reference::picture(Size::new(260, 180)).as_ref(), roi, &limits, &mut found).unwrap();
        assert_eq!(found, []);
    }

    #[test]
    fn templates_too_small_to_halve_are_searched_as_they_are() {
        let original = thing(Size::new(13, 11));
        let scene = scene(Size::new(70, 50), &[(&original, 40, 21)]);
        let variants =
            Variants { templates: vec![original], scales: Scales::default(), angles: Angles::default() };
        let mut pyramid = pyramid(variants, Size::new(70, 50), usize::MAX);
        let mut found = Vec::new();
        pyramid.run(scene.as_ref(), Rect::new(0, 0, 70, 50), &Limits::default(), &mut found).unwrap();
        assert_eq!((pyramid.halvings, found.len(), found[0].rect()), (0, 1, Rect::new(40, 21, 13, 11)));
        assert_eq!(found[0].score, 1.0);
    }

    #[test]
    fn halving_averages_what_counts() {
        let luma =
            Plane::from_vec(vec![10, 20, 30, 50, 30, 40, 99, 7, 1, 2, 3, 4, 5, 6, 7, 9], Size::new(4, 4));
        let counts = Plane::from_vec(
            vec![255, 255, 255, 255, 255, 255, 0, 0, 0, 255, 255, 255, 0, 0, 255, 255],
            Size::new(4, 4),
        );
        let half = halved_template(&Template::new("t", luma, Some(&counts)).unwrap()).unwrap();
        assert_eq!(half.luma().data(), [25, 40, 0, 6]);
        assert_eq!(half.mask().unwrap().data(), [1, 1, 0, 1]);
    }
}
