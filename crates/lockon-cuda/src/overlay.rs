//! Drawing on the device: paints the lists of `lockon_core::overlay` where a picture lies.

#![expect(unsafe_code, reason = "launching a kernel: what it reads and writes are addresses without lengths")]

use super::driver::{
    DeviceBuffer, Event, Gpu, Kernel, Pinned, PinnedBuffer, Pod, Priority, Stream, arg, ptx,
};
use super::shared::{constant, pod_structure};
use lockon_core::device_memory::DevicePlane;
use lockon_core::error::Result;
use lockon_core::frame::{PixelFormat, Rect};
use lockon_core::overlay::{Drawing, Ink, Step};

const PTX: &str = include_str!("../ptx/overlay.ptx");

/// Samples of a block, across and down.
const TILE: [usize; 2] = [constant(PTX, "TILE_X"), constant(PTX, "TILE_Y")];

/// Maximum blocks of a launch, down.
const MOST_ROWS_OF_BLOCKS: usize = 65_535;

/// Longest side of a picture: with what a tile is larger, numbers of pixels fit in 31 bits.
const LONGEST_SIDE: usize = 1 << 16;
const _: () = assert!(LONGEST_SIDE.div_ceil(TILE[1]) <= MOST_ROWS_OF_BLOCKS, "a launch has room for it");

/// Steps that there is room for from the start: boxes and labels of some ten tracks.
const STEPS: usize = 1024;

/// Bytes of letters that there is room for from the start: some forty of the largest font.
const COVERAGE: usize = 1 << 15;

/// Paints drawings into pictures that lie in the memory of a device. Every byte is that which
/// [`Canvas::paint`](lockon_core::overlay::Canvas::paint) leaves on the host.
///
/// It is made once, and used for pictures of all sizes and formats. After the first few it allocates only for
/// a drawing that is longer than all before it.
pub(crate) struct DevicePainter {
    kernel: Kernel,
    /// For those that have none of their own.
    stream: Stream,
    steps: Upload<PackedStep>,
    coverage: Upload<u8>,
    /// The list was copied: the host's memory may be written again.
    uploaded: Event,
    /// The list was painted: the device's memory may be written again.
    painted: Event,
}

impl DevicePainter {
    /// A painter on a device, with a stream of its own.
    ///
    /// # Errors
    /// `Backend`: no memory, or the driver's error.
    pub(crate) fn new(gpu: &Gpu) -> Result<Self> {
        Ok(Self {
            kernel: gpu.share(ptx!("overlay"))?.kernel("overlay")?,
            stream: gpu.stream(Priority::Normal)?,
            steps: Upload::new(gpu, "steps of a drawing", STEPS)?,
            coverage: Upload::new(gpu, "letters of a drawing", COVERAGE)?,
            uploaded: gpu.event()?,
            painted: gpu.event()?,
        })
    }

    /// Enqueues the painting of `drawing` into a picture of its size, whose planes those are, in the format's
    /// order. [`Self::wait`] waits for it. Pictures of one painter are painted one after the other.
    ///
    /// # Errors
    /// `Backend`: no memory for the list, or the driver's error. The picture may then be painted in part.
    ///
    /// # Safety
    /// For each plane, with the bytes of a row and the rows that [`PixelFormat::plane_size`] says:
    /// - so many bytes at `address`, and at each multiple of the pitch behind it, lie in memory that kernels
    ///   in the painter's context on the device can read and write,
    /// - the work that wrote them is done,
    /// - they are not freed, and no other code reads or writes them, until `wait` has returned.
    ///
    /// # Panics
    /// If there are more or fewer planes than the format has, a pitch is less than a row, or a side of the
    /// picture has more than 65536 pixels.
    pub(crate) unsafe fn paint(
        &mut self,
        drawing: &Drawing,
        format: PixelFormat,
        planes: &[DevicePlane],
    ) -> Result<()> {
        let stream = self.stream.clone();
        // SAFETY: the planes are the caller's, who waits for this stream by `wait`.
        unsafe { self.paint_in(&stream, drawing, format, planes) }
    }

    /// Waits until all drawings given to [`Self::paint`] are painted.
    ///
    /// # Errors
    /// `Backend`: the driver's error, also of the painting.
    pub(crate) fn wait(&self) -> Result<()> {
        self.stream.wait()
    }

