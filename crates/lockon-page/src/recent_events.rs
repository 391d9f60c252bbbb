//! The last events of a run's tracks, its zones and its lines, for the page. They need no `--events`.

use std::collections::VecDeque;
use std::sync::Arc;

use serde::Serialize;

use lockon_core::config::{CountingLine, Direction, Zone};
use lockon_core::frame::Size;
use lockon_core::orders::Order;
use lockon_core::results::FrameRecord;
use lockon_core::track_events::{TrackEvent, TrackWatcher};

/// Maximum kept events.
const MOST: usize = 30;

/// The events so far, and the zones and lines now.
#[derive(Default)]
pub(super) struct RecentEvents {
    watcher: TrackWatcher,
    last: VecDeque<ShownEvent>,
    count: u64,
    /// Events of the current frame.
    now: Vec<TrackEvent>,
}

/// An event: `Event` in `openapi.json`.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct ShownEvent {
    /// Counts the events of a run from 1.
    seq: u64,
    frame: u64,
    time_s: Option<f64>,
    event: &'static str,
    track: u32,
    /// The track's name in the results.
    name: Option<Arc<str>>,
    template: Option<Arc<str>>,
    zone: Option<Arc<str>>,
    line: Option<Arc<str>>,
    direction: Option<Direction>,
    /// x, y, width and height of the track's box in pixels.
    #[serde(rename = "box")]
    rect: [f64; 4],
}

/// A zone: `Zone` in `openapi.json`.
#[derive(Debug, PartialEq, Serialize)]
pub(super) struct ShownZone {
    name: Arc<str>,
    corners: Vec<[f64; 2]>,
    /// How many tracks are in it.
    inside: usize,
    /// The zone as `--zone` takes it.
    text: String,
}

/// A line: `Line` in `openapi.json`.
#[derive(Debug, PartialEq, Serialize)]
pub(super) struct ShownLine {
    name: Arc<str>,
    ends: [[f64; 2]; 2],
    /// How many tracks have crossed it.
    #[serde(rename = "in")]
    inwards: u64,
    #[serde(rename = "out")]
    outwards: u64,
    /// The line as `--line` takes it.
    text: String,
}

impl RecentEvents {
    pub(super) fn new(zones: Vec<Zone>, lines: Vec<CountingLine>) -> Self {
        Self { watcher: TrackWatcher::new(zones).with_lines(lines), ..Self::default() }
    }

    /// Adds the events of a frame; true if there are any.
    pub(super) fn step(&mut self, record: &FrameRecord, size: Size) -> bool {
        self.watcher.step(record, size, &mut self.now);
        self.keep(record.frame, record.pts_ns)
    }

    /// Adds, moves or removes a zone or a line.
    pub(super) fn obey(&mut self, frame: u64, order: &Order) {
        self.watcher.obey(order, &mut self.now);
        self.keep(frame, None);
    }

    fn keep(&mut self, frame: u64, pts_ns: Option<u64>) -> bool {
        let has_any = !self.now.is_empty();
        for TrackEvent { kind, track, zone, line, .. } in self.now.drain(..) {
            let (line, direction) = line.unzip();
            self.count += 1;
            if self.last.len() >= MOST {
                self.last.pop_front();
            }
            self.last.push_back(ShownEvent {
                seq: self.count,
                frame,
                time_s: pts_ns.map(|ns| ns as f64 / 1e9),
                event: kind.name(),
                track: track.id,
                name: track.name.clone(),
                template: track.template.clone(),
                zone,
                line,
                direction,
                rect: [track.x, track.y, track.w, track.h],
            });
        }
        has_any
    }

    /// The last events, oldest first.
    pub(super) fn last(&self) -> Vec<ShownEvent> {
        self.last.iter().cloned().collect()
    }

    pub(super) fn zones(&self) -> Vec<ShownZone> {
        let inside = self.watcher.occupied().map(|(_, inside)| inside);
        let shown = |(zone, inside): (&Zone, usize)| ShownZone {
            name: zone.name().clone(),
            corners: zone.corners().to_vec(),
            inside,
            text: zone.to_string(),
        };
        self.watcher.zones().iter().zip(inside).map(shown).collect()
    }

    pub(super) fn lines(&self) -> Vec<ShownLine> {
        let shown = |(line, [inwards, outwards]): (&CountingLine, [u64; 2])| ShownLine {
            name: line.name().clone(),
            ends: line.ends(),
            inwards,
            outwards,
            text: line.to_string(),
        };
        self.watcher.lines_crossed().map(shown).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lockon_core::results::Track;
    use lockon_core::track_events::TrackEventKind;

    fn record(frame: u64, ids: impl Iterator<Item = u32>) -> FrameRecord {
        let track = |id| Track { id, x: 10.0, y: 10.0, w: 20.0, h: 20.0, ..Track::default() };
        let pts_ns = Some(frame * 40_000_000);
        FrameRecord { frame, pts_ns, tracks: ids.map(track).collect(), ..FrameRecord::default() }
    }

    #[test]
    fn the_api_describes_every_kind_of_event() {
        let api: serde_json::Value = serde_json::from_str(include_str!("page/openapi.json")).unwrap();
        let kinds = TrackEventKind::ALL.map(TrackEventKind::name);
        assert_eq!(
            api["components"]["schemas"]["Event"]["properties"]["event"]["enum"],
            serde_json::json!(kinds)
        );
    }

    #[test]
    fn the_last_events_are_kept_with_their_times_and_zones() {
        let size = Size::new(64, 48);
        let mut recent_events = RecentEvents::new(vec!["a=0,0,40,0,40,48,0,48".parse().unwrap()], Vec::new());
        assert!(recent_events.step(&record(25, 7..8), size));
        assert!(!recent_events.step(&record(26, 7..8), size));
        let told: Vec<_> = recent_events.last().iter().map(|event| (event.event, event.track)).collect();
        assert_eq!(told, [("appeared", 7), ("entered", 7)]);
        let entered = &recent_events.last()[1];
        assert_eq!((entered.time_s, entered.zone.as_deref(), entered.seq), (Some(1.0), Some("a"), 2));
        assert_eq!((recent_events.zones()[0].inside, recent_events.zones().len()), (1, 1));
        recent_events.obey(27, &Order::RemoveZone { name: "a".into() });
        assert_eq!(recent_events.last().last().map(|event| event.event), Some("left"));
        assert!(recent_events.zones().is_empty());
        recent_events.step(&record(27, 1..100), size);
        let last = recent_events.last();
        assert_eq!((last.len(), last.last().unwrap().seq), (MOST, 3 + 99 - 1));
    }

    #[test]
    fn lines_have_their_counts_and_crossings_are_events() {
        let size = Size::new(64, 48);
        // Boxes of 20x20 at 10,10.
        let mut recent_events = RecentEvents::new(Vec::new(), vec!["gate=0,5,64,5".parse().unwrap()]);
        recent_events.step(&record(0, 7..8), size);
        let mut moved = record(1, 7..8);
        moved.tracks[0].y = -20.0;
        recent_events.step(&moved, size);
        let last = recent_events.last().pop().unwrap();
        assert_eq!((last.event, last.line.as_deref()), ("crossed", Some("gate")));
        assert_eq!(last.direction, Some(Direction::Out));
        let line = &recent_events.lines()[0];
        assert_eq!((line.inwards, line.outwards, &*line.text), (0, 1, "gate=0,5,64,5"));
        recent_events.obey(2, &Order::RemoveLine { name: "gate".into() });
        assert!(recent_events.lines().is_empty());
    }
}
