//! Events of tracks, from the records of frames: plain data in, plain data out.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::config::{CountingLine, CountingLines, Direction, Zone, ZoneLimit, Zones};
use crate::frame::Size;
use crate::orders::Order;
use crate::results::{Crossing, FrameRecord, LineCount, Track, TrackState, ZoneCount};

/// Frames in a row that a track has to be uncertain, or certain again, before there is an event: near the
/// limit it changes from frame to frame.
const STEADY: u32 = 5;

/// A track has crossed the border of a zone, or a line, when it is so far beyond it: a share of the box's
/// shorter side, and a pixel at least...
const BEYOND: f64 = 0.05;
/// ...but for a zone no more than that of its thickness, so that it can get into a narrow one.
const MOST_BEYOND: f64 = 0.5;

/// Kinds of events of a track.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TrackEventKind {
    /// It is followed from now on.
    Appeared,
    /// It came into a zone.
    Entered,
    /// It went out of a zone, or is gone.
    Left,
    /// It crossed a line.
    Crossed,
    /// It has not been clear for some frames that what is followed is the target.
    Uncertain,
    /// It was lost.
    Lost,
    /// It is certain again, after it was uncertain or lost.
    Found,
    /// It is not followed any more.
    Gone,
}

impl TrackEventKind {
    /// All of them.
    pub const ALL: [Self; 8] = [
        Self::Appeared,
        Self::Entered,
        Self::Left,
        Self::Crossed,
        Self::Uncertain,
        Self::Lost,
        Self::Found,
        Self::Gone,
    ];

    /// Its name in messages.
    pub fn name(self) -> &'static str {
        match self {
            Self::Appeared => "appeared",
            Self::Entered => "entered",
            Self::Left => "left",
            Self::Crossed => "crossed",
            Self::Uncertain => "uncertain",
            Self::Lost => "lost",
            Self::Found => "found",
            Self::Gone => "gone",
        }
    }
}

/// Something that happened to a track.
#[derive(Debug, Clone, PartialEq)]
pub struct TrackEvent {
    /// Its kind.
    pub kind: TrackEventKind,
    /// The track as it is in that frame, or as it was last.
    pub track: Track,
    /// The zone that it came into or went out of.
    pub zone: Option<Arc<str>>,
    /// The zones that it is in from now on.
    pub zones: Vec<Arc<str>>,
    /// The line that it crossed, and in which direction.
    pub line: Option<(Arc<str>, Direction)>,
}

/// Kinds of events of a zone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ZoneEventKind {
    /// More are in it than its limit.
    Crowded,
    /// No more than that are in it again.
    Cleared,
}

impl ZoneEventKind {
    /// Both of them.
    pub const ALL: [Self; 2] = [Self::Crowded, Self::Cleared];

    /// Its name in messages.
    pub fn name(self) -> &'static str {
        match self {
            Self::Crowded => "crowded",
            Self::Cleared => "cleared",
        }
    }
}

/// The number in a zone has passed its limit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ZoneEvent {
    /// Its kind.
    pub kind: ZoneEventKind,
    /// The zone's name.
    pub zone: Arc<str>,
    /// How many are in it now.
    pub count: u64,
    /// Its limit.
    pub limit: u32,
}

/// Detects when zones hold more than they may: there is an event when that has been so for five frames in a
/// row, and when it has not been so for as long.
#[derive(Debug, Clone, Default)]
pub struct ZoneLimits {
    limits: Vec<Crowd>,
    of_objects: bool,
}

#[derive(Debug, Clone)]
struct Crowd {
    limit: ZoneLimit,
    is_crowded: bool,
    /// For how many frames in a row it has been otherwise.
    otherwise: u32,
}

impl ZoneLimits {
    /// Watches these limits: of the objects in zones, or of the tracks.
    pub fn new(limits: Vec<ZoneLimit>, of_objects: bool) -> Self {
        let crowd = |limit| Crowd { limit, is_crowded: false, otherwise: 0 };
        Self { limits: limits.into_iter().map(crowd).collect(), of_objects }
    }

    /// Appends the events of a frame with these zones, in the order of the limits.
    pub fn step(&mut self, zones: &[ZoneCount], happened: &mut Vec<ZoneEvent>) {
        for Crowd { limit, is_crowded, otherwise } in &mut self.limits {
            let Some(zone) = zones.iter().find(|zone| zone.zone == limit.zone) else {
                // A zone that is drawn again begins anew.
                (*is_crowded, *otherwise) = (false, 0);
                continue;
            };
            let count = if self.of_objects { zone.objects.unwrap_or_default() } else { zone.inside };
            *otherwise = if (count > u64::from(limit.most)) == *is_crowded { 0 } else { *otherwise + 1 };
            if *otherwise < STEADY {
                continue;
            }
            (*is_crowded, *otherwise) = (!*is_crowded, 0);
            let kind = if *is_crowded { ZoneEventKind::Crowded } else { ZoneEventKind::Cleared };
            happened.push(ZoneEvent { kind, zone: limit.zone.clone(), count, limit: limit.most });
        }
    }
}

