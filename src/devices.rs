//! Which device does a run's work: what was asked for or what `auto` takes, and what takes over when it is
//! lost.

use std::cell::{Cell, RefCell};
use std::fmt;
use std::path::Path;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread::JoinHandle;

use crate::backend::{Backend, Device, Options, Standing, cpu, cuda};
use crate::config::{BackendChoice, Kernels, OnDeviceLoss};
use crate::error::{DeviceFault, Error, Result};
use crate::hardware::may_have_gpu;
use crate::surface::Traffic;

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

    /// Tells, without opening it, that the device is not to be had that was asked for, or that the kernels
    /// need which were.
    ///
    /// # Errors
    /// As [`open`].
    pub fn probe(&self) -> Result<()> {
        match self.options.choice {
            BackendChoice::Cpu => Ok(()),
            choice if self.options.kernels == Kernels::default() => probe(choice),
            BackendChoice::Auto => cuda::device(AUTO_GPU).map(drop).map_err(without_kernels),
            BackendChoice::Cuda(number) => cuda::device(number).map(drop).map_err(without_kernels),
        }
    }

    /// Begins to open a GPU, which takes a while, so that the first call of [`Self::open`] finds it open.
    pub fn open_ahead(&self) -> Ahead {
        let ahead = Ahead::open(self.options.choice, &self.options.traffic);
        self.ahead.replace(Some(ahead.clone()));
        ahead
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

    /// What counts the bytes that are moved.
    pub fn traffic(&self) -> &Traffic {
        &self.options.traffic
    }

    /// The same with so many frames in flight.
    #[must_use]
    pub fn with_depth(mut self, depth: usize) -> Self {
        self.options.depth = depth;
        self
    }

    /// Frames in flight.
    pub fn depth(&self) -> usize {
        self.options.depth
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
        BackendChoice::Auto => BackendChoice::Cuda(AUTO_GPU),
        chosen => chosen,
    }
}

/// Tells, without opening it, that a device is not to be had, to whoever names no kernels; others ask
/// [`Devices::probe`].
///
/// # Errors
/// As [`open`].
pub fn probe(choice: BackendChoice) -> Result<()> {
    match choice {
        BackendChoice::Auto | BackendChoice::Cpu => Ok(()),
        BackendChoice::Cuda(number) => cuda::device(number).map(drop),
    }
}

/// The GPU that `Auto` takes.
const AUTO_GPU: usize = 0;

/// A device that is being opened on a thread of its own, so that it is there when [`open`] asks for it. It
/// stays open as long as a clone of this lives; to drop the last one waits for the driver.
#[derive(Clone)]
pub struct Ahead(Arc<Opening>);

struct Opening {
    thread: Mutex<Option<JoinHandle<Option<cuda::Opened>>>>,
    device: OnceLock<Option<Arc<cuda::Opened>>>,
}

impl Ahead {
    /// Begins to open the device that will be asked for, where that takes its time: a GPU takes a few tenths
    /// of a second. What goes wrong is for [`open`] to say. `traffic` counts the bytes of frames that are
    /// fetched from there.
    pub fn open(choice: BackendChoice, traffic: &Traffic) -> Self {
        let number = match choice {
            BackendChoice::Cpu => None,
            BackendChoice::Auto => Some(AUTO_GPU),
            BackendChoice::Cuda(number) => Some(number),
        };
        let open = |number| {
            let thread = std::thread::Builder::new().name("lockon-open".into());
            let traffic = traffic.clone();
            thread.spawn(move || cuda::Opened::counting(number, &traffic).ok()).ok()
        };
        Self(Arc::new(Opening { thread: Mutex::new(number.and_then(open)), device: OnceLock::new() }))
    }

    /// The device, once it is open; `None` if there is none.
    pub fn device(&self) -> Option<Arc<cuda::Opened>> {
        self.0.wait()
    }
}

impl Opening {
    fn wait(&self) -> Option<Arc<cuda::Opened>> {
        let join = || {
            let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
            thread.and_then(|thread| thread.join().ok().flatten()).map(Arc::new)
        };
        self.device.get_or_init(join).clone()
    }
}

impl Drop for Opening {
    fn drop(&mut self) {
        // The driver is not left in the middle of it.
        self.wait();
    }
}

/// Opens a GPU for what `standing` makes, if one was asked for, or if `Auto` can have one; otherwise the CPU
/// is to do the work.
///
/// # Errors
/// As [`open`], and those of `standing` that are not about how much there is to search.
pub fn open_gpu(
    options: &Options,
    standing: impl FnOnce() -> Result<Standing>,
) -> Result<Option<Box<dyn Backend>>> {
    let has_kernels = options.kernels != Kernels::default();
    let (number, is_asked_for) = match options.choice {
        BackendChoice::Cpu => return Ok(None),
        BackendChoice::Cuda(number) => (number, true),
        // Kernels that were chosen are meant to run.
        BackendChoice::Auto => (AUTO_GPU, has_kernels),
    };
    if !is_asked_for && let Err(why) = cuda::device(number) {
        tell_cpu(&why);
        return Ok(None);
    }
    let open = |standing| cuda::open(standing, options, number);
    match standing().and_then(open) {
        Ok(opened) => Ok(Some(opened)),
        Err(why) if has_kernels => Err(without_kernels(why)),
        Err(why) if is_asked_for || !may_suit_the_cpu(&why) => Err(why),
        Err(why) => {
            tell_cpu(&why);
            Ok(None)
        }
    }
}

