//! What the properties say, and what it means to lockon.

use gst::glib;
use gst::prelude::*;
use lockon::backend::Options;
use lockon::config::{BackendChoice, Kernel, Limits, OnDeviceLoss, SearchMethod, TrackSpec};
use lockon::error::Result;
use lockon::job::{self, Job, Sought};
use lockon::output;

use super::View;

/// Properties that say what is searched: they can be set while frames pass.
const OF_THE_SEARCH: [&str; 11] = [
    "template",
    "templates",
    "threshold",
    "min-score",
    "max-matches",
    "max-overlap",
    "scales",
    "angles",
    "search",
    "roi",
    "view",
];

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
    /// Counts how often something was set.
    changes: u64,
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
            changes: 0,
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
    /// Sets a property. The value is of its type: `GObject` has checked that.
    pub(super) fn set(&mut self, property: &str, value: &glib::Value) {
        const OF_TYPE: &str = "GObject has checked the type";
        let text = || value.get::<Option<String>>().expect(OF_TYPE).filter(|text| !text.trim().is_empty());
        let number = || value.get::<f64>().expect(OF_TYPE);
        let count = || value.get::<u32>().expect(OF_TYPE);
        let switch = || value.get::<bool>().expect(OF_TYPE);
        let defaults = Self::default();
        match property {
            "template" => self.templates = each(text().as_deref()).map(str::to_owned).collect(),
            "templates" => {
                let array = value.get::<gst::Array>().expect(OF_TYPE);
                self.templates = array.iter().filter_map(|value| value.get::<String>().ok()).collect();
            }
            "track" => self.track = text(),
            "track-matches" => self.track_matches = switch(),
            "threshold" => self.threshold = text(),
            "min-score" => self.limits.min_score = number(),
            "max-matches" => self.limits.max_matches = count() as usize,
            "max-overlap" => self.limits.max_overlap = number(),
            "scales" => self.scales = text().unwrap_or(defaults.scales),
            "angles" => self.angles = text().unwrap_or(defaults.angles),
            "search" => self.search = text().unwrap_or(defaults.search),
            "roi" => self.roi = text(),
            "backend" => self.backend = text().unwrap_or(defaults.backend),
            "kernel" => self.kernel = text(),
            "threads" => self.threads = count(),
            "depth" => self.depth = count(),
            "on-device-loss" => self.on_device_loss = text().unwrap_or(defaults.on_device_loss),
            "max-frames" => self.max_frames = value.get().expect(OF_TYPE),
            "view" => self.view = value.get().expect(OF_TYPE),
            "results" => self.results = text(),
            "post-messages" => self.posts_messages = switch(),
            "qos" => self.has_qos = switch(),
            other => unreachable!("property {other} is not listed"),
        }
        self.changes += 1;
    }

    /// A property's value.
    pub(super) fn get(&self, property: &str) -> glib::Value {
        match property {
            "template" => {
                let joined = self.templates.join(";");
                Some(joined).filter(|text| !text.is_empty()).to_value()
            }
            "templates" => gst::Array::new(&self.templates).to_value(),
            "track" => self.track.to_value(),
            "track-matches" => self.track_matches.to_value(),
            "threshold" => self.threshold.to_value(),
            "min-score" => self.limits.min_score.to_value(),
            "max-matches" => (self.limits.max_matches as u32).to_value(),
            "max-overlap" => self.limits.max_overlap.to_value(),
            "scales" => self.scales.to_value(),
            "angles" => self.angles.to_value(),
            "search" => self.search.to_value(),
            "roi" => self.roi.to_value(),
            "backend" => self.backend.to_value(),
            "kernel" => self.kernel.to_value(),
            "threads" => self.threads.to_value(),
            "depth" => self.depth.to_value(),
            "on-device-loss" => self.on_device_loss.to_value(),
            "max-frames" => self.max_frames.to_value(),
            "view" => self.view.to_value(),
            "results" => self.results.to_value(),
            "post-messages" => self.posts_messages.to_value(),
            "qos" => self.has_qos.to_value(),
            other => unreachable!("property {other} is not listed"),
        }
    }

    /// Gives a property, and no other, the value that it had in `before`.
    pub(super) fn restore(&mut self, property: &str, before: &Self) {
        // As one text a list of names with a `;` in them would fall apart.
        let property = if property == "template" { "templates" } else { property };
        self.set(property, &before.get(property));
    }

    /// How often something was set: of two states of the same settings the later one has more.
    pub(super) fn changes(&self) -> u64 {
        self.changes
    }

    /// The property's name, if it says what is searched.
    pub(super) fn of_the_search(property: &str) -> Option<&'static str> {
        OF_THE_SEARCH.into_iter().find(|name| *name == property)
    }

    /// True if the thresholded frame is drawn.
    pub(super) fn wants_mask(&self) -> bool {
        self.threshold.is_some() && self.view.has_mask()
    }

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
            variety: (scales, angles),
            roi: self.roi.as_deref().map(str::parse).transpose()?,
            limits: self.limits,
            tracks: each(self.track.as_deref()).map(str::parse).collect::<Result<Vec<TrackSpec>>>()?,
            track_matches: self.track_matches,
            threshold,
            wants_mask: self.wants_mask(),
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
                ..Options::default()
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
