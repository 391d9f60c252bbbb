//! The command line: what was typed, turned into what the library needs, and results into words.
//!
//! Standard output carries results only (records, pipeline text, completions); messages, progress and the summary go to
//! standard error.

use std::process::ExitCode;

use clap::Parser;

mod args;
mod bench;
mod doctor;
mod log;
mod progress;
mod run;
mod signals;
mod speed;
mod stills;

use args::{Args, Command};

/// How a command that did not fail ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Outcome {
    /// All done.
    Done,
    /// Interrupted, after outputs were closed properly; the exit code that tells by which signal.
    Interrupted(u8),
    /// `doctor` found something missing.
    Incomplete,
}

/// Runs what was asked for. Exit codes: 0 done, 1 an error at run time, 2 wrong usage, 129, 130 or 143 interrupted.
pub(crate) fn main() -> ExitCode {
    // Wrong usage ends here, with code 2.
    let args = Args::parse();
    log::start(args.verbose);
    let outcome = match args.command {
        Command::Run(args) => run::run(&args),
        Command::Match(args) => stills::find(&args),
        Command::Threshold(args) => stills::threshold(&args),
        Command::Bench(args) => bench::bench(&args),
        Command::Doctor => doctor::doctor(),
        Command::Completions { shell } => args::print_completions(shell),
        Command::Man => args::print_man_page(),
    };
    match outcome {
        Ok(Outcome::Done) => ExitCode::SUCCESS,
        Ok(Outcome::Incomplete) => ExitCode::from(1),
        Ok(Outcome::Interrupted(code)) => ExitCode::from(code),
        Err(error) => {
            log::error(&format!("{error:#}"));
            let is_usage = error.downcast_ref::<lockon::Error>().is_some_and(lockon::Error::is_usage);
            ExitCode::from(if is_usage { 2 } else { 1 })
        }
    }
}
