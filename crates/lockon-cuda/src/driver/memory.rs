//! Memory of the device, and page-locked memory of the host.

#![expect(
    unsafe_code,
    reason = "the driver's interface is C: addresses without lengths, calls without types"
)]

use std::marker::PhantomData;

use cudarc::driver::result::{self, DriverError};
use cudarc::driver::sys::{self, CUresult};

use lockon_core::error::{DeviceFault, Error, Result};

#[cfg(test)]
use super::counted;
use super::device::Gpu;
use super::error::{failed, fault};
use super::graph::hold_captures_up;
use super::pool::{PINNED_SLAB, Pools, SLAB, Size};

/// Plain numbers. Every pattern of bits is a value, so they can be copied to and from a device.
///
/// # Safety
/// The type has no padding, no pointer and no invalid value.
pub unsafe trait Pod: Copy + Send + Sync + 'static {}

macro_rules! pod {
    ($($number:ty),*) => { $(
        // SAFETY: one of Rust's numbers: every pattern of its bits is one.
        unsafe impl Pod for $number {}
    )* };
}

pod!(u8, i8, u16, i16, u32, i32, u64, i64, f32, f64);

// SAFETY: nothing lies between the elements of an array.
unsafe impl<T: Pod, const N: usize> Pod for [T; N] {}

/// The bytes of numbers.
pub(crate) fn bytes_of<T: Pod>(numbers: &[T]) -> &[u8] {
    // SAFETY: they lie there without padding between or within them (`Pod`), and any byte is a `u8`.
    unsafe { std::slice::from_raw_parts(numbers.as_ptr().cast(), size_of_val(numbers)) }
}

/// Kinds of page-locked memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pinned {
    /// Cached by the processor: for results.
    Plain,
    /// Not cached: for uploads.
    WriteCombined,
}

/// Memory of a device. It is freed when dropped, which waits for the work on the device, unless it is a piece
/// of a pool.
pub struct DeviceBuffer<T> {
    gpu: Gpu,
    pub(super) address: sys::CUdeviceptr,
    pub(super) length: usize,
    /// The size, if it is a piece of a pool.
    piece: Option<Size>,
    of: PhantomData<T>,
}

impl<T: Pod> DeviceBuffer<T> {
    /// Number of elements.
    #[expect(clippy::len_without_is_empty, reason = "no code asks whether it is empty")]
    pub fn len(&self) -> usize {
        self.length
    }

    /// Its address, for a kernel.
    pub fn address(&self) -> u64 {
        self.address
    }

    /// The address of element `index`.
    ///
    /// # Panics
    /// If `index` is larger than the number of elements.
    pub(crate) fn address_of(&self, index: usize) -> u64 {
        assert!(index <= self.length, "element {index} of {}", self.length);
        self.address + (index * size_of::<T>()) as u64
    }
}

impl<T> Drop for DeviceBuffer<T> {
    fn drop(&mut self) {
        if let Some(size) = self.piece {
            return self.gpu.pools.device.give(size, self.address);
        }
        #[cfg(test)]
        counted::given_back((self.length * size_of::<T>()).max(1));
        // SAFETY: allocated by `Gpu::alloc`, and no other code has the address; freeing waits for kernels
        // that use it. (What uses a piece is done: see `Gpu::alloc_piece`.)
        self.gpu.free(|| unsafe { result::free_sync(self.address) });
    }
}

/// Page-locked memory of the host, which the device reads and writes in copies and kernels. Starting these is
/// unsafe: the caller keeps the buffer, and does not read or write the parts that the device writes, until
/// the device is done. So it is safe to read and to drop.
pub struct PinnedBuffer<T> {
    gpu: Gpu,
    pub(super) pointer: *mut T,
    pub(super) length: usize,
    /// The size, if it is a piece of a pool.
    piece: Option<Size>,
}

// SAFETY: the buffer owns what the pointer points to, which is not bound to a thread.
unsafe impl<T: Pod> Send for PinnedBuffer<T> {}

// SAFETY: what a shared borrow can do (`len`, `device_address`, `as_slice`) only reads.
unsafe impl<T: Pod> Sync for PinnedBuffer<T> {}

impl<T: Pod> PinnedBuffer<T> {
    /// Number of elements.
    pub(crate) fn len(&self) -> usize {
        self.length
    }

