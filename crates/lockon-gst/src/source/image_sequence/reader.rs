//! From picture files to samples: a few threads decode ahead, each every Nth picture, and the thread of an
//! `appsrc` takes their pictures in order.
//!
//! Each thread holds one decoded picture and has one more in its channel, so memory has a bound. A picture
//! that cannot be read is an error that names it, after all pictures before it: frame numbers would shift
//! otherwise.

use std::fs::File;
use std::num::NonZero;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread::JoinHandle;

use crossbeam_channel::{Receiver, bounded};
use gst::prelude::*;

use super::PictureFiles;
use crate::launch::Launch;
use crate::source::SourceSpec;
use crate::stills;
use lockon_core::error::{Error, Result, catch_panic};
use lockon_core::still::{self, Loss, MAX_PIXELS, Still, Warned};
use lockon_core::text;

/// Maximum bytes of pictures that are decoded ahead, except for a single larger one.
const AHEAD_BYTES: usize = 512 << 20;

/// Bytes of a pixel while its picture is decoded: samples, luma, and the three planes that are made of them.
const BYTES_OF_PIXEL: usize = 7;

/// A decoded picture as a buffer's contents.
struct Ready {
    planes: Vec<u8>,
    info: gst_video::VideoInfo,
    loss: Loss,
    /// Time and duration, where the file has them.
    shown: Option<(u64, u64)>,
}

/// The source of the appsrc's pictures.
struct Reader {
    /// The path of each picture, and its name for messages.
    files: Arc<[(PathBuf, PathBuf)]>,
    /// True if the input is one file, whose name begins every message.
    is_single: bool,
    /// Keeps open files open.
    _opened: Option<Arc<Vec<(PathBuf, File)>>>,
    rate: (i32, i32),
    is_animation: bool,
    /// Frames are grey.
    luma_only: bool,
    max_threads: usize,
    /// The pictures of each thread, in its order; empty before the first picture was read.
    made: Vec<Receiver<Result<Ready>>>,
    threads: Vec<JoinHandle<()>>,
    /// The number of the next picture.
    next: usize,
    warned: Warned,
    caps: Option<(gst_video::VideoInfo, gst::Caps)>,
}

/// Connects these pictures to the pipeline's appsrc.
pub(super) fn attach(
    pictures: &PictureFiles,
    rate: (i32, i32),
    spec: &SourceSpec,
    launch: &Launch,
    pipeline: &gst::Pipeline,
) -> Result<()> {
    let source = launch.element(pipeline, "input")?.downcast::<gst_app::AppSrc>();
    let source = source.map_err(|_| launch.fault("\"input\" must name an appsrc"))?;
    let cores = || std::thread::available_parallelism().map_or(1, NonZero::get);
    let names = pictures.single.iter().chain(&pictures.files).cloned();
    let mut reader = Reader {
        files: pictures.paths()?.into_iter().zip(names).collect(),
        is_single: pictures.single.is_some(),
        _opened: pictures.opened.clone(),
        rate,
        is_animation: pictures.is_animation,
        luma_only: spec.luma_only,
        max_threads: spec.decoder_threads.map_or_else(cores, |threads| threads as usize).max(1),
        made: Vec::new(),
        threads: Vec::new(),
        next: 0,
        warned: Warned::default(),
        caps: None,
    };
    let give = move |source: &gst_app::AppSrc, _: u32| {
        let given = catch_panic(|| reader.give(source)).unwrap_or_else(|message| Err(panicked(message)));
        if let Err(error) = given {
            // The error of an input is printed after the input's name.
            let said = error.to_string();
            let named = format!("{}: ", text::path(&reader.files[0].1));
            let said = said.strip_prefix(&*named).filter(|_| reader.is_single).unwrap_or(&said);
            gst::element_error!(source, gst::StreamError::Decode, ("{said}"));
            // Earlier frames are under way; none comes after it.
            let _ = source.end_of_stream();
        }
    };
    source.set_callbacks(gst_app::AppSrcCallbacks::builder().need_data(give).build());
    Ok(())
}

impl Reader {
    /// Gives the next picture, or the end.
    fn give(&mut self, source: &gst_app::AppSrc) -> Result<()> {
        let number = self.next;
        self.next += 1;
        let Some(ready) = self.take(number).transpose()? else {
            // A stopped pipeline does not accept the end either.
            let _ = source.end_of_stream();
            return Ok(());
        };
        let (_, name) = self.files.get(number).unwrap_or(&self.files[0]);
        self.warned.of(ready.loss, name);
        let caps = match &self.caps {
            Some((info, caps)) if *info == ready.info => caps.clone(),
            _ => {
                let caps = ready.info.to_caps().map_err(|error| failure(error.to_string()))?;
                self.caps = Some((ready.info.clone(), caps.clone()));
                caps
            }
        };
        let (pts, duration) = match (ready.shown, self.rate) {
            (Some((pts, duration)), _) => (Some(pts), Some(duration)),
            (None, (frames @ 1.., seconds)) => {
                let duration = 1_000_000_000 * seconds as u64 / frames as u64;
                (Some(number as u64 * duration), Some(duration))
            }
            (None, _) => (Some(0), None),
        };
        let mut buffer = gst::Buffer::from_mut_slice(ready.planes);
        {
            let buffer = buffer.get_mut().expect("nobody else has the new buffer");
            buffer.set_pts(pts.map(gst::ClockTime::from_nseconds));
            buffer.set_duration(duration.map(gst::ClockTime::from_nseconds));
            buffer.set_offset(number as u64);
        }
        // A stopped pipeline accepts no picture.
        let _ = source.push_sample(&gst::Sample::builder().buffer(&buffer).caps(&caps).build());
        Ok(())
    }

