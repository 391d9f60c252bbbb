//! Options of the farm commands.

use std::path::PathBuf;

use clap::{Args as ClapArgs, Subcommand, ValueHint};

use lockon::Error;
use lockon::farm::{Access, Allowed, Namespace, Split, TRIES};
use lockon::request::ListenAddress;

use super::super::overwrite::OverwriteArgs;
use super::super::request::{All, Typed};
use super::super::values::read;

/// The variable that may name the farm.
const FARM: &str = "LOCKON_FARM";

/// The farm and the login.
#[derive(ClapArgs)]
#[command(next_help_heading = "The farm")]
pub(in crate::cli) struct FarmArgs {
    /// NATS server of the farm: `nats://HOST[:PORT]` or `tls://HOST[:PORT]`, several of a cluster separated
    /// by commas; the variable `LOCKON_FARM` can hold the same
    #[arg(long, value_name = "ADDRESS")]
    farm: Option<String>,
    /// Name of the farm, if a server has several: letters, digits, - and _
    #[arg(long, value_name = "NAME", default_value_t, value_parser = read::<Namespace>)]
    namespace: Namespace,
    /// Login: a file with one line, USER:PASSWORD or a token, or a .creds file from nsc
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    farm_credentials: Option<PathBuf>,
    /// Certificates (PEM) of the authority that signed the server's certificate
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    farm_ca: Option<PathBuf>,
    /// Client certificate (PEM), if the server requires one
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, requires = "farm_key")]
    farm_cert: Option<PathBuf>,
    /// The key (PEM) of --farm-cert
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, requires = "farm_cert")]
    farm_key: Option<PathBuf>,
}

impl FarmArgs {
    /// The farm that was named, here or in the environment.
    pub(super) fn access(&self) -> lockon::Result<Access> {
        let named = self.farm.clone().or_else(|| std::env::var(FARM).ok().filter(|text| !text.is_empty()));
        let servers = named.ok_or_else(|| {
            Error::Usage(format!("which farm? give --farm nats://HOST[:PORT], or set {FARM}"))
        })?;
        let access = Access {
            namespace: self.namespace.clone(),
            credentials: self.farm_credentials.clone(),
            authority: self.farm_ca.clone(),
            certificate: self.farm_cert.clone().zip(self.farm_key.clone()),
            ..Access::new(servers)
        };
        access.check()?;
        Ok(access)
    }
}

const SUBMIT_EXAMPLES: &str = "\
Examples:
  Results beside the videos, on storage that workers reach by the same names:
    lockon submit --farm nats://head /shared/*.mp4 --template /shared/logo.png --results '/shared/{stem}.jsonl'
  Results files back into a folder here, and wait for them:
    lockon submit --farm nats://head /shared/*.mp4 --template /shared/logo.png --results '{stem}.jsonl' --collect out

Prints the number of each job, one per line in the order of the inputs. A job that is submitted twice is done once.

Exit codes: 0 submitted, or with --wait all done; 1 something failed; 2 wrong usage.";

/// `lockon submit`.
#[derive(ClapArgs)]
#[command(after_long_help = SUBMIT_EXAMPLES)]
pub(in crate::cli) struct SubmitArgs {
    #[command(flatten)]
    pub(super) typed: Typed<All>,
    /// Overwrite outputs that exist. Without this a job whose outputs are there, and are no results of it,
    /// fails. A job that failed or was cancelled is queued again, with -y or without as typed now
    #[arg(short = 'y', long, help_heading = "Output")]
    pub(super) overwrite: bool,
    /// File with more videos, one per line: an INPUT, or a job as --print-job=json writes it, whose options
    /// override the typed ones; - for standard input
    #[arg(long, value_name = "LIST", value_hint = ValueHint::FilePath, help_heading = "The farm")]
    pub(super) inputs: Option<PathBuf>,
    #[command(flatten)]
    pub(super) farm: FarmArgs,
    /// Wait until all jobs are done; exit code 1 if one fails
    #[arg(long, help_heading = "The farm")]
    pub(super) wait: bool,
    /// Bring results files (--results, --report) back through the farm into this folder, and wait for that:
    /// for workers that share only the videos' storage with this machine
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath, help_heading = "The farm")]
    pub(super) collect: Option<PathBuf>,
    /// Maximum tries of a job: it fails after N workers failed at it or disappeared during it
    #[arg(long, value_name = "N", default_value_t = TRIES, value_parser = clap::value_parser!(u32).range(1..=1000), help_heading = "The farm")]
    pub(super) tries: u32,
    /// Cut each video at key frames into so many segments for many workers, or of about a minute each with
    /// auto; results are equal to the bit to those of a run of the whole. For templates and thresholds, and
    /// --results .jsonl and .csv
    #[arg(long, value_name = "N|auto", value_parser = read::<Split>, help_heading = "The farm")]
    pub(super) split: Option<Split>,
    /// 0 cancels jobs that were submitted before, above all cameras, which never end by themselves
    #[arg(long, value_name = "0|1", default_value_t = 1, value_parser = clap::value_parser!(u8).range(0..=1), hide_default_value = true, help_heading = "The farm")]
    pub(super) replicas: u8,
    /// No progress bar, no progress lines
    #[arg(long, help_heading = "How")]
    pub(super) no_progress: bool,
}

