//! The engine under random failures: every stage is late at random and fails at random. The output must be
//! that of a run without failures, in order, without losing anything that could be kept, and nothing twice.

use std::sync::Arc;
use std::time::Duration;

use lockon::backend::{Backend, Device, Findings};
use lockon::engine::{OpenSpare, Purpose};
use lockon::error::DeviceFault;
use lockon::frame::{FrameMeta, Picture, Plane, Size, VideoFormat};
use lockon::ports::{Delivery, Next, Sink, Source};
use lockon::results::{Event, FrameRecord, RunRecord, Summary};
use lockon::template::Template;
use lockon::{Error, Result};
use proptest::prelude::*;

use crate::util::{Job, MemorySink, MemorySource, frame, noise, paste, timeless};

/// How a stage fails where it is asked to.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Failure {
    Error,
    Panic,
}

/// The call of the backend that fails, and whether the failure means that its device is lost.
#[derive(Debug, Clone, Copy)]
struct DeviceFailure {
    on_submit: bool,
    at: usize,
    is_loss: bool,
}

/// Everything that happens in a run. Frames are counted as they come, whatever their numbers.
#[derive(Debug, Clone)]
struct Faults {
    /// How many numbers are left out before each frame, as where frames were dropped.
    skips: Vec<u8>,
    depth: usize,
    max_frames: Option<usize>,
    /// At which frame the source fails instead of giving it.
    source: Option<(usize, Failure)>,
    gap_before: Option<usize>,
    device: Option<DeviceFailure>,
    has_spare: bool,
    /// At which frame each sink fails, if it does.
    sinks: Vec<Option<(usize, Failure)>>,
    /// Each call of each stage takes the next of these from the start again: a wait in steps of 100 us; above
    /// 5, a source has nothing yet.
    delays: Vec<u8>,
}

const MOST: usize = 16;

fn faults() -> impl Strategy<Value = Faults> {
    let failure = || prop_oneof![Just(Failure::Error), Just(Failure::Panic)];
    let at = || 0..MOST + 2;
    let device = (any::<bool>(), at(), any::<bool>()).prop_map(|(on_submit, at, is_loss)| DeviceFailure {
        on_submit,
        at,
        is_loss,
    });
    let sink = proptest::option::weighted(0.4, (at(), failure()));
    (
        proptest::collection::vec(prop_oneof![4 => Just(0), 1 => 1..4_u8], 1..MOST),
        1..5_usize,
        proptest::option::weighted(0.3, 1..MOST),
        proptest::option::weighted(0.3, (at(), failure())),
        proptest::option::weighted(0.3, at()),
        proptest::option::weighted(0.5, device),
        any::<bool>(),
        proptest::collection::vec(sink, 1..4),
        proptest::collection::vec(0..9_u8, 1..24),
    )
        .prop_map(|(skips, depth, max_frames, source, gap_before, device, has_spare, sinks, delays)| {
            Faults { skips, depth, max_frames, source, gap_before, device, has_spare, sinks, delays }
        })
}

/// The waits of one stage.
struct Delays {
    steps: Vec<u8>,
    next: usize,
}

impl Delays {
    fn new(faults: &Faults, start: usize) -> Self {
        Self { steps: faults.delays.clone(), next: start }
    }

    /// Waits for the next step's time, and returns that step.
    fn wait(&mut self) -> u8 {
        let step = self.steps[self.next % self.steps.len()];
        self.next += 1;
        std::thread::sleep(Duration::from_micros(100) * u32::from(step));
        step
    }
}

/// A source that is late.
struct Late {
    inner: MemorySource,
    delays: Delays,
    /// At which frame it panics.
    panics_at: Option<usize>,
    given: usize,
}

impl Late {
    fn next(&mut self, ask: impl FnOnce(&mut MemorySource) -> Result<Next>) -> Result<Next> {
        // The last step is never one of having nothing, or it would have nothing for ever.
        if self.delays.wait() > 5 && !self.delays.next.is_multiple_of(3) {
            return Ok(Next::Pending);
        }
        assert!(self.panics_at != Some(self.given), "asked to panic");
        let next = ask(&mut self.inner)?;
        self.given += usize::from(matches!(next, Next::Frame(_)));
        Ok(next)
    }
}

impl Source for Late {
    fn try_next(&mut self) -> Result<Next> {
        self.next(MemorySource::try_next)
    }

