//! Times the kernels on this machine, and checks each against the definition before its time counts; follows
//! boxes on the host and on a GPU; compares each mode of the texture unit with a model of it.

use std::io::Write as _;
use std::process::ExitCode;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::Result;
use clap::{Parser, Subcommand};

use lockon_core::Error;
use lockon_core::backend::{Backend, Options, Standing, cpu as cpu_backend};
use lockon_core::config::BackendChoice;
use lockon_core::frame::Size;

use follow::FollowRequest;
use plan::{BenchRequest, Work, check_request};
use table::Report;

mod check;
mod cpu;
mod device;
mod follow;
mod gpu;
mod peers;
mod plan;
mod scene;
mod table;
#[cfg(test)]
#[path = "../../../tests/test_log.rs"]
mod test_log;
#[cfg(test)]
mod testing;
mod textures;

/// The exit code if the reader of standard output has closed it, as of `lockon`: 128 and the number of
/// SIGPIPE.
const UNREAD: u8 = 141;

/// Times the kernels of lockon on this machine.
#[derive(Parser)]
#[command(version, propagate_version = true, max_term_width = 110)]
struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Time every kernel, after checking its result against the definition
    Kernels(BenchRequest),
    /// Follow boxes through frames on the host and on a GPU, compare the tracks, and time both
    Follow(FollowRequest),
    /// Read textures in every mode that CUDA has on GPU 0, and compare the results with a model of the
    /// texture unit; exit code 1 if one differs
    Textures {
        /// Only modes whose row has all of these words, such as linear, mirror, 3-D
        words: Vec<String>,
    },
}

/// Exit codes: 0 done, 1 an error or a wrong result, 2 wrong usage, [`UNREAD`].
fn main() -> ExitCode {
    let done = match Args::parse().command {
        Command::Kernels(request) => kernels(&request).map(|()| true),
        Command::Follow(request) => follow::follow(&request).map(|()| true),
        Command::Textures { words } => textures::show(&words).map_err(Into::into),
    };
    match done {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            let known = error.downcast_ref::<Error>();
            if matches!(known, Some(Error::ReaderGone { .. })) {
                return UNREAD.into();
            }
            say(&format!("error: {error:#}"));
            ExitCode::from(if known.is_some_and(Error::is_usage) { 2 } else { 1 })
        }
    }
}

/// Writes to standard output.
///
/// # Errors
/// `ReaderGone` for a closed pipe, otherwise `Output`.
fn print(text: &str) -> lockon_core::Result<()> {
    let mut stdout = std::io::stdout();
    let written = stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush());
    written.map_err(|error| Error::of_stdout("stdout", &error))
}

/// Prints a message for people.
#[expect(clippy::print_stderr, reason = "a program's messages")]
fn say(message: &str) {
    eprintln!("{message}");
}

/// Measures, and prints a table line by line, or JSON at the end.
///
/// # Errors
/// `Usage` if the request has no meaning; errors of the device and of standard output; a wrong answer.
fn kernels(request: &BenchRequest) -> Result<()> {
    check_request(request)?;
    let mut work = Work::new(request);
    let number = match request.backend {
        BackendChoice::Cpu => None,
        BackendChoice::Cuda(number) => Some(number),
        BackendChoice::CudaOf(gpus) => Some(gpus.first()),
        BackendChoice::Auto => match gpu::first() {
            Ok(number) => Some(number),
            // The chosen kernels and peers need a GPU.
            Err(why) if !request.kernel.is_empty() || request.peers => return Err(why.into()),
            Err(why) => {
                say(&format!("warning: the CPU is measured: {why}"));
                None
            }
        },
    };
    let (device, driver, timing) = if let Some(number) = number {
        gpu::measure(&mut work, number)?
    } else {
        let threads = request.threads();
        let options = Options { depth: 1, threads, ..Options::default() };
        let device = cpu_backend::Cpu::open(Standing::new(Size::new(64, 64)), &options)?.describe();
        work.header(&device.name)?;
        work.on_cpu(threads)?;
        (device.name, None, "the processor's clock, input in its cache")
    };
    if request.json {
        let report = Report {
            device,
            driver,
            version: env!("CARGO_PKG_VERSION"),
            commit: option_env!("LOCKON_COMMIT").unwrap_or("unknown"),
            date: SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs()),
            timing,
            rows: work.rows,
        };
        print(&(serde_json::to_string_pretty(&report)? + "\n"))?;
    }
    Ok(())
}
