//! Pictures that decoders left on the device, and the host's requests to them, done by kernels/surface.cu.
//!
//! Each caller waits for its answer, on a stream of its own with a high priority, so that a tracker's windows
//! need not wait for the next frame's search. Kernels write the answers straight into page-locked memory:
//! 1 kB for each box whose look is compared, 24 kB for a window of a filter that lies on the host.

#![expect(unsafe_code, reason = "launching a kernel: what it reads and writes are addresses without lengths")]

use std::any::Any;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

use super::correlation::{Correlation, DeviceCorrelator};
use super::driver::{
    self, DeviceBuffer, Event, Gpu, Kernel, Mark, Pinned, PinnedBuffer, Priority, Rows, Stream, arg, ptx,
};
use super::ncc::DeviceFrame;
use super::outlines::{Finder, OutlineKernels};
use super::overlay::DevicePainter;
use super::shared::{constant, pod_structure};
use lockon_core::device_memory::{DeviceMemory, DevicePlane, PinnedMemory, SurfaceDevice};
use lockon_core::error::{DeviceFault, Error, Result};
use lockon_core::frame::correlator::{Correlator, Tables};
use lockon_core::frame::outlines::OutlineFinder;
use lockon_core::frame::{Picture, Plane, PlaneRef, Rect, Size, VideoFormat};
use lockon_core::locks::{Ranked, lock};
use lockon_core::overlay::Drawing;
use lockon_core::surface::{self, Surface, Traffic, Turn};

const PTX: &str = include_str!("../ptx/surface.ptx");
pub(super) const BLOCK: usize = constant(PTX, "BLOCK");
const MAX_GRIDS: usize = constant(PTX, "MAX_GRIDS");

/// `Grid` of `kernels/surface.cu`.
#[derive(Debug, Clone, Copy, Default)]
#[repr(C)]
pub(super) struct Grid {
    pixels: u64,
    pitch: i32,
    step: i32,
    width: i32,
    height: i32,
    x_start: i64,
    x_step: i64,
    y_start: i64,
    y_step: i64,
    side: i32,
    groups: i32,
    across: i32,
    index: i32,
    at: i32,
    count: i32,
    right: [i32; 2],
    below: [i32; 2],
}

pod_structure!(Grid, 96 bytes {
    pixels: u64,
    pitch: i32 = 8,
    step: i32,
    width: i32,
    height: i32,
    x_start: i64 = 24,
    x_step: i64,
    y_start: i64,
    y_step: i64,
    side: i32 = 56,
    groups: i32,
    across: i32,
    index: i32,
    at: i32,
    count: i32 = 76,
    right: [i32; 2],
    below: [i32; 2],
});

/// A device that stays open as long as this lives, whatever other code opens and closes it, and whose memory
/// decoders may leave their pictures in.
pub struct Opened(Arc<Shared>);

/// The state that all pictures on a device share.
pub(super) struct Shared {
    pub(super) gpu: Gpu,
    pub(super) traffic: Traffic,
    kernels: OnceLock<SurfaceKernels>,
    /// What looks of filters need; none where the device is too small for them.
    pub(super) correlation: OnceLock<Option<Correlation>>,
    pub(super) outlines: OnceLock<OutlineKernels>,
    /// Room for those who ask, one each.
    rooms: Mutex<Vec<Room>>,
    /// And for those who look for outlines.
    pub(super) finders: Mutex<Vec<Finder>>,
    /// Whole planes on the host that are no longer in use.
    planes: Ranked<Vec<PinnedBuffer<u8>>, 110>,
    painter: Ranked<Option<DevicePainter>, 110>,
    /// Copies pictures that cannot stay where they lie.
    copier: Ranked<Option<Copier>, 110>,
    /// Whether it was already reported that pictures come from another context, and that they are not painted
    /// there.
    has_told: [OnceLock<()>; 2],
}

pub(super) struct SurfaceKernels {
    sample: Kernel,
    pub(super) sample_listed: Kernel,
    shrink: Kernel,
    narrow: Kernel,
}

/// Makes copies, one after the other.
struct Copier {
    stream: Stream,
    /// Buffers of copies that are no longer in use.
    spare: Vec<DeviceBuffer<u8>>,
}

/// The stream and the buffer for one request at a time.
struct Room {
    stream: Stream,
    mark: Mark,
    answer: PinnedBuffer<u8>,
}

/// Bytes of most answers: three windows of 128 x 128 samples with their chroma.
const USUAL_ANSWER: usize = 3 * 128 * 128 * 3 / 2;

impl Opened {
    /// Opens the device of that number.
    ///
    /// # Errors
    /// `Backend`: no driver, an old one, no such device.
    pub fn open(number: usize) -> Result<Self> {
        Self::counting(number, &Traffic::default())
    }

    /// As [`Self::open`], and counts the bytes of pictures, and of what is seen of them, that come to the
    /// host.
    ///
    /// # Errors
    /// As [`Self::open`].
    pub fn counting(number: usize, traffic: &Traffic) -> Result<Self> {
        Ok(Self(Arc::new(Shared {
            gpu: Gpu::open(number)?,
            traffic: traffic.clone(),
            kernels: OnceLock::new(),
            correlation: OnceLock::new(),
            outlines: OnceLock::new(),
            rooms: Mutex::default(),
            finders: Mutex::default(),
            planes: Ranked::default(),
            painter: Ranked::default(),
            copier: Ranked::default(),
            has_told: Default::default(),
        })))
    }
}

impl SurfaceDevice for Opened {
    fn context(&self) -> (usize, i32) {
        (self.0.gpu.handle() as usize, self.0.gpu.info().number as i32)
    }

