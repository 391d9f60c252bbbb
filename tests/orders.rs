//! Runs that get other orders while they are active, on every backend.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use lockon::Result;
use lockon::change::Change;
use lockon::config::{BackendChoice, Limits, SearchMethod};
use lockon::control::Control;
use lockon::frame::{Plane, Rect, Size};
use lockon::orders::{Order, Repeated, Reply};
use lockon::ports::{Delivery, Sink};
use lockon::request::Request;
use lockon::results::{Event, FrameRecord, Summary, Track, TrackState};
use lockon::run::Run;
use lockon::search::Search;
use lockon::template::Template;

use crate::util::{
    Heard, Job, MemorySink, MemorySource, Random, backends, noise, paste, root, smooth, timeless,
};

const FRAME: Size = Size::new(323, 241);
const PART: Size = Size::new(44, 36);
const FRAMES: u64 = 50;

/// An order to give when a frame was delivered.
type Words = fn(&Control) -> Result<Reply>;

/// Gives orders at set frames. Orders about tracks hold from the next frame on, orders about the search from
/// the next frame that is submitted.
struct Driver {
    control: Control,
    script: BTreeMap<u64, Vec<Words>>,
    changes: Vec<(u64, Change)>,
    replies: Arc<Mutex<Vec<Reply>>>,
}

impl Sink for Driver {
    fn name(&self) -> &'static str {
        "driver"
    }

    fn is_output(&self) -> bool {
        false
    }

    fn deliver(&mut self, delivery: &Delivery<'_>) -> Result<()> {
        for words in self.script.get(&delivery.record.frame).into_iter().flatten() {
            self.replies.lock().unwrap().push(words(&self.control)?);
        }
        for (_, change) in self.changes.iter().filter(|(at, _)| *at == delivery.record.frame) {
            self.replies.lock().unwrap().push(self.control.change(change.clone())?);
        }
        Ok(())
    }
}

/// The results of a run.
struct Driven {
    records: Vec<FrameRecord>,
    orders: Vec<Event>,
    replies: Vec<Reply>,
    summary: Summary,
}

impl Driven {
    /// The records of a track, by their frames.
    fn track(&self, id: u32) -> Vec<(u64, Track)> {
        let of = |record: &FrameRecord| {
            let track = record.tracks.iter().find(|track| track.id == id)?;
            Some((record.frame, track.clone()))
        };
        self.records.iter().filter_map(of).collect()
    }

    fn answer(&self, index: usize) -> Result<u64> {
        self.replies[index].wait(Duration::ZERO)
    }

    /// The run's orders, as a repeating run reads them from its results file.
    fn repeated(&self) -> Vec<Repeated> {
        let text = |event: &Event| serde_json::to_string(event).unwrap();
        self.orders.iter().map(|event| serde_json::from_str(&text(event)).unwrap()).collect()
    }
}

fn drive(job: &Job, pictures: &[Plane], script: &[(u64, Words)]) -> Driven {
    drive_with(job, pictures, script, &[])
}

/// As `drive`, with changes of the search too.
fn drive_with(job: &Job, pictures: &[Plane], script: &[(u64, Words)], changes: &[(u64, Change)]) -> Driven {
    let (sink, replies) = (MemorySink::default(), Arc::<Mutex<Vec<Reply>>>::default());
    let heard: Arc<Mutex<Heard>> = sink.heard.clone();
    let mut by_frame = BTreeMap::<u64, Vec<Words>>::new();
    for (frame, words) in script {
        by_frame.entry(*frame).or_default().push(*words);
    }
    let (control, changes) = (job.control.clone(), changes.to_vec());
    let driver = Driver { control, script: by_frame, changes, replies: replies.clone() };
    let sinks: Vec<Box<dyn Sink>> = vec![Box::new(sink), Box::new(driver)];
    let (summary, outcome) = job.run(&mut MemorySource::new(pictures), sinks);
    outcome.unwrap();
    let heard = heard.lock().unwrap();
    let records = heard.records.iter().map(|record| FrameRecord::clone(record)).collect();
    let mut orders = Vec::new();
    for (before, event) in &heard.events {
        let Event::Control { frame, .. } = event else { continue };
        assert_eq!(*before as u64, *frame, "an order stands before the frame from which it holds");
        orders.push(event.clone());
    }
    Driven { records, orders, replies: std::mem::take(&mut replies.lock().unwrap()), summary }
}

