//! The CUDA driver: devices, memory, copies, kernels. What cudarc has is used; what it lacks (launches
//! without allocation, plain pinned memory, copies that never wait) is here, and `unsafe` with it.
//!
//! Nothing waits on the device but [`Stream::wait`], [`Mark::wait`] and what frees device memory. Everything
//! on a [`Stream`] runs in order; the caller orders streams among each other. What goes on after a call has
//! returned, and touches memory that Rust or a graph knows of, is an `unsafe fn`, which lists what its caller
//! keeps. Launchers are safe where all that a kernel touches is device memory: freeing that waits for the
//! kernel.

#![expect(
    unsafe_code,
    reason = "the driver's interface is C: addresses without lengths, calls without types"
)]

use std::cell::Cell;
use std::collections::HashMap;
use std::ffi::{c_int, c_void};
use std::marker::PhantomData;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, RwLock, RwLockReadGuard};

use cudarc::driver::result::{self, DriverError};
use cudarc::driver::sys::{self, CUresult};
use cudarc::driver::{CudaContext, CudaEvent, CudaFunction, CudaModule, CudaStream};
use cudarc::nvrtc::Ptx;

pub(super) use cudarc::driver::sys::CUdevice_attribute as Attribute;

use lockon_core::backend::Device;
use lockon_core::error::{CudaVersion, DeviceFault, Error, Result};

/// PTX of ISA 8.1 needs the driver of CUDA 12.1 (530) or a newer one.
const NEEDED_DRIVER: CudaVersion = CudaVersion { major: 12, minor: 1 };

/// Launches in a graph can begin before the one before has ended from compute capability 9.0 and the driver
/// of CUDA 12.3 on.
const EARLY_DRIVER: CudaVersion = CudaVersion { major: 12, minor: 3 };
const EARLY_CAPABILITY: CudaVersion = CudaVersion { major: 9, minor: 0 };

/// The kernels are compiled for this and what follows.
const NEEDED_CAPABILITY: CudaVersion = CudaVersion { major: 7, minor: 5 };

/// Plain numbers, of which every pattern of bits is a value, so that they can be copied to and from a device.
///
/// # Safety
/// The type has no padding, no pointer and no invalid value.
pub(super) unsafe trait Pod: Copy + Send + Sync + 'static {}

macro_rules! pod {
    ($($number:ty),*) => { $(
        // SAFETY: one of Rust's numbers: every pattern of its bits is one.
        unsafe impl Pod for $number {}
    )* };
}
pod!(u8, i8, u16, i16, u32, i32, u64, i64, f32, f64);

// SAFETY: nothing lies between the elements of an array.
unsafe impl<T: Pod, const N: usize> Pod for [T; N] {}

/// What this thread allocates and waits for, counted for tests: they look that no frame does what it should
/// not, and let allocations fail.
#[cfg(test)]
pub(super) mod counted {
    use std::cell::Cell;

    use super::{DeviceFault, Result, fault};

    thread_local! {
        pub(in super::super) static ALLOCATIONS: Cell<usize> = const { Cell::new(0) };
        pub(in super::super) static WAITS: Cell<usize> = const { Cell::new(0) };
        /// There is no memory for anything, until this is set back.
        pub(in super::super) static IS_FULL: Cell<bool> = const { Cell::new(false) };
    }

    /// # Errors
    /// As of a host without memory, if a test asked for that.
    pub(super) fn allocation(what: &'static str, wanted: usize) -> Result<()> {
        ALLOCATIONS.set(ALLOCATIONS.get() + 1);
        if IS_FULL.get() { Err(fault(DeviceFault::OutOfHostMemory { what, wanted })) } else { Ok(()) }
    }

    pub(super) fn wait() {
        WAITS.set(WAITS.get() + 1);
    }
}

/// An error of the CUDA backend.
pub(super) fn fault(fault: DeviceFault) -> Error {
    Error::Backend { backend: "cuda", fault }
}

/// The driver's error, for `map_err`, with what was tried. Errors that end a context are told from the
/// others.
pub(super) fn failed(doing: &'static str) -> impl FnOnce(DriverError) -> Error {
    move |error| {
        let reason = format!("{doing}: {}", said(error));
        fault(if is_fatal(error) { DeviceFault::Lost { reason } } else { DeviceFault::Other(reason) })
    }
}

/// As [`failed`] where there is no device yet that could be lost.
fn failed_to_open(doing: &'static str) -> impl FnOnce(DriverError) -> Error {
    move |error| fault(DeviceFault::Other(format!("{doing}: {}", said(error))))
}

fn said(DriverError(code): DriverError) -> String {
    let text = DriverError(code).error_string().map(|text| text.to_string_lossy().into_owned());
    format!("{} ({code:?})", text.unwrap_or_else(|_| "unknown error".into()))
}

/// After these nothing more can be done in the context ("sticky" errors), or the device is gone.
fn is_fatal(DriverError(code): DriverError) -> bool {
    matches!(
        code,
        CUresult::CUDA_ERROR_ILLEGAL_ADDRESS
            | CUresult::CUDA_ERROR_LAUNCH_FAILED
            | CUresult::CUDA_ERROR_LAUNCH_TIMEOUT
            | CUresult::CUDA_ERROR_HARDWARE_STACK_ERROR
            | CUresult::CUDA_ERROR_ILLEGAL_INSTRUCTION
            | CUresult::CUDA_ERROR_MISALIGNED_ADDRESS
            | CUresult::CUDA_ERROR_INVALID_ADDRESS_SPACE
            | CUresult::CUDA_ERROR_INVALID_PC
            | CUresult::CUDA_ERROR_ASSERT
            | CUresult::CUDA_ERROR_ECC_UNCORRECTABLE
            | CUresult::CUDA_ERROR_NVLINK_UNCORRECTABLE
            | CUresult::CUDA_ERROR_CONTEXT_IS_DESTROYED
            | CUresult::CUDA_ERROR_DEINITIALIZED
            | CUresult::CUDA_ERROR_DEVICE_UNAVAILABLE
            | CUresult::CUDA_ERROR_EXTERNAL_DEVICE
            | CUresult::CUDA_ERROR_CONTAINED
            | CUresult::CUDA_ERROR_UNKNOWN
    )
}

