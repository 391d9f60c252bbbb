//! Outputs of frames with their results drawn in: a video file, the screen, or a pipeline of the user's own.
//!
//! Threads: the engine's thread only passes frames on. A worker of the sink's copies each into a pooled
//! buffer, draws, and pushes it into `appsrc`, so that this overlaps with the search for the next frame;
//! GStreamer encodes and writes on its own threads.
//!
//! Back pressure: a full `appsrc` holds up the worker, the worker holds up [`Sink::deliver`], and so an
//! encoder slows the reading of a file. Frames of a live source never wait: older ones are dropped, and
//! counted. Only the engine's thread listens to the pipeline and changes its state. It never waits for the
//! worker without listening, and going to NULL makes a push that waits return: a pipeline that fails while it
//! is full is noticed and closed. A pipeline that does not stop in time, because the system holds up one of
//! its threads, is abandoned.
//!
//! File by file: `containers`, `screen` and `appsrc` have the pipelines and their requirements, `numbered`
//! the names of pictures. `playing` starts one, passes frames to it and ends it; `worker` draws them with
//! `painter`, at the times of `timeline`; `progress` checks whether it still moves, `shown` how it keeps up.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use gst::prelude::*;

use crate::launch::{self, Launch};
use lockon_core::config::{Codec, View, Zone, Zones};
use lockon_core::control::Control;
use lockon_core::error::{Error, Result};
use lockon_core::files;
use lockon_core::frame::VideoFormat;
use lockon_core::locks::lock;
use lockon_core::orders::Order;
use lockon_core::overlay::{Crop, Hidden, Hiding};
use lockon_core::ports::{Delivery, Sink};
use lockon_core::results::{Event, OutputSummary, RunRecord, Summary};
use lockon_core::text;

use appsrc::{check_appsrc, start_without_preroll};
use containers::next_part;
use painter::Shows;
use playing::Playing;
use screen::REMEDY;
use worker::DrawJob;

pub use appsrc::user_launch;
pub use containers::file_launch;
pub use numbered::{Numbered, written};
pub use painter::draw_in_place;
pub use screen::display_launch;
pub use shown::Shown;

pub(crate) use appsrc::prepare;
pub(crate) use containers::Container;
pub(crate) use painter::Painter;
pub(crate) use screen::{NO_WINDOW, check_screen};
pub(crate) use timeline::Timestamps;

mod appsrc;
mod containers;
mod numbered;
mod painter;
mod playing;
mod progress;
mod screen;
mod shown;
#[cfg(test)]
pub(super) mod tests;
mod timeline;
mod worker;

/// Log target of all files of this folder, so that a filter needs no file names.
const LOG: &str = module_path!();

/// The destination of the pipeline.
enum Destination {
    /// A file, pictures with numbered names, or standard output.
    File {
        path: PathBuf,
        /// The names of pictures, one for each frame.
        numbered: Option<Numbered>,
        container: &'static Container,
        sound: Option<PathBuf>,
        /// Nothing was there before, so that an empty file is ours to remove.
        is_new: bool,
        /// The further files, for frames that the first one could not hold.
        parts: Vec<PathBuf>,
    },
    Display {
        /// The window's name.
        title: String,
    },
    User,
}

/// A [`Sink`] that draws results into the frames and passes them to a GStreamer pipeline.
pub struct VideoSink {
    name: String,
    launch: Launch,
    view: View,
    shows: Shows,
    /// Follows hidden parts through all frames, also frames of earlier files and frames that come too late.
    hiding: Hiding,
    target: Destination,
    /// True if frames come from a live source: then the newest frame matters, not each of them.
    is_live: bool,
    /// True if a file begins at 0, whatever the first frame's time.
    from_zero: bool,
    /// Built on opening, so that missing elements are reported before the video starts.
    ready: Option<launch::Running>,
    playing: Option<Playing>,
    shown: Arc<Shown>,
    /// The run that is steered from the window, if one is.
    control: Option<Control>,
    /// The run whose frames these are: after a request to end, no wait is long.
    run: Control,
    /// Zones that are drawn, and a copy of them for the frames until they change.
    zones: Zones,
    drawn_zones: Arc<[Zone]>,
}