/// Where the first and the second part are.
fn places(frame: u64) -> [(usize, usize); 2] {
    let frame = frame as usize;
    [(20 + 4 * frame, 30 + frame), (250 - 3 * frame, 180)]
}

/// Two parts that move over a still ground.
fn video() -> Vec<Plane> {
    let (ground, parts) = (smooth(7, FRAME), [smooth(99, PART), smooth(5, PART)]);
    let picture = |frame: u64| {
        let mut picture = ground.clone();
        for (part, (x, y)) in parts.iter().zip(places(frame)) {
            paste(&mut picture, part, x, y);
        }
        picture
    };
    (0..FRAMES).map(picture).collect()
}

/// The box of a part in a frame.
fn part(index: usize, frame: u64) -> Rect {
    let (x, y) = places(frame)[index];
    Rect::new(x, y, PART.width, PART.height)
}

fn job() -> Job {
    Job { control: Control::new(), ..Job::default() }
}

fn asked_at(tracks: &[(u64, Track)]) -> Option<u64> {
    tracks.first().map(|(frame, _)| *frame)
}

#[test]
fn a_box_that_is_given_while_frames_pass_is_followed_as_one_that_was_asked_for_at_that_frame() {
    let pictures = video();
    for backend in backends() {
        let expected = Job { backend, tracks: vec![format!("{}@10", part(0, 10)).parse().unwrap()], ..job() };
        let driven = drive(&Job { backend, ..job() }, &pictures, &[(9, |run| run.follow(part(0, 10), None))]);
        assert_eq!(timeless(&driven.records), timeless(&expected.records(&pictures)), "{backend:?}");
        assert_eq!((driven.replies[0].id(), driven.answer(0).unwrap()), (Some(1), 10));
        assert_eq!(asked_at(&driven.track(1)), Some(10));
    }
}

#[test]
fn a_background_goes_on_where_the_search_changes() {
    let pictures = video();
    let of = |text: &str| Some(text.parse().unwrap());
    let shares = |driven: &Driven| -> Vec<f64> {
        driven.records.iter().map(|record| record.threshold.as_ref().unwrap().foreground).collect()
    };
    for backend in backends() {
        let job = |depth| Job { backend, depth, threshold: of("background:7:9"), ..job() };
        let expected = shares(&drive(&job(1), &pictures, &[]));
        assert!(expected[0] == 0.0 && expected[8..].iter().all(|&share| share > 0.01), "{expected:?}");
        for depth in [1, 3] {
            let template = Template::new("part", smooth(99, PART), None).unwrap();
            let changes = [
                (9, Change::adding(template)),
                (15, Change { min_score: Some(0.6), ..Change::default() }),
                (15, Change { max_matches: Some(2), ..Change::default() }),
                (22, Change::removing("part")),
            ];
            let driven = drive_with(&job(depth), &pictures, &[], &changes);
            assert!((0..4).all(|index| driven.answer(index).is_ok()));
            assert_eq!(shares(&driven), expected, "{backend:?}, depth {depth}");

            // By another value for a while.
            let other = |text| Change { threshold: Some(of(text)), ..Change::default() };
            let changes = [(9, other("background:7:60")), (20, other("background:7:9"))];
            let shares = shares(&drive_with(&job(depth), &pictures, &[], &changes));
            assert_eq!(shares[..10], expected[..10], "{backend:?}, depth {depth}");
            assert!(shares[14..20] != expected[14..20]);
            assert_eq!(shares[26..], expected[26..], "{backend:?}, depth {depth}");
        }
    }
}

#[test]
fn a_box_of_a_frame_that_has_passed_is_where_one_is_that_was_followed_since() {
    let pictures = video();
    for backend in backends() {
        let asked = Job { backend, tracks: vec![format!("{}@5", part(0, 5)).parse().unwrap()], ..job() };
        let job = Job { backend, ..job() };
        job.control.keep_frames(20);
        let driven = drive(&job, &pictures, &[(19, |run| run.follow(part(0, 5), Some(5)))]);
        let (found, expected) = (timeless(&driven.records), timeless(&asked.records(&pictures)));
        assert_eq!(found[20..], expected[20..], "{backend:?}");
        assert_eq!(asked_at(&driven.track(1)), Some(20));
    }
}

