//! Everything that can go wrong, as one enum with fields.
//!
//! A message states the failed action, with both values, and then the remedy if one is known: lower case, no
//! full stop. The end of a video is not an error, and an error is never turned into the end of a video.

use std::fmt;
use std::path::{Path, PathBuf};

use crate::geometry::{Rect, Size};
use crate::message::{Dialect, Message, ON_CPU, Setting};
use crate::text;

/// The kinds of still pictures that are read.
pub const PICTURE_KINDS: &str = "PNG, JPEG, WebP, TIFF, GIF, BMP and PNM";

/// The library's result.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// The errors of this crate. [`Error::is_usage`] distinguishes a wrong request from a failure at run time.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A value that was typed cannot mean anything: `--threshold mean:30:5`.
    #[error("{what} {value:?}: {expected}")]
    Value {
        /// The option or the thing that the value is for.
        what: &'static str,
        /// The value as typed.
        value: String,
        /// The problem with it, or the expected form.
        expected: String,
    },
    /// Options that contradict each other, or one that is missing.
    #[error("{0}")]
    Usage(String),
    /// Settings that do not go together, or that the device does not have.
    #[error("{0}")]
    Settings(Message),
    /// A file or folder could not be read or written.
    #[error("cannot {action} {}: {cause}", text::path(path))]
    File {
        /// The attempted action: `read`, `write`, `create`.
        action: &'static str,
        /// The path of the file.
        path: PathBuf,
        /// The system's error.
        cause: std::io::Error,
    },
    /// A still picture could not be decoded.
    #[cfg(feature = "pictures")]
    #[error("{}: {cause} ({} are read)", text::path(path), PICTURE_KINDS)]
    Picture {
        /// The file.
        path: PathBuf,
        /// The decoder's error.
        cause: image::ImageError,
    },
    /// A still picture whose end is missing.
    #[error("{}: the picture is cut off: its end is missing", text::path(path))]
    PictureCut {
        /// The file.
        path: PathBuf,
    },
    /// A still picture with more pixels than are taken.
    #[error("{}: the picture has {size} pixels: the maximum is {max} pixels", text::path(path))]
    PictureTooLarge {
        /// The file.
        path: PathBuf,
        /// The size that it declares.
        size: Size,
        /// The most pixels.
        max: u64,
    },
    /// A still picture could not be written.
    #[cfg(feature = "pictures")]
    #[error("cannot write {}: {cause}", text::path(path))]
    PictureNotWritten {
        /// The file.
        path: PathBuf,
        /// The error of the encoder or the system.
        cause: image::ImageError,
    },
    /// A template that cannot be searched for.
    #[error("template {name:?} {fault}")]
    Template {
        /// The template's name.
        name: String,
        /// Why not.
        fault: TemplateFault,
    },
    /// No member of the bank fits where it is to be searched.
    #[error("no template fits: the smallest is {smallest}, the searched area {area}")]
    NothingFits {
        /// Size of the smallest member.
        smallest: Size,
        /// Size of the frame, or of the region of interest.
        area: Size,
    },
    /// A box that does not lie in the frame.
    #[error("{what} {rect} does not lie inside the {frame} frame")]
    Outside {
        /// The purpose of the box: `track box`, `region of interest`.
        what: &'static str,
        /// The box.
        rect: Rect,
        /// The frame's size.
        frame: Size,
    },
    /// An order that a run in progress does not carry out.
    #[error("cannot {order}: {reason}")]
    Order {
        /// The order: `forget track 7`.
        order: String,
        /// Why not.
        reason: String,
    },
    /// gst-launch text that GStreamer does not accept, or that lacks an element that we need.
    #[error("pipeline {}: {reason}", text::in_one_line(name))]
    Launch {
        /// Where the text is from: an option or a file.
        name: String,
        /// GStreamer's message, or the missing part.
        reason: String,
    },
    /// A GStreamer element that is not installed.
    #[error("GStreamer has no element {element:?} here (on Debian and Ubuntu: apt-get install {package})")]
    MissingElement {
        /// The element's factory name.
        element: String,
        /// The package that has it.
        package: &'static str,
    },
    /// A running pipeline failed.
    #[error("{element}: {message}{}", debug_suffix(debug))]
    Pipeline {
        /// The failing element's name.
        element: String,
        /// Its message.
        message: String,
        /// Its debug text, may be empty.
        debug: String,
    },
    /// As [`Self::Pipeline`], but because of something outside of the element: a server that does not answer,
    /// a device or a disk that is not available. This may pass.
    #[error("{element}: {message}{}", debug_suffix(debug))]
    Resource {
        /// The failing element's name.
        element: String,
        /// Its message.
        message: String,
        /// Its debug text, may be empty.
        debug: String,
    },
    /// An address at which nothing can be served.
    #[error("cannot listen at {address}: {cause}")]
    Listen {
        /// The address.
        address: String,
        /// The system's error.
        cause: std::io::Error,
    },
    /// The input has no video that can be shown.
    #[error("{input}: {reason}")]
    NoVideo {
        /// The input as typed.
        input: String,
        /// Why not.
        reason: String,
    },
    /// The input is not there, or gives nothing yet: waiting may help, which it does not for [`NoVideo`].
    ///
    /// [`NoVideo`]: Error::NoVideo
    #[error("{input}: {reason}")]
    Unreachable {
        /// The input as typed.
        input: String,
        /// Why not.
        reason: String,
    },
    /// The input wants another user and password.
    #[error("{input}: {reason}")]
    Refused {
        /// The input as typed.
        input: String,
        /// Its reason, and the remedy.
        reason: String,
    },
    /// A requested device is not available, or failed.
    #[error("{backend}: {}", fault.told(Dialect::Options))]
    Backend {
        /// `cuda`, `cpu`.
        backend: &'static str,
        /// Why.
        fault: DeviceFault,
    },
    /// An internal error of lockon was caught. The panic itself has printed where it happened.
    #[error("{what} panicked: {message} (a bug in lockon, please report it)")]
    Panicked {
        /// The work that panicked: an output's name, `the engine`.
        what: String,
        /// The panic's message.
        message: String,
    },
    /// The memory limit is below the minimum that is needed.
    #[error("{what}: {wanted} of memory needed, and {limit} may be taken: {remedy}")]
    MemoryLimit {
        /// The purpose of the memory.
        what: String,
        /// The minimum amount that is needed.
        wanted: Bytes,
        /// The limit.
        limit: Bytes,
        /// The remedy.
        remedy: Message,
    },
    /// The system gives no more memory.
    #[error("the system has no {wanted} of memory for {what}: {}", less_memory())]
    NoMemory {
        /// The purpose of the memory.
        what: &'static str,
        /// The amount that was requested.
        wanted: Bytes,
    },
    /// The run was stopped before this was done. The unfinished work is dropped.
    #[error("stopped before it was done")]
    Stopped,
    /// An output failed; the others were finished.
    #[error("output {}: {reason}", text::in_one_line(name))]
    Output {
        /// Its file or name.
        name: String,
        /// The reason for the failure.
        reason: String,
    },
    /// The reader of standard output has closed it, as `head` does once it has its lines. The other outputs
    /// are complete, and no message is needed.
    #[error("output {name}: closed by its reader")]
    ReaderGone {
        /// The output that wrote there.
        name: &'static str,
    },
}

