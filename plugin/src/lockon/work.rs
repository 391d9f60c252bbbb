//! What is to be done to frames: what was asked for last, and what a device was opened for.
//!
//! A search can be changed while frames pass. Whether it can be done on frames of this size is known only
//! when a device is opened for it, so what went before is kept until then, to go back to.

use std::collections::BTreeSet;
use std::sync::Arc;

use lockon::job::Job;

use super::settings::Settings;

/// A job, and the settings that ask for it.
#[derive(Clone, Default)]
pub(super) struct Asked {
    pub(super) job: Arc<Job>,
    settings: Arc<Settings>,
}

impl Asked {
    pub(super) fn new(job: Job, settings: Settings) -> Self {
        Self { job: job.into(), settings: settings.into() }
    }

    pub(super) fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Tells one change of the settings from the next.
    pub(super) fn change(&self) -> u64 {
        self.settings.changes()
    }
}

/// There from READY to PAUSED until back.
#[derive(Default)]
pub(super) struct Work {
    /// What was asked for last and could be read.
    asked: Asked,
    /// What a device was opened for last; none before the first frame.
    opened: Option<Asked>,
    /// Properties that were set since then.
    unproven: BTreeSet<&'static str>,
}

impl Work {
    pub(super) fn new(asked: Asked) -> Self {
        Self { asked, ..Self::default() }
    }

    pub(super) fn asked(&self) -> Asked {
        self.asked.clone()
    }

    /// The last that worked, or is still to be tried.
    pub(super) fn opened(&self) -> Asked {
        self.opened.as_ref().unwrap_or(&self.asked).clone()
    }

    /// A property asks for something else. Of two that are set at the same time the settings that were read
    /// last have both.
    pub(super) fn ask(&mut self, property: &'static str, job: Job, settings: Settings) {
        self.unproven.insert(property);
        if settings.changes() > self.asked.change() {
            // What is followed was taken when the run began.
            let Job { tracks, track_matches, track_detections, .. } = (*self.asked.job).clone();
            self.asked = Asked::new(Job { tracks, track_matches, track_detections, ..job }, settings);
        }
    }

    /// A device was opened for it.
    pub(super) fn prove(&mut self, asked: &Asked) {
        if self.asked.change() == asked.change() {
            self.unproven.clear();
        }
        self.opened = Some(asked.clone());
    }

    /// What to go back to when no device can be opened for `asked`; none if there was nothing else before.
    pub(super) fn before(&self, asked: &Asked) -> Option<Asked> {
        self.opened.clone().filter(|opened| !Arc::ptr_eq(&opened.job, &asked.job))
    }

    /// No device can be opened for `asked`: what was there before is asked for again. Gives the properties
    /// whose values are to be those of `before`: none if something else was asked for meanwhile, which is to
    /// be tried first.
    pub(super) fn refuse(&mut self, asked: &Asked, before: &Asked) -> BTreeSet<&'static str> {
        if self.asked.change() != asked.change() {
            return BTreeSet::new();
        }
        self.asked = before.clone();
        std::mem::take(&mut self.unproven)
    }
}
