//! Results as GStreamer carries them: a message's structure, and metadata of a buffer.

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};

use lockon::frame::{Rect, Size, iou};
use lockon::media::detections::OWN_FIELD;
use lockon::results::{Detection, FrameRecord, Match, Track, TrackState};

use super::line::BufferTimes;

/// A track whose box overlaps a match so much lies on the same object: as where tracks are made of matches.
const SAME: f64 = 0.3;

/// Ids of regions that an element has: the lower half for its tracks, the upper for a frame's matches.
const IDS: u32 = 1 << 20;
const IDS_OF_TRACKS: u32 = IDS / 2;

/// Which elements of the process have ids.
static ELEMENTS: Mutex<BTreeSet<u32>> = Mutex::new(BTreeSet::new());

/// An element's ids for regions of interest, none of which another element of the process has: a frame can
/// pass several. Those of the first element are the tracks' own.
#[derive(Debug)]
pub(super) struct Ids(u32);

impl Ids {
    pub(super) fn new() -> Self {
        let mut elements = ELEMENTS.lock().unwrap_or_else(PoisonError::into_inner);
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
        ELEMENTS.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.0);
    }
}

/// The structure `lockon` of a frame's element message; the element's documentation has its fields.
pub(super) fn structure(record: &FrameRecord, times: &BufferTimes, ids: &Ids) -> gst::Structure {
    let matches = record.matches.iter().enumerate();
    gst::Structure::builder("lockon")
        .field("frame", record.frame)
        .field_if_some("pts", times.pts)
        .field_if_some("duration", times.duration)
        .field_if_some("stream-time", times.stream_time)
        .field_if_some("running-time", times.running_time)
        .field("matches", gst::List::new(matches.map(|(index, m)| of_match(index, m, record, ids))))
        .field("tracks", gst::List::new(record.tracks.iter().map(|track| of_track(track, ids))))
        .field_if_some("foreground", record.threshold.map(|threshold| threshold.foreground))
        .build()
}

fn of_match(index: usize, m: &Match, record: &FrameRecord, ids: &Ids) -> gst::Structure {
    gst::Structure::builder("match")
        .field("template", &*m.template)
        .field("x", m.x as u32)
        .field("y", m.y as u32)
        .field("w", m.w as u32)
        .field("h", m.h as u32)
        .field("score", m.score)
        .field("scale", m.scale)
        .field("angle", m.angle)
        .field("cx", m.cx)
        .field("cy", m.cy)
        .field(OWN_FIELD, ids.of_match(index))
        .field_if_some("track", owner(m.rect(), &record.tracks))
        .build()
}

fn of_track(t: &Track, ids: &Ids) -> gst::Structure {
    gst::Structure::builder("track")
        .field("id", t.id)
        .field_if_some("template", t.template.as_deref())
        .field("state", t.state.name())
        .field("x", t.x)
        .field("y", t.y)
        .field("w", t.w)
        .field("h", t.h)
        .field("score", t.score)
        .field("second-peak-ratio", t.second_peak_ratio)
        .field(OWN_FIELD, ids.of_track(t.id))
        .build()
}

/// The track that lies on the object of a match or a detection, if one does.
fn owner(found: Rect, tracks: &[Track]) -> Option<u32> {
    let there = tracks.iter().filter(|track| track.state != TrackState::Lost);
    let overlaps = there.map(|track| (track.id, iou(track.bounds(), found.bounds())));
    let most = overlaps.filter(|(_, iou)| *iou >= SAME).max_by(|(_, a), (_, b)| a.total_cmp(b));
    most.map(|(id, _)| id)
}

/// The name under which a track lies on the frame: it survives converters, which parameters do not.
fn label(track: &Track) -> &str {
    track.template.as_deref().unwrap_or("track")
}

/// Adds a region of interest for every match, and for every track that is not lost and touches the frame. Its
/// type is the template's name, or `track`; its parameter has the same fields as in the message. A match
/// whose object is followed has the track's region as its parent.
///
/// A track that lies on a detection of this frame gets no region of its own: the detection's gets the track's
/// number, as `id` of a parameter `object_id`, which is how DL Streamer has it.
pub(super) fn add_regions(buffer: &mut gst::BufferRef, record: &FrameRecord, frame: Size, ids: &Ids) {
    let mut add = |kind: &str, (id, parent): (i32, Option<i32>), rect, parameter| {
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
        add(&m.template, (ids.of_match(index), parent), rect, of_match(index, m, record, ids));
    }
    let followed: Vec<_> =
        record.detections.iter().map(|found| (found, owner(found.rect(), &record.tracks))).collect();
    for track in record.tracks.iter().filter(|track| track.state != TrackState::Lost) {
        let is_detected = followed.iter().any(|(_, owner)| *owner == Some(track.id));
        if let Some(rect) = pixels(track, frame).filter(|_| !is_detected) {
            add(label(track), (ids.of_track(track.id), None), rect, of_track(track, ids));
        }
    }
    for mut region in buffer.iter_meta_mut::<gst_video::VideoRegionOfInterestMeta>() {
        let (x, y, w, h) = region.rect();
        let rect = Rect::new(x as usize, y as usize, w as usize, h as usize).cut_to(frame);
        let is_own = region.params().any(|param| param.has_field(OWN_FIELD));
        let is_it = |found: &Detection| *found.label == *region.roi_type() && Some(found.rect()) == rect;
        let id = followed.iter().find(|(found, _)| !is_own && is_it(found)).and_then(|(_, owner)| *owner);
        if let Some(id) = id {
            region.add_param(gst::Structure::builder("object_id").field("id", id as i32).build());
        }
    }
}

/// A track's box in whole pixels, as far as it lies in the frame.
fn pixels(track: &Track, frame: Size) -> Option<(u32, u32, u32, u32)> {
    let edge = |at: f64, end: usize| at.round().clamp(0.0, end as f64) as u32;
    let (left, right) = (edge(track.x, frame.width), edge(track.x + track.w, frame.width));
    let (top, bottom) = (edge(track.y, frame.height), edge(track.y + track.h, frame.height));
    (left < right && top < bottom).then(|| (left, top, right - left, bottom - top))
}

/// When each track was seen first and last, in running time.
#[cfg(feature = "v1_24")]
pub(super) type Seen = std::collections::BTreeMap<u32, (gst::ClockTime, gst::ClockTime)>;

/// Adds the same as analytics metadata: a detection for every match and for every track that is not lost,
/// named as in [`add_regions`], and for every track a tracking entry, which is related to its detection.
/// What upstream has put there stays as it is.
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

    let mut relations = gst_analytics::AnalyticsRelationMeta::add(buffer);
    for m in &record.matches {
        let name = Quark::from_str(&*m.template);
        relations.add_od_mtd(name, m.x as i32, m.y as i32, m.w as i32, m.h as i32, m.score as f32)?;
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
        if let Some((x, y, w, h)) = pixels(track, frame).filter(|_| !is_lost) {
            let (name, score) = (Quark::from_str(label(track)), track.score as f32);
            let detection = relations.add_od_mtd(name, x as i32, y as i32, w as i32, h as i32, score)?.id();
            relations.set_relation(gst_analytics::RelTypes::RELATE_TO, detection, entry)?;
        }
    }
    // No number is used again, so those that have ended can be forgotten.
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
