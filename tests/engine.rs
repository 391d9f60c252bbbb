//! The engine between sources and sinks in memory, on every backend.

use std::cell::Cell;
use std::sync::Arc;

use lockon::backend::{Backend, Device, Findings};
use lockon::change::Change;
use lockon::config::{BackendChoice, Kernel, Limits, ObjectSpec, ThresholdSpec};
use lockon::control::Control;
use lockon::engine::{OpenSpare, Purpose};
use lockon::error::DeviceFault;
use lockon::frame::{FrameMeta, Picture, Plane, Rect, Size};
use lockon::orders::{Order, Repeated};
use lockon::ports::{Delivery, Sink};
use lockon::results::{Event, FrameRecord, Match, Summary};
use lockon::template::Template;
use lockon::{Error, Result};

use crate::util::{Job, MemorySink, MemorySource, backends, gpu, noise, paste, timeless};

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
    job_on(BackendChoice::Cpu)
}

fn job_on(backend: BackendChoice) -> Job {
    Job { backend, templates: vec![Template::new("patch", patch(), None).unwrap()], ..Job::default() }
}

fn pictures(count: usize) -> Vec<Plane> {
    (0..count).map(|index| scene(index, &patch()).0).collect()
}

#[test]
fn every_frame_is_delivered_in_order_with_its_own_match() {
    let records = job().records_of_all(&pictures(20));
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
    let with = |backend, depth, threads| {
        let job = Job { limits, depth, threads, threshold, tracks: tracks.clone(), ..job_on(backend) };
        timeless(&job.records(&pictures))
    };
    let expected = with(BackendChoice::Cpu, 1, 1);
    for backend in backends() {
        for (depth, threads) in [(1, 1), (2, 1), (2, 2), (3, 3), (8, 5)] {
            assert_eq!(
                with(backend, depth, threads),
                expected,
                "{backend:?}, depth {depth}, {threads} threads"
            );
        }
    }
}

#[test]
fn results_are_the_same_for_every_kernel() {
    let Some(backend) = gpu() else { return };
    let pictures = pictures(5);
    for threshold in [
        "mean:11:2",
        "gaussian:11:2",
        "sauvola:11:0.2:inv",
        "niblack:11:-0.2",
        "mean:31x5:2..-9",
        "wolf:11:0.3",
        "phansalkar:11:0.2",
        "bradley:11:5",
        "fixed:60..150",
        "otsu",
        "triangle:inv",
        "background:3:7",
    ] {
        let limits = Limits { min_score: 0.1, max_matches: 50, max_overlap: 0.5 };
        let threshold = Some(threshold.parse().unwrap());
        let expected = timeless(&Job { threshold, limits, ..job() }.records(&pictures));
        for (name, kernel) in Kernel::ALL {
            let kernels = [kernel].into_iter().collect();
            let job = Job { kernels, threshold, limits, ..job_on(backend) };
            assert_eq!(timeless(&job.records(&pictures)), expected, "{name}, {threshold:?}");
        }
    }
}

fn planes(masks: &[Option<Arc<dyn Picture>>]) -> Vec<Option<Plane>> {
    masks.iter().map(|mask| mask.as_ref().map(|mask| mask.plane(0).to_plane())).collect()
}

#[test]
fn masks_belong_to_their_frame_however_long_they_are_held() {
    let pictures = pictures(6);
    let spec = "mean:5:1".parse().unwrap();
    for backend in backends() {
        let sink = MemorySink::default();
        let heard = sink.heard.clone();
        let job = Job { backend, threshold: Some(spec), ..Job::default() };
        job.run(&mut MemorySource::new(&pictures), vec![Box::new(sink)]).1.unwrap();
        let masks = &heard.lock().unwrap().masks;
        assert_eq!(masks.len(), pictures.len(), "{backend:?}");
        for (picture, mask) in pictures.iter().zip(masks) {
            let expected = lockon::reference::threshold::threshold(picture.as_ref(), &spec);
            assert!(mask.as_ref().unwrap().plane(0).to_plane() == expected, "{backend:?}");
        }
    }
}

