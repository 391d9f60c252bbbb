//! Opens sources: from the description to a source whose first frame's format is known.
//!
//! The pipeline is started once to examine its video. If that needs a converter in front of the appsink, the
//! pipeline is built again with one.

use std::borrow::Cow;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crossbeam_channel::Receiver;
use gst::glib;
use gst::prelude::*;

use super::adapt::{adapt_in_place, adaptation};
use super::address::{Server, Uri};
use super::check::check;
use super::decoder::{
    count_errors, draw_safely, is_hardware, keep_to_file, keep_to_gpu, leave_out_alpha, limit_threads,
    picture_decoder, prefer_hardware,
};
use super::ending::Ending;
use super::errors::{explained, failure, in_words_of_the_input, no_video, unreachable};
use super::feed::{Counts, Feed, NumberedSample, answer_allocation_queries};
use super::head::Head;
use super::inlet::{self, Inlet};
use super::login::give_login;
use super::multipart::Multipart;
use super::picture::describe;
use super::playlist::{Playlist, resolved};
use super::reconnect::ResumePoint;
use super::skip;
use super::spec::decoding_element;
use super::streams::Streams;
use super::{
    ASSUMED_RATE, Connection, Decoder, Input, LOG, Mapper, PtsInterpolator, SourceSpec, SourceState,
    VideoSource,
};
use crate::cuda::Surfaces;
use crate::cut;
use crate::damage::{self, Company};
use crate::detections::Detected;
use crate::launch::{self, Launch, Milestone, Redirection, Running};
use crate::random_access::{self, Index};
use crate::stuck::{Stillness, Stuck, Watchdog};
use crate::truncated;
use lockon_core::control::{Control, STOP_CHECK};
use lockon_core::error::{Error, Result};
use lockon_core::locks::lock;

/// How long the first frame may take: a network camera needs seconds. A pipe may take as long as its writer.
pub(super) const FIRST_FRAME: Duration = Duration::from_secs(if cfg!(test) { 6 } else { 30 });

/// Maximum retries of a file that stopped without an error while it was opened, to get the error.
const MOST_OPENINGS: u32 = 5;

/// The decoder of pictures, beside the names of GStreamer's elements.
const OURS: &str = "lockon";

/// Maximum successive redirections.
pub(super) const MOST_REDIRECTIONS: u32 = 8;

impl VideoSource {
    /// Opens the input and waits until the first frame's format is known.
    ///
    /// While it waits it checks `control`, and ends when that is stopped.
    ///
    /// # Errors
    /// `File`, `Unreachable` or `Refused` if the input cannot be read, `NoVideo` if it has no video;
    /// `MissingElement` if an element is not installed; `Launch` if gst-launch text is wrong or does not have
    /// exactly one appsink, named `frames`.
    pub fn open(spec: &SourceSpec, control: &Control) -> Result<Self> {
        let first = ResumePoint::default();
        if !spec.reconnect {
            return Self::open_after(spec, control, &first);
        }
        let mut is_first_try = true;
        Self::open_in_time(spec, control, &first, |error, pause| {
            if std::mem::take(&mut is_first_try) {
                tracing::warn!(target: LOG, "{error}: waiting until it is available");
            } else {
                tracing::info!(target: LOG, "next try in {:.1} s: {error}", pause.as_secs_f64());
            }
        })
    }

    /// If a hardware decoder was only preferred, and fails, software decodes.
    pub(super) fn open_after(spec: &SourceSpec, control: &Control, resume: &ResumePoint) -> Result<Self> {
        let opened = Self::open_as_asked(spec, control, resume);
        let is_of_decoder = |error: &Error| {
            matches!(error, Error::NoVideo { .. } | Error::Pipeline { .. } | Error::Backend { .. })
        };
        match opened {
            Err(error)
                if spec.decoder == Decoder::Auto
                    && is_of_decoder(&error)
                    && !control.is_stopped()
                    && !inlet::is_pipe(&spec.input) =>
            {
                let surfaces = Surfaces::default();
                let software = SourceSpec { decoder: Decoder::Software, surfaces, ..spec.clone() };
                let opened = Self::open_as_asked(&software, control, resume)?;
                tracing::warn!(target: LOG, "{error}: it is decoded in software");
                Ok(opened)
            }
            opened => opened,
        }
    }

