//! What the properties say, and what it means to lockon.

use lockon::backend::Options;
use lockon::config::{BackendChoice, Kernel, Limits, OnDeviceLoss, SearchMethod, TrackSpec};
use lockon::error::Result;
use lockon::job::{self, Job, Sought};
use lockon::output;

use super::View;

/// The properties' values, as they were set. Texts are checked when they are used.
#[derive(Debug, Clone)]
pub(super) struct Settings {
    pub(super) templates: Vec<String>,
    pub(super) track: Option<String>,
    pub(super) track_matches: bool,
    pub(super) threshold: Option<String>,
    pub(super) limits: Limits,
    pub(super) scales: String,
    pub(super) angles: String,
    pub(super) search: String,
    pub(super) roi: Option<String>,
    pub(super) backend: String,
    pub(super) kernel: Option<String>,
    pub(super) threads: u32,
    pub(super) depth: u32,
    pub(super) on_device_loss: String,
    /// 0 for all.
    pub(super) max_frames: u64,
    pub(super) view: View,
    pub(super) results: Option<String>,
    pub(super) posts_messages: bool,
    pub(super) has_qos: bool,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            templates: Vec::new(),
            track: None,
            track_matches: false,
            threshold: None,
            limits: Limits::default(),
            scales: "1..1/2".into(),
            angles: "0..0/1".into(),
            search: SearchMethod::default().name().into(),
            roi: None,
            backend: "auto".into(),
            kernel: None,
            threads: 0,
            depth: 2,
            on_device_loss: "end".into(),
            max_frames: 0,
            view: View::default(),
            results: None,
            posts_messages: true,
            has_qos: true,
        }
    }
}

/// Where the work is done: what stays the same until the element is set to READY.
#[derive(Debug, Clone)]
pub(super) struct Device {
    pub(super) options: Options,
    pub(super) on_loss: OnDeviceLoss,
    /// Results files.
    pub(super) results: Vec<String>,
}

impl Settings {
    /// True if there is anything to search, follow or threshold.
    pub(super) fn has_work(&self) -> bool {
        !self.templates.is_empty() || self.track.is_some() || self.threshold.is_some()
    }

    /// Reads the templates.
    pub(super) fn job(&self) -> Result<Job> {
        let templates = job::load_templates(&self.templates)?;
        let (scales, angles) = (self.scales.parse()?, self.angles.parse()?);
        let sought = Sought::new(&templates, self.search.parse()?, &scales, &angles)?;
        let threshold = self.threshold.as_deref().map(str::parse).transpose()?;
        let kernels = self.kernels()?;
        let search = sought.is_some().then(|| self.search.parse()).transpose()?;
        job::check_device(&kernels, self.backend.parse()?, search, threshold)?;
        Ok(Job {
            templates,
            sought,
            roi: self.roi.as_deref().map(str::parse).transpose()?,
            limits: self.limits,
            tracks: each(self.track.as_deref()).map(str::parse).collect::<Result<Vec<TrackSpec>>>()?,
            track_matches: self.track_matches,
            threshold,
            wants_mask: threshold.is_some() && self.view.has_mask(),
        })
    }

    pub(super) fn device(&self) -> Result<Device> {
        let choice: BackendChoice = self.backend.parse()?;
        let results: Vec<_> = each(self.results.as_deref()).map(str::to_owned).collect();
        output::check(&results)?;
        let threads = u16::try_from(self.threads).ok().filter(|threads| *threads > 0);
        Ok(Device {
            options: Options {
                choice,
                depth: self.depth as usize,
                threads: job::threads(threads),
                kernels: self.kernels()?.into_iter().collect(),
            },
            on_loss: self.on_device_loss.parse()?,
            results,
        })
    }

    fn kernels(&self) -> Result<Vec<Kernel>> {
        each(self.kernel.as_deref()).map(str::parse).collect()
    }
}

/// The parts of a text that `;` separates.
pub(super) fn each(text: Option<&str>) -> impl Iterator<Item = &str> {
    text.unwrap_or_default().split(';').map(str::trim).filter(|part| !part.is_empty())
}
