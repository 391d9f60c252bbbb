//! The devices that there are, and the context on one.

#![expect(
    unsafe_code,
    reason = "the driver's interface is C: addresses without lengths, calls without types"
)]

use std::ffi::{c_int, c_void};
use std::ops::Deref;
use std::sync::{Arc, LazyLock, OnceLock, Weak};

use cudarc::driver::CudaContext;
use cudarc::driver::result::{self, DriverError};
use cudarc::driver::sys::{self, CUresult};

use lockon_core::backend::Device;
use lockon_core::device_memory::MemoryAt;
use lockon_core::error::{CudaVersion, DeviceFault, Result};
use lockon_core::locks::Ranked;

use super::Attribute;
use super::error::{failed, failed_to_open, fault, is_fatal};
use super::graph::hold_captures_up;
use super::memory::free_slabs;
use super::module::LoadedModules;
use super::pool::Pools;

/// PTX of ISA 8.1 needs the driver of CUDA 12.1 (530) or a newer one.
const NEEDED_DRIVER: CudaVersion = CudaVersion { major: 12, minor: 1 };

/// Launches in a graph can begin before the one before has ended from compute capability 9.0 and the driver
/// of CUDA 12.3 on.
const EARLY_DRIVER: CudaVersion = CudaVersion { major: 12, minor: 3 };

const EARLY_CAPABILITY: CudaVersion = CudaVersion { major: 9, minor: 0 };

/// The kernels are compiled for this compute capability and later ones.
const NEEDED_CAPABILITY: CudaVersion = CudaVersion { major: 7, minor: 5 };

/// Information about a device, read without a context on it.
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
    /// Its address on the PCI bus, as Linux writes it: `0000:1b:00.0`.
    pub pci: String,
}

impl DeviceInfo {
    /// As a backend on it describes itself.
    pub fn describe(&self) -> Device {
        let Self { number, name, capability, memory, driver, .. } = self;
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
    // Searched once: if it is missing, the search takes hundreds of system calls. SAFETY: looks for the
    // library and nothing else.
    static IS_THERE: LazyLock<bool> = LazyLock::new(|| unsafe { sys::is_culib_present() });
    if !*IS_THERE {
        return Err(fault(DeviceFault::NoDriver { library: "libcuda.so.1" }));
    }
    let mut version: c_int = 0;
    // SAFETY: may be called before anything else; writes one number.
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
/// `Backend` with `NoDriver`, `DriverTooOld`, or the driver's error.
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

/// Asks the driver what lies at an address.
///
/// # Errors
/// As [`devices`]; `Other` if no device's memory does.
pub fn memory_at(address: u64) -> Result<MemoryAt> {
    use sys::CUpointer_attribute as Asked;

    // It stays started.
    static HAS_STARTED: OnceLock<()> = OnceLock::new();
    if HAS_STARTED.get().is_none() {
        start_driver()?;
        let _ = HAS_STARTED.set(());
    }
    let (mut device, mut context, mut start, mut length): (c_int, usize, u64, usize) = (-1, 0, 0, 0);
    let mut asked = [
        Asked::CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,
        Asked::CU_POINTER_ATTRIBUTE_CONTEXT,
        Asked::CU_POINTER_ATTRIBUTE_RANGE_START_ADDR,
        Asked::CU_POINTER_ATTRIBUTE_RANGE_SIZE,
    ];
    let mut rooms: [*mut c_void; 4] = [
        (&raw mut device).cast(),
        (&raw mut context).cast(),
        (&raw mut start).cast(),
        (&raw mut length).cast(),
    ];
    // SAFETY: the driver is started. It writes a number of each attribute's size, for which there is room,
    // and zeros for an address that is not its own.
    unsafe { sys::cuPointerGetAttributes(4, asked.as_mut_ptr(), rooms.as_mut_ptr(), address) }
        .result()
        .map_err(failed_to_open("asking what lies at an address"))?;
    if length == 0 || device < 0 {
        return Err(failed_to_open("asking what lies at an address")(DriverError(
            CUresult::CUDA_ERROR_INVALID_VALUE,
        )));
    }
    let bytes = length.saturating_sub((address - start) as usize);
    Ok(MemoryAt { device: device as usize, context, bytes })
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
                    attribute(Attribute::CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID)?,
                    attribute(Attribute::CU_DEVICE_ATTRIBUTE_PCI_BUS_ID)?,
                    attribute(Attribute::CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID)?,
                ],
            )
        };
        let [major, minor, domain, bus, slot] = attribute;
        let capability = CudaVersion { major: major as u32, minor: minor as u32 };
        // A GPU is function 0 of its slot.
        let pci = format!("{domain:04x}:{bus:02x}:{slot:02x}.0");
        Ok(DeviceInfo { number, name: result::device::get_name(device)?, capability, memory, driver, pci })
    };
    ask().map_err(failed_to_open("asking what the device is"))
}

/// A device with its context, shared by all of the process that lives on it.
#[derive(Clone)]
pub struct Gpu(Arc<OpenDevice>);

/// The state that exists once for each device.
pub struct OpenDevice {
    pub(super) context: Arc<CudaContext>,
    info: DeviceInfo,
    max_shared_bytes: OnceLock<usize>,
    /// The modules that [`Gpu::share`] has loaded, by their PTX.
    pub(super) shared: Ranked<LoadedModules, 130>,
    /// Small pieces of memory.
    pub(super) pools: Pools,
    /// The first error of a resource that was dropped.
    dropped: OnceLock<DriverError>,
}

