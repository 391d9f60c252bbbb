//! The engine between ends in memory.

use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};

use lockon::Error;
use lockon::config::Limits;
use lockon::frame::{Plane, Rect, Size};
use lockon::results::FrameRecord;
use lockon::template::Template;

use crate::util::{Heard, Job, MemorySink, MemorySource, noise, paste};

const SIZE: Size = Size::new(123, 65);

/// A picture of noise with a patch at a place that depends on `index`, and the patch's place.
fn scene(index: usize, patch: &Plane) -> (Plane, (usize, usize)) {
    let mut picture = noise(1000 + index as u64, SIZE);
    let (x, y) = ((index * 7) % (SIZE.width - 17), (index * 5) % (SIZE.height - 11));
    paste(&mut picture, patch, x, y);
    (picture, (x, y))
}

fn patch() -> Plane {
    noise(1, Size::new(17, 11))
}

fn job() -> Job {
    Job { templates: vec![Template::new("patch", patch(), None).unwrap()], ..Job::default() }
}

fn pictures(count: usize) -> Vec<Plane> {
    (0..count).map(|index| scene(index, &patch()).0).collect()
}

/// Without what depends on the clock.
fn timeless(mut record: FrameRecord) -> FrameRecord {
    record.latency_us = 0;
    record.tracker_us = record.tracker_us.map(|_| 0);
    record
}

fn same(a: &[FrameRecord], b: &[FrameRecord]) -> bool {
    let text = |records: &[FrameRecord]| {
        records.iter().map(|r| serde_json::to_string(&timeless(r.clone())).unwrap()).collect::<Vec<_>>()
    };
    text(a) == text(b)
}

#[test]
fn every_frame_is_delivered_in_order_with_its_own_match() {
    let records = job().records(&pictures(20));
    assert_eq!(records.len(), 20);
    for (index, record) in records.iter().enumerate() {
        assert_eq!((record.frame, record.pts_ns), (index as u64, Some(index as u64 * 40_000_000)));
        let (_, (x, y)) = scene(index, &patch());
        let found = &record.matches[0];
        assert_eq!((found.rect(), found.score), (Rect::new(x, y, 17, 11), 1.0), "frame {index}");
    }
}

#[test]
fn results_are_the_same_for_every_depth_and_number_of_threads() {
    let pictures = pictures(12);
    let limits = Limits { min_score: 0.1, max_matches: 50, max_overlap: 0.5 };
    let tracks = vec!["0,0,17,11".parse().unwrap()];
    let threshold = Some("gaussian:11:2".parse().unwrap());
    let with = |depth, threads| {
        Job { limits, depth, threads, threshold, tracks: tracks.clone(), ..job() }.records(&pictures)
    };
    let expected = with(1, 1);
    for (depth, threads) in [(2, 1), (2, 2), (3, 3), (8, 5)] {
        assert!(same(&with(depth, threads), &expected), "depth {depth}, {threads} threads");
    }
}

#[test]
fn masks_belong_to_their_frame_however_long_they_are_held() {
    let pictures = pictures(6);
    let sink = MemorySink::default();
    let heard = sink.heard.clone();
    let spec = "mean:5:1".parse().unwrap();
    let job = Job { threshold: Some(spec), ..Job::default() };
    job.run(&mut MemorySource::new(&pictures), vec![Box::new(sink)]).1.unwrap();
    for (picture, mask) in pictures.iter().zip(&heard.lock().unwrap().masks) {
        let expected = lockon::reference::threshold::threshold(picture.as_ref(), &spec);
        assert_eq!(**mask.as_ref().unwrap(), expected);
    }
}

#[test]
fn frames_before_an_error_are_delivered_and_the_error_is_told() {
    let mut source = MemorySource::new(&pictures(5));
    source.frames.push_back(Err(Error::NoVideo { input: "x".into(), reason: "broke".into() }));
    let sink = MemorySink::default();
    let heard = sink.heard.clone();
    let (summary, outcome) = job().run(&mut source, vec![Box::new(sink)]);
    assert!(matches!(outcome, Err(Error::NoVideo { .. })));
    let heard = heard.lock().unwrap();
    assert_eq!((summary.frames, heard.records.len(), heard.finished), (5, 5, 1));
}