impl VideoSink {
    /// Writes `path`: `.mp4`, `.mkv`, `.avi` (H.264) or `.webm` (VP9), with the first audio stream of the
    /// file `sound`.
    ///
    /// Frames keep their number and their times, to the precision of the container; MP4 without sound begins
    /// at 0 whatever the first frame's time. The precision is 3 µs in MP4, 0.05 ms in Matroska, 0.5 ms in
    /// `WebM`; AVI has a frame rate and no times. Sound is copied, not encoded again, and ends with the
    /// video; where the container cannot hold it, it is left out with a warning. A file that exists is
    /// replaced when the first frame comes.
    ///
    /// # Errors
    /// `Value` for another extension, `File` if the file could not be written there,
    /// `MissingElement` without the encoder.
    pub fn file(path: &Path, view: View, sound: Option<PathBuf>) -> Result<Self> {
        Self::output(path, Codec::Auto, view, sound)
    }

    /// Writes `path` as [`Self::file`] does, or with another codec. `-` is standard output, which gets
    /// Matroska that can be played while it is written. A name as `%06d.png` gets a picture for each frame,
    /// with the frame's number. Codecs that lose nothing get masks exactly: as grey pictures of 0 and 255.
    ///
    /// # Errors
    /// As [`Self::file`].
    pub fn output(path: &Path, codec: Codec, view: View, sound: Option<PathBuf>) -> Result<Self> {
        let container = Container::of_output(path, codec)?;
        let launch = file_launch(path, codec)?;
        let pipeline = launch.build()?;
        let (numbered, is_stdout) = (Numbered::of(path), files::is_stdout(path));
        let is_new = match &numbered {
            _ if is_stdout => false,
            // This one is for all.
            Some(numbered) => files::check_writable(&numbered.picture(0)).map(|_| false)?,
            None => {
                // Again, as bytes: a name that is not UTF-8 is no text.
                launch.element(&pipeline, "file")?.set_property("location", path);
                files::check_writable(path)?
            }
        };
        let ready = Some(launch::Running::new(pipeline));
        let target = Destination::File {
            path: path.to_owned(),
            numbered,
            container,
            sound,
            is_new,
            parts: Vec::new(),
        };
        let name = path.display().to_string();
        let (is_live, from_zero, playing, shown, control) = (false, false, None, Arc::default(), None);
        let (shows, run) = (Shows::default(), Control::new());
        let (zones, drawn_zones) = (Zones::default(), Arc::default());
        Ok(Self {
            name,
            launch,
            view,
            shows,
            hiding: Hiding::default(),
            target,
            is_live,
            from_zero,
            ready,
            playing,
            shown,
            control,
            run,
            zones,
            drawn_zones,
        })
    }

    /// Shows the frames on the screen, in a window named `title`: those of a file at their own pace, or
    /// slower if the search is; a camera's at once.
    ///
    /// # Errors
    /// `Output` if there is no screen, `MissingElement` if GStreamer has no video output.
    pub fn display(view: View, is_live: bool, title: &str) -> Result<Self> {
        check_screen(REMEDY)?;
        let launch = display_launch(is_live);
        let ready = Some(launch::Running::new(launch.build()?));
        Ok(Self {
            name: "display".to_owned(),
            launch,
            view,
            shows: Shows::default(),
            hiding: Hiding::default(),
            target: Destination::Display { title: title.to_owned() },
            is_live,
            from_zero: false,
            ready,
            playing: None,
            shown: Arc::default(),
            control: None,
            run: Control::new(),
            zones: Zones::default(),
            drawn_zones: Arc::default(),
        })
    }

    /// Controls that run from the window: closing it ends the run. Keys pause and end it too, unless the
    /// pipeline is the user's own.
    ///
    /// While the run pauses, the frames of a file that were not shown yet are held back.
    pub fn steering(mut self, control: &Control) -> Self {
        self.control = Some(control.clone());
        self
    }

    /// Lets the file begin with its first frame, and so its sound, where frames come from the middle of a
    /// video.
    pub fn from_zero(mut self) -> Self {
        self.from_zero = true;
        self
    }

    /// Shows a part of the frames that follows a track, and no results.
    pub fn following(mut self, crop: Crop) -> Self {
        (self.view, self.shows.crop) = (View::Overlay, Some(crop));
        self
    }

    /// Hides tracks and matches in the frames.
    pub fn hiding(mut self, hiding: Hiding) -> Self {
        self.hiding = hiding;
        self
    }

    /// Draws no results into the frames.
    pub fn plain(mut self) -> Self {
        self.shows.is_plain = true;
        self
    }

    /// Draws these zones, given for the pictures that come first, and those that orders add.
    pub fn with_zones(mut self, zones: Vec<Zone>) -> Self {
        self.zones = Zones::new(zones);
        self
    }