    fn open_as_asked(spec: &SourceSpec, control: &Control, resume: &ResumePoint) -> Result<Self> {
        check(spec)?;
        launch::init()?;
        damage::watch();
        if spec.decoder != Decoder::Software {
            prefer_hardware();
        }
        let (inlet, mut launch) = Inlet::open(spec, control)?;
        let start = |launch: &mut Launch| {
            let opened = Prerolled::start_anew(spec, launch, &inlet, control, resume);
            opened.map_err(|error| explained(error, &spec.input, control))
        };
        let mut opened = start(&mut launch)?;
        // Pipes and MJPEG cameras are opened once; their converters were inserted in place.
        if !inlet::is_pipe(&spec.input)
            && !opened.multipart.is_found()
            && let Some(chain) = opened.adaptation(spec)?
        {
            drop(opened);
            launch.insert_before("frames", &chain)?;
            opened = start(&mut launch)?;
        }
        let put_in = lock(&opened.put_in).take();
        if let Some(chain) = put_in {
            launch.insert_before("frames", &chain)?;
        }
        if let Some(number) = opened.streams.other_than_first() {
            launch.take_pad(decoding_element(&spec.input), &format!("src_{number}"))?;
        }
        opened.into_source(spec, launch, inlet, control)
    }
}

/// A running pipeline whose first frame's caps are known.
struct Prerolled {
    /// Dropped before `running`, as in [`Connection`].
    samples: Receiver<NumberedSample>,
    running: Running,
    first: Option<NumberedSample>,
    pad: gst::Pad,
    caps: gst::Caps,
    counts: Arc<Counts>,
    ending: Arc<Ending>,
    is_live: bool,
    is_real_time: bool,
    /// Elements that were inserted in front of the appsink of an input that is opened once.
    put_in: Arc<Mutex<Option<String>>>,
    multipart: Arc<Multipart>,
    head: Arc<Head>,
    streams: Arc<Streams>,
    damaged_before: u64,
    company: Arc<Company>,
    watch: Option<Watchdog>,
    playlist: Arc<Playlist>,
}

/// Why a pipeline did not start.
enum NotPrerolled {
    /// A file's pipeline is stuck; opening it again may give the reason.
    Stuck(Stuck),
    /// Its video has an alpha channel, and was not recognised as video.
    HasAlpha,
    /// An HTTP server redirects to this address.
    Redirected(String),
    Failed(Error),
}

impl From<Error> for NotPrerolled {
    fn from(error: Error) -> Self {
        Self::Failed(error)
    }
}

impl Prerolled {
    /// Starts the pipeline, and follows redirections that an element with a login must not follow.
    fn start_anew(
        spec: &SourceSpec,
        launch: &mut Launch,
        inlet: &Inlet,
        control: &Control,
        resume: &ResumePoint,
    ) -> Result<Self> {
        let mut at = Cow::Borrowed(spec);
        for _ in 0..MOST_REDIRECTIONS {
            match Self::start_at(&at, launch, inlet, control, resume) {
                Ok(Ok(opened)) => return Ok(opened),
                Ok(Err(to)) => at = Cow::Owned(redirected(spec, to)?),
                Err(error) => return Err(of_redirected(error, spec, &at, control)),
            }
        }
        Err(unreachable(&spec.input, format!("its server redirects more than {MOST_REDIRECTIONS} times")))
    }

