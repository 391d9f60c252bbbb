//! The CUDA driver: devices, memory, copies, kernels. It uses cudarc; the parts that cudarc lacks (launches
//! without allocation, plain pinned memory, copies that never wait) are here, with their `unsafe`.
//!
//! `lockon-bench` uses the `pub` items too: it times kernels and reads textures with the same layer.
//!
//! A [`Gpu`] is an open device; each file adds the functions that create its objects: memory, streams,
//! events, modules.
//!
//! Nothing waits on the device but [`Stream::wait`], [`Event::wait`] and the functions that free device
//! memory. Everything on a [`Stream`] runs in order; the caller orders streams among each other. A call whose
//! work continues after it has returned, and touches memory that Rust or a graph owns, is an `unsafe fn`,
//! which lists the caller's duties. Launchers are safe if a kernel touches device memory only: freeing that
//! waits for the kernel. A piece of a pool (`Gpu::alloc_piece`) is not freed when it is dropped: its
//! owner waits first.

pub use cudarc::driver::sys::CUdevice_attribute as Attribute;

mod device;
mod error;
mod event;
mod graph;
mod memory;
mod module;
mod pool;
mod ptx;
mod stream;
mod texture;

pub use device::{DeviceInfo, Gpu, device, devices, memory_at};
pub use error::{failed, fault};
pub use event::{Event, TimedEvent};
pub use graph::{Graph, hold_captures_up};
pub use memory::{DeviceBuffer, Pinned, PinnedBuffer, Pod};
pub(crate) use memory::{Rows, bytes_of};
pub use module::{Kernel, Module};
pub(crate) use ptx::{Ptx, ptx};
pub(crate) use stream::Mark;
pub use stream::{Priority, Stream, arg};
pub use texture::{Texture, pitch_for};

/// Counts this thread's allocations and waits, for tests: they check that no frame allocates or waits where
/// it must not, and let allocations fail.
#[cfg(test)]
pub(crate) mod counted {
    use std::cell::Cell;
    use std::sync::atomic::{AtomicI64, Ordering};

    use lockon_core::error::{DeviceFault, Result};

    use super::fault;

    thread_local! {
        pub(in super::super) static ALLOCATIONS: Cell<usize> = const { Cell::new(0) };
        pub(in super::super) static WAITS: Cell<usize> = const { Cell::new(0) };
        /// All allocations fail until this is reset.
        pub(in super::super) static IS_FULL: Cell<bool> = const { Cell::new(false) };
    }

    /// Bytes of the device that this process has: other processes do not change it.
    static HELD: AtomicI64 = AtomicI64::new(0);

    /// So many bytes were allocated on the device.
    pub(super) fn taken(bytes: usize) {
        HELD.fetch_add(bytes as i64, Ordering::Relaxed);
    }

    /// So many were given back.
    pub(super) fn given_back(bytes: usize) {
        HELD.fetch_sub(bytes as i64, Ordering::Relaxed);
    }

    /// Bytes of the device that this process has.
    pub(in super::super) fn held() -> i64 {
        HELD.load(Ordering::Relaxed)
    }

    /// # Errors
    /// The error of a host without memory, if a test requested that.
    pub(super) fn allocation(what: &'static str, wanted: usize) -> Result<()> {
        ALLOCATIONS.set(ALLOCATIONS.get() + 1);
        if IS_FULL.get() { Err(fault(DeviceFault::OutOfHostMemory { what, wanted })) } else { Ok(()) }
    }

    pub(super) fn wait() {
        WAITS.set(WAITS.get() + 1);
    }
}
