//! Queues of work: copies, and kernels.

#![expect(
    unsafe_code,
    reason = "the driver's interface is C: addresses without lengths, calls without types"
)]

use std::ffi::c_void;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic;
use std::time::{Duration, Instant};

use cudarc::driver::{CudaStream, result, sys};

use lockon_core::error::{DeviceFault, Result};
use lockon_core::frame::{PlaneRef, Size};

#[cfg(test)]
use super::counted;
use super::device::Gpu;
use super::error::{failed, fault, is_fatal, said};
use super::event::Event;
use super::graph::{Quiet, hold_captures_up};
use super::memory::{DeviceBuffer, PinnedBuffer, Pod, Rows};
use super::module::Kernel;

/// Priority of a stream's work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Priority {
    Normal,
    High,
}

/// A queue of work on a device, which runs in order. Clones put work into the same queue.
#[derive(Clone)]
pub struct Stream {
    pub(super) gpu: Gpu,
    pub(super) queue: Quiet<Arc<CudaStream>>,
    /// Kernels that may begin early do.
    overlaps: bool,
}

/// One end of a copy of a rectangle.
#[derive(Clone, Copy)]
struct End {
    kind: sys::CUmemorytype,
    host: *mut c_void,
    device: u64,
    pitch: usize,
}

impl End {
    fn device(Rows { address, pitch }: Rows) -> Self {
        let kind = sys::CUmemorytype::CU_MEMORYTYPE_DEVICE;
        Self { kind, host: std::ptr::null_mut(), device: address, pitch }
    }

    fn host(host: *mut c_void, pitch: usize) -> Self {
        Self { kind: sys::CUmemorytype::CU_MEMORYTYPE_HOST, host, device: 0, pitch }
    }
}

impl Stream {
    pub fn gpu(&self) -> &Gpu {
        &self.gpu
    }

    /// The driver's handle, for calls that are not here.
    pub fn handle(&self) -> sys::CUstream {
        self.queue.cu_stream()
    }

    /// This queue, for launches that all begin when the one before has ended.
    pub fn one_by_one(&self) -> Self {
        Self { overlaps: false, ..self.clone() }
    }

    /// Waits until everything in it is done.
    pub fn wait(&self) -> Result<()> {
        #[cfg(test)]
        counted::wait();
        self.queue.synchronize().map_err(failed("waiting for the device"))
    }

    /// Waits until everything in it is done, without a call that waits: the device writes a number to `mark`,
    /// which this thread reads until it is there. Calls to the driver take turns: with 150 followed streams
    /// the worst one's 99th percentile was 28 and 43 ms with calls that wait, 7 and 16 ms so.
    pub(crate) fn wait_for_mark(&self, mark: &mut Mark) -> Result<()> {
        #[cfg(test)]
        counted::wait();
        self.gpu.bind()?;
        mark.next = mark.next.wrapping_add(1);
        let flags = sys::CUstreamWriteValue_flags::CU_STREAM_WRITE_VALUE_DEFAULT as u32;
        // SAFETY: the mark is page-locked memory, which is kept until the number is written or the stream was
        // waited for, and which the host only reads.
        let asked = unsafe {
            sys::cuStreamWriteValue32_v2(self.handle(), mark.number.device_address(), mark.next, flags)
        };
        if asked.result().is_err() {
            return self.wait();
        }
        let started = Instant::now();
        for turn in 0_u32.. {
            // SAFETY: the number lives; the device may write it while it is read, hence volatile.
            if unsafe { mark.number.pointer.read_volatile() } == mark.next {
                // Earlier writes of the device are visible too.
                atomic::fence(atomic::Ordering::Acquire);
                return Ok(());
            }
            if turn < SPINS {
                std::hint::spin_loop();
            } else if started.elapsed() < LONGEST {
                std::thread::yield_now();
            } else {
                break;
            }
        }
        // It takes long, or has failed.
        self.wait()
    }

    /// Makes all later work in this stream start after `event`.
    pub fn wait_for(&self, event: &Event) -> Result<()> {
        self.queue.wait(&event.handle).map_err(failed("ordering streams"))
    }

