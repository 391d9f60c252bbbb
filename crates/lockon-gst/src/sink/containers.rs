//! The kinds of file that are written, and the pipeline of each.

use std::path::{Path, PathBuf};

use super::numbered::{EXTENSION, Numbered};
use crate::launch::Launch;
use lockon_core::config::Codec;
use lockon_core::error::{Error, Result};
use lockon_core::files;

/// Time steps a second in MP4: the smallest number that holds the frames of 24, 25, 30, 50, 60, their
/// 1000/1001 relatives, MPEG's 1/90000 s and milliseconds to the tick.
pub(super) const MP4_TIMESCALE: u32 = 360_000;

/// A kind of file that we write.
#[expect(clippy::struct_excessive_bools, reason = "one for each property")]
pub(crate) struct Container {
    pub(crate) extension: &'static str,
    launch: &'static str,
    /// Its muxer.
    pub(crate) muxer: &'static str,
    /// Its encoder subsamples chroma and cannot crop single pixels: the picture is made even.
    pub(super) needs_even_size: bool,
    /// True if it has no times, only a frame rate.
    pub(super) is_constant_rate: bool,
    /// Its head is written last, by seeking back. A pipe cannot seek.
    has_index_in_front: bool,
    /// It keeps every sample, so masks go into it as grey pictures of 0 and 255.
    pub(super) is_lossless: bool,
}

pub(super) const CONTAINERS: [Container; 4] = [
    Container {
        extension: "mp4",
        launch: include_str!("../../pipelines/mp4.launch"),
        muxer: "mp4mux",
        needs_even_size: true,
        is_constant_rate: false,
        has_index_in_front: true,
        is_lossless: false,
    },
    Container {
        extension: "mkv",
        launch: include_str!("../../pipelines/mkv.launch"),
        muxer: "matroskamux",
        needs_even_size: true,
        is_constant_rate: false,
        has_index_in_front: false,
        is_lossless: false,
    },
    Container {
        extension: "avi",
        launch: include_str!("../../pipelines/avi.launch"),
        muxer: "avimux",
        needs_even_size: true,
        is_constant_rate: true,
        has_index_in_front: true,
        is_lossless: false,
    },
    Container {
        extension: "webm",
        launch: include_str!("../../pipelines/webm.launch"),
        muxer: "webmmux",
        needs_even_size: false,
        is_constant_rate: false,
        has_index_in_front: false,
        is_lossless: false,
    },
];

/// FFV1 in Matroska, for [`Codec::Ffv1`].
static FFV1: Container = Container {
    extension: "mkv",
    launch: include_str!("../../pipelines/ffv1.launch"),
    muxer: "matroskamux",
    needs_even_size: false,
    is_constant_rate: false,
    has_index_in_front: false,
    is_lossless: true,
};

/// A picture for each frame.
static PICTURES: Container = Container {
    extension: EXTENSION,
    launch: include_str!("../../pipelines/png.launch"),
    muxer: "",
    needs_even_size: false,
    is_constant_rate: false,
    has_index_in_front: false,
    is_lossless: true,
};

/// The end of a pipeline that writes a file, and the end for standard output instead.
const TO_FILE: &str = "filesink name=file buffer-mode=unbuffered";
const TO_STDOUT: &str = "fdsink name=file fd=1";

impl Container {
    /// The container of an output, by its extension and the codec.
    pub(super) fn of_output(path: &Path, codec: Codec) -> Result<&'static Self> {
        let wrong = |expected: &str| Err(Error::value("output", &path.to_string_lossy(), expected));
        let has = |wanted: &str| path.extension().is_some_and(|found| found.eq_ignore_ascii_case(wanted));
        let is_stdout = files::is_stdout(path);
        if has(EXTENSION) {
            return match Numbered::of(path) {
                None => {
                    wrong("its name needs a number, as in mask-%06d.png: a picture is written for each frame")
                }
                Some(_) => Ok(&PICTURES),
            };
        }
        match codec {
            Codec::Ffv1 if is_stdout || has(FFV1.extension) => Ok(&FFV1),
            Codec::Ffv1 => wrong("--codec ffv1 needs an .mkv"),
            Codec::Auto if is_stdout => Self::of(Path::new("-.mkv")),
            Codec::Auto => Self::of(path),
        }
    }

    /// The requested codec.
    pub(super) fn codec(&self) -> Codec {
        if self.is_lossless && self.extension == FFV1.extension { Codec::Ffv1 } else { Codec::Auto }
    }

    /// The name of its pipeline.
    fn name(&self) -> &'static str {
        match self.codec() {
            Codec::Ffv1 => "ffv1",
            Codec::Auto => self.extension,
        }
    }

    /// It stores when frames are shown.
    pub(crate) fn has_times(&self) -> bool {
        !self.is_constant_rate
    }

    /// The kind of a video file, by its extension.
    pub(crate) fn of(path: &Path) -> Result<&'static Self> {
        let extension = path.extension().unwrap_or_default().to_ascii_lowercase();
        CONTAINERS.iter().find(|c| extension == c.extension).ok_or_else(|| {
            let known: Vec<_> = CONTAINERS.iter().map(|c| format!(".{}", c.extension)).collect();
            Error::value(
                "output",
                &path.to_string_lossy(),
                format!(
                    "its name must end in {}, which selects the container, or be numbered, as in %06d.png",
                    known.join(", ")
                ),
            )
        })
    }
}

/// The pipeline that writes `path`, without opening anything; `-` is standard output.
///
/// # Errors
/// `Value` for an extension that we do not write, or not with that codec, or one that cannot go through a
/// pipe at that path.
pub fn file_launch(path: &Path, codec: Codec) -> Result<Launch> {
    let container = Container::of_output(path, codec)?;
    let name = format!("{}.launch", container.name());
    if files::is_stdout(path) {
        let mut launch = Launch::new(name, &container.launch.replace(TO_FILE, TO_STDOUT));
        // Also if standard output is a file: the shell may append to it.
        launch.set("mux", "streamable", true);
        return Ok(launch);
    }
    if container.has_index_in_front && files::is_pipe(path) {
        let expected = format!("an .{} cannot go through a pipe, an .mkv can", container.extension);
        return Err(Error::value("output", &path.to_string_lossy(), expected));
    }
    let numbered = Numbered::of(path);
    let mut launch = Launch::new(name, container.launch);
    // Another name would be another file.
    let location = match &numbered {
        Some(numbered) => numbered.location(),
        None => path.to_str().map(str::to_owned),
    };
    let location = location.ok_or_else(|| {
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
