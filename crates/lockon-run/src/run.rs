//! A run, from a request to its summary: source, setup, devices, sinks, engine.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use crate::backend::{Device, Options};
use crate::devices::Devices;
use crate::request::{self, Request, Share, shown_receiver};
use crate::setup::{self, Ends, NamedTemplate, Setup};
use lockon_core::config::{Moment, Part, SearchMethod, TrackSpec};
use lockon_core::control::Control;
use lockon_core::error::{Error, Result};
use lockon_core::excerpt::Excerpt;
use lockon_core::files::{self, Claim};
use lockon_core::frame::{Frame, FrameMeta, VideoFormat};
use lockon_core::output::{self, report};
use lockon_core::overlay::Crop;
use lockon_core::paced::Paced;
use lockon_core::ports::Sink;
use lockon_core::results::{CommandRecord, RunRecord, Summary};
use lockon_core::search::Search;
use lockon_core::surface::Traffic;
use lockon_core::text;
use lockon_gst::clips::{self, Clips};
use lockon_gst::cuda::Surfaces;
use lockon_gst::launch;
use lockon_gst::sink::{Numbered, Shown, VideoSink};
use lockon_gst::source::{Input, SourceSpec, VideoSource};
use lockon_gst::window;

mod count;
mod hidden;
mod outlet;
mod playback;

pub use count::Count;
pub use outlet::{Opening, Outlet};

use playback::Playback;

/// A request that was checked, with the files that it reads. Nothing is written yet, and no video open.
pub struct Prepared {
    request: Request,
    share: Share,
    spec: SourceSpec,
    /// The input as it was typed.
    typed: Input,
    templates: Vec<NamedTemplate>,
}

/// The video of a run that may open nothing else for it.
pub struct Video {
    /// A file, pictures, an address or a camera.
    pub input: Input,
    /// The file, if the input is one.
    pub file: Option<Arc<File>>,
    /// The pictures in their order, if the input is pictures, with the names that messages use.
    pub pictures: Option<Arc<Vec<(PathBuf, File)>>>,
}

/// A run whose source and outputs are open.
pub struct Run {
    request: Request,
    spec: SourceSpec,
    /// The input as it was typed.
    typed: Input,
    setup: Setup,
    devices: Devices,
    frames: Excerpt<VideoSource>,
    sinks: Vec<Box<dyn Sink>>,
    shown: Option<Arc<Shown>>,
    control: Control,
    command: Option<CommandRecord>,
    /// Held until the end, so that readers of a pipe get all of it.
    readers: Vec<File>,
    /// Held until the end, so that no other run writes the same files.
    claims: Vec<Claim>,
}

impl Request {
    /// Checks the request and reads its templates: all that can be refused before a video is opened or a file
    /// written.
    ///
    /// # Errors
    /// As [`Self::check`] and [`setup::load_templates`]; `Usage` if the folder of an output does not exist;
    /// `File` if the video is a file that cannot be read.
    pub fn prepare(&self) -> Result<Prepared> {
        self.prepare_for(Share::WHOLE)
    }

    /// As [`Self::prepare`], for a run that has a share of the machine.
    ///
    /// # Errors
    /// As [`Self::prepare`].
    pub fn prepare_for(&self, share: Share) -> Result<Prepared> {
        launch::init()?;
        let spec = self.source_spec_for(share)?;
        self.check_with(&spec)?;
        files::check_folders(&self.written_paths())?;
        let templates = setup::load_templates(&self.template)?;
        hidden::check(self, &templates)?;
        if let Input::File(path) = &spec.input {
            path.metadata().map_err(Error::file("read", path))?;
        }
        let (request, typed) = (self.dated(SystemTime::now()), spec.input.clone());
        Ok(Prepared { request, share, spec, typed, templates })
    }
}

impl Prepared {
    /// Begins to decode at `--start` instead of the video's beginning; frames are numbered from the key frame
    /// before it. Does nothing if `--start` is a frame's number.
    #[must_use]
    pub fn seeking(mut self) -> Self {
        if let Moment::Time(ns) = self.request.start {
            self.spec.seek_ns = Some(ns);
        }
        self
    }

    /// Reads the video from this open file: a file that gets its name later is never read. Files that it
    /// names are not opened, so playlists are refused.
    #[must_use]
    pub fn reading(mut self, opened: Arc<File>) -> Self {
        self.spec.opened = Some(opened);
        self
    }

