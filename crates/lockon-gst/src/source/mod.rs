//! Decoded frames from a file, a URI, a camera or gst-launch text, through an appsink.
//!
//! Two threads meet here. GStreamer's streaming thread decodes, and puts each sample into a bounded channel,
//! no more. The thread that owns the [`VideoSource`] takes samples out and maps them. For a file the
//! streaming thread waits while the channel is full, so nothing is lost and decoding runs no further ahead
//! than the channel is long. For a live source it never waits: waiting samples are dropped for a newer one,
//! and counted. Samples that came together with the newest are kept: a network delivers a few at once, and
//! there is time for them until the next few come.
//!
//! The luma plane is used where the decoder put it. A converter costs more than matching does, so there is
//! none in the pipelines; the first frame's caps and tags decide if this video needs one, and only then is
//! the pipeline built again with it in front of the appsink.
//!
//! File by file: `input` and `spec` are the request, `check` finds errors before opening, `inlet` holds files
//! and pipes. `open` builds it, `adapt` puts converters in, `feed` is the streaming thread's end of the
//! channel, `picture` and `times` make frames of samples. `multipart` reads JPEG pictures over HTTP.
//! `streams` chooses a video stream, `head` and `orientation` read its first frames and its container, `info`
//! describes it. `ending` judges the end of a live source, `reconnect` continues it, `errors` words errors.
//! `playlist` detects a lost live playlist, `skip` finds the frame at which decoding of a part may begin.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, TryRecvError, select};
use gst::prelude::*;

use crate::crop;
use crate::damage::Company;
use crate::launch::{self, Launch, News, Running};
use crate::stuck::{Stuck, Watchdog};
use crate::truncated::Truncation;
use lockon_core::control::Control;
use lockon_core::error::{Error, Result};
use lockon_core::frame::{Circumstances, Frame, FrameMeta, VideoFormat};
use lockon_core::ports::{Next, Source};
use lockon_core::results::Detection;

use crate::detections::Detected;

use ending::Ending;
use errors::{explained, failure, in_words_of_the_input, no_video};
use feed::{Counts, NumberedSample, drop_late};
use inlet::Inlet;
use playlist::Playlist;
use reconnect::Reconnection;
use skip::SeekPoint;

pub use address::Uri;
pub use decoder::Decoder;
pub(crate) use decoder::{keep_to_file, nvidia_codecs, picture_decoder};
pub use image_sequence::Pictures;
pub(crate) use image_sequence::{NumberedName, number_of};
pub use info::{SourceInfo, StreamInfo, StreamKind};
pub(crate) use info::{codec_of, has_container};
pub use input::Input;
pub use login::Login;
pub use picture::{MAX_SIDE, Mapper, describe, formats, is_gathered};
pub use spec::{CameraMode, DEFAULT_JITTER_MS, SourceSpec};
pub(crate) use times::stream_time;
pub use times::{PtsInterpolator, presentation_time};

mod adapt;
mod address;
#[cfg(test)]
mod as_shown;
mod check;
mod decoder;
mod ending;
mod errors;
mod feed;
mod gather;
mod head;
mod image_sequence;
mod info;
mod inlet;
mod input;
mod login;
#[cfg(test)]
mod login_tests;
mod multipart;
mod open;
mod orientation;
mod picture;
mod playlist;
mod reconnect;
mod skip;
mod spec;
mod streams;
#[cfg(test)]
mod tests;
mod times;

/// Log target of all files of this folder.
const LOG: &str = module_path!();

/// Time limit, after an error, of the wait for frames under way, unless the end of the stream comes first.
const AFTER_ERROR: Duration = Duration::from_secs(1);

/// A real-time source that is silent for this long is reconnected if --reconnect allows it, and a camera over
/// HTTP counts as lost. Longer than the pauses of sources.
const GONE: Duration = Duration::from_secs(if cfg!(test) { 3 } else { 15 });

/// A video may end this long before its file does, and a tenth of the length earlier: sound often continues.
const SHORTFALL: Duration = Duration::from_secs(1);

/// An end this soon after a resource's warning is its consequence.
const TROUBLE: Duration = Duration::from_secs(5);

/// Frames a second of a bare stream that states neither rate nor times, such as JPEG pictures in a row.
const ASSUMED_RATE: (i32, i32) = (25, 1);