impl Drop for OpenDevice {
    fn drop(&mut self) {
        let _captures_wait = hold_captures_up();
        // SAFETY: the context lives as long as this does.
        let is_current = unsafe { result::ctx::set_current(self.context.cu_ctx()) };
        // SAFETY: each piece keeps the device open, so none is in use any more. Also if the context is
        // lost, so that nothing of the host's is kept.
        let freed = unsafe { free_slabs(&mut self.pools) };
        if let Err(error) = is_current.and(freed) {
            tracing::debug!("closing the device: {error}");
        }
    }
}

impl Deref for Gpu {
    type Target = OpenDevice;

    fn deref(&self) -> &OpenDevice {
        &self.0
    }
}

/// The devices that are open, by their numbers.
static OPEN: Ranked<Vec<(usize, Weak<OpenDevice>)>, 110> = Ranked::new(Vec::new());

impl Gpu {
    /// Opens the device of that number. While a device is open, all callers share it: kernels are loaded
    /// once.
    pub fn open(number: usize) -> Result<Self> {
        let mut open = OPEN.lock();
        let same = open.iter().find(|(other, _)| *other == number).and_then(|(_, context)| context.upgrade());
        if let Some(gpu) = same.map(Self) {
            let reason = || "another run of this process lost it".into();
            return if gpu.is_lost() { Err(fault(DeviceFault::Lost { reason: reason() })) } else { Ok(gpu) };
        }
        open.retain(|(other, _)| *other != number);
        let context = Arc::new(OpenDevice {
            info: device(number)?,
            context: CudaContext::new(number).map_err(failed_to_open("opening the device"))?,
            max_shared_bytes: OnceLock::new(),
            shared: Ranked::default(),
            pools: Pools::default(),
            dropped: OnceLock::new(),
        });
        open.push((number, Arc::downgrade(&context)));
        Ok(Self(context))
    }

    pub fn info(&self) -> &DeviceInfo {
        &self.info
    }

    /// The driver's handle of the context.
    pub(crate) fn handle(&self) -> sys::CUcontext {
        self.context.cu_ctx()
    }

    /// Waits for a stream in another context, which this crate does not own, by the driver's handles of both.
    ///
    /// # Safety
    /// They are handles of a context that lives, and of a stream of it that does.
    pub(crate) unsafe fn wait_for_stream_of(context: usize, stream: usize) -> Result<()> {
        let wait = || {
            // SAFETY: both live, as the caller guarantees. Our own calls make their context current first.
            unsafe {
                result::ctx::set_current(context as sys::CUcontext)?;
                sys::cuStreamSynchronize(stream as sys::CUstream).result()
            }
        };
        wait().map_err(failed("waiting for a decoder"))
    }

    /// True if the context is lost: after some errors everything in it fails.
    pub(crate) fn is_lost(&self) -> bool {
        let asked = self.set_current().and_then(|()| result::mem_get_info().map(drop));
        asked.is_err_and(is_fatal)
    }

    /// Returns an attribute of the device from the driver.
    pub fn attribute(&self, which: Attribute) -> Result<usize> {
        Ok(self.context.attribute(which).map_err(failed("asking for a limit of the device"))? as usize)
    }

    /// Most bytes of shared memory that a block can have.
    pub(crate) fn max_shared_bytes(&self) -> Result<usize> {
        if let Some(&bytes) = self.max_shared_bytes.get() {
            return Ok(bytes);
        }
        let bytes = self.attribute(Attribute::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN)?;
        Ok(*self.max_shared_bytes.get_or_init(|| bytes))
    }

    /// How many multiprocessors it has.
    pub(crate) fn multiprocessors(&self) -> Result<usize> {
        self.attribute(Attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)
    }

    /// True if launches can begin before the one before has ended: see [`Module::early_kernel`].
    pub fn begins_early(&self) -> bool {
        let DeviceInfo { capability, driver, .. } = &self.info;
        *capability >= EARLY_CAPABILITY && *driver >= EARLY_DRIVER
    }

    /// Makes this device the one that driver calls of the current thread mean.
    pub fn bind(&self) -> Result<()> {
        self.set_current().map_err(failed("binding the device to a thread"))
    }

    /// Makes the context current. cudarc's own function first returns an error that was stored while a
    /// resource was dropped.
    fn set_current(&self) -> Result<(), DriverError> {
        // SAFETY: the context lives as long as this does.
        unsafe { result::ctx::set_current(self.context.cu_ctx()) }
    }

    /// The first error that happened where none could be returned: while something was dropped.
    pub fn check_dropped(&self) -> Result<()> {
        let ours = self.dropped.get().map_or(Ok(()), |error| Err(*error));
        ours.and_then(|()| self.context.check_err()).map_err(failed("freeing what lay on the device"))
    }

    /// Frees a resource while it is dropped. [`Gpu::check_dropped`] reports errors.
    pub fn free(&self, free: impl FnOnce() -> Result<(), DriverError>) {
        let _captures_wait = hold_captures_up();
        // Freed even if the context is lost, so that nothing of the host's is kept.
        if let Err(error) = self.set_current().and(free()) {
            let _ = self.dropped.set(error);
        }
    }
}