#[test]
fn more_boxes_than_a_run_follows_at_once_are_refused_until_one_is_forgotten() {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let next: Words = |run| {
        let place = NEXT.fetch_add(1, Ordering::Relaxed) as usize;
        run.follow(Rect::new(place % 12 * 26, place / 12 * 26, 24, 24), None)
    };
    let script: Vec<(u64, Words)> =
        std::iter::repeat_n((2, next), 65).chain([(4, (|run| run.forget(7)) as Words), (6, next)]).collect();
    let job = Job { backend: BackendChoice::Cpu, ..job() };
    let driven = drive(&job, &video()[..9], &script);
    assert!((0..64).all(|index| driven.answer(index).is_ok()));
    let said = driven.answer(64).unwrap_err().to_string();
    assert!(said.contains("there are 64 tracks already"), "{said}");
    assert!(driven.answer(65).is_ok() && driven.answer(66).is_ok());
}

#[test]
fn a_box_of_a_frame_that_has_not_come_is_refused() {
    let driven = drive(
        &job(),
        &video(),
        &[(9, |run| run.follow(part(0, 11), Some(11))), (14, |run| run.follow(part(0, 15), Some(u64::MAX)))],
    );
    for (index, said) in
        [(0, "frame 11 has not come: the next one is 10"), (1, "has not come: the next one is 15")]
    {
        let error = driven.answer(index).unwrap_err().to_string();
        assert!(error.contains(said), "{error}");
    }
    assert!(driven.records.iter().all(|record| record.tracks.is_empty()));
}

#[test]
fn a_track_that_is_corrected_keeps_its_number_and_goes_on_from_its_new_box() {
    let job = job();
    job.control.keep_frames(10);
    let driven = drive(
        &job,
        &video(),
        &[
            (1, |run| run.follow(part(0, 2), None)),
            (11, |run| run.correct(1, part(1, 12), None)),
            (25, |run| run.correct(1, part(0, 20), Some(20))),
        ],
    );
    for (frame, track) in driven.track(1) {
        let index = usize::from((12..26).contains(&frame));
        let iou = lockon::frame::iou(track.bounds(), part(index, frame).bounds());
        assert!(iou > 0.7, "frame {frame}: {track:?}, overlap {iou:.2}");
    }
    assert_eq!(driven.track(1).len() as u64, FRAMES - 2);
}

#[test]
fn tracks_that_are_forgotten_have_no_records_any_more_and_their_numbers_are_not_used_again() {
    let driven = drive(
        &Job { tracks: vec![part(0, 0).to_string().parse().unwrap()], ..job() },
        &video(),
        &[
            (4, |run| run.follow(part(1, 5), None)),
            (9, |run| run.forget(1)),
            (14, Control::clear),
            (19, |run| run.follow(part(1, 20), None)),
        ],
    );
    let frames = |id| driven.track(id).iter().map(|(frame, _)| *frame).collect::<Vec<_>>();
    assert_eq!(frames(1), (0..10).collect::<Vec<_>>());
    assert_eq!(frames(2), (5..15).collect::<Vec<_>>());
    assert_eq!(frames(3), (20..FRAMES).collect::<Vec<_>>());
    assert!(driven.track(3).iter().all(|(_, track)| track.state == TrackState::Tracked));
}

