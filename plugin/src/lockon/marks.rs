//! Results in GStreamer's forms: a message's structure, and metadata of a buffer.

use std::collections::BTreeSet;

use lockon_core::frame::{Rect, Size, iou};
use lockon_core::locks::Ranked;
use lockon_core::results::{
    Crossing, Detection, FrameRecord, LineCount, Match, Object, Track, TrackState, ZoneCount,
};
use lockon_gst::detections::OWN_FIELD;

use super::line::BufferTimes;

/// Minimum overlap of a track's box with a match on the same object: as in the tracker.
const SAME: f64 = 0.3;

/// Ids of regions that an element has: the lower half for its tracks, the upper for a frame's matches and,
/// behind these, its objects.
const IDS: u32 = 1 << 20;
const IDS_OF_TRACKS: u32 = IDS / 2;

/// Numbers of the elements of the process that have ids.
static ELEMENTS: Ranked<BTreeSet<u32>, 205> = Ranked::new(BTreeSet::new());

/// An element's ids for regions of interest. No other element of the process uses the same ids, since a frame
/// can pass several elements. The ids of the first element are the tracks' own.
#[derive(Debug)]
pub(super) struct Ids(u32);

impl Ids {
    pub(super) fn new() -> Self {
        let mut elements = ELEMENTS.lock();
        let index = (0..=u32::MAX).find(|index| !elements.contains(index)).unwrap_or_default();
        elements.insert(index);
        Self(index)
    }

    fn of_track(&self, id: u32) -> i32 {
        self.at(id % IDS_OF_TRACKS)
    }

    fn of_match(&self, index: usize) -> i32 {
        self.at(IDS_OF_TRACKS + index as u32 % IDS_OF_TRACKS)
    }

    /// Beyond 2048 elements ids are used again.
    fn at(&self, id: u32) -> i32 {
        (self.0 % (i32::MAX as u32 / IDS) * IDS + id) as i32
    }
}

impl Drop for Ids {
    fn drop(&mut self) {
        ELEMENTS.lock().remove(&self.0);
    }
}

/// The structure `lockon` of a frame's element message; the element's documentation has its fields.
pub(super) fn structure(record: &FrameRecord, times: &BufferTimes, ids: &Ids) -> gst::Structure {
    let matches = record.matches.iter().enumerate();
    let results = lockon_messages::Results {
        frame: record.frame,
        pts: times.pts,
        duration: times.duration,
        stream_time: times.stream_time,
        running_time: times.running_time,
        matches: matches.map(|(index, m)| of_match(index, m, record, ids)).collect(),
        tracks: record.tracks.iter().map(|track| of_track(track, ids)).collect(),
        foreground: record.threshold.map(|threshold| threshold.foreground),
        objects: record.objects.as_ref().map(|objects| {
            (record.matches.len()..)
                .zip(objects)
                .map(|(index, object)| of_object(index, object, ids))
                .collect()
        }),
        more_objects: record.more_objects,
        zones: record.zones.iter().map(of_zone).collect(),
        lines: record.lines.iter().map(of_line).collect(),
        crossings: record.crossings.iter().map(of_crossing).collect(),
    };
    (&results).into()
}

fn of_match(index: usize, m: &Match, record: &FrameRecord, ids: &Ids) -> lockon_messages::Match {
    lockon_messages::Match {
        template: m.template.to_string(),
        x: m.x as u32,
        y: m.y as u32,
        w: m.w as u32,
        h: m.h as u32,
        score: m.score,
        scale: m.scale,
        angle: m.angle,
        cx: m.cx,
        cy: m.cy,
        roi_id: ids.of_match(index),
        track: owner(m.rect(), &record.tracks),
    }
}

fn of_track(t: &Track, ids: &Ids) -> lockon_messages::Track {
    use lockon_messages::TrackState as Said;
    lockon_messages::Track {
        id: t.id,
        name: t.name.as_deref().map(str::to_owned),
        template: t.template.as_deref().map(str::to_owned),
        state: match t.state {
            TrackState::Tracked => Said::Tracked,
            TrackState::Uncertain => Said::Uncertain,
            TrackState::Lost => Said::Lost,
            TrackState::Reacquired => Said::Reacquired,
        },
        x: t.x,
        y: t.y,
        w: t.w,
        h: t.h,
        score: t.score,
        second_peak_ratio: t.second_peak_ratio,
        roi_id: ids.of_track(t.id),
        object: t.object,
    }
}