#[test]
fn objects_are_those_of_the_definition_on_every_backend_for_any_number_of_threads_and_slots() {
    let pictures = pictures(6);
    let method: ThresholdSpec = "mean:9:2".parse().unwrap();
    for spec in ["{}", r#"{"colour":"black","connect":"4","open":"3","close":"3","fill_holes":true,"max":4}"#]
    {
        let spec: ObjectSpec = serde_json::from_str(spec).unwrap();
        for (backend, threads, depth) in
            backends().into_iter().flat_map(|b| [(1, 1), (3, 2), (2, 4)].map(|(t, d)| (b, t, d)))
        {
            let sink = MemorySink::default();
            let heard = sink.heard.clone();
            let (threshold, objects) = (Some(method), Some(spec));
            let job = Job { backend, threshold, objects, threads, depth, ..Job::default() };
            let (summary, outcome) = job.run(&mut MemorySource::new(&pictures), vec![Box::new(sink)]);
            outcome.unwrap();
            let heard = heard.lock().unwrap();
            let mut total = 0;
            for (index, picture) in pictures.iter().enumerate() {
                let mask = lockon::reference::threshold::threshold(picture.as_ref(), &method);
                let expected = lockon::reference::objects::find(mask.as_ref(), picture.as_ref(), &spec);
                let record = &heard.records[index];
                assert_eq!(record.objects.as_ref(), Some(&expected.objects), "{backend:?} {threads} {depth}");
                assert_eq!(record.more_objects, expected.more, "{backend:?} {threads} {depth}");
                assert!(heard.masks[index].as_ref().unwrap().plane(0).to_plane() == expected.mask);
                total += expected.objects.len() as u64;
            }
            assert_eq!(summary.objects.map(|objects| (objects.frames, objects.total)), Some((6, total)));
            assert!(total > 0);
        }
    }
}

#[test]
fn objects_begin_and_end_with_an_order_and_no_frame_has_those_of_another() {
    let pictures = pictures(12);
    let threshold: ThresholdSpec = "mean:9:2".parse().unwrap();
    let spec = ObjectSpec { max: Some(5), ..ObjectSpec::default() };
    for backend in backends() {
        let sink = MemorySink::default();
        let heard = sink.heard.clone();
        let job = Job { backend, threshold: Some(threshold), ..Job::default() };
        let orders = [(3, Some(spec)), (7, None)]
            .map(|(at, objects)| (at, Change { objects: Some(objects), ..Change::default() }));
        let changes = Changes { control: job.control.clone(), orders: orders.into() };
        let sinks: Vec<Box<dyn Sink>> = vec![Box::new(sink), Box::new(changes)];
        job.run(&mut MemorySource { is_slow: true, ..MemorySource::new(&pictures) }, sinks).1.unwrap();
        let heard = heard.lock().unwrap();
        let with: Vec<u64> = heard
            .records
            .iter()
            .filter(|record| record.objects.is_some())
            .map(|record| record.frame)
            .collect();
        assert_eq!(with, [4, 5, 6, 7], "{backend:?}");
        for record in &heard.records[4..=7] {
            let picture = pictures[record.frame as usize].as_ref();
            let mask = lockon::reference::threshold::threshold(picture, &threshold);
            let expected = lockon::reference::objects::find(mask.as_ref(), picture, &spec);
            assert_eq!(
                (record.objects.as_ref(), record.more_objects),
                (Some(&expected.objects), expected.more)
            );
        }
    }
}

/// Changes the search when a frame is delivered.
struct Changes {
    control: Control,
    orders: Vec<(u64, Change)>,
}

impl Sink for Changes {
    fn name(&self) -> &'static str {
        "changes"
    }

    fn deliver(&mut self, delivery: &Delivery<'_>) -> Result<()> {
        for (_, change) in self.orders.iter().filter(|(at, _)| *at == delivery.record.frame) {
            self.control.change(change.clone())?;
        }
        Ok(())
    }
}

#[test]
fn only_files_of_outputs_that_did_not_fail_are_told_as_written() {
    let sink = |name: &str, fails_at, fails_at_end| -> Box<dyn Sink> {
        Box::new(MemorySink { file: Some(name.into()), fails_at, fails_at_end, ..MemorySink::default() })
    };
    let sinks = vec![sink("good", None, false), sink("broke", Some(2), false), sink("cut", None, true)];
    let (summary, outcome) = job().run(&mut MemorySource::new(&pictures(4)), sinks);
    assert!(matches!(outcome, Err(Error::Output { .. })));
    assert_eq!((summary.frames, summary.files), (4, vec!["good".into()]));
}

#[test]
fn frames_before_an_error_are_delivered_and_the_error_is_told() {
    for backend in backends() {
        let mut source = MemorySource::new(&pictures(5));
        source.frames.push_back(Err(Error::NoVideo { input: "x".into(), reason: "broke".into() }));
        let sink = MemorySink::default();
        let heard = sink.heard.clone();
        let (summary, outcome) = job_on(backend).run(&mut source, vec![Box::new(sink)]);
        assert!(matches!(outcome, Err(Error::NoVideo { .. })), "{backend:?}");
        let heard = heard.lock().unwrap();
        assert_eq!((summary.frames, heard.records.len(), heard.finished), (5, 5, 1), "{backend:?}");
    }
}

#[test]
fn a_failing_sink_is_finished_and_the_others_get_every_frame() {
    for backend in backends() {
        for panics in [false, true] {
            let bad = || MemorySink { fails_at: Some(3), panics, ..MemorySink::default() };
            let (good, first, second) = (MemorySink::default(), bad(), bad());
            let heard = [&good, &first, &second].map(|sink| sink.heard.clone());
            let sinks: Vec<Box<dyn Sink>> = vec![Box::new(first), Box::new(good), Box::new(second)];
            let (summary, outcome) = job_on(backend).run(&mut MemorySource::new(&pictures(9)), sinks);
            assert_eq!(summary.frames, 9, "{backend:?}");
            match outcome.unwrap_err() {
                Error::Output { .. } if !panics => {}
                Error::Panicked { what, message } if panics => {
                    assert_eq!((what.as_str(), message.as_str()), ("output memory", "asked to panic"));
                }
                error => panic!("{error}"),
            }
            let told = heard.map(|heard| {
                let heard = heard.lock().unwrap();
                (heard.records.len(), heard.finished)
            });
            assert_eq!(told, [(9, 1), (3, 1), (3, 1)], "{backend:?}");
        }
    }
}

