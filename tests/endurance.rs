//! Memory, file descriptors and threads must not grow over many starts, many streams, many frames.
//!
//! These take minutes to half an hour, so they are run by name (scripts/endurance), and print what they
//! measure.

use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use cudarc::driver::CudaContext;
use lockon::backend::{Ahead, Options};
use lockon::config::{BackendChoice, View};
use lockon::control::Control;
use lockon::engine::Engine;
use lockon::fleet::{Entry, Fleet};
use lockon::media::cuda::Surfaces;
use lockon::media::sink::VideoSink;
use lockon::media::source::{Decoder, Input, SourceSpec, VideoSource};
use lockon::ports::{Delivery, Sink};
use lockon::request::Request;
use lockon::results::Summary;
use lockon::search::Search;
use lockon::setup;
use lockon::tracker::Tracker;

use crate::resources::{Pulse, Resources, asked, backend_name, lives, rounds, say, watch};
use crate::util::{Random, run_record};

fn choice() -> BackendChoice {
    backend_name().parse().unwrap()
}

/// Measures what this process holds, and how much memory of its device is in use.
fn held() -> Resources {
    static DEVICE: OnceLock<Option<Arc<CudaContext>>> = OnceLock::new();
    let device = DEVICE.get_or_init(|| match choice() {
        BackendChoice::Cuda(number) => Some(CudaContext::new(number).unwrap()),
        _ => None,
    });
    let device_mb = device.as_ref().map(|device| {
        let (free, total) = device.mem_get_info().unwrap();
        (total - free) as f64 / f64::from(1 << 20)
    });
    Resources { device_mb, ..Resources::now() }
}

/// As `held`, after everything has been stopped.
fn held_at_rest() -> Resources {
    let rest = Resources::at_rest();
    Resources { descriptors: rest.descriptors, threads: rest.threads, ..held() }
}

/// Gives a sign of life for each frame, and reports now and then what is held.
struct Heart {
    pulse: Pulse,
    done: std::sync::mpsc::Sender<Pulse>,
}

impl Sink for Heart {
    fn name(&self) -> &'static str {
        "heart"
    }

    fn deliver(&mut self, _: &Delivery<'_>) -> lockon::Result<()> {
        self.pulse.beat(held);
        Ok(())
    }

    fn finish(&mut self, _: &Summary) -> lockon::Result<()> {
        let _ = self.done.send(std::mem::replace(&mut self.pulse, Pulse::of(0)));
        Ok(())
    }
}

/// A picture that is made, or the file that `LOCKON_CLIP` names, decoded where the frames then are.
fn spec(caps: &str, options: &Options) -> SourceSpec {
    let Some(clip) = std::env::var_os("LOCKON_CLIP") else {
        let text = format!("videotestsrc is-live=true pattern=checkers-8 ! {caps} ! appsink name=frames");
        let launch = lockon::media::launch::Launch::user("--source", &text).unwrap();
        return SourceSpec::new(Input::Launch(launch), Decoder::Software);
    };
    let input = Input::File(clip.into());
    if options.choice == BackendChoice::Cpu {
        return SourceSpec::new(input, Decoder::Software);
    }
    let ahead = Ahead::open(options.choice, &options.traffic);
    let surfaces = Surfaces::new(move || Some(ahead.device()?));
    SourceSpec { surfaces, ..SourceSpec::new(input, Decoder::Hardware) }
}

/// One run from a live source or a file, with a box that is followed and a sink pipeline, until it is
/// stopped or has had so many frames.
fn run(caps: &str, max_frames: Option<u64>, control: &Control, sinks: Vec<Box<dyn Sink>>) -> Summary {
    let options = Options { choice: choice(), threads: 2, control: control.clone(), ..Options::default() };
    let mut source = match VideoSource::open(&spec(caps, &options), control) {
        Err(_) if control.is_stopped() => return Summary::default(),
        source => source.unwrap(),
    };
    let mut all = sinks;
    all.push(Box::new(VideoSink::user("appsrc name=results ! fakesink", View::Overlay, true).unwrap()));
    let mut search = Search::default();
    search.threshold = Some("mean:15:5".parse().unwrap());
    let engine = Engine {
        source: &mut source,
        search: search.into(),
        open_backend: &|purpose| setup::open(&options, purpose),
        open_spare: None,
        describe: &run_record,
        tracker: Box::new(Tracker::new(&["40,40,64,64".parse().unwrap()])),
        sinks: all,
        max_frames,
        control: control.clone(),
        traffic: options.traffic.clone(),
    };
    let (summary, outcome) = engine.run();
    outcome.unwrap();
    lives();
    summary
}

