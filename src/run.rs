//! A run, from a request to its summary: source, job, devices, sinks, engine.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use crate::backend::{Device, Options};
use crate::config::{Moment, Part, SearchMethod, TrackSpec};
use crate::control::Control;
use crate::devices::Devices;
use crate::engine::{Engine, Purpose};
use crate::error::{Error, Result};
#[cfg(feature = "events")]
use crate::events::EventsSink;
use crate::excerpt::Excerpt;
use crate::files;
use crate::fleet;
use crate::frame::{Frame, FrameMeta, Size, VideoFormat};
use crate::job::{self, Job, NamedTemplate};
use crate::media::clips::{self, Clips};
use crate::media::cuda::Surfaces;
use crate::media::launch;
use crate::media::sink::{Shown, VideoSink};
use crate::media::source::{Input, SourceSpec, VideoSource};
use crate::media::window;
use crate::metrics::{MetricsServer, MetricsSink};
use crate::output::{self, report};
use crate::overlay::Crop;
use crate::paced::Paced;
use crate::ports::Sink;
use crate::request::{Request, Share, shown_receiver};
use crate::results::{CommandRecord, RunRecord, Summary};
#[cfg(feature = "serve")]
use crate::serve::{self, Page};
use crate::surface::Traffic;
use crate::text;

mod playback;

use playback::Playback;

/// A request that was checked, with the files that it reads. Nothing is written yet, and no video open.
pub struct Prepared {
    request: Request,
    share: Share,
    spec: SourceSpec,
    /// The input as it was typed.
    typed: Input,
    templates: Vec<NamedTemplate>,
    metrics: Option<MetricsServer>,
    traffic: Traffic,
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
    job: Job,
    devices: Devices,
    frames: Excerpt<VideoSource>,
    sinks: Vec<Box<dyn Sink>>,
    shown: Option<Arc<Shown>>,
    control: Control,
    command: Option<CommandRecord>,
    /// Held until the end, so that whoever reads a pipe stays for all of it.
    readers: Vec<File>,
    /// Serves as long as the run goes on.
    metrics: Option<MetricsServer>,
}

impl Request {
    /// Checks the request and reads its templates: all that can be refused before a video is opened or a file
    /// written.
    ///
    /// # Errors
    /// As [`Self::check`] and [`job::load_templates`]; `Usage` if the folder of an output does not exist;
    /// `File` if the video is a file that cannot be read.
    pub fn prepare(&self) -> Result<Prepared> {
        self.prepare_for(Share::WHOLE)
    }

    /// The same for a run that has a share of the machine.
    ///
    /// # Errors
    /// As [`Self::prepare`].
    pub fn prepare_for(&self, share: Share) -> Result<Prepared> {
        launch::init()?;
        let spec = self.source_spec_for(share)?;
        self.check_with(&spec)?;
        files::check_folders(&self.written_paths())?;
        let templates = job::load_templates(&self.template)?;
        if let Input::File(path) = &spec.input {
            path.metadata().map_err(Error::file("read", path))?;
        }
        let (request, traffic, typed) =
            (self.dated(SystemTime::now()), Traffic::default(), spec.input.clone());
        Ok(Prepared { request, share, spec, typed, templates, metrics: None, traffic })
    }
}

impl Prepared {
    /// Begins to decode where `--start` is instead of at the video's beginning; frames are numbered from the
    /// key frame before it. Does nothing where `--start` is a frame's number.
    #[must_use]
    pub fn seeking(mut self) -> Self {
        if let Moment::Time(ns) = self.request.start {
            self.spec.seek_ns = Some(ns);
        }
        self
    }

    /// Reads the video, which must be a file, from one that is open already: whatever lies under its name
    /// later is another's. What that names is not opened, so that playlists are refused.
    #[must_use]
    pub fn reading(mut self, opened: Arc<File>) -> Self {
        self.spec.opened = Some(opened);
        self
    }

