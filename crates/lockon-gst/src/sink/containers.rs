//! The kinds of file that are written, and the pipeline of each.

use std::path::{Path, PathBuf};

use crate::launch::Launch;
use lockon_core::error::{Error, Result};
use lockon_core::files;

/// Time steps a second in MP4: the smallest number that holds the frames of 24, 25, 30, 50, 60, their
/// 1000/1001 relatives, MPEG's 1/90000 s and milliseconds to the tick.
pub(super) const MP4_TIMESCALE: u32 = 360_000;

/// One kind of file that we write.
pub(crate) struct Container {
    pub(crate) extension: &'static str,
    launch: &'static str,
    /// The element that puts packets into such a file.
    pub(crate) muxer: &'static str,
    /// Its encoder subsamples chroma and cannot crop single pixels: the picture is made even.
    pub(super) needs_even_size: bool,
    /// It has no times, only a frame rate.
    pub(super) is_constant_rate: bool,
    /// Its head is written last, by seeking back. A pipe cannot seek.
    has_index_in_front: bool,
}

pub(super) const CONTAINERS: [Container; 4] = [
    Container {
        extension: "mp4",
        launch: include_str!("../../../../pipelines/mp4.launch"),
        muxer: "mp4mux",
        needs_even_size: true,
        is_constant_rate: false,
        has_index_in_front: true,
    },
    Container {
        extension: "mkv",
        launch: include_str!("../../../../pipelines/mkv.launch"),
        muxer: "matroskamux",
        needs_even_size: true,
        is_constant_rate: false,
        has_index_in_front: false,
    },
    Container {
        extension: "avi",
        launch: include_str!("../../../../pipelines/avi.launch"),
        muxer: "avimux",
        needs_even_size: true,
        is_constant_rate: true,
        has_index_in_front: true,
    },
    Container {
        extension: "webm",
        launch: include_str!("../../../../pipelines/webm.launch"),
        muxer: "webmmux",
        needs_even_size: false,
        is_constant_rate: false,
        has_index_in_front: false,
    },
];

impl Container {
    pub(crate) fn of(path: &Path) -> Result<&'static Self> {
        let extension = path.extension().unwrap_or_default().to_ascii_lowercase();
        CONTAINERS.iter().find(|c| extension == c.extension).ok_or_else(|| {
            let known: Vec<_> = CONTAINERS.iter().map(|c| format!(".{}", c.extension)).collect();
            Error::value(
                "output",
                &path.to_string_lossy(),
                format!("its name must end in {}, which selects the container", known.join(", ")),
            )
        })
    }
}

/// The pipeline that writes `path`, without opening anything.
///
/// # Errors
/// `Value` for an extension that we do not write, or one that cannot go through the pipe that is there.
pub fn file_launch(path: &Path) -> Result<Launch> {
    let container = Container::of(path)?;
    if container.has_index_in_front && files::is_pipe(path) {
        let expected = format!("an .{} cannot go through a pipe, an .mkv can", container.extension);
        return Err(Error::value("output", &path.to_string_lossy(), expected));
    }
    let name = format!("{}.launch", container.extension);
    let mut launch = Launch::new(name, container.launch);
    // Another name would be another file.
    let location = path.to_str().ok_or_else(|| {
        Error::value("-o", &path.to_string_lossy(), "the name of a video that is written has to be UTF-8")
    })?;
    launch.set("file", "location", location);
    Ok(launch)
}

/// `clip-2.mp4` for `clip.mp4`, or the next free number: the user did not name this file, so it replaces
/// none.
pub(super) fn next_part(path: &Path) -> PathBuf {
    let name = |n: u32| {
        let mut name = path.file_stem().unwrap_or_default().to_owned();
        name.push(format!("-{n}."));
        name.push(path.extension().unwrap_or_default());
        path.with_file_name(name)
    };
    let is_free = |path: &PathBuf| path.symlink_metadata().is_err();
    (2..u32::MAX).map(name).find(is_free).expect("a folder has fewer files than there are numbers")
}
