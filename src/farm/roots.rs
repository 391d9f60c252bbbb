//! Which files a worker serves: strangers submit jobs, and a job names files.

use std::io::ErrorKind;
use std::path::{Component, Path, PathBuf};
use std::str::FromStr;

use super::job::Job;
use crate::error::{Error, Result};
use crate::media::source::{Input, Uri};
use crate::request::Request;

/// Folders below which jobs may read and write, and what else they may see; without any, all that the system
/// lets the worker.
#[derive(Debug, Clone, Default)]
pub struct Roots {
    folders: Vec<PathBuf>,
    allowed: Vec<Allowed>,
}

/// What a worker with roots serves besides files: `camera`, a scheme (`rtsp`), or a scheme and a host
/// (`rtsp://10.0.0.7`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Allowed {
    /// Cameras of the worker's machine.
    Camera,
    /// Addresses of this scheme, in lower case, of one host or of all.
    Address {
        /// The scheme.
        scheme: String,
        /// The host.
        host: Option<String>,
    },
}

impl FromStr for Allowed {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let refuse = |expected: &str| Err(Error::value("allow", text, expected));
        if text == "camera" {
            return Ok(Self::Camera);
        }
        let (scheme, host) = text.split_once("://").unwrap_or((text, ""));
        let is_scheme = scheme.starts_with(|c: char| c.is_ascii_alphabetic())
            && scheme.chars().all(|c| c.is_ascii_alphanumeric() || "+-.".contains(c));
        let plain = Uri::from(text).plain_host();
        let is_host = plain.as_deref() == Some(&*host.trim_matches(['[', ']']).to_ascii_lowercase());
        if !is_scheme || !(host.is_empty() || is_host) {
            return refuse("expected camera, a scheme such as rtsp, or a scheme and a host, rtsp://10.0.0.7");
        }
        match scheme.to_ascii_lowercase() {
            scheme if scheme == "file" => refuse("files are served below --root alone"),
            scheme => Ok(Self::Address { scheme, host: plain }),
        }
    }
}

impl Roots {
    /// These folders, with what links stand for, and what is allowed besides.
    ///
    /// # Errors
    /// `File` if one is not there.
    pub fn new(folders: &[PathBuf], allowed: &[Allowed]) -> Result<Self> {
        let real = |path: &PathBuf| path.canonicalize().map_err(Error::file("serve", path));
        let folders = folders.iter().map(real).collect::<Result<_>>()?;
        Ok(Self { folders, allowed: allowed.to_vec() })
    }

    /// True if there is a bound.
    pub fn is_bound(&self) -> bool {
        !self.folders.is_empty()
    }

