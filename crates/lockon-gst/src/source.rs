//! Decoded frames from a file, a URI, a camera or gst-launch text, through an appsink.
//!
//! Two threads meet here. GStreamer's streaming thread decodes, and hands each sample to a bounded channel:
//! it does nothing else with it. The thread that owns the [`VideoSource`] takes samples out and maps them.
//! For a file the streaming thread waits while the channel is full, so nothing is lost and decoding runs no
//! further ahead than the channel is long. For a live source it never waits: samples that nobody took are
//! dropped for a newer one, and counted. Those that came together with the newest are not: a network delivers
//! a few at once, and there is time for them until the next few come.
//!
//! The luma plane is used where the decoder put it. A converter costs more than matching does, so there is
//! none in the pipelines; the first frame's caps and tags tell whether this video needs one, and only then is
//! the pipeline built again with what is needed in front of the appsink.

use std::collections::VecDeque;
use std::ffi::OsStr;
use std::fmt;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, Sender, TryRecvError, TrySendError, select};
use gst::glib;
use gst::prelude::*;
use gst_app::gst_base::prelude::BaseSrcExt;
use gst_video::prelude::*;

use crate::launch::{self, Launch, Milestone, News, Running};
use crate::stuck::{Stillness, Stuck, Watch};
use crate::truncated::{self, Truncation};
use crate::{damage, doctor};
use lockon_core::control::{Control, STOP_CHECK};
use lockon_core::error::{Error, Result};
use lockon_core::files;
use lockon_core::frame::{
    Circumstances, Frame, FrameMeta, Picture, PixelFormat, PlaneRef, Size, VideoFormat,
};
use lockon_core::ports::{Next, Source};
use lockon_core::still;
use lockon_core::text;

use address::Server;
use ending::Ending;
use inlet::Inlet;
use pictures::Found;

pub use address::Uri;
pub use login::Login;
pub use pictures::Pictures;

mod address;
mod ending;
mod inlet;
mod login;
mod pictures;

/// How long the first frame may take: a network camera needs seconds, and nobody waits longer than this for
/// nothing. Through a pipe it comes when whoever writes has one.
const FIRST_FRAME: Duration = Duration::from_secs(if cfg!(test) { 6 } else { 30 });

/// How often a file that gave up while it was opened, without a word, is opened anew to hear why.
const MOST_OPENINGS: u32 = 5;

/// After an error, frames that were on their way are waited for this long, unless the end of the stream comes
/// first.
const AFTER_ERROR: Duration = Duration::from_secs(1);

/// Jitter of local networks is some milliseconds, of others some dozens.
pub const DEFAULT_JITTER_MS: u32 = 200;

/// A real-time source that is silent for so long is given up, where it may be connected anew. Longer than
/// sources pause.
const GONE: Duration = Duration::from_secs(15);

/// How long after a resource complained an end is its consequence.
const TROUBLE: Duration = Duration::from_secs(5);

/// Between the first tries to connect anew; each time twice as long...
const FIRST_PAUSE: Duration = Duration::from_millis(250);

/// ...up to this.
const LONGEST_PAUSE: Duration = Duration::from_secs(8);

/// Samples that wait in the channel of a file. Two keep the decoder busy while the engine takes one; pools
/// are small.
const LOSSLESS_WAITING: usize = 2;

/// Samples that wait in the channel of a live source: as many as come together. Older ones are dropped before
/// anybody takes them.
const LIVE_WAITING: usize = 4;

/// Samples that arrive within this time came together: less than a frame's time at 120 frames a second.
const TOGETHER: Duration = Duration::from_millis(8);

/// Samples that we may hold at once, for whoever sizes a buffer pool: those that wait, and those in a deep
/// ring.
const SAMPLES_HELD: u32 = 10;

/// What a conversion may end in: 8-bit luma and the chroma that is there, as planes that `videoflip` and
/// `deinterlace` take.
const CONVERTED: &str = "video/x-raw,format=(string){I420,Y42B,Y444,GRAY8}";

/// Bytes of a PNG file in which an animation has said that it is one: nothing but a colour profile and text
/// comes before that.
const PNG_HEAD: u64 = 1 << 20;

/// Formats that both `deinterlace` and `videoflip` take (GStreamer 1.22).
const TURNABLE: [&str; 5] = ["I420", "YV12", "NV12", "NV21", "Y444"];

/// Where video comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Input {
    /// A file.
    File(PathBuf),
    /// What comes through a pipe to standard input.
    Stdin,
    /// Pictures in files, each a frame.
    Pictures(Pictures),
    /// Anything with a scheme that GStreamer has a source for.
    Uri(Uri),
    /// A camera: a device such as `/dev/video0`, or the first one.
    Camera(Option<String>),
    /// gst-launch text with an `appsink name=frames`.
    Launch(Launch),
}

impl FromStr for Input {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        Self::typed(text.as_ref())
    }
}

impl Input {
    /// INPUT as typed: `-`, a file that exists or has no `scheme://`, pictures, `camera[:DEVICE]`, or a URI.
    ///
    /// # Errors
    /// `Value` if there is nothing, or half of what is needed.
    pub fn typed(typed: &OsStr) -> Result<Self> {
        let path = Path::new(typed);
        // What is no text is a path.
        let text = typed.to_str().unwrap_or("/");
        let has_scheme = text.split_once("://").is_some_and(|(scheme, _)| {
            scheme.starts_with(|c: char| c.is_ascii_alphabetic())
                && scheme.chars().all(|c| c.is_ascii_alphanumeric() || "+-.".contains(c))
        });
        let pictures = Pictures::typed(path).filter(|_| !has_scheme);
        Ok(match text.strip_prefix("camera") {
            _ if text.is_empty() => {
                return Err(Error::value("input", text, "expected a file, a URI, `camera` or -"));
            }
            _ if text == "-" => Self::Stdin,
            _ if pictures.is_none() && path.exists() => Self::File(path.into()),
            Some("") if !path.exists() => Self::Camera(None),
            Some(":") => {
                let expected = "expected camera:DEVICE, such as camera:/dev/video0";
                return Err(Error::value("input", text, expected));
            }
            Some(rest) if rest.starts_with(':') => Self::Camera(Some(rest[1..].to_owned())),
            _ => match pictures {
                Some(pictures) => Self::Pictures(pictures),
                None if has_scheme => Self::Uri(text.into()),
                None => Self::File(path.into()),
            },
        })
    }

    /// The file that it is, if it is one that can be read again: for its sound, for what else is in it.
    pub fn file(&self) -> Option<PathBuf> {
        match self {
            Self::File(path) => Some(path.clone()).filter(|path| !path.exists() || inlet::is_regular(path)),
            Self::Uri(uri) => uri
                .as_typed()
                .strip_prefix("file://")
                .map(PathBuf::from)
                .filter(|path| inlet::is_regular(path)),
            Self::Stdin | Self::Pictures(_) | Self::Camera(_) | Self::Launch(_) => None,
        }
    }

    /// All files that are read for it, as far as they can be found: what is written must be none of them.
    pub fn files(&self) -> Vec<PathBuf> {
        match self {
            Self::File(path) => vec![path.clone()],
            Self::Uri(uri) => uri.paths(),
            // Those that cannot be played are told when they are opened.
            Self::Pictures(pictures) => pictures.find().map(|found| found.files).unwrap_or_default(),
            Self::Stdin | Self::Camera(_) | Self::Launch(_) => Vec::new(),
        }
    }
}

impl Input {
    /// What a window that shows it is called.
    pub fn title(&self) -> String {
        match self {
            Self::Launch(_) => "lockon".to_owned(),
            input => input.to_string(),
        }
    }
}

impl fmt::Display for Input {
    /// The input as it was typed, but for passwords; gst-launch text by the name of where it is from.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(path) => f.write_str(&text::path(path)),
            Self::Stdin => f.write_str("-"),
            Self::Pictures(pictures) => pictures.fmt(f),
            Self::Uri(uri) => uri.fmt(f),
            Self::Camera(None) => f.write_str("camera"),
            Self::Camera(Some(device)) => write!(f, "camera:{device}"),
            Self::Launch(launch) => f.write_str(launch.name()),
        }
    }
}

/// Which decoders are used. It does not apply to gst-launch text, which names its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Decoder {
    /// A hardware decoder where there is one for the video, else software.
    Auto,
    /// Software only.
    #[default]
    Software,
    /// A hardware decoder, or an error.
    Hardware,
}

impl Decoder {
    /// All that can be typed.
    pub const ALL: [Self; 3] = [Self::Auto, Self::Software, Self::Hardware];

    /// As it is typed.
    pub fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Software => "software",
            Self::Hardware => "hardware",
        }
    }
}

impl fmt::Display for Decoder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Decoder {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let known = Self::ALL.into_iter().find(|decoder| decoder.name() == text);
        known.ok_or_else(|| Error::value("decoder", text, "expected auto, software or hardware"))
    }
}

/// What to open, and how.
#[derive(Debug, Clone)]
pub struct SourceSpec {
    /// Where video comes from.
    pub input: Input,
    /// Which decoders are used.
    pub decoder: Decoder,
    /// True drops the frames that nobody takes in time, false keeps all; `None` asks the source what it is.
    ///
    /// A file that is live plays at its own speed, as a camera would.
    pub live: Option<bool>,
    /// A live source that is lost is connected anew, however long that takes.
    pub reconnect: bool,
    /// What is asked of a camera; of pictures, the frame rate alone.
    pub camera: CameraMode,
    /// User and password for the server, where the address has no password.
    pub login: Option<Login>,
    /// For how many milliseconds a URI's network source evens out its jitter: less is sooner, more is
    /// smoother.
    pub jitter_ms: u32,
}

/// What is asked of a camera. What is left open it chooses itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CameraMode {
    /// Size of its pictures.
    pub size: Option<Size>,
    /// Frames a second, as a fraction.
    pub frame_rate: Option<(i32, i32)>,
}

impl CameraMode {
    /// What the camera may send, best first: pictures with a luma plane, JPEG, and what must be converted.
    fn caps(self) -> String {
        let size =
            self.size.map_or(String::new(), |size| format!(",width={},height={}", size.width, size.height));
        let rate = self.frame_rate.map_or(String::new(), |(n, d)| format!(",framerate={n}/{d}"));
        let luma: Vec<_> = PixelFormat::ALL.iter().map(|format| format.name).collect();
        let luma = format!("video/x-raw,format=(string){{{}}}", luma.join(","));
        let kinds = [luma.as_str(), "image/jpeg", "video/x-raw"];
        kinds.map(|kind| format!("{kind}{size}{rate}")).join(";")
    }
}

impl SourceSpec {
    /// An input as it comes: a source tells itself whether it is live, and is not connected anew.
    pub fn new(input: Input, decoder: Decoder) -> Self {
        let camera = CameraMode::default();
        let (live, login) = (None, None);
        Self { input, decoder, live, reconnect: false, camera, login, jitter_ms: DEFAULT_JITTER_MS }
    }

    fn is_software(&self) -> bool {
        self.decoder == Decoder::Software
    }

    /// True if it can be lost and found again: not a file, nor what is read once.
    pub fn can_reconnect(&self) -> bool {
        matches!(self.input, Input::Uri(_) | Input::Camera(_) | Input::Launch(_))
            && self.input.file().is_none()
    }

    /// True if frames come at the source's own pace: a camera's, a network stream's. As far as can be told
    /// without opening it.
    ///
    /// # Errors
    /// `MissingElement` or `Launch` if a pipeline's text cannot be built.
    pub fn is_real_time(&self) -> Result<bool> {
        launch::init()?;
        Ok(match &self.input {
            Input::File(_) | Input::Stdin | Input::Pictures(_) => false,
            Input::Camera(_) => true,
            Input::Uri(uri) => is_real_time_uri(uri.as_typed()),
            Input::Launch(launch) => launch.build()?.iterate_recurse().into_iter().flatten().any(|element| {
                // What finds its source by a URI has none before it starts.
                let is_text = |spec: &glib::ParamSpec| spec.value_type() == glib::Type::STRING;
                let uri = element
                    .find_property("uri")
                    .filter(is_text)
                    .and_then(|_| element.property::<Option<String>>("uri"));
                is_real_time_source(&element) || uri.is_some_and(|uri| is_real_time_uri(&uri))
            }),
        })
    }

    /// The pipeline for the input, as far as it is known without opening it. A pipe is standard input there,
    /// and links to pictures lie in a folder that is not made yet, which is warned of.
    ///
    /// # Errors
    /// `Launch` if gst-launch text has nothing named `frames`; as [`VideoSource::open`] for pictures that are
    /// not there.
    pub fn launch(&self) -> Result<Launch> {
        let pictures = self.pictures()?;
        match &self.input {
            Input::File(path) if files::is_pipe(path) => {
                let path = text::without_controls(&path.to_string_lossy()).into_owned();
                tracing::warn!("{path} is opened by the program: the text reads standard input (< {path})");
            }
            input if pictures.as_ref().is_some_and(Found::needs_links) => {
                tracing::warn!(
                    "{input}: the program links these pictures under numbers: the text needs such links"
                );
            }
            _ => {}
        }
        self.launch_for(pictures.as_ref())
    }