#[test]
fn what_cannot_be_done_is_refused_with_its_reason_and_changes_nothing() {
    let pictures = video();
    let job = Job { tracks: vec![part(0, 0).to_string().parse().unwrap()], ..job() };
    job.control.keep_frames(3);
    let driven = drive(
        &job,
        &pictures,
        &[
            (9, |run| run.follow(Rect::new(300, 10, 40, 40), None)),
            (9, |run| run.follow(part(1, 2), Some(2))),
            (9, |run| run.correct(7, part(1, 10), None)),
            (9, |run| run.correct(1, Rect::new(0, 0, 0, 4), None)),
            (9, |run| run.forget(2)),
        ],
    );
    let reasons = [
        "track box 300,10,40,40 does not lie inside the 323x241 frame",
        "frame 2 has passed, and of those that have the first that is kept is 7",
        "there is no such track: there are 1",
        "track box 0,0,0,4 does not lie inside the 323x241 frame",
        "there is no such track: there are 1",
    ];
    assert_eq!(driven.orders.len(), reasons.len());
    for (index, (reason, event)) in reasons.iter().zip(&driven.orders).enumerate() {
        let Event::Control { frame: 10, refused: Some(refused), .. } = event else { panic!("{event:?}") };
        assert!(refused.contains(reason), "{refused}");
        assert!(driven.answer(index).unwrap_err().to_string().contains(reason));
    }
    let undisturbed = Job { control: Control::new(), ..job.clone() }.records(&pictures);
    assert_eq!(timeless(&driven.records), timeless(&undisturbed));
    // Without kept frames the run cannot go back to any frame.
    let driven = drive(&self::job(), &pictures, &[(9, |run| run.follow(part(1, 2), Some(2)))]);
    assert!(driven.answer(0).unwrap_err().to_string().contains("the next one is 10, and none are kept"));
}

#[test]
fn a_run_that_is_asked_the_same_at_the_same_frames_has_the_same_results() {
    let pictures = video();
    let template = || Template::new("part", smooth(99, PART), None).unwrap();
    let limits = Limits { min_score: 0.9, max_matches: 2, max_overlap: 0.3 };
    for backend in backends() {
        let job = || Job {
            backend,
            templates: vec![template()],
            track_matches: true,
            limits,
            control: Control::new(),
            ..Job::default()
        };
        let first = job();
        first.control.keep_frames(12);
        let driven = drive(
            &first,
            &pictures,
            &[
                // Before and after matches have become tracks, which take numbers too.
                (0, |run| run.follow(part(1, 1), None)),
                (0, |run| run.follow(Rect::new(400, 0, 9, 9), None)),
                (7, |run| run.follow(Rect::new(150, 90, 30, 30), None)),
                (12, |run| run.correct(1, part(1, 6), Some(6))),
                (15, |run| run.forget(99)),
                (18, Control::clear),
                (24, |run| run.follow(part(1, 20), Some(20))),
            ],
        );
        assert_eq!(driven.orders.len(), 7);
        let again = job();
        again.control.repeat(driven.repeated());
        let repeated = drive(&again, &pictures, &[]);
        assert_eq!(timeless(&repeated.records), timeless(&driven.records), "{backend:?}");
        assert_eq!(repeated.orders, driven.orders, "{backend:?}");
        // Numbers that were given to orders went to no match.
        let ids: Vec<u32> =
            driven.records.iter().flat_map(|r| r.tracks.iter().map(|track| track.id)).collect();
        assert!(ids.contains(&3) && ids.contains(&4) && !ids.contains(&2), "{ids:?}");
    }
}

