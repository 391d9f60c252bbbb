//! GStreamer's CUDA memory: pictures that NVIDIA's decoders leave on a device.
//!
//! GStreamer has a library for it, libgstcuda, which is opened at run time and never linked: it is not
//! everywhere, and from 1.22 to 1.24 one of its functions changed its arguments under the same name. The
//! functions called here are the same in all versions.
//!
//! All pipelines of a process work in one CUDA context, that of [`SurfaceDevice`]: several contexts take
//! turns on a device, and memory of one is nothing to kernels in another.
//!
//! Until 1.22 an arriving picture is complete. From 1.24 on a stream, which the memory names, may still write
//! it.

#![expect(unsafe_code, reason = "libgstcuda is a library of C that has no bindings")]

use std::any::Any;
use std::ffi::{CStr, c_int, c_uint, c_void};
use std::fmt;
use std::sync::{Arc, OnceLock};

use gst::ffi;
use gst::glib;
use gst::glib::translate::from_glib_full;
use libloading::Library;

use crate::pinned::PinnedAllocator;
use lockon_core::device_memory::{DeviceMemory, DevicePlane, SurfaceDevice};
use lockon_core::error::Result;
use lockon_core::frame::{Picture, VideoFormat};
use lockon_core::locks::Ranked;
use lockon_core::overlay::Drawing;

/// The type of context that CUDA elements ask for.
pub const CONTEXT: &str = "gst.cuda.context";

/// The feature of caps whose pictures lie on a device.
pub const FEATURE: &str = "memory:CUDAMemory";

/// The library's file.
pub const LIBRARY: &str = "libgstcuda-1.0.so.0";

/// The name of its memory.
const MEMORY: &CStr = c"gst.cuda.memory";

/// `GST_MAP_CUDA`: maps the device's address.
const MAP_CUDA: c_uint = ffi::GST_MAP_FLAG_LAST << 1;

/// The beginning of `GstCudaMemory`, which is the same in all versions.
#[repr(C)]
struct CudaMemory {
    memory: ffi::GstMemory,
    context: *mut c_void,
}

/// The functions of libgstcuda that lockon calls.
struct Functions {
    /// A `GstCudaContext` of a driver's context, which lives longer.
    wrap: unsafe extern "C" fn(*mut c_void, c_int) -> *mut c_void,
    /// A `GstContext` of it.
    context: unsafe extern "C" fn(*mut c_void) -> *mut ffi::GstContext,
    /// The driver's context.
    handle: unsafe extern "C" fn(*mut c_void) -> *mut c_void,
    /// The stream that a memory is being written in, from 1.24 on, and the driver's handle of it.
    stream: Option<unsafe extern "C" fn(*mut CudaMemory) -> *mut c_void>,
    stream_handle: Option<unsafe extern "C" fn(*mut c_void) -> *mut c_void>,
}

/// libgstcuda, if it is there and has found the driver.
fn library() -> Option<&'static Functions> {
    static FUNCTIONS: OnceLock<Option<Functions>> = OnceLock::new();
    FUNCTIONS
        .get_or_init(|| {
            let opened = Functions::open();
            if let Err(error) = &opened {
                tracing::debug!("no CUDA memory: {error}");
            }
            opened.ok()
        })
        .as_ref()
}

/// True if frames can stay on a device: libgstcuda is there, and has found the driver.
pub fn is_usable() -> bool {
    library().is_some()
}

impl Functions {
    fn open() -> std::result::Result<Self, String> {
        // SAFETY: the library is GStreamer's own, and what it runs when it is opened is harmless. It stays
        // open. The functions have had these arguments since 1.22, where they became public; before that
        // there is no such library.
        unsafe {
            let library = Library::new(LIBRARY).map_err(|error| error.to_string())?;
            let library: &'static Library = Box::leak(Box::new(library));
            let load: unsafe extern "C" fn() -> glib::ffi::gboolean =
                symbol(library, "gst_cuda_load_library")?;
            let init: unsafe extern "C" fn() = symbol(library, "gst_cuda_memory_init_once")?;
            if load() == glib::ffi::GFALSE {
                return Err("libgstcuda found no driver".into());
            }
            init();
            Ok(Self {
                wrap: symbol(library, "gst_cuda_context_new_wrapped")?,
                context: symbol(library, "gst_context_new_cuda_context")?,
                handle: symbol(library, "gst_cuda_context_get_handle")?,
                stream: symbol(library, "gst_cuda_memory_get_stream").ok(),
                stream_handle: symbol(library, "gst_cuda_stream_get_handle").ok(),
            })
        }
    }
}