/// Why a device cannot be used, or what happened to it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DeviceFault {
    /// The program was built without the code that drives it.
    #[error("this build has no CUDA")]
    NotBuilt,
    /// Its driver is not installed.
    #[error("no NVIDIA driver is installed ({library} was not found)")]
    NoDriver {
        /// The library that was searched.
        library: &'static str,
    },
    /// Its driver is older than the kernels.
    #[error("the driver knows CUDA {found} and {needed} is needed")]
    DriverTooOld {
        /// The newest CUDA version that it knows.
        found: CudaVersion,
        /// The minimum version that is needed.
        needed: CudaVersion,
    },
    /// There is no device of that number.
    #[error("there is no device {asked}: {} (nvidia-smi lists them)", devices(*count))]
    NoSuchDevice {
        /// The number that was requested, counted from 0.
        asked: usize,
        /// The number of devices.
        count: usize,
    },
    /// The device lacks features that the kernels need.
    #[error("{name} has compute capability {found} and {needed} is needed")]
    DeviceTooOld {
        /// The device.
        name: String,
        /// Its compute capability.
        found: CudaVersion,
        /// The least that is needed.
        needed: CudaVersion,
    },
    /// The frames are larger than the device's textures.
    #[error("frames of {frame} are larger than the {max} that it can take")]
    FrameTooLarge {
        /// Their size.
        frame: Size,
        /// The largest.
        max: Size,
    },
    /// Device or pinned host memory is exhausted.
    #[error(
        "no room for {what}, {}: {} of its {} are free",
        Bytes(*wanted as u64), Bytes(*free as u64), Bytes(*total as u64)
    )]
    OutOfMemory {
        /// The purpose of the memory.
        what: &'static str,
        /// Bytes that were requested.
        wanted: usize,
        /// Bytes of the device that are free.
        free: usize,
        /// Bytes of the device.
        total: usize,
    },
    /// Page-locked memory of the host is exhausted.
    #[error("the host has no {} of page-locked memory for {what}", Bytes(*wanted as u64))]
    OutOfHostMemory {
        /// The purpose of the memory.
        what: &'static str,
        /// Bytes that were requested.
        wanted: usize,
    },
    /// A kernel could not be started.
    #[error("kernel {kernel} cannot be launched: {reason}")]
    Launch {
        /// Its name.
        kernel: &'static str,
        /// The driver's message.
        reason: String,
    },
    /// The device failed while it worked. Its frames in flight are lost, and it cannot be used any more.
    #[error("the device was lost: {reason}")]
    Lost {
        /// The driver's message.
        reason: String,
    },
    /// Another fault of a device that was opened for chosen kernels, which the CPU does not have.
    #[error("{0}")]
    OfKernels(Box<Self>),
    /// Anything else.
    #[error("{0}")]
    Other(String),
}