    /// Reads this video, whatever the request's input means now, and opens nothing else for it: playlists are
    /// refused, also at addresses, and HTTP redirects are not followed.
    #[must_use]
    pub fn confined_to(mut self, Video { input, file, pictures }: Video) -> Self {
        (self.spec.input, self.spec.opened, self.spec.opened_pictures) = (input, file, pictures);
        self.spec.is_confined = true;
        self
    }

    /// Reads only the luma of pictures in files if the request uses no colours, which is faster. Their frames
    /// are grey then. For runs that get no other outputs that show frames, and no orders.
    #[must_use]
    pub fn sparing_colours(mut self) -> Self {
        self.spec.luma_only = !self.request.uses_colours();
        self
    }

    /// Opens everything, outputs before the video: an output that cannot be written is refused before a
    /// camera is opened. `outlets` open outputs of other crates; they get each frame after those of the run
    /// itself.
    ///
    /// # Errors
    /// `Stopped` if `control` was; `Usage` if the request needs an outlet that is missing; errors of all that
    /// cannot be opened.
    pub fn start(mut self, control: &Control, outlets: &[Arc<dyn Outlet>]) -> Result<Run> {
        outlet::check(&self.request, outlets)?;
        control.repeat(self.request.orders_until_stopped(control)?);
        if self.request.display {
            control.keep_frames(window::KEPT);
        }
        let unseen = hidden::Unseen::of(&self.request, &self.templates);
        let setup = self.request.checked_setup(std::mem::take(&mut self.templates), control)?;
        let threads = self.share.threads(self.request.threads);
        let options = Options { threads, ..self.request.options(control) };
        let devices = Devices::new(options, self.request.on_device_loss, self.share.is_one_of_several())?;
        devices.probe()?;
        // The source's threads start here, and its page-locked memory is taken here.
        let _beside = devices.keep_beside();
        // While the video is opened. Pyramids are the CPU's.
        if self.request.search != SearchMethod::Pyramid {
            let ahead = devices.open_ahead();
            if self.request.keeps_frames_on_gpu() {
                self.spec.surfaces = Surfaces::new(move || Some(ahead.device()?));
            }
        }
        let readers = await_readers(&self.request, control)?.ok_or(Error::Stopped)?;
        let claims = claimed(&self.request)?;
        let mut sinks = file_sinks(&self.request, &self.spec, control)?;
        let (name, traffic) = (request::name_of(&self.typed), devices.traffic());
        let opening = Opening { request: &self.request, name: &name, traffic: &traffic };
        let joined = outlet::open_all(&opening, outlets)?;
        let Self { request, spec, typed, .. } = self;
        let source = match VideoSource::open(&spec, control) {
            Err(_) if control.is_stopped() => return Err(Error::Stopped),
            opened => opened?,
        };
        if wants_sound(&request) && sound_of(&request, &spec).is_none() && source.has_sound() {
            tracing::warn!("no audio in -o: only audio of files is copied (--no-audio silences this)");
        }
        let devices = devices.with_depth(request.depth_for(source.is_live()));
        let (watched, shown) = pipeline_sinks(&request, &spec.input, source.is_live(), control)?;
        sinks.extend(watched);
        sinks.extend(unseen.map(|unseen| Box::new(unseen) as Box<dyn Sink>));
        // Sinks end in the reverse order: receivers of events need not wait until a video is complete.
        sinks.extend(joined);
        request.warn_of_places_outside(source.format().size);
        let frames = Excerpt::new(source, request.part()).refusing_earlier(&request.track);
        let control = control.clone();
        setup.begin(&control);
        Ok(Run {
            request,
            spec,
            typed,
            setup,
            devices,
            frames,
            sinks,
            shown,
            control,
            command: None,
            readers,
            claims,
        })
    }
}

impl Run {
    /// Opens source and outputs of a request. `control` stops the run, and pauses it later.
    ///
    /// # Errors
    /// As [`Request::prepare`] and [`Prepared::start`].
    pub fn start(request: &Request, control: &Control) -> Result<Self> {
        request.prepare()?.start(control, &[])
    }

