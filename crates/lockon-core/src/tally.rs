//! Counts a run's results during the run, in bounded memory, for the summary.

use std::sync::Arc;

use crate::appearances::{Appearance, Appearances};
use crate::results::{
    FrameRecord, FrameTime, LineSummary, ObjectsSummary, RunRecord, Span, Spread, Summary, TemplateSummary,
    Track, TrackState, TrackSummary, ZoneCount, ZoneSummary,
};

/// Maximum tracks that the summary describes; later tracks of matches are only counted. A run may have any
/// number of them.
const MOST_TRACKS: usize = 100;
/// Maximum kept spans in which a track was lost, for each track; later ones are only counted.
const MOST_SPANS: usize = 10;

/// Maximum appearances in the summary.
const MOST_APPEARANCES: usize = 1000;

/// Counts of a run.
#[derive(Debug, Default)]
pub struct Tally {
    found: Vec<TemplateSummary>,
    tracks: Vec<Counted>,
    /// The highest number of a track of matches: a higher one is new.
    newest: u32,
    more_tracks: u64,
    births: Option<u64>,
    /// The shares of foreground.
    foreground: Option<Values>,
    /// Zones and lines, also those that an order has removed.
    zones: Vec<(ZoneSummary, Option<Values>)>,
    lines: Vec<LineSummary>,
    /// Its mean is made at the end.
    objects: Option<ObjectsSummary>,
    watch: Option<Appearances>,
    appearances: Vec<Appearance>,
    more_appearances: u64,
}

/// Values of frames so far.
#[derive(Debug, Clone, Copy)]
struct Values {
    least: f64,
    most: f64,
    sum: f64,
    frames: u64,
}

impl Values {
    fn add(all: &mut Option<Self>, value: f64) {
        let all = all.get_or_insert(Self { least: value, most: value, sum: 0.0, frames: 0 });
        (all.least, all.most) = (all.least.min(value), all.most.max(value));
        (all.sum, all.frames) = (all.sum + value, all.frames + 1);
    }

    fn spread(self) -> Spread {
        Spread { least: self.least, mean: self.sum / self.frames as f64, most: self.most }
    }
}

/// A track, and whether it was lost in the frame before.
#[derive(Debug)]
struct Counted {
    summary: TrackSummary,
    is_lost: bool,
}

impl Tally {
    /// Prepares for a run's templates, so that the summary also has those that are never found.
    pub fn begin(&mut self, run: &RunRecord) {
        for template in &run.templates {
            self.expect(&template.name);
        }
        self.births = (run.track_matches || run.track_objects).then_some(0);
        self.watch = Some(Appearances::of(run));
    }

    /// Adds a template to the summary, also if it is never found.
    pub fn expect(&mut self, template: &Arc<str>) {
        self.of_template(template);
    }

    /// Counts one frame.
    pub fn count(&mut self, record: &FrameRecord) {
        let now = FrameTime { frame: record.frame, pts_ns: record.pts_ns };
        if let Some(watch) = &mut self.watch {
            let (kept, more) = (&mut self.appearances, &mut self.more_appearances);
            watch.step(record, |closed| keep(kept, more, closed));
        }
        let mut before: Option<&Arc<str>> = None;
        for found in &record.matches {
            // Matches of one template follow each other.
            let is_first = before.is_none_or(|name| **name != *found.template);
            before = Some(&found.template);
            let summary = self.of_template(&found.template);
            summary.frames += u64::from(is_first);
            summary.matches += 1;
            summary.best = Some(summary.best.map_or(found.score, |best| best.max(found.score)));
            summary.worst = Some(summary.worst.map_or(found.score, |worst| worst.min(found.score)));
            summary.first.get_or_insert(now);
            summary.last = Some(now);
        }
        for track in &record.tracks {
            self.count_track(track, now);
        }
        if let Some(threshold) = record.threshold {
            Values::add(&mut self.foreground, threshold.foreground);
        }
        if let Some(objects) = &record.objects {
            let count = objects.len() as u64;
            let all =
                self.objects.get_or_insert(ObjectsSummary { least: count, ..ObjectsSummary::default() });
            (all.frames, all.total) = (all.frames + 1, all.total + count);
            (all.least, all.most) = (all.least.min(count), all.most.max(count));
            all.cut_off_frames += u64::from(record.more_objects > 0);
            all.more_objects += record.more_objects;
        }
        for zone in &record.zones {
            self.count_zone(zone);
        }
        for line in &record.lines {
            let place = self.lines.iter().position(|known| known.line == line.line).unwrap_or_else(|| {
                self.lines.push(LineSummary { line: line.line.clone(), inwards: 0, outwards: 0 });
                self.lines.len() - 1
            });
            let known = &mut self.lines[place];
            (known.inwards, known.outwards) = (line.inwards, line.outwards);
        }
    }

