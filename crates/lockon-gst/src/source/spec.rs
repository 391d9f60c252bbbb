//! The request to open a source, and its pipeline's text.

use std::fs::File;
use std::path::PathBuf;
use std::sync::Arc;

use gst::glib;
use gst::prelude::*;
use gst_app::gst_base::prelude::BaseSrcExt;

use super::image_sequence::PictureFiles;
use super::{Decoder, Input, LOG, Login, inlet};
use crate::cuda::{FEATURE, Surfaces};
use crate::detections::DetectionFilter;
use crate::doctor;
use crate::launch::{self, Launch};
use lockon_core::config::Moment;
use lockon_core::error::Result;
use lockon_core::files;
use lockon_core::frame::{PixelFormat, Size};
use lockon_core::text;

/// Jitter of local networks is some milliseconds, of others some dozens.
pub const DEFAULT_JITTER_MS: u32 = 200;

/// A request to open a source.
#[derive(Debug, Clone)]
pub struct SourceSpec {
    /// The origin of the video.
    pub input: Input,
    /// Allowed decoders.
    pub decoder: Decoder,
    /// True drops late frames, false keeps all; `None` lets the source decide.
    ///
    /// A file that is live plays at its own speed, as a camera would.
    pub live: Option<bool>,
    /// A lost live source is reconnected, however long that takes.
    pub reconnect: bool,
    /// The number of the video stream that is used, counted from 0 among the video streams; `None` for the
    /// one that is flagged as default, or the first.
    pub video_stream: Option<u32>,
    /// Requested mode of a camera; for pictures, the frame rate alone.
    pub camera: CameraMode,
    /// User and password for the server, where the address has no password.
    pub login: Option<Login>,
    /// The jitter buffer of a URI's network source in milliseconds: less is sooner, more is smoother.
    pub jitter_ms: u32,
    /// The device that hardware decoders may leave their pictures on.
    pub surfaces: Surfaces,
    /// Maximum threads of a decoder in software, if the decoder has such a setting; by default most use all
    /// cores.
    pub decoder_threads: Option<u32>,
    /// Detections of the pipeline to follow.
    pub detections: Option<DetectionFilter>,
    /// The place in a file where decoding begins: the last key frame that is not after this time, in
    /// nanoseconds. Frames are numbered from there, and times do not change.
    pub seek_ns: Option<u64>,
    /// The first wanted frame. Earlier frames may be skipped if the others keep their numbers: then decoding
    /// begins later.
    pub wanted_from: Option<Moment>,
    /// The input's file, if it is open already: it is read, even if another file gets its name later. No
    /// other file is opened for it, so lists of files are refused.
    pub opened: Option<Arc<File>>,
    /// As `opened`, for pictures: each with the name that messages use.
    pub opened_pictures: Option<Arc<Vec<(PathBuf, File)>>>,
    /// True if only the input itself may be opened: playlists are refused, and HTTP redirects are not
    /// followed. `opened` implies it.
    pub is_confined: bool,
    /// True if only the luma of pictures in files is used: their frames may be grey.
    pub luma_only: bool,
}

/// Requested mode of a camera, which chooses the rest itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CameraMode {
    /// Size of its pictures.
    pub size: Option<Size>,
    /// Frames a second, as a fraction.
    pub frame_rate: Option<(i32, i32)>,
}

impl CameraMode {
    /// Accepted caps, best first: pictures with a luma plane, JPEG, and what must be converted.
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
    /// An input as it comes: the source decides whether it is live, and is not reconnected.
    pub fn new(input: Input, decoder: Decoder) -> Self {
        let camera = CameraMode::default();
        let (live, login) = (None, None);
        let (surfaces, decoder_threads) = (Surfaces::default(), None);
        let jitter_ms = DEFAULT_JITTER_MS;
        Self {
            input,
            decoder,
            live,
            reconnect: false,
            video_stream: None,
            camera,
            login,
            jitter_ms,
            surfaces,
            decoder_threads,
            detections: None,
            seek_ns: None,
            wanted_from: None,
            opened: None,
            opened_pictures: None,
            is_confined: false,
            luma_only: false,
        }
    }

    /// The path of the input's file, if it is one: its own, or the system's name of a file that is open
    /// already.
    pub fn file(&self) -> Option<PathBuf> {
        match (&self.input, &self.opened) {
            (Input::File(_), Some(opened)) => inlet::path_of(opened).ok(),
            (Input::File(path), None) => Some(path.clone()),
            _ => None,
        }
    }