    /// Starts the pipeline, several times if it stops without an error. Returns the address that its server
    /// redirects to, if it does.
    fn start_at(
        spec: &SourceSpec,
        launch: &mut Launch,
        inlet: &Inlet,
        control: &Control,
        resume: &ResumePoint,
    ) -> Result<Result<Self, String>> {
        for _ in 1..MOST_OPENINGS {
            match Self::start(spec, launch, inlet, control, resume) {
                Ok(opened) => return Ok(Ok(opened)),
                Err(NotPrerolled::Redirected(to)) => return Ok(Err(to)),
                // A pipe cannot be read twice.
                Err(NotPrerolled::HasAlpha) if !inlet::is_pipe(&spec.input) => {
                    launch.set(decoding_element(&spec.input), "expose-all-streams", true);
                }
                Err(NotPrerolled::Stuck(Stuck::AtRest)) => {
                    tracing::debug!(target: LOG, "{}: it stopped without an error: retrying", spec.input);
                }
                Err(NotPrerolled::Stuck(stuck)) => return Err(no_video(&spec.input, stuck.reason())),
                Err(NotPrerolled::HasAlpha) => {
                    return Err(no_video(&spec.input, "its alpha channel cannot be decoded from a pipe"));
                }
                Err(NotPrerolled::Failed(error)) => return Err(error),
            }
        }
        match Self::start(spec, launch, inlet, control, resume) {
            Ok(opened) => Ok(Ok(opened)),
            Err(NotPrerolled::Redirected(to)) => Ok(Err(to)),
            Err(NotPrerolled::Stuck(stuck)) => Err(no_video(&spec.input, stuck.reason())),
            Err(NotPrerolled::HasAlpha) => Err(no_video(&spec.input, "its alpha channel cannot be decoded")),
            Err(NotPrerolled::Failed(error)) => Err(error),
        }
    }