    /// Notes the command line in the run's record, without secrets.
    pub fn note_command(&mut self, line: impl IntoIterator<Item = String>) {
        let Self { request, spec, .. } = self;
        let mut is_receiver = false;
        let shown = |word: String| {
            let shown = match word.strip_prefix("--events=") {
                _ if is_receiver => shown_receiver(&word),
                Some(receiver) => format!("--events={}", shown_receiver(receiver)),
                None => text::address_without_secrets(&word).into_owned(),
            };
            is_receiver = word == "--events";
            shown
        };
        self.command = Some(CommandRecord {
            job: request.digest(&self.setup.templates),
            outputs: request.output_files().iter().map(|path| path.to_string_lossy().into_owned()).collect(),
            line: line.into_iter().map(shown).collect(),
            view: request.shown_view().name(),
            decoders: spec.decoder.name(),
            live: self.frames.source().is_live(),
            start: request.start.to_string(),
            end: request.end.map(|end| end.to_string()),
            every: request.every,
            max_frames: request.max_frames,
            threads: self.devices.threads(),
            depth: self.devices.depth(),
            kernels: request.kernel.iter().map(ToString::to_string).collect(),
            on_device_loss: request.on_device_loss.name(),
        });
    }

    /// Notes the request in the run's record if the run does only a part of it, or writes under other names
    /// at first. `outputs` are the final names.
    ///
    /// Returns the digest of the request, with the templates that this run has read.
    pub fn note_asked(&mut self, asked: &Request, outputs: impl IntoIterator<Item = String>) -> String {
        let digest = asked.digest(&self.setup.templates);
        let Some(command) = &mut self.command else { return digest };
        command.job.clone_from(&digest);
        command.outputs = outputs.into_iter().collect();
        command.start = asked.start.to_string();
        command.end = asked.end.map(|end| end.to_string());
        digest
    }

    /// Reports to outputs, before the first frame, that another process had the source and lost it.
    pub fn note_gap(&mut self, away: Duration, reason: impl Into<String>) {
        self.frames.follow_gap(away, reason.into());
    }

    /// Adds an output. It gets every frame that is processed.
    pub fn add_sink(&mut self, sink: Box<dyn Sink>) {
        self.sinks.push(sink);
    }

    /// True if the run can jump to another place of the video. Outputs contain each frame once, in order, so
    /// only a run that writes nothing can jump.
    pub fn can_jump(&self) -> bool {
        let Self { request, .. } = self;
        let is_seen_alone = request.output_files().is_empty()
            && request.output.is_empty()
            && request.results.is_empty()
            && request.cut.is_none()
            && request.sink.is_empty()
            && request.events.is_empty()
            && !request.display;
        let is_whole = request.control.is_none()
            && !request.pick
            && request.max_frames.is_none()
            && !matches!(request.end, Some(Moment::Frame(_)));
        let source = self.frames.source();
        is_seen_alone
            && is_whole
            && !source.is_live()
            && source.duration_ns().is_some()
            && matches!(self.spec.input, Input::File(_))
    }

    /// The first frame that will be processed, before it is; `None` if there is none, or if the run was
    /// stopped.
    ///
    /// # Errors
    /// The source's.
    pub fn first_frame(&mut self) -> Result<Option<Frame>> {
        self.frames.first(&self.control)
    }

    /// The element that decodes the video, such as `nvh264dec`; `None` for raw video.
    pub fn decoder(&self) -> Option<&str> {
        self.frames.source().decoder_name()
    }

    /// Follows these boxes too.
    pub fn follow(&mut self, tracks: impl IntoIterator<Item = TrackSpec>) {
        self.setup.tracks.extend(tracks);
        self.control.begin(self.setup.tracks.len() as u32);
    }

    /// A handle to control the run from other threads.
    pub fn control(&self) -> &Control {
        &self.control
    }

    /// The input.
    pub fn input(&self) -> &Input {
        &self.spec.input
    }

    /// How the screen, if there is one, keeps up with a live source.
    pub fn shown(&self) -> Option<Arc<Shown>> {
        self.shown.clone()
    }

    /// The request.
    pub fn request(&self) -> &Request {
        &self.request
    }

    /// The search at the start. Orders change it.
    pub fn search(&self) -> &Search {
        &self.setup.search
    }

    /// Counts the bytes that the run moves.
    pub fn traffic(&self) -> Traffic {
        self.devices.traffic()
    }