/// What is told of a device without a context on it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeviceInfo {
    /// The number that `--backend cuda:N` takes.
    pub number: usize,
    /// As the driver calls it.
    pub name: String,
    /// Compute capability.
    pub capability: CudaVersion,
    /// Bytes of device memory.
    pub memory: usize,
    /// The newest CUDA version that the driver knows.
    pub driver: CudaVersion,
}

impl DeviceInfo {
    /// As a backend on it describes itself.
    pub(super) fn describe(&self) -> Device {
        let Self { number, name, capability, memory, driver } = self;
        let gib = *memory as f64 / f64::from(1 << 30);
        Device {
            backend: "cuda",
            name: format!("{name} (device {number}, compute capability {capability}, {gib:.0} GiB)"),
            driver: Some(format!("CUDA {driver}")),
        }
    }
}

/// Number of devices, and the newest CUDA version that the driver knows, after the driver was found and
/// started.
fn start_driver() -> Result<(usize, CudaVersion)> {
    // SAFETY: looks for the library and nothing else.
    if !unsafe { sys::is_culib_present() } {
        return Err(fault(DeviceFault::NoDriver { library: "libcuda.so.1" }));
    }
    let mut version: c_int = 0;
    // SAFETY: may be asked before anything else; writes one number.
    unsafe { sys::cuDriverGetVersion(&raw mut version) }
        .result()
        .map_err(failed_to_open("asking for the driver's version"))?;
    let found = CudaVersion { major: version as u32 / 1000, minor: version as u32 % 1000 / 10 };
    if found < NEEDED_DRIVER {
        return Err(fault(DeviceFault::DriverTooOld { found, needed: NEEDED_DRIVER }));
    }
    let count = match result::init().and_then(|()| result::device::get_count()) {
        Ok(count) => count as usize,
        Err(DriverError(CUresult::CUDA_ERROR_NO_DEVICE)) => 0,
        Err(error) => return Err(failed_to_open("starting the driver")(error)),
    };
    Ok((count, found))
}

/// Describes the devices that there are.
///
/// # Errors
/// `Backend` with `NoDriver`, `DriverTooOld`, or what the driver said.
pub fn devices() -> Result<Vec<DeviceInfo>> {
    let (count, driver) = start_driver()?;
    (0..count).map(|number| describe(number, driver)).collect()
}

/// Describes one device, which exists and is new enough for the kernels.
///
/// # Errors
/// As [`devices`]; `NoSuchDevice`, `DeviceTooOld`.
pub fn device(number: usize) -> Result<DeviceInfo> {
    let (count, driver) = start_driver()?;
    if number >= count {
        return Err(fault(DeviceFault::NoSuchDevice { asked: number, count }));
    }
    let info = describe(number, driver)?;
    if info.capability < NEEDED_CAPABILITY {
        let DeviceInfo { name, capability: found, .. } = info;
        return Err(fault(DeviceFault::DeviceTooOld { name, found, needed: NEEDED_CAPABILITY }));
    }
    Ok(info)
}

fn describe(number: usize, driver: CudaVersion) -> Result<DeviceInfo> {
    let ask = || {
        let device = result::device::get(number as c_int)?;
        // SAFETY: the driver is started and gave the handle.
        let (memory, attribute) = unsafe {
            let attribute = |which| result::device::get_attribute(device, which);
            (
                result::device::total_mem(device)?,
                [
                    attribute(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?,
                    attribute(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?,
                ],
            )
        };
        let capability = CudaVersion { major: attribute[0] as u32, minor: attribute[1] as u32 };
        Ok(DeviceInfo { number, name: result::device::get_name(device)?, capability, memory, driver })
    };
    ask().map_err(failed_to_open("asking what the device is"))
}

/// Written by who captures a stream, read by who allocates or frees: the driver refuses to free while any
/// stream of the context is capturing, and what it has to wait for spoils the capture.
static CAPTURES: RwLock<()> = RwLock::new(());

thread_local! {
    /// How often this thread holds [`CAPTURES`]: it is locked once only.
    static HELD: Cell<u32> = const { Cell::new(0) };
}

/// While this lives, its thread holds [`CAPTURES`].
///
/// The first of a thread has the lock, and those made after it rely on that: they are dropped before it, as
/// locals are. None is to be kept in a value that lives longer than its block.
pub(super) struct Held<Guard> {
    guard: Option<Guard>,
}

impl<Guard> Held<Guard> {
    fn new(lock: impl FnOnce() -> Guard) -> Self {
        // Locked first: if that panics, nothing is held.
        let guard = (HELD.get() == 0).then(lock);
        HELD.set(HELD.get() + 1);
        Self { guard }
    }
}

impl<Guard> Drop for Held<Guard> {
    fn drop(&mut self) {
        HELD.set(HELD.get() - 1);
        debug_assert_eq!(self.guard.is_some(), HELD.get() == 0, "the first is dropped last");
    }
}

/// No other thread captures a stream while this is held.
pub(super) fn hold_captures_up() -> Held<RwLockReadGuard<'static, ()>> {
    Held::new(|| CAPTURES.read().unwrap_or_else(PoisonError::into_inner))
}

/// What `work` gives, and what `end` gives, which comes after it even if it panics. Then the panic goes on.
fn ended<T, E>(work: impl FnOnce() -> T, end: impl FnOnce() -> E) -> (T, E) {
    // What the panic left half done is seen by nobody but `end`.
    let worked = catch_unwind(AssertUnwindSafe(work));
    let ended = end();
    match worked {
        Ok(worked) => (worked, ended),
        Err(panic) => {
            drop(ended);
            resume_unwind(panic)
        }
    }
}

/// Something of the driver's that is destroyed while no stream is captured.
#[derive(Clone)]
struct Quiet<T>(Option<T>);

impl<T> Quiet<T> {
    fn new(value: T) -> Self {
        Self(Some(value))
    }
}

impl<T> std::ops::Deref for Quiet<T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.0.as_ref().expect("there until it is dropped")
    }
}

