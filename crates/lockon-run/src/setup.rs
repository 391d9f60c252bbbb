//! The start of a run: the program and the GStreamer element make a [`Setup`] of their options, and the
//! engine's parts come from it.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use crate::backend::{self, Backend, Device, Options, Standing, Variants};
use crate::devices::Devices;
use lockon_core::config::{
    BackendChoice, CountingLine, Kernel, Limits, LumaRange, SearchMethod, ThresholdSpec, TimeSpan, TrackSpec,
    Zone,
};
use lockon_core::control::Control;
use lockon_core::distinctiveness;
use lockon_core::engine::{Engine, Purpose};
use lockon_core::error::{Error, Result};
use lockon_core::frame::{Rect, Size, VideoFormat};
use lockon_core::memory;
use lockon_core::message::{Message, ON_CPU, PYRAMID, Setting};
use lockon_core::ports::{Follow, Sink, Source};
use lockon_core::results::{RunRecord, SettingsRecord, Summary, TemplateRecord};
use lockon_core::search::{Search, Sought};
use lockon_core::still::{self, Still, Warned};
use lockon_core::template::{self, Template};
use lockon_core::text;
use lockon_core::tracker::Tracker;

/// A template with the digest of the file it came from.
#[derive(Debug, Clone)]
pub struct NamedTemplate {
    /// The template.
    pub template: Template,
    /// SHA-256 of its file, in hexadecimal.
    pub sha256: String,
}

/// Loads `[NAME=]PATH` templates. Without a name they take their file's, without its extension. No two may
/// have the same. Warns of templates that cannot be distinguished from other parts of a picture; see
/// [`distinctiveness`].
///
/// # Errors
/// `Usage` if two have one name; `File`, `Picture` or `Template` if one cannot be read or searched for.
pub fn load_templates(texts: &[String]) -> Result<Vec<NamedTemplate>> {
    load_more_templates(&[], texts)
}

/// As [`load_templates`], after others that have been read.
///
/// # Errors
/// As [`load_templates`].
pub fn load_more_templates(before: &[String], texts: &[String]) -> Result<Vec<NamedTemplate>> {
    let mut names: BTreeSet<_> = before.iter().map(|text| name_and_path(text).0).collect();
    let mut templates = Vec::new();
    for text in texts {
        let (name, path) = name_and_path(text);
        if !names.insert(name.clone()) {
            return Err(Error::Usage(format!(
                "two templates are named {name:?}: use other names, NAME=PATH"
            )));
        }
        let bytes = still::read(&path)?;
        let still = decode_picture(&bytes, &path, template::MAX_PIXELS)?;
        Warned::default().of(still.loss(), &path);
        let template = Template::new(name, still.luma, still.alpha.as_ref())?;
        for doubt in distinctiveness::Measures::of(&template, still.rgb.as_deref()).doubts() {
            tracing::warn!("template {:?} {doubt}", &**template.name());
        }
        templates.push(NamedTemplate { template, sha256: still::sha256(&bytes) });
    }
    Ok(templates)
}

/// Decodes a picture file of up to `max_pixels`, for every command. `path` is for messages.
///
/// # Errors
/// As [`still::decode`].
pub fn decode_picture(bytes: &[u8], path: &Path, max_pixels: u64) -> Result<Still> {
    #[cfg(feature = "gst")]
    return lockon_gst::stills::decode(bytes, path, max_pixels);
    #[cfg(not(feature = "gst"))]
    still::decode(bytes, path, max_pixels)
}

/// Splits `NAME=PATH`. A file whose own name has a `=` is a path.
pub fn name_and_path(text: &str) -> (String, PathBuf) {
    match text.split_once('=') {
        Some((name, path)) if !name.is_empty() && !name.contains('/') && !Path::new(text).exists() => {
            (name.to_owned(), path.into())
        }
        _ => (Path::new(text).file_stem().unwrap_or_default().to_string_lossy().into_owned(), text.into()),
    }
}

