//! The element's resources must not grow over many starts, with many elements in one process, and over many
//! frames.
//!
//! These take minutes to half an hour, so they are run by name (scripts/endurance), and print what they
//! measure.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on says so")]
#![allow(unreachable_pub, reason = "nothing outside this binary can reach anything")]

#[path = "../../tests/resources.rs"]
mod resources;

use std::path::Path;
use std::sync::{Arc, Mutex, Once};
use std::time::{Duration, Instant};

use gst::prelude::*;
use lockon_core::frame::{Plane, Size};
use resources::{Pulse, Resources, asked, backend_name, lives, rounds, watch};

/// Longer than anything here takes, unless it hangs.
const LONG: gst::ClockTime = gst::ClockTime::from_seconds(60);

/// A pipeline with an element that searches, follows, binarises, and writes its results into a file of its
/// own.
fn pipeline(dir: &Path, number: u64, source: &str) -> gst::Pipeline {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        gst::init().unwrap();
        gstlockon::register().unwrap();
    });
    let pattern = dir.join("pattern.png");
    if !pattern.exists() {
        let pixels = (0..15 * 13).map(|n: u32| (n * 97 % 251) as u8).collect();
        let plane = Plane::from_vec(pixels, Size::new(15, 13));
        lockon_core::still::save(&pattern, plane.as_ref()).unwrap();
    }
    let text = format!(
        "{source} ! lockon name=l threads=2 min-score=-1 track=40,40,64,64 threshold=mean:15:5 ! fakesink name=end sync=false"
    );
    let pipeline = gst::parse::launch(&text).unwrap().downcast::<gst::Pipeline>().unwrap();
    let element = pipeline.by_name("l").unwrap();
    element.set_property("template", pattern.to_str());
    element.set_property("results", dir.join(format!("{number}.jsonl")).to_str());
    element.set_property("backend", backend_name());
    pipeline
}

/// Stops it. Returns the number of frames that have come out.
fn stopped(pipeline: &gst::Pipeline) -> u64 {
    let error = pipeline.bus().unwrap().pop_filtered(&[gst::MessageType::Error]);
    assert!(error.is_none(), "{error:?}");
    let stats = pipeline.by_name("end").unwrap().property::<gst::Structure>("stats");
    pipeline.set_state(gst::State::Null).unwrap();
    lives();
    stats.get("rendered").unwrap()
}

#[test]
#[ignore = "takes minutes: scripts/endurance"]
fn a_thousand_starts_and_stops_of_the_element_leave_nothing_behind() {
    let cycles = asked("LOCKON_CYCLES", 1000);
    watch();
    let (dir, started) = (tempfile::tempdir().unwrap(), Instant::now());
    let (mut warm, mut frames) = (None, 0);
    for cycle in 1..=cycles {
        let source = "videotestsrc pattern=snow ! video/x-raw,format=I420,width=320,height=240";
        let pipeline = pipeline(dir.path(), 0, source);
        pipeline.set_state(gst::State::Playing).unwrap();
        match cycle % 4 {
            // Before, while and after it starts.
            0 => std::thread::sleep(Duration::from_millis(cycle * 7 % 64)),
            1 => pipeline.state(LONG).0.map(|_| ()).unwrap(),
            // Frames are in flight.
            2 => {
                pipeline.bus().unwrap().timed_pop_filtered(LONG, &[gst::MessageType::Element]).unwrap();
            }
            _ => {}
        }
        frames += stopped(&pipeline);
        drop(pipeline);
        if cycle % (cycles / 20).max(1) == 0 {
            let held = Resources::at_rest().tell(&format!("cycle {cycle}"), started);
            // An allocator takes a while until it has the memory that it will keep.
            if cycle >= cycles / 4 {
                warm.get_or_insert(held).check(held);
            }
        }
    }
    // Few, where a backend takes longer to open than a pipeline lasts.
    assert!(frames > 0, "no frame came");
}

#[test]
#[ignore = "takes a minute: scripts/endurance"]
fn sixteen_elements_run_in_one_process() {
    let dir = tempfile::tempdir().unwrap();
    rounds(Resources::now, Resources::at_rest, |elements, while_they_run| {
        let source = "videotestsrc is-live=true pattern=checkers-8 ! video/x-raw,format=NV12,width=320,height=240,framerate=10/1";
        let pipelines: Vec<_> = (0..elements).map(|number| pipeline(dir.path(), number, source)).collect();
        for pipeline in &pipelines {
            pipeline.set_state(gst::State::Playing).unwrap();
        }
        while_they_run();
        let frames: Vec<_> = pipelines.iter().map(stopped).collect();
        assert!(frames.iter().all(|frames| *frames > 0), "an element gave nothing: {frames:?}");
        format!("{} frames", frames.iter().sum::<u64>())
    });
}

#[test]
#[ignore = "takes half an hour: scripts/endurance"]
fn many_frames_of_1080p_through_the_element_leave_nothing_behind() {
    let (frames, rate) = (asked("LOCKON_FRAMES", 100_000), asked("LOCKON_RATE", 60));
    watch();
    let dir = tempfile::tempdir().unwrap();
    // As in the program's test: frames that do not keep up with the source are dropped, in front of the
    // element.
    let source = format!(
        "videotestsrc is-live=true pattern=checkers-8 ! video/x-raw,format=NV12,width=1920,height=1080,framerate={rate}/1 \
         ! queue name=newest leaky=downstream max-size-buffers=1 max-size-bytes=0 max-size-time=0"
    );
    let pipeline = pipeline(dir.path(), 0, &source);
    let element = pipeline.by_name("l").unwrap();
    // No template: the test measures resources, and a search of 1080p takes the CPU far longer than a frame.
    // frame.
    element.set_property("template", None::<&str>);
    element.set_property("max-frames", frames);
    let pulse = Arc::new(Mutex::new(Pulse::of(frames)));
    let beating = pulse.clone();
    element.static_pad("src").unwrap().add_probe(gst::PadProbeType::BUFFER, move |_, _| {
        beating.lock().unwrap().beat(Resources::now);
        gst::PadProbeReturn::Ok
    });
    let bus = pipeline.bus().unwrap();
    pipeline.set_state(gst::State::Playing).unwrap();
    // The results of every frame are also posted on the bus, and received as a program would do.
    let ends = [gst::MessageType::Element, gst::MessageType::Eos, gst::MessageType::Error];
    let mut posted = 0;
    let last = loop {
        let message = bus.timed_pop_filtered(LONG, &ends).expect("frames come");
        match message.view() {
            gst::MessageView::Element(_) => posted += 1,
            _ => break message,
        }
    };
    assert_eq!(last.type_(), gst::MessageType::Eos, "{last:?}");
    assert_eq!(stopped(&pipeline), frames);
    assert_eq!((pulse.lock().unwrap().check(), posted), (frames, frames));
}
