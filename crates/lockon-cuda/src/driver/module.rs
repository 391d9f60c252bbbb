//! Kernels that are loaded, from PTX.

#![expect(
    unsafe_code,
    reason = "the driver's interface is C: addresses without lengths, calls without types"
)]

use std::collections::HashMap;
use std::ffi::c_int;
use std::sync::Arc;

use cudarc::driver::{CudaFunction, CudaModule, result, sys};
use cudarc::nvrtc::Ptx;

use lockon_core::error::Result;
use lockon_core::locks::lock;

use super::device::Gpu;
use super::error::failed;
use super::graph::{Quiet, hold_captures_up};
use super::memory::Pod;
use super::stream::Stream;

/// Modules by their PTX.
pub(super) type LoadedModules = HashMap<&'static str, Quiet<Arc<CudaModule>>>;

impl Gpu {
    /// Loads PTX; the driver compiles it, and keeps the result in its cache on disk. Each time it is another
    /// copy, with constant memory of its own: for kernels that need none, [`Self::share`] takes less time.
    pub(crate) fn load(&self, ptx: &str) -> Result<Module> {
        let _captures_wait = hold_captures_up();
        let module = self.context.load_module(Ptx::from_src(ptx)).map_err(failed("loading kernels"))?;
        Ok(Module { gpu: self.clone(), module: Quiet::new(module) })
    }

    /// PTX that is loaded once for all who ask.
    pub(crate) fn share(&self, ptx: &'static str) -> Result<Module> {
        // Before the other lock: captures take both in this order.
        let _captures_wait = hold_captures_up();
        let mut shared = lock(&self.shared);
        let module = if let Some(module) = shared.get(ptx) {
            module.clone()
        } else {
            let Module { module, .. } = self.load(ptx)?;
            shared.insert(ptx, module.clone());
            module
        };
        Ok(Module { gpu: self.clone(), module })
    }
}

/// Loaded kernels, with `__constant__` memory of their own.
#[derive(Clone)]
pub(crate) struct Module {
    gpu: Gpu,
    module: Quiet<Arc<CudaModule>>,
}

impl Module {
    /// The kernel of that name, allowed all the shared memory that a block can have.
    pub(crate) fn kernel(&self, name: &'static str) -> Result<Kernel> {
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

    /// As [`Self::kernel`], for a kernel whose launches begin before the one before has ended, where the
    /// device and its driver can do that.
    ///
    /// # Safety
    /// - the kernel keeps to what `kernels/launches.cuh` asks of kernels that begin early,
    /// - the module is compiled for compute capability 9.0.
    pub(crate) unsafe fn early_kernel(&self, name: &'static str) -> Result<Kernel> {
        Ok(Kernel { begins_early: self.gpu.begins_early(), ..self.kernel(name)? })
    }

    /// Address and bytes of a `__constant__` or `__device__` variable.
    pub(crate) fn global(&self, name: &str, stream: &Stream) -> Result<(u64, usize)> {
        use cudarc::driver::DevicePtr;
        let view = self.module.get_global(name, &stream.queue).map_err(failed("looking for a variable"))?;
        let (address, _not_tracked) = view.device_ptr(&stream.queue);
        Ok((address, view.len()))
    }

    /// Copies `source` to the start of a `__constant__` variable and waits.
    ///
    /// # Panics
    /// If the variable is smaller.
    pub(crate) fn set_constant<T: Pod>(&self, name: &str, source: &[T], stream: &Stream) -> Result<()> {
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
pub(crate) struct Kernel {
    pub(super) name: &'static str,
    pub(super) function: Quiet<CudaFunction>,
    pub(super) begins_early: bool,
}
