//! What is to be done to a video, whoever asks for it: the program and the GStreamer element make a [`Job`]
//! of what they were told, and the engine's pieces come from it.

use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::{SystemTime, UNIX_EPOCH};

use crate::backend::{self, Backend, Device, Options, Standing, Variants};
use crate::config::{Angles, BackendChoice, Kernel, Limits, Scales, SearchMethod, ThresholdSpec, TrackSpec};
use crate::control::Control;
use crate::error::{Bytes, Error, Result};
use crate::frame::{Rect, Size, VideoFormat};
use crate::judge;
use crate::memory;
use crate::ports::Follow;
use crate::results::{RunRecord, SettingsRecord, TemplateRecord};
use crate::still;
use crate::template::{self, Bank, Template};
use crate::text;
use crate::tracker::Tracker;

/// A template with the digest of the file it came from.
#[derive(Debug, Clone)]
pub struct NamedTemplate {
    /// The template.
    pub template: Template,
    /// SHA-256 of its file, in hexadecimal.
    pub sha256: String,
}

/// Loads `[NAME=]PATH` templates. Without a name they take their file's, without its extension. No two may
/// have the same. Warns of those that cannot be told from what they are not; see [`judge`].
///
/// # Errors
/// `Usage` if two have one name; `File`, `Picture` or `Template` if one cannot be read or searched for.
pub fn load_templates(texts: &[String]) -> Result<Vec<NamedTemplate>> {
    let mut templates: Vec<NamedTemplate> = Vec::new();
    for text in texts {
        let (name, path) = name_and_path(text);
        if templates.iter().any(|t| **t.template.name() == *name) {
            return Err(Error::Usage(format!(
                "two templates are named {name:?}: give them names, NAME=PATH"
            )));
        }
        let still = still::load_up_to(&path, template::MAX_PIXELS)?;
        let template = Template::new(name, still.luma, still.alpha.as_ref())?;
        for doubt in judge::Measures::of(&template, still.rgb.as_deref()).doubts() {
            tracing::warn!("template {:?} {doubt}", &**template.name());
        }
        templates.push(NamedTemplate { template, sha256: still.sha256 });
    }
    Ok(templates)
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

/// What is searched for in every frame: every template at every scale and angle.
#[derive(Debug, Clone)]
pub struct Sought {
    variants: Variants,
    method: SearchMethod,
    /// All variants, made beforehand: where that is asked for, or has turned out to be the way.
    bank: OnceLock<Bank>,
    /// The way that was taken for the first frame: it stays when the frames' size or the device changes.
    /// Clones share it.
    taken: Arc<OnceLock<SearchMethod>>,
}

impl Sought {
    /// What is searched for in that way, or `None` if there are no templates.
    ///
    /// # Errors
    /// As [`Bank::expanded`] and [`template::check_count`].
    pub fn new(
        templates: &[NamedTemplate],
        method: SearchMethod,
        scales: &Scales,
        angles: &Angles,
    ) -> Result<Option<Self>> {
        Self::new_under(templates, method, scales, angles, &Control::new())
    }

    /// The same for a run that can be stopped while a bank is made.
    ///
    /// # Errors
    /// As [`Self::new`]; `Stopped`.
    pub fn new_under(
        templates: &[NamedTemplate],
        method: SearchMethod,
        scales: &Scales,
        angles: &Angles,
        control: &Control,
    ) -> Result<Option<Self>> {
        if templates.is_empty() {
            return Ok(None);
        }
        let templates: Vec<Template> = templates.iter().map(|t| t.template.clone()).collect();
        template::check_count(templates.len(), scales, angles)?;
        let bank = OnceLock::new();
        let is_one = scales.0.len() * angles.0.len() == 1;
        if method == SearchMethod::Exhaustive || is_one && method == SearchMethod::Auto {
            let _ = bank.set(Bank::expanded_within(&templates, scales, angles, control, Bytes(u64::MAX))?);
        }
        let variants = Variants { templates, scales: scales.clone(), angles: angles.clone() };
        Ok(Some(Self { variants, method, bank, taken: Arc::default() }))
    }

    /// Opens a device that does `standing` and searches for it too.
    ///
    /// # Errors
    /// As [`Standing::searching`], [`Bank::expanded`] and [`backend::open`].
    pub fn open(
        &self,
        options: &Options,
        standing: &Standing,
        roi: Option<Rect>,
        limits: Limits,
    ) -> Result<Box<dyn Backend>> {
        let area = roi.map_or(standing.frame, Rect::size);
        let exhaustively = || standing.clone().searching(self.bank(options)?, roi, limits);
        let coarsely = || standing.clone().searching_coarsely(self.variants.clone(), roi, limits);
        let method = match (self.taken.get(), self.method) {
            (Some(taken), _) => *taken,
            (None, SearchMethod::Auto) => backend::preferred_search(&self.variants, area),
            (None, asked) => asked,
        };
        let is_open = self.method == SearchMethod::Auto && self.taken.get().is_none();
        let (opened, method) = match method {
            SearchMethod::Pyramid if is_open => {
                if let Some(opened) = backend::open_gpu(options, exhaustively)? {
                    (opened, SearchMethod::Exhaustive)
                } else {
                    let coarsely = coarsely()?;
                    // Before its templates are made, which may take long: who does not want it can stop it.
                    self.tell_coarse(options, standing, area);
                    (backend::open(&options.on_cpu(), &coarsely)?, SearchMethod::Pyramid)
                }
            }
            SearchMethod::Pyramid => (backend::open(options, &coarsely()?)?, method),
            SearchMethod::Exhaustive | SearchMethod::Auto => {
                (backend::open(options, &exhaustively()?)?, SearchMethod::Exhaustive)
            }
        };
        let _ = self.taken.set(method);
        Ok(opened)
    }

    /// Says that `auto` takes a pyramid, and what else there is.
    fn tell_coarse(&self, options: &Options, standing: &Standing, area: Size) {
        let count = self.variants.count();
        if backend::takes_exhaustively(&self.variants, area, standing, options) {
            let seconds = backend::exhaustive_seconds(&self.variants, area, options.threads);
            tracing::warn!(
                "templates are searched from coarse to fine, which can miss a match: --search exhaustive misses none, and takes \
                 about {seconds:.1} s a frame for {count} sizes and directions here"
            );
        } else {
            tracing::warn!(
                "templates are searched from coarse to fine, which can miss a match: {count} sizes and directions are too many \
                 for --search exhaustive here, which misses none; fewer --scales or --angles, or more --memory, may allow it"
            );
        }
    }

    /// All variants, made now if they are new.
    fn bank(&self, options: &Options) -> Result<&Bank> {
        if let Some(bank) = self.bank.get() {
            return Ok(bank);
        }
        let Variants { templates, scales, angles } = &self.variants;
        let limit = options.memory.unwrap_or_else(memory::default_limit);
        let bank = Bank::expanded_within(templates, scales, angles, &options.control, limit)?;
        Ok(self.bank.get_or_init(|| bank))
    }

    /// The way that was taken, or would be if nothing else is known.
    fn method(&self) -> SearchMethod {
        self.taken.get().copied().unwrap_or(self.method)
    }

    /// Names and sizes of all members.
    fn members(&self) -> Vec<(&str, Size)> {
        match self.bank.get().filter(|_| self.method() != SearchMethod::Pyramid) {
            Some(bank) => bank.members().iter().map(|member| (&**member.name(), member.size())).collect(),
            None => (0..self.variants.count())
                .map(|variant| (&**self.variants.template(variant).name(), self.variants.size(variant)))
                .collect(),
        }
    }
}

/// Refuses what no device can do: a way to search that the chosen device does not have, and kernels that have
/// nothing to do or whose work another kernel does. `search` is none if nothing is searched.
///
/// # Errors
/// `Usage`.
pub fn check_device(
    kernels: &[Kernel],
    backend: BackendChoice,
    search: Option<SearchMethod>,
    threshold: Option<ThresholdSpec>,
) -> Result<()> {
    let usage = |text: String| Err(Error::Usage(text));
    let is_coarse = search == Some(SearchMethod::Pyramid);
    if is_coarse && matches!(backend, BackendChoice::Cuda(_) | BackendChoice::CudaOf(_)) {
        return usage("--search pyramid is the CPU backend's: it needs --backend cpu".into());
    }
    if let Some(kernel) = kernels.first().filter(|_| is_coarse) {
        return usage(format!(
            "--search pyramid is the CPU backend's, and --kernel {kernel} the CUDA backend's"
        ));
    }
    for (index, kernel) in kernels.iter().enumerate() {
        if backend == BackendChoice::Cpu {
            return usage(format!("--kernel {kernel} is the CUDA backend's: it needs --backend cuda"));
        }
        let has_work = match kernel {
            Kernel::Ncc(_) => search.is_some(),
            Kernel::Box(_) | Kernel::Gaussian(_) => threshold.is_some_and(|spec| kernel.makes(spec.method)),
        };
        if !has_work {
            return usage(format!("--kernel {kernel} has nothing to do here"));
        }
        let same = |other: &&Kernel| std::mem::discriminant(*other) == std::mem::discriminant(kernel);
        if let Some(other) = kernels[..index].iter().find(same) {
            return usage(format!("--kernel {other} and --kernel {kernel} are for the same work"));
        }
    }
    Ok(())
}

/// Threads of the CPU backend: all cores, unless told otherwise.
pub fn threads(asked: Option<u16>) -> usize {
    asked.map_or_else(|| std::thread::available_parallelism().map_or(1, usize::from), usize::from)
}

/// What is done to every frame, whatever its size.
#[derive(Debug, Clone, Default)]
pub struct Job {
    /// The templates that are searched.
    pub templates: Vec<NamedTemplate>,
    /// These in all sizes and directions.
    pub sought: Option<Sought>,
    /// Where they are searched: the whole frame if nothing is said.
    pub roi: Option<Rect>,
    /// What counts as a match.
    pub limits: Limits,
    /// The boxes that are followed.
    pub tracks: Vec<TrackSpec>,
    /// Whether matches are followed too.
    pub track_matches: bool,
    /// Whether what a detector in front finds is followed too.
    pub track_detections: bool,
    /// The adaptive threshold.
    pub threshold: Option<ThresholdSpec>,
    /// Whether somebody wants to see the thresholded frames.
    pub wants_mask: bool,
}

impl Job {
    /// Opens a device for frames of `format`.
    ///
    /// # Errors
    /// `Outside` or `NothingFits` if the frames are too small for what is asked, and those of
    /// [`backend::open`].
    pub fn open(&self, options: &Options, format: &VideoFormat) -> Result<Box<dyn Backend>> {
        let standing = Standing::new(format.size).thresholding(self.threshold, self.wants_mask);
        match &self.sought {
            Some(sought) => sought.open(options, &standing, self.roi, self.limits),
            None => backend::open(options, &standing),
        }
    }

    /// The same in the middle of a run, which frames that have become smaller do not end: what does not fit
    /// into them is not searched, and that is said. Frames that are large again are searched as before.
    ///
    /// # Errors
    /// Those of [`backend::open`].
    pub fn reopen(&self, options: &Options, format: &VideoFormat) -> Result<Box<dyn Backend>> {
        let too_small = |error: &Error| matches!(error, Error::Outside { .. } | Error::NothingFits { .. });
        let whole = match self.open(options, format) {
            Err(error) if too_small(&error) => error,
            opened => return opened,
        };
        let cut = |roi: Rect| roi.cut_to(format.size);
        let rest = Self { roi: self.roi.and_then(cut), ..self.clone() };
        // Without what is left of it the whole frame would be searched.
        if self.roi.is_none() || rest.roi.is_some() {
            match rest.open(options, format) {
                Err(error) if too_small(&error) => {}
                opened => {
                    if let (Some(roi), true) = (rest.roi, opened.is_ok()) {
                        tracing::warn!("{whole}: what is left of it is searched, {roi}");
                    }
                    return opened;
                }
            }
        }
        tracing::warn!("{whole}: no template is searched for while frames are {}", format.size);
        Self { sought: None, ..rest }.open(options, format)
    }

    /// What follows the boxes, and the matches if they are to be followed, on so many threads.
    pub fn tracker(&self, threads: usize) -> Box<dyn Follow> {
        let tracker = Tracker::new(&self.tracks).with_threads(threads);
        Box::new(match (self.track_matches, self.track_detections) {
            (true, _) => tracker.following_matches(),
            (false, true) => tracker.following_detections(),
            (false, false) => tracker,
        })
    }

    /// What is run on frames of `format`, from now on. What is secret in `input` is left out. `decoder` is
    /// the element that makes them, where that is known.
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
            started: SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs()),
            templates: self.templates.iter().map(|template| self.record(template, format)).collect(),
            search: match self.sought.as_ref().map(Sought::method) {
                Some(SearchMethod::Pyramid) => Some(SearchMethod::Pyramid.name()),
                _ => None,
            },
            tracks: self.tracks.iter().map(ToString::to_string).collect(),
            track_matches: self.track_matches,
            threshold: self.threshold.map(|spec| spec.to_string()),
            settings: self.sought.as_ref().map(|sought| self.settings(&sought.variants)),
            command: None,
        }
    }

    fn settings(&self, Variants { scales, angles, .. }: &Variants) -> SettingsRecord {
        let Limits { min_score, max_matches, max_overlap } = self.limits;
        SettingsRecord {
            min_score,
            max_matches,
            max_overlap,
            roi: self.roi.map(|roi| roi.to_string()),
            scales: scales.0.clone(),
            angles: angles.0.clone(),
        }
    }

    fn record(&self, template: &NamedTemplate, format: &VideoFormat) -> TemplateRecord {
        let NamedTemplate { template, sha256 } = template;
        let area = self.roi.map_or(format.size, Rect::size);
        let members = self.sought.iter().flat_map(Sought::members);
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
    use crate::frame::PixelFormat;

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
        let input = |text: &str| Job::default().describe(text, None, &format, &device).input;
        assert_eq!(input("http://me:secret@host/a.mp4"), "http://***@host/a.mp4");
        assert_eq!(input("souphttpsrc user-pw=secret ! decodebin"), "souphttpsrc user-pw=*** ! decodebin");
        assert_eq!(input("a clip.mp4"), "a clip.mp4");
    }
}