    /// The pictures that the input stands for, if that is what it is.
    fn pictures(&self) -> Result<Option<Found>> {
        match &self.input {
            Input::Pictures(pictures) => pictures.find().map(Some),
            _ => Ok(None),
        }
    }

    /// The pipeline for the input, whose pictures these are.
    fn launch_for(&self, pictures: Option<&Found>) -> Result<Launch> {
        let software = self.is_software();
        let mut launch = match &self.input {
            Input::File(path) if files::is_pipe(path) => inlet::pipe_launch(software),
            Input::File(path) => {
                let mut launch = Launch::new("file.launch", include_str!("../../../pipelines/file.launch"));
                launch.set("input", "location", path.display());
                if software {
                    launch.set("decode", "force-sw-decoders", true);
                }
                launch
            }
            Input::Stdin => inlet::pipe_launch(software),
            Input::Pictures(_) => {
                pictures.expect("pictures are looked for first").launch(self.camera.frame_rate)
            }
            Input::Uri(uri) => {
                let mut launch = Launch::new("uri.launch", include_str!("../../../pipelines/uri.launch"));
                launch.set("input", "uri", uri.as_typed());
                if software {
                    launch.set("input", "force-sw-decoders", true);
                }
                launch
            }
            Input::Camera(device) => {
                let mut launch =
                    Launch::new("camera.launch", include_str!("../../../pipelines/camera.launch"));
                let first = || Some(doctor::cameras().first()?.display().to_string());
                if let Some(device) = device.clone().or_else(first) {
                    launch.set("input", "device", device);
                }
                launch.set("mode", "caps", self.camera.caps());
                if software {
                    launch.set("decode", "force-sw-decoders", true);
                }
                launch
            }
            Input::Launch(launch) => launch.clone(),
        };
        if !launch.has("frames") {
            return Err(
                launch.fault("it has no appsink named \"frames\" (end it with `! appsink name=frames`)")
            );
        }
        // An appsink keeps time by default, which would play a file at its own speed.
        if !launch.sets("frames", "sync") {
            launch.set("frames", "sync", false);
        }
        Ok(launch)
    }
}

/// Frames of a video, in order. Dropping it stops the pipeline and waits for its threads.
pub struct VideoSource {
    /// Declared, and so dropped, before `running`: a streaming thread that waits in the channel is let go by
    /// this, and stopping the pipeline waits for that thread.
    samples: Receiver<Arrival>,
    running: Running,
    /// Samples that are out of the channel: the one that told a live source's caps while it was opened, and
    /// those that came together with the newest.
    waiting: VecDeque<Arrival>,
    state: State,
    caps: gst::Caps,
    info: gst_video::VideoInfo,
    format: Arc<VideoFormat>,
    counts: Arc<Counts>,
    /// What an end is judged by.
    ending: Arc<Ending>,
    is_live: bool,
    /// It gives frames only while it plays: a camera or a network stream, or something that behaves so.
    is_real_time: bool,
    decoder: Option<String>,
    duration_ns: Option<u64>,
    launch: Launch,
    spec: SourceSpec,
    /// What is missing of the file, to be told when what is there has been delivered.
    truncation: Option<Truncation>,
    /// What a resource complained of, and when: an end that follows at once is its consequence.
    trouble: Option<(Instant, Error)>,
    /// If the source is a file: notices that nothing comes any more.
    watch: Option<Watch>,
    /// When the last frame was delivered, or the source opened.
    heard: Instant,
    times: Times,
    /// Errors of decoders before this source was opened.
    damaged_before: u64,
    /// The run that may be stopped while it waits.
    control: Control,
    /// Let go of after the pipeline.
    inlet: Inlet,
}

/// What the next answer to a request for a frame depends on.
enum State {
    /// Frames come.
    Playing,
    /// Something failed. The error is told when the frames before it have been delivered, at the latest at
    /// the instant.
    Failing(Error, Instant),
    /// It is lost, and is being connected anew.
    Away(Away),
    /// The error has been told.
    Failed,
    /// The video has ended and the pipeline is in NULL.
    Ended,
}

/// A sample with its number and the time of its arrival.
struct Arrival {
    index: u64,
    at: Instant,
    captured: Option<Instant>,
    sample: gst::Sample,
}

/// What a source has counted so far; one that is connected anew goes on from there.
#[derive(Debug, Default)]
struct Counts {
    /// Frames that arrived, which is also the next one's number.
    arrived: AtomicU64,
    /// Frames that were dropped because newer ones waited.
    dropped: AtomicU64,
}

/// What a source that is connected anew takes over from the one that was lost.
#[derive(Clone, Default)]
struct Legacy {
    arrived: u64,
    dropped: u64,
    /// The clock and its time at the start of the run, so that times go on.
    clock: Option<(gst::Clock, gst::ClockTime)>,
}

/// A search for a source that was lost, on a thread of its own, since opening one may take long.
struct Away {
    /// When the last frame came.
    since: Instant,
    reason: String,
    found: Receiver<Result<VideoSource>>,
    give_up: Control,
    thread: Option<JoinHandle<()>>,
}

impl Away {
    fn start(spec: SourceSpec, legacy: Legacy, since: Instant, reason: String) -> Result<Self> {
        let (sender, found) = crossbeam_channel::bounded(1);
        let give_up = Control::new();
        let control = give_up.clone();
        let search = move || {
            let opened = VideoSource::open_in_time(&spec, &control, &legacy, |error, pause| {
                tracing::info!("not connected, next try in {:.1} s: {error}", pause.as_secs_f64());
            });
            // Nobody listens any more where the search was given up.
            let _ = sender.send(opened);
        };
        let thread = std::thread::Builder::new().name("lockon-reconnect".to_owned()).spawn(search);
        let thread = thread.map_err(|error| failure(format!("no thread can be started: {error}")))?;
        Ok(Self { since, reason, found, give_up, thread: Some(thread) })
    }
}

/// True for what may come right by waiting: a source that is not there. What is no video, has no decoder or
/// asks for another password stays so.
fn may_pass(error: &Error) -> bool {
    matches!(error, Error::Unreachable { .. } | Error::Resource { .. })
}

/// True for what a broken stream can make of a source that gave video before.
fn has_fault(error: &Error) -> bool {
    matches!(error, Error::NoVideo { .. } | Error::Pipeline { .. })
}

fn wait(pause: Duration, control: &Control) {
    let until = Instant::now() + pause;
    while Instant::now() < until && !control.is_stopped() {
        std::thread::sleep(STOP_CHECK);
    }
}