#[test]
fn auto_goes_over_to_a_pyramid_where_a_picture_takes_long_and_a_repeated_run_does_the_same() {
    let size = Size::new(401, 303);
    let (ground, part) = (smooth(7, size), smooth(99, PART));
    let picture = |frame: u64| {
        // From frame 20 on a wall: nearly flat, with a little noise, which takes long under a mask with gaps.
        let mut picture = if frame < 20 { ground.clone() } else { noise(frame, size) };
        if frame >= 20 {
            picture.data_mut().iter_mut().for_each(|pixel| *pixel = 126 + u8::from(*pixel < 40));
        }
        paste(&mut picture, &part, 100 + 2 * frame as usize, 80);
        picture
    };
    let pictures: Vec<_> = (0..36).map(picture).collect();
    let is_hole = |x: usize, y: usize| (18..26).contains(&x) && (14..22).contains(&y);
    let pixels = (0..PART.area()).map(|i| if is_hole(i % PART.width, i / PART.width) { 0 } else { 255 });
    let mask = Plane::from_vec(pixels.collect(), PART);
    let job = |method, threads| {
        let templates = vec![Template::new("part", part.clone(), Some(&mask)).unwrap()];
        let (scales, angles) = ("1".parse().unwrap(), "-180..180/5".parse().unwrap());
        let control = Control::new();
        let searched = Search::new(templates, method, &scales, &angles, &control).unwrap();
        Job { searched: Some(searched), threads, control, ..Job::default() }
    };
    let driven = drive(&job(SearchMethod::Auto, 2), &pictures, &[]);
    let Event::Control { frame: 32, order: Order::Change(change), refused: None, .. } = &driven.orders[0]
    else {
        panic!("{:?}", driven.orders)
    };
    assert_eq!(**change, Change { search: Some(SearchMethod::Pyramid), ..Change::default() });
    assert_eq!(driven.orders.len(), 1);
    assert!(driven.records.iter().all(|record| record.matches.len() == 1 && record.matches[0].score == 1.0));
    // On another number of threads, and as a repeated run.
    let alone = drive(&job(SearchMethod::Auto, 1), &pictures, &[]);
    assert_eq!((timeless(&alone.records), &alone.orders), (timeless(&driven.records), &driven.orders));
    let again = job(SearchMethod::Auto, 2);
    again.control.repeat(driven.repeated());
    let repeated = drive(&again, &pictures, &[]);
    assert_eq!((timeless(&repeated.records), &repeated.orders), (timeless(&driven.records), &driven.orders));
    // A method that the job names is not changed.
    assert!(drive(&job(SearchMethod::Exhaustive, 2), &pictures[30..34], &[]).orders.is_empty());
}

/// The picture of a part, under that name.
fn template(name: &str, part: usize) -> Template {
    Template::new(name, smooth([99, 5][part], PART), None).unwrap()
}

/// A change of one thing or of several; about every fifth cannot be done.
fn random_change(random: &mut Random) -> Change {
    let mut below = |most: u8| random.byte() % most;
    let name = ["a", "b", "c"][usize::from(below(3))];
    let mut change = match below(6) {
        0 | 1 => Change::adding(template(name, usize::from(below(2)))),
        2 => Change::removing(name),
        3 => {
            let (x, y) = (usize::from(below(120)), usize::from(below(60)));
            let roi = Rect::new(x, y, 60 + usize::from(below(200)), 40 + usize::from(below(160)));
            Change { roi: Some((below(3) > 0).then_some(roi)), ..Change::default() }
        }
        4 => Change {
            threshold: Some(
                ["mean:9:3", "sauvola:15:0.2"].get(usize::from(below(3))).map(|text| text.parse().unwrap()),
            ),
            ..Change::default()
        },
        _ => Change {
            scales: Some(["1", "0.9..1.1/1.1"][usize::from(below(2))].parse().unwrap()),
            ..Change::default()
        },
    };
    if below(2) == 0 {
        change.min_score = Some(f64::from(below(100)) / 60.0);
        change.max_matches = Some(1 + usize::from(below(3)));
    }
    change
}

