//! Man pages: one for the program, one for each of its commands.

use std::fmt::Write as _;
use std::path::Path;

use anyhow::Result;
use clap::{Command, CommandFactory};
use clap_mangen::Man;

use lockon::Error;

use super::args::{Args, ManArgs};
use super::{Outcome, print};

/// Prints a page, or writes all of them into a folder.
pub(super) fn man(args: &ManArgs) -> Result<Outcome> {
    let command = command();
    if let Some(folder) = &args.dir {
        // Where `man` looks for commands.
        write_all(&command, &folder.join("man1"))?;
        return Ok(Outcome::Done);
    }
    let mut page = &command;
    for name in &args.command {
        page = page.find_subcommand(name).ok_or_else(|| {
            let known: Vec<_> = page.get_subcommands().map(Command::get_name).collect();
            let known = if known.is_empty() { "none".into() } else { known.join(", ") };
            Error::Usage(format!("there is no command {name:?}: {} has {known}", page.get_name()))
        })?;
    }
    print(&text(page)?)?;
    Ok(Outcome::Done)
}

/// All commands with their full names, but for `help`, which has no page.
fn command() -> Command {
    let mut command = Args::command().disable_help_subcommand(true);
    command.build();
    command
}

fn write_all(command: &Command, folder: &Path) -> Result<()> {
    std::fs::create_dir_all(folder).map_err(Error::file("create", folder))?;
    let path = folder.join(format!("{}.1", page_name(command)));
    std::fs::write(&path, text(command)?).map_err(Error::file("write", &path))?;
    command.get_subcommands().try_for_each(|sub| write_all(sub, folder))
}

/// The page's name, such as `lockon-run`.
fn page_name(command: &Command) -> String {
    command.get_display_name().unwrap_or(command.get_name()).to_owned()
}

/// The page. Text below the options in the help gets a section for each of its headings: `Examples:`, `Exit
/// codes: ...`.
fn text(command: &Command) -> Result<String> {
    let man = Man::new(command.clone()).manual("lockon");
    let mut page = Vec::new();
    man.render_title(&mut page)?;
    man.render_name_section(&mut page)?;
    man.render_synopsis_section(&mut page)?;
    man.render_description_section(&mut page)?;
    man.render_options_section(&mut page)?;
    if command.has_subcommands() {
        man.render_subcommands_section(&mut page)?;
    }
    let mut page = String::from_utf8(page)?;
    let after = command.get_after_long_help().map(ToString::to_string).unwrap_or_default();
    for paragraph in after.split("\n\n") {
        write_section(&mut page, paragraph)?;
    }
    writeln!(page, ".SH VERSION\nlockon {}", escaped(env!("CARGO_PKG_VERSION")))?;
    Ok(page)
}

fn write_section(page: &mut String, paragraph: &str) -> std::fmt::Result {
    if let Some(examples) = paragraph.strip_prefix("Examples:\n") {
        writeln!(page, ".SH EXAMPLES")?;
        for line in examples.lines() {
            match line.strip_prefix("    ") {
                Some(typed) => writeln!(page, ".RS 4\n.nf\n{}\n.fi\n.RE", escaped(typed))?,
                None => writeln!(page, ".PP\n{}", escaped(line.trim()))?,
            }
        }
    } else if let Some(codes) = paragraph.strip_prefix("Exit codes: ") {
        writeln!(page, ".SH \"EXIT STATUS\"\n{}", escaped(codes))?;
    } else if !paragraph.is_empty() {
        writeln!(page, ".SH NOTES\n{}", escaped(paragraph))?;
    }
    Ok(())
}

/// Escapes text for roff: no line becomes a command, and hyphens can be copied and typed.
fn escaped(text: &str) -> String {
    let lines = text.lines().map(|line| {
        let line = line.replace('\\', "\\e").replace('-', "\\-").replace('\'', "\\(aq");
        if line.starts_with('.') { format!("\\&{line}") } else { line }
    });
    lines.collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_name_only_pages_that_exist() {
        let dir = tempfile::tempdir().unwrap();
        write_all(&command(), dir.path()).unwrap();
        let mut pages = 0;
        for entry in std::fs::read_dir(dir.path()).unwrap() {
            let path = entry.unwrap().path();
            let text = std::fs::read_to_string(&path).unwrap();
            for (at, _) in text.match_indices("(1)") {
                let start = text[..at].rfind(|c: char| !(c.is_alphanumeric() || "\\-".contains(c))).unwrap();
                let name = text[start + 1..at].replace('\\', "");
                assert!(dir.path().join(format!("{name}.1")).exists(), "{} names {name}", path.display());
            }
            pages += 1;
        }
        assert!(pages >= 9, "{pages} pages");
        assert!(dir.path().join("lockon-events-forget.1").exists());
    }

    #[test]
    fn examples_and_exit_codes_have_sections_and_nothing_is_lost() {
        let command = command();
        let page = text(command.find_subcommand("run").unwrap()).unwrap();
        for section in [".SH EXAMPLES\n", ".SH \"EXIT STATUS\"\n", ".SH NOTES\n", ".SH VERSION\n"] {
            assert_eq!(page.matches(section).count(), 1, "{section}");
        }
        assert!(!page.contains(".SH EXTRA") && !page.contains("Examples:"));
        assert!(page.contains("lockon run camera \\-\\-threshold sauvola:31:0.2"), "{page}");
    }
}
