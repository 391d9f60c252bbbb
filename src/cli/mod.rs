//! The command line: turns arguments into requests for the library, and results into messages.
//!
//! Standard output carries results only (records, pipeline text, completions); messages, progress and the
//! summary go to standard error.

use std::io::{IsTerminal as _, Write as _};
use std::path::Path;
use std::process::ExitCode;

use clap::Parser;
use clap::error::{ContextKind, ContextValue, ErrorKind};

mod args;
mod closing;
mod completions;
mod doctor;
mod events;
mod explain;
mod farm;
mod fleet;
mod info;
mod log;
mod man;
mod overwrite;
mod page;
mod pick;
mod progress;
mod request;
mod run;
mod serve;
mod signals;
mod speed;
mod stills;
mod system;
mod told;
mod values;
mod version;
mod wiring;
mod words;

use lockon::shell;

use args::{Args, Command};

/// The exit code if the reader of standard output has closed it, the same for all commands: 128 and the
/// number of SIGPIPE, which ends most programs then. Not 0, as a run may have ended before its video.
const UNREAD: u8 = 141;

/// The end of a command that did not fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Outcome {
    /// All done.
    Done,
    /// Interrupted, after outputs were closed properly; the exit code of the signal.
    Interrupted(u8),
    /// `doctor` found something missing.
    Incomplete,
    /// `match` found nothing.
    NoMatch,
    /// An error that was printed already; its exit code.
    Failed(u8),
}

/// Adds a tip to the error if a video is in place of a command: `run` was forgotten.
fn with_run(mut error: clap::Error) -> clap::Error {
    let typed: Vec<_> = std::env::args_os().skip(1).map(|word| word.to_string_lossy().into_owned()).collect();
    if error.kind() == ErrorKind::InvalidSubcommand
        && let Some(ContextValue::String(word)) = error.get(ContextKind::InvalidSubcommand)
        && is_input(word)
    {
        let tip = format!("to search in a video or a camera: lockon run {}", shell::line(&typed));
        error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![tip.into()]));
    }
    error
}

/// True for an argument that is more likely an input than a command: a file, a URI, a camera, a name with an
/// extension.
fn is_input(word: &str) -> bool {
    let path = Path::new(word);
    path.exists() || word.contains("://") || word.starts_with("camera") || path.extension().is_some()
}

/// Runs the command. Exit codes: 0 done, 1 an error at run time, 2 wrong usage, 129, 130 or 143 interrupted,
/// [`UNREAD`]. `match` ends as grep does: 0 found, 1 nothing found, 2 any error.
pub(crate) fn main() -> ExitCode {
    system::outlive_file_limit();
    if let Err(reason) = system::check_stack() {
        log::error(&reason);
        return ExitCode::FAILURE;
    }
    // Wrong usage ends here, with code 2.
    let args = Args::try_parse().unwrap_or_else(|error| args::refuse(&with_run(error)));
    log::start(args.verbose, args.quiet, args.log_format);
    let is_match = matches!(args.command, Command::Match(_));
    let has_run = args.command.may_run();
    let outcome = match args.command {
        Command::Run(args) => run::run(&args),
        Command::Serve(args) => serve::serve(&args),
        Command::Submit(args) => farm::submit(&args),
        Command::Worker(args) => farm::worker(&args),
        Command::Jobs(args) => farm::jobs(&args),
        Command::Workers(args) => farm::workers(&args),
        Command::Events(args) => events::events(&args),
        Command::Match(args) => stills::find(&args),
        Command::Threshold(args) => stills::threshold(&args),
        Command::Pick(args) => pick::pick(&args),
        Command::Info(args) => info::info(&args),
        Command::Bench(args) => speed::bench(&args),
        Command::Doctor => doctor::doctor(),
        Command::Completions { shell } => completions::print(shell),
        Command::Man(args) => man::man(&args),
    };
    let code = match outcome {
        Ok(Outcome::Done) => 0,
        Ok(Outcome::Incomplete | Outcome::NoMatch) => 1,
        Ok(Outcome::Interrupted(code) | Outcome::Failed(code)) => code,
        Err(error) => {
            report(&error);
            if is_match && !is_reader_gone(&error) { 2 } else { code_of(&error) }
        }
    };
    if has_run {
        end(code);
    }
    ExitCode::from(code)
}

/// Writes to standard output.
///
/// # Errors
/// `ReaderGone` for a closed pipe, otherwise `Output`.
fn print(text: &str) -> lockon::Result<()> {
    let mut stdout = std::io::stdout();
    let written = stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush());
    written.map_err(|error| lockon::Error::of_stdout("stdout", &error))
}

/// Refuses `-o -` if standard output is a terminal, which would interpret the bytes as commands.
fn no_terminal() -> lockon::Result<()> {
    if std::io::stdout().is_terminal() {
        let words =
            "-o - writes to standard output, which is a terminal: use a pipe (| ffplay -) or a file (> FILE)";
        return Err(lockon::Error::Usage(words.into()));
    }
    Ok(())
}

/// Prints the error that ends the program. If the reader of standard output closed it, there is no message.
fn report(error: &anyhow::Error) {
    if !is_reader_gone(error) {
        log::error(&format!("{error:#}"));
    }
}

fn is_reader_gone(error: &anyhow::Error) -> bool {
    matches!(error.downcast_ref(), Some(lockon::Error::ReaderGone { .. }))
}

/// The exit code of an error: 2 for wrong usage, [`UNREAD`] for a closed pipe, 1 for others.
fn code_of(error: &anyhow::Error) -> u8 {
    if is_reader_gone(error) {
        return UNREAD;
    }
    let is_usage = error.downcast_ref::<lockon::Error>().is_some_and(lockon::Error::is_usage);
    if is_usage { 2 } else { 1 }
}

/// Ends the process after a run, whose outputs are closed, and skips the libraries' own cleanup. In that
/// cleanup NVIDIA's EGL, which `GStreamer`'s decoders load, destroys things that its ending threads still
/// use. Threads of pipelines may also end a moment after these are stopped. One process of eight crashed this
/// way.
fn end(code: u8) {
    let _ = std::io::stdout().flush();
    #[cfg(unix)]
    signal_hook::low_level::exit(i32::from(code));
}