    /// Starts the pipeline. A file is left in PAUSED with its first frame in the appsink; live video plays.
    fn start(
        spec: &SourceSpec,
        launch: &mut Launch,
        inlet: &Inlet,
        control: &Control,
        resume: &ResumePoint,
    ) -> Result<Self, NotPrerolled> {
        let pipeline = built(spec, launch, inlet, control, resume)?;
        let sink = the_appsink(launch, &pipeline)?;
        let pad = sink.static_pad("sink").ok_or_else(|| failure("an appsink has no pad"))?;
        let is_confined = spec.is_confined || spec.opened.is_some();
        let left_out = if is_confined { keep_to_file(&pipeline) } else { Arc::default() };
        let ending = Ending::watch(&pipeline);
        let playlist = Playlist::watch(&pipeline);
        playlist.bound_depth(&pipeline);
        let multipart = Multipart::watch(spec, &pipeline, resume);
        let head = Head::watch(spec, &pipeline);
        let streams = Streams::watch(spec, launch, &pipeline, &inlet.is_choice_told);
        let feed = Arc::new(Feed::new(resume, &ending, &multipart));
        feed.attach(&sink);
        answer_allocation_queries(&pad, &spec.surfaces);
        let mut watch = match &spec.input {
            // A pipe may be silent for as long as it likes.
            Input::File(_) if inlet.pictures.is_none() && spec.file().is_some_and(|path| path.is_file()) => {
                Some(Watchdog::new(&pipeline, &launch.element(&pipeline, "input")?))
            }
            _ => None,
        };
        let put_in = if inlet::is_pipe(&spec.input) {
            adapt_in_place(&pipeline, &pad, spec, &head, || true)
        } else if matches!(spec.input, Input::Uri(_)) {
            let multipart = Arc::clone(&multipart);
            adapt_in_place(&pipeline, &pad, spec, &head, move || multipart.is_found())
        } else {
            Arc::default()
        };

        let running = Running::new(pipeline);
        count_errors(running.pipeline(), running.errors());
        draw_safely(running.pipeline());
        multipart.count_damage(running.errors());
        let in_words = |error| {
            if let Some(Redirection { from, to }) = running.redirection() {
                let to = resolved(&from, &to);
                if is_address(spec, &from) {
                    return NotPrerolled::Redirected(to);
                }
                let (from, to) = (Uri::from(from), Uri::from(to));
                let what = format!(
                    "{from} redirects to {to}, which is not followed with user and password: they go only to the server in the address"
                );
                return unreachable(&spec.input, what).into();
            }
            let error = match left_out.get() {
                Some(factory) => {
                    let what =
                        format!("it names other videos, which are not opened for it ({})", factory.name());
                    no_video(&spec.input, what)
                }
                None => match playlist.refusal().map(str::to_owned).or_else(|| streams.refusal()) {
                    Some(reason) => no_video(&spec.input, reason),
                    None => in_words_of_the_input(error, &spec.input),
                },
            };
            error.into()
        };
        let can_expose_all = !matches!(spec.input, Input::Launch(_) | Input::Camera(_))
            && !launch.was_set(decoding_element(&spec.input), "expose-all-streams");
        // Live sources give frames only while they play, so a wait for one in PAUSED would never end.
        let gives_no_preroll =
            running.set_state(gst::State::Paused).map_err(in_words)? == gst::StateChangeSuccess::NoPreroll;
        let mut is_live = spec.live.unwrap_or(gives_no_preroll);
        if spec.live == Some(true) && !gives_no_preroll {
            sink.set_sync(true);
            launch.set("frames", "sync", true);
        }
        let mut samples = feed.open(is_live, gives_no_preroll);
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
                        return Err(NotPrerolled::HasAlpha);
                    }
                    Err(error) => return Err(in_words(error)),
                }
            }
            if control.is_stopped() {
                return Err(no_video(&spec.input, "interrupted while it was opened").into());
            }
            if let Some(stuck) = watch.as_mut().and_then(Watchdog::look) {
                return Err(NotPrerolled::Stuck(stuck));
            }
            if !inlet::is_pipe(&spec.input) && waited.look(Instant::now()) > FIRST_FRAME {
                let seconds = FIRST_FRAME.as_secs();
                return Err(unreachable(&spec.input, format!("no frame came within {seconds} s")).into());
            }
        }
        let is_real_time = gives_no_preroll || multipart.is_found();
        if is_real_time && !gives_no_preroll {
            // A camera that the pipeline treats as a file. It holds the first frame until it plays.
            sink.set_sync(false);
            launch.set("frames", "sync", false);
            ending.expect_no_end();
            is_live = spec.live.unwrap_or(true);
            samples = feed.open(is_live, true);
        }
        // A file that plays at its own speed begins when its first frame has been searched: opening a device
        // takes longer than a frame.
        if is_live && !is_real_time {
            first = feed.take_first(&sink);
        }
        // The end can only be there in PAUSED if no frame was held up before it.
        let caps = pad.current_caps().filter(|_| first.is_some() || !sink.is_eos());
        let caps = caps.ok_or_else(|| unreachable(&spec.input, "it has no frame"))?;
        let counts = Arc::clone(&feed.counts);
        watch.iter_mut().for_each(Watchdog::reset);
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
            multipart,
            head,
            streams,
            damaged_before: resume.damaged,
            company: resume.company.clone(),
            watch,
            playlist,
        })
    }

    /// The elements that this video needs before the appsink, if any: reported once, as they cost time.
    fn adaptation(&self, spec: &SourceSpec) -> Result<Option<String>> {
        adaptation(&self.caps, &self.pad, spec, &self.head)
    }

    /// Lets a file play, now that its frames need no conversion.
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
            head,
            damaged_before,
            company,
            watch,
            playlist,
            ..
        } = self;
        let (info, format) = describe(&caps).map_err(|error| in_words_of_the_input(error, &spec.input))?;
        let factory = picture_decoder(running.pipeline()).and_then(|decoder| decoder.factory());
        let has_hardware = factory.as_ref().is_none_or(is_hardware) && inlet.pictures.is_none();
        let decoder = match &inlet.pictures {
            Some(_) => Some(OURS.to_owned()),
            None => factory.map(|factory| factory.name().into()),
        };
        if spec.decoder == Decoder::Hardware
            && let Some(decoder) = decoder.as_ref().filter(|_| !has_hardware)
        {
            let reason =
                format!("no hardware decoder takes it, only {decoder} does (try --decoder software)");
            return Err(no_video(&spec.input, reason));
        }
        let duration_ns = running
            .pipeline()
            .query_duration::<gst::ClockTime>()
            .map(gst::ClockTime::nseconds)
            .filter(|ns| *ns > 0)
            .or_else(|| inlet.pictures.as_ref()?.duration_ns(spec.camera.frame_rate));
        tracing::debug!(target: LOG, "{}: {caps}", spec.input);
        if let Some(ns) = spec.seek_ns {
            // This drops the first frame, which was only examined.
            let place = seek_place(spec, running.pipeline(), ns, control);
            place.map_or(Some(()), |ns| random_access::seek(running.pipeline(), ns)).ok_or_else(|| {
                no_video(&spec.input, "it cannot start at a later frame: seeking is not possible in it")
            })?;
        }
        let sought = skip::find(spec, &info, control)
            .filter(|place| random_access::seek(running.pipeline(), place.seek_ns).is_some());
        let is_paused = is_live && !is_real_time;
        if !is_paused {
            running
                .set_state(gst::State::Playing)
                .map_err(|error| in_words_of_the_input(error, &spec.input))?;
        }
        let truncation = spec.file().and_then(|path| truncated::truncation(&path));
        let is_file = spec.file().is_some();
        let has_container = super::has_container(running.pipeline());
        let stated_ns = duration_ns.filter(|_| is_file && has_container);
        let assumed_rate = (is_file && !has_container).then_some(ASSUMED_RATE);
        let connection = Connection {
            samples,
            running,
            waiting: first.into_iter().collect(),
            caps,
            info,
            format,
            counts,
            ending,
            head,
            trouble: None,
            watch,
            playlist,
            decoder,
            launch,
            inlet,
        };
        Ok(VideoSource {
            connection,
            state: SourceState::Playing,
            spec: spec.clone(),
            sought,
            expected: VecDeque::new(),
            skipped: 0,
            resumes: None,
            offset_ns: 0,
            is_live,
            is_real_time,
            is_paused,
            duration_ns,
            stated_ns,
            assumed_rate,
            truncation,
            heard: Instant::now(),
            times: PtsInterpolator::default(),
            mapper: Mapper::default(),
            damaged_before,
            detected: Detected::new(spec.detections.clone()),
            company,
            control: control.clone(),
        })
    }
}

