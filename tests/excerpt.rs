//! Parts of a video: the frames that belong to them, in memory.

use std::time::Duration;

use lockon::Result;
use lockon::config::{Moment, Part};
use lockon::control::Control;
use lockon::excerpt::Excerpt;
use lockon::frame::{Plane, Size};
use lockon::ports::{Next, Source};
use lockon::results::{Event, FrameRecord};
use lockon::template::Template;

use crate::util::{Heard, Job, MemorySink, MemorySource, noise, timeless};

const SIZE: Size = Size::new(61, 43);

fn pictures(count: u64) -> Vec<Plane> {
    (0..count).map(|index| noise(index, SIZE)).collect()
}

fn job() -> Job {
    let patch = noise(3, SIZE).as_ref().crop("20,10,9,7".parse().unwrap()).to_plane();
    let limits = lockon::config::Limits { min_score: 0.2, max_matches: 3, max_overlap: 0.3 };
    Job { templates: vec![Template::new("patch", patch, None).unwrap()], limits, ..Job::default() }
}

fn part(start: &str, end: Option<&str>, every: u64) -> Part {
    let moment = |text: &str| text.parse::<Moment>().unwrap();
    Part { start: moment(start), end: end.map(moment), every }
}

/// Returns what a sink receives from a part of `source`.
fn heard(job: &Job, source: &mut dyn Source, part: Part) -> Heard {
    let sink = MemorySink::default();
    let heard = sink.heard.clone();
    let mut excerpt = Excerpt::new(source, part);
    let open = |purpose: &lockon::engine::Purpose<'_>| job.open_backend(purpose);
    job.run_on(&mut excerpt, vec![Box::new(sink)], &open, None).1.unwrap();
    std::mem::take(&mut *heard.lock().unwrap())
}

fn records(job: &Job, pictures: &[Plane], part: Part) -> Vec<FrameRecord> {
    let heard = heard(job, &mut MemorySource::new(pictures), part);
    heard.records.iter().map(|record| FrameRecord::clone(record)).collect()
}

#[test]
fn frames_of_a_part_have_the_numbers_times_and_results_that_they_have_in_the_whole() {
    let (job, pictures) = (job(), pictures(30));
    let whole = timeless(&job.records(&pictures));
    assert!(whole.iter().any(|record| record.contains("\"score\"")), "{whole:?}");
    // Frames are 40 ms apart.
    for (start, end, every, expected) in [
        ("0", None, 1, (0..30).collect::<Vec<usize>>()),
        ("7", None, 1, (7..30).collect()),
        ("0", Some("7"), 1, (0..7).collect()),
        ("7", Some("8"), 1, vec![7]),
        ("400ms", Some("0.6s"), 1, (10..15).collect()),
        ("401ms", Some("0:00.601"), 1, (11..16).collect()),
        ("5", Some("0.6s"), 1, (5..15).collect()),
        ("0", None, 7, vec![0, 7, 14, 21, 28]),
        ("5", Some("20"), 5, vec![5, 10, 15]),
        ("200ms", Some("19"), 4, vec![5, 9, 13, 17]),
        ("29", None, u64::MAX, vec![29]),
        ("2s", None, 1, vec![]),
    ] {
        let found = timeless(&records(&job, &pictures, part(start, end, every)));
        let expected: Vec<_> = expected.into_iter().map(|index| whole[index].clone()).collect();
        assert_eq!(found, expected, "--start {start} --end {end:?} --every {every}");
    }
}

#[test]
fn most_frames_counts_those_that_are_processed() {
    let job = Job { max_frames: Some(3), ..job() };
    let found = records(&job, &pictures(30), part("4", None, 6));
    assert_eq!(found.iter().map(|record| record.frame).collect::<Vec<_>>(), [4, 10, 16]);
}

#[test]
fn each_nth_frame_comes_at_an_nth_of_the_rate_and_lasts_so_much_longer() {
    let pictures = pictures(9);
    let mut source = MemorySource::new(&pictures);
    let mut excerpt = Excerpt::new(&mut source, part("1", None, 3));
    for index in [1, 4, 7] {
        let Next::Frame(frame) = excerpt.wait_next(Duration::from_secs(5)).unwrap() else {
            panic!("frame {index} does not come");
        };
        assert_eq!((frame.meta.index, frame.meta.pts_ns), (index, Some(index * 40_000_000)));
        assert_eq!((frame.meta.duration_ns, frame.format.frame_rate), (Some(120_000_000), (25, 3)));
    }
    assert!(matches!(excerpt.wait_next(Duration::from_secs(5)).unwrap(), Next::End));
}