#[test]
fn a_run_whose_last_output_failed_ends() {
    for backend in backends() {
        let bad = |at| MemorySink { fails_at: Some(at), ..MemorySink::default() };
        // A sink that only watches does not keep the run going.
        let watching = MemorySink { only_watches: true, ..MemorySink::default() };
        let heard = watching.heard.clone();
        let sinks: Vec<Box<dyn Sink>> = vec![Box::new(bad(2)), Box::new(bad(4)), Box::new(watching)];
        let (summary, outcome) = job_on(backend).run(&mut MemorySource::new(&pictures(9)), sinks);
        assert!(matches!(outcome, Err(Error::Output { .. })), "{backend:?}");
        assert_eq!(summary.frames, 4, "{backend:?}");
        assert_eq!(heard.lock().unwrap().finished, 1, "{backend:?}");
    }
}

#[test]
fn a_panic_of_the_engine_leaves_sinks_finished() {
    let mut source = MemorySource::new(&pictures(5));
    source.panics = true;
    let sink = MemorySink::default();
    let heard = sink.heard.clone();
    let (summary, outcome) = job().run(&mut source, vec![Box::new(sink)]);
    assert!(matches!(outcome, Err(Error::Panicked { .. })));
    let heard = heard.lock().unwrap();
    // Frames that were in flight are gone with what panicked.
    assert!(summary.frames >= 3 && heard.records.len() as u64 == summary.frames, "{}", summary.frames);
    assert_eq!(heard.finished, 1);
}

#[test]
fn a_stopped_run_delivers_whole_frames_and_gives_up_the_others() {
    for backend in backends() {
        let control = Control::new();
        let sink = MemorySink { stops_at: Some((4, control.clone())), ..MemorySink::default() };
        let heard = sink.heard.clone();
        let job = Job { control, depth: 3, ..job_on(backend) };
        let (summary, outcome) = job.run(&mut MemorySource::new(&pictures(50)), vec![Box::new(sink)]);
        outcome.unwrap();
        assert!(summary.interrupted, "{backend:?}");
        // Frame 4 was delivered with two more in flight; each of these was done or not.
        let heard = heard.lock().unwrap();
        assert!((5..=7).contains(&summary.frames), "{backend:?}: {}", summary.frames);
        assert_eq!(heard.records.len() as u64, summary.frames, "{backend:?}");
        let delivered: Vec<_> = heard.records.iter().map(|record| FrameRecord::clone(record)).collect();
        let whole = job_on(backend).records(&pictures(50)[..delivered.len()]);
        assert_eq!(timeless(&delivered), timeless(&whole), "{backend:?}");
        assert_eq!(heard.finished, 1, "{backend:?}");
    }
}

#[test]
fn max_frames_ends_the_run_exactly_there() {
    let records = Job { max_frames: Some(7), depth: 3, ..job() }.records_of_all(&pictures(20));
    assert_eq!(records.last().map(|r| r.frame), Some(6));
}

#[test]
fn a_change_of_frame_size_drains_and_goes_on() {
    let mut pictures = pictures(4);
    let mut larger = noise(77, Size::new(201, 99));
    paste(&mut larger, &patch(), 150, 80);
    pictures.push(larger);
    let records = job().records_of_all(&pictures);
    assert_eq!(records.len(), 5);
    assert_eq!(records[4].matches[0].rect(), Rect::new(150, 80, 17, 11));
}

#[test]
fn a_template_larger_than_the_frame_is_refused_with_both_sizes() {
    let wall = Template::new("wall", noise(5, Size::new(200, 20)), None).unwrap();
    for backend in backends() {
        let job = Job { templates: vec![wall.clone()], ..job_on(backend) };
        let (summary, outcome) = job.run(&mut MemorySource::new(&pictures(3)), vec![]);
        let said = outcome.unwrap_err().to_string();
        assert_eq!(said, "no template fits: the smallest is 200x20, the searched area 123x65");
        assert_eq!(summary.frames, 0, "{backend:?}");
    }
}

#[test]
fn a_track_box_outside_the_frame_is_refused_before_any_frame() {
    for backend in backends() {
        let job = Job { tracks: vec!["120,0,10,10@3".parse().unwrap()], backend, ..Job::default() };
        let (summary, outcome) = job.run(&mut MemorySource::new(&pictures(5)), vec![]);
        let said = outcome.unwrap_err().to_string();
        assert_eq!(
            (said.as_str(), summary.frames),
            ("track box 120,0,10,10 does not lie inside the 123x65 frame", 0),
            "{backend:?}"
        );
    }
}

#[test]
fn a_result_is_not_held_back_for_the_next_frame() {
    for backend in backends() {
        // Whenever the engine waits for a frame, all results of the frames before must be out.
        let sink = MemorySink::default();
        let heard = sink.heard.clone();
        let mut source =
            MemorySource { is_slow: true, watched: Some(heard), ..MemorySource::new(&pictures(3)) };
        job_on(backend).run(&mut source, vec![Box::new(sink)]).1.unwrap();
        assert_eq!(source.heard_at_wait, [0, 1, 2, 3], "{backend:?}");
    }
}

/// The calls of a backend that can fail here.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Call {
    Submit,
    WaitNext,
}

