//! The work on frames: the setup that a run begins with, and the changes since.
//!
//! Properties and signals that change the search while frames pass are orders to the run. Whether one can be
//! done is known only when a device is opened for it, so the settings that hold are kept until then, to go
//! back to.
//!
//! Changes made before a run began are orders too, at its first frame: so a results file has all that it
//! takes to repeat the run with the properties that the element had on its way to PAUSED.

use std::collections::VecDeque;
use std::sync::Arc;

use lockon_core::change::Change;
use lockon_core::control::Control;
use lockon_core::error::{Error, Result};
use lockon_core::orders::Reply;
use lockon_core::search::Search;
use lockon_run::setup::Setup;

use super::settings::Settings;

/// There from READY to PAUSED until back.
#[derive(Default)]
pub(super) struct Work {
    /// The setup requested on the way to PAUSED, and its settings.
    first: (Setup, Settings),
    /// The current search, or the one with which a run will begin...
    search: Arc<Search>,
    /// ...by these settings...
    held: Settings,
    /// ...and the last requested settings.
    asked: Settings,
    /// Changes that were not answered yet, oldest first.
    waiting: VecDeque<PendingChange>,
    /// Changes that turned out to be impossible when the run was over already.
    refused: Vec<Refused>,
}

/// A requested change without an answer yet.
struct PendingChange {
    change: Change,
    /// The properties that it stands for, and the settings that have their values.
    properties: Vec<&'static str>,
    settings: Settings,
    reply: Reply,
}

/// A change that was refused.
pub(super) struct Refused {
    pub(super) error: Error,
    /// The properties that are to have their values of `held` again, and the settings that were refused.
    pub(super) properties: Vec<&'static str>,
    pub(super) settings: Settings,
    pub(super) held: Settings,
}

impl Work {
    pub(super) fn new(setup: Setup, settings: Settings) -> Self {
        let search = setup.search.clone();
        let (held, asked) = (settings.clone(), settings.clone());
        Self { first: (setup, settings), search, held, asked, ..Self::default() }
    }

    /// The settings that were asked for last.
    pub(super) fn asked(&self) -> &Settings {
        &self.asked
    }

    /// Begins a run and returns its setup. The run takes orders from now on; the changes since PAUSED are its
    /// first orders.
    ///
    /// # Errors
    /// `Order` if it takes none.
    pub(super) fn begin(&mut self, control: &Control) -> Result<Setup> {
        let (mut setup, settings) = self.first.clone();
        setup.search = Arc::new(setup.search.for_another_run());
        control.begin(setup.tracks.len() as u32);
        let change = self.search.since(&setup.search);
        self.search = setup.search.clone();
        let now = std::mem::replace(&mut self.held, settings);
        let changed = now.changed_since(&self.held);
        // Each is refused alone if it cannot be done.
        for change in change.parts() {
            let is_of_it = |property: &&str| Settings::is_of_change(property, &change);
            let properties = changed.iter().copied().filter(is_of_it).collect();
            let reply = control.change(change.clone())?;
            self.waiting.push_back(PendingChange { change, properties, settings: now.clone(), reply });
        }
        Ok(setup)
    }

    /// Ends the run. Requests that it did not come to are left to the next run. Returns those that cannot be
    /// done.
    pub(super) fn end(&mut self) -> Vec<Refused> {
        self.hold_what_waits();
        std::mem::take(&mut self.refused)
    }

    fn hold_what_waits(&mut self) {
        while let Some(PendingChange { change, properties, settings, .. }) = self.waiting.pop_front() {
            if let Err(error) = self.hold(&change, &properties, &settings) {
                let refused = self.refuse(error, properties, settings);
                self.refused.push(refused);
            }
        }
    }

    /// Asks for a change that gives `properties` their values of `settings`: a change of the run, or of its
    /// beginning if there is no run yet.
    ///
    /// # Errors
    /// Why it cannot be asked for, or cannot be done. Nothing has changed then.
    pub(super) fn ask(
        &mut self,
        control: &Control,
        change: Change,
        properties: Vec<&'static str>,
        settings: Settings,
    ) -> Result<()> {
        match control.change(change.clone()) {
            Ok(reply) => {
                self.waiting.push_back(PendingChange {
                    change,
                    properties,
                    settings: settings.clone(),
                    reply,
                });
            }
            Err(_) if !control.takes_orders() => {
                // Earlier requests come first.
                self.hold_what_waits();
                self.hold(&change, &properties, &settings)?;
            }
            Err(error) => return Err(error),
        }
        self.asked = settings;
        Ok(())
    }

    /// Takes the run's answer to the oldest order. Returns the order if it was refused.
    pub(super) fn hear(&mut self) -> Option<Refused> {
        let answer = self.waiting.front()?.reply.poll()?;
        let PendingChange { change, properties, settings, .. } = self.waiting.pop_front()?;
        let error = match answer {
            Ok(_) => self.hold(&change, &properties, &settings).err()?,
            Err(error) => error,
        };
        Some(self.refuse(error, properties, settings))
    }

    fn refuse(&mut self, error: Error, properties: Vec<&'static str>, settings: Settings) -> Refused {
        // Properties that were set again since have values whose answer is still open.
        let properties: Vec<_> =
            properties.into_iter().filter(|property| self.asked.has_same(property, &settings)).collect();
        for property in &properties {
            self.asked.restore(property, &self.held);
        }
        Refused { error, properties, settings, held: self.held.clone() }
    }

    fn hold(&mut self, change: &Change, properties: &[&'static str], settings: &Settings) -> Result<()> {
        self.search = Arc::new(self.search.changed(change)?);
        for property in properties {
            self.held.restore(property, settings);
        }
        Ok(())
    }
}
