//! Kernels that are loaded, from PTX.

#![expect(
    unsafe_code,
    reason = "the driver's interface is C: addresses without lengths, calls without types"
)]

use std::collections::HashMap;
use std::ffi::{CString, c_int};
use std::sync::Arc;

use cudarc::driver::{CudaContext, result, sys};

use lockon_core::error::Result;

use super::device::Gpu;
use super::error::failed;
use super::graph::hold_captures_up;
use super::memory::Pod;
use super::ptx::Ptx;
use super::stream::Stream;

pub(super) type LoadedModules = HashMap<Ptx, Arc<Loaded>>;

/// A module of the driver. cudarc has a type for it only with its bindings of NVRTC, which is not used here.
pub(super) struct Loaded {
    context: Arc<CudaContext>,
    handle: sys::CUmodule,
}

// SAFETY: the handle names a module of the context, and is not bound to a thread.
unsafe impl Send for Loaded {}
// SAFETY: the driver looks up functions and variables for many threads at once.
unsafe impl Sync for Loaded {}

impl Drop for Loaded {
    fn drop(&mut self) {
        let _captures_wait = hold_captures_up();
        // SAFETY: loaded by `Gpu::load`, and no other code unloads it. Kernels keep it.
        let unloaded = unsafe {
            result::ctx::set_current(self.context.cu_ctx()).and(result::module::unload(self.handle))
        };
        self.context.record_err(unloaded);
    }
}

impl Gpu {
    /// Loads PTX; the driver compiles it, and keeps the result in its cache on disk. Each time it is another
    /// copy, with constant memory of its own: for kernels that need none, [`Self::share`] takes less time.
    pub fn load(&self, ptx: &str) -> Result<Module> {
        self.bind()?;
        let _captures_wait = hold_captures_up();
        let text = c_string(ptx);
        // SAFETY: the context is bound; PTX is text that ends with a 0.
        let handle =
            unsafe { result::module::load_data(text.as_ptr().cast()) }.map_err(failed("loading kernels"))?;
        let module = Arc::new(Loaded { context: self.context.clone(), handle });
        Ok(Module { gpu: self.clone(), module })
    }

    /// PTX that is loaded once for all who ask.
    pub(crate) fn share(&self, ptx: Ptx) -> Result<Module> {
        // Before the other lock: captures take both in this order.
        let _captures_wait = hold_captures_up();
        let mut shared = self.shared.lock();
        let module = if let Some(module) = shared.get(&ptx) {
            module.clone()
        } else {
            let Module { module, .. } = self.load(&ptx.text())?;
            shared.insert(ptx, module.clone());
            module
        };
        Ok(Module { gpu: self.clone(), module })
    }
}

/// Loaded kernels, with `__constant__` memory of their own.
#[derive(Clone)]
pub struct Module {
    gpu: Gpu,
    module: Arc<Loaded>,
}

fn c_string(text: &str) -> CString {
    CString::new(text).expect("no 0 in PTX, nor in a name in it")
}

impl Module {
    /// The kernel of that name, allowed all the shared memory that a block can have.
    pub fn kernel(&self, name: &'static str) -> Result<Kernel> {
        let all = self.gpu.max_shared_bytes()? as c_int;
        let most = sys::CUfunction_attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
        let fixed = sys::CUfunction_attribute::CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES;
        self.gpu.bind()?;
        // SAFETY: the context is bound, and the module lives; so does a function of it.
        let load = || unsafe {
            let function = result::module::get_function(self.module.handle, c_string(name))?;
            let fixed = result::function::get_function_attribute(function, fixed)?;
            result::function::set_function_attribute(function, most, all - fixed)?;
            Ok(function)
        };
        let function = load().map_err(failed("loading a kernel"))?;
        Ok(Kernel { name, function, begins_early: false, _module: self.module.clone() })
    }

    /// As [`Self::kernel`], for a kernel beside which one with much shared memory is to begin: a
    /// multiprocessor divides its memory into cache and shared memory for those that run, and changes that
    /// only when none does.
    pub(crate) fn kernel_beside(&self, name: &'static str) -> Result<Kernel> {
        let kernel = self.kernel(name)?;
        let share = sys::CUfunction_attribute::CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT;
        // SAFETY: the context is bound, and the function lives.
        unsafe { result::function::set_function_attribute(kernel.function, share, 100) }
            .map_err(failed("loading a kernel"))?;
        Ok(kernel)
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
    pub(crate) fn global(&self, name: &str) -> Result<(u64, usize)> {
        self.gpu.bind()?;
        // SAFETY: the context is bound, and the module lives.
        unsafe { result::module::get_global(self.module.handle, c_string(name)) }
            .map_err(failed("looking for a variable"))
    }

    /// Copies `source` to the start of a `__constant__` variable and waits.
    ///
    /// # Panics
    /// If the variable is smaller.
    pub(crate) fn set_constant<T: Pod>(&self, name: &str, source: &[T], stream: &Stream) -> Result<()> {
        let (address, bytes) = self.global(name)?;
        assert!(size_of_val(source) <= bytes, "{} bytes into {name} of {bytes}", size_of_val(source));
        // SAFETY: the variable has room, and the wait below keeps `source` until the copy is done.
        unsafe { result::memcpy_htod_async(address, source, stream.handle()) }
            .map_err(failed("setting a constant"))?;
        stream.wait()
    }
}

/// A function that runs on the device.
#[derive(Clone)]
pub struct Kernel {
    pub(super) name: &'static str,
    pub(super) function: sys::CUfunction,
    pub(super) begins_early: bool,
    /// The function lives as long as its module.
    _module: Arc<Loaded>,
}

// SAFETY: the handle names a function of the context, and is not bound to a thread.
unsafe impl Send for Kernel {}
// SAFETY: the driver may launch a function from many threads at once.
unsafe impl Sync for Kernel {}
