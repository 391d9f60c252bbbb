//! Decides which device does a run's work: the requested one or the choice of `auto`, and the one that takes
//! over when it is lost.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;
use std::sync::{Arc, Mutex, OnceLock};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::backend::{Backend, Options, Standing, cpu, cuda};
use crate::hardware::{may_have_gpu, node_of};
use lockon_core::config::{BackendChoice, Gpus, Kernels, OnDeviceLoss};
use lockon_core::error::{DeviceFault, Error, Result};
use lockon_core::locks::{MutexGuard, Ranked, lock};
use lockon_core::message::{Message, ON_CPU, PYRAMID, Setting};
use lockon_core::processors::{Kept, Processors};
use lockon_core::surface::Traffic;

/// The load and failures of the GPUs that this process knows.
static LOAD: Ranked<Load, 205> = Ranked::new(Load { runs: BTreeMap::new(), failed: BTreeMap::new() });

/// The load and failures of GPUs, by their numbers.
struct Load {
    /// The number of runs on each.
    runs: BTreeMap<usize, usize>,
    /// The time when a GPU could not be opened, or a run lost it: for a while others are used first.
    failed: BTreeMap<usize, Instant>,
}

/// How long others are used before a GPU that failed. A driver that was reset is back within seconds.
const AVOIDED: Duration = Duration::from_mins(1);

impl Load {
    fn get() -> MutexGuard<'static, Self> {
        LOAD.lock()
    }
}

/// A run's seat on a GPU, until this is dropped.
#[derive(Debug)]
pub struct GpuSeat(usize);

impl GpuSeat {
    /// Returns a seat for a run that stays on its GPU, and the resulting choice: of several GPUs the one with
    /// the fewest runs.
    ///
    /// # Errors
    /// `Backend` if one of several does not exist.
    pub fn of(choice: BackendChoice) -> Result<(BackendChoice, Option<Self>)> {
        let seat = Self::take(eligible(choice, false)?);
        let left = match (choice, &seat) {
            (BackendChoice::CudaOf(_), Some(seat)) => BackendChoice::Cuda(seat.0),
            _ => choice,
        };
        Ok((left, seat))
    }

    /// Takes a seat on the GPU with the fewest runs, the first of several.
    fn take(gpus: impl IntoIterator<Item = usize>) -> Option<Self> {
        Self::take_at(Instant::now(), gpus)
    }

    fn take_at(now: Instant, gpus: impl IntoIterator<Item = usize>) -> Option<Self> {
        let mut load = Load::get();
        let order = |gpu: &usize| {
            let runs = load.runs.get(gpu).copied().unwrap_or(0);
            let failed = load.failed.get(gpu);
            let is_avoided = failed.is_some_and(|at| now.saturating_duration_since(*at) < AVOIDED);
            (is_avoided, runs, *gpu)
        };
        let gpu = gpus.into_iter().min_by_key(order)?;
        *load.runs.entry(gpu).or_default() += 1;
        Some(Self(gpu))
    }

    /// Makes later runs use other GPUs for a while, if there are any. This is logged once.
    fn has_failed(&self, why: &dyn fmt::Display) {
        let now = Instant::now();
        let before = Load::get().failed.insert(self.0, now);
        let is_new = before.is_none_or(|at| now.saturating_duration_since(at) >= AVOIDED);
        if is_new && cuda::devices().is_ok_and(|gpus| gpus.len() > 1) {
            let seconds = AVOIDED.as_secs();
            tracing::warn!("for {seconds} s runs use other GPUs than cuda:{}: {why}", self.0);
        }
    }

    /// Makes later runs use this GPU like any other.
    fn has_worked(&self) {
        Load::get().failed.remove(&self.0);
    }
}

impl Drop for GpuSeat {
    fn drop(&mut self) {
        Load::get().runs.entry(self.0).and_modify(|count| *count -= 1);
    }
}

