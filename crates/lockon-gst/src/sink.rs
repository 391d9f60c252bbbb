//! Where frames go with their results drawn in: a video file, the screen, or a pipeline of the user's own.
//!
//! Threads: the engine's thread only hands frames over. A worker of the sink's copies each into a pooled
//! buffer, draws, and pushes it into `appsrc`, so that this overlaps with the search for the next frame;
//! GStreamer encodes and writes on its own threads.
//!
//! Who waits for whom: a full `appsrc` holds up the worker, the worker holds up [`Sink::deliver`], and that
//! is how an encoder holds back the reading of a file. Where frames of a live source are shown nobody waits:
//! older ones are dropped, and counted. The engine's thread is the only one that hears what the pipeline says
//! and that changes its state. It never waits for the worker without listening, and going to NULL makes a
//! push that waits return: so a pipeline that fails while it is full is noticed and closed. What does not
//! stop in time, because the system holds up a thread of it, is left behind.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, Sender, TrySendError, select};
use gst::prelude::*;
use gst_video::prelude::*;

use super::launch::{self, Launch, Milestone, News};
use super::sound::{self, Gate};
use super::stuck::Stillness;
use super::window;
use lockon_core::config::View;
use lockon_core::control::{Control, PAUSE_CHECK, Turnstile};
use lockon_core::error::{Error, Result};
use lockon_core::files;
use lockon_core::frame::{
    Chroma, Frame, FrameMeta, Picture, PixelFormat, PlaneMut, Size, USUAL_INTERVAL_NS, VideoFormat,
};
use lockon_core::overlay::{self, Trails};
use lockon_core::ports::{Delivery, Sink};
use lockon_core::results::{FrameRecord, OutputSummary, Percentiles, RunRecord, Summary};
use lockon_core::stats::Durations;
use lockon_core::text;

/// Frames that may wait for the worker. Together with the one being copied a sink keeps two decoded pictures
/// at most, since a decoder's pool is small.
const WAITING: usize = 1;
/// Drawn frames that may wait in `appsrc`: enough to bridge an encoder's uneven pace.
const QUEUED: u64 = 4;
/// The same for a screen, where what waits is still shown after somebody asked for a pause.
const QUEUED_TO_SHOW: u64 = 1;
/// How often waiting for the end is interrupted to see whether anything still moves.
const POLL: Duration = Duration::from_millis(50);
/// How long an output may take without anything moving in it. Slow encoders move, broken ones do not.
const PATIENCE: Duration = Duration::from_secs(if cfg!(test) { 2 } else { 30 });
/// The same once the run was asked to end: then somebody waits for that.
const HURRY: Duration = Duration::from_secs(if cfg!(test) { 1 } else { 10 });
/// How long frames are still handed over after that.
const LAST_CALL: Duration = Duration::from_secs(2);
/// The same for the other ends of a pipeline after one of them failed.
const LAST_RITES: Duration = Duration::from_secs(1);
/// How long the threads of a pipeline may take to end. None computes or writes more than one frame before it
/// looks.
const TO_STOP: Duration = Duration::from_secs(if cfg!(test) { 2 } else { 5 });
/// Time steps a second in MP4: the smallest number that holds the frames of 24, 25, 30, 50, 60, their
/// 1000/1001 relatives, MPEG's 1/90000 s and milliseconds to the tick.
const MP4_TIMESCALE: u32 = 360_000;
/// Frames of a live source that are on their way through an output, of which we remember when they were
/// captured.
const PENDING: usize = 64;
/// By how much frames are pulled apart that came at one time, in nanoseconds; fewer where frames follow each
/// other fast.
const MOST_APART_NS: u64 = 1_000_000;

/// One kind of file that we write.
struct Container {
    extension: &'static str,
    launch: &'static str,
    /// Its encoder subsamples chroma and cannot crop single pixels: the picture is made even.
    needs_even_size: bool,
    /// It has no times, only a frame rate.
    is_constant_rate: bool,
    /// What stands at its beginning is known at its end only: it is gone back to, which no pipe allows.
    has_index_in_front: bool,
}

const CONTAINERS: [Container; 4] = [
    Container {
        extension: "mp4",
        launch: include_str!("../../../pipelines/mp4.launch"),
        needs_even_size: true,
        is_constant_rate: false,
        has_index_in_front: true,
    },
    Container {
        extension: "mkv",
        launch: include_str!("../../../pipelines/mkv.launch"),
        needs_even_size: true,
        is_constant_rate: false,
        has_index_in_front: false,
    },
    Container {
        extension: "avi",
        launch: include_str!("../../../pipelines/avi.launch"),
        needs_even_size: true,
        is_constant_rate: true,
        has_index_in_front: true,
    },
    Container {
        extension: "webm",
        launch: include_str!("../../../pipelines/webm.launch"),
        needs_even_size: false,
        is_constant_rate: false,
        has_index_in_front: false,
    },
];

const DISPLAY: &str = include_str!("../../../pipelines/display.launch");

impl Container {
    fn of(path: &Path) -> Result<&'static Self> {
        let extension = path.extension().unwrap_or_default().to_ascii_lowercase();
        CONTAINERS.iter().find(|c| extension == c.extension).ok_or_else(|| {
            let known: Vec<_> = CONTAINERS.iter().map(|c| format!(".{}", c.extension)).collect();
            Error::value(
                "output",
                &path.to_string_lossy(),
                format!("its name must end in {}, which says what it holds", known.join(", ")),
            )
        })
    }
}

/// Where the pipeline leads.
enum Target {
    File {
        path: PathBuf,
        container: &'static Container,
        sound: Option<PathBuf>,
        /// Nothing was there before, so that an empty file is ours to remove.
        is_new: bool,
        /// Where frames that the first file could not hold went.
        parts: Vec<PathBuf>,
    },
    Display {
        /// The window's name.
        title: String,
    },
    User,
}

/// A [`Sink`] that draws results into the frames and passes them to a GStreamer pipeline.
pub struct VideoSink {
    name: String,
    launch: Launch,
    view: View,
    target: Target,
    /// True if frames come from a live source: then the newest frame matters, not each of them.
    is_live: bool,
    /// True if a file begins at 0, whatever the first frame's time.
    from_zero: bool,
    /// Built on opening, so that what is missing is known before the video starts.
    ready: Option<launch::Running>,
    playing: Option<Playing>,
    shown: Arc<Shown>,
    /// The run whose frames these are, if what is done in a window steers it.
    control: Option<Control>,
    /// The run whose frames these are, so that nobody waits for long who was asked to end.
    run: Control,
}

