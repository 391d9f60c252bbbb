//! Buffers in page-locked memory: decoders on the host write where the device reads frames, so that nothing
//! copies them in between.
//!
//! A decoder asks downstream for an allocator for its pictures. The answer is this allocator; the decoder
//! makes its own pool of buffers with the padding that it needs.
//!
//! Decoders of `FFmpeg` keep their pictures mapped for writing, since others refer to them, and GStreamer
//! hands such a picture on as a copy. A copy of a memory is allocated by the memory's own allocator, so a
//! picture lies in page-locked memory only if its memory is this allocator's, not one that wraps some bytes.

#![expect(unsafe_code, reason = "an allocator of GStreamer's is a table of functions of C")]

use std::sync::{Arc, OnceLock};

use gst::glib;
use gst::subclass::prelude::ObjectSubclassIsExt;

use lockon_core::device_memory::SurfaceDevice;

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

mod imp {
    use std::ffi::CStr;
    use std::ptr;

    use super::{Arc, OnceLock, SurfaceDevice, glib};
    use gst::ffi;
    use gst::glib::object::ObjectType;
    use gst::subclass::prelude::*;
    use lockon_core::device_memory::PinnedMemory;
    use lockon_core::locks::Ranked;

    /// The name of this type of memory.
    const MEMORY: &CStr = c"lockon.pinned";

    /// A memory of this allocator.
    #[repr(C)]
    struct Memory {
        base: ffi::GstMemory,
        /// The first byte of all.
        first: *mut u8,
        /// All bytes; a part of another memory has none of its own.
        block: Option<Block>,
    }

    type Block = Box<dyn PinnedMemory>;

    #[derive(Default)]
    pub struct PinnedAllocator {
        pub(super) device: OnceLock<Arc<dyn SurfaceDevice>>,
        /// Blocks that were given back, all of about one length: to page-lock one takes milliseconds.
        spare: Ranked<Vec<Block>, 110>,
    }

    #[glib::object_subclass]
    impl ObjectSubclass for PinnedAllocator {
        const NAME: &'static str = "LockonPinnedAllocator";
        type Type = super::PinnedAllocator;
        type ParentType = gst::Allocator;
    }

    impl ObjectImpl for PinnedAllocator {
        fn constructed(&self) {
            self.parent_constructed();
            // SAFETY: no other code knows the new allocator, which begins with this structure.
            let functions = unsafe { &mut *self.as_ptr() };
            functions.mem_type = MEMORY.as_ptr();
            functions.mem_map = Some(map);
            functions.mem_unmap = Some(unmap);
            functions.mem_share = Some(share);
        }
    }

    impl GstObjectImpl for PinnedAllocator {}

    // SAFETY: `alloc` gives a memory that begins with GStreamer's own structure, initialised, and `free` is
    // called with such memories alone. Ordinary memory has the system's allocator, which frees it.
    unsafe impl AllocatorImpl for PinnedAllocator {
        unsafe fn alloc(&self, size: usize, params: &gst::AllocationParams) -> *mut ffi::GstMemory {
            let (prefix, padding) = (params.prefix(), params.padding());
            let bytes = size.checked_add(prefix).and_then(|bytes| bytes.checked_add(padding));
            match bytes.and_then(|bytes| self.block(bytes)) {
                // Pages are aligned more than decoders ask for.
                Some(mut block) => {
                    let flags = params.flags();
                    let bytes = (*block).as_mut();
                    if flags.contains(gst::MemoryFlags::ZERO_PREFIXED) {
                        bytes[..prefix].fill(0);
                    }
                    if flags.contains(gst::MemoryFlags::ZERO_PADDED) {
                        bytes[prefix + size..].fill(0);
                    }
                    self.memory(block, flags.bits(), prefix, size)
                }
                // SAFETY: the system's allocator, as if there were none here.
                None => unsafe {
                    ffi::gst_allocator_alloc(ptr::null_mut(), size, params.as_ptr().cast_mut())
                },
            }
        }