impl<T> Drop for Quiet<T> {
    fn drop(&mut self) {
        let _captures_wait = hold_captures_up();
        self.0 = None;
    }
}

/// Modules by their PTX.
type LoadedModules = HashMap<&'static str, Quiet<Arc<CudaModule>>>;

/// A device with its context, shared by all that lives on it.
#[derive(Clone)]
pub(super) struct Gpu {
    context: Arc<CudaContext>,
    info: Arc<DeviceInfo>,
    max_shared_bytes: Arc<OnceLock<usize>>,
    /// What [`Gpu::share`] has loaded, by its PTX.
    shared: Arc<Mutex<LoadedModules>>,
    /// The first error of what was dropped.
    dropped: Arc<OnceLock<DriverError>>,
}

impl Gpu {
    /// Opens the device of that number.
    pub(super) fn open(number: usize) -> Result<Self> {
        let info = Arc::new(device(number)?);
        let context = CudaContext::new(number).map_err(failed_to_open("opening the device"))?;
        Ok(Self {
            context,
            info,
            max_shared_bytes: Arc::default(),
            shared: Arc::default(),
            dropped: Arc::default(),
        })
    }

    pub(super) fn info(&self) -> &DeviceInfo {
        &self.info
    }

    /// A number that the driver tells of the device.
    pub(super) fn attribute(&self, which: Attribute) -> Result<usize> {
        Ok(self.context.attribute(which).map_err(failed("asking for a limit of the device"))? as usize)
    }

    /// Most bytes of shared memory that a block can have.
    pub(super) fn max_shared_bytes(&self) -> Result<usize> {
        if let Some(&bytes) = self.max_shared_bytes.get() {
            return Ok(bytes);
        }
        let bytes = self.attribute(Attribute::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN)?;
        Ok(*self.max_shared_bytes.get_or_init(|| bytes))
    }

    /// How many multiprocessors it has.
    pub(super) fn multiprocessors(&self) -> Result<usize> {
        self.attribute(Attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)
    }

    /// True if launches can begin before the one before has ended: see [`Module::early_kernel`].
    pub(super) fn begins_early(&self) -> bool {
        let DeviceInfo { capability, driver, .. } = &*self.info;
        *capability >= EARLY_CAPABILITY && *driver >= EARLY_DRIVER
    }

    /// Makes this device the one that driver calls of the current thread mean.
    pub(super) fn bind(&self) -> Result<()> {
        self.set_current().map_err(failed("binding the device to a thread"))
    }

    /// cudarc's own way first returns an error that was stored by something dropped, whatever is asked of it.
    fn set_current(&self) -> Result<(), DriverError> {
        // SAFETY: the context lives as long as this does.
        unsafe { result::ctx::set_current(self.context.cu_ctx()) }
    }

    /// The first error that happened where none could be returned: while something was dropped.
    pub(super) fn check_dropped(&self) -> Result<()> {
        let ours = self.dropped.get().map_or(Ok(()), |error| Err(*error));
        ours.and_then(|()| self.context.check_err()).map_err(failed("freeing what lay on the device"))
    }

    /// Frees something while it is dropped. [`Gpu::check_dropped`] tells what went wrong.
    pub(super) fn free(&self, free: impl FnOnce() -> Result<(), DriverError>) {
        let _captures_wait = hold_captures_up();
        // Freed even if the context is lost, so that nothing of the host's is kept.
        if let Err(error) = self.set_current().and(free()) {
            let _ = self.dropped.set(error);
        }
    }

    /// Loads PTX; the driver compiles it, and keeps what it compiled in its cache on disk. Each time it is
    /// another copy, with constant memory of its own: for kernels that need none, [`Self::share`] takes less
    /// time.
    pub(super) fn load(&self, ptx: &str) -> Result<Module> {
        let _captures_wait = hold_captures_up();
        let module = self.context.load_module(Ptx::from_src(ptx)).map_err(failed("loading kernels"))?;
        Ok(Module { gpu: self.clone(), module: Quiet::new(module) })
    }

    /// PTX that is loaded once for all who ask.
    pub(super) fn share(&self, ptx: &'static str) -> Result<Module> {
        // Before the other lock, as whoever captures takes them.
        let _captures_wait = hold_captures_up();
        let mut shared = self.shared.lock().unwrap_or_else(PoisonError::into_inner);
        let module = if let Some(module) = shared.get(ptx) {
            module.clone()
        } else {
            let Module { module, .. } = self.load(ptx)?;
            shared.insert(ptx, module.clone());
            module
        };
        Ok(Module { gpu: self.clone(), module })
    }