    /// As [`Self::paint`], in a stream of the painter's device: after its current work, before its later
    /// work.
    ///
    /// It waits on the host only while the list before is still being copied.
    ///
    /// # Safety
    /// As [`Self::paint`], from the time when the stream has finished its current work until a wait for this
    /// stream or for a later event in it has returned.
    ///
    /// # Panics
    /// As [`Self::paint`].
    pub(crate) unsafe fn paint_in(
        &mut self,
        stream: &Stream,
        drawing: &Drawing,
        format: PixelFormat,
        planes: &[DevicePlane],
    ) -> Result<()> {
        let size = drawing.size();
        assert_eq!(planes.len(), format.planes(), "planes of a {} picture", format.name);
        assert!(size.width.max(size.height) <= LONGEST_SIDE, "drawing on a {size} picture");
        for (index, plane) in planes.iter().enumerate() {
            let width = format.plane_size(index, size).width;
            assert!(plane.stride >= width, "rows of {width} bytes, {} apart", plane.stride);
        }
        if drawing.steps().is_empty() {
            return Ok(());
        }
        self.uploaded.wait()?;
        self.steps.set(stream.gpu(), drawing.steps().iter().map(PackedStep::of))?;
        self.coverage.set(stream.gpu(), drawing.coverage().iter().copied())?;
        // SAFETY: that of this function, and the asserts above.
        let queued = unsafe { self.queue(stream, drawing, format, planes) };
        if queued.is_err() {
            // No event shows when the queued work is done with the list. This error adds nothing to the first
            // one.
            let _ = stream.wait();
        }
        queued
    }

    /// Puts the copies of the list and the kernels into the stream.
    ///
    /// # Safety
    /// As [`Self::paint_in`], which has checked sizes and pitches and set the list.
    unsafe fn queue(
        &mut self,
        stream: &Stream,
        drawing: &Drawing,
        format: PixelFormat,
        planes: &[DevicePlane],
    ) -> Result<()> {
        // Another stream may still be painting the list before.
        stream.wait_for(&self.painted)?;
        // SAFETY: `paint_in` waits for `uploaded`, or for the stream if that could not be recorded, before
        // it writes to the host's memory or replaces it, and `drop` before that is freed.
        unsafe {
            self.steps.upload(stream)?;
            self.coverage.upload(stream)?;
        }
        self.uploaded.record(stream)?;
        let (steps, coverage) = (self.steps.device.address(), self.coverage.device.address());
        let count = self.steps.length as i32;
        for samples in (0..3).filter_map(|component| Samples::of(component, drawing.steps(), format, planes))
        {
            let [columns, rows] = samples.sides();
            let grid = [columns.div_ceil(TILE[0]), rows.div_ceil(TILE[1]), 1];
            let args = &mut [arg(&steps), arg(&count), arg(&coverage), arg(&samples)];
            // SAFETY: the arguments of `overlay`. It reads `count` steps, which the buffer has, and the
            // coverage that these refer to, which was copied to the buffer entirely, as `PackedStep::of` and
            // `Drawing` have it; both lie on the device. It reads and writes the samples of an area that lies
            // in the picture, in planes which are the caller's. A block is TILE, as the kernel has it, and
            // has no dynamic shared memory.
            unsafe { stream.launch(&self.kernel, grid, [TILE[0], TILE[1], 1], 0, args)? };
        }
        self.painted.record(stream)
    }
}

impl Drop for DevicePainter {
    /// The device may still be reading the host's memory.
    fn drop(&mut self) {
        // In a context that is lost nothing reads any more.
        let _ = self.uploaded.wait();
    }
}

/// A list on the host, and its copy on the device.
struct Upload<T> {
    what: &'static str,
    host: PinnedBuffer<T>,
    device: DeviceBuffer<T>,
    /// Elements that count.
    length: usize,
}

impl<T: Pod> Upload<T> {
    fn new(gpu: &Gpu, what: &'static str, room: usize) -> Result<Self> {
        let host = gpu.alloc_pinned(what, room, Pinned::WriteCombined)?;
        Ok(Self { what, host, device: gpu.alloc(what, room)?, length: 0 })
    }

    /// Writes the list into the host's memory, and allocates more if there is too little. The device has
    /// already read the old list.
    fn set(&mut self, gpu: &Gpu, list: impl ExactSizeIterator<Item = T>) -> Result<()> {
        if list.len() > self.host.len() {
            *self = Self::new(gpu, self.what, list.len().next_power_of_two())?;
        }
        self.length = list.len();
        for (element, value) in self.host.as_mut_slice().iter_mut().zip(list) {
            *element = value;
        }
        Ok(())
    }

    /// Copies the list to the device, without waiting.
    ///
    /// # Safety
    /// Until the copy is done (known from a wait for this stream or for a later event in it), this is neither
    /// set nor dropped.
    unsafe fn upload(&mut self, stream: &Stream) -> Result<()> {
        if self.length == 0 {
            return Ok(());
        }
        // SAFETY: that of this function.
        unsafe { stream.upload(&self.host, &mut self.device, self.length) }
    }
}

/// `Area` of `overlay.cu`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
struct PackedArea {
    left: i32,
    top: i32,
    right: i32,
    bottom: i32,
}
pod_structure!(PackedArea, 16 bytes { left: i32, top: i32, right: i32, bottom: i32 = 12 });

impl PackedArea {
    /// A box in a picture whose sides fit in 31 bits.
    fn of(area: Rect) -> Self {
        let [left, top, right, bottom] =
            [area.x, area.y, area.x + area.w, area.y + area.h].map(|edge| edge as i32);
        Self { left, top, right, bottom }
    }
}

