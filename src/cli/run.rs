//! `lockon run`: from what was typed to an engine with its source, device, tracker and sinks.

use std::cell::Cell;
use std::fmt::Write as _;
use std::fs::File;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Result;

use lockon::Error;
use lockon::backend::{self, Ahead, Device, Options};
use lockon::config::{BackendChoice, Limits, Moment, OnDeviceLoss, Part, SearchMethod, View};
use lockon::control::Control;
use lockon::engine::Engine;
use lockon::excerpt::Excerpt;
use lockon::files;
use lockon::frame::{FrameMeta, VideoFormat};
use lockon::job::{self, Job};
use lockon::media::launch::{self, Launch};
use lockon::media::pick::PutBack;
use lockon::media::sink::{self, Shown, VideoSink};
use lockon::media::source::{CameraMode, DEFAULT_JITTER_MS, Decoder, Input, Login, SourceSpec, VideoSource};
use lockon::metrics::MetricsSink;
use lockon::output::{self, report};
use lockon::ports::Sink;
use lockon::results::{CommandRecord, RunRecord};
use lockon::text;

use super::args::{NO_ANGLES, NO_SCALES, RunArgs};
use super::progress::Progress;
use super::signals::Signals;
use super::{Outcome, closing, log, pick, system};

pub(super) fn run(args: &RunArgs) -> Result<Outcome> {
    system::check_threads(job::threads(args.threads))?;
    launch::init()?;
    log::join_gstreamer();
    let spec = source_spec(args)?;
    check(args, &spec)?;
    if args.print_pipeline {
        return print_pipelines(args, &spec);
    }
    // All that can be refused before the video starts is: first what was typed, then files, then devices.
    let templates = job::load_templates(&args.template)?;
    if let Input::File(path) = &spec.input {
        path.metadata().map_err(Error::file("read", path))?;
    }
    args.overwrite.allow(&output_files(args))?;
    let signals = Signals::watch()?;
    let sought = match args.search.sought(&templates, signals.control()) {
        Err(Error::Stopped) => return Ok(signals.outcome()),
        sought => sought?,
    };
    backend::probe(args.backend)?;
    // While the video is opened. Pyramids are the CPU's.
    let ahead = (args.search.search != SearchMethod::Pyramid).then(|| Ahead::open(args.backend));
    let Some(_readers) = await_readers(args, signals.control())? else { return Ok(signals.outcome()) };
    let mut sinks = file_sinks(args, &spec)?;
    if let Some(address) = &args.metrics {
        let metrics = MetricsSink::serve(address)?;
        log::say(&format!("metrics: {}", metrics.url()));
        sinks.push(Box::new(metrics));
    }
    let mut source = match VideoSource::open(&spec, signals.control()) {
        Err(_) if signals.exit_code().is_some() => return Ok(signals.outcome()),
        opened => opened?,
    };
    let (watched, shown) = pipeline_sinks(args, &spec.input, source.is_live(), signals.control())?;
    sinks.extend(watched);
    if !args.no_progress && !log::is_quiet() {
        let duration_ns = length_ns(args, source.duration_ns(), job::frame_rate(&source.format()));
        sinks.push(Box::new(Progress::new(duration_ns, shown)));
    }
    let source_is_live = source.is_live();
    let decoder = source.decoder_name().map(str::to_owned);
    let mut excerpt = Excerpt::new(&mut source, args.part());
    let (mut tracks, mut first) = (args.track.clone(), None);
    if args.pick
        && let Some(frame) = pick::first_frame(&mut excerpt, signals.control())?
    {
        match pick::tracks(&frame, &spec.input, signals.control())? {
            Some(picked) => tracks.extend(picked),
            None => return Ok(signals.outcome()),
        }
        first = Some(frame);
    }
    let mut frames = PutBack::new(first, &mut excerpt);

    let job = Job {
        templates,
        sought,
        variety: (args.search.scales.value.clone(), args.search.angles.value.clone()),
        roi: args.search.roi,
        limits: args.search.limits(),
        tracks,
        track_matches: args.track_matches,
        threshold: args.threshold,
        wants_mask: sinks.iter().any(|sink| sink.wants_mask()),
    };
    let options = Options {
        choice: args.backend,
        depth: usize::from(args.depth),
        threads: job::threads(args.threads),
        kernels: args.kernel.iter().copied().collect(),
        control: signals.control().clone(),
        memory: args.memory,
    };
    let choice = Cell::new(options.choice);
    let ahead = Cell::new(ahead);
    let command = command_record(args, &spec, source_is_live, options.threads);
    let has_opened = Cell::new(false);
    let open_backend = |format: &VideoFormat| {
        let options = Options { choice: choice.get(), ..options.clone() };
        // Frames that do not fit what was typed are an error at the beginning, and may pass later.
        let opened = if has_opened.get() { job.reopen(&options, format) } else { job.open(&options, format) };
        let backend = opened?;
        has_opened.set(true);
        drop(ahead.take());
        choice.set(job::settled(choice.get(), &backend.describe()));
        Ok(backend)
    };
    let open_spare = |format: &VideoFormat| job.reopen(&options.on_cpu(), format);
    let describe = |format: &VideoFormat, device: &Device| {
        let typed = args.source.as_deref().map(|text| text::without_secrets(text).into_owned());
        let input = typed.unwrap_or_else(|| spec.input.to_string());
        let record = job.describe(input, decoder.clone(), format, device);
        RunRecord { command: Some(command.clone()), ..record }
    };
    let input_name = spec.input.to_string();
    let engine = Engine {
        source: &mut frames,
        open_backend: &open_backend,
        open_spare: match args.on_device_loss {
            OnDeviceLoss::End => None,
            OnDeviceLoss::Cpu => Some(&open_spare),
        },
        describe: &describe,
        tracker: job.tracker(options.threads),
        sinks,
        max_frames: args.max_frames,
        control: signals.control().clone(),
    };
    let (summary, outcome) = engine.run();
    if summary.frames > 0 {
        log::say(&closing::describe(&summary, args.search.min_score));
        if log::is_verbose() {
            log::say(&closing::describe_times(&summary));
        }
        match closing::describe_files(&summary) {
            Some(files) => log::say(&files),
            None if !keeps_anything(args) => log::say(closing::NOTHING_KEPT),
            None => {}
        }
    }
    outcome?;
    if summary.frames == 0 && !summary.interrupted {
        let reason = match excerpt.missed() {
            Some(last) => none_in(args.part(), last),
            None => "it ended without a single frame".into(),
        };
        return Err(Error::NoVideo { input: input_name, reason }.into());
    }
    Ok(if summary.interrupted { signals.outcome() } else { Outcome::Done })
}