    /// Room for `length` numbers on the device, all 0.
    pub(super) fn alloc<T: Pod>(&self, what: &'static str, length: usize) -> Result<DeviceBuffer<T>> {
        let bytes = (length * size_of::<T>()).max(1);
        #[cfg(test)]
        counted::allocation(what, bytes)?;
        self.bind()?;
        let _captures_wait = hold_captures_up();
        let no_room = |error| self.no_room(what, bytes, error);
        // SAFETY: the context is bound. The memory set is what was just given. Setting it is put into the
        // default stream, which the others do not wait for, so it is waited for here.
        let (address, cleared) = unsafe {
            let address = result::malloc_sync(bytes).map_err(no_room)?;
            let cleared = result::memset_d8_sync(address, 0, bytes)
                .and_then(|()| result::stream::synchronize(std::ptr::null_mut()));
            (address, cleared)
        };
        let buffer = DeviceBuffer { gpu: self.clone(), address, length, of: PhantomData };
        cleared.map_err(failed("clearing device memory"))?;
        Ok(buffer)
    }

    /// Room for `length` numbers of page-locked host memory, all 0, which the device reads and writes
    /// directly.
    ///
    /// Write-combined memory is for what the host only writes: reading it is very slow.
    pub(super) fn alloc_pinned<T: Pod>(
        &self,
        what: &'static str,
        length: usize,
        kind: Pinned,
    ) -> Result<PinnedBuffer<T>> {
        let bytes = (length * size_of::<T>()).max(1);
        #[cfg(test)]
        counted::allocation(what, bytes)?;
        self.bind()?;
        let _captures_wait = hold_captures_up();
        let flags = match kind {
            Pinned::Plain => 0,
            Pinned::WriteCombined => sys::CU_MEMHOSTALLOC_WRITECOMBINED,
        };
        // SAFETY: the context is bound. What is written lies within what was just given, which is aligned to
        // a page.
        let pointer = unsafe {
            let pointer =
                result::malloc_host(bytes, flags).map_err(|error| no_host_room(what, bytes, error))?;
            pointer.cast::<u8>().write_bytes(0, bytes);
            pointer.cast::<T>()
        };
        Ok(PinnedBuffer { gpu: self.clone(), pointer, length })
    }

    fn no_room(&self, what: &'static str, wanted: usize, error: DriverError) -> Error {
        if error.0 != CUresult::CUDA_ERROR_OUT_OF_MEMORY {
            return failed("allocating memory")(error);
        }
        let (free, total) = self.context.mem_get_info().unwrap_or((0, self.info.memory));
        fault(DeviceFault::OutOfMemory { what, wanted, free, total })
    }

    /// A queue of work. Those of high priority come before the others where both could run.
    pub(super) fn stream(&self, priority: Priority) -> Result<Stream> {
        self.bind()?;
        let _captures_wait = hold_captures_up();
        let create = || match priority {
            Priority::Normal => self.context.new_stream(),
            Priority::High => {
                let (_least, greatest) = result::stream::get_priority_range()?;
                self.context.new_stream_with_priority(greatest)
            }
        };
        let stream = Quiet::new(create().map_err(failed("creating a stream"))?);
        Ok(Stream { gpu: self.clone(), queue: stream, overlaps: true })
    }

    /// A mark in a stream, to be waited for.
    pub(super) fn mark(&self) -> Result<Mark> {
        let _captures_wait = hold_captures_up();
        let untimed = sys::CUevent_flags::CU_EVENT_DISABLE_TIMING;
        let event = self.context.new_event(Some(untimed)).map_err(failed("creating an event"))?;
        Ok(Mark { event: Quiet::new(event) })
    }

    /// A mark in a stream, which also tells the time. What follows it in the stream starts later for it, by
    /// up to 2 us on an H200: streams whose work must be dense have marks without time.
    pub(super) fn event(&self) -> Result<Event> {
        let _captures_wait = hold_captures_up();
        let timed = sys::CUevent_flags::CU_EVENT_DEFAULT;
        let event = self.context.new_event(Some(timed)).map_err(failed("creating an event"))?;
        Ok(Event { mark: Mark { event: Quiet::new(event) } })
    }
}

fn no_host_room(what: &'static str, wanted: usize, error: DriverError) -> Error {
    match error {
        DriverError(CUresult::CUDA_ERROR_OUT_OF_MEMORY) => {
            fault(DeviceFault::OutOfHostMemory { what, wanted })
        }
        error => failed("allocating page-locked memory")(error),
    }
}

/// Kinds of page-locked memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Pinned {
    /// Cached by the processor: for results.
    Plain,
    /// Not cached: for uploads.
    WriteCombined,
}

/// Whose work comes first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Priority {
    Normal,
    High,
}

/// Memory of a device. It is freed when dropped, which waits for the work on the device.
pub(super) struct DeviceBuffer<T> {
    gpu: Gpu,
    address: sys::CUdeviceptr,
    length: usize,
    of: PhantomData<T>,
}

impl<T: Pod> DeviceBuffer<T> {
    /// Number of elements.
    pub(super) fn len(&self) -> usize {
        self.length
    }

    /// Where it lies, as a kernel takes it.
    pub(super) fn address(&self) -> u64 {
        self.address
    }

    /// Where element `index` lies.
    ///
    /// # Panics
    /// If there is no such element, or one behind the last.
    pub(super) fn address_of(&self, index: usize) -> u64 {
        assert!(index <= self.length, "element {index} of {}", self.length);
        self.address + (index * size_of::<T>()) as u64
    }
}