#[test]
#[ignore = "takes minutes: scripts/endurance"]
fn a_thousand_starts_and_stops_leave_nothing_behind() {
    let cycles = asked("LOCKON_CYCLES", 1000);
    watch();
    let (started, mut random) = (Instant::now(), Random::new(5));
    let mut warm = None;
    for cycle in 1..=cycles {
        let control = Control::new();
        let stopped_after = Duration::from_millis(u64::from(random.byte()) / 2);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                std::thread::sleep(stopped_after);
                control.stop();
            });
            run("video/x-raw,format=NV12,width=320,height=240,framerate=100/1", None, &control, Vec::new());
        });
        if cycle % (cycles / 20).max(1) == 0 {
            let held = held_at_rest().tell(&format!("cycle {cycle}"), started);
            // An allocator takes a while until it has the memory that it will keep.
            if cycle >= cycles / 4 {
                warm.get_or_insert(held).check(held);
            }
        }
    }
}

#[test]
#[ignore = "takes a minute: scripts/endurance"]
fn sixteen_streams_run_in_one_process() {
    rounds(held, held_at_rest, |streams, while_they_run| {
        let control = Control::new();
        let summaries: Vec<Summary> = std::thread::scope(|scope| {
            let caps = "video/x-raw,format=NV12,width=320,height=240,framerate=10/1";
            let runs: Vec<_> =
                (0..streams).map(|_| scope.spawn(|| run(caps, None, &control, Vec::new()))).collect();
            while_they_run();
            control.stop();
            runs.into_iter().map(|run| run.join().unwrap()).collect()
        });
        assert!(summaries.iter().all(|summary| summary.frames > 0), "a stream got nothing");
        let frames: u64 = summaries.iter().map(|summary| summary.frames).sum();
        let dropped: u64 = summaries.iter().map(|summary| summary.dropped).sum();
        format!("{frames} frames, {dropped} dropped")
    });
}

/// A request of so many frames of a picture that is made, or of the file that `LOCKON_CLIP` names.
fn request(max_frames: Option<u64>) -> Request {
    let made = "videotestsrc is-live=true pattern=checkers-8 ! video/x-raw,format=NV12,width=160,height=120,framerate=60/1 ! \
         appsink name=frames";
    let mut request = match std::env::var_os("LOCKON_CLIP") {
        Some(clip) => Request { live: true, decoder: Decoder::Hardware, ..Request::new(clip).unwrap() },
        None => Request { source: Some(made.into()), ..Request::default() },
    };
    request.backend = choice();
    request.track.push("20,20,40,40".parse().unwrap());
    request.threshold = Some("mean:15:5".parse().unwrap());
    Request { max_frames, ..request }
}

#[test]
#[ignore = "takes minutes: scripts/endurance"]
fn a_thousand_runs_come_and_go_while_one_stays() {
    let cycles = asked("LOCKON_CYCLES", 1000);
    watch();
    let started = Instant::now();
    let mut fleet = Fleet::new(4);
    // It ends if it plays a clip, and the test does not mind.
    let stays = fleet.add(Entry::new("stays", request(None)));
    let mut looked = Vec::new();
    for cycle in 1..=cycles {
        let ids: Vec<_> = (0..3).map(|_| fleet.add(Entry::new("comes and goes", request(Some(6))))).collect();
        // One is ended from outside, wherever it is.
        fleet.remove(ids[cycle as usize % 3]);
        let mut left = ids.len();
        while left > 0 {
            let ended = fleet.wait().unwrap();
            left -= usize::from(ended.id != stays);
            assert!(ended.outcome.is_ok() || ended.summary.interrupted, "{:?}", ended.outcome);
        }
        lives();
        if cycle % (cycles / 20).max(1) == 0 {
            looked.push(held_at_rest().tell(&format!("cycle {cycle}"), started));
        }
    }
    looked[looked.len() / 4].check(*looked.last().unwrap());
}

#[test]
#[ignore = "takes half an hour: scripts/endurance"]
fn many_frames_of_1080p_leave_nothing_behind() {
    let frames = asked("LOCKON_FRAMES", 100_000);
    watch();
    let (done, pulse) = std::sync::mpsc::channel();
    let heart = Heart { pulse: Pulse::of(frames), done };
    let control = Control::new();
    let rate = asked("LOCKON_RATE", 60);
    let caps = format!("video/x-raw,format=NV12,width=1920,height=1080,framerate={rate}/1");
    let summary = run(&caps, Some(frames), &control, vec![Box::new(heart)]);
    say(&format!("{} frames, {} dropped, {:.1} s", summary.frames, summary.dropped, summary.seconds));
    assert_eq!(pulse.recv().unwrap().check(), frames);
}
