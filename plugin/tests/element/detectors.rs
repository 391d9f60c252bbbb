//! Detections from a detector in front of the element, and the results that applications read.

use lockon_messages::{Match, Results, Track, TrackState};

use super::*;

/// Adds a region of interest to a frame, as a detector does, at `off` from the pattern's place.
fn detect(buffer: &mut gst::Buffer, label: &str, n: u64, (dx, dy): (i32, i32)) {
    let (x, y) = place(n);
    let rect = ((x as i32 + dx) as u32, (y as i32 + dy) as u32, 15, 13);
    gst_video::VideoRegionOfInterestMeta::add(buffer.get_mut().unwrap(), label, rect);
}

#[test]
fn classes_and_ids_of_what_is_followed_behind_a_detector_survive_a_converter() {
    init();
    let text = "lockon backend=cpu track-detections=true view=none ! videoconvert ! capsfilter caps=video/x-raw,format=BGRx";
    let mut harness = Harness::new_parse(text);
    harness.set_src_caps(caps(PixelFormat::GRAY8));
    for n in 0..24 {
        let mut buffer = frame(n, PixelFormat::GRAY8);
        if n.is_multiple_of(10) {
            detect(&mut buffer, "thing", n, (0, 0));
        }
        let passed = harness.push_and_pull(buffer).unwrap();
        let regions: Vec<_> = passed
            .iter_meta::<gst_video::VideoRegionOfInterestMeta>()
            .map(|region| (region.roi_type().to_owned(), region.id()))
            .collect();
        let [(class, id)] = &regions[..] else { panic!("frame {n}: {regions:?}") };
        assert_eq!(class, "thing", "frame {n}");
        // One id from the first frame on, detected or followed.
        assert!(*id != 0 && *id % (1 << 20) == 1, "frame {n}: {id}");
    }
}

#[test]
fn detections_correct_the_box_of_the_track_that_they_lie_on_for_the_frames_after_them() {
    init();
    let element = gst::ElementFactory::make("lockon")
        .property("backend", "cpu")
        .property("track-detections", true)
        .property_from_str("view", "none")
        .build()
        .unwrap();
    let bus = bus_of(&element);
    let mut harness = harness(&element, PixelFormat::GRAY8);
    let mut off = Vec::new();
    for n in 0..60 {
        let mut buffer = frame(n, PixelFormat::GRAY8);
        if n.is_multiple_of(10) {
            // The first box is off by three pixels, and all others are right.
            detect(&mut buffer, "thing", n, if n == 0 { (3, 2) } else { (0, 0) });
        }
        harness.push_and_pull(buffer).unwrap();
        let said = Results::try_from(&*messages(&bus)[0]).unwrap();
        assert_eq!(said.tracks.len(), 1, "frame {n}");
        assert_eq!(said.tracks[0].id, 1, "frame {n}");
        let (x, y) = place(n);
        off.push((said.tracks[0].x - x as f64).hypot(said.tracks[0].y - y as f64));
    }
    let mean = |frames: std::ops::Range<usize>| off[frames.clone()].iter().sum::<f64>() / frames.len() as f64;
    let (first, last) = (mean(1..10), mean(51..60));
    assert!(last < 0.6 * first, "{first:.2} pixels off at first, {last:.2} at last");
}

#[test]
fn messages_and_parameters_of_regions_are_read_as_values() {
    let here = Place::new();
    let element = here.element();
    let (x, y) = place(0);
    element.set_property("track", format!("{x},{y},15,13"));
    let bus = bus_of(&element);
    let mut harness = harness(&element, PixelFormat::GRAY8);
    let buffer = harness.push_and_pull(frame(0, PixelFormat::GRAY8)).unwrap();
    let said = Results::try_from(&*messages(&bus)[0]).unwrap();
    assert_eq!(
        (said.frame, said.pts, said.duration, said.foreground),
        (0, Some(gst::ClockTime::ZERO), Some(FRAME), None)
    );
    let [found] = &said.matches[..] else { panic!("{said:?}") };
    assert_eq!((found.x, found.y, found.score, found.track), (x as u32, y as u32, 1.0, Some(1)));
    let [track] = &said.tracks[..] else { panic!("{said:?}") };
    assert_eq!((track.id, track.state, track.x), (1, TrackState::Tracked, x as f64));
    let parameters: Vec<_> = regions(&buffer).into_iter().map(|(_, _, _, parameter)| parameter).collect();
    assert_eq!(Match::try_from(&*parameters[0]).unwrap(), *found);
    assert_eq!(Track::try_from(&*parameters[1]).unwrap(), *track);
}