impl<T> Drop for DeviceBuffer<T> {
    fn drop(&mut self) {
        // SAFETY: allocated by `Gpu::alloc`, and nobody else has the address; freeing waits for kernels that
        // use it.
        self.gpu.free(|| unsafe { result::free_sync(self.address) });
    }
}

/// Page-locked memory of the host, which the device reads and writes in copies and kernels. Starting these is
/// unsafe: whoever does keeps the buffer, and reads or writes nothing in it that the device writes, until the
/// device is done. So it is safe to read and to drop.
pub(super) struct PinnedBuffer<T> {
    gpu: Gpu,
    pointer: *mut T,
    length: usize,
}

// SAFETY: the buffer owns what the pointer points to, which is not bound to a thread.
unsafe impl<T: Pod> Send for PinnedBuffer<T> {}
// SAFETY: what a shared borrow can do (`len`, `device_address`, `as_slice`) only reads.
unsafe impl<T: Pod> Sync for PinnedBuffer<T> {}

impl<T: Pod> PinnedBuffer<T> {
    /// Number of elements.
    pub(super) fn len(&self) -> usize {
        self.length
    }

    /// Where it lies, as a kernel takes it, which goes through the bus at each access. Whoever launches the
    /// kernel keeps the buffer as for a copy: see [`Stream::launch`].
    pub(super) fn device_address(&self) -> u64 {
        // Host and device share one space of addresses on all 64-bit systems, write-combined memory included.
        self.pointer as u64
    }

    pub(super) fn as_slice(&self) -> &[T] {
        // SAFETY: `Gpu::alloc_pinned` allocated `length` elements and set them to 0; every pattern of bits is
        // a value (`Pod`); whoever let the device write here has waited for it (`Stream::download`,
        // `Stream::launch`).
        unsafe { std::slice::from_raw_parts(self.pointer, self.length) }
    }

    pub(super) fn as_mut_slice(&mut self) -> &mut [T] {
        // SAFETY: `length` elements are allocated and set, as said in `as_slice`; the borrow is exclusive on
        // the host, and whoever lets the device read or write here has waited for it (`Stream::upload`,
        // `Stream::launch`).
        unsafe { std::slice::from_raw_parts_mut(self.pointer, self.length) }
    }
}

impl<T> Drop for PinnedBuffer<T> {
    fn drop(&mut self) {
        // SAFETY: allocated by `Gpu::alloc_pinned`, and nobody else has the pointer. Whoever started a copy
        // or a kernel that touches it has waited for that (`Stream::upload`, `download` and `launch`).
        self.gpu.free(|| unsafe { result::free_host(self.pointer.cast()) });
    }
}

/// A rectangle of bytes in device memory, for copies.
#[derive(Debug, Clone, Copy)]
pub(super) struct Rows {
    /// Address of the first byte.
    pub(super) address: u64,
    /// Bytes from the start of a row to that of the next.
    pub(super) pitch: usize,
}

/// A queue of work on a device: what is put into it runs in order. Clones put work into the same queue.
#[derive(Clone)]
pub(super) struct Stream {
    gpu: Gpu,
    queue: Quiet<Arc<CudaStream>>,
    /// Kernels that may begin early do.
    overlaps: bool,
}

impl Stream {
    pub(super) fn gpu(&self) -> &Gpu {
        &self.gpu
    }

    /// The driver's handle, for calls that are not here.
    pub(super) fn handle(&self) -> sys::CUstream {
        self.queue.cu_stream()
    }

    /// The same queue, for launches that all begin when the one before has ended.
    pub(super) fn one_by_one(&self) -> Self {
        Self { overlaps: false, ..self.clone() }
    }

    /// Waits until everything in it is done.
    pub(super) fn wait(&self) -> Result<()> {
        #[cfg(test)]
        counted::wait();
        self.queue.synchronize().map_err(failed("waiting for the device"))
    }

    /// What comes next in this stream starts after `mark`.
    pub(super) fn wait_for(&self, mark: &Mark) -> Result<()> {
        self.queue.wait(&mark.event).map_err(failed("ordering streams"))
    }

    /// Copies the first `length` elements to the device, without waiting.
    ///
    /// # Safety
    /// Until the copy is done, which a wait for this stream or for a later mark of it tells:
    /// - `source` is not dropped,
    /// - the elements are not written.
    ///
    /// # Panics
    /// If either has fewer elements.
    pub(super) unsafe fn upload<T: Pod>(
        &self,
        source: &PinnedBuffer<T>,
        to: &mut DeviceBuffer<T>,
        length: usize,
    ) -> Result<()> {
        assert!(length <= source.length && length <= to.length, "upload of {length} elements");
        self.gpu.bind()?;
        let bytes = length * size_of::<T>();
        // SAFETY: both ends have `length` elements, as asserted. The caller keeps `source`; freeing `to`
        // waits for the copy.
        unsafe { sys::cuMemcpyHtoDAsync_v2(to.address, source.pointer.cast(), bytes, self.handle()) }
            .result()
            .map_err(failed("uploading"))
    }

    /// Copies `length` elements from element `from` on to the start of `to`, without waiting.
    ///
    /// # Safety
    /// Until the copy is done, which a wait for this stream or for a later mark of it tells:
    /// - `to` is not dropped,
    /// - it is neither read nor written by the host.
    ///
    /// # Panics
    /// If either has fewer elements.
    pub(super) unsafe fn download<T: Pod>(
        &self,
        source: &DeviceBuffer<T>,
        from: usize,
        to: &mut PinnedBuffer<T>,
        length: usize,
    ) -> Result<()> {
        assert!(from + length <= source.length && length <= to.length, "download of {length} elements");
        self.gpu.bind()?;
        let (address, bytes) = (source.address_of(from), length * size_of::<T>());
        // SAFETY: both ends have `length` elements, as asserted. The caller keeps `to`; freeing `source`
        // waits for the copy.
        unsafe { sys::cuMemcpyDtoHAsync_v2(to.pointer.cast(), address, bytes, self.handle()) }
            .result()
            .map_err(failed("reading back"))
    }

