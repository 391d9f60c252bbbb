//! Resources that an input needs while its pipeline runs: an open pipe, a file whose name is no text,
//! pictures.
//!
//! A pipe can be read once. So it is opened here, where the wait for its writer can be stopped, and not by an
//! element, whose change of state would wait. Only its pipeline reads from it. If the first frame needs a
//! converter, that pipeline is not built again: the converter is inserted while the frame waits.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use super::errors::no_video;
use super::image_sequence::PictureFiles;
use super::{Input, SourceSpec};
use crate::launch::Launch;
use lockon_core::control::Control;
use lockon_core::error::{Error, Result};
use lockon_core::files;

/// Held by a source as long as its pipeline runs.
pub(super) struct Inlet {
    file: Option<File>,
    pub(super) pictures: Option<PictureFiles>,
    /// The user has been warned of several video streams.
    pub(super) is_choice_told: Arc<AtomicBool>,
}

/// The pipeline that reads descriptor 0.
pub(super) fn pipe_launch(is_software: bool) -> Launch {
    let mut launch = Launch::new("pipe.launch", include_str!("../../pipelines/pipe.launch"));
    if is_software {
        launch.set("decode", "force-sw-decoders", true);
    }
    launch
}

/// True if an input can be read only once, and in order.
pub(super) fn is_pipe(input: &Input) -> bool {
    match input {
        Input::Stdin => true,
        Input::File(path) => files::is_pipe(path),
        _ => false,
    }
}

impl Inlet {
    /// Opens the resources that `spec` needs, and makes the pipeline that uses them.
    pub(super) fn open(spec: &SourceSpec, control: &Control) -> Result<(Self, Launch)> {
        let mut inlet = Self { pictures: spec.pictures()?, file: None, is_choice_told: Arc::default() };
        if inlet.pictures.is_some() {
            return Ok((inlet, PictureFiles::running()));
        }
        let mut launch = spec.launch_for(None)?;
        match (&spec.input, &spec.opened) {
            (Input::File(_), Some(opened)) => {
                launch.set("input", "location", path_of(opened)?.display());
            }
            (Input::File(path), None) if files::is_pipe(path) => {
                let pipe = files::open_pipe(path, files::End::Reading, control)?;
                let pipe = pipe.ok_or_else(|| no_video(&spec.input, "interrupted while it was opened"))?;
                launch.set("input", "fd", descriptor(&pipe)?);
                inlet.file = Some(pipe);
            }
            // The element's property takes text, and the system's name of an open file is text.
            (Input::File(path), None) if path.to_str().is_none() => {
                let file = File::open(path).map_err(Error::file("read", path))?;
                launch.set("input", "location", path_of(&file)?.display());
                inlet.file = Some(file);
            }
            _ => {}
        }
        Ok((inlet, launch))
    }
}

/// The path of an open file in /proc.
pub(super) fn path_of(file: &File) -> Result<PathBuf> {
    Ok(format!("/proc/self/fd/{}", descriptor(file)?).into())
}

#[cfg(unix)]
#[expect(clippy::unnecessary_wraps, reason = "there are systems without")]
fn descriptor(file: &File) -> Result<i32> {
    use std::os::fd::AsRawFd;
    Ok(file.as_raw_fd())
}

#[cfg(not(unix))]
fn descriptor(_: &File) -> Result<i32> {
    Err(Error::Usage("such a file cannot be read on this system".into()))
}

/// Refuses standard input that is a terminal.
pub(super) fn check_stdin() -> Result<()> {
    use std::io::IsTerminal;
    if std::io::stdin().is_terminal() {
        return Err(Error::Usage(
            "standard input is a terminal: pipe a video into it, as in `cat a.ts | lockon run -`".into(),
        ));
    }
    Ok(())
}

/// True if the path names a file that may be read twice: for its sound, to check whether it is complete.
pub(super) fn is_regular(path: &Path) -> bool {
    path.metadata().is_ok_and(|about| about.is_file())
}