/// The GPUs that a choice allows: `auto` means the first, and for one of several runs all on which the
/// kernels run; `cuda:all` means these too.
fn eligible(choice: BackendChoice, is_one_of_several: bool) -> Result<Vec<usize>> {
    Ok(match choice {
        BackendChoice::Cpu => Vec::new(),
        BackendChoice::Cuda(number) => vec![number],
        BackendChoice::Auto if is_one_of_several => {
            let count = cuda::devices().map_or(0, |devices| devices.len());
            usable(0..count)
        }
        BackendChoice::Auto => vec![AUTO_GPU],
        BackendChoice::CudaOf(gpus) => {
            let count = cuda::devices()?.len();
            let is_empty = gpus.among(count).next().is_none();
            // The error for a GPU that does not exist.
            let missing = gpus.beyond(count).or_else(|| is_empty.then(|| gpus.first()));
            missing.map_or(Ok(()), |number| cuda::device(number).map(drop))?;
            let usable = usable(gpus.among(count));
            // Named GPUs must all exist and be usable.
            let unusable = gpus.among(count).find(|number| !usable.contains(number));
            match unusable {
                Some(number) if gpus != Gpus::ALL || usable.is_empty() => {
                    return cuda::device(number).map(|_| vec![number]);
                }
                _ => usable,
            }
        }
    })
}

/// Returns the GPUs on which the kernels run.
fn usable(gpus: impl Iterator<Item = usize>) -> Vec<usize> {
    gpus.filter(|&number| cuda::device(number).is_ok()).collect()
}

/// The devices of one run.
///
/// The device that `auto` took for the first frame stays for the run, whatever sizes frames have later.
pub struct Devices {
    options: RefCell<Options>,
    on_loss: OnDeviceLoss,
    /// GPUs that have not been tried.
    untried: RefCell<Vec<usize>>,
    seat: RefCell<Option<GpuSeat>>,
    /// The device that took over when the first one was lost.
    spare: Cell<Option<BackendChoice>>,
    has_opened: Cell<bool>,
    ahead: RefCell<Option<Ahead>>,
}

impl Devices {
    /// Returns the devices that `options` request, none of them open yet. Of several GPUs this chooses the
    /// one with the fewest runs of this process.
    ///
    /// # Errors
    /// `Backend` if one of them does not exist.
    pub fn new(options: Options, on_loss: OnDeviceLoss, is_one_of_several: bool) -> Result<Self> {
        let eligible = eligible(options.choice, is_one_of_several)?;
        Ok(Self::among(eligible, options, on_loss))
    }

    fn among(gpus: Vec<usize>, options: Options, on_loss: OnDeviceLoss) -> Self {
        let devices = Self {
            options: RefCell::new(options),
            on_loss,
            untried: RefCell::new(gpus),
            seat: RefCell::new(None),
            spare: Cell::new(None),
            has_opened: Cell::new(false),
            ahead: RefCell::new(None),
        };
        devices.take_seat();
        devices
    }

    /// Takes a seat on a GPU that has not been tried; false if there is none.
    fn take_seat(&self) -> bool {
        let mut untried = self.untried.borrow_mut();
        let Some(seat) = GpuSeat::take(untried.iter().copied()) else { return false };
        untried.retain(|gpu| *gpu != seat.0);
        let mut options = self.options.borrow_mut();
        options.auto_gpu = seat.0;
        if options.choice != BackendChoice::Auto {
            options.choice = BackendChoice::Cuda(seat.0);
        }
        self.seat.replace(Some(seat));
        true
    }

    /// If a GPU cannot be opened, tries the next one, until one is open or none is left.
    fn leave_unopened(&self) {
        while !self.has_opened.get() && !self.untried.borrow().is_empty() {
            let ahead = self.ahead.borrow().clone();
            let Some(ahead) = ahead else { return };
            let Some(why) = ahead.failure() else { return };
            let left = self.options.borrow().auto_gpu;
            // A GPU that has no room now may have room for the next run.
            let has_no_room = matches!(
                why,
                Error::Backend {
                    fault: DeviceFault::OutOfMemory { .. } | DeviceFault::OutOfHostMemory { .. },
                    ..
                }
            );
            if !has_no_room {
                self.seat.borrow().iter().for_each(|seat| seat.has_failed(why));
            }
            self.take_seat();
            tracing::warn!(
                "cuda:{left} cannot be opened, cuda:{} is taken: {why}",
                self.options.borrow().auto_gpu
            );
            self.open_ahead();
        }
    }