    fn adopt(&self, memory: DeviceMemory, format: &VideoFormat) -> Result<Arc<dyn Picture>> {
        Ok(Arc::new(DevicePicture::new(self.0.clone(), memory, format)?))
    }

    fn paint(&self, memory: &DeviceMemory, format: &VideoFormat, drawing: &Drawing) -> Result<bool> {
        assert_eq!(drawing.size(), format.size, "a drawing of another size");
        let Shared { gpu, painter, has_told, .. } = &*self.0;
        // Drawings have bytes, and kernels of this context.
        if memory.context() != gpu.handle() as usize || memory.has_wide_samples() {
            if has_told[1].set(()).is_ok() {
                tracing::info!("frames that lie in another CUDA context are drawn on by the host");
            }
            return Ok(false);
        }
        let mut painter = painter.lock();
        let painter = match &mut *painter {
            Some(painter) => painter,
            none => none.insert(DevicePainter::new(gpu)?),
        };
        if let Some(stream) = memory.stream() {
            // SAFETY: both live, as `DeviceMemory::new` asks.
            unsafe { Gpu::wait_for_stream_of(memory.context(), stream)? };
        }
        // SAFETY: the planes lie in this context, finished, as `DeviceMemory::new` requires and the stream
        // was waited for. No other code reads or writes them, as this method requires, and they are waited
        // for below.
        let painted = unsafe { painter.paint(drawing, format.pixels, memory.planes()) };
        let waited = painter.wait();
        painted.and(waited).map(|()| true)
    }

    fn is_lost(&self) -> bool {
        self.0.gpu.is_lost()
    }

    fn pinned(&self, bytes: usize) -> Result<Box<dyn PinnedMemory>> {
        Ok(Box::new(HostBytes(self.0.gpu.alloc_pinned("a frame", bytes, Pinned::Plain)?)))
    }
}

/// Page-locked memory for decoders on the host.
struct HostBytes(PinnedBuffer<u8>);

impl PinnedMemory for HostBytes {}

impl AsRef<[u8]> for HostBytes {
    fn as_ref(&self) -> &[u8] {
        self.0.as_slice()
    }
}

impl AsMut<[u8]> for HostBytes {
    fn as_mut(&mut self) -> &mut [u8] {
        self.0.as_mut_slice()
    }
}

impl Shared {
    pub(super) fn kernels(&self) -> Result<&SurfaceKernels> {
        if let Some(kernels) = self.kernels.get() {
            return Ok(kernels);
        }
        let module = self.gpu.share(ptx!("surface"))?;
        let kernels = SurfaceKernels {
            sample: module.kernel("sample_grids")?,
            sample_listed: module.kernel("sample_listed_grids")?,
            shrink: module.kernel("shrink")?,
            narrow: module.kernel("narrow")?,
        };
        Ok(self.kernels.get_or_init(|| kernels))
    }
}

/// A plane of a picture, as it lies on the device.
#[derive(Debug, Clone, Copy)]
struct Rectangle {
    rows: Rows,
    /// In bytes.
    size: Size,
}

/// A plane that was requested as a whole.
enum OnHost {
    Fetched(PinnedBuffer<u8>),
    /// It could not be fetched.
    Blank(Plane),
}

/// A picture on a device of ours.
pub(super) struct DevicePicture {
    pub(super) device: Arc<Shared>,
    planes: Vec<Rectangle>,
    /// Passed when the picture is finished, if it may not be yet.
    finished: Option<Event>,
    /// The host has waited for work that came after it.
    is_finished: AtomicBool,
    /// Planes that were requested as a whole.
    on_host: Vec<OnceLock<OnHost>>,
    failure: Mutex<Option<DeviceFault>>,
    /// Keeps the picture's memory where it is.
    _keeper: Box<dyn Any + Send + Sync>,
}

impl DevicePicture {
    fn new(device: Arc<Shared>, memory: DeviceMemory, format: &VideoFormat) -> Result<Self> {
        let VideoFormat { pixels, size, .. } = format;
        let bytes = if memory.has_wide_samples() { 2 } else { 1 };
        let planes = memory.planes().iter().enumerate().map(|(index, &DevicePlane { address, stride })| {
            let rows = Rows { address, pitch: stride };
            let Size { width, height } = pixels.plane_size(index, *size);
            Rectangle { rows, size: Size::new(bytes * width, height) }
        });
        let planes: Vec<_> = planes.collect();
        let is_whole = planes.len() == pixels.planes();
        if !is_whole || planes.iter().any(|plane| plane.rows.pitch < plane.size.width) {
            let reason =
                format!("a {} picture of {size} does not lie in these planes: {planes:?}", pixels.name);
            return Err(super::fault(DeviceFault::Other(reason)));
        }
        let on_host = planes.iter().map(|_| OnceLock::new()).collect();
        let failure = Mutex::default();
        let is_wide = memory.has_wide_samples();
        let (planes, finished, keeper): (_, _, Box<dyn Any + Send + Sync>) =
            if memory.context() != device.gpu.handle() as usize {
                let (planes, copied) = Copied::over(&device, &memory, &planes)?;
                (planes, None, Box::new(copied))
            } else if let Some(stream) = memory.stream() {
                device.gpu.bind()?;
                // SAFETY: the stream is of this context, and lives as `DeviceMemory::new` asks.
                let event = if unsafe { Event::is_empty(stream) } {
                    None
                } else {
                    let event = device.gpu.event()?;
                    // SAFETY: as above.
                    unsafe { event.record_in(stream)? };
                    Some(event)
                };
                (planes, event, Box::new(memory))
            } else {
                (planes, None, Box::new(memory))
            };
        if is_wide {
            let (planes, narrowed) = Copied::narrow(&device, &planes, finished.as_ref())?;
            drop(keeper);
            let keeper = Box::new(narrowed);
            let (finished, is_finished) = (None, AtomicBool::new(true));
            return Ok(Self { device, planes, finished, is_finished, on_host, failure, _keeper: keeper });
        }
        let is_finished = AtomicBool::new(finished.is_none());
        Ok(Self { device, planes, finished, is_finished, on_host, failure, _keeper: keeper })
    }