fn of_zone(zone: &ZoneCount) -> lockon_messages::ZoneCount {
    let ZoneCount { zone, inside, entered, left, objects } = zone;
    let (inside, entered, left, objects) = (*inside, *entered, *left, *objects);
    lockon_messages::ZoneCount { zone: zone.to_string(), inside, entered, left, objects }
}

fn of_line(line: &LineCount) -> lockon_messages::LineCount {
    let LineCount { line, inwards, outwards, .. } = line;
    lockon_messages::LineCount { line: line.to_string(), inwards: *inwards, outwards: *outwards }
}

fn of_crossing(crossing: &Crossing) -> lockon_messages::Crossing {
    let Crossing { line, id, direction } = crossing;
    lockon_messages::Crossing { line: line.to_string(), id: *id, direction: direction.name().to_owned() }
}

/// `index` is that of its region among those of matches and objects.
fn of_object(index: usize, object: &Object, ids: &Ids) -> lockon_messages::Object {
    lockon_messages::Object {
        x: object.x as u32,
        y: object.y as u32,
        w: object.w as u32,
        h: object.h as u32,
        area: object.area as u64,
        cx: object.cx,
        cy: object.cy,
        length: object.length,
        width: object.width,
        angle: object.angle,
        perimeter: object.perimeter,
        holes: object.holes as u64,
        min_luma: object.min_luma.into(),
        mean_luma: object.mean_luma,
        max_luma: object.max_luma.into(),
        touches_border: object.touches_border,
        roi_id: ids.of_match(index),
    }
}

/// The track that lies on the object of a match, if one does.
fn owner(found: Rect, tracks: &[Track]) -> Option<u32> {
    let there = tracks.iter().filter(|track| track.state != TrackState::Lost);
    let overlaps = there.map(|track| (track.id, iou(track.bounds(), found.bounds())));
    let most = overlaps.filter(|(_, iou)| *iou >= SAME).max_by(|(_, a), (_, b)| a.total_cmp(b));
    most.map(|(id, _)| id)
}

/// The type of an object's region.
const OBJECT: &str = "object";

/// The type of a track's region: unlike parameters it survives converters.
fn label(track: &Track) -> &str {
    track.template.as_deref().unwrap_or("track")
}

/// Adds a region of interest for every match, for every object, and for every track that is not lost and
/// touches the frame. Its type is the template's name, `object`, or `track`; its parameter has the same
/// fields as in the message. A match whose object is followed has the track's region as its parent.
///
/// A track that lies on a detection of this frame gets no region of its own: the detection's gets the track's
/// number, as `id` of a parameter `object_id`, as in DL Streamer, and the id that the track's region would
/// have, if it has none.
pub(super) fn add_regions(buffer: &mut gst::BufferRef, record: &FrameRecord, frame: Size, ids: &Ids) {
    let (mut detections, mut detected) = (Owned::of(record), Vec::new());
    for mut region in buffer.iter_meta_mut::<gst_video::VideoRegionOfInterestMeta>() {
        if region.params().any(|param| param.has_field(OWN_FIELD)) {
            continue;
        }
        let (x, y, w, h) = region.rect();
        let rect = Rect::new(x as usize, y as usize, w as usize, h as usize).cut_to(frame);
        let owner = rect.and_then(|rect| detections.take(region.roi_type(), rect));
        if let Some(id) = owner {
            region.add_param(gst::Structure::builder("object_id").field("id", id as i32).build());
            // Converters of GStreamer before 1.24 drop parameters, and no id.
            if region.id() == 0 {
                region.set_id(ids.of_track(id));
            }
            detected.push(id);
        }
    }
    let mut add = |kind: &str, (id, parent): (i32, Option<i32>), rect, parameter: gst::Structure| {
        let mut region = gst_video::VideoRegionOfInterestMeta::add(buffer, kind, rect);
        region.set_id(id);
        if let Some(parent) = parent {
            region.set_parent_id(parent);
        }
        region.add_param(parameter);
    };
    for (index, m) in record.matches.iter().enumerate() {
        let parent = owner(m.rect(), &record.tracks).map(|id| ids.of_track(id));
        let rect = (m.x as u32, m.y as u32, m.w as u32, m.h as u32);
        add(&m.template, (ids.of_match(index), parent), rect, (&of_match(index, m, record, ids)).into());
    }
    for (index, object) in (record.matches.len()..).zip(record.objects.iter().flatten()) {
        let parameter = of_object(index, object, ids);
        let rect = (parameter.x, parameter.y, parameter.w, parameter.h);
        add(OBJECT, (parameter.roi_id, None), rect, (&parameter).into());
    }
    for track in record.tracks.iter().filter(|track| track.state != TrackState::Lost) {
        if let Some(rect) = pixels(track, frame).filter(|_| !detected.contains(&track.id)) {
            add(label(track), (ids.of_track(track.id), None), rect, (&of_track(track, ids)).into());
        }
    }
}

