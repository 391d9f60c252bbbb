//! The work on frames: the setup at the start of a run, and the changes since.
//!
//! Properties and signals that change the search while frames pass are orders to the run. Only opening a
//! device shows whether one can be done, so the current settings are kept until then.
//!
//! Changes made before a run began are orders too, at its first frame: so a results file, with the properties
//! that the element had on its way to PAUSED, is enough to repeat the run.

use std::collections::VecDeque;
use std::sync::Arc;

use lockon_core::change::Change;
use lockon_core::control::Control;
use lockon_core::error::{Error, Result};
use lockon_core::orders::Reply;
use lockon_core::search::Search;
use lockon_run::setup::Setup;

use super::settings::Settings;

/// Present from READY to PAUSED until back.
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
    /// Changes without an answer yet, oldest first.
    waiting: VecDeque<PendingChange>,
    /// Changes that turned out to be impossible after the end of the run.
    refused: Vec<Refused>,
}

/// A requested change without an answer yet.
struct PendingChange {
    change: Change,
    /// Its properties, and the settings with their values.
    properties: Vec<&'static str>,
    settings: Settings,
    reply: Reply,
}

/// A change that was refused.
pub(super) struct Refused {
    pub(super) error: Error,
    /// The properties that must get their values of `held` back, and the refused settings.
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

    /// The last requested settings.
    pub(super) fn asked(&self) -> &Settings {
        &self.asked
    }

    /// Begins a run and returns its setup. The run accepts orders from now on; the changes since PAUSED are
    /// its first orders.
    ///
    /// # Errors
    /// `Order` if it accepts none.
    pub(super) fn begin(&mut self, control: &Control) -> Result<Setup> {
        let (mut setup, settings) = self.first.clone();
        setup.search = Arc::new(setup.search.for_another_run());
        setup.begin(control);
        let change = self.search.since(&setup.search);
        self.search = setup.search.clone();
        let now = std::mem::replace(&mut self.held, settings);
        let changed = now.changed_since(&self.held);
        // If one cannot be done, only that one is refused.
        for change in change.parts() {
            let is_of_it = |property: &&str| Settings::is_of_change(property, &change);
            let properties = changed.iter().copied().filter(is_of_it).collect();
            let reply = control.change(change.clone())?;
            self.waiting.push_back(PendingChange { change, properties, settings: now.clone(), reply });
        }
        Ok(setup)
    }

    /// Ends the run. Unfinished requests are left to the next run. Returns those that cannot be done.
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

    /// Requests a change of `properties` to their values in `settings`: during the run, or for its start if
    /// there is no run yet.
    ///
    /// # Errors
    /// The reason why it cannot be requested or done. Then nothing has changed.
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

    /// Handles the run's answer to the oldest order. Returns the order if it was refused.
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
        // Properties that were set again since then still wait for their answer.
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