    /// The picture behind a surface, if it lies in this context.
    pub(super) fn of<'a>(gpu: &Gpu, surface: &'a (dyn Surface + 'static)) -> Option<&'a Self> {
        let picture = (surface as &dyn Any).downcast_ref::<Self>()?;
        (picture.device.gpu.handle() == gpu.handle()).then_some(picture)
    }

    /// Where luma lies.
    ///
    /// # Panics
    /// If it is of another size.
    pub(super) fn luma(&self, size: Size) -> Rows {
        assert_eq!(self.planes[0].size, size, "frames of different size");
        self.planes[0].rows
    }

    /// Copies luma into a frame of the same size, without waiting.
    ///
    /// # Safety
    /// The picture is kept until the copy is done.
    ///
    /// # Panics
    /// If the sizes differ.
    pub(super) unsafe fn copy_luma(&self, stream: &Stream, frame: &mut DeviceFrame) -> Result<()> {
        let Rectangle { rows, size } = self.planes[0];
        assert_eq!(frame.size, size, "frames of different size");
        self.begin(stream)?;
        // SAFETY: the rows lie in the memory that the picture keeps, which the caller keeps; the frame has
        // its size.
        unsafe { stream.copy_rows(rows, frame.rows_from(0, 0), size.width, size.height) }
    }

    /// Makes later work in a stream wait until the picture is finished.
    pub(super) fn begin(&self, stream: &Stream) -> Result<()> {
        match &self.finished {
            Some(finished) if !self.is_finished.load(Ordering::Acquire) => stream.wait_for(finished),
            _ => Ok(()),
        }
    }

    /// Gives what `ask` writes into the first `length` bytes of page-locked memory, once it is done. `ask`
    /// begins with [`Self::begin`].
    fn answer<T>(
        &self,
        length: usize,
        ask: impl FnOnce(&Stream, &mut PinnedBuffer<u8>) -> Result<()>,
        take: impl FnOnce(&[u8]) -> T,
    ) -> Result<T> {
        let Shared { gpu, rooms, traffic, .. } = &*self.device;
        let free = lock(rooms).pop();
        let mut room = match free {
            Some(room) if room.answer.len() >= length => room,
            room => {
                let (stream, mark) = match room {
                    Some(Room { stream, mark, .. }) => (stream, mark),
                    None => (gpu.stream(Priority::High)?, gpu.mark()?),
                };
                let answer = gpu.alloc_pinned_piece("windows", length.max(USUAL_ANSWER))?;
                Room { stream, mark, answer }
            }
        };
        let asked = ask(&room.stream, &mut room.answer);
        // Also after a failure: started work may still write.
        let waited = room.stream.wait_for_mark(&mut room.mark);
        asked.and(waited)?;
        self.is_finished.store(true, Ordering::Release);
        traffic.add_down(length);
        let taken = take(&room.answer.as_slice()[..length]);
        lock(rooms).push(room);
        Ok(taken)
    }

    pub(super) fn packed(&self, grid: &surface::Grid, at: usize) -> Grid {
        let surface::Grid { plane, first, step, columns, rows, side, turn, groups, across, index, .. } =
            *grid;
        let Rectangle { rows: Rows { address, pitch }, size } = self.planes[plane];
        let Turn { count, right, below } = turn.unwrap_or(Turn { count: 0, right: (0, 0), below: (0, 0) });
        Grid {
            pixels: address + first as u64,
            pitch: pitch as i32,
            step: step as i32,
            width: (size.width / step) as i32,
            height: size.height as i32,
            x_start: columns.0,
            x_step: columns.1,
            y_start: rows.0,
            y_step: rows.1,
            side: side as i32,
            groups: groups as i32,
            across: across as i32,
            index: index as i32,
            at: at as i32,
            count: count as i32,
            right: [right.0, right.1],
            below: [below.0, below.1],
        }
    }

    fn try_sample(&self, grids: &[surface::Grid], samples: &mut [u8]) -> Result<()> {
        let kernel = &self.device.kernels()?.sample;
        let length = grids.iter().map(surface::Grid::end).max().unwrap_or(0);
        assert!(length <= samples.len(), "grids of {length} bytes in {}", samples.len());
        let ask = |stream: &Stream, answer: &mut PinnedBuffer<u8>| {
            self.begin(stream)?;
            for grids in grids.chunks(MAX_GRIDS) {
                let mut packed = [Grid::default(); MAX_GRIDS];
                for (packed, grid) in packed.iter_mut().zip(grids) {
                    *packed = self.packed(grid, grid.at);
                }
                let most = grids.iter().map(|grid| grid.side * grid.side).max().unwrap_or(0);
                let answer = answer.device_address();
                // SAFETY: these are the kernel's arguments. It reads the planes of this picture, whose sizes
                // are among the arguments, and writes to `answer` only before the `end` of each grid, as
                // checked above; both are kept until `answer` has waited for it.
                unsafe {
                    stream.launch(
                        kernel,
                        [most.div_ceil(BLOCK), grids.len(), 1],
                        [BLOCK, 1, 1],
                        0,
                        &mut [arg(&packed), arg(&answer)],
                    )?;
                }
            }
            Ok(())
        };
        self.answer(length, ask, |answer| samples[..length].copy_from_slice(answer))
    }

    /// The size of luma that is shrunken by a factor.
    pub(super) fn shrunken(&self, factor: usize) -> Size {
        let Size { width, height } = self.planes[0].size;
        Size::new(width / factor, height / factor)
    }

    /// Writes luma that is shrunken by a factor, row by row, without waiting.
    ///
    /// # Safety
    /// There is room for it at `means`; it and the picture are kept until the stream has come so far.
    pub(super) unsafe fn shrink_to(&self, stream: &Stream, factor: usize, means: u64) -> Result<()> {
        let kernel = &self.device.kernels()?.shrink;
        self.begin(stream)?;
        let Rows { address, pitch } = self.planes[0].rows;
        let size = self.shrunken(factor);
        let blocks = [size.area().div_ceil(BLOCK), 1, 1];
        let [pitch, factor, width, height] = [pitch, factor, size.width, size.height].map(|n| n as i32);
        let arguments =
            &mut [arg(&address), arg(&pitch), arg(&factor), arg(&width), arg(&height), arg(&means)];
        // SAFETY: these are the kernel's arguments. It reads luma, and writes the means for which there is
        // room, as the caller promises.
        unsafe { stream.launch(kernel, blocks, [BLOCK, 1, 1], 0, arguments) }
    }

    fn try_shrink(&self, factor: usize, means: &mut [u8]) -> Result<()> {
        let size = self.shrunken(factor);
        let whole = self.planes[0].size;
        assert_eq!(means.len(), size.area(), "means of a {whole} picture, {factor} times smaller");
        if means.is_empty() {
            return Ok(());
        }
        // SAFETY: the answer has as many bytes; it and the picture are kept until `answer` has waited
        // for it.
        let ask = |stream: &Stream, answer: &mut PinnedBuffer<u8>| unsafe {
            self.shrink_to(stream, factor, answer.device_address())
        };
        self.answer(means.len(), ask, |answer| means.copy_from_slice(answer))
    }

    fn try_fetch(&self, rect: Rect) -> Result<Plane> {
        let Rectangle { rows: Rows { address, pitch }, .. } = self.planes[0];
        let from = Rows { address: address + (rect.y * pitch + rect.x) as u64, pitch };
        let ask = |stream: &Stream, answer: &mut PinnedBuffer<u8>| {
            self.begin(stream)?;
            // SAFETY: the box lies in the plane, as `fetch` asserts; `answer` waits for the copy.
            unsafe { stream.download_rows(from, answer, rect.w, rect.h) }
        };
        self.answer(rect.size().area(), ask, |answer| Plane::from_vec(answer.to_vec(), rect.size()))
    }

    /// A whole plane, in page-locked memory, from which encoders and windows take it.
    fn try_plane(&self, index: usize) -> Result<PinnedBuffer<u8>> {
        let Rectangle { rows, size } = self.planes[index];
        let free = {
            let mut free = self.device.planes.lock();
            let fitting = free.iter().position(|plane| plane.len() == size.area());
            fitting.map(|index| free.swap_remove(index))
        };
        let mut plane = match free {
            Some(plane) => plane,
            None => self.device.gpu.alloc_pinned("a plane", size.area(), Pinned::Plain)?,
        };
        let ask = |stream: &Stream, _: &mut PinnedBuffer<u8>| {
            self.begin(stream)?;
            // SAFETY: the plane lies there, and `answer` waits for the copy.
            unsafe { stream.download_rows(rows, &mut plane, size.width, size.height) }
        };
        self.answer(0, ask, |_| ())?;
        self.device.traffic.add_down(size.area());
        Ok(plane)
    }

    /// Keeps the first error; the answer is the default for pictures that cannot be read.
    pub(super) fn note(&self, error: Error) {
        let fault = match error {
            Error::Backend { fault, .. } => fault,
            other => DeviceFault::Other(other.to_string()),
        };
        lock(&self.failure).get_or_insert(fault);
    }
}

/// A copy of a picture, whose room is used again.
struct Copied {
    device: Arc<Shared>,
    bytes: Option<DeviceBuffer<u8>>,
}

impl Copied {
    /// Makes it, of planes of these sizes in bytes, by what `copy` puts into the stream for each plane, and
    /// waits for that: it takes some microseconds, and the decoder has its memory back.
    fn new(
        device: &Arc<Shared>,
        sizes: &[Size],
        copy: impl Fn(&Stream, usize, Rows) -> Result<()>,
    ) -> Result<(Vec<Rectangle>, Self)> {
        let gpu = &device.gpu;
        let pitch = |size: &Size| size.width.next_multiple_of(256);
        let length = sizes.iter().map(|size| pitch(size) * size.height).sum();
        let mut copier = device.copier.lock();
        let Copier { stream, spare } = match &mut *copier {
            Some(copier) => copier,
            none => none.insert(Copier { stream: gpu.stream(Priority::High)?, spare: Vec::new() }),
        };
        // Buffers of another size are not needed any more.
        spare.retain(|bytes| bytes.len() == length);
        let bytes = match spare.pop() {
            Some(bytes) => bytes,
            None => gpu.alloc("a copy of a frame", length)?,
        };
        let (mut at, mut copied, mut planes) = (0, Ok(()), Vec::with_capacity(sizes.len()));
        for (index, &size) in sizes.iter().enumerate() {
            let rows = Rows { address: bytes.address_of(at), pitch: pitch(&size) };
            copied = copied.and_then(|()| copy(stream, index, rows));
            at += rows.pitch * size.height;
            planes.push(Rectangle { rows, size });
        }
        // Also after a failure: started work still writes.
        copied.and(stream.wait())?;
        Ok((planes, Self { device: device.clone(), bytes: Some(bytes) }))
    }