/// Pairs a frame's detections with tracks: detections of the track's class first, then by the largest
/// overlap, one to a track.
struct Owned<'a> {
    /// Detections that `take` has not returned yet.
    detections: Vec<(&'a Detection, Option<u32>)>,
}

impl<'a> Owned<'a> {
    fn of(record: &'a FrameRecord) -> Self {
        let there = || record.tracks.iter().filter(|track| track.state != TrackState::Lost);
        let mut pairs = Vec::new();
        for (place, found) in record.detections.iter().enumerate() {
            let overlaps = there().map(|track| {
                let is_of_its_class = track.template.as_ref() == Some(&found.label);
                ((is_of_its_class, iou(track.bounds(), found.rect().bounds())), place, track.id)
            });
            pairs.extend(overlaps.filter(|((_, iou), ..)| *iou >= SAME));
        }
        // Equal ones stay in the order of the detections.
        pairs.sort_by(|((is_one, iou), ..), ((is_other, of_other), ..)| {
            is_other.cmp(is_one).then(of_other.total_cmp(iou))
        });
        let mut owned = Self { detections: record.detections.iter().map(|found| (found, None)).collect() };
        let mut taken = BTreeSet::new();
        for (_, place, id) in pairs {
            let owner = &mut owned.detections[place].1;
            if owner.is_none() && taken.insert(id) {
                *owner = Some(id);
            }
        }
        owned
    }

    /// Returns the track of a detection, if the detection is followed. Each is returned once, as two of one
    /// class can be equal.
    fn take(&mut self, label: &str, rect: Rect) -> Option<u32> {
        let is_it = |(found, _): &(&Detection, _)| *found.label == *label && found.rect() == rect;
        let place = self.detections.iter().position(is_it)?;
        self.detections.remove(place).1
    }
}

/// A track's box in whole pixels, as far as it lies in the frame.
fn pixels(track: &Track, frame: Size) -> Option<(u32, u32, u32, u32)> {
    let edge = |at: f64, end: usize| at.round().clamp(0.0, end as f64) as u32;
    let (left, right) = (edge(track.x, frame.width), edge(track.x + track.w, frame.width));
    let (top, bottom) = (edge(track.y, frame.height), edge(track.y + track.h, frame.height));
    (left < right && top < bottom).then(|| (left, top, right - left, bottom - top))
}

/// The first and last time of each track, in running time.
#[cfg(feature = "v1_24")]
pub(super) type Seen = std::collections::BTreeMap<u32, (gst::ClockTime, gst::ClockTime)>;

/// Objects in the analytics metadata of a frame, which has a matrix of the relations of all of its entries.
#[cfg(feature = "v1_24")]
const MOST_ANALYSED: usize = 1000;