    /// Reads this video, whatever the request's input means by now, and opens nothing else for it: playlists
    /// are refused, also at addresses, and HTTP redirects are not followed.
    #[must_use]
    pub fn confined_to(mut self, Video { input, file, pictures }: Video) -> Self {
        (self.spec.input, self.spec.opened, self.spec.opened_pictures) = (input, file, pictures);
        self.spec.is_confined = true;
        self
    }

    /// Serves the metrics that were asked for, from now on, and tells where.
    ///
    /// # Errors
    /// `Output` if nothing can be served there.
    pub fn serve_metrics(&mut self) -> Result<Option<String>> {
        let Some(address) = &self.request.metrics else { return Ok(None) };
        if self.metrics.is_none() {
            self.metrics = Some(MetricsServer::start(address)?);
        }
        Ok(self.metrics.as_ref().map(MetricsServer::url))
    }

    /// Opens everything, outputs before the video: what cannot be written is refused before a camera is
    /// asked.
    ///
    /// # Errors
    /// `Stopped` if `control` was; whatever cannot be opened.
    pub fn start(mut self, control: &Control) -> Result<Run> {
        control.repeat(self.request.orders()?);
        control.begin_with_zones(self.request.zone.clone());
        if self.request.display {
            control.keep_frames(window::KEPT);
        }
        let job = self.request.checked_job(std::mem::take(&mut self.templates), control)?;
        let threads = self.share.threads(self.request.threads);
        let options = Options { threads, traffic: self.traffic.clone(), ..self.request.options(control) };
        let devices = Devices::new(options, self.request.on_device_loss, self.share.is_one_of_several())?;
        devices.probe()?;
        // While the video is opened. Pyramids are the CPU's.
        if self.request.search != SearchMethod::Pyramid {
            let ahead = devices.open_ahead();
            if self.request.keeps_frames_on_gpu() {
                self.spec.surfaces = Surfaces::new(move || Some(ahead.device()?));
            }
        }
        let readers = await_readers(&self.request, control)?.ok_or(Error::Stopped)?;
        let mut sinks = file_sinks(&self.request, &self.spec)?;
        #[cfg(feature = "events")]
        let receivers = match &self.request.events[..] {
            [] => None,
            _ => Some(EventsSink::open(&self.request, &fleet::name_of(&self.typed))?),
        };
        self.serve_metrics()?;
        let watch = |server: &MetricsServer| {
            Box::new(server.watch(&fleet::name_of(&self.typed), &self.traffic)) as Box<dyn Sink>
        };
        sinks.extend(self.metrics.as_ref().map(watch));
        let Self { request, spec, typed, metrics, .. } = self;
        let source = match VideoSource::open(&spec, control) {
            Err(_) if control.is_stopped() => return Err(Error::Stopped),
            opened => opened?,
        };
        let devices = devices.with_depth(request.depth_for(source.is_live()));
        let (watched, shown) = pipeline_sinks(&request, &spec.input, source.is_live(), control)?;
        sinks.extend(watched);
        // Sinks end in the reverse order: nobody waits for a video's end to hear that a track is gone.
        #[cfg(feature = "events")]
        sinks.extend(receivers.map(|sink| Box::new(sink) as Box<dyn Sink>));
        warn_of_zones_outside(&request, source.format().size);
        let frames = Excerpt::new(source, request.part()).refusing_earlier(&request.track);
        let control = control.clone();
        control.begin(job.tracks.len() as u32);
        Ok(Run {
            request,
            spec,
            typed,
            job,
            devices,
            frames,
            sinks,
            shown,
            control,
            command: None,
            readers,
            metrics,
        })
    }
}

impl Run {
    /// Opens all that a request asks for. `control` stops it, and pauses it later.
    ///
    /// # Errors
    /// As [`Request::prepare`] and [`Prepared::start`].
    pub fn start(request: &Request, control: &Control) -> Result<Self> {
        request.prepare()?.start(control)
    }