    /// Narrows samples of 16 bits to their upper bytes; they are finished when `finished` is passed. The
    /// caller keeps them meanwhile.
    fn narrow(
        device: &Arc<Shared>,
        wide: &[Rectangle],
        finished: Option<&Event>,
    ) -> Result<(Vec<Rectangle>, Self)> {
        let kernel = &device.kernels()?.narrow;
        let sizes: Vec<_> =
            wide.iter().map(|plane| Size::new(plane.size.width / 2, plane.size.height)).collect();
        Self::new(device, &sizes, |stream, index, to| {
            finished.map_or(Ok(()), |finished| stream.wait_for(finished))?;
            let (size, from) = (sizes[index], wide[index].rows);
            let [from_pitch, to_pitch, width] = [from.pitch, to.pitch, size.width].map(|n| n as i32);
            let grid = [size.width.div_ceil(BLOCK), size.height, 1];
            let (from, to) = (from.address, to.address);
            let arguments = &mut [arg(&from), arg(&from_pitch), arg(&to), arg(&to_pitch), arg(&width)];
            // SAFETY: these are the kernel's arguments. The caller keeps the samples, there is room for their
            // upper bytes, and both are kept until the stream was waited for.
            unsafe { stream.launch(kernel, grid, [BLOCK, 1, 1], 0, arguments) }
        })
    }