/// How an output keeps up with a live source.
#[derive(Debug, Default)]
pub struct Shown {
    /// From capture to the output's end.
    latency: Mutex<Durations>,
    /// Frames that were not drawn because newer ones waited.
    replaced: AtomicU64,
    /// Frames given to the pipeline.
    pushed: AtomicU64,
    /// Frames that it took on; it drops the others because newer ones wait.
    left: AtomicU64,
    /// The frames on their way: their time in the output, and when they were captured.
    pending: Mutex<VecDeque<(u64, Instant)>>,
}

impl Shown {
    /// From capture to the output's end, so far.
    pub fn latency(&self) -> Percentiles {
        Percentiles::of(&lock(&self.latency))
    }

    /// Frames that were dropped because newer ones waited.
    fn dropped(&self) -> u64 {
        let taken = self.left.load(Ordering::Relaxed);
        // One may be waiting.
        let in_pipeline = self.pushed.load(Ordering::Relaxed).saturating_sub(taken + 1);
        in_pipeline + self.replaced.load(Ordering::Relaxed)
    }

    /// A frame is about to be pushed.
    fn expect(&self, pts: u64, captured: Option<Instant>) {
        let Some(captured) = captured else { return };
        let mut pending = lock(&self.pending);
        // Those that never arrived were dropped on the way.
        if pending.len() == PENDING {
            pending.pop_front();
        }
        pending.push_back((pts, captured));
    }