/// Opens a device for what an engine wants.
///
/// # Errors
/// `Outside` or `NothingFits` if the frames are too small for it, and those of [`backend::open`] and of
/// making a bank.
pub fn open(options: &Options, purpose: &Purpose<'_>) -> Result<Box<dyn Backend>> {
    let Purpose { search, format, mask } = *purpose;
    let standing = Standing::new(format.size)
        .thresholding(search.threshold, mask)
        .finding(search.objects)
        .expanding(search.expands(format));
    match search.sought() {
        Some(sought) => open_for(sought, options, &standing, search.roi, search.limits),
        None => backend::open(options, &standing),
    }
}

/// Opens a device that does `standing` and searches for templates too.
///
/// # Errors
/// As [`Standing::searching`], [`Sought::bank`] and [`backend::open`].
pub fn open_for(
    sought: &Sought,
    options: &Options,
    standing: &Standing,
    roi: Option<Rect>,
    limits: Limits,
) -> Result<Box<dyn Backend>> {
    let area = roi.map_or(standing.frame, Rect::size);
    let limit = options.memory.unwrap_or_else(memory::default_limit);
    let exhaustively = || standing.clone().searching(sought.bank(&options.control, limit)?, roi, limits);
    let coarsely = || standing.clone().searching_coarsely(sought.variants().clone(), roi, limits);
    let method = match (sought.taken(), sought.asked()) {
        (Some(taken), _) => taken,
        (None, SearchMethod::Auto) => backend::preferred_search(sought.variants(), area),
        (None, asked) => asked,
    };
    let is_open = sought.asked() == SearchMethod::Auto && sought.taken().is_none();
    let (opened, method) = match method {
        SearchMethod::Pyramid if is_open => {
            if let Some(opened) = backend::open_gpu(options, exhaustively)? {
                (opened, SearchMethod::Exhaustive)
            } else {
                let coarsely = coarsely()?;
                // Before its templates are made, which may take long: the user can stop it.
                warn_of_pyramid(sought.variants(), options, standing, area);
                (backend::open(&options.on_cpu(), &coarsely)?, SearchMethod::Pyramid)
            }
        }
        SearchMethod::Pyramid => (backend::open(options, &coarsely()?)?, method),
        SearchMethod::Exhaustive | SearchMethod::Auto => {
            (backend::open(options, &exhaustively()?)?, SearchMethod::Exhaustive)
        }
    };
    // A GPU takes as long for every picture.
    sought.take(method, opened.describe().backend == "cpu");
    Ok(opened)
}

/// Warns that `auto` chose the pyramid, with the cost of the exhaustive search.
fn warn_of_pyramid(variants: &Variants, options: &Options, standing: &Standing, area: Size) {
    let count = variants.count();
    if backend::takes_exhaustively(variants, area, standing, options) {
        let seconds = backend::exhaustive_seconds(variants, area, options.threads);
        tracing::warn!(
            "--search auto uses the pyramid (coarse to fine), which can miss a match: --search exhaustive misses none, and takes \
             about {seconds:.1} s a frame for {count} sizes and directions here"
        );
    } else {
        tracing::warn!(
            "--search auto uses the pyramid (coarse to fine), which can miss a match: {count} sizes and directions are too many \
             for --search exhaustive here, which misses none; fewer --scales or --angles, or more --memory, may allow it"
        );
    }
}

