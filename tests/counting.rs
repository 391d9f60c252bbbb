//! Objects of a mask are followed and counted across lines.

use crate::util::{Job, MemorySink, MemorySource, backends};
use lockon::config::{CountingLine, ObjectSpec, ThresholdSpec, Zone};
use lockon::control::Control;
use lockon::frame::{Plane, Size};
use lockon::orders::Order;
use lockon::results::{FrameRecord, LineSummary, Summary, TrackState};

const SIZE: Size = Size::new(243, 161);

/// A bright rectangle: left, top, width, height.
type Blob = [usize; 4];

fn picture(blobs: &[Blob]) -> Plane {
    let mut plane = Plane::from_vec(vec![20; SIZE.area()], SIZE);
    for &[left, top, w, h] in blobs {
        for y in top..top + h {
            let row = y * SIZE.width;
            plane.data_mut()[row + left..row + left + w].fill(200);
        }
    }
    plane
}

/// Two objects that go to the right, one of them hidden for seven frames in the middle; two that go to the
/// left, and touch for some frames in the middle; one that turns back before the middle.
fn scene() -> Vec<Plane> {
    let frame = |n: usize| {
        let mut blobs = vec![[9 + 4 * n, 5, 15, 21]];
        if !(24..31).contains(&n) {
            blobs.push([9 + 4 * n, 40, 13, 17]);
        }
        let (a, b) = (190 - 3 * n, if (18..36).contains(&n) { 207 - 3 * n } else { 211 - 3 * n });
        blobs.extend([[a, 75, 17, 19], [b, 75, 17, 19]]);
        let there = if n < 27 { 30 + 3 * n } else { 30 + 3 * (53 - n) };
        blobs.push([there, 120, 11, 23]);
        picture(&blobs)
    };
    (0..54).map(frame).collect()
}

fn job() -> Job {
    let threshold: ThresholdSpec = "mean:101:-30".parse().unwrap();
    Job {
        threshold: Some(threshold),
        objects: Some(ObjectSpec::default()),
        track_objects: true,
        ..Job::default()
    }
}

fn run(job: &Job, lines: &[&str], zones: &[&str]) -> (Vec<FrameRecord>, Summary) {
    let lines: Vec<CountingLine> = lines.iter().map(|line| line.parse().unwrap()).collect();
    let zones: Vec<Zone> = zones.iter().map(|zone| zone.parse().unwrap()).collect();
    job.control.begin_with_lines(lines);
    job.control.begin_with_zones(zones);
    let sink = MemorySink::default();
    let heard = sink.heard.clone();
    let (summary, outcome) = job.run(&mut MemorySource::new(&scene()), vec![Box::new(sink)]);
    outcome.unwrap();
    let records = heard.lock().unwrap().records.iter().map(|record| (**record).clone()).collect();
    (records, summary)
}