/// A function of the library.
///
/// # Safety
/// It has the type `T`.
unsafe fn symbol<T: Copy>(library: &'static Library, name: &str) -> std::result::Result<T, String> {
    // SAFETY: the caller knows the type.
    unsafe { library.get::<T>(name).map(|found| *found) }.map_err(|error| error.to_string())
}

/// Requests a device. The answer may take as long as the driver takes to open it.
type Ask = dyn Fn() -> Option<Arc<dyn SurfaceDevice>> + Send + Sync;

/// The device that decoders may leave their pictures on, if there is one.
#[derive(Clone, Default)]
pub struct Surfaces(Option<Arc<Ask>>);

impl Surfaces {
    /// The device that `ask` gives, once it is known.
    pub fn new(ask: impl Fn() -> Option<Arc<dyn SurfaceDevice>> + Send + Sync + 'static) -> Self {
        Self(Some(Arc::new(ask)))
    }

    /// True if pictures may stay there, and GStreamer can leave them there.
    pub fn are_usable(&self) -> bool {
        self.0.is_some() && is_usable()
    }

    /// The device, if decoders can leave pictures there; waits until it is open.
    fn device(&self) -> Option<Arc<dyn SurfaceDevice>> {
        self.0.as_ref().filter(|_| is_usable()).and_then(|ask| ask())
    }

    /// Offers page-locked memory to a decoder on the host, from which the device takes pictures without a
    /// copy, unless another element has offered memory. Waits until the device is open.
    pub fn offer_pinned_memory(&self, query: &mut gst::query::Allocation) {
        let is_taken = query.allocation_params().any(|(allocator, _)| allocator.is_some());
        let params = query.allocation_params().next().map(|(_, params)| params);
        let (caps, _) = query.get();
        let is_on_device = caps.and_then(|caps| caps.features(0)).is_some_and(|f| f.contains(FEATURE));
        if is_taken || is_on_device {
            return;
        }
        let Some(device) = self.0.as_ref().and_then(|ask| ask()) else { return };
        let allocator = PinnedAllocator::new(device);
        match params {
            // Downstream's other requirements for memory are kept; only the allocator is replaced.
            Some(params) => query.set_nth_allocation_param(0, Some(&allocator), params),
            None => query.add_allocation_param(Some(&allocator), gst::AllocationParams::default()),
        }
    }

    /// Paints the drawing into a buffer on the device; false if the buffer is not there.
    ///
    /// # Errors
    /// `Backend` if the device fails.
    pub fn paint(
        &self,
        buffer: &mut gst::BufferRef,
        info: &gst_video::VideoInfo,
        format: &VideoFormat,
        drawing: &Drawing,
    ) -> Result<bool> {
        let Some(device) = self.0.as_ref().filter(|_| is_on_device(buffer)).and_then(|ask| ask()) else {
            return Ok(false);
        };
        let Some(mut map) = MappedForPainting::new(buffer) else { return Ok(false) };
        // SAFETY: the buffer is borrowed for writing, and mapped for that, until `map` is dropped; painting
        // is over by then.
        let memory = unsafe { map.memory(info) };
        memory.map_or(Ok(false), |memory| device.paint(&memory, format, drawing))
    }

    /// The context for decoders, for [`gst::prelude::ElementExt::set_context`].
    pub fn context(&self) -> Option<gst::Context> {
        context_of(&self.device()?)
    }

    /// The device's number among those that CUDA counts.
    pub(crate) fn gpu(&self) -> Option<u32> {
        self.device().and_then(|device| device.context().1.try_into().ok())
    }