/// Frames of a video, in order. Dropping it stops the pipeline and waits for its threads.
pub struct VideoSource {
    connection: Connection,
    state: SourceState,
    spec: SourceSpec,
    is_live: bool,
    /// It gives frames only while it plays, as a camera or a network stream does.
    is_real_time: bool,
    /// A file that plays at its own speed, before its second frame is requested.
    is_paused: bool,
    duration_ns: Option<u64>,
    /// The length that the file's container states.
    stated_ns: Option<u64>,
    /// The frame rate of a bare stream that states none.
    assumed_rate: Option<(i32, i32)>,
    /// The missing part of the file, reported after the existing frames.
    truncation: Option<Truncation>,
    /// The time when the last frame was delivered, or the source opened.
    heard: Instant,
    times: PtsInterpolator,
    mapper: Mapper,
    /// Errors of decoders before the source was reconnected.
    damaged_before: u64,
    /// The place where decoding may have begun, until the first frame shows it.
    sought: Option<SeekPoint>,
    /// The times of the next frames, if decoding did not begin with the video.
    expected: VecDeque<u64>,
    /// Frames before the one with which decoding began.
    skipped: u64,
    /// The time that a playlist was away, until its next frame.
    resumes: Option<Duration>,
    /// Added to times of a playlist that was away: it counts from its beginning again.
    offset_ns: i64,
    company: Arc<Company>,
    detected: Detected,
    /// The run that may be stopped while it waits.
    control: Control,
}

/// The running pipeline and its known state. A live source that is opened again gets another one, and
/// everything else in [`VideoSource`] stays.
struct Connection {
    /// Declared, and so dropped, before `running`: this releases a streaming thread that waits in the
    /// channel, and stopping the pipeline waits for that thread.
    samples: Receiver<NumberedSample>,
    running: Running,
    /// Samples taken from the channel: the first one, from which a live source got its caps, and those that
    /// came together with the newest.
    waiting: VecDeque<NumberedSample>,
    caps: gst::Caps,
    info: gst_video::VideoInfo,
    format: Arc<VideoFormat>,
    counts: Arc<Counts>,
    /// Distinguishes a loss from an end.
    ending: Arc<Ending>,
    /// Facts from its first frames.
    head: Arc<head::Head>,
    /// The last warning of a resource, and when: an end right after it is its consequence.
    trouble: Option<(Instant, Error)>,
    /// If the source is a file: notices that no more frames come.
    watch: Option<Watchdog>,
    /// The state of the playlist that it reads, if it reads one.
    playlist: Arc<Playlist>,
    /// Factory name of the element that decodes; `lockon` for pictures.
    decoder: Option<String>,
    launch: Launch,
    /// Dropped after the pipeline.
    inlet: Inlet,
}

/// State of a source between two requests for a frame.
enum SourceState {
    /// Frames come.
    Playing,
    /// Something failed. The error is returned when the frames before it have been delivered, at the latest
    /// at the instant.
    Failing(Error, Instant),
    /// It is lost, and a thread reconnects.
    Reconnecting(Reconnection),
    /// The error has been returned.
    Failed,
    /// The video has ended and the pipeline is in NULL.
    Ended,
}

impl VideoSource {
    /// Format of the decoded pictures: that of the first frame until a frame with another one was delivered.
    pub fn format(&self) -> Arc<VideoFormat> {
        Arc::clone(&self.connection.format)
    }

    /// Factory name of the element that decodes, such as `avdec_h264`; `lockon` for pictures, which it
    /// decodes itself; `None` for raw video.
    pub fn decoder_name(&self) -> Option<&str> {
        self.connection.decoder.as_deref()
    }

    /// Length of the video in nanoseconds, where the source knows it.
    pub fn duration_ns(&self) -> Option<u64> {
        self.duration_ns
    }

    /// True if its frames are pictures in files of their own.
    pub fn has_pictures(&self) -> bool {
        self.connection.inlet.pictures.as_ref().is_some_and(|pictures| pictures.name(0).is_some())
    }

    /// True if the input has sound beside the video, as far as its pipeline shows.
    pub fn has_sound(&self) -> bool {
        info::has_sound(self.connection.running.pipeline())
    }

    /// True if late frames are dropped.
    pub fn is_live(&self) -> bool {
        self.is_live
    }

    /// True if frames come at their own speed, from the first request for one on.
    pub fn is_waiting_to_play(&self) -> bool {
        self.is_paused
    }

    /// The pipeline that runs.
    pub fn launch(&self) -> &Launch {
        &self.connection.launch
    }

