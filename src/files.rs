//! Files that are about to be written: whether they can be, and whether they are something else that is in use.

use std::fs::OpenOptions;
use std::path::{Path, PathBuf};

use crate::error::{Error, Result};

/// True if nothing is at `path` yet. Leaves everything as it was.
///
/// # Errors
/// `File` if the file could not be written there.
pub fn check_writable(path: &Path) -> Result<bool> {
    let is_new = path.symlink_metadata().is_err();
    // Opening a named pipe would wait for its reader, and a device may do anything.
    if is_new || path.is_file() || path.is_dir() {
        let file = OpenOptions::new().write(true).create(is_new).truncate(false).open(path);
        drop(file.map_err(Error::file("write", path))?);
    }
    if is_new {
        std::fs::remove_file(path).map_err(Error::file("write", path))?;
    }
    Ok(is_new)
}

/// Refuses outputs that are an input or each other: one would destroy the other.
///
/// # Errors
/// `Usage`, naming the file.
pub fn check_distinct(inputs: &[PathBuf], outputs: &[PathBuf]) -> Result<()> {
    let identities: Vec<_> = inputs.iter().chain(outputs).map(|path| Identity::of(path)).collect();
    for (index, (path, identity)) in inputs.iter().chain(outputs).zip(&identities).enumerate() {
        if index < inputs.len() || !identities[..index].contains(identity) {
            continue;
        }
        let is_input = identities[..inputs.len()].contains(identity);
        let twice = if is_input { "is both input and output" } else { "is given twice as an output" };
        return Err(Error::Usage(format!("{} {twice}", path.display())));
    }
    Ok(())
}

/// What a path stands for, through links of both kinds.
#[derive(PartialEq, Eq)]
enum Identity {
    /// An existing file: its device and its number there.
    Existing(u64, u64),
    /// A file to be: its folder's real path and its name.
    New(PathBuf),
}

impl Identity {
    fn of(path: &Path) -> Self {
        #[cfg(unix)]
        if let Ok(found) = path.metadata() {
            use std::os::unix::fs::MetadataExt;
            return Self::Existing(found.dev(), found.ino());
        }
        let folder = match path.parent() {
            Some(folder) if folder != Path::new("") => folder,
            _ => Path::new("."),
        };
        let folder = folder.canonicalize().unwrap_or_else(|_| folder.to_owned());
        Self::New(path.canonicalize().unwrap_or_else(|_| folder.join(path.file_name().unwrap_or_default())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_output_that_is_an_input_is_refused_through_links() {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name);
        std::fs::write(path("in"), "x").unwrap();
        std::fs::hard_link(path("in"), path("hard")).unwrap();
        std::os::unix::fs::symlink(path("in"), path("soft")).unwrap();
        for name in ["in", "hard", "soft"] {
            let said = check_distinct(&[path("in")], &[path("out"), path(name)]).unwrap_err().to_string();
            assert!(said.ends_with("is both input and output"), "{said}");
        }
        check_distinct(&[path("in"), path("in")], &[path("out"), path("other")]).unwrap();
    }

    #[test]
    fn an_output_given_twice_is_refused_however_it_is_written() {
        let dir = tempfile::tempdir().unwrap();
        let (a, b) = (dir.path().join("out"), dir.path().join(".").join("out"));
        assert!(
            check_distinct(&[], &[a, b]).unwrap_err().to_string().ends_with("is given twice as an output")
        );
    }

    #[test]
    fn checking_leaves_nothing_behind() {
        let dir = tempfile::tempdir().unwrap();
        assert!(check_writable(&dir.path().join("new")).unwrap());
        assert!(!dir.path().join("new").exists());
        std::fs::write(dir.path().join("old"), "kept").unwrap();
        assert!(!check_writable(&dir.path().join("old")).unwrap());
        assert_eq!(std::fs::read_to_string(dir.path().join("old")).unwrap(), "kept");
        assert!(check_writable(&dir.path().join("no/where")).is_err());
    }
}
