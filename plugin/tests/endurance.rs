//! What the element holds must not grow over many starts, and with many elements in one process.
//!
//! These take minutes, so they are run by name (scripts/endurance), and print what they measure.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on says so")]
#![allow(unreachable_pub, reason = "nothing outside this binary can reach anything")]

#[path = "../../tests/held.rs"]
mod held;

use std::path::Path;
use std::sync::Once;
use std::time::{Duration, Instant};

use gst::prelude::*;
use held::{Held, asked, backend_name, lives, rest, watch};
use lockon::frame::{Plane, Size};

/// Longer than anything here takes, unless it hangs.
const LONG: gst::ClockTime = gst::ClockTime::from_seconds(60);

/// A pipeline with an element that searches, follows, binarises, and writes its results into a file of its own.
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
        lockon::still::save(&pattern, plane.as_ref()).unwrap();
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

/// Stops it. How many frames have come out.
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
            let held = Held::at_rest().tell(&format!("cycle {cycle}"), started);
            // An allocator takes a while to have what it will keep.
            if cycle >= cycles / 4 {
                warm.get_or_insert(held).check(held);
            }
        }
    }
    assert!(frames > cycles, "frames came: {frames}");
}

#[test]
#[ignore = "takes a minute: scripts/endurance"]
fn sixteen_elements_run_in_one_process() {
    let (elements, rounds) = (asked("LOCKON_STREAMS", 16), asked("LOCKON_ROUNDS", 9));
    let seconds = asked("LOCKON_SECONDS", 10 * rounds);
    assert!(rounds > 3, "LOCKON_ROUNDS: the third round is what later ones are held to");
    watch();
    let (dir, started) = (tempfile::tempdir().unwrap(), Instant::now());
    Held::now().tell("before", started);
    let (mut during, mut after) = (Vec::new(), Vec::new());
    for round in 1..=rounds {
        let source = "videotestsrc is-live=true pattern=checkers-8 ! video/x-raw,format=NV12,width=320,height=240,framerate=10/1";
        let pipelines: Vec<_> = (0..elements).map(|number| pipeline(dir.path(), number, source)).collect();
        for pipeline in &pipelines {
            pipeline.set_state(gst::State::Playing).unwrap();
        }
        rest(Duration::from_secs_f64(seconds as f64 / rounds as f64));
        during.push(Held::now().tell(&format!("round {round}"), started));
        let frames: Vec<_> = pipelines.iter().map(stopped).collect();
        drop(pipelines);
        assert!(frames.iter().all(|frames| *frames > 0), "an element gave nothing: {frames:?}");
        after.push(Held::at_rest().tell("after it", started));
        #[allow(clippy::print_stdout, reason = "what is measured is told")]
        {
            println!("{} frames", frames.iter().sum::<u64>());
        }
    }
    // What is kept for the next round is in use again while that runs: freed memory by the C library, threads by GLib.
    let warm = during[2];
    during[3..].iter().for_each(|later| warm.check(*later));
    assert!(after.iter().all(|held| held.descriptors == after[0].descriptors), "{after:?}");
}