    /// The picture in a buffer, if it lies on a device and there is one here to read it. One on another
    /// device is copied.
    ///
    /// # Errors
    /// `Backend` if the device cannot take it.
    pub fn adopt(
        &self,
        buffer: &gst::Buffer,
        info: &gst_video::VideoInfo,
        format: &VideoFormat,
    ) -> Result<Option<Arc<dyn Picture>>> {
        if !is_on_device(buffer) {
            return Ok(None);
        }
        let Some(device) = self.device() else { return Ok(None) };
        memory_of(buffer, info).map(|memory| device.adopt(memory, format)).transpose()
    }
}

impl fmt::Debug for Surfaces {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Surfaces").field(&self.0.is_some()).finish()
    }
}

/// True if a buffer's pixels lie on a device.
pub fn is_on_device(buffer: &gst::BufferRef) -> bool {
    buffer.n_memory() == 1 && {
        // SAFETY: the memory belongs to the buffer, which is borrowed.
        unsafe {
            ffi::gst_memory_is_type(buffer.peek_memory(0).as_mut_ptr(), MEMORY.as_ptr()) != glib::ffi::GFALSE
        }
    }
}

/// GStreamer's contexts of devices. A device with a context stays open: a decoder may keep objects of it
/// longer than lockon does.
static KNOWN: Ranked<Vec<(Arc<dyn SurfaceDevice>, gst::Context)>, 110> = Ranked::new(Vec::new());

/// Removes devices that have failed for good, so that they can be opened again.
pub fn forget_lost() {
    KNOWN.lock().retain(|(device, _)| !device.is_lost());
}

/// GStreamer's context of a device: one for all pipelines.
fn context_of(device: &Arc<dyn SurfaceDevice>) -> Option<gst::Context> {
    let functions = library()?;
    let (handle, number) = device.context();
    let mut known = KNOWN.lock();
    if let Some((_, context)) = known.iter().find(|(device, _)| device.context().0 == handle) {
        return Some(context.clone());
    }
    // SAFETY: the driver's context lives as long as `device`, which `known` keeps until nothing works
    // there. What comes back is null or ours.
    let context = unsafe {
        let wrapped = (functions.wrap)(handle as *mut c_void, number);
        if wrapped.is_null() {
            return None;
        }
        let context = (functions.context)(wrapped);
        glib::gobject_ffi::g_object_unref(wrapped.cast());
        from_glib_full::<_, gst::Context>(context)
    };
    known.push((device.clone(), context.clone()));
    Some(context)
}

/// A buffer that is mapped on its device, for as long as this lives.
struct Mapped {
    buffer: gst::Buffer,
    info: ffi::GstMapInfo,
}

// SAFETY: a map of memory is not bound to a thread, and it is only used to end it.
unsafe impl Send for Mapped {}
// SAFETY: nothing can be done with a borrow of it.
unsafe impl Sync for Mapped {}

impl Drop for Mapped {
    fn drop(&mut self) {
        // SAFETY: the buffer keeps the memory, which was mapped with this information.
        unsafe { ffi::gst_memory_unmap(self.buffer.peek_memory(0).as_mut_ptr(), &raw mut self.info) };
    }
}

/// A buffer that is mapped on its device to be painted into.
struct MappedForPainting<'a> {
    buffer: &'a mut gst::BufferRef,
    info: ffi::GstMapInfo,
}

impl<'a> MappedForPainting<'a> {
    fn new(buffer: &'a mut gst::BufferRef) -> Option<Self> {
        let flags = ffi::GST_MAP_READ | ffi::GST_MAP_WRITE | MAP_CUDA;
        // SAFETY: the buffer is borrowed for writing. A map that succeeds has filled the information; where
        // others share the memory, GStreamer maps a copy.
        unsafe {
            let mut info = std::mem::zeroed::<ffi::GstMapInfo>();
            let is_mapped = ffi::gst_buffer_map(buffer.as_mut_ptr(), &raw mut info, flags);
            (is_mapped != glib::ffi::GFALSE).then_some(Self { buffer, info })
        }
    }