    /// A picture from another context, or another device.
    fn over(
        device: &Arc<Shared>,
        memory: &DeviceMemory,
        planes: &[Rectangle],
    ) -> Result<(Vec<Rectangle>, Self)> {
        if device.has_told[0].set(()).is_ok() {
            let number = device.gpu.info().number;
            tracing::info!(
                "frames come from another CUDA context: each is copied to that of device {number}"
            );
        }
        if let Some(stream) = memory.stream() {
            // SAFETY: both live, as `DeviceMemory::new` asks.
            unsafe { Gpu::wait_for_stream_of(memory.context(), stream)? };
        }
        let sizes: Vec<_> = planes.iter().map(|plane| plane.size).collect();
        Self::new(device, &sizes, |stream, index, to| {
            let Rectangle { rows, size: Size { width, height } } = planes[index];
            // SAFETY: the plane lies there, as `DeviceMemory::new` asks; there is room for it; and both are
            // kept until the stream was waited for.
            unsafe { stream.copy_rows_from(memory.context(), rows, to, width, height) }
        })
    }
}

impl Drop for Copied {
    fn drop(&mut self) {
        let mut copier = self.device.copier.lock();
        if let (Some(copier), Some(bytes)) = (&mut *copier, self.bytes.take()) {
            copier.spare.push(bytes);
        }
    }
}

impl Drop for DevicePicture {
    fn drop(&mut self) {
        let mut free = self.device.planes.lock();
        // Sinks have a few at a time; buffers of another size are of no use any more.
        let sizes: Vec<_> = self.planes.iter().map(|plane| plane.size.area()).collect();
        free.retain(|plane| sizes.contains(&plane.len()));
        for plane in self.on_host.iter_mut().filter_map(OnceLock::take) {
            if let OnHost::Fetched(bytes) = plane {
                free.push(bytes);
            }
        }
    }
}

impl Picture for DevicePicture {
    fn plane(&self, index: usize) -> PlaneRef<'_> {
        let size = self.planes[index].size;
        let plane = self.on_host[index].get_or_init(|| {
            self.try_plane(index).map_or_else(
                |error| {
                    self.note(error);
                    OnHost::Blank(Plane::new(size))
                },
                OnHost::Fetched,
            )
        });
        match plane {
            OnHost::Fetched(bytes) => PlaneRef::new(bytes.as_slice(), size, size.width),
            OnHost::Blank(plane) => plane.as_ref(),
        }
    }

    fn surface(&self) -> Option<&(dyn Surface + 'static)> {
        Some(self)
    }
}

impl Surface for DevicePicture {
    fn fetch(&self, rect: Rect) -> Plane {
        assert!(rect.is_inside(self.planes[0].size), "{rect} of a {} plane", self.planes[0].size);
        self.try_fetch(rect).unwrap_or_else(|error| {
            self.note(error);
            Plane::new(rect.size())
        })
    }

    fn shrink(&self, factor: usize, means: &mut [u8]) {
        if let Err(error) = self.try_shrink(factor, means) {
            self.note(error);
            means.fill(0);
        }
    }

    fn sample(&self, grids: &[surface::Grid], samples: &mut [u8]) {
        if let Err(error) = self.try_sample(grids, samples) {
            self.note(error);
            samples.fill(0);
        }
    }

    fn outline_finder(&self) -> Option<&dyn OutlineFinder> {
        Some(self)
    }

    fn correlator(&self, tables: &Tables) -> Option<Box<dyn Correlator>> {
        match DeviceCorrelator::open(&self.device, tables) {
            Ok(correlator) => Some(Box::new(correlator?)),
            Err(error) => {
                self.note(error);
                None
            }
        }
    }

    fn check(&self) -> Result<()> {
        // Reported to each caller: planes that are black are so for all.
        let failure = lock(&self.failure);
        failure.as_ref().map_or(Ok(()), |fault| Err(driver::fault(fault.clone())))
    }
}

#[cfg(test)]
mod tests {
    use cudarc::driver::{result, sys};
    use lockon_core::backend::{Backend, Findings, Options, Standing, cpu};
    use lockon_core::frame::outlines::{DIRECTIONS, Edge, MOST_EDGES, Outline, PLACES, Peak, Peaks};
    use lockon_core::frame::{FrameMeta, PixelFormat};
    use lockon_core::reference::surface::OnDevice;

    use super::*;
    use crate::Cuda;
    use crate::testing::{self, Random};

    /// Planes on the host, as the definition looks at them.
    struct Planes(Vec<Plane>);