    /// Refuses a request that reads or writes outside of the folders, through links or not, or that can: text
    /// of a pipeline opens what it likes; and one that reads from an address or a camera, or tells events to
    /// an address, that is not allowed.
    /// Where nothing `stays` here, outputs have names without folders.
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
        self.check_input(&input)?;
        let receivers = request.events.iter().filter_map(|to| to.file().map(PathBuf::from));
        for path in request.input_files(&input).into_iter().chain(receivers) {
            let real = path.canonicalize().map_err(Error::file("read", &path))?;
            self.contains(&real).then_some(()).ok_or_else(|| self.refusal(&path))?;
        }
        for to in &request.events {
            self.check_address(&Uri::from(to.address()?), &to.shown())?;
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

    /// What a job asks for, which whoever submitted it may ask of this worker.
    ///
    /// # Errors
    /// Those of [`Job::request_of_stranger`] and of [`Self::check`].
    pub(super) fn request_of(&self, job: &Job) -> Result<Request> {
        let request = job.request_of_stranger()?;
        self.check(&request, !job.collect)?;
        Ok(request)
    }

    /// Refuses what is no file and not allowed.
    fn check_input(&self, input: &Input) -> Result<()> {
        match input {
            // Which file it is, is looked at with the others.
            Input::Uri(uri) if uri.path().is_some() => Ok(()),
            Input::Uri(uri) => self.check_address(uri, &input.to_string()),
            Input::Camera(_) if !self.allowed.contains(&Allowed::Camera) => {
                Err(self.not_allowed(&input.to_string(), "camera"))
            }
            _ => Ok(()),
        }
    }

    /// Refuses an address that is not allowed, which is shown so.
    fn check_address(&self, uri: &Uri, shown: &str) -> Result<()> {
        let is_allowed = |allowed: &Allowed| match allowed {
            Allowed::Camera => false,
            Allowed::Address { scheme, host } => {
                *scheme == uri.scheme() && (host.is_none() || *host == uri.plain_host())
            }
        };
        if self.allowed.iter().any(is_allowed) { Ok(()) } else { Err(self.not_allowed(shown, &uri.scheme())) }
    }

    fn not_allowed(&self, shown: &str, what: &str) -> Error {
        let said =
            format!("this worker serves files alone (--root {}): start it with --allow {what}", self.named());
        Error::file("serve", Path::new(shown))(std::io::Error::new(ErrorKind::PermissionDenied, said))
    }

    fn contains(&self, real: &Path) -> bool {
        self.folders.iter().any(|root| real.starts_with(root))
    }

    fn refusal(&self, path: &Path) -> Error {
        let said = format!("it lies outside of what this worker serves (--root {})", self.named());
        Error::file("serve", path)(std::io::Error::new(ErrorKind::PermissionDenied, said))
    }

    fn named(&self) -> String {
        let roots: Vec<_> = self.folders.iter().map(|root| root.display().to_string()).collect();
        roots.join(", ")
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
        let roots = Roots::new(&[path("in")], &[]).unwrap();
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

    #[test]
    fn events_are_told_to_addresses_that_are_allowed_and_their_files_lie_below_the_roots() {
        let folder = tempfile::tempdir().unwrap();
        let inside = folder.path().join("in");
        std::fs::create_dir(&inside).unwrap();
        std::fs::write(inside.join("a.mp4"), "").unwrap();
        std::fs::write(inside.join("hook"), "https://host/secret\n").unwrap();
        std::fs::write(folder.path().join("hook"), "https://host/secret\n").unwrap();
        let at = |path: std::path::PathBuf| format!("@{}", path.display());
        let (below, outside) = (at(inside.join("hook")), at(folder.path().join("hook")));
        let check = |allowed: &[&str], to: &str| {
            let allowed: Vec<_> = allowed.iter().map(|text| text.parse().unwrap()).collect();
            let roots = Roots::new(std::slice::from_ref(&inside), &allowed).unwrap();
            let mut request = Request::new(inside.join("a.mp4")).unwrap();
            request.results = vec!["a.csv".into()];
            request.events = vec![to.into()];
            roots.check(&request, false).map_err(|error| error.to_string())
        };
        for (allowed, to) in [
            (&["mqtt"][..], "mqtt://broker/yard"),
            (&["mqtt://broker"], "mqtt://broker:1883/yard"),
            (&["https"], &below),
            (&["https://host"], &below),
        ] {
            check(allowed, to).unwrap();
        }
        for (allowed, to, expected) in [
            (&[][..], "mqtt://broker/yard", "--allow mqtt"),
            (&["mqtt://other"], "mqtt://broker/yard", "--allow mqtt"),
            (&["mqtt"], "http://127.0.0.1/secret", "--allow http"),
            (&[], &below, "--allow https"),
            (&["https"], &outside, "outside of what this worker serves"),
        ] {
            let said = check(allowed, to).unwrap_err();
            assert!(said.contains(expected) && !said.contains("secret"), "{to}: {said}");
        }
    }

    #[test]
    fn addresses_and_cameras_are_served_if_that_was_said_and_files_by_address_below_the_roots() {
        let folder = tempfile::tempdir().unwrap();
        let inside = folder.path().canonicalize().unwrap();
        std::fs::write(inside.join("a b.mp4"), "").unwrap();
        let inside = inside.to_str().unwrap();
        let check = |allowed: &[&str], input: &str| {
            let allowed: Vec<_> = allowed.iter().map(|text| text.parse().unwrap()).collect();
            let roots = Roots::new(&[inside.into()], &allowed).unwrap();
            let mut request = Request::new(input).unwrap();
            request.results = vec!["a.csv".into()];
            roots.check(&request, false).map_err(|error| error.to_string())
        };
        check(&[], &format!("file://{inside}/a%20b.mp4")).unwrap();
        check(&[], &format!("FILE://localhost{inside}/a%20b.mp4")).unwrap();
        for outside in ["file:///etc/passwd", "file:///%65tc/passwd", "File://localhost/etc/passwd"] {
            let said = check(&["rtsp"], outside).unwrap_err();
            assert!(said.contains("outside of what this worker serves"), "{outside}: {said}");
        }
        let escaped = format!("file://{inside}/%2e%2e/%2e%2e/etc/passwd");
        assert!(check(&[], &escaped).is_err());
        for (input, allowed) in [
            ("rtsp://cam/1", "--allow rtsp"),
            ("http://10.0.0.1/x", "--allow http"),
            ("fd://3", "--allow fd"),
            ("v4l2:///dev/video0", "--allow v4l2"),
            ("file://elsewhere/a.mp4", "--allow file"),
            ("camera", "--allow camera"),
            ("camera:/dev/video1", "--allow camera"),
        ] {
            let said = check(&["srt", "rtsp://other"], input).unwrap_err();
            assert!(said.contains(allowed), "{input}: {said}");
        }
        check(&["rtsp"], "rtsp://cam/1").unwrap();
        check(&["http", "RTSP://Cam"], "rtsp://cam:8554/1").unwrap();
        check(&["rtsp://[::1]"], "rtsp://[::1]:554/1").unwrap();
        check(&["camera"], "camera:/dev/video1").unwrap();
        for input in ["rtsp://cam.evil/1", "rtsp://cam@evil/1", "rtsp://evil@cam@evil/1", "http://cam/1"] {
            assert!(check(&["rtsp://cam"], input).is_err(), "{input}");
        }
        for text in ["", "file", "FILE://x", "rtsp:", "rtsp://a/b", "rtsp://a:1", "rtsp://a@b", "r t"] {
            assert!(text.parse::<Allowed>().is_err(), "{text}");
        }
    }
}