/// True if somebody sees anything of what is found.
fn keeps_anything(args: &RunArgs) -> bool {
    let written = args.output.len() + args.results.len() + args.sink.len();
    written > 0 || args.report.is_some() || args.display || args.metrics.is_some()
}

/// How this process was started.
fn command_record(args: &RunArgs, spec: &SourceSpec, is_live: bool, threads: usize) -> CommandRecord {
    let typed = std::env::args_os();
    CommandRecord {
        line: typed.map(|word| text::without_secrets(&word.to_string_lossy()).into_owned()).collect(),
        view: args.view.name(),
        decoders: spec.decoder.name(),
        live: is_live,
        start: args.start.to_string(),
        end: args.end.map(|end| end.to_string()),
        every: args.every,
        max_frames: args.max_frames,
        threads,
        depth: usize::from(args.depth),
        kernels: args.kernel.iter().map(ToString::to_string).collect(),
        on_device_loss: args.on_device_loss.name(),
    }
}

/// How much of a video of that length is processed, at so many frames a second, as far as that is known.
fn length_ns(args: &RunArgs, whole_ns: Option<u64>, rate: f64) -> Option<u64> {
    let frames = |count: u64| (rate > 0.0).then(|| (count as f64 / rate * 1e9) as u64);
    let time = |moment: Moment| match moment {
        Moment::Frame(index) => frames(index),
        Moment::Time(ns) => Some(ns),
    };
    let start = time(args.start).unwrap_or(0);
    let end = whole_ns.into_iter().chain(args.end.and_then(time)).min();
    let asked = args.max_frames.and_then(|max| frames(max.saturating_mul(args.every)));
    end.map(|end| end.saturating_sub(start)).into_iter().chain(asked).min()
}

/// Why no frame of a video was processed, the last of which was `last`.
fn none_in(part: Part, last: FrameMeta) -> String {
    let at = last.pts_ns.map_or_else(String::new, |ns| format!(" at {}", Moment::Time(ns)));
    match part.end {
        Some(end) if end.is_reached(&last) => {
            format!("no frame lies between --start {} and --end {end}", part.start)
        }
        _ if last.pts_ns.is_none() && matches!(part.start, Moment::Time(_)) => {
            format!("its frames have no times, so none is at --start {}: give a frame's number", part.start)
        }
        _ => format!("--start {} is after its last frame, {}{at}", part.start, last.index),
    }
}