        unsafe fn free(&self, memory: *mut ffi::GstMemory) {
            // SAFETY: it is one of `memory` or `share`, which boxed it, and no other code has it any more.
            let memory = unsafe { Box::from_raw(memory.cast::<Memory>()) };
            if let Some(block) = memory.block {
                let mut spare = self.spare.lock();
                spare.retain(|other| fits(other, length(&block)) || fits(&block, length(other)));
                spare.push(block);
            }
        }
    }

    impl PinnedAllocator {
        fn as_ptr(&self) -> *mut ffi::GstAllocator {
            self.obj().as_ptr().cast()
        }

        /// Page-locked bytes, if there are some.
        fn block(&self, bytes: usize) -> Option<Block> {
            let mut spare = self.spare.lock();
            if let Some(index) = spare.iter().position(|block| fits(block, bytes)) {
                return Some(spare.swap_remove(index));
            }
            drop(spare);
            match self.device.get()?.pinned(bytes) {
                Ok(block) => Some(block),
                Err(error) => {
                    tracing::debug!("ordinary memory is taken: {error}");
                    None
                }
            }
        }

        /// Returns a memory with all bytes of a block; `size` bytes from `offset` on count.
        fn memory(&self, mut block: Block, flags: u32, offset: usize, size: usize) -> *mut ffi::GstMemory {
            let bytes = (*block).as_mut();
            let (first, all) = (bytes.as_mut_ptr(), bytes.len());
            self.init(first, Some(block), ptr::null_mut(), flags, (all, offset, size))
        }

        fn init(
            &self,
            first: *mut u8,
            block: Option<Block>,
            parent: *mut ffi::GstMemory,
            flags: u32,
            (all, offset, size): (usize, usize, usize),
        ) -> *mut ffi::GstMemory {
            // SAFETY: zeros are a memory that is not initialised, which the call then does; it keeps the
            // allocator and the parent.
            unsafe {
                let memory = Memory { base: std::mem::zeroed(), first, block };
                let memory = Box::into_raw(Box::new(memory)).cast::<ffi::GstMemory>();
                ffi::gst_memory_init(memory, flags, self.as_ptr(), parent, all, 0, offset, size);
                memory
            }
        }
    }

    fn length(block: &Block) -> usize {
        (**block).as_ref().len()
    }

    /// True if so many bytes lie well in a block: copies are asked for without padding.
    fn fits(block: &Block, bytes: usize) -> bool {
        (bytes..=bytes + bytes / 8).contains(&length(block))
    }

    /// The allocator of one of its memories.
    ///
    /// # Safety
    /// It is one.
    unsafe fn owner<'a>(memory: *mut ffi::GstMemory) -> &'a PinnedAllocator {
        // SAFETY: a memory keeps its allocator, whose instances are these.
        unsafe { (*(*memory).allocator.cast::<<PinnedAllocator as ObjectSubclass>::Instance>()).imp() }
    }

    /// How much of a memory is meant by a size of -1: all from `offset` on.
    ///
    /// # Safety
    /// It is a memory.
    unsafe fn rest(memory: *mut ffi::GstMemory, offset: isize, size: isize) -> usize {
        // SAFETY: the caller's.
        let whole = unsafe { (*memory).size };
        usize::try_from(size).unwrap_or_else(|_| whole.saturating_add_signed(-offset))
    }

    unsafe extern "C" fn map(
        memory: *mut ffi::GstMemory,
        _: usize,
        _: ffi::GstMapFlags,
    ) -> glib::ffi::gpointer {
        // SAFETY: GStreamer calls this for this allocator's memories. It adds the offset by itself.
        unsafe { (*memory.cast::<Memory>()).first.cast() }
    }

    unsafe extern "C" fn unmap(_: *mut ffi::GstMemory) {}