#[test]
fn a_failing_sink_ends_the_run_and_the_others_are_finished() {
    let (good, bad) = (MemorySink::default(), MemorySink { fails_at: Some(3), ..MemorySink::default() });
    let (heard, heard_bad) = (good.heard.clone(), bad.heard.clone());
    let (summary, outcome) =
        job().run(&mut MemorySource::new(&pictures(9)), vec![Box::new(good), Box::new(bad)]);
    assert_eq!(summary.frames, 3, "frames that every sink took");
    assert!(matches!(outcome, Err(Error::Output { .. })));
    let told = |heard: &Mutex<Heard>| {
        let heard = heard.lock().unwrap();
        (heard.records.len(), heard.finished)
    };
    assert_eq!((told(&heard), told(&heard_bad)), ((4, 1), (3, 1)));
}

#[test]
fn a_stopped_run_completes_the_frames_in_flight() {
    let stop = Arc::new(AtomicBool::new(false));
    let sink = MemorySink { stops_at: Some((4, stop.clone())), ..MemorySink::default() };
    let heard = sink.heard.clone();
    let job = Job { stop, depth: 3, ..job() };
    let (summary, outcome) = job.run(&mut MemorySource::new(&pictures(50)), vec![Box::new(sink)]);
    outcome.unwrap();
    assert!(summary.interrupted);
    // Frame 4 was delivered with two more in flight.
    assert_eq!((summary.frames, heard.lock().unwrap().records.len()), (7, 7));
}

#[test]
fn max_frames_ends_the_run_exactly_there() {
    let records = Job { max_frames: Some(7), depth: 3, ..job() }.records(&pictures(20));
    assert_eq!(records.last().map(|r| r.frame), Some(6));
}

#[test]
fn a_change_of_frame_size_drains_and_goes_on() {
    let mut pictures = pictures(4);
    let mut larger = noise(77, Size::new(201, 99));
    paste(&mut larger, &patch(), 150, 80);
    pictures.push(larger);
    let records = job().records(&pictures);
    assert_eq!(records.len(), 5);
    assert_eq!(records[4].matches[0].rect(), Rect::new(150, 80, 17, 11));
}

#[test]
fn a_template_larger_than_the_frame_is_refused_with_both_sizes() {
    let mut job = job();
    job.templates = vec![Template::new("wall", noise(5, Size::new(200, 20)), None).unwrap()];
    let bank = lockon::template::Bank::new(job.templates.clone()).unwrap();
    let said = bank.fitting(SIZE).unwrap_err().to_string();
    assert_eq!(said, "no template fits: the smallest is 200x20, the searched area 123x65");
}

#[test]
fn a_track_box_outside_the_frame_is_refused_before_any_frame() {
    let job = Job { tracks: vec!["120,0,10,10@3".parse().unwrap()], ..Job::default() };
    let (summary, outcome) = job.run(&mut MemorySource::new(&pictures(5)), vec![]);
    let said = outcome.unwrap_err().to_string();
    assert_eq!(
        (said.as_str(), summary.frames),
        ("track box 120,0,10,10 does not lie inside the 123x65 frame", 0)
    );
}

#[test]
fn a_result_is_not_held_back_for_the_next_frame() {
    // Whenever the engine waits for a frame, all results of the frames before must be out.
    let sink = MemorySink::default();
    let heard = sink.heard.clone();
    let mut source = MemorySource { is_slow: true, watched: Some(heard), ..MemorySource::new(&pictures(3)) };
    job().run(&mut source, vec![Box::new(sink)]).1.unwrap();
    assert_eq!(source.heard_at_wait, [0, 1, 2, 3]);
}
