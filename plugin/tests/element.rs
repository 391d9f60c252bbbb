//! The element between the pads of a test harness, in pipelines, and as users run it with gst-launch.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on says so")]

#[cfg(feature = "v1_24")]
#[path = "element/analytics.rs"]
mod analytics;
#[path = "element/conventions.rs"]
mod conventions;
#[path = "element/detectors.rs"]
mod detectors;
#[path = "element/objects.rs"]
mod objects;
#[path = "element/pictures.rs"]
mod pictures;
#[path = "../../tests/test_log.rs"]
mod test_log;

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::Once;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use gst::glib::value::ToValue;
use gst::prelude::*;
use gst_check::Harness;
use gst_video::prelude::*;
use lockon_core::frame::{PixelFormat, Plane, Size};
use serde_json::Value;
use tempfile::TempDir;

/// The frame size of `examples/media/cars.mp4`.
const CARS: Size = Size::new(768, 432);
const SIZE: Size = Size::new(97, 63);
const FRAME: gst::ClockTime = gst::ClockTime::from_mseconds(40);
/// Longer than anything here takes, unless it hangs.
const LONG: gst::ClockTime = gst::ClockTime::from_seconds(60);

fn init() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        gst::init().unwrap();
        gstlockon::register().unwrap();
    });
}

/// Bytes that look random and are the same every time: D. Lehmer's generator, as L'Ecuyer parametrised it.
fn noise(seed: u64, size: Size) -> Plane {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let bytes = (0..size.area()).map(|_| {
        state = state.wrapping_mul(0xDA94_2042_E4DD_58B5).wrapping_add(0x9E37_79B9);
        (state >> 56) as u8
    });
    Plane::from_vec(bytes.collect(), size)
}

/// Where the pattern is in frame `n`: it moves by a pixel or two a frame and turns back at the border.
fn place(n: u64) -> (usize, usize) {
    let swing =
        |n: u64, room: u64| if (n / room).is_multiple_of(2) { n % room } else { room - n % room } as usize;
    (swing(2 * n, 80), swing(n, 48))
}

/// A noisy frame with the pattern in it. Luma is noise, chroma 128.
fn frame(n: u64, format: PixelFormat) -> gst::Buffer {
    let (mut luma, pattern) = (noise(n % 5, SIZE), pattern());
    let (x, y) = place(n);
    for row in 0..pattern.size().height {
        let at = (y + row) * SIZE.width + x;
        luma.data_mut()[at..at + pattern.size().width].copy_from_slice(pattern.as_ref().row(row));
    }
    let info = info(format);
    let mut buffer = gst::Buffer::with_size(info.size()).unwrap();
    let writable = buffer.get_mut().unwrap();
    writable.set_pts(n * FRAME);
    writable.set_duration(FRAME);
    let mut frame = gst_video::VideoFrameRef::from_buffer_ref_writable(writable, &info).unwrap();
    let stride = frame.plane_stride()[0] as usize;
    let planes = frame.planes_data_mut();
    for (index, plane) in planes.into_iter().enumerate().take(format.planes()) {
        plane.fill(128);
        if index == 0 {
            for (row, pixels) in plane.chunks_mut(stride).zip(luma.data().chunks(SIZE.width)) {
                row[..SIZE.width].copy_from_slice(pixels);
            }
        }
    }
    drop(frame);
    buffer
}

fn pattern() -> Plane {
    noise(99, Size::new(15, 13))
}

fn info(format: PixelFormat) -> gst_video::VideoInfo {
    let kind = format.name.parse::<gst_video::VideoFormat>().unwrap();
    gst_video::VideoInfo::builder(kind, SIZE.width as u32, SIZE.height as u32).fps((25, 1)).build().unwrap()
}

fn caps(format: PixelFormat) -> gst::Caps {
    info(format).to_caps().unwrap()
}

/// A folder with the pattern as `pattern.png`, and what a test adds.
struct Place(TempDir);

impl Place {
    fn new() -> Self {
        init();
        let place = Self(tempfile::tempdir().unwrap());
        lockon_core::still::save(&place.path("pattern.png"), pattern().as_ref()).unwrap();
        place
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn text(&self, name: &str) -> String {
        self.path(name).to_str().unwrap().to_owned()
    }

    /// An element that searches the pattern on the CPU and leaves frames as they are.
    fn element(&self) -> gst::Element {
        gst::ElementFactory::make("lockon")
            .property("template", self.text("pattern.png"))
            .property("backend", "cpu")
            .property("threads", 1u32)
            .property_from_str("view", "none")
            .build()
            .unwrap()
    }

    /// The records of a JSON Lines file.
    fn records(&self, name: &str) -> Vec<Value> {
        let text = std::fs::read_to_string(self.path(name)).unwrap();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }
}

fn harness(element: &gst::Element, format: PixelFormat) -> Harness {
    let mut harness = Harness::with_element(element, Some("sink"), Some("src"));
    harness.set_src_caps(caps(format));
    harness
}

/// Returns a bus that collects the element's messages, in order.
fn bus_of(element: &gst::Element) -> gst::Bus {
    let bus = gst::Bus::new();
    element.set_bus(Some(&bus));
    bus
}

fn messages(bus: &gst::Bus) -> Vec<gst::Structure> {
    let of_ours =
        |message: gst::Message| message.structure().filter(|s| s.name() == "lockon").map(ToOwned::to_owned);
    bus.iter_filtered(&[gst::MessageType::Element]).filter_map(of_ours).collect()
}

fn list(structure: &gst::StructureRef, field: &str) -> Vec<gst::Structure> {
    let list = structure.get::<gst::List>(field).unwrap();
    list.iter().map(|value| value.get::<gst::Structure>().unwrap()).collect()
}

/// Type, id, box and parameter of a region of interest.
type Region = (String, i32, (u32, u32, u32, u32), gst::Structure);

fn regions(buffer: &gst::BufferRef) -> Vec<Region> {
    let metas = buffer.iter_meta::<gst_video::VideoRegionOfInterestMeta>();
    metas
        .map(|meta| {
            let parameter = meta.params().next().unwrap().to_owned();
            (meta.roi_type().to_owned(), meta.id(), meta.rect(), parameter)
        })
        .collect()
}

fn bytes(buffer: &gst::BufferRef) -> Vec<u8> {
    buffer.map_readable().unwrap().to_vec()
}

/// Waits for the first message of these kinds.
fn wait_for(bus: &gst::Bus, kinds: &[gst::MessageType]) -> gst::Message {
    bus.timed_pop_filtered(LONG, kinds).expect("a message comes in time")
}

/// Runs a pipeline to its end.
fn play(pipeline: &gst::Pipeline) {
    pipeline.set_state(gst::State::Playing).unwrap();
    let message = wait_for(&pipeline.bus().unwrap(), &[gst::MessageType::Eos, gst::MessageType::Error]);
    let said = format!("{message:?}");
    pipeline.set_state(gst::State::Null).unwrap();
    assert_eq!(message.type_(), gst::MessageType::Eos, "{said}");
}

/// A pipeline that is stopped when a test ends, however it ends.
struct Stopped(gst::Pipeline);

impl std::ops::Deref for Stopped {
    type Target = gst::Pipeline;