/// Adds the same as analytics metadata: a detection for every match, for every object, and for every track
/// that is not lost, named as in [`add_regions`], and for every track a tracking entry, which is related to
/// its detection: to upstream's, if it lies on one. Upstream's metadata stays.
#[cfg(feature = "v1_24")]
pub(super) fn add_analytics(
    buffer: &mut gst::BufferRef,
    record: &FrameRecord,
    frame: Size,
    now: gst::ClockTime,
    seen: &mut Seen,
) -> Result<(), gst::glib::BoolError> {
    use gst::glib::Quark;
    use gst_analytics::prelude::*;
    use lockon_gst::detections::analytics::{DetectionEntry, entries};

    let mut detections = Owned::of(record);
    let detected = entries(buffer).into_iter().filter_map(|DetectionEntry { id, label, rect, .. }| {
        Some((detections.take(&label, rect.cut_to(frame)?)?, id))
    });
    let detected: Vec<(u32, u32)> = detected.collect();
    let mut relations = gst_analytics::AnalyticsRelationMeta::add(buffer);
    for m in &record.matches {
        let name = Quark::from_str(&*m.template);
        relations.add_od_mtd(name, m.x as i32, m.y as i32, m.w as i32, m.h as i32, m.score as f32)?;
    }
    for object in record.objects.iter().flatten().take(MOST_ANALYSED) {
        let Object { x, y, w, h, .. } = *object;
        // A mask is as sure of all of its objects.
        relations.add_od_mtd(Quark::from_str(OBJECT), x as i32, y as i32, w as i32, h as i32, 1.0)?;
    }
    let mut entries = Vec::with_capacity(record.tracks.len());
    for track in &record.tracks {
        let is_lost = track.state == TrackState::Lost;
        let (first, last) = seen.entry(track.id).or_insert((now, now));
        if !is_lost {
            *last = now;
        }
        let entry = relations.add_tracking_mtd(u64::from(track.id), *first)?.id();
        entries.push((entry, *last, is_lost));
        if let Some((_, detection)) = detected.iter().find(|(owner, _)| *owner == track.id) {
            relations.set_relation(gst_analytics::RelTypes::RELATE_TO, *detection, entry)?;
        } else if let Some((x, y, w, h)) = pixels(track, frame).filter(|_| !is_lost) {
            let (name, score) = (Quark::from_str(label(track)), track.score as f32);
            let detection = relations.add_od_mtd(name, x as i32, y as i32, w as i32, h as i32, score)?.id();
            relations.set_relation(gst_analytics::RelTypes::RELATE_TO, detection, entry)?;
        }
    }
    // No number is used again, so ended ones can be removed.
    seen.retain(|id, _| record.tracks.iter().any(|track| track.id == *id));
    // Last, as this borrows the metadata for as long as the buffer is. Upstream's entries are in it too.
    for mut entry in relations.iter_mut::<gst_analytics::AnalyticsTrackingMtd>() {
        if let Some((_, last, is_lost)) = entries.iter().find(|(id, ..)| *id == entry.id()) {
            entry.update_last_seen(*last)?;
            if *is_lost {
                entry.set_lost()?;
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elements_share_no_ids_and_the_first_ones_are_the_tracks_own() {
        let (first, second) = (Ids(0), Ids(1));
        assert_eq!(first.of_track(7), 7);
        let of = |ids: &Ids| [ids.of_track(1), ids.of_track(500_000), ids.of_match(0), ids.of_match(500_000)];
        let mut all: Vec<_> = [of(&first), of(&second), of(&Ids(2046))].concat();
        all.dedup();
        assert!(all.len() == 12 && all.iter().all(|id| *id >= 0) && all.is_sorted(), "{all:?}");
        let [one, other] = [Ids::new(), Ids::new()];
        assert_ne!(one.0, other.0);
    }

    #[test]
    fn a_track_lies_on_one_detection_that_which_it_overlaps_most() {
        let detection =
            |label: &str, x| Detection { label: label.into(), x, y: 10, w: 20, h: 20, score: 1.0 };
        let template = || Some("car".into());
        let track = |id, x, state| Track {
            id,
            x,
            y: 10.0,
            w: 20.0,
            h: 20.0,
            state,
            template: template(),
            ..Track::default()
        };
        let record = FrameRecord {
            detections: vec![
                detection("van", 10),
                detection("car", 14),
                detection("car", 11),
                detection("car", 11),
                detection("cat", 60),
            ],
            tracks: vec![track(7, 10.0, TrackState::Tracked), track(8, 60.0, TrackState::Lost)],
            ..FrameRecord::default()
        };
        let mut owned = Owned::of(&record);
        let rect = |x| Rect::new(x, 10, 20, 20);
        let asked =
            [("van", 10), ("car", 14), ("cat", 60), ("car", 11), ("car", 11), ("car", 11), ("dog", 11)];
        let owners = asked.map(|(label, x)| owned.take(label, rect(x)));
        assert_eq!(owners, [None, None, None, Some(7), None, None, None]);
    }

    #[test]
    fn a_match_belongs_to_the_track_that_overlaps_it_most_unless_that_is_lost() {
        let found = Match {
            template: "a".into(),
            x: 10,
            y: 10,
            w: 20,
            h: 20,
            score: 0.9,
            scale: 1.0,
            angle: 0.0,
            cx: 20.0,
            cy: 20.0,
        };
        let track = |id, x, state| Track { id, x, y: 10.0, w: 20.0, h: 20.0, state, ..Track::default() };
        let (held, lost) = (TrackState::Tracked, TrackState::Lost);
        assert_eq!(owner(found.rect(), &[track(1, 18.0, held), track(2, 12.0, held)]), Some(2));
        assert_eq!(owner(found.rect(), &[track(1, 18.0, held), track(2, 12.0, lost)]), Some(1));
        assert_eq!(owner(found.rect(), &[track(1, 25.0, held)]), None);
    }
}