    /// Keeps the calling thread, and those that it starts, on the processors beside the GPU that was asked
    /// for, until the value that is returned is dropped. `None` where all processors are, where that is not
    /// known, and for `auto`: the CPU may do its work, which needs all of them.
    pub fn keep_beside(&self) -> Option<Kept> {
        let BackendChoice::Cuda(number) = self.options.borrow().choice else { return None };
        let info = cuda::device(number).ok()?;
        let node = node_of(Path::new("/"), &info.pci)?;
        let kept = Processors::of_thread_among(&node.processors)?.keep_thread();
        tracing::debug!("a thread keeps to processors {}, beside cuda:{number}", node.list);
        Some(kept)
    }

    /// Checks, without opening it, that the requested device is available and supports the requested kernels.
    ///
    /// # Errors
    /// As [`open`].
    pub fn probe(&self) -> Result<()> {
        let options = self.options.borrow();
        let has_kernels = options.kernels != Kernels::default();
        match options.choice {
            BackendChoice::Cpu => Ok(()),
            choice if !has_kernels => probe(choice),
            choice => cuda::device(gpu_of(choice, options.auto_gpu)).map(drop).map_err(without_kernels),
        }
    }

    /// Begins to open a GPU, so that the first call of [`Self::open`] finds it open.
    pub fn open_ahead(&self) -> Ahead {
        let options = self.options.borrow();
        let ahead = Ahead::on(options.choice, options.auto_gpu, &options.traffic);
        self.ahead.replace(Some(ahead.clone()));
        ahead
    }

    /// Opens a device by `open`, which gets the options. Where several GPUs may be taken and one cannot be
    /// opened, the run goes to the next.
    ///
    /// # Errors
    /// The errors of `open`.
    pub fn open(&self, open: impl Fn(&Options) -> Result<Box<dyn Backend>>) -> Result<Box<dyn Backend>> {
        self.leave_unopened();
        let options = self.options.borrow().clone();
        let backend = open(&options)?;
        self.has_opened.set(true);
        drop(self.ahead.take());
        let device = backend.describe();
        if device.backend == GPU {
            self.seat.borrow().iter().for_each(GpuSeat::has_worked);
        }
        let mut options = self.options.borrow_mut();
        options.settle(&device);
        Ok(backend)
    }

    /// Notes the end of the run: if it lost its GPU, other runs use another one.
    pub fn note(&self, outcome: &Result<()>) {
        if let Err(error) = outcome {
            self.note_error(error);
        }
    }

    /// Marks a GPU that has failed. One without free memory may have some for the next run.
    fn note_error(&self, error: &Error) {
        if let Error::Backend { fault: fault @ DeviceFault::Lost { .. }, .. } = error {
            self.seat.borrow().iter().for_each(|seat| seat.has_failed(fault));
        }
    }

    /// True if another device must take over when this one is lost.
    pub fn has_spare(&self) -> bool {
        self.on_loss != OnDeviceLoss::End
    }

    /// Opens by `open` the device that takes over after `error`; also used to open that device again.
    ///
    /// # Errors
    /// The errors of `open`, on the CPU.
    pub fn open_spare(
        &self,
        error: Option<&Error>,
        open: impl Fn(&Options) -> Result<Box<dyn Backend>>,
    ) -> Result<Box<dyn Backend>> {
        let options = self.options.borrow().clone();
        let on = |choice| match choice {
            BackendChoice::Cpu => options.on_cpu(),
            choice => Options { choice, ..options.clone() },
        };
        if let Some(spare) = self.spare.get() {
            return open(&on(spare));
        }
        if let Some(error) = error {
            self.note_error(error);
        }
        let lost = self.seat.take().map(|seat| seat.0);
        let mut others = self.other_gpus(lost);
        while let Some(seat) = GpuSeat::take(others.iter().copied()) {
            let choice = BackendChoice::Cuda(seat.0);
            match open(&on(choice)) {
                Ok(opened) => {
                    seat.has_worked();
                    self.spare.set(Some(choice));
                    self.seat.replace(Some(seat));
                    return Ok(opened);
                }
                Err(error) => {
                    tracing::warn!("{choice} cannot take over: {error}");
                    others.retain(|other| *other != seat.0);
                }
            }
        }
        self.spare.set(Some(BackendChoice::Cpu));
        open(&on(BackendChoice::Cpu))
    }