    /// Its address, for a kernel; each access goes through the bus. The caller that launches the kernel keeps
    /// the buffer as for a copy: see [`Stream::launch`].
    pub(crate) fn device_address(&self) -> u64 {
        // Host and device share one space of addresses on all 64-bit systems, write-combined memory included.
        self.pointer as u64
    }

    pub(crate) fn as_slice(&self) -> &[T] {
        // SAFETY: `Gpu::alloc_pinned` allocated `length` elements and set them to 0; every pattern of bits is
        // a value (`Pod`); the caller that let the device write here has waited for it (`Stream::download`,
        // `Stream::launch`).
        unsafe { std::slice::from_raw_parts(self.pointer, self.length) }
    }

    pub(crate) fn as_mut_slice(&mut self) -> &mut [T] {
        // SAFETY: `length` elements are allocated and set, as explained in `as_slice`; the borrow is
        // exclusive on the host, and the caller that lets the device read or write here has waited for it
        // (`Stream::upload`, `Stream::launch`).
        unsafe { std::slice::from_raw_parts_mut(self.pointer, self.length) }
    }
}

impl<T> Drop for PinnedBuffer<T> {
    fn drop(&mut self) {
        if let Some(size) = self.piece {
            return self.gpu.pools.pinned.give(size, self.pointer.expose_provenance() as u64);
        }
        // SAFETY: allocated by `Gpu::alloc_pinned`, and no other code has the pointer. The caller that
        // started a copy or a kernel that touches it has waited for that (`Stream::upload`, `download` and
        // `launch`).
        self.gpu.free(|| unsafe { result::free_host(self.pointer.cast()) });
    }
}

/// A rectangle of bytes in device memory, for copies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Rows {
    /// Address of the first byte.
    pub(crate) address: u64,
    /// Bytes from the start of a row to the start of the next.
    pub(crate) pitch: usize,
}

impl Gpu {
    /// Room for `length` numbers on the device, all 0.
    pub fn alloc<T: Pod>(&self, what: &'static str, length: usize) -> Result<DeviceBuffer<T>> {
        let bytes = (length * size_of::<T>()).max(1);
        #[cfg(test)]
        counted::allocation(what, bytes)?;
        let address = self.allocate(what, bytes)?;
        Ok(DeviceBuffer { gpu: self.clone(), address, length, piece: None, of: PhantomData })
    }

    /// So many bytes of the device, all 0.
    fn allocate(&self, what: &'static str, bytes: usize) -> Result<sys::CUdeviceptr> {
        self.bind()?;
        let _captures_wait = hold_captures_up();
        let no_room = |error| self.no_room(what, bytes, error);
        // SAFETY: the context is bound. The memory set is what was just given, and freed if that fails.
        // Setting it is put into the default stream, which the others do not wait for, so it is waited for
        // here.
        unsafe {
            let address = result::malloc_sync(bytes).map_err(no_room)?;
            let cleared = result::memset_d8_sync(address, 0, bytes)
                .and_then(|()| result::stream::synchronize(std::ptr::null_mut()));
            if cleared.is_err() {
                self.free(|| result::free_sync(address));
            }
            cleared.map_err(failed("clearing device memory"))?;
            #[cfg(test)]
            counted::taken(bytes);
            Ok(address)
        }
    }

    /// Room for `length` numbers of page-locked host memory, all 0, which the device reads and writes
    /// directly.
    ///
    /// Write-combined memory is for what the host only writes: reading it is very slow.
    pub fn alloc_pinned<T: Pod>(
        &self,
        what: &'static str,
        length: usize,
        kind: Pinned,
    ) -> Result<PinnedBuffer<T>> {
        let bytes = (length * size_of::<T>()).max(1);
        #[cfg(test)]
        counted::allocation(what, bytes)?;
        let pointer = self.allocate_pinned(what, bytes, kind)?.cast();
        Ok(PinnedBuffer { gpu: self.clone(), pointer, length, piece: None })
    }

    /// So many bytes of page-locked memory, all 0.
    fn allocate_pinned(&self, what: &'static str, bytes: usize, kind: Pinned) -> Result<*mut u8> {
        self.bind()?;
        let _captures_wait = hold_captures_up();
        let flags = match kind {
            Pinned::Plain => 0,
            Pinned::WriteCombined => sys::CU_MEMHOSTALLOC_WRITECOMBINED,
        };
        // SAFETY: the context is bound. What is written lies within what was just given, which is aligned to
        // a page.
        unsafe {
            let pointer =
                result::malloc_host(bytes, flags).map_err(|error| no_host_room(what, bytes, error))?;
            pointer.cast::<u8>().write_bytes(0, bytes);
            Ok(pointer.cast())
        }
    }