/// A backend that fails at a call. It must not be called afterwards.
struct Failing {
    inner: Box<dyn Backend>,
    call: Call,
    /// How many such calls still succeed.
    good: usize,
    fault: DeviceFault,
    has_failed: bool,
}

impl Failing {
    fn check(&mut self, call: Call) -> Result<()> {
        assert!(!self.has_failed, "{call:?} of a backend that has failed");
        if call != self.call {
            return Ok(());
        }
        self.has_failed = self.good == 0;
        self.good = self.good.saturating_sub(1);
        if self.has_failed { Err(failure(&self.fault)) } else { Ok(()) }
    }
}

impl Backend for Failing {
    fn describe(&self) -> Device {
        Device { backend: "failing", name: "a device that fails".into(), driver: None }
    }

    fn depth(&self) -> usize {
        self.inner.depth()
    }

    fn submit(&mut self, meta: FrameMeta, picture: &Arc<dyn Picture>) -> Result<()> {
        self.check(Call::Submit)?;
        self.inner.submit(meta, picture)
    }

    fn wait_next(&mut self, findings: &mut Findings) -> Result<Option<FrameMeta>> {
        let next = self.inner.wait_next(findings)?;
        // The findings that it wrote before it failed must not matter.
        self.check(Call::WaitNext).map(|()| next)
    }
}

fn failure(fault: &DeviceFault) -> Error {
    Error::Backend { backend: "failing", fault: fault.clone() }
}

fn lost() -> DeviceFault {
    DeviceFault::Lost { reason: "an illegal address".into() }
}

const NEVER: (Call, usize, &DeviceFault) = (Call::Submit, usize::MAX, &DeviceFault::Other(String::new()));

/// A target that moves, is gone for some frames and comes back; two boxes that start at different frames;
/// templates and a mask besides.
fn busy_job(backend: BackendChoice, depth: usize) -> (Job, Vec<Plane>) {
    let pictures = (0..14).map(|index| {
        let mut picture = noise(500 + index as u64, SIZE);
        paste(&mut picture, &noise(2, Size::new(21, 15)), 60, 40);
        if !(6..9).contains(&index) {
            // It changes, so that its new look is learnt.
            let mut target = patch();
            let fresh = noise(900 + index as u64, target.size());
            for (old, new) in target.data_mut().iter_mut().zip(fresh.data()).skip(index).step_by(5) {
                *old = *new;
            }
            paste(&mut picture, &target, 10 + 2 * index, 5 + index);
        }
        picture
    });
    let job = Job {
        depth,
        threshold: Some("mean:9:3".parse().unwrap()),
        tracks: vec!["10,5,17,11".parse().unwrap(), "60,40,21,15@4".parse().unwrap()],
        ..job_on(backend)
    };
    (job, pictures.collect())
}

type Masks = Vec<Option<Plane>>;

/// Runs on the job's backend, whose `call` number `good` fails; the CPU stands by if `has_spare`.
fn run_failing(
    (job, pictures): &(Job, Vec<Plane>),
    (call, good, fault): (Call, usize, &DeviceFault),
    has_spare: bool,
) -> (Vec<FrameRecord>, Masks, Summary, Result<()>) {
    let open = |purpose: &Purpose<'_>| -> Result<Box<dyn Backend>> {
        let inner = job.open_backend(purpose)?;
        Ok(Box::new(Failing { inner, call, good, fault: fault.clone(), has_failed: false }))
    };
    let on_cpu = Job { backend: BackendChoice::Cpu, ..job.clone() };
    let spare = |purpose: &Purpose<'_>, _: Option<&Error>| on_cpu.open_backend(purpose);
    let sink = MemorySink::default();
    let heard = sink.heard.clone();
    let open_spare = has_spare.then_some(&spare as &OpenSpare<'_>);
    let (summary, outcome) =
        job.run_on(&mut MemorySource::new(pictures), vec![Box::new(sink)], &open, open_spare);
    let heard = heard.lock().unwrap();
    assert_eq!((heard.begun.max(1), heard.finished), (1, 1));
    let records = heard.records.iter().map(|record| FrameRecord::clone(record)).collect();
    (records, planes(&heard.masks), summary, outcome)
}

#[test]
fn the_spare_device_gives_what_the_run_would_have_given_without_a_loss() {
    for (backend, depth) in backends_and_depths() {
        let (expected, masks, summary, _) = run_failing(&busy_job(BackendChoice::Cpu, depth), NEVER, false);
        assert_eq!((expected.len(), summary.device_lost), (14, None));
        let busy = busy_job(backend, depth);
        for fault in [lost(), DeviceFault::Launch { kernel: "ncc", reason: "no such function".into() }] {
            for call in [Call::Submit, Call::WaitNext] {
                let mut losses = 0;
                for good in 0.. {
                    let what = format!("{backend:?}, depth {depth}, {call:?} {good}, {fault}");
                    let (records, its_masks, summary, outcome) =
                        run_failing(&busy, (call, good, &fault), true);
                    outcome.unwrap_or_else(|error| panic!("{what}: {error}"));
                    assert_eq!(timeless(&records), timeless(&expected), "{what}");
                    assert!(its_masks == masks, "{what}");
                    let Some(first) = summary.device_lost else { break };
                    losses += 1;
                    match call {
                        Call::WaitNext => assert_eq!(first, good as u64, "{what}"),
                        // Up to a frame for each slot was in flight; the oldest is done again.
                        Call::Submit => {
                            assert!((first..first + depth as u64).contains(&(good as u64)), "{what}");
                        }
                    }
                }
                assert_eq!(losses, 14, "{backend:?}, depth {depth}, {call:?}: one a frame");
            }
        }
    }
}