    /// True if frames come in their own time, from a camera or a stream.
    pub fn is_live(&self) -> bool {
        self.frames.source().is_live()
    }

    /// True if frames come in their own time from [`Self::finish`] on, as those of a file that plays at its
    /// own speed do.
    pub fn is_waiting_to_play(&self) -> bool {
        self.frames.source().is_waiting_to_play()
    }

    /// The format of the first frames.
    pub fn format(&self) -> Arc<VideoFormat> {
        self.frames.source().format()
    }

    /// The time of the first frame of the processed part in nanoseconds, if it is known.
    pub fn start_ns(&self) -> Option<u64> {
        self.time_of(self.request.start)
    }

    /// The time of a moment in nanoseconds; `None` for a frame's number in a video without a frame rate.
    fn time_of(&self, moment: Moment) -> Option<u64> {
        match moment {
            Moment::Time(ns) => Some(ns),
            Moment::Frame(index) => {
                let rate = setup::frame_rate(&self.frames.source().format());
                (rate > 0.0).then(|| (index as f64 / rate * 1e9) as u64)
            }
        }
    }

    /// Length of the processed part in nanoseconds, if it is known.
    pub fn length_ns(&self) -> Option<u64> {
        let Self { request, .. } = self;
        let start = self.start_ns().unwrap_or(0);
        let end = request.end.and_then(|end| self.time_of(end));
        let end = self.frames.source().duration_ns().into_iter().chain(end).min();
        let asked = request.max_frames.map(|max| Moment::Frame(max.saturating_mul(request.every)));
        let asked = asked.and_then(|length| self.time_of(length));
        end.map(|end| end.saturating_sub(start)).into_iter().chain(asked).min()
    }

    /// Processes the video to its end, or until the run is stopped. Outputs are complete then, whatever
    /// happened: the summary has the work that was done, the result the first error.
    pub fn finish(self) -> (Summary, Result<()>) {
        let jumps = self.can_jump();
        let Self { request, spec, typed, setup, devices, frames, sinks, control, command, .. } = self;
        let (readers, mut claims) = (self.readers, self.claims);
        let decoder = frames.source().decoder_name().map(str::to_owned);
        let pictures = frames.source().has_pictures();
        let describe = |format: &VideoFormat, device: &Device| {
            let input = request.source.clone().unwrap_or_else(|| typed.to_string());
            let (command, hides) = (command.clone(), request.hides());
            RunRecord { command, hides, pictures, ..setup.describe(&input, decoder.clone(), format, device) }
        };
        let playback = Playback::new(frames, jumps.then(|| (spec.clone(), request.part())), &control);
        let mut frames = Paced::new(playback, &control);
        let max_frames = request.max_frames;
        let ends = Ends { source: &mut frames, sinks, describe: &describe, max_frames, control };
        let (summary, outcome) = setup.run(&devices, &setup::open, ends);
        devices.note(&outcome);
        drop(readers);
        // Results without lines are valid, but a video without frames is an error.
        if summary.frames > 0 {
            let results =
                claims.iter_mut().filter(|claim| !request.output.iter().any(|path| path == claim.path()));
            results.for_each(Claim::keep);
        }
        drop(claims);
        if outcome.is_ok() && summary.frames == 0 && !summary.interrupted {
            let reason = match frames.source().missed() {
                Some(last) => none_in(request.part(), last),
                None => "it ended without a single frame".into(),
            };
            return (summary, Err(Error::NoVideo { input: spec.input.to_string(), reason }));
        }
        (summary, outcome)
    }
}

/// The reason why no frame of a video was processed; `last` was its last frame.
fn none_in(part: Part, last: FrameMeta) -> String {
    let at = last.pts_ns.map_or_else(String::new, |ns| format!(" at {}", Moment::Time(ns)));
    match part.end {
        Some(end) if end.is_reached(&last) => {
            format!("no frame lies between --start {} and --end {end}", part.start)
        }
        _ if last.pts_ns.is_none() && matches!(part.start, Moment::Time(_)) => {
            format!("its frames have no times, so --start {} finds none: use a frame number", part.start)
        }
        _ => format!("--start {} is after its last frame, {}{at}", part.start, last.index),
    }
}

