//! Reads the results of detectors in front of lockon: regions of interest that lie on frames, and with the
//! feature `v1_24` analytics metadata too.

use std::collections::VecDeque;
use std::sync::Arc;

use lockon_core::frame::{Rect, Size};
use lockon_core::results::Detection;

/// Selects the detections to follow.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct DetectionFilter {
    /// Their classes, as the detector names them; all if none is named.
    pub labels: Vec<String>,
    /// The minimum score.
    pub min_score: f64,
}

/// A field that the regions of lockon's own elements have, and no detector's.
pub const OWN_FIELD: &str = "roi-id";

impl DetectionFilter {
    /// Returns the detection if it is wanted, as far as it lies in the frame. NaN is no score.
    fn take(&self, label: &str, score: f64, rect: Rect, frame: Size) -> Option<Detection> {
        let is_wanted = self.labels.is_empty() || self.labels.iter().any(|name| name == label);
        let Rect { x, y, w, h } = rect.cut_to(frame).filter(|_| is_wanted && score >= self.min_score)?;
        Some(Detection { label: Arc::from(label), x, y, w, h, score })
    }
}

/// The detections that lie on a buffer, cut off at the frame's borders.
///
/// Regions of interest, whose type is the class; the score is the field `confidence` of one of the region's
/// parameters, as in DL Streamer, 1 if there is none. Then, with the feature `v1_24`, the object detections
/// among analytics metadata that have no region. Detections of lockon's own elements are left out.
pub fn of(buffer: &gst::BufferRef, wanted: &DetectionFilter, frame: Size) -> Vec<Detection> {
    let mut found = Vec::new();
    for region in buffer.iter_meta::<gst_video::VideoRegionOfInterestMeta>() {
        if region.params().any(|param| param.has_field(OWN_FIELD)) {
            continue;
        }
        let score = region.params().find_map(|param| param.get::<f64>("confidence").ok()).unwrap_or(1.0);
        found.extend(wanted.take(region.roi_type(), score, rect_of(&region), frame));
    }
    #[cfg(feature = "v1_24")]
    analytics::add(buffer, wanted, frame, &mut found);
    found
}

fn rect_of(region: &gst_video::VideoRegionOfInterestMeta) -> Rect {
    let (x, y, w, h) = region.rect();
    Rect::new(x as usize, y as usize, w as usize, h as usize)
}

/// Detections as analytics metadata.
#[cfg(feature = "v1_24")]
pub mod analytics {
    use gst_analytics::prelude::*;
    use gst_analytics::{AnalyticsODMtd, AnalyticsRelationMeta};

    use super::{Detection, DetectionFilter, Rect, Size, rect_of};

    /// An object detection among a buffer's analytics metadata.
    #[derive(Debug, Clone)]
    pub struct DetectionEntry {
        /// Its number in relations.
        pub id: u32,
        /// The class.
        pub label: String,
        /// The box, cut at the left and upper edge of the frame.
        pub rect: Rect,
        /// From 0 to 1.
        pub score: f64,
    }

    /// All that lie on a buffer.
    pub fn entries(buffer: &gst::BufferRef) -> Vec<DetectionEntry> {
        let Some(relations) = buffer.meta::<AnalyticsRelationMeta>() else { return Vec::new() };
        let entry = |detection: gst_analytics::AnalyticsMtdRef<'_, AnalyticsODMtd>| {
            let place = detection.location().ok()?;
            let edge = |at: i32| at.max(0) as usize;
            let (x, y) = (edge(place.x), edge(place.y));
            let (right, bottom) =
                (edge(place.x.saturating_add(place.w)), edge(place.y.saturating_add(place.h)));
            Some(DetectionEntry {
                id: detection.id(),
                label: detection.obj_type().map_or_else(String::new, |kind| kind.as_str().to_string()),
                rect: Rect::new(x, y, right.saturating_sub(x), bottom.saturating_sub(y)),
                score: f64::from(place.loc_conf_lvl),
            })
        };
        relations.iter::<AnalyticsODMtd>().filter_map(entry).collect()
    }

    /// Adds detections that are wanted and do not lie on the buffer as a region of interest too.
    pub(super) fn add(
        buffer: &gst::BufferRef,
        wanted: &DetectionFilter,
        frame: Size,
        found: &mut Vec<Detection>,
    ) {
        for DetectionEntry { label, rect, score, .. } in entries(buffer) {
            let mut regions = buffer.iter_meta::<gst_video::VideoRegionOfInterestMeta>();
            if !regions.any(|region| region.roi_type() == label && rect_of(&region) == rect) {
                found.extend(wanted.take(&label, score, rect, frame));
            }
        }
    }
}