    fn deref(&self) -> &gst::Pipeline {
        &self.0
    }
}

impl Drop for Stopped {
    fn drop(&mut self) {
        let _ = self.0.set_state(gst::State::Null);
    }
}

fn parse(text: &str) -> Stopped {
    init();
    let pipeline = gst::parse::launch(text).unwrap_or_else(|error| panic!("{text}: {error}"));
    Stopped(pipeline.downcast().unwrap())
}

#[test]
fn frames_of_every_format_pass_untouched_with_their_times_in_order() {
    let here = Place::new();
    for format in PixelFormat::ALL {
        let element = here.element();
        let mut harness = harness(&element, format);
        for n in 0..12 {
            let frame = frame(n, format);
            let (sent, at) = (bytes(&frame), frame.map_readable().unwrap().as_ptr() as usize);
            harness.push(frame).unwrap();
            let came = harness.pull().unwrap();
            assert_eq!((came.pts(), came.duration()), (Some(n * FRAME), Some(FRAME)), "{}", format.name);
            assert!(bytes(&came) == sent, "frame {n} of {} was changed", format.name);
            assert_eq!(came.map_readable().unwrap().as_ptr() as usize, at, "frame {n} was copied");
            let (x, y) = place(n);
            let found = regions(&came);
            assert_eq!(found.len(), 1, "frame {n} of {}", format.name);
            let (kind, _, rect, parameter) = &found[0];
            assert_eq!((kind.as_str(), *rect), ("pattern", (x as u32, y as u32, 15, 13)));
            assert_eq!(parameter.get::<f64>("score").unwrap(), 1.0);
            assert_eq!(parameter.get::<&str>("template").unwrap(), "pattern");
        }
        let out = element.static_pad("src").unwrap().current_caps().unwrap();
        assert_eq!(out, caps(format));
    }
}

#[test]
fn what_cannot_be_searched_is_not_negotiated() {
    init();
    let element = gst::ElementFactory::make("lockon").build().unwrap();
    let pad = element.static_pad("sink").unwrap();
    for format in ["v210", "RGB16", "NV12_10LE32", "ARGB64"] {
        let caps = gst::Caps::builder("video/x-raw").field("format", format).build();
        assert!(!pad.query_caps(None).can_intersect(&caps), "{format}");
    }
    let of_width = |width: i32| gst::Caps::builder("video/x-raw").field("width", width).build();
    let takes = |width| pad.query_caps(None).can_intersect(&of_width(width));
    assert_eq!([0, 1, 65535, 65536].map(takes), [false, true, true, false]);
    let in_gpu =
        gst::Caps::builder("video/x-raw").features(["memory:CUDAMemory"]).field("format", "NV12").build();
    // Until it is known where the work will be done, both are possible.
    assert!(pad.query_caps(None).can_intersect(&in_gpu));
    element.set_property("backend", "cpu");
    element.set_state(gst::State::Ready).unwrap();
    assert!(!pad.query_caps(None).can_intersect(&in_gpu));
    element.set_state(gst::State::Null).unwrap();
}

#[test]
fn frames_and_events_leave_in_the_order_in_which_they_came() {
    let here = Place::new();
    let element = here.element();
    element.set_property("depth", 8u32);
    let bus = bus_of(&element);
    let (sender, seen) = std::sync::mpsc::channel();
    let pad = element.static_pad("src").unwrap();
    pad.add_probe(gst::PadProbeType::BUFFER | gst::PadProbeType::EVENT_DOWNSTREAM, move |_, info| {
        let number = |time: gst::ClockTime| time.nseconds() / FRAME.nseconds();
        let came = match (info.buffer(), info.event().map(|event| event.view())) {
            (Some(buffer), _) => Some(("frame", number(buffer.pts().unwrap()))),
            (_, Some(gst::EventView::CustomDownstream(note))) => {
                Some(("note", note.structure().unwrap().get("number").unwrap()))
            }
            (_, Some(gst::EventView::Gap(gap))) => Some(("gap", number(gap.get().0))),
            (_, Some(gst::EventView::Eos(_))) => Some(("end", 0)),
            _ => None,
        };
        if let Some(came) = came {
            sender.send(came).unwrap();
        }
        gst::PadProbeReturn::Ok
    });
    let mut harness = harness(&element, PixelFormat::GRAY8);
    let mut sent = Vec::new();
    for n in 0..60u64 {
        if n % 3 == 0 {
            let note = gst::Structure::builder("note").field("number", n).build();
            assert!(harness.push_event(gst::event::CustomDownstream::new(note)));
            sent.push(("note", n));
        }
        harness.push(frame(n, PixelFormat::GRAY8)).unwrap();
        sent.push(("frame", n));
        if n % 7 == 3 {
            assert!(harness.push_event(gst::event::Gap::builder(n * FRAME).duration(FRAME).build()));
            sent.push(("gap", n));
        }
    }
    assert!(harness.push_event(gst::event::Eos::new()));
    sent.push(("end", 0));
    let came: Vec<_> = sent.iter().map(|_| seen.recv_timeout(Duration::from_mins(1)).unwrap()).collect();
    assert_eq!(came, sent);
    let frames: Vec<u64> = messages(&bus).iter().map(|s| s.get("frame").unwrap()).collect();
    assert_eq!(frames, (0..60).collect::<Vec<_>>());
}

#[test]
fn frames_without_a_time_continue_those_before() {
    let here = Place::new();
    let element = here.element();
    element.set_property("results", here.text("out.jsonl"));
    let mut harness = harness(&element, PixelFormat::GRAY8);
    for (n, time) in [None, None, Some(7 * FRAME), None].into_iter().enumerate() {
        let mut buffer = frame(n as u64, PixelFormat::GRAY8);
        buffer.get_mut().unwrap().set_pts(time);
        let came = harness.push_and_pull(buffer).unwrap();
        assert_eq!(came.pts(), time, "what passes is left as it is");
    }
    end(&mut harness);
    let records = here.records("out.jsonl");
    let told = |n: u64| Some(n * FRAME.nseconds());
    let times: Vec<_> =
        records[1..5].iter().map(|r| (r["pts_ns"].as_u64(), r["pts_interpolated"] == true)).collect();
    assert_eq!(times, [(told(0), true), (told(1), true), (told(7), false), (told(8), true)]);
    assert_eq!(records[5]["interpolated"], 3);
}

#[test]
fn a_stream_without_a_rate_passes() {
    let here = Place::new();
    play(&parse(&format!(
        "filesrc location={} ! pngdec ! videoconvert ! video/x-raw,format=I420,framerate=0/1 \
         ! lockon backend=cpu threshold=mean:5:3 ! fakesink",
        here.text("pattern.png")
    )));
    for duration in [Some(FRAME), None] {
        let element = here.element();
        let (mut harness, upstream) = live_harness(&element, 0);
        assert_eq!(harness.query_latency(), Some(upstream), "nothing is known yet");
        for n in 0..3 {
            let mut buffer = frame(n, PixelFormat::GRAY8);
            buffer.get_mut().unwrap().set_duration(duration);
            harness.push_and_pull(buffer).unwrap();
        }
        // The latency is the duration that buffers carry, or the time of the search.
        let latency = harness.query_latency().unwrap();
        assert!(latency >= upstream + duration.unwrap_or(gst::ClockTime::NSECOND), "{duration:?}: {latency}");
    }
}

#[test]
fn the_message_of_a_frame_has_its_times_and_what_was_found() {
    let here = Place::new();
    let element = here.element();
    let (x, y) = place(0);
    element.set_property("track", format!("{x},{y},15,13"));
    element.set_property("threshold", "mean:7:3");
    let bus = bus_of(&element);
    let mut harness = harness(&element, PixelFormat::GRAY8);
    harness.pull_event().unwrap();
    let mut segment = gst::FormattedSegment::<gst::ClockTime>::new();
    segment.set_start(gst::ClockTime::from_seconds(3));
    segment.set_time(gst::ClockTime::from_seconds(10));
    segment.set_base(gst::ClockTime::from_seconds(1));
    harness.push_event(gst::event::Segment::new(&segment));
    let mut buffer = frame(0, PixelFormat::GRAY8);
    buffer.get_mut().unwrap().set_pts(gst::ClockTime::from_seconds(5));
    harness.push(buffer).unwrap();
    let buffer = harness.pull().unwrap();
    let said = messages(&bus);
    assert_eq!(said.len(), 1);
    let message = &said[0];
    let seconds = |field: &str| message.get::<gst::ClockTime>(field).unwrap().seconds();
    assert_eq!(
        (
            message.get::<u64>("frame").unwrap(),
            seconds("pts"),
            seconds("stream-time"),
            seconds("running-time")
        ),
        (0, 5, 12, 3)
    );
    assert_eq!(message.get::<gst::ClockTime>("duration").unwrap(), FRAME);
    let share = message.get::<f64>("foreground").unwrap();
    assert!(share > 0.2 && share < 0.8, "{share}");
    let matches = list(message, "matches");
    assert_eq!(matches.len(), 1);
    assert_eq!(
        (matches[0].get::<u32>("x").unwrap(), matches[0].get::<u32>("y").unwrap()),
        (x as u32, y as u32)
    );
    let tracks = list(message, "tracks");
    assert_eq!(
        (tracks[0].get::<u32>("id").unwrap(), tracks[0].get::<&str>("state").unwrap()),
        (1, "tracked")
    );
    let regions = regions(&buffer);
    assert_eq!(regions.len(), 2);
    assert_eq!((regions[0].0.as_str(), &regions[0].3), ("pattern", &matches[0]));
    assert_eq!((regions[1].0.as_str(), &regions[1].3), ("track", &tracks[0]));
    for (region, found) in regions.iter().zip([&matches[0], &tracks[0]]) {
        assert_eq!(found.get::<i32>("roi-id").unwrap(), region.1);
    }
    assert_eq!(matches[0].get::<u32>("track").unwrap(), 1);
    let parents: Vec<_> =
        buffer.iter_meta::<gst_video::VideoRegionOfInterestMeta>().map(|meta| meta.parent_id()).collect();
    assert_eq!(parents, [regions[1].1, 0]);
    #[cfg(feature = "v1_24")]
    {
        use gst_analytics::prelude::*;
        use gst_analytics::{AnalyticsODMtd, AnalyticsRelationMeta, AnalyticsTrackingMtd};
        let relations = buffer.meta::<AnalyticsRelationMeta>().unwrap();
        let detections = relations.iter::<AnalyticsODMtd>().map(|detection| {
            let place = detection.location().unwrap();
            (detection.obj_type().unwrap().as_str().to_string(), place.x, place.y)
        });
        let detections: Vec<_> = detections.collect();
        assert_eq!(detections[0], ("pattern".to_owned(), x as i32, y as i32));
        assert_eq!((detections.len(), detections[1].0.as_str()), (2, "track"));
        let followed: Vec<_> = relations.iter::<AnalyticsTrackingMtd>().map(|entry| entry.info().0).collect();
        assert_eq!(followed, [1]);
    }
    element.set_property_from_str("post-messages", "none");
    harness.push_and_pull(frame(200, PixelFormat::GRAY8)).unwrap();
    assert!(messages(&bus).is_empty());
}

#[test]
fn a_view_is_drawn_in_place_or_on_a_copy_where_somebody_else_has_the_frame() {
    let here = Place::new();
    let element = here.element();
    element.set_property_from_str("view", "overlay");
    let mut harness = harness(&element, PixelFormat::GRAY8);
    let alone = frame(3, PixelFormat::GRAY8);
    let (before, at) = (bytes(&alone), alone.map_readable().unwrap().as_ptr() as usize);
    let drawn = harness.push_and_pull(alone).unwrap();
    assert_ne!(bytes(&drawn), before);
    assert_eq!(
        drawn.map_readable().unwrap().as_ptr() as usize,
        at,
        "nobody else has it: it is drawn on in place"
    );
    let shared = frame(3, PixelFormat::GRAY8);
    let on_copy = harness.push_and_pull(shared.clone()).unwrap();
    assert_eq!(bytes(&shared), before, "what somebody else has is not touched");
    assert_eq!(bytes(&on_copy), bytes(&drawn));
    // Without a threshold there is no mask to show.
    element.set_property_from_str("view", "mask");
    assert_eq!(bytes(&harness.push_and_pull(frame(3, PixelFormat::GRAY8)).unwrap()), bytes(&drawn));
    element.set_property("threshold", "mean:7:3");
    let mask = bytes(&harness.push_and_pull(frame(3, PixelFormat::GRAY8)).unwrap());
    let stride = info(PixelFormat::GRAY8).stride()[0] as usize;
    let mut pixels = mask.chunks(stride).flat_map(|row| &row[..SIZE.width]);
    assert!(pixels.all(|pixel| [0, 255].contains(pixel)));
}

/// A live harness whose caps say how many frames a second there are, 0 if that varies, and the latency
/// upstream.
fn live_harness(element: &gst::Element, rate: i32) -> (Harness, gst::ClockTime) {
    let mut harness = harness(element, PixelFormat::GRAY8);
    let mut caps = caps(PixelFormat::GRAY8);
    caps.make_mut().set("framerate", gst::Fraction::new(rate, 1));
    harness.set_src_caps(caps);
    let upstream = gst::ClockTime::from_mseconds(7);
    harness.set_upstream_latency(upstream);
    harness.set_live(true);
    (harness, upstream)
}

#[test]
fn frames_of_a_file_add_no_latency() {
    let here = Place::new();
    let element = here.element();
    let (mut harness, upstream) = live_harness(&element, 25);
    harness.push_and_pull(frame(0, PixelFormat::GRAY8)).unwrap();
    assert_eq!(harness.query_latency(), Some(upstream + FRAME));
    harness.set_live(false);
    assert_eq!(harness.query_latency(), Some(upstream));
}

#[test]
fn latency_grows_with_a_slow_search_and_that_is_told() {
    let here = Place::new();
    let element = here.element();
    // Turned by every degree: each frame takes far longer than the millisecond for which it is shown.
    element.set_property("angles", "0..359/1");
    element.set_property("depth", 3u32);
    let bus = bus_of(&element);
    let (mut harness, upstream) = live_harness(&element, 1000);
    let shown = gst::ClockTime::MSECOND;
    assert_eq!(harness.query_latency(), Some(upstream + shown));
    while bus.pop().is_some() {}
    for n in 0..6 {
        harness.push(frame(n, PixelFormat::GRAY8)).unwrap();
    }
    (0..6).for_each(|_| drop(harness.pull().unwrap()));
    // Three are in flight and two wait: the element never holds more.
    assert_eq!(harness.query_latency(), Some(upstream + 5 * shown));
    let told = bus.iter_filtered(&[gst::MessageType::Latency]).count();
    assert!((1..=4).contains(&told), "told where it grows, not with every frame: {told}");
}

#[test]
fn what_a_sink_holds_up_is_no_latency() {
    let here = Place::new();
    let element = here.element();
    let bus = bus_of(&element);
    let (mut harness, upstream) = live_harness(&element, 2);
    let shown = gst::ClockTime::from_mseconds(500);
    assert_eq!(harness.query_latency(), Some(upstream + shown));
    while bus.pop().is_some() {}
    element.static_pad("src").unwrap().add_probe(gst::PadProbeType::BUFFER, |_, _| {
        std::thread::sleep(Duration::from_millis(700));
        gst::PadProbeReturn::Ok
    });
    for n in 0..4 {
        harness.push(frame(n, PixelFormat::GRAY8)).unwrap();
    }
    (0..4).for_each(|_| drop(harness.pull().unwrap()));
    assert_eq!(harness.query_latency(), Some(upstream + shown));
    assert!(bus.pop_filtered(&[gst::MessageType::Latency]).is_none());
}

#[test]
fn a_live_frame_does_not_wait_for_the_next_one() {
    let here = Place::new();
    let element = here.element();
    element.set_property("depth", 16u32);
    let mut harness = harness(&element, PixelFormat::GRAY8);
    for n in 0..5 {
        // Alone in a deep ring: it comes out although nothing follows.
        harness.push(frame(n, PixelFormat::GRAY8)).unwrap();
        assert_eq!(harness.pull().unwrap().pts(), Some(n * FRAME));
    }
}

/// Sends the end of the stream and waits until the element has passed it on.
fn end(harness: &mut Harness) {
    assert!(harness.push_event(gst::event::Eos::new()));
    while harness.pull_event().unwrap().type_() != gst::EventType::Eos {}
}

/// Returns the kinds of the records, in order, and the longest time (p99) that was spent waiting for the
/// source.
fn told(records: &[Value]) -> (Vec<&str>, Duration) {
    let stages = records.last().unwrap()["stages"].as_array().unwrap();
    let source = stages.iter().find(|stage| stage["stage"] == "source").unwrap();
    let longest = Duration::from_micros(source["p99_us"].as_u64().unwrap());
    (records.iter().map(|record| record["type"].as_str().unwrap()).collect(), longest)
}

#[test]
fn silence_upstream_is_told_as_a_stall() {
    let here = Place::new();
    let element = here.element();
    element.set_property("results", here.text("out.jsonl"));
    let mut harness = harness(&element, PixelFormat::GRAY8);
    harness.push_and_pull(frame(0, PixelFormat::GRAY8)).unwrap();
    std::thread::sleep(Duration::from_millis(2300));
    harness.push_and_pull(frame(1, PixelFormat::GRAY8)).unwrap();
    end(&mut harness);
    let records = here.records("out.jsonl");
    let (kinds, longest) = told(&records);
    assert_eq!(kinds, ["run", "frame", "stalled", "resumed", "frame", "summary"]);
    assert!(records[3]["frame"] == 1 && longest > Duration::from_secs(2), "{records:?}");
}

#[test]
fn a_slow_sink_is_no_stall() {
    let here = Place::new();
    let element = here.element();
    element.set_property("results", here.text("out.jsonl"));
    element.static_pad("src").unwrap().add_probe(gst::PadProbeType::BUFFER, |_, _| {
        std::thread::sleep(Duration::from_millis(2300));
        gst::PadProbeReturn::Remove
    });
    let mut harness = harness(&element, PixelFormat::GRAY8);
    for n in 0..2 {
        harness.push_and_pull(frame(n, PixelFormat::GRAY8)).unwrap();
    }
    end(&mut harness);
    let records = here.records("out.jsonl");
    let (kinds, longest) = told(&records);
    assert_eq!(kinds, ["run", "frame", "frame", "summary"]);
    assert!(longest < Duration::from_secs(2), "{longest:?} waiting for the source");
}

#[test]
fn a_pause_of_a_live_pipeline_is_no_stall() {
    let here = Place::new();
    let pipeline = parse(&format!(
        "videotestsrc is-live=true ! video/x-raw,format=I420,width=96,height=64,framerate=25/1 \
         ! lockon backend=cpu threads=1 qos=false threshold=mean:5:3 results={} ! fakesink sync=true",
        here.text("out.jsonl")
    ));
    let bus = pipeline.bus().unwrap();
    for pause in [Duration::from_millis(2500), Duration::ZERO] {
        pipeline.set_state(gst::State::Playing).unwrap();
        wait_for(&bus, &[gst::MessageType::Element]);
        pipeline.set_state(gst::State::Paused).unwrap();
        std::thread::sleep(pause);
        while bus.pop().is_some() {}
    }
    pipeline.set_state(gst::State::Playing).unwrap();
    assert!(pipeline.send_event(gst::event::Eos::new()));
    wait_for(&bus, &[gst::MessageType::Eos]);
    pipeline.set_state(gst::State::Null).unwrap();
    let records = here.records("out.jsonl");
    let (kinds, longest) = told(&records);
    assert!(kinds.len() > 3 && !kinds.contains(&"stalled"), "{kinds:?}");
    assert!(longest < Duration::from_secs(2), "{longest:?} waiting for the source");
}

/// Blocks the source pad's first buffer, so that everything behind it piles up. Sends a message when that
/// buffer is there.
fn block(element: &gst::Element) -> (gst::PadProbeId, std::sync::mpsc::Receiver<()>) {
    let (sender, blocked) = std::sync::mpsc::channel();
    let pad = element.static_pad("src").unwrap();
    let probe = pad.add_probe(gst::PadProbeType::BLOCK | gst::PadProbeType::BUFFER, move |_, _| {
        let _ = sender.send(());
        gst::PadProbeReturn::Ok
    });
    (probe.unwrap(), blocked)
}

#[test]
fn a_flush_drops_what_is_in_flight_and_keeps_what_describes_the_stream() {
    let here = Place::new();
    let element = here.element();
    element.set_property("results", here.text("out.jsonl"));
    element.set_property("depth", 3u32);
    let mut harness = harness(&element, PixelFormat::GRAY8);
    harness.push_and_pull(frame(0, PixelFormat::GRAY8)).unwrap();
    let (probe, blocked) = block(&element);
    harness.push(frame(1, PixelFormat::GRAY8)).unwrap();
    blocked.recv_timeout(Duration::from_mins(1)).unwrap();
    // One is held in its push and two wait; the tags stand behind them.
    harness.push(frame(2, PixelFormat::GRAY8)).unwrap();
    let mut tags = gst::TagList::new();
    tags.get_mut().unwrap().add::<gst::tags::Title>(&"kept", gst::TagMergeMode::Append);
    harness.push_event(gst::event::Tag::new(tags));
    assert!(harness.push_event(gst::event::FlushStart::new()));
    element.static_pad("src").unwrap().remove_probe(probe);
    assert!(harness.push_event(gst::event::FlushStop::new(true)));
    harness.push_event(gst::event::Segment::new(&gst::FormattedSegment::<gst::ClockTime>::new()));
    for n in 10..20 {
        assert_eq!(harness.push_and_pull(frame(n, PixelFormat::GRAY8)).unwrap().pts(), Some(n * FRAME));
    }
    let tag =
        element.static_pad("src").unwrap().sticky_event::<gst::event::Tag>(0).expect("tags outlive a flush");
    assert_eq!(tag.tag().get::<gst::tags::Title>().unwrap().get(), "kept");
    end(&mut harness);
    let records = here.records("out.jsonl");
    // The run continues: one head, numbers continue, dropped frames are missing.
    assert_eq!(records.iter().filter(|r| r["type"] == "run").count(), 1);
    let numbers: Vec<_> = records.iter().filter_map(|r| r["frame"].as_u64()).collect();
    assert!(
        numbers.starts_with(&[0]) && numbers.ends_with(&[3, 4, 5, 6, 7, 8, 9, 10, 11, 12]),
        "{numbers:?}"
    );
    let summary = records.last().unwrap();
    assert_eq!(
        (&summary["type"], summary["frames"].as_u64()),
        (&"summary".into(), Some(numbers.len() as u64))
    );
}

#[test]
fn what_a_flush_drops_on_the_device_is_in_no_results_file() {
    let here = Place::new();
    let element = here.element();
    element.set_property("results", format!("{};{}", here.text("out.jsonl"), here.text("out.csv")));
    element.set_property("depth", 3u32);
    // Slow to open and to search: when the first frame is pushed, the two behind it are on the device.
    element.set_property("angles", "0..359/1");
    let (probe, blocked) = block(&element);
    let mut harness = harness(&element, PixelFormat::GRAY8);
    for n in 0..3 {
        harness.push(frame(n, PixelFormat::GRAY8)).unwrap();
    }
    blocked.recv_timeout(Duration::from_mins(1)).unwrap();
    assert!(harness.push_event(gst::event::FlushStart::new()));
    element.static_pad("src").unwrap().remove_probe(probe);
    assert!(harness.push_event(gst::event::FlushStop::new(true)));
    harness.push_event(gst::event::Segment::new(&gst::FormattedSegment::<gst::ClockTime>::new()));
    for n in 3..6 {
        assert_eq!(harness.push_and_pull(frame(n, PixelFormat::GRAY8)).unwrap().pts(), Some(n * FRAME));
    }
    end(&mut harness);
    let records = here.records("out.jsonl");
    let numbers: Vec<_> = records.iter().filter_map(|r| r["frame"].as_u64()).collect();
    assert_eq!((numbers, records.last().unwrap()["frames"].as_u64()), (vec![0, 3, 4, 5], Some(4)));
    assert_eq!(std::fs::read_to_string(here.path("out.csv")).unwrap().lines().count(), 5);
}

#[test]
fn a_flush_lets_a_full_line_go() {
    let here = Place::new();
    let element = here.element();
    let mut harness = harness(&element, PixelFormat::GRAY8);
    let (probe, blocked) = block(&element);
    let pad = element.static_pad("sink").unwrap();
    let upstream = std::thread::spawn({
        let peer = pad.peer().unwrap();
        move || (0..100).map(|n| peer.push(frame(n, PixelFormat::GRAY8))).find(Result::is_err)
    });
    blocked.recv_timeout(Duration::from_mins(1)).unwrap();
    std::thread::sleep(Duration::from_millis(50));
    let start = Instant::now();
    harness.push_event(gst::event::FlushStart::new());
    assert_eq!(upstream.join().unwrap(), Some(Err(gst::FlowError::Flushing)));
    assert!(start.elapsed() < Duration::from_secs(5));
    element.static_pad("src").unwrap().remove_probe(probe);
    harness.push_event(gst::event::FlushStop::new(true));
    harness.push_event(gst::event::Segment::new(&gst::FormattedSegment::<gst::ClockTime>::new()));
    harness.push_and_pull(frame(7, PixelFormat::GRAY8)).unwrap();
}

#[test]
fn results_are_complete_when_the_end_arrives_with_frames_in_flight() {
    let here = Place::new();
    let element = here.element();
    element.set_property("depth", 8u32);
    element.set_property("results", format!("{};{}", here.text("out.jsonl"), here.text("out.csv")));
    let path = here.path("out.jsonl");
    let pad = element.static_pad("src").unwrap();
    let (sender, at_end) = std::sync::mpsc::channel();
    pad.add_probe(gst::PadProbeType::EVENT_DOWNSTREAM, move |_, info| {
        if info.event().is_some_and(|event| event.type_() == gst::EventType::Eos) {
            sender.send(std::fs::read_to_string(&path).unwrap()).unwrap();
        }
        gst::PadProbeReturn::Ok
    });
    let mut harness = harness(&element, PixelFormat::GRAY8);
    for n in 0..10 {
        harness.push(frame(n, PixelFormat::GRAY8)).unwrap();
    }
    harness.push_event(gst::event::Eos::new());
    for n in 0..10 {
        assert_eq!(harness.pull().unwrap().pts(), Some(n * FRAME));
    }
    let text = at_end.recv_timeout(Duration::from_mins(1)).unwrap();
    let last = text.lines().last().unwrap();
    assert_eq!(text.lines().count(), 12);
    assert!(
        last.starts_with(r#"{"type":"summary","frames":10,"#) && last.contains(r#""interrupted":false"#),
        "{last}"
    );
    assert_eq!(std::fs::read_to_string(here.path("out.csv")).unwrap().lines().count(), 11);
}

/// Upstream may send more, of another stream too, before it gets the end.
#[test]
fn when_downstream_takes_no_more_frames_the_run_is_over_and_its_results_stay() {
    let here = Place::new();
    let results = here.text("out.jsonl");
    let part = "videotestsrc num-buffers=20 ! video/x-raw,format=GRAY8,width=96,height=64 ! c.";
    let pipeline = parse(&format!(
        "concat name=c ! lockon backend=cpu threshold=mean:3:5 view=none results={results} ! identity eos-after=4 ! fakesink {part} {part}"
    ));
    play(&pipeline);
    let records = here.records("out.jsonl");
    let frames: Vec<_> = records.iter().filter(|record| record["type"] == "frame").collect();
    assert!(frames.len() >= 4 && frames[0]["frame"] == 0, "{records:?}");
    assert_eq!(records.iter().filter(|record| record["type"] == "summary").count(), 1);
}

#[test]
fn a_new_size_or_format_is_searched_from_its_first_frame_on() {
    let here = Place::new();
    let part = |format: &str, width| {
        format!(
            "videotestsrc num-buffers=6 pattern=smpte ! video/x-raw,format={format},width={width},height=64,framerate=25/1 ! c."
        )
    };
    let parts = [part("GRAY8", 96), part("I420", 96), part("NV12", 130), part("NV12", 96)].join(" ");
    let results = here.text("element.jsonl");
    let pipeline = parse(&format!(
        "concat name=c ! lockon name=l backend=cpu threshold=mean:5:2 depth=4 results={results} ! appsink name=out sync=false {parts}"
    ));
    let out = pipeline.by_name("out").unwrap().downcast::<gst_app::AppSink>().unwrap();
    pipeline.set_state(gst::State::Playing).unwrap();
    let mut seen = Vec::new();
    while let Ok(sample) = out.pull_sample() {
        let info = gst_video::VideoInfo::from_caps(sample.caps().unwrap()).unwrap();
        assert_eq!(sample.buffer().unwrap().size(), info.size(), "a frame has the caps it came with");
        seen.push((info.format().to_str().to_string(), info.width()));
    }
    pipeline.set_state(gst::State::Null).unwrap();
    let expected = [("GRAY8", 96), ("I420", 96), ("NV12", 130), ("NV12", 96)];
    let expected: Vec<_> =
        expected.iter().flat_map(|&(format, width)| vec![(format.to_owned(), width); 6]).collect();
    assert_eq!(seen, expected);
    let records = timeless(here.records("element.jsonl"));
    assert_eq!(records.len(), 29);
    let changes = records.iter().filter(|r| r["type"] == "caps").map(|r| r["frame"].as_u64().unwrap());
    assert_eq!(changes.collect::<Vec<_>>(), [6, 12, 18]);
    assert_eq!(records.iter().filter(|r| r["threshold"]["foreground"].is_number()).count(), 24);
    let mut command = with_plugin(program(), &here);
    command.args(["run", "--source", &format!("concat name=c ! appsink name=frames {parts}")]);
    command.args(["--threshold", "mean:5:2", "--backend", "cpu", "--results", "run.jsonl", "--no-progress"]);
    succeeds(&command.output().unwrap());
    assert_eq!(timeless(here.records("run.jsonl")), records);
}

#[test]
fn what_is_searched_can_be_changed_while_frames_pass() {
    let here = Place::new();
    lockon_core::still::save(&here.path("other.png"), noise(7, Size::new(9, 9)).as_ref()).unwrap();
    let element = here.element();
    let (x, y) = place(0);
    element.set_property("depth", 4u32);
    element.set_property("track", format!("{x},{y},15,13"));
    let bus = bus_of(&element);
    let mut harness = harness(&element, PixelFormat::GRAY8);
    let found = |from: u64, harness: &mut Harness| {
        for n in from..from + 10 {
            harness.push_and_pull(frame(n, PixelFormat::GRAY8)).unwrap();
        }
        let said = messages(&bus);
        let frames: Vec<u64> = said.iter().map(|s| s.get("frame").unwrap()).collect();
        assert_eq!(frames, (from..from + 10).collect::<Vec<_>>(), "no frame is lost");
        // A track continues through every change.
        assert!(said.iter().all(|s| list(s, "tracks")[0].get::<&str>("state").unwrap() == "tracked"));
        said.iter().map(|s| list(s, "matches").len()).collect::<Vec<_>>()
    };
    assert_eq!(found(0, &mut harness), [1; 10]);
    element.set_property("template", here.text("other.png"));
    assert_eq!(found(10, &mut harness), [0; 10]);
    element.set_property("min-score", -1.0);
    element.set_property("max-matches", 3u32);
    assert_eq!(found(20, &mut harness), [3; 10]);
    element.set_property("templates", gst::Array::new([format!("a={}", here.text("pattern.png"))]));
    element.set_property("min-score", 0.9);
    assert_eq!(found(30, &mut harness), [1; 10]);
    assert_eq!(element.property::<String>("template"), format!("a={}", here.text("pattern.png")));
}

/// Returns the next warning about a setting. Other messages before it are dropped.
fn warning(bus: &gst::Bus) -> String {
    let message = wait_for(bus, &[gst::MessageType::Warning]);
    let gst::MessageView::Warning(warning) = message.view() else { unreachable!() };
    assert!(warning.error().matches(gst::LibraryError::Settings));
    warning.error().message().to_owned()
}

/// Checks that the next warning reports a change that could not be made.
fn is_refused(bus: &gst::Bus, says: &str) {
    let said = warning(bus);
    assert!(said.contains(says) && said.ends_with("the earlier settings stay"), "{said}");
}

#[test]
fn a_value_without_meaning_is_told_and_taken_back_alone() {
    let here = Place::new();
    let element = here.element();
    let bus = bus_of(&element);
    let mut harness = harness(&element, PixelFormat::GRAY8);
    harness.push_and_pull(frame(0, PixelFormat::GRAY8)).unwrap();
    element.set_property("angles", "ten");
    is_refused(&bus, "expected FROM..TO, FROM..TO/STEP");
    assert_eq!(element.property::<String>("angles"), "0..0/1");
    // By names in which a list would fall apart.
    let name = here.text("a;b.png");
    std::fs::copy(here.path("pattern.png"), &name).unwrap();
    element.set_property("templates", gst::Array::new([&name]));
    element.set_property("template", "no/such.png");
    is_refused(&bus, "cannot read no/such.png");
    assert_eq!(element.property::<gst::Array>("templates").len(), 1);
    while bus.pop().is_some() {}
    harness.push_and_pull(frame(1, PixelFormat::GRAY8)).unwrap();
    assert_eq!(list(&messages(&bus)[0], "matches")[0].get::<&str>("template").unwrap(), "a;b");
}

#[test]
fn what_no_device_can_be_opened_for_is_taken_back_and_does_not_block_later_changes() {
    let here = Place::new();
    lockon_core::still::save(&here.path("wall.png"), noise(3, Size::new(200, 9)).as_ref()).unwrap();
    let element = here.element();
    element.set_property("min-score", 0.1);
    element.set_property("max-matches", 9u32);
    element.set_property_from_str("post-messages", "all");
    let bus = bus_of(&element);
    let mut harness = harness(&element, PixelFormat::GRAY8);
    let found = |harness: &mut Harness, frame| {
        harness.push_and_pull(frame).unwrap();
        list(&messages(&bus)[0], "matches").len()
    };
    let is_refused_with = |harness: &mut Harness, frame, says: &str| {
        harness.push_and_pull(frame).unwrap();
        is_refused(&bus, says);
        assert_eq!(messages(&bus).len(), 1, "the frame passes as the others");
    };
    let grey = |n| frame(n, PixelFormat::GRAY8);
    assert!(found(&mut harness, grey(0)) > 2);
    let notified = std::sync::Arc::new(AtomicUsize::new(0));
    let count = notified.clone();
    element.connect_notify(Some("roi"), move |_, _| _ = count.fetch_add(1, Ordering::SeqCst));
    // Only a frame shows that the box lies outside of it.
    element.set_property("roi", "90,10,20,20");
    is_refused_with(&mut harness, grey(1), "does not lie inside the 97x63 frame");
    assert_eq!(element.property::<Option<String>>("roi"), None);
    assert_eq!(notified.load(Ordering::SeqCst), 2, "set, and taken back");
    element.set_property("max-matches", 1u32);
    assert_eq!(found(&mut harness, grey(2)), 1, "the next change is made");
    // Two that are set by one call go together.
    element.set_properties(&[("max-matches", &2u32), ("template", &here.text("wall.png"))]);
    is_refused_with(&mut harness, grey(3), "is larger than what is searched");
    assert_eq!(element.property::<u32>("max-matches"), 1);
    assert_eq!(element.property::<Option<String>>("template"), Some(here.text("pattern.png")));
    // A change of size opens the device again, with the settings from before. This also holds if a change of
    // settings comes with the new size.
    let sized = |width: u32| {
        let kind = gst_video::VideoFormat::Gray8;
        let info = gst_video::VideoInfo::builder(kind, width, 64).fps((25, 1)).build().unwrap();
        let noise = noise(5, Size::new(info.size(), 1));
        (info.to_caps().unwrap(), gst::Buffer::from_slice(noise.data().to_vec()))
    };
    let (caps, buffer) = sized(130);
    harness.set_src_caps(caps);
    assert_eq!(found(&mut harness, buffer), 1);
    element.set_property("template", here.text("wall.png"));
    let (caps, buffer) = sized(160);
    harness.set_src_caps(caps);
    is_refused_with(&mut harness, buffer, "is larger than what is searched");
    element.set_property("max-matches", 2u32);
    assert_eq!(found(&mut harness, sized(160).1), 2);
    // The template that was too large before fits here.
    element.set_property("template", here.text("wall.png"));
    let (caps, buffer) = sized(230);
    harness.set_src_caps(caps);
    found(&mut harness, buffer);
    assert_eq!(element.property::<Option<String>>("template"), Some(here.text("wall.png")));
}

#[test]
fn changes_while_frames_are_in_flight_lose_and_reorder_nothing() {
    let here = Place::new();
    let element = here.element();
    element.set_property("depth", 8u32);
    let bus = bus_of(&element);
    let mut harness = harness(&element, PixelFormat::GRAY8);
    for n in 0..200u64 {
        if n % 9 == 4 {
            element.set_property("max-matches", 1 + (n % 4) as u32);
            element.set_property("min-score", if n % 2 == 0 { 0.9 } else { 0.2 });
        }
        harness.push(frame(n, PixelFormat::GRAY8)).unwrap();
    }
    for n in 0..200 {
        assert_eq!(harness.pull().unwrap().pts(), Some(n * FRAME));
    }
    let said = messages(&bus);
    assert_eq!(said.len(), 200);
    for (n, message) in (0..).zip(said) {
        let (x, y) = place(n);
        let best = &list(&message, "matches")[0];
        assert_eq!(
            (best.get::<u32>("x").unwrap(), best.get::<u32>("y").unwrap()),
            (x as u32, y as u32),
            "frame {n}"
        );
    }
}

#[test]
fn late_frames_are_dropped_before_they_are_searched_and_counted() {
    let here = Place::new();
    let element = here.element();
    let bus = bus_of(&element);
    let mut harness = harness(&element, PixelFormat::GRAY8);
    harness.push_and_pull(frame(0, PixelFormat::GRAY8)).unwrap();
    let late = |jitter| gst::event::Qos::new(gst::QOSType::Underflow, 1.5, jitter, 2 * FRAME);
    // At frame 2 the sink was two frames behind: what is due until frame 4 comes too late.
    harness.push_upstream_event(late(2 * FRAME.nseconds() as i64));
    for n in 1..7 {
        harness.push(frame(n, PixelFormat::GRAY8)).unwrap();
    }
    let came = [harness.pull().unwrap(), harness.pull().unwrap()];
    assert_eq!(came.each_ref().map(|b| b.pts().unwrap()), [5 * FRAME, 6 * FRAME]);
    assert_eq!(came.map(|b| b.flags().contains(gst::BufferFlags::DISCONT)), [true, false]);
    let numbers: Vec<u64> = {
        let mut all = Vec::new();
        let mut qos = 0;
        while let Some(message) = bus.pop() {
            match message.view() {
                gst::MessageView::Qos(m) => {
                    qos += 1;
                    assert_eq!(m.stats().1.value(), qos);
                }
                gst::MessageView::Element(m) => all.push(m.structure().unwrap().get("frame").unwrap()),
                _ => {}
            }
        }
        assert_eq!(qos, 4);
        all
    };
    assert_eq!(numbers, [0, 5, 6]);
    // On time again, and then late with `qos` off.
    harness.push_upstream_event(late(-1));
    harness.push_and_pull(frame(2, PixelFormat::GRAY8)).unwrap();
    element.set_property("qos", false);
    harness.push_upstream_event(late(900_000_000_000));
    harness.push_and_pull(frame(3, PixelFormat::GRAY8)).unwrap();
}

#[test]
fn serialised_queries_wait_for_the_frames_before_them() {
    let here = Place::new();
    let element = here.element();
    element.set_property("depth", 6u32);
    let passed = std::sync::Arc::new(AtomicUsize::new(0));
    let count = passed.clone();
    element.static_pad("src").unwrap().add_probe(gst::PadProbeType::BUFFER, move |_, _| {
        count.fetch_add(1, Ordering::SeqCst);
        gst::PadProbeReturn::Ok
    });
    let mut harness = harness(&element, PixelFormat::GRAY8);
    harness.add_propose_allocation_meta(gst_video::VideoMeta::meta_api(), None);
    let pad = element.static_pad("sink").unwrap().peer().unwrap();
    for n in 0..12 {
        harness.push(frame(n, PixelFormat::GRAY8)).unwrap();
        let mut query = gst::query::Allocation::new(Some(&caps(PixelFormat::GRAY8)), true);
        assert!(pad.peer_query(&mut query));
        assert_eq!(passed.load(Ordering::SeqCst) as u64, n + 1);
        assert!(
            query.find_allocation_meta::<gst_video::VideoMeta>().is_some(),
            "what downstream takes is passed on"
        );
        let (_, size, min, _) = query.allocation_pools().next().expect("frames that stay here need buffers");
        assert!(size as usize >= info(PixelFormat::GRAY8).size() && min >= 6 + 2, "{size} {min}");
    }
}

#[test]
fn a_hundred_changes_of_state_and_back() {
    let here = Place::new();
    let template = here.text("pattern.png");
    let pipeline = parse(&format!(
        "videotestsrc pattern=snow ! video/x-raw,format=I420,width=96,height=64 ! lockon name=l backend=cpu depth=4 template={template} \
         min-score=-1 ! fakesink"
    ));
    for cycle in 0..100 {
        pipeline.set_state(gst::State::Playing).unwrap();
        if cycle % 3 == 0 {
            // Frames are in flight.
            pipeline.state(LONG).0.unwrap();
            wait_for(&pipeline.bus().unwrap(), &[gst::MessageType::Element]);
        }
        if cycle % 4 == 0 {
            pipeline.set_state(gst::State::Paused).unwrap();
            pipeline.state(LONG).0.unwrap();
        }
        let down = [gst::State::Null, gst::State::Ready][cycle % 2];
        assert_eq!(pipeline.set_state(down).unwrap(), gst::StateChangeSuccess::Success, "cycle {cycle}");
    }
    pipeline.set_state(gst::State::Null).unwrap();
}

#[test]
fn after_ready_everything_begins_anew() {
    let here = Place::new();
    let element = here.element();
    element.set_property("results", here.text("out.jsonl"));
    for (format, frames) in [(PixelFormat::GRAY8, 5), (PixelFormat::Y444, 9)] {
        let mut harness = harness(&element, format);
        for n in 0..frames {
            harness.push_and_pull(frame(n, format)).unwrap();
        }
        drop(harness);
        element.set_state(gst::State::Ready).unwrap();
        let records = here.records("out.jsonl");
        assert_eq!(records.len() as u64, frames + 2);
        assert_eq!(
            (records[0]["format"].as_str(), records[1]["frame"].as_u64()),
            (Some(format.name), Some(0))
        );
        assert_eq!(records.last().unwrap()["interrupted"], true, "stopped before the end of the stream");
    }
    element.set_state(gst::State::Null).unwrap();
}

/// Returns the error after setting the element to PAUSED and pushing a frame.
fn error_of(set: impl Fn(&gst::Element)) -> gst::Message {
    let here = Place::new();
    let element = here.element();
    set(&element);
    let bus = bus_of(&element);
    if element.set_state(gst::State::Paused).is_ok() {
        let mut harness = harness(&element, PixelFormat::GRAY8);
        // Upstream gets the error too, sooner or later.
        let refused = (0..100).find_map(|n| {
            std::thread::sleep(Duration::from_millis(1));
            harness.push(frame(n, PixelFormat::GRAY8)).err()
        });
        assert_eq!(refused, Some(gst::FlowError::Error));
        drop(harness);
    }
    element.set_state(gst::State::Null).unwrap();
    bus.pop_filtered(&[gst::MessageType::Error]).expect("an error is told")
}

#[test]
fn errors_have_a_domain_a_code_and_a_remedy() {
    let is = |message: gst::Message, is_code: fn(&gst::glib::Error) -> bool, says: &str| {
        let gst::MessageView::Error(error) = message.view() else { unreachable!() };
        let said = error.error();
        assert!(is_code(&said) && said.message().contains(says), "{said:?}");
    };
    is(
        error_of(|e| e.set_property("template", "/no/such.png")),
        |e| e.matches(gst::ResourceError::NotFound),
        "cannot read /no/such.png",
    );
    is(
        error_of(|e| e.set_property("template", root().join("README.md").to_str())),
        |e| e.matches(gst::ResourceError::Read),
        "BMP and PNM are read",
    );
    is(
        error_of(|e| e.set_property("threshold", "mean:30:5")),
        |e| e.matches(gst::LibraryError::Settings),
        "block 30 is not an odd number",
    );
    is(
        error_of(|e| e.set_property("backend", "gpu")),
        |e| e.matches(gst::LibraryError::Settings),
        "expected auto, cpu, cuda",
    );
    is(
        error_of(|e| e.set_property("kernel", "ncc-shared")),
        |e| e.matches(gst::LibraryError::Settings),
        "it needs backend=cuda",
    );
    is(
        error_of(|e| e.set_property("results", "/no/folder/out.jsonl")),
        |e| e.matches(gst::ResourceError::NotFound),
        "cannot write /no/folder/out.jsonl",
    );
    is(
        error_of(|e| e.set_property("results", "out.txt")),
        |e| e.matches(gst::LibraryError::Settings),
        ".jsonl, .csv, .mot.txt, .cvat.xml, .coco.json",
    );
    // This error comes only with the first frame.
    is(
        error_of(|e| e.set_property("track", "90,10,20,20")),
        |e| e.matches(gst::LibraryError::Settings),
        "does not lie inside the 97x63 frame",
    );
    // And a disk that is full when something is written.
    let here = Place::new();
    std::os::unix::fs::symlink("/dev/full", here.path("full.jsonl")).unwrap();
    is(
        error_of(|e| e.set_property("results", here.text("full.jsonl"))),
        |e| e.matches(gst::ResourceError::Write),
        "No space left on device",
    );
}

#[test]
fn a_results_file_that_fails_is_closed_and_told_and_everything_else_goes_on() {
    let here = Place::new();
    let pipe = here.path("pipe.jsonl");
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    // Reads the head and two frames, and goes away.
    let reader = std::thread::spawn(move || {
        let pipe = std::io::BufReader::new(std::fs::File::open(pipe).unwrap());
        std::io::BufRead::lines(pipe).take(3).map(Result::unwrap).collect::<Vec<_>>()
    });
    let element = here.element();
    element.set_property("results", format!("{};{}", here.text("pipe.jsonl"), here.text("out.jsonl")));
    let bus = bus_of(&element);
    let mut harness = harness(&element, PixelFormat::GRAY8);
    for n in 0..2 {
        harness.push_and_pull(frame(n, PixelFormat::GRAY8)).unwrap();
    }
    assert_eq!(reader.join().unwrap().len(), 3);
    for n in 2..9 {
        harness.push_and_pull(frame(n, PixelFormat::GRAY8)).unwrap();
    }
    end(&mut harness);
    let records = here.records("out.jsonl");
    assert_eq!((records.len(), records[10]["frames"].as_u64()), (11, Some(9)));
    let complaints = [gst::MessageType::Warning, gst::MessageType::Error];
    let said: Vec<_> = bus.iter_filtered(&complaints).collect();
    assert_eq!(said.len(), 1, "{said:?}");
    let gst::MessageView::Warning(warning) = said[0].view() else { panic!("{said:?}") };
    assert!(warning.error().matches(gst::ResourceError::Write), "{warning:?}");
    let text = warning.error().message().to_owned();
    assert!(text.contains("pipe.jsonl: closed by its reader"), "{text}");
}

#[test]
fn a_frame_that_is_not_laid_out_as_its_caps_say_is_an_error() {
    let here = Place::new();
    let element = here.element();
    let bus = bus_of(&element);
    let mut harness = harness(&element, PixelFormat::GRAY8);
    // Rows that are shorter than the picture is wide, which nothing makes.
    let mut too_narrow = frame(0, PixelFormat::GRAY8);
    let buffer = too_narrow.get_mut().unwrap();
    let stride = SIZE.width as i32 - 9;
    let format = gst_video::VideoFormat::Gray8;
    let flags = gst_video::VideoFrameFlags::empty();
    let added = gst_video::VideoMeta::add_full(
        buffer,
        flags,
        format,
        SIZE.width as u32,
        SIZE.height as u32,
        &[0],
        &[stride],
    );
    assert!(added.is_ok());
    let _ = harness.push(too_narrow);
    let message = wait_for(&bus, &[gst::MessageType::Error]);
    let gst::MessageView::Error(error) = message.view() else { unreachable!() };
    let said = error.error().message().to_owned();
    assert!(said.contains("frame 0 is not laid out as its caps say"), "{said}");
    // Upstream gets the error after the bus does.
    let deadline = Instant::now() + Duration::from_secs(10);
    while harness.push(frame(1, PixelFormat::GRAY8)) != Err(gst::FlowError::Error) {
        assert!(Instant::now() < deadline, "frames are still taken");
    }
}

#[test]
fn an_error_downstream_reaches_upstream_and_ends_the_run() {
    let here = Place::new();
    let template = here.text("pattern.png");
    let pipeline = parse(&format!(
        "videotestsrc ! video/x-raw,format=GRAY8,width=96,height=64 ! lockon backend=cpu template={template} ! identity error-after=5 ! fakesink"
    ));
    pipeline.set_state(gst::State::Playing).unwrap();
    wait_for(&pipeline.bus().unwrap(), &[gst::MessageType::Error]);
    pipeline.set_state(gst::State::Null).unwrap();
    // And a downstream that has enough ends the stream without an error.
    play(&parse(&format!(
        "videotestsrc ! video/x-raw,format=GRAY8,width=96,height=64 ! lockon backend=cpu template={template} ! identity eos-after=5 ! fakesink"
    )));
}

#[test]
fn a_seek_goes_on_with_the_run_and_one_after_the_end_begins_another() {
    let here = Place::new();
    let (clip, results) = (root().join("examples/media/cars.mp4"), here.text("out.jsonl"));
    let pipeline = parse(&format!(
        "filesrc location={} ! decodebin ! lockon name=l backend=cpu template={} results={results} ! fakesink name=out sync=false",
        clip.display(),
        root().join("examples/media/car.png").display()
    ));
    let bus = pipeline.bus().unwrap();
    pipeline.set_state(gst::State::Paused).unwrap();
    pipeline.state(LONG).0.unwrap();
    let position = gst::ClockTime::from_seconds(2);
    let flags = gst::SeekFlags::FLUSH | gst::SeekFlags::ACCURATE;
    pipeline.seek_simple(flags, position).unwrap();
    pipeline.state(LONG).0.unwrap();
    pipeline.set_state(gst::State::Playing).unwrap();
    assert_eq!(
        wait_for(&bus, &[gst::MessageType::Eos, gst::MessageType::Error]).type_(),
        gst::MessageType::Eos
    );
    let records = here.records("out.jsonl");
    let times: Vec<_> = records.iter().filter_map(|r| r["pts_ns"].as_u64()).collect();
    let after = times.iter().position(|&t| t >= position.nseconds()).expect("frames after the seek");
    assert!(times[after..].is_sorted() && times[..after].len() < 20, "{times:?}");
    assert_eq!(times[after], position.nseconds());
    assert_eq!(records.last().unwrap()["type"], "summary");
    // From the start, after the end.
    pipeline.seek_simple(flags, gst::ClockTime::ZERO).unwrap();
    assert_eq!(
        wait_for(&bus, &[gst::MessageType::Eos, gst::MessageType::Error]).type_(),
        gst::MessageType::Eos
    );
    pipeline.set_state(gst::State::Null).unwrap();
    let records = here.records("out.jsonl");
    assert_eq!(
        (records.len(), records[1]["frame"].as_u64(), records[1]["pts_ns"].as_u64()),
        (62, Some(0), Some(0))
    );
}

#[test]
fn a_stream_can_be_ended_after_so_many_frames_whatever_upstream_still_sends() {
    let here = Place::new();
    let element = here.element();
    element.set_property("max-frames", 3u64);
    element.set_property("results", here.text("out.jsonl"));
    for _ in 0..2 {
        let mut harness = harness(&element, PixelFormat::GRAY8);
        for n in 0..3 {
            harness.push(frame(n, PixelFormat::GRAY8)).unwrap();
        }
        // Nothing more has to come.
        while harness.pull_event().unwrap().type_() != gst::EventType::Eos {}
        for n in 3..6 {
            assert_eq!(harness.push(frame(n, PixelFormat::GRAY8)), Err(gst::FlowError::Eos));
        }
        harness.push_event(gst::event::Eos::new());
        assert_eq!((harness.buffers_received(), harness.try_pull_event().is_none()), (3, true));
        let summary = here.records("out.jsonl").pop().unwrap();
        assert_eq!((summary["frames"].as_u64(), summary["interrupted"].as_bool()), (Some(3), Some(false)));
        // Refused frames are not counted by the run that a flush begins.
        harness.push_event(gst::event::FlushStart::new());
        harness.push_event(gst::event::FlushStop::new(true));
        harness.push_event(gst::event::Segment::new(&gst::FormattedSegment::<gst::ClockTime>::new()));
        for n in 0..3 {
            harness.push(frame(n, PixelFormat::GRAY8)).unwrap();
        }
        while harness.pull_event().unwrap().type_() != gst::EventType::Eos {}
        let numbers =
            here.records("out.jsonl").iter().filter_map(|r| r["frame"].as_u64()).collect::<Vec<_>>();
        assert_eq!(numbers, [0, 1, 2]);
    }
}

#[test]
fn two_elements_in_a_pipeline_and_sixteen_in_a_process() {
    let here = Place::new();
    let template = here.text("pattern.png");
    let source = "videotestsrc num-buffers=30 pattern=ball ! video/x-raw,format=I420,width=160,height=120";
    let ours = |name: &str| {
        let results = here.text(&format!("{name}.jsonl"));
        format!(
            "lockon backend=cpu threads=1 threshold=mean:7:3 min-score=-1 template={template} results={results}"
        )
    };
    play(&parse(&format!("{source} ! {} ! {} ! fakesink", ours("first"), ours("second"))));
    // The first draws into the picture that the second sees.
    assert_eq!((here.records("first.jsonl").len(), here.records("second.jsonl").len()), (32, 32));
    let pipelines: Vec<_> = (0..16)
        .map(|n| parse(&format!("{source} ! {} view=none ! fakesink", ours(&format!("of16-{n}")))))
        .collect();
    for pipeline in &pipelines {
        pipeline.set_state(gst::State::Playing).unwrap();
    }
    for pipeline in &pipelines {
        let end = wait_for(&pipeline.bus().unwrap(), &[gst::MessageType::Eos, gst::MessageType::Error]);
        assert_eq!(end.type_(), gst::MessageType::Eos, "{end:?}");
        pipeline.set_state(gst::State::Null).unwrap();
    }
    let all: Vec<_> = (0..16).map(|n| timeless(here.records(&format!("of16-{n}.jsonl")))).collect();
    assert_eq!(all[0].len(), 32);
    assert!(all.iter().all(|records| *records == all[0]));
}

#[test]
fn a_live_pipeline_learns_the_latency_when_the_rate_is_known() {
    let here = Place::new();
    let template = here.text("pattern.png");
    // The sink drops nothing: on a machine that is busy with other tests any frame may be late.
    let pipeline = parse(&format!(
        "videotestsrc is-live=true num-buffers=15 ! video/x-raw,format=I420,width=96,height=64,framerate=25/1 \
         ! lockon name=l backend=cpu threads=1 qos=false template={template} ! fakesink name=out sync=true"
    ));
    pipeline.set_state(gst::State::Playing).unwrap();
    let bus = pipeline.bus().unwrap();
    let of_interest = [gst::MessageType::Latency, gst::MessageType::Eos, gst::MessageType::Error];
    let mut asked = 0;
    loop {
        match wait_for(&bus, &of_interest).type_() {
            gst::MessageType::Latency => {
                asked += 1;
                pipeline.recalculate_latency().unwrap();
            }
            gst::MessageType::Eos => break,
            _ => panic!("the pipeline failed"),
        }
    }
    let mut latency = gst::query::Latency::new();
    assert!(asked > 0 && pipeline.query(&mut latency));
    let (is_live, min, _) = latency.result();
    assert!(is_live && (FRAME..=4 * FRAME).contains(&min), "{min}");
    let rendered =
        pipeline.by_name("out").unwrap().property::<gst::Structure>("stats").get::<u64>("rendered").unwrap();
    assert_eq!(rendered, 15);
    pipeline.set_state(gst::State::Null).unwrap();
}

/// The repository, whose files tests read: `LOCKON_ROOT`, or where this was built.
fn root() -> PathBuf {
    let named = std::env::var_os("LOCKON_ROOT").map(PathBuf::from);
    named.unwrap_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_owned())
}

/// Where cargo puts what it builds: beside the folder that this program lies in.
fn built() -> PathBuf {
    std::env::current_exe().unwrap().parent().unwrap().parent().unwrap().to_owned()
}

/// The path of the program.
fn program() -> PathBuf {
    let program = std::env::var_os("LOCKON_BIN").map_or_else(|| built().join("lockon"), PathBuf::from);
    assert!(program.exists(), "{} is not there: run `cargo build` first", program.display());
    program
}

/// A command of another process, which knows the plugin by its file.
fn with_plugin(program: impl AsRef<std::ffi::OsStr>, here: &Place) -> Command {
    // Beside the tests, which are linked with it; `cargo build` alone puts one into the folder above too.
    let beside = || std::env::current_exe().unwrap().with_file_name("libgstlockon.so");
    let file = std::env::var_os("LOCKON_PLUGIN").map_or_else(beside, PathBuf::from);
    assert!(file.exists(), "{} is not there", file.display());
    // A folder of its own, as what else lies in cargo's is no plugin, and a link, as a copy takes 200 MB.
    let folder = here.path("plugins");
    if !folder.exists() {
        std::fs::create_dir(&folder).unwrap();
        std::os::unix::fs::symlink(file.canonicalize().unwrap(), folder.join("libgstlockon.so")).unwrap();
    }
    let mut command = Command::new("timeout");
    command.arg("120").arg(program.as_ref());
    command.env("GST_PLUGIN_PATH", &folder).env("GST_REGISTRY", here.path("registry.bin"));
    command.env("G_DEBUG", "fatal_warnings").current_dir(here.0.path());
    command
}

fn succeeds(output: &Output) -> String {
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{}{said}", String::from_utf8_lossy(&output.stdout));
    said
}

/// Records without what depends on the clock, the machine, or how the input is named.
fn timeless(mut records: Vec<Value>) -> Vec<Value> {
    for record in &mut records {
        let record = record.as_object_mut().unwrap();
        if record["type"] == "summary" {
            record.retain(|key, _| ["type", "frames", "dropped", "interrupted"].contains(&key.as_str()));
        }
        let is_of_the_run =
            ["backend", "device", "driver", "decoder", "started", "input", "command", "picture", "pictures"];
        record.retain(|key, _| !key.ends_with("_us") && !is_of_the_run.contains(&key.as_str()));
    }
    records
}

#[test]
fn gst_inspect_shows_the_element_with_its_licence_and_properties() {
    let here = Place::new();
    let output = with_plugin("gst-inspect-1.0", &here).arg("lockon").output().unwrap();
    assert!(output.status.success());
    let text = String::from_utf8_lossy(&output.stdout);
    for part in ["MIT/X11", "min-score", "changeable in NULL, READY, PAUSED or PLAYING", "GstLockonView"] {
        assert!(text.contains(part), "{part} is not in\n{text}");
    }
}

#[test]
fn as_an_element_a_run_writes_the_same_results() {
    let here = Place::new();
    let cars = root().join("examples/media/cars.mp4");
    let car = format!("car={}", root().join("examples/media/car.png").display());
    // A file whose frames are JPEG, with a name that needs quotes twice over.
    let avi = here.path("it's a \"clip\".avi");
    let clip = parse(
        "videotestsrc num-buffers=30 pattern=smpte ! video/x-raw,width=160,height=120 ! jpegenc ! avimux ! filesink name=f",
    );
    clip.by_name("f").unwrap().set_property("location", &avi);
    play(&clip);
    let jobs: [(&Path, &[&str]); 2] = [
        (
            &cars,
            &[
                "--template",
                &car,
                "--track-matches",
                "--track",
                "318,245,172,110@18",
                "--threshold",
                "sauvola:31:0.2",
            ],
        ),
        (&avi, &["--track", "20,70,40,30", "--track", "60,75,30,40@5", "--max-frames", "25", "--depth", "3"]),
    ];
    for (input, options) in jobs {
        let run = |results: &str, more: &[&str]| {
            let mut command = with_plugin(program(), &here);
            command.arg("run").arg(input).args(options).args(["--backend", "cpu", "--results", results]);
            command.args(more).output().unwrap()
        };
        succeeds(&run("run.jsonl", &["-y", "--no-progress"]));
        let printed = run("element.jsonl", &["--print-pipeline", "--as-element"]);
        let line = String::from_utf8(printed.stdout.clone()).unwrap();
        succeeds(&printed);
        assert_eq!(line.lines().count(), 1, "{line}");
        assert!(line.starts_with("gst-launch-1.0 ") && line.contains(" ! lockon "), "{line}");
        succeeds(&with_plugin("sh", &here).args(["-c", &line]).output().unwrap());
        let (run, element) = (timeless(here.records("run.jsonl")), timeless(here.records("element.jsonl")));
        assert!(run.len() > 20);
        assert_eq!(run, element, "{line}");
    }
}

#[test]
fn as_an_element_a_run_writes_the_same_video() {
    let here = Place::new();
    let cars = root().join("examples/media/cars.mp4");
    let mut command = with_plugin(program(), &here);
    command.arg("run").arg(&cars).args(["--threshold", "mean:31:5", "--view", "split", "--max-frames", "12"]);
    command.args([
        "--backend",
        "cpu",
        "-o",
        "out.mkv",
        "--sink",
        "appsrc name=results ! filesink name=file location=raw",
    ]);
    let printed = command.args(["--no-audio", "--print-pipeline", "--as-element"]).output().unwrap();
    let line = String::from_utf8(printed.stdout.clone()).unwrap();
    succeeds(&printed);
    succeeds(&with_plugin("sh", &here).args(["-c", &line]).output().unwrap());
    let raw = std::fs::metadata(here.path("raw")).unwrap().len();
    assert_eq!(raw, 12 * CARS.area() as u64 * 3 / 2, "{line}");
    assert!(std::fs::metadata(here.path("out.mkv")).unwrap().len() > 1000, "{line}");
}

#[test]
fn the_printed_line_drops_frames_where_the_program_does() {
    let here = Place::new();
    let cars = root().join("examples/media/cars.mp4");
    let cars = cars.to_str().unwrap();
    let (live, file) =
        ("videotestsrc is-live=true ! appsink name=frames", "videotestsrc ! appsink name=frames");
    // The arguments, and whether the line keeps time by itself, drops older frames, and drops late ones.
    for (typed, expected) in [
        (vec![cars], [false, false, false]),
        (vec![cars, "--live"], [true, true, true]),
        (vec!["--source", file], [false, false, false]),
        (vec!["--source", live], [false, true, true]),
        (vec!["--source", live, "--lossless"], [false, false, false]),
        (vec!["rtsp://127.0.0.1:1/none"], [false, true, true]),
        (vec!["camera:/dev/video0"], [false, true, true]),
        (vec!["camera:/dev/video0", "--lossless"], [false, false, false]),
    ] {
        let mut command = with_plugin(program(), &here);
        command.arg("run").args(&typed).args(["--track", "0,0,9,9", "--print-pipeline", "--as-element"]);
        let printed = command.output().unwrap();
        let line = String::from_utf8(printed.stdout.clone()).unwrap();
        succeeds(&printed);
        let paced = line.contains("clocksync ! queue");
        let keeps_newest = line.contains("queue leaky=downstream max-size-buffers=1");
        let drops_late = !line.contains(" qos=false");
        assert_eq!([paced, keeps_newest, drops_late], expected, "{typed:?}: {line}");
    }
    let mut command = with_plugin(program(), &here);
    command.args(["run", cars, "--track", "0,0,9,9", "--print-pipeline", "--as-element"]);
    let said = succeeds(&command.args(["--metrics", "127.0.0.1:0", "--report", "r.html"]).output().unwrap());
    for option in ["--metrics", "--report"] {
        assert!(said.contains(&format!("{option} is left out")), "{said}");
    }
}

/// True if examples in Python can be started. If not, the test reports it.
fn has_pygobject() -> bool {
    let tried =
        Command::new("/usr/bin/python3").args(["-c", "import gi; gi.require_version('Gst', '1.0')"]).output();
    let is_there = tried.is_ok_and(|tried| tried.status.success());
    if !is_there {
        // scripts/setup --to-test installs it where there is apt.
        test_log::missing("RTSP", "no PyGObject (apt-get install python3-gi)");
    }
    is_there
}

#[test]
fn the_example_behind_a_detector_follows_what_it_finds_in_one_frame() {
    let here = Place::new();
    if !has_pygobject() {
        return;
    }
    std::fs::write(here.path("boxes.csv"), "frame,x,y,w,h\n18,318,245,172,110\n").unwrap();
    let mut command = with_plugin("/usr/bin/python3", &here);
    command.arg(root().join("examples/behind_a_detector.py")).arg(root().join("examples/media/cars.mp4"));
    // PyGObject's own warnings are not errors of the example.
    let output = command.args(["boxes.csv", "9"]).env_remove("G_DEBUG").output().unwrap();
    succeeds(&output);
    let said = String::from_utf8(output.stdout).unwrap();
    assert_eq!(said.lines().next(), Some("18 1 object tracked 318.0 245.0 172.0 110.0"), "{said}");
    // The frames after it, up to the last in which there is a track.
    assert!(said.lines().count() > 20, "{said}");
    for (frame, line) in (18..).zip(said.lines()) {
        assert!(line.starts_with(&format!("{frame} 1 object ")), "{line}");
    }
}

#[test]
fn the_example_in_python_prints_every_match() {
    let here = Place::new();
    if !has_pygobject() {
        return;
    }
    let media = root().join("examples/media");
    let mut command = with_plugin(root().join("examples/read_matches.py"), &here);
    // PyGObject's own warnings are not errors of the example.
    let output = command.env_remove("G_DEBUG").args([media.join("cars.mp4"), media.join("car.png")]).output();
    let output = output.unwrap();
    succeeds(&output);
    let mut run = with_plugin(program(), &here);
    run.arg("run").arg(media.join("cars.mp4")).arg("--template").arg(media.join("car.png"));
    succeeds(&run.args(["--results", "run.jsonl", "--no-progress"]).output().unwrap());
    let expected: Vec<_> = here.records("run.jsonl").iter().flat_map(printed).collect();
    let said = String::from_utf8(output.stdout).unwrap();
    let came: Vec<_> = said.lines().map(|line| line.split(", score").next().unwrap().to_owned()).collect();
    assert!(came.len() > 10, "{said}");
    assert_eq!(came, expected);
}

/// Returns the lines that the example prints of a frame, up to the score.
fn printed(record: &Value) -> Vec<String> {
    let seconds = record["pts_ns"].as_u64().unwrap_or_default() as f64 / 1e9;
    let matches = record["matches"].as_array().into_iter().flatten();
    let line = |m: &Value| {
        let place = ["x", "y", "w", "h"].map(|side| format!("{side}=(uint){}", m[side]));
        format!(
            "{seconds:?} match, template=(string){}, {}",
            m["template"].as_str().unwrap(),
            place.join(", ")
        )
    };
    matches.map(line).collect()
}

#[test]
fn on_a_gpu_the_element_finds_what_it_finds_on_the_cpu() {
    if test_log::gpu_or_skip(lockon_run::backend::cuda::device(0)).is_none() {
        return;
    }
    let here = Place::new();
    let [cpu, cuda] = ["cpu", "cuda"].map(|backend| {
        let element = here.element();
        let results = format!("{backend}.jsonl");
        for (property, value) in [
            ("backend", backend),
            ("threshold", "sauvola:15:0.2"),
            ("track", "0,0,15,13"),
            ("scales", "0.8..1.25/1.25"),
            ("results", &here.text(&results)),
        ] {
            element.set_property(property, value);
        }
        element.set_property("min-score", 0.2);
        element.set_property("depth", 4u32);
        let mut harness = harness(&element, PixelFormat::Y444);
        for n in 0..30 {
            if n == 15 {
                element.set_property("max-matches", 3u32);
            }
            harness.push_and_pull(frame(n, PixelFormat::Y444)).unwrap();
        }
        end(&mut harness);
        timeless(here.records(&results))
    });
    assert_eq!(cpu, cuda);
}

/// NVDEC is not needed for this, only GStreamer's CUDA plugin.
#[test]
fn frames_that_lie_on_a_gpu_have_the_results_and_the_drawings_of_those_on_the_host() {
    let here = Place::new();
    let is_there = |name: &str| gst::ElementFactory::find(name).is_some();
    if !is_there("cudaupload") || !lockon_gst::cuda::is_usable() {
        return test_log::missing("GPU", "GStreamer has no CUDA here");
    }
    // Rows without padding, an alignment that nothing guarantees.
    for (width, height, format) in [(320, 240, "NV12"), (216, 158, "I420"), (320, 182, "Y444")] {
        let [host, gpu] = [("cpu", "identity", "identity"), ("cuda", "cudaupload", "cudadownload")].map(|(backend, up, down)| {
            let (results, pictures) = (here.text(&format!("{backend}.jsonl")), here.text(&format!("{backend}.raw")));
            let text = format!(
                "videotestsrc num-buffers=40 pattern=ball motion=wavy ! video/x-raw,format={format},width={width},height={height} \
                 ! {up} ! lockon backend={backend} track=10,10,40,40 threshold=mean:15:3 view=overlay results={results} \
                 ! {down} ! video/x-raw ! filesink location={pictures}"
            );
            let pipeline = gst::parse::launch(&text).unwrap();
            pipeline.set_state(gst::State::Playing).unwrap();
            let end = pipeline.bus().unwrap().timed_pop_filtered(
                gst::ClockTime::from_seconds(60),
                &[gst::MessageType::Eos, gst::MessageType::Error],
            );
            pipeline.set_state(gst::State::Null).unwrap();
            assert_eq!(end.map(|end| end.type_()), Some(gst::MessageType::Eos), "{text}");
            (timeless(here.records(&format!("{backend}.jsonl"))), std::fs::read(pictures).unwrap())
        });
        assert_eq!(host.0, gpu.0, "{format}");
        assert!(host.1 == gpu.1, "{format}: pictures differ");
        assert_eq!(host.0.len(), 42, "a run, its frames, a summary");
    }
}

/// Returns the objects that the tracer of leaks reports as still alive. The tracer's own lines are no leaks:
/// `object-alive.class`, and the format of its lines.
fn alive(said: &str) -> Vec<&str> {
    said.lines().filter(|line| line.contains("object-alive, type-name=(string)Gst")).collect()
}

fn under_the_tracer(command: &mut Command) -> &mut Command {
    command.env("GST_TRACERS", "leaks").env("GST_DEBUG", "GST_TRACER:7").env("GST_DEBUG_NO_COLOR", "1")
}

/// Separates the objects that are alive after one round from those after the next.
const ROUND: &str = "-- a round is over --";

/// Not a test by itself: after each round it asks the tracer to log the objects that are alive.
#[test]
#[ignore = "changes_and_seeks_leak_nothing starts it, in a process of its own"]
#[allow(clippy::print_stderr, reason = "where the tracer's lines go")]
fn rounds_under_the_tracer() {
    let here = Place::new();
    let tracer = gst::active_tracers().into_iter().next().expect("the tracer runs");
    for _ in 0..3 {
        changes_and_seeks(&here);
        // Threads of stopped tasks release what they hold in their own time.
        std::thread::sleep(Duration::from_millis(300));
        tracer.emit_by_name::<()>("log-live-objects", &[]);
        eprintln!("{ROUND}");
    }
}

#[test]
fn changes_and_seeks_leak_nothing() {
    let here = Place::new();
    let mut command = with_plugin(std::env::current_exe().unwrap(), &here);
    under_the_tracer(&mut command).args(["--ignored", "--exact", "rounds_under_the_tracer", "--nocapture"]);
    let said = succeeds(&command.output().unwrap());
    let kinds = |round: &str| {
        let mut kinds = std::collections::BTreeMap::<String, usize>::new();
        for line in alive(round) {
            let kind = line.split("type-name=(string)").nth(1).unwrap().split(',').next().unwrap();
            *kinds.entry(kind.to_owned()).or_default() += 1;
        }
        kinds
    };
    let [_, second, third, _] = &said.split(ROUND).map(kinds).collect::<Vec<_>>()[..] else {
        panic!("{said}")
    };
    // The process keeps factories and their caps for as long as it lives: the tracer sees those.
    assert!(second.contains_key("GstElementFactory"), "{second:?}");
    assert!(
        !["GstLockon", "GstBuffer", "GstEvent"].iter().any(|kind| third.contains_key(*kind)),
        "{third:?}"
    );
    assert_eq!(second, third);
}

/// Frames of several sizes, a seek with frames in flight, and one after the end.
fn changes_and_seeks(here: &Place) {
    let part = |format: &str, width| {
        format!(
            "videotestsrc num-buffers=6 ! video/x-raw,format={format},width={width},height=64,framerate=25/1 ! c."
        )
    };
    let parts = [part("GRAY8", 96), part("I420", 96), part("NV12", 130)].join(" ");
    let template = here.text("pattern.png");
    let ours =
        format!("lockon backend=cpu threads=1 depth=4 threshold=mean:5:2 min-score=-1 template={template}");
    play(&parse(&format!("concat name=c ! {ours} ! fakesink {parts}")));
    let cars = root().join("examples/media/cars.mp4");
    let pipeline = parse(&format!(
        "filesrc location={} ! decodebin ! {ours} track=318,245,172,110 ! fakesink",
        cars.display()
    ));
    let bus = pipeline.bus().unwrap();
    pipeline.set_state(gst::State::Playing).unwrap();
    wait_for(&bus, &[gst::MessageType::Element]);
    for _ in 0..2 {
        let flags = gst::SeekFlags::FLUSH | gst::SeekFlags::ACCURATE;
        pipeline.seek_simple(flags, gst::ClockTime::from_seconds(2)).unwrap();
        let end = wait_for(&bus, &[gst::MessageType::Eos, gst::MessageType::Error]);
        assert_eq!(end.type_(), gst::MessageType::Eos, "{end:?}");
    }
}

#[test]
fn a_straight_run_leaks_nothing() {
    let here = Place::new();
    let template = here.text("pattern.png");
    let mut command = with_plugin("gst-launch-1.0", &here);
    under_the_tracer(&mut command).args(
        "-q videotestsrc num-buffers=40 pattern=smpte ! video/x-raw,format=I420,width=160,height=120 !"
            .split(' '),
    );
    command.args("lockon backend=cpu threshold=mean:7:3 depth=4 min-score=-1 track=0,70,40,40".split(' '));
    let said =
        succeeds(&command.arg(format!("template={template}")).args(["!", "fakesink"]).output().unwrap());
    assert!(said.contains("object-alive.class"), "the tracer did not run: {said}");
    assert!(alive(&said).is_empty(), "{}", alive(&said).join("\n"));
}

/// The ids and states of a frame's tracks.
fn states(message: &gst::StructureRef) -> Vec<(u32, String)> {
    let track = |track: &gst::Structure| (track.get("id").unwrap(), track.get("state").unwrap());
    list(message, "tracks").iter().map(track).collect()
}

#[test]
fn what_is_followed_can_be_changed_by_signals_while_frames_pass_and_repeated_from_the_records() {
    let here = Place::new();
    let element = || {
        gst::ElementFactory::make("lockon")
            .property("backend", "cpu")
            .property("threshold", "mean:5:2")
            .property_from_str("view", "none")
    };
    let driven = element().property("results", here.text("driven.jsonl")).build().unwrap();
    let box_of = |n: u64| {
        let (x, y) = place(n);
        [x as u32, y as u32, 15, 13]
    };
    let follow = |[x, y, w, h]: [u32; 4]| driven.emit_by_name::<u32>("follow", &[&x, &y, &w, &h]);
    let bus = bus_of(&driven);
    let mut harness = harness(&driven, PixelFormat::GRAY8);
    // No frame has come yet that the box could be in.
    assert_eq!(follow(box_of(0)), 0);
    assert!(warning(&bus).contains("no run is active"));
    let mut n = 0;
    let mut push = |count: u64| {
        for _ in 0..count {
            harness.push_and_pull(frame(n, PixelFormat::GRAY8)).unwrap();
            n += 1;
        }
    };
    let pass = |push: &mut dyn FnMut(u64), count: u64| {
        push(count);
        messages(&bus).iter().map(|message| states(message)).collect::<Vec<_>>()
    };
    assert_eq!(pass(&mut push, 3), [vec![], vec![], vec![]]);
    assert_eq!(follow(box_of(3)), 1);
    assert_eq!(follow([30, 20, 12, 12]), 2);
    let said = pass(&mut push, 4);
    let both = |state: &str| vec![(1, state.to_owned()), (2, state.to_owned())];
    assert_eq!(said[0], both("tracked"), "from the next frame on");
    assert_eq!(said.len(), 4);
    let [x, y, w, h] = box_of(7);
    assert!(driven.emit_by_name::<bool>("correct", &[&2_u32, &x, &y, &w, &h]));
    assert!(driven.emit_by_name::<bool>("forget", &[&1_u32]));
    let said = pass(&mut push, 4);
    assert!(said.iter().all(|tracks| *tracks == [(2, "tracked".to_owned())]), "{said:?}");
    // An order that cannot be carried out is reported when it is tried.
    assert_eq!(follow([90, 60, 15, 13]), 3);
    assert!(driven.emit_by_name::<bool>("forget", &[&1_u32]));
    push(1);
    let said = [warning(&bus), warning(&bus)];
    assert!(
        said[0].contains("cannot follow 90,60,15,13 as track 3: track box 90,60,15,13 does not lie"),
        "{said:?}"
    );
    assert!(said[1].contains("cannot forget track 1: there is no such track: there are 2"), "{said:?}");
    assert!(driven.emit_by_name::<bool>("clear", &[]));
    messages(&bus);
    push(3);
    assert!(messages(&bus).iter().all(|message| states(message).is_empty()));
    end(&mut harness);
    drop(harness);
    driven.set_state(gst::State::Null).unwrap();

    let records = here.records("driven.jsonl");
    let orders: Vec<_> = records.iter().filter(|record| record["type"] == "control").collect();
    let words: Vec<_> = orders.iter().map(|record| record["order"].as_str().unwrap()).collect();
    assert_eq!(words, ["follow", "follow", "correct", "forget", "follow", "forget", "clear"]);
    assert_eq!(orders.iter().filter(|record| record["refused"].is_string()).count(), 2, "{orders:?}");

    let again = element()
        .property("results", here.text("again.jsonl"))
        .property("control", here.text("driven.jsonl"))
        .build()
        .unwrap();
    let mut harness = self::harness(&again, PixelFormat::GRAY8);
    for index in 0..n {
        harness.push_and_pull(frame(index, PixelFormat::GRAY8)).unwrap();
    }
    end(&mut harness);
    drop(harness);
    again.set_state(gst::State::Null).unwrap();
    assert_eq!(timeless(records), timeless(here.records("again.jsonl")));
}

/// A sample of a picture.
fn sample(picture: &Plane, format: gst_video::VideoFormat) -> gst::Sample {
    let size = picture.size();
    let info = gst_video::VideoInfo::builder(format, size.width as u32, size.height as u32).build().unwrap();
    let pixels = info.format_info().pixel_stride()[0] as usize;
    let mut bytes = vec![0xff; info.size()];
    for (row, line) in bytes.chunks_mut(info.stride()[0] as usize).zip(picture.as_ref().rows()) {
        for (pixel, &value) in row.chunks_mut(pixels).zip(line) {
            pixel[..pixels.min(3)].fill(value);
        }
    }
    gst::Sample::builder().buffer(&gst::Buffer::from_slice(bytes)).caps(&info.to_caps().unwrap()).build()
}

#[test]
fn what_is_searched_can_be_changed_by_signals_and_properties_and_repeated_from_the_records() {
    let here = Place::new();
    let driven = here.element();
    driven.set_property("results", here.text("driven.jsonl"));
    let bus = bus_of(&driven);
    let add =
        |name: &str, sample: &gst::Sample| driven.emit_by_name::<bool>("add-template", &[&name, sample]);
    let remove = |name: &str| driven.emit_by_name::<bool>("remove-template", &[&name]);
    let kind = gst_video::VideoFormat::Bgra;
    // In READY there is no search that it could be added to.
    assert!(!add("a", &sample(&pattern(), kind)));
    assert!(warning(&bus).contains("cannot add template \"a\" (15x13): the element is in READY or NULL"));
    let mut harness = harness(&driven, PixelFormat::GRAY8);
    let mut n = 0;
    let mut pass = |count: u64| -> Vec<Vec<String>> {
        for _ in 0..count {
            let pushed = frame(n, PixelFormat::GRAY8);
            let map = pushed.map_readable().unwrap();
            let luma: Vec<u8> = map.chunks(100).flat_map(|row| row[..SIZE.width].to_vec()).collect();
            let path = here.path(&format!("{n:04}.png"));
            lockon_core::still::save(&path, Plane::from_vec(luma, SIZE).as_ref()).unwrap();
            drop(map);
            harness.push_and_pull(pushed).unwrap();
            n += 1;
        }
        let names = |said: &gst::Structure| {
            list(said, "matches").iter().map(|found| found.get::<String>("template").unwrap()).collect()
        };
        messages(&bus).iter().map(names).collect()
    };
    assert_eq!(pass(3), [["pattern"]; 3]);
    assert!(add("a", &sample(&pattern(), kind)));
    assert_eq!(pass(3), [["pattern", "a"]; 3]);
    // The file's template is not searched any more, and the property shows that.
    assert!(remove("pattern"));
    assert_eq!(driven.property::<Option<String>>("template"), None);
    assert_eq!(pass(3), [["a"]; 3]);
    assert!(remove("pattern"));
    assert!(!add("b", &sample(&Plane::new(Size::new(9, 9)), kind)));
    assert!(!driven.emit_by_name::<bool>("add-template", &[&"b", &None::<gst::Sample>]));
    let said = [warning(&bus), warning(&bus)];
    assert!(said[0].contains("template \"b\"") && said[1].contains("there is no sample"), "{said:?}");
    pass(1);
    // (`pass` has skipped the warning that the frame caused.) Several settings by one call are one change:
    // the region alone would leave no room for the template.
    let set = |settings: &[(&str, &dyn ToValue)]| driven.set_properties(settings);
    set(&[("template", &here.text("pattern.png")), ("roi", &"0,0,12,12"), ("min-score", &0.5)]);
    pass(1);
    assert_eq!(driven.property::<f64>("min-score"), 0.8);
    assert_eq!(driven.property::<Option<String>>("template"), None);
    set(&[("template", &here.text("pattern.png")), ("roi", &"0,0,97,40"), ("threshold", &"mean:7:3")]);
    pass(9);
    // A template that has the name of the file's template replaces it.
    assert!(add("pattern", &sample(&noise(5, Size::new(9, 9)), gst_video::VideoFormat::Gray8)));
    assert_eq!(driven.property::<Option<String>>("template"), None);
    driven.set_property("min-score", -1.0);
    assert_eq!(pass(3).last().unwrap(), &["a", "pattern"]);
    end(&mut harness);
    drop(harness);
    driven.set_state(gst::State::Null).unwrap();

    let records = here.records("driven.jsonl");
    let orders: Vec<_> = records.iter().filter(|record| record["type"] == "control").collect();
    assert!(orders.iter().all(|record| record["order"] == "change"), "{orders:?}");
    let refused: Vec<_> = orders.iter().map(|record| record["refused"].is_string()).collect();
    assert_eq!(refused, [false, false, true, true, false, false, false]);
    assert_eq!(orders[4]["add"][0]["luma"].as_str().unwrap().len(), 260);

    let again = here.element();
    again.set_property("results", here.text("again.jsonl"));
    again.set_property("control", here.text("driven.jsonl"));
    let mut harness = self::harness(&again, PixelFormat::GRAY8);
    for index in 0..n {
        harness.push_and_pull(frame(index, PixelFormat::GRAY8)).unwrap();
    }
    end(&mut harness);
    drop(harness);
    again.set_state(gst::State::Null).unwrap();
    let records = timeless(records);
    assert_eq!(records, timeless(here.records("again.jsonl")));

    let mut command = with_plugin(program(), &here);
    command.args(["run", "%04d.png", "--template", "pattern.png", "--backend", "cpu", "--no-progress"]);
    command.args(["--control", "driven.jsonl", "--results", "program.jsonl"]);
    succeeds(&command.output().unwrap());
    let between = |records: Vec<Value>| records[1..records.len() - 1].to_vec();
    assert_eq!(between(timeless(here.records("program.jsonl"))), between(records));
}

#[test]
fn what_was_changed_before_a_run_began_is_repeated_from_its_records_too() {
    let here = Place::new();
    let driven = here.element();
    driven.set_property("results", here.text("driven.jsonl"));
    let bus = bus_of(&driven);
    let other = sample(&noise(5, Size::new(9, 9)), gst_video::VideoFormat::Gray8);
    let add = |name: &str| assert!(driven.emit_by_name::<bool>("add-template", &[&name, &other]));
    let mut harness = harness(&driven, PixelFormat::GRAY8);
    add("other");
    driven.set_property("min-score", -1.0);
    driven.set_property("max-matches", 2u32);
    let pass = |harness: &mut Harness, count: u64| {
        for n in 0..count {
            harness.push_and_pull(frame(n, PixelFormat::GRAY8)).unwrap();
        }
        end(harness);
    };
    pass(&mut harness, 3);
    std::fs::copy(here.path("driven.jsonl"), here.path("first.jsonl")).unwrap();
    // Between two runs, and once more than there are differences.
    driven.set_property("max-matches", 9u32);
    driven.set_property("max-matches", 1u32);
    add("another");
    driven.set_property("threshold", "mean:7:3");
    assert!(harness.push_event(gst::event::StreamStart::new("second")));
    assert!(harness.push_event(gst::event::Caps::new(&caps(PixelFormat::GRAY8))));
    let segment = gst::FormattedSegment::<gst::ClockTime>::new();
    assert!(harness.push_event(gst::event::Segment::new(&segment)));
    pass(&mut harness, 4);
    drop(harness);
    driven.set_state(gst::State::Null).unwrap();
    assert!(bus.pop_filtered(&[gst::MessageType::Warning]).is_none());
    assert_eq!(driven.property::<u32>("max-matches"), 1);

    let names = |record: &Value| -> Vec<String> {
        let matches = record["matches"].as_array().unwrap().iter();
        matches.map(|found| found["template"].as_str().unwrap().to_owned()).collect()
    };
    let (first, second) = (vec!["pattern", "pattern", "other", "other"], vec!["pattern", "other", "another"]);
    // Templates and limits, and then a threshold too.
    for (file, frames, found, changes) in [("first.jsonl", 3, first, 2), ("driven.jsonl", 4, second, 3)] {
        let records = here.records(file);
        let orders: Vec<_> = records.iter().filter(|record| record["type"] == "control").collect();
        assert_eq!(orders.len(), changes, "{orders:?}");
        assert!(orders.iter().all(|order| order["frame"] == 0 && order["refused"].is_null()), "{orders:?}");
        let results: Vec<_> = records.iter().filter(|record| record["type"] == "frame").collect();
        assert_eq!(results.len(), frames);
        assert_eq!(names(results[0]), found);

        let again = here.element();
        again.set_property("results", here.text("again.jsonl"));
        again.set_property("control", here.text(file));
        let mut harness = self::harness(&again, PixelFormat::GRAY8);
        pass(&mut harness, frames as u64);
        drop(harness);
        again.set_state(gst::State::Null).unwrap();
        assert_eq!(timeless(records), timeless(here.records("again.jsonl")));
    }
}

#[test]
fn a_change_before_the_first_frame_that_cannot_be_done_is_taken_back_and_frames_pass() {
    let here = Place::new();
    let element = here.element();
    let bus = bus_of(&element);
    let mut harness = harness(&element, PixelFormat::GRAY8);
    element.set_property("roi", "90,10,20,20");
    element.set_property("max-matches", 3u32);
    element.set_property("min-score", -1.0);
    harness.push_and_pull(frame(0, PixelFormat::GRAY8)).unwrap();
    is_refused(&bus, "does not lie inside the 97x63 frame");
    assert_eq!(element.property::<Option<String>>("roi"), None);
    while bus.pop().is_some() {}
    harness.push_and_pull(frame(1, PixelFormat::GRAY8)).unwrap();
    assert_eq!(list(&messages(&bus)[0], "matches").len(), 3, "what can be done is");
}

#[test]
fn threads_that_change_everything_at_once_hold_up_no_frame() {
    let here = Place::new();
    let element = here.element();
    element.set_property("results", here.text("driven.jsonl"));
    let mut harness = harness(&element, PixelFormat::GRAY8);
    harness.push_and_pull(frame(0, PixelFormat::GRAY8)).unwrap();
    let is_over = std::sync::Arc::new(AtomicBool::new(false));
    let threads: Vec<_> = (0..4)
        .map(|seed: u64| {
            let (element, is_over) = (element.clone(), is_over.clone());
            let (picture, file) =
                (sample(&pattern(), gst_video::VideoFormat::Gray8), here.text("pattern.png"));
            std::thread::spawn(move || {
                let numbers = noise(seed, Size::new(1 << 16, 1));
                for number in numbers.data().iter().take_while(|_| !is_over.load(Ordering::SeqCst)) {
                    let name = ["pattern", "a", "b"][usize::from(number / 16 % 3)];
                    let side = u32::from(number / 8) + 9;
                    match number % 8 {
                        0 => {
                            let args: [&dyn ToValue; 2] = [&name, &picture];
                            let _ = element.emit_by_name::<bool>("add-template", &args);
                        }
                        1 => _ = element.emit_by_name::<bool>("remove-template", &[&name]),
                        2 => element.set_property("template", &file),
                        3 => element.set_property("roi", format!("{number},0,{side},{side}")),
                        4 => {
                            let most = side % 5 + 1;
                            let both: [(&str, &dyn ToValue); 2] = [("roi", &""), ("max-matches", &most)];
                            element.set_properties(&both);
                        }
                        5 => element.set_property("threshold", if side % 2 == 0 { "" } else { "mean:7:3" }),
                        6 => _ = element.emit_by_name::<u32>("follow", &[&(side / 2), &9_u32, &side, &side]),
                        _ => _ = element.emit_by_name::<bool>("clear", &[]),
                    }
                    std::thread::sleep(Duration::from_millis(1));
                }
            })
        })
        .collect();
    for n in 1..120 {
        harness.push_and_pull(frame(n, PixelFormat::GRAY8)).unwrap();
    }
    is_over.store(true, Ordering::SeqCst);
    for thread in threads {
        thread.join().unwrap();
    }
    end(&mut harness);
    drop(harness);
    element.set_state(gst::State::Null).unwrap();
    let records = here.records("driven.jsonl");
    let mut next = 0;
    for record in &records[1..records.len() - 1] {
        assert_eq!(record["frame"], next, "{record}");
        next += u64::from(record["type"] == "frame");
    }
    let changes = records.iter().filter(|record| record["order"] == "change").count();
    assert!(next == 120 && changes > 20, "{next} frames, {changes} changes");
}

#[test]
fn the_first_error_on_the_bus_says_what_was_wrong() {
    // Upstream posts an error of its own when it gets the failure; that error has no details.
    for _ in 0..20 {
        let pipeline = parse(
            "videotestsrc num-buffers=50 ! video/x-raw,format=I420,width=320,height=240 ! \
             lockon track=300,200,50,50 backend=cpu ! fakesink",
        );
        pipeline.set_state(gst::State::Playing).unwrap();
        let error = wait_for(&pipeline.bus().unwrap(), &[gst::MessageType::Error]);
        let gst::MessageView::Error(error) = error.view() else { unreachable!() };
        let said = error.error().to_string();
        assert!(said.contains("track box 300,200,50,50 does not lie inside the 320x240 frame"), "{said}");
    }
}

#[test]
fn a_change_of_one_setting_reads_no_file_again() {
    let here = Place::new();
    let element = here.element();
    let bus = bus_of(&element);
    let mut harness = harness(&element, PixelFormat::GRAY8);
    harness.push_and_pull(frame(0, PixelFormat::GRAY8)).unwrap();
    // Another picture has the name by now, and then none.
    lockon_core::still::save(&here.path("pattern.png"), noise(7, Size::new(9, 9)).as_ref()).unwrap();
    element.set_property("min-score", 0.7);
    harness.push_and_pull(frame(1, PixelFormat::GRAY8)).unwrap();
    std::fs::remove_file(here.path("pattern.png")).unwrap();
    element.set_property("max-matches", 2u32);
    element.set_property("threshold", "mean:7:3");
    harness.push_and_pull(frame(2, PixelFormat::GRAY8)).unwrap();
    let said = messages(&bus);
    let found: Vec<_> = said.iter().map(|s| list(s, "matches")[0].get::<u32>("w").unwrap()).collect();
    assert_eq!(found, [15; 3]);
    assert!(said[2].has_field("foreground"));
    // Where other files are named they are read.
    element.set_property("template", here.text("pattern.png"));
    element.set_property("template", here.text("other.png"));
    is_refused(&bus, "cannot read");
}

#[test]
fn a_property_that_counts_from_the_next_start_on_says_so_when_it_is_set_later() {
    let here = Place::new();
    let element = here.element();
    element.set_property("track", "10,10,15,13");
    let bus = bus_of(&element);
    let mut harness = harness(&element, PixelFormat::GRAY8);
    harness.push_and_pull(frame(0, PixelFormat::GRAY8)).unwrap();
    assert!(bus.pop_filtered(&[gst::MessageType::Warning]).is_none());
    for property in ["track", "backend"] {
        element.set_property(property, Some(if property == "track" { "1,1,15,13" } else { "auto" }));
        let said = warning(&bus);
        assert!(said.starts_with(&format!("{property} was set while the element runs")), "{said}");
    }
}

#[test]
fn a_track_that_is_lost_is_told_and_does_not_lie_on_the_frame() {
    let here = Place::new();
    let element = here.element();
    element.set_property("min-score", 0.95);
    let (x, y) = place(0);
    element.set_property("track", format!("{x},{y},15,13"));
    let bus = bus_of(&element);
    let mut harness = harness(&element, PixelFormat::GRAY8);
    harness.push_and_pull(frame(0, PixelFormat::GRAY8)).unwrap();
    let mut states_and_regions = Vec::new();
    for n in 1..30 {
        let mut black = frame(n, PixelFormat::GRAY8);
        black.get_mut().unwrap().map_writable().unwrap().fill(16);
        let passed = harness.push_and_pull(black).unwrap();
        let said = messages(&bus);
        states_and_regions.push((states(&said[0])[0].1 == "lost", regions(&passed).len()));
    }
    assert!(states_and_regions.last().unwrap().0, "{states_and_regions:?}");
    assert!(
        states_and_regions.iter().all(|(is_lost, count)| *is_lost == (*count == 0)),
        "{states_and_regions:?}"
    );
}

#[test]
fn two_elements_put_regions_with_different_ids_on_a_frame_and_keep_what_others_put_there() {
    let here = Place::new();
    let first = here.element();
    let second = here.element();
    let (x, y) = place(0);
    for element in [&first, &second] {
        element.set_property("track", format!("{x},{y},15,13"));
    }
    let bin = gst::Bin::new();
    bin.add_many([&first, &second]).unwrap();
    first.link(&second).unwrap();
    for (element, name) in [(&first, "sink"), (&second, "src")] {
        let pad = gst::GhostPad::with_target(&element.static_pad(name).unwrap()).unwrap();
        bin.add_pad(&pad).unwrap();
    }
    let mut harness = Harness::with_element(&bin, Some("sink"), Some("src"));
    harness.set_src_caps(caps(PixelFormat::GRAY8));
    let mut ids = Vec::new();
    for n in 0..5 {
        let mut buffer = frame(n, PixelFormat::GRAY8);
        let mut region =
            gst_video::VideoRegionOfInterestMeta::add(buffer.get_mut().unwrap(), "person", (1, 2, 3, 4));
        region.set_id(-7);
        let passed = harness.push_and_pull(buffer).unwrap();
        let metas = passed.iter_meta::<gst_video::VideoRegionOfInterestMeta>();
        ids.push(metas.map(|meta| (meta.roi_type().to_owned(), meta.id())).collect::<Vec<_>>());
    }
    assert_eq!(ids[0].len(), 5);
    assert!(ids.iter().all(|found| *found == ids[0]), "a track keeps its id: {ids:?}");
    assert_eq!(ids[0][0], ("person".to_owned(), -7));
    let mut all: Vec<_> = ids[0].iter().map(|(_, id)| *id).collect();
    all.sort_unstable();
    all.dedup();
    assert_eq!(all.len(), 5, "{ids:?}");
}

#[test]
fn where_nobody_reads_the_bus_messages_stop_and_come_again_when_one_was_read() {
    let here = Place::new();
    let element = here.element();
    let bus = bus_of(&element);
    let mut harness = harness(&element, PixelFormat::GRAY8);
    let mut n = 0;
    let mut push = |count: u64| {
        for _ in 0..count {
            harness.push_and_pull(frame(n, PixelFormat::GRAY8)).unwrap();
            n += 1;
        }
    };
    push(600);
    let unread = messages(&bus).len();
    assert!((200..=260).contains(&unread), "{unread}");
    push(10);
    assert_eq!(messages(&bus).len(), 10);
}

#[test]
fn a_box_that_is_dragged_in_a_window_downstream_is_followed_and_a_click_forgets_it() {
    let here = Place::new();
    let element = here.element();
    element.set_property("navigation", true);
    element.set_property("min-score", 0.999);
    let bus = bus_of(&element);
    let mut harness = harness(&element, PixelFormat::GRAY8);
    let mouse = |harness: &mut Harness, event: &str, (x, y): (f64, f64)| {
        let structure = gst::Structure::builder("application/x-gst-navigation")
            .field("event", event)
            .field("button", 1)
            .field("pointer_x", x)
            .field("pointer_y", y)
            .build();
        harness.push_upstream_event(gst::event::Navigation::new(structure));
    };
    let push = |harness: &mut Harness, frames: std::ops::Range<u64>| {
        for n in frames {
            harness.push_and_pull(frame(n, PixelFormat::GRAY8)).unwrap();
        }
        messages(&bus).iter().map(|message| states(message)).collect::<Vec<_>>()
    };
    push(&mut harness, 0..10);
    let (x, y) = place(9);
    mouse(&mut harness, "mouse-button-press", (x as f64, y as f64));
    mouse(&mut harness, "mouse-button-release", (x as f64 + 15.0, y as f64 + 13.0));
    let said = push(&mut harness, 10..14);
    assert!(said.iter().all(|tracks| *tracks == [(1, "tracked".to_owned())]), "{said:?}");
    let (x, y) = place(13);
    for event in ["mouse-button-press", "mouse-button-release"] {
        mouse(&mut harness, event, (x as f64 + 7.0, y as f64 + 6.0));
    }
    assert!(push(&mut harness, 14..17).iter().all(Vec::is_empty));
}

#[test]
fn what_a_detector_finds_now_and_then_is_followed_in_between_under_one_number() {
    let here = Place::new();
    let element = gst::ElementFactory::make("lockon")
        .property("backend", "cpu")
        .property("track-detections", true)
        .property("detection-type", "thing")
        .property("min-detection-score", 0.5)
        .property("results", here.text("out.jsonl"))
        .property_from_str("view", "none")
        .build()
        .unwrap();
    let bus = bus_of(&element);
    let mut harness = harness(&element, PixelFormat::GRAY8);
    let detect = |buffer: &mut gst::Buffer, label: &str, n: u64, score: f64| {
        let (x, y) = place(n);
        // A detector's box is off by a pixel.
        let rect = (x as u32 + (n / 10 % 2) as u32, y as u32, 15, 13);
        let mut region = gst_video::VideoRegionOfInterestMeta::add(buffer.get_mut().unwrap(), label, rect);
        region.add_param(gst::Structure::builder("detection").field("confidence", score).build());
    };
    for n in 0..40 {
        let mut buffer = frame(n, PixelFormat::GRAY8);
        match n % 10 {
            2 => detect(&mut buffer, "thing", n, 0.9),
            // Not sure enough, and of another class.
            0 => detect(&mut buffer, "thing", n, 0.4),
            5 => detect(&mut buffer, "other", n, 0.9),
            _ => {}
        }
        let passed = harness.push_and_pull(buffer).unwrap();
        let (x, y) = place(n);
        let said = messages(&bus);
        if n < 2 {
            assert!(said.is_empty(), "frame {n}");
            continue;
        }
        let tracks = list(&said[0], "tracks");
        assert_eq!(tracks.len(), 1, "frame {n}: {tracks:?}");
        let track = &tracks[0];
        assert_eq!(
            (track.get::<u32>("id").unwrap(), track.get::<&str>("template").unwrap()),
            (1, "thing"),
            "frame {n}"
        );
        let off =
            (track.get::<f64>("x").unwrap() - x as f64).hypot(track.get::<f64>("y").unwrap() - y as f64);
        assert!(off < 4.0, "frame {n}: {off:.1} pixels off");
        let regions: Vec<_> = passed
            .iter_meta::<gst_video::VideoRegionOfInterestMeta>()
            .map(|meta| {
                let params: Vec<_> = meta.params().map(|param| param.name().to_string()).collect();
                (meta.roi_type().to_string(), params)
            })
            .collect();
        let region = |label: &str, params: &[&str]| {
            (label.to_owned(), params.iter().map(ToString::to_string).collect::<Vec<_>>())
        };
        let expected = match n % 10 {
            // The object lies on the frame once.
            2 => vec![region("thing", &["detection", "object_id"])],
            0 => vec![region("thing", &["detection"]), region("thing", &["track"])],
            5 => vec![region("other", &["detection"]), region("thing", &["track"])],
            _ => vec![region("thing", &["track"])],
        };
        assert_eq!(regions, expected, "frame {n}");
    }
    end(&mut harness);
    drop(harness);
    element.set_state(gst::State::Null).unwrap();
    let records = here.records("out.jsonl");
    let detections: Vec<_> = records
        .iter()
        .filter_map(|record| Some((record["frame"].as_u64()?, record["detections"].as_array()?.len())))
        .collect();
    assert_eq!(detections, [(2, 1), (12, 1), (22, 1), (32, 1)]);
}