    /// Keeps what `work` puts into the stream, instead of running it, to be run as often as wanted. The
    /// stream is as it was afterwards, also if `work` fails or panics.
    ///
    /// # Panics
    /// If the thread is capturing already, or allocating.
    pub(super) fn capture(&self, work: &mut dyn FnMut() -> Result<()>) -> Result<Graph> {
        self.gpu.bind()?;
        assert_eq!(HELD.get(), 0, "a capture within a capture or an allocation");
        let _alone = Held::new(|| CAPTURES.write().unwrap_or_else(PoisonError::into_inner));
        let mode = sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED;
        // SAFETY: the stream lives, and `ended` ends its capture whatever `work` does.
        unsafe { result::stream::begin_capture(self.handle(), mode) }.map_err(failed("capturing"))?;
        // SAFETY: the capture was begun just above, and `work` has no way to end it.
        let end = || unsafe { result::stream::end_capture(self.handle()) }.map(Captured);
        let (outcome, captured) = ended(work, end);
        outcome?;
        let captured = captured.map_err(failed("capturing"))?;
        // SAFETY: the graph was just captured, and lives until `captured` is dropped.
        let made = unsafe { result::graph::instantiate(captured.0, sys::CUgraphInstantiate_flags_enum(0)) };
        Ok(Graph { gpu: self.gpu.clone(), graph: made.map_err(failed("making a graph"))? })
    }

    /// Starts what was captured, without waiting.
    ///
    /// # Safety
    /// Until that is done, which a wait for this stream or for a later mark of it tells:
    /// - all device memory, textures and marks that were given to the captured work live, and lie where they
    ///   lay,
    /// - what [`Self::launch`], [`Self::upload`] and [`Self::download`] ask for holds, for each that was
    ///   captured.
    pub(super) unsafe fn run(&self, graph: &Graph) -> Result<()> {
        self.gpu.bind()?;
        // SAFETY: the graph lives, and is destroyed only after it has run; the rest is the caller's.
        unsafe { result::graph::launch(graph.graph, self.handle()) }.map_err(failed("running a graph"))
    }

    /// Copies to the device and waits.
    pub(super) fn upload_now<T: Pod>(&self, source: &[T], to: &mut DeviceBuffer<T>) -> Result<()> {
        assert!(source.len() <= to.length, "upload of {} elements into {}", source.len(), to.length);
        self.gpu.bind()?;
        // SAFETY: the buffer has room, and the wait below keeps `source` until the copy is done.
        unsafe { result::memcpy_htod_async(to.address, source, self.handle()) }
            .map_err(failed("uploading"))?;
        self.wait()
    }

    /// Copies from the device and waits.
    pub(super) fn download_now<T: Pod>(&self, source: &DeviceBuffer<T>, to: &mut [T]) -> Result<()> {
        assert!(to.len() <= source.length, "download of {} elements from {}", to.len(), source.length);
        self.gpu.bind()?;
        // SAFETY: the buffer has as many, and the wait below keeps `to` until the copy is done.
        unsafe { result::memcpy_dtoh_async(to, source.address, self.handle()) }
            .map_err(failed("reading back"))?;
        self.wait()
    }

    /// Copies `height` rows of `width` bytes within the device.
    ///
    /// # Safety
    /// - `height` rows of `width` bytes, `from.pitch` apart, lie in a live allocation of this device from
    ///   `from.address` on,
    /// - and so they do in another, `to.pitch` apart, from `to.address` on.
    ///
    /// Neither need be kept: freeing it waits for the copy.
    pub(super) unsafe fn copy_rows(&self, from: Rows, to: Rows, width: usize, height: usize) -> Result<()> {
        self.gpu.bind()?;
        let copy = sys::CUDA_MEMCPY2D {
            srcXInBytes: 0,
            srcY: 0,
            srcMemoryType: sys::CUmemorytype::CU_MEMORYTYPE_DEVICE,
            srcHost: std::ptr::null(),
            srcDevice: from.address,
            srcArray: std::ptr::null_mut(),
            srcPitch: from.pitch,
            dstXInBytes: 0,
            dstY: 0,
            dstMemoryType: sys::CUmemorytype::CU_MEMORYTYPE_DEVICE,
            dstHost: std::ptr::null_mut(),
            dstDevice: to.address,
            dstArray: std::ptr::null_mut(),
            dstPitch: to.pitch,
            WidthInBytes: width,
            Height: height,
        };
        // SAFETY: the rectangles are the caller's; all of the description is set.
        unsafe { sys::cuMemcpy2DAsync_v2(&raw const copy, self.handle()) }
            .result()
            .map_err(failed("copying within the device"))
    }

    /// Sets the first `length` elements to bytes of 0.
    pub(super) fn clear<T: Pod>(&self, buffer: &mut DeviceBuffer<T>, length: usize) -> Result<()> {
        assert!(length <= buffer.length, "clearing {length} elements of {}", buffer.length);
        self.gpu.bind()?;
        // SAFETY: the buffer has so many elements.
        unsafe { result::memset_d8_async(buffer.address, 0, length * size_of::<T>(), self.handle()) }
            .map_err(failed("clearing device memory"))
    }