    /// Where its planes lie.
    ///
    /// # Safety
    /// It is dropped before `self`.
    unsafe fn memory(&mut self, info: &gst_video::VideoInfo) -> Option<DeviceMemory> {
        // SAFETY: the map's memory is that of the buffer, which is CUDA memory.
        unsafe {
            describe(library()?, self.info.memory, self.info.data as u64, self.buffer, info, Box::new(()))
        }
    }
}

impl Drop for MappedForPainting<'_> {
    fn drop(&mut self) {
        // SAFETY: mapped by `new`, with this information.
        unsafe { ffi::gst_buffer_unmap(self.buffer.as_mut_ptr(), &raw mut self.info) };
    }
}

/// Returns where a buffer's picture lies on its device; `None` if it cannot be mapped there.
fn memory_of(buffer: &gst::Buffer, info: &gst_video::VideoInfo) -> Option<DeviceMemory> {
    let functions = library()?;
    let memory = buffer.peek_memory(0).as_mut_ptr();
    // SAFETY: the memory is GStreamer's CUDA memory, as `adopt` has seen, and the buffer is borrowed. A map
    // that succeeds has filled the information; `Mapped` ends it.
    let mapped = unsafe {
        let mut map = std::mem::zeroed::<ffi::GstMapInfo>();
        if ffi::gst_memory_map(memory, &raw mut map, ffi::GST_MAP_READ | MAP_CUDA) == glib::ffi::GFALSE {
            return None;
        }
        Mapped { buffer: buffer.clone(), info: map }
    };
    let address = mapped.info.data as u64;
    // SAFETY: the memory is CUDA memory, and is kept mapped for reading, so that its pool does not have it
    // back.
    unsafe { describe(functions, memory, address, buffer, info, Box::new(mapped)) }
}

/// Where the planes of a buffer's picture lie, whose memory is mapped at `address`.
///
/// # Safety
/// It is CUDA memory, and stays mapped as long as `keeper` lives.
unsafe fn describe(
    functions: &Functions,
    memory: *mut ffi::GstMemory,
    address: u64,
    buffer: &gst::BufferRef,
    info: &gst_video::VideoInfo,
    keeper: Box<dyn Any + Send + Sync>,
) -> Option<DeviceMemory> {
    let (offsets, strides) = match buffer.meta::<gst_video::VideoMeta>() {
        Some(meta) => (meta.offset().to_vec(), meta.stride().to_vec()),
        None => (info.offset().to_vec(), info.stride().to_vec()),
    };
    let plane = |(offset, stride): (usize, i32)| {
        Some(DevicePlane { address: address + offset as u64, stride: usize::try_from(stride).ok()? })
    };
    let planes = offsets.into_iter().zip(strides).map(plane).collect::<Option<_>>()?;
    // SAFETY: the structure begins so in all versions, and its context lives as long as the memory. The
    // stream does too, where the memory has one. Planes lie where the buffer's own description says.
    unsafe {
        let cuda = memory.cast::<CudaMemory>();
        let context = (functions.handle)((*cuda).context) as usize;
        let stream = functions.stream.map(|stream_of| stream_of(cuda)).filter(|stream| !stream.is_null());
        let stream =
            functions.stream_handle.zip(stream).map(|(handle_of, stream)| handle_of(stream) as usize);
        let memory = DeviceMemory::new(context, planes, stream, keeper);
        Some(if info.comp_depth(0) > 8 { memory.with_wide_samples() } else { memory })
    }
}

/// Returns the caps whose pictures lie in the host's memory.
pub fn without_device_memory(caps: &gst::Caps) -> gst::Caps {
    if caps.is_any() {
        return caps.clone();
    }
    let on_host = |features: &gst::CapsFeaturesRef| !features.contains(FEATURE);
    let kept = caps.iter_with_features().filter(|(_, features)| on_host(features));
    kept.map(|(structure, features)| (structure.to_owned(), features.to_owned())).collect()
}

/// Answers an element's question for a context with that of the device; false if it asks for another.
pub fn answer_context_query(query: &mut gst::query::Context, surfaces: &Surfaces) -> bool {
    if query.context_type() != CONTEXT {
        return false;
    }
    match surfaces.context() {
        Some(context) => {
            query.set_context(&context);
            true
        }
        None => false,
    }
}