    /// Room for `length` numbers on the device, not initialised: a piece of a pool, unless it is large. It is
    /// for buffers that come with each video or target.
    ///
    /// # Safety
    /// All work that uses it is done when it is dropped: other code gets it then, and nothing waits.
    pub(crate) unsafe fn alloc_piece<T: Pod>(
        &self,
        what: &'static str,
        length: usize,
    ) -> Result<DeviceBuffer<T>> {
        let Some(size) = Size::of::<T>(length) else { return self.alloc(what, length) };
        #[cfg(test)]
        counted::allocation(what, length * size_of::<T>())?;
        let taken = self.pools.device.take(size, SLAB, |bytes| self.allocate(what, bytes));
        let Some(address) = taken? else { return self.alloc(what, length) };
        Ok(DeviceBuffer { gpu: self.clone(), address, length, piece: Some(size), of: PhantomData })
    }

    /// As [`Self::alloc_pinned`], plain, with any numbers in it: a piece of a pool, unless it is large.
    pub(crate) fn alloc_pinned_piece<T: Pod>(
        &self,
        what: &'static str,
        length: usize,
    ) -> Result<PinnedBuffer<T>> {
        let Some(size) = Size::of::<T>(length) else {
            return self.alloc_pinned(what, length, Pinned::Plain);
        };
        #[cfg(test)]
        counted::allocation(what, length * size_of::<T>())?;
        let taken = self.pools.pinned.take(size, PINNED_SLAB, |bytes| {
            Ok(self.allocate_pinned(what, bytes, Pinned::Plain)?.expose_provenance() as u64)
        });
        let Some(address) = taken? else { return self.alloc_pinned(what, length, Pinned::Plain) };
        let pointer = std::ptr::with_exposed_provenance_mut(address as usize);
        Ok(PinnedBuffer { gpu: self.clone(), pointer, length, piece: Some(size) })
    }

    /// True if memory of the host is page-locked, so that copies from it need not be staged.
    pub(crate) fn is_pinned(&self, first: *const u8) -> bool {
        let mut kind: u32 = 0;
        let attribute = sys::CUpointer_attribute::CU_POINTER_ATTRIBUTE_MEMORY_TYPE;
        // SAFETY: the attribute is a number of 32 bits; of memory that the driver does not know it says so.
        let told = self.bind().is_ok()
            && unsafe { sys::cuPointerGetAttribute((&raw mut kind).cast(), attribute, first as u64) }
                .result()
                .is_ok();
        told && kind == sys::CUmemorytype::CU_MEMORYTYPE_HOST as u32
    }

    /// Bytes of the device's memory that are free, and all.
    pub(crate) fn free_and_total(&self) -> Result<(usize, usize), DriverError> {
        self.context.mem_get_info()
    }

    fn no_room(&self, what: &'static str, wanted: usize, error: DriverError) -> Error {
        if error.0 != CUresult::CUDA_ERROR_OUT_OF_MEMORY {
            return failed("allocating memory")(error);
        }
        let (free, total) = self.free_and_total().unwrap_or((0, self.info().memory));
        fault(DeviceFault::OutOfMemory { what, wanted, free, total })
    }
}

/// Frees the memory that pools have cut their pieces from, when a device is closed.
///
/// # Safety
/// The context is current, and no piece is in use.
pub(super) unsafe fn free_slabs(pools: &mut Pools) -> Result<(), DriverError> {
    let device = pools.device.end().into_iter().map(|slab| {
        #[cfg(test)]
        counted::given_back(SLAB);
        // SAFETY: allocated by `allocate`, and not in use, as the caller promises.
        unsafe { result::free_sync(slab) }
    });
    let pinned = pools.pinned.end().into_iter().map(|slab| {
        let pointer = std::ptr::with_exposed_provenance_mut(slab as usize);
        // SAFETY: allocated by `allocate_pinned`, and not in use, as the caller promises.
        unsafe { result::free_host(pointer) }
    });
    device.chain(pinned).fold(Ok(()), Result::and)
}

fn no_host_room(what: &'static str, wanted: usize, error: DriverError) -> Error {
    match error {
        DriverError(CUresult::CUDA_ERROR_OUT_OF_MEMORY) => {
            fault(DeviceFault::OutOfHostMemory { what, wanted })
        }
        error => failed("allocating page-locked memory")(error),
    }
}
