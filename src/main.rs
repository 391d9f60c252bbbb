//! The `lockon` program: finds and follows known patterns in live or recorded video.

mod cli;

fn main() -> std::process::ExitCode {
    cli::main()
}