/// Refuses what cannot mean anything, before any file is touched.
fn check(args: &RunArgs, spec: &SourceSpec) -> lockon::Result<()> {
    let usage = |text: &str| Err(Error::Usage(text.into()));
    output::check(&args.results)?;
    if let Some(path) = &args.report {
        report::check_name(path)?;
    }
    for path in &args.output {
        sink::file_launch(path)?;
    }
    for text in &args.sink {
        VideoSink::user(text, args.view, false)?;
    }
    files::check_distinct(&input_files(args, spec), &output_files(args))?;
    let part = args.part();
    part.check()?;
    for track in &args.track {
        // Nobody says 0 in so many words.
        if part.begins_after(track.from) && track.from != Moment::default() {
            return Err(Error::Usage(format!("--track {track} starts before --start {}", part.start)));
        }
        if part.ends_before(track.from, args.max_frames) {
            let end = part.end.map(|end| format!("--end {end}"));
            let max = args.max_frames.map(|max| format!("--max-frames {max}"));
            let ends: Vec<_> = end.into_iter().chain(max).collect();
            return Err(Error::Usage(format!(
                "--track {track} starts after the last of {}",
                ends.join(", ")
            )));
        }
    }
    if part.start != Moment::default() && spec.is_real_time()? {
        return usage("--start is for files: what came before a camera or stream was opened cannot be had");
    }
    if args.template.is_empty() && args.track.is_empty() && !args.pick && args.threshold.is_none() {
        return usage("nothing to do: give --template, --track, --pick or --threshold");
    }
    let search = (!args.template.is_empty()).then_some(args.search.search);
    job::check_device(&args.kernel, args.backend, search, args.threshold)?;
    if args.threshold.is_none() && args.view != View::Overlay {
        return usage("--view mask and --view split show the thresholded picture: give --threshold too");
    }
    Ok(())
}

/// The files that are read: the video, as a path or a URI, and the templates.
fn input_files(args: &RunArgs, spec: &SourceSpec) -> Vec<PathBuf> {
    spec.input.file().into_iter().chain(args.template.iter().map(|text| job::name_and_path(text).1)).collect()
}

/// The files that are written.
fn output_files(args: &RunArgs) -> Vec<PathBuf> {
    let results = args.results.iter().filter(|path| *path != "-").chain(&args.report).map(PathBuf::from);
    args.output.iter().cloned().chain(results).collect()
}

fn source_spec(args: &RunArgs) -> lockon::Result<SourceSpec> {
    let input = match (&args.source, &args.input) {
        (Some(text), _) => Input::Launch(Launch::user("--source", text)?.with_appsink()),
        (None, Some(input)) => input.clone(),
        (None, None) => return Err(Error::Usage("no input: give a file, a URI, camera, or --source".into())),
    };
    // Frames that hardware decoded lie on the GPU, which the CPU backend would have to fetch them from.
    let decoder = match (args.decoder, args.backend) {
        (Decoder::Auto, BackendChoice::Auto | BackendChoice::Cpu) => Decoder::Software,
        (decoder, _) => decoder,
    };
    let live = if args.live || args.lossless { Some(args.live) } else { None };
    let usage = |text: &str| Err(Error::Usage(text.into()));
    let is_network = matches!(input, Input::Uri(_)) && input.file().is_none();
    if args.jitter.is_some() && !is_network {
        return usage("--jitter is for rtsp:// and srt://: other sources have none that could be evened out");
    }
    let camera = CameraMode { size: args.size, frame_rate: args.fps };
    let is_rate_alone = matches!(input, Input::Pictures(_)) && args.size.is_none();
    if camera != CameraMode::default() && !is_rate_alone && !matches!(input, Input::Camera(_)) {
        return usage("--size and --fps are a camera's: other sources say themselves what they send");
    }
    let jitter_ms = args.jitter.unwrap_or(DEFAULT_JITTER_MS);
    let login = login(args, is_network || matches!(input, Input::Launch(_)))?;
    let spec = SourceSpec { input, decoder, live, reconnect: args.reconnect, camera, login, jitter_ms };
    if args.reconnect && !spec.can_reconnect() {
        return usage("--reconnect is for cameras and streams: a file is not lost");
    }
    Ok(spec)
}

/// User and password for the server, from the file that was named or from the environment.
fn login(args: &RunArgs, has_server: bool) -> lockon::Result<Option<Login>> {
    match &args.credentials {
        Some(_) if !has_server => Err(Error::Usage(
            "--credentials is for an address: nobody else asks for a user and a password".into(),
        )),
        Some(path) => Login::read(path).map(Some),
        None if !has_server => Ok(None),
        None => match std::env::var("LOCKON_CREDENTIALS") {
            Ok(text) if !text.is_empty() => {
                let login = text.parse();
                login.map(Some).map_err(|error| Error::Usage(format!("LOCKON_CREDENTIALS: {error}")))
            }
            _ => Ok(None),
        },
    }
}

