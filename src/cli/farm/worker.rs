//! `lockon worker`.

use anyhow::Result;

use lockon::Error;
use lockon::farm::{self, Drain, News, Roots, WorkerOptions};
use lockon::fleet;
use lockon::media::launch;
use lockon::metrics::Registry;
use lockon::page::MetricsServer;
use lockon::request::Request;
use lockon::setup;
use lockon::text;

use super::super::signals::Signals;
use super::super::wiring::outlets;
use super::super::words::counted;
use super::super::{Outcome, closing, log, system};
use super::args::{DrainHow, WorkerArgs};
use super::line;

const DRAINING: &str = "draining: no more jobs are taken (a second signal ends at once)";

pub(in crate::cli) fn worker(args: &WorkerArgs) -> Result<Outcome> {
    launch::init()?;
    log::join_gstreamer();
    let access = args.farm.access()?;
    let jobs = args.jobs.map_or_else(|| fleet::usual_jobs(&Request::default()), usize::from);
    let cameras = args.cameras.map_or(jobs, usize::from);
    if jobs + cameras == 0 {
        return Err(Error::Usage("--jobs 0 and --cameras 0 leave nothing to do".into()).into());
    }
    system::allow_files();
    let threads = setup::threads(None) + system::THREADS_EACH * (jobs + cameras);
    system::check_threads(threads, "--jobs and --cameras take fewer at a time")?;
    let registry = Registry::default();
    let metrics =
        args.metrics.as_ref().map(|address| MetricsServer::start(address, &registry)).transpose()?;
    let options = WorkerOptions {
        name: args.name.clone().unwrap_or_else(own_name),
        version: env!("CARGO_PKG_VERSION").into(),
        jobs,
        cameras,
        lease: args.lease.map(|seconds| std::time::Duration::from_secs(seconds.into())),
        drain: match args.drain {
            DrainHow::Finish => Drain::Finish,
            DrainHow::GiveBack => Drain::GiveBack,
        },
        roots: Roots::new(&args.root, &args.allow)?,
        metrics: metrics.is_some().then_some(registry),
        outlets: outlets(),
    };
    let signals = Signals::watch_saying(DRAINING)?;
    let (name, server, is_bound) = (options.name.clone(), access.name(), options.roots.is_bound());
    let url = metrics.as_ref().map(|server| server.url().to_owned());
    let tell = move |news| match news {
        News::Ready { .. } => {
            let places =
                [counted(jobs as u64, "file", "files"), counted(cameras as u64, "camera", "cameras")];
            log::say(&format!("worker {name} of {server}: {} at a time", places.join(" and ")));
            if !is_bound {
                log::say("jobs read and write whatever this user may: --root DIR bounds that");
            }
            if let Some(url) = &url {
                log::say(&format!("metrics: {url}"));
            }
        }
        other => tell(other),
    };
    farm::work(&access, options, signals.control(), tell)?;
    Ok(Outcome::Done)
}

fn tell(news: News) {
    match news {
        News::Ready { .. } => {}
        News::Away(error) => log::say(&format!("{error}: waiting for it")),
        News::Back => log::say("the farm's server is there again"),
        News::Begun { name } => {
            if log::is_verbose() {
                log::say(&format!("{} begins", text::in_one_line(&name)));
            }
        }
        News::Done { name, summary, min_score } => {
            let what = closing::in_one_line(&summary, min_score);
            log::say(&format!("{}: {what}", text::in_one_line(&name)));
        }
        News::Found { name } => log::say(&format!("{}: its results are there", text::in_one_line(&name))),
        News::Failed { name, error, is_given_up } => {
            let end = if is_given_up { "given up" } else { "it is tried again" };
            let error = line(&error);
            log::error(&format!("{}: {error} ({end})", text::in_one_line(&name)));
        }
        News::GivenBack { name } => log::say(&format!("{}: given back", text::in_one_line(&name))),
        News::Unheard { name } => {
            let name = text::in_one_line(&name);
            log::error(&format!("{name}: the farm did not hear how it ended: another worker takes it"));
        }
        News::Taken { name } => {
            log::say(&format!("{}: cancelled, or another worker has it", text::in_one_line(&name)));
        }
        News::Resting { rest, why } => {
            let why = line(&why);
            log::say(&format!(
                "takes no jobs for {:.1} s, as several failed here: {why}",
                rest.as_secs_f64()
            ));
        }
    }
}

/// The default name of this worker.
fn own_name() -> String {
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname");
    let host = host.ok().or_else(|| std::env::var("HOSTNAME").ok()).unwrap_or_default();
    let host = host.trim();
    format!("{}-{}", if host.is_empty() { "worker" } else { host }, std::process::id())
}