impl SubmitArgs {
    pub(super) fn overwrite(&self) -> OverwriteArgs {
        OverwriteArgs { overwrite: self.overwrite, no_overwrite: false, is_without_n: true }
    }
}

const WORKER_EXAMPLES: &str = "\
Examples:
  A worker that reads and writes below /shared only:
    lockon worker --farm nats://head --root /shared
  One that watches cameras as well:
    lockon worker --farm nats://head --root /shared --allow rtsp
  One that gives its jobs back when it is stopped, instead of finishing them:
    lockon worker --farm nats://head --root /shared --drain give-back

SIGTERM and Ctrl-C drain it: it takes no more jobs, and ends when its running jobs have ended (exit code 0). A second signal \
ends it at once (exit code 143 or 130); another worker gets its jobs when their lease is over.";

/// `lockon worker`.
#[derive(ClapArgs)]
#[command(after_long_help = WORKER_EXAMPLES)]
pub(in crate::cli) struct WorkerArgs {
    #[command(flatten)]
    pub(super) farm: FarmArgs,
    /// Number of files processed at once [default: one per core on the CPU, two per core with a GPU]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(0..=4096))]
    pub(super) jobs: Option<u16>,
    /// Number of cameras and streams processed at once [default: as --jobs]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(0..=4096))]
    pub(super) cameras: Option<u16>,
    /// Allow jobs only files below this folder; may be given several times. Without it jobs read and write
    /// any file that this user can
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub(super) root: Vec<PathBuf>,
    /// With --root, also allow this: a scheme (rtsp), a scheme and a host (`rtsp://10.0.0.7`), or camera (the
    /// cameras of this machine); may be given several times
    #[arg(long, value_name = "WHAT", value_parser = read::<Allowed>, requires = "root")]
    pub(super) allow: Vec<Allowed>,
    /// Running jobs when the worker is stopped: finish, or give-back (other workers start them again);
    /// cameras are always given back
    #[arg(long, value_name = "HOW", default_value = "finish", hide_possible_values = true)]
    pub(super) drain: DrainHow,
    /// Name of the worker [default: the host's name and the process's number]
    #[arg(long, value_name = "NAME")]
    pub(super) name: Option<String>,
    /// Give a worker's jobs to others after so many seconds without a report from it, in the whole farm;
    /// other workers use a new value when they start [default: the farm's value; at first 5, for cameras 3]
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u16).range(2..=3600))]
    pub(super) lease: Option<u16>,
    /// Serve metrics of the worker, its jobs and the queue for Prometheus over HTTP at /metrics; a PORT alone
    /// is on 127.0.0.1
    #[arg(long, value_name = "[HOST:]PORT", value_parser = read::<ListenAddress>)]
    pub(super) metrics: Option<ListenAddress>,
}

/// How a worker that is stopped treats its running jobs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum DrainHow {
    Finish,
    GiveBack,
}

/// `lockon jobs`.
#[derive(ClapArgs)]
#[command(args_conflicts_with_subcommands = true)]
pub(in crate::cli) struct JobsArgs {
    #[command(subcommand)]
    pub(super) command: Option<JobsCommand>,
    #[command(flatten)]
    pub(super) farm: FarmArgs,
    /// Print one JSON object per line for each job
    #[arg(long)]
    pub(super) json: bool,
    /// Show all jobs, not some of each kind
    #[arg(long)]
    pub(super) all: bool,
    /// Refresh every two seconds, until Ctrl-C
    #[arg(long, conflicts_with = "json")]
    pub(super) watch: bool,
}

#[derive(Subcommand)]
pub(super) enum JobsCommand {
    /// Cancel jobs that are not done
    Cancel(ChangeArgs),
    /// Put failed or cancelled jobs back into the queue
    Retry(ChangeArgs),
    /// Remove jobs that are done, failed or cancelled, and their results stored in the farm; files stay
    Purge(ChangeArgs),
}

#[derive(ClapArgs)]
pub(super) struct ChangeArgs {
    /// Numbers of jobs as in the table, or the beginning of one
    #[arg(value_name = "JOB", required_unless_present = "all")]
    pub(super) jobs: Vec<String>,
    /// All jobs that this is possible for
    #[arg(long, conflicts_with = "jobs")]
    pub(super) all: bool,
    #[command(flatten)]
    pub(super) farm: FarmArgs,
}

/// `lockon workers`.
#[derive(ClapArgs)]
pub(in crate::cli) struct WorkersArgs {
    #[command(flatten)]
    pub(super) farm: FarmArgs,
    /// Print one JSON object per line for each worker
    #[arg(long)]
    pub(super) json: bool,
}
