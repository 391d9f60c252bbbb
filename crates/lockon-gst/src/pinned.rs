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

use lockon_core::device_memory::{PinnedMemory, SurfaceDevice};

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
            let pinned = bytes.zip(self.device.get()).map(|(bytes, device)| device.pinned(bytes));
            let Some(Ok(pinned)) = pinned else {
                if let Some(Err(error)) = pinned {
                    tracing::debug!("ordinary memory is taken: {error}");
                }
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

#[cfg(test)]
mod tests {
    use std::path::{Path, PathBuf};
    use std::sync::Mutex;

    use lockon_core::control::Control;
    use lockon_core::device_memory::DeviceMemory;
    use lockon_core::error::{Error, Result};
    use lockon_core::frame::{Picture, VideoFormat};
    use lockon_core::overlay::Drawing;
    use lockon_core::ports::{Next, Source};

    use super::*;
    use crate::cuda::Surfaces;
    use crate::source::{Decoder, Input, SourceSpec, VideoSource};
    use crate::testing::make_clip;

    /// Bytes of a picture, at least.
    const BYTES: usize = 322 * 242 * 3 / 2;

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
            &self.0[self.0.as_ptr().align_offset(4096)..]
        }
    }

    impl AsMut<[u8]> for Memory {
        fn as_mut(&mut self) -> &mut [u8] {
            let at = self.0.as_ptr().align_offset(4096);
            &mut self.0[at..]
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

        fn pinned(&self, bytes: usize) -> Result<Box<dyn PinnedMemory>> {
            if self.is_full {
                return Err(Error::Usage("there is none".into()));
            }
            let memory = Memory(vec![0; bytes + 4096], self.places.clone());
            self.places.lock().unwrap().push(memory.as_ref().as_ptr() as usize);
            Ok(Box::new(memory))
        }
    }

    /// 90 frames of H.264, of a width that decoders pad.
    fn clip(folder: &Path) -> PathBuf {
        crate::launch::init().unwrap();
        let clip = folder.join("clip.mp4");
        let text = "videotestsrc num-buffers=90 pattern=ball ! video/x-raw,format=I420,width=322,height=242 \
                    ! x264enc tune=zerolatency ! mp4mux ! filesink name=file";
        make_clip(&clip, text);
        clip
    }

    fn open(clip: &Path, surfaces: Surfaces) -> VideoSource {
        let input = Input::File(clip.to_owned());
        let spec = SourceSpec { surfaces, ..SourceSpec::new(input, Decoder::Software) };
        VideoSource::open(&spec, &Control::new()).unwrap()
    }

    #[test]
    fn software_decodes_into_page_locked_memory_and_every_picture_is_the_same() {
        let device = Arc::new(Device::default());
        let places = device.places.clone();
        let folder = tempfile::tempdir().unwrap();
        let clip = clip(folder.path());
        let mut pinned = open(&clip, Surfaces::new(move || Some(device.clone())));
        let mut plain = open(&clip, Surfaces::default());
        let mut next = || {
            let frame = |source: &mut VideoSource| source.wait_next(std::time::Duration::from_secs(10));
            Some((frame(&mut pinned).unwrap(), frame(&mut plain).unwrap()))
        };
        let (mut frames, mut in_it) = (0, 0);
        while let Some((Next::Frame(pinned), Next::Frame(plain))) = next() {
            for plane in 0..plain.format.pixels.planes() {
                let alike = pinned.picture.plane(plane).to_plane() == plain.picture.plane(plane).to_plane();
                assert!(alike, "frame {frames}, plane {plane}");
            }
            let at = pinned.luma().first_byte() as usize;
            in_it +=
                usize::from(places.lock().unwrap().iter().any(|first| (*first..first + BYTES).contains(&at)));
            frames += 1;
        }
        // Decoders allocate the first few before they ask.
        assert!(frames > 50 && in_it + 20 > frames, "{in_it} of {frames} frames lie in page-locked memory");
    }

    #[test]
    fn where_no_page_locked_memory_is_left_ordinary_memory_does() {
        let folder = tempfile::tempdir().unwrap();
        let mut source = open(
            &clip(folder.path()),
            Surfaces::new(|| Some(Arc::new(Device { is_full: true, ..Device::default() }))),
        );
        assert!(matches!(source.wait_next(std::time::Duration::from_secs(10)), Ok(Next::Frame(_))));
    }
}