    /// The GPUs that may take over.
    fn other_gpus(&self, lost: Option<usize>) -> Vec<usize> {
        if self.on_loss != OnDeviceLoss::Gpu {
            return Vec::new();
        }
        let count = cuda::devices().map_or(0, |devices| devices.len());
        (0..count).filter(|gpu| Some(*gpu) != lost).collect()
    }

    /// Returns the counter of moved bytes.
    pub fn traffic(&self) -> Traffic {
        self.options.borrow().traffic.clone()
    }

    /// Returns these devices with so many frames in flight.
    #[must_use]
    pub fn with_depth(mut self, depth: usize) -> Self {
        self.options.get_mut().depth = depth;
        self
    }

    /// Frames in flight.
    pub fn depth(&self) -> usize {
        self.options.borrow().depth
    }

    /// Threads of the CPU.
    pub fn threads(&self) -> usize {
        self.options.borrow().threads
    }
}

/// The number of the GPU that a choice names, or `auto_gpu` if it names none.
fn gpu_of(choice: BackendChoice, auto_gpu: usize) -> usize {
    match choice {
        BackendChoice::Cpu | BackendChoice::Auto => auto_gpu,
        BackendChoice::Cuda(number) => number,
        BackendChoice::CudaOf(gpus) => gpus.first(),
    }
}

/// Checks, without opening it, that a device is available, for callers that name no kernels; others use
/// [`Devices::probe`].
///
/// # Errors
/// As [`open`].
pub fn probe(choice: BackendChoice) -> Result<()> {
    match choice {
        BackendChoice::Auto | BackendChoice::Cpu => Ok(()),
        BackendChoice::Cuda(number) => cuda::device(number).map(drop),
        BackendChoice::CudaOf(gpus) => cuda::device(gpus.first()).map(drop),
    }
}

/// The backend name of a device that is a GPU.
const GPU: &str = "cuda";

/// The GPU that `auto` takes for a run that is alone.
const AUTO_GPU: usize = 0;

/// A device that a thread opens ahead, so that it is ready when [`open`] needs it. It stays open as long as a
/// clone of this lives; dropping the last one waits for the driver.
#[derive(Clone)]
pub struct Ahead(Arc<Opening>);

struct Opening {
    thread: Mutex<Option<JoinHandle<Result<cuda::Opened>>>>,
    /// `None` if no thread opens anything.
    device: OnceLock<Option<Result<Arc<cuda::Opened>>>>,
}

impl Ahead {
    /// Begins to open the device that will be requested, if that takes long: a GPU takes a few tenths of a
    /// second. [`open`] reports errors. `traffic` counts the bytes of frames that are fetched from there.
    pub fn open(choice: BackendChoice, traffic: &Traffic) -> Self {
        Self::on(choice, AUTO_GPU, traffic)
    }

    fn on(choice: BackendChoice, auto_gpu: usize, traffic: &Traffic) -> Self {
        let number = (choice != BackendChoice::Cpu).then(|| gpu_of(choice, auto_gpu));
        #[cfg(feature = "gst")]
        lockon_gst::cuda::forget_lost();
        let open = |number| {
            let thread = std::thread::Builder::new().name("lockon-open".into());
            let traffic = traffic.clone();
            thread.spawn(move || cuda::Opened::counting(number, &traffic)).ok()
        };
        Self(Arc::new(Opening { thread: Mutex::new(number.and_then(open)), device: OnceLock::new() }))
    }

    /// The device, once it is open; `None` if there is none.
    pub fn device(&self) -> Option<Arc<cuda::Opened>> {
        self.0.wait().and_then(|opened| opened.as_ref().ok().cloned())
    }

    /// Returns why the device could not be opened, if that was tried.
    fn failure(&self) -> Option<&Error> {
        self.0.wait().and_then(|opened| opened.as_ref().err())
    }
}

impl Opening {
    fn wait(&self) -> Option<&Result<Arc<cuda::Opened>>> {
        let join = || {
            let thread = lock(&self.thread).take();
            thread.and_then(|thread| thread.join().ok()).map(|opened| opened.map(Arc::new))
        };
        self.device.get_or_init(join).as_ref()
    }
}

