//! Analytics metadata of detectors, which GStreamer has from 1.24 on.

use gst_analytics::prelude::*;
use gst_analytics::{AnalyticsODMtd, AnalyticsRelationMeta, AnalyticsTrackingMtd, RelTypes};

use super::*;

#[test]
fn analytics_detections_are_followed_and_related_to_their_tracks() {
    init();
    let element = gst::ElementFactory::make("lockon")
        .property("backend", "cpu")
        .property("track-detections", true)
        .property("detection-type", "thing")
        .property("min-detection-score", 0.5)
        .property_from_str("view", "none")
        .build()
        .unwrap();
    let bus = bus_of(&element);
    let mut harness = harness(&element, PixelFormat::GRAY8);
    let quark = gst::glib::Quark::from_str;
    for n in 0..30 {
        let mut buffer = frame(n, PixelFormat::GRAY8);
        let (x, y) = place(n);
        if n % 10 == 2 {
            let mut relations = AnalyticsRelationMeta::add(buffer.get_mut().unwrap());
            // One is of another class, one not sure enough, and one is followed.
            relations.add_od_mtd(quark("other"), 60, 40, 20, 20, 0.9).unwrap();
            relations.add_od_mtd(quark("thing"), 60, 10, 20, 20, 0.3).unwrap();
            relations.add_od_mtd(quark("thing"), x as i32, y as i32, 15, 13, 0.9).unwrap();
        }
        let passed = harness.push_and_pull(buffer).unwrap();
        let said = messages(&bus);
        if n < 2 {
            assert!(said.is_empty(), "frame {n}");
            continue;
        }
        let tracks = list(&said[0], "tracks");
        let of_track = |track: &gst::Structure| {
            (track.get::<u32>("id").unwrap(), track.get::<String>("template").unwrap())
        };
        assert_eq!(tracks.iter().map(of_track).collect::<Vec<_>>(), [(1, "thing".to_owned())], "frame {n}");
        let relations = passed.meta::<AnalyticsRelationMeta>().unwrap();
        let detections: Vec<_> = relations.iter::<AnalyticsODMtd>().map(|detection| detection.id()).collect();
        let entry = relations.iter::<AnalyticsTrackingMtd>().next().unwrap();
        assert_eq!(entry.info().0, 1);
        let related: Vec<_> = detections
            .iter()
            .filter(|id| {
                let mut entries =
                    relations.iter_direct_related::<AnalyticsTrackingMtd>(**id, RelTypes::RELATE_TO);
                entries.any(|related| related.id() == entry.id())
            })
            .collect();
        // Upstream's third one where there is one, else the element's own: the object is there once.
        assert_eq!((detections.len(), related.len()), (if n % 10 == 2 { 3 } else { 1 }, 1), "frame {n}");
        assert_eq!(related[0], detections.last().unwrap(), "frame {n}");
        // As a region the track is there for those who look for these.
        assert_eq!(regions(&passed).len(), 1, "frame {n}");
    }
}