/// Waits until each output that is a named pipe has a reader, and holds the pipes open so that no output
/// waits later; `None` if the run was stopped first.
fn await_readers(request: &Request, control: &Control) -> Result<Option<Vec<File>>> {
    let texts = request.results.iter().chain(&request.report).map(Path::new);
    let named = texts.chain(request.output.iter().map(PathBuf::as_path));
    let named = named.filter(|path| files::is_pipe(path) && !files::is_stdout(path));
    named.map(|path| files::open_pipe(path, files::End::Writing, control)).collect::<Result<Option<_>, _>>()
}

/// Locks the outputs that are files, except continued ones: these are locked when they are opened.
///
/// # Errors
/// `Output` if another run writes one of them.
fn claimed(request: &Request) -> Result<Vec<Claim>> {
    // Each picture of a numbered output has a name of its own.
    let is_one = |path: &PathBuf| !request.continues(path) && Numbered::of(path).is_none();
    let files = request.output_files().into_iter().filter(is_one);
    files.filter_map(|path| Claim::take(&path).transpose()).collect()
}

/// The outputs that are files. Outputs that cannot be written are refused here, before the video is opened.
/// Results come first, so that they are kept if a video output fails.
fn file_sinks(request: &Request, spec: &SourceSpec, control: &Control) -> Result<Vec<Box<dyn Sink>>> {
    let mut sinks: Vec<Box<dyn Sink>> = Vec::new();
    for path in &request.results {
        sinks.push(output::open_rolling(path, request.rolling())?);
    }
    if let Some(path) = &request.report {
        sinks.push(report::open(path)?);
    }
    let sound = sound_of(request, spec);
    for path in &request.output {
        let sink = VideoSink::output(path, request.codec, request.shown_view(), sound.clone())?;
        let sink = of_part(request, sink);
        let sink = sink.hiding(request.hiding());
        sinks.push(Box::new(match request.follow {
            Some(shot) => sink.following(Crop::new(shot, request.follow_zoom)),
            None => sink,
        }));
    }
    if let Some(pattern) = &request.cut {
        let file = spec.input.file().filter(|path| spec.opened.is_none() && !files::is_pipe(path));
        let wanted = clips::ClipSpec {
            pattern: pattern.clone(),
            padding: request.cut_padding,
            sound: file.clone().filter(|_| !request.no_audio),
            file: file.filter(|_| !request.cut_exact && !request.hides()),
            hiding: request.hiding(),
        };
        sinks.push(Box::new(Clips::open(wanted, control)?));
    }
    Ok(sinks)
}

/// The output begins at `--start`: no file or screen shows the time before it.
fn of_part(request: &Request, sink: VideoSink) -> VideoSink {
    let sink = sink.with_zones(request.zone.clone());
    if request.start == Moment::default() { sink } else { sink.from_zero() }
}

/// Sinks, and how the last of them, the screen if there is one, keeps up with a live source.
type PipelineSinks = (Vec<Box<dyn Sink>>, Option<Arc<Shown>>);

/// The outputs that depend on whether the source is live.
fn pipeline_sinks(
    request: &Request,
    input: &Input,
    is_live: bool,
    control: &Control,
) -> Result<PipelineSinks> {
    let mut sinks = Vec::new();
    for text in &request.sink {
        let sink = of_part(request, VideoSink::user(text, request.shown_view(), is_live)?);
        sinks.push(sink.hiding(request.hiding()).steering(control));
    }
    if request.display {
        let window = VideoSink::display(request.shown_view(), is_live, &input.title())?;
        sinks.push(window.hiding(request.hiding()).with_zones(request.zone.clone()).steering(control));
    }
    let shown = sinks.last().filter(|_| is_live).map(VideoSink::shown);
    Ok((sinks.into_iter().map(|sink| Box::new(sink) as Box<dyn Sink>).collect(), shown))
}

/// The file whose sound goes into `-o`.
fn sound_of(request: &Request, spec: &SourceSpec) -> Option<PathBuf> {
    if !wants_sound(request) {
        return None;
    }
    spec.opened.as_ref().map_or_else(|| spec.input.file(), |_| spec.file())
}

/// True if a video is written into which sound goes. Pictures have none.
fn wants_sound(request: &Request) -> bool {
    !request.no_audio && request.output.iter().any(|path| Numbered::of(path).is_none())
}