/// Refuses settings that no device can use: a search method that the chosen device does not have, and kernels
/// without work, or whose work another kernel does. `search` is `None` if nothing is searched.
///
/// # Errors
/// `Usage`.
pub fn check_device(
    kernels: &[Kernel],
    backend: BackendChoice,
    search: Option<SearchMethod>,
    threshold: Option<ThresholdSpec>,
) -> Result<()> {
    let refused =
        |text: &'static str, settings: Vec<Setting>| Err(Error::Settings(Message::new(text, settings)));
    let of_kernel = |kernel: &Kernel| Setting::of("kernel", kernel);
    let is_coarse = search == Some(SearchMethod::Pyramid);
    if is_coarse && matches!(backend, BackendChoice::Cuda(_) | BackendChoice::CudaOf(_)) {
        return refused("{} is the CPU backend's: it needs {}", vec![PYRAMID, ON_CPU]);
    }
    if let Some(kernel) = kernels.first().filter(|_| is_coarse) {
        return refused(
            "{} is the CPU backend's, and {} the CUDA backend's",
            vec![PYRAMID, of_kernel(kernel)],
        );
    }
    for (index, kernel) in kernels.iter().enumerate() {
        if backend == BackendChoice::Cpu {
            let on_gpu = Setting::with("backend", "cuda");
            return refused("{} is the CUDA backend's: it needs {}", vec![of_kernel(kernel), on_gpu]);
        }
        let has_work = match kernel {
            Kernel::Ncc(_) => search.is_some(),
            Kernel::Box(_) | Kernel::Gaussian(_) => threshold.is_some_and(|spec| kernel.makes(spec.method)),
        };
        if !has_work {
            return refused("{} has nothing to do here", vec![of_kernel(kernel)]);
        }
        let same = |other: &&Kernel| std::mem::discriminant(*other) == std::mem::discriminant(kernel);
        if let Some(other) = kernels[..index].iter().find(same) {
            return refused("{} and {} are for the same work", vec![of_kernel(other), of_kernel(kernel)]);
        }
    }
    Ok(())
}

/// Threads of the CPU backend: all cores by default.
pub fn threads(asked: Option<u16>) -> usize {
    asked.map_or_else(|| std::thread::available_parallelism().map_or(1, usize::from), usize::from)
}

/// The start of a run, for any format of frames.
#[derive(Debug, Clone, Default)]
pub struct Setup {
    /// The templates.
    pub templates: Vec<NamedTemplate>,
    /// The search.
    pub search: Arc<Search>,
    /// The boxes to follow.
    pub tracks: Vec<TrackSpec>,
    /// Whether matches are followed too.
    pub track_matches: bool,
    /// Whether detections of a detector upstream are followed too.
    pub track_detections: bool,
    /// Whether objects of the mask are followed too.
    pub track_objects: bool,
    /// The time after which a lost track ends.
    pub lost_for: Option<TimeSpan>,
    /// The longest time out of sight within one appearance.
    pub gap: TimeSpan,
    /// The zones.
    pub zones: Vec<Zone>,
    /// The lines.
    pub lines: Vec<CountingLine>,
}

/// Opens a device for what an engine wants, as [`open`] does.
pub type OpenDevice<'a> = dyn Fn(&Options, &Purpose<'_>) -> Result<Box<dyn Backend>> + 'a;

/// The source and the outputs of a run.
pub struct Ends<'a> {
    /// The source.
    pub source: &'a mut dyn Source,
    /// The outputs, in the order in which they get each frame.
    pub sinks: Vec<Box<dyn Sink>>,
    /// Describes the run, once the first frame's format and the device are known.
    pub describe: &'a dyn Fn(&VideoFormat, &Device) -> RunRecord,
    /// Maximum number of frames.
    pub max_frames: Option<u64>,
    /// Controls the run.
    pub control: Control,
}

