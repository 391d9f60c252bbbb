//! Which device does a run's work: what was asked for, what it turned out to be, and what takes over.

use std::cell::{Cell, RefCell};

use crate::backend::{Ahead, Backend, Device, Options};
use crate::config::{BackendChoice, OnDeviceLoss};
use crate::error::Result;

/// The devices of one run.
///
/// What `auto` took for the first frame stays for the run, whatever sizes frames have later.
pub struct Devices {
    options: Options,
    on_loss: OnDeviceLoss,
    choice: Cell<BackendChoice>,
    has_opened: Cell<bool>,
    ahead: RefCell<Option<Ahead>>,
}

impl Devices {
    /// Those that `options` ask for, none of which is open yet.
    pub fn new(options: Options, on_loss: OnDeviceLoss) -> Self {
        let choice = Cell::new(options.choice);
        Self { options, on_loss, choice, has_opened: Cell::new(false), ahead: RefCell::new(None) }
    }

    /// Begins to open a GPU, which takes a while, so that the first call of [`Self::open`] finds it open.
    pub fn open_ahead(&self) {
        self.ahead.replace(Some(Ahead::open(self.options.choice)));
    }

    /// Opens a device by `open`, which is told the options, and whether the run has had one before.
    ///
    /// # Errors
    /// Those of `open`.
    pub fn open(
        &self,
        open: impl FnOnce(&Options, bool) -> Result<Box<dyn Backend>>,
    ) -> Result<Box<dyn Backend>> {
        let options = Options { choice: self.choice.get(), ..self.options.clone() };
        let backend = open(&options, self.has_opened.get())?;
        self.has_opened.set(true);
        drop(self.ahead.take());
        self.choice.set(settled(self.choice.get(), &backend.describe()));
        Ok(backend)
    }

    /// How the device that takes over is opened when one is lost; `None` if the run is to end then.
    pub fn spare(&self) -> Option<Options> {
        match self.on_loss {
            OnDeviceLoss::End => None,
            OnDeviceLoss::Cpu => Some(self.options.on_cpu()),
        }
    }

    /// Threads of the CPU.
    pub fn threads(&self) -> usize {
        self.options.threads
    }
}

/// The choice that opens that device again, whatever `auto` would take later.
pub fn settled(choice: BackendChoice, device: &Device) -> BackendChoice {
    match choice {
        BackendChoice::Auto if device.backend == "cpu" => BackendChoice::Cpu,
        BackendChoice::Auto => BackendChoice::Cuda(0),
        chosen => chosen,
    }
}