    /// The next frame if it comes before `deadline`. `None` does not wait at all.
    fn next(&mut self, deadline: Option<Instant>) -> Result<Next> {
        if self.is_paused && self.connection.waiting.is_empty() {
            self.is_paused = false;
            if let Err(error) = self.connection.running.set_state(gst::State::Playing) {
                self.state = SourceState::Failing(error, Instant::now());
            }
        }
        loop {
            match &self.state {
                SourceState::Playing | SourceState::Failing(..) => {}
                SourceState::Reconnecting(search) => {
                    let found = deadline.map_or_else(
                        || search.found.try_recv().map_err(|error| error == TryRecvError::Empty),
                        |deadline| search.found.recv_deadline(deadline).map_err(|error| error.is_timeout()),
                    );
                    return match found {
                        Ok(found) => self.come_back(found),
                        Err(true) => Ok(Next::Pending),
                        Err(false) => self.come_back(Err(failure("the thread that reconnects panicked"))),
                    };
                }
                SourceState::Ended => return Ok(Next::End),
                SourceState::Failed => return Err(failure("it has failed before")),
            }
            // Frames first: an error or the end comes after all frames before it.
            match self.connection.take(self.is_live) {
                Ok(arrival) => return self.deliver(arrival),
                Err(TryRecvError::Disconnected) => return self.finish(),
                Err(TryRecvError::Empty) => {}
            }
            if self.is_given_up() {
                let seconds = GONE.as_secs();
                self.state =
                    SourceState::Failing(failure(format!("no frame came for {seconds} s")), Instant::now());
            }
            if let Some(bound) = self.playlist_bound().filter(|bound| self.heard.elapsed() > *bound) {
                let reason =
                    format!("the source was lost: its playlist brought no frame for {} s", bound.as_secs());
                self.state = SourceState::Failing(no_video(&self.spec.input, reason), Instant::now());
            }
            if let Some(stuck) = self.stuck() {
                let error = no_video(&self.spec.input, stuck.reason());
                self.state = SourceState::Failing(error, Instant::now());
            }
            let give_up = match &self.state {
                SourceState::Failing(_, give_up) if Instant::now() >= *give_up => return self.finish(),
                SourceState::Failing(_, give_up) => Some(*give_up),
                _ => None,
            };
            let now = Instant::now();
            let Some(deadline) = deadline.filter(|deadline| *deadline > now) else {
                while let Ok(news) = self.connection.running.news().try_recv() {
                    self.attend(news);
                }
                return Ok(Next::Pending);
            };
            let wait = give_up.map_or(deadline, |give_up| give_up.min(deadline)) - now;
            select! {
                recv(self.connection.samples) -> arrival => match arrival {
                    Ok(arrival) => self.connection.waiting.push_back(arrival),
                    Err(_) => return self.finish(),
                },
                recv(self.connection.running.news()) -> news => if let Ok(news) = news {
                    self.attend(news);
                },
                default(wait) => {}
            }
        }
    }

    /// True if it is silent for so long that reconnecting is better than waiting.
    fn is_given_up(&self) -> bool {
        // Nothing else notices that a camera over HTTP is silent: its connection stays open.
        let is_watched = self.spec.reconnect || self.connection.ending.is_endless();
        let is_ours_to_end = is_watched && self.is_real_time && matches!(self.state, SourceState::Playing);
        is_ours_to_end && self.heard.elapsed() > GONE
    }

    /// True if it reads a playlist that a server renews.
    fn is_live_playlist(&self) -> bool {
        // A playlist with a length ends.
        self.duration_ns.is_none() && self.connection.playlist.bound().is_some()
    }

    /// Maximum time without a frame of a live playlist.
    fn playlist_bound(&self) -> Option<Duration> {
        let plays = matches!(self.state, SourceState::Playing);
        self.connection.playlist.bound().filter(|_| plays && self.is_live_playlist())
    }

    /// Returns why a file that should give a frame now is stuck.
    fn stuck(&mut self) -> Option<Stuck> {
        // A live source may pause for any time.
        let is_watched = !self.is_live && matches!(self.state, SourceState::Playing);
        self.connection.watch.as_mut().filter(|_| is_watched).and_then(Watchdog::look)
    }

    /// Remembers the first error; later ones are its consequences.
    fn attend(&mut self, news: launch::News) {
        if let News::InTrouble(error) = news {
            self.connection.trouble = Some((Instant::now(), error));
            return;
        }
        if let Err(error) = self.connection.running.attend(news) {
            if matches!(self.state, SourceState::Playing) {
                self.state = SourceState::Failing(error, Instant::now() + AFTER_ERROR);
            } else {
                tracing::debug!("after the first error: {error}");
            }
        }
    }