/// Waits until somebody reads each output that is a named pipe, and holds these open so that nobody has to
/// wait for them later; nothing if a signal came first.
fn await_readers(args: &RunArgs, control: &Control) -> lockon::Result<Option<Vec<File>>> {
    let named = args.results.iter().map(Path::new).chain(args.output.iter().map(PathBuf::as_path));
    let named = named.filter(|path| files::is_pipe(path));
    named.map(|path| files::open_pipe(path, files::End::Writing, control)).collect::<Result<Option<_>, _>>()
}

/// The outputs that are files. Whatever cannot be written is refused here, before the video is opened.
/// Results come first, so that they are kept if a video output fails.
fn file_sinks(args: &RunArgs, spec: &SourceSpec) -> lockon::Result<Vec<Box<dyn Sink>>> {
    let mut sinks: Vec<Box<dyn Sink>> = Vec::new();
    for path in &args.results {
        sinks.push(output::open(path)?);
    }
    if let Some(path) = &args.report {
        sinks.push(report::open(path)?);
    }
    let sound = if args.output.is_empty() { None } else { sound_of(args, spec) };
    for path in &args.output {
        sinks.push(Box::new(of_part(args, VideoSink::file(path, args.view, sound.clone())?)));
    }
    Ok(sinks)
}

/// Nobody waits for the time before `--start`, in a file or in front of a screen.
fn of_part(args: &RunArgs, sink: VideoSink) -> VideoSink {
    if args.start == Moment::default() { sink } else { sink.from_zero() }
}

/// The outputs that have to know whether the source is live.
fn pipeline_sinks(
    args: &RunArgs,
    input: &Input,
    is_live: bool,
    control: &Control,
) -> lockon::Result<PipelineSinks> {
    let mut sinks = Vec::new();
    for text in &args.sink {
        sinks.push(of_part(args, VideoSink::user(text, args.view, is_live)?).steering(control));
    }
    if args.display {
        sinks.push(VideoSink::display(args.view, is_live, &title(input))?.steering(control));
    }
    let shown = sinks.last().filter(|_| is_live).map(VideoSink::shown);
    Ok((sinks.into_iter().map(|sink| Box::new(sink) as Box<dyn Sink>).collect(), shown))
}

/// What a window that shows an input is called.
pub(super) fn title(input: &Input) -> String {
    match input {
        Input::Launch(_) => "lockon".to_owned(),
        input => input.to_string(),
    }
}

/// Sinks, and how the last of them, the screen if there is one, keeps up with a live source.
type PipelineSinks = (Vec<Box<dyn Sink>>, Option<Arc<Shown>>);

/// The file whose sound goes into `-o`.
fn sound_of(args: &RunArgs, spec: &SourceSpec) -> Option<PathBuf> {
    if args.no_audio {
        return None;
    }
    let file = spec.input.file();
    if file.is_none() {
        tracing::warn!("-o has no sound: only that of a file is carried along (--no-audio says so)");
    }
    file
}

fn print_pipelines(args: &RunArgs, spec: &SourceSpec) -> Result<Outcome> {
    // What runs depends on what is in the file: a turned or interlaced video, one of 10 bits.
    let source = match &spec.input {
        Input::File(path) if !files::is_pipe(path) => {
            VideoSource::open(spec, &Control::new())?.launch().clone()
        }
        _ => spec.launch()?,
    };
    if matches!(spec.input, Input::Uri(_)) && spec.input.file().is_none() {
        tracing::warn!(
            "a program sets how network sources even out jitter: --jitter is left out of the text"
        );
    }
    if args.decoder == Decoder::Hardware {
        tracing::warn!("a program prefers decoders: --decoder hardware is left out of the text");
    }
    let mut sinks = Vec::new();
    for path in &args.output {
        sinks.push((path.display().to_string(), sink::file_launch(path)?));
    }
    for text in &args.sink {
        sinks.push(("--sink".to_owned(), sink::user_launch(text)?));
    }
    if args.display {
        let is_live = matches!(spec.input, Input::Camera(_));
        sinks.push(("--display".to_owned(), sink::display_launch(is_live)));
    }
    let mut text = String::new();
    if args.as_element {
        let sinks: Vec<_> = sinks.into_iter().map(|(_, launch)| launch).collect();
        // Ctrl-C ends the stream, so that files are completed; standard output may be wanted for results.
        writeln!(text, "gst-launch-1.0 -e -q {}", as_element(args, spec, source, &sinks)?)?;
    } else {
        for (title, launch) in [("source".to_owned(), source)].into_iter().chain(sinks) {
            writeln!(text, "# {title}\n{launch}")?;
        }
    }
    std::io::stdout().write_all(text.as_bytes())?;
    Ok(Outcome::Done)
}