    /// Copies the first `length` elements to the device, without waiting.
    ///
    /// # Safety
    /// Until the copy is done (known from a wait for this stream or for a later event in it):
    /// - `source` is not dropped,
    /// - the elements are not written.
    ///
    /// # Panics
    /// If either has fewer elements.
    pub unsafe fn upload<T: Pod>(
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

    /// Copies elements to the same places on the device, without waiting.
    ///
    /// # Safety
    /// As [`Self::upload`], of these elements.
    ///
    /// # Panics
    /// If either has fewer elements.
    pub(crate) unsafe fn upload_range<T: Pod>(
        &self,
        source: &PinnedBuffer<T>,
        to: &mut DeviceBuffer<T>,
        range: Range<usize>,
    ) -> Result<()> {
        let room = source.length.min(to.length);
        assert!(range.start <= range.end && range.end <= room, "upload of {range:?} of {room} elements");
        self.gpu.bind()?;
        let bytes = range.len() * size_of::<T>();
        // SAFETY: both ends have these elements, as asserted. The caller keeps `source`; freeing `to` waits
        // for the copy.
        unsafe {
            let from = source.pointer.add(range.start).cast();
            sys::cuMemcpyHtoDAsync_v2(to.address_of(range.start), from, bytes, self.handle())
        }
        .result()
        .map_err(failed("uploading"))
    }

    /// Copies `length` elements from element `from` on to the start of `to`, without waiting.
    ///
    /// # Safety
    /// Until the copy is done (known from a wait for this stream or for a later event in it):
    /// - `to` is not dropped,
    /// - it is neither read nor written by the host.
    ///
    /// # Panics
    /// If either has fewer elements.
    pub unsafe fn download<T: Pod>(
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

    /// Copies a plane of the host to the device, without waiting if it lies in page-locked memory.
    ///
    /// # Safety
    /// - As many rows of as many bytes, `to.pitch` apart, lie in a live allocation of this device from
    ///   `to.address` on,
    /// - until the copy is done (known from a wait for this stream or for a later event in it), the plane is
    ///   kept, and no code writes to it.
    pub(crate) unsafe fn upload_rows(&self, plane: PlaneRef<'_>, to: Rows) -> Result<()> {
        let Size { width, height } = plane.size();
        let from = End::host(plane.first_byte().cast_mut().cast(), plane.stride());
        // SAFETY: a `PlaneRef` has its rows, which are only read; the rest is the caller's.
        unsafe { self.copy_2d(from, End::device(to), [width, height], "uploading") }
    }

    /// Copies to the device and waits.
    pub fn upload_now<T: Pod>(&self, source: &[T], to: &mut DeviceBuffer<T>) -> Result<()> {
        assert!(source.len() <= to.length, "upload of {} elements into {}", source.len(), to.length);
        self.gpu.bind()?;
        // SAFETY: the buffer has room, and the wait below keeps `source` until the copy is done.
        unsafe { result::memcpy_htod_async(to.address, source, self.handle()) }
            .map_err(failed("uploading"))?;
        self.wait()
    }

    /// Copies from the device and waits.
    pub fn download_now<T: Pod>(&self, source: &DeviceBuffer<T>, to: &mut [T]) -> Result<()> {
        assert!(to.len() <= source.length, "download of {} elements from {}", to.len(), source.length);
        self.gpu.bind()?;
        // SAFETY: the buffer has as many, and the wait below keeps `to` until the copy is done.
        unsafe { result::memcpy_dtoh_async(to, source.address, self.handle()) }
            .map_err(failed("reading back"))?;
        self.wait()
    }

    /// Copies a rectangle of `[width, height]` bytes, without waiting for page-locked memory or the device.
    ///
    /// # Safety
    /// As many rows of as many bytes lie at both ends, and are kept as [`Self::upload`], [`Self::download`]
    /// and [`Self::copy_rows`] ask.
    unsafe fn copy_2d(
        &self,
        from: End,
        to: End,
        [width, height]: [usize; 2],
        doing: &'static str,
    ) -> Result<()> {
        self.gpu.bind()?;
        let copy = sys::CUDA_MEMCPY2D {
            srcXInBytes: 0,
            srcY: 0,
            srcMemoryType: from.kind,
            srcHost: from.host,
            srcDevice: from.device,
            srcArray: std::ptr::null_mut(),
            srcPitch: from.pitch,
            dstXInBytes: 0,
            dstY: 0,
            dstMemoryType: to.kind,
            dstHost: to.host,
            dstDevice: to.device,
            dstArray: std::ptr::null_mut(),
            dstPitch: to.pitch,
            WidthInBytes: width,
            Height: height,
        };
        // SAFETY: the rectangles are the caller's; all of the description is set.
        unsafe { sys::cuMemcpy2DAsync_v2(&raw const copy, self.handle()) }.result().map_err(failed(doing))
    }

    /// Copies `height` rows of `width` bytes within the device.
    ///
    /// # Safety
    /// - `height` rows of `width` bytes, `from.pitch` apart, lie in a live allocation of this device from
    ///   `from.address` on,
    /// - and so they do in another, `to.pitch` apart, from `to.address` on.
    ///
    /// Neither need be kept, unless it is a piece of a pool: freeing it waits for the copy.
    pub(crate) unsafe fn copy_rows(&self, from: Rows, to: Rows, width: usize, height: usize) -> Result<()> {
        // SAFETY: the rectangles are the caller's.
        unsafe {
            self.copy_2d(End::device(from), End::device(to), [width, height], "copying within the device")
        }
    }

    /// Copies `height` rows of `width` bytes to the start of `to`, where they lie without gaps, without
    /// waiting.
    ///
    /// # Safety
    /// - `height` rows of `width` bytes, `from.pitch` apart, lie in a live allocation of this device from
    ///   `from.address` on,
    /// - for `to`, the requirements of [`Self::download`] hold.
    ///
    /// # Panics
    /// If there is no room for them.
    pub(crate) unsafe fn download_rows(
        &self,
        from: Rows,
        to: &mut PinnedBuffer<u8>,
        width: usize,
        height: usize,
    ) -> Result<()> {
        assert!(width * height <= to.length, "download of {width} x {height} bytes into {}", to.length);
        let to = End::host(to.pointer.cast(), width);
        // SAFETY: the rows are the caller's, and there is room for them, as asserted.
        unsafe { self.copy_2d(End::device(from), to, [width, height], "reading back") }
    }

    /// Copies `height` rows of `width` bytes from memory of another context, of whatever device, without
    /// waiting.
    ///
    /// # Safety
    /// As [`Self::copy_rows`], with `from` in the context of that handle; and that memory is kept until the
    /// copy is done.
    pub(crate) unsafe fn copy_rows_from(
        &self,
        context: usize,
        from: Rows,
        to: Rows,
        width: usize,
        height: usize,
    ) -> Result<()> {
        self.gpu.bind()?;
        let copy = sys::CUDA_MEMCPY3D_PEER {
            srcXInBytes: 0,
            srcY: 0,
            srcZ: 0,
            srcLOD: 0,
            srcHost: std::ptr::null(),
            srcArray: std::ptr::null_mut(),
            dstXInBytes: 0,
            dstY: 0,
            dstZ: 0,
            dstLOD: 0,
            dstHost: std::ptr::null_mut(),
            dstArray: std::ptr::null_mut(),
            srcMemoryType: sys::CUmemorytype::CU_MEMORYTYPE_DEVICE,
            srcDevice: from.address,
            srcContext: context as sys::CUcontext,
            srcPitch: from.pitch,
            srcHeight: height,
            dstMemoryType: sys::CUmemorytype::CU_MEMORYTYPE_DEVICE,
            dstDevice: to.address,
            dstContext: self.gpu.handle(),
            dstPitch: to.pitch,
            dstHeight: height,
            WidthInBytes: width,
            Height: height,
            Depth: 1,
        };
        // SAFETY: the rows are the caller's.
        unsafe { sys::cuMemcpy3DPeerAsync(&raw const copy, self.handle()) }
            .result()
            .map_err(failed("copying from another context"))
    }

    /// Sets the first `length` elements to bytes of 0.
    pub fn clear<T: Pod>(&self, buffer: &mut DeviceBuffer<T>, length: usize) -> Result<()> {
        assert!(length <= buffer.length, "clearing {length} elements of {}", buffer.length);
        self.gpu.bind()?;
        // SAFETY: the buffer has so many elements.
        unsafe { result::memset_d8_async(buffer.address, 0, length * size_of::<T>(), self.handle()) }
            .map_err(failed("clearing device memory"))
    }

    /// Sets all bytes of a buffer.
    #[cfg(test)]
    pub(crate) fn fill<T: Pod>(&self, buffer: &mut DeviceBuffer<T>, byte: u8) -> Result<()> {
        self.gpu.bind()?;
        // SAFETY: the buffer has so many bytes.
        unsafe {
            result::memset_d8_async(buffer.address, byte, buffer.length * size_of::<T>(), self.handle())
        }
        .map_err(failed("filling device memory"))
    }

    /// Starts a kernel that takes nothing.
    #[cfg(test)]
    pub(crate) fn launch_without_arguments(&self, kernel: &Kernel, threads: usize) -> Result<()> {
        // SAFETY: the tests' kernels of no parameters take nothing, and touch no memory.
        unsafe { self.launch(kernel, [1; 3], [threads, 1, 1], 0, &mut []) }
    }

    /// Starts a kernel, without waiting.
    ///
    /// # Safety
    /// - `args` begins with what the kernel takes, in its order and of its types,
    /// - what the kernel reads and writes with them lies in allocations that live now; of device memory that
    ///   is enough, since freeing it waits for the kernel (pieces of a pool are kept until it is done),
    /// - page-locked memory that the kernel touches is kept until it is done, and by then neither read nor
    ///   written by the host.
    pub unsafe fn launch(
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
        // SAFETY: the arguments are the caller's; `early` lives until the call returns; a kernel begins early
        // only if `Module::early_kernel` made it.
        unsafe {
            sys::cuLaunchKernelEx(&raw const config, kernel.function, args.as_mut_ptr(), std::ptr::null_mut())
        }
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

/// A number that the device writes when it has done the work before it.
pub(crate) struct Mark {
    number: PinnedBuffer<u32>,
    next: u32,
}

/// Reads of a mark before others may have the processor in between, and how long it is read at most.
const SPINS: u32 = 2_000;
const LONGEST: Duration = Duration::from_millis(20);

impl Gpu {
    /// A mark for [`Stream::wait_for_mark`].
    pub(crate) fn mark(&self) -> Result<Mark> {
        let mut number = self.alloc_pinned_piece("a mark", 1)?;
        // The one before may have left the number that is waited for first.
        number.as_mut_slice()[0] = 0;
        Ok(Mark { number, next: 0 })
    }

    /// A queue of work. Those of high priority come before the others where both could run.
    pub fn stream(&self, priority: Priority) -> Result<Stream> {
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
}

/// One argument of a kernel: an address of a number that lives until the launch returns.
pub fn arg<T: Pod>(value: &T) -> *mut c_void {
    std::ptr::from_ref(value).cast_mut().cast()
}

#[cfg(test)]
mod tests {
    use crate::testing;

    use super::*;

    #[test]
    fn a_mark_in_memory_of_another_one_is_not_there_before_its_work() {
        let Some(gpu) = testing::gpu() else { return };
        let stream = gpu.stream(Priority::High).unwrap();
        // Each has the memory of the one before, most of the time.
        for _ in 0..20 {
            let mut mark = gpu.mark().unwrap();
            assert_eq!(mark.number.as_slice()[0], 0);
            stream.wait_for_mark(&mut mark).unwrap();
            assert_eq!(mark.number.as_slice()[0], 1);
        }
    }

    #[test]
    fn what_was_copied_is_there_when_the_mark_is() {
        let Some(gpu) = testing::gpu() else { return };
        let stream = gpu.stream(Priority::High).unwrap();
        let mut mark = gpu.mark().unwrap();
        // Some copies take longer than the mark is read.
        for length in [1, 1000, 1 << 20, 1 << 28] {
            let mut there = gpu.alloc::<u8>("bytes", length).unwrap();
            let mut here = gpu.alloc_pinned_piece::<u8>("bytes", length).unwrap();
            for value in 1..4 {
                stream.fill(&mut there, value).unwrap();
                // SAFETY: the mark is waited for before `here` is read or dropped.
                unsafe { stream.download(&there, 0, &mut here, length).unwrap() };
                stream.wait_for_mark(&mut mark).unwrap();
                assert!(here.as_slice().iter().all(|&byte| byte == value), "{length} bytes of {value}");
            }
        }
    }
}