    /// No frame will come: stops the pipeline and returns why.
    fn finish(&mut self) -> Result<Next> {
        // Elements post their error before they send the end of the stream down, so it is here by now.
        while let Ok(news) = self.connection.running.news().try_recv() {
            self.attend(news);
        }
        let pipeline = self.connection.running.pipeline();
        let clock = pipeline.clock().zip(pipeline.base_time());
        self.connection.stop();
        let lacks_frames = self.sought.is_some() || !self.expected.is_empty();
        if lacks_frames && matches!(self.state, SourceState::Playing) {
            return self.begin_again();
        }
        let is_playlist = self.is_live_playlist();
        let lost = match std::mem::replace(&mut self.state, SourceState::Ended) {
            SourceState::Failing(error, _) => Some(error),
            // The server said goodbye first.
            _ if self.connection.ending.is_goodbye() => None,
            // A source ends when its connection is closed.
            _ => match self.connection.trouble.take().filter(|(at, _)| at.elapsed() < TROUBLE) {
                Some((_, error)) => Some(error),
                None => self.is_real_time.then(|| self.lost()).flatten(),
            },
        };
        let lost = lost.map(|error| self.in_words(error));
        if self.spec.reconnect && (self.is_real_time || (is_playlist && lost.is_some())) {
            self.reconnect(lost, clock)?;
            return Ok(Next::Pending);
        }
        if let Some(error) = lost {
            self.state = SourceState::Failed;
            return Err(error);
        }
        if let Some(found) = self.truncation.take() {
            // Returned once; after that the video has ended.
            return Err(no_video(&self.spec.input, found.to_string()));
        }
        self.compare_with_stated_length();
        Ok(Next::End)
    }

    /// Warns if a file's video ended long before the length that its container states. Demuxers of Matroska,
    /// ASF and FLV end without an error at data that they cannot read.
    fn compare_with_stated_length(&self) {
        let (Some(stated), Some(last)) = (self.stated_ns, self.times.last()) else { return };
        if stated.saturating_sub(last) > SHORTFALL.as_nanos() as u64 + stated / 10 {
            let [last, stated] = [last, stated].map(|ns| ns as f64 / 1e9);
            tracing::warn!(
                "{}: its last frame is at {last:.1} s, and the file states a length of {stated:.1} s: a part may be damaged or missing",
                self.spec.input
            );
        }
    }

    /// The error of a live source's end, if it is a loss.
    fn lost(&self) -> Option<Error> {
        let input = &self.spec.input;
        let reason = self.connection.ending.loss(matches!(input, Input::Camera(_)))?;
        Some(no_video(input, format!("the source was lost: {reason}")))
    }

    /// An error at run time, with the server of the video and a remedy.
    fn in_words(&self, error: Error) -> Error {
        let input = &self.spec.input;
        if matches!(input, Input::File(_)) && self.connection.inlet.pictures.is_some() {
            return in_words_of_the_input(error, input);
        }
        let Input::Uri(uri) = input else { return error };
        let is_told = matches!(error, Error::NoVideo { .. } | Error::Unreachable { .. });
        let error = in_words_of_the_input(error, input);
        let error = match error {
            // It gave video before, so its address is right.
            Error::NoVideo { reason, .. } | Error::Unreachable { reason, .. }
                if self.connection.ending.is_endless() && !is_told =>
            {
                no_video(input, format!("the source was lost: {reason}"))
            }
            // Not needed before a reconnect.
            error if self.spec.reconnect || is_told => error,
            error => explained(error, input, &self.control),
        };
        let can_be_lost = self.is_real_time || self.is_live_playlist();
        let Some(place) = uri.place().filter(|_| can_be_lost) else { return error };
        let advice = if self.spec.reconnect { "" } else { "; --reconnect waits until it is back" };
        let placed = |reason: String| format!("{reason} (server {place}{advice})");
        match error {
            Error::NoVideo { input, reason } => Error::NoVideo { input, reason: placed(reason) },
            Error::Unreachable { input, reason } => Error::Unreachable { input, reason: placed(reason) },
            Error::Refused { input, reason } => Error::Refused { input, reason: placed(reason) },
            error => error,
        }
    }

    /// The next frame; one that cannot be used is a failure like any other, so nothing comes after it.
    fn deliver(&mut self, arrival: NumberedSample) -> Result<Next> {
        self.heard = Instant::now();
        self.connection.watch.iter_mut().for_each(Watchdog::reset);
        if let Some(point) = self.sought.take() {
            let sample = &arrival.sample;
            let pts =
                sample.buffer().and_then(|buffer| presentation_time(sample.segment(), buffer.pts(), false));
            let Some((index, expected)) = pts.and_then(|pts| point.begin_at(pts)) else {
                return self.begin_again();
            };
            tracing::debug!("{}: decoding begins with frame {index}", self.spec.input);
            (self.skipped, self.expected) = (index, expected);
        }
        let frame = self.frame(arrival);
        if let (Ok(frame), Some(expected)) = (&frame, self.expected.pop_front())
            && frame.meta.pts_ns != Some(expected)
        {
            return self.begin_again();
        }
        if frame.is_err() {
            self.connection.stop();
            self.state = SourceState::Failed;
        }
        frame.map(Next::Frame)
    }