/// True for what a GPU cannot do and the CPU perhaps can: it makes the templates of a pyramid as it needs
/// them, where a GPU needs all of them (`MemoryLimit`, or `Usage` if there are too many for any bank).
fn may_suit_the_cpu(why: &Error) -> bool {
    matches!(
        why,
        Error::Backend { .. } | Error::MemoryLimit { .. } | Error::NoMemory { .. } | Error::Usage(_)
    )
}

/// The error with a remedy that helps whoever chose kernels: the CPU has none of them.
fn without_kernels(why: Error) -> Error {
    let remedy = "use --backend cpu";
    match why {
        Error::Backend { backend, fault } if !fault.is_lost() && fault.to_string().ends_with(remedy) => {
            Error::Backend { backend, fault: DeviceFault::Other(format!("{fault} and no --kernel")) }
        }
        why => why,
    }
}

/// Says why `Auto` takes the CPU: a warning where there is a GPU, since without one the CPU is what everybody
/// expects.
fn tell_cpu(why: &dyn fmt::Display) {
    if may_have_gpu(Path::new("/")) {
        tracing::warn!("the CPU does the work: {why}");
    } else {
        tracing::debug!("the CPU does the work, there is no NVIDIA GPU here: {why}");
    }
}

/// Opens the device that was asked for. `Auto` takes the first GPU, or the CPU, with a warning that says why
/// if there is a GPU.
///
/// # Errors
/// `Backend` if it is not to be had; `Usage` if kernels were chosen for a device that has none; those of
/// [`Standing::check`].
pub fn open(options: &Options, standing: &Standing) -> Result<Box<dyn Backend>> {
    let open_cpu =
        || -> Result<Box<dyn Backend>> { Ok(Box::new(cpu::Cpu::open(standing.clone(), options)?)) };
    if standing.pyramid.is_some() {
        return match options.choice {
            BackendChoice::Cuda(_) => {
                Err(Error::Usage("--search pyramid is the CPU backend's: it needs --backend cpu".into()))
            }
            BackendChoice::Auto => {
                tell_cpu(&"--search pyramid is the CPU backend's");
                open_cpu()
            }
            BackendChoice::Cpu => open_cpu(),
        };
    }
    if options.choice == BackendChoice::Cpu && options.kernels != Kernels::default() {
        return Err(Error::Usage(
            "--kernel chooses among the CUDA backend's: it needs --backend cuda".into(),
        ));
    }
    match open_gpu(options, || Ok(standing.clone()))? {
        Some(gpu) => Ok(gpu),
        None => open_cpu(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Bytes;
    use crate::frame::Size;

    #[test]
    fn whoever_chose_kernels_is_not_sent_to_a_device_that_has_none() {
        let of = |fault| without_kernels(Error::Backend { backend: "cuda", fault });
        let said = of(DeviceFault::NoDriver { library: "libcuda.so.1" }).to_string();
        assert!(said.ends_with("or use --backend cpu and no --kernel"), "{said}");
        // What a spare device can take over stays what it is.
        let lost = of(DeviceFault::OutOfHostMemory { what: "a test", wanted: 1 });
        assert!(lost.is_device_lost() && lost.to_string().contains("no 1 byte of page-locked"), "{lost}");
    }

    #[test]
    fn auto_leaves_templates_that_are_too_many_for_a_bank_to_the_cpu() {
        let limit = || Error::MemoryLimit {
            what: "a bank".into(),
            wanted: Bytes(2),
            limit: Bytes(1),
            remedy: "more memory",
        };
        let too_many = || Error::Usage("templates in all sizes and directions have too many pixels".into());
        let smaller = || Error::NothingFits { smallest: Size::new(9, 9), area: Size::new(8, 8) };
        assert!(may_suit_the_cpu(&limit()) && may_suit_the_cpu(&too_many()));
        assert!(!may_suit_the_cpu(&smaller()) && !may_suit_the_cpu(&Error::Stopped));
        // With a GPU and without: on one that was asked for it is an error.
        let open = |choice, why: Error| {
            let options = Options { choice, depth: 1, threads: 1, ..Options::default() };
            open_gpu(&options, || Err(why)).map(|opened| opened.is_some())
        };
        assert!(!open(BackendChoice::Auto, limit()).unwrap());
        assert!(!open(BackendChoice::Auto, too_many()).unwrap());
        assert!(open(BackendChoice::Cuda(0), limit()).is_err());
    }

    #[test]
    fn opening_ahead_leaves_what_goes_wrong_to_opening() {
        // There is no such device, or no driver at all; and one that may be there is opened again while it is
        // held.
        for choice in [BackendChoice::Cuda(999), BackendChoice::Auto, BackendChoice::Cpu] {
            let ahead = Ahead::open(choice, &Traffic::default());
            let options = Options { choice, depth: 1, threads: 1, ..Options::default() };
            let opened = open(&options, &Standing::new(Size::new(8, 8)));
            assert_eq!(opened.is_ok(), choice != BackendChoice::Cuda(999), "{choice:?}");
            drop(ahead);
        }
    }

    #[test]
    fn auto_takes_the_first_gpu() {
        let gpu = match cuda::device(AUTO_GPU) {
            Ok(gpu) => gpu,
            Err(error) if std::env::var("LOCKON_REQUIRE_GPU").is_ok_and(|value| value == "1") => {
                panic!("no GPU: {error}")
            }
            Err(error) => return crate::say::skipped(&format!("no GPU: {error}")),
        };
        let options = Options { depth: 1, threads: 1, ..Options::default() };
        let device = open(&options, &Standing::new(Size::new(8, 8))).unwrap().describe();
        assert_eq!(device.backend, "cuda");
        assert!(device.name.contains(&gpu.name));
    }
}