    fn count_zone(&mut self, now: &ZoneCount) {
        let place = self.zones.iter().position(|(known, _)| known.zone == now.zone).unwrap_or_else(|| {
            let zone = now.zone.clone();
            let new = ZoneSummary { zone, entered: 0, left: 0, inside: 0, most_inside: 0, objects: None };
            self.zones.push((new, None));
            self.zones.len() - 1
        });
        let (known, objects) = &mut self.zones[place];
        (known.entered, known.left, known.inside) = (now.entered, now.left, now.inside);
        known.most_inside = known.most_inside.max(now.inside);
        if let Some(count) = now.objects {
            Values::add(objects, count as f64);
        }
    }

    /// Writes the counts so far into a summary.
    pub fn tell(&self, summary: &mut Summary) {
        summary.appearances.clone_from(&self.appearances);
        summary.more_appearances = self.more_appearances;
        if let Some(watch) = &self.watch {
            let (kept, more) = (&mut summary.appearances, &mut summary.more_appearances);
            watch.clone().end(|closed| keep(kept, more, closed));
        }
        summary.found.clone_from(&self.found);
        summary.tracks = self.tracks.iter().map(|track| track.summary.clone()).collect();
        (summary.more_tracks, summary.births) = (self.more_tracks, self.births);
        summary.foreground = self.foreground.map(Values::spread);
        let zones = self.zones.iter();
        summary.zones = zones
            .map(|(zone, objects)| ZoneSummary { objects: objects.map(Values::spread), ..zone.clone() })
            .collect();
        summary.lines.clone_from(&self.lines);
        let mean = |all: ObjectsSummary| all.total as f64 / all.frames as f64;
        summary.objects = self.objects.map(|all| ObjectsSummary { mean: mean(all), ..all });
    }

    /// The results of each template so far.
    pub fn found(&self) -> &[TemplateSummary] {
        &self.found
    }

    fn of_template(&mut self, name: &Arc<str>) -> &mut TemplateSummary {
        let index = self.found.iter().position(|summary| summary.template == *name).unwrap_or_else(|| {
            self.found.push(TemplateSummary {
                template: name.clone(),
                frames: 0,
                matches: 0,
                best: None,
                worst: None,
                first: None,
                last: None,
            });
            self.found.len() - 1
        });
        &mut self.found[index]
    }

    /// The place of a track among the described ones; a new track gets one here. `None` if there is no room.
    fn place_of(&mut self, track: &Track, now: FrameTime) -> Option<usize> {
        // The newest are needed most often.
        let known = self.tracks.iter().rposition(|counted| counted.summary.id == track.id);
        if known.is_some() {
            return known;
        }
        if track.template.is_some() {
            // They count on as they begin.
            let is_new = track.id > self.newest;
            self.newest = self.newest.max(track.id);
            *self.births.get_or_insert(0) += u64::from(is_new);
            if self.tracks.len() >= MOST_TRACKS {
                self.more_tracks += u64::from(is_new);
                return None;
            }
        }
        self.tracks.push(Counted { summary: TrackSummary::new(track, now), is_lost: false });
        Some(self.tracks.len() - 1)
    }

    fn count_track(&mut self, track: &Track, now: FrameTime) {
        let Some(index) = self.place_of(track, now) else { return };
        let Counted { summary, is_lost } = &mut self.tracks[index];
        summary.frames += 1;
        summary.last = now;
        *match track.state {
            TrackState::Tracked => &mut summary.tracked,
            TrackState::Uncertain => &mut summary.uncertain,
            TrackState::Reacquired => &mut summary.reacquired,
            TrackState::Lost => &mut summary.lost,
        } += 1;
        let was_lost = std::mem::replace(is_lost, track.state == TrackState::Lost);
        if !*is_lost {
            return;
        }
        if !was_lost {
            summary.losses += 1;
            if summary.lost_spans.len() < MOST_SPANS {
                summary.lost_spans.push(Span { from: now, to: now });
            }
        } else if summary.losses <= MOST_SPANS as u64
            && let Some(span) = summary.lost_spans.last_mut()
        {
            span.to = now;
        }
    }
}

/// Keeps an appearance if there is room.
fn keep(kept: &mut Vec<Appearance>, more: &mut u64, closed: Appearance) {
    if kept.len() < MOST_APPEARANCES {
        kept.push(closed);
    } else {
        *more += 1;
    }
}