    fn wait_next(&mut self, timeout: Duration) -> Result<Next> {
        self.next(|inner| inner.wait_next(timeout))
    }

    fn dropped(&self) -> u64 {
        0
    }
}

/// A backend that is late and fails.
struct Shaky {
    inner: Box<dyn Backend>,
    delays: Delays,
    failure: Option<DeviceFailure>,
    submitted: usize,
    waited: usize,
}

impl Shaky {
    fn check(&self, is_submit: bool, call: usize) -> Result<()> {
        match self.failure {
            Some(DeviceFailure { on_submit, at, is_loss }) if on_submit == is_submit && at == call => {
                let reason = "asked to fail".to_owned();
                let fault = if is_loss { DeviceFault::Lost { reason } } else { DeviceFault::Other(reason) };
                Err(Error::Backend { backend: "shaky", fault })
            }
            _ => Ok(()),
        }
    }
}

impl Backend for Shaky {
    fn describe(&self) -> Device {
        self.inner.describe()
    }

    fn depth(&self) -> usize {
        self.inner.depth()
    }

    fn submit(&mut self, meta: FrameMeta, picture: &Arc<dyn Picture>) -> Result<()> {
        self.delays.wait();
        self.check(true, self.submitted)?;
        self.submitted += 1;
        self.inner.submit(meta, picture)
    }

    fn wait_next(&mut self, findings: &mut Findings) -> Result<Option<FrameMeta>> {
        self.delays.wait();
        self.check(false, self.waited)?;
        self.waited += 1;
        self.inner.wait_next(findings)
    }
}

/// A sink that is late.
struct Slow {
    inner: MemorySink,
    delays: Delays,
}

impl Sink for Slow {
    fn name(&self) -> &'static str {
        "slow"
    }

    fn begin(&mut self, run: &RunRecord, format: &VideoFormat) -> Result<()> {
        self.inner.begin(run, format)
    }

    fn deliver(&mut self, delivery: &Delivery<'_>) -> Result<()> {
        self.delays.wait();
        self.inner.deliver(delivery)
    }

    fn note(&mut self, event: &Event) -> Result<()> {
        self.inner.note(event)
    }

    fn finish(&mut self, summary: &Summary) -> Result<()> {
        self.inner.finish(summary)
    }
}

impl Faults {
    /// The numbers of the frames.
    fn numbers(&self) -> Vec<u64> {
        let mut next = 0;
        let number = |skip: &u8| {
            next += u64::from(*skip) + 1;
            next - 1
        };
        self.skips.iter().map(number).collect()
    }

    fn source(&self, pictures: &[Plane]) -> MemorySource {
        let frames =
            self.numbers().into_iter().zip(pictures).map(|(number, picture)| Ok(frame(number, picture)));
        MemorySource { frames: frames.collect(), ..MemorySource::default() }
    }
}

const SIZE: Size = Size::new(41, 29);

fn pictures(count: usize) -> Vec<Plane> {
    let patch = noise(1, Size::new(9, 7));
    let picture = |index| {
        let mut picture = noise(70 + index as u64, SIZE);
        paste(&mut picture, &patch, 3 + index, 5 + index / 2);
        picture
    };
    (0..count).map(picture).collect()
}