    /// Passes the frames to gst-launch text that begins with `appsrc name=results`.
    ///
    /// Frames of a file keep their times, and the pipeline may hold the run back. Those of a live source are
    /// moved onto the clock of this pipeline, so that a sink that synchronises shows them at once, and the
    /// oldest is dropped if it is slow.
    ///
    /// # Errors
    /// `Launch` if the text is not a pipeline with exactly one appsrc, named `results`; `MissingElement`;
    /// `Output` if it ends in `autovideosink` and there is no screen.
    pub fn user(text: &str, view: View, is_live: bool) -> Result<Self> {
        let launch = user_launch(text)?;
        let pipeline = launch.build()?;
        check_appsrc(&launch, &pipeline)?;
        if pipeline.iterate_all_by_element_factory_name("autovideosink").into_iter().next().is_some() {
            check_screen(REMEDY)?;
        }
        start_without_preroll(&pipeline);
        let (name, ready) = (launch.name().to_owned(), Some(launch::Running::new(pipeline)));
        let (target, shown) = (Destination::User, Arc::default());
        let (from_zero, playing, control, run) = (false, None, None, Control::new());
        let shows = Shows::default();
        let (zones, drawn_zones) = (Zones::default(), Arc::default());
        Ok(Self {
            name,
            launch,
            view,
            shows,
            hiding: Hiding::default(),
            target,
            is_live,
            from_zero,
            ready,
            playing,
            shown,
            control,
            run,
            zones,
            drawn_zones,
        })
    }

    /// Its state of keeping up, readable at any time.
    pub fn shown(&self) -> Arc<Shown> {
        self.shown.clone()
    }

    /// As [`Sink::deliver`], with the parts that are `hidden` in the frame.
    pub(crate) fn deliver_hiding(&mut self, delivery: &Delivery<'_>, hidden: Vec<Hidden>) -> Result<()> {
        let format = &delivery.frame.format;
        let is_video = matches!(self.target, Destination::File { numbered: None, .. });
        if is_video && self.playing.as_ref().is_some_and(|playing| !playing.holds(format)) {
            self.begin_next_part(format).map_err(|error| self.named(error))?;
        }
        if self.zones.fit(format.size) {
            self.drawn_zones = self.zones.now().into();
        }
        let Some(playing) = &mut self.playing else { return Ok(()) };
        let job = DrawJob {
            frame: delivery.frame.clone(),
            record: delivery.record.clone(),
            mask: delivery.mask.cloned(),
            zones: self.drawn_zones.clone(),
            hidden,
        };
        let handed_over = playing.hand_over(job);
        if handed_over.is_err()
            && let Some(mut playing) = self.playing.take()
        {
            playing.let_others_finish();
        }
        handed_over.map_err(|error| self.named(error))
    }

    /// Completes the file and begins another, since a file is of one size and format.
    fn begin_next_part(&mut self, format: &VideoFormat) -> Result<()> {
        let Destination::File { path, container, sound, parts, .. } = &mut self.target else { return Ok(()) };
        if files::is_stdout(path) {
            return Err(fault(format!(
                "standard output holds one kind of frame, and the video is {} {} from here on",
                format.size, format.pixels.name
            )));
        }
        let codec = container.codec();
        let mut had_sound = false;
        if let Some(mut playing) = self.playing.take() {
            had_sound = playing.has_sound();
            playing.drain()?;
        }
        *sound = None;
        let next = next_part(path);
        let (shown, next_shown) = (text::path(path), text::path(&next));
        tracing::warn!(target: LOG, "{shown}: a file holds one kind of frame: going on in {next_shown}");
        if had_sound {
            tracing::warn!(target: LOG, "{next_shown}: the sound ends with the first part");
        }
        parts.push(next.clone());
        self.launch = file_launch(&next, codec)?;
        let pipeline = self.launch.build()?;
        self.launch.element(&pipeline, "file")?.set_property("location", &next);
        self.playing = Some(Playing::start(self, launch::Running::new(pipeline), format)?);
        Ok(())
    }
}

impl Sink for VideoSink {
    fn name(&self) -> &str {
        &self.name
    }

    fn wants_mask(&self) -> bool {
        self.view.has_mask()
    }

    fn belong_to(&mut self, run: &Control) {
        self.run = run.clone();
    }