/// Every depth on the CPU; one on others, which take long to open.
fn backends_and_depths() -> Vec<(BackendChoice, usize)> {
    let depths = |backend| if backend == BackendChoice::Cpu { 1..=3 } else { 2..=2 };
    backends().into_iter().flat_map(|backend| depths(backend).map(move |depth| (backend, depth))).collect()
}

#[test]
fn a_lost_device_ends_the_run_with_its_error_after_what_was_delivered() {
    for (backend, depth) in backends_and_depths() {
        let busy = busy_job(backend, depth);
        let (expected, ..) = run_failing(&busy, NEVER, false);
        for (call, good) in [(Call::Submit, 7), (Call::WaitNext, 5)] {
            let (records, _, summary, outcome) = run_failing(&busy, (call, good, &lost()), false);
            let what = format!("{backend:?}, depth {depth}, {call:?} {good}");
            assert_eq!(outcome.unwrap_err().to_string(), failure(&lost()).to_string(), "{what}");
            assert!(!records.is_empty() && records.len() < 14, "{what}: {}", records.len());
            assert_eq!(timeless(&records), timeless(&expected[..records.len()]), "{what}");
            assert_eq!((summary.frames, summary.device_lost), (records.len() as u64, None), "{what}");
        }
    }
}

#[test]
fn a_failure_that_is_no_loss_ends_the_run_although_there_is_a_spare() {
    let full = DeviceFault::Other("asked to fail".into());
    for backend in backends() {
        for call in [Call::Submit, Call::WaitNext] {
            for has_spare in [false, true] {
                let busy = busy_job(backend, 2);
                let (records, _, summary, outcome) = run_failing(&busy, (call, 6, &full), has_spare);
                let what = format!("{backend:?}, {call:?}");
                assert_eq!(outcome.unwrap_err().to_string(), failure(&full).to_string(), "{what}");
                assert!(records.len() < 14 && summary.device_lost.is_none(), "{what}");
            }
        }
    }
}

#[test]
fn a_spare_device_that_is_lost_too_ends_the_run() {
    let (job, pictures) = busy_job(BackendChoice::Cpu, 2);
    let open = |purpose: &Purpose<'_>| -> Result<Box<dyn Backend>> {
        let inner = job.open_backend(purpose)?;
        Ok(Box::new(Failing { inner, call: Call::WaitNext, good: 3, fault: lost(), has_failed: false }))
    };
    let mut source = MemorySource::new(&pictures);
    let (summary, outcome) = job.run_on(&mut source, vec![], &open, Some(&|purpose, _| open(purpose)));
    assert!(outcome.unwrap_err().is_device_lost());
    assert_eq!((summary.frames, summary.device_lost), (6, Some(3)));
}

#[test]
fn frames_in_flight_when_a_device_is_lost_are_searched_as_they_were_submitted() {
    let order =
        |frame, change: Change| Repeated { frame, order: Order::Change(change.into()), refused: None };
    let looser = || Change { min_score: Some(-1.0), max_matches: Some(3), ..Change::default() };
    let orders = || vec![order(4, looser()), order(5, Change::removing("patch")), order(6, looser())];
    for backend in backends() {
        for depth in [2, 4] {
            let (job, pictures) = busy_job(backend, depth);
            let orders = |job: &Job| {
                let job = Job { control: Control::new(), ..job.clone() };
                job.control.repeat(orders());
                job
            };
            let expected = Job { backend: BackendChoice::Cpu, ..orders(&job) }.records(&pictures);
            let counts: Vec<_> = expected[4..7].iter().map(|record| record.matches.len()).collect();
            assert_eq!(counts, [3, 0, 0]);
            // Lost with the first change on its way, and with all of them.
            for good in [2, 3, 4] {
                let failing = (orders(&job), pictures.clone());
                let (records, _, summary, outcome) =
                    run_failing(&failing, (Call::WaitNext, good, &lost()), true);
                outcome.unwrap();
                assert_eq!(timeless(&records), timeless(&expected), "{backend:?}, depth {depth}, {good}");
                assert!(summary.device_lost.is_some());
            }
        }
    }
}