    fn is_software(&self) -> bool {
        self.decoder == Decoder::Software
    }

    /// True if it can be lost and found again: not a file, and not an input that can be read only once.
    pub fn can_reconnect(&self) -> bool {
        matches!(self.input, Input::Uri(_) | Input::Camera(_) | Input::Launch(_))
            && self.input.file().is_none()
    }

    /// True if frames come at the source's own pace: a camera's, a network stream's. Answers as far as is
    /// possible without opening it.
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
                // An element with a URI has no source before it starts.
                let is_text = |spec: &glib::ParamSpec| spec.value_type() == glib::Type::STRING;
                let uri = element
                    .find_property("uri")
                    .filter(is_text)
                    .and_then(|_| element.property::<Option<String>>("uri"));
                is_real_time_source(&element) || uri.is_some_and(|uri| is_real_time_uri(&uri))
            }),
        })
    }

    /// The pipeline for the input, as far as it is known without opening it, as text that GStreamer alone can
    /// run. A pipe is standard input there; pictures are decoded by GStreamer's elements, and may need links.
    /// Both are warned of.
    ///
    /// # Errors
    /// `Launch` if gst-launch text has nothing named `frames`; for pictures that are not there as
    /// [`VideoSource::open`](super::VideoSource::open).
    pub fn launch(&self) -> Result<Launch> {
        let pictures = self.pictures()?;
        match &self.input {
            Input::File(path) if files::is_pipe(path) => {
                let path = text::without_controls(&path.to_string_lossy()).into_owned();
                tracing::warn!(target: LOG, "{path} is opened by the program: the text reads standard input (< {path})");
            }
            _ => {}
        }
        if let Some(pictures) = &pictures {
            let input = &self.input;
            tracing::warn!(target: LOG,
                "{input}: lockon decodes pictures itself: GStreamer's decoders in the text do not turn, convert and \
                 check them as it does"
            );
            if matches!(input, Input::Pictures(_)) && pictures.needs_links() {
                tracing::warn!(target: LOG,
                    "{input}: the text reads links that are numbered (lockon-pictures/00000000 and so on): make them \
                     first"
                );
            }
        }
        self.launch_for(pictures.as_ref())
    }

    /// The pictures that the input stands for, a file that is one included.
    pub(super) fn pictures(&self) -> Result<Option<PictureFiles>> {
        match (&self.input, &self.opened_pictures) {
            (Input::Pictures(pictures), Some(opened)) => PictureFiles::opened(pictures, opened).map(Some),
            (Input::Pictures(pictures), None) => pictures.find().map(Some),
            (Input::File(named), _) => Ok(self
                .file()
                .filter(|path| inlet::is_regular(path))
                .and_then(|path| PictureFiles::single(&path, named))),
            _ => Ok(None),
        }
    }

    /// The pipeline for the input, whose pictures these are, by GStreamer's elements.
    pub(super) fn launch_for(&self, pictures: Option<&PictureFiles>) -> Result<Launch> {
        let software = self.is_software();
        let mut launch = match &self.input {
            Input::File(path) if files::is_pipe(path) => inlet::pipe_launch(software),
            Input::File(path) => {
                let mut launch = Launch::new("file.launch", include_str!("../../pipelines/file.launch"));
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
                let mut launch = Launch::new("uri.launch", include_str!("../../pipelines/uri.launch"));
                launch.set("input", "uri", uri.as_typed());
                if software {
                    launch.set("input", "force-sw-decoders", true);
                }
                launch
            }
            Input::Camera(device) => {
                let mut launch = Launch::new("camera.launch", include_str!("../../pipelines/camera.launch"));
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
        let is_ours = !matches!(self.input, Input::Launch(_)) && launch.has("memory");
        if is_ours && !software && self.surfaces.are_usable() {
            // All formats: decoders of GStreamer 1.22 choose a memory without a look at them. What cannot be
            // searched there is fetched and converted behind it.
            launch.set("memory", "caps", format!("video/x-raw({FEATURE});video/x-raw"));
        }
        // An appsink keeps time by default, which would play a file at its own speed.
        if !launch.sets("frames", "sync") {
            launch.set("frames", "sync", false);
        }
        Ok(launch)
    }
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

/// The name of the element that finds decoders, in the pipeline for a file or a URI.
pub(super) fn decoding_element(input: &Input) -> &'static str {
    if matches!(input, Input::Uri(_)) { "input" } else { "decode" }
}
