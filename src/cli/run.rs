//! `lockon run`: from what was typed to an engine with its source, device, tracker and sinks.

use std::fmt::Write as _;
use std::io::Write as _;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result};

use lockon::Error;
use lockon::backend::{self, Device, Standing};
use lockon::config::{BackendChoice, View};
use lockon::engine::Engine;
use lockon::frame::{Rect, Size, VideoFormat};
use lockon::media::launch::{self, Launch};
use lockon::media::sink::{self, VideoSink};
use lockon::media::source::{Decoder, Input, SourceSpec, VideoSource};
use lockon::output;
use lockon::ports::Sink;
use lockon::results::{RunRecord, TemplateRecord};
use lockon::template::{Bank, Template};
use lockon::tracker::Tracker;

use super::args::{RunArgs, SearchArgs};
use super::progress::{self, Progress};
use super::{Outcome, log, stills};

pub(super) fn run(args: &RunArgs) -> Result<Outcome> {
    launch::init()?;
    let spec = source_spec(args)?;
    check(args, &spec)?;
    if args.print_pipeline {
        return print_pipelines(args, &spec);
    }
    // All that can be refused before the video starts is: first what was typed, then files, then devices.
    let templates = stills::load_templates(&args.template)?;
    let bank = bank(&templates, &args.search)?;
    let stop = stop_on_ctrl_c()?;
    refuse_missing_backend(args)?;
    let mut sinks = file_sinks(args, &spec)?;
    let mut source = match VideoSource::open(&spec, &stop) {
        Err(_) if stop.load(Ordering::Relaxed) => return Ok(Outcome::Interrupted),
        opened => opened?,
    };
    sinks.extend(pipeline_sinks(args, source.is_live())?);
    if !args.no_progress {
        let duration_ns = if args.max_frames.is_none() { source.duration_ns() } else { None };
        sinks.push(Box::new(Progress::new(duration_ns)));
    }

    let wants_mask = sinks.iter().any(|sink| sink.wants_mask());
    let decoder = source.decoder_name().map(str::to_owned);
    let threads = threads(args.threads);
    let open_backend = |format: &VideoFormat| {
        let (bank, roi) = searched(bank.as_deref(), args.search.roi, format.size)?;
        let standing = Standing {
            frame: format.size,
            bank,
            roi,
            limits: args.search.limits(),
            threshold: args.threshold,
            wants_mask,
        };
        backend::open(args.backend, standing, usize::from(args.depth), threads)
    };
    let describe = |format: &VideoFormat, device: &Device| RunRecord {
        version: env!("CARGO_PKG_VERSION"),
        input: args.source.clone().unwrap_or_else(|| spec.input.to_string()),
        width: format.size.width,
        height: format.size.height,
        frame_rate: frame_rate(format),
        format: format.pixels.name,
        backend: device.backend,
        device: device.name.clone(),
        driver: device.driver.clone(),
        decoder: decoder.clone(),
        started: SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs()),
        templates: templates.iter().map(|t| record(t, bank.as_ref())).collect(),
        tracks: args.track.iter().map(ToString::to_string).collect(),
        threshold: args.threshold.map(|spec| spec.to_string()),
    };
    let engine = Engine {
        source: &mut source,
        open_backend: &open_backend,
        describe: &describe,
        tracker: Tracker::new(&args.track),
        sinks,
        max_frames: args.max_frames,
        stop: &stop,
    };
    let (summary, outcome) = engine.run();
    if summary.frames > 0 {
        log::BARS.suspend(|| eprintln!("{}", progress::describe(&summary)));
    }
    outcome?;
    if summary.frames == 0 && !summary.interrupted {
        return Err(Error::NoVideo {
            input: spec.input.to_string(),
            reason: "it ended without a single frame".into(),
        }
        .into());
    }
    Ok(if summary.interrupted { Outcome::Interrupted } else { Outcome::Done })
}

/// Refuses what cannot mean anything, before any file is touched.
fn check(args: &RunArgs, spec: &SourceSpec) -> lockon::Result<()> {
    let usage = |text: &str| Err(Error::Usage(text.into()));
    for path in &args.results {
        output::Format::of(path)?;
    }
    for path in &args.output {
        sink::file_launch(path)?;
        if let (Input::File(input), Ok(output)) = (&spec.input, path.canonicalize())
            && input.canonicalize().is_ok_and(|input| input == output)
        {
            return Err(Error::Usage(format!("{} is both input and output", path.display())));
        }
    }
    for text in &args.sink {
        VideoSink::user(text, args.view, false)?;
    }
    if args.template.is_empty() && args.track.is_empty() && args.threshold.is_none() {
        return usage("nothing to do: give --template, --track or --threshold");
    }
    if args.threshold.is_none() && args.view != View::Overlay {
        return usage("--view mask and --view split show the thresholded picture: give --threshold too");
    }
    Ok(())
}

fn source_spec(args: &RunArgs) -> lockon::Result<SourceSpec> {
    let input = match (&args.source, &args.input) {
        (Some(text), _) => Input::Launch(Launch::user("--source", text)?),
        (None, Some(input)) => input.clone(),
        (None, None) => return Err(Error::Usage("no input: give a file, a URI, camera, or --source".into())),
    };
    // Frames that hardware decoded lie on the GPU, which the CPU backend would have to fetch them from.
    let decoder = match (args.decoder, args.backend) {
        (Decoder::Auto, BackendChoice::Auto | BackendChoice::Cpu) => Decoder::Software,
        (decoder, _) => decoder,
    };
    let live = if args.live || args.lossless { Some(args.live) } else { None };
    Ok(SourceSpec { input, decoder, live })
}

