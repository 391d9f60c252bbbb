//! Outlines that are looked for in pictures on the device, by kernels/outlines.cu.
//!
//! A request shrinks the picture, finds the directions of its edges, sums them up for all outlines, and takes
//! the best places of each: four launches, whose answer is 24 bytes an outline.

#![expect(unsafe_code, reason = "launching a kernel: what it reads and writes are addresses without lengths")]

use lockon_core::error::Result;
use lockon_core::frame::outlines::{self, Outline, OutlineFinder, PLACES, Peaks};
use lockon_core::locks::lock;

use super::driver::{DeviceBuffer, Kernel, Mark, PinnedBuffer, Priority, Stream, arg, bytes_of, ptx};
use super::shared::{constant, pod_structure};
use super::staged::Staged;
use super::surface::{DevicePicture, Shared};

const PTX: &str = include_str!("../ptx/outlines.ptx");
const BLOCK: usize = constant(PTX, "BLOCK");
const MATCH_BLOCK: usize = constant(PTX, "MATCH_BLOCK");
const _: () = assert!(
    outlines::DIRECTIONS == constant(PTX, "DIRECTIONS")
        && outlines::LEAST_GRADIENT as usize == constant(PTX, "LEAST_GRADIENT")
        && outlines::OWN as usize == constant(PTX, "OWN")
        && outlines::NEXT as usize == constant(PTX, "NEXT")
        && outlines::SECOND as usize == constant(PTX, "SECOND")
        && outlines::MOST_EDGES == constant(PTX, "MOST_EDGES")
        && PLACES == constant(PTX, "PLACES")
);

/// `Edge` of the kernels.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
struct PackedEdge {
    x: u16,
    y: u16,
    direction: u32,
}

pod_structure!(PackedEdge, 8 bytes { x: u16, y: u16, direction: u32 = 4 });

/// `Outline` of the kernels.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
struct PackedOutline {
    first: i32,
    edges: i32,
    columns: i32,
    rows: i32,
    band: i32,
    bests: i32,
    across: i32,
    down: i32,
}

pod_structure!(PackedOutline, 32 bytes {
    first: i32,
    edges: i32,
    columns: i32 = 8,
    rows: i32,
    band: i32,
    bests: i32,
    across: i32 = 24,
    down: i32,
});

/// `Peak` of the kernels.
#[derive(Debug, Clone, Copy, Default)]
#[repr(C)]
struct PackedPeak {
    score: i32,
    row: i32,
    column: i32,
}

pod_structure!(PackedPeak, 12 bytes { score: i32, row: i32, column: i32 });

impl PackedPeak {
    fn peak(self) -> Option<outlines::Peak> {
        let Self { score, row, column } = self;
        (score > 0).then_some(outlines::Peak {
            score: score as u8,
            row: row as usize,
            column: column as usize,
        })
    }
}

pub(super) struct OutlineKernels {
    see: Kernel,
    find: Kernel,
    take: Kernel,
}

/// The stream and the buffers of one request at a time. They grow to what is asked.
pub(super) struct Finder {
    stream: Stream,
    mark: Mark,
    asked: Staged,
    /// The shrunken picture, the directions about its pixels, and the best of each band and column.
    scratch: Option<DeviceBuffer<u8>>,
    answer: Option<PinnedBuffer<PackedPeak>>,
}

impl OutlineKernels {
    fn of(device: &Shared) -> Result<&Self> {
        if let Some(kernels) = device.outlines.get() {
            return Ok(kernels);
        }
        let module = device.gpu.share(ptx!("outlines"))?;
        let kernel = |name| module.kernel(name);
        let kernels =
            Self { see: kernel("see_edges")?, find: kernel("match_outlines")?, take: kernel("take_peaks")? };
        Ok(device.outlines.get_or_init(|| kernels))
    }
}

impl OutlineFinder for DevicePicture {
    fn find_outlines(&self, factor: usize, outlines: &[&Outline], peaks: &mut [Peaks]) {
        if let Err(error) = self.try_find_outlines(factor, outlines, peaks) {
            self.note(error);
            peaks.fill(Peaks::default());
        }
    }
}

impl DevicePicture {
    fn try_find_outlines(&self, factor: usize, outlines: &[&Outline], peaks: &mut [Peaks]) -> Result<()> {
        assert_eq!(outlines.len(), peaks.len(), "peaks of outlines");
        if outlines.is_empty() {
            return Ok(());
        }
        let finders = || lock(&self.device.finders);
        let free = finders().pop();
        let mut finder = free.map_or_else(|| Finder::new(&self.device), Ok)?;
        finder.find(self, factor, outlines, peaks)?;
        finders().push(finder);
        Ok(())
    }
}

impl Finder {
    fn new(device: &Shared) -> Result<Self> {
        Ok(Self {
            stream: device.gpu.stream(Priority::High)?,
            mark: device.gpu.mark()?,
            asked: Staged::default(),
            scratch: None,
            answer: None,
        })
    }