    /// Sets all bytes of a buffer.
    #[cfg(test)]
    pub(super) fn fill<T: Pod>(&self, buffer: &mut DeviceBuffer<T>, byte: u8) -> Result<()> {
        self.gpu.bind()?;
        // SAFETY: the buffer has so many bytes.
        unsafe {
            result::memset_d8_async(buffer.address, byte, buffer.length * size_of::<T>(), self.handle())
        }
        .map_err(failed("filling device memory"))
    }

    /// Starts a kernel that takes nothing.
    #[cfg(test)]
    pub(super) fn launch_without_arguments(&self, kernel: &Kernel, threads: usize) -> Result<()> {
        // SAFETY: the tests' kernels of no parameters take nothing, and touch no memory.
        unsafe { self.launch(kernel, [1; 3], [threads, 1, 1], 0, &mut []) }
    }

    /// Starts a kernel, without waiting.
    ///
    /// # Safety
    /// - `args` begins with what the kernel takes, in its order and of its types,
    /// - what the kernel reads and writes with them lies in allocations that live now; of device memory that
    ///   is enough, since freeing it waits for the kernel,
    /// - page-locked memory that the kernel touches is kept until it is done, and by then neither read nor
    ///   written by the host.
    pub(super) unsafe fn launch(
        &self,
        kernel: &Kernel,
        grid: [usize; 3],
        block: [usize; 3],
        shared_bytes: usize,
        args: &mut [*mut c_void],
    ) -> Result<()> {
        self.gpu.bind()?;
        let mut early = sys::CUlaunchAttribute {
            id: sys::CUlaunchAttributeID::CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION,
            pad: [0; 4],
            value: sys::CUlaunchAttributeValue { programmaticStreamSerializationAllowed: 1 },
        };
        let config = sys::CUlaunchConfig {
            gridDimX: grid[0] as u32,
            gridDimY: grid[1] as u32,
            gridDimZ: grid[2] as u32,
            blockDimX: block[0] as u32,
            blockDimY: block[1] as u32,
            blockDimZ: block[2] as u32,
            sharedMemBytes: shared_bytes as u32,
            hStream: self.handle(),
            attrs: &raw mut early,
            numAttrs: u32::from(kernel.begins_early && self.overlaps),
        };
        let function = kernel.function.cu_function();
        // SAFETY: the arguments are the caller's; `early` lives until the call returns; a kernel begins early
        // only if `Module::early_kernel` made it.
        unsafe { sys::cuLaunchKernelEx(&raw const config, function, args.as_mut_ptr(), std::ptr::null_mut()) }
            .result()
            .map_err(|error| {
                let reason = said(error);
                fault(if is_fatal(error) {
                    DeviceFault::Lost { reason }
                } else {
                    DeviceFault::Launch { kernel: kernel.name, reason }
                })
            })
    }
}

/// A graph as it was captured.
struct Captured(sys::CUgraph);

impl Drop for Captured {
    fn drop(&mut self) {
        // SAFETY: captured by `Stream::capture`, and nobody else has it. What was made of it does without it.
        // That this failed would be told by whatever comes next.
        let _ = unsafe { result::graph::destroy(self.0) };
    }
}

/// Work that was captured.
pub(super) struct Graph {
    gpu: Gpu,
    graph: sys::CUgraphExec,
}

// SAFETY: the graph is the driver's, is not bound to a thread, and is used by one at a time.
unsafe impl Send for Graph {}

impl Drop for Graph {
    fn drop(&mut self) {
        // SAFETY: instantiated by `Stream::capture`, and nobody else has it. The driver keeps it until it has
        // run.
        self.gpu.free(|| unsafe { result::graph::exec_destroy(self.graph) });
    }
}

/// One argument of a kernel: an address of a number that lives until the launch returns.
pub(super) fn arg<T: Pod>(value: &T) -> *mut c_void {
    std::ptr::from_ref(value).cast_mut().cast()
}

/// A mark in a stream.
pub(super) struct Mark {
    event: Quiet<CudaEvent>,
}

impl Mark {
    /// Marks the end of what is in the stream now.
    pub(super) fn record(&self, stream: &Stream) -> Result<()> {
        self.event.record(&stream.queue).map_err(failed("recording an event"))
    }

    /// Marks, in a stream that is being captured, the end of what is in it: the device passes it each time
    /// that the graph runs.
    pub(super) fn capture(&self, stream: &Stream) -> Result<()> {
        let external = sys::CUevent_record_flags_enum::CU_EVENT_RECORD_EXTERNAL as u32;
        // SAFETY: both live now; whoever runs the graph keeps the mark (`Stream::run`).
        unsafe { sys::cuEventRecordWithFlags(self.event.cu_event(), stream.handle(), external) }
            .result()
            .map_err(failed("recording an event"))
    }

    /// Waits until the device has passed it.
    pub(super) fn wait(&self) -> Result<()> {
        #[cfg(test)]
        counted::wait();
        self.event.synchronize().map_err(failed("waiting for the device"))
    }

    /// True if the device has passed it, or it was never recorded. An error is told by what comes next.
    pub(super) fn is_passed(&self) -> bool {
        self.event.is_complete()
    }
}

/// A mark in a stream, which also tells the time.
pub(super) struct Event {
    mark: Mark,
}

impl Event {
    /// Microseconds from this mark to `end`, both of which the device has passed.
    pub(super) fn micros_to(&self, end: &Self) -> Result<f64> {
        // SAFETY: both events live. Of events that were not recorded the driver says so.
        let millis = unsafe { result::event::elapsed(self.mark.event.cu_event(), end.mark.event.cu_event()) }
            .map_err(failed("timing the device"))?;
        Ok(f64::from(millis) * 1000.0)
    }
}