/// The place to seek to, so that decoding begins with a key frame that is not after `ns`; `None` for the
/// video's beginning.
fn seek_place(spec: &SourceSpec, pipeline: &gst::Pipeline, ns: u64, control: &Control) -> Option<u64> {
    let Some(path) = spec.file().filter(|_| Index::of(pipeline) != Index::KeyFrames) else {
        return Some(ns);
    };
    // Where no key frame is known, the video is decoded from its beginning: a picture without the ones before
    // it would be another one.
    // Key frames are looked for in the first video stream.
    if spec.video_stream.unwrap_or(0) != 0 {
        return None;
    }
    let picture = cut::entry_before(&path, ns, control)?.decode_ns?;
    let place = random_access::place_before(picture)?;
    random_access::begin_with(pipeline, picture).then_some(place)
}

/// True if `address` is the one that the pipeline of `spec` opens.
fn is_address(spec: &SourceSpec, address: &str) -> bool {
    let Input::Uri(uri) = &spec.input else { return false };
    uri.split().is_ok_and(|(own, _)| own == address)
}

/// The source at the address that the server of `typed` redirects to. It gets the login if it is the same
/// server.
pub(super) fn redirected(typed: &SourceSpec, to: String) -> Result<SourceSpec> {
    let Input::Uri(uri) = &typed.input else { return Ok(typed.clone()) };
    let to = Uri::from(to);
    if typed.is_confined {
        return Err(no_video(
            &typed.input,
            format!("its server redirects to {to}, and only the address itself may be opened"),
        ));
    }
    if !matches!(to.scheme().as_str(), "http" | "https") {
        return Err(no_video(&typed.input, format!("its server redirects to {to}: only HTTP is followed")));
    }
    tracing::debug!(target: LOG, "{uri} redirects to {to}");
    let login = uri.with_login(typed.login.clone())?.1.filter(|_| uri.lends_login_to(&to));
    Ok(SourceSpec { input: Input::Uri(to), login, ..typed.clone() })
}