/// The pipeline that does the same by the element `lockon`, whose properties are named as options are.
fn as_element(
    args: &RunArgs,
    spec: &SourceSpec,
    mut source: Launch,
    sinks: &[Launch],
) -> lockon::Result<Launch> {
    let is_real_time = spec.is_real_time()?;
    let is_live = spec.live.unwrap_or(is_real_time);
    if is_live {
        // What does not come at its own pace is given it, as the program does.
        let paced = if is_real_time { "" } else { "clocksync ! " };
        let newest = "queue leaky=downstream max-size-buffers=1 max-size-bytes=0 max-size-time=0";
        source.insert_before("frames", &format!("{paced}{newest}"))?;
    }
    let has_sound = !args.output.is_empty() && !args.no_audio && spec.input.file().is_some();
    if has_sound {
        tracing::warn!("sound is left out of this line (--no-audio says so)");
    }
    if args.reconnect {
        tracing::warn!("a source that is lost ends this line: --reconnect is left out of it");
    }
    for (option, is_given) in [("--report", args.report.is_some()), ("--metrics", args.metrics.is_some())] {
        if is_given {
            tracing::warn!("{option} is left out of this line: the element writes results files only");
        }
    }
    if args.part() != Part::default() {
        tracing::warn!(
            "--start, --end and --every are left out of this line: put a seek or videorate before the element"
        );
    }
    for list in [&args.template, &args.results] {
        if let Some(text) = list.iter().find(|text| text.contains(';')) {
            return Err(Error::Usage(format!("the element takes {text:?} for several, which `;` separates")));
        }
    }
    // Properties are named as options are, and what is not set is the same by default.
    let list = |values: Vec<String>| Some(values.join(";")).filter(|text| !text.is_empty());
    let typed = |text: &str, default: &str| Some(text.to_owned()).filter(|text| text != default);
    let number = |number: f64, default: f64| (number != default).then(|| number.to_string());
    let (search, limits) = (&args.search, Limits::default());
    let view = match args.view {
        // What nobody sees is not drawn.
        _ if sinks.is_empty() => Some("none"),
        View::Overlay => None,
        View::Mask => Some("mask"),
        View::Split => Some("split"),
    };
    let backend = match args.backend {
        BackendChoice::Auto => None,
        BackendChoice::Cpu => Some("cpu".to_owned()),
        BackendChoice::Cuda(device) => Some(format!("cuda:{device}")),
    };
    let mut launch = source.joined("lockon", sinks)?;
    for (property, value) in [
        ("template", list(args.template.clone())),
        ("track", list(args.track.iter().map(ToString::to_string).collect())),
        ("track-matches", args.track_matches.then(|| "true".to_owned())),
        ("threshold", args.threshold.map(|threshold| threshold.to_string())),
        ("min-score", number(search.min_score, limits.min_score)),
        ("max-matches", number(f64::from(search.max_matches), limits.max_matches as f64)),
        ("max-overlap", number(search.max_overlap, limits.max_overlap)),
        ("scales", typed(&search.scales.text, NO_SCALES)),
        ("angles", typed(&search.angles.text, NO_ANGLES)),
        ("search", (search.search != SearchMethod::default()).then(|| search.search.name().to_owned())),
        ("roi", search.roi.map(|roi| roi.to_string())),
        ("backend", backend),
        ("kernel", list(args.kernel.iter().map(ToString::to_string).collect())),
        ("threads", args.threads.map(|threads| threads.to_string())),
        ("max-frames", args.max_frames.map(|max| max.to_string())),
        ("depth", (args.depth != 2).then(|| args.depth.to_string())),
        ("on-device-loss", (args.on_device_loss == OnDeviceLoss::Cpu).then(|| "cpu".to_owned())),
        // Where nothing may be dropped, nothing is, whatever a sink says of late frames.
        ("qos", (!is_live).then(|| "false".to_owned())),
        ("view", view.map(str::to_owned)),
        ("results", list(args.results.clone())),
    ] {
        if let Some(value) = value {
            launch.set("lockon", property, value);
        }
    }
    Ok(launch)
}