    /// A part of a memory.
    unsafe extern "C" fn share(
        memory: *mut ffi::GstMemory,
        offset: isize,
        size: isize,
    ) -> *mut ffi::GstMemory {
        // SAFETY: GStreamer calls this for this allocator's memories, and for parts that lie in them. The
        // bytes are those of the memory that is no part, which is kept.
        unsafe {
            let whole = if (*memory).parent.is_null() { memory } else { (*memory).parent };
            let flags = (*memory).mini_object.flags | ffi::GST_MINI_OBJECT_FLAG_LOCK_READONLY;
            let size = rest(memory, offset, size);
            let at = (*memory).offset.saturating_add_signed(offset);
            let first = (*memory.cast::<Memory>()).first;
            owner(memory).init(first, None, whole, flags, ((*memory).maxsize, at, size))
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::{Path, PathBuf};
    use std::sync::Mutex;

    use gst::prelude::AllocatorExt;

    use lockon_core::control::Control;
    use lockon_core::device_memory::{DeviceMemory, PinnedMemory};
    use lockon_core::error::{Error, Result};
    use lockon_core::frame::{Picture, VideoFormat};
    use lockon_core::overlay::Drawing;
    use lockon_core::ports::{Next, Source};

    use super::*;
    use crate::cuda::Surfaces;
    use crate::source::{Decoder, Input, SourceSpec, VideoSource};
    use crate::testing::make_clip;

    /// Page-locked memory as far as a host without a device can have it: it knows where it lies.
    #[derive(Default)]
    struct Device {
        places: Arc<Mutex<Vec<usize>>>,
        is_full: bool,
    }

    struct Memory(Vec<u8>, Arc<Mutex<Vec<usize>>>);

    impl PinnedMemory for Memory {}

    impl Drop for Memory {
        fn drop(&mut self) {
            let first = self.as_ref().as_ptr() as usize;
            self.1.lock().unwrap().retain(|place| *place != first);
        }
    }

    impl AsRef<[u8]> for Memory {
        fn as_ref(&self) -> &[u8] {
            &self.0[self.0.as_ptr().align_offset(4096)..][..self.0.len() - 4096]
        }
    }

    impl AsMut<[u8]> for Memory {
        fn as_mut(&mut self) -> &mut [u8] {
            let (at, bytes) = (self.0.as_ptr().align_offset(4096), self.0.len() - 4096);
            &mut self.0[at..][..bytes]
        }
    }

    impl SurfaceDevice for Device {
        fn context(&self) -> (usize, i32) {
            unreachable!("nothing is decoded on a device")
        }

        fn adopt(&self, _: DeviceMemory, _: &VideoFormat) -> Result<Arc<dyn Picture>> {
            unreachable!("nothing is decoded on a device")
        }

        fn paint(&self, _: &DeviceMemory, _: &VideoFormat, _: &Drawing) -> Result<bool> {
            unreachable!("nothing is painted")
        }

        fn is_lost(&self) -> bool {
            false
        }

        fn pinned(&self, bytes: usize) -> Result<Box<dyn PinnedMemory>> {
            if self.is_full {
                return Err(Error::Usage("there is none".into()));
            }
            let memory = Memory(vec![0; bytes + 4096], self.places.clone());
            self.places.lock().unwrap().push(memory.as_ref().as_ptr() as usize);
            Ok(Box::new(memory))
        }
    }

    /// 90 frames of H.264, of such a size.
    fn clip(folder: &Path, width: usize, height: usize) -> PathBuf {
        crate::launch::init().unwrap();
        let clip = folder.join("clip.mp4");
        let text = format!(
            "videotestsrc num-buffers=90 pattern=ball ! video/x-raw,format=I420,width={width},height={height} \
             ! x264enc tune=zerolatency ! mp4mux ! filesink name=file"
        );
        make_clip(&clip, &text);
        clip
    }

    fn open(clip: &Path, surfaces: Surfaces) -> VideoSource {
        let input = Input::File(clip.to_owned());
        let spec = SourceSpec { surfaces, ..SourceSpec::new(input, Decoder::Software) };
        VideoSource::open(&spec, &Control::new()).unwrap()
    }

    #[test]
    fn software_decodes_into_page_locked_memory_and_every_picture_is_the_same() {
        // The first is one that decoders cut, and so copy; the second they hand on while they refer to it.
        for (width, height) in [(322, 242), (640, 360)] {
            let device = Arc::new(Device::default());
            let places = device.places.clone();
            let folder = tempfile::tempdir().unwrap();
            let clip = clip(folder.path(), width, height);
            let mut pinned = open(&clip, Surfaces::new(move || Some(device.clone())));
            let mut plain = open(&clip, Surfaces::default());
            let mut next = || {
                let frame = |source: &mut VideoSource| source.wait_next(std::time::Duration::from_secs(10));
                Some((frame(&mut pinned).unwrap(), frame(&mut plain).unwrap()))
            };
            let (mut frames, mut in_it) = (0, 0);
            while let Some((Next::Frame(pinned), Next::Frame(plain))) = next() {
                for plane in 0..plain.format.pixels.planes() {
                    let alike =
                        pinned.picture.plane(plane).to_plane() == plain.picture.plane(plane).to_plane();
                    assert!(alike, "{width} x {height}: frame {frames}, plane {plane}");
                }
                let at = pinned.luma().first_byte() as usize;
                let holds = |first: &usize| (*first..first + width * height * 3 / 2).contains(&at);
                let is_in_it = places.lock().unwrap().iter().any(holds);
                in_it += usize::from(is_in_it);
                frames += 1;
            }
            // Decoders allocate the first few before they ask.
            assert!(
                frames > 50 && in_it + 20 > frames,
                "{width} x {height}: {in_it} of {frames} frames lie in page-locked memory"
            );
            let made = places.lock().unwrap().len();
            assert!(made < 60, "{width} x {height}: memory was page-locked {made} times for {frames} frames");
        }
    }

    #[test]
    fn copies_lie_in_page_locked_memory_and_what_was_freed_is_used_again() {
        crate::launch::init().unwrap();
        let device = Arc::new(Device::default());
        let places = device.places.clone();
        let allocator = PinnedAllocator::new(device);
        let params = gst::AllocationParams::new(gst::MemoryFlags::ZERO_PADDED, 63, 3, 5);
        let counted = (0..100).collect::<Vec<u8>>();
        for turn in 0..3 {
            let memory = allocator.alloc(100, Some(&params)).unwrap();
            let mut memory = memory.into_mapped_memory_writable().unwrap();
            memory.copy_from_slice(&counted);
            let mut memory = memory.into_memory();
            let part = memory.share(10..30);
            assert_eq!(part.map_readable().unwrap().as_slice(), &counted[10..30]);
            assert_eq!(part.copy_range(5..15).map_readable().unwrap().as_slice(), &counted[15..25]);
            let copy = memory.copy();
            drop(part);
            memory.get_mut().unwrap().resize_maxsize(0..108);
            assert_eq!(memory.map_readable().unwrap()[103..], [0; 5], "the padding is not written to");
            drop(memory);
            let bytes = copy.map_readable().unwrap();
            assert_eq!(bytes.as_slice(), counted);
            let at = bytes.as_ptr() as usize;
            let is_in_it = places.lock().unwrap().iter().any(|first| (*first..first + 108).contains(&at));
            assert!(is_in_it, "turn {turn}");
        }
        let made = places.lock().unwrap().len();
        assert_eq!(made, 2, "one for the memory, and one for its copy");
        drop(allocator);
        assert!(places.lock().unwrap().is_empty(), "all was given back");
    }

    #[test]
    fn where_no_page_locked_memory_is_left_ordinary_memory_does() {
        let folder = tempfile::tempdir().unwrap();
        let mut source = open(
            &clip(folder.path(), 322, 242),
            Surfaces::new(|| Some(Arc::new(Device { is_full: true, ..Device::default() }))),
        );
        assert!(matches!(source.wait_next(std::time::Duration::from_secs(10)), Ok(Next::Frame(_))));
    }
}
