//! Which files a worker serves: strangers submit jobs, and a job names files.

use std::io::ErrorKind;
use std::path::{Component, Path, PathBuf};

use crate::error::{Error, Result};
use crate::media::source::Input;
use crate::request::Request;

/// Folders below which jobs may read and write; without any, all that the system lets the worker.
#[derive(Debug, Clone, Default)]
pub struct Roots(Vec<PathBuf>);

impl Roots {
    /// These folders, with what links stand for.
    ///
    /// # Errors
    /// `File` if one is not there.
    pub fn new(folders: &[PathBuf]) -> Result<Self> {
        let real = |path: &PathBuf| path.canonicalize().map_err(Error::file("serve", path));
        folders.iter().map(real).collect::<Result<_>>().map(Self)
    }

    /// True if there is a bound.
    pub fn is_bound(&self) -> bool {
        !self.0.is_empty()
    }

    /// Refuses a request that reads or writes outside of the folders, through links or not, or that can: text
    /// of a pipeline opens what it likes. Where nothing `stays` here, outputs have names without folders.
    ///
    /// # Errors
    /// `File`, which names the path.
    pub fn check(&self, request: &Request, stays: bool) -> Result<()> {
        if !self.is_bound() {
            return Ok(());
        }
        let input = request.parsed_input()?;
        if matches!(input, Input::Launch(_)) || !request.sink.is_empty() {
            let what = if request.sink.is_empty() { "--source" } else { "--sink" };
            return Err(self.refusal(Path::new(what)));
        }
        for path in request.input_files(&input) {
            let real = path.canonicalize().map_err(Error::file("read", &path))?;
            self.contains(&real).then_some(()).ok_or_else(|| self.refusal(&path))?;
        }
        for path in request.output_files() {
            if !stays {
                let mut parts = path.components();
                let is_name = matches!((parts.next(), parts.next()), (Some(Component::Normal(_)), None));
                is_name.then_some(()).ok_or_else(|| self.refusal(&path))?;
                continue;
            }
            let folder = path.parent().unwrap_or(Path::new("/"));
            let folder = folder.canonicalize().map_err(Error::file("write", &path))?;
            // What is there is replaced, and a link is not followed; what is no file is written to.
            let real = path.canonicalize().unwrap_or_else(|_| folder.clone());
            let is_inside = self.contains(&folder) && self.contains(&real);
            is_inside.then_some(()).ok_or_else(|| self.refusal(&path))?;
        }
        Ok(())
    }

    fn contains(&self, real: &Path) -> bool {
        self.0.iter().any(|root| real.starts_with(root))
    }

    fn refusal(&self, path: &Path) -> Error {
        let roots: Vec<_> = self.0.iter().map(|root| root.display().to_string()).collect();
        let said = format!("it lies outside of what this worker serves (--root {})", roots.join(", "));
        Error::file("serve", path)(std::io::Error::new(ErrorKind::PermissionDenied, said))
    }
}

#[cfg(test)]
#[cfg(unix)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn a_job_reads_and_writes_below_the_roots_only_and_links_lead_nowhere() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        for name in ["in", "out", "in/sub"] {
            std::fs::create_dir(path(name)).unwrap();
        }
        for name in ["in/a.mp4", "out/a.mp4", "out/a.png"] {
            std::fs::write(path(name), "").unwrap();
        }
        symlink(path("out"), path("in/link")).unwrap();
        symlink(path("out/kept"), path("in/kept.csv")).unwrap();
        std::fs::write(path("out/kept"), "").unwrap();
        let roots = Roots::new(&[path("in")]).unwrap();
        let check = |input: &str, results: &str, template: Option<&str>| {
            let mut request = Request::new(path(input)).unwrap();
            request.results = vec![path(results).to_str().unwrap().into()];
            request.template = template.map(|name| path(name).to_str().unwrap().into()).into_iter().collect();
            roots.check(&request, true).map_err(|error| error.to_string())
        };
        check("in/a.mp4", "in/sub/a.csv", None).unwrap();
        check("in/sub/../a.mp4", "in/a.csv", None).unwrap();
        for (input, results, template) in [
            ("out/a.mp4", "in/a.csv", None),
            ("in/../out/a.mp4", "in/a.csv", None),
            ("in/link/a.mp4", "in/a.csv", None),
            ("in/a.mp4", "out/a.csv", None),
            ("in/a.mp4", "in/link/a.csv", None),
            ("in/a.mp4", "in/kept.csv", None),
            ("in/a.mp4", "in/a.csv", Some("out/a.png")),
        ] {
            let said = check(input, results, template).unwrap_err();
            assert!(said.contains("outside of what this worker serves"), "{input} {results}: {said}");
        }
        let mut piped = Request::new(path("in/a.mp4")).unwrap();
        piped.sink = vec!["filesink location=/etc/x".into()];
        assert!(roots.check(&piped, false).is_err());
        assert!(Roots::default().check(&piped, true).is_ok());
        let mut away = Request::new(path("in/a.mp4")).unwrap();
        away.results = vec!["a.csv".into()];
        roots.check(&away, false).unwrap();
        for elsewhere in ["../a.csv", "/etc/a.csv", "b/a.csv", ".."] {
            away.results = vec![elsewhere.into()];
            assert!(roots.check(&away, false).is_err(), "{elsewhere}");
        }
        assert!(check("in/none.mp4", "in/a.csv", None).unwrap_err().contains("No such file"));
    }
}