#[test]
fn a_part_that_has_ended_asks_for_no_further_frame() {
    let pictures = pictures(9);
    let mut source = MemorySource::new(&pictures);
    let mut excerpt = Excerpt::new(&mut source, part("0", Some("6"), 4));
    for _ in [0, 4] {
        assert!(matches!(excerpt.wait_next(Duration::from_secs(5)).unwrap(), Next::Frame(_)));
    }
    // Also not to learn that the next one is too late.
    assert!(matches!(excerpt.try_next().unwrap(), Next::End));
    assert_eq!(source.frames.len(), 4);
}

#[test]
fn a_part_of_which_nothing_came_knows_the_last_frame() {
    let pictures = pictures(5);
    let mut source = MemorySource::new(&pictures);
    let mut excerpt = Excerpt::new(&mut source, part("9s", None, 1));
    assert!(matches!(excerpt.wait_next(Duration::from_secs(5)).unwrap(), Next::End));
    assert_eq!(excerpt.missed().map(|last| last.index), Some(4));
}

#[test]
fn a_track_begins_with_the_first_frame_that_is_not_before_its_time() {
    let pictures = vec![noise(1, SIZE); 12];
    let tracks = vec!["20,10,16,16@0.2s".parse().unwrap(), "30,20,16,16@201ms".parse().unwrap()];
    let job = Job { tracks, ..Job::default() };
    let begun = |records: Vec<FrameRecord>, id: u32| {
        let first = records.iter().find(|record| record.tracks.iter().any(|track| track.id == id));
        first.map(|record| record.frame)
    };
    for (part, expected) in [
        (Part::default(), [Some(5), Some(6)]),
        (part("9", None, 1), [Some(9), Some(9)]),
        (part("0", None, 4), [Some(8), Some(8)]),
        (part("0", Some("6"), 1), [Some(5), None]),
    ] {
        let found = [1, 2].map(|id| begun(records(&job, &pictures, part), id));
        assert_eq!(found, expected, "{part:?}");
    }
}

/// Each frame comes after several waits in which none is there.
struct Slow(MemorySource, u32);

impl Source for Slow {
    fn try_next(&mut self) -> Result<Next> {
        Ok(Next::Pending)
    }

    fn wait_next(&mut self, timeout: Duration) -> Result<Next> {
        std::thread::sleep(timeout);
        self.1 += 1;
        if self.1.is_multiple_of(4) { self.0.wait_next(timeout) } else { Ok(Next::Pending) }
    }

    fn dropped(&self) -> u64 {
        0
    }
}

#[test]
fn frames_that_nobody_asked_for_are_no_stall() {
    let pictures = pictures(16);
    // Frames come every 0.2 s, wanted ones after 3 s.
    let heard = heard(&job(), &mut Slow(MemorySource::new(&pictures), 0), part("0", None, 15));
    assert_eq!(heard.records.iter().map(|record| record.frame).collect::<Vec<_>>(), [0, 15]);
    assert!(heard.events.is_empty(), "{:?}", heard.events);
}

#[test]
fn a_gap_before_a_first_frame_that_was_looked_at_is_told() {
    let pictures = pictures(6);
    for (start, frames) in [("0", 0..6), ("2", 2..6)] {
        let gap_before = Some(frames.start);
        let mut source = MemorySource { gap_before, ..MemorySource::new(&pictures) };
        let sink = MemorySink::default();
        let heard = sink.heard.clone();
        let mut excerpt = Excerpt::new(&mut source as &mut dyn Source, part(start, None, 1));
        excerpt.follow_gap(Duration::from_secs(7), "it was away elsewhere".into());
        let first = excerpt.first(&Control::new()).unwrap().unwrap();
        assert_eq!(first.meta.index, frames.start);
        let job = job();
        let open = |purpose: &lockon::engine::Purpose<'_>| job.open_backend(purpose);
        let (summary, result) = job.run_on(&mut excerpt, vec![Box::new(sink)], &open, None);
        result.unwrap();
        let heard = heard.lock().unwrap();
        assert!(heard.records.iter().map(|record| record.frame).eq(frames.clone()));
        let gaps = heard.events.iter().map(|(_, event)| match event {
            Event::Gap { frame, away_us, .. } => (*frame, *away_us),
            other => panic!("{other:?}"),
        });
        let expected = [(frames.start, 7_000_000), (frames.start, 3_000_000)];
        assert_eq!(gaps.collect::<Vec<_>>(), expected, "{start}");
        assert_eq!(summary.gaps, 2);
    }
}