#[test]
fn a_device_that_is_lost_while_one_is_opened_for_a_change_is_no_reason_to_refuse_the_change() {
    let orders = |job: &Job| {
        let job = Job { control: Control::new(), ..job.clone() };
        let change = Change { min_score: Some(-1.0), max_matches: Some(3), ..Change::default() };
        job.control.repeat(vec![Repeated { frame: 5, order: Order::Change(change.into()), refused: None }]);
        job
    };
    for (backend, depth) in backends_and_depths() {
        let (job, pictures) = busy_job(backend, depth);
        let on_cpu = Job { backend: BackendChoice::Cpu, ..orders(&job) };
        let expected = on_cpu.records(&pictures);
        assert_eq!(expected[5].matches.len(), 3);
        // The frames in flight are lost with it, or come out of it as if nothing had happened.
        for good in [5 - (depth - 1), usize::MAX] {
            let job = orders(&job);
            let has_opened = Cell::new(false);
            let open = |purpose: &Purpose<'_>| -> Result<Box<dyn Backend>> {
                if has_opened.replace(true) {
                    return Err(failure(&lost()));
                }
                let (inner, fault) = (job.open_backend(purpose)?, lost());
                Ok(Box::new(Failing { inner, call: Call::WaitNext, good, fault, has_failed: false }))
            };
            let spare = |purpose: &Purpose<'_>, _: Option<&Error>| on_cpu.open_backend(purpose);
            let sink = MemorySink::default();
            let heard = sink.heard.clone();
            let (summary, outcome) =
                job.run_on(&mut MemorySource::new(&pictures), vec![Box::new(sink)], &open, Some(&spare));
            outcome.unwrap();
            let heard = heard.lock().unwrap();
            let what = format!("{backend:?}, depth {depth}, {good}");
            let records: Vec<_> = heard.records.iter().map(|record| FrameRecord::clone(record)).collect();
            assert_eq!(timeless(&records), timeless(&expected), "{what}");
            let told: Vec<_> = heard.events.iter().map(|(_, event)| event).collect();
            assert!(matches!(told[..], [Event::Control { frame: 5, refused: None, .. }]), "{what}: {told:?}");
            let first = if good == usize::MAX { 5 } else { good as u64 };
            assert_eq!(summary.device_lost, Some(first), "{what}");
        }
    }
}

#[test]
fn a_change_that_was_made_stays_when_the_device_is_lost_at_the_next() {
    let order = |change: Change| Repeated { frame: 5, order: Order::Change(change.into()), refused: None };
    let made = || order(Change { min_score: Some(-1.0), max_matches: Some(3), ..Change::default() });
    let other = || failure(&DeviceFault::Other("asked to fail".into()));
    for depth in 1..=3 {
        let (job, pictures) = busy_job(BackendChoice::Cpu, depth);
        let with = |orders: Vec<Repeated>| {
            let job = Job { control: Control::new(), ..job.clone() };
            job.control.repeat(orders);
            job
        };
        let expected = with(vec![made()]).records(&pictures);
        let is_second = |purpose: &Purpose<'_>| purpose.search.limits.max_overlap == 0.9;
        let job = with(vec![made(), order(Change { max_overlap: Some(0.9), ..Change::default() })]);
        let opened = Cell::new(0);
        let open = |purpose: &Purpose<'_>| -> Result<Box<dyn Backend>> {
            opened.set(opened.get() + 1);
            match opened.get() {
                // Both changes at once, then the second alone.
                2 => return Err(other()),
                4 => return Err(failure(&lost())),
                _ => {}
            }
            let (inner, fault, good) = (job.open_backend(purpose)?, lost(), 5 - (depth - 1));
            Ok(Box::new(Failing { inner, call: Call::WaitNext, good, fault, has_failed: false }))
        };
        let spare = |purpose: &Purpose<'_>, _: Option<&Error>| {
            if is_second(purpose) { Err(other()) } else { job.open_backend(purpose) }
        };
        let sink = MemorySink::default();
        let heard = sink.heard.clone();
        let (_, outcome) =
            job.run_on(&mut MemorySource::new(&pictures), vec![Box::new(sink)], &open, Some(&spare));
        outcome.unwrap();
        assert_eq!(opened.get(), 4);
        let heard = heard.lock().unwrap();
        let records: Vec<_> = heard.records.iter().map(|record| FrameRecord::clone(record)).collect();
        assert_eq!(timeless(&records), timeless(&expected), "depth {depth}");
        let refused = heard.events.iter().map(|(_, event)| match event {
            Event::Control { frame: 5, refused, .. } => refused.is_some(),
            event => panic!("{event:?}"),
        });
        assert_eq!(refused.collect::<Vec<_>>(), [false, true]);
    }
}

#[test]
fn a_run_that_ends_while_a_change_is_made_ends_with_what_ended_it() {
    let with_a_change = |depth| {
        let (job, pictures) = busy_job(BackendChoice::Cpu, depth);
        let change = Change { min_score: Some(-1.0), ..Change::default() };
        job.control.repeat(vec![Repeated { frame: 5, order: Order::Change(change.into()), refused: None }]);
        (job, pictures)
    };
    for depth in 2..=3 {
        for output_fails in [false, true] {
            let (job, pictures) = with_a_change(depth);
            let has_opened = Cell::new(false);
            let open = |purpose: &Purpose<'_>| -> Result<Box<dyn Backend>> {
                if has_opened.replace(true) {
                    return Err(failure(&lost()));
                }
                let good = if output_fails { usize::MAX } else { 5 - (depth - 1) };
                let (inner, fault) = (job.open_backend(purpose)?, lost());
                Ok(Box::new(Failing { inner, call: Call::WaitNext, good, fault, has_failed: false }))
            };
            let full = || failure(&DeviceFault::Other("no room on the spare one".into()));
            let spare = |purpose: &Purpose<'_>, _: Option<&Error>| {
                if output_fails { job.open_backend(purpose) } else { Err(full()) }
            };
            // Frame 4 is in flight when the change of frame 5 is made.
            let sink = MemorySink { fails_at: output_fails.then_some(4), ..MemorySink::default() };
            let heard = sink.heard.clone();
            let mut source = MemorySource::new(&pictures);
            let (summary, outcome) = job.run_on(&mut source, vec![Box::new(sink)], &open, Some(&spare));
            let said = outcome.unwrap_err().to_string();
            let expected = if output_fails { "asked to fail".into() } else { full().to_string() };
            assert!(said.contains(&expected), "depth {depth}: {said}");
            assert!(summary.frames <= 5 && heard.lock().unwrap().finished == 1, "{summary:?}");
        }
    }
}