/// Detects events from frame to frame.
///
/// A track is in a zone when the middle of its box's lower edge is: the place where it stands, as a camera
/// that looks down sees it. It enters and leaves when that place is beyond the border by a twentieth of the
/// box's shorter side, a pixel at least, so that a box on the border does not come and go. The picture's edge
/// is no border: a zone that it cuts off continues beyond it ([`Zone::depth`]). While a track is lost, it
/// stays in the zones that it was in.
///
/// A track crosses a line when the centre of its box has been on one side and then is on the other, each time
/// as far from the line as above, and it last changed sides between the line's ends
/// ([`CountingLine::is_between_ends`]). So a box that stays on the line is counted once, when it has left it
/// on the other side, and one that goes around an end is not counted. A track that begins on the line has
/// been on neither side. While a track is lost nothing is counted: found again on the other side, it has
/// taken the straight path.
#[derive(Debug, Default)]
pub struct TrackWatcher {
    zones: Zones,
    /// How often each zone was entered and left.
    passed: Vec<[u64; 2]>,
    lines: CountingLines,
    /// How often each line was crossed, in and out.
    crossed: Vec<[u64; 2]>,
    tracks: BTreeMap<u32, Followed>,
    frames: u64,
    size: Option<Size>,
}

/// A track, as the events so far describe it.
#[derive(Debug)]
struct Followed {
    track: Track,
    sureness: Sureness,
    /// For how many frames in a row it has been more or less sure than that.
    otherwise: u32,
    /// For each zone, whether it is in it.
    inside: Vec<bool>,
    /// For each line, where it is beside it.
    beside: Vec<Beside>,
    /// The frame in which it was seen last, counted by [`TrackWatcher::frames`].
    seen: u64,
}