impl DeviceFault {
    /// Returns the remedy, if one is known.
    pub fn remedy(&self) -> Option<Message> {
        Some(match self {
            Self::NotBuilt => Message::new("build it with the feature `cuda`, or use {}", [ON_CPU]),
            Self::NoDriver { .. } => Message::new("install one, or use {}", [ON_CPU]),
            Self::DriverTooOld { .. } => Message::new("install a newer driver, or use {}", [ON_CPU]),
            Self::DeviceTooOld { .. } | Self::FrameTooLarge { .. } => Message::new("use {}", [ON_CPU]),
            Self::OutOfMemory { .. } => {
                Message::new("use a smaller {} if it is not 1, or {}", [Setting::named("depth"), ON_CPU])
            }
            Self::OutOfHostMemory { .. } => Message::new("free some, or use {}", [ON_CPU]),
            Self::Lost { .. } => {
                Message::new("run again, or with {}", [Setting::with("on-device-loss", "cpu")])
            }
            Self::OfKernels(fault) => {
                fault.remedy()?.and(Message::new(" and no {}", [Setting::named("kernel")]))
            }
            Self::NoSuchDevice { .. } | Self::Launch { .. } | Self::Other(_) => return None,
        })
    }

    /// The fault and its remedy.
    fn told(&self, dialect: Dialect) -> String {
        match self.remedy() {
            Some(remedy) => format!("{self}; {}", remedy.told(dialect)),
            None => self.to_string(),
        }
    }

    /// True if the device failed while it worked, or has no room for the requested work.
    pub fn is_lost(&self) -> bool {
        matches!(
            self,
            Self::Lost { .. } | Self::Launch { .. } | Self::OutOfMemory { .. } | Self::OutOfHostMemory { .. }
        )
    }
}

/// An amount of memory, or of data in a file. Where it is printed, a KiB is 1024 bytes, as everywhere here.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Bytes(pub u64);

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (unit, shift) in [("TiB", 40), ("GiB", 30), ("MiB", 20), ("KiB", 10)] {
            if self.0 >> shift > 0 {
                return write!(f, "{:.1} {unit}", self.0 as f64 / (1_u64 << shift) as f64);
            }
        }
        write!(f, "{} byte{}", self.0, if self.0 == 1 { "" } else { "s" })
    }
}

/// A version of CUDA, or a compute capability.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct CudaVersion {
    /// Before the point.
    pub major: u32,
    /// After the point.
    pub minor: u32,
}

impl fmt::Display for CudaVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

fn devices(count: usize) -> String {
    match count {
        0 => "none is visible".into(),
        1 => "there is only device 0".into(),
        _ => format!("they count from 0 to {}", count - 1),
    }
}

