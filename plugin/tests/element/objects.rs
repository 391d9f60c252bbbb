//! Objects of thresholded frames.

use lockon_core::config::{ObjectSpec, ThresholdSpec};
use lockon_core::frame::PlaneRef;
use lockon_core::reference;
use lockon_core::results::Object;

use super::*;

/// The objects of a grey frame, by the definition.
fn expected(buffer: &gst::BufferRef, threshold: &str, spec: &ObjectSpec) -> reference::objects::Found {
    let (bytes, stride) = (bytes(buffer), info(PixelFormat::GRAY8).stride()[0] as usize);
    let luma = PlaneRef::new(&bytes, SIZE, stride);
    let mask = reference::threshold::threshold(luma, &threshold.parse::<ThresholdSpec>().unwrap());
    reference::objects::find(mask.as_ref(), luma, spec)
}

fn boxes(objects: &[Object]) -> Vec<(u32, u32, u32, u32)> {
    objects.iter().map(|o| (o.x as u32, o.y as u32, o.w as u32, o.h as u32)).collect()
}

#[test]
fn objects_are_in_messages_on_buffers_and_in_files_and_are_tuned_while_frames_pass() {
    let here = Place::new();
    let element = here.element();
    element.set_property("threshold", "mean:7:3");
    element.set_property("objects", true);
    element.set_property("object-max", 3u32);
    element.set_property("results", here.text("out.jsonl"));
    let bus = bus_of(&element);
    let mut harness = harness(&element, PixelFormat::GRAY8);
    let few = ObjectSpec { max: Some(3), ..ObjectSpec::default() };
    let mut cleaned = ObjectSpec { max: Some(3), colour: "black".parse().unwrap(), ..ObjectSpec::default() };
    cleaned.connectivity = "4".parse().unwrap();
    let mut all = Vec::new();
    for (n, spec) in [Some(few), Some(few), Some(cleaned), None].into_iter().enumerate() {
        match n {
            2 => {
                element.set_property_from_str("object-colour", "black");
                element.set_property("connect", "4");
            }
            3 => {
                element.set_property("objects", false);
                element.set_property("object-max", 0u32);
            }
            _ => {}
        }
        let sent = frame(n as u64, PixelFormat::GRAY8);
        let expected = spec.map(|spec| expected(&sent, "mean:7:3", &spec));
        let came = harness.push_and_pull(sent).unwrap();
        let said = messages(&bus).pop().unwrap();
        let said = lockon_messages::Results::try_from(&*said).unwrap();
        let of_objects: Vec<_> = regions(&came)
            .into_iter()
            .filter(|(kind, ..)| kind == "object")
            .map(|(_, id, rect, _)| (id, rect))
            .collect();
        let Some(expected) = expected else {
            assert_eq!((said.objects, of_objects.len()), (None, 0));
            all.push(None);
            continue;
        };
        assert_eq!((said.more_objects, expected.objects.len()), (expected.more, 3), "frame {n}");
        let objects = said.objects.unwrap();
        let told: Vec<_> = objects.iter().map(|o| (o.x, o.y, o.w, o.h)).collect();
        assert_eq!(told, boxes(&expected.objects), "frame {n}");
        for (object, expected) in objects.iter().zip(&expected.objects) {
            assert_eq!(
                (object.area, object.cx, object.angle),
                (expected.area as u64, expected.cx, expected.angle)
            );
        }
        let as_regions: Vec<_> = objects.iter().map(|o| (o.roi_id, (o.x, o.y, o.w, o.h))).collect();
        assert_eq!(of_objects, as_regions, "frame {n}");
        all.push(Some(serde_json::to_value(&expected.objects).unwrap()));
    }
    end(&mut harness);
    let records = here.records("out.jsonl");
    let frames: Vec<_> = records.iter().filter(|record| record["type"] == "frame").collect();
    let written: Vec<_> = frames.iter().map(|frame| frame.get("objects").cloned()).collect();
    assert_eq!(written, all);
}

#[test]
fn tracks_of_objects_are_counted_across_lines_in_messages_and_files() {
    let here = Place::new();
    let element = here.element();
    element.set_property("threshold", "mean:31:-30");
    element.set_property("objects", true);
    element.set_property("track-objects", true);
    let middle = SIZE.width as f64 / 2.0;
    element.set_property("line", format!("a=0,-9,0,999;middle={middle},0,{middle},{}", SIZE.height));
    element.set_property("zone", format!("all=0,0,{0},0,{0},{1},0,{1}", SIZE.width, SIZE.height));
    element.set_property("results", here.text("out.jsonl"));
    let bus = bus_of(&element);
    let mut harness = harness(&element, PixelFormat::GRAY8);
    let stride = info(PixelFormat::GRAY8).stride()[0] as usize;
    let mut crossings = Vec::new();
    let mut last = lockon_messages::Results::default();
    for n in 0..14 {
        let mut sent = frame(n, PixelFormat::GRAY8);
        {
            // A bright square that goes to the right, through the middle.
            let mut map = sent.make_mut().map_writable().unwrap();
            map.fill(20);
            let left = (middle as usize - 15) + 2 * n as usize;
            for y in 5..12 {
                map[y * stride + left..y * stride + left + 7].fill(220);
            }
        }
        harness.push_and_pull(sent).unwrap();
        let said = messages(&bus).pop().unwrap();
        last = lockon_messages::Results::try_from(&*said).unwrap();
        crossings.extend(last.crossings.iter().map(|c| (n, c.line.clone(), c.id, c.direction.clone())));
    }
    // Drawn downwards, its right side is on the left.
    assert_eq!(crossings.len(), 1, "{crossings:?}");
    assert_eq!((&*crossings[0].1, crossings[0].2, &*crossings[0].3), ("middle", 1, "out"));
    let counts: Vec<_> = last.lines.iter().map(|l| (&*l.line, l.inwards, l.outwards)).collect();
    assert_eq!(counts, [("a", 0, 0), ("middle", 0, 1)]);
    assert_eq!((last.zones[0].inside, last.zones[0].objects), (1, Some(1)));
    let track = &last.tracks[0];
    assert_eq!((track.template.as_deref(), track.object), (Some("object"), Some(1)));
    end(&mut harness);
    let records = here.records("out.jsonl");
    assert_eq!(
        records.last().unwrap()["lines"][1],
        serde_json::json!({ "line": "middle", "in": 0, "out": 1 })
    );
}

#[test]
fn objects_without_a_threshold_are_an_error_that_names_the_properties() {
    let said = error_of(|element| element.set_property("objects", true));
    let gst::MessageView::Error(error) = said.view() else { unreachable!("only errors are asked for") };
    let said = format!("{} {:?}", error.error(), error.debug());
    assert!(
        said.contains("objects is for the thresholded picture") && said.contains("threshold=mean:31:5"),
        "{said}"
    );
}