/// The error of a redirect's server that requires the login, which it does not get.
fn of_redirected(error: Error, typed: &SourceSpec, at: &SourceSpec, control: &Control) -> Error {
    let (Input::Uri(to), Error::NoVideo { reason, .. } | Error::Unreachable { reason, .. }) =
        (&at.input, &error)
    else {
        return error;
    };
    if at.input == typed.input || at.login.is_some() {
        return error;
    }
    match to.why_nothing_came(reason, control) {
        Some((Server::Refuses, _)) => {
            let reason = format!(
                "it redirects to {to}, which asks for user and password: they go only to the server in the address, so give {to} as the address"
            );
            Error::Refused { input: typed.input.to_string(), reason }
        }
        _ => error,
    }
}

/// The pipeline, with settings that text cannot express.
fn built(
    spec: &SourceSpec,
    launch: &Launch,
    inlet: &Inlet,
    control: &Control,
    resume: &ResumePoint,
) -> Result<gst::Pipeline> {
    // A user's text can have any length.
    let pipeline = match spec.input {
        Input::Launch(_) => launch.build_under(control)?,
        _ => launch.build()?,
    };
    let mut login = spec.login.clone();
    if let Input::Uri(uri) = &spec.input {
        let input = launch.element(&pipeline, "input")?;
        set_jitter(&input, spec.jitter_ms);
        // GStreamer cannot log a login that is not in the address.
        let (address, own) = uri.with_login(login)?;
        input.set_property("uri", address);
        login = own;
    }
    if let Some(login) = login {
        let typed = match &spec.input {
            Input::Uri(uri) => Some(uri),
            _ => None,
        };
        give_login(&pipeline, login, typed);
    }
    if let Some(threads) = spec.decoder_threads.filter(|_| !matches!(spec.input, Input::Launch(_))) {
        limit_threads(&pipeline, threads);
    }
    // Set before an element asks: all decoders use our context.
    if spec.decoder != Decoder::Software
        && let Some(context) = spec.surfaces.context()
    {
        pipeline.set_context(&context);
        spec.surfaces.gpu().iter().for_each(|gpu| keep_to_gpu(&pipeline, *gpu));
    }
    if !matches!(spec.input, Input::Launch(_)) {
        leave_out_alpha(&pipeline);
    }
    if let Some(pictures) = &inlet.pictures {
        pictures.attach(spec, launch, &pipeline)?;
    }
    if let Some((clock, base_time)) = &resume.clock {
        // Its running time continues that of the lost source.
        pipeline.use_clock(Some(clock));
        pipeline.set_start_time(gst::ClockTime::NONE);
        pipeline.set_base_time(*base_time);
    }
    Ok(pipeline)
}

/// The one appsink of a pipeline, which must be named `frames`.
pub(super) fn the_appsink(launch: &Launch, pipeline: &gst::Pipeline) -> Result<gst_app::AppSink> {
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

/// Sets the jitter buffer of the network source that a URI's element makes.
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

/// True if a stream is video with a separate alpha channel. Before it runs, its decoder bin may give any
/// type, so `decodebin` does not use it if it looks for video only.
fn has_alpha(pipeline: &gst::Pipeline) -> bool {
    let elements = pipeline.iterate_recurse().into_iter().flatten();
    let mut caps = elements.flat_map(|element| element.pads()).filter_map(|pad| pad.current_caps());
    caps.any(|caps| caps.iter().any(|stream| stream.get::<bool>("codec-alpha") == Ok(true)))
}