    /// Notes the command line in the run's record, without what is secret in it.
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
            job: request.digest(&self.job.templates),
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

    /// Notes in the run's record what was asked, where the run itself does a part of it, or writes under
    /// other names until all is there. `outputs` are the names that there will be.
    ///
    /// The digest of what was asked, with the templates that this run has read.
    pub fn note_asked(&mut self, asked: &Request, outputs: impl IntoIterator<Item = String>) -> String {
        let digest = asked.digest(&self.job.templates);
        let Some(command) = &mut self.command else { return digest };
        command.job.clone_from(&digest);
        command.outputs = outputs.into_iter().collect();
        command.start = asked.start.to_string();
        command.end = asked.end.map(|end| end.to_string());
        digest
    }

    /// Tells outputs, before the first frame, that somebody else had the source and lost it.
    pub fn note_gap(&mut self, away: Duration, reason: impl Into<String>) {
        self.frames.follow_gap(away, reason.into());
    }

    /// Adds an output. It gets every frame that is processed.
    pub fn add_sink(&mut self, sink: Box<dyn Sink>) {
        self.sinks.push(sink);
    }

    /// What counts this run for a server of several, under a name.
    pub fn metrics(&self, server: &MetricsServer, video: &str) -> MetricsSink {
        server.watch(video, &self.devices.traffic())
    }

    /// Shows this run on a page, under a name, from now on; gives the number that it has there.
    #[cfg(feature = "serve")]
    pub fn show(&mut self, page: &Page, name: &str) -> usize {
        let Self { request, devices, control, frames, .. } = &*self;
        let is_live = frames.source().is_live();
        if !is_live {
            control.set_speed(request.speed.times());
        }
        let shown = serve::Shown {
            name: text::for_people(name),
            title: text::for_people(&title(request, &self.spec.input, name)),
            zones: request.zone.clone(),
            start_ns: self.time_of(request.start).unwrap_or(0),
            can_jump: self.can_jump(),
            control: control.clone(),
            traffic: devices.traffic(),
            is_live,
            every: request.every,
            length_ns: self.length_ns(),
            limits: request.limits(),
            roi: request.roi,
            waits: request.is_idle() && !request.display && !is_live,
            kept: if request.display { window::KEPT } else { 0 },
            frame_bytes: frames.source().format().bytes(),
        };
        let sink = page.watch(shown);
        let number = sink.number();
        self.sinks.push(Box::new(sink));
        number
    }

    /// True if the run can jump to another place of the video. Outputs contain each frame once, in order, so
    /// only a run that writes nothing can jump.
    #[cfg(feature = "serve")]
    fn can_jump(&self) -> bool {
        let Self { request, .. } = self;
        let is_seen_alone = request.output_files().is_empty()
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
        self.job.tracks.extend(tracks);
        self.control.begin(self.job.tracks.len() as u32);
    }

    /// A handle on it, to drive it from elsewhere.
    pub fn control(&self) -> &Control {
        &self.control
    }

    /// Where the video comes from.
    pub fn input(&self) -> &Input {
        &self.spec.input
    }

    /// How a screen keeps up with a live source, if there is one.
    pub fn shown(&self) -> Option<Arc<Shown>> {
        self.shown.clone()
    }

    /// The time of a moment in nanoseconds; `None` for a frame's number in a video without a frame rate.
    fn time_of(&self, moment: Moment) -> Option<u64> {
        match moment {
            Moment::Time(ns) => Some(ns),
            Moment::Frame(index) => {
                let rate = job::frame_rate(&self.frames.source().format());
                (rate > 0.0).then(|| (index as f64 / rate * 1e9) as u64)
            }
        }
    }

    /// Length of the processed part in nanoseconds, if it is known.
    pub fn length_ns(&self) -> Option<u64> {
        let Self { request, .. } = self;
        let start = self.time_of(request.start).unwrap_or(0);
        let end = request.end.and_then(|end| self.time_of(end));
        let end = self.frames.source().duration_ns().into_iter().chain(end).min();
        let asked = request.max_frames.map(|max| Moment::Frame(max.saturating_mul(request.every)));
        let asked = asked.and_then(|length| self.time_of(length));
        end.map(|end| end.saturating_sub(start)).into_iter().chain(asked).min()
    }