impl TrackSummary {
    fn new(track: &Track, first: FrameTime) -> Self {
        Self {
            id: track.id,
            name: track.name.clone(),
            template: track.template.clone(),
            first,
            last: first,
            frames: 0,
            tracked: 0,
            uncertain: 0,
            reacquired: 0,
            lost: 0,
            losses: 0,
            lost_spans: Vec::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::{Match, Object, ThresholdResult};

    fn found(template: &str, score: f64) -> Match {
        let template = template.into();
        Match { template, x: 1, y: 2, w: 4, h: 3, score, scale: 1.0, angle: 0.0, cx: 3.0, cy: 3.5 }
    }

    fn frame(frame: u64, matches: Vec<Match>, tracks: Vec<Track>) -> FrameRecord {
        FrameRecord { frame, pts_ns: Some(frame * 40_000_000), matches, tracks, ..FrameRecord::default() }
    }

    fn track(id: u32, state: TrackState) -> Track {
        Track { id, state, ..Track::default() }
    }

    fn told(tally: &Tally) -> Summary {
        let mut summary = Summary::default();
        tally.tell(&mut summary);
        summary
    }

    #[test]
    fn matches_are_counted_by_template_in_frames_and_scores() {
        let mut tally = Tally::default();
        tally.of_template(&"never".into());
        tally.count(&frame(3, vec![found("a", 0.9), found("a", 0.7), found("b", 0.8)], vec![]));
        tally.count(&frame(4, vec![], vec![]));
        tally.count(&frame(7, vec![found("a", 0.95)], vec![]));
        let found = told(&tally).found;
        let names: Vec<_> = found.iter().map(|summary| (&*summary.template, summary.frames)).collect();
        assert_eq!(names, [("never", 0), ("a", 2), ("b", 1)]);
        let a = &found[1];
        assert_eq!((a.matches, a.best, a.worst), (3, Some(0.95), Some(0.7)));
        let moment = |frame: u64| Some(FrameTime { frame, pts_ns: Some(frame * 40_000_000) });
        assert_eq!((a.first, a.last), (moment(3), moment(7)));
        assert_eq!((found[0].first, found[0].best), (None, None));
    }

    #[test]
    fn a_track_tells_when_it_was_lost() {
        use TrackState::{Lost, Reacquired, Tracked, Uncertain};
        let mut tally = Tally::default();
        let states = [Tracked, Lost, Lost, Reacquired, Uncertain, Lost];
        for (number, state) in (5..).zip(states) {
            tally.count(&frame(number, vec![], vec![track(1, state)]));
        }
        let tracks = told(&tally).tracks;
        let [track] = tracks.as_slice() else { panic!("{tracks:?}") };
        let counts = (track.frames, track.tracked, track.uncertain, track.reacquired, track.lost);
        assert_eq!(counts, (6, 1, 1, 1, 3));
        let spans: Vec<_> = track.lost_spans.iter().map(|span| (span.from.frame, span.to.frame)).collect();
        assert_eq!((track.losses, spans), (2, vec![(6, 7), (10, 10)]));
        assert_eq!((track.first.frame, track.last.frame), (5, 10));
    }

    #[test]
    fn what_is_kept_is_bounded_and_the_rest_is_counted() {
        use TrackState::{Lost, Tracked};
        let mut tally = Tally { births: Some(0), ..Tally::default() };
        for number in 0..60 {
            let state = if number % 2 == 0 { Tracked } else { Lost };
            tally.count(&frame(number, vec![], vec![track(1, state)]));
        }
        for id in 2..=300 {
            let born = Track { template: Some("part".into()), ..track(id, Tracked) };
            for number in 0..2 {
                tally.count(&frame(60 + number, vec![], vec![born.clone()]));
            }
        }
        let summary = told(&tally);
        assert_eq!((summary.tracks.len(), summary.more_tracks, summary.births), (100, 200, Some(299)));
        let first = &summary.tracks[0];
        assert_eq!((first.losses, first.lost_spans.len()), (30, 10));
        let last = first.lost_spans[9];
        assert_eq!((last.from.frame, last.to.frame), (19, 19));
    }

    #[test]
    fn foreground_has_its_range_and_mean() {
        let mut tally = Tally::default();
        assert_eq!(told(&tally).foreground, None);
        for foreground in [0.25, 0.5, 0.0] {
            let threshold = Some(ThresholdResult { foreground });
            tally.count(&FrameRecord { threshold, ..FrameRecord::default() });
        }
        assert_eq!(told(&tally).foreground, Some(Spread { least: 0.0, mean: 0.25, most: 0.5 }));
    }

    #[test]
    fn objects_are_counted_in_the_frames_that_were_looked_at_and_those_beyond_the_maximum_apart() {
        let mut tally = Tally::default();
        tally.count(&FrameRecord::default());
        assert_eq!(told(&tally).objects, None);
        for (count, more_objects) in [(3, 0), (5, 7), (0, 0), (2, 1)] {
            let objects = Some(vec![Object::default(); count]);
            tally.count(&FrameRecord { objects, more_objects, ..FrameRecord::default() });
        }
        let expected = ObjectsSummary {
            frames: 4,
            total: 10,
            least: 0,
            mean: 2.5,
            most: 5,
            cut_off_frames: 2,
            more_objects: 8,
        };
        assert_eq!(told(&tally).objects, Some(expected));
    }
}