#[test]
fn every_call_is_answered_however_many_threads_ask_at_once() {
    let pictures = video();
    let (control, is_over) = (Control::new(), AtomicBool::new(false));
    let (done, refused) = (AtomicU64::new(0), AtomicU64::new(0));
    let ids = Mutex::new(Vec::new());
    let heard = std::thread::scope(|scope| {
        for seed in 0..4 {
            let (control, is_over, done, refused, ids) = (&control, &is_over, &done, &refused, &ids);
            scope.spawn(move || {
                let mut random = Random::new(seed + 1);
                while !is_over.load(Ordering::Relaxed) {
                    let (x, y) = (usize::from(random.byte()), usize::from(random.byte()));
                    let rect = Rect::new(x, y, 20, 20);
                    let id = 1 + u32::from(random.byte() % 8);
                    let reply = match random.byte() % 16 {
                        0..4 => control.follow(rect, Some(u64::from(random.byte() % 64))),
                        4..7 => control.correct(id, rect, None),
                        7 => control.clear(),
                        8..11 => control.forget(id),
                        _ => control.change(random_change(&mut random)),
                    };
                    let Ok(reply) = reply else {
                        std::thread::yield_now();
                        continue;
                    };
                    ids.lock().unwrap().extend(reply.id());
                    match reply.wait(Duration::from_mins(1)) {
                        Ok(_) => done.fetch_add(1, Ordering::Relaxed),
                        Err(error) => {
                            assert!(!error.to_string().contains("no frame has come"), "{error}");
                            refused.fetch_add(1, Ordering::Relaxed)
                        }
                    };
                }
            });
        }
        control.keep_frames(8);
        let sink = MemorySink::default();
        let heard = sink.heard.clone();
        let job = Job { control: control.clone(), backend: BackendChoice::Cpu, ..Job::default() };
        let many: Vec<Plane> = (0..6).flat_map(|_| pictures.iter().cloned()).collect();
        let outcome = job.run(&mut MemorySource::new(&many), vec![Box::new(sink)]);
        is_over.store(true, Ordering::Relaxed);
        outcome.1.unwrap();
        heard
    });
    let heard = heard.lock().unwrap();
    let told: Vec<_> =
        heard.events.iter().filter(|(_, event)| matches!(event, Event::Control { .. })).collect();
    let (done, refused) = (done.into_inner(), refused.into_inner());
    // Orders that still waited at the end of the run were refused without a record.
    assert!(told.len() as u64 <= done + refused && told.len() as u64 + 4 >= done + refused);
    assert!(done > 0 && refused > 0, "{done} done, {refused} refused");
    assert!(
        told.iter()
            .all(|(before, event)| matches!(event, Event::Control { frame, .. } if *frame == *before as u64))
    );
    let mut followed: Vec<_> = told
        .iter()
        .filter_map(|(_, event)| match event {
            Event::Control { order: Order::Follow { id, .. }, .. } => Some(*id),
            _ => None,
        })
        .collect();
    let count = followed.len();
    followed.sort_unstable();
    followed.dedup();
    assert_eq!(followed.len(), count, "a number was given twice");
}

/// From its frame on, a driven run has the results of a run that searched so from the start.
#[test]
fn a_change_of_the_search_holds_from_the_frame_that_it_is_answered_with() {
    let pictures = video();
    let roi = part(1, 20);
    let first = || Job { templates: vec![template("a", 0)], limits: LIMITS, ..job() };
    let changes = [
        (9, Change::adding(template("b", 1))),
        (14, Change { min_score: Some(0.999), max_matches: Some(1), ..Change::default() }),
        (19, Change { roi: Some(Some(Rect::new(0, 150, 323, 91))), ..Change::removing("a") }),
        (24, Change { threshold: Some(Some("mean:9:3".parse().unwrap())), ..Change::default() }),
        (29, Change { roi: Some(None), threshold: Some(None), ..Change::adding(template("b", 0)) }),
        (34, Change::removing("b")),
    ];
    for backend in backends() {
        let driven = drive_with(&Job { backend, ..first() }, &pictures, &[], &changes);
        let mut search = Job { backend, ..first() }.search();
        let mut expected = timeless(&Job { backend, ..first() }.records(&pictures));
        for (index, (asked, change)) in changes.iter().enumerate() {
            let from = driven.answer(index).unwrap();
            // Frames that were in flight come from the device before.
            assert!((asked + 1..=asked + 2).contains(&from), "asked at {asked}, holds from {from}");
            search = search.changed(change).unwrap();
            let so_from_the_start = Job { backend, searched: Some(search.clone()), ..first() };
            expected.truncate(from as usize);
            let later = timeless(&so_from_the_start.records(&pictures));
            expected.extend_from_slice(&later[from as usize..]);
        }
        assert_eq!(timeless(&driven.records), expected, "{backend:?}");
        let found =
            |name: &str| driven.summary.found.iter().find(|found| *found.template == *name).unwrap().frames;
        assert!(found("a") > 15 && found("b") > 15 && roi.w > 0, "{:?}", driven.summary.found);
    }
}