#[test]
fn where_frames_are_too_small_for_the_search_a_change_is_refused_that_leaves_nothing_to_search() {
    let wall = || Template::new("wall", noise(5, Size::new(110, 20)), None).unwrap();
    let rect = |text: &str| Some(Some(text.parse().unwrap()));
    let orders = [
        // No part of the search fits the smaller frames: a limit can be changed, and a template that fits can
        // be added.
        (2, Change { min_score: Some(0.5), ..Change::default() }, true),
        (3, Change { scales: Some("1..1.2".parse().unwrap()), ..Change::default() }, false),
        (4, Change { roi: rect("0,0,70,60"), ..Change::default() }, false),
        (
            5,
            Change {
                add: vec![Template::new("big", noise(6, Size::new(90, 9)), None).unwrap()],
                ..Change::default()
            },
            false,
        ),
        (6, Change { add: vec![Template::new("patch", patch(), None).unwrap()], ..Change::default() }, true),
        (7, Change { roi: rect("0,0,10,10"), ..Change::default() }, false),
    ];
    for backend in backends() {
        let job = Job { templates: vec![wall()], ..job_on(backend) };
        let (mut pictures, small) = (pictures(1), noise(3, Size::new(80, 50)));
        pictures.extend(std::iter::repeat_n(small, 8));
        paste(&mut pictures[6], &patch(), 33, 22);
        let repeated = |(frame, change, _): &(u64, Change, bool)| Repeated {
            frame: *frame,
            order: Order::Change(change.clone().into()),
            refused: None,
        };
        job.control.repeat(orders.iter().map(repeated).collect());
        let sink = MemorySink::default();
        let heard = sink.heard.clone();
        let (_, outcome) = job.run(&mut MemorySource::new(&pictures), vec![Box::new(sink)]);
        outcome.unwrap();
        let heard = heard.lock().unwrap();
        let told = heard.events.iter().filter_map(|(_, event)| match event {
            Event::Control { frame, refused, .. } => Some((*frame, refused.clone())),
            _ => None,
        });
        let told: Vec<_> = told.collect();
        assert_eq!(told.len(), orders.len(), "{told:?}");
        for ((frame, change, is_done), (at, refused)) in orders.iter().zip(&told) {
            assert_eq!((frame, *is_done), (at, refused.is_none()), "{backend:?}: {change}: {refused:?}");
        }
        let found: Vec<_> = heard.records[6].matches.iter().map(Match::rect).collect();
        assert_eq!(found, [Rect::new(33, 22, 17, 11)], "{backend:?}");
    }
}

#[test]
fn what_took_over_stays_when_the_frames_change_their_size() {
    for backend in backends() {
        let (job, mut pictures) = busy_job(backend, 2);
        pictures.extend((0..3).map(|seed| noise(seed, Size::new(201, 99))));
        let expected = Job { backend: BackendChoice::Cpu, ..job.clone() }.records(&pictures);
        let (records, _, summary, outcome) =
            run_failing(&(job, pictures), (Call::WaitNext, 2, &lost()), true);
        outcome.unwrap();
        assert_eq!(timeless(&records), timeless(&expected), "{backend:?}");
        assert_eq!(summary.device_lost, Some(2), "{backend:?}");
    }
}

#[test]
fn a_stall_is_told_after_two_seconds_and_when_it_is_over() {
    let mut source = MemorySource::new(&pictures(6));
    // Nothing for 2.3 s before frame 4.
    source.silence = Some((4, std::time::Duration::from_millis(2300)));
    let sink = MemorySink::default();
    let heard = sink.heard.clone();
    let (summary, outcome) = job().run(&mut source, vec![Box::new(sink)]);
    outcome.unwrap();
    assert_eq!((summary.frames, summary.stalls), (6, 1));
    let heard = heard.lock().unwrap();
    let [(4, Event::Stalled { frame: 4, waited_us }), (4, Event::Resumed { frame: 4, waited_us: whole })] =
        heard.events[..]
    else {
        panic!("{:?}", heard.events)
    };
    assert!((2_000_000..2_300_000).contains(&waited_us), "{waited_us}");
    assert!(whole >= 2_300_000, "{whole}");
}