    fn find(
        &mut self,
        picture: &DevicePicture,
        factor: usize,
        outlines: &[&Outline],
        peaks: &mut [Peaks],
    ) -> Result<()> {
        let device = &*picture.device;
        let OutlineKernels { see, find, take } = OutlineKernels::of(device)?;
        let size = picture.shrunken(factor);
        let (width, height) = (size.width, size.height);
        let (mut edges, mut bests, mut most) = (Vec::new(), 0, (0, 0));
        let packed = outlines.iter().map(|outline| {
            let &&Outline { edges: ref own, width: across, height: down } = outline;
            let is_inside = |edge: &outlines::Edge| {
                usize::from(edge.x) < across
                    && usize::from(edge.y) < down
                    && usize::from(edge.direction) < outlines::DIRECTIONS
            };
            assert!(
                own.len() <= outlines::MOST_EDGES
                    && own.iter().all(is_inside)
                    && across <= width
                    && down <= height,
                "an outline of {across}x{down} with {} edges in {size}",
                own.len()
            );
            let first = edges.len();
            edges.extend(own.iter().map(|&outlines::Edge { x, y, direction }| PackedEdge {
                x,
                y,
                direction: u32::from(direction),
            }));
            let ((columns, rows), band) = (outline.places_in((width, height)), outline.band());
            let (bands, at) = (rows.div_ceil(band), bests);
            most = (columns.max(most.0), bands.max(most.1));
            bests += bands * columns;
            let (across, down) = outline.apart();
            let [first, edges, columns, rows, band, bests, across, down] =
                [first, own.len(), columns, rows, band, at, across, down].map(|number| number as i32);
            PackedOutline { first, edges, columns, rows, band, bests, across, down }
        });
        let packed: Vec<_> = packed.collect();
        // Scores begin at an even byte.
        let (area, count) = (size.area().next_multiple_of(2), outlines.len());
        let Self { stream, mark, asked, scratch, answer } = self;
        let length = 2 * area + 2 * bests;
        let scratch = match scratch.take() {
            Some(room) if room.len() >= length => scratch.insert(room),
            _ => scratch.insert(device.gpu.alloc("edges of a picture", length.next_power_of_two())?),
        };
        let answer = match answer.take() {
            Some(room) if room.len() >= count * PLACES => answer.insert(room),
            _ => {
                let length = (count * PLACES).next_power_of_two();
                answer.insert(device.gpu.alloc_pinned_piece("places of outlines", length)?)
            }
        };
        let at = asked.reserve(device, size_of_val(&*packed) + size_of_val(&*edges))?;
        let listed = at + size_of_val(&*packed) as u64;
        let (means, near) = (scratch.address(), scratch.address_of(area));
        let (bests, answered) = (scratch.address_of(2 * area), answer.device_address());
        let (w, h) = (width as i32, height as i32);
        let mut ask = || {
            // SAFETY: the scratch has room for the shrunken picture, and is kept and waited for below, as the
            // picture is by the caller.
            unsafe { picture.shrink_to(stream, factor, means)? };
            // SAFETY: the last request was waited for, as this one is below, before anything is dropped.
            unsafe { asked.upload(device, stream, &[bytes_of(&packed), bytes_of(&edges)])? };
            let blocks = [size.area().div_ceil(BLOCK), 1, 1];
            // SAFETY: these are the kernel's arguments: a shrunken picture, and as much room.
            unsafe {
                let arguments = &mut [arg(&means), arg(&w), arg(&h), arg(&near)];
                stream.launch(see, blocks, [BLOCK, 1, 1], 0, arguments)?;
            }
            let blocks = [most.0.div_ceil(MATCH_BLOCK), most.1, count];
            // SAFETY: these are the kernel's arguments: a map of directions, outlines that were copied, which
            // lie in it at all of their places and whose edges lie in them, as checked above, and room for
            // the best of each band and column.
            unsafe {
                let arguments = &mut [arg(&near), arg(&w), arg(&at), arg(&listed), arg(&bests)];
                stream.launch(find, blocks, [MATCH_BLOCK, 1, 1], 0, arguments)?;
            }
            // SAFETY: as above; `answer` has room for the places of each, and is not touched until the wait
            // below.
            unsafe {
                let arguments = &mut [arg(&at), arg(&bests), arg(&answered)];
                stream.launch(take, [count, 1, 1], [BLOCK, 1, 1], 0, arguments)
            }
        };
        let begun = ask();
        // Also after a failure: started work may still write.
        let waited = stream.wait_for_mark(mark);
        begun.and(waited)?;
        let found = &answer.as_slice()[..count * PLACES];
        device.traffic.add_down(size_of_val(found));
        for (peaks, found) in peaks.iter_mut().zip(found.as_chunks::<PLACES>().0) {
            *peaks = found.map(PackedPeak::peak);
        }
        Ok(())
    }
}