impl Drop for Away {
    /// Waits for the thread, which looks at `give_up` while it waits itself.
    fn drop(&mut self) {
        self.give_up.stop();
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

/// Gives every frame a time: its own, or one that continues those before.
#[derive(Debug, Default)]
pub struct Times {
    last: Option<u64>,
    /// From frame to frame, as last seen.
    step: Option<u64>,
}

impl Times {
    /// The frame's time in nanoseconds, and whether it had to be interpolated, because it has none of its
    /// `own`. `frame_rate` is what caps tell, as in [`VideoFormat`]. There is none before the first that is
    /// known, where the rate is not known either.
    pub fn next(&mut self, own: Option<u64>, frame_rate: (i32, i32)) -> (Option<u64>, bool) {
        let nominal = match frame_rate {
            (frames @ 1.., seconds) => Some(1_000_000_000 * seconds as u64 / frames as u64),
            _ => None,
        };
        let next = || match self.last {
            Some(last) => Some(last + nominal.or(self.step)?),
            // Times of a rate begin with zero.
            None => nominal.map(|_| 0),
        };
        let time = own.or_else(next);
        if let (Some(time), Some(last)) = (own, self.last)
            && time > last
        {
            self.step = Some(time - last);
        }
        self.last = time.or(self.last);
        (time, own.is_none() && time.is_some())
    }
}

impl VideoSource {
    /// Opens the input and waits until the first frame's format is known.
    ///
    /// While it waits it looks at `control`, and gives up when that is stopped.
    ///
    /// # Errors
    /// `File`, `Unreachable` or `Refused` if the input cannot be read, `NoVideo` if it has no video;
    /// `MissingElement` if an element is not installed; `Launch` if gst-launch text is wrong or has not
    /// exactly one appsink, named `frames`.
    pub fn open(spec: &SourceSpec, control: &Control) -> Result<Self> {
        let first = Legacy::default();
        if !spec.reconnect {
            return Self::open_after(spec, control, &first);
        }
        let mut is_first_try = true;
        Self::open_in_time(spec, control, &first, |error, pause| {
            if std::mem::take(&mut is_first_try) {
                tracing::warn!("{error}: waiting until it is there");
            } else {
                tracing::info!("next try in {:.1} s: {error}", pause.as_secs_f64());
            }
        })
    }

    /// Opens the source as soon as it is there: as long as its errors are such as pass it is tried again,
    /// after pauses that grow. What gave video once may give it again, whatever comes meanwhile. `tell` hears
    /// of each error and of the pause after it.
    fn open_in_time(
        spec: &SourceSpec,
        control: &Control,
        legacy: &Legacy,
        mut tell: impl FnMut(&Error, Duration),
    ) -> Result<Self> {
        let mut pause = FIRST_PAUSE;
        let was_video = legacy.arrived > 0;
        loop {
            match Self::open_after(spec, control, legacy) {
                Err(error)
                    if !control.is_stopped() && (may_pass(&error) || was_video && has_fault(&error)) =>
                {
                    tell(&error, pause);
                }
                opened => return opened,
            }
            wait(pause, control);
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    fn open_after(spec: &SourceSpec, control: &Control, legacy: &Legacy) -> Result<Self> {
        check(&spec.input)?;
        launch::init()?;
        damage::watch();
        if spec.decoder != Decoder::Software {
            prefer_hardware();
        }
        let (inlet, mut launch) = Inlet::open(spec, control)?;
        let start = |launch: &mut Launch| {
            let opened = Opened::start_anew(spec, launch, &inlet, control, legacy);
            opened.map_err(|error| explained(error, &spec.input, control))
        };
        let mut opened = start(&mut launch)?;
        // What can be read once was adapted on the way.
        if !inlet::is_pipe(&spec.input)
            && let Some(chain) = opened.adaptation(spec)?
        {
            drop(opened);
            launch.insert_before("frames", &chain)?;
            opened = start(&mut launch)?;
        }
        let put_in = opened.put_in.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(chain) = put_in {
            launch.insert_before("frames", &chain)?;
        }
        opened.into_source(spec, launch, inlet, control)
    }

    /// What the decoder announced about its pictures; of the first frame until one with another format was
    /// delivered.
    pub fn format(&self) -> Arc<VideoFormat> {
        Arc::clone(&self.format)
    }

    /// Factory name of the element that decodes, such as `avdec_h264`; `None` for raw video.
    pub fn decoder_name(&self) -> Option<&str> {
        self.decoder.as_deref()
    }

    /// Length of the video in nanoseconds, where the source knows it.
    pub fn duration_ns(&self) -> Option<u64> {
        self.duration_ns
    }

    /// True if frames that nobody takes in time are dropped.
    pub fn is_live(&self) -> bool {
        self.is_live
    }

    /// The pipeline that runs.
    pub fn launch(&self) -> &Launch {
        &self.launch
    }

    /// The next frame if it comes before `deadline`. `None` does not wait at all.
    fn next(&mut self, deadline: Option<Instant>) -> Result<Next> {
        loop {
            match &self.state {
                State::Playing | State::Failing(..) => {}
                State::Away(away) => {
                    let found = deadline.map_or_else(
                        || away.found.try_recv().map_err(|error| error == TryRecvError::Empty),
                        |deadline| away.found.recv_deadline(deadline).map_err(|error| error.is_timeout()),
                    );
                    return match found {
                        Ok(found) => self.come_back(found),
                        Err(true) => Ok(Next::Pending),
                        Err(false) => self.come_back(Err(failure("the thread that connects anew panicked"))),
                    };
                }
                State::Ended => return Ok(Next::End),
                State::Failed => return Err(failure("it has failed before")),
            }
            // Frames first: an error or the end is told after all that came before it.
            match self.take() {
                Ok(arrival) => return self.deliver(arrival),
                Err(TryRecvError::Disconnected) => return self.finish(),
                Err(TryRecvError::Empty) => {}
            }
            if self.is_given_up() {
                let seconds = GONE.as_secs();
                self.state =
                    State::Failing(failure(format!("no frame came for {seconds} s")), Instant::now());
            }
            if let Some(stuck) = self.stuck() {
                let error = no_video(&self.spec.input, stuck.reason());
                self.state = State::Failing(error, Instant::now());
            }
            let give_up = match &self.state {
                State::Failing(_, give_up) if Instant::now() >= *give_up => return self.finish(),
                State::Failing(_, give_up) => Some(*give_up),
                _ => None,
            };
            let now = Instant::now();
            let Some(deadline) = deadline.filter(|deadline| *deadline > now) else {
                while let Ok(news) = self.running.news().try_recv() {
                    self.attend(news);
                }
                return Ok(Next::Pending);
            };
            let wait = give_up.map_or(deadline, |give_up| give_up.min(deadline)) - now;
            select! {
                recv(self.samples) -> arrival => match arrival {
                    Ok(arrival) => self.waiting.push_back(arrival),
                    Err(_) => return self.finish(),
                },
                recv(self.running.news()) -> news => if let Ok(news) = news {
                    self.attend(news);
                },
                default(wait) => {}
            }
        }
    }

    /// The oldest sample that is there and that need not be dropped.
    fn take(&mut self) -> Result<Arrival, TryRecvError> {
        if !self.is_live {
            return self.waiting.pop_front().map_or_else(|| self.samples.try_recv(), Ok);
        }
        let end = loop {
            match self.samples.try_recv() {
                Ok(arrival) => self.waiting.push_back(arrival),
                Err(end) => break end,
            }
        };
        let dropped = drop_late(&mut self.waiting);
        self.counts.dropped.fetch_add(dropped, Ordering::Relaxed);
        self.waiting.pop_front().ok_or(end)
    }

    /// True if it is silent for so long that connecting anew is the better way to wait.
    fn is_given_up(&self) -> bool {
        let is_ours_to_end = self.spec.reconnect && self.is_real_time && matches!(self.state, State::Playing);
        is_ours_to_end && self.heard.elapsed() > GONE
    }

    /// How a file is stuck that should give a frame now.
    fn stuck(&mut self) -> Option<Stuck> {
        // What plays at its own speed may pause for as long as it likes.
        let is_watched = !self.is_live && matches!(self.state, State::Playing);
        self.watch.as_mut().filter(|_| is_watched).and_then(Watch::look)
    }

    /// Remembers the first error; later ones are its consequences.
    fn attend(&mut self, news: launch::News) {
        if let News::InTrouble(error) = news {
            self.trouble = Some((Instant::now(), error));
            return;
        }
        if let Err(error) = self.running.attend(news) {
            if matches!(self.state, State::Playing) {
                self.state = State::Failing(error, Instant::now() + AFTER_ERROR);
            } else {
                tracing::debug!("after the first error: {error}");
            }
        }
    }

    /// No frame will come: stops the pipeline and tells why.
    fn finish(&mut self) -> Result<Next> {
        // Elements post their error before they send the end of the stream down, so it is here by now.
        while let Ok(news) = self.running.news().try_recv() {
            self.attend(news);
        }
        let clock = self.running.pipeline().clock().zip(self.running.pipeline().base_time());
        self.stop();
        let lost = match std::mem::replace(&mut self.state, State::Ended) {
            State::Failing(error, _) => Some(error),
            // It had said that it would go, and whoever has gone closes connections.
            _ if self.ending.is_goodbye() => None,
            // Whoever closes a connection under a source makes it end, as far as the source is concerned.
            _ => match self.trouble.take().filter(|(at, _)| at.elapsed() < TROUBLE) {
                Some((_, error)) => Some(error),
                None => self.is_real_time.then(|| self.lost()).flatten(),
            },
        };
        let lost = lost.map(|error| self.in_words(error));
        if self.spec.reconnect && self.is_real_time {
            let reason = match lost {
                Some(
                    Error::NoVideo { reason, .. }
                    | Error::Unreachable { reason, .. }
                    | Error::Refused { reason, .. },
                ) => reason,
                Some(error) => error.to_string(),
                None => "it ended".to_owned(),
            };
            tracing::warn!("{}: {reason}: connecting anew", self.spec.input);
            let load = |count: &AtomicU64| count.load(Ordering::Relaxed);
            let legacy =
                Legacy { arrived: load(&self.counts.arrived), dropped: load(&self.counts.dropped), clock };
            self.state = State::Away(Away::start(self.spec.clone(), legacy, self.heard, reason)?);
            return Ok(Next::Pending);
        }
        if let Some(error) = lost {
            self.state = State::Failed;
            return Err(error);
        }
        match self.truncation.take() {
            // Told once; asked again, the video has ended.
            Some(found) => Err(no_video(&self.spec.input, found.to_string())),
            None => Ok(Next::End),
        }
    }

    /// What is wrong with the end of a live source, if something is.
    fn lost(&self) -> Option<Error> {
        let input = &self.spec.input;
        let reason = self.ending.loss(matches!(input, Input::Camera(_)))?;
        Some(no_video(input, format!("the source was lost: {reason}")))
    }

    /// An error at run time, with the server that the video came from and what to try.
    fn in_words(&self, error: Error) -> Error {
        let input = &self.spec.input;
        let Input::Uri(uri) = input else { return error };
        let is_told = matches!(error, Error::NoVideo { .. } | Error::Unreachable { .. });
        let error = in_words_of_the_input(error, input);
        // Whoever connects anew at once need not ask first.
        let error =
            if self.spec.reconnect || is_told { error } else { explained(error, input, &self.control) };
        let Some(place) = uri.place().filter(|_| self.is_real_time) else { return error };
        let advice = if self.spec.reconnect { "" } else { "; --reconnect waits until it is back" };
        let placed = |reason: String| format!("{reason} (server {place}{advice})");
        match error {
            Error::NoVideo { input, reason } => Error::NoVideo { input, reason: placed(reason) },
            Error::Unreachable { input, reason } => Error::Unreachable { input, reason: placed(reason) },
            Error::Refused { input, reason } => Error::Refused { input, reason: placed(reason) },
            error => error,
        }
    }

    /// Goes on with what was found, or fails for good.
    fn come_back(&mut self, found: Result<Self>) -> Result<Next> {
        let State::Away(away) = std::mem::replace(&mut self.state, State::Failed) else {
            unreachable!("only a source that is away comes back");
        };
        let Self {
            samples,
            running,
            waiting,
            state,
            caps,
            info,
            format,
            counts,
            ending,
            decoder,
            launch,
            inlet,
            ..
        } = found?;
        (self.samples, self.running, self.waiting, self.state) = (samples, running, waiting, state);
        (self.caps, self.info, self.format, self.counts) = (caps, info, format, counts);
        (self.ending, self.decoder, self.launch, self.inlet) = (ending, decoder, launch, inlet);
        (self.trouble, self.heard) = (None, Instant::now());
        Ok(Next::Gap { away: away.since.elapsed(), reason: away.reason.clone() })
    }

    /// Sets the pipeline to NULL, before its time if need be.
    fn stop(&mut self) {
        // The streaming thread may be waiting in the channel, and stopping waits for it: let it go first.
        self.samples = crossbeam_channel::never();
        self.running.stop();
    }

    /// The next frame; one that cannot be used is a failure like any other, so nothing comes after it.
    fn deliver(&mut self, arrival: Arrival) -> Result<Next> {
        self.heard = Instant::now();
        self.watch.iter_mut().for_each(Watch::reset);
        let frame = self.frame(arrival);
        if frame.is_err() {
            self.stop();
            self.state = State::Failed;
        }
        frame.map(Next::Frame)
    }

    /// Maps a sample where it lies.
    fn frame(&mut self, Arrival { index, at, captured, sample }: Arrival) -> Result<Frame> {
        let caps = sample.caps().ok_or_else(|| failure("a frame has no caps"))?;
        // Mostly the same object, so this costs nothing.
        if *caps != *self.caps {
            (self.info, self.format) = describe(caps)?;
            self.caps = caps.to_owned();
            tracing::debug!("frame {index}: the format changes to {caps}");
        }
        let buffer = sample.buffer_owned().ok_or_else(|| failure("a frame has no buffer"))?;
        let is_first = self.times.last.is_none();
        let own = presentation_time(sample.segment(), buffer.pts(), self.is_real_time);
        let (pts_ns, is_pts_interpolated) = self.times.next(own, self.format.frame_rate);
        let duration_ns = buffer.duration().map(gst::ClockTime::nseconds);
        let meta = FrameMeta { index, pts_ns, duration_ns, arrived: at };
        let damage = gst::BufferFlags::DISCONT | gst::BufferFlags::CORRUPTED;
        let is_discontinuity = !is_first && buffer.flags().intersects(damage);
        let circumstances = Circumstances { captured, is_pts_interpolated, is_discontinuity };
        let picture = picture(buffer, &self.info, &self.format).ok_or_else(|| {
            failure(format!("frame {index} is not laid out as its caps say: {}", self.caps))
        })?;
        Ok(Frame { meta, circumstances, format: Arc::clone(&self.format), picture })
    }
}

/// A buffer of that format, mapped for reading where it lies, for as long as the picture is held; `None` if
/// it is not laid out as `info` says.
pub fn picture(
    buffer: gst::Buffer,
    info: &gst_video::VideoInfo,
    format: &VideoFormat,
) -> Option<Arc<dyn Picture>> {
    let frame = gst_video::VideoFrame::from_buffer_readable(buffer, info).ok()?;
    Some(Arc::new(Decoded { pixels: format.pixels, size: format.size, frame }))
}

impl Source for VideoSource {
    fn try_next(&mut self) -> Result<Next> {
        self.next(None)
    }

    fn wait_next(&mut self, timeout: Duration) -> Result<Next> {
        // An instant too far away cannot be told, and nobody waits for a day.
        self.next(Some(Instant::now() + timeout.min(Duration::from_hours(24))))
    }

    fn dropped(&self) -> u64 {
        self.counts.dropped.load(Ordering::Relaxed)
    }

    fn damaged(&self) -> u64 {
        damage::errors() - self.damaged_before
    }
}

/// A decoder's buffer, mapped for reading for as long as this lives.
struct Decoded {
    pixels: PixelFormat,
    size: Size,
    frame: gst_video::VideoFrame<gst_video::video_frame::Readable>,
}

impl Picture for Decoded {
    fn plane(&self, index: usize) -> PlaneRef<'_> {
        let data =
            self.frame.plane_data(index as u32).expect("planes of a format are fewer than its picture has");
        // Strides are negative in bottom-up pictures only, which no format with a luma plane has.
        let stride = self.frame.plane_stride()[index] as usize;
        PlaneRef::new(data, self.pixels.plane_size(index, self.size), stride)
    }
}

/// A pipeline that runs, up to the point where its first frame's caps are known.
struct Opened {
    /// Dropped before `running`, as in [`VideoSource`].
    samples: Receiver<Arrival>,
    running: Running,
    first: Option<Arrival>,
    pad: gst::Pad,
    caps: gst::Caps,
    counts: Arc<Counts>,
    ending: Arc<Ending>,
    is_live: bool,
    is_real_time: bool,
    /// What was put in front of the appsink of what can be read once.
    put_in: Arc<Mutex<Option<String>>>,
    damaged_before: u64,
    watch: Option<Watch>,
}

/// Why a pipeline did not start.
enum NotStarted {
    /// A file's pipeline is stuck, and opened anew it may tell why.
    Stuck(Stuck),
    /// Its video has an alpha channel, and was taken for something else than video.
    HasAlpha,
    Failed(Error),
}

impl From<Error> for NotStarted {
    fn from(error: Error) -> Self {
        Self::Failed(error)
    }
}

impl Opened {
    /// Starts the pipeline, several times where it gives up without a word.
    fn start_anew(
        spec: &SourceSpec,
        launch: &mut Launch,
        inlet: &Inlet,
        control: &Control,
        legacy: &Legacy,
    ) -> Result<Self> {
        for _ in 1..MOST_OPENINGS {
            match Self::start(spec, launch, inlet, control, legacy) {
                Ok(opened) => return Ok(opened),
                // What came through a pipe does not come again.
                Err(NotStarted::HasAlpha) if !inlet::is_pipe(&spec.input) => {
                    launch.set(decoding_element(&spec.input), "expose-all-streams", true);
                }
                Err(NotStarted::Stuck(Stuck::AtRest)) => {
                    tracing::debug!("{}: it gave up without a word: once more", spec.input);
                }
                Err(NotStarted::Stuck(stuck)) => return Err(no_video(&spec.input, stuck.reason())),
                Err(NotStarted::HasAlpha) => {
                    return Err(no_video(&spec.input, "its alpha channel cannot be decoded from a pipe"));
                }
                Err(NotStarted::Failed(error)) => return Err(error),
            }
        }
        Self::start(spec, launch, inlet, control, legacy).map_err(|error| match error {
            NotStarted::Stuck(stuck) => no_video(&spec.input, stuck.reason()),
            NotStarted::HasAlpha => no_video(&spec.input, "its alpha channel cannot be decoded"),
            NotStarted::Failed(error) => error,
        })
    }

    /// Starts the pipeline. A file is left in PAUSED with its first frame in the appsink; live video plays.
    fn start(
        spec: &SourceSpec,
        launch: &mut Launch,
        inlet: &Inlet,
        control: &Control,
        legacy: &Legacy,
    ) -> Result<Self, NotStarted> {
        let damaged_before = damage::errors();
        // What was typed can have any length.
        let pipeline = match spec.input {
            Input::Launch(_) => launch.build_under(control)?,
            _ => launch.build()?,
        };
        let mut login = spec.login.clone();
        if let Input::Uri(uri) = &spec.input {
            let input = launch.element(&pipeline, "input")?;
            set_jitter(&input, spec.jitter_ms);
            // What GStreamer does not see in an address it cannot tell anybody.
            let (address, own) = uri.with_login(login)?;
            input.set_property("uri", address);
            login = own;
        }
        if let Some(login) = login {
            give_login(&pipeline, login);
        }
        if let Some(pictures) = &inlet.pictures {
            pictures.watch(launch, &pipeline)?;
        }
        if let Some((clock, base_time)) = &legacy.clock {
            // Its running time is that of the source that was lost.
            pipeline.use_clock(Some(clock));
            pipeline.set_start_time(gst::ClockTime::NONE);
            pipeline.set_base_time(*base_time);
        }
        let sink = the_appsink(launch, &pipeline)?;
        let pad = sink.static_pad("sink").ok_or_else(|| failure("an appsink has no pad"))?;
        let ending = Ending::watch(&pipeline);
        let feed = Arc::new(Feed::new(legacy, &ending));
        feed.attach(&sink);
        answer_allocation_queries(&pad);
        let mut watch = match &spec.input {
            // A pipe may be silent for as long as it likes.
            Input::File(path) if path.is_file() => {
                Some(Watch::new(&pipeline, &launch.element(&pipeline, "input")?))
            }
            _ => None,
        };
        let put_in = if inlet::is_pipe(&spec.input) {
            inlet::adapt_in_place(&pipeline, &pad, spec)
        } else {
            Arc::default()
        };

        let running = Running::new(pipeline);
        let in_words = |error| in_words_of_the_input(error, &spec.input);
        let can_expose_all = !matches!(spec.input, Input::Launch(_) | Input::Camera(_))
            && !launch.was_set(decoding_element(&spec.input), "expose-all-streams");
        // Live sources give frames only while they play, so waiting for one in PAUSED would be for ever.
        let gives_no_preroll =
            running.set_state(gst::State::Paused).map_err(in_words)? == gst::StateChangeSuccess::NoPreroll;
        let is_live = spec.live.unwrap_or(gives_no_preroll);
        if spec.live == Some(true) && !gives_no_preroll {
            sink.set_sync(true);
            launch.set("frames", "sync", true);
        }
        let samples = feed.open(is_live, gives_no_preroll);
        let mut first = None;
        let mut waited = Stillness::default();
        if gives_no_preroll {
            running.set_state(gst::State::Playing).map_err(in_words)?;
        }
        loop {
            if gives_no_preroll {
                first = samples.recv_timeout(STOP_CHECK).ok();
                while let Ok(news) = running.news().try_recv() {
                    running.attend(news).map_err(in_words)?;
                }
                if first.is_some() {
                    break;
                }
            } else {
                match running.wait(STOP_CHECK) {
                    Ok(Some(Milestone::Prerolled)) => break,
                    Ok(_) => {}
                    Err(Error::Pipeline { message, .. })
                        if message == launch::NOTHING_WANTED
                            && can_expose_all
                            && has_alpha(running.pipeline()) =>
                    {
                        return Err(NotStarted::HasAlpha);
                    }
                    Err(error) => return Err(in_words(error).into()),
                }
            }
            if control.is_stopped() {
                return Err(no_video(&spec.input, "interrupted while it was opened").into());
            }
            if let Some(stuck) = watch.as_mut().and_then(Watch::look) {
                return Err(NotStarted::Stuck(stuck));
            }
            if !inlet::is_pipe(&spec.input) && waited.look(Instant::now()) > FIRST_FRAME {
                let seconds = FIRST_FRAME.as_secs();
                return Err(unreachable(&spec.input, format!("no frame came within {seconds} s")).into());
            }
        }
        // The end can only be there in PAUSED if no frame was held up before it.
        let caps = pad.current_caps().filter(|_| first.is_some() || !sink.is_eos());
        let caps = caps.ok_or_else(|| unreachable(&spec.input, "it has no frame"))?;
        let (counts, is_real_time) = (Arc::clone(&feed.counts), gives_no_preroll);
        watch.iter_mut().for_each(Watch::reset);
        Ok(Self {
            samples,
            running,
            first,
            pad,
            caps,
            counts,
            ending,
            is_live,
            is_real_time,
            put_in,
            damaged_before,
            watch,
        })
    }

    /// The elements that must stand before the appsink for this video, if any: said once, as it costs time.
    fn adaptation(&self, spec: &SourceSpec) -> Result<Option<String>> {
        adaptation(&self.caps, &self.pad, spec)
    }

    /// Lets a file play, now that its frames can be used as they are.
    fn into_source(
        self,
        spec: &SourceSpec,
        launch: Launch,
        inlet: Inlet,
        control: &Control,
    ) -> Result<VideoSource> {
        let Self {
            samples,
            running,
            first,
            caps,
            counts,
            ending,
            is_live,
            is_real_time,
            damaged_before,
            watch,
            ..
        } = self;
        let (info, format) = describe(&caps).map_err(|error| in_words_of_the_input(error, &spec.input))?;
        let decoder = decoder_of(running.pipeline());
        if spec.decoder == Decoder::Hardware
            && let Some(factory) = decoder.as_ref().filter(|factory| !is_hardware(factory))
        {
            let reason = format!(
                "no hardware decoder takes it, only {} does (try --decoder software)",
                factory.name()
            );
            return Err(no_video(&spec.input, reason));
        }
        let duration_ns = running
            .pipeline()
            .query_duration::<gst::ClockTime>()
            .map(gst::ClockTime::nseconds)
            .filter(|ns| *ns > 0)
            .or_else(|| Some(inlet.pictures.as_ref()?.duration_ns(spec.camera.frame_rate)));
        tracing::debug!("{}: {caps}", spec.input);
        running.set_state(gst::State::Playing).map_err(|error| in_words_of_the_input(error, &spec.input))?;
        let truncation = match &spec.input {
            Input::File(path) => truncated::truncation(path),
            _ => None,
        };
        Ok(VideoSource {
            spec: spec.clone(),
            truncation,
            trouble: None,
            watch,
            heard: Instant::now(),
            times: Times::default(),
            damaged_before,
            samples,
            running,
            waiting: first.into_iter().collect(),
            state: State::Playing,
            caps,
            info,
            format,
            counts,
            ending,
            is_live,
            is_real_time,
            decoder: decoder.map(|factory| factory.name().into()),
            duration_ns,
            launch,
            control: control.clone(),
            inlet,
        })
    }
}

/// The elements that must stand before the appsink for a video of these caps, if any, where its tags are on
/// `pad`: said once, as it costs time.
fn adaptation(caps: &gst::Caps, pad: &gst::Pad, spec: &SourceSpec) -> Result<Option<String>> {
    let info = gst_video::VideoInfo::from_caps(caps)
        .map_err(|_| no_video(&spec.input, format!("not video: {caps}")))?;
    let name = info.format().to_str().as_str();
    let has_luma = PixelFormat::from_name(name).is_some();
    // What a user wrote is run as written, except for what cannot work.
    let is_ours = !matches!(spec.input, Input::Launch(_));
    let is_interlaced = info.is_interlaced();
    let is_turned = is_ours && is_turned(pad);
    if is_interlaced && !is_ours {
        tracing::warn!(
            "{}: interlaced: fields are matched together (put `deinterlace fields=top` in)",
            spec.input
        );
    }
    let mut chain = Vec::new();
    let deinterlaces = is_interlaced && is_ours;
    let converts = !has_luma || ((deinterlaces || is_turned) && !TURNABLE.contains(&name));
    if converts {
        // Dithering would add noise to what is compared.
        chain.push("videoconvert dither=none");
    }
    if deinterlaces {
        // One frame out for each frame in; the default gives each field a frame of its own.
        chain.push("deinterlace fields=top");
    }
    if is_turned {
        chain.push("videoflip video-direction=auto");
    }
    if chain.is_empty() {
        return Ok(None);
    }
    if converts {
        chain.push(CONVERTED);
    }
    if !has_luma {
        let depth = info.comp_depth(0);
        let what =
            if depth > 8 { format!("{depth} bits are reduced to 8") } else { "luma is computed".into() };
        tracing::warn!("{}: {name} has no 8-bit luma plane: {what}", spec.input);
    }
    if deinterlaces {
        tracing::warn!("{}: interlaced: frames are made of the top fields", spec.input);
    }
    Ok(Some(chain.join(" ! ")))
}

/// True if a tag says that the picture is to be turned or mirrored before it is shown.
fn is_turned(pad: &gst::Pad) -> bool {
    let tags = (0..).map_while(|n| pad.sticky_event::<gst::event::Tag>(n));
    let mut turned = tags.filter_map(|event| {
        event.tag().get::<gst::tags::ImageOrientation>().map(|orientation| orientation.get() != "rotate-0")
    });
    turned.any(|turned| turned)
}

/// Drops what waits in vain, oldest first, and tells how many that were: all but those that came together
/// with the newest.
fn drop_late(waiting: &mut VecDeque<Arrival>) -> u64 {
    let before = waiting.len();
    if let Some(newest) = waiting.back().map(|newest| newest.at) {
        while waiting.front().is_some_and(|oldest| newest.duration_since(oldest.at) > TOGETHER) {
            waiting.pop_front();
        }
    }
    (before - waiting.len()) as u64
}

/// The streaming thread's end of the channel.
///
/// The appsink's callbacks hold it, and it holds nothing of the pipeline, so there is no cycle.
#[derive(Default)]
struct Feed {
    outlet: Mutex<Outlet>,
    counts: Arc<Counts>,
    ending: Arc<Ending>,
    /// Times are those of capture.
    is_real_time: AtomicBool,
}

/// Where samples go.
#[derive(Clone, Default)]
enum Outlet {
    /// It is not known yet whether the source is live. No sample arrives before that is known.
    #[default]
    Closed,
    /// Every sample goes in, waiting for room. It ends when the receiver is dropped.
    Lossless(Sender<Arrival>),
    /// The newest sample goes in, and where there is no room the oldest is taken out.
    Live(Sender<Arrival>, Receiver<Arrival>),
    /// The stream has ended. The channel's last sender is gone, which is how the receiver knows.
    Ended,
}

impl Feed {
    fn new(legacy: &Legacy, ending: &Arc<Ending>) -> Self {
        let counts = Counts { arrived: legacy.arrived.into(), dropped: legacy.dropped.into() };
        Self { counts: Arc::new(counts), ending: Arc::clone(ending), ..Self::default() }
    }

    /// Connects it to the appsink. The first frame of a file stays in the appsink in PAUSED; it arrives here,
    /// once, as soon as the pipeline plays.
    fn attach(self: &Arc<Self>, sink: &gst_app::AppSink) {
        // The appsink's own queue is passed by: a sample is pulled as soon as it is there.
        sink.set_max_buffers(1);
        sink.set_wait_on_eos(false);
        // The last sample would be held back from the decoder's pool.
        sink.set_enable_last_sample(false);
        let (of_samples, of_end) = (Arc::clone(self), Arc::clone(self));
        sink.set_callbacks(
            gst_app::AppSinkCallbacks::builder()
                .new_sample(move |sink| {
                    let sample = sink.pull_sample().map_err(|_| gst::FlowError::Eos)?;
                    let at = Instant::now();
                    of_samples.ending.hear_frame(at);
                    let is_real_time = of_samples.is_real_time.load(Ordering::Relaxed);
                    let captured = if is_real_time { captured(sink, &sample, at) } else { None };
                    let index = of_samples.counts.arrived.fetch_add(1, Ordering::Relaxed);
                    of_samples.push(Arrival { index, at, captured, sample })
                })
                .eos(move |_| {
                    of_end.ending.hear_end();
                    of_end.end();
                })
                .build(),
        );
    }

    /// Opens the channel, before the pipeline plays.
    fn open(&self, is_live: bool, is_real_time: bool) -> Receiver<Arrival> {
        self.is_real_time.store(is_real_time, Ordering::Relaxed);
        let (sender, receiver) =
            crossbeam_channel::bounded(if is_live { LIVE_WAITING } else { LOSSLESS_WAITING });
        let mut outlet = self.outlet.lock().unwrap_or_else(PoisonError::into_inner);
        match *outlet {
            Outlet::Ended => {}
            _ if is_live => *outlet = Outlet::Live(sender, receiver.clone()),
            _ => *outlet = Outlet::Lossless(sender),
        }
        receiver
    }

    /// Hands over one sample; on the streaming thread.
    fn push(&self, arrival: Arrival) -> Result<gst::FlowSuccess, gst::FlowError> {
        // Cloned, so that the lock is not held while the channel is full.
        let outlet = self.outlet.lock().unwrap_or_else(PoisonError::into_inner).clone();
        match outlet {
            Outlet::Lossless(sender) => {
                // Nobody listens any more: the pipeline is about to be stopped.
                sender.send(arrival).map_err(|_| gst::FlowError::Flushing)?;
            }
            Outlet::Live(sender, receiver) => {
                let mut newest = arrival;
                while let Err(TrySendError::Full(back)) = sender.try_send(newest) {
                    newest = back;
                    if receiver.try_recv().is_ok() {
                        self.counts.dropped.fetch_add(1, Ordering::Relaxed);
                    }
                }
            }
            Outlet::Closed | Outlet::Ended => return Err(gst::FlowError::Flushing),
        }
        Ok(gst::FlowSuccess::Ok)
    }

    /// No sample will follow; on the streaming thread.
    fn end(&self) {
        *self.outlet.lock().unwrap_or_else(PoisonError::into_inner) = Outlet::Ended;
    }
}

/// Says to decoders that rows may be padded, so that they do not copy each picture to take the padding out.
///
/// An appsink says nothing of itself before GStreamer 1.24.
fn answer_allocation_queries(pad: &gst::Pad) {
    let answer = |info: &mut gst::PadProbeInfo<'_>| {
        let Some(gst::QueryViewMut::Allocation(query)) = info.query_mut().map(gst::QueryRef::view_mut) else {
            return gst::PadProbeReturn::Ok;
        };
        query.add_allocation_meta::<gst_video::VideoMeta>(None);
        let caps = query.get_owned().0;
        if let Some(info) = caps.and_then(|caps| gst_video::VideoInfo::from_caps(&caps).ok()) {
            query.add_allocation_pool(None::<&gst::BufferPool>, info.size() as u32, SAMPLES_HELD, 0);
        }
        gst::PadProbeReturn::Handled
    };
    pad.add_probe(gst::PadProbeType::QUERY_DOWNSTREAM, move |pad, info| {
        launch::guarded(pad, gst::PadProbeReturn::Ok, || answer(info))
    });
}

/// The one appsink of a pipeline, which must be named `frames`.
fn the_appsink(launch: &Launch, pipeline: &gst::Pipeline) -> Result<gst_app::AppSink> {
    let sink = launch.element(pipeline, "frames")?.downcast::<gst_app::AppSink>().map_err(|element| {
        let factory = element.factory().map_or_else(String::new, |factory| factory.name().into());
        launch.fault(format!("\"frames\" must name an appsink, not a {factory}"))
    })?;
    let others = pipeline.iterate_recurse().into_iter().flatten();
    match others.filter(ObjectExt::is::<gst_app::AppSink>).count() {
        1 => Ok(sink),
        count => Err(launch.fault(format!("it has {count} appsinks, and only one can be read"))),
    }
}

/// Most pixels of a side of a picture.
pub const MAX_SIDE: usize = u16::MAX as usize;

/// What caps say, for GStreamer and for us.
///
/// # Errors
/// `Pipeline` if they are not of raw video, of a format that has no 8-bit luma plane, or of pictures of a
/// size that none has.
pub fn describe(caps: &gst::CapsRef) -> Result<(gst_video::VideoInfo, Arc<VideoFormat>)> {
    let info = gst_video::VideoInfo::from_caps(caps).map_err(|_| failure(format!("not video: {caps}")))?;
    let pixels = PixelFormat::from_name(info.format().to_str())
        .ok_or_else(|| failure(format!("{} has no 8-bit luma plane", info.format())))?;
    let size = Size::new(info.width() as usize, info.height() as usize);
    // Caps can say what no picture is: that it is empty, or, as GStreamer 1.22 passes on, less than that.
    if ![size.width, size.height].iter().all(|side| (1..=MAX_SIDE).contains(side)) {
        return Err(failure(format!("pictures have 1 to {MAX_SIDE} pixels on each side: {caps}")));
    }
    // Fractions below zero mean nothing.
    let positive = |n: i32, d: i32, otherwise| if n > 0 && d > 0 { (n, d) } else { otherwise };
    let (fps, par) = (info.fps(), info.par());
    let colorimetry = caps.structure(0).and_then(|s| s.get::<String>("colorimetry").ok());
    let format = VideoFormat {
        size,
        pixels,
        frame_rate: positive(fps.numer(), fps.denom(), (0, 1)),
        pixel_aspect: positive(par.numer(), par.denom(), (1, 1)),
        colorimetry,
    };
    Ok((info, Arc::new(format)))
}

fn is_real_time_uri(uri: &str) -> bool {
    let source = gst::Element::make_from_uri(gst::URIType::Src, uri, None);
    source.is_ok_and(|source| is_real_time_source(&source))
}

/// True if the element says that it gives frames only while it plays.
fn is_real_time_source(element: &gst::Element) -> bool {
    let says_so = element.downcast_ref::<gst_app::gst_base::BaseSrc>().is_some_and(BaseSrcExt::is_live);
    // RTSP's source is a bin, which says nothing before it has connected.
    says_so || element.factory().is_some_and(|factory| factory.name() == "rtspsrc")
}

/// When a frame is to be shown, in nanoseconds, counted from the beginning of the video rather than of the
/// file's own clock; in real time, when it was captured, counted from the start of the run.
pub fn presentation_time(
    segment: Option<&gst::Segment>,
    pts: Option<gst::ClockTime>,
    is_real_time: bool,
) -> Option<u64> {
    let pts = pts?;
    let segment = segment.and_then(|segment| segment.downcast_ref::<gst::ClockTime>());
    let time = |segment: &gst::FormattedSegment<gst::ClockTime>| {
        if is_real_time { segment.to_running_time(pts) } else { segment.to_stream_time(pts) }
    };
    Some(segment.and_then(time).unwrap_or(pts).nseconds())
}

/// When a frame that arrives now was captured, by the pipeline's clock.
fn captured(sink: &gst_app::AppSink, sample: &gst::Sample, now: Instant) -> Option<Instant> {
    let segment = sample.segment()?.downcast_ref::<gst::ClockTime>()?;
    let captured = segment.to_running_time(sample.buffer()?.pts()?)?;
    // Not older than now, whatever a source's clock says.
    let age = sink.current_running_time()?.saturating_sub(captured);
    now.checked_sub(age.into())
}

/// Tells the network source that a URI's element makes how long to even out its jitter.
fn set_jitter(input: &gst::Element, milliseconds: u32) {
    input.connect("source-setup", false, move |values| {
        // RTSP's source has an unsigned number here, SRT's a signed one.
        if let Some(source) = values.get(1).and_then(|source| source.get::<gst::Element>().ok())
            && let Some(property) = source.find_property("latency")
        {
            match property.value_type() {
                glib::Type::U32 => source.set_property("latency", milliseconds),
                glib::Type::I32 => source.set_property("latency", milliseconds as i32),
                _ => {}
            }
        }
        None
    });
}

/// The name of the element that finds decoders, in the pipeline for a file or a URI.
fn decoding_element(input: &Input) -> &'static str {
    if matches!(input, Input::Uri(_)) { "input" } else { "decode" }
}

/// True if a stream is video with an alpha channel that is a stream of its own. Its decoder is a bin that may
/// give anything, as far as it says before it runs, so that `decodebin` does not take it where it looks for
/// video only.
fn has_alpha(pipeline: &gst::Pipeline) -> bool {
    let elements = pipeline.iterate_recurse().into_iter().flatten();
    let mut caps = elements.flat_map(|element| element.pads()).filter_map(|pad| pad.current_caps());
    caps.any(|caps| caps.iter().any(|stream| stream.get::<bool>("codec-alpha") == Ok(true)))
}

/// Gives the login to every element that asks for one, now or later, for a server that was typed: a list of
/// pieces of a stream, which its server sends, may name others.
fn give_login(pipeline: &gst::Pipeline, login: Login) {
    let elements = || pipeline.iterate_recurse().into_iter().flatten();
    let typed: Vec<String> = elements().filter_map(|element| place_of(&element)).collect();
    let is_for = move |element: &gst::Element| {
        typed.is_empty() || place_of(element).is_some_and(|place| typed.contains(&place))
    };
    for element in elements().filter(|element| is_for(element)) {
        login.give_to(&element);
    }
    pipeline.connect_deep_element_added(move |_, _, element| {
        if is_for(element) {
            login.give_to(element);
        }
    });
}

/// Host and port of the server that an element reads from, where it says so.
fn place_of(element: &gst::Element) -> Option<String> {
    ["location", "uri"].iter().find_map(|name| {
        element.find_property(name).filter(|spec| {
            spec.value_type() == glib::Type::STRING && spec.flags().contains(glib::ParamFlags::READABLE)
        })?;
        Uri::from(element.property::<Option<String>>(name)?).place()
    })
}

/// The first element that decodes pictures.
fn decoder_of(pipeline: &gst::Pipeline) -> Option<gst::ElementFactory> {
    let factories = pipeline.iterate_recurse().into_iter().flatten().filter_map(|element| element.factory());
    factories.into_iter().find(|factory| {
        let class = factory.metadata("klass").unwrap_or_default();
        class.contains("Codec/Decoder") && (class.contains("Video") || class.contains("Image"))
    })
}

fn is_hardware(factory: &gst::ElementFactory) -> bool {
    factory.metadata("klass").is_some_and(|class| class.contains("Hardware"))
}

/// Ranks hardware decoders above all others, for this process: by itself GStreamer ranks many of them last.
fn prefer_hardware() {
    let video = gst::ElementFactoryType::DECODER | gst::ElementFactoryType::MEDIA_VIDEO;
    for factory in gst::ElementFactory::factories_with_type(video, gst::Rank::NONE) {
        if is_hardware(&factory) {
            factory.set_rank(gst::Rank::PRIMARY + 64);
        }
    }
}

/// Finds out without GStreamer what it would say less clearly.
fn check(input: &Input) -> Result<()> {
    match input {
        Input::File(path) => {
            let found = std::fs::metadata(path).map_err(Error::file("read", path))?;
            match found {
                found if found.is_dir() => Err(no_video(input, "a folder, not a file")),
                found if !found.is_file() => Ok(()),
                found if found.is_file() && found.len() == 0 => Err(no_video(input, "the file is empty")),
                found if found.is_file() && still_animation(path) => Err(no_video(
                    input,
                    "an animated PNG, of which GStreamer decodes the first picture only \
                     (ffmpeg -i FILE.png FILE.mkv makes a video of it)",
                )),
                // GStreamer 1.22 refuses it too, but once in a hundred times it waits for ever instead.
                _ => match truncated::truncation(path).filter(|found| !found.has_index) {
                    Some(found) => Err(no_video(input, found.to_string())),
                    None => Ok(()),
                },
            }
        }
        Input::Stdin => inlet::check_stdin(),
        Input::Camera(Some(device)) if !Path::new(device).exists() => {
            Err(unreachable(input, format!("there is no device {device}")))
        }
        Input::Camera(None) if doctor::cameras().is_empty() => {
            Err(unreachable(input, "no camera was found: there is no /dev/video*"))
        }
        _ => Ok(()),
    }
}

/// True for a PNG file that has more pictures than the first.
fn still_animation(path: &Path) -> bool {
    let mut head = Vec::new();
    let is_read = std::fs::File::open(path).and_then(|file| file.take(PNG_HEAD).read_to_end(&mut head));
    is_read.is_ok() && still::has_animation(&head)
}

/// While an input is opened, what fails is the input: its name helps more than an element's.
fn in_words_of_the_input(error: Error, input: &Input) -> Error {
    let may_pass = may_pass(&error);
    match error {
        Error::Pipeline { message, .. } if message == launch::NOTHING_WANTED => {
            no_video(input, NO_VIDEO_STREAM)
        }
        Error::Pipeline { message, debug, .. } | Error::Resource { message, debug, .. } => {
            // The second line of the debug text is for people.
            let detail =
                debug.split_once('\n').map(|(_, detail)| detail.trim()).filter(|detail| !detail.is_empty());
            let mut reason = message;
            if !reason.get(1..2).is_some_and(|second| second.chars().all(char::is_uppercase)) {
                reason.get_mut(..1).map(str::make_ascii_lowercase);
            }
            let reason = detail.map_or_else(|| reason.clone(), |detail| format!("{reason} ({detail})"));
            if may_pass { unreachable(input, reason) } else { no_video(input, reason) }
        }
        other => other,
    }
}

/// The error of an address that gave no video, with its server and what to try.
fn explained(error: Error, input: &Input, control: &Control) -> Error {
    let Input::Uri(uri) = input else { return error };
    if control.is_stopped() {
        return error;
    }
    let may_pass = may_pass(&error);
    let said = match &error {
        Error::NoVideo { reason, .. } | Error::Unreachable { reason, .. } if reason != NO_VIDEO_STREAM => {
            reason
        }
        _ => return error,
    };
    match uri.why_nothing_came(said, control) {
        None => error,
        Some((Server::IsAway, reason)) => unreachable(input, reason),
        Some((Server::Answers, reason)) if may_pass => unreachable(input, reason),
        Some((Server::Answers, reason)) => no_video(input, reason),
        Some((Server::Refuses, reason)) => Error::Refused { input: input.to_string(), reason },
    }
}

/// Said of an input that has something else than video.
const NO_VIDEO_STREAM: &str = "it has no video stream";

fn no_video(input: &Input, reason: impl Into<String>) -> Error {
    Error::NoVideo { input: input.to_string(), reason: reason.into() }
}

/// The same where waiting may help.
fn unreachable(input: &Input, reason: impl Into<String>) -> Error {
    Error::Unreachable { input: input.to_string(), reason: reason.into() }
}

fn failure(message: impl Into<String>) -> Error {
    Error::Pipeline { element: "frames".into(), message: message.into(), debug: String::new() }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    const SECOND: Duration = Duration::from_secs(10);

    fn spec(input: Input) -> SourceSpec {
        SourceSpec::new(input, Decoder::Software)
    }

    fn text(text: &str) -> SourceSpec {
        spec(Input::Launch(Launch::user("--source", text).unwrap()))
    }

    fn open(spec: &SourceSpec) -> Result<VideoSource> {
        VideoSource::open(spec, &Control::new())
    }

    fn refused(spec: &SourceSpec) -> Error {
        open(spec).err().expect("this should not open")
    }

    fn wait(source: &mut VideoSource) -> Frame {
        match source.wait_next(SECOND).unwrap() {
            Next::Frame(frame) => frame,
            Next::Pending => panic!("no frame came"),
            Next::Gap { reason, .. } => panic!("a gap: {reason}"),
            Next::End => panic!("the video has ended"),
        }
    }

    fn all(source: &mut VideoSource) -> Result<Vec<Frame>> {
        let mut frames = Vec::new();
        loop {
            match source.wait_next(SECOND)? {
                Next::Frame(frame) => frames.push(frame),
                Next::Pending => panic!("no frame came"),
                Next::Gap { reason, .. } => panic!("a gap: {reason}"),
                Next::End => return Ok(frames),
            }
        }
    }

    /// A file made by a gst-launch text, to which ` ! filesink` is added.
    fn clip(folder: &tempfile::TempDir, name: &str, text: &str) -> PathBuf {
        let path = folder.path().join(name);
        let mut launch = Launch::new("clip", &format!("{text} ! filesink name=out"));
        launch.set("out", "location", path.display());
        let running = Running::new(launch.build().unwrap());
        running.set_state(gst::State::Playing).unwrap();
        while running.wait(SECOND).unwrap().expect("the clip is written in time") != Milestone::Ended {}
        path
    }

    #[test]
    fn inputs_are_told_apart() {
        let parse = |text: &str| text.parse::<Input>().unwrap();
        assert_eq!(parse("clip.mp4"), Input::File("clip.mp4".into()));
        assert_eq!(parse("a:b//c.mp4"), Input::File("a:b//c.mp4".into()));
        assert_eq!(parse("rtsp://host/path"), Input::Uri("rtsp://host/path".into()));
        assert_eq!(parse("1://x"), Input::File("1://x".into()));
        assert_eq!(parse("camera"), Input::Camera(None));
        assert_eq!(parse("camera:/dev/video2"), Input::Camera(Some("/dev/video2".into())));
        assert_eq!(parse("camera2.mp4"), Input::File("camera2.mp4".into()));
        assert!("".parse::<Input>().is_err() && "camera:".parse::<Input>().is_err());
        for typed in ["clip.mp4", "rtsp://host/path", "camera", "camera:/dev/video2"] {
            assert_eq!(parse(typed).to_string(), typed);
        }
    }

    #[test]
    fn pts_survives_source() {
        let folder = tempfile::tempdir().unwrap();
        let video = "videotestsrc num-buffers=9 ! video/x-raw,framerate=25/1,width=64,height=48 ! jpegenc";
        for (name, muxer) in [("a.mov", "qtmux"), ("a.avi", "avimux"), ("a.mkv", "matroskamux")] {
            let path = clip(&folder, name, &format!("{video} ! {muxer}"));
            let mut source = open(&spec(Input::File(path))).unwrap();
            assert!(!source.is_live() && source.decoder_name() == Some("jpegdec"));
            assert_eq!(source.duration_ns().unwrap() / 1_000_000, 360, "{name}");
            let frames = all(&mut source).unwrap();
            assert_eq!(frames.len(), 9, "{name}");
            for (n, frame) in (0..).zip(&frames) {
                assert_eq!(frame.meta.index, n);
                assert_eq!(
                    (frame.meta.pts_ns, frame.meta.duration_ns),
                    (Some(n * 40_000_000), Some(40_000_000))
                );
            }
            assert_eq!(frames[0].format.frame_rate, (25, 1));
            assert!(matches!(source.wait_next(SECOND).unwrap(), Next::End), "the end stays the end");
        }
    }

    #[test]
    fn pts_counts_from_the_beginning_of_what_is_shown() {
        // An mp4 file's first frame may lie anywhere on the clock of its track; an edit list says where it is
        // shown.
        let folder = tempfile::tempdir().unwrap();
        let video = "videotestsrc num-buffers=4 timestamp-offset=1500000000 ! video/x-raw,framerate=10/1";
        let sound = "audiotestsrc num-buffers=80 ! audio/x-raw,format=S16LE,rate=44100 ! mux.";
        let path = clip(&folder, "late.mov", &format!("{sound} {video} ! jpegenc ! qtmux name=mux"));
        let mut source = open(&spec(Input::File(path))).unwrap();
        let times =
            all(&mut source).unwrap().iter().map(|f| f.meta.pts_ns.unwrap() / 1_000_000).collect::<Vec<_>>();
        assert_eq!(times, [1500, 1600, 1700, 1800]);
    }

    #[test]
    fn formats_with_a_luma_plane_are_not_converted() {
        let pattern = "videotestsrc num-buffers=2 pattern=smpte ! video/x-raw,width=51,height=37,format=";
        let luma = |format: &str| {
            let mut source = open(&text(&format!("{pattern}{format} ! appsink name=frames"))).unwrap();
            assert!(!source.launch().to_string().contains("videoconvert"), "{format}");
            let frames = all(&mut source).unwrap();
            let frame = &frames[1];
            assert_eq!((frame.format.pixels.name, frame.format.size), (format, Size::new(51, 37)));
            for index in 0..frame.format.pixels.planes() {
                let expected = frame.format.pixels.plane_size(index, frame.format.size);
                assert_eq!(frame.picture.plane(index).size(), expected, "{format} plane {index}");
            }
            frame.luma().to_plane()
        };
        let expected = luma("I420");
        // GRAY8 is left out of the comparison: videotestsrc gives it another range.
        for format in ["NV12", "YV12", "NV21", "Y42B", "Y444", "NV16", "NV61", "NV24", "Y41B", "YUV9"] {
            assert_eq!(luma(format), expected, "{format}");
        }
        luma("GRAY8");
    }

    #[test]
    fn formats_without_a_luma_plane_are_converted() {
        let pattern = "videotestsrc num-buffers=2 ! video/x-raw,width=51,height=37,format=";
        for format in ["BGR", "YUY2", "RGBA", "GRAY16_LE", "AYUV"] {
            let mut source = open(&text(&format!("{pattern}{format} ! appsink name=frames"))).unwrap();
            assert!(source.launch().to_string().contains("videoconvert"), "{format}");
            assert_eq!(all(&mut source).unwrap().len(), 2);
        }
    }

    #[test]
    fn luma_is_used_where_it_lies() {
        let folder = tempfile::tempdir().unwrap();
        // Not a multiple of 16, so that the decoder's rows and pictures are padded.
        let video = "videotestsrc num-buffers=6 ! video/x-raw,format=I420,width=330,height=250";
        let path = clip(&folder, "a.mp4", &format!("{video} ! x264enc ! mp4mux"));
        let mut source = open(&spec(Input::File(path))).unwrap();
        let mut elements = source.running.pipeline().iterate_recurse().into_iter().flatten();
        let name = source.decoder_name().unwrap();
        let decoder = elements.find(|e| e.factory().is_some_and(|factory| factory.name() == name)).unwrap();
        let decoded = Arc::new(Mutex::new(Vec::new()));
        let (seen, info) = (Arc::clone(&decoded), source.info.clone());
        decoder.static_pad("src").unwrap().add_probe(gst::PadProbeType::BUFFER, move |_, probe| {
            let buffer = probe.buffer().unwrap();
            let frame = gst_video::VideoFrameRef::from_buffer_ref_readable(buffer, &info).unwrap();
            let has_meta = buffer.meta::<gst_video::VideoMeta>().is_some();
            seen.lock().unwrap().push((has_meta, frame.plane_data(0).unwrap().as_ptr() as usize));
            gst::PadProbeReturn::Ok
        });
        let frames = all(&mut source).unwrap();
        // Padding is told of, not taken out.
        let delivered = frames.iter().map(|f| (true, f.luma().row(0).as_ptr() as usize)).collect::<Vec<_>>();
        let decoded = decoded.lock().unwrap();
        // The first frames had been decoded before the probe was there.
        assert!(decoded.len() >= 2);
        assert!(delivered.ends_with(&decoded));
    }

    #[test]
    fn ten_bit_files_become_eight_bit() {
        let folder = tempfile::tempdir().unwrap();
        let video =
            "videotestsrc num-buffers=3 pattern=gradient ! video/x-raw,width=64,height=48,format=I420_10LE";
        let path = clip(&folder, "a.mkv", &format!("{video} ! avenc_ffv1 ! matroskamux"));
        let mut source = open(&spec(Input::File(path))).unwrap();
        assert_eq!(source.format().pixels.name, "I420");
        let frame = all(&mut source).unwrap().pop().unwrap();
        let same = "videotestsrc num-buffers=3 pattern=gradient ! video/x-raw,width=64,height=48,format=I420";
        let eight =
            all(&mut open(&text(&format!("{same} ! appsink name=frames"))).unwrap()).unwrap().pop().unwrap();
        for (ten, eight) in frame.luma().rows().flatten().zip(eight.luma().rows().flatten()) {
            assert!(ten.abs_diff(*eight) <= 1, "{ten} {eight}");
        }
    }

    /// Says in a `QuickTime` file that it is to be turned by 90 degrees clockwise, as a telephone held
    /// upright does.
    fn turn(path: &Path) {
        let mut bytes = std::fs::read(path).unwrap();
        let header = bytes.windows(4).position(|w| w == b"tkhd").unwrap();
        let matrix: [u32; 9] = [0, 0x1_0000, 0, 0xFFFF_0000, 0, 0, 0, 0, 0x4000_0000];
        for (n, value) in matrix.into_iter().enumerate() {
            // Version and flags, times, track, duration, layer, group and volume come before the matrix.
            bytes[header + 44 + 4 * n..][..4].copy_from_slice(&value.to_be_bytes());
        }
        std::fs::write(path, bytes).unwrap();
    }

    #[test]
    fn rotated_clip_is_upright() {
        let folder = tempfile::tempdir().unwrap();
        // Dark on the left, bright on the right; the second format is one that videoflip does not take.
        for format in ["I420", "Y42B"] {
            let left = "videotestsrc num-buffers=3 pattern=black ! video/x-raw,width=32,height=48 ! mix.";
            let right = "videotestsrc num-buffers=3 pattern=white ! video/x-raw,width=32,height=48 ! mix.";
            let mix = "compositor name=mix sink_1::xpos=32 ! videoconvert ! video/x-raw,width=64,height=48";
            let text = format!("{left} {right} {mix},format={format} ! jpegenc ! qtmux");
            let path = clip(&folder, "a.mov", &text);
            turn(&path);
            let mut source = open(&spec(Input::File(path))).unwrap();
            assert_eq!(source.format().size, Size::new(48, 64), "{}", source.launch());
            let frames = all(&mut source).unwrap();
            assert_eq!(frames.len(), 3);
            let luma = frames[2].luma();
            let (top, bottom) = (luma.row(8)[24], luma.row(56)[24]);
            // Turned clockwise, the left side is at the top.
            assert!(top < 50 && bottom > 200, "{format}: {top} above {bottom}");
        }
    }

    #[test]
    fn interlaced_clip_is_deinterlaced_frame_by_frame() {
        let folder = tempfile::tempdir().unwrap();
        // Each interlaced frame is made of two.
        let video =
            "videotestsrc num-buffers=16 pattern=ball ! video/x-raw,framerate=50/1,width=64,height=48";
        let encoder = "interlace field-pattern=1:1 ! x264enc interlaced=true ! mp4mux";
        let path = clip(&folder, "a.mp4", &format!("{video} ! {encoder}"));
        let mut source = open(&spec(Input::File(path))).unwrap();
        assert!(source.launch().to_string().contains("deinterlace"), "{}", source.launch());
        let times = all(&mut source).unwrap().iter().map(|f| f.meta.pts_ns.unwrap()).collect::<Vec<_>>();
        assert_eq!(times.len(), 8);
        assert!(times.windows(2).all(|pair| pair[1] - pair[0] == 40_000_000), "{times:?}");
    }

    #[test]
    fn a_new_format_comes_with_its_first_frame() {
        let part =
            |caps: &str| format!("videotestsrc num-buffers=2 ! video/x-raw,framerate=10/1,{caps} ! c.");
        let (first, second) =
            (part("format=GRAY8,width=64,height=48"), part("format=I420,width=32,height=24"));
        let mut source =
            open(&text(&format!("concat name=c ! appsink name=frames {first} {second}"))).unwrap();
        let frames = all(&mut source).unwrap();
        let seen = frames.iter().map(|f| (f.format.pixels.name, f.format.size.width)).collect::<Vec<_>>();
        assert_eq!(seen, [("GRAY8", 64), ("GRAY8", 64), ("I420", 32), ("I420", 32)]);
        assert!(Arc::ptr_eq(&frames[0].format, &frames[1].format));
        assert_eq!(source.format().pixels.name, "I420");
    }

    #[test]
    fn a_format_that_cannot_be_used_ends_in_an_error() {
        let part = |format| format!("videotestsrc num-buffers=2 ! video/x-raw,format={format} ! c.");
        let parts = format!("{} {} {}", part("GRAY8"), part("BGR"), part("GRAY8"));
        let mut source = open(&text(&format!("concat name=c ! appsink name=frames {parts}"))).unwrap();
        assert_eq!([wait(&mut source).meta.index, wait(&mut source).meta.index], [0, 1]);
        let error = source.wait_next(SECOND).err().unwrap();
        assert!(error.to_string().contains("BGR has no 8-bit luma plane"), "{error}");
        assert!(source.wait_next(SECOND).is_err(), "nothing comes after an error");
    }

    #[test]
    fn frames_before_an_error_are_delivered() {
        let video = "videotestsrc ! video/x-raw,format=GRAY8 ! identity name=breaks error-after=6";
        let mut source = open(&text(&format!("{video} ! appsink name=frames"))).unwrap();
        // The error is there long before the frames are taken.
        std::thread::sleep(Duration::from_millis(100));
        let mut frames = 0;
        let error = loop {
            match source.wait_next(SECOND) {
                Ok(Next::Frame(_)) => frames += 1,
                Ok(_) => panic!("an error was turned into something else after {frames} frames"),
                Err(error) => break error,
            }
        };
        assert!(frames >= 5, "{frames} frames");
        assert!(matches!(&error, Error::Pipeline { element, .. } if element == "breaks"), "{error}");
        assert!(source.try_next().is_err(), "an error is never followed by an end");
    }

    #[test]
    fn a_live_source_that_fails_is_connected_anew_where_that_is_asked_for() {
        let video =
            "videotestsrc is-live=true ! video/x-raw,format=GRAY8,framerate=100/1 ! identity error-after=12";
        let text = text(&format!("{video} ! appsink name=frames"));
        let mut source = open(&SourceSpec { live: Some(false), reconnect: true, ..text }).unwrap();
        let (mut frames, mut gaps) = (Vec::new(), Vec::new());
        let deadline = Instant::now() + SECOND;
        while gaps.len() < 2 || frames.len() < 25 {
            assert!(Instant::now() < deadline, "{} frames, {} gaps", frames.len(), gaps.len());
            match source.wait_next(Duration::from_millis(20)).unwrap() {
                Next::Frame(frame) => frames.push(frame.meta),
                Next::Gap { away, reason } => {
                    assert!(reason.contains("Failed after iterations"), "{reason}");
                    gaps.push((frames.len(), away));
                }
                Next::Pending => {}
                Next::End => panic!("a source that is connected anew does not end"),
            }
        }
        // Numbers and times go on; times by the clock, with what was missed.
        assert!(frames.iter().zip(0..).all(|(meta, index)| meta.index == index));
        let times: Vec<_> = frames.iter().map(|meta| meta.pts_ns.unwrap()).collect();
        assert!(times.is_sorted(), "{times:?}");
        for (at, _) in &gaps {
            assert!(frames[*at].arrived - frames[at - 1].arrived < Duration::from_secs(5));
        }
        let start = Instant::now();
        drop(source);
        assert!(start.elapsed() < Duration::from_secs(2));
    }

    #[test]
    fn what_never_passes_is_not_waited_for() {
        let live = "videotestsrc is-live=true ! appsink name=frames";
        let sound = "audiotestsrc is-live=true num-buffers=9 ! appsink name=frames";
        for (typed, said) in [
            (sound.to_owned(), "not video: audio/x-raw"),
            (live.replace('!', "! identity error-after=1 !"), "Failed after iterations"),
        ] {
            let (sender, opened) = crossbeam_channel::bounded(1);
            let control = Control::new();
            let (spec, gives_up) = (SourceSpec { reconnect: true, ..text(&typed) }, control.clone());
            let opening = std::thread::spawn(move || {
                let _ = sender.send(VideoSource::open(&spec, &gives_up).err());
            });
            let error = opened.recv_timeout(SECOND);
            control.stop();
            opening.join().unwrap();
            let error = error.expect("it waits").expect("it opens").to_string();
            assert!(error.to_lowercase().contains(&said.to_lowercase()), "{error}");
        }
    }

    #[test]
    fn what_is_not_there_yet_is_waited_for() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("late.avi");
        let typed = format!("filesrc location={} ! decodebin ! appsink name=frames", path.display());
        let error = refused(&text(&typed));
        assert!(matches!(error, Error::Unreachable { .. }), "{error:?}");
        let coming = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(300));
            let made = clip(&folder, "made.avi", "videotestsrc num-buffers=5 ! jpegenc ! avimux");
            std::fs::rename(made, path).unwrap();
            folder
        });
        let mut source = open(&SourceSpec { reconnect: true, ..text(&typed) }).unwrap();
        assert_eq!(all(&mut source).unwrap().len(), 5);
        coming.join().unwrap();
    }

    #[test]
    fn a_search_for_a_lost_source_ends_with_its_owner() {
        // Succeeds once only: the file is gone then.
        let folder = tempfile::tempdir().unwrap();
        let path = clip(&folder, "a.avi", "videotestsrc num-buffers=5 ! jpegenc ! avimux");
        let video = format!("filesrc location={} ! decodebin ! identity sync=true", path.display());
        let text = text(&format!(
            "{video} ! videoconvert ! queue ! c. videotestsrc is-live=true ! fakesink sync=true \
             concat name=c ! appsink name=frames"
        ));
        let mut source = open(&SourceSpec { reconnect: true, ..text }).unwrap();
        assert!(source.is_real_time);
        std::fs::remove_file(path).unwrap();
        let deadline = Instant::now() + SECOND;
        while !matches!(source.state, State::Away(_)) {
            assert!(Instant::now() < deadline);
            let _ = source.wait_next(Duration::from_millis(20)).unwrap();
        }
        std::thread::sleep(Duration::from_millis(600));
        assert!(matches!(source.try_next().unwrap(), Next::Pending));
        let start = Instant::now();
        drop(source);
        assert!(start.elapsed() < Duration::from_secs(2));
    }

    #[test]
    fn frames_without_times_continue_those_before() {
        let mut times = Times::default();
        let told = [Some(100), None, Some(190), None, None, Some(500)];
        let given = told.map(|own| times.next(own, (0, 1)));
        let expected = [(Some(100), false), (None, false), (Some(190), false)];
        assert_eq!(given[..3], expected, "nothing is known of the step before the second time");
        assert_eq!(given[3..], [(Some(280), true), (Some(370), true), (Some(500), false)]);
        let mut times = Times::default();
        let given = [None, None, Some(70), None].map(|own| times.next(own, (25_000_000, 1)));
        assert_eq!(given, [(Some(0), true), (Some(40), true), (Some(70), false), (Some(110), true)]);
    }

    #[test]
    fn a_stream_without_any_time_gets_those_of_its_rate() {
        let folder = tempfile::tempdir().unwrap();
        let video = "videotestsrc num-buffers=4 ! video/x-raw,format=GRAY8,width=64,height=48";
        let path = clip(&folder, "raw", video);
        let raw = format!("filesrc location={} blocksize=3072", path.display());
        let caps = "video/x-raw,format=GRAY8,width=64,height=48,framerate=25/1";
        let mut source = open(&text(&format!("{raw} ! {caps} ! appsink name=frames"))).unwrap();
        let frames = all(&mut source).unwrap();
        let times = frames.iter().map(|f| f.meta.pts_ns.unwrap() / 1_000_000).collect::<Vec<_>>();
        // The first may carry the segment's start.
        assert_eq!(times, [0, 40, 80, 120]);
        assert!(frames[1..].iter().all(|frame| frame.circumstances.is_pts_interpolated));
    }

    #[test]
    fn damaged_packets_are_counted_and_decoding_goes_on() {
        let folder = tempfile::tempdir().unwrap();
        let video = "videotestsrc num-buffers=60 pattern=snow ! video/x-raw,width=160,height=120";
        for (name, mux) in [("a.mkv", "matroskamux"), ("a.ts", "mpegtsmux"), ("a.avi", "avimux")] {
            let path = clip(&folder, name, &format!("{video} ! x264enc key-int-max=10 ! h264parse ! {mux}"));
            let mut bytes = std::fs::read(&path).unwrap();
            // Every 5000th byte of the middle: inside packets, but for a few headers.
            let (from, to) = (bytes.len() / 3, bytes.len() * 2 / 3);
            bytes[from..to].iter_mut().step_by(5000).for_each(|byte| *byte ^= 0xFF);
            std::fs::write(&path, bytes).unwrap();
            let mut source = open(&spec(Input::File(path))).unwrap();
            let frames = all(&mut source).unwrap();
            assert!(frames.len() >= 45, "{name}: {} frames", frames.len());
            assert!(source.damaged() > 0, "{name}");
        }
    }

    #[test]
    fn a_camera_is_asked_for_luma_first_and_for_what_was_typed() {
        let camera = CameraMode { size: Some(Size::new(640, 480)), frame_rate: Some((60, 1)) };
        let spec = SourceSpec { camera, ..spec(Input::Camera(Some("/dev/video0".into()))) };
        let pipeline = spec.launch().unwrap().build().unwrap();
        let caps = pipeline.by_name("mode").unwrap().property::<gst::Caps>("caps");
        assert_eq!(caps.size(), 3);
        let names: Vec<_> = caps.iter().map(|kind| kind.name().as_str()).collect();
        assert_eq!(names, ["video/x-raw", "image/jpeg", "video/x-raw"]);
        for kind in caps.iter() {
            assert_eq!((kind.get::<i32>("width"), kind.get::<i32>("height")), (Ok(640), Ok(480)));
            assert_eq!(kind.get::<gst::Fraction>("framerate"), Ok(gst::Fraction::new(60, 1)));
        }
        let nv12 =
            "video/x-raw,format=NV12,width=640,height=480,framerate=60/1".parse::<gst::Caps>().unwrap();
        assert!(caps.can_intersect(&nv12));
    }

    #[test]
    fn caps_of_nothing_and_rates_below_zero_are_not_believed() {
        crate::launch::init().unwrap();
        let of = |caps: &str| describe(&caps.parse::<gst::Caps>().unwrap());
        for size in ["width=0,height=1", "width=-40,height=80", "width=1,height=-1", "width=65536,height=1"] {
            assert!(of(&format!("video/x-raw,format=GRAY8,{size},framerate=1/1")).is_err(), "{size}");
        }
        let (_, format) =
            of("video/x-raw,format=GRAY8,width=1,height=1,framerate=-25/1,pixel-aspect-ratio=-1/2").unwrap();
        assert_eq!((format.frame_rate, format.pixel_aspect), ((0, 1), (1, 1)));
    }

    #[test]
    fn live_frames_tell_when_they_were_captured() {
        let video = "videotestsrc is-live=true num-buffers=20 ! video/x-raw,format=GRAY8,framerate=50/1";
        // What is late by 30 ms was captured 30 ms before it came.
        let mut source =
            open(&text(&format!("{video} ! identity sleep-time=15000 ! appsink name=frames"))).unwrap();
        let mut ages = Vec::new();
        while let Next::Frame(frame) = source.wait_next(SECOND).unwrap() {
            ages.push(frame.meta.arrived - frame.circumstances.captured.unwrap());
        }
        assert!(ages.iter().all(|age| (10..500).contains(&age.as_millis())), "{ages:?}");
    }

    #[test]
    fn frames_that_come_together_are_all_taken_and_older_ones_dropped() {
        launch::init().unwrap();
        let start = Instant::now();
        let waiting = |arrivals_ms: &[u64]| {
            let arrival = |(index, ms): (u64, &u64)| Arrival {
                index,
                at: start + Duration::from_millis(*ms),
                captured: None,
                sample: gst::Sample::builder().build(),
            };
            let mut waiting: VecDeque<_> = (0..).zip(arrivals_ms).map(arrival).collect();
            let dropped = drop_late(&mut waiting);
            (dropped, waiting.iter().map(|arrival| arrival.index).collect::<Vec<_>>())
        };
        assert_eq!(waiting(&[]), (0, vec![]));
        assert_eq!(waiting(&[5]), (0, vec![0]));
        assert_eq!(waiting(&[0, 16, 33]), (2, vec![2]));
        assert_eq!(waiting(&[0, 40, 41, 42]), (1, vec![1, 2, 3]));
    }

    #[test]
    fn late_frames_are_dropped_oldest_first() {
        launch::init().unwrap();
        let feed = Feed::default();
        let samples = feed.open(true, true);
        let push = |index| {
            let arrival =
                Arrival { index, at: Instant::now(), captured: None, sample: gst::Sample::builder().build() };
            feed.push(arrival).unwrap();
        };
        for index in 0..9 {
            push(index);
        }
        let kept: Vec<_> = samples.try_iter().map(|arrival| arrival.index).collect();
        assert_eq!(kept, [5, 6, 7, 8]);
        push(9);
        assert_eq!(samples.try_recv().unwrap().index, 9);
        assert_eq!(feed.counts.dropped.load(Ordering::Relaxed), 5);
        feed.end();
        assert!(matches!(samples.try_recv().err(), Some(TryRecvError::Disconnected)));
    }

    #[test]
    fn gaps_in_the_numbers_of_live_frames_are_the_dropped_ones() {
        let video = "videotestsrc is-live=true num-buffers=40 ! video/x-raw,format=GRAY8,framerate=100/1";
        let mut source = open(&text(&format!("{video} ! appsink name=frames"))).unwrap();
        assert!(source.is_live());
        let mut indices = Vec::new();
        while let Next::Frame(frame) = source.wait_next(SECOND).unwrap() {
            indices.push(frame.meta.index);
            std::thread::sleep(Duration::from_millis(35));
        }
        assert!(indices.is_sorted() && *indices.last().unwrap() == 39, "{indices:?}");
        assert!(source.dropped() > 0);
        assert_eq!(source.dropped(), 40 - indices.len() as u64, "{indices:?}");
    }

    #[test]
    fn a_slow_reader_loses_nothing_of_a_file() {
        let video = "videotestsrc num-buffers=30 ! video/x-raw,format=GRAY8 ! appsink name=frames";
        let mut source = open(&text(video)).unwrap();
        for n in 0..30 {
            assert_eq!(wait(&mut source).meta.index, n);
            std::thread::sleep(Duration::from_millis(2));
        }
        assert!(matches!(source.wait_next(SECOND).unwrap(), Next::End));
        assert_eq!(source.dropped(), 0);
    }

    #[test]
    fn a_file_that_is_live_plays_at_its_own_speed() {
        let folder = tempfile::tempdir().unwrap();
        let video = "videotestsrc num-buffers=10 ! video/x-raw,framerate=25/1 ! jpegenc ! avimux";
        let path = clip(&folder, "a.avi", video);
        let mut source = open(&SourceSpec { live: Some(true), ..spec(Input::File(path)) }).unwrap();
        assert!(source.is_live() && source.launch().to_string().contains("sync=true"));
        let start = Instant::now();
        while let Next::Frame(_) = source.wait_next(SECOND).unwrap() {}
        assert!(start.elapsed() >= Duration::from_millis(300), "{:?}", start.elapsed());
    }

    #[test]
    fn dropping_a_source_lets_go_of_a_waiting_decoder() {
        for live in [None, Some(true)] {
            let video = "videotestsrc ! video/x-raw,format=GRAY8 ! appsink name=frames";
            let mut source = open(&SourceSpec { live, ..text(video) }).unwrap();
            let frame = wait(&mut source);
            let pipeline = source.running.pipeline().clone();
            std::thread::sleep(Duration::from_millis(20));
            let start = Instant::now();
            drop(source);
            assert!(start.elapsed() < Duration::from_secs(2));
            assert_eq!(pipeline.current_state(), gst::State::Null);
            // What was delivered stays readable.
            assert_eq!(frame.luma().rows().count(), 240);
        }
    }

    #[test]
    fn inputs_without_video_are_refused_in_plain_words() {
        let folder = tempfile::tempdir().unwrap();
        let file = |name: &str, bytes: &[u8]| {
            let path = folder.path().join(name);
            std::fs::write(&path, bytes).unwrap();
            spec(Input::File(path))
        };
        let said = |spec: &SourceSpec, expected: &str| {
            let start = Instant::now();
            let error = refused(spec);
            assert!(!error.is_usage() && error.to_string().contains(expected), "{error}");
            assert!(start.elapsed() < Duration::from_secs(5), "{error}");
        };
        said(&spec(Input::File("/no/such/clip.mp4".into())), "cannot read /no/such/clip.mp4: No such file");
        said(&spec(Input::File(folder.path().into())), "a folder, not a file");
        said(&file("empty.mp4", b""), "the file is empty");
        let noise = (0..50_000u64).map(|n| (n.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 56) as u8);
        said(&file("noise.mp4", &noise.collect::<Vec<_>>()), "noise.mp4: could not determine");

        let video = "videotestsrc num-buffers=5 ! jpegenc ! qtmux";
        let whole = std::fs::read(clip(&folder, "whole.mp4", video)).unwrap();
        said(&file("cut.mp4", &whole[..whole.len() / 2]), "cut.mp4: the file is cut off");
        let sound = clip(&folder, "sound.mkv", "audiotestsrc num-buffers=5 ! vorbisenc ! matroskamux");
        said(&spec(Input::File(sound)), "sound.mkv: it has no video stream");
        said(&spec(Input::Camera(Some("/dev/no-camera".into()))), "there is no device /dev/no-camera");
        said(&spec(Input::Uri("nosuchscheme://host/x".into())), "nosuchscheme");
        said(&text("audiotestsrc num-buffers=3 ! appsink name=frames"), "not video: audio/x-raw");
        said(&text("videotestsrc num-buffers=0 ! appsink name=frames"), "it has no frame");
    }

    #[test]
    fn a_pipe_may_be_silent_for_longer_than_a_camera() {
        let folder = tempfile::tempdir().unwrap();
        let clip = clip(&folder, "a.ts", "videotestsrc num-buffers=20 ! x264enc ! mpegtsmux");
        let pipe = folder.path().join("pipe");
        assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
        let place = pipe.clone();
        let writing = std::thread::spawn(move || {
            let mut pipe = std::fs::OpenOptions::new().write(true).open(place).unwrap();
            std::thread::sleep(FIRST_FRAME + Duration::from_secs(1));
            std::io::copy(&mut std::fs::File::open(clip).unwrap(), &mut pipe).unwrap();
        });
        let mut source = open(&spec(Input::File(pipe))).unwrap();
        assert_eq!(all(&mut source).unwrap().len(), 20);
        writing.join().unwrap();
    }

    #[test]
    fn a_login_is_given_to_the_server_that_was_typed_and_to_no_other() {
        launch::init().unwrap();
        let user = |element: &gst::Element| element.property::<Option<String>>("user-id").unwrap_or_default();
        let source = |location: &str| {
            let source = gst::ElementFactory::make("souphttpsrc").property("location", location);
            source.build().unwrap()
        };
        let pipeline = gst::Pipeline::new();
        let typed = source("http://camera:8080/list.m3u8");
        pipeline.add(&typed).unwrap();
        give_login(&pipeline, Login::new("admin", "s3cret"));
        let (piece, stranger) = (source("http://camera:8080/1.ts"), source("http://elsewhere:8080/1.ts"));
        let other_port = source("http://camera/1.ts");
        pipeline.add_many([&piece, &stranger, &other_port]).unwrap();
        let users = [&typed, &piece, &stranger, &other_port].map(user);
        assert_eq!(users, ["admin", "admin", "", ""]);
    }

    #[test]
    fn text_without_its_one_appsink_is_wrong_usage() {
        for (typed, expected) in [
            ("videotestsrc ! fakesink", "no appsink named \"frames\""),
            ("videotestsrc ! appsink", "no appsink named \"frames\""),
            ("videotestsrc ! fakesink name=frames", "not a fakesink"),
            ("videotestsrc ! tee name=t ! appsink name=frames t. ! appsink", "2 appsinks"),
            ("videotestsrc ! vidoeconvert ! appsink name=frames", "\"vidoeconvert\""),
            ("videotestsrc pattern=nosuch ! appsink name=frames", "pattern"),
        ] {
            let error = refused(&text(typed));
            assert!(error.is_usage() && error.to_string().contains(expected), "{typed}: {error}");
        }
    }

    #[test]
    fn opening_stops_when_it_is_asked_to() {
        // A live source that never gives a frame.
        let silent = text("appsrc is-live=true ! video/x-raw ! appsink name=frames");
        let (start, control) = (Instant::now(), Control::new());
        let stops = control.clone();
        let stopping = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(300));
            stops.stop();
        });
        let error = VideoSource::open(&silent, &control).err().unwrap();
        stopping.join().unwrap();
        // On a busy machine the pipeline may not even be built by then.
        let is_told = matches!(error, Error::Stopped) || error.to_string().contains("interrupted");
        assert!(is_told, "{error}");
        assert!(start.elapsed() < Duration::from_secs(5));
    }

    #[test]
    fn printed_pipelines_run_with_a_fakesink() {
        let folder = tempfile::tempdir().unwrap();
        let path = clip(&folder, "it's a clip.mov", "videotestsrc num-buffers=3 ! jpegenc ! qtmux");
        let source = open(&spec(Input::File(path))).unwrap();
        let line = source.launch().to_string().replace("appsink", "fakesink");
        let words = std::process::Command::new("sh")
            .args(["-c", &format!("printf '%s\\n' {line}")])
            .output()
            .unwrap();
        let words = String::from_utf8(words.stdout).unwrap();
        let pipeline = gst::parse::launchv(&words.lines().collect::<Vec<_>>()).unwrap();
        let running = Running::new(pipeline.downcast().unwrap());
        running.set_state(gst::State::Playing).unwrap();
        while running.wait(SECOND).unwrap().expect("it ends in time") != Milestone::Ended {}
    }

    #[test]
    fn a_broken_last_picture_is_an_error_and_no_fault_of_gstreamers() {
        launch::init().unwrap();
        let said = Arc::new(Mutex::new(Vec::new()));
        let hears = Arc::clone(&said);
        let criticals = glib::LogLevels::LEVEL_CRITICAL;
        let handler = glib::log_set_handler(Some("GStreamer"), criticals, false, false, move |_, _, text| {
            // Other tests run at the same time: this is the thread that reads pictures.
            let thread = std::fs::read_to_string("/proc/thread-self/comm").unwrap_or_default();
            hears.lock().unwrap().extend(thread.starts_with("input").then(|| text.to_owned()));
        });
        let folder = tempfile::tempdir().unwrap();
        let grey = image::GrayImage::from_pixel(32, 24, image::Luma([99]));
        for name in ["0.jpg", "1.jpg"] {
            grey.save(folder.path().join(name)).unwrap();
        }
        std::fs::write(folder.path().join("2.jpg"), "nonsense").unwrap();
        let mut source = open(&spec(Input::Pictures(Pictures::typed(folder.path()).unwrap()))).unwrap();
        let error = all(&mut source).err().unwrap().to_string();
        drop(source);
        glib::log_remove_handler(Some("GStreamer"), handler);
        assert!(error.contains("2.jpg: its end is missing"), "{error}");
        assert_eq!(*said.lock().unwrap(), Vec::<String>::new());
    }

    #[test]
    fn what_is_told_of_an_input_is_what_runs() {
        let folder = tempfile::tempdir().unwrap();
        let pictures = "videotestsrc num-buffers=3 ! pngenc ! multifilesink name=pictures";
        let mut launch = Launch::new("pictures", pictures);
        launch.set("pictures", "location", folder.path().join("%d0.png").display());
        let running = Running::new(launch.build().unwrap());
        running.set_state(gst::State::Playing).unwrap();
        while running.wait(SECOND).unwrap().expect("they are written in time") != Milestone::Ended {}
        let spec = spec(Input::Pictures(Pictures::typed(folder.path()).unwrap()));
        let mut source = open(&spec).unwrap();
        let words = |launch: &Launch| {
            let line = launch.to_string();
            let words = line.split(' ').filter(|word| !word.contains("location=")).map(str::to_owned);
            words.collect::<Vec<_>>()
        };
        // Where the links are differs from run to run, and the decoder's picture has to be converted.
        let (told, runs) = (words(&spec.launch().unwrap()), words(source.launch()));
        assert!(told.iter().all(|word| runs.contains(word)), "{told:?} {runs:?}");
        assert_eq!(all(&mut source).unwrap().len(), 3);
    }

    #[test]
    fn every_input_pipeline_can_be_built() {
        // The project's root is above the crate's folder, in which Cargo starts this.
        let here = std::env::current_dir().unwrap();
        let mut rtsp = here.ancestors().map(|folder| folder.join("pipelines/rtsp.launch"));
        let rtsp = rtsp.find(|path| path.exists()).expect("the project's pipelines are above");
        for input in [
            Input::File("clip.mp4".into()),
            Input::Uri("https://host/clip.mp4".into()),
            Input::Camera(Some("/dev/video0".into())),
            Input::Launch(Launch::user("--source", &format!("@{}", rtsp.display())).unwrap()),
        ] {
            for decoder in [Decoder::Auto, Decoder::Software] {
                let launch = SourceSpec::new(input.clone(), decoder).launch().unwrap();
                let pipeline = launch.build().unwrap_or_else(|error| panic!("{input}: {error}"));
                the_appsink(&launch, &pipeline).unwrap();
            }
        }
    }
}