#[test]
fn objects_that_cross_merge_and_hide_are_counted_alike_on_every_backend_for_any_number_of_threads() {
    let (middle, zone) = ("middle=121,0,121,161", "left=0,0,121,0,121,161,0,161");
    let mut first: Option<Vec<FrameRecord>> = None;
    for (backend, threads, depth) in
        backends().into_iter().flat_map(|b| [(1, 1), (3, 2), (2, 4)].map(|(t, d)| (b, t, d)))
    {
        let job = Job { backend, threads, depth, control: Control::new(), ..job() };
        let (records, summary) = run(&job, &[middle], &[zone]);
        // Drawn downwards, its right side is on the left.
        assert_eq!(
            summary.lines,
            [LineSummary { line: "middle".into(), inwards: 2, outwards: 2 }],
            "{backend:?} {threads} {depth}"
        );
        assert_eq!(summary.births, Some(5));
        let [zone] = &summary.zones[..] else { panic!("{:?}", summary.zones) };
        // Three begin in it, two of which leave; two come.
        assert_eq!((zone.entered, zone.left, zone.inside), (5, 2, 3));
        assert!(zone.objects.is_some_and(|objects| objects.most >= 3.0));
        let crossings: Vec<_> =
            records.iter().flat_map(|r| r.crossings.iter().map(|c| (c.id, c.direction.name()))).collect();
        assert_eq!(crossings.len(), 4);
        assert_eq!(crossings.iter().filter(|(_, direction)| *direction == "out").count(), 2);
        let plain = |records: Vec<FrameRecord>| {
            let plain = |record: FrameRecord| FrameRecord { latency_us: 0, tracker_us: None, ..record };
            records.into_iter().map(plain).collect::<Vec<_>>()
        };
        let records = plain(records);
        let expected = first.get_or_insert_with(|| records.clone());
        for (record, expected) in records.iter().zip(&*expected) {
            assert_eq!(record.tracks, expected.tracks, "{backend:?} {threads} {depth}");
            assert_eq!((&record.lines, &record.zones), (&expected.lines, &expected.zones));
            assert_eq!(record.crossings, expected.crossings);
        }
    }
    let records = first.unwrap();
    let states = |state: TrackState| {
        records.iter().flat_map(|r| &r.tracks).filter(|track| track.state == state).count()
    };
    // Hidden for seven frames, merged for some: two tracks of one object.
    assert_eq!(states(TrackState::Lost), 7);
    assert_eq!(states(TrackState::Reacquired), 1);
    assert!(states(TrackState::Uncertain) >= 20, "{}", states(TrackState::Uncertain));
    assert!(records.iter().all(|record| record.tracks.is_sorted_by_key(|track| track.id)));
}

#[test]
fn lines_that_orders_add_count_from_then_on_and_too_many_or_absent_ones_are_refused() {
    let job = Job { control: Control::new(), ..job() };
    let line = |text: &str| Order::Line { line: text.parse().unwrap() };
    let orders = [
        (0, line("middle=121,0,121,161"), true),
        (20, line("early=70,0,70,161"), true),
        (20, line("outside=900,0,900,161"), false),
        (21, Order::RemoveLine { name: "absent".into() }, false),
        (30, Order::RemoveLine { name: "early".into() }, true),
    ];
    let repeated = orders.iter().map(|(frame, order, _)| {
        let mut record = serde_json::to_value(order).unwrap();
        record["frame"] = (*frame).into();
        serde_json::from_value(record).unwrap()
    });
    job.control.repeat(repeated.collect());
    let (records, summary) = run(&job, &[], &[]);
    let counts: Vec<_> = summary.lines.iter().map(|l| (&*l.line, l.inwards, l.outwards)).collect();
    assert_eq!(counts[0], ("middle", 2, 2));
    // Nothing crosses it from frame 20 to 29, and it keeps its place in the summary.
    assert_eq!((counts.len(), counts[1].0), (2, "early"));
    let shown: Vec<_> = records.iter().map(|record| record.lines.len()).collect();
    assert_eq!((shown[0], shown[19], shown[20], shown[29], shown[30]), (1, 1, 2, 2, 1));
}

#[test]
fn orders_about_tracks_of_objects_are_obeyed() {
    let job = Job { control: Control::new(), ..job() };
    let forget = serde_json::json!({ "order": "forget", "id": 1, "frame": 20 });
    job.control.repeat(vec![serde_json::from_value(forget).unwrap()]);
    let (records, summary) = run(&job, &[], &[]);
    let ids = |frame: usize| records[frame].tracks.iter().map(|track| track.id).collect::<Vec<_>>();
    assert_eq!(ids(19), [1, 2, 3, 4, 5]);
    assert_eq!(ids(20), [2, 3, 4, 5]);
    // Its object begins another one, with a number of its own.
    assert_eq!(ids(23), [2, 3, 4, 5, 6]);
    assert_eq!(summary.births, Some(6));
}