/// `Step` of `overlay.cu`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
struct PackedStep {
    area: PackedArea,
    over: [u8; 3],
    opacity: u8,
    components: i32,
    first: u32,
    zoom: i32,
}
pod_structure!(PackedStep, 32 bytes {
    area: PackedArea,
    over: [u8; 3] = 16,
    opacity: u8 = 19,
    components: i32 = 20,
    first: u32 = 24,
    zoom: i32 = 28,
});

impl PackedStep {
    fn of(step: &Step) -> Self {
        let area = PackedArea::of(step.area);
        let components = components(step.ink);
        match step.ink {
            Ink::Colour { colour, opacity } => {
                let over = [colour.luma, colour.cb, colour.cr];
                Self { area, over, opacity, components, first: 0, zoom: 0 }
            }
            Ink::Luma { luma, opacity } => {
                Self { area, over: [luma, 0, 0], opacity, components, first: 0, zoom: 0 }
            }
            Ink::Letter { luma, first, zoom } => {
                let (first, zoom) = (first as u32, zoom as i32);
                Self { area, over: [luma, 0, 0], opacity: 0, components, first, zoom }
            }
        }
    }
}

/// How many of luma, Cb and Cr a step mixes.
fn components(ink: Ink) -> i32 {
    match ink {
        Ink::Colour { .. } => 3,
        Ink::Luma { .. } | Ink::Letter { .. } => 1,
    }
}

/// `Samples` of `overlay.cu`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
struct Samples {
    origin: u64,
    pitch: u64,
    area: PackedArea,
    apart: i32,
    x_shift: i32,
    y_shift: i32,
    component: i32,
}
pod_structure!(Samples, 48 bytes {
    origin: u64,
    pitch: u64 = 8,
    area: PackedArea = 16,
    apart: i32 = 32,
    x_shift: i32,
    y_shift: i32,
    component: i32 = 44,
});

impl Samples {
    /// The samples of luma (0), Cb (1) or Cr (2) that any of the steps may touch; `None` if there are none,
    /// or the format has no such component.
    fn of(component: usize, steps: &[Step], format: PixelFormat, planes: &[DevicePlane]) -> Option<Self> {
        let (plane, first, apart) = match component {
            0 => (0, 0, 1),
            _ => format.chroma_samples(component - 1)?,
        };
        let (x_shift, y_shift) = if component == 0 { (0, 0) } else { (format.x_shift, format.y_shift) };
        let touching = steps.iter().filter(|step| components(step.ink) > component as i32);
        let pixels = touching.map(|step| step.area).reduce(around)?;
        let DevicePlane { address, stride: pitch } = planes[plane];
        let (right, bottom) = (pixels.x + pixels.w, pixels.y + pixels.h);
        let [left, top] = [pixels.x >> x_shift, pixels.y >> y_shift];
        let [right, bottom] = [right.div_ceil(1 << x_shift), bottom.div_ceil(1 << y_shift)];
        Some(Self {
            origin: address + first as u64,
            pitch: pitch as u64,
            area: PackedArea::of(Rect::new(left, top, right - left, bottom - top)),
            apart: apart as i32,
            x_shift: x_shift as i32,
            y_shift: y_shift as i32,
            component: component as i32,
        })
    }

    /// Columns and rows of the area.
    fn sides(&self) -> [usize; 2] {
        let PackedArea { left, top, right, bottom } = self.area;
        [(right - left) as usize, (bottom - top) as usize]
    }
}

/// The least box that has both in it.
fn around(a: Rect, b: Rect) -> Rect {
    let (x, y) = (a.x.min(b.x), a.y.min(b.y));
    let (right, bottom) = ((a.x + a.w).max(b.x + b.w), (a.y + a.h).max(b.y + b.h));
    Rect::new(x, y, right - x, bottom - y)
}

#[cfg(test)]
impl DevicePainter {
    /// Paints into buffers, whose rows lie `pitches` apart, without waiting.
    fn paint_buffers(
        &mut self,
        stream: &Stream,
        drawing: &Drawing,
        format: PixelFormat,
        planes: &mut [(DeviceBuffer<u8>, usize)],
    ) -> Result<()> {
        for (index, (buffer, pitch)) in planes.iter().enumerate() {
            let needed = lockon_core::frame::plane_bytes(format.plane_size(index, drawing.size()), *pitch);
            assert!(needed.is_some_and(|needed| needed <= buffer.len()), "plane {index} is too small");
        }
        let planes =
            planes.iter().map(|(buffer, pitch)| DevicePlane { address: buffer.address(), stride: *pitch });
        // SAFETY: the buffers have as many bytes as the planes, as was just asserted, and only streams read
        // and write them; freeing them waits for the work on the device. The code that filled them has
        // waited.
        unsafe { self.paint_in(stream, drawing, format, &planes.collect::<Vec<_>>()) }
    }
}

#[cfg(test)]
mod tests;