#[test]
fn a_run_with_nothing_to_do_waits_for_its_first_order() {
    let pictures = video();
    for backend in backends() {
        let driven =
            drive_with(&Job { backend, ..job() }, &pictures, &[], &[(7, Change::adding(template("a", 0)))]);
        let from = driven.answer(0).unwrap();
        for record in &driven.records {
            let at: Vec<_> = record.matches.iter().map(lockon::results::Match::rect).collect();
            let expected = if record.frame < from { Vec::new() } else { vec![part(0, record.frame)] };
            assert_eq!(at, expected, "{backend:?}, frame {}", record.frame);
        }
    }
}

#[test]
fn a_run_takes_orders_from_its_start_on_also_one_with_nothing_to_do() {
    let here = tempfile::tempdir().unwrap();
    let results = here.path().join("a.jsonl");
    let request = Request {
        track_matches: true,
        backend: BackendChoice::Cpu,
        max_frames: Some(6),
        results: vec![results.to_str().unwrap().into()],
        ..Request::new(root().join("examples/media/cars.mp4")).unwrap()
    };
    let control = Control::new();
    let run = Run::start(&request, &control).unwrap();
    let added = run.control().change(Change::adding(template("a", 0))).unwrap();
    let followed = control.follow(Rect::new(20, 30, 44, 36), None).unwrap();
    run.finish().1.unwrap();
    assert_eq!((added.wait(Duration::ZERO).unwrap(), followed.wait(Duration::ZERO).unwrap()), (0, 0));
    assert!(control.change(Change::removing("a")).is_err(), "the run is over");
    let lines = std::fs::read_to_string(&results).unwrap();
    let kinds: Vec<_> = lines.lines().map(|line| line[9..].split('"').next().unwrap()).collect();
    assert_eq!(kinds[..4], ["run", "control", "control", "frame"]);
    // Repeating the run from its records gives the same.
    let again = here.path().join("b.jsonl");
    let results = vec![again.to_str().unwrap().into()];
    let request = Request { control: Some(here.path().join("a.jsonl")), results, ..request };
    Run::start(&request, &Control::new()).unwrap().finish().1.unwrap();
    let again = std::fs::read_to_string(again).unwrap();
    assert_eq!(
        again.lines().skip(1).take(2).collect::<Vec<_>>(),
        lines.lines().skip(1).take(2).collect::<Vec<_>>()
    );
}

#[test]
fn several_settings_are_changed_together_or_not_at_all() {
    let pictures = video();
    let roi = Rect::new(0, 0, 30, 30);
    let small = Template::new("small", smooth(3, Size::new(20, 20)), None).unwrap();
    let job = || {
        let mut search = Job { templates: vec![small.clone()], ..job() }.search();
        search.roi = Some(roi);
        Job { searched: Some(search), templates: vec![small.clone()], ..job() }
    };
    let large = || Change { remove: vec!["small".into()], ..Change::adding(template("a", 0)) };
    let changes = [
        // It does not fit in the region...
        (9, large()),
        // ...this one is not there...
        (14, Change { min_score: Some(0.1), ..Change::removing("b") }),
        (14, Change { min_score: Some(2.0), roi: Some(None), ..Change::default() }),
        (
            14,
            Change { roi: Some(Some(Rect::new(300, 0, 30, 30))), max_matches: Some(4), ..Change::default() },
        ),
        // ...and with a region that is large enough it does.
        (24, Change { roi: Some(None), ..large() }),
    ];
    for backend in backends() {
        let driven = drive_with(&Job { backend, ..job() }, &pictures, &[], &changes);
        let reasons = [
            "template \"a\" is larger than what is searched: it has 44x36 pixels at its smallest scale, the \
             searched area 30x30",
            "no template is named \"b\": there are \"small\"",
            "min-score \"2\": expected a score from -1 to 1",
            "region of interest 300,0,30,30 does not lie inside the 323x241 frame",
        ];
        for (index, reason) in reasons.iter().enumerate() {
            let error = driven.answer(index).unwrap_err().to_string();
            assert!(error.contains(reason), "{error}");
            let Event::Control { refused: Some(refused), .. } = &driven.orders[index] else { panic!() };
            assert!(refused.contains(reason), "{refused}");
        }
        let from = driven.answer(4).unwrap() as usize;
        let undisturbed = Job { backend, ..job() }.records(&pictures);
        assert_eq!(timeless(&driven.records)[..from], timeless(&undisturbed)[..from], "{backend:?}");
        assert!(driven.records[from..].iter().all(|record| record.matches.len() == 1), "{backend:?}");
    }
}