impl Setup {
    /// Runs the engine between two ends, on these devices. `open` opens one of them.
    pub fn run(
        &self,
        devices: &Devices,
        open: &OpenDevice<'_>,
        Ends { source, sinks, describe, max_frames, control }: Ends<'_>,
    ) -> (Summary, Result<()>) {
        let beside = RefCell::new(devices.keep_beside());
        let open_backend = |purpose: &Purpose<'_>| devices.open(|options| open(options, purpose));
        let open_spare = |purpose: &Purpose<'_>, error: Option<&Error>| {
            // The spare one is the CPU, or may be a GPU beside other processors.
            drop(beside.take());
            devices.open_spare(error, |options| open(options, purpose))
        };
        let engine = Engine {
            source,
            search: self.search.clone(),
            open_backend: &open_backend,
            open_spare: devices.has_spare().then_some(&open_spare as _),
            describe,
            tracker: self.tracker(devices.threads()),
            sinks,
            max_frames,
            control,
            traffic: devices.traffic(),
        };
        engine.run()
    }

    /// Prepares a run that `control` controls, before its source is opened: it watches the zones and lines,
    /// and accepts orders.
    pub fn begin(&self, control: &Control) {
        control.begin_with_zones(self.zones.clone());
        control.begin_with_lines(self.lines.clone());
        control.begin(self.tracks.len() as u32);
    }

    /// Returns the tracker for the boxes, and for the matches if they are to be followed, with so many
    /// threads.
    pub fn tracker(&self, threads: usize) -> Box<dyn Follow> {
        let tracker = Tracker::new(&self.tracks).with_threads(threads);
        let tracker = match (self.track_matches, self.track_detections) {
            (true, _) => tracker.following_matches(),
            (false, true) => tracker.following_detections(),
            (false, false) => tracker,
        };
        let tracker = if self.track_objects { tracker.following_objects() } else { tracker };
        Box::new(tracker.ending_lost(self.lost_for))
    }

    /// Returns the record of the run, for frames of `format`. Secrets in `input` are left out. `decoder` is
    /// the element that makes the frames, where that is known.
    pub fn describe(
        &self,
        input: &str,
        decoder: Option<String>,
        format: &VideoFormat,
        device: &Device,
    ) -> RunRecord {
        RunRecord {
            version: env!("CARGO_PKG_VERSION"),
            input: text::for_people(input),
            width: format.size.width,
            height: format.size.height,
            frame_rate: frame_rate(format),
            format: format.pixels.name,
            backend: device.backend,
            device: device.name.clone(),
            driver: device.driver.clone(),
            decoder,
            pictures: false,
            started: SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs()),
            templates: self.templates.iter().map(|template| self.record(template, format)).collect(),
            // The engine sets it when it has opened a device.
            search: None,
            tracks: self.tracks.iter().map(ToString::to_string).collect(),
            track_matches: self.track_matches,
            track_objects: self.track_objects,
            threshold: self.search.threshold.map(|spec| spec.to_string()),
            objects: self.search.objects,
            range: Some(self.search.range).filter(|range| *range != LumaRange::AsIs).map(LumaRange::name),
            settings: self.search.sought().map(|_| self.settings()),
            command: None,
            gap: self.gap,
            hides: false,
        }
    }

    fn settings(&self) -> SettingsRecord {
        let Limits { min_score, max_matches, max_overlap } = self.search.limits;
        SettingsRecord {
            min_score,
            max_matches,
            max_overlap,
            roi: self.search.roi.map(|roi| roi.to_string()),
            scales: self.search.scales().0.clone(),
            angles: self.search.angles().0.clone(),
        }
    }

    fn record(&self, template: &NamedTemplate, format: &VideoFormat) -> TemplateRecord {
        let NamedTemplate { template, sha256 } = template;
        let area = self.search.roi.map_or(format.size, Rect::size);
        let members = self.search.sought().into_iter().flat_map(Sought::members);
        let fitting = members.filter(|(name, size)| *name == &**template.name() && size.fits_in(area));
        TemplateRecord {
            name: template.name().clone(),
            w: template.size().width,
            h: template.size().height,
            sha256: sha256.clone(),
            members: fitting.count(),
        }
    }
}

/// Nominal frames a second, 0 where they vary or are unknown.
pub fn frame_rate(format: &VideoFormat) -> f64 {
    match format.frame_rate {
        (_, 0) => 0.0,
        (frames, seconds) => f64::from(frames) / f64::from(seconds),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lockon_core::frame::PixelFormat;

    #[test]
    fn no_password_reaches_the_record_of_a_run_whoever_describes_it() {
        let format = VideoFormat {
            size: Size::new(8, 8),
            pixels: PixelFormat::GRAY8,
            frame_rate: (25, 1),
            pixel_aspect: (1, 1),
            colorimetry: None,
        };
        let device = backend::open(
            &Options { depth: 1, threads: 1, ..Options::default().on_cpu() },
            &Standing::new(format.size),
        );
        let device = device.unwrap().describe();
        let input = |text: &str| Setup::default().describe(text, None, &format, &device).input;
        assert_eq!(input("http://me:secret@host/a.mp4"), "http://***@host/a.mp4");
        assert_eq!(input("souphttpsrc user-pw=secret ! decodebin"), "souphttpsrc user-pw=*** ! decodebin");
        assert_eq!(input("a clip.mp4"), "a clip.mp4");
    }
}