    /// Processes the video to its end, or until the run is stopped. Outputs are complete then, whatever
    /// happened: the summary tells what was done, the result whether something went wrong.
    pub fn finish(self) -> (Summary, Result<()>) {
        #[cfg(feature = "serve")]
        let jumps = self.can_jump();
        #[cfg(not(feature = "serve"))]
        let jumps = false;
        let Self {
            request,
            spec,
            typed,
            job,
            devices,
            frames,
            sinks,
            control,
            command,
            readers,
            metrics,
            ..
        } = self;
        let open_backend = |purpose: &Purpose<'_>| devices.open(|options| job::open(options, purpose));
        let open_spare = |purpose: &Purpose<'_>, error: Option<&Error>| {
            devices.open_spare(error, |options| job::open(options, purpose))
        };
        let decoder = frames.source().decoder_name().map(str::to_owned);
        let pictures = frames.source().has_pictures();
        let describe = |format: &VideoFormat, device: &Device| {
            let input = request.source.clone().unwrap_or_else(|| typed.to_string());
            let (command, hides) = (command.clone(), request.hides());
            RunRecord { command, hides, pictures, ..job.describe(&input, decoder.clone(), format, device) }
        };
        let playback = Playback::new(frames, jumps.then(|| (spec.clone(), request.part())), &control);
        let mut frames = Paced::new(playback, &control);
        let engine = Engine {
            source: &mut frames,
            search: job.search.clone(),
            open_backend: &open_backend,
            open_spare: devices.has_spare().then_some(&open_spare as _),
            describe: &describe,
            tracker: job.tracker(devices.threads()),
            sinks,
            max_frames: request.max_frames,
            control,
            traffic: devices.traffic(),
        };
        let (summary, outcome) = engine.run();
        devices.note(&outcome);
        drop((readers, metrics));
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

/// Warns of zones that no track can enter. A zone that is partly outside is one that the picture's edge cuts.
fn warn_of_zones_outside(request: &Request, picture: Size) {
    for zone in request.zone.iter().filter(|zone| zone.is_outside(picture)) {
        let name = text::in_one_line(zone.name());
        tracing::warn!("zone {name} lies outside of the {picture} picture: no track can enter it");
    }
}

/// The name of a run in the title of its page, by which people tell it from others: of an address its host
/// too, of a pipeline the beginning of its text.
#[cfg(feature = "serve")]
fn title(request: &Request, input: &Input, name: &str) -> String {
    match input {
        Input::Uri(uri) => {
            let uri = uri.to_string();
            let place = uri.split_once("://").map_or(&*uri, |(_, place)| place);
            let host = place.split(['/', '?', '#']).next().unwrap_or_default();
            let host = host.rsplit('@').next().unwrap_or_default();
            if host.is_empty() || name.contains(host) { name.to_owned() } else { format!("{host} {name}") }
        }
        Input::Launch(_) if name == fleet::name_of(input) => {
            let text = text::without_secrets(request.source.as_deref().unwrap_or_default()).into_owned();
            let first: String = text.chars().take(MOST_TITLE).collect();
            let more = if first.len() < text.len() { "\u{2026}" } else { "" };
            format!("{name}: {first}{more}")
        }
        _ => name.to_owned(),
    }
}

/// Letters of a pipeline's text in a title.
#[cfg(feature = "serve")]
const MOST_TITLE: usize = 60;

/// Why no frame of a video was processed, the last of which was `last`.
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

/// Waits until somebody reads each output that is a named pipe, and holds these open so that nobody has to
/// wait for them later; nothing if the run was stopped first.
fn await_readers(request: &Request, control: &Control) -> Result<Option<Vec<File>>> {
    let texts = request.results.iter().chain(&request.report).map(Path::new);
    let named = texts.chain(request.output.iter().map(PathBuf::as_path));
    let named = named.filter(|path| files::is_pipe(path));
    named.map(|path| files::open_pipe(path, files::End::Writing, control)).collect::<Result<Option<_>, _>>()
}

/// The outputs that are files. Whatever cannot be written is refused here, before the video is opened.
/// Results come first, so that they are kept if a video output fails.
fn file_sinks(request: &Request, spec: &SourceSpec) -> Result<Vec<Box<dyn Sink>>> {
    let mut sinks: Vec<Box<dyn Sink>> = Vec::new();
    for path in &request.results {
        sinks.push(output::open_rolling(path, request.rolling())?);
    }
    if let Some(path) = &request.report {
        sinks.push(report::open(path)?);
    }
    let sound = if request.output.is_empty() { None } else { sound_of(request, spec) };
    for path in &request.output {
        let sink = of_part(request, VideoSink::file(path, request.shown_view(), sound.clone())?);
        let sink = sink.hiding(request.hiding());
        sinks.push(Box::new(match request.follow {
            Some(shot) => sink.following(Crop::new(shot, request.follow_zoom)),
            None => sink,
        }));
    }
    if let Some(pattern) = &request.cut {
        let file = spec.input.file().filter(|path| spec.opened.is_none() && !files::is_pipe(path));
        let wanted = clips::Wanted {
            pattern: pattern.clone(),
            padding: request.cut_padding,
            sound: file.clone().filter(|_| !request.no_audio),
            file: file.filter(|_| !request.cut_exact && !request.hides()),
            hiding: request.hiding(),
        };
        sinks.push(Box::new(Clips::open(wanted)?));
    }
    Ok(sinks)
}

/// Nobody waits for the time before `--start`, in a file or in front of a screen.
fn of_part(request: &Request, sink: VideoSink) -> VideoSink {
    let sink = sink.with_zones(request.zone.clone());
    if request.start == Moment::default() { sink } else { sink.from_zero() }
}

/// Sinks, and how the last of them, the screen if there is one, keeps up with a live source.
type PipelineSinks = (Vec<Box<dyn Sink>>, Option<Arc<Shown>>);

/// The outputs that have to know whether the source is live.
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
    if request.no_audio {
        return None;
    }
    let file = spec.opened.as_ref().map_or_else(|| spec.input.file(), |_| spec.file());
    if file.is_none() {
        tracing::warn!("no audio in -o: only audio of files is copied (--no-audio silences this)");
    }
    file
}