/// Where a track is beside a line.
#[derive(Debug, Clone, Copy, Default)]
struct Beside {
    /// The last side that it was on, far enough from the line.
    side: Option<Side>,
    /// The last place that is not exactly on the line.
    last: Option<[f64; 2]>,
    /// It last changed sides between the line's ends.
    is_through: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Side {
    Left,
    Right,
}

impl Beside {
    /// The track is at a place now, in pictures of that size; the direction in which it has crossed the line,
    /// if it has. It is on a side when it is `beyond` pixels from the line.
    fn step(
        &mut self,
        place: [f64; 2],
        line: &CountingLine,
        picture: Size,
        beyond: f64,
    ) -> Option<Direction> {
        let distance = line.side(place);
        if distance == 0.0 {
            return None;
        }
        if let Some(last) = self.last.replace(place)
            && (line.side(last) < 0.0) != (distance < 0.0)
        {
            self.is_through = line.is_between_ends(last, place, picture);
        }
        if distance.abs() < beyond {
            return None;
        }
        let now = if distance < 0.0 { Side::Left } else { Side::Right };
        let before = self.side.replace(now);
        (before.is_some_and(|before| before != now) && self.is_through).then_some(match now {
            Side::Right => Direction::In,
            Side::Left => Direction::Out,
        })
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Sureness {
    Sure,
    Uncertain,
    Lost,
}

impl Sureness {
    fn of(state: TrackState) -> Self {
        match state {
            TrackState::Tracked | TrackState::Reacquired => Self::Sure,
            TrackState::Uncertain => Self::Uncertain,
            TrackState::Lost => Self::Lost,
        }
    }
}

impl TrackWatcher {
    /// Watches these zones, given for the pictures that come first.
    pub fn new(zones: Vec<Zone>) -> Self {
        Self { passed: vec![[0; 2]; zones.len()], zones: Zones::new(zones), ..Self::default() }
    }

    /// Watches these lines too, given for the pictures that come first.
    #[must_use]
    pub fn with_lines(mut self, lines: Vec<CountingLine>) -> Self {
        self.crossed = vec![[0; 2]; lines.len()];
        self.lines = CountingLines::new(lines);
        self
    }

    /// The zones, in pixels of the pictures that come now.
    pub fn zones(&self) -> &[Zone] {
        self.zones.now()
    }

    /// The lines, in pixels of the pictures that come now.
    pub fn lines(&self) -> &[CountingLine] {
        self.lines.now()
    }

    /// True if there are zones or lines to watch.
    pub fn counts_something(&self) -> bool {
        !self.zones.now().is_empty() || !self.lines.now().is_empty()
    }

    /// Changes the zones and lines by an order. Appends that tracks left a zone that is removed.
    pub fn obey(&mut self, order: &Order, happened: &mut Vec<TrackEvent>) {
        match order {
            Order::Zone { zone } => {
                self.zones.set(zone);
                // A zone that is new comes last, and no track is in it yet.
                let count = self.zones.now().len();
                self.tracks.values_mut().for_each(|followed| followed.inside.resize(count, false));
                self.passed.resize(count, [0; 2]);
            }
            Order::RemoveZone { name } => {
                let Some(place) = self.zones.place(name) else { return };
                let zones = self.zones.now();
                for followed in self.tracks.values_mut() {
                    if std::mem::take(&mut followed.inside[place]) {
                        followed.tell(TrackEventKind::Left, Some(&zones[place]), zones, happened);
                    }
                    followed.inside.remove(place);
                }
                self.zones.remove(name);
                self.passed.remove(place);
            }
            Order::Line { line } => {
                let place = self.lines.set(line);
                let count = self.lines.now().len();
                self.crossed.resize(count, [0; 2]);
                self.crossed[place] = [0; 2];
                for followed in self.tracks.values_mut() {
                    followed.beside.resize(count, Beside::default());
                    followed.beside[place] = Beside::default();
                }
            }
            Order::RemoveLine { name } => {
                let Some(place) = self.lines.remove(name) else { return };
                self.crossed.remove(place);
                self.tracks.values_mut().for_each(|followed| {
                    followed.beside.remove(place);
                });
            }
            _ => {}
        }
    }

    /// Appends the events of a frame of that size, by tracks in the order of their numbers, tracks that are
    /// gone first.
    pub fn step(&mut self, record: &FrameRecord, size: Size, happened: &mut Vec<TrackEvent>) {
        let from = happened.len();
        self.fit(size);
        self.frames += 1;
        for track in &record.tracks {
            if let Some(followed) = self.tracks.get_mut(&track.id) {
                followed.seen = self.frames;
            }
        }
        let frames = self.frames;
        self.dismiss(|followed| followed.seen != frames, happened);
        for track in &record.tracks {
            let (zones, lines) = (self.zones.now(), self.lines.now());
            self.tracks
                .entry(track.id)
                .or_insert_with(|| Followed::new(track, zones, lines.len(), frames, happened))
                .step(track, zones, lines, size, happened);
        }
        self.count(&happened[from..]);
    }

    /// Pictures have this size from now on.
    pub(crate) fn fit(&mut self, size: Size) {
        self.zones.fit(size);
        self.lines.fit(size);
        let Some(before) = self.size.replace(size).filter(|before| *before != size) else { return };
        let by = [size.width as f64 / before.width as f64, size.height as f64 / before.height as f64];
        let places = self.tracks.values_mut().flat_map(|followed| &mut followed.beside);
        for [x, y] in places.filter_map(|beside| beside.last.as_mut()) {
            (*x, *y) = (*x * by[0], *y * by[1]);
        }
    }

    /// Adds events to the counts of zones and lines.
    fn count(&mut self, happened: &[TrackEvent]) {
        for TrackEvent { kind, zone, line, .. } in happened {
            let zone = zone.as_ref().and_then(|zone| self.zones.place(zone));
            let line = line.as_ref().and_then(|(line, way)| Some((self.lines.place(line)?, *way)));
            match (kind, zone, line) {
                (TrackEventKind::Entered, Some(place), _) => self.passed[place][0] += 1,
                (TrackEventKind::Left, Some(place), _) => self.passed[place][1] += 1,
                (TrackEventKind::Crossed, _, Some((place, Direction::In))) => self.crossed[place][0] += 1,
                (TrackEventKind::Crossed, _, Some((place, Direction::Out))) => self.crossed[place][1] += 1,
                _ => {}
            }
        }
    }

    /// Follows the tracks of a frame of that size, and writes the counts into its record.
    pub(crate) fn write_counts(
        &mut self,
        record: &mut FrameRecord,
        size: Size,
        happened: &mut Vec<TrackEvent>,
    ) {
        happened.clear();
        self.step(record, size, happened);
        let FrameRecord { objects, zones, lines, crossings, .. } = record;
        for ((place, zone), [entered, left]) in self.zones.now().iter().enumerate().zip(&self.passed) {
            let inside = self.tracks.values().filter(|followed| followed.inside[place]).count() as u64;
            let is_in = |object: &&crate::results::Object| {
                let [x, y] = [object.x as f64 + object.w as f64 / 2.0, (object.y + object.h) as f64];
                zone.contains([x, y], size)
            };
            let objects = objects.as_ref().map(|objects| objects.iter().filter(is_in).count() as u64);
            zones.push(ZoneCount {
                zone: zone.name().clone(),
                inside,
                entered: *entered,
                left: *left,
                objects,
            });
        }
        lines.extend(self.lines_crossed().map(|(line, [inwards, outwards])| LineCount {
            line: line.name().clone(),
            inwards,
            outwards,
            ends: line.ends(),
        }));
        crossings.extend(happened.iter().filter_map(|TrackEvent { track, line, .. }| {
            let (line, direction) = line.clone()?;
            Some(Crossing { line, id: track.id, direction })
        }));
    }

    /// Appends that all tracks are gone.
    pub fn end(&mut self, happened: &mut Vec<TrackEvent>) {
        let from = happened.len();
        self.dismiss(|_| true, happened);
        self.count(&happened[from..]);
    }

    /// The numbers of the tracks that are followed, ascending.
    pub fn ids(&self) -> impl Iterator<Item = u32> {
        self.tracks.keys().copied()
    }

    /// The number of followed tracks, and of the lost ones among them.
    pub fn counts(&self) -> (usize, usize) {
        let lost = self.tracks.values().filter(|followed| followed.sureness == Sureness::Lost).count();
        (self.tracks.len(), lost)
    }

    /// The number of tracks in each zone.
    pub fn occupied(&self) -> impl Iterator<Item = (&Arc<str>, usize)> {
        self.zones.now().iter().enumerate().map(|(index, zone)| {
            let inside = self.tracks.values().filter(|followed| followed.inside[index]).count();
            (zone.name(), inside)
        })
    }

    /// The lines, each with how often it was crossed in and out.
    pub fn lines_crossed(&self) -> impl Iterator<Item = (&CountingLine, [u64; 2])> {
        self.lines.now().iter().zip(self.crossed.iter().copied())
    }

    fn dismiss(&mut self, is_gone: impl Fn(&Followed) -> bool, happened: &mut Vec<TrackEvent>) {
        let zones = self.zones.now();
        self.tracks.retain(|_, followed| {
            if !is_gone(followed) {
                return true;
            }
            for (index, zone) in zones.iter().enumerate() {
                if std::mem::take(&mut followed.inside[index]) {
                    followed.tell(TrackEventKind::Left, Some(zone), zones, happened);
                }
            }
            followed.tell(TrackEventKind::Gone, None, zones, happened);
            false
        });
    }
}

impl Followed {
    fn new(track: &Track, zones: &[Zone], lines: usize, seen: u64, happened: &mut Vec<TrackEvent>) -> Self {
        let sureness = Sureness::of(track.state);
        let (inside, beside) = (vec![false; zones.len()], vec![Beside::default(); lines]);
        let new = Self { track: track.clone(), sureness, otherwise: 0, inside, beside, seen };
        new.tell(TrackEventKind::Appeared, None, zones, happened);
        new
    }

    fn step(
        &mut self,
        track: &Track,
        zones: &[Zone],
        lines: &[CountingLine],
        picture: Size,
        happened: &mut Vec<TrackEvent>,
    ) {
        self.track.clone_from(track);
        let now = Sureness::of(track.state);
        self.otherwise = if now == self.sureness { 0 } else { self.otherwise + 1 };
        let told = match (self.sureness, now) {
            (_, Sureness::Lost) if self.otherwise > 0 => Some(TrackEventKind::Lost),
            (Sureness::Lost, Sureness::Sure) => Some(TrackEventKind::Found),
            (Sureness::Uncertain, Sureness::Sure) if self.otherwise >= STEADY => Some(TrackEventKind::Found),
            (Sureness::Sure | Sureness::Lost, Sureness::Uncertain) if self.otherwise >= STEADY => {
                Some(TrackEventKind::Uncertain)
            }
            _ => None,
        };
        if let Some(kind) = told {
            (self.sureness, self.otherwise) = (now, 0);
            self.tell(kind, None, zones, happened);
        }
        if now == Sureness::Lost {
            return;
        }
        let Track { x, y, w, h, .. } = *track;
        for (index, zone) in zones.iter().enumerate() {
            let depth = zone.depth([x + w / 2.0, y + h], picture);
            let was_inside = self.inside[index];
            if (depth > 0.0) == was_inside {
                continue;
            }
            let beyond = (BEYOND * w.min(h)).max(1.0).min(MOST_BEYOND * zone.thickness());
            if depth.abs() >= beyond {
                self.inside[index] = !was_inside;
                let kind = if was_inside { TrackEventKind::Left } else { TrackEventKind::Entered };
                self.tell(kind, Some(zone), zones, happened);
            }
        }
        let (centre, beyond) = ([x + w / 2.0, y + h / 2.0], (BEYOND * w.min(h)).max(1.0));
        for (index, line) in lines.iter().enumerate() {
            if let Some(direction) = self.beside[index].step(centre, line, picture, beyond) {
                self.tell(TrackEventKind::Crossed, None, zones, happened);
                let told = happened.last_mut().expect("told above");
                told.line = Some((line.name().clone(), direction));
            }
        }
    }

    fn tell(
        &self,
        kind: TrackEventKind,
        zone: Option<&Zone>,
        zones: &[Zone],
        happened: &mut Vec<TrackEvent>,
    ) {
        let inside = zones.iter().zip(&self.inside).filter(|(_, is_inside)| **is_inside);
        happened.push(TrackEvent {
            kind,
            track: self.track.clone(),
            zone: zone.map(|zone| zone.name().clone()),
            zones: inside.map(|(zone, _)| zone.name().clone()).collect(),
            line: None,
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIZE: Size = Size::new(640, 480);

    /// Returns the events of tracks, each given by its number, state and the place where it stands, in frames
    /// one after the other: frame, kind, number, zone.
    fn told(zones: &[&str], frames: &[&[(u32, TrackState, f64, f64)]]) -> Vec<String> {
        let mut watcher = TrackWatcher::new(zones.iter().map(|zone| zone.parse().unwrap()).collect());
        let mut told = Vec::new();
        let mut happened = Vec::new();
        for (frame, tracks) in frames.iter().enumerate() {
            watcher.step(&record(tracks), SIZE, &mut happened);
            tell(&mut told, frame, &mut happened);
        }
        watcher.end(&mut happened);
        tell(&mut told, frames.len(), &mut happened);
        assert_eq!(watcher.counts(), (0, 0));
        assert!(watcher.occupied().all(|(_, inside)| inside == 0));
        told
    }

    fn tell(told: &mut Vec<String>, frame: usize, happened: &mut Vec<TrackEvent>) {
        told.extend(happened.drain(..).map(|TrackEvent { kind, track, zone, .. }| {
            let zone = zone.map_or_else(String::new, |zone| format!(" {zone}"));
            format!("{frame} {} {}{zone}", kind.name(), track.id)
        }));
    }

    /// Boxes of 40x40 that stand at these places.
    fn record(tracks: &[(u32, TrackState, f64, f64)]) -> FrameRecord {
        let track = |&(id, state, x, y): &(u32, TrackState, f64, f64)| Track {
            id,
            state,
            x: x - 20.0,
            y: y - 40.0,
            w: 40.0,
            h: 40.0,
            ..Track::default()
        };
        FrameRecord { tracks: tracks.iter().map(track).collect(), ..FrameRecord::default() }
    }

    use TrackState::{Lost, Reacquired, Tracked, Uncertain};

    #[test]
    fn a_track_appears_is_lost_is_found_and_is_gone() {
        let at = |state| [(1, state, 100.0, 100.0)];
        let frames = [Tracked, Lost, Lost, Reacquired, Tracked].map(at);
        let frames: Vec<&[_]> = frames.iter().map(|frame| &frame[..]).chain([&[][..]]).collect();
        assert_eq!(told(&[], &frames), ["0 appeared 1", "1 lost 1", "3 found 1", "5 gone 1"]);
        // Nothing more is reported at the end.
        let one = [at(Tracked)];
        assert_eq!(told(&[], &[&one[0][..]]), ["0 appeared 1", "1 gone 1"]);
    }

    #[test]
    fn what_changes_from_frame_to_frame_is_not_told_and_what_lasts_is() {
        let states = |states: &[TrackState]| {
            let frames: Vec<_> = states.iter().map(|&state| [(1, state, 9.0, 9.0)]).collect();
            told(&[], &frames.iter().map(|frame| &frame[..]).collect::<Vec<_>>())
        };
        let flutter: Vec<_> = (0..50).map(|frame| if frame % 5 < 3 { Tracked } else { Uncertain }).collect();
        assert_eq!(states(&flutter), ["0 appeared 1", "50 gone 1"]);
        let lasts = [vec![Tracked; 3], vec![Uncertain; 8], vec![Tracked; 9]].concat();
        assert_eq!(states(&lasts), ["0 appeared 1", "7 uncertain 1", "15 found 1", "20 gone 1"]);
        // A loss is reported at once, also of an uncertain track; a track that comes back uncertain is not
        // found yet.
        let lost =
            [vec![Tracked], vec![Uncertain; 5], vec![Lost; 2], vec![Uncertain; 5], vec![Lost]].concat();
        assert_eq!(
            states(&lost),
            ["0 appeared 1", "5 uncertain 1", "6 lost 1", "12 uncertain 1", "13 lost 1", "14 gone 1"]
        );
    }

    #[test]
    fn a_box_on_the_border_of_a_zone_does_not_come_and_go() {
        let zone = "door=100,0,200,0,200,480,100,480";
        let path = |xs: &[f64]| {
            let frames: Vec<_> = xs.iter().map(|&x| [(1, Tracked, x, 100.0)]).collect();
            told(&[zone], &frames.iter().map(|frame| &frame[..]).collect::<Vec<_>>())
        };
        // Boxes of 40x40: two pixels beyond.
        let shakes: Vec<_> = (0..60).map(|frame| if frame % 2 == 0 { 98.5 } else { 101.5 }).collect();
        assert_eq!(path(&shakes), ["0 appeared 1", "60 gone 1"]);
        assert_eq!(
            path(&[90.0, 101.0, 102.0, 99.0, 101.0, 99.0, 98.0, 97.0]),
            ["0 appeared 1", "2 entered 1 door", "6 left 1 door", "8 gone 1"]
        );
        // A track that begins inside has entered, and a track that is gone has left.
        assert_eq!(path(&[150.0]), ["0 appeared 1", "0 entered 1 door", "1 left 1 door", "1 gone 1"]);
    }

    #[test]
    fn a_narrow_zone_can_be_entered() {
        // Boxes of 40x40, and a strip of 2 pixels.
        let frames: Vec<_> = (0..9).map(|y| [(1, Tracked, 300.0, 96.0 + f64::from(y))]).collect();
        let frames: Vec<_> = frames.iter().map(|frame| &frame[..]).collect();
        let told = told(&["line=0,99,640,99,640,101,0,101"], &frames);
        assert_eq!(told, ["0 appeared 1", "4 entered 1 line", "6 left 1 line", "9 gone 1"]);
    }

    #[test]
    fn it_is_where_a_box_stands_that_counts() {
        // The middle of the box lies above the zone.
        let zone = "floor=0,110,640,110,640,480,0,480";
        let frames = [[(1, Tracked, 100.0, 105.0)], [(1, Tracked, 100.0, 115.0)]];
        let told = told(&[zone], &[&frames[0], &frames[1]]);
        assert_eq!(told[1], "1 entered 1 floor");
    }

    #[test]
    fn a_box_that_the_edge_of_the_picture_cuts_is_in_the_zone_that_ends_there() {
        let zone = "floor=0,400,640,400,640,480,0,480";
        // It comes down, out of the picture, and leaves it at the side.
        let places =
            [(100.0, 390.0), (100.0, 480.0), (100.0, 500.0), (-5.0, 500.0), (-5.0, 440.0), (9.0, 390.0)];
        let frames = places.map(|(x, y)| [(1, Tracked, x, y)]);
        let frames: Vec<_> = frames.iter().map(|frame| &frame[..]).collect();
        let told = told(&[zone], &frames);
        assert_eq!(told, ["0 appeared 1", "1 entered 1 floor", "5 left 1 floor", "6 gone 1"]);
    }

    #[test]
    fn a_lost_track_stays_where_it_was() {
        let zone = "a=0,0,200,0,200,480,0,480";
        let frames =
            [[(1, Tracked, 150.0, 100.0)], [(1, Lost, 300.0, 100.0)], [(1, Reacquired, 300.0, 100.0)]];
        assert_eq!(
            told(&[zone], &[&frames[0], &frames[1], &frames[2]]),
            ["0 appeared 1", "0 entered 1 a", "1 lost 1", "2 found 1", "2 left 1 a", "3 gone 1"]
        );
    }

    #[test]
    fn tracks_and_zones_are_told_apart() {
        let zones = ["a=0,0,200,0,200,480,0,480", "b=100,0,300,0,300,480,100,480"];
        let frames: [&[_]; 2] = [
            &[(2, Tracked, 150.0, 100.0), (7, Tracked, 250.0, 100.0)],
            &[(7, Tracked, 150.0, 100.0), (8, Tracked, 500.0, 100.0)],
        ];
        let told = told(&zones, &frames);
        assert_eq!(
            told[..10],
            [
                "0 appeared 2",
                "0 entered 2 a",
                "0 entered 2 b",
                "0 appeared 7",
                "0 entered 7 b",
                "1 left 2 a",
                "1 left 2 b",
                "1 gone 2",
                "1 entered 7 a",
                "1 appeared 8",
            ]
        );
    }

    #[test]
    fn zones_that_are_added_moved_and_removed_are_entered_and_left() {
        let mut watcher = TrackWatcher::new(Vec::new());
        let (mut happened, mut told) = (Vec::new(), Vec::new());
        let zone = |text: &str| Order::Zone { zone: text.parse().unwrap() };
        let orders = [
            None,
            Some(zone("a=0,0,300,0,300,480,0,480")),
            Some(zone("b=0,0,200,0,200,480,0,480")),
            Some(zone("a=400,0,500,0,500,480,400,480")),
            Some(Order::RemoveZone { name: "a".into() }),
            Some(Order::RemoveZone { name: "b".into() }),
            Some(Order::RemoveZone { name: "b".into() }),
        ];
        for (frame, order) in orders.iter().enumerate() {
            if let Some(order) = order {
                watcher.obey(order, &mut happened);
            }
            watcher.step(&record(&[(7, Tracked, 150.0, 100.0)]), SIZE, &mut happened);
            tell(&mut told, frame, &mut happened);
        }
        assert_eq!(told, ["0 appeared 7", "1 entered 7 a", "2 entered 7 b", "3 left 7 a", "5 left 7 b"]);
        assert!(watcher.zones().is_empty());
    }

    #[test]
    fn zones_are_scaled_with_the_pictures() {
        let mut watcher = TrackWatcher::new(vec!["a=0,0,100,0,100,480,0,480".parse().unwrap()]);
        let mut happened = Vec::new();
        watcher.step(&record(&[(1, Tracked, 150.0, 100.0)]), SIZE, &mut happened);
        assert_eq!(happened.len(), 1);
        watcher.step(&record(&[(1, Tracked, 150.0, 100.0)]), Size::new(1280, 480), &mut happened);
        assert_eq!((happened.len(), happened[1].kind), (2, TrackEventKind::Entered));
        assert_eq!(happened[1].zones.len(), 1);
        watcher.step(&record(&[(1, Tracked, 150.0, 100.0)]), SIZE, &mut happened);
        assert_eq!(happened[2].kind, TrackEventKind::Left);
    }

    /// Returns the crossings of boxes of 40x40 with centres at these places, a track a list: frame, number,
    /// line, direction; and the totals.
    fn crossed(lines: &[&str], paths: &[&[(f64, f64)]]) -> (Vec<String>, Vec<[u64; 2]>) {
        let mut watcher =
            TrackWatcher::default().with_lines(lines.iter().map(|line| line.parse().unwrap()).collect());
        let (mut told, mut happened) = (Vec::new(), Vec::new());
        for frame in 0..paths.iter().map(|path| path.len()).max().unwrap() {
            let tracks: Vec<_> = (1..)
                .zip(paths)
                .filter_map(|(id, path)| path.get(frame).map(|(x, y)| (id, Tracked, *x, y + 20.0)))
                .collect();
            let mut record = record(&tracks);
            watcher.write_counts(&mut record, SIZE, &mut happened);
            told.extend(
                record.crossings.iter().map(|Crossing { line, id, direction }| {
                    format!("{frame} {id} {line} {}", direction.name())
                }),
            );
            assert_eq!(record.lines.len(), lines.len());
        }
        (told, watcher.lines_crossed().map(|(_, counts)| counts).collect())
    }

    const GATE: &str = "gate=100,200,300,200";

    #[test]
    fn a_track_that_crosses_a_line_is_counted_in_its_direction() {
        let down: Vec<_> = (0..9).map(|n| (200.0, 180.0 + 5.0 * f64::from(n))).collect();
        let up: Vec<_> = down.iter().rev().copied().collect();
        let (told, totals) = crossed(&[GATE, "back=300,200,100,200"], &[&down, &up]);
        // From two pixels beyond on.
        assert_eq!(told, ["5 1 gate in", "5 1 back out", "5 2 gate out", "5 2 back in"]);
        assert_eq!(totals, [[1, 1], [1, 1]]);
    }

    #[test]
    fn a_track_that_stays_on_a_line_is_counted_once_and_one_that_turns_back_not_at_all() {
        let shakes = |end: f64| {
            let on = (0..60).map(|n| (200.0, if n % 2 == 0 { 198.5 } else { 201.5 }));
            [(200.0, 190.0)].into_iter().chain(on).chain([(200.0, end)]).collect::<Vec<_>>()
        };
        assert_eq!(crossed(&[GATE], &[&shakes(210.0)]).1, [[1, 0]]);
        assert_eq!(crossed(&[GATE], &[&shakes(190.0)]).1, [[0, 0]]);
        // One that comes to lie exactly on it, and one that begins on it.
        assert_eq!(crossed(&[GATE], &[&[(200.0, 190.0), (200.0, 200.0), (200.0, 210.0)]]).1, [[1, 0]]);
        assert_eq!(crossed(&[GATE], &[&[(200.0, 199.0), (200.0, 210.0), (200.0, 220.0)]]).1, [[0, 0]]);
    }

    #[test]
    fn a_track_that_goes_around_the_end_of_a_line_does_not_cross_it() {
        let around = [(90.0, 190.0), (90.0, 210.0), (150.0, 210.0), (150.0, 190.0)];
        assert_eq!(crossed(&[GATE], &[&around]).0, ["3 1 gate out"]);
    }

    #[test]
    fn a_track_that_was_lost_on_its_way_is_counted_where_it_is_found() {
        let mut watcher = TrackWatcher::default().with_lines(vec![GATE.parse().unwrap()]);
        let mut happened = Vec::new();
        for (state, y) in [(Tracked, 190.0), (Lost, 230.0), (Lost, 190.0), (Reacquired, 230.0)] {
            assert!(happened.iter().all(|event: &TrackEvent| event.kind != TrackEventKind::Crossed));
            watcher.step(&record(&[(1, state, 200.0, y + 20.0)]), SIZE, &mut happened);
        }
        let last = happened.last().unwrap();
        assert_eq!((last.kind, &last.line), (TrackEventKind::Crossed, &Some(("gate".into(), Direction::In))));
    }

    #[test]
    fn lines_are_added_moved_and_removed_and_scaled_with_the_pictures() {
        let mut watcher = TrackWatcher::default();
        let mut happened = Vec::new();
        let mut step = |watcher: &mut TrackWatcher, y: f64, size: Size| {
            let mut record = record(&[(1, Tracked, 200.0, y + 20.0)]);
            watcher.write_counts(&mut record, size, &mut happened);
            record.lines.iter().map(|line| [line.inwards, line.outwards]).collect::<Vec<_>>()
        };
        assert!(step(&mut watcher, 190.0, SIZE).is_empty());
        watcher.obey(&Order::Line { line: GATE.parse().unwrap() }, &mut Vec::new());
        assert_eq!(step(&mut watcher, 190.0, SIZE), [[0, 0]]);
        assert_eq!(step(&mut watcher, 210.0, SIZE), [[1, 0]]);
        // Twice as high: the line is at 400 now.
        assert_eq!(step(&mut watcher, 420.0, Size::new(640, 960)), [[1, 0]]);
        assert_eq!(step(&mut watcher, 390.0, Size::new(640, 960)), [[1, 1]]);
        watcher.obey(&Order::Line { line: "gate=100,700,300,700".parse().unwrap() }, &mut Vec::new());
        assert_eq!(step(&mut watcher, 710.0, Size::new(640, 960)), [[0, 0]]);
        watcher.obey(&Order::RemoveLine { name: "gate".into() }, &mut Vec::new());
        assert!(step(&mut watcher, 390.0, Size::new(640, 960)).is_empty());
    }

    #[test]
    fn zones_count_what_came_and_went_and_the_objects_that_stand_in_them() {
        let mut watcher = TrackWatcher::new(vec!["a=0,0,200,0,200,480,0,480".parse().unwrap()]);
        let mut happened = Vec::new();
        let object = |x, y| crate::results::Object { x, y, w: 11, h: 7, ..Default::default() };
        let mut step = |x: f64| {
            let objects = Some(vec![object(3, 9), object(185, 300), object(199, 300)]);
            let mut record = FrameRecord { objects, ..record(&[(1, Tracked, x, 100.0)]) };
            watcher.write_counts(&mut record, SIZE, &mut happened);
            let [ZoneCount { inside, entered, left, objects, .. }] = record.zones[..] else { panic!() };
            (inside, entered, left, objects)
        };
        assert_eq!(step(100.0), (1, 1, 0, Some(2)));
        assert_eq!(step(300.0), (0, 1, 1, Some(2)));
        assert_eq!(step(100.0), (1, 2, 1, Some(2)));
    }

    #[test]
    fn a_zone_is_crowded_and_cleared_when_that_lasts_five_frames() {
        let limits = || vec!["a=2".parse().unwrap(), "gone=0".parse().unwrap()];
        let told = |counts: &[u64], of_objects: bool| {
            let mut limits = ZoneLimits::new(limits(), of_objects);
            let mut happened = Vec::new();
            let mut told = Vec::new();
            for (frame, count) in counts.iter().enumerate() {
                let zone = ZoneCount {
                    zone: "a".into(),
                    inside: if of_objects { 0 } else { *count },
                    entered: 0,
                    left: 0,
                    objects: of_objects.then_some(*count),
                };
                limits.step(&[zone], &mut happened);
                told.extend(happened.drain(..).map(|event| (frame, event.kind.name(), event.count)));
            }
            told
        };
        let counts = [[2; 5], [3, 4, 3, 2, 3], [3, 3, 3, 5, 9], [1, 3, 2, 2, 2], [0, 0, 0, 0, 0]].concat();
        let expected = [(13, "crowded", 5), (21, "cleared", 0)];
        assert_eq!(told(&counts, true), expected);
        assert_eq!(told(&counts, false), expected);
    }

    #[test]
    fn a_zone_that_was_removed_and_drawn_again_is_crowded_anew() {
        let mut limits = ZoneLimits::new(vec!["a=2".parse().unwrap()], false);
        let zone = |inside| ZoneCount { zone: "a".into(), inside, entered: 0, left: 0, objects: None };
        let mut told = |zones: &[ZoneCount]| {
            let mut happened = Vec::new();
            (0..5).for_each(|_| limits.step(zones, &mut happened));
            happened.into_iter().map(|event| event.kind.name()).collect::<Vec<_>>()
        };
        assert_eq!(told(&[zone(3)]), ["crowded"]);
        assert!(told(&[]).is_empty());
        assert_eq!(told(&[zone(3)]), ["crowded"]);
    }
}
