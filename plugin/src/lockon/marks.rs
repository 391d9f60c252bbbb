//! Results as GStreamer carries them: a message's structure, and metadata of a buffer.

use lockon::frame::Size;
use lockon::results::{FrameRecord, Match, Track};

use super::line::BufferTimes;

/// The structure `lockon` of a frame's element message; the element's documentation has its fields.
pub(super) fn structure(record: &FrameRecord, times: &BufferTimes) -> gst::Structure {
    gst::Structure::builder("lockon")
        .field("frame", record.frame)
        .field_if_some("pts", times.pts)
        .field_if_some("duration", times.duration)
        .field_if_some("stream-time", times.stream_time)
        .field_if_some("running-time", times.running_time)
        .field("matches", gst::List::new(record.matches.iter().map(of_match)))
        .field("tracks", gst::List::new(record.tracks.iter().map(of_track)))
        .field_if_some("foreground", record.threshold.map(|threshold| threshold.foreground))
        .build()
}

fn of_match(m: &Match) -> gst::Structure {
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
        .build()
}

fn of_track(t: &Track) -> gst::Structure {
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
        .build()
}

/// Adds a region of interest for every match and every track that touches the frame: type `match` or `track`,
/// the same fields as in the message as its parameter, and as its id the track's, or the match's number
/// counted from 0.
pub(super) fn add_regions(buffer: &mut gst::BufferRef, record: &FrameRecord, frame: Size) {
    let mut add = |kind: &str, id: i32, rect, parameter| {
        let mut region = gst_video::VideoRegionOfInterestMeta::add(buffer, kind, rect);
        region.set_id(id);
        region.add_param(parameter);
    };
    for (id, m) in (0..).zip(&record.matches) {
        add("match", id, (m.x as u32, m.y as u32, m.w as u32, m.h as u32), of_match(m));
    }
    for track in &record.tracks {
        if let Some(rect) = pixels(track, frame) {
            add("track", track.id as i32, rect, of_track(track));
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

/// When each track of the last frame that had one was seen first, in running time.
#[cfg(feature = "v1_24")]
pub(super) type FirstSeen = std::collections::BTreeMap<u32, gst::ClockTime>;

/// Adds the same as analytics metadata: a detection for every match and every track, named as the match's
/// template or `track`, and for a track a tracking entry that is related to it.
#[cfg(feature = "v1_24")]
pub(super) fn add_analytics(
    buffer: &mut gst::BufferRef,
    record: &FrameRecord,
    frame: Size,
    now: gst::ClockTime,
    first_seen: &mut FirstSeen,
) -> Result<(), gst::glib::BoolError> {
    use gst::glib::Quark;
    use gst_analytics::prelude::*;
    use lockon::results::TrackState;

    let mut relations = gst_analytics::AnalyticsRelationMeta::add(buffer);
    for m in &record.matches {
        let name = Quark::from_str(&*m.template);
        relations.add_od_mtd(name, m.x as i32, m.y as i32, m.w as i32, m.h as i32, m.score as f32)?;
    }
    let mut states = Vec::with_capacity(record.tracks.len());
    for track in &record.tracks {
        let Some((x, y, w, h)) = pixels(track, frame) else { continue };
        let (name, score) = (Quark::from_str("track"), track.score as f32);
        let detection = relations.add_od_mtd(name, x as i32, y as i32, w as i32, h as i32, score)?.id();
        let first = *first_seen.entry(track.id).or_insert(now);
        let entry = relations.add_tracking_mtd(u64::from(track.id), first)?.id();
        relations.set_relation(gst_analytics::RelTypes::RELATE_TO, detection, entry)?;
        states.push((entry, track.state));
    }
    // No number is used again, so those that have ended can be forgotten.
    first_seen.retain(|id, _| record.tracks.iter().any(|track| track.id == *id));
    // Last, as this borrows the metadata for as long as the buffer is.
    for mut entry in relations.iter_mut::<gst_analytics::AnalyticsTrackingMtd>() {
        match states.iter().find(|(id, _)| *id == entry.id()) {
            Some((_, TrackState::Lost)) => entry.set_lost()?,
            _ => entry.update_last_seen(now)?,
        }
    }
    Ok(())
}