    /// Waits until the sound of the input is found, if there is any; the file is created here.
    fn begin(&mut self, _run: &RunRecord, format: &VideoFormat) -> Result<()> {
        let pipeline = match self.ready.take() {
            Some(pipeline) => pipeline,
            None => launch::Running::new(self.launch.build()?),
        };
        let playing = Playing::start(self, pipeline, format).map_err(|error| self.named(error))?;
        self.playing = Some(playing);
        Ok(())
    }

    /// Waits while the output is behind; frames of a live source do not wait for a slow screen, and none
    /// waits for longer than 2 s after a request to end the run.
    ///
    /// Where frames change, a file is completed and another begun; a screen or a pipeline of the user's gets
    /// the new format.
    fn deliver(&mut self, delivery: &Delivery<'_>) -> Result<()> {
        let size = delivery.frame.format.size;
        let hidden = if self.hiding.is_idle() { Vec::new() } else { self.hiding.step(delivery.record, size) };
        self.deliver_hiding(delivery, hidden)
    }

    fn note(&mut self, event: &Event) -> Result<()> {
        match event {
            Event::Control { order: Order::Zone { zone }, refused: None, .. } => {
                self.zones.set(zone);
            }
            Event::Control { order: Order::RemoveZone { name }, refused: None, .. } => {
                self.zones.remove(name);
            }
            _ => return Ok(()),
        }
        self.drawn_zones = self.zones.now().into();
        Ok(())
    }

    fn status(&self) -> Option<OutputSummary> {
        let (shown_us, dropped) = (self.shown.latency(), self.shown.dropped());
        self.is_live.then(|| OutputSummary { name: self.name.clone(), dropped, shown_us })
    }

    fn files(&self) -> Vec<PathBuf> {
        match &self.target {
            Destination::File { path, parts, .. } if !files::is_stdout(path) => {
                [path].into_iter().chain(parts).cloned().collect()
            }
            Destination::File { .. } | Destination::Display { .. } | Destination::User => Vec::new(),
        }
    }

    /// Waits until everything is encoded and written; fails if nothing moves for 30 s, or for 10 s after a
    /// request to end the run.
    fn finish(&mut self, _summary: &Summary) -> Result<()> {
        self.ready = None;
        let Some(mut playing) = self.playing.take() else { return Ok(()) };
        let (delivered, is_empty) = (playing.delivered, playing.delivered == 0);
        let finished = if is_empty { Ok(()) } else { playing.drain() };
        if finished.is_err() {
            playing.let_others_finish();
        }
        drop(playing);
        if let Destination::File { path, is_new: true, .. } = &self.target
            && is_empty
            && path.metadata().is_ok_and(|m| m.len() == 0)
        {
            std::fs::remove_file(path).map_err(Error::file("remove", path))?;
        }
        if let Destination::File { numbered: Some(numbered), .. } = &self.target
            && finished.is_ok()
        {
            let existing = numbered.existing().len() as u64;
            if let Some(others) = existing.checked_sub(delivered).filter(|others| *others > 0) {
                let name = &self.name;
                tracing::warn!(target: LOG, "{name}: {others} of {existing} pictures are not of this run");
            }
        }
        finished.map_err(|error| self.named(error))
    }
}

impl VideoSink {
    /// As [`named`]; a reader of standard output that needs no more is no failure of ours.
    fn named(&self, error: Error) -> Error {
        let is_stdout = matches!(&self.target, Destination::File { path, .. } if files::is_stdout(path));
        if is_stdout && is_closed_pipe(&error.to_string()) {
            return Error::ReaderGone { name: STDOUT };
        }
        named(&self.name, error)
    }
}

/// The name of standard output among outputs.
const STDOUT: &str = "-";

/// The system's error number for a pipe without a reader, the same on every Unix.
const EPIPE: i32 = 32;

/// True if the error of `fdsink` after a failed write contains the system's text for a closed pipe, in any
/// language: its errors have no number for that.
fn is_closed_pipe(error: &str) -> bool {
    let said = std::io::Error::from_raw_os_error(EPIPE).to_string();
    said.split(" (os error").next().is_some_and(|words| error.contains(words))
}

/// Names the failed output in an error, unless the error is about the installation or the typed text.
fn named(name: &str, error: Error) -> Error {
    let name = name.to_owned();
    match error {
        Error::MissingElement { .. } | Error::Launch { .. } => error,
        Error::Output { reason, .. } => Error::Output { name, reason },
        other => Error::Output { name, reason: other.to_string() },
    }
}

/// A failure of the output's own, named by [`named`].
fn fault(reason: impl Into<String>) -> Error {
    Error::Output { name: String::new(), reason: reason.into() }
}