    /// The picture of that number; `None` after the last.
    fn take(&mut self, number: usize) -> Option<Result<Ready>> {
        if self.is_animation {
            if self.made.is_empty() {
                self.play();
            }
            return self.made[0].recv().ok();
        }
        if number >= self.files.len() {
            return None;
        }
        if number == 0 {
            // Its size shows how many more fit into memory.
            let first = read(&self.files[0], self.rate, self.luma_only);
            if let Ok(first) = &first {
                let pixels = first.info.width() as usize * first.info.height() as usize;
                let count = AHEAD_BYTES / (2 * BYTES_OF_PIXEL * pixels.max(1));
                self.start(count.clamp(1, self.max_threads).min(self.files.len() - 1));
            }
            return Some(first);
        }
        let of_thread = &self.made[(number - 1) % self.made.len()];
        Some(
            of_thread
                .recv()
                .unwrap_or_else(|_| Err(failure("a thread that reads pictures has ended".into()))),
        )
    }

    /// Starts threads for the pictures after the first.
    fn start(&mut self, count: usize) {
        for thread in 0..count {
            let (sender, made) = bounded(1);
            let (files, rate, luma_only) = (Arc::clone(&self.files), self.rate, self.luma_only);
            let work = move || {
                for file in files.iter().skip(1 + thread).step_by(count) {
                    let ready = catch_panic(|| read(file, rate, luma_only))
                        .unwrap_or_else(|message| Err(panicked(message)));
                    let has_failed = ready.is_err();
                    if sender.send(ready).is_err() || has_failed {
                        return;
                    }
                }
            };
            self.spawn(work, made);
        }
    }

    /// Starts the thread of an animation, whose pictures build on the earlier ones.
    fn play(&mut self) {
        let (sender, made) = bounded(2);
        let ((path, named), rate, luma_only) = (self.files[0].clone(), self.rate, self.luma_only);
        let work = move || {
            let play = || -> Result<()> {
                for shown in still::animation(still::read(&path)?, &named, MAX_PIXELS)? {
                    let shown = shown?;
                    let times = Some((shown.pts_ns, shown.duration_ns));
                    if sender.send(ready(shown.still, rate, times, luma_only)).is_err() {
                        return Ok(());
                    }
                }
                Ok(())
            };
            if let Err(error) = catch_panic(play).unwrap_or_else(|message| Err(panicked(message))) {
                // The receiver is gone if the pipeline was stopped.
                let _ = sender.send(Err(error));
            }
        };
        self.spawn(work, made);
    }

    fn spawn(&mut self, work: impl FnOnce() + Send + 'static, made: Receiver<Result<Ready>>) {
        // Without a thread its channel is closed, which is an error when its first picture is due.
        if let Ok(thread) = std::thread::Builder::new().name("lockon-pictures".into()).spawn(work) {
            self.threads.push(thread);
        }
        self.made.push(made);
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        // Releases threads that wait for room.
        self.made.clear();
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

fn read((path, named): &(PathBuf, PathBuf), rate: (i32, i32), luma_only: bool) -> Result<Ready> {
    // A pipe would block the run until it has a writer, even if the run must end.
    if path.metadata().is_ok_and(|about| !about.is_file()) {
        return Err(Error::file("read", named)(std::io::Error::other("it is not a regular file")));
    }
    let decode = if luma_only { stills::decode_luma } else { stills::decode };
    ready(decode(&still::read(path)?, named, MAX_PIXELS)?, rate, None, luma_only)
}

/// The picture as a frame: luma and, where the file has colours that are used, Cb and Cr at full range, as
/// frames of RGB become them.
fn ready(still: Still, rate: (i32, i32), shown: Option<(u64, u64)>, luma_only: bool) -> Result<Ready> {
    let (mut still, loss) = still.into_scene();
    if luma_only {
        still.remove_colours();
    }
    let size = still.luma.size();
    let format = if still.has_colours { gst_video::VideoFormat::Y444 } else { gst_video::VideoFormat::Gray8 };
    let colorimetry = gst_video::VideoColorimetry::new(
        gst_video::VideoColorRange::Range0_255,
        gst_video::VideoColorMatrix::Bt601,
        gst_video::VideoTransferFunction::Unknown,
        gst_video::VideoColorPrimaries::Unknown,
    );
    let info = gst_video::VideoInfo::builder(format, size.width as u32, size.height as u32)
        .fps(rate)
        .colorimetry(&colorimetry)
        .build();
    let info = info.map_err(|_| failure(format!("no frame is of {size}")))?;
    let planes = still.into_full_range(info.stride()[0] as usize);
    Ok(Ready { planes, info, loss, shown })
}

fn panicked(message: String) -> Error {
    Error::Panicked { what: "a reader of pictures".into(), message }
}

fn failure(message: String) -> Error {
    Error::Pipeline { element: "pictures".into(), message, debug: String::new() }
}