    impl Picture for Planes {
        fn plane(&self, index: usize) -> PlaneRef<'_> {
            self.0[index].as_ref()
        }
    }

    fn format(pixels: PixelFormat, size: Size) -> VideoFormat {
        VideoFormat { size, pixels, frame_rate: (25, 1), pixel_aspect: (1, 1), colorimetry: None }
    }

    /// A random picture on the device, in rows whose padding is poisoned, and as the definition has it.
    fn picture(gpu: &Gpu, format: &VideoFormat, random: &mut Random) -> (DeviceMemory, OnDevice) {
        let stream = gpu.stream(Priority::Normal).unwrap();
        let sizes = (0..format.pixels.planes()).map(|index| format.pixels.plane_size(index, format.size));
        let planes: Vec<_> = sizes.map(|size| random.picture(size)).collect();
        let (mut bytes, mut places) = (Vec::new(), Vec::new());
        for plane in &planes {
            let stride = plane.size().width + random.below(40);
            places.push((bytes.len(), stride));
            for row in plane.as_ref().rows() {
                bytes.extend_from_slice(row);
                bytes.resize(bytes.len() + stride - row.len(), 0xA5);
            }
            bytes.resize(bytes.len() + random.below(99), 0xA5);
        }
        let mut buffer = gpu.alloc("a picture", bytes.len()).unwrap();
        stream.upload_now(&bytes, &mut buffer).unwrap();
        let place = |(at, stride)| DevicePlane { address: buffer.address_of(at), stride };
        let places = places.into_iter().map(place).collect();
        // SAFETY: `buffer` has all planes, is kept, and no code writes to it.
        let memory = unsafe { DeviceMemory::new(gpu.handle() as usize, places, None, Box::new(buffer)) };
        (memory, OnDevice::new(Arc::new(Planes(planes)), format))
    }

    fn random_grid(random: &mut Random, format: &VideoFormat, at: usize) -> surface::Grid {
        let pixels = format.pixels;
        let component = random.below(3);
        let chroma = if component > 0 { pixels.chroma_samples(component - 1) } else { None };
        let (plane, first, step) = chroma.unwrap_or((0, 0, 1));
        let side = [32, 64, 128][random.below(3)];
        let (groups, across) = ([1, 4][random.below(2)], 1 + random.below(3));
        let turn = (random.below(2) == 0).then(|| {
            let angle = random.below(628) as f64 / 100.0;
            let fixed = |v: f64| (v * 65536.0) as i32;
            let (sin, cos) = (fixed(angle.sin()), fixed(angle.cos()));
            Turn { count: side * 3 / 2 + 2, right: (cos, sin), below: (-sin, cos) }
        });
        let count = turn.map_or(side, |turn| turn.count) as i64;
        let mut axis = |length: usize| {
            // From far less than a pixel to dozens of them.
            let step = random.log_uniform(3_000, 1_500_000) as i64;
            let middle = random.below((length + 60) * 256) as i64 - 30 * 256;
            (middle - ((step * count) >> 9), step)
        };
        let (columns, rows) = (axis(format.size.width), axis(format.size.height));
        let index = random.below(across);
        surface::Grid { plane, first, step, columns, rows, side, turn, groups, across, index, at }
    }

    /// Outlines of all sizes up to the picture's, whose edges lie anywhere; one has none.
    fn random_outlines(random: &mut Random, size: Size) -> Vec<Outline> {
        let outline = |index: usize| {
            let (width, height) = (1 + random.below(size.width), 1 + random.below(size.height));
            let edge = |_| Edge {
                x: random.below(width) as u16,
                y: random.below(height) as u16,
                direction: random.below(DIRECTIONS) as u8,
            };
            let count = if index == 3 { 0 } else { MOST_EDGES - 6 * index.min(10) };
            Outline { edges: (0..count).map(edge).collect(), width, height }
        };
        (0..11).map(outline).collect()
    }

    #[test]
    fn what_the_device_sees_of_a_picture_is_what_the_definition_sees() {
        let Some(gpu) = testing::gpu() else { return };
        let device = Opened::open(0).unwrap();
        let mut random = Random(11);
        for pixels in PixelFormat::ALL {
            for size in [Size::new(211, 157), Size::new(32, 33), Size::new(640, 361)] {
                let format = format(pixels, size);
                let (memory, definition) = picture(&gpu, &format, &mut random);
                let picture = device.adopt(memory, &format).unwrap();
                let surface = picture.surface().unwrap();
                let mut grids = Vec::<surface::Grid>::new();
                for _ in 0..MAX_GRIDS + 5 {
                    let at = grids.last().map_or(0, surface::Grid::end);
                    grids.push(random_grid(&mut random, &format, at));
                }
                let length = grids.last().unwrap().end();
                for grid in &grids {
                    let (mut found, mut wanted) = (vec![0xEE; length], vec![0xEE; length]);
                    surface.sample(&[*grid], &mut found);
                    definition.sample(&[*grid], &mut wanted);
                    let place = grid.at..grid.end();
                    // The samples beside the grid's own are not compared: it must not write them.
                    let own = |at: usize| at / (grid.side / grid.groups) % grid.across == grid.index;
                    let is_alike = |at: usize| !own(at - grid.at) || found[at] == wanted[at];
                    assert!(place.clone().all(is_alike), "{} {size}: {grid:?}", pixels.name);
                }
                let (mut found, mut wanted) = (vec![0; length], vec![0; length]);
                surface.sample(&grids, &mut found);
                definition.sample(&grids, &mut wanted);
                for grid in &grids {
                    let own =
                        |at: &usize| (at - grid.at) / (grid.side / grid.groups) % grid.across == grid.index;
                    let place = (grid.at..grid.end()).filter(own);
                    assert!(place.into_iter().all(|at| found[at] == wanted[at]), "all together: {grid:?}");
                }
                for factor in [1, 2, 3, 6] {
                    let count = size.width / factor * (size.height / factor);
                    let (mut found, mut wanted) = (vec![0xEE; count], vec![0; count]);
                    surface.shrink(factor, &mut found);
                    definition.shrink(factor, &mut wanted);
                    assert!(found == wanted, "{} {size}: {factor} times smaller", pixels.name);
                }
                for factor in [1, 3] {
                    let outlines =
                        random_outlines(&mut random, Size::new(size.width / factor, size.height / factor));
                    // Alone, and more at a time than before.
                    for outlines in [&outlines[..1], &outlines, &outlines[1..4], &[]] {
                        let outlines: Vec<_> = outlines.iter().collect();
                        let mut found =
                            vec![[Some(Peak { score: 9, row: 9, column: 9 }); PLACES]; outlines.len()];
                        let mut wanted = vec![Peaks::default(); outlines.len()];
                        let finder = surface.outline_finder().expect("this device has one");
                        finder.find_outlines(factor, &outlines, &mut found);
                        definition.find_outlines(factor, &outlines, &mut wanted);
                        assert_eq!(found, wanted, "{} {size}: {factor} times smaller", pixels.name);
                    }
                }
                let rect = random.place(Size::new(17, 9), size);
                assert_eq!(surface.fetch(rect), definition.fetch(rect));
                for index in 0..pixels.planes() {
                    let (found, wanted) = (picture.plane(index), definition.plane(index));
                    assert!(found.to_plane() == wanted.to_plane(), "{} {size}: plane {index}", pixels.name);
                }
                surface.check().unwrap();
            }
        }
    }

    #[test]
    fn pictures_of_16_bits_a_sample_are_their_upper_bytes() {
        let Some(gpu) = testing::gpu() else { return };
        let device = Opened::open(0).unwrap();
        let stream = gpu.stream(Priority::Normal).unwrap();
        let mut random = Random(17);
        for size in [Size::new(211, 157), Size::new(2, 1), Size::new(640, 361), Size::new(640, 361)] {
            let format = format(PixelFormat::from_name("NV12").unwrap(), size);
            let (mut bytes, mut places, mut upper) = (Vec::new(), Vec::new(), Vec::new());
            for index in 0..2 {
                let plane = random.picture(format.pixels.plane_size(index, size));
                let stride = 2 * plane.size().width + 2 * random.below(20);
                places.push((bytes.len(), stride));
                for row in plane.as_ref().rows() {
                    let end = bytes.len() + stride;
                    bytes.extend(row.iter().flat_map(|&upper| [random.below(256) as u8, upper]));
                    bytes.resize(end, 0xA5);
                }
                upper.push(plane);
            }
            let mut buffer = gpu.alloc("a picture", bytes.len()).unwrap();
            stream.upload_now(&bytes, &mut buffer).unwrap();
            let place = |(at, stride)| DevicePlane { address: buffer.address_of(at), stride };
            let places = places.into_iter().map(place).collect();
            // SAFETY: `buffer` has all planes, is kept, and no code writes to it.
            let memory = unsafe { DeviceMemory::new(gpu.handle() as usize, places, None, Box::new(buffer)) };
            let picture = device.adopt(memory.with_wide_samples(), &format).unwrap();
            for (index, upper) in upper.iter().enumerate() {
                assert!(picture.plane(index).to_plane() == *upper, "{size}: plane {index}");
            }
            let surface = picture.surface().unwrap();
            let rect = random.place(Size::new(2, 1), size);
            assert_eq!(surface.fetch(rect), upper[0].as_ref().crop(rect).to_plane());
            surface.check().unwrap();
        }
    }

    /// A context beside the one that the process shares.
    struct Foreign(sys::CUcontext);

    impl Foreign {
        fn new(gpu: &Gpu) -> Self {
            gpu.bind().unwrap();
            let mut context = std::ptr::null_mut();
            // SAFETY: the driver is started; what is written is a handle.
            unsafe { sys::cuCtxCreate_v2(&raw mut context, 0, 0).result().unwrap() };
            Self(context)
        }

        /// Bytes there, until what is given is dropped.
        fn upload(&self, bytes: &[u8]) -> ForeignBytes {
            // SAFETY: the context lives, and the room is as large as what is copied.
            let address = unsafe {
                result::ctx::set_current(self.0).unwrap();
                let address = result::malloc_sync(bytes.len()).unwrap();
                result::memcpy_htod_sync(address, bytes).unwrap();
                address
            };
            ForeignBytes { context: self.0 as usize, address }
        }
    }

    impl Drop for Foreign {
        fn drop(&mut self) {
            // SAFETY: no code uses it any more.
            let _ = unsafe { sys::cuCtxDestroy_v2(self.0) };
        }
    }

    struct ForeignBytes {
        context: usize,
        address: u64,
    }

    impl Drop for ForeignBytes {
        fn drop(&mut self) {
            // SAFETY: it was allocated in that context, which lives, and no code uses it any more.
            let _ = unsafe {
                result::ctx::set_current(self.context as sys::CUcontext)
                    .and_then(|()| result::free_sync(self.address))
            };
        }
    }

    #[test]
    fn pictures_of_another_context_are_copied_and_their_room_is_used_again() {
        let Some(gpu) = testing::gpu() else { return };
        let device = Opened::open(0).unwrap();
        let foreign = Foreign::new(&gpu);
        let mut random = Random(18);
        let size = Size::new(211, 157);
        let format = format(PixelFormat::from_name("NV12").unwrap(), size);
        for _ in 0..3 {
            let luma = random.picture(size);
            let chroma = random.picture(format.pixels.plane_size(1, size));
            let bytes = [luma.data(), chroma.data()].concat();
            let buffer = foreign.upload(&bytes);
            let address = buffer.address;
            let plane = |at: usize, plane: &Plane| DevicePlane {
                address: address + at as u64,
                stride: plane.size().width,
            };
            let places = vec![plane(0, &luma), plane(luma.data().len(), &chroma)];
            // SAFETY: `buffer` has both planes, is kept, and no code writes to it.
            let memory = unsafe { DeviceMemory::new(foreign.0 as usize, places, None, Box::new(buffer)) };
            let mut drawing = Drawing::default();
            drawing.start(size);
            assert!(!device.paint(&memory, &format, &drawing).unwrap(), "the host is to draw on it");
            let picture = device.adopt(memory, &format).unwrap();
            assert!(picture.plane(0).to_plane() == luma && picture.plane(1).to_plane() == chroma);
        }
        let rooms = device.0.copier.lock().as_ref().map(|copier| copier.spare.len());
        assert_eq!(rooms, Some(1), "one picture at a time needs room for one");
    }

    #[test]
    fn page_locked_memory_is_told_from_ordinary_memory() {
        let Some(gpu) = testing::gpu() else { return };
        let pinned = Opened::open(0).unwrap().pinned(10_000).unwrap();
        assert!(gpu.is_pinned((*pinned).as_ref().as_ptr()));
        assert!(gpu.is_pinned(&raw const (*pinned).as_ref()[4_321]));
        let ordinary = vec![0_u8; 10_000];
        assert!(!gpu.is_pinned(ordinary.as_ptr()));
    }

    /// A plane in page-locked memory, in rows that are padded.
    struct InPinned(Box<dyn PinnedMemory>, Size);

    impl Picture for InPinned {
        fn plane(&self, _: usize) -> PlaneRef<'_> {
            PlaneRef::new((*self.0).as_ref(), self.1, self.1.width + 13)
        }
    }

    #[test]
    fn frames_are_searched_alike_on_the_device_in_page_locked_memory_and_in_ordinary_memory() {
        let Some(gpu) = testing::gpu() else { return };
        for seed in 5..7 {
            masks_are_alike_wherever_frames_lie(&gpu, seed, false);
        }
    }

    #[test]
    fn frames_of_limited_range_are_expanded_wherever_they_lie() {
        let Some(gpu) = testing::gpu() else { return };
        for seed in 5..7 {
            masks_are_alike_wherever_frames_lie(&gpu, seed, true);
        }
    }

    fn masks_are_alike_wherever_frames_lie(gpu: &Gpu, seed: u64, expands: bool) {
        let device = Opened::open(0).unwrap();
        let format = format(PixelFormat::GRAY8, Size::new(317, 203));
        let mut random = Random(seed);
        let traffic = Traffic::default();
        let standing = Standing::new(format.size)
            .thresholding(Some("mean:9:3".parse().unwrap()), true)
            .expanding(expands);
        let on_host = Options { threads: 1, ..Options::default().on_cpu() };
        let options = Options { depth: 3, traffic: traffic.clone(), ..Options::default() };
        let mut cpu = cpu::Cpu::open(standing.clone(), &on_host).unwrap();
        let mut cuda = Cuda::open(standing, &options, 0).unwrap();
        for turn in 0..9 {
            let (memory, definition) = picture(gpu, &format, &mut random);
            let plane = definition.plane(0).to_plane();
            let mut pinned = device.pinned((format.size.width + 13) * format.size.height).unwrap();
            let rows = (*pinned).as_mut().chunks_exact_mut(format.size.width + 13);
            for (row, pixels) in rows.zip(plane.as_ref().rows()) {
                row[..pixels.len()].copy_from_slice(pixels);
                row[pixels.len()..].fill(0xA5);
            }
            let kinds: [Arc<dyn Picture>; 3] = [
                Arc::new(plane.clone()),
                Arc::new(InPinned(pinned, format.size)),
                device.adopt(memory, &format).unwrap(),
            ];
            let (_, _, copied) = traffic.so_far();
            let mut masks = Vec::new();
            for (index, kind) in kinds.iter().enumerate() {
                let arrived = std::time::Instant::now();
                let meta = FrameMeta { index: index as u64, pts_ns: None, duration_ns: None, arrived };
                cuda.submit(meta, kind).unwrap();
            }
            for _ in &kinds {
                let mut findings = Findings::default();
                cuda.wait_next(&mut findings).unwrap().unwrap();
                masks.push(findings.mask.unwrap().plane(0).to_plane());
            }
            assert!(masks[0] == masks[1] && masks[0] == masks[2], "turn {turn}");
            let arrived = std::time::Instant::now();
            let meta = FrameMeta { index: 0, pts_ns: None, duration_ns: None, arrived };
            cpu.submit(meta, &kinds[0]).unwrap();
            let mut findings = Findings::default();
            cpu.wait_next(&mut findings).unwrap().unwrap();
            assert!(masks[0] == findings.mask.unwrap().plane(0).to_plane(), "turn {turn}: the CPU's mask");
            let (_, _, copied_now) = traffic.so_far();
            assert_eq!(copied_now - copied, format.size.area() as u64, "only ordinary memory is copied");
        }
    }

    #[test]
    fn a_plane_that_is_narrower_than_its_rows_is_refused() {
        let Some(gpu) = testing::gpu() else { return };
        let format = format(PixelFormat::GRAY8, Size::new(40, 30));
        let (memory, _) = picture(&gpu, &format, &mut Random(3));
        let wider = VideoFormat { size: Size::new(400, 3), ..format };
        let error = Opened::open(0).unwrap().adopt(memory, &wider).err().unwrap().to_string();
        assert!(error.contains("does not lie in these planes"), "{error}");
    }
}