/// Detections of frames that are on their way to the tracker.
#[derive(Debug, Default)]
pub struct Detected {
    wanted: Option<DetectionFilter>,
    waiting: VecDeque<(u64, Vec<Detection>)>,
}

impl Detected {
    /// Returns a collector of wanted detections; it collects none if `wanted` is `None`.
    pub fn new(wanted: Option<DetectionFilter>) -> Self {
        Self { wanted, waiting: VecDeque::new() }
    }

    /// Collects the detections of a passing frame.
    pub fn see(&mut self, index: u64, buffer: &gst::BufferRef, frame: Size) {
        let Some(wanted) = &self.wanted else { return };
        let found = of(buffer, wanted, frame);
        if !found.is_empty() {
            self.waiting.push_back((index, found));
        }
    }

    /// Adds the detections of a frame. Removes detections of earlier frames.
    pub fn take(&mut self, frame: u64, found: &mut Vec<Detection>) {
        while self.waiting.front().is_some_and(|(index, _)| *index <= frame) {
            let next = self.waiting.pop_front();
            found.extend(next.filter(|(index, _)| *index == frame).into_iter().flat_map(|(_, found)| found));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn region(
        buffer: &mut gst::BufferRef,
        label: &str,
        rect: (u32, u32, u32, u32),
        params: &[gst::Structure],
    ) {
        let mut region = gst_video::VideoRegionOfInterestMeta::add(buffer, label, rect);
        for param in params {
            region.add_param(param.clone());
        }
    }

    fn confidence(value: f64) -> gst::Structure {
        gst::Structure::builder("detection").field("confidence", value).build()
    }

    #[test]
    fn detections_are_regions_of_the_wanted_classes_cut_off_at_the_frame_and_none_of_ours() {
        gst::init().unwrap();
        let mut buffer = gst::Buffer::new();
        let writable = buffer.get_mut().unwrap();
        region(writable, "person", (1, 2, 30, 40), &[confidence(0.75)]);
        region(writable, "car", (90, 50, 30, 40), &[]);
        region(writable, "person", (5, 5, 9, 9), &[confidence(0.25)]);
        region(writable, "person", (200, 5, 9, 9), &[]);
        let own = gst::Structure::builder("track").field(OWN_FIELD, 1).build();
        region(writable, "person", (7, 7, 9, 9), &[own]);
        let found = |labels: &[&str], min_score| {
            let wanted =
                DetectionFilter { labels: labels.iter().map(|&label| label.into()).collect(), min_score };
            let place = |d: Detection| (d.label.to_string(), (d.x, d.y, d.w, d.h), d.score);
            of(&buffer, &wanted, Size::new(100, 60)).into_iter().map(place).collect::<Vec<_>>()
        };
        let person = ("person".to_owned(), (1, 2, 30, 40), 0.75);
        let car = ("car".to_owned(), (90, 50, 10, 10), 1.0);
        assert_eq!(found(&[], 0.5), [person.clone(), car.clone()]);
        assert_eq!(found(&["person"], 0.5), [person]);
        assert_eq!(found(&["car", "dog"], 0.0), [car]);
    }

    #[test]
    fn each_frame_gets_its_own_detections_and_those_of_dropped_frames_nobody() {
        gst::init().unwrap();
        let mut detected = Detected::new(Some(DetectionFilter::default()));
        for index in 0..6 {
            let mut buffer = gst::Buffer::new();
            if index % 2 == 0 {
                region(buffer.get_mut().unwrap(), "a", (index, 0, 5, 5), &[]);
            }
            detected.see(u64::from(index), &buffer, Size::new(50, 50));
        }
        let mut taken = |frame| {
            let mut found = Vec::new();
            detected.take(frame, &mut found);
            found.iter().map(|found: &Detection| found.x).collect::<Vec<_>>()
        };
        assert_eq!([taken(0), taken(1), taken(4), taken(5)], [vec![0], vec![], vec![4], vec![]]);
    }
}