/// The outputs that are files. Whatever cannot be written is refused here, before the video is opened. Results come first, so
/// that they are kept if a video output fails.
fn file_sinks(args: &RunArgs, spec: &SourceSpec) -> lockon::Result<Vec<Box<dyn Sink>>> {
    let mut sinks: Vec<Box<dyn Sink>> = Vec::new();
    for path in &args.results {
        sinks.push(output::open(path)?);
    }
    for path in &args.output {
        sinks.push(Box::new(VideoSink::file(path, args.view, sound_of(args, spec))?));
    }
    Ok(sinks)
}

/// The outputs that have to know whether the source is live.
fn pipeline_sinks(args: &RunArgs, is_live: bool) -> lockon::Result<Vec<Box<dyn Sink>>> {
    let mut sinks: Vec<Box<dyn Sink>> = Vec::new();
    for text in &args.sink {
        sinks.push(Box::new(VideoSink::user(text, args.view, is_live)?));
    }
    if args.display {
        sinks.push(Box::new(VideoSink::display(args.view, is_live)?));
    }
    Ok(sinks)
}

/// The file whose sound goes into `-o`.
fn sound_of(args: &RunArgs, spec: &SourceSpec) -> Option<PathBuf> {
    match &spec.input {
        Input::File(path) if !args.no_audio => Some(path.clone()),
        _ => None,
    }
}

fn print_pipelines(args: &RunArgs, spec: &SourceSpec) -> Result<Outcome> {
    let mut text = String::new();
    let mut add = |title: &str, launch: &Launch| writeln!(text, "# {title}\n{launch}");
    add("source", &spec.launch()?)?;
    for path in &args.output {
        add(&path.display().to_string(), &sink::file_launch(path)?)?;
    }
    for sink_text in &args.sink {
        add("--sink", &sink::user_launch(sink_text)?)?;
    }
    if args.display {
        add("--display", &sink::display_launch(matches!(spec.input, Input::Camera(_))))?;
    }
    std::io::stdout().write_all(text.as_bytes())?;
    Ok(Outcome::Done)
}

/// A device that cannot be had is refused before the video is opened.
fn refuse_missing_backend(args: &RunArgs) -> lockon::Result<()> {
    if let BackendChoice::Cuda(_) = args.backend {
        let nothing = Standing {
            frame: Size::new(1, 1),
            bank: None,
            roi: Rect::new(0, 0, 1, 1),
            limits: args.search.limits(),
            threshold: None,
            wants_mask: false,
        };
        backend::open(args.backend, nothing, 1, 1)?;
    }
    Ok(())
}

/// Every template at every scale and angle, or `None` if there are none.
pub(super) fn bank(
    templates: &[stills::NamedTemplate],
    search: &SearchArgs,
) -> lockon::Result<Option<Arc<Bank>>> {
    if templates.is_empty() {
        return Ok(None);
    }
    let originals: Vec<Template> = templates.iter().map(|t| t.template.clone()).collect();
    Ok(Some(Arc::new(Bank::expanded(&originals, &search.scales, &search.angles)?)))
}

/// What of the bank fits, and where it is searched: inside `roi`, or in the whole frame.
pub(super) fn searched(
    bank: Option<&Bank>,
    roi: Option<Rect>,
    frame: Size,
) -> lockon::Result<(Option<Arc<Bank>>, Rect)> {
    let roi = roi.unwrap_or(Rect::whole(frame));
    if !roi.is_inside(frame) {
        return Err(Error::Outside { what: "region of interest", rect: roi, frame });
    }
    let bank = bank.map(|bank| bank.clone().fitting(roi.size()).map(Arc::new)).transpose()?;
    Ok((bank, roi))
}

fn record(template: &stills::NamedTemplate, bank: Option<&Arc<Bank>>) -> TemplateRecord {
    let name = template.template.name();
    let size = template.template.size();
    let members = bank.map_or(0, |bank| bank.members().iter().filter(|m| m.name() == name).count());
    TemplateRecord {
        name: name.clone(),
        w: size.width,
        h: size.height,
        sha256: template.sha256.clone(),
        members,
    }
}

fn frame_rate(format: &VideoFormat) -> f64 {
    match format.frame_rate {
        (_, 0) => 0.0,
        (frames, seconds) => f64::from(frames) / f64::from(seconds),
    }
}

/// All cores, unless told otherwise.
pub(super) fn threads(asked: Option<u16>) -> usize {
    asked.map_or_else(|| std::thread::available_parallelism().map_or(1, usize::from), usize::from)
}

/// A flag that the first Ctrl-C sets. The second ends the process at once.
fn stop_on_ctrl_c() -> Result<Arc<AtomicBool>> {
    let stop = Arc::new(AtomicBool::new(false));
    let flag = stop.clone();
    ctrlc::set_handler(move || {
        if flag.swap(true, Ordering::Relaxed) {
            std::process::exit(130);
        }
        log::BARS.suspend(|| eprintln!("stopping: outputs are being closed (Ctrl-C again ends at once)"));
    })
    .context("cannot watch for Ctrl-C")?;
    Ok(stop)
}