    /// A frame is at the end of the pipeline.
    fn arrived(&self, pts: u64) {
        let mut pending = lock(&self.pending);
        let found = pending.iter().position(|(time, _)| *time == pts);
        // Those before it were dropped on the way.
        let captured = found.and_then(|at| pending.drain(..=at).next_back());
        drop(pending);
        if let Some((_, captured)) = captured {
            lock(&self.latency).record(captured.elapsed().as_micros() as u64);
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // What is behind these is whole at every moment: a panic elsewhere leaves nothing half done.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl VideoSink {
    /// Writes `path`: `.mp4`, `.mkv`, `.avi` (H.264) or `.webm` (VP9), with the first audio stream of the
    /// file `sound`.
    ///
    /// Frames keep their number and their times, to the precision of the container; MP4 without sound begins
    /// at 0 whatever the first frame's time. The precision is 3 µs in MP4, 0.05 ms in Matroska, 0.5 ms in
    /// `WebM`; AVI has a frame rate and no times. Sound is copied, not encoded again, and ends with the
    /// video; where the container cannot hold it, it is left out with a warning. A file that exists is
    /// replaced when the first frame comes.
    ///
    /// # Errors
    /// `Value` for another extension, `File` if the file could not be written there,
    /// `MissingElement` without the encoder.
    pub fn file(path: &Path, view: View, sound: Option<PathBuf>) -> Result<Self> {
        let container = Container::of(path)?;
        let launch = file_launch(path)?;
        let pipeline = launch.build()?;
        // Once more, as the bytes that it is: text holds no name that is not UTF-8.
        launch.element(&pipeline, "file")?.set_property("location", path);
        let ready = Some(launch::Running::new(pipeline));
        let is_new = files::check_writable(path)?;
        let target = Target::File { path: path.to_owned(), container, sound, is_new, parts: Vec::new() };
        let name = path.display().to_string();
        let (is_live, from_zero, playing, shown, control) = (false, false, None, Arc::default(), None);
        let run = Control::new();
        Ok(Self { name, launch, view, target, is_live, from_zero, ready, playing, shown, control, run })
    }

    /// Shows the frames on the screen, in a window named `title`: those of a file at their own pace, or
    /// slower if the search is; a camera's at once.
    ///
    /// # Errors
    /// `Output` if there is no screen, `MissingElement` if GStreamer has no video output.
    pub fn display(view: View, is_live: bool, title: &str) -> Result<Self> {
        check_screen(REMEDY)?;
        let launch = display_launch(is_live);
        let ready = Some(launch::Running::new(launch.build()?));
        Ok(Self {
            name: "display".to_owned(),
            launch,
            view,
            target: Target::Display { title: title.to_owned() },
            is_live,
            from_zero: false,
            ready,
            playing: None,
            shown: Arc::default(),
            control: None,
            run: Control::new(),
        })
    }

    /// Lets that run be steered from the window: to close it ends the run. Keys pause it and end it too, but
    /// where the pipeline is the user's own.
    ///
    /// While the run pauses, the frames of a file that were not shown yet are held back.
    pub fn steering(mut self, control: &Control) -> Self {
        self.control = Some(control.clone());
        self
    }

    /// The same for frames from the middle of a video: the file begins with the first of them, and so does
    /// its sound.
    pub fn from_zero(mut self) -> Self {
        self.from_zero = true;
        self
    }

    /// Passes the frames to gst-launch text that begins with `appsrc name=results`.
    ///
    /// Frames of a file keep their times, and the pipeline may hold the run back. Those of a live source are
    /// moved onto the clock of this pipeline, so that a sink that synchronises shows them at once, and the
    /// oldest is dropped if it is slow.
    ///
    /// # Errors
    /// `Launch` if the text is not a pipeline with exactly one appsrc, named `results`; `MissingElement`;
    /// `Output` if it ends in `autovideosink` and there is no screen.
    pub fn user(text: &str, view: View, is_live: bool) -> Result<Self> {
        let launch = user_launch(text)?;
        let pipeline = launch.build()?;
        check_appsrc(&launch, &pipeline)?;
        if pipeline.iterate_all_by_element_factory_name("autovideosink").into_iter().next().is_some() {
            check_screen(REMEDY)?;
        }
        start_without_preroll(&pipeline);
        let (name, ready) = (launch.name().to_owned(), Some(launch::Running::new(pipeline)));
        let (target, shown) = (Target::User, Arc::default());
        let (from_zero, playing, control, run) = (false, None, None, Control::new());
        Ok(Self { name, launch, view, target, is_live, from_zero, ready, playing, shown, control, run })
    }

    /// How it keeps up, to be looked at while it does.
    pub fn shown(&self) -> Arc<Shown> {
        self.shown.clone()
    }

    /// Completes the file and begins another, since a file is of one size and format.
    fn begin_next_part(&mut self, format: &VideoFormat) -> Result<()> {
        let Target::File { path, sound, parts, .. } = &mut self.target else { return Ok(()) };
        if let Some(mut playing) = self.playing.take() {
            playing.drain()?;
        }
        let next = next_part(path);
        let (shown, next_shown) = (text::path(path), text::path(&next));
        tracing::warn!("{shown}: a file holds one kind of frame: going on in {next_shown}");
        if sound.take().is_some() {
            tracing::warn!("{next_shown}: the sound ends with the first part");
        }
        parts.push(next.clone());
        self.launch = file_launch(&next)?;
        let pipeline = self.launch.build()?;
        self.launch.element(&pipeline, "file")?.set_property("location", &next);
        self.playing = Some(Playing::start(self, launch::Running::new(pipeline), format)?);
        Ok(())
    }
}

/// `clip-2.mp4` for `clip.mp4`, or the next number of which there is no file: nobody named it, so it replaces
/// none.
fn next_part(path: &Path) -> PathBuf {
    let name = |n: u32| {
        let mut name = path.file_stem().unwrap_or_default().to_owned();
        name.push(format!("-{n}."));
        name.push(path.extension().unwrap_or_default());
        path.with_file_name(name)
    };
    let is_free = |path: &PathBuf| path.symlink_metadata().is_err();
    (2..u32::MAX).map(name).find(is_free).expect("a folder has fewer files than there are numbers")
}

/// The pipeline that writes `path`, without opening anything.
///
/// # Errors
/// `Value` for an extension that we do not write, or one that cannot go through the pipe that is there.
pub fn file_launch(path: &Path) -> Result<Launch> {
    let container = Container::of(path)?;
    if container.has_index_in_front && files::is_pipe(path) {
        let expected = format!("an .{} cannot go through a pipe, an .mkv can", container.extension);
        return Err(Error::value("output", &path.to_string_lossy(), expected));
    }
    let name = format!("{}.launch", container.extension);
    let mut launch = Launch::new(name, container.launch);
    // Another name would be another file.
    let location = path.to_str().ok_or_else(|| {
        Error::value("-o", &path.to_string_lossy(), "the name of a video that is written has to be UTF-8")
    })?;
    launch.set("file", "location", location);
    Ok(launch)
}

/// The pipeline that shows frames on the screen, without opening anything.
pub fn display_launch(is_live: bool) -> Launch {
    let mut launch = Launch::new("display.launch", DISPLAY);
    launch.set("screen", "sync", !is_live);
    launch
}

/// The user's pipeline `text` (or `@file`), without opening anything.
///
/// # Errors
/// `File` if the file cannot be read.
pub fn user_launch(text: &str) -> Result<Launch> {
    Launch::user("--sink", text).map(Launch::with_appsrc)
}

/// No window of a pipeline's is there.
pub(super) const NO_WINDOW: &str =
    "no window can be opened: nothing answers at DISPLAY or WAYLAND_DISPLAY that GStreamer has an output for";

/// What to do without a screen.
const REMEDY: &str = " (-o FILE writes a file)";

/// There is a desktop to open a window on; if not, the error ends with `remedy`.
pub(super) fn check_screen(remedy: &str) -> Result<()> {
    launch::init()?;
    window::avoid_directfb();
    has_screen(|name| std::env::var_os(name).is_some(), remedy)
}

/// `is_set` looks up a variable of the environment.
fn has_screen(is_set: impl Fn(&str) -> bool, remedy: &str) -> Result<()> {
    // autovideosink tries every output that is installed, and some end the process where there is no screen:
    // DirectFB's does in Debian 12. Who draws on a console names kmssink with --sink.
    if cfg!(target_os = "linux") && !is_set("DISPLAY") && !is_set("WAYLAND_DISPLAY") {
        let reason = format!("there is no screen here: neither DISPLAY nor WAYLAND_DISPLAY is set{remedy}");
        return Err(Error::Output { name: "display".to_owned(), reason });
    }
    Ok(())
}

/// The pipeline has exactly one appsrc, and it is ours.
fn check_appsrc(launch: &Launch, pipeline: &gst::Pipeline) -> Result<()> {
    let sources: Vec<_> =
        pipeline.iterate_all_by_element_factory_name("appsrc").into_iter().flatten().collect();
    match sources.as_slice() {
        [source] if source.name() == "results" => Ok(()),
        [] => Err(launch.fault("it must begin with `appsrc name=results`, from which the frames come")),
        [source] => {
            Err(launch.fault(format!("its appsrc is named {:?}: write `appsrc name=results`", source.name())))
        }
        more => Err(launch.fault(format!(
            "it has {} appsrc elements, but frames come from one, `appsrc name=results` (a tee splits them)",
            more.len()
        ))),
    }
}

/// Lets ends that keep no time start without a first frame each. Behind a tee, an encoder that looks ahead
/// gives none until it has had many, while an end that has its own holds the tee up: the pipeline would wait
/// for ever, as it does in `gst-launch-1.0`.
fn start_without_preroll(pipeline: &gst::Pipeline) {
    for end in pipeline.iterate_sinks().into_iter().flatten() {
        let has = |property: &str| end.has_property_with_type(property, bool::static_type());
        if has("sync") && has("async") && !end.property::<bool>("sync") {
            end.set_property("async", false);
        }
    }
}

impl Sink for VideoSink {
    fn name(&self) -> &str {
        &self.name
    }

    fn wants_mask(&self) -> bool {
        self.view.has_mask()
    }

    fn belong_to(&mut self, run: &Control) {
        self.run = run.clone();
    }

    /// Waits until the sound of the input is found, if there is any; the file is created here.
    fn begin(&mut self, _run: &RunRecord, format: &VideoFormat) -> Result<()> {
        let pipeline = match self.ready.take() {
            Some(pipeline) => pipeline,
            None => launch::Running::new(self.launch.build()?),
        };
        let playing = Playing::start(self, pipeline, format).map_err(|error| named(&self.name, error))?;
        self.playing = Some(playing);
        Ok(())
    }

    /// Waits while the output is behind; frames of a live source do not wait for a slow screen, and none
    /// waits for longer than 2 s after the run was asked to end.
    ///
    /// Where frames change, a file is completed and another begun; a screen or a pipeline of the user's is
    /// told the new format.
    fn deliver(&mut self, delivery: &Delivery<'_>) -> Result<()> {
        let format = &delivery.frame.format;
        let is_file = matches!(self.target, Target::File { .. });
        if is_file && self.playing.as_ref().is_some_and(|playing| !playing.holds(format)) {
            self.begin_next_part(format).map_err(|error| named(&self.name, error))?;
        }
        let Some(playing) = &mut self.playing else { return Ok(()) };
        let job = Job {
            frame: delivery.frame.clone(),
            record: delivery.record.clone(),
            mask: delivery.mask.cloned(),
        };
        let handed_over = playing.hand_over(job);
        if handed_over.is_err()
            && let Some(mut playing) = self.playing.take()
        {
            playing.let_others_finish();
        }
        handed_over.map_err(|error| named(&self.name, error))
    }

    fn status(&self) -> Option<OutputSummary> {
        let (shown_us, dropped) = (self.shown.latency(), self.shown.dropped());
        self.is_live.then(|| OutputSummary { name: self.name.clone(), dropped, shown_us })
    }

    fn files(&self) -> Vec<PathBuf> {
        match &self.target {
            Target::File { path, parts, .. } => [path].into_iter().chain(parts).cloned().collect(),
            Target::Display { .. } | Target::User => Vec::new(),
        }
    }

    /// Waits until everything is encoded and written; gives up if nothing moves for 30 s, or for 10 s where
    /// the run was asked to end.
    fn finish(&mut self, _summary: &Summary) -> Result<()> {
        self.ready = None;
        let Some(mut playing) = self.playing.take() else { return Ok(()) };
        let is_empty = playing.delivered == 0;
        let finished = if is_empty { Ok(()) } else { playing.drain() };
        if finished.is_err() {
            playing.let_others_finish();
        }
        drop(playing);
        if let Target::File { path, is_new: true, .. } = &self.target
            && is_empty
            && path.metadata().is_ok_and(|m| m.len() == 0)
        {
            std::fs::remove_file(path).map_err(Error::file("remove", path))?;
        }
        finished.map_err(|error| named(&self.name, error))
    }
}

/// Says which output failed, unless the error is about the installation or about what was typed.
fn named(name: &str, error: Error) -> Error {
    let name = name.to_owned();
    match error {
        Error::MissingElement { .. } | Error::Launch { .. } => error,
        Error::Output { reason, .. } => Error::Output { name, reason },
        other => Error::Output { name, reason: other.to_string() },
    }
}

/// A failure of the output's own, named by [`named`].
fn fault(reason: impl Into<String>) -> Error {
    Error::Output { name: String::new(), reason: reason.into() }
}

/// What the worker draws.
struct Job {
    frame: Frame,
    record: Arc<FrameRecord>,
    mask: Option<Arc<dyn Picture>>,
}

/// A pipeline that plays, and its worker. Dropping it stops both, wherever they wait, or leaves them behind
/// where the system makes them wait.
struct Playing {
    pipeline: launch::Running,
    gate: Option<Arc<Gate>>,
    jobs: Option<Sender<Job>>,
    /// The other end of `jobs`, for a live source: a frame that the worker did not take in time is taken out
    /// for a newer one.
    late: Option<Receiver<Job>>,
    shown: Arc<Shown>,
    worker: Option<JoinHandle<()>>,
    progress: Arc<Progress>,
    /// What the pipeline was started for.
    format: Arc<VideoFormat>,
    is_constant_rate: bool,
    /// Sources beside ours in a pipeline of the user's, which have to be told when it is over.
    other_sources: Vec<gst::Element>,
    /// Frames handed to the worker.
    delivered: u64,
    /// Every sink has said that it is done, or the window was closed.
    has_ended: bool,
    control: Option<Control>,
    run: Control,
    /// When frames found no room for the first time after the run was asked to end.
    hurries: Option<Instant>,
    /// Frames that found none.
    left_out: u64,
}

/// Shows that something still moves in a pipeline.
#[derive(Default)]
struct Progress {
    /// Frames that the worker pushed and buffers that arrived at the pipeline's ends.
    moved: AtomicU64,
    /// Ends that have seen the end of the stream.
    ended: AtomicUsize,
    /// Ends.
    ends: AtomicUsize,
    /// The pipeline is about to be stopped.
    is_over: AtomicBool,
}

/// Waits for a pipeline as long as something moves in it.
struct Patience {
    moved: u64,
    still: Stillness,
}

impl Patience {
    fn new(progress: &Progress) -> Self {
        Self { moved: progress.moved.load(Ordering::Relaxed), still: Stillness::default() }
    }

    /// Fails when `now` nothing has moved for longer than `limit`.
    fn check(&mut self, progress: &Progress, now: Instant, limit: Duration) -> Result<()> {
        if progress.moved.load(Ordering::Relaxed) != self.moved {
            *self = Self::new(progress);
        }
        if self.still.look(now) > limit {
            return Err(fault(format!("nothing has moved in it for {} s", limit.as_secs())));
        }
        Ok(())
    }
}

impl Playing {
    /// Starts the pipeline and the worker for frames of that format.
    fn start(sink: &VideoSink, running: launch::Running, format: &VideoFormat) -> Result<Self> {
        let (container, input) = match &sink.target {
            Target::File { container, sound, .. } => (Some(*container), sound.as_deref()),
            Target::Display { .. } | Target::User => (None, None),
        };
        if container.is_some_and(|c| c.is_constant_rate) && format.frame_rate.0 == 0 {
            return Err(fault(
                "AVI needs a constant frame rate, which this video does not have (.mp4, .mkv and .webm do not)",
            ));
        }
        let easel = Easel::new(format, sink.view, container.is_some_and(|c| c.needs_even_size))
            .map_err(|e| fault(e.to_string()))?;
        let pipeline = running.pipeline();
        let appsrc = sink.launch.element(pipeline, "results")?.downcast::<gst_app::AppSrc>();
        let appsrc = appsrc.map_err(|_| sink.launch.fault("`results` is not an appsrc"))?;
        prepare(&appsrc, &easel.info, sink.is_live);
        if let Some(control) = &sink.control {
            running.stop_when_closed(control);
        }
        let mut turnstile = None;
        if let Target::Display { title } = &sink.target {
            window::set_title(&appsrc, title);
            window::show_late_frames(pipeline);
            if !sink.is_live {
                appsrc.set_max_buffers(QUEUED_TO_SHOW);
            }
            if let Some(control) = sink.control.clone() {
                // A live source has few frames waiting, and they are the newest.
                turnstile = (!sink.is_live).then(|| Turnstile::new(&control));
                window::watch(&appsrc, move |action| window::steer(&control, &action));
            }
        }
        // A pad's property, which text cannot set before the pad is there.
        if container.is_some()
            && let Some(pad) = pipeline.by_name("mux").and_then(|mux| mux.static_pad("video_0"))
            && pad.has_property("trak-timescale")
        {
            pad.set_property("trak-timescale", MP4_TIMESCALE);
        }
        let gate = match (container, input) {
            (Some(container), Some(input)) => {
                sound::attach(&running, container.extension, input, sink.from_zero)?
            }
            _ => None,
        };

        // A file's frames stay at their times in a file; what is watched goes by the clock.
        let on_clock = sink.is_live || matches!(sink.target, Target::Display { .. });
        let constant_rate = container.is_some_and(|c| c.is_constant_rate);
        let mut times = Timeline::new(format.frame_rate, on_clock, constant_rate.then(|| sink.name.clone()));
        times.origin = (!sink.from_zero).then_some(0);
        let progress = Arc::new(Progress::default());
        let is_users = matches!(sink.target, Target::User);
        let sources = pipeline.iterate_sources().into_iter().flatten();
        let other_sources = sources.filter(|source| is_users && source.name() != "results").collect();
        progress.watch(pipeline, &sink.shown);
        if sink.is_live {
            count_drops(&appsrc, &sink.shown);
        }
        let (jobs, waiting) = crossbeam_channel::bounded(WAITING);
        let late = sink.is_live.then(|| waiting.clone());
        let worker = Worker {
            jobs: waiting,
            appsrc,
            easel,
            times,
            gate: gate.clone(),
            progress: progress.clone(),
            shown: sink.shown.clone(),
            turnstile,
        };
        let mut playing = Self {
            pipeline: running,
            gate,
            jobs: Some(jobs),
            late,
            shown: sink.shown.clone(),
            worker: None,
            progress,
            format: Arc::new(format.clone()),
            is_constant_rate: constant_rate,
            other_sources,
            delivered: 0,
            has_ended: false,
            control: sink.control.clone(),
            run: sink.run.clone(),
            hurries: None,
            left_out: 0,
        };
        playing.pipeline.set_state(gst::State::Playing)?;
        if !window::is_shown(playing.pipeline.pipeline()) {
            return Err(fault(format!("{NO_WINDOW}{REMEDY}")));
        }
        let thread = std::thread::Builder::new().name("lockon-sink".to_owned());
        let worker = thread.spawn(move || worker.run());
        playing.worker = Some(worker.map_err(|e| fault(format!("no thread can be started: {e}")))?);
        Ok(playing)
    }

    /// True if a file that was begun for other frames can hold these too. Times say all about a rate where
    /// there are times.
    fn holds(&self, format: &VideoFormat) -> bool {
        let begun = &self.format;
        let same_rate = !self.is_constant_rate || begun.frame_rate == format.frame_rate;
        same_rate
            && (begun.size, begun.pixels, begun.pixel_aspect)
                == (format.size, format.pixels, format.pixel_aspect)
    }

    /// Waits until the worker takes a frame, or the pipeline fails, or nothing has moved in it for too long.
    fn hand_over(&mut self, job: Job) -> Result<()> {
        // What has happened comes first: a failed pipeline takes no more frames.
        self.listen(Duration::ZERO)?;
        if !self.has_ended && self.late.is_some() {
            return self.replace(job);
        }
        let mut patience = Patience::new(&self.progress);
        while !self.has_ended {
            let jobs = self.jobs.as_ref().expect("closed by drain and drop only");
            select! {
                send(jobs, job) -> sent => {
                    // The worker goes before its time only if it panics, or if the pipeline is closed.
                    return if sent.is_ok() { self.delivered += 1; Ok(()) } else { self.join_worker() };
                }
                recv(self.pipeline.news()) -> news => self.heed(news.ok())?,
                default(POLL) => {
                    if self.is_too_late() {
                        self.left_out += 1;
                        return Ok(());
                    }
                    self.check(&mut patience)?;
                }
            }
        }
        // A pipeline of the user's may have enough before we do.
        Ok(())
    }

    /// True if the run was asked to end, and the output has not taken a frame for a while since.
    fn is_too_late(&mut self) -> bool {
        let is_stopped = self.run.is_stopped();
        is_stopped && self.hurries.get_or_insert_with(Instant::now).elapsed() > LAST_CALL
    }

    /// Hands a live source's frame over without waiting: the one that waits, if any, goes.
    fn replace(&mut self, mut job: Job) -> Result<()> {
        if self.worker.as_ref().is_some_and(JoinHandle::is_finished) {
            return self.join_worker();
        }
        let (Some(jobs), Some(late)) = (&self.jobs, &self.late) else { return Ok(()) };
        while let Err(TrySendError::Full(back)) = jobs.try_send(job) {
            job = back;
            if late.try_recv().is_ok() {
                self.shown.replaced.fetch_add(1, Ordering::Relaxed);
            }
        }
        self.delivered += 1;
        Ok(())
    }

    /// Waits until what was handed over is encoded and written.
    fn drain(&mut self) -> Result<()> {
        self.jobs = None;
        if self.left_out > 0 {
            tracing::warn!(
                "the output was behind: the last frames, {} of them, are not in it",
                self.left_out
            );
        }
        let mut patience = Patience::new(&self.progress);
        while !self.has_ended {
            if self.worker.as_ref().is_some_and(JoinHandle::is_finished) {
                self.join_worker()?;
                // Ours has been told by the worker, behind its last frame.
                for source in &self.other_sources {
                    source.send_event(gst::event::Eos::new());
                }
            }
            self.listen(POLL)?;
            self.check(&mut patience)?;
        }
        Ok(())
    }

    /// Nothing moves while the run pauses, and that is as it should be.
    fn check(&self, patience: &mut Patience) -> Result<()> {
        if self.control.as_ref().is_some_and(Control::is_paused) {
            *patience = Patience::new(&self.progress);
        }
        let limit = if self.run.is_stopped() { HURRY } else { PATIENCE };
        patience.check(&self.progress, Instant::now(), limit)
    }

    /// Waits for what the pipeline has to say, until `timeout` at most.
    fn listen(&mut self, timeout: Duration) -> Result<()> {
        let milestone = self.pipeline.wait(timeout)?;
        self.pass(milestone);
        Ok(())
    }

    fn heed(&mut self, news: Option<News>) -> Result<()> {
        if let Some(news) = news {
            let milestone = self.pipeline.attend(news)?;
            self.pass(milestone);
        }
        Ok(())
    }

    fn pass(&mut self, milestone: Option<Milestone>) {
        if milestone == Some(Milestone::Closed) && !self.has_ended {
            self.let_others_finish();
        }
        self.has_ended |= matches!(milestone, Some(Milestone::Ended | Milestone::Closed));
    }

    fn join_worker(&mut self) -> Result<()> {
        match self.worker.take().map(JoinHandle::join) {
            Some(Err(_)) => Err(fault("the thread that draws panicked")),
            _ => Ok(()),
        }
    }

    /// After an error, or when a window was closed: ends the stream and gives the other ends of a pipeline
    /// with several the time to complete their files.
    fn let_others_finish(&mut self) {
        let ends = self.progress.ends.load(Ordering::Relaxed);
        if ends < 2 {
            return;
        }
        self.jobs = None;
        if let Some(gate) = &self.gate {
            gate.close();
        }
        let mut moved = 0;
        let mut deadline = Instant::now() + LAST_RITES;
        // The end that failed may or may not see the end of the stream.
        while self.progress.ended.load(Ordering::Relaxed) < ends && Instant::now() <= deadline {
            let now_moved = self.progress.moved.load(Ordering::Relaxed);
            if now_moved != moved {
                (moved, deadline) = (now_moved, Instant::now() + LAST_RITES);
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

impl Drop for Playing {
    /// Wakes whoever waits, and only then waits itself: sound at its gate, a push in the appsrc, the worker
    /// for a frame or for the end of a pause.
    fn drop(&mut self) {
        self.jobs = None;
        self.progress.is_over.store(true, Ordering::Relaxed);
        if let Some(gate) = &self.gate {
            gate.open();
        }
        if self.pipeline.stop_within(TO_STOP) {
            let _ = self.join_worker();
        } else {
            // It may wait for room in the pipeline.
            tracing::warn!("an output hangs and is left behind: is somebody reading what it writes?");
        }
    }
}

impl Progress {
    /// Counts what arrives at the ends of `pipeline`.
    fn watch(self: &Arc<Self>, pipeline: &gst::Pipeline, shown: &Arc<Shown>) {
        let pads = pipeline
            .iterate_sinks()
            .into_iter()
            .flatten()
            .filter_map(|end| end.sink_pads().into_iter().next());
        for pad in pads {
            self.ends.fetch_add(1, Ordering::Relaxed);
            let types = gst::PadProbeType::BUFFER
                | gst::PadProbeType::BUFFER_LIST
                | gst::PadProbeType::EVENT_DOWNSTREAM;
            let (progress, shown) = (self.clone(), shown.clone());
            pad.add_probe(types, move |pad, info| {
                progress.moved.fetch_add(1, Ordering::Relaxed);
                if let Some(pts) = info.buffer().and_then(|buffer| buffer.pts()) {
                    launch::guarded(pad, (), || shown.arrived(pts.nseconds()));
                }
                if info.event().is_some_and(|event| event.type_() == gst::EventType::Eos) {
                    progress.ended.fetch_add(1, Ordering::Relaxed);
                }
                gst::PadProbeReturn::Ok
            });
        }
    }
}

/// Everything about the appsrc that text cannot say, because people put videotestsrc in its place.
pub(super) fn prepare(appsrc: &gst_app::AppSrc, info: &gst_video::VideoInfo, is_live: bool) {
    appsrc.set_caps(info.to_caps().ok().as_ref());
    appsrc.set_format(gst::Format::Time);
    // Bytes are no useful limit for pictures.
    appsrc.set_max_bytes(0);
    appsrc.set_max_buffers(QUEUED);
    appsrc.set_is_live(is_live);
    appsrc.set_block(!is_live);
    if is_live {
        appsrc.set_max_buffers(1);
        appsrc.set_leaky_type(gst_app::AppLeakyType::Downstream);
        // Frames are stamped with the time at which they are pushed: none is older.
        appsrc.set_min_latency(0);
    }
}

/// Counts what the appsrc drops: it takes every frame, and lets go the newest of those that wait.
fn count_drops(appsrc: &gst_app::AppSrc, shown: &Arc<Shown>) {
    let Some(pad) = appsrc.static_pad("src") else { return };
    let shown = shown.clone();
    pad.add_probe(gst::PadProbeType::BUFFER, move |_, _| {
        shown.left.fetch_add(1, Ordering::Relaxed);
        gst::PadProbeReturn::Ok
    });
}

/// The thread that draws and pushes.
struct Worker {
    jobs: Receiver<Job>,
    appsrc: gst_app::AppSrc,
    easel: Easel,
    times: Timeline,
    gate: Option<Arc<Gate>>,
    progress: Arc<Progress>,
    shown: Arc<Shown>,
    /// Where frames wait while the run pauses.
    turnstile: Option<Turnstile>,
}

impl Worker {
    /// Ends when no more frames come, or as soon as the pipeline takes none: why that is, its bus says.
    fn run(mut self) {
        while let Ok(job) = self.jobs.recv() {
            if !self.wait_for_turn() {
                continue;
            }
            if let Err(error) = self.adapt(&job.frame.format) {
                gst::element_error!(self.appsrc, gst::CoreError::Negotiation, ("no such frames: {error}"));
                return;
            }
            let times = self.times.next(&job.frame.meta, || running_time(&self.appsrc));
            let painted = self.easel.paint(&job, times);
            self.shown.expect(times.pts, job.frame.circumstances.captured);
            // Back to the decoder before we wait for the encoder.
            drop(job);
            let buffer = match painted {
                Ok(buffer) => buffer,
                Err(error) => {
                    gst::element_error!(
                        self.appsrc,
                        gst::ResourceError::Failed,
                        ["no buffer for a frame: {error}"]
                    );
                    return;
                }
            };
            if let Some(gate) = &self.gate {
                gate.video_reached(self.times.origin.unwrap_or(0), times.pts + times.duration);
            }
            if self.appsrc.push_buffer(buffer).is_err() {
                return;
            }
            self.shown.pushed.fetch_add(1, Ordering::Relaxed);
            self.progress.moved.fetch_add(1, Ordering::Relaxed);
        }
        if let Some(gate) = &self.gate {
            gate.close();
        }
        // Refused only by a pipeline that is closed already.
        let _ = self.appsrc.end_of_stream();
    }

    /// Waits while the run pauses. False if nobody looks at frames any more.
    fn wait_for_turn(&mut self) -> bool {
        let Some(turnstile) = &mut self.turnstile else { return true };
        while !turnstile.is_open() && !self.progress.is_over.load(Ordering::Relaxed) {
            std::thread::sleep(PAUSE_CHECK);
        }
        turnstile.pass();
        !turnstile.is_stopped()
    }

    /// Tells the pipeline about frames that are unlike those before.
    fn adapt(&mut self, format: &VideoFormat) -> Result<(), gst::glib::BoolError> {
        if self.easel.is_for(format) {
            return Ok(());
        }
        let even = self.easel.even;
        self.easel = Easel::new(format, self.easel.view, even)?;
        self.times.set_rate(format.frame_rate);
        // Takes effect behind the buffers that wait.
        self.appsrc.set_caps(Some(&self.easel.info.to_caps()?));
        Ok(())
    }
}

/// How long the output has been playing. While it is being started an element has a clock, but not yet the
/// time from which to count: it would tell the clock's own time, and the first frame would be shown after as
/// many hours.
fn running_time(appsrc: &gst_app::AppSrc) -> Option<gst::ClockTime> {
    if appsrc.current_state() == gst::State::Playing { appsrc.current_running_time() } else { None }
}

/// When a frame is shown, in nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Times {
    pub(super) pts: u64,
    /// For how long: a guess where nothing says so, but never nothing, or MP4's players would not show the
    /// last frame.
    pub(super) duration: u64,
}

/// Gives every frame its time in the output.
struct Timeline {
    /// Nanoseconds a frame of a constant rate, as a fraction; `None` where it varies.
    interval: Option<(u64, u64)>,
    /// Frames go by the clock of the output, not by their own times.
    on_clock: bool,
    /// Added to the frames' own times so that none is late on the clock.
    shift: Option<i128>,
    /// Added to the frames' own times because the source's clock was turned back, which no file can hold.
    turned_back: u64,
    /// Taken off the frames' own times; the first one's, which is not known yet, if there is none.
    origin: Option<u64>,
    /// The output's name, if it has a constant rate and we did not warn yet.
    constant_rate: Option<String>,
    frames: u64,
    first: u64,
    /// The last frame's own time, and that in the output.
    last: Option<u64>,
    last_pts: Option<u64>,
}

impl Timeline {
    fn new(rate: (i32, i32), on_clock: bool, constant_rate: Option<String>) -> Self {
        let interval = interval(rate);
        Self {
            interval,
            on_clock,
            shift: None,
            turned_back: 0,
            origin: Some(0),
            constant_rate,
            frames: 0,
            first: 0,
            last: None,
            last_pts: None,
        }
    }

    /// Frames come at another rate from now on.
    fn set_rate(&mut self, rate: (i32, i32)) {
        self.interval = interval(rate);
    }

    /// The next frame's times. `now` is the output's clock, where it has one that runs.
    fn next(&mut self, meta: &FrameMeta, now: impl FnOnce() -> Option<gst::ClockTime>) -> Times {
        let nominal = self.interval.map(|(ns, frames)| ns / frames);
        let step = |last: u64| last + meta.duration_ns.or(nominal).unwrap_or(USUAL_INTERVAL_NS);
        // A source without times gets those of its frame rate, or else evenly spaced ones.
        let own = meta.pts_ns.or_else(|| self.interval.map(|i| grid(i, self.frames)));
        let origin = *self.origin.get_or_insert(own.unwrap_or(0));
        let own = own.map(|own| (own + self.turned_back).saturating_sub(origin));
        let own = own.unwrap_or_else(|| self.last.map_or(0, step));
        let own = match self.last {
            Some(last) if own < last => {
                let next = step(last);
                self.turned_back += next - own;
                next
            }
            _ => own,
        };
        let pts = if self.on_clock { self.on_clock(own, now()) } else { own };
        // If frames came at one time, as after a stall, players show only the first: their times are moved
        // apart a little.
        let apart = meta.duration_ns.or(nominal).unwrap_or(USUAL_INTERVAL_NS) / 8;
        let earliest = self.last_pts.map_or(0, |last| last + apart.min(MOST_APART_NS));
        let pts = pts.max(earliest);
        self.last_pts = Some(pts);
        if self.frames == 0 {
            self.first = pts;
        }
        self.warn_if_off_the_grid(pts);
        let gap = self.last.and_then(|last| own.checked_sub(last)).filter(|&gap| gap > 0);
        self.last = Some(own);
        self.frames += 1;
        let duration = meta.duration_ns.or(nominal).or(gap).unwrap_or(USUAL_INTERVAL_NS);
        Times { pts, duration }
    }

    /// The frame's own time, moved so that the first is shown at once and none is late.
    ///
    /// A frame that is late moves itself and those after it: a search slower than the video shows it in slow
    /// motion. Were it not moved, a screen would drop it, and with it all that follow.
    fn on_clock(&mut self, own: u64, now: Option<gst::ClockTime>) -> u64 {
        let (own, now) = (i128::from(own), now.map_or(0, |now| i128::from(now.nseconds())));
        let shift = self.shift.map_or(now - own, |shift| shift.max(now - own));
        self.shift = Some(shift);
        u64::try_from(own + shift).unwrap_or(0)
    }

    fn warn_if_off_the_grid(&mut self, pts: u64) {
        let (Some(name), Some(interval)) = (&self.constant_rate, self.interval) else { return };
        let shown = self.first + grid(interval, self.frames);
        if shown.abs_diff(pts) > interval.0 / interval.1 {
            tracing::warn!(
                "{name}: the frame rate varies, but AVI shows frames at a constant rate (.mp4, .mkv and .webm keep times)"
            );
            self.constant_rate = None;
        }
    }
}

/// Nanoseconds a frame, as a fraction; `None` where the rate varies.
fn interval((n, d): (i32, i32)) -> Option<(u64, u64)> {
    (n > 0 && d > 0).then(|| (d as u64 * 1_000_000_000, n as u64))
}

/// Time of frame `index` at a constant rate.
fn grid((ns, frames): (u64, u64), index: u64) -> u64 {
    (u128::from(ns) * u128::from(index) / u128::from(frames)) as u64
}

/// Copies frames into writable buffers and draws on them.
pub(super) struct Easel {
    pool: gst_video::VideoBufferPool,
    /// The format of the buffers.
    pub(super) info: gst_video::VideoInfo,
    /// The pixel format of the buffers: colour, even for grey frames.
    pixels: PixelFormat,
    /// The format of the frames; a buffer may be one column and one row larger.
    format: VideoFormat,
    even: bool,
    view: View,
    trails: Trails,
}

impl Easel {
    pub(super) fn new(format: &VideoFormat, view: View, even: bool) -> Result<Self, gst::glib::BoolError> {
        let is_grey = format.pixels.chroma == Chroma::None;
        let pixels =
            if is_grey { PixelFormat::from_name("I420").unwrap_or(format.pixels) } else { format.pixels };
        let info = video_info(format, pixels, even, is_grey)?;
        let pool = gst_video::VideoBufferPool::new();
        let mut config = pool.config();
        // No upper limit: an encoder that looks ahead keeps as many as it needs, and from then on buffers
        // only go round.
        config.set_params(Some(&info.to_caps()?), info.size() as u32, 0, 0);
        pool.set_config(config)?;
        pool.set_active(true)?;
        Ok(Self { pool, info, pixels, format: format.clone(), even, view, trails: Trails::default() })
    }

    /// True if such frames can be painted.
    fn is_for(&self, format: &VideoFormat) -> bool {
        self.format == *format
    }

    /// A buffer with the frame and its results, due at `times`.
    fn paint(&mut self, job: &Job, times: Times) -> Result<gst::Buffer, String> {
        let mut trails = std::mem::take(&mut self.trails);
        let painted = self.paint_with(&job.frame, times, |canvas| {
            draw(self.view, canvas, &job.record, job.mask.as_ref(), &mut trails);
        });
        self.trails = trails;
        painted
    }

    /// A buffer with the frame and what `draw` draws on it, due at `times`.
    pub(super) fn paint_with(
        &self,
        frame: &Frame,
        times: Times,
        draw: impl FnOnce(&mut overlay::Canvas<'_>),
    ) -> Result<gst::Buffer, String> {
        let size = self.format.size;
        let mut buffer = self.pool.acquire_buffer(None).map_err(|e| e.to_string())?;
        let writable = buffer.get_mut().ok_or("the pool lent a buffer that is in use")?;
        writable.set_pts(gst::ClockTime::from_nseconds(times.pts));
        writable.set_duration(gst::ClockTime::from_nseconds(times.duration));
        let mut target = gst_video::VideoFrameRef::from_buffer_ref_writable(writable, &self.info)
            .map_err(|e| e.to_string())?;
        let strides: Vec<usize> = target.plane_stride().iter().map(|&s| s as usize).collect();
        let mut planes = target.planes_data_mut();
        {
            let mut views: Vec<PlaneMut<'_>> = planes
                .iter_mut()
                .zip(&strides)
                .take(self.pixels.planes())
                .enumerate()
                .map(|(i, (data, &stride))| PlaneMut::new(data, self.pixels.plane_size(i, size), stride))
                .collect();
            for (i, view) in views.iter_mut().enumerate() {
                if i < frame.format.pixels.planes() {
                    view.copy_from(frame.picture.plane(i));
                } else {
                    (0..view.size().height).for_each(|y| view.row(y).fill(128));
                }
            }
            draw(&mut overlay::Canvas::new(views, self.pixels, size));
        }
        let padded = Size::new(self.info.width() as usize, self.info.height() as usize);
        if padded != size {
            for (i, (data, &stride)) in planes.iter_mut().zip(&strides).take(self.pixels.planes()).enumerate()
            {
                let (inner, outer) = (self.pixels.plane_size(i, size), self.pixels.plane_size(i, padded));
                let sample =
                    if i > 0 && matches!(self.pixels.chroma, Chroma::Interleaved { .. }) { 2 } else { 1 };
                extend_edges(data, stride, inner, outer, sample);
            }
        }
        drop(target);
        Ok(buffer)
    }
}

impl Drop for Easel {
    /// A pool that is active keeps its buffers for ever; those still in the pipeline are freed when they come
    /// back.
    fn drop(&mut self) {
        let _ = self.pool.set_active(false);
    }
}

fn draw(
    view: View,
    canvas: &mut overlay::Canvas<'_>,
    record: &FrameRecord,
    mask: Option<&Arc<dyn Picture>>,
    trails: &mut Trails,
) {
    match (view, mask) {
        (View::Mask, Some(mask)) => return overlay::draw_mask(canvas, mask.plane(0)),
        (View::Split, Some(mask)) => overlay::draw_split(canvas, mask.plane(0)),
        _ => {}
    }
    overlay::draw_results(canvas, record, trails);
}

/// Draws results into a frame where it lies, after those that `trails` has seen. Without a `mask` there are
/// only boxes and labels to draw, whatever the view.
///
/// # Panics
/// If `frame` or the mask is not of that format's size.
pub fn draw_in_place(
    frame: &mut gst_video::VideoFrameRef<&mut gst::BufferRef>,
    format: &VideoFormat,
    view: View,
    record: &FrameRecord,
    mask: Option<&Arc<dyn Picture>>,
    trails: &mut Trails,
) {
    let (pixels, size) = (format.pixels, format.size);
    // Strides are negative in bottom-up pictures only, which no format with a luma plane has.
    let strides: Vec<usize> = frame.plane_stride().iter().map(|&s| s as usize).collect();
    let mut planes = frame.planes_data_mut();
    let views = planes.iter_mut().zip(strides).take(pixels.planes()).enumerate();
    let views = views.map(|(i, (data, stride))| PlaneMut::new(data, pixels.plane_size(i, size), stride));
    draw(view, &mut overlay::Canvas::new(views.collect(), pixels, size), record, mask, trails);
}

/// Repeats the last column and the last row, so that a picture of odd size fills one of even size without an
/// edge that costs bits or shows. `sample` bytes belong together.
fn extend_edges(data: &mut [u8], stride: usize, inner: Size, outer: Size, sample: usize) {
    for row in data.chunks_mut(stride).take(inner.height) {
        for x in (inner.width..outer.width).step_by(sample) {
            row.copy_within(x - sample..x, x);
        }
    }
    for y in inner.height..outer.height {
        data.copy_within((y - 1) * stride..(y - 1) * stride + outer.width, y * stride);
    }
}

/// What the buffers are like: the frames' rate, pixel aspect and colours, in another format where they are
/// grey.
fn video_info(
    format: &VideoFormat,
    pixels: PixelFormat,
    even: bool,
    is_grey: bool,
) -> Result<gst_video::VideoInfo, gst::glib::BoolError> {
    let round = |length: usize| if even { length.next_multiple_of(2) } else { length } as u32;
    let fraction = |(n, d): (i32, i32)| gst::Fraction::new(n, d.max(1));
    // Grey pictures are full range unless they say otherwise; colour without a word has GStreamer's default
    // for its size.
    let colours = format.colorimetry.as_deref().or(is_grey.then_some("1:4:0:0"));
    let colours = colours.and_then(|text| text.parse::<gst_video::VideoColorimetry>().ok());
    let kind = pixels.name.parse::<gst_video::VideoFormat>()?;
    gst_video::VideoInfo::builder(kind, round(format.size.width), round(format.size.height))
        .fps(fraction(format.frame_rate))
        .par(fraction(format.pixel_aspect))
        .colorimetry_if_some(colours.as_ref())
        .build()
}

#[cfg(test)]
pub(super) mod tests;