    /// Opens the source again from its beginning: the seek led to another place, so the frames have
    /// unexpected numbers.
    fn begin_again(&mut self) -> Result<Next> {
        tracing::debug!(
            "{}: other frames than were counted: it is decoded from the beginning",
            self.spec.input
        );
        self.connection.stop();
        let spec = SourceSpec { wanted_from: None, ..self.spec.clone() };
        *self = Self::open(&spec, &self.control.clone())?;
        Ok(Next::Pending)
    }

    /// Maps a sample in place.
    fn frame(&mut self, NumberedSample { index, at, captured, sample }: NumberedSample) -> Result<Frame> {
        let index = index + self.skipped;
        let caps = sample.caps().ok_or_else(|| failure("a frame has no caps"))?;
        // Mostly the same object, so this costs nothing.
        if *caps != *self.connection.caps {
            (self.connection.info, self.connection.format) = describe(caps)?;
            self.connection.caps = caps.to_owned();
            tracing::debug!("frame {index}: the format changes to {caps}");
        }
        let buffer = sample.buffer_owned().ok_or_else(|| failure("a frame has no buffer"))?;
        self.detected.see(index, &buffer, self.connection.format.size);
        let is_first = !self.times.has_begun();
        let own = presentation_time(sample.segment(), buffer.pts(), self.is_real_time);
        if let (Some(away), Some(own), Some(last)) = (self.resumes.take(), own, self.times.last()) {
            let next = last.saturating_add(away.as_nanos() as u64);
            self.offset_ns = next.cast_signed() - own.cast_signed();
        }
        let own = own.map(|own| own.saturating_add_signed(self.offset_ns));
        let frame_rate = match self.connection.format.frame_rate {
            (0, _) => self.assumed_rate.unwrap_or((0, 1)),
            stated => stated,
        };
        let (pts_ns, is_pts_interpolated) = self.times.next(own, frame_rate);
        let duration_ns = buffer.duration().map(gst::ClockTime::nseconds);
        let meta = FrameMeta { index, pts_ns, duration_ns, arrived: at };
        let damage = gst::BufferFlags::DISCONT | gst::BufferFlags::CORRUPTED;
        let is_discontinuity = !is_first && buffer.flags().intersects(damage);
        let circumstances = Circumstances { captured, is_pts_interpolated, is_discontinuity };
        let Connection { info, format, .. } = &self.connection;
        let other =
            || failure(format!("frame {index} is not laid out as its caps say: {}", self.connection.caps));
        let buffer = crop::uncropped(buffer, info).ok_or_else(other)?;
        let on_device = self.spec.surfaces.adopt(&buffer, info, format)?;
        let picture = on_device.or_else(|| self.mapper.picture(buffer, info, format)).ok_or_else(other)?;
        Ok(Frame { meta, circumstances, format: Arc::clone(&self.connection.format), picture })
    }
}

impl Source for VideoSource {
    fn try_next(&mut self) -> Result<Next> {
        self.next(None)
    }

    fn wait_next(&mut self, timeout: Duration) -> Result<Next> {
        // An instant too far away overflows, and a day is long enough.
        self.next(Some(Instant::now() + timeout.min(Duration::from_hours(24))))
    }

    fn dropped(&self) -> u64 {
        self.connection.counts.dropped.load(Ordering::Relaxed)
    }

    fn detections(&mut self, frame: u64, found: &mut Vec<Detection>) {
        self.detected.take(frame, found);
    }

    fn picture(&self, frame: u64) -> Option<Arc<str>> {
        self.connection.inlet.pictures.as_ref()?.name(frame)
    }

    fn damaged(&self) -> u64 {
        self.damaged_before + self.connection.running.errors().so_far() + self.company.errors_elsewhere()
    }
}

impl Connection {
    /// The oldest available sample that need not be dropped.
    fn take(&mut self, is_live: bool) -> Result<NumberedSample, TryRecvError> {
        if !is_live {
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

    /// Sets the pipeline to NULL, if necessary before its end.
    fn stop(&mut self) {
        // The streaming thread may be waiting in the channel, and stopping waits for it: release it first.
        self.samples = crossbeam_channel::never();
        self.running.stop();
    }
}
