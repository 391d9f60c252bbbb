//! Asks before an output overwrites files, as ffmpeg does.

use std::fmt::Write as _;
use std::io::{self, BufRead, IsTerminal};
use std::path::{Path, PathBuf};

use anyhow::{Result, bail};
use clap::Args as ClapArgs;

use lockon::memory::Bytes;
use lockon::text;

use super::log;

/// Maximum number of files that a message names, and that it asks about one by one.
const MOST_NAMES: usize = 5;

/// How existing files are treated.
#[derive(ClapArgs, Clone, Copy, Default)]
pub(super) struct OverwriteArgs {
    /// Overwrite files that exist. Without -y and -n a terminal is asked, and where there is none that is an
    /// error
    #[arg(short = 'y', long, conflicts_with = "no_overwrite")]
    pub(super) overwrite: bool,
    /// Never overwrite a file: end with an error instead
    #[arg(short, long)]
    pub(super) no_overwrite: bool,
    /// True for a command that has no -n.
    #[arg(skip)]
    pub(super) is_without_n: bool,
}

impl OverwriteArgs {
    /// Refuses outputs that exist and must not be overwritten, or asks about each of them if a user can
    /// answer. Call it for all outputs at once, before the first is opened, and before Ctrl-C is watched: it
    /// ends the question too.
    pub(super) fn allow(self, outputs: &[PathBuf]) -> Result<()> {
        let asks = !self.no_overwrite && io::stdin().is_terminal() && log::is_terminal();
        if !asks {
            return self.allow_unasked(outputs);
        }
        let existing: Vec<_> = outputs.iter().filter(|path| !self.overwrite && is_lost(path)).collect();
        // Numbered pictures may be thousands.
        if existing.len() > MOST_NAMES {
            let names = listed(&existing);
            if !says_yes(&format!("{names} exist"))? {
                bail!("{names} exist and were not overwritten: use another name, or -y");
            }
            return Ok(());
        }
        for path in existing {
            if !may_overwrite(path)? {
                bail!("{} exists and was not overwritten: use another name, or -y", text::path(path));
            }
        }
        Ok(())
    }

    /// As `allow`, but without asking the user.
    pub(super) fn allow_unasked(self, outputs: &[PathBuf]) -> Result<()> {
        let existing: Vec<_> = outputs.iter().filter(|path| is_lost(path)).collect();
        if self.overwrite || existing.is_empty() {
            return Ok(());
        }
        let (names, exist) = (listed(&existing), if existing.len() == 1 { "exists" } else { "exist" });
        if self.no_overwrite {
            bail!("{names} {exist} already, and -n (--no-overwrite) keeps what exists");
        }
        if self.is_without_n {
            bail!("{names} {exist} already: give -y (--overwrite) to overwrite");
        }
        bail!(
            "{names} {exist} already: give -y (--overwrite) to overwrite, or -n (--no-overwrite) to never do so"
        );
    }
}

/// True if data at `path` would be lost: a file that is not empty, reached through links or not. Devices,
/// pipes and files that the shell has opened for the program are meant for writing.
fn is_lost(path: &Path) -> bool {
    let is_open_already = path == Path::new("/dev/stdout")
        || path == Path::new("/dev/stderr")
        || path.starts_with("/dev/fd")
        || path.starts_with("/proc/self/fd");
    // A run that was killed before its first frame leaves empty files.
    !is_open_already && path.metadata().is_ok_and(|about| about.is_file() && about.len() > 0)
}

/// Asks the user at the terminal. No answer is no.
fn may_overwrite(path: &Path) -> Result<bool> {
    let mut question = format!("{} exists", text::path(path));
    if let Ok(found) = path.metadata() {
        let _ = write!(question, " ({})", Bytes(found.len()));
    }
    says_yes(&question)
}

/// The files by their names, as far as there is room in a line.
fn listed(paths: &[&PathBuf]) -> String {
    let shown = if paths.len() > MOST_NAMES { MOST_NAMES - 1 } else { paths.len() };
    let mut names: Vec<_> = paths.iter().take(shown).map(|path| text::path(path)).collect();
    if paths.len() > shown {
        names.push(format!("and {} more", paths.len() - shown));
    }
    names.join(", ")
}

fn says_yes(question: &str) -> Result<bool> {
    log::ask(&format!("{question}. Overwrite? [y/N] "));
    let mut answer = String::new();
    io::stdin().lock().read_line(&mut answer)?;
    Ok(matches!(answer.trim().to_ascii_lowercase().as_str(), "y" | "yes"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_files_can_be_lost() {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name);
        std::fs::write(path("file"), "kept").unwrap();
        std::os::unix::fs::symlink("file", path("link")).unwrap();
        std::os::unix::fs::symlink("/dev/null", path("null")).unwrap();
        assert!(is_lost(&path("file")) && is_lost(&path("link")));
        for other in ["/dev/null", "/dev/stdout", "/dev/fd/1", "-"] {
            assert!(!is_lost(Path::new(other)), "{other}");
        }
        assert!(!is_lost(&path("null")) && !is_lost(&path("new")) && !is_lost(dir.path()));
    }

    #[test]
    fn a_script_is_told_both_options_and_every_file() {
        let dir = tempfile::tempdir().unwrap();
        let (a, b, new) = (dir.path().join("a"), dir.path().join("b"), dir.path().join("new"));
        std::fs::write(&a, "kept").unwrap();
        std::fs::write(&b, "kept").unwrap();
        // Left by a run that was killed before its first frame.
        std::fs::write(&new, "").unwrap();
        let outputs = [a.clone(), new.clone(), b.clone()];
        let keep = OverwriteArgs { no_overwrite: true, ..OverwriteArgs::default() };
        let said = keep.allow(&outputs).unwrap_err().to_string();
        assert_eq!(
            said,
            format!(
                "{}, {} exist already, and -n (--no-overwrite) keeps what exists",
                a.display(),
                b.display()
            )
        );
        OverwriteArgs { overwrite: true, ..OverwriteArgs::default() }.allow(&outputs).unwrap();
        keep.allow(&[new]).unwrap();
    }
}
