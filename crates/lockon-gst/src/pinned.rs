//! Buffers in page-locked memory: decoders on the host write into what the device takes frames from, so that
//! nothing copies them in between.
//!
//! A decoder asks downstream what to allocate its pictures with. It is told of this allocator, and makes its
//! own pool of buffers with the padding that it needs.

#![expect(unsafe_code, reason = "an allocator of GStreamer's is a table of functions of C")]

use std::sync::{Arc, OnceLock};

use gst::glib;
use gst::glib::translate::IntoGlibPtr;
use gst::subclass::prelude::ObjectSubclassIsExt;

use lockon_core::surface::{PinnedMemory, SurfaceDevice};

glib::wrapper! {
    /// Allocates page-locked memory, as long as there is some, and then ordinary memory.
    pub struct PinnedAllocator(ObjectSubclass<imp::PinnedAllocator>) @extends gst::Allocator, gst::Object;
}

impl PinnedAllocator {
    /// Memory that this device takes frames from.
    pub fn new(device: Arc<dyn SurfaceDevice>) -> Self {
        let allocator = glib::Object::new::<Self>();
        assert!(allocator.imp().device.set(device).is_ok(), "a new object has none");
        allocator
    }
}

/// Page-locked bytes as GStreamer's memory holds them.
struct Bytes(Box<dyn PinnedMemory>);

impl AsMut<[u8]> for Bytes {
    fn as_mut(&mut self) -> &mut [u8] {
        (*self.0).as_mut()
    }
}

mod imp {
    use super::{Arc, Bytes, IntoGlibPtr, OnceLock, SurfaceDevice, glib};
    use gst::subclass::prelude::*;

    #[derive(Default)]
    pub struct PinnedAllocator {
        pub(super) device: OnceLock<Arc<dyn SurfaceDevice>>,
    }

    #[glib::object_subclass]
    impl ObjectSubclass for PinnedAllocator {
        const NAME: &'static str = "LockonPinnedAllocator";
        type Type = super::PinnedAllocator;
        type ParentType = gst::Allocator;
    }

    impl ObjectImpl for PinnedAllocator {}
    impl GstObjectImpl for PinnedAllocator {}

    // SAFETY: what `alloc` gives is a memory of `gst::Memory::from_mut_slice`, whose own allocator maps and
    // frees it; `free` is never called on this one.
    unsafe impl AllocatorImpl for PinnedAllocator {
        unsafe fn alloc(&self, size: usize, params: &gst::AllocationParams) -> *mut gst::ffi::GstMemory {
            let (prefix, padding) = (params.prefix(), params.padding());
            // Pages are aligned more than decoders ask for.
            let bytes = size.checked_add(prefix).and_then(|bytes| bytes.checked_add(padding));
            let pinned = bytes.zip(self.device.get()).and_then(|(bytes, device)| device.pinned(bytes).ok());
            let Some(pinned) = pinned else {
                // SAFETY: the system's allocator, as if there were none here.
                return unsafe {
                    gst::ffi::gst_allocator_alloc(std::ptr::null_mut(), size, params.as_ptr().cast_mut())
                };
            };
            let mut memory = gst::Memory::from_mut_slice(Bytes(pinned));
            if prefix + padding > 0
                && let Some(memory) = memory.get_mut()
            {
                memory.resize(prefix..prefix + size);
            }
            memory.into_glib_ptr()
        }

        unsafe fn free(&self, memory: *mut gst::ffi::GstMemory) {
            unreachable!("{memory:?} has an allocator of its own");
        }
    }
}