impl Drop for Opening {
    fn drop(&mut self) {
        // Otherwise the process could end while the driver works.
        self.wait();
    }
}

/// Opens a GPU for what `standing` makes, if one was asked for, or if `Auto` can have one; otherwise the CPU
/// is to do the work.
///
/// # Errors
/// As [`open`], and errors of `standing` that are not about the size of the search.
pub fn open_gpu(
    options: &Options,
    standing: impl FnOnce() -> Result<Standing>,
) -> Result<Option<Box<dyn Backend>>> {
    let has_kernels = options.kernels != Kernels::default();
    if options.choice == BackendChoice::Cpu {
        return Ok(None);
    }
    let number = gpu_of(options.choice, options.auto_gpu);
    // Chosen kernels must run.
    let is_asked_for = options.choice != BackendChoice::Auto || has_kernels;
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

/// True for errors of a GPU that the CPU may not have: it makes the templates of a pyramid as it needs them,
/// where a GPU needs all of them (`MemoryLimit`, or `Settings` if there are too many for any bank).
fn may_suit_the_cpu(why: &Error) -> bool {
    matches!(
        why,
        Error::Backend { .. } | Error::MemoryLimit { .. } | Error::NoMemory { .. } | Error::Settings(_)
    )
}

/// Adds a remedy to the error for chosen kernels: the CPU has none of them.
fn without_kernels(why: Error) -> Error {
    let names_cpu = |fault: &DeviceFault| fault.remedy().is_some_and(|remedy| remedy.names(&ON_CPU));
    match why {
        Error::Backend { backend, fault } if !fault.is_lost() && names_cpu(&fault) => {
            Error::Backend { backend, fault: DeviceFault::OfKernels(fault.into()) }
        }
        why => why,
    }
}

/// Reports why `Auto` takes the CPU: a warning if there is a GPU; without one the CPU is expected.
fn tell_cpu(why: &dyn fmt::Display) {
    if may_have_gpu(Path::new("/")) {
        tracing::warn!("the CPU does the work: {why}");
    } else {
        tracing::debug!("the CPU does the work, there is no NVIDIA GPU here: {why}");
    }
}

/// Opens the requested device. `Auto` takes the first GPU, or the CPU, with a warning and the reason if there
/// is a GPU.
///
/// # Errors
/// `Backend` if it is not available; `Settings` if kernels were chosen for a device that has none; those of
/// [`Standing::check`].
pub fn open(options: &Options, standing: &Standing) -> Result<Box<dyn Backend>> {
    let open_cpu =
        || -> Result<Box<dyn Backend>> { Ok(Box::new(cpu::Cpu::open(standing.clone(), options)?)) };
    if standing.pyramid.is_some() {
        return match options.choice {
            BackendChoice::Cuda(_) | BackendChoice::CudaOf(_) => {
                let text = "{} is the CPU backend's: it needs {}";
                Err(Error::Settings(Message::new(text, [PYRAMID, ON_CPU])))
            }
            BackendChoice::Auto => {
                tell_cpu(&Message::new("{} is the CPU backend's", [PYRAMID]));
                open_cpu()
            }
            BackendChoice::Cpu => open_cpu(),
        };
    }
    if options.choice == BackendChoice::Cpu && options.kernels != Kernels::default() {
        let settings = [Setting::named("kernel"), Setting::with("backend", "cuda")];
        return Err(Error::Settings(Message::new(
            "{} chooses among the CUDA backend's kernels: it needs {}",
            settings,
        )));
    }
    match open_gpu(options, || Ok(standing.clone()))? {
        Some(gpu) => Ok(gpu),
        None => open_cpu(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lockon_core::error::Bytes;
    use lockon_core::frame::Size;

    #[test]
    fn whoever_chose_kernels_is_not_sent_to_a_device_that_has_none() {
        let of = |fault| without_kernels(Error::Backend { backend: "cuda", fault });
        let said = of(DeviceFault::NoDriver { library: "libcuda.so.1" }).to_string();
        assert!(said.ends_with("or use --backend cpu and no --kernel"), "{said}");
        // An error after which a spare device can take over stays unchanged.
        let lost = of(DeviceFault::OutOfHostMemory { what: "a test", wanted: 1 });
        assert!(lost.is_device_lost() && lost.to_string().contains("no 1 byte of page-locked"), "{lost}");
    }

    #[test]
    fn auto_leaves_templates_that_are_too_many_for_a_bank_to_the_cpu() {
        let limit = || Error::MemoryLimit {
            what: "a bank".into(),
            wanted: Bytes(2),
            limit: Bytes(1),
            remedy: Message::new("more memory", []),
        };
        let too_many = || Error::Settings(Message::new("too many pixels", []));
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
    fn runs_take_the_gpu_with_the_fewest_and_give_it_back() {
        // Numbers that no other test takes.
        let gpus = [901, 902, 903];
        let mut seats: Vec<_> = (0..5).map(|_| GpuSeat::take(gpus).unwrap()).collect();
        assert_eq!(seats.iter().map(|seat| seat.0).collect::<Vec<_>>(), [901, 902, 903, 901, 902]);
        drop(seats.remove(0));
        drop(seats.remove(2));
        assert_eq!(GpuSeat::take(gpus).unwrap().0, 901);
        assert_eq!(GpuSeat::take([902]).unwrap().0, 902);
        assert!(GpuSeat::take([]).is_none());
    }

    #[test]
    fn a_run_takes_the_next_gpu_if_one_cannot_be_opened_and_later_runs_take_that_first() {
        // Numbers that no other test takes, and no machine has.
        let options = |choice| Options { choice, depth: 1, threads: 1, ..Options::default() };
        let among = |gpus: &[usize], choice| Devices::among(gpus.into(), options(choice), OnDeviceLoss::End);
        let standing = Standing::new(Size::new(8, 8));
        let open = |devices: &Devices| devices.open(|options| open(options, &standing));
        let has_failed = |gpu| Load::get().failed.contains_key(&gpu);
        // All are tried; then `auto` takes the CPU, and a run that asked for a GPU gets an error.
        let auto = among(&[911, 912, 913], BackendChoice::Auto);
        auto.open_ahead();
        assert_eq!(open(&auto).unwrap().describe().backend, "cpu");
        assert!(auto.untried.borrow().is_empty());
        assert_eq!([911, 912, 913].map(has_failed), [true, true, false], "the last one is left to nobody");
        let asked = among(&[914, 915], BackendChoice::Cuda(914));
        asked.open_ahead();
        assert!(matches!(open(&asked), Err(Error::Backend { .. })));
        assert_eq!(asked.options.borrow().choice, BackendChoice::Cuda(915));
        // Nothing was opened ahead: it is not the GPU that failed.
        let pyramid = among(&[916, 917], BackendChoice::Auto);
        assert_eq!(open(&pyramid).unwrap().describe().backend, "cpu");
        assert!(!has_failed(916));
        // A GPU that has failed comes after those with runs.
        let later = among(&[911, 918], BackendChoice::Auto);
        let last = among(&[911, 918], BackendChoice::Auto);
        assert_eq!([later, last].map(|devices| devices.options.borrow().auto_gpu), [918, 918]);
        if cuda::device(AUTO_GPU).is_ok() {
            // Runs on the one that is there make the other one the first.
            let _held = GpuSeat::take([AUTO_GPU]);
            let devices = among(&[919, AUTO_GPU], BackendChoice::Auto);
            assert_eq!(devices.options.borrow().auto_gpu, 919);
            devices.open_ahead();
            assert_eq!(open(&devices).unwrap().describe().backend, "cuda");
        }
    }

    #[test]
    fn the_runs_of_one_lost_gpu_of_eight_go_to_the_seven_others() {
        // Numbers that no other test takes, and no machine has.
        let eight = || 941..949;
        let mut seats: Vec<_> = eight().cycle().take(24).map(|_| GpuSeat::take(eight()).unwrap()).collect();
        let runs_on = |seats: &[GpuSeat], gpu| seats.iter().filter(|seat| seat.0 == gpu).count();
        assert!(eight().all(|gpu| runs_on(&seats, gpu) == 3));
        // Its three runs take seats elsewhere, as `open_spare` does.
        let (lost, mut left): (Vec<_>, Vec<_>) = seats.drain(..).partition(|seat| seat.0 == 944);
        lost[0].has_failed(&"a test");
        for seat in lost {
            drop(seat);
            left.push(GpuSeat::take(eight().filter(|gpu| *gpu != 944)).unwrap());
        }
        assert_eq!(eight().map(|gpu| runs_on(&left, gpu)).collect::<Vec<_>>(), [4, 4, 4, 0, 3, 3, 3, 3]);
        // Runs that come later use the others, though there is nothing on it.
        let later: Vec<_> = (0..11).map(|_| GpuSeat::take(eight()).unwrap()).collect();
        let all = |gpu| runs_on(&left, gpu) + runs_on(&later, gpu);
        assert_eq!(eight().map(all).collect::<Vec<_>>(), [5, 5, 5, 0, 5, 5, 5, 5]);
    }

    #[test]
    fn a_gpu_that_was_lost_is_left_by_later_runs_and_one_without_room_is_not() {
        let options = Options { depth: 1, threads: 1, ..Options::default() };
        let among = |gpus: &[usize]| Devices::among(gpus.into(), options.clone(), OnDeviceLoss::Cpu);
        let failed = |fault| Err(Error::Backend { backend: "cuda", fault });
        let full = || DeviceFault::OutOfMemory { what: "a test", wanted: 1, free: 0, total: 1 };
        let lost = || DeviceFault::Lost { reason: "a test".into() };
        let taken = |gpus: &[usize]| among(gpus).options.borrow().auto_gpu;
        among(&[921]).note(&failed(full()));
        assert_eq!(taken(&[921, 922]), 921);
        among(&[921]).note(&failed(lost()));
        assert_eq!(taken(&[921, 922]), 922);
        // The choice is made in this way too where another device takes over.
        let standing = Standing::new(Size::new(8, 8));
        for (fault, next) in [(full(), 923), (lost(), 924)] {
            let error = failed(fault).unwrap_err();
            let devices = among(&[923]);
            let open = |options: &Options| open(options, &standing);
            assert_eq!(devices.open_spare(Some(&error), open).unwrap().describe().backend, "cpu");
            assert_eq!(taken(&[923, 924]), next);
        }
    }

    #[test]
    fn a_gpu_that_failed_is_used_again_after_a_while_and_at_once_when_it_was_opened() {
        let gpus = [931, 932];
        let failed = GpuSeat::take([931]).unwrap();
        failed.has_failed(&"a test");
        let number = failed.0;
        drop(failed);
        let taken = |at| GpuSeat::take_at(at, gpus).unwrap().0;
        let now = Instant::now();
        assert_eq!([taken(now), taken(now + AVOIDED / 2), taken(now + AVOIDED)], [932, 932, 931]);
        GpuSeat::take([number]).unwrap().has_worked();
        assert_eq!(taken(now), 931);
    }

    #[test]
    fn a_spare_device_is_the_same_when_it_is_opened_again() {
        let options = Options { choice: BackendChoice::Cpu, depth: 1, threads: 1, ..Options::default() };
        let open = |options: &Options| open(options, &Standing::new(Size::new(8, 8)));
        for (on_loss, has_spare) in
            [(OnDeviceLoss::End, false), (OnDeviceLoss::Cpu, true), (OnDeviceLoss::Gpu, true)]
        {
            let devices = Devices::new(options.clone(), on_loss, false).unwrap();
            assert_eq!(devices.has_spare(), has_spare);
            if has_spare {
                let opened = [(); 2].map(|()| devices.open_spare(None, open).unwrap().describe());
                assert_eq!(opened[0].name, opened[1].name, "{on_loss}");
            }
        }
        let gone = BackendChoice::CudaOf(
            "cuda:5,63"
                .parse::<BackendChoice>()
                .map(|choice| match choice {
                    BackendChoice::CudaOf(gpus) => gpus,
                    other => panic!("{other}"),
                })
                .unwrap(),
        );
        assert!(Devices::new(Options { choice: gone, ..options }, OnDeviceLoss::End, true).is_err());
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
        let Some(gpu) = crate::test_log::gpu_or_skip(cuda::device(AUTO_GPU)) else { return };
        let options = Options { depth: 1, threads: 1, ..Options::default() };
        let device = open(&options, &Standing::new(Size::new(8, 8))).unwrap().describe();
        assert_eq!(device.backend, "cuda");
        assert!(device.name.contains(&gpu.name));
    }
}