#[test]
fn those_of_many_changes_before_a_frame_are_refused_that_cannot_be_done_and_no_others() {
    let pictures = video();
    let outside = || Change { roi: Some(Some(Rect::new(300, 0, 30, 30))), ..Change::default() };
    let changes: Vec<_> = (0..40)
        .map(|n| (9, if n % 7 == 3 { outside() } else { Change::adding(template(&n.to_string(), n % 2)) }))
        .collect();
    let driven = drive_with(&job(), &pictures, &[], &changes);
    for n in 0..40 {
        assert_eq!(driven.answer(n).is_ok(), n % 7 != 3, "{n}");
    }
    let last = driven.records.last().unwrap();
    assert_eq!(last.matches.len(), (0..40).filter(|n| n % 7 != 3).count());
}

const LIMITS: Limits = Limits { min_score: 0.9, max_matches: 2, max_overlap: 0.3 };

#[test]
fn a_run_whose_search_is_changed_at_random_frames_is_repeated_from_its_records_to_the_bit() {
    let pictures = video();
    for backend in backends() {
        for seed in 0..3 {
            let mut random = Random::new(100 + seed);
            let mut changes = Vec::new();
            for frame in 0..FRAMES - 4 {
                for _ in 0..random.byte() % 5 {
                    changes.push((frame, random_change(&mut random)));
                }
            }
            let job = || Job {
                backend,
                templates: vec![template("a", 0)],
                track_matches: seed > 0,
                limits: LIMITS,
                depth: 1 + seed as usize,
                ..job()
            };
            let script: &[(u64, Words)] =
                &[(3, |run| run.follow(part(1, 4), None)), (30, |run| run.forget(1))];
            let driven = drive_with(&job(), &pictures, script, &changes);
            let refused = |event: &&Event| matches!(event, Event::Control { refused: Some(_), .. });
            let count = driven.orders.iter().filter(refused).count();
            assert_eq!(driven.orders.len(), changes.len() + script.len());
            assert!(
                count > 2 && driven.orders.len() - count > 20,
                "{count} of {} refused",
                driven.orders.len()
            );
            // With as many frames in flight as it likes.
            let again = Job { depth: 4 - seed as usize, ..job() };
            again.control.repeat(driven.repeated());
            let repeated = drive(&again, &pictures, &[]);
            assert_eq!(timeless(&repeated.records), timeless(&driven.records), "{backend:?}, seed {seed}");
            assert_eq!(repeated.orders, driven.orders, "{backend:?}, seed {seed}");
        }
    }
}

#[test]
fn a_template_that_is_added_while_frames_pass_becomes_a_track_where_matches_do() {
    let job = Job { templates: vec![template("a", 0)], track_matches: true, limits: LIMITS, ..job() };
    let changes = [(9, Change::adding(template("b", 1))), (29, Change::removing("a"))];
    let driven = drive_with(&job, &video(), &[], &changes);
    let [first, second] = [1, 2].map(|id| driven.track(id));
    assert!(first.iter().all(|(_, track)| track.template.as_deref() == Some("a")));
    assert!(second.iter().all(|(_, track)| track.template.as_deref() == Some("b")));
    assert!((10..20).contains(&asked_at(&second).unwrap()), "{:?}", asked_at(&second));
    // The track that the removed template found is still followed.
    assert_eq!(first.last().unwrap().0, FRAMES - 1);
    // Outputs get the search after each change.
    let after = |event: &Event| match event {
        Event::Control { search: Some(search), .. } => search.clone(),
        other => panic!("{other:?}"),
    };
    let names =
        |event| after(event).templates.iter().map(|sought| sought.name.to_string()).collect::<Vec<_>>();
    assert_eq!(driven.orders.iter().map(names).collect::<Vec<_>>(), [vec!["a", "b"], vec!["b"]]);
    assert!(driven.orders.iter().all(|event| after(event).max_matches == LIMITS.max_matches));
}