fn check(faults: &Faults) -> Result<(), TestCaseError> {
    let count = faults.skips.len();
    let (pictures, numbers) = (pictures(count), faults.numbers());
    let patch = Template::new("patch", noise(1, Size::new(9, 7)), None).unwrap();
    let job = Job {
        templates: vec![patch],
        tracks: vec!["3,5,9,7".parse().unwrap()],
        depth: faults.depth,
        max_frames: faults.max_frames.map(|max| max as u64),
        ..Job::default()
    };
    let calm = {
        let sink = MemorySink::default();
        let heard = sink.heard.clone();
        let job = Job { max_frames: None, ..job.clone() };
        job.run(&mut faults.source(&pictures), vec![Box::new(sink)]).1.unwrap();
        let records: Vec<_> = heard.lock().unwrap().records.iter().map(|r| FrameRecord::clone(r)).collect();
        timeless(&records)
    };

    let mut source = Late {
        inner: faults.source(&pictures),
        delays: Delays::new(faults, 0),
        panics_at: faults.source.filter(|(_, failure)| *failure == Failure::Panic).map(|(at, _)| at),
        given: 0,
    };
    source.inner.gap_before = faults.gap_before.and_then(|at| numbers.get(at).copied());
    if let Some((at, Failure::Error)) = faults.source.filter(|(at, _)| *at <= count) {
        source.inner.frames.truncate(at);
        source.inner.frames.push_back(Err(Error::NoVideo { input: "x".into(), reason: "broke".into() }));
    }
    let sinks = faults.sinks.iter().enumerate();
    let sinks: Vec<Slow> = sinks
        .map(|(index, failure)| Slow {
            inner: MemorySink {
                // A frame that never comes is one at which nothing fails.
                fails_at: failure.map(|(at, _)| numbers.get(at).copied().unwrap_or(u64::MAX)),
                panics: matches!(failure, Some((_, Failure::Panic))),
                ..MemorySink::default()
            },
            delays: Delays::new(faults, index + 1),
        })
        .collect();
    let heard: Vec<_> = sinks.iter().map(|sink| sink.inner.heard.clone()).collect();
    let open = |purpose: &Purpose<'_>| -> Result<Box<dyn Backend>> {
        let (inner, delays) = (job.open_backend(purpose)?, Delays::new(faults, 7));
        Ok(Box::new(Shaky { inner, delays, failure: faults.device, submitted: 0, waited: 0 }))
    };
    let spare = |purpose: &Purpose<'_>, _: Option<&Error>| job.open_backend(purpose);
    let open_spare = faults.has_spare.then_some(&spare as &OpenSpare<'_>);
    let sinks = sinks.into_iter().map(|sink| Box::new(sink) as Box<dyn Sink>).collect();
    let (summary, outcome) = job.run_on(&mut source, sinks, &open, open_spare);

    // The expected maximum and minimum of frames that are delivered.
    let asked = faults.max_frames.unwrap_or(usize::MAX);
    let source_at = faults.source.map_or(usize::MAX, |(at, _)| at).min(count + 1);
    let source_fails = source_at <= count && source_at < asked;
    let submitted = count.min(asked).min(source_at);
    let (mut most, mut fewest) = (submitted, submitted);
    if let (true, Some((at, Failure::Panic))) = (source_fails, faults.source) {
        // Frames that were in flight are lost with the source that panicked.
        fewest = at.saturating_sub(faults.depth);
    }
    let is_fatal = |failure: &DeviceFailure| !(failure.is_loss && faults.has_spare) && failure.at < submitted;
    let device = faults.device.filter(is_fatal);
    if let Some(DeviceFailure { on_submit, at, .. }) = device {
        most = most.min(at);
        fewest = fewest.min(if on_submit { at.saturating_sub(faults.depth) } else { at });
    }
    let ends: Vec<usize> = faults.sinks.iter().map(|sink| sink.map_or(usize::MAX, |(at, _)| at)).collect();
    let last_end = ends.iter().copied().max().expect("there is a sink");
    let some_sink_failed = ends.iter().any(|end| *end < submitted);
    (most, fewest) = (most.min(last_end), fewest.min(last_end));

    let delivered = summary.frames as usize;
    prop_assert!((fewest..=most).contains(&delivered), "{delivered} frames, not {fewest} to {most}");
    let must_fail = source_fails || device.is_some() || (some_sink_failed && fewest == most);
    prop_assert!(outcome.is_err() || !must_fail, "nobody was told");
    prop_assert!(outcome.is_ok() || must_fail || some_sink_failed, "{outcome:?}");
    for (heard, end) in heard.iter().zip(&ends) {
        let heard = heard.lock().unwrap();
        let records: Vec<_> = heard.records.iter().map(|r| FrameRecord::clone(r)).collect();
        prop_assert_eq!(records.len(), delivered.min(*end), "a sink that ends at {}", end);
        prop_assert_eq!(timeless(&records), &calm[..records.len()]);
        prop_assert_eq!(heard.finished, 1);
        prop_assert!(heard.begun <= 1);
        let gaps: Vec<usize> = heard.events.iter().map(|(before, _)| *before).collect();
        match faults.gap_before {
            Some(at) if at < records.len() => prop_assert_eq!(gaps, vec![at]),
            Some(at) => prop_assert!(gaps.is_empty() || gaps == [at], "{:?}", gaps),
            None => prop_assert!(gaps.is_empty(), "{:?}", gaps),
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 150, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn whatever_fails_nothing_is_lost_that_came_before_nor_told_twice(faults in faults()) {
        check(&faults)?;
    }
}