impl std::ops::Deref for Event {
    type Target = Mark;

    fn deref(&self) -> &Mark {
        &self.mark
    }
}

/// Loaded kernels, with `__constant__` memory of their own.
#[derive(Clone)]
pub(super) struct Module {
    gpu: Gpu,
    module: Quiet<Arc<CudaModule>>,
}

impl Module {
    /// The kernel of that name, allowed all the shared memory that a block can have.
    pub(super) fn kernel(&self, name: &'static str) -> Result<Kernel> {
        let all = self.gpu.max_shared_bytes()? as c_int;
        let load = || {
            let function = self.module.load_function(name)?;
            let fixed = function.shared_size_bytes()?;
            let which = sys::CUfunction_attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
            function.set_attribute(which, all - fixed)?;
            Ok(Kernel { name, function: Quiet::new(function), begins_early: false })
        };
        load().map_err(failed("loading a kernel"))
    }

    /// The same, of a kernel whose launches begin before the one before has ended, where the device and its
    /// driver can do that.
    ///
    /// # Safety
    /// - the kernel keeps to what `kernels/launches.cuh` asks of kernels that begin early,
    /// - the module is compiled for compute capability 9.0.
    pub(super) unsafe fn early_kernel(&self, name: &'static str) -> Result<Kernel> {
        Ok(Kernel { begins_early: self.gpu.begins_early(), ..self.kernel(name)? })
    }

    /// Address and bytes of a `__constant__` or `__device__` variable.
    pub(super) fn global(&self, name: &str, stream: &Stream) -> Result<(u64, usize)> {
        use cudarc::driver::DevicePtr;
        let view = self.module.get_global(name, &stream.queue).map_err(failed("looking for a variable"))?;
        let (address, _not_tracked) = view.device_ptr(&stream.queue);
        Ok((address, view.len()))
    }

    /// Copies `source` to the start of a `__constant__` variable and waits.
    ///
    /// # Panics
    /// If the variable is smaller.
    pub(super) fn set_constant<T: Pod>(&self, name: &str, source: &[T], stream: &Stream) -> Result<()> {
        let (address, bytes) = self.global(name, stream)?;
        assert!(size_of_val(source) <= bytes, "{} bytes into {name} of {bytes}", size_of_val(source));
        // SAFETY: the variable has room, and the wait below keeps `source` until the copy is done.
        unsafe { result::memcpy_htod_async(address, source, stream.handle()) }
            .map_err(failed("setting a constant"))?;
        stream.wait()
    }
}

/// A function that runs on the device.
#[derive(Clone)]
pub(super) struct Kernel {
    name: &'static str,
    function: Quiet<CudaFunction>,
    begins_early: bool,
}

#[cfg(test)]
mod tests {
    use super::*;
    use lockon_core::error::catch_panic;

    #[test]
    fn what_was_begun_is_ended_whether_the_work_succeeds_fails_or_panics() {
        type Work<'a> = &'a dyn Fn() -> Result<(), &'static str>;
        let works: [(&str, Work<'_>); 3] = [
            ("done", &|| Ok(())),
            ("failed", &|| Err("as it should")),
            ("panicked", &|| panic!("as it should")),
        ];
        for (what, work) in works {
            let times_ended = Cell::new(0);
            let outcome = catch_panic(|| ended(work, || times_ended.set(times_ended.get() + 1)));
            assert_eq!(times_ended.get(), 1, "{what}");
            match (what, outcome) {
                ("done", Ok((Ok(()), ()))) | ("failed", Ok((Err("as it should"), ()))) => {}
                ("panicked", Err(message)) => assert_eq!(message, "as it should"),
                (_, outcome) => panic!("{what}: {outcome:?}"),
            }
        }
    }

    #[test]
    fn captures_are_held_up_until_the_first_who_asked_for_it_has_done() {
        let others_can_capture =
            || std::thread::spawn(|| CAPTURES.try_write().is_ok()).join().expect("it only tries");
        let first = hold_captures_up();
        {
            let _second = hold_captures_up();
            assert_eq!(HELD.get(), 2);
        }
        assert!(!others_can_capture());
        drop(first);
        assert_eq!(HELD.get(), 0);
        let panicked = catch_panic(|| {
            let (_first, _second) = (hold_captures_up(), hold_captures_up());
            panic!("on the way")
        });
        assert_eq!((panicked, HELD.get()), (Err::<(), _>("on the way".into()), 0));
    }

    #[test]
    fn a_capture_that_panics_leaves_the_stream_as_it_was() {
        let Some(gpu) = super::super::testing::gpu() else { return };
        let stream = gpu.stream(Priority::Normal).unwrap();
        let mut buffer = gpu.alloc::<u8>("bytes", 4).unwrap();
        let panicked = catch_panic(|| stream.capture(&mut || panic!("while it captures")).map(drop));
        assert_eq!(panicked.unwrap_err(), "while it captures");
        assert_eq!(HELD.get(), 0);
        // Neither would be allowed while it captures.
        stream.upload_now(&[1, 2, 3, 4], &mut buffer).unwrap();
        stream.wait().unwrap();
        let graph = stream.capture(&mut || stream.clear(&mut buffer, 2)).unwrap();
        // SAFETY: the buffer lives to the end.
        unsafe { stream.run(&graph) }.unwrap();
        let mut bytes = [9; 4];
        stream.download_now(&buffer, &mut bytes).unwrap();
        assert_eq!(bytes, [0, 0, 3, 4]);
        gpu.check_dropped().unwrap();
    }
}
