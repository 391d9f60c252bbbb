//! `lockon run`: what was typed becomes a request; what the run says, words for people.

use std::fmt::Write as _;
use std::io::Write as _;

use anyhow::Result;

use lockon::Error;
use lockon::job;
use lockon::media::launch;
use lockon::request::Request;

use super::args::{JobFormat, RunArgs};
use super::progress::Progress;
use super::signals::Signals;
use super::{Outcome, closing, log, pick, system};

pub(super) fn run(args: &RunArgs) -> Result<Outcome> {
    let request = args.typed.request()?;
    system::check_threads(job::threads(request.threads))?;
    launch::init()?;
    log::join_gstreamer();
    if let Some(format) = args.print_job {
        return print_job(&request, format);
    }
    if args.print_pipeline {
        return print_pipelines(&request, args.as_element);
    }
    let mut prepared = request.prepare()?;
    args.overwrite.allow(&request.output_files())?;
    let signals = Signals::watch()?;
    if let Some(url) = prepared.serve_metrics()? {
        log::say(&format!("metrics: {url}"));
    }
    let mut run = match prepared.start(signals.control()) {
        Err(Error::Stopped) => return Ok(signals.outcome()),
        started => started?,
    };
    run.note_command(std::env::args_os().map(|word| word.to_string_lossy().into_owned()));
    if !args.no_progress && !log::is_quiet() {
        run.add_sink(Box::new(Progress::new(run.length_ns(), run.shown())));
    }
    if request.pick
        && let Some(frame) = run.first_frame()?
    {
        match pick::tracks(&frame, run.input(), signals.control())? {
            Some(picked) => run.follow(picked),
            None => return Ok(signals.outcome()),
        }
    }
    let decoder = run.decoder().map(str::to_owned);
    let (summary, outcome) = run.finish();
    if summary.frames > 0 {
        log::say(&closing::describe(&summary, request.min_score));
        if log::is_verbose() {
            log::say(&closing::describe_times(&summary, decoder.as_deref()));
        }
        match closing::describe_files(&summary) {
            Some(files) => log::say(&files),
            None if !keeps_anything(&request) => log::say(closing::NOTHING_KEPT),
            None => {}
        }
    }
    outcome?;
    Ok(if summary.interrupted { signals.outcome() } else { Outcome::Done })
}

/// True if somebody sees anything of what is found.
fn keeps_anything(request: &Request) -> bool {
    let written = request.output.len() + request.results.len() + request.sink.len();
    written > 0 || request.report.is_some() || request.display || request.metrics.is_some()
}

fn print_job(request: &Request, format: JobFormat) -> Result<Outcome> {
    request.check()?;
    let (shown, had_secrets) = request.without_secrets();
    if had_secrets {
        tracing::warn!(
            "passwords are left out of the job: give them by --credentials FILE or LOCKON_CREDENTIALS"
        );
    }
    let text = match format {
        JobFormat::Toml => shown.to_toml()?,
        JobFormat::Json => shown.to_json()? + "\n",
    };
    std::io::stdout().write_all(text.as_bytes())?;
    Ok(Outcome::Done)
}

fn print_pipelines(request: &Request, as_element: bool) -> Result<Outcome> {
    let mut text = String::new();
    if as_element {
        // Ctrl-C ends the stream, so that files are completed; standard output may be wanted for results.
        writeln!(text, "gst-launch-1.0 -e -q {}", request.as_element()?)?;
    } else {
        let (source, sinks) = request.pipelines()?;
        for (title, launch) in [("source".to_owned(), source)].into_iter().chain(sinks) {
            writeln!(text, "# {title}\n{launch}")?;
        }
    }
    std::io::stdout().write_all(text.as_bytes())?;
    Ok(Outcome::Done)
}
