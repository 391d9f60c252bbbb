//! Frames in a device's memory: the description that a source gives a device of pictures that decoders left
//! there, and of the memory on the host that decoders write to.

#![expect(unsafe_code, reason = "the memory of a device is described by addresses without lengths")]

use std::any::Any;
use std::fmt;
use std::sync::Arc;

use crate::error::Result;
use crate::frame::{Picture, VideoFormat};
use crate::overlay::Drawing;

/// Where a decoder has left a picture in a device's memory.
pub struct DeviceMemory {
    context: usize,
    planes: Vec<DevicePlane>,
    stream: Option<usize>,
    has_wide_samples: bool,
    _keeper: Box<dyn Any + Send + Sync>,
}

/// The owner of the memory at an address of a device, and its extent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MemoryAt {
    /// The number of the device.
    pub device: usize,
    /// The driver's handle of the context; 0 if the memory belongs to none.
    pub context: usize,
    /// Bytes of the allocation from the address on.
    pub bytes: usize,
}

/// Where a plane lies in a device's memory.
#[derive(Debug, Clone, Copy)]
pub struct DevicePlane {
    /// Address of its first byte.
    pub address: u64,
    /// Bytes from one row to the next.
    pub stride: usize,
}

impl DeviceMemory {
    /// Memory of the context with that handle of the driver's. Where the picture is not finished yet,
    /// `stream` is the handle of the stream in which that happens. `keeper` is dropped when the memory may be
    /// used again.
    ///
    /// # Safety
    /// While `keeper` lives,
    /// - context and stream live,
    /// - all planes of a picture of the format that [`SurfaceDevice::adopt`] gets lie there,
    /// - and nothing writes to them, once the stream has come so far.
    pub unsafe fn new(
        context: usize,
        planes: Vec<DevicePlane>,
        stream: Option<usize>,
        keeper: Box<dyn Any + Send + Sync>,
    ) -> Self {
        Self { context, planes, stream, has_wide_samples: false, _keeper: keeper }
    }

    /// As `self`, but samples have 16 bits, the lower byte first: the picture is their upper bytes.
    #[must_use]
    pub fn with_wide_samples(self) -> Self {
        Self { has_wide_samples: true, ..self }
    }

    /// True if samples have 16 bits. Their upper bytes are the picture.
    pub fn has_wide_samples(&self) -> bool {
        self.has_wide_samples
    }

    /// The driver's handle of the context that the memory belongs to.
    pub fn context(&self) -> usize {
        self.context
    }

    /// The planes. The first is luma.
    pub fn planes(&self) -> &[DevicePlane] {
        &self.planes
    }

    /// The driver's handle of the stream in which the picture is being finished.
    pub fn stream(&self) -> Option<usize> {
        self.stream
    }
}

impl fmt::Debug for DeviceMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { context, planes, stream, has_wide_samples, _keeper } = self;
        f.debug_struct("DeviceMemory")
            .field("context", context)
            .field("planes", planes)
            .field("stream", stream)
            .field("has_wide_samples", has_wide_samples)
            .finish_non_exhaustive()
    }
}

/// A device in whose memory decoders may leave their pictures.
pub trait SurfaceDevice: Send + Sync {
    /// The driver's handle of the context that decoders are to use, and the device's number, for as long as
    /// this lives.
    fn context(&self) -> (usize, i32);

    /// The picture of `format` that lies there. Its [`Picture::surface`] is this device's.
    ///
    /// # Errors
    /// `Backend` if the device cannot read that memory, or fails.
    fn adopt(&self, memory: DeviceMemory, format: &VideoFormat) -> Result<Arc<dyn Picture>>;

    /// Paints a drawing into a picture of `format` that lies there and that nothing else reads or writes, and
    /// waits until it is done. False if the picture lies where this device cannot paint: in another context.
    ///
    /// # Errors
    /// `Backend` if the device fails. The picture may then be painted in part.
    ///
    /// # Panics
    /// If the drawing is not of the picture's size.
    fn paint(&self, memory: &DeviceMemory, format: &VideoFormat, drawing: &Drawing) -> Result<bool>;

    /// True if the device has failed for good: nothing can be done in its context any more.
    fn is_lost(&self) -> bool;

    /// Page-locked memory of the host, from which the device takes frames without a copy.
    ///
    /// # Errors
    /// `Backend` if there is none.
    fn pinned(&self, bytes: usize) -> Result<Box<dyn PinnedMemory>>;
}

/// Bytes in page-locked memory of the host, which no other has. They begin at the start of a page.
pub trait PinnedMemory: AsRef<[u8]> + AsMut<[u8]> + Send + Sync {}
