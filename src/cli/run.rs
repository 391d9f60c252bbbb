//! `lockon run`: turns the arguments into a request, and the run's results into messages.

use std::fmt::Write as _;
use std::time::SystemTime;

use anyhow::Result;

use lockon::Error;
use lockon::files;
use lockon::media::launch;
use lockon::request::{self, Request};
use lockon::setup;

use super::args::{JobFormat, RunArgs};
use super::page::Page;
use super::progress::Progress;
use super::signals::Signals;
use super::wiring::Wiring;
use super::{Outcome, closing, code_of, fleet, log, no_terminal, pick, print, report, system};

pub(super) fn run(args: &RunArgs) -> Result<Outcome> {
    launch::init()?;
    log::join_gstreamer();
    let mut videos = fleet::videos(args)?;
    if let (Some(format), false) = (args.print_job, is_alone(args, &videos)) {
        return print_jobs(&videos, format);
    }
    if !is_alone(args, &videos) {
        return if args.print_pipeline {
            Err(Error::Usage("--print-pipeline is for one video".into()).into())
        } else {
            fleet::run(args, videos)
        };
    }
    let (_, request) = videos.remove(0);
    system::check_threads(setup::threads(request.threads), "--threads takes fewer")?;
    if let Some(format) = args.print_job {
        return print_job(&request, format);
    }
    if args.print_pipeline {
        return print_pipelines(&request, args.as_element);
    }
    let request = request.dated(SystemTime::now());
    let prepared = request.prepare()?.sparing_colours();
    request.check_work()?;
    check_stdout(&request)?;
    args.overwrite.allow(&request.files_at_risk())?;
    let signals = Signals::watch()?;
    let name = request::name_of(&request.parsed_input()?);
    let wiring = Wiring::of(&request, vec![name.clone()])?;
    let mut run = match prepared.start(signals.control(), &wiring.outlets(&name)) {
        Err(Error::Stopped) => return Ok(signals.outcome()),
        started => started?,
    };
    if request.pick
        && let Some(frame) = run.first_frame()?
    {
        match pick::tracks(&frame, run.input(), signals.control())? {
            Some(picked) => run.follow(picked),
            None => return Ok(signals.outcome()),
        }
    }
    let shows = !args.no_progress && !log::is_quiet();
    let progress = shows.then(|| Progress::new(run.length_ns(), run.shown()));
    let line = std::env::args_os().map(|word| word.to_string_lossy().into_owned());
    wiring.attach(&mut run, &name, line, progress);
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
    let done = if summary.interrupted { signals.outcome() } else { Outcome::Done };
    let outcome = outcome.map(|()| done).map_err(anyhow::Error::from);
    stay(wiring.page(), &signals, args, outcome)
}

/// Keeps the page open after the end, if it should stay. An error is printed before that, and only once.
pub(super) fn stay(
    page: Option<&Page>,
    signals: &Signals,
    args: &RunArgs,
    outcome: Result<Outcome>,
) -> Result<Outcome> {
    let Some(page) = page else { return outcome };
    let mut is_printed = false;
    page.stay(signals, args.exit_at_end, || {
        is_printed = true;
        if let Err(error) = &outcome {
            report(error);
        }
    });
    outcome.or_else(|error| if is_printed { Ok(Outcome::Failed(code_of(&error))) } else { Err(error) })
}

/// True if there is one video: more can be reported and shown of one than of several.
fn is_alone(args: &RunArgs, videos: &[(String, Request)]) -> bool {
    videos.len() == 1
        && args.several.inputs.is_none()
        && args.several.jobs.is_none()
        && !args.several.skip_done
}

/// Refuses requests that cannot be run, and those that would find nothing.
pub(super) fn check(request: &Request) -> lockon::Result<()> {
    request.check()?;
    request.check_work()
}

/// Refuses to write a video to a terminal.
pub(super) fn check_stdout(request: &Request) -> lockon::Result<()> {
    if request.output.iter().any(|path| files::is_stdout(path)) { no_terminal() } else { Ok(()) }
}

/// True if the findings are shown, written or reported anywhere.
pub(super) fn keeps_anything(request: &Request) -> bool {
    let written = usize::from(request.cut.is_some())
        + request.output.len()
        + request.results.len()
        + request.sink.len();
    let is_seen = request.display || request.metrics.is_some() || request.serve.is_some();
    let is_told = !request.events.is_empty();
    written > 0 || request.report.is_some() || is_seen || is_told
}

fn print_job(request: &Request, format: JobFormat) -> Result<Outcome> {
    check(request)?;
    let shown = without_secrets(request);
    let text = match format {
        JobFormat::Toml => shown.to_toml()?,
        JobFormat::Json => shown.to_json()? + "\n",
    };
    print(&text)?;
    Ok(Outcome::Done)
}

/// Prints the jobs as a list that --inputs reads: one job a line.
fn print_jobs(videos: &[(String, Request)], format: JobFormat) -> Result<Outcome> {
    if format == JobFormat::Toml {
        return Err(Error::Usage("several jobs are JSON, a line each: --print-job=json".into()).into());
    }
    let mut text = String::new();
    for (_, request) in videos {
        check(request)?;
        writeln!(text, "{}", without_secrets(request).to_json()?)?;
    }
    print(&text)?;
    Ok(Outcome::Done)
}

/// Returns the request without secrets. Warns if something was left out.
fn without_secrets(request: &Request) -> Request {
    let (shown, had_secrets) = request.without_secrets();
    if had_secrets {
        tracing::warn!(
            "passwords and paths of webhooks are left out of the job: give them by --credentials FILE, \
             LOCKON_CREDENTIALS or --events @FILE"
        );
    }
    shown
}

fn print_pipelines(request: &Request, as_element: bool) -> Result<Outcome> {
    request.check_work()?;
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
    print(&text)?;
    Ok(Outcome::Done)
}