#[test]
fn a_pause_is_nobodys_latency() {
    let control = Control::new();
    // These frames have arrived, and then the run pauses.
    let mut source = MemorySource::new(&pictures(6));
    control.pause(true);
    let goes_on = control.clone();
    let pausing = std::thread::spawn(move || {
        std::thread::sleep(std::time::Duration::from_secs(3));
        goes_on.pause(false);
    });
    let (summary, outcome) = Job { control, ..job() }.run(&mut source, vec![]);
    pausing.join().unwrap();
    outcome.unwrap();
    assert_eq!(summary.frames, 6);
    assert!(summary.latency_us.max < 2_000_000, "{:?}", summary.latency_us);
    assert!(summary.seconds > 0.0 && summary.seconds < 2.0, "{}", summary.seconds);
}

#[test]
fn a_gap_stands_between_the_frames_around_it_and_tracks_go_on() {
    let mut pictures = pictures(8);
    for picture in &mut pictures {
        paste(picture, &noise(5, Size::new(20, 15)), 60, 30);
    }
    for backend in backends() {
        let mut source = MemorySource::new(&pictures);
        source.gap_before = Some(5);
        let sink = MemorySink::default();
        let heard = sink.heard.clone();
        let tracks = vec!["60,30,20,15".parse().unwrap()];
        let (summary, outcome) =
            Job { backend, tracks, ..Job::default() }.run(&mut source, vec![Box::new(sink)]);
        outcome.unwrap();
        assert_eq!((summary.frames, summary.gaps), (8, 1), "{backend:?}");
        let heard = heard.lock().unwrap();
        let [(5, Event::Gap { frame: 5, away_us: 3_000_000, reason })] = &heard.events[..] else {
            panic!("{backend:?}: {:?}", heard.events)
        };
        assert_eq!(reason, "it was away");
        for record in &heard.records {
            assert_eq!(record.tracks[0].state, lockon::results::TrackState::Tracked, "{backend:?}");
        }
    }
}

#[test]
fn a_gap_before_the_first_frame_is_told_when_outputs_have_begun() {
    let mut source = MemorySource::new(&pictures(2));
    source.gap_before = Some(0);
    let sink = MemorySink::default();
    let heard = sink.heard.clone();
    let (summary, outcome) = Job::default().run(&mut source, vec![Box::new(sink)]);
    outcome.unwrap();
    assert_eq!((summary.frames, summary.gaps), (2, 1));
    let heard = heard.lock().unwrap();
    assert!(matches!(&heard.events[..], [(0, Event::Gap { frame: 0, away_us: 3_000_000, .. })]));
}

#[test]
fn a_change_of_range_between_two_frames_gives_the_same_masks_with_range_full() {
    let limited = noise(60, SIZE);
    let full = limited.data().iter().map(|&luma| lockon::colour::expanded(luma)).collect();
    let full = Plane::from_vec(full, SIZE);
    let i420 = lockon::frame::PixelFormat::from_name("I420").unwrap();
    for backend in backends() {
        // Full-range grey, limited video, full-range video, limited video.
        let mut source =
            MemorySource::new(&[&full, &full, &limited, &limited, &full, &limited].map(Clone::clone));
        let said = [None, None, Some("bt709"), None, Some("1:4:0:0"), Some("bt601")];
        for (index, (frame, said)) in source.frames.iter_mut().flatten().zip(said).enumerate() {
            let pixels = if index < 2 { frame.format.pixels } else { i420 };
            let colorimetry = said.map(str::to_owned);
            frame.format =
                lockon::frame::VideoFormat { pixels, colorimetry, ..(*frame.format).clone() }.into();
        }
        let sink = MemorySink::default();
        let heard = sink.heard.clone();
        let mut search = lockon::search::Search::default();
        search.threshold = Some("mean:7:3".parse().unwrap());
        search.range = lockon::config::LumaRange::Full;
        let job = Job { searched: Some(search), ..job_on(backend) };
        job.run(&mut source, vec![Box::new(sink)]).1.unwrap();
        let heard = heard.lock().unwrap();
        let masks: Vec<_> =
            heard.masks.iter().map(|mask| mask.as_ref().unwrap().plane(0).to_plane()).collect();
        assert_eq!(masks.len(), 6, "{backend:?}");
        assert!(masks.iter().all(|mask| *mask == masks[0]), "{backend:?}");
        assert_eq!(
            masks[0],
            lockon::reference::threshold::threshold(full.as_ref(), &"mean:7:3".parse().unwrap())
        );
    }
}

#[test]
fn a_change_of_frames_is_told_before_the_first_of_them() {
    let mut pictures = pictures(4);
    pictures.extend((0..3).map(|seed| noise(70 + seed, Size::new(201, 99))));
    pictures.extend((0..2).map(|seed| noise(80 + seed, SIZE)));
    for backend in backends() {
        let sink = MemorySink::default();
        let heard = sink.heard.clone();
        let tracks = vec!["30,20,17,11@1".parse().unwrap(), "1,1,9,9@100".parse().unwrap()];
        let job = Job { tracks, ..job_on(backend) };
        job.run(&mut MemorySource::new(&pictures), vec![Box::new(sink)]).1.unwrap();
        let heard = heard.lock().unwrap();
        let caps = |frame, Size { width, height }| {
            (frame as usize, Event::Caps { frame, width, height, format: "GRAY8", frame_rate: 25.0 })
        };
        assert_eq!(heard.events, [caps(4, Size::new(201, 99)), caps(7, SIZE)], "{backend:?}");
        assert_eq!(heard.records.len(), 9, "{backend:?}");
    }
}
