//! Events of tracks, from the records of frames: plain data in, plain data out.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::config::{Zone, Zones};
use crate::frame::Size;
use crate::orders::Order;
use crate::results::{FrameRecord, Track, TrackState};

/// Frames in a row that a track has to be uncertain, or certain again, before there is an event: near the
/// limit it changes from frame to frame.
const STEADY: u32 = 5;

/// A track has crossed the border of a zone when it is so far beyond it: a share of the box's shorter side,
/// and a pixel at least...
const BEYOND: f64 = 0.05;
/// ...but no more than that of the zone's thickness, so that it can get into a narrow one.
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
    pub const ALL: [Self; 7] =
        [Self::Appeared, Self::Entered, Self::Left, Self::Uncertain, Self::Lost, Self::Found, Self::Gone];

    /// Its name in messages.
    pub fn name(self) -> &'static str {
        match self {
            Self::Appeared => "appeared",
            Self::Entered => "entered",
            Self::Left => "left",
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
}

/// Detects events from frame to frame.
///
/// A track is in a zone when the middle of its box's lower edge is: the place where it stands, as a camera
/// that looks down sees it. It enters and leaves when that place is beyond the border by a twentieth of the
/// box's shorter side, a pixel at least, so that a box on the border does not come and go. The picture's edge
/// is no border: a zone that it cuts off continues beyond it ([`Zone::depth`]). While a track is lost, it
/// stays in the zones that it was in.
#[derive(Debug, Default)]
pub struct TrackWatcher {
    zones: Zones,
    tracks: BTreeMap<u32, Followed>,
    frames: u64,
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
    /// The frame in which it was seen last, counted by [`TrackWatcher::frames`].
    seen: u64,
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
        Self { zones: Zones::new(zones), ..Self::default() }
    }

    /// The zones, in pixels of the pictures that come now.
    pub fn zones(&self) -> &[Zone] {
        self.zones.now()
    }

    /// Changes the zones by an order. Appends that tracks left a zone that is removed.
    pub fn obey(&mut self, order: &Order, happened: &mut Vec<TrackEvent>) {
        match order {
            Order::Zone { zone } => {
                self.zones.set(zone);
                // A zone that is new comes last, and no track is in it yet.
                let count = self.zones.now().len();
                self.tracks.values_mut().for_each(|followed| followed.inside.resize(count, false));
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
            }
            _ => {}
        }
    }

    /// Appends the events of a frame of that size, by tracks in the order of their numbers, tracks that are
    /// gone first.
    pub fn step(&mut self, record: &FrameRecord, size: Size, happened: &mut Vec<TrackEvent>) {
        self.zones.fit(size);
        self.frames += 1;
        for track in &record.tracks {
            if let Some(followed) = self.tracks.get_mut(&track.id) {
                followed.seen = self.frames;
            }
        }
        let frames = self.frames;
        self.dismiss(|followed| followed.seen != frames, happened);
        for track in &record.tracks {
            let zones = self.zones.now();
            self.tracks
                .entry(track.id)
                .or_insert_with(|| Followed::new(track, zones, frames, happened))
                .step(track, zones, size, happened);
        }
    }

    /// Appends that all tracks are gone.
    pub fn end(&mut self, happened: &mut Vec<TrackEvent>) {
        self.dismiss(|_| true, happened);
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
    fn new(track: &Track, zones: &[Zone], seen: u64, happened: &mut Vec<TrackEvent>) -> Self {
        let sureness = Sureness::of(track.state);
        let inside = vec![false; zones.len()];
        let new = Self { track: track.clone(), sureness, otherwise: 0, inside, seen };
        new.tell(TrackEventKind::Appeared, None, zones, happened);
        new
    }

    fn step(&mut self, track: &Track, zones: &[Zone], picture: Size, happened: &mut Vec<TrackEvent>) {
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
}