/// Why a template cannot be searched for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum TemplateFault {
    /// Zero width or height.
    #[error("is empty: {0}")]
    Empty(Size),
    /// A single pixel has no pattern.
    #[error("is a single pixel: two or more are needed")]
    OnePixel,
    /// All counted pixels are equal, so no correlation is defined.
    #[error("is flat: all of its pixels have the value {0}, so nothing can be recognised")]
    Flat(u8),
    /// The mask leaves fewer than two pixels.
    #[error("has a mask that leaves {0} pixels (2 or more are needed)")]
    MaskTooSmall(u64),
    /// The mask is not of the template's size.
    #[error("is {template}, but its mask is {mask}")]
    MaskSize {
        /// The template's size.
        template: Size,
        /// The mask's size.
        mask: Size,
    },
    /// It is larger than the area in which it should be searched.
    #[error(
        "is {template} and does not fit in the {area} that is searched; leave it out, or search a larger area"
    )]
    DoesNotFit {
        /// The template's size.
        template: Size,
        /// Size of the frame, or of the region of interest.
        area: Size,
    },
    /// More pixels than the exact sums have room for.
    #[error("has {pixels} pixels, more than {max}")]
    TooManyPixels {
        /// Its pixels.
        pixels: u64,
        /// The most that are allowed.
        max: u64,
    },
}

/// An error that ends with a remedy, with the remedy in a dialect.
fn in_dialect(error: &Error, remedy: &Message, dialect: Dialect) -> String {
    let text = error.to_string();
    let what = text.strip_suffix(&remedy.to_string()).unwrap_or(&text);
    what.to_owned() + &remedy.told(dialect)
}

/// The remedy where the system has no memory.
fn less_memory() -> Message {
    Message::new("free some memory, or use a smaller {}", [Setting::named("memory")])
}

impl Error {
    /// The error with the settings that it names in a dialect. As text it has those of the program.
    pub fn told(&self, dialect: Dialect) -> String {
        match self {
            Self::Backend { backend, fault } => format!("{backend}: {}", fault.told(dialect)),
            Self::Settings(message) => message.told(dialect),
            Self::MemoryLimit { remedy, .. } => in_dialect(self, remedy, dialect),
            Self::NoMemory { .. } => in_dialect(self, &less_memory(), dialect),
            Self::Value { what, .. } if dialect == Dialect::Arguments => {
                self.to_string().replacen(what, &crate::message::argument(what), 1)
            }
            _ => self.to_string(),
        }
    }

    /// True for a picture of a kind that is read, stored in a way that is not: another decoder may read it.
    pub fn is_unsupported_picture(&self) -> bool {
        #[cfg(feature = "pictures")]
        if let Self::Picture { cause, .. } = self {
            return matches!(cause, image::ImageError::Unsupported(_));
        }
        false
    }

    /// True for a wrong request (exit code 2), false for a failure at run time (exit code 1).
    pub fn is_usage(&self) -> bool {
        matches!(self, Self::Value { .. } | Self::Usage(_) | Self::Settings(_) | Self::Launch { .. })
    }

    /// True if a device failed while it worked, or has no room for the requested work, so that another could
    /// take over.
    pub fn is_device_lost(&self) -> bool {
        matches!(self, Self::Backend { fault, .. } if fault.is_lost())
    }

    /// For `map_err`: the system's error with the action and the path.
    pub fn file(action: &'static str, path: &Path) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.to_owned();
        move |cause| Self::File { action, path, cause }
    }

    /// The system's error when `name` wrote to standard output: [`ReaderGone`] for a closed pipe.
    ///
    /// [`ReaderGone`]: Error::ReaderGone
    pub fn of_stdout(name: &'static str, cause: &std::io::Error) -> Self {
        match cause.kind() {
            std::io::ErrorKind::BrokenPipe => Self::ReaderGone { name },
            _ => Self::Output { name: name.to_owned(), reason: cause.to_string() },
        }
    }

    /// A typed value that cannot mean anything.
    pub fn value(what: &'static str, value: &str, expected: impl Into<String>) -> Self {
        Self::Value { what, value: value.to_owned(), expected: expected.into() }
    }
}

/// Runs `call`. If it panics, returns the panic's message as an error, so that open outputs can still be
/// closed.
///
/// # Errors
/// The panic's message.
pub fn catch_panic<T>(call: impl FnOnce() -> T) -> Result<T, String> {
    // The data that the panic left half done is closed or dropped by the caller that gets the error, not
    // used.
    std::panic::catch_unwind(std::panic::AssertUnwindSafe(call)).map_err(|panic| {
        let text = panic.downcast_ref::<&str>().map(ToString::to_string);
        text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "no message".into())
    })
}

fn debug_suffix(debug: &str) -> String {
    // The first line names source file and function inside GStreamer; what follows it is for people.
    match debug.split_once('\n') {
        Some((_, text)) if !text.trim().is_empty() => format!(" ({})", text.trim()),
        _ => String::new(),
    }
}