#[cfg(all(test, feature = "serve"))]
mod tests {
    use super::*;

    #[test]
    fn runs_whose_videos_have_the_same_name_have_different_titles() {
        launch::init().unwrap();
        let title_of = |request: &Request| {
            let input = request.parsed_input().unwrap();
            title(request, &input, &fleet::name_of(&input))
        };
        for (typed, expected) in [
            ("rtsp://me:s3cret@cam1:554/stream", "cam1:554 stream"),
            ("rtsp://cam2/stream?user=me", "cam2 stream"),
            ("match.mp4", "match.mp4"),
        ] {
            assert_eq!(title_of(&Request::new(typed).unwrap()), expected);
        }
        for (pattern, expected) in [("ball", "ball"), ("snow", "snow")] {
            let source =
                format!("videotestsrc pattern={pattern} ! videoconvert ! appsink name=frames sync=true");
            let title = title_of(&Request { source: Some(source), ..Request::default() });
            assert_eq!(
                title,
                format!("source: videotestsrc pattern={expected} ! videoconvert ! appsink name=fram\u{2026}")
            );
        }
        // Each of several has a name of its own already.
        let request =
            Request { source: Some("videotestsrc ! appsink name=frames".into()), ..Request::default() };
        assert_eq!(title(&request, &request.parsed_input().unwrap(), "source (2)"), "source (2)");
    }
}
